"""Rules of DPP, SDWA and moves between lanes."""

import numpy as np
import pytest
from programs import LANES, expect, f16, f32, run, words

CONTROLS = {
    "quad_perm:[3,1,2,0]": lambda n: (n & ~3) + (3, 1, 2, 0)[n & 3],
    "row_shl:3": lambda n: n + 3 if n % 16 < 13 else None,
    "row_shr:3": lambda n: n - 3 if n % 16 >= 3 else None,
    "row_ror:3": lambda n: (n & 48) + (n - 3) % 16,
    "wave_shl:1": lambda n: n + 1 if n < 63 else None,
    "wave_rol:1": lambda n: (n + 1) % 64,
    "wave_shr:1": lambda n: n - 1 if n else None,
    "wave_ror:1": lambda n: (n - 1) % 64,
    "row_mirror": lambda n: (n & 48) + 15 - n % 16,
    "row_half_mirror": lambda n: (n & 56) + 7 - n % 8,
    "row_bcast:15": lambda n: (n & 48) - 1 if n >= 16 else None,
    "row_bcast:31": lambda n: 31 if n >= 32 else None,
    "row_newbcast:5": lambda n: (n & 48) + 5,
}
DPP = expect("\n".join(
    f"v_mov_b32_dpp v{10 + i}, v1 {control} row_mask:0xf bank_mask:0xf" for i, control in enumerate(CONTROLS)
))  # fmt: skip
REDUCTION = expect("\n".join(
    f"s_nop 1\nv_add_u32_dpp v1, v1, v1 {control}" for control in (
        "row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0", "row_shr:2 row_mask:0xf bank_mask:0xf bound_ctrl:0",
        "row_shr:4 row_mask:0xf bank_mask:0xe", "row_shr:8 row_mask:0xf bank_mask:0xc",
        "row_bcast:15 row_mask:0xa bank_mask:0xf", "row_bcast:31 row_mask:0xc bank_mask:0xf")
) + "\nv_readlane_b32 s4, v1, 63")  # fmt: skip
SAME_LANE = 0xFF << 24 | 0xE4 << 8 | 1  # all rows and banks, quad_perm:[0,1,2,3], v1
LESS = words("VOPC", op=0x41, src0=250, src1=2)  # LLVM knows no DPP form of a compare
DPP_SIGNS = expect(f"""
{LESS}, {SAME_LANE | 1 << 20:#x}
s_mov_b64 s[4:5], vcc
{LESS}, {SAME_LANE | 1 << 21 | 1 << 22:#x}
v_add_f32_dpp v4, -v1, |v3| quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf
""")
SDWA = expect("""
v_cmp_eq_u16_sdwa s[4:5], v1, s20 src0_sel:WORD_1 src1_sel:WORD_1
v_cmp_lt_f16_sdwa s[6:7], -v2, v3 src0_sel:WORD_1 src1_sel:WORD_0
v_cmp_lt_f16_sdwa s[8:9], |v2|, v3 src0_sel:WORD_1 src1_sel:WORD_0
v_cmp_lt_i32_sdwa s[10:11], sext(v4), v5 src0_sel:BYTE_1 src1_sel:DWORD
v_cmp_lt_i32_sdwa s[12:13], v4, v5 src0_sel:BYTE_1 src1_sel:DWORD
v_add_f32_sdwa v6, -v7, |v8| dst_sel:DWORD src0_sel:DWORD src1_sel:DWORD
v_add_u32_sdwa v9, sext(v4), v5 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_1 src1_sel:DWORD
""")
PERMUTES = expect("""
v_lshlrev_b32 v2, 2, v1
s_mov_b64 exec, s[20:21]
ds_bpermute_b32 v3, v2, v4 offset:4
ds_permute_b32 v5, v6, v4
s_waitcnt lgkmcnt(0)
""")
SWIZZLES = {"fft0": 0xE000, "fft16": 0xE010, "fft31": 0xE01F, "left1": 0xC020, "right1": 0xC420, "left1 mask 1": 0xC021,
            "reverse": 0x041F | 31 << 10, "quad": 0x8000 | 0b00_01_10_11}  # fmt: skip
