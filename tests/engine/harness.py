"""A whole engine for tests: scripted tokens, a clock that moves when it is told, and the events in a list."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec

from app.state import State, fold
from engine import events
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.gate_action import GateAction
from engine.request import Request, SamplingParams
from engine.runner import SchedulerOutput
from engine.scripted import EOS, Script, ScriptedRunner, byte_tokenizer, scripted_facts
from engine.virtual_time import VirtualClock

FakeClock = VirtualClock  # time passes only when a test says so
TOKENIZER = byte_tokenizer()


class RecordingRunner(ScriptedRunner):
    """A scripted runner that keeps what it was given."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.outputs: list[SchedulerOutput] = []

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        self.outputs.append(batch)
        return batch


def letters(request: Request, index: int) -> int:
    """A script that depends on the prompt and the index, and never stops by itself."""
    return ord("a") + (sum(request.prompt_token_ids) + 7 * index) % 26


class Harness:
    """An EngineCore with a scripted runner. `config` takes EngineConfig's fields."""

    def __init__(self, script: Script = letters, **config: Any) -> None:
        defaults: dict[str, Any] = {"num_blocks": 32, "max_model_len": 512, "max_num_seqs": 4}
        self.config = scripted_facts(EngineConfig(model="scripted", **(defaults | config))).config
        self.clock = FakeClock()
        self.sink: list[events.Event | events.Text] = []
        self.runner = RecordingRunner(script)
        emitter = Emitter("main", "epoch", self.clock, self.sink)
        self.core = EngineCore(self.config, self.runner, emitter, self.clock, make_detokenizer)
        facts = scripted_facts(self.config)
        emitter.emit(
            events.Hello,
            v=events.SCHEMA_VERSION,
            config=dataclasses.asdict(self.config),
            model=facts.model,
            device=facts.device,
            memory=facts.memory,
            num_blocks=self.config.num_blocks,
            block_size=self.config.block_size,
            clock_unix_us=0,
            redaction="own",
            hash_salt="fixed",
        )
        self.core.reporter.key()
        self._ids = (f"r{i}" for i in itertools.count(1))
        self._folded: State | None = None
        self._num_folded = 0

    @property
    def scheduler(self):
        return self.core.scheduler

    def request(self, prompt: str | list[int], max_tokens: int = 8, **params: Any) -> Request:
        """A request that is not yet added."""
        ids = list(prompt.encode()) if isinstance(prompt, str) else prompt
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, **params)
        stops = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else {EOS})
        return Request(
            request_id=next(self._ids),
            prompt_token_ids=ids,
            sampling_params=sampling,
            max_tokens=max_tokens,
            seed=0,
            stop_token_ids=stops,
            arrival_us=self.clock(),
        )

    def add(self, prompt: str | list[int], max_tokens: int = 8, **params: Any) -> Request:
        request = self.request(prompt, max_tokens, **params)
        self.core.add(request)
        return request

    def step(self, us: int = 0) -> None:
        self.clock.advance(us)
        self.core.step()

    def gate(self, action: Any, **values: Any) -> None:
        """Move the gate: pause, run, step (steps=), rate (per_second=) or break (breakpoints=)."""
        self.core.move_gate(GateAction(action, **values))

    def run(self, limit: int = 10_000) -> int:
        """Step until nothing is left to do; returns the number of steps."""
        for count in range(limit):
            if not self.core.has_work:
                return count
            self.core.step()
        raise AssertionError(f"still busy after {limit} steps")

    def of(self, kind: type) -> list[Any]:
        """The events of one type so far."""
        return [event for event in self.sink if isinstance(event, kind)]

    def text(self, request: Request) -> str:
        """The answer as a reader of the text messages has it; offsets are checked."""
        text = ""
        for delta in self.of(events.Text):
            if delta.request == request.request_id:
                assert delta.offset == len(text)
                text += delta.text
        return text

    def state(self) -> State:
        """The engine's own state, as it would be on the wire."""
        state: State = to_json(self.core.reporter.state())
        return state

    def folded(self) -> State:
        """What a reader of the events so far has."""
        for event in self.sink[self._num_folded :]:
            if not isinstance(event, events.Text) and not (isinstance(event, events.Key) and self._folded):
                self._folded = fold(self._folded, to_json(event))
        self._num_folded = len(self.sink)
        assert self._folded is not None
        return self._folded

    def check(self) -> None:
        """Every invariant: of the scheduler, of the pool, of the events."""
        assert self.scheduler.problems() == []
        assert self.folded() == self.state()


def make_detokenizer(request: Request) -> Detokenizer:
    return Detokenizer(TOKENIZER, request.prompt_token_ids, request.sampling_params.stop)


def to_json(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def scripted(tokens: list[int]) -> Callable[[Request, int], int]:
    """A script that gives these tokens, then ends."""
    return lambda request, index: tokens[index] if index < len(tokens) else EOS
