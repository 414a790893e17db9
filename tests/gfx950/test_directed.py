"""Float operations rounded up, down and toward zero, against rationals: the result is the right neighbour."""

import math
from fractions import Fraction

import numpy as np
import pytest

from gfx950.arithmetic.directed import (
    DOWN,
    TOWARD_ZERO,
    UP,
    directed,
    directed_integer,
    directed_resize,
    exact,
    smallest_exponent,
)
from gfx950.lanes import infinity_bits

FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
EXACT = {
    "fadd": lambda a, b: a + b,
    "fsub": lambda a, b: a - b,
    "fmul": lambda a, b: a * b,
    "fdiv": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
}


def number(bits, width):
    """The value of bits, an infinity as a float."""
    value = float(UNSIGNED[width](bits).view(FLOATS[width]))
    return value if math.isinf(value) else Fraction(value)


def neighbours(bits, width):
    """The values next to a float below and above."""
    value, kind = UNSIGNED[width](bits).view(FLOATS[width]), FLOATS[width]
    with np.errstate(over="ignore", under="ignore"):
        ends = (float(np.nextafter(value, kind(-np.inf))), float(np.nextafter(value, kind(np.inf))))
    return tuple(end if math.isinf(end) else Fraction(end) for end in ends)


def check(value, result, width, direction):
    """The result lies on the right side of the value, and nothing lies between the two."""
    low, high = neighbours(result, width)
    toward_zero_is_down = value > 0
    if direction == UP or (direction == TOWARD_ZERO and not toward_zero_is_down):
        assert low < value <= number(result, width)
    else:
        assert number(result, width) <= value < high


def finite(rng, width, count):
    bits = rng.integers(0, 1 << width, count, dtype=UNSIGNED[width])
    tiny = bits & UNSIGNED[width](infinity_bits(width) ^ (1 << width) - 1)
    bits = np.where(rng.random(count) < 0.2, tiny, bits)
    return [int(b) for b in bits if int(b) & (1 << width - 1) - 1 < infinity_bits(width)]


@pytest.mark.parametrize("direction", [UP, DOWN, TOWARD_ZERO])
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("op", EXACT)
def test_the_neighbour_on_the_right_side(op, width, direction):
    rng = np.random.default_rng([width, direction, len(op)])
    operands = finite(rng, width, 900)
    arity = 3 if op == "fma" else 2
    for group in zip(*[iter(operands)] * arity, strict=False):
        values = [number(bits, width) for bits in group]
        if op == "fdiv" and values[1] == 0:
            continue
        if value := EXACT[op](*values):
            check(value, directed(op, width, direction, *group), width, direction)


@pytest.mark.parametrize("direction", [UP, DOWN, TOWARD_ZERO])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_roots(width, direction):
    for bits in finite(np.random.default_rng([width, direction]), width, 300):
        bits &= (1 << width - 1) - 1
        result = number(directed("fsqrt", width, direction, bits), width)
        below, above = neighbours(directed("fsqrt", width, direction, bits), width)
        value = number(bits, width)
        assert (below**2 < value <= result**2) if direction == UP and bits else (result**2 <= value < above**2)


@pytest.mark.parametrize("direction", [UP, DOWN, TOWARD_ZERO])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_conversions(width, direction):
    rng = np.random.default_rng([width, direction])
    for value in (int(n) for n in rng.integers(-(1 << 63), 1 << 63, 200) >> rng.integers(0, 63, 200)):
        if value:
            check(Fraction(value), directed_integer(width, direction, value), width, direction)
    for bits in finite(rng, 64, 400):
        if value := number(bits, 64):
            check(value, directed_resize(width, direction, bits, 64), width, direction)
    assert directed_integer(width, direction, 0) == 0
    assert directed_resize(width, direction, 1 << 63, 64) == 1 << width - 1


def test_signs_of_zeros():
    one, minus_one, zero, minus_zero = 0x3C00, 0xBC00, 0, 0x8000
    for direction in (UP, DOWN, TOWARD_ZERO):
        cancelled = minus_zero if direction == DOWN else zero
        assert directed("fsub", 16, direction, one, one) == cancelled
        assert directed("fadd", 16, direction, zero, minus_zero) == cancelled
        assert directed("fma", 16, direction, one, one, minus_one) == cancelled
        assert directed("fadd", 16, direction, minus_zero, minus_zero) == minus_zero
        assert directed("fmul", 16, direction, minus_zero, one) == minus_zero
        assert directed("fsqrt", 16, direction, minus_zero) == minus_zero


def test_parts():
    assert exact(0x8001, 16) == (True, 1, -24)
    assert exact(0x3C00, 16) == (False, 1 << 10, -10)
    assert [smallest_exponent(width) for width in (16, 32, 64)] == [-24, -149, -1074]
