/**
 * Prompts: the form is htmx's; this fills it in (examples, presets, replies) and lets the answers stream into the
 * cards that the server sent back. Everything from a person or a model is set as text, never as HTML.
 *
 * @import {Page, RequestFacts, View} from "../types.js"
 * @import {Piece} from "../guesses.js"
 *
 * @typedef {{request: string, offset: number, text: string, guessed?: number[][], lengths?: number[], prompt?: string | null}} Item
 * @typedef {ReturnType<typeof createTexts>} Texts
 * @typedef {Map<string, HTMLElement>} Cards by request
 * @typedef {(request: string) => void} Forget
 */

import { cancelRequest, say } from "../controls.js";
import { byId, field, find, findAll } from "../dom.js";
import { keepDrafts, save } from "../drafts.js";
import { count, duration, finishWords, requestName, waitWords } from "../format.js";
import { append } from "../guesses.js";
import { curlWriter, NOT_LOADED } from "../later.js";
import { mountReveal } from "../reveal.js";
import { createTexts } from "../texts.js";

const CARDS_KEPT = 60;
const PROGRESS_MS = 250;

/** @param {Page} page */
export function mountPrompts(page) {
  const form = byId("prompt-form", HTMLFormElement);
  const list = byId("answers");
  const texts = createTexts();
  /** @type {Cards} */
  const cards = new Map();
  const reveal = mountReveal(find(document, ".answers-scroll"));
  let shownAt = -Infinity;
  const forget = (/** @type {string} */ request) => texts.forget(request);

  keepDrafts(form);
  fillIn(form);
  form.addEventListener("submit", () => address(form, page.view()), { capture: true }); // before htmx reads the fields
  adopt(list, cards, texts, forget);
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = /** @type {CustomEvent} */ (event).detail;
    if (ctx.sourceElement !== form && ctx.target !== list) return;
    const [first] = adopt(list, cards, texts, forget);
    if (ctx.response?.status < 400) {
      sent(form);
      page.goLive(); // whoever sends wants to see it run; what others send leaves the view alone
    }
    if (first) reveal.follow(first);
    page.loop.invalidate();
  });
  document.addEventListener("htmx:error", () => showError("The server cannot be reached. Your prompt is still here."));
  list.addEventListener("click", (event) => act(event, page, form, texts));
  list.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = cardAt(event)?.dataset.request;
    if (request) cancelRequest(request);
  });

  page.selection.subscribe((choice) => {
    const card = choice?.kind === "request" ? cards.get(choice.id) : null;
    if (card) reveal.follow(card);
  });

  page.loop.add({
    id: "prompts",
    visible: true,
    draw(view) {
      for (const [id, card] of cards) card.classList.toggle("lit", view.lit.requests.has(id));
      if (performance.now() - shownAt < PROGRESS_MS) return;
      shownAt = performance.now();
      for (const [id, card] of cards) showProgress(card, id, view);
      reveal.update();
    },
    refresh(view) {
      for (const [id, card] of cards) showProgress(card, id, view);
    },
  });

  return {
    texts,
    /** @param {Item[]} items */
    take(items) {
      for (const item of items) {
        const change = texts.put(item.request, item.offset, item.text, item.guessed, item.lengths);
        const card = cards.get(item.request) ?? cardFor(item, list, cards, page.view());
        if (change !== null) put(find(card, ".said"), change);
      }
      prune(cards, forget); // with --share-text all, cards come that no form of this page asked for
    },
    /** Drop the answers of an engine whose stage was reset; without one all of them: another server does not know their requests. @param {string} [engine] */
    reset(engine) {
      for (const [id, card] of cards) {
        if (engine && card.dataset.engine && card.dataset.engine !== engine) continue;
        discard(card);
        cards.delete(id);
        forget(id);
      }
      if (!cards.size) list.replaceChildren();
      byId("no-answers").hidden = cards.size > 0;
      const { value } = field(form, "conversation");
      if (![...cards.values()].some(({ dataset }) => dataset.conversation === value)) converse(form, "");
    },
  };
}

// -- the form ------------------------------------------------------------------------------------

/** The field that the prompt is typed in. @param {HTMLFormElement} form */
function promptOf(form) {
  return field(form, "prompt", HTMLTextAreaElement);
}

/** @param {HTMLFormElement} form */
function fillIn(form) {
  const prompt = promptOf(form);
  const system = field(form, "system", HTMLTextAreaElement);
  const examples = find(form, "[data-examples]", HTMLSelectElement);
  examples.addEventListener("change", () => {
    prompt.value = examples.value;
    examples.selectedIndex = 0;
    save(form);
    prompt.focus();
  });
  const preset = find(form, "[data-preset]", HTMLSelectElement);
  preset.addEventListener("change", () => {
    system.value = preset.value;
    save(form);
  });
  const follow = () => {
    preset.selectedIndex = [...preset.options].findIndex((option, i) => i > 0 && system.value !== "" && option.value === system.value);
    if (preset.selectedIndex < 0) preset.selectedIndex = 0;
  };
  system.addEventListener("input", follow);
  follow();
  find(form, "[data-new-conversation]").addEventListener("click", () => converse(form, ""));
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(find(form, "[data-send]"));
  });
  offerAnew(form);
}

