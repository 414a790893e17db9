"""Rules of waits and hazards: what an instruction needs is there, however few instructions lie between."""

import pytest
from programs import LANES, expect, f16, f32, f64, run

# Each pair needs wait states on the chip; the emulator gives what comes of the one after the other.
PAIRS = expect("""
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 2)
v_cmp_eq_u32 vcc, v1, v2
s_mov_b64 s[22:23], src_vccz
v_readfirstlane_b32 s24, v3
v_readlane_b32 s25, v1, s24
v_mov_b32 v10, v1
v_mov_b32_dpp v11, v10 row_mirror row_mask:0xf bank_mask:0xf
s_mov_b32 m0, 5
s_movrels_b32 s26, s20
v_cmp_lt_u32 vcc, v1, v3
v_cndmask_b32 v12, v1, v2, vcc
v_cmpx_lt_u32 vcc, v1, v3
v_mov_b32 v13, 1
v_readlane_b32 s27, v13, 40
s_mov_b64 exec, -1
v_cvt_pk_fp8_f32 v14, v4, v4
v_cvt_pk_fp8_f32 v14, v4, v4 op_sel:[0,0,1]
v_add_u16_sdwa v15, v1, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:WORD_0
v_add_u32 v15, v15, v15
v_rcp_f32 v16, v4
v_add_f32 v16, v16, v16
v_div_scale_f32 v17, vcc, v4, v4, v4
v_div_fmas_f32 v17, v4, v4, v4
""")
MEMORY = expect("""
v_readfirstlane_b32 s6, v3
global_load_dword v10, v5, s[4:5]
v_add_u32 v10, v10, v10
s_load_dwordx2 s[20:21], s[4:5], 0x8
s_add_u32 s22, s20, s21
ds_write_b32 v5, v10
ds_read_b32 v11, v5
v_add_u32 v11, v11, v11
global_store_dwordx4 v7, v[12:15], s[4:5] offset:1024
v_mov_b32 v15, 0
global_load_dword v16, v5, s[4:5] offset:1024
flat_load_dword v17, v[8:9]
v_add_u32 v17, v17, v17
""")
OVERLAP = expect("""
v_mfma_f32_16x16x16_f16 v[2:5], v[2:3], v[4:5], 0
v_mfma_f32_16x16x16_f16 v[8:11], v[12:13], v[14:15], v[2:5]
v_add_f32 v16, v8, v8
v_mfma_f64_4x4x4_4b_f64 v[20:21], v[20:21], v[22:23], v[20:21]
v_add_f64 v[24:25], v[20:21], v[20:21]
""")
SKIPPED = expect("""
s_setvskip s20, s21
global_load_dword v2, v1, s[4:5]
v_mov_b32 v3, 9
ds_write_b32 v1, v1
s_waitcnt vmcnt(0)
s_movk_i32 s22, 7
s_setvskip s20, 0
v_mov_b32 v4, 9
""")


@pytest.mark.rule("RJ-065", "RJ-065.2", "RJ-006", "RJ-077")
def test_no_result_waits_for_a_nop():
    got = run(PAIRS, v={1: LANES, 2: LANES, 3: 40, 4: f32(0.5)})
    assert (got.s(20), got.s(22), got.s(24), got.s(25)) == (0, 0, 40, 40)
    assert [got.v(11, n) for n in (0, 15, 16)] == [15, 0, 31]
    assert got.s(26) == 40, "s20 + M0"
    assert [got.v(13, n) for n in (39, 40)] == [1, 0]
    assert got.s(27) == 0
    assert got.v(14) == 0x30303030
    assert (got.v(15) == (2 * LANES << 17)).all()
    assert got.v(16) == f32(4)
    assert got.v(17) == f32(0.75)


@pytest.mark.rule("RJ-063", "RJ-064", "RJ-041", "RJ-041.2", "RJ-065")
def test_no_result_waits_for_a_counter():
    memory = (LANES + 100).repeat(1)
    data = memory.copy()
    data.resize(1024)
    v = {3: 0, 5: 4 * LANES, 7: 16 * LANES, 12: 1, 13: 2, 14: 3, 15: 4}
    text = "v_mov_b32 v8, s4\nv_mov_b32 v9, s5\n" + MEMORY
    got = run(text, v=v, memory={4: data})
    assert (got.v(10) == 2 * (LANES + 100)).all()
    assert got.s(22) == 102 + 103
    assert (got.v(11) == 4 * (LANES + 100)).all()
    assert got.memory[4][256:264].tolist() == [1, 2, 3, 4, 1, 2, 3, 4], "the old data, though v15 changed at once"
    assert [got.v(16, n) for n in range(4)] == [1, 2, 3, 4]
    assert got.v(17) == 200


@pytest.mark.rule("RJ-025")
def test_a_matrix_instruction_reads_all_before_it_writes():
    ones = f16(1, 1)
    v = dict.fromkeys((2, 3, 4, 5, 12, 13, 14, 15), ones) | {20: f64(2), 22: f64(3)}
    got = run(OVERLAP, v=v)
    assert got.v(2) == got.v(5) == f32(16)
    assert got.v(8) == f32(32)
    assert got.v(16) == f32(64)
    assert got.v(20, count=2) == f64(4 * 6 + 2)
    assert got.v(24, count=2) == f64(52)


@pytest.mark.rule("RJ-054")
def test_vskip_drops_vector_instructions_and_their_counts():
    got = run(SKIPPED, v={1: 4 * LANES}, s={20: 4, 21: 34}, memory={4: LANES}, lds=[5] * 64)
    assert (got.v(2), got.v(3), got.v(4), got.s(22)) == (0, 0, 9, 7), "bit S1[4:0]"
    assert (got.lds[:256].view("u4") == 5).all()
