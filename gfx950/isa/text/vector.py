"""How vector instructions are written: VOP1, VOP2, VOPC in their 32-bit, 64-bit, DPP and SDWA forms, and VOP3.
[CDNA4 ISA 6, 12.7-12.9, 12.11, 13.3]

Which modifiers a form takes is in `gfx950.isa.text.vector_modifiers`.
"""

from __future__ import annotations

from gfx950.isa.encoding import uses_vop3b
from gfx950.isa.legality import ROW_NEWBCAST, is_wide, takes_dpp, takes_sdwa, takes_vop3
from gfx950.isa.registry import Instruction, Parameter
from gfx950.isa.text import vector_modifiers as allowed
from gfx950.isa.text.fields import Field, bit
from gfx950.isa.text.modifiers import BoundControl, Choice, DppControl, Modifier, Value
from gfx950.isa.text.operands import (
    Extended,
    Operand,
    Scalar,
    SdwaCode,
    SdwaMask,
    Signed,
    Source,
    TrailingLiteral,
    Vector,
    Word,
)
from gfx950.isa.text.syntax import Syntax, constants_of, registers_of
from gfx950.lanes import Mask

SOURCES = ("src0", "src1", "src2")
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
VECTOR_ONLY = {
    "v_readfirstlane_b32", "v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32", "v_readlane_b32",
}  # fmt: skip


def syntaxes(instruction: Instruction) -> tuple[Syntax, ...]:
    """The ways to write a vector instruction, the shortest first."""
    if instruction.encoding == "VOP3":
        return (_long(instruction, instruction.name),)
    ways = [_short(instruction, allowed.short_mnemonic(instruction))]
    if takes_vop3(instruction):
        ways.append(_long(instruction, f"{instruction.name}_e64"))
    if takes_dpp(instruction, ROW_NEWBCAST.start):
        ways.append(_dpp(instruction))
    if takes_sdwa(instruction):
        ways.append(_sdwa(instruction))
    return tuple(ways)


def sources_of(instruction: Instruction) -> list[tuple[int, Parameter]]:
    """The explicit sources with their numbers."""
    return [(int(p.name[-1]), p) for p in instruction.parameters if p.name in SOURCES]


def _results(instruction: Instruction, mask: Operand) -> list[Operand]:
    """The destinations; `mask` stands for lanes' bits."""
    operands: list[Operand] = []
    for result in instruction.results:
        if result.kind is Mask:
            operands.append(mask)
        elif result.place == "scalar":
            operands.append(Scalar(Field("vdst"), 1))
        elif result.place != "src0":
            files = "a" if result.place == "agpr" else "v"
            operands.append(Vector(Field("vdst"), registers_of(instruction, result), files))
    return operands


def _source(instruction: Instruction, parameter: Parameter, literal: bool) -> Source | Vector:
    """A 9-bit source of the 32-bit and the 64-bit forms."""
    slot, words = Field(parameter.name), registers_of(instruction, parameter)
    kind = constants_of(instruction, parameter)
    if parameter.place == "agpr":
        return Vector(slot, words, "a", offset=256)
    if parameter.place == "scalar":
        return Source(slot, words, "i32", files="")
    if instruction.name in VECTOR_ONLY or words > 2:
        return Vector(slot, words, offset=256)
    registers_only = parameter.place == "f32_pair"  # as all operands of several registers in conversions [6.7.1]
    return Source(slot, words, kind, scalars=not registers_only, constants=not registers_only, literal=literal)


def _short(instruction: Instruction, mnemonic: str) -> Syntax:
    """The 32-bit form, with the literal of FMAMK between its sources and of FMAAK after them."""
    vcc = Word("vcc")
    operands = _results(instruction, vcc)
    for index, parameter in sources_of(instruction):
        if index == 0:
            operands.append(_source(instruction, parameter, literal=True))
        else:
            operands.append(Vector(Field("src1"), registers_of(instruction, parameter)))
    if instruction.parameter("carry_in"):
        operands.append(vcc)
    if instruction.parameter("literal"):
        literal = TrailingLiteral(constants_of(instruction, sources_of(instruction)[0][1]))
        operands.insert(2 if "mk_" in instruction.name else 3, literal)
    return Syntax(instruction, mnemonic, instruction.encoding, tuple(operands))


