"""numba as this engine uses it: the decorator every kernel has, and an exponential that vectorises.

A compiled function is kept on disk by numba, beside its source or in the user's cache folder, so only the first start
after an installation compiles. Arguments must come contiguous and in one dtype each, or it compiles again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core.errors import NumbaIRAssumptionWarning
from numba.extending import intrinsic

# numba's check of its own intermediate code: it speaks of inlined conditions (attention/fp8.py), and those are tested.
warnings.filterwarnings("ignore", category=NumbaIRAssumptionWarning)

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
FASTMATH: Final = {"reassoc", "contract", "nsz", "arcp"}  # lets sums be vectorised; infinities keep their meaning


def compiled(**options: Any) -> Callable[[Kernel], Kernel]:
    """`njit` with its on-disk cache, or without where no folder for it can be written."""
    options = {"error_model": "numpy", "fastmath": FASTMATH, **options}

    def decorate(function: Kernel) -> Kernel:
        try:
            return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # numba: "no locator available"
            return njit(**options)(function)  # type: ignore[no-any-return]

    return decorate


@intrinsic
def _bits_to_float(typing_context: Any, bits: Any) -> Any:
    """The float32 whose IEEE bits are this int32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


@compiled(inline="always")
def exp_of_negative(x: Any) -> Any:
    """exp of a float32 that is at most 0, by Cephes' polynomial: unlike a call into libm it vectorises. ±2e-7."""
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
