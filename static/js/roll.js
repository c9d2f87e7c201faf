/**
 * Columns painted once and then moved. What a step looks like never changes, so a frame on the time axis paints only
 * the steps that are new to it, beside the picture, and copies the others from there.
 *
 * @import {Canvas, KnownView, Step} from "./types.js"
 *
 * @typedef {OffscreenCanvasRenderingContext2D} Paper
 */

import { createTimeRoll, differs } from "./roll_time.js";

export function createRoll() {
  const canvas = new OffscreenCanvas(1, 1);
  const paper = /** @type {Paper} */ (canvas.getContext("2d"));
  const drawInTime = createTimeRoll();
  /** What is painted at each place; a column's place is its number modulo the places. @type {Array<Step | null>} */
  let painted = [];
  let look = /** @type {unknown[]} */ ([]);

  /** Begin anew when anything that all columns depend on has changed. @param {unknown[]} now @param {number} places @param {number} width @param {number} height */
  function prepare(now, places, width, height) {
    if (!differs(now, look)) return;
    look = now;
    painted = new Array(places).fill(null);
    Object.assign(canvas, { width: places * width, height });
  }

  /** Paint a column at its place, unless it is there. @param {number} place @param {Step | null} step @param {number} scale @param {number} width @param {number} px @param {(g: Paper, step: Step, px: number) => void} paint */
  function paintAt(place, step, scale, width, px, paint) {
    if (painted[place] === step) return;
    painted[place] = step;
    paper.setTransform(1, 0, 0, 1, 0, 0);
    paper.clearRect(place * width, 0, width, canvas.height);
    paper.setTransform(scale, 0, 0, scale, place * width, 0);
    if (step) paint(paper, step, px);
  }

  return {
    /**
     * @param {Canvas} g
     * @param {{left: number, right: number, top: number, bottom: number}} area in CSS pixels
     * @param {KnownView} view
     * @param {unknown[]} setting what the look of a column depends on besides its step and the palette
     * @param {(g: Paper, step: Step, px: number) => void} paint one column, from x = 0 to px and y = 0 to the area's
     *        height
     */
    draw(g, area, view, setting, paint) {
      const { axis, byOwner, history, palette, lit } = view;
      const lights = lit.any ? [...lit.requests].join() : "";
      if (axis.timed) {
        drawInTime(g, area, view, [palette, byOwner, lights, ...setting], paint);
        return;
      }
      const scale = g.getTransform().a;
      const width = Math.ceil(axis.px * scale);
      const places = Math.ceil((area.right - area.left) / axis.px) + 2;
      const height = Math.max(1, Math.round((area.bottom - area.top) * scale));
      prepare([places, axis.px, scale, height, palette, byOwner, lights, ...setting], places, width, height);
      const first = Math.max(0, axis.span(area).from);
      const end = Math.ceil(axis.right);
      for (let column = first; column < end; column += 1) paintAt(column % places, history.steps.get(column) ?? null, scale, width, axis.px, paint);
      Object.assign(g, { imageSmoothingEnabled: false, globalAlpha: 1 });
      // Whole pixels: neighbours are copied together, up to where the places begin again. Else each is put on one.
      const together = width === axis.px * scale ? places : 1;
      for (let column = first, many; column < end; column += many) {
        const place = column % places;
        many = Math.min(together, places - place, end - column);
        const x = Math.round(axis.x(column, area) * scale) / scale;
        g.drawImage(canvas, place * width, 0, many * width, height, x, area.top, (many * width) / scale, height / scale);
      }
    },
  };
}
