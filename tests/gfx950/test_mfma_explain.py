"""Explanations of matrix results: their bits are those of the instruction under every model, and their text is a
table."""

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest

from emu import mfma
from gfx950.arithmetic.mfma_explain import F32, Group, Output, cut, decode, explain
from gfx950.arithmetic.mfma_explain_text import binary
from gfx950.arithmetic.mfma_switches import CLASS_SWITCHES, QUESTIONS, Direction
from gfx950.lanes import Mode
from gfx950.layouts import FORMAT_BITS, matrix_instruction
from gfx950.matrix_elements import element_kind
from gfx950.models import make_model

CLASS_OF = {
    "v_mfma_f32_16x16x16_f16": "half",
    "v_mfma_f32_32x32x8_bf16": "half",
    "v_mfma_f32_4x4x4_16b_bf16": "half",
    "v_smfmac_f32_16x16x32_bf16": "half",
    "v_mfma_f32_16x16x32_bf16": "half_deep",
    "v_mfma_f32_32x32x16_f16": "half_deep",
    "v_smfmac_f32_16x16x64_f16": "half_deep",
    "v_mfma_f32_16x16x32_fp8_bf8": "byte",
    "v_mfma_f32_32x32x16_bf8_bf8": "byte",
    "v_smfmac_f32_32x32x32_bf8_fp8": "byte",
    "v_smfmac_f32_16x16x128_fp8_fp8": "byte_deep",
    "v_mfma_f32_16x16x128_f8f6f4": "byte_deep",
    "v_mfma_scale_f32_16x16x128_f8f6f4": "byte_deep",
    "v_mfma_scale_f32_32x32x64_f8f6f4": "byte_deep",
    "v_mfma_f32_16x16x4_f32": "f32",
    "v_mfma_f32_32x32x1_2b_f32": "f32",
    "v_mfma_f64_16x16x4_f64": "f64",
    "v_mfma_f64_4x4x4_4b_f64": "f64",
    "v_mfma_i32_16x16x64_i8": "i8",
    "v_smfmac_i32_32x32x64_i8": "i8",
}
SMALL = ("fp6", "bf6", "fp4")


def random_codes(random, kind, shape, center, spread, special):
    """Codes whose exponents lie near each other, some of them zeros, subnormals, infinities or NaN."""
    if kind.form is None and kind.name != "f64":
        return random.integers(0, 1 << kind.bits, shape, np.uint64)
    mantissa_bits = kind.form.mantissa_bits if kind.form else 52
    exponent_bits = kind.bits - 1 - mantissa_bits
    bias = (1 << exponent_bits - 1) - 1
    low, high = bias + center - spread, bias + center + spread
    fields = np.clip(random.integers(low, high + 1, shape), 0, (1 << exponent_bits) - 2).astype(np.uint64)
    mantissas = random.integers(0, 1 << mantissa_bits, shape, np.uint64)
    zeros = int(random.integers(mantissa_bits))  # at the end
    mantissas = mantissas >> np.uint64(zeros) << np.uint64(zeros)
    signs = random.integers(0, 2, shape, np.uint64)
    codes = signs << np.uint64(kind.bits - 1) | fields << np.uint64(mantissa_bits) | mantissas
    chosen = random.random(shape)
    codes = np.where(chosen < 0.08, codes & np.uint64((1 << mantissa_bits) - 1 | 1 << kind.bits - 1), codes)
    codes = np.where(chosen < 0.04, codes & np.uint64(1 << kind.bits - 1), codes)
    whole = (1 << exponent_bits) - 1 << mantissa_bits
    infinite = (signs << np.uint64(kind.bits - 1)) | np.uint64(whole)
    codes = np.where(random.random(shape) < special, infinite, codes)
    return np.where(random.random(shape) < special / 2, codes | np.uint64(whole | 1), codes)


