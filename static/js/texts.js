/**
 * Answers as they stream in. Offsets on the wire count characters (code points); strings here count UTF-16 units,
 * so the length in characters is kept beside each answer. Appending costs the same however long the answer is.
 */

import { pieces } from "./guesses.js";

/** @typedef {import("./guesses.js").Piece} Piece */

export function createTexts() {
  /** @type {Map<string, {text: string, length: number, guessed: number[][]}>} */
  const answers = new Map();
  const whole = ({ text, guessed }) => pieces(text, 0, guessed);
  return {
    /** @param {string} request */
    get: (request) => answers.get(request)?.text ?? "",
    /** The answer in pieces, guessed tokens each by itself. @param {string} request @returns {Piece[]} */
    pieces: (request) => (answers.has(request) ? whole(answers.get(request)) : []),
    /**
     * Put `text` at `offset` and drop what stood after it; `guessed` are the runs that came with it.
     * @returns {{append: Piece[]} | {whole: Piece[]} | null} how the answer changed; null when there is a hole before it
     */
    put(request, offset, text, guessed = []) {
      let answer = answers.get(request);
      const begun = answer !== undefined;
      if (!answer) answers.set(request, (answer = { text: "", length: 0, guessed: [] }));
      if (offset > answer.length) return null;
      const points = [...text].length;
      if (offset === answer.length) {
        answer.text += text;
        answer.length += points;
        answer.guessed.push(...guessed);
        return begun ? { append: pieces(text, offset, answer.guessed) } : { whole: whole(answer) };
      }
      answer.text = [...answer.text].slice(0, offset).join("") + text;
      answer.length = offset + points;
      answer.guessed = [...answer.guessed.filter(([start]) => start < offset), ...guessed];
      return { whole: whole(answer) };
    },
    /** @param {string} request */
    forget: (request) => answers.delete(request),
  };
}
