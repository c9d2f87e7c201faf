"""The keyboard: every key that the help names, what find understands, and a whole session by keys alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import burst, frames, run, send, settle, wait_for

pytestmark = pytest.mark.browser

SNAPSHOT = """() => JSON.stringify({
  moment: stepscope.moment(), choice: stepscope.choice(), gate: stepscope.state().gate, step: stepscope.state().step,
  root: { ...document.documentElement.dataset }, full: document.fullscreenElement !== null,
  open: [...document.querySelectorAll("dialog, .line, #diff")].map((node) => node.open ?? !node.hidden),
  address: location.href, focus: document.activeElement.id, said: document.getElementById("note").textContent,
})"""
GESTURES = {"Ctrl", "Enter", "Tab"}  # in the help too, but no keys of the page


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """So few blocks that requests are preempted."""
    with serving("--num-blocks", "24", "--max-num-batched-tokens", "64", "--scripted-step-ms", "4") as running:
        yield running


def test_every_key_in_the_help_does_something(stage: Page, served: Served) -> None:
    served.client.post("/api/gate", json={"action": "run"}).raise_for_status()
    burst(stage)
    settle(stage)
    stage.locator("h2").first.click()
    named = set(stage.locator("#help .keys kbd").all_text_contents()) - GESTURES
    keyboard = stage.keyboard
    arrows = {"←": "ArrowLeft", "→": "ArrowRight", "Space": " ", "Esc": "Escape"}
    ready: dict[str, Callable[[], Any]] = {
        "→": lambda: keyboard.press("Shift+ArrowLeft"),
        ".": lambda: keyboard.press(","),
        "L": lambda: keyboard.press(" ") if stage.evaluate("stepscope.moment().live") else None,
        "Esc": lambda: keyboard.press("ArrowLeft"),
        "9": lambda: keyboard.press("8"),
        "1": lambda: keyboard.press("8"),
    }
    dead = []
    for name in sorted(named - {"E"}):
        ready.get(name, lambda: None)()
        frames(stage)
        before = stage.evaluate(SNAPSHOT)
        keyboard.press(arrows.get(name, name.lower()))
        try:
            wait_for(stage, f"({SNAPSHOT})() !== {json.dumps(before)}", 3)
        except AssertionError:
            dead.append(name)
        if name in "/M?1":
            keyboard.press("Escape")
        if name in "FP":
            keyboard.press(name.lower())
    assert dead == []
    with stage.expect_download() as download:
        keyboard.press("e")
    assert download.value.suggested_filename.endswith(".jsonl.gz")


FOUND = {
    "R7": {"kind": "request", "id": "R7"},
    " r 7 ": {"kind": "request", "id": "R7"},
    "step 120": {"kind": "step", "step": 120},
    "s120": {"kind": "step", "step": 120},
    "block 33": {"kind": "block", "id": 33},
    "b#33": {"kind": "block", "id": 33},
    "cmpl-x": {"kind": "request", "id": "cmpl-x"},
    "": None,
    "two words": None,
}


def test_what_find_understands(still: Page) -> None:
    call = "async (texts) => { const { readFind } = await import('/static/js/find.js'); return texts.map(readFind); }"
    assert dict(zip(FOUND, still.evaluate(call, list(FOUND)), strict=True)) == FOUND


def test_slash_finds_a_request_and_says_what_it_does_not_know(stage: Page) -> None:
    (request,) = send(stage, "find me", max_tokens=4)
    settle(stage)
    stage.locator("h2").first.click()
    for text, problem in (("R99999", "R99999 is not known"), ("block 24", "numbered 0 to 23"), ("?!", "step 120")):
        stage.keyboard.press("/")
        stage.fill("#find-text", text)
        stage.keyboard.press("Enter")
        expect(stage.locator("#find-error")).to_contain_text(problem)
    stage.fill("#find-text", request.lower())
    stage.keyboard.press("Enter")
    expect(stage.locator("#find")).to_be_hidden()
    assert stage.evaluate("stepscope.choice()") == {"kind": "request", "id": request}


def tab_to(page: Page, selector: str, limit: int = 80) -> None:
    """Press Tab until the focus is there, as somebody without a mouse does."""
    for _ in range(limit):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached by Tab")


def break_on_preemption(stage: Page) -> str:
    """Set the breakpoint and send what must lead to it; returns the victim."""
    keyboard = stage.keyboard
    keyboard.press("8")
    tab_to(stage, "[data-break=preempt]")
    keyboard.press("Space")
    wait_for(stage, "stepscope.state().gate.breaks.includes('preempt')")

    keyboard.press("1")
    tab_to(stage, "#prompt")
    keyboard.type("a story that is much too long for such a small cache, told by many at once")
    tab_to(stage, "[name=copies]")
    keyboard.press("Control+a")
    keyboard.type("6")
    tab_to(stage, ".more summary")
    keyboard.press("Enter")
    tab_to(stage, "[name=max_tokens]")
    keyboard.type("90")
    keyboard.press("Enter")
    wait_for(stage, "stepscope.state().gate.hit?.on === 'preempt'")
    return str(stage.evaluate("stepscope.state().gate.hit.request"))


def follow_through_the_panels(stage: Page, request: str) -> None:
    keyboard = stage.keyboard
    keyboard.press("Escape")
    stage.evaluate("document.activeElement.blur()")
    keyboard.press("/")
    keyboard.type(request)
    keyboard.press("Enter")
    wait_for(stage, "stepscope.choice()?.kind === 'request'")
    for digit in "34":
        keyboard.press(digit)
        expect(stage.locator(f"[data-key='{digit}'] .detail")).to_contain_text(request)
    keyboard.press("2")
    tab_to(stage, "#panel-slots .twin summary")
    keyboard.press("Enter")
    expect(stage.locator("#panel-slots .twin table")).to_contain_text(request)
    keyboard.press("Enter")


def step_on_and_go_back(stage: Page) -> None:
    step = stage.evaluate("stepscope.state().step")
    stage.keyboard.press("s")
    wait_for(stage, f"stepscope.state().step === {step} + 1")
    for _ in range(2):
        stage.keyboard.press("ArrowLeft")
    wait_for(stage, f"stepscope.moment().step === {step} - 1")


def test_a_whole_session_by_keyboard_alone(stage: Page, served: Served) -> None:
    """Prompt, choose, follow through the panels, break on a preemption, step, go back, export."""
    run(served)
    victim = break_on_preemption(stage)
    follow_through_the_panels(stage, victim)
    step_on_and_go_back(stage)
    assert stage.evaluate("stepscope.shown().requests[stepscope.choice().id].status") == "running"
    with stage.expect_download() as download:
        stage.keyboard.press("e")
    lines = gzip.decompress(download.value.path().read_bytes()).decode().splitlines()
    assert any(json.loads(line).get("event") == "preempted" for line in lines)
    served.client.post("/api/gate", json={"action": "break", "on": []}).raise_for_status()
    run(served)


def test_the_number_that_wait_leads_to_who_and_why(stage: Page) -> None:
    stage.locator("#top").get_by_role("button", name="why?").click()
    expect(stage.locator("#panel-queue")).to_be_focused()
    expect(stage.locator("#panel-queue")).to_be_in_viewport()
