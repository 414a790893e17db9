"""Fixtures every test may ask for."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads; the test processes fill the cores themselves

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "toolchain"))  # for llvm_tools and kernel_builds
sys.path.insert(0, str(Path(__file__).parent / "stand_in"))  # for hip_stand_in

from llvm_tools import accepted_lines, assembled, assembled_pieces, text_section

from gfx950 import __main__ as command_line


@pytest.fixture(scope="session")
def assemble() -> Callable[[str], bytes]:
    """`assemble(text)`: the bytes LLVM's assembler makes of gfx950 assembly text."""
    return lambda text: text_section(assembled(text))


@pytest.fixture(scope="session")
def assemble_lines() -> Callable[[Sequence[str]], list[bytes]]:
    """`assemble_lines(lines)`: the bytes of each line, in one run of the assembler."""
    return assembled_pieces


@pytest.fixture(scope="session")
def assemble_accepted() -> Callable[[Sequence[str]], dict[str, bytes]]:
    """`assemble_accepted(lines)`: the bytes of the lines that LLVM's assembler accepts, by line."""
    return accepted_lines


@pytest.fixture
def gfx950(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """`gfx950(*arguments)` -> (exit code, stdout, stderr), through the command line's `main` itself."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gfx950", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            command_line.main()
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return run
