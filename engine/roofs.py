"""The two roofs of a roofline, measured on this device at start: bytes per second, and floating-point operations.

Contract. What this device does on the simplest work there is, in the dtype of the weights: a copy of more than most
caches hold (counted once read and once written), and a square matrix product. The best of a few tries, a fraction of a
second in all. Another program that was busy meanwhile shows as a lower roof; nothing else is made up for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

TRIES = 5
COPY_BYTES = {"cpu": 2**27, "cuda": 2**30}
SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices
SMALL_SIDE = 256  # for half precision on a CPU, which may have to be emulated


@dataclass(frozen=True, slots=True)
class Roofs:
    flops: float  # per second
    bytes_per_s: float


@torch.inference_mode()
def measure_roofs(device: torch.device, dtype: torch.dtype) -> Roofs:
    """See the module's docstring."""
    source = torch.ones(COPY_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    side = SMALL_SIDE if device.type == "cpu" and dtype != torch.float32 else SIDE[device.type]
    matrix = torch.ones(side, side, dtype=dtype, device=device)
    product = torch.empty_like(matrix)
    copy_s = best_seconds(lambda: target.copy_(source), device)
    multiply_s = best_seconds(lambda: torch.mm(matrix, matrix, out=product), device)
    return Roofs(flops=2 * side**3 / multiply_s, bytes_per_s=2 * source.nbytes / copy_s)


def best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """The quickest of TRIES, after one that does not count."""
    work()
    best = float("inf")
    for _ in range(TRIES):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        best = min(best, time.perf_counter() - start)
    return best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
