/**
 * What differs between two steps, as rows of a table: times, tokens, requests, blocks, and who came and went. Pure.
 *
 * @import {Notes, OfRequest, StepFacts} from "./types.js"
 *
 * @typedef {{step: StepFacts, notes: Notes}} Noted a step and what happened around it
 */

import { count, duration, NONE, requestName } from "./format.js";
import { phaseUs } from "./step_time.js";
import { PHASES } from "./palette.js";

/** @type {Array<[string, (noted: Noted) => number]>} */
const COUNTS = [
  ["prefill tok", ({ step }) => step.num_prefill_tokens],
  ["decode tok", ({ step }) => step.num_decode_tokens],
  ["requests in it", ({ step }) => step.rows.length],
  ["waiting after it", ({ step }) => step.waiting.length],
  ["blocks used", ({ step }) => step.blocks.referenced],
  ["blocks evicted", ({ step }) => step.evicted.length],
];

/** @type {Array<[string, keyof Notes]>} */
const NAMES = [
  ["admitted", "admitted"],
  ["came back", "resumed"],
  ["preempted", "preempted"],
  ["finished", "finished"],
];

/**
 * @param {Noted} a
 * @param {Noted} b
 * @returns {Array<[string, string, string, string]>} what, in A, in B, B − A
 */
export function diffRows(a, b) {
  const phases = PHASES.filter((phase) => phase === "other" || [a, b].some(({ step }) => phase in step.phases_us));
  return [
    timeRow("wall", a.step.wall_us, b.step.wall_us),
    ...phases.map((phase) => timeRow(phase, phaseUs(a.step, phase), phaseUs(b.step, phase))),
    ...COUNTS.map(([what, of]) => /** @type {[string, string, string, string]} */ ([what, count(of(a)), count(of(b)), signed(of(b) - of(a), count)])),
    ...NAMES.map(([what, note]) => /** @type {[string, string, string, string]} */ ([what, names(a.notes[note]), names(b.notes[note]), ""])),
  ];
}

/** @param {string} what @param {number} a @param {number} b @returns {[string, string, string, string]} */
function timeRow(what, a, b) {
  return [what, duration(a), duration(b), signed(b - a, duration)];
}

/** "+1.2 ms", "−3", "0". @param {number} value @param {(value: number) => string} words */
function signed(value, words) {
  if (words(Math.abs(value)) === words(0)) return "0";
  return `${value < 0 ? "−" : "+"}${words(Math.abs(value))}`;
}

/** @param {OfRequest[]} events */
function names(events) {
  return events.length ? events.map((event) => requestName(event.request)).join(", ") : NONE;
}
