"""Arithmetic on lanes that several instruction families share, and the rules behind it. [CDNA4 ISA 3.5, 12.7]"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from gfx950.evidence import Evidence, rule
from gfx950.lanes import (
    F16,
    FLOAT_DENORM,
    FLOAT_ENDS,
    FLOAT_FLUSH,
    FLOAT_NAN,
    FLOAT_ROUND,
    FLOAT_ROUND_FIELD,
    I32,
    I64,
    MANTISSA_BITS,
    U16,
    U32,
    U64,
    Bits,
    Engine,
    Float,
    Mask,
    Signed,
    infinity_bits,
)

A = TypeVar("A", bound=Bits)
X = TypeVar("X", bound=Float)

ARITHMETIC = (FLOAT_ROUND, FLOAT_ENDS, FLOAT_DENORM, FLOAT_FLUSH, FLOAT_NAN)
CONVERSION = (FLOAT_ROUND_FIELD, *ARITHMETIC)
NEAREST = {"round32": 0, "round16_64": 0}
EXACT = {**NEAREST, "denorm32": 3, "denorm16_64": 3}
MIN_MAX = (
    rule(
        "valu.min_max",
        Evidence.spec,
        "CDNA4 ISA 12.7 V_MIN_F32, V_MAX_F32",
        "With MODE.IEEE a signalling NaN operand is quieted and returned, the first one first; else the operand that"
        " is no NaN wins, of two NaNs the second is returned as it is; -0 is below +0.",
    ),
    FLOAT_DENORM,
)
FP16_OVFL = rule(
    "valu.fp16_ovfl",
    Evidence.spec,
    "CDNA4 ISA 3.5, MODE.FP16_OVFL",
    "With FP16_OVFL an f16 result that overflows from finite operands is the largest f16 of its sign; an infinity that"
    " comes from an infinite operand stays.",
)
ARITHMETIC_F16 = (*ARITHMETIC, FP16_OVFL)
LEGACY_MULTIPLY_ADD = rule(
    "valu.mad_f16",
    Evidence.spec,
    "CDNA4 ISA 12.7 V_MAC_F16, V_MADMK_F16, 12.11 V_MAD_F16: separate operations, 1 ULP, denormals flushed",
    "The f16 multiply-adds that are not fused round the product and the sum, and flush denormals of operands and"
    " results.",
)


@contextmanager
def with_mode(engine: Engine, **fields: int) -> Iterator[None]:
    """Other fields of MODE while a step is computed whose bits do not follow them: NEAREST, EXACT, or any field."""
    before = engine.mode
    engine.mode = replace(before, **fields)  # type: ignore[arg-type]
    try:
        yield
    finally:
        engine.mode = before


def mantissa_bits(kind: type[Float]) -> int:
    """Stored mantissa bits of a float type."""
    return MANTISSA_BITS[kind.width]


def bits_of(value: Float) -> U16 | U32 | U64:
    """A float's bits as an unsigned integer."""
    kinds: dict[int, type[U16] | type[U32] | type[U64]] = {16: U16, 32: U32, 64: U64}
    return value.bits(kinds[value.width])


def flush(value: X) -> X:
    """Denormals become zeros of their sign."""
    bits, width = bits_of(value), value.width
    return ((bits & infinity_bits(width)) == 0).select((bits & (1 << width - 1)).bits(type(value)), value)


def as_input(value: X) -> X:
    """What an operation sees of an operand: its denormals flushed where MODE does not keep those of inputs."""
    return value if value.engine.mode.denorm(value.width) & 1 else flush(value)


def as_output(value: X) -> X:
    """What an operation leaves of a result: its denormals flushed where MODE does not keep those of outputs."""
    return value if value.engine.mode.denorm(value.width) & 2 else flush(value)


def by_mode(value: X) -> X:
    """What an operation that only selects sees: denormals flushed where MODE does not keep them on both sides."""
    return value if value.engine.mode.denorm(value.width) == 3 else flush(value)


def quiet(value: X) -> X:
    """A NaN with its quiet bit set."""
    bits = bits_of(value)
    return (bits | (1 << mantissa_bits(type(value)) - 1)).bits(type(value))


