"""Linear layers: plain torch, and oneDNN's pre-packed weights for fp32 on a CPU, behind one call.

SmolLM2-135M on two cores, all linear layers of one step: with AVX-512 packed weights take 34 ms where `F.linear` takes
47 at eight rows, and the two are even at one; with AVX2 they are twice as quick from four rows up.
The packed form replaces the plain one. Only a tied embedding is there twice: its rows are looked up plain, the head
has them packed.
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
