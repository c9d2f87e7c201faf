"""/v1: nothing before the engine has decided, every ending stated, a hang-up aborts its own request only."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from typing import Any

import httpx
import pytest

from app import completions as completions_module
from app import submit as submit_module
from tests.app.fakes import FakeEngine, Running, until

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


class Call:
    """One POST in a thread of its own."""

    def __init__(
        self, server: Running, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str
    ) -> None:
        self.lines: list[str] = []
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # hung up
            response = self._connection.getresponse()
            self.status = response.status
            self.headers = {name.lower(): value for name, value in response.getheaders()}
            while line := response.readline():
                self.lines.append(line.decode().rstrip("\n"))

    def done(self) -> Call:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self

    def hang_up(self) -> None:
        self._connection.sock.shutdown(socket.SHUT_RDWR)

    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads("\n".join(self.done().lines))
        return value

    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(line[6:]) for line in self.done().lines if line.startswith("data: {")]


# -- the shapes ------------------------------------------------------------------------------------------------


def test_a_whole_chat_answer(server: Running, engine: FakeEngine) -> None:
    call = Call(server, CHAT)
    engine.answer("Hello there", cached=4)
    body = call.json()
    assert call.status == 200
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "Hello there"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 2,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    assert "stepscope" not in body


def test_a_streamed_chat_answer_is_a_role_then_pieces_then_a_reason(server: Running, engine: FakeEngine) -> None:
    call = Call(server, {**CHAT, "stream": True})
    engine.answer("Hello there")
    chunks = call.chunks()
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "Hello there"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in chunks} == {
        (chunks[0]["id"], "chat.completion.chunk", chunks[0]["created"], "scripted")
    }
    assert not any("usage" in chunk for chunk in chunks)
    assert call.lines[-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_to_a_program_is_not_compressed(server: Running, engine: FakeEngine, stream: bool) -> None:
    call = Call(server, {**CHAT, "stream": stream}, **{"Accept-Encoding": "gzip"})
    engine.answer("Hello there " * 100)
    assert "content-encoding" not in call.done().headers
    assert any("Hello there" in line for line in call.lines)


def test_usage_comes_in_one_chunk_without_choices_when_asked_for(server: Running, engine: FakeEngine) -> None:
    call = Call(server, {**CHAT, "stream": True, "stream_options": {"include_usage": True}})
    engine.answer("Hello there")
    told = [chunk for chunk in call.chunks() if "usage" in chunk]
    assert [(chunk["choices"], chunk["usage"]["completion_tokens"]) for chunk in told] == [([], 2)]


def test_completions_stream_text(server: Running, engine: FakeEngine) -> None:
    call = Call(server, {"prompt": "x", "stream": True}, "/v1/completions")
    command = engine.answer("Hello there")
    assert command["sampling"] == {"max_tokens": 16}
    assert "".join(chunk["choices"][0]["text"] for chunk in call.chunks()) == "Hello there"
    assert call.chunks()[0]["object"] == "text_completion"


def test_timings_come_when_asked_for(server: Running, engine: FakeEngine) -> None:
    call = Call(server, {**CHAT, "stepscope": True})
    engine.answer()
    timings = call.json()["stepscope"]
    assert timings["ttft_us"] == 1900
    assert timings["tpot_us"] is None
    assert timings["ingress_us"] >= 0
    assert timings["egress_us"] is None


def test_the_submit_command_carries_what_the_engine_needs(server: Running, engine: FakeEngine) -> None:
    body = {**CHAT, "temperature": 0, "stop": ["x"], "max_tokens": 5, "seed": None}
    Call(server, body, **{"X-Request-Id": "mine"})
    command = engine.command("submit")
    assert command["messages"] == CHAT["messages"]
    assert command["sampling"] == {"temperature": 0, "stop": ["x"], "max_tokens": 5}
    assert command["label"] == "mine"
    assert command["request"] != "mine"


def test_two_requests_with_one_client_id_are_two_requests(server: Running, engine: FakeEngine) -> None:
    """A20."""
    calls = [Call(server, CHAT, **{"X-Request-Id": "same"}) for _ in range(2)]
    requests = {engine.answer()["request"] for _ in calls}
    assert len(requests) == 2
    assert [call.done().status for call in calls] == [200, 200]


# -- refusals come first ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_rejection_is_an_http_status_not_a_stream(server: Running, engine: FakeEngine, stream: bool) -> None:
    call = Call(server, {**CHAT, "stream": stream})
    engine.rejected(engine.command("submit")["request"], 400, "prompt has 9 tokens; the limit is 8.", "prompt")
    error = call.json()["error"]
    assert call.status == 400
    assert error == {
        "message": "prompt has 9 tokens; the limit is 8.",
        "type": "invalid_request_error",
        "param": "prompt",
        "code": None,
    }


def test_a_full_queue_is_429_with_retry_after(server: Running, engine: FakeEngine) -> None:
    call = Call(server, CHAT)
    engine.rejected(engine.command("submit")["request"], 429, "The queue is full.")
    assert call.done().status == 429
    assert int(call.headers["retry-after"]) >= 1


def test_a_command_that_the_engine_does_not_understand_is_an_error(server: Running, engine: FakeEngine) -> None:
    call = Call(server, CHAT)
    engine.reply(engine.command("submit"), error="unknown command")
    assert call.done().status == 503


def test_another_model_is_404(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json={**CHAT, "model": "gpt-4"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("model", ["scripted", "default", None])
def test_the_served_name_default_and_none_are_the_model(server: Running, engine: FakeEngine, model: str | None) -> None:
    call = Call(server, {**CHAT, "model": model})
    engine.answer()
    assert call.done().status == 200


def test_without_an_engine_it_is_503(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 503
    assert "retry-after" in response.headers


def test_while_the_engine_loads_it_is_503_with_the_reason(server: Running, client: httpx.Client) -> None:
    engine = FakeEngine(server).dial()
    engine.say("load", phase="read", done=1, total=4, unit="tensors")
    until(lambda: server.hub.engines)
    response = client.post("/v1/chat/completions", json=CHAT)
    assert response.status_code == 503
    assert "loading" in response.json()["error"]["message"]


def test_an_engine_that_never_answers_is_given_up_on(
    server: Running, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit_module, "ARRIVAL_TIMEOUT_S", 0.2)
    call = Call(server, CHAT)
    request = engine.command("submit")["request"]
    assert call.done().status == 503
    assert engine.command("abort")["request"] == request


def test_models_lists_the_served_one(engine: FakeEngine, client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("scripted", "model")


# -- endings ---------------------------------------------------------------------------------------------------


def begin(server: Running, engine: FakeEngine, **body: Any) -> tuple[Call, str]:
    """A request whose first word has been sent."""
    call = Call(server, {**CHAT, **body})
    request = str(engine.command("submit")["request"])
    engine.arrived(request)
    engine.admitted(request)
    engine.text(request, 0, "Hello")
    if body.get("stream"):
        until(lambda: any("Hello" in line for line in call.lines))
    return call, request


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_hangs_up_aborts_its_request(server: Running, engine: FakeEngine, stream: bool) -> None:
    call, request = begin(server, engine, stream=stream)
    call.hang_up()
    assert engine.command("abort")["request"] == request


def test_a_client_that_hangs_up_before_its_request_has_arrived_aborts_it(server: Running, engine: FakeEngine) -> None:
    call = Call(server, CHAT)
    request = engine.command("submit")["request"]
    call.hang_up()
    assert engine.command("abort")["request"] == request


def test_an_engine_that_dies_ends_the_stream_with_an_error_and_without_done(
    server: Running, engine: FakeEngine
) -> None:
    call, _ = begin(server, engine, stream=True)
    engine.hang_up()
    assert call.chunks()[-1]["error"]["type"] == "service_unavailable"
    assert "data: [DONE]" not in call.lines


def test_an_engine_that_dies_ends_a_whole_answer_with_503(server: Running, engine: FakeEngine) -> None:
    call, _ = begin(server, engine)
    engine.hang_up()
    assert call.done().status == 503


def test_a_hole_in_the_text_is_an_error_not_a_shorter_answer(server: Running, engine: FakeEngine) -> None:
    call, request = begin(server, engine, stream=True)
    engine.text(request, 50, "much later")
    assert "lost" in call.chunks()[-1]["error"]["message"]
    assert engine.command("abort")["request"] == request


def test_text_that_is_sent_again_is_not_repeated(server: Running, engine: FakeEngine) -> None:
    call, request = begin(server, engine)
    engine.text(request, 2, "llo you")
    engine.finished(request, tokens=2)
    assert call.json()["choices"][0]["message"]["content"] == "Hello you"


def test_an_abort_from_elsewhere_is_a_stated_ending(server: Running, engine: FakeEngine) -> None:
    call, request = begin(server, engine, stream=True)
    engine.finished(request, "abort", tokens=1)
    assert call.chunks()[-1]["choices"][0]["finish_reason"] == "abort"


def test_an_error_inside_the_engine_does_not_reach_the_client_as_its_text(server: Running, engine: FakeEngine) -> None:
    """A17."""
    call, request = begin(server, engine)
    engine.say(
        "request",
        event="finished",
        request=request,
        reason="error",
        detail="ZeroDivisionError: secret",
        finished_us=1,
        num_output_tokens=1,
        timings=dict.fromkeys(("queue_us", "prefill_us", "ttft_us", "decode_us", "tpot_us", "e2e_us"))
        | {"preempted_us": 0, "gated_us": 0},
    )
    assert call.done().status == 500
    assert "secret" not in "\n".join(call.lines)


def test_a_stream_that_waits_says_so_with_comments(
    server: Running, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completions_module, "COMMENT_EVERY_S", 0.1)
    call, request = begin(server, engine, stream=True)
    until(lambda: ": waiting" in call.lines)
    engine.finished(request)
    assert call.done().lines[-2] == "data: [DONE]"


def test_closing_the_app_ends_a_stream_with_its_reason(server: Running, engine: FakeEngine) -> None:
    call, _ = begin(server, engine, stream=True)
    server.stop()
    assert "shutting down" in call.chunks()[-1]["error"]["message"]
