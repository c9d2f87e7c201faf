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

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
STAGE = {"width": 1280, "height": 720}

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


@pytest.fixture
def open_page(browser: Browser, faults: list[str]) -> Iterator[OpenPage]:
    """open_page(url, **context options) -> a page that has heard from its engine."""
    contexts = []

    def open_one(
        url: str, *, ready: bool = True, prepare: Callable[[Page], None] | None = None, **options: Any
    ) -> Page:
        context = browser.new_context(**{"viewport": STAGE, "color_scheme": "dark", **options})
        contexts.append(context)
        context.set_default_timeout(20_000)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        if prepare is not None:
            prepare(page)
        page.goto(url)
        if ready:
            wait_for(page, "window.stepscope && stepscope.state() !== null && !stepscope.pending().length")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def page(open_page: OpenPage, served: Served) -> Page:
    """The page of the module's server, ready, and nothing running yet."""
    quiet(served)
    return open_page(served.url)


@pytest.fixture(scope="module")
def still(browser: Browser, served: Served) -> Iterator[Page]:
    """A page for tests that only call its functions, and leave it as it is."""
    opened = browser.new_page()
    opened.goto(served.url)
    wait_for(opened, "window.stepscope && stepscope.state() !== null")
    yield opened
    opened.close()
