/**
 * KV calculator: bytes per token from a model's shape, step by step; how many conversations fit; and what sharing heads
 * and smaller numbers change.
 *
 * @import {Canvas, CanvasPanel, Hello, HelloFacts, Page, Palette, Size, View} from "../types.js"
 * @import {Shape} from "../sums.js"
 *
 * @typedef {Shape & {tokens: number, memory: number}} Asked `memory` in GiB
 * @typedef {ReturnType<typeof sumOf>} Sum
 * @typedef {Sum["variants"][number]} Variant
 * @typedef {Variant & {top: number, height: number, width: number}} Bar
 */

import { keepDrafts } from "../drafts.js";
import { byId, field, find, write } from "../dom.js";
import { fillNumbers, fillOptions, mountPicker, readNumbers, showWrong } from "../fields.js";
import { count, plural } from "../format.js";
import { mountPanel } from "../frame.js";
import { hollow } from "../marks.js";
import { MODELS } from "../shapes.js";
import { writeSteps } from "../steps.js";
import { KV_BYTES, SCALE_BYTES, keyBytes, kvFit, kvVariants } from "../sums.js";

const GIB = 2 ** 30;
const LEFT = 144;
const RIGHT = 158;
const FIELDS = ["layers", "heads", "kvHeads", "headDim", "dtype", "memory"];
/** @type {Object<string, Shape["dtype"]>} */
const DTYPES = { float32: "float32", bfloat16: "float16", float16: "float16", float8_e4m3fn: "fp8", int8: "int8" };

/** @param {Page} page */
export function mountKvSum(page) {
  const root = byId("panel-kvsum");
  const form = find(root, "form");
  const model = field(form, "model", HTMLSelectElement);
  const dtype = field(form, "dtype", HTMLSelectElement);
  const error = find(root, ".error");
  const steps = find(root, ".steps", HTMLOListElement);
  let sum = /** @type {Sum | null} */ (null);

  function reckon() {
    const { values, wrong } = readNumbers(form);
    const unfit = wrong ?? headsWrong(values);
    if (!wrong && unfit) field(form, "kvHeads").setAttribute("aria-invalid", "true");
    showWrong(error, unfit);
    sum = unfit ? null : sumOf(/** @type {Asked} */ (/** @type {unknown} */ ({ ...values, dtype: dtype.value })));
    writeSteps(steps, sum ? stepsOf(sum) : []);
    page.loop.invalidateNow();
  }

  /** @param {string} value */
  function pick(value) {
    if (value === "engine") fillNumbers(form, engineShape(page.view().hello) ?? {});
    else {
      const { layers, heads, kvHeads, headDim } = MODELS[Number(value)];
      fillNumbers(form, { layers, heads, kvHeads, headDim });
    }
  }

  const offer = (/** @type {Hello | null} */ hello) => {
    const own = hello && engineShape(hello) ? [{ value: "engine", text: `this engine's: ${hello.model.name}` }] : [];
    fillOptions(model, [...own, ...MODELS.map(({ name }, i) => ({ value: String(i), text: name }))]);
  };
  offer(null);
  keepDrafts(form);
  mountPicker(model, { names: FIELDS.slice(0, 4), pick });
  form.addEventListener("input", reckon);
  form.addEventListener("change", reckon);
  form.addEventListener("submit", (event) => event.preventDefault());
  mountPanel("kvsum", panelOf(() => sum, ({ hello }) => offer(hello)), page);
  reckon();
}

/** The fields as this engine has them; null while it is unknown, or holds no model. @param {Pick<HelloFacts, "model" | "memory"> | null} hello */
export function engineShape(hello) {
  if (!hello?.model.num_parameters) return null;
  const { num_layers, num_attention_heads, num_kv_heads, head_dim, dtype } = hello.model;
  const stored = DTYPES[hello.memory.kv_dtype ?? dtype] ?? "float16"; // a CPU's cache is float32 whatever the weights are
  const memory = Number((hello.memory.kv_pool / GIB).toPrecision(6));
  return { layers: num_layers, heads: num_attention_heads, kvHeads: num_kv_heads, headDim: head_dim, dtype: stored, memory };
}

/** @param {Object<string, number>} values */
function headsWrong({ heads, kvHeads }) {
  if (heads % kvHeads === 0) return null;
  return `KV heads is ${kvHeads}; it must divide the ${plural(heads, "attention head")}, since each KV head serves as many of them.`;
}

/** @param {Asked} asked */
function sumOf({ tokens, memory, ...shape }) {
  const fits = (/** @type {{name: string, shape: Shape}} */ each) => ({ ...each, ...kvFit(each.shape, tokens, memory * GIB) });
  return { tokens, memory, shape, variants: kvVariants(shape).map(fits), ...kvFit(shape, tokens, memory * GIB) };
}

// -- words ---------------------------------------------------------------------------------------

/** @type {Record<Shape["dtype"], string>} */
const TYPE_WORDS = { float32: "fp32", float16: "16 bits", fp8: "fp8", int8: "int8" };

