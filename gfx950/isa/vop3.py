"""VOP3: vector instructions that exist in the 64-bit encoding only. [CDNA4 ISA 12.11]"""

from __future__ import annotations

from dataclasses import dataclass

from gfx950.evidence import Evidence, rule
from gfx950.isa.lane_arithmetic import (
    ARITHMETIC,
    ARITHMETIC_F16,
    EXACT,
    LEGACY_MULTIPLY_ADD,
    MIN_MAX,
    A,
    X,
    add,
    as_input,
    as_output,
    bits_of,
    by_mode,
    clamped,
    larger,
    limited,
    low24,
    mantissa_bits,
    multiply_add,
    quiet,
    saturated,
    signed24,
    smaller,
    subtract,
    with_mode,
)
from gfx950.isa.registry import Scalar32, vop3
from gfx950.lanes import (
    B16,
    B32,
    B128,
    F16,
    F32,
    F64,
    FLOAT_DENORM,
    I16,
    I32,
    I64,
    LANES,
    U16,
    U32,
    U64,
    Float,
    Mask,
    Unsigned,
    fma,
    join,
    static_lanes,
)

MINIMUM_MAXIMUM = (
    rule(
        "valu.minimum_maximum",
        Evidence.spec,
        "CDNA4 ISA 12.11 V_MINIMUM3_F32, V_MAXIMUM3_F32; MODE.IEEE counts as set",
        "The IEEE minimum and maximum: a NaN operand wins, -0 is below +0.",
    ),
    rule(
        "valu.minimum_maximum_nan",
        Evidence.chosen,
        "the notes of V_MINIMUM3_F32 say that DX10_CLAMP forces a NaN to zero, not whether the clamp bit must be set;"
        " LLVM selects the instruction for llvm.maximum, which must propagate NaNs under the default MODE",
        "The first NaN operand is returned, quieted; DX10_CLAMP acts through the clamp bit only.",
    ),
    FLOAT_DENORM,
)
MAD_LEGACY = rule(
    "valu.mad_legacy_f16",
    Evidence.chosen,
    "CDNA4 ISA 12.11 V_MAD_LEGACY_F16 says nothing of denormals and accuracy",
    "V_MAD_LEGACY_F16 rounds and flushes as V_MAD_F16 does.",
)
DIVISION = rule(
    "valu.division",
    Evidence.chosen,
    "CDNA4 ISA 12.11 V_DIV_SCALE, V_DIV_FMAS, V_DIV_FIXUP, whose scales contradict one another (2^64 against 2^32) and"
    " would overflow for large denominators",
    "In f32 (f64: 2^128, 2^1022, 1024) V_DIV_SCALE scales by 2^64, or by 2^-64 where the denominator is above 2^126;"
    " V_DIV_FMAS scales back by 2^64 when S2 is 2 or more and by 2^-64 otherwise, rounding once; V_DIV_FIXUP makes zero"
    " of quotients below half the smallest denormal and infinity of those whose exponent gap is above 128, where the"
    " manual's test for overflow can never hold.",
)
DIVISION_MODE = (
    rule(
        "valu.div_fmas_denorm",
        Evidence.spec,
        "CDNA4 ISA 12.11, notes of V_DIV_FMAS_F32 and V_DIV_FMAS_F64",
        "V_DIV_FMAS keeps denormal operands whatever MODE says; its result follows MODE.",
    ),
    rule(
        "valu.div_scale_mode",
        Evidence.chosen,
        "the pseudo-code of V_DIV_SCALE asks whether a quotient is denormal, not how it is rounded",
        "The quotient that V_DIV_SCALE tests is rounded to nearest even and keeps denormals whatever MODE says.",
    ),
)
PACK_F16 = rule(
    "valu.pack_f16",
    Evidence.chosen,
    "the manual has V_PACK_B32_F16 move bits; LLVM uses it only where denormals and NaNs are settled already",
    "V_PACK_B32_F16 neither flushes denormals nor quiets NaNs.",
)
SHIFT_ADD_U64 = rule(
    "valu.lshl_add_u64",
    Evidence.spec,
    "CDNA4 ISA 12.11 V_LSHL_ADD_U64",
    "The shift count is S1[2:0]; counts above 4 act as 0.",
)
MAD_64_CLAMP = rule(
    "valu.mad_64_clamp",
    Evidence.chosen,
    "LLVM's assembler accepts clamp on V_MAD_U64_U32 and V_MAD_I64_I32; the manual says nothing",
    "With clamp the 64-bit sum saturates in its own signedness.",
)


# ---- floats ----------------------------------------------------------------------------------------------------------


@vop3("v_fma_f32", 0x1CB, intrinsic="llvm.fma.f32", rules=ARITHMETIC)
def v_fma_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """D = S0 * S1 + S2, fused. [12.11]"""
    return fma(src0, src1, src2)


@vop3("v_fma_f64", 0x1CC, intrinsic="llvm.fma.f64", rules=ARITHMETIC)
def v_fma_f64(src0: F64, src1: F64, src2: F64) -> F64:
    """D = S0 * S1 + S2, fused. [12.11]"""
    return fma(src0, src1, src2)


@vop3("v_add_f64", 0x280, rules=ARITHMETIC)
def v_add_f64(src0: F64, src1: F64) -> F64:
    """D = S0 + S1. [12.11]"""
    return src0 + src1


@vop3("v_mul_f64", 0x281, rules=ARITHMETIC)
def v_mul_f64(src0: F64, src1: F64) -> F64:
    """D = S0 * S1. [12.11]"""
    return src0 * src1


