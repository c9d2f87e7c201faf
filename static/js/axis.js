/**
 * The shared axis: which columns (steps) the timed panels show, and whether they follow the newest one. Either each
 * column is as wide as the next (steps), or it lies where its step lies in time and is as wide as that took (`timed`).
 * Following is explicit: any pan, zoom or selection stops it, `follow` resumes it. A plot is {left, right} in CSS
 * pixels; the axis ends at every plot's right edge, so panels of different widths line up on "now".
 *
 * Panels ask for `x` and `end` of a column, its `width`, the `columnAt` an x, and the `span` in view, no more; so they
 * need not know of which kind the axis is.
 *
 * @import {History} from "./types.js"
 *
 * @typedef {{left: number, right: number}} Plot
 * @typedef {ReturnType<typeof createAxis>} Axis
 */

import { createTimes } from "./times.js";

const MIN_PX = 3;
const MAX_PX = 40;
const COLUMNS = 76; // shown by default
const LABELS_PX = 60; // at the left edge of a plot, where labels may stand
/** In time, until somebody says otherwise. */
const SHOWN_US = 10_000_000;
/** CSS pixels per microsecond: from one a second to forty a millisecond. */
const MIN_SCALE = 1e-6;
const MAX_SCALE = 0.04;
/** More columns are not put into one view. */
const MOST_COLUMNS = 4000;

const within = (/** @type {number} */ least, /** @type {number} */ value, /** @type {number} */ most) => Math.min(most, Math.max(least, value));

