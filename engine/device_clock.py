"""How long the device worked on each phase of a step, where the host does not wait for its work as it goes along.

Contract. `span(phase)` is put around the launches of one phase; `read` gives what they took and starts anew. It is
called when the step's tokens have come back, so the work is done and reading waits for nothing; only a step that
asked for no token waits here, since it would else be timed as part of the next one. Spans lie one behind the other
on one stream.

A span runs from where its first launch is due to where its last one ends. Between launches that the host makes one by
one the device may stand still, and that counts; within a replayed graph it hardly does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch


class DeviceClock(Protocol):
    def span(self, phase: str) -> AbstractContextManager[object]:
        """What is launched within belongs to `phase`; several spans of one phase add up."""

    def read(self) -> dict[str, int] | None:
        """Microseconds of each phase since the last call; None where the host's own clock times the work."""


class NoDeviceClock:
    """For a CPU: work is done when its call returns."""

    def span(self, phase: str) -> AbstractContextManager[object]:
        return nullcontext()

    def read(self) -> dict[str, int] | None:
        return None


class EventClock:
    """CUDA events on the current stream, kept and used again. `make_event` makes one."""

    def __init__(self, make_event: Callable[[], Any]) -> None:
        self._make_event = make_event
        self._kept: list[Any] = []
        self._spans: list[tuple[str, Any, Any]] = []

    @contextmanager
    def span(self, phase: str) -> Iterator[None]:
        start, end = self._event(), self._event()
        start.record()
        yield
        end.record()
        self._spans.append((phase, start, end))

    def read(self) -> dict[str, int] | None:
        if self._spans and not self._spans[-1][2].query():
            self._spans[-1][2].synchronize()
        took_ms: dict[str, float] = {}
        for phase, start, end in self._spans:
            took_ms[phase] = took_ms.get(phase, 0.0) + start.elapsed_time(end)
            self._kept += (start, end)
        self._spans.clear()
        return {phase: round(ms * 1000) for phase, ms in took_ms.items()}

    def _event(self) -> Any:
        return self._kept.pop() if self._kept else self._make_event()


def device_clock(device: torch.device) -> DeviceClock:
    """The clock for work on this device."""
    if device.type != "cuda":
        return NoDeviceClock()
    return EventClock(lambda: torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
