"""MODE and the other hardware registers, relative registers, VGPR indexing, skipped vectors, traps, on both engines."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel

from emu.dispatch import Device, RunOptions
from emu.errors import EmulatorError, Trapped
from gfx950.isa.encoding import decode

ENGINES = ["host", "numpy"]
STORE = "v_lshlrev_b32 v40, 2, v0\nglobal_store_dword v40, {}, s[0:1]\ns_endpgm"


def run(engine, text, store="v1"):
    """The 64 dwords a kernel stores; s[0:1] is the output's address."""
    body = "s_load_dwordx2 s[0:1], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n" + text + "\n" + STORE.format(store)
    out = np.zeros(64, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(body))["k"][1, 64](kernarg)
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_mode_can_be_read_and_written(engine):
    text = """
    s_getreg_b32 s2, hwreg(HW_REG_MODE, 0, 8)
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
    s_getreg_b32 s3, hwreg(HW_REG_MODE, 4, 4)
    s_movk_i32 s4, 0x3
    s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s4
    s_getreg_b32 s5, hwreg(HW_REG_MODE, 4, 4)
    s_lshl_b32 s3, s3, 8
    s_lshl_b32 s5, s5, 16
    s_or_b32 s2, s2, s3
    s_or_b32 s2, s2, s5
    v_mov_b32 v1, s2
    """
    (value,) = set(run(engine, text).tolist())
    assert value & 0xF == 0
    assert value >> 8 & 3 == 0
    assert value >> 16 == value >> 4 & 0xF | 3


@pytest.mark.parametrize("engine", ENGINES)
def test_flushing_denormals_begins_and_ends_where_the_program_says(engine):
    text = """
    s_mov_b32 s2, 0x00000005
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
    v_add_f32 v1, s2, v31
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
    v_add_f32 v2, s2, v31
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
    v_add_f32 v3, s2, v31
    v_lshlrev_b32 v2, 8, v2
    v_lshlrev_b32 v3, 16, v3
    v_or3_b32 v1, v1, v2, v3
    """
    assert set(run(engine, text).tolist()) == {5 | 5 << 16}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loop_that_changes_mode_ends(engine):
    text = """
    s_mov_b32 s4, 0
    v_mov_b32 v1, 0
    again:
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
    v_add_u32 v1, 1, v1
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 0
    s_add_u32 s4, s4, 1
    s_cmp_lt_u32 s4, 100
    s_cbranch_scc1 again
    """
    assert set(run(engine, text).tolist()) == {100}


@pytest.mark.parametrize("engine", ENGINES)
def test_registers_are_moved_by_the_index(engine):
    text = """
    v_mov_b32 v10, 10
    v_mov_b32 v11, 11
    v_mov_b32 v12, 12
    v_mov_b32 v1, 0
    s_mov_b32 m0, 0xfff00500
    s_set_gpr_idx_on 2, gpr_idx(SRC0)
    v_mov_b32 v1, v10
    s_mov_b32 s3, m0
    s_set_gpr_idx_mode gpr_idx(DST)
    s_set_gpr_idx_idx 11
    v_mov_b32 v1, v11
    s_set_gpr_idx_off
    s_mov_b32 s4, m0
    v_lshlrev_b32 v12, 8, v12
    v_or_b32 v1, v1, v12
    s_xor_b32 s3, s3, 0xfff01502
    s_xor_b32 s4, s4, 0xfff0850b
    s_or_b32 s3, s3, s4
    s_lshl_b32 s3, s3, 16
    v_or_b32 v1, s3, v1
    """
    assert set(run(engine, text).tolist()) == {12 | 11 << 8}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_destination_past_the_last_register_is_not_written_and_a_source_is_v0(engine):
    text = """
    v_mov_b32 v1, 7
    s_set_gpr_idx_on 255, gpr_idx(DST)
    v_mov_b32 v1, 9
    s_set_gpr_idx_mode gpr_idx(SRC0)
    v_mov_b32 v2, v1
    s_set_gpr_idx_off
    v_lshlrev_b32 v2, 8, v2
    v_or_b32 v1, v1, v2
    """
    assert np.array_equal(run(engine, text), 7 | np.arange(64) << 8)


