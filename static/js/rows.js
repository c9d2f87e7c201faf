/**
 * The rows of a step as the page keeps them: in columns, a list per member, or one value where all rows have the same,
 * or that and the few that differ. The server sends them so when asked to (app/columns.py), for there are hundreds in a
 * step, and thousands of steps are kept. `Rows` reads like a list of rows; who goes through them often makes the list
 * once.
 *
 * The server tells most steps by the one before (app/columns.py): `after` is its number, `gone` its rows that are no more;
 * requests and slots are as they were and `computed` is further by `scheduled`, but for those that are named.
 *
 * @import {Row, RowList, StepFacts} from "./types.js"
 *
 * @template Value
 * @typedef {{most: Value, but: Array<[number, Value]>}} Sparse all have `most`, but for those at some indices
 */
/**
 * @template Value
 * @typedef {Value | Value[] | Sparse<Value>} Column
 */
/**
 * @typedef {{[member in keyof Row]: Column<Row[member]>}} Columns
 * @typedef {{length: number, columns: Columns}} Packed
 */
/**
 * @template Value
 * @typedef {{but: Array<[number, Value]>}} But as expected, but for those at some indices
 */
/**
 * @typedef {{length: number, after: number, gone: number[],
 *   columns: Omit<Columns, "request" | "slot" | "computed"> & {request: But<string>, slot: But<Row["slot"]>, computed: But<number>}}} After
 */

export const MEMBERS = /** @type {Array<keyof Row>} */ (["request", "slot", "phase", "scheduled", "drafted", "accepted", "computed", "out"]);

export class Rows {
  /** @param {Packed} packed */
  constructor({ length, columns }) {
    this.length = length;
    this.columns = columns;
  }

  /**
   * Rows as they come, in columns or as a list. Lists of members that are the same as those of an earlier step are
   * kept once for both: most steps have the same requests in the same slots.
   * @param {RowList | Packed} rows @param {Rows | null} [like]
   */
  static of(rows, like = null) {
    if (rows instanceof Rows) return rows;
    const found = new Rows("columns" in rows ? rows : pack([...rows]));
    if (like) for (const member of MEMBERS) found.share(member, like);
    return found;
  }

  /** Rows told by those of the step before. @param {After} told @param {Rows} before */
  static after({ length, gone, columns }, before) {
    return new Rows({
      length,
      columns: {
        ...columns,
        request: amended(without(before.column("request"), gone), length, columns.request),
        slot: amended(without(before.column("slot"), gone), length, columns.slot),
        computed: further(without(before.column("computed"), gone), length, columns.scheduled, columns.computed),
      },
    });
  }

  /** @param {keyof Row} member @param {Rows} like */
  share(member, like) {
    const mine = this.columns[member];
    const others = like.columns[member];
    if (!Array.isArray(mine) || !Array.isArray(others) || mine.length !== others.length) return;
    for (let i = 0; i < mine.length; i += 1) if (mine[i] !== others[i]) return;
    Object.assign(this.columns, { [member]: others });
  }

  /** @param {number} i @returns {Row} */
  at(i) {
    return /** @type {any} */ (Object.fromEntries(MEMBERS.map((member) => [member, this.value(member, i)])));
  }

  /** One value of one row. @template {keyof Row} Member @param {Member} member @param {number} i */
  value(member, i) {
    return pick(/** @type {Column<Row[Member]>} */ (this.columns[member]), i);
  }

  /** All values of a member: the very list that is kept, where it is one. @template {keyof Row} Member @param {Member} member @returns {readonly Row[Member][]} */
  column(member) {
    return spread(/** @type {Column<Row[Member]>} */ (this.columns[member]), this.length);
  }

  /** @returns {Row[]} */
  list() {
    const { length } = this;
    const all = /** @type {any[]} */ (MEMBERS.map((member) => this.column(member)));
    const [request, slot, phase, scheduled, drafted, accepted, computed, out] = all;
    /** @type {Row[]} */
    const list = new Array(length);
    for (let i = 0; i < length; i += 1) {
      list[i] = {
        request: request[i],
        slot: slot[i],
        phase: phase[i],
        scheduled: scheduled[i],
        drafted: drafted[i],
        accepted: accepted[i],
        computed: computed[i],
        out: out[i],
      };
    }
    return list;
  }

  [Symbol.iterator]() {
    return this.list()[Symbol.iterator]();
  }

  /** The row of one request. @param {string} request @returns {Row | undefined} */
  find(request) {
    const i = this.column("request").indexOf(request);
    return i < 0 ? undefined : this.at(i);
  }