@vop3("v_min_f64", 0x282, rules=MIN_MAX)
def v_min_f64(src0: F64, src1: F64) -> F64:
    """The smaller operand, NaNs by MODE.IEEE. [12.11]"""
    return smaller(src0, src1)


@vop3("v_max_f64", 0x283, rules=MIN_MAX)
def v_max_f64(src0: F64, src1: F64) -> F64:
    """The larger operand, NaNs by MODE.IEEE. [12.11]"""
    return larger(src0, src1)


@vop3("v_mul_legacy_f32", 0x2A1, intrinsic="llvm.amdgcn.fmul.legacy", rules=ARITHMETIC)
def v_mul_legacy_f32(src0: F32, src1: F32) -> F32:
    """D = S0 * S1, but +0 when either is a zero. [12.11]"""
    return ((src0 == 0.0) | (src1 == 0.0)).select(0.0, src0 * src1)


@vop3("v_min3_f32", 0x1D0, rules=MIN_MAX)
def v_min3_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """V_MIN of V_MIN of the first two and the third. [12.11]"""
    return smaller(smaller(src0, src1), src2)


@vop3("v_max3_f32", 0x1D3, rules=MIN_MAX)
def v_max3_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """V_MAX of V_MAX of the first two and the third. [12.11]"""
    return larger(larger(src0, src1), src2)


def median(a: X, b: X, c: X) -> X:
    """V_MED3 of floats: the minimum with a NaN, else the larger of the two that remain without the largest."""
    a, b, c = as_input(a), as_input(b), as_input(c)
    with with_mode(a.engine, denorm32=3, denorm16_64=3):  # a flush in between would make equal what is not
        largest = larger(larger(a, b), c)
        middle = (largest == a).select(larger(b, c), (largest == b).select(larger(a, c), larger(a, b)))
        result = (a.is_nan() | b.is_nan() | c.is_nan()).select(smaller(smaller(a, b), c), middle)
    return as_output(result)


@vop3("v_med3_f32", 0x1D6, intrinsic="llvm.amdgcn.fmed3.f32", rules=MIN_MAX)
def v_med3_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The middle one; with a NaN the smallest. [12.11]"""
    return median(src0, src1, src2)


def _propagated(a: X, b: X, ordered: X) -> X:
    """The first NaN operand, quieted; `ordered` where there is none."""
    return a.is_nan().select(quiet(a), b.is_nan().select(quiet(b), ordered))


def minimum(a: X, b: X) -> X:
    """The IEEE minimum [rule valu.minimum_maximum]."""
    a, b = by_mode(a), by_mode(b)
    tie = (bits_of(a) | bits_of(b)).bits(type(a))
    return _propagated(a, b, (a == b).select(tie, (a < b).select(a, b)))


def maximum(a: X, b: X) -> X:
    """The IEEE maximum [rule valu.minimum_maximum]."""
    a, b = by_mode(a), by_mode(b)
    tie = (bits_of(a) & bits_of(b)).bits(type(a))
    return _propagated(a, b, (a == b).select(tie, (a > b).select(a, b)))


@vop3("v_minimum3_f32", 0x2A8, intrinsic="llvm.minimum.f32", rules=MINIMUM_MAXIMUM)
def v_minimum3_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The IEEE minimum of three. [12.11]"""
    return minimum(minimum(src0, src1), src2)


@vop3("v_maximum3_f32", 0x2A9, intrinsic="llvm.maximum.f32", rules=MINIMUM_MAXIMUM)
def v_maximum3_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The IEEE maximum of three. [12.11]"""
    return maximum(maximum(src0, src1), src2)


# ---- 32-bit integers -------------------------------------------------------------------------------------------------


@vop3("v_mad_i32_i24", 0x1C2)
def v_mad_i32_i24(src0: I32, src1: I32, src2: I32, clamp: int = 0) -> I32:
    """Product of two signed 24-bit numbers plus S2. [12.11]"""
    if clamp:
        return saturated(signed24(src0).to(I64) * signed24(src1).to(I64) + src2.to(I64), I32)
    return signed24(src0) * signed24(src1) + src2


@vop3("v_mad_u32_u24", 0x1C3)
def v_mad_u32_u24(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Product of two unsigned 24-bit numbers plus S2. [12.11]"""
    if clamp:
        return saturated(low24(src0).to(I64) * low24(src1).to(I64) + src2.to(I64), U32)
    return low24(src0) * low24(src1) + src2


@vop3("v_mad_u32_u16", 0x1F1)
def v_mad_u32_u16(src0: U16, src1: U16, src2: U32, clamp: int = 0) -> U32:
    """Product of two unsigned 16-bit numbers plus S2. [12.11]"""
    if clamp:
        return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), U32)
    return src0.to(U32) * src1.to(U32) + src2


@vop3("v_mad_i32_i16", 0x1F2)
def v_mad_i32_i16(src0: I16, src1: I16, src2: I32, clamp: int = 0) -> I32:
    """Product of two signed 16-bit numbers plus S2. [12.11]"""
    if clamp:
        return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), I32)
    return src0.to(I32) * src1.to(I32) + src2


@vop3("v_mul_lo_u32", 0x285)
def v_mul_lo_u32(src0: U32, src1: U32) -> U32:
    """Low half of the product. [12.11]"""
    return src0 * src1


@vop3("v_mul_hi_u32", 0x286)
def v_mul_hi_u32(src0: U32, src1: U32) -> U32:
    """High half of the unsigned product. [12.11]"""
    return ((src0.to(U64) * src1.to(U64)) >> 32).to(U32)


@vop3("v_mul_hi_i32", 0x287)
def v_mul_hi_i32(src0: I32, src1: I32) -> I32:
    """High half of the signed product. [12.11]"""
    return ((src0.to(I64) * src1.to(I64)) >> 32).to(I32)


