/**
 * Latency: first the dots, one per finished request in the order they finished, then percentiles over those raw
 * samples. TTFT is queue + prefill, TPOT the pace of the answer after its first token, E2E all of it. Requests that
 * were held by the gate, and undefined values, give no dot.
 */

import { count, duration, milliseconds, requestName } from "../format.js";
import { finishedUntil } from "../history.js";
import { ENOUGH, percentile, samplesOf } from "../metrics.js";

export const TIMINGS = [
  { name: "ttft_us", label: "TTFT", hue: "prefill" }, // the first token waits for prefill,
  { name: "tpot_us", label: "TPOT", hue: "decode" }, // the pace is decode's
  { name: "e2e_us", label: "E2E", hue: "fg" },
];
/** Percentiles are over the last this many finished requests that the page has heard of, up to the moment shown. */
export const WINDOW = 200;
const SHOWN = 80;
const LEFT = 66;
const RIGHT = 10;
const GAP = 10;

export const latency = {
  empty(view) {
    if (!view.state) return view.why;
    return finishedUntil(view.history, view.until).length ? null : "No request has finished yet.";
  },

  draw(g, size, view) {
    if (!view.state) return;
    const shown = dotsOf(view);
    bandsOf(size).forEach((band, i) => drawBand(g, band, size, shown, TIMINGS[i], view));
  },

  hit(x, y, view, size) {
    if (!view.state) return null;
    const shown = dotsOf(view);
    for (const [i, band] of bandsOf(size).entries()) {
      if (y < band.top - 4 || y > band.bottom + 4) continue;
      const near = nearest(x, y, band, size, shown, TIMINGS[i].name);
      if (near) return { choice: { kind: "request", id: near.id }, dot: near, timing: TIMINGS[i] };
    }
    return null;
  },

  hint: ({ dot, timing }) => `${requestName(dot.id)} · ${timing.label} ${duration(dot.timings[timing.name])}`,

  detail(root, view) {
    if (!view.history) return;
    for (const { name } of TIMINGS) writePercentiles(root.querySelector(`[data-timing="${name}"]`), view, name);
    const gated = finishedUntil(view.history, view.until).slice(-WINDOW).filter(({ timings }) => timings.gated_us > 0).length;
    const left = gated ? ` ${count(gated)} gated left out.` : "";
    root.querySelector(".detail").textContent = `Window: the last ${WINDOW} finished requests this page knows. Grey: too few samples to mean much.${left}`;
  },

  summary(view) {
    const n = finishedUntil(view.history, view.until).length;
    return n ? `Latency of ${n} finished requests.` : "Latency: nothing finished yet.";
  },

  twin(view) {
    return {
      columns: ["request", ...TIMINGS.map(({ label }) => `${label} ms`), "queue ms", "prefill ms", "output tok", "held by the gate"],
      rows: finishedUntil(view.history, view.until).slice(-100).reverse().map(({ id, timings, tokens }) => ({
        choice: { kind: "request", id },
        cells: [
          requestName(id),
          ...["ttft_us", "tpot_us", "e2e_us", "queue_us", "prefill_us"].map((name) => (timings[name] === null ? "–" : (timings[name] / 1000).toFixed(3))),
          count(tokens),
          timings.gated_us > 0 ? duration(timings.gated_us) : "",
        ],
      })),
    };
  },
};

/** The samples of the window that ends at a moment, for one timing. */
export function windowSamples(history, until, name) {
  return samplesOf(finishedUntil(history, until).slice(-WINDOW), name);
}

function writePercentiles(line, { history, until }, name) {
  const samples = windowSamples(history, until, name);
  for (const p of [50, 95, 99]) {
    const cell = line.querySelector(`.p${p}`);
    cell.textContent = milliseconds(percentile(samples, p));
    cell.classList.toggle("thin", samples.length < ENOUGH[p]);
  }
  line.querySelector(".n").textContent = count(samples.length);
}

function dotsOf({ history, until }) {
  return finishedUntil(history, until).filter(({ timings }) => !(timings.gated_us > 0)).slice(-SHOWN);
}

function bandsOf(size) {
  const height = (size.height - 2 * GAP) / 3;
  return TIMINGS.map((_, i) => ({ top: i * (height + GAP) + 3, bottom: i * (height + GAP) + height - 1 }));
}

function scaleOf(shown, name) {
  return Math.max(1, ...shown.map(({ timings }) => timings[name] ?? 0)) * 1.08;
}

function place(i, value, band, size, shown, most) {
  const step = Math.min(14, (size.width - LEFT - RIGHT) / Math.max(1, shown.length));
  return [LEFT + (i + 0.5) * step, band.bottom - ((band.bottom - band.top) * value) / most];
}

function nearest(x, y, band, size, shown, name) {
  const most = scaleOf(shown, name);
  let best = null;
  let closest = 12;
  shown.forEach((sample, i) => {
    if (sample.timings[name] === null) return;
    const [dx, dy] = place(i, sample.timings[name], band, size, shown, most);
    const distance = Math.hypot(dx - x, dy - y);
    if (distance < closest) [closest, best] = [distance, sample];
  });
  return best;
}

function drawBand(g, band, size, shown, { name, label, hue }, view) {
  const { palette, lit } = view;
  const most = scaleOf(shown, name);
  g.fillStyle = palette.line;
  g.fillRect(LEFT, band.bottom, size.width - LEFT - RIGHT, 1);
  g.textAlign = "right";
  g.fillStyle = palette.fg;
  g.fillText(label, LEFT - 8, band.top + 5);
  g.fillStyle = palette.muted;
  if (shown.length) g.fillText(duration(most / 1.08), LEFT - 8, band.top + 18);
  const median = percentile(samplesOf(shown, name), 50);
  if (median !== null) {
    const [, y] = place(0, median, band, size, shown, most);
    g.fillStyle = palette.muted;
    g.fillRect(LEFT, Math.round(y), size.width - LEFT - RIGHT, 1);
  }
  shown.forEach(({ id, timings }, i) => {
    if (timings[name] === null) return;
    const [x, y] = place(i, timings[name], band, size, shown, most);
    g.globalAlpha = lit.any && !lit.requests.has(id) ? 0.3 : 1;
    g.fillStyle = palette[hue];
    g.beginPath();
    g.arc(x, y, lit.requests.has(id) ? 4.5 : 3, 0, 7);
    g.fill();
  });
  g.globalAlpha = 1;
}
