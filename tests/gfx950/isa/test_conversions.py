"""Conversions to and from narrow floats against ml_dtypes, numpy and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from emu.wave import Wave
from gfx950 import formats
from gfx950.isa.encoding import decode
from gfx950.isa.registry import lookup
from gfx950.lanes import F16, F32, I32, U16, U32, Mode

SIGN = np.uint32(0x80000000)


def sampled_bits(step: int = 1 << 11) -> np.ndarray:
    """f32 bits: every 2^11-th with a varying rest, every value of the top 16 bits with the rounding neighbourhoods."""
    spread = np.arange(0, 1 << 32, step, dtype=np.uint64)
    spread = spread + np.random.default_rng(1).integers(0, step, spread.size, dtype=np.uint64)
    top = np.arange(1 << 16, dtype=np.uint64) << np.uint64(16)
    edges = [top + np.uint64(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    bits = np.concatenate([spread, *edges]).astype(np.uint32)
    return bits[: bits.size // 64 * 64]


def run(name: str, *operands: np.ndarray, mode: Mode | None = None, **static: int) -> np.ndarray:
    definition, engine = lookup(name), NumpyEngine(mode)
    values = [a.ravel().reshape(-1, 64) for a in operands]
    lanes = [p.kind(engine, v) for p, v in zip(definition.parameters, values, strict=False)]
    return definition.body(*lanes, **static).raw.ravel()


def narrow_by_ml_dtypes(bits: np.ndarray, kind: type, saturate: bool) -> np.ndarray:
    """Overflow and NaN by the ISA's table, all else by ml_dtypes."""
    values = bits.view(np.float32)
    with np.errstate(all="ignore"):
        codes = values.astype(kind).view(np.uint8).astype(np.uint32)
    largest, over, nan = (0x7E, 0x7F, 0x7F) if kind is ml_dtypes.float8_e4m3fn else (0x7B, 0x7C, 0x7E)
    sign = bits >> np.uint32(24) & np.uint32(0x80)
    overflowed = ~np.isnan(values) & ((codes & 0x7F) > largest)
    codes = np.where(overflowed, sign | (largest if saturate else over), codes)
    return np.where(np.isnan(values), sign | nan, codes).astype(np.uint32)


NARROW = [("fp8", ml_dtypes.float8_e4m3fn, formats.E4M3FN), ("bf8", ml_dtypes.float8_e5m2, formats.E5M2)]


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize(("suffix", "kind", "form"), NARROW, ids=["fp8", "bf8"])
def test_narrow_floats_of_two_million_values(suffix, kind, form, saturate):
    bits = sampled_bits()
    old = np.full(bits.size, 0xAABBCCDD, dtype=np.uint32)
    got = run(f"v_cvt_pk_{suffix}_f32", bits, bits[::-1], old, mode=Mode(fp16_ovfl=saturate))
    expected = narrow_by_ml_dtypes(bits, kind, saturate)
    np.testing.assert_array_equal(got, 0xAABB0000 | expected[::-1] << 8 | expected)
    high = run(f"v_cvt_pk_{suffix}_f32", bits, bits[::-1], old, mode=Mode(fp16_ovfl=saturate), op_sel=8)
    np.testing.assert_array_equal(high, (expected[::-1] << 8 | expected) << 16 | 0xCCDD)
    codes = form.encode_f32(bits, "saturating" if saturate else "nonsaturating")
    np.testing.assert_array_equal(got & 0xFF, codes)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "kind"), [row[:2] for row in NARROW], ids=["fp8", "bf8"])
def test_narrow_floats_of_all_values(suffix, kind):
    for start in range(0, 1 << 32, 1 << 24):
        bits = np.arange(start, start + (1 << 24), dtype=np.uint32)
        got = run(f"v_cvt_pk_{suffix}_f32", bits, bits, bits)
        np.testing.assert_array_equal(got & 0xFF, narrow_by_ml_dtypes(bits, kind, False))


