/**
 * Other mode: the run that is under way, or was last, beside its ghost under another mode, on one time axis from t = 0.
 * Nothing is simulated before somebody asks for it.
 *
 * @import {Canvas, CanvasPanel, KnownView, Page, Size, State} from "../types.js"
 * @import {Pair} from "../ghost_pair.js"
 */

import { lengthOf, slotsOf, drawRun } from "../compare_picture.js";
import { seconds } from "../compare_numbers.js";
import { Unavailable } from "../compare_sources.js";
import { find, findAll, show, write } from "../dom.js";
import { askPair, sentence, sourceWords, table, titles } from "../ghost_pair.js";
import { withQuery } from "../query.js";

const TITLE = 18;
const APART = 6;

/** @returns {CanvasPanel} */
export function createGhost() {
  /** `of` is the engine that it was asked of: for another one it says nothing. */
  let pair = /** @type {(Pair & {of: string, setting: string}) | null} */ (null);
  let asking = new AbortController();
  let busy = false;
  const pairOf = (/** @type {KnownView} */ { store }) => (pair?.of === store.name ? pair : null);

  /** @param {HTMLElement} root @param {Page} page @param {string} setting */
  async function ask(root, page, setting) {
    const { store, engine } = page.view();
    asking.abort();
    const mine = (asking = new AbortController());
    const error = find(root, ".error");
    error.textContent = "";
    busy = true;
    page.loop.invalidateNow();
    try {
      const found = await askPair(store.name, setting, engine?.seq ?? 0, mine.signal);
      if (mine === asking) pair = { ...found, of: store.name, setting };
    } catch (reason) {
      if (mine !== asking) return;
      if (!(reason instanceof Unavailable)) console.error("a ghost could not be read", reason);
      error.textContent = reason instanceof Unavailable ? reason.message : "The ghost cannot be understood.";
    } finally {
      if (mine === asking) busy = false;
      page.loop.invalidateNow();
    }
  }

  return {
    mount(root, page) {
      for (const button of findAll(root, "[data-turn]")) button.addEventListener("click", () => ask(root, page, button.dataset.turn ?? ""));
    },
    empty(view) {
      if (!view.state) return view.why;
      if (pairOf(view)) return null;
      return busy ? "Simulating…" : "Nothing yet: choose a mode, and what it would make of the last run is simulated.";
    },
    draw(g, size, view) {
      const known = pairOf(view);
      if (known) drawPair(g, size, known, view);
    },
    detail(root, { state, store, ...view }) {
      const known = pairOf({ ...view, state, store });
      for (const button of findAll(root, "[data-turn]")) write(button, turnWords(button.dataset.turn ?? "", state));
      write(find(root, "[data-busy]"), busy ? "Simulating…" : "");
      write(find(root, "[data-verdict]"), known ? sentence(known) : "");
      write(find(root, "[data-source]"), known ? sourceWords(known) : "");
      const link = find(root, "a", HTMLAnchorElement);
      const href = withQuery("/compare", { engine: store.name, ghost: known?.setting ?? "batching" });
      if (link.getAttribute("href") !== href) link.href = href;
      show(link, known !== null);
    },
    summary: (view) => {
      const known = pairOf(view);
      return known ? `${sentence(known)} ${sourceWords(known)}` : "No other mode was simulated yet.";
    },
    twin(view) {
      const known = pairOf(view);
      return known ? table(known) : { columns: ["", "A", "B"], rows: [] };
    },
  };
}

/** What a button simulates: the other one of two. @param {string} setting @param {Pick<State, "config">} state */
export function turnWords(setting, { config }) {
  if (setting === "batching") return config.batching === "static" ? "continuous batching" : "static batching";
  return `chunked prefill ${config.enable_chunked_prefill ? "off" : "on"}`;
}

/** Two tracks, one axis. @param {Canvas} g @param {Size} size @param {Pair} pair @param {KnownView} view */
function drawPair(g, { width, height }, pair, { palette }) {
  const both = [pair.run, pair.ghost];
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
