"""Emitter and EventRing: numbers without holes, and a full ring that says what it dropped."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import events
from engine.emitter import Emitter, EventRing
from tests.engine.harness import FakeClock, Harness, to_json


def emitter(ring: EventRing | list | None) -> Emitter:
    return Emitter("main", "epoch", FakeClock(), ring)


def beat(source: Emitter) -> None:
    source.emit(events.Beat, step_age_us=None)


def key(source: Emitter) -> None:
    source.emit(events.Key, state={})


def text(source: Emitter) -> None:
    source.text("r1", 0, "x", [1], done=False)


# -- the emitter -------------------------------------------------------------------------------------------------


def test_events_are_numbered_from_one_without_gaps():
    sink: list[events.Event] = []
    source = emitter(sink)
    for _ in range(3):
        beat(source)
    assert [event.seq for event in sink] == [1, 2, 3]


def test_a_key_takes_no_number_and_carries_that_of_the_last_event():
    sink: list[events.Event] = []
    source = emitter(sink)
    for emit in (beat, key, beat):
        emit(source)
    assert [(event.kind, event.seq) for event in sink] == [("beat", 1), ("key", 1), ("beat", 2)]


def test_every_event_says_whose_it_is_and_when():
    clock = FakeClock()
    sink: list[events.Event] = []
    source = Emitter("left", "e1", clock, sink)
    clock.advance(7)
    beat(source)
    assert (sink[0].engine, sink[0].epoch, sink[0].t) == ("left", "e1", 7)


def test_text_has_no_number():
    sink: list[events.Event] = []
    source = emitter(sink)
    text(source)
    beat(source)
    assert not hasattr(sink[0], "seq")
    assert sink[1].seq == 1


def test_without_a_sink_nothing_is_built():
    source = emitter(None)
    assert source.emit(events.Beat, nonsense=True) is None
    text(source)
    assert source.seq == 0


def test_events_cannot_be_changed_once_they_are_out():
    sink: list[events.Event] = []
    beat(emitter(sink))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sink[0].seq = 9


# -- the ring ----------------------------------------------------------------------------------------------------


def test_what_goes_in_comes_out_in_order_and_once():
    ring = EventRing()
    source = emitter(ring)
    for emit in (beat, text, beat):
        emit(source)
    assert [item.kind for item in ring.take()] == ["beat", "text", "beat"]
    assert ring.take() == []


def test_a_full_ring_drops_whole_events_and_knows_it():
    ring = EventRing(limit=2)
    source = emitter(ring)
    for _ in range(5):
        beat(source)
    assert ring.overflowed
    assert ring.num_dropped == 3
    assert [item.seq for item in ring.take()] == [1, 2]


def test_the_next_key_is_preceded_by_a_gap_that_names_what_is_missing():
    ring = EventRing(limit=2)
    source = emitter(ring)
    for emit in (beat, beat, beat, beat, key):
        emit(source)
    gap, state = ring.take()[2:]
    assert (gap.kind, gap.first, gap.last, gap.seq) == ("gap", 3, 4, 4)
    assert (state.kind, state.seq) == ("key", 4)


def test_room_in_the_ring_does_not_end_a_gap_only_a_key_does():
    ring = EventRing(limit=1)
    source = emitter(ring)
    beat(source)
    beat(source)
    ring.take()
    beat(source)
    assert ring.take() == []
    key(source)
    assert [(g.kind, g.seq) for g in ring.take()] == [("gap", 3), ("key", 3)]
    assert not ring.overflowed


def test_a_key_without_a_loss_comes_without_a_gap():
    ring = EventRing()
    source = emitter(ring)
    beat(source)
    key(source)
    assert [item.kind for item in ring.take()] == ["beat", "key"]


def test_text_is_never_dropped():
    ring = EventRing(limit=1)
    source = emitter(ring)
    for _ in range(5):
        beat(source)
        text(source)
    assert [item.kind for item in ring.take()].count("text") == 5


@given(st.lists(st.sampled_from("eeeetkT"), max_size=60), st.integers(1, 5))
def test_every_number_is_delivered_or_named_by_a_gap(actions, limit):
    """Rule 3: never a silent hole. e: event, t: text, k: key, T: the publisher takes."""
    ring = EventRing(limit)
    source = emitter(ring)
    taken: list = []
    for action in [*actions, "k", "T"]:
        if action == "T":
            taken += ring.take()
        else:
            {"e": beat, "t": text, "k": key}[action](source)
    numbers: list[int] = []
    for before, item in zip([None, *taken], taken, strict=False):
        if item.kind == "gap":
            numbers += range(item.first, item.last + 1)
        elif item.kind == "beat":
            numbers.append(item.seq)
        if before is not None and before.kind == "gap":
            assert item.kind == "key"
    assert numbers == list(range(1, source.seq + 1))
    assert [item.kind for item in taken].count("text") == actions.count("t")


def test_a_reader_who_lost_events_has_the_whole_truth_after_the_key():
    engine = Harness()
    ring = EventRing(limit=10)
    engine.core.emitter._sink = ring
    for letter in "abcdef":
        engine.add(letter * 30, max_tokens=10)
    engine.run()
    engine.core.reporter.key()
    last = ring.take()[-1]
    assert ring.num_dropped > 0
    assert to_json(last.state) == engine.state()
