"""Which device, which dtype, and what is said of it."""

from __future__ import annotations

import pytest
import torch

from engine import device as device_module
from engine.config import EngineConfig
from engine.device import (
    Choice,
    choose_device,
    device_facts,
    findings,
    naming_memory,
    resolve_device,
    resolve_dtype,
)
from engine.errors import ConfigError
from engine.roofs import measure_roofs

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class FakeGpu:
    """What torch.cuda says of a GPU, and what becomes of a first kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], trouble: Exception | None = None):
        self.trouble = trouble
        self.tried = 0
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Fake 9000")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(device_module, "try_kernel", self.try_kernel)

    def try_kernel(self, device: torch.device) -> None:
        assert device == CUDA
        self.tried += 1
        if self.trouble is not None:
            raise self.trouble


def test_auto_is_the_cpu_where_there_is_no_gpu():
    choice = choose_device("auto")
    assert (choice.device, choice.passed_over) == (CPU, None)
    assert choice.why.endswith("finds no CUDA device")


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_a_gpu_that_runs_a_kernel_is_taken(monkeypatch: pytest.MonkeyPatch, asked: str):
    gpu = FakeGpu(monkeypatch, (9, 0))
    assert choose_device(asked) == Choice(CUDA, "Fake 9000 (compute capability 9.0)")
    assert resolve_device(EngineConfig(device=asked)) == CUDA
    assert gpu.tried == 2


def test_the_cpu_is_taken_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    gpu = FakeGpu(monkeypatch, (9, 0))
    assert choose_device("cpu").device == CPU
    assert gpu.tried == 0


def test_auto_passes_an_old_gpu_over_and_says_so(monkeypatch: pytest.MonkeyPatch):
    FakeGpu(monkeypatch, (7, 5))
    choice = choose_device("auto")
    assert choice.device == CPU
    assert choice.passed_over == (
        "Fake 9000 (compute capability 7.5): it takes 8.0 or more, or --device cuda to try all the same"
    )
    assert choose_device("cuda").device == CUDA


@pytest.mark.parametrize(
    "trouble",
    [ImportError("No module named 'triton'"), RuntimeError("Failed to find C compiler.\nmore"), RuntimeError()],
)
def test_a_gpu_whose_first_kernel_fails_is_passed_over_or_refused(monkeypatch: pytest.MonkeyPatch, trouble: Exception):
    FakeGpu(monkeypatch, (9, 0), trouble)
    choice = choose_device("auto")
    assert choice.device == CPU
    assert choice.passed_over is not None
    assert type(trouble).__name__ in choice.passed_over
    assert "more" not in choice.passed_over
    with pytest.raises(
        ConfigError, match=r"^--device is cuda, and Fake 9000 .* Leave the flag out to run on the CPU\.$"
    ):
        choose_device("cuda")


def test_findings_say_what_would_be_used_and_why(monkeypatch: pytest.MonkeyPatch):
    FakeGpu(monkeypatch, (9, 0))
    assert findings(EngineConfig()) | {"torch": "", "threads": 0} == {
        "torch": "",
        "threads": 0,
        "used": "cuda",
        "why": "Fake 9000 (compute capability 9.0)",
        "dtype": "bfloat16",
        "no_graphs": None,
    }
    assert findings(EngineConfig(enforce_eager=True))["no_graphs"].startswith("--enforce-eager: every step")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert findings(EngineConfig(device="cuda"))["used"] is None


def test_a_gpu_that_is_too_small_is_a_sentence():
    with pytest.raises(ConfigError, match=r"^The GPU's memory is too small \(Tried 2 GiB\)\. Free "), naming_memory():
        raise torch.OutOfMemoryError("Tried 2 GiB\nand more")


def test_a_machine_that_is_too_small_is_a_sentence():
    said = r"^This machine's memory is too small \(.*4000000000000000 bytes.*\)\. Free "
    with pytest.raises(ConfigError, match=said), naming_memory():
        torch.empty(10**15)


def test_roofs_that_do_not_fit_the_memory_are_unknown(monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(device_module, "measure_roofs", full)
    assert device_facts(CPU, torch.float32).peak_flops is None


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
