/**
 * The tape: what an engine said, kept so that any of its last steps can be shown again. It is a row of segments, each
 * a keyframe (a copy of the folded state) and the events after it; the state at a step is its segment's keyframe,
 * folded on by the one reducer up to that step's event and no further. Bounded in steps and in estimated bytes: the
 * oldest segment is dropped first, a keyframe together with its events.
 *
 * Steps are named by column (see history.js), which counts on over restarts.
 *
 * @import {Event, KeyEvent, RowList, State, StepEvent} from "./types.js"
 *
 * @typedef {Object} Segment
 * @property {string} epoch
 * @property {number} base     column of step 0 in its epoch
 * @property {number} seq      of the last event that its keyframe holds
 * @property {number} end      seq of its last event
 * @property {number} t        engine time of its keyframe
 * @property {State} state      the keyframe; never folded on itself
 * @property {boolean} exact   the keyframe is the state right after step `from`, not some time after it
 * @property {number} from     column of the last step in the keyframe
 * @property {number} to       column of the last step in the segment
 * @property {Event[]} events
 * @property {number} steps
 * @property {number} bytes
 * @property {RowList | null} rows of its last step
 *
 * @typedef {{segment: Segment, next: number, column: number, settled: boolean, state: State, t: number}} Cursor
 *   where the folding of a segment stands
 * @typedef {ReturnType<typeof createTape>} Tape
 */

import { copyState } from "./copy.js";
import { kept, opened } from "./kept_step.js";
import { Rows } from "./rows.js";
import { fold } from "./state.js";

/** At least so many steps are kept, if their bytes allow it. */
export const STEPS_KEPT = 20_000;
/** Steps between two keyframes: what showing a step costs at most. */
export const KEY_EVERY = 256;
/** Strings of a message that browsers keep once, however often they come. */
const SHORT = 10;
const MAX_BYTES = 256 * 2 ** 20;
/** Events that the reducer passes over, and that come even when nothing happens. */
const IDLE = new Set(["beat", "load"]);
/** What the engine says of a step after the step itself. */
const AFTERMATH = new Set(["first_token", "finished"]);

/** @typedef {{steps?: number, bytes?: number, every?: number}} Limits */

/** @param {Limits} limits */
export function createTape({ steps: maxSteps = STEPS_KEPT, bytes: maxBytes = MAX_BYTES, every = KEY_EVERY } = {}) {
  /** @type {Segment[]} oldest first */
  let segments = [];
  let cursor = /** @type {Cursor | null} */ (null);
  const size = { steps: 0, bytes: 0, floor: -Infinity };

  /** @param {Segment} segment @param {1 | -1} sign */
  function count(segment, sign) {
    size.steps += sign * segment.steps;
    size.bytes += sign * segment.bytes;
  }

  function drop() {
    while (segments.length > 1 && (size.steps - segments[0].steps >= maxSteps || size.bytes > maxBytes)) {
      count(/** @type {Segment} */ (segments.shift()), -1);
      size.floor = segments[0].from;
    }
  }

  /** The stage was reset: what was is not shown again. @param {number} floor */
  function clear(floor) {
    segments = [];
    cursor = null;
    Object.assign(size, { steps: 0, bytes: 0, floor });
  }

  /** @param {Segment} segment */
  function begin(segment) {
    if (segments.at(-1)?.events.length === 0) count(/** @type {Segment} */ (segments.pop()), -1);
    segments.push(segment);
    count(segment, 1);
  }

  return {
    /** {steps, bytes, floor}: how much is kept, and the column before which some was dropped. */
    size,
    /**
     * One event that has just been folded.
     * @param {Event} event @param {State} state as it is after the event @param {number} base column of step 0
     */
    take(event, state, base) {
      const before = segments.at(-1);
      const reset = before?.epoch === event.epoch && before.state.num_resets !== state.num_resets;
      if (reset) clear(base + state.step);
      const last = segments.at(-1);
      if (reset || event.kind === "hello" || event.kind === "key") begin(segmentOf(event, copyState(state), base, false));
      else if (last) {
        count(last, -1);
        extend(last, event);
        count(last, 1);
        const stepped = event.kind === "step";
        if ((stepped && last.steps >= every) || last.events.length >= 8 * every) begin(segmentOf(event, copyState(state), base, stepped));
      }
      drop();
    },
    /**
     * A keyframe and what followed it, from a recording: for steps that this page did not hear. What it did hear is
     * not taken twice.
     * @param {[KeyEvent, ...Event[]]} events without a hole @param {number} base
     */
    graft(events, base) {
      const [key, ...rest] = events;
      const last = (rest.at(-1) ?? key).seq;
      const known = spans(segments, key.epoch).find(({ from, to }) => from < last && last <= to);
      if (known && known.from <= key.seq) return;
      const next = known?.from ?? Infinity;
      const segment = segmentOf(key, key.state, base, false);
      for (const event of rest) if (event.seq <= next) extend(segment, event);
      if (!segment.steps) return;
      segments = [...segments, segment].sort((one, other) => one.from - other.from || one.seq - other.seq);
      count(segment, 1);
      drop();
    },
    /**
     * The state right after a step, to be read until the next call. `settled`: after what the engine said of the step
     * too, such as who finished with it.
     * @param {number} column
     * @returns {{state: State, t: number, epoch: string, base: number} | null} null when it is not on the tape
     */
    at(column, settled = false) {
      const segment = segments.findLast(({ exact, from, to }) => (exact ? from <= column : from < column) && column <= to);
      if (!segment) return null;
      const ahead = cursor?.segment === segment && (cursor.column < column ? !cursor.settled : cursor.column === column && (settled || !cursor.settled));
      if (!cursor || !ahead) cursor = { segment, next: 0, column: segment.exact ? segment.from : -Infinity, settled: false, state: copyState(segment.state), t: segment.t };
      wind(cursor, column, settled);
      return { state: cursor.state, t: cursor.t, epoch: segment.epoch, base: segment.base };
    },
  };
}