@vop3("v_mad_u64_u32", 0x1E8, rules=(MAD_64_CLAMP,))
def v_mad_u64_u32(src0: U32, src1: U32, src2: U64, clamp: int = 0) -> tuple[U64, Mask]:
    """S0 * S1 + S2 in 64 bits, and the carry out. [12.11]"""
    total = src0.to(U64) * src1.to(U64) + src2
    carry = total < src2
    return (carry.select(0xFFFFFFFFFFFFFFFF, total) if clamp else total), carry


@vop3("v_mad_i64_i32", 0x1E9, rules=(MAD_64_CLAMP,))
def v_mad_i64_i32(src0: I32, src1: I32, src2: I64, clamp: int = 0) -> tuple[I64, Mask]:
    """S0 * S1 + S2 in 64 bits, and bit 64 of the signed sum. [12.11]"""
    product = src0.to(I64) * src1.to(I64)
    total = product + src2
    overflow = ((product ^ total) & (src2 ^ total)) < 0
    limit = (total < 0).select(I64.constant(src0.engine, (1 << 63) - 1), -(1 << 63))
    return (overflow.select(limit, total) if clamp else total), (total < 0) ^ overflow


@vop3("v_add_i32", 0x29C)
def v_add_i32(src0: I32, src1: I32, clamp: int = 0) -> I32:
    """D = S0 + S1, signed saturation with clamp. [12.11]"""
    return add(src0, src1, clamp)


@vop3("v_sub_i32", 0x29D)
def v_sub_i32(src0: I32, src1: I32, clamp: int = 0) -> I32:
    """D = S0 - S1, signed saturation with clamp. [12.11]"""
    return subtract(src0, src1, clamp)


@vop3("v_min3_i32", 0x1D1)
def v_min3_i32(src0: I32, src1: I32, src2: I32) -> I32:
    """The smallest of three signed numbers. [12.11]"""
    return src0.minimum(src1).minimum(src2)


@vop3("v_min3_u32", 0x1D2)
def v_min3_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """The smallest of three unsigned numbers. [12.11]"""
    return src0.minimum(src1).minimum(src2)


@vop3("v_max3_i32", 0x1D4)
def v_max3_i32(src0: I32, src1: I32, src2: I32) -> I32:
    """The largest of three signed numbers. [12.11]"""
    return src0.maximum(src1).maximum(src2)


@vop3("v_max3_u32", 0x1D5)
def v_max3_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """The largest of three unsigned numbers. [12.11]"""
    return src0.maximum(src1).maximum(src2)


@vop3("v_med3_i32", 0x1D7)
def v_med3_i32(src0: I32, src1: I32, src2: I32) -> I32:
    """The middle one of three signed numbers. [12.11]"""
    return src0.minimum(src1).maximum(src0.maximum(src1).minimum(src2))


@vop3("v_med3_u32", 0x1D8)
def v_med3_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """The middle one of three unsigned numbers. [12.11]"""
    return src0.minimum(src1).maximum(src0.maximum(src1).minimum(src2))


@vop3("v_add3_u32", 0x1FF)
def v_add3_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """D = S0 + S1 + S2. [12.11]"""
    return src0 + src1 + src2


@vop3("v_lshl_add_u32", 0x1FD)
def v_lshl_add_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """D = (S0 << S1[4:0]) + S2. [12.11]"""
    return (src0 << src1) + src2


@vop3("v_add_lshl_u32", 0x1FE)
def v_add_lshl_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """D = (S0 + S1) << S2[4:0]. [12.11]"""
    return (src0 + src1) << src2


@vop3("v_lshl_add_u64", 0x208, rules=(SHIFT_ADD_U64,))
def v_lshl_add_u64(src0: U64, src1: U32, src2: U64) -> U64:
    """D = (S0 << S1[2:0]) + S2 in 64 bits, shifts of 0 to 4. [12.11]"""
    count = src1 & 7
    return (src0 << (count > 4).select(0, count).to(U64)) + src2


@vop3("v_xad_u32", 0x1F3)
def v_xad_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """D = (S0 ^ S1) + S2. [12.11]"""
    return (src0 ^ src1) + src2


# ---- bits ------------------------------------------------------------------------------------------------------------


@vop3("v_lshl_or_b32", 0x200)
def v_lshl_or_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """D = (S0 << S1[4:0]) | S2. [12.11]"""
    return (src0 << src1) | src2


@vop3("v_and_or_b32", 0x201)
def v_and_or_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """D = (S0 & S1) | S2. [12.11]"""
    return (src0 & src1) | src2


@vop3("v_or3_b32", 0x202)
def v_or3_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """D = S0 | S1 | S2. [12.11]"""
    return src0 | src1 | src2


@vop3("v_bfe_u32", 0x1C8, intrinsic="llvm.amdgcn.ubfe.i32")
def v_bfe_u32(src0: U32, src1: U32, src2: U32) -> U32:
    """S2[4:0] bits of S0 from bit S1[4:0] on, zero-extended. [12.11]"""
    mask = (U32.constant(src0.engine, 1) << src2) - 1
    return (src0 >> src1) & mask


@vop3("v_bfe_i32", 0x1C9, intrinsic="llvm.amdgcn.sbfe.i32")
def v_bfe_i32(src0: I32, src1: U32, src2: U32) -> I32:
    """S2[4:0] bits of S0 from bit S1[4:0] on, sign-extended; 0 for no bits. [12.11]"""
    width = src2 & 31
    above = (32 - width).bits(I32)  # modulo 32 a width of 0 shifts by 0
    field = ((src0 >> src1.bits(I32)) << above) >> above
    return (width == 0).select(0, field)


