/**
 * Steps or time: whether columns are as wide as each other or as their steps took. Kept in the address (`?axis=time`);
 * what it means now stands in the heads of the panels that share the axis.
 *
 * @import {Axis, Loop, Plot, View} from "./types.js"
 */

import { keepSetting, setting } from "./address.js";
import { headLabel } from "./dom.js";

/** Those that share the axis; the first that is there leads. */
export const TIMED = ["slots", "timeline", "anatomy", "latency"];
const TITLE = "A column lies where its step lies in time, and is as wide as it took. Seconds count from the engine’s start, by its own clock. X changes it back.";

/**
 * @param {{axis: Axis, loop: Loop, view: () => View, plot: () => Plot}} page
 * @param {HTMLElement} button shows whether it is on
 */
export function mountTimeAxis({ axis, loop, view, plot }, button) {
  const labels = TIMED.map((panel) => headLabel(panel, "axis: seconds", TITLE));
  function show() {
    document.documentElement.dataset.axis = axis.timed ? "time" : "steps";
    button.setAttribute("aria-pressed", String(axis.timed));
    for (const label of labels) label.hidden = !axis.timed;
  }
  axis.timed = setting("axis") === "time";
  show();
  return {
    toggle() {
      const { store, history } = view();
      axis.turn(!axis.timed, plot(), history);
      if (store.held) axis.reveal(store.held.column, plot());
      keepSetting("axis", axis.timed ? "time" : null);
      show();
      loop.invalidateNow();
    },
  };
}
