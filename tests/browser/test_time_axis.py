"""The axis in time, the marks of long steps where all columns are as wide, and what is said while a step is due."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import frames, send, settle, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

HISTORY = """
  const ms = 1000;
  const history = { steps: new Map(), epochs: [{ id: "e", at: -Infinity, base: 0 }], resets: 0, last: 0 };
  const step = (column, start, wall) => {
    history.steps.set(column, { step: column, start_us: start * ms, wall_us: wall * ms });
    history.last = column;
  };
  for (let column = 1; column <= 10; column += 1) step(column, 100 * column, column === 5 ? 100 : 50);
  const plot = { left: 100, right: 1100 };
"""


def on_axis(page: Page, script: str, *, scale: str = "1 / ms") -> Any:
    """What `script` returns with an axis in time over `history`: ten steps, one every 100 ms; each takes 50, the fifth
    100."""
    return page.evaluate(
        f"""async () => {{
          const {{ createAxis }} = await import("/static/js/axis.js");
          const {{ timeTicks }} = await import("/static/js/time_ticks.js");
          {HISTORY}
          const axis = createAxis();
          Object.assign(axis, {{ timed: true, scale: {scale} }});
          axis.update(history.last, history);
          {script}
        }}"""
    )


# -- places in time ----------------------------------------------------------------------------------------------


def test_a_column_lies_where_its_step_does_and_is_as_wide_as_it_took(still: Page) -> None:
    script = "return [4, 5, 6, 10].map((c) => [axis.x(c, plot), axis.width(c), axis.end(c, plot)]);"
    # A pixel is a millisecond; the newest step ends at the right edge, 1,050 ms.
    assert on_axis(still, script) == [[450, 50, 500], [550, 100, 650], [650, 50, 700], [1050, 50, 1100]]


def test_between_two_steps_there_is_no_column(still: Page) -> None:
    script = "return [449, 451, 499, 501, 549, 551, 649, 651, 1099].map((x) => axis.columnAt(x, plot));"
    assert on_axis(still, script) == [-1, 4, 4, -1, -1, 5, 5, 6, 10]


def test_only_what_can_be_seen_is_in_the_span(still: Page) -> None:
    script = """
      axis.scale = 4 / ms; // 250 ms: from 800 to 1050
      const live = axis.span(plot);
      axis.drag(-4 * 110, history.last); // 690 to 940: nothing of step 6, which ended at 650
      return [live, axis.span(plot), axis.following, axis.right];
    """
    assert on_axis(still, script) == [{"from": 8, "to": 10}, {"from": 7, "to": 9}, False, 9.8]


def test_zooming_keeps_what_lies_under_the_pointer(still: Page) -> None:
    script = """
      const at = axis.x(5.5, plot);
      axis.zoom(1.25, at, plot, history.last);
      const closer = [axis.x(5.5, plot) - at, axis.width(5)];
      for (let i = 0; i < 99; i += 1) axis.zoom(0.8, at, plot, history.last);
      return [...closer, axis.scale * 1e6];
    """
    moved, width, least = on_axis(still, script)
    assert abs(moved) < 1e-6
    assert (round(width, 6), round(least, 6)) == (125, 1)  # not below a pixel per second


@pytest.mark.parametrize(("column", "left"), [(10, 800), (9, 800), (8, 785), (5, 485), (1, 85)])
def test_a_column_is_brought_into_view_by_the_shortest_way(still: Page, column: int, left: int) -> None:
    script = f"axis.scale = 4 / ms; axis.reveal({column}, plot); return axis.edge / ms - 250;"
    assert on_axis(still, script) == left  # 15 ms are left for labels


def test_a_step_longer_than_the_view_is_no_reason_to_move_on(still: Page) -> None:
    script = """
      axis.scale = 40 / ms; // 25 ms in view
      axis.reveal(5, plot);
      const edge = axis.edge;
      axis.reveal(5, plot);
      return [edge / ms, axis.edge === edge, axis.columnAt(600, plot)];
    """
    assert on_axis(still, script) == [600, True, 5]


def test_a_new_engines_time_goes_on_after_the_old_ones_and_has_no_common_clock(still: Page) -> None:
    script = """
      history.epochs.push({ id: "f", at: 11, base: 11 });
      step(12, 3, 50);
      step(13, 60, 90);
      history.last = 13;
      axis.update(13, history);
      const { times } = axis;
      const { start, end } = times;
      const places = [end(10), start(11), end(11), start(12), start(13)].map((us) => us / ms);
      return [places, timeTicks(axis, plot).map(({ text, x }) => [text, Math.round(x)])];
    """
    places, ticks = on_axis(still, script)
    # Between them, and hatched, as long as the eight steps before took: 3 of them in 50 ms, one in 100.
    assert places == [1050, 1050, 1500, 1500, 1557]
    assert [text for text, _ in ticks] == ["0.7 s", "0.8 s", "0.9 s", "1.0 s", "0.1 s"]


def test_no_clocks_time_reaches_from_the_last_known_step_of_an_engine_to_the_first_of_the_next(still: Page) -> None:
    script = """
      const { drawBreaks } = await import("/static/js/marks.js");
      history.epochs.push({ id: "f", at: 13, base: 13 }); // 11 and 12 were not heard, nor 14 to 16
      history.gaps = [];
      step(17, 3, 50);
      step(18, 60, 390);
      axis.update(18, history);
      const drawn = [];
      const g = { fillRect: (x, y, width) => drawn.push([Math.round(x), Math.round(width)]), fillText() {} };
      drawBreaks(g, plot, 0, 10, { axis, history, palette: { hatch: { gap: "" }, fault: "" } });
      return [drawn[0], drawn[1], timeTicks(axis, plot).map(({ text }) => text)];
    """
    hatched, line, ticks = on_axis(still, script)
    assert hatched == [203, 450]  # as long as eight steps took; to the right of it 447 ms of the new engine
    assert line == [428, 1]  # in the middle of it
    assert ticks == ["1.0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s"]


def test_a_wide_hole_is_no_reason_to_begin_anew(still: Page) -> None:
    script = """
      step(6000, 1100, 50);
      axis.update(6000, history);
      const { version } = axis.times;
      axis.update(6000, history);
      const kept = axis.times.version === version;
      for (let column = 1; column <= 10; column += 1) history.steps.delete(column);
      axis.update(6000, history); // now they are forgotten
      return [kept, axis.times.version > version, axis.times.knows(10)];
    """
    assert on_axis(still, script) == [True, True, False]


def test_no_more_steps_than_can_be_drawn_are_in_view_however_short_they_get(still: Page) -> None:
    script = """
      for (let column = 11; column <= 9000; column += 1) step(column, 1050 + 2 * (column - 11), 2);
      axis.update(9000, history);
      const shown = () => axis.span(plot).to - axis.span(plot).from;
      axis.scale = 0.1 / ms; // 10 s
      const before = shown();
      axis.suit(plot);
      const { scale } = axis;
      axis.suit(plot);
      return [before, shown(), axis.following, axis.scale === scale];
    """
    assert on_axis(still, script) == [4999, 2000, True, True]


def test_steps_that_were_not_heard_share_the_time_between_those_that_were(still: Page) -> None:
    script = """
      history.last = 13; // 11 to 13 fell into a gap
      axis.update(13, history);
      const before = [11, 12, 13].map((c) => axis.width(c));
      step(14, 1350, 50);
      axis.update(14, history);
      return [before, [11, 12, 13].map((c) => axis.width(c)), axis.end(13, plot) === axis.x(14, plot)];
    """
    assert on_axis(still, script) == [[0, 0, 0], [100, 100, 100], True]


def test_older_steps_that_come_late_move_nothing(still: Page) -> None:
    script = """
      axis.drag(-333, history.last);
      const before = axis.x(7, plot);
      history.steps = new Map([[0, { step: 0, start_us: 10 * ms, wall_us: 5 * ms }], ...history.steps]);
      axis.update(10, history);
      return [axis.x(7, plot) - before, axis.width(0)];
    """
    assert on_axis(still, script) == [0, 5]


def test_turning_the_axis_keeps_what_is_in_view(still: Page) -> None:
    script = """
      Object.assign(axis, { timed: false, following: false, right: 8, px: 200 }); // steps 3 to 7
      axis.turn(true, plot, history);
      const timed = [axis.x(3, plot), axis.end(7, plot), axis.span(plot)];
      axis.turn(false, plot, history);
      return [timed, axis.right, axis.px];
    """
    assert on_axis(still, script) == [[100, 1100, {"from": 3, "to": 7}], 8, 200]


def test_while_a_step_is_due_the_edge_goes_on_and_held_it_stays_when_the_step_comes(still: Page) -> None:
    script = """
      axis.update(10, history, 400 * ms);
      const due = axis.end(10, plot);
      axis.hold();
      step(11, 1050, 900);
      axis.update(11, history);
      return [due, axis.end(10, plot), axis.columnAt(1099, plot)];
    """
    assert on_axis(still, script) == [700, 700, 11]


def test_in_time_too_a_step_is_painted_once_however_many_frames_show_it(still: Page) -> None:
    script = """
      const { createRoll } = await import("/static/js/roll.js");
      const g = new OffscreenCanvas(1200, 40).getContext("2d");
      const view = { axis, history, palette: {}, lit: { any: false, requests: new Set() } };
      const roll = createRoll();
      let painted = [];
      const paint = (paper, { step }, px) => {
        painted.push(step);
        paper.fillStyle = "#0000ff";
        paper.fillRect(0, 0, px, 40);
      };
      const blue = (x) => g.getImageData(Math.floor(x), 20, 1, 1).data[2] > 0;
      const frame = () => {
        painted = [];
        g.clearRect(0, 0, 1200, 40);
        axis.update(history.last, history);
        roll.draw(g, { ...plot, top: 0, bottom: 40 }, view, [], paint);
        return [...new Set(painted)].join(); // one that lies over the ring's seam is painted on both sides
      };
      const all = [frame(), frame()];
      for (let column = 11; column < 40; column += 1) { // round the ring, more than once
        step(column, 100 * column, 50);
        const now = frame();
        if (column === 11 || column === 39) all.push(now);
      }
      const around = (c) => [axis.x(c, plot) + 3, axis.end(c, plot) - 3, axis.x(c, plot) - 3];
      const shown = [38, 39].map((c) => around(c).map(blue));
      axis.drag(-100, history.last);
      all.push(frame());
      return [all, shown];
    """
    painted, shown = on_axis(still, script)
    assert painted[:2] == ["1,2,3,4,5,6,7,8,9,10", ""]
    assert painted[2:4] == ["10,11", "38,39"]  # the last one's edge once more
    assert shown == [[True, True, False], [True, True, False]]
    assert len(painted[4].split(",")) <= 2


# -- long steps, and one that is due -----------------------------------------------------------------------------


def test_steps_of_five_times_the_median_are_long_the_longest_first(still: Page) -> None:
    script = """(() => {
      const steps = new Map(Array.from({ length: 20 }, (_, i) => [i, { wall_us: 20_000 }]));
      steps.get(4).wall_us = 101_000;
      steps.get(9).wall_us = 17_000_000;
      steps.get(12).wall_us = 100_000;
      steps.delete(15);
      const quick = new Map(Array.from({ length: 20 }, (_, i) => [i, { wall_us: i === 3 ? 900 : 10 }]));
      const found = (known, from, to) => m.longSteps(known, from, to).map(({ column }) => column);
      return [found(steps, 0, 19), found(steps, 5, 8), found(steps, 10, 19), found(steps, 8, 11), found(quick, 0, 19)];
    })()"""
    assert call(still, "long_steps", script) == [[9, 4], [], [], [], []]


def test_a_long_step_is_told_above_its_column_unless_the_axis_is_in_time(still: Page) -> None:
    script = """
      const { drawLongSteps } = await import("/static/js/long_steps.js");
      const said = [];
      const g = new Proxy({}, {
        get: (_, name) => name === "fillText" ? (text, x) => said.push([text, x]) : () => ({ width: 40 }),
        set: () => true,
      });
      step(5, 500, 2000);
      step(6, 2500, 400); // no room for its words beside the longer one's
      const view = { axis, history, palette: {} };
      drawLongSteps(g, plot, 8, view);
      Object.assign(axis, { timed: false, px: 20, right: 11 });
      drawLongSteps(g, plot, 8, view);
      return [said, axis.x(5.5, plot)];
    """
    said, middle = on_axis(still, script)
    assert said == [["2,000 ms", middle + 7]]


QUIET = """(() => {
  let now = 0;
  const quiet = m.createQuiet(() => now);
  const state = { gate: { state: "running", per_second: null }, queues: { running: ["R1"], waiting: [] } };
  const store = { connection: "live", engine: { id: "main", about: { status: "ready" }, state } };
  const hear = (...kinds) => quiet.take({ events: kinds.map((kind) => ({ kind, engine: "main" })) }, store.engine);
  const after = (ms) => { now += ms; return quiet.ms(store); };
  SCRIPT
})()"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("hear('step'); return [after(999), after(1), after(2200)]", [None, 1000, 3200]),
        ("hear('step'); after(3000); hear('step'); return after(500)", None),
        ("hear('step'); after(3000); hear('beat'); return after(500)", 3500),  # alive, but no step
        ("state.queues.running = []; hear('step'); return after(9000)", None),  # idle
        ("state.queues.running = []; hear('step'); after(9000); state.queues.waiting = ['R2']; hear('request');"
         " return [after(900), after(600)]", [None, 1500]),
        ("hear('step'); state.gate.state = 'paused'; return after(9000)", None),
        ("state.gate.state = 'paused'; hear('step'); after(9000); state.gate.state = 'running'; hear('gate');"
         " return after(900)", None),
        ("hear('step'); state.gate.per_second = 0.5; return after(1900)", None),  # slow motion
        ("hear('step'); store.connection = 'stale'; return after(9000)", None),
        ("hear('step'); store.engine.about.status = 'silent'; return after(9000)", None),
        ("hear('step'); after(300_000); quiet.restart(); return after(900)", None),  # hidden, and back
    ],
)  # fmt: skip
def test_no_step_is_said_only_while_one_is_due(still: Page, script: str, expected: Any) -> None:
    assert call(still, "quiet", QUIET.replace("SCRIPT", script)) == expected


