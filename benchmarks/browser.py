"""`python -m benchmarks browser`: does the page keep up with a large, fast engine?

A synthetic engine (benchmarks/synthetic.py) dials a real app, and a headless Chromium shows its page. Once the page's
history is full, since then it has to forget as much as it hears, it is watched for a while; then its tab is hidden, and
shown again. Where nothing is drawn by a GPU and cores are few, frames come late for want of a rasteriser: so beside the
frames per second stands what the page's own scripts take of each, by the wall clock and in CPU time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

from benchmarks.figures import Figure
from benchmarks.playing import playing
from benchmarks.synthetic import Size

RESULT_FILE = Path(__file__).parent / "browser.out.json"
PROBE = Path(__file__).parent / "browser_probe.js"
ARGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
STAGE = {"width": 1280, "height": 720}
MIB = 2**20
FULL_STEPS = 20_000  # by then what the page counts in requests, samples and owners of blocks is full too

Json = dict[str, Any]


def table(size: Size, figures: Sequence[Figure]) -> str:
    lines = [
        f"The page at {size.num_blocks:,} blocks, {size.slots} slots, {size.steps_per_s:g} steps/s,"
        f" {STAGE['width']}×{STAGE['height']}, headless, no GPU"
    ]
    lines += [one.line(46, ">10.2f") for one in figures]
    return "\n".join(lines)


class Watched:
    """The page, and the ways to look at it from outside."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._browser: CDPSession = page.context.new_cdp_session(page)
        self._browser.send("Performance.enable", {"timeDomain": "threadTicks"})  # CPU time, not the wall's

    def cpu(self) -> dict[str, float]:
        """CPU seconds of its main thread so far: all of it, and the scripts' part."""
        found = {each["name"]: each["value"] for each in self._browser.send("Performance.getMetrics")["metrics"]}
        return {"task": found["TaskDuration"], "script": found["ScriptDuration"]}

    def heap(self, *, collect: bool) -> float:
        """MiB of JS heap; `collect`: of what is still needed."""
        if collect:
            self._browser.send("HeapProfiler.collectGarbage")
        used: float = self._browser.send("Runtime.getHeapUsage")["usedSize"]
        return used / MIB

    def step(self) -> int:
        number: int = self.page.evaluate("window.stepscope ? stepscope.moment().step : 0")
        return number

    def server_step(self) -> int:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            found = re.search(r"^stepscope:engine_steps_total\{.*\} ([\d.e+]+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def fill(self, seconds: float) -> bool:
        """Wait until the page forgets as much as it hears: steps, requests, samples; but no longer than this."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            forgets = self.page.evaluate("Boolean(window.stepscope) && Number.isFinite(stepscope.tape().floor)")
            if forgets and self.step() >= FULL_STEPS:
                return True
            time.sleep(0.5)
        return False


def watch(watched: Watched, seconds: float) -> Json:
    """What the page does in so many seconds."""
    heap_before = watched.heap(collect=True)
    watched.page.evaluate("probe.begin()")
    times = watched.page.evaluate("stepscope.cost().times")
    cpu, step, began = watched.cpu(), watched.step(), time.monotonic()
    heap = []
    while time.monotonic() - began < seconds:
        time.sleep(min(1.0, seconds))
        heap.append(watched.heap(collect=False))
    passed = time.monotonic() - began
    cpu_after, steps = watched.cpu(), watched.step() - step
    seen = watched.page.evaluate("({ frames: probe.frames, script: probe.script, long: probe.long })")
    drawn_since = {
        panel: (now - times.get(panel, 0)) / passed
        for panel, now in watched.page.evaluate("stepscope.cost().times").items()
        if now - times.get(panel, 0) > 1  # others are not on the screen, or show what stays
    }
    frames, script = seen["frames"], sorted(seen["script"])
    busy = [ms for ms in script if ms > 0]
    drawn = max(1, len(busy))
    return {
        "seconds": passed,
        "steps_per_s": steps / passed,
        "frames_per_s": 1000 * (len(frames) - 1) / (frames[-1] - frames[0]) if len(frames) > 1 else 0.0,
        "frame_gap_p95_ms": nearest_rank(sorted(b - a for a, b in itertools.pairwise(frames)), 95),
        "busy_frames": drawn,
        "script_p50_ms": nearest_rank(script, 50),
        "script_p95_ms": nearest_rank(script, 95),
        "busy_script_p50_ms": nearest_rank(busy, 50),
        "busy_script_p95_ms": nearest_rank(busy, 95),
        "script_cpu_ms": 1000 * (cpu_after["script"] - cpu["script"]) / drawn,
        "task_cpu_ms": 1000 * (cpu_after["task"] - cpu["task"]) / drawn,
        "drawn_per_s": drawn_since,
        "long_tasks": len(seen["long"]),
        "long_ms": sum(seen["long"]),
        "heap_mib": heap,
        "heap_before_mib": heap_before,
        "heap_after_mib": watched.heap(collect=True),
        "tape": watched.page.evaluate("stepscope.tape()"),
    }


def nearest_rank(values: Sequence[float], percent: float) -> float:
    """Of sorted values; 0 of none."""
    return values[max(0, -(-len(values) * int(percent) // 100) - 1)] if values else 0.0


def hide_and_show(watched: Watched, seconds: float) -> Json:
    """Hide the tab for so long; how long it then takes to be where the server was when it was shown."""
    watched.page.evaluate("probe.hide()")
    step, before = watched.step(), -1
    while step != before:  # until what was on its way has arrived
        time.sleep(1)
        step, before = watched.step(), step
    time.sleep(seconds)
    heard = watched.step() - step
    target = watched.server_step()
    return {
        "hidden_s": seconds,
        "missed_steps": target - step,
        "heard_hidden": heard,
        "current_ms": watched.page.evaluate("(step) => probe.show(step)", target),
    }


def figures(size: Size, seen: Json, hidden: Json) -> list[Figure]:
    growth = 100 * (seen["heap_after_mib"] / seen["heap_before_mib"] - 1)
    return [
        Figure("history full before", int(seen["full"]), "", at_least=1),
        Figure("engine steps that reached the page", seen["steps_per_s"], "1/s", at_least=0.95 * size.steps_per_s),
        Figure("frames", seen["frames_per_s"], "1/s", at_least=55),
        Figure("gap between frames, p95", seen["frame_gap_p95_ms"], "ms"),
        Figure("script per frame, p50", seen["script_p50_ms"], "ms"),
        Figure("script per frame, p95", seen["script_p95_ms"], "ms", at_most=4),
        Figure("script per frame that has work, p50", seen["busy_script_p50_ms"], "ms"),
        Figure("script per frame that has work, p95", seen["busy_script_p95_ms"], "ms"),
        Figure("script per frame that has work, mean CPU", seen["script_cpu_ms"], "ms"),
        Figure("main thread per frame that has work, mean CPU", seen["task_cpu_ms"], "ms"),
        Figure("the picture drawn most seldom", min(seen["drawn_per_s"].values(), default=0.0), "1/s"),
        Figure("tasks over 50 ms", seen["long_tasks"], f"in {seen['seconds']:.0f} s"),
        Figure("time in them", seen["long_ms"] / seen["seconds"] / 10, "%"),
        Figure("JS heap still needed, history full", seen["heap_before_mib"], "MiB"),
        Figure("the same at the end", seen["heap_after_mib"], "MiB", at_most=256),
        Figure("its growth", growth, "%", at_most=10),
        Figure("JS heap with garbage, most", max(seen["heap_mib"]), "MiB"),
        Figure("steps that the page can go back to", seen["tape"]["steps"], ""),
        Figure(f"hidden for {hidden['hidden_s']:g} s: steps heard", hidden["heard_hidden"], "", at_most=0),
        Figure("shown again: current after", hidden["current_ms"], "ms", at_most=1000),
    ]


def measure(size: Size, seconds: float, hidden_s: float, fill_s: float, chromium: str) -> tuple[Json, Json]:
    with playing(size) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGS))
        page = browser.new_page(viewport=STAGE)
        page.add_init_script(path=PROBE)
        page.goto(url, wait_until="commit", timeout=60_000)
        watched = Watched(page, url)
        full = watched.fill(fill_s)
        seen = {"full": full, **watch(watched, seconds)}
        hidden = hide_and_show(watched, hidden_s)
        browser.close()
    return seen, hidden


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks browser", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, metavar="N", help="how long to watch (default: 60)")
    parser.add_argument("--hidden-s", type=float, default=300, metavar="S", help="how long to hide it (default: 300)")
    parser.add_argument(
        "--fill-s", type=float, default=240, metavar="S", help="how long its history may take to fill (default: 240)"
    )
    parser.add_argument("--num-blocks", type=int, default=Size().num_blocks)
    parser.add_argument("--slots", type=int, default=Size().slots)
    parser.add_argument("--steps-per-s", type=float, default=Size().steps_per_s)
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, BROWSERS)), None), metavar="PATH")
    parser.add_argument("--json", type=Path, default=RESULT_FILE, help="where to write the result")
    args = parser.parse_args(argv)
    if args.chromium is None:
        print("No Chromium or Chrome found; name one: --chromium PATH.", file=sys.stderr)
        return 2
    size = Size(num_blocks=args.num_blocks, slots=args.slots, steps_per_s=args.steps_per_s)
    seen, hidden = measure(size, args.seconds, args.hidden_s, args.fill_s, args.chromium)
    found = figures(size, seen, hidden)
    kept = all(one.kept for one in found)
    result = {"benchmark": "browser", "size": asdict(size), "seen": seen, "hidden": hidden, "kept": kept}
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(table(size, found))
    print(f"written to {args.json}")
    return 0 if kept else 1
