"""A simulation: the engine's own core and scheduler replay a recording's arrivals in virtual time. No torch.

Contract. Arrivals are fixed: requests come when they came, whatever the engine makes of them, and each answer is as
long as it was. Nothing is computed and nothing sleeps, so a replay takes a fraction of the time that it describes; the
same input gives the same events. Their `hello` says `simulated`.

What else was done to the recorded engine is done again: knobs are turned when they were, but for those that are held.
Where an answer was as long as it is now, the guesses are as many and as right as they were; where nothing was guessed
(a restart after a preemption moves those places), nothing is. What another number of guesses would have met is in no
recording, so speculation can only be left as it was, or left out. The gate and resets of the prefix cache are not
replayed. Of steps that the recording lost, only what came of them is known; `hello` says how many they were.
What the prefix cache held is there at the start, as far as the requests' own prompts begin with it.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from engine import events, roofline
from engine.config import EngineConfig
from engine.core import EngineCore, no_cost
from engine.cost_model import CostModel
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.errors import ConfigError
from engine.recording import Recording
from engine.reporter import StepCost
from engine.request import Request, SamplingParams
from engine.virtual_time import SimulatedRunner, VirtualClock
from engine.workload import END_TOKEN, Arrival, Guesses, Turn, Workload

EVENTS_PER_KEY = 256
WRONG_GUESS = -2  # is no token of any answer
NO_SPECULATION = "none"


class _Mute:
    """A decoder for tokens that are made up: they say nothing."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return ""


