"""The scheduler's debugger: breakpoints, conditions, slow motion, explanations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import burst, frames, pause, quiet, run, send, settle, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations

pytestmark = pytest.mark.browser

HIT = "stepscope.state().gate.hit !== null"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """So few blocks that eight answers do not fit."""
    with serving("--scripted-step-ms", "4", "--num-blocks", "40", "--max-num-batched-tokens", "64") as running:
        yield running


@pytest.fixture
def page(open_page: OpenPage, served: Served) -> Iterator[Page]:
    unset(served)
    quiet(served)
    yield open_page(served.url)
    unset(served)


def unset(served: Served) -> None:
    for body in ({"action": "break", "on": []}, {"action": "rate", "per_second": None}):
        served.client.post("/api/gate", json=body).raise_for_status()


def event_of(served: Served, request: str, name: str) -> dict[str, Any]:
    timeline = served.client.get(f"/api/requests/{request}").json()["timeline"]
    found: dict[str, Any] = next(event for event in timeline if event.get("event") == name)
    return found


def wait_idle(page: Page) -> None:
    wait_for(page, "Object.values(stepscope.state().queues).every((queue) => queue.length === 0)")


def call(page: Page, module: str, expression: str) -> Any:
    return page.evaluate(
        f"""async () => {{ const m = await import("/static/js/{module}.js"); return {expression}; }}"""
    )


def test_break_on_preempt_read_why_step_turn_a_knob_and_run_on(page: Page, served: Served) -> None:
    page.check("[data-break=preempt]")
    wait_for(page, "stepscope.state().gate.breaks.includes('preempt')")
    while not page.evaluate(HIT):
        burst(page)
        page.wait_for_timeout(200)
    hit = page.evaluate("stepscope.state().gate.hit")
    event = event_of(served, hit["request"], "preempted")
    gate = page.locator("#panel-gate")
    expect(gate.locator("[data-gate=state]")).to_have_text(
        f"Stopped after step {hit['step']:,}: a request was preempted ({hit['request']})."
    )
    expect(gate.locator("[data-gate=sentence]")).to_contain_text(
        f"Step {hit['step']:,}: {event['request']} was preempted, it held {event['num_held_blocks']} blocks, "
    )
    expect(gate.locator("[data-gate=sentence]")).to_contain_text(f"needed {event['needed']} and none was free")
    expect(gate.locator("[data-gate=gated]")).to_have_text("gated: times are not measurements")
    expect(page.locator("#panel-timeline .detail")).to_contain_text(f"{event['request']} was preempted")

    page.uncheck("[data-break=preempt]")
    wait_for(page, "stepscope.state().gate.breaks.length === 0")
    for n in range(1, 4):
        page.click("#gate-moves [value=step]")
        wait_for(page, f"stepscope.state().step === {hit['step'] + n}")
    assert page.evaluate("stepscope.state().gate.state") == "paused"
    assert served.state()["step"] == hit["step"] + 3

    page.fill("#knob-max_num_seqs", "4")
    page.click("[data-apply]")
    row = page.locator("[data-knob=max_num_seqs]")
    expect(row).to_contain_text(f"in effect from step {hit['step'] + 4:,} on")
    wait_for(page, "stepscope.state().config.max_num_seqs === 4")
    assert page.evaluate("stepscope.state().step") == hit["step"] + 3

    page.click("#gate-moves [value=run]")
    wait_idle(page)
    served.client.patch("/api/config", json={"max_num_seqs": 8}).raise_for_status()


def test_a_reload_at_a_breakpoint_loses_nothing_of_its_explanation(page: Page, served: Served) -> None:
    page.check("[data-break=preempt]")
    wait_for(page, "stepscope.state().gate.breaks.includes('preempt')")
    while not page.evaluate(HIT):
        burst(page)
        page.wait_for_timeout(200)
    hit = page.evaluate("stepscope.state().gate.hit")
    held = event_of(served, hit["request"], "preempted")["num_held_blocks"]
    sentence, lines = page.locator("[data-gate=sentence]"), page.locator("#panel-queue .preemptions li")
    expect(sentence).to_contain_text(f"{hit['request']} was preempted, it held {held} blocks, ")
    expect(lines.first).to_contain_text(f": {hit['request']} preempted, ")  # it follows twice a second
    said, log = sentence.inner_text(), lines.all_inner_texts()
    page.reload()
    expect(sentence).to_have_text(said)
    expect(lines).to_have_text(log)


def test_a_condition_stops_it_and_its_numbers_are_said(page: Page) -> None:
    page.fill("[name=if]", "free_blocks + cached_idle_blocks < 30 and running > 1")
    page.locator("[name=if]").press("Enter")
    expect(page.locator("[data-break='if:']")).to_be_checked()
    burst(page)
    wait_for(page, HIT)
    counts = page.evaluate("stepscope.state().blocks.counts")
    assert counts["free"] + counts["cached_idle"] < 30
    sentence = page.locator("[data-gate=sentence]")
    expect(sentence).to_contain_text(f"free_blocks is {counts['free']}")
    expect(sentence).to_contain_text(f"cached_idle_blocks is {counts['cached_idle']}")


def test_a_condition_that_cannot_be_read_is_refused_beside_its_field(page: Page, faults: list[str]) -> None:
    page.fill("[name=if]", "free_blox < 4")
    page.click("[data-break='if:']")  # not check(): the refusal may clear the box before that has looked
    expect(page.locator("#gate-breaks-error")).to_contain_text("The condition names free_blox; it may name step,")
    expect(page.locator("[data-break='if:']")).not_to_be_checked()
    assert page.input_value("[name=if]") == "free_blox < 4"
    assert page.evaluate("stepscope.state().gate.breaks") == []
    assert "400" in faults.pop()


def test_the_names_it_shows_are_those_that_a_condition_may_use(page: Page) -> None:
    names = page.locator("#gate-names code").all_inner_texts()[:-1]
    text = " + ".join(name.strip() for name in names) + " < 0"
    page.fill("[name=if]", text)
    page.check("[data-break='if:']")
    wait_for(page, f"stepscope.state().gate.breaks.includes({'if:' + text!r})")


def test_the_chosen_request_stops_it_when_it_is_scheduled(page: Page, served: Served) -> None:
    pause(page, served)
    request, other = send(page, "Watch me", max_tokens=20, copies=2)
    page.click(f"[data-request={other}] [data-select]")
    page.check("[data-break='request:']")
    wait_for(page, f"stepscope.state().gate.breaks.includes('request:{other}')")
    page.click("#gate-moves [value=run]")
    wait_for(page, HIT)
    assert page.evaluate("stepscope.state().gate.hit.request") == other
    expect(page.locator("[data-gate=state]")).to_contain_text(f"{other} was scheduled.")
    assert request != other


def test_no_chosen_request_is_said_and_sets_nothing(page: Page) -> None:
    page.locator("[data-break='request:']").click()
    expect(page.locator("#gate-breaks-error")).to_contain_text("Choose a request first")
    expect(page.locator("[data-break='request:']")).not_to_be_checked()


def test_breakpoints_set_elsewhere_show_here_and_stay_when_another_is_set(page: Page, served: Served) -> None:
    served.client.post("/api/gate", json={"action": "break", "on": ["finish", "slow_step:900"]}).raise_for_status()
    expect(page.locator("[data-break=finish]")).to_be_checked()
    expect(page.locator("[data-break='slow_step:']")).to_be_checked()
    page.check("[data-break=eviction]")
    wait_for(page, "stepscope.state().gate.breaks.length === 3")
    assert page.evaluate("stepscope.state().gate.breaks") == ["finish", "slow_step:900", "eviction"]


def test_slow_motion_takes_so_many_steps_and_is_no_measurement(page: Page) -> None:
    page.click("[data-rate='20']")
    wait_for(page, "stepscope.state().gate.per_second === 20")
    expect(page.locator("[data-rate='20']")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-part=gated]")).to_be_visible()
    expect(page.locator("[data-gate=state]")).to_have_text("Running, at most 20 steps a second.")
    send(page, "In slow motion", max_tokens=8)
    settle(page)
    assert page.evaluate("stepscope.finished().at(-1).timings.gated_us") > 0
    page.click("[data-rate='']")
    expect(page.locator("[data-part=gated]")).to_be_hidden()


def test_a_number_of_steps_that_cannot_be_is_refused_beside_its_field(page: Page, faults: list[str]) -> None:
    page.fill("#gate-moves [name=steps]", "0")
    page.click("#gate-moves [value=step]")
    expect(page.locator("#gate-moves-error")).to_contain_text("steps must be a whole number from 1")
    assert "400" in faults.pop()


def test_several_steps_at_once_and_then_it_is_paused(page: Page, served: Served) -> None:
    before = pause(page, served)["step"]
    send(page, "Count with me", max_tokens=50)
    page.fill("#gate-moves [name=steps]", "7")
    page.click("#gate-moves [value=step]")
    wait_for(page, f"stepscope.state().step === {before + 7} && stepscope.state().gate.steps_left === 0")
    expect(page.locator("[data-gate=state]")).to_have_text(f"Paused after step {before + 7:,}.")


def test_what_is_typed_in_the_gate_survives_a_reload(page: Page) -> None:
    page.fill("[name=if]", "waiting > 2 and")
    page.reload()
    expect(page.locator("[name=if]")).to_have_value("waiting > 2 and")


def test_the_queue_says_where_it_was_decided(page: Page, served: Served) -> None:
    page.check("[data-break=preempt]")
    burst(page)
    wait_for(page, HIT)
    head = served.state()["queues"]["waiting"][0]
    source = served.state()["requests"][head]["reason"]["source"]
    decided = page.locator("#panel-queue .decided")
    expect(decided).to_contain_text(f"{head}: this step preempted somebody")
    expect(decided.locator("code")).to_have_text(source)


STEP = {
    "step": 41,
    "rows": [{"request": "R3", "phase": "decode", "out": 1, "drafted": 0, "accepted": 0}],
    "evicted": [],
    "waiting": [],
    "ended_by": "after_preemption",
    "gated": False,
    "num_scheduled_tokens": 1,
    "token_budget": 64,
    "wall_us": 20_000,
}
PREEMPTED = {
    "event": "preempted",
    "request": "R7",
    "by": "R3",
    "needed": 1,
    "free": 0,
    "num_held_blocks": 6,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "R7 was preempted, it held 6 blocks, R3 needed 1 and none was free; R3 wrote 1 token; "),
        ({"by": "R7", "needed": 2, "free": 1}, "it held 6 blocks, it needed 2 and only 1 was free"),
        ({"free": 1}, "R7 was preempted, it held 6 blocks, the more urgent R3 took its place"),
    ],
)
def test_a_preemption_is_explained(still: Page, changes: dict[str, Any], words: str) -> None:
    script = f"""(async () => {{
      const {{ noNotes }} = await import("/static/js/notes.js");
      return m.explainStep({js(STEP)}, {{ ...noNotes(), preempted: [{js({**PREEMPTED, **changes})}] }});
    }})()"""
    said = call(still, "explain", f"await {script}")
    assert said.startswith("Step 41: ")
    assert words in said
    assert said.endswith("1 of 64 tokens in 20 ms.")


def test_a_step_that_took_everybody_says_so_plainly(still: Page) -> None:
    said = call(still, "explain", f"m.explainStep({js({**STEP, 'ended_by': 'all_scheduled'})})")
    assert said == "Step 41: R3 wrote 1 token; nobody was left to schedule. 1 of 64 tokens in 20 ms."


def test_blocks_that_are_short_do_not_count_those_cached_for_the_request(still: Page) -> None:
    reason = {"code": "blocks_short", "needs": 3, "free": 0}
    assert call(still, "format", f"m.waitWords({js(reason)})") == "needs 3 blocks besides any cached for it, 0 free"


def test_who_stands_behind_another_is_told_what_that_one_waits_for(still: Page) -> None:
    reason = {"code": "behind_head", "by": "R7"}
    head = {"R7": {"reason": {"code": "slots_full", "limit": 8}}}
    assert call(still, "format", f"m.waitWords({js(reason)}, {js(head)})") == "behind R7: all 8 slots are taken"
    assert call(still, "format", f"m.waitWords({js(reason)}, {{}})") == "behind R7, which is blocked"


def js(value: object) -> str:
    return json.dumps(value)


@pytest.fixture
def grouped() -> Iterator[Served]:
    with serving("--scripted-step-ms", "25", "--batching", "static") as running:
        yield running


def test_static_batching_says_what_the_queue_waits_for(grouped: Served, open_page: OpenPage) -> None:
    page = open_page(grouped.url)
    send(page, "The group", max_tokens=1500)
    wait_for(page, "stepscope.state().queues.running.length > 0")
    (late,) = send(page, "Too late", max_tokens=8)
    wait_for(page, f"stepscope.state().requests.{late}?.reason?.code === 'group_running'")
    expect(page.locator("#panel-queue tbody")).to_contain_text("the group before it still runs, 1 left")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious_at_a_breakpoint(
    open_page: OpenPage, served: Served, faults: list[str], scheme: str
) -> None:
    unset(served)
    quiet(served)
    page = open_page(served.url, color_scheme=scheme)
    page.check("[data-break=preempt]")
    burst(page)
    wait_for(page, HIT)
    page.fill("[name=if]", "nonsense <")
    page.locator("[name=if]").press("Enter")
    expect(page.locator("#gate-breaks-error")).not_to_be_empty()
    page.fill("#knob-num_blocks", "64")
    frames(page)
    assert violations(page) == []
    page.click("[data-apply]")
    expect(page.locator("#restart-ask")).to_be_visible()
    assert violations(page) == []
    page.click("[data-restart-no]")
    assert "400" in faults.pop()
    unset(served)
    run(served)
