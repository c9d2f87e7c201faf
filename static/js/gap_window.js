/**
 * The gaps between deliveries (itl.js) of a moving window of steps, worked out once per step and kept: between two looks
 * at it only its newest steps are new.
 *
 * What a step's gaps are changes only when steps before it become known (the history's map is another one then), or
 * when the step itself is another.
 *
 * @import {Gap} from "./itl.js"
 * @import {History, Step} from "./types.js"
 *
 * @typedef {{step: Step, gaps: Gap[], tally: Map<number, number> | null}} Known `tally`: once it was asked for, or heard live
 * @typedef {ReturnType<typeof createGapWindow>} GapWindow
 */

import { gapsBetween } from "./itl.js";

/** Columns that are kept at most, besides those asked for: as many as a view may hold (axis.js), and a window. */
const KEPT = 4608;
const AT_ONCE = 64;

export function createGapWindow() {
  let steps = /** @type {History["steps"] | null} */ (null);
  /** By column. @type {Map<number, Known>} */
  const known = new Map();
  let before = 0; // where the last range began: a picture and a window take turns

  /** Work out what is not known of these columns. @param {History} history @param {number} from @param {number} to */
  function learn(history, from, to) {
    if (history.steps !== steps) {
      known.clear();
      steps = history.steps;
    }
    let first = to + 1;
    for (let column = from; column <= to && first > to; column += 1) if (isNew(history, column)) first = column;
    if (first > to) return;
    for (let column = first; column <= to; column += 1) {
      const step = history.steps.get(column);
      known.delete(column);
      if (step) known.set(column, { step, gaps: [], tally: null });
    }
    for (const gap of gapsBetween(history, first, to)) known.get(gap.column)?.gaps.push(gap);
    for (const column of known.keys()) {
      if (known.size <= KEPT) break;
      if (column < from || column > to) known.delete(column);
    }
  }

  /** Let go of what lies before this range and the one before it. @param {number} from */
  function forget(from) {
    const oldest = Math.min(from, before);
    before = from;
    for (const column of known.keys()) if (column < oldest) known.delete(column);
  }

  /** @param {History} history @param {number} column */
  function isNew(history, column) {
    return known.get(column)?.step !== history.steps.get(column);
  }

  return {
    /**
     * Work out the newest ones now: a few at a time, so that nobody has to wait for many.
     * @param {History} history @param {number} to last column
     */
    follow(history, to) {
      let from = to + 1;
      while (from > to - AT_ONCE && history.steps.has(from - 1) && isNew(history, from - 1)) from -= 1;
      if (from > to) return;
      learn(history, from, to);
      for (let column = from; column <= to; column += 1) {
        const found = known.get(column);
        if (found) found.tally ??= tallyOf(found.gaps);
      }
    },
    /**
     * By step, newest first: its column and its gaps.
     * @param {History} history @param {number} from first column @param {number} to last column
     * @returns {Generator<Gap[]>}
     */
    *bySteps(history, from, to) {
      learn(history, Math.max(0, Math.floor(from)), Math.floor(to));
      forget(from);
      for (let column = Math.floor(to); column >= from; column -= 1) {
        const found = known.get(column);
        if (found) yield found.gaps;
      }
    },
    /**
     * Their samples, as how often each was seen.
     * @param {History} history @param {number} from first column @param {number} to last column
     */
    tally(history, from, to) {
      learn(history, Math.max(0, from), to);
      forget(from);
      /** @type {Map<number, number>} */
      const all = new Map();
      for (let column = Math.max(0, from); column <= to; column += 1) {
        const found = known.get(column);
        if (found) for (const [us, times] of (found.tally ??= tallyOf(found.gaps))) all.set(us, (all.get(us) ?? 0) + times);
      }
      return all;
    },
  };
}

/**
 * How often each sample was seen, in µs. One that a hand on the gate had a part in is no sample.
 * @param {Gap[]} gaps
 */
export function tallyOf(gaps) {
  /** @type {Map<number, number>} */
  const tally = new Map();
  for (const { us, gated, requests } of gaps) if (!gated) tally.set(us, (tally.get(us) ?? 0) + requests.length);
  return tally;
}
