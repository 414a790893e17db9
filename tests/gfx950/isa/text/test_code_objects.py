"""Whole code objects: all their code as text, assembled by LLVM and by us to the bytes it came from."""

from __future__ import annotations

import re

import pytest
from c_kernels import FOLDER as C_PROGRAMS
from c_kernels import source_of
from kernel_builds import FOLDER, compile_c
from llvm_printer import printed_lines
from llvm_tools import assembled

from codegen.kernel_package import kernel_names, kernel_package
from emu.code_object import load
from gfx950.isa.text import assemble, listing

RE_SPELT = re.compile(r"ds_swizzle_b32 .* offset:\d+")  # see test_round_trip.py
SAMPLED = ("control.c", "floating.c")


def runs_of(objects):
    return [run for data in objects for run in load(data).code]


def check(runs):
    """Bytes of every line through LLVM, each different line once, and of every run through our assembler."""
    lines = {}
    for run in runs:
        rows = listing(run.data, run.address, exact=True)
        assert b"".join(raw for _, raw, _ in rows) == run.data
        text = "\n".join(line for _, _, line in rows)
        assert assemble(text, run.address) == run.data
        lines |= {line: raw for _, raw, line in rows}
    accepted, refused = printed_lines(line for line in lines if not line.startswith((".long", ".byte")))
    assert refused == {}
    wrong = {text: printed for text, printed in accepted.items() if printed.code != lines[text]}
    assert wrong == {}
    respelt = {t: p.text for t, p in accepted.items() if p.text != t and not RE_SPELT.fullmatch(t)}
    assert respelt == {}
    return lines


@pytest.fixture(scope="module", params=kernel_names())
def package(request):
    return kernel_package(request.param)


def test_our_kernels(package):
    lines = check(runs_of([package.compiled().object]))
    assert len(lines) > 1000
    assert not [line for line in lines if line.startswith(".")]


def without_target(line):
    return line.split()[0] if line.startswith(("s_branch", "s_cbranch")) else line


def test_our_kernels_are_what_llvm_wrote(package):
    """The assembly that LLVM prints as it compiles them, line by line, but for the labels of branches."""
    assembly = package.compiled().assembly
    expected = [" ".join(line.partition(";")[0].split()) for line in assembly.splitlines()]
    expected = [line for line in expected if re.match(r"(s|v|ds|global|flat|buffer|scratch)_\w+( |$)", line)]
    found = [line for run in runs_of([assembled(assembly)]) for _, _, line in listing(run.data, run.address)]
    expected, found = ([without_target(x) for x in lines if x != "s_nop 0"] for lines in (expected, found))  # padding
    assert len(expected) == len(found) > 1000
    assert [pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]][:5] == []


@pytest.mark.parametrize("file", SAMPLED)
def test_c_programs(file):
    lines = check(runs_of([compile_c(source_of(file), "-O2")]))
    assert len(lines) > 300


@pytest.mark.parametrize("file", SAMPLED)
def test_whole_text_through_llvm(file):
    """All lines in order as one text, as a user would write it to a file."""
    (run,) = runs_of([compile_c(source_of(file), "-O2")])
    text = "\n".join(line for _, _, line in listing(run.data, run.address, exact=True))
    (again,) = runs_of([assembled(f".text\n{text}\n")])
    assert again.data[: len(run.data)] == run.data


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3", "-Os"])
def test_all_c_programs(level):
    files = sorted(path.name for path in C_PROGRAMS.glob("*.c"))
    check(runs_of(compile_c(source_of(file), level) for file in files))


@pytest.mark.slow
def test_every_kernel_that_tests_have_built():
    """Whatever lies in the folder of built kernels: also code of random bytes, which `exact` turns into words."""
    objects = [path.read_bytes() for path in sorted(FOLDER.glob("*.hsaco"))]
    check(runs_of(objects))