def _long(instruction: Instruction, mnemonic: str) -> Syntax:
    """The 64-bit form."""
    vop3b = uses_vop3b(instruction)
    operands = _results(instruction, Scalar(Field("sdst" if vop3b else "vdst"), 2))
    for index, parameter in sources_of(instruction):
        source = _source(instruction, parameter, literal=False)
        if isinstance(source, Source) and allowed.has_signs(instruction, parameter, "VOP3"):
            absolute = None if vop3b else bit("abs", index)
            operands.append(Signed(source, bit("neg", index), absolute))
        else:
            operands.append(source)
    if instruction.parameter("carry_in"):
        operands.append(Scalar(Field("src2"), 2))
    modifiers = allowed.long_modifiers(instruction, len(sources_of(instruction)))
    return Syntax(instruction, mnemonic, "VOP3", tuple(operands), modifiers)


def _dpp(instruction: Instruction) -> Syntax:
    """The 32-bit form with a DPP dword."""
    operands = _results(instruction, Word("vcc"))
    for index, parameter in sources_of(instruction):
        words, kind = registers_of(instruction, parameter), constants_of(instruction, parameter)
        slot = Field("src0", "dpp") if index == 0 else Field("src1")
        source = Source(slot, words, kind, scalars=False, constants=False, offset=0)
        if allowed.has_signs(instruction, parameter, "dpp"):
            neg, absolute = Field(f"src{index}_neg", "dpp"), Field(f"src{index}_abs", "dpp")
            operands.append(Signed(source, neg, absolute))
        else:
            operands.append(source)
    if instruction.parameter("carry_in"):
        operands.append(Word("vcc"))
    masks = (Field("row_mask", "dpp"), Field("bank_mask", "dpp"))
    control = DppControl(Field("ctrl", "dpp"), is_wide(instruction))
    modifiers: tuple[Modifier, ...] = (
        control,
        Value("row_mask", masks[0], 4, hexadecimal=0, default=None),
        Value("bank_mask", masks[1], 4, hexadecimal=0, default=None),
        BoundControl(Field("bound_ctrl", "dpp")),
    )
    defaults = tuple((mask, 15) for mask in masks)
    return Syntax(
        instruction,
        f"{instruction.name}_dpp",
        instruction.encoding,
        tuple(operands),
        modifiers,
        "dpp",
        defaults=defaults,
        required=(control,),
    )


def _sdwa(instruction: Instruction) -> Syntax:
    """The 32-bit form with an SDWA dword."""
    operands = _results(instruction, SdwaMask() if instruction.encoding == "VOPC" else Word("vcc"))
    selects = []
    for index, parameter in sources_of(instruction):
        operands.append(_sdwa_source(instruction, index, parameter))
        selects.append(Choice(f"src{index}_sel", Field(f"src{index}_sel", "sdwa"), SELECTS))
    if instruction.parameter("carry_in"):
        operands.append(Word("vcc"))
    defaults = [(select.slot, 6) for select in selects]
    destination: list[Choice] = []
    if instruction.encoding != "VOPC" and instruction.results:
        defaults.append((Field("dst_sel", "sdwa"), 6))
        if not allowed.has_plain_sdwa(instruction):
            defaults.append((Field("dst_u", "sdwa"), 2))
            destination.append(Choice("dst_sel", Field("dst_sel", "sdwa"), SELECTS))
            destination.append(Choice("dst_unused", Field("dst_u", "sdwa"), UNUSED))
    modifiers = (*allowed.sdwa_modifiers(instruction), *destination, *selects)
    return Syntax(
        instruction,
        f"{instruction.name}_sdwa",
        instruction.encoding,
        tuple(operands),
        modifiers,
        "sdwa",
        defaults=tuple(defaults),
    )


def _sdwa_source(instruction: Instruction, index: int, parameter: Parameter) -> Operand:
    source = Source(SdwaCode(index), registers_of(instruction, parameter), constants_of(instruction, parameter))
    if allowed.has_plain_sdwa(instruction):
        return source
    sext = Field(f"src{index}_sext", "sdwa")
    if allowed.has_signs(instruction, parameter, "sdwa"):
        return Signed(source, Field(f"src{index}_neg", "sdwa"), Field(f"src{index}_abs", "sdwa"))
    return Extended(source, sext)
