"""Rules of vector instructions: operands, clamps, minimum and maximum, lanes, packed halves."""

import itertools

import numpy as np
import pytest
from programs import LANES, expect, f16, f32, f64, run, words

from gfx950.lanes import Mode

ONES = (1 << 64) - 1
NAN, SNAN, ONE, NEG0 = 0x7FC00123, 0x7F800123, 0x3F800000, 0x80000000
PACKED32 = expect("""
v_pk_mul_f32 v[2:3], v[10:11], s[6:7]
v_pk_mul_f32 v[4:5], v[10:11], s[6:7] op_sel_hi:[1,0]
v_pk_add_f32 v[6:7], v[10:11], s[6:7] op_sel:[1,0]
v_pk_fma_f32 v[8:9], s[6:7], v[10:11], v[10:11] op_sel:[1,1,0] op_sel_hi:[0,0,1]
v_pk_mov_b32 v[12:13], v[10:11], v[14:15] op_sel:[1,0]
v_pk_mov_b32 v[16:17], v[10:11], v[14:15] op_sel:[0,1]
""")
CLAMPS = expect("""
v_add_u32 v2, v10, v11 clamp
v_sub_u32 v3, v12, v10 clamp
v_add_i32 v4, v13, v12 clamp
v_sub_i32 v5, v14, v12 clamp
v_add_i16 v6, v15, v12 clamp
v_pk_add_u16 v7, v16, v17 clamp
v_pk_add_f16 v8, v18, v19 clamp
v_cmp_lt_f32 s[4:5], v20, v20 clamp
v_cmp_eq_f32 s[6:7], v21, v21 clamp
""")
MIN_MAX = expect(
    "\n".join(
        f"v_{op}_f32 v{20 + i}, v2, v3\nv_{op}_f16 v{24 + i}, v4, v5\n"
        f"v_{op}_f64 v[{28 + 2 * i}:{29 + 2 * i}], v[6:7], v[8:9]"
        for i, op in enumerate(("min", "max"))
    )
)
THREE = expect(
    "\n".join(
        f"v_{op}3_f32 v{10 + 2 * i}, v1, v2, v3\nv_{op}3_f32 v{11 + 2 * i}, v1, v2, v3 clamp\n"
        f"v_pk_{op}3_f16 v{20 + i}, v4, v5, v6"
        for i, op in enumerate(("minimum", "maximum"))
    )
)
LANE_READS = expect("""
v_readfirstlane_b32 s4, v1
v_readlane_b32 s5, v1, s20
v_writelane_b32 v2, 33, s20
v_mov_b32 v3, 1
s_mov_b64 exec, 0x30
v_readfirstlane_b32 s6, v1
""")
MISC = expect("""
v_bcnt_u32_b32 v2, v10, v11
v_sat_pk_u8_i16 v3, v12
v_sat_pk_u8_i16_e64 v4, v12
v_prng_b32 v5, v13
v_prng_b32 v6, v14
v_prng_b32 v7, v15
""")
SWAPS = expect("""
v_permlane16_swap_b32 v1, v2
v_permlane32_swap_b32 v3, v4
v_swap_b32 v5, v6
""")
MOVES = expect(
    "\n".join(
        [
            words("VOP3", op=0x140 + 1, vdst=2, src0=256 + 10, neg=1),
            words("VOP3", op=0x140 + 1, vdst=3, src0=256 + 11, abs=1),
            words("VOP3", op=0x140 + 56, vdst=4, src0=256 + 10, neg=1),
            words("VOP3", op=0x140 + 56, vdst=6, src0=256 + 10, abs=1),
        ]
    )
)
CMP = expect("""
v_cmp_eq_u32 vcc, v1, v2
s_mov_b64 s[4:5], vcc
v_cmp_class_f32 s[6:7], v1, v3
v_cmpx_class_f32 s[8:9], v4, v3
s_mov_b64 s[10:11], exec
s_mov_b64 s[12:13], vcc
s_mov_b64 exec, s[20:21]
v_cmpx_class_f16 s[14:15], v4, v3
s_mov_b64 exec, s[20:21]
v_cmpx_class_f64 s[16:17], v[4:5], v3
s_mov_b64 exec, s[20:21]
v_cmpx_eq_u32 vcc, v1, v2
""")
CARRIES = expect("""
v_add_co_u32 v4, vcc, v1, v2
v_add_co_u32 v5, s[4:5], v1, v2
v_addc_co_u32_e64 v6, s[6:7], v3, v3, s[4:5]
v_mad_u64_u32 v[8:9], s[8:9], v1, v1, v[2:3]
""")
DOTS = expect(
    """
v_dot2_f32_bf16 v2, v10, v11, v12
v_dot2_f32_bf16 v3, v10, v11, v12 neg_lo:[1,0,0] neg_hi:[0,1,0]
v_dot2c_f32_bf16 v4, v10, v11
v_dot2_f32_f16 v5, v13, v14, v15
"""
    + "\n".join(
        [
            words("VOP2", op=22, vdst=6, src0=266, src1=11),
            words("VOP3", op=0x100 + 22, vdst=7, src0=266, src1=267, abs=1),
            words("VOP3P", op=0x1A, vdst=8, src0=266, src1=267, src2=268, neg=4, neg_hi=4, op_sel_hi=3, op_sel_hi2=1),
        ]
    )
)
SAD = expect("""
v_mqsad_u32_u8 v[4:7], v[10:11], v12, v[14:17]
v_qsad_pk_u16_u8 v[8:9], v[10:11], v12, v[18:19]
v_mqsad_pk_u16_u8 v[20:21], v[10:11], v12, v[18:19]
v_sad_u8 v22, v10, v12, v14
""")
TRIG_PREOP = expect("\n".join(f"v_trig_preop_f64 v[{4 + 2 * n}:{5 + 2 * n}], v[10:11], {n}" for n in range(3)))
LSHL_ADD = expect("v_lshl_add_u64 v[4:5], v[10:11], v12, v[14:15]")
BITS_ONLY = expect(
    "\n".join(
        [
            words("VOP1", op=43, vdst=2, src0=249)
            + ", 0x3e060a",  # SDWA: DST_SEL and SRC0_SEL DWORD, SEXT, NEG and ABS set
            words("VOP3", op=0x140 + 44, vdst=3, src0=256 + 10, neg=1, abs=1),
        ]
    )
)
HALVES = expect(
    "\n".join(
        [
            "v_mad_f16 v2, v10, v11, v12",
            "v_mad_u16 v3, v10, v11, v12",
            "v_mad_i16 v4, v10, v11, v12",
            "v_fma_f16 v5, v10, v11, v12",
            "v_div_fixup_f16 v6, v10, v11, v12",
            "v_mad_legacy_f16 v7, v10, v11, v12",
            "v_mad_legacy_u16 v8, v10, v11, v12",
            "v_fma_legacy_f16 v9, v10, v11, v12",
            "v_mac_f16_e64 v20, v10, v11",
            "v_mad_f16 v21, v10, v11, v12 op_sel:[0,0,0,1]",
        ]
    )
)
BITOP3 = expect(
    "v_bitop3_b32 v2, v10, v11, v12 bitop3:0x9a\nv_bitop3_b16 v3, v10, v11, v12 bitop3:0xe8\nv_ldexp_f16 v4, v13, v14"
)
COUNTS = expect("""
v_pk_lshlrev_b16 v2, v10, v11
v_pk_lshrrev_b16 v3, v10, v11
v_pk_ashrrev_i16 v4, v10, v11
v_lshlrev_b64 v[6:7], v10, v[12:13]
v_bfm_b32 v8, v10, v14
v_mbcnt_lo_u32_b32 v9, v15, v14
v_mbcnt_hi_u32_b32 v16, v15, v14
v_ashr_pk_u8_i32 v17, v18, v19, v10
v_ashr_pk_i8_i32 v20, v18, v19, v10
""")
MIX = expect("""
v_fma_mix_f32 v2, |v10|, v11, v12
v_fma_mix_f32 v3, -|v10|, v11, v12
v_fma_mix_f32 v4, v13, v13, v14
v_cndmask_b32_e64 v5, -v15, |v10|, s[4:5]
""")
FP_MODES = expect("v_add_f32 v2, v10, v11\nv_add_f16 v3, v12, v13\nv_add_f64 v[4:5], v[14:15], v[16:17]")
DENORMS = expect(
    "v_add_f32 v2, v10, v11\nv_add_f16 v3, v12, v13\nv_add_f64 v[4:5], v[14:15], v[16:17]\nv_mul_f32 v6, v18, v19"
)
OMOD = expect(
    "v_mul_f32 v2, v10, v11 mul:2\nv_mul_f32 v3, v12, v11 mul:2\nv_mul_f32 v4, v13, v14 div:2\nv_add_u32 v5, v15, v15"
)
INDEXING = expect("""
s_set_gpr_idx_on s20, gpr_idx(SRC1)
v_sub_u32 v2, v10, v11
s_set_gpr_idx_mode gpr_idx(SRC0,DST)
v_sub_u32 v3, v10, v11
s_set_gpr_idx_off
""")
INDEX_M0 = expect("""
s_set_gpr_idx_on 5, gpr_idx(SRC0)
s_mov_b32 s4, m0
s_set_gpr_idx_idx s20
s_mov_b32 s5, m0
s_set_gpr_idx_mode gpr_idx(SRC0,SRC1,SRC2,DST)
s_mov_b32 s6, m0
s_set_gpr_idx_off
s_mov_b32 s7, m0
""")
DX10 = expect("v_mul_f32 v2, v10, v11 clamp\nv_max_f32 v3, v10, v10 clamp\nv_min_f32 v4, v10, v11")


