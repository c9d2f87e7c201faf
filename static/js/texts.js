/**
 * Answers as they stream in. Offsets on the wire count characters (code points); strings here count UTF-16 units,
 * so the length in characters is kept beside each answer. Appending costs the same however long the answer is.
 * How many characters each token wrote comes with the text, so that an answer can be taken apart again.
 */

import { pieces } from "./guesses.js";

/**
 * @typedef {import("./guesses.js").Piece} Piece
 * @typedef {{text: string, length: number, guessed: number[][], lengths: number[]}} Answer
 * @typedef {ReturnType<typeof createTexts>} Texts
 */

export function createTexts() {
  /** @type {Map<string, Answer>} */
  const answers = new Map();
  const whole = (/** @type {Answer} */ { text, guessed }) => pieces(text, 0, guessed);
  return {
    /** @param {string} request */
    get: (request) => answers.get(request)?.text ?? "",
    /** The answer in pieces, guessed tokens each by itself. @param {string} request @returns {Piece[]} */
    pieces(request) {
      const answer = answers.get(request);
      return answer ? whole(answer) : [];
    },
    /**
     * What each of an answer's tokens `from` … `to` − 1 wrote, as far as it is known.
     * @param {string} request @param {number} from @param {number} to
     * @returns {string[] | null} null: this answer is not known here, or not token by token
     */
    tokens(request, from, to) {
      const answer = answers.get(request);
      if (!answer?.lengths.length) return null;
      const points = [...answer.text];
      let end = answer.lengths.slice(0, from).reduce((sum, length) => sum + length, 0);
      return answer.lengths.slice(from, to).map((length) => points.slice(end, (end += length)).join(""));
    },
    /**
     * Put `text` at `offset` and drop what stood after it; `guessed` are the runs and `lengths` the tokens that came with it.
     * @param {string} request @param {number} offset @param {string} text @param {number[][]} guessed @param {number[]} lengths
     * @returns {{append: Piece[]} | {whole: Piece[]} | null} how the answer changed; null when there is a hole before it
     */
    put(request, offset, text, guessed = [], lengths = []) {
      let answer = answers.get(request);
      const begun = answer !== undefined;
      if (!answer) answers.set(request, (answer = { text: "", length: 0, guessed: [], lengths: [] }));
      if (offset > answer.length) return null;
      const points = [...text].length;
      if (offset === answer.length) {
        answer.text += text;
        answer.length += points;
        answer.guessed.push(...guessed);
        answer.lengths.push(...lengths);
        return begun ? { append: pieces(text, offset, answer.guessed) } : { whole: whole(answer) };
      }
      answer.text = [...answer.text].slice(0, offset).join("") + text;
      answer.length = offset + points;
      answer.guessed = [...answer.guessed.filter(([start]) => start < offset), ...guessed];
      answer.lengths = [...tokensBefore(answer.lengths, offset), ...lengths];
      return { whole: whole(answer) };
    },
    /** @param {string} request */
    forget: (request) => answers.delete(request),
  };
}

/** The tokens that end by a character. @param {number[]} lengths @param {number} offset */
function tokensBefore(lengths, offset) {
  let end = 0;
  const first = lengths.findIndex((length) => (end += length) > offset);
  return offset === 0 ? [] : lengths.slice(0, first < 0 ? lengths.length : first);
}
