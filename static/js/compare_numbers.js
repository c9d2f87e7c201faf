/**
 * What two runs amount to: the numbers of each, as engine/summary.py has them, and what may be said of both. Pure.
 *
 * @import {Step} from "./types.js"
 *
 * @typedef {import("./compare_run.js").Run} Run
 * @typedef {ReturnType<typeof numbersOf>} Numbers
 */

import { count, duration, plural } from "./format.js";
import { wasHeld } from "./held.js";
import { percentile, samplesOf } from "./metrics.js";
import { startOf } from "./compare_run.js";

/** @param {Run} run */
export function numbersOf(run) {
  const start = startOf(run);
  const done = run.steps.findLast(({ rows }) => rows.length);
  const makespan = done ? done.accepted_us - start : null;
  const sum = (/** @type {(step: Step) => number} */ of) => run.steps.reduce((total, step) => total + of(step), 0);
  const outputTokens = sum(({ rows }) => [...rows].reduce((total, { out }) => total + out, 0));
  const slotSteps = sum(({ num_slots }) => num_slots);
  return {
    requests: run.arrivals.length,
    finished: run.ends.length,
    makespan,
    steps: run.steps.length,
    outputTokens,
    rate: makespan ? (outputTokens / makespan) * 1e6 : null,
    ttft: percentile(samplesOf(run.ends, "ttft_us"), 50),
    tpot: percentile(samplesOf(run.ends, "tpot_us"), 50),
    gap: worstGap(run),
    occupancy: slotSteps ? sum(({ rows }) => rows.length) / slotSteps : null,
    prefillTokens: sum(({ num_prefill_tokens }) => num_prefill_tokens),
    cached: run.cached,
    preemptions: run.preemptions,
  };
}

/** The longest time between two deliveries of one request in which no hand was on the gate and no step is missing. @param {Run} run */
function worstGap(run) {
  /** @type {Map<string, number>} */
  const last = new Map();
  let worst = /** @type {number | null} */ (null);
  let ended = /** @type {Step | null} */ (null);
  for (const step of run.steps) {
    if (step.gated || step.step !== (ended?.step ?? 0) + 1 || (ended && wasHeld(ended, step))) last.clear();
    ended = step;
    for (const { request, out } of step.rows) {
      if (!out) continue;
      const before = last.get(request);
      if (before !== undefined) worst = Math.max(worst ?? 0, step.accepted_us - before);
      last.set(request, step.accepted_us);
    }
  }
  return worst;
}

// -- what each is called -------------------------------------------------------------------------

const onOff = (/** @type {string} */ name) => (/** @type {any} */ value) => `${name} ${value ? "on" : "off"}`;
/** @type {Object<string, (value: any) => string>} */
const MODES = {
  batching: (value) => value,
  enable_chunked_prefill: onOff("chunked prefill"),
  enable_prefix_caching: onOff("prefix cache"),
  speculative: (value) => (value === "none" ? "no guessing" : `guessing ${value}`),
  scheduling_policy: (value) => value,
  max_num_seqs: (value) => plural(value, "slot"),
  max_num_batched_tokens: (value) => `budget ${count(value)}`,
  long_prefill_token_threshold: (value) => `chunks of ${value ? count(value) : "any length"}`,
  num_blocks: (value) => plural(value, "block"),
  block_size: (value) => `${count(value)} tokens a block`,
  kv_cache_dtype: (value) => `KV as ${value}`,
  max_model_len: (value) => `${count(value)} tokens at most`,
  watermark: (value) => `watermark ${value}`,
};

/** The settings in which two runs differ. @param {Run} one @param {Run} other */
export function differences(one, other) {
  return Object.keys(MODES).filter((name) => one.config[name] !== other.config[name]);
}

/** What distinguishes a run, in a few words: "static", "chunked prefill off, budget 2,048". @param {Run} run @param {string[]} differing */
export function modeWords(run, differing) {
  return differing.map((name) => MODES[name](run.config[name])).join(", ");
}

/** The number that matters for what was changed: time to the end, unless it was changed for another one's sake. @param {string[]} differing @returns {"makespan" | "gap" | "ttft"} */
export function headline(differing) {
  if (differing.includes("batching")) return "makespan";
  if (differing.includes("enable_chunked_prefill")) return "gap";
  return differing.includes("enable_prefix_caching") ? "ttft" : "makespan";
}

