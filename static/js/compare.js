/**
 * The page that compares two runs: what stands on each side (compare_sides.js has what was taken), the numbers, what may
 * be said of both, and the keys. The pictures and their cursor are in compare_pictures.js.
 *
 * @import {Side} from "./compare_sides.js"
 * @import {Real} from "./compare_predicted.js"
 */

import { byId, findAll, write } from "./dom.js";
import { differences, headline, modeWords, numbersOf, obstacleOf } from "./compare_numbers.js";
import { mountPictures } from "./compare_pictures.js";
import { foretoldOf, likeWithLike, numbersShown, obstacleTo, reallyWords } from "./compare_predicted.js";
import { mountSides, nameOf, takeDemo, takeGhost } from "./compare_sides.js";
import { sharedWords, verdict } from "./compare_verdict.js";
import { FIGURES, farWords, groupWords, howWords, nextWords, reallyColumn, twin } from "./compare_words.js";
import { duration, NONE, percent, rate } from "./format.js";
import { renderTable } from "./table.js";
import { mountTheme } from "./theme.js";

document.documentElement.dataset.js = "on";

const sides = mountSides(show);
const both = Object.values(sides);
const pictures = mountPictures(both);
const theme = mountTheme(pictures.recolour);

// -- what is shown -------------------------------------------------------------------------------

function show() {
  const shown = likeWithLike(sides.a.run, sides.b.run);
  const { a, b, real } = shown;
  const differing = a && b ? differences(a, b) : [];
  for (const side of both) {
    side.shown = shown[side.id];
    showSide(side, real?.name === nameOf(side) ? real : null, differing);
  }
  const why = a && b ? obstacleTo(a, b, real) : emptyWords();
  write(byId("verdict"), a && b && why === null ? verdict(a, b, differing, real && foretoldOf(real)) : (why ?? ""));
  write(byId("how"), a && b ? (sides.a.demo ? "This is a demo, not your engine. " : "") + howWords(a, b, real) + sharedWords(a, b, differing) : "");
  const numbers = { a: a && numbersShown(a, real), b: b && numbersShown(b, real) };
  const endless = [a, b].find((run) => run?.over === false);
  renderTable(byId("numbers", HTMLTableElement), twin(numbers, why === null, endless ? farWords(endless) : "", reallyColumn(real)), null);
  pictures.draw();
}

/** What stands in the verdict's place while a side is empty: what is under way for it, or why the other one is not compared. What to do stands on the side itself. */
function emptyWords() {
  const empty = both.filter(({ run }) => !run);
  const busy = empty.map(({ parts }) => parts.busy.textContent).filter(Boolean);
  const { other } = empty[0];
  if (busy.length) return busy.at(-1) ?? "";
  if (!other.run) return "Both sides are empty: take a run for each.";
  return obstacleOf(nameOf(other), other.run) ?? `${nameOf(empty[0])} is still empty, so there is nothing to compare.`;
}

/** @param {Side} side @param {Real | null} real where what is shown stands in for it @param {string[]} differing */
function showSide(side, real, differing) {
  const { shown: run, from, demo, root, parts } = side;
  root.classList.toggle("demo", demo);
  parts.label.hidden = parts.from.hidden = !run;
  write(parts.empty, nextWords(nameOf(side), side.other.run !== null));
  if (!run) {
    for (const name of ["mode", "moment", "groups", "really"]) write(parts[name], "");
    write(parts["big-words"], FIGURES.makespan.words);
    for (const name of ["big", "rate", "ttft", "gap", "occupancy"]) write(parts[name], NONE);
    return;
  }
  const turned = (real?.run ?? run).turned;
  write(parts.mode, modeWords(run, differing) || run.config.batching);
  write(parts.label, run.hello.simulated ? "simulated" : run.gated ? "gated" : "measured");
  write(parts.from, `${from}${real ? ", replayed by the model" : ""}${turned.size ? `; turned while it ran: ${[...turned].join(", ")}` : ""}`);
  write(parts.really, real ? reallyWords(real, run, differing) : "");
  write(parts.groups, groupWords(run));
  showFigures(side, differing);
}

/** What stands large is the number that the verdict is about. @param {Side} side @param {string[]} differing */
function showFigures({ shown: run, parts }, differing) {
  if (!run) return;
  const numbers = numbersOf(run);
  const figure = FIGURES[headline(differing)];
  write(parts.big, figure.show(numbers));
  const far = farWords(run);
  write(parts["big-words"], run.over ? figure.words : figure === FIGURES.makespan ? far : `${figure.words}, ${far}`);
  write(parts.rate, `${rate(numbers.rate)} tok/s`);
  write(parts.ttft, duration(numbers.ttft));
  write(parts.gap, duration(numbers.gap));
  write(parts.occupancy, percent(numbers.occupancy));
}

// -- the page ------------------------------------------------------------------------------------

byId("theme").addEventListener("click", theme.toggle);
for (const radio of findAll(document, "input[name=unit]", HTMLInputElement)) {
  radio.addEventListener("change", () => pictures.setUnit(radio.value === "steps" ? "steps" : "time"));
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest("input, select, textarea")) return;
  const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
  if (by && scrollsSideways(event.target)) return; // there the arrows show the rest of it
  if (by) pictures.moveBy(event.shiftKey ? by / 20 : by / 200);
  else if (event.key.toLowerCase() === "t") theme.toggle();
  else return;
  event.preventDefault();
});

/** Whether the arrows move something around this: on a phone the numbers are wider than their place. @param {EventTarget | null} target */
function scrollsSideways(target) {
  for (let each = target instanceof Element ? target : null; each && each !== document.body; each = each.parentElement) {
    if (each.scrollWidth > each.clientWidth && /auto|scroll/.test(getComputedStyle(each).overflowX)) return true;
  }
  return false;
}

const wanted = new URLSearchParams(location.search);
const [engine, ghost] = [wanted.get("engine"), wanted.get("ghost")];
for (const { engines } of both) if (engines && engine !== null) engines.value = engine;
if (ghost !== null) {
  sides.b.ghost.value = ghost;
  takeGhost(sides.b, engine ?? sides.b.engines?.value ?? "", ghost);
} else {
  takeDemo(sides.a, "static");
  takeDemo(sides.b, "continuous");
}

/** For tests and the curious: read only. */
/** @type {any} */ (window).compare = Object.freeze({
  numbers: () => Object.fromEntries(both.map(({ id, shown }) => [id, shown && numbersOf(shown)])),
  ready: () => both.every(({ run, parts }) => run !== null && parts.busy.textContent === ""),
});
