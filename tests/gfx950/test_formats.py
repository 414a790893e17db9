"""Number formats against ml_dtypes, torch, numpy and rational arithmetic."""

import itertools
import math
from bisect import bisect_right
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfx950.evidence import LEDGER, Evidence
from gfx950.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3FN,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0FNU,
    F16,
    F32,
    FORMATS,
    UNORDERED,
    Fields,
    NanKind,
)

ML = {
    F16: np.float16,
    BF16: ml_dtypes.bfloat16,
    E4M3FN: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    E8M0FNU: ml_dtypes.float8_e8m0fnu,
    E2M3: ml_dtypes.float6_e2m3fn,
    E3M2: ml_dtypes.float6_e3m2fn,
    E2M1: ml_dtypes.float4_e2m1fn,
    E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}
TORCH = {
    F16: torch.float16,
    BF16: torch.bfloat16,
    E4M3FN: torch.float8_e4m3fn,
    E5M2: torch.float8_e5m2,
    E8M0FNU: torch.float8_e8m0fnu,
    E4M3FNUZ: torch.float8_e4m3fnuz,
    E5M2FNUZ: torch.float8_e5m2fnuz,
}
NAN_CODES = {
    "f32": (0x7FC00000, 0xFFC00000),
    "f16": (0x7E00, 0xFE00),
    "bf16": (0x7FC0, 0xFFC0),
    "e4m3fn": (0x7F, 0xFF),
    "e5m2": (0x7E, 0xFE),
    "e8m0fnu": (0xFF, 0xFF),
    "e2m3": (0x1F, 0x3F),
    "e3m2": (0x1F, 0x3F),
    "e2m1": (0x7, 0xF),
    "e4m3fnuz": (0x80, 0x80),
    "e5m2fnuz": (0x80, 0x80),
}
SMALL = [form for form in FORMATS.values() if form.bits <= 8]
NARROW = [form for form in FORMATS.values() if form.bits <= 16]
MODES = ("nonsaturating", "saturating")


def by_name(form):
    return form.name


def codes_of(form):
    return np.arange(1 << form.bits, dtype=np.uint32).astype(form.code_dtype)


def same_value(a, b):
    """Equal bit for bit, NaN to any NaN."""
    return (a.view(np.uint64) == b.view(np.uint64)) | (np.isnan(a) & np.isnan(b))


def torch_bits(bits, form):
    """What torch makes of float32 values given by their bits."""
    tensor = torch.from_numpy(bits.view(np.float32)).to(TORCH[form])
    return tensor.view(torch.uint8 if form.bits == 8 else torch.int16).numpy().view(form.code_dtype)


def ml_bits(bits, form):
    """What ml_dtypes (numpy for f16) makes of float32 values given by their bits."""
    with np.errstate(all="ignore"):
        return bits.view(np.float32).astype(ML[form]).view(form.code_dtype)


def magnitudes(form):
    """Sorted (value, code) of the positive finite codes and zero."""
    codes = [c for c in range(form.max_code + 1) if not form.is_nan(c)]
    return [Fraction(float(form.decode(c))) for c in codes], codes


TABLES = {form: magnitudes(form) for form in NARROW}


def nearest(x, form, overflow):
    """The code of a float by rational arithmetic and search, nothing shared with the code under test but `decode`."""
    negative = math.copysign(1.0, x) < 0
    if form is E8M0FNU:
        return 0xFF if x < 0 else nearest_magnitude(abs(x), form, overflow)
    code = nearest_magnitude(abs(x), form, overflow)
    if form.nan is NanKind.negative_zero and code in (0, 0x80):
        return code
    return code | negative << (form.bits - 1)


def nearest_magnitude(x, form, overflow):
    """As `nearest`, of a positive float, zero, infinity or NaN."""
    values, codes = TABLES[form]
    nan = NAN_CODES[form.name][0]
    if math.isnan(x):
        return nan
    tie_is_over = form is E8M0FNU or codes[-1] % 2
    edge = values[-1] + (values[-1] if form is E8M0FNU else values[-1] - values[-2]) / 2
    if math.isinf(x) or Fraction(x) > edge or (Fraction(x) == edge and tie_is_over):
        beyond = form.max_code if form.nan is NanKind.none else form.max_code + 1
        return form.max_code if overflow == "saturating" else beyond
    at = bisect_right(values, Fraction(x)) - 1
    if at < 0 or at == len(values) - 1:
        return codes[max(at, 0)]
    low, high = Fraction(x) - values[at], values[at + 1] - Fraction(x)
    up = low > high or (low == high and (form is E8M0FNU or codes[at] % 2))
    return codes[at + up]


