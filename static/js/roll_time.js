/**
 * Columns in time, painted once and then moved (see roll.js): the picture is a ring of pixels, and a place on the axis
 * is always at the same one. A frame paints what has come into view beside it, and copies the rest from there.
 *
 * @import {Canvas, KnownView, Step} from "./types.js"
 *
 * @typedef {OffscreenCanvasRenderingContext2D} Paper
 * @typedef {{left: number, right: number, top: number, bottom: number}} Area in CSS pixels
 * @typedef {(g: Paper, step: Step, px: number) => void} Paint
 */

/** Marks of narrow columns reach so many pixels into the next. */
const REACH = 4;

/** Two looks are the same when each of their parts is: numbers, strings, or the same palette. @param {unknown[]} one @param {unknown[]} other */
export function differs(one, other) {
  return one.length !== other.length || one.some((part, i) => part !== other[i]);
}

export function createTimeRoll() {
  const canvas = new OffscreenCanvas(1, 1);
  const paper = /** @type {Paper} */ (canvas.getContext("2d"));
  let look = /** @type {unknown[]} */ ([]);
  // What is painted, in the screen's pixels from the beginning of the axis on.
  let from = 0;
  let to = 0;

  /** Paint a part of the axis. @param {number} start @param {number} stop @param {number} scale the screen's pixels per CSS pixel @param {KnownView} view @param {Paint} paint */
  function paintPart(start, stop, scale, { axis, history }, paint) {
    const { times } = axis;
    const perUs = axis.scale * scale;
    for (let piece = start, next; piece < stop; piece = next) {
      const base = Math.floor(piece / canvas.width) * canvas.width;
      next = Math.min(stop, base + canvas.width);
      paper.save();
      paper.setTransform(1, 0, 0, 1, 0, 0);
      paper.beginPath();
      paper.rect(piece - base, 0, next - piece, canvas.height);
      paper.clip();
      paper.clearRect(piece - base, 0, next - piece, canvas.height);
      const columns = times.between((piece - REACH) / perUs, (next + REACH) / perUs);
      for (let column = columns.from; column <= columns.to; column += 1) {
        const step = history.steps.get(column);
        if (!step) continue;
        paper.setTransform(scale, 0, 0, scale, times.start(column) * perUs - base, 0);
        paint(paper, step, axis.width(column));
      }
      paper.restore();
    }
  }

  /** Have a part of the axis painted. @param {number} start @param {number} stop @param {(start: number, stop: number) => void} paintFrom */
  function cover(start, stop, paintFrom) {
    if (stop <= from || start >= to) [from, to] = [start, start];
    if (stop > to) {
      paintFrom(Math.max(from, to - 1), stop); // the last pixel may have more to show by now
      to = stop;
      from = Math.max(from, to - canvas.width);
    }
    if (start < from) {
      paintFrom(start, from);
      from = start;
      to = Math.min(to, from + canvas.width);
    }
  }

  /** @param {Canvas} g @param {Area} area @param {KnownView} view @param {unknown[]} now what the look of columns depends on @param {Paint} paint */
  return (g, area, view, now, paint) => {
    const { axis } = view;
    const scale = g.getTransform().a;
    const width = Math.max(1, Math.round((area.right - area.left) * scale));
    const height = Math.max(1, Math.round((area.bottom - area.top) * scale));
    const all = [width, height, scale, axis.scale, axis.times.version, ...now];
    if (differs(all, look)) {
      look = all;
      [from, to] = [0, 0];
      Object.assign(canvas, { width: width + 2 * REACH, height });
    }
    const edge = Math.round(axis.edge * axis.scale * scale);
    const stop = Math.min(edge, Math.floor(axis.times.newest * axis.scale * scale) + 1);
    const start = edge - width;
    if (stop <= start) return;
    cover(start, stop, (first, last) => paintPart(first, last, scale, view, paint));
    Object.assign(g, { imageSmoothingEnabled: false, globalAlpha: 1 });
    const right = Math.round(area.right * scale);
    for (let piece = start, next; piece < stop; piece = next) {
      const base = Math.floor(piece / canvas.width) * canvas.width;
      next = Math.min(stop, base + canvas.width);
      g.drawImage(canvas, piece - base, 0, next - piece, height, (right - edge + piece) / scale, area.top, (next - piece) / scale, height / scale);
    }
  };
}
