"""A fake engine that speaks the wire, a viewer that folds it, and a real server to put between them."""

from __future__ import annotations

import contextlib
import copy
import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Protocol, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from app.hub import Hub
from app.main import create_app
from app.server import Server, bind
from app.settings import Settings
from app.state import fold
from engine.config import EngineConfig
from engine.events import Timings
from engine.scripted import scripted_facts

Json = dict[str, Any]

WAIT_S = 10.0


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """The first true value of `condition`, asked again and again; fails after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true within {WAIT_S:g} s"
        time.sleep(0.01)
    return value


class Running:
    """A server on a port of its own, its hub in reach."""

    def __init__(self, settings: Settings) -> None:
        self.hub = Hub(settings)
        self._socket = bind("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self._server = Server(create_app(self.hub), self.hub)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def connections(self) -> list[Any]:
        """uvicorn's own view of who is connected."""
        return list(self._server.server_state.connections)

    def start(self) -> None:
        self._thread.start()
        until(lambda: self._server.started, "the server's start")

    def leave(self) -> None:
        """Have it stop, without waiting for it."""
        self._server.should_exit = True

    def stop(self) -> None:
        self.leave()
        self._thread.join(10)


@contextlib.contextmanager
def running(settings: Settings | None = None) -> Iterator[Running]:
    server = Running(settings or Settings())
    server.start()
    try:
        yield server
    finally:
        server.leave()


def hello_body(config: EngineConfig) -> Json:
    facts = scripted_facts(config)
    return {
        "v": 1,
        "config": asdict(facts.config),
        "model": asdict(facts.model),
        "device": asdict(facts.device),
        "memory": asdict(facts.memory),
        "num_blocks": facts.config.num_blocks,
        "block_size": facts.config.block_size,
        "clock_unix_us": 1_700_000_000_000_000,
        "redaction": "own",
        "hash_salt": "fixed",
        "disabled": [],
        "simulated": True,
    }


def timings(**known: Any) -> Json:
    undefined = dict.fromkeys(("queue_us", "prefill_us", "ttft_us", "decode_us", "tpot_us", "e2e_us"))
    return asdict(Timings(**{**undefined, "preempted_us": 0, "gated_us": 0, **known}))


def open_socket(url: str, headers: dict[str, str] | None = None) -> ClientConnection:
    """A connected client; whoever opens it closes it, or the server's end does."""
    return contextlib.ExitStack().enter_context(connect(url, additional_headers=headers or {}, max_size=None))


