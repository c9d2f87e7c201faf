/**
 * What the panels remember beyond the state: the last steps, one lane per request, finished samples, gaps.
 *
 * Everything is placed in columns: one per engine step, counted on over restarts, so that (epoch, step) is one
 * axis. Column c covers [c, c + 1). What happens between two steps sits on the boundary. Call `remember` after
 * each fold, with the state as it is then. Bounded: old steps, lanes and samples are forgotten.
 *
 * @typedef {Object<string, any>} Json
 * @typedef {Object} Lane
 * @property {string} id
 * @property {number} row          packed row on the timeline
 * @property {number} arrive       boundary of its arrival
 * @property {boolean} late        we joined when it was already there
 * @property {Array<{from: number, to: number | null, kind: "queued" | "preempted", lost: number}>} waits
 * @property {Array<{slot: number, from: number, to: number | null, out: "finished" | "preempted" | null}>} stays
 * @property {number} chunks       prefill rows so far
 * @property {number} drafted      tokens guessed for it, and how many of them were right
 * @property {number} accepted
 * @property {number | null} first column of the first token
 * @property {number | null} last  column of the last token
 * @property {{at: number, reason: string | null, detail: string | null} | null} end
 * @property {Json} facts          the request's record in the state, kept after the state forgets it
 */

import { takeNote, withOlderNotes } from "./notes.js";

export const STEPS_KEPT = 2000;
const LANES_KEPT = 300;
const SAMPLES_KEPT = 500;
const PREEMPTIONS_KEPT = 30;
const GAPS_KEPT = 200;
/** Columns kept free after a finished lane, for its label. */
const LABEL_COLUMNS = 22;

export function createHistory() {
  return {
    base: 0, // column of step 0 in this epoch
    epoch: null,
    last: 0, // last column with a step
    /** @type {Map<number, Json>} column -> step event, oldest first */
    steps: new Map(),
    /** @type {Map<number, import("./notes.js").Notes>} column -> what happened around its step */
    notes: new Map(),
    /** @type {Map<string, Lane>} */
    lanes: new Map(),
    /** @type {Array<Json>} finished requests with timings, oldest first */
    finished: [],
    /** @type {Array<Json>} newest first */
    preemptions: [],
    /** @type {Array<{from: number, to: number}>} columns whose events never reached us, both inclusive */
    gaps: [],
    /** @type {Array<{at: number, base: number}>} boundaries where a new engine began */
    epochs: [],
    /** @type {Map<number, string[]>} block -> its last owners, newest first */
    owners: new Map(),
    /** @type {Array<boolean>} rows of the timeline: when each is free again */
    rowFree: [],
  };
}

/** @param {ReturnType<typeof createHistory>} history */
export function remember(history, event, state) {
  if (event.kind === "hello") beginEpoch(history, event.epoch);
  if (event.kind === "key") return joinKey(history, event, state);
  if (state === null) return undefined;
  if (event.kind === "step") return rememberStep(history, event, state);
  if (event.kind === "request") return rememberRequest(history, event, state);
  if (event.kind === "bye") endAll(history);
  return undefined;
}

/** The newest step first. */
export function* newestSteps(history) {
  for (let column = history.last; ; column -= 1) {
    const step = history.steps.get(column);
    if (step === undefined) return;
    yield step;
  }
}

/** The step number of a column, in the epoch that the column belongs to. */
export function stepNumber(history, column) {
  let base = history.epochs.length ? history.epochs[0].base : history.base;
  for (const epoch of history.epochs) if (epoch.at <= column) base = epoch.base;
  return column - base;
}

function beginEpoch(history, epoch) {
  if (history.epoch === epoch) return;
  const first = history.epoch === null;
  history.epoch = epoch;
  if (first) {
    history.epochs.push({ at: -Infinity, base: history.base });
    return;
  }
  endAll(history);
  history.base = history.last + 1;
  history.epochs.push({ at: history.last + 1, base: history.base });
  history.last = history.base;
  history.owners.clear();
}

