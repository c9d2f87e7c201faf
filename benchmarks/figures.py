"""A figure: one number that a benchmark found, and what is promised of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a table. `at_least` and `at_most` are the promise, if there is one."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def promise(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{bound} {'ok' if self.kept else 'MISSED'}"

    def line(self, names: int, values: str) -> str:
        """As it is printed: its name in so many columns, its value in the format `values`."""
        return f"{self.name:<{names}}{self.value:{values}} {self.unit:<12}{self.promise}".rstrip()
