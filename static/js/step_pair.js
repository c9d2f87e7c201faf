/**
 * Two steps side by side: step A is marked, step B is the one that is chosen, or else the one shown. A stays marked
 * until it is marked again.
 *
 * @import {Loop, Selection, View} from "./types.js"
 *
 * @typedef {ReturnType<typeof createStepPair>} StepPair
 */

import { say } from "./controls.js";
import { count } from "./format.js";
import { stepNumber } from "./history.js";

/** @param {{selection: Selection, view: () => View, loop: Loop}} page */
export function createStepPair({ selection, view, loop }) {
  let a = /** @type {number | null} */ (null);

  return {
    /** The column of step A. */
    get a() {
      return a;
    },
    /** The step that is chosen, or else shown, becomes A; when it is A already, there is none any more. */
    mark() {
      const now = view();
      if (!now.history?.steps.size) return;
      const b = stepB(now);
      a = a === b ? null : b;
      say(a === null ? "No step is marked any more." : `A is step ${count(stepNumber(now.history, a))}: choose another one. They are compared below Step anatomy (6).`);
      loop.invalidateNow();
    },
    /** @param {number | null} column */
    put(column) {
      a = column;
      loop.invalidateNow();
    },
    /** A step is chosen beside the one that was: that one is A. @param {number} column */
    with(column) {
      const { choice } = selection;
      if (choice?.kind === "step" && choice.column === column) return;
      if (choice?.kind === "step") a = choice.column;
      selection.set({ kind: "step", column });
    },
  };
}

/** The column of step B. @param {Pick<View, "choice" | "column">} view */
export function stepB({ choice, column }) {
  return choice?.kind === "step" ? choice.column : column;
}
