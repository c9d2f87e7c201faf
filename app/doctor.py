"""`stepscope doctor`: what was found, what will be used, and why. Prints one line per finding."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

from app.engines import import_path
from app.server import PortTaken, bind
from engine.config import EngineConfig
from engine.errors import StepscopeError
from engine.model_source import check_models, find_source

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROBE_TIMEOUT_S = 120

# In a process of its own: the app imports no torch.
_PROBE = """
import json, sys
from engine.config import EngineConfig
from engine.device import findings
eager = sys.argv[3] == "True"
print(json.dumps(findings(EngineConfig(device=sys.argv[1], dtype=sys.argv[2], enforce_eager=eager))))
"""

Say = Callable[[str], None]


def examine(config: EngineConfig, port: int, say: Say) -> bool:
    """Whether `serve` can be expected to work with this config and port."""
    say(f"stepscope {_version()} on Python {platform.python_version()}, {platform.platform()}")
    findings = [_device(config, say), _model(config, say), _port(port, say)]
    _browser(say)
    return all(findings)


def _version() -> str:
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _device(config: EngineConfig, say: Say) -> bool:
    try:
        probe = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE, config.device, config.dtype, str(config.enforce_eager)],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )
        found = json.loads(probe.stdout.splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        say("device   torch cannot be imported; install the project again (make run does)")
        return False
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    say(f"device   {cores} cores, {found['threads']} threads for torch {found['torch']}")
    if found["used"] is None:
        say(f"         {found['why']}")
        return False
    say(f"         used: {found['used']}, dtype {found['dtype']} ({found['why']})")
    no_graphs = found["no_graphs"]
    say("         CUDA graphs: " + ("decode steps are replayed" if no_graphs is None else f"off, {no_graphs}"))
    return True


def _model(config: EngineConfig, say: Say) -> bool:
    try:
        source = find_source(config)
        check_models(config)  # the draft model and the cost model too, as serve does
    except StepscopeError as error:
        say(f"model    {error}")
        return False
    if config.scripted:
        say("model    scripted: no weights, nothing to fetch")
        return True
    where = source.path or "to be fetched at the first start"
    say(f"model    {source.name} ({source.kind.value}): {where}")
    return True


def _port(port: int, say: Say) -> bool:
    try:
        bind("127.0.0.1", port).close()
    except PortTaken as taken:
        say(f"port     {taken}")
        return False
    say(f"port     {port} on 127.0.0.1 is free")
    return True


def _browser(say: Say) -> None:
    """Only the browser tests need one here; any browser shows the page."""
    named = os.environ.get("CHROMIUM")
    found = named or next((path for name in BROWSERS if (path := shutil.which(name))), None)
    say(f"browser  {found or 'none found for the browser tests; the page itself needs any modern browser'}")
