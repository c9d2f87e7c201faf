/** Dark or light: what the system prefers, until T says otherwise; that is remembered. */

import { keep, readKept } from "./kept.js";

const KEY = "stepscope.theme";
const light = window.matchMedia("(prefers-color-scheme: light)");

/** @param {() => void} changed called when colours have to be read anew */
export function mountTheme(changed) {
  const kept = readKept(KEY);
  if (kept) document.documentElement.dataset.theme = kept;
  for (const query of ["(prefers-color-scheme: light)", "(prefers-contrast: more)", "(forced-colors: active)"]) {
    window.matchMedia(query).addEventListener("change", changed);
  }
  window.addEventListener("resize", changed); // another size or zoom: other type, other patterns
  return {
    toggle() {
      const now = document.documentElement.dataset.theme ?? (light.matches ? "light" : "dark");
      const next = now === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      keep(KEY, next);
      changed();
    },
  };
}