@pytest.mark.rule("RJ-007", "RJ-008")
def test_packed_pairs_choose_their_dwords():
    v = {10: f32(3), 11: f32(5), 14: 0x14, 15: 0x15}
    got = run(PACKED32, v=v, s={6: f32(1), 7: f32(2)})
    assert [got.v(n) for n in (2, 3)] == [f32(3), f32(10)], "the high half uses s7"
    assert [got.v(n) for n in (4, 5)] == [f32(3), f32(5)], "OP_SEL_HI chooses s6"
    assert [got.v(n) for n in (6, 7)] == [f32(6), f32(7)]
    assert [got.v(n) for n in (8, 9)] == [f32(13), f32(8)]
    assert [got.v(n) for n in (12, 13, 16, 17)] == [f32(5), 0x14, f32(3), 0x15]


@pytest.mark.rule("RJ-009", "RJ-080")
def test_clamp_saturates():
    v = {10: 0xFFFFFFFF, 11: 2, 12: 1, 13: 0x7FFFFFFF, 14: 0x80000000, 15: 0x7FFF, 16: 0xFFF0_0001, 17: 0x0020_0001}
    v |= {18: f16(1.5, -0.5), 19: f16(1.5, -0.5), 20: SNAN, 21: NAN}
    got = run(CLAMPS, v=v)
    assert [got.v(n) for n in (2, 3, 4, 5)] == [0xFFFFFFFF, 0, 0x7FFFFFFF, 0x80000000]
    assert got.v(6) & 0xFFFF == 0x7FFF
    assert got.v(7) == 0xFFFF_0002
    assert got.v(8) == f16(1, 0)
    assert (got.s(4, 2), got.s(6, 2)) == (0, 0), "on a compare it changes no result"


