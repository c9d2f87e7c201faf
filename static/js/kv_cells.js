/**
 * The cells of the KV map as pixels. Each cell is painted whole, and only when what it shows has changed; so a
 * frame costs as much as its changes, however large the pool is.
 */

import { ownerHue } from "./owners.js";
import { createPixels, mix } from "./pixels.js";

const LARGEST = 48; // CSS pixels of a cell's pitch
const TINY = 5; // CSS pixels of a cell's side below which it shows no pattern
const FADE = 0.28; // how strong a cell is that is not lit while another is

const FREE = 0;
const CACHED = 1;
const HELD = 2;

export function createCells() {
  const pixels = createPixels();
  let signatures = new Float64Array(0);
  let setting = "";

  return {
    /**
     * @param {CanvasRenderingContext2D} g
     * @param {ReturnType<typeof import("./metrics.js").heldBlocks>} content
     * @returns {Grid} where the cells are
     */
    draw(g, content, view, scale) {
      const { blocks } = view.state;
      const grid = gridOf(g.canvas, blocks.total, scale);
      const now = `${g.canvas.width} ${g.canvas.height} ${blocks.total} ${scale} ${view.palette.well} ${view.palette.prefill}`;
      if (now !== setting) {
        setting = now;
        signatures = new Float64Array(blocks.total).fill(-1);
        pixels.begin(g, view.palette.rgba.well);
      }
      const marks = marksOf(view);
      const inks = inksOf(view.palette.rgba);
      const inner = Math.max(2, grid.side - 2 * Math.max(1, Math.round(scale)));
      for (let id = 0; id < grid.total; id += 1) {
        const cell = cellOf(id, content, view, marks, inner);
        const signature = signatureOf(cell);
        if (signature === signatures[id]) continue;
        signatures[id] = signature;
        paint(pixels, grid, id, cell, inks, scale);
      }
      pixels.end(g);
      return grid;
    },
  };
}

/**
 * @typedef {{pitch: number, side: number, columns: number, total: number}} Grid in device pixels
 * The largest whole-pixel pitch at which every block fits; `total` is how many do.
 */
function gridOf({ width, height }, total, scale) {
  let pitch = Math.min(Math.round(LARGEST * scale), Math.floor(Math.sqrt((width * height) / total)) + 2);
  while (pitch > 2 && Math.floor(width / pitch) * Math.floor(height / pitch) < total) pitch -= 1;
  const gap = pitch >= 14 * scale ? Math.round(3 * scale) : pitch >= 7 * scale ? Math.round(2 * scale) : 1;
  const columns = Math.floor(width / pitch);
  return { pitch, side: pitch - gap, columns, total: Math.min(total, columns * Math.floor(height / pitch)) };
}

/** Which blocks carry a mark: next in line, just evicted, just written. */
function marksOf({ state, lit }) {
  const next = new Map(state.blocks.victims.map((id, i) => [id, i === 0 ? 2 : 1]));
  const evicted = new Set(state.last_step?.evicted ?? []);
  const written = new Map();
  const size = state.blocks.block_size;
  for (const row of state.last_step?.rows ?? []) {
    const table = state.requests[row.request]?.block_table ?? [];
    const strength = lit.any && !lit.requests.has(row.request) ? 1 : 2;
    for (let i = Math.floor((row.computed - row.scheduled) / size); i * size < row.computed && i < table.length; i += 1) {
      written.set(table[i], strength);
    }
  }
  return { next, evicted, written };
}

/** What one cell shows; heights in device pixels. */
function cellOf(id, content, { byOwner, state, lit }, marks, inner) {
  const size = state.blocks.block_size;
  const held = content.get(id);
  return {
    kind: held ? HELD : state.blocks.hashes[id] !== null ? CACHED : FREE,
    full: held ? Math.round((inner * held.tokens) / size) : 0,
    prompt: held ? Math.round((inner * held.prompt) / size) : 0,
    owner: held && byOwner ? ownerHue(held.owners[0]) + 1 : 0,
    shared: held !== undefined && held.owners.length > 1,
    dim: lit.any && !lit.blocks.has(id),
    next: marks.next.get(id) ?? 0,
    evicted: marks.evicted.has(id),
    written: marks.written.get(id) ?? 0,
  };
}

function signatureOf({ kind, full, prompt, owner, shared, dim, next, evicted, written }) {
  const flags = kind + 3 * (next + 3 * (written + 3 * (Number(shared) + 2 * Number(dim) + 4 * Number(evicted))));
  return flags + 1024 * (full + 512 * (prompt + 512 * owner));
}

/** The colours of lit and of dimmed cells. */
function inksOf(rgba) {
  const dim = Object.fromEntries(Object.entries(rgba).map(([name, colour]) => [name, mix(colour, rgba.well, FADE)]));
  return { lit: { ...rgba, free: mix(rgba.idle, rgba.well, 0.62) }, dim: { ...dim, free: mix(rgba.idle, rgba.well, 0.3) }, rgba };
}

function paint(pixels, grid, id, cell, inks, scale) {
  const x = (id % grid.columns) * grid.pitch;
  const y = Math.floor(id / grid.columns) * grid.pitch;
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

/** A cell too small for patterns: one colour, that of most of what it holds. */
function tinyInk({ kind, full, owner, prompt }, ink) {
  if (owner) return ink[`owner${owner - 1}`];
  if (kind === HELD) return full > 2 * prompt ? ink.decode : ink.prefill;
  return kind === CACHED ? ink.cached : ink.free;
}

/** Filled from the bottom: prompt tokens first, generated ones above; by owner in one hue, solid and dotted. */
function paintHeld(pixels, x, y, side, { full, owner, prompt, shared }, ink, line) {
  const inner = side - 2 * line;
  const bottom = y + line + inner;
  const hue = owner ? ink[`owner${owner - 1}`] : null;
  pixels.rect(x + line, bottom - prompt, inner, prompt, hue ?? ink.prefill);
  if (hue) pixels.dots(x + line, bottom - full, inner, full - prompt, hue, 2 * line);
  else pixels.rect(x + line, bottom - full, inner, full - prompt, ink.decode);
  if (shared) pixels.outline(x, y, side, side, ink.cached, 2 * line);
  else pixels.outline(x, y, side, side, hue ?? (prompt < full ? ink.decode : ink.prefill), line);
}
