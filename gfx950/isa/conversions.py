"""Conversions to and from narrow floats, and packing conversions. [CDNA4 ISA 7.3, 12.8, 12.11]"""

from __future__ import annotations

from gfx950 import formats
from gfx950.evidence import Evidence, Rule, rule
from gfx950.formats import BF16 as BF16_FORMAT
from gfx950.formats import E4M3FN, E5M2, Format
from gfx950.formats import F16 as F16_FORMAT
from gfx950.isa.lane_arithmetic import (
    CONVERSION,
    EXACT,
    FP16_OVFL,
    NEAREST,
    as_input,
    as_output,
    by_mode,
    clamped,
    limited,
    saturated,
    with_mode,
)
from gfx950.isa.registry import Bf16, vop1, vop3
from gfx950.lanes import B32, F16, F32, F64, FLOAT_DENORM, FLOAT_NAN, I16, I32, I64, U16, U32, U64, Mask, join
from gfx950.models import Answer, body_switch

NEAREST_F8 = (formats.ROUNDING, formats.OVERFLOW_EDGE)
rule(
    "convert.f8_mode",
    Evidence.spec,
    "CDNA4 ISA 7.3: SH_MEM_CONFIG bit 8 must be 1 for right FP8 and BF8 results",
    "SH_MEM_CONFIG bit 8 is taken to be 1: FP8 and BF8 are the OCP formats e4m3fn and e5m2.",
)
STOCHASTIC = rule(
    "convert.stochastic",
    Evidence.vendor,
    "CDNA4 ISA 7.3 adds a random value and truncates, 12.11 lets the mantissa wrap and rounds to nearest; AMD's HIP"
    " host conversions (amd_hip_ocp_host.hpp, from_float_sr) do as stated, and AMD's hip-tests (Unit_amd_ocp_*) demand"
    " their results of gfx950, with seeds 0 and 1",
    "The top bits of S1, as many as a normal result drops, are added as a fraction of one step of the result, carries"
    " go on into the exponent, and the sum is truncated; overflow is judged afterwards.",
)
NAN_WIDE_CODE = rule(
    "convert.nan_wide",
    Evidence.chosen,
    "the manual says nothing; AMD's HIP host conversions (amd_hip_ocp_host.hpp) do so for f32, and for f16 and bf16"
    " make all bits but the sign ones",
    "An 8-bit NaN becomes the quiet NaN of its sign without payload: f32 7fc00000, f16 7e00, bf16 7fc0.",
)
NEAREST_EVEN = rule(
    "convert.nearest_even",
    Evidence.spec,
    "CDNA4 ISA 12.11 V_CVT_PK_F16_F32, V_CVT_PK_BF16_F32",
    "Rounded to nearest even whatever MODE says.",
)
TOWARD_ZERO = rule(
    "convert.pkrtz",
    Evidence.spec,
    "CDNA4 ISA 12.11 V_CVT_PKRTZ_F16_F32",
    "Rounded toward zero whatever MODE says; a finite value over the maximum becomes the maximum.",
)
BF16_DENORM = rule(
    "convert.bf16_denorm",
    Evidence.chosen,
    "the manual gives bf16 no denormal field of its own; it has the exponents of f32",
    "On the way to bf16 denormals are flushed unless MODE's f32 field keeps them on both sides.",
)
SATURATED_PACK = rule(
    "convert.pack_integer",
    Evidence.chosen,
    "the manual names no range rule for V_CVT_PK_U16_U32 and V_CVT_PK_I16_I32; LLVM's AMDGPU back end clamps with"
    " V_CVT_PK_I16_I32",
    "Both numbers saturate at the 16-bit range.",
)
NORMALIZED = rule(
    "convert.normalized",
    Evidence.chosen,
    "the manual does not give the scaling of f32_to_snorm and f32_to_unorm",
    "The value times 32767 or 65535, rounded to nearest even, saturated; NaN gives 0.",
)
BYTE_PACK = rule(
    "convert.pack_byte",
    Evidence.chosen,
    "the manual does not say how f32_to_u8 rounds",
    "Truncated toward zero and saturated at 0 and 255; NaN gives 0.",
)