SWIZZLE = expect("s_mov_b64 exec, s[20:21]\n" + "\n".join(
    f"ds_swizzle_b32 v{10 + i}, v1 offset:0x{offset:x}" for i, offset in enumerate(SWIZZLES.values())
) + "\ns_waitcnt lgkmcnt(0)")  # fmt: skip


@pytest.mark.rule("P6.1")
def test_every_dpp_control():
    got = run(DPP, v={1: LANES + 1} | dict.fromkeys(range(10, 10 + len(CONTROLS)), 99))
    for i, source in enumerate(CONTROLS.values()):
        wanted = [99 if source(n) is None else source(n) + 1 for n in range(64)]
        assert np.array_equal(got.v(10 + i), wanted) or got.v(10 + i) == wanted[0]


@pytest.mark.rule("P6.1")
def test_a_compiled_reduction_adds_all_lanes():
    values = np.random.default_rng(4).integers(0, 1 << 20, 64)
    assert run(REDUCTION, v={1: values}).s(4) == values.sum()


@pytest.mark.rule("RJ-104")
def test_dpp_signs_reach_compares():
    got = run(DPP_SIGNS, v={1: f32(-2), 2: f32(3), 3: f32(-5)})
    assert got.s(4, 2) == (1 << 64) - 1, "2 < 3"
    assert got.vcc == 0, "2 < -3 is false"
    assert got.v(4) == f32(7)


@pytest.mark.rule("RJ-105", "P5.3")
def test_sdwa_selects_scalars_and_takes_signs():
    v = {1: LANES << 16, 2: f16(0, 2), 3: f16(1, 0), 4: 0xFF80_9000, 5: 0, 7: f32(3), 8: f32(-4), 9: 0x1234}
    got = run(SDWA, v=v, s={20: 7 << 16 | 9})
    everyone = (1 << 64) - 1
    assert got.s(4, 2) == 1 << 7
    assert (got.s(6, 2), got.s(8, 2)) == (everyone, 0)
    assert (got.s(10, 2), got.s(12, 2)) == (everyone, 0)
    assert got.v(6) == f32(1)
    assert got.v(9) == 0xFF90_1234


@pytest.mark.rule("S13.9")
def test_permutes_of_64_lanes():
    off = 1 << 5
    targets = np.where(LANES < 8, 4 * 3, 4 * LANES) | 0x1000  # lanes 0..7 all send to lane 3; high bits are cut
    got = run(PERMUTES, v={1: LANES + 1023, 4: 100 + LANES, 6: targets}, s={20: (1 << 64) - 1 - off})
    source = (LANES.astype(int) + 1024) % 64
    assert [got.v(3, n) for n in range(64)] == [0 if n == 5 or source[n] == 5 else 100 + source[n] for n in range(64)]
    assert got.v(5, 3) == 107, "the highest active lane wins"
    assert [got.v(5, n) for n in (0, 8, 63)] == [0, 108, 163]


@pytest.mark.rule("RJ-048", "P8.5")
def test_swizzles():
    off = 1 << 40 | 1 << 2
    got = run(SWIZZLE, v={1: LANES}, s={20: (1 << 64) - 1 - off})

    def reverse(n, bits):
        return int(f"{n:0{bits}b}"[::-1], 2)

    sources = {
        "fft0": lambda n: reverse(n, 5),
        "fft16": lambda n: n & 16 | reverse(n & 15, 4),
        "fft31": lambda n: n,
        "left1": lambda n: (n + 1) % 32,
        "right1": lambda n: (n - 1) % 32,
        "left1 mask 1": lambda n: n & 1 | (n + 1) & 30,
        "reverse": lambda n: n ^ 31,
        "quad": lambda n: n & ~3 | 3 - n % 4,
    }
    for i, name in enumerate(SWIZZLES):
        source = [n & 32 | sources[name](n & 31) for n in range(64)]
        wanted = [0 if off >> n & 1 or off >> source[n] & 1 else source[n] for n in range(64)]
        assert [got.v(10 + i, n) for n in range(64)] == wanted, name
