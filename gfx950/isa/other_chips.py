"""Instructions of other AMD GPUs that gfx950 does not have, so that an error can name them.

The names and numbers are in `other_chips_table`, which is made from LLVM's assembler.
"""

from __future__ import annotations

FORMATS = {0x31: "exports (EXP)", 0x35: "interpolation (VINTRP)", 0x3C: "image instructions (MIMG)"}  # bits 31:26


def chips_of(name: str) -> list[str]:
    """The chips that have a mnemonic which gfx950 does not have; none for any other word."""
    from gfx950.isa.other_chips_table import NAMES

    return [chip for chips, names in NAMES.items() if name in names.split() for chip in chips.split()]


def why_unknown(name: str) -> str:
    """A sentence about a mnemonic of other chips, "" for any other word."""
    chips = chips_of(name)
    return f"{name} is an instruction of {_listed(chips)}, which gfx950 does not have" if chips else ""


def why_undefined(encoding: str, opcode: int) -> str:
    """A sentence about an opcode that older chips of the family have and gfx950 does not, "" for any other number."""
    from gfx950.isa.other_chips_table import OPCODES

    name = OPCODES.get((encoding.removesuffix("_LDS"), opcode))
    return why_unknown(name) if name else ""


def why_no_format(word: int) -> str:
    """A sentence about a format that older chips of the family have and gfx950 does not, "" for any other dword."""
    what = FORMATS.get(word >> 26)
    return f"gfx950 has no {what}" if what else ""


def _listed(chips: list[str]) -> str:
    return chips[0] if len(chips) == 1 else f"{', '.join(chips[:-1])} and {chips[-1]}"
