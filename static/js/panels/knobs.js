/**
 * Knobs: the engine's settings as fields. A field follows the engine until somebody changes it; from then on it is a
 * draft, kept over refreshes and reconnects, until it is applied or discarded. Applying is explicit and atomic; each
 * row says what a change will do and, afterwards, what it did. What needs a new engine asks first.
 *
 * @import {Engine, Page} from "../types.js"
 * @import {Answer} from "../controls.js"
 *
 * @typedef {ReturnType<typeof rowOf>} Knob
 * @typedef {Map<string, any>} Drafts values that were typed, by the setting's name
 * @typedef {Object<string, string>} Effects how each setting takes effect
 */

import { byId, find, findAll } from "../dom.js";
import { knobEffects, turnKnobs } from "../engine_asks.js";
import { count, plural } from "../format.js";
import { keep, readKept } from "../kept.js";
import { withQuery } from "../query.js";

/** Drafts are of one engine: what was typed for another is not applied to it. @param {string | null} engine */
const keyOf = (engine) => `stepscope.knobs.${engine}`;

/** @type {Object<string, string>} */
const EFFECT_WORDS = { live: "at once", next_step: "next step", restart: "restart" };

/** @param {Page} page */
export function mountKnobs(page) {
  const root = byId("panel-knobs");
  const form = find(root, "form");
  const rows = findAll(root, "[data-knob]").map(rowOf);
  const drafts = /** @type {Drafts} */ (new Map());
  let of = /** @type {string | null} */ (null);
  /** @type {Map<string, any>} values that were accepted and that the engine has not told of yet */
  const accepted = new Map();
  /** @type {Map<string, string>} by name: what applying it did */
  const done = new Map();
  let effects = /** @type {Effects} */ ({});
  let epoch = /** @type {string | null} */ (null);
  let busy = false;
  const confirmRestart = mountRestartQuestion(byId("restart-ask", HTMLDialogElement), page);

  const parts = {
    apply: find(form, "[data-apply]", HTMLButtonElement),
    discard: find(form, "[data-discard]"),
    plan: find(form, "[data-plan]"),
    wrong: find(form, "[data-wrong]"),
  };
  const current = (/** @type {string} */ name) => (accepted.has(name) ? accepted.get(name) : page.view().engine?.state?.config[name]);
  const changed = () => rows.filter(({ name }) => drafts.has(name) && drafts.get(name) !== current(name));

  /** @param {Knob} row */
  function edit(row) {
    row.wrong.textContent = "";
    done.delete(row.name);
    drafts.set(row.name, row.read());
    if (drafts.get(row.name) === current(row.name)) drafts.delete(row.name);
    keepDrafts(of, drafts);
    page.loop.invalidateNow();
  }

  /** @param {SubmitEvent} event */
  async function apply(event) {
    event.preventDefault();
    const turned = changed();
    if (!turned.length || busy) return;
    const restarts = turned.some(({ name }) => effects[name] === "restart");
    if (restarts && !(await confirmRestart())) return;
    busy = true;
    clearErrors();
    page.loop.invalidateNow();
    const changes = Object.fromEntries(turned.map(({ name }) => [name, drafts.get(name)]));
    const answer = await turnKnobs(changes, restarts);
    busy = false;
    if (answer.ok) succeed(turned, answer.body.effects);
    else blame(rows, turned, answer, parts.wrong);
    page.loop.invalidateNow();
  }

  /** @param {Knob[]} turned @param {Effects} how */
  function succeed(turned, how) {
    const restarting = Object.values(how).includes("restart");
    for (const { name } of turned) {
      const { step } = page.view().engine?.state ?? { step: 0 };
      accepted.set(name, drafts.get(name));
      done.set(name, restarting ? "the engine is restarting" : how[name] === "live" ? "in effect" : `in effect from step ${count(step + 1)} on`);
      drafts.delete(name);
    }
    keepDrafts(of, drafts);
  }

  function clearErrors() {
    for (const row of rows) row.wrong.textContent = "";
    parts.wrong.textContent = "";
  }

  /** A new engine: it tells its settings itself. @param {Engine} engine */
  function meet(engine) {
    if (engine.id !== of) {
      of = engine.id;
      done.clear();
      clearErrors();
      drafts.clear();
      for (const [name, value] of loadDrafts(of)) drafts.set(name, value);
    } else if (epoch !== null) for (const [name, words] of done) if (words.includes("restarting")) done.set(name, "in effect, in a new engine");
    epoch = engine.epoch;
    accepted.clear();
    const { epoch: asked } = engine;
    knobEffects().then((found) => {
      if (asked === epoch) effects = found;
      page.loop.invalidateNow();
    });
  }

  const ghosts = findAll(root, "[data-ghost]", HTMLAnchorElement);
  for (const row of rows) row.field.addEventListener("input", () => edit(row));
  form.addEventListener("submit", apply);
  form.noValidate = true;
  parts.discard.addEventListener("click", () => {
    drafts.clear();
    keepDrafts(of, drafts);
    clearErrors();
    page.loop.invalidateNow();
  });

  page.loop.add({
    id: "knobs",
    visible: true,
    refresh({ engine }) {
      if (!engine?.state) return;
      if (engine.epoch !== epoch) meet(engine);
      for (const [name, value] of accepted) if (engine.state.config[name] === value) accepted.delete(name);
      for (const row of rows) row.show({ value: current(row.name), drafts, effect: effects[row.name], done: done.get(row.name) });
      showPlan(parts, changed(), effects, busy);
      for (const link of ghosts) showGhost(link, engine);
    },
  });
}

// -- rows ----------------------------------------------------------------------------------------

