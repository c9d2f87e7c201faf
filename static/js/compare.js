/**
 * The page that compares two runs: what each side holds, one axis and one cursor for both, and what may be said.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Axis} from "./compare_picture.js"
 * @import {Numbers} from "./compare_numbers.js"
 * @import {Palette} from "./types.js"
 *
 * @typedef {ReturnType<typeof mountSide>} Side
 * @typedef {{a: Numbers | null, b: Numbers | null}} Both
 */

import { byData, byId, find, findAll, write } from "./dom.js";
import { drawRun, lengthOf, slotsOf, valueAt, xOf } from "./compare_picture.js";
import { countUpTo, startOf } from "./compare_run.js";
import { differences, headline, modeWords, numbersOf, obstacle, obstacleOf, seconds, verdict } from "./compare_numbers.js";
import { demoRun, fileRun, ghostRun, lastRun, turnedOver, Unavailable } from "./compare_sources.js";
import { FIGURES, groupWords, howWords, lastWords, nextWords, predicted, twin } from "./compare_words.js";
import { count, duration, NONE, percent, rate } from "./format.js";
import { readPalette } from "./palette.js";
import { renderTable } from "./table.js";
import { mountTheme } from "./theme.js";

/** A run that goes on is looked at again after so long. */
const AGAIN_MS = 1500;
const PLACES = 1000; // of the cursor
const DEMO = "demo, not your engine";

document.documentElement.dataset.js = "on";

const sides = { a: mountSide("a"), b: mountSide("b") };
const both = Object.values(sides);
const moment = byId("moment", HTMLInputElement);
let unit = /** @type {"time" | "steps"} */ ("time");
let palette = /** @type {Palette | null} */ (null);
let asked = false;

const theme = mountTheme(() => {
  palette = null;
  draw();
});

// -- sides ---------------------------------------------------------------------------------------

/** `turn` tells a newer choice from an older one, `wanted` ends what the older one still fetches. @param {"a" | "b"} id */
function mountSide(id) {
  const root = byId(`side-${id}`);
  const parts = byData(root, "part");
  const engines = /** @type {HTMLSelectElement | null} */ (root.querySelector('select[data-part="engine"]'));
  const ghost = find(root, '[data-part="ghost"]', HTMLSelectElement);
  const file = find(root, '[data-part="file"]', HTMLInputElement);
  const canvas = find(root, "canvas");
  const side = { id, parts, engines, ghost, file, canvas, root, run: /** @type {Run | null} */ (null), from: "", demo: false, turn: 0, wanted: new AbortController(), size: { width: 0, height: 0 } };
  const engine = () => engines?.value ?? "";
  parts.last.addEventListener("click", () => takeLast(side, engine()));
  file.addEventListener("change", () => file.files?.[0] && takeFile(side, file.files[0]));
  parts.simulate.addEventListener("click", () => takeGhost(side, engine(), ghost.value));
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
  new ResizeObserver(() => {
    const box = side.canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    side.size = { width: Math.floor(box.width), height: Math.floor(box.height) };
    side.canvas.width = Math.round(side.size.width * scale);
    side.canvas.height = Math.round(side.size.height * scale);
    draw();
  }).observe(side.canvas);
  side.canvas.addEventListener("pointermove", ({ clientX }) => pointTo(side, clientX));
  return side;
}

/** @param {Side} side */
function otherOf(side) {
  return side === sides.a ? sides.b : sides.a;
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
  show();
  try {
    const run = await get(side.wanted.signal);
    if (side.turn !== turn) return null;
    Object.assign(side, { run, from: typeof from === "string" ? from : from(run), demo: from === DEMO });
    if (!side.demo) endDemo(otherOf(side));
    return run;
  } catch (error) {
    if (side.turn !== turn) return null;
    if (!(error instanceof Unavailable)) console.error("a run could not be read", error);
    side.parts.error.textContent = error instanceof Unavailable ? error.message : "This recording cannot be understood.";
    return null;
  } finally {
    if (side.turn === turn) side.parts.busy.textContent = "";
    show();
  }
}

/** @param {Side} side @param {"static" | "continuous"} name */
function takeDemo(side, name) {
  side.demo = true;
  return fill(side, DEMO, () => demoRun(name));
}

/** Beside a run of one's own the demo would be taken for one too. @param {Side} side */
function endDemo(side) {
  if (!side.demo) return;
  overtake(side);
  Object.assign(side, { run: null, from: "", demo: false });
  side.parts.busy.textContent = "";
  write(side.parts.empty, nextWords(nameOf(side)));
}

