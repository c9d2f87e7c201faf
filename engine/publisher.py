"""Publisher: carries events up and commands down one WebSocket, in threads of its own.

The only importer of msgspec and websockets. It takes what the ring holds, encodes it, sends it. On every connection
it says `hello` again and asks for a key, and sends nothing of the numbered stream before that key, so that the
app never folds onto a state it does not have; a `gap` names what is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from engine.emitter import EventRing
from engine.events import Beat, Event, Gap, Hello, Key, Load, Text

POLL_SECONDS = 0.004  # the step thread wakes nobody: it only appends
QUIET_SECONDS = 1.2  # a little more than an idle engine's beat
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
MAX_COMMAND_BYTES = 16 * 2**20


class Publisher:
    """`ask_key` makes the engine emit a key; `on_command` gets each message from the app, in a thread of its own."""

    def __init__(
        self,
        url: str,
        token: str,
        ring: EventRing,
        ask_key: Callable[[], None],
        on_command: Callable[[str | bytes], None],
        *,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        self._url = url
        self._token = token
        self._ring = ring
        self._ask_key = ask_key
        self._on_command = on_command
        self._encoder = msgspec.json.Encoder()
        self._hello: Hello | None = None
        self._last: Event | None = None  # the last event sent
        self._sent_at = time.monotonic()
        self._quiet_seconds = quiet_seconds
        self._synced = True  # nothing is lost yet: the very first connection needs no key
        self._key_asked = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """Send what is left, then hang up."""
        self._closing.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        attempt = 0
        while True:
            closing = self._closing.is_set()  # read before dialling: what is left gets its one try
            try:
                with connect(
                    self._url,
                    additional_headers={"Authorization": f"Bearer {self._token}"},
                    compression=None,
                    max_size=MAX_COMMAND_BYTES,
                    proxy=None,
                ) as socket:
                    attempt = 0
                    if self._serve(socket):
                        return
            except (OSError, WebSocketException, TimeoutError):
                pass  # the app is away or turned us down: try again, a little later each time
            if closing:
                return
            self._closing.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1

    def _serve(self, socket: ClientConnection) -> bool:
        """Send what there is until the connection is lost (False) or all is said (True)."""
        if self._hello is not None:
            socket.send(self._encoder.encode(self._hello).decode())
            self._synced, self._key_asked = False, True
            self._ask_key()  # before any command of this connection, so that their replies come after it
        receiver = threading.Thread(target=self._receive, args=(socket,), name="commands", daemon=True)
        receiver.start()
        while receiver.is_alive():
            closing = self._closing.is_set()  # read before taking, so that the last events are sent
            for item in self._ring.take():
                self._send(socket, item)
            if (self._ring.overflowed or not self._synced) and not self._key_asked:
                self._ask_key()
                self._key_asked = True
            if closing:
                return True
            if self._synced and time.monotonic() - self._sent_at > self._quiet_seconds:
                self._send_pulse(socket)
            time.sleep(POLL_SECONDS)
        return False

    def _send_pulse(self, socket: ClientConnection) -> None:
        """A step takes long: say that the process lives, in an event that repeats the last number."""
        last = self._last
        if last is not None and self._hello is not None:
            pulse = Beat(engine=last.engine, epoch=last.epoch, seq=last.seq, t=last.t, step_age_us=None)
            self._send_raw(socket, pulse)

    def _send(self, socket: ClientConnection, item: Event | Text) -> None:
        if isinstance(item, Hello):
            self._hello, self._synced = item, True
        elif isinstance(item, Key):
            if not self._synced and item.seq > self._last_seq:
                self._send_raw(socket, _gap(item, self._last_seq + 1))
            self._synced, self._key_asked = True, False
        elif not self._synced and not isinstance(item, (Text, Load)):
            return  # a key is on its way and will cover it
        self._send_raw(socket, item)
        if isinstance(item, Event):
            self._last = item

    @property
    def _last_seq(self) -> int:
        return 0 if self._last is None else self._last.seq

    def _send_raw(self, socket: ClientConnection, item: Event | Text) -> None:
        self._sent_at = time.monotonic()
        socket.send(self._encoder.encode(item).decode())

    def _receive(self, socket: ClientConnection) -> None:
        try:
            for message in socket:
                self._on_command(message)
        except WebSocketException:
            pass  # the sender notices and reconnects


def _gap(key: Key, first: int) -> Gap:
    return Gap(engine=key.engine, epoch=key.epoch, seq=key.seq, t=key.t, first=first, last=key.seq)
