"""Why a request is where it is: /api says it from a running engine's own words, whoever asks and however late."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.fakes import until
from tests.app.processes import ROOT, Served, serving


@pytest.fixture(scope="module")
def crowded() -> Iterator[Served]:
    """Eight answers in so few blocks that they do not fit, held at the second preemption of one request."""
    with serving("--num-blocks", "40", "--max-num-batched-tokens", "64") as served:
        served.client.post("/api/gate", json={"action": "break", "on": ["preempt"]}).raise_for_status()
        for number in range(8):
            served.client.post("/prompts", data={"prompt": f"{number} is my number", "max_tokens": "300"})
        hit = hold(served)
        while served.state()["requests"][hit["request"]]["num_preemptions"] < 2:
            served.client.post("/api/gate", json={"action": "run"}).raise_for_status()
            hit = hold(served, after=hit["step"])
        yield served


def hold(served: Served, after: int = 0) -> dict[str, Any]:
    """Wait for the next breakpoint; returns what it hit."""
    return dict(until(lambda: (hit := served.state()["gate"]["hit"]) and hit["step"] > after and hit, "a preemption"))


def asked(served: Served, request: str) -> dict[str, Any]:
    value: dict[str, Any] = served.client.get(f"/api/requests/{request}").json()
    return value


def test_a_preempted_request_says_who_forced_it_what_it_held_what_it_lost_and_how_often(crowded: Served) -> None:
    state = crowded.state()
    item = asked(crowded, state["gate"]["hit"]["request"])
    told = [event for event in item["timeline"] if event["event"] == "preempted"]
    assert [event["num_preemptions"] for event in told] == list(range(1, len(told) + 1))
    assert len(told) == item["request"]["num_preemptions"] >= 2
    assert sum(event["num_lost_tokens"] for event in told) == item["request"]["num_lost_tokens"]
    last = told[-1]
    assert last["by"] in state["requests"]
    assert last["needed"] > last["free"]
    assert last["num_held_blocks"] * 16 >= last["num_lost_tokens"] > 0


def test_a_waiting_request_says_why_and_where_that_was_decided(crowded: Served) -> None:
    waiting = crowded.state()["queues"]["waiting"]
    reasons = [asked(crowded, request)["request"]["reason"] for request in waiting]
    assert [reason["code"] for reason in reasons] == ["after_preemption"] + ["behind_head"] * (len(waiting) - 1)
    for reason in reasons:
        path, line = re.fullmatch(r"(engine/\w+\.py):(\d+)", reason["source"]).groups()  # type: ignore[union-attr]
        assert reason["code"] in (ROOT / path).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_a_reader_who_comes_after_the_step_is_told_the_same(crowded: Served) -> None:
    hit = crowded.state()["gate"]["hit"]
    body = crowded.client.get(f"/api/steps?since={hit['step'] - 1}").json()
    assert [step["step"] for step in body["steps"]] == [hit["step"]]
    told = [event for event in body["requests"] if event["event"] == "preempted" and event["request"] == hit["request"]]
    item = [event for event in asked(crowded, hit["request"])["timeline"] if event["event"] == "preempted"]
    assert [event["num_held_blocks"] for event in told] == [item[-1]["num_held_blocks"]]
    assert [event["by"] for event in told] == [item[-1]["by"]]


def test_a_more_urgent_request_takes_the_slot_of_another() -> None:
    """`priority` of the body is vLLM's: lower is more urgent, under --scheduling-policy priority."""
    with serving("--max-num-seqs", "1", "--scheduling-policy", "priority", "--start-paused") as served:

        def submit(**fields: str) -> str:
            before = set(served.state()["requests"])
            served.client.post("/prompts", data={"prompt": "hello", "max_tokens": "50", **fields})
            new = until(lambda: set(served.state()["requests"]) - before, "the request's arrival")
            return str(new.pop())

        def step() -> None:
            number = served.state()["step"]
            served.client.post("/api/gate", json={"action": "step", "steps": 1}).raise_for_status()
            until(lambda: served.state()["step"] == number + 1, "one step")

        calm = submit()
        step()
        urgent = submit(priority="-1")
        step()
        state = served.state()
        assert state["queues"] == {"waiting": [calm], "running": [urgent]}
        assert asked(served, calm)["timeline"][-1]["by"] == urgent
        assert state["requests"][urgent]["priority"] == -1
