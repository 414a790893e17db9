"""Rules of the decoder: which bytes are an instruction, how long it is, what it means."""

import numpy as np
import pytest
from programs import LANES, expect, f16, f32, run, words

from emu.errors import EmulatorError
from gfx950.isa.encoding import ENCODINGS, DecodeError, decode
from gfx950.isa.text import instruction_text

TAIL = bytes.fromhex("000081bf") * 2


def sop(form, **fields):
    return ENCODINGS[form].pack(fields).to_bytes(4, "little") + TAIL


def vector(form, extra=None, **fields):
    code = ENCODINGS[form].pack(fields).to_bytes(ENCODINGS[form].nbytes, "little")
    return code + (b"" if extra is None else extra.to_bytes(4, "little")) + TAIL


NO_LITERAL = {"s_getpc_b64": 28, "s_setpc_b64": 29, "s_swappc_b64": 30, "s_rfe_b64": 31, "s_movrels_b32": 42,
              "s_movrels_b64": 43}  # fmt: skip
SAVED_PC = expect("s_getpc_b64 s[4:5]\ns_getpc_b64 s[6:7]\ns_add_u32 s6, s6, 16\ns_addc_u32 s7, s7, 0\n"
                  "s_swappc_b64 s[8:9], s[6:7]\ns_nop 0\ns_nop 0")  # fmt: skip
CONSTANTS = expect("""
v_mov_b32 v2, 0.15915494
v_add_f16 v3, v10, 0.15915494
v_add_f64 v[4:5], v[10:11], 0.15915494309189532
v_pk_add_f16 v6, v10, 0.15915494 op_sel_hi:[1,0]
""")
PACKED_SELECTS = expect("\n".join(
    words("VOP3P", op=0x0E, vdst=2 + n, src0=266, src1=267, src2=268, op_sel_hi=n & 3, op_sel_hi2=n >> 2)
    for n in range(8)
))  # fmt: skip
BEFORE_MATRIX = expect("""
v_pk_add_f16 v2, v10, v10
v_mfma_f32_16x16x128_f8f6f4 v[16:19], v[20:27], v[28:35], 0
v_mfma_i32_16x16x64_i8 v[36:39], v[20:23], v[28:31], 0
v_mfma_f32_16x16x128_f8f6f4 v[40:43], v[20:27], v[28:35], 0
""")


@pytest.mark.rule("RJ-085", "RJ-086")
def test_instructions_without_a_literal_form():
    for name, op in NO_LITERAL.items():
        found = decode(sop("SOP1", op=op, sdst=4, ssrc0=255), 0)
        assert (found.instruction.name, found.nbytes) == (name, 4)
    found = decode(sop("SOP2", op=43, sdst=4, ssrc0=255, ssrc1=4), 0)
    assert (found.instruction.name, found.nbytes) == ("s_rfe_restore_b64", 4)


@pytest.mark.rule("RJ-085", "S13.11")
def test_the_saved_program_counter_is_that_of_the_next_instruction():
    got = run(SAVED_PC)
    assert got.s(6, 2) == got.s(4, 2) + 4 + 16
    assert got.s(8, 2) == got.s(4, 2) + 16
    assert got.instructions == 7, "one S_NOP was jumped over"


@pytest.mark.rule("RJ-059")
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_return_from_a_trap_needs_a_trap(engine):
    with pytest.raises(EmulatorError, match="s_rfe_b64"):
        run("s_rfe_b64 s[4:5]", engines=(engine,))


@pytest.mark.rule("RJ-088")
def test_the_mask_of_set_gpr_idx_on_is_no_operand():
    found = decode(sop("SOPC", op=17, ssrc0=2, ssrc1=255), 0)
    assert (found.instruction.name, found.nbytes) == ("s_set_gpr_idx_on", 4)
    assert decode(sop("SOPC", op=17, ssrc0=255, ssrc1=1), 0).nbytes == 8


@pytest.mark.rule("RJ-074")
def test_setreg_imm32_has_a_literal():
    code = sop("SOPK", op=20, simm16=1 | 31 << 11)
    found = decode(code, 0)
    assert (found.instruction.name, found.nbytes, found.literal) == ("s_setreg_imm32_b32", 8, 0xBF810000)
    assert instruction_text(code, 0, 0).endswith("0xbf810000")
    others = [decode(sop("SOPK", op=op, simm16=1), 0).nbytes for op in (*range(16), 17, 18, 21)]
    assert set(others) == {4}


