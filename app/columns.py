"""A step's rows in columns, for viewers that ask for them so (`{"rows":"columns"}`): the page does.

Contract. `{"length": n, "columns": {member: column}}` says what the list of rows says, in a sixth of the characters of
a large step, for most rows are one token of one request each. A column is the one value that all rows have, or
`{"most": value, "but": [[index, value], ...]}` where few have another, or a list of n values. What does not fit (a
member that is not known here, a row that lacks one) or would not be shorter stays a list of rows; readers of columns
take both. `COLUMNS` names the members of engine.event_parts.StepRow, and a test holds it to them.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from app.wire import Json, encode

COLUMNS = ("request", "slot", "phase", "scheduled", "drafted", "accepted", "computed", "out")

_members = itemgetter(*COLUMNS)
_FEW = 8  # one in so many may have another value


def in_columns(event: Json, raw: str) -> str:
    """The event's JSON with its rows in columns, where they fit and that is shorter; else `raw`, which is its JSON."""
    rows = event.get("rows") if event["kind"] == "step" else None
    if not rows:
        return raw
    try:
        columns = list(zip(*map(_members, rows), strict=True))
    except (KeyError, TypeError):
        return raw
    if set(map(len, rows)) != {len(COLUMNS)}:
        return raw
    packed = {name: _column(values) for name, values in zip(COLUMNS, columns, strict=True)}
    shorter = encode({**event, "rows": {"length": len(rows), "columns": packed}})
    return shorter if len(shorter) < len(raw) else raw


def _column(values: tuple[Any, ...]) -> Any:
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
