"""LLVM's own text of gfx950 instructions: its assembler's printer, which its disassembler shares."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from llvm_tools import AMDGPU, ZIG


@dataclass(frozen=True)
class Printed:
    """What LLVM makes of a line: its own spelling of it, and the bytes."""

    text: str
    code: bytes


def printed_lines(lines: Iterable[str]) -> tuple[dict[str, Printed], dict[str, str]]:
    """LLVM's text and bytes of the lines it accepts, and why it refuses the others, by line."""
    kept = list(dict.fromkeys(lines))
    output, refused = _assembled(kept)
    reasons = {kept[number - 1]: reason for number, reason in refused.items()}
    if reasons:
        kept = [line for line in kept if line not in reasons]
        output, refused = _assembled(kept)
    assert not refused, next(iter(refused.items()))
    found = [_printed(line) for line in output.splitlines() if "; encoding: [" in line]
    assert len(found) == len(kept)
    return dict(zip(kept, found, strict=True)), reasons


def _assembled(lines: list[str]) -> tuple[str, dict[int, str]]:
    command = (*ZIG, "clang", "-cc1as", "-triple", AMDGPU, "-target-cpu", "gfx950", "-filetype", "asm")
    source = "".join(f"{line}\n" for line in lines).encode()
    run = subprocess.run([*command, "-show-encoding", "-o", "-", "-"], input=source, capture_output=True, check=False)
    errors = re.findall(r"^[^\n:]*:(\d+):\d+: error: ([^\n]*)", run.stderr.decode(), re.MULTILINE)
    return run.stdout.decode(), {int(number): reason for number, reason in reversed(errors)}


def _printed(line: str) -> Printed:
    text, _, encoding = line.partition("; encoding: [")
    code = bytes(int(byte, 16) for byte in encoding.rstrip("]").split(","))
    return Printed(" ".join(text.split()), code)
