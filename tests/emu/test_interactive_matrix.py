"""Matrix instructions on matrices and on registers: every instruction, exact products, bits kept, errors."""

import ml_dtypes
import numpy as np
import pytest

from emu import f32, mfma, to_numpy, u32, u64
from emu.interactive import instruction
from emu.interactive_matrix import from_registers, to_registers
from emu.matrix_registers import operand_layout, pack, unpack
from gfx950.arithmetic.mfma import F64_NAN
from gfx950.lanes import B128, B192, B256, LANES, Mode
from gfx950.layouts import MATRIX_INSTRUCTIONS, SCALE_BLOCK, matrix_instruction
from gfx950.models import make_model, using, write_model

SCALED = "v_mfma_scale_f32_16x16x128_f8f6f4"
BF16 = "v_mfma_f32_16x16x32_bf16"
SPARSE = "v_smfmac_f32_16x16x64_f16"
F64 = "v_mfma_f64_16x16x4_f64"
I8 = "v_mfma_i32_16x16x64_i8"
BLOCKS = "v_mfma_f32_4x4x4_16b_f16"
NAN_WITH_PAYLOAD = 0xFFA12345


def sizes(shape):
    blocks = (shape.blocks,) if shape.blocks > 1 else ()
    return [(*blocks, *size) for size in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))]


