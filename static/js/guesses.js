/**
 * Which parts of the streamed answers were guessed right: text that came with accepted drafts is underlined, with the
 * browser's own highlights, so that an answer stays one text node.
 *
 * A text message comes just before the frame whose steps wrote it. Where an answer gained as many characters as tokens
 * (a byte each), the guessed ones are known one by one: all but the first of each step. Else the
 * piece is marked as a whole, when any of it was guessed.
 */

const NAME = "guessed";
/** Steps of a request kept until their text is there; it may never be, if it is not ours to read. */
const OWED_KEPT = 32;

export function createGuesses() {
  const highlight = typeof Highlight === "function" ? new Highlight() : null;
  if (highlight) CSS.highlights.set(NAME, highlight);
  /** @type {Map<string, {node: Text, from: number, to: number}>} what the last text message added, in UTF-16 units */
  let added = new Map();
  /** @type {Map<string, Set<StaticRange>>} */
  const ranges = new Map();
  /** @type {Map<string, Array<{out: number, accepted: number}>>} steps whose text has not been shown yet */
  const owed = new Map();

  function mark(request, node, from, to) {
    const range = new StaticRange({ startContainer: node, startOffset: from, endContainer: node, endOffset: to });
    highlight.add(range);
    const known = ranges.get(request) ?? new Set();
    ranges.set(request, known.add(range));
  }

  function forget(request) {
    for (const range of ranges.get(request) ?? []) highlight?.delete(range);
    ranges.delete(request);
    owed.delete(request);
  }

  return {
    /** A text message begins: what the one before added is settled. */
    begin() {
      added = new Map();
    },
    /** @param {string} request @param {Text} node @param {number} from @param {number} to */
    add: (request, node, from, to) => added.set(request, { node, from, to }),
    forget,
    reset() {
      for (const request of [...ranges.keys(), ...owed.keys()]) forget(request);
      added = new Map();
    },
    /** The steps of the frame that followed. @param {Array<Object<string, any>>} events */
    credit(events) {
      if (!highlight) return;
      for (const event of events) {
        for (const { request, out, accepted } of event.kind === "step" ? event.rows : []) {
          if (out > 0) owed.set(request, [...(owed.get(request) ?? []), { out, accepted }].slice(-OWED_KEPT));
        }
      }
      for (const [request, { node, from, to }] of added) {
        const [steps, later] = settled(owed.get(request) ?? [], to - from);
        owed.set(request, later);
        for (const [start, stop] of guessedParts(steps, to - from)) mark(request, node, from + start, from + stop);
      }
      added = new Map();
      for (const event of events) if (event.event === "finished") owed.delete(event.request); // its text came before
    },
  };
}

/**
 * Which steps a piece of text is of: a step may be heard of a frame before its text.
 * @template T @param {Array<T & {out: number}>} steps @param {number} length
 * @returns {[T[], T[]]} those of this piece, and those whose text is still to come
 */
export function settled(steps, length) {
  let sum = 0;
  for (let i = 0; i < steps.length; i += 1) {
    sum += steps[i].out;
    if (sum === length) return [steps.slice(0, i + 1), steps.slice(i + 1)];
  }
  return [steps, []];
}

/** @param {Array<{out: number, accepted: number}>} steps @param {number} length @returns {Array<[number, number]>} */
export function guessedParts(steps, length) {
  if (!steps.some(({ accepted }) => accepted > 0)) return [];
  if (steps.reduce((sum, { out }) => sum + out, 0) !== length) return [[0, length]];
  const parts = [];
  let at = 0;
  for (const { out } of steps) {
    if (out > 1) parts.push([at + 1, at + out]);
    at += out;
  }
  return parts;
}
