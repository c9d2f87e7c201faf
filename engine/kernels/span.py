"""Attention of a tile of queries over a span of one row's tokens: the loop that both attention kernels share."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.attention.cache import LayerCache
from engine.kernels.quantized import as_number

MIN_DOT = 16  # the least side of a matrix product that tensor cores take
WIDE_BYTES = 256  # of one head; wider ones go through shared memory 32 tokens at a time

_LOG2_E = tl.constexpr(1.4426950408889634)
_NOTHING = tl.constexpr(-1e30)  # the maximum over no tokens; infinity minus infinity would be NaN


def span_shape(q: Tensor, cache: LayerCache, rows: int) -> dict[str, Any]:
    """The constants of `attend_span` for products of at least `rows` rows."""
    _, num_kv_heads, block_size, head_dim = cache.keys.shape
    group = q.shape[1] // num_kv_heads
    block_d = max(MIN_DOT, triton.next_power_of_2(head_dim))
    return {
        "GROUP": group,  # query heads that share a KV head
        "BLOCK_M": max(rows, MIN_DOT, triton.next_power_of_2(group)),
        "HEAD_DIM": head_dim,
        "BLOCK_D": block_d,
        "BLOCK_SIZE": block_size,
        "TILE": 64 if block_d * q.element_size() <= WIDE_BYTES else 32,
        "QUANTIZED": cache.quantized,
    }


@triton.jit
def attend_span(
    q,  # [BLOCK_M, BLOCK_D]: (query, head) pairs of one KV head; zeros past head_dim
    position,  # [BLOCK_M]: the token that each of them is; it looks no further
    begin,  # the span, in tokens of the row
    end,
    keys,
    values,
    key_scales,
    value_scales,
    table,  # the row's block table
    kv_head,
    scale,
    cache_block_stride,
    scale_block_stride,
    BLOCK_M: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
):
    """(Σ p v [BLOCK_M, BLOCK_D], highest score × log2 e [BLOCK_M], Σ p [BLOCK_M]), p = exp(score - highest).

    Over no tokens: (0, -1e30, 0).
    """
    d = tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    highest = tl.full([BLOCK_M], _NOTHING, tl.float32)
    norm = tl.zeros([BLOCK_M], tl.float32)
    for start in range(begin, end, TILE):
        token = start + tl.arange(0, TILE)
        inside = token < end
        block = tl.load(table + token // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
        offset = kv_head * BLOCK_SIZE + token % BLOCK_SIZE
        at = (block * cache_block_stride + offset * HEAD_DIM)[:, None] + d[None, :]
        mask = inside[:, None] & (d < HEAD_DIM)[None, :]
        at_scale = block * scale_block_stride + offset

        k = as_number(tl.load(keys + at, mask=mask, other=0.0), q.dtype)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * _LOG2_E)  # [BLOCK_M, TILE]
        if QUANTIZED:
            scores *= tl.load(key_scales + at_scale, mask=inside, other=0.0)[None, :]
        seen = inside[None, :] & (token[None, :] <= position[:, None])
        scores = tl.where(seen, scores, _NOTHING)
        top = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.where(seen, tl.exp2(scores - top[:, None]), 0.0)
        rescale = tl.exp2(highest - top)
        norm = norm * rescale + tl.sum(weights, 1)
        highest = top

        v = as_number(tl.load(values + at, mask=mask, other=0.0), q.dtype)
        if QUANTIZED:
            # Relative to the largest of the tile: a weight times a scale may be too small a number for half precision.
            value_scale = tl.load(value_scales + at_scale, mask=inside, other=0.0)
            largest = tl.maximum(tl.max(value_scale, 0), 1e-30)
            weights *= (value_scale / largest)[None, :]
            added = tl.dot(weights.to(q.dtype), v, input_precision="ieee") * largest
        else:
            added = tl.dot(weights.to(q.dtype), v, input_precision="ieee")
        total = total * rescale[:, None] + added
    return total, highest, norm
