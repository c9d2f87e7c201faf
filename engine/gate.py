"""The gate: whether, and when, the engine may take its next step.

Run, pause, step n and pause again, run at so many steps a second, and close by itself at a breakpoint.
Invariants: paused means paused. A request whose life overlaps a span in which the gate was not simply open carries that
span, and its times are not measurements.
"""

from __future__ import annotations

import enum

from engine.breakpoints import Breakpoints, Hit


class GateState(enum.Enum):
    RUNNING = "running"
    PAUSED = "paused"


class Gate:
    """Moved by commands between steps, asked before each step."""

    def __init__(self, *, paused: bool, now_us: int = 0) -> None:
        self.state = GateState.PAUSED if paused else GateState.RUNNING
        self.steps_left = 0
        self.per_second: float | None = None
        self.breakpoints = Breakpoints()
        self.hit: Hit | None = None  # what closed it, until it is moved again
        self._next_step_us = 0  # under a rate: the earliest time of the next step
        self._held_us = 0
        self._held_since: int | None = now_us if paused else None

    @property
    def open(self) -> bool:
        """Whether steps may be taken, at whatever rate."""
        return self.state is GateState.RUNNING or self.steps_left > 0

    @property
    def by_hand(self) -> bool:
        """Whether the next step is one of a counted few, or slowed: its times are not measurements."""
        return self.state is GateState.PAUSED or self.per_second is not None

    def wait_us(self, now_us: int) -> int:
        """How long until the next step may be taken, of an open gate."""
        return 0 if self.per_second is None else max(0, self._next_step_us - now_us)

    def pause(self, now_us: int, hit: Hit | None = None) -> None:
        self.steps_left = 0
        self.state = GateState.PAUSED
        self.hit = hit
        self._note_held(now_us)

    def run(self, now_us: int) -> None:
        self.steps_left = 0
        self.state = GateState.RUNNING
        self.hit = None
        self._note_held(now_us)

    def step(self, steps: int, now_us: int) -> None:
        """Allow `steps` more steps, then hold again. A running engine is paused after them."""
        self.pause(now_us)
        self.steps_left = steps

    def rate(self, per_second: float | None, now_us: int) -> None:
        """Take at most so many steps a second; None is as fast as they come."""
        self.per_second = per_second
        self._next_step_us = now_us
        self._note_held(now_us)

    def took_step(self, started_us: int) -> bool:
        """Note that a step was taken; True if it was one of a counted few."""
        if self.per_second is not None:
            self._next_step_us = started_us + int(1_000_000 / self.per_second)
        if self.steps_left == 0:
            return False
        self.steps_left -= 1
        return True

    def held_us(self, now_us: int) -> int:
        """How long the gate has been held or slowed in all, by then; `now_us` may lie a little in the past."""
        return self._held_us + (0 if self._held_since is None else max(0, now_us - self._held_since))

    def _note_held(self, now_us: int) -> None:
        self._held_us = self.held_us(now_us)
        self._held_since = now_us if self.by_hand else None
