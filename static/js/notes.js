/**
 * Notes: what happened around each step besides its rows, by column. Preemptions and admissions are said before their
 * step, first tokens and ends after it; here they are put where they belong, so that a step can be explained.
 *
 * @import {AdmittedEvent, FinishedEvent, FirstTokenEvent, PreemptedEvent, RequestEvent, ResumedEvent} from "./types.js"
 *
 * @typedef {Object} Notes
 * @property {PreemptedEvent[]} preempted
 * @property {AdmittedEvent[]} admitted
 * @property {ResumedEvent[]} resumed
 * @property {FirstTokenEvent[]} first_token
 * @property {FinishedEvent[]} finished
 *
 * @typedef {RequestEvent & {step: number}} Placed with the number of the step that it belongs to
 */

import { deleteOldest } from "./lanes.js";
import { STEPS_KEPT } from "./tape.js";

const KEPT = STEPS_KEPT;

/** Events that are said before the step that they belong to. */
const BEFORE = new Set(["preempted", "admitted", "resumed"]);

/** The step whose doing an event is, by the last step before it. @param {RequestEvent} event @param {number} last */
export function stepOf(event, last) {
  return BEFORE.has(event.event) ? last + 1 : last;
}

/** @returns {Notes} */
export function noNotes() {
  return { preempted: [], admitted: [], resumed: [], first_token: [], finished: [] };
}

/**
 * @param {Map<number, Notes>} notes
 * @param {RequestEvent} event
 * @param {number} last column of the last step
 */
export function takeNote(notes, event, last) {
  addNote(notes, event, stepOf(event, last));
  if (notes.size > KEPT) deleteOldest(notes);
}

/**
 * Notes from before the page was opened, each of which names its `step`. What was heard live too is not taken twice.
 * @param {Map<number, Notes>} notes
 * @param {Placed[]} events
 * @param {number} base column of step 0
 * @returns {Map<number, Notes>} oldest first
 */
export function withOlderNotes(notes, events, base) {
  const all = new Map(notes);
  for (const event of events) addNote(all, event, base + event.step);
  return new Map([...all].sort(([one], [other]) => one - other).slice(-KEPT));
}

/** @param {Map<number, Notes>} notes @param {RequestEvent} event @param {number} column */
function addNote(notes, event, column) {
  if (!(event.event in noNotes())) return;
  if (event.event === "finished" && event.reason === "abort") return; // of no step
  let noted = notes.get(column);
  if (!noted) notes.set(column, (noted = noNotes()));
  const known = /** @type {RequestEvent[]} */ (noted[/** @type {keyof Notes} */ (event.event)]);
  if (known.every((other) => other.seq !== event.seq)) known.push(event);
}