@vop3("v_bfi_b32", 0x1CA)
def v_bfi_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """Bits of S1 where S0 is set, of S2 elsewhere. [12.11]"""
    return (src0 & src1) | (~src0 & src2)


@vop3("v_bfm_b32", 0x293)
def v_bfm_b32(src0: B32, src1: B32) -> B32:
    """S0[4:0] ones from bit S1[4:0] on. [12.11]"""
    return ((U32.constant(src0.engine, 1) << src0) - 1) << src1


@vop3("v_alignbit_b32", 0x1CE, intrinsic="llvm.amdgcn.alignbit")
def v_alignbit_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """The pair {S0, S1} shifted right by S2[4:0], low half. [12.11]"""
    return (join(src1, src0) >> (src2 & 31).to(U64)).to(U32)


@vop3("v_alignbyte_b32", 0x1CF, intrinsic="llvm.amdgcn.alignbyte")
def v_alignbyte_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """The pair {S0, S1} shifted right by S2[1:0] bytes, low half. [12.11]"""
    return (join(src1, src0) >> ((src2 & 3) << 3).to(U64)).to(U32)


def _permuted_byte(high: U32, low: U32, select: U32) -> U32:
    """The byte of the pair {high, low} that a selector asks for; 8..11 a sign, 12 zeros, above ones. [12.11]"""
    is_sign = (select >= 8) & (select < 12)
    position = is_sign.select((select << 1) - 15, select)  # signs of bytes 1, 3, 5, 7
    word = ((position & 4) == 0).select(low, high)
    byte = (word >> ((position & 3) << 3)) & 0xFF
    signs = (byte >> 7) * 0xFF
    padding = (select == 12).select(U32.constant(select.engine, 0), 0xFF)
    return (select < 8).select(byte, is_sign.select(signs, padding))


@vop3("v_perm_b32", 0x1ED, intrinsic="llvm.amdgcn.perm")
def v_perm_b32(src0: B32, src1: B32, src2: B32) -> B32:
    """Each byte of D chosen from the eight bytes {S0, S1} by a byte of S2. [12.11]"""
    low, second, third, high = (_permuted_byte(src0, src1, src2.field(8 * i, 8)) for i in range(4))
    return low | (second << 8) | (third << 16) | (high << 24)


def _by_truth_table(sources: tuple[A, A, A], table: int) -> A:
    """Bit i of the result is table[{S0[i], S1[i], S2[i]}]."""
    result = sources[0].coerce(0)
    for row in range(8):
        if table >> row & 1:
            literals = [s if row >> 2 - i & 1 else ~s for i, s in enumerate(sources)]
            result = result | (literals[0] & literals[1] & literals[2])
    return result


@vop3("v_bitop3_b32", 0x234)
def v_bitop3_b32(src0: B32, src1: B32, src2: B32, omod: int = 0, abs: int = 0, neg: int = 0) -> B32:
    """Any bitwise function of three, by the truth table {OMOD, ABS, NEG}. [12.11]"""
    return _by_truth_table((src0, src1, src2), omod << 6 | abs << 3 | neg)


@vop3("v_bitop3_b16", 0x233)
def v_bitop3_b16(src0: B16, src1: B16, src2: B16, omod: int = 0, abs: int = 0, neg: int = 0) -> B16:
    """Any bitwise function of three halves, by the truth table {OMOD, ABS, NEG}. [12.11]"""
    return _by_truth_table((src0, src1, src2), omod << 6 | abs << 3 | neg)


@vop3("v_bcnt_u32_b32", 0x28B)
def v_bcnt_u32_b32(src0: U32, src1: U32) -> U32:
    """Ones of S0 plus S1. [12.11]"""
    return src0.popcount() + src1


def _lane_numbers(like: U32) -> U32:
    return static_lanes(like.engine, range(LANES))


@vop3("v_mbcnt_lo_u32_b32", 0x28C, intrinsic="llvm.amdgcn.mbcnt.lo")
def v_mbcnt_lo_u32_b32(src0: U32, src1: U32) -> U32:
    """Ones of S0 below this lane's bit, all of them in lanes 32 and up, plus S1. [12.11]"""
    lane = _lane_numbers(src0)
    below = (lane >= 32).select(0xFFFFFFFF, (U32.constant(src0.engine, 1) << lane) - 1)
    return (src0 & below).popcount() + src1


@vop3("v_mbcnt_hi_u32_b32", 0x28D, intrinsic="llvm.amdgcn.mbcnt.hi")
def v_mbcnt_hi_u32_b32(src0: U32, src1: U32) -> U32:
    """Ones of S0 below this lane's bit counted from lane 32, none in the lanes below, plus S1. [12.11]"""
    lane = _lane_numbers(src0)
    below = (lane < 32).select(0, (U32.constant(src0.engine, 1) << lane) - 1)
    return (src0 & below).popcount() + src1


@vop3("v_lshlrev_b64", 0x28F)
def v_lshlrev_b64(src0: U32, src1: U64) -> U64:
    """S1 shifted left by S0[5:0]. [12.11]"""
    return src1 << src0.to(U64)


@vop3("v_lshrrev_b64", 0x290)
def v_lshrrev_b64(src0: U32, src1: U64) -> U64:
    """S1 shifted right by S0[5:0], zeros enter. [12.11]"""
    return src1 >> src0.to(U64)


@vop3("v_ashrrev_i64", 0x291)
def v_ashrrev_i64(src0: U32, src1: I64) -> I64:
    """S1 shifted right by S0[5:0], the sign enters. [12.11]"""
    return src1 >> src0.to(I64)


# ---- between lanes and scalars ---------------------------------------------------------------------------------------


