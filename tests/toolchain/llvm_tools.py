"""LLVM's compiler, assembler and linker as the tests run them: text in, object bytes out."""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

ZIG = (sys.executable, "-m", "ziglang")
AMDGPU = "amdgcn-amd-amdhsa"


class LlvmError(Exception):
    """A tool refused its input; the message is its own."""


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
