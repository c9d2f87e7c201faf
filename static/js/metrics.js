/**
 * Derived numbers, as METRICS defines them: percentiles over raw samples, rates over a stated window, the
 * invariant. Undefined is null and gives no sample. Pure functions.
 *
 * @import {State, StepFacts, Timings} from "./types.js"
 */

/** Rates on the page are over the last two seconds of engine time. */
export const RATE_WINDOW_US = 2_000_000;

/** Below this many samples a percentile says little and is greyed out. */
/** @type {Object<number, number>} */
export const ENOUGH = { 50: 1, 95: 20, 99: 100 };

/**
 * Nearest rank: the smallest sample that at least p % of all samples do not exceed, so always one that happened.
 * @param {number[]} sorted ascending raw samples
 * @param {number} p
 * @returns {number | null}
 */
export function percentile(sorted, p) {
  if (sorted.length === 0) return null;
  return sorted[Math.max(0, Math.ceil((p / 100) * sorted.length) - 1)];
}

/**
 * The raw samples of one timing over finished requests; gated requests stay out, undefined gives none.
 * @param {Array<{timings: Timings}>} finished
 * @param {keyof Timings} name for example "ttft_us"
 */
export function samplesOf(finished, name) {
  /** @type {number[]} */
  const values = [];
  for (const { timings } of finished) {
    if (timings.gated_us > 0) continue;
    const value = timings[name];
    if (value !== null && value !== undefined) values.push(value);
  }
  return values.sort((a, b) => a - b);
}

/**
 * Prefill and decode tokens per second over the window that ends now; two numbers, never one sum.
 * null when a step in the window was gated: such a rate would measure a hand on the gate.
 * @param {Iterable<StepFacts>} newestFirst steps
 * @param {number} nowUs engine time
 */
export function rates(newestFirst, nowUs) {
  let prefill = 0;
  let decode = 0;
  for (const step of newestFirst) {
    if (step.accepted_us < nowUs - RATE_WINDOW_US) break;
    if (step.gated) return { prefill: null, decode: null };
    prefill += step.num_prefill_tokens;
    decode += step.num_decode_tokens;
  }
  const seconds = RATE_WINDOW_US / 1e6;
  return { prefill: prefill / seconds, decode: decode / seconds };
}

/**
 * Check the invariant of METRICS on the folded state; null when it holds, else what is wrong in words.
 * @param {State} state
 */
export function brokenInvariant(state) {
  const { counts, refs, total } = state.blocks;
  if (counts.free + counts.cached_idle + counts.referenced !== total) {
    return `free ${counts.free} + cached idle ${counts.cached_idle} + referenced ${counts.referenced} is not ${total}`;
  }
  const held = new Uint32Array(total);
  for (const request of Object.values(state.requests)) for (const block of request.block_table) held[block] += 1;
  const wrong = refs.findIndex((ref, block) => ref !== held[block]);
  if (wrong >= 0) return `block ${wrong} has ref ${refs[wrong]} but ${held[wrong]} tables hold it`;
  return brokenQueues(state);
}

/** @param {State} state */
function brokenQueues(state) {
  const seen = new Set();
  for (const id of [...state.queues.waiting, ...state.queues.running, ...state.finished]) {
    if (seen.has(id)) return `request ${id} is in two queues`;
    seen.add(id);
  }
  const lost = Object.keys(state.requests).find((id) => !seen.has(id));
  return lost === undefined ? null : `request ${lost} is in no queue`;
}

/** Whether a hand is on the gate: paused, counted or slowed. @param {State | null | undefined} state */
export function byHand(state) {
  return state !== null && state !== undefined && (state.gate.state === "paused" || state.gate.per_second !== null);
}