/** What of an epoch is on the tape without a hole: [{from, to}], in seqs. @param {Segment[]} segments @param {string} epoch */
function spans(segments, epoch) {
  /** @type {Array<{from: number, to: number}>} */
  const found = [];
  for (const segment of segments) {
    if (segment.epoch !== epoch) continue;
    const last = found.at(-1);
    if (last && segment.seq <= last.to) last.to = Math.max(last.to, segment.end);
    else found.push({ from: segment.seq, to: segment.end });
  }
  return found;
}

/** Fold a cursor on to a step that its segment holds. @param {Cursor} cursor @param {number} column @param {boolean} settled */
function wind(cursor, column, settled) {
  const { base, events } = cursor.segment;
  const on = () => {
    const event = events[cursor.next];
    cursor.state = /** @type {State} */ (fold(cursor.state, opened(event)));
    cursor.t = event.t;
    cursor.next += 1;
    if (event.kind === "step") cursor.column = base + event.step;
  };
  while (cursor.column < column) on();
  if (!settled) return;
  while (cursor.next < events.length && isAftermath(events[cursor.next])) on();
  cursor.settled = true;
}

/** @param {Event} event */
function isAftermath(event) {
  return event.kind === "request" && AFTERMATH.has(event.event);
}

/** @param {Event} event @param {State} state @param {number} base @param {boolean} exact @returns {Segment} one that begins with the state after `event` */
function segmentOf(event, state, base, exact) {
  const from = base + state.step;
  return { epoch: event.epoch, base, seq: event.seq, end: event.seq, t: event.t, state, exact, from, to: from, events: [], steps: 0, bytes: weighState(state), rows: null };
}

/** @param {Segment} segment @param {Event} event */
function extend(segment, event) {
  segment.end = event.seq;
  if (IDLE.has(event.kind)) return;
  if (event.kind !== "step") {
    segment.events.push(event);
    segment.bytes += weigh(event);
    return;
  }
  const step = kept(event, segment.rows);
  segment.events.push(step);
  segment.bytes += weigh({ ...step, rows: null }) + weighRows(step.rows, segment.rows);
  segment.rows = step.rows;
  segment.to = segment.base + event.step;
  segment.steps += 1;
}

// -- how much it is ------------------------------------------------------------------------------

/** Roughly the bytes that a parsed event takes in memory: 8 a place, and a little for every object and string. @param {any} value @returns {number} */
export function weigh(value) {
  if (typeof value === "string") return 24 + value.length;
  if (value === null || typeof value !== "object") return 8;
  if (Array.isArray(value)) return weighList(value);
  let sum = 32;
  for (const name in value) sum += weigh(value[name]);
  return sum;
}

/** Lists are of one kind each; short names are kept once for all places. @param {any[]} list */
function weighList(list) {
  if (typeof list[0] === "number" || (typeof list[0] === "string" && list[0].length <= SHORT)) return 32 + 8 * list.length;
  return list.reduce((sum, each) => sum + weigh(each), 32);
}

/** Columns, and the names of requests in them, but for those that are shared with the step before. @param {RowList} rows @param {RowList | null} before */
function weighRows(rows, before) {
  return rows instanceof Rows ? 256 + rows.weight(before instanceof Rows ? before : null, weigh) : weigh([...rows]);
}

/** Of a keyframe: a word for each of its two lists of blocks (hashes are shared with events), and what is live. @param {State} state */
function weighState(state) {
  let sum = 2048 + 8 * state.blocks.total;
  for (const id in state.requests) sum += 512 + 8 * state.requests[id].block_table.length;
  return sum;
}
