"""Matrix arithmetic of one dense product: codes, natives against the plain rule, scales and specials, errors.

Models and every answer of a switch are in test_mfma_models.py, the published model of CDNA3 in test_mmasim.py, the
places of elements in isa/test_matrix_layouts.py.
"""

import dataclasses
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from gfx950.arithmetic.mfma import (
    FIELD_BITS,
    Format,
    GroupOrder,
    GroupRule,
    MfmaModel,
    Operand,
    ScaleEntry,
    evaluate,
    multiply,
    pack_parameters,
)
from gfx950.arithmetic.mfma_evidence import BROADCAST_RULES, rules_of
from gfx950.arithmetic.mfma_shapes import SHAPES as ALL_SHAPES
from gfx950.arithmetic.mfma_shapes import kind_of
from gfx950.arithmetic.native import NATIVES
from gfx950.evidence import LEDGER, Evidence

NAN = 0x7FC00000
# One dense product of floats of at most 16 bits; the others have tests of their own (test_mfma_shapes.py).
SHAPES = {
    name: shape
    for name, shape in ALL_SHAPES.items()
    if kind_of(name) in ("f8f6f4", "f8", "f16") and shape.copies == 1 and not shape.sparse
}
F8F6F4 = [Format(code) for code in range(5)]
DTYPES = {
    Format.fp8: ml_dtypes.float8_e4m3fn,
    Format.bf8: ml_dtypes.float8_e5m2,
    Format.fp6: ml_dtypes.float6_e2m3fn,
    Format.bf6: ml_dtypes.float6_e3m2fn,
    Format.fp4: ml_dtypes.float4_e2m1fn,
    Format.f16: np.float16,
    Format.bf16: ml_dtypes.bfloat16,
}


def f32_bits(value):
    return int(np.float32(value).view(np.uint32))


def values_of(codes, format_):
    """float64 values of element codes, by another library."""
    raw = codes.astype(np.uint16 if FIELD_BITS[format_] == 16 else np.uint8)
    with np.errstate(invalid="ignore"):  # signalling NaN
        return raw.view(DTYPES[format_]).astype(np.float64)


def code_of(value, format_):
    return int(np.array(value, DTYPES[format_]).view(np.uint16 if FIELD_BITS[format_] == 16 else np.uint8))


def formats_of(name):
    if "f8f6f4" in name:
        return [(a, b) for a in F8F6F4 for b in F8F6F4]
    if name.endswith("_f8"):
        return [(a, b) for a in F8F6F4[:2] for b in F8F6F4[:2]]
    return [(Format.f16, Format.f16), (Format.bf16, Format.bf16)]


