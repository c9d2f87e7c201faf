"""The Latency panel: gaps, targets, goodput and classes against the arithmetic on what the server says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import quiet, send, settle, shown_ms, table, wait_for
from tests.browser.test_accessibility import violations
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

Row = dict[str, Any]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Quick; long prompts take several steps."""
    with serving("--scripted-step-ms", "3", "--num-blocks", "320", "--max-num-batched-tokens", "128") as running:
        yield running


# -- gaps, by a fake clock ---------------------------------------------------------------------------------------


def row(request: str, *, phase: str = "decode", scheduled: int = 1, out: int = 1) -> Row:
    return {"request": request, "phase": phase, "scheduled": scheduled, "out": out}


def history_of(steps: dict[int, Row], *, first: dict[str, int], preempted: dict[int, str] | None = None) -> str:
    """A page's history as a JavaScript expression. A step is {"at": seconds, "rows", and "took" or "gated"}."""
    events = {}
    for column, step in steps.items():
        took = step.get("took", 1)
        times = {"start_us": (step["at"] - took) * 1_000_000, "wall_us": took * 1_000_000}
        events[column] = {
            "step": column,
            "accepted_us": step["at"] * 1_000_000,
            "gated": step.get("gated", False),
            "rows": step["rows"],
            **times,
        }
    notes = {column: {"preempted": [{"request": request}]} for column, request in (preempted or {}).items()}
    known = {"last": max(steps), "base": 0, "epoch": "e", "epochs": []}
    lanes = [[request, {"first": column}] for request, column in first.items()]
    return f"""{{...{json.dumps(known)}, lanes: new Map({json.dumps(lanes)}),
      steps: new Map({json.dumps(list(events.items()))}), notes: new Map({json.dumps(list(notes.items()))})}}"""


def gaps(still: Page, history: str, begin: int = 0, end: int = 99) -> list[Row]:
    found: list[Row] = call(still, "itl", f"m.gapsBetween({history}, {begin}, {end})")
    return found


def test_the_gaps_of_the_fake_clock_example(still: Page) -> None:
    """METRICS: first token at 3, more at 4, 5 and 6."""
    steps = {n: {"at": n + 2, "rows": [row("R1")]} for n in (1, 2, 3, 4)}
    found = gaps(still, history_of(steps, first={"R1": 1}))
    assert [(gap["column"], gap["us"], gap["gated"]) for gap in found] == [
        (4, 1_000_000, False), (3, 1_000_000, False), (2, 1_000_000, False),
    ]  # fmt: skip


def test_tokens_accepted_in_one_step_are_one_delivery(still: Page) -> None:
    steps = {1: {"at": 1, "rows": [row("R1")]}, 2: {"at": 2, "rows": [row("R1", out=4)]}}
    assert [gap["us"] for gap in gaps(still, history_of(steps, first={"R1": 1}))] == [1_000_000]


@pytest.mark.parametrize("how", ["stepped by hand", "held in between"])
def test_a_gap_that_the_gate_had_a_part_in_is_no_sample(still: Page, how: str) -> None:
    steps: dict[int, Row] = {n: {"at": n, "rows": [row("R1")]} for n in (1, 2, 3)}
    if how == "stepped by hand":
        steps[2]["gated"] = True
    else:
        steps[2]["took"] = 0.5  # for half of the second before no step ran
    history = history_of(steps, first={"R1": 1})
    assert [(gap["column"], gap["gated"]) for gap in gaps(still, history)] == [(3, False), (2, True)]
    assert call(still, "gap_window", f"[...m.tallyOf({json.dumps(gaps(still, history))})]") == [[1_000_000, 1]]


def test_requests_that_decode_side_by_side_have_one_gap_and_others_their_own(still: Page) -> None:
    """R2 misses a step; R3 begins in it."""
    rows = {
        1: [row("R1"), row("R2")],
        2: [row("R1"), row("R3", phase="prefill")],
        3: [row("R1"), row("R3"), row("R2")],
        4: [row("R1"), row("R3"), row("R2")],
    }
    history = history_of({n: {"at": n, "rows": each} for n, each in rows.items()}, first={"R1": 1, "R2": 1, "R3": 2})
    told = [(gap["column"], gap["since"], gap["requests"], gap["us"]) for gap in gaps(still, history)]
    assert told == [
        (4, 3, ["R1", "R3", "R2"], 1_000_000),
        (3, 2, ["R1", "R3"], 1_000_000),
        (3, 1, ["R2"], 2_000_000),
        (2, 1, ["R1"], 1_000_000),
    ]
    words = call(still, "itl", f"m.gapWords({json.dumps(gaps(still, history)[0])}, {history})")
    assert words.startswith("R1 and 2 others · 1,000 ms since their last token · step 4 ")


