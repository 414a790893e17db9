"""Where results go, and what EXEC lets through."""

import numpy as np
from filled_wave import LANES, PARTIAL, make_wave, pair, run

from gfx950.isa.operand_codes import EXEC, M0, VCC


def bits_of(mask):
    return [bool(mask >> n & 1) for n in LANES]


def test_results_reach_active_lanes_only(assemble):
    wave = make_wave(PARTIAL)
    before = wave.vgprs.copy()
    run(wave, assemble, "v_add_u32 v5, v1, v2")
    assert wave.vgprs[5].tolist() == np.where(bits_of(PARTIAL), before[1] + before[2], before[5]).tolist()
    before[5] = wave.vgprs[5]
    assert (wave.vgprs == before).all()


def test_empty_exec_writes_nothing(assemble):
    wave = make_wave(0)
    before = wave.vgprs.copy()
    run(wave, assemble, "v_add_u32 v5, v1, v2\nds_read_b32 v6, v1\nds_bpermute_b32 v7, v1, v2")
    assert (wave.vgprs == before).all()


def test_compares_replace_all_64_bits(assemble):
    wave = make_wave(PARTIAL)
    wave.sgprs[10:12] = 0xFFFFFFFF
    run(wave, assemble, "v_cmp_lt_u32_e64 s[10:11], v1, v2\nv_cmp_ge_u32 vcc, v1, v2")
    less = sum(int(a < b) << n for n, (a, b) in enumerate(zip(wave.vgprs[1], wave.vgprs[2], strict=True)))
    assert pair(wave, 10) == less & PARTIAL
    assert pair(wave, VCC) == ~less & PARTIAL


def test_cmpx_writes_exec_and_its_destination(assemble):
    wave = make_wave(PARTIAL)
    run(wave, assemble, "v_cmpx_lt_u32_e64 s[10:11], v1, v2")
    less = sum(int(a < b) << n for n, (a, b) in enumerate(zip(wave.vgprs[1], wave.vgprs[2], strict=True)))
    assert pair(wave, 10) == pair(wave, EXEC) == less & PARTIAL


def test_scalar_results_ignore_exec(assemble):
    wave = make_wave(0)
    run(wave, assemble, "s_add_u32 s40, s1, s2\nv_readlane_b32 s41, v1, 37")
    assert wave.sgprs[40] == int(wave.sgprs[1]) + int(wave.sgprs[2]) & 0xFFFFFFFF
    assert wave.sgprs[41] == wave.vgprs[1][37]


def test_special_scalar_destinations(assemble):
    wave = make_wave()
    run(wave, assemble, "s_mov_b32 m0, 7\ns_mov_b64 vcc, 5\ns_mov_b64 exec, 9")
    assert (wave.sgprs[M0], pair(wave, VCC), pair(wave, EXEC)) == (7, 5, 9)
    run(wave, assemble, "v_mov_b32 v9, 1")
    assert np.flatnonzero(wave.vgprs[9]).tolist() == [0, 3]
