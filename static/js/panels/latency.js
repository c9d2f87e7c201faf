/**
 * Latency: one picture of two, requests (dots.js) or the gaps between their tokens (gaps.js), and below it percentiles
 * over raw samples, the targets and the goodput. A class of requests can be looked at alone.
 *
 * @import {CanvasPanel, KnownView, Page, Sample} from "../types.js"
 * @import {Targets} from "../targets.js"
 * @import {Lens} from "./dots.js"
 *
 * @typedef {"requests" | "gaps"} Picture
 */

import { CLASS_RULES, classesOf } from "../classes.js";
import { byId, field, find, findAll, write } from "../dom.js";
import { fillOptions, showWrong } from "../fields.js";
import { count, milliseconds, NONE, percent, plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { createGapWindow } from "../gap_window.js";
import { keepSettings, readSettings, targetOf } from "../latency_settings.js";
import { WINDOW, windowOf } from "../latency_window.js";
import { ENOUGH, percentile, samplesOf } from "../metrics.js";
import { percentilesOf } from "../tally.js";
import { goodput, TARGET_RULES } from "../targets.js";
import { createDots, targetFor, TIMINGS } from "./dots.js";
import { createGaps, GUTTER, ITL_STEPS, LEFT, longestWords, windowTally } from "./gaps.js";

/** The percentiles that are told. */
const RANKS = [50, 95, 99];
const TARGETS = /** @type {const} */ (["ttft", "tpot"]);

/**
 * @param {Page} page
 * @returns {{view: Picture, show: (view: Picture) => void}} which picture is shown
 */
export function mountLatency(page) {
  const root = byId("panel-latency");
  const form = byId("latency-form", HTMLFormElement);
  const fields = { ttft: field(form, "ttft"), tpot: field(form, "tpot") };
  const kind = field(form, "kind", HTMLSelectElement);
  const error = find(root, ".error");
  const buttons = findAll(root, "button[data-view]");
  const settings = readSettings();
  /** @type {Lens} */
  const lens = { kind: "", targets: { ttft_us: null, tpot_us: null }, gaps: createGapWindow() };
  const pictures = { requests: createDots(lens), gaps: createGaps(lens) };

  function setTargets() {
    const [ttft, tpot] = TARGETS.map((name) => targetOf(fields[name].validity.badInput ? "no number" : settings[name], `The ${name.toUpperCase()} target`));
    lens.targets = { ttft_us: ttft.us, tpot_us: tpot.us };
    fields.ttft.setAttribute("aria-invalid", String(ttft.wrong !== null));
    fields.tpot.setAttribute("aria-invalid", String(tpot.wrong !== null));
    showWrong(error, ttft.wrong ?? tpot.wrong);
  }

  /** @param {Picture} view */
  function show(view) {
    settings.view = view;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.view === view));
    for (const node of findAll(root, "[data-for]")) node.hidden = node.dataset.for !== view;
    keepSettings(settings);
    page.loop.invalidateNow();
  }

  for (const button of buttons) button.addEventListener("click", () => show(button.dataset.view === "gaps" ? "gaps" : "requests"));
  form.addEventListener("submit", (event) => event.preventDefault());
  root.addEventListener("input", () => {
    for (const name of TARGETS) if (!fields[name].validity.badInput) settings[name] = fields[name].value;
    lens.kind = kind.value;
    setTargets();
    keepSettings(settings);
    page.loop.invalidateNow();
  });

  fields.ttft.value = settings.ttft;
  fields.tpot.value = settings.tpot;
  kind.value = "";
  setTargets();
  const shown = () => pictures[settings.view];
  /** @type {CanvasPanel} */
  const panel = {
    gutter: GUTTER,
    margin: LEFT,
    detail: (node, view) => view.history && writeAll(node, kind, view, lens, settings.view),
    empty: (view) => shown().empty(view),
    look: (view) => shown().look(view),
    draw: (g, size, view) => shown().draw(g, size, view),
    hit: (x, y, view, size) => shown().hit(x, y, view, size),
    hint: (hit, view) => shown().hint(hit, view),
    summary: (view) => shown().summary(view),
    twin: (view) => shown().twin(view),
  };
  page.loop.add({ id: "itl", visible: true, draw: ({ history, column }) => history && lens.gaps.follow(history, column) });
  mountPanel("latency", panel, page, { timed: () => settings.view === "gaps" });
  show(settings.view);
  return {
    get view() {
      return settings.view;
    },
    show,
  };
}

