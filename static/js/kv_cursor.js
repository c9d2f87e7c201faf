/**
 * The keyboard's way through the picture of a large pool: the canvas is a slider over what is drawn in it. Arrows move
 * by one or by a row, Home and End to the ends, Enter does what a click does; every other key is the page's.
 */

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{grid: () => {columns: number, total: number}, words: (place: number) => string, enter: (place: number) => void,
 *          moved: () => void}} on
 */
export function createCursor(canvas, on) {
  let place = 0;

  canvas.addEventListener("keydown", (event) => {
    if (canvas.tabIndex < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns, total } = on.grid();
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, ArrowUp: place - columns, ArrowDown: place + columns, Home: 0, End: total - 1 }[event.key];
    if (to !== undefined) go(Math.min(Math.max(to, 0), total - 1));
    else if (event.key === "Enter") on.enter(place);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", () => {
    go(Math.min(place, on.grid().total - 1));
  });
  canvas.addEventListener("blur", on.moved);

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
