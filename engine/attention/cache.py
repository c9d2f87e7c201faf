"""One layer's share of the KV pool: its layout, and int8 or fp8 storage with a scale per token and head.

Layout. Keys and values of one layer are `[num_blocks, num_kv_heads, block_size, head_dim]`: the 16 tokens that one KV
head has in one block lie together, which is what a loop over (row, KV head) reads. Slot s of a slot mapping is
token `s % block_size` of block `s // block_size`; slot -1 is padding and stores nothing.

Scales. What is stored times its scale is the key or value. A scale is written once, together with its token, and
depends on nothing but that token's numbers: so a block can be shared, evicted and computed again like any other.
An int8 cache holds round(x / scale) with scale = max |x| / 127, an fp8 one (e4m3) the float nearest to x / scale with
scale = max |x| / 448; ties go to even in both. A cache of floats has the scale 1 everywhere, and keeps that one number
only once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

QUANTIZED_STEPS: Final = {torch.int8: 1 / 127, torch.float8_e4m3fn: 1 / 448}
"""Of the dtypes that come with scales: the scale per largest number of a head."""

LEAST_SCALE: Final = torch.finfo(torch.float32).tiny  # a head of smaller numbers counts as zeros: 1 / scale is finite


@dataclass(frozen=True, slots=True, eq=False)
class LayerCache:
    """See the module's docstring."""

    keys: Tensor  # [num_blocks, num_kv_heads, block_size, head_dim], floats, int8 or fp8
    values: Tensor  # the same
    key_scales: Tensor  # [num_blocks, num_kv_heads, block_size] fp32
    value_scales: Tensor  # the same

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> LayerCache:
        """Room for `shape`, the one of `keys`. Nothing is zeroed: nothing is read before it is written."""

        def pool() -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        def scales() -> Tensor:
            if dtype in QUANTIZED_STEPS:
                return torch.empty(shape[:3], dtype=torch.float32, device=device)
            return torch.ones((), device=device).expand(shape[:3])

        return cls(pool(), pool(), scales(), scales())

    @property
    def quantized(self) -> bool:
        return self.keys.dtype in QUANTIZED_STEPS


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [..., head_dim] as (`dtype` like x, scales [...] fp32); zeros have the scale 0."""
    scales = x.abs().amax(-1).float() * QUANTIZED_STEPS[dtype]
    inverse = torch.where(scales >= LEAST_SCALE, scales.reciprocal(), 0.0)
    scaled = x * inverse[..., None]
    return (scaled if dtype.is_floating_point else scaled.round()).to(dtype), scales


def store_kv(k: Tensor, v: Tensor, cache: LayerCache, slot_mapping: Tensor) -> None:
    """Write k and v [num_tokens, num_kv_heads, head_dim] to their slots; slot -1 is skipped."""
    block_size = cache.keys.shape[2]
    kept = (slot_mapping >= 0).nonzero().squeeze(1)
    slots = slot_mapping[kept]
    block, offset = slots // block_size, slots % block_size
    for x, pool, scales in ((k, cache.keys, cache.key_scales), (v, cache.values, cache.value_scales)):
        if cache.quantized:
            stored, scales[block, :, offset] = quantize(x[kept], pool.dtype)
        else:
            stored = x[kept].to(pool.dtype)
        pool[block, :, offset] = stored


def gather_kv(cache: LayerCache, blocks: Tensor, seq_len: int) -> tuple[Tensor, Tensor]:
    """One row's keys and values in token order, each [num_kv_heads, seq_len, head_dim]; `blocks` are int64 ids."""

    def tokens(pool: Tensor, scales: Tensor) -> Tensor:
        chosen = pool[blocks]  # [num_blocks, num_kv_heads, block_size, head_dim]
        if cache.quantized:
            chosen = chosen.float() * scales[blocks][..., None]
        chosen = chosen.transpose(0, 1)
        return chosen.reshape(chosen.shape[0], -1, chosen.shape[3])[:, :seq_len]

    return tokens(cache.keys, cache.key_scales), tokens(cache.values, cache.value_scales)