@vop3("v_readlane_b32", 0x289, intrinsic="llvm.amdgcn.readlane.i32")
def v_readlane_b32(src0: B32, src1: Scalar32) -> Scalar32:
    """The scalar in lane S1[5:0], active or not. [12.11]"""
    return src0.readlane(src1)


@vop3("v_writelane_b32", 0x28A, intrinsic="llvm.amdgcn.writelane.i32", ignores_exec=True)
def v_writelane_b32(vdst: B32, src0: Scalar32, src1: Scalar32) -> B32:
    """The scalar S0 into lane S1[5:0], active or not. [12.11]"""
    return vdst.writelane(src1, src0)


# ---- 16 bits ---------------------------------------------------------------------------------------------------------


@vop3("v_mad_f16", 0x203, rules=(LEGACY_MULTIPLY_ADD, *ARITHMETIC_F16))
def v_mad_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, not fused. [12.11]"""
    return multiply_add(src0, src1, src2)


@vop3("v_mad_u16", 0x204)
def v_mad_u16(src0: U16, src1: U16, src2: U16, clamp: int = 0) -> U16:
    """D = S0 * S1 + S2. [12.11]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), U16) if clamp else src0 * src1 + src2


@vop3("v_mad_i16", 0x205)
def v_mad_i16(src0: I16, src1: I16, src2: I16, clamp: int = 0) -> I16:
    """D = S0 * S1 + S2. [12.11]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), I16) if clamp else src0 * src1 + src2


@vop3("v_fma_f16", 0x206, intrinsic="llvm.fma.f16", rules=ARITHMETIC_F16)
def v_fma_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, fused. [12.11]"""
    return limited(fma(src0, src1, src2), src0, src1, src2)


@vop3("v_add_i16", 0x29E)
def v_add_i16(src0: I16, src1: I16, clamp: int = 0) -> I16:
    """D = S0 + S1, signed saturation with clamp. [12.11]"""
    return add(src0, src1, clamp)


@vop3("v_sub_i16", 0x29F)
def v_sub_i16(src0: I16, src1: I16, clamp: int = 0) -> I16:
    """D = S0 - S1, signed saturation with clamp. [12.11]"""
    return subtract(src0, src1, clamp)


@vop3("v_pack_b32_f16", 0x2A0, rules=(PACK_F16,))
def v_pack_b32_f16(src0: F16, src1: F16, clamp: int = 0) -> B32:
    """S0 in the low half, S1 in the high half. [12.11]"""
    low, high = (clamped(source, clamp).bits(U16).to(U32) for source in (src0, src1))
    return low | (high << 16)


@vop3("v_min3_f16", 0x1F4, rules=MIN_MAX)
def v_min3_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """V_MIN of V_MIN of the first two and the third. [12.11]"""
    return smaller(smaller(src0, src1), src2)


@vop3("v_max3_f16", 0x1F7, rules=MIN_MAX)
def v_max3_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """V_MAX of V_MAX of the first two and the third. [12.11]"""
    return larger(larger(src0, src1), src2)


@vop3("v_med3_f16", 0x1FA, intrinsic="llvm.amdgcn.fmed3.f16", rules=MIN_MAX)
def v_med3_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """The middle one; with a NaN the smallest. [12.11]"""
    return median(src0, src1, src2)


@vop3("v_min3_i16", 0x1F5)
def v_min3_i16(src0: I16, src1: I16, src2: I16) -> I16:
    """The smallest of three signed numbers. [12.11]"""
    return src0.minimum(src1).minimum(src2)


@vop3("v_min3_u16", 0x1F6)
def v_min3_u16(src0: U16, src1: U16, src2: U16) -> U16:
    """The smallest of three unsigned numbers. [12.11]"""
    return src0.minimum(src1).minimum(src2)


@vop3("v_max3_i16", 0x1F8)
def v_max3_i16(src0: I16, src1: I16, src2: I16) -> I16:
    """The largest of three signed numbers. [12.11]"""
    return src0.maximum(src1).maximum(src2)


@vop3("v_max3_u16", 0x1F9)
def v_max3_u16(src0: U16, src1: U16, src2: U16) -> U16:
    """The largest of three unsigned numbers. [12.11]"""
    return src0.maximum(src1).maximum(src2)


@vop3("v_med3_i16", 0x1FB)
def v_med3_i16(src0: I16, src1: I16, src2: I16) -> I16:
    """The middle one of three signed numbers. [12.11]"""
    return src0.minimum(src1).maximum(src0.maximum(src1).minimum(src2))


@vop3("v_med3_u16", 0x1FC)
def v_med3_u16(src0: U16, src1: U16, src2: U16) -> U16:
    """The middle one of three unsigned numbers. [12.11]"""
    return src0.minimum(src1).maximum(src0.maximum(src1).minimum(src2))


# ---- division --------------------------------------------------------------------------------------------------------


def exponent(value: Float) -> I32:
    """The biased exponent field."""
    mantissa = mantissa_bits(type(value))
    return bits_of(value).field(mantissa, value.width - 1 - mantissa).to(U32).bits(I32)


def made_nan(like: X) -> X:
    """The NaN an operation makes from no NaN [rule float.nan_operand]."""
    kind = type(like)
    bits = (1 << kind.width) - (1 << mantissa_bits(kind) - 1)
    return kind(like.engine, like.engine.constant(bits, kind.width))


def is_zero(value: Float) -> Mask:
    """True for zeros, and for denormals where MODE flushes them."""
    return value == 0.0


