/**
 * ITL: the gaps between consecutive deliveries of a request; the tokens that a step accepts for it are one delivery.
 * Read off the steps that the page keeps. A gap that a hand on the gate had a part in is no sample, and one that a
 * hole in the stream falls into is not known. Pure.
 *
 * @import {History, Step} from "./types.js"
 *
 * @typedef {Map<string, {column: number, at: number, gated: boolean}>} Open deliveries whose predecessor is still to come, by request
 *
 * @typedef {Object} Gap
 * @property {string} request
 * @property {number} column   of the step that ended it
 * @property {number} since    column of the delivery before
 * @property {number} us
 * @property {boolean} gated   a step in it was stepped or slowed by hand, or the engine was held meanwhile
 */

import { count, duration, plural, requestName } from "./format.js";
import { wasHeld } from "./held.js";
import { oldestColumn, stepNumber } from "./history.js";
import { noNotes } from "./notes.js";
import { deliveredIn } from "./rows.js";

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
  /** @type {Open} */
  const open = new Map();
  const oldest = Math.max(oldestColumn(history), from - LOOK_BACK);
  let next = /** @type {Step | null} */ (null);
  for (let column = to; column >= oldest && (column >= from || open.size > 0); column -= 1) {
    const step = history.steps.get(column) ?? null;
    if (step === null) open.clear();
    else {
      if (next && wasHeld(step, next)) markAll(open);
      closeGaps(gaps, open, step, column);
      if (step.gated) markAll(open);
      if (column >= from) openGaps(open, step, column, history.lanes);
    }
    next = step;
  }
  return gaps;
}

/** @param {Open} open */
function markAll(open) {
  for (const delivery of open.values()) delivery.gated = true;
}

/** @param {Gap[]} gaps @param {Open} open @param {Step} step @param {number} column */
function closeGaps(gaps, open, step, column) {
  for (const request of deliveredIn(step)) {
    const later = open.get(request);
    if (!later) continue;
    open.delete(request);
    gaps.push({ request, column: later.column, since: column, us: later.at - step.accepted_us, gated: later.gated });
  }
}

/** @param {Open} open @param {Step} step @param {number} column @param {History["lanes"]} lanes */
function openGaps(open, step, column, lanes) {
  for (const request of deliveredIn(step)) {
    if (lanes.get(request)?.first === column) continue;
    open.set(request, { column, at: step.accepted_us, gated: step.gated });
  }
}

/** "R3 · 212 ms since its last token · step 41 prefilled 512 tok of R9" @param {Gap} gap @param {History} history */
export function gapWords(gap, history) {
  return `${requestName(gap.request)} · ${duration(gap.us)} since its last token · ${meanwhileWords(gap, history)}`;
}

/** What the engine did in a gap: "step 41 prefilled 512 tok of R9". @param {Gap} gap @param {History} history */
export function meanwhileWords({ request, column, since }, history) {
  const own = { prefilled: 0, preempted: false };
  /** @type {Map<string, number>} tokens of others' prompts */
  const others = new Map();
  for (let at = since + 1; at <= column; at += 1) {
    own.preempted ||= (history.notes.get(at) ?? noNotes()).preempted.some((event) => event.request === request);
    for (const row of history.steps.get(at)?.rows ?? []) {
      if (row.phase !== "prefill") continue;
      if (row.request === request) own.prefilled += row.scheduled;
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
