/**
 * KV pages: one of three pictures of the pool, all pages (kv.js), block tables (kv_tables.js) or the prefix tree
 * (kv_tree.js), and below it the strip that sums to 100 % and the chosen block in words, with the tokens in it.
 *
 * A picture is a panel as in frame.js without `detail`, and {marks: parts of the legend that it needs, what(view): the
 * words before the legend, line(view): those below the picture, keys: its way for the keyboard, see kv_cursor.js}.
 *
 * @import {Canvas, CanvasPanel, KnownView, Page, PoolPicture} from "../types.js"
 */

import { keepSetting, setting } from "../address.js";
import { byId, find, findAll, show, write } from "../dom.js";
import { plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { createCursor } from "../kv_cursor.js";
import { createTables } from "../kv_tables.js";
import { tokensIn } from "../kv_tenure.js";
import { createTree } from "../kv_tree.js";
import { blockWords, drawStrip } from "../kv_words.js";
import { kv, kvCells, kvTiles } from "./kv.js";

/**
 * @param {Page} page
 * @param {{tokens: (request: string, from: number, to: number) => string[] | null}} texts what this viewer may read, see texts.js
 * @returns {import("../types.js").PoolPanel}
 */
export function mountKv(page, texts) {
  const root = byId("panel-kv");
  const canvas = find(root, "canvas");
  const pictures = { pages: kv, tables: createTables(), tree: createTree(page) };
  let name = nameOf(setting("kv"));
  /** @returns {PoolPicture} */
  const now = () => pictures[name];

  const cursor = createCursor(canvas, {
    grid: () => now().keys.grid(),
    words: (place) => now().keys.words(place, /** @type {KnownView} */ (page.view())),
    enter(place) {
      const choice = now().keys.enter(place);
      if (choice) page.selection.set(choice);
    },
    above: (place, by) => now().keys.above?.(place, by),
    moved: () => page.loop.invalidate(),
  });
  kv.mount(page, cursor);

  /** @param {Name} next */
  function choose(next) {
    name = next;
    keepSetting("kv", name === "pages" ? null : name);
    press();
    page.loop.invalidateNow();
  }

  function press() {
    for (const button of findAll(root, "[data-kv-view]")) button.setAttribute("aria-pressed", String(button.dataset.kvView === name));
  }

  for (const button of findAll(root, "[data-kv-view]")) button.addEventListener("click", () => choose(nameOf(button.dataset.kvView)));
  find(root, "[data-kv-close]").addEventListener("click", kv.close);
  press();

  /** @type {CanvasPanel} */
  const panel = {
    empty: (view) => now().empty(view),
    hit: (x, y, view, size) => now().hit(x, y, view, size),
    hint: (hit, view) => now().hint(hit, view),
    summary: (view) => now().summary(view),
    twin: (view) => now().twin(view),
    draw(g, size, view) {
      now().draw(g, size, view);
      const { keys } = now();
      cursor.enable(view.state !== null && keys.grid().total > 0 && (keys.needed?.(view) ?? true));
      const box = cursor.place === null ? null : keys.box(cursor.place, size);
      if (box) ring(g, box, view.palette.fg);
    },
    detail(_, view) {
      const picture = now();
      drawStrip(root, view);
      write(find(root, "[data-kv-what]"), picture.what(view));
      show(find(root, "[data-kv-close]"), picture.opened === true);
      for (const mark of findAll(root, "[data-kv-mark]")) show(mark, picture.marks.includes(mark.dataset.kvMark ?? ""));
      const block = view.choice?.kind === "block" ? view.choice.id : null;
      write(find(root, "[data-kv-line]"), block === null ? picture.line(view) : blockWords(block, view));
      writeTokens(root, block === null ? null : tokensIn(block, view, texts));
    },
  };
  mountPanel("kv", panel, page);
  return { close: kv.close, cells: kvCells, tiles: kvTiles, bars: pictures.tree.bars, table: pictures.tables.cells };
}

/** @typedef {"pages" | "tables" | "tree"} Name */

/** @param {string | null | undefined} text @returns {Name} */
function nameOf(text) {
  return text === "tables" || text === "tree" ? text : "pages";
}

/** Where the keyboard stands. @param {Canvas} g @param {{x: number, y: number, width: number, height: number}} box @param {string} colour */
function ring(g, { x, y, width, height }, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 2.5;
  g.strokeRect(x - 1.25, y - 1.25, width + 2.5, height + 2.5);
}

/** The tokens in a block, each by itself. @param {HTMLElement} root @param {ReturnType<typeof tokensIn>} held */
function writeTokens(root, held) {
  write(find(root, "[data-kv-held]"), held ? heldWords(held) : "");
  const chips = find(root, "[data-kv-chips]");
  const pieces = held?.pieces ?? [];
  const said = pieces.map(visible);
  while (chips.children.length > said.length) chips.lastElementChild?.remove();
  said.forEach((text, i) => write(chips.children[i] ?? chips.appendChild(document.createElement("span")), text));
}

/** @param {NonNullable<ReturnType<typeof tokensIn>>} held */
function heldWords({ prompt, answer, pieces }) {
  const asked = prompt ? `${plural(prompt, "token")} of the prompt` : "";
  const said = answer ? `${plural(answer, "token")} of the answer${pieces === null ? ": text is not shared with this viewer" : ":"}` : "";
  return ` · in it ${[asked, said].filter(Boolean).join(" and ") || "nothing yet"} `;
}

/** A token that can be seen: a line break is a sign, and what wrote nothing by itself a dot. @param {string} text */
function visible(text) {
  return text.replaceAll("\n", "⏎") || "·";
}
