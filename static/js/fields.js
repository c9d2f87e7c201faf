/**
 * The number fields of a worksheet's form: read all at once, or say in words which one cannot be so. A field says its
 * own limits: `min`, `max`, and step="any" where fractions are allowed.
 */

import { findAll } from "./dom.js";
import { count } from "./format.js";

/**
 * @param {HTMLFormElement} form
 * @returns {{values: Object<string, number>, wrong: string | null}} `wrong` names the field, its value and its limits
 */
export function readNumbers(form) {
  /** @type {Object<string, number>} */
  const values = {};
  let wrong = null;
  for (const field of findAll(form, 'input[type="number"]', HTMLInputElement)) {
    const problem = problemOf(field);
    field.setAttribute("aria-invalid", String(problem !== null));
    wrong ??= problem;
    values[field.name] = field.valueAsNumber;
  }
  return { values, wrong };
}

/** @param {HTMLInputElement} field */
function problemOf(field) {
  const { min, max, step, value, valueAsNumber: number } = field;
  const whole = step !== "any";
  if (Number.isFinite(number) && number >= Number(min) && number <= Number(max) && !(whole && !Number.isInteger(number))) return null;
  const is = value.trim() === "" ? "is empty" : `is ${value}`;
  return `${field.dataset.words} ${is}; it must be a ${whole ? "whole number" : "number"} from ${limit(min)} to ${limit(max)}.`;
}

/** @param {string} text */
function limit(text) {
  return Number(text) % 1 === 0 ? count(Number(text)) : text;
}

/** Say what is wrong, or nothing. @param {HTMLElement} node @param {string | null} words */
export function showWrong(node, words) {
  if (node.textContent !== (words ?? "")) node.textContent = words ?? "";
}

/**
 * A select that fills a form in, and stands on "my own numbers" once somebody types others.
 * @param {HTMLSelectElement} select its first option is "my own numbers", with the value ""
 * @param {{names: string[], pick: (value: string) => void}} options the fields it fills in, and how
 */
export function mountPicker(select, { names, pick }) {
  if (select.selectedIndex < 0) select.value = ""; // what stood there before a reload is offered no more
  select.addEventListener("change", () => select.value !== "" && pick(select.value));
  select.form?.addEventListener("input", ({ target }) => {
    if (target instanceof Element && names.includes(target.getAttribute("name") ?? "")) select.value = "";
  });
}

/** Keep a select's options after the first `kept` in step with what there is. @param {HTMLSelectElement} select @param {Array<{value: string, text: string}>} options */
export function fillOptions(select, options, kept = 1) {
  const known = [...select.options].slice(kept);
  if (known.length === options.length && known.every((option, i) => option.value === options[i].value && option.text === options[i].text)) return;
  const { value } = select;
  for (const option of known) option.remove();
  select.append(...options.map(({ value: name, text }) => new Option(text, name)));
  select.value = [...select.options].some((option) => option.value === value) ? value : "";
}

/** @param {HTMLFormElement} form @param {string} name */
function fieldOf(form, name) {
  return /** @type {HTMLInputElement | HTMLSelectElement} */ (form.elements.namedItem(name));
}

/** Write numbers into a form, by name, and tell it. @param {HTMLFormElement} form @param {Object<string, number | string>} values */
export function fillNumbers(form, values) {
  for (const [name, value] of Object.entries(values)) fieldOf(form, name).value = String(value);
  form.dispatchEvent(new Event("change"));
}