@pytest.mark.rule("RJ-093", "P8.3")
@pytest.mark.parametrize("ieee", [True, False])
def test_minimum_and_maximum_of_nans_and_zeros(ieee):
    pool = {
        16: (0x7C55, 0x7E55, 0, 0x8000, 0x3C00),
        32: (SNAN, NAN, 0, NEG0, ONE),
        64: (0x7FF0000000000123, 0x7FF8000000000123, 0, 1 << 63, f64(1)),
    }
    pairs = list(itertools.product(range(5), repeat=2))
    v = {n: [pool[w][pair[side]] for pair in pairs] for n, w, side in ((2, 32, 0), (3, 32, 1), (4, 16, 0), (5, 16, 1))}
    v |= {6: [pool[64][a] for a, _ in pairs], 8: [pool[64][b] for _, b in pairs]}
    got = run(MIN_MAX, v=v, mode=Mode(ieee=ieee))
    order = {3: 0, 2: 1, 4: 2}  # -0 < +0 < 1

    def wanted(a, b, larger, width):
        quiet = {16: 0x200, 32: 0x400000, 64: 1 << 51}[width]
        for one in (a, b):
            if one == 0 and ieee:
                return pool[width][0] | quiet
        if a < 2 or b < 2:
            return pool[width][b if a < 2 else a]
        return pool[width][(max if larger else min)(a, b, key=order.get)]

    for larger in (0, 1):
        for width, register in ((32, 20 + larger), (16, 24 + larger), (64, 28 + 2 * larger)):
            for lane, (a, b) in enumerate(pairs):
                value = got.v(register, lane, 2 if width == 64 else 1)
                assert value == wanted(a, b, larger, width), (width, larger, a, b)


