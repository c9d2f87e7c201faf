"""What a person does on the page, and what can be read off it."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Error, Frame, Page

from tests.app.fakes import until
from tests.app.processes import Served

ENDED = """(() => {
  const ended = new Set(stepscope.lanes().filter((lane) => lane.end).map((lane) => lane.id));
  const cards = [...document.querySelectorAll("#answers [data-request]")];
  const { waiting, running } = stepscope.state().queues;
  return waiting.length + running.length === 0 && cards.every((card) => ended.has(card.dataset.request));
})()"""


ASK = """async (leftMs) => {
  const until = performance.now() + leftMs;
  for (;;) {
    if (await (EXPRESSION)) return true;
    if (performance.now() > until) return false;
    await new Promise((done) => setTimeout(done, 20));
  }
}"""

# Plays a tab that is put behind another, or shown again.
VISIBLE = """(visible) => {
  Object.defineProperty(document, "hidden", { value: !visible, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def wait_for(page: Page | Frame, expression: str, timeout_s: float = 20) -> None:
    """Wait until an expression is true in the page. (Playwright's own way needs `eval`, which our CSP forbids.)

    The page asks itself: each question from here would cost more than its answer.
    """
    deadline = time.monotonic() + timeout_s
    while (left_ms := 1000 * (deadline - time.monotonic())) > 0:
        try:
            if page.evaluate(ASK.replace("EXPRESSION", expression), left_ms):
                return
        except Error as error:
            if "context was destroyed" not in error.message:  # the page was left while it was asked
                raise
    raise AssertionError(f"never came true: {expression}")


def settle(page: Page) -> None:
    """Wait until every answer on the page has ended, and no request is live."""
    wait_for(page, ENDED)


def wait_running(page: Page, ids: list[str]) -> None:
    """Wait until all of these have a slot."""
    wait_for(page, f"{ids!r}.every((id) => stepscope.state().queues.running.includes(id))")


def quiet(served: Served) -> None:
    """End whatever an earlier test left running."""
    run(served)
    for name in ("running", "waiting"):
        for request in served.state()["queues"][name]:
            served.client.delete(f"/api/requests/{request}")
    until(lambda: not any(served.state()["queues"].values()), "an idle engine")


def cards(page: Page) -> list[str]:
    """The ids of the answers on the page, top first."""
    ids: list[str] = page.locator("#answers [data-request]").evaluate_all("all => all.map((c) => c.dataset.request)")
    return ids


def send(page: Page, prompt: str, *, max_tokens: int | None = None, copies: int = 1) -> list[str]:
    """Send a prompt with the form; returns the ids of the requests that came of it."""
    before = set(cards(page))
    page.fill("#prompt", prompt)
    page.fill("[name=copies]", str(copies))
    if not page.locator("[name=max_tokens]").is_visible():
        page.click(".more summary")
    page.fill("[name=max_tokens]", "" if max_tokens is None else str(max_tokens))
    page.click("[data-send]")
    wanted = len(before) + copies
    wait_for(page, f"document.querySelectorAll('#answers [data-request]').length === {wanted}")
    return [card for card in cards(page) if card not in before]


def burst(page: Page) -> list[str]:
    """Eight example prompts at once."""
    before = set(cards(page))
    page.click("button[name=burst]")
    wait_for(page, f"document.querySelectorAll('#answers [data-request]').length === {len(before) + 8}")
    return [card for card in cards(page) if card not in before]


def pause(page: Page, served: Served) -> dict[str, Any]:
    """Pause the engine and wait until page and server stand at one seq; returns /api/state there."""
    served.client.post("/api/gate", json={"action": "pause"}).raise_for_status()
    wait_for(page, "stepscope.state().gate.state === 'paused'")
    while True:
        state = served.state()
        if page.evaluate("stepscope.seq()") == state["seq"]:
            frames(page)
            return state
        page.wait_for_timeout(50)


def run(served: Served) -> None:
    served.client.post("/api/gate", json={"action": "run"}).raise_for_status()


def frames(page: Page, n: int = 2) -> None:
    """Let the page draw: at least so many frames, and until nothing is left to draw, if that comes."""
    page.evaluate(
        """async (n) => {
          for (let i = 0; i < n || (i < 20 && window.stepscope && !stepscope.rests()); i += 1) {
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
          }
        }""",
        n,
    )


def click_cell(page: Page, block: int) -> None:
    """Choose a block by a click in the KV map. A picture that changed its measures under the click is clicked again."""
    for _ in range(3):
        cell = page.evaluate("(block) => stepscope.kvCells()[block]", block)
        page.locator("#panel-kv canvas").click(position={"x": cell["x"] + 5, "y": cell["y"] + 5})
        frames(page)
        if page.evaluate("stepscope.choice()") == {"kind": "block", "id": block}:
            return


def table(page: Page, panel: str) -> list[dict[str, str]]:
    """The table twin of a panel, opened if need be, as one mapping per row."""
    twin = page.locator(f"#panel-{panel} details.twin")
    if twin.get_attribute("open") is None:
        twin.locator("summary").click()
        frames(page, 3)  # as it opens it is rendered at once
    else:
        page.wait_for_timeout(600)  # and later at most twice a second
    rows: list[dict[str, str]] = twin.locator("table").evaluate(
        """(table) => {
          const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
          return [...table.tBodies[0].rows].map((row) =>
            Object.fromEntries([...row.cells].map((cell, i) => [names[i], cell.textContent])));
        }"""
    )
    return rows


def kv_pixels(page: Page) -> list[dict[str, Any]]:
    """Per block, what the picture shows: {"block", "fill": the palette's name for the hue at the bottom, "hatched"}."""
    cells: list[dict[str, Any]] = page.evaluate(
        """() => {
          const canvas = document.querySelector("#panel-kv canvas");
          const style = getComputedStyle(document.documentElement);
          const names = ["prefill", "decode", "cached", "fault", "idle", "fg", "well"];
          const hue = new Map(names.map((name) => [style.getPropertyValue(`--${name}`).trim().toLowerCase(), name]));
          const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const at = (x, y) => {
            const i = 4 * (y * width + x);
            return hue.get("#" + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("")) ?? "";
          };
          return stepscope.kvCells().map(({ block, x, y, side }) => {
            const middle = x + 2; // inside the ring of a shared block, beside its digit
            const column = [2, 3, 4].map((up) => at(middle, y + side - up));
            const fill = column.find((name) => name === "prefill" || name === "decode") ?? "";
            const across = [...Array(side).keys()].map((dx) => at(x + dx, y + Math.floor(side * 0.7)));
            return { block, fill, hatched: across.filter((name) => name === "cached").length > 2 };
          });
        }"""
    )
    return cells


def shown_ms(us: float) -> str:
    """A time in milliseconds, as the page writes it."""
    ms = us / 1000
    return f"{ms:,.0f}" if ms >= 10 else f"{ms:.1f}" if ms >= 1 else f"{ms:.2f}"
