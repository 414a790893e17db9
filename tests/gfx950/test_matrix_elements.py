"""Elements of matrix operands: their kinds, rounding against ml_dtypes, bits kept, and compression of a sparse A."""

import ml_dtypes
import numpy as np
import pytest

from gfx950.layouts import MATRIX_INSTRUCTIONS, layout
from gfx950.matrix_elements import KINDS, compress, element_kind, from_codes, to_codes

FLOATS = [kind for kind in KINDS.values() if kind.form is not None and kind.bits < 32]


def array_type(kind):
    return np.dtype(getattr(ml_dtypes, kind.dtype, None) or kind.dtype)


@pytest.mark.parametrize("mnemonic", MATRIX_INSTRUCTIONS)
def test_kinds_are_as_wide_as_the_layout_says(mnemonic):
    shape = MATRIX_INSTRUCTIONS[mnemonic]
    others = ["scaleA", "scaleB"] if shape.has_scales else ["index"] if shape.sparse else []
    for operand in ["A", "B", "C", "D", *others]:
        assert element_kind(mnemonic, operand).bits == layout(mnemonic, operand).element_bits


def test_kinds_of_mixed_instructions():
    assert element_kind("v_mfma_f32_16x16x32_fp8_bf8", "A").name == "fp8"
    assert element_kind("v_mfma_f32_16x16x32_fp8_bf8", "B").name == "bf8"
    assert element_kind("v_mfma_f32_32x32x8_bf16", "B").name == "bf16"
    assert element_kind("v_mfma_scale_f32_16x16x128_f8f6f4", "B", "fp6", "fp4").name == "fp4"
    assert element_kind("v_smfmac_i32_16x16x64_i8", "D").name == "i32"


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_every_code_is_kept_in_every_form(kind):
    codes = np.arange(1 << kind.bits)
    typed = codes.astype(f"u{array_type(kind).itemsize}").view(array_type(kind))
    assert (to_codes(kind, typed) == codes).all()
    assert (to_codes(kind, codes, codes=True) == codes).all()
    numbers = from_codes(kind, codes.astype(np.uint64))
    same = ~np.isnan(numbers)
    assert (to_codes(kind, numbers)[same] == codes[same]).all()


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.name)
def test_numbers_are_rounded_as_ml_dtypes_does(kind):
    random = np.random.default_rng(1)
    numbers = (random.standard_normal(4000) * kind.form.max / 8).astype(np.float32)
    numbers = numbers[np.abs(numbers) <= kind.form.max]
    expected = numbers.astype(array_type(kind)).view(f"u{array_type(kind).itemsize}")
    assert (to_codes(kind, numbers) == expected & (1 << kind.bits) - 1).all()


@pytest.mark.parametrize("name", ["f32", "f64", "i32", "i8"])
def test_results_keep_every_bit(name):
    kind = KINDS[name]
    codes = np.random.default_rng(2).integers(0, 1 << kind.bits, 1000, np.uint64)
    codes[:2] = 0x7FA00001 & (1 << kind.bits) - 1, 1 << kind.bits - 1
    values = from_codes(kind, codes)
    assert values.dtype.name == kind.dtype
    assert (to_codes(kind, values) == codes).all()


def test_a_dense_a_is_compressed_in_ascending_order_and_filled_up_with_its_zeros():
    dense = np.array([[0x8000, 0, 0x4000, 0, 0, 0x8000, 0, 0, 0, 0x7E01, 0, 0x3C00]], np.uint64)
    stored, index = compress(KINDS["f16"], dense)
    assert stored.tolist() == [[0x8000, 0x4000, 0, 0x8000, 0x7E01, 0x3C00]]
    assert index.tolist() == [[0, 2, 0, 1, 1, 3]]
    with pytest.raises(ValueError, match=r"row 1 of A has 3 elements that are not zero among k = 4\.\.7"):
        compress(KINDS["i8"], np.array([[0] * 8, [0] * 5 + [1, 128, 1]], np.uint64))


def test_what_is_no_number_of_the_kind():
    for value, error, text in [
        (np.array([True]), TypeError, "i8 takes integers, got bool"),
        (np.array(["a"]), TypeError, "i8 takes integers, got <U1"),
        (np.array([128]), ValueError, r"number 128 at index \(0,\) is outside -128\.\.127 of i8"),
    ]:
        with pytest.raises(error, match=text):
            to_codes(KINDS["i8"], value)
    with pytest.raises(TypeError, match="f16 takes numbers of at most 64 bits, got complex64"):
        to_codes(KINDS["f16"], np.complex64(1))
    assert to_codes(KINDS["f16"], np.array([True, False])).tolist() == [0x3C00, 0]
