"""Decoded instructions as the lines that LLVM's disassembler prints."""

from __future__ import annotations

from collections.abc import Callable

from gfx950.isa.encoding import Decoded, DecodeError, decode, encode
from gfx950.isa.text.catalog import syntax_of
from gfx950.isa.text.scalar import Branch
from gfx950.isa.text.syntax import Syntax

Symbol = Callable[[int], "str | None"]


def disassemble(decoded: Decoded, symbol: Symbol | None = None) -> str:
    """The line of one instruction; `.long` words where no text stands for its form.

    symbol: the name of an address, or None; branches to a named address show the name, others the distance in words.
    """
    syntax = syntax_of(decoded)
    if syntax is None:
        return long_words(decoded.raw or encode(decoded))
    return _line(syntax, decoded, symbol)


def _line(syntax: Syntax, decoded: Decoded, symbol: Symbol | None) -> str:
    operands = []
    for operand in syntax.operands:
        name = symbol(operand.target(decoded)) if symbol is not None and isinstance(operand, Branch) else None
        operands.append(name or operand.show(decoded))
    modifiers = [text for text in (m.show(decoded) for m in syntax.modifiers) if text]
    return " ".join(part for part in (syntax.mnemonic, ", ".join(operands), *modifiers) if part)


def long_words(code: bytes) -> str:
    """Bytes as the directive that makes them: `.long 0x...` for each dword, `.byte` for what is left."""
    whole = len(code) // 4 * 4
    words = [f"0x{int.from_bytes(code[i : i + 4], 'little'):08x}" for i in range(0, whole, 4)]
    parts = [f".long {', '.join(words)}"] if words else []
    if code[whole:]:
        parts.append(f".byte {', '.join(f'0x{b:02x}' for b in code[whole:])}")
    return "; ".join(parts)


def instruction_text(code: bytes | memoryview, base: int, pc: int) -> str:
    """The line at address `pc` of code that starts at `base`, for messages: never raises.

    Where no text stands for the form, the mnemonic and the words; where the bytes are no instruction, why.
    """
    try:
        decoded = decode(code, pc, base)
    except DecodeError as error:
        return str(error)
    syntax = syntax_of(decoded)
    if syntax is None:
        return f"{decoded.instruction.name} ({long_words(decoded.raw)})"
    return _line(syntax, decoded, None)
