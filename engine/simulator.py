"""`python -m engine.simulator RECORDING.jsonl.gz [engine flags]`: what other knobs would have made of a recording.

It replays the recording's arrivals in virtual time (engine/simulation.py), at the pace of a cost model that is fitted
to the recording's own steps or read from a file. A flag that is not given is as it was recorded.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path

from engine.config import SCRIPTED_MODEL, EngineConfig, flag
from engine.cost_model import fit, load_cost_model
from engine.errors import ConfigError, StepscopeError
from engine.flags import add_config_flags
from engine.knobs import FIELDS, changed
from engine.recording import Recording, read_recording, understood, write_recording
from engine.simulation import NO_SPECULATION, check_hello, known_fields, simulate
from engine.summary import summarize, table
from engine.workload import Workload, workload

FITTED = "fitted"


def recorded_config(recording: Recording) -> EngineConfig:
    """The recorded engine's settings, less those that a simulation has no use for. Raises ConfigError."""
    config = changed(EngineConfig(), known_fields(EngineConfig, recording.hello["config"]))
    if config.num_blocks is None or config.max_model_len is None:
        raise ValueError("the recorded engine had not settled its pool and context")
    return dataclasses.replace(config, start_paused=False)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.simulator", description=__doc__.split("\n")[0])
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="a .jsonl.gz to replay")
    parser.add_argument(
        "--last-run", action="store_true", help="replay only what came since the engine last had nothing to do"
    )
    parser.add_argument(
        "--with-slow-steps", action="store_true", help="fit to steps far off the rest too: the machine as it was"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the simulated events as a recording")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--save-cost-model", type=Path, metavar="FILE", help="write the cost model that was used")
    add_config_flags(parser)
    not_given = object()  # argparse leaves alone what the namespace has, unless the flag is there
    args = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(FIELDS, not_given)))
    given = {name: getattr(args, name) for name in FIELDS if getattr(args, name) is not not_given}
    try:
        recording = read_recording(args.recording)
        with understood(str(args.recording)):
            check_hello(recording.hello)
            work = workload(recording, last_run=args.last_run)
            before = recorded_config(recording.since(work.start))
        config = dataclasses.replace(before, **{"cost_model": FITTED, **given})
        return _replay(recording, work, _resized(before, config), frozenset(given), args)
    except StepscopeError as error:
        print(error, file=sys.stderr)
        return 2


def _resized(before: EngineConfig, config: EngineConfig) -> EngineConfig:
    """With another block size the pool keeps its tokens, unless its blocks are given. Raises ConfigError."""
    if config.speculative not in (NO_SPECULATION, before.speculative):
        raise ConfigError(
            f"--speculative {config.speculative} cannot be simulated: a recording says which guesses were right, not "
            f"which would be, and this one was made with {before.speculative}. Leave it out, or give {NO_SPECULATION}."
        )
    for name in ("model", "kv_cache_dtype", "kv_cache_memory_bytes", "start_paused"):
        if getattr(config, name) != getattr(before, name):
            raise ConfigError(f"{flag(name)} means nothing to a simulation; leave it out.")
    if config.block_size != before.block_size and config.num_blocks == before.num_blocks:
        assert before.num_blocks is not None
        tokens = before.num_blocks * before.block_size
        return dataclasses.replace(config, num_blocks=max(1, tokens // config.block_size))
    return config


def _replay(
    recording: Recording, work: Workload, config: EngineConfig, given: Collection[str], args: argparse.Namespace
) -> int:
    run = recording.since(work.start)
    with understood(str(args.recording)):
        was = summarize(run)
    if not work.arrivals:
        raise ConfigError(f"{args.recording} holds no request that was answered: there is nothing to replay.")
    if config.cost_model == FITTED:
        with understood(str(args.recording)):
            fitted = fit(recording.steps(), leave_out=not args.with_slow_steps)
        cost, how = fitted.model, str(fitted)
    else:
        cost, how = load_cost_model(config.cost_model), config.cost_model
    started = time.perf_counter()
    replayed = simulate(work, config, cost, run.hello, given)
    took = time.perf_counter() - started
    now = summarize(replayed)
    simulated = recording.hello.get("simulated") or recording.hello["config"]["model"] == SCRIPTED_MODEL
    print(
        f"Simulated: {len(work.arrivals)} requests arrive when they did, and answer as many tokens as they did. "
        f"Left out, since never answered: {work.num_left_out}; cut off by the recording's end: {work.num_unfinished}."
    )
    if work.num_missing_steps:
        print(
            f"The recording lost {work.num_missing_steps} steps: requests that came in them are replayed, but guesses "
            "made in them are not, and the recorded numbers leave them out."
        )
    for line in _done_again(recording, work, config, given):
        print(line)
    print(f"Cost model: {how}.")
    print(f"{now.makespan_us / 1e6:.2f} s of virtual time took {took:.2f} s.")
    print(table({"recorded (simulated)" if simulated else "recorded (measured)": was, "simulated": now}))
    numbers = {
        "recorded": asdict(was),
        "simulated": asdict(now),
        "cost_model": asdict(cost),
        "missing_steps": work.num_missing_steps,
    }
    try:
        if args.save_cost_model:
            args.save_cost_model.write_text(cost.to_json())
        if args.out:
            write_recording(args.out, [{**replayed.hello, "replayed": _replayed(work)}, *replayed.events])
        if args.json:
            args.json.write_text(json.dumps(numbers, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}.") from None
    return 0


def _replayed(work: Workload) -> dict[str, int]:
    """What a simulated recording was computed from, for its `hello`."""
    return {"requests": len(work.arrivals), "cut": work.num_unfinished, "left_out": work.num_left_out}


def _done_again(recording: Recording, work: Workload, config: EngineConfig, given: Collection[str]) -> Iterable[str]:
    """What was done to the recorded engine besides asking it, and what becomes of it."""
    turned = {name for turn in work.turns for name in turn.changes}
    if turned:
        kept, dropped = sorted(map(flag, turned - set(given))), sorted(map(flag, turned & set(given)))
        held = f"; held, since given here: {', '.join(dropped)}" if dropped else ""
        yield f"Knobs turned again when they were: {', '.join(kept) or 'none'}{held}."
    recorded = recording.hello["config"].get("speculative", NO_SPECULATION)
    if recorded != NO_SPECULATION:
        left_out = config.speculative == NO_SPECULATION
        yield f"Speculation ({recorded}) is {'left out' if left_out else 'replayed with the guesses that it made'}."


if __name__ == "__main__":
    sys.exit(main())
