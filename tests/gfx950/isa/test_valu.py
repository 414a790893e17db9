"""What vector ALU instructions compute, against plain Python integers, fractions and the manual's case lists.

Bodies run on the numpy engine on 10,240 lanes at once; a few instructions go through the decoder and the executor.
"""

from __future__ import annotations

import functools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from emu.wave import Wave
from gfx950.arithmetic.native import NATIVES
from gfx950.isa.encoding import decode
from gfx950.isa.registry import Instruction, lookup
from gfx950.lanes import Float, Lanes, Mask, Mode, Signed

SHAPE = (160, 64)
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
MANTISSA = {16: 10, 32: 23, 64: 52}
M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


@functools.cache
def infinity(width: int) -> int:
    return (1 << width - 1) - (1 << MANTISSA[width])


def specials(width: int) -> list[int]:
    inf, one = infinity(width), infinity(width) >> 1 & ~((1 << MANTISSA[width]) - 1)
    small = [0, 1, (1 << MANTISSA[width]) - 1, 1 << MANTISSA[width]]
    positive = [*small, one, one + 1, inf - 1, inf, inf + 1, inf | 1 << MANTISSA[width] - 1]
    sign = 1 << width - 1
    return positive + [p | sign for p in positive] + [2, 5, 31, 32, 33, 64, 0xFF, 0x7FFF, sign, (1 << width) - 1]


