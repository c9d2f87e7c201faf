"""The small operations between the matrix products, in plain torch, and the set a model is built with.

On a CPU they are dispatch, not arithmetic: at eight rows the six torch calls of one RMSNorm take 50 µs in the middle
of a forward pass for 4,608 numbers, and there are 61 of them in thirty layers. `cpu_ops` has the same functions as
one compiled call each; the ones here are their oracles, and serve every other device and dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class RMSNormOp(Protocol):
    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...


class RotateOp(Protocol):
    def __call__(self, heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None: ...


class SiluAndMulOp(Protocol):
    def __call__(self, gate_up: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Ops:
    rms_norm: RMSNormOp
    rotate: RotateOp
    silu_and_mul: SiluAndMulOp


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) × weight. x [num_tokens, size], weight [size]."""
    return F.rms_norm(x, weight.shape, weight, eps)


def rotate(heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """Rotary embedding, in place, of the first `num_rotated` heads of each token: q's and k's, not v's.

    heads [num_tokens, q heads + k heads + v heads, head_dim]; cos and sin [max positions, head_dim / 2] are the
    angles' tables. The first half of a head is turned against the second.
    """
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)  # [num_tokens, 1, head_dim / 2]
    first, second = heads[:, :num_rotated].float().chunk(2, dim=-1)
    heads[:, :num_rotated] = torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(heads.dtype)


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) × up for gate_up [num_tokens, gate | up]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


PLAIN_OPS = Ops(rms_norm, rotate, silu_and_mul)


def choose_ops(device: torch.device, dtype: torch.dtype) -> Ops:
    """The quickest set for this device and dtype."""
    if device.type == "cpu" and dtype == torch.float32:
        from engine.models.cpu_ops import COMPILED_OPS  # numba: half a second to import

        return COMPILED_OPS
    return PLAIN_OPS
