"""Virtual time: the engine's own core and scheduler, with a clock that a cost model moves instead of a model.

`python -m engine.simulator RECORDING.jsonl.gz [engine flags]` replays a recording's arrivals under other knobs.

Contract. Arrivals are fixed: requests come when they came, whatever the engine makes of them, and each answer is as
long as it was. Nothing is computed and nothing sleeps, so a replay takes a fraction of the time that it describes; the
same input gives the same events. Their `hello` says `simulated`. Nothing speculates, since what a guess would have met
is in no recording; knobs that were turned while it was recorded stay as they were at its start.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import events, roofline
from engine.config import SCRIPTED_MODEL, EngineConfig, flag
from engine.core import EngineCore, no_cost
from engine.cost_model import CostModel, StepShape, fit, load_cost_model
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.errors import ConfigError, StepscopeError
from engine.flags import add_config_flags, config_from_args
from engine.recording import END_TOKEN, Arrival, Recording, Workload, read_recording, workload, write_recording
from engine.reporter import StepCost
from engine.request import Request, SamplingParams
from engine.runner import SchedulerOutput
from engine.scripted import Script, ScriptedRunner, echo_script
from engine.summary import summarize, table

EVENTS_PER_KEY = 256
FITTED = "fitted"


class VirtualClock:
    """Microseconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us

    def advance(self, us: int) -> None:
        self.now_us += us


class SimulatedRunner(ScriptedRunner):
    """Follows a script, and lets pass the time that `cost` predicts for each step."""

    def __init__(self, script: Script, cost: CostModel, let_pass: Callable[[int], None]) -> None:
        super().__init__(script)
        self._cost = cost
        self._let_pass = let_pass

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        self._let_pass(self._cost.predict(StepShape.of_rows(batch.rows)))
        return batch


def paced_runner(cost_model: str) -> SimulatedRunner:
    """For an engine that serves: it sleeps as long as a model would compute. Raises ConfigError."""
    return SimulatedRunner(echo_script, load_cost_model(cost_model), lambda us: time.sleep(us / 1_000_000))


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


def simulate(work: Workload, config: EngineConfig, cost: CostModel, original: Mapping[str, Any]) -> Recording:
    """Replay `work` under `config` (resolved); `original` is the `hello` of the engine that is simulated."""
    return _Simulation(work, config, cost, original).run()


class _Simulation:
    def __init__(self, work: Workload, config: EngineConfig, cost: CostModel, original: Mapping[str, Any]) -> None:
        self._arrivals = deque(work.arrivals)
        self._answers = {arrival.facts["request"]: arrival.output_token_ids for arrival in work.arrivals}
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
        self._core.emitter.emit(events.Hello, **_hello(config, original))
        self._core.reporter.key()

    def run(self) -> Recording:
        core, clock = self._core, self._clock
        while self._arrivals or core.has_work:
            while self._arrivals and self._arrivals[0].facts["arrival_us"] <= clock.now_us:
                self._arrive(self._arrivals.popleft())
            if core.has_work:
                core.step()
            elif self._arrivals:
                core.timer.idle()
                clock.now_us = max(clock.now_us, self._arrivals[0].facts["arrival_us"])
            if len(self._sink.events) - self._last_key >= EVENTS_PER_KEY:
                core.reporter.key()
                self._last_key = len(self._sink.events)
        hello, *rest = self._sink.events
        return Recording(hello, rest)

    def _script(self, request: Request, index: int) -> int:
        return self._answers[request.request_id][index]

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


def _step_cost(original: Mapping[str, Any]) -> StepCost:
    """The FLOPs and bytes that the real model would have cost."""
    model = events.ModelFacts(**_known(events.ModelFacts, original["model"]))
    bytes_per_token = original["memory"]["bytes_per_token"]
    if not model.num_parameters:
        return no_cost
    return lambda rows: roofline.step_cost(model, rows, bytes_per_token)


