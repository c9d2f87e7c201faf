"""Settings are changed as a whole, live where the engine can, by a restart where it cannot."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.app.fakes import until
from tests.app.processes import serving


@pytest.fixture(scope="module")
def client():
    with serving("--num-blocks", "40", "--max-num-seqs", "2") as server, httpx.Client(base_url=server.url) as client:
        yield client


def error(response: httpx.Response) -> dict:
    return response.json()["error"]


def test_each_setting_says_how_it_would_take_effect(client):
    effects = client.get("/api/config").json()["effects"]
    assert (effects["max_queue"], effects["max_num_seqs"], effects["num_blocks"]) == ("live", "next_step", "restart")


def test_a_knob_is_turned_live(client):
    answer = client.patch("/api/config", json={"max_num_seqs": 5, "scheduling_policy": "priority"})
    assert answer.json()["effects"] == {"max_num_seqs": "next_step", "scheduling_policy": "next_step"}
    assert client.get("/api/config").json()["config"]["max_num_seqs"] == 5
    assert client.get("/api/state").json()["config"]["scheduling_policy"] == "priority"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing to change"),
        ({"max_num_seq": 3}, "no setting"),
        ({"max_num_seqs": "many"}, "must be int"),
        ({"max_num_seqs": 0}, "--max-num-seqs is 0"),
        ({"max_num_seqs": 3, "force": 1}, "force must be true or false"),
        ({"block_size": 1000}, "--block-size is 1000"),
        ({"num_blocks": 10**12}, "--num-blocks is 1000000000000; it must be at most"),
        ({"max_queue": 10**400}, "it must be at most"),
        ({"model": "a\0b"}, "--model is not text"),
        ({"model": "\ud800"}, "--model is not text"),
        ({"model": "/no/such/model"}, "/no/such/model"),
        ({"model": "~no-such-user-here/model"}, "cannot be read"),
        ({"model": "/" + "a" * 5000}, "cannot be read"),
        ({"model": ""}, "--model is empty"),
        ({"cost_model": "a\0b"}, "--cost-model is not text"),
        ({"speculative": "draft:\ud800:3"}, "--speculative is not text"),
        ({"simulate": True, "cost_model": "/no/such/file"}, "--cost-model /no/such/file cannot be used"),
        ({"\ud800": 1}, "no setting"),
        ({"batching": "dynamic"}, "continuous, static"),
    ],
)
def test_a_bad_change_is_refused_and_nothing_changes(client, changes, said):
    before = client.get("/api/config").json()["config"]
    answer = client.patch("/api/config", content=json.dumps(changes))
    assert answer.status_code == 400
    assert said in error(answer)["message"]
    assert client.get("/api/config").json()["config"] == before


def test_the_gate_takes_a_rate_and_breakpoints(client):
    answer = client.post("/api/gate", json={"action": "rate", "per_second": 5}).json()
    assert answer["gate"]["per_second"] == 5
    answer = client.post("/api/gate", json={"action": "break", "on": ["preempt", "if:waiting > 3"]}).json()
    assert answer["gate"]["breaks"] == ["preempt", "if:waiting > 3"]
    client.post("/api/gate", json={"action": "rate", "per_second": None})
    client.post("/api/gate", json={"action": "break", "on": []})


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "rate", "per_second": "fast"}, "per_second"),
        ({"action": "rate", "per_second": 0}, "per_second"),
        ({"action": "break", "on": "preempt"}, "on"),
        ({"action": "break", "on": ["if:import os"]}, "on"),
        ({"action": "step", "steps": 0}, "steps"),
        ({"action": "fly"}, "action"),
    ],
)
def test_the_gate_refuses_by_name(client, body, param):
    answer = client.post("/api/gate", json=body)
    assert answer.status_code == 400
    assert error(answer)["param"] == param


def test_the_pool_is_resized_by_a_restart_that_keeps_the_knobs(client):
    epoch = client.get("/api/state").json()["epoch"]
    client.patch("/api/config", json={"watermark": 0.1})
    answer = client.patch("/api/config", json={"num_blocks": 64})
    assert answer.json()["effects"] == {"num_blocks": "restart"}
    assert answer.json()["config"]["num_blocks"] == 64
    state = wait_for_new_epoch(client, epoch)
    assert state["config"]["num_blocks"] == state["blocks"]["total"] == 64
    assert state["config"]["watermark"] == 0.1


def test_settings_with_which_no_engine_comes_up_are_given_up(client):
    """It says what was wrong; a plain restart then goes on with the last good ones, knobs turned live included."""
    epoch = client.get("/api/state").json()["epoch"]
    client.patch("/api/config", json={"watermark": 0.2})
    unchunked = {"enable_chunked_prefill": False, "max_num_batched_tokens": 64, "num_blocks": 48}
    client.patch("/api/config", json=unchunked).raise_for_status()
    until(lambda: "--no-enable-chunked-prefill needs" in client.get("/readyz").text, "what was wrong")
    client.post("/api/engine", json={"action": "restart"}).raise_for_status()
    state = wait_for_new_epoch(client, epoch)
    assert state["config"]["watermark"] == 0.2
    assert state["config"]["enable_chunked_prefill"]
    assert state["config"]["num_blocks"] != 48


def wait_for_new_epoch(client: httpx.Client, old: str) -> dict:
    while True:
        answer = client.get("/api/state")
        if answer.status_code == 200 and answer.json()["epoch"] != old and answer.json()["status"] == "ready":
            return answer.json()
