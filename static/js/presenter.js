/**
 * For a room: presenter mode (the stage panels and the figures alone, in type that the last row can read) and full
 * screen. The mode is in the address (`?present=1`); what it looks like is css/presenter.css.
 */

import { keepSetting } from "./address.js";
import { say } from "./controls.js";

const root = document.documentElement;
/** The root's type that the pictures' own type and measures are made for, in presenter mode. */
const PICTURE_REM = 12;

function presenting() {
  return "presenter" in root.dataset;
}

/** How many CSS pixels a picture's pixel takes: its type and its marks grow together. */
export function canvasZoom() {
  const style = getComputedStyle(root);
  return presenting() ? Number.parseFloat(style.fontSize) / PICTURE_REM : Number(style.getPropertyValue("--canvas-zoom"));
}

/** @param {HTMLElement} button shows whether it is on */
export function mountPresenter(button) {
  const show = () => button.setAttribute("aria-pressed", String(presenting()));
  show();
  return {
    toggle() {
      if (presenting()) delete root.dataset.presenter;
      else root.dataset.presenter = "";
      keepSetting("present", presenting() ? "1" : null);
      show();
      window.scrollTo(0, 0);
      window.dispatchEvent(new Event("resize")); // pictures take their size and type anew
    },
  };
}

export async function toggleFullScreen() {
  try {
    if (document.fullscreenElement) await document.exitFullscreen();
    else await root.requestFullscreen();
  } catch {
    say("The browser does not allow full screen here.");
  }
}
