"""Every vector ALU definition against LLVM's assembler: all its forms as text, decoded to definition and fields."""

from __future__ import annotations

import pytest

from gfx950.isa.encoding import decode
from gfx950.isa.registry import Instruction, load, lookup
from gfx950.lanes import Float, Mask, Words

MODULES = ("vop1", "vop2", "vop3", "vopc", "vop3p", "conversions", "scaled_conversions", "cube_map", "range_reduction")
DEFINITIONS = [i for i in load().values() if i.where.split(".py")[0] in MODULES]
ONLY_32 = {"v_readfirstlane_b32", "v_swap_b32", "v_fmamk_f32", "v_fmaak_f32", "v_madmk_f16", "v_madak_f16"}
SOURCES = {"src0": 2, "src1": 4, "src2": 6}
LITERAL = 0x12345678


def registers(first: int, kind: type, scalar: bool = False, pairs: bool = False) -> str:
    letter = "s" if scalar else "v"
    count = kind.count if issubclass(kind, Words) else 2 if pairs or kind.width == 64 else 1
    return f"{letter}{first}" if count == 1 else f"{letter}[{first}:{first + count - 1}]"


def takes_pairs(definition: Instruction) -> bool:
    """Packed 32-bit instructions: the annotations show one half, the registers are pairs."""
    return definition.packed and definition.name.endswith("_f32")


def destinations(definition: Instruction, wide: bool) -> list[str]:
    mask = "s[20:21]" if wide else "vcc"
    texts = []
    for result in definition.results:
        if result.place == "src0":
            continue
        if result.kind is Mask:
            texts.append(mask)
        else:
            texts.append(registers(10, result.kind, result.place == "scalar", takes_pairs(definition)))
    return texts


def operands(definition: Instruction, wide: bool) -> str:
    texts = destinations(definition, wide)
    for parameter in definition.parameters:
        if parameter.name in SOURCES:
            scalar = parameter.place == "scalar"
            text = registers(SOURCES[parameter.name], parameter.kind, scalar, takes_pairs(definition))
            texts.append("m0" if scalar and parameter.name == "src1" else text)
        elif parameter.name == "carry_in":
            texts.append("s[22:23]" if wide else "vcc")
    if definition.name in ("v_fmamk_f32", "v_madmk_f16"):
        texts.insert(2, hex(LITERAL if "f32" in definition.name else LITERAL & 0xFFFF))
    if definition.name in ("v_fmaak_f32", "v_madak_f16"):
        texts.append(hex(LITERAL if "f32" in definition.name else LITERAL & 0xFFFF))
    extra = " bitop3:0x48" if "bitop3" in definition.name else ""
    return ", ".join(texts) + extra


def forms(definition: Instruction) -> dict[str, str]:
    name, encoding = definition.name, definition.encoding
    if encoding in ("VOP3", "VOP3P"):
        return {encoding: f"{name} {operands(definition, True)}"}
    texts = {}
    if "literal" in [p.name for p in definition.parameters]:
        return {encoding: f"{name} {operands(definition, False)}"}
    texts[encoding] = f"{name}_e32 {operands(definition, False)}"
    texts["VOP3"] = f"{name}_e64 {operands(definition, True)}"
    texts["dpp"] = f"{name}_dpp {operands(definition, False)} quad_perm:[1,0,3,2] row_mask:0x7 bank_mask:0xd"
    two = " src1_sel:BYTE_2" if definition.parameter("src1") else ""
    select = "" if encoding == "VOPC" else " dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE"
    texts["sdwa"] = f"{name}_sdwa {operands(definition, False)}{select} src0_sel:WORD_1{two}"
    return texts


@pytest.fixture(scope="module")
def accepted(assemble_accepted):
    return assemble_accepted([text for d in DEFINITIONS for text in forms(d).values()])


