/**
 * Prefill chunks: which of how many a prompt's chunk was, since the request got its slot. How many there are is known
 * once the last one is computed. Pure.
 *
 * @import {History, Lane} from "./types.js"
 */

import { rowOf } from "./rows.js";

/**
 * @param {Lane} lane
 * @param {Pick<History, "steps" | "last">} history
 * @returns {Map<number, {n: number, of: number | null}>} by column; no entry where a prompt was computed in one go
 */
export function chunksOf(lane, history) {
  const found = new Map();
  for (const [i, stay] of lane.stays.entries()) {
    if (stay.from < firstOf(history.steps)) continue;
    const end = stay.to ?? history.last + 1;
    const { columns, whole, start } = prefillOf(lane.id, stay.from, end, history);
    const begun = lane.late && i === 0 && start > lane.facts.num_cached_tokens; // before this page knew of it
    if (begun || (whole && columns.length === 1)) continue;
    columns.forEach((column, before) => found.set(column, { n: before + 1, of: whole ? columns.length : null }));
  }
  return found;
}

/** "2/4", "2/…" @param {{n: number, of: number | null}} chunk */
export function chunkWords({ n, of }) {
  return `${n}/${of ?? "…"}`;
}

/** @param {string} request @param {number} from @param {number} end @param {Pick<History, "steps">} history */
function prefillOf(request, from, end, { steps }) {
  const columns = [];
  let start = 0;
  for (let column = Math.floor(from); column < end; column += 1) {
    const row = rowOf(steps.get(column), request);
    if (!row) continue;
    if (row.phase === "decode") return { columns, whole: true, start };
    if (columns.push(column) === 1) start = row.computed - row.scheduled;
    if (row.out > 0) return { columns, whole: true, start };
  }
  return { columns, whole: false, start };
}

/** @param {History["steps"]} steps @returns {number} */
function firstOf(steps) {
  return steps.keys().next().value ?? Infinity;
}
