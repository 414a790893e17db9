"""Rules of conversions between number formats."""

import ml_dtypes
import numpy as np
import pytest
from programs import expect, f16, f32, run, words

from emu.errors import EmulatorError
from gfx950.evidence import LEDGER
from gfx950.lanes import Mode

INF, NAN, SNAN = 0x7F800000, 0x7FC00000, 0x7F800123
TO_FP8 = expect("""
v_cvt_pk_fp8_f32 v2, v10, v11
v_cvt_pk_bf8_f32 v3, v10, v11
v_cvt_sr_fp8_f32 v4, v10, v12
v_cvt_sr_bf8_f32 v5, v10, v12
v_cvt_scalef32_pk_fp8_f32 v6, v13, v13, v14
v_cvt_scalef32_pk_bf8_f32 v7, v13, v13, v14
""")
SATURATING = expect("""
v_cvt_scalef32_pk_fp4_f32 v2, v10, v11, v14
v_cvt_scalef32_pk32_fp6_f16 v[40:45], v[20:35], v14
v_cvt_scalef32_pk32_bf6_bf16 v[46:51], v[52:67], v14
""")
SCALED_DENORMALS = expect("""
v_cvt_scalef32_pk_fp8_f32 v2, v10, v10, v14
v_cvt_scalef32_f32_fp8 v3, v11, v15
v_cvt_f32_fp8 v4, v11
""")
SCALARS = expect("v_cvt_pk_fp8_f32 v2, s4, 1.0\nv_cvt_sr_fp8_f32 v3, s4, s4\nv_cvt_pk_bf8_f32 v4, 3, s4")
SCALES = expect("""
v_cvt_scalef32_pk_f32_fp8 v[2:3], v10, v11
v_cvt_scalef32_pk_fp8_f32 v4, v12, v12, v11
v_cvt_scalef32_pk_f32_fp8 v[6:7], v10, 2.0
""")
STOCHASTIC = expect("""
v_cvt_sr_f16_f32 v2, v10, v11
v_cvt_sr_f16_f32 v3, v10, v11 op_sel:[0,0,1]
v_cvt_sr_bf16_f32 v4, v12, v11
v_cvt_sr_bf16_f32 v5, v12, v11 op_sel:[0,0,1]
""")
ONE_BYTE = expect("\n".join(
    f"v_cvt_sr_fp8_f32 v{2 + n}, v10, v11 op_sel:[0,0,{n & 1},{n >> 1}]\n"
    f"v_cvt_sr_bf8_f32 v{6 + n}, v10, v11 op_sel:[0,0,{n & 1},{n >> 1}]"
    for n in range(4)
))  # fmt: skip
SDWA_EVERYTHING = 1 << 19 | 3 << 20 | 1 << 13 | 2 << 11 | 1 << 8  # SEXT, NEG, ABS, CLAMP, PRESERVE, BYTE_1
WIDENING = expect("\n".join(
    words("VOP1", op=op, vdst=20 + 4 * i + j, src0=249) + f", {v | select << 16 | extra:#x}"
    for i, (op, select, v) in enumerate(((84, 2, 10), (85, 3, 10), (86, 5, 10), (87, 4, 10)))
    for j, extra in ((0, 6 << 8), (2, SDWA_EVERYTHING))
))  # fmt: skip
PKRTZ = expect("v_cvt_pkrtz_f16_f32 v2, v10, v11")
SIGNS = expect("""
v_cvt_pk_u8_f32 v2, -v10, v11, v12
v_cvt_pk_u8_f32 v3, |v10|, v11, v12
v_cvt_pkaccum_u8_f32 v4, -v10, v11
v_cvt_pk_f16_f32 v5, -v10, |v10|
v_cvt_pk_bf16_f32 v6, |v10|, -v10
v_cvt_pknorm_i16_f32 v7, -v13, |v13|
v_cvt_pknorm_u16_f32 v8, -v13, v13
v_cvt_pkrtz_f16_f32 v9, -v10, |v10|
v_cvt_pkaccum_u8_f32 v14, |v10|, v11
v_cvt_i32_f32_e64 v15, -v16
v_cvt_f32_i32_e64 v17, v18 clamp
v_cvt_f32_i32_e64 v19, v18 mul:2
v_cvt_f16_f32_e64 v20, -|v16|
""")
PKNORM = expect("v_cvt_pknorm_i16_f16 v2, v10, v11\nv_cvt_pknorm_u16_f16 v3, v10, v11")
KEEP_HALF = expect("""
v_cvt_pk_fp8_f32 v2, v10, v10
v_cvt_pk_fp8_f32 v3, v10, v10 op_sel:[0,0,1]
v_cvt_pk_bf8_f32 v4, v10, v10 op_sel:[0,0,1]
v_cvt_scalef32_pk_fp4_f32 v5, v10, v10, v10 op_sel:[0,0,1,0]
v_cvt_scalef32_pk_fp4_f32 v6, v10, v10, v10 op_sel:[0,0,1,1]
""")
SEQUENCE = expect("v_cvt_scalef32_sr_pk32_fp6_f32 v[2:7], v[32:63], v20, v21")
NAN_PAIR = expect("v_cvt_pk_bf16_f32 v2, v10, v11")


