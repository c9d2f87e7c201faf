/**
 * Slots, a piano roll: columns are steps, rows are slots. A prefill is a block sized by the root of its tokens, a
 * decode a dot, an idle slot a hollow cell; a dash is a request that holds its slot but got no tokens in the step.
 * When guesses ran along with a decode, the right ones stand above its dot and the wrong ones hang below it, a tick
 * each. Idle slots are stronger while somebody waits: that is what static batching costs. Above it the token budget.
 * More slots than there are three pixels for are drawn without gaps, and several of them may share a pixel: the rarest
 * of what they do is shown.
 *
 * @import {Canvas, CanvasPanel, KnownView, Palette, Plot, Row, Size, Step, StepFacts} from "../types.js"
 *
 * @typedef {ReturnType<typeof linesOf>} Lines
 */

import { count, endedWords, duration, NONE, plural, requestName } from "../format.js";
import { drawFlags } from "../flags.js";
import { lastSteps } from "../history.js";
import { lanesSince } from "../lanes.js";
import { drawAhead, drawBreaks, drawChosenColumn, drawText, drawTicks, endCap, outputShare } from "../marks.js";
import { drawLongSteps } from "../long_steps.js";
import { quietWords } from "../quiet.js";
import { createRoll } from "../roll.js";
import { drawSlots } from "../slot_marks.js";

const LEFT = 24;
export const GUTTER = 94;
const BUDGET = 30;
const GAP = 8;
const LONG_AT = 8; // where long steps are told
const TICKS = 15;
/** Rows lower than this have no room for marks of their own. */
const LOWEST = 3;
const roll = createRoll();

/** @type {CanvasPanel} */
export const slots = {
  gutter: GUTTER,
  margin: LEFT,

  empty(view) {
    if (!view.state) return view.why;
    if (view.history.steps.size) return null;
    if (view.state.step && !view.state.last_step) return "The stage was reset. Send a prompt and the next column appears.";
    return "No step has run yet. Send a prompt and the first column appears.";
  },

  draw(g, size, view) {
    if (!view.state) return;
    const plot = plotOf(size);
    const lines = linesOf(size, plot, view);
    drawRows(g, plot, lines, view);
    drawColumns(g, plot, lines, view);
    drawEnds(g, plot, lines, view);
    drawFlags(g, plot, 0, lines.bottom, view);
    drawAhead(g, plot, 0, lines.bottom, view);
    drawBreaks(g, plot, 0, lines.bottom, view);
    drawChosenColumn(g, plot, 0, lines.bottom, view);
    drawNow(g, plot, lines, view);
    drawLongSteps(g, plot, LONG_AT, view);
    drawQuiet(g, plot, lines, view);
    drawTicks(g, plot, size.height - TICKS / 2, view);
  },

  hit(x, y, view, size) {
    if (!view.state) return null;
    const plot = plotOf(size);
    const lines = linesOf(size, plot, view);
    const slot = Math.floor((y - lines.top) / lines.height);
    if (x > plot.right) return hitNow(slot, view);
    const column = view.axis.columnAt(x, plot);
    const step = view.history.steps.get(column);
    if (!step || x < plot.left) return null;
    const row = [...step.rows].find((each) => each.slot === slot);
    if (y >= lines.top && row) return { choice: { kind: "request", id: row.request }, step, row };
    return { choice: { kind: "step", column }, step };
  },

  hint({ step, row }) {
    if (!step) return "choose this request";
    const name = `step ${count(step.step)}`;
    if (!row) return `${name} · ${budgetWords(step)}`;
    return `${requestName(row.request)} · ${rowWords(row)} · slot ${row.slot} · ${name}`;
  },

  summary(view) {
    const step = view.state?.last_step;
    if (!step) return "Slots: no step yet.";
    const quiet = view.quietMs === null ? "" : ` ${quietWords(view.quietMs)},`;
    return `Slots: step ${step.step},${quiet} ${step.rows.length} of ${view.state.config.max_num_seqs} slots busy, ${budgetWords(step)}.`;
  },

  twin(view) {
    return {
      columns: ["step", "took", "prefill tok", "decode tok", "budget", "busy slots", "rows", "guesses right", "ended because", "marks after it"],
      rows: lastSteps(view.history, view.column, 40).map(([column, step]) => ({
        choice: { kind: "step", column },
        cells: [
          count(step.step),
          duration(step.wall_us),
          count(step.num_prefill_tokens),
          count(step.num_decode_tokens),
          count(step.token_budget),
          `${step.rows.length}/${step.num_slots}`,
          [...step.rows].map((row) => `${row.slot}:${requestName(row.request)} ${row.phase} ${row.scheduled}`).join(", "),
          guessShare([...step.rows]),
          endedWords(step.ended_by),
          marksAfter(column, view),
        ],
      })),
    };
  },
};