def random_bits(width: int, seed: int, floats: bool = False) -> np.ndarray:
    """A third special values, the rest random bits; floats: half of those with exponents near 1."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 1 << 64, SHAPE, dtype=np.uint64) >> np.uint64(64 - width)
    if floats:
        keep = np.uint64((1 << width) - 1 - infinity(width))
        exponent = generator.integers(-6, 7, SHAPE) + (infinity(width) >> MANTISSA[width] + 1)
        mild = (bits & keep) | (exponent.astype(np.uint64) << np.uint64(MANTISSA[width]))
        bits = np.where(np.arange(64) % 2, bits, mild)
    chosen = np.array(specials(width), dtype=np.uint64)[generator.integers(0, len(specials(width)), SHAPE)]
    return np.where(generator.random(SHAPE) < 0.3, chosen, bits).astype(UNSIGNED[width])


def run(
    definition: Instruction, inputs: dict[str, np.ndarray], mode: Mode | None = None, **static: int
) -> list[np.ndarray]:
    engine = NumpyEngine(mode)
    arguments = {}
    for parameter in definition.parameters:
        if parameter.name in inputs:
            arguments[parameter.name] = parameter.kind(engine, inputs[parameter.name])
        elif parameter.name in static:
            arguments[parameter.name] = static[parameter.name]
    results = definition.body(**arguments)
    results = results if isinstance(results, tuple) else (results,)
    return [np.broadcast_to(r.raw, SHAPE) for r in results]


def inputs_of(definition: Instruction, seed: int) -> dict[str, np.ndarray]:
    inputs = {}
    for i, parameter in enumerate(definition.parameters):
        kind = parameter.kind
        if kind is Mask:
            inputs[parameter.name] = np.random.default_rng(seed + i).random(SHAPE) < 0.5
        elif isinstance(kind, type) and issubclass(kind, Lanes):
            inputs[parameter.name] = random_bits(kind.width, seed * 10 + i, issubclass(kind, Float))
    return inputs


def signed(value: int, width: int = 32) -> int:
    return value - (1 << width) if value >> width - 1 else value


def as_python(definition: Instruction, inputs: dict[str, np.ndarray]) -> list[list[int]]:
    """Each operand flat: signed types as signed numbers, everything else as its bits."""
    columns = []
    for name, array in inputs.items():
        kind = definition.parameter(name).kind
        values = array.ravel().tolist()
        columns.append([signed(v, kind.width) for v in values] if issubclass(kind, Signed) else values)
    return columns


def check(name: str, oracle, seed: int = 1, mode: Mode | None = None, **static: int) -> None:
    definition = lookup(name)
    inputs = inputs_of(definition, seed)
    results = zip(*(r.ravel().tolist() for r in run(definition, inputs, mode, **static)), strict=True)
    masks = [(1 << max(r.kind.width, 1)) - 1 for r in definition.results]
    for got, values in zip(results, zip(*as_python(definition, inputs), strict=True), strict=True):
        expected = oracle(*values)
        expected = expected if isinstance(expected, tuple) else (expected,)
        wanted = tuple([int(e) & m for e, m in zip(expected, masks, strict=True)])
        assert got == wanted, (
            f"{name} {[hex(v) for v in values]}: {[hex(g) for g in got]} for {[hex(w) for w in wanted]}"
        )


# ---- integers --------------------------------------------------------------------------------------------------------


def clamp_u(value: int, width: int = 32) -> int:
    return max(0, min((1 << width) - 1, value))


def clamp_s(value: int, width: int = 32) -> int:
    return max(-(1 << width - 1), min((1 << width - 1) - 1, value))


def low24(value: int) -> int:
    return value & 0xFFFFFF


def s24(value: int) -> int:
    return signed(value & 0xFFFFFF, 24)


def bfe_i(value: int, offset: int, width: int) -> int:
    width &= 31
    field = (value >> (offset & 31)) & ((1 << width) - 1)
    return signed(field, width) if width else 0


def perm_byte(data: int, select: int) -> int:
    if select >= 13:
        return 0xFF
    if select == 12:
        return 0
    if select >= 8:
        return 0xFF if data >> {8: 15, 9: 31, 10: 47, 11: 63}[select] & 1 else 0
    return data >> 8 * select & 0xFF


def perm(high: int, low: int, select: int) -> int:
    return sum(perm_byte(high << 32 | low, select >> 8 * i & 0xFF) << 8 * i for i in range(4))


def leading_zeros(value: int) -> int:
    return 32 - value.bit_length()


def ffbh_i(value: int) -> int:
    bits = value & M32
    same = bits ^ M32 if bits >> 31 else bits
    return leading_zeros(same) if same else -1


def bytes_of(value: int) -> list[int]:
    return [value >> 8 * i & 0xFF for i in range(4)]


def sad(a: int, b: int) -> int:
    return sum(abs(x - y) for x, y in zip(bytes_of(a), bytes_of(b), strict=True))


def halves(value: int) -> tuple[int, int]:
    return value & 0xFFFF, value >> 16


def mad_i64(a: int, b: int, c: int) -> tuple[int, int]:
    total = a * b + c
    return total & M64, total >> 64 & 1


INTEGER_ORACLES = {
    "v_mul_i32_i24": lambda a, b: s24(a) * s24(b),
    "v_mul_hi_i32_i24": lambda a, b: s24(a) * s24(b) >> 32,
    "v_mul_u32_u24": lambda a, b: low24(a) * low24(b),
    "v_mul_hi_u32_u24": lambda a, b: low24(a) * low24(b) >> 32,
    "v_min_i32": min,
    "v_max_i32": max,
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i16": min,
    "v_max_i16": max,
    "v_min_u16": min,
    "v_max_u16": max,
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: b >> (a & 31),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_ashrrev_i16": lambda a, b: b >> (a & 15),
    "v_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_lshrrev_b64": lambda a, b: b >> (a & 63),
    "v_ashrrev_i64": lambda a, b: b >> (a & 63),
    "v_lshlrev_b64": lambda a, b: b << (a & 63),
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_not_b32": lambda a: ~a,
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_add_i32": lambda a, b: a + b,
    "v_sub_i32": lambda a, b: a - b,
    "v_add_u16": lambda a, b: a + b,
    "v_sub_u16": lambda a, b: a - b,
    "v_subrev_u16": lambda a, b: b - a,
    "v_add_i16": lambda a, b: a + b,
    "v_sub_i16": lambda a, b: a - b,
    "v_mul_lo_u16": lambda a, b: a * b,
    "v_add_co_u32": lambda a, b: (a + b, a + b > M32),
    "v_sub_co_u32": lambda a, b: (a - b, b > a),
    "v_subrev_co_u32": lambda a, b: (b - a, a > b),
    "v_addc_co_u32": lambda a, b, c: (a + b + c, a + b + c > M32),
    "v_subb_co_u32": lambda a, b, c: (a - b - c, b + c > a),
    "v_subbrev_co_u32": lambda a, b, c: (b - a - c, a + c > b),
    "v_mad_i32_i24": lambda a, b, c: s24(a) * s24(b) + c,
    "v_mad_u32_u24": lambda a, b, c: low24(a) * low24(b) + c,
    "v_mad_u32_u16": lambda a, b, c: a * b + c,
    "v_mad_i32_i16": lambda a, b, c: a * b + c,
    "v_mad_u16": lambda a, b, c: a * b + c,
    "v_mad_i16": lambda a, b, c: a * b + c,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: a * b >> 32,
    "v_mad_u64_u32": lambda a, b, c: (a * b + c, a * b + c > M64),
    "v_mad_i64_i32": mad_i64,
    "v_min3_i32": min,
    "v_max3_i32": max,
    "v_med3_i32": lambda *v: sorted(v)[1],
    "v_min3_u32": min,
    "v_max3_u32": max,
    "v_med3_u32": lambda *v: sorted(v)[1],
    "v_min3_i16": min,
    "v_max3_i16": max,
    "v_med3_i16": lambda *v: sorted(v)[1],
    "v_min3_u16": min,
    "v_max3_u16": max,
    "v_med3_u16": lambda *v: sorted(v)[1],
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_lshl_add_u64": lambda a, b, c: (a << (b & 7 if b & 7 <= 4 else 0)) + c,
    "v_lshl_or_b32": lambda a, b, c: (a << (b & 31)) | c,
    "v_and_or_b32": lambda a, b, c: (a & b) | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfe_u32": lambda a, b, c: (a >> (b & 31)) & ((1 << (c & 31)) - 1),
    "v_bfe_i32": bfe_i,
    "v_bfi_b32": lambda a, b, c: (a & b) | (~a & c),
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": perm,
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: leading_zeros(a) if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1 if a else -1,
    "v_ffbh_i32": ffbh_i,
    "v_prng_b32": lambda a: (a << 1) ^ (197 if a >> 31 else 0),
    "v_sat_pk_u8_i16": lambda a: clamp_u(signed(a & 0xFFFF, 16), 8) | clamp_u(signed(a >> 16, 16), 8) << 8,
    "v_sad_u8": lambda a, b, c: sad(a, b) + c,
    "v_sad_hi_u8": lambda a, b, c: (sad(a, b) << 16) + c,
    "v_sad_u16": lambda a, b, c: sum(abs(x - y) for x, y in zip(halves(a), halves(b), strict=True)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_msad_u8": lambda a, b, c: sum(abs(x - y) for x, y in zip(bytes_of(a), bytes_of(b), strict=True) if y) + c,
    "v_lerp_u8": lambda a, b, c: sum(
        (x + y + (z & 1) >> 1) << 8 * i
        for i, (x, y, z) in enumerate(zip(bytes_of(a), bytes_of(b), bytes_of(c), strict=True))
    ),
    "v_cndmask_b32": lambda a, b, c: b if c else a,
    "v_pack_b32_f16": lambda a, b: b << 16 | a,
    "v_pk_mad_i16": lambda a, b, c: a * b + c,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_pk_ashrrev_i16": lambda a, b: b >> (a & 15),
    "v_pk_max_i16": max,
    "v_pk_max_u16": max,
    "v_pk_min_i16": min,
    "v_pk_min_u16": min,
}


@pytest.mark.parametrize("name", INTEGER_ORACLES)
def test_integers(name):
    check(name, INTEGER_ORACLES[name])


SATURATING = {
    "v_mul_u32_u24": lambda a, b: clamp_u(low24(a) * low24(b)),
    "v_add_u32": lambda a, b: clamp_u(a + b),
    "v_sub_u32": lambda a, b: clamp_u(a - b),
    "v_subrev_u32": lambda a, b: clamp_u(b - a),
    "v_add_i32": lambda a, b: clamp_s(a + b),
    "v_sub_i32": lambda a, b: clamp_s(a - b),
    "v_add_u16": lambda a, b: clamp_u(a + b, 16),
    "v_sub_u16": lambda a, b: clamp_u(a - b, 16),
    "v_subrev_u16": lambda a, b: clamp_u(b - a, 16),
    "v_add_i16": lambda a, b: clamp_s(a + b, 16),
    "v_sub_i16": lambda a, b: clamp_s(a - b, 16),
    "v_mad_i32_i24": lambda a, b, c: clamp_s(s24(a) * s24(b) + c),
    "v_mad_u32_u24": lambda a, b, c: clamp_u(low24(a) * low24(b) + c),
    "v_mad_u32_u16": lambda a, b, c: clamp_u(a * b + c),
    "v_mad_i32_i16": lambda a, b, c: clamp_s(a * b + c),
    "v_mad_u16": lambda a, b, c: clamp_u(a * b + c, 16),
    "v_mad_i16": lambda a, b, c: clamp_s(a * b + c, 16),
    "v_add_co_u32": lambda a, b: (clamp_u(a + b), a + b > M32),
    "v_sub_co_u32": lambda a, b: (clamp_u(a - b), b > a),
    "v_subrev_co_u32": lambda a, b: (clamp_u(b - a), a > b),
    "v_addc_co_u32": lambda a, b, c: (clamp_u(a + b + c), a + b + c > M32),
    "v_subb_co_u32": lambda a, b, c: (clamp_u(a - b - c), b + c > a),
    "v_subbrev_co_u32": lambda a, b, c: (clamp_u(b - a - c), a + c > b),
    "v_mad_u64_u32": lambda a, b, c: (clamp_u(a * b + c, 64), a * b + c > M64),
    "v_mad_i64_i32": lambda a, b, c: (clamp_s(a * b + c, 64), (a * b + c) >> 64 & 1),
    "v_pk_add_i16": lambda a, b: clamp_s(a + b, 16),
    "v_pk_sub_u16": lambda a, b: clamp_u(a - b, 16),
    "v_pk_mad_u16": lambda a, b, c: clamp_u(a * b + c, 16),
    "v_pk_mad_i16": lambda a, b, c: clamp_s(a * b + c, 16),
}


@pytest.mark.parametrize("name", SATURATING)
def test_clamp_saturates_integers(name):
    check(name, SATURATING[name], seed=2, clamp=1)


@pytest.mark.parametrize("table", [0x00, 0x01, 0x08, 0x40, 0x54, 0x96, 0xEA, 0xFE, 0xFF, 0xD2])
def test_bitop3(table):
    def oracle(a, b, c):
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i for i in range(32))

    fields = {"omod": table >> 6, "abs": table >> 3 & 7, "neg": table & 7}
    check("v_bitop3_b32", oracle, **fields)
    check("v_bitop3_b16", lambda a, b, c: oracle(a, b, c) & 0xFFFF, **fields)


def test_mbcnt_counts_lanes_below():
    for name, start in (("v_mbcnt_lo_u32_b32", 0), ("v_mbcnt_hi_u32_b32", 32)):
        definition = lookup(name)
        inputs = inputs_of(definition, 3)
        (result,) = run(definition, inputs)
        for row in range(0, SHAPE[0], 7):
            for lane in range(64):
                below = ((1 << lane) - 1) >> start & M32
                expected = (int(inputs["src0"][row, lane]) & below).bit_count() + int(inputs["src1"][row, lane])
                assert int(result[row, lane]) == expected & M32


# ---- floats ----------------------------------------------------------------------------------------------------------


def is_nan(bits: int, width: int) -> bool:
    return bits & (1 << width - 1) - 1 > infinity(width)


def is_signaling(bits: int, width: int) -> bool:
    return is_nan(bits, width) and not bits >> MANTISSA[width] - 1 & 1


def quiet(bits: int, width: int) -> int:
    return bits | 1 << MANTISSA[width] - 1


@functools.cache
def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(2) ** exponent


@functools.lru_cache(1 << 17)
def number(bits: int, width: int) -> Fraction | float:
    """Exact value; infinities as floats."""
    negative, magnitude = bits >> width - 1, bits & (1 << width - 1) - 1
    if magnitude == infinity(width):
        return -math.inf if negative else math.inf
    mantissa, bias = MANTISSA[width], (1 << width - MANTISSA[width] - 2) - 1
    exponent, fraction = magnitude >> mantissa, magnitude & (1 << mantissa) - 1
    significand = fraction | (1 << mantissa if exponent else 0)
    value = Fraction(significand) * power(max(exponent, 1) - bias - mantissa)
    return -value if negative else value


def rounded(value: Fraction, width: int, zero_sign: int = 0) -> int:
    """Nearest-even bits of an exact value."""
    mantissa, bias = MANTISSA[width], (1 << width - MANTISSA[width] - 2) - 1
    if value == 0:
        return zero_sign << width - 1
    sign, value = (1 << width - 1, -value) if value < 0 else (0, value)
    top, bottom = value.numerator, value.denominator
    exponent = top.bit_length() - bottom.bit_length()
    exponent -= (bottom << exponent > top) if exponent >= 0 else (bottom > top << -exponent)
    scale = max(exponent, 1 - bias) - mantissa
    top, bottom = (top << -scale, bottom) if scale < 0 else (top, bottom << scale)
    count, rest = divmod(top, bottom)
    count += 2 * rest > bottom or (2 * rest == bottom and count & 1)
    code = count if exponent < 1 - bias else count + (exponent + bias - 1 << mantissa)
    return sign | min(code, infinity(width))


def arithmetic(width: int, exact):
    """An oracle: NaNs by the ledger's rule, then `exact` on numbers gives a value or None for a made NaN."""

    def oracle(*operands):
        nans = [o for o in operands if is_nan(o, width)]
        if nans:
            return quiet(nans[0], width)
        result = exact(*operands)
        return (1 << width) - (1 << MANTISSA[width] - 1) if result is None else result

    return oracle


