/** The one tooltip: what lies under the pointer, as text beside it. Its click twin is the selection. */

import { byId } from "./dom.js";

/** @typedef {ReturnType<typeof createTip>} Tip */

export function createTip() {
  const node = byId("tip");
  return {
    /** @param {string | null} text @param {MouseEvent} [event] */
    show(text, event) {
      node.hidden = !text;
      if (!text || !event) return;
      node.textContent = text;
      const { width, height } = node.getBoundingClientRect();
      const x = Math.min(event.clientX + 14, window.innerWidth - width - 8);
      const y = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18;
      node.style.left = `${Math.max(8, x)}px`;
      node.style.top = `${y}px`;
    },
  };
}
