"""One wave on the numpy engine: registers and single steps."""

import numpy as np
import pytest

from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.isa.encoding import decode


def test_a_step_writes_only_active_lanes_and_stays_in_place(assemble):
    wave = Wave()
    wave.vgprs[1] = np.arange(64)
    wave.set_exec(0x5)
    assert wave.step(decode(assemble("v_add_u32 v2, v1, v1"), 0)) is None
    assert wave.pc == 0
    assert wave.vgprs[2].tolist() == [0, 0, 4] + [0] * 61


def test_exec_is_the_scalar_pair_126():
    wave = Wave()
    assert wave.sgprs[126:128].tolist() == [0xFFFFFFFF] * 2
    wave.set_exec(1 << 40 | 3)
    assert wave.sgprs[126:128].tolist() == [3, 1 << 8]
    assert np.flatnonzero(wave.exec_mask()).tolist() == [0, 1, 40]


def test_registers_that_do_not_exist():
    wave = Wave()
    with pytest.raises(UnsupportedForm, match=r"past the last vector register \(a256\)"):
        wave.vgpr(512)
    with pytest.raises(UnsupportedForm, match="scalar code 128 is no register"):
        wave.set_sgpr(128, np.zeros(1, np.uint32))


def test_accesses_of_the_last_step_are_kept(assemble):
    wave = Wave(np.zeros(1024, np.uint8))
    wave.vgprs[1] = np.arange(64) * 4
    wave.step(decode(assemble("ds_write_b32 v1, v1"), 0))
    assert np.array_equal(wave.last_lds[0][0], wave.vgprs[1])
    assert np.array_equal(wave.lds[:256].view(np.uint32), wave.vgprs[1])
    wave.step(decode(assemble("v_mov_b32 v2, 0"), 0))
    assert wave.last_lds == []
