/**
 * The scale of durations at the left of a canvas: 0, half and a round number that holds the longest.
 *
 * @import {Canvas, Palette, Plot} from "./types.js"
 */

import { duration } from "./format.js";

/** The next round number. @param {number} us */
export function niceCeiling(us) {
  const unit = 10 ** Math.floor(Math.log10(us));
  return unit * ([1, 1.5, 2, 3, 5, 7.5].find((n) => n * unit >= us) ?? 10);
}

/**
 * @param {Canvas} g @param {Plot} plot @param {{top: number, bottom: number}} band
 * @param {number} most in us, at the top @param {Palette} palette
 */
export function drawScale(g, plot, band, most, palette) {
  const { top, bottom } = band;
  g.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    const y = bottom - (bottom - top) * share;
    g.fillStyle = palette.line;
    g.fillRect(plot.left, Math.round(y), plot.right - plot.left, 1);
    g.fillStyle = palette.muted;
    g.fillText(share === 0 ? "0" : duration(most * share), plot.left - 6, Math.min(bottom - 4, Math.max(top + 4, y)));
  }
}
