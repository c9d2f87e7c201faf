"""What the page does when something goes away: the engine, its answers, the line, the whole server, scripts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from app.viewers import WINDOW
from tests.app.processes import Served, serving
from tests.browser.actions import burst, send, settle, wait_for, wait_running
from tests.browser.conftest import OpenPage
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

GONE_MS = 2_000
SILENT_MS = 5_000


@pytest.fixture
def slow() -> Iterator[Served]:
    """A server of one's own, to be maltreated, with answers long enough to be cut off."""
    with serving("--scripted-step-ms", "20") as running:
        yield running


def test_a_killed_engine_is_named_within_two_seconds_and_can_be_restarted(slow: Served, open_page: OpenPage) -> None:
    page = open_page(slow.url)
    ids = burst(page)
    wait_running(page, ids)
    epoch = page.evaluate("stepscope.epoch()")
    slow.engine_process().send_signal(signal.SIGKILL)
    expect(page.locator("#banner")).to_contain_text("The engine is gone.", timeout=GONE_MS)
    expect(page.locator("#banner")).to_contain_text("SIGKILL")
    expect(page.locator("[data-part=status]")).to_have_text("gone")
    expect(page.locator(f"[data-request={ids[0]}] .progress")).to_have_text("lost with its engine")
    page.click("[data-restart]")
    wait_for(page, f"stepscope.epoch() !== {epoch!r} && stepscope.state() !== null")
    expect(page.locator("#banner")).to_be_hidden()
    (request,) = send(page, "Are you back?", max_tokens=10)
    settle(page)
    expect(page.locator(f"[data-request={request}] .progress")).to_contain_text("10 tok")


def test_a_stopped_engine_is_called_silent_within_five_seconds_until_it_speaks(
    slow: Served, open_page: OpenPage
) -> None:
    page = open_page(slow.url)
    burst(page)
    engine = slow.engine_process()
    engine.send_signal(signal.SIGSTOP)
    try:
        expect(page.locator("#banner")).to_contain_text("The engine has gone silent.", timeout=SILENT_MS)
        expect(page.locator("[data-part=status]")).to_have_text("silent")
    finally:
        engine.send_signal(signal.SIGCONT)
    expect(page.locator("[data-part=status]")).to_have_text("ready")
    expect(page.locator("#banner")).to_be_hidden()


class Line:
    """The page's WebSocket, in our hands."""

    def __init__(self) -> None:
        self.open: list[WebSocketRoute] = []
        self.sent: list[str] = []
        self.down = False

    def attach(self, page: Page) -> None:
        page.route_web_socket("**/ws", self._connect)

    def _connect(self, route: WebSocketRoute) -> None:
        if self.down:
            route.close()
            return
        server = route.connect_to_server()
        self.open.append(route)

        def up(message: Any) -> None:
            self.sent.append(message)
            server.send(message)

        route.on_message(up)

    def cut(self) -> None:
        self.down = True
        self.open[-1].close()

    def mend(self) -> None:
        self.down = False


def test_a_lost_line_is_called_stale_and_drafts_survive_the_reconnect(open_page: OpenPage, served: Served) -> None:
    line = Line()
    page = open_page(served.url, prepare=line.attach)
    page.fill("#prompt", "half a thou")
    line.cut()
    expect(page.locator("[data-part=stale]")).to_be_visible()
    expect(page.locator("#banner")).to_contain_text("Connection lost.")
    line.mend()
    wait_for(page, "stepscope.connection() === 'live'")
    expect(page.locator("[data-part=stale]")).to_be_hidden()
    assert page.input_value("#prompt") == "half a thou"
    assert any("resume" in message for message in line.sent)


def test_what_happened_while_the_line_was_down_is_caught_up_on(open_page: OpenPage, served: Served) -> None:
    line = Line()
    page = open_page(served.url, prepare=line.attach)
    line.cut()
    body = {"model": "default", "prompt": "behind your back", "max_tokens": 12}
    answered = served.client.post("/v1/completions", json=body).json()
    request = answered["id"].removeprefix("cmpl-")
    line.mend()
    wait_for(page, "stepscope.connection() === 'live'")
    wait_for(page, f"stepscope.state().requests[{request!r}]?.status === 'finished'")
    settle(page)
    served_state = served.state()
    assert page.evaluate("stepscope.state()")["totals"] == served_state["totals"]


def test_the_answers_of_others_do_not_pile_up(open_page: OpenPage) -> None:
    with serving("--scripted-step-ms", "0", "--share-text", "all") as shared:
        page = open_page(shared.url)
        for number in range(70):
            body = {"prompt": f"{number}", "max_tokens": 2}
            request = shared.client.post("/v1/completions", json=body).json()["id"].removeprefix("cmpl-")
        expect(page.locator(f"[data-request={request}] .said")).not_to_be_empty()
        assert page.locator("#answers [data-request]").count() == 60
        page.close()


def test_drafts_survive_a_reload(page: Page) -> None:
    page.fill("#prompt", "unfinished business")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("unfinished business")


def test_a_restarted_server_is_found_again_without_a_reload(open_page: OpenPage, faults: list[str]) -> None:
    with serving("--scripted-step-ms", "4") as first:
        page = open_page(first.url)
        send(page, "Said to the old one", max_tokens=8)
        settle(page)
        page.fill("#prompt", "still here")
        page.evaluate("window.sameDocument = true")
        port = first.url.rsplit(":", 1)[1].strip("/")
    expect(page.locator("[data-part=stale]")).to_be_visible()
    with serving("--scripted-step-ms", "4", "--port", port):
        wait_for(page, "stepscope.connection() === 'live'")
        # It numbers its requests anew, so nothing of the old one's may stay beside them.
        assert page.evaluate("stepscope.lanes()") == []
        assert page.locator("#answers [data-request]").count() == 0
        assert page.input_value("#prompt") == "still here"
        (request,) = send(page, "Hello again", max_tokens=8)
        assert request == "R1"
        settle(page)
        expect(page.locator("#answers")).not_to_contain_text("Said to the old one")
        expect(page.locator(f"[data-request={request}] .progress")).to_contain_text("8 tok")
        assert page.evaluate("window.sameDocument") is True
    faults[:] = [fault for fault in faults if "WebSocket connection" not in fault]  # its attempts meanwhile


def test_the_page_can_be_read_and_used_without_scripts(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, ready=False, java_script_enabled=False)
    expect(page.locator("[data-part=status]")).to_have_text("ready")
    expect(page.locator("[data-part=kv-of]")).to_contain_text("/320 blocks")
    page.fill("#prompt", "No scripts here <b>")
    page.click("[data-send]")
    page.wait_for_url("**/requests/R*")
    expect(page.locator(".asked")).to_have_text("No scripts here <b>")
    expect(page.locator("h1")).to_contain_text("finished")
    expect(page.locator(".said")).to_contain_text("You said: No scripts here <b>.")
    page.goto(served.url)
    expect(page.locator("#answers .asked").first).to_have_text("No scripts here <b>")
    expect(page.locator("#panel-timeline table")).to_contain_text("finished")


def test_the_gate_works_without_scripts(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, ready=False, java_script_enabled=False)
    page.click("[data-part=pause]")
    expect(page.locator("[data-part=status]")).to_have_text("paused")
    page.click("[data-part=run]")
    expect(page.locator("[data-part=status]")).to_have_text("ready")


def test_a_page_acknowledges_long_before_the_hub_stops_sending(still: Page) -> None:
    assert 4 * call(still, "socket", "m.ACK_EVERY") <= WINDOW
