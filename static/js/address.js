/** Settings of the view that the address carries in its query, so that a slide or a bookmark opens it as it was. */

/** @param {string} name @returns {string | null} */
export function setting(name) {
  return new URLSearchParams(location.search).get(name);
}

/** @param {string} name @param {string | null} value null takes it out */
export function keepSetting(name, value) {
  const query = new URLSearchParams(location.search);
  if (value === null) query.delete(name);
  else query.set(name, value);
  const search = query.size ? `?${query}` : "";
  window.history.replaceState(null, "", location.pathname + search + location.hash);
}
