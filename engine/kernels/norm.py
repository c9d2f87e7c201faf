"""RMSNorm, alone and fused with the addition before it.

Contract. Equal to `models.ops.rms_norm` up to rounding. The sum of two is rounded to their dtype before it is normed,
as it would be without the fusion, because the next layer adds to that very sum.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) × weight. x [num_tokens, size], weight [size]."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    _launch(x, None, weight, eps, out, None)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(`rms_norm` of x + residual, x + residual), both [num_tokens, size]."""
    out, summed = torch.empty(2, *x.shape, dtype=x.dtype, device=x.device)
    _launch(x, residual, weight, eps, out, summed)
    return out, summed


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, out: Tensor, summed: Tensor | None) -> None:
    num_tokens, size = x.shape
    block = triton.next_power_of_2(size)
    rms_norm_kernel[(num_tokens,)](
        x,
        residual,
        weight,
        out,
        summed,
        eps,
        x.stride(0),
        residual.stride(0) if residual is not None else 0,
        SIZE=size,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 16),
    )


@triton.jit
def rms_norm_kernel(
    x,  # [num_tokens, SIZE]
    residual,  # the same, or None
    weight,  # [SIZE]
    out,  # like x
    summed,  # like x where there is a residual, else None
    eps,
    x_token_stride,
    residual_token_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per token."""
    token, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    mask = i < SIZE
    row = tl.load(x + token * x_token_stride + i, mask=mask, other=0.0).to(tl.float32)
    if residual is not None:
        row += tl.load(residual + token * residual_token_stride + i, mask=mask, other=0.0).to(tl.float32)
        rounded = row.to(summed.dtype.element_ty)
        tl.store(summed + token * SIZE + i, rounded, mask=mask)
        row = rounded.to(tl.float32)
    normed = row * tl.rsqrt(tl.sum(row * row, 0) / SIZE + eps)
    normed *= tl.load(weight + i, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + token * SIZE + i, normed.to(out.dtype.element_ty), mask=mask)
