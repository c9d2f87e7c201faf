/**
 * Two steps compared, below the step anatomy: A is the marked one, B the one that is chosen or shown. It opens when a
 * step is marked, and says what to do when none is.
 *
 * @import {History, Page} from "../types.js"
 * @import {Noted} from "../step_diff.js"
 */

import { stepB } from "../step_pair.js";
import { diffRows } from "../step_diff.js";
import { byId, find, write } from "../dom.js";
import { count } from "../format.js";
import { stepNumber } from "../history.js";
import { noNotes } from "../notes.js";
import { renderTable } from "../table.js";

/** @param {Page} page */
export function mountDiff(page) {
  const root = byId("diff", HTMLDetailsElement);
  const button = find(root, "[data-mark]", HTMLButtonElement);
  const words = find(root, "[data-words]");
  const table = find(root, "table");
  let told = /** @type {number | null} */ (null);
  button.addEventListener("click", () => page.compare.mark());
  root.addEventListener("toggle", () => page.loop.invalidateNow());

  page.loop.add({
    id: "diff",
    visible: true,
    refresh(view) {
      const { a } = page.compare;
      if (a !== told) root.open = a !== null;
      told = a;
      const { history } = view;
      if (!root.open || !history) return;
      const b = stepB(view);
      const name = (/** @type {number | null} */ column) => (column === null ? "" : `step ${count(stepNumber(history, column))}`);
      button.disabled = history.steps.size === 0;
      write(button, a === b ? "Forget A" : `Mark ${name(b)} as A`);
      const [one, other] = [noted(history, a), noted(history, b)];
      const whole = one !== null && other !== null && a !== b;
      write(words, diffWords(a, b, one, other, name));
      table.hidden = !whole;
      if (whole) renderTable(table, { columns: ["", `A: ${name(a)}`, `B: ${name(b)}`, "B − A"], rows: diffRows(one, other).map((cells) => ({ cells })) }, page.selection);
    },
  });
}

/** @param {History} history @param {number | null} column @returns {Noted | null} null when it is not kept */
function noted(history, column) {
  if (column === null) return null;
  const step = history.steps.get(column);
  return step ? { step, notes: history.notes.get(column) ?? noNotes() } : null;
}

/** @param {number | null} a @param {number} b @param {Noted | null} one @param {Noted | null} other @param {(column: number) => string} name */
function diffWords(a, b, one, other, name) {
  if (a === null) return "Mark a step, then choose another one. Shift+click on a bar compares it with the chosen one.";
  if (one === null) return `A is ${name(a)}, which this page does not keep any more.`;
  if (a === b) return `A is ${name(a)}: now choose another step.`;
  if (other === null) return `What ${name(b)} did is not known to this page.`;
  return one.step.gated || other.step.gated ? "Stepped or slowed by hand: the times are no measurements." : "";
}
