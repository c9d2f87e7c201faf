"""Publisher: everything goes up once and in order, and a reader that lost something is told what."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from engine import events
from engine.config import EngineConfig
from engine.emitter import Emitter, EventRing
from engine.publisher import Publisher
from engine.scripted import scripted_facts
from tests.engine.app_server import TOKEN, WAIT, AppServer, Connection
from tests.engine.harness import FakeClock

FACTS = scripted_facts(EngineConfig(model="scripted"))


class Source:
    """The engine's side of a publisher: this thread emits, and hears when a key is wanted."""

    def __init__(self, url: str, *, token: str = TOKEN, limit: int = 100, quiet_seconds: float = 60.0) -> None:
        self.ring = EventRing(limit)
        self.emitter = Emitter("main", "epoch", FakeClock(), self.ring)
        self.keys_asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.commands: queue.SimpleQueue[str | bytes] = queue.SimpleQueue()
        self.heard: list[str] = []  # both of them, in order
        self.publisher = Publisher(url, token, self.ring, self._ask_key, self._on_command, quiet_seconds=quiet_seconds)

    def _ask_key(self) -> None:
        self.heard.append("key")
        self.keys_asked.put(None)

    def _on_command(self, message: str | bytes) -> None:
        self.heard.append("command")
        self.commands.put(message)

    def hello(self) -> None:
        self.emitter.emit(
            events.Hello,
            v=1,
            config={},
            model=FACTS.model,
            device=FACTS.device,
            memory=FACTS.memory,
            num_blocks=1,
            block_size=16,
            clock_unix_us=0,
            redaction="own",
            hash_salt="fixed",
        )

    def beats(self, count: int = 1) -> None:
        for _ in range(count):
            self.emitter.emit(events.Beat, step_age_us=None)

    def text(self, text: str = "x") -> None:
        self.emitter.text("r1", 0, text, [1], done=False)

    def key(self) -> None:
        self.emitter.emit(events.Key, state={"step": self.emitter.seq})

    def answer_key(self) -> None:
        """Wait until a key is asked for, and send it."""
        self.keys_asked.get(timeout=WAIT)
        self.key()


@pytest.fixture
def app() -> Iterator[AppServer]:
    with AppServer() as server:
        yield server


@pytest.fixture
def source(app) -> Iterator[Source]:
    made = Source(app.url)
    made.publisher.start()
    yield made
    made.publisher.close()


@pytest.fixture
def connection(app, source) -> Connection:
    """A connection on which hello and key have come."""
    source.hello()
    source.key()
    made = app.accept()
    made.wait_for("key")
    return made


def numbers(received: list[dict[str, Any]]) -> list[int]:
    """Every number that was delivered or named by a gap, in order."""
    found: list[int] = []
    for message in received:
        if message["kind"] == "gap":
            found += range(message["first"], message["last"] + 1)
        elif message["kind"] not in ("key", "text", "hello", "load"):
            found.append(message["seq"])
    return found


# -- one connection ----------------------------------------------------------------------------------------------


def test_events_go_up_in_order_one_json_object_per_message(source, connection):
    source.beats()
    source.text()
    source.beats()
    connection.wait(lambda received: len(received) == 5)
    assert connection.names() == ["hello", "key", "beat", "text", "beat"]
    assert [message.get("seq") for message in connection.received] == [1, 1, 2, None, 3]


def test_what_is_undefined_is_null_on_the_wire(source, connection):
    source.beats()
    assert connection.wait_for("beat")["step_age_us"] is None


def test_progress_of_loading_goes_up_before_hello(app, source):
    source.emitter.emit(events.Load, phase="read", done=1, total=2, unit="tensors")
    assert app.accept().wait_for("load")["done"] == 1


def test_the_very_first_connection_needs_no_key_of_its_own(source, connection):
    source.beats()
    connection.wait_for("beat")
    assert source.keys_asked.empty()


def test_commands_come_down(source, connection):
    connection.send(cmd="key", cmd_id="c1")
    assert source.commands.get(timeout=WAIT) == '{"cmd": "key", "cmd_id": "c1"}'


def test_closing_sends_what_is_left(source, connection):
    source.beats(50)
    source.emitter.emit(events.Bye, reason="told to", origin="engine")
    source.publisher.close()
    connection.wait_closed()
    assert connection.names()[-1] == "bye"
    assert numbers(connection.received) == list(range(2, 53))


def test_a_publisher_that_is_closed_at_once_still_says_why(app):
    """A load that fails at once must not fail in silence."""
    source = Source(app.url)
    source.emitter.emit(events.Bye, reason="no such model", origin="engine")
    source.publisher._closing.set()
    source.publisher.start()
    assert app.accept().wait_for("bye")["reason"] == "no such model"
    source.publisher.close()


def test_without_an_app_closing_does_not_hang():
    source = Source("ws://127.0.0.1:9/ws/engine")
    source.publisher.start()
    source.publisher.close()
    assert not source.publisher._thread.is_alive()


