/**
 * Steps on a roofline, as METRICS defines them: FLOP and bytes derived from a step's shapes, over a time that was
 * measured; and the roofs that the engine measured on its device. Pure functions.
 *
 * @import {DeviceFacts, Hello, HelloFacts, History, Step, StepFacts} from "./types.js"
 *
 * @typedef {Object} Roofs
 * @property {number} flops per second
 * @property {number} bytesPerS
 * @property {number} ridge FLOP per byte from which on the arithmetic is the limit
 *
 * @typedef {Object} Point
 * @property {number} column
 * @property {Step} step
 * @property {"decode" | "prefill" | "mixed"} kind
 * @property {number} us what its work took
 * @property {string} phases which those are
 * @property {"host" | "device"} clock whose
 * @property {number} intensity FLOP per byte
 * @property {number} flops per second
 * @property {number} bytesPerS
 * @property {boolean} gated stepped by hand: its time is no measurement
 */

import { lastSteps } from "./history.js";
import { ridgeOf } from "./sums.js";

/** Steps in the trail. */
export const TRAIL = 60;

/** @param {Pick<HelloFacts, "device"> | null} hello @returns {Roofs | null} null when they were not measured */
export function roofsOf(hello) {
  const { peak_flops: flops, peak_bytes_per_s: bytesPerS } = hello?.device ?? {};
  return flops && bytesPerS ? { flops, bytesPerS, ridge: ridgeOf(flops, bytesPerS) } : null;
}

/** FLOP per second that the roofs allow at an intensity. @param {Pick<Roofs, "flops" | "bytesPerS">} roofs @param {number} intensity */
export function roofAt({ flops, bytesPerS }, intensity) {
  return Math.min(flops, bytesPerS * intensity);
}

/** How many measured points lie above the measured roof. @param {Pick<Point, "flops" | "intensity" | "gated">[]} points @param {Pick<Roofs, "flops" | "bytesPerS">} roofs */
export function countAbove(points, roofs) {
  return points.filter(({ flops, intensity, gated }) => !gated && flops > roofAt(roofs, intensity)).length;
}

/**
 * What the counted work took. A draft model's passes are counted, so its phase is too. A GPU is only asked to begin in
 * `forward`: by the host's clock the work is over when `sample` has the tokens.
 * @param {Pick<StepFacts, "phases_us" | "scopes">} step @param {Pick<DeviceFacts, "type">} device
 * @returns {Pick<Point, "us" | "phases" | "clock">}
 */
export function workOf({ phases_us: phases, scopes }, device) {
  const clock = scopes.forward === "device" ? "device" : "host";
  const asynchronous = device.type === "cuda" && clock === "host";
  const names = ["draft", "forward", ...(asynchronous ? ["sample"] : [])].filter((name) => phases[name]);
  const us = names.reduce((sum, name) => sum + phases[name], 0);
  return { us, phases: names.join(" + "), clock };
}

/** @param {Pick<StepFacts, "num_prefill_tokens" | "num_decode_tokens">} step @returns {Point["kind"]} */
export function kindOf({ num_prefill_tokens: prefill, num_decode_tokens: decode }) {
  return prefill === 0 ? "decode" : decode === 0 ? "prefill" : "mixed";
}

/** @param {number} column @param {Step} step @param {DeviceFacts} device @returns {Point | null} null for a step that computed nothing, or took no time */
export function pointOf(column, step, device) {
  const work = workOf(step, device);
  if (!(step.flops > 0 && step.bytes > 0 && work.us > 0)) return null;
  const perS = 1e6 / work.us;
  return { column, step, kind: kindOf(step), ...work, intensity: step.flops / step.bytes, flops: step.flops * perS, bytesPerS: step.bytes * perS, gated: step.gated };
}

/** The last points up to a column, newest first; of this engine only, since another's roofs are not known. @param {History} history @param {number} column @param {Hello} hello @returns {Point[]} */
export function trailOf(history, column, hello) {
  const own = lastSteps(history, column, TRAIL).filter(([, step]) => step.epoch === hello.epoch);
  return own.map(([at, step]) => pointOf(at, step, hello.device)).filter((point) => point !== null);
}
