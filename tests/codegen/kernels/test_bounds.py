"""What the references share: rounding against ml_dtypes, decoding, the matrix unit's error against a sum by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels import bounds
from gfx950.random_bits import bell, bits32

F = np.float32
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16


@pytest.mark.parametrize(("digits", "lowest", "dtype"), [(*bounds.E4M3, E4M3), (*bounds.BF16, BF16)])
def test_rounding_is_nearest_even(digits, lowest, dtype):
    values = (bits32("round", 20000) & np.uint32(0xBFFFFFFF)).view(F)
    values = np.concatenate([values, bell("round", 5000) * F(2**-8), np.arange(-464, 465).astype(F) * F(0.5)])
    values = values[(np.abs(values) > 1e-38) & (np.abs(values) <= 448)]
    values = np.concatenate([values, values.astype(E4M3).astype(F) * F(1.0625), np.zeros(1, F), -np.zeros(1, F)])
    values = values[np.abs(values) <= 448]
    got = bounds.nearest(values.astype(np.float64), digits, lowest)
    assert got.astype(F).view(np.uint32).tolist() == values.astype(dtype).astype(F).view(np.uint32).tolist()


def test_decoding_is_that_of_ml_dtypes():
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(bounds.e4m3_values(codes), codes.view(E4M3).astype(np.float64), equal_nan=True)
    assert np.signbit(bounds.e4m3_values(np.uint8([0x80])))[0]
    bits = np.arange(65536, dtype=np.uint32)
    with np.errstate(invalid="ignore"):
        expected = (bits << 16).view(F).astype(np.float64)
    assert np.array_equal(bounds.bf16_values(bits.astype(np.uint16)), expected, equal_nan=True)


def test_binades():
    values = np.array([448.0, -1.0, 1.9, 2.0**-6, 2.0**-9, 0.0, -0.0])
    assert bounds.binade(values).tolist() == [8, 0, 0, -6, -6, -50, -50]
    assert bounds.binade(values, -126).tolist() == [8, 0, 0, -6, -9, -50, -50]


def test_the_error_of_a_sum_by_hand():
    """One group of products 1 and 2^-25: the second is cut altogether, which the bound of a cut product allows."""
    exact, cut = 1 + 2.0**-25, 1.0
    bound = bounds.truncating_sum_error(2.0**-24, 1, 1, exact)
    assert exact - cut < 2.0**-24 < bound < 8 * 2.0**-24
    assert bounds.truncating_sum_error(0.0, 0, 8, 0.0) == 0.0
