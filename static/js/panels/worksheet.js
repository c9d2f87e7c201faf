/**
 * Latency worksheet: a request's time to first and to last token from its parts, and what they would be if a part were
 * shorter. The numbers are typed, or those of a finished request; sliders multiply them, halving each alone is always
 * said. Above the line what is, below it what would be.
 */

import { requestTimings } from "../controls.js";
import { keepDrafts } from "../drafts.js";
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

/** @param {any} page */
export function mountWorksheet(page) {
  const root = document.getElementById("panel-worksheet");
  const form = /** @type {HTMLFormElement} */ (root.querySelector("form"));
  const picker = form.elements.request;
  let sheet = /** @type {ReturnType<typeof sheetOf> | null} */ (null);
  const note = root.querySelector("[data-of]");
  const take = root.querySelector("[data-take]");
  let offered = "";

  function reckon() {
    const { values, wrong } = readNumbers(form);
    showWrong(root.querySelector(".error"), wrong);
    if (picker.value === "") note.textContent = "";
    sheet = wrong ? null : sheetOf(values, factorsOf(form));
    write(root, form, sheet);
    page.loop.invalidateNow();
  }

  /** The numbers of a finished request; its app's share comes from the server, where there is one. */
  async function pick(id) {
    const sample = samples(page.view()).find((each) => each.id === id);
    if (!sample) return;
    const { queue_us, prefill_us, tpot_us } = sample.timings;
    const parts = { queue: queue_us, prefill: prefill_us, other: 0, tpot: tpot_us ?? 0 };
    fillNumbers(form, { ...Object.fromEntries(Object.entries(parts).map(([name, us]) => [name, inMs(us)])), tokens: sample.tokens });
    note.textContent = sample.timings.gated_us > 0 ? "Held by the gate: its times are no measurements." : "";
    const told = await requestTimings(id);
    if (picker.value === id && told) fillNumbers(form, { other: inMs((told.ingress_us ?? 0) + (told.egress_us ?? 0)) });
  }

  keepDrafts(form);
  mountPicker(picker, { names: PARTS, pick });
  form.addEventListener("input", reckon);
  form.addEventListener("change", reckon);
  form.addEventListener("submit", (event) => event.preventDefault());
  root.querySelector("[data-reset]").addEventListener("click", () => {
    fillNumbers(form, Object.fromEntries(PARTS.map((name) => [`x_${name}`, 1])));
  });

  take.addEventListener("click", () => {
    picker.value = page.selection.choice?.id ?? "";
    pick(picker.value);
  });

  mountPanel("worksheet", panelOf(() => sheet, offer), page);
  reckon();

  /** The finished requests that can be picked, newest first. */
  function offer(view) {
    const all = samples(view);
    const chosen = view.choice?.kind === "request" ? all.find(({ id }) => id === view.choice.id) : undefined;
    take.hidden = !chosen || picker.value === chosen.id;
    if (chosen) take.textContent = `Take ${requestName(chosen.id)}`;
    const found = all.filter((each, i) => i >= all.length - OFFERED || each === chosen).reverse();
    const key = found.map(({ id }) => id).join();
    if (key === offered) return;
    offered = key;
    fillOptions(picker, found.map(({ id, timings }) => ({ value: id, text: `${requestName(id)} · TTFT ${milliseconds(timings.ttft_us)} ms` })));
  }
}

function samples({ history }) {
  return history?.finished.filter(({ timings, tokens }) => timings.ttft_us !== null && tokens > 0) ?? [];
}

function factorsOf(form) {
  return Object.fromEntries(PARTS.map((name) => [name, form.elements[`x_${name}`].valueAsNumber]));
}

/** Everything that the sheet shows. */
function sheetOf(parts, factors) {
  const changed = scaledParts(parts, factors);
  return { parts, factors, changed, now: latencyOf(parts), asIf: latencyOf(changed), halved: halvings(parts), turned: PARTS.some((name) => factors[name] !== 1) };
}

// -- words ---------------------------------------------------------------------------------------

/** As it is typed: a thousandth of a millisecond is enough. */
const inMs = (us) => Number((us / 1000).toFixed(3));
const ms = (value) => milliseconds(value * 1000);
const withUnit = (part, value) => (part === "tokens" ? count(value) : `${ms(value)} ms`);