def add_exact(width: int):
    def exact(a, b):
        x, y = number(a, width), number(b, width)
        if math.inf in (abs(x), abs(y)):
            total = float(x if abs(x) == math.inf else 0) + float(y if abs(y) == math.inf else 0)
            return None if math.isnan(total) else infinity(width) | (total < 0) << width - 1
        both_negative = a >> width - 1 & b >> width - 1
        return rounded(x + y, width, both_negative)

    return exact


def fma_exact(width: int):
    def exact(a, b, c):
        x, y, z = (number(v, width) for v in (a, b, c))
        sign = (a ^ b) >> width - 1
        if math.inf in (abs(x), abs(y)):
            if 0 in (x, y) or (abs(z) == math.inf and (z < 0) != bool(sign)):
                return None
            return infinity(width) | sign << width - 1
        if abs(z) == math.inf:
            return c
        return rounded(x * y + z, width, sign if x * y == 0 and z == 0 and sign == c >> width - 1 else 0)

    return exact


def mul_exact(width: int):
    def exact(a, b):
        x, y, sign = number(a, width), number(b, width), (a ^ b) >> width - 1
        if math.inf in (abs(x), abs(y)):
            return None if 0 in (x, y) else infinity(width) | sign << width - 1
        return rounded(x * y, width, sign) | sign << width - 1

    return exact


def negated(bits: int, width: int) -> int:
    return bits ^ 1 << width - 1


def flip_second(width: int, oracle):
    """a - b: as a + -b, but a NaN keeps its own sign."""

    def flipped(a, b):
        return oracle(a, b if is_nan(b, width) else negated(b, width))

    return flipped


ARITHMETIC = {}
for _suffix, _width in (("f16", 16), ("f32", 32), ("f64", 64)):
    _add = arithmetic(_width, add_exact(_width))
    ARITHMETIC[f"v_add_{_suffix}"] = _add
    ARITHMETIC[f"v_mul_{_suffix}"] = arithmetic(_width, mul_exact(_width))
    ARITHMETIC[f"v_fma_{_suffix}"] = arithmetic(_width, fma_exact(_width))
    if _width < 64:
        ARITHMETIC[f"v_sub_{_suffix}"] = flip_second(_width, _add)
        ARITHMETIC[f"v_pk_add_{_suffix}"] = _add
        ARITHMETIC[f"v_pk_mul_{_suffix}"] = ARITHMETIC[f"v_mul_{_suffix}"]
        ARITHMETIC[f"v_pk_fma_{_suffix}"] = ARITHMETIC[f"v_fma_{_suffix}"]
ARITHMETIC["v_fmac_f32"] = ARITHMETIC["v_fma_f32"]
ARITHMETIC["v_fmac_f64"] = ARITHMETIC["v_fma_f64"]


@pytest.mark.parametrize("name", ARITHMETIC)
def test_float_arithmetic(name):
    check(name, ARITHMETIC[name], seed=4)


@pytest.mark.parametrize("suffix", ["f16", "f32"])
def test_subrev_swaps(suffix):
    definition, other = lookup(f"v_subrev_{suffix}"), lookup(f"v_sub_{suffix}")
    inputs = inputs_of(definition, 6)
    swapped = {"src0": inputs["src1"], "src1": inputs["src0"]}
    np.testing.assert_array_equal(run(definition, inputs)[0], run(other, swapped)[0])


def test_literal_multiply_adds():
    """FMAMK: D = S0 * K + S1; FMAAK: D = S0 * S1 + K."""
    constant, fused = 0x3FC00000, ARITHMETIC["v_fma_f32"]
    check("v_fmamk_f32", lambda a, b: fused(a, constant, b), literal=constant)
    check("v_fmaak_f32", lambda a, b: fused(a, b, constant), literal=constant)


