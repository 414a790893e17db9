"""Float operations rounded up, down or toward zero, on Python integers: exact values, then one rounding.

Bits in, bits out, one lane a call, finite operands only. A directed rounding is rare in real code, so this is written
to be read; the host engine has its own text of the same rules (emu.engines.directed_text) and tests hold the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gfx950.lanes import MANTISSA_BITS, infinity_bits

UP, DOWN, TOWARD_ZERO = 1, 2, 3  # MODE's codes; 0 is nearest even [CDNA4 ISA 3.5]
Exact = tuple[bool, int, int]  # negative, magnitude, exponent: +-magnitude * 2^exponent; a zero keeps its sign


def smallest_exponent(width: int) -> int:
    """log2 of the smallest denormal of a float of `width` bits."""
    return 2 - (1 << width - 2 - MANTISSA_BITS[width]) - MANTISSA_BITS[width]


def exact(bits: int, width: int) -> Exact:
    """The value of a finite float."""
    mantissa = MANTISSA_BITS[width]
    field = bits >> mantissa & (1 << width - 1 - mantissa) - 1
    fraction = bits & (1 << mantissa) - 1
    magnitude = fraction | 1 << mantissa if field else fraction
    return bool(bits >> width - 1), magnitude, max(field, 1) - 1 + smallest_exponent(width)


def rounded(value: Exact, width: int, direction: int, more: bool = False) -> int:
    """The float of `width` bits that `value` becomes; more: its true magnitude lies above, by less than one unit of
    `magnitude`, which then has at least two bits more than the float."""
    negative, magnitude, exponent = value
    mantissa, least = MANTISSA_BITS[width], smallest_exponent(width)
    step = max(exponent + magnitude.bit_length() - 1 - mantissa, least) if magnitude else least
    shift = step - exponent
    steps, rest = divmod(magnitude, 1 << shift) if shift > 0 else (magnitude << -shift, 0)
    outward = direction == (DOWN if negative else UP)
    if outward and (rest or more):
        steps += 1
    infinity = infinity_bits(width)
    bits = (step - least << mantissa) + steps  # the leading one of `steps` raises the exponent field by one
    return min(bits, infinity if outward else infinity - 1) | negative << width - 1


def _sum(a: Exact, b: Exact, width: int, direction: int) -> int:
    low = min(a[2], b[2])
    total = sum((-m if negative else m) << e - low for negative, m, e in (a, b))
    # A sum that is zero has the sign its terms agree on, else + (rounding down: -).
    negative = total < 0 or (total == 0 and ((a[0] and b[0]) or (a[0] != b[0] and direction == DOWN)))
    return rounded((negative, abs(total), low), width, direction)


def _product(a: Exact, b: Exact) -> Exact:
    return a[0] != b[0], a[1] * b[1], a[2] + b[2]


def _add(width: int, direction: int, a: int, b: int) -> int:
    return _sum(exact(a, width), exact(b, width), width, direction)


def _subtract(width: int, direction: int, a: int, b: int) -> int:
    return _add(width, direction, a, b ^ 1 << width - 1)


def _multiply(width: int, direction: int, a: int, b: int) -> int:
    return rounded(_product(exact(a, width), exact(b, width)), width, direction)


def _multiply_add(width: int, direction: int, a: int, b: int, c: int) -> int:
    return _sum(_product(exact(a, width), exact(b, width)), exact(c, width), width, direction)


def _divide(width: int, direction: int, a: int, b: int) -> int:
    (sign, numerator, e), (other, denominator, f) = exact(a, width), exact(b, width)
    extra = 2 * MANTISSA_BITS[width] + 3
    quotient, rest = divmod(numerator << extra, denominator)
    return rounded((sign != other, quotient, e - f - extra), width, direction, rest != 0)


def _square_root(width: int, direction: int, a: int) -> int:
    negative, magnitude, e = exact(a, width)
    extra = 2 * MANTISSA_BITS[width] + 4 + e % 2  # leaves an even exponent
    root = math.isqrt(magnitude << extra)
    more = root * root != magnitude << extra
    return rounded((negative, root, (e - extra) // 2), width, direction, more)


OPERATIONS: dict[str, Callable[..., int]] = {
    "fadd": _add,
    "fsub": _subtract,
    "fmul": _multiply,
    "fdiv": _divide,
    "fma": _multiply_add,
    "fsqrt": _square_root,
}


def directed(op: str, width: int, direction: int, *operands: int) -> int:
    """The result of primitive `op` (fadd, fsub, fmul, fdiv, fma, fsqrt) on finite floats of `width` bits, as bits.

    direction: MODE's code, 1 up, 2 down, 3 toward zero. A divisor is not zero, a radicand not below zero.
    """
    return OPERATIONS[op](width, direction, *operands)


def directed_resize(width: int, direction: int, bits: int, source: int) -> int:
    """A finite float of `source` bits as one of `width` bits."""
    return rounded(exact(bits, source), width, direction)


def directed_integer(width: int, direction: int, value: int) -> int:
    """A Python integer as a float of `width` bits; zero is +0."""
    return rounded((value < 0, abs(value), 0), width, direction)
