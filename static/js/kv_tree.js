/**
 * The KV panel's third picture: the prefix tree of the pool. The root is on the left, a bar is a run of blocks, as wide
 * as it is long and as high as what branches off it; what requests share is one bar before theirs. Filled: referenced,
 * prompt and answer; hatched: cached and idle, a hit would use it again. A number says how many requests share it.
 *
 * @import {Canvas, Choice, KnownView, Page, Palette, PoolPicture, Size} from "./types.js"
 * @import {Bar, Layout, Run, Tree} from "./prefix_tree.js"
 *
 * @typedef {ReturnType<typeof blockInks>} Inks
 * @typedef {Bar & {x: number, y: number, width: number, height: number}} Box in CSS pixels
 */

import { createPast } from "./chain_past.js";
import { count, plural, requestName } from "./format.js";
import { nearest } from "./kv_cursor.js";
import { hollow } from "./marks.js";
import { blockInks } from "./owners.js";
import { layOut, MOST_RUNS, prefixTree } from "./prefix_tree.js";

const NAME = 58; // CSS pixels for the name behind a leaf
const ROW = { most: 40, least: 15 };
const WIDEST = 44; // CSS pixels a block
const FADE = 0.28;
/** After reading the tree, so many times what that took is left to the rest of the page. */
const REST = 4;

/** @param {Page} page @returns {PoolPicture & {bars: () => Array<Omit<Run, "children"> & Pick<Box, "x" | "y" | "width" | "height">>}} */
export function createTree(page) {
  const past = createPast();
  let boxes = /** @type {Box[]} */ ([]);
  let layout = /** @type {Layout | null} */ (null);
  let tree = /** @type {Tree} */ ({ runs: [], unknown: [] });
  let read = /** @type {unknown[]} */ ([]);
  let due = -Infinity;
  let later = 0;

  /** Read anew only when tables or hashes may have changed; a large pool not at every step. @param {KnownView} view */
  function refresh({ state, history, engine }) {
    const { counts, victims } = state.blocks;
    const now = [state, state.step, state.queues.running.length, counts.referenced, counts.cached_idle, victims, history.chain.size];
    if (now.every((value, i) => value === read[i])) return;
    const began = performance.now();
    if (state === read[0] && began < due) {
      clearTimeout(later);
      later = setTimeout(() => page.loop.invalidate(), due - began);
      return;
    }
    read = now;
    tree = prefixTree(state, history.chain);
    due = performance.now() + REST * (performance.now() - began);
    if (tree.unknown.length) past.ask(engine, () => page.loop.invalidateNow());
  }

  return {
    marks: ["idle", "ring"],

    empty(view) {
      if (!view.state) return view.why;
      refresh(view);
      return tree.runs.length || tree.unknown.length ? null : "No prefix tree: no block is held or cached.";
    },

    draw(g, size, view) {
      boxes = [];
      layout = null;
      if (!view.state) return;
      refresh(view);
      layout = layOut(tree, Math.max(1, Math.floor(size.height / ROW.least)));
      boxes = boxesOf(layout, size);
      for (const box of boxes) drawBox(g, box, view);
      for (const box of boxes) if (isLit(box, view)) outline(g, box, view.palette.fg);
    },

    what: () => "Blocks in a row are a bar, from the first on the left; what is shared comes once. Held:",
    hit(x, y) {
      const box = boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
      return box ? { choice: choiceOf(box.run), run: box.run } : null;
    },
    hint: ({ run }) => `${runWords(run)} · click to choose ${run.requests.length === 1 ? "it" : "its last block"}`,

    keys: {
      grid: () => ({ columns: 1, total: boxes.length }),
      words: (place) => (boxes[place] ? runWords(boxes[place].run) : ""),
      enter: (place) => boxes[place] && choiceOf(boxes[place].run),
      above: (place, by) => nearest(boxes, place, by),
      box: (place) => boxes[place],
    },

    summary({ state }) {
      if (!state) return "Prefix tree: no data.";
      const shared = tree.runs.filter(({ requests }) => requests.length > 1);
      return `Prefix tree: ${plural(tree.runs.length, "beginning")}, ${count(shared.length)} of them shared.${shared.length ? ` Widest: ${runWords(shared[0])}.` : ""}`;
    },

    line({ choice, state }) {
      if (!state || !layout) return "";
      const { branches, blocks } = layout.more;
      const parts = [];
      if (branches) parts.push(`${plural(branches, "more branch", "more branches")} of ${plural(blocks, "block")} do not fit.`);
      if (tree.unknown.length) parts.push(`${plural(tree.unknown.length, "cached block")} from before this page listened: their place is not known.`);
      if (choice?.kind === "request") parts.push(`Lit: the path of ${requestName(choice.id)}.`);
      else parts.push("Click a bar to choose its request, or the last block of what several share.");
      return parts.join(" ");
    },

    twin(view) {
      refresh(view);
      /** @type {import("./table.js").Line[]} */
      const rows = layOut(tree, MOST_RUNS).bars.map(({ run }) => {
        const { depth, blocks, tokens, requests } = run;
        return { choice: choiceOf(run), cells: [depth, blocks.length, count(tokens), requests.map(requestName).join(", "), stateWords(run)] };
      });
      if (tree.unknown.length) rows.push({ cells: ["–", tree.unknown.length, "", "", "cached, place not known"] });
      return { columns: ["depth", "blocks", "tokens", "requests", "state"], rows };
    },

    /** The bars as drawn last, for tests. */
    bars: () => boxes.map(({ run: { children, ...run }, x, y, width, height }) => ({ ...run, x, y, width, height })),
  };
}

