/**
 * One side's picture: slots over the whole run, on the axis that both sides share. A prompt being computed fills its
 * slot's height, an answer being written is a bar half as high, an idle slot is hollow, and more so while somebody
 * waits. The line is where all had finished.
 *
 * @import {Canvas, Palette, Size} from "./types.js"
 *
 * @typedef {import("./compare_run.js").Run} Run
 * @typedef {Array<{from: number, to: number}>} Spans from where to where each step reaches
 * @typedef {ReturnType<typeof linesOf>} Lines
 * @typedef {{unit: "time" | "steps", span: number, slots: number}} Axis `span` in microseconds or steps
 */

import { startOf } from "./compare_run.js";
import { count } from "./format.js";
import { endCap, hollow } from "./marks.js";
import { notch } from "./panels/slots.js";

const LEFT = 26;
const RIGHT = 12;
const TICKS = 16;
const TOP = 3;
const DECODE = 0.5; // of a row's height

/** How long a run is on an axis. @param {Run | null} run @param {"time" | "steps"} unit */
export function lengthOf(run, unit) {
  if (!run) return 0;
  return unit === "steps" ? run.steps.length : Math.max(0, (run.steps.at(-1)?.accepted_us ?? 0) - startOf(run));
}

/** The most slots a run had. @param {Run | null} run */
export function slotsOf(run) {
  return run ? run.steps.reduce((most, step) => Math.max(most, step.num_slots, ...[...step.rows].map(({ slot }) => slot + 1)), run.config.max_num_seqs) : 1;
}

/** Where on the canvas a place on the axis is. @param {number} value @param {number} width @param {Axis} axis */
export function xOf(value, width, { span }) {
  return LEFT + (span ? value / span : 0) * (width - LEFT - RIGHT);
}

/** The place on the axis below x, kept within it. @param {number} x @param {number} width @param {Axis} axis */
export function valueAt(x, width, { span }) {
  return Math.min(span, Math.max(0, ((x - LEFT) / (width - LEFT - RIGHT)) * span));
}

/**
 * @param {Canvas} g scaled to CSS pixels @param {Pick<Size, "width" | "height">} size
 * @param {Run} run @param {Axis} axis @param {Palette} palette @param {string} ended what stands at the line; "" where something else says it
 */
export function drawRun(g, size, run, axis, palette, ended) {
  const lines = linesOf(size, axis);
  const spans = spansOf(run, axis, size.width);
  drawTicks(g, size.width, lines, axis, palette);
  drawIdle(g, run, spans, lines, palette);
  drawBusy(g, run, spans, lines, palette);
  drawEnds(g, run, spans, lines, palette);
  drawFinish(g, size, run, spans, lines, palette, ended);
}

/** @param {Pick<Size, "height">} size @param {Axis} axis */
function linesOf(size, { slots }) {
  const room = (size.height - TOP - TICKS) / slots; // of many slots each has a part of a pixel, else they would cover the ticks
  const height = room < 2 ? room : Math.min(34, Math.floor(room));
  return { top: TOP, height, bottom: TOP + slots * height, slots };
}

/** How far down the slots reach, above the ticks. @param {Pick<Size, "height">} size @param {Axis} axis */
export function bottomOf(size, axis) {
  return linesOf(size, axis).bottom;
}

/** @param {Run} run @param {Axis} axis @param {number} width @returns {Spans} by step */
function spansOf(run, axis, width) {
  const start = startOf(run);
  return run.steps.map((step, i) => {
    const [from, to] = axis.unit === "steps" ? [i, i + 1] : [step.start_us - start, step.accepted_us - start];
    return { from: xOf(from, width, axis), to: xOf(to, width, axis) };
  });
}

/** @param {Canvas} g @param {Run} run @param {Spans} spans @param {Lines} lines @param {Palette} palette */
function drawBusy(g, run, spans, { top, height }, palette) {
  const apart = spans.length && (endOf(spans) - spans[0].from) / spans.length > 5 ? 1 : 0; // else the gaps would be all one sees
  const prefill = new Path2D();
  const decode = new Path2D();
  run.steps.forEach((step, i) => {
    const { from, to } = spans[i];
    const width = Math.max(0.75, to - from - apart);
    for (const row of step.rows) {
      const y = top + row.slot * height;
      if (row.phase === "prefill") prefill.rect(from, y + 1, width, Math.max(1, height - 2));
      else decode.rect(from, y + (height * (1 - DECODE)) / 2, width, Math.max(1, height * DECODE));
    }
  });
  g.fillStyle = palette.decode;
  g.fill(decode);
  g.fillStyle = palette.prefill;
  g.fill(prefill);
}

