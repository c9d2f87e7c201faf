/**
 * Roofline: what each step reached, against what this device was measured to do. Both axes are logarithmic: FLOP per
 * byte across, FLOP per second up; the roofs are solid lines, those of the vendor's data sheet dashed. ○ decode, □ prefill, ◇ both; a trail of the last steps
 * fades with age. A step gated by hand is hollow. Beside it the same of one step as two plain bars.
 *
 * @import {Canvas, CanvasPanel, Hello, KnownView, Palette, Size, Twin} from "../types.js"
 * @import {Point, Roofs} from "../roofline.js"
 *
 * @typedef {{low: number, high: number}} Decades as powers of ten
 * @typedef {ReturnType<typeof scaleOf> & {roofs: Roofs, sheet: ReturnType<typeof sheetOf>, points: Point[]}} Scene
 */

import { sheetOf } from "../data_sheets.js";
import { find, write } from "../dom.js";
import { count, duration, percent, plural } from "../format.js";
import { epochAt } from "../history.js";
import { drawText } from "../marks.js";
import { decadeWords, perByte, quantity } from "../quantities.js";
import { countAbove, pointOf, roofAt, roofsOf, trailOf } from "../roofline.js";
import { aboveWords, drawSheet, sheetWords } from "./roof_sheet.js";

const PLOT = { left: 46, right: 12, top: 18, bottom: 30 };
/** How far from a point a click still means it. */
const REACH = 10;
const FAINTEST = 0.2;
const DIM = 0.25;

/** @type {CanvasPanel} */
export const roofline = {
  empty(view) {
    if (!view.state) return view.why;
    if (!roofsOf(view.hello)) return whyNoRoofs(view.hello);
    if (anotherEngine(view)) return "These steps are an earlier engine’s; this page knows only the roofs of the one that came after.";
    return trailOf(view.history, view.column, view.hello).length ? null : "No step to show yet.";
  },

  draw(g, size, view) {
    const scene = sceneOf(view, size);
    if (!scene) return;
    drawAxes(g, scene, view.palette);
    drawRoofs(g, scene, view.palette);
    drawSheet(g, scene, view.palette);
    sayRoofs(g, scene, view.palette);
    for (const [i, point] of [...scene.points.entries()].reverse()) drawPoint(g, scene, point, ageAlpha(i, scene) * litAlpha(point, view), i === 0, view.palette);
    drawRing(g, scene, view);
  },

  hit(x, y, view, size) {
    const scene = sceneOf(view, size);
    if (!scene) return null;
    let best = null;
    let closest = REACH;
    for (const point of scene.points) {
      const distance = Math.hypot(scene.x(point.intensity) - x, scene.y(point.flops) - y);
      if (distance < closest) [closest, best] = [distance, point];
    }
    return best ? { choice: { kind: "step", column: best.column }, point: best } : null;
  },

  hint: ({ point }) => pointWords(point),

  detail(root, view) {
    const roofs = roofsOf(view.hello);
    const point = roofs && subjectOf(view);
    write(find(root, "[data-ridge]"), roofs ? ridgeWords(roofs) + sheetWords(roofs, sheetOf(view.hello)) : "");
    write(find(root, "[data-above]"), roofs ? aboveWords(countAbove(trailOf(view.history, view.column, view.hello), roofs)) : "");
    writeBar(find(root, '[data-roof="bandwidth"]'), point, point ? point.bytesPerS / roofs.bytesPerS : null);
    writeBar(find(root, '[data-roof="maths"]'), point, point ? point.flops / roofs.flops : null);
    write(find(root, "[data-of]"), point ? `step ${count(point.step.step)}, ${KIND_WORDS[point.kind]}${point.gated ? " · gated" : ""}` : "no step");
    write(find(root, ".detail"), point ? detailWords(point, roofs) : "");
  },

  summary(view) {
    const roofs = roofsOf(view.hello);
    const point = roofs && subjectOf(view);
    if (!point) return "Roofline: no step to show.";
    return `Roofline: ${pointWords(point)}; ${percent(point.bytesPerS / roofs.bytesPerS)} of peak bandwidth, ${percent(point.flops / roofs.flops)} of peak maths.`;
  },

  twin(view) {
    const columns = ["step", "kind", "FLOP/byte", "FLOP/s", "bytes/s", "time", "of bandwidth", "of maths", "timed"];
    const roofs = roofsOf(view.hello);
    if (!roofs) return { columns, rows: [] };
    /** @type {Twin["rows"]} */
    const rows = trailOf(view.history, view.column, view.hello).map((point) => ({
      choice: { kind: "step", column: point.column },
      cells: [
        count(point.step.step),
        KIND_WORDS[point.kind],
        perByte(point.intensity),
        quantity(point.flops),
        quantity(point.bytesPerS),
        duration(point.us),
        percent(point.bytesPerS / roofs.bytesPerS),
        percent(point.flops / roofs.flops),
        point.gated ? "gated" : `${point.phases} (${point.clock})`,
      ],
    }));
    return { columns, rows };
  },
};

