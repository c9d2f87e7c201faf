"""A recording: read, written, and turned into the arrivals that a simulation replays. No torch.

Contract. A recording is events as JSON, one per line, gzip, `hello` first (INTERFACES). Of several epochs the last one
with a step is read. A recording holds no text; what sharing there was is in its block hashes. So a replayed request
gets made-up tokens, a block at a time: equal hashes give equal tokens, all others are unique. The hashes of blocks that
an answer filled are known from the steps, so a next turn of a conversation finds the answer before it again.
With blocks smaller than recorded, beginnings that differ within a recorded block share nothing of it.
Guesses and turned knobs are read too; those from before the recording began are known only by what they led to.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import LoadError
from engine.knobs import KNOBS

Json = dict[str, Any]

END_TOKEN = -3  # ends a replayed answer where the recorded one ended before its limit; -1 is TO_BE_DRAFTED
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Recording:
    """One epoch: its `hello`, and its events in order, `key` ones included."""

    hello: Json
    events: list[Json]

    def steps(self) -> list[Json]:
        return [event for event in self.events if event["kind"] == "step"]


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


# -- what is replayed --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guesses:
    """What speculation guessed in one step of one request."""

    num_drafted: int
    num_accepted: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Knobs that were turned while the engine ran."""

    at_us: int
    changes: Json  # field -> value


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a recording, and how long its answer was."""

    facts: Json  # an `arrived` event's, or a key's
    token_ids: list[int]  # made up: prompt, then answer
    num_output_tokens: int
    by_length: bool  # it ended at its max_tokens
    guesses: dict[int, Guesses]  # by how many tokens its answer had

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.facts["num_prompt_tokens"]]

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.facts["num_prompt_tokens"] :]


@dataclass(frozen=True, slots=True)
class Workload:
    """What a recording lets us replay."""

    arrivals: list[Arrival]  # by time
    num_left_out: int  # arrived, but never got a token: how long their answers would have been is not known
    num_unfinished: int  # had not ended when the recording did: they are taken to end there
    turns: list[Turn]  # by time


def workload(recording: Recording) -> Workload:
    """The requests of a recording, those that were alive when it began included."""
    seen = _Seen(recording.hello["config"])
    for event in recording.events:
        seen.take(event)
    block_size = recording.hello["block_size"]
    answered = [request for request, count in seen.num_output.items() if count]
    arrivals = [seen.arrival(request, block_size) for request in answered]
    return Workload(
        arrivals=sorted(arrivals, key=lambda arrival: arrival.facts["arrival_us"]),
        num_left_out=len(seen.facts) - len(answered),
        num_unfinished=sum(request not in seen.ended for request in answered),
        turns=seen.turns,
    )


class _Seen:
    """What the events so far say: of the knobs, and of each request its facts, blocks with hashes, and length."""

    def __init__(self, config: Json) -> None:
        self.turns: list[Turn] = []
        self.facts: dict[str, Json] = {}
        self.num_output: dict[str, int] = {}
        self.ended: dict[str, str] = {}  # request -> reason
        self._config = config  # when the engine started
        self._most_tokens = int(config["max_model_len"])
        self._guesses: dict[str, dict[int, Guesses]] = {}
        self._tables: dict[str, list[int]] = {}
        self._hashes: dict[str, dict[int, str]] = {}  # request -> index of a block -> its hash
        self._holder: dict[int, tuple[str, int]] = {}  # block -> the last request to get it, and where in its table
        self._begun = False

    def take(self, event: Json) -> None:
        match event["kind"]:
            case "key" if not self._begun:
                self._key(event["state"])
            case "step":
                self._step(event)
            case "request":
                self._request(event)
            case "config":
                self.turns.append(Turn(int(event["t"]), dict(event["changed"])))
        self._begun = self._begun or event["kind"] == "key"

    def _key(self, state: Json) -> None:
        now = state.get("config", {})
        changes = {name: now[name] for name in KNOBS if name in now and now[name] != self._config.get(name)}
        if changes:  # turned before the recording began, nobody knows when
            self.turns.append(Turn(0, changes))
        for request, facts in state["requests"].items():
            if facts["status"] == "finished":
                continue
            self._start(request, {**facts, "request": request}, [])
            self.num_output[request] = facts["num_output_tokens"]
            self._append(request, facts["block_table"])
            for index, block in enumerate(facts["block_table"]):
                if state["blocks"]["hashes"][block] is not None:
                    self._hashes[request][index] = state["blocks"]["hashes"][block]

    def _start(self, request: str, facts: Json, hashes: Sequence[str]) -> None:
        self.facts[request] = facts
        self.num_output[request] = 0
        self._guesses[request] = {}
        self._tables[request] = []
        self._hashes[request] = dict(enumerate(hashes))

    def _append(self, request: str, blocks: Iterable[int]) -> None:
        table = self._tables[request]
        for block in blocks:
            self._holder[block] = (request, len(table))
            table.append(block)

    def _step(self, step: Json) -> None:
        for request, blocks in step["tables"]:
            if request in self.facts:
                self._append(request, blocks)
        for block, block_hash in step["hashed"]:
            if block in self._holder:
                request, index = self._holder[block]
                self._hashes[request][index] = block_hash
        for row in step["rows"]:
            request = row["request"]
            if request in self.facts:
                if row["drafted"]:
                    self._guesses[request][self.num_output[request]] = Guesses(row["drafted"], row["accepted"])
                self.num_output[request] += row["out"]

    def _request(self, event: Json) -> None:
        request = event["request"]
        if event["event"] == "arrived":
            self._start(request, event, event["block_hashes"])
        elif event["event"] == "preempted" and request in self.facts:
            self._tables[request].clear()
        elif event["event"] == "finished" and request in self.facts:
            self._tables[request].clear()
            self.num_output[request] = event["num_output_tokens"]
            self.ended[request] = event["reason"]

    def arrival(self, request: str, block_size: int) -> Arrival:
        facts, count = self.facts[request], self.num_output[request]
        _check_facts(facts)
        by_length = self.ended.get(request) == "length" and count >= facts["max_tokens"]
        if not (facts["num_prompt_tokens"] > 0 and 0 < facts["num_prompt_tokens"] + count <= self._most_tokens):
            raise ValueError(f"{request} has more tokens than the engine took, or none")
        token_ids = _made_up(request, self._hashes[request], facts["num_prompt_tokens"] + count, block_size)
        if not by_length:
            token_ids[-1] = END_TOKEN
        return Arrival(facts, token_ids, count, by_length, self._guesses[request])


def _check_facts(facts: Json) -> None:
    """What a replay asks for is there. Raises KeyError or TypeError."""
    for name in ("owner", "label", "parent", "request_class"):
        facts[name]
    for name in ("arrival_us", "num_prompt_tokens", "max_tokens", "priority"):
        if not isinstance(facts[name], int):
            raise TypeError(name)
    for name in ("temperature", "top_k", "top_p", "seed", "ignore_eos"):
        facts["sampling"][name]
    tuple(facts["sampling"]["stop_token_ids"])


def _made_up(request: str, hashes: Mapping[int, str], count: int, block_size: int) -> list[int]:
    """Tokens that are equal where the hashes are; all others are this request's own."""
    tokens: list[int] = []
    for index in range(-(-count // block_size)):
        name = hashes.get(index) or f"{request}/{index}"
        first = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest())
        tokens.extend(range(first, first + block_size))
    return tokens[:count]
