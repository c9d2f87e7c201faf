"""An app in a process of its own, and a synthetic engine in another that dials it and never ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Protocol

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from app.hub import Hub
from app.main import create_app
from app.server import Server, bind, serve_forever
from app.settings import Settings
from app.wire import encode
from benchmarks.synthetic import Crowd, Size

LATE_S = 0.25  # further behind than this, it does not hurry to catch up
READY_S = 30


class Flag(Protocol):
    """An event of threading or of multiprocessing."""

    def is_set(self) -> bool: ...


@contextlib.contextmanager
def playing(size: Size) -> Iterator[str]:
    """The address of a page whose engine is busy."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    stop = spawn.Event()
    app = spawn.Process(target=_serve, args=(there,), daemon=True)
    app.start()
    if not here.poll(READY_S):
        app.kill()
        raise TimeoutError(f"The app was not up within {READY_S} s.")
    port, token = here.recv()
    engine = spawn.Process(target=play, args=(f"ws://127.0.0.1:{port}", token, size, stop), daemon=True)
    engine.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        engine.join(5)
        for process in (engine, app):
            process.kill()
            process.join(5)


def _serve(pipe: Connection) -> None:
    hub = Hub(Settings())
    sock = bind("127.0.0.1", 0)
    server = Server(create_app(hub), hub, on_started=lambda: pipe.send((sock.getsockname()[1], token)))
    token = hub.settings.engine_token
    serve_forever(server, sock)


def play(app: str, token: str, size: Size, stop: Flag) -> None:
    """Dial the app and say what a crowd says, at its pace, until told to stop."""
    crowd = Crowd(size)
    with (
        contextlib.suppress(ConnectionClosed),
        connect(f"{app}/ws/engine", additional_headers={"Authorization": f"Bearer {token}"}, max_size=None) as socket,
    ):
        socket.send(encode(crowd.hello()))
        due = time.monotonic()
        while not stop.is_set():
            for event in crowd.step():
                socket.send(encode(event))
            due = max(due + 1 / size.steps_per_s, time.monotonic() - LATE_S)
            time.sleep(max(0.0, due - time.monotonic()))