// -- what is shown -------------------------------------------------------------------------------

/** @param {Hello | null} hello */
function whyNoRoofs(hello) {
  if (!hello || hello.device.type === "scripted") return "No device: a scripted engine computes nothing.";
  return "No roofs: this engine did not measure its device.";
}

/** Whether the moment shown belongs to an engine that is no more, so that these roofs are not its own. @param {KnownView} view */
function anotherEngine({ history, column, hello }) {
  return epochAt(history, column).id !== hello.epoch;
}

/** The chosen step if it has a point, else the last one up to the moment shown. @param {KnownView} view @returns {Point | null} */
function subjectOf({ choice, history, column, hello }) {
  const at = choice?.kind === "step" ? choice.column : null;
  const step = at === null ? undefined : history.steps.get(at);
  const chosen = at !== null && step?.epoch === hello.epoch ? pointOf(at, step, hello.device) : null;
  return chosen ?? trailOf(history, column, hello)[0] ?? null;
}

/** Everything drawn and where; null without roofs. Newest point first, a chosen one that is older last. @param {KnownView} view @param {Size} size @returns {Scene | null} */
function sceneOf(view, size) {
  const roofs = roofsOf(view.hello);
  if (!view.state || !roofs) return null;
  const points = trailOf(view.history, view.column, view.hello);
  const chosen = view.choice?.kind === "step" ? subjectOf(view) : null;
  if (chosen && !points.some(({ column }) => column === chosen.column)) points.push(chosen);
  const sheet = sheetOf(view.hello);
  return { roofs, sheet, points, ...scaleOf(roofs, sheet?.flops ?? 0, points, size) };
}

/** Whole decades, wide enough for the ridge with one to each side, for the roofs, and for every point, above a roof or not. @param {Roofs} roofs @param {number} highest another roof, if any @param {Point[]} points @param {Size} size */
function scaleOf(roofs, highest, points, size) {
  const [left, right] = [PLOT.left, size.width - PLOT.right];
  const [top, bottom] = [PLOT.top, size.height - PLOT.bottom];
  const across = decades([roofs.ridge / 10, roofs.ridge * 10, ...points.map(({ intensity }) => intensity)]);
  const up = decades([1.2 * Math.max(roofs.flops, highest), roofAt(roofs, 10 ** across.low), ...points.map(({ flops }) => flops)]);
  /** @param {number} value @param {Decades} decades @param {number} from @param {number} to */
  const place = (value, { low, high }, from, to) => from + ((to - from) * (Math.log10(value) - low)) / (high - low);
  return { left, right, top, bottom, across, up, x: (/** @type {number} */ intensity) => place(intensity, across, left, right), y: (/** @type {number} */ flops) => place(flops, up, bottom, top) };
}

/** @param {number[]} values @returns {Decades} */
function decades(values) {
  const logs = values.map(Math.log10);
  const low = Math.floor(Math.min(...logs));
  return { low, high: Math.max(low + 1, Math.ceil(Math.max(...logs))) };
}

