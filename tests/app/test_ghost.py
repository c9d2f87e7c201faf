"""POST /api/ghost: the last run under other settings, simulated."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app import ghost
from engine.recording import Recording, split_epochs
from engine.summary import summarize
from tests.app.fakes import FakeEngine, Running, until
from tests.app.processes import Served, serving
from tests.app.test_api import Later


def ask(client: httpx.Client, **settings: Any) -> httpx.Response:
    return client.post("/api/ghost", json=settings)


def read(response: httpx.Response) -> Recording:
    assert response.status_code == 200, response.text
    lines = gzip.decompress(response.content).decode().splitlines()
    return split_epochs(map(json.loads, lines))


def play(served: Served, *lengths: int) -> None:
    """Requests of these output lengths, all at once; waits for their ends."""
    body = {"model": "default", "prompt": "On and on", "ignore_eos": True}
    calls = [
        Later(lambda n=n: served.client.post("/v1/completions", json={**body, "max_tokens": n}))  # type: ignore[misc]
        for n in lengths
    ]
    for call in calls:
        call.response().raise_for_status()


@pytest.fixture(scope="module")
def played() -> Any:
    """A server that has taken two runs: one request, then nine."""
    with serving("--scripted-step-ms", "2", "--max-num-seqs", "4") as served:
        play(served, 5)
        play(served, 40, 6, 6, 6, 40, 6, 6, 6, 6)
        yield served


def test_the_last_run_under_static_batching_takes_more_steps(played: Served) -> None:
    same, static = (summarize(read(ask(played.client, **given))) for given in ({}, {"batching": "static"}))
    assert (same.num_finished, static.num_finished) == (9, 9)
    assert same.output_tokens == static.output_tokens == 122
    assert static.num_steps > same.num_steps


def test_a_ghost_says_that_it_is_simulated_and_holds_no_text(played: Served) -> None:
    recording = read(ask(played.client, batching="static"))
    assert recording.hello["simulated"] is True
    assert recording.hello["config"]["batching"] == "static"
    assert not [event for event in recording.events if event["kind"] == "text"]


def test_without_chunked_prefill_the_budget_holds_a_whole_prompt(played: Served) -> None:
    config = read(ask(played.client, enable_chunked_prefill=False)).hello["config"]
    assert config["max_num_batched_tokens"] >= config["max_model_len"]


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"batching": "dynamic"}, "batching"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_seqs": "two"}, "max_num_seqs"),
        ({"num_blocks": None}, "num_blocks"),
        ({"model": "other"}, "model"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_bad_setting_is_named(played: Served, settings: dict[str, Any], param: str) -> None:
    response = ask(played.client, **settings)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert param.replace("_", "-") in error["message"].replace("_", "-")


def test_what_the_simulator_refuses_is_told_in_its_words(played: Served) -> None:
    response = ask(played.client, speculative="ngram:2")
    assert response.status_code == 409
    assert "cannot be simulated" in response.json()["error"]["message"]


def test_before_anything_was_answered_there_is_nothing_to_simulate(engine: FakeEngine, client: httpx.Client) -> None:
    response = ask(client, batching="static")
    assert response.status_code == 409
    message = response.json()["error"]["message"]
    assert message == "The last run holds no request that was answered: there is nothing to replay."


def test_without_an_engine_there_is_nothing_to_simulate(client: httpx.Client) -> None:
    assert ask(client, batching="static").status_code == 503


def test_a_simulation_that_takes_too_long_is_ended(
    monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, client: httpx.Client
) -> None:
    monkeypatch.setattr(ghost, "LIMIT_S", 0.0)
    response = ask(client, batching="static")
    assert response.status_code == 409
    assert "too long" in response.json()["error"]["message"]


def test_a_few_wait_for_their_turn_and_more_are_refused(
    monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, client: httpx.Client
) -> None:
    monkeypatch.setattr(ghost, "MOST_IN_LINE", 2)
    calls = [Later(lambda: ask(client, batching="static")) for _ in range(3)]
    answers = [call.response() for call in calls]
    assert sorted(answer.status_code for answer in answers) == [409, 409, 429]
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)


async def endless(*_: Any) -> tuple[int, str]:
    """In place of a simulation."""
    await asyncio.Event().wait()
    return 0, ""


def test_a_ghost_ends_with_the_client_that_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, client: httpx.Client
) -> None:
    monkeypatch.setattr(ghost, "MOST_IN_LINE", 1)
    with monkeypatch.context() as patched:
        patched.setattr(ghost, "_run", endless)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/api/ghost", json={}, timeout=0.5)
    answer = until(lambda: (answer := ask(client)).status_code != 429 and answer, "a free place in the line")
    assert answer.status_code == 409


def test_closing_the_app_ends_a_ghost_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    begun = threading.Event()
    monkeypatch.setattr(ghost, "_run", lambda *_: begun.set() or endless())
    call = Later(lambda: ask(client))
    assert begun.wait(10)
    server.stop()
    response = call.response()
    assert response.status_code == 503
    assert "shutting down" in response.json()["error"]["message"]


# -- a run that goes on ------------------------------------------------------------------------------------------


@pytest.fixture
def halfway() -> Iterator[Served]:
    """A server whose gate was closed in the middle of a run: one request has ended, one runs, one waits."""
    with serving("--scripted-step-ms", "2", "--max-num-seqs", "2") as served:
        for length in (600, 3, 600, 600):
            fields = {"prompt": "On and on", "ignore_eos": "on", "max_tokens": str(length)}
            served.client.post("/prompts", data=fields, headers={"HX-Request": "true"}).raise_for_status()
        until(lambda: served.state()["totals"]["finished"]["length"] and len(served.state()["queues"]["running"]) == 2)
        served.client.post("/api/gate", json={"action": "pause"})
        yield served


def test_a_ghost_of_a_run_that_goes_on_says_what_it_cut_and_left_out(halfway: Served) -> None:
    recording = read(ask(halfway.client, batching="static"))
    assert recording.hello["replayed"] == {"requests": 3, "cut": 2, "left_out": 1}
    assert summarize(recording).num_finished == 3


def test_until_leaves_out_what_came_after_an_event(halfway: Served) -> None:
    seq = halfway.state()["seq"]
    halfway.client.post("/api/gate", json={"action": "step", "steps": 20})
    until(lambda: halfway.state()["gate"]["steps_left"] == 0)
    sizes = [
        summarize(read(halfway.client.post(f"/api/ghost{query}", json={}))).output_tokens
        for query in (f"?until={seq}", "")
    ]
    assert sizes[1] == sizes[0] + 40


def test_lines_of_text_go_with_what_is_before_them() -> None:
    lines = [step("e", 1), json.dumps({"kind": "text"}), step("e", 2)]
    assert ghost.said_until([*lines, lines[1]], 1) == lines[:2]


def test_until_counts_in_the_newest_epoch() -> None:
    lines = [step("old", 1), step("old", 9), step("new", 1), step("new", 2)]
    assert ghost.said_until(lines, 1) == lines[:3]
    assert ghost.said_until(lines, 0) == lines[:2]


def step(epoch: str, seq: int) -> str:
    return json.dumps({"kind": "step", "epoch": epoch, "seq": seq})
