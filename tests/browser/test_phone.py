"""A phone in the audience: what the first view weighs, what waits until it is near, and whether it fits a hand.

And eyes that need the system's own colours.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served
from tests.browser.actions import frames, quiet, send, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LIMIT = 100_000
CLEAR_OF_IT = """document.querySelector('main').lastElementChild.getBoundingClientRect().bottom
  <= document.getElementById('live').getBoundingClientRect().top"""
MOUNTED = "[...document.querySelectorAll('[data-mounted]')].map((section) => section.id)"
LATER = "#panel-kv, #panel-ghost, .second > :not(#panel-queue), .hardware > *, .third > *, .sums > *"


class Wire:
    """What a page's requests took on the wire, headers included, as the browser counts it; its socket left out."""

    def __init__(self, page: Page) -> None:
        self.bytes: dict[str, int] = {}
        self.status: dict[str, int] = {}
        names: dict[str, str] = {}
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.requestWillBeSent", lambda e: names.update({e["requestId"]: e["request"]["url"]}))
        session.on("Network.responseReceivedExtraInfo", lambda e: self.status.update({e["requestId"]: e["statusCode"]}))
        session.on("Network.loadingFinished", lambda e: self.bytes.update({e["requestId"]: e["encodedDataLength"]}))
        self._names = names

    def told(self) -> dict[str, int]:
        """Status by path."""
        return {self._names[key].split("/", 3)[3]: status for key, status in self.status.items() if key in self._names}


@pytest.fixture
def phone(open_page: OpenPage, served: Served) -> Page:
    quiet(served)
    return open_page(served.url, **PHONE)


def test_the_first_view_weighs_less_than_100_kb_and_a_reload_next_to_nothing(
    open_page: OpenPage, served: Served, record_property: Any
) -> None:
    quiet(served)
    wires: list[Wire] = []
    page = open_page(served.url, prepare=lambda page: wires.append(Wire(page)), **PHONE)
    page.wait_for_load_state("networkidle")
    first = sum(wires[0].bytes.values())
    print(f"first view: {first:,} bytes in {len(wires[0].bytes)} requests")
    assert len(wires[0].bytes) >= 5
    assert first < LIMIT
    assert page.evaluate(MOUNTED) == []

    again = Wire(page)
    page.reload()
    page.wait_for_load_state("networkidle")
    told = again.told()
    assert {name: told[name] for name in ("joined/main.js", "joined/page.css", "static/vendor/htmx.min.js")} == {
        "joined/main.js": 304,
        "joined/page.css": 304,
        "static/vendor/htmx.min.js": 304,
    }
    assert sum(again.bytes.values()) < first / 3


def test_a_panel_is_loaded_when_it_comes_near(phone: Page) -> None:
    assert phone.evaluate(MOUNTED) == []
    phone.evaluate("document.getElementById('panel-roofline').scrollIntoView()")
    expect(phone.locator("#panel-roofline[data-mounted]")).to_be_attached()
    expect(phone.locator("#panel-roofline .empty")).to_contain_text("a scripted engine computes nothing")
    assert "panel-intensity" not in phone.evaluate(MOUNTED)


def test_a_key_that_goes_to_a_panel_loads_it(phone: Page) -> None:
    phone.keyboard.press("0")
    expect(phone.locator("#panel-worksheet[data-mounted]")).to_be_attached()
    expect(phone.locator("#panel-worksheet [data-first]")).to_have_text("600 ms")


def test_a_link_to_a_moment_loads_what_it_needs(open_page: OpenPage, phone: Page, served: Served) -> None:
    send(phone, "A question", max_tokens=4)
    wait_for(phone, "stepscope.finished().length > 0")
    epoch = phone.evaluate("stepscope.epoch()")
    fresh = open_page(f"{served.url}/#engine=main&epoch={epoch}&step=1&latency=gaps", **PHONE)
    expect(fresh.locator("#panel-latency [data-view=gaps]")).to_have_attribute("aria-pressed", "true")
    assert fresh.evaluate(MOUNTED) == ["panel-latency"]


def test_a_panel_alone_is_loaded_however_wide_the_window_is(open_page: OpenPage, served: Served) -> None:
    page = open_page(f"{served.url}/?panel=roofline")
    expect(page.locator("#panel-roofline[data-mounted]")).to_be_attached()
    assert page.evaluate(MOUNTED) == ["panel-roofline"]


def test_a_wide_window_loads_all_of_them_at_once(page: Page) -> None:
    assert len(page.evaluate(MOUNTED)) == page.locator(LATER).count()


