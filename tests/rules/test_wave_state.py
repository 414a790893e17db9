"""Rules about what a wave is and knows: hardware registers, status flags, launch values, barriers."""

import struct

import numpy as np
import pytest
from kernel_builds import assemble_kernel
from programs import LANES, Setting, expect, run

from emu.dispatch import Device, RunOptions
from emu.errors import LaunchError
from emu.geometry import Geometry
from gfx950.isa.mode_registers import HW_ID, MODE, STATUS, TRAPSTS

READABLE = (*range(1, 8), 15, *range(16, 21))
GET_ALL = expect("\n".join(f"s_getreg_b32 s{16 + n}, hwreg({n})" for n in range(32)))
SET_MODE = expect("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 5\ns_getreg_b32 s4, hwreg(HW_REG_STATUS)")
ZERO_FLAGS = expect("""
s_mov_b64 vcc, 0
s_getreg_b32 s4, hwreg(HW_REG_STATUS, 9, 2)
s_mov_b32 s5, src_vccz
s_mov_b32 s6, src_execz
s_cbranch_vccz 1f
s_mov_b32 s5, 99
1: v_cmp_eq_u32 vcc, v1, v1
s_getreg_b32 s7, hwreg(HW_REG_STATUS, 9, 2)
s_mov_b32 s8, src_vccz
v_cmp_ne_u32 vcc, v1, v1
s_getreg_b32 s9, hwreg(HW_REG_STATUS, 9, 2)
v_cmpx_ne_u32 vcc, v1, v1
s_getreg_b32 s10, hwreg(HW_REG_STATUS, 9, 2)
s_mov_b32 s11, src_execz
s_cbranch_execnz 2f
s_mov_b64 exec, 1
s_getreg_b32 s12, hwreg(HW_REG_STATUS, 9, 2)
2:
""")
ONE_ENDS_EARLY = expect("""
s_getreg_b32 s4, hwreg(HW_REG_HW_ID, 0, 4)
s_cmp_eq_u32 s4, 1
s_cbranch_scc1 1f
v_mov_b32 v1, 4
ds_add_u32 v1, v1
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v2, v1
s_waitcnt lgkmcnt(0)
1:
""")
BARRIER_AND_LOADS = expect("global_load_dword v2, v1, s[4:5]\ns_barrier\ns_waitcnt vmcnt(0)")
TTMPS = expect("s_mov_b32 ttmp4, 5\ns_mov_b64 ttmp[6:7], -1\ns_mov_b32 s4, ttmp4\ns_mov_b64 s[6:7], ttmp[6:7]")
SETREGS = expect("""
s_movk_i32 s4, -1
s_getreg_b32 s5, hwreg(HW_REG_STATUS)
s_setreg_b32 hwreg(HW_REG_STATUS), s4
s_getreg_b32 s6, hwreg(HW_REG_STATUS)
s_getreg_b32 s7, hwreg(HW_REG_MODE)
s_setreg_b32 hwreg(HW_REG_MODE, 4, 3), s20
s_getreg_b32 s8, hwreg(HW_REG_MODE)
v_add_f32 v1, v2, v3
""")
CLREXCP = expect("""
s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 0, 9), 0x1ff
s_getreg_b32 s4, hwreg(HW_REG_TRAPSTS)
v_rcp_f32 v1, v2
v_clrexcp
s_getreg_b32 s5, hwreg(HW_REG_TRAPSTS)
""")


@pytest.mark.rule("RJ-052", "P4.2")
def test_every_register_has_its_own_number():
    planted = {n: 0x1000 + n for n in READABLE if n not in (MODE, STATUS)}
    got = run(GET_ALL, hardware=planted, mode=0x3F1)
    for number, value in (planted | {MODE: 0x3F1}).items():
        assert got.s(16 + number) == value
    assert not any(got.s(16 + n) for n in range(32) if n not in (*READABLE, STATUS))


@pytest.mark.rule("RJ-052")
def test_number_1_is_mode_and_not_status():
    got = run(SET_MODE, hardware={STATUS: 0x10000}, mode=0x3F1)
    assert got.mode == 0x351
    assert got.s(4) & ~0x601 == 0x10000


@pytest.mark.rule("RJ-053")
def test_zero_flags_follow_every_write():
    got = run(ZERO_FLAGS, v={1: LANES})
    assert [got.s(n) for n in range(4, 13)] == [2, 1, 0, 0, 0, 2, 3, 1, 2]


@pytest.mark.rule("RJ-066")
def test_an_ended_wave_counts_as_arrived():
    first, ended, last = run(ONE_ENDS_EARLY, exec=1, setting=Setting(waves=3))
    assert [one.v(2, 0) for one in (first, ended, last)] == [8, 0, 8]


@pytest.mark.rule("RJ-066")
def test_a_barrier_waits_for_no_counter():
    got = run(BARRIER_AND_LOADS, memory={4: LANES}, v={1: 4 * LANES}, setting=Setting(waves=2))
    assert all((one.v(2) == LANES).all() for one in got)