def test_fp8_overflow_edges():
    values = np.resize(
        np.array([448, 449, 463.99997, 464, 464.00003, 465, 1e9, np.inf, -np.inf, -464, -465], np.float32), 64
    )
    bits = values.view(np.uint32)
    plain = run("v_cvt_pk_fp8_f32", bits, bits, bits) & 0xFF
    assert plain[:11].tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0x7F, 0x7F, 0x7F, 0x7F, 0xFF, 0xFE, 0xFF]
    clamped = run("v_cvt_pk_fp8_f32", bits, bits, bits, mode=Mode(fp16_ovfl=True)) & 0xFF
    assert clamped[:11].tolist() == [0x7E] * 8 + [0xFE] * 3


@pytest.mark.parametrize(("suffix", "kind"), [row[:2] for row in NARROW], ids=["fp8", "bf8"])
def test_widening_is_exact(suffix, kind):
    codes = np.arange(256, dtype=np.uint32) | 0x55000000
    got = run(f"v_cvt_f32_{suffix}", codes)
    expected = (codes & 0xFF).astype(np.uint8).view(kind).astype(np.float32).view(np.uint32)
    nan = np.isnan(expected.view(np.float32))
    np.testing.assert_array_equal(got, np.where(nan, 0x7FC00000 | (codes & 0x80) << 24, expected))
    pairs = np.arange(1 << 16, dtype=np.uint32)
    both = run(f"v_cvt_pk_f32_{suffix}", pairs)
    single = got
    np.testing.assert_array_equal(both & np.uint64(0xFFFFFFFF), single[pairs & 0xFF])
    np.testing.assert_array_equal(both >> np.uint64(32), single[pairs >> 8])


def test_widening_selects_by_sdwa(assemble):
    wave = Wave()
    wave.vgprs[3] = 0x7F403800
    code = assemble("""
v_cvt_f32_fp8_sdwa v1, v3 src0_sel:BYTE_1
v_cvt_pk_f32_fp8_sdwa v[4:5], v3 src0_sel:WORD_1
v_cvt_f32_fp8_e32 v6, v3
""")
    at = 0
    while at < len(code):
        decoded = decode(code, at)
        wave.step(decoded)
        at += decoded.nbytes
    assert [hex(wave.vgprs[r, 9]) for r in (1, 4, 5, 6)] == ["0x3f800000", "0x40000000", "0x7fc00000", "0x0"]


def test_bf16_rounds_to_nearest_even():
    bits = sampled_bits()
    got = run("v_cvt_pk_bf16_f32", bits, bits[::-1])
    with np.errstate(invalid="ignore"):
        expected = bits.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)
    nan = np.isnan(bits.view(np.float32))
    expected = np.where(nan, bits >> 16 & 0x8000 | 0x7FC0, expected)
    np.testing.assert_array_equal(got, expected[::-1] << 16 | expected)
    np.testing.assert_array_equal(run("v_cvt_pk_bf16_f32", bits, bits, mode=Mode(fp16_ovfl=True)) & 0xFFFF, expected)


def test_bf16_widens_by_moving_bits():
    halves = np.arange(1 << 16, dtype=np.uint16)
    np.testing.assert_array_equal(run("v_cvt_f32_bf16", halves), halves.astype(np.uint32) << 16)


def half_by_numpy(bits: np.ndarray) -> np.ndarray:
    """numpy's rounding; NaN by the ledger: quieted, top payload bits kept."""
    with np.errstate(all="ignore"):
        half = bits.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)
    nan = (bits & ~SIGN) > 0x7F800000
    return np.where(nan, bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF, half)


