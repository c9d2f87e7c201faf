"""A step's rows in columns say what the list of rows says."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.columns import COLUMNS, in_columns
from app.wire import Json, encode
from engine.event_parts import StepRow
from tests.app.fakes import row


def step(rows: list[Json]) -> Json:
    return {
        "kind": "step",
        "engine": "main",
        "epoch": "e",
        "seq": 3,
        "t": 9,
        "step": 1,
        "rows": rows,
        "more": [1, None],
    }


def unpacked(event: Json) -> Json:
    """The event with a list of rows again, as a reader of columns does it."""
    rows = event["rows"]
    if isinstance(rows, list):
        return event
    pick = lambda column, i: column[i] if isinstance(column, list) else column  # noqa: E731
    named = rows["columns"].items()
    return {**event, "rows": [{name: pick(column, i) for name, column in named} for i in range(rows["length"])]}


def sent(event: Json) -> Json:
    told: Json = json.loads(in_columns(event, encode(event)))
    return told


values = st.sampled_from([0, 1, 7, "decode", "R1", None, [1], [], {"a": 1}])
rows = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, values)), max_size=5)


@given(rows)
def test_columns_say_what_the_rows_said(some: list[Json]) -> None:
    assert unpacked(sent(step(some))) == step(some)


def test_the_columns_are_the_members_of_a_row() -> None:
    assert [field.name for field in fields(StepRow)] == list(COLUMNS)


def test_what_all_rows_have_is_said_once() -> None:
    told = sent(step([row("R1", slot=0, computed=5), row("R2", slot=1, computed=9)]))
    assert told["rows"]["columns"]["phase"] == "decode"
    assert told["rows"]["columns"]["computed"] == [5, 9]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{**row("R1", computed=1), "new": 1}],
        [row("R1", computed=1), {"request": "R2"}],
        [row("R1", computed=1), 5],
        [1, 2],
        "rows",
    ],
)
def test_rows_that_do_not_fit_stay_as_they_are(rows: Any) -> None:
    event = step(rows)
    raw = encode(event)
    assert in_columns(event, raw) is raw


def test_other_events_stay_as_they_are() -> None:
    event = {**step([row("R1", computed=1)]), "kind": "strange"}
    raw = encode(event)
    assert in_columns(event, raw) is raw


def test_a_large_step_takes_a_fraction_of_the_characters() -> None:
    event = step([row(f"R{i}", slot=i, computed=1000 + i) for i in range(256)])
    raw = encode(event)
    assert len(in_columns(event, raw)) < len(raw) / 5