def _hello(config: EngineConfig, original: Mapping[str, Any]) -> dict[str, Any]:
    assert config.num_blocks is not None
    kept = _known(events.Hello, original)
    for name in ("kind", "engine", "epoch", "seq", "t"):
        kept.pop(name)
    memory = {
        **original["memory"],
        "kv_pool": config.num_blocks * config.block_size * original["memory"]["bytes_per_token"],
        "bytes_per_block": config.block_size * original["memory"]["bytes_per_token"],
        "sum_text": f"Simulated: {config.num_blocks} KV blocks of {config.block_size} tokens.",
    }
    changed = {"config": dataclasses.asdict(config), "memory": memory, "simulated": True}
    return {**kept, **changed, "num_blocks": config.num_blocks, "block_size": config.block_size}


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that this version of us has fields for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


# -- the command -------------------------------------------------------------------------------------------------


def recorded_config(recording: Recording) -> EngineConfig:
    """The recorded engine's settings, less those that a simulation has no use for. Raises ConfigError."""
    config = EngineConfig(**_known(EngineConfig, recording.hello["config"]))
    return dataclasses.replace(config, start_paused=False, speculative="none")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.simulator", description=__doc__.split("\n")[0])
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="a .jsonl.gz to replay")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the simulated events as a recording")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--save-cost-model", type=Path, metavar="FILE", help="write the cost model that was used")
    add_config_flags(parser)
    try:
        recording = read_recording(parser.parse_known_args(argv)[0].recording)
        before = recorded_config(recording)
        parser.set_defaults(**{**dataclasses.asdict(before), "cost_model": FITTED})
        args = parser.parse_args(argv)
        return _replay(recording, _resized(before, config_from_args(args)), args)
    except StepscopeError as error:
        print(error, file=sys.stderr)
        return 2


def _resized(before: EngineConfig, config: EngineConfig) -> EngineConfig:
    """With another block size the pool keeps its tokens, unless its blocks are given. Raises ConfigError."""
    if config.speculative != "none":
        raise ConfigError("--speculative cannot be simulated: a recording does not say which guesses would be right.")
    for name in ("model", "kv_cache_memory_bytes", "start_paused"):
        if getattr(config, name) != getattr(before, name):
            raise ConfigError(f"{flag(name)} means nothing to a simulation; leave it out.")
    if config.block_size != before.block_size and config.num_blocks == before.num_blocks:
        assert before.num_blocks is not None
        tokens = before.num_blocks * before.block_size
        return dataclasses.replace(config, num_blocks=max(1, tokens // config.block_size))
    return config


def _replay(recording: Recording, config: EngineConfig, args: argparse.Namespace) -> int:
    work = workload(recording)
    if not work.arrivals:
        raise ConfigError(f"{args.recording} holds no request that was answered: there is nothing to replay.")
    if args.cost_model == FITTED:
        fitted = fit(recording.steps())
        cost, how = fitted.model, str(fitted)
    else:
        cost, how = load_cost_model(args.cost_model), args.cost_model
    started = time.perf_counter()
    replayed = simulate(work, config, cost, recording.hello)
    took = time.perf_counter() - started
    was, now = summarize(recording), summarize(replayed)
    simulated = recording.hello.get("simulated") or recording.hello["config"]["model"] == SCRIPTED_MODEL
    print(
        f"Simulated: {len(work.arrivals)} requests arrive when they did, and answer as many tokens as they did. "
        f"Left out, since never answered: {work.num_left_out}; cut off by the recording's end: {work.num_unfinished}."
    )
    print(f"Cost model: {how}.")
    print(f"{now.makespan_us / 1e6:.2f} s of virtual time took {took:.2f} s.")
    print(table({"recorded (simulated)" if simulated else "recorded (measured)": was, "simulated": now}))
    if args.save_cost_model:
        args.save_cost_model.write_text(cost.to_json())
    if args.out:
        write_recording(args.out, [replayed.hello, *replayed.events])
    if args.json:
        numbers = {"recorded": dataclasses.asdict(was), "simulated": dataclasses.asdict(now)}
        args.json.write_text(json.dumps({**numbers, "cost_model": dataclasses.asdict(cost)}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
