"""Watchdog: notices what cannot be, and closes the gate before it goes on.

Two things are impossible: several steps in a row that hand nobody anything while requests wait, and a broken invariant.
If one happens all the same, the engine must neither spin nor compute on sand: it holds, says so on the page, and can
still be looked at, recorded and restarted.
"""

from __future__ import annotations

from engine.runner import SchedulerOutput
from engine.scheduler import Scheduler

EMPTY_STEPS = 3


class Watchdog:
    """Asked after each step, and when the engine is idle; answers what is wrong, in words, or None."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._num_empty = 0

    def after_step(self, output: SchedulerOutput) -> str | None:
        self._num_empty = 0 if output.rows else self._num_empty + 1
        if self._num_empty < EMPTY_STEPS:
            return None
        self._num_empty = 0
        waiting, free = len(self._scheduler.waiting), self._scheduler.pool.num_free
        return f"watchdog: {EMPTY_STEPS} steps handed out nothing, though {waiting} wait and {free} blocks are free"

    def when_idle(self) -> str | None:
        """Every invariant; too slow for each step, quick enough for a pause."""
        found = self._scheduler.problems()
        return f"watchdog: {found[0]}" if found else None
