"""What a lesson found: numbers of two or more sides, promises about their ratios, one table and JSON of all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """One number of every side, and what is promised of `ratio`."""

    name: str
    values: list[float | int | None]
    ratio: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the promise is kept; none given is none broken."""
        promised = self.at_least is not None or self.at_most is not None
        if not promised or self.ratio is None:
            return not promised
        return (self.at_least or 0.0) <= self.ratio <= (float("inf") if self.at_most is None else self.at_most)

    @property
    def promise(self) -> str:
        low = "" if self.at_least is None else f"≥ {self.at_least:.3g} "
        high = "" if self.at_most is None else f"≤ {self.at_most:.3g} "
        return low + high + ("" if not low + high else "ok" if self.kept else "MISSED")


@dataclass(frozen=True, slots=True)
class Lesson:
    name: str
    sides: list[str]
    numbers: list[Number]

    @property
    def kept(self) -> bool:
        return all(number.kept for number in self.numbers)


def table(lessons: Sequence[Lesson], times: str, seed: int) -> str:
    """One table: a head line per lesson with its sides, then a line per number."""
    lines: list[tuple[list[str], str, str]] = []
    for lesson in lessons:
        lines.append(([lesson.name, *lesson.sides], "ratio", "promised"))
        for one in lesson.numbers:
            cells = ["  " + one.name, *map(_shown, one.values)]
            lines.append((cells, "" if one.ratio is None else f"{one.ratio:.2f}", one.promise))
    columns = max(len(cells) for cells, _, _ in lines)
    wide = max(len(cells[0]) for cells, _, _ in lines if cells[0].startswith(" "))
    shown = [f"Lessons, greedy, fp32, seed {seed}; times are {times}"]
    for cells, ratio, promise in lines:
        values = cells[1:] + [""] * (columns - len(cells))
        if not cells[0].startswith(" "):
            shown += ["", cells[0]]
            cells = [""]
        shown.append(f"{cells[0]:<{wide}}" + "".join(f"{value:>12}" for value in values) + f"{ratio:>8}  {promise}")
    return "\n".join(line.rstrip() for line in shown)


def _shown(value: float | int | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def as_json(lessons: Sequence[Lesson], times: str, *, seed: int, rounds: int) -> str:
    value = {
        "benchmark": "lessons",
        "times": times,
        "seed": seed,
        "rounds": rounds,
        "lessons": [{**dataclasses.asdict(lesson), "kept": lesson.kept} for lesson in lessons],
    }
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
