/**
 * Which block follows which. A block's hash is chained: it names all tokens up to its block, so it has one predecessor
 * and one place in the prefix for good, whatever block holds it and at whatever moment. What is learned here therefore
 * never becomes wrong; the oldest of it is forgotten.
 *
 * @import {State, StepFacts} from "./types.js"
 *
 * @typedef {{parent: string | null, index: number}} Link the nearest predecessor that is known, and how many blocks are before it
 * @typedef {Pick<Map<string, Link>, "get" | "has">} Links hash -> link
 * @typedef {ReturnType<typeof createChain>} Chain
 */

/** At least so many of the newest are kept, and at most twice as many. */
export const LINKS_KEPT = 32_768;

export function createChain() {
  /** Two generations: once the younger one is full it becomes the older one. @type {Map<string, Link>} */
  let young = new Map();
  /** @type {Map<string, Link>} */
  let old = new Map();

  return {
    /** `again`: what is known already counts as new. @param {string} hash @param {string | null} parent @param {number} index @param {boolean} again */
    put(hash, parent, index, again) {
      if (young.has(hash)) return;
      const known = old.get(hash);
      if (known && !again) return;
      if (young.size >= LINKS_KEPT) [old, young] = [young, new Map()];
      young.set(hash, known ?? { parent, index });
    },
    /** @param {string} hash */
    get: (hash) => young.get(hash) ?? old.get(hash),
    /** @param {string} hash */
    has: (hash) => young.has(hash) || old.has(hash),
    get size() {
      return young.size + old.size;
    },
    *[Symbol.iterator]() {
      yield* old;
      yield* young;
    },
    clear() {
      young = new Map();
      old = new Map();
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
    if (row.computed % size >= row.scheduled) continue; // as with most rows: no block was filled
    const first = Math.floor((row.computed - row.scheduled) / size);
    const table = requests[row.request].block_table;
    const last = row.phase === "prefill" ? blocks.hashes[table[Math.floor(row.computed / size) - 1]] : null;
    if (last && chain.has(last)) continue; // with its prompt, as it arrived
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
