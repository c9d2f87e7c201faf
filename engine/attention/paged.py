"""Paged attention for CPUs: a numba loop over (row, KV head) that reads keys and values through the block table.

Contract. `paged_attention` computes what `reference_attention` computes (fp32; they differ by rounding). All rows of
one token, which is every decoding request, go through one call of one compiled kernel, however long each is: nothing
is gathered, nothing padded to the longest. Rows of several tokens are few and compute-bound; each is gathered
and handed to torch's fused attention, which is five times quicker there than a scalar loop.

The cache is of fp32, int8 or fp8, and the kernel the same: a token's scale comes in once per score and once per weight.

The kernel makes one pass over a row's blocks with the online softmax of FlashAttention (arXiv:2205.14135): running
maximum m and sum l; when a block raises the maximum, what was summed so far is scaled by exp(m_old - m_new).

Tasks are numbered head by head, so that a static split over threads gives each some of the long and short rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor

from engine.attention.base import AttentionMetadata, Chunk
from engine.attention.cache import LEAST_SCALE, QUANTIZED_STEPS, LayerCache, gather_kv
from engine.attention.fp8 import nearest, number
from engine.compiled import compiled, exp_of_negative


def paged_attention(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `base.Attention`. Inputs of another dtype are computed in fp32."""
    store(qkv, cache, meta.slot_mapping)
    return attend(qkv, cache, meta)


def store(qkv: Tensor, cache: LayerCache, slot_mapping: Tensor) -> None:
    """The k and v heads of qkv to their slots; as `cache.store_kv`."""
    heads, slots = qkv.float().contiguous().numpy(), slot_mapping.numpy()
    keys, values = _array(cache.keys), _array(cache.values)
    if not cache.quantized:
        _store(heads, slots, keys, values)
        return
    step = np.float32(QUANTIZED_STEPS[cache.keys.dtype])
    first_v = qkv.shape[1] - keys.shape[1]
    _store_quantized(heads, first_v - keys.shape[1], slots, keys, cache.key_scales.numpy(), step)
    _store_quantized(heads, first_v, slots, values, cache.value_scales.numpy(), step)


def attend(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """The queries of qkv over what is stored, this step's tokens included."""
    dtype = qkv.dtype
    qkv = qkv.float().contiguous()
    num_heads = qkv.shape[1] - 2 * cache.keys.shape[1]
    out = torch.empty(len(qkv), num_heads, qkv.shape[2])
    if len(meta.single_rows):
        # As many threads as torch uses: another number would make OpenMP rebuild its pool at every switch.
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        _attend_single(
            qkv.numpy(),
            _array(cache.keys),
            _array(cache.values),
            cache.key_scales.numpy(),
            cache.value_scales.numpy(),
            meta.single_rows.numpy(),
            meta.query_start_loc.numpy(),
            meta.seq_lens.numpy(),
            meta.block_tables.numpy(),
            np.float32(qkv.shape[2] ** -0.5),
            out.numpy(),
        )
    for chunk in meta.chunks:
        out[chunk.start : chunk.end] = _attend_chunk(qkv[chunk.start : chunk.end, :num_heads], cache, chunk)
    return out.to(dtype)


def _array(pool: Tensor) -> np.ndarray[Any, Any]:
    """numpy has no fp8: its bytes."""
    return pool.view(torch.uint8).numpy() if pool.dtype == torch.float8_e4m3fn else pool.numpy()


def _attend_chunk(q: Tensor, cache: LayerCache, chunk: Chunk) -> Tensor:
    """q [query_len, num_heads, head_dim] over all of the row's tokens → like q."""
    keys, values = gather_kv(cache, chunk.blocks, chunk.seq_len)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None], values[None], attn_mask=chunk.mask, enable_gqa=True
    )
    return out[0].transpose(0, 1)


