"""VOP1 instructions whose results other functions or tables define: sine, cosine, legacy forms, the screen table."""

from __future__ import annotations

import numpy as np
import pytest

from emu.engines.numpy_engine import NumpyEngine
from gfx950.arithmetic.native import NATIVES
from gfx950.isa.registry import lookup
from gfx950.lanes import F16, F32, U32, Mode


def run(name, bits, kind, mode=None):
    engine = NumpyEngine(mode)
    return np.broadcast_to(lookup(name).body(kind(engine, bits)).raw, bits.shape)


def native(name, bits):
    return NATIVES[name](bits.astype(np.uint32).reshape(-1, 1, 64)).reshape(bits.shape)


def flushed(bits, code_bit, keeps):
    tiny = (bits & 0x7F800000) == 0
    return np.where(tiny & (not keeps >> code_bit & 1), bits & 0x80000000, bits).astype(np.uint32)


@pytest.mark.parametrize("denormals", range(4))
@pytest.mark.parametrize("name", ["v_sin_f32", "v_cos_f32"])
def test_denormals_of_f32_by_mode(name, denormals):
    bits = np.random.default_rng(1).integers(0, 1 << 24, (10, 64), dtype=np.uint32)
    bits[5:] |= 1 << 31
    got = run(name, bits, F32, Mode(denorm32=denormals))
    want = flushed(native(name, flushed(bits, 0, denormals)), 1, denormals)
    np.testing.assert_array_equal(got, want)
    if name == "v_sin_f32" and denormals == 3:
        assert np.any(got & 0x7FFFFFFF < 0x800000), "no denormal came out"


@pytest.mark.parametrize("name", ["v_sin_f16", "v_cos_f16"])
def test_f16_uses_its_own_denormal_field(name):
    bits = np.arange(0, 0x800, 8, dtype=np.uint16).reshape(-1, 64)
    kept = run(name, bits, F16, Mode(denorm32=0))
    np.testing.assert_array_equal(kept, native(name, bits).astype(np.uint16))
    assert not np.any(run("v_sin_f16", bits, F16, Mode(denorm16_64=0))[bits < 0x400])


@pytest.mark.parametrize("name", ["exp", "log"])
def test_legacy_forms_give_what_the_others_give(name):
    bits = np.random.default_rng(2).integers(0, 1 << 32, (50, 64), dtype=np.uint32)
    legacy = run(f"v_{name}_legacy_f32", bits, F32)
    np.testing.assert_array_equal(legacy, run(f"v_{name}_f32", bits, F32))


def test_the_screen_table():
    """The whole byte selects, higher bits do not; spot values from the manuals of Vega."""
    bits = np.arange(256, dtype=np.uint32).reshape(4, 64)
    table = run("v_screen_partition_4se_b32", bits | np.uint32(0xABCDEF00), U32).reshape(-1)
    assert np.all((table > 0) & (table < 16))
    spots = {0: 1, 1: 3, 2: 7, 4: 5, 17: 2, 18: 6, 34: 4, 48: 9, 51: 8, 85: 8, 102: 1, 119: 2, 136: 2, 170: 8, 255: 1}
    assert {i: int(table[i]) for i in spots} == spots
