"""What messages repeat of somebody's input: short, on one line, and enough of it to be found again."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import MOST_SHOWN, MOST_WORDS, StepscopeError, brief, shown
from engine.knobs import changed
from engine.request import SamplingParams, check_priority


@pytest.mark.parametrize("value", ["x" * 10**6, 10**4000, [[["deep"] * 99] * 99] * 99, {"a" * 999: 1}, "\ud800" * 99])
def test_a_value_is_shown_in_a_few_characters(value: object):
    assert len(shown(value)) <= MOST_SHOWN
    shown(value).encode("ascii")


def test_of_an_integer_that_python_does_not_write_out_the_size_is_said():
    assert shown(10**5000) == "an integer of 16610 bits"
    assert shown([-(10**5000)]) == "[an integer of 16610 bits]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\x9b2J\x07", r"\x9b2J\x07"),
        ("\u202egnp", r"\u202egnp"),
        ("\ud800", r"\ud800"),
    ],
)
def test_words_give_a_terminal_no_orders(words: str, said: str):
    assert brief(words) == said
    assert brief("Größe 模型") == "Größe 模型"


def test_a_value_that_is_short_is_shown_whole():
    assert shown("fcfs") == "'fcfs'"
    assert shown(-1) == "-1"


def test_words_are_in_one_line_and_cut_in_the_middle():
    assert brief("two\nlines") == "two lines"
    assert brief("a" * 50 + "b" * 5000 + "c" * 50).startswith("a" * 50)
    assert brief("a" * 50 + "b" * 5000 + "c" * 50).endswith("c" * 50)
    assert len(brief("b" * 5000)) <= MOST_WORDS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_blocks", -(10**400)),
        ("max_num_seqs", -(10**400)),
        ("block_size", 10**400),
        ("long_prefill_token_threshold", -(10**400)),
        ("watermark", 10**400),
        ("gpu_memory_utilization", 10**400),
        ("scripted_step_ms", 10**400),
        ("batching", "x" * 9999),
        ("speculative", "x" * 9999),
        ("x" * 9999, 1),
        ("max_queue", "x" * 9999),
    ],
)
def test_a_setting_is_not_repeated_in_full(name: str, value: Any):
    with pytest.raises(StepscopeError) as caught:
        changed(EngineConfig(), {name: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["temperature", "top_k", "max_tokens", "stop", "ignore_eos", "seed"])
@pytest.mark.parametrize("value", [10**400, {"a": "x" * 9999}])
def test_a_parameter_is_not_repeated_in_full(name: str, value: object):
    with pytest.raises(StepscopeError) as caught:
        SamplingParams.from_body({name: value})
    assert len(str(caught.value)) < 300


def test_a_priority_is_not_repeated_in_full():
    with pytest.raises(StepscopeError, match="lower is more urgent") as caught:
        check_priority(10**400)
    assert len(str(caught.value)) < 300
