"""GateAction: what somebody asks of the gate, checked once for the app and the engine alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from engine.breakpoints import Breakpoints
from engine.errors import RequestError

Action = Literal["pause", "run", "step", "rate", "break"]
MAX_STEPS = 1_000_000
MIN_RATE, MAX_RATE = 0.1, 1000.0


@dataclass(frozen=True, slots=True)
class GateAction:
    """`steps` goes with step, `per_second` (None lifts the limit) with rate, `breakpoints` with break."""

    action: Action
    steps: int = 1
    per_second: float | None = None
    breakpoints: Breakpoints | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> GateAction:
        """Read {"action", "steps", "per_second", "on"}; null equals absent. Raises RequestError naming the field."""
        match body.get("action"):
            case "pause" | "run" as action:
                return cls(action)
            case "step":
                return cls("step", steps=_steps(body.get("steps")))
            case "rate":
                return cls("rate", per_second=_rate(body.get("per_second")))
            case "break":
                return cls("break", breakpoints=_breakpoints(body.get("on")))
        *others, last = get_args(Action)
        raise RequestError(f"action must be {', '.join(others)} or {last}.", param="action")


def _steps(value: Any) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_STEPS:
        raise RequestError(f"steps must be a whole number from 1 to {MAX_STEPS}.", param="steps")
    return value


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not MIN_RATE <= value <= MAX_RATE:
        raise RequestError(
            f"per_second must be a number from {MIN_RATE:g} to {MAX_RATE:g}, or null for no limit.", param="per_second"
        )
    return float(value)


def _breakpoints(value: Any) -> Breakpoints:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise RequestError("on must be a list of breakpoints, such as preempt or if:free_blocks < 4.", param="on")
    if any("\ud800" <= char <= "\udfff" for text in value for char in text):
        raise RequestError("on holds half of a surrogate pair, which is not a character.", param="on")
    return Breakpoints(value)
