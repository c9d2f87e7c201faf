"""Rows in columns read like a list of rows, and what repeats from step to step is kept once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from app.columns import COLUMNS
from tests.app.fakes import row
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

ROWS = [row("R1", slot=0, computed=5), row("R2", slot=1, scheduled=9, computed=9, out=0), row("R3", slot=4, computed=7)]


def rows(page: Page, script: str) -> Any:
    return call(page, "rows", f"(() => {{ const list = {ROWS!r}; const rows = m.Rows.of(list); return {script}; }})()")


@pytest.mark.parametrize("some", [ROWS, ROWS[:1], []])
def test_the_list_is_what_it_was_made_of(still: Page, some: list[Any]) -> None:
    assert call(still, "rows", f"[...m.Rows.of({some!r})]") == some


def test_the_page_knows_the_members_that_the_server_puts_in_columns(still: Page) -> None:
    assert call(still, "rows", "m.MEMBERS") == list(COLUMNS)


@pytest.mark.parametrize("other", [{**ROWS[0], "new": 1}, {"request": "R1"}])
def test_rows_with_other_members_stay_as_they_are(still: Page, other: dict[str, Any]) -> None:
    assert call(still, "rows", f"m.packedRows({[ROWS[0], other]!r})") == [ROWS[0], other]


def test_columns_from_the_server_read_as_rows(still: Page) -> None:
    packed = """{ length: 2, columns: { request: ["R1", "R2"], slot: [0, 1], scheduled: [1, 6], computed: [5, 6],
      phase: { most: "decode", but: [[1, "prefill"]] }, drafted: 0, accepted: 0, out: { most: 1, but: [[1, 0]] } } }"""
    told = [row("R1", slot=0, computed=5), row("R2", slot=1, scheduled=6, computed=6, out=0)]
    assert call(still, "rows", f"[...m.Rows.of({packed})]") == told
    assert call(still, "rows", f"m.rowOf({{ rows: m.Rows.of({packed}) }}, 'R2')") == told[1]
    assert call(still, "rows", f"m.deliveredIn({{ rows: m.Rows.of({packed}) }})") == ["R1"]


AFTER = """{ length: 3, after: 8, gone: [1], columns: { request: { but: [[2, "R4"]] }, slot: { but: [[2, 1]] },
  computed: { but: [[2, 6]] }, scheduled: { most: 1, but: [[2, 6]] }, phase: { most: "decode", but: [[2, "prefill"]] },
  drafted: 0, accepted: 0, out: { most: 1, but: [[2, 0]] } } }"""


def test_rows_told_by_the_step_before_read_as_rows(still: Page) -> None:
    told = [
        row("R1", slot=0, computed=6),
        row("R3", slot=4, computed=8),
        row("R4", slot=1, scheduled=6, computed=6, out=0),
    ]
    for before in ("rows", "list"):  # from the stream, or from a key
        assert rows(still, f"[...m.receivedRows({AFTER}, {{ step: 8, rows: {before} }})]") == told


def test_rows_told_by_a_step_that_is_not_known_are_refused(still: Page) -> None:
    assert rows(still, f"m.receivedRows({AFTER}, {{ step: 7, rows }})") is None
    assert rows(still, f"m.receivedRows({AFTER}, null)") is None


def test_requests_that_go_on_are_kept_once(still: Page) -> None:
    on = """{ length: 3, after: 8, gone: [], columns: { request: { but: [] }, slot: { but: [] }, computed: { but: [] },
      scheduled: 1, phase: "decode", drafted: 0, accepted: 0, out: 1 } }"""
    told = f"m.Rows.after({on}, rows).columns"
    assert rows(still, f"[{told}.request === rows.columns.request, {told}.computed]") == [True, [6, 10, 8]]


def test_one_row_is_found_by_its_request(still: Page) -> None:
    assert rows(still, "['R1', 'R3', 'R9'].map((id) => m.rowOf({ rows }, id) ?? null)") == [ROWS[0], ROWS[2], None]
    assert rows(still, "m.rowOf({ rows: list }, 'R2')") == ROWS[1]
    assert rows(still, "m.rowOf(undefined, 'R2') ?? null") is None


def test_lists_that_repeat_are_kept_once(still: Page) -> None:
    same = """(() => {
      const again = m.Rows.of(list.map((row) => ({ ...row, computed: row.computed + 1 })), rows);
      const { request, slot, computed } = again.columns;
      return [request === rows.columns.request, slot === rows.columns.slot, computed === rows.columns.computed,
        again.weight(rows, () => 1), again.weight(null, () => 1)];
    })()"""
    assert rows(still, same) == [True, True, False, 1, 8]


def test_lists_of_other_requests_are_not_taken_for_the_same(still: Page) -> None:
    assert rows(still, "[...m.Rows.of(list.slice(1), rows)]") == ROWS[1:]
    assert rows(still, "[...m.Rows.of([list[0], list[2], list[1]], rows)]") == [ROWS[0], ROWS[2], ROWS[1]]