def test_a_panel_whose_script_cannot_be_had_says_so(open_page: OpenPage, served: Served, faults: list[str]) -> None:
    page = open_page(
        served.url, prepare=lambda page: page.route("**/joined/panels/self.js", lambda route: route.abort())
    )
    expect(page.locator("#panel-self > .error")).to_contain_text("load the page again")
    assert page.evaluate(MOUNTED).count("panel-knobs") == 1
    faults.clear()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_nothing_on_a_phone_is_wider_than_it(open_page: OpenPage, served: Served, theme: str) -> None:
    quiet(served)
    page = open_page(served.url, color_scheme=theme, **PHONE)
    ids: list[str] = page.locator(LATER).evaluate_all("all => all.map((section) => section.id)")
    for name in ids:
        page.evaluate("(id) => document.getElementById(id).scrollIntoView()", name)
        expect(page.locator(f"#{name}[data-mounted]")).to_be_attached()
    frames(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    beyond = (
        """[...document.querySelectorAll('main .panel')].filter((each) => each.scrollWidth > each.clientWidth + 1)"""
    )
    assert page.evaluate(f"{beyond}.map((each) => each.id)") == []


def test_what_a_thumb_presses_is_40_px_high(phone: Page) -> None:
    send(phone, "A question", max_tokens=2)
    pressed = ".top button, .top a.button, .top summary, .panel button, #prompt-form select"
    small = """(pressed) => [...document.querySelectorAll(pressed)]
      .filter((each) => each.getClientRects().length && each.getBoundingClientRect().height < 40)
      .map((each) => each.textContent.trim() || each.name)"""
    assert phone.evaluate(small, pressed) == []
    assert phone.evaluate("document.getElementById('prompt').getBoundingClientRect().top") < 500
    assert phone.evaluate("parseFloat(getComputedStyle(document.getElementById('prompt')).fontSize)") >= 16


def test_the_gate_is_folded_away_from_an_audience_and_within_reach_of_the_keyboard(phone: Page) -> None:
    pause = phone.locator("#gate [value=pause]")
    expect(pause).to_be_hidden()
    phone.locator("#speaker summary").focus()
    phone.keyboard.press("Enter")
    expect(pause).to_be_visible()
    phone.set_viewport_size({"width": 1280, "height": 720})
    expect(phone.locator("#speaker summary")).to_be_hidden()
    expect(pause).to_be_visible()


def test_the_name_of_an_own_request_leads_to_its_lane(phone: Page) -> None:
    (mine,) = send(phone, "Which one is mine?", max_tokens=4)
    phone.tap(f"[data-request={mine}] [data-select]")
    wait_for(phone, f"stepscope.choice()?.id === '{mine}'")
    expect(phone.locator("#panel-timeline")).to_be_in_viewport(ratio=0.9)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_pictures_take_the_colours_that_the_system_imposes(open_page: OpenPage, served: Served, theme: str) -> None:
    page = open_page(served.url, color_scheme=theme, forced_colors="active")
    colours: list[str] = page.evaluate(
        """() => {
          const canvas = document.querySelector("#panel-slots canvas");
          const { data } = canvas.getContext("2d").getImageData(1, canvas.height - 2, 1, 1);
          const drawn = `rgb(${data[0]}, ${data[1]}, ${data[2]})`;
          return [drawn, getComputedStyle(document.documentElement).backgroundColor];
        }"""
    )
    assert colours[0] == colours[1] == {"dark": "rgb(0, 0, 0)", "light": "rgb(255, 255, 255)"}[theme]


@pytest.mark.parametrize("viewport", [PHONE["viewport"], {"width": 900, "height": 700}])
def test_the_way_back_to_live_stays_in_view(open_page: OpenPage, served: Served, viewport: Any) -> None:
    quiet(served)
    page = open_page(served.url, **{**PHONE, "viewport": viewport})
    (mine,) = send(page, "A question", max_tokens=4)
    live = page.locator("#live")
    page.tap(f"[data-request={mine}] [data-select]")
    expect(live).to_contain_text("go live")
    for panel in ("timeline", "queue", "kvsum"):
        page.evaluate("(id) => document.getElementById(id).scrollIntoView({ block: 'end' })", f"panel-{panel}")
        expect(live).to_be_in_viewport(ratio=1)
    wait_for(page, f"scrollTo(0, 1e6) || {CLEAR_OF_IT}")
    live.tap()
    expect(live).to_have_text("LIVE")
