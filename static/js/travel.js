/**
 * Time travel: which moment the page shows, and the ways to another one: a step back or forth, a place on the axis,
 * the next or previous event of a kind. What the tape of this page does not hold is asked of the server once.
 *
 * @import {Axis, Engine, History, Loop, Plot, RequestFacts, Selection, Step, StepEvent, Store} from "./types.js"
 * @import {Placed} from "./notes.js"
 *
 * @typedef {ReturnType<typeof createTravel>} Travel
 * @typedef {History["gaps"][number]} Gap
 * @typedef {"preempted" | "finished" | "slow" | "mark"} Kind what to jump to
 */

import { backfill } from "./backfill.js";
import { olderSteps, say } from "./controls.js";
import { oldestColumn, stepNumber } from "./history.js";
import { count } from "./format.js";
import { recordingReader } from "./later.js";

/** Steps asked for when the page opens, so that a reload does not lose the picture. */
const BACKFILL = 600;
/** Steps asked for at once: reading them must not hold the page up. */
const PIECE = 60;
/** Rows of steps asked for at most: a large batch for hundreds of steps is more than a picture needs. */
const MOST_ROWS = 200_000;
/** A step is slow when it takes more than this many times the median. */
const SLOW = 2;
/** After the server could not help it is not asked again for so long. */
const PATIENCE_MS = 5000;

/**
 * @param {{store: Store, selection: Selection, axis: Axis, loop: Loop, plot: () => Plot}} page `plot` is
 *        the widest picture with a time axis
 */
export function createTravel({ store, selection, axis, loop, plot }) {
  /** The column that was asked for last, while the server is asked for its state. */
  let wanted = /** @type {{engine: Engine, column: number, settled: boolean, then?: () => void} | null} */ (null);
  /** Those whose past is being asked for. @type {WeakSet<Engine>} */
  const reading = new WeakSet();
  /** @type {WeakMap<Engine, number>} */
  const patientUntil = new WeakMap();
  /** Up to where the server was asked for what this page did not hear. @type {WeakMap<Engine, {epoch: string | null, gap: Gap | undefined}>} */
  const met = new WeakMap();

  /** Show the moment after a step. @param {number} column @param {() => void} [then] once it is shown */
  function goTo(column, settled = false, then = undefined) {
    store.hold();
    axis.hold();
    axis.reveal(column, plot());
    if (store.visit(column, settled)) {
      wanted = null;
      then?.();
    } else askFor(column, settled, then);
    loop.invalidateNow();
  }

  /** @param {number} column @param {boolean} settled @param {() => void} [then] */
  async function askFor(column, settled, then) {
    const { engine } = store;
    if (!engine) return;
    wanted = { engine, column, settled, then };
    if (reading.has(engine)) return;
    let read = true;
    if (performance.now() > (patientUntil.get(engine) ?? -Infinity)) {
      reading.add(engine);
      read = await readPast(engine).catch(unreadable);
      reading.delete(engine);
    }
    const target = /** @type {typeof wanted} */ (wanted); // another may have been asked for meanwhile
    if (target?.engine !== engine) return; // of another engine, which is asked itself
    wanted = null;
    if (store.held === null || engine !== store.engine) return;
    if (store.visit(target.column, target.settled)) target.then?.();
    else {
      patientUntil.set(engine, performance.now() + PATIENCE_MS);
      const moment = `What the engine held after step ${count(stepNumber(engine.history, target.column))}`;
      say(read ? `${moment} is not kept any more.` : `${moment} could not be read: the server did not answer.`);
    }
    loop.invalidateNow();
  }

  /** A request that is over, and not in the picture any more: go to its last step, with as much of its lane as fits. @param {string} request @param {() => void} then once that is shown */
  function seek(request, then) {
    const { engine } = store;
    const lane = engine?.history.lanes.get(request);
    if (!lane?.end || !engine?.history.steps.has(lane.end.at - 1) || lane.end.at >= axis.span(plot()).from) return;
    axis.reveal(lane.arrive, plot());
    goTo(lane.end.at - 1, false, then);
  }

  /** The step before or after the one shown; a request or a block that is chosen stays so. @param {number} by */
  function walk(by) {
    const history = store.engine?.history;
    if (!history) return;
    const { held, until } = store;
    const now = held ? held.column : history.last; // live: after the newest step, with all that was said of it
    const from = by < 0 && held?.visited ? Math.ceil(until - 0.5) : held?.visited ? Math.ceil(until) - 1 : now;
    const column = knownStep(history, from + by, Math.sign(by));
    if (column !== null) show(column);
  }

  /** Show a step, and choose it unless something else is chosen. @param {number} column */
  function show(column, settled = false) {
    const { choice } = selection;
    const other = choice === null || (choice.kind === "step" && choice.column !== column);
    if (other) selection.set({ kind: "step", column });
    goTo(column, settled);
  }

  return {
    goTo,
    seek,
    /** What is still being asked for is not gone to any more. */
    stay() {
      wanted = null;
    },
    walk,
    /** The known step that is nearest to a column. @param {number} column */
    walkTo(column) {
      const known = store.engine && knownStep(store.engine.history, column, -1);
      if (known !== null) show(known);
    },
    /** The next (+1) or previous (-1) event of a kind. @param {Kind} kind @param {1 | -1} by */
    jump(kind, by) {
      const history = store.engine?.history;
      if (!history) return;
      const from = store.held?.visited ? store.held.column : history.last + 1;
      const column = findEvent(history, kind, from, by);
      if (column === null) say(`No ${by < 0 ? "earlier" : "later"} ${KIND_WORDS[kind]} is known to this page.`);
      else show(column, kind === "finished" || kind === "mark");
    },
    /** The axis was moved by hand: the moment shown stays in the picture. */
    panned() {
      store.hold();
      const { engine, held } = store;
      if (!engine || !held) return;
      const { from, to } = axis.span(plot());
      const within = Math.min(Math.max(held.column, from + 1), to);
      const column = within === held.column ? null : knownStep(engine.history, within, within < held.column ? -1 : 1);
      if (column !== null && !store.visit(column)) askFor(column, false);
      loop.redraw();
    },
    /** An engine is on show: what it said before that, or in a gap since, is asked of the server once. @param {Engine} engine */
    meet(engine) {
      if (!engine.state) return;
      const { epoch, history } = engine;
      const { gaps } = history;
      const known = met.get(engine);
      met.set(engine, { epoch, gap: gaps.at(-1) });
      if (known?.epoch !== epoch) fill(engine);
      else if (known.gap !== gaps.at(-1)) {
        const [first] = gaps.slice(known.gap ? gaps.indexOf(known.gap) + 1 : 0);
        if (first) fill(engine, Math.max(0, first.from - 1 - history.base));
      }
    },
  };

  /**
   * Steps and notes from the server that this page did not hear, newest first.
   * @param {Engine} engine @param {number} since a step
   */
  async function fill(engine, since = Math.max(0, (engine.state?.step ?? 0) - BACKFILL)) {
    const goesOn = lifeOf(engine);
    let rows = 0;
    for (let upTo = engine.state?.step ?? 0; upTo > since && rows < MOST_ROWS; ) {
      const from = Math.max(since, upTo - PIECE);
      const missed = await olderSteps(engine.id, from, upTo - from);
      if (!goesOn() || !engine.state) return;
      backfill(engine.history, missed, engine.state);
      loop.invalidate();
      rows += missed.steps.reduce((sum, step) => sum + step.rows.length, 0);
      const whole = missed.steps[0]?.step === from + 1;
      upTo = whole ? from : since; // older ones are not kept any more
    }
  }
}

