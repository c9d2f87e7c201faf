/**
 * The rows of a step as the page keeps them: in columns, a list per member, or one value where all rows have the same.
 * The server sends them so when asked to (app/columns.py), for there are hundreds in a step, and thousands of steps are kept: they
 * take a fifth of the memory of as many objects. `Rows` reads like a list of rows; who goes through them often makes
 * the list once.
 *
 * @import {Event, Row, RowList, StepEvent, StepFacts} from "./types.js"
 *
 * @typedef {{[member in keyof Row]: Row[member] | Row[member][]}} Columns
 * @typedef {{length: number, columns: Columns}} Packed
 */

const MEMBERS = /** @type {Array<keyof Row>} */ (["request", "slot", "phase", "scheduled", "drafted", "accepted", "computed", "out"]);

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
    const list = new Array(this.length);
    for (let i = 0; i < list.length; i += 1) list[i] = this.at(i);
    return list;
  }

  [Symbol.iterator]() {
    return this.list()[Symbol.iterator]();
  }

  /** The row of one request. @param {string} request @returns {Row | undefined} */
  of(request) {
    const { request: ids } = this.columns;
    const i = Array.isArray(ids) ? ids.indexOf(request) : ids === request && this.length ? 0 : -1;
    return i < 0 ? undefined : this.at(i);
  }

  /** Who was given tokens. @returns {string[]} */
  get delivered() {
    const { request, out } = this.columns;
    if (Array.isArray(request) && !Array.isArray(out)) return out > 0 ? request : [];
    return this.list().filter((row) => row.out > 0).map((row) => row.request);
  }

  /** Lists that it does not share with another. @param {Rows | null} like @returns {number} places in them */
  places(like) {
    let sum = 0;
    for (const member of MEMBERS) {
      const list = this.columns[member];
      if (Array.isArray(list) && list !== like?.columns[member]) sum += list.length;
    }
    return sum;
  }
}

/** @template Value @param {Value | Value[]} column @param {number} i @returns {Value} */
function pick(column, i) {
  return Array.isArray(column) ? column[i] : column;
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
  return rows instanceof Rows ? rows.of(request) : [...rows].find((row) => row.request === request);
}

/** The requests that a step gave tokens to. @param {Pick<StepFacts, "rows">} step @returns {string[]} */
export function deliveredIn({ rows }) {
  return Rows.of(rows).delivered;
}

/** A step to be folded: its rows as a list. @param {Event} event @returns {Event} */
export function opened(event) {
  return event.kind === "step" ? { ...event, rows: [...event.rows] } : event;
}

/** A step to be kept: its rows in columns. @param {StepEvent} step @param {Rows | null} [like] @returns {StepEvent} */
export function packed(step, like) {
  return { ...step, rows: Rows.of(step.rows, like) };
}
