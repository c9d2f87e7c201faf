/**
 * What the page writes of two runs beside the verdict: each side's figure, the table, and how both came about. Pure.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Numbers} from "./compare_numbers.js"
 *
 * @typedef {{a: Numbers | null, b: Numbers | null}} Both
 */

import { startOf } from "./compare_run.js";
import { howRun, numbersOf, seconds, share } from "./compare_numbers.js";
import { count, duration, milliseconds, NONE, percent, plural, rate } from "./format.js";

/** What may stand large on a side. */
/** @type {Record<"makespan" | "gap" | "ttft", {words: string, show: (n: Numbers) => string}>} */
export const FIGURES = {
  makespan: { words: "until all had finished", show: (n) => seconds(n.makespan) },
  gap: { words: "longest wait for a next token", show: (n) => duration(n.gap) },
  ttft: { words: "median wait for a first token", show: (n) => duration(n.ttft) },
};

/** @type {Array<[string, (n: Numbers) => string, (keyof Numbers)?]>} */
const ROWS = [
  ["requests finished", (n) => `${count(n.finished)} of ${count(n.requests)}`],
  ["time until all had finished, s", (n) => (n.makespan === null ? NONE : (n.makespan / 1e6).toFixed(2)), "makespan"],
  ["output tok/s", (n) => rate(n.rate), "rate"],
  ["TTFT p50, ms", (n) => milliseconds(n.ttft), "ttft"],
  ["TPOT p50, ms", (n) => milliseconds(n.tpot), "tpot"],
  ["longest gap between tokens, ms", (n) => milliseconds(n.gap), "gap"],
  ["slot occupancy", (n) => percent(n.occupancy), "occupancy"],
  ["steps", (n) => count(n.steps), "steps"],
  ["output tokens", (n) => count(n.outputTokens), "outputTokens"],
  ["prompt tokens computed", (n) => count(n.prefillTokens), "prefillTokens"],
  ["prompt tokens from the cache", (n) => count(n.cached)],
  ["preemptions", (n) => count(n.preemptions)],
];

/** @param {Both} numbers @param {Both} fair what is compared @param {boolean} comparable @returns {import("./table.js").Twin} */
export function twin(numbers, fair, comparable) {
  const cell = (/** @type {Numbers | null} */ each, /** @type {(n: Numbers) => string} */ of) => (each ? of(each) : NONE);
  /** @type {Array<[string, Numbers | null]>} */
  const every = [["A", numbers.a], ["A predicted", fair.a], ["B", numbers.b], ["B predicted", fair.b]];
  const columns = every.filter(([name, each]) => name.length === 1 || ![numbers.a, numbers.b].includes(each));
  const ratio = (/** @type {keyof Numbers | undefined} */ name) => {
    const [a, b] = name ? [fair.a?.[name], fair.b?.[name] ?? null] : [null, null];
    return comparable && a && b !== null ? share(b / a) : NONE;
  };
  return {
    columns: ["", ...columns.map(([name]) => name), columns.length > 2 ? "B ÷ A, like with like" : "B ÷ A"],
    rows: ROWS.map(([words, of, name]) => ({ cells: [words, ...columns.map(([, each]) => cell(each, of)), ratio(name)] })),
  };
}

/**
 * The numbers of a run that took place, as they are predicted beside its ghost.
 * @param {Run | null} a @param {Run | null} b @returns {Partial<Both>}
 */
export function predicted(a, b) {
  if (b?.twin && isGhostOf(b, a)) return { a: numbersOf(b.twin) };
  return a?.twin && isGhostOf(a, b) ? { b: numbersOf(a.twin) } : {};
}

/** "last run: 4 requests, 05:17": whether it is the run one means. @param {Run} run */
export function lastWords(run) {
  if (run.cut) return "last run";
  const began = new Date((startOf(run) + run.hello.clock_unix_us) / 1000);
  const clock = [began.getHours(), began.getMinutes()].map((n) => String(n).padStart(2, "0")).join(":");
  return `last run: ${plural(run.arrivals.length, "request")}, ${clock}`;
}

/** What to do about a side that is empty, while the other one is not. @param {string} name */
export function nextWords(name) {
  return `Now ${name}: turn a knob on the engine’s page, send the same requests again, and take that run as ${name}; or open a recording here.`;
}

/** Why the groups of static batching leave slots empty while somebody waits; "" when they do not. @param {Run} run */
export function groupWords({ config, steps }) {
  if (config.batching !== "static") return "";
  const largest = Math.max(0, ...steps.map(({ rows, skipped }) => rows.length + skipped.length));
  const short = steps.some(({ waiting }) => waiting.some(({ code }) => code === "blocks_short"));
  if (!short || largest >= config.max_num_seqs) return "";
  return `Groups of ${largest} in ${plural(config.max_num_seqs, "slot")}: each request is given the blocks of its longest possible answer, and the ${plural(config.num_blocks, "block")} hold no more.`;
}

/** How both came about, and what in it is not the mode's doing. @param {Run} a @param {Run} b @param {{a: Numbers, b: Numbers}} numbers @param {{a: Numbers, b: Numbers}} fair */
export function howWords(a, b, numbers, fair) {
  const virtual = [a, b].filter(isVirtual).length;
  if (virtual === 2) return "Both are simulated, in virtual time: the scheduler decides as it would, each step takes what a cost model says. Aligned at t = 0.";
  if (virtual === 0) return `${howRun(a, b)} Measured once each: small differences may be the machine’s doing.${luckWords(numbers)}`;
  const [ghost, real] = isVirtual(a) ? ["A", "B"] : ["B", "A"];
  if (!isGhostOf(a, b) && !isGhostOf(b, a)) return `${ghost} is simulated, in virtual time; ${real} took place. Aligned at t = 0.`;
  const [then, was] = [fair, numbers].map((each) => (real === "A" ? each.a : each.b));
  const alike = then === was ? "" : ` To compare like with like, ${real} is predicted too: ${seconds(then.makespan)}, where it took ${seconds(was.makespan)}.`;
  return `${ghost} is a ghost: ${real}’s arrivals, replayed in virtual time. Its schedule is exact; the length of its steps is predicted from the engine’s own.${alike} Aligned at t = 0.`;
}

/** @param {{a: Numbers, b: Numbers}} numbers */
function luckWords({ a, b }) {
  const more = b.cached - a.cached;
  return more ? ` ${more > 0 ? "B" : "A"} found ${count(Math.abs(more))} more prompt tokens in the prefix cache.` : "";
}

/** What a replay's epoch ends with. */
const SUFFIX = "-simulated";

/** Whether nothing ran: a scripted engine is simulated too, but takes its time. @param {Run} run */
function isVirtual({ hello }) {
  return replayedEpoch(hello) !== null;
}

/** Whether these are a run's own arrivals, replayed. @param {Run} ghost @param {Run | null} run */
function isGhostOf(ghost, run) {
  return run !== null && replayedEpoch(ghost.hello) === run.hello.epoch && startOf(ghost) === startOf(run);
}

/** Whose arrivals a replay replays; older recordings say it only by their own epoch's name. @param {Run["hello"]} hello @returns {string | null} */
function replayedEpoch({ replay_of: of, epoch }) {
  return of ?? (epoch.endsWith(SUFFIX) ? epoch.slice(0, -SUFFIX.length) : null);
}
