/**
 * Who held a block and when, and which tokens are in it: read off the tenants that the page has seen, their lanes and
 * the texts that it may read.
 *
 * @import {KnownView} from "./types.js"
 *
 * @typedef {{id: string, index: number, from: number, to: number | null}} Tenure columns: the first step and the boundary
 *          at its end; `to` is null while it lasts, at the moment shown
 */

import { holdersOf } from "./kv_fill.js";

/** Newest first. @param {number} block @param {Pick<KnownView, "history" | "until">} view @returns {Tenure[]} */
export function tenures(block, { history, until }) {
  const seen = history.tenants.of(block).filter(({ at }) => at < until);
  return seen.map(({ id, index, at }) => {
    const lane = history.lanes.get(id);
    const stay = lane?.stays.find(({ from, to }) => from <= at && (to === null || to > at));
    const end = stay ? stay.to : (lane?.end?.at ?? at + 1);
    return { id, index, from: at, to: end !== null && end > until ? null : end };
  });
}

/** Tokens of the prompt that a request found in the cache when it last got its slot; null when that was not heard. @param {string} id @param {KnownView} view */
export function cachedTokens(id, { state, history, until }) {
  const stay = history.lanes.get(id)?.stays.findLast(({ from }) => from <= until);
  if (stay?.cached !== undefined) return stay.cached;
  const { num_preemptions: preempted, num_cached_tokens: cached } = state.requests[id];
  return preempted === 0 ? cached : null;
}

/**
 * The tokens in a block: how many of a prompt, how many of an answer, and what the latter wrote.
 * @param {number} block @param {KnownView} view
 * @param {{tokens: (request: string, from: number, to: number) => string[] | null}} texts
 * @returns {{prompt: number, answer: number, pieces: string[] | null} | null} `pieces` is null where the text is not
 *          shared with this viewer; null: it holds none, or nobody knows whose
 */
export function tokensIn(block, view, texts) {
  const { state, history } = view;
  const size = state.blocks.block_size;
  const holders = holdersOf(state, block);
  if (!holders.length && state.blocks.hashes[block] === null) return null;
  const owners = holders.length ? holders : tenures(block, view);
  const owner = owners.find(({ id }) => texts.tokens(id, 0, 0) !== null) ?? owners[0];
  const facts = owner && (state.requests[owner.id] ?? history.lanes.get(owner.id)?.facts);
  if (!facts) return null;
  const first = owner.index * size;
  const end = holders.length ? Math.min(first + size, facts.num_computed_tokens) : first + size; // what is cached is full
  const asked = facts.num_prompt_tokens;
  const [from, to] = [Math.max(0, first - asked), Math.max(0, end - asked)];
  return { prompt: Math.max(0, end - first - (to - from)), answer: to - from, pieces: to > from ? texts.tokens(owner.id, from, to) : [] };
}