def edge_bits(form):
    """float32 bits of every code, every midpoint, the overflow edge and special values, all +-1 ulp and both signs."""
    values = form.decode(codes_of(form))
    values = np.unique(np.abs(values[np.isfinite(values)]))
    step = values[-1] - values[-2]
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2, values[-1] + step * np.array([0.5, 1.0, 2.0])])
    with np.errstate(over="ignore"):
        centre = points.astype(np.float32).view(np.uint32).astype(np.int64)
    special = np.array([0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF])
    near = np.concatenate([centre - 1, centre, centre + 1, special])
    near = np.unique(near[(near >= 0) & (near <= 0x7FFFFFFF)]).astype(np.uint32)
    return np.concatenate([near, near | np.uint32(0x80000000)])


def sampled_blocks():
    """Every 251st of the 65536 blocks of float32 inputs with one upper half: all exponents but few, both signs."""
    low = np.arange(1 << 16, dtype=np.uint32)
    return [np.uint32(high << 16) | low for high in range(0, 1 << 16, 251)]


# decode -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", list(ML), ids=by_name)
def test_decode_agrees_with_ml_dtypes_on_every_code(form):
    codes = codes_of(form)
    with np.errstate(invalid="ignore"):
        expected = codes.view(ML[form]).astype(np.float64)
    assert same_value(form.decode(codes), expected).all()


@pytest.mark.parametrize("form", list(TORCH), ids=by_name)
def test_decode_agrees_with_torch_on_every_code(form):
    codes = codes_of(form)
    stored = codes.view(np.int16) if form.bits == 16 else codes
    assert same_value(form.decode(codes), torch.from_numpy(stored).view(TORCH[form]).to(torch.float64).numpy()).all()


def test_decode_f32_agrees_with_numpy():
    random = np.random.default_rng(1).integers(0, 1 << 32, 100_000, np.uint32)
    bits = np.concatenate([edge_bits(BF16), edge_bits(F16), random])
    with np.errstate(invalid="ignore"):
        assert same_value(F32.decode(bits), bits.view(np.float32).astype(np.float64)).all()


@pytest.mark.parametrize("form", SMALL, ids=by_name)
def test_decode_is_sign_mantissa_exponent(form):
    for code in range(1 << form.bits):
        sign, exponent, mantissa = form.fields(code)
        value = float(form.decode(code))
        if np.isfinite(value):
            hidden = int(exponent > 0 or form is E8M0FNU)
            power = (exponent if hidden else 1) - form.bias - form.mantissa_bits
            exact = ((hidden << form.mantissa_bits) + mantissa) * Fraction(2) ** power
            assert Fraction(value) == (-exact if sign else exact)
            assert np.signbit(value) == sign


def test_decode_keeps_shape_and_dtype():
    assert E4M3FN.decode(np.zeros((2, 3, 4), np.uint8)).shape == (2, 3, 4)
    assert E4M3FN.decode(0x38).shape == ()
    assert E4M3FN.decode(np.zeros(0, np.uint8)).dtype == np.float64


@pytest.mark.parametrize("form", NARROW, ids=by_name)
def test_is_nan_is_where_the_value_is_nan(form):
    codes = codes_of(form)
    assert (form.is_nan(codes) == np.isnan(form.decode(codes))).all()


def test_limits():
    limits = {form.name: (form.max, form.min_normal, form.min_subnormal) for form in FORMATS.values()}
    assert limits["e4m3fn"] == (448.0, 2.0**-6, 2.0**-9)
    assert limits["e5m2"] == (57344.0, 2.0**-14, 2.0**-16)
    assert limits["e2m3"] == (7.5, 1.0, 0.125)
    assert limits["e3m2"] == (28.0, 0.25, 0.0625)
    assert limits["e2m1"] == (6.0, 1.0, 0.5)
    assert limits["e8m0fnu"] == (2.0**127, 2.0**-127, 2.0**-127)
    for form, info in [(form, ml_dtypes.finfo(dtype)) for form, dtype in ML.items()]:
        if form is not E8M0FNU:
            expected = (float(info.max), float(info.smallest_normal), float(info.smallest_subnormal))
            assert limits[form.name] == expected
    assert limits["f32"] == tuple(float(x) for x in (np.finfo(np.float32).max, 2.0**-126, 2.0**-149))


