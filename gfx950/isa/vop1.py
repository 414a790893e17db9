"""VOP1: one-operand vector instructions. [CDNA4 ISA 12.8]"""

from __future__ import annotations

from gfx950.arithmetic.transcendental import DEFAULTS
from gfx950.evidence import Evidence, rule
from gfx950.isa.lane_arithmetic import (
    ARITHMETIC,
    CONVERSION,
    EXACT,
    FP16_OVFL,
    NEAREST,
    X,
    as_input,
    as_output,
    bits_of,
    limited,
    mantissa_bits,
    quiet,
    with_mode,
)
from gfx950.isa.registry import Exec, Scalar32, ToSrc0, vop1
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
    U16,
    U32,
    U64,
    Float,
    Mask,
    infinity_bits,
)
from gfx950.models import body_switch

TO_INTEGER = (
    rule(
        "valu.float_to_integer_range",
        Evidence.spec,
        "CDNA4 ISA 12.8, notes of V_CVT_I32_F32, V_CVT_U32_F32, V_CVT_I32_F64, V_CVT_U32_F64",
        "A float beyond the integer's range, an infinity too, saturates; NaN gives 0.",
    ),
    rule(
        "valu.float_to_integer",
        Evidence.chosen,
        "CDNA4 ISA 12.8 says so of V_CVT_U16_F16 and V_CVT_I16_F16 only, whose NaN it leaves open; LLVM's AMDGPU back"
        " end relies on truncation everywhere",
        "A float becomes an integer by truncation toward zero; an f16 NaN gives 0.",
    ),
)
FROM_INTEGER = (FLOAT_ROUND,)
FLOOR_TO_INTEGER = rule(
    "valu.cvt_flr_rpi",
    Evidence.chosen,
    "CDNA4 ISA 12.8: both ignore the rounding mode; V_CVT_RPI_I32_F32 is good to 0.5 ULP, which the sum S0 + 0.5"
    " rounded to f32 is not (0.49999997 would give 1); LLVM marks neither as a reader of MODE",
    "V_CVT_FLR is floor(S0), V_CVT_RPI floor(S0 + 0.5) of the exact sum, so that halves go up (0.5 to 1, -0.5 to 0);"
    " MODE's rounding and denormal fields do not count: V_CVT_FLR of a negative denormal is -1.",
)
RPI_SUM = body_switch(
    "valu.rpi_sum",
    ("exact", "f32"),
    "Whether V_CVT_RPI_I32_F32 is the floor of the exact S0 + 0.5, or of that sum rounded to nearest in f32: then"
    " 0.49999997 gives 1.",
    FLOOR_TO_INTEGER,
)
FLOOR_DENORMALS = body_switch(
    "valu.flr_denorm",
    ("kept", "mode"),
    "Whether V_CVT_FLR_I32_F32 keeps denormals, so that negative ones give -1, or flushes them by MODE.",
    FLOOR_TO_INTEGER,
)
FRACTION = rule(
    "valu.fract",
    Evidence.spec,
    "CDNA4 ISA 12.8 V_FRACT_F32, V_FRACT_F64",
    "S0 + -floor(S0), rounded by MODE, at most the largest number below 1.",
)
FRACTION_F16 = rule(
    "valu.fract_f16",
    Evidence.vendor,
    "CDNA4 ISA 12.8 has the limit in the notes of V_FRACT_F32 and V_FRACT_F64, not of V_FRACT_F16; LLVM selects all"
    " three for the minimum of x - floor(x) and the largest number below 1",
    "V_FRACT_F16 has the same limit as the wider ones: 0x3bff.",
)
APPROXIMATE_F64 = rule(
    "valu.transcendental_f64",
    Evidence.chosen,
    "CDNA4 ISA 12.8 promises of V_RCP_F64, V_RSQ_F64 and V_SQRT_F64 only 2^29 ULP, some 24 bits, and that denormals are"
    " supported; LLVM refines the results; how many bits gfx950 gives is not published",
    "V_RCP_F64 and V_SQRT_F64 are correctly rounded to nearest even, V_RSQ_F64 is the rounded quotient of 1 and the"
    " rounded square root: more bits than the unit promises. MODE's rounding field does not count; denormals by MODE.",
)
LEGACY = rule(
    "transcendental.legacy",
    Evidence.chosen,
    "CDNA4 ISA table 12 names V_EXP_LEGACY_F32 and V_LOG_LEGACY_F32, 12.8 leaves them out; the manuals of Vega say only"
    " that their semantics are legacy; the opcodes are those of LLVM's assembler",
    "V_EXP_LEGACY_F32 and V_LOG_LEGACY_F32 give what V_EXP_F32 and V_LOG_F32 give.",
)
SCREEN_PARTITION = rule(
    "valu.screen_partition",
    Evidence.chosen,
    "CDNA4 ISA 12.8 leaves V_SCREEN_PARTITION_4SE_B32 out, LLVM's assembler has it; the table is the one that the"
    " manuals of Vega print, as the public assembler CLRX gives it",
    "V_SCREEN_PARTITION_4SE_B32 looks S0[7:0] up in the 256 entries of Vega.",
)
MOVE_MODIFIERS = rule(
    "valu.move_modifiers",
    Evidence.chosen,
    "CDNA4 ISA 12.7, 12.8: floating-point modifiers are valid for V_MOV_B32 and V_CNDMASK_B32, shown for NEG and ABS"
    " only; LLVM accepts clamp in their SDWA forms, as it does for every instruction",
    "CLAMP and OMOD act on the moved bits as on an f32 result; without a modifier the bits, denormals and signalling"
    " NaNs too, stay as they are.",
)
MOV_B64_LITERAL = rule(
    "valu.mov_b64_literal",
    Evidence.chosen,
    "the manual does not say how an untyped 64-bit operand widens a literal; LLVM emits V_MOV_B64 with one only for"
    " values below 2^32",
    "The literal of V_MOV_B64 is zero-extended.",
)


