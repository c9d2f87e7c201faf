"""What cannot be is noticed, said and stopped."""

from engine import events
from tests.engine.harness import Harness


def test_steps_that_hand_out_nothing_close_the_gate():
    """A37: the scheduler is broken by hand so that it admits nobody."""
    engine = Harness()
    engine.add("abc")
    engine.scheduler._schedule_waiting = lambda output, budget: None
    for _ in range(3):
        assert engine.core.can_step
        engine.step()
    assert not engine.core.can_step
    hit = engine.of(events.Gate)[-1].hit
    assert hit["on"] == "watchdog: 3 steps handed out nothing, though 1 wait and 32 blocks are free"


def test_a_broken_invariant_closes_the_gate_once():
    engine = Harness()
    request = engine.add("abc")
    engine.step()
    engine.scheduler.pool.blocks[request.block_table[0]].ref_cnt += 1
    engine.core.check()
    engine.core.check()
    gates = engine.of(events.Gate)
    assert len(gates) == 1
    assert gates[0].hit["on"].startswith("watchdog: block 0 has ref_cnt 2 but 1 tables hold it")


def test_a_sound_engine_is_left_alone():
    engine = Harness()
    engine.add("abc")
    engine.run()
    engine.core.check()
    assert engine.of(events.Gate) == []
