"""The render loop: what one frame does, and who comes next."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

# A loop of three panels that take longer than a frame's budget each; `next` is what was done in the next frame.
LOOP = """(async () => {
  const loop = m.createLoop(() => ({}));
  const done = [];
  const slow = (word) => () => {
    done.push(word);
    for (const from = performance.now(); performance.now() < from + 5; );
  };
  const panels = ["a", "b", "c"].map((id) => ({ id, visible: true, draw: slow(id), refresh: slow(id.toUpperCase()) }));
  for (const panel of panels) loop.add(panel);
  const next = async () => {
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
    return done.splice(0).join("");
  };
  loop.invalidateNow();
  const whole = await next();
  %s
})()"""


def run(page: Page, script: str) -> Any:
    return call(page, "render", LOOP % script)


def test_what_a_person_did_shows_everywhere_in_the_next_frame(still: Page) -> None:
    assert run(still, "return whole;") == "abcABC"


def test_a_frame_ends_when_its_time_is_spent_and_the_next_goes_on_where_it_stopped(still: Page) -> None:
    script = "loop.invalidate(); return [await next(), await next(), await next(), await next(), loop.rests];"
    assert run(still, script) == ["a", "b", "c", "", True]


def test_who_waited_longest_comes_first_however_often_something_changes(still: Page) -> None:
    script = """
      const seen = [];
      for (let i = 0; i < 6; i += 1) {
        loop.invalidate();
        seen.push(await next());
      }
      return seen.join("");"""
    assert run(still, script) == "abcabc"


def test_a_panel_off_the_screen_takes_no_turn(still: Page) -> None:
    script = "panels[0].visible = false; loop.invalidate(); return [await next(), await next(), await next()];"
    assert run(still, script) == ["b", "c", ""]


def test_time_charged_is_taken_off_the_next_frame_but_never_two_in_a_row(still: Page) -> None:
    script = """
      for (const panel of panels) panel.draw = () => done.push(panel.id);
      loop.charge(60);
      loop.invalidate();
      const seen = [await next()];
      loop.charge(60);
      return [...seen, await next(), await next()];"""
    assert run(still, script) == ["", "a", "bc"]


# The first of nine frames, from 1, that draws the slow one, with 1 ms of each charged, beside two that take nothing.
# The loop has learned what it takes.
CHARGED = """
  for (const panel of panels) delete panel.refresh;
  for (const panel of panels.slice(1)) panel.draw = () => done.push(panel.id);
  for (let i = 0; i < 30; i += 1) {
    loop.invalidateNow();
    await next();
  }
  for (let frame = 1; frame < 10; frame += 1) {
    loop.charge(1);
    loop.invalidate();
    if ((await next()).includes("a")) return frame;
  }
  return null;"""


def test_what_takes_long_is_not_drawn_in_a_frame_that_had_other_work(still: Page) -> None:
    assert run(still, CHARGED) != 1


def test_what_takes_long_is_passed_over_for_four_frames_at_most(still: Page) -> None:
    assert run(still, CHARGED) in range(1, 6)
