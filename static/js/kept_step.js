/**
 * A step as it is kept. There are tens of thousands, and whatever is an object of its own costs the browser's collector
 * time over and over: so rows are kept in columns (rows.js), and pairs in a few lists. Both read as what they came as.
 *
 * @import {Event, StepEvent, StepFacts} from "./types.js"
 */

import { packedRows, receivedRows, rowList } from "./rows.js";

/** [block, hash], as two lists. */
class Hashed {
  /** @param {Iterable<[number, string]>} pairs */
  constructor(pairs) {
    const all = [...pairs];
    this.blocks = all.map(([block]) => block);
    this.hashes = all.map(([, hash]) => hash);
  }

  /** @returns {Generator<[number, string], void>} */
  *[Symbol.iterator]() {
    for (let i = 0; i < this.blocks.length; i += 1) yield [this.blocks[i], this.hashes[i]];
  }
}

/** [request, the blocks that were appended to its table], as three lists: the blocks of all of them are one. */
class Tables {
  /** @param {Iterable<[string, number[]]>} pairs */
  constructor(pairs) {
    const all = [...pairs];
    this.requests = all.map(([request]) => request);
    this.counts = all.map(([, blocks]) => blocks.length);
    this.blocks = all.flatMap(([, blocks]) => blocks);
  }

  /** @returns {Generator<[string, number[]], void>} */
  *[Symbol.iterator]() {
    let at = 0;
    for (let i = 0; i < this.requests.length; i += 1) {
      yield [this.requests[i], this.blocks.slice(at, at + this.counts[i])];
      at += this.counts[i];
    }
  }
}

/** @param {StepEvent} step @param {StepFacts["rows"]} rows @returns {StepEvent} */
function keptWith({ tables, hashed, ...step }, rows) {
  return { ...step, rows, tables: new Tables(tables), hashed: new Hashed(hashed) };
}

/** @param {StepEvent} step @param {StepFacts["rows"] | null} [like] the rows of the step before */
export function kept(step, like) {
  return step.tables instanceof Tables ? step : keptWith(step, packedRows(step.rows, like));
}

/**
 * The same of a step as the server sent it; null when it is told by one that is not known here.
 * @param {StepEvent} step @param {Pick<StepFacts, "step" | "rows"> | null} before
 */
export function received(step, before) {
  const rows = receivedRows(step.rows, before);
  return rows && keptWith(step, rows);
}

/** A kept event to be folded. @param {Event} event @returns {Event} */
export function opened(event) {
  if (event.kind !== "step") return event;
  return { ...event, rows: rowList(event.rows), tables: [...event.tables], hashed: [...event.hashed] };
}

/** The same, of an event that is still as it came. @param {Event} event @param {Event} keeps @returns {Event} */
export function openedFrom(event, keeps) {
  return event.kind === "step" && keeps.kind === "step" ? { ...event, rows: rowList(keeps.rows) } : event;
}
