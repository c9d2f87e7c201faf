"""The ledger: what the app itself remembers of each request, beside the folded state.

The public stream holds no text and forgets a finished request after a while. The ledger keeps its prompt and
answer for those who may read them, its timeline, and wakes the HTTP response that waits for it.

Invariants: an entry is over exactly when it is rejected, finished or lost; text only grows, and a hole in it
loses the entry rather than being skipped; the ledger holds every live entry and the last KEPT that are over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from app.wire import Json

KEPT = 256  # requests that are over
TIMELINE_KEPT = 4096  # entries of one request's timeline
PROMPT_SHOWN = 4000  # characters of a prompt kept for showing it again

_HEADER = frozenset({"kind", "engine", "epoch", "seq"})

StepRow = tuple[int, int, str, int, int, int]  # a request's row of a step: _ROW names them
_ROW = ("step", "t", "phase", "scheduled", "computed", "out")


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """One request as the app knows it."""

    id: str
    engine: str
    owner: str | None = None
    prompt: str | None = None
    conversation: str | None = None
    read_at: float | None = None  # app clock: its HTTP request had been read
    arrived: Json | None = None
    rejected: Json | None = None
    finished: Json | None = None
    lost: str | None = None  # why nothing more will come
    wanted: bool = True  # somebody still waits for it; it has not been aborted
    abort_due: bool = False  # it has been, but its engine could not be told yet
    num_cached_tokens: int = 0
    first_token_at: float | None = None  # app clock: its first token was heard of
    written_at: float | None = None  # app clock: its first text had been handed to the client's socket
    parts: list[str] = field(default_factory=list)
    length: int = 0  # characters in `parts`
    guessed: list[list[int]] = field(default_factory=list)  # see engine.events.Text
    lengths: list[int] = field(default_factory=list)  # the same
    complete: bool = False  # the engine has said that no more text comes
    moments: deque[Json | StepRow] = field(default_factory=lambda: deque(maxlen=TIMELINE_KEPT))
    snapshot: Json | None = None  # the folded request at its end
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def over(self) -> bool:
        return self.rejected is not None or self.finished is not None or self.lost is not None

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def timeline(self) -> list[Json]:
        """What its engine said of it, oldest first."""
        return [_told(moment) if isinstance(moment, tuple) else moment for moment in self.moments]

    async def change(self) -> None:
        """Wait for the next change. Look at the entry first: there is no await between look and wait to miss one."""
        self._changed.clear()
        await self._changed.wait()

    def touch(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()


def _told(row: StepRow) -> Json:
    return {"event": "step", **dict(zip(_ROW, row, strict=True))}


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of one answer, for the viewers who may read it."""

    owner: str | None
    request: str
    offset: int
    text: str
    guessed: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


