/**
 * Targets, and which finished requests met them. Goodput is the share of finished requests that met both the TTFT and
 * the TPOT target. An answer of one token has no TPOT: its TTFT alone decides. An error met nothing. Cancelled requests
 * are left out, and so are those that the gate held. Pure.
 *
 * @import {Timings} from "./types.js"
 *
 * @typedef {{ttft_us: number | null, tpot_us: number | null}} Targets null: none
 * @typedef {{timings: Timings, reason: string | null}} Judged a finished request
 */

export const TARGET_RULES = "An answer of one token has no TPOT: its TTFT decides. Errors met nothing; cancelled and gated ones are left out.";

/** Whether a timing is over its target; what is undefined, or has no target, is not. @param {Pick<Judged, "timings">} sample @param {keyof Timings} name @param {Targets} targets */
export function isOver({ timings }, name, targets) {
  const limit = /** @type {Partial<Timings>} */ (targets)[name] ?? null;
  const us = timings[name];
  return limit !== null && us !== null && us > limit;
}

/** Whether a finished request met both targets; null when it is left out. @param {Judged} sample @param {Targets} targets @returns {boolean | null} */
export function metBoth(sample, targets) {
  if (sample.reason === "abort" || sample.timings.gated_us > 0) return null;
  if (sample.reason === "error") return false;
  return !isOver(sample, "ttft_us", targets) && !isOver(sample, "tpot_us", targets);
}

/**
 * @param {Judged[]} finished
 * @param {Targets} targets
 * @returns {{met: number, n: number, share: number | null}} share: null without a target or a request
 */
export function goodput(finished, targets) {
  const judged = finished.map((sample) => metBoth(sample, targets)).filter((met) => met !== null);
  const met = judged.filter(Boolean).length;
  const asked = targets.ttft_us !== null || targets.tpot_us !== null;
  return { met, n: judged.length, share: asked && judged.length ? met / judged.length : null };
}

/** "met", "TTFT over", "TTFT and TPOT over", "error"; "" when it is left out or nothing is asked. @param {Judged} sample @param {Targets} targets */
export function verdictWords(sample, targets) {
  const met = metBoth(sample, targets);
  if (met === null || (targets.ttft_us === null && targets.tpot_us === null)) return "";
  if (met) return "met";
  if (sample.reason === "error") return "error";
  const over = [isOver(sample, "ttft_us", targets) && "TTFT", isOver(sample, "tpot_us", targets) && "TPOT"];
  return `${over.filter(Boolean).join(" and ")} over`;
}
