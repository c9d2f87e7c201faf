"""What an eye finds: every mark is there and is told from others without its hue; nothing lies upon another thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.fakes import FakeEngine, Running, row, running, until
from tests.app.processes import Served
from tests.browser.actions import frames, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

PROMPT, STEPS = 16, 20  # a whole block of the prompt, a whole one of the answer, and a bit of a third

COLUMNS = """([panel, name]) => {
  const canvas = document.querySelector(`#panel-${panel} canvas`);
  const hue = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim().toLowerCase();
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  const top = panel === "slots" ? 40 : 0; // below its budget
  for (let i = 4 * top * width; i < data.length; i += 4) {
    const colour = "#" + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
    if (colour === hue) found.add((i / 4) % width);
  }
  return [...found].sort((a, b) => a - b);
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One request alone, which reads its prompt in one step and then writes a token a step."""
    with running() as server:
        engine = FakeEngine(server)
        engine.dial().greet()
        engine.arrived("R1", prompt_tokens=PROMPT)
        engine.admitted("R1")
        tables = {1: [["R1", [0]]], 2: [["R1", [1, 2]]]}
        for number in range(1, STEPS + 2):
            new = PROMPT if number == 1 else 1
            facts = {"num_prefill_tokens": new} if number == 1 else {"num_decode_tokens": new}
            done = row("R1", scheduled=new, computed=PROMPT + number - 1)
            times = {"start_us": number * 100_000, "wall_us": 90_000, "phases_us": {"forward": 80_000}}
            engine.step(number, done, tables=tables.get(number, []), **facts, **times)
        until(lambda: (record := server.hub.engines.get("main")) and record.seq == engine.seq)
        yield server
        engine.hang_up()


@pytest.fixture
def page(open_page: OpenPage, server: Running) -> Page:
    page = open_page(server.url)
    wait_for(page, f"stepscope.state().step === {STEPS + 1}")
    frames(page)
    return page


def columns(page: Page, panel: str, name: str) -> list[int]:
    """Where along a picture a hue of the palette is found, in its pixels."""
    found: list[int] = page.evaluate(COLUMNS, [panel, name])
    return found


def press(page: Page, key: str) -> None:
    page.locator("#panel-slots h2").click()
    page.keyboard.press(key)
    frames(page)


@pytest.mark.parametrize("axis", ["steps", "time"])
def test_the_dots_of_a_request_that_runs_alone_are_there_in_either_colour(page: Page, axis: str) -> None:
    """A path of one dot alone is drawn too, and so is each owner's of several."""
    if axis == "time":
        press(page, "x")
    assert columns(page, "slots", "decode")
    press(page, "c")
    assert columns(page, "slots", "owner-1")
    press(page, "ArrowLeft")  # a step is chosen
    assert page.evaluate("stepscope.choice().kind") == "step"
    assert columns(page, "slots", "owner-1")
    press(page, "c")
    assert columns(page, "slots", "decode")


def cell(page: Page, block: int) -> dict[str, Any]:
    """How many pixels within a block's cell have which hue."""
    found: dict[str, Any] = page.evaluate(
        """(block) => {
          const canvas = document.querySelector("#panel-kv canvas");
          const style = getComputedStyle(document.documentElement);
          const { x, y, side } = stepscope.kvCells()[block];
          const { data } = canvas.getContext("2d").getImageData(x + 1, y + 1, side - 2, side - 2);
          const found = { prefill: 0, decode: 0, well: 0 };
          for (let i = 0; i < data.length; i += 4) {
            const colour = "#" + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
            for (const name in found) if (style.getPropertyValue(`--${name}`).toLowerCase() === colour) found[name]++;
          }
          return found;
        }""",
        block,
    )
    return found


def test_a_page_of_an_answer_has_holes_and_one_of_a_prompt_is_solid(page: Page) -> None:
    """In greyscale the two hues are nearly one."""
    prompt, answer = cell(page, 0), cell(page, 1)
    assert prompt["prefill"] > 0 == prompt["well"]
    assert answer["decode"] > 4 * answer["well"] > 0
    key = page.locator("#panel-kv .explain .swatch.amber")
    assert "radial-gradient" in key.evaluate("(node) => getComputedStyle(node).backgroundImage")


def test_a_number_on_a_page_of_an_answer_can_be_read_in_the_colour_of_its_request(page: Page) -> None:
    press(page, "c")
    page.locator("#panel-timeline canvas").click(position={"x": 400, "y": 14})
    wait_for(page, "stepscope.choice()?.id === 'R1'")
    frames(page)
    reddest = page.evaluate(
        """() => {
          const { x, y, side } = stepscope.kvCells()[1];
          const g = document.querySelector("#panel-kv canvas").getContext("2d");
          const { data } = g.getImageData(x + 4, y + 4, side - 8, side - 8);
          return data.reduce((most, value, i) => (i % 4 ? most : Math.max(most, value)), 0);
        }"""
    )
    assert reddest > 0x90  # its place in the table; the dots have 0x6D


@pytest.mark.parametrize(("panel", "hue"), [("timeline", "decode"), ("anatomy", "phase-forward")])
def test_the_axis_suits_a_panel_that_is_alone(open_page: OpenPage, server: Running, panel: str, hue: str) -> None:
    """In time, too: else all steps would lie upon each other at the right edge."""
    page = open_page(f"{server.url}/?panel={panel}&axis=time")
    wait_for(page, f"stepscope.lanes()[0]?.last === {STEPS + 1}")
    frames(page)
    found = columns(page, panel, hue)
    width = page.locator(f"#panel-{panel} canvas").evaluate("(canvas) => canvas.width")
    assert found[-1] - found[0] > width / 10  # ten seconds are in view, and these steps took two


def test_what_does_not_fit_a_low_frame_can_be_scrolled_to(open_page: OpenPage, server: Running) -> None:
    page = open_page(f"{server.url}/?panel=latency", viewport={"width": 900, "height": 360})
    table, below = (page.locator(f"#panel-latency {part}").bounding_box() for part in (".phases", ".goodput"))
    assert table is not None
    assert below is not None
    assert table["y"] + table["height"] <= below["y"]


def test_the_picker_leaves_room_for_what_stands_beside_it(open_page: OpenPage) -> None:
    with running() as server:
        main = FakeEngine(server).dial().greet()
        other = FakeEngine(server, "another-engine-whose-name-is-long").dial().greet()
        page = open_page(server.url)
        expect(page.locator("#engines")).to_be_visible()
        press(page, " ")
        main.arrived("R1")
        main.admitted("R1")
        for number in range(1, 121):
            main.step(number, row("R1", computed=7 + number), tables=[["R1", [0]]] if number == 1 else [])
        expect(page.locator("#live")).to_contain_text("HELD · 120 steps behind")
        parts = [page.locator(f"#top [data-part={name}]").bounding_box() for name in ("status", "model", "simulated")]
        parts.append(page.locator("#live").bounding_box())
        boxes = [box for box in parts if box is not None]
        assert len(boxes) == 4
        for left, right in itertools.pairwise(boxes):
            assert left["x"] + left["width"] <= right["x"]
        expect(page.locator("[data-part=model]")).to_have_text("scripted")
        for engine in (main, other):
            engine.hang_up()


STRUCK = """() => {
  const canvas = document.querySelector("#panel-latency canvas");
  const muted = getComputedStyle(document.documentElement).getPropertyValue("--muted").trim().toLowerCase();
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const share = (y, from, to) => {
    let n = 0;
    for (let x = from; x < to; x += 1) {
      const i = 4 * (y * width + x);
      if ("#" + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("") === muted) n += 1;
    }
    return n / (to - from);
  };
  const lines = [...Array(height).keys()].filter((y) => share(y, 150, 250) === 1);
  return lines.map((y) => share(y, width - 80, width - 20));
}"""


def test_the_name_of_a_target_is_not_struck_out_by_the_median(open_page: OpenPage) -> None:
    """Of one request alone the median is its own time, high in its band, where a far target is named."""
    with running() as server:
        engine = FakeEngine(server).dial().greet()
        page = open_page(server.url)
        engine.arrived("R1")
        engine.admitted("R1")
        engine.finished("R1", tokens=3, ttft_us=90_000, tpot_us=20_000, e2e_us=400_000)
        wait_for(page, "stepscope.finished().length === 1")
        page.locator("#panel-latency").scroll_into_view_if_needed()
        frames(page)
        ttft, tpot, e2e = page.evaluate(STRUCK)  # how much of each median's line is there below the name
        assert max(ttft, tpot) < 0.1
        assert e2e == 1  # it has no target
        engine.hang_up()


def test_a_picture_that_was_not_looked_at_yet_has_the_ground_of_the_page(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, color_scheme="light")
    corner = """(id) => {
      const canvas = document.querySelector(`#panel-${id} canvas`);
      return [...canvas.getContext("2d").getImageData(2, 2, 1, 1).data];
    }"""
    assert page.evaluate(corner, "intensity") == page.evaluate(corner, "slots") != [0, 0, 0, 255]
