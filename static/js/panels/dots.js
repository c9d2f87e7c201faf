/**
 * The requests of the Latency panel: a dot per finished request in the order they finished, a band per timing. TTFT is
 * queue + prefill, TPOT the pace of the answer after its first token, E2E all of it. A thin line is the median, a
 * dashed one the target; a request over it is a triangle. Requests that the gate held, and undefined values, give no dot.
 *
 * @import {Canvas, CanvasPanel, History, KnownView, Palette, Sample, Size, Timings} from "../types.js"
 * @import {Targets} from "../targets.js"
 *
 * @typedef {{kind: string, targets: Targets, gaps: import("../gap_window.js").GapWindow}} Lens which class ("" is all), the targets, and the gaps as far as they are worked out
 * @typedef {Required<Omit<CanvasPanel, "detail" | "gutter" | "margin" | "mount">>} Picture
 * @typedef {{top: number, bottom: number}} Band
 * @typedef {{name: keyof Timings, label: string, hue: "prefill" | "decode" | "fg"}} Timing
 */

import { classOf } from "../classes.js";
import { count, duration, NONE, requestName } from "../format.js";
import { finishedUntil } from "../history.js";
import { windowOf } from "../latency_window.js";
import { drawText } from "../marks.js";
import { percentile, samplesOf } from "../metrics.js";
import { isOver, verdictWords } from "../targets.js";

/** @type {Timing[]} */
export const TIMINGS = [
  { name: "ttft_us", label: "TTFT", hue: "prefill" }, // the first token waits for prefill,
  { name: "tpot_us", label: "TPOT", hue: "decode" }, // the pace is decode's
  { name: "e2e_us", label: "E2E", hue: "fg" },
];
const SHOWN = 80;
const LEFT = 66;
const RIGHT = 10;
const GAP = 10;
/** A target further above the dots than this is only named, lest it flatten them. */
const NEAR = 1.6;

/** @param {Lens} lens read at each drawing @returns {Picture} */
export function createDots(lens) {
  return {
    empty(view) {
      if (!view.state) return view.why;
      if (windowOf(view.history, view.until, lens.kind).length) return null;
      return lens.kind ? `No request of the class "${lens.kind}" has finished yet.` : "No request has finished yet.";
    },

    look({ history, until, choice, why }) {
      if (!history || (choice && choice.kind !== "request")) return null;
      return [history.finished, history.finished.length, history.finished.at(-1), history.epoch, until, choice, why, lens.kind, lens.targets];
    },

    draw(g, size, view) {
      if (!view.state) return;
      const shown = dotsOf(view, lens);
      bandsOf(size).forEach((band, i) => drawBand(g, band, size, shown, TIMINGS[i], view, lens.targets));
    },

    hit(x, y, view, size) {
      if (!view.state) return null;
      const shown = dotsOf(view, lens);
      for (const [i, band] of bandsOf(size).entries()) {
        if (y < band.top - 4 || y > band.bottom + 4) continue;
        const near = nearest(x, y, band, size, shown, TIMINGS[i].name, lens.targets);
        if (near) return { choice: { kind: "request", id: near.id }, dot: near, timing: TIMINGS[i] };
      }
      return null;
    },

    hint({ dot, timing: { name, label } }) {
      const over = isOver(dot, name, lens.targets) ? `, over the target of ${duration(targetFor(lens.targets, name))}` : "";
      return `${requestName(dot.id)} · ${label} ${duration(dot.timings[name])}${over} · ${classOf(dot)}`;
    },

    summary(view) {
      const n = finishedUntil(view.history, view.until).length;
      return n ? `Latency of ${n} finished requests.` : "Latency: nothing finished yet.";
    },

    twin(view) {
      return {
        columns: ["request", ...TIMINGS.map(({ label }) => `${label} ms`), "queue ms", "prefill ms", "output tok", "class", "targets", "held by the gate"],
        rows: windowOf(view.history, view.until, lens.kind).slice(-100).reverse().map((sample) => ({
          choice: { kind: "request", id: sample.id },
          cells: cellsOf(sample, lens.targets),
        })),
      };
    },
  };
}

/** The target for a timing; null where there is none. @param {Targets} targets @param {keyof Timings} name @returns {number | null} */
export function targetFor(targets, name) {
  return /** @type {Partial<Timings>} */ (targets)[name] ?? null;
}

/** @type {Array<keyof Timings>} */
const LISTED = ["ttft_us", "tpot_us", "e2e_us", "queue_us", "prefill_us"];

/** @param {Sample} sample @param {Targets} targets */
function cellsOf(sample, targets) {
  const { id, timings, tokens } = sample;
  return [
    requestName(id),
    ...LISTED.map((name) => {
      const us = timings[name];
      return us === null ? NONE : (us / 1000).toFixed(3);
    }),
    count(tokens),
    classOf(sample),
    verdictWords(sample, targets),
    timings.gated_us > 0 ? duration(timings.gated_us) : "",
  ];
}

/** @param {KnownView} view @param {Lens} lens */
function dotsOf({ history, until }, { kind }) {
  return windowOf(history, until, kind).filter(({ timings }) => !(timings.gated_us > 0)).slice(-SHOWN);
}