/** The engine is lost, and what it was working on with it. */
function endAll(history) {
  for (const lane of history.lanes.values()) if (!lane.end) endLane(history, lane, history.last + 1, "error", "engine lost");
}

function joinKey(history, event, state) {
  beginEpoch(history, event.epoch);
  const now = history.base + state.step;
  if (history.steps.size && now > history.last) history.gaps.push({ from: history.last + 1, to: now });
  if (history.gaps.length > GAPS_KEPT) history.gaps.shift();
  history.last = Math.max(history.last, now);
  for (const id of state.finished) {
    const facts = state.requests[id];
    const lane = history.lanes.get(id);
    if (lane && !lane.end) endLane(history, lane, now + 1, facts.finish_reason, facts.finish_detail);
    if (lane) lane.facts = facts;
    if (facts.timings && !history.finished.some((known) => known.id === id && known.epoch === history.epoch)) addSample(history, facts);
  }
  for (const id of [...state.queues.running, ...state.queues.waiting]) {
    const lane = history.lanes.get(id) ?? openLane(history, state.requests[id], now + 1, true);
    Object.assign(lane, { facts: state.requests[id], end: null });
  }
  for (const lane of history.lanes.values()) {
    if (!lane.end && !(lane.id in state.requests)) endLane(history, lane, now + 1, null, null);
  }
}

// -- steps ---------------------------------------------------------------------------------------

function rememberStep(history, event, state) {
  const column = history.base + event.step;
  const scheduled = new Set(event.rows.map((row) => row.request));
  event.skipped = state.queues.running.filter((id) => !scheduled.has(id)).map((id) => state.requests[id].slot);
  event.num_slots = state.config.max_num_seqs;
  history.steps.set(column, event);
  history.last = column;
  if (history.steps.size > STEPS_KEPT) history.steps.delete(history.steps.keys().next().value);
  for (const row of event.rows) markRow(history, row, column);
  for (const [id, blocks] of event.tables) for (const block of blocks) noteOwner(history, block, id);
}

function markRow(history, row, column) {
  const lane = history.lanes.get(row.request);
  if (!lane) return;
  if (row.phase === "prefill") lane.chunks += 1;
  lane.drafted += row.drafted;
  lane.accepted += row.accepted;
  if (row.out > 0) {
    if (lane.first === null && lane.facts.first_token_us === null) lane.first = column;
    lane.last = column;
  }
}

function noteOwner(history, block, id) {
  const owners = history.owners.get(block) ?? [];
  if (owners[0] !== id) history.owners.set(block, [id, ...owners].slice(0, 6));
}

/**
 * Older steps from the server, for a page that was just opened: the lanes of requests that the state still knows
 * are drawn back to where those steps begin, and what the steps did to requests can be explained.
 * @param {{steps: Json[], requests: Json[]}} older oldest first
 */
export function backfill(history, { steps, requests }, state) {
  noteOlder(history, requests.filter((event) => event.epoch === history.epoch));
  const oldest = history.steps.keys().next().value ?? history.last + 1;
  const older = steps.filter((step) => step.epoch === history.epoch && history.base + step.step < oldest);
  // Who held a slot without getting tokens is not known of steps that were not watched.
  const merged = new Map(older.map((step) => [history.base + step.step, { ...step, skipped: [], num_slots: state.config.max_num_seqs }]));
  for (const [column, step] of history.steps) merged.set(column, step);
  history.steps = merged;
  const lastSeen = new Map();
  for (const step of older) for (const row of step.rows) lastSeen.set(row.request, step.step);
  for (const step of older) {
    for (const row of step.rows) extendLane(history, row, history.base + step.step, state);
    for (const row of step.rows) {
      const lane = history.lanes.get(row.request);
      if (!lane?.late || lane.end || lastSeen.get(row.request) !== step.step || lane.facts.status !== "finished") continue;
      endLane(history, lane, history.base + step.step + 1, lane.facts.finish_reason, lane.facts.finish_detail);
    }
  }
}

