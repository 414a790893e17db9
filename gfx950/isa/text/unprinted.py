"""Bits that text does not carry: `disassemble` leaves them out, `assemble` gives them the value that LLVM's does.

Nothing here is lost of what LLVM's assembler can write. `is_exact` says whether an instruction has such bits set.
"""

from __future__ import annotations

from dataclasses import dataclass

from gfx950.isa.encoding import Decoded
from gfx950.isa.text.assembly import assemble
from gfx950.isa.text.disassembly import disassemble
from gfx950.isa.text.problems import AssemblyError


@dataclass(frozen=True)
class Unprinted:
    """Fields of a format, or of a DPP, SDWA or scale dword, that some instruction's text does not show, and why."""

    part: str
    fields: tuple[str, ...]
    reason: str


ABSENT = "the field of an operand that the instruction does not have; nothing reads it"
NO_MODIFIER = "a modifier that LLVM does not give the instruction; the manual gives it no meaning there"
UNPRINTED = (
    Unprinted("SOPP", ("simm16",), "instructions without an operand, unused bits of counters and messages"),
    Unprinted("SOP1", ("sdst", "ssrc0"), ABSENT),
    Unprinted("SOP2", ("sdst",), ABSENT),
    Unprinted("SOPK", ("sdst",), ABSENT),
    Unprinted("VOP1", ("src0", "vdst"), "V_NOP and V_CLREXCP have no operands"),
    Unprinted("VOP3", ("src0", "src1", "src2", "vdst"), ABSENT),
    Unprinted(
        "VOP3",
        ("abs", "neg", "clamp", "omod"),
        "modifiers that LLVM does not give the instruction. Those of V_MOV_B32 and V_MOV_B64 [12.8] and the CLAMP of"
        " V_MUL_LO_U16 [12.7] mean something: the emulator obeys them, and text has no word for them",
    ),
    Unprinted("VOP3", ("op_sel",), NO_MODIFIER),
    Unprinted("VOP3P", ("src1", "src2", "vdst"), ABSENT),
    Unprinted("VOP3P", ("clamp",), "V_MFMA_LD_SCALE_B32 has no result"),
    Unprinted(
        "VOP3P",
        ("neg", "neg_hi", "op_sel", "op_sel_hi", "op_sel_hi2"),
        "bits of an absent third source; halves of the dot products, which have none [6.2.1]",
    ),
    Unprinted(
        "VOP3P",
        ("abid", "acc", "acc_cd", "blgp", "cbsz"),
        "V_ACCVGPR_READ and WRITE have no modifiers and know their register files; LLVM sets three of these bits",
    ),
    Unprinted("dpp", ("src0",), "V_NOP has no operands"),
    Unprinted("dpp", ("src0_abs", "src0_neg", "src1_abs", "src1_neg"), NO_MODIFIER),
    Unprinted("sdwa", ("src0", "s0", "s1", "src0_sel", "src1_sel", "sdst", "sd"), ABSENT + "; VCC needs no SDST"),
    Unprinted(
        "sdwa",
        ("src0_abs", "src0_neg", "src1_abs", "src1_neg", "src0_sext", "src1_sext", "clamp", "omod"),
        NO_MODIFIER,
    ),
    Unprinted("sdwa", ("dst_sel", "dst_u"), "the FP8 conversions select of their source only [7.3]"),
    Unprinted("SMEM", ("nv",), "LLVM has no word for it"),
    Unprinted("SMEM", ("sbase", "sdata", "soffset", "imm", "soe", "glc"), ABSENT),
    Unprinted("SMEM", ("offset",), "bits above a register's number; all of it in clocks and cache instructions"),
    Unprinted("DS", ("acc", "addr", "data0", "data1", "vdst"), ABSENT),
    Unprinted(
        "DS",
        ("offset0", "offset1"),
        "bits of the offset that a swizzle does not use; DS_NOP",
    ),
    Unprinted("FLAT", ("acc", "addr", "data", "vdst", "saddr"), ABSENT + "; FLAT has no SADDR"),
    Unprinted("FLAT", ("sve",), "it is of the scratch segment alone [10.5]"),
    Unprinted("FLAT", ("offset",), "the FLAT segment has 12 bits of it"),
    Unprinted("MUBUF", ("acc", "vaddr", "vdata"), ABSENT),
    Unprinted(
        "MUBUF", ("idxen", "offen", "offset", "soffset", "srsrc", "nt"), "the cache instructions have SC0 and SC1 only"
    ),
    Unprinted("MTBUF", ("vaddr",), ABSENT),
    Unprinted(
        "literal",
        ("literal",),
        "the high half of that of a 16-bit operand: neither LLVM nor `assemble` takes it",
    ),
)


def is_exact(decoded: Decoded) -> bool:
    """Whether the instruction's text assembles to its bytes again."""
    try:
        return assemble(disassemble(decoded), decoded.pc) == decoded.raw
    except AssemblyError:
        return False