@pytest.mark.rule("RJ-067")
@pytest.mark.parametrize(("items", "fits"), [(1024, True), (1025, False)])
def test_a_workgroup_has_16_waves_at_most(items, fits):
    kernel = Device().load(assemble_kernel("s_endpgm"))["k"]
    if fits:
        assert kernel[1, items](b"").workgroups == 1
    else:
        with pytest.raises(LaunchError, match="1024"):
            kernel[1, items](b"")


@pytest.mark.rule("RJ-055.3")
def test_clrexcp_clears_what_arithmetic_raises():
    got = run(CLREXCP, v={2: 0}, hardware={TRAPSTS: 0x400}, exec=0)
    assert (got.s(4), got.s(5)) == (0x5FF, 0x580)


@pytest.mark.rule("RJ-056")
def test_user_code_has_no_trap_registers():
    got = run(TTMPS)
    assert (got.s(4), got.s(6, 2)) == (0, 0)


@pytest.mark.rule("RJ-057")
def test_hardware_ids_of_the_waves_of_a_group():
    words = [one.s(16 + HW_ID) for one in run(GET_ALL, setting=Setting(waves=4))]
    assert [w & 15 for w in words] == list(range(4))
    assert len({w & ~0x3F for w in words}) == 1


@pytest.mark.rule("RJ-058")
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_the_word_behind_the_group_ids(engine):
    directives = ".amdhsa_system_sgpr_workgroup_info 1\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n"
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, s3
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v2, s[4:5]
    s_endpgm"""
    out = np.zeros(256, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernel = device.load(assemble_kernel(body, directives))["k"]
    kernel.launch(Geometry.of_blocks(1, 256), struct.pack("<Q", device.map(out)))
    words = out[::64].tolist()
    assert [w & 63 for w in words] == [4] * 4
    assert [w >> 31 for w in words] == [1, 0, 0, 0]


@pytest.mark.rule("RJ-075")
def test_setreg_writes_a_slice_of_what_a_program_may_write():
    got = run(SETREGS, s={20: 0b1010}, v={2: 1, 3: 2}, hardware={STATUS: 0x10000}, mode=0x3F0)
    assert got.s(5) == got.s(6) == 0x10000 | 1 << 10
    assert (got.s(7), got.s(8)) == (0x3F0, 0x3A0)
    assert got.v(1) == 0, "denormals are flushed from then on"


SUM_OF_DENORMALS = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mov_b32 v2, 5
v_add_f32 v2, v2, v2
v_mov_b32 v4, 3
v_mov_b32 v5, 0
v_add_f64 v[4:5], v[4:5], v[4:5]
v_lshlrev_b32 v4, 16, v4
v_or_b32 v2, v2, v4
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v2, s[4:5]
s_endpgm"""


@pytest.mark.rule("P4.3")
@pytest.mark.parametrize("engine", ["numpy", "host"])
@pytest.mark.parametrize(("single", "double"), [(0, 3), (3, 0), (3, 3), (0, 0)])
def test_denormals_are_kept_where_the_descriptor_asks(engine, single, double):
    directives = f".amdhsa_float_denorm_mode_32 {single}\n.amdhsa_float_denorm_mode_16_64 {double}\n"
    out = np.zeros(64, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernel = device.load(assemble_kernel(SUM_OF_DENORMALS, directives))["k"]
    kernel.launch(Geometry.of_blocks(1, 64), struct.pack("<Q", device.map(out)))
    assert set(out.tolist()) == {(10 if single else 0) | (6 if double else 0) << 16}


PACKED_IDS = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_mbcnt_lo_u32_b32 v1, -1, 0
v_mbcnt_hi_u32_b32 v1, -1, v1
s_getreg_b32 s6, hwreg(HW_REG_HW_ID, 0, 4)
s_lshl_b32 s6, s6, 6
v_add_u32 v1, s6, v1
v_lshlrev_b32 v1, 2, v1
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[4:5]
s_endpgm"""


@pytest.mark.rule("S13.11")
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_work_item_ids_are_packed_and_the_tail_is_off(engine):
    out = np.full(192, 0xFFFFFFFF, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernel = device.load(assemble_kernel(PACKED_IDS, ".amdhsa_system_vgpr_workitem_id 2\n"))["k"]
    kernel.launch(Geometry.of_blocks(1, (5, 4, 7)), struct.pack("<Q", device.map(out)))
    wanted = [x | y << 10 | z << 20 for z in range(7) for y in range(4) for x in range(5)]
    assert out[:140].tolist() == wanted
    assert (out[140:] == 0xFFFFFFFF).all()


@pytest.mark.rule("S14.2")
def test_scc_is_bit_0_of_status():
    got = run("s_cmp_eq_u32 0, 0\ns_getreg_b32 s4, hwreg(HW_REG_STATUS, 0, 3)\ns_cmp_eq_u32 0, 1\n"
              "s_getreg_b32 s5, hwreg(HW_REG_STATUS, 0, 3)")  # fmt: skip
    assert (got.s(4), got.s(5)) == (1, 0)
