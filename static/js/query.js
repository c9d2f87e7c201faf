/** Addresses on this server with something to say in their query: which engine they are about, and the like. */

/**
 * What is empty or undefined is left out: without a name, the server takes the only engine, or says that there is none.
 * @param {string} path @param {Object<string, string | number | undefined>} fields
 */
export function withQuery(path, fields) {
  const given = Object.entries(fields).flatMap(([name, value]) => (value === undefined || value === "" ? [] : [[name, String(value)]]));
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}
