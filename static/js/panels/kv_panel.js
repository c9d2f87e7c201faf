/**
 * KV pages: one of three pictures of the pool, all pages (kv.js), block tables (kv_tables.js) or the prefix tree
 * (kv_tree.js), and below it the strip that sums to 100 % and the chosen block in words, with the tokens in it.
 *
 * A picture is a panel as in frame.js without `detail`, and {marks: parts of the legend that it needs, what(view): the
 * words before the legend, line(view): those below the picture, keys: its way for the keyboard, see kv_cursor.js}.
 */

import { keepSetting, setting } from "../address.js";
import { show, write } from "../dom.js";
import { plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { createCursor } from "../kv_cursor.js";
import { createTables } from "../kv_tables.js";
import { tokensIn } from "../kv_tenure.js";
import { createTree } from "../kv_tree.js";
import { blockWords, drawStrip } from "../kv_words.js";
import { kv, kvCells, kvTiles } from "./kv.js";

/** @param {any} page @param {any} texts what this viewer may read, see texts.js @returns {Object<string, any>} `close` of its tiles; where the pictures have drawn what */
export function mountKv(page, texts) {
  const root = document.getElementById("panel-kv");
  const canvas = root.querySelector("canvas");
  const pictures = { pages: kv, tables: createTables(), tree: createTree(page) };
  const asked = setting("kv");
  let name = asked !== null && Object.hasOwn(pictures, asked) ? asked : "pages";
  const now = () => pictures[name];

  const cursor = createCursor(canvas, {
    grid: () => now().keys.grid(),
    words: (place) => now().keys.words(place, page.view()),
    enter(place) {
      const choice = now().keys.enter(place);
      if (choice) page.selection.set(choice);
    },
    above: (place, by) => now().keys.above?.(place, by),
    moved: () => page.loop.invalidate(),
  });
  kv.mount(page, cursor);

  function choose(next) {
    name = next;
    keepSetting("kv", name === "pages" ? null : name);
    press();
    page.loop.invalidateNow();
  }

  function press() {
    for (const button of root.querySelectorAll("[data-kv-view]")) button.setAttribute("aria-pressed", String(button.dataset.kvView === name));
  }

  for (const button of root.querySelectorAll("[data-kv-view]")) button.addEventListener("click", () => choose(button.dataset.kvView));
  root.querySelector("[data-kv-close]").addEventListener("click", kv.close);
  press();

  const panel = {
    ...Object.fromEntries(["empty", "hit", "hint", "summary", "twin"].map((part) => [part, (...given) => now()[part](...given)])),
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
      write(root.querySelector("[data-kv-what]"), picture.what(view));
      show(root.querySelector("[data-kv-close]"), picture.opened === true);
      for (const mark of root.querySelectorAll("[data-kv-mark]")) show(mark, picture.marks.includes(mark.dataset.kvMark));
      const block = view.choice?.kind === "block" ? view.choice.id : null;
      write(root.querySelector("[data-kv-line]"), block === null ? picture.line(view) : blockWords(block, view));
      writeTokens(root, block === null ? null : tokensIn(block, view, texts));
    },
  };
  mountPanel("kv", panel, page);
  return { close: kv.close, cells: kvCells, tiles: kvTiles, bars: pictures.tree.bars, table: pictures.tables.cells };
}

/** Where the keyboard stands. */
function ring(g, { x, y, width, height }, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 2.5;
  g.strokeRect(x - 1.25, y - 1.25, width + 2.5, height + 2.5);
}

/** The tokens in a block, each by itself. @param {ReturnType<typeof tokensIn>} held */
function writeTokens(root, held) {
  write(root.querySelector("[data-kv-held]"), held ? heldWords(held) : "");
  const chips = root.querySelector("[data-kv-chips]");
  const pieces = held?.pieces ?? [];
  const said = pieces.map(visible);
  while (chips.children.length > said.length) chips.lastElementChild.remove();
  said.forEach((text, i) => write(chips.children[i] ?? chips.appendChild(document.createElement("span")), text));
}

function heldWords({ prompt, answer, pieces }) {
  const asked = prompt ? `${plural(prompt, "token")} of the prompt` : "";
  const said = answer ? `${plural(answer, "token")} of the answer${pieces === null ? ": text is not shared with this viewer" : ":"}` : "";
  return ` · in it ${[asked, said].filter(Boolean).join(" and ") || "nothing yet"} `;
}

/** A token that can be seen: a line break is a sign, and what wrote nothing by itself a dot. */
function visible(text) {
  return text.replaceAll("\n", "⏎") || "·";
}