def test_a_window_that_moves_on_and_learns_of_older_steps_has_the_gaps_of_its_steps(still: Page) -> None:
    rows = [row("R1"), row("R2")]
    history = history_of({n: {"at": n, "rows": rows} for n in range(1, 20)}, first={"R1": 1, "R2": 1})
    assert (
        call(
            still,
            "gap_window",
            f"""import("/static/js/itl.js").then(({{ gapsBetween }}) => {{
          const known = m.createGapWindow();
          const history = {history};
          const newer = new Map([...history.steps].slice(4));
          const same = (to, from = to - 6) => {{
            const expected = gapsBetween(history, from, to);
            const found = [...known.bySteps(history, from, to)].flat();
            return expected.length > 0 && JSON.stringify(found) === JSON.stringify(expected);
          }};
          const all = history.steps;
          history.steps = newer;
          const before = [10, 11, 16, 12].map((to) => same(to));
          history.steps = all;
          return [...before, same(10), same(19, 1)];
        }})""",
        )
        == [True] * 6
    )


def test_a_view_of_more_steps_than_are_kept_loses_none_and_learns_them_once(still: Page) -> None:
    script = """(() => {
      let read = 0;
      const at = (n) => ({
        step: n, start_us: n, wall_us: 1, accepted_us: n,
        get rows() {
          read += 1;
          return [{ request: "R1", out: 1 }];
        },
      });
      const steps = new Map(Array.from({ length: 6000 }, (_, i) => [i + 1, at(i + 1)]));
      const history = { steps, last: 6000, lanes: new Map([["R1", { first: 1 }]]) };
      const known = m.createGapWindow();
      const look = () => [...known.bySteps(history, 1, 6000)].flat().length;
      const first = look();
      read = 0;
      return [first, look(), read];
    })()"""
    assert call(still, "gap_window", script) == [5999, 5999, 0]


def test_a_gap_into_which_a_hole_falls_is_not_known(still: Page) -> None:
    steps = {n: {"at": n, "rows": [row("R1")]} for n in (1, 2, 4, 5)}
    assert [gap["column"] for gap in gaps(still, history_of(steps, first={"R1": 1}))] == [5, 2]


def test_the_delivery_before_is_found_before_the_window(still: Page) -> None:
    steps: dict[int, Row] = {n: {"at": n, "rows": [row("R2")]} for n in range(2, 9)}
    steps[1] = {"at": 1, "rows": [row("R1")]}
    steps[9] = {"at": 9, "rows": [row("R1", phase="prefill", scheduled=40)]}
    history = history_of(dict(sorted(steps.items())), first={"R1": 1, "R2": 2}, preempted={2: "R1"})
    (gap,) = gaps(still, history, begin=9)
    assert (gap["since"], gap["us"]) == (1, 8_000_000)
    words = call(still, "itl", f"m.meanwhileWords({json.dumps(gap)}, {history})")
    assert words == "preempted, 40 tok computed again; steps 2 to 9 computed no prompt, 1 request in it"


def test_a_spike_names_the_request_the_gap_and_what_its_step_did(still: Page) -> None:
    stall = [row("R3"), row("R9", phase="prefill", scheduled=512, out=0)]
    history = history_of(
        {40: {"at": 1, "rows": [row("R3")]}, 41: {"at": 3, "took": 2, "rows": stall}}, first={"R3": 40}
    )
    (gap,) = gaps(still, history)
    words = call(still, "itl", f"m.gapWords({json.dumps(gap)}, {history})")
    assert words == "R3 · 2,000 ms since its last token · step 41 prefilled 512 tok of R9"


# -- targets and classes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttft", "tpot", "reason", "gated", "met"),
    [
        (2000, 200, "length", 0, True),  # at the target is within it
        (2001, 200, "stop", 0, False),
        (2000, 201, "stop", 0, False),
        (2000, None, "length", 0, True),  # one token: TTFT alone decides
        (2001, None, "length", 0, False),
        (None, None, "error", 0, False),
        (1, 1, "error", 0, False),
        (1, 1, "abort", 0, None),
        (1, 1, "stop", 5, None),
    ],
)
def test_a_request_met_both_targets(
    still: Page, ttft: int | None, tpot: int | None, reason: str, gated: int, met: bool | None
) -> None:
    sample = {"reason": reason, "timings": {"ttft_us": ttft, "tpot_us": tpot, "gated_us": gated}}
    targets = {"ttft_us": 2000, "tpot_us": 200}
    assert call(still, "targets", f"m.metBoth({json.dumps(sample)}, {json.dumps(targets)})") is met


