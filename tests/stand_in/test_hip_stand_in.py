"""The stand-in itself: what it must notice, and that it can be used for long."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hip_stand_in import stand_in
from kernel_builds import compile_c

from emu.dispatch import Device, RunOptions
from gfx950.hip import Hip, HipError

KERNEL = "KERNEL k(GLOBAL u32 *out, GLOBAL u32 *in) { out[ITEM] = in[ITEM] + 1; }"


@pytest.fixture
def s():
    with stand_in() as started:
        yield started


def launch():
    out, given = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32)
    Device(RunOptions(engine="device")).load(compile_c(KERNEL))["k"][1, 64](out, given)
    np.testing.assert_array_equal(out, given + 1)


def test_a_leak_is_an_error_and_so_is_a_store_beyond_an_allocation():
    with pytest.raises(AssertionError, match="did not give everything back"), stand_in():
        Hip().allocate(8)
    with stand_in(check_leaks=False) as s:
        buffer = Hip().allocate(8)
        [(host, nbytes)] = s.allocations().values()
        ctypes.memset(host + nbytes, 0, 1)
        assert s.leaks() == {"memory": 1, "damage": 1}
        buffer.close()
        assert s.leaks() == {"damage": 1}


def test_what_was_left_by_one_is_not_in_the_next():
    with stand_in(check_leaks=False) as s:
        Hip().allocate(8)
        s.fail("hipMalloc", 1)
        s.fail_later(700)
    with stand_in() as s:
        assert s.leaks() == {}
        launch()


def test_fresh_memory_is_not_zero(s):
    with Hip().allocate(4) as buffer:
        assert buffer.read().tolist() == [0xA5] * 4


@pytest.mark.parametrize(
    ("call", "arguments", "number"),
    [
        ("hipFree", (1 << 40,), 17),
        ("hipModuleUnload", (16,), 400),
        ("hipStreamDestroy", (16,), 400),
        ("hipStreamSynchronize", (16,), 400),
        ("hipEventDestroy", (16,), 400),
        ("hipEventSynchronize", (16,), 400),
        ("hipEventRecord", (16, None), 400),
        ("hipModuleLaunchKernel", (16, 1, 1, 1, 64, 1, 1, 0, None, None, None), 400),
        ("hipMemset", (16, 0, 1), 1),
        ("hipMemcpy", (16, 32, 1, 1), 1),
        ("hipMemcpy", (16, 32, 1, 4), 21),
        ("hipSetDevice", (1,), 101),
        (
            "hipModuleLoadData",
            (ctypes.byref(ctypes.c_void_p()), b"no ELF file at all, but long enough to be one" * 2),
            200,
        ),
    ],
)
def test_it_knows_its_own_handles(s, call, arguments, number):
    with pytest.raises(HipError, match=f"^{call} failed with {number} "):
        Hip().call(call, *arguments)


def test_part_of_a_buffer_is_no_buffer_to_give_back(s):
    hip = Hip()
    with hip.allocate(64) as buffer, pytest.raises(HipError, match="hipFree failed with 17"):
        hip.call("hipFree", buffer.address + 8)


def test_memory_that_was_given_back_is_none(s):
    hip = Hip()
    with hip.allocate(64) as buffer:
        address = buffer.address
    with hip.allocate(64) as other:
        assert other.address != address
    with pytest.raises(HipError, match="hipMemset failed with 1"):
        hip.call("hipMemset", address, 0, 1)


def test_it_lasts_longer_than_its_addresses(s):
    launch()
    with Hip().allocate(8) as first:
        s.library.stand_in_region(0x6FFE)
        s._device.memory._next = 0xF001
        launch()
        launch()
        assert first.address >> 32 not in {int(a) >> 32 for one in s.launches[1:] for a in arrays(one.kernarg)}


def arrays(kernarg):
    return np.frombuffer(kernarg, np.uint64)


def test_an_interrupt_inside_the_emulator_is_the_caller_s(s, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(s, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch()
    assert s.leaks() == {}
    assert isinstance(s.errors[0], KeyboardInterrupt)


def test_one_stand_in_at_a_time(s):
    with pytest.raises(RuntimeError, match="a stand-in is at work already"), stand_in():
        pass
