/**
 * Timeline: one lane per request, packed into rows that are used again. Hollow while queued, blue chunks while its
 * prompt is computed, an amber tick per step that decodes, hatched while preempted. A flag marks the first token
 * (TTFT), the bracket below runs from there to the last one (TPOT), a cap says how it ended. Finished lanes stay.
 *
 * @import {Canvas, CanvasPanel, History, Hit, KnownView, Lane, Plot, Row} from "../types.js"
 * @import {Lines} from "./timeline_lines.js"
 */

import { chunksOf, chunkWords } from "../chunks.js";
import { find, write } from "../dom.js";
import { explainStep, hitWords } from "../explain.js";
import { drawFlags } from "../flags.js";
import { count, plural, requestName } from "../format.js";
import { factsOf, factWords, LANE_COLUMNS, laneCells, paceWords } from "../lane_words.js";
import { isLive } from "../lanes.js";
import { CAP_WORDS, drawAhead, drawBreaks, drawChosenColumn, drawTicks, endCap, hollow, outputShare } from "../marks.js";
import { rowOf } from "../rows.js";
import { drawBracket, drawFlag, outcomeWords, writeOver, writePace } from "./lane_marks.js";
import { GUTTER } from "./slots.js";
import { arrivalOf, bandHeight, DENSE, endX, isShown, lanesInView, LEFT, linesOf, middle, plotOf, TICKS, TOP } from "./timeline_lines.js";
import { drawWork, fade } from "./timeline_work.js";

/** So far from a lane's beginning it is still hit, and so far from its end its label. */
const NEAR = 12;
const LABEL = 200;

/** @type {CanvasPanel} */
export const timeline = {
  gutter: GUTTER,
  margin: LEFT,

  empty(view) {
    if (!view.state) return view.why;
    return view.history.lanes.size ? null : "No request yet. Each one gets a lane here, from its arrival to its end.";
  },

  draw(g, size, view) {
    if (!view.state) return;
    const plot = plotOf(size);
    const inView = lanesInView(view, plot);
    const lines = linesOf(size, inView, view);
    const bottom = size.height - TICKS;
    g.save();
    g.beginPath();
    g.rect(plot.left, 0, plot.right + 1 - plot.left, bottom);
    g.clip();
    const lanes = inView.filter((lane) => isShown(lane, lines));
    for (const lane of lanes) drawWaits(g, lane, lines, plot, view);
    drawWork(g, lines, plot, view);
    for (const lane of lanes) drawOutline(g, lane, lines, plot, view);
    drawFlags(g, plot, 0, bottom, view, { words: false });
    drawAhead(g, plot, 0, bottom, view);
    drawBreaks(g, plot, 0, bottom, view);
    drawChosenColumn(g, plot, 0, bottom, view);
    g.restore();
    g.save();
    if (lines.height < DENSE) g.font = view.palette.smallFont;
    for (const lane of lanes) if (middle(lane, lines) + 4 < bottom) drawLabel(g, lane, lanes, lines, plot, view);
    g.restore();
    const { choice } = view;
    if (choice?.kind === "request") drawPace(g, lanes.find(({ id }) => id === choice.id), lines, plot, view);
    drawTicks(g, plot, size.height - TICKS / 2, view);
    view.page.lanesOut = inView.length - lanes.length;
  },

  hit(x, y, view, size) {
    if (!view.state) return null;
    const plot = plotOf(size);
    const column = view.axis.columnAt(x, plot);
    if (y > size.height - TICKS) return view.history.steps.has(column) ? { choice: { kind: "step", column } } : null;
    const inView = lanesInView(view, plot);
    const lines = linesOf(size, inView, view);
    const row = lines.first + Math.floor((y - TOP) / lines.height);
    const near = (/** @type {Lane} */ each) => arrivalOf(each, plot, view) - NEAR <= Math.min(x, plot.right) && x <= endX(each, plot, view) + LABEL;
    const lane = inView.findLast((each) => each.row === row && isShown(each, lines) && near(each));
    if (!lane) return null;
    const mark = rowOf(view.history.steps.get(column), lane.id) ?? null;
    return { choice: { kind: "request", id: lane.id }, lane, mark, column };
  },

  hint({ lane, mark, column }, view) {
    if (!lane) return "choose this step";
    const caps = lane.end && column >= lane.end.at - 1 ? ` · ${CAP_WORDS}` : "";
    return `${requestName(lane.id)}${prefillWords(lane, mark, column, view)} · ${factWords(lane, view)}${caps}`;
  },

  detail(root, view) {
    write(find(root, ".detail"), detailWords(view));
  },

  summary(view) {
    if (!view.state) return "Timeline: no data.";
    const { running, waiting } = view.state.queues;
    return `Timeline: ${running.length} requests running, ${waiting.length} waiting, ${view.state.finished.length} finished lately.`;
  },

  twin(view) {
    const known = [...view.history.lanes.values()].filter((lane) => lane.arrive <= view.until);
    const lanes = known.slice(-60).sort((a, b) => b.arrive - a.arrive);
    return {
      columns: LANE_COLUMNS,
      rows: lanes.map((lane) => ({ choice: { kind: "request", id: lane.id }, cells: laneCells(lane, view) })),
    };
  },
};