def test_a_step_that_is_long_in_coming_is_told_until_it_has_come(open_page: OpenPage) -> None:
    badge = 'document.querySelector("[data-part=quiet]")'
    with serving("--scripted-step-ms", "4000") as own:
        page = open_page(own.url)
        send(page, "In a while", max_tokens=20)
        wait_for(page, f"/^no step for [123].[0-9] s$/.test({badge}.textContent) && !{badge}.hidden")
        expect(page.locator("[data-part=status]")).to_have_text("ready")
        wait_for(page, f"{badge}.hidden && stepscope.state().step > 0")
        page.close()


# -- the page ----------------------------------------------------------------------------------------------------


def test_one_key_turns_the_axis_and_the_address_keeps_it(page: Page, open_page: OpenPage, served: Served) -> None:
    send(page, "In time", max_tokens=40)
    settle(page)
    page.locator("h2").first.click()
    label = page.locator("#panel-slots .label", has_text="axis: seconds")
    expect(label).to_be_hidden()
    page.keyboard.press("x")
    expect(label).to_be_visible()
    for _ in range(20):
        page.keyboard.press("+")
    wait_for(page, "location.search === '?axis=time'")
    expect(page.locator("[data-act=time]")).to_have_attribute("aria-pressed", "true")
    canvas = page.locator("#panel-slots canvas")
    box = canvas.bounding_box()
    assert box is not None
    newest = page.evaluate("stepscope.state().step")
    canvas.click(position={"x": box["width"] - 94 - 2, "y": 20})  # the newest step ends at the plot's right edge
    wait_for(page, f"stepscope.moment().step === {newest}")
    page.keyboard.press("ArrowLeft")
    wait_for(page, f"stepscope.moment().step === {newest} - 1 && location.hash.includes('pxs=')")
    assert violations(page) == []
    again = open_page(page.url)
    wait_for(again, f"stepscope.moment().step === {newest} - 1")
    expect(again.locator("#panel-slots .label", has_text="axis: seconds")).to_be_visible()
    wait_for(again, f"location.href === {page.url!r}")
    again.keyboard.press("x")
    wait_for(again, "location.search === ''")
    frames(again)
    assert again.evaluate("stepscope.moment().step") == newest - 1
