/**
 * What the panels remember beyond the state: the last steps, one lane per request, finished samples, gaps.
 *
 * Everything is placed in columns: one per engine step, counted on over restarts, so that (epoch, step) is one
 * axis. Column c covers [c, c + 1). What happens between two steps sits on the boundary. Call `remember` after
 * each fold, with the state as it is then. Bounded: old steps, lanes and samples are forgotten.
 *
 * A moment is named by `until`: what stands on a boundary above it, and columns from it on, lie ahead. Right after
 * step c it is c + 0.5, so that what happened before the next step is not yet told.
 *
 * @import {Event, FinishReason, PreemptedEvent, RequestEvent, RequestFacts, State, StepEvent, Timings} from "./types.js"
 *
 * @import {Tenants} from "./tenants.js"
 *
 * @typedef {ReturnType<typeof createHistory>} History
 * @typedef {StepEvent & {skipped: number[], num_slots: number, top_slot: number}} Step see withSlots
 * @typedef {{id: string, at: number, epoch: string | null, timings: Timings, reason: FinishReason | null, prompt: number, tokens: number, label: string | null}} Sample
 *   a finished request; `at` is the boundary where it finished, `label` its caller's class
 * @typedef {{id: string | null, at: number, base: number}} Epoch a boundary where a new engine began; `base` is the column of its step 0
 */

import { createChain, learnPrompt, learnStep, learnTables } from "./chain.js";
import { closeStay, closeWait, deleteOldest, endLane, markRow, openLane, putRecent } from "./lanes.js";
import { takeNote } from "./notes.js";
import { Rows } from "./rows.js";
import { KEY_EVERY, STEPS_KEPT } from "./tape.js";
import { createTenants } from "./tenants.js";

/** As many as the tape may hold, and those from the server that are older. */
export const KEPT = STEPS_KEPT + 2 * KEY_EVERY;
const SAMPLES_KEPT = 5000;
export const PREEMPTIONS_KEPT = 1000;
const GAPS_KEPT = 200;
const MARKS_KEPT = 200;
/** An engine that says nonsense must not have the page draw a row for each of a billion slots. */
const MOST_SLOTS = 65_536;

export function createHistory() {
  return {
    base: 0, // column of step 0 in this epoch
    epoch: /** @type {string | null} */ (null),
    last: 0, // last column with a step
    /** @type {Map<number, Step>} column -> step event, oldest first */
    steps: new Map(),
    /** @type {Map<number, import("./notes.js").Notes>} column -> what happened around its step */
    notes: new Map(),
    /** @type {Map<string, import("./lanes.js").Lane>} */
    lanes: new Map(),
    /** Those of them that have not ended before a column, and maybe others. */
    recent: { from: -Infinity, lanes: /** @type {Map<string, import("./lanes.js").Lane>} */ (new Map()) },
    /** @type {Sample[]} oldest first */
    finished: [],
    /** @type {Array<PreemptedEvent & {column: number}>} newest first */
    preemptions: [],
    /** @type {Array<{epoch: string | null, at: number, step: number, text: string}>} somebody's notes, oldest first; `at` is a boundary */
    marks: [],
    resets: /** @type {number | null} */ (null), // of the stage, in this epoch; null until its state is known
    /** @type {Array<{from: number, to: number}>} columns whose events never reached us, both inclusive */
    gaps: [],
    /** @type {Epoch[]} */
    epochs: [],
    /** Who was given which block. */
    tenants: createTenants(),
    /** Which block follows which. */
    chain: createChain(),
    /** @type {number[]} rows of the timeline: when each is free again */
    rowFree: [],
  };
}

/**
 * @param {History} history @param {Event} event @param {State | null} state as it is after the event
 * @param {Event} [kept] the event as it is to be kept (see kept_step.js)
 */
export function remember(history, event, state, kept = event) {
  if (event.kind === "hello" || event.kind === "key") beginEpoch(history, event.epoch);
  if (state) noticeReset(history, state);
  if (state === null) return undefined;
  if (event.kind === "key") return joinKey(history, state);
  if (event.kind === "mark") return noteMarks(history, state);
  if (event.kind === "step") return rememberStep(history, event, state, /** @type {StepEvent} */ (kept));
  if (event.kind === "request") return rememberRequest(history, event, state);
  if (event.kind === "bye") endAll(history);
  return undefined;
}

/** Steps without a hole, from a column backwards. @param {History} history */
export function* newestSteps(history, from = history.last) {
  for (let column = from; ; column -= 1) {
    const step = history.steps.get(column);
    if (step === undefined) return;
    yield step;
  }
}

