"""Other mode: the run and its ghost on the page itself."""

from __future__ import annotations

import re
from typing import Any

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
    expect(panel.get_by_role("link", name="Open both in Compare")).to_have_attribute(
        "href", "/compare?engine=main&ghost=batching"
    )
    rows = {row[""]: row for row in table(page, "ghost")}
    assert rows["requests finished"]["A"] == rows["requests finished"]["B"] == "8 of 8"
    took = rows["time until all had finished, s"]
    words = f"As it really ran: {took['A as it really ran']} s; the model says "
    expect(panel.locator("[data-source]")).to_contain_text(words)
    assert f"instead of {took['A']} s, both predicted" in panel.locator("[data-verdict]").inner_text()


def test_marks_are_explained_and_the_button_whose_picture_is_shown_is_pressed(page: Page, served: Served) -> None:
    panel = page.locator("#panel-ghost")
    pressed = panel.locator("[data-turn][aria-pressed=true]")
    burst(page)
    settle(page)
    for setting in ("enable_chunked_prefill", "batching"):
        turn(page, setting)
        expect(pressed).to_have_count(1)
        expect(pressed).to_have_attribute("data-turn", setting)
    others = panel.locator("[data-turn][aria-pressed=false]")
    looks = [each.evaluate("(button) => getComputedStyle(button).backgroundColor") for each in (pressed, others)]
    assert looks[0] != looks[1]
    legend = panel.locator(".explain")
    for words in ("prompt computed", "answer written", "bolder while somebody waits", "preempted", "■ stop"):
        expect(legend).to_contain_text(words)


def test_both_tracks_are_said_to_be_simulated_and_why_one_leaves_slots_empty(still: Page) -> None:
    script = """async () => {
      const { slotWords, titles } = await import("/static/js/ghost_pair.js");
      const { demoRun } = await import("/static/js/compare_sources.js");
      const [run, twin, ghost] = await Promise.all(["continuous", "continuous", "static"].map(demoRun));
      const both = titles({ run, twin, ghost });
      ghost.config.max_num_seqs = 99;
      ghost.steps[0].waiting = [{ code: "blocks_short" }];
      return [both.a, both.b, slotWords({ run, twin, ghost })];
    }"""
    a, b, words = still.evaluate(script)
    assert a == "A: continuous, this run’s own mode · simulated"
    assert b == "B: static, the other mode · simulated"
    assert re.match(r"B: Groups of \d+ in 99 slots: each request is given the blocks of its longest", words)


SOURCE = "Computed from 1 request and 1 step of this run: their arrivals and lengths, and how long its steps took."


def of_pair(still: Page, said: str, took_us: int = 3_000_000, **facts: Any) -> Any:
    """`said` of `pair`: a run of one request that took so long and has these facts, 3 s as predicted, its ghost 9 s."""
    script = f"""async ([took, facts]) => {{
      const {{ sentence, sourceWords, table }} = await import("/static/js/ghost_pair.js");
      const {{ howWords }} = await import("/static/js/compare_words.js");
      const arrivals = [{{ id: "R1", at: 0, prompt: 8, most: 4 }}];
      const rows = [{{ request: "R1", out: 1 }}];
      const run = (accepted_us) => ({{
        hello: {{}}, config: {{}}, turned: new Set(),
        cut: false, lost: false, gated: false, over: true, cached: 0, preemptions: 0,
        arrivals, ends: [], steps: [{{ step: 1, start_us: 0, accepted_us, num_slots: 1, num_prefill_tokens: 8, rows }}],
      }});
      const pair = {{ run: {{ ...run(took), ...facts }}, ghost: run(9_000_000), twin: run(3_000_000) }};
      return {said};
    }}"""
    return still.evaluate(script, [took_us, facts])


@pytest.mark.parametrize(
    ("took_us", "over", "said"),
    [
        (3_000_000, True, "As it really ran: 3.00 s; the model says the same."),
        (3_004_000, True, "As it really ran: 3.00 s; the model says the same."),  # written alike
        (3_500_000, True, "As it really ran: 3.50 s; the model says 3.00 s, 14 % less."),
        (2_500_000, True, "As it really ran: 2.50 s; the model says 3.00 s, 20 % more."),
        (3_500_000, False, "So far it has really run for 3.50 s; the model says 3.00 s, 14 % less."),
    ],
)
def test_how_the_run_really_went_is_said_beside_what_the_model_makes_of_it(
    still: Page, took_us: int, over: bool, said: str
) -> None:
    assert of_pair(still, "sourceWords(pair)", took_us, over=over) == f"{SOURCE} {said}"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"lost": True}, "Events of A are missing, so how it really ran is known in part only."),
        ({"lost": True, "over": False}, "Events of A are missing, so how it really ran is known in part only."),
        (
            {"cut": True},
            "The recording of A does not reach back to its first arrival, so how long it really took is not known.",
        ),
    ],
)
def test_nothing_foretold_is_set_against_a_run_of_which_something_was_never_heard(
    still: Page, facts: dict[str, bool], said: str
) -> None:
    assert of_pair(still, "sourceWords(pair)", 2_000_000, **facts) == f"{SOURCE} {said}"
    how = of_pair(still, 'howWords(pair.twin, pair.ghost, { name: "A", run: pair.run })', 2_000_000, **facts)
    assert "By how much the model misses A’s own run is not known, as " in how
    assert of_pair(still, "table(pair).columns", **facts)[-1] == "A as it really ran, incomplete"


