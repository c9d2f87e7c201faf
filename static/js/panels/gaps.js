/**
 * The gaps of the Latency panel (ITL): the requests' traces over the steps, one mark per delivery, as high as the time
 * since the one before; requests that have the same gap share it. Below it the prompt tokens that each step computed: a
 * long prefill stands under the spike that it made. Spikes are triangles; the highest one in view is explained in the
 * picture.
 *
 * @import {Canvas, CanvasPanel, History, KnownView, Plot, Size} from "../types.js"
 * @import {Gap} from "../itl.js"
 * @import {Lens} from "./dots.js"
 *
 * @typedef {{top: number, bottom: number}} Band
 */

import { classOf } from "../classes.js";
import { duration, plural } from "../format.js";
import { tallyOf } from "../gap_window.js";
import { gapOf, gapWords, meanwhileWords } from "../itl.js";
import { drawAhead, drawBreaks, drawChosenColumn, drawTicks } from "../marks.js";
import { stepNumber } from "../history.js";
import { drawScale, niceCeiling } from "../scale.js";
import { percentilesOf } from "../tally.js";

/** Percentiles of gaps are over those that ended in the last this many steps, up to the moment shown. */
export const ITL_STEPS = 500;
export const GUTTER = 8;
export const LEFT = 56;
const TICKS = 15;
const TOP = 22;
/** Where the highest spike is explained, above all marks. */
const TOLD = 8;
const PREFILL = 20;
/** A gap this many times the median is a spike. */
const SPIKE = 2;
const REACH = 14;
/** How strong a trace is that is not lit while another one is. */
const DIM = 0.2;
const LISTED = 100;

/** The gaps of the window that ends at the moment shown, of one class or ("") of all, newest first. @param {KnownView} view @param {Lens} lens */
export function windowGaps({ history, column, until }, { kind, gaps }) {
  const all = [...gaps.bySteps(history, column - ITL_STEPS + 1, column)].flat();
  return ofClass(all, kind, history, until);
}

/** The samples of that window, see `percentilesOf`. @param {KnownView} view @param {Lens} lens */
export function windowTally(view, lens) {
  if (lens.kind) return tallyOf(windowGaps(view, lens));
  return lens.gaps.tally(view.history, view.column - ITL_STEPS + 1, view.column);
}

/** @param {Lens} lens read at each drawing @returns {Required<Omit<CanvasPanel, "detail" | "margin" | "mount">>} */
export function createGaps(lens) {
  return {
    gutter: GUTTER,

    empty(view) {
      if (!view.state) return view.why;
      return hasGap(view, lens) ? null : "No gap between two tokens of a request yet; those held by the gate are left out.";
    },

    look: () => null, // every step changes it

    draw(g, size, view) {
      if (!view.state) return;
      const plot = plotOf(size);
      const gaps = inView(view, plot, lens);
      const bottom = size.height - TICKS;
      const band = { top: TOP, bottom: bottom - PREFILL };
      const most = mostOf(gaps);
      drawScale(g, plot, band, most, view.palette);
      drawPrefill(g, plot, bottom, view);
      g.save();
      g.beginPath();
      g.rect(plot.left, 0, plot.right - plot.left, bottom);
      g.clip();
      const spike = spikeOf(gaps);
      drawTraces(g, gaps, { band, most, spike }, plot, view);
      drawAhead(g, plot, TOP, bottom, view);
      drawBreaks(g, plot, TOP, bottom, view);
      drawChosenColumn(g, plot, TOP, bottom, view);
      g.restore();
      drawHighest(g, gaps, spike, plot, view);
      drawTicks(g, plot, size.height - TICKS / 2, view);
    },

    hit(x, y, view, size) {
      if (!view.state) return null;
      const plot = plotOf(size);
      const gaps = inView(view, plot, lens);
      const band = { top: TOP, bottom: size.height - TICKS - PREFILL };
      const most = mostOf(gaps);
      let best = /** @type {Gap | null} */ (null);
      let closest = REACH;
      for (const gap of gaps) {
        const distance = Math.hypot(view.axis.mark(gap.column, plot) - x, heightOf(gap, band, most) - y);
        if (distance < closest) [closest, best] = [distance, gap];
      }
      const column = best?.column ?? view.axis.columnAt(x, plot);
      if (!best && (x < plot.left || y < band.bottom || !view.history.steps.has(column))) return null;
      return { choice: { kind: "step", column }, gap: best };
    },

    hint: ({ choice, gap }, { history }) => (gap ? gapWords(gap, history) : stepHint(choice.column, history)),

    summary(view) {
      const { n, ranks } = percentilesOf(windowTally(view, lens), [50, 100]);
      const [median, longest] = ranks;
      if (median === null) return "Gaps between tokens: none yet.";
      return `Gaps between tokens: median ${duration(median)}, longest ${duration(longest)}, of ${n}.`;
    },

    /** The longest first: a spike is at the top. */
    twin(view) {
      const gaps = windowGaps(view, lens).filter(({ gated }) => !gated).sort((one, other) => other.us - one.us);
      const listed = gaps.slice(0, LISTED).flatMap((gap) => gap.requests.slice(0, LISTED).map((request) => gapOf(gap, request)));
      return {
        columns: ["step", "request", "gap ms", "meanwhile"],
        rows: listed.slice(0, LISTED).map((gap) => ({
          choice: { kind: "step", column: gap.column },
          cells: [String(stepNumber(view.history, gap.column)), gap.requests[0], (gap.us / 1000).toFixed(3), meanwhileWords(gap, view.history)],
        })),
      };
    },
  };
}

