"""Constants, halves, signs and clamps by the operand's own format.

LLVM's assembler says which bits a constant stands for: it turns the bits in the operand's format into the inline code;
the executor must turn the code back into them.
"""

import numpy as np
import pytest
from kernel_builds import compile_c

from emu.dispatch import Device
from emu.memory import Memory
from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.lanes import Mode

M32 = 0xFFFFFFFF


def run(code, mode=None, **vgprs):
    """v0 after one instruction, whose vector registers hold the given words in every lane."""
    wave = Wave(lds=np.zeros(64, np.uint8), memory=Memory(), **({"mode": mode} if mode else {}))
    wave.set_exec((1 << 64) - 1)
    for name, word in vgprs.items():
        wave.vgprs[int(name[1:])] = word
    wave.step(decode(code, 0))
    return int(wave.vgprs[0, 5])


# text with {c} for the constant; the operand's bits the assembler knows; the word a register must hold instead
SAME_AS_REGISTER = [
    ("v_cvt_f32_bf16_e64 v0, {c}", 0x3F80, 0x3F80),
    ("v_cvt_f32_bf16_e64 v0, {c}", 0xC080, 0xC080),
    ("v_cvt_f32_bf16_e64 v0, {c}", 0x3E22, 0x3E22),  # 1 / (2 pi), cut
    ("v_dot2c_f32_f16_e64 v0, v1, {c}", 0x3C00, 0x3C00),
    ("v_dot2c_f32_f16_e64 v0, v1, {c}", 0x3118, 0x3118),
    ("v_dot2c_f32_bf16_e64 v0, v1, {c}", 0x3F80, 0x3F80),
    ("v_pk_fmac_f16_e64 v0, v1, {c}", 0xC000, 0xC000),
    ("v_dot2_f32_f16 v0, v1, {c}, v2", 0x3C00, 0x3C00),
    ("v_dot2_f32_bf16 v0, v1, {c}, v2", 0x3F80, 0x3F80),
    ("v_dot2_i32_i16 v0, v1, {c}, v2", 0x3F800000, 0x3F800000),
    ("v_cvt_scalef32_pk_fp8_f16 v0, {c}, 1.0", 0x4000, 0x4000),
    ("v_cvt_scalef32_pk_bf8_bf16 v0, {c}, 1.0", 0x4000, 0x4000),
    ("v_cvt_scalef32_pk_fp4_f16 v0, {c}, 1.0", 0x4400, 0x4400),
    ("v_cvt_scalef32_sr_fp8_bf16 v0, {c}, v1, 1.0", 0x4080, 0x4080),
    ("v_cvt_scalef32_sr_fp8_f16 v0, {c}, v1, 1.0", 0x4400, 0x4400),
    ("v_cvt_scalef32_sr_pk_fp4_bf16 v0, {c}, v1, 1.0", 0x4080, 0x4080),
    ("v_fma_mix_f32 v0, v1, v2, {c} op_sel_hi:[0,0,1]", 0x3C00, 0x3C00),
    ("v_pk_add_u16 v0, v1, {c}", 0x3F800000, 0x3F800000),
    ("v_pk_add_f16 v0, v1, {c}", 0x3C00, 0x3C00),
    ("v_ldexp_f16_e64 v0, v1, {c}", 0x3118, 0x3118),
    ("v_min3_f16 v0, v1, {c}, v2", 0x3C00, 0x3C00),
]


@pytest.mark.parametrize(("text", "bits", "word"), SAME_AS_REGISTER)
def test_a_constant_is_what_llvm_says(assemble, text, bits, word):
    values = {"v0": 0x40004080, "v1": 0x3C004200, "v2": 0x44803C00, "v7": word}
    constant = assemble(text.format(c=hex(bits)))
    assert len(constant) == 8, "the assembler found no inline constant"
    assert run(constant, **values) == run(assemble(text.format(c="v7")), **values)


def test_the_constants_differ_from_other_formats(assemble):
    """What these constants were, were they f32 or f16 everywhere, gives other results."""
    assert run(assemble("v_cvt_f32_bf16_e64 v0, 1.0")) == 0x3F800000
    assert run(assemble("v_dot2c_f32_f16_e64 v0, v1, 1.0"), v0=0, v1=0x40003C00) == 0x3F800000
    assert run(assemble("v_pk_fmac_f16_e64 v0, v1, 1.0"), v0=0, v1=0x40003C00) == 0x00003C00


