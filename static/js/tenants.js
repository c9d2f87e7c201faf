/**
 * Which requests were given which blocks, and when: the newest of them, as numbers in a ring, for a large engine hands
 * out thousands of blocks a second and few are asked about.
 *
 * @typedef {{id: string, index: number, at: number}} Tenant who, as which of its blocks, in which column
 * @typedef {ReturnType<typeof createTenants>} Tenants
 */

/** Of all blocks together. */
export const MOST = 2 ** 18;
const AT_FIRST = 1024;
/** Of one block. */
export const OF_ONE = 12;

export function createTenants() {
  let room = AT_FIRST;
  let said = 0; // how many there were; the newest of them are kept, as many as there is room for
  /** Of each: whose turn it was before, with the same block; its index and its column. */
  let before = new Float64Array(room);
  let index = new Int32Array(room);
  let at = new Float64Array(room);
  /** @type {string[]} */
  let ids = [];
  /** Of each block: its last one. @type {number[]} */
  let last = [];

  function grow() {
    /** @template {Float64Array | Int32Array} List @param {List} list @returns {List} */
    const larger = (list) => {
      const more = /** @type {List} */ (new /** @type {any} */ (list.constructor)(2 * room));
      more.set(list);
      return more;
    };
    [before, index, at] = [larger(before), larger(index), larger(at)];
    room *= 2;
  }

  return {
    /** @param {number} block @param {string} id @param {number} as @param {number} column */
    put(block, id, as, column) {
      if (said === room && room < MOST) grow();
      const place = said % room;
      before[place] = last[block] ?? -1;
      index[place] = as;
      at[place] = column;
      ids[place] = id;
      last[block] = said;
      said += 1;
    },
    /** Newest first. @param {number} block @returns {Tenant[]} */
    of(block) {
      /** @type {Tenant[]} */
      const found = [];
      for (let n = last[block] ?? -1; n >= Math.max(0, said - room) && found.length < OF_ONE; n = before[n % room]) {
        found.push({ id: ids[n % room], index: index[n % room], at: at[n % room] });
      }
      return found;
    },
    clear() {
      said = 0;
      ids = [];
      last = [];
    },
  };
}
