/**
 * The two sides of the page that compares, and where each takes its run from: an engine, a recording, the demo, or the
 * simulator. What is done with a run is no concern of theirs; they say when there is another one.
 *
 * @import {Run} from "./compare_run.js"
 *
 * @typedef {Object} Side
 * @property {"a" | "b"} id
 * @property {HTMLElement} root
 * @property {Object<string, HTMLElement>} parts
 * @property {HTMLSelectElement | null} engines
 * @property {HTMLSelectElement} ghost
 * @property {HTMLInputElement} file
 * @property {Run | null} run    that was taken
 * @property {Run | null} shown  the same, or what stands in for it beside its ghost (compare_predicted.js)
 * @property {string} from
 * @property {boolean} demo
 * @property {number} turn       tells a newer choice from an older one
 * @property {AbortController} wanted ends what the older one still fetches
 * @property {Side} other
 * @property {() => void} changed
 */

import { byData, byId, find } from "./dom.js";
import { isOfAnother } from "./compare_predicted.js";
import { startOf } from "./compare_run.js";
import { demoRun, fileRun, ghostRun, lastRun, turnedOver, Unavailable, Unreachable } from "./compare_sources.js";
import { lastWords } from "./compare_words.js";

/** A run that goes on is looked at again after so long. */
const AGAIN_MS = 1500;
/** A server that cannot be reached is asked ever more seldom, and at last this seldom. */
const SELDOM_MS = 12_000;
const DEMO = "demo, not your engine";

/** @param {() => void} changed called when there is something else to show @returns {{a: Side, b: Side}} */
export function mountSides(changed) {
  const [a, b] = [mountSide("a", changed), mountSide("b", changed)];
  a.other = b;
  b.other = a;
  return { a, b };
}

/** @param {"a" | "b"} id @param {() => void} changed @returns {Side} */
function mountSide(id, changed) {
  const root = byId(`side-${id}`);
  const side = /** @type {Side} */ ({
    id,
    root,
    parts: byData(root, "part"),
    engines: root.querySelector('select[data-part="engine"]'),
    ghost: find(root, '[data-part="ghost"]', HTMLSelectElement),
    file: find(root, '[data-part="file"]', HTMLInputElement),
    run: null,
    shown: null,
    from: "",
    demo: false,
    turn: 0,
    wanted: new AbortController(),
    changed,
  });
  const { parts, file, ghost, engines } = side;
  const engine = () => engines?.value ?? "";
  parts.last.addEventListener("click", () => takeLast(side, engine()));
  file.addEventListener("change", () => file.files?.[0] && takeFile(side, file.files[0]));
  parts.simulate.addEventListener("click", () => takeGhost(side, engine(), ghost.value));
  takeDrops(side);
  return side;
}

/** A recording may be dropped anywhere on its side. @param {Side} side */
function takeDrops(side) {
  const { root } = side;
  root.addEventListener("dragover", (event) => {
    event.preventDefault();
    root.classList.add("dropping");
  });
  root.addEventListener("dragleave", () => root.classList.remove("dropping"));
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    root.classList.remove("dropping");
    const dropped = event.dataTransfer?.files[0];
    if (dropped) takeFile(side, dropped);
  });
}

/** "A" or "B". @param {Side} side */
export function nameOf({ id }) {
  return id.toUpperCase();
}

/** A newer choice for a side. @param {Side} side */
function overtake(side) {
  side.wanted.abort();
  side.wanted = new AbortController();
  side.turn += 1;
  return side.turn;
}

/**
 * Fill a side; a later choice for it overtakes this one. What is there stays until something else has come.
 * @param {Side} side @param {string | ((run: Run) => string)} from @param {(signal: AbortSignal) => Promise<Run>} get
 * @returns {Promise<Run | null>} null when it could not be had, or is not wanted any more
 */
