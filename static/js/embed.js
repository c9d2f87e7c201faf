/**
 * A view of chosen panels alone (`/?panel=kv,slots`), for a slide: they fill the window, above one line that says what
 * engine it is, whether the view is live, and whether the gate is held. It has no controls of the engine: other sites may
 * frame it (app/embed.py), so nothing in it may move the engine, by a click or by a key.
 */

import { byId } from "./dom.js";

/** @returns {string[] | null} the panels of such a view; null if this is none */
export function mountEmbed() {
  const names = document.body.dataset.only?.split(" ");
  if (!names) return null;
  for (const name of names) byId(`panel-${name}`).classList.add("only");
  return names;
}