class Voice:
    """Says what a test tells it to, in good form; keeps the state that its events make."""

    def __init__(self, name: str = "main", *, num_blocks: int = 16) -> None:
        self.name = name
        self.epoch = secrets.token_hex(4)
        self.seq = 0
        self.state: Json | None = None
        self.config = EngineConfig(model="scripted", num_blocks=num_blocks, max_num_seqs=4)
        self.commands: queue.Queue[Json] = queue.Queue()

    def send_raw(self, text: str | bytes) -> None:
        raise NotImplementedError

    # -- what it says ----------------------------------------------------------------------------------------

    def make(self, kind: str, **body: Any) -> Json:
        """An event with the next number, folded into our state, not sent."""
        if kind not in ("key", "gap"):
            self.seq += 1
        event = {"kind": kind, "engine": self.name, "epoch": self.epoch, "seq": self.seq, "t": self.seq * 1000, **body}
        self.state = fold(self.state, copy.deepcopy(event))
        return event

    def say(self, kind: str, **body: Any) -> Json:
        event = self.make(kind, **body)
        self.send_raw(json.dumps(event))
        return event

    def greet(self) -> Self:
        """hello and key, as after loading."""
        self.say("hello", **hello_body(self.config))
        self.key()
        return self

    def key(self) -> Json:
        return self.say("key", state=copy.deepcopy(self.state))

    def beat(self) -> Json:
        return self.say("beat", step_age_us=None)

    def text(
        self, request: str, offset: int, text: str, *, guessed: list[list[int]] | None = None, done: bool = False
    ) -> None:
        event = {"kind": "text", "engine": self.name, "epoch": self.epoch, "request": request, "offset": offset}
        self.send_raw(json.dumps({**event, "text": text, "token_ids": [], "guessed": guessed or [], "done": done}))

    def arrived(self, request: str, *, owner: str | None = None, prompt_tokens: int = 8) -> Json:
        body = {
            "label": None,
            "parent": None,
            "owner": owner,
            "arrival_us": self.seq * 1000,
            "num_prompt_tokens": prompt_tokens,
            "max_tokens": 16,
            "sampling": {},
            "priority": 0,
            "request_class": None,
            "block_hashes": [],
            "gate_held": False,
        }
        return self.say("request", event="arrived", request=request, **body)

    def admitted(self, request: str, *, slot: int = 0, cached: int = 0) -> Json:
        return self.say(
            "request", event="admitted", request=request, slot=slot, cached=cached, scheduled_us=self.seq * 1000
        )

    def preempted(self, request: str, *, by: str, **known: Any) -> Json:
        facts = {"needed": 1, "free": 0, "num_lost_tokens": 8, "num_held_blocks": 1, "num_preemptions": 1}
        return self.say(
            "request", event="preempted", request=request, by=by, at_us=self.seq * 1000, **{**facts, **known}
        )

    def first_token(self, request: str) -> Json:
        return self.say("request", event="first_token", request=request, first_token_us=self.seq * 1000)

    def finished(self, request: str, reason: str = "stop", *, tokens: int = 1, **known: Any) -> Json:
        body = {"reason": reason, "detail": None, "finished_us": self.seq * 1000, "num_output_tokens": tokens}
        return self.say("request", event="finished", request=request, timings=timings(**known), **body)

    def rejected(self, request: str, status: int, message: str, param: str | None = None) -> Json:
        return self.say("request", event="rejected", request=request, status=status, param=param, message=message)

    def reply(self, command: Json, error: str | None = None) -> Json:
        effect = "live" if error is None else None
        return self.say("reply", cmd_id=command["cmd_id"], ok=error is None, effect=effect, error=error)

    def step(self, number: int, *rows: Json, tables: list[Any] | None = None, **known: Any) -> Json:
        assert self.state is not None
        counts = dict(self.state["blocks"]["counts"])
        body = {
            "step": number,
            "start_us": self.seq * 1000,
            "wall_us": 900,
            "accepted_us": self.seq * 1000 + 900,
            "phases_us": {},
            "scopes": {},
            "num_scheduled_tokens": sum(row["scheduled"] for row in rows),
            "num_prefill_tokens": 0,
            "num_decode_tokens": 0,
            "token_budget": 64,
            "ended_by": "all_scheduled",
            "rows": list(rows),
            "waiting": [],
            "tables": tables or [],
            "hashed": [],
            "evicted": [],
            "victims": [],
            "blocks": counts,
            "flops": 0,
            "bytes": 0,
            "gated": False,
        }
        return self.say("step", **{**body, **known})

    # -- what it is told -------------------------------------------------------------------------------------

    def command(self, kind: str) -> Json:
        """The next command of this kind; others before it are passed over."""
        deadline = time.monotonic() + WAIT_S
        while True:
            command = self.commands.get(timeout=max(0.01, deadline - time.monotonic()))
            if command["cmd"] == kind:
                return command

    def answer(self, text: str = "Hello there", *, cached: int = 0) -> Json:
        """Serve the next submitted request with `text`, one word a token; returns the command."""
        command = self.command("submit")
        request, words = command["request"], text.split(" ")
        self.arrived(request, owner=command["owner"])
        self.reply(command)
        self.admitted(request, cached=cached)
        self.step(1, row(request, scheduled=8, computed=8, out=1), tables=[[request, [0]]])
        self.first_token(request)
        offset = 0
        for index, word in enumerate(words):
            piece = word if index == 0 else f" {word}"
            self.text(request, offset, piece)
            offset += len(piece)
        self.text(request, offset, "", done=True)
        self.finished(request, tokens=len(words), queue_us=1000, prefill_us=900, ttft_us=1900, decode_us=0, e2e_us=1900)
        return command


