"""The lessons' noise-free half: what the scheduler decides in each, on scripted tokens in virtual time.

The same lessons on the real model take the same decisions; `python -m benchmarks lessons` measures their times.
"""

import json
import math

import pytest

from benchmarks.lab import Stopwatch, VirtualMachine, take_turns
from benchmarks.lessons import main, teach
from benchmarks.report import Number, as_json, table
from engine.virtual_time import VirtualClock

BATCHING = "batching, "
CHUNKED = "chunked prefill"
PREFIX = "prefix cache"
POOL = "pool"
SPECULATION = "n-gram"


@pytest.fixture(scope="module")
def lessons():
    return teach(VirtualMachine())


@pytest.fixture
def values(lessons):
    """The values of a number of a lesson, by how their names begin or end."""

    def find(lesson, name):
        (found,) = (one for one in lessons if one.name.startswith(lesson) or one.name.endswith(lesson))
        (number,) = (one for one in found.numbers if one.name.startswith(name))
        return number.values

    return find


def test_every_promise_is_kept_in_virtual_time(lessons):
    assert [one.name for lesson in lessons for one in lesson.numbers if not one.kept] == []
    assert len(lessons) == 9


def test_a_static_group_waits_for_its_longest_answer(values):
    assert values("outputs of 4–128", "steps") == [444, 274]
    assert values("one of 128 per seven of 8–16", "steps") == [4 * 128, 164]


def test_a_static_group_leaves_slots_empty(values):
    static, continuous = values("one of 128 per seven of 8–16", "slot occupancy")
    assert static == pytest.approx(0.20, abs=0.01)
    assert continuous == pytest.approx(0.62, abs=0.01)


def test_chunks_bound_the_step_that_streams_wait_for(values):
    assert values(CHUNKED, "most tokens in a step") == [1500 + 4, 256]
    assert values(CHUNKED, "newcomer's steps") == [1, math.ceil(1500 / 252)]


@pytest.mark.parametrize("when", ["seven after the first", "all eight together"])
def test_a_shared_beginning_is_computed_once(values, when):
    assert values(when, "prompt tokens computed") == [8 * 516, 512 + 8 * 4]
    off, on = values(when, "most blocks")
    assert off - on >= 7 * 512 // 16 - 8  # what sharing saves, but for a block or so that is not held at once


def test_a_pool_too_small_costs_recomputation_and_loses_nobody(values):
    assert values(POOL, "finished") == [16, 16]
    assert values(POOL, "the same answers") == [16, 16]
    assert values(POOL, "preemptions") == [0, 14]
    assert values(POOL, "tokens computed again") == [0, 608]
    assert values(POOL, "most preemptions") == [0, 2]


def test_a_step_gives_every_slot_a_token_whatever_the_batch(values):
    assert values("batch size", "steps per token") == [1.0] * 5


def test_right_guesses_save_steps_and_change_nothing(values):
    assert values(SPECULATION, "the same answer") == [1, 1]
    assert values(SPECULATION, "steps") == [64, 14]
    assert values(SPECULATION, "guesses accepted") == values(SPECULATION, "tokens guessed")


def test_the_fitted_cost_model_foretells_every_makespan(lessons):
    ratios = [number.ratio for number in lessons[-1].numbers]
    assert len(ratios) == 4
    assert ratios == pytest.approx([1.0] * 4, abs=0.01)


def test_the_same_seed_gives_the_same_lessons(lessons):
    again = teach(VirtualMachine(), ["batching"])
    assert again == lessons[:2]


# -- taking turns ------------------------------------------------------------------------------------------------


def test_a_stopwatch_stands_still_outside_of_its_with():
    clock = VirtualClock()
    watch = Stopwatch(clock)
    clock.advance(5)
    with watch:
        clock.advance(7)
        assert watch() == 7
    clock.advance(9)
    assert watch() == 7


def lab_with(count, length):
    lab = VirtualMachine().lab()
    for _ in range(count):
        lab.submit([1, 2, 3], length)
    return lab


def test_engines_that_take_turns_have_the_times_that_they_have_alone():
    labs, alone = [lab_with(9, 30), lab_with(2, 11)], [lab_with(9, 30), lab_with(2, 11)]
    take_turns(labs)
    for one, other in zip(labs, alone, strict=True):
        other.run()
        assert one.result().recording.events == other.result().recording.events


def test_engines_that_take_turns_come_forward_together():
    long, short = lab_with(1, 100), lab_with(1, 10)
    step = short.core.step
    seen = []

    def look():
        seen.append(long.progress - short.progress)
        step()

    short.core.step = look
    take_turns([long, short])
    assert max(map(abs, seen)) <= 0.11


# -- the table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        (Number("x", [1, 2]), True),
        (Number("x", [1, 2], 2.0, at_least=2.0), True),
        (Number("x", [1, 2], 1.9, at_least=2.0), False),
        (Number("x", [1, 2], 1.6, at_most=1.5), False),
        (Number("x", [1, 2], 1.3, at_least=0.8, at_most=1.2), False),
        (Number("x", [0, 2], None, at_least=1.0), False),
    ],
)
def test_a_promise_is_kept_or_missed(number, kept):
    assert number.kept is kept
    assert ("MISSED" in number.promise) is not kept


def test_table_and_json_hold_every_number(lessons):
    shown, written = table(lessons, "simulated", 7), json.loads(as_json(lessons, "simulated", seed=7, rounds=1))
    for lesson, stored in zip(lessons, written["lessons"], strict=True):
        assert lesson.name in shown
        assert [one["name"] for one in stored["numbers"]] == [one.name for one in lesson.numbers]
        assert all(one.name in shown for one in lesson.numbers)


def test_the_command_says_that_its_times_are_simulated(tmp_path, capsys):
    file = tmp_path / "lessons.json"
    assert main(["--quick", "--only", "speculation", f"--json={file}"]) == 0
    assert "times are simulated" in capsys.readouterr().out
    assert json.loads(file.read_text())["times"] == "simulated"


def test_the_cost_model_lesson_stands_alone(tmp_path):
    file = tmp_path / "lessons.json"
    assert main(["--quick", "--only", "cost-model", f"--json={file}"]) == 0
    assert [len(lesson["numbers"]) for lesson in json.loads(file.read_text())["lessons"]] == [4]