@dataclass(frozen=True)
class Scaling:
    """V_DIV_SCALE of one width: log2 of the scale, the exponent gap of huge quotients, the exponent field of tiny
    numerators, the exponent of the smallest normal number. [12.11]"""

    scale: int
    huge_gap: int
    tiny_numerator: int
    smallest: int


SCALING_F32 = Scaling(64, 96, 23, -126)
SCALING_F64 = Scaling(128, 768, 53, -1022)


def _scaled(value: X, denominator: X, numerator: X, quotient: F64, limits: Scaling) -> tuple[X, Mask]:
    """`value` scaled for the division of `numerator` by `denominator`, and whether V_DIV_FMAS must scale back."""
    zero = is_zero(numerator) | is_zero(denominator)
    huge = (exponent(numerator) - exponent(denominator) >= limits.huge_gap) & ~zero
    tiny_denominator = (exponent(denominator) == 0) & ~(zero | huge)
    big_denominator = (abs(denominator) > 2.0**-limits.smallest) & ~(zero | huge)
    tiny_quotient = (abs(quotient) < 2.0**limits.smallest) & ~(zero | huge | tiny_denominator)
    tiny_numerator = (exponent(numerator) <= limits.tiny_numerator) & ~(zero | huge | big_denominator | tiny_quotient)
    is_denominator, is_numerator = value == denominator, value == numerator
    up = tiny_denominator | tiny_numerator | (huge & is_denominator)
    up = up | (tiny_quotient & ~big_denominator & is_numerator)
    down = big_denominator & (is_denominator | ~tiny_quotient)
    scaled = up.select(value * 2.0**limits.scale, down.select(value * 2.0**-limits.scale, value))
    return zero.select(made_nan(value), scaled), huge | tiny_quotient


@vop3("v_div_scale_f32", 0x1E0, rules=(DIVISION, *DIVISION_MODE, *ARITHMETIC))
def v_div_scale_f32(src0: F32, src1: F32, src2: F32) -> tuple[F32, Mask]:
    """S0, denominator S1 or numerator S2, scaled so that no step of the division meets a denormal; and whether
    V_DIV_FMAS must scale back. [12.11]"""
    with with_mode(src0.engine, **EXACT):
        quotient = src2.to(F64) / src1.to(F64)
    return _scaled(src0, src1, src2, quotient, SCALING_F32)


@vop3("v_div_scale_f64", 0x1E1, rules=(DIVISION, *DIVISION_MODE, *ARITHMETIC))
def v_div_scale_f64(src0: F64, src1: F64, src2: F64) -> tuple[F64, Mask]:
    """S0, denominator S1 or numerator S2, scaled so that no step of the division meets a denormal; and whether
    V_DIV_FMAS must scale back. [12.11]"""
    with with_mode(src0.engine, **EXACT):
        quotient = src2 / src1
    return _scaled(src0, src1, src2, quotient, SCALING_F64)


def _sum_error(a: F64, b: F64, total: F64) -> F64:
    """What total = a + b rounded away, exactly."""
    shadow = total - a
    return (a - (total - shadow)) + (b - shadow)


def _odd_sum(a: F64, b: F64) -> F64:
    """a + b rounded to odd, so that one more rounding to 50 bits or fewer is the only one that counts."""
    total = a + b
    error = _sum_error(a, b, total)
    bits = total.bits(U64)
    inexact = (error > 0.0) | (error < 0.0)
    outward = ~((error > 0.0) ^ (total > 0.0))
    step = outward.select(U64.constant(bits.engine, 1), 0xFFFFFFFFFFFFFFFF)
    return (inexact & ((bits & 1) == 0)).select(bits + step, bits).bits(F64)


@vop3("v_div_fmas_f32", 0x1E2, intrinsic="llvm.amdgcn.div.fmas.f32", rules=(DIVISION, *DIVISION_MODE, *ARITHMETIC))
def v_div_fmas_f32(src0: F32, src1: F32, src2: F32, vcc: Mask) -> F32:
    """S0 * S1 + S2, scaled by 2^64 or 2^-64 where VCC is set; rounded once. [12.11]"""
    engine, mode = src0.engine, src0.engine.mode
    with with_mode(engine, **EXACT):
        scale = (exponent(src2) > 127).select(F64.constant(engine, 2.0**64), 2.0**-64)
        scaled = _odd_sum(src0.to(F64) * src1.to(F64), src2.to(F64)) * scale
    with with_mode(engine, round16_64=mode.round32, denorm32=3, denorm16_64=3):
        plain, single = fma(src0, src1, src2), scaled.to(F32)
        if mode.round32:  # the sign of an exact zero depends on the direction
            single = (scaled == 0.0).select(plain, single)
    return as_output(vcc.select(single, plain))


def _denormal_sum(a: F64, b: F64, c: F64) -> F64:
    """|a * b + c| * 2^-128 rounded once where it is a denormal, one step of which is 2^-946 before scaling."""
    total, half_step = fma(a, b, c), 2.0**-947
    product = a * b
    high = product + c
    rest = ((high - total) + _sum_error(product, c, high)) + fma(a, b, -product)  # what `total` rounded away
    rest = (total < 0.0).select(-rest, rest)
    total = abs(total)
    magic = F64.constant(a.engine, 2.0 ** (52 - 946))  # below it a sum has steps of 2^-946
    rounded = (total + magic) - magic
    away = (rest > 0.0).select(total + half_step, total - half_step)
    tie = (abs(total - rounded) == half_step) & ((rest > 0.0) | (rest < 0.0))
    return tie.select(away, rounded) * 2.0**-128