@pytest.mark.parametrize("engine", ENGINES)
def test_relative_scalar_registers(engine):
    text = """
    s_mov_b32 s10, 0x10
    s_mov_b32 s12, 0x12
    s_mov_b32 s13, 0x13
    s_mov_b32 m0, 2
    s_movrels_b32 s4, s10
    s_movrels_b64 s[6:7], s[10:11]
    s_movreld_b32 s18, s10
    s_lshl_b32 s7, s7, 8
    s_lshl_b32 s20, s20, 16
    s_mov_b32 m0, 0x1ff
    s_movreld_b32 s10, s7
    s_lshl_b32 s6, s6, 24
    s_or_b32 s4, s4, s7
    s_or_b32 s4, s4, s20
    s_or_b32 s4, s4, s6
    v_mov_b32 v1, s4
    """
    assert set(run(engine, text).tolist()) == {0x12101312}


@pytest.mark.parametrize("engine", ENGINES)
def test_vskip_leaves_vector_instructions_out(engine):
    text = """
    v_mov_b32 v1, 1
    s_mov_b32 s4, 4
    s_mov_b32 s5, 2
    s_setvskip s4, s5
    v_mov_b32 v1, 2
    global_store_dword v1, v1, s[2:3]
    s_add_u32 s4, s4, 1
    s_setvskip s4, 1
    v_add_u32 v1, s4, v1
    """
    assert set(run(engine, text).tolist()) == {6}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("s_trap 2", "the kernel trapped"),
        ("s_sethalt 1", "the wave halted"),
        ("s_sendmsghalt sendmsg(MSG_INTERRUPT)", "the wave halted"),
    ],
)
def test_traps_and_halts_end_the_launch_with_an_error(engine, line, message):
    with pytest.raises(Trapped, match=message) as caught:
        run(engine, f"s_nop 0\n{line}\nv_mov_b32 v1, 0")
    assert caught.value.instruction.startswith(line.split()[0])
    assert caught.value.wave == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_debug_trap_and_halts_that_halt_nothing_do_nothing(engine):
    assert set(run(engine, "v_mov_b32 v1, 3\ns_trap 3\ns_sethalt 0\ns_setkill 0").tolist()) == {3}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_wave_ends(engine):
    assert set(run(engine, "s_setkill 1\nv_mov_b32 v1, 3").tolist()) == {0}


@pytest.mark.parametrize("engine", ENGINES)
def test_apertures_are_operands(engine):
    text = """
    s_mov_b64 s[4:5], src_shared_base
    s_mov_b64 s[6:7], src_private_base
    s_mov_b64 s[8:9], src_shared_limit
    s_or_b32 s5, s5, s4
    s_or_b32 s5, s5, s7
    s_add_u32 s8, s8, 1
    s_or_b32 s5, s5, s8
    v_mov_b32 v1, s5
    """
    assert set(run(engine, text).tolist()) == {0x30000}


@pytest.mark.parametrize("engine", ENGINES)
def test_status_has_scc_and_the_zero_flags(engine):
    text = """
    s_mov_b64 vcc, 0
    s_cmp_eq_u32 0, 0
    s_getreg_b32 s4, hwreg(HW_REG_STATUS)
    s_and_b32 s4, s4, 0x10601
    v_mov_b32 v1, s4
    """
    assert set(run(engine, text).tolist()) == {0x10401}


