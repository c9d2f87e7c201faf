"""The set of kernels that a model on a GPU is built with; each is `models.ops`' function of the same name."""

from __future__ import annotations

from torch import Tensor

from engine.attention.base import AttentionMetadata, split_heads
from engine.attention.cache import LayerCache
from engine.kernels import attention
from engine.kernels.activation import silu_and_mul
from engine.kernels.norm import add_rms_norm, rms_norm
from engine.kernels.rope import rotate_and_store
from engine.models.ops import Ops


def attend(qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
    """See `models.ops.Ops`."""
    q, _, _ = split_heads(qkv, cache)
    return attention.attend(q, cache, meta)


GPU_OPS = Ops(rms_norm, add_rms_norm, rotate_and_store, attend, silu_and_mul)