def native_f32(name: str, value: F32) -> F32:
    """An f32 function by the name of its native (gfx950.arithmetic.transcendental)."""
    return F32(value.engine, value.engine.native(DEFAULTS[name].name, [value.raw], 0)[0])


def native_turns(name: str, value: F32) -> F32:
    """As `native_f32`, for v_sin and v_cos: MODE says what becomes of denormals."""
    return as_output(native_f32(name, as_input(value)))


def native_f16(name: str, value: F16) -> F16:
    """An f16 function by the name of its native, which works on 32-bit lanes and leaves MODE's denormals to this."""
    engine = value.engine
    wide = as_input(value).bits(U16).to(U32)
    return as_output(U32(engine, engine.native(DEFAULTS[name].name, [wide.raw], 0)[0]).to(U16).bits(F16))


# ---- moves -----------------------------------------------------------------------------------------------------------


@vop1("v_nop", 0, flow="nothing")
def v_nop() -> None:
    """Nothing. [12.8]"""


@vop1("v_clrexcp", 53, flow="clear")
def v_clrexcp() -> None:
    """TRAPSTS[6:0] = 0: what vector arithmetic raises. [3.10.1, 12.8]"""


@vop1("v_mov_b32", 1, rules=(MOVE_MODIFIERS,))
def v_mov_b32(src0: F32) -> F32:
    """D = S0; typed float so that neg and abs apply. [12.8]"""
    return src0


@vop1("v_mov_b64", 56, rules=(MOV_B64_LITERAL,))
def v_mov_b64(src0: U64, neg: int = 0, abs: int = 0) -> U64:
    """D = S0; neg and abs act on bit 63. [12.8]"""
    magnitude = src0 & ((1 << 63) - 1) if abs & 1 else src0
    return magnitude ^ (1 << 63) if neg & 1 else magnitude


@vop1("v_readfirstlane_b32", 2, intrinsic="llvm.amdgcn.readfirstlane.i32")
def v_readfirstlane_b32(src0: B32, exec: Exec) -> Scalar32:
    """The scalar in the lowest active lane, lane 0 when none is. [12.8]"""
    return src0.readlane(exec.ctz().to(U32))  # no active lane: 64, which is lane 0


@vop1("v_swap_b32", 81)
def v_swap_b32(vdst: B32, src0: B32) -> tuple[B32, ToSrc0]:
    """VDST and the source register trade values. [12.8]"""
    return src0, vdst


@vop1("v_not_b32", 43)
def v_not_b32(src0: B32) -> B32:
    """Bitwise complement. [12.8]"""
    return ~src0


