"""How an instruction is written: mnemonic, operands and modifiers of each of its forms.

The table of a form is made from the definition (which operands it has, how wide they are, what they hold), so a new
instruction has its text without an entry here. `gfx950.isa.text.scalar`, `.vector` and `.memory` make them by family.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from gfx950.isa.encoding import Decoded
from gfx950.isa.registry import Instruction, Parameter
from gfx950.isa.text.fields import Slot
from gfx950.isa.text.modifiers import Modifier
from gfx950.isa.text.operands import Operand
from gfx950.lanes import F16, F32, F64, Mask, Words


@dataclass(frozen=True)
class Syntax:
    """One way to write an instruction.

    form: that of `Decoded`; extra: dpp or sdwa where that dword follows. fixed: slots that must hold a value for this
    way to apply; defaults: slots that hold a value unless the text says other; required: modifiers that the text must
    have, beside the flags that are fixed. any_operands: the text after the mnemonic is one operand, blanks and all.
    """

    instruction: Instruction
    mnemonic: str
    form: str
    operands: tuple[Operand, ...] = ()
    modifiers: tuple[Modifier, ...] = ()
    extra: str = ""
    fixed: tuple[tuple[Slot, int], ...] = ()
    defaults: tuple[tuple[Slot, int], ...] = ()
    required: tuple[Modifier, ...] = ()
    any_operands: bool = False

    @functools.cached_property
    def modifier_words(self) -> dict[str, Modifier]:
        """The modifiers by the words they start with."""
        return {word: modifier for modifier in self.modifiers for word in modifier.words}

    def applies(self, decoded: Decoded) -> bool:
        """Whether the instruction's bits are of this way."""
        extra = "dpp" if decoded.dpp is not None else "sdwa" if decoded.sdwa is not None else ""
        return (
            self.form == decoded.form
            and self.extra == extra
            and all(slot.get(decoded) == value for slot, value in self.fixed)
        )


def registers_of(instruction: Instruction, item: Parameter) -> int:
    """32-bit registers of an operand: two for a mask and for the pairs of packed 32-bit instructions."""
    if item.kind is Mask:
        return 2
    if instruction.packed and isinstance(item.kind, type) and getattr(item.kind, "width", 0) == 32:
        return 2
    return item.registers


_PLACES = {"bf16": "bf16", "bf16_pair": "bf16x2", "f16_pair": "f16x2", "mixed": "f16", "f32_pair": "f32"}


def constants_of(instruction: Instruction, item: Parameter) -> str:
    """What numbers of an operand are: f16 bf16 f16x2 bf16x2 f32 f64 i16 i32 i64."""
    kind: Any = item.kind
    if item.place in _PLACES:
        return _PLACES[item.place]
    if isinstance(kind, type) and issubclass(kind, Words):
        return "f64" if "_f64" in instruction.name else "f32"
    if kind in (F16, F32, F64):
        return {F16: "f16", F32: "f32", F64: "f64"}[kind]
    if item.place == "f16" and kind.width == 16:
        return "f16"
    if instruction.encoding == "VOP3P" and kind.width == 64:  # a pair of 32-bit constants
        return "i32"
    return f"i{kind.width}"


def scalar_like(name: str) -> int:
    """Registers of a scalar operand whose definition has its code alone: by the mnemonic's width."""
    return 2 if "_b64" in name or "_i64" in name or "_u64" in name else 1