def sparse_rows(random, shape):
    """A dense (m, k) matrix with at most two of every four k not zero."""
    a = random.integers(-2, 3, (shape.m, shape.k // 4, 4))
    keep = np.argsort(random.random(a.shape), axis=-1) < 2
    return (a * keep).reshape(shape.m, shape.k)


@pytest.mark.parametrize("mnemonic", MATRIX_INSTRUCTIONS)
def test_every_instruction_multiplies_small_integers_exactly(mnemonic):
    random, shape = np.random.default_rng(1), matrix_instruction(mnemonic)
    a, b, c = (random.integers(-3, 4, size) for size in sizes(shape))
    if shape.sparse:
        a = sparse_rows(random, shape)
    result = mfma(mnemonic, a, b, c)
    np.testing.assert_array_equal(result, a @ b + c)
    kind = mnemonic.removeprefix("v_mfma_").removeprefix("v_smfmac_").removeprefix("scale_")[:3]
    assert result.dtype == {"f32": np.float32, "f64": np.float64, "i32": np.int32}[kind]


@pytest.mark.parametrize("mnemonic", [SCALED, BF16, SPARSE, F64, I8, BLOCKS])
def test_more_dimensions_are_as_many_instructions(mnemonic):
    random, shape = np.random.default_rng(2), matrix_instruction(mnemonic)
    a, b, c = (random.integers(-3, 4, (5, *size)) for size in sizes(shape))
    if shape.sparse:
        a = np.stack([sparse_rows(random, shape) for _ in range(5)])
    together = mfma(mnemonic, a, b[2], c)
    assert together.shape == c.shape
    for number in range(5):
        alone = mfma(mnemonic, a[number], b[2], c[number])
        assert together[number].tobytes() == alone.tobytes()
    assert mfma(mnemonic, a[:4].reshape(2, 2, *a.shape[1:]), b[2]).shape == (2, 2, *c.shape[1:])


def test_one_matrix_serves_all_blocks():
    a = np.arange(16).reshape(4, 4)
    result = mfma(BLOCKS, a, np.eye(4), np.arange(16)[:, None, None])
    np.testing.assert_array_equal(result, a + np.arange(16)[:, None, None])


def test_blocks_of_a_are_broadcast_and_lanes_of_b_moved():
    a, b = np.arange(256).reshape(16, 4, 4), np.eye(4)
    result = mfma(BLOCKS, a, b, cbsz=2, abid=3)
    np.testing.assert_array_equal(result, a[np.arange(16) // 4 * 4 + 3])
    name = "v_mfma_f32_32x32x1_2b_f32"
    b = np.arange(64).reshape(2, 1, 32)
    np.testing.assert_array_equal(mfma(name, np.ones((2, 32, 1)), b, blgp=2)[0], np.tile(b[1], (32, 1)))
    assert mfma(F64, np.eye(16, 4), np.ones((4, 16)), 2.0, blgp=0b101)[0, 0] == -3.0


# ---- scales and sparse -----------------------------------------------------------------------------------------------


def test_scaled_mfma_takes_formats_and_scales():
    random = np.random.default_rng(2)
    a, b = random.integers(-2, 3, (16, 128)), random.integers(-2, 3, (128, 16))
    exponents_a, exponents_b = random.integers(-2, 3, (16, 4)), random.integers(-2, 3, (16, 4))
    scales = {"scale_a": 127 + exponents_a, "scale_b": 127 + exponents_b}
    result = mfma(SCALED, a, b, a_format="fp6", b_format="fp4", **scales)
    left = a * np.repeat(2.0**exponents_a, SCALE_BLOCK, axis=1)
    right = b * np.repeat(2.0**exponents_b, SCALE_BLOCK, axis=1).T
    np.testing.assert_array_equal(result, (left @ right).astype(np.float32))
    typed = {name: codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu) for name, codes in scales.items()}
    np.testing.assert_array_equal(mfma(SCALED, a, b, a_format="fp6", b_format="fp4", op_sel=(3, 1), **typed), result)


@pytest.mark.parametrize("byte", range(4))
def test_op_sel_picks_the_byte_of_scale_registers(byte):
    a, b = (to_registers(SCALED, operand, 1.0) for operand in "AB")
    scales = u32(0x82818079)  # 2^-6, 2, 4, 8
    result = mfma(SCALED, a, b, scale_a=scales, op_sel=(byte, 0))
    assert from_registers(SCALED, "D", result)[3, 4] == 128 * (1 / 64, 2, 4, 8)[byte]


def test_a_sparse_a_is_stored_elements_with_their_index_or_a_dense_one():
    random, shape = np.random.default_rng(3), matrix_instruction(SPARSE)
    stored, b = random.integers(-4, 5, (16, 32)), random.integers(-4, 5, (64, 16))
    index = np.sort(np.argsort(random.random((16, 16, 4)), axis=-1)[..., :2], axis=-1).reshape(16, 32)
    dense = np.zeros((16, 64), int)
    np.put_along_axis(dense, 4 * (np.arange(32) // 2) + index, stored, axis=1)
    expected = (dense @ b).astype(np.float32)
    np.testing.assert_array_equal(mfma(SPARSE, stored, b, index=index), expected)
    np.testing.assert_array_equal(mfma(SPARSE, dense, b), expected)
    assert shape.index_sets == 2
    for fields in ({"abid": 1}, {"cbsz": 1, "abid": 1}):
        np.testing.assert_array_equal(mfma(SPARSE, stored, b, index=index, **fields), expected)


# ---- bits ------------------------------------------------------------------------------------------------------------


def test_arrays_of_the_operands_type_keep_their_bits():
    payload = np.full((16, 16), NAN_WITH_PAYLOAD, np.uint32).view(np.float32)
    words = to_numpy(to_registers(BF16, "C", payload))
    assert (words == NAN_WITH_PAYLOAD).all()
    assert (from_registers(BF16, "C", to_registers(BF16, "C", payload)).view(np.uint32) == NAN_WITH_PAYLOAD).all()
    halves = np.full((16, 32), 0xFFA5, np.uint16).view(ml_dtypes.bfloat16)
    assert (to_numpy(to_registers(BF16, "A", halves)) == 0xFFA5FFA5).all()
    assert (to_numpy(to_registers(BF16, "A", np.full((16, 32), 0xFFA5), codes=True)) == 0xFFA5FFA5).all()
    assert (to_numpy(to_registers(BF16, "A", np.nan)) == 0x7FC07FC0).all()
    bytes_ = np.full((16, 128), 0xFF, np.uint8).view(ml_dtypes.float8_e4m3fn)
    assert (to_numpy(to_registers(SCALED, "A", bytes_)) == 0xFFFFFFFF).all()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bfloat16", 0xFFA5),
        ("float8_e4m3fn", 0xFF),
        ("float8_e5m2", 0x7D),
        ("float16", 0x7D01),
        ("float32", 0x7FA00001),
    ],
)
def test_tensors_keep_their_bits(name, code):
    torch = pytest.importorskip("torch")
    kind = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}.get(name)
    shapes = {"bf16": "16x16x32", "f16": "16x16x32", "f32": "16x16x4"}
    mnemonic = f"v_mfma_f32_{shapes[kind]}_{kind}" if kind else SCALED
    formats = {"a_format": "bf8"} if name == "float8_e5m2" else {}
    shape = matrix_instruction(mnemonic)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[getattr(torch, name).itemsize]
    signed = code - (1 << 16) if bits is torch.int16 and code >> 15 else code
    tensor = torch.full((shape.m, shape.k), signed, dtype=bits).view(getattr(torch, name))
    held = from_registers(mnemonic, "A", to_registers(mnemonic, "A", tensor, **formats), codes=True, **formats)
    assert (held == code).all()


def test_other_tensors_are_numbers():
    torch = pytest.importorskip("torch")
    a, b = torch.eye(16, 32, dtype=torch.bfloat16), torch.arange(512, dtype=torch.int64).reshape(32, 16) % 5
    np.testing.assert_array_equal(mfma("v_mfma_f32_16x16x32_f16", a, b), b[:16].numpy())
    with pytest.raises(TypeError, match=r"a tensor of torch\.float4_e2m1fn_x2 holds no"):
        mfma(BF16, torch.zeros((16, 16), dtype=torch.uint8).view(torch.float4_e2m1fn_x2), b)


def test_results_keep_the_bits_of_nan():
    assert (mfma(BF16, np.nan, 1.0).view(np.uint32) == 0x7FC00000).all()
    assert (mfma(F64, np.nan, 1.0).view(np.uint64) == F64_NAN).all()
    c = np.full((16, 16), 0x80000000, np.int64)
    zeros = mfma("v_mfma_f32_16x16x4_f32", -0.0, 1, c, codes=True).view(np.uint32)
    assert (zeros == 0x80000000).all()  # 1 is a code too: the smallest subnormal


def test_integers_wrap_or_saturate():
    c = np.full((16, 16), 2**31 - 1, np.int32)
    assert (mfma(I8, 1, 1, c) == -(2**31) + 63).all()
    assert (mfma(I8, 1, 1, c, mode=Mode(fp16_ovfl=True)) == 2**31 - 1).all()
    assert (mfma(I8, 255, 1, codes=True) == -64).all()


# ---- registers -------------------------------------------------------------------------------------------------------


def test_registers_give_registers():
    random = np.random.default_rng(4)
    a, b, c = (random.integers(-3, 4, size) for size in sizes(matrix_instruction(BF16)))
    held = [to_registers(BF16, operand, matrix) for operand, matrix in zip("ABC", (a, b, c), strict=True)]
    result = mfma(BF16, *held)
    assert isinstance(result, B128)
    np.testing.assert_array_equal(from_registers(BF16, "D", result), a @ b + c)
    words = [np.ascontiguousarray(to_numpy(value).T) for value in held]
    as_words = mfma(BF16, *words)
    assert as_words.dtype == np.uint32
    assert as_words.shape == (4, LANES)
    np.testing.assert_array_equal(as_words, to_numpy(result).T)
    np.testing.assert_array_equal(mfma(BF16, *words[:2], c), as_words)
    many = mfma(BF16, np.stack([words[0]] * 3), words[1], words[2])
    np.testing.assert_array_equal(many, np.stack([as_words] * 3))


def test_sparse_registers_come_with_an_index_register():
    random = np.random.default_rng(5)
    stored, b = random.integers(-4, 5, (16, 32)), random.integers(-4, 5, (64, 16))
    index = np.tile([1, 3], (16, 16))
    held = {"A": stored, "B": b, "index": index}
    a_words, b_words, index_words = (to_registers(SPARSE, operand, matrix) for operand, matrix in held.items())
    result = mfma(SPARSE, a_words, b_words, index=index_words)
    np.testing.assert_array_equal(from_registers(SPARSE, "D", result), mfma(SPARSE, stored, b, index=index))
    np.testing.assert_array_equal(from_registers(SPARSE, "index", index_words), index)


@pytest.mark.parametrize("mnemonic", MATRIX_INSTRUCTIONS)
def test_codes_of_every_operand_go_through_registers(mnemonic):
    shape, random = matrix_instruction(mnemonic), np.random.default_rng(6)
    others = ["scaleA", "scaleB"] if shape.has_scales else ["index"] if shape.sparse else []
    for operand in ["A", "B", "C", "D", *others]:
        for form in ("fp8", "fp6", "fp4") if shape.has_formats and operand in "AB" else (None,):
            where = operand_layout(mnemonic, operand, form, form)
            size = (where.blocks, where.rows, where.cols)
            codes = random.integers(0, 1 << where.element_bits, size, np.uint64)
            words = pack(where, codes)
            assert (unpack(where, words) == codes).all()
            block, row, col = (int(random.integers(n)) for n in size)  # an element is where the layout says
            place, held, shift = where.locate(row, col, block), 0, 0
            for piece in place.pieces:
                width = piece.high_bit - piece.low_bit + 1
                held |= (int(words[piece.register, place.lane]) >> piece.low_bit & (1 << width) - 1) << shift
                shift += width
            assert held == codes[block, row, col]


@pytest.mark.parametrize(("operand", "shape"), [("A", (16, 128)), ("B", (128, 16)), ("C", (16, 16))])
def test_registers_and_matrices_are_inverse(operand, shape):
    values = np.random.default_rng(3).choice([-6.0, -1.5, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0], shape)
    registers = to_registers(SCALED, operand, values, "fp4", "fp4")
    np.testing.assert_array_equal(from_registers(SCALED, operand, registers, "fp4", "fp4"), values)


def test_operands_fill_their_registers():
    assert isinstance(to_registers(SCALED, "A", 1.0, "fp6"), B192)
    assert isinstance(to_registers(SCALED, "A", 1.0), B256)
    assert isinstance(instruction("v_mfma_f32_16x16x16_f16")(u64(0), u64(0), [0] * 4), B128)
    narrow, wide = to_registers(SCALED, "A", 1.0, "fp4"), to_registers(SCALED, "A", 1.0)
    scales = from_registers(SCALED, "scaleA", to_registers(SCALED, "scaleA", 130, op_sel=2), op_sel=2)
    assert scales.dtype == np.uint8
    assert (scales == 130).all()
    result = mfma(SCALED, narrow, to_registers(SCALED, "B", 1.0), a_format="fp4")
    assert (from_registers(SCALED, "D", result) == 128).all()
    assert (from_registers(SCALED, "D", mfma(SCALED, wide, wide)) == 128).all()


# ---- models ----------------------------------------------------------------------------------------------------------


def test_a_model_is_a_name_a_model_or_a_file(tmp_path):
    name = "v_mfma_f32_16x16x32_fp8_fp8"
    a, b = np.zeros((16, 32)), np.zeros((32, 16))
    a[0, [0, 1, 2, 3, 16]] = [-448, -0.09375, 0.109375, -0.046875, 448]
    b[[0, 1, 2, 3, 16], 0] = [448, 0.0625, 0.0625, 0.0625, 448]
    model = make_model("other", {"mfma.byte.split": "none"})
    write_model(model, tmp_path / "other.json")
    expected = [("gfx950", -(2.0**-6)), ("cdna3", -(2.0**-6)), ("fma_chain", 0.0), ("exact", -(2.0**-8)), (model, 0.0)]
    for given, value in [*expected, (tmp_path / "other.json", 0.0)]:
        assert mfma(name, a, b, -(2.0**-9), model=given)[0, 0] == value
    with using("exact"):
        assert mfma(name, a, b, -(2.0**-9))[0, 0] == -(2.0**-8)
        assert mfma(name, a, b, -(2.0**-9), model="gfx950")[0, 0] == -(2.0**-6)


def test_a_model_that_is_not_there():
    with pytest.raises(ValueError, match="there is no model 'cdna9'; named ones: gfx950"):
        mfma(BF16, 1, 1, model="cdna9")


# ---- errors ----------------------------------------------------------------------------------------------------------

ONES = np.ones((16, 32))
REFUSED = [
    (lambda: mfma("v_mfma_f32_16x16x32_bf61", 0, 0), ValueError, "is not a matrix instruction of gfx950; nearest"),
    (lambda: mfma(BF16, np.zeros((3, 3)), 0), ValueError, f"A of {BF16} has shape (16, 32), got an array of (3, 3)"),
    (lambda: mfma(BLOCKS, 0, np.zeros((2, 4, 4))), ValueError, f"B of {BLOCKS} has shape (16, 4, 4), got"),
    (lambda: mfma(BF16, 0, 0, np.zeros((3, 16, 32))), ValueError, f"C of {BF16} has shape (16, 16), got an array of"),
    (lambda: mfma(BF16, ["x"] * 32, 0), TypeError, f"A of {BF16}: bf16 takes numbers of at most 64 bits, got <U1"),
    (lambda: mfma(BF16, 1j, 0), TypeError, "bf16 takes numbers of at most 64 bits, got complex128"),
    (lambda: mfma(BF16, 0, 70000, codes=True), ValueError, f"B of {BF16}: code 70000 at index () is outside 0..65535"),
    (lambda: mfma(BF16, 0, -1, codes=True), ValueError, "code -1 at index () is outside 0..65535 of bf16"),
    (lambda: mfma(BF16, 0, 2**60), ValueError, "integers up to 2^53 as numbers; with codes=True integers are codes"),
    (lambda: mfma(I8, 200, 0), ValueError, f"A of {I8}: number 200 at index () is outside -128..127 of i8; with codes"),
    (lambda: mfma(I8, 0.5, 0), TypeError, f"A of {I8}: i8 takes integers, got float64"),
    (lambda: mfma(I8, 0, 0, 2**31), ValueError, f"C of {I8}: number 2147483648 at index () is outside -2147483648.."),
    (
        lambda: mfma(SPARSE, np.ones((16, 64)), 0),
        ValueError,
        "row 0 of A has 4 elements that are not zero among k = 0",
    ),
    (lambda: mfma(SPARSE, np.ones((16, 32)), 0), ValueError, "without index= is dense and has shape (16, 64), got an"),
    (lambda: mfma(SPARSE, 1, 0, index=4), ValueError, f"index of {SPARSE}: code 4 at index () is outside 0..3"),
    (lambda: mfma(SPARSE, 1, 0, index=0.5), TypeError, "index takes integer codes, got float64"),
    (lambda: mfma(SPARSE, 1, 0, index=0, blgp=1), ValueError, f"{SPARSE} has no blgp to set: drop blgp=1"),
    (lambda: mfma(SPARSE, 1, 0, index=0, abid=2), ValueError, f"the index of {SPARSE} has 2 set(s), counted from 0"),
    (lambda: mfma(SPARSE, B128([u32(0)] * 4), B256([u32(0)] * 8)), ValueError, "A as registers holds stored elements"),
    (lambda: mfma(BF16, 0, 0, index=0), ValueError, f"{BF16} is not sparse: drop index="),
    (lambda: mfma(BF16, 0, 0, scale_a=127), ValueError, f"{BF16} is not scaled: drop scale_a="),
    (lambda: mfma(BF16, 0, 0, op_sel=(1, 0)), ValueError, f"{BF16} takes no scales, so it has no scale byte to pick"),
    (
        lambda: mfma(BF16, 0, 0, a_format="fp8"),
        ValueError,
        f"{BF16} fixes its formats: drop the format 'fp8' given",
    ),
    (lambda: mfma(SCALED, 0, 0, b_format="f16"), ValueError, "'f16' is no format of B; formats are fp8, bf8, fp6, bf6"),
    (lambda: mfma(SCALED, 0, 0, cbsz=1), ValueError, "has no cbsz to set; its formats are a_format and b_format: drop"),
    (lambda: mfma(SCALED, 0, 0, scale_b=1.0), TypeError, "scale takes integer codes (E8M0: 127 is 1.0), got float64"),
    (
        lambda: mfma(SCALED, 0, 0, scale_b=256),
        ValueError,
        f"scaleB of {SCALED}: code 256 at index () is outside 0",
    ),
    (lambda: mfma(SCALED, 0, 0, scale_a=np.zeros((4, 16), int)), ValueError, "scaleA of v_mfma_scale_f32_16x16x128_f8"),
    (lambda: mfma(SCALED, 0, 0, op_sel=(4, 0)), ValueError, "op_sel 4 picks no byte of a 32-bit scale register"),
    (
        lambda: mfma(BF16, B128([u32(0)] * 4), ONES.T),
        TypeError,
        f"A of {BF16} is registers and B is not: give both",
    ),
    (lambda: mfma(BF16, u32(0), B128([u32(0)] * 4)), ValueError, f"A of {BF16} has 4 registers, got 1"),
    (lambda: mfma(BF16, B256([u32(0)] * 8), B128([u32(0)] * 4)), ValueError, f"A of {BF16} has 4 registers, got 8"),
    (lambda: from_registers(BF16, "D", u32(0)), ValueError, f"D of {BF16} has 4 registers, got 1"),
    (
        lambda: from_registers(BF16, "D", np.zeros((4, 64))),
        ValueError,
        "as registers is uint32 of (4, 64), got floa",
    ),
    (lambda: from_registers(BF16, "index", u32(0)), ValueError, "has no operand 'index'"),
    (
        lambda: to_registers(BF16, "A", np.zeros((2, 16, 32))),
        ValueError,
        "one instruction's A has no more dimensions",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED, ids=[text[:40] for _, _, text in REFUSED])
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


# ---- hostile arrays and fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mnemonic", "dtype"), [
    ("v_mfma_f32_16x16x32_f16", "f2"), ("v_mfma_f32_16x16x4_f32", "f4"), ("v_mfma_f64_16x16x4_f64", "f8"),
])  # fmt: skip
def test_arrays_of_the_other_byte_order_are_the_same_numbers(mnemonic, dtype):
    shape = matrix_instruction(mnemonic)
    a = (np.arange(shape.m * shape.k).reshape(shape.m, shape.k) % 13 - 5).astype(f"<{dtype}")
    b = (np.arange(shape.k * shape.n).reshape(shape.k, shape.n) % 7 - 2).astype(f"<{dtype}")
    c = np.arange(shape.m * shape.n).reshape(shape.m, shape.n).astype("<f8" if dtype == "f8" else "<f4")
    swapped = [array.astype(array.dtype.newbyteorder(">")) for array in (a, b, c)]
    np.testing.assert_array_equal(mfma(mnemonic, *swapped), a.astype(float) @ b + c)


def test_integers_codes_and_registers_of_the_other_byte_order():
    ones = np.ones((16, 64), np.int8)
    c = np.arange(256, dtype=">i4").reshape(16, 16)
    np.testing.assert_array_equal(mfma("v_mfma_i32_16x16x64_i8", ones, ones.T, c), 64 + np.arange(256).reshape(16, 16))
    name = "v_mfma_f32_16x16x32_bf16"
    words = np.arange(256, dtype=np.uint32).reshape(4, 64) << 16
    np.testing.assert_array_equal(mfma(name, words.astype(">u4"), words), mfma(name, words, words))
    np.testing.assert_array_equal(from_registers(name, "A", words.astype(">u4")), from_registers(name, "A", words))
    np.testing.assert_array_equal(to_numpy(f32(np.array([1.5], ">f4"))), 1.5)


def test_strided_read_only_and_empty_arrays():
    name = "v_mfma_f32_16x16x32_bf16"
    a = np.arange(32 * 64).reshape(32, 64)[::-2, ::2] % 5
    a.flags.writeable = False
    np.testing.assert_array_equal(mfma(name, a, np.eye(32, 16)), a[:, :16])
    assert mfma(name, np.zeros((0, 16, 32)), np.zeros((32, 16))).shape == (0, 16, 16)


BF16, SPARSE, SCALED = "v_mfma_f32_16x16x32_bf16", "v_smfmac_f32_16x16x64_f16", "v_mfma_scale_f32_16x16x128_f8f6f4"


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: mfma(BF16, np.zeros((2, 16, 32)), np.zeros((3, 32, 16))), ValueError, r"in front.*A \(2,\), B \(3,\)"),
    (lambda: mfma(BF16, np.zeros((16, 32), [("x", "f4")]), 0), TypeError, "A of .* takes numbers"),
    (lambda: mfma(BF16, 0, 0, cbsz=-1), ValueError, "cbsz=-1 does not fit the encoding; give 0 to 7"),
    (lambda: mfma(BF16, 0, 0, cbsz=10**30), ValueError, "give 0 to 7"),
    (lambda: mfma(SPARSE, 0, 0, cbsz=99), ValueError, "cbsz=99 does not fit"),
    (lambda: mfma(SPARSE, 0, 0, abid=1.5), TypeError, "abid is a whole number, got 1.5"),
    (lambda: mfma("v_mfma_f64_16x16x4_f64", 0, 0, blgp=8), ValueError, "blgp=8 does not fit"),
    (lambda: mfma(SCALED, 0, 0, op_sel=(1,)), TypeError, r"op_sel is a pair of whole numbers.*got \(1,\)"),
    (lambda: mfma(SCALED, 0, 0, op_sel=(0, 1, 2)), TypeError, "op_sel is a pair"),
    (lambda: mfma(SCALED, 0, 0, op_sel=None), TypeError, "op_sel is a pair"),
    (lambda: mfma(BF16, 0, 0, mode={}), TypeError, "mode= takes gfx950.lanes.Mode.*got dict"),
    (lambda: instruction("v_add_f32")(1.0, 2.0, mode=3), TypeError, "v_add_f32: mode= takes .*got int"),
    (lambda: from_registers(BF16, "A", [1]), TypeError, r"A of .* uint32 \(4, 64\), got list"),
    (lambda: mfma(SPARSE, 0, 0, index=np.nan), TypeError, "index takes integer codes, got float64"),
])  # fmt: skip
def test_hostile_fields_are_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_tensors_without_elements_in_memory_are_refused():
    torch = pytest.importorskip("torch")
    for tensor in (torch.eye(16, 32).to_sparse(), torch.ones((16, 32), device="meta", dtype=torch.bfloat16)):
        with pytest.raises(TypeError, match=r"A of .*dense and on the CPU.*tensor.to_dense\(\).cpu\(\)"):
            mfma(BF16, tensor, 0)
    conjugate = torch.full((16, 32), 1 + 2j).conj()
    with pytest.raises(TypeError, match=r"A of .* takes numbers .*complex64"):
        mfma(BF16, conjugate, 0)
    assert mfma(BF16, conjugate.imag, np.eye(32, 16))[0, 0] == -2
