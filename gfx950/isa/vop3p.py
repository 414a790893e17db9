"""VOP3P without the matrix instructions: two halves or two registers at once, mixed precision, dot products. [12.10]"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.formats import BF16, Format
from gfx950.formats import F16 as F16_FORMAT
from gfx950.isa.conversions import half, widened
from gfx950.isa.lane_arithmetic import (
    ARITHMETIC,
    ARITHMETIC_F16,
    EXACT,
    MIN_MAX,
    A,
    add,
    clamped,
    flush,
    larger,
    limited,
    saturated,
    smaller,
    subtract,
    with_mode,
)
from gfx950.isa.registry import Bf16Pair, F16Pair, Mixed, vop2, vop3p
from gfx950.isa.vop3 import MINIMUM_MAXIMUM, maximum, minimum
from gfx950.lanes import B32, F16, F32, F64, FLOAT_NAN, I16, I32, I64, U16, U32, U64, fma, join, split
from gfx950.models import body_switch

PACKED_NEG = rule(
    "valu.packed_integer_neg",
    Evidence.chosen,
    "CDNA4 ISA 6.7, 12.10: LLVM's assembler encodes it, the manual gives it no meaning",
    "NEG and NEG_HI do nothing on packed integers.",
)

DOT_ORDER = rule(
    "valu.dot_float_order",
    Evidence.chosen,
    "CDNA4 ISA 12.7 V_DOT2C_F32_F16, 12.10 V_DOT2_F32_F16 and V_DOT2_F32_BF16 give the order, not the roundings",
    "V_DOT2_F32_F16 and V_DOT2C add the low product to the accumulator, then the high one; V_DOT2_F32_BF16 adds the two"
    " products, then the accumulator; each sum is rounded to nearest even in f32. Products of f16 are exact, those of"
    " bf16 rounded to f32 where they lie beyond its range.",
)
DOT_F16_INPUTS = rule(
    "valu.dot_float_inputs",
    Evidence.published,
    "LLVM pull request 205101, measured on gfx950: V_DOT2_F32_F16 and V_DOT2C_F32_F16 of 0x8001 and 2^-14",
    "f16 subnormal operands keep their value whatever MODE says.",
)
DOT_BF16_INPUTS = rule(
    "valu.dot_bf16_inputs",
    Evidence.chosen,
    "CDNA4 ISA 6.4 says flushed, of f16 too, where a measurement found them kept (LLVM pull request 205101)",
    "bf16 subnormal operands keep their value whatever MODE says.",
)
DOT_DENORM = rule(
    "valu.dot_float_denorm",
    Evidence.spec,
    "CDNA4 ISA 6.4",
    "f32 denormals of the accumulator and of the sums become zeros whatever MODE says.",
)
DOT_NAN = rule(
    "valu.dot_float_nan",
    Evidence.chosen,
    "the manual says nothing of NaN in dot products",
    "A 16-bit NaN operand counts as 0x7fc00000 with its sign; then as in other sums and products.",
)
DOT_NEG = rule(
    "valu.dot2_neg",
    Evidence.chosen,
    "CDNA4 ISA 12.10 says of V_DOT2_F32_BF16 that NEG does not touch S2 and nothing of V_DOT2_F32_F16; LLVM puts the"
    " negation of an accumulator into NEG[2] and NEG_HI[2] of either",
    "NEG[2] negates S2 of V_DOT2_F32_F16, not of V_DOT2_F32_BF16; NEG_HI[2] does nothing.",
)
DOT_F16 = (DOT_ORDER, DOT_F16_INPUTS, DOT_DENORM, DOT_NAN, FLOAT_NAN)
DOT_BF16 = (DOT_ORDER, DOT_BF16_INPUTS, DOT_DENORM, DOT_NAN, FLOAT_NAN)


SUM_ORDER = body_switch(
    "valu.dot_float_order",
    ("manual", "accumulator_first", "high_first", "products_first", "exact"),
    "How a float dot product adds. manual: the order of its pseudo-code, every sum rounded. accumulator_first: low"
    " product to the accumulator, then the high one, in all. high_first: the high one first. products_first: the two"
    " products, then the accumulator, in all. exact: one rounding of the exact sum of all three.",
    DOT_ORDER,
)
BF16_FACTORS = body_switch(
    "valu.dot_bf16_inputs",
    ("kept", "flushed"),
    "Whether bf16 subnormal operands of float dot products keep their value or are zeros.",
    DOT_BF16_INPUTS,
)
SUM_DENORMALS = body_switch(
    "valu.dot_float_denorm",
    ("flushed", "kept"),
    "Whether f32 denormals of the accumulator and of the sums of float dot products are zeros or kept.",
    DOT_DENORM,
)
FACTOR_NAN = body_switch(
    "valu.dot_float_nan",
    ("canonical", "payload"),
    "Whether a 16-bit NaN operand of a float dot product is 0x7fc00000 with its sign, or keeps its payload, quieted.",
    DOT_NAN,
)
NEGATED_ACCUMULATORS = body_switch(
    "valu.dot2_neg",
    ("f16", "both", "neither"),
    "Which of V_DOT2_F32_F16 and V_DOT2_F32_BF16 have their accumulator negated by NEG[2].",
    DOT_NEG,
)
MIX = (
    rule(
        "valu.fma_mix",
        Evidence.spec,
        "CDNA4 ISA 12.10 V_MAD_MIX_F32, 6.7",
        "Each source is f32, or the f16 half that OP_SEL picks where OP_SEL_HI is set; fused in f32; the LO and HI"
        " forms then round to f16 and keep the other half.",
    ),
    *ARITHMETIC,
)

# ---- 16-bit integers -------------------------------------------------------------------------------------------------


@vop3p("v_pk_mad_i16", 0, packed=True, rules=(PACKED_NEG,))
def v_pk_mad_i16(src0: I16, src1: I16, src2: I16, clamp: int = 0) -> I16:
    """D = S0 * S1 + S2 on both halves. [12.10]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), I16) if clamp else src0 * src1 + src2


