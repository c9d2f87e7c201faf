"""The tape: how many steps it keeps, what they weigh, and what goes when there is no more room."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

TAPE = """
  const state = structuredClone(stepscope.state());
  const tape = m.createTape(LIMITS);
  const { fold } = await import("/static/js/state.js");
  const name = NAME;
  const row = { phase: "decode", scheduled: 1, drafted: 0, accepted: 0, out: 1 };
  const rowsOf = (step) => [0, 1, 2, 3, 4, 5, 6, 7].map((slot) => {
    return { ...row, request: name(slot, step), slot, computed: 9 * slot + step };
  });
  const request = { status: "running", num_computed_tokens: 0, num_output_tokens: 0, block_table: [] };
  const requests = Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`R${i}`, { ...request }]));
  let live = { ...state, step: 0, requests, finished: [], queues: { waiting: [], running: [] } };
  tape.take({ kind: "key", epoch: "e", seq: 0, t: 0 }, live, 0);
  const first = tape.size.bytes;
  let most = 0;
  let event;
  for (let step = 1; step <= STEPS; step += 1) {
    event = { kind: "step", epoch: "e", seq: step, t: step, step, rows: rowsOf(step), evicted: [], tables: [],
      hashed: [], waiting: [], victims: [], num_prefill_tokens: 0, num_decode_tokens: 8 };
    live = fold(live, event);
    tape.take(event, live, 0);
    most = Math.max(most, tape.size.bytes);
  }
"""


def taped(page: Page, limits: str, steps: int, result: str, name: str = "(slot) => `R${slot}`") -> Any:
    script = TAPE.replace("LIMITS", limits).replace("STEPS", str(steps)).replace("NAME", name)
    return page.evaluate(
        f"""async () => {{ const m = await import("/static/js/tape.js"); {script} return {result}; }}"""
    )


def test_at_least_twenty_thousand_steps_are_kept_and_hardly_more(still: Page) -> None:
    kept, oldest, forgotten = taped(
        still, "{}", 25_000, "[tape.size.steps, tape.at(5_001)?.state.step, tape.at(4_000)]"
    )
    assert 20_000 <= kept < 20_000 + 256
    assert oldest == 5_001
    assert forgotten is None


def test_the_oldest_keyframe_goes_with_its_steps_when_bytes_run_out(still: Page) -> None:
    result = "[most, tape.size, tape.at(tape.size.floor + 1).state.step, tape.at(tape.size.floor - 1)]"
    most, size, step, gone = taped(still, "{ bytes: 400_000, every: 16 }", 2_000, result)
    assert most <= 400_000 * 1.001
    assert 16 < size["steps"] < 1_000
    assert (step, gone) == (size["floor"] + 1, None)


def test_rows_weigh_what_they_do_not_share_with_the_step_before(still: Page) -> None:
    same, other = (
        taped(still, "{}", 200, "tape.size.bytes", f"(slot, step) => `R${{{number}}}`")
        for number in ("slot", "8 * (step % 2) + slot")
    )
    bare = taped(still, "{}", 200, "tape.size.bytes - first - 200 * m.weigh({ ...event, rows: null })")
    assert bare >= 200 * 8 * 8  # how far each of eight has come
    assert other - same == pytest.approx(200 * (32 + 8 * 8), rel=0.02)  # a list of who they are


def test_what_the_tape_drops_the_history_drops_too(still: Page) -> None:
    script = """(() => {
      const history = m.createHistory();
      for (let step = 1; step <= 50; step += 1) history.steps.set(step, { step, rows: [] });
      m.forgetBefore(history, 41);
      return [m.oldestColumn(history), history.steps.size];
    })()"""
    assert call(still, "history", script) == [41, 10]
