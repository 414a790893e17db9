"""Forms that an encoding has bits for and an instruction does not have: they are refused by name, never run.

[CDNA4 ISA 12.16.1, 12.16.2, 13.3; where the manual is silent, LLVM's assembler]
"""

from __future__ import annotations

from gfx950.evidence import Evidence, rule
from gfx950.isa.operand_codes import DPP, LITERAL, M0, SDWA, VCC
from gfx950.isa.registry import Instruction

rule(
    "decode.forms",
    Evidence.spec,
    "CDNA4 ISA 6.2.1, 12.16.1, 12.16.2, 13.3.7 to 13.3.9; LLVM's assembler agrees, but for DPP of compares, which it"
    " does not take and the manual does",
    "No DPP, SDWA or 64-bit form where the tables of chapter 12.16 exclude it; 64-bit operands take DPP's row_newbcast"
    " alone, in compares nothing, and no SDWA but that of V_CVT_PK_F32_FP8 and V_CVT_PK_F32_BF8. There is no GDS.",
)
rule(
    "decode.one_scalar",
    Evidence.spec,
    "CDNA4 ISA 6.2.1; LLVM's assembler agrees, which also takes M0 as the lane of V_WRITELANE_B32 beside an SGPR",
    "A vector instruction reads one scalar register (or pair), VCC and M0 among them, or one literal; one that names"
    " two is refused when it is reached.",
)
_NEITHER = frozenset(
    f"v_{name}"
    for name in (
        "permlane16_swap_b32",
        "permlane32_swap_b32",
        "accvgpr_mov_b32",
        "clrexcp",
        "readfirstlane_b32",
        "swap_b32",
    )
)
_WITH_LITERAL = frozenset(f"v_{name}" for name in ("fmamk_f32", "fmaak_f32", "madmk_f16", "madak_f16"))
_DOT = frozenset(f"v_dot{name}" for name in ("2c_f32_bf16", "2c_f32_f16", "2c_i32_i16", "4c_i32_i8", "8c_i32_i4"))
NO_DPP = _NEITHER | _WITH_LITERAL
NO_SDWA = _NEITHER | _WITH_LITERAL | _DOT | {"v_mac_f16", "v_fmac_f32"}
NO_VOP3 = _WITH_LITERAL | {"v_accvgpr_mov_b32", "v_readfirstlane_b32", "v_swap_b32"}
WIDE_SDWA = frozenset(("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"))
ROW_NEWBCAST = range(0x150, 0x160)  # values of DPP's CTRL
GET_DOORBELL = 10  # a message [12.5.1]

VECTORS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3P"))
SCALARS = frozenset((*range(128), *range(235, 239), *range(251, 254)))  # those that are no constants


def is_wide(instruction: Instruction) -> bool:
    """Whether a vector operand or result has 64 bits."""
    vectors = [p for p in instruction.parameters if p.name in ("src0", "src1", "src2", "vdst")]
    return any(p.registers == 2 for p in vectors) or any(r.registers == 2 and not r.place for r in instruction.results)


def takes_dpp(instruction: Instruction, ctrl: int) -> bool:
    """Whether a VOP1, VOP2 or VOPC instruction has a DPP form with this control."""
    if is_wide(instruction):
        return instruction.encoding != "VOPC" and ctrl in ROW_NEWBCAST
    return instruction.name not in NO_DPP


def takes_sdwa(instruction: Instruction) -> bool:
    """Whether a VOP1, VOP2 or VOPC instruction has an SDWA form."""
    return instruction.name in WIDE_SDWA or not (is_wide(instruction) or instruction.name in NO_SDWA)


def takes_vop3(instruction: Instruction) -> bool:
    """Whether a VOP1, VOP2 or VOPC instruction has a 64-bit form."""
    return instruction.name not in NO_VOP3


def objection(
    instruction: Instruction, form: str, fields: dict[str, int], dpp: dict[str, int] | None, sdwa: dict[str, int] | None
) -> str:
    """Why gfx950 has no such form of the instruction, "" for a legal one."""
    name, short = instruction.name, instruction.encoding in ("VOP1", "VOP2", "VOPC")
    if form == "VOP3" and short and not takes_vop3(instruction):
        return f"{name} has no 64-bit (VOP3) form"
    if name in _WITH_LITERAL and fields["src0"] in (SDWA, DPP):
        return f"{name} has no {'SDWA' if fields['src0'] == SDWA else 'DPP'} form"
    if dpp is not None and not takes_dpp(instruction, dpp["ctrl"]):
        only = " but row_newbcast, for its operands have 64 bits" if _could_broadcast(instruction) else ""
        return f"{name} has no DPP form{only}"
    if sdwa is not None:
        return _sdwa_objection(instruction, sdwa)
    if form == "DS" and fields["gds"] and not name.startswith("ds_gws_"):
        return f"{name} with the GDS bit: gfx950 has no global data share"
    return ""


def too_many_scalars(
    instruction: Instruction, form: str, fields: dict[str, int], dpp: dict[str, int] | None, sdwa: dict[str, int] | None
) -> str:
    """Why a vector instruction cannot read what it names, "" where it can. [rule decode.one_scalar]"""
    if form not in VECTORS or instruction.encoding not in VECTORS:
        return ""
    codes = {code for code in _sources(instruction, form, fields, dpp, sdwa) if code in SCALARS or code == LITERAL}
    if len(codes) < 2:
        return ""
    named = ", ".join("a literal" if code == LITERAL else f"scalar {code}" for code in sorted(codes))
    return f"it reads {named}: a vector instruction has room for one scalar or literal"


def unanswered(instruction: Instruction, fields: dict[str, int]) -> str:
    """Why a message cannot be sent, "" where it can. [rule salu.messages]"""
    if instruction.name != "s_sendmsg" or fields["simm16"] & 15 != GET_DOORBELL:
        return ""
    return "s_sendmsg asks for the doorbell of a queue: there is none to put into EXEC"


def _sources(
    instruction: Instruction, form: str, fields: dict[str, int], dpp: dict[str, int] | None, sdwa: dict[str, int] | None
) -> list[int]:
    """The source codes of a vector instruction's operands, VCC where it is one unnamed."""
    names = [n for n in ("src0", "src1", "src2") if instruction.parameter(n)]
    codes = [fields[n] for n in names if form in ("VOP3", "VOP3P") or n == "src0"]
    if sdwa is not None:
        codes = [sdwa["src0"]] * sdwa["s0"] + [fields.get("src1", 0)] * sdwa.get("s1", 0) * ("src1" in names)
    elif dpp is not None:
        codes = []
    if instruction.parameter("carry_in"):
        codes.append(fields["src2"] if form == "VOP3" else VCC)
    if instruction.parameter("literal"):
        codes.append(LITERAL)
    if instruction.name == "v_writelane_b32" and codes[-1] == M0:
        codes.pop()
    return [*codes, *[VCC] * (instruction.parameter("vcc") is not None)]


def _could_broadcast(instruction: Instruction) -> bool:
    return takes_dpp(instruction, ROW_NEWBCAST.start)


def _sdwa_objection(instruction: Instruction, sdwa: dict[str, int]) -> str:
    if not takes_sdwa(instruction):
        return f"{instruction.name} has no SDWA form"
    selects = ("dst_sel", "src0_sel", "src1_sel") if instruction.parameter("src1") else ("dst_sel", "src0_sel")
    reserved = [select for select in selects if sdwa.get(select) == 7]
    if sdwa.get("dst_u") == 3:
        reserved.append("dst_unused")
    return f"{instruction.name} as SDWA: {reserved[0]} has a reserved value" if reserved else ""