def k_by_table(name, format_, lane, item):
    """k of a lane's element, from the published table of layouts."""
    shape = SHAPES[name]
    g = lane // shape.rows
    if name == "mfma_f8f6f4_16x16x128":
        return 64 * (item // 16) + 16 * g + item % 16 if FIELD_BITS[format_] == 8 else 32 * g + item
    if name == "mfma_f8f6f4_32x32x64":
        return 32 * (item // 16) + 16 * g + item % 16 if FIELD_BITS[format_] == 8 else 32 * g + item
    return {4: 4, 8: 8}[shape.lane_items] * g + item


def pack_operand(name, codes, format_):
    """Registers of an operand from its codes (rows, K), bit by bit."""
    shape, bits = SHAPES[name], FIELD_BITS[format_]
    registers = [[0] * 64 for _ in range(shape.operand_registers)]
    for lane in range(64):
        packed = 0
        for item in range(shape.lane_items):
            packed |= int(codes[lane % shape.rows, k_by_table(name, format_, lane, item)]) << (bits * item)
        for r in range(shape.operand_registers):
            registers[r][lane] = packed >> (32 * r) & 0xFFFFFFFF
    return np.array(registers, np.uint32)


def pack_c(name, c):
    rows = SHAPES[name].rows
    registers = np.zeros((SHAPES[name].c_registers, 64), np.uint32)
    for r in range(len(registers)):
        for lane in range(64):
            row = 4 * (lane // 16) + r if rows == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
            registers[r, lane] = c[row, lane % rows]
    return registers


def pack_scales(scales, byte):
    register = np.full(64, 0xA5A5A5A5, np.uint32)
    rows, blocks = scales.shape
    for block in range(blocks):
        for row in range(rows):
            lane = rows * block + row
            register[lane] = register[lane] & ~np.uint32(255 << 8 * byte) | np.uint32(
                int(scales[row, block]) << 8 * byte
            )
    return register[None]


def registers_of(name, a, b, c, scales=None):
    parts = [pack_operand(name, a.codes, a.format), pack_operand(name, b.codes, b.format), pack_c(name, c)]
    if SHAPES[name].blocks:
        a_scales, b_scales = scales if scales else (np.full((SHAPES[name].rows, SHAPES[name].blocks), 9),) * 2
        parts += [pack_scales(a_scales, 0), pack_scales(b_scales, 0)]
    return np.concatenate(parts)


def random_codes(random, size, format_):
    """Finite ones."""
    codes = random.integers(0, 1 << FIELD_BITS[format_], size).astype(np.uint16)
    finite = np.isfinite(values_of(codes, format_))
    return np.where(finite, codes, codes ^ (1 << DTYPE_MANTISSA[format_])).astype(np.uint16)


DTYPE_MANTISSA = {
    Format.fp8: 0,
    Format.bf8: 2,
    Format.fp6: 0,
    Format.bf6: 0,
    Format.fp4: 0,
    Format.f16: 10,
    Format.bf16: 7,
}


def random_c(random, size, mode):
    bits = random.integers(0, 2**32, size, dtype=np.uint32)
    if mode == 1:  # near the products
        bits = bits & 0x807FFFFF | random.integers(90, 160, size, dtype=np.uint32) << 23
    if mode == 2:  # subnormal or just above
        bits &= 0x80FFFFFF
    if mode == 3:
        bits &= 0x80000000
    return bits


# ---- Codes ----


@pytest.mark.parametrize("format_", list(DTYPES))
def test_every_code_is_decoded_as_ml_dtypes_does(format_):
    codes = np.arange(1 << FIELD_BITS[format_]).astype(np.uint16)
    if format_ in (Format.f16, Format.bf16):
        codes = np.ascontiguousarray(codes[::7])
    one = np.array([[code_of(1.0, format_)]], np.uint16)
    d = multiply(Operand(codes[:, None], format_), Operand(one, format_), np.zeros((len(codes), 1), np.uint32))[:, 0]
    with np.errstate(invalid="ignore"):
        values = values_of(codes, format_).astype(np.float32)
    want = np.where(np.isnan(values), np.uint32(NAN), values.view(np.uint32))
    want[want == 0x80000000] = 0
    np.testing.assert_array_equal(d, want)


# ---- The fast natives and the plain rule ----


def random_registers(random, name, formats, mode):
    """Raw registers. mode 0: all raw; 1 to 3: finite operands, with C as in random_c; 4: also mostly zeros; 5: few
    specials."""
    native, shape = NATIVES[name], SHAPES[name]
    inputs = random.integers(0, 2**32, (native.n_in, 64), dtype=np.uint32)
    n = shape.operand_registers
    for first, format_ in ((0, formats[0]), (n, formats[1])):
        if mode and FIELD_BITS[format_] in (8, 16):
            words = inputs[first : first + n].copy().view(np.uint8 if FIELD_BITS[format_] == 8 else np.uint16)
            keep = np.isfinite(values_of(words, format_))
            if mode == 5:
                keep |= random.random(keep.shape) < 0.2
            words[~keep] ^= np.array(1 << DTYPE_MANTISSA[format_], words.dtype)
            inputs[first : first + n] = words.view(np.uint32)
    if mode == 4:
        inputs[: 2 * n][random.random((2 * n, 64)) < 0.8] = 0
    c = slice(2 * n, 2 * n + shape.c_registers)
    inputs[c] = random_c(random, inputs[c].shape, mode if mode < 4 else 1)
    if shape.blocks and mode % 2:
        inputs[-2:] = inputs[-2:] & 0x0F0F0F0F | random.choice([0x70707070, 0x30303030, 0xB0B0B0B0, 0x10101010])
    return inputs


def _fast_against_plain(name, formats, seed):
    random = np.random.default_rng(seed)
    mode = seed % 6
    inputs = random_registers(random, name, formats, mode)
    options = {"scaled": bool(random.integers(2)) and SHAPES[name].blocks > 0, "clamp": bool(random.integers(2))}
    parameters = pack_parameters(*formats, scale_byte_a=seed % 4, scale_byte_b=seed // 4 % 4, **options)
    np.testing.assert_array_equal(
        NATIVES[name](inputs, parameters), evaluate(name, inputs, parameters), err_msg=f"{formats} seed {seed}"
    )


@pytest.mark.parametrize("name", SHAPES)
def test_the_fast_natives_follow_the_plain_rule(name):
    for formats in formats_of(name):
        for seed in range(12):
            _fast_against_plain(name, formats, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_the_fast_natives_follow_the_plain_rule_at_length(name):
    for formats in formats_of(name):
        for seed in range(1000, 1600):
            _fast_against_plain(name, formats, seed)


@pytest.mark.parametrize(
    ("name", "code"),
    [("mfma_f8f6f4_16x16x128", 7), ("mfma_f8f6f4_32x32x64", 5), ("mfma_16x16x32_f8", 4)],
)
def test_an_undefined_format_code_is_read_as_fp8(name, code):
    random = np.random.default_rng(8)
    inputs = random_registers(random, name, (Format.fp8, Format.bf8), 1)
    np.testing.assert_array_equal(NATIVES[name](inputs, code | 1 << 3), NATIVES[name](inputs, pack_parameters(0, 1)))


def test_a_native_takes_any_leading_dimensions():
    name = "mfma_16x16x32_f8"
    native, random = NATIVES[name], np.random.default_rng(0)
    inputs = random.integers(0, 2**32, (2, 3, native.n_in, 64), dtype=np.uint32)
    outputs = native(inputs, pack_parameters(Format.bf8, Format.fp8))
    assert outputs.shape == (2, 3, 4, 64)
    np.testing.assert_array_equal(outputs[1, 2], native(inputs[1, 2], pack_parameters(Format.bf8, Format.fp8)))
    assert native(inputs[:0], 0).shape == (0, 3, 4, 64)


# ---- Scales ----


@pytest.mark.parametrize("name", [name for name in SHAPES if SHAPES[name].blocks])
def test_a_nan_scale_poisons_its_row_or_column_even_over_zeros(name):
    shape = SHAPES[name]
    zeros = Operand(np.zeros((shape.rows, shape.depth), np.uint16), Format.fp4)
    scales = [np.full((shape.rows, shape.blocks), 127) for _ in range(2)]
    scales[0][5, shape.blocks - 1] = scales[1][9, 0] = 255
    inputs = registers_of(name, zeros, zeros, np.zeros((shape.rows, shape.rows), np.uint32), scales)
    want = np.zeros((shape.rows, shape.rows), np.uint32)
    want[5, :] = want[:, 9] = NAN
    np.testing.assert_array_equal(NATIVES[name](inputs, pack_parameters(4, 4, scaled=True)), pack_c(name, want))
    np.testing.assert_array_equal(NATIVES[name](inputs, pack_parameters(4, 4)), 0)


@pytest.mark.parametrize(
    ("scale", "clamp", "want"),
    [
        ((254, 129), False, 0x7F800000),
        ((254, 129), True, 0x7F7FFFFF),
        ((254, 126), False, 0x7E800000),
        ((0, 105), False, 1),
        ((0, 104), False, 0),
    ],
)
def test_scales_reach_overflow_and_subnormal_results(scale, clamp, want):
    one = np.zeros((16, 128), np.uint16)
    one[:, 0] = code_of(1.0, Format.fp8)
    scales = [np.full((16, 4), byte) for byte in scale]
    operand = Operand(one, Format.fp8)
    inputs = registers_of("mfma_f8f6f4_16x16x128", operand, operand, np.zeros((16, 16), np.uint32), scales)
    outputs = NATIVES["mfma_f8f6f4_16x16x128"](inputs, pack_parameters(0, 0, scaled=True, clamp=clamp))
    np.testing.assert_array_equal(outputs, want)


# ---- Specials ----


def one_product(format_, a, b, c):
    codes = [np.zeros((16, 16 if FIELD_BITS[format_] == 16 else 32), np.uint16) for _ in range(2)]
    for x, pairs in zip(codes, (a, b), strict=True):
        for k, value in enumerate(pairs):
            x[:, k] = value if isinstance(value, int) else code_of(value, format_)
    name = "mfma_16x16x16_f16" if FIELD_BITS[format_] == 16 else "mfma_16x16x32_f8"
    c_bits = np.full((16, 16), c if isinstance(c, int) else f32_bits(c), np.uint32)
    inputs = registers_of(name, Operand(codes[0], format_), Operand(codes[1], format_), c_bits)
    result = NATIVES[name](inputs, pack_parameters(format_, format_))
    assert (result == result[0, 0]).all()
    return int(result[0, 0])


INF = float("inf")


@pytest.mark.parametrize("format_", [Format.f16, Format.bf16, Format.bf8])
@pytest.mark.parametrize(
    ("a", "b", "c", "want"),
    [
        ([INF], [1.0], 0.0, 0x7F800000),
        ([INF], [-1.0], 5.0, 0xFF800000),
        ([INF], [0.0], 5.0, NAN),
        ([INF, INF], [1.0, -1.0], 0.0, NAN),
        ([INF], [1.0], 0xFF800000, NAN),
        ([INF], [1.0], 0x7F800000, 0x7F800000),
        ([0.0], [0.0], 0x7F800000, 0x7F800000),
        ([1.0], [1.0], 0xFF800000, 0xFF800000),
        ([float("nan")], [0.0], 1.0, NAN),
        ([1.0], [1.0], 0x7F800001, NAN),
        ([1.0], [1.0], 0xFFC12345, NAN),
        ([0.0], [0.0], 0x80000000, 0),
        ([-0.0], [1.0], 0x80000000, 0),
        ([1.0, -1.0], [1.0, 1.0], 0x80000000, 0),
        ([0.0], [0.0], 0x80000001, 0x80000001),
        ([0.0], [0.0], 0x007FFFFF, 0x007FFFFF),
    ],
)
def test_specials(format_, a, b, c, want):
    assert one_product(format_, a, b, c) == want


def test_half_subnormals_are_kept():
    assert one_product(Format.f16, [1], [1.0], 0.0) == f32_bits(2.0**-24)
    assert one_product(Format.f16, [0x8001], [0x0001], 0.0) == f32_bits(-(2.0**-48))
    assert one_product(Format.bf16, [0x0001], [1.0], 0.0) == f32_bits(2.0**-133)


def test_a_bf16_product_of_2_to_the_128_is_inf_before_the_sum():
    big = 2.0**64
    assert one_product(Format.bf16, [big, -big], [big, big], 0.0) == NAN
    assert one_product(Format.bf16, [big, -big / 4], [big, big], 0.0) == 0x7F800000
    assert one_product(Format.bf16, [1.5 * 2.0**63, -1.5 * 2.0**63], [1.5 * 2.0**64, 1.5 * 2.0**64], 0.0) == NAN
    assert one_product(Format.bf16, [1.25 * 2.0**63, -1.25 * 2.0**63], [1.25 * 2.0**64, 1.25 * 2.0**64], 0.0) == 0


def test_an_overflow_meets_the_inf_of_a_later_group_and_not_of_an_earlier_one():
    big, gap = 2.0**63, [0.0] * 4
    assert one_product(Format.bf16, [big] * 4 + gap + [INF], [big] * 4 + gap + [-1.0], 0.0) == NAN
    assert one_product(Format.bf16, [big, *[0.0] * 7, INF], [big, *[0.0] * 7, -1.0], 0.0) == 0xFF800000
    assert one_product(Format.bf16, [INF, *[0.0] * 7, *[big] * 4], [-1.0, *[0.0] * 7, *[big] * 4], 0.0) == 0xFF800000


# ---- Questions of all classes: each makes a difference where it should ----


def test_block_sums_and_product_exponents_differ_where_c_cancels():
    random = np.random.default_rng(6)
    model = MfmaModel(scale_entry=ScaleEntry.block_sum)
    a, b = (
        Operand(
            random_codes(random, (8, 64), Format.fp8), Format.fp8, random.integers(117, 137, (8, 2)).astype(np.uint8)
        )
        for _ in range(2)
    )
    c = random_c(random, (8, 8), 1)
    assert (multiply(a, b, c) != multiply(a, b, c, model)).any()
    ones = np.full((8, 64), code_of(1.0, Format.fp8), np.uint16)
    exact = [Operand(ones, Format.fp8, x.scales % 4 + np.uint8(126)) for x in (a, b)]
    zero = np.zeros((8, 8), np.uint32)
    np.testing.assert_array_equal(multiply(*exact, zero), multiply(*exact, zero, model))


def test_the_group_order_matters_for_8_bit_operands_only():
    name, random = "mfma_f8f6f4_16x16x128", np.random.default_rng(7)
    model = MfmaModel(group_order=GroupOrder.physical)
    for format_, same in ((Format.fp8, False), (Format.fp4, True)):
        inputs = random_registers(random, name, (format_, format_), 1)
        parameters = pack_parameters(format_, format_)
        assert (evaluate(name, inputs, parameters, model) == evaluate(name, inputs, parameters)).all() == same


# ---- Errors, evidence, cost ----


def test_errors_say_what_was_wrong():
    native = NATIVES["mfma_16x16x32_f8"]
    with pytest.raises(TypeError, match="takes uint32 registers, got float32"):
        native(np.zeros((8, 64), np.float32))
    with pytest.raises(ValueError, match=r"takes inputs of shape \(..., 8, 64\), got \(7, 64\)"):
        native(np.zeros((7, 64), np.uint32))
    with pytest.raises(ValueError, match="no MFMA native 'x'"):
        evaluate("x", np.zeros((8, 64), np.uint32), 0)
    with pytest.raises(ValueError, match="does not multiply"):
        evaluate("mfma_16x16x32_f8", np.zeros((8, 64), np.uint32), pack_parameters(4, 4))
    with pytest.raises(ValueError, match="FNUZ is not a gfx950 format"):
        pack_parameters(Format.fp8_fnuz, Format.fp8)
    with pytest.raises(ValueError, match="scale bytes 4, 0"):
        pack_parameters(0, 0, scale_byte_a=4)
    with pytest.raises(ValueError, match=r"byte.length 3 is not a power of two"):
        MfmaModel(byte=GroupRule(3))
    with pytest.raises(ValueError, match="dot_bits <= 40"):
        MfmaModel(half=GroupRule(8, dot_bits=50))
    with pytest.raises(ValueError, match="sum_bits 3"):
        MfmaModel(small=GroupRule(8, sum_bits=3))
    with pytest.raises(ValueError, match="no f32 NaN"):
        MfmaModel(nan_bits=0x7F800000)
    narrow = Operand(np.zeros((1, 20), np.uint16), Format.fp8)
    with pytest.raises(ValueError, match="K = 20 is no multiple"):
        multiply(narrow, narrow, np.zeros((1, 1), np.uint32))
    with pytest.raises(ValueError, match="one operand has scales"):
        multiply(narrow, dataclasses.replace(narrow, scales=np.zeros((1, 1), np.uint8)), np.zeros((1, 1), np.uint32))
    with pytest.raises(ValueError, match="do not fit together"):
        multiply(narrow, narrow, np.zeros((2, 1), np.uint32))


def test_the_ledger_claims_no_measurement_on_gfx950():
    rules = [rule for name in ALL_SHAPES for rule in rules_of(name)] + list(BROADCAST_RULES)
    assert {rule.name for rule in rules} <= set(LEDGER)
    assert all(rule.evidence is not Evidence.measured for rule in rules)
    assert LEDGER["mfma.nan_bits"].evidence is LEDGER["mfma.scale_entry"].evidence is Evidence.chosen


_PROBE = """
import sys
from gfx950.arithmetic.mfma import NATIVES
assert NATIVES["mfma_16x16x32_f8"].address
print("numba" in sys.modules)
"""


def test_importing_is_light_and_the_next_process_finds_the_compiled_code():
    NATIVES["mfma_16x16x32_f8"].address  # noqa: B018
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
