/**
 * The permalink: the address says what is looked at, so that the same address opens it again: the engine and its
 * epoch, the step shown, what is chosen and compared, and how the axis stands. Live with nothing chosen there is
 * nothing to say, but for an engine that was chosen.
 *
 * @import {Axis, Choice, Loop, Selection, View} from "./types.js"
 *
 * @typedef {Object} Place
 * @property {string} engine
 * @property {string | null} epoch       null: whichever it lives in
 * @property {number | null} step        null: live
 * @property {boolean} settled           after what the engine said of the step, too
 * @property {Choice | null} choice   a step is named by its number here
 * @property {number | null} a           step that the chosen one is compared with
 * @property {boolean} gaps              the Latency panel shows gaps
 * @property {number | null} right       step at the right edge of the axis
 * @property {number | null} px          width of a step on the axis
 * @property {number | null} pxs         of a second, in time
 */

import { epochAt } from "./history.js";

/** @param {View} view @returns {string} "#…", or "" when there is nothing to say */
export function hashOf({ engine, history, store, choice, axis, page }) {
  const { held } = store;
  if (!engine?.epoch || !history || (held === null && choice === null)) {
    return store.chosen === null ? "" : `#${new URLSearchParams({ engine: store.chosen })}`;
  }
  const epoch = epochAt(history, held?.column ?? history.last);
  const fields = new URLSearchParams({ engine: engine.id, epoch: epoch.id ?? "" });
  if (held) {
    fields.set("step", String(held.column - epoch.base));
    if (Number.isInteger(held.until)) fields.set("settled", "1");
    fields.set("right", String(Math.round(axis.right) - epoch.base));
  }
  if (choice) fields.set("choose", `${choice.kind}:${choice.kind === "step" ? choice.column - epoch.base : choice.id}`);
  if (page.compare.a !== null && page.compare.a >= epoch.base) fields.set("a", String(page.compare.a - epoch.base));
  if (page.latency?.view === "gaps") fields.set("latency", "gaps");
  if (axis.timed && axis.scaleChosen) fields.set("pxs", String(Math.round(axis.scale * 1e6)));
  else if (!axis.timed && axis.chosen) fields.set("px", String(axis.px));
  return `#${fields.toString().replaceAll("%3A", ":")}`;
}

/** @param {string} hash @returns {Place | null} null when it is not one of ours */
export function placeOf(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const engine = fields.get("engine");
  const epoch = fields.get("epoch");
  if (!engine) return null;
  return {
    engine,
    epoch,
    step: whole(fields.get("step")),
    settled: fields.get("settled") === "1",
    choice: choiceOf(fields.get("choose") ?? ""),
    a: whole(fields.get("a")),
    gaps: fields.get("latency") === "gaps",
    right: whole(fields.get("right")),
    px: whole(fields.get("px")),
    pxs: whole(fields.get("pxs")),
  };
}

/** @param {string} text @returns {Choice | null} */
function choiceOf(text) {
  const at = text.indexOf(":");
  const [kind, name] = [text.slice(0, at), text.slice(at + 1)];
  const number = whole(name);
  if (kind === "request" && name) return { kind, id: name };
  if (kind === "block" && number !== null) return { kind, id: number };
  if (kind === "step" && number !== null) return { kind, column: number };
  return null;
}

/** @param {string | null} text */
function whole(text) {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

/**
 * Keep the address up to date, and go where it points when it is opened or changed.
 * @param {{loop: Loop, selection: Selection, axis: Axis, compare: import("./step_pair.js").StepPair, travel: import("./travel.js").Travel,
 *   view: () => View, say: (text: string) => void, goLive: () => void, showEngine: (id: string) => void, showGaps: () => void}} page
 */
export function mountPermalink({ loop, selection, axis, compare, travel, view, say, goLive, showEngine, showGaps }) {
  let wanted = placeOf(location.hash);
  /** Whether its engine is on show already: should another one be there then, a person chose it, and the place is let go. */
  let met = false;
  let written = location.hash;

  /** Go there; once something is known of the engine. @param {Place} place */
  function open(place) {
    const { engine, history, last } = view();
    if (place.epoch === null) return; // it is on show already
    const epoch = history?.epochs.find(({ id }) => id === place.epoch);
    if (place.engine !== engine?.id || !epoch) {
      say("That address is of an engine that has ended; this is the one that runs now.");
      return;
    }
    const { base } = epoch;
    /** @type {Choice | null} */
    const choice = place.choice?.kind === "step" ? { kind: "step", column: base + place.choice.column } : place.choice;
    selection.clear();
    if (choice) selection.set(choice);
    compare.put(place.a === null ? null : base + place.a);
    if (place.gaps) showGaps();
    if (place.step === null) {
      goLive();
      return;
    }
    axis.place(base + Math.min(place.right ?? place.step + 1, last + 1 - base), place.px, place.pxs);
    travel.goTo(base + place.step, place.settled);
  }

  window.addEventListener("hashchange", () => {
    const place = placeOf(location.hash);
    if (place === null || location.hash === written) return;
    written = location.hash;
    wanted = place;
    met = false;
    loop.invalidateNow();
  });
  loop.add({
    id: "permalink",
    visible: true,
    refresh(now) {
      const { name, engines } = now.store;
      if (met && wanted && wanted.engine !== name) wanted = null;
      const place = wanted;
      if (place && place.engine !== name && (place.epoch === null || engines.has(place.engine))) {
        met = true;
        if (place.epoch === null) wanted = null; // it may never come
        showEngine(place.engine);
        return;
      }
      met = place?.engine === name;
      if (!now.engine?.state) return;
      if (place) {
        wanted = null;
        open(place);
        return;
      }
      const hash = hashOf(now);
      if (hash === written) return;
      written = hash;
      window.history.replaceState(null, "", hash || location.pathname + location.search);
    },
  });
}