@vop1("v_bfrev_b32", 44)
def v_bfrev_b32(src0: B32) -> B32:
    """Bits in reverse order. [12.8]"""
    return src0.bitreverse()


@vop1("v_ffbh_u32", 45)
def v_ffbh_u32(src0: U32) -> U32:
    """Leading zeros, -1 for 0. [12.8]"""
    return (src0 == 0).select(0xFFFFFFFF, src0.clz())


@vop1("v_ffbl_b32", 46)
def v_ffbl_b32(src0: U32) -> U32:
    """Trailing zeros, -1 for 0. [12.8]"""
    return (src0 == 0).select(0xFFFFFFFF, src0.ctz())


@vop1("v_ffbh_i32", 47)
def v_ffbh_i32(src0: I32) -> U32:
    """Position from the top of the first bit that differs from the sign, -1 for 0 and -1. [12.8]"""
    differing = (src0 ^ (src0 >> 31)).bits(U32)
    return (differing == 0).select(0xFFFFFFFF, differing.clz())


@vop1("v_prng_b32", 88)
def v_prng_b32(src0: U32) -> U32:
    """The next state of the 32-bit shift register with feedback 197. [12.8]"""
    return (src0 << 1) ^ ((src0 >> 31) * 197)


@vop1("v_sat_pk_u8_i16", 79)
def v_sat_pk_u8_i16(src0: U32) -> U32:
    """Both signed halves saturated to 0..255, packed into the low 16 bits. [12.8]"""
    low = src0.to(U16).bits(I16).maximum(0).minimum(255)
    high = (src0 >> 16).to(U16).bits(I16).maximum(0).minimum(255)
    return (low.bits(U16).to(U32)) | (high.bits(U16).to(U32) << 8)


# ---- conversions between integers and floats -------------------------------------------------------------------------


@vop1("v_cvt_i32_f64", 3, rules=TO_INTEGER)
def v_cvt_i32_f64(src0: F64) -> I32:
    """f64 to signed integer. [12.8]"""
    return src0.to(I32)


@vop1("v_cvt_f64_i32", 4)
def v_cvt_f64_i32(src0: I32) -> F64:
    """Signed integer to f64, exact. [12.8]"""
    return src0.to(F64)


@vop1("v_cvt_f32_i32", 5, rules=FROM_INTEGER)
def v_cvt_f32_i32(src0: I32) -> F32:
    """Signed integer to f32. [12.8]"""
    return src0.to(F32)


@vop1("v_cvt_f32_u32", 6, rules=FROM_INTEGER)
def v_cvt_f32_u32(src0: U32) -> F32:
    """Unsigned integer to f32. [12.8]"""
    return src0.to(F32)


@vop1("v_cvt_u32_f32", 7, rules=TO_INTEGER)
def v_cvt_u32_f32(src0: F32) -> U32:
    """f32 to unsigned integer. [12.8]"""
    return src0.to(U32)


@vop1("v_cvt_i32_f32", 8, rules=TO_INTEGER)
def v_cvt_i32_f32(src0: F32) -> I32:
    """f32 to signed integer. [12.8]"""
    return src0.to(I32)


@vop1("v_cvt_rpi_i32_f32", 12, rules=(FLOOR_TO_INTEGER, *TO_INTEGER))
def v_cvt_rpi_i32_f32(src0: F32) -> I32:
    """floor(S0 + 0.5) as a signed integer. [12.8]"""
    with with_mode(src0.engine, **EXACT):
        if RPI_SUM.answer == "f32":
            return (src0 + 0.5).floor().to(I32)
        # the sum is exact but for numbers so small that its floor is 0 either way
        return (src0.to(F64) + 0.5).floor().to(I32)


@vop1("v_cvt_flr_i32_f32", 13, rules=(FLOOR_TO_INTEGER, *TO_INTEGER))
def v_cvt_flr_i32_f32(src0: F32) -> I32:
    """floor(S0) as a signed integer. [12.8]"""
    seen = src0 if FLOOR_DENORMALS.answer == "kept" else as_input(src0)
    with with_mode(src0.engine, **EXACT):
        return seen.floor().to(I32)


@vop1("v_cvt_off_f32_i4", 14)
def v_cvt_off_f32_i4(src0: U32) -> F32:
    """The signed low nibble divided by 16. [12.8]"""
    return ((src0.bits(I32) << 28) >> 28).to(F32) * 0.0625


