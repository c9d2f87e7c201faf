"""Paged attention for rows of any length: prefill, decode and mixed steps in one launch.

Contract. Equal to `attention.reference` up to rounding; a padding row of no tokens at all (seq_len 0) gives zeros. A
program takes a tile of queries of one row and all the query heads that share one KV head, so that even a decode row
fills a matrix product. Which row a program works on it finds by binary search over `query_start_loc`: each row has at
most one tile that is not full, so `num_tokens // BLOCK_Q + num_rows` programs are enough, and those that find nothing
to do return.

Few long decode rows would leave most of a GPU idle. Where each row has one token, and shapes say that there are too few
programs, `split_kv` spreads each row's tokens over several.

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
from engine.kernels import split_kv
from engine.kernels.quantized import as_readable
from engine.kernels.span import MIN_DOT, attend_span, span_shape
from engine.kernels.store import store_kv

PREFILL_M = 64  # rows of the product where a row has many queries, on tensor cores


def triton_attention(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `base.Attention`."""
    q, k, v = split_heads(qkv, cache)
    store_kv(k, v, cache, meta.slot_mapping)
    return attend(q, cache, meta)


def attend(q: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """Attention of q [num_tokens, q heads, head_dim], whose keys and values are stored already → like q."""
    num_rows = len(meta.seq_lens)
    if len(meta.single_rows) == num_rows:
        table_tokens = meta.block_tables.shape[1] * cache.keys.shape[2]
        num_splits = split_kv.choose_num_splits(num_rows * cache.keys.shape[1], table_tokens, q.device)
        if num_splits > 1:
            return split_kv.attend_split(q, cache, meta, num_splits)
    num_tokens, _, head_dim = q.shape
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    wide = len(meta.single_rows) < num_rows and q.dtype != torch.float32
    shape = span_shape(q, cache, rows=PREFILL_M if wide else MIN_DOT)
    block_q = shape["BLOCK_M"] // shape["GROUP"]
    paged_attention_kernel[(num_tokens // block_q + num_rows, cache.keys.shape[1])](
        q,
        out,
        as_readable(cache.keys),
        as_readable(cache.values),
        cache.key_scales,
        cache.value_scales,
        meta.query_start_loc,
        meta.seq_lens,
        meta.block_tables,
        num_rows,
        head_dim**-0.5,
        q.stride(0),
        out.stride(0),
        cache.keys.stride(0),
        cache.key_scales.stride(0),
        meta.block_tables.stride(0),
        BLOCK_Q=block_q,
        **shape,
        num_warps=4,
        num_stages=2,
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
    scale,  # 1 / √head_dim
    q_token_stride,
    out_token_stride,
    cache_block_stride,
    scale_block_stride,
    table_stride,
    BLOCK_Q: tl.constexpr,  # queries of a tile
    BLOCK_M: tl.constexpr,  # see span.span_shape
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