@pytest.mark.rule("RJ-107", "P5.4")
@pytest.mark.parametrize("dx10", [True, False])
def test_minimum3_propagates_nans(dx10):
    nans = [[NAN if slot == n else ONE for n in range(3)] for slot in range(3)] + [[SNAN, ONE, ONE], [ONE] * 3]
    v = {1 + n: [row[n] for row in nans] for n in range(3)}
    v |= {4 + n: [f16(1, 2) if slot != n else 0x7E55_3C00 for slot in range(5)] for n in range(3)}
    got = run(THREE, v=v, mode=Mode(dx10_clamp=dx10, ieee=False))
    for register in (10, 12):
        plain = [got.v(register, lane) for lane in range(5)]
        assert plain == [NAN] * 3 + [SNAN | 0x400000, ONE], "a NaN wins; IEEE counts as set"
        clamped = [got.v(register + 1, lane) for lane in range(5)]
        assert clamped == ([0] * 4 if dx10 else plain[:4]) + [ONE]
    zeros = run(THREE, v={1: [0, NEG0, 0], 2: [NEG0, 0, 0], 3: [0, NEG0, NEG0]}, exec=7)
    assert [zeros.v(10, lane) for lane in range(3)] == [NEG0] * 3
    assert [zeros.v(12, lane) for lane in range(3)] == [0] * 3
    for register in (20, 21):
        assert [got.v(register, lane) for lane in range(4)] == [0x7E55_3C00] * 3 + [f16(1, 2)]


@pytest.mark.rule("RJ-094", "RJ-121")
def test_lane_reads_without_active_lanes():
    got = run(LANE_READS, v={1: LANES + 7}, s={20: 66}, exec=0)
    assert (got.s(4), got.s(5), got.s(6)) == (7, 9, 11)
    assert got.v(2, 2) == 33
    assert got.v(3) == 0


@pytest.mark.rule("RJ-120", "RJ-095", "RJ-096", "P8.4")
def test_counts_saturation_and_random_numbers():
    got = run(MISC, v={10: 0xFF, 11: 100, 12: 300 << 16 | 0xFFFB, 13: 0x80000000, 14: 0, 15: 3})
    assert got.v(2) == 108
    assert (got.v(3), got.v(4)) == (0xFF00, 0xFF00)
    assert [got.v(n) for n in (5, 6, 7)] == [197, 0, 6]


@pytest.mark.rule("RJ-097")
def test_swaps_of_rows():
    got = run(SWAPS, v={n: LANES + 100 * n for n in range(1, 7)})
    row = LANES // 16
    assert np.array_equal(got.v(1), np.where(row % 2, 200 + LANES - 16, 100 + LANES))
    assert np.array_equal(got.v(2), np.where(row % 2, 200 + LANES, 100 + LANES + 16))
    assert np.array_equal(got.v(3), np.where(row < 2, 300 + LANES, 400 + LANES - 32))
    assert np.array_equal(got.v(4), np.where(row < 2, 300 + LANES + 32, 400 + LANES))
    assert np.array_equal(got.v(5), 600 + LANES)
    assert np.array_equal(got.v(6), 500 + LANES)


@pytest.mark.rule("RJ-099")
def test_moves_take_signs():
    got = run(MOVES, v={10: 0x92345678, 11: 0x92345678})
    assert [got.v(n) for n in (2, 3)] == [0x12345678, 0x12345678]
    assert [got.v(n, count=2) for n in (4, 6)] == [0x1234567892345678, 0x1234567892345678]


@pytest.mark.rule("RJ-100")
def test_bits_take_no_signs():
    got = run(BITS_ONLY, v={10: 0x80000001})
    assert (got.v(2), got.v(3)) == (0x7FFFFFFE, 0x80000001)