class Ledger:
    """All entries, by request id."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._over: deque[str] = deque()
        self._deltas: list[TextDelta] = []

    def open(self, entry: Entry) -> Entry:
        """Start an entry for a request that is about to be submitted."""
        if entry.prompt is not None and len(entry.prompt) > PROMPT_SHOWN:
            entry.prompt = entry.prompt[:PROMPT_SHOWN] + "…"
        self.entries[entry.id] = entry
        return entry

    def live(self, engine: str) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.engine == engine and not entry.over]

    # -- what an engine says ---------------------------------------------------------------------------------

    def apply(self, event: Json, now: float) -> None:
        """A `request` or `step` event, before the state folds it."""
        if event["kind"] == "step":
            self._note_rows(event)
            return
        entry = self._entry(event)
        was_over = entry.over
        entry.moments.append({name: value for name, value in event.items() if name not in _HEADER})
        match event["event"]:
            case "arrived":
                entry.arrived, entry.owner = event, event["owner"]
            case "rejected":
                entry.rejected = event
            case "admitted":
                entry.num_cached_tokens = event["cached"]
            case "first_token":
                entry.first_token_at = now
            case "finished":
                entry.finished = event
        if entry.over and not was_over:
            self._retire(entry)
        entry.touch()

    def add_text(self, event: Json) -> None:
        """A `text` message. Text that was seen before is cut off; a hole ends the entry."""
        entry = self.entries.get(event["request"])
        if entry is None or entry.over:
            return
        offset, text = event["offset"], event["text"]
        if offset > entry.length:
            self.lose(entry, "Part of its answer was lost between the engine and the app.")
            return
        entry.complete = entry.complete or event.get("done") is True
        fresh = text[entry.length - offset :]
        if not fresh:
            return
        again = offset < entry.length
        guessed = [run for run in event.get("guessed", ()) if not again or run[0] >= entry.length]
        lengths = [] if again else event.get("lengths", [])
        self._deltas.append(TextDelta(entry.owner, entry.id, entry.length, fresh, guessed, lengths))
        entry.parts.append(fresh)
        entry.guessed += guessed
        entry.lengths += lengths
        entry.length += len(fresh)
        entry.touch()

    def _entry(self, event: Json) -> Entry:
        """The entry of an event's request; one that was not submitted through this app gets one now."""
        entry = self.entries.get(event["request"])
        return entry or self.open(Entry(id=event["request"], engine=event["engine"], wanted=False))

    def _note_rows(self, step: Json) -> None:
        entries, number, t = self.entries, step["step"], step["t"]
        for row in step["rows"]:
            entry = entries.get(row["request"])
            if entry is not None:  # as tuples: a large batch has tens of thousands of them a second
                entry.moments.append((number, t, row["phase"], row["scheduled"], row["computed"], row["out"]))

    # -- endings ---------------------------------------------------------------------------------------------

    def lose_all(self, engine: str, reason: str) -> None:
        """Nothing more will come from this engine: every open request of it ends here."""
        for entry in self.live(engine):
            self.lose(entry, reason)

    def reconcile(self, engine: str, requests: Json) -> None:
        """After a gap, take from the key that followed what the lost events had said of our open entries."""
        for entry in self.live(engine):
            request = requests.get(entry.id)
            if request is not None:
                self._catch_up(entry, request)
            elif entry.arrived is not None:
                self.lose(entry, "Its end was lost between the engine and the app.")

    def _catch_up(self, entry: Entry, request: Json) -> None:
        entry.arrived = entry.arrived or request
        entry.num_cached_tokens = request["num_cached_tokens"]
        if request["status"] == "finished" and entry.complete:
            entry.finished = {**request, "reason": request["finish_reason"]}
            entry.snapshot = dict(request)
            self._retire(entry)
        elif request["status"] == "finished":
            self.lose(entry, "Part of its answer was lost between the engine and the app.")
        entry.touch()

    def lose(self, entry: Entry, reason: str) -> None:
        """Nothing more will come for this request."""
        if not entry.over:
            entry.lost = reason
            entry.touch()
            self._retire(entry)

    def forget(self, engine: str) -> None:
        """Drop what is over of an engine's requests; whoever still holds an entry may read it to its end."""
        for name in [entry.id for entry in self.entries.values() if entry.engine == engine and entry.over]:
            del self.entries[name]
        self._over = deque(name for name in self._over if name in self.entries)
        self._deltas = [delta for delta in self._deltas if delta.request in self.entries]

    def _retire(self, entry: Entry) -> None:
        self._over.append(entry.id)
        while len(self._over) > KEPT:
            self.entries.pop(self._over.popleft(), None)

    # -- text for viewers ------------------------------------------------------------------------------------

    def drain_deltas(self) -> list[TextDelta]:
        """The pieces since the last call, neighbours of one request joined, in order."""
        joined: dict[str, TextDelta] = {}
        for delta in self._deltas:
            before = joined.get(delta.request)
            if before is not None:
                text, guessed = before.text + delta.text, before.guessed + delta.guessed
                lengths = before.lengths + delta.lengths
                delta = TextDelta(delta.owner, delta.request, before.offset, text, guessed, lengths)
            joined[delta.request] = delta
        self._deltas.clear()
        return list(joined.values())

    def readable(self, owner: str | None, *, everything: bool) -> Iterator[Entry]:
        """The entries whose text this reader may see."""
        for entry in self.entries.values():
            if everything or (owner is not None and entry.owner == owner):
                yield entry
