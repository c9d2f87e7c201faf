"""Knobs: drafts, applying, what a change did, refusals beside their field, and the restart that asks first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import burst, pause, send, settle, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


@pytest.fixture
def served() -> Iterator[Served]:
    """A server of one's own: its settings change."""
    with serving("--scripted-step-ms", "10", "--num-blocks", "320") as running:
        yield running


def test_every_setting_says_what_the_server_says_a_change_would_do(page: Page, served: Served) -> None:
    words = {"live": "at once", "next_step": "next step", "restart": "restart"}
    effects = served.client.get("/api/config").json()["effects"]
    names = page.locator("[data-knob]").evaluate_all("all => all.map((row) => row.dataset.knob)")
    assert len(names) == 14
    for name in names:
        expect(page.locator(f"#does-{name}")).to_have_text(words[effects[name]])


def test_live_knobs_turn_together_and_each_says_what_it_did(page: Page, served: Served) -> None:
    page.fill("#knob-max_queue", "9")
    page.select_option("#knob-scheduling_policy", "shortest-first")
    page.uncheck("#knob-enable_prefix_caching")
    expect(page.locator("#does-max_queue")).to_have_text("was 256; at once")
    assert served.state()["config"]["max_queue"] == 256
    page.click("text=Apply 3 changes")
    expect(page.locator("#does-max_queue")).to_have_text("in effect")
    expect(page.locator("#does-scheduling_policy")).to_have_text("in effect from step 1 on")
    config = served.state()["config"]
    assert (config["max_queue"], config["scheduling_policy"], config["enable_prefix_caching"]) == (
        9,
        "shortest-first",
        False,
    )
    expect(page.locator("[data-apply]")).to_be_disabled()


def test_a_draft_survives_a_refresh_and_what_others_turn(page: Page, served: Served) -> None:
    page.fill("#knob-max_num_seqs", "6")
    served.client.patch("/api/config", json={"max_num_seqs": 5, "max_queue": 77}).raise_for_status()
    expect(page.locator("#knob-max_queue")).to_have_value("77")
    expect(page.locator("#does-max_num_seqs")).to_have_text("was 5; next step")
    page.reload()
    expect(page.locator("#does-max_num_seqs")).to_have_text("was 5; next step")
    assert page.input_value("#knob-max_num_seqs") == "6"
    page.click("[data-discard]")
    expect(page.locator("#knob-max_num_seqs")).to_have_value("5")


@pytest.mark.parametrize(
    ("knob", "value", "words"),
    [
        ("max_num_seqs", "0", "--max-num-seqs is 0; it must be at least 1."),
        ("watermark", "0.7", "--watermark is 0.7; it must be at least 0 and below 0.5."),
        ("max_queue", "2.5", "max_queue is 2.5; it must be int."),
        ("max_num_batched_tokens", "", "max_num_batched_tokens is ''; it must be int."),
    ],
)
def test_a_refusal_is_said_beside_its_field_and_keeps_the_draft(
    page: Page, served: Served, faults: list[str], knob: str, value: str, words: str
) -> None:
    page.fill(f"#knob-{knob}", value)
    page.select_option("#knob-batching", "static")
    page.click("[data-apply]")
    expect(page.locator(f"#wrong-{knob}")).to_have_text(words)
    assert page.input_value(f"#knob-{knob}") == value
    assert served.state()["config"]["batching"] == "continuous"  # all or none
    assert "400" in faults.pop()


def test_a_restart_asks_first_and_says_how_many_requests_would_end(page: Page, served: Served) -> None:
    page.evaluate("window.sameDocument = true")
    pause(page, served)
    burst(page)
    live = sum(len(queue) for queue in served.state()["queues"].values())
    assert live > 0
    epoch = page.evaluate("stepscope.epoch()")
    page.fill("#knob-num_blocks", "128")
    page.select_option("#knob-speculative", "ngram:4")
    page.click("[data-apply]")
    expect(page.locator("#restart-ask")).to_contain_text(f"{live} request")
    page.click("[data-restart-no]")
    assert page.evaluate("stepscope.epoch()") == epoch
    assert served.state()["config"]["num_blocks"] == 320

    page.click("[data-apply]")
    page.click("[data-restart-yes]")
    wait_for(page, f"stepscope.epoch() !== {epoch!r} && stepscope.state()?.config.num_blocks === 128")
    expect(page.locator("#does-num_blocks")).to_have_text("in effect, in a new engine")
    expect(page.locator("#knob-num_blocks")).to_have_value("128")
    assert served.state()["config"]["speculative"] == "ngram:4"
    send(page, "On the new engine", max_tokens=8)
    settle(page)
    assert page.evaluate("window.sameDocument") is True


def test_settings_can_be_read_without_scripts(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, ready=False, java_script_enabled=False)
    expect(page.locator("#knob-num_blocks")).to_have_value("320")
    expect(page.locator("#knob-num_blocks")).to_be_disabled()
    expect(page.locator("[data-gate=state]")).to_have_text("Running.")
