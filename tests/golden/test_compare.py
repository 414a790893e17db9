"""The first difference of two arrays, shown in their format, and its likely cause."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfx950.formats import FORMATS
from golden.compare import compare
from golden.patterns import BLOCK

RNG = np.random.default_rng(7)


def f32(*codes):
    return np.array(codes, np.uint32).view(np.float32)


def different(a, b, form="f32"):
    difference = compare("o", a, b, form)
    assert difference is not None
    return difference


# ---- what differs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["f32", "u32"])
def test_equal_bits_do_not_differ_even_when_nan(form):
    a = f32(0x7FC00001, 0xFF800000, 0x80000000)
    assert compare("o", a, a.copy(), form) is None


def test_minus_zero_is_not_zero():
    d = different(f32(0, 0x80000000, 0x80000000), f32(0, 0, 0))
    assert (d.index, d.count, d.total, d.ulps, d.pattern) == ((1,), 2, 3, 0, "only signs differ")


def test_nan_payloads_count_and_are_shown():
    d = different(f32(0x7FC00000, 0x7FC00001), f32(0x7FC00001, 0xFFC00001))
    assert d.shown_a == "0x7fc00000  0|11111111|10000000000000000000000  nan"
    assert d.shown_b == "0x7fc00001  0|11111111|10000000000000000000001  nan"
    assert d.ulps is None
    assert d.pattern == "both are NaN: only signs and payloads differ"


def test_the_first_difference_in_c_order_its_codes_and_its_byte():
    a = np.zeros((3, 4), np.float32)
    b = a.copy()
    b[1, 2], b[2, 0] = f32(0x00010000)[0], 1
    d = different(a, b)
    assert (d.index, d.count, d.total, d.a, d.b) == ((1, 2), 2, 12, 0, 0x10000)
    assert d.byte == 6 * 4 + 2, "the byte of the element that differs, not just its first"


def test_arrays_in_other_memory_orders_compare_by_index():
    a = np.asfortranarray(RNG.integers(0, 9, (3, 4), dtype=np.uint8))
    b = a.copy(order="C")
    assert compare("o", a, b, "u8") is None
    b[2, 1] ^= 1
    assert different(a, b, "u8").byte == 9


def test_one_element_without_a_shape():
    d = different(np.float32(1), np.float32(2))
    assert (d.index, d.count, d.total, d.where, d.pattern) == ((), 1, 1, "", "")


def test_empty_arrays_agree():
    assert compare("o", np.zeros((0, 4)), np.zeros((0, 4)), "u64") is None


@pytest.mark.parametrize(
    ("a", "b", "form", "message"),
    [
        (np.zeros(2), np.zeros(3), "u64", r"o: float64\[2\] against float64\[3\]"),
        (np.zeros(2, np.int32), np.zeros(2, np.uint32), "u32", r"int32\[2\] against uint32\[2\]"),
        (np.zeros(2), np.zeros(2), "fp8", "no format 'fp8'; there are f32, .*e4m3fn, .*u8"),
        (np.zeros(2, complex), np.zeros(2, complex), "u64", "complex128 has 16 bytes an element"),
    ],
)
def test_what_cannot_be_compared_is_refused(a, b, form, message):
    with pytest.raises(ValueError, match=message):
        compare("o", a, b, form)


def test_plain_numbers_are_shown_in_hexadecimal_and_decimal():
    d = different(np.array([255], np.uint16), np.array([16], np.uint16), "u16")
    assert (d.shown_a, d.shown_b, d.ulps) == ("0x00ff  255", "0x0010  16", None)


def test_bits_beyond_a_narrow_code_differ_too():
    d = different(np.array([0x05], np.uint8), np.array([0x15], np.uint8), "e2m1")
    assert (d.shown_b, d.ulps) == ("0x15  21", None)


# ---- distances -------------------------------------------------------------------------------------------------------

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
}


@pytest.mark.parametrize("name", TYPES)
def test_ulps_count_the_values_between(name):
    form = FORMATS[name]
    codes = np.arange(1 << form.bits).astype(form.code_dtype)
    values = codes.view(TYPES[name]).astype(np.float32)
    order = {float(v): i for i, v in enumerate(np.unique(values[~np.isnan(values)]))}
    for a, b in RNG.integers(0, 1 << form.bits, (200, 2)):
        if a == b:
            continue
        d = different(codes[[a]], codes[[b]], name)
        x, y = float(values[a]), float(values[b])
        assert d.ulps == (None if np.isnan([x, y]).any() else abs(order[x] - order[y])), (a, b)


def test_infinity_is_one_ulp_beyond_the_largest_number():
    assert different(f32(0x7F7FFFFF), f32(0x7F800000)).ulps == 1
    assert different(f32(0x7F800000), f32(0xFF800000)).ulps == 2 * 0x7F800000
    assert different(f32(0x7F800000), f32(0x7F800001)).ulps is None


# ---- where and why ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ((slice(2, 5), 3), "[2..4][3][*]"),
        ((slice(None), slice(1, None, 2)), "[*][1..15 by 2][*]"),
        ((slice(None), [0, 1, 5]), "[*][0..5][*]"),
        ((slice(None),), ""),
        ((1, slice(2, 4), [0, 2]), "[1][2..3][0..2 by 2]"),
    ],
)
def test_where_names_the_part_that_holds_all_differences(part, text):
    a = np.zeros((8, 16, 4), np.uint8)
    b = a.copy()
    b[part] = 1
    assert different(a, b, "u8").where == text


def test_an_axis_of_one_index():
    a, b = np.zeros((1, 4), np.uint8), np.ones((1, 4), np.uint8)
    assert different(a, b, "u8").where == ""
    b[0, 3] = 0
    assert different(a, b, "u8").where == "[0][0..2]"


SQUARE = RNG.integers(0, 120, (16, 16), dtype=np.uint8)
FNUZ = SQUARE.view(TYPES["e4m3fn"]).astype(np.float32).astype(TYPES["e4m3fnuz"]).view(np.uint8)
DEEP = RNG.integers(0, 256, (3, 5, 6), dtype=np.uint8)
WIDE = RNG.integers(0, 1 << 32, (6, 10), dtype=np.uint32)


@pytest.mark.parametrize(
    ("a", "b", "pattern"),
    [
        (SQUARE, SQUARE.T, "transposed"),
        (SQUARE, np.roll(SQUARE, 1, 0), "rows moved by 1"),
        (SQUARE, np.roll(SQUARE, -1, 0), "rows moved by -1"),
        (SQUARE, np.roll(SQUARE, 1, 1), "moved by 1 along axis 1"),
        (DEEP, np.roll(DEEP, -1, 1), "moved by -1 along axis 1"),
        (DEEP, DEEP.reshape(3, 5, 3, 2)[..., ::-1].reshape(DEEP.shape), "neighbours swapped"),
        (WIDE, np.roll(WIDE, 5, 1), "halves swapped"),
        (WIDE, WIDE.byteswap(), "bytes of each element reversed"),
        (SQUARE, SQUARE ^ np.uint8(0x80), "only signs differ"),
        (SQUARE, SQUARE + (SQUARE % 2), "never more than one unit in the last place apart: another rounding"),
        (SQUARE, np.where(SQUARE < 8, 0, SQUARE), "zero in the second where the first is subnormal: flushed"),
        (SQUARE, FNUZ, "the codes of OCP FP8 against FNUZ"),
        (SQUARE, RNG.permutation(SQUARE.reshape(-1)).reshape(16, 16), ""),
    ],
)
def test_simple_causes_are_named(a, b, pattern):
    form = "u32" if a.dtype == np.uint32 else "e4m3fn"
    assert different(a, np.ascontiguousarray(b).astype(a.dtype), form).pattern == pattern


@pytest.mark.parametrize("change", [lambda a: a.T, lambda a: np.roll(a, 1, 0), lambda a: a ^ np.uint8(0x80)])
def test_a_cause_must_account_for_every_element(change):
    b = change(SQUARE).copy()
    b[15, 15] ^= 0x11
    assert different(SQUARE, b, "e4m3fn").pattern == ""


def test_a_cause_must_account_for_what_does_not_differ():
    a, b = np.zeros((2, 4, 4), np.uint8)
    a[0, 1:3] = 0x40  # every difference is what the transposed array has there, but that is not zero elsewhere
    assert different(a, b, "e4m3fn").pattern == ""


def test_payloads_beside_other_roundings_are_no_rounding():
    assert different(f32(0x7FC00000, 1), f32(0x7FC00001, 2)).pattern == ""
    assert different(f32(3, 1), f32(4, 2)).pattern.endswith("another rounding")


@pytest.mark.parametrize("at", [0, BLOCK, 2 * BLOCK + 5])
def test_a_cause_is_tested_beyond_the_first_block(at):
    a = RNG.integers(0, 120, 3 * BLOCK, dtype=np.uint8)
    b = a ^ np.uint8(0x80)
    b[at] ^= 1
    assert different(a, b, "e4m3fn").pattern == ""


def test_sixty_four_mebibytes():
    a = RNG.integers(0, 256, (512, 128, 1024), dtype=np.uint8)
    b = a.copy()
    assert compare("cache", a, b, "e4m3fn") is None
    b[400, 3:7, 8::16] ^= 3
    d = different(a, b, "e4m3fn")
    assert (d.index, d.count, d.where) == ((400, 3, 8), 4 * 64, "[400][3..6][8..1016 by 16]")


@given(st.lists(st.integers(0, 255), min_size=1, max_size=12), st.data())
def test_count_and_index_agree_with_a_plain_loop(left, data):
    right = data.draw(st.lists(st.sampled_from([*left, 0x7F, 0xFF, 0x80, 0]), min_size=len(left), max_size=len(left)))
    wrong = [i for i, (x, y) in enumerate(zip(left, right, strict=True)) if x != y]
    d = compare("o", np.array(left, np.uint8), np.array(right, np.uint8), "e4m3fn")
    assert (d is None) == (not wrong)
    if d is not None:
        assert (d.index, d.count, d.a, d.b) == ((wrong[0],), len(wrong), left[wrong[0]], right[wrong[0]])
