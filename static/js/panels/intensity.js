/**
 * Intensity calculator: FLOP per byte of reading a prompt and of writing an answer, over the number of tokens, on
 * logarithmic axes. Above the device's ridge it computes, below it waits for memory.
 *
 * @import {Canvas, CanvasPanel, Hello, Page, Palette, Size, View} from "../types.js"
 *
 * @typedef {Record<"billions" | "weightBytes" | "kvBytes" | "tokens" | "sequences" | "tflops" | "gbs", number>} Asked
 * @typedef {ReturnType<typeof sumOf>} Sum
 * @typedef {{name: string, hue: "prefill" | "decode", at: (tokens: number) => number, dash: number[], mark: "square" | "circle"}} Curve
 * @typedef {ReturnType<typeof plotOf>} Plane
 */

import { keepDrafts } from "../drafts.js";
import { byId, field, find, write } from "../dom.js";
import { fillNumbers, fillOptions, mountPicker, readNumbers, showWrong } from "../fields.js";
import { count, percent, plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { drawText } from "../marks.js";
import { decadeWords, perByte, quantity } from "../quantities.js";
import { DEVICES, MODELS } from "../shapes.js";
import { writeSteps } from "../steps.js";
import { decodeIntensity, evenTokens, kvBytesPerToken, prefillIntensity, ridgeOf, sequencesToReach } from "../sums.js";
import { engineShape } from "./kv_sum.js";

const BILLION = 1e9;
const TERA = 1e12;
const GIGA = 1e9;
const PLOT = { left: 46, right: 12, top: 22, bottom: 28 };
const TOKENS_SHOWN = { from: 1, to: 1e6 };
const TABLE_TOKENS = [1, 128, 1024, 8192, 32_768, 131_072];
const MODEL_FIELDS = ["billions", "weightBytes", "kvBytes"];
const DEVICE_FIELDS = ["tflops", "gbs"];

/** @param {Page} page */
export function mountIntensity(page) {
  const root = byId("panel-intensity");
  const form = find(root, "form");
  const model = field(form, "model", HTMLSelectElement);
  const device = field(form, "device", HTMLSelectElement);
  const error = find(root, ".error");
  const steps = find(root, ".steps", HTMLOListElement);
  let sum = /** @type {Sum | null} */ (null);

  function reckon() {
    const { values, wrong } = readNumbers(form);
    showWrong(error, wrong);
    sum = wrong ? null : sumOf(/** @type {Asked} */ (values));
    writeSteps(steps, sum ? stepsOf(sum) : []);
    page.loop.invalidateNow();
  }

  /** @param {string} value */
  function pickModel(value) {
    fillNumbers(form, (value === "engine" ? engineModel(page.view().hello) : modelNumbers(MODELS[Number(value)])) ?? {});
  }

  /** @param {string} value */
  function pickDevice(value) {
    fillNumbers(form, (value === "engine" ? engineDevice(page.view().hello) : deviceNumbers(DEVICES[Number(value)])) ?? {});
  }

  /** @param {Hello | null} hello */
  function offer(hello) {
    const own = (/** @type {Object<string, number> | null} */ found, /** @type {string | undefined} */ name) => (found ? [{ value: "engine", text: `this engine's: ${name}` }] : []);
    const named = (/** @type {Array<{name: string}>} */ all) => all.map(({ name }, i) => ({ value: String(i), text: name }));
    fillOptions(model, [...own(engineModel(hello), hello?.model.name), ...named(MODELS)]);
    fillOptions(device, [...own(engineDevice(hello), `${hello?.device.name}, measured`), ...named(DEVICES)]);
  }

  offer(null);
  keepDrafts(form);
  mountPicker(model, { names: MODEL_FIELDS, pick: pickModel });
  mountPicker(device, { names: DEVICE_FIELDS, pick: pickDevice });
  form.addEventListener("input", reckon);
  form.addEventListener("change", reckon);
  form.addEventListener("submit", (event) => event.preventDefault());
  mountPanel("intensity", panelOf(() => sum, ({ hello }) => offer(hello)), page);
  reckon();
}

/** @param {typeof MODELS[number]} model */
function modelNumbers(model) {
  return { billions: model.parameters / BILLION, weightBytes: 2, kvBytes: kvBytesPerToken({ ...model, dtype: "float16" }) };
}

/** @param {{flops: number, bytesPerS: number}} device */
function deviceNumbers({ flops, bytesPerS }) {
  return { tflops: Number((flops / TERA).toPrecision(6)), gbs: Number((bytesPerS / GIGA).toPrecision(6)) };
}

/** @param {Hello | null} hello */
function engineModel(hello) {
  const shape = engineShape(hello);
  if (!hello || !shape) return null;
  const { num_parameters, weight_bytes } = hello.model;
  return { billions: num_parameters / BILLION, weightBytes: Number((weight_bytes / num_parameters).toPrecision(4)), kvBytes: kvBytesPerToken(shape) };
}

/** @param {Hello | null} hello */
function engineDevice(hello) {
  const { peak_flops: flops, peak_bytes_per_s: bytesPerS } = hello?.device ?? {};
  return flops && bytesPerS ? deviceNumbers({ flops, bytesPerS }) : null;
}

/** @param {Asked} asked */
function sumOf({ billions, weightBytes, kvBytes, tokens, sequences, tflops, gbs }) {
  const load = { parameters: billions * BILLION, weightBytes, kvBytes, tokens, sequences };
  const ridge = ridgeOf(tflops * TERA, gbs * GIGA);
  return { load, ridge, tflops, gbs, prefill: prefillIntensity(load), decode: decodeIntensity(load), even: evenTokens(load) };
}

// -- words ---------------------------------------------------------------------------------------

/** @param {Sum} sum */
function stepsOf({ load, ridge, tflops, gbs, prefill, decode }) {
  const { parameters, weightBytes, kvBytes, tokens, sequences } = load;
  const read = `${quantity(parameters * weightBytes)}B of weights`;
  const cache = (/** @type {number} */ tokensRead) => `${quantity(kvBytes * tokensRead)}B of cache`;
  return [
    { words: `prefill: 2·N·S = ${quantity(2 * parameters * tokens)}FLOP ÷ (${read} + ${cache(tokens)})`, result: `${perByte(prefill)} FLOP/byte`, sum: true },
    { words: `decode: 2·N·B = ${quantity(2 * parameters * sequences)}FLOP ÷ (${read} + ${cache(tokens * sequences)})`, result: `${perByte(decode)} FLOP/byte`, sum: true },
    { words: `the device's ridge: ${count(tflops)} TFLOP/s ÷ ${count(gbs)} GB/s`, result: `${perByte(ridge)} FLOP/byte` },
  ];
}

/** @param {number} intensity @param {number} ridge */
function limitWords(intensity, ridge) {
  return intensity >= ridge ? "keeps the arithmetic busy (compute-bound)" : `waits for memory (memory-bound): at most ${percent(intensity / ridge)} of the arithmetic is busy`;
}

/** @param {Sum} sum */
function adviceOf({ load, ridge, prefill, decode, even }) {
  const needed = sequencesToReach(ridge, load);
  const batch = needed === null ? "no number of sequences would change that: their caches alone are too much to read" : `it takes ${plural(needed, "sequence")} at once to change that`;
  const busy = decode >= ridge ? "" : `; ${batch}`;
  const weigh = Number.isFinite(even) ? ` From ${count(even)} tokens on, reading one sequence’s cache moves more bytes than the weights do.` : "";
  return `Reading this prompt ${limitWords(prefill, ridge)}. Writing ${limitWords(decode, ridge)}${busy}.${weigh}`;
}

// -- the picture ---------------------------------------------------------------------------------

/** @param {() => Sum | null} sumNow @param {(view: View) => void} offer @returns {CanvasPanel} */
function panelOf(sumNow, offer) {
  return {
    empty: () => (sumNow() ? null : "Nothing to draw: see the number that cannot be so."),
    draw(g, size, view) {
      const sum = sumNow();
      if (!sum) return;
      const plot = plotOf(sum, size);
      drawAxes(g, plot, view.palette);
      drawRidge(g, plot, sum.ridge, view.palette);
      for (const curve of curvesOf(sum)) drawCurve(g, plot, curve, view.palette);
      sayRidge(g, plot, sum.ridge, view.palette);
      for (const curve of curvesOf(sum)) drawMark(g, plot, curve, sum.load.tokens, view.palette);
    },
    hit(x, y, view, size) {
      const sum = sumNow();
      if (!sum) return null;
      const plot = plotOf(sum, size);
      return x >= plot.left && x <= plot.right && y <= plot.bottom ? { tokens: Math.max(1, Math.round(plot.tokensAt(x))), sum } : null;
    },
    hint({ tokens, sum }) {
      const load = { ...sum.load, tokens };
      return `${plural(tokens, "token")}: prefill ${perByte(prefillIntensity(load))}, decode ${perByte(decodeIntensity(load))} FLOP/byte`;
    },
    detail(root, view) {
      offer(view);
      const sum = sumNow();
      write(find(root, ".detail"), sum ? adviceOf(sum) : "");
    },
    summary() {
      const sum = sumNow();
      return sum ? `Intensity at ${plural(sum.load.tokens, "token")}: prefill ${perByte(sum.prefill)}, decode ${perByte(sum.decode)}, ridge ${perByte(sum.ridge)} FLOP per byte.` : "Intensity calculator: a number is missing.";
    },
    twin() {
      const sum = sumNow();
      const columns = ["tokens", "prefill FLOP/byte", "decode FLOP/byte"];
      if (!sum) return { columns, rows: [] };
      const lengths = [...new Set([...TABLE_TOKENS, sum.load.tokens])].sort((a, b) => a - b);
      const rows = lengths.map((tokens) => ({ cells: [count(tokens), perByte(prefillIntensity({ ...sum.load, tokens })), perByte(decodeIntensity({ ...sum.load, tokens }))] }));
      return { columns, rows };
    },
  };
}

/** @param {Sum} sum @returns {Curve[]} */
function curvesOf({ load }) {
  return [
    { name: "prefill", hue: "prefill", at: (tokens) => prefillIntensity({ ...load, tokens }), dash: [], mark: "square" },
    { name: "decode", hue: "decode", at: (tokens) => decodeIntensity({ ...load, tokens }), dash: [5, 4], mark: "circle" },
  ];
}

/** Decades of tokens across and of FLOP per byte up, wide enough for all that is drawn. @param {Sum} sum @param {Size} size */
function plotOf(sum, size) {
  const left = PLOT.left;
  const right = size.width - PLOT.right;
  const [top, bottom] = [PLOT.top, size.height - PLOT.bottom];
  const last = Math.max(TOKENS_SHOWN.to, sum.load.tokens);
  const shown = [sum.ridge, ...curvesOf(sum).flatMap(({ at }) => [TOKENS_SHOWN.from, sum.load.tokens, last].map(at))];
  const low = Math.floor(Math.log10(Math.min(...shown)));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...shown))));
  const across = Math.log10(last);
  return {
    left, right, top, bottom, low, high, last,
    x: (/** @type {number} */ tokens) => left + ((right - left) * Math.log10(tokens)) / across,
    y: (/** @type {number} */ value) => bottom - ((bottom - top) * (Math.log10(value) - low)) / (high - low),
    tokensAt: (/** @type {number} */ x) => 10 ** (((x - left) / (right - left)) * across),
  };
}

