"""What an engine says it switched off, and an engine that was told to switch its CUDA graphs off."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine.build
import engine.graphs
from engine.build import build
from engine.config import EngineConfig
from engine.graphs import repeat
from engine.model_runner import ModelRunner
from engine.switched_off import switched_off, why_no_graphs
from tests.engine.tiny import write_folder

EAGER = EngineConfig(enforce_eager=True)


def test_a_gpu_replays_graphs_unless_told_otherwise():
    assert why_no_graphs(EngineConfig(), "cuda") is None
    assert switched_off(EngineConfig(), "cuda") == []
    off = {"feature": "cuda_graphs", "reason": "--enforce-eager: every step launches its kernels one by one"}
    assert switched_off(EAGER, "cuda") == [off]


def test_a_cpu_takes_the_flag_and_says_that_it_has_none_anyway():
    reason = "there are none on a CPU; --enforce-eager changes nothing"
    assert switched_off(EAGER, "cpu") == [{"feature": "cuda_graphs", "reason": reason}]
    assert switched_off(EngineConfig(), "cpu") == []


def test_a_gpu_that_was_passed_over_is_named_first():
    assert [off["feature"] for off in switched_off(EAGER, "cpu", "Old 1: too old")] == ["cuda", "cuda_graphs"]


def test_hello_of_a_scripted_engine_says_it_too():
    built = build(EngineConfig(model="scripted", enforce_eager=True), lambda *report: None)
    assert [off["feature"] for off in built.disabled] == ["cuda_graphs"]


@pytest.mark.parametrize("eager", [False, True])
def test_an_engine_captures_graphs_only_where_they_are_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, eager: bool
):
    """As on a GPU, but for the capture itself."""
    monkeypatch.setattr(engine.build, "why_no_graphs", lambda config, device: why_no_graphs(config, "cuda"))
    monkeypatch.setattr(engine.graphs, "CudaCapture", lambda: repeat)
    folder = write_folder(tmp_path / "tiny")
    config = EngineConfig(model=str(folder), device="cpu", num_blocks=32, max_num_seqs=2, enforce_eager=eager)
    built = build(config, lambda *report: None)
    assert isinstance(built.runner, ModelRunner)
    assert (built.runner.graphs is None) is eager
