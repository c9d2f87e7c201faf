/**
 * The cells of the KV map as pixels: a run of blocks, one cell each. What a cell shows is one number; it is painted
 * whole, and only when that number has changed, so a frame costs as much as its changes.
 *
 * @import {Blocks, KnownView} from "./types.js"
 * @import {Fill} from "./kv_fill.js"
 * @import {Pixels} from "./pixels.js"
 *
 * @typedef {Object<string, number>} Ink packed colours by name
 * @typedef {ReturnType<typeof inksOf>} Inks
 * @typedef {ReturnType<typeof cellOf>} Cell
 */

import { ownerHue } from "./owners.js";
import { createPixels, mix } from "./pixels.js";

const LARGEST = 48; // CSS pixels of a cell's pitch
const TINY = 5; // CSS pixels of a cell's side below which it shows no pattern
const FADE = 0.28; // how strong a cell is that is not lit while another is

const FREE = 0;
const CACHED = 1;
const HELD = 2;

// What else a cell says, a bit or two each: `marksOf` sets the lower ones.
const NEXT = 1; // next in line, 2: the very next
const EVICTED = 4;
const WRITTEN = 8; // 16: by what is lit
const SHARED = 32;
const DIM = 64;

export function createCells() {
  const pixels = createPixels();
  let signatures = new Float64Array(0);
  let marks = new Uint8Array(0);
  let owners = new Uint8Array(0);
  let inks = /** @type {Inks | null} */ (null);
  let setting = "";

  return {
    /**
     * @param {CanvasRenderingContext2D} g
     * @param {Fill} fill
     * @param {KnownView} view
     * @param {number} scale
     * @param {{first: number, count: number}} range of blocks
     * @returns {Grid} where the cells are
     */
    draw(g, fill, view, scale, range) {
      const { state, palette, lit } = view;
      const grid = gridOf(g.canvas, range.count, scale, LARGEST);
      const now = `${g.canvas.width} ${g.canvas.height} ${state.blocks.total} ${range.first} ${range.count} ${scale} ${palette.well} ${palette.prefill}`;
      if (!inks || now !== setting) {
        setting = now;
        signatures = new Float64Array(range.count).fill(-1);
        inks = inksOf(palette.rgba);
        pixels.begin(g, palette.rgba.well);
      }
      if (marks.length !== state.blocks.total) marks = new Uint8Array(state.blocks.total);
      mark(marks, view);
      owners = ownersOf(view, owners);
      const inner = Math.max(2, grid.side - 2 * Math.max(1, Math.round(scale)));
      for (let i = 0; i < grid.total; i += 1) {
        const id = range.first + i;
        const flags = marks[id] | (state.blocks.refs[id] > 1 ? SHARED : 0) | (lit.any && !lit.blocks.has(id) ? DIM : 0);
        const signature = signatureOf(id, flags, owners[id] ?? 0, state.blocks, fill, inner);
        if (signature === signatures[i]) continue;
        signatures[i] = signature;
        paint(pixels, grid, i, cellOf(signature), inks, scale);
      }
      pixels.end(g);
      return grid;
    },
  };
}

/**
 * @typedef {{pitch: number, side: number, columns: number, total: number}} Grid in device pixels
 * The largest whole-pixel pitch at which so many fit; `total` is how many do.
 * @param {{width: number, height: number}} size @param {number} total @param {number} scale @param {number} largest
 * @returns {Grid}
 */
export function gridOf({ width, height }, total, scale, largest) {
  let pitch = Math.min(Math.round(largest * scale), Math.floor(Math.sqrt((width * height) / total)) + 2);
  while (pitch > 2 && Math.floor(width / pitch) * Math.floor(height / pitch) < total) pitch -= 1;
  const gap = pitch >= 14 * scale ? Math.round(3 * scale) : pitch >= 7 * scale ? Math.round(2 * scale) : 1;
  const columns = Math.floor(width / pitch);
  return { pitch, side: pitch - gap, columns, total: Math.min(total, columns * Math.floor(height / pitch)) };
}

/** Which blocks carry a mark: next in line, just evicted, just written. @param {Uint8Array} marks @param {KnownView} view */
function mark(marks, { state, lit }) {
  marks.fill(0);
  const { victims, block_size: size } = state.blocks;
  for (let i = victims.length - 1; i >= 0; i -= 1) marks[victims[i]] = i === 0 ? 2 * NEXT : NEXT;
  for (const id of state.last_step?.evicted ?? []) marks[id] |= EVICTED;
  for (const row of state.last_step?.rows ?? []) {
    const table = state.requests[row.request]?.block_table ?? [];
    const written = lit.any && !lit.requests.has(row.request) ? WRITTEN : 2 * WRITTEN;
    for (let i = Math.floor((row.computed - row.scheduled) / size); i * size < row.computed && i < table.length; i += 1) {
      marks[table[i]] = (marks[table[i]] & ~(3 * WRITTEN)) | written;
    }
  }
}

