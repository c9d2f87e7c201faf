/**
 * Which block follows which. A block's hash is chained: it names all tokens up to its block, so it has one predecessor
 * and one place in the prefix for good, whatever block holds it and at whatever moment. What is learned here therefore
 * never becomes wrong; the oldest of it is forgotten. What is heard is only put down; it is sorted out once somebody
 * asks, or there is much of it, for few look.
 *
 * @import {State, StepFacts} from "./types.js"
 *
 * @typedef {{parent: string | null, index: number}} Link the nearest predecessor that is known, and how many blocks are before it
 * @typedef {Pick<Map<string, Link>, "get" | "has">} Links hash -> link
 * @typedef {ReturnType<typeof createChain>} Chain
 */

export const LINKS_KEPT = 32_768;

export function createChain() {
  /** @type {Map<string, Link>} */
  const links = new Map();
  /** Not sorted out yet, oldest first. @type {Array<{hash: string, parent: string | null, index: number, again: boolean}>} */
  let heard = [];

  function settle() {
    if (!heard.length) return links;
    for (const { hash, parent, index, again } of heard) {
      if (again) links.delete(hash); // what is used again is the newest again
      if (!links.has(hash)) links.set(hash, { parent, index });
    }
    heard = [];
    const old = links.keys();
    for (let over = links.size - LINKS_KEPT; over > 0; over -= 1) links.delete(/** @type {string} */ (old.next().value));
    return links;
  }

  return {
    /** @param {string} hash @param {string | null} parent @param {number} index @param {boolean} again */
    put(hash, parent, index, again) {
      heard.push({ hash, parent, index, again });
      if (heard.length >= LINKS_KEPT) settle();
    },
    /** @param {string} hash */
    get: (hash) => settle().get(hash),
    /** @param {string} hash */
    has: (hash) => settle().has(hash),
    get size() {
      return settle().size;
    },
    [Symbol.iterator]: () => settle().entries(),
    clear() {
      links.clear();
      heard = [];
    },
  };
}

/** A prompt that arrived: its full blocks, in order. @param {Chain} chain @param {string[]} hashes */
export function learnPrompt(chain, hashes) {
  hashes.forEach((hash, index) => chain.put(hash, index ? hashes[index - 1] : null, index, true));
}

/** A step was folded: the blocks that its rows have filled. @param {Chain} chain @param {Pick<StepFacts, "rows">} step @param {Pick<State, "requests" | "blocks">} state */
export function learnStep(chain, { rows }, { requests, blocks }) {
  const size = blocks.block_size;
  for (const row of rows) {
    const first = Math.floor((row.computed - row.scheduled) / size);
    if ((first + 1) * size > row.computed) continue; // as with most rows: no block was filled
    const table = requests[row.request].block_table;
    for (let i = first; (i + 1) * size <= row.computed && i < table.length; i += 1) learn(chain, blocks.hashes, table, i);
  }
}

/** A state that was met in the middle. @param {Chain} chain @param {Pick<State, "queues" | "requests" | "blocks">} state */
export function learnTables(chain, { queues, requests, blocks }) {
  for (const id of queues.running) {
    const table = requests[id].block_table;
    for (let i = 0; i < table.length; i += 1) learn(chain, blocks.hashes, table, i);
  }
}

/** A duplicate has no hash: the link goes to the nearest block before it that has one. @param {Chain} chain @param {Array<string | null>} hashes @param {number[]} table @param {number} index */
function learn(chain, hashes, table, index) {
  const hash = hashes[table[index]] ?? null;
  if (hash === null) return;
  let before = index - 1;
  while (before >= 0 && hashes[table[before]] === null) before -= 1;
  chain.put(hash, before < 0 ? null : hashes[table[before]], index, false);
}
