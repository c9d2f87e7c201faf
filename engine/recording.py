"""A recording: read, cut, and written. No torch.

Contract. A recording is events as JSON, one per line, gzip, `hello` first (INTERFACES). Of several epochs the last one
with a step is read. What a simulation makes of it is engine/workload.py.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import LoadError

Json = dict[str, Any]

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Recording:
    """One epoch: its `hello`, and its events in order, `key` ones included."""

    hello: Json
    events: list[Json]

    def steps(self) -> list[Json]:
        return [event for event in self.events if event["kind"] == "step"]

    def since(self, index: int) -> Recording:
        """The events from this one on; `hello` with the settings as they were by then."""
        config = dict(self.hello["config"])
        for event in self.events[:index]:
            config.update(_settings(event))
        return Recording({**self.hello, "config": config}, self.events[index:])


def _settings(event: Json) -> Json:
    """What an event says of the settings that it finds or makes."""
    match event["kind"]:
        case "key":
            settings: Json = event["state"].get("config", {})
            return settings
        case "config":
            return dict(event["changed"])
    return {}


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Turn what a foreign or damaged recording makes of us into one sentence: its events are JSON, and no more."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = (
            f"a field {error.args[0]} is missing" if isinstance(error, KeyError) else "a field is not what it must be"
        )
        raise LoadError(
            f"{name} cannot be understood: {what} in one of its events. Is it damaged, or of another version?"
        ) from error


def read_recording(path: Path) -> Recording:
    """Raises LoadError with one sentence. A file that was cut off is read as far as it goes."""
    lines = _read_lines(path)
    with understood(str(path)):
        return split_epochs(lines, str(path))


def split_epochs(events: Iterable[Json], name: str = "This recording") -> Recording:
    """The last epoch with a step, or else the last one. Raises LoadError if there is none."""
    epochs: dict[tuple[str, str], Recording] = {}
    for event in events:
        epoch = (event.get("engine", ""), event.get("epoch", ""))
        if event["kind"] == "hello":
            epochs.setdefault(epoch, Recording(event, []))
        elif epoch in epochs:
            epochs[epoch].events.append(event)
    if not epochs:
        raise LoadError(f"{name} is no recording: it holds no hello event.")
    found = list(epochs.values())
    return next((recording for recording in reversed(found) if recording.steps()), found[-1])


def _read_lines(path: Path) -> list[Json]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise LoadError(f"{path} cannot be read: {error.strerror}.") from None
    text = _unzip(raw) if raw.startswith(_GZIP) else raw
    lines = text.split(b"\n")
    found: list[Json] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            found.append(event)
        elif number < len(lines):
            raise LoadError(f"{path} is no recording: its line {number} is no event.")
    return found


def _unzip(raw: bytes) -> bytes:
    """As much as is whole."""
    text = b""
    while raw.startswith(_GZIP):
        unzip = zlib.decompressobj(wbits=31)
        try:
            text += unzip.decompress(raw)
        except zlib.error:
            break
        raw = unzip.unused_data
    return text


def write_recording(path: Path, events: Iterable[Json]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=5) as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
