/**
 * Lanes: what became of each request, on the axis of columns (see history.js). What happens between two steps sits on
 * the boundary. `laneAt` is a lane as it was at a past moment.
 *
 * @import {FinishReason, RequestFacts, Row, State} from "./types.js"
 * @import {History} from "./history.js"
 *
 * @typedef {Object} Lane
 * @property {string} id
 * @property {number} row          packed row on the timeline
 * @property {number} arrive       boundary of its arrival
 * @property {boolean} late        we joined when it was already there
 * @property {Array<{from: number, to: number | null, kind: "queued" | "preempted", lost: number}>} waits
 * @property {Array<{slot: number | null, from: number, to: number | null, out: "finished" | "preempted" | null, cached?: number}>} stays `cached`: tokens found when it got its slot
 * @property {number} chunks       prefill rows so far
 * @property {number} drafted      tokens guessed for it, and how many of them were right
 * @property {number} accepted
 * @property {number | null} first column of the first token
 * @property {number | null} last  column of the last token
 * @property {{at: number, reason: FinishReason | null, detail: string | null, unheard?: boolean} | null} end `unheard`: at this boundary or before it
 * @property {RequestFacts} facts          the request's record in the state, kept after the state forgets it
 */

import { rowOf } from "./rows.js";

/** Columns kept free after a finished lane, for its label. */
const LABEL_COLUMNS = 22;
const KEPT = 4000;
/** Columns; those that pictures of the live edge look at are kept apart, for of the others there are thousands. */
const RECENT = 1024;

/**
 * A lane for a request that arrives, or that was there when we came.
 * @param {History} history @param {RequestFacts} facts @param {number} at @param {boolean} late
 */
export function openLane(history, facts, at, late) {
  const waiting = facts.status === "waiting";
  const preempted = facts.num_preemptions > 0;
  /** @type {Lane} */
  const lane = {
    id: facts.id,
    row: takeRow(history, at),
    arrive: at,
    late,
    waits: waiting ? [{ from: at, to: null, kind: preempted ? "preempted" : "queued", lost: facts.num_lost_tokens }] : [],
    stays: waiting ? [] : [{ slot: facts.slot, from: at, to: null, out: null }],
    chunks: 0,
    drafted: 0,
    accepted: 0,
    first: null,
    last: null,
    end: null,
    facts,
  };
  history.lanes.set(facts.id, lane);
  if (history.lanes.size > KEPT) history.recent.lanes.delete(deleteOldest(history.lanes));
  putRecent(history, lane);
  return lane;
}

/** It goes on, or ended just now. @param {History} history @param {Lane} lane */
export function putRecent({ recent, last }, lane) {
  recent.lanes.set(lane.id, lane);
  if (last < recent.from + 2 * RECENT) return;
  recent.from = last - RECENT;
  for (const [id, { end }] of recent.lanes) if (end && end.at < recent.from) recent.lanes.delete(id);
}

/** All lanes that have not ended before a column, and others. @param {Pick<History, "lanes" | "recent">} history @param {number} column */
export function lanesSince({ lanes, recent }, column) {
  return (column > recent.from ? recent.lanes : lanes).values();
}

/** @param {Map<any, any>} known @returns its key */
export function deleteOldest(known) {
  const oldest = known.keys().next().value;
  known.delete(oldest);
  return oldest;
}

/** @param {History} history @param {number} at */
function takeRow(history, at) {
  let row = history.rowFree.findIndex((free) => free <= at);
  if (row < 0) row = history.rowFree.length;
  history.rowFree[row] = Infinity;
  return row;
}

/** A row of a step that was just heard. @param {History} history @param {Row} row @param {number} column */
export function markRow(history, row, column) {
  const lane = history.lanes.get(row.request);
  if (!lane) return;
  addRow(lane, row);
  if (row.out === 0) return;
  if (lane.first === null && lane.facts.first_token_us === null) lane.first = column;
  lane.last = column;
}

/**
 * A row of a step that is heard of only now: from before the page was opened, or from a gap.
 * @param {History} history @param {Row} row @param {number} column @param {State} state
 */
export function extendLane(history, row, column, state) {
  const facts = state.requests[row.request];
  const lane = history.lanes.get(row.request) ?? (facts && openLane(history, facts, column, true));
  if (!lane) return;
  if (lane.late && column < lane.arrive) {
    lane.arrive = column;
    if (lane.stays[0]) lane.stays[0].from = column;
    if (lane.waits[0]?.kind === "queued") lane.waits.shift();
  }
  if (lane.late && lane.stays[0]?.slot === null) lane.stays[0].slot = row.slot;
  addRow(lane, row);
  if (row.out === 0) return;
  if (row.phase === "prefill") lane.first = Math.min(lane.first ?? column, column);
  lane.last = Math.max(lane.last ?? column, column);
}

/** @param {Lane} lane @param {Row} row */
function addRow(lane, row) {
  if (row.phase === "prefill") lane.chunks += 1;
  lane.drafted += row.drafted;
  lane.accepted += row.accepted;
}

/** @param {Lane} lane @param {number} at */
export function closeWait(lane, at) {
  const wait = lane.waits.at(-1);
  if (wait && wait.to === null) wait.to = at;
}

/** @param {Lane} lane @param {number} at @param {"finished" | "preempted"} out */
export function closeStay(lane, at, out) {
  const stay = lane.stays.at(-1);
  if (stay && stay.to === null) Object.assign(stay, { to: at, out });
}

/** @param {History} history @param {Lane} lane @param {number} at @param {FinishReason | null} reason @param {string | null} detail */
export function endLane(history, lane, at, reason, detail) {
  closeWait(lane, at);
  closeStay(lane, at, "finished");
  lane.end = { at, reason, detail };
  history.rowFree[lane.row] = at + LABEL_COLUMNS;
}

// -- as it was -----------------------------------------------------------------------------------

/** Whether a request had arrived, and had not ended yet. @param {Lane} lane @param {number} until */
export function isLive(lane, until) {
  return lane.arrive <= until && (lane.end === null || lane.end.at > until);
}

/**
 * What had come of a lane by a moment.
 * @param {Lane} lane
 * @param {Pick<History, "steps">} history
 * @param {number} until boundaries above it lie ahead
 * @returns {Lane}
 */
export function laneAt(lane, history, until) {
  const over = (/** @type {number | null} */ column) => (column !== null && column < until ? column : null);
  if (Math.max(lane.end?.at ?? 0, lane.last ?? 0) <= until && lane.end) return lane;
  /** @type {Lane} */
  const then = { ...lane, chunks: 0, drafted: 0, accepted: 0, first: over(lane.first), last: null, end: null };
  for (let column = Math.max(Math.floor(lane.arrive), firstKept(history)); column < until; column += 1) {
    const row = rowOf(history.steps.get(column), lane.id);
    if (!row) continue;
    addRow(then, row);
    if (row.out > 0) then.last = column;
  }
  return then;
}

/** @param {Pick<History, "steps">} history */
function firstKept({ steps }) {
  return steps.keys().next().value ?? Infinity;
}
