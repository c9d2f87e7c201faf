/**
 * What this browser is to remember, where it lets a page do so: in a frame, or with storage forbidden, it does not, and
 * then nothing is remembered.
 */

/** @param {string} key @returns {string | null} */
export function readKept(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** @param {string} key @param {string} value */
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // it lasts as long as the page
  }
}
