"""assert_bits_equal: what is equal, what is not, what it says, and what it does not take."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from gfx950.formats import FORMATS
from golden.bits import FORMAT_OF, assert_bits_equal, unequal

RNG = np.random.default_rng(3)
MADE = [np.dtype(getattr(ml_dtypes, name)) for name in FORMAT_OF if hasattr(ml_dtypes, name)]
TORCH = {name: getattr(torch, name) for name in FORMAT_OF if hasattr(torch, name)}


@pytest.fixture(autouse=True)
def wide_enough(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def f32(*codes):
    return np.array(codes, np.uint32).view(np.float32)


def failure(actual, expected, **keywords):
    with pytest.raises(AssertionError) as error:
        assert_bits_equal(actual, expected, **keywords)
    return str(error.value)


def line(report, label):
    """What the report says behind a label."""
    (found,) = re.findall(rf"^  {label} +(.*)$", report, re.MULTILINE)
    return found


# ---- equal or not ----------------------------------------------------------------------------------------------------


def test_no_tolerance_minus_zero_and_payloads():
    assert_bits_equal(f32(0x7FC00001, 0x80000000), f32(0x7FC00001, 0x80000000))
    for a, b in ((0, 0x80000000), (0x7FC00000, 0x7FC00001), (0x7FC00000, 0xFFC00000), (0x3F800000, 0x3F800001)):
        failure(f32(a), f32(b))


@given(numpy_strategies.arrays(np.uint16, (3, 5)), st.data())
def test_equal_exactly_when_the_codes_are(codes, data):
    other = codes.copy()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, 14))
        other.flat[at] ^= 1 << data.draw(st.integers(0, 15))
    for dtype in (np.float16, np.dtype(ml_dtypes.bfloat16), np.int16):
        found = unequal(codes.view(dtype), other.view(dtype))
        assert (found is None) == np.array_equal(codes, other)


@pytest.mark.parametrize("dtype", MADE, ids=lambda d: d.name)
def test_every_code_of_the_short_formats_differs_from_its_neighbour(dtype):
    codes = np.arange(1 << FORMATS[FORMAT_OF[dtype.name]].bits, dtype=f"u{dtype.itemsize}")
    array = codes.view(dtype)
    assert_bits_equal(array, array.copy())
    report = failure(np.roll(codes, 1).view(dtype), array)
    assert f"{len(codes)} of {len(codes)} elements differ in bits ({dtype.name}[{len(codes)}])" in report
    assert line(report, "expected") == FORMATS[FORMAT_OF[dtype.name]].show(0)


@pytest.mark.parametrize("name", TORCH)
def test_tensors_compare_with_each_other_and_with_arrays(name):
    size = TORCH[name].itemsize
    codes = RNG.integers(0, 1 << 8 * size, (4, 6), dtype=f"u{size}")
    tensor = torch.from_numpy(codes.copy().view(f"i{size}")).view(TORCH[name])
    array = codes.view(np.dtype(getattr(ml_dtypes, name, name)))
    assert_bits_equal(tensor, array)
    assert_bits_equal(array, tensor)
    assert_bits_equal(tensor.t(), np.ascontiguousarray(array.T))
    other = codes.copy()
    other[2, 3] ^= 1
    report = failure(tensor, other.view(array.dtype), name="t")
    assert line(report, "first") == "t[2][3]"
    assert line(report, "actual") == FORMATS[FORMAT_OF[name]].show(codes[2, 3])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float64, torch.bool, torch.complex64])
def test_other_tensors(dtype):
    tensor = torch.tensor([[0, 1], [1, 1]]).to(dtype)
    assert_bits_equal(tensor, tensor.numpy())
    assert "1 of" in failure(tensor, torch.ones(2, 2, dtype=dtype))


def test_tensors_of_autograd_and_conjugated_ones():
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    assert_bits_equal(tensor, np.float32([1, 2]))
    conjugated = torch.tensor([1 + 2j]).conj()
    assert_bits_equal(conjugated, np.complex64([1 - 2j]))
    assert_bits_equal(torch.zeros(3, 0), np.zeros((3, 0), np.float32))


def test_zero_dimensions_and_no_elements():
    assert_bits_equal(np.float32(1.5), torch.tensor(1.5))
    assert_bits_equal(np.array(1.5, ">f4"), np.float32(1.5))
    assert line(failure(np.float32(0), np.float32(-0.0), name="x"), "first") == "x"
    for shape in ((0,), (3, 0), (0, 2, 5)):
        assert_bits_equal(np.zeros(shape, np.float16), np.zeros(shape, np.float16))
    assert "other shapes" in failure(np.zeros((0, 3)), np.zeros((3, 0)))


def test_strides_orders_and_bytes_in_another_order_do_not_matter():
    a = RNG.standard_normal((6, 8)).astype(np.float32)
    wide = np.zeros((12, 16), np.float32)
    wide[::2, ::2] = a
    for same in (wide[::2, ::2], np.asfortranarray(a), a.astype(">f4"), a[::-1][::-1], np.broadcast_to(a, (6, 8))):
        assert_bits_equal(same, a)
    big = a.astype(">f4")
    big[3, 4] = -big[3, 4]
    assert line(failure(big, a), "first") == "result[3][4]"
    assert_bits_equal(np.array([0x7F800001], ">u4").view(">f4"), f32(0x7F800001))  # a signalling NaN stays one


def test_nan_any_spelled_out():
    a, b = f32(0x7FC00000, 0x3F800000), f32(0xFF800001, 0x3F800000)
    failure(a, b)
    assert_bits_equal(a, b, nan="any")
    doubles = np.array([0x7FF8 << 48, 0xFFF0 << 48 | 1, 0x7FF0 << 48], np.uint64).view(np.float64)
    assert_bits_equal(doubles[:1], doubles[1:2], nan="any")
    failure(doubles[:1], doubles[2:], nan="any")
    failure(f32(0x7FC00000), f32(0x7F800000), nan="any")
    assert_bits_equal(np.uint8([0x80]), np.array([0x80], np.uint8), nan="any")
    assert_bits_equal(np.uint8([0x7F]), np.uint8([0xFF]), nan="any", format="e4m3fn")
    failure(np.uint8([0x7F]), np.uint8([0xFF]), nan="any")
    report = failure(f32(0x7FC00000, 0, 0), f32(0x7FC00001, 0x80000000, 0x80000000), nan="any")
    assert report.startswith("result: 2 of 3 elements differ in bits (float32[3], any NaN for any other)")


# ---- what it says ----------------------------------------------------------------------------------------------------


def test_the_whole_report():
    a = np.array([[1, 2, 3], [0, 5, 6]], ml_dtypes.bfloat16)
    b = a.copy()
    b[1] = -a[1]
    assert failure(b, a, name="o", where=lambda i: f"row {i[0]}, dim {i[1]}").splitlines() == [
        "o: 3 of 6 elements differ in bits (bfloat16[2, 3])",
        "  first     o[1][0]: row 1, dim 0",
        "  actual    0x8000  1|00000000|0000000  -0.0",
        "  expected  0x0000  0|00000000|0000000  0.0",
        "  distance  0 ulp",
        "  all in    o[1][*]",
        "  pattern   only signs differ",
    ]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (lambda i: {}[i], "o[0]: (where raised KeyError: (0,))"),
        (lambda i: i[1], "o[0]: (where raised IndexError: tuple index out of range)"),
        (lambda i: 7, "o[0]: 7"),
        (lambda i: None, "o[0]"),
    ],
)
def test_words_that_fail_do_not_hide_the_difference(where, words):
    report = failure(np.float32([1]), np.float32([2]), name="o", where=where)
    assert report.splitlines()[1] == f"  first     {words}"


def test_the_pattern_is_of_what_became_of_the_expected():
    expected = np.arange(64, dtype=np.float32).reshape(8, 8)
    wrong = expected.copy()
    wrong[:, 4:] = expected[:, :4]
    assert line(failure(wrong, expected), "pattern") == "upper half repeats the lower"


def test_numbers_without_a_format_are_shown_as_they_are():
    assert line(failure(np.int8([-2]), np.int8([2])), "actual") == "0xfe  -2"
    assert line(failure(np.uint64([1 << 63]), np.uint64([0])), "actual") == f"0x{1 << 63:016x}  {1 << 63}"
    assert line(failure(np.array([False]), np.array([True])), "expected") == "0x01  True"
    assert line(failure(np.array([-3], ml_dtypes.int4), np.array([1], ml_dtypes.int4)), "expected") == "0x01  1"
    report = failure(np.float64([1.0]), np.float64([1.0 + 2**-52]))
    assert "0|01111111111|" + "0" * 52 + "  1.0\n" in report
    assert line(report, "distance") == "1 ulp"
    assert "distance" not in failure(np.float64([np.nan]), np.float64([1]))
    report = failure(np.complex64([1, 2]), np.complex64([1, 2 - 1j]), name="z", where=lambda i: f"item {i[0]}")
    assert line(report, "first") == "z[1][1]: item 1, imaginary part"


def test_other_shapes_and_dtypes_are_said():
    a = np.zeros((2, 3), np.float32)
    assert " ".join(failure(a, np.zeros((3, 2), np.float32)).split()) == (
        "result: other shapes (nothing is broadcast): actual is float32[2, 3], expected is float32[3, 2]"
    )
    assert " ".join(failure(a, torch.zeros(2, 1, dtype=torch.bfloat16), name="o").split()) == (
        "o: other dtypes (nothing is converted; format= states what integers hold) and other shapes (nothing is "
        "broadcast): actual is float32[2, 3], expected is bfloat16[2, 1]"
    )
    failure(np.zeros(2, np.uint8), np.zeros(2, np.int8))


def test_a_format_that_is_stated():
    codes = np.uint8([0x38, 0x7E])
    assert_bits_equal(codes, codes.view(ml_dtypes.float8_e4m3fn), format="e4m3fn")
    assert_bits_equal(codes.view(ml_dtypes.float8_e4m3fn), torch.from_numpy(codes), format="u8")
    report = failure(codes, np.uint8([0x38, 0x7D]), format="e4m3fn")
    assert report.startswith("result: 1 of 2 elements differ in bits (uint8[2], as e4m3fn)")
    assert line(report, "actual") == FORMATS["e4m3fn"].show(0x7E)
    assert line(failure(np.uint8([3]), np.uint8([5]), format="e2m1"), "actual") == FORMATS["e2m1"].show(3)
    assert line(failure(np.float32([1]), np.float32([2]), format="u32"), "actual") == "0x3f800000  1065353216"


@pytest.mark.parametrize(
    ("a", "form", "message"),
    [
        (np.zeros(2, np.uint8), "fp8", "there is no format 'fp8'; there are f32, f16, bf16, e4m3fn"),
        (np.zeros(2, np.float16), "bf16", "actual has dtype float16, which cannot be bf16: .* its codes or bfloat16"),
        (np.zeros(2, np.uint16), "e4m3fn", "uint16, which cannot be e4m3fn: expected elements of 8 bits"),
        (np.zeros(2, np.float32), "u16", "float32, which cannot be u16: expected elements of 16 bits$"),
    ],
)
def test_a_format_that_cannot_be(a, form, message):
    with pytest.raises(ValueError, match=message):
        assert_bits_equal(a, a, format=form)


@pytest.mark.parametrize("form", [["f32"], 5, ""])
def test_a_format_that_is_no_name(form):
    with pytest.raises(ValueError, match=re.escape(f"there is no format {form!r}; there are f32")):
        assert_bits_equal(np.float32([1]), np.float32([1]), format=form)


def test_another_nan():
    with pytest.raises(ValueError, match="nan is 'equal'; it is 'bits', or 'any'"):
        assert_bits_equal(np.zeros(1), np.zeros(1), nan="equal")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, 2.0], "actual is a list, whose bits nobody stated; .*np.asarray\\(actual, np.float32\\)"),
        (1.0, "actual is a float"),
        (None, "actual is a NoneType"),
        (np.array([None]), "actual has dtype object; expected numbers of 1, 2, 4 or 8 bytes"),
        (np.array(["a"]), "actual has dtype <U1"),
        (np.zeros(2, "f4,f4"), "compare its fields one by one"),
        (np.zeros(2, np.void(4).dtype), "actual has dtype |V4"),
        (np.zeros(2, np.longdouble), "actual has dtype float128|actual has dtype longdouble"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), "actual is a masked array"),
        (torch.zeros(2, device="meta"), "actual is a tensor without plain bits \\(on the meta device\\)"),
        (torch.zeros(2, 2).to_sparse(), "actual is a tensor without plain bits \\(torch.float32, torch.sparse_coo\\)"),
    ],
)
def test_what_has_no_bits_is_refused(value, message):
    with pytest.raises(TypeError, match=message):
        assert_bits_equal(value, value)


@pytest.mark.parametrize("columns", [60, 84, 200])
def test_no_line_is_wider_than_what_pytest_leaves_of_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    a = RNG.standard_normal((4, 4))
    for report in (failure(a, -a, where=lambda i: "word " * 40), failure(a, a[:1].astype(np.float32))):
        assert max(map(len, report.splitlines())) <= columns - 4
