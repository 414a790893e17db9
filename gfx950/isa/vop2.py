"""VOP2: two-operand vector instructions, and the lane arithmetic the other vector families share. [CDNA4 ISA 12.7]"""

from __future__ import annotations

from typing import TypeVar

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import vop2
from gfx950.lanes import (
    B32,
    F16,
    F32,
    F64,
    FLOAT_DENORM,
    FLOAT_NAN,
    FLOAT_ROUND,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    Bits,
    Float,
    Mask,
    Signed,
    fma,
)

A = TypeVar("A", bound=Bits)
X = TypeVar("X", bound=Float)

ARITHMETIC = (FLOAT_ROUND, FLOAT_DENORM, FLOAT_NAN)
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
    "CDNA4 ISA 12.7 V_MAC_F16, V_MADMK_F16, 12.11 V_MAD_F16",
    "The f16 multiply-adds that are not fused round the product and the sum, and flush denormals of operands and"
    " results.",
)


def mantissa_bits(kind: type[Float]) -> int:
    """Stored mantissa bits of a float type."""
    return {16: 10, 32: 23, 64: 52}[kind.width]


def bits_of(value: Float) -> U16 | U32 | U64:
    """A float's bits as an unsigned integer."""
    kinds: dict[int, type[U16] | type[U32] | type[U64]] = {16: U16, 32: U32, 64: U64}
    return value.bits(kinds[value.width])


def flush(value: X) -> X:
    """Denormals become zeros of their sign."""
    bits, width = bits_of(value), value.width
    infinity = (1 << width - 1) - (1 << mantissa_bits(type(value)))
    return ((bits & infinity) == 0).select((bits & (1 << width - 1)).bits(type(value)), value)


def by_mode(value: X) -> X:
    """What an operation that only selects sees: denormals flushed where MODE does not keep them on both sides."""
    return value if value.engine.mode.denorm(value.width) == 3 else flush(value)


def quiet(value: X) -> X:
    """A NaN with its quiet bit set."""
    bits = bits_of(value)
    return (bits | (1 << mantissa_bits(type(value)) - 1)).bits(type(value))


def is_signaling(value: Float) -> Mask:
    """True for NaNs with a clear quiet bit."""
    bits, mantissa = bits_of(value), mantissa_bits(type(value))
    infinity = (1 << value.width - 1) - (1 << mantissa)
    below = ((bits << 1) - (2 * infinity + 1)) < (1 << mantissa) - 1  # one unsigned range check, sign shifted out
    return below


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


# ---- floats ----------------------------------------------------------------------------------------------------------


@vop2("v_cndmask_b32", 0)
def v_cndmask_b32(src0: F32, src1: F32, carry_in: Mask) -> F32:
    """S1 in lanes whose carry-in bit is set, S0 elsewhere; typed float so that neg and abs apply. [12.7]"""
    return carry_in.select(src1, src0)


@vop2("v_add_f32", 1, rules=ARITHMETIC)
def v_add_f32(src0: F32, src1: F32) -> F32:
    """D = S0 + S1. [12.7]"""
    return src0 + src1


@vop2("v_sub_f32", 2, rules=ARITHMETIC)
def v_sub_f32(src0: F32, src1: F32) -> F32:
    """D = S0 - S1. [12.7]"""
    return src0 - src1


@vop2("v_subrev_f32", 3, rules=ARITHMETIC)
def v_subrev_f32(src0: F32, src1: F32) -> F32:
    """D = S1 - S0. [12.7]"""
    return src1 - src0


@vop2("v_fmac_f64", 4, rules=ARITHMETIC)
def v_fmac_f64(src0: F64, src1: F64, vdst: F64) -> F64:
    """D = S0 * S1 + D, fused. [12.7]"""
    return fma(src0, src1, vdst)


@vop2("v_mul_f32", 5, rules=ARITHMETIC)
def v_mul_f32(src0: F32, src1: F32) -> F32:
    """D = S0 * S1. [12.7]"""
    return src0 * src1


@vop2("v_min_f32", 10, rules=MIN_MAX)
def v_min_f32(src0: F32, src1: F32) -> F32:
    """The smaller operand, -0 below +0, NaNs by MODE.IEEE. [12.7]"""
    return smaller(src0, src1)


