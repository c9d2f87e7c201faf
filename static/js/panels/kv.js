/**
 * KV pages: one cell per block, in id order, never moving. A cell fills from the bottom as its tokens are computed:
 * blue for prompt tokens, amber for generated ones. Hatched = cached and idle, hollow = free, ring and digit = shared.
 * A corner mark names the blocks that would be handed out next, another the block that was just evicted.
 */

import { count, bytesText, percent, plural, requestName } from "../format.js";
import { heldBlocks, poolUse } from "../metrics.js";
import { mix, createPixels } from "../pixels.js";

const LARGEST = 36; // CSS pixels of a cell's pitch
const FADE = 0.28;

const pixels = createPixels();
/** Where each cell was drawn last, in device pixels; tests read the picture by it. */
const drawn = { columns: 0, pitch: 0, side: 0, total: 0 };

export const kv = {
  empty: (view) => (view.state ? null : view.why),

  draw(g, size, view) {
    if (!view.state) return;
    const grid = gridOf(g.canvas, view.state.blocks.total, size.scale);
    Object.assign(drawn, grid);
    const content = heldBlocks(view.state);
    pixels.begin(g, view.palette.rgba.well);
    drawCells(grid, content, view, size.scale);
    pixels.end(g);
    drawOver(g, grid, content, size, view);
  },

  hit(x, y, view, { scale }) {
    if (!view.state || !drawn.pitch) return null;
    const column = Math.floor((x * scale) / drawn.pitch);
    const id = Math.floor((y * scale) / drawn.pitch) * drawn.columns + column;
    if (column >= drawn.columns || id >= drawn.total || id < 0) return null;
    return { choice: { kind: "block", id } };
  },

  hint: ({ choice }, view) => blockWords(choice.id, view),

  summary(view) {
    if (!view.state) return "KV pages: no data.";
    const use = poolUse(view.state);
    return `KV pages: ${use.referenced} of ${use.total} blocks referenced, ${use.cached_idle} cached and idle, ${use.free} free.`;
  },

  detail(root, view) {
    drawStrip(root, view);
    root.querySelector(".detail").textContent = detailWords(view);
  },

  twin(view) {
    const { refs, hashes } = view.state.blocks;
    const content = heldBlocks(view.state);
    const rows = [];
    for (let id = 0; id < refs.length && rows.length < 200; id += 1) {
      if (refs[id] === 0 && hashes[id] === null) continue;
      const held = content.get(id);
      rows.push({
        choice: { kind: "block", id },
        cells: [id, stateWord(id, view.state), held ? held.owners.map(requestName).join(", ") : "", tokensWord(held, view), refs[id], hashes[id]?.slice(0, 12) ?? ""],
      });
    }
    return { columns: ["block", "state", "held by", "tokens", "refs", "hash"], rows };
  },
};

/** Geometry of the cells as drawn last, in device pixels. */
export function kvCells() {
  return Array.from({ length: drawn.total }, (_, block) => ({
    block,
    x: (block % drawn.columns) * drawn.pitch,
    y: Math.floor(block / drawn.columns) * drawn.pitch,
    side: drawn.side,
  }));
}

/** The largest whole-pixel pitch at which every block fits. */
function gridOf({ width, height }, total, scale) {
  let pitch = Math.min(Math.round(LARGEST * scale), Math.floor(Math.sqrt((width * height) / total)) + 2);
  while (pitch > 2 && Math.floor(width / pitch) * Math.floor(height / pitch) < total) pitch -= 1;
  const gap = pitch >= 14 * scale ? Math.round(3 * scale) : pitch >= 7 * scale ? Math.round(2 * scale) : 1;
  return { pitch, side: pitch - gap, columns: Math.floor(width / pitch), total };
}

const clamp = (value, most) => Math.max(0, Math.min(most, value));

// -- drawing -------------------------------------------------------------------------------------

