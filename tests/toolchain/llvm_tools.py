"""LLVM's compiler, assembler and linker as the tests run them: text in, object bytes out."""

from __future__ import annotations

import functools
import io
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

ZIG = (sys.executable, "-m", "ziglang")
AMDGPU = "amdgcn-amd-amdhsa"


class LlvmError(Exception):
    """A tool refused its input; the message is its own."""

    @property
    def by_line(self) -> dict[int, str]:
        """What it says against lines of its input by their numbers, from 1; of one line the first."""
        found = re.findall(r"^[^\n:]*:(\d+):\d+: error: ([^\n]*)", str(self), re.MULTILINE)
        return {int(number): what for number, what in reversed(found)}


def run_tool(*arguments: str, source: str = "") -> bytes:
    """What a tool writes to stdout, with `source` on its stdin. Raises LlvmError."""
    run = subprocess.run([*ZIG, *arguments], input=source.encode(), capture_output=True, check=False)
    if run.returncode:
        raise LlvmError(run.stderr.decode())
    return run.stdout


@functools.cache
def object_of(source: str, *options: str, language: str = "c", target: str = AMDGPU) -> bytes:
    """The relocatable object of a source text for any target."""
    return run_tool("clang", "-target", target, *options, "-x", language, "-c", "-", "-o", "-", source=source)


def compiled(source: str, *options: str) -> bytes:
    """C for gfx950. options: a later -O level wins."""
    return object_of(source, "-mcpu=gfx950", "-O2", "-nogpulib", "-ffp-contract=off", *options)


def assembled(source: str, cpu: str = "gfx950") -> bytes:
    """Assembly for gfx950."""
    return object_of(source, f"-mcpu={cpu}", language="assembler")


def text_section(data: bytes) -> bytes:
    """The machine code of a relocatable object."""
    return ELFFile(io.BytesIO(data)).get_section_by_name(".text").data()


def assembled_pieces(pieces: Sequence[str]) -> list[bytes]:
    """The machine code of each piece of assembly for gfx950, a line or more, in one run. Raises LlvmError."""
    data = assembled(".text\n" + "".join(f"piece{i}: {piece}\n" for i, piece in enumerate(pieces)) + "end_of_pieces:\n")
    code, symbols = text_section(data), ELFFile(io.BytesIO(data)).get_section_by_name(".symtab").iter_symbols()
    at = {symbol.name: symbol["st_value"] for symbol in symbols}
    starts = [*(at[f"piece{i}"] for i in range(len(pieces))), at["end_of_pieces"]]
    return [code[a:b] for a, b in itertools.pairwise(starts)]


def complaints(lines: Iterable[str], cpu: str = "gfx950") -> list[str | None]:
    """What the assembler says against each line, None where it takes it."""
    texts = list(lines)
    try:
        assembled("\n".join(texts), cpu)
    except LlvmError as error:
        found = error.by_line
        return [found.get(number) for number in range(1, len(texts) + 1)]
    return [None] * len(texts)


def accepted_lines(lines: Iterable[str]) -> dict[str, bytes]:
    """The machine code of the lines that the assembler takes for gfx950, by line."""
    texts = list(lines)
    taken = [line for line, what in zip(texts, complaints(texts), strict=True) if what is None]
    return dict(zip(taken, assembled_pieces(taken), strict=True))


def kernel_source(directives: str = "", body: str = "s_endpgm", name: str = "k", **defaults: int) -> str:
    """Assembly of one kernel. directives: its .amdhsa_ lines; defaults: further ones, unless a directive says other."""
    needed = {"next_free_vgpr": 8, "next_free_sgpr": 8, "accum_offset": 4, **defaults}
    more = "".join(f".amdhsa_{k} {v}\n" for k, v in needed.items() if f".amdhsa_{k}" not in directives)
    return f"""
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
  {body}
.rodata
.p2align 6
.amdhsa_kernel {name}
{more}{directives}
.end_amdhsa_kernel
"""


@functools.cache
def linked(data: bytes) -> bytes:
    """A relocatable object as a code object to load."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "a.o"), Path(folder, "a.hsaco")
        source.write_bytes(data)
        run_tool("ld.lld", "-shared", str(source), "-o", str(target))
        return target.read_bytes()
