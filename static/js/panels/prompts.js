/**
 * Prompts: the form is htmx's; this fills it in (examples, presets, replies) and lets the answers stream into the
 * cards that the server sent back. Everything from a person or a model is set as text, never as HTML.
 *
 * @import {Page, View} from "../types.js"
 * @import {Cards, Item} from "./answers.js"
 * @import {Texts} from "../texts.js"
 */

import { cancelRequest, say } from "../controls.js";
import { byId, field, find } from "../dom.js";
import { keepDrafts, save } from "../drafts.js";
import { curlWriter, NOT_LOADED } from "../later.js";
import { mountReveal } from "../reveal.js";
import { createTexts } from "../texts.js";
import { adopt, cardFor, discard, prune, put, showProgress } from "./answers.js";

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

// -- what is done with an answer -------------------------------------------------------------------

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
