"""Other mode: the run and its ghost on the page itself."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served
from tests.browser.actions import burst, pause, quiet, run, send, settle, table, wait_for

pytestmark = pytest.mark.browser


def turn(page: Page, setting: str) -> None:
    page.click(f"#panel-ghost [data-turn={setting}]")
    expect(page.locator("#panel-ghost [data-busy]")).to_have_text("")


def test_a_run_stands_beside_its_ghost_and_both_are_numbered(page: Page, served: Served) -> None:
    panel = page.locator("#panel-ghost")
    expect(panel.locator(".well .empty")).to_contain_text("Nothing yet")
    burst(page)
    settle(page)
    turn(page, "batching")
    expect(panel.locator("[data-verdict]")).to_have_text(
        re.compile(r"^B \(static\) would take [\d.]+ times as long as A for the same 8 requests: .* both predicted\.$")
    )
    expect(panel.locator("[data-source]")).to_contain_text(re.compile(r"^Computed from 8 requests and \d+ steps"))
    expect(panel.get_by_role("link", name="The whole picture")).to_have_attribute(
        "href", "/compare?engine=main&ghost=batching"
    )
    rows = {row[""]: row for row in table(page, "ghost")}
    assert rows["requests finished"]["A"] == rows["requests finished"]["B"] == "8 of 8"
    took = rows["time until all had finished, s"]
    alike = (
        f"A took {took['A']} s, as it is drawn; to compare like with like it is predicted too: {took['A predicted']} s."
    )
    assert (alike in panel.locator("[data-source]").inner_text()) == (took["A"] != took["A predicted"])


def test_of_a_run_that_goes_on_what_is_cut_and_left_out_is_said(page: Page, served: Served) -> None:
    ids = send(page, "On and on", max_tokens=2000, copies=9)  # in eight slots
    wait_for(page, f"{ids!r}.filter((id) => stepscope.state().requests[id]?.num_output_tokens > 3).length === 8")
    pause(page, served)
    turn(page, "enable_chunked_prefill")
    source = page.locator("#panel-ghost [data-source]")
    expect(source).to_contain_text("8 were still running, and are cut where they stood.")
    expect(source).to_contain_text("1 had no token yet, and is left out.")
    expect(page.locator("#panel-ghost [data-verdict]")).to_contain_text("So far: B (chunked prefill off")
    run(served)
    quiet(served)


def test_why_there_is_no_ghost_is_said_in_words(page: Page, served: Served) -> None:
    served.client.post("/api/engine", json={"action": "reset", "force": True}).raise_for_status()
    wait_for(page, "stepscope.lanes().length === 0")
    turn(page, "batching")
    expect(page.locator("#panel-ghost .error")).to_have_text(
        "No request has arrived yet. Send a burst, then take its run."
    )


def test_until_counts_in_the_newest_epoch(still: Page) -> None:
    script = """async () => {
      const { cutAfter } = await import("/static/js/compare_sources.js");
      const read = [];
      const take = cutAfter(1, ({ epoch, seq }) => read.push(epoch + seq));
      for (const [epoch, seq] of [["a", 1], ["a", 9], ["b", 1], ["b", 2]]) take({ kind: "step", epoch, seq });
      return read;
    }"""
    assert still.evaluate(script) == ["a1", "a9", "b1"]


def test_both_ghosts_are_of_one_run_also_where_its_beginning_is_lost(still: Page) -> None:
    script = """async () => {
      const { sameRun } = await import("/static/js/ghost_pair.js");
      const run = (at, cut = false) => ({ cut, arrivals: [{ at }], steps: [{ start_us: 9 }] });
      const [early, cut] = [run(1), run(1, true)];
      const pairs = [[early, 1, 1], [early, 2, 2], [cut, 2, 2], [cut, 2, 3]];
      return pairs.map(([of, ghost, twin]) => sameRun(of, run(ghost), run(twin)));
    }"""
    assert still.evaluate(script) == [True, False, True, False]


def test_when_one_ghost_is_refused_the_other_is_not_waited_for(still: Page) -> None:
    script = """async () => {
      const { bothOrNone } = await import("/static/js/ghost_pair.js");
      const said = [];
      const ask = (name, signal) => new Promise((_, reject) => {
        signal.addEventListener("abort", () => said.push(`${name} is given up`));
        if (name === "a") reject(new Error("refused"));
      });
      await bothOrNone(["a", "b"], new AbortController().signal, ask).catch(({ message }) => said.push(message));
      return said;
    }"""
    said = still.evaluate(script)
    assert "b is given up" in said
    assert "refused" in said


def test_a_ghost_is_of_one_engine_in_one_life_between_two_resets(still: Page) -> None:
    script = """async () => {
      const { isOf } = await import("/static/js/panels/ghost.js");
      const engine = { epoch: "e", history: { resets: 0 } };
      const asked = { engine, epoch: "e", resets: 0 };
      const others = [{ ...engine }, null];
      const later = [["e", 0], ["f", 0], ["e", 1]].map(([epoch, resets]) => {
        return isOf(asked, Object.assign(engine, { epoch, history: { resets } }));
      });
      return [...later, ...others.map((other) => isOf(asked, other))];
    }"""
    assert still.evaluate(script) == [True, False, False, False, False]
