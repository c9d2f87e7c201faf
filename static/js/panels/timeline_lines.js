/**
 * Where lanes stand in the timeline: which are in view, in which rows, how high, and where one begins and ends.
 *
 * @import {KnownView, Lane, Plot, Size} from "../types.js"
 *
 * @typedef {ReturnType<typeof linesOf>} Lines
 */

import { isLive, lanesSince } from "../lanes.js";
import { GUTTER } from "./slots.js";

export const LEFT = 24;
export const TICKS = 15;
export const TOP = 4;
/** Rows closer than this have no room for more than a name. */
export const DENSE = 14;
const LOWEST = 10;
/** Columns after a lane's end that its label may take. */
const LABELLED = 24;

/** @param {Size} size */
export function plotOf(size) {
  return { left: LEFT, right: size.width - GUTTER };
}

/**
 * Rows grow no taller than reads well, and shrink when many lanes are in view. Rows above all that is in view keep their
 * place, so that nothing jumps, as long as there is room; where there is not, rows above all that goes on or is chosen give way.
 * @param {Size} size @param {Lane[]} lanes in view @param {Pick<KnownView, "until" | "choice">} view
 */
export function linesOf(size, lanes, { until, choice }) {
  const room = size.height - TICKS - TOP;
  let [top, kept, below, chosen] = [Infinity, Infinity, 0, -1];
  for (const lane of lanes) {
    [top, below] = [Math.min(top, lane.row), Math.max(below, lane.row + 1)];
    if (choice?.kind === "request" && choice.id === lane.id) chosen = lane.row;
    if (chosen === lane.row || isLive(lane, until)) kept = Math.min(kept, lane.row);
  }
  let first = below * DENSE > room && top < below ? top - (top % 4) : 0;
  if ((below - first) * LOWEST > room && kept < below) first = Math.max(first, kept - (kept % 4));
  const rows = Math.max(8, Math.ceil((below - first) / 4) * 4);
  const height = Math.max(LOWEST, Math.min(24, Math.floor(room / rows)));
  const shown = Math.floor(room / height);
  return { first: Math.max(first, chosen - shown + 1), height, shown };
}

/** @param {Lane} lane @param {Lines} lines */
export function isShown({ row }, { first, shown }) {
  return first <= row && row < first + shown;
}

/** @param {Lane} lane @param {KnownView} view */
function endOf(lane, { axis }) {
  return lane.end ? lane.end.at : axis.right;
}

/** @param {KnownView} view @param {Plot} plot */
export function lanesInView(view, plot) {
  const { from, to } = view.axis.span(plot);
  const isIn = (/** @type {Lane} */ lane) => lane.arrive <= to + 1 && endOf(lane, view) + LABELLED >= from;
  return [...lanesSince(view.history, from - LABELLED)].filter(isIn);
}

/** @param {Lane} lane @param {Lines} lines */
export function middle(lane, lines) {
  return TOP + (lane.row - lines.first + 0.5) * lines.height - (lines.height >= 18 ? 2 : 0);
}

/** @param {Lines} lines */
export function bandHeight(lines) {
  return Math.max(6, Math.min(12, lines.height - (lines.height < 18 ? 5 : 8)));
}

/** In time, when it arrived; else the boundary. @param {Lane} lane @param {Plot} plot @param {KnownView} view */
export function arrivalOf(lane, plot, { axis }) {
  return axis.moment(lane.arrive, lane.late ? null : lane.facts.arrival_us, plot);
}

/** @param {Lane} lane @param {Plot} plot @param {KnownView} view */
export function endX(lane, plot, { axis }) {
  return lane.end ? Math.min(plot.right, axis.end(lane.end.at - 1, plot)) : plot.right;
}