function write(root, form, sheet) {
  PARTS.forEach((part, i) => {
    const line = root.querySelector(`[data-part="${part}"]`);
    const slider = form.elements[`x_${part}`];
    const asIf = sheet ? withUnit(part, sheet.changed[part]) : NONE;
    line.querySelector(".as-if").textContent = asIf;
    line.classList.toggle("turned", Number(slider.value) !== 1);
    slider.setAttribute("aria-valuetext", `times ${Number(slider.value)}, ${asIf}`);
    line.querySelector(".half-first").textContent = sheet ? `${ms(sheet.halved[i].first)} ms` : NONE;
    line.querySelector(".half-last").textContent = sheet ? `${ms(sheet.halved[i].last)} ms` : NONE;
  });
  root.querySelector("[data-reset]").hidden = !sheet?.turned;
  for (const which of ["first", "last"]) {
    root.querySelector(`[data-${which}]`).textContent = sheet ? `${ms(sheet.now[which])} ms` : NONE;
    root.querySelector(`[data-${which}-as-if]`).textContent = sheet?.turned ? changeWords(sheet.now[which], sheet.asIf[which]) : "";
  }
}

/** "→ 450 ms, 25 % less". */
function changeWords(before, after) {
  const share = before > 0 ? Math.abs(after - before) / before : null;
  const change = after === before ? "the same" : `${percent(share)} ${after < before ? "less" : "more"}`;
  return `→ ${ms(after)} ms, ${change}`;
}

function summaryOf(sheet) {
  if (!sheet) return "Latency worksheet: a number is missing.";
  const now = `first token after ${ms(sheet.now.first)} ms, last after ${ms(sheet.now.last)} ms`;
  return `Latency worksheet: ${now}${sheet.turned ? `; as if: ${ms(sheet.asIf.first)} and ${ms(sheet.asIf.last)} ms` : ""}.`;
}

/** Which part, halved, gives most, for either time. */
function adviceOf({ now, halved }) {
  const best = (which) => halved.reduce((a, b) => (b[which] < a[which] ? b : a));
  const [first, last] = [best("first"), best("last")];
  if (now.last === 0) return "";
  const gain = (which, won) => `${WORDS[won.part]} (${ms(now[which] - won[which])} ms less)`;
  return `To see the first token sooner, halve ${gain("first", first)}. To see the last one sooner, halve ${gain("last", last)}.`;
}

const WORDS = { queue: "the queue", prefill: "the prefill", other: "the app’s own share", tpot: "the time per further token", tokens: "the number of tokens" };

// -- the picture ---------------------------------------------------------------------------------

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
    hint: ({ part, bar }) => `${bar.name}: ${NAMES[part.name]} ${ms(part.ms)} ms, ${percent(part.ms / bar.last)} of all`,
    detail(root, view) {
      offer(view);
      const sheet = sheetNow();
      root.querySelector(".detail").textContent = sheet ? adviceOf(sheet) : "";
    },
    summary: () => summaryOf(sheetNow()),
    twin() {
      const sheet = sheetNow();
      const rows = sheet ? PARTS.map((part) => ({ cells: [WORDS[part], withUnit(part, sheet.parts[part]), withUnit(part, sheet.changed[part])] })) : [];
      const total = (words, which) => ({ cells: [words, `${ms(sheet.now[which])} ms`, `${ms(sheet.asIf[which])} ms`] });
      return { columns: ["part", "now", "as if"], rows: sheet ? [...rows, total("first token there after", "first"), total("last token there after", "last")] : [] };
    },
  };
}

function barsOf({ parts, changed, now, asIf }, size) {
  const longest = Math.max(now.last, asIf.last) || 1;
  const height = Math.min(26, (size.height - 42) / 2);
  const scale = Math.max(0, size.width - LEFT - RIGHT) / longest;
  return [["now", parts, now], ["as if", changed, asIf]].map(([name, { queue, prefill, other }, { first, last, decode }], i) => {
    let from = LEFT;
    const spans = Object.entries({ queue, prefill, other, decode }).map(([part, length]) => {
      const span = { name: part, ms: length, from, to: from + length * scale };
      from = span.to;
      return span;
    });
    return { name, parts: spans, first, last, firstAt: LEFT + first * scale, end: from, top: 16 + i * (height + 20), height };
  });
}

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

/** Queued hollow, prefill solid, the app's share hatched, further tokens as ticks. */
function drawPart(g, { name, from, to }, top, height, palette) {
  const width = to - from;
  if (width <= 0) return;
  if (name === "queue") return hollow(g, from, top, width, height, palette.idle);
  g.fillStyle = { prefill: palette.prefill, other: palette.hatch.gap, decode: palette.decode }[name];
  if (name !== "decode") g.fillRect(from, top, width, height);
  else for (let x = from + 2; x < to; x += TICK_PX) g.fillRect(x, top, Math.min(TICK_PX - 2, to - x), height);
}
