/**
 * Memory: one bar that is the whole of the device, and below it its KV pool on a scale of its own: used, cached, free.
 * Below that, hatched, what the same requests would hold without paging: room for the longest answer there can be,
 * for each of them. All of it is reckoned: sizes from shapes, fill from the pool's counts.
 *
 * @import {Canvas, CanvasPanel, KnownView, Palette, Size} from "../types.js"
 *
 * @typedef {{look: keyof typeof LOOKS, words: string, bytes: number}} Part
 * @typedef {Part & {from: number, to: number}} Placed
 * @typedef {{name: string, words: string, top: number, parts: Placed[]}} Bar
 * @typedef {ReturnType<typeof sumOf>} Sum
 */

import { find, write } from "../dom.js";
import { count, percent, plural } from "../format.js";
import { epochAt } from "../history.js";
import { drawText, hollow } from "../marks.js";
import { meanTokens, memoryOf, moreThatFit, poolOf, reservedOf } from "../memory.js";
import { bytesText } from "../quantities.js";

const LEFT = 62;
const RIGHT = 6;
const BAR = 20;
const WORDS = 16;

/** @type {CanvasPanel} */
export const memory = {
  empty(view) {
    if (!view.state || !view.hello) return view.why;
    return epochAt(view.history, view.column).id === view.hello.epoch ? null : "An earlier engine’s moment; this page knows only the memory of the one that came after.";
  },

  draw(g, size, view) {
    if (this.empty(view) !== null) return;
    const bars = barsOf(view, size);
    drawZoom(g, bars, view.palette);
    for (const bar of bars) drawBar(g, bar, view.palette);
  },

  hit(x, y, view, size) {
    if (this.empty(view) !== null) return null;
    const bar = barsOf(view, size).find(({ top }) => y >= top - WORDS && y < top + BAR);
    const part = bar?.parts.find(({ from, to }) => x >= from && x < Math.max(to, from + 3));
    return part ? { part } : null;
  },

  hint: ({ part }) => `${part.words}: ${bytesText(part.bytes)}`,

  detail(root, view) {
    const known = this.empty(view) === null;
    const sum = known ? sumOf(view) : null;
    for (const [name, words] of Object.entries(sum ? figuresOf(sum) : {})) write(find(root, `[data-figure="${name}"]`), words);
    write(find(root, "[data-paging]"), sum ? pagingWords(sum) : "");
    write(find(root, ".detail"), known ? view.hello.memory.sum_text : "");
  },

  summary(view) {
    if (this.empty(view) !== null) return "Memory: no data.";
    const { pool, reserved } = sumOf(view);
    return `Memory: the KV pool holds ${bytesText(pool.used)} of ${bytesText(pool.all)}; without paging it would be ${bytesText(reserved.bytes)}.`;
  },

  twin(view) {
    const columns = ["what", "bytes", "", "share"];
    if (this.empty(view) !== null) return { columns, rows: [] };
    const { all, pool, reserved } = sumOf(view);
    const line = (/** @type {string} */ words, /** @type {number | null} */ bytes, /** @type {number} */ whole) => ({ cells: [words, count(bytes), bytesText(bytes), percent(bytes === null ? null : bytes / whole)] });
    const rows = [
      line("weights", all.weights, all.total),
      line("KV pool", all.pool, all.total),
      line("activations, at most", all.activations, all.total),
      line("rest", all.rest, all.total),
      line(all.rest === null ? "all that is known" : "the whole device", all.total, all.total),
      line("in the pool: used", pool.used, pool.all),
      line("in the pool: cached, idle", pool.cached, pool.all),
      line("in the pool: free", pool.free, pool.all),
      line("without paging, of the pool", reserved.bytes, pool.all),
    ];
    return { columns, rows };
  },
};

/** @param {KnownView} view */
function sumOf({ state, hello }) {
  const mean = meanTokens(state);
  return {
    all: memoryOf(hello),
    pool: poolOf(state, hello),
    reserved: reservedOf(state, hello),
    perToken: hello.memory.bytes_per_token,
    pageTokens: state.blocks.block_size,
    mean,
    moreMean: mean === null ? null : moreThatFit(state, mean),
    moreLongest: moreThatFit(state, reservedOf(state, hello).longest),
  };
}

// -- words ---------------------------------------------------------------------------------------

/** @param {Sum} sum @returns {Object<string, string>} */
function figuresOf({ all, perToken, mean, moreMean, moreLongest, reserved }) {
  return {
    weights: bytesText(all.weights),
    pool: bytesText(all.pool),
    activations: bytesText(all.activations),
    rest: bytesText(all.rest),
    total: `${bytesText(all.total)}${all.rest === null ? " known" : ""}`,
    token: plural(perToken, "byte"),
    mean: mean === null ? "nobody runs" : `${count(moreMean)} · ${plural(Math.round(mean), "token")} each`,
    longest: `${count(moreLongest)} · ${plural(reserved.longest, "token")} each`,
  };
}

