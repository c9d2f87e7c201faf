/**
 * Queue: who waits and why, in words, from the scheduler's own reasons; how far each prompt is computed; and the last
 * preemptions, one line each.
 *
 * @import {History, KnownView, Page, RequestFacts, Twin, View} from "../types.js"
 */

import { byId, find, write } from "../dom.js";
import { count, duration, plural, requestName, waitWords } from "../format.js";
import { stepNumber } from "../history.js";
import { laneAt } from "../lanes.js";
import { renderTable } from "../table.js";

const PREEMPTIONS_SHOWN = 6;

/** @param {Page} page */
export function mountQueue(page) {
  const root = byId("panel-queue");
  const table = find(root, "table");
  const log = find(root, ".preemptions");
  const empty = find(root, ".empty");
  const decided = find(root, ".decided");
  page.loop.add({
    id: "queue",
    visible: true,
    refresh(view) {
      const rows = view.state ? rowsOf(/** @type {KnownView} */ (view)) : [];
      write(empty, emptyWords(view, rows));
      empty.hidden = rows.length > 0;
      table.hidden = rows.length === 0;
      showDecision(decided, view);
      renderTable(table, { columns: ["request", "waited", "tokens", "why"], rows }, page.selection);
      writeLines(log, preemptionsOf(view));
    },
  });
}

/** The last preemptions before the moment shown, newest first, in words. @param {View} view */
function preemptionsOf({ history, until }) {
  if (!history) return [];
  const last = history.preemptions.filter(({ column }) => column <= until).slice(0, PREEMPTIONS_SHOWN);
  return last.map((event) => preemptionWords(event, history));
}

/** @param {View} view @param {Twin["rows"]} rows */
function emptyWords(view, rows) {
  if (!view.state) return view.why;
  if (rows.length) return "";
  return `Nobody waits: ${view.state.queues.running.length ? "every request has a slot" : "there is no request"}.`;
}

/** Where the source decided it: of the chosen request if it waits, else of the head of the queue. @param {HTMLElement} node @param {View} view */
function showDecision(node, { state, choice }) {
  const ids = state?.queues.waiting ?? [];
  const id = choice?.kind === "request" && ids.includes(choice.id) ? choice.id : ids[0];
  const reason = state?.requests[id]?.reason ?? null;
  node.hidden = !reason?.source;
  if (!reason?.source) return;
  const [words, line] = node.children;
  const text = `${requestName(id)}: ${waitWords(reason, state?.requests)}. Decided in`;
  write(words, text);
  write(line, reason.source);
}

/** Who waits, and who is in prefill. @param {KnownView} view @returns {Twin["rows"]} */
function rowsOf(view) {
  return [...waiting(view), ...prefilling(view)];
}

/** @param {KnownView} view @returns {Twin["rows"]} */
function waiting({ state, store }) {
  const { now } = store;
  return state.queues.waiting.map((id) => {
    const request = state.requests[id];
    const again = request.num_preemptions ? "preempted: " : "";
    return {
      choice: { kind: "request", id },
      cells: [
        requestName(id),
        duration(Math.max(0, now - (request.last_preempted_us ?? request.arrival_us))),
        count(request.num_prompt_tokens + request.num_output_tokens),
        again + waitWords(request.reason, state.requests) + urgency(request),
      ],
    };
  });
}

/** A priority that somebody gave; lower is more urgent. @param {RequestFacts} request */
function urgency({ priority }) {
  return priority ? ` (priority ${priority})` : "";
}

/** Running, but its prompt is not all computed yet. @param {KnownView} view */
function prefilling({ state, history, store, until }) {
  /** @type {Twin["rows"]} */
  const rows = [];
  for (const id of state.queues.running) {
    const request = state.requests[id];
    const total = request.num_prompt_tokens + Math.max(0, request.num_output_tokens - 1);
    if (request.num_computed_tokens >= total) continue;
    const lane = history.lanes.get(id);
    const { chunks } = !lane ? { chunks: 0 } : store.held ? laneAt(lane, history, until) : lane;
    rows.push({
      choice: { kind: "request", id },
      cells: [requestName(id), "in prefill", `${count(request.num_computed_tokens)}/${count(total)}`, `computing its prompt, ${plural(chunks, "chunk")} done`],
    });
  }
  return rows;
}

/** "Step 41: R7 preempted, R3 needed 1 block, 0 free. It held 6 blocks; 412 tokens to recompute." @param {History["preemptions"][number]} event @param {History} history */
function preemptionWords(event, history) {
  const needed = `${requestName(event.by)} needed ${plural(event.needed, "block")}, ${count(event.free)} free`;
  const step = count(stepNumber(history, event.column));
  return `Step ${step}: ${requestName(event.request)} preempted, ${needed}. It held ${plural(event.num_held_blocks, "block")}; ${plural(event.num_lost_tokens, "token")} to recompute.`;
}

/** @param {HTMLElement} list @param {string[]} lines */
function writeLines(list, lines) {
  while (list.children.length > lines.length) list.lastElementChild?.remove();
  lines.forEach((line, i) => {
    const item = list.children[i] ?? list.appendChild(document.createElement("li"));
    write(item, line);
  });
  list.hidden = lines.length === 0;
}