@pytest.mark.rule("RJ-091")
@pytest.mark.parametrize("op", [23, 24, 36, 37])
def test_multiply_adds_with_a_literal(op):
    assert decode(vector("VOP2", 0x12345678, op=op, src0=256, src1=1, vdst=2), 0).nbytes == 8
    for src0, kind in ((249, "SDWA"), (250, "DPP")):
        with pytest.raises(DecodeError, match=f"no {kind} form"):
            decode(vector("VOP2", 0, op=op, src0=src0, src1=1, vdst=2), 0)
    with pytest.raises(DecodeError, match="VOP3"):
        decode(vector("VOP3", op=0x100 + op, src0=256, src1=257), 0)


WITHOUT_DPP = {
    "v_cmp_lt_f64": ("VOPC", 0x61), "v_cmp_lt_i64": ("VOPC", 0xE1), "v_cmp_lt_u64": ("VOPC", 0xE9),
    "v_cmp_class_f64": ("VOPC", 0x12), "v_cvt_f64_i32": ("VOP1", 4), "v_rcp_f64": ("VOP1", 37),
    "v_clrexcp": ("VOP1", 53), "v_swap_b32": ("VOP1", 81), "v_readfirstlane_b32": ("VOP1", 2),
}  # fmt: skip
WITHOUT_SDWA = {
    "v_mac_f16": ("VOP2", 35), "v_fmac_f32": ("VOP2", 59), "v_clrexcp": ("VOP1", 53), "v_swap_b32": ("VOP1", 81),
    "v_readfirstlane_b32": ("VOP1", 2), "v_dot2c_f32_f16": ("VOP2", 55),
}  # fmt: skip
ROW_SHR_1, SDWA_PLAIN = 0xFF << 24 | 0x111 << 8, 0x06060600


@pytest.mark.rule("RJ-103", "RJ-118", "RJ-077")
@pytest.mark.parametrize(
    ("name", "form", "op", "src0", "extra"),
    [(name, *where, 250, ROW_SHR_1) for name, where in WITHOUT_DPP.items()]
    + [(name, *where, 249, SDWA_PLAIN) for name, where in WITHOUT_SDWA.items()],
)
def test_forms_that_do_not_exist(name, form, op, src0, extra):
    assert decode(vector(form, op=op, src0=256), 0).instruction.name == name
    with pytest.raises(DecodeError, match=f"{name}.* no (DPP|SDWA) form"):
        decode(vector(form, extra, op=op, src0=src0), 0)


@pytest.mark.rule("S12.1")
@pytest.mark.parametrize("op", [654, 667])
def test_holes_among_the_opcodes(op):
    with pytest.raises(DecodeError, match="opcode"):
        decode(vector("VOP3", op=op), 0)


@pytest.mark.rule("S12.1")
def test_each_select_bit_belongs_to_its_source():
    got = run(PACKED_SELECTS, v={10: f16(1, 2), 11: f16(3, 5), 12: f16(7, 11)})
    for n in range(8):
        a, b, c = (1, 2)[n & 1], (3, 5)[n >> 1 & 1], (7, 11)[n >> 2]
        assert got.v(2 + n) == f16(1 * 3 + 7, a * b + c)


@pytest.mark.rule("RJ-043", "RJ-051")
def test_nv_is_ignored_and_gds_refused():
    plain, noted = (ENCODINGS["SMEM"].pack({"op": 0, "sbase": 2, "sdata": 4, "imm": 1, "nv": nv}) for nv in (0, 1))
    assert decode(plain.to_bytes(8, "little"), 0).instruction is decode(noted.to_bytes(8, "little"), 0).instruction
    with pytest.raises(DecodeError, match="global data share"):
        decode(vector("DS", op=54, gds=1), 0)


@pytest.mark.rule("RJ-084")
def test_coexec_mode_changes_nothing():
    got = run(words("SOPP", op=31, simm16=3) + "\nv_mov_b32 v1, 7", s={4: 5})
    assert (got.v(1), got.s(4), got.instructions) == (7, 5, 3)


@pytest.mark.rule("P4.1")
def test_the_inverse_of_two_pi_is_a_constant():
    got = run(CONSTANTS, v={10: 0, 11: 0})
    value = 1 / (2 * np.pi)
    assert got.v(2) == f32(value)
    assert got.v(3) == f16(value)
    assert got.v(4, count=2) == 0x3FC45F306DC9C882, "the last bit is not that of the nearest"
    assert got.v(6) == f16(value) * 0x10001