@vop1("v_cvt_u32_f64", 21, rules=TO_INTEGER)
def v_cvt_u32_f64(src0: F64) -> U32:
    """f64 to unsigned integer. [12.8]"""
    return src0.to(U32)


@vop1("v_cvt_f64_u32", 22)
def v_cvt_f64_u32(src0: U32) -> F64:
    """Unsigned integer to f64, exact. [12.8]"""
    return src0.to(F64)


@vop1("v_cvt_f32_ubyte0", 17)
def v_cvt_f32_ubyte0(src0: U32) -> F32:
    """Byte 0 to f32. [12.8]"""
    return src0.field(0, 8).to(F32)


@vop1("v_cvt_f32_ubyte1", 18)
def v_cvt_f32_ubyte1(src0: U32) -> F32:
    """Byte 1 to f32. [12.8]"""
    return src0.field(8, 8).to(F32)


@vop1("v_cvt_f32_ubyte2", 19)
def v_cvt_f32_ubyte2(src0: U32) -> F32:
    """Byte 2 to f32. [12.8]"""
    return src0.field(16, 8).to(F32)


@vop1("v_cvt_f32_ubyte3", 20)
def v_cvt_f32_ubyte3(src0: U32) -> F32:
    """Byte 3 to f32. [12.8]"""
    return src0.field(24, 8).to(F32)


@vop1("v_cvt_f16_u16", 57, rules=(*FROM_INTEGER, FP16_OVFL))
def v_cvt_f16_u16(src0: U16) -> F16:
    """Unsigned 16-bit integer to f16. [12.8]"""
    return limited(src0.to(F16))


@vop1("v_cvt_f16_i16", 58, rules=FROM_INTEGER)
def v_cvt_f16_i16(src0: I16) -> F16:
    """Signed 16-bit integer to f16. [12.8]"""
    return src0.to(F16)


@vop1("v_cvt_u16_f16", 59, rules=TO_INTEGER)
def v_cvt_u16_f16(src0: F16) -> U16:
    """f16 to unsigned 16-bit integer. [12.8]"""
    return src0.to(U16)


@vop1("v_cvt_i16_f16", 60, rules=TO_INTEGER)
def v_cvt_i16_f16(src0: F16) -> I16:
    """f16 to signed 16-bit integer. [12.8]"""
    return src0.to(I16)


# ---- conversions between floats --------------------------------------------------------------------------------------


@vop1("v_cvt_f32_f64", 15, rules=CONVERSION)
def v_cvt_f32_f64(src0: F64) -> F32:
    """f64 to f32. [12.8]"""
    return src0.to(F32)


