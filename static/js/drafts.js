/**
 * What somebody typed survives a reload: the fields of a form with an id are kept in this tab's session storage.
 */

import { keep, readKept } from "./kept.js";

const KEY = "stepscope.draft";

const keyOf = (/** @type {HTMLFormElement} */ form) => `${KEY}.${form.id}`;
/** Not worth keeping, or not text. */
const SKIPPED = new Set(["conversation", "engine"]);

/** @param {HTMLFormElement} form */
export function keepDrafts(form) {
  restore(form);
  form.addEventListener("input", () => save(form));
  form.addEventListener("change", () => save(form));
}

/** @param {HTMLFormElement} form */
export function save(form) {
  /** @type {Object<string, string>} */
  const fields = {};
  for (const { name, type, value } of fieldsOf(form)) if (name && type !== "checkbox" && !SKIPPED.has(name) && value) fields[name] = value;
  keep(keyOf(form), JSON.stringify(fields), "sessionStorage");
}

/** @param {HTMLFormElement} form */
function restore(form) {
  /** @type {Object<string, unknown>} */
  let fields = {};
  try {
    fields = JSON.parse(readKept(keyOf(form), "sessionStorage") ?? "{}");
  } catch {
    fields = {}; // written by something else
  }
  for (const element of fieldsOf(form)) {
    const kept = fields[element.name];
    if (!["submit", "checkbox"].includes(element.type) && typeof kept === "string") element.value = kept;
  }
}

/** @param {HTMLFormElement} form */
function fieldsOf(form) {
  return /** @type {Iterable<HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>} */ (/** @type {unknown} */ (form.elements));
}
