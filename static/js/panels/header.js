/**
 * The header: what the engine is and how it is, the numbers that matter, and whether what you see is live.
 * Status and badges follow at once; figures at most twice a second, so that they can be read.
 *
 * @import {History, Page, State, View} from "../types.js"
 *
 * @typedef {Object<string, HTMLElement>} Parts by their data-part
 */

import { byData, byId, findAll, show, write } from "../dom.js";
import { count, duration, milliseconds, percent, plural, rate, statusWords } from "../format.js";
import { newestSteps, stepNumber } from "../history.js";
import { quietWords } from "../quiet.js";
import { windowSamples } from "../latency_window.js";
import { brokenInvariant, byHand, percentile, rates, RATE_WINDOW_US } from "../metrics.js";

/** @param {Pick<Page, "loop">} page */
export function mountHeader(page) {
  const parts = byData(byId("top"), "part");
  const labels = findAll(document, "[data-label]");
  const present = findAll(document, "[data-present]");
  const speculating = findAll(document, "[data-speculating]");
  const drafting = findAll(document, "[data-drafting]");
  page.loop.add({
    id: "header",
    visible: true,
    draw: (view) => {
      showStatus(parts, view);
      showLabels(labels, view);
      for (const node of present) show(node, view.store.held !== null);
      const speculative = view.engine?.state?.config.speculative ?? "none";
      for (const node of speculating) show(node, speculative !== "none");
      for (const node of drafting) show(node, speculative.startsWith("draft:"));
    },
    refresh: (view) => showFigures(parts, view),
  });
}

/** @param {Parts} parts @param {View} view */
function showStatus(parts, view) {
  const { engine, store } = view;
  const status = engine?.about.status ?? "starting";
  if (parts.status.dataset.status !== status) parts.status.dataset.status = status;
  write(parts.status, statusWords(status));
  if (view.hello) {
    const { model, device, draft } = view.hello;
    const scripted = device.type === "scripted";
    write(parts.model, scripted ? model.name : `${model.name} · ${model.dtype}${draft ? ` · guessed by ${draft.name}` : ""}`);
    write(parts.device, scripted ? "no model: answers from a script" : `${device.name} · ${device.type}, ${plural(device.num_threads, "thread")}`);
  } else if (engine || store.chosen !== null) {
    write(parts.model, "no model yet"); // nor is that of another engine its own
    write(parts.device, "");
  }
  const paused = engine?.state?.gate.state === "paused";
  show(parts.gated, gatedNow(view));
  show(parts.simulated, Boolean(view.hello?.simulated));
  show(parts.pause, !paused);
  show(parts.run, paused);
  show(parts.stale, store.connection === "stale");
  show(parts.quiet, view.quietMs !== null);
  write(parts.quiet, view.quietMs === null ? "" : quietWords(view.quietMs));
  showLive(parts.live, view);
}

/** Whether a hand was on the gate at the moment shown: of a step that was chosen, whether it was held itself. @param {Pick<View, "store" | "state" | "history" | "column">} view */
export function gatedNow({ store, state, history, column }) {
  if (!store.held?.visited) return byHand(state);
  return history?.steps.get(column)?.gated ?? byHand(state);
}

/** The board's figures are those of the moment shown: when that is held, it says which. @param {HTMLElement[]} labels @param {View} view */
function showLabels(labels, view) {
  const { hello, store, history, column } = view;
  const kind = { simulated: Boolean(hello?.simulated), gated: gatedNow(view) };
  for (const label of labels) {
    const held = store.held && history && label.hasAttribute("data-moment");
    write(label, held ? `step ${count(stepNumber(history, column))}` : labelWord(label.dataset.label ?? "", kind));
  }
}

/** What a script answers is simulated, whatever clock it was taken with; what a hand on the gate holds is gated. @param {string} label @param {{simulated: boolean, gated: boolean}} kind */
export function labelWord(label, { simulated, gated }) {
  if (simulated) return "simulated";
  return gated && label === "measured" ? "gated" : label;
}

/** LIVE while following; else how far behind the engine the view is by now. @param {HTMLElement} button @param {View} view */
function showLive(button, { store, axis, last, column }) {
  const following = axis.following && !store.held;
  if (button.getAttribute("aria-pressed") !== String(following)) button.setAttribute("aria-pressed", String(following));
  if (following) {
    write(button, "LIVE");
    return;
  }
  const behind = last - column;
  write(button, behind ? `HELD · ${plural(behind, "step")} behind · go live` : "HELD · go live");
}

/** @param {Parts} parts @param {View} view */
function showFigures(parts, { engine, state, store, history, column, until }) {
  // Paused by hand or not heard of: there is no rate. Idle: it is 0.
  const heard = store.held || engine?.about.status === "ready";
  const speed = state && history && heard && !byHand(state) ? rates(newestSteps(history, column), store.now) : { prefill: null, decode: null };
  write(parts.decode, rate(speed.decode));
  write(parts.prefill, rate(speed.prefill));
  write(parts["rate-window"], `last ${RATE_WINDOW_US / 1e6} s`);
  write(parts.running, count(state?.queues.running.length));
  write(parts["running-of"], state ? `of ${count(state.config.max_num_seqs)} slots` : "slots");
  write(parts.waiting, count(state?.queues.waiting.length));
  const pool = state?.blocks.counts;
  write(parts.where, history && state ? `step ${count(stepNumber(history, column))}` : "");
  write(parts.kv, percent(pool && pool.total ? pool.referenced / pool.total : null));
  write(parts["kv-of"], pool ? `${count(pool.referenced)}/${count(pool.total)} blocks` : "of blocks");
  showMedian(parts, "ttft", history, until);
  showMedian(parts, "tpot", history, until);
  const broken = state && brokenInvariant(state);
  if (parts.invariant.dataset.ok !== String(broken === null)) parts.invariant.dataset.ok = String(broken === null);
  write(parts.invariant, !state ? "–" : broken === null ? "holds" : "broken");
  if (parts.invariant.title !== (broken ?? "")) parts.invariant.title = broken ?? "";
}

/** @param {Parts} parts @param {"ttft" | "tpot"} name @param {History | null} history @param {number} until */
function showMedian(parts, name, history, until) {
  const samples = history ? windowSamples(history, until, name === "ttft" ? "ttft_us" : "tpot_us") : [];
  const median = percentile(samples, 50);
  const seconds = median !== null && median >= 10_000_000;
  write(parts[name], seconds ? duration(median).slice(0, -2) : milliseconds(median));
  write(parts[`${name}-unit`], seconds ? "s" : "ms");
  write(parts[`${name}-n`], `n = ${count(samples.length)}`);
}