@vop2("v_max_f32", 11, rules=MIN_MAX)
def v_max_f32(src0: F32, src1: F32) -> F32:
    """The larger operand, +0 above -0, NaNs by MODE.IEEE. [12.7]"""
    return larger(src0, src1)


@vop2("v_fmamk_f32", 23, rules=ARITHMETIC)
def v_fmamk_f32(src0: F32, src1: F32, literal: int) -> F32:
    """D = S0 * K + S1, fused, K the literal. [12.7]"""
    return fma(src0, literal_of(src0, literal), src1)


@vop2("v_fmaak_f32", 24, rules=ARITHMETIC)
def v_fmaak_f32(src0: F32, src1: F32, literal: int) -> F32:
    """D = S0 * S1 + K, fused, K the literal. [12.7]"""
    return fma(src0, src1, literal_of(src0, literal))


@vop2("v_fmac_f32", 59, rules=ARITHMETIC)
def v_fmac_f32(src0: F32, src1: F32, vdst: F32) -> F32:
    """D = S0 * S1 + D, fused. [12.7]"""
    return fma(src0, src1, vdst)


# ---- 32-bit integers -------------------------------------------------------------------------------------------------


@vop2("v_mul_i32_i24", 6)
def v_mul_i32_i24(src0: I32, src1: I32) -> I32:
    """Low half of the product of two signed 24-bit numbers. [12.7]"""
    return signed24(src0) * signed24(src1)


@vop2("v_mul_hi_i32_i24", 7)
def v_mul_hi_i32_i24(src0: I32, src1: I32) -> I32:
    """High half of the product of two signed 24-bit numbers. [12.7]"""
    return ((signed24(src0).to(I64) * signed24(src1).to(I64)) >> 32).to(I32)


@vop2("v_mul_u32_u24", 8)
def v_mul_u32_u24(src0: U32, src1: U32, clamp: int = 0) -> U32:
    """Low half of the product of two unsigned 24-bit numbers. [12.7]"""
    if clamp:
        return saturated(low24(src0).to(I64) * low24(src1).to(I64), U32)
    return low24(src0) * low24(src1)


@vop2("v_mul_hi_u32_u24", 9)
def v_mul_hi_u32_u24(src0: U32, src1: U32) -> U32:
    """High half of the product of two unsigned 24-bit numbers. [12.7]"""
    return ((low24(src0).to(U64) * low24(src1).to(U64)) >> 32).to(U32)


@vop2("v_min_i32", 12)
def v_min_i32(src0: I32, src1: I32) -> I32:
    """The smaller signed operand. [12.7]"""
    return src0.minimum(src1)


@vop2("v_max_i32", 13)
def v_max_i32(src0: I32, src1: I32) -> I32:
    """The larger signed operand. [12.7]"""
    return src0.maximum(src1)


@vop2("v_min_u32", 14)
def v_min_u32(src0: U32, src1: U32) -> U32:
    """The smaller unsigned operand. [12.7]"""
    return src0.minimum(src1)


@vop2("v_max_u32", 15)
def v_max_u32(src0: U32, src1: U32) -> U32:
    """The larger unsigned operand. [12.7]"""
    return src0.maximum(src1)


@vop2("v_lshrrev_b32", 16)
def v_lshrrev_b32(src0: B32, src1: B32) -> B32:
    """S1 shifted right by S0[4:0], zeros enter. [12.7]"""
    return src1 >> src0


@vop2("v_ashrrev_i32", 17)
def v_ashrrev_i32(src0: U32, src1: I32) -> I32:
    """S1 shifted right by S0[4:0], the sign enters. [12.7]"""
    return src1 >> src0.bits(I32)


@vop2("v_lshlrev_b32", 18)
def v_lshlrev_b32(src0: B32, src1: B32) -> B32:
    """S1 shifted left by S0[4:0]. [12.7]"""
    return src1 << src0


@vop2("v_and_b32", 19)
def v_and_b32(src0: B32, src1: B32) -> B32:
    """Bitwise and. [12.7]"""
    return src0 & src1


@vop2("v_or_b32", 20)
def v_or_b32(src0: B32, src1: B32) -> B32:
    """Bitwise or. [12.7]"""
    return src0 | src1


