/**
 * Panels that can wait. Their modules are loaded when they come near the window on a narrow screen, one by one, and on
 * a wide one all of them right after the first frame: a phone that looks at the stage pays for the stage alone.
 *
 * The only file with dynamic imports: each is awaited and has a literal path relative to this file, so that scripts can
 * still be joined (app/joined.py). A section that is mounted has `data-mounted`.
 *
 * @import {Page} from "./types.js"
 */

import { byId, findAll } from "./dom.js";
import { mountPanel } from "./frame.js";

export const NOT_LOADED = "This part of the page could not be loaded: is the server there?";
const NARROW = "(max-width: 640px)";
/** After the picker could not be loaded it is not tried again for so long. */
const PATIENCE_MS = 5000;
/** So much of the window's height ahead. */
const NEAR = "50%";

/** By the section's id: load it and mount it. @type {Object<string, (page: Page) => Promise<void>>} */
const PANELS = {
  async kv(page) {
    const { mountKv } = await import("./panels/kv_panel.js");
    if (page.texts) page.kv = mountKv(page, page.texts);
  },
  async anatomy(page) {
    const { anatomy } = await import("./panels/anatomy.js");
    const { mountDiff } = await import("./panels/diff.js");
    mountPanel("anatomy", anatomy, page, { timed: true });
    mountDiff(page);
  },
  async latency(page) {
    const { mountLatency } = await import("./panels/latency.js");
    page.latency = mountLatency(page);
  },
  async roofline(page) {
    const { roofline } = await import("./panels/roofline.js");
    mountPanel("roofline", roofline, page);
  },
  async memory(page) {
    const { memory } = await import("./panels/memory.js");
    mountPanel("memory", memory, page);
  },
  async self(page) {
    const { mountSelf } = await import("./panels/self.js");
    mountSelf(page, page.watch);
  },
  async ghost(page) {
    const { createGhost } = await import("./panels/ghost.js");
    mountPanel("ghost", createGhost(), page);
  },
  async gate(page) {
    const { mountGate } = await import("./panels/gate.js");
    const { mountReset } = await import("./panels/reset.js");
    mountGate(page);
    mountReset(page);
  },
  async knobs(page) {
    const { mountKnobs } = await import("./panels/knobs.js");
    mountKnobs(page);
  },
  async worksheet(page) {
    const { mountWorksheet } = await import("./panels/worksheet.js");
    mountWorksheet(page);
  },
  async kvsum(page) {
    const { mountKvSum } = await import("./panels/kv_sum.js");
    mountKvSum(page);
  },
  async intensity(page) {
    const { mountIntensity } = await import("./panels/intensity.js");
    mountIntensity(page);
  },
};

/**
 * @param {Page} page
 * @returns {{load: (id: string) => Promise<void>, engines: () => Promise<void>, pending: () => string[]}} `pending`: those that are about to be mounted
 */
export function mountLater(page) {
  const sections = new Map(Object.keys(PANELS).map((id) => [id, byId(`panel-${id}`)]));
  /** @type {Map<string, Promise<void>>} */
  const loads = new Map();
  /** @type {Set<string>} */
  const pending = new Set();

  /** @param {string} id */
  function load(id) {
    const loading = loads.get(id) ?? mount(id);
    loads.set(id, loading);
    return loading;
  }

  /** @param {string} id */
  async function mount(id) {
    const section = byId(`panel-${id}`);
    pending.add(id);
    try {
      await PANELS[id](page);
      section.dataset.mounted = "";
    } catch (error) {
      console.error(`panel ${id} could not be loaded`, error);
      section.append(sorry());
    }
    pending.delete(id);
    page.loop.invalidateNow();
  }

  for (const section of sections.values()) for (const twin of findAll(section, "details.twin", HTMLDetailsElement)) twin.open = false;
  if (window.matchMedia(NARROW).matches || "only" in document.body.dataset) whenNear(sections, load);
  else {
    for (const id of sections.keys()) pending.add(id);
    requestAnimationFrame(() => setTimeout(() => sections.forEach((_, id) => load(id))));
  }
  let picker = /** @type {Promise<void> | null} */ (null);
  /** The picker of engines, once there is something to pick. */
  async function mountPicker() {
    try {
      const { mountEngines } = await import("./panels/engines.js");
      mountEngines(page);
      page.loop.invalidateNow();
    } catch (error) {
      console.error("the picker of engines could not be loaded", error);
      setTimeout(() => (picker = null), PATIENCE_MS);
    }
  }
  return { load, engines: () => (picker ??= mountPicker()), pending: () => [...pending] };
}

/** Call once for each section, when it comes near the window. @param {Map<string, HTMLElement>} sections @param {(id: string) => void} load */
function whenNear(sections, load) {
  /** @type {Map<Element, string>} */
  const ids = new Map([...sections].map(([id, section]) => [section, id]));
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) continue;
        observer.unobserve(target);
        load(ids.get(target) ?? "");
      }
    },
    { rootMargin: `${NEAR} 0px` },
  );
  for (const section of sections.values()) observer.observe(section);
}

/** What reads recordings: most pages never do. Rejects when it cannot be loaded. */
export async function recordingReader() {
  const { readRecording, stepsAndNotes } = await import("./recording.js");
  return { readRecording, stepsAndNotes };
}

/** What finds things by their names: the same. */
export async function finder() {
  const { findIn } = await import("./find.js");
  return { findIn };
}

/** What writes commands for a shell: the same. */
export async function curlWriter() {
  const { curlCommand } = await import("./curl.js");
  return { curlCommand };
}

function sorry() {
  const words = document.createElement("p");
  words.className = "error";
  words.setAttribute("role", "alert");
  words.textContent = "The script of this panel could not be loaded: load the page again.";
  return words;
}
