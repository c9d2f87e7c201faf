/**
 * The KV panel's first picture, the pages: one cell per block, in id order, never moving. A cell fills from the bottom as
 * its tokens are computed: blue for prompt tokens, amber with holes for generated ones. Hatched = cached and idle, hollow = free, ring and digit = shared.
 * A corner mark names the blocks that would be handed out next, another the block that was just evicted.
 * A pool too large for that is drawn as tiles (kv_tiles.js); a click or Enter opens one, Esc closes it.
 *
 * @import {Canvas, Choice, KnownView, Page, PoolPicture, Size, State} from "../types.js"
 * @import {Cursor} from "../kv_cursor.js"
 * @import {Tile} from "../kv_tiles.js"
 * @import {Line, Twin} from "../table.js"
 */

import { percent, plural, requestName } from "../format.js";
import { createCells } from "../kv_cells.js";
import { createFill, ownersOf, readFill } from "../kv_fill.js";
import { createTiles, MOST_CELLS, readTiles, tileSize } from "../kv_tiles.js";
import { blockWords, detailWords, filledShare, rangeWords, stateWord, tileWords } from "../kv_words.js";
import { poolUse } from "../pool_use.js";

const cells = createCells();
const mosaic = createTiles();
const fill = createFill();
/** Where each cell or tile was drawn last, in device pixels; tests read the picture by it. */
let drawn = { first: 0, columns: 0, pitch: 0, side: 0, total: 0 };
/** The tiles as drawn last; none while blocks are shown one by one. @type {Tile[]} */
let tiles = [];
/** A block of the tile that is open. */
let opened = /** @type {number | null} */ (null);
let cursor = /** @type {Cursor | null} */ (null);
let page = /** @type {Page | null} */ (null);

/** @type {PoolPicture & {mount: (on: Page, keyboard: Cursor) => void, close: () => boolean}} */
export const kv = {
  mount(on, keyboard) {
    page = on;
    cursor = keyboard;
  },

  keys: {
    needed: (view) => view.state.blocks.total > MOST_CELLS,
    grid: () => drawn,
    words: (place, view) => (tiles.length ? tileWords(tiles[place], view) : blockWords(blockAt(place).id, view)),
    enter: (place) => (tiles.length ? open(tiles[place]) : blockAt(place)),
    box: (place, size) => boxOf(place, size),
  },

  empty: (view) => (view.state ? null : view.why),

  draw(g, size, view) {
    if (!view.state) return;
    readFill(view.state, fill);
    if (view.state.blocks.total <= MOST_CELLS) opened = null; // another engine may have a smaller pool
    const range = rangeOf(view.state, size);
    if (range === null) {
      tiles = readTiles(view.state, fill, tileSize(size, view.state.blocks.total), view.lit.blocks);
      drawn = { first: 0, ...mosaic.draw(g, tiles, view, size.scale) };
      drawLitTiles(g, size, view);
    } else {
      tiles = [];
      drawn = { ...cells.draw(g, fill, view, size.scale, range), ...range };
      drawOver(g, size, view);
    }
  },

  hit(x, y, view, { scale }) {
    if (!view.state || !drawn.pitch) return null;
    const column = Math.floor((x * scale) / drawn.pitch);
    const place = Math.floor((y * scale) / drawn.pitch) * drawn.columns + column;
    if (column >= drawn.columns || place >= drawn.total || place < 0) return null;
    return tiles.length ? { tile: tiles[place], act: () => open(tiles[place]) } : { choice: blockAt(place) };
  },

  hint: ({ choice, tile }, view) => (tile ? `${tileWords(tile, view)} · click to open` : blockWords(choice.id, view)),

  summary(view) {
    if (!view.state) return "KV pages: no data.";
    const use = poolUse(view.state);
    return `KV pages: ${use.referenced} of ${use.total} blocks referenced, ${use.cached_idle} cached and idle, ${use.free} free.`;
  },

  get marks() {
    return tiles.length ? ["idle", "free"] : ["idle", "free", "ring", "next", "more"];
  },

  get opened() {
    return opened !== null;
  },

  line(view) {
    const hidden = view.state && !tiles.length && opened === null ? view.state.blocks.total - drawn.total : 0;
    return detailWords(view, { each: tiles[0]?.count ?? null, hidden: drawn.total ? hidden : 0 });
  },

  what: ({ state }) => whatWords(state, tiles[0]?.count ?? null),

  twin: (view) => (tiles.length ? tileTwin(view) : blockTwin(view)),

  /** Back from an open tile to all of them. @returns {boolean} whether one was open */
  close() {
    if (opened === null) return false;
    const was = opened;
    opened = null;
    page?.loop.invalidateNow();
    requestAnimationFrame(() => cursor?.go(Math.max(0, tiles.findLastIndex(({ first }) => first <= was))));
    return true;
  },
};

/** @param {Tile} tile */
function open(tile) {
  opened = tile.first;
  cursor?.go(0);
  page?.loop.invalidateNow();
  return null;
}

/** The blocks that are drawn one by one; null when it is tiles that are drawn. @param {State} state @param {Size} size */
function rangeOf({ blocks: { total } }, size) {
  if (total <= MOST_CELLS) return { first: 0, count: total };
  if (opened === null || opened >= total) return null;
  const each = tileSize(size, total);
  const first = opened - (opened % each);
  return { first, count: Math.min(each, total - first) };
}

/** @param {number} place @returns {Choice & {kind: "block"}} */
function blockAt(place) {
  return { kind: "block", id: drawn.first + place };
}

/** Geometry of the cells as drawn last, in device pixels. */
export function kvCells() {
  return tiles.length ? [] : places().map((place, i) => ({ block: drawn.first + i, ...place }));
}

