/**
 * The banner: what is wrong with the engine or the line to it, in one sentence, and the way out. It also shows how
 * far loading is. Nothing when all is well.
 *
 * @import {LoadEvent, Page, View} from "../types.js"
 *
 * @typedef {{tone: "fault" | "note", title: string, text: string, restart?: boolean, share?: number | null}} Said
 */

import { count, percent } from "../format.js";
import { restartEngine } from "../controls.js";
import { byId, find, show } from "../dom.js";

/** @param {Pick<Page, "loop">} page */
export function mountBanner(page) {
  const root = byId("banner");
  const title = find(root, "strong");
  const text = find(root, "span");
  const bar = find(root, "progress");
  const restart = find(root, "button[data-restart]", HTMLButtonElement);
  restart.addEventListener("click", () => restartEngine(restart));
  page.loop.add({
    id: "banner",
    visible: true,
    draw(view) {
      const said = sentence(view);
      show(root, said !== null);
      if (said === null) return;
      root.dataset.tone = said.tone;
      if (title.textContent !== said.title) title.textContent = said.title;
      if (text.textContent !== said.text) text.textContent = said.text;
      restart.hidden = !said.restart;
      bar.hidden = said.share === undefined;
      if (said.share === null) bar.removeAttribute("value");
      else if (said.share !== undefined) bar.value = said.share;
    },
  });
}

/** @param {View} view @returns {Said | null} */
function sentence({ store, engine }) {
  if (store.strangeVersion !== null) {
    return { tone: "fault", title: "This page is too old.", text: `The engine speaks version ${store.strangeVersion} of the events. Reload the page.` };
  }
  if (store.connection === "stale") {
    return { tone: "fault", title: "Connection lost.", text: "What you see is from before. Trying again; your drafts are safe." };
  }
  if (!engine) return store.chosen === null ? null : { tone: "note", title: `Engine ${store.chosen} is not connected.`, text: "" };
  const { status, reason, detail, load, restartable } = engine.about;
  if (status === "gone") {
    return { tone: "fault", title: "The engine is gone.", text: [reason, detail].filter(Boolean).join(" "), restart: restartable !== false };
  }
  if (status === "silent") {
    return { tone: "fault", title: "The engine has gone silent.", text: reason ?? "Nothing has been heard from it.", restart: restartable !== false };
  }
  if (status === "loading" || status === "starting") return loadSentence(status, load);
  return null;
}

/** @param {string} status @param {LoadEvent | null} load @returns {Said} */
function loadSentence(status, load) {
  if (status === "starting" && !load) return { tone: "note", title: "The engine is starting.", text: "", share: null };
  const share = load?.total ? load.done / load.total : null;
  return { tone: "note", title: "Loading the model.", text: load ? loadWords(load, share) : "", share };
}

/** @param {LoadEvent} load @param {number | null} share */
function loadWords({ phase, done, total, unit }, share) {
  if (unit === "bytes") {
    const mib = (/** @type {number} */ bytes) => count(Math.round(bytes / 2 ** 20));
    return total ? `${phase}: ${mib(done)} of ${mib(total)} MiB (${percent(share)})` : `${phase}: ${mib(done)} MiB`;
  }
  return total ? `${phase}: ${count(done)} of ${count(total)} ${unit} (${percent(share)})` : phase;
}
