"""One browser on /ws: keyframe first, then every frame, and never a backlog."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
from collections.abc import Iterator

import pytest

from app.settings import Settings, ShareText
from app.viewers import WINDOW
from app.wire import POLICY_VIOLATION, Json, encode
from tests.app.fakes import WAIT_S, FakeEngine, FakeViewer, Running, open_socket, row, running, until


def test_a_new_viewer_gets_one_keyframe_with_hello_and_key(server: Running, engine: FakeEngine) -> None:
    frame = FakeViewer(server).take()
    assert frame["key"] is True
    assert [event["kind"] for event in frame["events"]] == ["hello", "key"]
    assert [entry["status"] for entry in frame["engines"]] == ["ready"]


def test_a_viewer_folds_to_the_engines_own_state(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    viewer.take()
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0]]])
    engine.finished("R1")
    viewer.take_until(lambda: viewer.states["main"]["finished"])
    assert viewer.states["main"] == engine.state


def test_a_viewer_that_asks_for_columns_gets_steps_so_and_all_else_as_it_is(
    server: Running, engine: FakeEngine
) -> None:
    usual, packed = FakeViewer(server), open_socket(f"{server.ws}/ws")
    packed.send(encode({"rows": "columns"}))
    usual.take()
    assert json.loads(packed.recv(timeout=WAIT_S))["key"]
    rows = [row(f"R{i}", scheduled=8, computed=8) for i in range(9)]
    for i in range(9):
        engine.arrived(f"R{i}")
        engine.admitted(f"R{i}")
    engine.step(1, *rows, tables=[["R1", [0]]])
    usual.take_until(lambda: (state := usual.states["main"]) and state["step"] == 1)
    listed = [event for frame in usual.frames[1:] for event in frame["events"]]
    told: list[Json] = []
    while len(told) < len(listed):
        told += json.loads(packed.recv(timeout=WAIT_S))["events"]
    assert told[:-1] == listed[:-1]
    assert told[-1] == {
        **listed[-1],
        "rows": {"length": 9, "columns": {**rows[0], "request": [f"R{i}" for i in range(9)]}},
    }


def test_a_viewer_that_asks_for_rows_in_another_shape_is_told_which_there_are(server: Running) -> None:
    viewer = FakeViewer(server)
    viewer.send(rows="csv")
    code, reason = viewer.take_until_closed()
    assert code == POLICY_VIOLATION
    assert reason == "the viewer sent a message whose rows is neither list nor columns"


def test_a_key_in_mid_stream_equals_the_fold_of_what_came_before(server: Running, engine: FakeEngine) -> None:
    early = FakeViewer(server)
    early.take()
    engine.arrived("R1")
    engine.admitted("R1")
    early.take_until(lambda: early.states["main"]["queues"]["running"])
    late = FakeViewer(server)
    late.take()
    assert late.states == early.states


def test_frame_numbers_have_no_holes(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    first = viewer.take()["n"]
    for _ in range(20):
        engine.beat()
        viewer.take_until(lambda: viewer.frames[-1]["events"])
    assert [frame["n"] for frame in viewer.frames] == list(range(first, first + len(viewer.frames)))


def test_a_viewer_that_comes_back_gets_only_what_it_missed(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    n = viewer.take()["n"]
    viewer.close()
    engine.arrived("R1")
    until(lambda: server.hub.n > n)
    back = FakeViewer(server)
    back.send(resume={"hub": server.hub.id, "n": n})
    frame = back.take()
    assert "key" not in frame
    assert frame["n"] == n + 1


@pytest.mark.parametrize("resume", [{"hub": "another", "n": 1}, {"hub": None, "n": 0}])
def test_a_viewer_that_cannot_be_resumed_gets_a_keyframe(server: Running, engine: FakeEngine, resume: object) -> None:
    viewer = FakeViewer(server)
    viewer.send(resume=resume)
    assert viewer.take()["key"] is True


def test_resuming_beyond_the_last_frame_gets_a_keyframe(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    viewer.send(resume={"hub": server.hub.id, "n": server.hub.n + 1000})
    assert viewer.take()["key"] is True


def test_a_hidden_viewer_is_sent_nothing_and_one_keyframe_when_it_is_back(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    viewer.take()
    viewer.send(visible=False)
    until(lambda: not next(iter(server.hub.viewers))._visible)
    n = server.hub.n
    for _ in range(5):
        engine.beat()
        until(lambda before=server.hub.n: server.hub.n > before)
    viewer.send(visible=True)
    frame = viewer.take()
    assert frame["key"] is True
    assert frame["n"] > n


def test_a_viewer_that_does_not_ack_gets_a_window_and_then_a_keyframe(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server, acks=False)
    viewer.take()
    while len(viewer.frames) <= WINDOW + 1:
        engine.beat()
        viewer.take()
    assert [bool(frame.get("key")) for frame in viewer.frames] == [True, *[False] * WINDOW, True]


def test_an_ack_opens_the_window_without_a_keyframe(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server, acks=False)
    viewer.take()
    while len(viewer.frames) <= WINDOW:
        engine.beat()
        viewer.take()
    engine.beat()
    viewer.send(ack=viewer.frames[-1]["n"])
    assert "key" not in viewer.take()


@pytest.mark.parametrize(
    "message",
    [
        "not json",
        "[]",
        '{"ack":"1"}',
        '{"ack":true}',
        '{"ack":-1}',
        '{"resume":1}',
        '{"visible":0}',
        b"\x00",
        '{"ack":NaN}',
    ],
)
def test_a_malformed_message_closes_that_viewer_politely(
    server: Running, engine: FakeEngine, message: str | bytes
) -> None:
    viewer, other = FakeViewer(server), FakeViewer(server)
    viewer.take()
    viewer.socket.send(message)
    assert viewer.take_until_closed()[0] == 1008
    assert other.take()["key"] is True


def test_a_message_over_4_kib_closes_the_viewer(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server)
    viewer.take()
    viewer.socket.send(json.dumps({"ack": 1, "padding": "x" * 5000}))
    assert viewer.take_until_closed()[0] == 1009


def test_one_viewer_too_many_is_told_so() -> None:
    with running(Settings(max_viewers=1)) as server:
        FakeEngine(server).dial().greet()
        FakeViewer(server).take()
        code, reason = FakeViewer(server).take_until_closed()
        assert code == 1013
        assert "at most 1 viewer" in reason


def test_a_viewer_that_stopped_reading_costs_bounded_memory_and_nobody_else_a_frame(
    server: Running, engine: FakeEngine
) -> None:
    other = FakeViewer(server)
    other.take()
    with stalled_socket(server):
        until(lambda: len(server.hub.viewers) == 2)
        for number in range(WINDOW + 10):
            engine.say("mark", text="x" * 200_000, number=number)
            other.take_until(lambda told=number: len(other.events("mark")) > told)
        waiting = max(peer.transport.get_write_buffer_size() for peer in server.connections)
    assert waiting < 2_000_000
    assert not any(frame.get("key") for frame in other.frames[1:])


@contextlib.contextmanager
def stalled_socket(server: Running) -> Iterator[None]:
    """A viewer that shakes hands and then never reads again."""
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n".encode()
        )
        yield


# -- text ------------------------------------------------------------------------------------------------------

COOKIE = "a-cookie-of-somebody-long-enough"


def owner(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()[:12]


def test_text_goes_to_its_owner_and_to_nobody_else(server: Running, engine: FakeEngine) -> None:
    mine, theirs = FakeViewer(server, cookie=COOKIE), FakeViewer(server, cookie="some-other-persons-cookie")
    mine.take()
    theirs.take()
    engine.arrived("R1", owner=owner(COOKIE))
    engine.text("R1", 0, "Hel")
    engine.text("R1", 3, "lo")
    engine.finished("R1")
    mine.take_until(lambda: "".join(piece["text"] for piece in mine.texts) == "Hello")
    theirs.take_until(lambda: theirs.states["main"]["finished"])
    assert theirs.texts == []


def test_the_last_text_of_a_request_comes_before_its_end(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server, cookie=COOKIE)
    viewer.take()
    for number in range(20):
        engine.arrived(f"R{number}", owner=owner(COOKIE))
        engine.text(f"R{number}", 0, "Hello")
        engine.finished(f"R{number}")
    while len(viewer.states["main"]["finished"]) < 20:
        viewer.take()
        assert set(viewer.states["main"]["finished"]) <= {piece["request"] for piece in viewer.texts}


def test_shared_text_goes_to_everybody() -> None:
    with running(Settings(share_text=ShareText.ALL)) as server:
        engine = FakeEngine(server).dial().greet()
        viewer = FakeViewer(server)
        viewer.take()
        engine.arrived("R1")
        engine.text("R1", 0, "Hello")
        viewer.take_until(lambda: viewer.texts)
        assert viewer.texts[0] == {"request": "R1", "offset": 0, "text": "Hello"}


def test_which_tokens_were_accepted_guesses_comes_with_the_text(server: Running, engine: FakeEngine) -> None:
    viewer = FakeViewer(server, cookie=COOKIE)
    viewer.take()
    engine.arrived("R1", owner=owner(COOKIE))
    engine.text("R1", 0, "Hel")
    engine.text("R1", 3, "lo you", guessed=[[3, 2, 1]])
    engine.finished("R1")
    viewer.take_until(lambda: viewer.states["main"]["finished"])
    assert [run for piece in viewer.texts for run in piece.get("guessed", [])] == [[3, 2, 1]]
    late = FakeViewer(server, cookie=COOKIE)
    late.take_until(lambda: late.texts)
    assert late.texts == [
        {"request": "R1", "offset": 0, "text": "Hello you", "guessed": [[3, 2, 1]], "prompt": None},
    ]


def test_a_late_owner_gets_the_whole_text_with_its_keyframe(server: Running, engine: FakeEngine) -> None:
    engine.arrived("R1", owner=owner(COOKIE))
    engine.text("R1", 0, "Hel")
    engine.text("R1", 3, "lo")
    until(lambda: "R1" in server.hub.ledger.entries and server.hub.ledger.entries["R1"].length == 5)
    viewer = FakeViewer(server, cookie=COOKIE)
    viewer.take_until(lambda: viewer.texts)
    assert viewer.texts == [{"request": "R1", "offset": 0, "text": "Hello", "prompt": None}]
