"""Code objects made by the FlyDSL of PyPI, in a process of its own, and launches of them on every engine.

FlyDSL compiles for gfx950 without a GPU and without ROCm; of ROCm it looks for the linker alone, which ziglang has.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kernel_builds import FOLDER

from emu.dispatch import Device, RunOptions, RunReport

PROGRAM = Path(__file__).parent / "flydsl_compile.py"
SOURCES = Path(__file__).parent.parent / "flydsl" / "kernels"
ENGINES = (RunOptions(threads=1), RunOptions(threads=2), RunOptions(engine="numpy"))


class FlyDslError(Exception):
    """FlyDSL refused a kernel, or died; the message is its own."""


def version() -> str | None:
    """The installed FlyDSL's version."""
    try:
        return importlib.metadata.version("flydsl")
    except importlib.metadata.PackageNotFoundError:
        return None


needs_flydsl = pytest.mark.skipif(
    version() is None, reason="flydsl is not installed: pip install -e '.[flydsl]' brings it (299 MB)"
)


def _environment() -> dict[str, str]:
    """What makes FlyDSL compile only, for gfx950, with ziglang's linker."""
    linker = FOLDER / "flydsl-rocm" / "llvm" / "bin" / "ld.lld"
    if not linker.exists():
        linker.parent.mkdir(parents=True, exist_ok=True)
        script = linker.with_suffix(f".{os.getpid()}")
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang ld.lld "$@"\n')
        script.chmod(0o755)
        script.replace(linker)
    chosen = {"COMPILE_ONLY": "1", "ARCH": "gfx950", "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
    return {**os.environ, **chosen, "ROCM_PATH": str(FOLDER / "flydsl-rocm")}


def _build_all(source: Path, folder: Path) -> None:
    """Compiles every build of a file; a process that dies costs the build it died in."""
    command = [sys.executable, str(PROGRAM), str(source), str(folder)]
    done = -1
    while True:
        run = subprocess.run(command, env=_environment(), capture_output=True, check=False)
        if run.returncode == 0:
            return
        before, done = done, len(list(folder.iterdir()))
        if run.returncode > 0 or done == before:
            raise FlyDslError(f"{source.name} ended with {run.returncode}:\n{run.stderr.decode()}")


@functools.cache
def built(source: Path) -> Path:
    """The folder with the builds of one file, made once for each text of it. Raises FlyDslError."""
    texts = [path.read_bytes() for path in (source, *sorted(PROGRAM.parent.glob("flydsl*.py")))]
    key = hashlib.sha256(b"|".join([str(version()).encode(), *texts])).hexdigest()
    folder = FOLDER / f"flydsl-{source.stem}-{key[:24]}"
    FOLDER.mkdir(exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:  # test processes run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=FOLDER) as unfinished:
                _build_all(source, Path(unfinished))
                shutil.copytree(unfinished, folder)
    return folder


def compile_flydsl(file: str, build: str) -> bytes:
    """The code object of one build of a file in tests/flydsl/kernels. Raises FlyDslError when FlyDSL makes none."""
    folder = built(SOURCES / f"{file}.py")
    made, refused = folder / f"{build}.hsaco", folder / f"{build}.error"
    if made.exists():
        return made.read_bytes()
    reason = refused.read_text() if refused.exists() else "the file's BUILDS does not name it"
    raise FlyDslError(f"{file}.{build}: {reason}")


def launch(
    data: bytes, grid, block, arguments: Sequence[object], options: RunOptions, dynamic_lds: int = 0
) -> RunReport:
    """Runs the one kernel of a code object."""
    module = Device(options).load(data)
    (name,) = module.kernels
    return module[name][grid, block](*arguments, dynamic_lds=dynamic_lds)


def run_everywhere(
    data: bytes, grid, block, arguments: Sequence[object], dynamic_lds: int = 0
) -> tuple[list[object], set[str]]:
    """Runs the one kernel of a code object on both engines, the host one with two threads too if both find work.

    arguments: arrays are copied for each run. Returns the arguments after a run, the same bytes on each engine (which
    is asserted), and the mnemonics of the instructions that ran on the numpy engine.
    """
    outcomes, mnemonics = [], set()
    engines = [options for options in ENGINES if options.threads == 1 or np.prod(grid) > 1]
    for options in engines:
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        mnemonics |= set(launch(data, grid, block, own, options, dynamic_lds).mnemonics)
        outcomes.append(own)
    for index, first in enumerate(outcomes[0]):
        if isinstance(first, np.ndarray):
            for options, other in zip(engines, outcomes, strict=True):
                assert other[index].tobytes() == first.tobytes(), f"argument {index} differs on {options}"
    return outcomes[0], mnemonics
