/**
 * What a pool holds, derived from the folded state as METRICS says. Pure.
 *
 * @import {State} from "./types.js"
 */

import { readFill } from "./kv_fill.js";

/** What the pool holds, in blocks and tokens. @param {State} state */
export function poolUse(state) {
  const { blocks } = state;
  let savedBlocks = 0;
  for (const ref of blocks.refs) if (ref > 1) savedBlocks += ref - 1;
  const fill = readFill(state);
  const tokens = sum(fill.tokens);
  const places = blocks.counts.referenced * blocks.block_size;
  return {
    ...blocks.counts,
    usage: blocks.total ? blocks.counts.referenced / blocks.total : null,
    savedBlocks,
    tokens,
    promptTokens: sum(fill.prompt),
    places,
    fragmentation: places ? (places - tokens) / places : null,
  };
}

/** @param {Uint16Array} values */
function sum(values) {
  let total = 0;
  for (let i = 0; i < values.length; i += 1) total += values[i];
  return total;
}