@pytest.mark.rule("P1.1", "RJ-014")
def test_only_the_prefix_makes_a_scaled_matrix_instruction():
    got = run(BEFORE_MATRIX, v={10: f16(1, 2)} | dict.fromkeys(range(20, 36), 0x38383838))
    assert got.v(2) == f16(2, 4), "eight bytes of its own"
    assert got.v(16) == got.v(40) == f32(128)
    assert got.v(36) == 64 * 0x38 * 0x38
    assert got.instructions == 5


@pytest.mark.rule("S13.11")
def test_lane_numbers():
    assert (run("v_mbcnt_lo_u32_b32 v1, -1, 0\nv_mbcnt_hi_u32_b32 v1, -1, v1").v(1) == LANES).all()


ONE_SCALAR = """
v_writelane_b32 v1, s2, m0
v_writelane_b32 v1, s2, s3
v_cndmask_b32_e64 v1, s2, v3, vcc
v_cndmask_b32_e64 v1, v2, v3, s[4:5]
v_cndmask_b32_e64 v1, vcc_lo, v3, vcc
v_cndmask_b32_e32 v1, s2, v3, vcc
v_cndmask_b32_e32 v1, 0x123, v3, vcc
v_cndmask_b32_e32 v1, 1.0, v3, vcc
v_div_fmas_f32 v1, s2, v3, v4
v_div_fmas_f32 v1, 1.0, v3, v4
v_add_f32_e64 v1, src_vccz, s2
v_add_f32_e64 v1, src_shared_base, s2
v_add_f32_e64 v1, src_scc, s2
v_add_f64 v[2:3], s[2:3], s[2:3]
v_add_f64 v[2:3], s[2:3], s[4:5]
v_lshlrev_b64 v[2:3], s2, s[4:5]
v_mad_u64_u32 v[2:3], s[4:5], s6, v1, v[2:3]
v_addc_co_u32_e64 v1, s[2:3], s6, v1, s[4:5]
v_addc_co_u32_e64 v1, s[2:3], v6, v1, s[4:5]
v_addc_co_u32_e32 v1, vcc, s6, v1, vcc
v_cmp_class_f32_e64 s[2:3], s4, s5
v_cmp_eq_u16_sdwa s[4:5], s6, s7 src0_sel:WORD_1 src1_sel:WORD_1
v_cmp_eq_u16_sdwa s[4:5], s6, s6 src0_sel:WORD_1 src1_sel:WORD_0
v_cmp_eq_u16_sdwa s[4:5], s6, v7 src0_sel:WORD_1 src1_sel:WORD_1
v_pk_fma_f32 v[2:3], s[2:3], s[2:3], v[4:5]
v_pk_fma_f32 v[2:3], s[2:3], s[4:5], v[4:5]
v_readlane_b32 s2, v1, s3
v_add_f32_e64 v1, m0, s2
v_add_f32_e64 v1, exec_lo, s2
v_pk_add_f16 v1, s1, s2
v_fma_f32 v1, s1, s1, s1
v_fma_f32 v1, s1, s1, s2
v_fmamk_f32 v1, s1, 0x123, v2
v_fmaak_f32 v1, v1, v2, 0x123
v_add_f32_dpp v1, v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf
""".strip().splitlines()


@pytest.mark.rule("RJ-076")
def test_one_scalar_or_literal(assemble_accepted):
    accepted = assemble_accepted(ONE_SCALAR)
    assert 12 < len(accepted) < len(ONE_SCALAR) - 12
    for code in accepted.values():
        assert decode(code + TAIL, 0).refusal == ""


TWO_SCALARS = {
    "v_cndmask_b32 with vcc and another": ("VOP2", {"op": 0, "src0": 2, "src1": 3, "vdst": 1}),
    "v_cndmask_b32 in its 64-bit form": ("VOP3", {"op": 0x100, "src0": 2, "src1": 259, "src2": 106, "vdst": 1}),
    "v_fma_f32 with two": ("VOP3", {"op": 0x1CB, "src0": 4, "src1": 4, "src2": 6, "vdst": 1}),
    "v_pk_add_f16 with m0": ("VOP3P", {"op": 0x0F, "src0": 124, "src1": 6, "vdst": 1}),
    "v_div_fmas_f32 with the vcc nobody names": ("VOP3", {"op": 0x1E2, "src0": 4, "src1": 258, "src2": 259, "vdst": 1}),
}


@pytest.mark.rule("RJ-076")
@pytest.mark.parametrize("case", TWO_SCALARS)
@pytest.mark.parametrize("engine", ["numpy", "host"])
def test_two_scalars_are_refused(case, engine):
    form, fields = TWO_SCALARS[case]
    with pytest.raises(EmulatorError, match="room for one scalar or literal"):
        run(words(form, **fields), engines=(engine,))