class FakeEngine(Voice):
    """A Voice at the other end of /ws/engine."""

    def __init__(self, server: Running, name: str = "main") -> None:
        super().__init__(name)
        self._server = server
        self._socket: ClientConnection | None = None

    def dial(self) -> FakeEngine:
        token = self._server.hub.settings.engine_token
        self._socket = open_socket(f"{self._server.ws}/ws/engine", {"Authorization": f"Bearer {token}"})
        threading.Thread(target=self._receive, args=(self._socket,), daemon=True).start()
        return self

    def _receive(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            for message in socket:
                self.commands.put(json.loads(message))

    def hang_up(self) -> None:
        self.socket.close()

    @property
    def socket(self) -> ClientConnection:
        assert self._socket is not None
        return self._socket

    def send_raw(self, text: str | bytes) -> None:
        self.socket.send(text)


class LocalEngine(Voice):
    """A Voice that speaks straight into a hub, without sockets or threads."""

    def __init__(self, hub: Hub, name: str = "main") -> None:
        super().__init__(name)
        self.hub = hub
        self._known = False

    def send(self, command: str) -> None:
        """The hub's way down to it."""
        self.commands.put(json.loads(command))

    def send_raw(self, text: str | bytes) -> None:
        assert isinstance(text, str)
        if not self._known:
            self.hub.connected(self, text)
            self._known = True
        self.hub.receive(self, text)

    def told(self) -> list[str]:
        """The kinds of the commands that came so far."""
        return [command["cmd"] for command in self.commands.queue]


def row(request: str, *, scheduled: int = 1, computed: int, out: int = 1, slot: int = 0) -> Json:
    phase = "prefill" if scheduled > 1 else "decode"
    return {
        "request": request,
        "slot": slot,
        "phase": phase,
        "scheduled": scheduled,
        "drafted": 0,
        "accepted": 0,
        "computed": computed,
        "out": out,
    }


class Address(Protocol):
    """Whatever has a WebSocket address: a Running, or a process."""

    @property
    def ws(self) -> str: ...


class FakeViewer:
    """A browser's part of /ws: folds what it is sent."""

    def __init__(self, server: Address, *, cookie: str | None = None, acks: bool = True) -> None:
        headers = {"Cookie": f"stepscope_owner={cookie}"} if cookie else {}
        self.socket = open_socket(f"{server.ws}/ws", headers)
        self.frames: list[Json] = []
        self.texts: list[Json] = []
        self.states: dict[str, Json | None] = {}
        self.engines: dict[str, Json] = {}
        self._acks = acks

    def send(self, **message: Any) -> None:
        self.socket.send(json.dumps(message))

    def take(self, timeout: float = WAIT_S) -> Json:
        """Receive one message, frame or text."""
        message: Json = json.loads(self.socket.recv(timeout=timeout))
        if "text" in message:
            self.texts.extend(message["text"])
            return message
        if message.get("key"):
            self.states = {}
        self.frames.append(message)
        for engine in message.get("engines", ()):
            self.engines[engine["id"]] = engine
        for event in message["events"]:
            self.states[event["engine"]] = fold(self.states.get(event["engine"]), event)
        if self._acks:
            self.send(ack=message["n"])
        return message

    def take_until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + WAIT_S
        while not (value := condition()):
            self.take(max(0.01, deadline - time.monotonic()))
        return value

    def take_until_closed(self) -> tuple[int, str]:
        """Receive until the server hangs up; returns the code and reason it gave."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.take()
        return self.socket.close_code or 1006, self.socket.close_reason or ""

    def events(self, kind: str) -> list[Json]:
        return [event for frame in self.frames for event in frame["events"] if event["kind"] == kind]

    def status(self, engine: str = "main") -> str | None:
        return self.engines.get(engine, {}).get("status")

    def close(self) -> None:
        self.socket.close()
