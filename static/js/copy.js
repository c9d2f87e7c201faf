/**
 * A copy of a state that the reducer can go on changing without changing the original. What `fold` only ever replaces
 * (a step, a list of victims, the facts of a finished request) is shared, so that a copy costs little; held to that
 * by a test.
 *
 * @import {RequestFacts, State} from "./types.js"
 */

/** @param {State} state @returns {State} */
export function copyState(state) {
  const { blocks, config, finished, queues, requests, totals } = state;
  return {
    ...state,
    config: { ...config },
    queues: { waiting: [...queues.waiting], running: [...queues.running] },
    requests: Object.fromEntries(Object.entries(requests).map(([id, request]) => [id, copyRequest(request)])),
    finished: [...finished],
    blocks: { ...blocks, hashes: blocks.hashes.slice(), refs: blocks.refs.slice(), counts: { ...blocks.counts } },
    totals: { ...totals, finished: { ...totals.finished } },
  };
}

/** @param {RequestFacts} request @returns {RequestFacts} */
function copyRequest(request) {
  if (request.status === "finished") return request;
  return { ...request, block_table: request.block_table.slice() };
}