/** The tiles as drawn last, and where, in device pixels. */
export function kvTiles() {
  return tiles.length ? places().map((place, i) => ({ ...tiles[i], ...place })) : [];
}

function places() {
  return Array.from({ length: drawn.total }, (_, i) => ({ x: (i % drawn.columns) * drawn.pitch, y: Math.floor(i / drawn.columns) * drawn.pitch, side: drawn.side }));
}

// -- drawing -------------------------------------------------------------------------------------

/** A place in the picture, in CSS pixels. @param {number} place @param {Size} size */
function boxOf(place, { scale }) {
  return { x: ((place % drawn.columns) * drawn.pitch) / scale, y: (Math.floor(place / drawn.columns) * drawn.pitch) / scale, width: drawn.side / scale, height: drawn.side / scale };
}

/** @param {Canvas} g @param {Size} size @param {number} place @param {string} colour @param {number} line */
function outline(g, size, place, colour, line) {
  const { x, y, width: side } = boxOf(place, size);
  g.strokeStyle = colour;
  g.lineWidth = line;
  g.strokeRect(x - line / 2, y - line / 2, side + line, side + line);
}

/** Digits and the chosen outline: few, so plain canvas calls do. @param {Canvas} g @param {Size} size @param {KnownView} view */
function drawOver(g, size, view) {
  const { lit, choice, state, byOwner, palette } = view;
  const { refs } = state.blocks;
  const within = (/** @type {number} */ id) => id >= drawn.first && id < drawn.first + drawn.total;
  const table = choice?.kind === "request" ? (state.requests[choice.id]?.block_table ?? []) : [];
  const digit = (/** @type {number} */ id, /** @type {string} */ text) => {
    const reaches = (/** @type {Uint16Array} */ tokens) => tokens[id] * 2 > state.blocks.block_size;
    const onFill = reaches(fill.tokens) && (!lit.any || lit.blocks.has(id));
    const ground = !onFill || reaches(fill.prompt) ? null : byOwner ? palette.well : palette.decode;
    drawDigit(g, size, id - drawn.first, text, onFill && ground !== palette.well ? palette.onAccent : palette.fg, ground);
  };
  g.textAlign = "center";
  if (table.length) table.forEach((id, index) => within(id) && digit(id, String(index)));
  else for (let id = drawn.first; id < drawn.first + drawn.total; id += 1) if (refs[id] > 1) digit(id, String(refs[id]));
  for (const id of lit.blocks) if (within(id)) outline(g, size, id - drawn.first, palette.fg, 1.5);
}

/** @param {Canvas} g @param {Size} size @param {number} place @param {string} text @param {string} colour @param {string | null} ground on a pattern nothing can be read */
function drawDigit(g, size, place, text, colour, ground) {
  const { x, y, width: side } = boxOf(place, size);
  const { width } = g.measureText(text);
  if (side < 13 || width > side - 3) return;
  if (ground) {
    g.fillStyle = ground;
    g.fillRect(x + (side - width) / 2 - 1, y + side / 2 - 6, width + 2, 12);
  }
  g.fillStyle = colour;
  g.fillText(text, x + side / 2, y + side / 2 + 0.5);
}

/** Tiles that have some of the chosen blocks. @param {Canvas} g @param {Size} size @param {KnownView} view */
function drawLitTiles(g, size, { palette }) {
  for (let place = 0; place < drawn.total; place += 1) if (tiles[place].lit) outline(g, size, place, palette.fg, 1.5);
}

// -- words ---------------------------------------------------------------------------------------

/** What stands before the legend. @param {State} state @param {number | null} each */
function whatWords(state, each) {
  const size = plural(state.blocks.block_size, "token");
  if (each !== null) return `A tile is ${plural(each, "page")} (blocks) of ${size}, filled from below:`;
  if (opened !== null) return `Blocks ${rangeWords({ first: drawn.first, count: drawn.total })}, filled from below:`;
  return `A cell is a page (block) of ${size}, filled from below:`;
}

/** @param {KnownView} view @returns {Twin} */
function blockTwin({ state }) {
  const { refs, hashes, block_size: size } = state.blocks;
  const range = { first: drawn.first, last: drawn.first + (opened === null ? state.blocks.total : drawn.total) };
  const known = [...refs.keys()].slice(range.first, range.last).filter((id) => refs[id] > 0 || hashes[id] !== null);
  const owners = ownersOf(state, known);
  readFill(state, fill);
  /** @type {Line[]} */
  const rows = known.sort((a, b) => Number(refs[b] > 0) - Number(refs[a] > 0) || a - b).map((id) => {
    const tokens = refs[id] > 0 ? `${fill.tokens[id]}/${size}` : "";
    const cells = [id, stateWord(id, state), (owners.get(id) ?? []).map(requestName).join(", "), tokens, refs[id], hashes[id]?.slice(0, 12) ?? ""];
    return { choice: { kind: "block", id }, cells };
  });
  if (opened !== null) rows.unshift({ act: kv.close, cells: ["‹ all tiles", "", "", "", "", ""] });
  return { columns: ["block", "state", "held by", "tokens", "refs", "hash"], rows };
}

/** @param {KnownView} view @returns {Twin} */
function tileTwin({ state }) {
  const rows = tiles.map((tile) => {
    const { count, referenced, idle, shared } = tile;
    const cells = [rangeWords(tile), percent(referenced / count), filledShare(tile, state.blocks.block_size), shared, percent(idle / count), percent((count - referenced - idle) / count)];
    return { act: () => open(tile), cells };
  });
  return { columns: ["blocks", "referenced", "filled", "shared", "cached, idle", "free"], rows };
}
