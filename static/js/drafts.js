/**
 * What somebody typed survives a reload: form fields are kept in this tab's session storage.
 */

const KEY = "stepscope.draft";
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
  for (const { name, value } of form.elements) if (name && !SKIPPED.has(name) && value) fields[name] = value;
  sessionStorage.setItem(KEY, JSON.stringify(fields));
}

function restore(form) {
  let fields = {};
  try {
    fields = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  } catch {
    sessionStorage.removeItem(KEY);
  }
  for (const element of form.elements) {
    if (element.type !== "submit" && typeof fields[element.name] === "string") element.value = fields[element.name];
  }
}
