"""The arrivals of a recording, as a simulation replays them. No torch.

Contract. A recording holds no text; what sharing there was is in its block hashes. So a replayed request gets made-up
tokens, a block at a time: equal hashes give equal tokens, all others are unique. The hashes of blocks that an answer
filled are known from the steps, so a next turn of a conversation finds the answer before it again.
With blocks smaller than recorded, beginnings that differ within a recorded block share nothing of it.
Guesses and turned knobs are read too; those from before the recording began are known only by what they led to.
A recording may hold several runs: one begins with the request that finds nobody there. Of what an earlier run left in
the prefix cache, a replay begins with what its own prompts begin with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import ConfigError
from engine.knobs import KNOBS
from engine.recording import Json, Recording

END_TOKEN = -3  # ends a replayed answer where the recorded one ended before its limit; -1 is TO_BE_DRAFTED


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
    cached: list[list[int]]  # beginnings of prompts that the prefix cache held already, in whole blocks
    start: int  # index of the first event that is replayed
    num_missing_steps: int = 0  # in a hole of the recording: what came of them is known from the key behind it


def workload(recording: Recording, *, last_run: bool = False) -> Workload:
    """The requests of a recording, those that were alive when it began included; or those of its last run, whose
    settings are those of `recording.since(workload.start)`.

    Raises ConfigError if the recording does not reach back to where its last run began.
    """
    seen = _Seen(recording.hello["config"], by_run=last_run)
    for index, event in enumerate(recording.events):
        seen.take(event, index)
    if last_run and seen.joined_late:
        raise ConfigError("The recording does not reach back to the first arrival of its last run.")
    block_size = recording.hello["block_size"]
    answered = [request for request, count in seen.num_output.items() if count]
    arrivals = [seen.arrival(request, block_size) for request in answered]
    return Workload(
        arrivals=sorted(arrivals, key=lambda arrival: arrival.facts["arrival_us"]),
        num_left_out=len(seen.facts) - len(answered),
        num_unfinished=sum(request not in seen.ended for request in answered),
        turns=seen.turns,
        cached=[tokens for arrival in arrivals if (tokens := seen.cached_tokens(arrival, block_size))],
        start=seen.start,
        num_missing_steps=seen.num_missing_steps,
    )


class _Seen:
    """What the events so far say: of the knobs, and of each request its facts, blocks with hashes, and length.

    `by_run`: it starts anew with each run, knowing what the prefix cache holds by then.
    """

    def __init__(self, config: Json, *, by_run: bool) -> None:
        self.turns: list[Turn] = []
        self.facts: dict[str, Json] = {}
        self.num_output: dict[str, int] = {}
        self.ended: dict[str, str] = {}  # request -> reason
        self.start = 0
        self.joined_late = False  # somebody was there already when the events began
        self._by_run = by_run
        self._config = config  # when the engine started
        self._cached: dict[int, str] = {}  # block -> its hash
        self._cached_before: frozenset[str] = frozenset()  # hashes that were there at the start
        self._most_tokens = int(config["max_model_len"])
        self._guesses: dict[str, dict[int, Guesses]] = {}
        self._tables: dict[str, list[int]] = {}
        self._hashes: dict[str, dict[int, str]] = {}  # request -> index of a block -> its hash
        self._holder: dict[int, tuple[str, int]] = {}  # block -> the last request to get it, and where in its table
        self._begun = False
        self._hole = False  # events were lost, and no key has come since
        self._last_step: int | None = None
        self.num_missing_steps = 0

    def take(self, event: Json, index: int) -> None:
        match event["kind"]:
            case "key" if not self._begun:
                self._key(event["state"])
            case "key" if self._hole:
                self._catch_up(event["state"], int(event["t"]))
            case "gap":
                self._hole = True
            case "step":
                self._step(event)
            case "request":
                if self._by_run and event["event"] == "arrived" and self.facts.keys() <= self.ended.keys():
                    self._start_anew(index)
                self._request(event)
            case "config":
                self.turns.append(Turn(int(event["t"]), dict(event["changed"])))
            case "cache_reset" | "reset":
                self._cached.clear()
        self._begun = self._begun or event["kind"] == "key"

    def _start_anew(self, index: int) -> None:
        """Nobody is there, and somebody comes: a run begins."""
        self.facts.clear()
        self.num_output.clear()
        self.ended.clear()
        self.turns.clear()
        self.num_missing_steps = 0
        self.start, self.joined_late = index, False
        self._cached_before = frozenset(self._cached.values())

    def _key(self, state: Json) -> None:
        now = state.get("config", {})
        changes = {name: now[name] for name in KNOBS if name in now and now[name] != self._config.get(name)}
        if changes:  # turned before the recording began, nobody knows when
            self.turns.append(Turn(0, changes))
        blocks = state["blocks"]
        self._cached = {block: name for block, name in enumerate(blocks["hashes"]) if name is not None}
        self._cached_before = frozenset(name for block, name in self._cached.items() if blocks["refs"][block] == 0)
        for request, facts in state["requests"].items():
            if facts["status"] == "finished":
                continue
            self.joined_late = True
            self._start(request, {**facts, "request": request}, [])
            self.num_output[request] = facts["num_output_tokens"]
            self._append(request, facts["block_table"])
            for index, block in enumerate(facts["block_table"]):
                if block in self._cached:
                    self._hashes[request][index] = self._cached[block]

    def _catch_up(self, state: Json, at_us: int) -> None:
        """Behind a hole: who came meanwhile, how far everybody is by now, which knobs were turned."""
        self._hole = False
        known, now = dict(self._config), state.get("config", {})
        for turn in self.turns:
            known.update(turn.changes)
        changes = {name: now[name] for name in KNOBS if name in now and now[name] != known.get(name)}
        if changes:
            self.turns.append(Turn(at_us, changes))
        self._cached = {block: name for block, name in enumerate(state["blocks"]["hashes"]) if name is not None}
        for request, facts in state["requests"].items():
            if request not in self.facts:
                self._start(request, {**facts, "request": request}, [])
            self.num_output[request] = facts["num_output_tokens"]
            self._tables[request].clear()
            self._append(request, facts["block_table"])
            for index, block in enumerate(facts["block_table"]):
                if block in self._cached:
                    self._hashes[request][index] = self._cached[block]
            if facts["status"] == "finished":
                self.ended[request] = facts["finish_reason"]

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
        if self._last_step is not None:
            self.num_missing_steps += max(0, step["step"] - self._last_step - 1)
        self._last_step = step["step"]
        for block in step["evicted"]:
            self._cached.pop(block, None)
        self._cached.update(step["hashed"])
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

    def cached_tokens(self, arrival: Arrival, block_size: int) -> list[int]:
        """What of a prompt was in the cache when the first event came."""
        hashes, count = self._hashes[arrival.facts["request"]], 0
        while hashes.get(count) in self._cached_before:
            count += 1
        return arrival.prompt_token_ids[: count * block_size]


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
