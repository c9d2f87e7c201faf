/**
 * The stage reset: one button that asks back in its own place. The second press does it, if it comes soon; anything else
 * takes the question back.
 *
 * @import {State, View} from "../types.js"
 */

import { byId, find } from "../dom.js";
import { resetStage } from "../engine_asks.js";
import { plural } from "../format.js";

const PATIENCE_MS = 8000;

/** @param {{view: () => View}} page */
export function mountReset({ view }) {
  const root = byId("stage-reset");
  const button = find(root, "button");
  const words = find(root, "[data-reset-words]");
  const error = find(root, ".error");
  const plain = { button: button.textContent, words: words.textContent };
  let timer = 0;

  /** @param {boolean} asking */
  function show(asking) {
    clearTimeout(timer);
    button.toggleAttribute("data-asking", asking);
    button.textContent = asking ? "Really reset?" : plain.button;
    words.textContent = asking ? askingWords(view().engine?.state) : plain.words;
    if (asking) timer = setTimeout(() => show(false), PATIENCE_MS);
  }
  button.addEventListener("click", async () => {
    const asked = button.hasAttribute("data-asking");
    show(!asked);
    if (asked) error.textContent = await resetStage();
  });
  button.addEventListener("blur", () => show(false));
  button.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    show(false);
  });
}

/** @param {State | null | undefined} state */
function askingWords(state) {
  const live = state ? state.queues.running.length + state.queues.waiting.length : 0;
  return `Press again: ${live ? `${plural(live, "request")} will be cancelled` : "no request is live"}, and history goes for everybody who watches.`;
}
