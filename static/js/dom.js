/** Writing to the document only what changes there: to write what it says already costs the browser as much as a change. */

/** @param {Node} node @param {string} text */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {HTMLElement} node @param {boolean} shown */
export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}
