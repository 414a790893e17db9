"""Whole code as lines: each instruction's text where it says all of its bits, words where it does not."""

from __future__ import annotations

import functools

from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.text.disassembly import Symbol, disassemble, long_words
from gfx950.isa.text.unprinted import is_exact


def listing(
    code: bytes | memoryview, base: int, symbol: Symbol | None = None, exact: bool = False
) -> list[tuple[int, bytes, str]]:
    """Address, bytes and line of everything in `code`, which starts at address `base`.

    What is no instruction is a `.long` line, and so is, where `exact` asks for it, an instruction whose text would not
    assemble to its bytes.
    """
    lines, at = [], 0
    while at < len(code):
        raw, text = _next_line(code, base, at, symbol, exact)
        lines.append((base + at, raw, text))
        at += len(raw)
    return lines


def _next_line(code: bytes | memoryview, base: int, at: int, symbol: Symbol | None, exact: bool) -> tuple[bytes, str]:
    try:
        decoded = decode(code, base + at, base)
    except DecodeError:
        raw = bytes(code[at : at + 4])
        return raw, long_words(raw)
    text = disassemble(decoded, symbol)
    if exact and not _is_exact(decoded.raw):
        return decoded.raw, f"{long_words(decoded.raw)} // {text}"
    return decoded.raw, text


@functools.lru_cache(maxsize=1 << 16)
def _is_exact(raw: bytes) -> bool:
    """Of the same bytes at any address: code repeats itself."""
    return is_exact(decode(raw, 0))
