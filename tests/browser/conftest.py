"""A real Chromium on a real `stepscope serve --model scripted`.

Every page is watched: what it writes to the console as an error, or throws, fails the test at its end. Where a
canvas is asked, its pixels are read, at places that `window.stepscope` names; nothing is compared as a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.app.processes import Served, serving
from tests.browser.actions import quiet, wait_for
from tests.browser.pages import Kept, new_page

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
READY = "window.stepscope && stepscope.state() !== null && !stepscope.pending().length"

expect.set_options(timeout=20_000)

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """One server per test module, quick and with room for everything."""
    with serving("--scripted-step-ms", "4", "--num-blocks", "320") as running:
        yield running


@pytest.fixture
def faults() -> list[str]:
    """What pages wrote to the console as errors, or threw. A test that provokes one takes it out again."""
    return []


@pytest.fixture(scope="session")
def kept(browser: Browser) -> Iterator[Kept]:
    kept = Kept(browser)
    yield kept
    kept.close()


@pytest.fixture
def open_page(browser: Browser, kept: Kept, faults: list[str]) -> Iterator[OpenPage]:
    """open_page(url, **context options) -> a page that has heard from its engine."""
    own = []

    def open_one(
        url: str, *, ready: bool = True, prepare: Callable[[Page], None] | None = None, **options: Any
    ) -> Page:
        page = kept.take(faults, options) if prepare is None else None
        if page is None:
            page = new_page(browser, faults.append, options)
            own.append(page)
        if prepare is not None:
            prepare(page)
        page.goto(url)
        if ready:
            wait_for(page, READY)
        return page

    yield open_one
    for page in own:
        page.context.close()
    kept.lay_aside()
    assert faults == []


@pytest.fixture
def page(served: Served, open_page: OpenPage) -> Page:
    """The page of the module's server, ready, and nothing running yet."""
    quiet(served)
    return open_page(served.url)


@pytest.fixture
def stage(page: Page, served: Served) -> Page:
    """A page without anything on it from the tests before."""
    served.client.post("/api/engine", json={"action": "reset", "force": True}).raise_for_status()
    wait_for(page, "stepscope.lanes().length === 0 && stepscope.state().last_step === null")
    page.locator("h2").first.click()
    return page


@pytest.fixture(scope="session")
def still(browser: Browser) -> Iterator[Page]:
    """A page, with a server of its own, for tests that only call its functions, and leave it as it is."""
    with serving() as idle:
        opened = browser.new_page()
        opened.goto(idle.url)
        wait_for(opened, "window.stepscope && stepscope.state() !== null")
        yield opened
        opened.close()
