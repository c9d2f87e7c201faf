/**
 * A run, and what another mode would have made of it: the run as it is, its ghost, and the run predicted at the ghost's
 * pace. All three are of what the engine had said when they were asked for, so that a run that goes on can be compared.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Numbers} from "./compare_numbers.js"
 *
 * @typedef {{run: Run, ghost: Run, twin: Run}} Pair
 * @typedef {{requests: number, cut: number, left_out: number}} Replayed see app/ghost.py
 */

import { differences, handWords, modeWords, numbersOf, obstacle, seconds, verdict } from "./compare_numbers.js";
import { lengthOf } from "./compare_picture.js";
import { startOf } from "./compare_run.js";
import { ghostRun, lastRun, turnedOver, Unavailable } from "./compare_sources.js";
import { groupWords, twin as tableOf } from "./compare_words.js";
import { count, plural } from "./format.js";

/**
 * @param {string} engine @param {string} setting that is turned the other way @param {number} until the last event that counts
 * @param {AbortSignal} signal
 * @returns {Promise<Pair>}
 */
export async function askPair(engine, setting, until, signal) {
  const run = await lastRun(engine, signal, until);
  const settings = turnedOver(setting, run.config);
  const [ghost, twin] = await bothOrNone([settings, {}], signal, (settings, signal) => ghostRun(engine, settings, signal, until));
  if (!sameRun(run, ghost, twin)) throw new Unavailable("Another run began meanwhile; simulate again.");
  return { run, ghost, twin };
}

/**
 * Ask for each; when one is refused, the others are of no use and give up their place in the line.
 * @template A, R @param {A[]} all @param {AbortSignal} signal @param {(one: A, signal: AbortSignal) => Promise<R>} askFor @returns {Promise<R[]>}
 */
export async function bothOrNone(all, signal, askFor) {
  const refused = new AbortController();
  const either = AbortSignal.any([signal, refused.signal]);
  try {
    return await Promise.all(all.map((one) => askFor(one, either)));
  } catch (error) {
    refused.abort();
    throw error;
  }
}

/** Whether the ghosts are of one run, and of this one; of a run whose beginning is lost, the ghosts alone tell. @param {Run} run @param {Run} ghost @param {Run} twin */
export function sameRun(run, ghost, twin) {
  return startOf(ghost) === startOf(twin) && (run.cut || startOf(run) === startOf(twin));
}

/** What is compared: as long as the run goes on, what it has done so far is predicted under both modes. @param {Pair} pair */
function compared({ run, ghost, twin }) {
  const a = run.over ? run : twin;
  const why = !run.over && run.gated ? handWords("A") : obstacle(a, ghost); // the twin was in nobody's hand
  return { a, b: ghost, numbers: { a: numbersOf(twin), b: numbersOf(ghost) }, why };
}

/** The sentence with the number that matters, or why there is none. @param {Pair} pair */
export function sentence(pair) {
  const { a, b, numbers, why } = compared(pair);
  const words = why ?? verdict(a, b, numbers, differences(a, b), true);
  return pair.run.over || pair.run.gated ? words : `So far: ${words}`;
}

/** What each track is called. @param {Pair} pair */
export function titles({ run, ghost }) {
  const differing = differences(run, ghost);
  const kind = run.hello.simulated ? "simulated" : run.gated ? "gated" : "measured";
  return {
    a: `A: ${modeWords(run, differing) || "the run"}, as it ${run.over ? "ran" : "runs"} · ${kind}`,
    b: `B: ${modeWords(ghost, differing) || "the same"}, a ghost · simulated`,
  };
}

/** When the run would end at its ghost's pace, which is what the sentence compares; null where it says nothing, or the picture shows it. @param {Pair} pair */
export function predictedEnd(pair) {
  const { numbers, why } = compared(pair);
  const { makespan } = numbers.a;
  return why !== null || seconds(lengthOf(pair.run, "time")) === seconds(makespan) ? null : makespan;
}

/** Why static batching leaves slots empty, on the side that does. @param {Pair} pair */
export function slotWords({ run, ghost }) {
  return Object.entries({ A: run, B: ghost })
    .map(([name, each]) => [name, groupWords(each)])
    .flatMap(([name, words]) => (words ? `${name}: ${words}` : []))
    .join(" ");
}

/** Why the sentence gives the run another time than the picture does; "" where it does not. @param {Pair} pair */
function alikeWords(pair) {
  const end = predictedEnd(pair);
  if (end === null) return "";
  const [drawn, predicted] = [lengthOf(pair.run, "time"), end].map(seconds);
  return ` A ${pair.run.over ? "took" : "has taken"} ${drawn}, as it is drawn; to compare like with like it is predicted too: ${predicted}.`;
}

/** What the ghost was computed from, what of the run is not in it, and of which times the sentence speaks. @param {Pair} pair */
export function sourceWords(pair) {
  const { run, ghost } = pair;
  const { requests, cut, left_out } = /** @type {Replayed} */ (/** @type {any} */ (ghost.hello).replayed ?? { requests: ghost.arrivals.length, cut: 0, left_out: 0 });
  const words = [`Computed from ${plural(requests, "request")} and ${plural(run.steps.length, "step")} of this run: their arrivals and lengths, and how long its steps took.`];
  if (cut) words.push(`${count(cut)} ${cut === 1 ? "was" : "were"} still running, and ${cut === 1 ? "is" : "are"} cut where ${cut === 1 ? "it" : "they"} stood.`);
  if (left_out) words.push(`${count(left_out)} had no token yet, and ${left_out === 1 ? "is" : "are"} left out.`);
  return words.join(" ") + alikeWords(pair);
}

/** @param {Pair} pair */
export function table(pair) {
  const { numbers, why } = compared(pair);
  return tableOf({ a: numbersOf(pair.run), b: numbers.b }, numbers, why === null);
}
