/**
 * Latency: one picture of two, requests (dots.js) or the gaps between their tokens (gaps.js), and below it percentiles
 * over raw samples, the targets and the goodput. A class of requests can be looked at alone.
 */

import { CLASS_RULES, classesOf } from "../classes.js";
import { fillOptions, showWrong } from "../fields.js";
import { count, milliseconds, NONE, percent, plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { finishedUntil } from "../history.js";
import { gapSamples } from "../itl.js";
import { keepSettings, readSettings, targetOf } from "../latency_settings.js";
import { WINDOW, windowOf } from "../latency_window.js";
import { ENOUGH, percentile, samplesOf } from "../metrics.js";
import { goodput, TARGET_RULES } from "../targets.js";
import { createDots, TIMINGS } from "./dots.js";
import { createGaps, GUTTER, ITL_STEPS, longestWords, windowGaps } from "./gaps.js";

/**
 * @param {any} page
 * @returns {{view: "requests" | "gaps", show: (view: "requests" | "gaps") => void}} which picture is shown
 */
export function mountLatency(page) {
  const root = document.getElementById("panel-latency");
  const form = /** @type {HTMLFormElement} */ (document.getElementById("latency-form"));
  const settings = readSettings();
  const lens = { kind: "", targets: { ttft_us: null, tpot_us: null } };
  const pictures = { requests: createDots(lens), gaps: createGaps(lens) };

  function setTargets() {
    const [ttft, tpot] = [["ttft", "The TTFT target"], ["tpot", "The TPOT target"]].map(([name, words]) =>
      form.elements[name].validity.badInput ? targetOf("no number", words) : targetOf(settings[name], words),
    );
    lens.targets = { ttft_us: ttft.us, tpot_us: tpot.us };
    form.elements.ttft.setAttribute("aria-invalid", String(ttft.wrong !== null));
    form.elements.tpot.setAttribute("aria-invalid", String(tpot.wrong !== null));
    showWrong(root.querySelector(".error"), ttft.wrong ?? tpot.wrong);
  }

  function show(view) {
    settings.view = view;
    for (const button of root.querySelectorAll("button[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === view));
    for (const node of root.querySelectorAll("[data-for]")) node.hidden = node.dataset.for !== view;
    keepSettings(settings);
    page.loop.invalidateNow();
  }

  for (const button of root.querySelectorAll("button[data-view]")) button.addEventListener("click", () => show(button.dataset.view));
  form.addEventListener("submit", (event) => event.preventDefault());
  root.addEventListener("input", () => {
    for (const name of ["ttft", "tpot"]) if (!form.elements[name].validity.badInput) settings[name] = form.elements[name].value;
    lens.kind = form.elements.kind.value;
    setTargets();
    keepSettings(settings);
    page.loop.invalidateNow();
  });

  for (const name of ["ttft", "tpot"]) form.elements[name].value = settings[name];
  form.elements.kind.value = "";
  setTargets();
  const panel = {
    gutter: GUTTER,
    detail: (node, view) => view.history && write(node, form, view, lens, settings.view),
    ...Object.fromEntries(["empty", "draw", "hit", "hint", "summary", "twin"].map((name) => [name, (...given) => pictures[settings.view][name](...given)])),
  };
  mountPanel("latency", panel, page, { timed: () => settings.view === "gaps" });
  show(settings.view);
  return {
    get view() {
      return settings.view;
    },
    show,
  };
}

function write(root, form, view, lens, picture) {
  const { kind, targets } = lens;
  const shown = windowOf(view.history, view.until, kind);
  for (const { name } of TIMINGS) writeLine(root.querySelector(`[data-timing="${name}"]`), samplesOf(shown, name), targets[name]);
  writeLine(root.querySelector('[data-timing="itl"]'), gapSamples(windowGaps(view, kind)));
  root.querySelector("[data-goodput]").textContent = goodputWords(goodput(shown, targets), targets);
  offerClasses(form.elements.kind, view, kind);
  const longest = picture === "gaps" ? longestWords(view, kind) : null;
  root.querySelector(".detail").textContent = [longest, windowWords(shown, kind), TARGET_RULES, kind && CLASS_RULES].filter(Boolean).join(" ");
}

function writeLine(line, samples, target = null) {
  for (const p of [50, 95, 99]) {
    const cell = line.querySelector(`.p${p}`);
    cell.textContent = milliseconds(percentile(samples, p));
    cell.classList.toggle("thin", samples.length < ENOUGH[p]);
  }
  line.querySelector(".n").textContent = count(samples.length);
  const within = line.querySelector(".within");
  if (within) within.textContent = target === null || !samples.length ? NONE : percent(samples.filter((us) => us <= target).length / samples.length);
}

/** "92 % · 184 of 200 requests met both". */
function goodputWords({ met, n, share }, targets) {
  const asked = Object.values(targets).filter((us) => us !== null).length;
  if (asked === 0) return `${NONE} · no target is set`;
  if (n === 0) return `${NONE} · nothing to judge yet`;
  return `${percent(share)} · ${count(met)} of ${plural(n, "request")} met ${asked === 2 ? "both" : "it"}`;
}

/** What was left out, and what the percentiles are over. @param {Array<any>} shown see windowOf */
export function windowWords(shown, kind) {
  const gated = shown.filter(({ timings }) => timings.gated_us > 0).length;
  const left = gated ? ` ${count(gated)} gated left out.` : "";
  const which = kind ? ` of the class "${kind}"` : "";
  return `Window: the last ${WINDOW} finished requests${which} that this page knows; ITL: ${ITL_STEPS} steps.${left} Grey: too few samples to mean much.`;
}

/** The classes of the window; the chosen one is offered even when none of it is left. */
function offerClasses(select, { history, until }, kind) {
  const found = classesOf(finishedUntil(history, until).slice(-WINDOW));
  if (kind && !found.some(({ name }) => name === kind)) found.push({ name: kind, n: 0 });
  fillOptions(select, found.map(({ name, n }) => ({ value: name, text: `${name} (${count(n)})` })));
}