# encode -------------------------------------------------------------------------------------------------------------


def nearest_in_others(x):
    """ml_dtypes and torch take all float32 above 2^-127 to 2^-126 in E8M0, those below 1.5 * 2^-127 too."""
    return ~((x > 2.0**-127) & (x < 1.5 * 2.0**-127))


def comparable_with_ml(bits, form):
    """Where ml_dtypes means the same: not NaN in FP6 and FP4 (it gives a zero), nor zero and below in E8M0 (NaN)."""
    x = bits.view(np.float32)
    if form.nan is NanKind.none or form in (F16, BF16):  # numpy keeps f16 payloads, ml_dtypes' bf16 its own NaN
        return ~np.isnan(x)
    return (~(x <= 0) & nearest_in_others(x)) if form is E8M0FNU else np.ones(x.shape, bool)


@pytest.mark.parametrize("form", list(ML), ids=by_name)
def test_encode_agrees_with_ml_dtypes_at_every_boundary(form):
    bits = edge_bits(form)
    same = comparable_with_ml(bits, form)
    assert same.sum() > len(bits) // 2 - 10
    got, expected = form.encode_f32(bits), ml_bits(bits, form)
    wrong = same & (got != expected)
    assert not wrong.any(), np.stack([bits[wrong], got[wrong], expected[wrong]], axis=1)


@pytest.mark.parametrize("form", [E4M3FN, E5M2], ids=by_name)
def test_encode_agrees_with_ml_dtypes_on_sampled_blocks(form):
    for bits in sampled_blocks():
        assert (form.encode_f32(bits) == ml_bits(bits, form)).all(), hex(bits[0])


@pytest.mark.parametrize("form", [F16, BF16, E2M1, E3M2, E4M3FNUZ, E8M0FNU], ids=by_name)
def test_encode_agrees_with_ml_dtypes_on_random_values(form):
    bits = np.random.default_rng(2).integers(0, 1 << 32, 1 << 19, np.uint32)
    same = comparable_with_ml(bits, form)
    assert (form.encode_f32(bits) == ml_bits(bits, form))[same].all()


def torch_mode(form):
    """torch 2.13 saturates in e4m3fn, Inf too, and in no other format."""
    return "saturating" if form is E4M3FN else "nonsaturating"


def comparable_with_torch(bits, form):
    """torch's NaN of e5m2 is 7f where ours is 7e; f16 and bf16 keep payloads; E8M0 ignores the sign."""
    x = bits.view(np.float32)
    if form in (E5M2, F16, BF16):
        return ~np.isnan(x)
    return (~(x < 0) & nearest_in_others(x)) if form is E8M0FNU else np.ones(x.shape, bool)


@pytest.mark.parametrize("form", list(TORCH), ids=by_name)
def test_encode_agrees_with_torch_at_every_boundary(form):
    bits = edge_bits(form)
    same = comparable_with_torch(bits, form)
    assert (form.encode_f32(bits, torch_mode(form)) == torch_bits(bits, form))[same].all()


@pytest.mark.parametrize("form", [E4M3FN, E5M2, F16, BF16], ids=by_name)
def test_encode_agrees_with_torch_on_sampled_blocks(form):
    for bits in sampled_blocks()[::3]:
        same = comparable_with_torch(bits, form)
        assert (form.encode_f32(bits, torch_mode(form)) == torch_bits(bits, form))[same].all(), hex(bits[0])


@pytest.mark.slow
@pytest.mark.parametrize("form", [E4M3FN, E5M2], ids=by_name)
def test_encode_agrees_on_all_float32(form):
    low = np.arange(1 << 16, dtype=np.uint32)
    for high in range(1 << 16):
        bits = np.uint32(high << 16) | low
        got = form.encode_f32(bits)
        assert (got == ml_bits(bits, form)).all(), hex(bits[0])
        saturated = got if torch_mode(form) == "nonsaturating" else form.encode_f32(bits, "saturating")
        same = comparable_with_torch(bits, form)
        assert (saturated == torch_bits(bits, form))[same].all(), hex(bits[0])


@pytest.mark.parametrize("form", NARROW, ids=by_name)
def test_encode_gives_back_every_code(form):
    codes = codes_of(form)
    number = ~form.is_nan(codes)
    values = form.decode(codes)
    assert (form.encode(values) == codes)[number].all()
    with np.errstate(all="ignore"):
        assert (form.encode(values.astype(np.float32)) == codes)[number].all()
    assert form.is_nan(form.encode(values[~number])).all()