/** One setting's row: reading it, and showing the engine's value or the draft. @param {HTMLElement} node */
function rowOf(node) {
  const { knob: name = "", kind, nullable } = node.dataset;
  const field = /** @type {HTMLInputElement | HTMLSelectElement} */ (find(node, "input, select"));
  const does = find(node, "[data-does]");
  const wrong = find(node, ".error");

  const read = () => {
    if (field instanceof HTMLInputElement && kind === "bool") return field.checked;
    if (kind === "choice") return field.value;
    if (field.value.trim() === "") return nullable ? null : "";
    return Number(field.value);
  };
  const put = (/** @type {any} */ value) => {
    if (field instanceof HTMLInputElement && kind === "bool") {
      if (field.checked !== value) field.checked = value;
      return;
    }
    if (field instanceof HTMLSelectElement && ![...field.options].some((option) => option.value === value)) field.add(new Option(value));
    const text = value === null || value === undefined ? "" : String(value);
    if (field.value !== text) field.value = text;
  };

  return {
    name,
    field,
    wrong,
    read,
    /** @param {{value: any, drafts: Drafts, effect: string | undefined, done: string | undefined}} now */
    show({ value, drafts, effect = "", done }) {
      field.disabled = false;
      const draft = drafts.has(name) && drafts.get(name) !== value;
      if (draft) {
        if (document.activeElement !== field) put(drafts.get(name));
      } else if (document.activeElement !== field || read() !== value) put(value);
      node.classList.toggle("turned", draft);
      const words = draft ? `was ${valueWords(value)}; ${EFFECT_WORDS[effect] ?? ""}` : (done ?? EFFECT_WORDS[effect] ?? "");
      if (does.textContent !== words) does.textContent = words;
      node.classList.toggle("done", !draft && done !== undefined);
    },
  };
}

/** @param {unknown} value */
function valueWords(value) {
  if (value === true) return "on";
  if (value === false) return "off";
  return typeof value === "number" && Number.isInteger(value) ? count(value) : String(value);
}

/** @param {{apply: HTMLButtonElement, discard: HTMLElement, plan: HTMLElement}} parts @param {Knob[]} turned @param {Effects} effects @param {boolean} busy */
function showPlan({ apply, discard, plan }, turned, effects, busy) {
  apply.disabled = !turned.length || busy;
  discard.hidden = !turned.length;
  const restart = turned.some(({ name }) => effects[name] === "restart");
  const label = turned.length ? `Apply ${plural(turned.length, "change")}` : "Apply";
  if (apply.textContent !== label) apply.textContent = label;
  const words = busy ? "Applying…" : restart ? "This starts a new engine; you are asked first." : "";
  if (plan.textContent !== words) plan.textContent = words;
}

/** The way to the last run beside a simulation of it, with one setting turned the other way. @param {HTMLAnchorElement} link @param {Engine} engine */
function showGhost(link, { id, state }) {
  if (!state) return;
  const { ghost = "" } = link.dataset;
  /** @type {Object<string, string>} */
  const all = {
    batching: `${state.config.batching === "static" ? "continuous" : "static"} batching`,
    enable_chunked_prefill: `chunked prefill ${state.config.enable_chunked_prefill ? "off" : "on"}`,
  };
  const words = all[ghost];
  link.href = withQuery("/compare", { ghost, engine: id });
  if (link.textContent !== `Compare with ${words}`) link.textContent = `Compare with ${words}`;
}

/** Say a refusal beside the setting it names, in the API's field or in its sentence (as a name or a flag); else below. @param {Knob[]} rows @param {Knob[]} turned @param {Answer} answer @param {HTMLElement} below */
function blame(rows, turned, { message, param }, below) {
  const flagOf = (/** @type {string} */ name) => new RegExp(`(?<![\\w-])(${name}|--(no-)?${name.replaceAll("_", "-")})(?![\\w-])`);
  const named = rows.find(({ name }) => name === param) ?? turned.find(({ name }) => flagOf(name).test(message));
  if (named) {
    named.wrong.textContent = message;
    named.field.focus();
  } else below.textContent = message;
}

// -- the question --------------------------------------------------------------------------------

/** @param {HTMLDialogElement} dialog @param {Page} page @returns {() => Promise<boolean>} asks whether to restart, saying how many requests would end */
function mountRestartQuestion(dialog, page) {
  const words = find(dialog, "[data-restart-words]");
  const say = () => {
    const { running, waiting } = page.view().engine?.state?.queues ?? { running: [], waiting: [] };
    const live = running.length + waiting.length;
    const ends = live ? `${plural(live, "request")} would end with an error.` : "No request is live, so none would end.";
    const text = `${ends} The KV cache and the breakpoints are forgotten; the page goes on with the new engine.`;
    if (words.textContent !== text) words.textContent = text;
  };
  page.loop.add({ id: "restart-question", visible: true, draw: () => dialog.open && say() });
  find(dialog, "[data-restart-yes]").addEventListener("click", () => dialog.close("yes"));
  find(dialog, "[data-restart-no]").addEventListener("click", () => dialog.close(""));
  return () => {
    dialog.returnValue = "";
    say();
    dialog.showModal();
    return new Promise((answer) => dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true }));
  };
}

// -- drafts --------------------------------------------------------------------------------------

/** @param {string | null} engine @param {Drafts} drafts */
function keepDrafts(engine, drafts) {
  keep(keyOf(engine), JSON.stringify([...drafts]), "sessionStorage");
}

/** @param {string} engine @returns {Drafts} */
function loadDrafts(engine) {
  try {
    return new Map(JSON.parse(readKept(keyOf(engine), "sessionStorage") ?? "[]"));
  } catch {
    return new Map();
  }
}
