"""A large engine on the page: tiles that open, a tab that was hidden, and work that does not grow with the picture."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, WebSocket, expect

from benchmarks.playing import play
from benchmarks.synthetic import Size
from tests.app.fakes import Running, until
from tests.app.fakes import running as running_server
from tests.browser.actions import VISIBLE, frames, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

SIZE = Size(num_blocks=6000, slots=24, token_budget=512, steps_per_s=25, prompt_tokens=(100, 900))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    stop = threading.Event()
    with running_server() as server:
        args = (server.ws, server.hub.settings.engine_token, SIZE, stop)
        engine = threading.Thread(target=play, args=args, daemon=True)
        engine.start()
        until(lambda: steps_of(server) > 40, "forty steps")
        yield server
        stop.set()
        engine.join(10)


def steps_of(server: Running) -> int:
    record = server.hub.engines.get("main")
    return int(record.state["step"]) if record and record.state else 0


@pytest.fixture
def page(open_page: OpenPage, server: Running) -> Page:
    """A page that stands still."""
    page = open_page(server.url)
    wait_for(page, "stepscope.state().queues.running.length > 4")
    page.locator("h2").first.click()
    page.keyboard.press(" ")
    frames(page, 3)
    return page


def tiles(page: Page) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page.evaluate("stepscope.kvTiles()")
    return found


def cells(page: Page) -> list[int]:
    found: list[int] = page.evaluate("stepscope.kvCells().map(({ block }) => block)")
    return found


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    frames(page, 3)


# -- tiles -------------------------------------------------------------------------------------------------------


def test_a_large_pool_is_drawn_as_tiles_that_say_what_their_blocks_hold(page: Page) -> None:
    blocks = page.evaluate("stepscope.shown().blocks")
    drawn = tiles(page)
    assert [tile["first"] for tile in drawn] == list(range(0, SIZE.num_blocks, drawn[0]["count"]))
    for tile in drawn:
        of = slice(tile["first"], tile["first"] + tile["count"])
        refs, hashes = blocks["refs"][of], blocks["hashes"][of]
        idle = sum(ref == 0 and known is not None for ref, known in zip(refs, hashes, strict=True))
        assert (tile["referenced"], tile["idle"]) == (sum(ref > 0 for ref in refs), idle)
    assert sum(tile["tokens"] for tile in drawn) > 0
    assert cells(page) == []


def test_a_tile_is_filled_with_the_colours_of_its_shares(page: Page) -> None:
    """From below: prompt, answer, reserved, cached, free."""
    heights = page.evaluate(
        """() => {
          const canvas = document.querySelector("#panel-kv canvas");
          const style = getComputedStyle(document.documentElement);
          const hue = (name) => style.getPropertyValue(`--${name}`).trim().toLowerCase();
          const [prefill, decode] = [hue("prefill"), hue("decode")];
          const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const hex = (value) => value.toString(16).padStart(2, "0");
          const at = (x, y) => "#" + [0, 1, 2].map((k) => hex(data[4 * (y * width + x) + k])).join("");
          return stepscope.kvTiles().map(({ x, y, side }) => {
            const column = Array.from({ length: side }, (_, up) => at(x + 5, y + side - 1 - up));
            const run = (from, colour) => { let n = from; while (n < side && column[n] === colour) n += 1; return n; };
            const prompt = run(0, prefill);
            return [prompt, run(prompt, decode), side];
          });
        }"""
    )
    for tile, (prompt, answer, side) in zip(tiles(page), heights, strict=True):
        if tile["tokens"] == tile["prompt"] or tile["referenced"] < tile["count"]:
            continue  # what is above the prompt may have its colour
        places = 16 * tile["count"]
        assert prompt == pytest.approx(side * tile["prompt"] / places, abs=0.51)
        assert answer == pytest.approx(side * tile["tokens"] / places, abs=0.51)


def test_a_click_opens_a_tile_and_escape_closes_it(page: Page) -> None:
    tile = tiles(page)[3]
    page.click("#panel-kv canvas", position={"x": tile["x"] + 4, "y": tile["y"] + 4})
    frames(page, 3)
    opened = list(range(tile["first"], tile["first"] + tile["count"]))
    assert cells(page) == opened
    expect(page.locator("[data-kv-what]")).to_contain_text(f"Blocks {opened[0]}–{opened[-1]},")
    cell = page.evaluate("stepscope.kvCells()[5]")
    page.click("#panel-kv canvas", position={"x": cell["x"] + 5, "y": cell["y"] + 5})
    assert page.evaluate("stepscope.choice()") == {"kind": "block", "id": opened[5]}
    press(page, "Escape")
    assert page.evaluate("stepscope.choice()") is None
    assert cells(page) == opened
    press(page, "Escape")
    assert len(tiles(page)) > 1


def test_the_keyboard_walks_over_tiles_opens_one_and_comes_back_to_it(page: Page) -> None:
    second = tiles(page)[1]
    canvas = page.locator("#panel-kv canvas")
    canvas.focus()
    step = page.evaluate("stepscope.moment().step")
    press(page, "Home", "ArrowRight")
    expect(canvas).to_have_attribute("aria-valuenow", "1")
    assert f"blocks {second['first']}–" in (canvas.get_attribute("aria-valuetext") or "")
    press(page, "Enter", "ArrowRight")
    assert cells(page)[0] == second["first"]
    press(page, "Enter")
    assert page.evaluate("stepscope.choice()") == {"kind": "block", "id": second["first"] + 1}
    press(page, "Escape", "Escape")
    assert len(tiles(page)) > 1
    expect(canvas).to_have_attribute("aria-valuenow", "1")
    assert page.evaluate("stepscope.moment().step") == step  # the arrows were the picture's


def test_the_table_has_a_line_per_tile_and_opens_it(page: Page) -> None:
    drawn = tiles(page)
    page.locator("#panel-kv details.twin summary").click()
    lines = page.locator("#panel-kv details.twin tbody tr")
    expect(lines).to_have_count(len(drawn))
    used = round(100 * drawn[0]["referenced"] / drawn[0]["count"])
    if used >= 10:
        expect(lines.first.locator("td").nth(1)).to_have_text(f"{used} %")
    lines.nth(2).locator("button").click()
    frames(page, 3)
    assert cells(page)[0] == drawn[2]["first"]
    lines.first.get_by_role("button", name="all tiles").click()
    frames(page, 3)
    assert len(tiles(page)) == len(drawn)


def test_choosing_a_request_lights_the_tiles_with_its_blocks(page: Page) -> None:
    request = page.evaluate("stepscope.shown().queues.running[0]")
    page.locator("#panel-timeline details.twin summary").click()
    page.get_by_role("button", name=request, exact=True).first.click()
    page.locator("#panel-kv canvas").scroll_into_view_if_needed()  # a picture far off the screen is not drawn
    frames(page, 3)
    table = page.evaluate("(id) => stepscope.shown().requests[id].block_table", request)
    lit = {tile["first"]: tile["lit"] for tile in tiles(page) if tile["lit"]}
    each = tiles(page)[0]["count"]
    assert lit == {first: sum(block // each == first // each for block in table) for first in lit}
    assert sum(lit.values()) == len(table) > 0


# -- a hidden tab ------------------------------------------------------------------------------------------------


def test_a_hidden_tab_is_sent_nothing_and_is_current_with_the_first_frame_it_is_shown(
    open_page: OpenPage, server: Running
) -> None:
    received: list[str] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: received.append(str(data)))

    page = open_page(server.url, prepare=lambda page: page.on("websocket", listen))
    page.evaluate(VISIBLE, False)
    page.wait_for_timeout(500)  # what was on its way has arrived
    before, step = len(received), steps_of(server)
    until(lambda: steps_of(server) > step + 25, "twenty-five more steps")
    page.wait_for_timeout(50)
    assert len(received) == before
    seq = server.hub.engines["main"].seq
    page.evaluate(VISIBLE, True)
    wait_for(page, f"stepscope.seq() >= {seq}")
    first = json.loads(received[before])
    assert first["key"] is True
    assert first["events"][-1]["seq"] >= seq
    assert page.evaluate("stepscope.gaps().length") == 1


# -- what a frame costs ------------------------------------------------------------------------------------------


def test_a_step_is_painted_once_however_many_frames_show_it(still: Page) -> None:
    painted = still.evaluate(
        """async () => {
          const { createRoll } = await import("/static/js/roll.js");
          const { createAxis } = await import("/static/js/axis.js");
          const g = new OffscreenCanvas(300, 40).getContext("2d");
          const axis = createAxis();
          const steps = new Map();
          const view = { axis, history: { steps }, palette: {}, lit: { any: false, requests: new Set() } };
          const roll = createRoll();
          const counts = [];
          const frame = (last, setting = 1) => {
            for (let step = steps.size + 1; step <= last; step += 1) steps.set(step, { step });
            axis.update(last);
            let painted = 0;
            roll.draw(g, { left: 0, right: 240, top: 0, bottom: 40 }, view, [setting], () => (painted += 1));
            counts.push(painted);
          };
          frame(100);
          frame(100);
          frame(103);
          frame(103, 2);
          axis.drag(-2 * axis.px, 103);
          frame(103, 2);
          return counts;
        }"""
    )
    assert painted == [40, 0, 3, 40, 2]
