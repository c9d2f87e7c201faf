/** The menu of what one does on a stage; each entry has a key as well. It closes after a choice, or when left. */

import { byData, byId, find } from "./dom.js";

export function mountMenu() {
  const menu = byId("menu", HTMLDetailsElement);
  const buttons = byData(menu, "act");
  const summary = find(menu, "summary");

  document.addEventListener("click", (event) => {
    if (event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    summary.focus();
  });
  return {
    /** @param {string} name @returns {HTMLElement} */
    button: (name) => buttons[name],
    /** @param {Object<string, () => void>} acts */
    mount(acts) {
      for (const [name, button] of Object.entries(buttons)) {
        button.addEventListener("click", () => {
          menu.open = false;
          summary.focus();
          acts[name]();
        });
      }
    },
  };
}
