/**
 * The sentence about two runs: which was faster, by how much, and whether that can be told. Of predictions it is said no
 * surer than the model is: what lies closer together than the model comes to the run that took place cannot be told
 * apart. Pure.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Numbers} from "./compare_numbers.js"
 *
 * @typedef {"makespan" | "gap" | "ttft"} Figure
 * @typedef {{name: "A" | "B", numbers: Numbers | null, goesOn: boolean}} Foretold
 *   both sides are predicted; of this one the numbers are known as it ran, unless a hand was on the gate or some of it was never heard; while that
 *   one goes on, the predictions are of what it had done by then
 */

import { headline, modeWords, numbersOf, seconds, share } from "./compare_numbers.js";
import { count, duration, plural } from "./format.js";

/** Below it two times are the same. */
const EQUAL = 0.01;

/**
 * "B (continuous) finished the same 24 requests 2.2 times as fast as A: 7.52 s instead of 16.4 s."
 * @param {Run} a @param {Run} b @param {string[]} differing @param {Foretold | null} [foretold] of predictions
 */
export function verdict(a, b, differing, foretold = null) {
  const numbers = { a: numbersOf(a), b: numbersOf(b) };
  const words = modeWords(b, differing);
  const name = words ? `B (${words})` : "B";
  const work = workWords(a.arrivals.length, foretold?.goesOn === true);
  const ends = foretold && isUnsure(numbers, foretold) ? unsureWords(name, numbers, foretold) : `${name} ${endWords(numbers, work, foretold !== null)}.`;
  return [ends, aside(headline(differing), numbers, foretold), uncutWords(a, b, differing)].filter(Boolean).join(" ");
}

/** @param {number} requests @param {boolean} goesOn */
function workWords(requests, goesOn) {
  if (goesOn) return `what ${plural(requests, "request")} had done by then`;
  return requests === 1 ? "the same request" : `the same ${count(requests)} requests`;
}

/** @param {{a: Numbers, b: Numbers}} numbers @param {string} work @param {boolean} predicted */
function endWords(numbers, work, predicted) {
  const { a, b } = numbers;
  const ratio = (b.makespan ?? 0) / (a.makespan ?? 0);
  const [finished, took] = predicted ? ["would finish", "would take"] : ["finished", "took"];
  const times = `${seconds(b.makespan)} instead of ${seconds(a.makespan)}${predicted ? ", both predicted" : ""}`;
  if (isEqual(numbers)) return `${finished} ${work} in A’s time, to within 1 %`;
  return ratio < 1 ? `${finished} ${work} ${share(1 / ratio)} times as fast as A: ${times}` : `${took} ${share(ratio)} times as long as A for ${work}: ${times}`;
}

/** Whether the model errs by more than it sets the ends apart. Where both are next to nothing, it is told that the ends are the same. @param {{a: Numbers, b: Numbers}} numbers @param {Foretold} foretold */
function isUnsure(numbers, foretold) {
  const miss = missOf(foretold, foretold.name === "A" ? numbers.a : numbers.b);
  const accurate = miss !== null && Math.abs(miss.by) < EQUAL;
  return closerThanModel("makespan", numbers, foretold) && !(accurate && isEqual(numbers));
}

/** Whether two ends are as good as the same. @param {{a: Numbers, b: Numbers}} numbers */
function isEqual({ a, b }) {
  return Math.abs((b.makespan ?? 0) / (a.makespan ?? 0) - 1) < EQUAL;
}

/** @param {string} name of B @param {{a: Numbers, b: Numbers}} numbers @param {Foretold} foretold */
function unsureWords(name, { a, b }, foretold) {
  const said = (foretold.name === "A" ? a : b).makespan ?? 0;
  const apart = Math.abs((b.makespan ?? 0) - (a.makespan ?? 0)) / 1e6;
  const miss = Math.abs(said - (foretold.numbers?.makespan ?? 0)) / 1e6;
  const digits = Math.max(2, 1 - Math.floor(Math.log10(apart))); // in one unit, and the lesser of the two is not "0.00"
  return `Which is faster cannot be told: the ends of ${name} and A are predicted ${apart.toFixed(digits)} s apart, and the model misses ${foretold.name}’s own by more, by ${miss.toFixed(digits)} s.`;
}

/** A second sentence, where another number than the end is what matters. @param {Figure} name @param {{a: Numbers, b: Numbers}} numbers @param {Foretold | null} foretold */
function aside(name, numbers, foretold) {
  const { a, b } = numbers;
  if (name === "makespan" || a[name] === null || b[name] === null || duration(a[name]) === duration(b[name])) return "";
  const what = name === "gap" ? "Its longest wait for a next token" : "Its median wait for a first token";
  const unsure = foretold && closerThanModel(name, numbers, foretold) ? `, less apart than the model is from ${foretold.name}’s own run` : "";
  return `${what} ${foretold ? "would be" : "was"} ${duration(b[name])}, A’s ${duration(a[name])}${unsure}.`;
}

/** Whether two predictions differ, but by less than the model errs. What it makes the same is the same. @param {Figure} name @param {{a: Numbers, b: Numbers}} numbers @param {Foretold} foretold */
function closerThanModel(name, { a, b }, foretold) {
  const [said, was] = [(foretold.name === "A" ? a : b)[name], foretold.numbers?.[name] ?? null];
  if (said === null || was === null) return false;
  const apart = Math.abs((b[name] ?? 0) - (a[name] ?? 0));
  return apart > 0 && apart < Math.abs(said - was);
}

/**
 * By how much the model misses the end of the run that took place: "14 %"; null where that is not known.
 * @param {Foretold} foretold @param {Numbers} says what it makes of that run
 */
export function missOf({ numbers }, says) {
  if (!numbers?.makespan || says.makespan === null) return null;
  const by = says.makespan / numbers.makespan - 1;
  const share = Math.abs(by) * 100;
  return { by, words: `${share < 9.95 ? share.toFixed(1) : count(share)} %` };
}

/** @param {Run} a @param {Run} b of which one has chunks */
function chunksOf(a, b) {
  const { config, arrivals, steps, preemptions } = a.config.enable_chunked_prefill ? a : b;
  const { max_num_batched_tokens: budget, long_prefill_token_threshold: most } = config;
  const chunk = most > 0 && most < budget;
  return {
    limit: chunk ? `the longest chunk, ${count(most)} tokens` : `a step’s budget of ${count(budget)} tokens`,
    fit: arrivals.every(({ prompt }) => prompt <= (chunk ? most : budget)),
    // A prompt that is cut gives no token in the step that computes its first part.
    cut: steps.some(({ rows }) => [...rows].some(({ phase, out }) => phase === "prefill" && out === 0)),
    again: preemptions > 0, // and then longer, with what had been answered
  };
}

/** Why chunked prefill had nothing to do; "" where it had. @param {Run} a @param {Run} b @param {string[]} differing */
function uncutWords(a, b, differing) {
  if (!differing.includes("enable_chunked_prefill")) return "";
  const { limit, fit, cut } = chunksOf(a, b);
  if (cut) return "";
  return `${fit ? "No prompt was" : "What the cache lacked of a prompt was never"} longer than ${limit}, so nothing was cut into chunks.`;
}

/** Why it had little to do; "" where it had more, or nothing. @param {Run} a @param {Run} b @param {string[]} differing */
export function sharedWords(a, b, differing) {
  if (!differing.includes("enable_chunked_prefill")) return "";
  const { limit, fit, cut, again } = chunksOf(a, b);
  return cut && fit && !again ? ` No prompt was longer than ${limit}: one was cut only where several shared a step.` : "";
}
