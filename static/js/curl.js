/**
 * "Copy as curl": the request that a card stands for, as one command for a shell.
 *
 * @import {Json, RequestFacts, Store} from "./types.js"
 */

import { field, find, findAll } from "./dom.js";
import { withQuery } from "./query.js";

/** Stop strings are text, so the public events do not carry them: those that were given are left out. */
const KEPT = ["temperature", "top_k", "top_p", "min_p", "seed", "max_tokens", "min_tokens", "stop_token_ids", "ignore_eos", "priority", "class"];

/**
 * @param {HTMLElement} card
 * @param {HTMLFormElement} form the system prompt is taken from here
 * @param {{get: (request: string) => string}} texts
 * @param {Pick<Store, "engines" | "engine" | "having">} store where there are several engines, the command names its own
 */
export function curlCommand(card, form, texts, store) {
  const id = card.dataset.request ?? "";
  const engine = store.having(id) ?? store.engine;
  const facts = engine?.state?.requests[id] ?? engine?.history.lanes.get(id)?.facts;
  const body = { model: "default", messages: messagesOf(card, form, texts), stream: true, ...samplingOf(facts) };
  const address = withQuery(`${location.origin}/v1/chat/completions`, { engine: store.engines.size > 1 ? engine?.id : undefined });
  return [
    `curl -N ${address.includes("?") ? quoted(address) : address}`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}

/** @param {RequestFacts | undefined} facts */
function samplingOf(facts) {
  /** @type {Json} */
  const given = { ...facts?.sampling, max_tokens: facts?.max_tokens };
  for (const name of ["min_p", "min_tokens"]) given[name] ||= null; // 0 asks for nothing
  given.priority = facts?.priority || null;
  given.class = facts?.request_class;
  const asked = (/** @type {unknown} */ value) => value !== null && value !== undefined && value !== false && String(value) !== "";
  return Object.fromEntries(KEPT.filter((name) => asked(given[name])).map((name) => [name, given[name]]));
}

/**
 * The turns of its conversation up to this one.
 * @param {HTMLElement} card @param {HTMLFormElement} form @param {{get: (request: string) => string}} texts
 */
function messagesOf(card, form, texts) {
  const system = field(form, "system", HTMLTextAreaElement).value.trim();
  const messages = system ? [{ role: "system", content: system }] : [];
  const group = /** @type {HTMLElement | null} */ (card.closest(".sent"));
  for (const turn of group?.dataset.conversation ? findAll(group, "[data-request]") : [card]) {
    messages.push({ role: "user", content: find(turn, ".asked").textContent });
    if (turn === card) break;
    messages.push({ role: "assistant", content: texts.get(turn.dataset.request ?? "") });
  }
  return messages;
}

/** For a POSIX shell: nothing inside single quotes means anything but a single quote. @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
