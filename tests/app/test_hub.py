"""The hub without sockets: what it believes of an engine, and what it hands on."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from app.hub import FRAME_CHARS, HEARTBEAT_S, EngineAway, Hub
from app.ledger import Entry
from app.record import SILENT_AFTER_S, Status
from app.settings import Settings
from app.wire import WireError
from tests.app.fakes import Json, LocalEngine, row, timings


@pytest.fixture
def hub() -> Hub:
    return Hub(Settings())


@pytest.fixture
def engine(hub: Hub) -> LocalEngine:
    return LocalEngine(hub).greet()


def frame(hub: Hub) -> Json:
    """Close the current frame and return it."""
    hub._tick(time.monotonic())
    sent = hub.frames.get(hub.n)
    assert sent is not None
    value: Json = json.loads(sent.payload.raw)
    return value


def kinds(hub: Hub) -> list[str]:
    return [event["kind"] for event in frame(hub)["events"]]


def status(hub: Hub, later_s: float = 0.0) -> Status:
    return hub.engines["main"].status(time.monotonic() + later_s)


# -- frames ----------------------------------------------------------------------------------------------------


def test_a_frame_holds_what_came_since_the_last_one_in_order(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    engine.arrived("R1")
    engine.beat()
    assert kinds(hub) == ["request", "beat"]


def test_much_at_once_is_told_in_frames_of_bounded_size_and_in_order(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    first = hub.n + 1
    for _ in range(2500):
        engine.beat()
    hub._tick(time.monotonic())
    sent = [hub.frames.get(n) for n in range(first, hub.n + 1)]
    payloads = [each.payload.raw for each in sent if each is not None]
    assert len(payloads) == hub.n + 1 - first >= 2
    assert all(len(payload) < FRAME_CHARS + 500 for payload in payloads)
    seqs = [event["seq"] for payload in payloads for event in json.loads(payload)["events"]]
    assert seqs == list(range(seqs[0], seqs[0] + 2500))


class Watching:
    """A viewer that asked for columns."""

    needs_key = False
    columns = True

    def take_key(self, n: int, payload: str) -> None: ...

    def wake(self) -> None: ...


@pytest.mark.parametrize("watched", [True, False])
def test_frames_are_bounded_by_what_a_page_is_sent(hub: Hub, engine: LocalEngine, watched: bool) -> None:
    for i in range(64):
        engine.arrived(f"R{i}")
        engine.admitted(f"R{i}", slot=i)
    frame(hub)
    if watched:
        hub.viewers.add(Watching())
    first = hub.n + 1
    for number in range(1, 31):
        engine.step(number, *(row(f"R{i}", slot=i, computed=number) for i in range(64)))
    hub._tick(time.monotonic())
    frames = [found for n in range(first, hub.n + 1) if (found := hub.frames.get(n)) is not None]
    assert all(len(each.payload.columns) < FRAME_CHARS + 500 for each in frames)
    assert (len(frames) < 5) is watched
    for each in frames:
        raw, columns = map(len, each.payload)
        assert each.num_bytes == (raw + columns if watched else raw)
        assert (columns < raw / 3) is watched
    events = [event for each in frames for event in json.loads(each.payload.raw)["events"]]
    assert [event["step"] for event in events] == list(range(1, 31))


def test_a_step_is_told_by_the_last_one_in_the_key_that_a_viewer_begins_with(hub: Hub, engine: LocalEngine) -> None:
    def tick() -> Json:
        hub._tick(time.monotonic())
        told = hub.frames.get(hub.n)
        assert told is not None
        sent: Json = json.loads(told.payload.columns)
        return sent["events"][-1]["rows"]

    requests = range(20)
    for i in requests:
        engine.arrived(f"R{i}")
        engine.admitted(f"R{i}", slot=i)
    engine.step(1, *(row(f"R{i}", slot=i, computed=1) for i in requests))
    frame(hub)
    hub.viewers.add(Watching())
    engine.step(2, *(row(f"R{i}", slot=i, computed=2) for i in requests))
    assert "after" not in tick()  # nobody who reads columns was told of step 1
    (key,) = [event for event in json.loads(hub._keyframe([]))["events"] if event["kind"] == "key"]
    engine.step(3, *(row(f"R{i}", slot=i, computed=3) for i in requests))
    assert tick()["after"] == key["state"]["last_step"]["step"] == 2


def test_a_frame_tells_the_engines_only_when_something_about_them_changed(hub: Hub, engine: LocalEngine) -> None:
    assert frame(hub)["engines"][0]["status"] == "ready"
    engine.beat()
    assert "engines" not in frame(hub)
    engine.say("gate", state="paused", steps_left=0)
    assert frame(hub)["engines"][0]["status"] == "paused"


def test_a_frame_tells_how_many_watch_only_when_that_changed(hub: Hub, engine: LocalEngine) -> None:
    assert frame(hub)["viewers"] == {"connected": 0, "limit": hub.settings.max_viewers}
    engine.beat()
    assert "viewers" not in frame(hub)


def test_nothing_new_makes_no_frame(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    n = hub.n
    hub._tick(time.monotonic())
    assert hub.n == n


def test_an_idle_hub_sends_a_heartbeat_now_and_then(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    n = hub.n
    hub._tick(time.monotonic() + HEARTBEAT_S + 0.1)
    assert hub.n == n + 1


def test_engines_do_not_disturb_each_other(hub: Hub, engine: LocalEngine) -> None:
    other = LocalEngine(hub, "other").greet()
    engine.arrived("R1")
    assert hub.engines["main"].state == engine.state
    assert hub.engines["other"].state == other.state


# -- the numbered stream ---------------------------------------------------------------------------------------


def test_the_state_is_the_fold_of_the_events(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0]]])
    assert hub.engines["main"].state == engine.state


def test_an_event_that_came_before_changes_nothing(hub: Hub, engine: LocalEngine) -> None:
    event = engine.arrived("R1")
    frame(hub)
    engine.send_raw(json.dumps(event))
    hub._tick(time.monotonic())
    assert hub.engines["main"].state == engine.state


def test_a_skipped_number_becomes_one_gap_and_a_key(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    frame(hub)
    lost = engine.make("beat", step_age_us=None)
    engine.beat()
    assert "key" in engine.told()
    hub._tick(time.monotonic())
    engine.admitted("R1")
    engine.key()
    gap, key = frame(hub)["events"]
    assert (gap["kind"], gap["first"], gap["last"]) == ("gap", lost["seq"], engine.seq)
    assert key["kind"] == "key"
    assert hub.engines["main"].state == engine.state


def test_a_key_is_asked_for_once(hub: Hub, engine: LocalEngine) -> None:
    engine.make("beat", step_age_us=None)
    engine.beat()
    engine.beat()
    assert engine.told().count("key") == 1


def test_the_engines_own_gap_is_handed_on_with_its_key(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    first = engine.make("beat", step_age_us=None)["seq"]
    last = engine.make("beat", step_age_us=None)["seq"]
    engine.say("gap", first=first, last=last)
    engine.key()
    told = frame(hub)
    assert [(e["kind"], e.get("first"), e.get("last")) for e in told["events"]] == [
        ("gap", first, last),
        ("key", None, None),
    ]
    assert told["engines"][0]["lost_events"] == 2


def test_a_key_that_says_nothing_new_is_not_handed_on(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    n = hub.n
    engine.key()
    hub._tick(time.monotonic())
    assert hub.n == n
    assert hub.engines["main"].state == engine.state


def test_hello_again_in_the_same_epoch_changes_nothing(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    engine.send_raw(json.dumps(hub.engines["main"].hello))
    assert hub.engines["main"].state == engine.state


def test_a_new_epoch_starts_over(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    again = LocalEngine(hub).greet()
    record = hub.engines["main"]
    assert record.epoch == again.epoch
    assert record.state == again.state
    assert hub.ledger.entries["R1"].lost == "The engine was restarted."


def test_an_old_connection_is_not_listened_to(hub: Hub, engine: LocalEngine) -> None:
    LocalEngine(hub).greet()
    with pytest.raises(WireError):
        engine.beat()


def test_an_unknown_kind_is_handed_on(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    engine.say("novelty", what="ever")
    assert kinds(hub) == ["novelty"]


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "[]", "{}", '{"kind":"beat"}', '{"kind":1,"engine":"main","epoch":"e","seq":1,"t":1}',
        '{"kind":"beat","engine":"main","epoch":"e","seq":true,"t":1}',
        '{"kind":"beat","engine":"main","epoch":"e","seq":-1,"t":1}',
        '{"kind":"text","engine":"main","epoch":"e","request":1,"offset":0,"text":""}',
        '{"kind":"text","engine":"main","epoch":"e","request":"R1","offset":0,"text":"","guessed":[3]}',
        '{"kind":"text","engine":"main","epoch":"e","request":"R1","offset":0,"text":"","lengths":[-1]}',
        '{"kind":"request","engine":"main","epoch":"e","seq":1,"t":1}', '{"kind":"beat","t":NaN}',
        '{"kind":"load","engine":"main","epoch":"e","seq":1,"t":1}',
        '{"kind":"bye","engine":"main","epoch":"e","seq":1,"t":1,"reason":5}',
        '{"kind":"hello","engine":"main","epoch":"e","seq":1,"t":1,"config":{}}',
        '{"kind":"hello","engine":"main","epoch":"e","seq":1,"t":1,"config":{},"model":{},"clock_unix_us":1}',
        '{"kind":"key","engine":"main","epoch":"e","seq":1,"t":1,"state":null}',
        '{"kind":"step","engine":"main","epoch":"e","seq":1,"t":1,"step":1,"rows":""}',
        '{"kind":"step","engine":"main","epoch":"e","seq":1,"t":1,"step":1,"rows":{}}',
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused_and_the_state_kept(hub: Hub, engine: LocalEngine, text: str) -> None:
    with pytest.raises(WireError):
        engine.send_raw(text)
    assert hub.engines["main"].state == engine.state


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb"])
def test_an_engine_needs_a_sensible_name(hub: Hub, name: str) -> None:
    with pytest.raises(WireError):
        LocalEngine(hub, name).greet()


def test_an_event_that_cannot_be_folded_is_refused_and_mended_by_a_key(hub: Hub, engine: LocalEngine) -> None:
    event = {"kind": "request", "engine": "main", "epoch": engine.epoch, "seq": engine.seq + 1, "t": 1}
    with pytest.raises(WireError):
        engine.send_raw(json.dumps({**event, "event": "admitted", "request": "nobody"}))
    engine.seq += 1
    engine.key()
    assert hub.engines["main"].state == engine.state


def test_a_key_without_a_whole_state_is_refused(hub: Hub, engine: LocalEngine) -> None:
    key = {"kind": "key", "engine": "main", "epoch": engine.epoch, "seq": engine.seq + 1, "t": 1, "state": {}}
    with pytest.raises(WireError):
        engine.send_raw(json.dumps(key))
    assert hub.engines["main"].state == engine.state


# -- life and death --------------------------------------------------------------------------------------------


def test_an_engine_is_starting_then_loading_then_ready_then_paused(hub: Hub) -> None:
    hub.starting("main")
    assert status(hub) is Status.STARTING
    engine = LocalEngine(hub)
    engine.say("load", phase="read", done=1, total=4, unit="tensors")
    assert status(hub) is Status.LOADING
    engine.greet()
    assert status(hub) is Status.READY
    engine.say("gate", state="paused", steps_left=0)
    assert status(hub) is Status.PAUSED


def test_a_loading_engine_tells_how_far_it_is(hub: Hub) -> None:
    LocalEngine(hub).say("load", phase="read", done=1, total=4, unit="tensors")
    assert hub.summaries()[0]["load"] == {"phase": "read", "done": 1, "total": 4, "unit": "tensors"}


def test_an_engine_that_is_not_heard_of_is_silent(hub: Hub, engine: LocalEngine) -> None:
    assert status(hub, SILENT_AFTER_S - 0.5) is Status.READY
    assert status(hub, SILENT_AFTER_S + 0.5) is Status.SILENT


def test_an_engine_that_loads_is_not_silent(hub: Hub) -> None:
    LocalEngine(hub).say("load", phase="read", done=1, total=4, unit="tensors")
    assert status(hub, 60) is Status.LOADING


def test_a_lost_engine_gets_the_hubs_bye_with_the_next_number(hub: Hub, engine: LocalEngine) -> None:
    frame(hub)
    hub.disconnected("main", engine, "Its connection was closed.")
    (bye,) = frame(hub)["events"]
    assert (bye["kind"], bye["origin"], bye["seq"]) == ("bye", "hub", engine.seq + 1)
    assert status(hub) is Status.GONE
    assert hub.summaries()[0]["reason"] == "Its connection was closed."


def test_an_engine_that_said_bye_is_not_given_another(hub: Hub, engine: LocalEngine) -> None:
    engine.say("bye", reason="It was told to stop.", origin="engine")
    frame(hub)
    hub.disconnected("main", engine, "Its connection was closed.")
    hub._tick(time.monotonic())
    assert hub.engines["main"].gone == "It was told to stop."
    assert hub.engines["main"].seq == engine.seq


def test_losing_an_engine_ends_its_requests(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    hub.engine_gone("main", "It broke.")
    entry = hub.ledger.entries["R1"]
    assert entry.lost == "The engine is gone: It broke."
    assert entry.snapshot is not None


def test_an_engine_that_comes_back_in_the_same_epoch_goes_on(hub: Hub, engine: LocalEngine) -> None:
    hub.disconnected("main", engine, "Its connection was closed.")
    engine._known = False
    engine.send_raw(json.dumps(hub.engines["main"].hello))
    engine.key()
    assert status(hub) is Status.READY
    engine.arrived("R1")
    assert hub.engines["main"].state == engine.state


def test_requests_that_were_given_up_are_aborted_when_their_engine_comes_back(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    hub.disconnected("main", engine, "Its connection was closed.")
    engine._known = False
    engine.key()
    assert ("abort", "R1") in [(command["cmd"], command.get("request")) for command in engine.commands.queue]


def test_an_abort_that_could_not_be_sent_is_sent_when_the_engine_is_back(hub: Hub, engine: LocalEngine) -> None:
    record = hub.engines["main"]
    record.restartable = True
    hub.submit(record, Entry(id="R1", engine="main"), {"prompt": "x"})
    engine.arrived("R1")

    async def hang_up_while_it_is_away() -> None:
        hub.disconnected("main", engine, "Its connection was closed.")
        hub.abort(hub.ledger.entries["R1"])

    asyncio.run(hang_up_while_it_is_away())
    assert "abort" not in engine.told()
    engine._known = False
    engine.send_raw(json.dumps(record.hello))
    assert engine.told().count("abort") == 1


def lose_the_end_of(engine: LocalEngine, request: str) -> None:
    """The engine finishes a request, but that event is lost; a key follows."""
    body = {"reason": "stop", "detail": None, "finished_us": 1, "num_output_tokens": 1, "timings": timings()}
    engine.make("request", event="finished", request=request, **body)
    engine.beat()
    engine.key()


def test_what_ended_in_a_gap_without_all_its_text_is_lost(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    engine.arrived("R2")
    engine.text("R1", 0, "Hel")
    lose_the_end_of(engine, "R1")
    assert hub.ledger.entries["R1"].lost
    assert not hub.ledger.entries["R2"].over


def test_what_ended_in_a_gap_with_all_its_text_has_finished(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    engine.text("R1", 0, "Hello", done=True)
    lose_the_end_of(engine, "R1")
    finished = hub.ledger.entries["R1"].finished
    assert finished is not None
    assert finished["reason"] == "stop"


def test_an_arrival_in_a_gap_is_taken_from_the_key(hub: Hub, engine: LocalEngine) -> None:
    hub.submit(hub.engines["main"], Entry(id="R1", engine="main"), {"prompt": "x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "send_raw", lambda text: None)
        engine.arrived("R1")
    engine.beat()
    engine.key()
    arrived = hub.ledger.entries["R1"].arrived
    assert arrived is not None
    assert arrived["num_prompt_tokens"] == 8


# -- commands --------------------------------------------------------------------------------------------------


def test_a_command_to_an_engine_that_is_away_says_so(hub: Hub, engine: LocalEngine) -> None:
    hub.disconnected("main", engine, "Its connection was closed.")
    with pytest.raises(EngineAway, match=r"Its connection was closed\."):
        hub.send(hub.engines["main"], {"cmd": "gate", "action": "run", "steps": 1})


def test_a_request_that_could_not_be_sent_is_not_remembered(hub: Hub, engine: LocalEngine) -> None:
    hub.disconnected("main", engine, "Its connection was closed.")
    with pytest.raises(EngineAway):
        hub.submit(hub.engines["main"], Entry(id="R1", engine="main"), {"prompt": "x"})
    assert hub.ledger.entries == {}


def test_a_new_id_is_none_that_an_attached_engine_still_knows(hub: Hub, engine: LocalEngine) -> None:
    engine.arrived("R1")
    engine.arrived("R2")
    engine.finished("R2", "abort", tokens=0)
    assert hub.next_request_id() == "R3"


def test_an_observer_that_fails_does_not_stop_the_stream(hub: Hub, engine: LocalEngine) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("observer")

    hub.observers.append(fail)
    engine.arrived("R1")
    assert hub.engines["main"].state == engine.state
