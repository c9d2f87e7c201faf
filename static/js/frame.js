/**
 * The small frame every canvas panel stands in: size and pixel ratio, what lies under the pointer, the shared time
 * axis, an explanation when there is no data, and a table twin beside the canvas.
 *
 * A panel is {mount?(root, page), draw(g, size, view), hit?(x, y, view, size), hint?(hit, view), empty(view),
 * summary(view), twin(view)}: `g` is scaled to CSS pixels, or to larger ones in presenter mode (`size.zoom` CSS pixels
 * each); `hit` returns {choice, …}, {act, …} or null; `empty` returns why there is nothing, or null.
 *
 * @import {CanvasPanel, KnownView, Page, Size, View} from "./types.js"
 */

import { byId, find, show, write } from "./dom.js";
import { canvasZoom } from "./presenter.js";
import { differs } from "./roll_time.js";
import { renderTable } from "./table.js";

/** A polite summary for screen readers, at most this often. */
const SUMMARY_MS = 5000;
const DRAG_PX = 4;

/**
 * @param {string} id of the section, for example "slots"
 * @param {CanvasPanel} panel
 * @param {Page} page
 * @param {{timed?: boolean | (() => boolean)}} options `timed`: the panel shares the time axis; or whether it does now
 */
export function mountPanel(id, panel, page, { timed = false } = {}) {
  const root = byId(`panel-${id}`);
  const canvas = find(root, "canvas");
  const twin = find(root, "details.twin", HTMLDetailsElement);
  const table = find(twin, "table");
  const empty = find(root, ".empty");
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
  const size = { width: 0, height: 0, scale: 1, zoom: 1 };
  const onAxis = timed === true ? () => true : timed || (() => false);
  const leads = id === page.axis.lead;
  let summarised = -Infinity;
  let font = "";
  let drawn = /** @type {unknown[]} */ ([]); // what the picture depended on

  const mounted = {
    id,
    visible: true,
    /** @param {View} from @returns {boolean | void} false when there was nothing to draw */
    draw(from) {
      const view = /** @type {KnownView} */ (from);
      if (!size.width || !size.height || !view.palette) return false;
      const look = panel.look?.(view);
      const now = look ? [...look, view.palette, size.width, size.height] : [];
      if (look && !differs(now, drawn)) return false;
      drawn = now;
      say(empty, panel.empty(view));
      g.setTransform(size.scale, 0, 0, size.scale, 0, 0);
      g.fillStyle = view.palette.well;
      g.fillRect(0, 0, size.width, size.height);
      if (font !== view.palette.font) g.font = font = view.palette.font; // setting it has the browser settle all styles
      g.textBaseline = "middle";
      if (leads && onAxis()) view.axis.suit({ left: panel.margin ?? 0, right: size.width - (panel.gutter ?? 0) });
      panel.draw(g, size, view);
      return true;
    },
    /** @param {View} now */
    refresh(now) {
      if (!now.state) return;
      const view = /** @type {KnownView} */ (now);
      panel.detail?.(root, view);
      if (twin.open) renderTable(table, panel.twin(view), page.selection);
      if (performance.now() - summarised < SUMMARY_MS) return;
      summarised = performance.now();
      canvas.setAttribute("aria-label", panel.summary(view));
    },
  };

  if (leads) page.axis.gutter = panel.gutter ?? 0;
  twin.open = false;
  panel.mount?.(root, page);
  watchSize(canvas, size, () => {
    font = ""; // a canvas of another size begins anew, and black
    drawn = [];
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.fillStyle = getComputedStyle(canvas).getPropertyValue("--well");
    g.fillRect(0, 0, canvas.width, canvas.height);
    page.loop.invalidateNow();
  });
  const watch = (/** @type {IntersectionObserverEntry[]} */ entries) => {
    mounted.visible = entries.at(-1)?.isIntersecting ?? true;
    page.loop.invalidate();
  };
  new IntersectionObserver(watch, { rootMargin: "200px" }).observe(canvas);
  twin.addEventListener("toggle", () => page.loop.invalidateNow());
  watchPointer(canvas, panel, page, size, timed ? onAxis : null);
  page.loop.add(mounted);
  return mounted;
}

