"""Emitter and EventRing: from a decision to a numbered event, and on to whoever listens.

Contract: one thread emits (the engine's), so `seq` has no gaps and `t` never falls. Emitting is one append; no
encoding, no lock, no waiting. A ring that is full drops whole events until the next `key`, which it precedes with a
`gap` naming what is missing: never a silent hole, never engine time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from engine.events import Event, Gap, Key, Text

RING_EVENTS = 4096


class Sink(Protocol):
    """Where finished events go: an EventRing, or a plain list in tests."""

    def append(self, event: Any, /) -> None: ...


class Emitter:
    """Stamps events with engine, epoch, seq and t. Without a sink nothing is built at all."""

    def __init__(self, engine: str, epoch: str, clock: Callable[[], int], sink: Sink | None) -> None:
        self.engine = engine
        self.epoch = epoch
        self.seq = 0
        self._clock = clock
        self._sink = sink

    @property
    def attached(self) -> bool:
        """Whether anybody listens: what is costly to say need not be put together otherwise."""
        return self._sink is not None

    def emit(self, event_type: type[Event], **body: Any) -> Event | None:
        """Number and hand over one event; `key` takes no number."""
        if self._sink is None:
            return None
        if event_type is not Key:
            self.seq += 1
        event = event_type(engine=self.engine, epoch=self.epoch, seq=self.seq, t=self._clock(), **body)
        self._sink.append(event)
        return event

    def text(
        self,
        request: str,
        offset: int,
        text: str,
        token_ids: list[int],
        guessed: list[list[int]] | None = None,
        lengths: list[int] | None = None,
        *,
        done: bool,
    ) -> None:
        """Hand over generated text, which is not part of the numbered stream."""
        if self._sink is not None:
            self._sink.append(
                Text(
                    engine=self.engine,
                    epoch=self.epoch,
                    request=request,
                    offset=offset,
                    text=text,
                    token_ids=token_ids,
                    guessed=guessed or [],
                    lengths=lengths or [],
                    done=done,
                )
            )


class EventRing:
    """Bounded hand-over between the engine's thread (append) and the publisher's (take).

    Text is never dropped; it is bounded by the requests' own limits.
    """

    def __init__(self, limit: int = RING_EVENTS) -> None:
        self._items: deque[Event | Text] = deque()
        self._limit = limit
        self._lost_since: int | None = None  # first seq dropped; only the engine's thread changes it
        self.num_dropped = 0

    @property
    def overflowed(self) -> bool:
        """Whether events are being dropped until the next key."""
        return self._lost_since is not None

    def append(self, event: Event | Text, /) -> None:
        if isinstance(event, Text):
            self._items.append(event)
        elif isinstance(event, Key):
            if self._lost_since is not None:
                self._items.append(self._gap(event, self._lost_since))
                self._lost_since = None
            self._items.append(event)
        elif self._lost_since is not None or len(self._items) >= self._limit:
            if self._lost_since is None:
                self._lost_since = event.seq
            self.num_dropped += 1
        else:
            self._items.append(event)

    def _gap(self, key: Key, first: int) -> Gap:
        return Gap(engine=key.engine, epoch=key.epoch, seq=key.seq, t=key.t, first=first, last=key.seq)

    def take(self) -> list[Event | Text]:
        """Everything handed over since the last call, in order."""
        taken: list[Event | Text] = []
        while self._items:
            taken.append(self._items.popleft())
        return taken
