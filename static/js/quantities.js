/**
 * Bytes, FLOP and what is made of them, as text.
 *
 * @typedef {number | null | undefined} Maybe
 */

import { count, NONE } from "./format.js";

/** Bytes in KiB, MiB or GiB, whichever reads best. @param {Maybe} bytes */
export function bytesText(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  const [size, unit] = bytes < 2 ** 20 ? [2 ** 10, "KiB"] : bytes < 2 ** 30 ? [2 ** 20, "MiB"] : [2 ** 30, "GiB"];
  const value = bytes / size;
  return `${value > 0 && value < 10 ? value.toFixed(1) : count(value)} ${unit}`;
}

/** "7,946.9" above 100, "0.97" below. @param {number} value */
export function perByte(value) {
  if (value >= 1e5) return count(value);
  const digits = value >= 100 ? 1 : value >= 0.01 ? 2 : 4;
  return new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
}

/** @type {Array<[number, string]>} */
const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** "15.2 G", for a unit to follow. @param {number} value */
export function quantity(value) {
  const [factor, prefix] = PREFIXES.find(([size]) => value >= size) ?? [1, ""];
  return `${Number((value / factor).toPrecision(3))} ${prefix}`;
}

/** "0.1", "100", "10 k", "1 M". @param {number} power */
export function decadeWords(power) {
  return power < 0 ? String(10 ** power) : quantity(10 ** power).trim();
}
