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
    named = {name: spread(column, rows["length"]) for name, column in rows["columns"].items()}
    return {**event, "rows": [{name: named[name][i] for name in named} for i in range(rows["length"])]}


def spread(column: Any, length: int) -> list[Any]:
    if isinstance(column, list):
        return column
    if not isinstance(column, dict):
        return [column] * length
    others = dict(column["but"])
    return [others.get(i, column["most"]) for i in range(length)]


def sent(event: Json) -> Json:
    told: Json = json.loads(in_columns(event, encode(event)))
    return told


values = st.sampled_from([0, 1, 7, "decode", "R1", None, True, [1], [], {"but": 1}])
usual = st.sampled_from([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, True, 0, "R1"])
rows = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, values | usual)), max_size=5)
many = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, usual)), min_size=20, max_size=30)


@given(rows | many)
def test_columns_say_what_the_rows_said(some: list[Json]) -> None:
    told, said = unpacked(sent(step(some))), step(some)
    assert told == said
    assert json.dumps(told, sort_keys=True) == json.dumps(said, sort_keys=True)  # to Python, 1 is True


def test_few_that_differ_are_said_beside_what_most_have() -> None:
    many = [row(f"R{i}", slot=i, computed=i) for i in range(20)] + [row("R20", scheduled=9, computed=9, out=0)]
    columns = sent(step(many))["rows"]["columns"]
    assert columns["phase"] == {"most": "decode", "but": [[20, "prefill"]]}
    assert columns["out"] == {"most": 1, "but": [[20, 0]]}
    assert columns["slot"] == [*range(20), 0]


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
