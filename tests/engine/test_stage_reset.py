"""The stage reset: every request ends, what was is forgotten, and the knobs stay as they were."""

from engine import events
from engine.breakpoints import Breakpoints
from tests.engine.harness import Harness

PROMPT = "the same words for everybody who asks" * 2


def busy() -> Harness:
    """Requests that run, wait and have ended; a cache with something in it; turned knobs; a hit breakpoint."""
    engine = Harness(max_num_seqs=2, num_blocks=24)
    engine.add(PROMPT, max_tokens=2)
    engine.run()
    for _ in range(4):
        engine.add(PROMPT, max_tokens=40)
    engine.core.configure({"max_num_batched_tokens": 40})
    engine.gate("break", breakpoints=Breakpoints(["prefix_hit"]))
    engine.step()
    engine.core.mark("before")
    assert engine.core.gate.hit is not None
    return engine


def test_every_request_ends_with_its_reason():
    engine = busy()
    live = list(engine.scheduler.requests)
    engine.core.reset()
    ended = engine.of(events.Finished)[1:]
    assert [event.request for event in ended] == live
    assert {(event.reason, event.detail) for event in ended} == {("abort", "stage_reset")}


def test_cache_and_history_are_empty_and_nothing_is_live():
    engine = busy()
    engine.core.reset()
    engine.check()
    state = engine.state()
    assert state["requests"] == {}
    assert (state["finished"], state["marks"], state["last_step"]) == ([], [], None)
    assert state["blocks"]["counts"]["free"] == 24


def test_knobs_gate_and_counters_stay_as_they_were():
    engine = busy()
    before = engine.state()
    engine.core.reset()
    after = engine.state()
    assert after["config"] == before["config"]
    assert after["gate"] == {**before["gate"], "hit": None}
    assert after["step"] == before["step"]
    assert after["totals"]["steps"] == before["totals"]["steps"]


def test_what_is_asked_afterwards_goes_as_in_a_new_engine():
    engine, new = busy(), Harness(max_num_seqs=2, num_blocks=24, max_num_batched_tokens=40)
    engine.core.reset()
    engine.gate("run")
    engine.gate("break", breakpoints=Breakpoints())
    tables = []
    for each in (engine, new):
        request = each.add(PROMPT, max_tokens=4)
        each.step()
        each.step()
        tables.append((list(request.block_table), request.num_cached_tokens, request.slot))
    assert tables[0] == tables[1]


def test_a_reset_of_an_idle_engine_twice_does_no_harm():
    engine = Harness()
    engine.core.reset()
    engine.core.reset()
    engine.check()
    assert engine.state()["num_resets"] == 2
