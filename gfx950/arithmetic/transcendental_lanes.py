"""Numba parts of `transcendental`: the accurate cores, one lane function an instruction, and the loops over 64 lanes.

Lane functions go from bits to bits without branches (both sides of every choice are computed first), so that LLVM runs
many lanes at once. No f32 operation here sees a subnormal, and subnormal results are cleared by integer tests: a host
that flushes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gfx950.arithmetic.native import compiled, compiled_entry, named
from gfx950.arithmetic.result_table import CHUNK_WORDS, CLOSE, WHOLE
from gfx950.lanes import LANES

MAGNITUDE, SIGN = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
SMALLEST_NORMAL, ONE, INFINITY = np.uint32(0x00800000), np.uint32(0x3F800000), np.uint32(0x7F800000)
QUIET, NAN = np.uint32(0x00400000), np.uint32(0xFFC00000)
HALF_MAGNITUDE, HALF_SIGN = np.uint32(0x7FFF), np.uint32(0x8000)
HALF_ONE, HALF_INFINITY = np.uint32(0x3C00), np.uint32(0x7C00)
HALF_QUIET, HALF_NAN = np.uint32(0x0200), np.uint32(0xFE00)
ZERO, LAST_PLACE, MINUS_INFINITY = np.uint32(0), np.uint32(1), np.uint32(0xFF800000)
EXP2_END, EXP2_NEGATIVE_END = np.uint32(0x43000000), np.uint32(0x42FC0001)  # -126 <= x < 128
HALF_ROOT = np.uint32(0x3F3504F3)  # sqrt(1/2)

# Adding this to an f32 of magnitude below 2^22 leaves the nearest integer (ties to even) in the low bits.
ROUND_TO_INTEGER = np.float32(12582912.0)
# The same for doubles and multiples of 2^-24, the step of f16 subnormals.
ROUND_TO_HALF_STEP = 402653184.0
# Interpolation of (2^f - 1)/f at Chebyshev points of [-1/2, 1/2]: 2^-55 relative.
EXP2_TERMS = (
    0.6931471805599453,
    0.24022650695910097,
    0.0555041086648216,
    0.009618129107606888,
    0.0013333558146416936,
    0.0001540353044173605,
    1.525273382983612e-05,
    1.321544258792169e-06,
    1.0178062445845774e-07,
    7.072585949269223e-09,
    4.4549605981865186e-10,
)
# Interpolation of 2*atanh(s)/(s*log(2)) in s^2 at Chebyshev points: 2^-55 relative for |s| <= 3 - sqrt(8).
LOG2_TERMS = (
    2.8853900817779268,
    0.9617966939259899,
    0.5770780163454586,
    0.41219858585486296,
    0.3205985334227465,
    0.2623344335728468,
    0.2209109142370262,
    0.21368163909696675,
)
# 2^x of these two lies so near the middle of two f32 values that the double rounds the wrong way: both go up by one.
EXP2_LOW_BY_ONE = (np.uint32(0x3B429D37), np.uint32(0xBCF3A937))


@compiled
def bits_of_double(value: Any) -> Any:
    """The f32 nearest to a double, as bits."""
    return np.float32(value).view(np.uint32)


@compiled
def double_of_bits(bits: Any) -> Any:
    return np.float64(np.uint32(bits).view(np.float32))


@compiled
def exp2_split(x: Any) -> Any:
    """(n, 2^(x-n)) for an f32 x, n the nearest integer as a word whose low 9 bits are right; the power within 2^-51."""
    shifted = np.float32(x + ROUND_TO_INTEGER)
    f = np.float64(np.float32(x - np.float32(shifted - ROUND_TO_INTEGER)))  # exact: a multiple of the last place of x
    g = f * f
    c = EXP2_TERMS
    even = c[0] + g * (c[2] + g * (c[4] + g * (c[6] + g * (c[8] + g * c[10]))))
    odd = c[1] + g * (c[3] + g * (c[5] + g * (c[7] + g * c[9])))
    return shifted.view(np.uint32), 1.0 + f * (even + f * odd)


@compiled
def log2_of_bits(bits: Any) -> Any:
    """log2 of a positive normal f32 as a double, within 2^-50 relative.

    x = 2^e * m with m in [sqrt(1/2), sqrt(2)); log2 m is a series in s = (m-1)/(m+1).
    """
    e = np.int32(np.int32(bits - HALF_ROOT) >> np.int32(23))
    m = double_of_bits(np.uint32(bits - (np.uint32(e) << np.uint32(23))))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    c = LOG2_TERMS
    high = c[3] + z * (c[4] + z * (c[5] + z * (c[6] + z * c[7])))
    return np.float64(e) + s * (c[0] + z * (c[1] + z * (c[2] + z * high)))


@compiled
def exp_f32(word: Any) -> Any:
    bits = np.uint32(word)
    magnitude = np.uint32(bits & MAGNITUDE)
    negative = bits > MAGNITUDE
    end = EXP2_NEGATIVE_END if negative else EXP2_END
    below = magnitude < end
    n, power = exp2_split(np.uint32(bits if below else ZERO).view(np.float32))
    low_by_one = (bits == EXP2_LOW_BY_ONE[0]) | (bits == EXP2_LOW_BY_ONE[1])
    inside = np.uint32(bits_of_double(power) + (n << np.uint32(23)))
    inside = np.uint32(inside + (LAST_PLACE if low_by_one else ZERO))
    outside = ZERO if negative else INFINITY
    result = inside if below else outside
    quiet = np.uint32(bits | QUIET)
    return quiet if magnitude > INFINITY else result


@compiled
def log_f32(word: Any) -> Any:
    bits = np.uint32(word)
    magnitude = np.uint32(bits & MAGNITUDE)
    normal = (bits >= SMALLEST_NORMAL) & (bits < INFINITY)
    inside = bits_of_double(log2_of_bits(np.uint32(bits if normal else ONE)))
    outside = INFINITY if bits == INFINITY else NAN
    outside = MINUS_INFINITY if magnitude < SMALLEST_NORMAL else outside
    result = inside if normal else outside
    quiet = np.uint32(bits | QUIET)
    return quiet if magnitude > INFINITY else result


@compiled
def rcp_f32(bits: Any) -> Any:
    magnitude = bits & MAGNITUDE
    normal = (magnitude >= SMALLEST_NORMAL) & (magnitude < INFINITY)
    quotient = np.float32(np.float32(1.0) / np.uint32(magnitude if normal else ONE).view(np.float32)).view(np.uint32)
    inside = quotient if quotient >= SMALLEST_NORMAL else ZERO
    outside = INFINITY if magnitude < SMALLEST_NORMAL else ZERO
    result = (bits & SIGN) | (inside if normal else outside)
    return bits | QUIET if magnitude > INFINITY else result


@compiled
def rsq_f32(bits: Any) -> Any:
    magnitude = bits & MAGNITUDE
    normal = (bits >= SMALLEST_NORMAL) & (bits < INFINITY)
    inside = bits_of_double(1.0 / np.sqrt(double_of_bits(bits if normal else ONE)))
    outside = ZERO if bits == INFINITY else NAN
    outside = (bits & SIGN) | INFINITY if magnitude < SMALLEST_NORMAL else outside
    result = inside if normal else outside
    return bits | QUIET if magnitude > INFINITY else result


@compiled
def sqrt_f32(bits: Any) -> Any:
    magnitude = bits & MAGNITUDE
    normal = (bits >= SMALLEST_NORMAL) & (bits < INFINITY)
    inside = np.float32(np.sqrt(np.uint32(bits if normal else ONE).view(np.float32))).view(np.uint32)
    outside = INFINITY if bits == INFINITY else NAN
    outside = bits & SIGN if magnitude < SMALLEST_NORMAL else outside
    result = inside if normal else outside
    return bits | QUIET if magnitude > INFINITY else result


@compiled
def double_of_half(bits: Any) -> Any:
    """The value of finite f16 bits of positive sign."""
    wide = np.int64(bits) << np.int64(42)
    normal = np.int64(wide + np.int64(1008 << 52)).view(np.float64)
    return normal if bits >= np.uint32(0x0400) else np.float64(np.int32(bits)) * 5.9604644775390625e-08


@compiled
def half_of_double(value: Any) -> Any:
    """The f16 nearest to a double of positive sign (infinity too), ties to even, as bits."""
    bits = np.float64(value).view(np.int64)
    rebased = bits - np.int64(1008 << 52)
    rounded = (rebased + np.int64((1 << 41) - 1) + ((rebased >> np.int64(42)) & np.int64(1))) >> np.int64(42)
    normal = np.uint32(rounded) if value < 65520.0 else HALF_INFINITY
    small = np.uint32(np.float64((value if value < 1.0 else 0.0) + ROUND_TO_HALF_STEP).view(np.int64))
    return normal if value >= 6.103515625e-05 else small & HALF_MAGNITUDE


@compiled
def exp_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    magnitude = bits & HALF_MAGNITUDE
    negative = bits != magnitude
    below = magnitude < (np.uint32(0x4E41) if negative else np.uint32(0x4C00))  # -25 <= x < 16
    x = double_of_half(magnitude if below else ZERO)
    n, power = exp2_split(np.float32(-x if negative else x))
    scale = np.int64((np.int64(n) + np.int64(1023)) << np.int64(52)).view(np.float64)
    inside = half_of_double(power * scale)
    result = inside if below else (ZERO if negative else HALF_INFINITY)
    return bits | HALF_QUIET if magnitude > HALF_INFINITY else result


@compiled
def log_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    magnitude = bits & HALF_MAGNITUDE
    finite = (bits != ZERO) & (bits < HALF_INFINITY)
    logarithm = log2_of_bits(bits_of_double(double_of_half(bits if finite else HALF_ONE)))
    inside = half_of_double(abs(logarithm)) | (HALF_SIGN if logarithm < 0.0 else ZERO)
    outside = HALF_INFINITY if bits == HALF_INFINITY else HALF_NAN
    outside = HALF_SIGN | HALF_INFINITY if magnitude == ZERO else outside
    result = inside if finite else outside
    return bits | HALF_QUIET if magnitude > HALF_INFINITY else result


@compiled
def rcp_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    magnitude = bits & HALF_MAGNITUDE
    finite = (magnitude != ZERO) & (magnitude < HALF_INFINITY)
    inside = half_of_double(1.0 / double_of_half(magnitude if finite else HALF_ONE))
    outside = HALF_INFINITY if magnitude == ZERO else ZERO
    result = (bits & HALF_SIGN) | (inside if finite else outside)
    return bits | HALF_QUIET if magnitude > HALF_INFINITY else result


@compiled
def rsq_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    magnitude = bits & HALF_MAGNITUDE
    finite = (bits != ZERO) & (bits < HALF_INFINITY)
    inside = half_of_double(1.0 / np.sqrt(double_of_half(bits if finite else HALF_ONE)))
    outside = ZERO if bits == HALF_INFINITY else HALF_NAN
    outside = (bits & HALF_SIGN) | HALF_INFINITY if magnitude == ZERO else outside
    result = inside if finite else outside
    return bits | HALF_QUIET if magnitude > HALF_INFINITY else result


@compiled
def sqrt_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    magnitude = bits & HALF_MAGNITUDE
    finite = (bits != ZERO) & (bits < HALF_INFINITY)
    inside = half_of_double(np.sqrt(double_of_half(bits if finite else HALF_ONE)))
    outside = HALF_INFINITY if bits == HALF_INFINITY else HALF_NAN
    outside = bits if magnitude == ZERO else outside
    result = inside if finite else outside
    return bits | HALF_QUIET if magnitude > HALF_INFINITY else result


LANE_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "v_exp_f32": exp_f32,
    "v_log_f32": log_f32,
    "v_rcp_f32": rcp_f32,
    "v_rcp_iflag_f32": rcp_f32,  # differs in the exceptions it raises
    "v_rsq_f32": rsq_f32,
    "v_sqrt_f32": sqrt_f32,
    "v_exp_f16": exp_f16,
    "v_log_f16": log_f16,
    "v_rcp_f16": rcp_f16,
    "v_rsq_f16": rsq_f16,
    "v_sqrt_f16": sqrt_f16,
}


@compiled
def folded(word: Any, period: Any) -> Any:
    """(where, binades, sign) of an f32 input: a normal number whose results follow from [1, 2^period) is 2^binades
    times the number with bits `where`, and the sign is apart where the function is odd (period 1); others are
    themselves."""
    bits = np.uint32(word)
    magnitude = np.int64(bits & MAGNITUDE)
    sign = np.uint32(bits & SIGN) if period == 1 else ZERO
    follows = (magnitude >= 0x00800000) & (magnitude < 0x7F800000) & (np.uint32(bits ^ sign) == magnitude)
    binades = ((magnitude >> 23) - 127) // period * period if follows else np.int64(0)
    where = np.uint32(magnitude - (binades << 23)) if follows else bits
    return where, binades, sign if follows else ZERO


@compiled
def scaled(result: Any, binades: Any, sign: Any) -> Any:
    """A normal f32 result of positive sign moved by powers of two and given a sign; below 2^-126 it is zero."""
    bits = np.int64(result) + (binades << 23)
    return np.uint32(sign | (np.uint32(bits) if bits >= 0x00800000 else ZERO))


@compiled
def exception_of(table: Any, first: Any, count: Any, place: Any) -> Any:
    """The result beside `place` among `count` ascending places, which lie from word `first` on before the results."""
    low, high = np.int64(0), np.int64(count)
    while high - low > 1:
        middle = (low + high) >> 1
        if np.int64(table[first + middle]) <= place:
            low = middle
        else:
            high = middle
    return table[first + count + low]


@compiled
def table_result(table: Any, chunk_bits: Any, where: Any, plain: Any) -> Any:
    """The result for input bits `where` in the words of a `result_table.ResultTable`; plain: the default's result."""
    directory = CHUNK_WORDS * (np.int64(where) >> chunk_bits)
    kind = table[directory]
    first = np.int64(table[directory + 1])
    size = np.int64(1) << chunk_bits
    place = np.int64(where) & (size - 1)
    if kind == WHOLE:
        return table[first + place]
    if kind != CLOSE:
        return np.uint32(plain)
    code = (table[first + (place >> 4)] >> np.uint32(2 * (place & 15))) & np.uint32(3)
    if code == 3:
        return exception_of(table, first + (size >> 4), np.int64(table[directory + 2]), place)
    return np.uint32(plain + (code & np.uint32(1)) - (code >> np.uint32(1)))


