/**
 * Both pictures of the page that compares, on one axis, and the moment that one cursor points at in them.
 *
 * @import {Run} from "./compare_run.js"
 * @import {Axis} from "./compare_picture.js"
 * @import {Side} from "./compare_sides.js"
 * @import {Palette} from "./types.js"
 *
 * @typedef {{side: Side, canvas: HTMLCanvasElement, size: {width: number, height: number}}} Picture
 * @typedef {"time" | "steps"} Unit
 */

import { byId, find, show, write } from "./dom.js";
import { bottomOf, drawRun, lengthOf, slotsOf, valueAt, xOf } from "./compare_picture.js";
import { seconds } from "./compare_numbers.js";
import { countUpTo, startOf } from "./compare_run.js";
import { nameOf } from "./compare_sides.js";
import { farWords } from "./compare_words.js";
import { count } from "./format.js";
import { readPalette } from "./palette.js";

const PLACES = 1000; // of the cursor
const BESIDE = 8; // px from the line to its words

/** @param {Side[]} sides */
export function mountPictures(sides) {
  const moment = byId("moment", HTMLInputElement);
  const pictures = sides.map((side) => ({ side, canvas: find(side.root, "canvas"), size: { width: 0, height: 0 } }));
  let unit = /** @type {Unit} */ ("time");
  let palette = /** @type {Palette | null} */ (null);
  let asked = false;

  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      const colours = (palette ??= readPalette());
      const axis = axisOf(sides, unit);
      for (const picture of pictures) drawPicture(picture, axis, colours);
      showMoment();
    });
  }

  function showMoment() {
    const axis = axisOf(sides, unit);
    point(moment, pictures, axis, (Number(moment.value) / PLACES) * axis.span);
  }

  /** @param {number} place */
  function moveTo(place) {
    moment.value = String(place);
    showMoment();
  }

  for (const picture of pictures) {
    watchSize(picture, draw);
    picture.canvas.addEventListener("pointermove", ({ clientX }) => {
      const { left } = picture.canvas.getBoundingClientRect();
      const axis = axisOf(sides, unit);
      if (axis.span) moveTo((valueAt(clientX - left, picture.size.width, axis) / axis.span) * PLACES);
    });
  }
  moment.addEventListener("input", showMoment);
  return {
    draw,
    recolour() {
      palette = null;
      draw();
    },
    /** @param {Unit} wanted */
    setUnit(wanted) {
      unit = wanted;
      draw();
    },
    /** @param {number} share of the axis */
    moveBy: (share) => moveTo(Number(moment.value) + share * PLACES),
  };
}

/** @param {Picture} picture @param {() => void} draw */
function watchSize({ canvas, size }, draw) {
  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    Object.assign(size, { width: Math.floor(box.width), height: Math.floor(box.height) });
    canvas.width = Math.round(size.width * scale);
    canvas.height = Math.round(size.height * scale);
    draw();
  }).observe(canvas);
}

/** @param {Side[]} sides @param {Unit} unit @returns {Axis} */
function axisOf(sides, unit) {
  return { unit, span: Math.max(...sides.map(({ shown }) => lengthOf(shown, unit))), slots: Math.max(...sides.map(({ shown }) => slotsOf(shown))) };
}

/** @param {Picture} picture @param {Axis} axis @param {Palette} palette */
function drawPicture({ side, canvas, size }, axis, palette) {
  const { shown: run, parts } = side;
  const g = canvas.getContext("2d", { alpha: false });
  if (!size.width || !g) return;
  const scale = window.devicePixelRatio || 1;
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.fillStyle = palette.well;
  g.fillRect(0, 0, size.width, size.height);
  g.font = palette.font;
  g.textBaseline = "middle";
  parts.empty.hidden = run !== null || parts.busy.textContent !== ""; // else it would ask for what is under way
  if (run) drawRun(g, size, run, axis, palette, "");
  const ended = run ? endedWords(run, axis.unit) : "";
  if (run) canvas.setAttribute("aria-label", `Slots over ${axis.unit}, ${ended}`);
  placeEnd(parts.ended, run?.over ? ended : "", xOf(lengthOf(run, axis.unit), size.width, axis), bottomOf(size, axis), size.width);
}

/** @param {Run} run @param {Unit} unit */
function endedWords(run, unit) {
  const [words, at] = unit === "steps" ? [`${count(run.steps.length)} steps`, "after "] : [seconds(lengthOf(run, "time")), "at "];
  return run.over ? `all finished ${at}${words}` : `${farWords(run)} ${words}`;
}

/** At the line of the end, as far as there is room; else the figures say it. They are above the cursor, which would strike them out. @param {HTMLElement} label @param {string} words @param {number} x @param {number} bottom @param {number} width */
function placeEnd(label, words, x, bottom, width) {
  write(label, words);
  show(label, words !== "");
  label.style.left = `${x + BESIDE}px`;
  label.style.top = `${bottom / 2}px`;
  if (words) show(label, x + BESIDE + label.offsetWidth <= width);
}

/** The line over both pictures, and what each side did at that moment. @param {HTMLInputElement} moment @param {Picture[]} pictures @param {Axis} axis @param {number} value */
function point(moment, pictures, axis, value) {
  const words = axis.unit === "steps" ? `step ${count(Math.floor(value))}` : seconds(value);
  write(byId("at"), words);
  const said = pictures.map(({ side }) => side.shown && `${nameOf(side)}: ${momentWords(side.shown, axis.unit, value)}`);
  moment.setAttribute("aria-valuetext", [words, ...said].filter(Boolean).join("; "));
  for (const { side, size } of pictures) {
    const { shown, parts } = side;
    parts.cursor.hidden = !shown;
    parts.cursor.style.left = `${xOf(value, size.width, axis)}px`;
    parts.cursor.style.height = `${bottomOf(size, axis)}px`; // below are the ticks' words
    write(parts.moment, shown ? `at ${words}: ${momentWords(shown, axis.unit, value)}` : "");
  }
}

/** @param {Run} run @param {Unit} unit @param {number} value */
function momentWords(run, unit, value) {
  const at = unit === "steps" ? (run.steps[Math.min(Math.floor(value), run.steps.length) - 1]?.accepted_us ?? startOf(run)) : startOf(run) + value;
  const { running, waiting, finished } = run.moments[countUpTo(run.moments, at, (each) => each.at) - 1] ?? { running: 0, waiting: 0, finished: 0 };
  return `${count(running)} running, ${count(waiting)} waiting, ${count(finished)} of ${count(run.arrivals.length)} finished`;
}
