/**
 * The finished requests that latencies are told of, in the header and in the Latency panel.
 *
 * @import {History, Timings} from "./types.js"
 */

import { classOf } from "./classes.js";
import { epochAt } from "./history.js";
import { samplesOf } from "./metrics.js";

/** Percentiles are over the last this many finished requests that the page has heard of, up to the moment shown. */
export const WINDOW = 200;

/**
 * The finished requests of the window that ends at a moment, of one class or ("") of all, oldest first. What another
 * engine did before says nothing of this one.
 * @param {History} history @param {number} until
 */
export function windowOf(history, until, kind = "") {
  const { id } = epochAt(history, until);
  const { finished } = history;
  const found = [];
  for (let i = finished.length - 1; i >= 0 && found.length < WINDOW; i -= 1) {
    const sample = finished[i];
    if (sample.epoch === id && sample.at <= until && (!kind || classOf(sample) === kind)) found.push(sample);
  }
  return found.reverse();
}

/** The samples of that window, for one timing. @param {History} history @param {number} until @param {keyof Timings} name */
export function windowSamples(history, until, name) {
  return samplesOf(windowOf(history, until), name);
}