async function fill(side, from, get, busy = "Reading…") {
  const turn = overtake(side);
  side.parts.error.textContent = "";
  side.parts.busy.textContent = busy;
  side.changed();
  try {
    const run = await get(side.wanted.signal);
    if (side.turn !== turn) return null;
    Object.assign(side, { run, from: typeof from === "string" ? from : from(run), demo: from === DEMO });
    if (!side.demo) endDemo(side.other);
    return run;
  } catch (error) {
    if (side.turn !== turn) return null;
    if (!(error instanceof Unavailable)) console.error("a run could not be read", error);
    side.parts.error.textContent = error instanceof Unavailable ? error.message : "This recording cannot be understood.";
    loseSight(side);
    return null;
  } finally {
    if (side.turn === turn) side.parts.busy.textContent = "";
    side.changed();
  }
}

/** Nobody looks any more at a run that went on, so nobody knows whether it does. @param {Side} side */
function loseSight(side) {
  if (side.run && !side.run.over) side.run = { ...side.run, lost: true };
}

/** @param {Side} side @param {"static" | "continuous"} name */
export function takeDemo(side, name) {
  side.demo = true;
  return fill(side, DEMO, () => demoRun(name));
}

/** Beside a run of one's own the demo would be taken for one too. @param {Side} side */
function endDemo(side) {
  if (!side.demo) return;
  overtake(side);
  Object.assign(side, { run: null, from: "", demo: false });
  side.parts.busy.textContent = "";
}

/** An engine's last run, looked at again until it is over. @param {Side} side @param {string} engine @returns {Promise<Run | null>} */
async function takeLast(side, engine) {
  let run = await fill(side, lastWords, (signal) => lastRun(engine, signal));
  while (run && !run.over && !run.lost) {
    const { turn } = side;
    await pause(AGAIN_MS);
    if (side.turn !== turn) return null;
    run = await fill(side, lastWords, (signal) => patiently(side, signal, () => lastRun(engine, signal)));
  }
  return run;
}

/** What is asked for, as soon as the server can be reached. @param {Side} side @param {AbortSignal} signal @param {() => Promise<Run>} ask @returns {Promise<Run>} */
async function patiently(side, signal, ask) {
  for (let wait = AGAIN_MS; ; wait = Math.min(2 * wait, SELDOM_MS)) {
    try {
      return await ask();
    } catch (error) {
      if (signal.aborted || !(error instanceof Unreachable)) throw error;
    }
    side.parts.busy.textContent = "The server cannot be reached; it is asked again.";
    side.changed();
    await pause(wait);
  }
}

/** @param {number} ms @returns {Promise<void>} */
function pause(ms) {
  return new Promise((go) => setTimeout(go, ms));
}

/** @param {Side} side @param {File} file */
function takeFile(side, file) {
  side.file.value = "";
  return fill(side, file.name, () => fileRun(file));
}

/** The other side gets the run as it was, this one what another mode would have made of it. @param {Side} side @param {string} engine @param {string} name */
export async function takeGhost(side, engine, name) {
  const turn = overtake(side);
  Object.assign(side, { run: null, demo: false });
  side.parts.busy.textContent = "The simulation follows when the run is over.";
  const run = await takeLast(side.other, engine);
  if (side.turn !== turn) return;
  side.parts.busy.textContent = "";
  if (!run) side.changed();
  else await fill(side, "the last run, one setting turned", (signal) => ghostPair(engine, run, turnedOver(name, run.config), signal), "Simulating…");
}

/** A ghost, and the run as it was, predicted at the same pace: a real one had its hiccups, which no ghost has. @param {string} engine @param {Run} run @param {Object<string, any>} settings @param {AbortSignal} signal */
async function ghostPair(engine, run, settings, signal) {
  const [ghost, twin] = await Promise.all([ghostRun(engine, settings, signal), ghostRun(engine, {}, signal)]);
  if (startOf(twin) !== startOf(ghost) || isOfAnother(twin, run)) throw new Unavailable("Another run began meanwhile; simulate again.");
  return Object.assign(ghost, { twin });
}
