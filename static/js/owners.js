/**
 * Colour by owner: a mode in which slots and KV pages are coloured by the request that a mark belongs to. Phase then is
 * shape and pattern alone: blocks and dots, solid and dotted. There are eight hues, given in turn by a request's number;
 * one that another request has, which runs or will be back, is passed over while there are others. A request keeps its
 * hue. With more of them its name beside the mark says which of those with one hue it is.
 *
 * @import {State} from "./types.js"
 */

import { keepSetting, setting } from "./address.js";
import { headLabel } from "./dom.js";

export const OWNER_HUES = 8;
const PANELS = ["slots", "kv"];
const TITLE = `Hue says whose it is: ${OWNER_HUES} hues in turn, by the request's number; those that run at once differ while there are hues left. Phase is shape: block and dot, solid and dotted. C changes it back.`;

/** So many requests' hues are remembered. */
const KEPT = 4096;
/** Hues given, oldest first. @type {Map<string, number>} */
const given = new Map();

/** Give hues to requests that run and have none yet. @param {Pick<State, "queues" | "requests">} state */
export function giveHues({ queues, requests }) {
  if (queues.running.every((id) => given.has(id))) return;
  const back = queues.waiting.filter((id) => requests[id].num_preemptions > 0);
  const taken = new Set([...queues.running, ...back].map((id) => given.get(id)));
  for (const id of queues.running) {
    if (given.has(id)) continue;
    const first = turnOf(id);
    let hue = first;
    while (taken.has(hue) && (hue + 1) % OWNER_HUES !== first) hue = (hue + 1) % OWNER_HUES;
    if (taken.has(hue)) hue = first; // all are taken
    taken.add(hue);
    given.set(id, hue);
    if (given.size > KEPT) given.delete(given.keys().next().value ?? "");
  }
}

/** Requests are numbered anew. */
export function forgetHues() {
  given.clear();
}

/** @param {string} id of a request @returns {number} 0 … OWNER_HUES − 1 */
export function ownerHue(id) {
  return given.get(id) ?? turnOf(id);
}

/** @param {string} id */
function turnOf(id) {
  const number = /^R([1-9]\d*)$/.exec(id)?.[1];
  if (number) return (Number(number) - 1) % OWNER_HUES;
  let sum = 0;
  for (let i = 0; i < id.length; i += 1) sum = (31 * sum + id.charCodeAt(i)) % 65_521;
  return sum % OWNER_HUES;
}

/**
 * What a request's blocks are filled with: prompt tokens, generated ones, and the outline of either.
 * @param {string} id @param {{byOwner: boolean, palette: import("./palette.js").Palette}} view
 */
export function blockInks(id, { byOwner, palette }) {
  if (!byOwner) return { prompt: palette.prefill, answer: palette.hatch.answer, promptLine: palette.prefill, answerLine: palette.decode };
  const hue = ownerHue(id);
  const own = palette.owners[hue];
  return { prompt: own, answer: palette.ownerDots[hue], promptLine: own, answerLine: own };
}

/** @param {{loop: import("./render.js").Loop}} page @param {HTMLElement} button shows whether it is on */
export function mountOwners({ loop }, button) {
  const labels = PANELS.map((panel) => headLabel(panel, "colour: request", TITLE));
  const mode = {
    on: setting("colour") === "owner",
    toggle() {
      mode.on = !mode.on;
      keepSetting("colour", mode.on ? "owner" : null);
      show();
      loop.invalidateNow();
    },
  };
  function show() {
    document.documentElement.dataset.colour = mode.on ? "owner" : "phase";
    button.setAttribute("aria-pressed", String(mode.on));
    for (const label of labels) label.hidden = !mode.on;
  }
  show();
  return mode;
}