def test_that_nobody_knows_what_the_model_misses_of_a_run_held_by_hand_is_said(still: Page) -> None:
    assert of_pair(still, "sourceWords(pair)", gated=True).endswith(
        "A was really paused or stepped by hand, so its own times are no measurements. "
        "By how much the model misses A’s own run is not known, as that was held by hand."
    )


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (["batching", "max_num_seqs"], "max_num_seqs, batching."),
        (["max_num_seqs"], "max_num_seqs, batching, but for batching, which B holds."),
    ],
)
def test_knobs_that_were_turned_while_it_ran_are_named(still: Page, again: list[str], said: str) -> None:
    script = f"""(() => {{
      const turned = new Set(["max_num_seqs", "batching"]);
      const [run, twin] = [pair.run, pair.twin].map((one) => ({{ ...one, turned }}));
      return sourceWords({{ run, twin, ghost: {{ ...pair.ghost, turned: new Set({again!r}) }} }});
    }})()"""
    assert f"Turned while it ran, and turned again in A and B: {said}" in of_pair(still, script)


def test_of_a_run_that_goes_on_what_is_cut_and_left_out_is_said(page: Page, served: Served) -> None:
    ids = send(page, "On and on", max_tokens=2000, copies=9)  # in eight slots
    wait_for(page, f"{ids!r}.filter((id) => stepscope.state().requests[id]?.num_output_tokens > 3).length === 8")
    turn(page, "enable_chunked_prefill")
    source = page.locator("#panel-ghost [data-source]")
    expect(source).to_contain_text("8 were still running, and are cut where they stood.")
    expect(source).to_contain_text("1 had no token yet, and is left out.")
    expect(page.locator("#panel-ghost [data-verdict]")).to_contain_text(
        re.compile(r"^So far: .*B \(chunked prefill off")
    )
    assert {table(page, "ghost")[0][side] for side in "AB"} == {"0 of 8"}
    quiet(served)


def test_of_a_run_that_goes_on_nobody_is_said_to_have_finished(still: Page) -> None:
    assert of_pair(still, "sentence(pair)", over=False) == (
        "So far: B would take 3.0 times as long as A for what 1 request had done by then: 9.00 s instead of 3.00 s, "
        "both predicted."
    )


def test_of_a_run_that_goes_on_only_what_really_ended_is_drawn_to_end(still: Page) -> None:
    script = """async () => {
      const { asFarAs } = await import("/static/js/compare_predicted.js");
      const { drawRun } = await import("/static/js/compare_picture.js");
      const { readPalette } = await import("/static/js/palette.js");
      const { demoRun } = await import("/static/js/compare_sources.js");
      const twin = await demoRun("continuous");
      const axis = { unit: "time", span: 8_000_000, slots: 8 };
      const ends = (run) => {
        const filled = [];
        const g = document.createElement("canvas").getContext("2d");
        g.fillRect = (x, y, width, height) => filled.push([width, height].join());
        drawRun(g, { width: 900, height: 180 }, asFarAs(twin, run), axis, { ...readPalette(), font: "12px sans" }, "");
        const ticks = (size) => !size.endsWith(",3");
        return filled.filter(ticks).length;
      };
      const goesOn = { ...twin, over: false };
      return [twin, goesOn, { ...goesOn, ends: [twin.ends[0]] }, { ...goesOn, ends: [] }].map(ends);
    }"""
    whole, without_line, one, none = still.evaluate(script)
    assert whole == without_line + 1  # the line where all had finished
    assert without_line == 24
    assert (one, none) == (1, 0)


def test_a_run_in_somebodys_hand_is_compared_as_predicted_only(page: Page, served: Served) -> None:
    ids = send(page, "Held", max_tokens=2000, copies=2)
    wait_for(page, f"{ids!r}.every((id) => stepscope.state().requests[id]?.num_output_tokens > 3)")
    for held in (True, False):
        (pause if held else lambda _, served: run(served))(page, served)
        turn(page, "batching")
        expect(page.locator("#panel-ghost [data-verdict]")).to_contain_text("So far: B (static) would ")
        expect(page.locator("#panel-ghost [data-source]")).to_contain_text("A was really paused or stepped by hand")
    assert "A as it really runs, so far, held by hand" in table(page, "ghost")[0]
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