def check_fields(definition: Instruction, form: str, decoded) -> None:
    fields = decoded.fields
    for parameter in definition.parameters:
        if parameter.name in SOURCES and parameter.place != "scalar":
            code = SOURCES[parameter.name] + 256
            if parameter.name == "src0" and form in ("dpp", "sdwa"):
                assert (decoded.dpp or decoded.sdwa)["src0"] == code - 256
            else:
                assert fields[parameter.name] in (code, code - 256)
    vectors = [r for r in definition.results if r.kind is not Mask]
    assert not vectors or fields["vdst"] == 10
    if form == "VOP3" and definition.parameter("carry_in"):
        assert fields["src2"] == 22
    if form == "VOP3" and any(r.kind is Mask for r in definition.results):
        assert fields.get("sdst", fields["vdst"]) == 20


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.name)
def test_llvm_text_decodes_to_the_definition(definition, accepted):
    for form, text in forms(definition).items():
        code = accepted.get(text)
        if code is None:
            assert form in ("dpp", "sdwa") or (form == "VOP3" and definition.name in ONLY_32), f"LLVM refuses {text!r}"
            continue
        decoded = decode(code, 0)
        assert decoded.instruction is definition
        assert decoded.nbytes == len(code)
        assert decoded.form == (definition.encoding if form in ("dpp", "sdwa") else form)
        assert (decoded.dpp is not None) == (form == "dpp")
        assert (decoded.sdwa is not None) == (form == "sdwa")
        check_fields(definition, form, decoded)


def test_modifier_fields_are_where_llvm_puts_them(assemble):
    fields = decode(assemble("v_fma_f32 v1, -v2, |v3|, -|v4| clamp mul:4"), 0).fields
    assert (fields["neg"], fields["abs"], fields["clamp"], fields["omod"]) == (0b101, 0b110, 1, 2)
    dpp = decode(assemble("v_add_f32_dpp v1, -v2, |v3| row_shr:5 row_mask:0x3 bank_mask:0x5 bound_ctrl:0"), 0).dpp
    assert dpp == {
        "src0": 2, "ctrl": 0x115, "bound_ctrl": 1, "src0_neg": 1, "src0_abs": 0, "src1_neg": 0, "src1_abs": 1,
        "bank_mask": 5, "row_mask": 3,
    }  # fmt: skip
    text = "v_add_u32_sdwa v1, sext(v2), v3 dst_sel:BYTE_3 dst_unused:UNUSED_SEXT src0_sel:BYTE_1"
    sdwa = decode(assemble(text), 0).sdwa
    assert (sdwa["dst_sel"], sdwa["dst_u"], sdwa["src0_sel"], sdwa["src0_sext"], sdwa["src1_sel"]) == (3, 1, 1, 1, 6)


def test_literals_are_read_after_the_instruction(assemble):
    decoded = decode(assemble("v_fmaak_f32 v1, v2, v3, 0x40490fdb"), 0)
    assert (decoded.literal, decoded.nbytes) == (0x40490FDB, 8)
    decoded = decode(assemble("v_add_u32_e32 v1, 0x12345678, v3"), 0)
    assert (decoded.literal, decoded.nbytes) == (0x12345678, 8)


def test_instructions_that_saturate_accept_clamp_in_llvm(assemble_accepted):
    """An instruction with a `clamp` parameter takes clamp in LLVM (which also takes it where it means nothing).

    V_MUL_LO_U16 has it by the manual's 12.7 alone.
    """
    lines = {}
    for definition in DEFINITIONS:
        form = "VOP3P" if definition.encoding == "VOP3P" else "VOP3"
        first = definition.results[0].kind if definition.results else Mask
        if first is not Mask and not issubclass(first, Float) and form in forms(definition):
            lines[definition.name] = f"{forms(definition)[form]} clamp"
    accepted = assemble_accepted(list(lines.values()))
    taken = {name for name, line in lines.items() if line in accepted}
    assert {name for name in lines if lookup(name).parameter("clamp")} - taken == {"v_mul_lo_u16"}


def test_forms_without_a_64_bit_twin_are_refused_by_llvm(accepted):
    """The exceptions of the table are exceptions of LLVM, not of the table."""
    for name in ("v_readfirstlane_b32", "v_swap_b32"):
        definition = next(d for d in DEFINITIONS if d.name == name)
        assert forms(definition)["VOP3"] not in accepted


def test_many_forms_were_checked(accepted):
    assert len(accepted) > 900, len(accepted)
