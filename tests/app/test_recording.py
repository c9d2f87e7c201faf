"""A recording taken from a real run, folded by the reducer."""

from __future__ import annotations

import copy
import gzip
import json

from app.state import fold
from tests.app.processes import Served


def test_a_recording_folds_from_key_to_key(served: Served) -> None:
    for number in range(12):
        served.client.post("/v1/completions", json={"prompt": f"prompt {number}", "max_tokens": 40})
    lines = gzip.decompress(served.client.get("/api/recording").content).decode().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["kind"] for event in events[:2]] == ["hello", "key"]
    state, keys = fold(None, events[0]), 0
    for event in events[1:]:
        if event["kind"] == "key":
            assert state == event["state"] or keys == 0
            keys += 1
        state = fold(state, copy.deepcopy(event))
    assert keys > 1
    numbers = [event["seq"] for event in events[2:] if event["kind"] != "key"]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
