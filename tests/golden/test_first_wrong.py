"""Single-bit faults of the stand-in in instructions of every kind: `gfx950 diff --bisect` names the instruction."""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest
from hip_stand_in import Fault, stand_in
from kernel_builds import compile_c
from stand_in_faults import instructions as kernel_instructions

from emu.geometry import Geometry
from emu.run_arguments import RunArgument
from gfx950.hip import HipError
from golden.diff import FileSubject, Plan, diff
from golden.first_wrong import find_first_wrong

SOURCE = """
SHARED(u32, tile, 256);
KERNEL k(GLOBAL u32 *out, GLOBAL const u32 *in, GLOBAL float *real, u32 rounds) {
  u32 i = GROUP * ITEMS + ITEM, x = in[i], y = i * 2654435761u;
  float f = (float)(x & 0xffff) * 0.001f, g = 1.0f;
  for (u32 r = 0; r < rounds; r++) {
    tile[ITEM] = x ^ y;
    BARRIER();
    u32 other = tile[(ITEM * 7 + r) & 255];
    x = x * 1664525u + (other >> 3);
    y = (y << 5 | y >> 27) - (x | r);
    f = f * 0.75f + (float)(y & 255);
    g = g < f ? f - g : __builtin_fmaf(g, 0.5f, f);
    BARRIER();
  }
  out[i] = x + y;
  real[i] = f - g;
}"""
GROUPS, BLOCK = 2, 256
BITS = (0, 5, 12, 19, 22, 30)
_REGISTER = re.compile(r"v(?:(\d+)\b|\[(\d+):(\d+)\])")


@functools.cache
def code():
    return compile_c(SOURCE)


@functools.cache
def instructions():
    """Offset and first result register of the vector instructions and loads."""
    found = []
    for offset, text in kernel_instructions(code()):
        name, _, operands = text.partition(" ")
        result = _REGISTER.match(operands)
        if result and name.startswith(("v_", "global_load", "ds_read")) and "cmp" not in name:
            found.append((offset, f"v{result[1] or result[2]}", name))
    return found


def subject():
    rng = np.random.default_rng(5)
    size = GROUPS * BLOCK
    x = rng.integers(0, 1 << 32, size, np.uint32)
    x.flags.writeable = False
    arguments = [
        RunArgument("out", np.zeros(size, np.uint32), output="o.npy"),
        RunArgument("in", x),
        RunArgument("real", np.zeros(size, np.float32), output="r.npy"),
        RunArgument("3", 3),
    ]
    return FileSubject(code(), None, Geometry.of_blocks((GROUPS,), (BLOCK,)), arguments)


def faults(count, seed):
    rng = np.random.default_rng(seed)
    found = instructions()
    order = rng.permutation(len(found))
    for n in range(count):
        offset, register, _ = found[order[n % len(found)]]
        place = dict(lane=int(rng.integers(64)), wave=int(rng.integers(4)), workgroup=(int(rng.integers(GROUPS)), 0, 0))
        yield Fault("k", offset, register, bit=BITS[int(rng.integers(len(BITS)))], execution=1, **place)


def named(fault):
    """Whether the report names the fault's instruction; None where the fault changes no bit of the results, or makes an
    address that is nowhere, so that there are none."""
    own, plan = subject(), Plan()
    with stand_in(faults=[fault]):
        try:
            found = diff(own, plan)
        except HipError:
            return None
        if found.good:
            return None
        first = find_first_wrong(own, plan, found)
    finding = first.finding
    right = finding.point is not None and (finding.point.offset, finding.wave) == (fault.offset, fault.wave)
    return right and finding.point.workgroup == fault.workgroup


def test_single_bit_faults_are_named():
    results = (named(fault) for fault in faults(80, seed=2))
    assert list(itertools.islice((right for right in results if right is not None), 4)) == [True] * 4


@pytest.mark.slow
def test_fifty_single_bit_faults_are_named():
    seen = {fault: named(fault) for fault in faults(80, seed=2)}
    right = sum(one is True for one in seen.values())
    wrong = [fault for fault, one in seen.items() if one is False]
    assert right + len(wrong) >= 50, "too many of the faults change nothing"
    assert right >= 0.95 * (right + len(wrong)), wrong
