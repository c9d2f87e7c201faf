"""The ring of events: whole at any moment, bounded whatever comes."""

from __future__ import annotations

import gzip

from app import history as history_module
from app.history import MAX_BYTES, MAX_SEGMENTS, SEGMENT_EVENTS, SEGMENT_SECONDS, History, compress


def fill(history: History, count: int, *, kind: str = "step", size: int = 1, seconds: float = 0.0) -> None:
    for number in range(count):
        history.append(kind, f"{kind}{number}".ljust(size), seconds * number, lambda number=number: f"key{number}")


def keys(history: History) -> list[str]:
    return [line for line in history.lines("hello") if line.startswith("key")]


def test_a_recording_begins_with_hello_and_a_key() -> None:
    history = History()
    fill(history, 3)
    assert history.lines("hello") == ["hello", "key0", "step1", "step2"]


def test_a_key_comes_every_so_many_events() -> None:
    history = History()
    fill(history, 2 * SEGMENT_EVENTS + 1)
    assert len(keys(history)) == 3


def test_a_key_comes_every_so_many_seconds() -> None:
    history = History()
    fill(history, 3, seconds=SEGMENT_SECONDS)
    assert len(keys(history)) == 3


def test_heartbeats_alone_make_no_keys() -> None:
    history = History()
    fill(history, 20, kind="beat", seconds=SEGMENT_SECONDS)
    assert len(keys(history)) == 1


def test_the_oldest_segments_go_first_and_what_is_left_begins_with_a_key() -> None:
    history = History()
    fill(history, (MAX_SEGMENTS + 5) * SEGMENT_EVENTS)
    lines = history.lines("hello")
    assert len(keys(history)) == MAX_SEGMENTS
    assert lines[1].startswith("key")


def test_the_ring_is_bounded_in_bytes() -> None:
    history = History()
    fill(history, 4 * SEGMENT_EVENTS, size=MAX_BYTES // SEGMENT_EVENTS)
    assert sum(map(len, history.lines("hello"))) <= 2 * MAX_BYTES


def test_a_recording_is_lines_in_gzip() -> None:
    assert gzip.decompress(compress(["{}", '{"é":1}'])).decode() == '{}\n{"é":1}\n'
    assert history_module.compress([]) == compress([])
