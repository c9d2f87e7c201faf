"""ViewerSession: one browser on /ws.

It is sent a keyframe, then every frame in order. Bounded three ways: the socket's own flow control, a window of
frames that must be acknowledged, and the ring. A viewer that does not keep up, was hidden, or falls out of the
ring gets one keyframe and goes on from there; it is never sent a backlog.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.frames import Frame
from app.hub import Hub
from app.wire import ViewerMessage, WireError, read_viewer_message

WINDOW = 64  # frames that may be on their way unacknowledged
RESUME_WAIT_S = 0.1  # a viewer that was here before says so first; one that says nothing gets a keyframe
MAX_PATIENCE_S = 30.0


class ViewerSession:
    """Sends one viewer what it has not seen; see the module for the rules."""

    def __init__(self, hub: Hub, socket: WebSocket, owner: str | None) -> None:
        self.needs_key = False
        self.columns = False
        self._hub = hub
        self._socket = socket
        self._owner = owner
        self._visible = True
        self._begun = asyncio.Event()
        self._wake = asyncio.Event()
        self._key: tuple[int, str] | None = None
        self._next = 0  # number of the next frame to send
        self._acked = 0  # everything up to here has arrived, or has been given up on
        self._windows_missed = 0

    # -- what the hub calls ----------------------------------------------------------------------------------

    def take_key(self, n: int, payload: str) -> None:
        self.needs_key = False
        self._key = (n, payload)

    def wake(self) -> None:
        self._wake.set()

    # -- the session -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the viewer until it leaves or breaks a rule. The socket has been accepted."""
        self._hub.viewers.add(self)
        tasks = {asyncio.create_task(self._receive_all()), asyncio.create_task(self._send_all())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except WireError as error:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close(error.code, str(error))
        except WebSocketDisconnect:
            pass
        finally:
            self._hub.viewers.discard(self)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive_all(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if message.get("text") is None:
                raise WireError("the viewer sent a binary message")
            self._handle(read_viewer_message(message["text"]))
            self._begun.set()

    def _handle(self, message: ViewerMessage) -> None:
        if message.resume is not None and not self._begun.is_set():
            resume = message.resume
            if resume.hub == self._hub.id and resume.n <= self._hub.n and self._reaches(resume.n + 1):
                self._next, self._acked = resume.n + 1, resume.n
        if message.rows is not None:
            self.columns = message.rows == "columns"
        if message.ack is not None and message.ack < self._next:
            self._acked = max(self._acked, message.ack)
            self._windows_missed = 0
        if message.visible is not None and message.visible != self._visible:
            self._visible = message.visible
            if self._visible:
                self._ask_for_key()
        self.wake()

    def _reaches(self, n: int) -> bool:
        return n == self._hub.n + 1 or self._hub.frames.get(n) is not None

    def _ask_for_key(self) -> None:
        self.needs_key = True
        self._hub.poke()

    async def _send_all(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESUME_WAIT_S):
                await self._begun.wait()
        self._begun.set()
        if self._next == 0:
            self._ask_for_key()
        else:
            await self._send_whole_text()  # a frame's text may have been lost with the connection
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Send everything there is to send now."""
        while self._visible:
            if self._key is not None:
                await self._send_key(*self._key)
            elif self.needs_key:
                return
            elif self._next - self._acked > WINDOW:
                await self._be_patient()
            elif (frame := self._hub.frames.get(self._next)) is not None:
                await self._send_frame(frame)
            elif self._next <= self._hub.n:
                self._ask_for_key()
            else:
                return

    async def _send_key(self, n: int, payload: str) -> None:
        self._key = None
        self._next, self._acked = n + 1, n
        await self._socket.send_text(payload)
        await self._send_whole_text()

    async def _send_whole_text(self) -> None:
        text = self._hub.whole_text(self._owner)
        if text is not None:
            await self._socket.send_text(text)

    async def _send_frame(self, frame: Frame) -> None:
        self._next += 1
        text = frame.text(self._owner, everything=self._hub.share_all)
        if text is not None:  # before the frame: a request's last text comes before its end
            await self._socket.send_text(text)
        await self._socket.send_text(frame.payload.columns if self.columns else frame.payload.raw)

    async def _be_patient(self) -> None:
        """A whole window is unacknowledged: wait for an ack, longer each time, then start over with a keyframe."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(2.0**self._windows_missed, MAX_PATIENCE_S)):
                while self._next - self._acked > WINDOW:
                    self._wake.clear()
                    await self._wake.wait()
                return
        self._windows_missed += 1
        self._ask_for_key()
