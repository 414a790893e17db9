"""What the float64 references of attention kernels share: rounding, decoding, and the error of a matrix unit's sums.

The bounds are derived, not fitted. U = 2^-24 is the unit roundoff of float32.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

U = 2.0**-24
U_BF16 = 2.0**-8
U_E4M3 = 2.0**-4
E4M3_MAX = 448.0
E4M3 = (4, -9)  # significant bits, exponent of the smallest step
BF16 = (8, -133)


def nearest(x: Array, digits: int, lowest: int) -> Array:
    """x rounded to nearest even with `digits` significant bits and no bit below 2^lowest."""
    unit = np.maximum(np.frexp(x)[1] - digits, lowest)
    rounded: Array = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    return rounded


def binade(values: Array, lowest: int = -6) -> NDArray[np.int8]:
    """Exponent that the matrix unit aligns by: that of the binade, that of the smallest normal (2^lowest) for
    subnormals; -50 for zero, which takes no part."""
    exponent = np.maximum(np.frexp(values)[1] - 1, lowest)
    return np.where(values == 0, -50, exponent).astype(np.int8)


def truncating_sum_error(unit: Any, cut: Any, steps: int, magnitude: Any) -> Any:
    """Error of a contraction by the truncating group sum, in `steps` groups. unit: 2^(E-24), E the largest exponent of
    a product. cut: how many products lose bits, each by less than a unit. magnitude: the sum of the products' sizes.

    A step adds at most 3 units (even, odd, joined sum) and, with the accumulator C, one unit of max(2^E, |C|) 2^-24 and
    a rounding of U |result|; |C| and the result stay below the magnitude, and the rest of 2.02 U is spare for windows
    of the sum.
    """
    return cut * unit + steps * (4.0 * unit + 2.02 * U * magnitude)


def e4m3_values(codes: NDArray[np.uint8]) -> Array:
    """float64 of E4M3 codes."""
    return _E4M3_VALUES[codes]


def bf16_values(bits: NDArray[np.uint16]) -> Array:
    """float64 of bf16 bits."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values: Array = bits.view(ml_dtypes.bfloat16).astype(np.float64)
    return values


_E4M3_VALUES: Array = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
