"""LLVM's programs outside this process: where ROCm has them, and running one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path


def rocm_program(root: Path, name: str) -> list[str] | None:
    """The command of a program of the LLVM in a ROCm installation, if it is there."""
    program = root / "llvm" / "bin" / name
    return [str(program)] if os.access(program, os.X_OK) and program.is_file() else None


def run_program(
    named: str,
    arguments: Sequence[str],
    seconds: float,
    missing: Callable[[str], Exception],
    failed: Callable[[str], Exception],
    advice: str = "",
) -> None:
    """Runs a program. Raises `missing` where it cannot be started, and `failed` where it takes longer than `seconds` or
    ends badly, with its own words and then `advice`. named: what the messages call it."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=seconds, check=False)
    except OSError as problem:
        raise missing(f"{named} could not be started: {problem}") from problem
    except subprocess.TimeoutExpired as problem:
        raise failed(f"{named} did not finish in {seconds} seconds") from problem
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip() or "(it said nothing)"
        raise failed(f"{named} failed with status {done.returncode}:\n{words}{advice}")