def test_f16():
    bits = sampled_bits()
    expected = half_by_numpy(bits)
    np.testing.assert_array_equal(run("v_cvt_f16_f32", bits), expected)
    np.testing.assert_array_equal(run("v_cvt_pk_f16_f32", bits, bits[::-1]), expected[::-1] << 16 | expected)
    overflowed = ((expected & 0x7FFF) == 0x7C00) & ((bits & ~SIGN) < 0x7F800000)
    saturated = np.where(overflowed, expected - 1, expected)
    np.testing.assert_array_equal(run("v_cvt_f16_f32", bits, mode=Mode(fp16_ovfl=True)), saturated)
    halves = np.arange(1 << 16, dtype=np.uint16)
    wide = halves.view(np.float16).astype(np.float32).view(np.uint32)
    nan = (halves & 0x7FFF) > 0x7C00
    payload = (halves.astype(np.uint32) & 0x8000) << 16 | 0x7FC00000 | (halves.astype(np.uint32) & 0x3FF) << 13
    np.testing.assert_array_equal(run("v_cvt_f32_f16", halves), np.where(nan, payload, wide))


def test_pkrtz_truncates():
    bits = sampled_bits()
    got = run("v_cvt_pkrtz_f16_f32", bits, bits[::-1]) & 0xFFFF
    values, nearest = bits.view(np.float32), half_by_numpy(bits)
    with np.errstate(all="ignore"):
        rounded_up = np.abs(nearest.astype(np.uint16).view(np.float16).astype(np.float64)) > np.abs(
            values.astype(np.float64)
        )
    expected = np.where(rounded_up & np.isfinite(values), nearest - 1, nearest)
    np.testing.assert_array_equal(got, expected)
    exact = np.full(64, 1.0 + 2.0**-10 - 2.0**-20, np.float32).view(np.uint32)
    assert (run("v_cvt_pkrtz_f16_f32", exact, exact) == 0x3C003C00).all()


def exact_value(bits: int) -> Fraction:
    return Fraction(float(np.uint32(bits).view(np.float32)))


@pytest.mark.parametrize(
    ("name", "form", "kind"),
    [
        ("v_cvt_sr_fp8_f32", formats.E4M3FN, ml_dtypes.float8_e4m3fn),
        ("v_cvt_sr_bf8_f32", formats.E5M2, ml_dtypes.float8_e5m2),
        ("v_cvt_sr_f16_f32", formats.F16, np.float16),
        ("v_cvt_sr_bf16_f32", formats.BF16, ml_dtypes.bfloat16),
    ],
)
def test_stochastic_rounding_adds_a_fraction_of_a_step(name, form, kind):
    """floor(value / step + random / 2^n) steps, by exact arithmetic; carries cross binades."""
    generator = np.random.default_rng(5)
    top = int(np.float32(form.max).view(np.uint32))
    bits = generator.integers(0, top, 64 * 160, dtype=np.uint32)
    low = int(np.float32(form.min_normal).view(np.uint32)) if form.bias != 127 else 1 << 23
    bits[::4] = generator.integers(max(low - (12 << 23), 0), low, bits[::4].size, dtype=np.uint32)
    random = generator.integers(0, 1 << 32, bits.size, dtype=np.uint64).astype(np.uint32)
    random[1::16], random[2::16] = 0, 0xFFFFFFFF
    codes = run(name, bits, random, np.zeros_like(bits))
    dropped = 23 - form.mantissa_bits
    for value_bits, seed, code in zip(bits.tolist(), random.tolist(), codes.tolist(), strict=True):
        value = exact_value(value_bits)
        exponent = max((value_bits >> 23) - 127, 1 - form.bias)
        step = Fraction(2) ** (exponent - form.mantissa_bits)
        steps = math.floor(value / step + Fraction(seed >> 32 - dropped, 1 << dropped))
        expected = steps * step
        if expected > Fraction(form.max):
            continue
        dtype = np.uint8 if form.bits == 8 else np.uint16
        assert Fraction(float(dtype(code).view(kind))) == expected, (hex(value_bits), hex(seed), hex(code))


