/**
 * The marks of the slots picture: a block for a prefill, a dot for a decode, ticks for its guesses, a hollow cell for an
 * idle slot, a dash for one that is held. They are collected into a few paths first. With many slots there is no room for
 * marks: bars of pixels then.
 *
 * @import {KnownView, Row, Step} from "./types.js"
 *
 * @typedef {OffscreenCanvasRenderingContext2D} Paper
 * @typedef {ReturnType<typeof newMarks>} Marks
 * @typedef {{slots: number, top: number, height: number, dense: boolean}} Lines rows of the picture, in CSS pixels
 */

import { ownerHue } from "./owners.js";
import { Rows } from "./rows.js";

/** How strong a mark is that is not lit while something else is. */
const DIM = 0.25;
/** A dot is a round-capped line of hardly any length: with none at all a path of one dot would not be drawn. */
const POINT = 0.01;

/** What the slots do in one step, from x = 0 to px. @param {Paper} g @param {Lines} lines @param {Step} step @param {number} px @param {KnownView} view */
export function drawSlots(g, lines, step, px, view) {
  if (lines.dense) {
    drawDense(g, lines, step, px, view);
    return;
  }
  const marks = newMarks();
  collect(marks, 0, lines, step, px, view);
  drawMarks(g, marks, lines, px, view);
}

/** One path per kind of mark, and per hue: a thousand marks cost a handful of fills. */
function newMarks() {
  /** @type {() => Path2D[]} by hue; holes where a hue has no mark */
  const byHue = () => [];
  return { decode: byHue(), prefill: byHue(), dimDecode: byHue(), dimPrefill: byHue(), idle: new Path2D(), wanted: new Path2D(), held: new Path2D(), right: new Path2D(), wrong: new Path2D() };
}

/** @param {Marks} marks @param {number} x @param {Lines} lines @param {Step} step @param {number} px @param {KnownView} view */
function collect(marks, x, lines, step, px, { axis, byOwner, lit }) {
  const busy = new Set(step.skipped);
  const width = Math.max(1, px - 1);
  const reach = Math.max(POINT, axis.timed ? width - dotSize(width, lines.height) : 0) / 2; // in time a dot lasts as long as its step
  const middle = (/** @type {number} */ slot) => lines.top + (slot + 0.5) * lines.height;
  for (const row of step.rows) {
    busy.add(row.slot);
    const dim = lit.any && !lit.requests.has(row.request);
    const y = middle(row.slot);
    const hue = byOwner ? ownerHue(row.request) : 0;
    if (row.phase === "prefill") {
      const height = Math.max(3, (lines.height - 3) * Math.sqrt(row.scheduled / step.token_budget));
      ((dim ? marks.dimPrefill : marks.prefill)[hue] ??= new Path2D()).rect(x, y - height / 2, width, height);
    } else {
      const path = ((dim ? marks.dimDecode : marks.decode)[hue] ??= new Path2D());
      path.moveTo(x + width / 2 - reach, y);
      path.lineTo(x + width / 2 + reach, y);
      if (row.drafted && !dim) collectGuesses(marks, row, x, width, y, lines.height);
    }
  }
  for (const slot of step.skipped) marks.held.rect(x, middle(slot) - 0.5, width, 1);
  const cell = Math.max(2, Math.min(width, lines.height - 4, 6));
  const wide = axis.timed ? Math.max(cell, width - 1) : cell;
  const idle = step.waiting.length ? marks.wanted : marks.idle;
  for (let slot = 0; slot < step.num_slots; slot += 1) {
    if (!busy.has(slot)) idle.rect(x + (width - wide) / 2 + 0.5, middle(slot) - cell / 2 + 0.5, wide - 1, cell - 1);
  }
}

const NOTHING = 0;
const UNLIT = 1;
const IDLE = 2;
const HELD = 3;
const DECODE = 4;
const PREFILL = 5;