/** What a run is part of: its request, or where several hold it or nobody does, its last block. @param {Run} run @returns {Choice} */
function choiceOf({ requests, blocks }) {
  return requests.length === 1 ? { kind: "request", id: requests[0] } : { kind: "block", id: blocks[blocks.length - 1] };
}

// -- where bars are ------------------------------------------------------------------------------

/** @param {Layout} layout @param {Size} size @returns {Box[]} */
function boxesOf({ bars, rows, columns }, size) {
  const high = Math.min(ROW.most, size.height / Math.max(1, rows));
  const wide = Math.min(WIDEST, (size.width - NAME) / columns);
  return bars.map((bar) => {
    const x = Math.round(bar.run.depth * wide);
    const y = Math.round(bar.row * high);
    const end = Math.round((bar.run.depth + bar.run.blocks.length) * wide);
    return { ...bar, x, y, width: Math.max(2, end - x - 2), height: Math.round((bar.row + bar.rows) * high) - y - 2 };
  });
}

// -- drawing -------------------------------------------------------------------------------------

/** @param {Box} box @param {KnownView} view */
function isLit({ run }, { lit }) {
  return lit.any && run.blocks.some((block) => lit.blocks.has(block));
}

/** @param {Canvas} g @param {Box} box @param {string} colour */
function outline(g, { x, y, width, height }, colour) {
  g.strokeStyle = colour;
  g.lineWidth = 1.5;
  g.strokeRect(x - 0.25, y - 0.25, width + 0.5, height + 0.5);
}

