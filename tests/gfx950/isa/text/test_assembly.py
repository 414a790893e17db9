"""The assembler beside LLVM's: other spellings of the same, labels and comments, and what it says of wrong lines."""

from __future__ import annotations

import random

import pytest
from llvm_printer import printed_lines
from llvm_tools import assembled
from random_instructions import Generator

from emu.code_object import load
from gfx950.isa.registry import load as load_definitions
from gfx950.isa.text import AssemblyError, assemble, disassemble, listing
from gfx950.isa.text.catalog import older_names, syntaxes

# What LLVM reads beside what it prints.
VARIANTS = """
v_add_f32 v0, v1, v2
V_ADD_F32 v0, v1, v2
v_add_f32 v0, -v1, v2
v_add_f32 v0, - v1, v2
v_add_f32 v0, neg(v1), abs(v2)
v_add_f32 v0, -abs(v1), v2
v_add_f32 v0, neg(abs(v1)), v2
v_add_f32  v0 ,v1 ,  v2
v_add_f32 v0, v1, v2 quad_perm:[0,1,2,3]
v_add_f32 v0, v1, v2 src0_sel:BYTE_1
v_add_f32 v0, v1, s2
v_add_f32 v0, 0x3f800000, v1
v_add_f32 v0, 1, v1
v_add_f32 v0, 3.5, v1
v_add_f32 v0, -16, v1
v_add_f32 v0, -17, v1
v_add_f32 v0, 0xfffffff0, v1
v_add_f32 v0, 0.15915493, v1
v_add_f32 v0, 0x3e22f983, v1
v_add_f16 v0, 0x3c00, v1
v_add_f16 v0, 3.5, v1
v_add_f16 v0, 0xfff0, v1
v_add_u16 v0, -1, v1
v_add_u16 v0, 0xffff, v1
v_cvt_f32_bf16 v0, 0x3f80
v_cvt_f32_bf16 v0, 3.0
v_dot2c_f32_f16 v1, 0x3c003c00, v6
v_dot2c_f32_f16 v1, 3.0, v6
v_ceil_f64 v[0:1], 0x3ff00000
v_ceil_f64 v[0:1], 3.5
v_ceil_f64 v[0:1], 1
s_mov_b64 s[0:1], 0x3ff0000000000000
s_mov_b64 s[0:1], 0x12345678
s_mov_b64 s[0:1], [s2,s3]
s_mov_b32 s0, s[5]
s_mov_b32 s0, 0b101
s_mov_b32 s0, 010
s_mov_b32 s0, +5
s_mov_b32 s0, 1e3
s_mov_b32 s0, lit(5)
v_cndmask_b32 v0, v1, v2
v_add_co_u32 v0, v1, v2
v_add_co_u32 v0, s[2:3], v1, v2
v_cmp_eq_f32 v1, v2
v_cmp_eq_f32 s[2:3], v1, v2
v_pk_add_f16 v0, v1, v2 op_sel:[0,0] op_sel_hi:[1,1]
v_cvt_sr_fp8_f32 v0, v1, v2 op_sel:[0,0,1]
v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
v_mfma_f32_16x16x16bf16_1k a[0:3], v[0:1], v[2:3], a[0:3]
s_waitcnt 0
s_waitcnt vmcnt(0) & lgkmcnt(1)
s_waitcnt lgkmcnt(1), vmcnt(0)
s_waitcnt lgkmcnt_sat(100)
s_sendmsg 3
s_sendmsg sendmsg(3, 1)
s_sendmsg sendmsg(MSG_INTERRUPT)
s_getreg_b32 s0, hwreg(1, 2, 3)
s_getreg_b32 s0, 0xf801
s_set_gpr_idx_mode 9
s_movk_i32 s0, -3
s_branch 0xffff
s_nop -1
s_endpgm 0
ds_read_b32 v0, v1 offset: 4
ds_read_b32 v0, v1, offset:4
ds_read_b32 v0, v1 offset:0x10
ds_swizzle_b32 v0, v1 offset:swizzle(REVERSE,8)
ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,3)
ds_swizzle_b32 v0, v1 offset:swizzle(ROTATE,1,3)
ds_swizzle_b32 v0, v1 offset:0xffff
tbuffer_load_format_x v1, off, s[8:11], dfmt:4, nfmt:7, s3
tbuffer_load_format_x v1, off, s[8:11], s3 format:22
tbuffer_load_format_x v1, off, s[8:11], s3 format:[BUF_NUM_FORMAT_FLOAT]
v_mov_b32_dpp v0, v1 row_mirror bound_ctrl:0
""".strip().splitlines()