/** "prefill of 48 tokens", "decode, 2 of 3 guesses right: 3 tokens written". @param {Row} row */
function rowWords(row) {
  if (!row.drafted) return `${row.phase} of ${plural(row.scheduled, "token")}`;
  return `decode, ${count(row.accepted)} of ${plural(row.drafted, "guess", "guesses")} right: ${plural(row.out, "token")} written`;
}

/** @param {number} column @param {KnownView} view */
function marksAfter(column, { history, until }) {
  return history.marks.filter(({ at }) => at === column + 1 && at <= until).map(({ text }) => text).join(" · ");
}

/** "12/20", over a step's rows. @param {Row[]} rows */
function guessShare(rows) {
  const drafted = rows.reduce((sum, row) => sum + row.drafted, 0);
  return drafted ? `${count(rows.reduce((sum, row) => sum + row.accepted, 0))}/${count(drafted)}` : NONE;
}

/** @param {StepFacts} step */
function budgetWords(step) {
  return `${count(step.num_scheduled_tokens)} of ${count(step.token_budget)} tokens, ${duration(step.wall_us)}, ended as ${endedWords(step.ended_by)}`;
}

/** @param {Size} size */
function plotOf(size) {
  return { left: LEFT, right: size.width - GUTTER };
}

/** As many rows as there are slots, and were in the steps in view: the number can be changed while it runs. @param {Size} size @param {Plot} plot @param {KnownView} view */
function linesOf(size, plot, { axis, history, state }) {
  let slots = state.config.max_num_seqs;
  const { from, to } = axis.span(plot);
  for (let column = from; column <= to; column += 1) {
    slots = Math.max(slots, history.steps.get(column)?.top_slot ?? 0);
  }
  const top = BUDGET + GAP;
  const room = Math.max(1, size.height - top - TICKS);
  const dense = room < LOWEST * slots;
  const height = dense ? room / slots : Math.min(34, Math.floor(room / slots));
  return { slots, top, height, dense, bottom: top + slots * height };
}

/** @param {Canvas} g @param {Plot} plot @param {Lines} lines @param {KnownView} view */
function drawRows(g, plot, lines, { palette, state }) {
  g.fillStyle = palette.line;
  g.fillRect(plot.left, BUDGET, plot.right - plot.left, 1);
  if (lines.height < 11) return;
  g.fillStyle = palette.muted;
  g.textAlign = "right";
  for (let slot = 0; slot < lines.slots; slot += 1) g.fillText(String(slot), LEFT - 8, lines.top + (slot + 0.5) * lines.height);
  g.textAlign = "left";
  g.fillText(`${count(state.config.max_num_batched_tokens)} tok`, plot.right + 8, 6);
  g.fillText("0", plot.right + 8, BUDGET - 4);
}

/** @param {Canvas} g @param {Plot} plot @param {Lines} lines @param {KnownView} view */
function drawColumns(g, plot, lines, view) {
  g.save();
  g.beginPath();
  g.rect(plot.left, 0, plot.right - plot.left, lines.bottom);
  g.clip();
  drawLimit(g, plot, view);
  roll.draw(g, { ...plot, top: 0, bottom: lines.bottom }, view, [lines.slots, lines.height], (paper, step, px) => {
    drawBudget(paper, 0, px, step, view);
    drawSlots(paper, lines, step, px, view);
  });
  g.restore();
}

/** @param {Canvas} g @param {Plot} plot @param {KnownView} view */
function drawLimit(g, plot, { palette }) {
  g.setLineDash([2, 3]);
  g.strokeStyle = palette.muted;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(plot.left, 1.5);
  g.lineTo(plot.right, 1.5);
  g.stroke();
  g.setLineDash([]);
}

