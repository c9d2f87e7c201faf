/**
 * The page, put together: store ← socket, panels ← loop, and what keys and buttons do.
 *
 * @import {Engine, Page, Palette, View} from "./types.js"
 */

import { createAxis } from "./axis.js";
import { createStepPair } from "./step_pair.js";
import { exportRecording, mountControls, moveGate, say, setMark } from "./controls.js";
import { byId, find as findElement } from "./dom.js";
import { mountEmbed } from "./embed.js";
import { mountPanel } from "./frame.js";
import { epochAt } from "./history.js";
import { mountKeys } from "./keys.js";
import { finder, mountLater, NOT_LOADED } from "./later.js";
import { mountLine } from "./lines.js";
import { mountMenu } from "./menu.js";
import { forgetHues, giveHues, mountOwners } from "./owners.js";
import { readPalette } from "./palette.js";
import { createQuiet, watchQuiet } from "./quiet.js";
import { mountPermalink } from "./permalink.js";
import { mountBanner } from "./panels/banner.js";
import { mountHeader } from "./panels/header.js";
import { mountPrompts } from "./panels/prompts.js";
import { mountQueue } from "./panels/queue.js";
import { mountScrubber } from "./panels/scrubber.js";
import { slots } from "./panels/slots.js";
import { timeline } from "./panels/timeline.js";
import { canvasZoom, mountPresenter, toggleFullScreen } from "./presenter.js";
import { createLoop } from "./render.js";
import { createResets } from "./resets.js";
import { createSelection, lit, same } from "./selection.js";
import { connect } from "./socket.js";
import { createStore } from "./store.js";
import { mountTheme } from "./theme.js";
import { mountTimeAxis, TIMED } from "./time_axis.js";
import { createTip } from "./tip.js";
import { createTravel } from "./travel.js";
import { createWatch } from "./watch.js";

/** What a phone or a tablet keeps of the past; other machines keep four times as much (tape.js). */
const HAND_BYTES = 64 * 2 ** 20;

document.documentElement.dataset.js = "on";
const embedded = mountEmbed();

const store = createStore(window.matchMedia("(pointer: coarse)").matches ? { bytes: HAND_BYTES } : {});
store.hub = document.body.dataset.hub ?? null;
store.chosen = document.body.dataset.engine ?? null;
const selection = createSelection();
const watch = createWatch();
const axis = createAxis();
axis.lead = TIMED.find((name) => embedded?.includes(name)) ?? axis.lead;
const quiet = createQuiet();
let palette = /** @type {Palette | null} */ (null);

const theme = mountTheme(() => {
  palette = null;
  loop.invalidateNow();
});

/** What panels draw, looked up once per frame. @returns {View} */
function view() {
  palette ??= readPalette(canvasZoom() * (window.devicePixelRatio || 1));
  const { engine } = store;
  const state = store.shown;
  const choice = selection.choice;
  const last = engine?.history.last ?? 0;
  const quietMs = quiet.ms(store);
  axis.update(last, engine?.history ?? null, quietMs === null ? 0 : 1000 * quietMs);
  const column = store.held?.column ?? last;
  return {
    store,
    engine,
    state,
    hello: engine?.hello ?? null,
    history: engine?.history ?? null,
    last,
    column,
    until: store.until,
    quietMs,
    base: engine ? epochAt(engine.history, column).base : 0,
    why: whyNothing(engine),
    axis,
    palette,
    byOwner: owners.on,
    choice,
    lit: lit(choice, state, engine?.history ?? null, isOut(choice)),
    page,
  };
}

/** Whether a request that is over has left the picture: nothing else need be dim for it. @param {import("./selection.js").Choice | null} choice */
function isOut(choice) {
  const { engine } = store;
  if (choice?.kind !== "request" || !engine) return false;
  const lane = engine.history.lanes.get(choice.id);
  return lane ? lane.end !== null && lane.end.at < axis.span(timedPlot()).from : !(choice.id in (store.shown?.requests ?? {}));
}