/** @param {Size} size @returns {Band[]} */
function bandsOf(size) {
  const height = (size.height - 2 * GAP) / 3;
  return TIMINGS.map((_, i) => ({ top: i * (height + GAP) + 3, bottom: i * (height + GAP) + height - 1 }));
}

/** What the top of a band stands for, and whether the target is within it. @param {Sample[]} shown @param {keyof Timings} name @param {Targets} targets */
function scaleOf(shown, name, targets) {
  const highest = Math.max(1, ...shown.map(({ timings }) => timings[name] ?? 0));
  const target = targetFor(targets, name);
  const within = target !== null && target <= highest * NEAR;
  return { highest, most: Math.max(highest, within ? (target ?? 0) : 0) * 1.08, within };
}

/** @param {number} i @param {number} value @param {Band} band @param {Size} size @param {Sample[]} shown @param {number} most */
function place(i, value, band, size, shown, most) {
  const step = Math.min(14, (size.width - LEFT - RIGHT) / Math.max(1, shown.length));
  return [LEFT + (i + 0.5) * step, band.bottom - ((band.bottom - band.top) * value) / most];
}

/**
 * @param {number} x @param {number} y @param {Band} band @param {Size} size @param {Sample[]} shown @param {keyof Timings} name
 * @param {Targets} targets @returns {Sample | null}
 */
function nearest(x, y, band, size, shown, name, targets) {
  const { most } = scaleOf(shown, name, targets);
  let best = null;
  let closest = 12;
  for (const [i, sample] of shown.entries()) {
    const us = sample.timings[name];
    if (us === null) continue;
    const [dx, dy] = place(i, us, band, size, shown, most);
    const distance = Math.hypot(dx - x, dy - y);
    if (distance < closest) [closest, best] = [distance, sample];
  }
  return best;
}

/**
 * @param {Canvas} g @param {Band} band @param {Size} size @param {Sample[]} shown @param {Timing} timing @param {KnownView} view
 * @param {Targets} targets
 */
function drawBand(g, band, size, shown, { name, label, hue }, view, targets) {
  const { choice, palette, lit } = view;
  const { highest, most, within } = scaleOf(shown, name, targets);
  g.fillStyle = palette.line;
  g.fillRect(LEFT, band.bottom, size.width - LEFT - RIGHT, 1);
  g.textAlign = "right";
  g.fillStyle = palette.fg;
  g.fillText(label, LEFT - 8, band.top + 5);
  g.fillStyle = palette.muted;
  if (shown.length) g.fillText(duration(highest), LEFT - 8, band.top + 18);
  const median = percentile(samplesOf(shown, name), 50);
  if (median !== null) {
    const [, y] = place(0, median, band, size, shown, most);
    g.fillRect(LEFT, Math.round(y), size.width - LEFT - RIGHT, 1);
  }
  g.fillStyle = palette[hue];
  for (const chosen of choice ? [false, true] : [false]) {
    g.globalAlpha = choice && !chosen ? 0.3 : 1;
    g.beginPath(); // one for all that look alike
    shown.forEach((sample, i) => {
      const us = sample.timings[name];
      if (us === null || (choice !== null && lit.requests.has(sample.id)) !== chosen) return;
      const [x, y] = place(i, us, band, size, shown, most);
      traceDot(g, x, y, chosen ? 4.5 : 3, isOver(sample, name, targets));
    });
    g.fill();
  }
  g.globalAlpha = 1;
  const target = targetFor(targets, name);
  if (!shown.length || target === null) return;
  const [last] = place(shown.length - 1, 0, band, size, shown, most);
  drawTarget(g, band, size, target, within ? most : null, last, palette);
}

/** Within the target a disc, over it a triangle. @param {Canvas} g @param {number} x @param {number} y @param {number} r @param {boolean} over */
function traceDot(g, x, y, r, over) {
  if (over) {
    g.moveTo(x, y - r - 1.5);
    g.lineTo(x + r + 1, y + r);
    g.lineTo(x - r - 1, y + r);
  } else {
    g.moveTo(x + r, y);
    g.arc(x, y, r, 0, 2 * Math.PI);
  }
  g.closePath();
}

/**
 * A dashed line; its name where the dots leave room. Far above the dots there is no line, and an arrow to it.
 * @param {Canvas} g @param {Band} band @param {Size} size @param {number} target @param {number | null} most @param {number} last
 * @param {Palette} palette
 */
function drawTarget(g, band, size, target, most, last, palette) {
  const right = size.width - RIGHT;
  const y = most === null ? band.top : Math.round(place(0, target, band, size, [], most)[1]) + 0.5;
  const text = most === null ? `target ${duration(target)} ↑` : `target ${duration(target)}`;
  const width = g.measureText(text).width + 8;
  const room = right - width > last + 8;
  if (most !== null) {
    g.strokeStyle = palette.fg;
    g.lineWidth = 1;
    g.setLineDash([5, 4]);
    g.beginPath();
    g.moveTo(LEFT, y);
    g.lineTo(room ? right - width : right, y);
    g.stroke();
    g.setLineDash([]);
  }
  if (!room) return;
  g.textAlign = "right";
  drawText(g, text, right - 2, Math.max(band.top + 5, y), palette); // the median may lie there
}