@pytest.mark.rule("RJ-001", "RJ-002")
@pytest.mark.parametrize("saturate", [False, True])
def test_overflow_of_8_bit_floats(saturate):
    values = [f32(n) for n in (449, 464, 465, 1e9, 61440, -1e9, 57344)] + [INF, INF | 1 << 31, NAN, SNAN]
    scaled = [f32(float(n) * 4) for n in (449, 464, 465, 1e9, 61440, -1e9, 57344)] + values[7:]
    got = run(TO_FP8, v={10: values, 11: 0, 13: scaled, 14: f32(4)}, mode=Mode(fp16_ovfl=saturate))
    top, infinite, quiet = (0x7E, 0x7B), (0x7F, 0x7C), (0x7F, 0x7E)
    over = top if saturate else infinite
    for lane in range(11):
        fp8, bf8 = (got.v(n, lane) & 0xFF for n in (2, 3))
        sign = 0x80 if lane in (5, 8) else 0
        if lane >= 9:
            assert (fp8, bf8) == quiet, "NaN stays NaN"
        else:
            assert fp8 == (top[0] if lane < 2 else over[0] | sign)
            assert bf8 == ({0: 0x5F, 1: 0x5F, 2: 0x5F, 6: 0x7B}.get(lane, over[1] | sign))
        assert [got.v(n, lane) & 0xFF for n in (6, 7)] == [fp8, bf8], "after scaling"
        if lane >= 2 and lane != 4:
            wanted = bf8 if lane != 2 else got.v(5, lane) & 0xFF
            assert [got.v(n, lane) & 0xFF for n in (4, 5)] == [fp8 if lane > 2 else got.v(4, lane) & 0xFF, wanted]


@pytest.mark.rule("RJ-002")
@pytest.mark.parametrize("saturate", [False, True])
def test_short_formats_always_saturate(saturate):
    v = {10: f32(1e9), 11: f32(-1e-9), 14: f32(1)}
    v |= {n: f16(60000, -60000) for n in range(20, 36)} | {n: f32(1e9) >> 16 for n in range(52, 68)}
    got = run(SATURATING, v=v, mode=Mode(fp16_ovfl=saturate))
    assert got.v(2) & 0xFF == 0x87
    pattern = sum((0x1F if n % 2 == 0 else 0x3F) << 6 * n for n in range(32))
    assert got.v(40, 0, 6) == pattern
    assert got.v(46, 0, 6) == sum((0x1F if n % 2 == 0 else 0) << 6 * n for n in range(32))


@pytest.mark.rule("RJ-003")
def test_the_8_bit_formats_are_those_of_ocp():
    assert "bit 8 is taken to be 1" in LEDGER["convert.f8_mode"].text
    got = run(SCALED_DENORMALS, v={10: f32(448), 11: 0x7E, 14: f32(1), 15: f32(1)})
    assert got.v(2) & 0xFF == 0x7E, "not 240, the largest number of gfx942's format"
    assert got.v(4) == f32(448)


@pytest.mark.rule("RJ-010")
@pytest.mark.parametrize("denorm", [0, 3])
def test_denormals_of_scaled_conversions(denorm):
    v = {10: 1 << 22, 11: 1, 14: f32(2**-127), 15: f32(1)}
    got = run(SCALED_DENORMALS, v=v | {14: 0}, mode=Mode(denorm32=denorm))
    one = 0x38  # 2^-127 / 2^-127
    assert got.v(2) & 0xFFFF == (one | one << 8 if denorm else 0)
    assert got.v(3) == got.v(4) == f32(2**-9), "narrow denormals are kept"