@compiled()
def _store(qkv: Any, slot_mapping: Any, keys: Any, values: Any) -> None:
    """The k and v heads of qkv [num_tokens, heads, head_dim] to their slots; see `base.LayerCache`."""
    num_kv_heads, block_size = keys.shape[1], keys.shape[2]
    first_k, first_v = qkv.shape[1] - 2 * num_kv_heads, qkv.shape[1] - num_kv_heads
    for token in range(qkv.shape[0]):
        slot = slot_mapping[token]
        if slot < 0:
            continue
        block, offset = slot // block_size, slot % block_size
        for head in range(num_kv_heads):
            for d in range(qkv.shape[2]):
                keys[block, head, offset, d] = qkv[token, first_k + head, d]
                values[block, head, offset, d] = qkv[token, first_v + head, d]


@compiled(fastmath=False)  # so that what is stored equals what `quantize` stores, bit for bit
def _store_quantized(qkv: Any, first: Any, slot_mapping: Any, pool: Any, scales: Any, step: Any) -> None:
    """The heads from `first` on to their slots of `pool`, each divided by its own scale; see `cache.quantize`."""
    num_kv_heads, block_size = pool.shape[1], pool.shape[2]
    for token in range(qkv.shape[0]):
        slot = slot_mapping[token]
        if slot < 0:
            continue
        block, offset = slot // block_size, slot % block_size
        for head in range(num_kv_heads):
            x, stored = qkv[token, first + head], pool[block, head, offset]
            largest = np.float32(0)
            for d in range(x.shape[0]):
                largest = max(largest, abs(x[d]))
            scale = largest * step
            inverse = np.float32(1) / scale if scale >= np.float32(LEAST_SCALE) else np.float32(0)
            scales[block, head, offset] = scale
            for d in range(x.shape[0]):
                stored[d] = nearest(x[d] * inverse, stored[d])


@compiled(parallel=True)
def _attend_single(
    qkv: Any,  # [num_tokens, q heads | k heads | v heads, head_dim]
    keys: Any,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values: Any,
    key_scales: Any,  # [num_blocks, num_kv_heads, block_size]
    value_scales: Any,
    rows: Any,  # [num_single_rows]
    query_start_loc: Any,
    seq_lens: Any,
    block_tables: Any,
    scale: Any,
    out: Any,  # [num_tokens, q heads, head_dim]; only the tokens of `rows` are written
) -> None:
    num_kv_heads, block_size, head_dim = keys.shape[1], keys.shape[2], keys.shape[3]
    group = out.shape[1] // num_kv_heads  # query heads that share one KV head
    for task in prange(len(rows) * num_kv_heads):
        row, head = rows[task % len(rows)], task // len(rows)
        token, seq_len = query_start_loc[row], seq_lens[row]
        queries = np.empty((group, head_dim), np.float32)  # scaled
        for g in range(group):
            for d in range(head_dim):
                queries[g, d] = qkv[token, head * group + g, d] * scale
        weights = np.empty(block_size, np.float32)
        total = np.zeros((group, head_dim), np.float32)  # Σ p v
        highest = np.full(group, np.float32(-1e30))  # m
        norm = np.zeros(group, np.float32)  # l = Σ p
        for index in range((seq_len + block_size - 1) // block_size):
            block = block_tables[row, index]
            filled = min(block_size, seq_len - index * block_size)
            for g in range(group):
                query, summed = queries[g], total[g]
                top = highest[g]
                for t in range(filled):
                    key, score = keys[block, head, t], np.float32(0)
                    for d in range(head_dim):
                        score += query[d] * number(key[d])
                    score *= key_scales[block, head, t]
                    weights[t] = score
                    top = max(top, score)
                rescale = exp_of_negative(highest[g] - top)
                added = np.float32(0)
                for t in range(filled):
                    weights[t] = exp_of_negative(weights[t] - top)
                    added += weights[t]
                highest[g], norm[g] = top, norm[g] * rescale + added
                for d in range(head_dim):
                    summed[d] *= rescale
                for t in range(filled):
                    weight, value = weights[t] * value_scales[block, head, t], values[block, head, t]
                    for d in range(head_dim):
                        summed[d] += weight * number(value[d])
        for g in range(group):
            for d in range(head_dim):
                out[token, head * group + g, d] = total[g, d] / norm[g]
