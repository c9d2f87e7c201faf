/**
 * Prompts: the form is htmx's; this fills it in (examples, presets, replies) and lets the answers stream into the
 * cards that the server sent back. Everything from a person or a model is set as text, never as HTML.
 */

import { cancelRequest, say } from "../controls.js";
import { curlCommand } from "../curl.js";
import { keepDrafts, save } from "../drafts.js";
import { count, duration, finishWords, requestName, waitWords } from "../format.js";
import { append } from "../guesses.js";
import { mountReveal } from "../reveal.js";
import { createTexts } from "../texts.js";

const CARDS_KEPT = 60;
const PROGRESS_MS = 250;

/** @param {{loop: any, selection: any}} page */
export function mountPrompts(page) {
  const form = /** @type {HTMLFormElement} */ (document.getElementById("prompt-form"));
  const list = document.getElementById("answers");
  const texts = createTexts();
  /** @type {Map<string, HTMLElement>} */
  const cards = new Map();
  const reveal = mountReveal(list.closest(".answers-scroll"));
  let shownAt = -Infinity;
  const forget = (request) => texts.forget(request);

  keepDrafts(form);
  fillIn(form);
  adopt(list, cards, texts, forget);
  document.addEventListener("htmx:after:swap", (event) => {
    if (event.detail.ctx.sourceElement !== form && event.detail.ctx.target !== list) return;
    const [newest] = adopt(list, cards, texts, forget);
    if (event.detail.ctx.response?.status < 400) sent(form);
    if (newest) reveal.follow(newest);
    page.loop.invalidate();
  });
  document.addEventListener("htmx:error", () => showError("The server cannot be reached. Your prompt is still here."));
  list.addEventListener("click", (event) => act(event, page, form, list, texts));
  list.addEventListener("submit", (event) => {
    event.preventDefault();
    cancelRequest(event.target.closest("[data-request]").dataset.request);
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
    /** @param {Array<{request: string, offset: number, text: string, guessed?: number[][], lengths?: number[], prompt?: string | null}>} items */
    take(items) {
      for (const item of items) {
        const change = texts.put(item.request, item.offset, item.text, item.guessed, item.lengths);
        const card = cards.get(item.request) ?? cardFor(item, list, cards);
        if (change !== null) put(card.querySelector(".said"), change);
      }
      prune(cards, forget); // with --share-text all, cards come that no form of this page asked for
    },
    /** Another server: the answers are of requests that it does not know. */
    reset() {
      for (const id of cards.keys()) forget(id);
      cards.clear();
      list.replaceChildren();
      converse(form, "");
      document.getElementById("no-answers").hidden = false;
    },
  };
}

// -- the form ------------------------------------------------------------------------------------

function fillIn(form) {
  form.querySelector("[data-examples]").addEventListener("change", (event) => {
    form.elements.prompt.value = event.target.value;
    event.target.selectedIndex = 0;
    save(form);
    form.elements.prompt.focus();
  });
  const preset = form.querySelector("[data-preset]");
  preset.addEventListener("change", () => {
    form.elements.system.value = preset.value;
    save(form);
  });
  const { system } = form.elements;
  const follow = () => {
    preset.selectedIndex = [...preset.options].findIndex((option, i) => i > 0 && system.value !== "" && option.value === system.value);
    if (preset.selectedIndex < 0) preset.selectedIndex = 0;
  };
  system.addEventListener("input", follow);
  follow();
  form.querySelector("[data-new-conversation]").addEventListener("click", () => converse(form, ""));
  form.elements.prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(form.querySelector("[data-send]"));
  });
  offerAnew(form);
}

/** A prompt that was sent stays, to be sent again; whoever comes back to the field finds it selected, to type over it. */
function offerAnew(form) {
  const { prompt } = form.elements;
  form.addEventListener("submit", (event) => (form.dataset.sending = event.submitter?.name === "burst" ? "burst" : "prompt"));
  prompt.addEventListener("input", () => delete prompt.dataset.sent);
  prompt.addEventListener("focus", () => "sent" in prompt.dataset && prompt.select());
  prompt.addEventListener("click", () => {
    if (!("sent" in prompt.dataset)) return;
    delete prompt.dataset.sent; // the next click sets the caret
    prompt.select();
  });
}

function sent(form) {
  showError("");
  const { prompt, conversation } = form.elements;
  if (form.dataset.sending === "burst") return; // it sends examples, not the prompt
  if (conversation.value) empty(form);
  else prompt.dataset.sent = "";
  if (document.activeElement === prompt) prompt.select();
}

function empty(form) {
  form.elements.prompt.value = "";
  delete form.elements.prompt.dataset.sent;
  save(form);
}

function showError(text) {
  const error = document.getElementById("prompt-error");
  error.textContent = text;
}

/** Continue a conversation, or start a new one with "". */
function converse(form, conversation) {
  form.elements.conversation.value = conversation;
  const note = form.querySelector(".continuing");
  note.hidden = !conversation;
  note.querySelector("span").textContent = "Continuing the conversation: earlier turns are sent again.";
  if (!conversation) return;
  if ("sent" in form.elements.prompt.dataset) empty(form);
  form.elements.prompt.focus();
  form.elements.prompt.select();
}

