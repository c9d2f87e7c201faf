/**
 * A large pool as tiles: one for every so many blocks in a row, filled from the bottom with the shares of what they
 * hold, in the order of the strip below the picture: prompt tokens, generated tokens, room reserved for more, cached
 * and idle, free. How many blocks a tile stands for is a power of two, so that all tiles fit and can be told apart.
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

/** Blocks that a tile stands for, in a picture of this size in CSS pixels. */
export function tileSize({ width, height }, total) {
  const room = Math.max(1, Math.min(MOST_TILES, Math.floor(width / PITCH) * Math.floor(height / PITCH)));
  let each = 16;
  while (Math.ceil(total / each) > room) each *= 2;
  return each;
}

/**
 * @param {Object<string, any>} state
 * @param {import("./kv_fill.js").Fill} fill
 * @param {number} each blocks a tile
 * @param {Set<number>} lit
 * @returns {Tile[]}
 */
export function readTiles(state, fill, each, lit) {
  const { total } = state.blocks;
  const tiles = [];
  for (let first = 0; first < total; first += each) tiles.push(readTile(state.blocks, fill, first, Math.min(each, total - first)));
  for (const id of lit) if (id < total) tiles[Math.floor(id / each)].lit += 1;
  return tiles;
}

/** @returns {Tile} */
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
  let inks = /** @type {ReturnType<typeof inksOf> | null} */ (null);
  let setting = "";

  return {
    /** @param {CanvasRenderingContext2D} g @param {Tile[]} tiles @returns {import("./kv_cells.js").Grid} where they are */
    draw(g, tiles, { state, palette, lit }, scale) {
      const grid = gridOf(g.canvas, tiles.length, scale, LARGEST);
      const now = `${g.canvas.width} ${g.canvas.height} ${tiles.length} ${scale} ${palette.well} ${palette.prefill}`;
      if (now !== setting) {
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

/** How high each part reaches, in pixels from the bottom; what is above the last is free. @param {Tile} tile */
function levelsOf({ count, referenced, idle, tokens, prompt }, size, side) {
  return [prompt / size, tokens / size, referenced, referenced + idle].map((blocks) => Math.round((side * blocks) / count));
}

/** The same as one number. @param {Tile} tile */
function lookOf({ count, referenced, idle, tokens, prompt }, size, side) {
  const level = (blocks) => Math.round((side * blocks) / count);
  return level(prompt / size) + 512 * (level(tokens / size) + 512 * (level(referenced) + 512 * level(referenced + idle)));
}

function paint(pixels, x, y, side, [prompt, tokens, reserved, idle], ink, well, line) {
  pixels.rect(x, y, side, side, well);
  const part = (from, to) => [x, y + side - to, side, to - from];
  if (side > idle) frame(pixels, part(idle, side), ink.free, line);
  if (idle > reserved) {
    const box = part(reserved, idle);
    pixels.hatch(...box, ink.cached, 4 * line, line);
    frame(pixels, box, ink.cached, line);
  }
  if (reserved > tokens) frame(pixels, part(tokens, reserved), ink.prefill, line);
  pixels.rect(...part(prompt, tokens), ink.decode);
  pixels.rect(...part(0, prompt), ink.prefill);
}

/** Hollow, unless it is too thin for that. */
function frame(pixels, [x, y, width, height], colour, line) {
  if (height <= 2 * line) pixels.rect(x, y, width, height, colour);
  else pixels.outline(x, y, width, height, colour, line);
}
