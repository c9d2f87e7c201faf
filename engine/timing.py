"""The clock of an engine, the laps of a step, and the durations of a request as METRICS defines them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from engine.events import Timings
from engine.request import Request

Clock = Callable[[], int]
"""Microseconds since the engine's start, monotonic."""


def monotonic_clock() -> Clock:
    """A clock that starts at 0 now and does not know what the wall says."""
    start = time.monotonic_ns()
    return lambda: (time.monotonic_ns() - start) // 1000


class StepTimer:
    """The laps of one step. Consecutive steps tile the time: each begins where the one before was reported.

    Where a GPU has a clock of its own (`on_device`), a phase that it worked on takes the time that it worked. The
    laps of those phases are the host's: it launched in one and waited in another. What they hold beyond the GPU's time
    (launching before it begins, waking up when it is done) goes to no phase, and so is part of "other".
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_us: int | None = None  # when the previous step's event began to be built
        self.start_us = 0
        self.end_us = 0
        self.phases_us: dict[str, int] = {}
        self.scopes: dict[str, str] = {}  # of phases that are not the host's
        self.device_us: int | None = None

    def idle(self) -> None:
        """The engine waited: the next step begins by itself."""
        self._reported_us = None

    def begin(self) -> int:
        """Start a step; returns the time now."""
        now = self._clock()
        self.start_us = now if self._reported_us is None else self._reported_us
        publish = 0 if self._reported_us is None else self._published_us - self._reported_us
        self.phases_us = {"publish": publish}
        self.scopes, self.device_us = {}, None
        self._lap_us = now
        return now

    def lap(self, phase: str) -> int:
        """End `phase`, which began with the previous lap; returns the time now."""
        self.end_us = self._clock()
        self.phases_us[phase] = self.end_us - self._lap_us
        self._lap_us = self.end_us
        return self.end_us

    def on_device(self, device_us: Mapping[str, int] | None) -> None:
        """Let these phases take the time that the device worked on them, but together no more than their laps."""
        if device_us is None:
            return
        room = sum(self.phases_us[phase] for phase in device_us)
        self.device_us = min(sum(device_us.values()), room)
        for phase, us in device_us.items():
            self.phases_us[phase] = min(us, room)
            room -= self.phases_us[phase]
            self.scopes[phase] = "device"

    def published(self) -> None:
        """The event of this step has been handed over."""
        self._reported_us = self.end_us
        self._published_us = self._clock()

    @property
    def wall_us(self) -> int:
        return self.end_us - self.start_us


def timings(request: Request) -> Timings:
    """A finished request's durations. What never happened is None."""
    arrival, scheduled = request.arrival_us, request.scheduled_us
    first, last = request.first_token_us, request.last_token_us
    decode = None if first is None or last is None else last - first
    gaps = request.num_output_tokens - 1
    end = last if last is not None else request.finished_us
    return Timings(
        queue_us=None if scheduled is None else scheduled - arrival,
        prefill_us=None if scheduled is None or first is None else first - scheduled,
        ttft_us=None if first is None else first - arrival,
        decode_us=decode,
        tpot_us=None if decode is None or gaps < 1 else decode / gaps,
        e2e_us=None if end is None else end - arrival,
        preempted_us=request.preempted_us,
        gated_us=request.gated_us,
    )
