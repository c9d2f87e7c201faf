"""The gate: paused means paused, step n means n, and what was held is not measured."""

import pytest

from engine import events
from engine.gate import Gate, GateState
from tests.engine.harness import Harness


def steps(engine: Harness) -> int:
    return len(engine.of(events.Step))


def take_all(engine: Harness) -> int:
    """Step while the gate lets it; returns how many steps that were."""
    before = steps(engine)
    while engine.core.can_step:
        engine.step()
    return steps(engine) - before


# -- by itself ---------------------------------------------------------------------------------------------------


def test_a_gate_is_open_unless_it_starts_paused():
    assert Gate(paused=False).open
    assert not Gate(paused=True).open


def test_pausing_twice_is_pausing_once():
    gate = Gate(paused=False)
    gate.pause(10)
    gate.pause(20)
    assert gate.held_us(30) == 20


def test_running_twice_is_running_once():
    gate = Gate(paused=True, now_us=0)
    gate.run(10)
    gate.run(20)
    assert gate.held_us(30) == 10


def test_held_spans_add_up():
    gate = Gate(paused=False)
    for start in (10, 30):
        gate.pause(start)
        gate.run(start + 5)
    assert gate.held_us(100) == 10


def test_single_steps_are_held_time_too():
    gate = Gate(paused=False)
    gate.step(2, 10)
    gate.took_step(0)
    assert gate.held_us(50) == 40


def test_a_moment_before_the_gate_was_held_has_no_held_time():
    gate = Gate(paused=False)
    gate.pause(100)
    assert gate.held_us(90) == 0


def test_a_new_number_of_steps_replaces_what_is_left_of_the_old_one():
    gate = Gate(paused=False)
    gate.step(5, 0)
    gate.step(2, 0)
    assert gate.steps_left == 2


@pytest.mark.parametrize("action", ["pause", "run"])
def test_pause_and_run_end_single_stepping(action):
    gate = Gate(paused=False)
    gate.step(5, 0)
    getattr(gate, action)(0)
    assert gate.steps_left == 0
    assert gate.state is (GateState.PAUSED if action == "pause" else GateState.RUNNING)


# -- in the engine -----------------------------------------------------------------------------------------------


def test_a_paused_engine_takes_no_step():
    engine = Harness(start_paused=True)
    engine.add("abc")
    assert not engine.core.can_step
    assert engine.core.has_work


@pytest.mark.parametrize("count", [1, 3])
def test_step_n_takes_exactly_n(count):
    engine = Harness(start_paused=True)
    engine.add("abc", max_tokens=20)
    engine.gate("step", steps=count)
    assert take_all(engine) == count


def test_steps_that_find_no_work_are_kept_for_it():
    engine = Harness(start_paused=True)
    engine.gate("step", steps=2)
    assert take_all(engine) == 0
    engine.add("abc", max_tokens=20)
    assert take_all(engine) == 2


def test_run_goes_on_where_the_pause_held():
    engine = Harness()
    request = engine.add("abc", max_tokens=5)
    engine.step()
    engine.gate("pause")
    assert take_all(engine) == 0
    engine.gate("run")
    assert take_all(engine) == 4
    assert request.num_output_tokens == 5


def test_stepping_a_running_engine_pauses_it_after_the_steps():
    engine = Harness()
    engine.add("abc", max_tokens=20)
    engine.gate("step", steps=2)
    assert take_all(engine) == 2
    assert engine.core.gate.state is GateState.PAUSED


def test_every_move_of_the_gate_is_told():
    engine = Harness()
    engine.add("abc", max_tokens=20)
    engine.gate("pause")
    engine.gate("step", steps=2)
    take_all(engine)
    engine.gate("run")
    told = [(event.state, event.steps_left) for event in engine.of(events.Gate)]
    assert told == [("paused", 0), ("paused", 2), ("paused", 1), ("paused", 0), ("running", 0)]


def test_a_paused_engine_takes_submissions_and_says_that_they_are_held():
    engine = Harness(start_paused=True)
    request = engine.add("abc")
    (arrived,) = engine.of(events.Arrived)
    assert arrived.gate_held
    assert engine.state()["requests"][request.request_id]["reason"]["code"] == "gate_held"
    engine.check()


def test_a_paused_engine_takes_aborts():
    """A54: and the page knows at once."""
    engine = Harness()
    request = engine.add("abc" * 20)
    engine.step()
    engine.gate("pause")
    assert engine.core.abort(request.request_id)
    assert engine.folded()["blocks"]["counts"]["referenced"] == 0
    assert engine.folded()["queues"] == {"waiting": [], "running": []}
    engine.check()


def test_a_step_by_hand_is_marked_so():
    engine = Harness()
    engine.add("abc", max_tokens=20)
    engine.step()
    engine.gate("step", steps=1)
    engine.step()
    assert [step.gated for step in engine.of(events.Step)] == [False, True]


def gated_us(engine: Harness) -> list[int]:
    return [event.timings.gated_us for event in engine.of(events.Finished)]


def test_a_request_carries_the_time_that_the_gate_was_held_during_its_life():
    engine = Harness()
    engine.add("abc", max_tokens=2)
    engine.step(us=10)
    engine.gate("pause")
    engine.clock.advance(500)
    engine.gate("run")
    engine.step(us=10)
    assert gated_us(engine) == [500]


def test_a_request_that_ends_before_or_begins_after_the_pause_carries_none_of_it():
    engine = Harness()
    engine.add("abc", max_tokens=1)
    engine.step(us=10)
    engine.gate("pause")
    engine.clock.advance(500)
    engine.gate("run")
    engine.add("abc", max_tokens=1)
    engine.step(us=10)
    assert gated_us(engine) == [0, 0]


def test_a_request_that_arrives_while_paused_carries_only_its_own_share():
    engine = Harness(start_paused=True)
    engine.clock.advance(300)
    engine.add("abc", max_tokens=1)
    engine.clock.advance(200)
    engine.gate("run")
    engine.step()
    assert gated_us(engine) == [200]


def test_a_pause_between_arrival_and_queue_counts_no_more_than_it_lasted():
    """The frontend stamps the arrival; the engine's thread hears of it later."""
    engine = Harness()
    request = engine.request("abc", max_tokens=1)
    engine.clock.advance(100)
    engine.gate("pause")
    engine.core.add(request)
    engine.clock.advance(50)
    engine.gate("run")
    engine.step()
    assert gated_us(engine) == [50]


def test_an_aborted_request_carries_its_held_time_too():
    engine = Harness(start_paused=True)
    request = engine.add("abc")
    engine.clock.advance(70)
    engine.core.abort(request.request_id)
    assert gated_us(engine) == [70]
