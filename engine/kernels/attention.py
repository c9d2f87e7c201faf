"""Paged attention for rows of any length: prefill, decode and mixed steps in one launch.

Contract. Equal to `attention.reference` up to rounding; a padding row of no tokens at all (seq_len 0) gives zeros. A
program takes a tile of queries of one row and all the query heads that share one KV head, so that even a short row
fills a matrix product. Which row a program works on it finds by binary search over `query_start_loc`: each row has at
most one tile that is not full, so `num_tokens // BLOCK_Q + num_rows` programs are enough, and those that find nothing
to do return. Where each row has one token there is nothing to search for: those steps are `split_kv`'s.

Keys and values are read TILE tokens at a time through the block table, with the online softmax of FlashAttention
(arXiv:2205.14135). A quantised cache is read in place: the scale of a token multiplies its column of scores, or its row
of weights, instead of its numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention.base import AttentionMetadata, split_heads
from engine.attention.cache import LayerCache
from engine.kernels.launch import DECODE, MIN_DOT, PREFILL, arguments
from engine.kernels.span import attend_span
from engine.kernels.split_kv import attend_decode
from engine.kernels.store import store_kv

PREFILL_M = 64  # rows of the product where rows have many queries, on tensor cores
GUESSES_M = 32  # where they have few on average, rows of one left out: drafts to verify, the end of a prompt


def triton_attention(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `base.Attention`."""
    q, k, v = split_heads(qkv, cache)
    store_kv(k, v, cache, meta.slot_mapping)
    return attend(q, cache, meta)


def attend(q: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """Attention of q [num_tokens, q heads, head_dim], whose keys and values are stored already → like q."""
    if len(meta.single_rows) == len(meta.seq_lens):
        return attend_decode(q, cache, meta)
    return attend_mixed(q, cache, meta)


def attend_mixed(q: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """`attend` for rows of any length."""
    num_rows, num_kv_heads = len(meta.seq_lens), cache.keys.shape[1]
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    longer_rows = num_rows - len(meta.single_rows)
    few = (len(q) - len(meta.single_rows)) * (q.shape[1] // num_kv_heads) <= GUESSES_M * longer_rows
    rows = MIN_DOT if q.dtype == torch.float32 else GUESSES_M if few else PREFILL_M
    given = arguments(q, cache, meta, rows, DECODE if few else PREFILL)  # a few wait for memory, many for arithmetic
    block_q = given["BLOCK_M"] // given["GROUP"]
    paged_attention_kernel[(len(q) // block_q + num_rows, num_kv_heads)](
        out=out,
        query_start_loc=meta.query_start_loc,
        num_rows=num_rows,
        out_token_stride=out.stride(0),
        BLOCK_Q=block_q,
        **given,
    )
    return out


@triton.jit
def _find_row(query_start_loc, tile, num_rows, BLOCK_Q: tl.constexpr):
    """The last row whose first tile is not behind `tile`; row r's tiles begin at query_start_loc[r] // BLOCK_Q + r."""
    low, high = tile * 0, num_rows
    while low < high:
        middle = (low + high) // 2
        if tl.load(query_start_loc + middle) // BLOCK_Q + middle <= tile:
            low = middle + 1
        else:
            high = middle
    return low - 1


@triton.jit(do_not_specialize=["num_rows", "table_stride"])
def paged_attention_kernel(
    q,  # [num_tokens, q heads, head_dim]
    out,  # the same
    keys,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values,
    key_scales,  # [num_blocks, num_kv_heads, block_size]; read if QUANTIZED
    value_scales,
    query_start_loc,  # [num_rows + 1]
    seq_lens,  # [num_rows]
    block_tables,  # [num_rows, table width]
    num_rows,
    scale,  # 1 / √head_dim × log2 e
    q_token_stride,
    out_token_stride,
    cache_block_stride,
    scale_block_stride,
    table_stride,
    BLOCK_Q: tl.constexpr,  # queries of a tile
    BLOCK_M: tl.constexpr,  # see launch.arguments
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
):
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    row = _find_row(query_start_loc, tile, num_rows, BLOCK_Q)
    row_start = tl.load(query_start_loc + row)
    query_len = tl.load(query_start_loc + row + 1) - row_start
    first = (tile - (row_start // BLOCK_Q + row)) * BLOCK_Q  # of this tile's queries, within the row
    if first < query_len:
        context = tl.load(seq_lens + row) - query_len
        lane, d = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
        query, head = first + lane // GROUP, kv_head * GROUP + lane % GROUP
        live = (lane // GROUP < BLOCK_Q) & (query < query_len)
        mask = live[:, None] & (d < HEAD_DIM)[None, :]
        token, in_token = (row_start + query).to(tl.int64)[:, None], head[:, None] * HEAD_DIM + d[None, :]
        total, _, norm = attend_span(
            tl.load(q + token * q_token_stride + in_token, mask=mask, other=0.0),
            context + query,
            0,
            context + first + 1,  # what the first query sees everybody does
            context + tl.minimum(first + BLOCK_Q, query_len),  # nobody in this tile looks further
            keys,
            values,
            key_scales,
            value_scales,
            block_tables + row.to(tl.int64) * table_stride,
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
        found = total / tl.maximum(norm, 1e-30)[:, None]
        tl.store(out + token * out_token_stride + in_token, found.to(out.dtype.element_ty), mask=mask)
