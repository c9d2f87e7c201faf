/**
 * Latency worksheet: a request's time to first and to last token from its parts, and what they would be if a part were
 * shorter. The numbers are typed, or those of a finished request; sliders multiply them, halving each alone is always
 * said. Above the line what is, below it what would be.
 *
 * @import {Canvas, CanvasPanel, Page, Palette, Sample, Size, View} from "../types.js"
 * @import {Parts} from "../sums.js"
 *
 * @typedef {ReturnType<typeof sheetOf>} Sheet
 * @typedef {{name: "queue" | "prefill" | "other" | "decode", ms: number, from: number, to: number}} Span
 * @typedef {{name: string, parts: Span[], first: number, last: number, firstAt: number, end: number, top: number, height: number}} Bar
 */

import { keepDrafts } from "../drafts.js";
import { byId, field, find, show, write } from "../dom.js";
import { requestTimings } from "../engine_asks.js";
import { fillNumbers, fillOptions, mountPicker, readNumbers, showWrong } from "../fields.js";
import { count, milliseconds, NONE, percent, requestName } from "../format.js";
import { mountPanel } from "../frame.js";
import { hollow } from "../marks.js";
import { halvings, latencyOf, PARTS, scaledParts } from "../sums.js";

const OFFERED = 30;
const LEFT = 46;
const RIGHT = 64;
const TICK_PX = 6;
const NAMES = { queue: "queue", prefill: "prefill", other: "other", decode: "further tokens" };

/** @param {Page} page */
export function mountWorksheet(page) {
  const root = byId("panel-worksheet");
  const form = find(root, "form");
  const picker = field(form, "request", HTMLSelectElement);
  let sheet = /** @type {Sheet | null} */ (null);
  const error = find(root, ".error");
  const note = find(root, "[data-of]");
  const take = find(root, "[data-take]");
  let offered = "";

  function reckon() {
    const { values, wrong } = readNumbers(form);
    showWrong(error, wrong);
    if (picker.value === "") write(note, "");
    sheet = wrong ? null : sheetOf(/** @type {any} */ (values), factorsOf(form));
    writeSheet(root, form, sheet);
    page.loop.invalidateNow();
  }

  /** The numbers of a finished request; its app's share comes from the server, where there is one. @param {string} id */
  async function pick(id) {
    const sample = samples(page.view()).find((each) => each.id === id);
    if (!sample) return;
    const { queue_us, prefill_us, tpot_us } = sample.timings;
    const parts = { queue: queue_us ?? 0, prefill: prefill_us ?? 0, other: 0, tpot: tpot_us ?? 0 };
    fillNumbers(form, { ...Object.fromEntries(Object.entries(parts).map(([name, us]) => [name, inMs(us)])), tokens: sample.tokens });
    write(note, sample.timings.gated_us > 0 ? "Held by the gate: its times are no measurements." : "");
    const told = await requestTimings(id);
    if (picker.value === id && told) fillNumbers(form, { other: inMs((told.ingress_us ?? 0) + (told.egress_us ?? 0)) });
  }

  keepDrafts(form);
  mountPicker(picker, { names: PARTS, pick });
  form.addEventListener("input", reckon);
  form.addEventListener("change", reckon);
  form.addEventListener("submit", (event) => event.preventDefault());
  find(root, "[data-reset]").addEventListener("click", () => {
    fillNumbers(form, Object.fromEntries(PARTS.map((name) => [`x_${name}`, 1])));
  });

  take.addEventListener("click", () => {
    const { choice } = page.selection;
    picker.value = choice?.kind === "request" ? choice.id : "";
    pick(picker.value);
  });

  mountPanel("worksheet", panelOf(() => sheet, offer), page);
  reckon();

  /** The finished requests that can be picked, newest first. @param {View} view */
  function offer(view) {
    const { choice } = view;
    const chosen = choice?.kind === "request" ? samples(view).find(({ id }) => id === choice.id) : undefined;
    show(take, chosen !== undefined && picker.value !== chosen.id);
    if (chosen) write(take, `Take ${requestName(chosen.id)}`);
    const found = newestSamples(view);
    if (chosen && !found.includes(chosen)) found.push(chosen);
    const key = found.map(({ id }) => id).join();
    if (key === offered) return;
    offered = key;
    fillOptions(picker, found.map(({ id, timings }) => ({ value: id, text: `${requestName(id)} · TTFT ${milliseconds(timings.ttft_us)} ms` })));
  }
}

