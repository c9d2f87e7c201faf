"""The operations of `ops`, compiled with numba for fp32 on a CPU; other dtypes share the attention.

Contract. Equal to `ops` up to rounding. One call each and one thread: for a step's few rows that is all there is to
gain. Steps of many rows are arithmetic after all, and go to torch and all its threads.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from engine.attention import paged
from engine.attention.cache import LayerCache
from engine.compiled import compiled, exp_of_negative
from engine.models import ops
from engine.models.ops import Ops

FEW_ROWS: Final = 32  # measured: above, torch is as quick or quicker


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `ops.rms_norm`."""
    if len(x) > FEW_ROWS:
        return ops.rms_norm(x, weight, eps)
    out = torch.empty_like(x)
    _rms_norm(x.numpy(), weight.numpy(), np.float32(eps), out.numpy())
    return out


def rotate(heads: Tensor, num_rotated: int, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
    """See `ops.rotate`."""
    _rotate(heads.numpy(), num_rotated, cos.numpy(), sin.numpy(), positions.numpy())


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `ops.silu_and_mul`."""
    if len(gate_up) > FEW_ROWS:
        return ops.silu_and_mul(gate_up)
    out = torch.empty(len(gate_up), gate_up.shape[1] // 2)
    _silu_and_mul(gate_up.numpy(), out.numpy())
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `ops.add_rms_norm`."""
    summed = x + residual
    return rms_norm(summed, weight, eps), summed


def rotate_and_store(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, cache: LayerCache, slot_mapping: Tensor
) -> None:
    """See `ops.rotate_and_store`."""
    rotate(qkv, qkv.shape[1] - cache.keys.shape[1], cos, sin, positions)
    paged.store(qkv, cache, slot_mapping)


def rotate_and_store_half(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, cache: LayerCache, slot_mapping: Tensor
) -> None:
    """The same for other dtypes than fp32."""
    ops.rotate(qkv, qkv.shape[1] - cache.keys.shape[1], cos, sin, positions)
    paged.store(qkv, cache, slot_mapping)


COMPILED_OPS = Ops(rms_norm, add_rms_norm, rotate_and_store, paged.attend, silu_and_mul)
HALF_OPS = Ops(ops.rms_norm, ops.add_rms_norm, rotate_and_store_half, paged.attend, ops.silu_and_mul)


@compiled()
def _rms_norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
    num_tokens, size = x.shape
    for token in range(num_tokens):
        row, normed = x[token], out[token]
        total = np.float32(0)
        for i in range(size):
            total += row[i] * row[i]
        scale = np.float32(1) / np.sqrt(total / np.float32(size) + eps)
        for i in range(size):
            normed[i] = row[i] * scale * weight[i]


@compiled()
def _rotate(heads: Any, num_rotated: Any, cos: Any, sin: Any, positions: Any) -> None:
    half = heads.shape[2] // 2
    for token in range(heads.shape[0]):
        c, s = cos[positions[token]], sin[positions[token]]
        for head in range(num_rotated):
            first, second = heads[token, head, :half], heads[token, head, half:]
            for i in range(half):
                a, b = first[i], second[i]
                first[i] = a * c[i] - b * s[i]
                second[i] = b * c[i] + a * s[i]


@compiled()
def _silu_and_mul(gate_up: Any, out: Any) -> None:
    size = out.shape[1]
    for token in range(out.shape[0]):
        gate, up, product = gate_up[token, :size], gate_up[token, size:], out[token]
        for i in range(size):
            x = gate[i]
            e = exp_of_negative(-abs(x))  # sigmoid without overflow: 1 / (1 + e) from 0 up, e / (1 + e) below
            numerator = np.float32(1) if x >= np.float32(0) else e
            product[i] = x * numerator / (np.float32(1) + e) * up[i]
