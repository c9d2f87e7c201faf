/**
 * Long steps, told above their columns where all columns are as wide: a step of seconds is one of many there. A small
 * clock and how long it took; the longest ones are told when there is no room for all. In time they are wide: nothing
 * is told.
 *
 * @import {Canvas, KnownView, Plot} from "./types.js"
 */

import { duration } from "./format.js";
import { drawText } from "./marks.js";

/** A step is long when it takes so many times the median of those in view. */
const LONG = 5;
/** Shorter is never called long. */
const LEAST_US = 1000;
/** A median of fewer says nothing. */
const ENOUGH = 8;
const CLOCK = 4; // its radius
const APART = 6;

let walls = new Float64Array(512);

/**
 * The columns of long steps, longest first.
 * @param {Map<number, {wall_us: number}>} steps @param {number} from @param {number} to both in view
 * @returns {Array<{column: number, us: number}>}
 */
export function longSteps(steps, from, to) {
  if (to - from + 1 > walls.length) walls = new Float64Array(2 * (to - from + 1));
  let n = 0;
  for (let column = from; column <= to; column += 1) {
    const step = steps.get(column);
    if (step) walls[n++] = step.wall_us;
  }
  if (n < ENOUGH) return [];
  const limit = Math.max(LEAST_US, LONG * walls.subarray(0, n).sort()[Math.floor((n - 1) / 2)]);
  const found = [];
  for (let column = from; column <= to && walls[n - 1] > limit; column += 1) {
    const us = steps.get(column)?.wall_us ?? 0;
    if (us > limit) found.push({ column, us });
  }
  return found.sort((one, other) => other.us - one.us);
}

/** @param {Canvas} g @param {Plot} plot @param {number} y @param {KnownView} view */
export function drawLongSteps(g, plot, y, { axis, history, palette }) {
  if (axis.timed) return;
  const { from, to } = axis.span(plot);
  /** @type {Array<[number, number]>} */
  const taken = [];
  for (const { column, us } of longSteps(history.steps, from, to)) {
    const text = duration(us);
    const x = axis.x(column + 0.5, plot);
    const width = g.measureText(text).width + CLOCK + 6;
    const flip = x + width > plot.right; // words left of the clock
    const [start, end] = flip ? [x - width - APART, x + CLOCK + APART] : [x - CLOCK - APART, x + width + APART];
    if (x < plot.left || taken.some(([left, right]) => start < right && end > left)) continue;
    taken.push([start, end]);
    g.textAlign = flip ? "right" : "left";
    drawText(g, text, flip ? x - CLOCK - 3 : x + CLOCK + 3, y, palette);
    drawClock(g, x, y, palette);
  }
}

/** @param {Canvas} g @param {number} x @param {number} y @param {import("./palette.js").Palette} palette */
function drawClock(g, x, y, palette) {
  g.fillStyle = palette.well;
  g.strokeStyle = palette.fg;
  g.lineWidth = 1;
  g.beginPath();
  g.arc(x, y, CLOCK, 0, 7);
  g.fill();
  g.moveTo(x, y - CLOCK + 1);
  g.lineTo(x, y);
  g.lineTo(x + CLOCK - 2, y);
  g.stroke();
}
