/**
 * Which tokens of an answer were guessed ahead and accepted, and how they look in it: underlined, each by itself.
 *
 * A run is one step's accepted guesses, as a text message says it: [where its first character stands, then how many
 * characters each of its tokens wrote]. Positions count characters (code points). A run may reach beyond the text so
 * far; what comes later is drawn when it comes.
 *
 * @typedef {Array<number>} Run
 * @typedef {{text: string, token?: number, of?: number}} Piece a token of a run has `token` (from 1) `of` that run
 */

/**
 * Cut a part of an answer where guesses begin and end.
 * @param {string} text the part
 * @param {number} offset where in the answer it begins
 * @param {Array<Run>} runs in order
 * @returns {Piece[]} the part again, in order, without empty pieces
 */
export function pieces(text, offset, runs) {
  const reaching = runs.slice(firstReaching(runs, offset));
  if (!reaching.length) return text ? [{ text }] : [];
  const points = [...text];
  /** @type {Piece[]} */
  const found = [];
  let at = offset;
  const cut = (/** @type {number} */ end, /** @type {{token?: number, of?: number}} */ guess = {}) => {
    const till = Math.min(end, offset + points.length);
    if (till > at) found.push({ text: points.slice(at - offset, till - offset).join(""), ...guess });
    at = Math.max(at, till);
  };
  for (const [start, ...lengths] of reaching) {
    cut(start);
    let end = start;
    lengths.forEach((length, i) => cut((end += length), { token: i + 1, of: lengths.length }));
  }
  cut(offset + points.length);
  return found;
}

/** The first run that ends after `offset`; most often none does, so the search begins at the end. @param {Array<Run>} runs @param {number} offset */
function firstReaching(runs, offset) {
  let first = runs.length;
  while (first > 0 && endOf(runs[first - 1]) > offset) first -= 1;
  return first;
}

/** @param {Run} run */
function endOf([start, ...lengths]) {
  return lengths.reduce((end, length) => end + length, start);
}

/**
 * Add pieces to an answer. One text node grows, so that the browser lays out only its end.
 * @param {HTMLElement} said @param {Piece[]} added
 */
export function append(said, added) {
  for (const { text, token, of } of added) {
    if (token !== undefined) said.append(markOf(text, token, of));
    else if (said.lastChild instanceof Text) said.lastChild.appendData(text);
    else said.append(text);
  }
}

/** @param {string} text @param {number} token @param {number | undefined} of */
function markOf(text, token, of) {
  const mark = document.createElement("u");
  mark.className = "guessed";
  mark.title = of === 1 ? "Guessed ahead, and right." : `Guessed ahead, and right: guess ${token} of ${of} that its step accepted.`;
  mark.textContent = text;
  return mark;
}