// -- words ---------------------------------------------------------------------------------------

const KIND_WORDS = { decode: "decode", prefill: "prefill", mixed: "prefill and decode" };

/** @param {Roofs} roofs */
function ridgeWords({ flops, bytesPerS, ridge }) {
  return `The ridge: this device computes ${quantity(flops)}FLOP/s and moves ${quantity(bytesPerS)}B/s, so a step with less than ${perByte(ridge)} FLOP per byte waits for memory, and one with more for the arithmetic.`;
}

/** @param {Point} point */
function pointWords({ step, kind, intensity, flops, gated }) {
  return `step ${count(step.step)} · ${KIND_WORDS[kind]} · ${perByte(intensity)} FLOP/byte · ${quantity(flops)}FLOP/s${gated ? " · gated: no measurement" : ""}`;
}

/** @param {Point} point @param {Roofs} roofs */
function detailWords(point, roofs) {
  const { step, us, phases, clock, gated } = point;
  const work = `Step ${count(step.step)}: ${quantity(step.flops)}FLOP and ${quantity(step.bytes)}B, derived, for ${plural(step.num_scheduled_tokens, "token")} in ${duration(us)} (${phases}, by the ${clock}’s clock).`;
  if (gated) return `${work} Gated: that time is no measurement.`;
  const reached = point.flops / roofAt(roofs, point.intensity);
  if (reached > 1) return `${work} Above its roof: caches helped, or the roof was measured low, on a busy machine.`;
  return `${work} ${percent(reached)} of what its roof allows, which is ${point.intensity < roofs.ridge ? "memory" : "the arithmetic"}.`;
}

/** One plain bar; what is above the roof goes on past its mark. @param {HTMLElement} root @param {Point | null} point @param {number | null} share */
function writeBar(root, point, share) {
  const most = Math.max(1, share ?? 0);
  root.dataset.kind = point?.kind ?? "";
  root.classList.toggle("gated", point?.gated ?? false);
  write(find(root, "b"), percent(share));
  find(root, ".fill").style.width = `${(100 * (share ?? 0)) / most}%`;
  find(root, ".peak").style.left = `${100 / most}%`;
}

// -- the picture ---------------------------------------------------------------------------------

/** @param {Canvas} g @param {Scene} scene @param {Palette} palette */
function drawAxes(g, { left, right, top, bottom, across, up, x, y }, palette) {
  g.fillStyle = palette.muted;
  g.textAlign = "left";
  g.fillText("FLOP/s", 4, 7);
  g.textAlign = "right";
  const every = Math.ceil(((up.high - up.low) * 14) / Math.max(1, bottom - top));
  for (let power = up.low; power <= up.high; power += 1) {
    const at = Math.round(y(10 ** power));
    g.fillStyle = palette.line;
    g.fillRect(left, at, right - left, 1);
    g.fillStyle = palette.muted;
    if ((power - up.low) % every === 0) g.fillText(decadeWords(power), left - 6, at);
  }
  g.textAlign = "center";
  for (let power = across.low; power <= across.high; power += 1) {
    const at = Math.round(x(10 ** power));
    g.fillStyle = palette.line;
    g.fillRect(at, top, 1, bottom - top + 4);
    g.fillStyle = palette.muted;
    g.fillText(decadeWords(power), Math.min(at, right - 8), bottom + 11);
  }
  g.textAlign = "right";
  g.fillText("FLOP/byte", right, bottom + 23);
}

/** Hatched above: this device was not seen to get there. @param {Canvas} g @param {Scene} scene @param {Palette} palette */
function drawRoofs(g, { roofs, left, right, top, across, x, y }, palette) {
  const path = () => {
    g.beginPath();
    g.moveTo(left, y(roofAt(roofs, 10 ** across.low)));
    g.lineTo(x(roofs.ridge), y(roofs.flops));
    g.lineTo(right, y(roofs.flops));
  };
  path();
  g.lineTo(right, top);
  g.lineTo(left, top);
  g.closePath();
  g.globalAlpha = 0.25;
  g.fillStyle = palette.hatch.gap;
  g.fill();
  g.globalAlpha = 1;
  path();
  g.strokeStyle = palette.fg;
  g.lineWidth = 2;
  g.stroke();
}