@vop3("v_div_fmas_f64", 0x1E3, intrinsic="llvm.amdgcn.div.fmas.f64", rules=(DIVISION, *DIVISION_MODE, *ARITHMETIC))
def v_div_fmas_f64(src0: F64, src1: F64, src2: F64, vcc: Mask) -> F64:
    """S0 * S1 + S2, scaled by 2^128 or 2^-128 where VCC is set; rounded once. [12.11]"""
    with with_mode(src0.engine, denorm16_64=3):
        plain = fma(src0, src1, src2)
        down = plain * 2.0**-128
        if not src0.engine.mode.round16_64:  # the other roundings, done twice in one direction, are as if done once
            down = (abs(plain) < 2.0**-894).select(_denormal_sum(src0, src1, src2), down)
            down = (bits_of(down) | (bits_of(plain) & (1 << 63))).bits(F64)  # the sign of a zero
        scaled = (exponent(src2) > 1023).select(plain * 2.0**128, down)
    return as_output(vcc.select(scaled, plain))


def _fixed_quotient(quotient: X, denominator: X, numerator: X, overflow: Mask, underflow: Mask) -> X:
    """The special cases of V_DIV_FIXUP; `overflow` marks quotients above the range, `underflow` those below half the
    smallest denormal."""
    kind, width = type(quotient), quotient.width
    sign_bit = 1 << width - 1
    infinity = kind.constant_bits(float("inf"))
    sign = (bits_of(denominator) ^ bits_of(numerator)) & sign_bit
    magnitude: Unsigned = bits_of(by_mode(quotient)) & (sign_bit - 1)
    d, n = (bits_of(as_input(v)) & (sign_bit - 1) for v in (denominator, numerator))
    magnitude = ((d == infinity) | (n == 0) | underflow).select(0, magnitude)
    magnitude = ((d == 0) | (n == infinity) | overflow).select(infinity, magnitude)
    invalid = (d == n) & ((d == 0) | (d == infinity))
    result = invalid.select(made_nan(quotient), (magnitude | sign).bits(kind))
    return numerator.is_nan().select(quiet(numerator), denominator.is_nan().select(quiet(denominator), result))


@vop3("v_div_fixup_f32", 0x1DE, intrinsic="llvm.amdgcn.div.fixup.f32", rules=(DIVISION, FLOAT_DENORM))
def v_div_fixup_f32(src0: F32, src1: F32, src2: F32) -> F32:
    """The quotient S0 of numerator S2 and denominator S1 with signs and special cases set right. [12.11]"""
    gap = exponent(src2) - exponent(src1)
    finite = (exponent(src1) < 255) & (exponent(src2) < 255)
    return _fixed_quotient(src0, src1, src2, (gap > 128) & finite, gap < -150)


@vop3("v_div_fixup_f64", 0x1DF, intrinsic="llvm.amdgcn.div.fixup.f64", rules=(DIVISION, FLOAT_DENORM))
def v_div_fixup_f64(src0: F64, src1: F64, src2: F64) -> F64:
    """The quotient S0 of numerator S2 and denominator S1 with signs and special cases set right. [12.11]"""
    gap = exponent(src2) - exponent(src1)
    finite = (exponent(src1) < 2047) & (exponent(src2) < 2047)
    return _fixed_quotient(src0, src1, src2, (gap > 1024) & finite, gap < -1075)


@vop3("v_div_fixup_f16", 0x207, intrinsic="llvm.amdgcn.div.fixup.f16", rules=(FLOAT_DENORM,))
def v_div_fixup_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """The quotient S0 of numerator S2 and denominator S1 with signs and special cases set right. [12.11]"""
    never = Mask.constant(src0.engine, 0)
    return _fixed_quotient(src0, src1, src2, never, never)


# ---- sums of absolute differences ------------------------------------------------------------------------------------


def _distance(a: U32, b: U32) -> U32:
    return a.maximum(b) - a.minimum(b)


def _sum(distances: U32, addend: U32, clamp: int) -> U32:
    """Saturated with clamp. [6.5]"""
    return saturated(distances.to(I64) + addend.to(I64), U32) if clamp else distances + addend


def _byte_distances(a: U32, b: U32, masked: bool) -> U32:
    """Sum of the four byte distances; masked: bytes with a zero in `b` do not count."""
    total = U32.constant(a.engine, 0)
    for low in (0, 8, 16, 24):
        x, y = a.field(low, 8), b.field(low, 8)
        total = total + ((y == 0).select(0, _distance(x, y)) if masked else _distance(x, y))
    return total


