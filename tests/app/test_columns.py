"""A step's rows in columns say what the list of rows says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.columns import COLUMNS, RowPacker
from app.wire import Json, encode
from engine.event_parts import StepRow
from tests.app.fakes import row


def step(rows: list[Json], number: int = 1, epoch: str = "e") -> Json:
    return {
        "kind": "step",
        "engine": "main",
        "epoch": epoch,
        "seq": 3,
        "t": 9,
        "step": number,
        "rows": rows,
        "more": [1, None],
    }


def unpacked(event: Json, before: Json | None = None) -> Json:
    """The event with a list of rows again, as a reader of columns does it who knows the step before."""
    rows = event["rows"]
    if isinstance(rows, list):
        return event
    length, columns = rows["length"], rows["columns"]
    named = {name: spread(each, length) for name, each in columns.items() if name not in TOLD or "after" not in rows}
    if "after" in rows:
        assert before is not None
        assert rows["after"] == before["step"]
        stay = [row for i, row in enumerate(before["rows"]) if i not in rows["gone"]]
        for name in TOLD:
            expected = [row[name] for row in stay]
            if name == "computed":
                expected = [was + now for was, now in zip(expected, named["scheduled"], strict=False)]
            others = dict(columns[name]["but"])
            named[name] = [others[i] if i in others else expected[i] for i in range(length)]
    return {**event, "rows": [{name: named[name][i] for name in COLUMNS} for i in range(length)]}


def spread(column: Any, length: int) -> list[Any]:
    if isinstance(column, list):
        return column
    if not isinstance(column, dict):
        return [column] * length
    others = dict(column["but"])
    return [others.get(i, column["most"]) for i in range(length)]


def sent(event: Json, packer: RowPacker | None = None) -> Json:
    told: Json = json.loads((packer or RowPacker()).in_columns(event, encode(event)))
    return told


TOLD = ("request", "slot", "computed")
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
    assert RowPacker().in_columns(event, raw) is raw


def test_other_events_stay_as_they_are() -> None:
    event = {**step([row("R1", computed=1)]), "kind": "strange"}
    raw = encode(event)
    assert RowPacker().in_columns(event, raw) is raw


def test_a_large_step_takes_a_fraction_of_the_characters() -> None:
    event = step([row(f"R{i}", slot=i, computed=1000 + i) for i in range(256)])
    raw = encode(event)
    assert len(RowPacker().in_columns(event, raw)) < len(raw) / 5


def busy(number: int, ids: Iterable[int] = range(20), **different: Any) -> Json:
    """A step of a large batch, each request one token further than in the step before."""
    return step([row(f"R{i}", slot=i, computed=100 * i + number) for i in ids], number, **different)


def told_after(*events: Json) -> Json:
    """The last one as it is sent to who heard the others."""
    packer = RowPacker()
    *_, last = (sent(event, packer) for event in events)
    return last


@st.composite
def lives(draw: st.DrawFn) -> list[Json]:
    """Steps in a row: requests go on, end, come back, change places; and now and then a member is none of its kind."""
    odd = st.sampled_from([0] * 30 + [True, None, "R1", 1.0])
    ids = list(range(12))
    computed = dict.fromkeys(range(40), 0)
    events = []
    for number in range(1, 6):
        gone = draw(st.sets(st.sampled_from(ids), max_size=3)) if ids else set()
        ids = [i for i in ids if i not in gone] + draw(st.lists(st.integers(0, 39), max_size=2))
        if draw(st.booleans()) and draw(st.booleans()):
            ids = draw(st.permutations(ids))
        rows = []
        for i in ids:
            scheduled = draw(st.sampled_from([1, 1, 1, 4]))
            computed[i] += draw(st.sampled_from([scheduled] * 6 + [0]))
            each = row(f"R{i}", slot=draw(st.sampled_from([i] * 9 + [99])), scheduled=scheduled, computed=computed[i])
            if strange := draw(odd):
                each[draw(st.sampled_from(COLUMNS))] = strange
            rows.append(each)
        events.append(
            step(rows, number + draw(st.sampled_from([0] * 9 + [1])), draw(st.sampled_from(["e"] * 9 + ["f"])))
        )
    return events


@given(lives())
def test_a_step_told_by_the_one_before_says_what_its_rows_said(events: list[Json]) -> None:
    packer = RowPacker()
    before = None
    for event in events:
        told = unpacked(sent(event, packer), before)
        assert json.dumps(told, sort_keys=True) == json.dumps(event, sort_keys=True)
        before = event


def test_requests_that_go_on_are_not_named_again() -> None:
    rows = told_after(busy(1), busy(2))["rows"]
    assert (rows["after"], rows["gone"]) == (1, [])
    assert [rows["columns"][name] for name in TOLD] == [{"but": []}] * 3


def test_who_ended_and_who_came_is_said() -> None:
    rows = told_after(busy(1), busy(2, [*range(3), *range(4, 20), 31]))["rows"]
    assert rows["gone"] == [3]
    assert rows["columns"]["request"] == {"but": [[19, "R31"]]}
    assert rows["columns"]["slot"] == {"but": [[19, 31]]}


@pytest.mark.parametrize(
    "events",
    [
        [busy(1), busy(3)],
        [busy(1), busy(2, epoch="f")],
        [busy(1), step([{**row("R1", computed=1), "new": 1}], 2), busy(3)],
        *([busy(1), {**busy(9), "kind": kind}, busy(2)] for kind in ("hello", "key", "gap", "reset")),
    ],
)
def test_a_step_whose_predecessor_a_reader_may_not_know_stands_by_itself(events: list[Json]) -> None:
    assert "after" not in told_after(*events)["rows"]


def test_a_step_told_by_the_one_before_takes_a_fraction_of_one_that_stands_by_itself() -> None:
    alone, after = (
        encode(event["rows"])
        for event in (told_after(busy(1, range(256))), told_after(busy(1, range(256)), busy(2, range(256))))
    )
    assert len(after) < len(alone) / 10
