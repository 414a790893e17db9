"""Numba parts of `transcendental` for v_sin and v_cos, whose input counts turns: sin(2 pi x) and cos(2 pi x).

x = quarters / 4 + t with |t| <= 1/8, exactly; polynomials in t * t give sine and cosine of 2 pi t as doubles. The
conventions are those of `transcendental_lanes`: no branches, and no f32 operation whose result is used sees a
subnormal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gfx950.arithmetic.native import compiled
from gfx950.arithmetic.transcendental_lanes import (
    HALF_INFINITY,
    HALF_MAGNITUDE,
    HALF_NAN,
    HALF_QUIET,
    HALF_SIGN,
    INFINITY,
    MAGNITUDE,
    NAN,
    ONE,
    QUIET,
    SIGN,
    SMALLEST_NORMAL,
    ZERO,
    bits_of_double,
    double_of_bits,
    double_of_half,
    half_of_double,
    lane_bodies,
)

# Adding this to a double of magnitude below 2^51 leaves the nearest integer (ties to even) in the low bits.
ROUND_TO_INTEGER = 6755399441055744.0
# The same for multiples of 2^-149, the step of f32 subnormals.
ROUND_TO_FLOAT_STEP = 9.466330862652142e-30
FLOAT_STEP = 1.401298464324817e-45
WHOLE = np.uint32(0x4B000000)  # 2^23: f32 numbers from here on are integers
# Interpolation of sin(2 pi t) / t at Chebyshev points of t * t in [0, 1/64]: 2^-68 relative.
SINE_TERMS = (
    6.283185307179586,
    -41.34170224039976,
    81.60524927607493,
    -76.70585975299812,
    42.05869392898878,
    -15.094640403891546,
    3.8197881201632113,
    -0.7116358090781666,
)
# The same of (cos(2 pi t) - 1) / (t * t): 2^-72 relative.
COSINE_TERMS = (
    -19.739208802178716,
    64.9393940226683,
    -85.45681720669369,
    60.24464137187456,
    -26.4262567778174,
    7.90353561233896,
    -1.714333269420992,
    0.2797407860657504,
)


@compiled
def eighth(t: Any) -> Any:
    """(sin(2 pi t), cos(2 pi t)) for |t| <= 1/8, within 2^-51 relative."""
    u = t * t
    s, c = SINE_TERMS, COSINE_TERMS
    sine = s[1] + u * (s[2] + u * (s[3] + u * (s[4] + u * (s[5] + u * (s[6] + u * s[7])))))
    cosine = c[0] + u * (c[1] + u * (c[2] + u * (c[3] + u * (c[4] + u * (c[5] + u * (c[6] + u * c[7]))))))
    return t * (s[0] + u * sine), 1.0 + u * cosine


@compiled
def sine_of_turns(turns: Any, ahead: Any) -> Any:
    """sin(2 pi (turns + ahead / 4)) for turns from 0 to 2^49, as a double."""
    shifted = 4.0 * turns + ROUND_TO_INTEGER
    sine, cosine = eighth(turns - 0.25 * (shifted - ROUND_TO_INTEGER))
    quarters = np.uint32(np.uint32(np.float64(shifted).view(np.int64)) + ahead)
    value = cosine if quarters & np.uint32(1) else sine
    return -value if quarters & np.uint32(2) else value


@compiled
def float_of_double(value: Any) -> Any:
    """The f32 nearest to a double that is not negative, subnormals included, as bits."""
    normal = value >= 1.1754943508222875e-38
    small = np.uint32(np.float64((0.0 if normal else value) + ROUND_TO_FLOAT_STEP).view(np.int64)) & MAGNITUDE
    return bits_of_double(value if normal else 1.0) if normal else small


@compiled
def turns_of_bits(magnitude: Any) -> Any:
    """The value of f32 bits of positive sign; 0 from 2^23 on, where the numbers are whole turns."""
    normal = (magnitude >= SMALLEST_NORMAL) & (magnitude < WHOLE)
    subnormal = np.float64(np.int32(magnitude if magnitude < SMALLEST_NORMAL else ZERO)) * FLOAT_STEP
    return double_of_bits(magnitude if normal else ONE) if normal else subnormal


@compiled
def trigonometric_f32(bits: Any, ahead: Any, sign: Any) -> Any:
    magnitude = np.uint32(bits & MAGNITUDE)
    value = sine_of_turns(turns_of_bits(magnitude), ahead)
    inside = float_of_double(abs(value)) | (sign ^ (SIGN if value < 0.0 else ZERO))
    inside = inside if value != 0.0 else ZERO
    outside = bits | QUIET if magnitude > INFINITY else NAN
    return inside if magnitude < INFINITY else outside


@compiled
def sin_f32(word: Any) -> Any:
    bits = np.uint32(word)
    result = trigonometric_f32(bits, ZERO, bits & SIGN)
    return bits if bits & MAGNITUDE == ZERO else result


@compiled
def cos_f32(word: Any) -> Any:
    return trigonometric_f32(np.uint32(word), np.uint32(1), ZERO)


@compiled
def trigonometric_f16(bits: Any, ahead: Any, sign: Any) -> Any:
    magnitude = bits & HALF_MAGNITUDE
    finite = magnitude < HALF_INFINITY
    value = sine_of_turns(double_of_half(magnitude if finite else ZERO), ahead)
    inside = half_of_double(abs(value)) | (sign ^ (HALF_SIGN if value < 0.0 else ZERO))
    inside = inside if value != 0.0 else ZERO
    outside = bits | HALF_QUIET if magnitude > HALF_INFINITY else HALF_NAN
    return inside if finite else outside


@compiled
def sin_f16(register: Any) -> Any:
    bits = register & np.uint32(0xFFFF)
    result = trigonometric_f16(bits, ZERO, bits & HALF_SIGN)
    return bits if bits & HALF_MAGNITUDE == ZERO else result


@compiled
def cos_f16(register: Any) -> Any:
    return trigonometric_f16(register & np.uint32(0xFFFF), np.uint32(1), ZERO)


LANE_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "v_sin_f32": sin_f32,
    "v_cos_f32": cos_f32,
    "v_sin_f16": sin_f16,
    "v_cos_f16": cos_f16,
}
# The natives, as attributes by their names.
globals().update(lane_bodies(LANE_FUNCTIONS))
