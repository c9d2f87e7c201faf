"""The numbers of a quantised cache inside kernels: int8, and fp8 (e4m3).

Contract. What `as_stored` makes equals torch's casts in `attention.cache.quantize` bit for bit; `as_number` is exact.

fp8 is written as bytes, by arithmetic: GPUs before compute capability 8.9 have no such type (Triton refuses fp8e4nv
there by name), and Triton's interpreter truncates where it should round. It is read by the hardware where that can,
and by arithmetic elsewhere. An e4m3 byte is a sign, four bits of exponent with bias 7 and three of mantissa, which
moved up by seven bits are a float16 of exponent bias 15: the number itself / 2^8, the smallest ones included.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.attention.cache import LEAST_SCALE, QUANTIZED_STEPS

EXACT = {"enable_fp_fusion": False}
"""For launches of kernels that quantise: x / scale is rounded before the rounding is, as in torch."""

_LEAST_SCALE = tl.constexpr(LEAST_SCALE)
_LEAST_NORMAL = tl.constexpr(2.0**-6)
_INTEGERS = tl.constexpr(1.5 * 2**23)  # an fp32 of this size has no room for fractions


def step_of(pool: Tensor) -> float:
    """The scale per largest number of a head; 0 where nothing is quantised."""
    return QUANTIZED_STEPS.get(pool.dtype, 0.0)


def as_bytes(pool: Tensor) -> Tensor:
    """`pool` as kernels write it."""
    return pool.view(torch.uint8) if pool.dtype == torch.float8_e4m3fn else pool


def as_readable(pool: Tensor) -> Tensor:
    """`pool` as kernels read it: fp8 as such where the hardware converts it, else its bytes."""
    return pool if has_fp8(pool.device) else as_bytes(pool)


@functools.cache
def has_fp8(device: torch.device) -> bool:
    """Whether this device converts e4m3 by itself."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


@triton.jit
def as_number(stored, dtype: tl.constexpr):
    """What a cache holds, before its scale, as `dtype`."""
    if stored.dtype == tl.uint8:
        bits = ((stored & 0x7F).to(tl.uint16) << 7) | ((stored & 0x80).to(tl.uint16) << 8)
        return (bits.to(tl.float16, bitcast=True) * 256.0).to(dtype)
    else:
        return stored.to(dtype)


@triton.jit
def as_stored(x, dtype: tl.constexpr):
    """The fp32 x, no larger than what `dtype` holds, rounded with ties to even: int8, or the bytes of e4m3."""
    if dtype == tl.uint8:
        size = tl.abs(x)
        bits = size.to(tl.int32, bitcast=True)
        large = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
        small = _nearest_integer(size * 512.0)
        sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
        return (tl.where(size < _LEAST_NORMAL, small, large) | sign).to(tl.uint8)
    else:
        return _nearest_integer(x).to(dtype)


@triton.jit
def _nearest_integer(x):
    return ((x + _INTEGERS) - _INTEGERS).to(tl.int32)


@triton.jit
def inverse_of(scale):
    """1 / scale as IEEE has it; 0 where that would overflow."""
    return tl.where(scale >= _LEAST_SCALE, tl.div_rn(1.0, tl.maximum(scale, _LEAST_SCALE)), 0.0)
