"""How attention is launched: what both kernels are given, and the numbers that decide nothing but their speed.

`make gpu-check` tries others than the ones here and says what each is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import triton
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache
from engine.kernels.quantized import as_readable

MIN_DOT = 16  # the least side of a matrix product that tensor cores take
WIDE_BYTES = 256  # of one head; wider ones go through shared memory half a tile at a time


@dataclass(frozen=True, slots=True)
class Launch:
    """What comes out is the same up to rounding, whatever stands here."""

    tile: int  # tokens whose keys and values are read together
    num_warps: int
    num_stages: int  # of the pipeline: all but one are tiles under way to shared memory
    programs_per_processor: int = 1  # so many are wanted; rows are split until there are


PREFILL = Launch(tile=64, num_warps=4, num_stages=2)  # two such programs fit on a processor
DECODE = Launch(tile=64, num_warps=4, num_stages=3, programs_per_processor=2)  # and more of these


def arguments(q: Tensor, cache: LayerCache, meta: AttentionMetadata, rows: int, launch: Launch) -> dict[str, Any]:
    """What both kernels take, by name, for products of at least `rows` rows."""
    _, num_kv_heads, block_size, head_dim = cache.keys.shape
    group = q.shape[1] // num_kv_heads
    block_d = max(MIN_DOT, triton.next_power_of_2(head_dim))
    return {
        "q": q,
        "keys": as_readable(cache.keys),
        "values": as_readable(cache.values),
        "key_scales": cache.key_scales,
        "value_scales": cache.value_scales,
        "seq_lens": meta.seq_lens,
        "block_tables": meta.block_tables,
        "scale": head_dim**-0.5 * math.log2(math.e),
        "q_token_stride": q.stride(0),
        "cache_block_stride": cache.keys.stride(0),
        "scale_block_stride": cache.key_scales.stride(0),
        "table_stride": meta.block_tables.stride(0),
        "BLOCK_M": max(rows, MIN_DOT, triton.next_power_of_2(group)),
        "GROUP": group,  # query heads that share a KV head
        "HEAD_DIM": head_dim,
        "BLOCK_D": block_d,
        "BLOCK_SIZE": block_size,
        "TILE": launch.tile if block_d * q.element_size() <= WIDE_BYTES else launch.tile // 2,
        "QUANTIZED": cache.quantized,
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
    }
