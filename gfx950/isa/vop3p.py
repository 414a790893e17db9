"""VOP3P without the matrix instructions: two halves or two registers at once, mixed precision, dot products. [12.10]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import vop3p
from gfx950.isa.vop2 import ARITHMETIC, MIN_MAX, add, larger, saturated, smaller, subtract
from gfx950.isa.vop3 import MINIMUM_MAXIMUM, maximum, minimum
from gfx950.lanes import (
    F16,
    F32,
    I16,
    I64,
    U16,
    U64,
    fma,
    join,
    split,
)

PACKED_NEG = rule(
    "valu.packed_integer_neg",
    Evidence.chosen,
    "isa_digest_core 7: encodable, meaning not stated",
    "NEG and NEG_HI do nothing on packed integers.",
)

# ---- 16-bit integers -------------------------------------------------------------------------------------------------


@vop3p("v_pk_mad_i16", 0, packed=True, rules=(PACKED_NEG,))
def v_pk_mad_i16(src0: I16, src1: I16, src2: I16, clamp: int = 0) -> I16:
    """D = S0 * S1 + S2 on both halves. [12.10]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), I16) if clamp else src0 * src1 + src2


@vop3p("v_pk_mul_lo_u16", 1, packed=True, rules=(PACKED_NEG,))
def v_pk_mul_lo_u16(src0: U16, src1: U16) -> U16:
    """Low half of the product, on both halves. [12.10]"""
    return src0 * src1


@vop3p("v_pk_add_i16", 2, packed=True, rules=(PACKED_NEG,))
def v_pk_add_i16(src0: I16, src1: I16, clamp: int = 0) -> I16:
    """D = S0 + S1 on both halves. [12.10]"""
    return add(src0, src1, clamp)


@vop3p("v_pk_sub_i16", 3, packed=True, rules=(PACKED_NEG,))
def v_pk_sub_i16(src0: I16, src1: I16, clamp: int = 0) -> I16:
    """D = S0 - S1 on both halves. [12.10]"""
    return subtract(src0, src1, clamp)


@vop3p("v_pk_lshlrev_b16", 4, packed=True, rules=(PACKED_NEG,))
def v_pk_lshlrev_b16(src0: U16, src1: U16) -> U16:
    """S1 shifted left by S0[3:0], on both halves. [12.10]"""
    return src1 << src0


@vop3p("v_pk_lshrrev_b16", 5, packed=True, rules=(PACKED_NEG,))
def v_pk_lshrrev_b16(src0: U16, src1: U16) -> U16:
    """S1 shifted right by S0[3:0], zeros enter, on both halves. [12.10]"""
    return src1 >> src0


@vop3p("v_pk_ashrrev_i16", 6, packed=True, rules=(PACKED_NEG,))
def v_pk_ashrrev_i16(src0: U16, src1: I16) -> I16:
    """S1 shifted right by S0[3:0], the sign enters, on both halves. [12.10]"""
    return src1 >> src0.bits(I16)


@vop3p("v_pk_max_i16", 7, packed=True, rules=(PACKED_NEG,))
def v_pk_max_i16(src0: I16, src1: I16) -> I16:
    """The larger signed number, on both halves. [12.10]"""
    return src0.maximum(src1)


@vop3p("v_pk_min_i16", 8, packed=True, rules=(PACKED_NEG,))
def v_pk_min_i16(src0: I16, src1: I16) -> I16:
    """The smaller signed number, on both halves. [12.10]"""
    return src0.minimum(src1)