function drawCells(grid, content, view, scale) {
  const { rgba } = view.palette;
  const { blocks } = view.state;
  const faint = Object.fromEntries(Object.entries(rgba).map(([name, colour]) => [name, mix(colour, rgba.well, FADE)]));
  const free = mix(rgba.idle, rgba.well, 0.62);
  const freeFaint = mix(rgba.idle, rgba.well, 0.3);
  const line = Math.max(1, Math.round(scale));
  for (let id = 0; id < grid.total; id += 1) {
    const x = (id % grid.columns) * grid.pitch;
    const y = Math.floor(id / grid.columns) * grid.pitch;
    const dim = view.lit.any && !view.lit.blocks.has(id);
    const colours = dim ? faint : rgba;
    const held = content.get(id);
    if (held) drawHeld(x, y, grid.side, held, blocks.block_size, colours, line);
    else if (blocks.hashes[id] !== null) {
      pixels.hatch(x, y, grid.side, grid.side, colours.cached, Math.max(4, Math.round(5 * scale)), Math.max(1, Math.round(1.6 * scale)));
      pixels.outline(x, y, grid.side, grid.side, colours.cached, line);
    } else pixels.outline(x, y, grid.side, grid.side, dim ? freeFaint : free, line);
  }
  drawMarks(grid, view, scale);
}

function drawHeld(x, y, side, held, blockSize, colours, line) {
  const inner = side - 2 * line;
  const full = Math.round((inner * held.tokens) / blockSize);
  const prompt = Math.round((inner * held.prompt) / blockSize);
  const bottom = y + line + inner;
  pixels.rect(x + line, bottom - prompt, inner, prompt, colours.prefill);
  pixels.rect(x + line, bottom - full, inner, full - prompt, colours.decode);
  if (held.owners.length > 1) pixels.outline(x, y, side, side, colours.cached, 2 * line);
  else pixels.outline(x, y, side, side, held.prompt < held.tokens ? colours.decode : colours.prefill, line);
}

/** Next to be handed out: top-left corner, the soonest one larger. Evicted by the last step: top-right corner. */
function drawMarks(grid, { state, palette, lit }, scale) {
  const place = (id) => [(id % grid.columns) * grid.pitch, Math.floor(id / grid.columns) * grid.pitch];
  const reach = Math.max(2, Math.round(grid.side * 0.34));
  state.blocks.victims.forEach((id, i) => {
    pixels.corner(...place(id), grid.side, "tl", i === 0 ? Math.round(reach * 1.5) : reach, palette.rgba.muted);
  });
  for (const id of state.last_step?.evicted ?? []) pixels.corner(...place(id), grid.side, "tr", reach, palette.rgba.fault);
  const size = state.blocks.block_size;
  for (const row of state.last_step?.rows ?? []) {
    const colour = lit.any && !lit.requests.has(row.request) ? palette.rgba.idle : palette.rgba.fg;
    const table = state.requests[row.request]?.block_table ?? [];
    for (let i = Math.floor((row.computed - row.scheduled) / size); i * size < row.computed; i += 1) {
      if (i >= table.length) break;
      const [x, y] = place(table[i]);
      const line = Math.max(1, Math.round(scale));
      const inner = grid.side - 2 * line;
      const fill = Math.round((inner * clamp(row.computed - i * size, size)) / size);
      pixels.rect(x, y + line + inner - fill, grid.side, Math.max(1, Math.round(1.5 * scale)), colour);
    }
  }
}

/** Digits and the chosen outline: few, so plain canvas calls do. */
function drawOver(g, grid, content, size, view) {
  const { palette, lit, choice } = view;
  const side = grid.side / size.scale;
  const at = (id) => [((id % grid.columns) * grid.pitch) / size.scale, (Math.floor(id / grid.columns) * grid.pitch) / size.scale];
  g.textAlign = "center";
  g.textBaseline = "middle";
  const table = choice?.kind === "request" ? (view.state.requests[choice.id]?.block_table ?? []) : [];
  const digit = (id, text) => {
    const [x, y] = at(id);
    if (side < 11 || g.measureText(text).width > side - 2) return;
    const width = g.measureText(text).width + 3;
    g.fillStyle = palette.well;
    g.fillRect(x + (side - width) / 2, y + side / 2 - 5.5, width, 11);
    g.fillStyle = palette.fg;
    g.fillText(text, x + side / 2, y + side / 2 + 0.5);
  };
  if (table.length) table.forEach((id, index) => digit(id, String(index)));
  else for (const [id, held] of content) if (held.owners.length > 1) digit(id, String(held.owners.length));
  if (!lit.any) return;
  g.strokeStyle = palette.fg;
  g.lineWidth = 1.5;
  for (const id of lit.blocks) {
    const [x, y] = at(id);
    g.strokeRect(x - 0.75, y - 0.75, side + 1.5, side + 1.5);
  }
}