def test_unfused_f16_multiply_add_rounds_twice_and_flushes():
    def flush(bits):
        return bits & 0x8000 if bits & 0x7C00 == 0 else bits

    def oracle(a, b, c):
        product = flush(ARITHMETIC["v_mul_f16"](flush(a), flush(b)))
        return flush(ARITHMETIC["v_add_f16"](product, flush(c)))

    check("v_mac_f16", oracle)
    check("v_mad_f16", oracle)
    check("v_madmk_f16", lambda a, b: oracle(a, 0x3E00, b), literal=0x3E00)


@pytest.mark.parametrize("name", ["v_add_f16", "v_sub_f16", "v_mul_f16", "v_fma_f16", "v_pk_add_f16", "v_pk_fma_f16"])
def test_fp16_ovfl_saturates_finite_overflows(name):
    def oracle(*operands):
        result = ARITHMETIC[name](*operands)
        overflowed = result & 0x7FFF == 0x7C00 and all(o & 0x7FFF < 0x7C00 for o in operands)
        return result - overflowed

    check(name, oracle, seed=4, mode=Mode(fp16_ovfl=True))


def test_mul_legacy_zero_wins():
    def oracle(a, b):
        return 0 if 0 in (a & 0x7FFFFFFF, b & 0x7FFFFFFF) else ARITHMETIC["v_mul_f32"](a, b)

    check("v_mul_legacy_f32", oracle)


def key(bits: int, width: int) -> int:
    """Orders numbers with -0 below +0."""
    return -(bits & (1 << width - 1) - 1) - 1 if bits >> width - 1 else bits


def min_max(width: int, pick, ieee: bool):
    def oracle(a, b):
        if ieee and is_signaling(a, width):
            return quiet(a, width)
        if ieee and is_signaling(b, width):
            return quiet(b, width)
        if is_nan(a, width):
            return b
        if is_nan(b, width):
            return a
        return pick(a, b, key=lambda v: key(v, width))

    return oracle


@pytest.mark.parametrize("ieee", [True, False])
@pytest.mark.parametrize(("suffix", "width"), [("f16", 16), ("f32", 32), ("f64", 64)])
def test_min_and_max(suffix, width, ieee):
    mode = Mode(ieee=ieee)
    smaller, larger = (min_max(width, pick, ieee) for pick in (min, max))
    for prefix in ("v_", "v_pk_") if width == 16 else ("v_",):
        check(f"{prefix}min_{suffix}", smaller, mode=mode)
        check(f"{prefix}max_{suffix}", larger, mode=mode)
    if width < 64:
        check(f"v_min3_{suffix}", lambda a, b, c: smaller(smaller(a, b), c), mode=mode)
        check(f"v_max3_{suffix}", lambda a, b, c: larger(larger(a, b), c), mode=mode)


@pytest.mark.parametrize(("suffix", "width"), [("f16", 16), ("f32", 32)])
def test_med3(suffix, width):
    smaller, larger = (min_max(width, pick, True) for pick in (min, max))

    def equal(a, b):
        return number(a, width) == number(b, width)

    def oracle(a, b, c):
        if any(is_nan(v, width) for v in (a, b, c)):
            return smaller(smaller(a, b), c)
        largest = larger(larger(a, b), c)
        if equal(largest, a):
            return larger(b, c)
        return larger(a, c) if equal(largest, b) else larger(a, b)

    check(f"v_med3_{suffix}", oracle)


@pytest.mark.parametrize(
    ("name", "width", "pick"),
    [
        ("v_minimum3_f32", 32, min),
        ("v_maximum3_f32", 32, max),
        ("v_pk_minimum3_f16", 16, min),
        ("v_pk_maximum3_f16", 16, max),
    ],
)
@pytest.mark.parametrize("ieee", [True, False])
def test_minimum_and_maximum_propagate_nans(name, width, pick, ieee):
    def oracle(*operands):
        nans = [o for o in operands if is_nan(o, width)]
        return quiet(nans[0], width) if nans else pick(operands, key=lambda v: key(v, width))

    check(name, oracle, mode=Mode(ieee=ieee))


def test_min_flushes_denormals_when_mode_says():
    def flushed(bits):
        return bits & 0x80000000 if bits & infinity(32) == 0 else bits

    smaller = min_max(32, min, True)
    check("v_min_f32", lambda a, b: smaller(flushed(a), flushed(b)), mode=Mode(denorm32=0))


# ---- compares --------------------------------------------------------------------------------------------------------

RELATIONS = {
    "f": lambda a, b: False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "lg": lambda a, b: a < b or a > b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: True,
    "tru": lambda a, b: True,
}
FLOAT_NAMES = ["f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru"]


def same_relation(name, kind):
    """The compare that writes EXEC gives the mask of the one that does not."""
    inputs = inputs_of(lookup(f"v_cmp_{name}_{kind}"), 8)
    (one,), (other,) = (run(lookup(f"{prefix}_{name}_{kind}"), inputs) for prefix in ("v_cmp", "v_cmpx"))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["i16", "u16", "i32", "u32", "i64", "u64"])
def test_integer_compares(kind):
    for name in ("f", "lt", "eq", "le", "gt", "ne", "ge", "t"):
        check(f"v_cmp_{name}_{kind}", RELATIONS[name], seed=7)
        same_relation(name, kind)


@pytest.mark.parametrize(("kind", "width"), [("f16", 16), ("f32", 32), ("f64", 64)])
@pytest.mark.parametrize("name", FLOAT_NAMES)
def test_float_compares(kind, width, name):
    """A name that starts with n is the complement, true with a NaN; o and u ask for NaNs."""

    def oracle(a, b):
        unordered = is_nan(a, width) or is_nan(b, width)
        if name in ("o", "u"):
            return unordered == (name == "u")
        if name.startswith("n"):
            relation = RELATIONS[name[1:]]
            return unordered or not relation(number(a, width), number(b, width))
        if name in ("f", "tru"):
            return name == "tru"
        return not unordered and RELATIONS[name](number(a, width), number(b, width))

    check(f"v_cmp_{name}_{kind}", oracle, seed=9)
    same_relation(name, kind)


@pytest.mark.parametrize(("kind", "width"), [("f16", 16), ("f32", 32), ("f64", 64)])
def test_class(kind, width):
    def classify(bits):
        if is_nan(bits, width):
            return 0 if is_signaling(bits, width) else 1
        negative, magnitude = bits >> width - 1, bits & (1 << width - 1) - 1
        if magnitude == infinity(width):
            return 2 if negative else 9
        if magnitude == 0:
            return 5 if negative else 6
        if magnitude < 1 << MANTISSA[width]:
            return 4 if negative else 7
        return 3 if negative else 8

    check(f"v_cmp_class_{kind}", lambda a, wanted: wanted >> classify(a) & 1, seed=10)
    same_relation("class", kind)


# ---- conversions between integers and floats -------------------------------------------------------------------------


def truncated(bits: int, width: int, low: int, high: int) -> int:
    if is_nan(bits, width):
        return 0
    value = number(bits, width)
    return high if value > high else low if value < low else math.trunc(value)


