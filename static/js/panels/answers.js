/**
 * The answers: a card for each request, which the server sends, or which is made for one that no form of this page asked
 * for. Turns of one conversation stand together, the newest on top. Everything from a person or a model is set as text,
 * never as HTML.
 *
 * @import {RequestFacts, View} from "../types.js"
 * @import {Piece} from "../guesses.js"
 * @import {Texts} from "../texts.js"
 *
 * @typedef {{request: string, offset: number, text: string, guessed?: number[][], lengths?: number[], prompt?: string | null}} Item
 * @typedef {Map<string, HTMLElement>} Cards by request
 * @typedef {(request: string) => void} Forget
 */

import { byId, find, findAll } from "../dom.js";
import { count, duration, finishWords, requestName, waitWords } from "../format.js";
import { append } from "../guesses.js";

const CARDS_KEPT = 60;

/**
 * Take in the cards that the server put into the list: turns of one conversation belong together.
 * @param {HTMLElement} list @param {Cards} cards @param {Texts} texts @param {Forget} forget
 * @returns {HTMLElement[]} the new ones, oldest first
 */
export function adopt(list, cards, texts, forget) {
  byId("no-answers").hidden = list.querySelector("[data-request]") !== null;
  /** @type {HTMLElement[]} */
  const fresh = [];
  const oldestFirst = findAll(list, ".sent").toReversed().flatMap((group) => findAll(group, "[data-request]"));
  for (const card of oldestFirst) {
    if (!card.isConnected) continue;
    const id = card.dataset.request ?? "";
    const known = cards.get(id);
    if (known && known !== card) discard(known); // its text came before the answer to the form did
    if (known !== card) fresh.push(card);
    cards.set(id, card);
    const said = find(card, ".said");
    if (!said.textContent && texts.get(id)) put(said, { whole: texts.pieces(id) });
    gather(card, list);
  }
  prune(cards, forget);
  return fresh;
}

/** Forget the oldest cards. @param {Cards} cards @param {Forget} forget */
export function prune(cards, forget) {
  for (const [id, card] of [...cards].slice(0, Math.max(0, cards.size - CARDS_KEPT))) {
    discard(card);
    cards.delete(id);
    forget(id);
  }
}

/** Take a card out, and its group when it was the last one in it. @param {HTMLElement} card */
export function discard(card) {
  const group = groupOf(card);
  card.remove();
  if (group && !group.querySelector("[data-request]")) group.remove();
}

/** @param {HTMLElement} card */
function groupOf(card) {
  return /** @type {HTMLElement | null} */ (card.closest(".sent"));
}

/** Move a new turn below the earlier turns of its conversation; one of several answers leaves the others for it. @param {HTMLElement} card @param {HTMLElement} list */
function gather(card, list) {
  const { conversation } = card.dataset;
  if (!conversation || card.dataset.gathered) return;
  card.dataset.gathered = "yes";
  const isTurn = (/** @type {HTMLElement} */ each) => each.dataset.conversation === conversation;
  const earlier = findAll(list, "[data-request]").filter((each) => each !== card && isTurn(each) && each.dataset.gathered);
  if (!earlier.length) return;
  const [group, old] = [groupOf(card), groupOf(earlier[0])];
  const home = old && findAll(old, "[data-request]").every(isTurn) ? old : document.createElement("div");
  home.className = "sent";
  home.dataset.conversation = conversation;
  home.append(...earlier, card);
  list.prepend(home);
  for (const each of [group, old]) if (each && !each.querySelector("[data-request]")) each.remove();
}

/** @param {Item} item @param {HTMLElement} list @param {Cards} cards @param {View} view */
export function cardFor({ request, prompt }, list, cards, { store }) {
  const template = byId("answer-template", HTMLTemplateElement);
  const group = document.createElement("div");
  group.className = "sent";
  group.append(template.content.cloneNode(true));
  const card = find(group, "[data-request]");
  card.dataset.request = request;
  card.dataset.engine = store.having(request)?.id ?? "";
  find(card, "form").action = `/requests/${encodeURIComponent(request)}/abort`;
  find(card, "[data-select]").textContent = requestName(request);
  find(card, ".asked").textContent = prompt ?? "";
  list.prepend(group);
  cards.set(request, card);
  byId("no-answers").hidden = true;
  return card;
}

/** @param {HTMLElement} said @param {{append: Piece[]} | {whole: Piece[]}} change */
export function put(said, change) {
  if ("whole" in change) said.replaceChildren();
  append(said, "whole" in change ? change.whole : change.append);
}

/** @param {HTMLElement} card @param {string} id @param {View} view */
export function showProgress(card, id, { engine: shown, store }) {
  const own = store.having(id);
  if (own && !card.dataset.engine) card.dataset.engine = own.id;
  const engine = own ?? shown;
  const request = engine?.state?.requests[id] ?? engine?.history.lanes.get(id)?.facts;
  if (!request && card.dataset.status === "finished") return; // long ago: what the server wrote of it stands
  const lost = engine?.about.status === "gone" && request?.status !== "finished";
  const status = lost ? "finished" : (request?.status ?? "waiting");
  if (card.dataset.status !== status) card.dataset.status = status;
  const progress = find(card, ".progress");
  const where = engine === shown || !engine ? "" : `on ${engine.id}: `;
  const words = where + (lost ? "lost with its engine" : progressWords(request, engine?.state?.requests));
  if (progress.textContent !== words) progress.textContent = words;
}

/** @param {RequestFacts | undefined} request @param {Object<string, RequestFacts>} [requests] */
function progressWords(request, requests) {
  if (!request) return "sent";
  const ttft = request.first_token_us === null ? null : request.first_token_us - request.arrival_us;
  if (request.status === "waiting") return `waits: ${waitWords(request.reason, requests)}`;
  if (request.status === "running") {
    if (ttft === null) return `prefill ${count(request.num_computed_tokens)}/${count(request.num_prompt_tokens)} tok`;
    return `${count(request.num_output_tokens)} tok · TTFT ${duration(ttft)}`;
  }
  const { timings } = request;
  const cached = request.num_cached_tokens ? ` · ${count(request.num_cached_tokens)} tok from the cache` : "";
  const pace = timings && timings.gated_us > 0 ? "held by the gate" : `TTFT ${duration(timings?.ttft_us)} · TPOT ${duration(timings?.tpot_us)}`;
  return `${finishWords(request.finish_reason, request.finish_detail)} · ${count(request.num_output_tokens)} tok · ${pace}${cached}`;
}
