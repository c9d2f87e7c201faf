/**
 * A run, read from a recording: what came since the engine last had nothing to do. It begins with the request that
 * finds nobody there, as in engine/workload.py, and holds the steps, the requests and who was where at which moment.
 * Pure: it folds what it is given, never over a hole, and throws at what no engine says.
 *
 * @import {Event, FinishedEvent, GateSaid, Hello, History, Json, KeyEvent, RequestEvent, RequestFacts, State, Step} from "./types.js"
 *
 * @typedef {RequestFacts["status"]} Status
 * @typedef {{at: number, from: Status | null | undefined, to: Status}} Change
 *
 * @typedef {Object} Run
 * @property {Hello} hello
 * @property {Json} config      settings when it began
 * @property {Set<string>} turned settings that were changed while it ran
 * @property {boolean} cut      it had begun before the recording did
 * @property {boolean} lost     events are missing, or its engine went away
 * @property {boolean} gated    a hand was on the gate, so its times are no measurements
 * @property {boolean} over     nobody is left
 * @property {Array<{id: string, at: number, prompt: number, most: number}>} arrivals in the order of arrival
 * @property {Step[]} steps     as in the history
 * @property {FinishedEvent[]} ends
 * @property {number} cached    prompt tokens found in the prefix cache
 * @property {number} preemptions
 * @property {History} history
 * @property {Array<{at: number, running: number, waiting: number, finished: number}>} moments
 * @property {Run} [twin]       of a ghost: the run that took place, predicted at the ghost's pace
 *
 * @typedef {Run & {changes: Change[]}} Noted while it is read
 */

import { createHistory, remember } from "./history.js";
import { fold } from "./state.js";

/** No engine has more; a picture of more would take for ever. */
const MOST_SLOTS = 4096;
const MOST_BLOCKS = 2 ** 22;

/** Reads events one by one; `run()` is the last run so far, or null. */
export function createRunReader() {
  let hello = /** @type {Hello | null} */ (null);
  let state = /** @type {State | null} */ (null);
  let run = /** @type {Noted | null} */ (null);
  let seq = 0; // of the last event

  /** @param {Hello} hello @param {State} state @param {boolean} cut @returns {Noted} */
  function begin(hello, state, cut) {
    const history = Object.assign(createHistory(), { epoch: hello.epoch, last: state.step });
    return { hello, config: { ...state.config }, turned: new Set(), cut, lost: false, gated: isHeld(state.gate), over: false, arrivals: [], steps: [], ends: [], cached: 0, preemptions: 0, history, moments: [], changes: [] };
  }

  /** @param {Hello} event */
  function meet(event) {
    if (run && !run.over) run.lost = true;
    const { num_blocks } = event.config;
    if (!Number.isSafeInteger(num_blocks) || num_blocks > MOST_BLOCKS) throw new Error(`num_blocks ${num_blocks}`);
    hello = event;
    seq = event.seq;
    state = fold(null, event);
  }

  /** What comes after a skipped number is known only from the next key on. @param {Event} event */
  function noticeHole({ kind, seq: now }) {
    const next = kind === "key" || (kind === "beat" && now === seq) ? seq : seq + 1;
    if (now !== next && run && (kind !== "key" || !run.over)) run.lost = true;
    if (now !== next && kind !== "key") state = null;
    seq = now;
  }

  /** @param {Hello} hello @param {KeyEvent} event */
  function join(hello, event) {
    const known = run?.hello === hello ? run : null;
    state = event.state;
    if (!isIdle(state) && (!known || known.over)) {
      run = begin(hello, state, true);
      remember(run.history, event, state);
    } else if (known) known.over = isIdle(state);
  }

  return {
    /** @param {Event} event */
    take(event) {
      if (/** @type {string} */ (event.kind) === "text") return; // it has no number
      if (event.kind === "hello") return meet(event);
      if (!hello || event.engine !== hello.engine || event.epoch !== hello.epoch) return; // another's
      if (event.kind === "gap") seq = event.seq;
      else noticeHole(event);
      if (event.kind === "key") join(hello, event);
      else if (event.kind === "gap" || event.kind === "bye") {
        if (run && !run.over) run.lost = true;
      } else if (state && hello) {
        const about = event.kind === "request" ? event : null;
        if (about?.event === "arrived" && isIdle(state)) run = begin(hello, state, false);
        const was = about ? state.requests[about.request]?.status : undefined;
        state = fold(state, event) ?? state;
        if (run?.hello === hello) note(run, event, state, was);
      }
    },
    /** @returns {Run | null} */
    run() {
      if (run) run.moments = moments(run.changes);
      return run;
    },
  };
}

