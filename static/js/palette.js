/**
 * Colours and patterns for canvases, read from the CSS custom properties so that both always agree.
 * Hue is phase; every state is also a pattern, so the page reads in greyscale.
 */

import { OWNER_HUES } from "./owners.js";

const NAMES = /** @type {const} */ (["prefill", "decode", "cached", "fault", "idle", "fg", "muted", "line", "well", "surface"]);

/**
 * @typedef {typeof NAMES[number] | "onAccent"} Colour
 * @typedef {Record<Colour, string> & Patterns} Palette
 *
 * @typedef {Object} Patterns
 * @property {Object<string, string>} phases
 * @property {string[]} owners
 * @property {CanvasPattern[]} ownerDots
 * @property {Object<string, number>} rgba packed
 * @property {string} font
 * @property {string} smallFont
 * @property {Record<"answer" | "cached" | "fault" | "gap", CanvasPattern>} hatch
 * @property {Object<string, CanvasPattern>} phaseHatch
 * @property {number} scale
 */

/** @returns {Palette} */
export function readPalette(scale = window.devicePixelRatio || 1) {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const hex = (/** @type {string} */ name) => hexOf(read(name));
  const colour = /** @type {Record<Colour, string>} */ ({ ...Object.fromEntries(NAMES.map((name) => [name, hex(name)])), onAccent: hex("on-accent") });
  const owners = Array.from({ length: OWNER_HUES }, (_, i) => hex(`owner-${i + 1}`));
  const phases = Object.fromEntries(PHASES.map((name) => [name, hex(`phase-${name}`)]));
  return {
    ...colour,
    phases,
    owners,
    rgba: { ...Object.fromEntries(NAMES.map((name) => [name, packed(colour[name])])), ...Object.fromEntries(owners.map((hex, i) => [`owner${i}`, packed(hex)])) },
    font: `${read("canvas-size")} ${read("sans")}`,
    smallFont: `${read("canvas-small")} ${read("sans")}`,
    hatch: {
      answer: pattern(colour.decode, scale, "holes"),
      cached: pattern(colour.cached, scale, "diagonal"),
      fault: pattern(colour.fault, scale, "cross"),
      gap: pattern(colour.muted, scale, "diagonal"),
    },
    ownerDots: owners.map((colour) => pattern(colour, scale, "dots")),
    phaseHatch: { draft: pattern(phases.draft, scale, "cross"), sample: pattern(phases.sample, scale, "vertical"), update: pattern(phases.update, scale, "horizontal"), publish: pattern(phases.publish, scale, "diagonal") },
    scale,
  };
}

/** The parts of a step in the order they happen; "other" is what is left of its wall time. */
export const PHASES = ["schedule", "draft", "prepare", "forward", "sample", "update", "publish", "other"];

/** A colour as "#rrggbb"; where the system imposes its colours (css/forced.css) it is a name that only the page knows. @param {string} colour */
function hexOf(colour) {
  if (colour.startsWith("#")) return colour;
  const probe = document.createElement("i");
  probe.className = "swatch"; // exempt from being forced again
  probe.hidden = true;
  probe.style.setProperty("color", colour);
  document.body.append(probe);
  const [red, green, blue] = getComputedStyle(probe).color.match(/\d+/g) ?? [];
  probe.remove();
  return `#${[red, green, blue].map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
}

/** "#rrggbb" as the little-endian ABGR word that ImageData wants. @param {string} hex */
export function packed(hex) {
  const n = Number.parseInt(hex.slice(1), 16);
  return ((255 << 24) | ((n & 0xff) << 16) | (n & 0xff00) | (n >> 16)) >>> 0;
}

/** @param {string} colour @param {number} scale @param {"diagonal" | "cross" | "dots" | "holes" | "vertical" | "horizontal"} kind */
function pattern(colour, scale, kind) {
  const size = Math.max(4, Math.round(5 * scale));
  const tile = new OffscreenCanvas(size, size);
  const g = /** @type {OffscreenCanvasRenderingContext2D} */ (tile.getContext("2d"));
  g.strokeStyle = colour;
  g.fillStyle = colour;
  g.lineWidth = Math.max(1, scale * 1.2);
  g.beginPath();
  if (kind === "dots") {
    g.fillRect(0, 0, size / 2, size / 2);
    g.fillRect(size / 2, size / 2, size / 2, size / 2);
  } else if (kind === "holes") {
    g.fillRect(0, 0, size, size);
    g.clearRect(size / 3, size / 3, size / 2.5, size / 2.5);
  } else if (kind === "vertical") {
    g.moveTo(size / 2, 0);
    g.lineTo(size / 2, size);
  } else if (kind === "horizontal") {
    g.moveTo(0, size / 2);
    g.lineTo(size, size / 2);
  } else {
    for (const shift of [-size, 0, size]) {
      g.moveTo(shift, size);
      g.lineTo(shift + size, 0);
      if (kind === "cross") {
        g.moveTo(shift, 0);
        g.lineTo(shift + size, size);
      }
    }
  }
  g.stroke();
  const made = /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
  made.setTransform(new DOMMatrix().scale(1 / scale));
  return made;
}
