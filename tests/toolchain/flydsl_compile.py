"""A program: compiles the builds of one file of FlyDSL kernels for gfx950, without a GPU.

    flydsl_compile.py FILE FOLDER

FILE is a Python file whose `BUILDS` maps names to functions of no arguments, each of which calls one `@flyc.jit`
function. FOLDER receives `<name>.hsaco`, the code object, or `<name>.error`, what FlyDSL said, for each. FlyDSL is
native code that may take the process with it: it leaves `<name>.error` too then, and a second run goes on after it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

STAGE = "*_gpu_module_to_binary.mlir"  # of what FLYDSL_DUMP_IR writes, the one that holds the code object


def mlir_bytes(text: str) -> bytes:
    """The bytes of an MLIR string literal: a character for itself, or a backslash and two digits."""
    plain = {"\\": "5c", '"': "22", "n": "0a", "t": "09"}
    pieces = re.split(r'\\([0-9A-Fa-f]{2}|["\\nt])', text)
    escaped = [bytes.fromhex(plain.get(code, code)) for code in pieces[1::2]]
    return b"".join(a.encode("latin-1") + b for a, b in zip(pieces[::2], [*escaped, b""], strict=True))


def code_object(stage: str) -> bytes:
    """The code object in the text of the last stage."""
    found = re.search(r'bin = "((?:[^"\\]|\\.)*)"', stage)
    if found is None:
        raise ValueError("FlyDSL's last stage holds no binary; its attribute `bin` was expected")
    return mlir_bytes(found[1])


def build(function) -> bytes:
    """Calls one build and returns the code object that FlyDSL wrote down."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLYDSL_DUMP_DIR"] = folder
        function()
        stages = list(Path(folder).rglob(STAGE))
        if len(stages) != 1:
            raise ValueError(f"the build compiled {len(stages)} modules; exactly one was expected")
        return code_object(stages[0].read_text(encoding="latin-1"))


def main(source: str, target: str) -> None:
    spec = importlib.util.spec_from_file_location("kernels", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernels"] = module
    spec.loader.exec_module(module)
    for name, function in module.BUILDS.items():
        made, refused = Path(target, f"{name}.hsaco"), Path(target, f"{name}.error")
        if made.exists() or refused.exists():
            continue
        refused.write_text("FlyDSL's process died in this build")
        try:
            data = build(function)
        except Exception:
            refused.write_text(traceback.format_exc())
        else:
            made.write_bytes(data)
            refused.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
