/**
 * The one render loop: panels are drawn at most once per animation frame, only when something changed, and only
 * those on the screen. Slow work (table twins, figures) is due at most twice a second whatever the frames do.
 *
 * A frame does as much as fits a few milliseconds, and leaves the rest to the next ones; who waited longest comes
 * first. What takes long waits a few frames for one that has done nothing else yet; no two frames in a row do nothing.
 * What a person did shows everywhere in the next frame. With reduced motion: discrete frames, whole ones, twice a second.
 *
 * @import {View} from "./types.js"
 *
 * @typedef {ReturnType<typeof createLoop>} Loop
 * `draw` answers false where it did nothing.
 * @typedef {{id: string, visible: boolean, draw?: (view: View) => unknown, refresh?: (view: View) => void}} Panel
 */

const CALM_MS = 500;
export const SLOW_MS = 500;
/** What a frame may take of the main thread, folding included; a display asks for one every 8 to 16 ms. */
const BUDGET_MS = 2;
/** Frames that one may be passed over because what it takes is more than what is left. */
const PATIENCE = 4;
/** It takes longer than usual now and then. */
const CAUTION = 1.3;
/** So little charged is nothing. */
const LIGHT_MS = 0.2;

/**
 * @param {() => View} view what panels draw, made once per frame
 */
export function createLoop(view) {
  /** @type {Set<Panel>} */
  const panels = new Set();
  /** What is still to be done and since which frame, longest waiting first. @type {{draw: Map<Panel, number>, refresh: Map<Panel, number>}} */
  const due = { draw: new Map(), refresh: new Map() };
  const motion = window.matchMedia("(prefers-reduced-motion: reduce)");
  let calm = motion.matches; // to ask in each frame costs
  motion.addEventListener("change", () => (calm = motion.matches));
  let whole = true; // the next frame does all that is due
  let asked = false;
  let charged = 0;
  /** What comes before the pictures of the next frame. @type {Array<() => void>} */
  let before = [];
  let drawnAt = -Infinity;
  let slowAt = -Infinity;
  let slowTimer = 0;
  let restTimer = 0;
  let frames = 0;
  let eager = true; // this frame has done nothing else yet, or the last one nothing at all
  let idle = false;
  /** What it takes, in ms: a running mean per panel. @type {{draw: Object<string, number>, refresh: Object<string, number>}} */
  const usual = { draw: {}, refresh: {} };
  /** How often each was drawn. @type {Object<string, number>} */
  const times = {};
  /** What drawing costs, in ms. */
  const cost = { frames: 0, lastMs: 0, worstMs: 0, panels: usual.draw, refresh: usual.refresh, times };

  function ask() {
    if (before.length) request();
    else if (due.draw.size || due.refresh.size) {
      const wait = restLeft();
      if (wait > 0) restTimer ||= setTimeout(rested, wait);
      else request();
    }
  }

  function request() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(frame);
  }

  /** With reduced motion: how long the picture is still to stay as it is, in ms. */
  function restLeft() {
    return calm ? CALM_MS - (performance.now() - drawnAt) : 0;
  }

  function rested() {
    restTimer = 0;
    ask();
  }

  function frame() {
    asked = false;
    const now = before;
    before = [];
    try {
      for (const does of now) does();
    } finally {
      if ((due.draw.size || due.refresh.size) && restLeft() <= 0) drawFrame();
      ask();
    }
  }

  function drawFrame() {
    const start = performance.now();
    const until = whole || calm ? Infinity : start + BUDGET_MS - charged;
    eager = charged < LIGHT_MS || idle;
    charged = 0;
    frames += 1;
    draw(start, until);
  }

  /** @param {number} start @param {number} until */
  function draw(start, until) {
    whole = false;
    drawnAt = start;
    const now = view();
    const drawn = work("draw", now, until, true);
    idle = drawn === 0;
    if (drawn > 0) {
      cost.frames += 1;
      cost.lastMs = performance.now() - start;
      if (cost.frames > 10) cost.worstMs = Math.max(cost.worstMs, cost.lastMs);
      askSlow();
    }
    work("refresh", now, until, drawn === 0 || start - slowAt > SLOW_MS / 2);
  }

  /**
   * Do what is due, while there is time for what it usually takes; what does not fit waits, and another may.
   * @param {"draw" | "refresh"} name @param {View} now @param {number} until @param {boolean} atLeastOne
   * @returns {number} how many were done
   */
  function work(name, now, until, atLeastOne) {
    let done = 0;
    for (const [panel, since] of due[name]) {
      if (name === "draw" && !panel.visible) {
        due.draw.delete(panel);
        continue;
      }
      const owed = atLeastOne && done === 0 && (eager || frames - since > PATIENCE);
      if (!owed && performance.now() + CAUTION * (usual[name][panel.id] ?? 0) > until) continue;
      due[name].delete(panel);
      if (guarded(panel, name, now)) done += 1;
    }
    return done;
  }

  /** Have the slow half done now if its time has come, else once it has. */
  function askSlow() {
    const wait = SLOW_MS - (performance.now() - slowAt);
    if (wait <= 0) slowDue();
    else slowTimer ||= setTimeout(slowDue, wait);
  }

  function slowDue() {
    clearTimeout(slowTimer);
    slowTimer = 0;
    slowAt = performance.now();
    for (const panel of panels) if (panel.refresh) put(due.refresh, panel);
    ask();
  }

  /** @param {Map<Panel, number>} waiting @param {Panel} panel */
  function put(waiting, panel) {
    if (!waiting.has(panel)) waiting.set(panel, frames);
  }

  /** A fault in one panel must not take the others with it. @param {Panel} panel @param {"draw" | "refresh"} name @param {View} now @returns {boolean} whether there was something to do */
  function guarded(panel, name, now) {
    const start = performance.now();
    try {
      if (panel[name]?.(now) === false) return false;
    } catch (error) {
      console.error(`panel ${panel.id} could not ${name}`, error);
    }
    if (name === "draw") times[panel.id] = (times[panel.id] ?? 0) + 1;
    usual[name][panel.id] = 0.95 * (usual[name][panel.id] ?? 0) + 0.05 * (performance.now() - start);
    return true;
  }

  return {
    cost,
    /** Whether all that changed is on the screen. */
    get rests() {
      return !due.draw.size && !due.refresh.size;
    },
    /** @param {Panel} panel */
    add(panel) {
      panels.add(panel);
    },
    /** Have something done at the beginning of the next frame, before its pictures. @param {() => void} does */
    first(does) {
      before.push(does);
      request();
    },
    /** Time that other work took of the next frame's. @param {number} ms */
    charge(ms) {
      charged += ms;
    },
    /** Something changed. */
    invalidate() {
      for (const panel of panels) if (panel.draw) put(due.draw, panel);
      ask();
    },
    /** The pictures at once and together, as under a hand that drags them. */
    redraw() {
      whole = true;
      this.invalidate();
    },
    /** A person did something: pictures, figures and tables follow at once. */
    invalidateNow() {
      whole = true;
      slowAt = -Infinity;
      this.invalidate();
    },
  };
}
