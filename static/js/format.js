/**
 * Numbers and reasons as words. One spelling of each, used by panels, table twins and canvases alike.
 * Undefined is null and prints as an en dash, never as 0.
 *
 * @import {WaitReason} from "./types.js"
 *
 * @typedef {number | null | undefined} Maybe
 */

export const NONE = "–";

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? NONE : whole.format(value);
}

/** A duration given in microseconds, in ms below ten seconds. @param {number | null | undefined} us */
export function duration(us) {
  if (us === null || us === undefined) return NONE;
  const ms = us / 1000;
  if (ms < 10) return `${ms.toFixed(ms < 1 ? 2 : 1)} ms`;
  if (ms < 10_000) return `${whole.format(ms)} ms`;
  return `${(ms / 1000).toFixed(1)} s`;
}

/** The same without its unit, in milliseconds: for tables and big figures. @param {Maybe} us */
export function milliseconds(us) {
  if (us === null || us === undefined) return NONE;
  const ms = us / 1000;
  return ms < 10 ? ms.toFixed(ms < 1 ? 2 : 1) : whole.format(ms);
}

/** @param {number | null | undefined} value tokens per second */
export function rate(value) {
  if (value === null || value === undefined) return NONE;
  return value > 0 && value < 10 ? value.toFixed(1) : whole.format(value);
}

/** A share of one as per cent. @param {Maybe} share */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  const value = share * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : whole.format(value)} %`;
}

/** "1 block", "4 blocks". @param {Maybe} n @param {string} word @param {string} words */
export function plural(n, word, words = `${word}s`) {
  return `${count(n)} ${n === 1 ? word : words}`;
}

/** How a request is called on the page: its id when that is short, else its end. @param {string} id */
export function requestName(id) {
  return id.length <= 8 ? id : `…${id.slice(-6)}`;
}

/** @type {Object<string, string>} */
const FINISH_WORDS = {
  stop: "stop",
  length: "length",
  abort: "cancelled",
  error: "error",
};

/** @type {Object<string, string>} */
const DETAIL_WORDS = {
  stop_string: "stop string",
  stop_token: "stop token",
  kv_capacity: "outgrew the KV pool",
  stage_reset: "the stage was reset",
};
/** Details that say no more than the reason does, and those that say it too. */
const PLAIN_DETAILS = new Set(["eos", "max_tokens"]);
const WHOLE_DETAILS = new Set(["stop_string", "stop_token"]);

/** "stop", "stop string", "length · outgrew the KV pool". @param {string | null} reason @param {string | null} detail */
export function finishWords(reason, detail) {
  if (detail && WHOLE_DETAILS.has(detail)) return DETAIL_WORDS[detail];
  const word = FINISH_WORDS[reason ?? ""] ?? reason ?? NONE;
  return detail && !PLAIN_DETAILS.has(detail) ? `${word} · ${DETAIL_WORDS[detail] ?? detail}` : word;
}

/**
 * Why a request waits, from the scheduler's own reason.
 * @param {WaitReason | null} reason @param {Object<string, {reason: WaitReason | null}>} [requests] what holds the others up
 * @returns {string}
 */
export function waitWords(reason, requests) {
  if (!reason) return "arrived since the last step";
  const by = reason.by ? requestName(reason.by) : "another request";
  switch (reason.code) {
    case "slots_full":
      return `all ${count(reason.limit)} slots are taken`;
    case "budget_spent":
      return `this step's ${count(reason.limit)}-token budget is spent`;
    case "blocks_short":
      return `needs ${plural(reason.needs, "block")} besides any cached for it, ${count(reason.free)} free${watermark(reason)}`;
    case "prefix_pending":
      return `${by} is computing its prefix right now`;
    case "group_running":
      return `the group before it still runs, ${count(reason.limit)} left`;
    case "after_preemption":
      return "this step preempted somebody, so it admits nobody";
    case "behind_head":
      return `behind ${by}${blockedWords(requests?.[reason.by ?? ""]?.reason)}`;
    case "gate_held":
      return "the engine is paused";
    default:
      return reason.code;
  }
}

/** @param {WaitReason | null | undefined} reason the head's own, if it is known */
function blockedWords(reason) {
  return reason && reason.code !== "behind_head" ? `: ${waitWords(reason)}` : ", which is blocked";
}

/** @param {WaitReason} reason */
function watermark(reason) {
  return reason.limit ? ` (${count(reason.limit)} kept back)` : "";
}

/** @type {Object<string, string>} */
const ENDED_WORDS = {
  all_scheduled: "nobody was left to schedule",
  budget_spent: "the token budget was spent",
  slots_full: "all slots were taken",
  blocks_short: "blocks were short",
  prefix_pending: "the next one's prefix was being computed",
  after_preemption: "it had to preempt",
  group_running: "the group before has to finish first",
};

/** What ended a step's scheduling. @param {string} code */
export function endedWords(code) {
  return ENDED_WORDS[code] ?? code;
}

/** @type {Object<string, string>} */
const STATUS_WORDS = {
  starting: "starting",
  loading: "loading",
  ready: "ready",
  paused: "paused",
  silent: "silent",
  gone: "gone",
};

/** @param {string | null} status */
export function statusWords(status) {
  return STATUS_WORDS[status ?? ""] ?? status ?? "unknown";
}