@pytest.mark.rule("RJ-101", "RJ-102")
def test_compares_replace_their_whole_mask():
    active = 0x0F0F
    got = run(CMP, v={1: 5, 2: 5, 3: 0x3FF, 4: LANES}, vcc=ONES, exec=active, s={20: active})
    assert got.s(4, 2) == active, "inactive lanes are 0"
    assert got.s(6, 2) == active
    assert got.s(8, 2) == got.s(10, 2) == active
    assert got.s(12, 2) == active, "VCC keeps what it had"
    assert got.s(14, 2) == got.s(16, 2) == active
    assert got.vcc == got.exec == active


@pytest.mark.rule("RJ-111")
def test_carries_go_where_they_are_told():
    got = run(CARRIES, v={1: 0xFFFFFFFF, 2: LANES % 2, 3: 7}, exec=0xFF)
    odd = 0xAA
    assert got.vcc == got.s(4, 2) == odd
    assert (got.s(6, 2), got.s(8, 2)) == (0, 0xFF)
    assert [got.v(6, n) for n in (0, 1)] == [14, 15]


@pytest.mark.rule("RJ-106", "RJ-092", "S14.4", "P5.5")
def test_dot_products_of_bf16():
    bf = lambda low, high: f32(low) >> 16 | f32(high) >> 16 << 16  # noqa: E731
    v = {
        10: bf(1, 2),
        11: bf(3, 4),
        12: f32(0.5),
        4: f32(100),
        6: f32(100),
        7: f32(100),
        13: f16(1, 1),
        14: f16(2, 3),
        15: f32(2**-24),
    }
    got = run(DOTS, v=v)
    assert got.v(2) == f32(11.5)
    assert got.v(3) == f32(-3 - 8 + 0.5)
    assert got.v(4) == f32(111)
    assert got.v(5) == f32(np.float32(5) + np.float32(2**-24))
    assert got.v(6) == f32(111)
    assert got.v(7) == f32(100 + 3 - 8), "ABS[0] negates the high product"
    assert got.v(8) == f32(11.5), "NEG[2] has no effect"


