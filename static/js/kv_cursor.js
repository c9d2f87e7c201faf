/**
 * The keyboard's way through a picture of the KV panel: the canvas is a slider over what is drawn in it. Arrows move
 * by one or by a row, Home and End to the ends, Enter does what a click does; every other key is the page's.
 */

/** @typedef {ReturnType<typeof createCursor>} Cursor */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{grid: () => {columns: number, total: number}, words: (place: number) => string, enter: (place: number) => void,
 *          moved: () => void, above?: (place: number, by: -1 | 1) => number | undefined}} on
 *        `above`: the place above or below, where places stand in no grid
 */
export function createCursor(canvas, on) {
  let place = 0;

  canvas.addEventListener("keydown", (event) => {
    if (canvas.tabIndex < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns, total } = on.grid();
    if (total === 0) return;
    const row = (/** @type {-1 | 1} */ by) => on.above?.(place, by) ?? place + by * columns;
    /** @type {Object<string, number>} */
    const ways = { ArrowLeft: place - 1, ArrowRight: place + 1, ArrowUp: row(-1), ArrowDown: row(1), Home: 0, End: total - 1 };
    const to = /** @type {number | undefined} */ (ways[event.key]);
    if (to !== undefined) go(Math.min(Math.max(to, 0), total - 1));
    else if (event.key === "Enter") on.enter(place);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", () => {
    go(Math.max(0, Math.min(place, on.grid().total - 1)));
  });
  canvas.addEventListener("blur", on.moved);

  /** @param {number} to */
  function go(to) {
    place = to;
    canvas.setAttribute("aria-valuemax", String(on.grid().total - 1));
    canvas.setAttribute("aria-valuenow", String(place));
    canvas.setAttribute("aria-valuetext", on.words(place));
    on.moved();
  }

  return {
    go,
    /** Where it stands; null while nobody uses it. */
    get place() {
      return canvas.matches(":focus-visible") ? place : null;
    },
    /** @param {boolean} can whether there is anything to walk over */
    enable(can) {
      if (canvas.tabIndex >= 0 === can) return;
      canvas.tabIndex = can ? 0 : -1;
      canvas.setAttribute("role", can ? "slider" : "img");
      for (const name of ["valuemin", "valuenow"]) canvas.toggleAttribute(`aria-${name}`, can);
      if (can) for (const name of ["valuemin", "valuenow"]) canvas.setAttribute(`aria-${name}`, "0");
    },
  };
}

/** Of boxes in no grid, the one in the nearest row above (−1) or below (1) that is closest. @param {Array<{x: number, y: number}>} boxes @param {number} place @param {-1 | 1} by */
export function nearest(boxes, place, by) {
  const from = boxes[place];
  if (!from) return place;
  let best = { place, away: Infinity };
  boxes.forEach(({ x, y }, i) => {
    const rows = by * (y - from.y);
    const away = 10_000 * rows + Math.abs(x - from.x);
    if (rows > 0 && away < best.away) best = { place: i, away };
  });
  return best.place;
}
