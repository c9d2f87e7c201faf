"""Sending prompts and watching them: lanes, numbers, text, cancel, conversations, copies."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served
from tests.browser.actions import burst, cards, frames, send, settle, table, wait_for

pytestmark = pytest.mark.browser

IMAGE = "<img src=x onerror=window.pwned=1>"


def events_of(served: Served) -> list[dict[str, Any]]:
    lines = gzip.decompress(served.client.get("/api/recording").content).decode().splitlines()
    return [json.loads(line) for line in lines]


def test_every_lane_of_a_burst_shows_queue_prefill_first_token_and_end(page: Page) -> None:
    ids = burst(page)
    settle(page)
    lanes = {lane["id"]: lane for lane in page.evaluate("stepscope.lanes()")}
    for lane in (lanes[request] for request in ids):
        queued = lane["waits"][0]
        assert queued["kind"] == "queued"
        assert lane["arrive"] <= queued["to"] <= lane["first"] < lane["end"]["at"]
        assert lane["chunks"] >= 1
        assert lane["end"]["reason"] in ("stop", "length")
    rows = {row["request"]: row for row in table(page, "timeline")}
    for row in (rows[request] for request in ids):
        assert row["status"] == "finished"
        assert row["first token"].startswith("step ")
        assert float(row["TTFT ms"]) >= float(row["queue ms"]) >= 0
        assert row["end"] in ("stop", "length")


def test_eight_lanes_at_once_stand_in_eight_rows(page: Page) -> None:
    ids = burst(page)
    settle(page)
    rows = [lane["row"] for lane in page.evaluate("stepscope.lanes()") if lane["id"] in ids]
    assert len(set(rows)) == 8


def test_latency_on_the_page_equals_that_of_the_event_stream(page: Page, served: Served) -> None:
    ids = burst(page)
    settle(page)
    arrived: dict[str, int] = {}
    tokens: dict[str, list[int]] = {}
    for event in events_of(served):
        if event["kind"] == "request" and event["event"] == "arrived":
            arrived[event["request"]] = event["arrival_us"]
        for row in event.get("rows", ()):
            tokens.setdefault(row["request"], []).extend([event["accepted_us"]] * row["out"])
    rows = {row["request"]: row for row in table(page, "latency")}
    for request in ids:
        first, last, n = tokens[request][0], tokens[request][-1], len(tokens[request])
        expected = {
            "TTFT ms": first - arrived[request],
            "TPOT ms": (last - first) / (n - 1),
            "E2E ms": last - arrived[request],
        }
        assert {name: rows[request][name] for name in expected} == {
            name: f"{us / 1000:.3f}" for name, us in expected.items()
        }


def test_markup_in_prompt_and_answer_shows_as_typed(page: Page) -> None:
    (request,) = send(page, f"Say {IMAGE}", max_tokens=60)
    settle(page)
    card = page.locator(f"[data-request={request}]")
    expect(card.locator(".asked")).to_have_text(f"Say {IMAGE}")
    expect(card.locator(".said")).to_contain_text(f"You said: Say {IMAGE}.")
    assert page.locator("#answers img").count() == 0
    page.goto(page.url + f"requests/{request}")
    expect(page.locator(".said")).to_contain_text(IMAGE)
    assert page.evaluate("window.pwned") is None


def test_an_answer_streams_in_whole_characters_and_says_how_it_ended(page: Page) -> None:
    (request,) = send(page, "Zwölf Boxkämpfer 日本 🤖", max_tokens=60)
    settle(page)
    card = page.locator(f"[data-request={request}]")
    expect(card.locator(".said")).to_contain_text("You said: Zwölf Boxkämpfer 日本 🤖.")
    expect(card.locator(".progress")).to_contain_text("length · 60 tok · TTFT")


def test_a_request_can_be_cancelled_from_its_card(page: Page) -> None:
    (request,) = send(page, "Tell me everything", max_tokens=1500)
    page.click(f"[data-request={request}] [data-cancel]")
    expect(page.locator(f"[data-request={request}] .progress")).to_contain_text("cancelled")
    assert page.evaluate(f"stepscope.state().requests[{request!r}].finish_reason") == "abort"


def test_a_reply_goes_on_with_its_conversation_and_reuses_its_prefix(page: Page) -> None:
    (first,) = send(page, "My name is Ada, please remember it for later", max_tokens=40)
    settle(page)
    page.click(f"[data-request={first}] [data-reply]")
    (second,) = send(page, "What is my name?", max_tokens=40)
    settle(page)
    together = page.locator(".sent", has=page.locator(f"[data-request={first}]"))
    expect(together.locator("[data-request]")).to_have_count(2)
    assert page.evaluate(f"stepscope.state().requests[{second!r}].num_cached_tokens") > 0
    assert page.input_value("#prompt") == ""


def test_the_newest_answer_is_in_sight_and_the_page_stays(page: Page) -> None:
    burst(page)
    settle(page)
    page.locator(".answers-scroll").evaluate("(box) => (box.scrollTop = box.scrollHeight)")
    (request,) = send(page, "Look at me", max_tokens=10)
    box, card = page.locator(".answers-scroll"), page.locator(f"[data-request={request}]")
    top, height = box.evaluate("(b) => [b.getBoundingClientRect().top, b.clientHeight]")
    assert top <= card.evaluate("(c) => c.getBoundingClientRect().top") < top + height
    assert page.evaluate("window.scrollY") == 0


def test_a_prompt_that_was_sent_is_selected_for_the_next_and_emptied_for_a_reply(page: Page) -> None:
    (request,) = send(page, "The first of two", max_tokens=5)
    settle(page)
    page.click("#prompt")
    page.keyboard.type("Two")
    assert page.input_value("#prompt") == "Two"
    send(page, "The second of two", max_tokens=5)
    settle(page)
    page.click(f"[data-request={request}] [data-reply]")
    assert page.input_value("#prompt") == ""


def test_the_form_asks_for_the_likeliest_tokens_unless_told_otherwise(page: Page) -> None:
    (request,) = send(page, "Sensibly, please", max_tokens=5)
    assert page.evaluate(f"stepscope.state().requests[{request!r}].sampling.temperature") == 0
    assert page.input_value("[name=temperature]") == "0"


def test_copies_of_one_prompt_compute_it_once(page: Page) -> None:
    ids = send(page, "One and the same prompt. " * 8, max_tokens=10, copies=8)
    settle(page)
    requests = page.evaluate("stepscope.state().requests")
    cached = sorted(requests[request]["num_cached_tokens"] for request in ids)
    whole = requests[ids[0]]["num_prompt_tokens"] // 16 * 16
    assert cached[0] < whole
    assert cached[1:] == [whole] * 7
    shown = page.locator("#answers .progress", has_text=f"{whole} tok from the cache")
    expect(shown).to_have_count(7)


def test_a_bad_value_is_said_beside_the_form_and_keeps_the_prompt(page: Page, faults: list[str]) -> None:
    page.fill("#prompt", "Keep me")
    page.click(".more summary")
    page.evaluate("document.querySelector('[name=temperature]').removeAttribute('max')")
    page.fill("[name=temperature]", "9")
    with page.expect_response("**/prompts") as response:
        page.click("[data-send]")
    assert response.value.status == 422
    expect(page.locator("#prompt-error")).to_contain_text("temperature")
    assert page.input_value("#prompt") == "Keep me"
    assert "422" in faults.pop()  # Chromium itself reports every 4xx


def test_a_reload_brings_answers_and_lanes_back(page: Page) -> None:
    (request,) = send(page, "Something to remember", max_tokens=30)
    settle(page)
    said = page.inner_text(f"[data-request={request}] .said")
    page.reload()
    wait_for(page, f"stepscope.lanes().some((lane) => lane.id === {request!r})")
    assert request in cards(page)
    expect(page.locator(f"[data-request={request}] .said")).to_have_text(said)
    expect(page.locator(f"[data-request={request}] .asked")).to_have_text("Something to remember")


def test_a_reload_keeps_the_turns_of_a_conversation_in_order(page: Page) -> None:
    (first,) = send(page, "first turn", max_tokens=2)
    settle(page)
    page.locator(f"[data-request={first}] [data-reply]").click()
    (second,) = send(page, "second turn", max_tokens=2)
    settle(page)
    page.reload()
    wait_for(page, "document.querySelectorAll('#answers [data-request]').length > 1")
    assert cards(page)[:2] == [first, second]


def test_a_reload_keeps_the_newest_of_many_answers_with_their_prompts(page: Page) -> None:
    for number in range(4):
        form = {"prompt": f"many {number}", "copies": "16", "max_tokens": "1"}
        page.request.post(f"{page.url}prompts", form=form)
    page.reload()
    wait_for(page, "document.querySelectorAll('#answers [data-request]').length === 60")
    frames(page)
    asked = page.locator("#answers .asked").all_text_contents()
    assert asked == [f"many {3 - i // 16}" for i in range(60)]
    expect(page.locator("#answers [data-status=finished]")).to_have_count(
        60
    )  # more than the engine's state still knows
    expect(page.locator("#answers .progress").last).to_have_text("length · 1 tok")


def test_a_card_is_copied_as_a_command(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    (request,) = send(page, "to be copied", max_tokens=2)
    page.locator(f"[data-request={request}] [data-curl]").click()
    expect(page.locator("#note")).to_contain_text("Copied as a curl command")
    assert page.evaluate("navigator.clipboard.readText()").startswith("curl -N http")


def test_a_request_that_is_chosen_elsewhere_shows_its_answer_too(page: Page) -> None:
    first, *_ = burst(page)
    settle(page)
    burst(page)
    settle(page)
    card = page.locator(f"[data-request={first}]")
    page.locator("h2").first.click()
    page.keyboard.press("/")
    page.keyboard.type(first)
    page.keyboard.press("Enter")
    wait_for(page, f"stepscope.choice()?.id === {first!r}")
    box = page.locator(".answers-scroll").bounding_box()
    shown = card.bounding_box()
    assert box is not None
    assert shown is not None
    assert box["y"] - 1 <= shown["y"] < box["y"] + box["height"]


def test_a_command_that_cannot_be_written_is_not_blamed_on_the_browser(page: Page, faults: list[str]) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    (request,) = send(page, "not to be copied", max_tokens=2)
    page.route("**/curl.js", lambda route: route.abort())
    page.locator(f"[data-request={request}] [data-curl]").click()
    expect(page.locator("#note")).to_contain_text("could not be loaded")
    faults.clear()  # Chromium reports what it could not fetch


def test_a_reply_to_one_of_several_answers_takes_it_out_of_them(page: Page) -> None:
    _, second, _ = send(page, "three times", max_tokens=2, copies=3)
    settle(page)
    page.locator(f"[data-request={second}] [data-reply]").click()
    (reply,) = send(page, "and then", max_tokens=2)
    settle(page)
    assert cards(page)[:2] == [second, reply]
    together = page.locator(".sent", has=page.locator(f"[data-request={reply}]")).locator("[data-request]")
    expect(together).to_have_count(2)