def test_float_constants_of_16_bit_integers_are_the_low_half_of_the_f32(assemble):
    """LLVM: "the 32-bit representation of the constant truncated to the 16 LSBs"."""
    assert run(assemble("v_mad_u16 v0, v1, v2, 1.0"), v0=0, v1=3, v2=5) == 15
    assert run(assemble("v_mad_u16 v0, v1, v2, 0.15915494"), v0=0, v1=0, v2=5) == 0xF983
    assert run(assemble("v_add_u16_e64 v0, v1, 4.0"), v1=7) == 7
    assert run(assemble("v_add_u16_e64 v0, v1, -3"), v1=7) == 4


def test_op_sel_picks_a_half_of_the_constant(assemble):
    assert run(assemble("v_max3_u16 v0, -1, v2, v3 op_sel:[1,0,0,0]"), v0=0) == 0xFFFF
    assert run(assemble("v_max3_u16 v0, 5, v2, v3 op_sel:[1,0,0,0]"), v0=0) == 0
    assert run(assemble("v_max3_u16 v0, 1.0, v2, v3 op_sel:[1,0,0,0]"), v0=0) == 0x3F80
    assert run(assemble("v_max3_f16 v0, 1.0, v2, v3 op_sel:[1,0,0,0]"), v0=0) == 0


def test_signs_of_bf16_operands(assemble):
    assert run(assemble("v_cvt_f32_bf16_e64 v0, -v1"), v1=0x40A0) == 0xC0A00000
    assert run(assemble("v_cvt_f32_bf16_e64 v0, -|v1|"), v1=0xC0A0) == 0xC0A00000
    assert run(assemble("v_cvt_f32_bf16_sdwa v0, -v1 src0_sel:WORD_1"), v1=0x40A00000) == 0xC0A00000
    assert run(assemble("v_cvt_f32_bf16_dpp v0, |v1| quad_perm:[0,1,2,3]"), v1=0xC0A0) == 0x40A00000
    negative = run(assemble("v_cvt_scalef32_sr_fp8_bf16 v0, -v1, v2, 1.0"), v0=0, v1=0x4080, v2=0)
    assert negative == 0x80 | run(assemble("v_cvt_scalef32_sr_fp8_bf16 v0, v1, v2, 1.0"), v0=0, v1=0x4080, v2=0)


@pytest.mark.parametrize(
    "text",
    [
        "v_cvt_scalef32_pk_fp8_f16 v0, -v1, 1.0",
        "v_cvt_scalef32_sr_pk_fp4_f32 v0, -v[2:3], v4, 1.0",
        "v_pk_fmac_f16_e64 v0, -v1, v2",
        "v_dot2c_f32_f16_dpp v0, -v1, v2 quad_perm:[0,1,2,3]",
    ],
)
def test_signs_of_pairs_are_refused_not_ignored(assemble, text):
    with pytest.raises(UnsupportedForm, match="neg or abs on the pair src0"):
        run(assemble(text))


# ---- halves of the destination ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v_mad_legacy_u16", "v_mad_legacy_f16", "v_fma_legacy_f16"])
def test_legacy_results_go_high_with_op_sel(assemble, name):
    """12.11: OPSEL[3] = 0 zeros the high half, 1 writes it and keeps the low one. LLVM has no text for the second."""
    low = bytearray(assemble(f"{name} v0, v1, v2, v3"))
    high = bytearray(low)
    high[1] |= 0x40  # OP_SEL[3], bit 14
    values = {"v0": 0xAAAABBBB, "v1": 0x3C00, "v2": 0x4000, "v3": 0}
    result = run(bytes(low), **values)
    assert result >> 16 == 0
    assert run(bytes(high), **values) == result << 16 | 0xBBBB


def test_mac_f16_has_the_same_rule_in_its_64_bit_form(assemble):
    code = bytearray(assemble("v_mac_f16_e64 v0, v1, v2"))
    values = {"v0": 0xAAAA3C00, "v1": 0x4000, "v2": 0x4200}
    assert run(bytes(code), **values) == 0x4700
    code[1] |= 0x40
    assert run(bytes(code), **values) == 0x47003C00


# ---- FP16_OVFL and clamp ---------------------------------------------------------------------------------------------


