"""What happens when a process dies, stops or is told to end: with real processes and the scripted model."""

from __future__ import annotations

import gzip
import signal
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest

from tests.app.fakes import FakeViewer, until
from tests.app.processes import Served, alive, free

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2000, "ignore_eos": True, "stream": True}


class Stream:
    """A client's stream in a thread: its lines so far, and whether it has ended."""

    def __init__(self, served: Served) -> None:
        self.lines: list[str] = []
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._read, args=(served.url,), daemon=True)
        self.thread.start()
        until(lambda: len(self.lines) > 6, "the stream's first lines")

    def _read(self, url: str) -> None:
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=CHAT, timeout=30, verify=False) as response:
                self.lines.extend(response.iter_lines())
        except httpx.HTTPError as error:
            self.error = error

    def _lines(self) -> list[str]:
        return [line for line in self.lines if line]

    def end(self) -> str:
        """Its last line, once it has ended."""
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self._lines()[-1]


def test_a_killed_engine_is_said_to_be_gone_and_streams_end_with_an_error(served: Served) -> None:
    viewer = FakeViewer(served)
    viewer.take()
    stream = Stream(served)
    served.engine_process().send_signal(signal.SIGKILL)
    killed = time.monotonic()
    viewer.take_until(lambda: viewer.status() == "gone")
    assert time.monotonic() - killed < 2
    (bye,) = viewer.events("bye")
    seqs = [event["seq"] for frame in viewer.frames for event in frame["events"] if event["kind"] != "key"]
    assert bye["origin"] == "hub"
    assert bye["seq"] == seqs[-2] + 1
    assert "SIGKILL" in viewer.engines["main"]["reason"]
    assert '"error"' in stream.end()
    assert served.client.get("/readyz").json()["status"] == "gone"


def test_a_killed_engine_can_be_restarted_and_serves_again(served: Served) -> None:
    epoch = served.state()["epoch"]
    served.engine_process().send_signal(signal.SIGKILL)
    until(lambda: served.state()["status"] == "gone")
    reply = served.client.post("/api/engine", json={"action": "restart"})
    assert reply.json() == {"ok": True, "effect": "restart", "ended": 0}
    served.wait_ready()
    assert served.state()["epoch"] != epoch
    answer = served.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 3}).json()
    assert answer["usage"]["completion_tokens"] == 3
    recording = gzip.decompress(served.client.get("/api/recording").content)
    assert recording.count(b'"kind":"hello"') == 2
    assert recording.count(b'"kind":"bye"') == 1


def test_a_restart_with_live_requests_says_how_many_unless_forced(served: Served) -> None:
    stream = Stream(served)
    refused = served.client.post("/api/engine", json={"action": "restart"})
    assert refused.status_code == 409
    assert refused.json()["error"]["message"].startswith("1 request is live")
    pid = served.engine_process().pid
    forced = served.client.post("/api/engine", json={"action": "restart", "force": True})
    assert forced.json()["ended"] == 1
    assert '"error"' in stream.end()
    assert not alive(pid)
    served.wait_ready()


def test_a_stopped_engine_is_said_to_be_silent_and_comes_back(served: Served) -> None:
    viewer = FakeViewer(served)
    viewer.take()
    engine = served.engine_process()
    engine.suspend()
    stopped = time.monotonic()
    viewer.take_until(lambda: viewer.status() == "silent")
    assert time.monotonic() - stopped < 5
    assert served.client.get("/readyz").status_code == 503
    engine.resume()
    viewer.take_until(lambda: viewer.status() == "ready")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_within_five_seconds(served: Served, number: signal.Signals) -> None:
    viewer, stream = FakeViewer(served), Stream(served)
    viewer.take()
    engine, port = served.engine_process().pid, urlsplit(served.url).port
    began = time.monotonic()
    served.process.send_signal(number)
    assert served.process.wait(10) == 0
    assert time.monotonic() - began < 5
    assert not alive(engine)
    assert port is not None
    assert free(port)
    assert "shutting down" in stream.end()
    assert not any("Traceback" in line for line in served.errors), "".join(served.errors)


def test_an_app_that_is_killed_leaves_no_orphan(served: Served) -> None:
    engine = served.engine_process().pid
    served.process.send_signal(signal.SIGKILL)
    until(lambda: not alive(engine), "the engine's end")


def test_a_signal_while_the_engine_is_stopped_ends_it_too(served: Served) -> None:
    engine = served.engine_process()
    engine.suspend()
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(10) == 0
    assert not alive(engine.pid)


def test_a_client_that_hangs_up_in_mid_stream_is_aborted_and_its_blocks_come_back(served: Served) -> None:
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=CHAT, timeout=30, verify=False) as response:
        next(response.iter_lines())
    state = until(lambda: (state := served.state())["totals"]["finished"]["abort"] == 1 and state, "the abort")
    assert state["blocks"]["counts"]["referenced"] == 0
    assert state["invariants"] == {"ok": True, "failed": []}