/** @param {Canvas} g @param {Scene} scene @param {Palette} palette */
function sayRoofs(g, { roofs, left, right, bottom, x, y }, palette) {
  const ridge = x(roofs.ridge);
  g.fillStyle = palette.muted;
  g.fillRect(Math.round(ridge), y(roofs.flops), 1, bottom - y(roofs.flops));
  g.textAlign = "right";
  drawText(g, `maths ${quantity(roofs.flops)}FLOP/s`, right - 2, y(roofs.flops) - 10, palette);
  g.textAlign = "left";
  drawText(g, `memory ${quantity(roofs.bytesPerS)}B/s`, left + 4, Math.min(y(roofAt(roofs, roofs.ridge / 6)) - 12, bottom - 24), palette);
  g.textAlign = "center";
  drawText(g, `ridge ${perByte(roofs.ridge)}`, ridge, bottom - 8, palette);
}

/** @param {number} i @param {Scene} scene */
function ageAlpha(i, { points }) {
  return 1 - (1 - FAINTEST) * (i / Math.max(1, points.length));
}

/** @param {Point} point @param {KnownView} view */
function litAlpha({ step }, { lit }) {
  return !lit.any || lit.column !== null || [...step.rows].some(({ request }) => lit.requests.has(request)) ? 1 : DIM;
}

/** @param {Canvas} g @param {Scene} scene @param {Point} point @param {number} alpha @param {boolean} newest @param {Palette} palette */
function drawPoint(g, { x, y }, { intensity, flops, kind, gated }, alpha, newest, palette) {
  const [at, up, r] = [x(intensity), y(flops), newest ? 6 : 4];
  g.globalAlpha = alpha;
  g.lineWidth = 1.5;
  trace(g, kind, at, up, r);
  if (gated) {
    g.strokeStyle = kind === "decode" ? palette.decode : palette.prefill;
    g.stroke();
  } else {
    g.fillStyle = kind === "decode" ? palette.decode : palette.prefill;
    g.fill();
    if (kind === "mixed") halfDiamond(g, at, up, r, palette.decode);
    g.strokeStyle = newest ? palette.fg : palette.well;
    g.lineWidth = 1;
    trace(g, kind, at, up, r);
    g.stroke();
  }
  g.globalAlpha = 1;
}

/** @param {Canvas} g @param {Point["kind"]} kind @param {number} x @param {number} y @param {number} r */
function trace(g, kind, x, y, r) {
  g.beginPath();
  if (kind === "decode") g.arc(x, y, r, 0, 7);
  else if (kind === "prefill") g.rect(x - r, y - r, 2 * r, 2 * r);
  else {
    g.moveTo(x, y - 1.4 * r);
    g.lineTo(x + 1.4 * r, y);
    g.lineTo(x, y + 1.4 * r);
    g.lineTo(x - 1.4 * r, y);
    g.closePath();
  }
}

/** The decode half of a mixed step. @param {Canvas} g @param {number} x @param {number} y @param {number} r @param {string} colour */
function halfDiamond(g, x, y, r, colour) {
  g.fillStyle = colour;
  g.beginPath();
  g.moveTo(x, y - 1.4 * r);
  g.lineTo(x + 1.4 * r, y);
  g.lineTo(x, y + 1.4 * r);
  g.closePath();
  g.fill();
}

/** @param {Canvas} g @param {Scene} scene @param {KnownView} view */
function drawRing(g, { points, x, y }, { lit, palette }) {
  const chosen = points.find(({ column }) => column === lit.column);
  if (!chosen) return;
  g.strokeStyle = palette.fg;
  g.lineWidth = 2;
  g.beginPath();
  g.arc(x(chosen.intensity), y(chosen.flops), 11, 0, 7);
  g.stroke();
}
