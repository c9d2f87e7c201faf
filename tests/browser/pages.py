"""Pages for tests, opened cheaply: where a new context would show nothing else, one page is used again and again.

Contract. A page that is opened has no cookie, nothing stored, the window and the preferences that were asked for, and
the pointer in the corner; what the page of an earlier test says or stores, even as it goes, is not seen. A renderer
that runs already spares more than half of what opening a page costs. Who asks for what a context alone can give (a
phone, no script, a hook before the first request) gets a context of its own, and so does a second page beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page

STAGE = {"width": 1280, "height": 720}
DEFAULTS: dict[str, Any] = {"viewport": STAGE, "color_scheme": "dark"}
PREFERENCES = {"color_scheme": "dark", "reduced_motion": "no-preference", "forced_colors": "none"}
NEUTRAL = "/static/icon.svg"  # of the same origin, so that the renderer stays and what is stored can be cleared
TIMEOUT_MS = 20_000


class Kept:
    """The page that is used again; `faults` is where what it reports goes."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None
        self._faults: list[str] = []
        self._taken = False

    def take(self, faults: list[str], options: dict[str, Any]) -> Page | None:
        """The page as these options want it; None if it is in use, or cannot be so."""
        if self._taken or options.keys() - PREFERENCES.keys() - {"viewport"}:
            return None
        if self._page is None:
            self._page = new_page(self._browser, lambda fault: self._faults.append(fault), {})
        self._page.set_viewport_size(options.get("viewport", STAGE))
        self._page.emulate_media(**{name: options.get(name, usual) for name, usual in PREFERENCES.items()})
        self._faults = faults
        self._taken = True
        return self._page

    def lay_aside(self) -> None:
        """Leave the test's page and forget what it stored. Where that cannot be done, the next test gets a new page."""
        if not self._taken or self._page is None:
            return
        self._taken = False
        try:
            self._page.evaluate("0")  # after this, all that the page reported until now has been heard
            self._faults = []
            self._page.goto(urljoin(self._page.url, NEUTRAL))
            self._page.evaluate("localStorage.clear(); sessionStorage.clear()")
            self._page.context.clear_cookies()
            self._page.mouse.move(0, 0)
        except Error:  # its server is gone, or the test closed it
            self.close()

    def close(self) -> None:
        if self._page is not None:
            self._page.context.close()
            self._page = None


def new_page(browser: Browser, report: Callable[[str], None], options: dict[str, Any]) -> Page:
    """A page in a context of its own, which tells `report` of every error that it logs or throws."""
    context: BrowserContext = browser.new_context(**{**DEFAULTS, **options})
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.on("console", lambda message: report(_fault(message)) if message.type == "error" else None)
    page.on("pageerror", lambda error: report(str(error)))
    return page


def _fault(message: ConsoleMessage) -> str:
    """What it says; of what could not be loaded, whence too."""
    missing = message.text.startswith("Failed to load resource")
    return f"{message.text} {message.location['url']}" if missing else message.text
