"""The ring of events: whole at any moment, bounded whatever comes."""

from __future__ import annotations

import gzip

from app.history import MAX_BYTES, MAX_SEGMENTS, SEGMENT_EVENTS, SEGMENT_SECONDS, History, compress


def begun() -> History:
    history = History()
    history.hello("hello", "key", 0.0)
    return history


def fill(history: History, count: int, *, kind: str = "step", size: int = 1, seconds: float = 0.0) -> None:
    for number in range(count):
        history.append(kind, f"{kind}{number}".ljust(size), seconds * number, lambda number=number: f"key{number}")


def keys(history: History) -> list[str]:
    return [line for line in history.lines() if line.startswith("key")]


def test_a_recording_begins_with_hello_and_a_key() -> None:
    history = begun()
    fill(history, 3)
    assert history.lines() == ["hello", "key", "step0", "step1", "step2"]


def test_a_key_comes_every_so_many_events() -> None:
    history = begun()
    fill(history, 2 * SEGMENT_EVENTS)
    assert len(keys(history)) == 3


def test_a_key_comes_every_so_many_seconds() -> None:
    history = begun()
    fill(history, 3, seconds=SEGMENT_SECONDS)
    assert keys(history) == ["key", "key1", "key2"]


def test_heartbeats_alone_make_no_keys() -> None:
    history = begun()
    fill(history, 20, kind="beat", seconds=SEGMENT_SECONDS)
    assert len(keys(history)) == 1


def test_the_oldest_segments_go_first_and_what_is_left_begins_with_a_key() -> None:
    history = begun()
    fill(history, (MAX_SEGMENTS + 5) * SEGMENT_EVENTS)
    lines = history.lines()
    assert len(keys(history)) == MAX_SEGMENTS
    assert lines[1].startswith("key")


def test_a_new_epoch_has_its_own_hello_and_leaves_what_was_before() -> None:
    history = begun()
    fill(history, 1)
    history.hello("hello again", "key again", 1.0)
    fill(history, 1)
    assert history.lines() == ["hello", "key", "step0", "hello again", "key again", "step0"]


def test_nothing_is_kept_before_the_first_hello() -> None:
    history = History()
    fill(history, 3)
    assert not history


def test_the_ring_is_bounded_in_bytes() -> None:
    history = begun()
    fill(history, 4 * SEGMENT_EVENTS, size=MAX_BYTES // SEGMENT_EVENTS)
    assert sum(map(len, history.lines())) <= 2 * MAX_BYTES


def test_a_recording_is_lines_in_gzip() -> None:
    assert gzip.decompress(compress(["{}", '{"é":1}'])).decode() == '{}\n{"é":1}\n'