STOCHASTIC_SUM = body_switch(
    "convert.stochastic",
    ("truncate", "wrap", "nearest"),
    "How a stochastic conversion ends. truncate: a carry of the random part goes on into the exponent, the sum is"
    " truncated. wrap: the 23 mantissa bits wrap, the exponent stays, the sum is truncated. nearest: the code of 12.11"
    " as it stands, they wrap and the sum is rounded to nearest even (then even exact numbers depend on the seed, which"
    " ROCm's hip-fpsan saw not to be so on gfx950).",
    STOCHASTIC,
)
STOCHASTIC_SMALL = body_switch(
    "convert.stochastic_small",
    ("step", "mantissa"),
    "Where the random part lies when the result is below the smallest normal. step: it is a fraction of a step of the"
    " result, as for normal ones. mantissa: it is added to the f32 mantissa before that is shifted into place.",
    STOCHASTIC,
)
STOCHASTIC_BITS = body_switch(
    "convert.stochastic_bits",
    ("high", "low"),
    "Which bits of S1 are the random part of results that have not 8 bits, for which 12.11 names none.",
    STOCHASTIC,
)
STOCHASTIC_OVERFLOW = body_switch(
    "convert.stochastic_overflow",
    ("after", "before"),
    "Whether a stochastic conversion compares with the largest number after it rounded, or before: then every number"
    " over the largest overflows, whatever the seed.",
    STOCHASTIC,
)
NAN_NARROW = body_switch(
    "convert.nan_narrow",
    ("canonical", "payload", "ones", "positive"),
    "The code that a NaN becomes on the way to e5m2, e4m3fn, bf16 or (stochastically) f16. canonical: its sign, only"
    " the quiet bit set. payload: sign and top of the payload kept, quieted. ones: its sign, all other bits ones."
    " positive: canonical without the sign. e4m3fn has one magnitude of NaN.",
    formats.NAN_F8,
    formats.NAN_CODE,
)
NAN_WIDE = body_switch(
    "convert.nan_wide",
    ("canonical", "payload", "ones", "positive"),
    "The number that an 8-bit NaN becomes. canonical: 0x7fc00000 with its sign. payload: its mantissa bits on top,"
    " quieted, with its sign. ones: 0x7fffffff with its sign. positive: 0x7fc00000.",
    NAN_WIDE_CODE,
)
SATURATE_INFINITY = body_switch(
    "convert.saturate_infinity",
    ("maximum", "infinity"),
    "What FP16_OVFL makes of an infinity on the way to e5m2: the largest number, or an infinity still.",
    formats.SATURATION_INFINITY,
)
SMALL_FORMAT_NAN = body_switch(
    "convert.small_format_nan",
    ("maximum", "positive", "zero"),
    "What a NaN becomes in 4 and 6 bits: the largest number with the NaN's sign, the largest positive number, or a zero"
    " with the NaN's sign.",
    formats.NO_INFINITY_SPECIALS,
)
BF16_DENORMALS = body_switch(
    "convert.bf16_denorm",
    ("both", "each", "kept"),
    "How V_CVT_PK_BF16_F32 and V_CVT_SR_BF16_F32 follow MODE's f32 denormal field. both: denormal operands are flushed"
    " unless both bits are set. each: operands by the input bit, results by the output bit. kept: not at all.",
    BF16_DENORM,
)
PACK_INTEGER = body_switch(
    "convert.pack_integer",
    ("saturate", "low_bits"),
    "What V_CVT_PK_U16_U32 and V_CVT_PK_I16_I32 make of numbers beyond 16 bits: the end of the range, or the low bits.",
    SATURATED_PACK,
)
NORMALIZE = body_switch(
    "convert.normalized",
    ("nearest", "f32", "half_up"),
    "How the product with 32767 or 65535 becomes an integer. nearest: the exact product, ties to even. f32: the product"
    " rounded to f32 first. half_up: floor of the exact product plus a half.",
    NORMALIZED,
)
PACK_BYTE = body_switch(
    "convert.pack_byte",
    ("truncate", "nearest", "mode"),
    "How V_CVT_PK_U8_F32 and V_CVT_PKACCUM_U8_F32 round: toward zero, to nearest even, or by MODE.",
    BYTE_PACK,
)


