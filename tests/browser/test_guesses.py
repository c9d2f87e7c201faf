"""Accepted guesses: which tokens of an answer they are, and where they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import send, settle, table
from tests.browser.conftest import OpenPage
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("text", "offset", "runs", "parts"),
    [
        ("abcd", 0, [], ["abcd"]),
        ("abcd", 0, [[1, 2]], ["a", "bc 1/1", "d"]),
        ("abcd", 4, [[0, 3], [5, 1, 1]], ["a", "b 1/2", "c 2/2", "d"]),
        ("🤖bcd", 0, [[0, 1, 2], [3, 1]], ["🤖 1/2", "bc 2/2", "d 1/1"]),
        ("abcd", 0, [[1, 0, 0, 1]], ["a", "b 3/3", "cd"]),  # a token may complete no character
        ("cd", 2, [[1, 2, 1]], ["c 1/2", "d 2/2"]),  # its first half was shown before
        ("ab", 0, [[1, 3]], ["a", "b 1/1"]),  # its other part is held back still
    ],
)
def test_accepted_guesses_are_cut_out_of_a_piece_of_text(
    still: Page, text: str, offset: int, runs: list[list[int]], parts: list[str]
) -> None:
    named = "({ text, token, of }) => text + (token === undefined ? '' : ` ${token}/${of}`)"
    assert call(still, "guesses", f"m.pieces({json.dumps(text)}, {offset}, {runs}).map({named})") == parts


def test_marked_text_is_the_same_however_it_came(still: Page) -> None:
    script = """(async () => {
      const { append } = await import("/static/js/guesses.js");
      const texts = m.createTexts();
      const said = document.createElement("p");
      const put = (...piece) => {
        const change = texts.put("R1", ...piece);
        if (change.whole) said.replaceChildren();
        append(said, change.whole ?? change.append);
        return said.innerHTML.replace(/ (class|title)="[^"]*"/g, "");
      };
      put(0, "one t", [[4, 1, 3]]);
      put(5, "wo");
      const grown = put(7, " & <b>", [[8, 1]]);
      return [grown, put(0, "one two & <b>", [[4, 1, 3], [8, 1]])];
    })()"""
    grown, whole = call(still, "texts", f"await {script}")
    assert whole == "one <u>t</u><u>wo </u><u>&amp;</u> &lt;b&gt;"
    assert grown == "one <u>t</u><u>wo</u><u> </u><u>&amp;</u> &lt;b&gt;"  # a token of two pieces is drawn as two


def test_a_guess_told_of_before_all_its_text_is_there_waits_for_it(still: Page) -> None:
    """What may begin a stop string is held back; the guess that wrote it has been told of already."""
    script = """(() => {
      const texts = m.createTexts();
      const shown = ({ whole, append }) => (whole ?? append).map(({ text, token }) => text + (token ?? ""));
      return [texts.put("R1", 0, "ab", [[1, 3]]), texts.put("R1", 2, ""), texts.put("R1", 2, "cdef")].map(shown);
    })()"""
    assert call(still, "texts", script) == [["a", "b1"], [], ["cd1", "ef"]]


@pytest.fixture
def speculating() -> Iterator[Served]:
    with serving("--scripted-step-ms", "15", "--speculative", "ngram:4") as running:
        yield running


def test_accepted_guesses_show_in_slots_table_lane_and_text(speculating: Served, open_page: OpenPage) -> None:
    page = open_page(speculating.url)
    (request,) = send(page, "abc " * 20, max_tokens=80)
    settle(page)
    expect(page.locator("#panel-slots [data-speculating]")).to_be_visible()
    steps = speculating.client.get("/api/steps").json()["steps"]
    rows = [row for step in steps for row in step["rows"]]
    drafted, accepted = (sum(row[name] for row in rows) for name in ("drafted", "accepted"))
    assert drafted >= accepted > 20
    shown = [row["guesses right"].split("/") for row in table(page, "slots") if "/" in row["guesses right"]]
    assert sum(int(right) for right, _ in shown) == accepted
    assert sum(int(guessed) for _, guessed in shown) == drafted
    (lane,) = table(page, "timeline")
    assert lane["guesses right"] == f"{accepted}/{drafted}"
    said = page.locator(f"[data-request={request}] .said")
    assert said.locator("u").count() == accepted  # a token is a byte here
    assert all("right" in title for title in said.locator("u").evaluate_all("all => all.map((mark) => mark.title)"))
    marked, answer = said.inner_html(), said.inner_text()
    assert marked_positions(rows, request) == said.evaluate(POSITIONS)
    page.reload()
    expect(page.locator(f"[data-request={request}] .said u")).to_have_count(accepted)
    said = page.locator(f"[data-request={request}] .said")
    assert (said.inner_html(), said.inner_text()) == (marked, answer)


POSITIONS = """(said) => {
  const found = [];
  let at = 0;
  for (const node of said.childNodes) {
    if (node.nodeName === "U") found.push(at);
    at += node.textContent.length;
  }
  return found;
}"""


def marked_positions(rows: list[dict[str, Any]], request: str) -> list[int]:
    """Where the guesses stand: of each step's tokens the last one is the model's own."""
    found, at = [], 0
    for row in rows:
        if row["request"] == request:
            found += range(at, at + row["accepted"])
            at += row["out"]
    return found
