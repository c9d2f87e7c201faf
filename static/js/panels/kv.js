/**
 * KV pages: one cell per block, in id order, never moving. A cell fills from the bottom as its tokens are computed:
 * blue for prompt tokens, amber for generated ones. Hatched = cached and idle, hollow = free, ring and digit = shared.
 * A corner mark names the blocks that would be handed out next, another the block that was just evicted.
 */

import { count, bytesText, percent, plural, requestName } from "../format.js";
import { heldBlocks, poolUse } from "../metrics.js";
import { createCells } from "../kv_cells.js";

const picture = createCells();
/** Where each cell was drawn last, in device pixels; tests read the picture by it. */
let drawn = { columns: 0, pitch: 0, side: 0, total: 0 };

export const kv = {
  empty: (view) => (view.state ? null : view.why),

  draw(g, size, view) {
    if (!view.state) return;
    const content = heldBlocks(view.state);
    drawn = picture.draw(g, content, view, size.scale);
    drawOver(g, drawn, content, size, view);
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
    const known = [...refs.keys()].filter((id) => refs[id] > 0 || hashes[id] !== null);
    const rows = known.sort((a, b) => Number(refs[b] > 0) - Number(refs[a] > 0) || a - b).map((id) => {
      const held = content.get(id);
      const owners = held ? held.owners.map(requestName).join(", ") : "";
      const cells = [id, stateWord(id, view.state), owners, tokensWord(held, view), refs[id], hashes[id]?.slice(0, 12) ?? ""];
      return { choice: { kind: "block", id }, cells };
    });
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

// -- drawing -------------------------------------------------------------------------------------

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
    if (side < 13 || g.measureText(text).width > side - 3) return;
    const onFill = (content.get(id)?.tokens ?? 0) * 2 > view.state.blocks.block_size && (!lit.any || lit.blocks.has(id));
    g.fillStyle = onFill ? palette.onAccent : palette.fg;
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
  const { state, history, until } = view;
  const held = heldBlocks(state).get(id);
  const parts = [`block ${id}`, stateWord(id, state)];
  if (held) {
    const kind = held.prompt === held.tokens ? "prompt" : held.prompt === 0 ? "generated" : "prompt and generated";
    parts.push(`${held.tokens} of ${state.blocks.block_size} tokens (${kind}), logical block ${held.index}`);
    parts.push(`held by ${held.owners.map(requestName).join(", ")}`);
  }
  const next = state.blocks.victims.indexOf(id);
  if (next >= 0) parts.push(next === 0 ? "next to be handed out" : `to be handed out after ${plural(next, "other block")}`);
  if (state.blocks.hashes[id]) parts.push(`hash ${state.blocks.hashes[id].slice(0, 12)}`);
  const before = (history.owners.get(id) ?? []).filter(({ at }) => at < until).map((owner) => owner.id);
  const earlier = before.filter((owner) => !held?.owners.includes(owner));
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
  if (choice?.kind === "step") return "Lit: the blocks that this step wrote into.";
  const hidden = state.blocks.total - drawn.total;
  if (drawn.total && hidden > 0) return `The last ${plural(hidden, "block")} do not fit the picture; the strip counts them all.`;
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
  const memory = view.hello?.memory;
  const each = memory?.kv_dtype && memory.kv_dtype !== "none" ? ` of ${count(memory.bytes_per_token - (memory.draft_bytes_per_token ?? 0))} bytes (${memory.kv_dtype})` : "";
  root.querySelector('[data-figure="tokens"]').textContent = `${count(use.tokens)} tokens in ${count(use.places)} places${each}`;
  root.querySelector('[data-figure="saved"]').textContent = saved;
}
