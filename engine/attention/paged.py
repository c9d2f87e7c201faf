"""Paged attention for CPUs: a numba loop over (row, KV head) that reads keys and values through the block table.

Contract. `paged_attention` computes what `reference_attention` computes (fp32; they differ by rounding). All rows of
one token, which is every decoding request, go through one call of one compiled kernel, however long each is: nothing
is gathered, nothing padded to the longest. Rows of several tokens are few and compute-bound; each is gathered
and handed to torch's fused attention, which is five times quicker there than a scalar loop.

The kernel makes one pass over a row's blocks with the online softmax of FlashAttention (arXiv:2205.14135): running
maximum m and sum l; when a block raises the maximum, what was summed so far is scaled by exp(m_old - m_new).

Tasks are numbered head by head, so that a static split over threads gives each some of the long and short rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import torch
import torch.nn.functional as F
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, prange, types
from numba.extending import intrinsic
from torch import Tensor

from engine.attention.base import AttentionMetadata, Chunk, LayerCache, gather_kv

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}  # lets sums be vectorised; infinities keep their meaning


def paged_attention(q: Tensor, k: Tensor, v: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `base.Attention`. Inputs of another dtype are computed in fp32."""
    dtype = q.dtype
    # Contiguous, or numba would compile once more for each way in which they can be strided.
    q, k, v = q.float().contiguous(), k.float().contiguous(), v.float().contiguous()
    keys, values = cache.keys.numpy(), cache.values.numpy()
    _store(k.numpy(), v.numpy(), meta.slot_mapping.numpy(), keys, values)
    out = torch.empty(q.shape)
    if len(meta.single_rows):
        # As many threads as torch uses: another number would make OpenMP rebuild its pool at every switch.
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        _attend_single(
            q.numpy(),
            keys,
            values,
            meta.single_rows.numpy(),
            meta.query_start_loc.numpy(),
            meta.seq_lens.numpy(),
            meta.block_tables.numpy(),
            np.float32(q.shape[2] ** -0.5),
            out.numpy(),
        )
    for chunk in meta.chunks:
        out[chunk.start : chunk.end] = _attend_chunk(q[chunk.start : chunk.end], cache, chunk)
    return out.to(dtype)


def _attend_chunk(q: Tensor, cache: LayerCache, chunk: Chunk) -> Tensor:
    """q [query_len, num_heads, head_dim] over all of the row's tokens → like q."""
    keys, values = gather_kv(cache, chunk.blocks, chunk.seq_len)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], keys[None], values[None], attn_mask=chunk.mask, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def _compiled(**options: Any) -> Callable[[Kernel], Kernel]:
    """`njit` with its on-disk cache, or without where no folder for it can be written."""

    def decorate(function: Kernel) -> Kernel:
        try:
            return njit(cache=True, error_model="numpy", fastmath=FASTMATH, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # numba: "no locator available"
            return njit(error_model="numpy", fastmath=FASTMATH, **options)(function)  # type: ignore[no-any-return]

    return decorate


@intrinsic
def _bits_to_float(typing_context: Any, bits: Any) -> Any:
    """The float32 whose IEEE bits are this int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@_compiled(inline="always")
def _exp(x: Any) -> Any:
    """exp of a float32 that is not positive, by Cephes' polynomial: unlike a call into libm it vectorises. ±2e-7."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))  # x = n ln 2 + r, |r| ≤ ln 2 / 2
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    bits = (np.int32(n) + np.int32(127)) << np.int32(23)  # 2^n as an IEEE exponent
    return p * _bits_to_float(bits)  # type: ignore[call-arg]


@_compiled()
def _store(k: Any, v: Any, slot_mapping: Any, keys: Any, values: Any) -> None:
    """k, v [num_tokens, num_kv_heads, head_dim] into keys, values [num_blocks, num_kv_heads, block_size, head_dim]."""
    block_size = keys.shape[2]
    for token in range(k.shape[0]):
        slot = slot_mapping[token]
        if slot < 0:
            continue
        block, offset = slot // block_size, slot % block_size
        for head in range(k.shape[1]):
            for d in range(k.shape[2]):
                keys[block, head, offset, d] = k[token, head, d]
                values[block, head, offset, d] = v[token, head, d]


@_compiled(parallel=True)
def _attend_single(
    q: Any,  # [num_tokens, num_heads, head_dim]
    keys: Any,  # [num_blocks, num_kv_heads, block_size, head_dim]
    values: Any,
    rows: Any,  # [num_single_rows]
    query_start_loc: Any,
    seq_lens: Any,
    block_tables: Any,
    scale: Any,
    out: Any,  # like q; only the tokens of `rows` are written
) -> None:
    num_kv_heads, block_size, head_dim = keys.shape[1], keys.shape[2], keys.shape[3]
    group = q.shape[1] // num_kv_heads  # query heads that share one KV head
    for task in prange(len(rows) * num_kv_heads):
        row, head = rows[task % len(rows)], task // len(rows)
        token, seq_len = query_start_loc[row], seq_lens[row]
        queries = np.empty((group, head_dim), np.float32)  # scaled
        for g in range(group):
            for d in range(head_dim):
                queries[g, d] = q[token, head * group + g, d] * scale
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
                        score += query[d] * key[d]
                    weights[t] = score
                    top = max(top, score)
                rescale = _exp(highest[g] - top)
                added = np.float32(0)
                for t in range(filled):
                    weights[t] = _exp(weights[t] - top)
                    added += weights[t]
                highest[g], norm[g] = top, norm[g] * rescale + added
                for d in range(head_dim):
                    summed[d] *= rescale
                for t in range(filled):
                    weight, value = weights[t], values[block, head, t]
                    for d in range(head_dim):
                        summed[d] += weight * value[d]
        for g in range(group):
            for d in range(head_dim):
                out[token, head * group + g, d] = total[g, d] / norm[g]