/** @param {Lane} lane @param {Row | null} mark @param {number} column @param {KnownView} view */
function prefillWords(lane, mark, column, { history }) {
  if (mark?.phase !== "prefill") return "";
  const chunk = chunksOf(lane, history).get(column);
  return ` · prefill ${count(mark.scheduled)} tok, ${count(mark.computed)} computed${chunk ? `, chunk ${chunkWords(chunk)}` : ""}`;
}

/** @param {KnownView} view */
function detailWords(view) {
  const { choice, history, column, base, page, store, state } = view;
  const lane = choice?.kind === "request" ? history.lanes.get(choice.id) : null;
  if (lane) return `${requestName(lane.id)} · ${factWords(lane, view)}`;
  const step = choice?.kind === "step" ? history.steps.get(choice.column) : null;
  if (step && choice?.kind === "step") return explainStep(step, history.notes.get(choice.column));
  if (state?.gate.hit) return hitDetail(history, base, state.gate.hit);
  const shown = history.steps.get(column);
  if (shown && (store.held?.visited || state?.gate.state === "paused")) return explainStep(shown, history.notes.get(column));
  const out = page.lanesOut ? `${plural(page.lanesOut, "more lane does", "more lanes do")} not fit; the table has them all. ` : "";
  return `${out}Click a lane, a step number or a block to light it up in every panel. ${CAP_WORDS}`;
}

/** What closed the gate, on the first screen too. @param {History} history @param {number} base @param {Hit} hit */
function hitDetail(history, base, hit) {
  const step = history.steps.get(base + hit.step);
  return step ? `Stopped by ${hit.on}. ${explainStep(step, history.notes.get(base + hit.step))}` : hitWords(hit);
}

/** @param {Canvas} g @param {Lane} lane @param {Lines} lines @param {Plot} plot @param {KnownView} view */
function drawWaits(g, lane, lines, plot, view) {
  const { axis, palette } = view;
  const h = bandHeight(lines);
  const y = middle(lane, lines) - h / 2;
  fade(g, lane, view);
  lane.waits.forEach((wait, i) => {
    // Admitted by the very next step, a request would have waited no width at all: show that it did arrive.
    const start = i > 0 ? axis.x(wait.from, plot) : arrivalOf(lane, plot, view) - (axis.timed ? 4 : Math.max(4, axis.px * 0.8));
    const stop = wait.to === null ? plot.right : axis.x(wait.to, plot);
    if (wait.kind === "queued") {
      hollow(g, start, y, stop - start - 1, h, palette.idle, 1);
      return;
    }
    g.fillStyle = palette.hatch.fault;
    g.fillRect(start, y, stop - start, h);
    hollow(g, start, y, stop - start, h, palette.fault, 1);
    if (lines.height >= DENSE) writeOver(g, `recompute ${count(wait.lost)} tok`, Math.max(start, plot.left), stop, y + h / 2, palette);
  });
}