@pytest.mark.rule("RJ-004")
def test_scalars_and_constants_are_sources():
    got = run(SCALARS, s={4: f32(2)})
    assert (got.v(2) & 0xFFFF, got.v(3) & 0xFF, got.v(4) & 0xFFFF) == (0x3840, 0x40, 0x4000)


@pytest.mark.rule("RJ-011")
def test_only_the_exponent_of_a_scale_counts():
    scales = [f32(n) for n in (1, 1.75, -1)] + [0, 0x7F800000, 0x7FFFFFFF, f32(2)]
    got = run(SCALES, v={10: 0x3838, 11: scales, 12: f32(1)})
    assert [got.v(2, n) for n in range(3)] == [f32(1)] * 3
    assert [got.v(4, n) & 0xFF for n in range(3)] == [0x38] * 3
    assert got.v(2, 3) == 1 << 22, "2^-127"
    assert all(got.v(2, n) & 0x7FC00000 == NAN and got.v(4, n) & 0x7F == 0x7F for n in (4, 5)), "E8M0 NaN"
    assert (got.v(2, 6), got.v(6)) == (f32(2), f32(2))


ODD = {
    "v_cvt_pk_f32_fp8": ("VOP1", {"op": 86, "vdst": 3, "src0": 266}),
    "v_add_f64": ("VOP3", {"op": 0x280, "vdst": 2, "src0": 267, "src1": 268}),
    "v_mov_b64": ("VOP1", {"op": 56, "vdst": 3, "src0": 266}),
    "v_cvt_scalef32_pk32_fp6_f16": ("VOP3", {"op": 0x258, "vdst": 3, "src0": 276, "src1": 270}),
    "v_pk_mul_f32": ("VOP3P", {"op": 0x31, "vdst": 2, "src0": 267, "src1": 268, "op_sel_hi": 3}),
    "v_pk_mov_b32": ("VOP3P", {"op": 0x33, "vdst": 3, "src0": 266, "src1": 268, "op_sel_hi": 3}),
}


@pytest.mark.rule("RJ-012", "RJ-008")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_several_registers_start_even(name, engine):
    form, fields = ODD[name]
    with pytest.raises(EmulatorError, match="it is odd"):
        run(words(form, **fields), engines=(engine,))


@pytest.mark.rule("RJ-082")
def test_stochastic_halves():
    tie16, tie_bf = f32(1 + 2**-11), f32(1 + 2**-8)
    v = {10: tie16, 12: tie_bf, 11: [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]} | dict.fromkeys(range(2, 6), 0xABCD1234)
    got = run(STOCHASTIC, v=v)
    for low, high, base in ((2, 3, 0x3C00), (4, 5, 0x3F80)):
        for lane, up in enumerate((0, 0, 1, 1)):
            assert got.v(low, lane) == 0xABCD0000 | base + up
            assert got.v(high, lane) == base + up << 16 | 0x1234


@pytest.mark.rule("RJ-082.2", "S13.8")
def test_stochastic_bytes_keep_the_others():
    v = {10: f32(1.9375), 11: [0, 0xFFFFFFFF]} | dict.fromkeys(range(2, 10), 0xAABBCCDD)
    got = run(ONE_BYTE, v=v)
    for lane in (0, 1):
        for base, code in ((2, (0x3F, 0x40)), (6, (0x3F, 0x40))):
            for n in range(4):
                wanted = 0xAABBCCDD & ~(0xFF << 8 * n) | code[lane] << 8 * n
                assert got.v(base + n, lane) == wanted, "a full mantissa carries into the exponent"


@pytest.mark.rule("RJ-083")
def test_widening_takes_only_the_select():
    got = run(WIDENING, v={10: 0x7E01C438} | dict.fromkeys(range(20, 38), 0x11111111))
    fp8, bf8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
    value = lambda n, kind: f32(np.array([n], np.uint8).view(kind).astype(np.float32)[0])  # noqa: E731
    assert got.v(20) == got.v(22) == value(0x01, fp8)
    assert got.v(24) == got.v(26) == NAN, "BF8 7e"
    assert got.v(28, count=2) == got.v(30, count=2) == value(0x01, fp8) | value(0x7E, fp8) << 32
    assert got.v(32, count=2) == got.v(34, count=2) == value(0x38, bf8) | value(0xC4, bf8) << 32


