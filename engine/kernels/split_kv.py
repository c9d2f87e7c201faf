"""Decode attention: each row's tokens by one program or split over several, and the merge of what those found.

Contract. Rows of one token each. Equal to `attention.reference` up to rounding. A part of a row may be empty, and a
padding row (seq_len 0) has nothing but empty parts: it comes out as zeros, not as 0 / 0.

Few long rows would leave most of a GPU idle: the fewer there are, going by shapes, the more parts each is cut in.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache
from engine.kernels.launch import DECODE, MIN_DOT, Launch, arguments
from engine.kernels.span import attend_span

MAX_SPLITS = 32
MIN_PART = 256  # tokens; a shorter part is not worth its merge


def attend_decode(q: Tensor, cache: LayerCache, meta: AttentionMetadata, launch: Launch = DECODE) -> Tensor:
    """Attention of q [num_rows, q heads, head_dim], whose keys and values are stored already → like q."""
    num_kv_heads, block_size = cache.keys.shape[1:3]
    most_tokens = meta.block_tables.shape[1] * block_size
    wanted = launch.programs_per_processor * num_processors(q.device)
    return attend_split(q, cache, meta, choose_num_splits(len(q) * num_kv_heads, most_tokens, wanted), launch)


def choose_num_splits(programs: int, most_tokens: int, wanted: int) -> int:
    """In how many parts to cut each row, a power of two, if unsplit there are `programs` of up to `most_tokens`."""
    splits = min(wanted // max(programs, 1), most_tokens // MIN_PART, MAX_SPLITS)
    return 1 << max(splits, 1).bit_length() - 1


@functools.cache
def num_processors(device: torch.device) -> int:
    """Programs that run at the same time, at least."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def attend_split(
    q: Tensor, cache: LayerCache, meta: AttentionMetadata, num_splits: int, launch: Launch = DECODE
) -> Tensor:
    """`attend_decode` with this many splits, a power of two."""
    num_rows, num_heads, head_dim = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    given = arguments(q, cache, meta, MIN_DOT, launch)
    grid = num_rows, cache.keys.shape[1], num_splits
    if num_splits == 1:
        split_attention_kernel[grid](out=out, part_highest=None, part_norm=None, **given)
        return out
    parts = torch.empty(num_rows, num_heads, num_splits, head_dim, dtype=torch.float32, device=q.device)
    highest, norm = torch.empty(2, num_rows, num_heads, num_splits, dtype=torch.float32, device=q.device)
    split_attention_kernel[grid](out=parts, part_highest=highest, part_norm=norm, **given)
    merge_splits_kernel[(num_rows, num_heads)](
        parts,
        highest,
        norm,
        out,
        HEAD_DIM=head_dim,
        BLOCK_D=given["BLOCK_D"],
        NUM_SPLITS=num_splits,
        num_warps=1,
    )
    return out


@triton.jit(do_not_specialize=["table_stride"])
def split_attention_kernel(
    q,  # [num_rows, q heads, head_dim]
    out,  # the same; where there are several parts, [num_rows, q heads, parts, head_dim] fp32: Σ p v of each
    part_highest,  # None; where there are several parts, [num_rows, q heads, parts] fp32, see span.attend_span
    part_norm,  # the same: Σ p
    keys,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values,
    key_scales,  # [num_blocks, num_kv_heads, block_size]; read if QUANTIZED
    value_scales,
    seq_lens,  # [num_rows]
    block_tables,  # [num_rows, table width]
    scale,  # 1 / √head_dim × log2 e
    q_token_stride,
    cache_block_stride,
    scale_block_stride,
    table_stride,
    BLOCK_M: tl.constexpr,  # see launch.arguments
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
):
    """One program per (row, KV head, part); parts are whole tiles, the last ones may be short or empty."""
    row, kv_head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    num_splits = tl.num_programs(2)
    seq_len = tl.load(seq_lens + row)
    part = tl.cdiv(tl.cdiv(seq_len, num_splits), TILE) * TILE
    begin, end = split * part, tl.minimum((split + 1) * part, seq_len)
    lane, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    head, live = kv_head * GROUP + lane, lane < GROUP
    mask = live[:, None] & (d < HEAD_DIM)[None, :]
    total, highest, norm = attend_span(
        tl.load(q + row * q_token_stride + head[:, None] * HEAD_DIM + d[None, :], mask=mask, other=0.0),
        tl.full([BLOCK_M], 0, tl.int32) + seq_len - 1,
        begin,
        end,
        end,
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
    at = (row * tl.num_programs(1) * GROUP + head) * num_splits + split
    if part_norm is None:
        total /= tl.maximum(norm, 1e-30)[:, None]
    else:
        tl.store(part_highest + at, highest, mask=live)
        tl.store(part_norm + at, norm, mask=live)
    tl.store(out + at[:, None] * HEAD_DIM + d[None, :], total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def merge_splits_kernel(
    parts,  # [num_rows, q heads, NUM_SPLITS, head_dim], see split_attention_kernel
    part_highest,
    part_norm,
    out,  # [num_rows, q heads, head_dim]
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    """One program per (row, query head): the parts under their common maximum."""
    row_head = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    d, mask = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_D) < HEAD_DIM
    at = row_head * NUM_SPLITS + tl.arange(0, NUM_SPLITS)
    highest = tl.load(part_highest + at)
    rescale = tl.exp2(highest - tl.max(highest, 0))
    norm = tl.sum(tl.load(part_norm + at) * rescale, 0)
    found = tl.load(parts + at[:, None] * HEAD_DIM + d[None, :], mask=mask[None, :], other=0.0)
    found = tl.sum(found * rescale[:, None], 0) / tl.maximum(norm, 1e-30)
    tl.store(out + row_head * HEAD_DIM + d, found.to(out.dtype.element_ty), mask=mask)
