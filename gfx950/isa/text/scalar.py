"""How scalar instructions are written: SOP1, SOP2, SOPC, SOPK, SOPP. [CDNA4 ISA 5, 12.1-12.5]"""

from __future__ import annotations

from dataclasses import dataclass

from gfx950.isa.encoding import NO_LITERAL, Decoded
from gfx950.isa.registry import Instruction, Parameter
from gfx950.isa.text.fields import Field, Slot
from gfx950.isa.text.immediates import HardwareRegister, IndexMode, Message, WaitCounters
from gfx950.isa.text.operands import Number, Operand, Scalar, Source, constant, parse_bounded, source_text
from gfx950.isa.text.registers import float_bits
from gfx950.isa.text.syntax import Syntax, constants_of, registers_of, scalar_like

SIMM16 = Field("simm16")
# SOPP instructions whose immediate is a plain number; the rest of them have no operand.
COUNTED = {
    "s_nop", "s_sleep", "s_setprio", "s_sethalt", "s_setkill", "s_trap", "s_incperflevel", "s_decperflevel",
    "s_set_valu_coexec_mode",
}  # fmt: skip
SPECIAL: dict[str, Operand] = {
    "s_waitcnt": WaitCounters(SIMM16),
    "s_sendmsg": Message(SIMM16),
    "s_sendmsghalt": Message(SIMM16),
    "s_set_gpr_idx_mode": IndexMode(SIMM16, 16),
}
NO_CONSTANT = {*NO_LITERAL, "s_cbranch_join"}  # register operands only
BRANCHES_WITH_MASK = {"s_call_b64", "s_cbranch_i_fork"}  # SOPK whose immediate is a branch target


@dataclass(frozen=True)
class Branch:
    """A branch target: signed words from the next instruction, or a symbol. [CDNA4 ISA 4.1]"""

    slot: Slot

    def show(self, decoded: Decoded) -> str:
        """The distance in words."""
        return str(self._words(decoded))

    def _words(self, decoded: Decoded) -> int:
        value = self.slot.get(decoded)
        return value - 0x10000 if value & 0x8000 else value

    def target(self, decoded: Decoded) -> int:
        """The address branched to."""
        return decoded.pc + 4 + 4 * self._words(decoded)

    def read(self, decoded: Decoded, text: str) -> None:
        """A distance in words."""
        self.slot.put(decoded, parse_bounded(text, -0x8000, 0xFFFF, "a branch distance in words") & 0xFFFF)


def syntaxes(instruction: Instruction) -> tuple[Syntax, ...]:
    """The ways to write a scalar instruction."""
    if instruction.name == "s_endpgm":
        plain = Syntax(instruction, instruction.name, "SOPP", fixed=((SIMM16, 0),))
        return plain, Syntax(instruction, instruction.name, "SOPP", (Number(SIMM16, 16),))
    make = {"SOPP": _sopp, "SOPK": _sopk}.get(instruction.encoding, _sop)
    return (make(instruction),)


def _sopp(instruction: Instruction) -> Syntax:
    name = instruction.name
    if instruction.flow == "branch":
        return Syntax(instruction, name, "SOPP", (Branch(SIMM16),))
    if name in COUNTED:
        return Syntax(instruction, name, "SOPP", (Number(SIMM16, 16, hexadecimal="large"),))
    if name in SPECIAL:
        return Syntax(instruction, name, "SOPP", (SPECIAL[name],), any_operands=name == "s_waitcnt")
    return Syntax(instruction, name, "SOPP")


def _sopk(instruction: Instruction) -> Syntax:
    name = instruction.name
    register = Scalar(Field("sdst"), _destination_words(instruction) or 1)
    operands: tuple[Operand, ...] = (register, Number(SIMM16, 16, hexadecimal="always"))
    if name in BRANCHES_WITH_MASK:
        operands = (Scalar(Field("sdst"), 2), Branch(SIMM16))
    elif name == "s_getreg_b32":
        operands = (register, HardwareRegister(SIMM16))
    elif name == "s_setreg_b32":
        operands = (HardwareRegister(SIMM16), register)
    elif name == "s_setreg_imm32_b32":
        operands = (HardwareRegister(SIMM16), LiteralNumber())
    return Syntax(instruction, name, "SOPK", operands)


@dataclass(frozen=True)
class LiteralNumber:
    """The literal of S_SETREG_IMM32_B32, printed as a source would be."""

    def show(self, decoded: Decoded) -> str:
        """An inline constant's text where it is one, else hexadecimal."""
        literal = decoded.literal or 0
        code, _ = constant(f"0x{literal:x}", "i32")
        return f"0x{literal:x}" if code is None else source_text(code, 1, "i32")

    def read(self, decoded: Decoded, text: str) -> None:
        """Any number of 32 bits; the words of the inline floats are their bits."""
        if "." in text:
            decoded.literal = float_bits(float(text), "f32")
        else:
            decoded.literal = parse_bounded(text, -(1 << 31), (1 << 32) - 1, "a number of 32 bits") & 0xFFFFFFFF


def _sop(instruction: Instruction) -> Syntax:
    operands: list[Operand] = []
    words = _destination_words(instruction)
    if words:
        operands.append(Scalar(Field("sdst"), words))
    for name in ("ssrc0", "ssrc1"):
        operands += _source(instruction, name)
    return Syntax(instruction, instruction.name, instruction.encoding, tuple(operands))


def _destination_words(instruction: Instruction) -> int:
    """Registers of SDST; 0 where there is none."""
    for item in (*instruction.results, *instruction.parameters):
        is_result = item.name.startswith("result")
        if (is_result and item.place is None) or item.name == "sdst":
            return registers_of(instruction, item)
    return scalar_like(instruction.name) if instruction.parameter("sdst_code") else 0


def _source(instruction: Instruction, name: str) -> list[Operand]:
    slot = Field(name)
    if instruction.parameter(f"{name}_code") is not None:
        if instruction.name == "s_set_gpr_idx_on":
            return [IndexMode(slot, 8)]
        return [Scalar(slot, scalar_like(instruction.name))]
    parameter: Parameter | None = instruction.parameter(name)
    if parameter is None:
        return []
    kind = constants_of(instruction, parameter)
    constants = instruction.name not in NO_CONSTANT
    literal = constants and instruction.name != "s_cbranch_g_fork"
    words = registers_of(instruction, parameter)
    return [Source(slot, words, kind, files="", literal=literal, constants=constants)]
