/**
 * The KV panel's second picture: block tables. Of the chosen request, a cell for each of its logical blocks in order,
 * with the physical block that holds it; with nobody chosen, a row of small cells for every running request.
 * A cell fills as its tokens are computed; a hatched head says that it was found in the cache, a ring that it is shared.
 *
 * @import {Canvas, Choice, KnownView, Palette, PoolPicture, RequestFacts, Size, State} from "./types.js"
 *
 * @typedef {{requests: number, blocks: number}} More what does not fit
 * @typedef {{request: string, index: number, block: number, x: number, y: number, width: number, height: number}} Cell in CSS pixels
 */

import { plural, requestName } from "./format.js";
import { nearest } from "./kv_cursor.js";
import { cachedTokens } from "./kv_tenure.js";
import { blockWords } from "./kv_words.js";
import { hollow } from "./marks.js";
import { blockInks } from "./owners.js";

const NAME = 44; // CSS pixels for the name before a row
const LARGEST = 56;
const SMALLEST = 15; // of one request's cells
const ROW = { most: 26, least: 9 };
const FADE = 0.28;

/** @returns {PoolPicture & {cells: () => Cell[]}} */
export function createTables() {
  let cells = /** @type {Cell[]} */ ([]);
  /** @type {More} */
  let more = { requests: 0, blocks: 0 };
  /** @param {Pick<Cell, "block">} cell @returns {Choice} */
  const choiceOf = (cell) => ({ kind: "block", id: cell.block });

  return {
    marks: ["ring", "hit"],

    empty(view) {
      if (!view.state) return view.why;
      const [id] = shownRequests(view);
      if (id === undefined) return "No block table: no request runs.";
      return view.state.requests[id]?.block_table.length === 0 ? `${requestName(id)} holds no block: ${whyNone(view.state.requests[id])}` : null;
    },

    draw(g, size, view) {
      cells = [];
      more = { requests: 0, blocks: 0 };
      if (!view.state) return;
      const ids = shownRequests(view);
      if (view.choice?.kind === "request") cells = oneTable(ids[0], view.state, size, more);
      else cells = allTables(ids, view.state, size, more);
      const hits = new Map(ids.map((id) => [id, cachedTokens(id, view) ?? 0]));
      if (view.choice?.kind !== "request") nameRows(g, cells, view);
      const numbered = cells.length > 0 && fits(g, String(view.state.blocks.total - 1), cells[0]);
      for (const cell of cells) drawCell(g, cell, view, hits.get(cell.request) ?? 0, numbered);
    },

    what: ({ choice }) => (choice?.kind === "request" ? `Block table of ${requestName(choice.id)}: logical block above, the physical one that holds it large;` : "A row per running request, its blocks in order;"),
    hit(x, y) {
      const cell = cells.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
      return cell ? { choice: choiceOf(cell), cell } : null;
    },
    hint: ({ cell }, view) => cellWords(cell, view),

    keys: {
      grid: () => ({ columns: 1, total: cells.length }),
      words: (place, view) => (cells[place] ? cellWords(cells[place], view) : ""),
      enter: (place) => cells[place] && choiceOf(cells[place]),
      above: (place, by) => nearest(cells, place, by),
      box: (place) => cells[place],
    },

    summary({ state }) {
      return state ? `Block tables: ${plural(state.queues.running.length, "request")} hold ${plural(state.blocks.counts.referenced, "block")}.` : "Block tables: no data.";
    },

    line({ choice, state }) {
      if (!state) return "";
      const left = more.blocks ? `${more.requests ? `${plural(more.requests, "request")} and ` : ""}${plural(more.blocks, "block")} do not fit the picture; the table has them. ` : "";
      if (choice?.kind !== "request") return `${left}Click a cell to see its block, or choose a request to see its table large.`;
      const table = state.requests[choice.id]?.block_table ?? [];
      if (!table.length) return `${requestName(choice.id)} holds no block.`;
      return `${left}Block table of ${requestName(choice.id)}, logical → physical: ${table.map((block, i) => `${i}→${block}`).join("  ")}`;
    },

    twin(view) {
      const { requests, blocks } = view.state;
      const rows = shownRequests(view).flatMap((id) => {
        const { block_table: table, num_computed_tokens: computed } = requests[id] ?? { block_table: [], num_computed_tokens: 0 };
        const cached = table.length ? cachedTokens(id, view) : null;
        return table.map((block, index) => {
          const tokens = `${tokensOf(index, computed, blocks.block_size)}/${blocks.block_size}`;
          return { choice: choiceOf({ block }), cells: [requestName(id), index, block, tokens, blocks.refs[block], sourceWord(index, cached, blocks.block_size)] };
        });
      });
      return { columns: ["request", "logical", "physical", "tokens", "refs", "from"], rows };
    },

    /** The cells as drawn last, for tests. */
    cells: () => structuredClone(cells),
  };
}

