"""Linear layers: plain torch, and oneDNN's pre-packed weights for fp32 on a CPU, behind one call.

On two AVX-512 cores with SmolLM2-135M (all layers of one step, eight rows) packed weights take 29 ms where
`F.linear` takes 52, and `F.linear` has cliffs at some batch sizes (312 ms at four rows, 819 at sixteen).
The packed form replaces the plain one; there are never two copies of a layer's weights.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

PACK_ROWS = 8  # the batch that oneDNN lays the weights out for; measured flat from 8 to 256


class Linear(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """x [num_tokens, in_features] → [num_tokens, out_features]."""


class PlainLinear:
    """`F.linear`: any device and dtype, and the oracle of the packed one."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight  # [out_features, in_features]
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """oneDNN inner product over weights in its own blocked layout. fp32 on a CPU only."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS)
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The quickest form of this layer on this machine."""
    if packs(weight):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def packs(weight: Tensor) -> bool:
    """Whether oneDNN can pack `weight` here: these are private operators, so a torch without them is no error."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
