/**
 * What somebody typed survives a reload: the fields of a form with an id are kept in this tab's session storage.
 */

const KEY = "stepscope.draft";

const keyOf = (form) => `${KEY}.${form.id}`;
/** Not worth keeping, or not text. */
const SKIPPED = new Set(["conversation"]);

/** @param {HTMLFormElement} form */
export function keepDrafts(form) {
  restore(form);
  form.addEventListener("input", () => save(form));
  form.addEventListener("change", () => save(form));
}

/** @param {HTMLFormElement} form */
export function save(form) {
  const fields = {};
  for (const { name, type, value } of form.elements) if (name && type !== "checkbox" && !SKIPPED.has(name) && value) fields[name] = value;
  sessionStorage.setItem(keyOf(form), JSON.stringify(fields));
}

function restore(form) {
  let fields = {};
  try {
    fields = JSON.parse(sessionStorage.getItem(keyOf(form)) ?? "{}");
  } catch {
    sessionStorage.removeItem(keyOf(form));
  }
  for (const element of form.elements) {
    if (!["submit", "checkbox"].includes(element.type) && typeof fields[element.name] === "string") element.value = fields[element.name];
  }
}
