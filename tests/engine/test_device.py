"""Which device, which dtype, and what is said of it."""

from __future__ import annotations

import pytest
import torch

from engine.config import EngineConfig
from engine.device import device_facts, resolve_device, resolve_dtype
from engine.errors import ConfigError
from engine.roofs import measure_roofs

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_auto_is_the_cpu():
    assert resolve_device(EngineConfig()) == CPU


def test_cuda_without_a_device_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"finds no CUDA device here\. Leave the flag out"):
        resolve_device(EngineConfig(device="cuda"))


@pytest.mark.parametrize(
    ("asked", "device", "expected"),
    [
        ("auto", CPU, torch.float32),
        ("auto", CUDA, torch.bfloat16),
        ("float32", CUDA, torch.float32),
        ("bfloat16", CPU, torch.bfloat16),
        ("float16", CUDA, torch.float16),
    ],
)
def test_the_dtype_is_what_was_asked_or_what_suits_the_device(asked: str, device: torch.device, expected: torch.dtype):
    assert resolve_dtype(EngineConfig(dtype=asked), device) == expected


def test_facts_of_this_cpu():
    facts = device_facts(CPU, torch.float32)
    assert facts.type == "cpu"
    assert facts.name
    assert facts.num_threads == torch.get_num_threads()
    assert facts.total_bytes is not None
    assert facts.total_bytes > 2**28


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_roofs_are_of_a_computer(dtype: torch.dtype):
    roofs = measure_roofs(CPU, dtype)
    assert 1e8 < roofs.bytes_per_s < 1e14
    assert 1e7 < roofs.flops < 1e17