export function createAxis() {
  const times = createTimes();
  /** After a whole column, what comes next is not in view. @param {number} right */
  const edgeOf = (right) => (Number.isInteger(right) ? times.end(right - 1) : times.place(right));
  return {
    following: true,
    /** The panel whose picture it suits, and what that leaves free at the right. */
    lead: "slots",
    gutter: 0,
    /** Right edge, in columns (exclusive). */
    right: 1,
    /** Width of a column in CSS pixels, when all have the same. */
    px: 6,
    chosen: false, // by a person; until then it comes from the width of the widest plot
    /** Columns lie in time. */
    timed: false,
    times,
    /** Right edge in time, see times.js. */
    edge: 0,
    /** CSS pixels per microsecond; 0 until a plot is known. */
    scale: 0,
    scaleChosen: false,
    ahead: false, // the edge lies where no step is yet

    /**
     * Called before drawing.
     * @param {number} last newest column @param {History | null} history @param {number} sinceUs what has passed since
     *        the end of the newest step, when one is due
     */
    update(last, history = null, sinceUs = 0) {
      if (this.timed && history) {
        const { version } = times;
        times.update(history);
        if (this.following) this.edge = times.newest + sinceUs;
        else if (times.version !== version && times.columnOf(this.edge) !== this.right) this.edge = edgeOf(this.right);
        else if (this.ahead) this.right = times.columnOf(this.edge);
        if (this.following) this.ahead = sinceUs > 0;
      }
      if (this.following) this.right = last + 1;
    },
    /** @param {Plot} plot */
    suit(plot) {
      const width = Math.max(1, plot.right - plot.left);
      if (!this.chosen) this.px = within(5, Math.round(width / COLUMNS), 14);
      if (!this.scale) this.scale = within(MIN_SCALE, width / SHOWN_US, MAX_SCALE);
      if (this.timed) this.thin(plot);
    },
    /** Steps may come to be so short that too many are in view: then half as many as may be, so that it is seldom. @param {Plot} plot */
    thin(plot) {
      const { from, to } = this.span(plot);
      if (to - from <= MOST_COLUMNS) return;
      const shown = this.edge - times.start(to - MOST_COLUMNS / 2);
      if (shown > 0) this.scale = within(this.scale, (plot.right - plot.left) / shown, MAX_SCALE);
    },
    /** Where a column begins, or a place within it is. @param {number} column @param {Plot} plot */
    x(column, plot) {
      if (this.timed) return plot.right - (this.edge - times.place(column)) * this.scale;
      return plot.right - (this.right - column) * this.px;
    },
    /** Where a column ends. @param {number} column @param {Plot} plot */
    end(column, plot) {
      if (this.timed) return plot.right - (this.edge - times.end(column)) * this.scale;
      return plot.right - (this.right - column - 1) * this.px;
    },
    /** Where one mark for what a step brought about stands: in its middle, in time at its end. @param {number} column @param {Plot} plot */
    mark(column, plot) {
      return this.timed ? this.end(column, plot) : this.x(column + 0.5, plot);
    },
    /** Where a moment of the engine is, in time; else the boundary it stands on. @param {number} boundary @param {number | null} us @param {Plot} plot */
    moment(boundary, us, plot) {
      if (!this.timed || us === null) return this.x(boundary, plot);
      return plot.right - (this.edge - times.placeOf(us, boundary)) * this.scale;
    },
    /** In CSS pixels. @param {number} column */
    width(column) {
      return this.timed ? (times.end(column) - times.start(column)) * this.scale : this.px;
    },
    /** The column at x; -1 where there is none. @param {number} x @param {Plot} plot */
    columnAt(x, plot) {
      if (!this.timed) return Math.floor(this.right - (plot.right - x) / this.px);
      const at = this.edge - (plot.right - x) / this.scale;
      const column = Math.floor(times.columnOf(at));
      return times.start(column) <= at && at < times.end(column) ? column : -1;
    },
    /** First and last column that can be seen. @param {Plot} plot */
    span(plot) {
      if (this.timed) return times.between(this.edge - (plot.right - plot.left) / this.scale, this.edge);
      return { from: Math.floor(this.right - (plot.right - plot.left) / this.px), to: Math.ceil(this.right) - 1 };
    },
    /** By a way on the screen. @param {number} pixels to the left when negative @param {number} last */
    drag(pixels, last) {
      this.following = false;
      if (this.timed) this.lay(this.edge + pixels / this.scale);
      else this.right = within(1, this.right + pixels / this.px, last + 1);
    },
    /** Zoom about x. @param {number} factor @param {number} x @param {Plot} plot @param {number} last */
    zoom(factor, x, plot, last) {
      if (this.timed) this.zoomTime(factor, x, plot);
      else {
        const fixed = this.right - (plot.right - x) / this.px;
        const wanted = Math.round(this.px * factor) || 1;
        this.px = within(MIN_PX, wanted === this.px ? wanted + Math.sign(factor - 1) : wanted, MAX_PX);
        this.chosen = true;
        this.following = false;
        this.right = Math.min(last + 1, fixed + (plot.right - x) / this.px);
      }
    },
    /** @param {number} factor @param {number} x @param {Plot} plot */
    zoomTime(factor, x, plot) {
      if (!this.scale) this.suit(plot); // nobody has drawn along it yet
      const scale = within(MIN_SCALE, this.scale * factor, MAX_SCALE);
      const fixed = this.edge - (plot.right - x) / this.scale;
      const edge = fixed + (plot.right - x) / scale;
      const { from, to } = times.between(edge - (plot.right - plot.left) / scale, edge);
      if (factor < 1 && to - from > MOST_COLUMNS) return;
      Object.assign(this, { scale, scaleChosen: true });
      this.lay(edge);
    },
    /** Put the right edge there, in time. @param {number} edge */
    lay(edge) {
      this.following = false;
      this.edge = within(times.oldest, edge, Math.max(this.edge, times.newest));
      this.right = times.columnOf(this.edge);
      this.ahead = this.edge > times.newest;
    },
    /** Bring a column into view, moving as little as possible. @param {number} column @param {Plot} plot */
    reveal(column, plot) {
      this.following = false;
      if (this.timed) {
        if (!times.knows(column)) return;
        const left = this.edge - (plot.right - plot.left - LABELS_PX) / this.scale;
        const [start, end] = [times.start(column), times.end(column)];
        if (start < left && end < this.edge) this.lay(this.edge - Math.min(left - start, this.edge - end));
        else if (end > this.edge && start > left) this.lay(this.edge + Math.min(end - this.edge, start - left));
        return;
      }
      const { from, to } = this.span(plot);
      const margin = Math.ceil(LABELS_PX / this.px);
      if (column < from + margin) this.right -= from + margin - column;
      if (column > to) this.right += column - to;
    },
    /** Put it where it stood. @param {number} right @param {number | null} px per column @param {number | null} perSecond px per second, in time */
    place(right, px, perSecond = null) {
      this.following = false;
      this.right = right;
      this.edge = edgeOf(right); // and again once it is known
      this.ahead = false;
      if (px !== null) Object.assign(this, { px: within(MIN_PX, px, MAX_PX), chosen: true });
      if (perSecond !== null) Object.assign(this, { scale: within(MIN_SCALE, perSecond / 1e6, MAX_SCALE), scaleChosen: true });
    },
    /** Steps or time: what is in view stays so, as far as it fits. @param {boolean} timed @param {Plot} plot @param {History | null} history */
    turn(timed, plot, history) {
      if (timed === this.timed) return;
      this.timed = timed;
      if (!timed || !history) return;
      times.update(history);
      this.edge = edgeOf(this.right);
      const width = plot.right - plot.left;
      const shown = this.edge - times.place(Math.max(0, this.right - width / this.px));
      if (shown > 0 && width > 0 && !this.scaleChosen) this.scale = within(MIN_SCALE, width / shown, MAX_SCALE);
    },
    hold() {
      this.following = false;
    },
    follow() {
      this.following = true;
    },
  };
}