@vop3p("v_pk_mul_lo_u16", 1, packed=True, rules=(PACKED_NEG,))
def v_pk_mul_lo_u16(src0: U16, src1: U16, clamp: int = 0) -> U16:
    """Low half of the product, on both halves. [12.10]"""
    return saturated(src0.to(I64) * src1.to(I64), U16) if clamp else src0 * src1


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


@vop3p("v_pk_fma_f16", 14, packed=True, intrinsic="llvm.fma.v2f16", rules=ARITHMETIC_F16)
def v_pk_fma_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, fused, on both halves. [12.10]"""
    return limited(fma(src0, src1, src2), src0, src1, src2)


@vop3p("v_pk_add_f16", 15, packed=True, rules=ARITHMETIC_F16)
def v_pk_add_f16(src0: F16, src1: F16) -> F16:
    """D = S0 + S1 on both halves. [12.10]"""
    return limited(src0 + src1, src0, src1)


@vop3p("v_pk_mul_f16", 16, packed=True, rules=ARITHMETIC_F16)
def v_pk_mul_f16(src0: F16, src1: F16) -> F16:
    """D = S0 * S1 on both halves. [12.10]"""
    return limited(src0 * src1, src0, src1)


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


# ---- mixed precision -------------------------------------------------------------------------------------------------


def _mixed(sources: tuple[U32, U32, U32], op_sel: int, op_sel_hi: int, neg: int, neg_hi: int) -> F32:
    """The fused multiply-add of sources in f32 or f16; NEG_HI is the absolute value here. [12.10]"""
    values: list[F32] = []
    for i, source in enumerate(sources):
        part = (source >> 16 if op_sel >> i & 1 else source).to(U16).bits(F16)
        value = part.to(F32) if op_sel_hi >> i & 1 else source.bits(F32)
        value = abs(value) if neg_hi >> i & 1 else value
        values.append(-value if neg >> i & 1 else value)
    return fma(values[0], values[1], values[2])


def _clamped_half(value: F32, clamp: int) -> U32:
    return clamped(half(value), clamp).bits(U16).to(U32)


@vop3p("v_fma_mix_f32", 32, rules=MIX)
def v_fma_mix_f32(
    src0: Mixed,
    src1: Mixed,
    src2: Mixed,
    op_sel: int = 0,
    op_sel_hi: int = 0,
    op_sel_hi2: int = 0,
    neg: int = 0,
    neg_hi: int = 0,
) -> F32:
    """D = S0 * S1 + S2, each f32 or an f16 half. [12.10]"""
    return _mixed((src0, src1, src2), op_sel, op_sel_hi | op_sel_hi2 << 2, neg, neg_hi)


@vop3p("v_fma_mixlo_f16", 33, rules=MIX)
def v_fma_mixlo_f16(
    src0: Mixed,
    src1: Mixed,
    src2: Mixed,
    vdst: B32,
    op_sel: int = 0,
    op_sel_hi: int = 0,
    op_sel_hi2: int = 0,
    neg: int = 0,
    neg_hi: int = 0,
    clamp: int = 0,
) -> B32:
    """S0 * S1 + S2, each f32 or an f16 half, rounded to f16 into the low half. [12.10]"""
    total = _mixed((src0, src1, src2), op_sel, op_sel_hi | op_sel_hi2 << 2, neg, neg_hi)
    return (vdst & 0xFFFF0000) | _clamped_half(total, clamp)


@vop3p("v_fma_mixhi_f16", 34, rules=MIX)
def v_fma_mixhi_f16(
    src0: Mixed,
    src1: Mixed,
    src2: Mixed,
    vdst: B32,
    op_sel: int = 0,
    op_sel_hi: int = 0,
    op_sel_hi2: int = 0,
    neg: int = 0,
    neg_hi: int = 0,
    clamp: int = 0,
) -> B32:
    """S0 * S1 + S2, each f32 or an f16 half, rounded to f16 into the high half. [12.10]"""
    total = _mixed((src0, src1, src2), op_sel, op_sel_hi | op_sel_hi2 << 2, neg, neg_hi)
    return (vdst & 0xFFFF) | (_clamped_half(total, clamp) << 16)


def _halves(word: B32) -> tuple[F16, F16]:
    return word.to(U16).bits(F16), (word >> 16).to(U16).bits(F16)


@vop2("v_pk_fmac_f16", 60, rules=ARITHMETIC_F16)
def v_pk_fmac_f16(src0: F16Pair, src1: F16Pair, vdst: B32, clamp: int = 0) -> B32:
    """D = S0 * S1 + D, fused, on both halves. [12.7]"""
    pairs = zip(_halves(src0), _halves(src1), _halves(vdst), strict=True)
    low, high = (clamped(limited(fma(a, b, c), a, b, c), clamp).bits(U16).to(U32) for a, b, c in pairs)
    return low | (high << 16)


# ---- dot products ----------------------------------------------------------------------------------------------------


def _factors(src0: B32, src1: B32, form: Format, neg: int, neg_hi: int) -> list[tuple[F32, F32]]:
    """The factors of the low and of the high halves."""
    pairs = []
    for shift, signs in ((0, neg), (16, neg_hi)):
        factors = [widened(word >> shift, form, FACTOR_NAN.answer) for word in (src0, src1)]
        if form is BF16 and BF16_FACTORS.answer == "flushed":
            factors = [flush(f) for f in factors]
        a, b = (-f if signs >> i & 1 else f for i, f in enumerate(factors))
        pairs.append((a, b))
    return pairs


def _dot(start: F32, factors: list[tuple[F32, F32]], order: str = "accumulator_first") -> F32:
    """Two products and the accumulator, whatever MODE says [rules valu.dot_float_*]. order: the manual's."""
    chosen = order if SUM_ORDER.answer == "manual" else SUM_ORDER.answer
    keeps = SUM_DENORMALS.answer == "kept"
    start = start if keeps else flush(start)
    if chosen == "exact":
        a, b = (x.to(F64) * y.to(F64) for x, y in factors)
        total = _exact_sum(a, b, start.to(F64)).to(F32)
        return total if keeps else flush(total)
    low, high = (x * y for x, y in factors)
    orders = {
        "accumulator_first": (start, low, high),
        "high_first": (start, high, low),
        "products_first": (low, high, start),
    }
    total, *others = orders[chosen]
    for other in others:
        total = total + other if keeps else flush(total + other)
    return total


