"""Rules of scalar instructions and program flow."""

import itertools

import numpy as np
import pytest
from programs import Setting, expect, run

from emu.errors import EmulatorError
from gfx950.isa.encoding import ENCODINGS
from gfx950.isa.mode_registers import STATUS

MIN_MAX = expect(
    "\n".join(
        f"s_{name} s{20 + 2 * i}, s4, s5\ns_cselect_b32 s{21 + 2 * i}, 1, 0"
        for i, name in enumerate(("max_i32", "max_u32", "min_i32", "min_u32"))
    )
)
ABSDIFF = expect("s_absdiff_i32 s6, s4, 1\ns_absdiff_i32 s7, s4, 0\ns_absdiff_i32 s8, 3, s9")
MOVREL = expect("""
s_movrels_b64 s[20:21], s[4:5]
s_movrels_b32 s22, s4
s_movreld_b64 s[24:25], s[8:9]
s_mov_b32 m0, 0x102
s_movrels_b32 s23, s4
s_movreld_b32 s30, s8
""")
DEBUG_BRANCHES = expect(
    "\n".join(
        f"s_mov_b32 s{4 + i}, 1\ns_cbranch_cdbg{name} 1f\ns_mov_b32 s{4 + i}, 0\n1:"
        for i, name in enumerate(("sys", "user", "sys_or_user", "sys_and_user"))
    )
)
PRIORITY = expect(
    "s_setprio 2\ns_getreg_b32 s4, hwreg(HW_REG_STATUS)\ns_setprio 3\ns_getreg_b32 s5, hwreg(HW_REG_STATUS)"
)


@pytest.mark.rule("RJ-072", "P8.2")
@pytest.mark.parametrize(("a", "b"), [(5, 5), (4, 5), (5, 4), (0x80000000, 1), (1, 0x80000000)])
def test_scc_of_minimum_and_maximum(a, b):
    got = run(MIN_MAX, s={4: a, 5: b})
    signed = [n - (n >> 31 << 32) for n in (a, b)]
    wanted = [signed[0] >= signed[1], a >= b, signed[0] < signed[1], a < b]
    assert [got.s(n) for n in (21, 23, 25, 27)] == wanted
    assert [got.s(n) for n in (22, 26)] == [max(a, b), min(a, b)]


@pytest.mark.rule("RJ-087")
def test_absdiff_subtracts_in_32_bits_first():
    got = run(ABSDIFF, s={4: 0x80000000, 9: 10})
    assert [got.s(n) for n in (6, 7, 8)] == [0x7FFFFFFF, 0x80000000, 7]


@pytest.mark.rule("RJ-073")
def test_relative_moves_count_registers():
    got = run(MOVREL, s={n: 100 + n for n in range(4, 12)} | {0: 77}, m0=2)
    assert got.s(20, 2) == 106 | 107 << 32, "M0 is not doubled for pairs"
    assert got.s(22) == 106
    assert (got.s(26, 2), got.s(24, 2)) == (108 | 109 << 32, 0)
    assert got.s(23) == 77, "register 262 is past the last: s0"
    assert (got.s(30), got.s(32)) == (0, 0), "and not written, nor is M0 cut to 8 bits"


@pytest.mark.rule("RJ-060")
@pytest.mark.parametrize(("system", "user"), list(itertools.product((0, 1), repeat=2)))
def test_debug_branches_test_their_flags(system, user):
    got = run(DEBUG_BRANCHES, hardware={STATUS: system << 21 | user << 20})
    assert [got.s(4 + n) for n in range(4)] == [system, user, system | user, system & user]


@pytest.mark.rule("RJ-062.2")
def test_the_priority_is_in_status():
    got = run(PRIORITY, hardware={STATUS: 0x10000})
    assert [got.s(n) >> 3 & 3 for n in (4, 5)] == [2, 3]
    assert got.s(4) & ~0x18 == got.s(5) & ~0x18 == 0x10400


@pytest.mark.rule("RJ-062")
def test_sleeping_and_waking_change_nothing():
    got = run("s_sleep 127\ns_wakeup\ns_sleep 0\ns_getreg_b32 s4, hwreg(HW_REG_STATUS)", setting=Setting(waves=2))
    assert [one.instructions for one in got] == [5, 5]
    assert not got.vgprs.any()


def sop(form, op, **fields):
    return ENCODINGS[form].pack({"op": op, **fields}).to_bytes(4, "little") + b"\0\0\x81\xbf"


@pytest.mark.rule("RJ-070")
@pytest.mark.parametrize(
    "fields",
    [
        {"form": "SOP1", "op": 1, "sdst": 4, "ssrc0": 7},
        {"form": "SOP1", "op": 1, "sdst": 5, "ssrc0": 6},
        {"form": "SOP2", "op": 13, "sdst": 4, "ssrc0": 6, "ssrc1": 9},
        {"form": "SOPC", "op": 18, "ssrc0": 7, "ssrc1": 8},
    ],
)
def test_pairs_start_even(fields):
    code = sop(**fields)
    for engine in ("numpy", "host"):
        with pytest.raises(EmulatorError, match="odd"):
            run(code, engines=(engine,))
    even = sop(**{k: n & ~1 if k.startswith("s") else n for k, n in fields.items()})
    assert np.array_equal(run(even, s={6: 1 << 40}).sgprs[6:8], [0, 256])