/** By owner: for each block one more than the hue of the first that holds it, 0 for none. Else nothing. @param {KnownView} view @param {Uint8Array<ArrayBuffer>} known */
function ownersOf({ byOwner, state }, known) {
  if (!byOwner) return new Uint8Array(0);
  const owners = known.length === state.blocks.total ? known.fill(0) : new Uint8Array(state.blocks.total);
  for (const id of state.queues.running) {
    const hue = ownerHue(id) + 1;
    for (const block of state.requests[id].block_table) owners[block] ||= hue;
  }
  return owners;
}

/**
 * What one cell shows, in one number; heights in device pixels.
 * @param {number} id @param {number} flags @param {number} owner @param {Blocks} blocks @param {Fill} fill @param {number} inner
 */
function signatureOf(id, flags, owner, { refs, hashes, block_size: size }, { tokens, prompt }, inner) {
  const kind = refs[id] > 0 ? HELD : hashes[id] !== null ? CACHED : FREE;
  const heights = Math.round((inner * tokens[id]) / size) + 512 * Math.round((inner * prompt[id]) / size);
  return flags + 128 * (kind + 4 * (heights + 512 * 512 * owner));
}

/** The same taken apart. @param {number} signature */
function cellOf(signature) {
  const flags = signature % 128;
  const rest = Math.floor(signature / 128);
  const heights = Math.floor(rest / 4);
  return {
    kind: rest % 4,
    full: heights % 512,
    prompt: Math.floor(heights / 512) % 512,
    owner: Math.floor(heights / (512 * 512)),
    shared: (flags & SHARED) > 0,
    dim: (flags & DIM) > 0,
    next: flags & 3,
    evicted: (flags & EVICTED) > 0,
    written: (flags >> 3) & 3,
  };
}

/** The colours of lit and of dimmed cells. @param {Ink} rgba @returns {{lit: Ink, dim: Ink, rgba: Ink}} */
export function inksOf(rgba) {
  const dim = Object.fromEntries(Object.entries(rgba).map(([name, colour]) => [name, mix(colour, rgba.well, FADE)]));
  return { lit: { ...rgba, free: mix(rgba.idle, rgba.well, 0.62) }, dim: { ...dim, free: mix(rgba.idle, rgba.well, 0.3) }, rgba };
}

/** @param {Pixels} pixels @param {Grid} grid @param {number} i @param {Cell} cell @param {Inks} inks @param {number} scale */
function paint(pixels, grid, i, cell, inks, scale) {
  const x = (i % grid.columns) * grid.pitch;
  const y = Math.floor(i / grid.columns) * grid.pitch;
  const { side } = grid;
  const ink = cell.dim ? inks.dim : inks.lit;
  const line = Math.max(1, Math.round(scale));
  if (side < TINY * scale) {
    pixels.rect(x, y, side, side, tinyInk(cell, ink));
    return;
  }
  pixels.rect(x, y, side, side, inks.rgba.well);
  if (cell.kind === HELD) paintHeld(pixels, x, y, side, cell, ink, line);
  else if (cell.kind === CACHED) {
    pixels.hatch(x, y, side, side, ink.cached, Math.max(4, Math.round(5 * scale)), Math.max(1, Math.round(1.6 * scale)));
    pixels.outline(x, y, side, side, ink.cached, line);
  } else pixels.outline(x, y, side, side, ink.free, line);
  const reach = Math.max(2, Math.round(side * 0.34));
  if (cell.next) pixels.corner(x, y, side, "tl", cell.next === 2 ? Math.round(reach * 1.5) : reach, inks.rgba.muted);
  if (cell.evicted) pixels.corner(x, y, side, "tr", reach, inks.rgba.fault);
  if (cell.written) {
    const thick = Math.max(1, Math.round(1.5 * scale));
    const level = Math.max(y, y + side - line - cell.full - thick); // on top of the fill, never over it
    pixels.rect(x, level, side, thick, cell.written === 2 ? inks.rgba.fg : inks.rgba.idle);
  }
}

/** A cell too small for patterns: one colour, that of most of what it holds. @param {Cell} cell @param {Ink} ink */
function tinyInk({ kind, full, owner, prompt }, ink) {
  if (owner) return ink[`owner${owner - 1}`];
  if (kind === HELD) return full > 2 * prompt ? ink.decode : ink.prefill;
  return kind === CACHED ? ink.cached : ink.free;
}

/** Filled from the bottom: prompt tokens solid, generated ones with holes above; by owner in one hue, solid and dotted. @param {Pixels} pixels @param {number} x @param {number} y @param {number} side @param {Cell} cell @param {Ink} ink @param {number} line */
function paintHeld(pixels, x, y, side, { full, owner, prompt, shared }, ink, line) {
  const inner = side - 2 * line;
  const bottom = y + line + inner;
  const hue = owner ? ink[`owner${owner - 1}`] : null;
  pixels.rect(x + line, bottom - prompt, inner, prompt, hue ?? ink.prefill);
  if (hue) pixels.dots(x + line, bottom - full, inner, full - prompt, hue, 2 * line);
  else {
    pixels.rect(x + line, bottom - full, inner, full - prompt, ink.decode);
    pixels.holes(x + line, bottom - full, inner, full - prompt, ink.well, 2 * line);
  }
  if (shared) pixels.outline(x, y, side, side, ink.cached, 2 * line);
  else pixels.outline(x, y, side, side, hue ?? (prompt < full ? ink.decode : ink.prefill), line);
}
