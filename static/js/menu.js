/** The menu of what one does on a stage; each entry has a key as well. It closes after a choice, or when left. */

export function mountMenu() {
  const menu = /** @type {HTMLDetailsElement} */ (document.getElementById("menu"));
  const buttons = new Map([...menu.querySelectorAll("[data-act]")].map((button) => [button.dataset.act, button]));

  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  return {
    /** @param {string} name @returns {HTMLElement} */
    button: (name) => buttons.get(name),
    /** @param {Object<string, () => void>} acts */
    mount(acts) {
      for (const [name, button] of buttons) {
        button.addEventListener("click", () => {
          menu.open = false;
          menu.querySelector("summary").focus();
          acts[name]();
        });
      }
    },
  };
}
