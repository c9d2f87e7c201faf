"""The lessons: what each idea of the field does, on the real model, both sides in one run.

Times are noisy on a shared machine, so each side runs several rounds in turn and its best one counts; beside them
stand the numbers that no noise changes: steps, tokens, slots, blocks. `--quick` runs the same lessons on scripted
tokens in virtual time: the same decisions in seconds, its times simulated.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, Machine, RealMachine, Run, VirtualMachine, take_turns
from benchmarks.report import Lesson, Number, as_json, table
from benchmarks.school import SEED, School, in_ms, number, steps, tok_per_s
from engine.cost_model import fit
from engine.simulation import simulate
from engine.summary import summarize
from engine.workload import workload

RESULT_FILE = Path(__file__).parent / "lessons.out.json"
BATCHES = (1, 2, 4, 8, 16)
MIXES = ("outputs of 4–128", "one of 128 per seven of 8–16")
SHARED_TOKENS, OWN_TOKENS = 512, 4
NEWCOMER_TOKENS = 1500


# -- static vs continuous ----------------------------------------------------------------------------------------


def uniform_mix(rng: random.Random, count: int = 32) -> list[int]:
    return [rng.randint(4, 128) for _ in range(count)]


def one_long_mix(rng: random.Random, count: int = 32) -> list[int]:
    """One long answer per seven short ones: each static group has one to wait for."""
    return [length for _ in range(count // 8) for length in (128, *(rng.randint(8, 16) for _ in range(7)))]


def submit_mix(school: School, lab: Lab, lengths: Sequence[int]) -> None:
    """Short prompts, and answers of these lengths."""
    rng = school.rng()
    for length in lengths:
        lab.submit(school.prompt(rng, 16), length)


def static_vs_continuous(school: School, mix: str, lengths: Sequence[int], at_least: float) -> Lesson:
    """32 requests, 8 slots: does a slot wait for the slowest of its group?"""

    def play(lab: Lab) -> None:
        submit_mix(school, lab, lengths)
        lab.run()

    names = ["static", "continuous"]
    runs = school.run(play, *({"batching": name} for name in names))
    return Lesson(
        f"batching, {mix}",
        names,
        [
            number("output tok/s", runs, tok_per_s, rises=True, at_least=at_least),
            number("steps", runs, steps, rises=False),
            number("slot occupancy", runs, lambda run: run.summary.slot_occupancy, rises=True),
        ],
    )


# -- chunked prefill ---------------------------------------------------------------------------------------------


def chunked_prefill(school: School) -> Lesson:
    """Four answers stream, and a long prompt arrives: how long do the four stand still?"""
    streaming, newcomer = range(4), 4

    def play(lab: Lab) -> None:
        rng = school.rng()
        for _ in streaming:
            lab.submit(school.prompt(rng, 32), 40)
        lab.step_until(lambda: lab.requests[-1].num_output_tokens >= 8)
        lab.submit(school.prompt(rng, NEWCOMER_TOKENS), 4)
        lab.run()

    def worst_gap_ms(run: Run) -> float:
        times = (run.deliveries_us(request) for request in streaming)
        return max(b - a for one in times for a, b in itertools.pairwise(one)) / 1000

    def steps_to_first_token(run: Run) -> int:
        rows = (row for step in run.recording.steps() for row in step["rows"] if row["request"] == str(newcomer))
        return 1 + [row["out"] > 0 for row in rows].index(True)

    runs = school.run(
        play, {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}, {"max_num_batched_tokens": 256}
    )
    return Lesson(
        "chunked prefill, 1,500 tokens beside 4 streams",
        ["off", "on"],
        [
            number("worst gap of the four, ms", runs, worst_gap_ms, rises=False, at_least=4.0),
            number("newcomer's TTFT, ms", runs, lambda run: in_ms(run.ttft_us(newcomer)), rises=True, at_most=1.5),
            number("most tokens in a step", runs, lambda run: run.summary.max_step_tokens, rises=False),
            number("newcomer's steps to first token", runs, steps_to_first_token),
            number("output tok/s", runs, tok_per_s),
            number("steps", runs, steps),
        ],
    )


# -- prefix cache ------------------------------------------------------------------------------------------------

OFF_ON: tuple[dict[str, Any], dict[str, Any]] = ({"enable_prefix_caching": False}, {"enable_prefix_caching": True})


def prefix_cache(school: School, *, together: bool) -> Lesson:
    """Eight requests begin with the same 512 tokens: seven after the first one's first token, or all at once."""

    def play(lab: Lab) -> None:
        rng = school.rng()
        shared = school.prompt(rng, SHARED_TOKENS)
        first = lab.submit(shared + school.prompt(rng, OWN_TOKENS), 32)
        if not together:
            lab.step_until(lambda: first.num_output_tokens > 0)
        for _ in range(7):
            lab.submit(shared + school.prompt(rng, OWN_TOKENS), 16)
        lab.run()

    runs = school.run(play, *OFF_ON)
    once = SHARED_TOKENS + 8 * OWN_TOKENS
    computed = number("prompt tokens computed", runs, lambda run: run.summary.prefill_tokens, rises=False)
    computed = dataclasses.replace(computed, at_least=8 * (SHARED_TOKENS + OWN_TOKENS) / once)  # the shared ones once
    ttft = number(
        "mean TTFT of the seven, ms",
        runs,
        lambda run: in_ms(statistics.fmean(run.ttft_us(request) for request in range(1, 8))),
        rises=False,
    )
    return Lesson(
        f"prefix cache, 512 tokens shared, {'all eight together' if together else 'seven after the first'}",
        ["off", "on"],
        [
            ttft if together else dataclasses.replace(ttft, at_least=4.0),
            computed,
            number("most blocks in use", runs, lambda run: run.summary.peak_blocks, rises=False),
            number("output tok/s", runs, tok_per_s),
            number("steps", runs, steps),
        ],
    )


