/**
 * A run and its ghost, which is what a model makes of it under another mode. The run as it was had its hiccups, which no
 * ghost has, so beside it stands its twin: what the same model makes of the run under its own mode. Measured and
 * predicted never share a column or a picture; what really happened is said in a sentence. Pure.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Foretold} from "./compare_verdict.js"
 *
 * @typedef {{name: "A" | "B", run: Run}} Real the run that took place, whose twin is shown
 * @typedef {{a: Run | null, b: Run | null, real: Real | null}} Shown
 */

import { countUpTo, startOf } from "./compare_run.js";
import { headline, numbersOf, obstacle, obstacleOf, seconds } from "./compare_numbers.js";
import { missOf } from "./compare_verdict.js";
import { duration } from "./format.js";

/** What a replay's epoch ends with. */
const SUFFIX = "-simulated";

/** Whether nothing ran: a scripted engine is simulated too, but takes its time. @param {Run} run */
export function isVirtual({ hello }) {
  return replayedEpoch(hello) !== null;
}

/** Whether these are a run's own arrivals, replayed. @param {Run} ghost @param {Run | null} run */
export function isGhostOf(ghost, run) {
  return run !== null && replayedEpoch(ghost.hello) === run.hello.epoch && startOf(ghost) === startOf(run);
}

/**
 * Whether a replay is of another run than this one, not of this one as it was then or went on since. The first to come
 * may be missing in a replay, if it never had a token; so may they all in a run whose beginning is lost, and then only
 * its end tells.
 * @param {Run} replay @param {Run} run
 */
export function isOfAnother(replay, run) {
  const of = replayedEpoch(replay.hello);
  if (of !== null && of !== run.hello.epoch) return true;
  const start = startOf(replay);
  if (run.cut) return run.over && start > (run.steps.at(-1)?.accepted_us ?? start);
  return run.arrivals.every(({ at }) => at !== start);
}

/** Whose arrivals a replay replays; older recordings say it only by their own epoch's name. @param {Run["hello"]} hello @returns {string | null} */
function replayedEpoch({ replay_of: of, epoch }) {
  return of ?? (epoch.endsWith(SUFFIX) ? epoch.slice(0, -SUFFIX.length) : null);
}

/** What stands on each side: a run beside its ghost gives way to its twin. @param {Run | null} a @param {Run | null} b @returns {Shown} */
export function likeWithLike(a, b) {
  if (a && b?.twin && isGhostOf(b, a)) return { a: asFarAsHeard(b.twin, a), b: asFarAsHeard(b, a), real: { name: "A", run: a } };
  if (b && a?.twin && isGhostOf(a, b)) return { a: asFarAsHeard(a, b), b: asFarAsHeard(a.twin, b), real: { name: "B", run: b } };
  return { a, b, real: null };
}

/**
 * Why nothing is said of the difference; null when it may be. A hand on the gate spoils measurements, not predictions.
 * @param {Run} a @param {Run} b as shown @param {Real | null} real
 */
export function obstacleTo(a, b, real) {
  const partial = real && isPartial(real.run) ? obstacleOf(real.name, real.run) : null;
  return partial ?? obstacle(a, b);
}

/** Whether something of a run was never heard: its numbers are then of the rest, and say nothing of the model. @param {Run} run */
export function isPartial({ cut, lost }) {
  return cut || lost;
}

/**
 * A replay as far as its run has come. A replay has to end, so it cuts where they stand those that still run; their ends
 * are nobody's, and none is shown.
 * @param {Run} replay @param {Run} run @returns {Run}
 */
export function asFarAs(replay, run) {
  if (run.over) return replay;
  const ended = endedIn(run);
  const lanes = [...replay.history.lanes].map(([id, lane]) => /** @type {const} */ ([id, ended.has(id) ? lane : { ...lane, end: null }]));
  const cut = replay.ends.filter(({ request }) => !ended.has(request)).map(({ finished_us: at }) => at);
  cut.sort((one, other) => one - other);
  const moments = replay.moments.map((each) => ({ ...each, finished: each.finished - countUpTo(cut, each.at, (at) => at) }));
  return { ...replay, over: false, moments, history: { ...replay.history, lanes: new Map(lanes) } };
}

/** Of a run whose end was never heard nobody is said to have finished who was not heard to. @param {Run} replay @param {Run} run @returns {Run} */
function asFarAsHeard(replay, run) {
  return run.lost && !run.over ? { ...asFarAs(replay, run), lost: true } : replay;
}

/** The numbers of what is shown, in which a replay may be cut where its run was last heard of. @param {Run} shown @param {Real | null} real */
export function numbersShown(shown, real) {
  return real?.run.lost ? numbersAsFarAs(shown, real.run) : numbersOf(shown);
}

/** The numbers of a replay as far as its run has come: they tell of those that were cut as well, but none of these has finished. @param {Run} replay @param {Run} run */
export function numbersAsFarAs(replay, run) {
  const numbers = numbersOf(replay);
  if (run.over) return numbers;
  const ended = endedIn(run);
  return { ...numbers, finished: replay.ends.filter(({ request }) => ended.has(request)).length };
}

/** A replay calls its requests as they were called. @param {Run} run */
function endedIn({ ends }) {
  return new Set(ends.map(({ request }) => request));
}

/** @param {Real} real @returns {Foretold} */
export function foretoldOf({ name, run }) {
  return { name, numbers: run.gated || isPartial(run) ? null : numbersOf(run), goesOn: !run.over };
}

/** Why nothing foretold is set against how it ran. @param {Real} real */
function unknownWords({ name, run }) {
  if (run.cut) return `The recording of ${name} does not reach back to its first arrival, so how long it really took is not known.`;
  if (run.lost) return `Events of ${name} are missing, so how it really ran is known in part only.`;
  return `${name} was really paused or stepped by hand, so its own times are no measurements.`;
}

/** "As it really ran: 19.4 s; the model says 22.2 s, 14 % more." @param {Real} real @param {Run} twin @param {string[]} differing */
export function reallyWords(real, twin, differing) {
  const foretold = foretoldOf(real);
  const { numbers } = foretold;
  if (!numbers) return unknownWords(real);
  const says = numbersOf(twin);
  const [was, now] = [numbers.makespan, says.makespan].map(seconds);
  const miss = missOf(foretold, says);
  const model = was === now ? "the model says the same" : `the model says ${now}${miss ? `, ${miss.words} ${miss.by > 0 ? "more" : "less"}` : ""}`;
  const end = `${real.run.over ? "As it really ran:" : "So far it has really run for"} ${was}; ${model}.`;
  const figure = headline(differing);
  if (figure === "makespan" || numbers[figure] === null) return end;
  const what = figure === "gap" ? "longest wait for a next token" : "median wait for a first token";
  return `${end} Its ${what} was ${duration(numbers[figure])}; the model says ${duration(says[figure])}.`;
}

/** Whether it is known how far the predictions are to be trusted. @param {Real} real @param {Run} twin */
export function isMissKnown(real, twin) {
  return missOf(foretoldOf(real), numbersOf(twin)) !== null;
}

/** How far they are. @param {Real} real @param {Run} twin */
export function missWords(real, twin) {
  const miss = missOf(foretoldOf(real), numbersOf(twin));
  if (miss) return `The model misses ${real.name}’s own run by ${miss.words}.`;
  const { cut, lost, gated } = real.run;
  const why = cut ? ", as the recording does not reach back to its beginning" : lost ? ", as events of it are missing" : gated ? ", as that was held by hand" : "";
  return `By how much the model misses ${real.name}’s own run is not known${why}.`;
}