function noteOlder(history, events) {
  history.notes = withOlderNotes(history.notes, events, history.base);
  const known = new Set(history.preemptions.map((event) => `${event.epoch}/${event.seq}`));
  const older = events.filter((event) => event.event === "preempted" && !known.has(`${event.epoch}/${event.seq}`));
  const all = [...history.preemptions, ...older.map((event) => ({ ...event, column: history.base + event.step }))];
  history.preemptions = all.sort((one, other) => other.column - one.column || other.seq - one.seq).slice(0, PREEMPTIONS_KEPT);
}

function extendLane(history, row, column, state) {
  const facts = state.requests[row.request];
  const lane = history.lanes.get(row.request) ?? (facts && openLane(history, facts, column, true));
  if (!lane || !lane.late) return;
  if (column < lane.arrive) {
    lane.arrive = column;
    if (lane.stays[0]) lane.stays[0].from = column;
    if (lane.waits[0]?.kind === "queued") lane.waits.shift();
  }
  if (lane.stays[0] && lane.stays[0].slot === null) lane.stays[0].slot = row.slot;
  if (row.phase === "prefill") lane.chunks += 1;
  lane.drafted += row.drafted;
  lane.accepted += row.accepted;
  if (row.out > 0) {
    lane.first ??= row.phase === "prefill" ? column : null;
    lane.last = Math.max(lane.last ?? column, column);
  }
}

// -- requests ------------------------------------------------------------------------------------

function rememberRequest(history, event, state) {
  const between = history.base + state.step + 1; // the boundary after the last step
  const lane = history.lanes.get(event.request);
  takeNote(history.notes, event, between - 1);
  if (event.event === "arrived") {
    openLane(history, state.requests[event.request], between, false);
  } else if (!lane) {
    return;
  } else if (event.event === "admitted" || event.event === "resumed") {
    closeWait(lane, between);
    lane.stays.push({ slot: event.slot, from: between, to: null, out: null });
  } else if (event.event === "preempted") {
    closeStay(lane, between, "preempted");
    lane.waits.push({ from: between, to: null, kind: "preempted", lost: event.num_lost_tokens });
    history.preemptions.unshift({ ...event, column: between });
    history.preemptions.length = Math.min(history.preemptions.length, PREEMPTIONS_KEPT);
  } else if (event.event === "finished") {
    lane.facts = state.requests[event.request] ?? lane.facts;
    endLane(history, lane, between, event.reason, event.detail);
    addSample(history, lane.facts);
  }
}

function addSample(history, facts) {
  history.finished.push({ id: facts.id, epoch: history.epoch, timings: facts.timings, reason: facts.finish_reason, tokens: facts.num_output_tokens });
  if (history.finished.length > SAMPLES_KEPT) history.finished.shift();
}

function openLane(history, facts, at, late) {
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
  if (history.lanes.size > LANES_KEPT) history.lanes.delete(history.lanes.keys().next().value);
  return lane;
}

function takeRow(history, at) {
  let row = history.rowFree.findIndex((free) => free <= at);
  if (row < 0) row = history.rowFree.length;
  history.rowFree[row] = Infinity;
  return row;
}

function closeWait(lane, at) {
  const wait = lane.waits.at(-1);
  if (wait && wait.to === null) wait.to = at;
}

function closeStay(lane, at, out) {
  const stay = lane.stays.at(-1);
  if (stay && stay.to === null) Object.assign(stay, { to: at, out });
}

function endLane(history, lane, at, reason, detail) {
  closeWait(lane, at);
  closeStay(lane, at, "finished");
  lane.end = { at, reason, detail };
  history.rowFree[lane.row] = at + LABEL_COLUMNS;
}
