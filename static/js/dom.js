/**
 * The document: looking up what must be there, and writing only what changes. What is missing, or is something else, is
 * said in a sentence; what may be missing is asked of the document itself.
 */

/**
 * @template {Element} E
 * @param {unknown} found
 * @param {new () => E} kind
 * @param {string} what
 * @returns {E}
 */
function must(found, kind, what) {
  if (found instanceof kind) return found;
  throw new Error(found ? `${what} on this page is no ${kind.name}.` : `There is no ${what} on this page.`);
}

/**
 * The element with an id.
 * @template {Element} [E=HTMLElement]
 * @param {string} id
 * @param {new () => E} [kind]
 * @returns {E}
 */
export function byId(id, kind = /** @type {any} */ (HTMLElement)) {
  return must(document.getElementById(id), kind, `#${id}`);
}

/**
 * The first element in `root` that a selector fits.
 * @template {keyof HTMLElementTagNameMap} K
 * @overload
 * @param {ParentNode} root
 * @param {K} selector
 * @returns {HTMLElementTagNameMap[K]}
 */
/**
 * @template {Element} [E=HTMLElement]
 * @overload
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => E} [kind]
 * @returns {E}
 */
/**
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => Element} kind
 */
export function find(root, selector, kind = HTMLElement) {
  return must(root.querySelector(selector), kind, selector);
}

/**
 * Every element in `root` that a selector fits.
 * @template {Element} [E=HTMLElement]
 * @param {ParentNode} root
 * @param {string} selector
 * @param {new () => E} [kind]
 * @returns {E[]}
 */
export function findAll(root, selector, kind = /** @type {any} */ (HTMLElement)) {
  return [...root.querySelectorAll(selector)].map((found) => must(found, kind, selector));
}

/**
 * The elements in `root` with a `data-…`, by its value.
 * @param {ParentNode} root
 * @param {string} name
 * @returns {Object<string, HTMLElement>}
 */
export function byData(root, name) {
  return Object.fromEntries(findAll(root, `[data-${name}]`).map((found) => [found.dataset[name] ?? "", found]));
}

/**
 * A form's field.
 * @template {Element} [E=HTMLInputElement]
 * @param {HTMLFormElement} form
 * @param {string} name
 * @param {new () => E} [kind]
 * @returns {E}
 */
export function field(form, name, kind = /** @type {any} */ (HTMLInputElement)) {
  return must(form.elements.namedItem(name), kind, `field "${name}"`);
}

// -- writing -------------------------------------------------------------------------------------

/** To write what a node says already costs the browser as much as a change. @param {Node} node @param {string} text */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {HTMLElement} node @param {boolean} shown */
export function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

/** What a picture's marks mean now, said in its panel's head. @param {string} panel @param {string} text @param {string} title */
export function headLabel(panel, text, title) {
  const label = document.createElement("span");
  Object.assign(label, { className: "label", textContent: text, title });
  byId(`title-${panel}`).after(label);
  return label;
}
