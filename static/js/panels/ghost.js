/**
 * Other mode: the run that is under way, or was last, beside its ghost under another mode, on one time axis from t = 0.
 * Both are simulated, at one pace; how the run really went is said below.
 * Nothing is simulated before somebody asks for it.
 *
 * @import {Canvas, CanvasPanel, Engine, KnownView, Page, Size, State, View} from "../types.js"
 * @import {Pair} from "../ghost_pair.js"
 *
 * @typedef {Object} Asked          what was asked for last
 * @property {Engine} engine
 * @property {string | null} epoch  that it lived in then
 * @property {number | null} resets of its stage, until then
 * @property {(Pair & {setting: string}) | null} pair
 * @property {boolean} busy
 * @property {string} error         why there is no other pair
 */

import { drawRun, lengthOf, slotsOf } from "../compare_picture.js";
import { seconds } from "../compare_numbers.js";
import { asFarAs } from "../compare_predicted.js";
import { Unavailable } from "../compare_sources.js";
import { find, findAll, show, write } from "../dom.js";
import { askPair, sentence, slotWords, sourceWords, table, titles } from "../ghost_pair.js";
import { CAP_WORDS } from "../marks.js";
import { withQuery } from "../query.js";

/** Its marks. They are written here and not in the page, as a phone's first view has no bytes to spare for them. */
const LEGEND = { prefill: "prompt computed", wrote: "answer written", idle: "idle", wanted: "bolder while somebody waits", notch: "preempted" };
const TITLE = 18;
const APART = 6;

/** @returns {CanvasPanel} */
export function createGhost() {
  let asked = /** @type {Asked | null} */ (null);
  let asking = new AbortController();
  const now = (/** @type {Pick<View, "engine">} */ { engine }) => (isOf(asked, engine) ? asked : null);
  const pairOf = (/** @type {Pick<View, "engine">} */ view) => now(view)?.pair ?? null;

  /** @param {Page} page @param {string} setting */
  async function ask(page, setting) {
    const { engine } = page.view();
    asking.abort();
    if (!engine) return;
    asking = new AbortController();
    /** @type {Asked} */
    const mine = { engine, epoch: engine.epoch, resets: engine.history.resets, pair: now({ engine })?.pair ?? null, busy: true, error: "" };
    asked = mine;
    page.loop.invalidateNow();
    try {
      mine.pair = { ...(await askPair(engine.id, setting, engine.seq, asking.signal)), setting };
    } catch (reason) {
      if (mine !== asked) return;
      if (!(reason instanceof Unavailable)) console.error("a ghost could not be read", reason);
      mine.error = reason instanceof Unavailable ? reason.message : "The simulation cannot be understood.";
    } finally {
      mine.busy = false;
      page.loop.invalidateNow();
    }
  }

  return {
    mount(root, page) {
      const marks = Object.entries(LEGEND).flatMap(([kind, words]) => [keyOf(kind, words), " "]);
      find(root, ".explain").replaceChildren("A row is a slot: ", ...marks.slice(0, -1), `. The line is where all had finished. ${CAP_WORDS}`);
      for (const button of findAll(root, "[data-turn]")) button.addEventListener("click", () => ask(page, button.dataset.turn ?? ""));
    },
    empty(view) {
      if (!view.state) return view.why;
      if (pairOf(view)) return null;
      return now(view)?.busy ? "Simulating…" : "Nothing yet: choose a mode, and what it would make of the last run is simulated.";
    },
    draw(g, size, view) {
      const known = pairOf(view);
      if (known) drawPair(g, size, known, view);
    },
    detail(root, view) {
      const { engine, state, store } = view;
      const known = pairOf(view);
      // The run that is turned over is the newest one, whatever moment is shown.
      for (const button of findAll(root, "[data-turn]")) {
        const words = turnWords(button.dataset.turn ?? "", engine?.state ?? state);
        write(button, words);
        button.setAttribute("aria-pressed", String(known !== null && known.setting === button.dataset.turn && turnWords(known.setting, known.run) === words));
      }
      write(find(root, "[data-busy]"), now(view)?.busy ? "Simulating…" : "");
      write(find(root, ".error"), now(view)?.error ?? "");
      write(find(root, "[data-verdict]"), known ? sentence(known) : "");
      write(find(root, "[data-source]"), known ? sourceWords(known) : "");
      write(find(root, "[data-groups]"), known ? slotWords(known) : "");
      const link = find(root, "a", HTMLAnchorElement);
      const href = withQuery("/compare", { engine: store.name, ghost: known?.setting ?? "batching" });
      if (link.getAttribute("href") !== href) link.href = href;
      show(link, known !== null);
    },
    summary: (view) => {
      const known = pairOf(view);
      return known ? [sentence(known), sourceWords(known), slotWords(known)].filter(Boolean).join(" ") : "No other mode was simulated yet.";
    },
    twin(view) {
      const known = pairOf(view);
      return known ? table(known) : { columns: ["", "A", "B"], rows: [] };
    },
  };
}

/**
 * Whether this was asked of what is there now: of another engine, another life of it, or a stage that was reset since, it
 * says nothing. (Another server makes other engines of the same names.)
 * @param {Pick<Asked, "engine" | "epoch" | "resets"> | null} asked @param {Engine | null} engine
 */
export function isOf(asked, engine) {
  return engine !== null && asked?.engine === engine && asked.epoch === engine.epoch && asked.resets === engine.history.resets;
}

/** What a button simulates: the other one of two. @param {string} setting @param {Pick<State, "config">} state */
export function turnWords(setting, { config }) {
  if (setting === "batching") return config.batching === "static" ? "continuous batching" : "static batching";
  return `chunked prefill ${config.enable_chunked_prefill ? "off" : "on"}`;
}

/** A mark and its meaning, as in templates/_macros.html. @param {string} kind @param {string} words */
function keyOf(kind, words) {
  const key = Object.assign(document.createElement("span"), { className: "key" });
  const swatch = Object.assign(document.createElement("i"), { className: `swatch ${kind}` });
  swatch.setAttribute("aria-hidden", "true");
  key.append(swatch, ` ${words}`);
  return key;
}

/** Two tracks, one axis. @param {Canvas} g @param {Size} size @param {Pair} pair @param {KnownView} view */
function drawPair(g, { width, height }, pair, { palette }) {
  const both = [pair.twin, pair.ghost].map((replay) => asFarAs(replay, pair.run));
  const words = titles(pair);
  const axis = { unit: /** @type {const} */ ("time"), span: Math.max(...both.map((run) => lengthOf(run, "time"))), slots: Math.max(...both.map(slotsOf)) };
  const each = (height - APART) / 2;
  both.forEach((run, i) => {
    g.save();
    g.translate(0, i * (each + APART));
    g.textAlign = "left";
    g.fillStyle = palette.fg;
    g.fillText(i ? words.b : words.a, 4, TITLE / 2);
    g.translate(0, TITLE);
    drawRun(g, { width, height: each - TITLE }, run, axis, palette, seconds(lengthOf(run, "time")));
    g.restore();
  });
}
