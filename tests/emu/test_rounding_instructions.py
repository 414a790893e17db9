"""Instructions in every rounding and denormal mode against exact rationals, rounded once by MPFR."""

import itertools
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from emu.memory import Memory
from emu.modifiers import apply_omod
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.lane_arithmetic import clamped
from gfx950.isa.registry import lookup
from gfx950.lanes import F16, F32, F64, I16, I32, U32, Mask, Mode, infinity_bits

UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
KINDS = {16: F16, 32: F32, 64: F64}
ROUNDINGS = (gmpy2.RoundToNearest, gmpy2.RoundUp, gmpy2.RoundDown, gmpy2.RoundToZero)
DIRECTIONS = range(4)
SMALLEST_NORMAL = {width: 1 << {16: 10, 32: 23, 64: 52}[width] for width in (16, 32, 64)}


def with_rounding(width, direction, **more):
    """The field of another width asks for something else."""
    other = (direction + 1) % 4
    return Mode(direction, other, **more) if width == 32 else Mode(other, direction, **more)


def values_of(bits, width):
    return bits.view(FLOATS[width]).astype(np.float64)


def finite(rng, width, count, low=-30, high=30):
    """Numbers of moderate size, of which a tenth are denormals."""
    floats = np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count)) * rng.choice([-1, 1], count)
    bits = floats.astype(FLOATS[width]).view(UNSIGNED[width])
    denormals = rng.integers(1, SMALLEST_NORMAL[width], count).astype(UNSIGNED[width])
    return np.where(rng.random(count) < 0.1, denormals | (bits & UNSIGNED[width](1 << width - 1)), bits)


def rounded(exact, width, direction):
    """The bits of a fraction that is not zero."""
    context = gmpy2.ieee(width)
    context.round = ROUNDINGS[direction]
    with gmpy2.context(context):
        value = gmpy2.mpfr(gmpy2.mpq(exact.numerator, exact.denominator))
        if not value and exact < 0:
            value = -gmpy2.mpfr(0)
    return FLOATS[width](float(value)).view(UNSIGNED[width])


def flushed(bits, width, keep):
    kind = UNSIGNED[width]
    denormal = (np.asarray(bits) & kind(infinity_bits(width))) == 0
    return bits if keep else np.where(denormal, bits & kind(1 << width - 1), bits)


def run(name, mode, *operands, **static):
    """The result's bits; operands are (type, bits)."""
    engine = NumpyEngine(mode)
    out = lookup(name).body(*(kind(engine, bits) for kind, bits in operands), **static)
    return np.broadcast_to(out.raw, operands[0][1].shape)


def same(result, wanted, *operands):
    if not np.array_equal(result, wanted):
        at = int(np.argwhere(result != wanted)[0][0])
        raise AssertionError(f"{[hex(o[at]) for o in operands]}: {result[at]:#x}, expected {wanted[at]:#x}")


# ---- one rounding ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("width", "reach"), [(16, 45), (32, 310), (64, 2200)])
def test_ldexp_rounds_once_by_its_own_field(width, reach, direction):
    rng = np.random.default_rng([width, direction])
    bits, counts = finite(rng, width, 400, -14, 15), rng.integers(-reach, reach, 400)
    wanted = [
        rounded(Fraction(float(x)) * Fraction(2) ** int(n), width, direction)
        for x, n in zip(values_of(bits, width), counts, strict=True)
    ]
    integer = (I16, counts.astype(np.int16).view(np.uint16)) if width == 16 else (I32, counts.astype(np.uint32))
    result = run(f"v_ldexp_f{width}", with_rounding(width, direction), (KINDS[width], bits), integer)
    same(result, np.array(wanted), bits, counts)


def test_ldexp_of_a_denormal_that_is_kept():
    mode = Mode(denorm32=1, denorm16_64=1)  # inputs kept, outputs flushed
    for width, count in ((16, 20), (32, 30), (64, 60)):
        bits = np.array([1, 1], UNSIGNED[width])
        counts = np.array([count, 1])
        integer = (I16, counts.astype(np.uint16)) if width == 16 else (I32, counts.astype(np.uint32))
        result = run(f"v_ldexp_f{width}", mode, (KINDS[width], bits), integer)
        assert values_of(result, width).tolist() == [values_of(bits, width)[0] * 2.0**count, 0.0]


