"""The hub: engines on one side, viewers on the other, and what it remembers between them.

Everything runs on one event loop, so each method sees and leaves whole states. Events are folded, recorded and
handed to HTTP streams the moment they come; viewers get them bundled into frames by one clock that ticks FRAMES_PER_S
times a second. Keyframes are made only right after a frame was closed, so that a viewer never folds an event twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol

from app.columns import RowPacker
from app.frames import Encoded, Frame, FrameRing, frame_payload, portions, text_entry, text_message
from app.ledger import Entry, Ledger, TextDelta
from app.questions import EngineAway as EngineAway
from app.questions import Questions
from app.record import EngineRecord, Status
from app.settings import Settings, ShareText
from app.wire import Json, WireError, encode, read_event

FRAMES_PER_S = 30
FRAME_CHARS = 8 * 2**10  # characters of events, in columns where asked for; a larger one has a frame to itself
CHECK_S = 0.25  # how often the engines' statuses are looked at when nothing happens
HEARTBEAT_S = 5.0  # an empty frame after this long without one: proxies drop idle sockets, and pages notice a dead line
REPLY_TIMEOUT_S = 5.0
MAX_NAME = 64  # characters of an engine's name
RECONNECT_GRACE_S = 5.0  # a lost engine socket may come back this long before its engine counts as gone

log = logging.getLogger("stepscope")

Observer = Callable[[EngineRecord, Json], None]


class EngineLink(Protocol):
    """The way down to one engine."""

    def send(self, command: str) -> None: ...


class Viewer(Protocol):
    """What the hub asks of a viewer: to be woken, and to say whether it needs a keyframe."""

    needs_key: bool
    columns: bool

    def take_key(self, n: int, payload: str) -> None: ...
    def wake(self) -> None: ...


class Hub:
    """Engines, viewers, frames, ledger."""

    def __init__(self, settings: Settings) -> None:
        self.id = secrets.token_hex(4)
        self.settings = settings
        self.share_all = settings.share_text is ShareText.ALL
        self.engines: dict[str, EngineRecord] = {}
        self.ledger = Ledger()
        self.frames = FrameRing()
        self.viewers: set[Viewer] = set()
        self.observers: list[Observer] = []
        self.n = 0
        self.close_begun = asyncio.Event()
        self._links: dict[str, EngineLink] = {}
        self._questions = Questions()
        self._pending: list[tuple[Json, str]] = []
        self._packers: defaultdict[str, RowPacker] = defaultdict(RowPacker)  # by engine
        self._told: list[Json] = []
        self._told_viewers: Json = {}
        self._framed_at = time.monotonic()
        self._wake = asyncio.Event()
        self._request_ids = itertools.count(1)
        self._cmd_ids = itertools.count(1)

    # -- engines ---------------------------------------------------------------------------------------------

    def engine(self, name: str) -> EngineRecord:
        """The record of an engine, made on first sight."""
        if name not in self.engines:
            self.engines[name] = EngineRecord(name, self.ledger, share_all=self.share_all)
        return self.engines[name]

    def connected(self, link: EngineLink, text: str) -> str:
        """An engine dialled in and sent its first message, which names it. Replaces the link it had before."""
        name: str = read_event(text)["engine"]
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise WireError(f"an engine's name must have 1 to {MAX_NAME} printable characters")
        self._questions.lose(name, "its connection was replaced by another")
        self._links[name] = link
        record = self.engine(name)
        record.connected, record.key_asked = True, False
        for entry in self.ledger.live(name):
            if entry.abort_due:
                self.abort(entry)
        return name

    def starting(self, name: str) -> None:
        """A new process is being started for an engine; whatever its old one still says is not listened to."""
        self._links.pop(name, None)
        self._questions.lose(name, "it was restarted")
        self.engine(name).starting()
        self.poke()

    def disconnected(self, name: str, link: EngineLink, reason: str) -> None:
        """An engine's socket closed. Its process, if it is ours, is given a moment to dial again."""
        if self._links.get(name) is not link:
            return
        del self._links[name]
        self._questions.lose(name, "its connection ended")
        record = self.engine(name)
        record.connected = False
        self._wake.set()
        if record.restartable:
            loop = asyncio.get_running_loop()
            loop.call_later(RECONNECT_GRACE_S, self._give_up, record, reason)
        else:
            self.engine_gone(name, reason)

    def _give_up(self, record: EngineRecord, reason: str) -> None:
        if not record.connected and record.status(time.monotonic()) is Status.SILENT:
            self.engine_gone(record.id, reason)

    def engine_gone(self, name: str, reason: str, detail: str | None = None) -> None:
        """An engine's process exited, or its socket did not come back; what it had still queued is not listened to."""
        self._links.pop(name, None)
        self._questions.lose(name, "its process ended")
        record = self.engine(name)
        last_words = record.lose(reason, time.monotonic(), detail)
        if last_words is not None:
            self._publish(record, *last_words)
        self._wake.set()

    def receive(self, link: EngineLink, text: str) -> None:
        """One message of a connected engine. Raises WireError when it makes no sense."""
        event = read_event(text)
        record = self.engine(event["engine"])
        if self._links.get(record.id) is not link:
            raise WireError(f"this connection does not speak for engine {record.id!r:.40}")
        try:
            for public, raw in record.receive(event, text, time.monotonic()):
                self._publish(record, public, raw)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            record.distrust()
            log.warning("engine %s sent a %s event that cannot be folded: %r", record.id, event["kind"], error)
            raise WireError(f"the engine sent a {event['kind'][:20]} event that does not fit its state") from None
        if event["kind"] == "text":
            self._abort_if_lost(event["request"])
        if record.wants_key:
            self._ask_for_key(record, link)
        self._wake.set()

    def _ask_for_key(self, record: EngineRecord, link: EngineLink) -> None:
        if not record.key_asked:
            record.key_asked = True
            with contextlib.suppress(EngineAway):
                link.send(encode({"cmd": "key", "cmd_id": self._next_cmd_id()}))

    def _publish(self, record: EngineRecord, event: Json, raw: str) -> None:
        self._pending.append((event, raw))
        if event["kind"] == "reply":
            self._settle(event)
        elif event["kind"] == "key":
            self._abort_unwanted(record)
        elif event["kind"] == "bye":
            self._questions.lose(record.id, "it left")
        for observer in self.observers:
            try:
                observer(record, event)
            except Exception:  # whatever watches must not stop the stream
                log.exception("an observer failed on a %s event", event["kind"])

    def _abort_if_lost(self, request: str) -> None:
        """A hole in its text has ended a request for its caller; the engine need not go on with it."""
        entry = self.ledger.entries.get(request)
        if entry is not None and entry.lost is not None and entry.wanted:
            self.abort(entry)

    def _abort_unwanted(self, record: EngineRecord) -> None:
        """An engine that came back may still work on requests whose callers were told that they are lost."""
        for request_id, request in record.state["requests"].items() if record.state else ():
            entry = self.ledger.entries.get(request_id)
            if entry is not None and entry.lost is not None and request["status"] != "finished":
                self.abort(entry)

    # -- commands --------------------------------------------------------------------------------------------

    def send(self, record: EngineRecord, command: Json) -> str:
        """Send a command down; returns its id. Raises EngineAway."""
        link = self._links.get(record.id)
        if link is None:
            reason = record.reason(record.status(time.monotonic())) or "It is not connected."
            raise EngineAway(f"Engine {record.id} cannot be reached. {reason}")
        cmd_id = str(command.get("cmd_id") or self._next_cmd_id())
        link.send(encode({**command, "cmd_id": cmd_id}))
        return cmd_id

    async def command(self, record: EngineRecord, command: Json) -> Json:
        """Send a command and wait for its reply event, no longer than there can be one. Raises EngineAway."""
        if record.gone is not None:
            raise EngineAway(f"Engine {record.id} cannot be reached. {record.gone}")
        cmd_id = self.send(record, command)
        try:
            return await self._questions.answer(record.id, cmd_id, REPLY_TIMEOUT_S)
        except TimeoutError:
            raise EngineAway(
                f"Engine {record.id} has not answered for {REPLY_TIMEOUT_S:g} s; it may still do it."
            ) from None

    async def once(self, record: EngineRecord, what: str, work: Callable[[], Awaitable[Json]]) -> tuple[Json, bool]:
        """See `Questions.once`."""
        return await self._questions.once((record.id, what), work)

    def _settle(self, reply: Json) -> None:
        self._questions.settle(reply)
        entry = self.ledger.entries.get(reply["cmd_id"])
        if entry is not None and entry.arrived is None and not reply["ok"]:
            self.ledger.lose(entry, "The engine did not understand the request.")

    def _next_cmd_id(self) -> str:
        return f"c{next(self._cmd_ids)}"

    def next_request_id(self) -> str:
        """A fresh id: an engine that was attached before this app started may still know some of the first ones."""
        known = {request for record in self.engines.values() if record.state for request in record.state["requests"]}
        return next(name for number in self._request_ids if (name := f"R{number}") not in known)

    def submit(self, record: EngineRecord, entry: Entry, command: Json) -> None:
        """Hand a request to its engine. Raises EngineAway, and then keeps no entry."""
        self.send(record, {"cmd": "submit", "cmd_id": entry.id, "request": entry.id, **command})
        self.ledger.open(entry)

    def abort(self, entry: Entry) -> None:
        """Ask the engine to end a request; asking twice, or for one that is over, does no harm.

        An engine that is away is asked once it is back.
        """
        entry.wanted, entry.abort_due = False, False
        try:
            self.send(self.engine(entry.engine), {"cmd": "abort", "request": entry.id})
        except EngineAway:
            entry.abort_due = True

    # -- viewers ---------------------------------------------------------------------------------------------

    def poke(self) -> None:
        """Have the clock look soon: a viewer needs a keyframe, or a status changed."""
        self._wake.set()

    def summaries(self) -> list[Json]:
        now = time.monotonic()
        return [record.summary(now) for record in self.engines.values()]

    def watching(self) -> Json:
        """How many viewers there are, and may be."""
        return {"connected": len(self.viewers), "limit": self.settings.max_viewers}

    def whole_text(self, owner: str | None) -> str | None:
        """Every readable prompt and answer of the requests that the states still show."""
        shown = {request for record in self.engines.values() if record.state for request in record.state["requests"]}
        entries = [
            {**text_entry(entry.id, 0, entry.text, entry.guessed, entry.lengths), "prompt": entry.prompt}
            for entry in self.ledger.readable(owner, everything=self.share_all)
            if entry.id in shown
        ]
        return text_message(self.id, entries) if entries else None

    async def run(self) -> None:
        """The frame clock; runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await self._wake.wait()
            self._wake.clear()
            try:
                self._tick(time.monotonic())
            except Exception:  # a fault in one frame must not end all of them
                log.exception("a frame could not be made")
            await asyncio.sleep(1 / FRAMES_PER_S)

    def _tick(self, now: float) -> None:
        summaries = self.summaries()
        changed = summaries != self._told
        deltas = self.ledger.drain_deltas()
        if self._pending or changed or deltas or now - self._framed_at > HEARTBEAT_S:
            watching = self.watching()  # whoever comes or goes makes no frame: it is told with the next one
            self._make_frames(
                deltas, summaries if changed else None, watching if watching != self._told_viewers else None
            )
            self._pending, self._told, self._told_viewers, self._framed_at = [], summaries, watching, now
        waiting = [viewer for viewer in self.viewers if viewer.needs_key]
        if waiting:
            key = self._keyframe(summaries)
            for viewer in waiting:
                viewer.take_key(self.n, key)
        for viewer in self.viewers:
            viewer.wake()

    def _make_frames(self, deltas: list[TextDelta], engines: list[Json] | None, viewers: Json | None) -> None:
        """One frame of what is pending, or several of a size that a page folds between two pictures."""
        if any(viewer.columns for viewer in self.viewers):
            encoded = [
                Encoded(raw, self._packers[event["engine"]].in_columns(event, raw)) for event, raw in self._pending
            ]
        else:
            self._packers.clear()
            encoded = [Encoded(raw, raw) for _, raw in self._pending]
        *earlier, last = portions(encoded, FRAME_CHARS)
        for events in earlier:
            self._append_frame(frame_payload(self.id, self.n + 1, events, engines=None, viewers=None), deltas)
            deltas = []  # with the first: a request's last text comes before its end
        self._append_frame(frame_payload(self.id, self.n + 1, last, engines=engines, viewers=viewers), deltas)

    def _append_frame(self, payload: Encoded, deltas: list[TextDelta]) -> None:
        self.n += 1
        self.frames.append(Frame(self.id, self.n, payload, deltas))

    def _keyframe(self, summaries: list[Json]) -> str:
        told: list[str] = []
        for record in self.engines.values():
            if record.hello is not None:
                told.append(encode(record.hello))
                if record.state is not None:
                    told.append(record.key())
        events = [Encoded(event, event) for event in told]
        return frame_payload(self.id, self.n, events, engines=summaries, viewers=self.watching(), key=True).raw

    def close(self, reason: str) -> None:
        """The app is about to stop: end every open request with a reason, so that streams can say it."""
        self.close_begun.set()
        for record in self.engines.values():
            self.ledger.lose_all(record.id, reason)

    @property
    def closing(self) -> bool:
        return self.close_begun.is_set()

    def status(self, record: EngineRecord) -> Status:
        return record.status(time.monotonic())