  /** Who was given tokens. @returns {readonly string[]} */
  get delivered() {
    const request = this.column("request");
    if (typeof this.columns.out === "number") return this.columns.out > 0 ? request : [];
    const each = this.column("out");
    return request.filter((_, i) => each[i] > 0);
  }

  /** What of it is not shared with another. @param {Rows | null} like @param {(value: unknown) => number} weigh @returns {number} the sum of the weights */
  weight(like, weigh) {
    let sum = 0;
    for (const member of MEMBERS) if (this.columns[member] !== like?.columns[member]) sum += weigh(this.columns[member]);
    return sum;
  }
}

/** The very list where nothing is gone. @template Value @param {readonly Value[]} list @param {number[]} gone ascending @returns {readonly Value[]} */
function without(list, gone) {
  if (!gone.length) return list;
  const left = [...list];
  for (const i of gone.toReversed()) left.splice(i, 1);
  return left;
}

/** The very list where nothing is to be amended. @template Value @param {readonly Value[]} list @param {number} length @param {But<Value>} but @returns {Value[]} */
function amended(list, length, { but }) {
  if (!but.length) return /** @type {Value[]} */ (list); // kept, and never written to
  const amends = new Array(length); // as long as it is to be: thousands are kept
  for (let i = 0; i < Math.min(length, list.length); i += 1) amends[i] = list[i];
  for (const [i, value] of but) amends[i] = value;
  return amends;
}

/** Each further by what was scheduled, but for those that are named. @param {readonly number[]} list @param {number} length @param {Column<number>} scheduled @param {But<number>} but @returns {number[]} */
function further(list, length, scheduled, { but }) {
  const each = spread(scheduled, length);
  const sums = new Array(length);
  for (let i = 0; i < Math.min(length, list.length); i += 1) sums[i] = list[i] + each[i];
  for (const [i, value] of but) sums[i] = value;
  return sums;
}

/** @param {unknown} column @returns {column is Sparse<any>} */
function isSparse(column) {
  return typeof column === "object" && column !== null && "but" in column;
}

/** @template Value @param {Column<Value>} column @param {number} i @returns {Value} */
function pick(column, i) {
  if (Array.isArray(column)) return column[i];
  if (!isSparse(column)) return /** @type {Value} */ (column);
  for (const other of column.but) if (other[0] === i) return other[1];
  return column.most;
}

/** A column as a list: the very one that is kept. @template Value @param {Column<Value>} column @param {number} length @returns {readonly Value[]} */
function spread(column, length) {
  if (Array.isArray(column)) return column;
  if (!isSparse(column)) return new Array(length).fill(column);
  const list = new Array(length).fill(column.most);
  for (const [i, value] of column.but) list[i] = value;
  return list;
}

/** @param {Row[]} rows @returns {Packed} */
function pack(rows) {
  const columns = /** @type {any} */ ({});
  for (const member of MEMBERS) {
    const list = rows.map((row) => row[member]);
    columns[member] = list.length && list.every((value) => value === list[0]) ? list[0] : list;
  }
  return { length: rows.length, columns };
}

/** Rows as a plain list. @param {RowList} rows @returns {Row[]} */
export function rowList(rows) {
  return rows instanceof Rows ? rows.list() : [...rows];
}

/** The row of one request in a step. @param {Pick<StepFacts, "rows"> | undefined} step @param {string} request @returns {Row | undefined} */
export function rowOf(step, request) {
  const rows = step?.rows ?? [];
  return rows instanceof Rows ? rows.find(request) : [...rows].find((row) => row.request === request);
}

/**
 * Rows to be kept, in columns; those with members that are not known here stay a list, lest they be lost.
 * @param {RowList} rows @param {RowList | null} [like] those of the step before
 * @returns {RowList}
 */
export function packedRows(rows, like) {
  if (Array.isArray(rows) && !rows.every((row) => Object.keys(row).length === MEMBERS.length && MEMBERS.every((member) => member in row))) return rows;
  return Rows.of(rows, like instanceof Rows ? like : null);
}

/**
 * Rows as the server sent them; null when they are told by a step that is not known here.
 * @param {RowList | Packed | After} rows @param {Pick<StepFacts, "step" | "rows"> | null} before
 * @returns {RowList | null}
 */
export function receivedRows(rows, before) {
  if (!("after" in rows)) return packedRows(/** @type {RowList} */ (rows), before?.rows);
  return before?.step === rows.after ? Rows.after(rows, Rows.of(before.rows)) : null;
}

/** The requests that a step gave tokens to. @param {Pick<StepFacts, "rows">} step @returns {readonly string[]} */
export function deliveredIn({ rows }) {
  return Rows.of(rows).delivered;
}
