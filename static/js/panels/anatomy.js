/**
 * Step anatomy: where the wall time of each step went. One stacked bar per step on the shared axis, and the same as
 * a list for the chosen step, or on average over the last ones. "other" is what no phase explains; "publish" is what
 * telling this page about it cost.
 *
 * @import {Canvas, CanvasPanel, KnownView, Palette, Plot, Size, Step} from "../types.js"
 */

import { find, write } from "../dom.js";
import { explainStep } from "../explain.js";
import { count, duration, percent, plural } from "../format.js";
import { lastSteps } from "../history.js";
import { drawAhead, drawBreaks, drawChosenColumn, drawTicks } from "../marks.js";
import { PHASES } from "../palette.js";
import { createRoll } from "../roll.js";
import { drawScale, niceCeiling } from "../scale.js";
import { deviceShare, phaseUs } from "../step_time.js";

const LEFT = 56;
const RIGHT = 8;
const TICKS = 15;
const TOP = 6;
/** Steps that the list averages over. */
const WINDOW = 60;

const roll = createRoll();

/** @type {CanvasPanel} */
export const anatomy = {
  gutter: RIGHT,
  margin: LEFT,

  empty(view) {
    if (!view.state) return view.why;
    return view.history.steps.size ? null : "No step has run yet.";
  },

  draw(g, size, view) {
    if (!view.state) return;
    const { palette } = view;
    const plot = plotOf(size);
    const bottom = size.height - TICKS;
    const top = niceCeiling(longest(view, plot));
    drawScale(g, plot, { top: TOP, bottom }, top, palette);
    const paint = (/** @type {OffscreenCanvasRenderingContext2D} */ paper, /** @type {Step} */ step, /** @type {number} */ px) => drawStack(paper, 0, px, bottom, (bottom - TOP) / top, step, palette);
    roll.draw(g, { ...plot, top: 0, bottom }, view, [top], paint);
    drawAhead(g, plot, TOP, bottom, view);
    drawBreaks(g, plot, TOP, bottom, view);
    drawChosenColumn(g, plot, TOP, bottom, view);
    if (view.page.compare.a !== null) drawMarked(g, plot, bottom, view.page.compare.a, view);
    drawTicks(g, plot, size.height - TICKS / 2, view);
  },

  hit(x, y, view, size) {
    const column = view.axis.columnAt(x, plotOf(size));
    const step = view.history.steps.get(column);
    return step && x >= LEFT ? { choice: { kind: "step", column }, step } : null;
  },

  hint: ({ step }) => `step ${count(step.step)} · ${duration(step.wall_us)} · ${plural(step.num_scheduled_tokens, "token")}`,

  detail(root, view) {
    if (!view.history) return;
    const column = view.choice?.kind === "step" ? view.choice.column : NaN;
    const chosen = view.history.steps.get(column);
    const steps = chosen ? [chosen] : measured(view);
    write(find(root, ".detail"), chosen ? explainStep(chosen, view.history.notes.get(column)) + busyWords(steps) : averageWords(steps));
    const parts = sums(steps);
    for (const phase of PHASES) {
      const line = find(root, `[data-phase="${phase}"]`);
      const { us, share, scope } = parts[phase];
      write(find(line, ".us"), duration(steps.length ? us : null));
      write(find(line, ".share"), percent(steps.length ? share : null));
      write(find(line, ".scope"), scope);
    }
  },

  summary(view) {
    const step = view.state?.last_step;
    return step ? `Step anatomy: step ${step.step} took ${duration(step.wall_us)}.` : "Step anatomy: no step yet.";
  },

  twin(view) {
    const phases = PHASES.filter((phase) => phase !== "draft" || view.hello?.config.speculative?.startsWith("draft:"));
    return {
      columns: ["step", "wall", ...phases, "tokens"],
      rows: lastSteps(view.history, view.column, 40).map(([column, step]) => ({
        choice: { kind: "step", column },
        cells: [count(step.step), duration(step.wall_us), ...phases.map((phase) => duration(phaseUs(step, phase))), count(step.num_scheduled_tokens)],
      })),
    };
  },
};

/** @param {Size} size */
function plotOf(size) {
  return { left: LEFT, right: size.width - RIGHT };
}

/** The wall time of the longest step in view. @param {KnownView} view @param {Plot} plot */
function longest({ axis, history }, plot) {
  const { from, to } = axis.span(plot);
  let us = 1000;
  for (let column = Math.ceil(from); column <= to; column += 1) us = Math.max(us, history.steps.get(column)?.wall_us ?? 0);
  return us;
}

/** The last steps up to the moment shown, but for gated ones. @param {KnownView} view */
function measured({ history, column }) {
  return lastSteps(history, column, WINDOW).map(([, step]) => step).filter((step) => !step.gated);
}

/** @param {Step[]} steps */
function sums(steps) {
  const wall = steps.reduce((sum, step) => sum + step.wall_us, 0);
  return Object.fromEntries(
    PHASES.map((phase) => {
      const us = steps.reduce((sum, step) => sum + phaseUs(step, phase), 0);
      const scope = steps.at(-1)?.scopes[phase] ?? "";
      return [phase, { us: steps.length ? us / steps.length : null, share: wall ? us / wall : null, scope: scope === "device" ? "device" : "" }];
    }),
  );
}

/** @param {Step[]} steps */
function averageWords(steps) {
  if (!steps.length) return "No measured step yet; gated steps are left out.";
  const wall = steps.reduce((sum, step) => sum + step.wall_us, 0) / steps.length;
  return `Mean of the last ${plural(steps.length, "step")}: ${duration(wall)} each.${busyWords(steps)} Click a bar for one step.`;
}

/** " Device busy 93 %.", or nothing without a device that has a clock. @param {Step[]} steps */
function busyWords(steps) {
  const share = deviceShare(steps);
  return share === null ? "" : ` Device busy ${percent(share)}.`;
}

/** Step A of a comparison: dashed, with its letter. @param {Canvas} g @param {Plot} plot @param {number} bottom @param {number} column @param {KnownView} view */
function drawMarked(g, plot, bottom, column, { axis, palette }) {
  const x = axis.x(column, plot);
  if (x < plot.left || x > plot.right) return;
  g.strokeStyle = palette.fg;
  g.lineWidth = 1;
  g.setLineDash([3, 3]);
  g.strokeRect(x - 0.5, TOP + 0.5, axis.width(column), bottom - TOP - 1);
  g.setLineDash([]);
  g.fillStyle = palette.fg;
  g.textAlign = "right";
  g.fillText("A", x - 3, TOP + 6);
}

/**
 * @param {OffscreenCanvasRenderingContext2D} g @param {number} x @param {number} px @param {number} bottom @param {number} scale
 * @param {Step} step @param {Palette} palette
 */
function drawStack(g, x, px, bottom, scale, step, palette) {
  const width = Math.max(1, px - 1);
  let y = bottom;
  for (const phase of PHASES) {
    const height = phaseUs(step, phase) * scale;
    y -= height;
    if (phase === "other") {
      g.strokeStyle = palette.phases.other;
      g.lineWidth = 1;
      if (height > 1) g.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
      continue;
    }
    g.fillStyle = palette.phaseHatch[phase] ?? palette.phases[phase];
    g.fillRect(x, y, width, height);
  }
}