@vop2("v_xor_b32", 21)
def v_xor_b32(src0: B32, src1: B32) -> B32:
    """Bitwise exclusive or. [12.7]"""
    return src0 ^ src1


@vop2("v_xnor_b32", 61)
def v_xnor_b32(src0: B32, src1: B32) -> B32:
    """Complement of the exclusive or. [12.7]"""
    return ~(src0 ^ src1)


@vop2("v_add_co_u32", 25)
def v_add_co_u32(src0: U32, src1: U32, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S0 + S1 and the carry out. [12.7]"""
    total = src0 + src1
    carry = total < src0
    return (carry.select(0xFFFFFFFF, total) if clamp else total), carry


@vop2("v_sub_co_u32", 26)
def v_sub_co_u32(src0: U32, src1: U32, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S0 - S1 and the borrow out. [12.7]"""
    borrow = src1 > src0
    difference = src0 - src1
    return (borrow.select(0, difference) if clamp else difference), borrow


@vop2("v_subrev_co_u32", 27)
def v_subrev_co_u32(src0: U32, src1: U32, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S1 - S0 and the borrow out. [12.7]"""
    borrow = src0 > src1
    difference = src1 - src0
    return (borrow.select(0, difference) if clamp else difference), borrow


@vop2("v_addc_co_u32", 28)
def v_addc_co_u32(src0: U32, src1: U32, carry_in: Mask, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S0 + S1 + carry in, and the carry out. [12.7]"""
    total = with_carry(src0, src1, carry_in)
    carry = (total >> 32) != 0
    return (carry.select(0xFFFFFFFF, total.to(U32)) if clamp else total.to(U32)), carry


@vop2("v_subb_co_u32", 29)
def v_subb_co_u32(src0: U32, src1: U32, carry_in: Mask, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S0 - S1 - carry in, and the borrow out. [12.7]"""
    difference = src0.to(U64) - with_carry(src1, U32.constant(src0.engine, 0), carry_in)
    borrow = (difference >> 32) != 0
    return (borrow.select(0, difference.to(U32)) if clamp else difference.to(U32)), borrow


@vop2("v_subbrev_co_u32", 30)
def v_subbrev_co_u32(src0: U32, src1: U32, carry_in: Mask, clamp: int = 0) -> tuple[U32, Mask]:
    """D = S1 - S0 - carry in, and the borrow out. [12.7]"""
    difference = src1.to(U64) - with_carry(src0, U32.constant(src0.engine, 0), carry_in)
    borrow = (difference >> 32) != 0
    return (borrow.select(0, difference.to(U32)) if clamp else difference.to(U32)), borrow


@vop2("v_add_u32", 52)
def v_add_u32(src0: U32, src1: U32, clamp: int = 0) -> U32:
    """D = S0 + S1 without carry. [12.7]"""
    return add(src0, src1, clamp)


@vop2("v_sub_u32", 53)
def v_sub_u32(src0: U32, src1: U32, clamp: int = 0) -> U32:
    """D = S0 - S1 without borrow. [12.7]"""
    return subtract(src0, src1, clamp)


@vop2("v_subrev_u32", 54)
def v_subrev_u32(src0: U32, src1: U32, clamp: int = 0) -> U32:
    """D = S1 - S0 without borrow. [12.7]"""
    return subtract(src1, src0, clamp)


# ---- 16 bits ---------------------------------------------------------------------------------------------------------


@vop2("v_add_f16", 31, rules=ARITHMETIC_F16)
def v_add_f16(src0: F16, src1: F16) -> F16:
    """D = S0 + S1. [12.7]"""
    return limited(src0 + src1, src0, src1)


@vop2("v_sub_f16", 32, rules=ARITHMETIC_F16)
def v_sub_f16(src0: F16, src1: F16) -> F16:
    """D = S0 - S1. [12.7]"""
    return limited(src0 - src1, src0, src1)


@vop2("v_subrev_f16", 33, rules=ARITHMETIC_F16)
def v_subrev_f16(src0: F16, src1: F16) -> F16:
    """D = S1 - S0. [12.7]"""
    return limited(src1 - src0, src0, src1)


@vop2("v_mul_f16", 34, rules=ARITHMETIC_F16)
def v_mul_f16(src0: F16, src1: F16) -> F16:
    """D = S0 * S1. [12.7]"""
    return limited(src0 * src1, src0, src1)


def multiply_add(a: F16, b: F16, c: F16) -> F16:
    """a * b + c with two roundings and denormals flushed [rule valu.mad_f16]."""
    product = limited(flush(flush(a) * flush(b)), a, b)
    return flush(limited(product + flush(c), product, c))


@vop2("v_mac_f16", 35, rules=(LEGACY_MULTIPLY_ADD, *ARITHMETIC_F16))
def v_mac_f16(src0: F16, src1: F16, vdst: F16) -> F16:
    """D = S0 * S1 + D, not fused. [12.7]"""
    return multiply_add(src0, src1, vdst)


@vop2("v_madmk_f16", 36, rules=(LEGACY_MULTIPLY_ADD, *ARITHMETIC_F16))
def v_madmk_f16(src0: F16, src1: F16, literal: int) -> F16:
    """D = S0 * K + S1, not fused, K the literal's low half. [12.7]"""
    return multiply_add(src0, literal_of(src0, literal), src1)


@vop2("v_madak_f16", 37, rules=(LEGACY_MULTIPLY_ADD, *ARITHMETIC_F16))
def v_madak_f16(src0: F16, src1: F16, literal: int) -> F16:
    """D = S0 * S1 + K, not fused, K the literal's low half. [12.7]"""
    return multiply_add(src0, src1, literal_of(src0, literal))


@vop2("v_add_u16", 38)
def v_add_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """D = S0 + S1. [12.7]"""
    return add(src0, src1, clamp)


@vop2("v_sub_u16", 39)
def v_sub_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """D = S0 - S1. [12.7]"""
    return subtract(src0, src1, clamp)


@vop2("v_subrev_u16", 40)
def v_subrev_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """D = S1 - S0. [12.7]"""
    return subtract(src1, src0, clamp)


@vop2("v_mul_lo_u16", 41)
def v_mul_lo_u16(src0: U16, src1: U16) -> U16:
    """Low half of the product. [12.7]"""
    return src0 * src1


@vop2("v_lshlrev_b16", 42)
def v_lshlrev_b16(src0: U16, src1: U16) -> U16:
    """S1 shifted left by S0[3:0]. [12.7]"""
    return src1 << src0


@vop2("v_lshrrev_b16", 43)
def v_lshrrev_b16(src0: U16, src1: U16) -> U16:
    """S1 shifted right by S0[3:0], zeros enter. [12.7]"""
    return src1 >> src0


@vop2("v_ashrrev_i16", 44)
def v_ashrrev_i16(src0: U16, src1: I16) -> I16:
    """S1 shifted right by S0[3:0], the sign enters. [12.7]"""
    return src1 >> src0.bits(I16)


@vop2("v_max_f16", 45, rules=MIN_MAX)
def v_max_f16(src0: F16, src1: F16) -> F16:
    """The larger operand, NaNs by MODE.IEEE. [12.7]"""
    return larger(src0, src1)


@vop2("v_min_f16", 46, rules=MIN_MAX)
def v_min_f16(src0: F16, src1: F16) -> F16:
    """The smaller operand, NaNs by MODE.IEEE. [12.7]"""
    return smaller(src0, src1)


@vop2("v_max_u16", 47)
def v_max_u16(src0: U16, src1: U16) -> U16:
    """The larger unsigned operand. [12.7]"""
    return src0.maximum(src1)


@vop2("v_max_i16", 48)
def v_max_i16(src0: I16, src1: I16) -> I16:
    """The larger signed operand. [12.7]"""
    return src0.maximum(src1)


@vop2("v_min_u16", 49)
def v_min_u16(src0: U16, src1: U16) -> U16:
    """The smaller unsigned operand. [12.7]"""
    return src0.minimum(src1)


@vop2("v_min_i16", 50)
def v_min_i16(src0: I16, src1: I16) -> I16:
    """The smaller signed operand. [12.7]"""
    return src0.minimum(src1)


@vop2("v_ldexp_f16", 51, rules=ARITHMETIC)
def v_ldexp_f16(src0: F16, src1: I16) -> F16:
    """D = S0 * 2^S1, rounded once. [12.7]"""
    count = src1.maximum(-60).minimum(60).to(I32)
    return (src0.to(F32) * ((count + 127) << 23).bits(F32)).to(F16)
