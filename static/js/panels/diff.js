/**
 * Two steps compared, below the step anatomy: A is the marked one, B the one that is chosen or shown. It opens when a
 * step is marked, and says what to do when none is.
 */

import { stepB } from "../compare.js";
import { diffRows } from "../diff.js";
import { count } from "../format.js";
import { stepNumber } from "../history.js";
import { noNotes } from "../notes.js";
import { renderTable } from "../table.js";

/** @param {any} page */
export function mountDiff(page) {
  const root = /** @type {HTMLDetailsElement} */ (document.getElementById("diff"));
  const button = root.querySelector("[data-mark]");
  const words = root.querySelector("[data-words]");
  const table = root.querySelector("table");
  let told = null;
  button.addEventListener("click", () => page.compare.mark());
  root.addEventListener("toggle", () => page.loop.invalidateNow());

  page.loop.add({
    id: "diff",
    visible: true,
    draw() {},
    refresh(view) {
      const { a } = page.compare;
      if (a !== told) root.open = a !== null;
      told = a;
      if (!root.open || !view.history) return;
      const b = stepB(view);
      const name = (column) => `step ${count(stepNumber(view.history, column))}`;
      button.disabled = view.history.steps.size === 0;
      write(button, a === b ? "Forget A" : `Mark ${name(b)} as A`);
      const [one, other] = [noted(view.history, a), noted(view.history, b)];
      const whole = one !== null && other !== null && a !== b;
      write(words, diffWords(a, b, one, other, name));
      table.hidden = !whole;
      if (whole) renderTable(table, { columns: ["", `A: ${name(a)}`, `B: ${name(b)}`, "B − A"], rows: diffRows(one, other).map((cells) => ({ cells })) }, page.selection);
    },
  });
}

/** @returns {import("../diff.js").Noted | null} null when it is not kept */
function noted(history, column) {
  const step = column === null ? undefined : history.steps.get(column);
  return step ? { step, notes: history.notes.get(column) ?? noNotes() } : null;
}

function diffWords(a, b, one, other, name) {
  if (a === null) return "Mark a step, then choose another one. Shift+click on a bar compares it with the chosen one.";
  if (one === null) return `A is ${name(a)}, which this page does not keep any more.`;
  if (a === b) return `A is ${name(a)}: now choose another step.`;
  if (other === null) return `What ${name(b)} did is not known to this page.`;
  return one.step.gated || other.step.gated ? "Stepped or slowed by hand: the times are no measurements." : "";
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
