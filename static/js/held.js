/**
 * Whether a hand on the gate held the engine up: what it took meanwhile is no measurement.
 *
 * @import {History, Step} from "./types.js"
 */

/** Steps tile the time while there is work; where they do not by more than this, the gate was held in between. */
const HELD_US = 1000;

/** Whether the engine stood still between two steps in a row. @param {Step} before @param {Step} step */
export function wasHeld(before, step) {
  return step.start_us - before.start_us - before.wall_us > HELD_US;
}

/** Whether a hand on the gate had a part in the time between two deliveries. @param {History} history @param {number} since column of the one @param {number} column of the other */
export function handBetween(history, since, column) {
  let before = history.steps.get(since);
  for (let at = since + 1; at <= column; at += 1) {
    const step = history.steps.get(at);
    if (step?.gated || (before && step && wasHeld(before, step))) return true;
    before = step;
  }
  return false;
}