// -- the cards -----------------------------------------------------------------------------------

/** Take in the cards that the server put into the list: turns of one conversation belong together. @returns the new ones */
function adopt(list, cards, texts, forget) {
  document.getElementById("no-answers").hidden = list.querySelector("[data-request]") !== null;
  const fresh = [];
  for (const card of list.querySelectorAll("[data-request]")) {
    if (!card.isConnected) continue;
    const id = card.dataset.request;
    const known = cards.get(id);
    if (known && known !== card) discard(known); // its text came before the form's answer did
    if (known !== card) fresh.push(card);
    cards.set(id, card);
    const said = card.querySelector(".said");
    if (!said.textContent && texts.get(id)) put(said, { whole: texts.pieces(id) });
    gather(card, list);
  }
  prune(cards, forget);
  return fresh;
}

/** Forget the oldest cards. */
function prune(cards, forget) {
  for (const id of [...cards.keys()].slice(0, Math.max(0, cards.size - CARDS_KEPT))) {
    discard(cards.get(id));
    cards.delete(id);
    forget(id);
  }
}

/** Take a card out, and its group when it was the last one in it. */
function discard(card) {
  const group = card.closest(".sent");
  card.remove();
  if (group && !group.querySelector("[data-request]")) group.remove();
}

/** Move a new turn below the earlier turns of its conversation. */
function gather(card, list) {
  const { conversation } = card.dataset;
  if (!conversation || card.dataset.gathered) return;
  card.dataset.gathered = "yes";
  const group = card.closest(".sent");
  const earlier = [...list.querySelectorAll(".sent")].find((each) => each !== group && each.dataset.conversation === conversation);
  if (earlier) {
    earlier.append(card);
    list.prepend(earlier);
    if (!group.querySelector("[data-request]")) group.remove();
  } else if (group.querySelectorAll("[data-request]").length === 1) group.dataset.conversation = conversation;
}

function cardFor({ request, prompt }, list, cards) {
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("answer-template"));
  const group = document.createElement("div");
  group.className = "sent";
  group.append(template.content.cloneNode(true));
  const card = group.querySelector("[data-request]");
  card.dataset.request = request;
  card.querySelector("form").action = `/requests/${encodeURIComponent(request)}/abort`;
  card.querySelector("[data-select]").textContent = requestName(request);
  card.querySelector(".asked").textContent = prompt ?? "";
  list.prepend(group);
  cards.set(request, card);
  document.getElementById("no-answers").hidden = true;
  return card;
}

/** @param {HTMLElement} said @param {{append: any[]} | {whole: any[]}} change */
function put(said, change) {
  if ("whole" in change) said.replaceChildren();
  append(said, "whole" in change ? change.whole : change.append);
}

function showProgress(card, id, { engine }) {
  const request = engine?.state?.requests[id] ?? engine?.history.lanes.get(id)?.facts;
  const lost = engine?.about.status === "gone" && request?.status !== "finished";
  const status = lost ? "finished" : (request?.status ?? "waiting");
  if (card.dataset.status !== status) card.dataset.status = status;
  const progress = card.querySelector(".progress");
  const words = lost ? "lost with its engine" : progressWords(request);
  if (progress.textContent !== words) progress.textContent = words;
}

function progressWords(request) {
  if (!request) return "sent";
  const ttft = request.first_token_us === null ? null : request.first_token_us - request.arrival_us;
  if (request.status === "waiting") return `waits: ${waitWords(request.reason)}`;
  if (request.status === "running") {
    if (ttft === null) return `prefill ${count(request.num_computed_tokens)}/${count(request.num_prompt_tokens)} tok`;
    return `${count(request.num_output_tokens)} tok · TTFT ${duration(ttft)}`;
  }
  const { timings } = request;
  const cached = request.num_cached_tokens ? ` · ${count(request.num_cached_tokens)} tok from the cache` : "";
  const pace = timings?.gated_us > 0 ? "held by the gate" : `TTFT ${duration(timings?.ttft_us)} · TPOT ${duration(timings?.tpot_us)}`;
  return `${finishWords(request.finish_reason, request.finish_detail)} · ${count(request.num_output_tokens)} tok · ${pace}${cached}`;
}

function act(event, page, form, list, texts) {
  const button = event.target.closest("button");
  const card = event.target.closest("[data-request]");
  if (!button || !card) return;
  if (button.hasAttribute("data-select")) choose(card.dataset.request, page);
  else if (button.hasAttribute("data-reply")) converse(form, card.dataset.conversation);
  else if (button.hasAttribute("data-curl")) copy(curlCommand(card, form, texts, page.view().engine));
}

/** Light a request up; where the pictures are not beside it, go to its lane. */
function choose(id, page) {
  page.selection.set({ kind: "request", id });
  if (window.matchMedia("(max-width: 699px)").matches) document.getElementById("panel-timeline").scrollIntoView();
}

function copy(text) {
  navigator.clipboard.writeText(text).then(
    () => say("Copied as a curl command."),
    () => say("The browser does not allow copying here."),
  );
}