/** The chosen request alone, or all that run. @param {KnownView} view */
function shownRequests({ choice, state }) {
  return choice?.kind === "request" ? [choice.id] : state.queues.running;
}

/** @param {RequestFacts | undefined} request */
function whyNone(request) {
  if (request?.status === "waiting") return request.num_preemptions ? "it was preempted and waits." : "it waits.";
  return "it has ended, and its blocks went back.";
}

// -- where cells are -----------------------------------------------------------------------------

/** One table, as large as it fits, read like text. @param {string} id @param {State} state @param {Size} size @param {More} more @returns {Cell[]} */
function oneTable(id, { requests }, { width, height }, more) {
  const table = requests[id]?.block_table ?? [];
  let pitch = LARGEST;
  while (pitch > SMALLEST && Math.floor(width / pitch) * Math.floor(height / pitch) < table.length) pitch -= 1;
  const columns = Math.max(1, Math.floor(width / pitch));
  const shown = table.slice(0, columns * Math.floor(height / pitch));
  more.blocks = table.length - shown.length;
  return shown.map((block, index) => ({ request: id, index, block, x: (index % columns) * pitch + 1, y: Math.floor(index / columns) * pitch + 1, width: pitch - 4, height: pitch - 4 }));
}

/** A row each. @param {string[]} ids @param {State} state @param {Size} size @param {More} more @returns {Cell[]} */
function allTables(ids, { requests }, { width, height }, more) {
  const high = Math.max(ROW.least, Math.min(ROW.most, Math.floor(height / Math.max(1, ids.length))));
  const rows = ids.slice(0, Math.floor(height / high));
  const longest = Math.max(1, ...rows.map((id) => requests[id].block_table.length));
  const wide = Math.max(5, Math.min(ROW.most, Math.floor((width - NAME) / longest)));
  const columns = Math.max(1, Math.floor((width - NAME) / wide));
  for (const id of ids.slice(rows.length)) more.blocks += requests[id].block_table.length;
  for (const id of rows) more.blocks += Math.max(0, requests[id].block_table.length - columns);
  more.requests = ids.length - rows.length;
  return rows.flatMap((id, row) => requests[id].block_table.slice(0, columns).map((block, index) => ({ request: id, index, block, x: NAME + index * wide, y: row * high + 1, width: wide - 1, height: high - 2 })));
}

// -- drawing -------------------------------------------------------------------------------------

/** @param {Canvas} g @param {Cell[]} cells @param {KnownView} view */
function nameRows(g, cells, { palette, lit }) {
  g.textAlign = "left";
  for (const { request, index, y, height } of cells) {
    if (index !== 0) continue;
    g.font = height < 12 ? palette.smallFont : palette.font;
    g.fillStyle = lit.any && !lit.requests.has(request) ? palette.muted : palette.fg;
    g.fillText(requestName(request), 0, y + height / 2, NAME - 4);
  }
  g.font = palette.font;
}

/** @param {number} index @param {number} computed @param {number} size */
function tokensOf(index, computed, size) {
  return Math.max(0, Math.min(size, computed - index * size));
}

/** Numbers are in all cells or in none. @param {Canvas} g @param {string} text @param {Cell} cell */
function fits(g, text, { width, height }) {
  return height >= 12 && g.measureText(text).width < width - 3;
}

/**
 * @param {Canvas} g @param {Cell} cell @param {KnownView} view
 * @param {number} cached tokens of its request that were found in the cache @param {boolean} numbered
 */
