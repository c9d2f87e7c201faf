"""The noise that engine/kernels/sampling.py draws with, as a tensor: to let torch's sampler draw with the same."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.sampling import exponential_noise, signed
from engine.sampler import Draw

BLOCK = 1024


def device_noise(draws: Sequence[Draw], vocab_size: int, device: torch.device) -> Tensor:
    """[num_draws, vocab_size] fp32."""
    blocks = triton.cdiv(vocab_size, BLOCK)
    out = torch.empty(len(draws), blocks * BLOCK, device=device)
    for row, draw in zip(out, draws, strict=True):
        noise_kernel[(blocks,)](row, signed(draw.seed), draw.output_index, BLOCK=BLOCK)
    return out[:, :vocab_size]


@triton.jit
def noise_kernel(out, seed, output_index, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    tl.store(out + start + tl.arange(0, BLOCK), exponential_noise(seed, output_index, start, BLOCK))
