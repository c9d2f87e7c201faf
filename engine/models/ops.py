"""What a model is built with besides its matrix products: one set of operations per kind of device.

On a CPU the small ones are dispatch, not arithmetic: at eight rows the six torch calls of one RMSNorm take 50 µs in the
middle of a forward pass for 4,608 numbers, and there are 61 of them in thirty layers. `cpu_ops` has each as a compiled
call, engine/kernels as a launch; the ones here are the oracles of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.attention import reference
from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache, store_kv
from engine.threads import share_one_pool


class RMSNormOp(Protocol):
    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...


class AddRMSNormOp(Protocol):
    def __call__(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]: ...


class RotateOp(Protocol):
    def __call__(self, heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None: ...


class RotateAndStoreOp(Protocol):
    def __call__(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, cache: LayerCache, slot_mapping: Tensor
    ) -> None: ...


class AttendOp(Protocol):
    def __call__(self, qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor: ...


class SiluAndMulOp(Protocol):
    def __call__(self, gate_up: Tensor) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Ops:
    """qkv is [num_tokens, q heads | k heads | v heads, head_dim] throughout."""

    rms_norm: RMSNormOp
    add_rms_norm: AddRMSNormOp
    rotate_and_store: RotateAndStoreOp  # turns q and k in place, puts k and v into the cache
    attend: AttendOp  # the queries over all of each row's tokens → [num_tokens, q heads, head_dim]
    silu_and_mul: SiluAndMulOp


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) × weight. x [num_tokens, size], weight [size]."""
    return F.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(`rms_norm` of x + residual, x + residual), both [num_tokens, size]."""
    summed = x + residual
    return rms_norm(summed, weight, eps), summed


def rotate(heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """Rotary embedding, in place, of the first `num_rotated` heads of each token: q's and k's, not v's.

    heads [num_tokens, q heads + k heads + v heads, head_dim]; cos and sin [max positions, head_dim / 2] are the
    angles' tables. The first half of a head is turned against the second.
    """
    c, s = cos[positions].unsqueeze(1), sin[positions].unsqueeze(1)  # [num_tokens, 1, head_dim / 2]
    first, second = heads[:, :num_rotated].float().chunk(2, dim=-1)
    heads[:, :num_rotated] = torch.cat([first * c - second * s, second * c + first * s], dim=-1).to(heads.dtype)


def rotate_and_store(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, cache: LayerCache, slot_mapping: Tensor
) -> None:
    """`rotate` q and k, then `store_kv` k and v."""
    num_kv_heads = cache.keys.shape[1]
    rotate(qkv, qkv.shape[1] - num_kv_heads, cos, sin, positions)
    store_kv(qkv[:, -2 * num_kv_heads : -num_kv_heads], qkv[:, -num_kv_heads:], cache, slot_mapping)


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) × up for gate_up [num_tokens, gate | up]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


PLAIN_OPS = Ops(rms_norm, add_rms_norm, rotate_and_store, reference.attend, silu_and_mul)


def choose_ops(device: torch.device, dtype: torch.dtype) -> Ops:
    """The quickest set for this device and dtype."""
    if device.type == "cuda":
        from engine.kernels.ops import GPU_OPS  # triton: only where there is something to run on

        return GPU_OPS
    try:
        from engine.models import cpu_ops  # numba: half a second to import
    except ImportError:
        return PLAIN_OPS  # a GPU's machine need not have numba; its oracle is then slow
    share_one_pool()
    return cpu_ops.COMPILED_OPS if dtype == torch.float32 else cpu_ops.HALF_OPS