/** @param {HTMLElement} root @param {HTMLSelectElement} select @param {KnownView} view @param {Lens} lens @param {Picture} picture */
function writeAll(root, select, view, lens, picture) {
  const { kind, targets } = lens;
  const shown = windowOf(view.history, view.until, kind);
  for (const { name } of TIMINGS) {
    const samples = samplesOf(shown, name);
    const line = find(root, `[data-timing="${name}"]`);
    writeLine(line, { n: samples.length, ranks: RANKS.map((p) => percentile(samples, p)) });
    const within = /** @type {HTMLElement | null} */ (line.querySelector(".within")); // some have no target
    if (within) writeWithin(within, samples, targetFor(targets, name));
  }
  writeLine(find(root, '[data-timing="itl"]'), percentilesOf(windowTally(view, lens), RANKS));
  write(find(root, "[data-goodput]"), goodputWords(goodput(shown, targets), targets));
  offerClasses(select, view, kind);
  const longest = picture === "gaps" ? longestWords(view, lens) : null;
  write(find(root, ".detail"), [longest, windowWords(shown, kind), TARGET_RULES, kind && CLASS_RULES].filter(Boolean).join(" "));
}

/** @param {HTMLElement} line @param {{n: number, ranks: Array<number | null>}} percentiles at RANKS */
function writeLine(line, { n, ranks }) {
  ranks.forEach((value, i) => {
    const cell = find(line, `.p${RANKS[i]}`);
    write(cell, milliseconds(value));
    cell.classList.toggle("thin", n < ENOUGH[RANKS[i]]);
  });
  write(find(line, ".n"), count(n));
}

/** The share that met its target. @param {HTMLElement} cell @param {number[]} samples @param {number | null} target */
function writeWithin(cell, samples, target) {
  write(cell, target === null || !samples.length ? NONE : percent(samples.filter((us) => us <= target).length / samples.length));
}

/** "92 % · 184 of 200 requests met both". @param {ReturnType<typeof goodput>} judged @param {Targets} targets */
function goodputWords({ met, n, share }, targets) {
  const asked = Object.values(targets).filter((us) => us !== null).length;
  if (asked === 0) return `${NONE} · no target is set`;
  if (n === 0) return `${NONE} · nothing to judge yet`;
  return `${percent(share)} · ${count(met)} of ${plural(n, "request")} met ${asked === 2 ? "both" : "it"}`;
}

/** What was left out, and what the percentiles are over. @param {Sample[]} shown see windowOf @param {string} kind */
export function windowWords(shown, kind) {
  const gated = shown.filter(({ timings }) => timings.gated_us > 0).length;
  const left = gated ? ` ${count(gated)} gated left out.` : "";
  const which = kind ? ` of the class "${kind}"` : "";
  return `Window: the last ${WINDOW} finished requests${which} that this page knows; ITL: ${ITL_STEPS} steps.${left} Grey: too few samples to mean much.`;
}

/** The classes of the window; the chosen one is offered even when none of it is left. @param {HTMLSelectElement} select @param {KnownView} view @param {string} kind */
function offerClasses(select, { history, until }, kind) {
  const found = classesOf(windowOf(history, until));
  if (kind && !found.some(({ name }) => name === kind)) found.push({ name: kind, n: 0 });
  fillOptions(select, found.map(({ name, n }) => ({ value: name, text: `${name} (${count(n)})` })));
}
