/**
 * How the Latency panel is set: what it draws, and the targets. Remembered in this browser.
 *
 * @typedef {{view: "requests" | "gaps", ttft: string, tpot: string}} Settings targets in ms, as typed; "" is none
 */

import { keep, readKept } from "./kept.js";

const KEY = "stepscope.latency";
/** What people who read an answer as it comes put up with. */
const DEFAULTS = { view: "requests", ttft: "2000", tpot: "200" };

/** @returns {Settings} */
export function readSettings() {
  /** @type {Object<string, unknown>} */
  let kept = {};
  try {
    kept = JSON.parse(readKept(KEY) ?? "{}") ?? {};
  } catch {
    kept = {}; // written by something else
  }
  const text = (/** @type {"ttft" | "tpot"} */ name) => {
    const typed = kept[name];
    return typeof typed === "string" ? typed : DEFAULTS[name];
  };
  return { view: kept.view === "gaps" ? "gaps" : "requests", ttft: text("ttft"), tpot: text("tpot") };
}

/** @param {Settings} settings */
export function keepSettings({ view, ttft, tpot }) {
  keep(KEY, JSON.stringify({ view, ttft, tpot }));
}

/**
 * A target as typed. What cannot be one is said in words, and is none.
 * @param {string} text ms @param {string} words its name
 * @returns {{us: number | null, wrong: string | null}}
 */
export function targetOf(text, words) {
  if (text.trim() === "") return { us: null, wrong: null };
  const ms = Number(text);
  if (Number.isFinite(ms) && ms > 0) return { us: ms * 1000, wrong: null };
  return { us: null, wrong: `${words} is ${text}; it must be a number of ms above 0, or empty for no target.` };
}
