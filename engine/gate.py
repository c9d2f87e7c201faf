"""The gate: whether the engine may take its next step. Run, pause, or step n and pause again.

Invariant: paused means paused. A request whose life overlaps a held span carries that span, and its times are
not measurements.
"""

from __future__ import annotations

import enum


class GateState(enum.Enum):
    RUNNING = "running"
    PAUSED = "paused"


class Gate:
    """Moved by commands between steps, asked before each step."""

    def __init__(self, *, paused: bool, now_us: int = 0) -> None:
        self.state = GateState.PAUSED if paused else GateState.RUNNING
        self.steps_left = 0
        self._held_us = 0
        self._held_since: int | None = now_us if paused else None

    @property
    def open(self) -> bool:
        """Whether a step may be taken now."""
        return self.state is GateState.RUNNING or self.steps_left > 0

    @property
    def by_hand(self) -> bool:
        """Whether the next step is one of a counted few: its times are not measurements."""
        return self.state is GateState.PAUSED

    def pause(self, now_us: int) -> None:
        self.steps_left = 0
        self.state = GateState.PAUSED
        if self._held_since is None:
            self._held_since = now_us

    def run(self, now_us: int) -> None:
        self._held_us = self.held_us(now_us)
        self._held_since = None
        self.steps_left = 0
        self.state = GateState.RUNNING

    def step(self, steps: int, now_us: int) -> None:
        """Allow `steps` more steps, then hold again. A running engine is paused after them."""
        self.pause(now_us)
        self.steps_left = steps

    def took_step(self) -> bool:
        """Note that a step was taken; True if it was one of a counted few."""
        if self.steps_left == 0:
            return False
        self.steps_left -= 1
        return True

    def held_us(self, now_us: int) -> int:
        """How long the gate has been held in all, by then; `now_us` may lie a little in the past."""
        return self._held_us + (0 if self._held_since is None else max(0, now_us - self._held_since))
