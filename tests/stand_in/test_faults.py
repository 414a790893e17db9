"""Faults that the stand-in puts in: one bit, after the instruction, execution, wave and workgroup asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hip_stand_in import Fault, offset_of, stand_in
from kernel_builds import compile_c

from emu.code_object import load
from emu.dispatch import Device, RunOptions
from gfx950.isa.text import assemble

LOOP = """
KERNEL k(GLOBAL u32 *out, u32 n) {
  u32 sum = 0;
  for (u32 i = 0; i < n; i++) { sum += ITEM; __asm__ volatile("" : "+v"(sum)); }
  out[GROUP * ITEMS + ITEM] = sum;
}"""


def sums(*faults, n=4, groups=2, block=128, engine="device"):
    out = np.zeros((groups, block), np.uint32)
    with stand_in(faults=faults) as s:
        Device(RunOptions(engine=engine)).load(compile_c(LOOP))["k"][groups, block](out, np.uint32(n))
    return out, s


def right(n=4, groups=2, block=128):
    return np.tile(np.arange(block, dtype=np.uint32) * n, (groups, 1))


def the_sum():
    """The addition of the loop: its offset and register."""
    return offset_of(compile_c(LOOP), "v_add_u32_e32 v1, v1, v0"), "v1"


def test_without_faults_the_sums_are_right():
    np.testing.assert_array_equal(sums()[0], right())


def test_one_bit_of_one_lane_of_one_wave_in_one_execution():
    offset, register = the_sum()
    fault = Fault("k", offset, register, bit=20, lane=5, execution=2, wave=1, workgroup=(1, 0, 0))
    want = right()
    want[1, 64 + 5] += 1 << 20
    found, s = sums(fault)
    np.testing.assert_array_equal(found, want)
    assert s.faults.done == {fault: 1}


def test_every_execution_wave_and_workgroup():
    offset, register = the_sum()
    fault = Fault("k", offset, register, bit=20, lane=5)
    found, s = sums(fault, n=3)
    want = right(3)
    want[:, [5, 69]] ^= 1 << 20  # three times is once
    np.testing.assert_array_equal(found, want)
    assert s.faults.done == {fault: 12}


def test_executions_are_counted_in_each_launch():
    offset, register = the_sum()
    fault = Fault("k", offset, register, bit=20, lane=0, execution=4, wave=0, workgroup=(0, 0, 0))
    out = np.zeros(64, np.uint32)
    with stand_in(faults=[fault]) as s:
        kernel = Device(RunOptions(engine="device")).load(compile_c(LOOP))["k"]
        for _ in range(3):
            kernel[1, 64](out, np.uint32(4))
            assert out[0] == 1 << 20
    assert s.faults.done[fault] == 3


def test_a_stored_byte():
    offset = offset_of(compile_c(LOOP), "global_store_dword")
    want = right()
    want[1, 70] ^= 1 << 9
    found, _ = sums(Fault("k", offset, "store", bit=9, lane=6, wave=1, workgroup=(1, 0, 0)))
    np.testing.assert_array_equal(found, want)


THROUGH_LDS = """
KERNEL k(GLOBAL u32 *out, u32 n) {
  SHARED(u32, room, 64);
  room[ITEM ^ 1] = ITEM + n; BARRIER();
  out[ITEM] = room[ITEM];
}"""


def test_a_byte_stored_in_lds():
    fault = Fault("k", offset_of(compile_c(THROUGH_LDS), "ds_write"), "store", bit=12, lane=3)
    out = np.zeros(64, np.uint32)
    with stand_in(faults=[fault]) as s:
        Device(RunOptions(engine="device")).load(compile_c(THROUGH_LDS))["k"][1, 64](out, 0)
    np.testing.assert_array_equal(out, (np.arange(64) ^ 1) + np.where(np.arange(64) == 2, 1 << 12, 0))
    assert s.faults.done == {fault: 1}


def test_the_condition_code_and_a_scalar_register():
    """A loop whose end is seen too early, and one whose counter says so."""
    compare, count = (offset_of(compile_c(LOOP), text) for text in ("s_cmp_eq_u32 s3, 0", "s_add_i32 s3, s3, -1"))
    one = {"execution": 1, "wave": 0, "workgroup": (0, 0, 0)}
    early = right()
    early[0, :64] = np.arange(64)
    np.testing.assert_array_equal(sums(Fault("k", compare, "scc", **one))[0], early)
    early[0, :64] *= 2  # 3 turns left become 1
    np.testing.assert_array_equal(sums(Fault("k", count, "s3", bit=1, **one))[0], early)


def test_one_launch_of_several():
    offset, register = the_sum()
    fault = Fault("k", offset, register, bit=20, lane=0, execution=4, launch=2)
    out, found = np.zeros(64, np.uint32), []
    with stand_in(faults=[fault]):
        kernel = Device(RunOptions(engine="device")).load(compile_c(LOOP))["k"]
        for _ in range(3):
            kernel[1, 64](out, np.uint32(4))
            found.append(int(out[0]))
    assert found == [0, 1 << 20, 0]


def displaced(code, offset):
    """The kernel with the instruction of 4 bytes at an offset run elsewhere: in the padding behind the kernel."""
    loaded = load(code)
    k = loaded.kernel("k")
    file_at = code.index(loaded.code_of(k).data) - loaded.code_of(k).address
    place, room = k.entry + offset, k.entry + offset_of(code, "s_endpgm") + 4
    moved = bytearray(code)
    instruction = code[file_at + place : file_at + place + 4]
    moved[file_at + place : file_at + place + 4] = assemble("s_branch there", place, {"there": room})
    back = assemble("s_branch back", room + 4, {"back": place + 4})
    moved[file_at + room : file_at + room + 8] = instruction + back
    return bytes(moved)


def test_an_instruction_that_runs_elsewhere_has_its_fault_when_the_wave_is_back():
    """As in a kernel that was made to show its registers."""
    offset, register = the_sum()
    code = displaced(compile_c(LOOP), offset)
    fault = Fault("k", offset, register, bit=20, lane=5, execution=2, wave=1, workgroup=(1, 0, 0))
    for faults in ((), (fault,)):
        out = np.zeros((2, 128), np.uint32)
        with stand_in(faults=faults) as s:
            Device(RunOptions(engine="device")).load(code)["k"][2, 128](out, np.uint32(4))
        want = right()
        want[1, 64 + 5] += (1 << 20) * len(faults)
        np.testing.assert_array_equal(out, want)
    assert s.faults.done == {fault: 1}


def test_a_fault_in_another_kernel_or_place_does_nothing():
    offset, register = the_sum()
    for fault in (Fault("other", offset, register), Fault("k", offset + 2, register)):
        found, s = sums(fault)
        np.testing.assert_array_equal(found, right())
        assert not s.faults.done


@pytest.mark.parametrize("engine", ["host", "numpy"])
def test_the_emulator_itself_has_no_fault(engine):
    offset, register = the_sum()
    np.testing.assert_array_equal(sums(Fault("k", offset, register), engine=engine)[0], right())
