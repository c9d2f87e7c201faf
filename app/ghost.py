"""/api/ghost: what another mode would have made of an engine's last run.

Contract. A run begins with the request that finds nobody there. The simulator (engine/simulator.py) replays the
ring's last one in a process of its own: one at a time, behind everybody else, not for long, and only while somebody
waits for it. What comes back is a recording without text whose `hello` says `simulated`, and in `replayed` what it
was computed from: `requests`, of which `cut` were still running when the ghost was asked for, and are taken to end with
the tokens that they had; `left_out` had no token yet, so that nobody knows how long their answers would have been.
`?until=SEQ` leaves out what the engine said after that event, in its newest epoch: two ghosts of one run that goes on
are then of the same. What the ring holds when it is asked counts, however long the wait in line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

import engine
from app.api import engine_of, whole_number
from app.bodies import parse_json
from app.completions import hung_up, stop
from app.crash import safe_name
from app.history import compress
from app.hub import Hub
from app.problems import Problem
from app.wire import Json
from engine.config import EngineConfig
from engine.errors import ConfigError, brief
from engine.flags import setting_to_arg
from engine.knobs import FIELDS, KNOBS, changed
from engine.request import MAX_INTEGER

LIMIT_S = 30.0
MOST_IN_LINE = 4
SETTINGS = frozenset(KNOBS) | {"num_blocks", "block_size", "speculative"}
"""Those that mean something to a simulation."""

_REFUSED_EXIT = 2
_NICENESS = 10
_IN, _OUT = "The last run", "The simulation"  # files, named as the simulator's sentences about them begin


class Line:
    """One simulation at a time; few may wait for theirs."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._length = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._length >= MOST_IN_LINE:
            raise Problem(429, f"{self._length} simulations run or wait already; try again later.", code="busy")
        self._length += 1
        try:
            async with self._lock:
                yield
        finally:
            self._length -= 1


async def ghost(request: Request) -> Response:
    """POST /api/ghost {setting: value, …}: the last run under these settings, simulated, as a `.jsonl.gz`."""
    hub, record = engine_of(request)
    asked = parse_json(await request.body())
    if not record.history or record.state is None:
        raise Problem(409, "There is nothing to simulate yet: the engine has not loaded.")
    settings = checked(asked, record.state["config"])
    until = whole_number(request, "until", MAX_INTEGER)
    lines = record.history.lines()
    data = await _while_wanted(request, hub, _in_turn(request.state.ghosts, lines, settings, until))
    name = safe_name(f"stepscope-{record.id}-{record.epoch}-ghost.jsonl.gz")
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/gzip", headers=headers)


def checked(asked: Json, config: Json) -> Json:
    """The settings, with what they bring along. Raises Problem naming the one that cannot be so."""
    settings = dict(asked)
    if settings.get("enable_chunked_prefill") is False:  # a whole prompt must fit one step
        settings.setdefault("max_num_batched_tokens", max(config["max_num_batched_tokens"], config["max_model_len"]))
    for name, value in settings.items():
        if name not in SETTINGS:
            raise Problem(
                400, f"{brief(name)} cannot be given here; {', '.join(sorted(SETTINGS))} can.", param=name[:60]
            )
        if value is None:
            raise Problem(400, f"{name} is null; give a value, or leave it out.", param=name)
    try:
        changed(EngineConfig(**{name: value for name, value in config.items() if name in FIELDS}), settings)
    except ConfigError as error:
        raise Problem(400, str(error), param=next(iter(asked)) if len(asked) == 1 else None) from None
    return settings


async def _while_wanted(request: Request, hub: Hub, work: Coroutine[Any, Any, bytes]) -> bytes:
    """What the work comes to. It ends with its client, and with the app."""
    working = asyncio.ensure_future(work)
    left = asyncio.ensure_future(hung_up(request.receive))
    closing = asyncio.ensure_future(hub.close_begun.wait())
    try:
        await asyncio.wait({working, left, closing}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if hub.closing:
            raise Problem(503, "Stepscope is shutting down.")
        raise ClientDisconnect
    finally:
        await stop(working, left, closing)


def said_until(lines: list[str], seq: int) -> list[str]:
    """A recording without what came after an event of its newest epoch, for each epoch has numbers of its own.

    Lines of text have no number and go with what is before them.
    """
    end = len(lines)
    newest = None
    for index in range(len(lines) - 1, -1, -1):
        event = json.loads(lines[index])
        if event["kind"] == "text":
            continue
        newest = newest or event["epoch"]
        if event["seq"] <= seq or event["epoch"] != newest:
            break
        end = index
    return lines[:end]


async def _in_turn(line: Line, lines: list[str], settings: Json, until: int) -> bytes:
    async with line.turn():
        return await _simulate(lines, settings, until)


async def _simulate(lines: list[str], settings: Json, until: int) -> bytes:
    flags = [setting_to_arg(name, value) for name, value in settings.items()]
    with tempfile.TemporaryDirectory(prefix="stepscope-ghost-") as folder:
        await asyncio.to_thread(lambda: Path(folder, _IN).write_bytes(compress(said_until(lines, until))))
        code, said = await _run(folder, [_IN, "--last-run", "--with-slow-steps", f"--out={_OUT}", *flags])
        if code == _REFUSED_EXIT:
            raise Problem(409, said or "The simulation could not be made.")
        if code != 0:
            raise Problem(500, f"The simulation failed with exit code {code}.")
        return await asyncio.to_thread(Path(folder, _OUT).read_bytes)


async def _run(folder: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Run the simulator there; returns its exit code and its last words. Raises Problem if it takes too long."""
    home = str(Path(engine.__file__).resolve().parent.parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "engine.simulator", *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    try:
        async with asyncio.timeout(LIMIT_S):
            _, words = await process.communicate()
    except TimeoutError:
        message = f"The simulation was ended after {LIMIT_S:g} s: the last run is too long for it. Send a shorter one."
        raise Problem(409, message) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return process.returncode or 0, words.decode(errors="replace").strip().rpartition("\n")[2]
