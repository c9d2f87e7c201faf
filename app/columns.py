"""A step's rows in columns, for viewers that ask for them so (`{"rows":"columns"}`): the page does.

Contract. `{"length": n, "columns": {member: column}}` says what the list of rows says, in a sixth of the characters of
a large step, for most rows are one token of one request each. A column is the one value that all rows have, or
`{"most": value, "but": [[index, value], ...]}` where few have another, or a list of n values. What does not fit (a
member that is not known here, a row that lacks one) or would not be shorter stays a list of rows; readers of columns
take both. `COLUMNS` names the members of engine.event_parts.StepRow, and a test holds it to them.

Most steps go on with the requests of the one before, each a little further. Then the rows say so, in a third of that
again: `"after": step` names the step before, `"gone": [index, ...]` its rows that this one has no more; the others come
first, in their order. Requests and slots are theirs and `computed` is their `computed` with this row's `scheduled`, but
for `{"but": [[index, value], ...]}`, which names all new rows too. A reader knows the step before from the stream, or
from the `last_step` of the key that it begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import add, itemgetter, ne
from typing import Any

from app.wire import Json, encode

COLUMNS = ("request", "slot", "phase", "scheduled", "drafted", "accepted", "computed", "out")

_members = itemgetter(*COLUMNS)
_FEW = 8  # one in so many may have another value
_PLAIN = {"request": str, "slot": int, "scheduled": int, "computed": int}  # what a row may be told by the one before
_BREAKS = frozenset(("hello", "key", "gap", "reset"))  # after these a reader may know another step, or none

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Before:
    """The step that the next one may refer to."""

    epoch: str
    step: int
    request: Values
    slot: Values
    computed: Values


class RowPacker:
    """Of one engine's events, each shown to it in order."""

    def __init__(self) -> None:
        self._before: _Before | None = None

    def in_columns(self, event: Json, raw: str) -> str:
        """The event's JSON, its rows in columns where they fit and that is shorter; else `raw`, which is its JSON."""
        if event["kind"] in _BREAKS:
            self._before = None
        if event["kind"] != "step":
            return raw
        before, self._before = self._before, None
        named = _named(event.get("rows"))
        if named is None:
            return raw
        packed = {"length": len(named["request"]), "columns": {name: _column(each) for name, each in named.items()}}
        if all(set(map(type, named[name])) == {kind} for name, kind in _PLAIN.items()):
            if before is not None and (before.epoch, before.step + 1) == (event["epoch"], event["step"]):
                packed = _after(before, named, packed) or packed
            self._before = _Before(event["epoch"], event["step"], named["request"], named["slot"], named["computed"])
        shorter = encode({**event, "rows": packed})
        return shorter if len(shorter) < len(raw) else raw


def _named(rows: Any) -> dict[str, Values] | None:
    """The values of each member; None where the rows are not plain ones."""
    if not rows:
        return None
    try:
        columns = list(zip(*map(_members, rows), strict=True))
    except (KeyError, TypeError):
        return None
    if set(map(len, rows)) != {len(COLUMNS)}:
        return None
    return dict(zip(COLUMNS, columns, strict=True))


def _column(values: Values) -> Any:
    """A form that no reader takes for another: what is not of one plain type is a list (1 equals True)."""
    most = values[len(values) // 2]
    times = values.count(most)
    if times + len(values) // _FEW < len(values) or isinstance(most, (list, dict)):
        return values
    if set(map(type, values)) != {type(most)}:
        return values
    if times == len(values):
        return most
    return {"most": most, "but": [(i, value) for i, value in enumerate(values) if value != most]}


def _after(before: _Before, named: dict[str, Values], packed: Json) -> Json | None:
    """The rows told by those of the step before; None where they are not the same ones, in the same order."""
    requests = named["request"]
    here = set(requests)
    gone = [i for i, request in enumerate(before.request) if request not in here]
    stayed = [request in here for request in before.request] if gone else None
    expected = {
        name: tuple(compress(values, stayed)) if stayed else values
        for name, values in (("request", before.request), ("slot", before.slot), ("computed", before.computed))
    }
    if requests[: len(expected["request"])] != expected["request"]:
        return None
    expected["computed"] = tuple(map(add, expected["computed"], named["scheduled"]))
    columns = {name: _but(values, named[name]) for name, values in expected.items()}
    return {**packed, "after": before.step, "gone": gone, "columns": {**packed["columns"], **columns}}


def _but(expected: Values, values: Values) -> Json:
    known = len(expected)
    others = [(i, values[i]) for i in compress(range(known), map(ne, expected, values))]
    return {"but": [*others, *enumerate(values[known:], known)]}
