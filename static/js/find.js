/**
 * Find: from what somebody types ("R7", "step 120", "block 33") to something to choose.
 *
 * @import {Choice, View} from "./types.js"
 */

import { count, requestName } from "./format.js";
import { oldestColumn, stepNumber } from "./history.js";

/**
 * @param {string} text
 * @returns {{kind: "request", id: string} | {kind: "step", step: number} | {kind: "block", id: number} | null}
 */
export function readFind(text) {
  const words = text.trim();
  const [, kind, digits] = /^(step|s|block|b)\s*#?\s*(\d{1,12})$/i.exec(words) ?? [];
  if (kind) return kind[0].toLowerCase() === "s" ? { kind: "step", step: Number(digits) } : { kind: "block", id: Number(digits) };
  const number = /^(?:request\s*)?r\s*(\d{1,12})$/i.exec(words)?.[1];
  if (number) return { kind: "request", id: `R${Number(number)}` };
  return /^[^\s]{1,128}$/.test(words) ? { kind: "request", id: words } : null;
}

/**
 * @param {string} text @param {View} view
 * @returns {{choice?: Choice, why?: string}} `why` there is none
 */
export function findIn(text, { engine, history, state }) {
  const found = readFind(text);
  if (!engine?.state || !history) return { why: "There is nothing to find yet: no engine has said anything." };
  if (found?.kind === "block") {
    const { total } = engine.state.blocks;
    return found.id < total ? { choice: found } : { why: `There is no block ${found.id}; they are numbered 0 to ${total - 1}.` };
  }
  if (found?.kind === "step") {
    const column = history.base + found.step;
    if (history.steps.has(column)) return { choice: { kind: "step", column } };
    const oldest = stepNumber(history, oldestColumn(history));
    if (!history.steps.size) return { why: `Step ${count(found.step)} is not known to this page; no step is.` };
    return { why: `Step ${count(found.step)} is not known to this page; it knows ${count(oldest)} to ${count(engine.state.step)}.` };
  }
  if (found && (history.lanes.has(found.id) || Object.hasOwn(state?.requests ?? {}, found.id))) return { choice: found };
  if (found && /^R\d+$/.test(found.id)) return { why: `${requestName(found.id)} is not known to this page.` };
  return { why: "Type a request (R7), a step (step 120) or a block (block 33)." };
}