def test_encode_to_f32_is_the_identity_but_for_nan():
    bits = np.random.default_rng(3).integers(0, 1 << 32, 1 << 17, np.uint32)
    nan = np.isnan(bits.view(np.float32))
    assert nan.any()
    assert (F32.encode_f32(bits) == np.where(nan, bits & 0x80000000 | 0x7FC00000, bits)).all()


def test_encode_float64_to_f32_agrees_with_numpy():
    bits = np.random.default_rng(4).integers(0, 1 << 64, 200_000, np.uint64)
    spread = np.ldexp(np.random.default_rng(5).normal(size=100_000), np.arange(100_000) % 300 - 160)
    x = np.concatenate([bits.view(np.float64), spread])
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32).view(np.uint32)
    assert (F32.encode(x) == expected)[~np.isnan(x)].all()


@pytest.mark.parametrize("form", SMALL, ids=by_name)
@pytest.mark.parametrize("overflow", MODES)
def test_encode_agrees_with_rational_arithmetic_at_every_boundary(form, overflow):
    x = edge_bits(form).view(np.float32)
    # Beyond float32: one float64 ulp beside each boundary, where rounding twice would go wrong.
    finite = x[np.isfinite(x)].astype(np.float64)
    wide = np.concatenate([np.nextafter(finite, np.inf), np.nextafter(finite, -np.inf)])
    for values in (x, wide):
        expected = [nearest(float(v), form, overflow) for v in values]
        assert form.encode(values, overflow).tolist() == expected


any_float = st.one_of(
    st.floats(),
    st.floats(width=32),
    st.builds(lambda m, e: m * 2.0**e, st.integers(-(2**53), 2**53), st.integers(-80, 60)),
    st.builds(lambda m, e: m * 2.0**e, st.integers(-64, 64), st.integers(-24, 18)),
)


@given(any_float, st.sampled_from(NARROW), st.sampled_from(MODES))
def test_encode_agrees_with_rational_arithmetic(x, form, overflow):
    assert int(form.encode(np.float64(x), overflow)) == nearest(x, form, overflow)


@given(st.integers(0, 2**32 - 1), st.sampled_from(NARROW), st.sampled_from(MODES))
def test_the_three_ways_in_are_one(bits, form, overflow):
    x = np.array(bits, np.uint32)
    by_bits, by_f32 = form.encode_f32(x, overflow), form.encode(x.view(np.float32), overflow)
    assert by_bits == by_f32
    assert by_bits == form.encode(F32.decode(x), overflow) or F32.is_nan(x)


def test_rounds_once():
    just_over = np.array([464.0, 1.0625]) + 2.0**-40
    assert E4M3FN.encode(just_over).tolist() == [0x7F, 0x39]
    assert E4M3FN.encode(just_over.astype(np.float32)).tolist() == [0x7E, 0x38]


@pytest.mark.parametrize(
    ("form", "x", "nonsaturating", "saturating"),
    [
        (E4M3FN, 448.0, 0x7E, 0x7E),
        (E4M3FN, 464.0, 0x7E, 0x7E),
        (E4M3FN, 464.00003, 0x7F, 0x7E),
        (E4M3FN, np.inf, 0x7F, 0x7E),
        (E4M3FN, -np.inf, 0xFF, 0xFE),
        (E4M3FN, -1e9, 0xFF, 0xFE),
        (E5M2, 61439.996, 0x7B, 0x7B),
        (E5M2, 61440.0, 0x7C, 0x7B),
        (E5M2, -61440.0, 0xFC, 0xFB),
        (E5M2, np.inf, 0x7C, 0x7B),
        (E2M1, 1e9, 0x7, 0x7),
        (E2M1, -np.inf, 0xF, 0xF),
        (E2M3, -7.6, 0x3F, 0x3F),
        (E3M2, np.inf, 0x1F, 0x1F),
        (F16, 65520.0, 0x7C00, 0x7BFF),
        (BF16, -np.inf, 0xFF80, 0xFF7F),
        (E4M3FNUZ, 248.0, 0x80, 0x7F),
        (E4M3FNUZ, -248.0, 0x80, 0xFF),
        (E4M3FNUZ, -0.0, 0x00, 0x00),
        (E5M2FNUZ, -1e-9, 0x00, 0x00),
        (E8M0FNU, 0.0, 0x00, 0x00),
        (E8M0FNU, -0.0, 0x00, 0x00),
        (E8M0FNU, 1e-45, 0x00, 0x00),
        (E8M0FNU, -1.0, 0xFF, 0xFF),
        (E8M0FNU, 1.5, 0x80, 0x80),
        (E8M0FNU, 3.0, 0x81, 0x81),
        (E8M0FNU, 3.4e38, 0xFF, 0xFE),
        (E8M0FNU, np.inf, 0xFF, 0xFE),
    ],
)
def test_overflow_and_special_values(form, x, nonsaturating, saturating):
    x = np.float32(x)
    assert form.encode(x) == nonsaturating
    assert form.encode(x, "nonsaturating") == nonsaturating
    assert form.encode(x, "saturating") == saturating


