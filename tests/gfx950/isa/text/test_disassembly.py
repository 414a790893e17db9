"""Lines of the disassembler: the spelling of LLVM, symbols, words for what is no instruction, lines for messages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from llvm_printer import printed_lines

from gfx950.isa.encoding import decode
from gfx950.isa.registry import INSTRUCTIONS, OPCODES, load, vop3
from gfx950.isa.text import AssemblyError, assemble, disassemble, instruction_text, listing
from gfx950.isa.text.catalog import mnemonics
from gfx950.lanes import B128, F16, U64, Mask

OPCODE = 0x2FE  # no gfx950 instruction has it

# One line for each thing that has a spelling of its own; LLVM prints the same.
LINES = """
v_add_f32_e32 v1, s2, v3
v_add_f32_e64 v1, -v2, |v3| clamp mul:4
v_add_f32_e64 v1, -|v2|, neg(1.0) div:2
v_add_f32_e64 v1, src_shared_base, v3
v_add_f32_dpp v1, -v2, |v3| row_shr:5 row_mask:0x3 bank_mask:0x5 bound_ctrl:1
v_mov_b32_dpp v1, v2 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v1, v2 row_half_mirror row_mask:0xf bank_mask:0xf
v_add_u32_sdwa v1, sext(v2), v3 dst_sel:BYTE_3 dst_unused:UNUSED_SEXT src0_sel:BYTE_1 src1_sel:DWORD
v_cmp_lt_f32_sdwa s[2:3], v1, v2 src0_sel:BYTE_0 src1_sel:WORD_1
v_cmp_lt_f32_e32 vcc, v1, v2
v_addc_co_u32_e64 v1, s[2:3], v4, v5, vcc
v_fmaak_f32 v1, v2, v3, 0x40490fdb
v_fmamk_f32 v1, v2, 0x40490fdb, v3
v_mov_b32_e32 v1, lit(0x1)
v_mov_b32_e32 v1, 0.15915494
v_cvt_f32_f64_e32 v1, 0.15915494309189532
v_cvt_f32_f64_e32 v1, 0x40490fdb
v_fma_f16 v1, v2, v3, v4 op_sel:[1,0,0,1] clamp
v_bitop3_b32 v1, v2, v3, v4 bitop3:0x48
v_pk_fma_f16 v1, v2, v3, v4 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,1,0] clamp
v_fma_mix_f32 v1, -v2, |v3|, v4 op_sel:[1,0,0] op_sel_hi:[1,0,1]
v_mfma_f32_16x16x32_fp8_fp8 a[0:3], v[0:1], a[2:3], 1.0 cbsz:2 abid:3 blgp:1
v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:21], v[0:3] cbsz:1 blgp:2
v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3], v24, v25 op_sel:[1,0,0] op_sel_hi:[0,1,0]
v_accvgpr_write_b32 a1, 1.0
v_readlane_b32 s1, v2, m0
s_mov_b64 s[0:1], exec
s_mov_b32 flat_scratch_lo, ttmp3
s_and_saveexec_b64 vcc, xnack_mask
s_waitcnt vmcnt(3) lgkmcnt(0)
s_waitcnt vmcnt(63) expcnt(7) lgkmcnt(15)
s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
s_getreg_b32 s1, hwreg(HW_REG_XCC_ID)
s_sendmsg sendmsg(MSG_GS, GS_OP_EMIT, 1)
s_set_gpr_idx_on s1, gpr_idx(SRC0,DST)
s_branch -4
s_endpgm
s_movk_i32 s1, 0xfffd
s_load_dwordx2 s[2:3], s[4:5], -0x4
s_buffer_load_dword s2, s[4:7], s7 offset:0x14 glc
ds_read_b64 a[2:3], v1 offset:4660
ds_write2st64_b32 v1, v2, v3 offset0:1 offset1:255
ds_swizzle_b32 v1, v2 offset:swizzle(BITMASK_PERM,"00p11")
ds_swizzle_b32 v1, v2 offset:swizzle(QUAD_PERM,0,1,2,3)
flat_load_dword v1, v[2:3] offset:4095 sc0 nt sc1
global_load_dwordx4 a[4:7], v1, s[2:3] offset:-8
global_store_dword v[2:3], v1, off
global_atomic_add v1, v[2:3], v4, off sc0
global_load_lds_dwordx4 v[2:3], off offset:4
buffer_load_dword v1, v[2:3], s[8:11], 0.5 idxen offen offset:8 sc0 nt sc1
buffer_load_dword off, s[8:11], s3 lds
buffer_inv sc0 sc1
tbuffer_load_format_xyzw a[4:7], v2, s[8:11], s3 format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_FLOAT] idxen
""".strip().splitlines()


@pytest.fixture(scope="module")
def llvm():
    accepted, refused = printed_lines(LINES)
    assert refused == {}
    return accepted


@pytest.mark.parametrize("line", LINES)
def test_spelling(line, llvm):
    assert llvm[line].text == line
    assert disassemble(decode(llvm[line].code, 0)) == line
    assert assemble(line) == llvm[line].code


def test_branches_show_symbols_or_words():
    code = assemble("top: s_nop 0\ns_cbranch_scc1 top\ns_call_b64 s[0:1], 3\ns_branch top", 0x1000)
    names = {0x1000: "top"}
    assert [line for _, _, line in listing(code, 0x1000, names.get)] == [
        "s_nop 0",
        "s_cbranch_scc1 top",
        "s_call_b64 s[0:1], 3",
        "s_branch top",
    ]
    assert disassemble(decode(code, 0x1004, 0x1000)) == "s_cbranch_scc1 -2"


def test_unknown_bytes_are_words():
    code = assemble("v_nop") + bytes.fromhex("ffffffff ff") + b"\1\2"
    assert [(at, line) for at, _, line in listing(code, 16)] == [
        (16, "v_nop"),
        (20, ".long 0xffffffff"),
        (24, ".byte 0xff, 0x01, 0x02"),
    ]
    assert assemble(".long 0xffffffff\n.byte 0xff, 0x01, 0x02\n.quad -1") == b"\xff" * 5 + b"\1\2" + b"\xff" * 8


def test_what_no_operand_code_means_is_shown_as_llvm_does():
    code = assemble("v_add_f32_e32 v1, s2, v3")
    broken = bytes([209, *code[1:]])  # source code 209 is reserved
    assert disassemble(decode(broken, 0)) == "v_add_f32_e32 v1, /*INV_OP*/, v3"


def test_instruction_text_is_for_messages_and_never_raises():
    code = assemble("v_nop\nv_add_f32 v1, v2, v3\n.long 0xbfffffff")
    assert instruction_text(code, 0x100, 0x104) == "v_add_f32_e32 v1, v2, v3"
    assert "0xbfffffff" in instruction_text(code, 0x100, 0x108)
    assert "the code ends" in instruction_text(code, 0x100, 0x200)


def test_the_tables_load_when_they_are_asked():
    source = (
        "import sys\nfrom gfx950.isa.registry import load\nload()\nimport gfx950.isa.text\n"
        "print([m for m in sys.modules if m.startswith('gfx950.isa.text.') and not m.endswith('.problems')],"
        " 'numba' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout == "[] False\n"


@pytest.fixture
def made_up():
    """An instruction that no module knows of."""
    load()

    @vop3("v_made_up_f16", OPCODE)
    def v_made_up_f16(src0: F16, src1: U64, src2: B128) -> tuple[F16, Mask]:
        """Nothing."""
        return src0, src1 == 0

    mnemonics.cache_clear()
    yield v_made_up_f16
    del INSTRUCTIONS["v_made_up_f16"], OPCODES["VOP3", OPCODE]
    mnemonics.cache_clear()


def test_a_new_instruction_has_its_text_from_its_definition(made_up):
    text = "v_made_up_f16 v1, s[2:3], -v4, v[6:7], v[8:11] op_sel:[1,0,0,1] clamp mul:2"
    with pytest.raises(AssemblyError, match="is no modifier"):
        assemble(text)  # the SDST of its mask stands where OP_SEL would
    text = "v_made_up_f16 v1, s[2:3], -v4, v[6:7], v[8:11] clamp mul:2"
    decoded = decode(assemble(text), 0)
    assert decoded.instruction is made_up
    assert (decoded.fields["sdst"], decoded.fields["src2"]) == (2, 256 + 8)
    assert disassemble(decoded) == text