/** The step's tokens against its budget: decode below, prefill on top of it. @param {OffscreenCanvasRenderingContext2D} g @param {number} x @param {number} px @param {Step} step @param {KnownView} view */
function drawBudget(g, x, px, step, { palette, byOwner }) {
  const full = BUDGET - 3;
  const scale = full / step.token_budget;
  const decode = Math.min(full, step.num_decode_tokens * scale);
  const prefill = Math.min(full - decode, step.num_prefill_tokens * scale);
  const width = Math.max(1, px - 1);
  g.fillStyle = byOwner ? palette.muted : palette.decode;
  if (decode > 0) g.fillRect(x, BUDGET - Math.max(1, decode), width, Math.max(1, decode));
  g.fillStyle = byOwner ? palette.fg : palette.prefill;
  g.fillRect(x, BUDGET - decode - prefill, width, prefill);
}

/** A cap where a request finished, a notch where it was preempted. @param {Canvas} g @param {Plot} plot @param {Lines} lines @param {KnownView} view */
function drawEnds(g, plot, lines, { axis, history, palette }) {
  const { from } = axis.span(plot);
  const tall = lines.dense ? 5 : Math.min(12, lines.height - 4);
  for (const lane of lanesSince(history, from)) {
    if (lane.end && lane.end.at < from) continue;
    for (const { slot, to, out } of lane.stays) {
      if (slot === null || to === null || to > axis.right) continue;
      const x = out === "preempted" ? axis.x(to, plot) : axis.end(to - 1, plot);
      if (x < plot.left) continue;
      const y = lines.top + (slot + 0.5) * lines.height;
      if (out === "preempted") notch(g, x, y, lines.dense ? 8 : lines.height, palette);
      else endCap(g, x - 1, y, tall, lane.end?.reason ?? null, palette);
    }
  }
}

/** @param {Canvas} g @param {number} x @param {number} y @param {number} height @param {Palette} palette */
export function notch(g, x, y, height, palette) {
  const h = Math.min(8, height / 2);
  g.fillStyle = palette.fault;
  g.beginPath();
  g.moveTo(x + 1, y - h);
  g.lineTo(x - h, y);
  g.lineTo(x + 1, y + h);
  g.fill();
}

/** Who holds each slot at the moment shown, at the right edge. @param {Canvas} g @param {Plot} plot @param {Lines} lines @param {KnownView} view */
function drawNow(g, plot, lines, view) {
  if (lines.height < 11) return;
  g.textAlign = "left";
  for (const { id, slot } of holders(view)) {
    if (slot === null) continue;
    g.fillStyle = view.lit.any && !view.lit.requests.has(id) ? view.palette.muted : view.palette.fg;
    g.fillText(`${requestName(id)} ${outputShare(view.state.requests[id])}`, plot.right + 8, lines.top + (slot + 0.5) * lines.height);
  }
}

/** At the live edge: that a step is long in coming. In time, what has passed of it stands open. @param {Canvas} g @param {Plot} plot @param {Lines} lines @param {KnownView} view */
function drawQuiet(g, plot, lines, { axis, store, last, quietMs, palette }) {
  if (quietMs === null || store.held) return;
  const x = Math.min(plot.right - 1, axis.end(last, plot));
  g.strokeStyle = palette.fg;
  g.lineWidth = 1;
  g.setLineDash([3, 3]);
  g.strokeRect(Math.max(plot.left, x) + 0.5, 0.5, plot.right - Math.max(plot.left, x), lines.bottom - 1);
  g.setLineDash([]);
  g.textAlign = "right";
  drawText(g, quietWords(quietMs), plot.right - 6, BUDGET - 9, palette);
}

/** @param {KnownView} view */
function holders({ state }) {
  return state.queues.running.map((id) => ({ id, slot: state.requests[id].slot }));
}

/** @param {number} slot @param {KnownView} view */
function hitNow(slot, view) {
  const holder = holders(view).find((each) => each.slot === slot);
  return holder ? { choice: { kind: "request", id: holder.id } } : null;
}