def lane_bodies(lane_functions: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[..., None]]:
    """Native bodies that run a lane function on every lane, by the natives' names, and those that correct its results
    by a table, by the names `table_body_name` gives."""
    plain = {name: _lane_body(name, function) for name, function in lane_functions.items()}
    return plain | {table_body_name(name): _table_body(name, function) for name, function in lane_functions.items()}


def table_body_name(mnemonic: str) -> str:
    return f"{mnemonic}_by_table"


def _lane_body(name: str, lane_function: Callable[[Any], Any]) -> Callable[..., None]:
    def body(inputs: Any, outputs: Any, parameters: Any) -> None:
        for lane in range(LANES):
            outputs[lane] = lane_function(inputs[lane])

    return named(name, body)


def _table_body(name: str, lane_function: Callable[[Any], Any]) -> Callable[..., None]:
    """table: the words of a `result_table.ResultTable`. mask: the bits of the input that count. period: 0 for a table
    that has every binade by itself, else f(x * 2^period) = f(x) * 2^slope (`result_table.SCALING`)."""

    def body(inputs: Any, outputs: Any, table: Any, chunk_bits: Any, mask: Any, period: Any, slope: Any) -> None:
        for lane in range(LANES):
            bits = np.uint32(inputs[lane] & np.uint32(mask))
            if period == 0:
                outputs[lane] = table_result(table, chunk_bits, bits, lane_function(bits))
            else:
                where, binades, sign = folded(bits, period)
                result = table_result(table, chunk_bits, where, lane_function(where))
                outputs[lane] = scaled(result, slope * (binades // period), sign) if where != bits else result

    body.__name__ = body.__qualname__ = table_body_name(name)
    return body


# The bodies, as attributes by their names.
globals().update(lane_bodies(LANE_FUNCTIONS))


@compiled_entry
def fnv_words(words: Any, digest: Any, factor: Any) -> Any:
    """Digest of words, one after another: exclusive or, then a product modulo 2^64."""
    for word in words:
        digest = (digest ^ np.uint64(word)) * factor
    return digest