/** Why there is nothing to see. @param {HTMLElement} node @param {string | null} reason */
function say(node, reason) {
  write(node, reason ?? "");
  show(node, reason !== null);
}

/** @param {HTMLCanvasElement} canvas @param {Size} size @param {() => void} resized */
function watchSize(canvas, size, resized) {
  const measure = () => {
    const box = canvas.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    const zoom = canvasZoom();
    const [width, height] = [Math.floor(box.width), Math.floor(box.height)];
    Object.assign(size, { width: width / zoom, height: height / zoom, scale: scale * zoom, zoom });
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    resized();
  };
  window.addEventListener("resize", measure);
  new ResizeObserver(measure).observe(canvas);
  measure();
}

/**
 * @param {HTMLCanvasElement} canvas @param {CanvasPanel} panel @param {Page} page @param {Size} size
 * @param {(() => boolean) | null} timed
 */
function watchPointer(canvas, panel, page, size, timed) {
  let press = /** @type {{x: number, dragged: boolean} | null} */ (null);
  const view = () => /** @type {KnownView} */ (page.view());
  /** @param {MouseEvent} event @returns {[number, number]} */
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / size.zoom, (event.clientY - box.top) / size.zoom];
  };
  canvas.addEventListener("pointermove", (event) => {
    if (press && timed && timed() && panTo(event, press)) return;
    const now = view();
    const hit = panel.hit?.(...at(event), now, size) ?? null;
    canvas.classList.toggle("hot", hit !== null);
    page.tip.show(hit ? (panel.hint?.(hit, now) ?? null) : null, event);
  });
  canvas.addEventListener("pointerleave", () => page.tip.show(null));
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button === 0) press = { x: event.clientX, dragged: false };
  });
  window.addEventListener("pointerup", () => {
    setTimeout(() => (press = null));
  });
  canvas.addEventListener("click", (event) => {
    if (press?.dragged) return;
    page.tip.show(null);
    const hit = panel.hit?.(...at(event), view(), size) ?? null;
    if (hit?.choice?.kind === "step" && event.shiftKey) page.compare.with(hit.choice.column);
    else if (hit?.choice) page.selection.set(hit.choice);
    else if (hit?.act) hit.act();
    else page.selection.clear();
  });
  if (timed) watchWheel(canvas, panel, page, size, at, timed);

  /** @param {MouseEvent} event @param {{x: number, dragged: boolean}} from */
  function panTo(event, from) {
    if (!from.dragged && Math.abs(event.clientX - from.x) < DRAG_PX) return false;
    page.axis.drag((from.x - event.clientX) / size.zoom, page.view().last);
    press = { x: event.clientX, dragged: true };
    page.onPan();
    return true;
  }
}

/**
 * The wheel zooms only with Ctrl, and pans only sideways; else the page scrolls as everywhere.
 * @param {HTMLCanvasElement} canvas @param {CanvasPanel} panel @param {Page} page @param {Size} size
 * @param {(event: MouseEvent) => [number, number]} at @param {() => boolean} timed
 */
function watchWheel(canvas, panel, page, size, at, timed) {
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!timed()) return;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      const plot = { left: 0, right: size.width - (panel.gutter ?? 0) };
      if (event.ctrlKey) page.axis.zoom(event.deltaY < 0 ? 1.25 : 0.8, at(event)[0], plot, page.view().last);
      else if (event.shiftKey || Math.abs(sideways) > Math.abs(event.deltaY)) {
        page.axis.drag(sideways / size.zoom, page.view().last);
      } else return;
      event.preventDefault();
      page.onPan();
    },
    { passive: false },
  );
}
