/**
 * Where each column lies in time: from its step's start to its end, in microseconds of its engine's clock. What lies
 * between two steps is no column's. Clocks of different engines are not comparable: a new engine's first step stands
 * a few steps' time after the last one of the engine before. Columns whose steps are not known share the time between
 * those that are; after the newest known one they take none.
 *
 * @import {History, Step} from "./types.js"
 *
 * @typedef {ReturnType<typeof createTimes>} Times
 * @typedef {{at: number, offset: number, since: number, begin: number}} Clock from column `at` on, an engine's time plus
 *   `offset` is the place; `since`, the clock before has ended, and the first known step of this one is at `begin`
 */

import { oldestColumn } from "./history.js";

/** A new engine begins so many steps' time after the end of the one before. */
const BREAK_STEPS = 8;
/** Forgotten columns are dropped when they are more than this. */
const SLACK = 4096;

export function createTimes() {
  let first = 0; // column of the first place
  /** @type {number[]} */
  let starts = [];
  /** @type {number[]} */
  let ends = [];
  /** @type {Clock[]} */
  let clocks = [];
  let holes = 0; // at the end, still to share the time up to the next step
  let read = { history: /** @type {History | null} */ (null), steps: /** @type {Map<number, Step> | null} */ (null), resets: /** @type {number | null} */ (null) };
  let version = 0;

  const newest = () => ends.at(-1) ?? 0;

  /** @param {History} history */
  function isOther(history) {
    const { steps, resets } = read;
    return history !== read.history || history.steps !== steps || history.resets !== resets || oldestColumn(history) - first > SLACK;
  }

  /** @param {History} history */
  function beginAnew(history) {
    read = { history, steps: history.steps, resets: history.resets };
    first = oldestColumn(history);
    [starts, ends, clocks, holes] = [[], [], [], 0];
    version += 1;
  }

  /** @param {number} column @param {Step | undefined} step @param {History["epochs"]} epochs */
  function add(column, step, epochs) {
    const tail = newest();
    if (step) {
      const at = epochs.findLast((epoch) => epoch.at <= column)?.at ?? -Infinity;
      if (clocks.at(-1)?.at !== at) {
        const begin = starts.length ? tail + breakUs() : step.start_us;
        clocks.push({ at, offset: begin - step.start_us, since: starts.length ? tail : begin, begin });
      }
    }
    const offset = clocks.at(-1)?.offset ?? 0;
    const start = step ? (starts.length ? Math.max(tail, offset + step.start_us) : step.start_us) : tail;
    if (step && holes) share(tail, start);
    holes = step ? 0 : holes + 1;
    starts.push(start);
    ends.push(step ? start + step.wall_us : tail);
  }

  /** The columns at the end whose steps are not known. @param {number} from @param {number} to */
  function share(from, to) {
    const each = (to - from) / holes;
    for (let i = 0, at = starts.length - holes; i < holes; i += 1, at += 1) {
      starts[at] = from + i * each;
      ends[at] = from + (i + 1) * each;
    }
  }

  function breakUs() {
    const known = starts.length - holes;
    const n = Math.min(BREAK_STEPS, known);
    let us = 0;
    for (let i = known - n; i < known; i += 1) us += ends[i] - starts[i];
    return Math.max(1000, (us / n) * BREAK_STEPS);
  }

  /** The last place that begins at or before a moment; -1 before the first. @param {number} at */
  function find(at) {
    let [low, high] = [0, starts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (starts[middle] <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** @param {number} column */
  const start = (column) => (column < first ? (starts[0] ?? 0) : (starts[column - first] ?? newest()));
  /** @param {number} column */
  const end = (column) => (column < first ? (starts[0] ?? 0) : (ends[column - first] ?? newest()));

  return {
    /** Changes when places that were given have moved. */
    get version() {
      return version;
    },
    get oldest() {
      return starts[0] ?? 0;
    },
    get newest() {
      return newest();
    },
    /** @param {number} column */
    knows: (column) => column >= first && column < first + starts.length,
    /** The clocks, oldest first. */
    get clocks() {
      return clocks;
    },
    /** Read what is new. @param {History} history */
    update(history) {
      if (isOther(history)) beginAnew(history);
      if (!starts.length) first = oldestColumn(history);
      for (let column = first + starts.length; column <= history.last; column += 1) add(column, history.steps.get(column), history.epochs);
    },
    start,
    end,
    /** Of a boundary (whole) or a place within a column. @param {number} column */
    place(column) {
      const whole = Math.floor(column);
      return whole === column ? start(column) : start(whole) + (column - whole) * (end(whole) - start(whole));
    },
    /** The place within a column at a moment; between two steps, the boundary. @param {number} at */
    columnOf(at) {
      const i = find(at);
      if (i < 0) return first;
      return at < ends[i] ? first + i + (at - starts[i]) / (ends[i] - starts[i]) : first + i + 1;
    },
    /** First and last column with a part between two moments. @param {number} from @param {number} to */
    between(from, to) {
      const i = find(from);
      const j = find(to);
      return { from: first + (i >= 0 && ends[i] > from ? i : i + 1), to: first + (j >= 0 && starts[j] === to ? j - 1 : j) };
    },
    /** The place of a moment of the engine that a column belongs to. @param {number} us @param {number} column */
    placeOf(us, column) {
      return us + (clocks.findLast(({ at }) => at <= column)?.offset ?? 0);
    },
  };
}
