"""Scratch memory, flat addresses into LDS and scratch, and what goes wrong there."""

import numpy as np
import pytest
from kernel_builds import assemble_kernel, compile_c

from emu.dispatch import Device, RunOptions
from emu.errors import MemoryFault

ENGINES = ["host", "numpy"]
SOURCE = """
KERNEL reversed(GLOBAL u32* out, u32 n) {
    u32 local[24];
    for (u32 i = 0; i < n; i++) local[i] = i * i + ITEM;
    u32 total = 0;
    for (u32 i = 0; i < n; i++) total = total * 3 + local[n - 1 - i];
    out[GROUP * ITEMS + ITEM] = total;
}
static __attribute__((noinline)) u32 sum(const u32* p, u32 n) { u32 s = 0; while (n--) s = s * 7 + *p++; return s; }
SHARED(u32, shared, 256);
KERNEL generic(GLOBAL u32* out) {
    u32 local[8];
    for (u32 i = 0; i < 8; i++) local[i] = ITEM + i;
    shared[ITEM] = ITEM * 11;
    BARRIER();
    const u32* p = ITEM & 1 ? (const u32*)local : (const u32*)(shared + (ITEM & 248));
    out[ITEM] = sum(p, 8);
}
static __attribute__((noinline)) u32 fib(u32 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
KERNEL recursion(GLOBAL u32* out) { out[ITEM] = fib(ITEM & 7); }
"""


def launch(engine, name, out, *more, level="-O0", block=64, grid=1, threads=1):
    device = Device(RunOptions(engine=engine, threads=threads))
    device.load(compile_c(SOURCE, level))[name][grid, block](out, *more)
    return out


def reversed_model(items, n):
    item = np.arange(items, dtype=np.uint32)
    total = np.zeros(items, np.uint32)
    for i in reversed(range(n)):
        total = total * np.uint32(3) + (np.uint32(i * i) + item % np.uint32(128))
    return total


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("level", ["-O0", "-O1"])
def test_local_arrays_live_in_scratch(engine, level):
    out = launch(engine, "reversed", np.zeros(256, np.uint32), np.uint32(24), level=level, block=128, grid=2)
    assert np.array_equal(out, reversed_model(256, 24))


def test_workgroups_on_two_threads_have_scratch_of_their_own():
    out = launch("host", "reversed", np.zeros(128 * 40, np.uint32), np.uint32(20), block=128, grid=40, threads=2)
    assert np.array_equal(out, reversed_model(128 * 40, 20))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_generic_pointers_reach_lds_and_scratch(engine, level):
    out = launch(engine, "generic", np.zeros(256, np.uint32), level=level, block=256)
    item = np.arange(256, dtype=np.uint32)
    expected = np.zeros(256, np.uint32)
    for i in range(8):
        odd = item + np.uint32(i)
        even = ((item & np.uint32(248)) + np.uint32(i)) * np.uint32(11)
        expected = expected * np.uint32(7) + np.where(item & 1, odd, even)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_recursion_has_a_stack(engine):
    out = launch(engine, "recursion", np.zeros(64, np.uint32))
    assert np.array_equal(out, np.array([0, 1, 1, 2, 3, 5, 8, 13] * 8, np.uint32))


SCRATCH = ".amdhsa_private_segment_fixed_size 64"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("line", "offset"),
    [("scratch_load_dword v1, off, off offset:64", 64), ("scratch_store_byte v2, v1, off offset:-1", 0xFFFFFFFF)],
)
def test_an_access_past_a_lanes_scratch_is_a_fault(engine, line, offset):
    code = assemble_kernel(f"v_mov_b32 v2, 0\n{line}\ns_endpgm", SCRATCH)
    with pytest.raises(MemoryFault, match=f"byte {offset} of the scratch aperture") as caught:
        Device(RunOptions(engine=engine)).load(code)["k"][1, 64](b"")
    assert caught.value.lane == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_every_addressing_of_scratch_reaches_the_same_byte(engine):
    text = """
    s_load_dwordx2 s[0:1], s[0:1], 0x0
    v_mov_b32 v2, 12
    s_mov_b32 s4, 8
    v_lshl_add_u32 v3, v0, 8, v0
    scratch_store_dword v2, v3, s4 offset:4
    scratch_load_dword v4, off, off offset:24
    s_mov_b32 s5, 24
    scratch_load_ushort v5, off, s5
    v_mov_b32 v6, 23
    scratch_load_ubyte v7, v6, off offset:1
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_xor_b32 v4, v4, v3
    v_xor_b32 v5, v5, v3
    v_sub_u32 v7, v7, v0
    v_or3_b32 v1, v4, v5, v7
    v_lshlrev_b32 v40, 2, v0
    global_store_dword v40, v1, s[0:1]
    s_endpgm
    """
    out = np.full(64, 7, np.uint32)
    device = Device(RunOptions(engine=engine))
    kernarg = np.array([device.map(out)], np.uint64).tobytes()
    device.load(assemble_kernel(text, SCRATCH))["k"][1, 64](kernarg)
    assert not out.any()
