/**
 * The KV map in words: what a block, a tile and the whole pool hold. Hints, the line of detail, the table and the strip agree.
 *
 * @import {KnownView, State, View} from "./types.js"
 * @import {Tenure} from "./kv_tenure.js"
 * @import {Tile} from "./kv_tiles.js"
 */

import { find, write } from "./dom.js";
import { count, percent, plural, requestName } from "./format.js";
import { holdersOf, readFill } from "./kv_fill.js";
import { stepNumber } from "./history.js";
import { tenures } from "./kv_tenure.js";
import { poolUse } from "./pool_use.js";
import { bytesText } from "./quantities.js";

/** Earlier owners of a block that are told. */
const EARLIER = 4;

/** @param {number} id @param {Pick<State, "blocks">} state */
export function stateWord(id, { blocks }) {
  if (blocks.refs[id] > 1) return "shared";
  if (blocks.refs[id] === 1) return "referenced";
  return blocks.hashes[id] === null ? "free" : "cached, idle";
}

/** "block 7 · referenced · 12 of 16 tokens (prompt), logical block 3 · held by R2 · for 28 steps". @param {number} id @param {KnownView} view */
export function blockWords(id, view) {
  const { state } = view;
  const holders = holdersOf(state, id);
  const size = state.blocks.block_size;
  const parts = [`block ${count(id)}`, stateWord(id, state)];
  if (holders.length) {
    const fill = readFill(state);
    const [tokens, prompt] = [fill.tokens[id], fill.prompt[id]];
    const kind = prompt === tokens ? "prompt" : prompt === 0 ? "generated" : "prompt and generated";
    parts.push(`${tokens} of ${size} tokens (${kind}), logical block ${holders[0].index}`);
    parts.push(`${plural(holders.length, "reference")}, held by ${holders.map((each) => requestName(each.id)).join(", ")}`);
  }
  const known = tenures(id, view);
  const age = ageWords(known, holders, view);
  if (age) parts.push(age);
  const next = state.blocks.victims.indexOf(id);
  if (next >= 0) parts.push(next === 0 ? "next to be handed out" : `to be handed out after ${plural(next, "other block")}`);
  if (state.blocks.hashes[id]) parts.push(`hash ${state.blocks.hashes[id].slice(0, 12)}`);
  const earlier = known.filter(({ to }) => to !== null).slice(0, EARLIER);
  if (earlier.length) parts.push(`before: ${earlier.reverse().map((tenure) => tenureWords(tenure, view)).join(", then ")}`);
  return parts.join(" · ");
}

/** How long it has been held, or idle, in steps; nothing where that was not heard. @param {Tenure[]} known @param {unknown[]} holders @param {KnownView} view */
function ageWords(known, holders, { column }) {
  const held = known.filter(({ to }) => to === null);
  if (holders.length) return held.length < holders.length ? null : `for ${plural(column + 1 - Math.min(...held.map(({ from }) => from)), "step")}`;
  if (!known.length) return null;
  return `let go ${plural(Math.max(0, column + 1 - Math.max(...known.map(({ to }) => to ?? 0))), "step")} ago`;
}

/** "R3 steps 12–40". @param {Tenure} tenure @param {KnownView} view */
function tenureWords({ id, from, to }, { history }) {
  const [first, last] = [stepNumber(history, from), stepNumber(history, Math.max(from, (to ?? 0) - 1))];
  return `${requestName(id)} ${first === last ? `step ${count(first)}` : `steps ${count(first)}–${count(last)}`}`;
}

/** "1,280–1,343". @param {{first: number, count: number}} range */
export function rangeWords(range) {
  return `${count(range.first)}–${count(range.first + range.count - 1)}`;
}

/** How full its referenced blocks are. @param {Tile} tile @param {number} size */
export function filledShare({ tokens, referenced }, size) {
  return referenced ? percent(tokens / (referenced * size)) : "–";
}

/** @param {Tile} tile @param {KnownView} view */
export function tileWords(tile, { state, choice }) {
  const { count: all, referenced, shared, idle, lit } = tile;
  const held = referenced ? `, ${filledShare(tile, state.blocks.block_size)} filled${shared ? `, ${count(shared)} shared` : ""}` : "";
  const parts = [`blocks ${rangeWords(tile)}`, `${count(referenced)} referenced${held}`, `${count(idle)} cached and idle`, `${count(all - referenced - idle)} free`];
  const next = state.blocks.victims[0];
  if (next >= tile.first && next < tile.first + all) parts.push("has the next one to be handed out");
  if (choice && lit) parts.push(`${count(lit)} lit`);
  return parts.join(" · ");
}

/**
 * The line below the picture.
 * @param {KnownView} view
 * @param {{each: number | null, hidden: number}} drawn what of the pool it shows
 */
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

/** The strip that sums to 100 %, and what it means in tokens and MiB. @param {HTMLElement} root @param {View} view */
export function drawStrip(root, view) {
  const strip = find(root, ".strip");
  strip.hidden = !view.state;
  if (!view.state) return;
  const use = poolUse(view.state);
  const bytes = view.hello?.memory.bytes_per_block ?? null;
  const size = view.state.blocks.block_size;
  const parts = { prompt: use.promptTokens / size, answer: (use.tokens - use.promptTokens) / size, empty: (use.places - use.tokens) / size };
  for (const [name, blocks] of Object.entries({ ...parts, cached_idle: use.cached_idle, free: use.free })) {
    const part = find(strip, `[data-part="${name}"]`);
    part.style.flexGrow = String(blocks);
    part.hidden = blocks === 0;
  }
  const names = /** @type {const} */ (["referenced", "cached_idle", "free"]);
  const shares = shareWords(names.map((name) => use[name]));
  names.forEach((name, i) => {
    write(find(root, `[data-figure="${name}"]`), `${shares[i]} · ${plural(use[name], "block")}`);
    write(find(root, `[data-bytes="${name}"]`), bytes === null ? "" : ` · ${bytesText(use[name] * bytes)}`);
  });
  const saved = use.savedBlocks ? `${plural(use.savedBlocks, "block")}${bytes === null ? "" : `, ${bytesText(use.savedBlocks * bytes)}`}` : "nothing";
  const memory = view.hello?.memory;
  const each = memory?.kv_dtype && memory.kv_dtype !== "none" ? ` of ${count(memory.bytes_per_token - (memory.draft_bytes_per_token ?? 0))} B (${memory.kv_dtype})` : "";
  write(find(root, '[data-figure="tokens"]'), `${count(use.tokens)} in ${count(use.places)} places${each}`);
  write(find(root, '[data-figure="saved"]'), saved);
}

/** Amounts as shares of their sum, in tenths of a per cent that add up to 100 %: what is cut off goes where most of it was. @param {number[]} amounts */
export function shareWords(amounts) {
  const sum = amounts.reduce((total, amount) => total + amount, 0);
  if (sum === 0) return amounts.map(() => percent(0));
  const exact = amounts.map((amount) => (1000 * amount) / sum);
  const tenths = exact.map(Math.floor);
  const order = [...exact.keys()].sort((a, b) => exact[b] - tenths[b] - (exact[a] - tenths[a]));
  const left = 1000 - tenths.reduce((total, each) => total + each, 0);
  for (const i of order.slice(0, left)) tenths[i] += 1;
  return tenths.map((each) => `${each % 10 ? (each / 10).toFixed(1) : each / 10} %`);
}
