"""V_TRIG_PREOP_F64 against pi to 1500 bits and rationals."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950.isa.range_reduction import v_trig_preop_f64
from gfx950.lanes import F64, U32, Mode

FRACTION_BITS = 1201


def two_over_pi():
    with gmpy2.context(precision=1500):
        return int(gmpy2.floor(2 / gmpy2.const_pi() * gmpy2.exp2(FRACTION_BITS)))


def expected(exponent, segment, keeps_denormals=True):
    """The bits of a double: 53 bits of 2/pi with their weight, cut to the doubles toward zero."""
    first = 53 * (segment & 31) + max(0, exponent - 1077)
    whole = (two_over_pi() << first >> FRACTION_BITS - 53) & (1 << 53) - 1 if first < FRACTION_BITS else 0
    scale = -53 - first + (128 if exponent >= 1968 else 0)
    if whole == 0:
        return 0
    biased = whole.bit_length() + scale + 1022
    if biased > 0:
        return (biased << 52) + ((whole << 53 - whole.bit_length()) - (1 << 52))
    shift = scale + 1074
    steps = whole << shift if shift >= 0 else whole >> -shift
    return steps if keeps_denormals else 0


def run(exponents, segments, mode=None):
    engine = NumpyEngine(mode)
    rest = np.random.default_rng(5).integers(0, 1 << 52, len(exponents), dtype=np.uint64)
    bits = (np.array(exponents, np.uint64) << np.uint64(52)) | rest | np.uint64(1 << 63)
    result = v_trig_preop_f64.body(F64(engine, bits), U32(engine, np.array(segments, np.uint32)))
    return np.broadcast_to(result.raw, bits.shape)


@pytest.mark.parametrize("keeps", [True, False])
def test_every_exponent_and_segment(keeps):
    """All that the instruction looks at: 2048 exponents, 32 segments; S1's bits above 4 are ignored."""
    mode = Mode() if keeps else Mode(denorm16_64=0)
    exponents = np.tile(np.arange(2048), 32)
    segments = np.repeat(np.arange(32), 2048)
    got = run(exponents, segments | 0xABCDEF00, mode)
    cache = {}
    for exponent, segment, value in zip(exponents.tolist(), segments.tolist(), got.tolist(), strict=True):
        key = (max(exponent, 1077), segment)
        if key not in cache:
            cache[key] = expected(*key, keeps)
        assert value == cache[key], (exponent, segment, hex(value), hex(cache[key]))


def test_three_segments_add_up_to_two_over_pi():
    with gmpy2.context(precision=400):
        parts = [gmpy2.mpfr(float(v)) for v in run([1023] * 3, [0, 1, 2]).view(np.float64)]
        assert abs(sum(parts) - 2 / gmpy2.const_pi()) < gmpy2.exp2(-159)
        assert float(parts[0]) == float.fromhex("0x1.45f306dc9c882p-1")
