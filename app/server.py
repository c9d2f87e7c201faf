"""The HTTP server: uvicorn with our limits, on a socket that was bound beforehand, and a way to stop in time.

Contract: `serve_forever` returns within 5 s of Ctrl-C or SIGTERM with any number of streams open; each of them is
told why it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from app.engines import Supervisor
from app.hub import Hub

MAX_KEYFRAME_BYTES = 16 * 2**20  # what one message of an engine may hold
GRACE_S = 3
LAST_WORDS_S = 0.05  # streams say why they end before their connections are shut
PING_S = 20.0


class PortTaken(Exception):
    """Somebody else listens on the port."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, so that a taken port is found before anything is loaded. Raises PortTaken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise PortTaken(f"Port {port} on {host} cannot be used: {(error.strerror or str(error)).lower()}.") from None
    return sock


class Server(uvicorn.Server):
    """Starts the engine once the page is up, and ends streams and engine before it waits for connections."""

    def __init__(
        self, app: ASGIApp, hub: Hub, supervisor: Supervisor | None = None, on_started: Callable[[], None] | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="websockets-sansio",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            ws_max_size=MAX_KEYFRAME_BYTES,
            ws_per_message_deflate=False,
            ws_ping_interval=PING_S,
            ws_ping_timeout=None,  # a stopped engine is silent, not gone; viewers are bounded by their acks
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._hub = hub
        self._supervisor = supervisor
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_started is not None:
            self._on_started()
        if self._supervisor is not None:
            await self._supervisor.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hub.close("Stepscope is shutting down.")
        await asyncio.sleep(LAST_WORDS_S)
        async with asyncio.TaskGroup() as ending:
            if self._supervisor is not None:
                ending.create_task(self._supervisor.stop())
            ending.create_task(super().shutdown(sockets))


def serve_forever(server: Server, sock: socket.socket) -> None:
    """Run until a signal says stop. Both signals are ordinary ways to end, so neither is raised again."""
    with _ignored_afterwards(signal.SIGTERM), contextlib.suppress(KeyboardInterrupt):
        server.run([sock])


@contextlib.contextmanager
def _ignored_afterwards(number: signal.Signals) -> Iterator[None]:
    """uvicorn restores the handler that it found and raises the signal again; let it find one that does nothing."""
    before = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(number, before)