/** @param {Sample} sample */
function hasTimes({ timings, tokens }) {
  return timings.ttft_us !== null && tokens > 0;
}

/** @param {View} view */
function samples({ history }) {
  return history?.finished.filter(hasTimes) ?? [];
}

/** As many as are offered, newest first. @param {View} view */
function newestSamples({ history }) {
  /** @type {Sample[]} */
  const found = [];
  const finished = history?.finished ?? [];
  for (let i = finished.length - 1; i >= 0 && found.length < OFFERED; i -= 1) if (hasTimes(finished[i])) found.push(finished[i]);
  return found;
}

/** @param {HTMLFormElement} form @returns {Parts} */
function factorsOf(form) {
  return /** @type {any} */ (Object.fromEntries(PARTS.map((name) => [name, field(form, `x_${name}`).valueAsNumber])));
}

/** Everything that the sheet shows. @param {Parts} parts @param {Parts} factors */
function sheetOf(parts, factors) {
  const changed = scaledParts(parts, factors);
  return { parts, factors, changed, now: latencyOf(parts), asIf: latencyOf(changed), halved: halvings(parts), turned: PARTS.some((name) => factors[name] !== 1) };
}

// -- words ---------------------------------------------------------------------------------------

/** As it is typed: a thousandth of a millisecond is enough. */
const inMs = (/** @type {number} */ us) => Number((us / 1000).toFixed(3));
const ms = (/** @type {number} */ value) => milliseconds(value * 1000);
const withUnit = (/** @type {keyof Parts} */ part, /** @type {number} */ value) => (part === "tokens" ? count(value) : `${ms(value)} ms`);

/** @param {HTMLElement} root @param {HTMLFormElement} form @param {Sheet | null} sheet */
function writeSheet(root, form, sheet) {
  PARTS.forEach((part, i) => {
    const line = find(root, `[data-part="${part}"]`);
    const slider = field(form, `x_${part}`);
    const asIf = sheet ? withUnit(part, sheet.changed[part]) : NONE;
    write(find(line, ".as-if"), asIf);
    line.classList.toggle("turned", Number(slider.value) !== 1);
    slider.setAttribute("aria-valuetext", `times ${Number(slider.value)}, ${asIf}`);
    write(find(line, ".half-first"), sheet ? `${ms(sheet.halved[i].first)} ms` : NONE);
    write(find(line, ".half-last"), sheet ? `${ms(sheet.halved[i].last)} ms` : NONE);
  });
  find(root, "[data-reset]").hidden = !sheet?.turned;
  for (const which of /** @type {const} */ (["first", "last"])) {
    write(find(root, `[data-${which}]`), sheet ? `${ms(sheet.now[which])} ms` : NONE);
    write(find(root, `[data-${which}-as-if]`), sheet?.turned ? changeWords(sheet.now[which], sheet.asIf[which]) : "");
  }
}

/** "→ 450 ms, 25 % less". @param {number} before @param {number} after */
function changeWords(before, after) {
  const share = before > 0 ? Math.abs(after - before) / before : null;
  const change = after === before ? "the same" : `${percent(share)} ${after < before ? "less" : "more"}`;
  return `→ ${ms(after)} ms, ${change}`;
}

/** @param {Sheet | null} sheet */
function summaryOf(sheet) {
  if (!sheet) return "Latency worksheet: a number is missing.";
  const now = `first token after ${ms(sheet.now.first)} ms, last after ${ms(sheet.now.last)} ms`;
  return `Latency worksheet: ${now}${sheet.turned ? `; as if: ${ms(sheet.asIf.first)} and ${ms(sheet.asIf.last)} ms` : ""}.`;
}

/** Which part, halved, gives most, for either time. @param {Sheet} sheet */
function adviceOf({ now, halved }) {
  const best = (/** @type {"first" | "last"} */ which) => halved.reduce((a, b) => (b[which] < a[which] ? b : a));
  const [first, last] = [best("first"), best("last")];
  if (now.last === 0) return "";
  const gain = (/** @type {"first" | "last"} */ which, /** @type {Sheet["halved"][number]} */ won) => `${WORDS[won.part]} (${ms(now[which] - won[which])} ms less)`;
  return `To see the first token sooner, halve ${gain("first", first)}. To see the last one sooner, halve ${gain("last", last)}.`;
}

