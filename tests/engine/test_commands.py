"""CommandReader: every message becomes one command, whatever is in it, and every command with an id has an answer."""

import json
import queue
from typing import Any

import pytest

from engine import events
from engine.commands import CommandReader
from engine.gate_action import MAX_STEPS
from engine.loop import Command, EngineLoop
from tests.engine.harness import Harness
from tests.engine.test_frontend import frontend


class Door:
    """A reader in front of an engine: what the app sends, and what comes of it."""

    def __init__(self, **config: Any) -> None:
        self.engine = Harness(**config)
        self.inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.loop = EngineLoop(self.engine.core, self.inbox)
        door = frontend(num_blocks=self.engine.config.num_blocks, max_model_len=self.engine.config.max_model_len)
        self.reader = CommandReader(door, self.inbox, self.engine.clock, self.loop.stop)

    def send(self, message: dict[str, Any] | str | bytes) -> list[events.Event]:
        """Send a message and carry out what it asks; returns the events that this made."""
        before = len(self.engine.sink)
        self.reader.read(json.dumps(message) if isinstance(message, dict) else message)
        while not self.inbox.empty():
            self.loop._carry_out(self.inbox.get_nowait())
        return [event for event in self.engine.sink[before:] if isinstance(event, events.Event)]

    def reply(self, message: dict[str, Any]) -> events.Reply:
        reply = self.send({"cmd_id": "c1"} | message)[-1]
        assert isinstance(reply, events.Reply)
        assert reply.cmd_id == "c1"
        return reply


SUBMIT = {"cmd": "submit", "cmd_id": "c1", "request": "r1", "prompt": "abc", "sampling": {"max_tokens": 2}}


def test_a_submit_is_answered_by_arrived_and_then_by_a_reply():
    arrived, reply = Door().send(SUBMIT)
    assert (arrived.kind, arrived.event, arrived.request) == ("request", "arrived", "r1")
    assert (reply.ok, reply.effect, reply.error) == (True, "next_step", None)


def test_a_refused_submit_is_answered_by_rejected_and_then_by_a_reply():
    rejected, reply = Door().send(SUBMIT | {"prompt": ""})
    assert (rejected.event, rejected.request, rejected.status, rejected.param) == ("rejected", "r1", 400, "prompt")
    assert (reply.ok, reply.effect, reply.error) == (False, None, rejected.message)


def test_a_rejected_request_never_owns_a_block_and_is_counted():
    """A34."""
    door = Door()
    for _ in range(3):
        door.send(SUBMIT | {"prompt": "x" * 5000})
    state = door.engine.state()
    assert state["totals"]["rejected"] == 3
    assert state["requests"] == {}
    assert state["blocks"]["counts"]["referenced"] == 0


def test_a_bad_submit_leaves_a_running_request_alone():
    """A14: the other stream goes on."""
    door = Door()
    door.send(SUBMIT)
    door.engine.step()
    for bad in ({"prompt": ""}, {"prompt_token_ids": []}, {"sampling": {"top_p": "0.5"}}, {"messages": 7}):
        door.send(SUBMIT | {"request": "r2"} | bad)
    door.engine.run()
    assert [event.request for event in door.engine.of(events.Finished)] == ["r1"]


def test_behind_a_prompt_that_can_never_fit_the_next_one_is_answered_at_once():
    """A13: it is refused on arrival with the capacity, and is in nobody's way."""
    door = Door(num_blocks=8, max_model_len=1024)
    refused, _ = door.send(SUBMIT | {"prompt": "x" * 200})
    assert (refused.event, refused.status) == ("rejected", 400)
    assert "the whole KV cache holds 128" in refused.message
    door.send(SUBMIT | {"request": "r2", "prompt": "hello", "sampling": {"max_tokens": 1}})
    door.engine.step()
    (finished,) = door.engine.of(events.Finished)
    assert (finished.request, finished.reason) == ("r2", "length")


def test_a_full_queue_is_answered_429_with_the_limit():
    """A59."""
    door = Door(max_queue=1, start_paused=True)
    door.send(SUBMIT)
    rejected, reply = door.send(SUBMIT | {"request": "r2"})
    assert rejected.status == 429
    assert "--max-queue is 1" in rejected.message
    assert not reply.ok


def test_an_id_that_is_live_already_is_refused_without_touching_the_live_request():
    """A20: ids are ours and unique; a client's own id is only a label."""
    door = Door(max_queue=1, start_paused=True)
    door.send(SUBMIT)
    (reply,) = door.send(SUBMIT)
    assert (reply.ok, reply.error) == (False, "A request r1 is live already.")
    assert door.engine.of(events.Rejected) == []
    door.engine.check()


def test_two_requests_with_one_label_are_two_requests():
    """A20."""
    door = Door()
    for name in ("r1", "r2"):
        door.send(SUBMIT | {"request": name, "label": "same"})
    door.engine.run()
    assert [event.request for event in door.engine.of(events.Finished)] == ["r1", "r2"]


# -- abort -------------------------------------------------------------------------------------------------------