/** Why a panel has no data yet. @param {Engine | null} engine */
function whyNothing(engine) {
  if (!engine) return `No data: ${store.chosen === null ? "no engine has connected yet" : `engine ${store.chosen} is not connected`}.`;
  if (engine.about.status === "loading") return "No data yet: the engine is loading its model.";
  if (engine.about.status === "gone") return "No data: the engine was gone before it said anything.";
  return "No data yet: waiting for the engine's first words.";
}

const loop = createLoop(view);
/** @type {Page} */
const page = {
  loop,
  selection,
  axis,
  view,
  tip: createTip(),
  watch,
  /** Panels that are asked for something, once they are mounted (later.js). */
  texts: null,
  latency: null,
  kv: null,
  lanesOut: 0,
  /** The view was moved by hand: it stays where it is until LIVE. */
  onPan: () => travel.panned(),
  goLive,
  showEngine,
  compare: createStepPair({ selection, view, loop }),
};

const travel = createTravel({ store, selection, axis, loop, plot: timedPlot });

mountHeader(page);
const scrubber = mountScrubber({ ...page, travel });
mountBanner(page);
const prompts = mountPrompts(page);
page.texts = prompts.texts;
mountPanel("slots", slots, page, { timed: true });
mountPanel("timeline", timeline, page, { timed: true });
mountQueue(page);
mountControls({ goLive, store });
const later = mountLater(page);
const menu = mountMenu();
const owners = mountOwners(page, menu.button("owner"));
const timeAxis = mountTimeAxis({ axis, loop, view, plot: timedPlot }, menu.button("time"));
const presenter = mountPresenter(menu.button("present"));

mountPermalink({ ...page, goLive: follow, travel, say, showGaps: () => later.load("latency").then(() => page.latency?.show("gaps")) });

/** The moment at which choosing something stopped the view: clearing the choice lets it go on. */
let stoppedAt = /** @type {import("./store.js").Moment | null} */ (null);
selection.subscribe((choice) => {
  travel.stay();
  if (choice?.kind === "step") travel.goTo(choice.column);
  else if (choice) {
    const live = !store.held || store.held === stoppedAt;
    if (!store.held) holdView();
    const stop = () => void (live && (stoppedAt = store.held));
    stop();
    if (choice.kind === "request") travel.seek(choice.id, stop);
  } else if (!choice && store.held && store.held === stoppedAt) follow();
  loop.invalidateNow();
});

/** The axis alone: what is in view grows or shrinks about the moment shown, or about the right edge. @param {number} factor */
function zoom(factor) {
  const plot = timedPlot();
  if (plot.right <= plot.left) return; // no axis is on show
  const x = store.held ? axis.x(store.held.column + 0.5, plot) : plot.right;
  axis.zoom(factor, x, plot, view().last);
  travel.panned();
}

/** The picture that leads the axis: Slots, unless it is not there. */
function timedPlot() {
  return { left: 0, right: findElement(document, `#panel-${axis.lead} canvas`).clientWidth / canvasZoom() - axis.gutter };
}

function holdView() {
  travel.stay();
  store.hold();
  axis.hold();
  loop.invalidateNow();
}

/** Follow the newest step; what is chosen stays chosen. */
function follow() {
  travel.stay();
  store.release();
  axis.follow();
  loop.invalidateNow();
}

/** By hand: a chosen step is let go, for it is the past. */
function goLive() {
  if (selection.choice?.kind === "step") selection.clear();
  follow();
}

/** Another engine in all panels, live: what was chosen and compared is of the one before. @param {string} id */
function showEngine(id) {
  if (id !== store.name) leave();
  store.choose(id);
  quiet.restart();
  if (store.engine) {
    travel.meet(store.engine);
    axis.update(store.engine.history.last, store.engine.history); // what is chosen next is sought along it
  }
  loop.invalidateNow();
}

/** Let go of everything that was chosen. */
function leave() {
  page.compare.put(null);
  selection.clear();
  page.kv?.close();
  follow();
}

/** Whoever moves the engine on wants to see it move. @param {"pause" | "run" | "step"} action */
function move(action) {
  if (action !== "pause") goLive();
  moveGate(action);
}

/** @param {string} text */
async function find(text) {
  const loaded = await finder().catch(() => null);
  if (!loaded) return NOT_LOADED;
  const { choice, why } = loaded.findIn(text, view());
  if (choice && !same(selection.choice, choice)) selection.set(choice);
  return why ?? "";
}

