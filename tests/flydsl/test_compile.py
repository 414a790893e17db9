"""The harness itself: how a code object is taken out of FlyDSL's module, and what is said when there is none."""

import flydsl_kernels
import pytest
from flydsl_kernels import FlyDslError, built, compile_flydsl, needs_flydsl

pytestmark = needs_flydsl

GOOD = """
import flydsl.compiler as flyc
import flydsl.expr as fx

@flyc.kernel
def one(a: fx.Pointer):
    a.store(fx.Int32(7))

@flyc.jit
def launch(a: fx.Pointer):
    one(a).launch(grid=(1, 1, 1), block=(64, 1, 1))

def good():
    launch(flyc.from_c_void_p(fx.Int32, 0))
"""
BAD = """
import os

def refused():
    raise TypeError("not like this")

def dies():
    os.abort()

BUILDS = {"refused": refused, "dies": dies, "nothing": lambda: None, "good": good}
"""


def test_builds_that_fail_leave_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(flydsl_kernels, "FOLDER", tmp_path)
    monkeypatch.setattr(flydsl_kernels, "SOURCES", tmp_path)
    tmp_path.joinpath("mixed.py").write_text(GOOD + BAD)
    assert compile_flydsl("mixed", "good").startswith(b"\x7fELF")
    for build, message in {
        "refused": "TypeError: not like this",
        "dies": "FlyDSL's process died in this build",
        "nothing": "compiled 0 modules; exactly one was expected",
        "missing": "the file's BUILDS does not name it",
    }.items():
        with pytest.raises(FlyDslError, match=message):
            compile_flydsl("mixed", build)


def test_a_file_that_does_not_load(tmp_path, monkeypatch):
    monkeypatch.setattr(flydsl_kernels, "FOLDER", tmp_path)
    tmp_path.joinpath("broken.py").write_text("BUILDS = nowhere")
    with pytest.raises(FlyDslError, match="NameError: name 'nowhere' is not defined"):
        built(tmp_path / "broken.py")