@pytest.mark.rule("RJ-113", "P5.1")
@pytest.mark.parametrize("rounding", range(4))
def test_pkrtz_truncates_in_every_mode(rounding):
    got = run(PKRTZ, v={10: f32(1 + 2**-10 - 2**-20), 11: f32(-70000)}, mode=Mode(rounding, rounding))
    assert got.v(2) == 0xFBFF3C00


@pytest.mark.rule("RJ-116", "RJ-117", "RJ-114")
def test_signs_of_sources():
    v = {10: f32(-3), 11: 2, 12: 0x11223344, 13: f32(-1), 16: f32(2), 18: 5, 4: 0x11223344, 14: 0x11223344}
    got = run(SIGNS, v=v, mode=Mode(ieee=False, denorm32=0))
    assert [got.v(n) for n in (2, 3)] == [0x11033344, 0x11033344]
    assert [got.v(n) for n in (4, 14)] == [0x11033344, 0x11033344]
    assert got.v(5) == got.v(9) == f16(3, 3)
    assert got.v(6) == f32(3) >> 16 | (f32(3) >> 16) << 16
    assert (got.v(7), got.v(8)) == (0x7FFF7FFF, 0x0000FFFF)
    assert got.v(15) == 0xFFFFFFFE
    assert got.v(17) == f32(1)
    assert got.v(19) == f32(10)
    assert got.v(20) == 0xC000


@pytest.mark.rule("RJ-110.3")
def test_normalised_halves():
    got = run(PKNORM, v={10: [f16(n, 0) for n in (1, -1, 2, np.nan)], 11: f16(0.5, 0)})
    assert [got.v(2, n) & 0xFFFF for n in range(4)] == [0x7FFF, 0x8001, 0x7FFF, 0]
    assert [got.v(3, n) & 0xFFFF for n in range(4)] == [0xFFFF, 0, 0xFFFF, 0]
    assert (got.v(2, 0) >> 16, got.v(3, 0) >> 16) == (0x4000, 0x8000)


@pytest.mark.rule("S13.8", "P8.1")
def test_narrow_results_keep_the_rest():
    got = run(KEEP_HALF, v={10: f32(1)} | dict.fromkeys(range(2, 7), 0xAABBCCDD))
    assert [got.v(n) for n in range(2, 7)] == [0xAABB3838, 0x3838CCDD, 0x3C3CCCDD, 0xAABB22DD, 0x22BBCCDD]


@pytest.mark.rule("S13.8")
def test_every_element_takes_the_next_random_state():
    value = 1 + 1 / 16  # half a step above 1 in FP6
    got = run(
        SEQUENCE, v={n: f32(value) for n in range(32, 64)} | {20: (seeds := [1, 0x12345678, 0xDEADBEEF]), 21: f32(1)}
    )
    for lane, seed in enumerate(seeds):
        states = [seed]
        for _ in range(31):
            states.append((states[-1] << 1 & 0xFFFFFFFF) ^ (197 if states[-1] >> 31 else 0))
        wanted = sum((8 + (state >> 31)) << 6 * n for n, state in enumerate(states))
        assert got.v(2, lane, 6) == wanted
    assert got.v(20, 1) == seeds[1]


@pytest.mark.rule("P5.2")
def test_bf16_of_a_nan_is_a_nan():
    got = run(NAN_PAIR, v={10: NAN, 11: SNAN})
    assert got.v(2) == 0x7FC07FC0


BF6 = expect("v_cvt_scalef32_pk32_f32_bf6 v[2:33], v[40:45], v46")


@pytest.mark.rule("S14.2")
def test_the_smallest_bf6_number():
    codes = range(32)
    packed = sum(code << 6 * n for n, code in enumerate(codes))
    got = run(BF6, v={40 + n: packed >> 32 * n & 0xFFFFFFFF for n in range(6)} | {46: f32(1)})
    values = np.array(codes, np.uint8).view(ml_dtypes.float6_e3m2fn).astype(np.float32)
    assert [got.v(2 + n) for n in codes] == [f32(n) for n in values]
    assert got.v(3) == f32(0.0625)
