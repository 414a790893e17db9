"""Compiles LLVM text that holds inline assembly, which LLVM inside this process has no parser for, with a clang.

Any clang that knows gfx950 will do: that of ROCm (tried: LLVM 20's, of ROCm 7.0's age), one on PATH, or the one in the
ziglang package, which is of the LLVM that wrote the text.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from codegen.llvm_programs import rocm_program, run_program
from codegen.llvm_text import EmitError

TIMEOUT_SECONDS = 600
TARGET = ("-target", "amdgcn-amd-amdhsa", "-mcpu=gfx950")
INTRINSIC = re.compile(r"^(declare [^\n]*@llvm\.[^\n]*\)) #\d+$", re.MULTILINE)
ATTRIBUTES = re.compile(r"^attributes (#\d+) = [^\n]*\n", re.MULTILINE)
ADVICE = "\nThe text is LLVM 22's; where this clang is too old for it, `pip install ziglang` brings one that is not."
GENERATE = ("-nogpulib", "-fno-verbose-asm", "-x", "ir", "-O3", "-Xclang", "-disable-llvm-passes", "-S")


class NoClang(RuntimeError):
    """No clang on this machine; the message lists the places tried and what to install."""


def _candidates() -> Iterator[tuple[str, list[str] | None]]:
    """Every place a clang may be, best first: what the place is called, and the command when it is there."""
    rocm = os.environ.get("ROCM_PATH")
    for root in [*([rocm] if rocm else []), "/opt/rocm"]:
        yield str(Path(root, "llvm", "bin", "clang")), rocm_program(Path(root), "clang")
    found = _ziglang()
    yield "the Python package ziglang (python -m ziglang clang)", found
    program_on_path = shutil.which("clang")
    yield "clang on PATH", [program_on_path] if program_on_path else None


def _ziglang() -> list[str] | None:
    """The compiler inside the package, called without the Python in front of it."""
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / ("zig.exe" if os.name == "nt" else "zig")
    return [str(program), "clang"] if program.is_file() else [sys.executable, "-m", "ziglang", "clang"]


def find_clang() -> list[str]:
    """The command of the first clang: $ROCM_PATH, /opt/rocm, the ziglang package, PATH. Raises NoClang."""
    for _, command in _candidates():
        if command:
            return command
    tried = "\n".join(f"  - {place}" for place, _ in _candidates())
    raise NoClang(
        f"exact instructions are inline assembly, and there is no clang to compile it with; tried:\n{tried}\n"
        "Install ROCm's LLVM (and set ROCM_PATH), or run `pip install ziglang`."
    )


def compile_with_clang(llvm_ir: str) -> tuple[str, bytes]:
    """The assembly of a module, generated at level 3 without further passes, and the object assembled from it.

    Raises NoClang, and EmitError with clang's words.
    """
    command = find_clang()
    with tempfile.TemporaryDirectory(prefix="gfx950-clang-") as folder:
        source, assembly, target = (Path(folder, name) for name in ("kernels.ll", "kernels.s", "kernels.o"))
        source.write_text(_readable(llvm_ir))
        _run([*command, *TARGET, *GENERATE, str(source), "-o", str(assembly)])
        _run([*command, *TARGET, "-c", str(assembly), "-o", str(target)])
        return assembly.read_text(), target.read_bytes()


def _readable(llvm_ir: str) -> str:
    """The text without attributes of intrinsics: LLVM knows them by itself, and an older one not all their names."""
    text = INTRINSIC.sub(r"\1", llvm_ir)
    used = set(re.findall(r"#\d+", ATTRIBUTES.sub("", text)))
    return ATTRIBUTES.sub(lambda found: found[0] if found[1] in used else "", text)


def _run(arguments: list[str]) -> None:
    run_program(f"the compiler `{' '.join(arguments[:2])}`", arguments, TIMEOUT_SECONDS, NoClang, EmitError, ADVICE)