/**
 * The last so many steps up to a column, holes passed over: [column, step], newest first.
 * @param {History} history @param {number} from @param {number} most
 */
export function lastSteps(history, from, most) {
  /** @type {Array<[number, Step]>} */
  const found = [];
  const oldest = oldestColumn(history);
  for (let column = Math.floor(from); found.length < most && column >= oldest; column -= 1) {
    const step = history.steps.get(column);
    if (step) found.push([column, step]);
  }
  return found;
}

/** The oldest column with a step; above `last` when there is none. @param {Pick<History, "steps" | "last">} history */
export function oldestColumn(history) {
  return history.steps.keys().next().value ?? history.last + 1;
}

/**
 * Requests that the engine of a moment had finished by then; what one did before it says nothing of the next.
 * @param {History} history @param {number} until
 */
export function finishedUntil(history, until) {
  const { id } = epochAt(history, until);
  return history.finished.filter(({ at, epoch }) => epoch === id && at <= until);
}

/** The epoch that a column belongs to. @param {History} history @param {number} column @returns {Epoch} */
export function epochAt(history, column) {
  return history.epochs.findLast(({ at }) => at <= column) ?? { id: history.epoch, at: -Infinity, base: history.base };
}

/** The step number of a column, in the epoch that the column belongs to. @param {History} history @param {number} column */
export function stepNumber(history, column) {
  return column - epochAt(history, column).base;
}

/** Steps before a column are not kept any more. @param {History} history @param {number} column */
export function forgetBefore(history, column) {
  for (const known of [history.steps, history.notes]) {
    for (const old of known.keys()) {
      if (old >= column) break;
      known.delete(old);
    }
  }
}

/** @param {History} history @param {string} epoch */
function beginEpoch(history, epoch) {
  if (history.epoch === epoch) return;
  const first = history.epoch === null;
  Object.assign(history, { epoch, resets: null });
  if (first) {
    history.epochs.push({ id: epoch, at: -Infinity, base: history.base });
    return;
  }
  endAll(history);
  history.base = history.last + 1;
  history.epochs.push({ id: epoch, at: history.last + 1, base: history.base });
  history.last = history.base;
  history.tenants.clear();
  history.chain.clear();
}

/** The engine is lost, and what it was working on with it. @param {History} history */
function endAll(history) {
  for (const lane of history.lanes.values()) if (!lane.end) endLane(history, lane, history.last + 1, "error", "engine lost");
}

/** The stage was reset: nothing of what was is to be seen any more. The axis goes on. @param {History} history @param {State} state */
function noticeReset(history, state) {
  const known = history.resets;
  history.resets = state.num_resets;
  if (known === null || known === state.num_resets) return;
  for (const each of [history.steps, history.notes, history.lanes, history.recent.lanes, history.tenants, history.chain]) each.clear();
  Object.assign(history, { finished: [], preemptions: [], marks: [], gaps: [], rowFree: [] });
  history.epochs = history.epochs.slice(-1);
}

/** The state keeps this epoch's newest; earlier epochs' are kept here. @param {History} history @param {State} state */
function noteMarks(history, { marks = [] }) {
  const earlier = history.marks.filter(({ epoch }) => epoch !== history.epoch);
  const now = marks.map(({ step, text }) => ({ epoch: history.epoch, at: history.base + step + 1, step, text }));
  history.marks = [...earlier, ...now].slice(-MARKS_KEPT);
}

/** @param {History} history @param {State} state */
function joinKey(history, state) {
  noteMarks(history, state);
  const now = history.base + state.step;
  if (history.steps.size && now > history.last) history.gaps.push({ from: history.last + 1, to: now });
  if (history.gaps.length > GAPS_KEPT) history.gaps.shift();
  history.last = Math.max(history.last, now);
  for (const id of state.finished) {
    const facts = state.requests[id];
    const lane = history.lanes.get(id);
    if (lane && !lane.end) endUnheard(history, lane, now + 1, facts);
    if (lane) lane.facts = facts;
    if (facts.timings && !history.finished.some((known) => known.id === id && known.epoch === history.epoch)) addSample(history, facts, now + 1);
  }
  for (const id of [...state.queues.running, ...state.queues.waiting]) {
    const lane = history.lanes.get(id) ?? openLane(history, state.requests[id], now + 1, true);
    Object.assign(lane, { facts: state.requests[id], end: null });
    putRecent(history, lane);
  }
  for (const lane of history.lanes.values()) {
    if (!lane.end && !(lane.id in state.requests)) endLane(history, lane, now + 1, null, null);
  }
  learnTables(history.chain, state);
}