/** An engine's last run, looked at again until it is over. @param {Side} side @param {string} engine @returns {Promise<Run | null>} */
async function takeLast(side, engine) {
  for (;;) {
    const run = await fill(side, lastWords, (signal) => lastRun(engine, signal));
    if (!run || run.over || run.lost) return run;
    const { turn } = side;
    await new Promise((go) => setTimeout(go, AGAIN_MS));
    if (side.turn !== turn) return null;
  }
}

/** @param {Side} side @param {File} file */
function takeFile(side, file) {
  side.file.value = "";
  return fill(side, file.name, () => fileRun(file));
}

/** The other side gets the run as it was, this one what another mode would have made of it. @param {Side} side @param {string} engine @param {string} name */
async function takeGhost(side, engine, name) {
  const turn = overtake(side);
  Object.assign(side, { run: null, demo: false });
  side.parts.busy.textContent = "The ghost follows when the run is over.";
  const run = await takeLast(otherOf(side), engine);
  if (side.turn !== turn) return;
  side.parts.busy.textContent = "";
  if (!run) show();
  else await fill(side, "ghost", (signal) => ghostPair(engine, turnedOver(name, run.config), signal), "Simulating…");
}

/** A ghost, and the run as it was, predicted at the same pace: a real one had its hiccups, which no ghost has. @param {string} engine @param {Object<string, any>} settings @param {AbortSignal} signal */
async function ghostPair(engine, settings, signal) {
  const [ghost, twin] = await Promise.all([ghostRun(engine, settings, signal), ghostRun(engine, {}, signal)]);
  if (startOf(twin) !== startOf(ghost)) throw new Unavailable("Another run began meanwhile; simulate again.");
  return Object.assign(ghost, { twin });
}

// -- what is shown -------------------------------------------------------------------------------

function show() {
  const { a, b } = sides;
  const differing = a.run && b.run ? differences(a.run, b.run) : [];
  const numbers = { a: a.run && numbersOf(a.run), b: b.run && numbersOf(b.run) };
  const fair = { ...numbers, ...predicted(a.run, b.run) };
  for (const side of both) showSide(side, numbers[side.id], fair[side.id], differing);
  const why = !a.run || !b.run ? emptyWords() : obstacle(a.run, b.run);
  write(byId("verdict"), why ?? verdictWords(numbers, fair, differing));
  write(byId("how"), a.run && b.run && isBoth(numbers) && isBoth(fair) ? (a.demo ? "This is a demo, not your engine. " : "") + howWords(a.run, b.run, numbers, fair) : "");
  renderTable(byId("numbers", HTMLTableElement), twin(numbers, fair, why === null), null);
  draw();
}

/** @param {Both} numbers @param {Both} fair @param {string[]} differing */
function verdictWords(numbers, fair, differing) {
  const { a, b } = sides;
  if (!a.run || !b.run || !isBoth(fair)) return "";
  return verdict(a.run, b.run, fair, differing, fair.a !== numbers.a || fair.b !== numbers.b);
}

/** @param {Both} numbers @returns {numbers is {a: Numbers, b: Numbers}} */
function isBoth(numbers) {
  return numbers.a !== null && numbers.b !== null;
}

/** What stands in the verdict's place while a side is empty: what is under way for it, why the other one is not compared, or what to do. */
function emptyWords() {
  const empty = both.filter(({ run }) => !run);
  const busy = empty.map(({ parts }) => parts.busy.textContent).filter(Boolean);
  const other = otherOf(empty[0]);
  return busy.at(-1) ?? (other.run ? (obstacleOf(nameOf(other), other.run) ?? nextWords(nameOf(empty[0]))) : "Both sides are empty: take a run for each.");
}

/** @param {Side} side */
function nameOf({ id }) {
  return id.toUpperCase();
}

/**
 * What stands large is the number that the verdict is about: of a run beside its ghost, the predicted one.
 * @param {Side} side @param {Numbers | null} numbers @param {Numbers | null} fair @param {string[]} differing
 */
function showSide({ run, from, demo, root, parts }, numbers, fair, differing) {
  root.classList.toggle("demo", demo);
  parts.label.hidden = parts.from.hidden = !run;
  if (!run || !numbers) {
    for (const name of ["mode", "moment", "groups"]) write(parts[name], "");
    for (const name of ["big", "rate", "ttft", "gap", "occupancy"]) write(parts[name], NONE);
    return;
  }
  write(parts.mode, modeWords(run, differing) || run.config.batching);
  write(parts.label, run.hello.simulated ? "simulated" : run.gated ? "gated" : "measured");
  write(parts.from, run.turned.size ? `${from}; turned while it ran: ${[...run.turned].join(", ")}` : from);
  const figure = FIGURES[headline(differing)];
  write(parts.big, figure.show(fair ?? numbers));
  write(parts["big-words"], fair === numbers ? figure.words : `${figure.words}, predicted; as it ran: ${figure.show(numbers)}`);
  write(parts.groups, groupWords(run));
  write(parts.rate, `${rate(numbers.rate)} tok/s`);
  write(parts.ttft, duration(numbers.ttft));
  write(parts.gap, duration(numbers.gap));
  write(parts.occupancy, percent(numbers.occupancy));
}

