/**
 * Table twins: the same facts as a canvas, as a table. Rows and cells are reused and only changed text is
 * written, so focus and selection in the table survive a refresh.
 *
 * @import {Choice, Selection} from "./selection.js"
 *
 * @typedef {Object} Twin
 * @property {string[]} columns
 * @property {Line[]} rows
 *
 * @typedef {{cells: Array<string | number>, choice?: Choice, act?: () => void}} Line
 */

import { write } from "./dom.js";
import { same } from "./selection.js";

const MAX_ROWS = 400;

/**
 * @param {HTMLTableElement} table
 * @param {Twin} twin
 * @param {Selection | null} selection null where no row has a choice; rows with a choice, or something else to do, get a button in their first cell that does it
 */
export function renderTable(table, twin, selection) {
  head(table, twin.columns);
  const body = table.tBodies[0] ?? table.createTBody();
  const rows = twin.rows.slice(0, MAX_ROWS);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, i) => fill(body.rows[i] ?? body.insertRow(), row, selection));
}

/** @param {HTMLTableElement} table @param {string[]} columns */
function head(table, columns) {
  const row = table.tHead?.rows[0] ?? table.createTHead().insertRow();
  if (row.cells.length === columns.length && [...row.cells].every((cell, i) => cell.textContent === columns[i])) return;
  row.replaceChildren(
    ...columns.map((name) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      return cell;
    }),
  );
}

/** @param {HTMLTableRowElement} line @param {Line} row @param {Selection | null} selection */
function fill(line, { cells, choice, act }, selection) {
  const does = act ?? (choice && (() => selection?.set(choice)));
  while (line.cells.length > cells.length) line.deleteCell(-1);
  cells.forEach((value, i) => {
    const cell = line.cells[i] ?? line.insertCell();
    write(i === 0 && does ? button(cell, does) : cell, String(value));
  });
  line.classList.toggle("chosen", choice !== undefined && same(choice, selection?.choice ?? null));
}

/** @type {WeakMap<HTMLButtonElement, () => void>} what each button does now */
const acts = new WeakMap();

/** @param {HTMLTableCellElement} cell @param {() => void} does */
function button(cell, does) {
  let made = cell.querySelector("button");
  if (!made) {
    const fresh = document.createElement("button");
    made = fresh;
    made.type = "button";
    made.className = "link";
    made.addEventListener("click", () => acts.get(fresh)?.());
    cell.replaceChildren(made);
  }
  acts.set(made, does);
  return made;
}