def is_signaling(value: Float) -> Mask:
    """True for NaNs with a clear quiet bit."""
    largest = (1 << mantissa_bits(type(value))) - 1
    unsigned = bits_of(value) << 1  # the sign is shifted out, so that one range check is enough
    return (unsigned - (2 * infinity_bits(value.width) + 1)) < largest


def _by_nan_rules(a: X, b: X, ordered: X) -> X:
    """`ordered` where neither operand is a NaN."""
    result = a.is_nan().select(b, b.is_nan().select(a, ordered))
    if not a.engine.mode.ieee:
        return result
    return is_signaling(a).select(quiet(a), is_signaling(b).select(quiet(b), result))


def smaller(a: X, b: X) -> X:
    """V_MIN of two floats [rule valu.min_max]."""
    a, b = by_mode(a), by_mode(b)
    tie = (bits_of(a) | bits_of(b)).bits(type(a))  # equal operands differ at most in the sign of zero
    return _by_nan_rules(a, b, (a == b).select(tie, (a < b).select(a, b)))


def larger(a: X, b: X) -> X:
    """V_MAX of two floats [rule valu.min_max]."""
    a, b = by_mode(a), by_mode(b)
    tie = (bits_of(a) & bits_of(b)).bits(type(a))
    return _by_nan_rules(a, b, (a == b).select(tie, (a > b).select(a, b)))


def saturated(wide: I64, kind: type[A]) -> A:
    """A wide integer brought into the range of `kind`."""
    signed = issubclass(kind, Signed)
    low, high = (-(1 << kind.width - 1), (1 << kind.width - 1) - 1) if signed else (0, (1 << kind.width) - 1)
    return wide.maximum(low).minimum(high).to(kind)


def add(a: A, b: A, clamp: int) -> A:
    """a + b, saturated with clamp."""
    return saturated(a.to(I64) + b.to(I64), type(a)) if clamp else a + b


def subtract(a: A, b: A, clamp: int) -> A:
    """a - b, saturated with clamp."""
    return saturated(a.to(I64) - b.to(I64), type(a)) if clamp else a - b


def limited(result: F16, *operands: Float) -> F16:
    """An f16 result with an overflow from finite operands undone [rule valu.fp16_ovfl]."""
    if not result.engine.mode.fp16_ovfl:
        return result
    overflowed = abs(result) == float("inf")
    for operand in operands:
        overflowed = overflowed & (abs(operand) < float("inf"))
    bits = result.bits(U16)
    return overflowed.select(bits - 1, bits).bits(F16)


def clamped(value: X, clamp: int = 1) -> X:
    """With clamp: in [0, 1]; a NaN becomes 0 with DX10_CLAMP, else it stays; a denormal result stays. [6.5, T4]"""
    if not clamp:
        return value
    zero, one = (type(value).constant(value.engine, x) for x in (0.0, 1.0))
    with with_mode(value.engine, **EXACT):
        inside = (value > one).select(one, (value > zero).select(value, zero))
    return inside if value.engine.mode.dx10_clamp else value.is_nan().select(value, inside)


def literal_of(like: X, literal: int) -> X:
    """The literal dword as a constant of a float operand's type."""
    kind = type(like)
    return kind(like.engine, like.engine.constant(literal & (1 << kind.width) - 1, kind.width))


def low24(value: U32) -> U32:
    """The low 24 bits."""
    return value & 0xFFFFFF


def signed24(value: I32) -> I32:
    """The low 24 bits, sign-extended."""
    return (value << 8) >> 8


def with_carry(a: U32, b: U32, carry: Mask) -> U64:
    """a + b + carry in 64 bits."""
    return a.to(U64) + b.to(U64) + one_if(carry, a).to(U64)


def one_if(mask: Mask, like: U32) -> U32:
    """1 where the mask is set, else 0."""
    return mask.select(U32.constant(like.engine, 1), 0)


def multiply_add(a: F16, b: F16, c: F16) -> F16:
    """a * b + c with two roundings and denormals flushed [rule valu.mad_f16]."""
    product = limited(flush(flush(a) * flush(b)), a, b)
    return flush(limited(product + flush(c), product, c))