/** @param {Sum} sum */
function stepsOf({ shape, tokens, memory, perToken, conversation, fit, tokensThatFit }) {
  const { layers, kvHeads, headDim, dtype } = shape;
  const key = keyBytes(shape);
  const scale = KV_BYTES[dtype] === 1 ? ` + ${SCALE_BYTES} for its scale` : "";
  const room = fit > 0 ? plural(fit, "conversation") : `not one whole conversation; ${plural(tokensThatFit, "token")} of it`;
  return [
    { words: `one key: ${count(headDim)} numbers × ${plural(KV_BYTES[dtype], "byte")}${scale}`, result: plural(key, "byte") },
    { words: `× ${plural(kvHeads, "KV head")} × ${plural(layers, "layer")}`, result: plural(key * kvHeads * layers, "byte") },
    { words: "× 2: a value beside each key", result: `${plural(perToken, "byte")} a token`, sum: true },
    { words: `× ${plural(tokens, "token")}: one conversation`, result: `${count(conversation)} bytes, ${gigabytes(conversation)}` },
    { words: `${memory} GiB of memory ÷ that`, result: room, sum: true },
  ];
}

/** "2.097 GB": decimal, as memory is sold. @param {number} bytes */
export function gigabytes(bytes) {
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(3)} GB`;
}

/** @param {Pick<Variant, "name" | "shape">} variant */
function nameOf({ name, shape }) {
  if (name === "asked") return "as above";
  if (name === "mha") return `no sharing: ${plural(shape.kvHeads, "KV head")}`;
  if (name === "mqa") return "all share 1 KV head";
  return name === "fp8" ? "as above, in fp8" : "as above, in int8";
}

/** @param {Sum} sum */
function adviceOf({ shape, variants }) {
  const { heads, kvHeads, dtype } = shape;
  const [asked, mha, , , int8] = variants;
  const times = (/** @type {Variant} */ a, /** @type {Variant} */ b) => Number((a.perToken / b.perToken).toPrecision(3));
  const shared = heads / kvHeads;
  const gqa = shared > 1 ? `Grouped-query attention: ${count(shared)} attention heads share a KV head, so the cache is ${count(times(mha, asked))} times smaller than without.` : "Every attention head keeps keys and values of its own: nothing is shared (no grouped-query attention).";
  if (dtype === "fp8" || dtype === "int8") return `${gqa} It is kept in ${TYPE_WORDS[dtype]} already.`;
  return `${gqa} fp8 or int8, scales included, make it ${times(asked, int8)} times smaller.`;
}

// -- the picture ---------------------------------------------------------------------------------

/** @param {() => Sum | null} sumNow @param {(view: View) => void} offer @returns {CanvasPanel} */
function panelOf(sumNow, offer) {
  return {
    empty: () => (sumNow() ? null : "Nothing to draw: see the number above that cannot be so."),
    draw(g, size, view) {
      const sum = sumNow();
      if (sum) for (const bar of barsOf(sum, size)) drawBar(g, bar, view.palette);
    },
    hit(x, y, view, size) {
      const sum = sumNow();
      const bar = sum && barsOf(sum, size).find(({ top, height }) => y >= top - 2 && y < top + height + 2);
      return bar ? { bar } : null;
    },
    hint: ({ bar }) => `${nameOf(bar)}: ${plural(bar.perToken, "byte")} a token, ${gigabytes(bar.conversation)} a conversation, ${plural(bar.fit, "conversation")} at once`,
    detail(root, view) {
      offer(view);
      const sum = sumNow();
      write(find(root, ".detail"), sum ? adviceOf(sum) : "");
    },
    summary() {
      const sum = sumNow();
      return sum ? `KV calculator: ${plural(sum.perToken, "byte")} a token, ${plural(sum.fit, "conversation")} of ${plural(sum.tokens, "token")} fit.` : "KV calculator: a number is missing.";
    },
    twin() {
      const sum = sumNow();
      const rows = sum?.variants.map((each) => ({ cells: [nameOf(each), count(each.perToken), gigabytes(each.conversation), count(each.fit)] })) ?? [];
      return { columns: ["cache", "bytes a token", "a conversation", "conversations that fit"], rows };
    },
  };
}

/** @param {Sum} sum @param {Size} size @returns {Bar[]} */
function barsOf({ variants }, size) {
  const most = Math.max(...variants.map(({ perToken }) => perToken));
  const pitch = size.height / variants.length;
  const height = Math.min(16, pitch - 4);
  const room = Math.max(0, size.width - LEFT - RIGHT);
  return variants.map((each, i) => ({ ...each, top: i * pitch + (pitch - height) / 2, height, width: Math.max(1, (room * each.perToken) / most) }));
}

/** What was asked for is solid, what could be is hatched. @param {Canvas} g @param {Bar} bar @param {Palette} palette */
function drawBar(g, bar, palette) {
  const { top, height, width, name } = bar;
  g.textAlign = "right";
  g.fillStyle = name === "asked" ? palette.fg : palette.muted;
  g.fillText(nameOf(bar), LEFT - 8, top + height / 2);
  g.fillStyle = name === "asked" ? palette.fg : palette.hatch.gap;
  g.fillRect(LEFT, top, width, height);
  if (name !== "asked") hollow(g, LEFT, top, width, height, palette.muted);
  g.textAlign = "left";
  g.fillStyle = palette.fg;
  g.fillText(`${count(bar.perToken)} B · ${count(bar.fit)} fit`, LEFT + width + 6, top + height / 2);
}