def floored(bits: int, width: int, plus: Fraction, low: int, high: int) -> int:
    if is_nan(bits, width):
        return 0
    value = number(bits, width)
    if abs(value) == math.inf:
        return high if value > 0 else low
    return max(low, min(high, math.floor(value + plus)))


I32, U32 = (-(1 << 31), (1 << 31) - 1), (0, M32)
TO_INTEGER = {
    "v_cvt_i32_f32": lambda a: truncated(a, 32, *I32),
    "v_cvt_u32_f32": lambda a: truncated(a, 32, *U32),
    "v_cvt_i32_f64": lambda a: truncated(a, 64, *I32),
    "v_cvt_u32_f64": lambda a: truncated(a, 64, *U32),
    "v_cvt_i16_f16": lambda a: truncated(a, 16, -32768, 32767),
    "v_cvt_u16_f16": lambda a: truncated(a, 16, 0, 65535),
    "v_cvt_flr_i32_f32": lambda a: floored(a, 32, Fraction(0), *I32),
    "v_cvt_rpi_i32_f32": lambda a: floored(a, 32, Fraction(1, 2), *I32),
}


@pytest.mark.parametrize("name", TO_INTEGER)
def test_float_to_integer(name):
    check(name, TO_INTEGER[name], seed=11)


FROM_INTEGER = {
    "v_cvt_f32_i32": lambda a: rounded(Fraction(a), 32),
    "v_cvt_f32_u32": lambda a: rounded(Fraction(a), 32),
    "v_cvt_f64_i32": lambda a: rounded(Fraction(a), 64),
    "v_cvt_f64_u32": lambda a: rounded(Fraction(a), 64),
    "v_cvt_f16_u16": lambda a: rounded(Fraction(a), 16),
    "v_cvt_f16_i16": lambda a: rounded(Fraction(a), 16),
    "v_cvt_f32_ubyte0": lambda a: rounded(Fraction(a & 0xFF), 32),
    "v_cvt_f32_ubyte1": lambda a: rounded(Fraction(a >> 8 & 0xFF), 32),
    "v_cvt_f32_ubyte2": lambda a: rounded(Fraction(a >> 16 & 0xFF), 32),
    "v_cvt_f32_ubyte3": lambda a: rounded(Fraction(a >> 24), 32),
    "v_cvt_off_f32_i4": lambda a: rounded(Fraction(signed(a & 15, 4), 16), 32),
}


@pytest.mark.parametrize("name", FROM_INTEGER)
def test_integer_to_float(name):
    check(name, FROM_INTEGER[name], seed=13)


def integral(width: int, whole):
    def exact(a):
        value = number(a, width)
        return a if abs(value) == math.inf else rounded(Fraction(whole(value)), width, a >> width - 1)

    return arithmetic(width, exact)


@pytest.mark.parametrize(("suffix", "width"), [("f16", 16), ("f32", 32), ("f64", 64)])
def test_integral_values_keep_the_sign_of_zero(suffix, width):
    for name, whole in (("trunc", math.trunc), ("ceil", math.ceil), ("floor", math.floor), ("rndne", round)):
        check(f"v_{name}_{suffix}", integral(width, whole), seed=14)


@pytest.mark.parametrize(("suffix", "width"), [("f32", 32), ("f64", 64)])
def test_fract_stays_below_one(suffix, width):
    def exact(a):
        value = number(a, width)
        if abs(value) == math.inf:
            return None
        one = infinity(width) >> 1 & ~((1 << MANTISSA[width]) - 1)
        return min(rounded(value - math.floor(value), width), one - 1)

    check(f"v_fract_{suffix}", arithmetic(width, exact))


# ---- transcendental --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["exp", "log", "rcp", "rsq", "sqrt"])
def test_transcendental_instructions_run_the_native_of_their_name(name):
    bits = random_bits(32, 30, True)
    (result,) = run(lookup(f"v_{name}_f32"), {"src0": bits})
    native = NATIVES[f"v_{name}_f32"](np.ascontiguousarray(bits[:, None, :]), 0)
    np.testing.assert_array_equal(result, native[:, 0, :])
    halves = random_bits(16, 31, True)
    (result,) = run(lookup(f"v_{name}_f16"), {"src0": halves})
    native = NATIVES[f"v_{name}_f16"](np.ascontiguousarray(halves[:, None, :].astype(np.uint32)), 0)
    np.testing.assert_array_equal(result, native[:, 0, :] & 0xFFFF)


def test_f64_approximations_are_correctly_rounded():
    def reciprocal(a):
        value = number(a, 64)
        if value == 0:
            return infinity(64) | (a >> 63) << 63
        return (a >> 63) << 63 if abs(value) == math.inf else rounded(1 / value, 64)

    check("v_rcp_f64", arithmetic(64, reciprocal))
    bits = random_bits(64, 33, True)
    (result,) = run(lookup("v_sqrt_f64"), {"src0": bits})
    with np.errstate(invalid="ignore"):
        values = bits.view(np.float64)
        expected = np.sqrt(values).view(np.uint64)
    expected = np.where(np.isnan(expected.view(np.float64)), np.uint64(0xFFF8000000000000), expected)
    expected = np.where(np.isnan(values), bits | np.uint64(1 << 51), expected)
    np.testing.assert_array_equal(result, expected)


# ---- through the decoder and the executor ----------------------------------------------------------------------------


def filled_wave(seed: int = 1, mode: Mode | None = None) -> Wave:
    wave = Wave(mode=mode)
    generator = np.random.default_rng(seed)
    wave.vgprs[:] = generator.integers(0, 1 << 32, wave.vgprs.shape, dtype=np.uint64).astype(np.uint32)
    wave.sgprs[:100] = generator.integers(0, 1 << 32, 100, dtype=np.uint64).astype(np.uint32)
    return wave


def step(wave: Wave, code: bytes) -> None:
    at = 0
    while at < len(code):
        decoded = decode(code, at)
        wave.step(decoded)
        at += decoded.nbytes


def test_lane_moves_ignore_exec(assemble):
    wave = filled_wave()
    wave.set_exec(0)
    old = wave.vgprs.copy()
    wave.sgprs[7] = 66
    step(
        wave,
        assemble("""
v_readfirstlane_b32 s0, v3
v_readlane_b32 s1, v3, s7
v_readlane_b32 s2, v3, 63
"""),
    )
    assert [wave.sgprs[i] for i in range(3)] == [old[3, 0], old[3, 2], old[3, 63]]
    step(
        wave,
        assemble("""
s_mov_b32 m0, s7
v_writelane_b32 v4, s2, m0
"""),
    )
    expected = old[4].copy()
    expected[2] = old[3, 63]
    np.testing.assert_array_equal(wave.vgprs[4], expected)
    wave.set_exec(0xF0F0 << 20)
    step(wave, assemble("v_readfirstlane_b32 s0, v3"))
    assert wave.sgprs[0] == old[3, 24]


def test_swap_and_moves(assemble):
    wave = filled_wave()
    old = wave.vgprs.copy()
    step(
        wave,
        assemble("""
v_swap_b32 v1, v2
v_cndmask_b32_e64 v3, -|v4|, -|v4|, s[0:1]
v_mov_b64 v[6:7], v[8:9]
v_mov_b64 v[10:11], 0x80000001
"""),
    )
    np.testing.assert_array_equal(wave.vgprs[1:3], old[[2, 1]])
    np.testing.assert_array_equal(wave.vgprs[3], old[4] | 0x80000000)
    np.testing.assert_array_equal(wave.vgprs[6:8], old[8:10])
    np.testing.assert_array_equal(wave.vgprs[10:12], np.array([[0x80000001], [0]], dtype=np.uint32).repeat(64, 1))


