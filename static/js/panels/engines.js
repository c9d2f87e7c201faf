/**
 * The picker: which of several engines the page shows; away while there is one alone. One that was chosen stays chosen,
 * and listed, also when it is not there.
 *
 * @import {Engine, Page, Store, View} from "../types.js"
 *
 * @typedef {{id: string, text: string}} Offer
 */

import { byId, find, show, write } from "../dom.js";
import { statusWords } from "../format.js";
import { withQuery } from "../query.js";

/** @param {Page} page */
export function mountEngines(page) {
  const form = byId("engines", HTMLFormElement);
  const picker = find(form, "select", HTMLSelectElement);
  const compare = byId("compare-open", HTMLAnchorElement);
  picker.addEventListener("change", () => page.showEngine(picker.value));
  form.addEventListener("submit", (event) => event.preventDefault());

  /** @param {View} view */
  function draw({ store }) {
    if (!store.frames) return; // what the server wrote is all that is known
    const offered = offers(store);
    show(form, offered.length > 1);
    if (offered.length < 2) return;
    fill(picker, offered);
    if (picker.value !== store.name) picker.value = store.name;
    const href = withQuery("/compare", { engine: store.name });
    if (compare.getAttribute("href") !== href) compare.href = href;
  }
  page.loop.add({ id: "engines", visible: true, draw });
}

/** What can be chosen: name, model, status. @param {Pick<Store, "engines" | "name">} store @returns {Offer[]} */
export function offers({ engines, name }) {
  const offered = [...engines.values()].map((engine) => ({ id: engine.id, text: words(engine) }));
  if (name && !engines.has(name)) offered.push({ id: name, text: `${name} · not connected` });
  return offered;
}

/** @param {Engine} engine */
function words({ id, hello, about }) {
  return `${id} · ${hello?.model.name ?? "no model yet"} · ${statusWords(about.status)}`;
}

/** Options are changed in place, for the list may be open. @param {HTMLSelectElement} picker @param {Offer[]} offered */
function fill(picker, offered) {
  while (picker.options.length > offered.length) picker.remove(offered.length);
  offered.forEach(({ id, text }, i) => {
    const option = picker.options[i] ?? picker.appendChild(new Option());
    if (option.value !== id) option.value = id;
    write(option, text);
  });
}
