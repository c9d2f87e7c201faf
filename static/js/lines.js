/**
 * Lines: small fields at the foot of the page, for one thing each (what to find, the words of a mark). A key or a button
 * opens one; Enter does it, Esc closes it, and the focus goes back to where it was.
 */

import { byId, field as fieldOf, find } from "./dom.js";

/**
 * @param {string} id of the form
 * @param {(text: string) => Promise<string> | string} act returns why it was not done, or ""
 * @returns {() => void} opens it
 */
export function mountLine(id, act) {
  const form = byId(id, HTMLFormElement);
  const field = fieldOf(form, "text");
  const error = find(form, ".error");
  let before = /** @type {Element | null} */ (null);

  function close() {
    form.hidden = true;
    field.value = "";
    error.textContent = "";
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  }
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = await act(field.value);
    field.setAttribute("aria-invalid", String(error.textContent !== ""));
    if (error.textContent) field.select();
    else close();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    close();
  });
  find(form, "[data-close]").addEventListener("click", close);
  return () => {
    if (form.hidden) before = document.activeElement;
    form.hidden = false;
    field.focus();
  };
}
