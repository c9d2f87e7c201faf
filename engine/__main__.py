"""`python -m engine`: one engine process. It loads a model, dials the app and steps until it is told to stop.

It ends when its standard input does, so that it cannot outlive the program that started it; when it cannot start,
it says why in one sentence on standard error and exits with 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import queue
import secrets
import signal
import sys
import threading
import time
import traceback

from engine import events
from engine.block_pool import hash_root
from engine.build import Built, build
from engine.commands import CommandReader
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.emitter import Emitter, EventRing
from engine.errors import LoadError, StepscopeError, brief
from engine.flags import add_config_flags, config_from_args
from engine.frontend import Frontend
from engine.loop import Command, EngineLoop
from engine.publisher import Publisher
from engine.timing import monotonic_clock

EXIT_GRACE_SECONDS = 2.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__.split("\n")[0])
    parser.add_argument("--app", required=True, metavar="URL", help="where to dial, ws://host:port/ws/engine")
    parser.add_argument("--name", default="main", help="what this engine is called (default: %(default)s)")
    parser.add_argument("--redaction", choices=("own", "all"), default="own", help="who may read text, as the app says")
    add_config_flags(parser)
    args = parser.parse_args(argv)
    token = os.environ.pop("STEPSCOPE_ENGINE_TOKEN", "")
    try:
        return Engine(args.app, args.name, token, args.redaction).run(config_from_args(args))
    except StepscopeError as error:
        print(error, file=sys.stderr)
        return 2


class Engine:
    """The process: its clock, its ring, its threads."""

    def __init__(self, url: str, name: str, token: str, redaction: str) -> None:
        self._clock = monotonic_clock()
        self._started_unix_us = time.time_ns() // 1000
        self._redaction = redaction
        self._ring = EventRing()
        self._emitter = Emitter(name, secrets.token_hex(8), self._clock, self._ring)
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._loop: EngineLoop | None = None
        self._reader: CommandReader | None = None
        self._ready = threading.Event()
        self._publisher = Publisher(url, token, self._ring, self._ask_key, self._on_command)

    def run(self, config: EngineConfig) -> int:
        """Load, serve, stop. Returns the exit status."""
        self._watch_for_the_end()
        self._publisher.start()
        try:
            loop = self._open(self._build(config))
        except StepscopeError as error:
            self._bye(str(error))
            raise
        try:
            loop.run()
        except Exception as error:
            traceback.print_exc()
            loop.core.fail_all("engine_error")
            self._bye(f"{type(error).__name__} in a step: {brief(error)}")
            return 1
        loop.core.fail_all("shutdown")
        self._bye("It was told to stop.")
        return 0

    def _build(self, config: EngineConfig) -> Built:
        """Whatever goes wrong is one sentence; what nobody foresaw leaves its traceback in the terminal before it."""
        try:
            return build(config, self._load_progress)
        except StepscopeError:
            raise
        except Exception as error:
            traceback.print_exc()
            raise LoadError(
                f"--model {brief(config.model)} could not be loaded ({type(error).__name__}: {brief(error)}). "
                "Is one of its files damaged? `stepscope doctor` says what was found."
            ) from error

    def _open(self, built: Built) -> EngineLoop:
        frontend = Frontend(
            built.config,
            built.model,
            built.tokenizer,
            built.chat_template,
            built.special_tokens,
            built.eos_token_ids,
        )
        core = EngineCore(
            built.config,
            built.runner,
            self._emitter,
            self._clock,
            frontend.make_detokenizer,
            cost=built.cost,
            root_hash=hash_root(built.model.name, built.memory.kv_dtype),
        )
        self._emitter.emit(
            events.Hello,
            v=events.SCHEMA_VERSION,
            config=dataclasses.asdict(built.config),
            model=built.model,
            device=built.device,
            memory=built.memory,
            draft=built.draft,
            num_blocks=built.config.num_blocks,
            block_size=built.config.block_size,
            clock_unix_us=self._started_unix_us,
            redaction=self._redaction,
            hash_salt="fixed",
            disabled=built.disabled,
            simulated=built.config.scripted,
        )
        core.reporter.key()
        self._loop = EngineLoop(core, self._inbox)
        self._reader = CommandReader(frontend, self._inbox, self._clock, self._loop.stop)
        self._ready.set()
        return self._loop

    def _load_progress(self, phase: str, done: int, total: int, unit: str) -> None:
        self._emitter.emit(events.Load, phase=phase, done=done, total=total, unit=unit)

    def _bye(self, reason: str) -> None:
        self._emitter.emit(events.Bye, reason=reason, origin="engine")
        self._publisher.close()

    def _ask_key(self) -> None:
        self._inbox.put(Command(lambda core: core.reporter.key()))

    def _on_command(self, message: str | bytes) -> None:
        self._ready.wait()  # commands that come while the model loads wait for it
        assert self._reader is not None
        self._reader.read(message)

    def _watch_for_the_end(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        signal.signal(signal.SIGINT, lambda *_: self._stop())
        threading.Thread(target=self._wait_for_parent, name="parent", daemon=True).start()

    def _wait_for_parent(self) -> None:
        # Not through sys.stdin: a thread that sits in its buffer would abort the interpreter's own end.
        while os.read(0, 4096):
            pass
        self._stop()

    def _stop(self) -> None:
        """End between two steps; without grace if that takes too long, as it would while loading."""
        threading.Thread(target=self._exit_after_grace, name="grace", daemon=True).start()
        loop = self._loop
        if loop is not None:
            self._inbox.put(Command(lambda core: loop.stop()))

    def _exit_after_grace(self) -> None:
        if self._loop is not None:
            time.sleep(EXIT_GRACE_SECONDS)
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
