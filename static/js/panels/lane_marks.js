/**
 * Marks on a lane of the timeline, drawn where they are told: the flag of the first token, the bracket of the decode
 * time with its TPOT, the number of a prefill chunk, text on a hatched span. And the words beside a lane that ended.
 *
 * @import {Canvas, Palette, Plot, Timings} from "../types.js"
 */

import { duration } from "../format.js";

/** Text on a hatched span, on a patch of its own so that it can be read. @param {Canvas} g @param {string} text @param {number} start @param {number} stop @param {number} y @param {Palette} palette */
export function writeOver(g, text, start, stop, y, palette) {
  const width = g.measureText(text).width + 8;
  if (width > stop - start - 4) return;
  g.fillStyle = palette.well;
  g.fillRect(start + 3, y - 6, width, 12);
  g.fillStyle = palette.fault;
  g.textAlign = "left";
  g.fillText(text, start + 7, y);
}

/** The number of a chunk on it, where it is wide enough. @param {Canvas} g @param {string} text @param {number} x @param {number} width @param {number} y @param {Palette} palette */
export function writeChunk(g, text, x, width, y, palette) {
  g.font = palette.smallFont;
  if (g.measureText(text).width <= width - 1) {
    g.fillStyle = palette.onAccent;
    g.textAlign = "center";
    g.fillText(text, x + width / 2, y + 0.5);
  }
  g.font = palette.font;
}

/** The time to the first token ends here. @param {Canvas} g @param {number} x @param {number} top @param {number} height @param {Palette} palette */
export function drawFlag(g, x, top, height, palette) {
  g.fillStyle = palette.fg;
  g.fillRect(x - 1, top - 2, 1.5, height + 4);
  g.beginPath();
  g.moveTo(x - 1, top - 3);
  g.lineTo(x + 5, top);
  g.lineTo(x - 1, top + 3);
  g.fill();
}

/** From the first token to the last one. @param {Canvas} g @param {number} from @param {number} to @param {number} y @param {Palette} palette */
export function drawBracket(g, from, to, y, palette) {
  g.strokeStyle = palette.idle;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(from + 0.5, y - 2);
  g.lineTo(from + 0.5, y + 1.5);
  g.lineTo(to - 0.5, y + 1.5);
  g.lineTo(to - 0.5, y - 2);
  g.stroke();
}

/**
 * "TPOT 41 ms × 63" on the middle of a bracket, within the plot.
 * @param {Canvas} g @param {string} text @param {number} from @param {number} to @param {number} y @param {Plot} plot @param {Palette} palette
 */
export function writePace(g, text, from, to, y, plot, palette) {
  const half = g.measureText(text).width / 2 + 4;
  const x = Math.max(plot.left + half, Math.min(plot.right - half, (Math.max(from, plot.left) + Math.min(to, plot.right)) / 2));
  g.fillStyle = palette.well;
  g.fillRect(x - half, y - 6, 2 * half, 13);
  g.fillStyle = palette.fg;
  g.textAlign = "center";
  g.fillText(text, x, y + 0.5);
}

/** "TTFT 412 ms · 46 ms/tok", or why there is no such number. @param {Timings | null} times */
export function outcomeWords(times) {
  if (!times || times.ttft_us === null) return "";
  if (times.gated_us > 0) return "gated";
  const tpot = times.tpot_us === null ? "" : ` · ${duration(times.tpot_us)}/tok`;
  return `TTFT ${duration(times.ttft_us)}${tpot}`;
}
