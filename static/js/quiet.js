/**
 * A step that is long in coming: for how long nothing was heard of a step though one is due. Counted by the page's own
 * clock, from what it heard last; a page that was hidden begins anew. Idle, paused by hand, gone and not connected have
 * their own words.
 *
 * @import {Engine, Json, Store} from "./types.js"
 *
 * @typedef {ReturnType<typeof createQuiet>} Quiet
 */

import { byHand } from "./metrics.js";

/** Shorter is no news. */
const LEAST_MS = 1000;
const EVERY_MS = 500;
/** What says that the engine moves, or begins to. */
const MOVES = new Set(["hello", "key", "step", "gate", "reset"]);

export function createQuiet(clock = () => performance.now()) {
  let since = clock();
  let due = false;
  return {
    /** A frame was folded. @param {Json} frame @param {Engine | null} engine the one on show */
    take(frame, engine) {
      const was = due;
      due = isDue(engine);
      const moved = (frame.events ?? []).some((/** @type {Json} */ event) => event.engine === engine?.id && MOVES.has(event.kind));
      if (moved || !was) since = clock();
    },
    restart() {
      since = clock();
    },
    /** Null when there is nothing to say. @param {Pick<Store, "connection" | "engine">} store */
    ms({ connection, engine }) {
      const ms = clock() - since;
      return due && ms >= LEAST_MS && connection === "live" && engine?.about.status === "ready" && isDue(engine) ? ms : null;
    },
  };
}

/** Work is there and nobody holds it. @param {Engine | null} engine */
function isDue(engine) {
  const { state = null } = engine ?? {};
  return state !== null && !byHand(state) && state.queues.running.length + state.queues.waiting.length > 0;
}

/** "no step for 3.2 s" @param {number} ms */
export function quietWords(ms) {
  return `no step for ${(ms / 1000).toFixed(1)} s`;
}

/** Have the page drawn while there is something to say. @param {{quiet: Quiet, store: Store, loop: import("./render.js").Loop}} page */
export function watchQuiet({ quiet, store, loop }) {
  let said = false;
  setInterval(() => {
    if (document.hidden) return;
    const says = quiet.ms(store) !== null;
    if (says || said) loop.invalidate();
    said = says;
  }, EVERY_MS);
  document.addEventListener("visibilitychange", quiet.restart);
}
