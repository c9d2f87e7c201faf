/**
 * Flags: marks that somebody set, as poles on the step axis with their words at the top. The newest keep their words
 * when they stand too close; the table twin has all of them whole.
 *
 * @import {Canvas, KnownView, Palette, Plot} from "./types.js"
 */

const LEAST = 28; // room for words below which a flag is a pennant alone

/**
 * @param {Canvas} g @param {Plot} plot @param {number} top @param {number} bottom @param {KnownView} view
 * @param {{words?: boolean}} options
 */
export function drawFlags(g, plot, top, bottom, view, { words = true } = {}) {
  const { axis, history, palette } = view;
  const { from, to } = axis.span(plot);
  let limit = plot.right; // what stands right of it is taken
  for (const { at, text } of history.marks.toReversed()) {
    if (at < from || at > to + 1) continue;
    const x = axis.x(at, plot);
    if (x < plot.left) continue;
    drawPole(g, x, top, bottom, palette);
    if (words && x <= limit) limit = writeWords(g, text, x, top, limit, plot.left, palette);
  }
}

/** @param {Canvas} g @param {number} x @param {number} top @param {number} bottom @param {Palette} palette */
function drawPole(g, x, top, bottom, palette) {
  g.fillStyle = palette.fg;
  g.fillRect(Math.round(x) - 1, top, 2, bottom - top);
  g.beginPath();
  g.moveTo(x, top);
  g.lineTo(x + 8, top + 4);
  g.lineTo(x, top + 8);
  g.fill();
}

/**
 * Right of the pole where they fit, else left of it.
 * @param {Canvas} g @param {string} text @param {number} x @param {number} top @param {number} limit @param {number} left @param {Palette} palette
 * @returns {number} where what is taken now begins
 */
function writeWords(g, text, x, top, limit, left, palette) {
  const wanted = g.measureText(text).width;
  const [after, before] = [limit - x - 16, x - left - 10];
  const right = after >= wanted || after >= before;
  const room = Math.min(wanted, right ? after : before);
  if (room < LEAST && room < wanted) return x - 4;
  const shown = fit(g, text, room);
  const width = g.measureText(shown).width;
  const start = right ? x + 11 : x - width - 6;
  g.fillStyle = palette.well;
  g.fillRect(start - 2, top, width + 4, 13);
  g.fillStyle = palette.fg;
  g.textAlign = "left";
  g.fillText(shown, start, top + 7);
  return right ? x - 4 : start - 6;
}

/** The text, or its beginning and "…". @param {Canvas} g @param {string} text @param {number} room */
function fit(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  const chars = [...text];
  let length = Math.min(chars.length, Math.ceil(room / 3));
  while (length > 0 && g.measureText(`${chars.slice(0, length).join("")}…`).width > room) length -= 1;
  return `${chars.slice(0, length).join("")}…`;
}
