/**
 * The scrubber: which moment is shown, on a line from the oldest step that this page knows to the newest one, and the
 * way to the next event of a kind. Dragging it, its arrow keys and the page's own keys do the same.
 *
 * @import {History, Loop, View} from "../types.js"
 * @import {Kind, Travel} from "../travel.js"
 */

import { byId, field, find, findAll } from "../dom.js";
import { count } from "../format.js";
import { oldestColumn, stepNumber } from "../history.js";

/** While it follows, it is written no more often than this: nobody reads faster, and each time is a layout. */
const WRITTEN_MS = 100;

/** @param {{loop: Loop, travel: Travel}} page */
export function mountScrubber({ loop, travel }) {
  const form = byId("travel", HTMLFormElement);
  const line = field(form, "moment");
  const kind = field(form, "kind", HTMLSelectElement);
  const where = find(form, "output");
  const jump = (/** @type {number} */ by) => travel.jump(/** @type {Kind} */ (kind.value), by < 0 ? -1 : 1);
  let writtenAt = -Infinity;

  form.addEventListener("submit", (event) => event.preventDefault());
  line.addEventListener("input", () => travel.walkTo(line.valueAsNumber));
  for (const button of findAll(form, "[data-walk]")) button.addEventListener("click", () => travel.walk(Number(button.dataset.walk)));
  for (const button of findAll(form, "[data-jump]")) button.addEventListener("click", () => jump(Number(button.dataset.jump)));

  loop.add({
    id: "scrubber",
    visible: true,
    draw(view) {
      if (!view.store.held && performance.now() - writtenAt < WRITTEN_MS) return;
      writtenAt = performance.now();
      write(view);
    },
    refresh: write,
  });
  return { jump };

  /** @param {View} view */
  function write(view) {
    if (!view.history) return;
    set(line, "min", Math.min(oldestColumn(view.history), view.last));
    set(line, "max", view.last);
    if (line.valueAsNumber !== view.column) line.value = String(view.column);
    const words = whereWords({ ...view, history: view.history });
    if (where.value !== words) where.value = words;
    if (line.getAttribute("aria-valuetext") !== words) line.setAttribute("aria-valuetext", words);
  }
}

/** @param {HTMLInputElement} line @param {"min" | "max"} name @param {number} value */
function set(line, name, value) {
  if (line[name] !== String(value)) line[name] = String(value);
}

/** "step 4,812 · 214 behind", "live · step 5,026". @param {{store: Pick<View["store"], "held">, history: History, column: number, last: number}} view */
export function whereWords({ store, history, column, last }) {
  const step = `step ${count(stepNumber(history, column))}`;
  if (store.held === null) return `live · ${step}`;
  return column === last ? `${step} · held` : `${step} · ${count(last - column)} behind`;
}