def test_an_abort_ends_the_request_and_says_so():
    door = Door()
    door.send(SUBMIT)
    finished, reply = door.send({"cmd": "abort", "cmd_id": "c2", "request": "r1"})
    assert (finished.event, finished.reason) == ("finished", "abort")
    assert (reply.ok, reply.effect) == (True, "live")


def test_an_abort_of_nothing_live_is_answered_with_a_sentence():
    reply = Door().reply({"cmd": "abort", "request": "r9"})
    assert (reply.ok, reply.error) == (False, "No request r9 is live.")


# -- the gate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "state", "steps_left"),
    [
        ({"action": "pause"}, "paused", 0),
        ({"action": "run"}, "running", 0),
        ({"action": "step", "steps": 3}, "paused", 3),
    ],
)
def test_the_gate_is_moved(command, state, steps_left):
    gate, reply = Door().send({"cmd": "gate", "cmd_id": "c1"} | command)
    assert (gate.kind, gate.state, gate.steps_left) == ("gate", state, steps_left)
    assert reply.ok


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", True, MAX_STEPS + 1])
def test_a_number_of_steps_that_makes_no_sense_is_refused(steps):
    door = Door()
    reply = door.reply({"cmd": "gate", "action": "step", "steps": steps})
    assert not reply.ok
    assert str(MAX_STEPS) in reply.error
    assert door.engine.core.gate.open


def test_an_unknown_action_is_refused():
    assert not Door().reply({"cmd": "gate", "action": "fly"}).ok


# -- the rest ----------------------------------------------------------------------------------------------------


def test_a_key_is_sent_when_asked_for():
    key, reply = Door().send({"cmd": "key", "cmd_id": "c1"})
    assert key.kind == "key"
    assert reply.ok


def test_a_cache_reset_is_told():
    told, reply = Door().send({"cmd": "reset_prefix_cache", "cmd_id": "c1"})
    assert told.kind == "cache_reset"
    assert reply.ok


def test_a_mark_is_told_with_the_step_it_stands_after():
    door = Door()
    door.send(SUBMIT)
    door.engine.step()
    told, reply = door.send({"cmd": "mark", "cmd_id": "c1", "text": "  look\n here "})
    assert (told.kind, told.step, told.text) == ("mark", 1, "look here")
    assert reply.ok
    door.engine.check()


@pytest.mark.parametrize("text", [None, 7, "", " \n\x07", "\u200b\ufeff", "x" * 201, "\ud800"])
def test_a_mark_without_fitting_words_is_refused_by_name(text):
    (reply,) = Door().send({"cmd": "mark", "cmd_id": "c1", "text": text})
    assert reply.error.startswith("text ")


def test_a_mark_keeps_no_character_that_only_steers_how_others_are_shown():
    told, _ = Door().send({"cmd": "mark", "cmd_id": "c1", "text": "\u202eone \U0001f468\u200d\U0001f469"})
    assert told.text == "one \U0001f468\u200d\U0001f469"


def test_shutdown_stops_the_loop():
    door = Door()
    door.send(SUBMIT)
    assert door.reply({"cmd": "shutdown"}).ok
    door.loop.run()  # returns at once, with work left
    assert door.engine.core.has_work


def test_a_command_without_an_id_has_no_reply():
    assert [event.kind for event in Door().send({"cmd": "gate", "action": "pause"})] == ["gate"]


@pytest.mark.parametrize(
    "message",
    [
        {"cmd": "dance"},
        {"cmd": None},
        {"cmd": ["submit"]},
        {},
        {"cmd": "submit"},
        {"cmd": "submit", "request": 7},
        {"cmd": "abort"},
        {"cmd": "\ud800" * 9},
    ],
)
def test_a_command_that_makes_no_sense_is_answered_and_harms_nothing(message):
    reply = Door().reply(message)
    assert not reply.ok
    assert reply.error.encode()


@pytest.mark.parametrize("message", ["", "{", "[]", "7", "null", b"\xff\xfe", "[" * 100_000, '{"a":' * 5_000])
def test_a_message_that_is_no_command_is_passed_over(message):
    """A18: the receiving thread lives."""
    assert Door().send(message) == []


@pytest.mark.parametrize("ids", [{"request": "\ud800"}, {"cmd_id": "\ud800"}])
def test_an_id_that_could_not_be_written_down_reaches_no_event(ids):
    """A17: one such event would end the stream of all of them."""
    for event in Door().send(SUBMIT | ids):
        for name in ("request", "cmd_id", "error"):
            assert "\ud800" not in (getattr(event, name, None) or "")


def test_a_fault_of_the_frontend_is_an_answer_not_the_end(monkeypatch):
    """K3: no request ends the loop, and internal words do not reach the client."""
    door = Door()
    monkeypatch.setattr(door.reader._frontend, "make_request", lambda *_: 1 // 0)
    rejected, reply = door.send(SUBMIT)
    assert (rejected.event, rejected.status) == ("rejected", 500)
    assert "division" not in rejected.message
    assert not reply.ok