const WORDS = { queue: "the queue", prefill: "the prefill", other: "the app’s own share", tpot: "the time per further token", tokens: "the number of tokens" };

// -- the picture ---------------------------------------------------------------------------------

/** @param {() => Sheet | null} sheetNow @param {(view: View) => void} offer @returns {CanvasPanel} */
function panelOf(sheetNow, offer) {
  return {
    empty: () => (sheetNow() ? null : "Nothing to draw: see the number above that cannot be so."),
    draw(g, size, view) {
      const sheet = sheetNow();
      if (sheet) for (const bar of barsOf(sheet, size)) drawBar(g, bar, view.palette);
    },
    hit(x, y, view, size) {
      const sheet = sheetNow();
      const bar = sheet && barsOf(sheet, size).find(({ top, height }) => y >= top && y < top + height);
      const part = bar?.parts.find(({ from, to }) => x >= from && x < to);
      return part ? { part, bar } : null;
    },
    hint: (/** @type {{part: Span, bar: Bar}} */ { part, bar }) => `${bar.name}: ${NAMES[part.name]} ${ms(part.ms)} ms, ${percent(part.ms / bar.last)} of all`,
    detail(root, view) {
      offer(view);
      const sheet = sheetNow();
      write(find(root, ".detail"), sheet ? adviceOf(sheet) : "");
    },
    summary: () => summaryOf(sheetNow()),
    twin() {
      const sheet = sheetNow();
      const columns = ["part", "now", "as if"];
      if (!sheet) return { columns, rows: [] };
      const rows = PARTS.map((part) => ({ cells: [WORDS[part], withUnit(part, sheet.parts[part]), withUnit(part, sheet.changed[part])] }));
      const total = (/** @type {string} */ words, /** @type {"first" | "last"} */ which) => ({ cells: [words, `${ms(sheet.now[which])} ms`, `${ms(sheet.asIf[which])} ms`] });
      return { columns, rows: [...rows, total("first token there after", "first"), total("last token there after", "last")] };
    },
  };
}

/** @param {Sheet} sheet @param {Size} size @returns {Bar[]} */
function barsOf({ parts, changed, now, asIf }, size) {
  const longest = Math.max(now.last, asIf.last) || 1;
  const height = Math.min(26, (size.height - 42) / 2);
  const scale = Math.max(0, size.width - LEFT - RIGHT) / longest;
  /** @type {Array<[string, Parts, Sheet["now"]]>} */
  const lines = [["now", parts, now], ["as if", changed, asIf]];
  return lines.map(([name, { queue, prefill, other }, { first, last, decode }], i) => {
    let from = LEFT;
    const spans = Object.entries({ queue, prefill, other, decode }).map(([part, length]) => {
      const span = { name: /** @type {Span["name"]} */ (part), ms: length, from, to: from + length * scale };
      from = span.to;
      return span;
    });
    return { name, parts: spans, first, last, firstAt: LEFT + first * scale, end: from, top: 16 + i * (height + 20), height };
  });
}

/** @param {Canvas} g @param {Bar} bar @param {Palette} palette */
function drawBar(g, bar, palette) {
  const { top, height } = bar;
  g.textAlign = "right";
  g.fillStyle = palette.fg;
  g.fillText(bar.name, LEFT - 8, top + height / 2);
  for (const span of bar.parts) drawPart(g, span, top, height, palette);
  g.fillStyle = palette.fg;
  g.fillRect(bar.firstAt - 1, top - 4, 2, height + 4);
  g.textAlign = "left";
  g.fillText(`${ms(bar.first)} ms`, bar.firstAt + 4, top - 6);
  g.fillText(`${ms(bar.last)} ms`, bar.end + 5, top + height / 2);
}

/** Queued hollow, prefill solid, the app's share hatched, further tokens as ticks. @param {Canvas} g @param {Span} span @param {number} top @param {number} height @param {Palette} palette */
function drawPart(g, { name, from, to }, top, height, palette) {
  const width = to - from;
  if (width <= 0) return;
  if (name === "queue") {
    hollow(g, from, top, width, height, palette.idle);
    return;
  }
  g.fillStyle = { prefill: palette.prefill, other: palette.hatch.gap, decode: palette.decode }[name];
  if (name !== "decode") g.fillRect(from, top, width, height);
  else for (let x = from + 2; x < to; x += TICK_PX) g.fillRect(x, top, Math.min(TICK_PX - 2, to - x), height);
}