# ---- narrow floats ---------------------------------------------------------------------------------------------------


def narrow_rules(form: Format) -> tuple[Rule, ...]:
    """The rules of what becomes of small, large and special numbers in a format."""
    if form.canonical_nan is None:
        return formats.SUBNORMALS, formats.NO_INFINITY, formats.NO_INFINITY_SPECIALS
    if form.bits == 16:
        return formats.SUBNORMALS, formats.NAN_CODE
    infinity = (formats.SATURATION_INFINITY,) if form.infinities else ()
    return formats.SUBNORMALS, formats.OVERFLOW_CODE, formats.SATURATION, *infinity, formats.NAN_F8


def _dropped(form: Format) -> int:
    """f32 mantissa bits a normal result of the format drops."""
    return 23 - form.mantissa_bits


def _special_codes(value: F32, magnitude: U32, code: U32, form: Format, nan: Answer) -> U32:
    """`code` with overflow, infinity, NaN and the sign put in. MODE.FP16_OVFL saturates finite values on the way to
    f16, finite and infinite ones on the way to 8 bits, nothing on the way to bf16; 4 and 6 bits always saturate."""
    sign = (value.bits(U32) >> 31) << form.bits - 1
    is_nan = magnitude > 0x7F800000
    if form.canonical_nan is None:
        return _saturated_small(code, is_nan, sign, form)
    infinity = form.max_code + 1  # e4m3fn: its NaN, all others: Inf
    saturates = value.engine.mode.fp16_ovfl
    finite_end = form.max_code if saturates and form is not BF16_FORMAT else infinity
    infinite_end = form.max_code if saturates and _saturates_infinity(form) else infinity
    code = (code > form.max_code).select(finite_end, code)  # infinities and NaNs too: their codes lie above
    if infinite_end != finite_end:
        code = (magnitude >= 0x7F800000).select(infinite_end, code)
    if nan == "positive":
        return is_nan.select(form.canonical_nan, code | sign)
    if form.canonical_nan != infinite_end:
        code = is_nan.select(_nan_code(magnitude, form, nan), code)
    return code | sign


def _saturates_infinity(form: Format) -> bool:
    return form.bits == 8 and (not form.infinities or SATURATE_INFINITY.answer == "maximum")


def _saturated_small(code: U32, is_nan: Mask, sign: U32, form: Format) -> U32:
    """A code of a format without infinities and NaN [rules formats.no_infinity*]."""
    code = code.minimum(form.max_code)
    if SMALL_FORMAT_NAN.answer == "positive":
        return is_nan.select(form.max_code, code | sign)
    return (is_nan.select(0, code) if SMALL_FORMAT_NAN.answer == "zero" else code) | sign


def _nan_code(magnitude: U32, form: Format, nan: Answer) -> U32:
    """What a NaN becomes, without its sign [rules formats.nan_*]."""
    canonical = U32.constant(magnitude.engine, form.canonical_nan or 0)
    if nan == "ones":
        return canonical | form.magnitude_mask
    if nan == "payload":
        return canonical | (magnitude >> _dropped(form)) & (1 << form.mantissa_bits) - 1
    return canonical


def _steps(magnitude: U32, form: Format) -> U32:
    """The nearest number of smallest steps of a format; adding 2^23 of them leaves it in the low mantissa bits."""
    bias = 2.0 ** (23 + 1 - form.bias - form.mantissa_bits)
    with with_mode(magnitude.engine, **EXACT):
        return (magnitude.bits(F32) + bias).bits(U32) - F32.constant_bits(bias)


def _nearest(significand: U32, drop: int) -> U32:
    """A number without its low bits, rounded to nearest even."""
    return (significand + ((1 << drop - 1) - 1) + ((significand >> drop) & 1)) >> drop