@pytest.mark.parametrize("denorm", range(4))
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("width", "scale", "reach"), [(32, 64, 120), (64, 128, 900)])
def test_div_fmas_keeps_denormal_operands_and_rounds_once(width, scale, reach, direction, denorm):
    rng = np.random.default_rng([width, direction])
    a, b = (finite(rng, width, 300, -reach // 2, reach // 2) for _ in range(2))
    c = finite(rng, width, 300, -reach, reach)
    vcc = rng.integers(0, 2, 300).astype(bool)
    fields = {"denorm32": denorm} if width == 32 else {"denorm16_64": denorm}
    wanted = []
    for x, y, z, scaled in zip(values_of(a, width), values_of(b, width), values_of(c, width), vcc, strict=True):
        total = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        power = Fraction(2) ** (scale if abs(z) >= 2 else -scale) if scaled else 1
        wanted.append(rounded(total * power, width, direction))
    operands = [(KINDS[width], bits) for bits in (a, b, c)]
    result = run(f"v_div_fmas_f{width}", with_rounding(width, direction, **fields), *operands, (Mask, vcc))
    same(result, flushed(np.array(wanted), width, denorm & 2), a, b, c, vcc)


@pytest.mark.parametrize("width", [32, 64])
def test_div_fmas_that_cancels(width):
    one = np.array([1.0, 1.0], FLOATS[width]).view(UNSIGNED[width])
    minus = one | UNSIGNED[width](1 << width - 1)
    for direction in DIRECTIONS:
        operands = [(KINDS[width], bits) for bits in (one, one, minus)]
        vcc = np.array([True, False])
        result = run(f"v_div_fmas_f{width}", with_rounding(width, direction), *operands, (Mask, vcc))
        assert (result == (UNSIGNED[width](1 << width - 1) if direction == 2 else 0)).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("width", [16, 32, 64])
def test_fract_is_rounded_and_limited(width, direction):
    rng = np.random.default_rng([width, direction])
    bits = finite(rng, width, 300, -14, 10)
    bits[0] = 1 | 1 << width - 1  # just below zero
    wanted = []
    for x in values_of(bits, width):
        exact = Fraction(float(x)) % 1
        zero = UNSIGNED[width](1 << width - 1 if direction == 2 else 0)
        wanted.append(rounded(exact, width, direction) if exact else zero)
    limit = FLOATS[width](1).view(UNSIGNED[width]) - UNSIGNED[width](1)
    wanted = np.where(np.array(wanted) == limit + 1, limit, np.array(wanted))
    assert wanted[0] == limit
    result = run(f"v_fract_f{width}", with_rounding(width, direction), (KINDS[width], bits))
    same(result, wanted, bits)


# ---- two roundings, two fields ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("round32", "round16"), list(itertools.product(DIRECTIONS, repeat=2)))
def test_mixlo_rounds_to_f32_and_then_to_f16_by_either_field(round32, round16):
    rng = np.random.default_rng([round32, round16])
    a, b, c = (finite(rng, 32, 300, -9, 6) for _ in range(3))
    wanted = []
    for x, y, z in zip(*(values_of(bits, 32) for bits in (a, b, c)), strict=True):
        single = rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), 32, round32)
        wanted.append(rounded(Fraction(float(single.view(np.float32))), 16, round16))
    zero = np.zeros(300, np.uint32)
    result = run("v_fma_mixlo_f16", Mode(round32, round16), *((U32, bits) for bits in (a, b, c, zero)))
    same(result, np.array(wanted).astype(np.uint32), a, b, c)


@pytest.mark.parametrize("denorm", [0, 3])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_mad_f16_rounds_twice_and_always_flushes(direction, denorm):
    rng = np.random.default_rng(direction)
    a, b, c = (flushed(finite(rng, 16, 400, -10, 6), 16, False) for _ in range(3))
    a[:50], c[50:100] = 5, 0x8007  # denormals
    wanted = []
    for x, y, z in zip(a, b, c, strict=True):
        first, second, third = (Fraction(float(flushed(n, 16, False).view(np.float16))) for n in (x, y, z))
        product = flushed(rounded(first * second, 16, direction), 16, False) if first * second else np.uint16(0)
        total = Fraction(float(np.uint16(product).view(np.float16))) + third
        wanted.append(flushed(rounded(total, 16, direction), 16, False) if total else np.uint16(0))
    mode = with_rounding(16, direction, denorm16_64=denorm)
    result = run("v_mad_f16", mode, *((F16, bits) for bits in (a, b, c)))
    wanted = np.array(wanted)
    zeros = wanted & 0x7FFF == 0
    same(np.where(zeros, result & 0x7FFF, result), np.where(zeros, wanted & 0x7FFF, wanted), a, b, c)


