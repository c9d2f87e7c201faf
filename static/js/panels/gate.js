/**
 * The gate: pause, run, count steps, slow down, and stop by itself at a breakpoint. What it shows is the engine's own
 * word (state.gate); a checkbox is set once the engine has the breakpoint, and a refusal is said beside its field.
 * Above the controls: what closed it, and the step it stands after, explained.
 *
 * @import {GateFacts, Page, View} from "../types.js"
 */

import { conditionWords } from "../conditions.js";
import { byData, byId, field as fieldIn, find, findAll, show, write } from "../dom.js";
import { keepDrafts } from "../drafts.js";
import { askGate } from "../engine_asks.js";
import { breakWords, explainStep, hitWords } from "../explain.js";
import { count, plural, requestName } from "../format.js";
import { byHand } from "../metrics.js";

/** A list of breakpoints just asked for is shown until the engine has said it, but no longer than this. */
const BELIEVED_MS = 2000;

/** @param {Page} page */
export function mountGate(page) {
  const parts = byData(byId("panel-gate"), "gate");
  const breaks = mountBreaks(byId("gate-breaks", HTMLFormElement), page);
  const rate = mountRate(byId("gate-rate", HTMLFormElement));
  mountMoves(byId("gate-moves", HTMLFormElement), page);
  page.loop.add({
    id: "gate",
    visible: true,
    draw(view) {
      const gate = view.engine?.state?.gate;
      if (!gate) return;
      const paused = gate.state === "paused";
      show(parts.pause, !paused);
      show(parts.run, paused);
      show(parts.gated, byHand(view.engine?.state));
      write(parts.state, stateWords(gate, view));
      rate.show(gate);
      breaks.show(gate);
      const { choice } = view;
      const set = gate.breaks.filter((text) => text.startsWith("request:")).map((text) => requestName(text.slice(8)));
      const chosen = choice?.kind === "request" ? requestName(choice.id) : null;
      write(parts.chosen, set.length ? `(${set.join(", ")})` : chosen ? `(${chosen})` : "(choose one first)");
      if (paused || choice?.kind === "step") write(parts.sentence, sentence(gate, view));
    },
    refresh(view) {
      const gate = view.engine?.state?.gate;
      if (gate) write(parts.sentence, sentence(gate, view));
    },
  });
}

/** How it stands: "Stopped after step 41: a request was preempted (R7)." @param {GateFacts} gate @param {View} view */
function stateWords(gate, { engine }) {
  if (gate.steps_left > 0) return `Taking ${plural(gate.steps_left, "more step", "more steps")}.`;
  if (gate.hit) return hitWords(gate.hit);
  if (gate.state === "paused") return engine?.state?.step ? `Paused after step ${count(engine.state.step)}.` : "Paused before the first step.";
  return gate.per_second === null ? "Running." : `Running, at most ${plural(gate.per_second, "step")} a second.`;
}

/** The chosen step, the one that it stopped after, or what it will stop at. @param {GateFacts} gate @param {View} view */
function sentence(gate, { choice, engine, history }) {
  const state = engine?.state;
  if (!state || !history) return "";
  const column = choice?.kind === "step" ? choice.column : gate.state === "paused" ? history.base + (gate.hit?.step ?? state.step) : null;
  const step = column === null ? undefined : history.steps.get(column);
  if (column !== null && step) {
    const notes = history.notes.get(column);
    const about = gate.hit && column === history.base + gate.hit.step ? conditionWords(gate.hit, step, notes) : null;
    return [about && `${about[0].toUpperCase()}${about.slice(1)}`, explainStep(step, notes)].filter(Boolean).join(" ");
  }
  if (gate.state === "paused") return "No step of it is known to this page yet.";
  if (!gate.breaks.length) return "Pause it, or set a breakpoint, and its step is explained here. A step chosen in a picture is explained too.";
  return `It stops once ${gate.breaks.map(breakWords).join(", or ")}.`;
}

// -- the forms -----------------------------------------------------------------------------------

/** @param {HTMLFormElement} form @param {Page} page */
function mountMoves(form, { goLive }) {
  const error = find(form, ".error");
  const steps = fieldIn(form, "steps");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const action = event.submitter?.getAttribute("value") ?? "step";
    if (action !== "pause") goLive();
    const { message } = await askGate(action === "step" ? { action, steps: number(steps.value) } : { action });
    error.textContent = message;
  });
  form.noValidate = true; // the engine's own words say more
}