// -- pictures and the cursor ---------------------------------------------------------------------

/** @returns {Axis} */
function axisOf() {
  return { unit, span: Math.max(...both.map(({ run }) => lengthOf(run, unit))), slots: Math.max(...both.map(({ run }) => slotsOf(run))) };
}

function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const colours = (palette ??= readPalette());
    const axis = axisOf();
    for (const side of both) drawSide(side, axis, colours);
    showMoment();
  });
}

/** @param {Side} side @param {Axis} axis @param {Palette} palette */
function drawSide({ canvas, run, size, parts }, axis, palette) {
  const g = canvas.getContext("2d", { alpha: false });
  if (!size.width || !g) return;
  const scale = window.devicePixelRatio || 1;
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.fillStyle = palette.well;
  g.fillRect(0, 0, size.width, size.height);
  g.font = palette.font;
  g.textBaseline = "middle";
  parts.empty.hidden = run !== null;
  if (!run) return;
  const ended = unit === "steps" ? `all finished after ${count(run.steps.length)} steps` : `all finished at ${seconds(lengthOf(run, "time"))}`;
  drawRun(g, size, run, axis, palette, ended);
  canvas.setAttribute("aria-label", `Slots over ${unit}, ${ended}`);
}

/** @param {Side} side @param {number} clientX */
function pointTo(side, clientX) {
  const { left } = side.canvas.getBoundingClientRect();
  const axis = axisOf();
  if (axis.span) moveTo((valueAt(clientX - left, side.size.width, axis) / axis.span) * PLACES);
}

/** @param {number} place */
function moveTo(place) {
  moment.value = String(place);
  showMoment();
}

/** The line over both pictures, and what each side did at that moment. */
function showMoment() {
  const axis = axisOf();
  const value = (Number(moment.value) / PLACES) * axis.span;
  const words = unit === "steps" ? `step ${count(Math.floor(value))}` : seconds(value);
  write(byId("at"), words);
  moment.setAttribute("aria-valuetext", [words, ...both.map(({ id, run }) => run && `${id.toUpperCase()}: ${momentWords(run, value)}`)].filter(Boolean).join("; "));
  for (const { run, parts, size } of both) {
    parts.cursor.hidden = !run;
    parts.cursor.style.left = `${xOf(value, size.width, axis)}px`;
    write(parts.moment, run ? momentWords(run, value) : "");
  }
}

/** @param {Run} run @param {number} value */
function momentWords(run, value) {
  const at = unit === "steps" ? (run.steps[Math.min(Math.floor(value), run.steps.length) - 1]?.accepted_us ?? startOf(run)) : startOf(run) + value;
  const { running, waiting, finished } = run.moments[countUpTo(run.moments, at, (each) => each.at) - 1] ?? { running: 0, waiting: 0, finished: 0 };
  return `${count(running)} running, ${count(waiting)} waiting, ${count(finished)} of ${count(run.arrivals.length)} finished`;
}

// -- the page ------------------------------------------------------------------------------------

byId("theme").addEventListener("click", theme.toggle);
moment.addEventListener("input", showMoment);
for (const radio of findAll(document, "input[name=unit]", HTMLInputElement)) {
  radio.addEventListener("change", () => {
    unit = radio.value === "steps" ? "steps" : "time";
    draw();
  });
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input, select, textarea")) return;
  const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
  if (by) moveTo(Number(moment.value) + by * (event.shiftKey ? PLACES / 20 : PLACES / 200));
  else if (event.key.toLowerCase() === "t") theme.toggle();
  else return;
  event.preventDefault();
});

const wanted = new URLSearchParams(location.search);
const [engine, ghost] = [wanted.get("engine"), wanted.get("ghost")];
for (const { engines } of both) if (engines && engine !== null) engines.value = engine;
if (ghost !== null) {
  sides.b.ghost.value = ghost;
  takeGhost(sides.b, engine ?? sides.b.engines?.value ?? "", ghost);
} else {
  takeDemo(sides.a, "static");
  takeDemo(sides.b, "continuous");
}

/** For tests and the curious: read only. */
/** @type {any} */ (window).compare = Object.freeze({
  numbers: () => Object.fromEntries(both.map(({ id, run }) => [id, run && numbersOf(run)])),
  ready: () => both.every(({ run, parts }) => run !== null && parts.busy.textContent === ""),
});