def test_stochastic_rounding_fills_one_byte():
    bits, random = np.full(64, 0xBF800000, np.uint32), np.zeros(64, np.uint32)
    old = np.full(64, 0x11223344, np.uint32)
    got = [int(run("v_cvt_sr_fp8_f32", bits, random, old, op_sel=byte << 2)[0]) for byte in range(4)]
    assert got == [0x112233B8, 0x1122B844, 0x11B83344, 0xB8223344]


def test_integer_packs_saturate():
    generator = np.random.default_rng(6)
    a, b = (generator.integers(0, 1 << 32, 64 * 160, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    a[::2] &= 0x1FFFF
    b[::3] |= 0xFFFF0000
    low, high = np.minimum(a, 0xFFFF), np.minimum(b, 0xFFFF)
    np.testing.assert_array_equal(run("v_cvt_pk_u16_u32", a, b), high << 16 | low)
    low, high = (np.clip(v.view(np.int32), -32768, 32767).view(np.uint32) & 0xFFFF for v in (a, b))
    np.testing.assert_array_equal(run("v_cvt_pk_i16_i32", a, b), high << 16 | low)
    count = generator.integers(0, 1 << 32, a.size, dtype=np.uint64).astype(np.uint32)
    shifted = [v.view(np.int32) >> (count & 31).astype(np.int32) for v in (a, b)]
    low, high = (np.clip(v, -128, 127).astype(np.uint32) & 0xFF for v in shifted)
    np.testing.assert_array_equal(run("v_ashr_pk_i8_i32", a, b, count), high << 8 | low)
    low, high = (np.clip(v, 0, 255).astype(np.uint32) for v in shifted)
    np.testing.assert_array_equal(run("v_ashr_pk_u8_i32", a, b, count), high << 8 | low)


def test_normalized_integers():
    generator = np.random.default_rng(7)
    values = np.concatenate(
        [generator.uniform(-1.2, 1.2, 64 * 160 - 64), np.resize([np.nan, np.inf, -np.inf, 1, -1, 0, 2, -2], 64)]
    )
    values = values.astype(np.float32)
    clean = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=2, neginf=-2)
    signed = np.rint(np.clip(clean, -1, 1) * 32767).astype(np.int32).view(np.uint32) & 0xFFFF
    unsigned = np.rint(np.clip(clean, 0, 1) * 65535).astype(np.uint32)
    bits = values.view(np.uint32)
    np.testing.assert_array_equal(run("v_cvt_pknorm_i16_f32", bits, bits), signed << 16 | signed)
    np.testing.assert_array_equal(run("v_cvt_pknorm_u16_f32", bits, bits), unsigned << 16 | unsigned)


def test_bytes_of_floats():
    values = np.resize(np.array([-1, 0, 0.9, 1, 254.9, 255, 256, 1e9, np.nan, np.inf], np.float32), 64)
    number, word = np.arange(64, dtype=np.uint32), np.full(64, 0x11223344, np.uint32)
    got = run("v_cvt_pk_u8_f32", values.view(np.uint32), number, word)
    for i in range(64):
        byte = 0 if np.isnan(values[i]) else int(min(max(values[i], 0), 255))
        low = 8 * (i & 3)
        assert got[i] == 0x11223344 & ~(0xFF << low) | byte << low
    assert (run("v_cvt_pkaccum_u8_f32", values.view(np.uint32), number, word) == got).all()


def test_types_of_the_table():
    """The operand types the tests above assume."""
    kinds = {n: [p.kind for p in lookup(n).parameters] for n in ("v_cvt_f32_f16", "v_cvt_pk_i16_i32", "v_cvt_f32_bf16")}
    assert kinds == {"v_cvt_f32_f16": [F16], "v_cvt_pk_i16_i32": [I32, I32], "v_cvt_f32_bf16": [U16]}
    assert [p.kind for p in lookup("v_cvt_sr_fp8_f32").parameters][:2] == [F32, U32]
