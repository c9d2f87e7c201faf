"""Bad and hostile input against a running engine: it fails alone, others go on, every block comes back."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.app.fakes import until
from tests.app.processes import Served, serving

BLOCKS, CONTEXT = 32, 256


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """A small pool and a small context, so that limits are near."""
    flags = (
        "--num-blocks",
        str(BLOCKS),
        "--max-model-len",
        str(CONTEXT),
        "--scripted-step-ms",
        "4",
        "--max-queue",
        "8",
    )
    with serving(*flags) as served:
        yield served


def chat(content: object, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}], **more}


def idle(served: Served) -> dict[str, object]:
    """The state once nothing runs; its blocks have all come back."""
    state = until(lambda: (s := served.state())["queues"] == {"waiting": [], "running": []} and s, "an idle engine")
    counts = state["blocks"]["counts"]
    assert counts["referenced"] == 0
    assert counts["free"] + counts["cached_idle"] == BLOCKS
    assert state["invariants"]["ok"]
    return dict(state["totals"])


BAD_CHATS = {
    "no messages": b'{"messages": []}',
    "missing messages": b"{}",
    "empty": json.dumps(chat("")).encode(),
    "max_tokens 0": json.dumps(chat("x", max_tokens=0)).encode(),
    "max_tokens -1": json.dumps(chat("x", max_tokens=-1)).encode(),
    "nan": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "infinity": b'{"messages": [{"role": "user", "content": "x"}], "top_p": Infinity}',
    "string": json.dumps(chat("x", top_k="5")).encode(),
    "unknown role": b'{"messages": [{"role": "wizard", "content": "x"}]}',
    "lone surrogate": rb'{"messages": [{"role": "user", "content": "\ud800"}]}',
    "lone surrogate as a name": rb'{"\ud800": 1, "messages": [{"role": "user", "content": "x"}]}',
    "null byte": rb'{"messages": [{"role": "user", "content": "a\u0000b"}]}',
    "too long": json.dumps(chat("x" * (CONTEXT + 1))).encode(),
    "not utf-8": b'{"messages": [{"role": "user", "content": "\xff"}]}',
    "not json": b"{",
    "an array": b"[]",
}


@pytest.mark.parametrize("raw", BAD_CHATS.values(), ids=BAD_CHATS.keys())
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_chat_is_400_with_a_sentence(small: Served, raw: bytes, stream: bool) -> None:
    """A15, A17, A18: also when a stream was asked for, and in words that are no exception's."""
    if stream and raw.startswith(b'{"'):
        raw = b'{"stream": true, ' + raw[1:]
    response = small.client.post("/v1/chat/completions", content=raw)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["message"].endswith(".")
    assert not any(word in error["message"] for word in ("Error", "Traceback", "Exception"))


BAD_PROMPTS = ["", [""], [], [300], [2**40], "x" * CONTEXT, [1] * CONTEXT]


@pytest.mark.parametrize("prompt", BAD_PROMPTS)
def test_a_bad_prompt_is_400(small: Served, prompt: object) -> None:
    """A12, A14."""
    assert small.client.post("/v1/completions", json={"prompt": prompt}).status_code == 400


@pytest.mark.parametrize("length", [1, CONTEXT - 1])
def test_a_prompt_that_just_fits_is_served(small: Served, length: int) -> None:
    """A12."""
    response = small.client.post("/v1/completions", json={"prompt": "x" * length})
    assert response.status_code == 200
    assert response.json()["usage"]["prompt_tokens"] == length


def test_bad_requests_disturb_nobody(small: Served) -> None:
    """A14, A18: somebody else's stream goes on to its end."""
    lines: list[str] = []

    def stream() -> None:
        body = chat("hello", stream=True, max_tokens=100, ignore_eos=True)
        with httpx.stream("POST", f"{small.url}/v1/chat/completions", json=body, timeout=30, verify=False) as response:
            lines.extend(response.iter_lines())

    thread = threading.Thread(target=stream)
    thread.start()
    for raw in BAD_CHATS.values():
        small.client.post("/v1/chat/completions", content=raw)
    for prompt in BAD_PROMPTS:
        small.client.post("/v1/completions", json={"prompt": prompt})
    thread.join(20)
    assert lines[-2] == "data: [DONE]"
    idle(small)


def test_clients_that_hang_up_leave_nothing_behind(small: Served) -> None:
    """A30: each is counted once as aborted."""
    before = idle(small)
    body = chat("hello there", stream=True, max_tokens=200, ignore_eos=True)
    for _ in range(20):
        with httpx.stream("POST", f"{small.url}/v1/chat/completions", json=body, timeout=30, verify=False) as response:
            next(response.iter_lines())
    after = idle(small)
    ended = {reason: after["finished"][reason] - before["finished"][reason] for reason in ("abort", "error")}  # type: ignore[index]
    assert ended == {"abort": 20, "error": 0}
    assert small.errors == []


def test_a_client_that_leaves_in_the_middle_of_its_body_is_nobodys_problem(small: Served) -> None:
    address = urlsplit(small.url)
    with socket.create_connection((address.hostname, address.port)) as peer:
        peer.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
    assert small.client.get("/healthz").status_code == 200
    idle(small)
    assert small.errors == []


def test_a_flood_is_answered_429_and_what_was_taken_is_finished(small: Served) -> None:
    small.client.post("/api/gate", json={"action": "pause"})
    statuses: list[int] = []

    def post() -> None:
        with contextlib.closing(httpx.Client(base_url=small.url, timeout=60, verify=False)) as client:
            response = client.post("/v1/completions", json={"prompt": "x", "max_tokens": 3})
            statuses.append(response.status_code)
            assert response.status_code == 200 or int(response.headers["retry-after"]) >= 1

    threads = [threading.Thread(target=post) for _ in range(20)]
    for thread in threads:
        thread.start()
    until(lambda: statuses.count(429) == 12, "the refusals")
    assert small.state()["totals"]["rejected"] >= 12
    small.client.post("/api/gate", json={"action": "run"})
    for thread in threads:
        thread.join(20)
    assert sorted(statuses) == [200] * 8 + [429] * 12
    idle(small)
