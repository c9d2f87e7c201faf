"""Two steps compared, and what a lane of the timeline says: chunks, pace, ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import send, settle, shown_ms, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

READ = """(table) => Object.fromEntries([...table.tBodies[0].rows].map((row) =>
  [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent)]))"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Quick; long prompts take several steps."""
    with serving("--scripted-step-ms", "3", "--num-blocks", "320", "--max-num-batched-tokens", "64") as running:
        yield running


def step_of(served: Served, number: int) -> dict[str, Any]:
    answer = served.client.get(f"/api/steps?since={number - 1}&limit=1").json()
    step: dict[str, Any] = answer["steps"][0]
    step["notes"] = [each for each in answer["requests"] if each["step"] == number]
    return step


def comparison(page: Page) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = page.locator("#diff table").evaluate(READ)
    return rows


def choose(page: Page, step: int) -> None:
    """Walk to a step by the arrow keys."""
    page.evaluate("document.activeElement.blur()")
    while page.evaluate("stepscope.choice()?.column ?? Infinity") > step:
        page.keyboard.press("ArrowLeft")
    while page.evaluate("stepscope.choice().column") < step:
        page.keyboard.press("ArrowRight")
    wait_for(page, f"stepscope.moment().step === {step}")


# -- two steps ---------------------------------------------------------------------------------------------------


def test_two_steps_are_compared_by_keys_alone_and_by_their_address(
    page: Page, open_page: OpenPage, served: Served
) -> None:
    (request,) = send(page, "A prompt that is longer than one step's budget. " * 3, max_tokens=6)
    settle(page)
    last = page.evaluate("stepscope.state().step")
    one, other = step_of(served, last - 7), step_of(served, last)
    assert one["num_prefill_tokens"] > 0
    choose(page, one["step"])
    page.keyboard.press("d")
    expect(page.locator("#diff [data-words]")).to_contain_text(f"A is step {one['step']}")
    choose(page, other["step"])
    expect(page.locator("#diff thead")).to_contain_text(f"B: step {other['step']}")
    rows = comparison(page)
    prefill = one["num_prefill_tokens"]
    assert rows["prefill tok"] == [str(prefill), "0", f"−{prefill}"]
    assert rows["decode tok"] == ["0", "1", "+1"]
    used = [step["blocks"]["referenced"] for step in (one, other)]
    assert rows["blocks used"][:2] == [str(each) for each in used]
    named = {event["event"] for event in other["notes"]}
    assert "finished" in named
    assert rows["finished"] == ["–", request, ""]
    assert rows["wall"][:2] == [f"{shown_ms(step['wall_us'])} ms" for step in (one, other)]
    assert violations(page) == []
    wait_for(page, f"location.hash.includes('a={one['step']}')")
    again = open_page(page.url)
    expect(again.locator("#diff thead")).to_contain_text(f"A: step {one['step']}")
    choose(page, one["step"])
    page.keyboard.press("d")
    expect(page.locator("#diff table")).to_be_hidden()


def test_shift_and_a_click_compare_a_bar_with_the_chosen_one(page: Page) -> None:
    send(page, "Two bars", max_tokens=12)
    settle(page)
    canvas = page.locator("#panel-anatomy canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    at = {"x": box["width"] - 10, "y": box["height"] - 40}
    canvas.click(position=at)
    first = page.evaluate("stepscope.moment().step")
    canvas.click(position={**at, "x": box["width"] - 40}, modifiers=["Shift"])
    wait_for(page, f"stepscope.moment().step < {first}")
    second = page.evaluate("stepscope.moment().step")
    expect(page.locator("#diff thead")).to_contain_text(f"A: step {first}B: step {second}")


# -- lanes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phases", "late", "cached", "expected"),
    [
        ("ppd", False, 0, {"1": "1/2", "2": "2/2"}),
        ("pp", False, 0, {"1": "1/…", "2": "2/…"}),  # how many there will be is not known
        ("p-p!", False, 0, {"1": "1/2", "3": "2/2"}),  # its last chunk wrote the first token
        ("pd", False, 0, {}),
        ("ppd", True, 8, {"1": "1/2", "2": "2/2"}),  # a page that came late was told of all of it
        ("ppd", True, 0, {}),  # or not
    ],
)
def test_the_chunks_of_a_prompt_are_numbered(
    still: Page, phases: str, late: bool, cached: int, expected: dict[str, str]
) -> None:
    steps: list[Any] = []
    for kind in phases:
        if kind == "!":
            steps[-1][1]["rows"][0]["out"] = 1
            continue
        row = {"request": "R1", "phase": "prefill" if kind == "p" else "decode", "out": 1 if kind == "d" else 0}
        row |= {"scheduled": 16, "computed": 24 + 16 * len(steps)}
        steps.append([len(steps) + 1, {"rows": [] if kind == "-" else [row]}])
    stays = [{"slot": 0, "from": 1, "to": None}]
    lane = json.dumps({"id": "R1", "late": late, "stays": stays, "facts": {"num_cached_tokens": cached}})
    found = f"m.chunksOf({lane}, {{ steps: new Map({json.dumps(steps)}), last: {len(steps)} }})"
    words = f"Object.fromEntries([...{found}].map(([at, each]) => [at, m.chunkWords(each)]))"
    assert call(still, "chunks", words) == expected


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"timings": {"tpot_us": 41_000, "gated_us": 0}, "num_output_tokens": 64}, "TPOT 41 ms × 63"),
        ({"timings": {"tpot_us": 41_000, "gated_us": 7}, "num_output_tokens": 64}, None),
        ({"timings": None, "num_output_tokens": 5, "last_token_us": 90_000}, "TPOT 20 ms × 4 so far"),
        ({"timings": None, "num_output_tokens": 1, "last_token_us": 10_000}, None),
    ],
)
def test_the_pace_of_a_lane(still: Page, facts: dict[str, Any], words: str | None) -> None:
    lane = {"id": "R1", "arrive": 1, "first": 2, "facts": {"first_token_us": 10_000, **facts}}
    history = "{ steps: new Map(), lanes: new Map(), last: 0 }"
    view = f"{{ store: {{ held: null }}, until: Infinity, column: 9, history: {history} }}"
    assert call(still, "lane_words", f"m.paceWords({json.dumps(lane)}, {view})") == words


def test_each_end_has_a_shape_of_its_own(still: Page) -> None:
    """Compared in one colour, so that no hue tells them apart."""
    draw = """["stop", "length", "abort", "error", null].map((reason) => {
      const g = new OffscreenCanvas(20, 20).getContext("2d");
      m.endCap(g, 10, 10, 12, reason, { fg: "#fff", fault: "#fff" });
      return g.getImageData(0, 0, 20, 20).data.join();
    })"""
    shapes = call(still, "marks", draw)
    assert len(set(shapes)) == 5


def test_the_shapes_are_said_in_words(page: Page) -> None:
    expect(page.locator("#panel-timeline .detail")).to_contain_text("■ stop, ┃ length, ✕ cancelled, ▲ error")
