"""What `stepscope serve` prints: where it is, how far the engine has come, and when it is gone."""

from __future__ import annotations

import sys
import time

from app.record import EngineRecord
from app.wire import Json

STEP_PERCENT = 10


class Terminal:
    """A hub observer that prints an engine's way to being ready, one line per phase and ten per cent."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._phase: tuple[str | None, str] = (None, "")
        self._percent = -STEP_PERCENT

    def observe(self, record: EngineRecord, event: Json) -> None:
        match event["kind"]:
            case "load":
                self._load(event)
            case "hello":
                say(f"ready in {time.monotonic() - self._began:.1f} s: {event['memory']['sum_text']}")
            case "bye":
                say(f"engine {record.id} is gone: {event['reason']}")

    def restarted(self) -> None:
        self._began = time.monotonic()

    def _load(self, event: Json) -> None:
        phase = (event["epoch"], event["phase"])
        if phase != self._phase:
            self._phase, self._percent = phase, -STEP_PERCENT
            if event["total"] == 0:
                say(f"{event['phase']} …")
        if event["total"] <= 0:
            return
        percent = min(100, 100 * event["done"] // event["total"])
        if percent >= self._percent + STEP_PERCENT or (percent == 100 != self._percent):
            self._percent = percent
            say(f"{event['phase']} {percent} %")


def say(line: str) -> None:
    """One line on standard output, at once."""
    print(line, flush=True)


def complain(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr, flush=True)
