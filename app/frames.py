"""Frames: what viewers are sent, encoded once for all of them.

A frame is `{"hub", "n", "engines"?, "viewers"?, "events"}`; `n` grows by one. Where a viewer asks for it, it is there
twice: with the rows of its steps as they came, and in columns (columns.py). Text rides beside the frame that it was
ready with, one message per reader who may see it. The ring is bounded in frames and bytes; a viewer whose next
frame has left it needs a keyframe.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from app.ledger import TextDelta
from app.wire import Json, encode

RING_FRAMES = 1024
RING_BYTES = 32 * 2**20  # far more than the window of frames that a viewer may have unacknowledged (viewers.py)


class Encoded(NamedTuple):
    """An event or a frame as JSON: as it came, and with rows in columns; one string where both are the same."""

    raw: str
    columns: str


class Frame:
    """One frame and the text that goes with it."""

    __slots__ = ("_deltas", "_texts", "hub", "n", "num_bytes", "payload")

    def __init__(self, hub: str, n: int, payload: Encoded, deltas: list[TextDelta]) -> None:
        self.hub = hub
        self.n = n
        self.payload = payload
        self._deltas = deltas
        self._texts: dict[str | None, str | None] = {}
        self.num_bytes = (
            len(payload.raw)
            + (len(payload.columns) if payload.columns is not payload.raw else 0)
            + sum(len(delta.text) + 2 * len(delta.lengths) + 4 * sum(map(len, delta.guessed)) for delta in deltas)
        )

    def text(self, owner: str | None, *, everything: bool) -> str | None:
        """The text message for one reader, or None when there is nothing for it to read."""
        if not self._deltas or (owner is None and not everything):
            return None
        reader = None if everything else owner
        if reader not in self._texts:
            mine = [delta for delta in self._deltas if everything or delta.owner == owner]
            self._texts[reader] = text_message(self.hub, [_entry(delta) for delta in mine]) if mine else None
        return self._texts[reader]


def _entry(delta: TextDelta) -> Json:
    return text_entry(delta.request, delta.offset, delta.text, delta.guessed, delta.lengths)


def text_entry(request: str, offset: int, text: str, guessed: list[list[int]], lengths: list[int]) -> Json:
    """A piece of an answer; `guessed` and `lengths` (see engine.events.Text) are left out where there are none."""
    entry: Json = {"request": request, "offset": offset, "text": text}
    if guessed:
        entry["guessed"] = guessed
    if lengths:
        entry["lengths"] = lengths
    return entry


def text_message(hub: str, entries: list[Json]) -> str:
    return encode({"hub": hub, "text": entries})


def frame_payload(
    hub: str, n: int, events: list[Encoded], *, engines: list[Json] | None, viewers: Json | None, key: bool = False
) -> Encoded:
    """Splice events that are JSON already into a frame; what is None has not changed."""
    head = f'{{"hub":{encode(hub)},"n":{n}'
    if key:
        head += ',"key":true'
    if engines is not None:
        head += f',"engines":{encode(engines)}'
    if viewers is not None:
        head += f',"viewers":{encode(viewers)}'
    raw = f'{head},"events":[{",".join(event.raw for event in events)}]}}'
    if all(event.columns is event.raw for event in events):
        return Encoded(raw, raw)
    return Encoded(raw, f'{head},"events":[{",".join(event.columns for event in events)}]}}')


def portions(events: list[Encoded], most: int) -> list[list[Encoded]]:
    """Split in order into runs of one event or of at most so many characters in columns; at least one, be it empty."""
    runs: list[list[Encoded]] = [[]]
    size = 0
    for event in events:
        if runs[-1] and size + len(event.columns) > most:
            runs.append([])
            size = 0
        runs[-1].append(event)
        size += len(event.columns) + 1  # and a comma
    return runs


class FrameRing:
    """The most recent frames, in order and without a hole."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._num_bytes = 0

    def append(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._num_bytes += frame.num_bytes
        while len(self._frames) > RING_FRAMES or (len(self._frames) > 1 and self._num_bytes > RING_BYTES):
            self._num_bytes -= self._frames.popleft().num_bytes

    def get(self, n: int) -> Frame | None:
        """Frame number n, or None when it is not in the ring (any more, or yet)."""
        if not self._frames:
            return None
        index = n - self._frames[0].n
        return self._frames[index] if 0 <= index < len(self._frames) else None