# -- pool too small ----------------------------------------------------------------------------------------------


POOL_REQUESTS, POOL_SLOTS = 16, 8
MOST_PREEMPTIONS = 4  # of one request; promised is less than the bound that is argued below, POOL_SLOTS - 1
"""How often one request can be preempted, first come first served, if prompts share nothing.

All run in the order in which they came: while one runs, all older ones that are not done run too. It is preempted only
after all younger ones were, so the pool is then what the older ones hold, what it holds, and what is free, which is too
little for the one that is short of blocks. It runs again when at least what it held is free at once. If no older one
were done by then, all of them would run, hold no less than before, and the one that was short would hold more than was
free: there would be less left than the preempted one held. So between two preemptions of a request an older one
finishes, and after the last of these one more must be there to take its blocks. None of them comes anew.
"""


def small_pool(school: School) -> Lesson:
    """16 requests that come to 6 blocks each, 8 at a time: in 1,024 blocks and in 24."""

    def play(lab: Lab) -> None:
        rng = school.rng()
        for _ in range(POOL_REQUESTS):
            lab.submit(school.prompt(rng, 32), 64)
        lab.run()

    runs = school.run(play, *({"num_blocks": blocks, "max_num_seqs": POOL_SLOTS} for blocks in (1024, 24)))
    big, small = runs
    most = number("most preemptions of one request", runs, lambda run: run.summary.most_preemptions)
    finished = number("finished", runs, lambda run: run.summary.num_finished)
    same = sum(one == other for one, other in zip(big.answers, small.answers, strict=True))
    return Lesson(
        "pool, 16 requests of 6 blocks, 8 slots",
        ["1024 blocks", "24 blocks"],
        [
            number("preemptions", runs, lambda run: run.summary.preemptions),
            dataclasses.replace(most, ratio=small.summary.most_preemptions, at_most=MOST_PREEMPTIONS),
            number("tokens computed again", runs, lambda run: run.summary.lost_tokens),
            dataclasses.replace(finished, ratio=small.summary.num_finished / POOL_REQUESTS, at_least=1.0),
            Number("the same answers", [POOL_REQUESTS, same], ratio=same / POOL_REQUESTS, at_least=1.0),
            number("output tok/s", runs, tok_per_s),
            number("steps", runs, steps),
        ],
    )


# -- batch size --------------------------------------------------------------------------------------------------


def batch_size(school: School) -> Lesson:
    """Weights are read once a step, whoever shares it."""

    def play(lab: Lab) -> None:
        rng = school.rng()
        for _ in range(lab.config.max_num_seqs):
            lab.submit(school.prompt(rng, 32), 24)
        lab.run()

    def full(run: Run) -> list[dict[str, Any]]:
        """Steps that decode the whole batch and do nothing else."""
        return [s for s in run.recording.steps() if s["num_decode_tokens"] == s["num_scheduled_tokens"] == slots(run)]

    def slots(run: Run) -> int:
        return run.config.max_num_seqs

    def decode_tok_per_s(run: Run) -> float:
        seconds: float = statistics.median(step["wall_us"] / 1e6 for step in full(run))
        return slots(run) / seconds

    def gb_per_s(run: Run) -> float | None:
        moved = statistics.median(step["bytes"] / step["wall_us"] / 1000 for step in full(run))
        return moved or None

    def intensity(run: Run) -> float | None:
        moved = sum(step["bytes"] for step in full(run))
        return sum(step["flops"] for step in full(run)) / moved if moved else None

    runs = school.run(play, *({"max_num_seqs": batch, "max_num_batched_tokens": 512} for batch in BATCHES))
    return Lesson(
        "batch size, decode",
        [str(batch) for batch in BATCHES],
        [
            number("decode tok/s (median step)", runs, decode_tok_per_s, rises=True),
            number("FLOP per byte (derived)", runs, intensity, rises=True),
            number("GB/s moved (derived, median step)", runs, gb_per_s),
            number("steps per token and request", runs, lambda run: len(full(run)) / 23),
        ],
    )


# -- speculation -------------------------------------------------------------------------------------------------


