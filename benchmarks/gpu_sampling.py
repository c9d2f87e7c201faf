"""The device's sampler: whether it picks what torch's does under the same noise, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from engine import sampler
from engine.request import SamplingParams
from engine.roofs import best_seconds
from engine.sampler import Draw, choose_sample

LIMITS = SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.01)
KINDS = [
    SamplingParams(temperature=0.0),
    SamplingParams(),
    SamplingParams(temperature=0.7, top_k=40),
    SamplingParams(temperature=1.3, top_p=0.9),
    SamplingParams(temperature=1.5, min_p=0.05),
    LIMITS,
]


def picks_equal(device: torch.device, batch: int, vocab_size: int) -> int:
    """How many of so many draws of all kinds, some with forbidden tokens, are torch's, given the same noise."""
    logits = _logits(device, batch, vocab_size)
    likely = logits.argmax(-1).tolist()
    draws = [
        Draw(KINDS[row % len(KINDS)], row, row % 3, frozenset({likely[row]} if row % 4 == 0 else {}))
        for row in range(batch)
    ]
    if device.type == "cuda":
        from benchmarks.kernel_noise import device_noise  # triton: only where there is something to run on

        expected = sampler.sample(logits, draws, lambda chosen, size: device_noise(chosen, size, device))
    else:
        expected = sampler.sample(logits, draws)
    return int((choose_sample(device)(logits, draws) == expected).sum())


def sampling_seconds(device: torch.device, batch: int, vocab_size: int) -> Iterator[tuple[str, float]]:
    """(which draws, the time of one step's), what the host does for them included."""
    logits, pick = _logits(device, batch, vocab_size), choose_sample(device)
    for name, params in (("temperature only", SamplingParams()), ("all limits", LIMITS)):
        draws = [Draw(params, row, 0) for row in range(batch)]
        yield name, best_seconds(lambda draws=draws: pick(logits, draws), device)  # type: ignore[misc]


def _logits(device: torch.device, batch: int, vocab_size: int) -> torch.Tensor:
    return 3 * torch.randn(batch, vocab_size, generator=torch.Generator().manual_seed(batch)).to(device)
