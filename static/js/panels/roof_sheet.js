/**
 * What the Roofline panel says of its roofs beside drawing them: the vendor's data sheet, dashed, and the points that lie
 * above what was measured.
 *
 * @import {Canvas, Palette} from "../types.js"
 * @import {Roofs} from "../roofline.js"
 *
 * @typedef {ReturnType<typeof import("../data_sheets.js").sheetOf>} Sheet
 * @typedef {{sheet: Sheet, left: number, right: number, top: number, across: {low: number}, x: (intensity: number) => number, y: (flops: number) => number}} Scene
 */

import { percent, plural } from "../format.js";
import { drawText } from "../marks.js";
import { quantity } from "../quantities.js";
import { roofAt } from "../roofline.js";

/** What the vendor says of this device, and how much of it was measured. @param {Roofs} roofs @param {Sheet} sheet */
export function sheetWords(roofs, sheet) {
  if (!sheet) return "";
  const [maths, memory] = [percent(roofs.flops / sheet.flops), percent(roofs.bytesPerS / sheet.bytesPerS)];
  return ` Dashed is its data sheet: ${quantity(sheet.flops)}FLOP/s and ${quantity(sheet.bytesPerS)}B/s; measured were ${maths} and ${memory} of that.`;
}

/** @param {number} n */
export function aboveWords(n) {
  return n ? `${plural(n, "point")} above the measured roof: it was measured while the machine was busy, or caches helped.` : "";
}

/** The vendor's roofs, dashed and named in the corner that lies above all of them. @param {Canvas} g @param {Scene} scene @param {Palette} palette */
export function drawSheet(g, { sheet, left, right, top, across, x, y }, palette) {
  if (!sheet) return;
  g.save();
  g.setLineDash([5, 4]);
  g.strokeStyle = palette.muted;
  g.lineWidth = 1.5;
  g.beginPath();
  g.moveTo(left, y(roofAt(sheet, 10 ** across.low)));
  g.lineTo(x(sheet.flops / sheet.bytesPerS), y(sheet.flops));
  g.lineTo(right, y(sheet.flops));
  g.moveTo(left + 4, top + 8);
  g.lineTo(left + 28, top + 8);
  g.stroke();
  g.restore();
  g.fillStyle = palette.muted;
  g.textAlign = "left";
  drawText(g, "data sheet", left + 32, top + 8, palette);
}
