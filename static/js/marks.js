/**
 * Marks that more than one canvas draws: hollow cells, ends, gaps, axis ticks. Each state has its own shape, so that
 * hue is never the only difference.
 *
 * @import {Canvas, KnownView, Palette, Plot, RequestFacts} from "./types.js"
 */

import { count, NONE } from "./format.js";
import { stepNumber } from "./history.js";
import { timeTicks } from "./time_ticks.js";

/**
 * An outlined cell, crisp at any pixel ratio.
 * @param {Canvas} g @param {number} x @param {number} y @param {number} width @param {number} height @param {string} colour
 */
export function hollow(g, x, y, width, height, colour, line = 1) {
  g.strokeStyle = colour;
  g.lineWidth = line;
  g.strokeRect(x + line / 2, y + line / 2, Math.max(0, width - line), Math.max(0, height - line));
}

/** What the ends of lanes look like. */
export const CAP_WORDS = "Ends: ■ stop, ┃ length, ✕ cancelled, ▲ error.";

/**
 * Where a lane or a stay ends, a shape per reason; none where the reason was not heard.
 * @param {Canvas} g @param {number} x @param {number} y @param {number} height @param {string | null} reason @param {Palette} palette
 */
export function endCap(g, x, y, height, reason, palette) {
  const r = Math.min(4, height / 2);
  if (reason === "abort") {
    g.strokeStyle = palette.fg;
    g.lineWidth = 2;
    g.beginPath();
    g.moveTo(x - r, y - r);
    g.lineTo(x + r, y + r);
    g.moveTo(x + r, y - r);
    g.lineTo(x - r, y + r);
    g.stroke();
  } else if (reason === "error") {
    g.fillStyle = palette.fault;
    g.beginPath();
    g.moveTo(x, y - r);
    g.lineTo(x + r + 1, y + r);
    g.lineTo(x - r - 1, y + r);
    g.fill();
  } else {
    g.fillStyle = palette.fg;
    if (reason === "stop") g.fillRect(x - r / 2, y - r, 2 * r, 2 * r);
    else if (reason === "length") g.fillRect(x, y - height / 2, 2, height);
  }
}

/**
 * What lies ahead of the moment shown is pale, and the line before it is that moment.
 * @param {Canvas} g @param {Plot} plot @param {number} top @param {number} bottom @param {Pick<KnownView, "axis" | "palette" | "until">} view
 */
export function drawAhead(g, plot, top, bottom, { axis, palette, until }) {
  if (until === Infinity) return;
  const x = Math.max(plot.left, axis.end(Math.ceil(until) - 1, plot));
  if (x >= plot.right) return;
  g.globalAlpha = 0.72;
  g.fillStyle = palette.well;
  g.fillRect(x, top, plot.right - x, bottom - top);
  g.globalAlpha = 1;
  g.fillStyle = palette.fg;
  g.fillRect(x - 0.5, top, 1, bottom - top);
}

/**
 * Columns whose events never reached us, and the start of a new engine.
 * @param {Canvas} g @param {Plot} plot @param {number} top @param {number} bottom @param {KnownView} view
 */
export function drawBreaks(g, plot, top, bottom, { axis, history, palette }) {
  for (const gap of history.gaps) {
    const from = Math.max(plot.left, axis.x(gap.from, plot));
    const to = Math.min(plot.right, axis.end(gap.to, plot));
    if (to <= from) continue;
    g.fillStyle = palette.hatch.gap;
    g.fillRect(from, top, to - from, bottom - top);
  }
  if (axis.timed) drawNoTime(g, plot, top, bottom, axis, palette);
  for (const { at } of history.epochs) {
    if (at === -Infinity) continue;
    const clock = axis.timed ? axis.times.clocks.find((each) => each.at === at) : null; // its first steps may not be known
    const x = clock ? plot.right - (axis.edge - (clock.since + clock.begin) / 2) * axis.scale : axis.x(at + 0.5, plot);
    if (x < plot.left || x > plot.right) continue;
    g.fillStyle = palette.fault;
    g.fillRect(x, top, 1, bottom - top);
    g.textAlign = "right";
    g.fillText("new engine ", axis.timed ? axis.x(at, plot) : x, top + 7);
  }
}

/** Between the known steps of two engines: their clocks are not comparable. @param {Canvas} g @param {Plot} plot @param {number} top @param {number} bottom @param {KnownView["axis"]} axis @param {Palette} palette */
function drawNoTime(g, plot, top, bottom, { times, edge, scale }, palette) {
  g.fillStyle = palette.hatch.gap;
  for (const { since, begin } of times.clocks) {
    const [from, to] = [since, begin].map((at) => Math.min(plot.right, Math.max(plot.left, plot.right - (edge - at) * scale)));
    if (to > from) g.fillRect(from, top, to - from, bottom - top);
  }
}

/** Step numbers along the bottom, or seconds of the engine. @param {Canvas} g @param {Plot} plot @param {number} y @param {KnownView} view */
export function drawTicks(g, plot, y, { axis, history, palette }) {
  if (axis.timed) {
    for (const { x, text } of timeTicks(axis, plot)) {
      g.fillStyle = palette.muted;
      g.fillRect(Math.round(x), y - 9, 1, 3);
      g.textAlign = "center";
      g.fillText(text, x, y);
    }
    return;
  }
  const { from, to } = axis.span(plot);
  const every = [5, 10, 20, 50, 100, 200, 500].find((n) => n * axis.px >= 76) ?? 1000;
  g.fillStyle = palette.muted;
  g.textAlign = "right";
  g.fillText("step", plot.left, y);
  g.textAlign = "center";
  for (let column = from; column <= to; column += 1) {
    const step = stepNumber(history, column);
    if (step <= 0 || step % every !== 0) continue;
    const x = axis.x(column + 0.5, plot);
    if (x < plot.left + 22 || x > plot.right - 12) continue;
    g.fillText(count(step), x, y);
  }
}

/**
 * The chosen step, as a column through the panel.
 * @param {Canvas} g @param {Plot} plot @param {number} top @param {number} bottom @param {KnownView} view
 */
export function drawChosenColumn(g, plot, top, bottom, { axis, lit, palette }) {
  if (lit.column === null) return;
  const x = axis.x(lit.column, plot);
  const width = Math.max(1, axis.width(lit.column));
  if (x < plot.left - width || x > plot.right) return;
  hollow(g, x - 1, top, width + 1, bottom - top, palette.fg, 1);
}

/** Words that stay legible over lines. @param {Canvas} g @param {string} words @param {number} x @param {number} y @param {Palette} palette */
export function drawText(g, words, x, y, palette) {
  g.strokeStyle = palette.well;
  g.lineWidth = 4;
  g.lineJoin = "round";
  g.strokeText(words, x, y);
  g.fillStyle = palette.fg;
  g.fillText(words, x, y);
}

/** "12/64", output tokens so far against the limit. @param {RequestFacts | undefined} facts */
export function outputShare(facts) {
  return facts ? `${facts.num_output_tokens}/${facts.max_tokens}` : NONE;
}
