"""An engine that dies leaves a recording of what led to it."""

from __future__ import annotations

import gzip
import json

import httpx

from app.crash import KEPT, write_bundle
from tests.app.fakes import until
from tests.app.processes import serving


def test_a_bundle_is_a_recording_and_only_the_last_few_are_kept(tmp_path):
    for number in range(KEPT + 2):
        path = write_bundle(tmp_path / "crashes", f"e/{number}", ['{"kind":"hello"}', '{"kind":"key"}'])
        assert path is not None
    assert len(list((tmp_path / "crashes").iterdir())) == KEPT
    assert gzip.decompress(path.read_bytes()) == b'{"kind":"hello"}\n{"kind":"key"}\n'


def test_nothing_to_write_and_nowhere_to_write_are_no_errors(tmp_path):
    (tmp_path / "file").write_text("")
    assert write_bundle(tmp_path, "main", []) is None
    assert write_bundle(tmp_path / "file" / "crashes", "main", ["{}"]) is None


def test_a_killed_engine_leaves_a_bundle(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path))
    with serving() as server, httpx.Client(base_url=server.url) as client:
        client.post("/v1/completions", json={"prompt": "hello", "max_tokens": 3})
        server.engine_process().kill()
        bundle = until(lambda: next(iter(tmp_path.glob("crashes/*.jsonl.gz")), None), "the bundle")
        until(lambda: any("What led to it" in line for line in server.errors), "the word of it")
        kinds = [json.loads(line)["kind"] for line in gzip.decompress(bundle.read_bytes()).splitlines()]
    assert kinds[:2] == ["hello", "key"]
    assert kinds[-1] == "bye"
    assert "step" in kinds