@pytest.mark.parametrize("form", FORMATS.values(), ids=by_name)
@pytest.mark.parametrize("overflow", MODES)
def test_nan_of_any_payload_becomes_the_canonical_one(form, overflow):
    payloads = np.array([0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    for sign, expected in zip((0, 0x80000000), NAN_CODES[form.name], strict=True):
        assert (form.encode_f32(payloads | np.uint32(sign), overflow) == expected).all()
        wide = np.array([0x7FF0000000000001, 0x7FF7FFFFFFFFFFFF, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF], np.uint64)
        wide = (wide | np.uint64(sign << 32)).view(np.float64)
        assert (form.encode(wide, overflow) == expected).all()


def test_published_counts_of_overflowing_sums():
    """RCCL issue 9556: the sums of all 65536 pairs of codes in f16, converted back on gfx950: 436 and 120 overflow."""
    for form, expected in ((E4M3FN, 436), (E5M2, 120)):
        values = form.decode(codes_of(form))
        finite = values[np.isfinite(values)].astype(np.float16)
        with np.errstate(over="ignore"):
            sums = (finite[:, None] + finite[None, :]).astype(np.float32)
        assert (~np.isfinite(form.decode(form.encode(sums)))).sum() == expected
        assert np.isfinite(form.decode(form.encode(sums, "saturating"))).all()


def test_published_examples_of_overflowing_sums():
    assert E4M3FN.encode(np.float32(448 + 18)) == 0x7F
    assert E5M2.encode(np.float32(57344 + 4096)) == 0x7C


def test_bits_do_not_depend_on_the_flush_mode_of_the_host():
    tiny = np.array([1, 0x80000001, 0x00400000, 0x007FFFFF], np.uint32)
    forms = (F32, BF16, E8M0FNU)
    expected = [(form.encode_f32(tiny).tolist(), form.decode(form.encode_f32(tiny)).tolist()) for form in forms]
    assert expected[0][1][0] == 2.0**-149
    assert torch.set_flush_denormal(True)
    try:
        got = [(form.encode_f32(tiny).tolist(), form.decode(form.encode_f32(tiny)).tolist()) for form in forms]
    finally:
        torch.set_flush_denormal(False)
    assert str(got) == str(expected)


def test_encode_keeps_shape_and_takes_views():
    x = np.linspace(-9, 9, 24, dtype=np.float32).reshape(2, 3, 4)
    codes = E4M3FN.encode(x)
    assert (codes.shape, codes.dtype) == (x.shape, np.uint8)
    assert (E4M3FN.encode(x.T) == codes.T).all()
    assert (E4M3FN.encode(x[:, ::2, ::-1]) == codes[:, ::2, ::-1]).all()
    assert E4M3FN.encode(np.float32(1)).shape == ()
    assert E4M3FN.encode(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert (F16.encode(x).dtype, F32.encode(x).dtype, E2M1.encode(x).dtype) == (np.uint16, np.uint32, np.uint8)


def test_encode_of_more_than_one_block():
    bits = np.arange(0x3F000000, 0x3F000000 + 200_001, dtype=np.uint32)
    assert (E5M2.encode_f32(bits) == ml_bits(bits, E5M2)).all()


# fields, show, distance ---------------------------------------------------------------------------------------------


def test_fields():
    assert E4M3FN.fields(0xFE) == Fields(1, 15, 6)
    assert E5M2.fields(0x3D) == Fields(0, 15, 1)
    assert E8M0FNU.fields(0x80) == Fields(0, 128, 0)
    assert F32.fields(0xC0490FDB) == Fields(1, 128, 0x490FDB)


@pytest.mark.parametrize(
    ("form", "code", "text"),
    [
        (E4M3FN, 0x7E, "0x7e  0|1111|110  448.0"),
        (E4M3FN, 0x80, "0x80  1|0000|000  -0.0"),
        (E4M3FN, 0xFF, "0xff  1|1111|111  nan"),
        (E5M2, 0xFC, "0xfc  1|11111|00  -inf"),
        (E8M0FNU, 0x7E, "0x7e  01111110  0.5"),
        (E2M1, 0xB, "0xb  1|01|1  -1.5"),
        (E2M3, 0x01, "0x01  0|00|001  0.125"),
        (F16, 0x3C01, "0x3c01  0|01111|0000000001  1.0009765625"),
        (F32, 0x3F800000, "0x3f800000  0|01111111|00000000000000000000000  1.0"),
    ],
)
def test_show(form, code, text):
    assert form.show(code) == text
    assert form.show(form.code_dtype.type(code)) == text


@pytest.mark.parametrize("form", SMALL, ids=by_name)
def test_ulp_distance_counts_values(form):
    codes = codes_of(form)[~form.is_nan(codes_of(form))]
    place = {value: at for at, value in enumerate(np.unique(form.decode(codes)))}
    at = np.array([place[value] for value in form.decode(codes)])
    assert (form.ulp_distance(codes[:, None], codes[None, :]) == abs(at[:, None] - at[None, :])).all()


def test_ulp_distance_of_special_values():
    assert E4M3FN.ulp_distance([0x7F, 0x7F, 0x00, 0x80], [0xFF, 0x00, 0xFF, 0x00]).tolist() == [
        0,
        UNORDERED,
        UNORDERED,
        0,
    ]
    assert E5M2.ulp_distance(0x7C, 0x7B) == 1
    assert F32.ulp_distance(0xFF7FFFFF, 0x7F7FFFFF) == 2 * 0x7F7FFFFF
    assert F32.ulp_distance(np.array([0x3F800000], np.uint32), np.array([0x3F800002], np.uint32)).dtype == np.int64


# errors and evidence ------------------------------------------------------------------------------------------------


def test_codes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"code 0x10 at index \(1,\) does not fit the 4 bits of e2m1"):
        E2M1.decode(np.array([3, 16], np.uint8))
    with pytest.raises(ValueError, match=r"code 0x100 at index \(0, 1\) does not fit the 8 bits of e4m3fn"):
        E4M3FN.is_nan(np.array([[0, 256]], np.uint16))
    with pytest.raises(ValueError, match=r"code -0x1 at index \(\) does not fit the 8 bits of e5m2"):
        E5M2.ulp_distance(-1, 0)
    with pytest.raises(ValueError, match="does not fit the 6 bits of e2m3"):
        E2M3.show(64)


def test_codes_that_are_not_integers_are_refused():
    with pytest.raises(TypeError, match="codes of e4m3fn are integers, got float32; view them as uint8"):
        E4M3FN.decode(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="codes of f16 are integers, got float16; view them as uint16"):
        F16.fields(np.float16(1))


def test_values_of_other_types_are_refused():
    for bad, name in itertools.product((np.zeros(2, np.float16), np.zeros(2, np.int32)), ("e4m3fn", "f32")):
        with pytest.raises(TypeError, match=f"{name}.encode takes float32 or float64, got {bad.dtype}"):
            FORMATS[name].encode(bad)
    with pytest.raises(TypeError, match=r"e5m2\.encode_f32 takes the bits of float32 values as uint32, got float32"):
        E5M2.encode_f32(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="overflow is 'nonsaturating' or 'saturating', got 'wrap'"):
        E5M2.encode(np.zeros(2, np.float32), "wrap")


def test_formats_by_name():
    names = "f32 f16 bf16 e4m3fn e5m2 e8m0fnu e2m3 e3m2 e2m1 e4m3fnuz e5m2fnuz"
    assert list(FORMATS) == names.split()
    assert all(form.name == name for name, form in FORMATS.items())
    assert len(set(FORMATS.values())) == len(FORMATS)


def test_rules_are_in_the_ledger_at_their_level():
    levels = {name.removeprefix("formats."): r.evidence for name, r in LEDGER.items() if name.startswith("formats.")}
    assert levels["rounding"] == Evidence.spec
    assert levels["overflow_edge"] == Evidence.published
    assert {n for n, level in levels.items() if level == Evidence.chosen} == {"e8m0_encode", "fnuz", "nan_code"}
    vendor = {n for n, level in levels.items() if level == Evidence.vendor}
    assert vendor == {"nan_f8", "no_infinity_specials", "saturation_infinity"}
