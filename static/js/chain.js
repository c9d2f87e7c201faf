/**
 * Which block follows which. A block's hash is chained: it names all tokens up to its block, so it has one predecessor
 * and one place in the prefix for good, whatever block holds it and at whatever moment. What is learned here therefore
 * never becomes wrong; the oldest of it is forgotten.
 *
 * @import {State, StepFacts} from "./types.js"
 *
 * @typedef {{parent: string | null, index: number}} Link the nearest predecessor that is known, and how many blocks are before it
 * @typedef {Map<string, Link>} Chain hash -> link
 */

export const LINKS_KEPT = 32_768;

/** @returns {Chain} */
export function createChain() {
  return new Map();
}

/** A prompt that arrived: its full blocks, in order. @param {Chain} chain @param {string[]} hashes */
export function learnPrompt(chain, hashes) {
  hashes.forEach((hash, index) => {
    chain.delete(hash); // what is used again is the newest again
    chain.set(hash, { parent: index ? hashes[index - 1] : null, index });
  });
  bound(chain);
}

/** A step was folded: the blocks that its rows have filled. @param {Chain} chain @param {Pick<StepFacts, "rows">} step @param {Pick<State, "requests" | "blocks">} state */
export function learnStep(chain, { rows }, { requests, blocks }) {
  const size = blocks.block_size;
  for (const row of rows) {
    const first = Math.floor((row.computed - row.scheduled) / size);
    if ((first + 1) * size > row.computed) continue; // as with most rows: no block was filled
    const table = requests[row.request].block_table;
    for (let i = first; (i + 1) * size <= row.computed; i += 1) learn(chain, blocks.hashes, table, i);
  }
  bound(chain);
}

/** A state that was met in the middle. @param {Chain} chain @param {Pick<State, "queues" | "requests" | "blocks">} state */
export function learnTables(chain, { queues, requests, blocks }) {
  for (const id of queues.running) {
    const table = requests[id].block_table;
    for (let i = 0; i < table.length; i += 1) learn(chain, blocks.hashes, table, i);
  }
  bound(chain);
}

/** A duplicate has no hash: the link goes to the nearest block before it that has one. @param {Chain} chain @param {Array<string | null>} hashes @param {number[]} table @param {number} index */
function learn(chain, hashes, table, index) {
  const hash = hashes[table[index]] ?? null;
  if (hash === null || chain.has(hash)) return;
  let before = index - 1;
  while (before >= 0 && hashes[table[before]] === null) before -= 1;
  chain.set(hash, { parent: before < 0 ? null : hashes[table[before]], index });
}

/** @param {Chain} chain */
function bound(chain) {
  const old = chain.keys();
  for (let over = chain.size - LINKS_KEPT; over > 0; over -= 1) chain.delete(/** @type {string} */ (old.next().value));
}
