"""How long a step takes, as a sum of what it does: the pace of simulation. No torch.

    step_us = step + prefill tokens·p + decode rows·d + KV tokens read·k + prefill pairs·q

Contract. The terms are counted alike from a live schedule and from a recorded `step` event. A fit is a non-negative
least-squares fit to measured steps (wall time without `publish`, which belongs to the step before). Errors count
relative to the step's length, so that the few long prefills weigh as much as the many short decodes; steps far off the
rest are left out (a shared machine only ever slows a step down), and so are steps gated by hand and the first two.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ConfigError, brief
from engine.runner import ScheduledRow

BUILTIN = "builtin"

_NUM_FIRST = 2  # steps that still pay for first touches
_MIN_STEPS = 10
_FAR_OFF = 5.0  # robust standard deviations
_MAD_TO_SIGMA = 1.4826
_LEAST_SPREAD = 1e-3  # relative; below it nothing is an outlier
_ROUNDS = 20
_SETTLED = 1e-3  # relative

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step does, in the terms of the cost model."""

    prefill_tokens: int = 0
    decode_rows: int = 0  # a guess is a row too
    kv_tokens_read: int = 0  # by decode rows
    prefill_pairs: int = 0  # query-key pairs of prefill rows: what attention over a long prompt grows with

    @classmethod
    def of_rows(cls, rows: Iterable[ScheduledRow]) -> StepShape:
        """From what the scheduler handed out."""
        return cls._sum((row.is_decode, row.num_computed_tokens, row.num_scheduled_tokens) for row in rows)

    @classmethod
    def of_event(cls, step: Mapping[str, Any]) -> StepShape:
        """From a `step` event."""
        return cls._sum(
            (
                row["phase"] == "decode",
                row["computed"] - row["scheduled"] + row["drafted"] - row["accepted"],
                row["scheduled"],
            )
            for row in step["rows"]
        )

    @classmethod
    def _sum(cls, rows: Iterable[tuple[bool, int, int]]) -> StepShape:
        prefill = decode = read = pairs = 0
        for decodes, computed, scheduled in rows:
            if decodes:
                decode += scheduled
                read += computed + scheduled
            else:
                prefill += scheduled
                pairs += scheduled * computed + scheduled * (scheduled + 1) // 2
        return cls(prefill, decode, read, pairs)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Microseconds per step and per unit of each term; none is negative."""

    step_us: float = 0.0
    prefill_token_us: float = 0.0
    decode_row_us: float = 0.0
    kv_token_us: float = 0.0
    prefill_pair_us: float = 0.0

    def predict(self, shape: StepShape) -> int:
        """Microseconds of one step."""
        return round(
            self.step_us
            + self.prefill_token_us * shape.prefill_tokens
            + self.decode_row_us * shape.decode_rows
            + self.kv_token_us * shape.kv_tokens_read
            + self.prefill_pair_us * shape.prefill_pairs
        )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> CostModel:
        """Raises ValueError for anything that is not what `to_json` gives."""
        values = json.loads(text)
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, dict) or set(values) != names:
            raise ValueError(f"it must hold {', '.join(sorted(names))}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
                raise ValueError(f"{name} must be a number of microseconds from 0")
        return cls(**values)


BUILTIN_MODEL = CostModel(
    step_us=38_000.0, prefill_token_us=1_250.0, decode_row_us=2_000.0, kv_token_us=4.0, prefill_pair_us=0.0
)
"""The default model in fp32 on two cores of a server, rounded: a pace to try things with, no measurement."""


def load_cost_model(name: str) -> CostModel:
    """From a file, or the built-in one. Raises ConfigError with one sentence."""
    if name == BUILTIN:
        return BUILTIN_MODEL
    try:
        return CostModel.from_json(Path(name).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--cost-model {brief(name)} cannot be used: {brief(error)}.") from None


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model, and how well it explains the steps that it was fitted to."""

    model: CostModel
    num_steps: int  # fitted to
    num_outliers: int  # left out
    r2: float
    mean_abs_error_us: float

    def __str__(self) -> str:
        return (
            f"fitted to {self.num_steps} steps ({self.num_outliers} outliers left out): "
            f"R² {self.r2:.3f}, mean absolute error {self.mean_abs_error_us / 1000:.2f} ms"
        )


def fit(steps: Iterable[Mapping[str, Any]], *, leave_out: bool = True) -> Fit:
    """Fit to `step` events. Raises ConfigError if there are too few.

    Without `leave_out` steps far off count too: for what is to be foretold of the machine as it was, slow moments and
    all, and not of a quiet one.
    """
    usable = [step for step in steps if step["rows"] and not step["gated"]][_NUM_FIRST:]
    if len(usable) < _MIN_STEPS:
        raise ConfigError(
            f"A cost model cannot be fitted: {len(usable)} measured steps can be used, {_MIN_STEPS} are needed."
        )
    terms = np.array([(1, *dataclasses.astuple(StepShape.of_event(step))) for step in usable], dtype=np.float64)
    took = np.array([step["wall_us"] - step["phases_us"].get("publish", 0) for step in usable], dtype=np.float64)
    took = np.maximum(took, 1.0)
    values, keep = _fit_robustly(terms, took, _FAR_OFF if leave_out else float("inf"))
    kept_took, error = took[keep], took[keep] - terms[keep] @ values
    spread = float(np.sum((kept_took - kept_took.mean()) ** 2))
    return Fit(
        model=CostModel(*values.tolist()),
        num_steps=int(keep.sum()),
        num_outliers=int((~keep).sum()),
        r2=1 - float(np.sum(error**2)) / spread if spread else 1.0,
        mean_abs_error_us=float(np.mean(np.abs(error))),
    )


def _fit_robustly(terms: Vector, took: Vector, far_off: float) -> tuple[Vector, NDArray[np.bool_]]:
    """Fit, leave out what is far off, fit again until nothing changes; returns (values, which steps were kept).

    Errors count relative to what is predicted, not to what was measured: that would favour the quick steps, and
    a makespan is the sum of all.
    """
    keep = np.ones(len(took), dtype=np.bool_)
    predicted = took
    for _ in range(_ROUNDS):
        values = _non_negative(terms[keep] / predicted[keep, None], took[keep] / predicted[keep])
        before = keep, predicted
        predicted = np.maximum(terms @ values, 1.0)
        off = took / predicted - 1
        off -= np.median(off)
        sigma = max(_MAD_TO_SIGMA * float(np.median(np.abs(off))), _LEAST_SPREAD)
        keep = np.abs(off) <= far_off * sigma
        if np.array_equal(before[0], keep) and np.allclose(before[1], predicted, rtol=_SETTLED):
            break
    return values, before[0]


def _non_negative(terms: Vector, wanted: Vector) -> Vector:
    """The non-negative least-squares solution. Its support is one of a few dozen, so all of them are tried."""
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-300)
    gram, target = (terms / scale).T @ (terms / scale), (terms / scale).T @ wanted
    best, best_gain = np.zeros(terms.shape[1]), 0.0
    for support in _subsets(range(terms.shape[1])):
        chosen = list(support)
        values = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], target[chosen], rcond=None)[0]
        gain = float(target[chosen] @ values)  # by how much the squared error falls
        if (values >= 0).all() and gain > best_gain:
            best_gain, best = gain, np.zeros(terms.shape[1])
            best[chosen] = values
    solution: Vector = best / scale
    return solution


def _subsets(items: Sequence[int]) -> Iterable[tuple[int, ...]]:
    for size in range(1, len(items) + 1):
        yield from combinations(items, size)
