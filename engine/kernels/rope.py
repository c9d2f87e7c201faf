"""Rotary embedding of q and k, and k and v to their slots of the cache, in one launch.

Contract. Afterwards qkv and cache are what `models.ops.rotate` and then `attention.cache.store_kv` leave, bit for bit:
k is rounded to its dtype before it is quantised.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.attention.cache import LayerCache
from engine.kernels.quantized import EXACT, as_bytes, step_of
from engine.kernels.store import store_head


def rotate_and_store(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, cache: LayerCache, slot_mapping: Tensor
) -> None:
    """Turn q and k of qkv [num_tokens, q heads | k heads | v heads, head_dim] in place; store k and v.

    cos and sin [max positions, head_dim / 2]. Slot -1 is turned and not stored.
    """
    num_tokens, num_heads, head_dim = qkv.shape
    num_kv_heads = cache.keys.shape[1]
    rotate_and_store_kernel[(num_tokens, num_heads)](
        qkv,
        cos,
        sin,
        positions,
        slot_mapping,
        as_bytes(cache.keys),
        as_bytes(cache.values),
        cache.key_scales,
        cache.value_scales,
        qkv.stride(0),
        cache.keys.stride(0),
        cache.key_scales.stride(0),
        FIRST_K=num_heads - 2 * num_kv_heads,
        FIRST_V=num_heads - num_kv_heads,
        HALF=head_dim // 2,
        BLOCK_SIZE=cache.keys.shape[2],
        STEP=step_of(cache.keys),
        BLOCK_HALF=triton.next_power_of_2(head_dim // 2),
        num_warps=1,  # a second one could read what the first has turned already
        **EXACT,
    )


@triton.jit
def rotate_and_store_kernel(
    qkv,  # [num_tokens, q heads | k heads | v heads, head_dim]
    cos,  # [max positions, HALF] fp32
    sin,
    positions,  # [num_tokens]
    slot_mapping,  # [num_tokens]; -1 stores nothing
    keys,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values,
    key_scales,  # [num_blocks, num_kv_heads, block_size]; written if STEP > 0
    value_scales,
    token_stride,
    cache_block_stride,
    scale_block_stride,
    FIRST_K: tl.constexpr,  # number of the first k head
    FIRST_V: tl.constexpr,
    HALF: tl.constexpr,  # of a head: its first half is turned against its second
    BLOCK_SIZE: tl.constexpr,
    STEP: tl.constexpr,  # see quantized.step_of
    BLOCK_HALF: tl.constexpr,
):
    """One program per (token, head)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK_HALF)
    d = tl.join(i, i + HALF)  # [BLOCK_HALF, 2]
    mask = tl.join(i < HALF, i < HALF)
    at = qkv + token * token_stride + head * (2 * HALF) + d
    x = tl.load(at, mask=mask, other=0.0)
    if head < FIRST_V:
        angle = tl.load(positions + token) * HALF + i
        c = tl.load(cos + angle, mask=i < HALF, other=0.0)
        s = tl.load(sin + angle, mask=i < HALF, other=0.0)
        first, second = tl.split(x.to(tl.float32))
        x = tl.join(first * c - second * s, second * c + first * s).to(qkv.dtype.element_ty)
        tl.store(at, x, mask=mask)
    if head >= FIRST_K:
        slot = tl.load(slot_mapping + token)
        if slot >= 0:
            kv_head = (head - FIRST_K) % (FIRST_V - FIRST_K)
            block, offset = slot // BLOCK_SIZE, kv_head * BLOCK_SIZE + slot % BLOCK_SIZE
            in_pool = block * cache_block_stride + offset * (2 * HALF) + d
            in_scales = block * scale_block_stride + offset
            if head < FIRST_V:
                store_head(x, keys, in_pool, mask, key_scales + in_scales, STEP)
            else:
                store_head(x, values, in_pool, mask, value_scales + in_scales, STEP)
