"""What a speaker asks of the app: the stage reset, and marks in the stream."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from tests.app.fakes import until
from tests.app.processes import Served

Json = dict[str, Any]
LONG = {"model": "default", "prompt": "a story", "max_tokens": 400, "ignore_eos": True}


def recorded(client: httpx.Client) -> list[Json]:
    lines = gzip.decompress(client.get("/api/recording").content).decode().splitlines()
    return [json.loads(line) for line in lines]


def reset(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/api/engine", json={"action": "reset", **body})


def start_one(shared: Served) -> str:
    """A request that is running; its id."""
    data = {"prompt": "a story", "max_tokens": "400", "ignore_eos": "on"}
    shared.client.post("/prompts", data=data, headers={"hx-request": "true"}).raise_for_status()
    (request,) = until(lambda: shared.state()["queues"]["running"], "a running request")
    return str(request)


def test_a_reset_with_live_requests_needs_force_and_says_how_many(shared: Served) -> None:
    request = start_one(shared)
    refused = reset(shared.client)
    assert refused.status_code == 409
    assert refused.json()["error"]["message"].startswith("1 request is live and would be cancelled; reset with force")
    assert request in shared.state()["queues"]["running"]
    assert reset(shared.client, force=True).json() == {"ok": True, "effect": "live", "ended": 1}


def test_a_reset_ends_requests_and_clears_what_was_but_not_the_knobs(shared: Served) -> None:
    shared.client.patch("/api/config", json={"max_num_seqs": 3}).raise_for_status()
    start_one(shared)
    shared.client.post("/api/marks", json={"text": "gone soon"}).raise_for_status()
    reset(shared.client, force=True).raise_for_status()
    state = shared.state()
    assert (state["requests"], state["finished"], state["marks"], state["last_step"]) == ({}, [], [], None)
    assert state["blocks"]["counts"]["free"] == state["blocks"]["total"]
    assert state["config"]["max_num_seqs"] == 3
    assert state["invariants"]["ok"]
    assert shared.client.get("/api/steps").json()["steps"] == []
    assert {event["kind"] for event in recorded(shared.client)} <= {"hello", "key", "reply", "beat"}
    assert "a story" not in shared.client.get("/").text


def test_a_stream_that_a_reset_ends_is_told_so(shared: Served) -> None:
    with shared.client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        lines = response.iter_lines()
        next(lines)
        reset(shared.client, force=True).raise_for_status()
        told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert told[-1]["choices"][0]["finish_reason"] == "abort"


def test_a_mark_stands_in_state_and_recording_at_its_step(shared: Served) -> None:
    text = "<b>look</b> \U0001f441"
    answer = shared.client.post("/api/marks", json={"text": f" {text}\n"})
    assert answer.json() == {"ok": True, "effect": "live", "text": text}
    state = shared.state()
    assert state["marks"][-1] == {"step": state["step"], "text": text}
    (mark,) = [event for event in recorded(shared.client) if event["kind"] == "mark"]
    assert (mark["step"], mark["text"]) == (state["step"], text)


@pytest.mark.parametrize("text", [None, 3, "", "  ", "x" * 201])
def test_a_bad_mark_is_400_and_names_the_field(shared: Served, text: Any) -> None:
    response = shared.client.post("/api/marks", json={"text": text})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "text")


def test_a_mark_from_another_origin_is_refused(shared: Served) -> None:
    response = shared.client.post("/api/marks", json={"text": "x"}, headers={"origin": "https://elsewhere.example"})
    assert response.status_code == 403
