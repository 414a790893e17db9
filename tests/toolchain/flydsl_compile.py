"""A program: compiles the builds of one file of FlyDSL kernels for gfx950, without a GPU.

    flydsl_compile.py FILE FOLDER

FILE is a Python file whose `BUILDS` maps names to functions of no arguments, each of which calls one `@flyc.jit`
function. FOLDER receives `<name>.hsaco`, the code object, or `<name>.error`, what FlyDSL said, for each. FlyDSL is
native code that may take the process with it: it leaves `<name>.error` too then, and a second run goes on after it.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from flydsl.compiler import jit_function


def mlir_bytes(text: str) -> bytes:
    """The bytes of an MLIR string literal: a character for itself, or a backslash and two digits."""
    plain = {"\\": "5c", '"': "22", "n": "0a", "t": "09"}
    pieces = re.split(r'\\([0-9A-Fa-f]{2}|["\\nt])', text)
    escaped = [bytes.fromhex(plain.get(code, code)) for code in pieces[1::2]]
    return b"".join(a.encode("latin-1") + b for a, b in zip(pieces[::2], [*escaped, b""], strict=True))


def code_object(module: str) -> bytes:
    """The code object in the text of a compiled module."""
    found = re.search(r'bin = "((?:[^"\\]|\\.)*)"', module)
    if found is None:
        raise ValueError("FlyDSL's compiled module holds no binary; its attribute `bin` was expected")
    return mlir_bytes(found[1])


def watch_compiler() -> list[str]:
    """A list that the text of each module joins as FlyDSL compiles it; FLYDSL_DUMP_IR would compile each twice."""
    modules: list[str] = []
    compile_module = jit_function.MlirCompiler.compile

    def watched(*arguments, **named):
        module = compile_module(*arguments, **named)
        modules.append(str(module))
        return module

    jit_function.MlirCompiler.compile = watched
    return modules


def build(function: Callable[[], None], modules: list[str]) -> bytes:
    """Calls one build and returns its code object."""
    modules.clear()
    function()
    if len(modules) != 1:
        raise ValueError(f"the build compiled {len(modules)} modules; exactly one was expected")
    return code_object(modules[0])


def main(source: str, target: str) -> None:
    modules = watch_compiler()
    spec = importlib.util.spec_from_file_location("kernels", source)
    kernels = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = kernels
    spec.loader.exec_module(kernels)
    for name, function in kernels.BUILDS.items():
        made, refused = Path(target, f"{name}.hsaco"), Path(target, f"{name}.error")
        if made.exists() or refused.exists():
            continue
        refused.write_text("FlyDSL's process died in this build")
        try:
            data = build(function, modules)
        except Exception:
            refused.write_text(traceback.format_exc())
        else:
            made.write_bytes(data)
            refused.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
