"""The device an engine runs on: which one and why, in which dtype, what it is called and what it can do.

`--device auto` is a GPU where torch finds one of compute capability 8.0 or more (bfloat16 in its tensor cores) and a
first kernel compiles and runs on it: that takes triton, a driver and a C compiler. Else it is the CPU. The whole
engine has been seen to run on an H200 (benchmarks/gpu_check.h200.json).
"""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError, brief
from engine.events import DeviceFacts
from engine.roofs import Roofs, measure_roofs
from engine.switched_off import why_no_graphs

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


LEAST_CAPABILITY = (8, 0)
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Choice:
    """A device, why it was chosen, and what is wrong with a GPU that is there and was not."""

    device: torch.device
    why: str
    passed_over: str | None = None


def choose_device(asked: str) -> Choice:
    """`--device`. Raises ConfigError if it is `cuda` and that cannot be."""
    if asked == "cpu":
        return Choice(CPU, "--device is cpu")
    if not torch.cuda.is_available():
        if asked == "cuda":
            raise ConfigError(
                f"--device is cuda, and torch {torch.__version__} finds no CUDA device here. Leave the flag out to run "
                "on the CPU, or install a CUDA build of torch and its driver."
            )
        return Choice(CPU, f"torch {torch.__version__} finds no CUDA device")
    name, wrong = _first_gpu(try_all=asked == "cuda")
    if wrong is None:
        return Choice(torch.device("cuda", torch.cuda.current_device()), name)
    if asked == "cuda":
        raise ConfigError(
            f"--device is cuda, and {name} cannot be used: {wrong}. Leave the flag out to run on the CPU."
        )
    return Choice(CPU, f"{name} cannot be used: {wrong}", f"{name}: {wrong}")


def _first_gpu(*, try_all: bool) -> tuple[str, str | None]:
    """(its name, what is wrong with it); `try_all`: an old one may do."""
    name = "the CUDA device"
    try:
        device = torch.device("cuda", torch.cuda.current_device())
        major, minor = torch.cuda.get_device_capability(device)
        name = f"{torch.cuda.get_device_name(device)} (compute capability {major}.{minor})"
        if (major, minor) < LEAST_CAPABILITY and not try_all:
            return name, "it takes 8.0 or more, or --device cuda to try all the same"
        try_kernel(device)
    except Exception as error:  # whatever a driver, a compiler or an import may say
        return name, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.160}".rstrip(". ")
    return name, None


@functools.cache
def try_kernel(device: torch.device) -> None:
    """Compile and run a kernel; raises whatever is in the way."""
    from engine.kernels.norm import rms_norm

    found = rms_norm(torch.full((1, 16), 2.0, device=device), torch.ones(16, device=device), 0.0)
    if not bool((found - 1).abs().max() < 1e-3):
        raise RuntimeError("a kernel gives wrong numbers")


def resolve_device(config: EngineConfig) -> torch.device:
    """The device of `choose_device`."""
    return choose_device(config.device).device


def findings(config: EngineConfig) -> dict[str, Any]:
    """What `stepscope doctor` says, who imports no torch: as JSON. `used` is None if `--device` cannot be."""
    try:
        choice = choose_device(config.device)
    except ConfigError as error:
        found: dict[str, Any] = {"used": None, "why": str(error), "dtype": "", "no_graphs": None}
    else:
        found = {
            "used": choice.device.type,
            "why": choice.why,
            "dtype": str(resolve_dtype(config, choice.device)).removeprefix("torch."),
            "no_graphs": why_no_graphs(config, choice.device.type),
        }
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), **found}


def resolve_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """`--dtype`. `auto` is bfloat16 on a GPU; on a CPU float32, in which any schedule gives the same tokens."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[config.dtype]


@contextmanager
def naming_memory() -> Iterator[None]:
    """Within, memory that is too small is a ConfigError: there is something to be done about it."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"The GPU's memory is too small ({str(error).splitlines()[0]:.160}). Free what other programs hold, choose "
            "a smaller model, or lower --gpu-memory-utilization, --max-num-batched-tokens or --max-num-seqs."
        ) from None
    except (RuntimeError, MemoryError) as error:  # torch on a CPU has no error of its own for that
        if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
            raise
        raise ConfigError(
            f"This machine's memory is too small ({brief(error) or 'MemoryError'}). Free what other programs hold, "
            "choose a smaller model, or lower --num-blocks, --max-num-batched-tokens or --max-num-seqs."
        ) from None


def device_facts(device: torch.device, dtype: torch.dtype, why: str = "") -> DeviceFacts:
    """What `hello` says of the device; measures its roofs, if there is room for that."""
    try:
        roofs: Roofs | None = measure_roofs(device, dtype)
    except torch.OutOfMemoryError:
        roofs = None
    cuda = device.type == "cuda"
    return DeviceFacts(
        type=device.type,
        name=torch.cuda.get_device_name(device) if cuda else _cpu_name(),
        num_threads=torch.get_num_threads(),
        why=why,
        total_bytes=torch.cuda.mem_get_info(device)[1] if cuda else _memory_bytes(),
        peak_flops=roofs.flops if roofs else None,
        peak_bytes_per_s=roofs.bytes_per_s if roofs else None,
    )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_name() -> str:
    """The processor's name as its maker writes it, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
