"""The device an engine runs on: which one, in which dtype, what it is called and what it can do."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.events import DeviceFacts
from engine.roofs import measure_roofs

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(config: EngineConfig) -> torch.device:
    """`--device`. `auto` is the CPU until the GPU engine has been seen to run on one (`make gpu-check`)."""
    if config.device != "cuda":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"--device is cuda, and torch {torch.__version__} finds no CUDA device here. Leave the flag out to run on "
            "the CPU, or install a CUDA build of torch and its driver."
        )
    return torch.device("cuda", torch.cuda.current_device())


def resolve_dtype(config: EngineConfig, device: torch.device) -> torch.dtype:
    """`--dtype`. `auto` is bfloat16 on a GPU; on a CPU float32, in which any schedule gives the same tokens."""
    if config.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return _DTYPES[config.dtype]


def device_facts(device: torch.device, dtype: torch.dtype) -> DeviceFacts:
    """What `hello` says of the device; measures its roofs."""
    roofs = measure_roofs(device, dtype)
    cuda = device.type == "cuda"
    return DeviceFacts(
        type=device.type,
        name=torch.cuda.get_device_name(device) if cuda else _cpu_name(),
        num_threads=torch.get_num_threads(),
        total_bytes=torch.cuda.mem_get_info(device)[1] if cuda else _memory_bytes(),
        peak_flops=roofs.flops,
        peak_bytes_per_s=roofs.bytes_per_s,
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