OVERFLOWS = [  # text, operands, the infinity without FP16_OVFL
    ("v_exp_f16_e32 v0, v1", {"v1": 0x4C00}, 0x7C00),
    ("v_rcp_f16_e32 v0, v1", {"v1": 0x8001}, 0xFC00),
    ("v_ldexp_f16_e64 v0, v1, 15", {"v1": 0x4000}, 0x7C00),
    ("v_cvt_f16_u16_e32 v0, v1", {"v1": 0xFFFF}, 0x7C00),
    ("v_add_f16_e32 v0, v1, v1", {"v1": 0xFBFF}, 0xFC00),
    ("v_cvt_f16_f32_e32 v0, v1", {"v1": 0x47800000}, 0x7C00),
]
TRUE_INFINITIES = [
    ("v_rcp_f16_e32 v0, v1", {"v1": 0x8000}, 0xFC00),
    ("v_exp_f16_e32 v0, v1", {"v1": 0x7C00}, 0x7C00),
    ("v_ldexp_f16_e64 v0, v1, 15", {"v1": 0xFC00}, 0xFC00),
]


@pytest.mark.parametrize(("text", "values", "infinity"), OVERFLOWS)
def test_fp16_ovfl_clamps_every_f16_overflow(assemble, text, values, infinity):
    """3.5: an overflowed f16 result is the largest f16, whatever the instruction."""
    assert run(assemble(text), **values) == infinity
    assert run(assemble(text), Mode(fp16_ovfl=True), **values) == infinity - 1


@pytest.mark.parametrize(("text", "values", "infinity"), TRUE_INFINITIES)
def test_fp16_ovfl_keeps_true_infinities(assemble, text, values, infinity):
    assert run(assemble(text), Mode(fp16_ovfl=True), **values) == infinity


FLUSHED = [  # text, operand, the result, the result where MODE flushes denormals
    ("v_rcp_f16_e32 v0, v1", 0x0300, 0x7555, 0x7C00),
    ("v_log_f16_e32 v0, v1", 0x0001, 0xCE00, 0xFC00),
    ("v_sqrt_f16_e32 v0, v1", 0x0001, 0x0C00, 0x0000),
    ("v_rsq_f16_e32 v0, v1", 0x8001, 0xFE00, 0xFC00),
    ("v_exp_f16_e32 v0, v1", 0xCC00, 0x0100, 0x0000),
]


@pytest.mark.parametrize(("text", "operand", "kept", "flushed"), FLUSHED)
def test_f16_functions_obey_the_denormal_mode(assemble, text, operand, kept, flushed):
    """12, preface: the modes apply to every float operation unless its description says otherwise, as f32 ones do."""
    assert run(assemble(text), v1=operand) == kept
    assert run(assemble(text), Mode(denorm16_64=0), v1=operand) == flushed
    assert run(assemble(text), Mode(denorm16_64=0, fp16_ovfl=True), v1=operand) == flushed


def test_fp16_ovfl_clamps_after_omod(assemble):
    mode = Mode(denorm16_64=0, ieee=False, fp16_ovfl=True)
    assert run(assemble("v_add_f16_e64 v0, v1, v2 mul:2"), mode, v1=0x7B00, v2=0) == 0x7BFF


CLAMPS = [  # 6.5: integers saturate, floats end in [0, 1]
    ("v_mul_i32_i24_e64 v0, v1, v2 clamp", {"v1": 0x7FFFFF, "v2": 0x7FFFFF}, 0x7FFFFFFF),
    ("v_mul_i32_i24_e64 v0, v1, v2 clamp", {"v1": 0x7FFFFF, "v2": 0x800000}, 0x80000000),
    ("v_mul_lo_u16_sdwa v0, v1, v2 clamp dst_sel:DWORD", {"v1": 0x0100, "v2": 0x0100}, 0xFFFF),
    ("v_mul_lo_u16_sdwa v0, v1, v2 dst_sel:DWORD", {"v1": 0x0103, "v2": 0x0100}, 0x0300),
    ("v_pk_mul_lo_u16 v0, v1, v2 clamp", {"v1": 0x01000002, "v2": 0x01000003}, 0xFFFF0006),
    ("v_sad_u8 v0, v1, v2, v3 clamp", {"v1": 2, "v2": 0, "v3": M32}, M32),
    ("v_sad_hi_u8 v0, v1, v2, v3 clamp", {"v1": 2, "v2": 0, "v3": 0xFFFF0000}, M32),
    ("v_sad_u16 v0, v1, v2, v3 clamp", {"v1": 2, "v2": 0, "v3": M32}, M32),
    ("v_sad_u32 v0, v1, v2, v3 clamp", {"v1": 2, "v2": 0, "v3": M32}, M32),
    ("v_msad_u8 v0, v1, v2, v3 clamp", {"v1": 3, "v2": 1, "v3": M32}, M32),
    ("v_qsad_pk_u16_u8 v[0:1], v[4:5], v2, v[6:7] clamp", {"v4": 2, "v2": 0, "v6": 0xFFFF}, 0x0000FFFF),
    ("v_cvt_pkrtz_f16_f32 v0, v1, v2 clamp", {"v1": 0x40000000, "v2": 0xC0000000}, 0x00003C00),
    ("v_cvt_pk_f16_f32 v0, v1, v2 clamp", {"v1": 0x3F000000, "v2": 0x7FC00000}, 0x00003800),
    ("v_cvt_pk_bf16_f32 v0, v1, v2 clamp", {"v1": 0x40000000, "v2": 0xBF800000}, 0x00003F80),
    ("v_pack_b32_f16 v0, v1, v2 clamp", {"v1": 0x4000, "v2": 0xC000}, 0x00003C00),
    ("v_pk_fmac_f16_e64 v0, v1, v2 clamp", {"v0": 0, "v1": 0x40003800, "v2": 0x40003C00}, 0x3C003800),
    ("v_cvt_pk_f32_fp8_e64 v[0:1], v1 clamp", {"v1": 0x0040}, 0x3F800000),
]


