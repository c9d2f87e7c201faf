/**
 * The one selection: a request, a step (as a column) or a block, shared by every panel.
 * Choosing one thing lights what belongs to it everywhere; choosing it again, or Esc, clears it.
 *
 * @import {History, State} from "./types.js"
 *
 * @typedef {{kind: "request", id: string} | {kind: "step", column: number} | {kind: "block", id: number}} Choice
 * @typedef {ReturnType<typeof createSelection>} Selection
 * @typedef {{any: boolean, requests: Set<string>, blocks: Set<number>, column: number | null}} Lit what a choice lights up
 */

export function createSelection() {
  /** @type {Choice | null} */
  let choice = null;
  /** @type {Set<(choice: Choice | null) => void>} */
  const listeners = new Set();
  const tell = () => listeners.forEach((listener) => listener(choice));
  return {
    get choice() {
      return choice;
    },
    /** @param {Choice | null} next */
    set(next) {
      choice = next && same(choice, next) ? null : next;
      tell();
    },
    clear() {
      if (choice === null) return;
      choice = null;
      tell();
    },
    /** @param {(choice: Choice | null) => void} listener */
    subscribe(listener) {
      listeners.add(listener);
    },
  };
}

/** @param {Choice | null} a @param {Choice | null} b */
export function same(a, b) {
  if (a === null || b === null) return a === b;
  return a.kind === b.kind && keyOf(a) === keyOf(b);
}

/** @param {Choice} choice */
function keyOf(choice) {
  return choice.kind === "step" ? choice.column : choice.id;
}

/**
 * Everything that the choice lights up, looked up once per frame.
 * @param {Choice | null} choice @param {State | null} state @param {History | null} history @param {boolean} out the choice is not in the picture
 * @returns {Lit}
 */
export function lit(choice, state, history, out) {
  /** @type {Lit} */
  const found = { any: choice !== null && !out, requests: new Set(), blocks: new Set(), column: null };
  if (choice === null || state === null) return found;
  if (choice.kind === "request") {
    found.requests.add(choice.id);
    for (const block of state.requests[choice.id]?.block_table ?? []) found.blocks.add(block);
  } else if (choice.kind === "block") {
    found.blocks.add(choice.id);
    for (const request of Object.values(state.requests)) {
      if (request.block_table.includes(choice.id)) found.requests.add(request.id);
    }
  } else {
    lightStep(found, choice.column, state, history);
  }
  return found;
}

/** A step lights its rows' requests and the blocks its tokens went to. @param {Lit} found @param {number} column @param {State} state @param {History | null} history */
function lightStep(found, column, state, history) {
  found.column = column;
  const step = history?.steps.get(column);
  if (!step) return;
  const size = state.blocks.block_size;
  for (const row of step.rows) {
    found.requests.add(row.request);
    const table = state.requests[row.request]?.block_table ?? [];
    const from = Math.floor((row.computed - row.scheduled) / size);
    for (let i = from; i * size < row.computed; i += 1) if (i < table.length) found.blocks.add(table[i]);
  }
}
