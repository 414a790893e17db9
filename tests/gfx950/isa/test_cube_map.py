"""V_CUBE* against the faces of a cube: plain Python floats, and the geometry they stand for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950.isa.registry import lookup
from gfx950.lanes import F32, Mode

NAMES = ("v_cubeid_f32", "v_cubesc_f32", "v_cubetc_f32", "v_cubema_f32")


def values(words, mode):
    """The numbers that comparisons see: subnormals are zeros where MODE flushes."""
    keeps = mode.denorm32 & 1
    flushed = [w if keeps or w & 0x7F800000 else w & 0x80000000 for w in words]
    return [float(np.uint32(w).view(np.float32)) for w in flushed]


def oracle(name, words, mode):
    """The bits, by the major axis; an operand is passed on with its sign bit changed at most."""
    x, y, z = values(words, mode)
    words = [w if mode.denorm32 == 3 or w & 0x7F800000 else w & 0x80000000 for w in words]
    a, b, c = words
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        face, s, t, major = (5 if z < 0 else 4), (a ^ 1 << 31 if z < 0 else a), b ^ 1 << 31, z
    elif abs(y) >= abs(x):
        face, s, t, major = (3 if y < 0 else 2), a, (c ^ 1 << 31 if y < 0 else c), y
    else:
        face, s, t, major = (1 if x < 0 else 0), (c if x < 0 else c ^ 1 << 31), b ^ 1 << 31, x
    if name == "v_cubema_f32":
        return major
    return {"v_cubeid_f32": int(np.float32(face).view(np.uint32)), "v_cubesc_f32": s, "v_cubetc_f32": t}[name]


def run(name, columns, mode=None):
    engine = NumpyEngine(mode)
    result = lookup(name).body(*(F32(engine, np.array(c, np.uint32)) for c in columns))
    return np.broadcast_to(result.raw, len(columns[0]))


SPECIAL = [0, 1 << 31, 1, 0x80000001, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x7F7FFFFF, 0x7F800000]
SPECIAL += [0xFF800000, 0x7FC00001, 0x7F800001, 0x00400000, 0x00800000]


@pytest.mark.parametrize("mode", [Mode(), Mode(denorm32=0)], ids=["kept", "flushed"])
@pytest.mark.parametrize("name", NAMES)
def test_specials_and_random_directions(name, mode):
    random = np.random.default_rng(3).integers(0, 1 << 32, (3, 4000), dtype=np.uint32)
    mild = np.random.default_rng(4).normal(size=(3, 4000)).astype(np.float32).view(np.uint32)
    specials = np.array(list(itertools.product(SPECIAL, repeat=3)), np.uint32).T
    columns = np.concatenate([specials, random, mild], axis=1)
    got = run(name, columns, mode)
    for words, bits in zip(columns.T.tolist(), got.tolist(), strict=True):
        want = oracle(name, words, mode)
        if name == "v_cubema_f32":
            check_major(bits, want, mode)
        else:
            assert bits == want, ([hex(w) for w in words], hex(bits), hex(want))


def check_major(bits, major, mode):
    """Twice the axis, as a float."""
    value = float(np.uint32(bits).view(np.float32))
    if math.isnan(major):
        assert math.isnan(value)
        return
    with np.errstate(over="ignore"):
        want = np.float32(2 * major)
    if not mode.denorm32 & 2 and abs(want) < np.float32(2.0**-126):
        want = np.float32(math.copysign(0.0, want))
    assert bits == int(want.view(np.uint32))


def test_the_six_faces():
    """S and T over the major axis of the middle of each face are 0, and its number is as documented."""
    directions = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    columns = np.array(directions, np.float32).T.copy().view(np.uint32)
    faces = run("v_cubeid_f32", columns).astype(np.uint32).view(np.float32)
    assert faces.tolist() == [0, 1, 2, 3, 4, 5]
    for name in ("v_cubesc_f32", "v_cubetc_f32"):
        assert not np.any(run(name, columns) & 0x7FFFFFFF)
