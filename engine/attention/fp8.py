"""The numbers of a quantised cache in compiled loops: int8, and fp8 (e4m3) by its bits, which numba has no type for.

Contract. A float8_e4m3fn tensor comes as its uint8 view. `number` and `nearest` give what torch's casts give, bit for
bit, for every number that is stored (none is above 448 or NaN). Both vectorise.

An e4m3 byte is a sign, four bits of exponent with bias 7 and three of mantissa; exponent 0 counts in steps of 2^-9.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import overload

STEP: Final = np.float32(2.0**-9)  # between the smallest numbers
LEAST_NORMAL: Final = np.float32(2.0**-6)
REBIAS: Final = np.int32(127 - 7)  # from e4m3's exponent to fp32's
FEWER: Final = np.int32(23 - 3)  # bits of mantissa that e4m3 has fewer


def number(stored: Any) -> Any:
    """What is stored in a cache, as fp32; only in compiled code."""
    raise NotImplementedError


def nearest(x: Any, like: Any) -> Any:
    """The fp32 x as it is stored beside `like`: rounded, ties to even; only in compiled code."""
    raise NotImplementedError


@overload(number, inline="always")
def _number(stored: Any) -> Any:
    def cast(stored: Any) -> Any:
        return np.float32(stored)

    def decode(stored: Any) -> Any:
        magnitude = np.int32(stored) & np.int32(0x7F)
        small = np.float32(magnitude) * STEP
        large = np.int32((magnitude << FEWER) + (REBIAS << np.int32(23))).view(np.float32)
        x = small if magnitude < np.int32(8) else large
        return -x if stored & np.uint8(0x80) else x

    return decode if stored == types.uint8 else cast


@overload(nearest, inline="always")
def _nearest(x: Any, like: Any) -> Any:
    def round_to_int8(x: Any, like: Any) -> Any:
        return np.int8(np.rint(x))

    def encode(x: Any, like: Any) -> Any:
        bits = np.float32(abs(x)).view(np.int32)
        half = np.int32((1 << (FEWER - 1)) - 1) + ((bits >> FEWER) & np.int32(1))  # just under, so that ties go to even
        large = ((bits + half) >> FEWER) - (REBIAS << np.int32(3))
        small = np.int32(np.rint(abs(x) / STEP))
        magnitude = small if abs(x) < LEAST_NORMAL else large
        return np.uint8(magnitude | np.int32(0x80)) if np.signbit(x) else np.uint8(magnitude)

    return encode if like == types.uint8 else round_to_int8
