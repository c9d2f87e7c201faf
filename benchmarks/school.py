"""What lessons have in common: sides that run in turn, and the numbers that are read off their runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.lab import Lab, Machine, Run, random_prompt
from benchmarks.report import Number

SEED = 7


@dataclass(frozen=True, slots=True)
class School:
    """The lessons' machine, and how often each side of a lesson is run on it."""

    machine: Machine
    rounds: int = 1

    def run(self, play: Callable[[Lab], None], *sides: dict[str, Any]) -> list[Run]:
        """Play on an engine for each side's flags, `rounds` times in turn; the quickest of each."""
        best: list[Run | None] = [None] * len(sides)
        for _ in range(self.rounds):
            for i, flags in enumerate(sides):
                lab = self.machine.lab(**flags)
                play(lab)
                run, before = lab.result(), best[i]
                if before is None or run.summary.makespan_us < before.summary.makespan_us:
                    best[i] = run
        return [run for run in best if run is not None]

    def rng(self) -> random.Random:
        return random.Random(SEED)

    def prompt(self, rng: random.Random, length: int) -> list[int]:
        return random_prompt(self.machine, rng, length)


def number(
    name: str, runs: Sequence[Run], get: Callable[[Run], Any], *, rises: bool | None = None, **promise: float
) -> Number:
    """The same number of every run. `rises`: whether the ratio is last over first, or first over last."""
    values = [get(run) for run in runs]
    first, last = (values[0], values[-1]) if rises else (values[-1], values[0])
    ratio = last / first if rises is not None and first else None
    return Number(name, values, ratio, promise.get("at_least"), promise.get("at_most"))


def in_ms(us: float) -> float:
    return us / 1000


def tok_per_s(run: Run) -> float | None:
    return run.summary.output_tokens_per_s


def steps(run: Run) -> int:
    return run.summary.num_steps