function exportNow() {
  if (store.engine?.state) exportRecording(store.engine.id);
  else say("There is nothing to export yet: no engine has said anything.");
}

const help = byId("help", HTMLDialogElement);
const stage = { present: presenter.toggle, full: toggleFullScreen, owner: owners.toggle, time: timeAxis.toggle, find: mountLine("find", find) };
const controls = { mark: mountLine("mark", setMark), export: exportNow };
menu.mount({ ...stage, ...controls });
byId("live").addEventListener("click", goLive);
byId("theme").addEventListener("click", theme.toggle);
byId("help-open").addEventListener("click", () => help.showModal());
mountKeys({
  toggleHold: () => (store.held ? goLive() : holdView()),
  live: goLive,
  walk: travel.walk,
  jump: scrubber.jump,
  compare: page.compare.mark,
  zoom,
  theme: theme.toggle,
  clear: () => (selection.choice ? selection.clear() : page.kv?.close()),
  ...stage,
  ...(embedded ? {} : controls),
  gate: embedded ? null : () => move(store.engine?.state?.gate.state === "paused" ? "run" : "pause"),
  step: embedded ? null : () => move("step"),
  help: embedded ? null : () => help.showModal(),
});

const resetsAmong = createResets();
connect({
  frame(frame) {
    if (store.hub !== null && frame.hub !== store.hub) startAnew("The server was started anew; what the old one said is gone.");
    const follows = store.apply(frame);
    if (store.engines.size > 1 || store.chosen !== null) later.engines();
    const { engine } = store;
    watch.take(frame, engine);
    quiet.take(frame, engine);
    if (engine?.state) giveHues(engine.state);
    for (const each of resetsAmong(store.engines.values())) startAnew(`The stage${each === engine ? "" : ` of ${each.id}`} was reset.`, each);
    if (engine) travel.meet(engine);
    loop.invalidate();
    return follows;
  },
  text(items) {
    prompts.take(items);
    loop.invalidate();
  },
  took: loop.charge,
  first: loop.first,
  phase(phase) {
    if (store.connection === phase) return; // said with every message
    store.connection = phase;
    loop.invalidateNow();
  },
});

/** What is on the page is over: another server answers, and numbers its requests anew; or an engine's stage was reset. @param {string} why @param {Engine} [engine] */
function startAnew(why, engine) {
  prompts.reset(engine?.id);
  if (!engine) forgetHues();
  if (!engine || engine === store.engine) leave();
  say(why);
}

/** @param {View} view */
function momentOf({ store, column, base, last }) {
  return { live: store.held === null, step: column - base, column, behind: last - column };
}

/** For tests and the curious: read only. */
/** @type {any} */ (window).stepscope = Object.freeze({
  engine: () => store.engine?.id ?? null,
  state: () => structuredClone(store.engine?.state ?? null),
  shown: () => structuredClone(store.shown),
  seq: () => store.engine?.seq ?? 0,
  epoch: () => store.engine?.epoch ?? null,
  connection: () => store.connection,
  choice: () => selection.choice,
  lit: () => {
    const { requests, blocks, ...rest } = view().lit;
    return { requests: [...requests], blocks: [...blocks], ...rest };
  },
  lanes: () => [...(store.engine?.history.lanes.values() ?? [])].map((lane) => structuredClone(lane)),
  finished: () => structuredClone(store.engine?.history.finished ?? []),
  moment: () => momentOf(view()),
  tape: () => ({ ...store.engine?.tape.size }),
  gaps: () => structuredClone(store.engine?.history.gaps ?? []),
  marks: () => structuredClone(store.engine?.history.marks ?? []),
  kvCells: () => page.kv?.cells() ?? [],
  kvTiles: () => page.kv?.tiles() ?? [],
  kvBars: () => page.kv?.bars() ?? [],
  kvTable: () => page.kv?.table() ?? [],
  pending: later.pending,
  rests: () => loop.rests,
  cost: () => structuredClone(loop.cost),
});
watchQuiet({ quiet, store, loop });
loop.invalidate();