@pytest.mark.parametrize(("text", "values", "expected"), CLAMPS)
def test_clamp_reaches_packed_and_integer_results(assemble, text, values, expected):
    assert run(assemble(text), **values) == expected


def test_a_product_of_halves_saturates_in_the_64_bit_form_too(assemble):
    """CDNA4 ISA 12.7 V_MUL_LO_U16; LLVM has no word for its clamp bit, 15 of the first dword."""
    code = bytearray(assemble("v_mul_lo_u16_e64 v0, v1, v2"))
    assert run(bytes(code), v1=0x0103, v2=0x0100) == 0x0300
    code[1] |= 0x80
    assert run(bytes(code), v1=0x0103, v2=0x0100) == 0xFFFF


def test_the_exponent_of_a_flushed_denormal_is_that_of_zero(assemble):
    code = assemble("v_frexp_exp_i32_f32_e32 v0, v1")
    assert run(code, Mode(denorm32=0), v1=1) == run(code, Mode(denorm32=0), v1=0) == 0
    assert run(code, v1=1) == -148 & M32


# ---- compiled C ------------------------------------------------------------------------------------------------------

# LLVM writes {1, 0} as the inline constant 1.0 of v_dot2c, and picks halves of packed constants with op_sel.
COMPILED = """
typedef _Float16 h2 __attribute__((ext_vector_type(2)));
typedef float f2 __attribute__((ext_vector_type(2)));
KERNEL k(GLOBAL const h2 *in, GLOBAL float *out, GLOBAL h2 *halves, GLOBAL f2 *pairs) {
  u32 i = ITEM; h2 x = in[i]; float c = (float)i;
  h2 low = {1, 0}, high = {0, 4}, both = {-2, -2};
  out[4 * i] = __builtin_amdgcn_fdot2(x, low, c, 0);
  out[4 * i + 1] = __builtin_amdgcn_fdot2(x, high, c, 0);
  out[4 * i + 2] = __builtin_amdgcn_fdot2(x, both, c, 0);
  out[4 * i + 3] = __builtin_fmaf((float)x.x, (float)x.y, 4.0f);
  halves[4 * i] = x + low; halves[4 * i + 1] = x * high; halves[4 * i + 2] = x * both + low;
  halves[4 * i + 3] = x * low + high;
  f2 y = {(float)x.x, (float)x.y}, one = {1, 1}, first = {1, 0};
  pairs[2 * i] = y + one; pairs[2 * i + 1] = y * first;
}
"""


def test_compiled_constants_of_packed_operands():
    x = np.random.default_rng(1).integers(-50, 50, (64, 2)).astype(np.float16)
    out, halves, pairs = (
        np.zeros((64, 4), np.float32),
        np.zeros((64, 4, 2), np.float16),
        np.zeros((64, 2, 2), np.float32),
    )
    Device().load(compile_c(COMPILED))["k"][1, 64](x, out, halves, pairs)
    a, b = x.astype(np.float32).T
    c = np.arange(64, dtype=np.float32)
    assert np.array_equal(out, np.stack([a + c, 4 * b + c, -2 * (a + b) + c, a * b + 4], axis=1))
    low, high = np.array([1, 0], np.float16), np.array([0, 4], np.float16)
    assert np.array_equal(halves, np.stack([x + low, x * high, x * np.float16(-2) + low, x * low + high], axis=1))
    y = x.astype(np.float32)
    assert np.array_equal(pairs, np.stack([y + 1, y * low.astype(np.float32)], axis=1))
