"""The supervisor of the local engine process.

Contract: at most one process at a time; its exit is noticed at once and told to the hub with its reason; it
ends when the app does, however the app ends, because it exits when its stdin closes; what it prints goes to
the terminal, and its last words are kept. Settings with which no engine came up are given up for the last ones with
which one did.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from pathlib import Path

import engine
from app.crash import write_bundle
from app.hub import Hub
from engine.config import EngineConfig
from engine.flags import config_to_argv
from engine.model_cache import cache_dir

NAME = "main"
TOKEN_VARIABLE = "STEPSCOPE_ENGINE_TOKEN"
LAST_WORDS = 20  # lines of stderr kept
LAST_WORDS_CHARS = 300
CONFIG_EXIT = 2  # it could not start, and said why in one sentence
POLITE_S = 1.5  # between asking the process to end and ending it


class Supervisor:
    """Starts, watches, restarts and ends one engine process."""

    def __init__(self, hub: Hub, config: EngineConfig, *, app_url: str) -> None:
        self._hub = hub
        self.config = config  # of the next start
        self.running = config  # of the process that runs, knobs turned since its start included
        self._proven: EngineConfig | None = None  # the last with which an engine came up
        self._command = [sys.executable, "-P", "-m", "engine", "--app", app_url, "--name", NAME]
        self._command += ["--redaction", hub.settings.share_text.value]
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._stop_reason: str | None = None
        self._busy = asyncio.Lock()
        self._closed = False

    async def start(self) -> None:
        """Start the process; the hub shows it as starting from now on."""
        self._hub.engine(NAME).restartable = True
        self._hub.starting(NAME)
        self._stop_reason = None
        self.running = self.config
        epoch = self._hub.engine(NAME).epoch
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                *config_to_argv(self.config),
                stdin=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C in the terminal is for the app, which then ends it in order
            )
        except OSError as error:
            self._hub.engine_gone(NAME, f"Its process could not be started: {error.strerror}.")
            return
        self._watcher = asyncio.create_task(self._watch(self._process, epoch))

    def _environment(self) -> dict[str, str]:
        """Ours, with the token, and with our packages."""
        return {**os.environ, TOKEN_VARIABLE: self._hub.settings.engine_token, "PYTHONPATH": import_path()}

    async def restart(self) -> None:
        """End the process if there is one, and start a new one."""
        async with self._busy:
            record = self._hub.engine(NAME)
            record.restarting = True
            try:
                await self._end("It was restarted.")
            finally:
                record.restarting = False
            if not self._closed:
                await self.start()

    async def stop(self) -> None:
        """End the process for good."""
        self._closed = True
        async with self._busy:
            await self._end("Stepscope is shutting down.")

    @property
    def pid(self) -> int | None:
        """The running process's id."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def kill(self) -> None:
        """End the process and what it started at once, without a loop to wait on."""
        if self.pid is not None:
            _kill_group(self.pid)

    async def _end(self, reason: str) -> None:
        process, watcher = self._process, self._watcher
        if process is None or watcher is None:
            return
        self._stop_reason = reason
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLITE_S):
                await asyncio.shield(watcher)
        self.kill()
        await watcher

    async def _watch(self, process: asyncio.subprocess.Process, epoch_before: str | None) -> None:
        words: deque[str] = deque(maxlen=LAST_WORDS)
        forwarding = asyncio.create_task(_forward(process, words))
        code = await process.wait()
        _kill_group(process.pid)  # a download that it had started
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):  # a grandchild may hold the pipe open
                await forwarding
        forwarding.cancel()
        last = next((line for line in reversed(words) if line.strip()), "")[:LAST_WORDS_CHARS]
        self._judge_settings(epoch_before, failed=self._stop_reason is None or code == CONFIG_EXIT)
        reason = self._stop_reason or exit_reason(code, last)
        self._hub.engine_gone(NAME, reason, last or None)
        if self._stop_reason is None:
            await self._keep_what_led_to_it()

    def _judge_settings(self, epoch_before: str | None, *, failed: bool) -> None:
        """Remember settings with which an engine came up; give up others, unless new ones have been asked for since."""
        record = self._hub.engine(NAME)
        if record.hello is not None and record.epoch != epoch_before:
            self._proven = self.running
        elif failed and self._proven is not None and self.config == self.running:
            self.config = self._proven

    async def _keep_what_led_to_it(self) -> None:
        lines = self._hub.engine(NAME).history.lines()
        path = await asyncio.to_thread(write_bundle, cache_dir() / "crashes", NAME, lines)
        if path is not None:
            sys.stderr.write(f"What led to it is kept as a recording: {path}\n")


def import_path() -> str:
    """PYTHONPATH for a process that is to find this very `engine` package."""
    home = str(Path(engine.__file__).resolve().parent.parent)
    return os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def exit_reason(code: int, last_words: str) -> str:
    """Why a process ended, as a sentence for the page."""
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = " It may have run out of memory." if -code == signal.SIGKILL else ""
            return f"Its process was ended by signal {-code} ({name}).{hint}"
        return f"Its process was ended by signal {-code}."
    if code == CONFIG_EXIT and last_words:
        return last_words
    return f"Its process ended with exit code {code}; the terminal shows its last words."


async def _forward(process: asyncio.subprocess.Process, words: deque[str]) -> None:
    """Copy the process's stderr to ours, line by line, and remember the end of it."""
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue  # a line longer than the reader's limit; it was dropped
        if not line:
            return
        text = line.decode(errors="replace")
        words.append(text.rstrip())
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