/** Hollow cells, as long as a slot stays idle; while somebody waits they are stronger. @param {Canvas} g @param {Run} run @param {Spans} spans @param {Lines} lines @param {Palette} palette */
function drawIdle(g, run, spans, { top, height }, palette) {
  /** @type {Map<number, {from: number, wanted: boolean}>} by slot */
  const open = new Map();
  const close = (/** @type {number} */ slot, /** @type {{from: number, wanted: boolean}} */ { from, wanted }, /** @type {number} */ to) => {
    open.delete(slot);
    const inset = height >= 8 ? 2 : 0;
    if (to - from >= 2) hollow(g, from + 0.5, top + slot * height + inset, to - from - 1, height - 2 * inset, wanted ? palette.muted : palette.idle, wanted && height >= 8 ? 2 : 1);
  };
  run.steps.forEach((step, i) => {
    const busy = new Set([...step.rows].map(({ slot }) => slot));
    for (const slot of step.skipped) busy.add(slot);
    const wanted = step.waiting.length > 0;
    for (let slot = 0; slot < step.num_slots; slot += 1) {
      const idle = open.get(slot);
      if (idle && (busy.has(slot) || idle.wanted !== wanted)) close(slot, idle, spans[i].from);
      if (!busy.has(slot) && !open.has(slot)) open.set(slot, { from: spans[i].from, wanted });
    }
  });
  for (const [slot, idle] of [...open]) close(slot, idle, endOf(spans));
}

/** @param {Spans} spans */
function endOf(spans) {
  return spans.at(-1)?.to ?? 0;
}

/**
 * A cap where a request finished, a notch where it was preempted.
 * @param {Canvas} g @param {Run} run @param {Spans} spans @param {Lines} lines @param {Palette} palette
 */
function drawEnds(g, run, spans, { top, height }, palette) {
  const first = run.steps[0]?.step ?? 0;
  for (const lane of run.history.lanes.values()) {
    for (const { slot, to, out } of lane.stays) {
      const span = to === null ? undefined : spans[to - 1 - first];
      if (!span || slot === null) continue;
      const y = top + (slot + 0.5) * height;
      if (out === "preempted") notch(g, span.to, y, height, palette);
      else if (height >= 6) endCap(g, span.to - 2, y, Math.min(20, height - 4), lane.end?.reason ?? null, palette);
    }
  }
}

/**
 * @param {Canvas} g @param {Pick<Size, "width">} size @param {Run} run @param {Spans} spans @param {Lines} lines
 * @param {Palette} palette @param {string} ended
 */
function drawFinish(g, size, run, spans, lines, palette, ended) {
  if (!spans.length || !run.over) return;
  const to = endOf(spans);
  g.fillStyle = palette.fg;
  g.fillRect(to, 0, 2, lines.bottom);
  g.font = palette.font.replace(/^[\d.]+px/, "600 14px");
  const left = to + 8 + g.measureText(ended).width <= size.width;
  if (!left || !ended) return; // the figures say it
  g.textAlign = "left";
  g.fillText(ended, to + 8, lines.top + (lines.bottom - lines.top) / 2);
}

const NICE = [1, 2, 5];

/** Marks along the bottom: seconds, or steps since the run began. @param {Canvas} g @param {number} width @param {Lines} lines @param {Axis} axis @param {Palette} palette */
function drawTicks(g, width, lines, axis, palette) {
  const unit = axis.unit === "steps" ? 1 : 1_000_000;
  const least = (axis.span / unit / (width - LEFT - RIGHT)) * 76;
  let every = 10 ** Math.floor(Math.log10(least || 1));
  every *= [...NICE, 10].find((n) => n * every >= least) ?? 10;
  if (axis.unit === "steps") every = Math.max(1, every);
  const digits = Math.max(0, -Math.floor(Math.log10(every)));
  g.fillStyle = palette.muted;
  for (let value = 0; value * unit <= axis.span * 1.0001 && every > 0; value += every) {
    const x = xOf(value * unit, width, axis);
    g.fillRect(x, lines.bottom, 1, 3);
    g.textAlign = value === 0 ? "left" : x > width - 30 ? "right" : "center";
    const words = axis.unit === "steps" ? count(Math.round(value)) : `${value.toFixed(digits)} s`;
    g.fillText(words, value === 0 ? x : Math.min(x, width - 2), lines.bottom + TICKS / 2 + 2);
  }
  if (lines.height < 11) return;
  g.textAlign = "right";
  for (let slot = 0; slot < lines.slots; slot += 1) g.fillText(String(slot), LEFT - 8, lines.top + (slot + 0.5) * lines.height);
}
