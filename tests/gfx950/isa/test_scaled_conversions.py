"""V_CVT_SCALEF32_* against exact double arithmetic, with random scales: every code going wide, random numbers back."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950 import formats
from gfx950.isa.registry import load, lookup
from gfx950.lanes import U32, Mode, Words

FORMS = {"fp8": formats.E4M3FN, "bf8": formats.E5M2, "fp4": formats.E2M1, "fp6": formats.E2M3, "bf6": formats.E3M2}
COUNT = 64 * 160
NAMES = sorted(n.removeprefix("v_cvt_scalef32_") for n in load() if n.startswith("v_cvt_scalef32_"))


def named(*wanted: str, without: tuple[str, ...] = ()) -> list[str]:
    return [n for n in NAMES if any(n.startswith(w) for w in wanted) and not any(n.startswith(w) for w in without)]


def run(name: str, operands: dict, mode: Mode | None = None, **static: int) -> np.ndarray:
    """operands: (lanes,) registers, or (words, lanes) for blocks. Returns registers (lanes,) or (words, lanes)."""
    definition, engine = lookup(f"v_cvt_scalef32_{name}"), NumpyEngine(mode)
    values = {}
    for parameter in definition.parameters:
        if parameter.name not in operands:
            continue
        array, kind = operands[parameter.name], parameter.kind
        if issubclass(kind, Words):
            values[parameter.name] = kind([U32(engine, row.reshape(-1, 64)) for row in array])
        else:
            values[parameter.name] = kind(engine, array.reshape(-1, 64))
    result = definition.body(**values, **static)
    if isinstance(result, Words):
        return np.stack([w.raw.ravel() for w in result.words])
    return result.raw.ravel()


def scales(seed: int) -> np.ndarray:
    """Floats with every exponent byte, random signs and mantissas, which must not count."""
    generator = np.random.default_rng(seed)
    exponents = generator.choice([0, 1, 100, 120, 125, 126, 127, 128, 129, 134, 150, 253, 254, 255], COUNT).astype(
        np.uint32
    )
    exponents[::2] = generator.integers(110, 145, COUNT // 2)
    return exponents << 23 | generator.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32) & 0x807FFFFF


def scale_values(bits: np.ndarray, direction: int) -> np.ndarray:
    byte = (bits >> 23 & 0xFF).astype(np.int64)
    return np.where(byte == 255, np.nan, np.ldexp(1.0, direction * (byte - 127)))


def numbers(seed: int, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Bits of random numbers of a type, and their values as float64."""
    generator = np.random.default_rng(seed)
    if source == "f32":
        bits = generator.integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
        bits[::2] = (bits[::2] & 0x807FFFFF) | generator.integers(105, 150, COUNT // 2).astype(np.uint32) << 23
        bits[::41] = np.resize(
            np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00001, 1], np.uint32), bits[::41].size
        )
        with np.errstate(invalid="ignore"):
            return bits, bits.view(np.float32).astype(np.float64)
    bits = generator.integers(0, 1 << 16, COUNT, dtype=np.uint64).astype(np.uint16)
    if source == "f16":
        with np.errstate(invalid="ignore"):
            return bits, bits.view(np.float16).astype(np.float64)
    bits[::2] = (bits[::2] & 0x807F) | generator.integers(105, 150, COUNT // 2).astype(np.uint16) << 7
    with np.errstate(invalid="ignore"):
        return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def encoded(values: np.ndarray, scale: np.ndarray, form: formats.Format, saturating: bool = False) -> np.ndarray:
    """Codes of values / 2^(byte - 127), exact before the one rounding; a NaN has the sign of its value."""
    with np.errstate(all="ignore"):
        scaled = values * scale_values(scale, -1)
    scaled = np.where(scale >> 23 & 0xFF == 255, np.copysign(np.nan, values), scaled)
    return form.encode(scaled, "saturating" if saturating else "nonsaturating").astype(np.uint32)


def parts(name: str) -> tuple[formats.Format, str]:
    words = name.split("_")
    form = next(FORMS[w] for w in words if w in FORMS)
    return form, next(w for w in words if w in ("f32", "f16", "bf16"))


@pytest.mark.parametrize("saturating", [False, True])
@pytest.mark.parametrize("name", named("pk_fp", "pk_bf8"))
def test_pairs_to_narrow(name, saturating):
    form, source = parts(name)
    (low, low_values), (high, high_values), scale = numbers(1, source), numbers(2, source), scales(3)
    old = np.full(COUNT, 0x11223344, np.uint32)
    operands = {"src0": low, "src1": high, "src2": scale, "vdst": old}
    if source != "f32":
        operands = {"src0": low.astype(np.uint32) | high.astype(np.uint32) << 16, "src1": scale, "vdst": old}
    pair = encoded(low_values, scale, form, saturating) | encoded(high_values, scale, form, saturating) << form.bits
    mode = Mode(fp16_ovfl=saturating)
    np.testing.assert_array_equal(run(name, operands, mode) & (1 << 2 * form.bits) - 1, pair)
    top = run(name, operands, mode, op_sel=12)
    shift = 32 - 2 * form.bits
    np.testing.assert_array_equal(top, pair << shift | 0x11223344 & (1 << shift) - 1)


def stochastic_code(value: float, random: int, scale: int, form: formats.Format) -> int | None:
    """Magnitude code by exact arithmetic; None where the plain rules for NaN and overflow decide."""
    byte = scale >> 23 & 0xFF
    if not math.isfinite(value) or byte == 255:
        return None
    scaled = abs(Fraction(value)) / Fraction(2) ** (byte - 127)
    dropped = 23 - form.mantissa_bits
    exponent = scaled.numerator.bit_length() - scaled.denominator.bit_length() if scaled else -999
    exponent -= bool(scaled) and Fraction(2) ** exponent > scaled
    step = Fraction(2) ** (max(exponent, 1 - form.bias) - form.mantissa_bits)
    result = math.floor(scaled / step + Fraction(random >> 32 - dropped, 1 << dropped)) * step
    if result > Fraction(form.max):
        return None
    return int(form.encode(np.array([float(result)]), "nonsaturating")[0])


def prng(state: int) -> int:
    return (state << 1 ^ (197 if state >> 31 else 0)) & 0xFFFFFFFF


@pytest.mark.parametrize("name", named("sr_fp8", "sr_bf8"))
def test_single_numbers_with_a_random_part(name):
    form, source = parts(name)
    (bits, values), scale = numbers(4, source), scales(5)
    random = np.random.default_rng(6).integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    old = np.zeros(COUNT, np.uint32)
    codes = run(name, {"src0": bits, "src1": random, "src2": scale, "vdst": old})
    compared = 0
    for i in range(0, COUNT, 3):
        expected = stochastic_code(values[i], int(random[i]), int(scale[i]), form)
        if expected is not None:
            compared += 1
            assert int(codes[i]) == expected | (0x80 if math.copysign(1, values[i]) < 0 else 0), i
    assert compared > COUNT // 8


@pytest.mark.parametrize("name", named("sr_pk_fp4"))
def test_fp4_pairs_with_random_parts(name):
    form, source = parts(name)
    (low, low_values), (high, high_values), scale = numbers(7, source), numbers(8, source), scales(9)
    random = np.random.default_rng(10).integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    width = np.uint64(32 if source == "f32" else 16)
    packed = low.astype(np.uint64) | high.astype(np.uint64) << width
    operands = {"src0": packed if source == "f32" else packed.astype(np.uint32), "src1": random, "src2": scale}
    codes = run(name, {**operands, "vdst": np.zeros(COUNT, np.uint32)}, op_sel=4) >> 8
    for i in range(0, COUNT, 5):
        seeds = int(random[i]), prng(int(random[i]))
        for value, seed, code in zip(
            (low_values[i], high_values[i]), seeds, (codes[i] & 15, codes[i] >> 4), strict=True
        ):
            expected = stochastic_code(value, seed, int(scale[i]), form)
            if expected is not None:
                assert int(code) == expected | (8 if math.copysign(1, value) < 0 else 0), i


def unpacked6(words: np.ndarray) -> np.ndarray:
    """(6, lanes) registers to (32, lanes) codes, by big integers' bit order."""
    bits = np.unpackbits(words.T.astype("<u4").copy().view(np.uint8), axis=1, bitorder="little")
    return (bits.reshape(-1, 32, 6) << np.arange(6, dtype=np.uint8)).sum(axis=2).T.astype(np.uint32)


def block_numbers(source: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(registers, COUNT) words and (32, COUNT) values."""
    pairs = [numbers(seed + i, source) for i in range(32)]
    values = np.stack([v for _, v in pairs])
    bits = np.stack([b for b, _ in pairs])
    if source == "f32":
        return bits, values
    wide = bits.astype(np.uint32)
    return wide[::2] | wide[1::2] << 16, values


@pytest.mark.parametrize("name", named("pk32_fp6", "pk32_bf6"))
def test_blocks_to_six_bits(name):
    form, source = parts(name)
    (words, values), scale = block_numbers(source, 20), scales(11)
    codes = unpacked6(run(name, {"src0": words, "src1": scale}))
    np.testing.assert_array_equal(codes, np.stack([encoded(v, scale, form) for v in values]))


@pytest.mark.parametrize("name", named("2xpk16"))
def test_two_blocks_alternate(name):
    form, _ = parts(name)
    (words, values), scale = block_numbers("f32", 60), scales(12)
    codes = unpacked6(run(name, {"src0": words[:16], "src1": words[16:], "src2": scale}))
    alternating = [values[i // 2 + 16 * (i % 2)] for i in range(32)]
    np.testing.assert_array_equal(codes, np.stack([encoded(v, scale, form) for v in alternating]))


@pytest.mark.parametrize("name", named("sr_pk32"))
def test_blocks_with_random_parts(name):
    form, source = parts(name)
    (words, values), scale = block_numbers(source, 100), scales(13)
    random = np.random.default_rng(14).integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    codes = unpacked6(run(name, {"src0": words, "src1": random, "src2": scale}))
    for lane in range(0, COUNT, 97):
        seed = int(random[lane])
        for i in range(32):
            value = float(values[i, lane])
            expected = stochastic_code(value, seed, int(scale[lane]), form)
            if expected is not None:
                assert int(codes[i, lane]) == expected | (32 if math.copysign(1, value) < 0 else 0), (lane, i)
            seed = prng(seed)


def wide_bits(codes: np.ndarray, scale: np.ndarray, form: formats.Format, target: str) -> np.ndarray:
    """Bits of code * 2^(byte - 127), rounded once from the exact double; a NaN has the sign of its code."""
    with np.errstate(all="ignore"):
        values = form.decode(codes.astype(form.code_dtype)) * scale_values(scale, 1)
    sign = codes.astype(np.uint32) >> form.bits - 1 & 1
    wide = {"f32": formats.F32, "f16": formats.F16, "bf16": formats.BF16}[target]
    bits = wide.encode(np.where(np.isnan(values), np.nan, values), "nonsaturating").astype(np.uint32)
    return np.where(np.isnan(values), wide.canonical_nan | sign << wide.bits - 1, bits).astype(np.uint32)


@pytest.mark.parametrize("name", named("pk_f32", "pk_f16", "pk_bf16"))
def test_pairs_to_wide(name):
    form, target = parts(name)
    scale, word = scales(15), np.random.default_rng(16).integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    for op_sel in range(2 if form.bits == 8 else 4):
        part = word >> op_sel * 2 * form.bits
        low, high = (wide_bits(part >> s & (1 << form.bits) - 1, scale, form, target) for s in (0, form.bits))
        got = run(name, {"src0": word, "src1": scale}, op_sel=op_sel).astype(np.uint64)
        shift = np.uint64(32 if target == "f32" else 16)
        np.testing.assert_array_equal(got, high.astype(np.uint64) << shift | low.astype(np.uint64))


@pytest.mark.parametrize("name", named("f32_", "f16_"))
def test_single_numbers_to_wide(name):
    form, target = parts(name)
    scale, word = scales(17), np.random.default_rng(18).integers(0, 1 << 32, COUNT, dtype=np.uint64).astype(np.uint32)
    for byte in range(4):
        expected = wide_bits(word >> 8 * byte & 0xFF, scale, form, target)
        np.testing.assert_array_equal(run(name, {"src0": word, "src1": scale}, op_sel=byte), expected)


@pytest.mark.parametrize("name", named("pk32_f32", "pk32_f16", "pk32_bf16"))
def test_blocks_to_wide(name):
    form, target = parts(name)
    scale = scales(19)
    words = np.random.default_rng(20).integers(0, 1 << 32, (6, COUNT), dtype=np.uint64).astype(np.uint32)
    expected = np.stack([wide_bits(c, scale, form, target) for c in unpacked6(words)])
    got = run(name, {"src0": words, "src1": scale})
    np.testing.assert_array_equal(got, expected if target == "f32" else expected[::2] | expected[1::2] << 16)


def test_every_scaled_conversion_is_tested():
    tested = named(
        "pk_fp", "pk_bf8", "sr_fp8", "sr_bf8", "sr_pk_fp4", "pk32_fp6", "pk32_bf6", "2xpk16", "sr_pk32",
        "pk_f32", "pk_f16", "pk_bf16",
        "f32_", "f16_", "pk32_f32", "pk32_f16", "pk32_bf16",
    )  # fmt: skip
    assert tested == NAMES
    assert len(NAMES) == 49
