/**
 * What the page writes of two runs beside the verdict: each side's figure, the table, and how both came about. Pure.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Numbers} from "./compare_numbers.js"
 * @import {Real} from "./compare_predicted.js"
 *
 * @typedef {{a: Numbers | null, b: Numbers | null}} Both
 */

import { startOf } from "./compare_run.js";
import { howRun, numbersOf, seconds, share } from "./compare_numbers.js";
import { isGhostOf, isPartial, isVirtual, missWords } from "./compare_predicted.js";
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

/**
 * @param {Both} numbers @param {boolean} comparable @param {string} far how far their times reach; "" to their ends
 * @param {{title: string, numbers: Numbers} | null} [really] a run that took place, beside the predictions
 * @returns {import("./table.js").Twin}
 */
export function twin(numbers, comparable, far, really = null) {
  const cell = (/** @type {Numbers | null} */ each, /** @type {(n: Numbers) => string} */ of) => (each ? of(each) : NONE);
  const ratio = (/** @type {keyof Numbers | undefined} */ name) => {
    const [a, b] = name ? [numbers.a?.[name], numbers.b?.[name] ?? null] : [null, null];
    return comparable && a && b !== null ? share(b / a) : NONE;
  };
  return {
    columns: ["", "A", "B", "B ÷ A", ...(really ? [really.title] : [])],
    rows: ROWS.map(([words, of, name]) => ({
      cells: [far && name === "makespan" ? `time ${far}, s` : words, cell(numbers.a, of), cell(numbers.b, of), ratio(name), ...(really ? [of(really.numbers)] : [])],
    })),
  };
}

/** The table's column of what took place. @param {Real | null} real */
export function reallyColumn(real) {
  if (!real) return null;
  const { name, run } = real;
  // Of one whose end was never heard nobody knows whether it goes on.
  const really = run.over || run.lost ? "ran" : "runs, so far";
  return { title: `${name} as it really ${really}${isPartial(run) ? ", incomplete" : ""}${run.gated ? ", held by hand" : ""}`, numbers: numbersOf(run) };
}

/** How far the numbers reach of a run whose end is not among them. Of one that was lost nobody knows whether it goes on. @param {Run} run */
export function farWords({ lost }) {
  return lost ? "as far as is known" : "so far";
}

/** "last run: 4 requests, 05:17": whether it is the run one means. @param {Run} run */
export function lastWords(run) {
  if (run.cut) return "last run";
  const began = new Date((startOf(run) + run.hello.clock_unix_us) / 1000);
  const clock = [began.getHours(), began.getMinutes()].map((n) => String(n).padStart(2, "0")).join(":");
  return `last run: ${plural(run.arrivals.length, "request")}, ${clock}`;
}

/** What to do about a side that is empty. @param {string} name @param {boolean} alone whether the other one is not */
export function nextWords(name, alone) {
  const now = `press Simulate for what another mode would have made of the engine’s last run`;
  if (!alone) return `Nothing yet: take the engine’s last run, open a recording, or drop one here; or ${now}.`;
  return `Now ${name}: ${now}; or turn a knob on the engine’s page, send the same requests again, and take that run as ${name}; or open a recording here.`;
}

/** Why the groups of static batching leave slots empty while somebody waits; "" when they do not. @param {Run} run */
export function groupWords({ config, steps }) {
  if (config.batching !== "static") return "";
  const largest = Math.max(0, ...steps.map(({ rows, skipped }) => rows.length + skipped.length));
  const short = steps.some(({ waiting }) => waiting.some(({ code }) => code === "blocks_short"));
  if (!short || largest >= config.max_num_seqs) return "";
  return `Groups of ${largest} in ${plural(config.max_num_seqs, "slot")}: each request is given the blocks of its longest possible answer, and the ${plural(config.num_blocks, "block")} hold no more.`;
}

/** How both came about, and what in it is not the mode's doing. @param {Run} a @param {Run} b as shown @param {Real | null} real */
export function howWords(a, b, real) {
  if (real) {
    const { name } = real;
    return `Both are simulated: ${name}’s arrivals, replayed in virtual time under each mode. The schedules are exact; the lengths of steps are predicted from the engine’s own. ${missWords(real, name === "A" ? a : b)} Aligned at t = 0.`;
  }
  const virtual = [a, b].filter(isVirtual).length;
  if (virtual === 2) return "Both are simulated, in virtual time: the scheduler decides as it would, each step takes what a cost model says. Aligned at t = 0.";
  if (virtual === 0) return `${howRun(a, b)} Measured once each: small differences may be the machine’s doing.${luckWords(numbersOf(a), numbersOf(b))}`;
  const [ghost, took] = isVirtual(a) ? ["A", "B"] : ["B", "A"];
  const of = isGhostOf(a, b) || isGhostOf(b, a) ? `: ${took}’s arrivals, replayed` : "";
  return `${ghost} is simulated${of}, in virtual time; ${took} took place. What the model misses is in the difference too. Aligned at t = 0.`;
}

/** @param {Numbers} a @param {Numbers} b */
function luckWords(a, b) {
  const more = b.cached - a.cached;
  return more ? ` ${more > 0 ? "B" : "A"} found ${count(Math.abs(more))} more prompt tokens in the prefix cache.` : "";
}
