/**
 * What the steps did for the lanes of the timeline: prefill chunks, with their numbers where there is room, and decode ticks.
 *
 * @import {Canvas, History, KnownView, Lane, Plot} from "../types.js"
 * @import {Lines} from "./timeline_lines.js"
 */

import { chunksOf, chunkWords } from "../chunks.js";
import { createRoll } from "../roll.js";
import { Rows } from "../rows.js";
import { writeChunk } from "./lane_marks.js";
import { bandHeight, DENSE, isShown, middle, TOP } from "./timeline_lines.js";

/** Columns at least so wide have room for the number of a chunk. */
const WIDE = 13;

const roll = createRoll();

/** @param {Canvas | OffscreenCanvasRenderingContext2D} g @param {Lane} lane @param {KnownView} view */
export function fade(g, lane, { lit }) {
  g.globalAlpha = lit.any && !lit.requests.has(lane.id) ? 0.25 : 1;
}

/** Prefill chunks and decode ticks, straight from the steps' rows. @param {Canvas} g @param {Lines} lines @param {Plot} plot @param {KnownView} view */
export function drawWork(g, lines, plot, view) {
  const { axis, history, palette } = view;
  const h = bandHeight(lines);
  const area = { ...plot, top: 0, bottom: TOP + lines.shown * lines.height };
  const shownOf = shownRows(history, lines);
  roll.draw(g, area, view, [lines.height, lines.first, lines.shown], (paper, step, px) => {
    const rows = Rows.of(step.rows);
    const width = Math.max(1, px - 1);
    const tick = Math.max(1.5, Math.min(3, px * 0.45));
    let phase = "";
    for (const { at, lane, y } of shownOf(rows)) {
      if (view.lit.any) fade(paper, lane, view);
      const now = rows.value("phase", at);
      if (now !== phase) paper.fillStyle = now === "prefill" ? palette.prefill : palette.decode;
      phase = now;
      if (phase === "prefill") paper.fillRect(0, y - h / 2, width, h);
      else {
        // In time a token's tick stands where its step ended, at the end of what it took.
        if (axis.timed && width > 6) paper.fillRect(0, y - 0.5, width, 1);
        drawTick(paper, axis.timed ? px - tick : (px - tick) / 2, y, tick, rows.value("accepted", at) > 0 ? h : h * 0.6);
      }
    }
    paper.globalAlpha = 1;
  });
  if ((axis.timed || axis.px >= WIDE) && lines.height >= DENSE) drawChunkNumbers(g, lines, plot, view);
}

/** The rows that have a lane on show, and where; steps in a row mostly have the same. @param {History} history @param {Lines} lines */
function shownRows({ lanes }, lines) {
  let known = /** @type {readonly string[]} */ ([]);
  /** @type {Array<{at: number, lane: Lane, y: number}>} */
  let shown = [];
  return (/** @type {Rows} */ rows) => {
    const requests = rows.column("request");
    if (requests === known) return shown;
    known = requests;
    shown = [];
    requests.forEach((request, at) => {
      const lane = lanes.get(request);
      if (lane && isShown(lane, lines)) shown.push({ at, lane, y: middle(lane, lines) });
    });
    return shown;
  };
}

/** Not painted once: of how many a chunk is one comes out only later. @param {Canvas} g @param {Lines} lines @param {Plot} plot @param {KnownView} view */
function drawChunkNumbers(g, lines, plot, view) {
  const { axis, history, palette } = view;
  const numberOf = chunkNumbers(history);
  const { from, to } = axis.span(plot);
  for (let column = from; column <= to; column += 1) {
    const width = axis.width(column) - 1;
    if (width < WIDE - 1) continue;
    for (const row of history.steps.get(column)?.rows ?? []) {
      const lane = row.phase === "prefill" ? history.lanes.get(row.request) : undefined;
      if (!lane || !isShown(lane, lines)) continue;
      fade(g, lane, view);
      const chunk = numberOf(lane, column);
      if (chunk) writeChunk(g, chunkWords(chunk), axis.x(column, plot), width, middle(lane, lines), palette);
    }
  }
  g.globalAlpha = 1;
}

/** Looked up once per lane. @param {History} history */
function chunkNumbers(history) {
  /** @type {Map<string, ReturnType<typeof chunksOf>>} */
  const known = new Map();
  return (/** @type {Lane} */ lane, /** @type {number} */ column) => {
    const chunks = known.get(lane.id) ?? chunksOf(lane, history);
    known.set(lane.id, chunks);
    return chunks.get(column);
  };
}

/** Taller where guesses were right: more than one token was written. @param {OffscreenCanvasRenderingContext2D} g @param {number} x @param {number} y @param {number} width @param {number} height */
function drawTick(g, x, y, width, height) {
  g.fillRect(x, y - height / 2, width, height);
}