/** @param {Sum} sum */
function pagingWords({ pool, reserved, pageTokens }) {
  const { running, longest, bytes, fit } = reserved;
  const page = `Paging takes ${plural(pageTokens, "token")} of room at a time, when they are needed`;
  if (running === 0) return `${page}; reserving ${plural(longest, "token")} for each would fit ${plural(fit, "conversation")} into this pool.`;
  return `${page}: ${plural(running, "request")} in ${bytesText(pool.used)}, not ${bytesText(bytes)} reserved at ${plural(longest, "token")} each.`;
}

// -- the picture ---------------------------------------------------------------------------------

/** The three bars and their parts, placed. The pool and the ghost share one scale, so that they can be compared. @param {KnownView} view @param {Size} size @returns {[Bar, Bar, Bar]} */
function barsOf(view, size) {
  const { all, pool, reserved } = sumOf(view);
  const pitch = (size.height - BAR - WORDS) / 2;
  /** @param {number} i @param {string} name @param {string} words @param {number} whole @param {Part[]} parts @returns {Bar} */
  const bar = (i, name, words, whole, parts) => ({ name, words, top: WORDS + i * pitch, parts: placed(parts, whole, size) });
  const whole = Math.max(pool.all, reserved.bytes);
  const ghost = `${plural(reserved.running, "request")} × ${plural(reserved.longest, "token")}`;
  return [
    bar(0, "memory", all.rest === null ? `${bytesText(all.total)} known` : `${bytesText(all.total)} in all`, all.total, [
      { look: "weights", words: "weights", bytes: all.weights },
      { look: "pool", words: "KV pool", bytes: all.pool },
      { look: "ghost", words: "activations, at most", bytes: all.activations ?? 0 },
      { look: "free", words: "the rest of the device: other programs, and free", bytes: all.rest ?? 0 },
    ]),
    bar(1, "KV pool", `used ${bytesText(pool.used)}, cached ${bytesText(pool.cached)}, free ${bytesText(pool.free)}`, whole, [
      { look: "prompt", words: "used by prompts", bytes: pool.prompt },
      { look: "answer", words: "used by answers", bytes: pool.answer },
      { look: "begun", words: "room in pages that were begun", bytes: pool.begun },
      { look: "cached", words: "cached, idle: reused on a hit, given up when needed", bytes: pool.cached },
      { look: "free", words: "free", bytes: pool.free },
    ]),
    bar(2, "unpaged", `would be ${bytesText(reserved.bytes)}: ${ghost}`, whole, [{ look: "ghost", words: `without paging, derived: ${ghost}`, bytes: reserved.bytes }]),
  ];
}

/** @param {Part[]} parts @param {number} whole @param {Size} size @returns {Placed[]} */
function placed(parts, whole, size) {
  const room = size.width - LEFT - RIGHT;
  let sum = 0;
  return parts.map((part) => {
    const from = LEFT + (room * sum) / whole;
    sum += part.bytes;
    return { ...part, from, to: LEFT + (room * sum) / whole };
  });
}

/** @param {Canvas} g @param {Bar} bar @param {Palette} palette */
function drawBar(g, { name, words, top, parts }, palette) {
  g.textAlign = "right";
  g.fillStyle = palette.fg;
  g.fillText(name, LEFT - 8, top + BAR / 2);
  g.textAlign = "left";
  drawText(g, words, LEFT, top - WORDS / 2, palette);
  for (const part of parts) if (part.bytes > 0) drawPart(g, part, top, palette);
}

/** No part that is there is drawn thinner than a line. @param {Canvas} g @param {Placed} part @param {number} top @param {Palette} palette */
function drawPart(g, { look, from, to }, top, palette) {
  const width = Math.max(1.5, to - from - 1);
  const { fill, edge } = LOOKS[look](palette);
  if (fill) {
    g.fillStyle = fill;
    g.fillRect(from, top, width, BAR);
  }
  if (edge) hollow(g, from, top, width, BAR, edge);
}

/** @type {Record<"weights" | "pool" | "prompt" | "answer" | "begun" | "cached" | "ghost" | "free", (palette: Palette) => {fill?: string | CanvasPattern, edge?: string}>} */
const LOOKS = {
  weights: ({ fg }) => ({ fill: fg }),
  pool: ({ muted }) => ({ fill: muted }),
  prompt: ({ prefill }) => ({ fill: prefill }),
  answer: ({ hatch }) => ({ fill: hatch.answer }),
  begun: ({ prefill }) => ({ edge: prefill }),
  cached: ({ hatch, cached }) => ({ fill: hatch.cached, edge: cached }),
  ghost: ({ hatch, muted }) => ({ fill: hatch.gap, edge: muted }),
  free: ({ idle }) => ({ edge: idle }),
};

/** From the pool's place in the device to the bar that is all pool. @param {Canvas} g @param {Bar[]} bars @param {Palette} palette */
function drawZoom(g, [device, pool], palette) {
  const part = device.parts.find(({ look }) => look === "pool");
  const end = pool.parts.at(-1);
  if (!part || !end) return;
  g.strokeStyle = palette.idle;
  g.lineWidth = 1;
  g.beginPath();
  for (const [from, to] of [[part.from, LEFT], [part.to, end.to]]) {
    g.moveTo(from, device.top + BAR);
    g.lineTo(to, pool.top);
  }
  g.stroke();
}