/** The longest gap of the chosen step, else of the window, in words; null when there is none. @param {KnownView} view @param {Lens} lens */
export function longestWords(view, lens) {
  const { choice, history } = view;
  const chosen = choice?.kind === "step" ? [...lens.gaps.bySteps(history, choice.column, choice.column)].flat() : [];
  const gaps = (chosen.length ? chosen : windowGaps(view, lens)).filter(({ gated }) => !gated);
  if (!gaps.length) return null;
  const longest = gaps.reduce((best, gap) => (gap.us > best.us ? gap : best));
  return `${chosen.length ? "Longest in it" : "Longest"}: ${gapWords(longest, history)}.`;
}

/** @param {number} column @param {History} history */
function stepHint(column, history) {
  const step = history.steps.get(column);
  return step ? `step ${step.step} · ${plural(step.num_prefill_tokens, "prompt token")} · ${duration(step.wall_us)}` : "";
}

/** A request's class is known when it has ended, or when its caller gave one. @param {Gap[]} gaps @param {string} kind @param {History} history @param {number} until */
function ofClass(gaps, kind, history, until) {
  if (!kind) return gaps;
  /** @type {Map<string, boolean>} */
  const known = new Map();
  const isOfIt = (/** @type {string} */ id) => {
    const lane = history.lanes.get(id);
    if (!lane) return false;
    const { num_prompt_tokens: prompt, num_output_tokens: tokens, request_class: label } = lane.facts;
    const ended = lane.end !== null && lane.end.at <= until;
    return (Boolean(label) || ended) && classOf({ prompt, tokens, label }) === kind;
  };
  const isKind = (/** @type {string} */ request) => {
    if (!known.has(request)) known.set(request, isOfIt(request));
    return known.get(request);
  };
  return gaps.map((gap) => ({ ...gap, requests: gap.requests.filter(isKind) })).filter(({ requests }) => requests.length);
}

/** @param {KnownView} view @param {Plot} plot @param {Lens} lens */
function inView(view, plot, { kind, gaps }) {
  const { from, to } = view.axis.span(plot);
  return ofClass([...gaps.bySteps(view.history, from, to)].flat(), kind, view.history, Infinity).filter(({ gated }) => !gated);
}

/** Whether there is one at all, in the window and of the class. @param {KnownView} view @param {Lens} lens */
function hasGap({ history, column, until }, { kind, gaps }) {
  for (const found of gaps.bySteps(history, column - ITL_STEPS + 1, column)) {
    if (ofClass(found, kind, history, until).some(({ gated }) => !gated)) return true;
  }
  return false;
}

/** From how long on a gap is a spike. @param {Gap[]} gaps */
function spikeOf(gaps) {
  const { ranks } = percentilesOf(tallyOf(gaps), [50]);
  return SPIKE * (ranks[0] ?? Infinity);
}

/** @param {Size} size */
function plotOf(size) {
  return { left: LEFT, right: size.width - GUTTER };
}

/** @param {Gap[]} gaps */
function mostOf(gaps) {
  return niceCeiling(gaps.reduce((most, { us }) => Math.max(most, us), 1000));
}

