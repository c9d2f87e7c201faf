/**
 * The one render loop: panels are drawn at most once per animation frame, only when something changed, and only
 * those on the screen. With reduced motion: discrete frames, twice a second. Slow work (table twins, figures)
 * runs at most twice a second whatever the frames do.
 *
 * @import {View} from "./types.js"
 *
 * @typedef {ReturnType<typeof createLoop>} Loop
 * @typedef {{id: string, visible: boolean, draw: (view: View) => void, refresh?: (view: View) => void}} Panel
 */

const CALM_MS = 500;
export const SLOW_MS = 500;

/**
 * @param {() => View} view what panels draw, made once per frame
 */
export function createLoop(view) {
  /** @type {Set<Panel>} */
  const panels = new Set();
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  let dirty = false;
  let asked = false;
  let drawnAt = -Infinity;
  let slowAt = -Infinity;
  let slowTimer = 0;
  /** What drawing costs, in ms; `panels` is a running mean per panel. */
  const cost = { frames: 0, lastMs: 0, worstMs: 0, panels: /** @type {Object<string, number>} */ ({}) };

  function ask() {
    if (asked || !dirty) return;
    asked = true;
    const wait = calm.matches ? CALM_MS - (performance.now() - drawnAt) : 0;
    if (wait > 0) setTimeout(() => requestAnimationFrame(frame), wait);
    else requestAnimationFrame(frame);
  }

  function frame() {
    const start = performance.now();
    asked = false;
    dirty = false;
    drawnAt = start;
    const now = view();
    for (const panel of panels) if (panel.visible) guarded(panel, "draw", now);
    cost.frames += 1;
    cost.lastMs = performance.now() - start;
    if (cost.frames > 10) cost.worstMs = Math.max(cost.worstMs, cost.lastMs);
    slowly();
    ask();
  }

  /** Run the slow half now if it is due, else once it is. */
  function slowly() {
    const wait = SLOW_MS - (performance.now() - slowAt);
    if (wait > 0) {
      slowTimer ||= setTimeout(slowNow, wait);
      return;
    }
    slowNow();
  }

  function slowNow() {
    clearTimeout(slowTimer);
    slowTimer = 0;
    slowAt = performance.now();
    const now = view();
    for (const panel of panels) guarded(panel, "refresh", now);
  }

  /** A fault in one panel must not take the others with it. @param {Panel} panel @param {"draw" | "refresh"} name @param {View} now */
  function guarded(panel, name, now) {
    const start = performance.now();
    try {
      panel[name]?.(now);
    } catch (error) {
      console.error(`panel ${panel.id} could not ${name}`, error);
    }
    if (name === "draw") cost.panels[panel.id] = 0.95 * (cost.panels[panel.id] ?? 0) + 0.05 * (performance.now() - start);
  }

  return {
    cost,
    /** @param {Panel} panel */
    add(panel) {
      panels.add(panel);
    },
    /** Something changed. */
    invalidate() {
      dirty = true;
      ask();
    },
    /** A person did something: figures and tables follow at once. */
    invalidateNow() {
      slowAt = -Infinity;
      this.invalidate();
    },
  };
}