def narrowed(value: F32, form: Format, nan: Answer = "") -> U32:
    """The code nearest to an f32, ties to even, zero-extended to 32 bits [rules formats.*]. nan: the answer to
    NAN_NARROW, if not the one in force."""
    magnitude, nan = value.bits(U32) & 0x7FFFFFFF, nan or NAN_NARROW.answer
    code = _nearest(magnitude, _dropped(form)) - (127 - form.bias << form.mantissa_bits)
    if form.bias != 127:
        small = magnitude < (128 - form.bias << 23)
        code = small.select(_steps(magnitude, form), code)
    return _special_codes(value, magnitude, code, form, nan)


def narrowed_stochastic(value: F32, random: U32, form: Format) -> U32:
    """The code of an f32 plus a random part of a step, truncated [rule convert.stochastic]."""
    magnitude, drop = value.bits(U32) & 0x7FFFFFFF, _dropped(form)
    low = form.bits != 8 and STOCHASTIC_BITS.answer == "low"
    fraction = random & (1 << drop) - 1 if low else random >> 32 - drop
    code = _cut(_with_random(magnitude, fraction), drop) - (127 - form.bias << form.mantissa_bits)
    if form.bias != 127:
        small = magnitude < (128 - form.bias << 23)
        code = small.select(_small_stochastic(magnitude, fraction, form), code)
    if STOCHASTIC_OVERFLOW.answer == "before":
        code = (magnitude > F32.constant_bits(form.max)).select(form.max_code + 1, code)
    return _special_codes(value, magnitude, code, form, NAN_NARROW.answer)


def _with_random(significand: U32, fraction: U32) -> U32:
    """The sum with the random part, with its carry or with mantissa bits that wrap."""
    total = significand + fraction
    if STOCHASTIC_SUM.answer == "truncate":
        return total
    return (significand & 0x7F800000) | (total & 0x7FFFFF)


def _cut(total: U32, drop: int) -> U32:
    return _nearest(total, drop) if STOCHASTIC_SUM.answer == "nearest" else total >> drop


def _small_stochastic(magnitude: U32, fraction: U32, form: Format) -> U32:
    """The number of smallest steps of a format that a number below its smallest normal becomes."""
    drop, unit = _dropped(form), 2.0 ** (form.bias + form.mantissa_bits - 1)
    if STOCHASTIC_SMALL.answer == "step":
        return _cut(_with_random((magnitude.bits(F32) * (unit * 2.0**drop)).to(U32), fraction), drop)
    total = _with_random(magnitude, fraction)
    return _steps(total, form) if STOCHASTIC_SUM.answer == "nearest" else (total.bits(F32) * unit).to(U32)


def widened(code: U32, form: Format, nan: Answer = "") -> F32:
    """The f32 of a code in the low bits of `code`; bits above the format are ignored. nan: the answer to NAN_WIDE, if
    not the one in force."""
    magnitude = code & ((1 << form.bits - 1) - 1)
    sign = ((code >> form.bits - 1) & 1) << 31
    normal = (magnitude << _dropped(form)) + (127 - form.bias << 23)
    with with_mode(code.engine, **EXACT):  # bf16's are f32 denormals
        small = (magnitude.to(F32) * 2.0 ** (1 - form.bias - form.mantissa_bits)).bits(U32)
    bits = (magnitude < (1 << form.mantissa_bits)).select(small, normal)
    first_nan = form.max_code + 1
    if form.infinities:
        bits = (magnitude == first_nan).select(0x7F800000, bits)
        first_nan += 1
    if form.canonical_nan is None:
        return (bits | sign).bits(F32)
    is_nan, nan = magnitude >= first_nan, nan or NAN_WIDE.answer
    if nan == "positive":
        return is_nan.select(0x7FC00000, bits | sign).bits(F32)
    return (is_nan.select(_wide_nan(magnitude, form, nan), bits) | sign).bits(F32)


