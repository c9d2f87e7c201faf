"""What `stepscope serve` prints: how far its engine has come, when it is ready, and when it is gone."""

from __future__ import annotations

import sys
import time

from app.hub import Hub
from app.record import EngineRecord
from app.wire import Json

SECONDS_BETWEEN_LINES = 1.0


class Terminal:
    """A hub observer; long phases of loading get a line a second, short ones a line each."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._phase: tuple[str, str] | None = None
        self._said_at = 0.0
        hub.observers.append(self.observe)

    def observe(self, record: EngineRecord, event: Json) -> None:
        match event["kind"]:
            case "load":
                self._load(event)
            case "hello":
                say(f"ready in {time.monotonic() - record.started_at:.1f} s: {event['memory']['sum_text']}")
                for off in event.get("disabled", []):
                    say(f"off: {off['feature']} ({off['reason']})")
            case "bye" if not self._hub.closing:
                complain(f"engine {record.id} is gone: {event['reason']}")

    def _load(self, event: Json) -> None:
        phase, now = (event["epoch"], event["phase"]), time.monotonic()
        if phase == self._phase and now - self._said_at < SECONDS_BETWEEN_LINES:
            return
        self._phase, self._said_at = phase, now
        total = event["total"]
        say(f"{event['phase']} {100 * event['done'] // total} %" if total > 0 else f"{event['phase']} …")


def say(line: str) -> None:
    """One line on standard output, at once."""
    print(line, flush=True)


def complain(line: str) -> None:
    """One line on standard error, at once."""
    print(line, file=sys.stderr, flush=True)