/** It ended in steps that this page did not hear: when exactly comes out with them (backfill.js). @param {History} history @param {import("./lanes.js").Lane} lane @param {number} at @param {RequestFacts} facts */
function endUnheard(history, lane, at, facts) {
  endLane(history, lane, at, facts.finish_reason, facts.finish_detail);
  if (lane.end) lane.end.unheard = true;
}

// -- steps ---------------------------------------------------------------------------------------

/** @param {History} history @param {StepEvent} event @param {State} state @param {StepEvent} kept */
function rememberStep(history, event, state, kept) {
  const column = history.base + event.step;
  history.steps.set(column, withSlots(kept, skippedSlots(event, state), state));
  history.last = column;
  if (history.steps.size > KEPT) deleteOldest(history.steps);
  for (const row of event.rows) markRow(history, row, column);
  noteTenants(history.tenants, event, state, column);
  learnStep(history.chain, event, state);
}

/** Who was given blocks by a step; twice, where some were found and others are new. @param {Tenants} tenants @param {StepEvent} event @param {State} state @param {number} column */
function noteTenants(tenants, event, { requests }, column) {
  /** @type {Map<string, number>} how long each table was before */
  const begins = new Map();
  for (const [id, blocks] of event.tables) begins.set(id, (begins.get(id) ?? requests[id].block_table.length) - blocks.length);
  for (const [id, blocks] of event.tables) {
    const first = /** @type {number} */ (begins.get(id));
    for (let i = 0; i < blocks.length; i += 1) tenants.put(blocks[i], id, first + i, column);
    begins.set(id, first + blocks.length);
  }
}

/** Slots of those that run and got no tokens. @param {StepEvent} step @param {State} state @returns {number[]} */
function skippedSlots({ rows }, { queues, requests }) {
  if (rows.length === queues.running.length) return [];
  const scheduled = new Set();
  for (const { request } of rows) scheduled.add(request);
  return queues.running.filter((id) => !scheduled.has(id)).map((id) => /** @type {number} */ (requests[id].slot));
}

/**
 * A step and what of the slots it does not say: how many there are, and one more than the highest in use.
 * @param {StepEvent} step @param {number[]} skipped @param {State} state @returns {Step}
 */
export function withSlots(step, skipped, { config }) {
  let top_slot = config.max_num_seqs;
  for (const slot of Rows.of(step.rows).column("slot")) if (slot >= top_slot && slot < MOST_SLOTS) top_slot = slot + 1;
  return { ...step, skipped, num_slots: config.max_num_seqs, top_slot };
}

// -- requests ------------------------------------------------------------------------------------

/** @param {History} history @param {RequestEvent} event @param {State} state */
function rememberRequest(history, event, state) {
  const between = history.base + state.step + 1; // the boundary after the last step
  const lane = history.lanes.get(event.request);
  takeNote(history.notes, event, between - 1);
  if (event.event === "arrived") {
    openLane(history, state.requests[event.request], between, false);
    learnPrompt(history.chain, event.block_hashes);
  } else if (!lane) {
    return;
  } else if (event.event === "admitted" || event.event === "resumed") {
    closeWait(lane, between);
    lane.stays.push({ slot: event.slot, from: between, to: null, out: null, cached: event.cached });
  } else if (event.event === "preempted") {
    closeStay(lane, between, "preempted");
    lane.waits.push({ from: between, to: null, kind: "preempted", lost: event.num_lost_tokens });
    history.preemptions.unshift({ ...event, column: between });
    history.preemptions.length = Math.min(history.preemptions.length, PREEMPTIONS_KEPT);
  } else if (event.event === "finished") {
    lane.facts = state.requests[event.request] ?? lane.facts;
    endLane(history, lane, between, event.reason, event.detail);
    addSample(history, lane.facts, between);
  }
}

/** @param {History} history @param {RequestFacts} facts @param {number} at */
function addSample(history, facts, at) {
  const { id, timings, finish_reason: reason, num_prompt_tokens: prompt, num_output_tokens: tokens, request_class: label } = facts;
  history.finished.push({ id, at, epoch: history.epoch, timings: /** @type {Timings} */ (timings), reason, prompt, tokens, label });
  if (history.finished.length > SAMPLES_KEPT) history.finished.shift();
}