def test_compares_replace_the_whole_mask(assemble):
    wave = filled_wave()
    wave.set_exec(0x00000000FFFF0000)
    wave.sgprs[106:108] = M32
    step(
        wave,
        assemble("""
v_cmp_lt_u32 vcc, v1, v2
v_cmp_le_u32_e64 s[20:21], v1, v2
"""),
    )
    less = [int(a) < int(b) for a, b in zip(wave.vgprs[1], wave.vgprs[2], strict=True)]
    expected = sum(1 << i for i in range(16, 32) if less[i])
    assert int(wave.sgprs[106]) | int(wave.sgprs[107]) << 32 == expected
    step(wave, assemble("v_cmpx_gt_u32_e64 s[30:31], v1, v2"))
    expected = sum(1 << i for i in range(16, 32) if wave.vgprs[1, i] > wave.vgprs[2, i])
    assert [int(v) for v in wave.sgprs[30:32]] == [expected & M32, expected >> 32]
    assert [int(v) for v in wave.sgprs[126:128]] == [expected & M32, expected >> 32]


def test_carry_through_a_pair_and_clamp_through_sdwa(assemble):
    wave = filled_wave()
    old, pair = wave.vgprs.copy(), int(wave.sgprs[22]) | int(wave.sgprs[23]) << 32
    step(
        wave,
        assemble("""
v_addc_co_u32_e64 v10, s[20:21], v2, v4, s[22:23]
v_add_u32_sdwa v11, v2, v4 clamp dst_sel:DWORD src0_sel:DWORD src1_sel:DWORD
"""),
    )
    totals = [int(old[2, i]) + int(old[4, i]) + (pair >> i & 1) for i in range(64)]
    assert [int(v) for v in wave.vgprs[10]] == [t & M32 for t in totals]
    assert int(wave.sgprs[20]) | int(wave.sgprs[21]) << 32 == sum((t >> 32) << i for i, t in enumerate(totals))
    assert [int(v) for v in wave.vgprs[11]] == [clamp_u(int(a) + int(b)) for a, b in zip(old[2], old[4], strict=True)]


def test_half_results(assemble):
    """Native 64-bit instructions keep the other half, 32-bit ones write zeros above."""
    wave = filled_wave()
    old = wave.vgprs.copy()
    step(
        wave,
        assemble("""
v_add_u16_e32 v10, v2, v4
v_mad_u16 v11, v2, v4, v6 op_sel:[1,0,1,1]
v_sub_i16 v12, v2, v4
"""),
    )
    for i in range(64):
        a, b, c = (int(old[r, i]) for r in (2, 4, 6))
        assert wave.vgprs[10, i] == (a + b) & 0xFFFF
        assert wave.vgprs[11, i] == ((a >> 16) * b + (c >> 16) & 0xFFFF) << 16 | (old[11, i] & 0xFFFF)
        assert wave.vgprs[12, i] == (a - b) & 0xFFFF | (old[12, i] & 0xFFFF0000)


def test_packed_registers_choose_their_dwords(assemble):
    wave = filled_wave()
    step(
        wave,
        assemble("""
v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]
v_pk_mov_b32 v[12:13], v[2:3], 1.0 op_sel:[0,1]
"""),
    )
    np.testing.assert_array_equal(wave.vgprs[10:12], wave.vgprs[[3, 4]])
    np.testing.assert_array_equal(wave.vgprs[12], wave.vgprs[2])
    assert set(wave.vgprs[13].tolist()) == {0x3F800000}
    wave.vgprs[20:26] = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=np.float32).view(np.uint32)[:, None]
    wave.sgprs[6:8] = np.array([10.0, 20.0], dtype=np.float32).view(np.uint32)
    step(
        wave,
        assemble("""
v_pk_fma_f32 v[30:31], v[20:21], s[6:7], v[24:25]
v_pk_mul_f32 v[32:33], v[20:21], s[6:7] op_sel_hi:[1,0] neg_hi:[1,0]
"""),
    )
    assert wave.vgprs[30:34, 5].view(np.float32).tolist() == [15.0, 46.0, 10.0, -20.0]


# ---- division --------------------------------------------------------------------------------------------------------

DIVISION = """
v_div_scale_f32 v2, s[0:1], v1, v1, v0
v_rcp_f32_e32 v3, v2
v_fma_f32 v4, -v2, v3, 1.0
v_fmac_f32_e32 v3, v4, v3
v_div_scale_f32 v4, vcc, v0, v1, v0
v_mul_f32_e32 v5, v4, v3
v_fma_f32 v6, -v2, v5, v4
v_fmac_f32_e32 v5, v6, v3
v_fma_f32 v2, -v2, v5, v4
v_div_fmas_f32 v2, v2, v3, v5
v_div_fixup_f32 v7, v2, v1, v0
"""


