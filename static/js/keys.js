/**
 * Keys, never inside inputs, which Esc leaves. The view: Space holds it, L live, ←/→ step, , . events, + − zoom, / find,
 * Esc clears the choice, digits go to panels. Its look: T theme, P presenter, F full screen, C colour by request, X steps or time. The engine: G gate, S step, M mark.
 * D compares steps, E exports, ? helps. What `does` lacks, a key does not do.
 */

import { findAll } from "./dom.js";

/** @param {Object<string, any>} does */
export function mountKeys(does) {
  const panels = findAll(document, "[data-key]");
  const panelOf = (/** @type {string | undefined} */ key) => panels.find((each) => each.dataset.key === key);
  for (const link of findAll(document, "[data-to]")) {
    const panel = panelOf(link.dataset.to);
    if (panel) link.addEventListener("click", () => goTo(panel));
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape" && !event.defaultPrevented && !event.isComposing) event.target.blur();
      return;
    }
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    /** @type {Object<string, (() => void) | null | undefined>} */
    const acts = {
      " ": does.toggleHold,
      l: does.live,
      ArrowLeft: () => does.walk(event.shiftKey ? -10 : -1),
      ArrowRight: () => does.walk(event.shiftKey ? 10 : 1),
      ",": () => does.jump(-1),
      ".": () => does.jump(1),
      "+": () => does.zoom(1.25),
      "=": () => does.zoom(1.25),
      "-": () => does.zoom(0.8),
      "/": does.find,
      d: does.compare,
      t: does.theme,
      p: does.present,
      f: does.full,
      c: does.owner,
      x: does.time,
      g: does.gate,
      s: does.step,
      m: does.mark,
      e: does.export,
      Escape: does.clear,
      "?": does.help,
    };
    const act = acts[key];
    const panel = /^[0-9]$/.test(key) ? panelOf(key) : null;
    if (!act && !panel) return;
    if (key === " " && event.target instanceof Element && event.target.closest("button, summary, a, [type=checkbox]")) return;
    event.preventDefault();
    if (panel) goTo(panel);
    else act?.();
  });
}

/** In a field, keys are the field's; on the scrubber and on a box to tick they are the page's. @param {EventTarget | null} target @returns {target is HTMLElement} */
function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input:not(#travel input, [type=checkbox]), textarea, select, [contenteditable], dialog[open]") !== null;
}

/** Where one types, into the text at once: what is typed would be keys of the page. @param {HTMLElement} panel */
function goTo(panel) {
  panel.scrollIntoView({ block: "nearest" });
  (panel.querySelector("textarea") ?? panel).focus({ preventScroll: true });
}
