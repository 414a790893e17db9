"""LLVM's own text of gfx950 instructions: its assembler's printer, which its disassembler shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llvm_tools import AMDGPU, LlvmError, run_tool


@dataclass(frozen=True)
class Printed:
    """What LLVM makes of a line: its own spelling of it, and the bytes."""

    text: str
    code: bytes


def printed_lines(lines: Iterable[str]) -> tuple[dict[str, Printed], dict[str, str]]:
    """LLVM's text and bytes of the lines it accepts, and why it refuses the others, by line."""
    kept = list(dict.fromkeys(lines))
    try:
        output, reasons = _assembled(kept), {}
    except LlvmError as error:
        reasons = {kept[number - 1]: reason for number, reason in error.by_line.items()}
        kept = [line for line in kept if line not in reasons]
        output = _assembled(kept)
    found = [_printed(line) for line in output.splitlines() if "; encoding: [" in line]
    assert len(found) == len(kept)
    return dict(zip(kept, found, strict=True)), reasons


def _assembled(lines: list[str]) -> str:
    command = ("clang", "-cc1as", "-triple", AMDGPU, "-target-cpu", "gfx950", "-filetype", "asm", "-show-encoding")
    return run_tool(*command, "-o", "-", "-", source="".join(f"{line}\n" for line in lines)).decode()


def _printed(line: str) -> Printed:
    text, _, encoding = line.partition("; encoding: [")
    code = bytes(int(byte, 16) for byte in encoding.rstrip("]").split(","))
    return Printed(" ".join(text.split()), code)
