/**
 * Whose stage was reset since the page last looked. A new life of an engine, and one that was not known yet, is none.
 *
 * @import {Engine} from "./types.js"
 */

/** @returns {(engines: Iterable<Engine>) => Engine[]} */
export function createResets() {
  /** @type {WeakMap<Engine, {epoch: string | null, resets: number | null}>} */
  const seen = new WeakMap();
  return (engines) =>
    [...engines].filter((engine) => {
      const before = seen.get(engine);
      const { epoch, history } = engine;
      const { resets } = history;
      if (before?.epoch === epoch && before.resets === resets) return false;
      seen.set(engine, { epoch, resets });
      return before?.epoch === epoch && before.resets !== null && resets !== null;
    });
}