@pytest.mark.parametrize(
    ("targets", "share"), [((2, 2), 0.5), ((2, None), 0.75), ((None, 2), 0.75), ((None, None), None)]
)
def test_goodput_is_the_share_that_met_what_is_asked(
    still: Page, targets: tuple[int | None, int | None], share: float | None
) -> None:
    pairs = [(1, 1), (9, 1), (1, 9), (1, None)]
    finished = [{"reason": "stop", "timings": {"ttft_us": a, "tpot_us": b, "gated_us": 0}} for a, b in pairs]
    asked = json.dumps({"ttft_us": targets[0], "tpot_us": targets[1]})
    found = call(still, "targets", f"m.goodput({json.dumps(finished)}, {asked})")
    assert (found["n"], found["share"]) == (4, share)
    assert call(still, "targets", f"m.goodput([], {asked}).share") is None


@pytest.mark.parametrize(
    ("prompt", "tokens", "label", "name"),
    [
        (255, 127, None, "short prompt, short answer"),
        (256, 128, None, "long prompt, long answer"),
        (256, 1, None, "long prompt, short answer"),
        (9, 900, "chat", "chat"),
    ],
)
def test_a_request_is_of_its_callers_class_or_of_its_lengths(
    still: Page, prompt: int, tokens: int, label: str | None, name: str
) -> None:
    sample = json.dumps({"prompt": prompt, "tokens": tokens, "label": label})
    assert call(still, "classes", f"m.classOf({sample})") == name


# -- on the page -------------------------------------------------------------------------------------------------


def complete(served: Served, prompt: str, **fields: Any) -> None:
    body = {"model": "default", "prompt": prompt, **fields}
    served.client.post("/v1/completions", json=body).raise_for_status()


