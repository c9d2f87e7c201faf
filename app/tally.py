"""A histogram's series that takes many equal samples at once, and the buckets of all our histograms."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 120, 300, 600),
)
"""Seconds: from a toy model's step to minutes in a queue."""


class Tally:
    """One engine's gaps between tokens: most requests of a step have the same."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self._sum = 0.0

    def take(self, value: float, times: int) -> None:
        self._counts[bisect_left(BUCKETS, value)] += times
        self._sum += value * times

    def add_to(self, family: HistogramMetricFamily, engine: str) -> None:
        bounds = (*map(float, BUCKETS), float("inf"))
        names = ("+Inf" if bound == float("inf") else str(bound) for bound in bounds)
        family.add_metric([engine], list(zip(names, accumulate(self._counts), strict=True)), self._sum)