/** A prompt that was sent stays, to be sent again; whoever comes back to the field finds it selected, to type over it. @param {HTMLFormElement} form */
function offerAnew(form) {
  const prompt = promptOf(form);
  form.addEventListener("submit", (event) => (form.dataset.sending = event.submitter?.getAttribute("name") === "burst" ? "burst" : "prompt"));
  prompt.addEventListener("input", () => delete prompt.dataset.sent);
  prompt.addEventListener("focus", () => "sent" in prompt.dataset && prompt.select());
  prompt.addEventListener("click", () => {
    if (!("sent" in prompt.dataset)) return;
    delete prompt.dataset.sent; // the next click sets the caret
    prompt.select();
  });
}

/** What is sent goes to the engine that is on show then. @param {HTMLFormElement} form @param {View} view */
function address(form, { store }) {
  if (store.frames) field(form, "engine").value = store.name; // before that, what the server wrote is all that is known
}

/** @param {HTMLFormElement} form */
function sent(form) {
  showError("");
  const prompt = promptOf(form);
  if (form.dataset.sending === "burst") return; // it sends examples, not the prompt
  if (field(form, "conversation").value) empty(form);
  else prompt.dataset.sent = "";
  if (document.activeElement === prompt) prompt.select();
}

/** @param {HTMLFormElement} form */
function empty(form) {
  const prompt = promptOf(form);
  prompt.value = "";
  delete prompt.dataset.sent;
  save(form);
}

/** @param {string} text */
function showError(text) {
  byId("prompt-error").textContent = text;
}

/** Continue a conversation, or start a new one with "". @param {HTMLFormElement} form @param {string} conversation */
function converse(form, conversation) {
  field(form, "conversation").value = conversation;
  const note = find(form, ".continuing");
  note.hidden = !conversation;
  find(note, "span").textContent = "Continuing the conversation: earlier turns are sent again.";
  if (!conversation) return;
  const prompt = promptOf(form);
  if ("sent" in prompt.dataset) empty(form);
  prompt.focus();
  prompt.select();
}

// -- the cards -----------------------------------------------------------------------------------

/**
 * Take in the cards that the server put into the list: turns of one conversation belong together.
 * @param {HTMLElement} list @param {Cards} cards @param {Texts} texts @param {Forget} forget
 * @returns {HTMLElement[]} the new ones, oldest first
 */
function adopt(list, cards, texts, forget) {
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
function prune(cards, forget) {
  for (const [id, card] of [...cards].slice(0, Math.max(0, cards.size - CARDS_KEPT))) {
    discard(card);
    cards.delete(id);
    forget(id);
  }
}

/** Take a card out, and its group when it was the last one in it. @param {HTMLElement} card */
function discard(card) {
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
function cardFor({ request, prompt }, list, cards, { store }) {
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
function put(said, change) {
  if ("whole" in change) said.replaceChildren();
  append(said, "whole" in change ? change.whole : change.append);
}

/** @param {HTMLElement} card @param {string} id @param {View} view */
function showProgress(card, id, { engine: shown, store }) {
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

/** The card that something happened in. @param {Event} event */
function cardAt({ target }) {
  return target instanceof Element ? /** @type {HTMLElement | null} */ (target.closest("[data-request]")) : null;
}

/** @param {Event} event @param {Page} page @param {HTMLFormElement} form @param {Texts} texts */
function act(event, page, form, texts) {
  const button = event.target instanceof Element ? event.target.closest("button") : null;
  const card = cardAt(event);
  if (!button || !card) return;
  if (button.hasAttribute("data-select")) choose(card.dataset.request ?? "", page);
  else if (button.hasAttribute("data-reply")) converse(form, card.dataset.conversation ?? "");
  else if (button.hasAttribute("data-curl")) copyCurl(card, form, texts, page.view());
}

/** Light a request up; where the pictures are not beside it, go to its lane. @param {string} id @param {Page} page */
function choose(id, page) {
  const { store } = page.view();
  const engine = store.having(id);
  if (engine && engine !== store.engine) page.showEngine(engine.id);
  page.selection.set({ kind: "request", id });
  if (window.matchMedia("(max-width: 699px)").matches) byId("panel-timeline").scrollIntoView();
}

/** Asked for at once, and filled in later: a browser lets nobody copy who was not just clicked. @param {HTMLElement} card @param {HTMLFormElement} form @param {Texts} texts @param {View} view */
async function copyCurl(card, form, texts, { store }) {
  const loading = curlWriter();
  try {
    const text = loading.then(({ curlCommand }) => new Blob([curlCommand(card, form, texts, store)], { type: "text/plain" }));
    await navigator.clipboard.write([new ClipboardItem({ "text/plain": text })]);
    say("Copied as a curl command.");
  } catch {
    say((await loading.catch(() => null)) ? "The browser does not allow copying here." : NOT_LOADED);
  }
}