def speculation(school: School) -> Lesson:
    """A prompt that repeats itself, and guesses looked up in it."""

    def play(lab: Lab) -> None:
        lab.submit(school.machine.repetitive_prompt(), 64)
        lab.run()

    def tokens_per_step(run: Run) -> float:
        return statistics.fmean(
            row["out"] for step in run.recording.steps() for row in step["rows"] if row["phase"] == "decode"
        )

    def total(name: str) -> Callable[[Run], int]:
        return lambda run: sum(row[name] for step in run.recording.steps() for row in step["rows"])

    runs = school.run(play, {"speculative": "none"}, {"speculative": "ngram:4"})
    same = int(runs[0].answers == runs[1].answers)
    return Lesson(
        "n-gram speculation, repetitive prompt, batch 1",
        ["none", "ngram:4"],
        [
            number("output tokens per decode step", runs, tokens_per_step, rises=True, at_least=1.5),
            Number("the same answer", [1, same], ratio=same, at_least=1.0),
            number("tokens guessed", runs, total("drafted")),
            number("guesses accepted", runs, total("accepted")),
            number("output tok/s", runs, tok_per_s, rises=True),
            number("steps", runs, steps, rises=False),
        ],
    )


# -- simulated vs measured ---------------------------------------------------------------------------------------


def simulated_vs_measured(school: School) -> Lesson:
    """Fit the cost model to one workload, then foretell the makespans of others from what came to a static engine.

    All engines take turns, step by step: what else the machine does in these minutes hits the fitted and the foretold
    alike. Smaller mixes than in `batching`, and once: turns make rounds needless.
    """
    modes = ("static", "continuous")
    lengths = (uniform_mix(school.rng(), 16), one_long_mix(school.rng(), 16))
    fitted_lab = school.machine.lab(num_blocks=256, batching="static")
    rng = school.rng()
    for shortest, longest in ((8, 32), (100, 200), (200, 300)):  # rows with few and with many tokens to read
        for length in range(8, 65, 8):  # as many steps of one row as of eight
            fitted_lab.submit(school.prompt(rng, rng.randint(shortest, longest)), length)
    labs = {(mix, mode): school.machine.lab(num_blocks=256, batching=mode) for mix in MIXES for mode in modes}
    for (mix, _), lab in labs.items():
        submit_mix(school, lab, lengths[MIXES.index(mix)])
    take_turns([fitted_lab, *labs.values()])

    # Slow moments are part of what all of them measured, so they are of the fit.
    fitted = fit(fitted_lab.result().recording.steps(), leave_out=False)
    numbers = []
    for (mix, mode), lab in labs.items():
        arrivals, hello = workload(labs[mix, "static"].result().recording), lab.result().recording.hello
        foretold = summarize(simulate(arrivals, lab.config, fitted.model, hello)).makespan_us
        was = lab.result().summary.makespan_us
        numbers.append(Number(f"makespan, s: {mode}, {mix}", [was / 1e6, foretold / 1e6], foretold / was, 0.8, 1.2))
    return Lesson(f"cost model, {fitted}", [school.machine.times, "simulated"], numbers)


LESSONS: dict[str, Callable[[School], list[Lesson]]] = {
    "batching": lambda school: [
        static_vs_continuous(school, MIXES[0], uniform_mix(school.rng()), 1.15),
        static_vs_continuous(school, MIXES[1], one_long_mix(school.rng()), 2.0),
    ],
    "chunked-prefill": lambda school: [chunked_prefill(school)],
    "prefix-cache": lambda school: [prefix_cache(school, together=False), prefix_cache(school, together=True)],
    "small-pool": lambda school: [small_pool(school)],
    "batch-size": lambda school: [batch_size(school)],
    "speculation": lambda school: [speculation(school)],
    "cost-model": lambda school: [simulated_vs_measured(school)],
}
"""In the order in which they run."""


def teach(machine: Machine, names: Sequence[str] = tuple(LESSONS), rounds: int = 1) -> list[Lesson]:
    """Run these lessons."""
    school = School(machine, rounds)
    return [lesson for name in LESSONS if name in names for lesson in LESSONS[name](school)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks lessons", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="scripted tokens in virtual time instead of the model")
    parser.add_argument("--cpu-time", action="store_true", help="measure what the cores did, not what the clock says")
    parser.add_argument("--rounds", type=int, default=2, help="times each side runs; the best counts (default: 2)")
    parser.add_argument("--only", nargs="+", choices=list(LESSONS), default=list(LESSONS), help="these lessons")
    parser.add_argument("--json", type=Path, default=RESULT_FILE, help="where to write the result")
    args = parser.parse_args(argv)
    machine: Machine = VirtualMachine() if args.quick else RealMachine(in_cpu_time=args.cpu_time)
    rounds = 1 if args.quick else args.rounds
    lessons = teach(machine, args.only, rounds)
    args.json.write_text(as_json(lessons, machine.times, seed=SEED, rounds=rounds))
    print(table(lessons, machine.times, SEED))
    print(f"written to {args.json}")
    return 0 if all(lesson.kept for lesson in lessons) else 1


if __name__ == "__main__":
    sys.exit(main())
