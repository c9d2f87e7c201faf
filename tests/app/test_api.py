"""/api and the probes: the folded state as JSON, and the few actions."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app import api
from app.hub import REPLY_TIMEOUT_S, Hub
from app.settings import Settings, ShareText
from app.state_view import failed_invariants
from tests.app.fakes import FakeEngine, Json, LocalEngine, Running, row, running, until


def caught_up(server: Running, engine: FakeEngine) -> None:
    until(lambda: server.hub.engines["main"].seq == engine.seq, "the hub to have caught up")


class Later:
    """An HTTP call in a thread, for calls that wait until the engine answers."""

    def __init__(self, call: Callable[[], httpx.Response]) -> None:
        self._responses: list[httpx.Response] = []
        self._thread = threading.Thread(target=lambda: self._responses.append(call()), daemon=True)
        self._thread.start()

    def response(self) -> httpx.Response:
        self._thread.join(10)
        return self._responses[0]


# -- state -----------------------------------------------------------------------------------------------------


def test_the_state_is_flat_and_equal_to_the_engines(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0]]])
    caught_up(server, engine)
    state = client.get("/api/state").json()
    assert engine.state is not None
    assert {name: state[name] for name in engine.state} == engine.state
    assert (state["hub"], state["engine"], state["epoch"]) == (server.hub.id, "main", engine.epoch)
    assert state["status"] == "ready"
    assert state["model"]["name"] == "scripted"
    assert state["invariants"] == {"ok": True, "failed": []}


def test_a_loading_engine_has_a_state_of_nulls(server: Running, client: httpx.Client) -> None:
    FakeEngine(server).dial().say("load", phase="read", done=1, total=4, unit="tensors")
    until(lambda: server.hub.engines)
    state = client.get("/api/state").json()
    assert (state["status"], state["step"], state["model"]) == ("loading", None, None)


def test_without_an_engine_the_state_is_503(client: httpx.Client) -> None:
    assert client.get("/api/state").status_code == 503


def test_an_unknown_engine_is_404(engine: FakeEngine, client: httpx.Client) -> None:
    assert client.get("/api/state?engine=nobody").status_code == 404


def test_with_several_engines_one_has_to_be_named(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    FakeEngine(server, "other").dial().greet()
    until(lambda: "other" in server.hub.engines)
    assert client.get("/api/state").status_code == 400
    assert client.get("/api/state?engine=main").json()["engine"] == "main"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda s: s["blocks"]["counts"].update(free=99), "free + cached idle + referenced == total"),
        (lambda s: s["blocks"]["refs"].__setitem__(0, 2), "ref == number of block tables that hold the block"),
        (lambda s: s["queues"]["waiting"].append("R1"), "exactly one of waiting, running, finished"),
    ],
)
def test_a_broken_invariant_is_named(engine: FakeEngine, spoil: Callable[[Json], None], sentence: str) -> None:
    engine.arrived("R1")
    assert engine.state is not None
    assert failed_invariants(engine.state) == []
    spoil(engine.state)
    assert any(sentence in failed for failed in failed_invariants(engine.state))


# -- steps -----------------------------------------------------------------------------------------------------


def test_steps_are_those_after_since_oldest_first(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    for number in range(1, 8):
        engine.step(number)
    caught_up(server, engine)
    steps = client.get("/api/steps?since=2&limit=3").json()["steps"]
    assert [step["step"] for step in steps] == [3, 4, 5]
    assert steps[0]["kind"] == "step"


@pytest.mark.parametrize("query", ["since=-1", "since=x", "limit=1e3", "since=²"])
def test_a_bad_step_query_is_400(engine: FakeEngine, client: httpx.Client, query: str) -> None:
    assert client.get(f"/api/steps?{query}").status_code == 400


def test_steps_come_with_what_they_did_to_requests(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0]]])
    engine.first_token("R1")
    engine.preempted("R1", by="R2", num_held_blocks=1)
    engine.step(2)
    engine.finished("R1", "abort")
    caught_up(server, engine)

    def told(query: str) -> list[tuple[int, str]]:
        return [(event["step"], event["event"]) for event in client.get(f"/api/steps?{query}").json()["requests"]]

    assert told("since=0") == [(1, "admitted"), (1, "first_token"), (2, "preempted")]
    assert told("since=1") == [(2, "preempted")]
    assert told("since=0&limit=1") == [(1, "admitted"), (1, "first_token")]
    (preempted,) = client.get("/api/steps?since=1").json()["requests"]
    assert (preempted["request"], preempted["by"], preempted["num_held_blocks"]) == ("R1", "R2", 1)


# -- requests --------------------------------------------------------------------------------------------------


def test_a_request_has_its_timeline_and_timings(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    engine.admitted("R1", cached=3)
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0]]])
    engine.first_token("R1")
    engine.finished("R1", tokens=1, queue_us=5, ttft_us=9)
    caught_up(server, engine)
    item = client.get("/api/requests/R1").json()
    assert [entry["event"] for entry in item["timeline"]] == ["arrived", "admitted", "step", "first_token", "finished"]
    assert (item["status"], item["request"]["num_cached_tokens"]) == ("finished", 3)
    assert (item["timings"]["queue_us"], item["timings"]["ttft_us"], item["timings"]["tpot_us"]) == (5, 9, None)
    assert client.get("/api/requests/chatcmpl-R1").json()["id"] == "R1"
    assert [request["id"] for request in client.get("/api/requests").json()["requests"]] == ["R1"]


def test_a_live_request_has_the_timings_that_are_defined_so_far(
    server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    arrived = engine.arrived("R1")
    admitted = engine.admitted("R1")
    caught_up(server, engine)
    timings = client.get("/api/requests/R1").json()["timings"]
    assert timings["queue_us"] == admitted["scheduled_us"] - arrived["arrival_us"]
    assert timings["ttft_us"] is None


def test_a_request_is_remembered_after_the_state_has_dropped_it(
    server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    for number in range(40):
        engine.arrived(f"R{number}")
        engine.finished(f"R{number}", tokens=1)
    caught_up(server, engine)
    assert "R0" not in client.get("/api/state").json()["requests"]
    assert client.get("/api/requests/R0").json()["request"]["finish_reason"] == "stop"


def test_an_unknown_request_is_404(engine: FakeEngine, client: httpx.Client) -> None:
    response = client.get("/api/requests/R99")
    assert response.status_code == 404
    assert response.json()["error"]["param"] == "id"


def test_text_is_for_its_owner_only(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1", owner="somebody")
    engine.text("R1", 0, "secret words")
    until(lambda: "R1" in server.hub.ledger.entries and server.hub.ledger.entries["R1"].length)
    item = client.get("/api/requests/R1").json()
    assert (item["text"], item["prompt"]) == (None, None)
    assert "secret words" not in gzip.decompress(client.get("/api/recording").content).decode()


def test_shared_text_is_for_everybody_and_in_recordings() -> None:
    with running(Settings(share_text=ShareText.ALL)) as server:
        engine = FakeEngine(server).dial().greet()
        engine.arrived("R1", owner="somebody")
        engine.text("R1", 0, "shared words")
        until(lambda: "R1" in server.hub.ledger.entries and server.hub.ledger.entries["R1"].length)
        assert httpx.get(f"{server.url}/api/requests/R1").json()["text"] == "shared words"
        assert b"shared words" in gzip.decompress(httpx.get(f"{server.url}/api/recording").content)


def test_delete_aborts_and_twice_is_the_same_as_once(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    caught_up(server, engine)
    call = Later(lambda: client.delete("/api/requests/R1"))
    command = engine.command("abort")
    engine.finished("R1", "abort", tokens=0)
    engine.reply(command)
    assert call.response().status_code == 200
    assert client.delete("/api/requests/R1").status_code == 200
    assert client.get("/api/requests/R1").json()["request"]["finish_reason"] == "abort"


def test_a_request_of_an_engine_that_is_gone_has_ended(
    server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    engine.arrived("R1")
    caught_up(server, engine)
    engine.hang_up()
    until(lambda: client.get("/readyz").json()["status"] == "gone")
    assert client.get("/api/requests").json()["requests"][0]["finish_reason"] == "error"
    assert client.get("/api/requests/R1").json()["status"] == "finished"
    assert client.delete("/api/requests/R1").status_code == 200


# -- gate and engine -------------------------------------------------------------------------------------------


def test_the_gates_reply_is_the_answer(engine: FakeEngine, client: httpx.Client) -> None:
    call = Later(lambda: client.post("/api/gate", json={"action": "step", "steps": 3}))
    command = engine.command("gate")
    engine.say("gate", state="paused", steps_left=3)
    engine.reply(command)
    assert (command["action"], command["steps"]) == ("step", 3)
    answer = call.response().json()
    assert (answer["ok"], answer["effect"]) == (True, "live")
    assert (answer["gate"]["state"], answer["gate"]["steps_left"]) == ("paused", 3)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "action"), ({"action": "fly"}, "action"), ({"action": []}, "action"),
        ({"action": "rate", "per_second": 0}, "per_second"),
        ({"action": "break"}, "on"), ({"action": "step", "steps": 0}, "steps"),
        ({"action": "step", "steps": "2"}, "steps"), ({"action": "step", "steps": True}, "steps"),
        ({"action": "step", "steps": 10**9}, "steps"),
    ],
)  # fmt: skip
def test_a_bad_gate_action_is_400(engine: FakeEngine, client: httpx.Client, body: Json, param: str) -> None:
    response = client.post("/api/gate", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


def test_what_the_engine_refuses_is_409(engine: FakeEngine, client: httpx.Client) -> None:
    call = Later(lambda: client.post("/api/engine", json={"action": "reset_prefix_cache"}))
    engine.reply(engine.command("reset_prefix_cache"), error="2 requests run.")
    response = call.response()
    assert (response.status_code, response.json()["error"]["message"]) == (409, "2 requests run.")


def test_an_engine_that_dialled_in_cannot_be_restarted_from_here(engine: FakeEngine, client: httpx.Client) -> None:
    assert client.post("/api/engine", json={"action": "restart"}).status_code == 409


@pytest.mark.parametrize(
    "body", [{}, {"action": "explode"}, {"action": "reset", "force": 1}, {"action": "restart", "force": "yes"}]
)
def test_a_bad_engine_action_is_400(engine: FakeEngine, client: httpx.Client, body: Json) -> None:
    assert client.post("/api/engine", json=body).status_code == 400


@pytest.mark.parametrize("path", ["/api/gate", "/api/engine", "/api/marks"])
@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b"{"])
def test_a_body_that_is_no_object_is_400(engine: FakeEngine, client: httpx.Client, path: str, raw: bytes) -> None:
    assert client.post(path, content=raw).status_code == 400


def test_an_engine_that_does_not_answer_is_503(
    engine: FakeEngine, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.hub.REPLY_TIMEOUT_S", 0.2)
    assert client.post("/api/gate", json={"action": "pause"}).status_code == 503


@pytest.mark.parametrize("how", ["hang_up", "bye"])
def test_a_command_to_an_engine_that_dies_is_answered_at_once(
    engine: FakeEngine, client: httpx.Client, how: str
) -> None:
    call = Later(lambda: client.post("/api/gate", json={"action": "pause"}))
    engine.command("gate")
    asked_at = time.monotonic()
    engine.hang_up() if how == "hang_up" else engine.say("bye", reason="It broke.", origin="engine")
    answer = call.response()
    assert time.monotonic() - asked_at < 0.6 * REPLY_TIMEOUT_S
    assert answer.status_code == 503
    assert "did not answer" in answer.json()["error"]["message"]


def test_a_command_to_an_engine_that_has_left_is_answered_at_once(
    server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    engine.say("bye", reason="It broke.", origin="engine")
    until(lambda: server.hub.engines["main"].gone)
    answer = client.post("/api/gate", json={"action": "pause"})
    assert answer.json()["error"]["message"] == "Engine main cannot be reached. It broke."


def test_of_resets_at_once_one_ends_the_requests_and_the_others_are_told_of_it() -> None:
    async def four_resets() -> list[Json]:
        hub = Hub(Settings())
        engine = LocalEngine(hub).greet()
        engine.arrived("R1")
        record = hub.engines["main"]
        asked = [asyncio.ensure_future(api.reset(hub, record, force=True)) for _ in range(4)]
        await asyncio.sleep(0.01)
        command = engine.command("reset")
        assert engine.told() == []
        engine.finished("R1", "abort", tokens=0)
        engine.reply(command)
        answers = await asyncio.gather(*asked)
        asked = [asyncio.ensure_future(api.reset(hub, record, force=False))]
        await asyncio.sleep(0.01)
        engine.reply(engine.command("reset"))
        return [*answers, *await asyncio.gather(*asked)]

    first, *others, later = asyncio.run(four_resets())
    assert first == {"ok": True, "effect": "live", "ended": 1}
    assert others == [{"ok": True, "effect": "live", "ended": 0, "joined": True}] * 3
    assert later == {"ok": True, "effect": "live", "ended": 0}


def test_of_restarts_at_once_one_starts_a_process() -> None:
    class Slow:
        restarts = 0

        async def restart(self) -> None:
            self.restarts += 1
            await asyncio.sleep(0.01)

    async def three_restarts(supervisor: Any) -> list[Json]:
        hub = Hub(Settings())
        LocalEngine(hub).greet().arrived("R1")
        record = hub.engines["main"]
        record.restartable = True
        return await asyncio.gather(*(api.restart_once(supervisor, hub, record, force=True) for _ in range(3)))

    supervisor = Slow()
    answers = asyncio.run(three_restarts(supervisor))
    assert supervisor.restarts == 1
    assert [answer["ended"] for answer in answers] == [1, 0, 0]


# -- the rest --------------------------------------------------------------------------------------------------


def test_the_config_is_the_resolved_one(engine: FakeEngine, client: httpx.Client) -> None:
    assert client.get("/api/config").json()["config"]["num_blocks"] == 16


def test_a_recording_begins_with_hello_and_a_key(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    caught_up(server, engine)
    response = client.get("/api/recording")
    lines = [json.loads(line) for line in gzip.decompress(response.content).decode().splitlines()]
    assert [line["kind"] for line in lines] == ["hello", "key", "request"]
    assert response.headers["content-disposition"].endswith('.jsonl.gz"')


def test_readyz_says_loading_with_its_progress(server: Running, client: httpx.Client) -> None:
    FakeEngine(server).dial().say("load", phase="read", done=1, total=4, unit="tensors")
    until(lambda: server.hub.engines)
    response = client.get("/readyz")
    body = response.json()
    assert (response.status_code, body["status"], body["done"], body["total"]) == (503, "loading", 1, 4)


def test_readyz_says_ready_and_paused(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    assert client.get("/readyz").json()["status"] == "ready"
    engine.say("gate", state="paused", steps_left=0)
    caught_up(server, engine)
    response = client.get("/readyz")
    assert (response.status_code, response.json()["status"]) == (200, "paused")


def test_readyz_says_gone_with_its_reason(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.say("bye", reason="It was told to stop.", origin="engine")
    caught_up(server, engine)
    response = client.get("/readyz")
    assert (response.status_code, response.json()["reason"]) == (503, "It was told to stop.")


@pytest.mark.parametrize("path", ["/healthz", "/health"])
def test_the_app_is_alive_whatever_its_engine_is(client: httpx.Client, path: str) -> None:
    assert client.get(path).json() == {"status": "ok"}


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/nothing", 404), ("PUT", "/api/gate", 405)])
def test_what_is_not_there_is_said_in_the_same_shape(client: httpx.Client, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    body: Any = response.json()
    assert response.status_code == status
    assert set(body["error"]) == {"message", "type", "param", "code"}
