"""The ring of an engine's recent events, and the recording made of it.

Contract: the ring is a sequence of segments, each a `key` followed by the events after it, so it can lose its
oldest segment at any time and what is left is still a whole recording: hello, key, events, key, events … An
epoch begins with its own hello, so what led to a restart can still be looked at after it. Bounded in segments
and in bytes.
"""

from __future__ import annotations

import gzip
import io
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

SEGMENT_EVENTS = 256
SEGMENT_SECONDS = 5.0
MAX_SEGMENTS = 64
MAX_BYTES = 24 * 2**20


@dataclass(slots=True)
class _Segment:
    hello: str
    key: str
    began: float
    num_bytes: int
    events: list[str] = field(default_factory=list)
    eventful: bool = False  # holds more than heartbeats

    def add(self, raw: str) -> None:
        self.events.append(raw)
        self.num_bytes += len(raw)


class History:
    """Recent events of one engine, as JSON texts."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        self._num_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._segments)

    def hello(self, hello: str, key: str, now: float) -> None:
        """An epoch begins; `key` is the state after its hello."""
        self._begin(hello, key, now)

    def append(self, kind: str, raw: str, now: float, key: Callable[[], str]) -> None:
        """Add one event that has been folded; `key()` renders the state after it when a segment ends."""
        if not self._segments:
            return
        self.note(raw)
        segment = self._segments[-1]
        segment.eventful = segment.eventful or kind != "beat"
        old = segment.eventful and now - segment.began >= SEGMENT_SECONDS
        if old or len(segment.events) >= SEGMENT_EVENTS:
            self.restart(key(), now)

    def note(self, raw: str) -> None:
        """Add a line that is not folded, such as `text` or `gap`."""
        if self._segments:
            self._segments[-1].add(raw)
            self._num_bytes += len(raw)

    def restart(self, key: str, now: float) -> None:
        """Begin a segment at `key`, in the epoch at hand."""
        if self._segments:
            self._begin(self._segments[-1].hello, key, now)

    def forget(self, key: str, now: float) -> None:
        """Begin anew at `key`, in the epoch at hand: what was before is not to be looked at any more."""
        hello = self._segments[-1].hello if self._segments else None
        self._segments.clear()
        self._num_bytes = 0
        if hello is not None:
            self._begin(hello, key, now)

    def _begin(self, hello: str, key: str, now: float) -> None:
        self._segments.append(_Segment(hello, key, now, len(key)))
        self._num_bytes += len(key)
        while len(self._segments) > MAX_SEGMENTS or (len(self._segments) > 1 and self._num_bytes > MAX_BYTES):
            self._num_bytes -= self._segments.popleft().num_bytes

    def lines(self) -> list[str]:
        """A whole recording, line by line."""
        lines: list[str] = []
        hello = None
        for segment in self._segments:
            if segment.hello is not hello:
                hello = segment.hello
                lines.append(hello)
            lines.append(segment.key)
            lines.extend(segment.events)
        return lines


def compress(lines: list[str]) -> bytes:
    """A `.jsonl.gz` of these lines. Takes a while for a full ring: call it off the event loop."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=5, mtime=0) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
    return buffer.getvalue()
