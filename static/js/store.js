/**
 * What the page knows: each engine's folded state, its history and its status, and what of it is shown.
 * `apply` takes frames as they come; nothing here touches the document.
 *
 * Holding: `hold` keeps a copy of the state as it is now, `visit` takes that of a step from the tape, and the panels
 * show that moment while the fold runs on, until `release`. `shown` is what panels draw, `now` the engine time that
 * belongs to it, and `until` says which boundaries lie ahead of it (see history.js).
 *
 * @import {Event, Hello, Json, State, StepFacts} from "./types.js"
 *
 * @typedef {{state: State | null, column: number, until: number, now: number, visited: boolean}} Moment
 * @typedef {ReturnType<typeof createStore>} Store
 */

import { copyState } from "./copy.js";
import { createHistory, forgetBefore, remember } from "./history.js";
import { openedFrom, received } from "./kept_step.js";
import { fold } from "./state.js";
import { createTape } from "./tape.js";

export const SCHEMA_VERSION = 1;

/** @typedef {ReturnType<typeof newEngine>} Engine */

/** @param {string} id @param {import("./tape.js").Limits} limits */
function newEngine(id, limits) {
  return {
    id,
    epoch: /** @type {string | null} */ (null),
    seq: 0,
    hello: /** @type {Hello | null} */ (null),
    state: /** @type {State | null} */ (null),
    history: createHistory(),
    tape: createTape(limits),
    /** Its last step: the next one may be told by it. */
    before: /** @type {Pick<StepFacts, "step" | "rows"> | null} */ (null),
    /** What the hub says of it: {status, reason, detail, load, restartable}. */
    about: /** @type {Json} */ ({ status: "starting", reason: null, detail: null, load: null, restartable: false }),
    clock: { t: 0, at: performance.now() },
  };
}

/** @param {import("./tape.js").Limits} limits of each engine's tape */
export function createStore(limits = {}) {
  /** @type {Map<string, Engine>} */
  const engines = new Map();

  /** @param {string} id @returns {Engine} */
  function engineOf(id) {
    let engine = engines.get(id);
    if (!engine) engines.set(id, (engine = newEngine(id, limits)));
    return engine;
  }

  return {
    engines,
    connection: /** @type {"connecting" | "live" | "stale"} */ ("connecting"),
    /** Who watches: {connected, limit}. */
    viewers: /** @type {Json | null} */ (null),
    frames: 0,
    /** The hub that what is known came from: a new one numbers its requests anew. */
    hub: /** @type {string | null} */ (null),
    strangeVersion: /** @type {number | null} */ (null),
    held: /** @type {Moment | null} */ (null),
    /** The engine that a person chose, whether it is there or not; null: the first one that the hub named. */
    chosen: /** @type {string | null} */ (null),

    /** The name of the engine on show; "" before there is any. */
    get name() {
      return this.chosen ?? engines.keys().next().value ?? "";
    },
    /** The engine on show; null when it is not there: another one never takes the place of one that was chosen. */
    get engine() {
      return engines.get(this.name) ?? null;
    },
    /** The engine that has a request: the hub numbers them over all engines. @param {string} request */
    having(request) {
      const has = (/** @type {Engine} */ { state, history }) => Object.hasOwn(state?.requests ?? {}, request) || history.lanes.has(request);
      return [...engines.values()].find(has) ?? null;
    },
    /** @param {string} id */
    choose(id) {
      this.chosen = id;
      this.held = null;
    },
    /** The state that panels draw: the held one, or the newest. */
    get shown() {
      return this.held ? this.held.state : (this.engine?.state ?? null);
    },
    /** Engine time of what is shown: a held view's clock stands. */
    get now() {
      return this.held ? this.held.now : engineNow(this.engine);
    },
    /** Boundaries above it have not come yet, at the moment shown. */
    get until() {
      return this.held ? this.held.until : Infinity;
    },
    /** Another server answers: nothing that is known holds any more. @param {string} hub */
    meet(hub) {
      this.hub = hub;
      this.held = null;
      engines.clear();
    },
    hold() {
      const { engine } = this;
      if (this.held || !engine) return;
      const { state, history } = engine;
      this.held = { state: state && copyState(state), column: history.last, until: history.last + 1, now: engineNow(engine), visited: false };
    },
    /**
     * Show the moment right after a step; `settled`: after what the engine said of the step too.
     * @param {number} column
     * @returns {boolean} false when it is not on the tape; what is shown stays
     */
    visit(column, settled = false) {
      const found = this.engine?.tape.at(column, settled);
      if (!found) return false;
      this.held = { state: found.state, column, until: column + (settled ? 1 : 0.5), now: found.t, visited: true };
      return true;
    },
    release() {
      this.held = null;
    },
    /**
     * Fold one frame.
     * @param {Json} frame
     * @returns {boolean} false when an event is missing, so that a fresh key is needed
     */
    apply(frame) {
      this.frames += 1;
      if (frame.hub !== this.hub) this.meet(frame.hub);
      for (const event of frame.events ?? []) {
        if (event.kind === "hello" && event.v !== SCHEMA_VERSION) this.strangeVersion = event.v;
        if (!take(engineOf(event.engine), event)) return false;
      }
      this.viewers = frame.viewers ?? this.viewers;
      for (const about of frame.engines ?? []) engineOf(about.id).about = about;
      return true;
    },
  };
}

/** Engine time now: its last word plus what has passed here since; the two clocks are never compared raw. @param {Engine | null} engine */
export function engineNow(engine) {
  if (!engine) return 0;
  return engine.clock.t + (performance.now() - engine.clock.at) * 1000;
}

/** @param {Engine} engine @param {Event} event @returns {boolean} false when `event` does not follow what is known */
function take(engine, event) {
  const known = event.epoch === engine.epoch;
  if (event.kind === "load") {
    engine.about = { ...engine.about, load: event };
    return true;
  }
  if (event.kind === "hello") {
    engine.hello = event;
    if (known) return true; // said again on reconnecting; a key follows
    engine.epoch = event.epoch;
    engine.seq = event.seq;
    engine.before = null;
  } else if (event.kind === "key") {
    engine.epoch = event.epoch;
    engine.seq = event.seq;
    engine.before = event.state.last_step;
  } else if (event.kind === "gap") {
    engine.seq = Math.max(engine.seq, event.last);
    return true;
  } else if (!known || event.seq <= engine.seq) {
    return true; // of a life that is over, or heard before
  } else if (event.seq !== engine.seq + 1) {
    return false;
  } else {
    engine.seq = event.seq;
  }
  if (!known || event.t >= engine.clock.t) engine.clock = { t: event.t, at: performance.now() };
  const kept = event.kind === "step" ? received(event, engine.before) : event;
  if (kept === null) return false;
  if (kept.kind === "step") engine.before = kept;
  const open = openedFrom(event, kept);
  engine.state = fold(engine.state, open);
  remember(engine.history, open, engine.state, kept);
  if (engine.state) record(engine, kept, engine.state);
  return true;
}

/** @param {Engine} engine @param {Event} event @param {State} state */
function record({ tape, history }, event, state) {
  const { floor } = tape.size;
  tape.take(event, state, history.base);
  if (tape.size.floor > floor) forgetBefore(history, tape.size.floor);
}
