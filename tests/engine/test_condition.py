"""Conditions over a step's numbers: what they mean, and that they can do nothing else."""

import pytest

from engine.condition import NUMBERS, Condition
from engine.errors import RequestError

ZERO = dict.fromkeys(NUMBERS, 0.0)


@pytest.mark.parametrize(
    ("text", "numbers", "holds"),
    [
        ("free_blocks < 4 and waiting > 2", {"free_blocks": 3, "waiting": 3}, True),
        ("free_blocks < 4 and waiting > 2", {"free_blocks": 3, "waiting": 2}, False),
        ("waiting or running", {"running": 1}, True),
        ("not running", {}, True),
        ("0 < running <= 3", {"running": 3}, True),
        ("0 < running <= 3", {"running": 4}, False),
        ("prefill_tokens + decode_tokens == scheduled_tokens", {"prefill_tokens": 2, "scheduled_tokens": 2}, True),
        ("step_ms / running > 10", {"step_ms": 50}, False),  # nothing runs: no division by zero
        ("-waiting < 0", {"waiting": 1}, True),
    ],
)
def test_a_condition_means_what_it_says(text, numbers, holds):
    assert Condition(text).holds(ZERO | numbers) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "free_blocks <",
        "__import__('os')",
        "waiting.real",
        "[1]",
        "'a' < 'b'",
        "x := 1",
        "lambda: 1",
        "2 ** 9",
        "True",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(RequestError):
        Condition(text)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(RequestError, match="names bloks; it may name step, step_ms"):
        Condition("bloks > 1")


def test_a_long_condition_is_refused():
    with pytest.raises(RequestError, match="limit is 200"):
        Condition("1 < 2 and " * 40 + "1")