/** @param {Canvas} g @param {Box} box @param {KnownView} view */
function drawBox(g, box, view) {
  const { run, x, y, width, height } = box;
  const { palette, lit, state } = view;
  const held = run.requests.length > 0;
  const inks = held ? blockInks(run.requests[0], view) : null;
  g.globalAlpha = lit.any && !isLit(box, view) ? FADE : 1;
  if (run.loose) drawGap(g, box, palette);
  if (inks) drawFill(g, box, inks, palette.well, state.blocks.block_size);
  else {
    g.fillStyle = palette.hatch.cached;
    g.fillRect(x, y, width, height);
  }
  hollow(g, x, y, width, height, inks && run.requests.length === 1 ? (run.prompt < run.tokens ? inks.answerLine : inks.promptLine) : palette.cached);
  if (run.requests.length > 1 && height > 6) hollow(g, x + 1, y + 1, width - 2, height - 2, palette.cached);
  drawLabel(g, box, palette);
  const dim = g.globalAlpha < 1;
  g.globalAlpha = 1;
  if (run.children.length) return;
  g.fillStyle = held && !dim ? palette.fg : palette.muted;
  g.textAlign = "left";
  g.fillText(leafWord(run), x + width + 5, y + height / 2 + 1, NAME - 8);
}

/** Prompt tokens, generated ones, and room; a thin line between blocks where it can be seen. @param {Canvas} g @param {Box} box @param {Inks} inks @param {string} ground @param {number} size */
function drawFill(g, { run, x, y, width, height }, inks, ground, size) {
  const places = run.blocks.length * size;
  const at = (/** @type {number} */ tokens) => Math.round((width * tokens) / places);
  g.fillStyle = inks.prompt;
  g.fillRect(x, y, at(run.prompt), height);
  g.fillStyle = inks.answer;
  g.fillRect(x + at(run.prompt), y, at(run.tokens) - at(run.prompt), height);
  if (width / run.blocks.length < 6) return;
  g.fillStyle = ground;
  for (let i = 1; i < run.blocks.length; i += 1) g.fillRect(x + at(i * size), y, 1, height);
}

/** What came before is gone from the pool. @param {Canvas} g @param {Box} box @param {Palette} palette */
function drawGap(g, { x, y, height }, palette) {
  g.strokeStyle = palette.muted;
  g.lineWidth = 1;
  g.setLineDash([2, 3]);
  g.beginPath();
  g.moveTo(Math.max(0, x - 14), Math.round(y + height / 2) + 0.5);
  g.lineTo(x, Math.round(y + height / 2) + 0.5);
  g.stroke();
  g.setLineDash([]);
}

/** As many words as fit, on a ground of their own. @param {Canvas} g @param {Box} box @param {Palette} palette */
function drawLabel(g, { run, x, y, width, height }, palette) {
  if (height < 11) return;
  const blocks = plural(run.blocks.length, "block");
  const shared = run.requests.length > 1;
  const tries = shared ? [`${blocks} · shared by ${run.requests.length}`, `${blocks} ×${run.requests.length}`, `×${run.requests.length}`] : [blocks, count(run.blocks.length)];
  const words = tries.find((each) => g.measureText(each).width + 10 < width);
  if (!words) return;
  const wide = g.measureText(words).width + 6;
  const high = Math.min(14, height - 2);
  g.fillStyle = palette.well;
  g.fillRect(x + 3, y + (height - high) / 2, wide, high);
  g.fillStyle = palette.fg;
  g.textAlign = "left";
  g.fillText(words, x + 6, y + height / 2 + 1);
}

// -- words ---------------------------------------------------------------------------------------

/** @param {Run} run */
function leafWord({ requests }) {
  if (requests.length === 1) return requestName(requests[0]);
  return requests.length ? plural(requests.length, "request") : "cached";
}

/** @param {Run} run */
function stateWords({ requests, loose }) {
  if (requests.length) return requests.length > 1 ? "shared" : "referenced";
  return loose ? "cached, idle; what came before is gone" : "cached, idle";
}

/** @param {Run} run */
function runWords(run) {
  const { depth, blocks, tokens, requests } = run;
  const place = blocks.length === 1 ? `logical block ${depth}` : `logical blocks ${depth}–${depth + blocks.length - 1}`;
  const parts = [`${place} (${plural(blocks.length, "block")}, ${plural(tokens, "token")})`, stateWords(run)];
  if (requests.length) parts.push(`held by ${requests.map(requestName).join(", ")}`);
  return parts.join(" · ");
}
