"""Where the lanes of the timeline stand when there are more than fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

ROOM = {"width": 600, "height": 119}  # for ten rows


def shown(page: Page, *ends: int | None, chosen: int | None = None) -> list[int]:
    """Which rows are shown of lanes that stand in a row each and ended there, or have not."""
    lanes: list[dict[str, Any]] = [
        {"id": f"R{row}", "row": row, "arrive": 0, "end": None if end is None else {"at": end}}
        for row, end in enumerate(ends)
    ]
    script = f"""(() => {{
      const lanes = {json.dumps(lanes)};
      const choice = {{ kind: "request", id: "R{chosen}" }};
      const lines = m.linesOf({json.dumps(ROOM)}, lanes, {{ until: 50, choice }});
      return lanes.filter((lane) => m.isShown(lane, lines)).map(({{ row }}) => row);
    }})()"""
    found: list[int] = call(page, "panels/timeline_lines", script)
    return found


def test_as_many_as_fit_are_shown_and_each_whole(still: Page) -> None:
    assert shown(still, *[None] * 30) == list(range(10))


def test_where_all_fit_who_has_finished_keeps_the_place(still: Page) -> None:
    assert shown(still, 10, 20, *[None] * 6) == list(range(8))


def test_where_not_all_fit_those_above_all_that_goes_on_give_way(still: Page) -> None:
    assert shown(still, *[40] * 8, *[None] * 10) == list(range(8, 18))


def test_four_rows_give_way_at_a_time_so_that_the_others_seldom_move(still: Page) -> None:
    assert shown(still, *[40] * 7, *[None] * 10) == list(range(4, 14))


def test_a_chosen_lane_stays_though_it_has_ended(still: Page) -> None:
    assert shown(still, *[40] * 8, *[None] * 10, chosen=5) == list(range(4, 14))


def test_a_chosen_lane_is_shown_however_many_go_on_above_it(still: Page) -> None:
    assert shown(still, *[None] * 30, chosen=25) == list(range(16, 26))
