"""The picture of requests in the Latency panel: drawn anew when something in it changes, and only then."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.app.processes import Served, serving
from tests.browser.actions import frames, quiet, send, settle, table, wait_for, wait_running
from tests.browser.conftest import OpenPage
from tests.browser.test_latency import complete
from tests.browser.test_travel import press, scrub

pytestmark = pytest.mark.browser

COUNT_DOTS = """() => {
  const canvas = document.querySelector("#panel-latency canvas");
  const context = CanvasRenderingContext2D.prototype;
  const { arc } = context;
  window.dots = 0;
  context.arc = function (...where) {
    if (this.canvas === canvas) window.dots += 1;
    return arc.apply(this, where);
  };
}"""


def picture(page: Page) -> str:
    frames(page)
    seen: str = page.evaluate("document.querySelector('#panel-latency canvas').toDataURL()")
    return seen


def test_the_picture_of_requests_follows_each_single_change(open_page: OpenPage) -> None:
    with serving("--scripted-step-ms", "3") as own:
        page = open_page(own.url)
        for prompt, label in (("hello", "batch"), ("hello again", "batch"), ("and again", "chat")):
            complete(own, prompt, max_tokens=5, **{"class": label})
        wait_for(page, "stepscope.finished().length === 3")
        table(page, "latency")
        page.locator("#panel-latency canvas").scroll_into_view_if_needed()
        all_of_now = picture(page)

        page.select_option("#latency-form [name=kind]", label="batch (2)")
        assert picture(page) != all_of_now
        page.select_option("#latency-form [name=kind]", index=0)
        assert picture(page) == all_of_now

        target = page.locator("#panel-latency [name=ttft]")
        before = target.input_value()
        target.fill("0.001")
        assert picture(page) != all_of_now
        target.fill(before)
        assert picture(page) == all_of_now

        scrub(page, page.evaluate("stepscope.finished()[0].at") + 1)
        seen = {all_of_now, picture(page)}
        choices = page.locator("#panel-latency td button")
        choices.first.click()
        seen.add(picture(page))
        press(page, "l")  # what is chosen stays, the moment alone changes
        seen.add(picture(page))
        for row in (1, 0):  # the first holds the moment too, the second is another choice alone
            choices.nth(row).click()
            seen.add(picture(page))
        assert len(seen) == 6
        press(page, "Escape")
        assert picture(page) == all_of_now

        epoch = page.evaluate("stepscope.epoch()")
        own.client.post("/api/engine", json={"action": "restart", "force": True}).raise_for_status()
        wait_for(page, f"stepscope.epoch() !== {epoch!r} && stepscope.state() !== null")
        assert picture(page) != all_of_now
        page.close()


def test_the_picture_of_requests_is_not_drawn_while_nothing_in_it_changes(page: Page, served: Served) -> None:
    send(page, "One that ends", max_tokens=3)
    settle(page)
    ids = send(page, "On and on", max_tokens=3000)
    wait_running(page, ids)
    page.locator("#panel-latency canvas").scroll_into_view_if_needed()
    frames(page)
    page.evaluate(COUNT_DOTS)
    step, drawn = page.evaluate("[stepscope.state().step, stepscope.cost().frames]")
    wait_for(page, f"stepscope.state().step > {step + 40} && stepscope.cost().frames > {drawn + 10}")
    assert page.evaluate("[window.dots, stepscope.state().queues.running.length]") == [0, 1]
    quiet(served)
    settle(page)
    frames(page)
    assert page.evaluate("window.dots") > 0
