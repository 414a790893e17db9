"""Fixtures every test may ask for."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy loads; the test processes fill the cores themselves

import functools
import io
import itertools
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

sys.path.insert(0, str(Path(__file__).parent / "toolchain"))  # for llvm_tools and kernel_builds

from llvm_tools import LlvmError, assembled

from gfx950 import __main__ as command_line


@functools.lru_cache(maxsize=4096)
def _assemble_lines(lines: tuple[str, ...]) -> tuple[bytes, ...]:
    text = ".text\n" + "".join(f"line{i}: {line}\n" for i, line in enumerate(lines)) + "end_of_lines:\n"
    elf = ELFFile(io.BytesIO(assembled(text)))
    code = elf.get_section_by_name(".text").data()
    symbols = {s.name: s["st_value"] for s in elf.get_section_by_name(".symtab").iter_symbols()}
    starts = [symbols[f"line{i}"] for i in range(len(lines))] + [symbols["end_of_lines"]]
    return tuple(code[a:b] for a, b in itertools.pairwise(starts))


@pytest.fixture(scope="session")
def assemble() -> Callable[[str], bytes]:
    """`assemble(text)`: the bytes LLVM's assembler makes of gfx950 assembly text."""
    return lambda text: b"".join(_assemble_lines(tuple(text.strip().splitlines())))


@pytest.fixture(scope="session")
def assemble_lines() -> Callable[[Sequence[str]], tuple[bytes, ...]]:
    """`assemble_lines(lines)`: the bytes of each line, in one run of the assembler."""
    return lambda lines: _assemble_lines(tuple(lines))


@pytest.fixture(scope="session")
def assemble_accepted() -> Callable[[Sequence[str]], dict[str, bytes]]:
    """`assemble_accepted(lines)`: the bytes of the lines that LLVM's assembler accepts, by line."""

    def run(lines: Sequence[str]) -> dict[str, bytes]:
        kept = list(lines)
        try:
            return dict(zip(kept, _assemble_lines(tuple(kept)), strict=True))
        except LlvmError as error:
            refused = {int(n) - 2 for n in re.findall(r"^[^\n:]*:(\d+):\d+: error:", str(error), re.MULTILINE)}
        kept = [line for i, line in enumerate(kept) if i not in refused]
        return dict(zip(kept, _assemble_lines(tuple(kept)), strict=True))

    return run


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