// -- words ---------------------------------------------------------------------------------------

function stateWord(id, { blocks }) {
  if (blocks.refs[id] > 1) return "shared";
  if (blocks.refs[id] === 1) return "referenced";
  return blocks.hashes[id] === null ? "free" : "cached, idle";
}

function tokensWord(held, { state }) {
  return held ? `${held.tokens}/${state.blocks.block_size}` : "";
}

function blockWords(id, view) {
  const { state, history } = view;
  const held = heldBlocks(state).get(id);
  const parts = [`block ${id}`, stateWord(id, state)];
  if (held) {
    const kind = held.prompt === held.tokens ? "prompt" : held.prompt === 0 ? "generated" : "prompt and generated";
    parts.push(`${held.tokens} of ${state.blocks.block_size} tokens (${kind}), logical block ${held.index}`);
    parts.push(`held by ${held.owners.map(requestName).join(", ")}`);
  }
  const next = state.blocks.victims.indexOf(id);
  if (next >= 0) parts.push(next === 0 ? "next to be handed out" : `${next + 1}th to be handed out`);
  if (state.blocks.hashes[id]) parts.push(`hash ${state.blocks.hashes[id].slice(0, 12)}`);
  const earlier = (history.owners.get(id) ?? []).filter((owner) => !held?.owners.includes(owner));
  if (earlier.length) parts.push(`earlier ${earlier.map(requestName).join(", ")}`);
  return parts.join(" · ");
}

function detailWords(view) {
  const { choice, state } = view;
  if (!state) return "";
  if (choice?.kind === "block") return blockWords(choice.id, view);
  if (choice?.kind === "request") {
    const table = state.requests[choice.id]?.block_table ?? [];
    if (!table.length) return `${requestName(choice.id)} holds no block.`;
    return `Block table of ${requestName(choice.id)}, logical → physical: ${table.map((block, i) => `${i}→${block}`).join("  ")}`;
  }
  return "Click a block to see its hash and owners, or a request to see its block table.";
}

/** The strip that sums to 100 %, and what it means in tokens and MiB. */
function drawStrip(root, view) {
  const strip = root.querySelector(".strip");
  strip.hidden = !view.state;
  if (!view.state) return;
  const use = poolUse(view.state);
  const bytes = view.hello?.memory.bytes_per_block ?? null;
  const size = view.state.blocks.block_size;
  const parts = { prompt: use.promptTokens / size, answer: (use.tokens - use.promptTokens) / size, empty: (use.places - use.tokens) / size };
  for (const [name, blocks] of Object.entries({ ...parts, cached_idle: use.cached_idle, free: use.free })) {
    const part = strip.querySelector(`[data-part="${name}"]`);
    part.style.flexGrow = String(blocks);
    part.hidden = blocks === 0;
  }
  for (const name of ["referenced", "cached_idle", "free"]) {
    const figure = root.querySelector(`[data-figure="${name}"]`);
    const amount = bytes === null ? "" : ` · ${bytesText(use[name] * bytes)}`;
    figure.textContent = `${percent(use[name] / use.total)} · ${plural(use[name], "block")}${amount}`;
  }
  const saved = use.savedBlocks ? `${plural(use.savedBlocks, "block")}${bytes === null ? "" : `, ${bytesText(use.savedBlocks * bytes)}`}` : "nothing";
  root.querySelector('[data-figure="tokens"]').textContent = `${count(use.tokens)} tokens in ${count(use.places)} places`;
  root.querySelector('[data-figure="saved"]').textContent = saved;
}
