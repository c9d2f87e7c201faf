/**
 * What this browser is to remember, for good or as long as the tab is open, where it lets a page do so: in a frame, or
 * with storage forbidden or full, it does not, and then nothing is remembered.
 *
 * @typedef {"localStorage" | "sessionStorage"} Where for good, or as long as the tab is open
 */

/** @param {string} key @param {Where} [where] @returns {string | null} */
export function readKept(key, where = "localStorage") {
  try {
    return window[where].getItem(key);
  } catch {
    return null;
  }
}

/** @param {string} key @param {string} value @param {Where} [where] */
export function keep(key, value, where = "localStorage") {
  try {
    window[where].setItem(key, value);
  } catch {
    // it lasts as long as the page
  }
}