/** A step of many slots: what the slots at each pixel do, runs of one kind as one bar. @param {Paper} g @param {Lines} lines @param {Step} step @param {number} px @param {KnownView} view */
function drawDense(g, lines, step, px, { byOwner, lit, palette }) {
  const kinds = new Uint8Array(Math.ceil(lines.slots * lines.height));
  const set = (/** @type {number} */ slot, /** @type {number} */ kind) => {
    const y = Math.floor(slot * lines.height);
    kinds[y] = Math.max(kinds[y], kind);
    if (kind === PREFILL && y > 0) kinds[y - 1] = PREFILL; // one pixel alone would be missed
  };
  const busy = new Uint8Array(lines.slots);
  const rows = Rows.of(step.rows);
  const [requests, phases] = [rows.column("request"), rows.column("phase")];
  rows.column("slot").forEach((slot, i) => {
    busy[slot] = 1;
    if (lit.any && !lit.requests.has(requests[i])) set(slot, UNLIT);
    else set(slot, phases[i] === "prefill" ? PREFILL : DECODE);
  });
  for (const slot of step.skipped) {
    busy[slot] = 1;
    set(slot, HELD);
  }
  for (let slot = 0; slot < step.num_slots; slot += 1) if (!busy[slot]) set(slot, IDLE);
  const width = Math.max(1, px - 1);
  /** @type {[number, number, string]} from where, how wide, which colour */
  const idle = [Math.floor(width / 2), 1, step.waiting.length ? palette.muted : palette.idle];
  const [prefill, decode] = byOwner ? [palette.fg, palette.muted] : [palette.prefill, palette.decode]; // no room for hues
  /** @type {Object<number, [number, number, string]>} */
  const bars = { [UNLIT]: [0, width, decode], [IDLE]: idle, [HELD]: [0, 1, palette.idle], [DECODE]: [0, width, decode], [PREFILL]: [0, width, prefill] };
  for (let from = 0, to; from < kinds.length; from = to) {
    for (to = from + 1; to < kinds.length && kinds[to] === kinds[from]; ) to += 1;
    if (kinds[from] === NOTHING) continue;
    const [x, wide, colour] = bars[kinds[from]];
    g.globalAlpha = kinds[from] === UNLIT ? DIM : 1;
    g.fillStyle = colour;
    g.fillRect(x, lines.top + from, wide, to - from);
  }
  g.globalAlpha = 1;
}

/** Ticks from the dot outwards, as many as fit; right ones up, wrong ones down. @param {Marks} marks @param {Row} row @param {number} x @param {number} width @param {number} y @param {number} height */
function collectGuesses(marks, row, x, width, y, height) {
  const gap = Math.max(2, dotSize(width, height) / 2 + 1);
  const pitch = Math.min(3, (height / 2 - gap) / Math.max(1, row.accepted, row.drafted - row.accepted));
  const thick = Math.max(1, pitch - 1);
  for (let i = 0; i < row.accepted; i += 1) marks.right.rect(x, y - gap - (i + 1) * pitch + (pitch - thick), width, thick);
  for (let i = 0; i < row.drafted - row.accepted; i += 1) marks.wrong.rect(x + width / 4, y + gap + i * pitch, width / 2, thick);
}

/** @param {number} width @param {number} height */
function dotSize(width, height) {
  return Math.max(2, Math.min(width, height / 1.5, 8));
}

/** @param {Paper} g @param {Marks} marks @param {Lines} lines @param {number} px @param {KnownView} view */
function drawMarks(g, marks, lines, px, view) {
  const { byOwner, palette } = view;
  const prefill = byOwner ? palette.owners : [palette.prefill];
  const decode = byOwner ? palette.owners : [palette.decode];
  fillEach(g, marks.prefill, prefill);
  g.fillStyle = palette.idle;
  g.fill(marks.held);
  g.strokeStyle = palette.idle;
  g.lineWidth = 1;
  g.stroke(marks.idle);
  g.strokeStyle = palette.muted;
  g.stroke(marks.wanted);
  g.fillStyle = palette.idle;
  g.fill(marks.wrong);
  g.fillStyle = byOwner ? palette.fg : palette.decode;
  g.fill(marks.right);
  g.lineCap = "round";
  g.lineWidth = dotSize(px - 1, lines.height);
  strokeEach(g, marks.decode, decode);
  g.globalAlpha = DIM;
  fillEach(g, marks.dimPrefill, prefill);
  strokeEach(g, marks.dimDecode, decode);
  g.globalAlpha = 1;
  g.lineCap = "butt";
}

/** @param {Paper} g @param {Path2D[]} paths @param {string[]} colours */
function fillEach(g, paths, colours) {
  paths.forEach((path, hue) => {
    g.fillStyle = colours[hue];
    g.fill(path);
  });
}

/** @param {Paper} g @param {Path2D[]} paths @param {string[]} colours */
function strokeEach(g, paths, colours) {
  paths.forEach((path, hue) => {
    g.strokeStyle = colours[hue];
    g.stroke(path);
  });
}
