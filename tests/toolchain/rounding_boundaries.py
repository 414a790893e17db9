"""The inputs whose f32 result could be rounded the wrong way: those of a double near the middle of two f32 values."""

from __future__ import annotations

import numba
import numpy as np


def boundary_scan(core):
    """A compiled function of f32 codes [first, end) that puts those whose double is within `units` of a rounding
    boundary into `found` and returns how many. core: a double of a double, compiled by numba or to be."""
    double_core = numba.njit(error_model="numpy")(core)

    @numba.njit(error_model="numpy")
    def scan(first, end, units, found):
        count = 0
        for bits in range(first, end):
            value = double_core(np.float64(np.uint32(bits).view(np.float32)))
            low = (np.float64(value).view(np.int64) + (1 << 28) + units) & ((1 << 29) - 1)
            if low <= 2 * units:
                found[count] = bits
                count += 1
        return count

    return scan