def random_operands(random, mnemonic):
    """A, B, C as codes, and what else the instruction takes."""
    shape, others = matrix_instruction(mnemonic), {}
    formats = {}
    if shape.has_formats:
        formats = {f"{o}_format": str(random.choice([*FORMAT_BITS, *SMALL])) for o in "ab"}
    blocks = (shape.blocks,) if shape.blocks > 1 else ()
    depth = shape.k // 2 if shape.sparse else shape.k
    special = random.choice([0, 0, 0, 0.01, 0.2])
    together = int(random.choice([-65, -60, 0, 63, 64]))
    spread = int(random.choice([0, 2, 5, 40]))
    sizes = {"A": (shape.m, depth), "B": (shape.k, shape.n), "C": (shape.m, shape.n)}
    found = []
    for operand, size in sizes.items():
        kind = element_kind(mnemonic, operand, *formats.values())
        extreme = operand != "C" and kind.name in ("bf16", "f32", "f64")
        center = together if extreme else int(random.integers(-6, 7))
        center = int(random.choice([-126, -126, -30, -12, 0, 12, 30, 127])) if operand == "C" else center
        wide = 12 if operand == "C" else spread
        found.append(random_codes(random, kind, (*blocks, *size), center, wide, special))
    if shape.has_scales:
        middle = int(random.choice([58, 64, 100, 127, 127, 190]))
        for name, lines in (("scale_a", shape.m), ("scale_b", shape.n)):
            scales = random.integers(middle - 4, middle + 5, (lines, shape.k // 32))
            others[name] = np.where(random.random(scales.shape) < special, 255, scales)
    if shape.sparse:
        others["index"] = random.integers(0, 4, (shape.m, depth))
    set_apart(random, shape, *found, [element_kind(mnemonic, o, *formats.values()).bits for o in "ABC"])
    return found, formats | others


def set_apart(random, shape, a, b, c, bits):
    """Sometimes products that cancel each other, so that C and what was cut decide; sometimes zeros of one sign."""
    signs = [np.uint64(1 << width - 1) for width in bits]
    chance = random.random()
    if chance < 0.3 and shape.k >= 4 and not shape.sparse:
        a[..., 2::4], b[..., 2::4, :] = a[..., ::4] ^ signs[0], b[..., ::4, :]
        a[..., 3::4], b[..., 3::4, :] = a[..., 1::4] ^ signs[0], b[..., 1::4, :]
    elif chance < 0.45:
        a[...] &= signs[0]
        b[...] &= signs[1] - np.uint64(1)
        a[...] |= signs[0] * np.uint64(random.integers(2))
        c[...] = random.choice([0, int(signs[2]), int(signs[2])], c.shape)


def random_model(random, used):
    """A model with random answers to some of the switches that matter to a class."""
    switches = [switch for switch, _ in QUESTIONS.values()]
    for class_ in used:
        switches += list(CLASS_SWITCHES.get(class_, {}).values())
    values = {}
    share = random.choice([0.1, 0.5, 1.0])
    for switch in switches:
        if random.random() < share:
            values[switch.name] = switch.answers[random.integers(len(switch.answers))]
    return make_model("random", values)


def agree(random, mnemonic, model, elements):
    """Random operands: `elements` of D are explained as the instruction has them."""
    (a, b, c), others = random_operands(random, mnemonic)
    mode = Mode(fp16_ovfl=bool(random.integers(2)), denorm32=int(random.choice([3, 0])))
    others |= {"codes": True, "model": model, "mode": mode}
    d = mfma(mnemonic, a, b, c, **others)
    bits = d.view(f"u{d.dtype.itemsize}")
    shape = matrix_instruction(mnemonic)
    for _ in range(elements):
        block, row, col = (int(random.integers(size)) for size in (shape.blocks, shape.m, shape.n))
        told = explain(mnemonic, a, b, c, row, col, block=block, **others)
        wanted = int(bits[block, row, col] if shape.blocks > 1 else bits[row, col])
        assert told.result == wanted, f"{told.result:x} {wanted:x}\n{told}\n{getattr(model, 'values', model)} {mode}"
    return told


@pytest.mark.parametrize("mnemonic", CLASS_OF)
@pytest.mark.parametrize("model", ["gfx950", "cdna3", "fma_chain", "exact"])
def test_explanations_have_the_bits_of_the_instruction(mnemonic, model):
    random = np.random.default_rng(7)
    for _ in range(3):
        told = agree(random, mnemonic, model, 6)
    assert told.class_name == CLASS_OF[mnemonic] or told.class_name == "small"


@pytest.mark.parametrize("mnemonic", CLASS_OF)
def test_explanations_have_the_bits_of_every_model(mnemonic):
    random = np.random.default_rng(8)
    for _ in range(12):
        agree(random, mnemonic, random_model(random, {CLASS_OF[mnemonic], "small"}), 4)


@pytest.mark.slow
@pytest.mark.parametrize("mnemonic", CLASS_OF)
def test_explanations_have_the_bits_of_very_many_models(mnemonic):
    random = np.random.default_rng(9)
    for _ in range(150):
        agree(random, mnemonic, random_model(random, {CLASS_OF[mnemonic], "small"}), 8)


# ---- Steps -----------------------------------------------------------------------------------------------------------


def test_cuts_go_their_way():
    values = [Fraction(n, 4) for n in range(-9, 10)]
    for value in values:
        assert cut(value, 0, Direction.down) == np.floor(float(value))
        assert cut(value, 0, Direction.zero) == np.trunc(float(value))
        assert cut(value, 0, Direction.nearest_even) == np.rint(float(value))


def test_floats_are_numpy_s():
    random = np.random.default_rng(10)
    for code in random.integers(0, 1 << 32, 2000).tolist():
        number = decode(F32, code)
        if number.kind == "finite":
            assert float(number.value) == np.uint32(code).view(np.float32)
            assert number.value == 0 or Output().round(number.value) == code
    for value in random.integers(0x3600 << 48, 0x4800 << 48, 2000).view(np.float64).tolist():
        with np.errstate(over="ignore", under="ignore"):
            assert Output().round(Fraction(value)) == np.float32(value).view(np.uint32)


def test_a_group_tells_what_was_cut():
    a, b = np.zeros((16, 32)), np.zeros((32, 16))
    a[2, :4], b[:4, 3] = [448, 2**-9, -1.5, 2**-9], [448, 1.125, 1, -(2**-9)]
    told = explain("v_mfma_f32_16x16x32_fp8_fp8", a, b, -(2.0**-9), 2, 3)
    first, second = told.steps
    assert isinstance(first, Group)
    assert [p.exponent for p in first.products[:4]] == [16, -6, 0, -12]
    assert [p.part for p in first.products[:4]] == [0, 1, 0, 1]
    assert [float(part.total) for part in first.parts] == [448 * 448 - 1.5, 1.125 * 2**-9 - 2**-18]
    assert [float(part.kept) for part in first.parts] == [448 * 448 - 1.5, 0]
    assert float(first.join.c_kept) == -(2.0**-8)  # down, and one unit
    assert first.result == second.join.c.code
    assert told.result == int(mfma("v_mfma_f32_16x16x32_fp8_fp8", a, b, -(2.0**-9))[2, 3].view(np.uint32))


def test_digits_stand_under_each_other():
    assert binary(Fraction(13), 5, 0) == "+..1101|"
    assert binary(Fraction(-13, 4), 5, 0) == "-....11|01"
    assert binary(Fraction(13, 4), 5, 0, "=") == "+....11|01"
    assert binary(Fraction(12), 5, 0, "=") == "+..1100"
    assert binary(Fraction(1, 1 << 30), 3, 0) == "+....|" + "." * 16 + ">"
    assert binary(Fraction(5), 1, None) == "+101"


TEXTS = [
    ("v_mfma_f32_16x16x32_bf16", {}),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", {"a_format": "fp4", "scale_a": 130}),
    ("v_smfmac_f32_16x16x64_f16", {"index": np.tile([0, 3], (16, 16))}),
    ("v_mfma_f64_16x16x4_f64", {}),
    ("v_mfma_i32_16x16x64_i8", {}),
]


@pytest.mark.parametrize(("mnemonic", "others"), TEXTS, ids=[name for name, _ in TEXTS])
def test_every_explanation_is_a_table(mnemonic, others):
    random, shape = np.random.default_rng(11), matrix_instruction(mnemonic)
    a = random.integers(-3, 4, (shape.m, shape.k // 2 if shape.sparse else shape.k))
    b = random.integers(-3, 4, (shape.k, shape.n))
    text = str(explain(mnemonic, a, b, 1, 3, 5, **others))
    d = mfma(mnemonic, a, b, 1, **others)
    first, *_, last = text.splitlines()
    assert first.startswith(f"{mnemonic}  D[3][5]  model gfx950, class ")
    bits = f"{int(d[3, 5].view(f'u{d.itemsize}')):0{2 * d.itemsize}x}"
    assert re.fullmatch(rf"D\[3\]\[5\] = {bits}  {float(d[3, 5]):g}", last)
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize(
    ("a", "c", "line"),
    [
        (np.nan, 0, "a product is NaN: 7fc00000 (C 00000000 (0))"),
        (np.inf, 0, "+Inf decides: 7f800000 (C 00000000 (0))"),
        (np.inf, -np.inf, "+Inf and -Inf meet: 7fc00000 (C ff800000 (-inf))"),
        (1, np.nan, "C is NaN: 7fc00000 (C 7fc00000 (nan))"),
    ],
)
def test_special_values_say_why(a, c, line):
    assert line in str(explain("v_mfma_f32_16x16x16_f16", a, 1, c))


def test_elements_that_are_not_there():
    name = "v_mfma_f32_4x4x4_16b_f16"
    for row, col, block in itertools.product((0, 4), (-1, 4), (0, 16)):
        with pytest.raises(IndexError, match=r"is 4 x 4 in 16 block\(s\); it has no \["):
            explain(name, 0, 0, 0, row, col, block=block)
    with pytest.raises(ValueError, match=r"A of v_mfma_f32_16x16x16_f16 has shape \(16, 16\), got an array of \(3,\)"):
        explain("v_mfma_f32_16x16x16_f16", [1, 2, 3], 0)
    with pytest.raises(ValueError, match="there is no model 'cdna9'"):
        explain("v_mfma_f32_16x16x16_f16", 0, 0, model="cdna9")


DENSE, SPARSE = "v_mfma_f32_16x16x32_bf16", "v_smfmac_f32_16x16x64_f16"


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: explain(DENSE, 0, 0, 0, 1.5), TypeError, "integer"),
    (lambda: explain(DENSE, 0, 0, 0, "a"), TypeError, "integer"),
    (lambda: explain(DENSE, 0, 0, mode="x"), TypeError, "mode= takes gfx950.lanes.Mode"),
    (lambda: explain(DENSE, 0, 0, index=np.zeros((16, 16), int)), ValueError, "is not sparse: drop index="),
    (lambda: explain(DENSE, 0, 0, scale_a=127), ValueError, "is not scaled: drop scale_a="),
    (lambda: explain(SPARSE, 1.0, 0), ValueError, r"is dense and has shape \(16, 64\), got an array of \(\)"),
    (lambda: explain(SPARSE, np.zeros((16, 32)), 0), ValueError, r"stored elements \(16, 32\) need index="),
    (lambda: explain(SPARSE, np.zeros((2, 16, 64)), 0), ValueError, "one matrix here"),
])  # fmt: skip
def test_what_mfma_refuses_is_refused_here(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_a_row_may_be_any_whole_number():
    assert explain(DENSE, np.eye(16, 32), np.eye(32, 16), 0, True, np.int64(1)).result == 0x3F800000
