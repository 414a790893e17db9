"""A kernel and its launch for the tests of `gfx950 diff`, and a stand-in whose results are changed as a whole."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

import numpy as np
from hip_stand_in import StandIn, stand_in
from kernel_builds import compile_c
from stand_in_faults import instructions

from emu.geometry import Geometry
from emu.run_arguments import RunArgument
from golden.diff import FileSubject, Plan

SOURCE = """
KERNEL k(GLOBAL float *out, GLOBAL const float *in, u32 n) {
  u32 i = GROUP * ITEMS + ITEM;
  out[i] = in[i] * 3.0f + 1.0f;
}"""
CODE = compile_c(SOURCE)
GROUPS, BLOCK = 8, 128
SHAPE = (16, 64)
DEVICE = Plan(("host", "device"))
EMULATED = Plan(("host", "numpy"))


def instruction(mnemonic, which=0, code=CODE, kernel="k"):
    """The offset of an instruction of a kernel, and its first operand."""
    offset, text = [line for line in instructions(code, kernel) if line[1].startswith(mnemonic)][which]
    return offset, text.split()[1].rstrip(",")


def inputs(seed=0):
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def subject(out=None, formats=None, linked=False, code=CODE, x=None):
    """The launch of the kernel as `gfx950 diff` makes it."""
    out = np.zeros(SHAPE, np.float32) if out is None else out
    x = inputs() if x is None else x
    x.flags.writeable = False
    arguments = [RunArgument("o", out, output="out.npy"), RunArgument("x.npy", x), RunArgument("5", 5)]
    geometry = Geometry.of_blocks((GROUPS,), (BLOCK,))
    return FileSubject(code, None, geometry, arguments, formats=formats, linked=linked)


@contextmanager
def changed_results(change, monkeypatch):
    """A stand-in that changes the results of each launch: change(bytes of the output, number of the launch)."""
    own = StandIn._run
    nbytes = inputs().nbytes
    numbers = iter(range(1 << 30))

    def run(self, image, one):
        status = own(self, image, one)
        [(host, size), *_] = [place for place in self.allocations().values() if place[1] == nbytes]
        change(np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host)), next(numbers))
        return status

    monkeypatch.setattr(StandIn, "_run", run)
    with stand_in() as one:
        yield one