/** @param {Canvas} g @param {Plane} plot @param {Palette} palette */
function drawAxes(g, plot, palette) {
  const { left, right, top, bottom, low, high } = plot;
  g.fillStyle = palette.muted;
  g.textAlign = "left";
  g.fillText("FLOP/byte", 4, 7);
  g.textAlign = "right";
  const every = Math.ceil(((high - low) * 14) / Math.max(1, bottom - top));
  for (let power = low; power <= high; power += 1) {
    const y = Math.round(plot.y(10 ** power));
    g.fillStyle = palette.line;
    g.fillRect(left, y, right - left, 1);
    g.fillStyle = palette.muted;
    if ((power - low) % every === 0) g.fillText(decadeWords(power), left - 6, y);
  }
  g.textAlign = "center";
  for (let power = 0; 10 ** power <= plot.last; power += 1) {
    const x = plot.x(10 ** power);
    g.fillStyle = palette.line;
    g.fillRect(Math.round(x), bottom, 1, 4);
    g.fillStyle = palette.muted;
    g.fillText(decadeWords(power), x, bottom + 10);
  }
  g.textAlign = "right";
  g.fillText("tokens S", right, bottom + 22);
}

/** The ridge as a line, hatched below it: there memory is what it waits for. @param {Canvas} g @param {Plane} plot @param {number} ridge @param {Palette} palette */
function drawRidge(g, plot, ridge, palette) {
  const y = plot.y(ridge);
  g.globalAlpha = 0.25;
  g.fillStyle = palette.hatch.gap;
  g.fillRect(plot.left, y, plot.right - plot.left, plot.bottom - y);
  g.globalAlpha = 1;
  g.fillStyle = palette.fg;
  g.fillRect(plot.left, Math.round(y) - 1, plot.right - plot.left, 2);
}