@pytest.mark.parametrize(("round32", "round16"), list(itertools.product(DIRECTIONS, repeat=2)))
def test_conversions_take_the_field_of_the_wide_or_the_half_float(round32, round16):
    mode = Mode(round32, round16)
    third, integer = np.array([1 / 3]), np.array([(1 << 24) + 1], np.uint32)
    assert run("v_cvt_f32_f64", mode, (F64, third.view(np.uint64))) == rounded(Fraction(float(third[0])), 32, round16)
    assert run("v_cvt_f32_u32", mode, (U32, integer)) == rounded(Fraction(int(integer[0])), 32, round32)
    single = third.astype(np.float32)
    half = rounded(Fraction(float(single[0])), 16, round16)
    assert run("v_cvt_f16_f32", mode, (F32, single.view(np.uint32))) == half
    to_nearest = rounded(Fraction(float(single[0])), 16, 0)
    packed = run("v_cvt_pk_f16_f32", mode, (F32, single.view(np.uint32)), (F32, single.view(np.uint32)))
    assert packed == int(to_nearest) * 0x10001
    down = rounded(Fraction(float(single[0])), 16, 3)
    packed = run("v_cvt_pkrtz_f16_f32", mode, (F32, single.view(np.uint32)), (F32, single.view(np.uint32)))
    assert packed == int(down) * 0x10001


# ---- what MODE does not touch ----------------------------------------------------------------------------------------

ANY_MODE = [Mode(), Mode(1, 2, 0, 0), Mode(2, 3, 1, 2), Mode(3, 1, 2, 1)]


@pytest.mark.parametrize("mode", ANY_MODE)
def test_rpi_and_flr(mode):
    values = np.array([0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, -0.50000006, 8388607.5, 1e-40, -1e-40, 3e9, -3e9, np.nan])
    bits = values.astype(np.float32).view(np.uint32)
    nearest = run("v_cvt_rpi_i32_f32", mode, (F32, bits)).view(np.int32).tolist()
    top, bottom = (1 << 31) - 1, -(1 << 31)
    assert nearest == [1, 0, 2, -1, 3, 0, -1, 8388608, 0, 0, top, bottom, 0]
    floor = run("v_cvt_flr_i32_f32", mode, (F32, bits)).view(np.int32).tolist()
    assert floor == [0, -1, 1, -2, 2, 0, -1, 8388607, 0, -1, top, bottom, 0]


@pytest.mark.parametrize("mode", ANY_MODE)
def test_approximations_in_f64_are_to_nearest(mode):
    bits = np.array([3.0, 7.0, 1e300]).view(np.uint64)
    for name, function in (("rcp", lambda x: 1 / x), ("sqrt", np.sqrt), ("rsq", lambda x: 1 / np.sqrt(x))):
        result = run(f"v_{name}_f64", mode, (F64, bits))
        assert result.view(np.float64).tolist() == function(bits.view(np.float64)).tolist()


@pytest.mark.parametrize("mode", ANY_MODE)
def test_dots_keep_halves_and_flush_sums(mode):
    half, single = np.array([0x0001_3C00], np.uint32), np.array([0], np.uint32)  # 1 and 2^-24
    result = run("v_dot2_f32_f16", mode, (U32, half), (U32, half), (F32, single))
    assert result.view(np.float32) == 1.0  # 1 + 2^-48 to nearest
    bf16 = np.array([0x0000_0001], np.uint32)  # 2^-133
    big = np.array([0x0000_7F00], np.uint32)  # 2^127
    assert run("v_dot2_f32_bf16", mode, (U32, bf16), (U32, big), (F32, single)).view(np.float32) == 2.0**-6
    tiny = np.array([1], np.uint32)
    assert run("v_dot2_f32_f16", mode, (U32, single), (U32, half), (F32, tiny)) == 0


def test_neg_of_a_dot_s_accumulator():
    zero, one = np.zeros(1, np.uint32), np.array([0x3F800000], np.uint32)
    for name, negated in (("v_dot2_f32_f16", True), ("v_dot2_f32_bf16", False)):
        operands = (U32, zero), (U32, zero), (F32, one)
        assert run(name, Mode(), *operands, neg=4) == (0xBF800000 if negated else 0x3F800000)
        assert run(name, Mode(), *operands, neg_hi=4) == 0x3F800000


# ---- denormals of parts, clamps and output modifiers -----------------------------------------------------------------


def test_parts_see_the_denormals_that_inputs_keep():
    for mode, kept in ((Mode(denorm32=1), True), (Mode(denorm32=2), False)):
        bits = np.array([1], np.uint32)
        exponent = run("v_frexp_exp_i32_f32", mode, (F32, bits)).view(np.int32)
        assert exponent == (-148 if kept else 0)
        assert run("v_frexp_mant_f32", mode, (F32, bits)).view(np.float32) == (0.5 if kept else 0.0)
        one = np.array([0x3F800000], np.uint32)
        quotient = run("v_div_fixup_f32", mode, (F32, one), (F32, bits), (F32, one))
        assert quotient.view(np.float32) == (1.0 if kept else np.inf)