def _wide_nan(magnitude: U32, form: Format, nan: Answer) -> U32:
    """The f32 bits of a NaN code without its sign [rule convert.nan_wide]."""
    quiet = U32.constant(magnitude.engine, 0x7FFFFFFF if nan == "ones" else 0x7FC00000)
    return quiet | (magnitude << _dropped(form)) & 0x7FFFFF if nan == "payload" else quiet


def into_word(old: B32, word: U32, op_sel: int) -> B32:
    """16 bits into the word OP_SEL[3] picks, the other kept."""
    return (word << 16) | (old & 0xFFFF) if op_sel >> 3 & 1 else word | (old & 0xFFFF0000)


def into_byte(old: B32, byte: U32, op_sel: int) -> B32:
    """8 bits into the byte OP_SEL[3:2] picks, the others kept."""
    low = 8 * (op_sel >> 2 & 3)
    return (byte << low) | (old & (0xFFFFFFFF ^ 0xFF << low))


def _packed(src0: F32, src1: F32, form: Format) -> U32:
    return narrowed(src0, form) | (narrowed(src1, form) << form.bits)


@vop3("v_cvt_pk_fp8_f32", 0x2A2, intrinsic="llvm.amdgcn.cvt.pk.fp8.f32", rules=(*NEAREST_F8, *narrow_rules(E4M3FN)))
def v_cvt_pk_fp8_f32(src0: F32, src1: F32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 and S1 as e4m3fn into one word of D. [12.11]"""
    return into_word(vdst, _packed(src0, src1, E4M3FN), op_sel)


@vop3("v_cvt_pk_bf8_f32", 0x2A3, intrinsic="llvm.amdgcn.cvt.pk.bf8.f32", rules=(*NEAREST_F8, *narrow_rules(E5M2)))
def v_cvt_pk_bf8_f32(src0: F32, src1: F32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 and S1 as e5m2 into one word of D. [12.11]"""
    return into_word(vdst, _packed(src0, src1, E5M2), op_sel)


@vop3("v_cvt_sr_fp8_f32", 0x2A4, intrinsic="llvm.amdgcn.cvt.sr.fp8.f32", rules=(STOCHASTIC, *narrow_rules(E4M3FN)))
def v_cvt_sr_fp8_f32(src0: F32, src1: U32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 as e4m3fn with random part S1 into one byte of D. [12.11]"""
    return into_byte(vdst, narrowed_stochastic(src0, src1, E4M3FN), op_sel)


@vop3("v_cvt_sr_bf8_f32", 0x2A5, intrinsic="llvm.amdgcn.cvt.sr.bf8.f32", rules=(STOCHASTIC, *narrow_rules(E5M2)))
def v_cvt_sr_bf8_f32(src0: F32, src1: U32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 as e5m2 with random part S1 into one byte of D. [12.11]"""
    return into_byte(vdst, narrowed_stochastic(src0, src1, E5M2), op_sel)


@vop3("v_cvt_sr_f16_f32", 0x2A6, rules=(STOCHASTIC, FLOAT_DENORM, FP16_OVFL, *narrow_rules(F16_FORMAT)))
def v_cvt_sr_f16_f32(src0: F32, src1: U32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 as f16 with random part S1 into one word of D. [12.11]"""
    result = as_output(narrowed_stochastic(src0, src1, F16_FORMAT).to(U16).bits(F16))
    return into_word(vdst, result.bits(U16).to(U32), op_sel)


@vop3("v_cvt_sr_bf16_f32", 0x2A7, rules=(STOCHASTIC, BF16_DENORM, *narrow_rules(BF16_FORMAT)))
def v_cvt_sr_bf16_f32(src0: F32, src1: U32, vdst: B32, op_sel: int = 0) -> B32:
    """S0 as bf16 with random part S1 into one word of D. [12.11]"""
    code = narrowed_stochastic(_bf16_operand(src0), src1, BF16_FORMAT)
    return into_word(vdst, _bf16_result(code), op_sel)


def _bf16_operand(value: F32) -> F32:
    """An operand on the way to bf16 [rule convert.bf16_denorm]."""
    if BF16_DENORMALS.answer == "kept":
        return value
    return by_mode(value) if BF16_DENORMALS.answer == "both" else as_input(value)


def _bf16_result(code: U32) -> U32:
    """A bf16 result [rule convert.bf16_denorm]."""
    if BF16_DENORMALS.answer != "each" or code.engine.mode.denorm32 & 2:
        return code
    return ((code & 0x7F80) == 0).select(code & 0x8000, code)


@vop3("v_cvt_pk_bf16_f32", 0x268, rules=(NEAREST_EVEN, BF16_DENORM, *narrow_rules(BF16_FORMAT)))
def v_cvt_pk_bf16_f32(src0: F32, src1: F32, clamp: int = 0) -> B32:
    """S0 and S1 as bf16, S0 low, to nearest even. [12.11]"""
    values = (clamped(_bf16_operand(src), clamp) for src in (src0, src1))
    low, high = (_bf16_result(narrowed(value, BF16_FORMAT)) for value in values)
    return low | (high << 16)


@vop1("v_cvt_f32_fp8", 84, intrinsic="llvm.amdgcn.cvt.f32.fp8", rules=(NAN_WIDE_CODE,))
def v_cvt_f32_fp8(src0: U32) -> F32:
    """The low byte from e4m3fn to f32; SDWA picks another byte. [12.8]"""
    return widened(src0, E4M3FN)


@vop1("v_cvt_f32_bf8", 85, intrinsic="llvm.amdgcn.cvt.f32.bf8", rules=(NAN_WIDE_CODE,))
def v_cvt_f32_bf8(src0: U32) -> F32:
    """The low byte from e5m2 to f32; SDWA picks another byte. [12.8]"""
    return widened(src0, E5M2)


def _widened_pair(word: U32, form: Format, clamp: int) -> U64:
    return join(*(clamped(widened(word >> low, form), clamp).bits(U32) for low in (0, form.bits)))


@vop1("v_cvt_pk_f32_fp8", 86, intrinsic="llvm.amdgcn.cvt.pk.f32.fp8", rules=(NAN_WIDE_CODE,))
def v_cvt_pk_f32_fp8(src0: U32, clamp: int = 0) -> U64:
    """The low two bytes from e4m3fn to a register pair of f32; SDWA picks the high word. [12.8]"""
    return _widened_pair(src0, E4M3FN, clamp)


@vop1("v_cvt_pk_f32_bf8", 87, intrinsic="llvm.amdgcn.cvt.pk.f32.bf8", rules=(NAN_WIDE_CODE,))
def v_cvt_pk_f32_bf8(src0: U32, clamp: int = 0) -> U64:
    """The low two bytes from e5m2 to a register pair of f32; SDWA picks the high word. [12.8]"""
    return _widened_pair(src0, E5M2, clamp)


@vop1("v_cvt_f32_bf16", 91)
def v_cvt_f32_bf16(src0: Bf16) -> F32:
    """bf16 to f32: the bits move up by 16. [12.8]"""
    return (src0.to(U32) << 16).bits(F32)


# ---- f16 -------------------------------------------------------------------------------------------------------------


def half(value: F32) -> F16:
    """An f32 rounded to f16 [rule valu.fp16_ovfl]."""
    return limited(value.to(F16), value)


@vop1("v_cvt_f16_f32", 10, rules=(*CONVERSION, FP16_OVFL))
def v_cvt_f16_f32(src0: F32) -> F16:
    """f32 to f16. [12.8]"""
    return half(src0)


@vop1("v_cvt_f32_f16", 11, rules=(FLOAT_DENORM, FLOAT_NAN))
def v_cvt_f32_f16(src0: F16) -> F32:
    """f16 to f32. [12.8]"""
    return src0.to(F32)


def _pair(low: F16 | U16 | I16, high: F16 | U16 | I16) -> B32:
    return low.bits(U16).to(U32) | (high.bits(U16).to(U32) << 16)


@vop3("v_cvt_pk_f16_f32", 0x267, rules=(NEAREST_EVEN, FLOAT_DENORM, FLOAT_NAN, FP16_OVFL))
def v_cvt_pk_f16_f32(src0: F32, src1: F32, clamp: int = 0) -> B32:
    """S0 and S1 as f16, S0 low, to nearest even. [12.11]"""
    with with_mode(src0.engine, **NEAREST):
        return _pair(clamped(half(src0), clamp), clamped(half(src1), clamp))


def _toward_zero(value: F32) -> F16:
    """An f32 cut down to f16 [rule convert.pkrtz]."""
    magnitude = value.bits(U32) & 0x7FFFFFFF
    normal = ((magnitude >> 13) - (112 << 10)).minimum(0x7BFF)
    small = (magnitude.bits(F32) * 2.0**24).to(U32)
    code = (magnitude < (113 << 23)).select(small, normal)
    finite = (code | ((value.bits(U32) >> 31) << 15)).to(U16).bits(F16)
    return (magnitude < 0x7F800000).select(as_output(finite), value.to(F16))


@vop3("v_cvt_pkrtz_f16_f32", 0x296, intrinsic="llvm.amdgcn.cvt.pkrtz", rules=(TOWARD_ZERO, FLOAT_DENORM, FLOAT_NAN))
def v_cvt_pkrtz_f16_f32(src0: F32, src1: F32, clamp: int = 0) -> B32:
    """S0 and S1 as f16, S0 low, toward zero. [12.11]"""
    return _pair(clamped(_toward_zero(src0), clamp), clamped(_toward_zero(src1), clamp))


# ---- integers --------------------------------------------------------------------------------------------------------


@vop3("v_cvt_pk_u16_u32", 0x297, intrinsic="llvm.amdgcn.cvt.pk.u16", rules=(SATURATED_PACK,))
def v_cvt_pk_u16_u32(src0: U32, src1: U32) -> B32:
    """S0 and S1 saturated to unsigned 16 bits, S0 low. [12.11]"""
    if PACK_INTEGER.answer == "low_bits":
        return _pair(src0.to(U16), src1.to(U16))
    return src0.minimum(0xFFFF) | (src1.minimum(0xFFFF) << 16)


@vop3("v_cvt_pk_i16_i32", 0x298, intrinsic="llvm.amdgcn.cvt.pk.i16", rules=(SATURATED_PACK,))
def v_cvt_pk_i16_i32(src0: I32, src1: I32) -> B32:
    """S0 and S1 saturated to signed 16 bits, S0 low. [12.11]"""
    if PACK_INTEGER.answer == "low_bits":
        return _pair(src0.to(I16), src1.to(I16))
    return _pair(saturated(src0.to(I64), I16), saturated(src1.to(I64), I16))


def _normalized(value: F32, largest: float) -> F64:
    """The value times the largest integer, an integral number [rule convert.normalized]."""
    if NORMALIZE.answer == "f32":
        with with_mode(value.engine, **EXACT):
            return (value * largest).rint().to(F64)
    product = value.to(F64) * largest
    return product.rint() if NORMALIZE.answer == "nearest" else (product + 0.5).floor()


def signed_normalized(value: F32) -> I16:
    """[-1, 1] to -32767..32767 [rule convert.normalized]."""
    return saturated(_normalized(value, 32767.0).to(I32).maximum(-32767).to(I64), I16)


def unsigned_normalized(value: F32) -> U16:
    """[0, 1] to 0..65535 [rule convert.normalized]."""
    return _normalized(value, 65535.0).to(U32).minimum(65535).to(U16)


@vop3("v_cvt_pknorm_i16_f32", 0x294, intrinsic="llvm.amdgcn.cvt.pknorm.i16", rules=(NORMALIZED,))
def v_cvt_pknorm_i16_f32(src0: F32, src1: F32) -> B32:
    """S0 and S1 from [-1, 1] to signed 16 bits, S0 low. [12.11]"""
    return _pair(signed_normalized(src0), signed_normalized(src1))


@vop3("v_cvt_pknorm_u16_f32", 0x295, intrinsic="llvm.amdgcn.cvt.pknorm.u16", rules=(NORMALIZED,))
def v_cvt_pknorm_u16_f32(src0: F32, src1: F32) -> B32:
    """S0 and S1 from [0, 1] to unsigned 16 bits, S0 low. [12.11]"""
    return _pair(unsigned_normalized(src0), unsigned_normalized(src1))


@vop3("v_cvt_pknorm_i16_f16", 0x299, rules=(NORMALIZED,))
def v_cvt_pknorm_i16_f16(src0: F16, src1: F16) -> B32:
    """S0 and S1 from [-1, 1] to signed 16 bits, S0 low. [12.11]"""
    return _pair(signed_normalized(src0.to(F32)), signed_normalized(src1.to(F32)))


@vop3("v_cvt_pknorm_u16_f16", 0x29A, rules=(NORMALIZED,))
def v_cvt_pknorm_u16_f16(src0: F16, src1: F16) -> B32:
    """S0 and S1 from [0, 1] to unsigned 16 bits, S0 low. [12.11]"""
    return _pair(unsigned_normalized(src0.to(F32)), unsigned_normalized(src1.to(F32)))


@vop1("v_cvt_norm_i16_f16", 77, rules=(NORMALIZED,))
def v_cvt_norm_i16_f16(src0: F16) -> I16:
    """S0 from [-1, 1] to signed 16 bits. [12.8]"""
    return signed_normalized(src0.to(F32))


@vop1("v_cvt_norm_u16_f16", 78, rules=(NORMALIZED,))
def v_cvt_norm_u16_f16(src0: F16) -> U16:
    """S0 from [0, 1] to unsigned 16 bits. [12.8]"""
    return unsigned_normalized(src0.to(F32))


def _integral(value: F32) -> F32:
    """The value as V_CVT_PK_U8_F32 rounds it; what follows truncates [rule convert.pack_byte]."""
    if PACK_BYTE.answer == "truncate":
        return value
    direction = value.engine.mode.round32 if PACK_BYTE.answer == "mode" else 0
    return (value.rint, value.ceil, value.floor, value.truncate)[direction]()


def _with_byte(word: U32, value: F32, number: U32) -> U32:
    """`word` with byte `number` replaced by the value as an unsigned byte [rule convert.pack_byte]."""
    low = (number & 3) << 3
    return (_integral(value).to(U32).minimum(255) << low) | (word & ~(U32.constant(word.engine, 0xFF) << low))


@vop3("v_cvt_pk_u8_f32", 0x1DD, intrinsic="llvm.amdgcn.cvt.pk.u8.f32", rules=(BYTE_PACK,))
def v_cvt_pk_u8_f32(src0: F32, src1: U32, src2: U32) -> U32:
    """S2 with byte S1[1:0] replaced by S0 as an unsigned byte. [12.11]"""
    return _with_byte(src2, src0, src1)


@vop3("v_cvt_pkaccum_u8_f32", 0x1F0, rules=(BYTE_PACK,))
def v_cvt_pkaccum_u8_f32(src0: F32, src1: U32, vdst: B32) -> B32:
    """D with byte S1[1:0] replaced by S0 as an unsigned byte. [12.11]"""
    return _with_byte(vdst, src0, src1)


@vop3("v_ashr_pk_i8_i32", 0x265)
def v_ashr_pk_i8_i32(src0: I32, src1: I32, src2: U32) -> U16:
    """S0 and S1 shifted right by S2[4:0], saturated to signed bytes, S0 low. [12.11]"""
    low, high = ((s >> src2.bits(I32)).maximum(-128).minimum(127).bits(U32) & 0xFF for s in (src0, src1))
    return (low | (high << 8)).to(U16)


@vop3("v_ashr_pk_u8_i32", 0x266)
def v_ashr_pk_u8_i32(src0: I32, src1: I32, src2: U32) -> U16:
    """S0 and S1 shifted right by S2[4:0], saturated to unsigned bytes, S0 low. [12.11]"""
    low, high = ((s >> src2.bits(I32)).maximum(0).minimum(255).bits(U32) for s in (src0, src1))
    return (low | (high << 8)).to(U16)
