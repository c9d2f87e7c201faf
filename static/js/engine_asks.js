/**
 * What panels ask of the engine on show that show the answer, or a refusal, themselves.
 */

import { ask, ofEngine } from "./controls.js";

/** Any of the gate's actions, for those who show a refusal themselves. @param {Object<string, any>} body */
export function askGate(body) {
  return ask(ofEngine("/api/gate"), { method: "POST", body: JSON.stringify(body) });
}

/** @param {Object<string, any>} changes setting -> value */
export function turnKnobs(changes, force = false) {
  return ask(ofEngine("/api/config"), { method: "PATCH", body: JSON.stringify({ ...changes, force }) });
}

/** How a change of each setting would take effect; empty when that cannot be had. @returns {Promise<Object<string, string>>} */
export async function knobEffects() {
  const { body } = await ask(ofEngine("/api/config"), { method: "GET" });
  return body?.effects ?? {};
}

/** @returns {Promise<string>} why it was not done, or "" */
export async function resetStage() {
  return (await ask(ofEngine("/api/engine"), { method: "POST", body: JSON.stringify({ action: "reset", force: true }) })).message;
}

/** A request's timings, the app's own share included; null when they cannot be had. @param {string} id */
export async function requestTimings(id) {
  const { body } = await ask(`/api/requests/${encodeURIComponent(id)}`, { method: "GET" });
  return body?.timings ?? null;
}
