"""Breakpoints: after which step the gate closes by itself.

Written as text, one each: `preempt`, `refused` (a waiting request is short of blocks), `prefix_hit`, `eviction`,
`finish`, `first_token`, `slow_step:MS`, `request:ID` (it was scheduled) and `if:CONDITION` (see condition.py). A step
is judged after it has been reported, so that what stopped the engine is on the page already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.condition import Condition
from engine.errors import RequestError, shown
from engine.request import Request
from engine.runner import ScheduledRow, SchedulerOutput

MAX_BREAKPOINTS = 32


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a breakpoint may look at. `numbers` has one entry for each of condition.NUMBERS."""

    output: SchedulerOutput
    finished: list[Request]
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True)
class Hit:
    """The breakpoint that closed the gate: its text, the step, and the request it is about, if one."""

    on: str
    step: int
    request: str | None


_Test = Callable[[StepFacts], tuple[bool, str | None]]


class Breakpoints:
    """The ones set now. Raises RequestError, and sets none, for a text it does not understand."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        if len(texts) > MAX_BREAKPOINTS:
            raise RequestError(f"on holds {len(texts)} breakpoints; the limit is {MAX_BREAKPOINTS}.", param="on")
        self._tests = {text: _parse(text) for text in texts}

    @property
    def texts(self) -> list[str]:
        return list(self._tests)

    def check(self, facts: StepFacts) -> Hit | None:
        """The first breakpoint that this step hits."""
        for text, test in self._tests.items():
            hit, request = test(facts)
            if hit:
                return Hit(text, int(facts.numbers["step"]), request)
        return None


def _parse(text: str) -> _Test:
    name, _, argument = text.partition(":")
    if name in _PLAIN and not argument:
        find = _PLAIN[name]
        return lambda facts: _first(find(facts))
    if name == "request" and argument:
        return lambda facts: _first(
            [r.request.request_id for r in facts.output.rows if r.request.request_id == argument]
        )
    if name == "slow_step":
        limit = _milliseconds(argument)
        return lambda facts: (facts.numbers["step_ms"] > limit, None)
    if name == "if":
        condition = Condition(argument)
        return lambda facts: (condition.holds(facts.numbers), None)
    raise RequestError(
        f"on holds {shown(text)}; it may hold {', '.join(_PLAIN)}, slow_step:MS, request:ID and if:CONDITION.",
        param="on",
    )


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RequestError(f"slow_step:{text[:20]} needs a number of milliseconds from 0.", param="on")
    return value


def _first(requests: Sequence[str]) -> tuple[bool, str | None]:
    return (True, requests[0]) if requests else (False, None)


def _ids(rows: Sequence[ScheduledRow]) -> list[str]:
    return [row.request.request_id for row in rows]


_PLAIN: dict[str, Callable[[StepFacts], list[str]]] = {
    "preempt": lambda facts: [p.request.request_id for p in facts.output.preempted],
    "refused": lambda facts: [w.request for w in facts.output.waiting if w.code == "blocks_short"],
    "prefix_hit": lambda facts: _ids([row for row in facts.output.admitted if row.num_computed_tokens > 0]),
    "eviction": lambda facts: _ids(facts.output.rows[:1]) if facts.output.evicted else [],
    "finish": lambda facts: [request.request_id for request in facts.finished],
    "first_token": lambda facts: _ids([r for r in facts.output.rows if r.num_accepted and r.num_output_before == 0]),
}
