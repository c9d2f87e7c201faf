/**
 * A run, and what another mode would have made of it: the run as it is, its ghost, and its twin, the run predicted at
 * the ghost's pace. The two that are predicted are shown and compared. All three are of what the engine had said when they were asked for, so that a run that goes on can be compared.
 *
 * @import {Run} from "./compare_run.js"
 *
 * @typedef {{run: Run, ghost: Run, twin: Run}} Pair
 * @typedef {{requests: number, cut: number, left_out: number}} Replayed see app/ghost.py
 */

import { differences, modeWords } from "./compare_numbers.js";
import { foretoldOf, isMissKnown, missWords, numbersAsFarAs, obstacleTo, reallyWords } from "./compare_predicted.js";
import { startOf } from "./compare_run.js";
import { ghostRun, lastRun, turnedOver, Unavailable } from "./compare_sources.js";
import { sharedWords, verdict } from "./compare_verdict.js";
import { farWords, groupWords, reallyColumn, twin as tableOf } from "./compare_words.js";
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

/** Both as the model has them, and the run that took place. @param {Pair} pair */
function compared({ run, ghost, twin }) {
  const real = /** @type {const} */ ({ name: "A", run });
  return { real, why: obstacleTo(twin, ghost, real), differing: differences(twin, ghost) };
}

/** The sentence with the number that matters, or why there is none. @param {Pair} pair */
export function sentence(pair) {
  const { real, why, differing } = compared(pair);
  return why ?? `${pair.run.over ? "" : "So far: "}${verdict(pair.twin, pair.ghost, differing, foretoldOf(real))}`;
}

/** What each track is called. @param {Pair} pair */
export function titles({ run, twin, ghost }) {
  const differing = differences(twin, ghost);
  const far = run.over ? "" : `, ${farWords(run)}`;
  return {
    a: `A: ${modeWords(twin, differing) || "the same"}, this run’s own mode · simulated${far}`,
    b: `B: ${modeWords(ghost, differing) || "the same"}, the other mode · simulated${far}`,
  };
}

/** Why static batching leaves slots empty, on the side that does. @param {Pair} pair */
export function slotWords({ twin, ghost }) {
  return Object.entries({ A: twin, B: ghost })
    .map(([name, each]) => [name, groupWords(each)])
    .flatMap(([name, words]) => (words ? `${name}: ${words}` : []))
    .join(" ");
}

/** Which knobs were turned under the run: neither side is then in one mode all along, but for what the ghost holds. @param {Pair} pair */
function turnedWords({ run, twin, ghost }) {
  if (!run.turned.size) return [];
  const held = [...twin.turned].filter((name) => !ghost.turned.has(name));
  const but = held.length ? `, but for ${held.join(", ")}, which B holds` : "";
  return [`Turned while it ran, and turned again in A and B: ${[...run.turned].join(", ")}${but}.`];
}

/** What both were computed from, what of the run is not in them, and how the run really went. @param {Pair} pair */
export function sourceWords(pair) {
  const { run, ghost, twin } = pair;
  const { real, why, differing } = compared(pair);
  const { requests, cut, left_out } = /** @type {Replayed} */ (/** @type {any} */ (ghost.hello).replayed ?? { requests: ghost.arrivals.length, cut: 0, left_out: 0 });
  const words = [`Computed from ${plural(requests, "request")} and ${plural(run.steps.length, "step")} of this run: their arrivals and lengths, and how long its steps took.`];
  if (cut) words.push(`${count(cut)} ${cut === 1 ? "was" : "were"} still running, and ${cut === 1 ? "is" : "are"} cut where ${cut === 1 ? "it" : "they"} stood.`);
  if (left_out) words.push(`${count(left_out)} had no token yet, and ${left_out === 1 ? "is" : "are"} left out.`);
  words.push(...turnedWords(pair), reallyWords(real, twin, differing));
  // The verdict could then not be held against the run, and sounds surer than it is.
  if (why === null && !isMissKnown(real, twin)) words.push(missWords(real, twin));
  return words.join(" ") + sharedWords(twin, ghost, differing);
}

/** @param {Pair} pair */
export function table(pair) {
  const { real, why } = compared(pair);
  return tableOf({ a: numbersAsFarAs(pair.twin, pair.run), b: numbersAsFarAs(pair.ghost, pair.run) }, why === null, pair.run.over ? "" : farWords(pair.run), reallyColumn(real));
}
