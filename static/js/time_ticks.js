/**
 * Ticks of the axis in time: seconds since the engine's start, by its own clock; each engine's count anew. Pure.
 *
 * @import {Axis, Plot} from "./axis.js"
 */

const ROOM_PX = 76;
const ROUND_US = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 3e7, 6e7, 1.2e8, 3e8, 6e8];

/** @param {Pick<Axis, "times" | "edge" | "scale" | "x" | "span">} axis @param {Plot} plot @returns {Array<{x: number, text: string}>} */
export function timeTicks({ times, edge, scale }, plot) {
  const every = ROUND_US.find((us) => us * scale >= ROOM_PX) ?? 3.6e9;
  const digits = every >= 1e6 ? 0 : every >= 1e5 ? 1 : every >= 1e4 ? 2 : 3;
  const left = edge - (plot.right - plot.left) / scale;
  const ticks = [];
  for (const [i, { at, offset, begin: first }] of times.clocks.entries()) {
    const begin = Math.max(left, at === -Infinity ? left : first);
    const end = Math.min(edge, times.clocks[i + 1]?.since ?? edge);
    for (let us = Math.max(0, Math.ceil((begin - offset) / every)) * every; us + offset <= end; us += every) {
      const x = plot.right - (edge - us - offset) * scale;
      if (x >= plot.left + 16 && x <= plot.right - 16) ticks.push({ x, text: `${(us / 1e6).toFixed(digits)} s` });
    }
  }
  return ticks;
}
