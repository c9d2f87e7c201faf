/**
 * The stage reset: one button that asks back in its own place. The second press does it, if it comes soon; anything else
 * takes the question back.
 */

import { resetStage } from "../controls.js";
import { plural } from "../format.js";

const PATIENCE_MS = 8000;

/** @param {{view: () => any}} page */
export function mountReset({ view }) {
  const root = document.getElementById("stage-reset");
  const button = root.querySelector("button");
  const words = root.querySelector("[data-reset-words]");
  const error = root.querySelector(".error");
  const plain = { button: button.textContent, words: words.textContent };
  let timer = 0;

  function show(asking) {
    clearTimeout(timer);
    button.toggleAttribute("data-asking", asking);
    button.textContent = asking ? "Really reset?" : plain.button;
    words.textContent = asking ? askingWords(view().engine?.state) : plain.words;
    if (asking) timer = setTimeout(() => show(false), PATIENCE_MS);
  }
  button.addEventListener("click", async () => {
    if (!button.hasAttribute("data-asking")) return show(true);
    show(false);
    error.textContent = await resetStage();
  });
  button.addEventListener("blur", () => show(false));
  button.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    show(false);
  });
}

function askingWords(state) {
  const live = state ? state.queues.running.length + state.queues.waiting.length : 0;
  return `Press again: ${live ? `${plural(live, "request")} will be cancelled` : "no request is live"}, and history goes for everybody who watches.`;
}
