"""VOP2: two-operand vector instructions. [CDNA4 ISA 12.7]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.lane_arithmetic import (
    ARITHMETIC,
    ARITHMETIC_F16,
    LEGACY_MULTIPLY_ADD,
    MIN_MAX,
    add,
    larger,
    limited,
    literal_of,
    low24,
    multiply_add,
    saturated,
    signed24,
    smaller,
    subtract,
    with_carry,
)
from gfx950.isa.registry import F16Integer, vop2
from gfx950.isa.vop1 import MOVE_MODIFIERS
from gfx950.lanes import (
    B32,
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    Mask,
    fma,
)

MULTIPLY_ADD_HALF = rule(
    "valu.mac_f16_half",
    Evidence.spec,
    "CDNA4 ISA 12.7 writes {16'0, result}; LLVM, whose list of what clears the high half comes from experiments with"
    " older chips, leaves the three out from gfx9 on and clears it itself",
    "V_MAC_F16, V_MADMK_F16 and V_MADAK_F16 leave zeros in the high half; V_MAC_F16 with OP_SEL[3] writes the high half"
    " and keeps the low one.",
)

# ---- floats ----------------------------------------------------------------------------------------------------------


@vop2("v_cndmask_b32", 0, rules=(MOVE_MODIFIERS,))
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


@vop2("v_min_f32", 10, rules=MIN_MAX, intrinsic="llvm.minimumnum.f32")
def v_min_f32(src0: F32, src1: F32) -> F32:
    """The smaller operand, -0 below +0, NaNs by MODE.IEEE. [12.7]"""
    return smaller(src0, src1)


@vop2("v_max_f32", 11, rules=MIN_MAX, intrinsic="llvm.maximumnum.f32")
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
def v_mul_i32_i24(src0: I32, src1: I32, clamp: int = 0) -> I32:
    """Low half of the product of two signed 24-bit numbers. [12.7]"""
    if clamp:
        return saturated(signed24(src0).to(I64) * signed24(src1).to(I64), I32)
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


@vop2("v_mac_f16", 35, rules=(LEGACY_MULTIPLY_ADD, MULTIPLY_ADD_HALF, *ARITHMETIC_F16))
def v_mac_f16(src0: F16, src1: F16, vdst: F16) -> F16:
    """D = S0 * S1 + D, not fused. [12.7]"""
    return multiply_add(src0, src1, vdst)


@vop2("v_madmk_f16", 36, rules=(LEGACY_MULTIPLY_ADD, MULTIPLY_ADD_HALF, *ARITHMETIC_F16))
def v_madmk_f16(src0: F16, src1: F16, literal: int) -> F16:
    """D = S0 * K + S1, not fused, K the literal's low half. [12.7]"""
    return multiply_add(src0, literal_of(src0, literal), src1)


@vop2("v_madak_f16", 37, rules=(LEGACY_MULTIPLY_ADD, MULTIPLY_ADD_HALF, *ARITHMETIC_F16))
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
def v_mul_lo_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """Low half of the product; saturated with clamp. [12.7]"""
    return saturated(src0.to(I64) * src1.to(I64), U16) if clamp else src0 * src1


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


@vop2("v_ldexp_f16", 51, rules=ARITHMETIC_F16)
def v_ldexp_f16(src0: F16, src1: F16Integer) -> F16:
    """D = S0 * 2^S1, rounded once. [12.7]"""
    count = src1.maximum(-60).minimum(60).to(I32)
    return limited((src0.to(F32) * ((count + 127) << 23).bits(F32)).to(F16), src0)