def test_an_app_that_comes_later_is_found(app):
    """The engine keeps dialling; meanwhile the ring holds what there is to say."""
    source = Source(app.url, token="wrong")
    source.publisher.start()
    source.hello()
    for _ in range(2):
        app.turned_down.get(timeout=WAIT)
    source.publisher._token = TOKEN
    app.accept().wait_for("hello")
    source.publisher.close()


def test_no_proxy_of_the_environment_stands_between_engine_and_app(app, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "socks_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    source = Source(app.url)
    source.publisher.start()
    source.hello()
    app.accept().wait_for("hello")
    source.publisher.close()


# -- a lost connection -------------------------------------------------------------------------------------------


def test_after_a_reconnection_hello_comes_again_and_a_key_before_anything_numbered(app, source, connection):
    connection.drop()
    again = app.accept()
    again.wait_for("hello")
    source.answer_key()
    source.beats()
    again.wait_for("beat")
    assert again.names() == ["hello", "key", "beat"]
    assert [message["epoch"] for message in again.received] == ["epoch"] * 3


def test_events_lost_with_the_connection_are_named_by_a_gap(app, source, connection):
    """A63: never a silent hole."""
    connection.drop()
    again = app.accept()
    again.wait_for("hello")
    source.beats(3)  # numbers 2 to 4, before the key
    source.answer_key()
    source.beats()
    again.wait_for("beat", seq=5)
    assert again.names() == ["hello", "gap", "key", "beat"]
    gap = again.wait_for("gap")
    assert (gap["first"], gap["last"]) == (2, 4)
    assert numbers(again.received) == [2, 3, 4, 5]


def test_text_is_not_held_back_for_the_key(app, source, connection):
    connection.drop()
    again = app.accept()
    again.wait_for("hello")
    source.text("on its way")
    assert again.wait_for("text")["text"] == "on its way"
    source.answer_key()


def test_a_command_after_a_reconnection_is_answered_after_the_key(app, source, connection):
    """Its reply is numbered: before the key it would be dropped, and the app would wait for ever."""
    connection.drop()
    again = app.accept()
    again.send(cmd="key", cmd_id="c1")
    source.commands.get(timeout=WAIT)
    assert source.heard == ["key", "command"]
    source.key()
    source.emitter.emit(events.Reply, cmd_id="c1", ok=True, effect="live", error=None)
    again.wait_for("reply")
    assert again.names() == ["hello", "key", "reply"]


def test_a_connection_lost_while_loading_is_made_again(app, source):
    first = app.accept()
    first.drop()
    again = app.accept()
    source.hello()
    source.key()
    again.wait_for("key")
    assert again.names() == ["hello", "key"]


def test_a_connection_may_be_lost_again_and_again(app, source, connection):
    for _ in range(3):
        source.beats(5)
        connection.drop()
        connection = app.accept()
        connection.wait_for("hello")
        source.answer_key()
        source.beats()
        connection.wait_for("beat")
        assert connection.names()[0] == "hello"
        assert numbers(connection.received)[-1] == source.emitter.seq


# -- a full ring -------------------------------------------------------------------------------------------------


def test_an_overflow_asks_for_one_key_and_is_named_by_a_gap(app):
    source = Source(app.url, limit=4)
    source.hello()
    source.key()
    source.beats(10)  # 2 and 3 fit
    source.publisher.start()
    connection = app.accept()
    source.answer_key()
    source.beats()
    connection.wait_for("beat", seq=12)
    assert connection.names() == ["hello", "key", "beat", "beat", "gap", "key", "beat"]
    assert numbers(connection.received) == list(range(2, 13))
    assert source.keys_asked.empty()
    source.publisher.close()


def test_text_of_an_overflow_is_not_dropped(app):
    source = Source(app.url, limit=2)
    source.hello()
    source.key()
    for i in range(5):
        source.beats()
        source.text(str(i))
    source.publisher.start()
    connection = app.accept()
    source.answer_key()
    connection.wait_for("gap")
    assert [m["text"] for m in connection.received if m["kind"] == "text"] == list("01234")
    source.publisher.close()


def test_numbers_have_no_holes_while_one_thread_emits_and_another_sends(app):
    source = Source(app.url, limit=50)
    source.hello()
    source.key()
    source.publisher.start()
    connection = app.accept()
    done = threading.Event()

    def emit() -> None:
        for _ in range(200):
            source.beats(10)
            while not source.keys_asked.empty():
                source.keys_asked.get()
                source.key()
        done.set()

    threading.Thread(target=emit).start()
    assert done.wait(WAIT)
    if source.ring.overflowed:
        source.answer_key()
    source.beats()
    connection.wait_for("beat", seq=2002)
    assert numbers(connection.received) == list(range(2, 2003))
    source.publisher.close()


def test_a_long_step_is_no_silence(app):
    """The engine's thread is busy and emits nothing; the process says that it lives, and takes no number for it."""
    source = Source(app.url, quiet_seconds=0.02)
    source.publisher.start()
    try:
        source.hello()
        source.key()
        connection = app.accept()
        pulse = connection.wait_for("beat")
        source.beats()
        counted = connection.wait_for("beat", seq=2)
    finally:
        source.publisher.close()
    assert (pulse["seq"], counted["seq"]) == (1, 2)