def _two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    """The rounded sum, and what the rounding lost [Knuth]."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def _odd_sum(a: F64, b: F64) -> F64:
    """a + b, an inexact one rounded to odd, so that one more rounding to f32 is that of the exact sum."""
    total, lost = _two_sum(a, b)
    bits = total.bits(U64)
    grows = (lost.bits(U64) ^ bits) >> 63 == 0
    odd = (bits & 1 | (lost == 0.0).select(U64.constant(total.engine, 1), 0)) == 1
    return odd.select(bits, grows.select(bits + 1, bits - 1)).bits(F64)


def _exact_sum(a: F64, b: F64, c: F64) -> F64:
    """a + b + c rounded to odd [Boldo and Melquiond 2008]; in f64 no sum of what f32 holds overflows."""
    pair, pair_lost = _two_sum(a, b)
    other, other_lost = _two_sum(c, pair_lost)
    total, lost = _two_sum(pair, other)
    rest = _odd_sum(other_lost, lost)
    plain = pair + c  # for infinities and NaN, and for the sign of a zero
    exact = (total == 0.0).select(plain, total)
    return (abs(total) < float("inf")).select((rest != 0.0).select(_odd_sum(total, rest), exact), plain)


@vop3p("v_dot2_f32_bf16", 26, intrinsic="llvm.amdgcn.fdot2.f32.bf16", rules=(DOT_NEG, *DOT_BF16))
def v_dot2_f32_bf16(src0: Bf16Pair, src1: Bf16Pair, src2: F32, neg: int = 0, neg_hi: int = 0) -> F32:
    """Products of the bf16 halves, their sum plus S2. [12.10]"""
    start = -src2 if neg >> 2 & 1 and NEGATED_ACCUMULATORS.answer == "both" else src2
    with with_mode(src2.engine, **EXACT):
        return _dot(start, _factors(src0, src1, BF16, neg, neg_hi), "products_first")


@vop3p("v_dot2_f32_f16", 35, intrinsic="llvm.amdgcn.fdot2", rules=(DOT_NEG, *DOT_F16))
def v_dot2_f32_f16(src0: F16Pair, src1: F16Pair, src2: F32, neg: int = 0, neg_hi: int = 0) -> F32:
    """S2 plus the products of the f16 halves, low first. [12.10]"""
    start = -src2 if neg >> 2 & 1 and NEGATED_ACCUMULATORS.answer != "neither" else src2
    with with_mode(src2.engine, **EXACT):
        return _dot(start, _factors(src0, src1, F16_FORMAT, neg, neg_hi))


@vop2("v_dot2c_f32_bf16", 22, intrinsic="llvm.amdgcn.fdot2c.f32.bf16", rules=DOT_BF16)
def v_dot2c_f32_bf16(src0: Bf16Pair, src1: Bf16Pair, vdst: F32, neg: int = 0, abs: int = 0) -> F32:
    """D plus the products of the bf16 halves, low first; ABS negates high halves. [12.7]"""
    with with_mode(vdst.engine, **EXACT):
        return _dot(vdst, _factors(src0, src1, BF16, neg, abs))


@vop2("v_dot2c_f32_f16", 55, rules=DOT_F16)
def v_dot2c_f32_f16(src0: F16Pair, src1: F16Pair, vdst: F32, neg: int = 0, abs: int = 0) -> F32:
    """D plus the products of the f16 halves, low first; ABS negates high halves. [12.7]"""
    with with_mode(vdst.engine, **EXACT):
        return _dot(vdst, _factors(src0, src1, F16_FORMAT, neg, abs))


def _signed_dot(a: I32, b: I32, total: I64, bits: int) -> I64:
    """`total` plus the products of all signed `bits`-wide elements."""
    for low in range(0, 32, bits):
        x, y = ((v << 32 - bits - low) >> 32 - bits for v in (a, b))
        total = total + x.to(I64) * y.to(I64)
    return total


def _unsigned_dot(a: U32, b: U32, total: I64, bits: int) -> I64:
    """`total` plus the products of all unsigned `bits`-wide elements."""
    for low in range(0, 32, bits):
        total = total + a.field(low, bits).to(I64) * b.field(low, bits).to(I64)
    return total


def _ended(total: I64, kind: type[A], clamp: int) -> A:
    return saturated(total, kind) if clamp else total.to(kind)


@vop3p("v_dot2_i32_i16", 38, intrinsic="llvm.amdgcn.sdot2")
def v_dot2_i32_i16(src0: I32, src1: I32, src2: I32, clamp: int = 0) -> I32:
    """S2 plus the products of the 2 signed 16-bit elements. [12.10]"""
    return _ended(_signed_dot(src0, src1, src2.to(I64), 16), I32, clamp)


@vop3p("v_dot2_u32_u16", 39, intrinsic="llvm.amdgcn.udot2")
def v_dot2_u32_u16(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """S2 plus the products of the 2 unsigned 16-bit elements. [12.10]"""
    return _ended(_unsigned_dot(src0, src1, src2.to(I64), 16), U32, clamp)


@vop3p("v_dot4_i32_i8", 40, intrinsic="llvm.amdgcn.sdot4")
def v_dot4_i32_i8(src0: I32, src1: I32, src2: I32, clamp: int = 0) -> I32:
    """S2 plus the products of the 4 signed 8-bit elements. [12.10]"""
    return _ended(_signed_dot(src0, src1, src2.to(I64), 8), I32, clamp)


@vop3p("v_dot4_u32_u8", 41, intrinsic="llvm.amdgcn.udot4")
def v_dot4_u32_u8(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """S2 plus the products of the 4 unsigned 8-bit elements. [12.10]"""
    return _ended(_unsigned_dot(src0, src1, src2.to(I64), 8), U32, clamp)


@vop3p("v_dot8_i32_i4", 42, intrinsic="llvm.amdgcn.sdot8")
def v_dot8_i32_i4(src0: I32, src1: I32, src2: I32, clamp: int = 0) -> I32:
    """S2 plus the products of the 8 signed 4-bit elements. [12.10]"""
    return _ended(_signed_dot(src0, src1, src2.to(I64), 4), I32, clamp)


@vop3p("v_dot8_u32_u4", 43, intrinsic="llvm.amdgcn.udot8")
def v_dot8_u32_u4(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """S2 plus the products of the 8 unsigned 4-bit elements. [12.10]"""
    return _ended(_unsigned_dot(src0, src1, src2.to(I64), 4), U32, clamp)


@vop2("v_dot2c_i32_i16", 56)
def v_dot2c_i32_i16(src0: I32, src1: I32, vdst: I32, clamp: int = 0) -> I32:
    """D plus the products of the 2 signed 16-bit elements. [12.7]"""
    return _ended(_signed_dot(src0, src1, vdst.to(I64), 16), I32, clamp)


@vop2("v_dot4c_i32_i8", 57)
def v_dot4c_i32_i8(src0: I32, src1: I32, vdst: I32, clamp: int = 0) -> I32:
    """D plus the products of the 4 signed 8-bit elements. [12.7]"""
    return _ended(_signed_dot(src0, src1, vdst.to(I64), 8), I32, clamp)


@vop2("v_dot8c_i32_i4", 58)
def v_dot8c_i32_i4(src0: I32, src1: I32, vdst: I32, clamp: int = 0) -> I32:
    """D plus the products of the 8 signed 4-bit elements. [12.7]"""
    return _ended(_signed_dot(src0, src1, vdst.to(I64), 4), I32, clamp)
