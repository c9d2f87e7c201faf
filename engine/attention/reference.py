"""The oracle: attention as its formula says, one row at a time, in plain torch on any device.

Slow and obvious. Every quicker backend is tested against it; where none of them can run, it does.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata, causal_mask, split_heads
from engine.attention.cache import LayerCache, gather_kv, store_kv


def reference_attention(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `base.Attention`."""
    _, k, v = split_heads(qkv, cache)
    store_kv(k, v, cache, meta.slot_mapping)
    return attend(qkv, cache, meta)


def attend(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """The queries of qkv over what is stored, this step's tokens included."""
    q, _, _ = split_heads(qkv, cache)
    out = torch.empty_like(q)
    bounds = meta.query_start_loc.tolist()
    for row, (start, end) in enumerate(pairwise(bounds)):
        seq_len = int(meta.seq_lens[row])
        num_blocks = -(-seq_len // cache.keys.shape[2])
        keys, values = gather_kv(cache, meta.block_tables[row, :num_blocks].long(), seq_len)
        out[start:end] = _attend(q[start:end], keys, values)
    return out


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q kᵀ / √d) v. q [query_len, num_heads, head_dim], keys and values [num_kv_heads, seq_len, head_dim]."""
    query_len, num_heads, head_dim = q.shape
    group = num_heads // keys.shape[0]  # query heads that share one KV head
    keys = keys.to(q.dtype).repeat_interleave(group, dim=0)
    values = values.to(q.dtype).repeat_interleave(group, dim=0)
    scores = q.transpose(0, 1) @ keys.transpose(1, 2) * head_dim**-0.5  # [num_heads, query_len, seq_len]
    allowed = causal_mask(query_len, keys.shape[1], q.device)
    weights = scores.masked_fill(~allowed, -torch.inf).float().softmax(-1).to(q.dtype)
    out: Tensor = weights @ values  # [num_heads, query_len, head_dim]
    return out.transpose(0, 1)
