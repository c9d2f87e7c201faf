"""The synthetic engine of the browser's benchmark says what an engine could have said."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from app.hub import Hub
from app.settings import Settings
from app.state import fold
from app.wire import encode
from benchmarks.synthetic import Crowd, Size
from tests.app.fakes import LocalEngine

SMALL = Size(num_blocks=180, slots=14, token_budget=256, prompt_tokens=(40, 300), output_tokens=(60, 400))
STEPS = 1200


def told(crowd: Crowd, steps: int = STEPS) -> list[dict[str, Any]]:
    return [crowd.hello(), *(event for _ in range(steps) for event in crowd.step())]


def test_its_state_is_what_a_fold_makes_of_its_events() -> None:
    crowd, state = Crowd(SMALL), None
    for event in told(crowd):
        state = fold(state, copy.deepcopy(event))
        if event["kind"] == "step":
            scheduled = sum(row["scheduled"] for row in event["rows"])
            assert scheduled == event["num_scheduled_tokens"] <= SMALL.token_budget
    assert state is not None
    assert state["queues"]["running"] == [request.id for request in crowd.running]
    assert state["queues"]["waiting"] == [request.id for request in crowd.waiting]
    for request in crowd.running:
        known = state["requests"][request.id]
        assert known["block_table"] == request.table
        assert (known["num_computed_tokens"], known["num_output_tokens"]) == (request.computed, request.out)
    assert state["blocks"]["refs"] == [block.ref_cnt for block in crowd.pool.blocks]
    assert state["blocks"]["hashes"] == [block.block_hash for block in crowd.pool.blocks]
    assert state["blocks"]["counts"] == state["last_step"]["blocks"]
    assert crowd.pool.problems(request.table for request in crowd.running) == []


def test_a_key_and_what_follows_give_the_next_key() -> None:
    crowd, state = Crowd(SMALL), None
    events = told(crowd)
    for event in events[: len(events) // 2]:
        state = fold(state, copy.deepcopy(event))
    later = fold(None, copy.deepcopy(crowd.key(copy.deepcopy(state))))
    for event in events[len(events) // 2 :]:
        state, later = fold(state, copy.deepcopy(event)), fold(later, copy.deepcopy(event))
    assert later == state


def test_everything_that_can_happen_to_a_request_happens() -> None:
    happened = Counter(event.get("event", event["kind"]) for event in told(Crowd(SMALL)))
    assert min(happened[name] for name in ("admitted", "first_token", "preempted", "resumed", "finished")) > 5


def test_a_hub_takes_all_of_it(caplog: pytest.LogCaptureFixture) -> None:
    hub = Hub(Settings())
    engine, crowd = LocalEngine(hub), Crowd(SMALL)
    for event in told(crowd, 300):
        engine.send_raw(encode(event))
    record = hub.engines["main"]
    assert (record.seq, record.state and record.state["step"]) == (crowd.seq, 300)
    assert engine.told() == []  # no key had to be asked for
    assert caplog.records == []
