/**
 * Answers as they stream in. Offsets on the wire count characters (code points); strings here count UTF-16 units,
 * so the length in characters is kept beside each answer. Appending costs the same however long the answer is.
 */

export function createTexts() {
  /** @type {Map<string, {text: string, length: number}>} */
  const answers = new Map();
  return {
    /** @param {string} request */
    get: (request) => answers.get(request)?.text ?? "",
    /**
     * Put `text` at `offset` and drop what stood after it.
     * @returns {{append: string} | {whole: string} | null} how the answer changed; null when there is a hole before it
     */
    put(request, offset, text) {
      let answer = answers.get(request);
      const begun = answer !== undefined;
      if (!answer) answers.set(request, (answer = { text: "", length: 0 }));
      if (offset > answer.length) return null;
      const points = [...text].length;
      if (offset === answer.length) {
        answer.text += text;
        answer.length += points;
        return begun ? { append: text } : { whole: answer.text };
      }
      answer.text = [...answer.text].slice(0, offset).join("") + text;
      answer.length = offset + points;
      return { whole: answer.text };
    },
    /** @param {string} request */
    forget: (request) => answers.delete(request),
  };
}