@pytest.fixture(scope="module")
def llvm():
    accepted, refused = printed_lines(VARIANTS)
    assert refused == {}
    return accepted


@pytest.mark.parametrize("line", VARIANTS)
def test_other_spellings_give_llvm_s_bytes(line, llvm):
    assert assemble(line).hex() == llvm[line].code.hex()


def test_older_names_of_matrix_instructions_are_llvm_s():
    rng = random.Random(1)
    expected = {}
    for name, definition in load_definitions().items():
        for alias in older_names(name):
            decoded = Generator(syntaxes(definition)[0], rng).instruction()
            expected[disassemble(decoded).replace(name, alias, 1)] = decoded.raw
    assert len(expected) > 40
    accepted, refused = printed_lines(expected)
    assert all("overlap" in reason for reason in refused.values())
    assert {line: printed.code for line, printed in accepted.items()} == {line: expected[line] for line in accepted}
    assert {line: assemble(line) for line in expected} == expected


TEXT = """
; two loops
start:
  s_mov_b32 s0, 10            // counts
outer: s_mov_b32 s1, s0
inner:
  s_sub_u32 s1, s1, 1 /* a comment
  over lines */
  s_cmp_lg_u32 s1, 0
  s_cbranch_scc1 inner
  s_cbranch_scc0 end_of_it
  s_branch start
  .long 0xbf800000, 1
end_of_it: last: s_call_b64 s[4:5], last
  s_endpgm
"""


def test_labels_comments_and_data():
    (theirs,) = load(assembled(f".text\n{TEXT}")).code
    ours = assemble(TEXT, pc=0x4000)
    assert ours == theirs.data[: len(ours)]
    assert len(listing(ours, 0x4000)) == 11


def test_names_from_elsewhere():
    assert assemble("s_branch there", pc=0x1000, symbols={"there": 0x2000}) == assemble("s_branch 0x3ff")
    assert assemble("x: s_branch x", symbols={"x": 64}) == assemble("s_branch -1")