@vop3p("v_pk_mad_u16", 9, packed=True, rules=(PACKED_NEG,))
def v_pk_mad_u16(src0: U16, src1: U16, src2: U16, clamp: int = 0) -> U16:
    """D = S0 * S1 + S2 on both halves. [12.10]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), U16) if clamp else src0 * src1 + src2


@vop3p("v_pk_add_u16", 10, packed=True, rules=(PACKED_NEG,))
def v_pk_add_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """D = S0 + S1 on both halves. [12.10]"""
    return add(src0, src1, clamp)


@vop3p("v_pk_sub_u16", 11, packed=True, rules=(PACKED_NEG,))
def v_pk_sub_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """D = S0 - S1 on both halves. [12.10]"""
    return subtract(src0, src1, clamp)


@vop3p("v_pk_max_u16", 12, packed=True, rules=(PACKED_NEG,))
def v_pk_max_u16(src0: U16, src1: U16) -> U16:
    """The larger unsigned number, on both halves. [12.10]"""
    return src0.maximum(src1)


@vop3p("v_pk_min_u16", 13, packed=True, rules=(PACKED_NEG,))
def v_pk_min_u16(src0: U16, src1: U16) -> U16:
    """The smaller unsigned number, on both halves. [12.10]"""
    return src0.minimum(src1)


# ---- f16 -------------------------------------------------------------------------------------------------------------


@vop3p("v_pk_fma_f16", 14, packed=True, intrinsic="llvm.fma.v2f16", rules=ARITHMETIC)
def v_pk_fma_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, fused, on both halves. [12.10]"""
    return fma(src0, src1, src2)


@vop3p("v_pk_add_f16", 15, packed=True, rules=ARITHMETIC)
def v_pk_add_f16(src0: F16, src1: F16) -> F16:
    """D = S0 + S1 on both halves. [12.10]"""
    return src0 + src1


@vop3p("v_pk_mul_f16", 16, packed=True, rules=ARITHMETIC)
def v_pk_mul_f16(src0: F16, src1: F16) -> F16:
    """D = S0 * S1 on both halves. [12.10]"""
    return src0 * src1


@vop3p("v_pk_min_f16", 17, packed=True, rules=MIN_MAX)
def v_pk_min_f16(src0: F16, src1: F16) -> F16:
    """The smaller operand by MODE.IEEE, on both halves. [12.10]"""
    return smaller(src0, src1)


@vop3p("v_pk_max_f16", 18, packed=True, rules=MIN_MAX)
def v_pk_max_f16(src0: F16, src1: F16) -> F16:
    """The larger operand by MODE.IEEE, on both halves. [12.10]"""
    return larger(src0, src1)


@vop3p("v_pk_minimum3_f16", 27, packed=True, rules=MINIMUM_MAXIMUM)
def v_pk_minimum3_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """The IEEE minimum of three, on both halves. [12.10]"""
    return minimum(minimum(src0, src1), src2)


@vop3p("v_pk_maximum3_f16", 28, packed=True, rules=MINIMUM_MAXIMUM)
def v_pk_maximum3_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """The IEEE maximum of three, on both halves. [12.10]"""
    return maximum(maximum(src0, src1), src2)


# ---- register pairs --------------------------------------------------------------------------------------------------


@vop3p("v_pk_fma_f32", 48, packed=True, intrinsic="llvm.fma.v2f32", rules=ARITHMETIC)
def v_pk_fma_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """D = S0 * S1 + S2, fused, on both registers of a pair. [12.10]"""
    return fma(src0, src1, src2)


@vop3p("v_pk_mul_f32", 49, packed=True, rules=ARITHMETIC)
def v_pk_mul_f32(src0: F32, src1: F32) -> F32:
    """D = S0 * S1 on both registers of a pair. [12.10]"""
    return src0 * src1


@vop3p("v_pk_add_f32", 50, packed=True, rules=ARITHMETIC)
def v_pk_add_f32(src0: F32, src1: F32) -> F32:
    """D = S0 + S1 on both registers of a pair. [12.10]"""
    return src0 + src1


@vop3p("v_pk_mov_b32", 51)
def v_pk_mov_b32(src0: U64, src1: U64, op_sel: int = 0) -> U64:
    """One register of each source pair: OP_SEL[0] picks S0's for the low, OP_SEL[1] S1's for the high one. [12.10]"""
    return join(split(src0)[op_sel & 1], split(src1)[op_sel >> 1 & 1])
