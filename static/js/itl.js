/**
 * ITL: the gaps between consecutive deliveries of a request; the tokens that a step accepts for it are one delivery.
 * Read off the steps that the page keeps. A gap that a hand on the gate had a part in is no sample, and one that a
 * hole in the stream falls into is not known. Pure.
 *
 * Requests that decode side by side have the same gaps, so one is told for all of them that delivered in the same two
 * steps: of hundreds of requests a step has hardly more than one.
 *
 * @import {History, Step} from "./types.js"
 *
 * @typedef {{requests: readonly string[], column: number, at: number, gated: boolean}} Open deliveries of one step whose predecessors are still to come
 *
 * @typedef {Object} Gap
 * @property {readonly string[]} requests that have it, at least one
 * @property {number} column   of the step that ended it
 * @property {number} since    column of the delivery before
 * @property {number} us
 * @property {boolean} gated   a step in it was stepped or slowed by hand, or the engine was held meanwhile
 */

import { count, duration, plural, requestName } from "./format.js";
import { wasHeld } from "./held.js";
import { oldestColumn, stepNumber } from "./history.js";
import { noNotes } from "./notes.js";
import { deliveredIn, Rows } from "./rows.js";

/** How far before the first step asked for the delivery before is looked for: a preempted request waits long. */
const LOOK_BACK = 1000;
/** Requests named one by one; more are counted. */
const NAMED = 3;

/**
 * The gaps that ended in these steps, newest first.
 * @param {History} history
 * @param {number} from first column
 * @param {number} to last column
 * @returns {Gap[]}
 */
export function gapsBetween(history, from, to) {
  /** @type {Gap[]} */
  const gaps = [];
  /** @type {Open[]} newest first */
  let open = [];
  const oldest = Math.max(oldestColumn(history), from - LOOK_BACK);
  let next = /** @type {Step | null} */ (null);
  for (let column = to; column >= oldest && (column >= from || open.length > 0); column -= 1) {
    const step = history.steps.get(column) ?? null;
    if (step === null) open = [];
    else {
      const delivered = deliveredIn(step);
      if (next && wasHeld(step, next)) markAll(open);
      open = closeGaps(gaps, open, delivered, step, column);
      if (step.gated) markAll(open);
      const opening = column >= from ? withPredecessors(delivered, step, column, history.lanes) : [];
      if (opening.length) open.push({ requests: opening, column, at: step.accepted_us, gated: step.gated });
    }
    next = step;
  }
  return gaps;
}

/** @param {Open[]} open */
function markAll(open) {
  for (const deliveries of open) deliveries.gated = true;
}

/** @param {Gap[]} gaps @param {Open[]} open @param {readonly string[]} delivered @param {Step} step @param {number} column @returns {Open[]} what is still open */
function closeGaps(gaps, open, delivered, step, column) {
  if (!delivered.length) return open;
  /** @type {Open[]} */
  const still = [];
  for (const later of open) {
    let requests = later.requests;
    if (requests !== delivered) {
      /** @type {string[]} */
      const others = [];
      requests = requests.filter(isAmong(delivered, others));
      if (others.length) still.push({ ...later, requests: others });
    }
    if (requests.length) gaps.push({ requests, column: later.column, since: column, us: later.at - step.accepted_us, gated: later.gated });
  }
  return still;
}

/** For requests in about the same order as those; the others are put down. @param {readonly string[]} those @param {string[]} others */
function isAmong(those, others) {
  let next = 0;
  return (/** @type {string} */ request) => {
    const at = those[next] === request ? next : those.indexOf(request);
    if (at < 0) others.push(request);
    else next = at + 1;
    return at >= 0;
  };
}

/** Those whose delivery was not their first; only a prefill's is. @param {readonly string[]} delivered @param {Step} step @param {number} column @param {History["lanes"]} lanes */
function withPredecessors(delivered, { rows }, column, lanes) {
  if (rows instanceof Rows && rows.columns.phase === "decode") return delivered;
  return delivered.filter((request) => lanes.get(request)?.first !== column);
}

/** One request's. @param {Gap} gap @param {string} request @returns {Gap} */
export function gapOf(gap, request) {
  return { ...gap, requests: [request] };
}

/** "R3 · 212 ms since its last token · step 41 prefilled 512 tok of R9" @param {Gap} gap @param {History} history */
export function gapWords(gap, history) {
  const [first, ...others] = gap.requests;
  const [who, whose] = others.length ? [`${requestName(first)} and ${plural(others.length, "other")}`, "their"] : [requestName(first), "its"];
  return `${who} · ${duration(gap.us)} since ${whose} last token · ${meanwhileWords(gap, history)}`;
}

/** What the engine did in a gap: "step 41 prefilled 512 tok of R9". @param {Gap} gap @param {History} history */
export function meanwhileWords({ requests, column, since }, history) {
  const waited = new Set(requests);
  const own = { prefilled: 0, preempted: false };
  /** @type {Map<string, number>} tokens of others' prompts */
  const others = new Map();
  for (let at = since + 1; at <= column; at += 1) {
    own.preempted ||= (history.notes.get(at) ?? noNotes()).preempted.some((event) => waited.has(event.request));
    for (const row of history.steps.get(at)?.rows ?? []) {
      if (row.phase !== "prefill") continue;
      if (waited.has(row.request)) own.prefilled += row.scheduled;
      else others.set(row.request, (others.get(row.request) ?? 0) + row.scheduled);
    }
  }
  const parts = [];
  if (own.preempted) parts.push(`preempted${own.prefilled ? `, ${count(own.prefilled)} tok computed again` : ""}`);
  parts.push(`${stepWords(since + 1, column, history)} ${workWords(others, history.steps.get(column))}`);
  return parts.join("; ");
}

/** @param {number} from @param {number} to @param {History} history */
function stepWords(from, to, history) {
  const last = count(stepNumber(history, to));
  return from === to ? `step ${last}` : `steps ${count(stepNumber(history, from))} to ${last}`;
}

/** @param {Map<string, number>} others @param {Step | undefined} step */
function workWords(others, step) {
  if (others.size === 0) return `computed no prompt, ${plural(step?.rows.length ?? 0, "request")} in it`;
  const tokens = [...others.values()].reduce((sum, each) => sum + each, 0);
  const names = [...others.keys()].map(requestName);
  return `prefilled ${count(tokens)} tok of ${names.length > NAMED ? `${count(names.length)} requests` : names.join(", ")}`;
}
