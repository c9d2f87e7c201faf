"""The gate closes after the step that hits a breakpoint, and says which."""

import pytest

from engine import events
from engine.breakpoints import Breakpoints
from engine.errors import RequestError
from engine.gate_action import GateAction
from tests.engine.harness import Harness


def run_until_hit(engine: Harness, *on: str) -> events.Gate:
    engine.gate("break", breakpoints=Breakpoints(on))
    while engine.core.can_step:
        engine.step(1000)
    gate: events.Gate = engine.of(events.Gate)[-1]
    assert gate.state == "paused"
    engine.check()
    return gate


def test_break_on_preempt():
    engine = Harness(num_blocks=6)
    engine.add("a" * 40, 60)
    second = engine.add("b" * 30, 60)
    gate = run_until_hit(engine, "preempt")
    assert gate.hit == {"on": "preempt", "step": engine.of(events.Step)[-1].step, "request": second.request_id}
    assert engine.of(events.Step)[-1].seq < gate.seq  # the step is told before the gate closes behind it


def test_break_on_refused_admission():
    engine = Harness(num_blocks=6)
    engine.add("a" * 60, 30)
    second = engine.add("b" * 60, 30)
    assert run_until_hit(engine, "refused").hit["request"] == second.request_id


def test_break_on_prefix_hit():
    engine = Harness()
    engine.add("a" * 40, 2)
    engine.run()
    again = engine.add("a" * 40, 2)
    assert run_until_hit(engine, "prefix_hit").hit["request"] == again.request_id


def test_break_on_eviction():
    engine = Harness(num_blocks=4)
    engine.add("a" * 40, 2)
    engine.run()
    engine.add("b" * 60, 2)
    assert run_until_hit(engine, "eviction").hit["step"] == 3


def test_break_on_first_token_and_on_finish():
    engine = Harness()
    request = engine.add("abc", 3)
    assert run_until_hit(engine, "finish", "first_token").hit["on"] == "first_token"
    engine.gate("run")
    assert run_until_hit(engine, "finish").hit == {"on": "finish", "step": 3, "request": request.request_id}


def test_break_on_a_chosen_request():
    engine = Harness(max_num_seqs=1)
    engine.add("a", 3)
    second = engine.add("b", 3)
    assert run_until_hit(engine, f"request:{second.request_id}").hit["step"] == 4


def test_break_on_a_slow_step():
    engine = Harness()
    engine.add("a", 9)
    engine.gate("break", breakpoints=Breakpoints(["slow_step:5"]))
    engine.step(1000)
    assert engine.core.gate.open
    engine.core.timer.idle()

    def slow(batch):
        engine.clock.advance(6000)
        return batch

    engine.runner.prepare = slow
    engine.step()
    assert engine.core.gate.hit.on == "slow_step:5"


def test_break_on_a_condition():
    engine = Harness(max_num_seqs=1)
    for _ in range(4):
        engine.add("a", 2)
    assert run_until_hit(engine, "if:waiting < 2").hit["step"] == 5


def test_running_on_forgets_the_hit_but_not_the_breakpoint():
    engine = Harness()
    engine.add("abc", 3)
    run_until_hit(engine, "first_token")
    engine.gate("run")
    assert engine.core.gate.hit is None
    assert engine.core.gate.breakpoints.texts == ["first_token"]
    engine.check()


def test_a_breakpoint_ends_a_counted_run_of_steps():
    engine = Harness()
    engine.add("abc", 9)
    engine.gate("step", steps=5)
    assert run_until_hit(engine, "first_token").hit["step"] == 1
    assert engine.core.gate.steps_left == 0


@pytest.mark.parametrize(
    "text", ["", "nonsense", "slow_step", "slow_step:nan", "slow_step:-1", "request:", "if:x", "preempt:R1"]
)
def test_a_breakpoint_that_makes_no_sense_is_refused(text):
    with pytest.raises(RequestError):
        Breakpoints([text])


def test_too_many_breakpoints_are_refused():
    with pytest.raises(RequestError, match="limit is 32"):
        Breakpoints([f"slow_step:{n}" for n in range(33)])


def test_a_rate_spaces_the_steps_and_marks_them():
    engine = Harness()
    request = engine.add("abc", 4)
    engine.gate("rate", per_second=10)
    engine.step()
    assert engine.core.wait_us == 100_000
    engine.clock.advance(40_000)
    assert engine.core.wait_us == 60_000
    assert engine.of(events.Step)[-1].gated
    engine.run()
    assert request.gated_us > 0
    engine.gate("rate", per_second=None)
    assert engine.core.wait_us == 0
    engine.check()


@pytest.mark.parametrize("text", ["request:\ud800", "if:\udfff", "\ud800"])
def test_a_breakpoint_that_is_not_text_is_refused(text):
    """It would be shown again, and could not be."""
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        GateAction.from_body({"action": "break", "on": [text]})
