/**
 * The rows of a step as the page keeps them: in columns, a list per member, or one value where all rows have the same,
 * or that and the few that differ. The server sends them so when asked to (app/columns.py), for there are hundreds in a
 * step, and thousands of steps are kept. `Rows` reads like a list of rows; who goes through them often makes the list
 * once.
 *
 * @import {Event, Row, RowList, StepEvent, StepFacts} from "./types.js"
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
    const { request, slot, phase, scheduled, drafted, accepted, computed, out } = this.columns;
    return {
      request: pick(request, i),
      slot: pick(slot, i),
      phase: pick(phase, i),
      scheduled: pick(scheduled, i),
      drafted: pick(drafted, i),
      accepted: pick(accepted, i),
      computed: pick(computed, i),
      out: pick(out, i),
    };
  }

  /** @returns {Row[]} */
  list() {
    const { length, columns } = this;
    const request = spread(columns.request, length);
    const slot = spread(columns.slot, length);
    const phase = spread(columns.phase, length);
    const scheduled = spread(columns.scheduled, length);
    const drafted = spread(columns.drafted, length);
    const accepted = spread(columns.accepted, length);
    const computed = spread(columns.computed, length);
    const out = spread(columns.out, length);
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
    const i = spread(this.columns.request, this.length).indexOf(request);
    return i < 0 ? undefined : this.at(i);
  }

  /** Who was given tokens. @returns {readonly string[]} */
  get delivered() {
    const request = spread(this.columns.request, this.length);
    const { out } = this.columns;
    if (typeof out === "number") return out > 0 ? request : [];
    const each = spread(out, this.length);
    return request.filter((_, i) => each[i] > 0);
  }

  /** What of it is not shared with another. @param {Rows | null} like @param {(value: unknown) => number} weigh @returns {number} the sum of the weights */
  weight(like, weigh) {
    let sum = 0;
    for (const member of MEMBERS) if (this.columns[member] !== like?.columns[member]) sum += weigh(this.columns[member]);
    return sum;
  }
}

/** @param {unknown} column @returns {column is Sparse<any>} */
function isSparse(column) {
  return typeof column === "object" && column !== null && "but" in column;
}

/** @template Value @param {Column<Value>} column @param {number} i @returns {Value} */
function pick(column, i) {
  if (Array.isArray(column)) return column[i];
  if (!isSparse(column)) return /** @type {Value} */ (column);
  const other = column.but.find(([at]) => at === i);
  return other ? other[1] : column.most;
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

/** The row of one request in a step. @param {Pick<StepFacts, "rows"> | undefined} step @param {string} request @returns {Row | undefined} */
export function rowOf(step, request) {
  const rows = step?.rows ?? [];
  return rows instanceof Rows ? rows.find(request) : [...rows].find((row) => row.request === request);
}

/** The requests that a step gave tokens to. @param {Pick<StepFacts, "rows">} step @returns {readonly string[]} */
export function deliveredIn({ rows }) {
  return Rows.of(rows).delivered;
}

/** A step to be folded: its rows as a list. @param {Event} event @returns {Event} */
export function opened(event) {
  return event.kind === "step" ? { ...event, rows: [...event.rows] } : event;
}

/**
 * A step to be kept: its rows in columns. Rows with members that are not known here stay a list, lest they be lost.
 * @param {StepEvent} step @param {RowList | null} [like] those of the step before
 * @returns {StepEvent}
 */
export function packed(step, like) {
  const { rows } = step;
  if (Array.isArray(rows) && !rows.every((row) => Object.keys(row).length === MEMBERS.length && MEMBERS.every((member) => member in row))) return step;
  return { ...step, rows: Rows.of(rows, like instanceof Rows ? like : null) };
}
