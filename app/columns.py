"""A step's rows in columns, for viewers that ask for them so (`{"rows":"columns"}`): the page does.

Contract. `{"length": n, "columns": {member: list of n values, or the one value that all rows have}}` says what the list
of rows says, in a seventh of the characters: most rows of a step are one token of one request each. What does not fit
(a member that is not known here, a row that lacks one) stays a list of rows, so that nothing is lost; readers of
columns take both. `COLUMNS` names the members of engine.event_parts.StepRow, and a test holds it to them.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from app.wire import Json, encode

COLUMNS = ("request", "slot", "phase", "scheduled", "drafted", "accepted", "computed", "out")

_members = itemgetter(*COLUMNS)


def in_columns(event: Json, raw: str) -> str:
    """The event's JSON with its rows in columns, where it has rows and they fit; else `raw`, which is its JSON."""
    rows = event.get("rows") if event["kind"] == "step" else None
    if not rows:
        return raw
    try:
        columns = list(zip(*map(_members, rows), strict=True))
    except (KeyError, TypeError):
        return raw
    if set(map(len, rows)) != {len(COLUMNS)}:
        return raw
    packed = {name: _once(column) for name, column in zip(COLUMNS, columns, strict=True)}
    return encode({**event, "rows": {"length": len(rows), "columns": packed}})


def _once(column: tuple[Any, ...]) -> Any:
    """The value that all have, unless it could be taken for a list of them."""
    first = column[0]
    same = not isinstance(first, (list, dict)) and column.count(first) == len(column)
    return first if same else column
