"""Which short vector instructions have DPP, SDWA and 64-bit forms: LLVM's assembler asked about every one."""

from __future__ import annotations

import pytest
from find_mnemonics import read_table
from llvm_tools import complaints

from gfx950.isa.encoding import DPP, ENCODINGS, SDWA, SDWAB, VOP3_BASES, DecodeError, decode
from gfx950.isa.legality import takes_dpp, takes_sdwa, takes_vop3
from gfx950.isa.registry import load, lookup

SHORT = [i for i in load().values() if i.encoding in VOP3_BASES]
ROW_SHR, ROW_NEWBCAST = 0x111, 0x153


def plain_operands(name: str) -> str:
    """Operands that LLVM takes, in registers."""
    forms = read_table()[name]
    short = next((f for f in forms if f.split()[0] in (f"{name}_e32", name)), forms[0])
    return short.partition(" ")[2].split(" row_")[0]


def short(instruction, source: int) -> int:
    fields = {"op": instruction.opcode, "src0": source}
    return ENCODINGS[instruction.encoding].pack(fields)


def with_dpp(instruction, ctrl: int) -> bytes:
    extra = DPP.pack({"ctrl": ctrl, "row_mask": 15, "bank_mask": 15})
    return short(instruction, 250).to_bytes(4, "little") + extra.to_bytes(4, "little")


def with_sdwa(instruction, **fields: int) -> bytes:
    encoding = SDWAB if instruction.encoding == "VOPC" else SDWA
    plain = {"src0_sel": 6, "src1_sel": 6} | ({"dst_sel": 6} if instruction.encoding != "VOPC" else {})
    return short(instruction, 249).to_bytes(4, "little") + encoding.pack(plain | fields).to_bytes(4, "little")


def decodes(code: bytes) -> bool:
    try:
        decode(code, 0)
    except DecodeError:
        return False
    return True


def known_to_llvm(suffix: str) -> set[str]:
    """The instructions whose mnemonic LLVM takes with a form's suffix, whatever it then says about operands."""
    told = zip(SHORT, complaints(f"{i.name}{suffix}" for i in SHORT), strict=True)
    return {i.name for i, what in told if what is None or ("variant" not in what and "not supported" not in what)}


def test_dpp_forms_are_llvms_and_the_compares_of_the_manual():
    """12.16.1 excludes 64-bit compares alone; LLVM takes no compare."""
    compares = {i.name for i in SHORT if i.encoding == "VOPC"}
    either = {i.name for i in SHORT if decodes(with_dpp(i, ROW_SHR)) or decodes(with_dpp(i, ROW_NEWBCAST))}
    assert either - compares == known_to_llvm("_dpp")
    assert either & compares == {n for n in compares if not n.endswith("64")}


def test_64_bit_operands_take_row_newbcast_alone():
    wide = [
        i for i in SHORT if i.encoding != "VOPC" and decodes(with_dpp(i, ROW_NEWBCAST)) != decodes(with_dpp(i, ROW_SHR))
    ]
    assert len(wide) > 15
    for control, taken in (("row_newbcast:3", True), ("row_shr:1", False), ("quad_perm:[0,0,0,0]", False)):
        lines = [f"{i.name}_dpp {plain_operands(i.name)} {control} row_mask:0xf bank_mask:0xf" for i in wide]
        assert {what is None for what in complaints(lines)} == {taken}
    others = [f"{i.name}_dpp {plain_operands(i.name)} row_shr:1" for i in SHORT if i.name in ("v_add_f16", "v_mov_b32")]
    assert complaints(others) == [None, None]


def test_sdwa_forms_are_llvms():
    assert {i.name for i in SHORT if decodes(with_sdwa(i))} == known_to_llvm("_sdwa")


def test_64_bit_forms_are_llvms():
    def code(instruction):
        opcode = instruction.opcode + VOP3_BASES[instruction.encoding]
        return ENCODINGS["VOP3"].pack({"op": opcode}).to_bytes(8, "little")

    assert {i.name for i in SHORT if decodes(code(i))} == known_to_llvm("_e64")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (with_dpp(lookup("v_mov_b64"), ROW_SHR), "pc 0x0: v_mov_b64 has no DPP form but row_newbcast"),
        (with_dpp(lookup("v_cmp_lt_f64"), ROW_NEWBCAST), "v_cmp_lt_f64 has no DPP form"),
        (with_dpp(lookup("v_swap_b32"), ROW_SHR), "v_swap_b32 has no DPP form"),
        (with_sdwa(lookup("v_fmac_f32")), "v_fmac_f32 has no SDWA form"),
        (with_sdwa(lookup("v_add_u32"), src1_sel=7), "v_add_u32 as SDWA: src1_sel has a reserved value"),
        (with_sdwa(lookup("v_mov_b32"), dst_sel=7), "v_mov_b32 as SDWA: dst_sel has a reserved value"),
        (with_sdwa(lookup("v_mov_b32"), dst_u=3), "v_mov_b32 as SDWA: dst_unused has a reserved value"),
        (bytes.fromhex("000091d100000000"), "v_swap_b32 has no 64-bit"),
        (bytes.fromhex("000001d800000000"), "ds_add_u32 with the GDS bit: gfx950 has no global data share"),
    ],
)
def test_messages(code, message):
    with pytest.raises(DecodeError) as caught:
        decode(code, 0)
    assert message in str(caught.value)


def test_the_predicates_answer_for_single_instructions():
    assert takes_dpp(lookup("v_mov_b64"), ROW_NEWBCAST)
    assert takes_sdwa(lookup("v_cvt_pk_f32_fp8"))
    assert not takes_vop3(lookup("v_readfirstlane_b32"))
