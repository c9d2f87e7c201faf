/**
 * The prefix tree of the pool: a block's parent is the block before it, so blocks that requests share are one trunk and
 * what differs branches off. Blocks in a row without a branch, held by the same requests, are one run. Pure functions.
 *
 * Where a referenced block stands is read off block tables; where a cached idle one stands, off the chain of hashes.
 *
 * @import {Blocks, State} from "./types.js"
 * @import {Link, Links} from "./chain.js"
 * @import {Fill} from "./kv_fill.js"
 *
 * @typedef {{block: number, index: number, parent: number | null, loose: boolean, requests: string[], children: Node[]}} Node a block
 * @typedef {Map<number, Node>} Nodes by block
 * @typedef {Map<string, number>} Order of the requests that run
 *
 * @typedef {Object} Run
 * @property {number} depth      blocks before its first one
 * @property {number[]} blocks   in order
 * @property {string[]} requests that hold them; none: cached and idle
 * @property {number} tokens     kept in them
 * @property {number} prompt     those of them from prompts
 * @property {boolean} loose     blocks before it are gone from the pool
 * @property {Run[]} children
 *
 * @typedef {{runs: Run[], unknown: number[]}} Tree `runs` begin at the root; `unknown` are cached blocks whose place is not known
 *
 * @typedef {{run: Run, row: number, rows: number}} Bar a run, and the rows of leaves that it spans
 * @typedef {{bars: Bar[], rows: number, columns: number, more: {branches: number, blocks: number}}} Layout `columns` in blocks
 */

import { readFill } from "./kv_fill.js";

/** More runs than this are not told apart by anybody. */
export const MOST_RUNS = 400;

/** @param {State} state @param {Links} chain @returns {Tree} */
export function prefixTree(state, chain) {
  const nodes = heldNodes(state);
  const unknown = addIdle(nodes, state.blocks, chain);
  /** @type {Node[]} */
  const roots = [];
  for (const node of nodes.values()) ((node.parent === null ? undefined : nodes.get(node.parent))?.children ?? roots).push(node);
  const fill = readFill(state);
  const order = new Map(state.queues.running.map((id, i) => [id, i]));
  const about = { fill, size: state.blocks.block_size, order };
  return { runs: sorted(roots.map((root) => runFrom(root, about)), order), unknown };
}

/** @param {number} block @param {number} index @param {number | null} parent @param {boolean} loose @returns {Node} */
function nodeOf(block, index, parent, loose) {
  return { block, index, parent, loose, requests: [], children: [] };
}

/** The blocks of all tables. @param {State} state @returns {Nodes} */
function heldNodes({ queues, requests }) {
  /** @type {Nodes} */
  const nodes = new Map();
  for (const id of queues.running) {
    const table = requests[id].block_table;
    for (let i = 0; i < table.length; i += 1) {
      let node = nodes.get(table[i]);
      if (!node) nodes.set(table[i], (node = nodeOf(table[i], i, i ? table[i - 1] : null, false)));
      node.requests.push(id);
    }
  }
  return nodes;
}

/** The cached idle blocks, below the nearest of their predecessors that is there. @param {Nodes} nodes @param {Blocks} blocks @param {Links} chain @returns {number[]} those without a place */
function addIdle(nodes, { hashes, refs }, chain) {
  /** @type {Map<string, number>} */
  const holder = new Map();
  /** @type {Array<{block: number, link: Link}>} */
  const idle = [];
  /** @type {number[]} */
  const unknown = [];
  for (let block = 0; block < refs.length; block += 1) {
    const hash = hashes[block];
    if (hash === null) continue;
    holder.set(hash, block);
    if (refs[block] > 0) continue;
    const link = chain.get(hash);
    if (link) idle.push({ block, link });
    else unknown.push(block);
  }
  const placed = (/** @type {number | undefined} */ block) => block !== undefined && (refs[block] > 0 || chain.has(hashes[block] ?? ""));
  for (const { block, link } of idle) {
    const { parent, index } = link;
    let above = parent;
    while (above !== null && !placed(holder.get(above))) above = chain.get(above)?.parent ?? null;
    const before = above === null ? null : (holder.get(above) ?? null);
    const known = above === null || before === null ? -1 : (nodes.get(before)?.index ?? chain.get(above)?.index);
    nodes.set(block, nodeOf(block, index, before, known !== index - 1));
  }
  return unknown;
}

/** The run that begins with a block, and all that branches off it. @param {Node} first @param {{fill: Fill, size: number, order: Order}} about @returns {Run} */
function runFrom(first, about) {
  const { fill, size, order } = about;
  const idle = first.requests.length === 0;
  /** @type {Run} */
  const run = { depth: first.index, blocks: [], requests: first.requests, tokens: 0, prompt: 0, loose: first.loose, children: [] };
  let node = first;
  for (;;) {
    run.blocks.push(node.block);
    run.tokens += idle ? size : fill.tokens[node.block];
    run.prompt += idle ? 0 : fill.prompt[node.block];
    const [next] = node.children;
    if (node.children.length !== 1 || next.loose || next.requests.length !== first.requests.length) break;
    node = next;
  }
  run.children = sorted(node.children.map((child) => runFrom(child, about)), order);
  return run;
}

/** Most shared first; then in the order in which requests were admitted; cached ones last, long ones before short ones. @param {Run[]} runs @param {Order} order */
function sorted(runs, order) {
  const place = (/** @type {Run} */ { requests }) => order.get(requests[0]) ?? Infinity;
  const cached = (/** @type {Run} */ a, /** @type {Run} */ b) => Number(a.loose) - Number(b.loose) || b.blocks.length - a.blocks.length || a.blocks[0] - b.blocks[0];
  return runs.sort((a, b) => b.requests.length - a.requests.length || (a.requests.length ? place(a) - place(b) : cached(a, b)));
}

/**
 * Where runs are drawn: a row for every leaf, a run as high as what branches off it. What does not fit is counted.
 * @param {Tree} tree @param {number} rows how many fit @param {number} most runs
 * @returns {Layout}
 */
export function layOut({ runs }, rows, most = MOST_RUNS) {
  /** @type {Layout} */
  const laid = { bars: [], rows: 0, columns: 1, more: { branches: 0, blocks: 0 } };
  runs.forEach(place);
  return laid;

  /** @param {Run} run */
  function place(run) {
    if (laid.rows >= rows || laid.bars.length >= most) {
      const left = countBelow(run);
      laid.more.branches += left.branches;
      laid.more.blocks += left.blocks;
      return;
    }
    const bar = { run, row: laid.rows, rows: 1 };
    laid.bars.push(bar);
    laid.columns = Math.max(laid.columns, run.depth + run.blocks.length);
    run.children.forEach(place);
    laid.rows = Math.max(laid.rows, bar.row + 1);
    bar.rows = laid.rows - bar.row;
  }
}

/** @param {Run} run */
function countBelow({ blocks, children }) {
  const total = { branches: children.length ? 0 : 1, blocks: blocks.length };
  for (const child of children) {
    const below = countBelow(child);
    total.branches += below.branches;
    total.blocks += below.blocks;
  }
  return total;
}