/** A number if it reads as one, else the text, which the engine then refuses in words. @param {string} text */
function number(text) {
  return text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}

/** @param {HTMLFormElement} form */
function mountRate(form) {
  const buttons = findAll(form, "[data-rate]");
  const field = fieldIn(form, "per_second");
  const error = find(form, ".error");
  form.noValidate = true;
  const set = async (/** @type {number | string | null} */ value) => {
    const { message } = await askGate({ action: "rate", per_second: value });
    error.textContent = message;
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      field.value = "";
      set(button.dataset.rate === "" ? null : Number(button.dataset.rate));
    });
  }
  const typed = () => field.value.trim() !== "" && set(number(field.value));
  field.addEventListener("change", typed);
  form.addEventListener("submit", (event) => event.preventDefault());
  return {
    /** @param {GateFacts} gate */
    show({ per_second: now }) {
      for (const button of buttons) {
        const on = button.dataset.rate === "" ? now === null : Number(button.dataset.rate) === now;
        if (button.getAttribute("aria-pressed") !== String(on)) button.setAttribute("aria-pressed", String(on));
      }
    },
  };
}

/**
 * The list that the engine has is changed one kind at a time; a kind that takes an argument ends in ":". What was set
 * by others, several of a kind included, stays until its box is unticked.
 * @param {HTMLFormElement} form @param {Page} page
 */
function mountBreaks(form, page) {
  const boxes = findAll(form, "[data-break]", HTMLInputElement);
  const error = find(form, ".error");
  let believed = /** @type {{texts: string[], at: number, of: string} | null} */ (null);
  form.noValidate = true;
  keepDrafts(form);

  const name = () => page.view().store.name;
  const known = () => (believed?.of === name() ? believed.texts : null) ?? page.view().engine?.state?.gate.breaks ?? [];
  const ofKind = (/** @type {string} */ text, /** @type {string} */ kind) => (kind.endsWith(":") ? text.startsWith(kind) : text === kind);
  const fieldOf = (/** @type {string} */ kind) => /** @type {HTMLInputElement | null} */ (form.elements.namedItem(kind.slice(0, -1)));
  const kindOf = (/** @type {HTMLElement} */ box) => box.dataset.break ?? "";

  /** @param {string} kind @param {boolean} on */
  async function set(kind, on) {
    const text = on ? textOf(kind) : null;
    if (on && text === null) {
      error.textContent = "Choose a request first: click its lane, its slot or its name.";
      page.loop.invalidateNow();
      return;
    }
    const texts = [...known().filter((each) => !ofKind(each, kind)), ...(text === null ? [] : [text])];
    believed = { texts, at: performance.now(), of: name() };
    const { ok, message } = await askGate({ action: "break", on: texts });
    error.textContent = message;
    fieldOf(kind)?.setAttribute("aria-invalid", String(!ok));
    if (!ok) believed = null;
    page.loop.invalidateNow();
  }

  /** @param {string} kind */
  function textOf(kind) {
    if (!kind.endsWith(":")) return kind;
    if (kind !== "request:") return kind + (fieldOf(kind)?.value.trim() ?? "");
    const { choice } = page.selection;
    return choice?.kind === "request" ? kind + choice.id : null;
  }

  for (const box of boxes) {
    const kind = kindOf(box);
    box.addEventListener("change", () => set(kind, box.checked));
    const field = fieldOf(kind);
    field?.addEventListener("change", () => box.checked && set(kind, true));
    field?.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      set(kind, true);
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());

  return {
    /** @param {GateFacts} gate */
    show(gate) {
      if (believed && (believed.of !== name() || performance.now() - believed.at > BELIEVED_MS || String(believed.texts) === String(gate.breaks))) believed = null;
      const texts = known();
      for (const box of boxes) {
        const kind = kindOf(box);
        const set = texts.find((text) => ofKind(text, kind));
        if (box.checked !== (set !== undefined)) box.checked = set !== undefined;
        const field = fieldOf(kind);
        if (set && field && !field.value && document.activeElement !== field) field.value = set.slice(kind.length);
      }
    },
  };
}
