"""An engine in this process to try a lesson on: the real model on the real clock, or a script in virtual time.

Contract. Both run the same core and scheduler, so at equal arrivals they take equal decisions: steps, tokens, slots and
blocks are the same on both, only the times differ. Requests are greedy and as long as they are asked to be. An engine's
time passes only while it steps, so that several can take turns and each has the times that it would have alone.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from engine import events
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.recording import Json, Recording
from engine.request import Request, SamplingParams
from engine.summary import Summary, summarize
from engine.timing import Clock, monotonic_clock

FLAGS: dict[str, Any] = {"num_blocks": 1024, "max_model_len": 2048}
"""What lessons have in common: a pool that is never short."""

_PROSE = "The wheels on the bus go round and round, round and round, all through the town. "


class Stopwatch:
    """A clock that runs inside `with`, and stands still outside."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._passed_us = 0
        self._since_us: int | None = None

    def __call__(self) -> int:
        return self._passed_us + (0 if self._since_us is None else self._clock() - self._since_us)

    def __enter__(self) -> None:
        self._since_us = self._clock()

    def __exit__(self, *error: object) -> None:
        self._passed_us, self._since_us = self(), None


class Lab:
    """One engine. Step it, submit to it, look at what it said."""

    def __init__(self, config: EngineConfig, core: EngineCore, clock: Stopwatch, sink: list[Any], facts: Json) -> None:
        self.config = config
        self.core = core
        self.requests: list[Request] = []
        self._clock = clock
        self._sink = sink
        core.emitter.emit(
            events.Hello,
            v=events.SCHEMA_VERSION,
            config=dataclasses.asdict(config),
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            clock_unix_us=0,
            redaction="own",
            hash_salt="fixed",
            **facts,
        )

    def submit(self, prompt: list[int], max_tokens: int) -> Request:
        request = Request(
            request_id=str(len(self.requests)),
            prompt_token_ids=prompt,
            sampling_params=SamplingParams(temperature=0.0, ignore_eos=True),
            max_tokens=max_tokens,
            seed=0,
            stop_token_ids=frozenset(),
            arrival_us=self._clock(),
        )
        refusal = self.core.add(request)
        assert refusal is None, refusal
        self.requests.append(request)
        return request

    def step(self) -> None:
        with self._clock:
            self.core.step()

    def step_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.step()

    def run(self) -> None:
        self.step_until(lambda: not self.core.has_work)

    @property
    def progress(self) -> float:
        """The share of all output tokens that is there."""
        return sum(r.num_output_tokens for r in self.requests) / sum(r.max_tokens for r in self.requests)

    def result(self) -> Run:
        hello, *rest = (dataclasses.asdict(event) for event in self._sink if not isinstance(event, events.Text))
        recording = Recording(hello, rest)
        return Run(
            self.config, recording, summarize(recording), [request.output_token_ids for request in self.requests]
        )


def take_turns(labs: Sequence[Lab]) -> None:
    """Run all to their ends, the one that is furthest behind next: a machine that slows down slows all of them."""
    while busy := [lab for lab in labs if lab.core.has_work]:
        min(busy, key=lambda lab: lab.progress).step()


@dataclass(frozen=True, slots=True)
class Run:
    """One side of a lesson, after it."""

    config: EngineConfig  # resolved
    recording: Recording
    summary: Summary
    answers: list[list[int]]

    def ttft_us(self, request: int) -> int:
        ended = (e for e in self.recording.events if e["kind"] == "request" and e["event"] == "finished")
        return next(int(e["timings"]["ttft_us"]) for e in ended if e["request"] == str(request))

    def deliveries_us(self, request: int) -> list[int]:
        """When the tokens of this request came."""
        return [
            step["accepted_us"]
            for step in self.recording.steps()
            if any(row["request"] == str(request) and row["out"] for row in step["rows"])
        ]


class Machine(Protocol):
    """Where lessons run."""

    times: str  # "measured" | "CPU time" | "simulated"
    vocab_size: int

    def lab(self, **flags: Any) -> Lab:
        """A fresh engine with FLAGS and these."""

    def repetitive_prompt(self) -> list[int]:
        """One that begs to be continued as it began."""


def random_prompt(machine: Machine, rng: random.Random, length: int) -> list[int]:
    """What it says does not change how long it takes."""
    return [rng.randrange(3, machine.vocab_size) for _ in range(length)]


class VirtualMachine:
    """Scripted tokens, and a clock that the built-in cost model moves."""

    times = "simulated"
    vocab_size = 30_000

    def lab(self, **flags: Any) -> Lab:
        from engine.cost_model import BUILTIN_MODEL
        from engine.scripted import byte_tokenizer, scripted_facts
        from engine.virtual_time import SimulatedRunner, VirtualClock

        facts = scripted_facts(EngineConfig(model="scripted", **{**FLAGS, **flags}))
        virtual, sink, tokenizer = VirtualClock(), list[Any](), byte_tokenizer()
        clock = Stopwatch(virtual)
        core = EngineCore(
            facts.config,
            SimulatedRunner(_repeat_the_prompt, BUILTIN_MODEL, virtual.advance),
            Emitter("lab", "epoch", clock, sink),
            clock,
            lambda request: Detokenizer(tokenizer, []),
        )
        said = {"model": facts.model, "device": facts.device, "memory": facts.memory, "simulated": True}
        return Lab(facts.config, core, clock, sink, said)

    def repetitive_prompt(self) -> list[int]:
        return list(range(100, 120)) * 8


def _repeat_the_prompt(request: Request, index: int) -> int:
    return request.prompt_token_ids[index % request.num_prompt_tokens]


def cpu_time() -> int:
    """Microseconds that the cores have worked for this process: what others on the machine do hardly shows in it."""
    return time.process_time_ns() // 1000


class RealMachine:
    """The default model, loaded once. Its times are the wall clock's, or those of the cores."""

    def __init__(self, *, in_cpu_time: bool = False) -> None:
        self.times = "CPU time" if in_cpu_time else "measured"
        self._clock = cpu_time if in_cpu_time else monotonic_clock()
        from engine.threads import wait_politely

        wait_politely()  # as the engine process does, before torch is loaded

        from engine.loader import load

        self._loaded = load(EngineConfig(device="cpu"), lambda *report: None)
        self.vocab_size = self._loaded.facts.vocab_size

    def lab(self, **flags: Any) -> Lab:
        from engine import roofline
        from engine.device import device_facts
        from engine.kv_cache import size_pool
        from engine.model_runner import ModelRunner

        loaded = self._loaded
        config, memory = size_pool(EngineConfig(**{**FLAGS, **flags}), loaded)
        runner = ModelRunner(loaded, config)
        runner.warm_up(lambda *report: None)
        clock, sink = Stopwatch(self._clock), list[Any]()
        core = EngineCore(
            config,
            runner,
            Emitter("lab", "epoch", clock, sink),
            clock,
            lambda request: Detokenizer(loaded.tokenizer, request.prompt_token_ids),
            cost=partial(roofline.total_cost, loaded.facts, None, memory),
        )
        facts = device_facts(runner.device, loaded.model.embed_tokens.dtype)
        said = {"model": loaded.facts, "device": facts, "memory": memory}
        return Lab(config, core, clock, sink, said)

    def repetitive_prompt(self) -> list[int]:
        ids: list[int] = self._loaded.tokenizer.encode(_PROSE * 6).ids
        return ids
