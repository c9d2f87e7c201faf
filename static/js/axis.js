/**
 * The shared time axis: which columns (steps) the time panels show, and whether they follow the newest one.
 * Following is explicit: any pan, zoom or selection stops it, `follow` resumes it. A plot is {left, right} in CSS
 * pixels; the axis ends at every plot's right edge, so panels of different widths line up on "now".
 *
 * @typedef {{left: number, right: number}} Plot
 * @typedef {ReturnType<typeof createAxis>} Axis
 */

const MIN_PX = 3;
const MAX_PX = 40;
const COLUMNS = 76; // shown by default
const LABELS_PX = 60; // at the left edge of a plot, where labels may stand

export function createAxis() {
  return {
    following: true,
    /** Right edge, in columns (exclusive). */
    right: 1,
    /** Width of a column in CSS pixels. */
    px: 6,
    chosen: false, // by a person; until then it comes from the width of the widest plot

    /** Called before drawing. @param {number} last newest column */
    update(last) {
      if (this.following) this.right = last + 1;
    },
    /** @param {Plot} plot */
    suit(plot) {
      if (!this.chosen) this.px = Math.min(14, Math.max(5, Math.round((plot.right - plot.left) / COLUMNS)));
    },
    /** @param {number} column @param {Plot} plot */
    x(column, plot) {
      return plot.right - (this.right - column) * this.px;
    },
    /** @param {number} x @param {Plot} plot */
    columnAt(x, plot) {
      return Math.floor(this.right - (plot.right - x) / this.px);
    },
    /** First and last column that can be seen. @param {Plot} plot */
    span(plot) {
      return { from: Math.floor(this.right - (plot.right - plot.left) / this.px), to: Math.ceil(this.right) - 1 };
    },
    /** @param {number} columns to the left when negative @param {number} last */
    pan(columns, last) {
      this.following = false;
      this.right = Math.min(last + 1, Math.max(1, this.right + columns));
    },
    /** Zoom about x. @param {number} factor @param {number} x @param {Plot} plot @param {number} last */
    zoom(factor, x, plot, last) {
      const fixed = this.right - (plot.right - x) / this.px;
      const wanted = Math.round(this.px * factor) || 1;
      this.px = Math.min(MAX_PX, Math.max(MIN_PX, wanted === this.px ? wanted + Math.sign(factor - 1) : wanted));
      this.chosen = true;
      this.following = false;
      this.right = Math.min(last + 1, fixed + (plot.right - x) / this.px);
    },
    /** Bring a column into view, moving as little as possible. @param {number} column @param {Plot} plot */
    reveal(column, plot) {
      const { from, to } = this.span(plot);
      this.following = false;
      const margin = Math.ceil(LABELS_PX / this.px);
      if (column < from + margin) this.right -= from + margin - column;
      if (column > to) this.right += column - to;
    },
    /** Put it where it stood. @param {number} right @param {number | null} px */
    place(right, px) {
      this.following = false;
      this.right = right;
      if (px !== null) Object.assign(this, { px: Math.min(MAX_PX, Math.max(MIN_PX, px)), chosen: true });
    },
    hold() {
      this.following = false;
    },
    follow() {
      this.following = true;
    },
  };
}
