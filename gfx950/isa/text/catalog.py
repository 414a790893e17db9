"""Every way to write every registered instruction, by instruction and by mnemonic."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from gfx950.isa.encoding import Decoded
from gfx950.isa.registry import Instruction, load
from gfx950.isa.text import memory, packed, scalar, vector
from gfx950.isa.text.syntax import Syntax

_FAMILIES: dict[str, Callable[[Instruction], tuple[Syntax, ...]]] = {
    **dict.fromkeys(("SOP1", "SOP2", "SOPC", "SOPK", "SOPP"), scalar.syntaxes),
    **dict.fromkeys(("VOP1", "VOP2", "VOPC", "VOP3"), vector.syntaxes),
    "VOP3P": packed.packed,
    **dict.fromkeys(("MAI", "MAI_SCALE"), packed.matrix),
    "SMEM": memory.smem,
    "DS": memory.ds,
    **dict.fromkeys(("FLAT", "GLOBAL", "SCRATCH"), memory.flat),
    **dict.fromkeys(("MUBUF", "MUBUF_LDS", "MTBUF"), memory.buffer),
}
# Shapes of the bf16 MFMAs that gfx90a called bf16_1k.
ONE_K_SHAPES = {"32x32x4", "16x16x4", "4x4x4", "32x32x8", "16x16x16"}
SUFFIXES = ("_e32", "_e64", "_dpp", "_sdwa")


@functools.cache
def syntaxes(instruction: Instruction) -> tuple[Syntax, ...]:
    """The ways to write an instruction, in the order in which the assembler tries them."""
    return _FAMILIES[instruction.encoding](instruction)


def syntax_of(decoded: Decoded) -> Syntax | None:
    """How a decoded instruction is written, None where LLVM has no text for its form."""
    return next((s for s in syntaxes(decoded.instruction) if s.applies(decoded)), None)


@functools.cache
def mnemonics() -> dict[str, tuple[Syntax, ...]]:
    """Every mnemonic, with and without its suffix, and what it may mean."""
    table: dict[str, list[Syntax]] = {}
    for instruction in load().values():
        for syntax in syntaxes(instruction):
            for name in _names(syntax):
                table.setdefault(name, []).append(syntax)
    for name in list(table):
        for alias in older_names(name):
            table.setdefault(alias, table[name])
    return {name: tuple(ways) for name, ways in table.items()}


def older_names(name: str) -> list[str]:
    """What LLVM also calls a matrix instruction: without the blocks and underscores that gfx940 brought."""
    match = re.fullmatch(r"(v_s?mfma\w*_[fi]\d+_)(\d+x\d+x\d+)(?:_\d+b)?_(f32|f16|bf16|i8|f64)", name)
    if match is None:
        return []
    family, shape, kind = match.groups()
    one_k = kind == "bf16" and shape in ONE_K_SHAPES and not name.startswith("v_smfmac")
    return [f"{family}{shape}{kind}", *([f"{family}{shape}{kind}_1k"] if one_k else [])]


def _names(syntax: Syntax) -> list[str]:
    """The mnemonic, that without its suffix, and that of a 32-bit form with it."""
    plain = syntax.mnemonic
    for suffix in SUFFIXES:
        plain = plain.removesuffix(suffix)
    short = [f"{plain}_e32"] if syntax.form in ("VOP1", "VOP2", "VOPC") and not syntax.extra else []
    return list(dict.fromkeys((syntax.mnemonic, plain, *short)))
