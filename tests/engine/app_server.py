"""An app for engines to dial: a WebSocket server that keeps what it is told."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

WAIT = 20.0  # the longest that any test waits for what must happen
TOKEN = "secret"


class Connection:
    """One engine's connection: everything it has said so far."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self._changed = threading.Condition()
        self.received: list[dict[str, Any]] = []
        self.closed = False

    def listen(self) -> None:
        try:
            for message in self._socket:
                with self._changed:
                    self.received.append(json.loads(message))
                    self._changed.notify_all()
        except ConnectionClosed:
            pass
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wait(self, condition: Callable[[list[dict[str, Any]]], Any]) -> Any:
        """Wait until what has been received meets the condition; returns what the condition does."""
        with self._changed:
            done = self._changed.wait_for(lambda: condition(self.received), WAIT)
            assert done, f"not met by {[name_of(message) for message in self.received]}"
            return done

    def wait_for(self, name: str, **values: Any) -> dict[str, Any]:
        """The first message of this kind (or request event) with these values."""

        def found(received: list[dict[str, Any]]) -> dict[str, Any] | None:
            fits = (m for m in received if name_of(m) == name and values.items() <= m.items())
            return next(fits, None)

        message: dict[str, Any] = self.wait(found)
        return message

    def wait_closed(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.closed, WAIT)

    def send(self, **command: Any) -> None:
        self._socket.send(json.dumps(command))

    def drop(self) -> None:
        """Hang up."""
        self._socket.close()
        self.wait_closed()

    def names(self) -> list[str]:
        return [name_of(message) for message in self.received]


def name_of(message: dict[str, Any]) -> str:
    name: str = message["event"] if message["kind"] == "request" else message["kind"]
    return name


class AppServer:
    """Listens on a port of its own; `accept` waits for the next engine that dials with the token."""

    def __init__(self) -> None:
        self._dialled: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self.turned_down: queue.SimpleQueue[str] = queue.SimpleQueue()  # the paths of those without the token
        self._server = serve(self._handle, "127.0.0.1", 0, process_request=self._check, compression=None)
        self.url = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}/ws/engine"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> AppServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()

    def accept(self) -> Connection:
        return self._dialled.get(timeout=WAIT)

    def _check(self, socket: ServerConnection, request: Request) -> Response | None:
        if request.path == "/ws/engine" and request.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        self.turned_down.put(request.path)
        return socket.respond(HTTPStatus.FORBIDDEN, "no")

    def _handle(self, socket: ServerConnection) -> None:
        connection = Connection(socket)
        self._dialled.put(connection)
        connection.listen()