/** @param {Gap} gap @param {Band} band @param {number} most */
function heightOf({ us }, band, most) {
  return band.bottom - ((band.bottom - band.top) * us) / most;
}

/** Prompt tokens of each step, against its budget. @param {Canvas} g @param {Plot} plot @param {number} bottom @param {KnownView} view */
function drawPrefill(g, plot, bottom, { axis, history, palette }) {
  g.textAlign = "right";
  g.fillStyle = palette.muted;
  g.fillText("prefill", plot.left - 6, bottom - PREFILL / 2 + 2);
  g.fillStyle = palette.prefill;
  const { from, to } = axis.span(plot);
  for (let column = from; column <= to; column += 1) {
    const step = history.steps.get(column);
    const x = axis.x(column, plot);
    if (!step?.num_prefill_tokens || x < plot.left) continue;
    const height = Math.max(2, (PREFILL - 5) * Math.sqrt(Math.min(1, step.num_prefill_tokens / step.token_budget)));
    g.fillRect(x, bottom - height, Math.max(1, axis.width(column) - 1), height);
  }
}

/** @param {Canvas} g @param {Gap[]} gaps newest first @param {{band: Band, most: number, spike: number}} scale @param {Plot} plot @param {KnownView} view */
function drawTraces(g, gaps, { band, most, spike }, plot, { axis, palette, lit, choice }) {
  const chosen = choice?.kind === "step" ? null : lit;
  const isLit = (/** @type {string} */ request) => !chosen?.any || chosen.requests.has(request);
  /** @type {Map<number, Gap[]>} those that follow, by the column in which they began */
  const following = new Map();
  g.strokeStyle = palette.decode;
  g.fillStyle = palette.decode;
  for (const gap of gaps) {
    const x = axis.mark(gap.column, plot);
    const y = heightOf(gap, band, most);
    for (const next of following.get(gap.column) ?? []) {
      const both = next.requests === gap.requests ? gap.requests : sharedOf(next.requests, gap.requests);
      if (!both.length) continue;
      const shows = both.some(isLit);
      g.globalAlpha = shows ? 1 : DIM;
      drawLine(g, x, y, axis.mark(next.column, plot), heightOf(next, band, most), shows && chosen?.any ? 2 : 1);
    }
    following.set(gap.since, [...(following.get(gap.since) ?? []), gap]);
    g.globalAlpha = gap.requests.some(isLit) ? 1 : DIM;
    drawMark(g, x, y, gap.us >= spike, axis.timed ? 2.2 : Math.min(2.2, axis.px / 3));
  }
  g.globalAlpha = 1;
}

/** @param {readonly string[]} some @param {readonly string[]} others */
function sharedOf(some, others) {
  const known = new Set(others);
  return some.filter((request) => known.has(request));
}

/** @param {Canvas} g @param {number} x @param {number} y @param {number} toX @param {number} toY @param {number} width */
function drawLine(g, x, y, toX, toY, width) {
  g.lineWidth = width;
  g.beginPath();
  g.moveTo(x, y);
  g.lineTo(toX, toY);
  g.stroke();
}

/** @param {Canvas} g @param {number} x @param {number} y @param {boolean} spike @param {number} r */
function drawMark(g, x, y, spike, r) {
  g.beginPath();
  if (spike) {
    g.moveTo(x, y - 5);
    g.lineTo(x + 4.5, y + 3);
    g.lineTo(x - 4.5, y + 3);
  } else g.arc(x, y, r, 0, 7);
  g.fill();
}

/** "212 ms: step 41 prefilled 512 tok of R9" above the highest spike. @param {Canvas} g @param {Gap[]} gaps @param {number} spike @param {Plot} plot @param {KnownView} view */
function drawHighest(g, gaps, spike, plot, { axis, history, palette, until }) {
  const told = gaps.filter((gap) => gap.us >= spike && gap.column < until && axis.mark(gap.column, plot) > plot.left);
  if (!told.length) return;
  const highest = told.reduce((best, gap) => (gap.us > best.us ? gap : best));
  const text = `${duration(highest.us)}: ${meanwhileWords(highest, history)}`;
  const half = g.measureText(text).width / 2;
  g.fillStyle = palette.fg;
  g.textAlign = "center";
  g.fillText(text, Math.max(plot.left + half, Math.min(plot.right - half, axis.mark(highest.column, plot))), TOLD);
}
