/** A sum written out, one line a step: what is done, and what comes of it. */

/**
 * @param {HTMLOListElement} list
 * @param {Array<{words: string, result: string, sum?: boolean}>} steps `sum` marks the lines that answer a question
 */
export function writeSteps(list, steps) {
  while (list.children.length > steps.length) list.lastElementChild?.remove();
  steps.forEach((step, i) => {
    const item = list.children[i] ?? list.appendChild(lineOf());
    const [words, result] = item.children;
    if (words.textContent !== step.words) words.textContent = step.words;
    if (result.textContent !== step.result) result.textContent = step.result;
    item.classList.toggle("sum", step.sum === true);
  });
}

function lineOf() {
  const item = document.createElement("li");
  item.append(document.createElement("span"), document.createElement("b"));
  return item;
}
