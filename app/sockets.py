"""The two WebSocket endpoints: /ws for viewers, /ws/engine for engines."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.hub import EngineAway, Hub
from app.security import bearer_matches, owner_of
from app.viewers import ViewerSession
from app.wire import POLICY_VIOLATION, WireError

MAX_COMMANDS = 4096  # commands that may wait for an engine that does not read

TRY_AGAIN_LATER = 1013
MAX_REASON_CHARS = 120  # a close frame has room for 123 bytes, and our reasons are ASCII


async def viewer(socket: WebSocket) -> None:
    """/ws: the page watches. Host and Origin were checked before this."""
    hub: Hub = socket.state.hub
    await socket.accept()
    if len(hub.viewers) >= hub.settings.max_viewers:
        await socket.close(TRY_AGAIN_LATER, f"Stepscope shows to at most {hub.settings.max_viewers} viewers at once")
        return
    await ViewerSession(hub, socket, owner_of(socket)).run()


class _Link:
    """The way down to one engine: a bounded queue that the endpoint drains."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[str] = asyncio.Queue(MAX_COMMANDS)

    def send(self, command: str) -> None:
        try:
            self.commands.put_nowait(command)
        except asyncio.QueueFull:
            raise EngineAway("The engine does not take commands.") from None


async def engine(socket: WebSocket) -> None:
    """/ws/engine: an engine speaks. Closed before it is accepted unless it brings the token."""
    hub: Hub = socket.state.hub
    if not bearer_matches(socket, hub.settings.engine_token):
        await socket.close(POLICY_VIOLATION)
        return
    await socket.accept()
    link = _Link()
    name: str | None = None
    sender = asyncio.create_task(_send_commands(socket, link))
    reason = "Its connection to the app was closed."
    try:
        while (message := await socket.receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            if text is None:
                raise WireError("the engine sent a binary message")
            if name is None:
                name = hub.connected(link, text)
            hub.receive(link, text)
    except WireError as error:
        reason = f"The app closed its connection: {error}."
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(error.code, str(error)[:MAX_REASON_CHARS])
    finally:
        sender.cancel()
        if name is not None:
            hub.disconnected(name, link, reason)


async def _send_commands(socket: WebSocket, link: _Link) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await socket.send_text(await link.commands.get())