def test_selection_sees_kept_denormals_and_flushes_the_one_it_takes():
    tiny, sign = np.array([1], np.uint32), 1 << 31
    for denorm, middle in ((0, 0), (1, sign), (2, 0), (3, 1 | sign)):  # flushed before, all three are equal
        mode = Mode(denorm32=denorm)
        assert run("v_med3_f32", mode, (F32, tiny | sign), (F32, tiny * 2 | sign), (F32, tiny)) == middle
    for denorm, place in ((0, 0), (1, sign), (2, 0), (3, 1 | sign)):  # x is the major axis: S is -z; else z is: S is x
        operands = (F32, tiny * 2), (F32, tiny * 0), (F32, tiny)
        assert run("v_cubesc_f32", Mode(denorm32=denorm), *operands) == place


def test_clamp_leaves_a_denormal_result():
    for denorm in (2, 3):
        engine = NumpyEngine(Mode(denorm32=denorm))
        result = clamped(F32(engine, np.array([1, 0x80000001, 0x3F800001, 0x7FC00000], np.uint32)))
        assert result.raw.tolist() == [1, 0, 0x3F800000, 0]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_omod_overflows_in_the_direction(direction):
    mode = Mode(round32=direction, denorm32=0, ieee=False)
    largest = np.array([0x7F7FFFFF, 0xFF7FFFFF], np.uint32)
    result = apply_omod(F32(NumpyEngine(mode), largest), 1, mode).raw.tolist()
    outward = [direction in (0, 1), direction in (0, 2)]
    assert result == [
        (0x7F800000 if out else 0x7F7FFFFF) | sign for out, sign in zip(outward, (0, 1 << 31), strict=True)
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_fp16_ovfl_limits_in_every_direction(direction):
    mode = Mode(direction, direction, fp16_ovfl=True)
    large, infinity = np.array([0x7BFF, 0xFBFF], np.uint16), np.array([0x7C00, 0xFC00], np.uint16)
    assert run("v_add_f16", mode, (F16, large), (F16, large)).tolist() == [0x7BFF, 0xFBFF]
    assert run("v_add_f16", mode, (F16, infinity), (F16, large)).tolist() == [0x7C00, 0xFC00]
    scale = np.array([254 << 23], np.uint32)
    for codes, halves in ((0x7E7E, 0x7BFF7BFF), (0x7F7F, 0x7E007E00)):  # 448, NaN
        word = np.array([codes], np.uint32)
        assert run("v_cvt_scalef32_pk_f16_fp8", mode, (U32, word), (U32, scale)) == halves


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_scaled_results_that_overflow_f32(direction):
    word, scale = np.array([0x7E], np.uint32), np.array([254 << 23], np.uint32)
    result = run("v_cvt_scalef32_f32_fp8", Mode(round32=direction), (U32, word), (U32, scale))
    assert result == (0x7F800000 if direction in (0, 1) else 0x7F7FFFFF)


# ---- the other half --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("v_mac_f16 v0, v1, v2", 0x0000_4400),
        ("v_mac_f16_e64 v0, v1, v2", 0x0000_4400),
        ("v_madmk_f16 v0, v1, 0x4000, v2", 0x0000_4400),
        ("v_madak_f16 v0, v1, v2, 0x4000", 0x0000_4400),
        ("v_fma_f16 v0, v1, v2, v2", 0x1234_4400),
        ("v_mad_f16 v0, v1, v2, v2", 0x1234_4400),
        ("v_add_f16 v0, v1, v2", 0x0000_4200),
    ],
)
def test_the_high_half(assemble, line, word):
    wave = Wave(np.zeros(64, np.uint8), Memory(), Mode())
    wave.vgprs[0], wave.vgprs[1], wave.vgprs[2] = 0x1234_4000, 0x5678_3C00, 0x9ABC_4000  # 2, 1, 2
    wave.sgprs[126:128] = 0xFFFFFFFF
    wave.step(decode(assemble(line), 0))
    assert (wave.vgprs[0] == word).all()


# ---- moves with modifiers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", ["v_mov_b32_sdwa v0, v1 {clamp} dst_sel:DWORD", "v_cndmask_b32_sdwa v0, v1, v1, vcc {clamp}"]
)
def test_clamp_of_a_move(assemble, line):
    bits = [0x40000000, 0xBF800000, 0x00000001, 0x7F800001, 0x80000000, 0x3F000000]  # 2, -1, denormal, NaN, -0, 0.5
    for clamp, wanted in (("", bits), ("clamp", [0x3F800000, 0, 1, 0, 0, 0x3F000000])):
        wave = Wave(np.zeros(64, np.uint8), Memory(), Mode(denorm32=2))
        wave.vgprs[1, :6] = bits
        wave.sgprs[126:128] = 0xFFFFFFFF
        wave.step(decode(assemble(line.format(clamp=clamp)), 0))
        assert wave.vgprs[0, :6].tolist() == wanted
