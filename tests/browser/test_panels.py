"""Panels against the server's own word, and the selection that they share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import burst, frames, kv_pixels, pause, run, send, settle, table, wait_for, wait_running

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """At an unhurried pace, so that eight requests are caught while they run."""
    with serving("--scripted-step-ms", "15", "--num-blocks", "320") as running:
        yield running


def tokens_in_blocks(state: dict[str, Any]) -> dict[int, int]:
    """block -> computed tokens in it, from block tables and computed counts."""
    size = state["blocks"]["block_size"]
    filled: dict[int, int] = {}
    for request in (state["requests"][name] for name in state["queues"]["running"]):
        for index, block in enumerate(request["block_table"]):
            tokens = min(size, max(0, request["num_computed_tokens"] - index * size))
            filled[block] = max(filled.get(block, 0), tokens)
    return filled


def test_filled_and_cached_cells_in_the_picture_are_those_of_the_state(page: Page, served: Served) -> None:
    burst(page)
    settle(page)  # leaves cached idle blocks
    wait_running(page, burst(page))
    state = pause(page, served)
    try:
        filled = {block for block, tokens in tokens_in_blocks(state).items() if tokens > 0}
        hashes, refs = state["blocks"]["hashes"], state["blocks"]["refs"]
        idle = {block for block, known in enumerate(hashes) if known and not refs[block]}
        seen = kv_pixels(page)
        assert filled
        assert idle
        assert {cell["block"] for cell in seen if cell["fill"]} == filled
        assert {cell["block"] for cell in seen if cell["hatched"] and not cell["fill"]} == idle
        assert sum(ref > 0 for ref in refs) == state["blocks"]["counts"]["referenced"]
    finally:
        run(served)


def test_the_table_twin_of_the_kv_map_says_the_same(page: Page, served: Served) -> None:
    wait_running(page, burst(page))
    state = pause(page, served)
    try:
        rows = table(page, "kv")
        filled = tokens_in_blocks(state)
        held = {int(row["block"]): row["tokens"] for row in rows if row["held by"]}
        assert held == {block: f"{tokens}/16" for block, tokens in filled.items()}
    finally:
        run(served)


def test_choosing_a_request_lights_it_up_everywhere(page: Page, served: Served) -> None:
    ids = burst(page)
    wait_running(page, ids)
    state = pause(page, served)
    try:
        request = ids[2]
        page.click(f"[data-request={request}] [data-select]")
        frames(page)
        owned = set(state["requests"][request]["block_table"])
        assert set(page.evaluate("stepscope.lit().blocks")) == owned
        expect(page.locator(f"[data-request={request}]")).to_have_class("answer lit")
        expect(page.locator("#panel-timeline .detail")).to_contain_text(f"{request} ·")
        expect(page.locator("#panel-kv .detail")).to_contain_text(f"Block table of {request}")
        # In the picture only its own cells keep their full colour.
        assert {cell["block"] for cell in kv_pixels(page) if cell["fill"]} <= owned
        assert page.locator("#panel-timeline tr.chosen").count() == 0
        table(page, "timeline")
        expect(page.locator("#panel-timeline tr.chosen")).to_contain_text(request)
        page.keyboard.press("Escape")
        assert page.evaluate("stepscope.choice()") is None
    finally:
        run(served)


def test_choosing_a_block_in_the_picture_lights_its_owner(page: Page, served: Served) -> None:
    wait_running(page, burst(page))
    state = pause(page, served)
    try:
        owner = state["requests"][state["queues"]["running"][3]]
        block = owner["block_table"][-1]
        cell = page.evaluate(f"stepscope.kvCells()[{block}]")
        page.click("#panel-kv canvas", position={"x": cell["x"] + cell["side"] / 2, "y": cell["y"] + cell["side"] / 2})
        assert page.evaluate("stepscope.choice()") == {"kind": "block", "id": block}
        assert page.evaluate("stepscope.lit().requests") == [owner["id"]]
        expect(page.locator(f"[data-request={owner['id']}]")).to_have_class("answer lit")
        expect(page.locator("#panel-kv .detail")).to_contain_text(f"held by {owner['id']}")
    finally:
        run(served)


def test_choosing_a_step_lights_its_requests_and_explains_it(page: Page) -> None:
    ids = send(page, "A step to look at", max_tokens=20)
    settle(page)
    page.keyboard.press("Escape")
    page.locator("h2").first.click()
    page.keyboard.press("ArrowRight")
    last = page.evaluate("stepscope.state().last_step.step")
    assert page.evaluate("stepscope.lit().requests") == ids
    expect(page.locator("#panel-anatomy .detail")).to_contain_text(f"Step {last:,}: ")
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("l")
    expect(page.locator("#live")).to_have_text("LIVE")


def test_a_held_view_stays_while_the_engine_goes_on(page: Page) -> None:
    send(page, "Go on for a while", max_tokens=1500)
    wait_for(page, "stepscope.state().step > 5")
    page.locator("h2").first.click()
    page.keyboard.press(" ")
    held = page.evaluate("stepscope.shown().step")
    wait_for(page, f"stepscope.state().step > {held} + 20")
    assert page.evaluate("stepscope.shown().step") == held
    expect(page.locator("#live")).to_have_text(re.compile(r"^HELD · [\d,]+ steps behind · go live$"))
    page.keyboard.press(" ")
    wait_for(page, "stepscope.shown().step === stepscope.state().step")


def test_the_figures_are_those_of_the_state(page: Page, served: Served) -> None:
    wait_running(page, burst(page))
    state = pause(page, served)
    try:
        expect(page.locator("[data-part=running]")).to_have_text(str(len(state["queues"]["running"])))
        counts = state["blocks"]["counts"]
        expect(page.locator("[data-part=kv-of]")).to_have_text(f"{counts['referenced']}/{counts['total']} blocks")
        expect(page.locator("[data-part=invariant]")).to_have_text("holds")
        expect(page.locator("[data-part=gated]")).to_be_visible()
        expect(page.locator("[data-part=decode]")).to_have_text("–")
    finally:
        run(served)


def test_gated_requests_give_no_latency_sample(page: Page, served: Served) -> None:
    before = len(page.evaluate("stepscope.finished()"))
    pause(page, served)
    send(page, "Held by hand", max_tokens=50)
    run(served)
    settle(page)
    finished = page.evaluate("stepscope.finished()")
    assert len(finished) == before + 1
    assert finished[-1]["timings"]["gated_us"] > 0
    measured = sum(not sample["timings"]["gated_us"] for sample in finished)
    expect(page.locator("[data-timing=ttft_us] .n")).to_have_text(str(measured))


def test_one_step_at_a_time_by_key(page: Page, served: Served) -> None:
    pause(page, served)
    try:
        send(page, "Step by step", max_tokens=50)
        page.locator("h2").first.click()
        for _ in range(3):
            before = page.evaluate("stepscope.state().step")
            page.keyboard.press("s")
            wait_for(page, f"stepscope.state().step === {before} + 1")
    finally:
        run(served)


@pytest.mark.parametrize("way", ["header", "panel", "key"])
def test_a_step_goes_live_again_and_keeps_what_is_chosen(page: Page, served: Served, way: str) -> None:
    (request,) = send(page, "Choose me", max_tokens=1500)
    wait_running(page, [request])
    state = pause(page, served)
    try:
        page.click(f"[data-request={request}] [data-select]")
        expect(page.locator("#live")).to_have_text("HELD · go live")
        if way == "key":
            page.keyboard.press("s")
        else:
            page.click("#gate [value=step]" if way == "header" else "#gate-moves [value=step]")
        wait_for(page, f"stepscope.shown().step === {state['step'] + 1}")
        expect(page.locator("#live")).to_have_text("LIVE")
        assert page.evaluate("stepscope.choice()") == {"kind": "request", "id": request}
    finally:
        run(served)


def test_waiting_times_stand_while_the_view_is_held(page: Page, served: Served) -> None:
    pause(page, served)
    try:
        send(page, "Wait with me", max_tokens=8)
        page.locator("h2").first.click()
        page.keyboard.press(" ")
        frames(page)
        waited = page.locator("#panel-queue tbody td:nth-child(2)")
        page.wait_for_timeout(600)  # the queue is written at most twice a second
        held = waited.inner_text()
        expect(page.locator(".board .label")).to_contain_text("step ")
        page.wait_for_timeout(600)
        assert waited.inner_text() == held
        page.keyboard.press(" ")
        expect(waited).not_to_have_text(held)
    finally:
        run(served)


def test_an_empty_queue_says_whether_there_is_anybody(page: Page, served: Served) -> None:
    empty = page.locator("#panel-queue .empty")
    expect(empty).to_have_text("Nobody waits: there is no request.")
    (mine,) = send(page, "A long one", max_tokens=2000)
    wait_running(page, [mine])
    pause(page, served)
    try:
        expect(empty).to_have_text("Nobody waits: every request has a slot.")
    finally:
        run(served)


def test_the_queue_is_shown_in_the_order_of_the_policy(page: Page, served: Served) -> None:
    """A42: who goes next is read off the page, also when the rule is changed while they wait."""
    pause(page, served)
    try:
        ids = [send(page, "Wait with me", max_tokens=count)[0] for count in (90, 10, 40)]
        names = page.locator("#panel-queue tbody td:first-child")
        expect(names).to_have_text(ids)
        served.client.patch("/api/config", json={"scheduling_policy": "shortest-first"}).raise_for_status()
        expect(page.locator("#knob-scheduling_policy")).to_have_value("shortest-first")
        expect(names).to_have_text([ids[1], ids[2], ids[0]])
    finally:
        served.client.patch("/api/config", json={"scheduling_policy": "fcfs"}).raise_for_status()
        run(served)


def test_the_badge_is_of_the_step_shown_and_else_of_the_gate(page: Page) -> None:
    script = """import("/static/js/panels/header.js").then((m) => {
      const paused = { gate: { state: "paused", per_second: null } };
      const history = { steps: new Map([[1, { gated: false }], [2, { gated: true }]]) };
      const view = { state: paused, history, store: { held: { visited: true } } };
      const live = { ...view, store: { held: null } };
      const stopped = { ...view, store: { held: { visited: false } } };
      const views = [1, 2, 3].map((column) => ({ ...view, column }));
      return [...views, { ...live, column: 1 }, { ...stopped, column: 1 }].map(m.gatedNow);
    })"""
    assert page.evaluate(script) == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("label", "simulated", "gated", "word"),
    [
        ("measured", False, False, "measured"),
        ("measured", False, True, "gated"),
        ("derived", False, True, "derived"),
        ("derived", True, True, "simulated"),
    ],
)
def test_a_label_says_how_its_numbers_came_about(
    still: Page, label: str, simulated: bool, gated: bool, word: str
) -> None:
    kind = f"{{simulated: {str(simulated).lower()}, gated: {str(gated).lower()}}}"
    script = f"import('/static/js/panels/header.js').then((m) => m.labelWord({label!r}, {kind}))"
    assert still.evaluate(script) == word
