/**
 * What the page asks of the server besides prompts: the gate, knobs, a restart, a cancel. Forms keep working without
 * this; here their submit is taken over so that the page stays. A refusal is said in words. What is asked of an engine
 * goes to the one on show.
 *
 * @import {StepEvent} from "./types.js"
 * @import {Placed} from "./notes.js"
 */

import { byId } from "./dom.js";
import { withQuery } from "./query.js";

/**
 * @typedef {{ok: boolean, body: any, message: string, param: string | null}} Answer
 *          `message` says why not, `param` which field it is about
 */

/** The name of the engine on show; see mountControls. */
let nameOfEngine = () => "";

/** An address that is about the engine on show. @param {string} path */
export function ofEngine(path) {
  return withQuery(path, { engine: nameOfEngine() });
}

/** @param {string} url @param {RequestInit} options @returns {Promise<Answer>} */
export async function ask(url, options) {
  try {
    const response = await fetch(url, { headers: { "Content-Type": "application/json" }, ...options });
    const body = await response.json().catch(() => null);
    if (response.ok) return { ok: true, body, message: "", param: null };
    return { ok: false, body, message: body?.error?.message ?? `The server answered ${response.status}.`, param: body?.error?.param ?? null };
  } catch {
    return { ok: false, body: null, message: "The server cannot be reached.", param: null };
  }
}

/** The same, where a refusal has no place of its own on the page. @param {string} url @param {RequestInit} options @returns {Promise<boolean>} whether it was done */
async function askAloud(url, options) {
  const { ok, message } = await ask(url, options);
  if (!ok) say(message);
  return ok;
}

/** A sentence for the person, read out too, gone after a while. @param {string} text */
export function say(text) {
  const note = byId("note");
  note.textContent = text;
  note.hidden = false;
  clearTimeout(Number(note.dataset.timer));
  note.dataset.timer = String(setTimeout(() => (note.hidden = true), 6000));
}

/** @param {"pause" | "run" | "step"} action */
export function moveGate(action, steps = 1) {
  return askAloud(ofEngine("/api/gate"), { method: "POST", body: JSON.stringify({ action, steps }) });
}

/** @param {HTMLButtonElement} button kept from being pressed twice */
export async function restartEngine(button) {
  button.disabled = true;
  if (await askAloud(ofEngine("/api/engine"), { method: "POST", body: JSON.stringify({ action: "restart", force: true }) })) say("Restarting the engine.");
  button.disabled = false;
}

/** Words at this step, for everybody. @param {string} text @returns {Promise<string>} why not, or "" */
export async function setMark(text) {
  return (await ask(ofEngine("/api/marks"), { method: "POST", body: JSON.stringify({ text }) })).message;
}

/** Have the browser download what the server remembers of an engine. @param {string} engine */
export function exportRecording(engine) {
  const link = document.createElement("a");
  link.href = withQuery("/api/recording", { engine });
  link.download = "";
  link.click();
}

/** @param {string} id */
export function cancelRequest(id) {
  return askAloud(`/api/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Take over the gate's form. @param {{goLive: () => void, store: {readonly name: string}}} page */
export function mountControls({ goLive, store }) {
  nameOfEngine = () => store.name;
  foldGate();
  byId("gate").addEventListener("submit", (event) => {
    event.preventDefault();
    const action = event.submitter instanceof HTMLButtonElement ? event.submitter.value : "";
    if (!isMove(action)) return;
    if (action !== "pause") goLive();
    moveGate(action);
  });
}

/** On a phone, which is an audience's, the gate is folded away. */
function foldGate() {
  const narrow = window.matchMedia("(max-width: 699px)");
  const fold = () => (byId("speaker", HTMLDetailsElement).open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
}

/** @param {string} text @returns {text is "pause" | "run" | "step"} */
function isMove(text) {
  return ["pause", "run", "step"].includes(text);
}

/**
 * Older steps for a page that was just opened; nothing when they cannot be had.
 * @param {string} engine @param {number} since @param {number} limit
 * @returns {Promise<{steps: StepEvent[], requests: Placed[]}>}
 */
export async function olderSteps(engine, since, limit) {
  const { body } = await ask(withQuery("/api/steps", { engine, since, limit }), { method: "GET" });
  return { steps: body?.steps ?? [], requests: body?.requests ?? [] };
}