def rank(samples: list[float], p: int) -> float:
    ordered = sorted(samples)
    return ordered[max(0, -(-p * len(ordered) // 100) - 1)]


def panel_row(page: Page, timing: str) -> dict[str, str]:
    cells = page.locator(f"#panel-latency [data-timing={timing}] td[class]")
    found: dict[str, str] = cells.evaluate_all(
        "all => Object.fromEntries(all.map((c) => [c.classList[0], c.textContent]))"
    )
    return found


def finished(served: Served) -> list[Row]:
    requests = served.client.get("/api/requests").json()["requests"]
    return [each for each in requests if each["finish_reason"] is not None]


def deliveries(served: Served) -> list[tuple[int, int, str]]:
    """Every gap between deliveries so far: (us, step that ended it, request)."""
    steps = served.client.get("/api/steps?limit=100000").json()["steps"]
    assert len(steps) < 500  # the page's window holds them all
    last: dict[str, int] = {}
    found = []
    for step in steps:
        for request in (each["request"] for each in step["rows"] if each["out"]):
            if request in last:
                found.append((step["accepted_us"] - last[request], step["step"], request))
            last[request] = step["accepted_us"]
    return found


def test_goodput_and_shares_are_those_of_the_requests(page: Page, served: Served) -> None:
    for i in range(6):
        complete(served, f"prompt {i} " * (1 + 9 * i), max_tokens=1 if i == 0 else 6)
    settle(page)
    requests = finished(served)
    wait_for(page, f"stepscope.finished().length === {len(requests)}")
    ttft = [each["timings"]["ttft_us"] for each in requests]
    tpot = [each["timings"]["tpot_us"] for each in requests if each["timings"]["tpot_us"] is not None]
    target_ms = {"ttft": rank(ttft, 50) / 1000, "tpot": rank(tpot, 50) / 1000}
    for name, ms in target_ms.items():
        page.fill(f"#panel-latency [name={name}]", str(ms))
    met = [
        each["timings"]["ttft_us"] <= rank(ttft, 50)
        and (each["timings"]["tpot_us"] is None or each["timings"]["tpot_us"] <= rank(tpot, 50))
        for each in requests
    ]
    words = f"{sum(met)} of {len(met)} requests met both"
    expect(page.locator("[data-goodput]")).to_contain_text(words)
    within = sum(us <= rank(ttft, 50) for us in ttft) / len(ttft)
    shown = panel_row(page, "ttft_us")
    assert shown["within"] == f"{within * 100:.0f} %"
    assert (shown["p50"], shown["n"]) == (shown_ms(rank(ttft, 50)), str(len(ttft)))
    assert len(tpot) < len(ttft)
    assert panel_row(page, "tpot_us")["n"] == str(len(tpot))
    verdicts = {each["request"]: each["targets"] for each in table(page, "latency")}
    assert [verdicts[each["id"]] == "met" for each in requests] == met


def test_percentiles_of_few_samples_are_grey(page: Page) -> None:
    send(page, "One of few", max_tokens=3)
    settle(page)
    line = page.locator("#panel-latency [data-timing=ttft_us]")
    expect(line.locator(".p50")).not_to_have_class("p50 thin")
    expect(line.locator(".p95")).to_have_class("p95 thin")
    expect(line.locator(".p99")).to_have_class("p99 thin")
    expect(page.locator("#panel-latency .detail")).to_contain_text("Window: the last 200 finished requests")


def test_itl_and_its_table_are_those_of_the_steps(page: Page, served: Served) -> None:
    send(page, "Something to deliver", max_tokens=20, copies=3)
    complete(served, "long " * 200, max_tokens=4)
    settle(page)
    samples = deliveries(served)
    expect(page.locator("[data-timing=itl] .n")).to_have_text(f"{len(samples):,}")
    shown = panel_row(page, "itl")
    for p in (50, 95, 99):
        assert shown[f"p{p}"] == shown_ms(rank([us for us, *_ in samples], p))
    page.click("[data-view=gaps]")
    longest = table(page, "latency")[0]
    us = max(samples)[0]
    assert longest["gap ms"] == f"{us / 1000:.3f}"
    assert (us, int(longest["step"]), longest["request"]) in samples


def test_a_spike_is_chosen_as_its_step_by_pointer_and_by_key(page: Page) -> None:
    send(page, "Two tokens and more", max_tokens=9)
    settle(page)
    page.locator("[data-view=gaps]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-view=gaps]")).to_have_attribute("aria-pressed", "true")
    last = page.evaluate("stepscope.state().step")
    canvas = page.locator("#panel-latency canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] - 10, "y": box["height"] - 20})
    assert page.evaluate("stepscope.moment().step") == last
    assert page.evaluate("stepscope.choice().kind") == "step"
    wait_for(page, "location.hash.includes('latency=gaps')")
    page.keyboard.press("Escape")
    step = int(table(page, "latency")[0]["step"])
    page.locator("#panel-latency td button").first.focus()
    page.keyboard.press("Enter")
    wait_for(page, f"stepscope.moment().step === {step}")
    expect(page.locator("#panel-latency .detail")).to_contain_text("Longest in it: ")
    assert violations(page) == []


def test_a_class_is_looked_at_alone(page: Page, served: Served) -> None:
    quiet(served)
    for prompt in ("hello", "hello again"):
        complete(served, prompt, max_tokens=5, **{"class": "batch"})
    complete(served, "hello", max_tokens=5)
    settle(page)
    labels = {each["id"]: each["request_class"] for each in finished(served)}
    wait_for(page, f"stepscope.finished().length === {len(labels)}")
    batch = {request for request, label in labels.items() if label == "batch"}
    assert len(batch) == 2
    page.select_option("#latency-form [name=kind]", label="batch (2)")
    expect(page.locator("[data-timing=e2e_us] .n")).to_have_text("2")
    assert {each["request"] for each in table(page, "latency")} == batch
    expect(page.locator("[data-timing=itl] .n")).to_have_text("8")
    expect(page.locator("#panel-latency .detail")).to_contain_text("a prompt of 256 tokens or more")


def test_targets_and_picture_survive_a_reload_and_an_empty_target_is_none(page: Page) -> None:
    send(page, "Judge me", max_tokens=3)
    settle(page)
    page.fill("#panel-latency [name=ttft]", "7.5")
    page.fill("#panel-latency [name=tpot]", "")
    expect(page.locator("[data-goodput]")).to_contain_text("met it")
    page.click("[data-view=gaps]")
    page.reload()
    expect(page.locator("#panel-latency [name=ttft]")).to_have_value("7.5")
    expect(page.locator("#panel-latency [name=tpot]")).to_have_value("")
    expect(page.locator("[data-view=gaps]")).to_have_attribute("aria-pressed", "true")
    page.fill("#panel-latency [name=ttft]", "-1")
    expect(page.locator("#panel-latency .error")).to_have_text(
        "The TTFT target is -1; it must be a number of ms above 0, or empty for no target."
    )
    expect(page.locator("[data-goodput]")).to_have_text("– · no target is set")


def test_a_past_moment_has_the_gaps_and_the_goodput_of_then(page: Page, served: Served) -> None:
    for _ in range(2):
        send(page, "Twice", max_tokens=10)
        settle(page)
    n, judged = len(deliveries(served)), len(page.evaluate("stepscope.finished()"))
    page.locator("h2").first.click()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-goodput]")).to_contain_text(f"of {judged - 1} request")
    step = page.evaluate("stepscope.moment().step")
    then = sum(ended <= step for _, ended, _ in deliveries(served))
    assert then == n - 5
    expect(page.locator("[data-timing=itl] .n")).to_have_text(str(then))
    page.keyboard.press("l")
    expect(page.locator("[data-timing=itl] .n")).to_have_text(str(n))
