/**
 * Self: what watching costs. The page's part is counted here, by its own clock, and is about now whatever moment the
 * other panels show; what publishing costs the engine is measured by the engine, in every step.
 *
 * @import {Hello, Loop, Page, StepFacts, View} from "../types.js"
 *
 * @typedef {ReturnType<typeof import("../watch.js").createWatch>} Watch
 * @typedef {ReturnType<Watch["figures"]>} Figures
 */

import { byData, byId } from "../dom.js";
import { count, duration, NONE, percent, plural, rate } from "../format.js";
import { lastSteps } from "../history.js";
import { percentile } from "../metrics.js";
import { bytesText } from "../quantities.js";
import { SLOW_MS } from "../render.js";

/** Steps that the cost of publishing is taken over. */
const WINDOW = 60;
/** Below it a share has no digit to show. */
const LEAST_SHARE = 0.001;

/** @param {Page} page @param {Watch} watch */
export function mountSelf(page, watch) {
  const root = byId("panel-self");
  const nodes = byData(root, "self");
  let visible = false;

  function refresh() {
    const figures = watch.figures(page.loop.cost.frames); // counts on while nobody looks
    if (!visible) return;
    const view = page.view();
    const words = { ...pageWords(figures, page.loop.cost), ...streamWords(figures, view), ...engineWords(view) };
    for (const [name, text] of Object.entries(words)) if (nodes[name].textContent !== text) nodes[name].textContent = text;
  }

  new IntersectionObserver((entries) => {
    visible = entries.at(-1)?.isIntersecting ?? false;
    if (visible) refresh();
  }).observe(root);
  // Not in the loop, which rests when nothing comes: then above all the age of the newest word must go on.
  setInterval(refresh, SLOW_MS);
}

/** @param {Figures} figures @param {Loop["cost"]} cost */
function pageWords({ received, drawn }, cost) {
  const mean = Object.values(cost.panels).reduce((sum, ms) => sum + ms, 0);
  return {
    received: `${rate(received)} /s`,
    drawn: `${rate(drawn)} /s`,
    draw: duration(mean * 1000),
    worst: duration(cost.worstMs * 1000),
  };
}

/** @param {Figures} figures @param {View} view */
function streamWords({ heardMs, lateMs, jumps }, { store, engine }) {
  const lost = engine?.about.lost_events;
  return {
    heard: `${duration(heardMs * 1000)} ago`,
    late: lateMs === null ? NONE : duration(lateMs * 1000),
    lost: lost === undefined ? NONE : lost === 0 ? "none" : plural(lost, "event"),
    jumps: jumps === 0 ? "none" : count(jumps),
    viewers: store.viewers ? `${count(store.viewers.connected)} of ${count(store.viewers.limit)}` : NONE,
    tape: engine ? `${plural(engine.tape.size.steps, "step")}, ${bytesText(engine.tape.size.bytes)}` : NONE,
  };
}

/** @param {View} view */
function engineWords({ history, last, hello }) {
  const steps = history ? lastSteps(history, last, WINDOW).map(([, step]) => step).filter((step) => !step.gated) : [];
  const { medianUs, share, n } = publishCost(steps);
  return {
    publish: medianUs === null ? NONE : `${count(medianUs)} µs`,
    share: shareWords(share),
    verdict: verdictOf(share, n, hello),
  };
}

/** @param {number | null} share */
function shareWords(share) {
  return share !== null && share > 0 && share < LEAST_SHARE ? `< ${percent(LEAST_SHARE)}` : percent(share);
}

/** @param {number | null} share @param {number} n @param {Hello | null} hello */
function verdictOf(share, n, hello) {
  if (!hello) return "No engine has said anything yet.";
  if (share === null) return "No step to measure yet; gated ones are left out.";
  return `Telling about itself took the engine ${shareWords(share)} of its last ${plural(n, "step")}.`;
}

/**
 * What the engine's own steps paid for being watched: publishing one event at the median, and of all their time.
 * @param {StepFacts[]} steps gated ones left out
 */
function publishCost(steps) {
  const costs = steps.map(({ phases_us: phases }) => phases.publish ?? 0).sort((a, b) => a - b);
  const wall = steps.reduce((sum, { wall_us: us }) => sum + us, 0);
  return { medianUs: percentile(costs, 50), share: wall ? costs.reduce((sum, us) => sum + us, 0) / wall : null, n: steps.length };
}