@pytest.mark.parametrize("words", [0xBE801CFF, 0xBE801DFF, 0xBE801EFF, 0xBE802AFF, 0xBF11FF02])
def test_fields_that_are_no_operands_take_no_literal(words):
    decoded = decode(words.to_bytes(4, "little"), 0)
    assert decoded.nbytes == 4
    assert decoded.instruction.name in {
        "s_getpc_b64",
        "s_setpc_b64",
        "s_swappc_b64",
        "s_movrels_b32",
        "s_set_gpr_idx_on",
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_the_addend_of_fmamk_and_madmk_is_indexed_as_the_third_source(engine):
    """CDNA4 ISA 6.6.2: v_madmk has its second register source under M0[14], and M0[13] moves nothing."""
    text = """
    v_mov_b32 v10, 1.0
    v_mov_b32 v11, 2.0
    v_mov_b32 v12, 0x3c00
    v_mov_b32 v13, 0x4000
    s_set_gpr_idx_on 1, gpr_idx(SRC2)
    v_fmamk_f32 v1, v10, 0x40800000, v10
    v_madmk_f16 v2, v12, 0x4400, v12
    s_set_gpr_idx_mode gpr_idx(SRC1)
    v_fmamk_f32 v3, v10, 0x40800000, v10
    v_madmk_f16 v4, v12, 0x4400, v12
    s_set_gpr_idx_off
    v_cvt_f32_f16 v2, v2
    v_cvt_f32_f16 v4, v4
    v_cvt_u32_f32 v1, v1
    v_cvt_u32_f32 v2, v2
    v_cvt_u32_f32 v3, v3
    v_cvt_u32_f32 v4, v4
    v_lshl_or_b32 v1, v2, 8, v1
    v_lshl_or_b32 v3, v4, 8, v3
    v_lshl_or_b32 v1, v3, 16, v1
    """
    assert set(run(engine, text).tolist()) == {0x05050606}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_exception_flags_keep_what_a_program_writes(engine):
    """CDNA4 ISA 3.10.1: TRAPSTS[8:0] can be read and written by any program, the other bits not."""
    text = """
    s_getreg_b32 s3, hwreg(HW_REG_TRAPSTS)
    s_mov_b32 s2, -1
    s_setreg_b32 hwreg(HW_REG_TRAPSTS), s2
    s_getreg_b32 s4, hwreg(HW_REG_TRAPSTS)
    s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 2, 3), 2
    s_getreg_b32 s5, hwreg(HW_REG_TRAPSTS, 1, 8)
    s_lshl_b32 s5, s5, 16
    s_or_b32 s4, s4, s5
    s_or_b32 s4, s4, s3
    v_mov_b32 v1, s4
    """
    assert set(run(engine, text).tolist()) == {0x1FF | (0x1EB >> 1) << 16}


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_of_the_registers_and_of_lds(engine):
    """CDNA4 ISA tables 21 and 22: 128 v and no a registers in eights, 112 scalars in sixteens; LDS in 256 bytes."""
    body = """
    s_load_dwordx2 s[0:1], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_getreg_b32 s4, hwreg(HW_REG_GPR_ALLOC)
    s_getreg_b32 s5, hwreg(HW_REG_LDS_ALLOC)
    v_mov_b32 v4, s4
    v_mov_b32 v5, s5
    v_lshlrev_b32 v40, 3, v0
    global_store_dwordx2 v40, v[4:5], s[0:1]
    s_endpgm
    """
    out = np.zeros((64, 2), np.uint32)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(body, ".amdhsa_group_segment_fixed_size 1300"))["k"][1, 64](kernarg)
    assert (out[:, 0] == (128 // 8 - 1) << 6 | (128 // 4) << 12 | (112 // 16 - 1) << 24).all()
    assert (out[:, 1] == 2 * 1280 // 256 << 12).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_lds_is_granted_in_blocks(engine):
    """CDNA4 ISA 3.6.5, 3.6.1: all of the 1280 bytes granted can be used, what lies behind reads 0."""
    text = """
    v_mov_b32 v2, 1276
    v_mov_b32 v3, 5
    ds_write_b32 v2, v3
    ds_write_b32 v2, v3 offset:4
    ds_read_b32 v1, v2
    ds_read_b32 v4, v2 offset:4
    s_waitcnt lgkmcnt(0)
    v_lshl_or_b32 v1, v4, 8, v1
    """
    body = "s_load_dwordx2 s[0:1], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n" + text + "\n" + STORE.format("v1")
    out = np.zeros(64, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(body, ".amdhsa_group_segment_fixed_size 8"))["k"][1, 64](kernarg)
    assert set(out.tolist()) == {5}


@pytest.mark.parametrize("engine", ENGINES)
def test_flat_scratch_is_read_only(engine):
    text = """
    s_mov_b64 s[4:5], flat_scratch
    s_mov_b64 flat_scratch, 5
    s_mov_b32 flat_scratch_hi, 7
    s_xor_b64 s[4:5], s[4:5], flat_scratch
    s_or_b32 s4, s4, s5
    v_mov_b32 v1, s4
    """
    assert set(run(engine, text).tolist()) == {0}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_without_an_answer_is_refused_only_when_it_runs(engine):
    asked = "s_sendmsg sendmsg(MSG_GET_DOORBELL)"
    text = "v_mov_b32 v1, 3\ns_sendmsg sendmsg(MSG_INTERRUPT)\n"
    assert set(run(engine, f"{text}s_branch over\n{asked}\nover:").tolist()) == {3}
    with pytest.raises(EmulatorError, match="doorbell"):
        run(engine, text + asked)