def division_operands(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random bit pairs, special values, and quotients in and around the denormal range."""
    generator = np.random.default_rng(seed)
    a, b = (generator.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32) for _ in range(2))
    special = np.array(specials(32), dtype=np.uint32)
    for operand in (a, b):
        chosen = generator.random(count) < 0.1
        operand[chosen] = special[generator.integers(0, len(special), int(chosen.sum()))]
    tiny = slice(0, count // 3)  # exponent of the quotient from -152 to -120
    exponent_b = generator.integers(125, 255, a[tiny].size)
    exponent_a = np.clip(exponent_b - generator.integers(120, 153, a[tiny].size), 0, 254)
    a[tiny] = a[tiny] & 0x807FFFFF | exponent_a.astype(np.uint32) << 23
    b[tiny] = b[tiny] & 0x807FFFFF | exponent_b.astype(np.uint32) << 23
    b[: count // 12] &= 0xFFF00000  # few significant bits: exact quotients and ties among denormals
    return a, b


def expected_quotients(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        quotient = (a.view(np.float32) / b.view(np.float32)).view(np.uint32)
    nan_a, nan_b = (np.isnan(v.view(np.float32)) for v in (a, b))
    made = np.isnan(quotient.view(np.float32))
    quotient = np.where(made, np.uint32(0xFFC00000), quotient)
    return np.where(nan_a, a | 0x00400000, np.where(nan_b, b | 0x00400000, quotient)).astype(np.uint32)


class WideWave(Wave):
    """Many waves at once: vector registers are (512, batch, 64), VCC and pairs (batch, 1)."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.vgprs = np.zeros((512, batch, 64), dtype=np.uint32)
        self.wide = {}

    def sgpr(self, index):
        return self.wide.get(index, super().sgpr(index))

    def set_sgpr(self, index, value):
        self.wide[index] = value


def divide(a: np.ndarray, b: np.ndarray, code: bytes) -> np.ndarray:
    wave = WideWave(a.size // 64)
    wave.vgprs[0], wave.vgprs[1] = a.reshape(-1, 64), b.reshape(-1, 64)
    step(wave, code)
    return wave.vgprs[7].ravel()


def test_llvms_division_is_correctly_rounded(assemble):
    """The instructions that clang emits for a / b at gfx950 give the IEEE quotient."""
    a, b = division_operands(64 * 3200, 17)
    got = divide(a, b, assemble(DIVISION))
    wrong = np.flatnonzero(got != expected_quotients(a, b))
    assert wrong.size == 0, (
        f"{wrong.size} of {a.size}: first {a[wrong[0]]:08x} / {b[wrong[0]]:08x} gave {got[wrong[0]]:08x}"
    )


def test_division_f16_fixup():
    def oracle(q, d, n):
        if is_nan(n, 16):
            return quiet(n, 16)
        if is_nan(d, 16):
            return quiet(d, 16)
        sign, x, y = (d ^ n) & 0x8000, abs(number(d, 16)), abs(number(n, 16))
        if (x == 0 and y == 0) or (x == math.inf and y == math.inf):
            return 0xFE00
        if x == 0 or y == math.inf:
            return sign | 0x7C00
        if x == math.inf or y == 0:
            return sign
        return sign | q & 0x7FFF

    check("v_div_fixup_f16", oracle)


def test_the_oracle_of_floats():
    """`number` and `rounded`, against struct."""
    for bits in specials(32):
        if not is_nan(bits, 32):
            assert float(number(bits, 32)) == struct.unpack("<f", struct.pack("<I", bits))[0]
    assert rounded(Fraction(1, 3), 32) == struct.unpack("<I", struct.pack("<f", 1 / 3))[0]


DIVISION_F64 = """
v_div_scale_f64 v[4:5], s[0:1], v[2:3], v[2:3], v[0:1]
v_rcp_f64_e32 v[6:7], v[4:5]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fmac_f64_e32 v[6:7], v[6:7], v[8:9]
v_fma_f64 v[8:9], -v[4:5], v[6:7], 1.0
v_fmac_f64_e32 v[6:7], v[6:7], v[8:9]
v_div_scale_f64 v[8:9], vcc, v[0:1], v[2:3], v[0:1]
v_mul_f64 v[10:11], v[8:9], v[6:7]
v_fma_f64 v[4:5], -v[4:5], v[10:11], v[8:9]
v_div_fmas_f64 v[4:5], v[4:5], v[6:7], v[10:11]
v_div_fixup_f64 v[0:1], v[4:5], v[2:3], v[0:1]
"""


def test_llvms_f64_division_is_correctly_rounded(assemble):
    """The instructions that clang emits for a / b in double: random bits, specials, denormal quotients and ties."""
    generator, count = np.random.default_rng(18), 64 * 160
    a, b = (generator.integers(0, 1 << 64, count, dtype=np.uint64) for _ in range(2))
    exponent_b = generator.integers(1100, 2046, count // 2)
    exponent_a = np.clip(exponent_b - generator.integers(1015, 1080, count // 2), 0, 2046)
    for operand, exponent in ((a, exponent_a), (b, exponent_b)):
        part = operand[: count // 2]
        part[:] = part & np.uint64(0x800FFFFFFFFFFFFF) | exponent.astype(np.uint64) << np.uint64(52)
        part[: count // 4] &= np.uint64(0xFFFFFF0000000000)
        chosen = generator.integers(count // 2, count, count // 20)
        operand[chosen] = np.array(specials(64), np.uint64)[generator.integers(0, len(specials(64)), chosen.size)]
    b[: count // 8] &= np.uint64(0xFFF0000000000000)
    wave = WideWave(count // 64)
    for register, operand in ((0, a), (2, b)):
        words = operand.view(np.uint32).reshape(-1, 64, 2)
        wave.vgprs[register], wave.vgprs[register + 1] = words[..., 0], words[..., 1]
    step(wave, assemble(DIVISION_F64))
    got = np.stack([wave.vgprs[0], wave.vgprs[1]], axis=-1).ravel().view(np.uint64)
    with np.errstate(all="ignore"):
        expected = (a.view(np.float64) / b.view(np.float64)).view(np.uint64)
    nan_a, nan_b, made = (np.isnan(v.view(np.float64)) for v in (a, b, expected))
    expected = np.where(made, np.uint64(0xFFF8000000000000), expected)
    bit = np.uint64(1 << 51)
    expected = np.where(nan_a, a | bit, np.where(nan_b, b | bit, expected))
    wrong = np.flatnonzero(got != expected)
    assert wrong.size == 0, f"{wrong.size}: {a[wrong[0]]:016x} / {b[wrong[0]]:016x} gave {got[wrong[0]]:016x}"


# ---- powers of two, parts of floats ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "width"), [("f16", 16), ("f32", 32), ("f64", 64)])
def test_ldexp(suffix, width):
    def oracle(a, count):
        if is_nan(a, width):
            return quiet(a, width)
        value = number(a, width)
        if abs(value) == math.inf:
            return a
        return rounded(value * Fraction(2) ** max(-3000, min(3000, count)), width, a >> width - 1)

    definition = lookup(f"v_ldexp_{suffix}")
    inputs = inputs_of(definition, 20)
    near = np.random.default_rng(21).integers(-2 * 1074, 1100, SHAPE)
    limit = {16: 60, 32: 300, 64: 2148}[width]
    kind = inputs["src1"].dtype
    inputs["src1"] = np.where(np.arange(64) % 4 == 0, inputs["src1"], (near % (2 * limit) - limit).astype(kind))
    (result,) = run(definition, inputs)
    for a, count, got in zip(inputs["src0"].ravel(), inputs["src1"].ravel(), result.ravel(), strict=True):
        count = signed(int(count), kind.itemsize * 8)
        assert int(got) == oracle(int(a), count), (hex(a), count)


@pytest.mark.parametrize(("suffix", "width", "exponent"), [("f16", 16, "i16"), ("f32", 32, "i32"), ("f64", 64, "i32")])
def test_frexp(suffix, width, exponent):
    """Value = fraction * 2^exponent with the fraction in [0.5, 1)."""

    def parts(a):
        value = number(a, width)
        if value == 0 or abs(value) == math.inf:
            return a, 0
        magnitude = abs(value)
        power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        power += magnitude >= Fraction(2) ** power
        return rounded(value / Fraction(2) ** power, width), power

    check(f"v_frexp_mant_{suffix}", lambda a: quiet(a, width) if is_nan(a, width) else parts(a)[0], seed=22)
    check(f"v_frexp_exp_{exponent}_{suffix}", lambda a: 0 if is_nan(a, width) else parts(a)[1], seed=22)


def test_fract_f16():
    def exact(a):
        value = number(a, 16)
        return None if abs(value) == math.inf else min(rounded(value - math.floor(value), 16), 0x3BFF)

    check("v_fract_f16", arithmetic(16, exact))


# ---- legacy, windows, mixed precision, dot products ------------------------------------------------------------------


def windows(value: int, other: int, masked: bool) -> list[int]:
    pairs = [[(value >> 8 * (w + i) & 0xFF, other >> 8 * i & 0xFF) for i in range(4)] for w in range(4)]
    return [sum(abs(x - y) for x, y in window if y or not masked) for window in pairs]


def test_sliding_windows():
    for name, masked in (("v_qsad_pk_u16_u8", False), ("v_mqsad_pk_u16_u8", True)):

        def oracle(a, b, c, masked=masked):
            return sum((s + (c >> 16 * i) & 0xFFFF) << 16 * i for i, s in enumerate(windows(a, b, masked)))

        check(name, oracle)


def test_mqsad_u32(assemble):
    wave = filled_wave()
    wave.vgprs[4] &= 0xFFFF00FF
    step(wave, assemble("v_mqsad_u32_u8 v[10:13], v[2:3], v4, v[6:9]"))
    for lane in range(64):
        value = int(wave.vgprs[2, lane]) | int(wave.vgprs[3, lane]) << 32
        sums = windows(value, int(wave.vgprs[4, lane]), True)
        assert [int(v) for v in wave.vgprs[10:14, lane]] == [
            s + int(c) & M32 for s, c in zip(sums, wave.vgprs[6:10, lane], strict=True)
        ]


def test_legacy_halves_are_zeroed(assemble):
    wave = filled_wave()
    a, b, c = (wave.vgprs[r].astype(np.uint64) for r in (2, 4, 6))
    step(wave, assemble("v_mad_legacy_u16 v10, v2, v4, v6"))
    np.testing.assert_array_equal(wave.vgprs[10], a * b + c & 0xFFFF)
    for name in ("v_mad_legacy_i16", "v_mad_legacy_u16"):
        check(name, lambda a, b, c: a * b + c)
    check("v_fma_legacy_f16", ARITHMETIC["v_fma_f16"])


@functools.cache
def f32_of_half(bits: int, kind: str) -> int:
    """f32 bits of an f16 or bf16 code, NaNs as the conversions make them."""
    if kind == "bf16":
        return bits << 16 if not bits & 0x7FFF > 0x7F80 else (bits & 0x8000) << 16 | 0x7FC00000
    if bits & 0x7FFF > 0x7C00:
        return (bits & 0x8000) << 16 | 0x7FC00000
    if bits & 0x7FFF == 0x7C00:
        return (bits & 0x8000) << 16 | 0x7F800000
    return rounded(number(bits, 16), 32, bits >> 15)


def flushed32(bits: int) -> int:
    return bits & 0x80000000 if bits & 0x7F800000 == 0 else bits


@pytest.mark.parametrize(
    ("name", "kind", "accumulator_first"),
    [
        ("v_dot2_f32_f16", "f16", True),
        ("v_dot2c_f32_f16", "f16", True),
        ("v_dot2c_f32_bf16", "bf16", True),
        ("v_dot2_f32_bf16", "bf16", False),
    ],
)
@pytest.mark.parametrize("mode", [Mode(), Mode(denorm16_64=0)], ids=["kept", "flushed"])
def test_float_dot_products(name, kind, accumulator_first, mode):
    plus, times = ARITHMETIC["v_add_f32"], ARITHMETIC["v_mul_f32"]

    def oracle(a, b, c):
        low, high = (times(f32_of_half(a >> s & 0xFFFF, kind), f32_of_half(b >> s & 0xFFFF, kind)) for s in (0, 16))
        if accumulator_first:
            return flushed32(plus(flushed32(plus(flushed32(c), low)), high))
        return flushed32(plus(flushed32(plus(low, high)), flushed32(c)))

    check(name, oracle, seed=23, mode=mode)


def test_f16_subnormals_survive_dot_products_as_measured(assemble):
    """0x8001 * 2^-14 is -2^-38 (0xac800000) whatever MODE flushes [LLVM pull request 205101, gfx950]."""
    for mode in (Mode(), Mode(ieee=False), Mode(denorm16_64=0, denorm32=0)):
        wave = Wave(mode=mode)
        wave.vgprs[1], wave.vgprs[2] = 0x8001, 0x0400
        step(wave, assemble("v_dot2_f32_f16 v3, v1, v2, 0"))
        step(wave, assemble("v_dot2c_f32_f16 v4, v1, v2"))
        assert set(wave.vgprs[3:5].ravel().tolist()) == {0xAC800000}


def elements(word: int, bits: int, is_signed: bool) -> list[int]:
    values = [word >> low & (1 << bits) - 1 for low in range(0, 32, bits)]
    return [signed(v, bits) for v in values] if is_signed else values


@pytest.mark.parametrize("clamp", [0, 1])
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("v_dot2_i32_i16", 16), ("v_dot2_u32_u16", 16), ("v_dot4_i32_i8", 8), ("v_dot4_u32_u8", 8),
        ("v_dot8_i32_i4", 4), ("v_dot8_u32_u4", 4),
        ("v_dot2c_i32_i16", 16), ("v_dot4c_i32_i8", 8), ("v_dot8c_i32_i4", 4),
    ],
)  # fmt: skip
def test_integer_dot_products(name, bits, clamp):
    is_signed = "_i32_" in name

    def oracle(a, b, c):
        pairs = zip(elements(a & M32, bits, is_signed), elements(b & M32, bits, is_signed), strict=True)
        total = c + sum(x * y for x, y in pairs)
        return (clamp_s if is_signed else clamp_u)(total) if clamp else total

    check(name, oracle, seed=24, clamp=clamp)


def test_mixed_precision(assemble):
    """Sources in f32 or f16 halves with absolute value and negation; the LO and HI forms keep the other half."""
    wave = filled_wave(5)
    wave.vgprs[2:5] = (wave.vgprs[2:5] & 0x83FF83FF) | 0x3C003C00
    old = wave.vgprs.copy()
    step(wave, assemble("v_fma_mix_f32 v10, v2, -v3, |v4| op_sel:[0,1,0] op_sel_hi:[1,1,0]"))
    step(wave, assemble("v_fma_mixlo_f16 v11, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[1,1,1]"))
    step(wave, assemble("v_fma_mixhi_f16 v12, v2, v3, v4 op_sel_hi:[1,1,1] clamp"))
    halves_of = [
        [(float(np.uint16(w & 0xFFFF).view(np.float16)), float(np.uint16(w >> 16).view(np.float16))) for w in old[r]]
        for r in (2, 3, 4)
    ]
    words = old[4].view(np.float32).astype(np.float64)
    for lane in range(64):
        (a0, a1), (b0, b1), (c0, _) = (halves_of[i][lane] for i in range(3))
        assert wave.vgprs[10, lane] == np.float32(a0 * -b1 + abs(words[lane])).view(np.uint32)
        low = int(np.float16(np.float32(a1 * b0 + c0)).view(np.uint16))
        assert wave.vgprs[11, lane] == low | int(old[11, lane]) & 0xFFFF0000
        high = int(np.float16(min(max(np.float32(a0 * b0 + c0), 0.0), 1.0)).view(np.uint16))
        assert wave.vgprs[12, lane] == high << 16 | int(old[12, lane]) & 0xFFFF


def test_pk_fmac(assemble):
    wave = filled_wave(6)
    old = wave.vgprs.copy()
    step(wave, assemble("v_pk_fmac_f16 v10, v2, v4"))
    fused = ARITHMETIC["v_fma_f16"]
    for lane in range(64):
        a, b, c = (int(old[r, lane]) for r in (2, 4, 10))
        expected = fused(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF) | fused(a >> 16, b >> 16, c >> 16) << 16
        assert wave.vgprs[10, lane] == expected
