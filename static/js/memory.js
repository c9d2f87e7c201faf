/**
 * What an engine's memory holds, in bytes, and what more would fit: sums of what `hello` says and what the state
 * counts, as METRICS defines them. Pure functions; what they say is derived.
 *
 * @import {HelloFacts, State} from "./types.js"
 */

import { poolUse } from "./pool_use.js";

/**
 * The device's memory as parts that add up to `total`; `rest` is everything else on it, free memory included. What is
 * not known is null, and then `total` is what is known.
 * @param {Pick<HelloFacts, "memory" | "device">} hello
 */
export function memoryOf({ memory, device }) {
  const { weights, kv_pool: pool } = memory;
  const activations = memory.activations ?? null;
  const known = weights + pool + (activations ?? 0);
  const rest = device.total_bytes === null ? null : Math.max(0, device.total_bytes - known);
  return { weights, pool, activations, rest, total: known + (rest ?? 0) };
}

/**
 * The pool in bytes: used, cached and free add up to it; of what is used, prompts and answers take their tokens, and
 * the rest is room in pages that were begun.
 * @param {State} state @param {Pick<HelloFacts, "memory">} hello
 */
export function poolOf(state, { memory: { bytes_per_block: page, bytes_per_token: token } }) {
  const { referenced, cached_idle: cached, free, total, tokens, promptTokens } = poolUse(state);
  const [used, prompt, answer] = [referenced * page, promptTokens * token, (tokens - promptTokens) * token];
  return { used, prompt, answer, begun: used - prompt - answer, cached: cached * page, free: free * page, all: total * page };
}

/**
 * Without paging: room for `max_model_len` tokens held in one piece by every running request, and how many of those
 * would fit the pool at all.
 * @param {State} state @param {Pick<HelloFacts, "memory">} hello
 */
export function reservedOf({ queues, config: { max_model_len: longest } }, { memory }) {
  const each = longest * memory.bytes_per_token;
  return { longest, each, running: queues.running.length, bytes: queues.running.length * each, fit: Math.floor(memory.kv_pool / each) };
}

/** Tokens that the running requests have now, on average; null when nothing runs. @param {Pick<State, "queues" | "requests">} state */
export function meanTokens({ queues, requests }) {
  const lengths = queues.running.map((id) => requests[id].num_prompt_tokens + requests[id].num_output_tokens);
  return lengths.length ? lengths.reduce((sum, tokens) => sum + tokens, 0) / lengths.length : null;
}

/** How many more conversations of so many tokens fit, in pages that are free or only cached. @param {Pick<State, "blocks">} state @param {number} tokens */
export function moreThatFit({ blocks: { counts, block_size: size } }, tokens) {
  return Math.floor((counts.free + counts.cached_idle) / Math.ceil(tokens / size));
}
