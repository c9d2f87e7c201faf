"""EngineRecord: one engine as the hub sees it — its epoch, its folded state, whether it is alive.

Contract of `receive`: events of one epoch are folded in order and without a hole. When some are missing (the
engine says `gap`, or a number is skipped) the record stops folding until the next `key`, and hands on one `gap`
and that `key` in place of everything between; a reader never folds over a hole.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from app.history import History
from app.ledger import Ledger
from app.state import State, fold
from app.wire import Json, encode

STEPS_KEPT = 2000
NOTES_KEPT = 2 * STEPS_KEPT
# Which step a request event belongs to, counted from the last one: engine/events.py promises the order.
_STEPS_AHEAD = {"preempted": 1, "admitted": 1, "resumed": 1, "first_token": 0, "finished": 0}
SILENT_AFTER_S = 3.0  # an idle engine beats each second, but one long step may take more than that


class Status(enum.Enum):
    """Where an engine is in its life, as pages and /readyz say it."""

    STARTING = "starting"  # its process runs but has not been heard of
    LOADING = "loading"
    READY = "ready"
    PAUSED = "paused"
    SILENT = "silent"  # loaded, not heard of for a while, not known to be gone
    GONE = "gone"


class EngineRecord:
    """State and history of one engine across its epochs."""

    def __init__(self, name: str, ledger: Ledger, *, share_all: bool) -> None:
        self.id = name
        self.epoch: str | None = None
        self.seq = 0
        self.t = 0
        self.hello: Json | None = None
        self.state: State | None = None
        self.load: Json | None = None
        self.gone: str | None = None  # the reason, once it is gone
        self.restarting = False  # it was asked to end, and another is to follow
        self.detail: str | None = None  # the last words of its process
        self.connected = False
        self.restartable = False
        self.lost_events = 0  # of this epoch: in its gaps
        self.started_at = self.heard_at = time.monotonic()
        self.steps: deque[tuple[int, str]] = deque(maxlen=STEPS_KEPT)
        self.notes: deque[tuple[int, str]] = deque(maxlen=NOTES_KEPT)  # what steps did to requests, by step
        self.history = History()
        self._ledger = ledger
        self._share_all = share_all
        self._awaited = False  # a new process was started and has not been heard of
        self.key_asked = False
        self._missing: int | None = None  # first event of the hole that waits for a key

    # -- what it says ----------------------------------------------------------------------------------------

    def receive(self, event: Json, raw: str, now: float) -> Iterator[tuple[Json, str]]:
        """Take one message; yields the public events to hand on. Raises KeyError & co. for malformed ones."""
        self.heard_at, self._awaited = now, False
        if event["kind"] == "text":
            self._receive_text(event, raw)
            return
        if event["epoch"] != self.epoch:
            self._begin_epoch(event)
        if event["kind"] == "key":
            yield from self._receive_key(event, raw, now)
        elif event["kind"] == "hello" and self.hello is not None:
            return  # it came back to us; a key follows
        elif event["kind"] == "gap":
            self._miss(event["first"])
        elif event["seq"] > self.seq:
            yield from self._receive_delta(event, raw, now)

    def distrust(self) -> None:
        """An event could not be folded: what came of it is unknown until the next key."""
        self._miss(self.seq)

    @property
    def wants_key(self) -> bool:
        """Whether events were lost, so that a fresh key has to be asked for."""
        return self._missing is not None

    def _begin_epoch(self, event: Json) -> None:
        self._end_requests("The engine was restarted.")
        self.epoch = event["epoch"]
        self.seq = event["seq"] - 1 if event["kind"] not in ("key", "gap") else event["seq"]
        self.hello = self.state = self.load = self.gone = self.detail = self._missing = None
        self.lost_events = 0
        self.steps.clear()
        self.notes.clear()

    def _miss(self, first: int) -> None:
        self._missing = first if self._missing is None else min(first, self._missing)

    def _receive_text(self, event: Json, raw: str) -> None:
        if event["epoch"] != self.epoch:
            return
        self._ledger.add_text(event)
        if self._share_all:
            self.history.note(raw)

    def _receive_key(self, event: Json, raw: str, now: float) -> Iterator[tuple[Json, str]]:
        # After our own bye its numbers may be behind ours; its key is right all the same.
        if self.hello is None or (event["seq"] < self.seq and self.gone is None):
            return
        if self.state is not None and not self.state.keys() <= event["state"].keys():
            raise ValueError("the key's state is not whole")
        whole = self._missing is None and event["seq"] == self.seq and self.state is not None
        if whole and self.state == event["state"]:
            return
        if not whole and self.state is not None:
            first = self.seq + 1 if self._missing is None else self._missing
            gap = {**event, "kind": "gap", "first": first, "last": event["seq"]}
            del gap["state"]
            self.lost_events += max(0, event["seq"] - first + 1)
            told = encode(gap)
            self.history.note(told)
            yield gap, told
        cleared = self.state is not None and self.state["num_resets"] != event["state"]["num_resets"]
        self.state = fold(self.state, event)
        self.seq, self.t, self.gone, self._missing, self.key_asked = event["seq"], event["t"], None, None, False
        self._ledger.reconcile(self.id, event["state"]["requests"])
        if cleared:
            self._forget(raw, now)
        else:
            self.history.restart(raw, now)
        yield event, raw

    def _receive_delta(self, event: Json, raw: str, now: float) -> Iterator[tuple[Json, str]]:
        kind = event["kind"]
        if kind in ("request", "step"):
            self._ledger.apply(event, now)
        if event["seq"] > self.seq + 1:
            self._miss(self.seq + 1)
        if self._missing is not None:
            return
        self.seq, self.t = event["seq"], event["t"]
        self.state = fold(self.state, event)
        if kind == "hello":
            self.hello, self.load = event, None
            self.history.hello(raw, self.key(), now)
        elif kind == "load":
            self.load = event
        elif kind == "bye":
            self.gone = event["reason"]
            self._end_requests(f"The engine left: {self.gone}")
        elif kind == "step":
            self.steps.append((event["step"], raw))
        elif kind == "request":
            self._note(event)
        if kind == "reset":
            self._forget(self.key(), now)
        elif self.hello is not None and kind != "hello":
            self.history.append(kind, raw, now, self.key)
        yield event, raw

    def _forget(self, key: str, now: float) -> None:
        """The stage was reset: what is over is not to be shown to anybody who comes later."""
        self.steps.clear()
        self.notes.clear()
        self._ledger.forget(self.id)
        self.history.forget(key, now)

    def _note(self, event: Json) -> None:
        """A request event: keep it with the number of the step whose doing it is, so that the step can be explained."""
        if event["event"] == "finished":
            self._keep_snapshot(event["request"])
            if event["reason"] == "abort":
                return  # no step's doing
        ahead = _STEPS_AHEAD.get(event["event"])
        if self.state is not None and ahead is not None:
            step = self.state["step"] + ahead
            self.notes.append((step, encode({**event, "step": step})))

    def _keep_snapshot(self, request: str) -> None:
        entry = self._ledger.entries.get(request)
        if entry is not None and self.state is not None and request in self.state["requests"]:
            entry.snapshot = dict(self.state["requests"][request])

    def _end_requests(self, reason: str) -> None:
        """Nothing more will come for any request of this epoch."""
        for entry in self._ledger.live(self.id):
            self._keep_snapshot(entry.id)
            self._ledger.lose(entry, reason)

    # -- what the hub says about it --------------------------------------------------------------------------

    def lose(self, reason: str, now: float, detail: str | None = None) -> tuple[Json, str] | None:
        """It is gone: end its requests and return the `bye` to hand on, or None if it said so itself."""
        if self.gone is not None:
            self.detail = self.detail or detail
            return None
        self.gone, self.detail, self.connected = reason, detail, False
        self._end_requests(f"The engine is gone: {reason}")
        if self.epoch is None:
            return None
        self.seq += 1
        self.t += max(0, int((now - self.heard_at) * 1e6))
        bye = {**self._header("bye"), "reason": reason, "origin": "hub"}
        raw = encode(bye)
        if self.hello is not None:
            self.history.append("bye", raw, now, self.key)
        return bye, raw

    def starting(self) -> None:
        """A new process was started for it; what its old one left stays visible until the new one says hello."""
        self.gone = self.detail = self.load = None
        self._awaited, self.connected = True, False
        self.started_at = time.monotonic()

    def status(self, now: float) -> Status:
        if self.gone is not None and not self.restarting:
            return Status.GONE
        if self._awaited or self.restarting:
            return Status.STARTING
        if self.hello is None or self.state is None:
            return Status.STARTING if self.load is None else Status.LOADING
        if not self.connected or now - self.heard_at > SILENT_AFTER_S:
            return Status.SILENT
        return Status.PAUSED if self.state["gate"]["state"] == "paused" else Status.READY

    def summary(self, now: float) -> Json:
        """The entry about it in frames and in /api/state; equal summaries mean nothing to tell."""
        status = self.status(now)
        load = self.load and {name: self.load[name] for name in ("phase", "done", "total", "unit")}
        return {
            "id": self.id,
            "epoch": self.epoch,
            "status": status.value,
            "reason": self.reason(status),
            "detail": self.detail,
            "load": load,
            "restartable": self.restartable,
            "lost_events": self.lost_events,
        }

    def reason(self, status: Status) -> str | None:
        """The sentence that goes with a status that is not simply fine."""
        match status:
            case Status.GONE:
                return self.gone
            case Status.SILENT if not self.connected:
                return "Its connection to the app was lost."
            case Status.SILENT:
                return f"Nothing was heard from it for more than {SILENT_AFTER_S:g} s."
            case Status.STARTING:
                return "Its process is starting."
            case Status.LOADING:
                return "It is loading its model."
        return None

    def key(self) -> str:
        """The whole state as a `key` event."""
        return encode({**self._header("key"), "state": self.state})

    def _header(self, kind: str) -> dict[str, Any]:
        return {"kind": kind, "engine": self.id, "epoch": self.epoch, "seq": self.seq, "t": self.t}