class EventList:
    """Keeps events as JSON objects, and drops text."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def append(self, event: events.Event | events.Text, /) -> None:
        if not isinstance(event, events.Text):
            self.events.append(dataclasses.asdict(event))


def simulate(
    work: Workload,
    config: EngineConfig,
    cost: CostModel,
    original: Mapping[str, Any],
    held: Collection[str] = (),
) -> Recording:
    """Replay `work` under `config` (resolved); `original` is the `hello` of the engine that is simulated.

    Knobs that are `held` stay as `config` has them, though they were turned. Raises ConfigError if one of the
    others cannot be turned beside them.
    """
    return _Simulation(work, config, cost, original, held).run()


class _Simulation:
    def __init__(
        self,
        work: Workload,
        config: EngineConfig,
        cost: CostModel,
        original: Mapping[str, Any],
        held: Collection[str],
    ) -> None:
        self._arrivals = deque(work.arrivals)
        self._turns = deque(_not_held(work.turns, held))
        self._answers = {arrival.facts["request"]: arrival.output_token_ids for arrival in work.arrivals}
        self._guesses = {arrival.facts["request"]: arrival.guesses for arrival in work.arrivals}
        self._clock = VirtualClock()
        self._sink = EventList()
        self._last_key = 0
        self._core = EngineCore(
            config,
            SimulatedRunner(self._script, cost, self._clock.advance),
            Emitter(original["engine"], f"{original['epoch']}-simulated", self._clock, self._sink),
            self._clock,
            lambda request: Detokenizer(_Mute(), []),
            cost=_step_cost(original),
        )
        if config.speculative != NO_SPECULATION:
            self._core.scheduler.propose = self._propose
        if config.enable_prefix_caching:
            for prefix in work.cached:
                self._core.scheduler.kv.prefill_cache(prefix)
        self._core.emitter.emit(events.Hello, **_hello(config, original, work.num_missing_steps))
        self._core.reporter.key()

    def run(self) -> Recording:
        core, clock = self._core, self._clock
        while self._arrivals or core.has_work:
            while self._turns and self._turns[0].at_us <= clock.now_us:
                self._turn(self._turns.popleft())
            while self._arrivals and self._arrivals[0].facts["arrival_us"] <= clock.now_us:
                self._arrive(self._arrivals.popleft())
            if core.has_work:
                core.step()
            elif self._arrivals:
                core.timer.idle()
                clock.now_us = max(clock.now_us, self._next_us())
            if len(self._sink.events) - self._last_key >= EVENTS_PER_KEY:
                core.reporter.key()
                self._last_key = len(self._sink.events)
        hello, *rest = self._sink.events
        return Recording(hello, rest)

    def _script(self, request: Request, index: int) -> int:
        answer = self._answers[request.request_id]
        return answer[index] if index < len(answer) else END_TOKEN  # asked for behind an accepted guess that ends it

    def _propose(self, request: Request) -> list[int]:
        """As many guesses, and as many of them right, as when the recorded answer was this long."""
        length = request.num_output_tokens
        guesses = self._guesses[request.request_id].get(length, Guesses(0, 0))
        right = self._answers[request.request_id][length : length + guesses.num_accepted]
        return right + [WRONG_GUESS] * (guesses.num_drafted - guesses.num_accepted)

    def _next_us(self) -> int:
        """When somebody comes, or turns a knob."""
        arrival_us: int = self._arrivals[0].facts["arrival_us"]
        return min(arrival_us, self._turns[0].at_us) if self._turns else arrival_us

    def _turn(self, turn: Turn) -> None:
        try:
            self._core.configure(turn.changes)
        except ConfigError as error:
            raise ConfigError(f"{turn.at_us / 1e6:.1f} s into the recording a knob was turned: {error}") from None

    def _arrive(self, arrival: Arrival) -> None:
        facts, config = arrival.facts, self._core.config
        num_prompt = facts["num_prompt_tokens"]
        assert config.max_model_len is not None
        room = min(config.max_model_len - num_prompt, self._core.scheduler.capacity - num_prompt + 1)
        if room < 1:
            message = f"The prompt has {num_prompt} tokens; --max-model-len or --num-blocks is too small for it."
            self._core.reject(facts["request"], 400, "prompt", message)
            return
        self._core.add(_request(arrival, max_tokens=min(facts["max_tokens"], config.max_model_len - num_prompt)))


def _not_held(turns: Sequence[Turn], held: Collection[str]) -> list[Turn]:
    left = [
        dataclasses.replace(turn, changes={name: value for name, value in turn.changes.items() if name not in held})
        for turn in turns
    ]
    return [turn for turn in left if turn.changes]


def _request(arrival: Arrival, max_tokens: int) -> Request:
    facts = arrival.facts
    sampling = facts["sampling"]
    return Request(
        request_id=facts["request"],
        prompt_token_ids=arrival.prompt_token_ids,
        sampling_params=SamplingParams(
            temperature=sampling["temperature"],
            top_k=sampling["top_k"],
            top_p=sampling["top_p"],
            min_p=sampling.get("min_p", 0.0),
            min_tokens=_min_tokens(arrival),
            stop_token_ids=tuple(sampling["stop_token_ids"]),
            ignore_eos=sampling["ignore_eos"],
        ),
        max_tokens=max_tokens,
        seed=sampling["seed"],
        stop_token_ids=frozenset({END_TOKEN}),
        arrival_us=facts["arrival_us"],
        label=facts["label"],
        parent=facts["parent"],
        owner=facts["owner"],
        priority=facts["priority"],
        request_class=facts["request_class"],
    )


def _min_tokens(arrival: Arrival) -> int:
    """As it was asked, but where the recorded answer ended before that: it was cancelled, or cut off."""
    asked: int = arrival.facts["sampling"].get("min_tokens", 0)
    return asked if arrival.by_length else min(asked, arrival.num_output_tokens - 1)


def _step_cost(original: Mapping[str, Any]) -> StepCost:
    """The FLOPs and bytes that the real model would have cost."""
    model = events.ModelFacts(**known_fields(events.ModelFacts, original["model"]))
    if not model.num_parameters:
        return no_cost
    draft = original.get("draft")
    facts = None if draft is None else events.ModelFacts(**known_fields(events.ModelFacts, draft))
    memory = {"kv_dtype": "", **known_fields(events.MemoryFacts, original["memory"])}  # older ones do not say
    return partial(roofline.total_cost, model, facts, events.MemoryFacts(**memory))


def check_hello(original: Mapping[str, Any]) -> None:
    """What a simulation takes from a recorded `hello` is there. Raises KeyError, TypeError or the like."""
    _step_cost(original)
    config = EngineConfig(num_blocks=1, max_model_len=1)
    events.Hello(**{**_hello(config, original, 0), "kind": "hello", "engine": "", "epoch": "", "seq": 0, "t": 0})


def _hello(config: EngineConfig, original: Mapping[str, Any], num_missing_steps: int) -> dict[str, Any]:
    assert config.num_blocks is not None
    kept = known_fields(events.Hello, original)
    for name in ("kind", "engine", "epoch", "seq", "t"):
        kept.pop(name)
    memory = {
        **original["memory"],
        "kv_pool": config.num_blocks * config.block_size * original["memory"]["bytes_per_token"],
        "bytes_per_block": config.block_size * original["memory"]["bytes_per_token"],
        "sum_text": f"Simulated: {config.num_blocks} KV blocks of {config.block_size} tokens.",
    }
    changed: dict[str, Any] = {"config": dataclasses.asdict(config), "memory": memory, "simulated": True}
    changed |= {"replay_of": original["epoch"], "replay_missing_steps": num_missing_steps}
    if config.speculative == NO_SPECULATION:
        changed["draft"] = None
    return {**kept, **changed, "num_blocks": config.num_blocks, "block_size": config.block_size}


def known_fields(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that this version of us has fields for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