/** Whether what is asked for now still belongs to what the page shows once it comes: not after a restart, nor a reset of the stage. @param {Engine} engine */
function lifeOf(engine) {
  const { epoch, history } = engine;
  const { resets } = history;
  return () => engine.epoch === epoch && history.resets === resets;
}

/** @param {unknown} error */
function unreadable(error) {
  console.error("the past could not be read", error);
  return false;
}

/** Put what the server's ring holds of this epoch on the tape and into the history; false if it could not be read. @param {Engine} engine */
async function readPast(engine) {
  const { readRecording, stepsAndNotes } = await recordingReader();
  const { epoch, history, tape } = engine;
  const { base } = history;
  const goesOn = lifeOf(engine);
  const older = { steps: /** @type {StepEvent[]} */ ([]), requests: /** @type {Placed[]} */ ([]) };
  /** @type {Object<string, RequestFacts>} */
  const ended = {};
  const read = await readRecording(engine.id, (events) => {
    if (events[0].epoch !== epoch || !goesOn()) return;
    for (const [id, facts] of Object.entries(events[0].state.requests)) if (facts.status === "finished") ended[id] = facts;
    const { steps, requests } = stepsAndNotes(events);
    older.steps.push(...steps);
    older.requests.push(...requests);
    tape.graft(events, base);
  });
  if (goesOn() && engine.state) backfill(history, older, { ...engine.state, requests: { ...ended, ...engine.state.requests } });
  return read;
}

/** The nearest column with a step, from a column on in a direction; the last one before the end otherwise. @param {History} history @param {number} column @param {number} direction */
function knownStep(history, column, direction) {
  const oldest = oldestColumn(history);
  const start = Math.min(history.last, Math.max(oldest, column));
  for (let at = start; at >= oldest && at <= history.last; at += direction) if (history.steps.has(at)) return at;
  for (let at = start; at >= oldest && at <= history.last; at -= direction) if (history.steps.has(at)) return at;
  return null;
}

// -- events --------------------------------------------------------------------------------------

const KIND_WORDS = { preempted: "preemption", finished: "end of a request", slow: "slow step", mark: "mark" };

/** The column of the next event of a kind, beyond `from`. @param {History} history @param {Kind} kind @param {number} from @param {number} by @returns {number | null} */
export function findEvent(history, kind, from, by) {
  const limit = kind === "slow" ? slowUs(history) : 0;
  const oldest = oldestColumn(history);
  for (let column = from + by; column >= oldest && column <= history.last; column += by) {
    const step = history.steps.get(column);
    if (step && isEvent(history, kind, column, step, limit)) return column;
  }
  return null;
}

/** @param {History} history @param {Kind} kind @param {number} column @param {Step} step @param {number} slow us */
function isEvent({ marks, notes }, kind, column, step, slow) {
  if (kind === "slow") return step.wall_us > slow;
  if (kind === "mark") return marks.some(({ at }) => at === column + 1);
  return (notes.get(column)?.[kind].length ?? 0) > 0;
}

/** From when on a step is slow; a hand on the gate makes none so. @param {History} history */
function slowUs({ steps }) {
  const walls = [...steps.values()].filter(({ gated }) => !gated).map(({ wall_us }) => wall_us).sort((a, b) => a - b);
  return walls.length ? SLOW * walls[Math.floor(walls.length / 2)] : Infinity;
}
