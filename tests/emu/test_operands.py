"""Operands beside the plain sources: carries, accumulation registers, a destination that is read as well."""

import numpy as np
import pytest
from filled_wave import ALL, LANES, PARTIAL, make_wave, pair, run

from gfx950.isa.operand_codes import VCC


def test_destination_may_be_a_source(assemble):
    wave = make_wave()
    before = wave.vgprs.copy()
    run(wave, assemble, "v_lshl_add_u64 v[2:3], v[2:3], 1, v[4:5]")
    wide = before[2:6].astype(object)
    want = [((int(a) | int(b) << 32) * 2 + (int(c) | int(d) << 32)) & ALL for a, b, c, d in wide.T]
    assert [int(a) | int(b) << 32 for a, b in wave.vgprs[2:4].T] == want


@pytest.mark.parametrize("carry", [0, ALL, 0x0123456789ABCDEF])
def test_carry_in_is_vcc_or_the_pair_named(assemble, carry):
    forms = (("v_addc_co_u32 v9, vcc, v1, v2, vcc", VCC), ("v_addc_co_u32_e64 v9, vcc, v1, v2, s[20:21]", 20))
    for text, source in forms:
        wave = make_wave(PARTIAL)
        wave.sgprs[source], wave.sgprs[source + 1] = carry & 0xFFFFFFFF, carry >> 32
        run(wave, assemble, text)
        sums = [int(wave.vgprs[1][n]) + int(wave.vgprs[2][n]) + (carry >> n & 1) for n in LANES]
        assert pair(wave, VCC) == sum((s >> 32) << n for n, s in enumerate(sums)) & PARTIAL
        want = [s & 0xFFFFFFFF if PARTIAL >> n & 1 else 0 for n, s in enumerate(sums)]
        assert wave.vgprs[9].tolist() == want


def test_memory_data_may_live_in_accumulation_registers(assemble):
    wave = make_wave()
    wave.vgprs[1] = 16 * np.arange(64)
    run(wave, assemble, "ds_read_b128 a[4:7], v1")
    for word in range(4):
        assert (wave.vgprs[256 + 4 + word] == 4 * np.arange(64) + word).all()
    run(wave, assemble, "ds_write_b32 v1, a7 offset:4")
    assert (wave.lds.view(np.uint32)[1:256:4] == wave.vgprs[263]).all()
