/**
 * A lane in words and as a table row: the same facts as its picture, at the moment shown.
 *
 * @import {KnownView, Lane, RequestFacts, Timings} from "./types.js"
 */

import { count, duration, finishWords, NONE, plural, requestName } from "./format.js";
import { stepNumber } from "./history.js";
import { handBetween } from "./held.js";
import { laneAt } from "./lanes.js";
import { outputShare } from "./marks.js";

export const LANE_COLUMNS = [
  "request",
  "status",
  "queue ms",
  "cached tok",
  "prefill",
  "first token",
  "TTFT ms",
  "output tok",
  "TPOT ms",
  "E2E ms",
  "preempted",
  "guesses right",
  "end",
];

/** What is known of a lane's request at the moment shown. @param {Lane} lane @param {KnownView} view */
export function factsOf(lane, { store, state }) {
  return store.held ? (state.requests[lane.id] ?? lane.facts) : lane.facts;
}

/** A lane as it was at the moment shown. @param {Lane} lane @param {KnownView} view */
function laneOf(lane, { store, history, until }) {
  return store.held ? laneAt(lane, history, until) : lane;
}

/** One row of the table twin. @param {Lane} whole @param {KnownView} view */
export function laneCells(whole, view) {
  const lane = laneOf(whole, view);
  const facts = factsOf(whole, view);
  /** @type {Partial<Timings>} */
  const times = facts.timings ?? {};
  const ms = (/** @type {number | null | undefined} */ us) => (us === null || us === undefined ? NONE : (us / 1000).toFixed(1));
  const queue = facts.scheduled_us === null ? null : facts.scheduled_us - facts.arrival_us;
  const ttft = facts.first_token_us === null ? null : facts.first_token_us - facts.arrival_us;
  return [
    requestName(lane.id),
    facts.status,
    ms(times.queue_us ?? queue),
    count(facts.num_cached_tokens),
    `${lane.chunks} chunk${lane.chunks === 1 ? "" : "s"}, ${count(facts.num_prompt_tokens)} tok`,
    firstWords(lane, facts, view),
    ms(times.ttft_us ?? ttft),
    outputShare(facts),
    ms(times.tpot_us),
    ms(times.e2e_us),
    facts.num_preemptions ? `${facts.num_preemptions}×, ${count(facts.num_lost_tokens)} tok lost` : "0",
    lane.drafted ? `${count(lane.accepted)}/${count(lane.drafted)}` : NONE,
    endWords(lane, facts) ?? NONE,
  ];
}

/** @param {Lane} lane @param {RequestFacts} facts @param {KnownView} view */
function firstWords(lane, facts, { history }) {
  if (lane.first !== null) return `step ${count(stepNumber(history, lane.first))}`;
  return facts.first_token_us === null ? NONE : "before this page";
}

/** How it ended, as far as the moment shown knows. @param {Lane} lane @param {RequestFacts} facts */
function endWords(lane, facts) {
  if (facts.finish_reason) return finishWords(facts.finish_reason, facts.finish_detail);
  return lane.end?.detail === "engine lost" ? "error · engine lost" : null;
}

/** "TPOT 41 ms × 63", "… so far" while it runs; null when there is none yet, or when the gate had a hand in it. @param {Lane} lane @param {KnownView} view */
export function paceWords(lane, view) {
  const facts = factsOf(lane, view);
  const gaps = facts.num_output_tokens - 1;
  if (lane.arrive > view.until || facts.first_token_us === null || facts.last_token_us === null || gaps < 1) return null;
  if (facts.timings) return facts.timings.gated_us > 0 ? null : `TPOT ${duration(facts.timings.tpot_us)} × ${count(gaps)}`;
  const gated = handBetween(view.history, lane.first ?? Math.floor(lane.arrive), Math.min(lane.last ?? view.column, view.column));
  return gated ? null : `TPOT ${duration((facts.last_token_us - facts.first_token_us) / gaps)} × ${count(gaps)} so far`;
}

/** One sentence of facts about a lane. @param {Lane} whole @param {KnownView} view */
export function factWords(whole, view) {
  if (whole.arrive > view.until) return "has not arrived yet at this step";
  const lane = laneOf(whole, view);
  const facts = factsOf(whole, view);
  const times = facts.timings;
  const parts = [`${count(facts.num_prompt_tokens)} prompt tok`];
  if (facts.num_cached_tokens) parts.push(`${count(facts.num_cached_tokens)} from the cache`);
  if (lane.chunks > 1) parts.push(`${lane.chunks} prefill chunks`);
  if (facts.scheduled_us !== null) parts.push(`queue ${duration(facts.scheduled_us - facts.arrival_us)}`);
  if (facts.first_token_us !== null) parts.push(`TTFT ${duration(facts.first_token_us - facts.arrival_us)}`);
  parts.push(`${outputShare(facts)} tok out`);
  if (times?.tpot_us) parts.push(`TPOT ${duration(times.tpot_us)}`);
  if (lane.drafted) parts.push(`${count(lane.accepted)} of ${plural(lane.drafted, "guess", "guesses")} right`);
  if (facts.num_preemptions) parts.push(`preempted ${facts.num_preemptions}×, ${count(facts.num_lost_tokens)} tok to recompute`);
  const end = endWords(lane, facts);
  if (end) parts.push(end);
  if (times && times.gated_us > 0) parts.push(`held by the gate for ${duration(times.gated_us)}: its times are not measurements`);
  return parts.join(" · ");
}
