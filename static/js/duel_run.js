/**
 * A run, read from a recording: what came since the engine last had nothing to do. It begins with the request that
 * finds nobody there, as in engine/workload.py, and holds the steps, the requests and who was where at which moment.
 * Pure: it folds what it is given.
 *
 * @typedef {Object<string, any>} Json
 * @typedef {Object} Run
 * @property {Json} hello
 * @property {Json} config      settings when it began
 * @property {Set<string>} turned settings that were changed while it ran
 * @property {boolean} cut      it had begun before the recording did
 * @property {boolean} lost     events are missing, or its engine went away
 * @property {boolean} gated    a hand was on the gate, so its times are no measurements
 * @property {boolean} over     nobody is left
 * @property {Array<{id: string, at: number, prompt: number, most: number}>} arrivals in the order of arrival
 * @property {Json[]} steps     as in the history: with `skipped` and `num_slots`
 * @property {Json[]} ends      `finished` events
 * @property {number} cached    prompt tokens found in the prefix cache
 * @property {number} preemptions
 * @property {Json} history
 * @property {Array<{at: number, running: number, waiting: number, finished: number}>} moments
 * @property {Run} [twin]       of a ghost: the run that took place, foretold at the ghost's pace
 */

import { createHistory, remember } from "./history.js";
import { fold } from "./state.js";

/** Reads events one by one; `run()` is the last run so far, or null. */
export function createRunReader() {
  let hello = /** @type {Json | null} */ (null);
  let state = /** @type {Json | null} */ (null);
  let run = /** @type {(Run & {changes: any[]}) | null} */ (null);

  function begin(cut) {
    const history = Object.assign(createHistory(), { epoch: hello.epoch, last: state.step });
    run = { hello, config: { ...state.config }, turned: new Set(), cut, lost: false, gated: false, over: false, arrivals: [], steps: [], ends: [], cached: 0, preemptions: 0, history, moments: [], changes: [] };
  }

  function meet(event) {
    if (run && !run.over) run.lost = true;
    hello = event;
    state = fold(null, event);
  }

  function join(event) {
    const known = run?.hello === hello;
    state = fold(state, event);
    if (!isIdle(state) && (!known || run.over)) {
      begin(true);
      remember(run.history, event, state);
    } else if (known) run.over = isIdle(state);
  }

  return {
    /** @param {Json} event */
    take(event) {
      if (event.kind === "hello") meet(event);
      else if (event.kind === "key" && hello) join(event);
      else if (event.kind === "gap" || event.kind === "bye") {
        if (run && !run.over) run.lost = true;
      } else if (state) {
        if (event.event === "arrived" && isIdle(state)) begin(false);
        const was = state.requests[event.request]?.status;
        state = fold(state, event);
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

function isIdle({ queues }) {
  return queues.running.length + queues.waiting.length === 0;
}

function note(run, event, state, was) {
  remember(run.history, event, state);
  if (event.kind === "step") {
    run.steps.push(run.history.steps.get(run.history.last));
    run.gated ||= event.gated;
  } else if (event.kind === "config") {
    for (const name of Object.keys(event.changed)) run.turned.add(name);
  } else if (event.kind === "request") noteRequest(run, event, was);
  run.over = isIdle(state);
}

function noteRequest(run, event, was) {
  const change = (at, from, to) => run.changes.push({ at, from, to });
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

/** Who was where, after each change. Requests come while a step runs, and are told of after it: so by time. */
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

/** The place of a value in an ascending list: how many `of` are at most `value`. */
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
