"""Keys and values to their slots of the cache, quantised on the way where it is.

Contract. `store_kv` is `attention.cache.store_kv`, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from engine.attention.cache import LayerCache
from engine.kernels.quantized import EXACT, as_bytes, as_stored, inverse_of, step_of


def store_kv(k: Tensor, v: Tensor, cache: LayerCache, slot_mapping: Tensor) -> None:
    """Write k and v [num_tokens, num_kv_heads, head_dim] to their slots; slot -1 is skipped.

    Heads lie one after the other, as `split_heads` gives them; tokens may be any distance apart.
    """
    num_tokens, num_kv_heads, head_dim = k.shape
    store_kv_kernel[(num_tokens, num_kv_heads)](
        k,
        v,
        slot_mapping,
        as_bytes(cache.keys),
        as_bytes(cache.values),
        cache.key_scales,
        cache.value_scales,
        k.stride(0),
        v.stride(0),
        cache.keys.stride(0),
        cache.key_scales.stride(0),
        HEAD_DIM=head_dim,
        BLOCK_SIZE=cache.keys.shape[2],
        STEP=step_of(cache.keys),
        BLOCK_D=triton.next_power_of_2(head_dim),
        num_warps=1,
        **EXACT,
    )


@triton.jit
def store_kv_kernel(
    k,  # [num_tokens, num_kv_heads, head_dim]
    v,
    slot_mapping,  # [num_tokens]; -1 stores nothing
    keys,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values,
    key_scales,  # [num_blocks, num_kv_heads, block_size]; written if STEP
    value_scales,
    k_token_stride,
    v_token_stride,
    cache_block_stride,
    scale_block_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    STEP: tl.constexpr,  # see quantized.step_of
    BLOCK_D: tl.constexpr,
):
    """One program per (token, KV head)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        d = tl.arange(0, BLOCK_D)
        mask = d < HEAD_DIM
        x = tl.load(k + token * k_token_stride + head * HEAD_DIM + d, mask=mask, other=0.0)
        y = tl.load(v + token * v_token_stride + head * HEAD_DIM + d, mask=mask, other=0.0)
        block, offset = slot // BLOCK_SIZE, head * BLOCK_SIZE + slot % BLOCK_SIZE
        at, at_scale = block * cache_block_stride + offset * HEAD_DIM + d, block * scale_block_stride + offset
        store_head(x, keys, at, mask, key_scales + at_scale, STEP)
        store_head(y, values, at, mask, value_scales + at_scale, STEP)


@triton.jit
def store_head(x, pool, at, mask, scale_at, STEP: tl.constexpr):
    """The numbers x of one head, 0 where masked, to `pool + at`, and their scale to `scale_at`."""
    if STEP > 0:
        scale = tl.max(tl.abs(x)).to(tl.float32) * STEP
        x = as_stored(x.to(tl.float32) * inverse_of(scale), pool.dtype.element_ty)
        tl.store(scale_at, scale)
    tl.store(pool + at, x.to(pool.dtype.element_ty), mask=mask)
