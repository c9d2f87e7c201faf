/**
 * What a history learns afterwards (see history.js): steps and notes from the server that this page did not hear.
 *
 * @import {History, State, Step, StepEvent} from "./types.js"
 * @import {Placed} from "./notes.js"
 */

import { KEPT, PREEMPTIONS_KEPT, withSlots } from "./history.js";
import { endLane, extendLane } from "./lanes.js";
import { kept } from "./kept_step.js";
import { withOlderNotes } from "./notes.js";

/**
 * Steps from the server that this page did not hear, from before it was opened or from a gap: the lanes of requests
 * that the state still knows are drawn back to where those steps begin, and what the steps did can be explained.
 * @param {History} history
 * @param {{steps: StepEvent[], requests: Placed[]}} older oldest first
 * @param {State} state
 */
export function backfill(history, { steps, requests }, state) {
  noteOlder(history, requests.filter((event) => event.epoch === history.epoch));
  const missing = (/** @type {StepEvent} */ { epoch, step }) => epoch === history.epoch && !history.steps.has(history.base + step) && history.base + step <= history.last;
  const older = steps.filter(missing);
  if (!older.length) return;
  // Who held a slot without getting tokens is not known of steps that were not watched.
  /** @type {Map<number, Step>} */
  const merged = new Map();
  let before = /** @type {Step | null} */ (null);
  for (const step of older) merged.set(history.base + step.step, (before = withSlots(kept(step, before?.rows), [], state)));
  for (const [column, step] of history.steps) merged.set(column, step);
  history.steps = new Map([...merged].sort(([one], [other]) => one - other).slice(-KEPT));
  extendLanes(history, older, state);
  const from = history.base + older[0].step;
  for (const lane of history.lanes.values()) if (lane.end?.unheard && lane.last !== null && lane.last >= from - 1) endThere(lane, lane.last + 1);
}

/** @param {History} history @param {StepEvent[]} older @param {State} state */
function extendLanes(history, older, state) {
  const lastSeen = new Map();
  for (const step of older) for (const row of step.rows) lastSeen.set(row.request, step.step);
  for (const step of older) {
    for (const row of step.rows) extendLane(history, row, history.base + step.step, state);
    for (const row of step.rows) {
      const lane = history.lanes.get(row.request);
      if (!lane?.late || lane.end || lastSeen.get(row.request) !== step.step || lane.facts.status !== "finished") continue;
      endLane(history, lane, history.base + step.step + 1, lane.facts.finish_reason, lane.facts.finish_detail);
    }
  }
}

/** It had ended in a gap, and now its last token has come out. @param {import("./lanes.js").Lane} lane @param {number} at */
function endThere(lane, at) {
  const stay = lane.stays.at(-1);
  if (stay && stay.to === lane.end?.at) stay.to = at;
  if (lane.end) Object.assign(lane.end, { at, unheard: false });
}

/** @param {History} history @param {Placed[]} events */
function noteOlder(history, events) {
  history.notes = withOlderNotes(history.notes, events, history.base);
  const known = new Set(history.preemptions.map((event) => `${event.epoch}/${event.seq}`));
  const preempted = events.filter((event) => event.event === "preempted");
  const older = preempted.filter((event) => !known.has(`${event.epoch}/${event.seq}`));
  /** @type {History["preemptions"]} */
  const all = [...history.preemptions, ...older.map((event) => ({ ...event, column: history.base + event.step }))];
  history.preemptions = all.sort((one, other) => other.column - one.column || other.seq - one.seq).slice(0, PREEMPTIONS_KEPT);
}