@vop1("v_cvt_f64_f32", 16, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_cvt_f64_f32(src0: F32) -> F64:
    """f32 to f64. [12.8]"""
    return src0.to(F64)


# ---- integral values and parts ---------------------------------------------------------------------------------------


def _fraction(value: X) -> X:
    """value - floor(value), below 1 [rule valu.fract]; infinities give NaN."""
    kind = type(value)
    below_one = kind(value.engine, value.engine.constant(kind.constant_bits(1.0) - 1, kind.width))
    difference = value - value.floor()
    return (difference > below_one).select(below_one, difference)


@vop1("v_fract_f32", 27, rules=(FRACTION, *ARITHMETIC))
def v_fract_f32(src0: F32) -> F32:
    """The fraction above the floor. [12.8]"""
    return _fraction(src0)


@vop1("v_trunc_f32", 28, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_trunc_f32(src0: F32) -> F32:
    """Integral value toward zero. [12.8]"""
    return src0.truncate()


@vop1("v_ceil_f32", 29, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_ceil_f32(src0: F32) -> F32:
    """Integral value at or above. [12.8]"""
    return src0.ceil()


@vop1("v_rndne_f32", 30, rules=(FLOAT_DENORM, FLOAT_NAN), intrinsic="llvm.rint.f32")
def v_rndne_f32(src0: F32) -> F32:
    """Nearest integral value, ties to even. [12.8]"""
    return src0.rint()


@vop1("v_floor_f32", 31, rules=(FLOAT_DENORM, FLOAT_NAN), intrinsic="llvm.floor.f32")
def v_floor_f32(src0: F32) -> F32:
    """Integral value at or below. [12.8]"""
    return src0.floor()


@vop1("v_fract_f64", 50, rules=(FRACTION, *ARITHMETIC))
def v_fract_f64(src0: F64) -> F64:
    """The fraction above the floor. [12.8]"""
    return _fraction(src0)


@vop1("v_trunc_f64", 23, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_trunc_f64(src0: F64) -> F64:
    """Integral value toward zero. [12.8]"""
    return src0.truncate()


@vop1("v_ceil_f64", 24, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_ceil_f64(src0: F64) -> F64:
    """Integral value at or above. [12.8]"""
    return src0.ceil()


@vop1("v_rndne_f64", 25, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_rndne_f64(src0: F64) -> F64:
    """Nearest integral value, ties to even. [12.8]"""
    return src0.rint()


@vop1("v_floor_f64", 26, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_floor_f64(src0: F64) -> F64:
    """Integral value at or below. [12.8]"""
    return src0.floor()


@vop1("v_floor_f16", 68, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_floor_f16(src0: F16) -> F16:
    """Integral value at or below. [12.8]"""
    return src0.floor()


@vop1("v_ceil_f16", 69, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_ceil_f16(src0: F16) -> F16:
    """Integral value at or above. [12.8]"""
    return src0.ceil()


@vop1("v_trunc_f16", 70, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_trunc_f16(src0: F16) -> F16:
    """Integral value toward zero. [12.8]"""
    return src0.truncate()


@vop1("v_rndne_f16", 71, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_rndne_f16(src0: F16) -> F16:
    """Nearest integral value, ties to even. [12.8]"""
    return src0.rint()


# Entry i of the table in bits 4i + 3 .. 4i of the words together. [rule valu.screen_partition]
# fmt: off
PARTITIONS = (
    0xFFF5F731, 0xFFFFFFF7, 0xFFAFE62F, 0xFFFFFFBF, 0xF5FFC4FD, 0xFFFFFDFF, 0xAFFF8FB9, 0xFFFFEFFF,
    0xFDC4FFFF, 0xFFFEFFF6, 0xB98FFFFF, 0xFFDFF99F, 0x31F7FFFF, 0xFBFFF9FF, 0x2FE6FFFF, 0x7FFF6FF6,
    0xFFFFFFFB, 0xFFFAFB32, 0xFFFFFF7F, 0xFF5FD91F, 0xFFFFFEFF, 0xFAFFC8FE, 0xFFFFDFFF, 0x5FFF4F76,
    0xFFFDFFF9, 0xFEC8FFFF, 0xFFEFF66F, 0x764FFFFF, 0xF7FFF6FF, 0x32FBFFFF, 0xBFFF9FF9, 0x1FD9FFFF,
)
# fmt: on


@vop1("v_screen_partition_4se_b32", 55, rules=(SCREEN_PARTITION,))
def v_screen_partition_4se_b32(src0: B32) -> U32:
    """The shader engines that a pixel's position belongs to, by a table. [rule valu.screen_partition]"""
    word = src0.field(3, 5)
    entries = U32.constant(src0.engine, PARTITIONS[0])
    for index, entry in enumerate(PARTITIONS[1:], 1):
        entries = (word == index).select(entry, entries)
    return (entries >> ((src0 & 7) << 2)) & 15


# ---- transcendental --------------------------------------------------------------------------------------------------


@vop1("v_exp_f32", 32, intrinsic="llvm.amdgcn.exp2.f32")
def v_exp_f32(src0: F32) -> F32:
    """2 to the power S0. [12.8]"""
    return native_f32("v_exp_f32", src0)


@vop1("v_log_f32", 33, intrinsic="llvm.amdgcn.log.f32")
def v_log_f32(src0: F32) -> F32:
    """Logarithm to base 2. [12.8]"""
    return native_f32("v_log_f32", src0)


@vop1("v_rcp_f32", 34, intrinsic="llvm.amdgcn.rcp.f32")
def v_rcp_f32(src0: F32) -> F32:
    """1 / S0, approximate. [12.8]"""
    return native_f32("v_rcp_f32", src0)


@vop1("v_rcp_iflag_f32", 35)
def v_rcp_iflag_f32(src0: F32) -> F32:
    """1 / S0, approximate; differs from V_RCP_F32 in exceptions only. [12.8]"""
    return native_f32("v_rcp_iflag_f32", src0)


@vop1("v_rsq_f32", 36, intrinsic="llvm.amdgcn.rsq.f32")
def v_rsq_f32(src0: F32) -> F32:
    """1 / square root, approximate. [12.8]"""
    return native_f32("v_rsq_f32", src0)


@vop1("v_sqrt_f32", 39, intrinsic="llvm.amdgcn.sqrt.f32")
def v_sqrt_f32(src0: F32) -> F32:
    """Square root, approximate. [12.8]"""
    return native_f32("v_sqrt_f32", src0)


@vop1("v_sin_f32", 41, intrinsic="llvm.amdgcn.sin.f32")
def v_sin_f32(src0: F32) -> F32:
    """Sine of S0 turns. [12.8]"""
    return native_turns("v_sin_f32", src0)


@vop1("v_cos_f32", 42, intrinsic="llvm.amdgcn.cos.f32")
def v_cos_f32(src0: F32) -> F32:
    """Cosine of S0 turns. [12.8]"""
    return native_turns("v_cos_f32", src0)


@vop1("v_exp_legacy_f32", 75, rules=(LEGACY,))
def v_exp_legacy_f32(src0: F32) -> F32:
    """2 to the power S0. [12.8, rule transcendental.legacy]"""
    return native_f32("v_exp_f32", src0)


@vop1("v_log_legacy_f32", 76, rules=(LEGACY,))
def v_log_legacy_f32(src0: F32) -> F32:
    """Logarithm to base 2. [12.8, rule transcendental.legacy]"""
    return native_f32("v_log_f32", src0)


@vop1("v_rcp_f16", 61, intrinsic="llvm.amdgcn.rcp.f16", rules=(FP16_OVFL,))
def v_rcp_f16(src0: F16) -> F16:
    """1 / S0; that of 0 is a true infinity. [12.8]"""
    result = native_f16("v_rcp_f16", src0)
    return (src0 == 0.0).select(result, limited(result, src0))


@vop1("v_sqrt_f16", 62, intrinsic="llvm.amdgcn.sqrt.f16")
def v_sqrt_f16(src0: F16) -> F16:
    """Square root. [12.8]"""
    return native_f16("v_sqrt_f16", src0)


@vop1("v_rsq_f16", 63, intrinsic="llvm.amdgcn.rsq.f16")
def v_rsq_f16(src0: F16) -> F16:
    """1 / square root. [12.8]"""
    return native_f16("v_rsq_f16", src0)


@vop1("v_log_f16", 64)
def v_log_f16(src0: F16) -> F16:
    """Logarithm to base 2. [12.8]"""
    return native_f16("v_log_f16", src0)


@vop1("v_exp_f16", 65, rules=(FP16_OVFL,))
def v_exp_f16(src0: F16) -> F16:
    """2 to the power S0. [12.8]"""
    return limited(native_f16("v_exp_f16", src0), src0)


@vop1("v_sin_f16", 73, intrinsic="llvm.amdgcn.sin.f16")
def v_sin_f16(src0: F16) -> F16:
    """Sine of S0 turns. [12.8]"""
    return native_f16("v_sin_f16", src0)


@vop1("v_cos_f16", 74, intrinsic="llvm.amdgcn.cos.f16")
def v_cos_f16(src0: F16) -> F16:
    """Cosine of S0 turns. [12.8]"""
    return native_f16("v_cos_f16", src0)


@vop1("v_rcp_f64", 37, intrinsic="llvm.amdgcn.rcp.f64", rules=(APPROXIMATE_F64, *ARITHMETIC))
def v_rcp_f64(src0: F64) -> F64:
    """1 / S0. [12.8]"""
    with with_mode(src0.engine, **NEAREST):
        return F64.constant(src0.engine, 1.0) / src0


@vop1("v_rsq_f64", 38, intrinsic="llvm.amdgcn.rsq.f64", rules=(APPROXIMATE_F64, *ARITHMETIC))
def v_rsq_f64(src0: F64) -> F64:
    """1 / square root. [12.8]"""
    with with_mode(src0.engine, **NEAREST):
        return F64.constant(src0.engine, 1.0) / src0.sqrt()


@vop1("v_sqrt_f64", 40, intrinsic="llvm.amdgcn.sqrt.f64", rules=(APPROXIMATE_F64, *ARITHMETIC))
def v_sqrt_f64(src0: F64) -> F64:
    """Square root. [12.8]"""
    with with_mode(src0.engine, **NEAREST):
        return src0.sqrt()


# ---- fraction and exponent -------------------------------------------------------------------------------------------


def _normalized(value: X) -> tuple[X, I32]:
    """A denormal times a power of two that makes it normal, and the exponent field that leaves; others unchanged."""
    mantissa = mantissa_bits(type(value))
    field = value.width - 1 - mantissa
    bits = bits_of(value)
    zeros = (bits & ((1 << mantissa) - 1)).clz() - field
    denormal = (bits.field(mantissa, field) == 0) & ((bits & ((1 << value.width - 1) - 1)) != 0)
    shifted = (bits & (1 << value.width - 1)) | ((bits << zeros) & ((1 << mantissa + 1) - 1))
    number = denormal.select(1 - zeros, bits.field(mantissa, field))
    signed = number.to(U32).bits(I32) if value.width != 16 else number.bits(I16).to(I32)
    return denormal.select(shifted, bits).bits(type(value)), signed


def _finite_nonzero(value: Float) -> Mask:
    magnitude = bits_of(value) & ((1 << value.width - 1) - 1)
    return (magnitude != 0) & (magnitude < infinity_bits(value.width))


def _frexp_exponent(value: Float) -> I32:
    """The exponent that leaves a fraction in [0.5, 1); 0 for zeros, infinities and NaNs."""
    bias, seen = (1 << value.width - 2 - mantissa_bits(type(value))) - 1, as_input(value)
    return _finite_nonzero(seen).select(_normalized(seen)[1] - (bias - 1), 0)


def _frexp_mantissa(value: X) -> X:
    """The fraction in [0.5, 1) with the sign; zeros, infinities and NaNs stay (quieted)."""
    kind, mantissa = type(value), mantissa_bits(type(value))
    bias = (1 << value.width - 2 - mantissa) - 1
    keep = (1 << value.width - 1) | ((1 << mantissa) - 1)
    seen = as_input(value)
    fraction = (bits_of(_normalized(seen)[0]) & keep) | (bias - 1 << mantissa)
    other = value.is_nan().select(quiet(value), seen)
    return _finite_nonzero(seen).select(fraction.bits(kind), other)


@vop1("v_frexp_exp_i32_f64", 48, rules=(FLOAT_DENORM,))
def v_frexp_exp_i32_f64(src0: F64) -> I32:
    """The exponent that leaves a fraction in [0.5, 1); 0 for zero, infinity, NaN. [12.8]"""
    return _frexp_exponent(src0)


@vop1("v_frexp_mant_f64", 49, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_frexp_mant_f64(src0: F64) -> F64:
    """The fraction in [0.5, 1) with the sign. [12.8]"""
    return _frexp_mantissa(src0)


@vop1("v_frexp_exp_i32_f32", 51, rules=(FLOAT_DENORM,), intrinsic="llvm.amdgcn.frexp.exp.i32.f32")
def v_frexp_exp_i32_f32(src0: F32) -> I32:
    """The exponent that leaves a fraction in [0.5, 1); 0 for zero, infinity, NaN. [12.8]"""
    return _frexp_exponent(src0)


@vop1("v_frexp_mant_f32", 52, rules=(FLOAT_DENORM, FLOAT_NAN), intrinsic="llvm.amdgcn.frexp.mant.f32")
def v_frexp_mant_f32(src0: F32) -> F32:
    """The fraction in [0.5, 1) with the sign. [12.8]"""
    return _frexp_mantissa(src0)


@vop1("v_frexp_mant_f16", 66, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_frexp_mant_f16(src0: F16) -> F16:
    """The fraction in [0.5, 1) with the sign. [12.8]"""
    return _frexp_mantissa(src0)


@vop1("v_frexp_exp_i16_f16", 67, rules=(FLOAT_DENORM,))
def v_frexp_exp_i16_f16(src0: F16) -> I16:
    """The exponent that leaves a fraction in [0.5, 1); 0 for zero, infinity, NaN. [12.8]"""
    return _frexp_exponent(src0).to(I16)


@vop1("v_fract_f16", 72, rules=(FRACTION, FRACTION_F16, *ARITHMETIC))
def v_fract_f16(src0: F16) -> F16:
    """The fraction above the floor. [12.8]"""
    return _fraction(src0)
