"""For everyone: axe in both themes, keys, a phone, small and still screens."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.app.processes import Served
from tests.browser.actions import burst, settle, table, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

PANELS = ("prompts", "slots", "timeline", "kv", "queue", "anatomy", "latency", "gate", "knobs")
TWINS = ("slots", "timeline", "kv", "anatomy", "latency")
SERIOUS = ("serious", "critical")


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:160]}" for each in found if each["impact"] in SERIOUS for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious_while_requests_run(open_page: OpenPage, served: Served, scheme: str) -> None:
    page = open_page(served.url, color_scheme=scheme)
    burst(page)
    assert violations(page) == []
    settle(page)
    for panel in TWINS:
        table(page, panel)
    assert violations(page) == []


def test_axe_finds_nothing_serious_in_help_and_on_a_request_page(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url)
    page.click("#help-open")
    assert violations(page) == []
    page.keyboard.press("Escape")
    (request, *_) = burst(page)
    settle(page)
    page.goto(f"{served.url}/requests/{request}".replace("//requests", "/requests"))
    assert violations(page) == []


def test_t_changes_the_theme_and_a_reload_keeps_it(page: Page) -> None:
    page.locator("h2").first.click()
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_keys_do_nothing_inside_inputs(page: Page) -> None:
    page.focus("#prompt")
    page.keyboard.type("t g s l ?")
    assert page.locator("html").get_attribute("data-theme") is None
    assert page.input_value("#prompt") == "t g s l ?"
    assert page.evaluate("stepscope.state().gate.state") == "running"


def test_a_request_can_be_chosen_by_keyboard_alone(page: Page) -> None:
    (request, *_) = burst(page)
    settle(page)
    table(page, "timeline")
    button = page.locator("#panel-timeline td button", has_text=request).first
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("stepscope.choice()") == {"kind": "request", "id": request}


def test_a_digit_goes_to_its_panel(page: Page) -> None:
    reached = []
    for number in range(1, 10):
        page.locator("h2").first.click()
        page.keyboard.press(str(number))
        reached.append(page.evaluate("document.activeElement.id"))
        page.keyboard.press("Escape")
    assert reached == ["prompt", *(f"panel-{panel}" for panel in PANELS[1:])]


def test_the_key_of_the_prompts_goes_into_the_text_and_esc_leaves_it(page: Page) -> None:
    page.locator("h2").first.click()
    page.keyboard.press("1")
    page.keyboard.type("gpt")
    expect(page.locator("#prompt")).to_have_value("gpt")
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).not_to_be_focused()
    expect(page.locator("#prompt")).to_have_value("gpt")
    assert page.evaluate("stepscope.state().gate.state") == "running"
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_the_stage_fits_a_small_projector(page: Page) -> None:
    for panel in ("prompts", "slots", "timeline", "kv"):
        box = page.locator(f"#panel-{panel}").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 720


def test_a_phone_gets_one_column_and_no_sideways_scroll(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    burst(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    lefts = {page.locator(f"#panel-{panel}").bounding_box()["x"] for panel in PANELS}  # type: ignore[index]
    assert len(lefts) == 1


def test_reduced_motion_draws_at_most_twice_a_second(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, reduced_motion="reduce")
    burst(page)
    start = page.evaluate("performance.now()")
    before = page.evaluate("stepscope.cost().frames")
    step = page.evaluate("stepscope.state().step")
    wait_for(page, f"stepscope.state().step > {step} + 100")
    seconds = (page.evaluate("performance.now()") - start) / 1000
    assert page.evaluate("stepscope.cost().frames") - before <= 2 * seconds + 2
