/**
 * Notes: what happened around each step besides its rows, by column. Preemptions and admissions are said before their
 * step, first tokens and ends after it; here they are put where they belong, so that a step can be explained.
 *
 * @typedef {Object<string, any>} Json
 * @typedef {{preempted: Json[], admitted: Json[], resumed: Json[], first_token: Json[], finished: Json[]}} Notes
 */

const KEPT = 2000;

/** Events that are said before the step that they belong to. */
const BEFORE = new Set(["preempted", "admitted", "resumed"]);

/** @returns {Notes} */
export function noNotes() {
  return { preempted: [], admitted: [], resumed: [], first_token: [], finished: [] };
}

/**
 * @param {Map<number, Notes>} notes
 * @param {Json} event a `request` event
 * @param {number} last column of the last step
 */
export function takeNote(notes, event, last) {
  if (!(event.event in noNotes())) return;
  if (event.event === "finished" && event.reason === "abort") return; // no step's doing
  const column = BEFORE.has(event.event) ? last + 1 : last;
  let noted = notes.get(column);
  if (!noted) notes.set(column, (noted = noNotes()));
  noted[event.event].push(event);
  if (notes.size > KEPT) notes.delete(notes.keys().next().value);
}
