"""For a room: stage reset, marks, presenter mode, panels alone in a frame, colour by owner."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import burst, click_cell, frames, pause, quiet, send, settle, table, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations

pytestmark = pytest.mark.browser

WATCH_BOXES = """() => {
  window.boxes = {};
  const watch = () => {
    for (const canvas of document.querySelectorAll(".panel canvas")) {
      const { x, y, width, height } = canvas.getBoundingClientRect();
      const seen = (boxes[canvas.closest(".panel").id] ??= []);
      const box = [x, y + scrollY, width, height].map(Math.round).join(" ");
      if (width && !seen.includes(box)) seen.push(box);
    }
    requestAnimationFrame(watch);
  };
  watch();
}"""

SMALLEST_TYPE = """() => {
  const sizes = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const box = node.parentElement.getBoundingClientRect();
    const seen = node.data.trim() && box.width > 1 && node.parentElement.checkVisibility({ visibilityProperty: true });
    const inView = box.bottom > 0 && box.top < innerHeight && box.right > 0;
    const size = parseFloat(getComputedStyle(node.parentElement).fontSize); // 0: put out of sight
    if (seen && inView && size > 0) sizes.set(node.data.trim().slice(0, 30), size);
  }
  return [...sizes].sort((a, b) => a[1] - b[1])[0];
}"""
PIXEL = """([panel, x, y]) => {
  const canvas = document.querySelector(`#panel-${panel} canvas`);
  const [r, g, b] = canvas.getContext("2d").getImageData(x, y, 1, 1).data;
  return "#" + [r, g, b].map((n) => n.toString(16).padStart(2, "0")).join("").toUpperCase();
}"""
TOKEN = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim().toUpperCase()"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """So few blocks that requests are preempted."""
    with serving("--num-blocks", "24", "--max-num-batched-tokens", "64", "--scripted-step-ms", "4") as running:
        yield running


# -- the stage reset -------------------------------------------------------------------------------------------


def test_the_reset_asks_back_and_then_clears_the_page_of_everybody(
    stage: Page, open_page: OpenPage, served: Served
) -> None:
    served.client.patch("/api/config", json={"max_num_seqs": 7}).raise_for_status()
    other = open_page(served.url)
    pause(stage, served)
    send(stage, "a long story", copies=3)
    served.client.post("/api/gate", json={"action": "step", "steps": 2}).raise_for_status()
    wait_for(stage, "stepscope.lanes().length === 3 && stepscope.state().gate.steps_left === 0")
    button = stage.locator("#stage-reset button")
    button.click()
    expect(button).to_have_text("Really reset?")
    expect(stage.locator("[data-reset-words]")).to_contain_text("3 requests will be cancelled")
    assert served.state()["num_resets"] == stage.evaluate("stepscope.state().num_resets")
    button.click()
    for page in (stage, other):
        wait_for(page, "stepscope.lanes().length === 0")
        assert page.evaluate("[stepscope.finished(), stepscope.tape().steps]") == [[], 0]
        assert page.evaluate("stepscope.state().config.max_num_seqs") == 7
    expect(stage.locator("#answers [data-request]")).to_have_count(0)
    stage.locator("#panel-slots").scroll_into_view_if_needed()
    expect(stage.locator("#panel-slots .empty")).to_contain_text("The stage was reset.")
    stage.reload()
    wait_for(stage, "window.stepscope && stepscope.state() !== null")
    expect(stage.locator("#answers [data-request]")).to_have_count(0)
    assert stage.evaluate("stepscope.lanes()") == []


def test_the_question_goes_away_when_something_else_is_done(stage: Page) -> None:
    button = stage.locator("#stage-reset button")
    button.click()
    stage.keyboard.press("Escape")
    expect(button).to_have_text("Reset the stage")
    button.click()
    stage.locator("h2").first.click()
    expect(button).to_have_text("Reset the stage")


def test_after_a_reset_the_page_goes_on_and_walks_back_only_to_it(stage: Page) -> None:
    send(stage, "again", max_tokens=4)
    settle(stage)
    last = stage.evaluate("stepscope.moment().column")
    for _ in range(9):
        stage.keyboard.press("ArrowLeft")
    wait_for(stage, "!stepscope.moment().live")
    assert stage.evaluate("stepscope.moment().column") > last - 9
    assert stage.evaluate("stepscope.state().finished.length") == 1


# -- marks -----------------------------------------------------------------------------------------------------


def test_m_marks_the_moment_for_everybody_and_for_the_recording(
    stage: Page, open_page: OpenPage, served: Served
) -> None:
    send(stage, "three words", max_tokens=6)
    settle(stage)
    stage.locator("h2").first.click()
    stage.keyboard.press("m")
    stage.keyboard.type("<b>look</b> here")
    stage.keyboard.press("Enter")
    wait_for(stage, "stepscope.marks().length === 1")
    expect(stage.locator("#mark")).to_be_hidden()
    step = stage.evaluate("stepscope.state().step")
    frames(stage)
    right = stage.evaluate("document.querySelector('#panel-slots canvas').clientWidth") - 94
    assert stage.evaluate(PIXEL, ["slots", right, 33]) == stage.evaluate(TOKEN, "--fg")
    late = open_page(served.url)
    for page in (stage, late):
        assert [(mark["step"], mark["text"]) for mark in page.evaluate("stepscope.marks()")] == [
            (step, "<b>look</b> here")
        ]
        wait_for(page, f"stepscope.moment().step === {step}")
        assert table(page, "slots")[0]["marks after it"] == "<b>look</b> here"
    lines = gzip.decompress(served.client.get("/api/recording").content).decode().splitlines()
    assert [event["text"] for event in map(json.loads, lines) if event["kind"] == "mark"] == ["<b>look</b> here"]


def test_a_mark_without_words_is_refused_in_words_and_esc_gives_the_focus_back(stage: Page, faults: list[str]) -> None:
    stage.focus("#theme")
    stage.keyboard.press("m")
    stage.keyboard.press("Enter")
    expect(stage.locator("#mark-error")).to_contain_text("text is empty")
    stage.keyboard.press("Escape")
    expect(stage.locator("#mark")).to_be_hidden()
    expect(stage.locator("#theme")).to_be_focused()
    assert "400" in faults.pop()  # the console's own word on the refusal


def test_a_mark_is_an_event_that_one_can_jump_to(stage: Page, served: Served) -> None:
    send(stage, "first", max_tokens=5)
    settle(stage)
    served.client.post("/api/marks", json={"text": "between"}).raise_for_status()
    step = stage.evaluate("stepscope.state().step")
    send(stage, "second", max_tokens=5)
    settle(stage)
    stage.select_option("#travel [name=kind]", "mark")
    stage.locator("h2").first.click()
    stage.keyboard.press(",")
    wait_for(stage, f"stepscope.moment().step === {step}")
    frames(stage)
    (marked,) = [row for row in table(stage, "slots") if row["marks after it"]]
    assert (marked["step"], marked["marks after it"]) == (f"{step:,}", "between")


# -- presenter mode, colour by owner ---------------------------------------------------------------------------


def test_presenter_mode_is_large_fits_the_screen_and_is_in_the_address(stage: Page) -> None:
    burst(stage)
    stage.locator("h2").first.click()
    stage.keyboard.press("p")
    for width, height in ((3840, 2160), (1280, 720)):
        stage.set_viewport_size({"width": width, "height": height})
        frames(stage)
        words, least = stage.evaluate(SMALLEST_TYPE)
        assert least >= 18 * height / 720 - 0.5, words
        numbers = stage.locator(".figure dd b").first.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")
        assert numbers >= 28 * height / 720
        assert stage.evaluate("document.documentElement.scrollHeight") <= height
    stage.click("#menu summary")
    assert violations(stage) == []
    stage.keyboard.press("Escape")
    shown = stage.locator(".panel:visible").evaluate_all("all => all.map((panel) => panel.id.slice(6))")
    assert shown == ["prompts", "slots", "timeline", "kv"]
    stage.reload()
    wait_for(stage, "window.stepscope && stepscope.kvCells().length > 9")
    wait_for(stage, "stepscope.pending().length === 0")
    assert stage.evaluate("document.documentElement.dataset.presenter") == ""
    click_cell(stage, 9)
    assert stage.evaluate("stepscope.choice()") == {"kind": "block", "id": 9}
    stage.locator("h2").first.click()
    stage.keyboard.press("p")
    assert "present" not in stage.url
    assert stage.locator("#panel-queue").is_visible()


OVERPRINTED = """() => ["slots", "timeline"].flatMap((name) => {
  const boxes = (what) => [...document.querySelectorAll(`#panel-${name} ${what}`)]
    .map((node) => node.getBoundingClientRect()).filter(({ width }) => width > 0);
  const left = Math.min(...boxes(".explain .key").map((box) => box.left));
  return boxes(".panel-head > .label").filter((label) => label.right > left).map((label) => [name, label.right, left]);
})"""


@pytest.mark.parametrize("query", ["", "&axis=time", "&colour=owner", "&axis=time&colour=owner"])
def test_a_legend_and_a_label_do_not_overprint_each_other(query: str, open_page: OpenPage, served: Served) -> None:
    quiet(served)
    page = open_page(f"{served.url}/?present=1{query}", viewport={"width": 1280, "height": 720})
    frames(page)
    assert page.evaluate(OVERPRINTED) == []


@pytest.mark.parametrize(
    ("panel", "words"), [("slots", "long step"), ("timeline", "first token to last: TPOT"), ("kv", "just written")]
)
def test_rare_marks_are_told_in_legends_too_but_on_a_stage(stage: Page, panel: str, words: str) -> None:
    mark = stage.locator(f"#panel-{panel} .explain .key", has_text=words)
    expect(mark).to_be_visible()
    stage.locator("h2").first.click()
    stage.keyboard.press("p")
    expect(mark).to_be_hidden()
    stage.keyboard.press("p")


@pytest.mark.parametrize("path", ["/", "/?present=1"])
def test_pictures_stay_where_they_are_while_numbers_change(path: str, open_page: OpenPage, served: Served) -> None:
    quiet(served)
    page = open_page(served.url + path)
    frames(page)
    page.evaluate(WATCH_BOXES)
    burst(page)
    settle(page)
    boxes = page.evaluate("boxes")
    assert len(boxes) >= 3
    assert {panel: seen for panel, seen in boxes.items() if len(seen) > 1} == {}


def test_c_colours_pages_by_the_request_that_holds_them(stage: Page, served: Served) -> None:
    served.client.post("/api/gate", json={"action": "pause"}).raise_for_status()
    send(stage, "a prompt that fills two pages of the cache or more")
    send(stage, "and another one that shares none of them with it")
    served.client.post("/api/gate", json={"action": "step", "steps": 5}).raise_for_status()
    wait_for(stage, "stepscope.state().queues.running.length === 2 && stepscope.state().gate.steps_left === 0")
    state = pause(stage, served)
    stage.locator("h2").first.click()
    stage.keyboard.press("c")
    frames(stage)
    expect(stage.locator("#panel-kv .label", has_text="colour: request")).to_be_visible()
    for name in state["queues"]["running"]:
        cell = stage.evaluate("(block) => stepscope.kvCells()[block]", state["requests"][name]["block_table"][1])
        hue = (int(name[1:]) - 1) % 8 + 1
        place = ["kv", cell["x"] + cell["side"] // 2, cell["y"] + cell["side"] - 6]
        assert stage.evaluate(PIXEL, place) == stage.evaluate(TOKEN, f"--owner-{hue}")
    stage.keyboard.press("c")
    frames(stage)
    assert stage.evaluate(PIXEL, place) == stage.evaluate(TOKEN, "--prefill")


def test_requests_that_run_at_once_differ_in_hue_while_there_are_hues(still: Page) -> None:
    script = """async () => {
      const { giveHues, ownerHue } = await import("/static/js/owners.js");
      const run = (running, waiting = []) => giveHues({
        queues: { running, waiting },
        requests: Object.fromEntries([...running, ...waiting].map((id) => [id, { num_preemptions: 1 }])),
      });
      const hues = (ids) => ids.map(ownerHue);
      run(["R2", "R3"]);
      run(["R2", "R3", "R10"]);
      const one = hues(["R2", "R3", "R10"]);
      run(["R3", "R11"], ["R2", "R10"]);
      run(["R3", "R11", "R2", "R10"]);
      run(["R3", "R18", "R2"], ["R11"]); // R18 began, and R2 came back after it
      const came = hues(["R3", "R18", "R2", "R11"]);
      const many = ["R21", "R22", "R23", "R24", "R25", "R26", "R27", "R28", "R29"];
      run(many);
      return [one, hues(["R2", "R3", "R10", "R11"]), came, hues(many)];
    }"""
    assert still.evaluate(script) == [[1, 2, 3], [1, 2, 3, 4], [2, 3, 1, 4], [4, 5, 6, 7, 0, 1, 2, 3, 4]]


# -- panels alone ----------------------------------------------------------------------------------------------


def test_a_panel_can_be_framed_by_slides_and_cannot_move_the_engine(
    browser: Browser, served: Served, tmp_path: Path
) -> None:
    """Slides in a file: a public site is kept from loopback by Chromium's own local network access check."""
    quiet(served)
    slide = tmp_path / "slide.html"
    slide.write_text(f'<!doctype html><iframe src="{served.url}?panel=kv,slots" width="900" height="500"></iframe>')
    page = browser.new_page()
    try:
        page.goto(slide.as_uri())
        frame = page.frame_locator("iframe")
        expect(frame.locator("#panel-kv canvas")).to_be_visible(timeout=20_000)
        expect(frame.locator("#panel-slots canvas")).to_be_visible()
        expect(frame.locator("[data-part=status]")).to_have_text("ready")
        wait_for(
            page.frames[1], "window.stepscope?.connection() === 'live'"
        )  # its scripts run, though storage may be denied
        shown = frame.locator(":is(.panel, form, input, textarea, select, button):not([data-kv-view]):visible")
        assert sorted(shown.evaluate_all("all => all.map((node) => node.id)")) == ["live", "panel-kv", "panel-slots"]
        frame.locator("#panel-kv h2").click()
        for key in "gsmep?":
            page.keyboard.press(key)
        assert served.state()["gate"]["state"] == "running"
        expect(frame.locator("dialog:visible, .line:visible")).to_have_count(0)
        box = frame.locator("#panel-kv").bounding_box()
        assert box is not None
        assert box["height"] > 400
    finally:
        page.close()