/** @param {Pick<State, "queues">} state */
function isIdle({ queues }) {
  return queues.running.length + queues.waiting.length === 0;
}

/** @param {Pick<GateSaid, "state"> | undefined} gate that an engine may not have */
function isHeld(gate) {
  return gate !== undefined && gate.state !== "running";
}

/** Throws where a picture would have no end. @param {Event} event @param {State} state */
function check(event, { config }) {
  const times = event.kind === "step" ? [event.start_us, event.accepted_us] : event.kind === "request" && event.event === "arrived" ? [event.arrival_us] : [];
  if (!times.every(Number.isSafeInteger)) throw new Error(`no time: ${times}`);
  if (!(config.max_num_seqs <= MOST_SLOTS)) throw new Error(`max_num_seqs ${config.max_num_seqs}`);
}

/** @param {Noted} run @param {Event} event @param {State} state @param {Status | undefined} was */
function note(run, event, state, was) {
  check(event, state);
  remember(run.history, event, state);
  if (event.kind === "step") {
    run.steps.push(/** @type {Step} */ (run.history.steps.get(run.history.last)));
    run.gated ||= event.gated;
  } else if (event.kind === "config") {
    for (const name of Object.keys(event.changed)) run.turned.add(name);
  } else if (event.kind === "gate") {
    run.gated ||= !run.over && isHeld(event);
  } else if (event.kind === "request") noteRequest(run, event, was);
  run.over = isIdle(state);
}

/** @param {Noted} run @param {RequestEvent} event @param {Status | undefined} was */
function noteRequest(run, event, was) {
  const change = (/** @type {number} */ at, /** @type {Change["from"]} */ from, /** @type {Status} */ to) => run.changes.push({ at, from, to });
  switch (event.event) {
    case "arrived":
      run.arrivals.push({ id: event.request, at: event.arrival_us, prompt: event.num_prompt_tokens, most: event.max_tokens });
      change(event.arrival_us, null, "waiting");
      break;
    case "admitted":
      run.cached += event.cached;
      change(event.scheduled_us, "waiting", "running");
      break;
    case "resumed":
      change(event.scheduled_us, "waiting", "running");
      break;
    case "preempted":
      run.preemptions += 1;
      change(event.at_us, "running", "waiting");
      break;
    case "finished":
      run.ends.push(event);
      run.gated ||= event.timings.gated_us > 0;
      change(event.finished_us, was, "finished");
  }
}

/** Who was where, after each change. Requests come while a step runs, and are told of after it: so by time. @param {Change[]} changes */
function moments(changes) {
  const counts = { running: 0, waiting: 0, finished: 0 };
  return [...changes]
    .sort((one, other) => one.at - other.at)
    .map(({ at, from, to }) => {
      if (from) counts[from] -= 1;
      counts[to] += 1;
      return { at, ...counts };
    });
}

/** When a run's clock starts: its first arrival; where that is not known, its first step. @param {Run} run */
export function startOf(run) {
  if (run.cut || !run.arrivals.length) return run.steps[0]?.start_us ?? 0;
  return run.arrivals.reduce((first, { at }) => Math.min(first, at), Infinity);
}

/** The place of a value in an ascending list: how many `of` are at most `value`. @template T @param {T[]} list @param {number} value @param {(item: T) => number} of */
export function countUpTo(list, value, of) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of(list[middle]) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
