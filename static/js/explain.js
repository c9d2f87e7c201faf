/**
 * Explain this step: one sentence per step, made from its event and the notes around it; and why a breakpoint closed
 * the gate. Only what the engine said is used; what this page did not hear is left out, never guessed.
 *
 * @import {Hit, Notes, PreemptedEvent, StepFacts} from "./types.js"
 */

import { count, duration, endedWords, finishWords, plural, requestName, waitWords } from "./format.js";
import { noNotes } from "./notes.js";

/** Requests named one by one; more are counted. */
const NAMED = 4;

/** "Step 41: R7 was preempted, it held 6 blocks, R3 needed 1 and none was free; … . 19 of 256 tokens in 20 ms." @param {StepFacts} step */
export function explainStep(step, notes = noNotes()) {
  const clauses = [
    ...notes.preempted.map(preemptedWords),
    ...joinedWords(notes),
    ...prefillWords(step, notes),
    ...decodeWords(step),
    ...evictedWords(step),
    ...finishedWords(notes),
    endWords(step),
  ];
  const measure = step.gated ? ", gated: not a measurement" : "";
  const budget = `${count(step.num_scheduled_tokens)} of ${plural(step.token_budget, "token")} in ${duration(step.wall_us)}${measure}`;
  return `Step ${count(step.step)}: ${clauses.join("; ")}. ${budget}.`;
}

/** "R1", "R1 and R2", "8 requests". @param {string[]} ids */
function names(ids) {
  const all = ids.map(requestName);
  if (all.length > NAMED) return plural(all.length, "request");
  return all.length < 2 ? all.join("") : `${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
}

/** @param {string[]} ids */
function were(ids) {
  return ids.length === 1 ? "was" : "were";
}

/** "R7 was preempted, it held 6 blocks, R3 needed 1 and none was free" @param {PreemptedEvent} event */
export function preemptedWords(event) {
  const held = `${requestName(event.request)} was preempted, it held ${plural(event.num_held_blocks, "block")}`;
  if (event.needed <= event.free) return `${held}, the more urgent ${requestName(event.by)} took its place`;
  const who = event.by === event.request ? "it" : requestName(event.by);
  const free = event.free === 0 ? "none was free" : `only ${count(event.free)} ${event.free === 1 ? "was" : "were"} free`;
  return `${held}, ${who} needed ${count(event.needed)} and ${free}`;
}

/** @param {Notes} notes */
function joinedWords({ admitted, resumed }) {
  const words = [];
  if (admitted.length) {
    const ids = admitted.map((event) => event.request);
    const hits = admitted.filter((event) => event.cached > 0);
    const cached = hits.reduce((sum, event) => sum + event.cached, 0);
    const by = hits.length && hits.length < ids.length ? `${names(hits.map((event) => event.request))} with ` : "with ";
    words.push(`${names(ids)} ${were(ids)} admitted${cached ? `, ${by}${plural(cached, "token")} from the prefix cache` : ""}`);
  }
  if (resumed.length) words.push(`${names(resumed.map((event) => event.request))} came back after a preemption`);
  return words;
}

/** @param {StepFacts} step @param {Notes} notes */
function prefillWords(step, { first_token: first }) {
  const rows = [...step.rows].filter((row) => row.phase === "prefill");
  const words = [];
  if (rows.length) {
    const tokens = rows.reduce((sum, row) => sum + row.scheduled, 0);
    words.push(`${names(rows.map((row) => row.request))} computed ${plural(tokens, "token")} of prompt`);
  }
  if (first.length) words.push(`${names(first.map((event) => event.request))} wrote the first token`);
  return words;
}

/** @param {StepFacts} step */
function decodeWords({ rows }) {
  const writing = [...rows].filter((row) => row.phase === "decode");
  if (!writing.length) return [];
  const sum = (/** @type {"out" | "drafted" | "accepted"} */ name) => writing.reduce((total, row) => total + row[name], 0);
  const [out, drafted, accepted] = [sum("out"), sum("drafted"), sum("accepted")];
  const each = writing.length > 1 && out === writing.length;
  const wrote = `${names(writing.map((row) => row.request))} wrote ${each ? "one token each" : plural(out, "token")}`;
  return [drafted ? `${wrote}, ${count(accepted)} of ${plural(drafted, "guess", "guesses")} right` : wrote];
}

/** @param {StepFacts} step */
function evictedWords({ evicted }) {
  if (!evicted.length) return [];
  return [`${plural(evicted.length, "cached block")} ${evicted.length === 1 ? "was" : "were"} evicted and handed out anew`];
}

/** @param {Notes} notes */
function finishedWords({ finished }) {
  if (!finished.length) return [];
  const reasons = new Set(finished.map((event) => finishWords(event.reason, event.detail)));
  const why = reasons.size === 1 ? ` (${[...reasons][0]})` : "";
  return [`${names(finished.map((event) => event.request))} finished${why}`];
}

/** What ended the step's scheduling, and whom that keeps waiting. @param {StepFacts} step */
function endWords({ ended_by: code, waiting }) {
  const [head] = waiting;
  if (code === "after_preemption") return "having preempted, it admitted nobody";
  if (code === "all_scheduled") return endedWords(code);
  if (!head) return `no more was scheduled, as ${endedWords(code)}`;
  return `no more was scheduled, as ${endedWords(code)}, and ${requestName(head.request)} waits: ${waitWords(head)}`;
}

// -- breakpoints ---------------------------------------------------------------------------------

/** @type {Object<string, string>} */
const BREAK_WORDS = {
  preempt: "a request was preempted",
  refused: "a request was short of blocks",
  prefix_hit: "a prompt was found in the prefix cache",
  eviction: "a cached block was evicted",
  finish: "a request finished",
  first_token: "a request wrote its first token",
};

/** What a breakpoint waits for, in words; its text is the engine's: "preempt", "slow_step:20", "if:waiting > 2". @param {string} text */
export function breakWords(text) {
  const [name, ...rest] = text.split(":");
  const argument = rest.join(":");
  if (name === "slow_step") return `a step took longer than ${argument} ms`;
  if (name === "request") return `${requestName(argument)} was scheduled`;
  if (name === "if") return `${argument} was true`;
  return BREAK_WORDS[text] ?? text;
}

/** What closed the gate: "Stopped after step 41: a request was preempted (R7)." @param {Hit} hit */
export function hitWords(hit) {
  const about = hit.request && !hit.on.startsWith("request:") ? ` (${requestName(hit.request)})` : "";
  return `Stopped after step ${count(hit.step)}: ${breakWords(hit.on)}${about}.`;
}
