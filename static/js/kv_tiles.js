/**
 * A large pool as tiles: one for every so many blocks in a row, filled from the bottom with the shares of what they
 * hold, in the order of the strip below the picture: prompt tokens, generated tokens, room reserved for more, cached
 * and idle, free. How many blocks a tile stands for is a power of two, so that all tiles fit and can be told apart.
 *
 * @import {Blocks, KnownView, Size, State} from "./types.js"
 * @import {Fill} from "./kv_fill.js"
 * @import {Grid, Ink, Inks} from "./kv_cells.js"
 * @import {Pixels} from "./pixels.js"
 *
 * @typedef {[number, number, number, number]} Box x, y, width and height
 *
 * @typedef {Object} Tile
 * @property {number} first      its first block
 * @property {number} count      how many
 * @property {number} referenced blocks
 * @property {number} idle       cached idle blocks
 * @property {number} shared     blocks with more than one owner
 * @property {number} tokens     kept in referenced blocks
 * @property {number} prompt     those of them from prompts
 * @property {number} lit        blocks that the selection lights up
 */

import { gridOf, inksOf } from "./kv_cells.js";
import { createPixels } from "./pixels.js";

/** A pool of more blocks than this is shown as tiles. */
export const MOST_CELLS = 4096;
export const MOST_TILES = 400;
const PITCH = 16; // CSS pixels at least
const LARGEST = 64;

/** Blocks that a tile stands for, in a picture of this size in CSS pixels. @param {Pick<Size, "width" | "height">} size @param {number} total */
export function tileSize({ width, height }, total) {
  const room = Math.max(1, Math.min(MOST_TILES, Math.floor(width / PITCH) * Math.floor(height / PITCH)));
  let each = 16;
  while (Math.ceil(total / each) > room) each *= 2;
  return each;
}

/**
 * @param {State} state
 * @param {Fill} fill
 * @param {number} each blocks a tile
 * @param {Set<number>} lit
 * @returns {Tile[]}
 */
export function readTiles(state, fill, each, lit) {
  const { total } = state.blocks;
  /** @type {Tile[]} */
  const tiles = [];
  for (let first = 0; first < total; first += each) tiles.push(readTile(state.blocks, fill, first, Math.min(each, total - first)));
  for (const id of lit) if (id < total) tiles[Math.floor(id / each)].lit += 1;
  return tiles;
}

/** @param {Blocks} blocks @param {Fill} fill @param {number} first @param {number} count @returns {Tile} */
function readTile({ refs, hashes }, fill, first, count) {
  let referenced = 0;
  let idle = 0;
  let shared = 0;
  let tokens = 0;
  let prompt = 0;
  for (let id = first; id < first + count; id += 1) {
    const ref = refs[id];
    if (ref === 0) {
      if (hashes[id] !== null) idle += 1;
      continue;
    }
    referenced += 1;
    if (ref > 1) shared += 1;
    tokens += fill.tokens[id];
    prompt += fill.prompt[id];
  }
  return { first, count, referenced, idle, shared, tokens, prompt, lit: 0 };
}

export function createTiles() {
  const pixels = createPixels();
  let painted = new Float64Array(0);
  let inks = /** @type {Inks | null} */ (null);
  let setting = "";

  return {
    /** @param {CanvasRenderingContext2D} g @param {Tile[]} tiles @param {KnownView} view @param {number} scale @returns {Grid} where they are */
    draw(g, tiles, { state, palette, lit }, scale) {
      const grid = gridOf(g.canvas, tiles.length, scale, LARGEST);
      const now = `${g.canvas.width} ${g.canvas.height} ${tiles.length} ${scale} ${palette.well} ${palette.prefill}`;
      if (!inks || now !== setting) {
        setting = now;
        painted = new Float64Array(tiles.length).fill(-1);
        inks = inksOf(palette.rgba);
        pixels.begin(g, palette.rgba.well);
      }
      const line = Math.max(1, Math.round(scale));
      for (let i = 0; i < grid.total; i += 1) {
        const dim = lit.any && tiles[i].lit === 0;
        const look = lookOf(tiles[i], state.blocks.block_size, grid.side) * 2 + Number(dim);
        if (painted[i] === look) continue;
        painted[i] = look;
        const [x, y] = [(i % grid.columns) * grid.pitch, Math.floor(i / grid.columns) * grid.pitch];
        paint(pixels, x, y, grid.side, levelsOf(tiles[i], state.blocks.block_size, grid.side), dim ? inks.dim : inks.lit, palette.rgba.well, line);
      }
      pixels.end(g);
      return grid;
    },
  };
}

/** How high each part reaches, in pixels from the bottom; what is above the last is free. @param {Tile} tile @param {number} size @param {number} side @returns {[number, number, number, number]} */
function levelsOf({ count, referenced, idle, tokens, prompt }, size, side) {
  const level = (/** @type {number} */ blocks) => Math.round((side * blocks) / count);
  return [level(prompt / size), level(tokens / size), level(referenced), level(referenced + idle)];
}

/** The same as one number. @param {Tile} tile @param {number} size @param {number} side */
function lookOf({ count, referenced, idle, tokens, prompt }, size, side) {
  const level = (/** @type {number} */ blocks) => Math.round((side * blocks) / count);
  return level(prompt / size) + 512 * (level(tokens / size) + 512 * (level(referenced) + 512 * level(referenced + idle)));
}

/**
 * @param {Pixels} pixels @param {number} x @param {number} y @param {number} side
 * @param {[number, number, number, number]} levels @param {Ink} ink @param {number} well @param {number} line
 */
function paint(pixels, x, y, side, [prompt, tokens, reserved, idle], ink, well, line) {
  pixels.rect(x, y, side, side, well);
  /** @param {number} from @param {number} to @returns {Box} */
  const part = (from, to) => [x, y + side - to, side, to - from];
  if (side > idle) frame(pixels, part(idle, side), ink.free, line);
  if (idle > reserved) {
    const box = part(reserved, idle);
    pixels.hatch(...box, ink.cached, 4 * line, line);
    frame(pixels, box, ink.cached, line);
  }
  if (reserved > tokens) frame(pixels, part(tokens, reserved), ink.prefill, line);
  pixels.rect(...part(prompt, tokens), ink.decode);
  pixels.holes(x + line, y + side - tokens, side - 2 * line, tokens - prompt, well, 2 * line);
  pixels.rect(...part(0, prompt), ink.prefill);
}

/** Hollow, unless it is too thin for that. @param {Pixels} pixels @param {Box} box @param {number} colour @param {number} line */
function frame(pixels, [x, y, width, height], colour, line) {
  if (height <= 2 * line) pixels.rect(x, y, width, height, colour);
  else pixels.outline(x, y, width, height, colour, line);
}