@vop3("v_sad_u8", 0x1D9, intrinsic="llvm.amdgcn.sad.u8")
def v_sad_u8(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Sum of the four byte distances plus S2. [12.11]"""
    return _sum(_byte_distances(src0, src1, False), src2, clamp)


@vop3("v_sad_hi_u8", 0x1DA)
def v_sad_hi_u8(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Sum of the four byte distances in the high half plus S2. [12.11]"""
    return _sum(_byte_distances(src0, src1, False) << 16, src2, clamp)


@vop3("v_sad_u16", 0x1DB)
def v_sad_u16(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Sum of the two half distances plus S2. [12.11]"""
    low = _distance(src0.field(0, 16), src1.field(0, 16))
    return _sum(low + _distance(src0.field(16, 16), src1.field(16, 16)), src2, clamp)


@vop3("v_sad_u32", 0x1DC)
def v_sad_u32(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Distance of S0 and S1 plus S2. [12.11]"""
    return _sum(_distance(src0, src1), src2, clamp)


@vop3("v_msad_u8", 0x1E4)
def v_msad_u8(src0: U32, src1: U32, src2: U32, clamp: int = 0) -> U32:
    """Sum of the byte distances where S1's byte is not zero, plus S2. [12.11]"""
    return _sum(_byte_distances(src0, src1, True), src2, clamp)


@vop3("v_lerp_u8", 0x1CD)
def v_lerp_u8(src0: U32, src1: U32, src2: U32) -> U32:
    """Average of each byte pair, rounded up where the bit 0 of S2's byte is set. [12.11]"""
    result = U32.constant(src0.engine, 0)
    for low in (0, 8, 16, 24):
        total = src0.field(low, 8) + src1.field(low, 8) + src2.field(low, 1)
        result = result | ((total >> 1) << low)
    return result


def _quad(src0: U64, src1: U32, masked: bool) -> list[U32]:
    """Byte distances of the four windows of S0, one byte apart, to S1."""
    return [_byte_distances((src0 >> 8 * i).to(U32), src1, masked) for i in range(4)]


def _packed_quad(src0: U64, src1: U32, src2: U64, masked: bool, clamp: int) -> U64:
    sums = [d + ((src2 >> 16 * i).to(U32) & 0xFFFF) for i, d in enumerate(_quad(src0, src1, masked))]
    halves = [total.minimum(0xFFFF) if clamp else total & 0xFFFF for total in sums]
    return join(halves[0] | (halves[1] << 16), halves[2] | (halves[3] << 16))


@vop3("v_qsad_pk_u16_u8", 0x1E5)
def v_qsad_pk_u16_u8(src0: U64, src1: U32, src2: U64, clamp: int = 0) -> U64:
    """V_SAD_U8 of four windows of S0, each plus a half of S2, cut to 16 bits. [12.11]"""
    return _packed_quad(src0, src1, src2, False, clamp)


@vop3("v_mqsad_pk_u16_u8", 0x1E6)
def v_mqsad_pk_u16_u8(src0: U64, src1: U32, src2: U64, clamp: int = 0) -> U64:
    """V_MSAD_U8 of four windows of S0, each plus a half of S2, cut to 16 bits. [12.11]"""
    return _packed_quad(src0, src1, src2, True, clamp)


@vop3("v_mqsad_u32_u8", 0x1E7)
def v_mqsad_u32_u8(src0: U64, src1: U32, src2: B128, clamp: int = 0) -> B128:
    """V_MSAD_U8 of four windows of S0, each plus a register of S2. [12.11]"""
    return B128([_sum(total, src2[i], clamp) for i, total in enumerate(_quad(src0, src1, True))])


# ---- powers of two ---------------------------------------------------------------------------------------------------


def _power_of_two(count: I64) -> F64:
    """2^count, count within the normal exponents."""
    return ((count + 1023) << 52).bits(F64)


@vop3("v_ldexp_f32", 0x288, intrinsic="llvm.ldexp.f32.i32", rules=ARITHMETIC)
def v_ldexp_f32(src0: F32, src1: I32) -> F32:
    """D = S0 * 2^S1, rounded once. [12.11]"""
    power = _power_of_two(src1.maximum(-400).minimum(400).to(I64))
    with with_mode(src0.engine, round16_64=src0.engine.mode.round32, denorm16_64=3):
        return (src0.to(F64) * power).to(F32)


@vop3("v_ldexp_f64", 0x284, intrinsic="llvm.ldexp.f64.i32", rules=ARITHMETIC)
def v_ldexp_f64(src0: F64, src1: I32) -> F64:
    """D = S0 * 2^S1, rounded once. [12.11]"""
    value = as_input(src0)
    normal = (exponent(value) == 0).select(value * 2.0**54, value)
    moved = (exponent(value) == 0).select(I64.constant(src0.engine, -54), 0)
    special = (exponent(value) == 2047) | (value == 0.0)
    bits = bits_of(normal)
    significand = ((bits & ~(0x7FF << 52)) | (1023 << 52)).bits(F64)
    total = src1.maximum(-3000).minimum(3000).to(I64) + moved + (exponent(normal).to(I64) - 1023)
    total = total.maximum(-1200).minimum(1200)
    half = total >> 1
    return special.select(value * 1.0, significand * _power_of_two(half) * _power_of_two(total - half))


# ---- 16-bit forms that clear the other half --------------------------------------------------------------------------


@vop3("v_mad_legacy_f16", 0x1EA, rules=(MAD_LEGACY, LEGACY_MULTIPLY_ADD, *ARITHMETIC_F16))
def v_mad_legacy_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, not fused; the other half becomes zero. [12.11]"""
    return multiply_add(src0, src1, src2)


@vop3("v_mad_legacy_u16", 0x1EB)
def v_mad_legacy_u16(src0: U16, src1: U16, src2: U16, clamp: int = 0) -> U16:
    """D = S0 * S1 + S2; the other half becomes zero. [12.11]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), U16) if clamp else src0 * src1 + src2


@vop3("v_mad_legacy_i16", 0x1EC)
def v_mad_legacy_i16(src0: I16, src1: I16, src2: I16, clamp: int = 0) -> I16:
    """D = S0 * S1 + S2; the other half becomes zero. [12.11]"""
    return saturated(src0.to(I64) * src1.to(I64) + src2.to(I64), I16) if clamp else src0 * src1 + src2


@vop3("v_fma_legacy_f16", 0x1EE, rules=ARITHMETIC_F16)
def v_fma_legacy_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """D = S0 * S1 + S2, fused; the other half becomes zero. [12.11]"""
    return limited(fma(src0, src1, src2), src0, src1, src2)


@vop3("v_div_fixup_legacy_f16", 0x1EF, rules=(FLOAT_DENORM,))
def v_div_fixup_legacy_f16(src0: F16, src1: F16, src2: F16) -> F16:
    """V_DIV_FIXUP_F16; the other half becomes zero. [12.11]"""
    never = Mask.constant(src0.engine, 0)
    return _fixed_quotient(src0, src1, src2, never, never)