WRONG = {
    "v_add_f33 v0, v1, v2": "line 1, column 1: no gfx950 instruction is called 'v_add_f33'; nearest: v_add_f32,",
    "v_interp_p1_f32 v0, v1, v2": "column 1: v_interp_p1_f32 is an instruction of gfx",
    "v_lshl_b32_e32 v0, v1, v2": "column 1: v_lshl_b32 is an instruction of gfx700",
    "v_swap_b32_e64 v0, v1": "v_swap_b32 has no form v_swap_b32_e64; it has v_swap_b32;",
    "v_add_f32 v0, v1": "column 17: v_add_f32_e32 takes 3 operands, found 2",
    "v_add_f32 v0, v1 v2": "column 18: 'v2' is no modifier of v_add_f32_e32 (it has none), and an operand needs",
    "v_add_f32 v0, v1, v2 foo": "column 22: 'foo' is no modifier",
    "v_add_f32 v0, v1, s300": "column 19: s300 does not exist: s registers are s0..s101",
    "v_add_f32 v[0:1], v1, v2": "column 11: expected 1 register, found v[0:1], which is 2",
    "v_add_f32_sdwa v0, v1, 0x1234": "0x1234 is no inline constant, and a literal cannot stand here",
    "v_add_f32 v0, |v1, v2": "a bracket or bar of '|v1, v2' is not closed",
    "v_add_f32_dpp v0, v1, v2": "v_add_f32_dpp with these operands needs one of quad_perm:, row_shl:",
    "v_mov_b32_dpp v0, v1 row_shl:17": "column 22: row_shl must be 1..15, found 17",
    "v_ceil_f64_dpp v[0:1], v[2:3] row_shl:1": "64-bit operands take row_newbcast only, found row_shl:1",
    "v_fma_f32 v0, v1, v2, v3 clamp clamp": "column 32: clamp is given twice",
    "v_fma_f16 v0, v1, v2, v3 op_sel:[1,0]": "op_sel takes 4 bits in brackets, found '[1,0]'",
    "v_add_f64 v[0:1], 0.1, v[2:3]": "0.1 has 64 bits: a literal holds the high 32, and its low ones are not 0",
    "v_add_f16 v0, 0x12345, v1": "0x12345 does not fit the 16 bits of a literal here",
    "s_add_u32 s0, 0x12345, 0x54321": "an instruction has one literal: 0x54321 differs from 0x12345",
    "s_mov_b64 s[1:2], 0": "2 scalar registers must start at a multiple of 2, found s[1:2]",
    "s_mov_b32 s0, v1": "a vector register cannot stand here, found v1",
    "s_setpc_b64 1.0": "expected a register, found '1.0'",
    "s_waitcnt vmcnt(64)": "vmcnt must be 0..63, found 64",
    "s_waitcnt vscnt(0)": "expected vmcnt(), expcnt() or lgkmcnt(), found 'vscnt(0)'",
    "s_sendmsg sendmsg(MSG_FOO)": "expected a message (MSG_INTERRUPT, MSG_GS,",
    "s_getreg_b32 s0, hwreg(MODE)": "expected a hardware register (HW_REG_MODE, HW_REG_STATUS,",
    "s_set_gpr_idx_on s0, gpr_idx(SRC3)": "gpr_idx takes SRC0, SRC1, SRC2, DST, found 'SRC3'",
    "s_branch nowhere": "column 10: expected a distance in words or a known label, found 'nowhere'",
    "s_nop 0\nx: x: s_nop 0": "line 2: label 'x' is defined twice",
    "s_nop 0\n  s_nop 99999": "line 2, column 9: a number of 16 bits must be -32768..65535, found 99999",
    "ds_read_b64 v[1:2], v3": "column 13: vector registers must start at an even number here, found v[1:2]",
    "ds_read_b32 v0, v1 offset:70000": "column 20: offset must be 0..65535, found 70000",
    "ds_write_b64 a[0:1], v[2:3]": "expected a vector register such as v0, found 'a[0:1]'",
    "ds_write2_b32 v0, v1, a2": "a2 must be in the same register file (v or a) as the operands before it",
    "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,3)": "SWAP takes 1, 2, 4, 8, 16, found 3",
    "global_atomic_add v0, v[2:3], v4, off": "global_atomic_add with these operands needs sc0",
    "global_atomic_add v[2:3], v4, off sc0": "global_atomic_add with these operands must not have sc0",
    "global_load_dword v0, v[2:3], off offset:5000": "offset must be -4096..4095, found 5000",
    "buffer_load_dword v1, v2, s[8:11], 0": "expected off, as neither offen nor idxen is there, found 'v2'",
    "buffer_load_dword v1, v2, s[9:12], 0 offen": "4 scalar registers must start at a multiple of 4, found s[9:12]",
    "tbuffer_load_format_x v1, off, s[8:11], s3 format:[FOO]": "expected BUF_DATA_FORMAT_... and BUF_NUM_FORMAT_...",
    "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3] blgp:4": "expected 4 registers, found v[16:23]",
    "v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3] blgp:5": "formats are 0 (fp8), 1 (bf8), 2 (fp6)",
    ".long v0": "expected a number, found 'v0'",
    "s_mov_b32 s0, " + "9" * 10000: "99999999999999999999... is too large: a number has at most 64 bits",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_lines_say_what_and_where(text):
    with pytest.raises(AssemblyError) as error:
        assemble(text)
    assert WRONG[text] in str(error.value)
    assert isinstance(error.value, ValueError)
    assert error.value.line == text.count("\n") + 1


def test_branches_that_reach_too_far():
    with pytest.raises(AssemblyError, match=r"a branch reaches words within -32768\.\.32767"):
        assemble("s_branch far", symbols={"far": 1 << 20})
    with pytest.raises(AssemblyError, match="bytes away"):
        assemble("s_branch odd", symbols={"odd": 6})


@pytest.mark.parametrize("size", [1, 2, 4])
def test_fill(size):
    assert assemble(f".fill 3, {size}, 0xbf800102") == 3 * bytes.fromhex("020180bf")[:size]
    assert assemble(f"s_nop 0\n.fill 0, {size}, 1") == assemble("s_nop 0")


@pytest.mark.parametrize("text", ["", "3", "3, 4", "3, 8, 1", "-1, 4, 1", "0x1000000, 4, 0"])
def test_what_fill_does_not_take(text):
    with pytest.raises(AssemblyError, match="line 1"):
        assemble(f".fill {text}")
