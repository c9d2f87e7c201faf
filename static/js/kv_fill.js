/**
 * How full each block is, as typed arrays over the whole pool: read once a frame, without an object per block. It
 * follows from the tables of running requests and from how much of each is computed; a block that several hold is as
 * full as the one that got furthest makes it.
 *
 * @import {State} from "./types.js"
 *
 * @typedef {{tokens: Uint16Array, prompt: Uint16Array}} Fill tokens kept in each block, and those of them from prompts
 */

/** @returns {Fill} */
export function createFill() {
  return { tokens: new Uint16Array(0), prompt: new Uint16Array(0) };
}

/** @param {State} state @param {Fill} fill what was read before, to be used again */
export function readFill(state, fill = createFill()) {
  const { total, block_size: size } = state.blocks;
  if (fill.tokens.length !== total) Object.assign(fill, { tokens: new Uint16Array(total), prompt: new Uint16Array(total) });
  const { tokens, prompt } = fill;
  tokens.fill(0);
  prompt.fill(0);
  for (const id of state.queues.running) {
    const { block_table: table, num_computed_tokens: computed, num_prompt_tokens: asked } = state.requests[id];
    for (let i = 0, before = 0; i < table.length && before < computed; i += 1, before += size) {
      const block = table[i];
      const kept = Math.min(size, computed - before);
      if (kept <= tokens[block]) continue;
      tokens[block] = kept;
      prompt[block] = Math.max(0, Math.min(kept, asked - before));
    }
  }
  return fill;
}

/** Who holds a block, and as which one of theirs: [{id, index}]. @param {State} state @param {number} block */
export function holdersOf(state, block) {
  if (!state.blocks.refs[block]) return [];
  return state.queues.running.map((id) => ({ id, index: state.requests[id].block_table.indexOf(block) })).filter(({ index }) => index >= 0);
}

/** Who holds each of some blocks: block -> ids. @param {State} state @param {Iterable<number>} blocks */
export function ownersOf(state, blocks) {
  /** @type {Map<number, string[]>} */
  const owners = new Map([...blocks].map((block) => [block, []]));
  for (const id of state.queues.running) for (const block of state.requests[id].block_table) owners.get(block)?.push(id);
  return owners;
}
