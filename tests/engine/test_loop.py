"""EngineLoop: commands between steps, steps when it may, a beat when it has nothing to do."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import events, loop
from engine.core import EngineCore
from engine.gate_action import GateAction
from engine.loop import Command, EngineLoop
from tests.engine.harness import Harness

WAIT = 10.0  # the longest that any test waits for what must happen


class Watched(list):
    """A sink on which a test can wait."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def append(self, item: Any) -> None:
        with self._changed:
            super().append(item)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[list], Any]) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), WAIT)
            return condition(self)


class Running:
    """An engine whose loop runs in a thread."""

    def __init__(self, **config: Any) -> None:
        self.engine = Harness(**config)
        self.sink = self.engine.core.emitter._sink = self.engine.sink = Watched()
        self.inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.loop = EngineLoop(self.engine.core, self.inbox)
        self.thread = threading.Thread(target=self.loop.run)

    def do(self, action: Callable[[EngineCore], Any]) -> None:
        """Have the engine's thread do this; returns when it has."""
        name = f"c{len(self.sink)}"

        def command(core: EngineCore) -> None:
            action(core)

        self.inbox.put(Command(command, name))
        self.sink.wait_for(lambda sink: any(getattr(event, "cmd_id", None) == name for event in sink))

    def stop(self) -> None:
        self.inbox.put(Command(lambda core: self.loop.stop()))
        self.thread.join(WAIT)
        assert not self.thread.is_alive()


@pytest.fixture
def running(monkeypatch) -> Iterator[Callable[..., Running]]:
    """Start an engine; it is stopped at the end."""
    monkeypatch.setattr(loop, "BEAT_SECONDS", 0.01)
    started = []

    def start(**config: Any) -> Running:
        started.append(Running(**config))
        started[-1].thread.start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


def finished(sink: list) -> list[events.Finished]:
    return [event for event in sink if isinstance(event, events.Finished)]


def test_an_idle_engine_beats(running):
    engine = running()
    first = engine.sink.wait_for(lambda sink: [e for e in sink if isinstance(e, events.Beat)])[0]
    assert first.step_age_us is None


def test_a_beat_says_how_long_ago_the_last_step_was(running):
    engine = running()
    request = engine.engine.request("abc", max_tokens=1)
    engine.do(lambda core: core.add(request))
    engine.sink.wait_for(finished)
    engine.engine.clock.advance(500)
    assert engine.sink.wait_for(lambda sink: [e for e in sink if isinstance(e, events.Beat) and e.step_age_us == 500])


def test_a_request_is_served_without_anybody_asking_for_steps(running):
    engine = running()
    request = engine.engine.request("abc", max_tokens=20)
    engine.do(lambda core: core.add(request))
    assert engine.sink.wait_for(finished)[0].num_output_tokens == 20


def test_a_paused_engine_carries_out_commands(running):
    """A54: an abort needs no step."""
    engine = running(start_paused=True)
    request = engine.engine.request("abc")
    engine.do(lambda core: core.add(request))
    engine.do(lambda core: core.abort(request.request_id))
    assert finished(engine.sink)[0].reason == "abort"
    assert not any(isinstance(event, events.Step) for event in engine.sink)


def test_step_n_takes_exactly_n_and_then_beats_again(running):
    engine = running(start_paused=True)
    request = engine.engine.request("abc", max_tokens=50)
    engine.do(lambda core: core.add(request))
    engine.do(lambda core: core.move_gate(GateAction("step", steps=3)))
    engine.sink.wait_for(lambda sink: isinstance(sink[-1], events.Beat) and request.num_output_tokens)
    assert sum(isinstance(event, events.Step) for event in engine.sink) == 3


def test_a_paused_engine_can_be_stopped(running):
    """Shutdown works while paused; the fixture waits for the thread."""
    engine = running(start_paused=True)
    engine.do(lambda core: core.add(engine.engine.request("abc")))


def test_numbers_have_no_holes_whatever_the_loop_does(running):
    engine = running()
    for letter in "abc":
        request = engine.engine.request(letter * 20, max_tokens=5)
        engine.do(lambda core, request=request: core.add(request))
    engine.sink.wait_for(lambda sink: len(finished(sink)) == 3)
    numbers = [event.seq for event in engine.sink if isinstance(event, events.Event)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


# -- without a thread --------------------------------------------------------------------------------------------


def loop_of(engine: Harness, *commands: Command) -> EngineLoop:
    inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
    made = EngineLoop(engine.core, inbox)
    for command in commands:
        inbox.put(command)
    inbox.put(Command(lambda core: made.stop()))
    return made


def test_commands_are_carried_out_in_order_and_answered():
    engine = Harness()
    commands = [
        Command(lambda core: None, "a"),
        Command(lambda core: "no", "b", "next_step"),
        Command(lambda core: None),
    ]
    loop_of(engine, *commands).run()
    replies = [(reply.cmd_id, reply.ok, reply.effect, reply.error) for reply in engine.of(events.Reply)]
    assert replies == [("a", True, "live", None), ("b", False, None, "no")]


def test_a_stopped_loop_takes_no_further_step():
    engine = Harness()
    engine.add("abc")
    loop_of(engine).run()
    assert engine.of(events.Step) == []


def test_a_runner_that_raises_ends_the_loop_with_its_error():
    engine = Harness()
    engine.add("abc")
    engine.runner.forward = lambda batch: 1 // 0
    with pytest.raises(ZeroDivisionError):
        EngineLoop(engine.core, queue.SimpleQueue()).run()


def test_a_command_that_raises_fails_alone(running):
    engine = running()

    def broken(core: EngineCore) -> None:
        raise ValueError("a secret")

    engine.do(broken)
    engine.do(lambda core: None)
    first, second = (event for event in engine.sink if isinstance(event, events.Reply))
    assert not first.ok
    assert "secret" not in first.error
    assert second.ok
