/** The KV map in words: what a block, a tile and the whole pool hold. Hints, the line of detail, the table and the strip agree. */

import { bytesText, count, percent, plural, requestName } from "./format.js";
import { holdersOf, readFill } from "./kv_fill.js";
import { poolUse } from "./metrics.js";

export function stateWord(id, { blocks }) {
  if (blocks.refs[id] > 1) return "shared";
  if (blocks.refs[id] === 1) return "referenced";
  return blocks.hashes[id] === null ? "free" : "cached, idle";
}

/** "block 7 · referenced · 12 of 16 tokens (prompt), logical block 3 · held by R2". */
export function blockWords(id, { state, history, until }) {
  const holders = holdersOf(state, id);
  const size = state.blocks.block_size;
  const parts = [`block ${count(id)}`, stateWord(id, state)];
  if (holders.length) {
    const fill = readFill(state);
    const [tokens, prompt] = [fill.tokens[id], fill.prompt[id]];
    const kind = prompt === tokens ? "prompt" : prompt === 0 ? "generated" : "prompt and generated";
    parts.push(`${tokens} of ${size} tokens (${kind}), logical block ${holders[0].index}`);
    parts.push(`held by ${holders.map((each) => requestName(each.id)).join(", ")}`);
  }
  const next = state.blocks.victims.indexOf(id);
  if (next >= 0) parts.push(next === 0 ? "next to be handed out" : `to be handed out after ${plural(next, "other block")}`);
  if (state.blocks.hashes[id]) parts.push(`hash ${state.blocks.hashes[id].slice(0, 12)}`);
  const before = (history.owners.get(id) ?? []).filter(({ at }) => at < until).map((owner) => owner.id);
  const earlier = before.filter((owner) => !holders.some((each) => each.id === owner));
  if (earlier.length) parts.push(`earlier ${earlier.map(requestName).join(", ")}`);
  return parts.join(" · ");
}

/** "1,280–1,343". @param {{first: number, count: number}} range */
export function rangeWords(range) {
  return `${count(range.first)}–${count(range.first + range.count - 1)}`;
}

/** How full its referenced blocks are. @param {import("./kv_tiles.js").Tile} tile */
export function filledShare({ tokens, referenced }, size) {
  return referenced ? percent(tokens / (referenced * size)) : "–";
}

/** @param {import("./kv_tiles.js").Tile} tile */
export function tileWords(tile, { state, choice }) {
  const { count: all, referenced, shared, idle, lit } = tile;
  const held = referenced ? `, ${filledShare(tile, state.blocks.block_size)} filled${shared ? `, ${count(shared)} shared` : ""}` : "";
  const parts = [`blocks ${rangeWords(tile)}`, `${count(referenced)} referenced${held}`, `${count(idle)} cached and idle`, `${count(all - referenced - idle)} free`];
  const next = state.blocks.victims[0];
  if (next >= tile.first && next < tile.first + all) parts.push("has the next one to be handed out");
  if (choice && lit) parts.push(`${count(lit)} lit`);
  return parts.join(" · ");
}

/** The line below the picture. @param {{each: number | null, hidden: number}} drawn what of the pool it shows */
export function detailWords(view, { each, hidden }) {
  const { choice, state } = view;
  if (!state) return "";
  if (choice?.kind === "block") return blockWords(choice.id, view);
  if (choice?.kind === "request") {
    const table = state.requests[choice.id]?.block_table ?? [];
    if (!table.length) return `${requestName(choice.id)} holds no block.`;
    return `Block table of ${requestName(choice.id)}, logical → physical: ${table.map((block, i) => `${i}→${block}`).join("  ")}`;
  }
  if (choice?.kind === "step") return "Lit: the blocks that this step wrote into.";
  if (each !== null) return `A tile stands for ${plural(each, "block")} in a row. Click it, or walk there with the arrow keys and press Enter, to see them.`;
  if (hidden > 0) return `The last ${plural(hidden, "block")} do not fit the picture; the strip counts them all.`;
  return "Click a block to see its hash and owners, or a request to see its block table.";
}

/** The strip that sums to 100 %, and what it means in tokens and MiB. */
export function drawStrip(root, view) {
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
