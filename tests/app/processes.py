"""`stepscope serve --model scripted` as a process of its own, as a person starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.app.fakes import until

ROOT = Path(__file__).resolve().parent.parent.parent
PREFIX = "Stepscope is at "


class Served:
    """A running `stepscope serve`; `url` is what it printed."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, "-m", "app", "serve", "--port", "0", *flags]
        self._cache = tempfile.TemporaryDirectory()  # for what it keeps of crashes, lest tests fill the user's
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={"STEPSCOPE_CACHE": self._cache.name, **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=self._read, args=(stream, lines), daemon=True).start()
        printed = until(lambda: next((line for line in self.lines if line.startswith(PREFIX)), None), "its address")
        self.url = printed.removeprefix(PREFIX).strip()
        self.client = httpx.Client(base_url=self.url, timeout=20, verify=False)

    def _read(self, stream: Any, lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1)

    def state(self) -> dict[str, Any]:
        value: dict[str, Any] = self.client.get("/api/state").json()
        return value

    def wait_ready(self) -> None:
        until(lambda: self.client.get("/readyz").status_code == 200, "the engine's hello")

    def engine_process(self) -> psutil.Process:
        """The engine that runs now."""
        return until(lambda: next(iter(psutil.Process(self.process.pid).children()), None), "the engine's process")

    def end(self) -> None:
        self.client.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        with contextlib.suppress(OSError):  # the engine may be writing still
            self._cache.cleanup()


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Served]:
    served = Served("--model", "scripted", *flags)
    try:
        served.wait_ready()
        yield served
    finally:
        served.end()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def free(port: int) -> bool:
    """Whether somebody could listen on the port now."""
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