/** The flag at the first token, the bracket of the decode time, the end cap. @param {Canvas} g @param {Lane} lane @param {Lines} lines @param {Plot} plot @param {KnownView} view */
function drawOutline(g, lane, lines, plot, view) {
  const { axis, palette, lit } = view;
  const y = middle(lane, lines);
  const h = bandHeight(lines);
  fade(g, lane, view);
  if (lane.first !== null && lane.first < axis.right) {
    const x = axis.end(lane.first, plot);
    drawFlag(g, x, y - h / 2, h, palette);
    if (lane.last !== null && lane.last > lane.first && lines.height >= DENSE) drawBracket(g, x, Math.min(plot.right, axis.end(lane.last, plot)), y + h / 2 + 3, palette);
  }
  if (view.choice?.kind !== "step" && lit.requests.has(lane.id)) {
    const x = arrivalOf(lane, plot, view) - 6;
    hollow(g, x, y - h / 2 - 3, endX(lane, plot, view) - x + 4, h + 6, palette.fg, 1.5);
  }
  if (lane.end && lane.end.at <= axis.right) endCap(g, axis.end(lane.end.at - 1, plot) + 3, y, h, lane.end.reason, palette);
  g.globalAlpha = 1;
}

/**
 * The chosen request's pace, on its bracket.
 * @param {Canvas} g @param {Lane | undefined} lane @param {Lines} lines @param {Plot} plot @param {KnownView} view
 */
function drawPace(g, lane, lines, plot, view) {
  if (!lane || lane.first === null || lines.height < DENSE) return;
  const words = paceWords(lane, view);
  if (words === null) return;
  const from = view.axis.end(lane.first, plot);
  const to = Math.min(plot.right, view.axis.end(lane.last ?? 0, plot));
  if (to > plot.left && from < plot.right) writePace(g, words, from, to, middle(lane, lines) + bandHeight(lines) / 2 + 5, plot, view.palette);
}

/**
 * Where the next lane of the same row begins, so that a label ends before it.
 * @param {Lane} lane @param {number} end @param {Lane[]} lanes @param {Plot} plot @param {KnownView} view
 */
function roomAfter(lane, end, lanes, plot, view) {
  let room = plot.right + GUTTER;
  for (const other of lanes) {
    if (other.row === lane.row && other !== lane && other.arrive >= end) room = Math.min(room, arrivalOf(other, plot, view) - 8);
  }
  return room;
}

/**
 * While it runs: its progress, right of "now". Once it ended: what came of it, right of its cap, or its name right of
 * the plot when that lies beyond. Ahead: nothing.
 * @param {Canvas} g @param {Lane} lane @param {Lane[]} lanes @param {Lines} lines @param {Plot} plot @param {KnownView} view
 */
function drawLabel(g, lane, lanes, lines, plot, view) {
  const { axis, palette, lit, until } = view;
  const y = middle(lane, lines);
  if (lane.arrive > until) return;
  g.textAlign = "left";
  g.fillStyle = lit.any && !lit.requests.has(lane.id) ? palette.idle : palette.fg;
  if (isLive(lane, until)) {
    const facts = factsOf(lane, view);
    const state = facts.status === "waiting" ? "waits" : outputShare(facts);
    g.fillText(`${requestName(lane.id)} ${state}`, plot.right + 8, y);
    return;
  }
  const end = lane.end?.at ?? Infinity;
  const x = end > axis.right ? plot.right + 8 : axis.end(end - 1, plot) + 11; // one that goes on beyond the view is named there
  if (x < plot.left) return;
  const room = end > axis.right ? plot.right + GUTTER : roomAfter(lane, end, lanes, plot, view);
  if (x + g.measureText(requestName(lane.id)).width > room) return;
  g.fillText(requestName(lane.id), x, y);
  if (lines.height < DENSE) return;
  const text = outcomeWords(lane.facts.timings);
  g.fillStyle = palette.muted;
  const start = x + g.measureText(requestName(lane.id)).width + 6;
  if (start + g.measureText(text).width < room) g.fillText(text, start, y);
}