/** @param {Canvas} g @param {Plane} plot @param {number} ridge @param {Palette} palette */
function sayRidge(g, plot, ridge, palette) {
  const y = plot.y(ridge);
  g.textAlign = "left";
  drawText(g, `ridge ${perByte(ridge)}: the device computes above`, plot.left + 6, y - 9, palette);
  drawText(g, "and waits for memory below", plot.left + 6, y + 10, palette);
}

/** @param {Canvas} g @param {Plane} plot @param {Curve} curve @param {Palette} palette */
function drawCurve(g, plot, { hue, at, dash }, palette) {
  g.strokeStyle = palette[hue];
  g.lineWidth = 2;
  g.setLineDash(dash);
  g.beginPath();
  for (let x = plot.left; x <= plot.right; x += 3) g.lineTo(x, plot.y(at(plot.tokensAt(x))));
  g.stroke();
  g.setLineDash([]);
}

/** Where the number of tokens asked for stands on a curve. @param {Canvas} g @param {Plane} plot @param {Curve} curve @param {number} tokens @param {Palette} palette */
function drawMark(g, plot, { name, hue, at, mark }, tokens, palette) {
  const [x, y] = [plot.x(tokens), plot.y(at(tokens))];
  g.fillStyle = palette[hue];
  g.beginPath();
  if (mark === "square") g.rect(x - 5, y - 5, 10, 10);
  else g.arc(x, y, 5.5, 0, 7);
  g.fill();
  g.strokeStyle = palette.well;
  g.lineWidth = 2;
  g.stroke();
  const late = x > (plot.left + plot.right) / 2;
  g.textAlign = late ? "right" : "left";
  drawText(g, `${name} ${perByte(at(tokens))}`, late ? x - 10 : x + 10, y - 12, palette);
}
