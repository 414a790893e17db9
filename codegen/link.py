"""Links a relocatable AMDGPU object into the shared object that HIP loads (`.hsaco`), with whatever `ld.lld` there is.

The emulator runs relocatable objects as they are; only a real device needs the linked form.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from codegen.llvm_programs import rocm_program, run_program
from emu.elf_header import ELF_MAGIC, ET_REL, elf_type

TIMEOUT_SECONDS = 60
ADVICE = "\nThe input must be one relocatable AMDGPU object without undefined symbols."


class NoLinker(RuntimeError):
    """No `ld.lld` on this machine; the message lists the places tried and what to install."""


class LinkError(RuntimeError):
    """The linker refused the object; the message carries the linker's own words."""


def _rocm_linker(root: Path) -> list[str] | None:
    return rocm_program(root, "ld.lld")


def _path_linker() -> list[str] | None:
    program = shutil.which("ld.lld")
    return [program] if program else None


def _ziglang_linker() -> list[str] | None:
    return [sys.executable, "-m", "ziglang", "ld.lld"] if find_spec("ziglang") else None


def _candidates() -> Iterator[tuple[str, list[str] | None]]:
    """Every place a linker may be, best first: what the place is called, and the command when it is there."""
    rocm = os.environ.get("ROCM_PATH")
    if rocm:
        yield f"$ROCM_PATH/llvm/bin/ld.lld ({Path(rocm) / 'llvm/bin/ld.lld'})", _rocm_linker(Path(rocm))
    else:
        yield "$ROCM_PATH/llvm/bin/ld.lld (ROCM_PATH is not set)", None
    yield "/opt/rocm/llvm/bin/ld.lld", _rocm_linker(Path("/opt/rocm"))
    yield "ld.lld on PATH", _path_linker()
    yield "the Python package ziglang (python -m ziglang ld.lld)", _ziglang_linker()


def find_linker() -> list[str] | None:
    """The command of the first `ld.lld` found ($ROCM_PATH, /opt/rocm, PATH, the ziglang package), or None."""
    return next((command for _, command in _candidates() if command), None)


def _no_linker() -> NoLinker:
    tried = "\n".join(f"  - {place}" for place, _ in _candidates())
    return NoLinker(
        f"no ld.lld to link the code object with; tried:\n{tried}\n"
        "Install ROCm's LLVM (and set ROCM_PATH), or LLVM's lld package, or run `pip install ziglang`. "
        "The emulator needs no linker: it runs the relocatable object itself."
    )


def link(object_bytes: bytes) -> bytes:
    """The `.hsaco` (ELF shared object) of one relocatable AMDGPU object, both as file contents.

    Raises NoLinker when no linker is found, and LinkError for a file that is linked already and with the linker's
    message when it fails.
    """
    if object_bytes.startswith(ELF_MAGIC) and elf_type(object_bytes) != ET_REL:
        raise LinkError("this ELF file is already linked; pass the relocatable object (`.o`), or use the file as it is")
    command = find_linker()
    if command is None:
        raise _no_linker()
    with tempfile.TemporaryDirectory(prefix="gfx950-link-") as folder:
        source, target = Path(folder, "kernel.o"), Path(folder, "kernel.hsaco")
        source.write_bytes(object_bytes)
        arguments = [*command, "-shared", "--no-undefined", str(source), "-o", str(target)]
        run_program(f"the linker `{' '.join(command)}`", arguments, TIMEOUT_SECONDS, LinkError, LinkError, ADVICE)
        return target.read_bytes()