// -- what may be said ----------------------------------------------------------------------------

/** Offsets may differ by as much: the same burst, sent twice, does not arrive in the same microseconds. */
const LEEWAY_US = 250_000;
const LEEWAY = 0.05;

/** Why a run is compared with no other, as a sentence. @param {string} name @param {Run} run */
export function obstacleOf(name, run) {
  if (run.cut) return `The recording of ${name} does not reach back to its first arrival, so the two are not compared. Send a shorter run.`;
  if (run.lost) return `Events of ${name} are missing, so the two are not compared. Send it again.`;
  if (!run.over) return `${name} still runs: ${count(run.ends.length)} of ${count(run.arrivals.length)} requests have finished.`;
  return run.gated ? handWords(name) : null;
}

/** Why nothing is said of a run that somebody held, and what to do. @param {string} name */
function handWords(name) {
  return `${name} was paused or stepped by hand: its times are no measurements, so the two are not compared. Send it again without pausing, or press Simulate.`;
}

/** Why nothing is said of the difference, as a sentence; null when both did the same work. @param {Run} a @param {Run} b */
export function obstacle(a, b) {
  const one = obstacleOf("A", a) ?? obstacleOf("B", b);
  if (one) return one;
  const unlike = unlikeArrivals(a, b);
  if (unlike) return `${unlike}, so the two are not compared. Send the same to both.`;
  const [out, others] = [numbersOf(a).outputTokens, numbersOf(b).outputTokens];
  if (Math.abs(out - others) > LEEWAY * out) return `The answers are not equally long (A ${count(out)} tokens, B ${count(others)}), so the two are not compared. Temperature 0 makes them so.`;
  return null;
}

/** How the arrivals of two runs differ, in words; null when they do not. @param {Run} a @param {Run} b */
function unlikeArrivals(a, b) {
  if (a.arrivals.length !== b.arrivals.length) return `A had ${plural(a.arrivals.length, "request")}, B ${count(b.arrivals.length)}`;
  const [from, since] = [startOf(a), startOf(b)];
  const leeway = Math.max(LEEWAY_US, LEEWAY * Math.max(numbersOf(a).makespan ?? 0, numbersOf(b).makespan ?? 0));
  // Those that come together come in any order.
  const sorted = (/** @type {Run} */ run) => [...run.arrivals].sort((one, other) => one.prompt - other.prompt || one.most - other.most || one.at - other.at);
  const others = sorted(b);
  const pairs = sorted(a).map((one, i) => [one, others[i]]);
  if (pairs.some(([one, other]) => one.prompt !== other.prompt || one.most !== other.most)) return "A and B had requests of other lengths";
  if (pairs.some(([one, other]) => Math.abs(one.at - from - (other.at - since)) > leeway)) return "The requests of A and B did not come at the same times";
  return null;
}

/** Two digits that matter: "0.52", "1.9", "14". @param {number} ratio */
export function share(ratio) {
  return ratio >= 10 ? count(ratio) : ratio.toFixed(ratio < 1.95 ? 2 : 1);
}

/** A duration in seconds, as far as it can be read across a room. @param {number | null} us */
export function seconds(us) {
  return us === null ? "–" : `${(us / 1e6).toFixed(us < 10_000_000 ? 2 : 1)} s`;
}

/** "Run in turn …": how two runs that took place came about, from their clocks and machines. @param {Run} a @param {Run} b */
export function howRun(a, b) {
  if (a.hello.epoch === b.hello.epoch && startOf(a) === startOf(b)) return "A and B are one and the same run.";
  const wall = (/** @type {Run} */ run) => [startOf(run), run.steps.at(-1)?.accepted_us ?? 0].map((us) => us + run.hello.clock_unix_us);
  const place = (/** @type {Run} */ { hello }) => hello.device?.name ?? "a device that it does not name"; // nor does every engine
  if (place(a) !== place(b)) return `Run on two devices: A on ${place(a)}, B on ${place(b)}. Both are aligned at t = 0.`;
  const [[from, to], [since, until]] = [wall(a), wall(b)];
  const together = from < until && since < to;
  if (together) return "Run at the same time on one machine, so each slowed the other. Both are aligned at t = 0.";
  return "Run in turn on one machine, aligned at t = 0.";
}
