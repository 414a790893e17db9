"""Instructions that are another one in other clothes, and those that change nothing: equal bits where they must be."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode

ACTIVE = 0x8000_00FF_1234_F001
BYTES = 8192


def bits(seed, count):
    return np.frombuffer(random.Random(seed).randbytes(4 * count), np.uint32)


@pytest.fixture
def make():
    """`make()`: a wave with the same random registers, LDS and memory each time; v2 = offsets, v[4:5] = addresses."""

    def fresh():
        wave = Wave(np.frombuffer(random.Random("lds").randbytes(BYTES), np.uint8).copy(), Memory())
        wave.vgprs[:] = bits("vgprs", 512 * 64).reshape(512, 64)
        wave.sgprs[:100] = bits("sgprs", 100)
        wave.bytes = np.frombuffer(random.Random("memory").randbytes(BYTES), np.uint8).copy()
        base = wave.address_space.map(wave.bytes)
        offsets = np.array(random.Random("offsets").sample(range(0, BYTES, 16), 64), np.uint64)
        wave.vgprs[2], wave.vgprs[3] = offsets, 0
        wave.vgprs[4], wave.vgprs[5] = (base + offsets) & 0xFFFFFFFF, (base + offsets) >> 32
        wave.sgprs[8], wave.sgprs[9] = base & 0xFFFFFFFF, base >> 32
        wave.set_exec(ACTIVE)
        return wave

    return fresh


def step(wave, assemble, *lines):
    for line in lines:
        wave.step(decode(assemble(line), 0))
    return wave


def state(wave):
    return wave.vgprs.copy(), wave.sgprs.copy(), wave.scc_bit, wave.lds.copy(), wave.bytes.copy()


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def registers(first, words):
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def words_at(data, wave, words):
    """What stood at each lane's offset, one row a word, as far as lanes are active; the old v40.. elsewhere."""
    rows = data.view(np.uint32)
    active = [bool(ACTIVE >> lane & 1) for lane in range(64)]
    return [np.where(active, rows[wave.vgprs[2] // 4 + n], wave.vgprs[40 + n]) for n in range(words)]


FLOATS = [(f"{name}_f{width}", width // 32) for name in ("add", "min", "max", "cmpst") for width in (32, 64)]
HALVES = [("pk_add_f16", 1), ("pk_add_bf16", 1)]


@pytest.mark.parametrize(("name", "words"), FLOATS + HALVES)
def test_lds_atomics_that_return_do_what_those_do_that_do_not(make, assemble, name, words):
    head, _, kind = name.rpartition("_")
    data = f"{registers(10, words)}, {registers(20, words)}" if head == "cmpst" else registers(10, words)
    before = make()
    plain, returning = make(), make()
    for wave in (plain, returning):  # the comparisons of some lanes succeed
        wave.vgprs[10 : 10 + words, ::4] = np.array(words_at(before.lds, before, words))[:, ::4]
    step(plain, assemble, f"ds_{name} v2, {data}")
    step(returning, assemble, f"ds_{head}_rtn_{kind} {registers(40, words)}, v2, {data}")
    assert np.array_equal(plain.lds, returning.lds)
    assert not np.array_equal(plain.lds, before.lds)
    assert np.array_equal(returning.vgprs[40 : 40 + words], words_at(before.lds, before, words))


FLAT = [("add_f32", 1), ("add_f64", 2), ("min_f64", 2), ("max_f64", 2), *HALVES]


@pytest.mark.parametrize(("name", "words"), FLAT)
@pytest.mark.parametrize("returns", ["", " sc0"])
def test_flat_float_atomics_are_the_global_ones(make, assemble, name, words, returns):
    result = f"{registers(40, words)}, " if returns else ""
    before = make()
    flat = step(make(), assemble, f"flat_atomic_{name} {result}v[4:5], {registers(10, words)}{returns}")
    other = step(make(), assemble, f"global_atomic_{name} {result}v[4:5], {registers(10, words)}, off{returns}")
    assert same(state(flat), state(other))
    assert not np.array_equal(flat.bytes, before.bytes)
    if returns:
        assert np.array_equal(flat.vgprs[40 : 40 + words], words_at(before.bytes, before, words))


WIDENED = "v_cvt_f32_f16 v12, v10; v_cvt_f32_f16 v13, v11"
SAME = [
    ("v_rcp_iflag_f32 v40, v10", "v_rcp_f32 v40, v10"),
    ("v_cvt_pknorm_i16_f16 v40, v10, v11", f"{WIDENED}; v_cvt_pknorm_i16_f32 v40, v12, v13"),
    ("v_cvt_pknorm_u16_f16 v40, v10, v11", f"{WIDENED}; v_cvt_pknorm_u16_f32 v40, v12, v13"),
    ("v_div_fixup_legacy_f16 v40, v10, v11, v12", "v_mov_b32 v40, 0; v_div_fixup_f16 v40, v10, v11, v12"),
    ("v_madak_f16 v40, v10, v11, 0x3e00", "v_mov_b32 v12, 0x3e00; v_mad_legacy_f16 v40, v10, v11, v12"),
    ("v_accvgpr_write_b32 a7, v10; v_accvgpr_mov_b32 a8, a7; v_accvgpr_read_b32 v40, a8", "v_mov_b32 v40, v10"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_result_by_another_way(make, assemble, one, other):
    a, b = step(make(), assemble, *one.split("; ")), step(make(), assemble, *other.split("; "))
    assert np.array_equal(a.vgprs[40], b.vgprs[40])
    assert not np.array_equal(a.vgprs[40], make().vgprs[40])


def test_s_movreld_b64_moves_to_the_register_that_m0_says(make, assemble):
    lines = ("s_mov_b32 m0, 6", "s_movreld_b64 s[16:17], s[32:33]"), ("s_mov_b32 m0, 6", "s_mov_b64 s[22:23], s[32:33]")
    indexed, plain = (step(make(), assemble, *texts) for texts in lines)
    assert same(state(indexed), state(plain))
    assert indexed.sgprs[22] != make().sgprs[22]


def test_v_madak_f16_rounds_product_and_sum(make, assemble):
    """Numbers whose products and sums are normal: numpy's product is exact in f32, the sum is in f64."""
    wave, values = make(), np.linspace(0.51, 3.9, 64).astype(np.float16)
    wave.set_exec((1 << 64) - 1)
    wave.vgprs[10], wave.vgprs[11] = values.view(np.uint16), values[::-1].view(np.uint16)
    step(wave, assemble, "v_madak_f16 v40, v10, v11, 0x3e07")
    literal = float(np.array(0x3E07, np.uint16).view(np.float16))
    expected = ((values * values[::-1]).astype(np.float64) + literal).astype(np.float16)
    assert np.array_equal(wave.vgprs[40].astype(np.uint16), expected.view(np.uint16))


def test_v_rsq_f64_is_near(make, assemble):
    wave, values = make(), np.exp(np.linspace(-600, 600, 64))
    wave.set_exec((1 << 64) - 1)
    wave.vgprs[10:12] = values.view(np.uint32).reshape(64, 2).T
    step(wave, assemble, "v_rsq_f64 v[40:41], v[10:11]")
    found = np.ascontiguousarray(wave.vgprs[40:42].T).view(np.float64).ravel()
    for x, y in zip(values, found, strict=True):
        assert abs(Fraction(x) * Fraction(y) ** 2 - 1) < Fraction(1, 1 << 50)


NOTHING = """
v_nop; v_clrexcp; s_nop 7; s_sleep 3; s_setprio 2; s_icache_inv; s_dcache_inv; s_dcache_inv_vol; s_dcache_wb
s_dcache_wb_vol; s_dcache_discard s[8:9], 0x40; s_dcache_discard_x2 s[8:9], 0x40; s_atc_probe 3, s[8:9], 0x10
s_atc_probe_buffer 3, s[8:11], 0x10; buffer_inv sc1; buffer_wbl2 sc1; s_incperflevel 1; s_decperflevel 1
s_ttracedata; s_wakeup; s_sendmsg sendmsg(MSG_INTERRUPT); s_waitcnt vmcnt(0); ds_nop; s_sethalt 0; s_setkill 0
"""


@pytest.mark.parametrize("line", NOTHING.strip().replace("\n", "; ").split("; "))
def test_hints_waits_and_caches_change_nothing(make, assemble, line):
    assert same(state(step(make(), assemble, line)), state(make()))
