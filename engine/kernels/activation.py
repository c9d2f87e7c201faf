"""SwiGLU's activation: silu(gate) × up in one pass.

Contract. Equal to `models.ops.silu_and_mul` up to rounding; there is one rounding here, of the product.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) × up for gate_up [num_tokens, gate | up]."""
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_tokens, size, dtype=gate_up.dtype, device=gate_up.device)
    silu_and_mul_kernel[(num_tokens, triton.cdiv(size, BLOCK))](
        gate_up, out, gate_up.stride(0), SIZE=size, BLOCK=BLOCK, num_warps=4
    )
    return out


@triton.jit
def silu_and_mul_kernel(
    gate_up,  # [num_tokens, gate | up]
    out,  # [num_tokens, SIZE]
    token_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < SIZE
    gate = tl.load(gate_up + token * token_stride + i, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * token_stride + SIZE + i, mask=mask, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up  # exp may be infinite: then the quotient is 0, as it should be
    tl.store(out + token * SIZE + i, product.to(out.dtype.element_ty), mask=mask)