function drawCell(g, cell, view, cached, numbered) {
  const { request, index, block, x, y, width, height } = cell;
  const { state, palette, lit, choice } = view;
  const { block_size: size, refs } = state.blocks;
  const { num_computed_tokens: computed, num_prompt_tokens: asked } = state.requests[request];
  const tokens = tokensOf(index, computed, size);
  const prompt = Math.min(tokens, Math.max(0, asked - index * size));
  const shared = refs[block] > 1;
  const dim = choice?.kind !== "request" && lit.any && !lit.blocks.has(block);
  const inks = blockInks(request, view);
  const level = (/** @type {number} */ of) => Math.round((height * of) / size);
  g.globalAlpha = dim ? FADE : 1;
  g.fillStyle = inks.prompt;
  g.fillRect(x, y + height - level(prompt), width, level(prompt));
  g.fillStyle = inks.answer;
  g.fillRect(x, y + height - level(tokens), width, level(tokens) - level(prompt));
  if ((index + 1) * size <= cached) drawHead(g, x, y, width, Math.max(3, Math.round(height * 0.2)), palette);
  hollow(g, x, y, width, height, shared ? palette.cached : prompt < tokens ? inks.answerLine : inks.promptLine);
  if (shared && width >= 10) hollow(g, x + 1, y + 1, width - 2, height - 2, palette.cached);
  const onFill = tokens * 2 > size && !view.byOwner;
  const ground = view.byOwner ? palette.well : onFill && prompt * 2 <= size ? palette.decode : null; // on a pattern nothing can be read
  if (numbered) drawWords(g, cell, { colour: onFill ? palette.onAccent : palette.fg, ground, sharing: shared ? `×${refs[block]}` : "" }, palette);
  g.globalAlpha = 1;
  if (choice?.kind !== "block" || choice.id !== block) return;
  g.strokeStyle = palette.fg;
  g.lineWidth = 1.5;
  g.strokeRect(x - 0.75, y - 0.75, width + 1.5, height + 1.5);
}

/** Found in the cache. @param {Canvas} g @param {number} x @param {number} y @param {number} width @param {number} height @param {Palette} palette */
function drawHead(g, x, y, width, height, palette) {
  g.fillStyle = palette.well;
  g.fillRect(x, y, width, height);
  g.fillStyle = palette.hatch.cached;
  g.fillRect(x, y, width, height);
}

/**
 * The physical block in the middle; the logical one and how many share it in the corners, where there is room.
 * @param {Canvas} g @param {Cell} cell @param {{colour: string, ground: string | null, sharing: string}} look @param {Palette} palette
 */
function drawWords(g, { index, block, x, y, width, height }, { colour, ground, sharing }, palette) {
  g.textAlign = "center";
  const roomy = height >= 38;
  const [middle, line] = [x + width / 2, y + height / 2 + (roomy ? 4 : 1)];
  const wide = g.measureText(String(block)).width + 4;
  if (ground) {
    g.fillStyle = ground;
    g.fillRect(middle - wide / 2, line - 7, wide, 13);
  }
  g.fillStyle = colour;
  g.fillText(String(block), middle, line);
  if (!roomy) return;
  g.font = palette.smallFont;
  /** @param {string} words @param {number} at @param {"left" | "right"} align @param {number} top */
  const corner = (words, at, align, top) => {
    const wide = g.measureText(words).width + 3;
    g.fillStyle = palette.well;
    g.fillRect(align === "left" ? at : at - wide, top - 5, wide, 11);
    g.fillStyle = palette.fg;
    g.textAlign = align;
    g.fillText(words, align === "left" ? at + 1.5 : at - 1.5, top + 1);
  };
  corner(String(index), x + 2, "left", y + 7);
  if (sharing) corner(sharing, x + width - 2, "right", y + 7);
  g.font = palette.font;
}

// -- words ---------------------------------------------------------------------------------------

/** @param {number} index @param {number | null} cached @param {number} size @returns {"not heard" | "cache" | "computed"} */
function sourceWord(index, cached, size) {
  if (cached === null) return "not heard";
  return (index + 1) * size <= cached ? "cache" : "computed";
}

/** @param {Cell} cell @param {KnownView} view */
function cellWords({ request, index, block }, view) {
  const source = { cache: ", found in the cache", computed: ", computed by it", "not heard": "" }[sourceWord(index, cachedTokens(request, view), view.state.blocks.block_size)];
  return `${requestName(request)}, logical block ${index}${source} → ${blockWords(block, view)}`;
}
