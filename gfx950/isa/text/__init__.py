"""Text of instructions, as LLVM spells it, both ways: disassembler and assembler from one description of each operand.

`disassemble(decoded)` prints what LLVM's disassembler prints; `assemble(text)` reads it, and LLVM's other spellings;
`instruction_text(code, base, pc)` is a line for a message. The tables load at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gfx950.isa.encoding import Decoded
from gfx950.isa.text.problems import AssemblyError

__all__ = ["AssemblyError", "assemble", "disassemble", "instruction_text", "listing"]


def disassemble(decoded: Decoded, symbol: Callable[[int], str | None] | None = None) -> str:
    """The line of one instruction; `.long` words where no text stands for its form.

    symbol: the name of an address, or None; branches to a named address show the name, others the distance in words.
    """
    from gfx950.isa.text import disassembly

    return disassembly.disassemble(decoded, symbol)


def listing(
    code: bytes | memoryview, base: int, symbol: Callable[[int], str | None] | None = None, exact: bool = False
) -> list[tuple[int, bytes, str]]:
    """Address, bytes and line of everything in `code`, which starts at address `base`.

    What is no instruction is a `.long` line, and so is, where `exact` asks for it, an instruction whose text would not
    assemble to its bytes.
    """
    from gfx950.isa.text import code_listing

    return code_listing.listing(code, base, symbol, exact)


def instruction_text(code: bytes | memoryview, base: int, pc: int) -> str:
    """The line at address `pc` of code that starts at `base`, for messages: never raises."""
    from gfx950.isa.text import disassembly

    return disassembly.instruction_text(code, base, pc)


def assemble(text: str, pc: int = 0, symbols: Mapping[str, int] | None = None) -> bytes:
    """The bytes of assembly text: instructions, labels, `.long` and its like, comments.

    pc: the address of the first byte; symbols: addresses of names that the text does not define. Raises AssemblyError,
    which is a ValueError, naming line, column and what was expected.
    """
    from gfx950.isa.text import assembly

    return assembly.assemble(text, pc, symbols)
