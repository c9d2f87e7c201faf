"""Decode attention with each row's tokens split over several programs, and the merge of what they found.

Contract. Rows of one token each. Equal to `attention.reference` up to rounding. A part of a row may be empty, and a
padding row (seq_len 0) has nothing but empty parts: it comes out as zeros, not as 0 / 0.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache
from engine.kernels.quantized import as_readable
from engine.kernels.span import MIN_DOT, attend_span, span_shape

MAX_SPLITS = 32
MIN_PART = 256  # tokens; a shorter part is not worth its merge
PROGRAMS_PER_PROCESSOR = 2  # enough to hide one's waiting behind another's work


def choose_num_splits(programs: int, table_tokens: int, device: torch.device) -> int:
    """In how many parts to cut each row, a power of two, if unsplit there are `programs` of up to `table_tokens`."""
    wanted = min(
        num_processors(device) * PROGRAMS_PER_PROCESSOR // max(programs, 1), table_tokens // MIN_PART, MAX_SPLITS
    )
    return 1 << max(wanted, 1).bit_length() - 1


@functools.cache
def num_processors(device: torch.device) -> int:
    """Programs that run at the same time, at least."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def attend_split(q: Tensor, cache: LayerCache, meta: AttentionMetadata, num_splits: int) -> Tensor:
    """Attention of q [num_rows, q heads, head_dim] → like q. `num_splits` is a power of two."""
    num_rows, num_heads, head_dim = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    shape = span_shape(q, cache, rows=MIN_DOT)
    partial = torch.empty(num_rows, num_heads, num_splits, head_dim, dtype=torch.float32, device=q.device)
    highest, norm = torch.empty(2, num_rows, num_heads, num_splits, dtype=torch.float32, device=q.device)
    split_attention_kernel[(num_rows, cache.keys.shape[1], num_splits)](
        q,
        partial,
        highest,
        norm,
        as_readable(cache.keys),
        as_readable(cache.values),
        cache.key_scales,
        cache.value_scales,
        meta.seq_lens,
        meta.block_tables,
        head_dim**-0.5,
        q.stride(0),
        cache.keys.stride(0),
        cache.key_scales.stride(0),
        meta.block_tables.stride(0),
        NUM_SPLITS=num_splits,
        **shape,
        num_warps=4,
        num_stages=2,
    )
    merge_splits_kernel[(num_rows, num_heads)](
        partial,
        highest,
        norm,
        out,
        HEAD_DIM=head_dim,
        BLOCK_D=shape["BLOCK_D"],
        NUM_SPLITS=num_splits,
        num_warps=1,
    )
    return out


@triton.jit(do_not_specialize=["table_stride"])
def split_attention_kernel(
    q,  # [num_rows, q heads, head_dim]
    partial,  # [num_rows, q heads, NUM_SPLITS, head_dim] fp32: Σ p v of each part
    partial_highest,  # [num_rows, q heads, NUM_SPLITS] fp32, see span.attend_span
    partial_norm,  # the same: Σ p
    keys,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values,
    key_scales,  # [num_blocks, num_kv_heads, block_size]; read if QUANTIZED
    value_scales,
    seq_lens,  # [num_rows]
    block_tables,  # [num_rows, table width]
    scale,  # 1 / √head_dim
    q_token_stride,
    cache_block_stride,
    scale_block_stride,
    table_stride,
    NUM_SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr,  # see span.span_shape
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
):
    """One program per (row, KV head, part); parts are whole tiles, the last ones may be short or empty."""
    row, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    seq_len = tl.load(seq_lens + row)
    part = tl.cdiv(tl.cdiv(seq_len, NUM_SPLITS), TILE) * TILE
    lane, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    head, live = kv_head * GROUP + lane, lane < GROUP
    mask = live[:, None] & (d < HEAD_DIM)[None, :]
    total, highest, norm = attend_span(
        tl.load(q + row * q_token_stride + head[:, None] * HEAD_DIM + d[None, :], mask=mask, other=0.0),
        tl.full([BLOCK_M], 0, tl.int32) + seq_len - 1,
        split * part,
        tl.minimum((split + 1) * part, seq_len),
        keys,
        values,
        key_scales,
        value_scales,
        block_tables + row * table_stride,
        kv_head,
        scale,
        cache_block_stride,
        scale_block_stride,
        BLOCK_M,
        HEAD_DIM,
        BLOCK_D,
        BLOCK_SIZE,
        TILE,
        QUANTIZED,
    )
    at = (row * tl.num_programs(1) * GROUP + head) * NUM_SPLITS + split
    tl.store(partial + at[:, None] * HEAD_DIM + d[None, :], total, mask=mask)
    tl.store(partial_highest + at, highest, mask=live)
    tl.store(partial_norm + at, norm, mask=live)


@triton.jit
def merge_splits_kernel(
    partial,
    partial_highest,
    partial_norm,
    out,  # [num_rows, q heads, head_dim]
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    """One program per (row, query head): the parts under their common maximum."""
    row_head = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    d, mask = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_D) < HEAD_DIM
    at = row_head * NUM_SPLITS + tl.arange(0, NUM_SPLITS)
    highest = tl.load(partial_highest + at)
    rescale = tl.exp2(highest - tl.max(highest, 0))
    norm = tl.sum(tl.load(partial_norm + at) * rescale, 0)
    parts = tl.load(partial + at[:, None] * HEAD_DIM + d[None, :], mask=mask[None, :], other=0.0)
    found = tl.sum(parts * rescale[:, None], 0) / tl.maximum(norm, 1e-30)
    tl.store(out + row_head * HEAD_DIM + d, found.to(out.dtype.element_ty), mask=mask)
