"""The figures of a benchmark: what is promised of each, and whether it is kept."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure


@pytest.mark.parametrize(
    ("bounds", "kept", "promise"),
    [
        ({}, True, ""),
        ({"at_least": 2.0}, True, "≥ 2 ok"),
        ({"at_least": 4.0}, False, "≥ 4 MISSED"),
        ({"at_most": 3.0}, True, "≤ 3 ok"),
        ({"at_most": 2.5}, False, "≤ 2.5 MISSED"),
    ],
)
def test_a_promise_is_kept_or_missed(bounds: dict[str, float], kept: bool, promise: str) -> None:
    figure = Figure("frames", 3.0, "1/s", **bounds)
    assert (figure.kept, figure.promise) == (kept, promise)


def test_a_line_has_name_value_unit_and_promise() -> None:
    assert Figure("frames", 3.0, "1/s", at_least=2).line(8, ">6.2f") == "frames    3.00 1/s         ≥ 2 ok"
    assert Figure("frames", 3.0, "1/s").line(8, ">6.2f") == "frames    3.00 1/s"