@pytest.mark.rule("RJ-110")
def test_sums_of_differences():
    a = [10, 20, 30, 40, 50, 60, 70, 80]
    word = lambda values: sum(n << 8 * i for i, n in enumerate(values))  # noqa: E731
    reference, big = [1, 0, 3, 250], [5, 6, 7, 0xFFFFFF00]
    v = {
        10: word(a),
        12: word(reference),
        14: word([0]) + 5,
        15: 6,
        16: 7,
        17: 0xFFFFFFF0,
        18: 0xFFFF0001,
        19: 0x00020003,
    }
    got = run(SAD, v=v)
    window = lambda n, masked: sum(abs(x - y) for x, y in zip(a[n : n + 4], reference, strict=False) if y or not masked)  # noqa: E731
    assert [got.v(4 + n) for n in range(4)] == [
        (window(n, True) + add) & 0xFFFFFFFF for n, add in enumerate((5, 6, 7, 0xFFFFFFF0))
    ]
    start = [1, 0xFFFF, 3, 2]
    for register, masked in ((8, False), (20, True)):
        halves = [got.v(register + n // 2) >> 16 * (n % 2) & 0xFFFF for n in range(4)]
        assert halves == [(window(n, masked) + start[n]) & 0xFFFF for n in range(4)]
    assert got.v(22) == window(0, False) + 5
    del big


@pytest.mark.rule("RJ-110.2")
@pytest.mark.parametrize("exponent", [1023, 1077, 1078, 1968])
def test_slices_of_two_over_pi(exponent):
    import gmpy2

    with gmpy2.context(precision=2400):
        bits = int(gmpy2.mul_2exp(2 / gmpy2.const_pi(), 1201))
    got = run(TRIG_PREOP, v={10: exponent << 52})
    for segment in range(3):
        shift = segment * 53 + max(0, exponent - 1077)
        wanted = float(bits >> (1201 - 53 - shift) & (1 << 53) - 1)
        scale = -53 - shift + (128 if exponent >= 1968 else 0)
        assert got.v(4 + 2 * segment, count=2) == f64(np.ldexp(wanted, scale))


@pytest.mark.rule("RJ-115")
def test_64_bit_shift_and_add_takes_counts_to_4():
    counts = [0, 1, 4, 5, 7, 8, 63, 12]
    got = run(LSHL_ADD, v={10: 0x1_8000_0001, 12: counts, 14: 1})
    for lane, count in enumerate(counts):
        shift = count & 7 if count & 7 <= 4 else 0
        assert got.v(4, lane, 2) == (0x1_8000_0001 << shift) + 1


@pytest.mark.rule("S13.3")
def test_16_bit_results_and_the_other_half():
    v = {10: f16(2, 9), 11: f16(3, 9), 12: f16(4, 9)} | {n: 0xABCD_0000 for n in (*range(2, 10), 20, 21)}
    got = run(HALVES, v=v)
    assert all(got.v(n) >> 16 == 0xABCD for n in range(2, 7))
    assert all(got.v(n) >> 16 == 0 for n in range(7, 10))
    assert got.v(2) & 0xFFFF == got.v(5) & 0xFFFF == got.v(7) == got.v(9) == f16(10, 0)
    assert got.v(21) == f16(0, 10)


@pytest.mark.rule("S13.4")
def test_truth_tables_and_signed_exponents():
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, 1 << 32, (3, 64), dtype=np.uint32)
    got = run(BITOP3, v={10: a, 11: b, 12: c, 13: 0x3C00, 14: 0xFFFE})
    for register, table, mask in ((2, 0x9A, 0xFFFFFFFF), (3, 0xE8, 0xFFFF)):
        wanted = sum(
            ((table >> (4 * (a >> n & 1) + 2 * (b >> n & 1) + (c >> n & 1)) & 1).astype(np.uint32) << n)
            for n in range(32)
        )
        assert np.array_equal(got.v(register) & mask, wanted & mask)
    assert got.v(4) == 0x3400, "1.0 * 2^-2"


@pytest.mark.rule("S13.5")
def test_counts_are_cut_to_their_bits():
    v = {10: 0x0032_0032, 11: 0x8001_8001, 12: 1, 14: 4, 15: ONES & 0xFFFFFFFF, 18: 0x7FF, 19: 0xFFFFF000}
    got = run(COUNTS, v=v)
    assert [got.v(n) for n in (2, 3, 4)] == [0x0004_0004, 0x2000_2000, 0xE000_E000], "4 bits of the count"
    assert got.v(6, count=2) == 1 << 50
    assert got.v(8) == (((1 << 18) - 1) << 4)
    assert [got.v(9, n) for n in (0, 5, 40)] == [4, 9, 36]
    assert [got.v(16, n) for n in (0, 40)] == [4, 12]
    shift = 0x32 & 31
    assert got.v(17) & 0xFFFF == min(0x7FF >> shift, 255)
    assert got.v(20) & 0xFFFF == (0x7FF >> shift) | ((-0x1000 >> shift) & 0xFF) << 8


@pytest.mark.rule("S13.6", "S13.7")
def test_mixed_multiply_adds():
    v = {10: f32(-2), 11: f32(3), 12: f32(1), 13: f32(1 + 2**-12), 14: f32(-1), 15: f32(7)}
    got = run(MIX, v=v, s={4: 0xF0})
    assert (got.v(2), got.v(3)) == (f32(7), f32(-5))
    assert got.v(4) == f32(2**-11 + 2**-24), "fused: the product is not rounded"
    assert [got.v(5, n) for n in (0, 4)] == [f32(-7), f32(2)]


ROUNDED = [0, 1, 2, 3]


@pytest.mark.rule("RJ-079.2")
@pytest.mark.parametrize("single", ROUNDED)
@pytest.mark.parametrize("other", ROUNDED)
def test_rounding_has_two_fields(single, other):
    v = {10: f32(1), 11: f32(2**-30), 12: f16(1, 0), 13: f16(2**-14, 0), 14: f64(1), 16: f64(2**-80)}
    got = run(FP_MODES, v=v, mode=Mode(single, other))
    assert got.v(2) == ONE + (single == 1)
    assert got.v(3) == 0x3C00 + (other == 1)
    assert got.v(4, count=2) == f64(1) + (other == 1)


@pytest.mark.rule("RJ-079.2")
@pytest.mark.parametrize("single", ROUNDED)
@pytest.mark.parametrize("other", ROUNDED)
def test_denormals_have_two_fields(single, other):
    v = {10: 5, 11: 0, 12: 5, 13: 0, 14: 5 << 32, 16: 0, 18: f32(2**-100), 19: f32(2**-30)}
    got = run(DENORMS, v=v, mode=Mode(denorm32=single, denorm16_64=other))
    assert got.v(2) == 5 * (single == 3)
    assert got.v(3) == 5 * (other == 3)
    assert got.v(4, count=2) == (5 << 32) * (other == 3)
    assert got.v(6) == (1 << 19 if single & 2 else 0)


@pytest.mark.rule("RJ-078")
@pytest.mark.parametrize(("ieee", "denorm"), list(itertools.product((False, True), (0, 1, 2, 3))))
def test_omod_needs_flushed_results_and_no_ieee(ieee, denorm):
    v = {10: f32(3), 11: f32(1), 12: NEG0, 13: f32(2**-126), 14: f32(1), 15: 3}
    got = run(OMOD, v=v, mode=Mode(ieee=ieee, denorm32=denorm))
    on = not ieee and not denorm & 2
    assert [got.v(n) for n in (2, 3, 4)] == ([f32(6), 0, 0] if on else [f32(3), NEG0, f32(2**-126)])


@pytest.mark.rule("RJ-081")
def test_only_the_named_operands_are_indexed():
    got = run(INDEXING, v={10: 100, 11: 30, 15: 200, 16: 7, 8: 0}, s={20: 5})
    assert got.v(2) == 100 - 7
    assert got.v(8) == 200 - 30
    assert got.v(3) == 0


@pytest.mark.rule("RJ-089")
def test_indexing_changes_only_its_bits_of_m0():
    got = run(INDEX_M0, m0=0xFFFFFFFF, s={20: 0xABCDEF12})
    assert [got.s(n) for n in range(4, 8)] == [0xFFFF1F05, 0xFFFF1F12, 0xFFFFFF12, 0xFFFFFF12]


@pytest.mark.rule("RJ-107.2")
@pytest.mark.parametrize(("dx10", "ieee"), list(itertools.product((True, False), repeat=2)))
def test_mode_reaches_clamp_and_minimum(dx10, ieee):
    got = run(DX10, v={10: SNAN, 11: ONE}, mode=Mode(dx10_clamp=dx10, ieee=ieee))
    quiet = SNAN | 0x400000
    assert got.v(2) == (0 if dx10 else quiet)
    assert got.v(3) == (0 if dx10 else quiet if ieee else SNAN)
    assert got.v(4) == (quiet if ieee else ONE)


UNORDERED = expect("v_cmp_u_f32 s[4:5], v10, v11\nv_cmp_o_f32 s[6:7], v10, v11\nv_cmp_nlt_f32 s[8:9], v10, v11")


@pytest.mark.rule("S14.1")
def test_unordered_is_either_a_nan():
    got = run(UNORDERED, v={10: [ONE, NAN, ONE, NAN], 11: [ONE, ONE, NAN, NAN]}, exec=15)
    assert (got.s(4, 2), got.s(6, 2), got.s(8, 2)) == (0b1110, 0b0001, 0b1111)


FMAC = expect("v_pk_fmac_f16 v2, v10, v11\n" + words("VOP3", op=0x100 + 60, vdst=3, src0=266, src1=267))


@pytest.mark.rule("RJ-109")
def test_packed_fmac_adds_to_what_was_there():
    a, b, c = 1 + 2**-10, 1 - 2**-10, -1.0
    got = run(FMAC, v={10: f16(a, 2), 11: f16(b, 3), 2: f16(c, 5), 3: f16(c, 5)})
    assert got.v(2) == got.v(3) == f16(-(2.0**-20), 11), "fused"


DOT2_DENORMALS = expect(
    "v_dot2_f32_f16 v2, v10, v11, v12\nv_dot2c_f32_f16 v3, v10, v11\nv_dot2_f32_f16 v4, v13, v13, v12"
)


@pytest.mark.rule("RJ-079")
@pytest.mark.parametrize("rounding", ROUNDED)
def test_dot_products_follow_no_mode(rounding):
    for mode in (Mode(rounding, rounding), Mode(denorm32=0, denorm16_64=0)):
        got = run(DOT2_DENORMALS, v={10: f16(1, 2), 11: f16(2**-14, 3), 12: 5, 3: 5, 13: 1}, mode=mode)
        assert got.v(2) == got.v(3) == f32(6 + 2**-14), "the accumulator's denormal is flushed"
        assert got.v(4) == f32(2.0**-48), "those of the halves are kept, as measured"
