"""Attention of a tile of queries over a span of one row's tokens: the loop that both attention kernels share.

Contract. Keys and values are read a tile of tokens at a time. Tiles that every query of the program may see entirely
come first and are masked nowhere; what is left, at most the tiles about the diagonal, is masked. The block ids of a
tile are read one tile ahead: were they read together with what lies there, two trips to memory would wait for each
other, and Triton's pipeline would put nothing between a tile's request and its use.
"""

from __future__ import annotations

import triton
import triton.language as tl

from engine.kernels.quantized import as_number

_NOTHING = tl.constexpr(-1e30)  # the maximum over no tokens; infinity minus infinity would be NaN


@triton.jit
def attend_span(
    q,  # [BLOCK_M, BLOCK_D]: (query, head) pairs of one KV head; zeros past head_dim
    position,  # [BLOCK_M]: the token that each of them is; it looks no further
    begin,  # the span, in tokens of the row
    shared,  # so far everybody looks, at least
    end,
    keys,
    values,
    key_scales,
    value_scales,
    table,  # the row's block table
    kv_head,
    scale,  # of a score, to the base 2
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

    Over no tokens: (0, -1e30, 0). If there are any, each query must see the first one.
    """
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    highest = tl.full([BLOCK_M], _NOTHING, tl.float32)
    norm = tl.zeros([BLOCK_M], tl.float32)
    whole = begin + tl.maximum(tl.minimum(shared, end) - begin, 0) // TILE * TILE
    block = _block_ids(table, begin, end, BLOCK_SIZE, TILE)
    for start in range(begin, whole, TILE):
        ahead = _block_ids(table, start + TILE, end, BLOCK_SIZE, TILE)
        total, highest, norm = _attend_tile(
            q, position, start, end, block, total, highest, norm,
            keys, values, key_scales, value_scales, kv_head, scale, cache_block_stride, scale_block_stride,
            HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE, QUANTIZED, False,
        )  # fmt: skip
        block = ahead
    for start in tl.range(whole, end, TILE, num_stages=1):
        total, highest, norm = _attend_tile(
            q, position, start, end, _block_ids(table, start, end, BLOCK_SIZE, TILE), total, highest, norm,
            keys, values, key_scales, value_scales, kv_head, scale, cache_block_stride, scale_block_stride,
            HEAD_DIM, BLOCK_D, BLOCK_SIZE, TILE, QUANTIZED, True,
        )  # fmt: skip
    return total, highest, norm


@triton.jit
def _block_ids(table, start, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """The blocks [TILE] of the tokens from `start` on; entries past the row's end are not read."""
    token = start + tl.arange(0, TILE)
    return tl.load(table + token // BLOCK_SIZE, mask=token < end, other=0)


@triton.jit
def _attend_tile(
    q,
    position,
    start,
    end,
    block,
    total,
    highest,
    norm,
    keys,
    values,
    key_scales,
    value_scales,
    kv_head,
    scale,
    cache_block_stride,
    scale_block_stride,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """`total`, `highest` and `norm` with the tokens from `start` on counted in."""
    token, d = start + tl.arange(0, TILE), tl.arange(0, BLOCK_D)
    inside = token < end
    block, offset = block.to(tl.int64), kv_head * BLOCK_SIZE + token % BLOCK_SIZE
    at = (block * cache_block_stride + offset * HEAD_DIM)[:, None] + d[None, :]
    mask = (d < HEAD_DIM)[None, :]
    if MASKED:
        mask &= inside[:, None]

    k = as_number(_load(keys + at, mask, MASKED or HEAD_DIM < BLOCK_D), q.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, TILE]
    if QUANTIZED:
        at_scale = block * scale_block_stride + offset
        scores *= (_load(key_scales + at_scale, inside, MASKED) * scale)[None, :]
    else:
        scores *= scale
    if MASKED:
        scores = tl.where(inside[None, :] & (token[None, :] <= position[:, None]), scores, _NOTHING)
    top = tl.maximum(highest, tl.max(scores, 1))
    weights = tl.exp2(scores - top[:, None])
    rescale = tl.exp2(highest - top)
    norm = norm * rescale + tl.sum(weights, 1)
    total *= rescale[:, None]

    v = as_number(_load(values + at, mask, MASKED or HEAD_DIM < BLOCK_D), q.dtype)
    if QUANTIZED:
        # Relative to the largest of the tile: a weight times a scale may be too small a number for half precision.
        value_scale = _load(value_scales + at_scale, inside, MASKED)
        largest = tl.maximum(tl.max(value_scale, 0), 1e-30)
        weights *= (value_scale / largest)[None, :]
        total += tl.dot(weights.to(q.dtype), v, input_precision="ieee") * largest
    else:
        total = tl.dot(weights.to(q.dtype), v, total, input_precision="ieee")
    return total, top, norm


@triton.jit
def _load(at, mask, MASKED: tl.constexpr):
    """What is there; 0 where masked, if anything may be."""
    if MASKED:
        return tl.load(at, mask=mask, other=0.0)
    else:
        return tl.load(at)
