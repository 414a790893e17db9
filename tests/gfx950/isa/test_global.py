"""FLAT and GLOBAL loads and stores against byte slices: widths, halves kept, addressing, faults."""

import random

import memory_loads
import numpy as np
import pytest
from memory_loads import number

from emu.errors import MemoryFault
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load

LANES = range(64)
PARTIAL = 0x8000_00FF_1234_F001
NBYTES = 8192
MIDDLE = 4096


@pytest.fixture
def wave():
    wave = Wave(memory=Memory())
    wave.bytes = np.frombuffer(random.Random("memory").randbytes(NBYTES), dtype=np.uint8).copy()
    wave.base = wave.address_space.map(wave.bytes, name="bytes")
    for index in range(10, 30):
        wave.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    return wave


def point(wave, offsets):
    """v[2:3] = base + offsets; s[4:5] = base, v4 = offsets."""
    addresses = np.array([wave.base + o for o in offsets], dtype=np.uint64)
    wave.vgprs[2], wave.vgprs[3] = addresses.astype(np.uint32), (addresses >> np.uint64(32)).astype(np.uint32)
    wave.vgprs[4] = np.array(offsets, dtype=np.uint32)
    wave.sgprs[4], wave.sgprs[5] = wave.base & 0xFFFFFFFF, wave.base >> 32


def spread(seed, limit=3000):
    return [MIDDLE + random.Random(f"{seed} {n}").randrange(-limit, limit) for n in LANES]


FORMS = {"flat": ("v[2:3]", "", 0x7F), "global": ("v[2:3]", ", off", -0x20), "saddr": ("v4", ", s[4:5]", 0x15)}


def text(form, name, register, is_store):
    address, base, offset = FORMS[form]
    operands = f"{address}, {register}" if is_store else f"{register}, {address}"
    return f"{'flat' if form == 'flat' else 'global'}_{name} {operands}{base} offset:{offset}"


def run(wave, assemble, line):
    wave.step(decode(assemble(line), 0))


LOADS = {f"load_{name}": load for name, load in memory_loads.LOADS.items()}
STORES = {
    "store_byte": (1, lambda r: r),
    "store_byte_d16_hi": (1, lambda r: r >> 16),
    "store_short": (2, lambda r: r),
    "store_short_d16_hi": (2, lambda r: r >> 16),
    "store_dword": (4, lambda r: r),
    "store_dwordx2": (8, lambda r: r),
    "store_dwordx3": (12, lambda r: r),
    "store_dwordx4": (16, lambda r: r),
}


def register_text(nbytes):
    words = max(1, nbytes // 4)
    return f"v[20:{19 + words}]" if words > 1 else "v20"


def lane_value(registers, lane, nbytes):
    return sum(int(registers[20 + i][lane]) << 32 * i for i in range(max(1, nbytes // 4)))


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("name", sorted(LOADS))
def test_loads(wave, assemble, name, form):
    nbytes, expected = LOADS[name]
    offsets = spread(name)
    point(wave, offsets)
    wave.set_exec(PARTIAL)
    old = wave.vgprs.copy()
    run(wave, assemble, text(form, name, register_text(nbytes), False))
    for n in LANES:
        at = offsets[n] + FORMS[form][2]
        before = lane_value(old, n, nbytes)
        want = expected(wave.bytes[at : at + nbytes], before) if PARTIAL >> n & 1 else before
        assert lane_value(wave.vgprs, n, nbytes) == want & (1 << 32 * max(1, nbytes // 4)) - 1


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("name", sorted(STORES))
@pytest.mark.parametrize("limit", [3000, 5])
def test_stores(wave, assemble, name, form, limit):
    nbytes, value = STORES[name]
    offsets = spread(name, limit)
    point(wave, offsets)
    wave.set_exec(PARTIAL)
    expected = wave.bytes.copy()
    for n in LANES:
        if PARTIAL >> n & 1:
            at = offsets[n] + FORMS[form][2]
            datum = value(lane_value(wave.vgprs, n, nbytes)) & (1 << 8 * nbytes) - 1
            expected[at : at + nbytes] = np.frombuffer(datum.to_bytes(nbytes, "little"), dtype=np.uint8)
    run(wave, assemble, text(form, name, register_text(nbytes), True))
    assert (wave.bytes == expected).all()


TO_LDS = {  # name: (bytes read, dwords written, stride in LDS, signed)
    "ubyte": (1, 1, 4, False),
    "sbyte": (1, 1, 4, True),
    "ushort": (2, 1, 4, False),
    "sshort": (2, 1, 4, True),
    "dword": (4, 1, 4, False),
    "dwordx3": (12, 3, 16, False),
    "dwordx4": (16, 4, 16, False),
}


@pytest.mark.parametrize("name", sorted(TO_LDS))
@pytest.mark.parametrize("offset", [0x18, -0x20])
def test_loads_to_lds(wave, assemble, name, offset):
    nbytes, words, stride, sign = TO_LDS[name]
    offsets = spread(name)
    point(wave, offsets)
    wave.set_exec(PARTIAL)
    wave.lds = np.full(1024, 0xEE, np.uint8)
    wave.sgprs[124] = 0xFFF00000 + 0x103  # M0: bits above 17 and below 2 do not count
    expected = wave.lds.copy()
    for n in LANES:
        at, place = offsets[n] + offset, 0x100 + offset + stride * n
        value = number(wave.bytes[at : at + nbytes], sign) & (1 << 32 * words) - 1
        for word in range(words):
            if PARTIAL >> n & 1 and place + 4 * word + 4 <= 1024:
                dword = (value >> 32 * word & 0xFFFFFFFF).to_bytes(4, "little")
                expected[place + 4 * word :][:4] = np.frombuffer(dword, dtype=np.uint8)
    run(wave, assemble, f"global_load_lds_{name} v4, s[4:5] offset:{offset}")
    assert (wave.lds == 0xEE).all(), "the data land at a wait [rule lds.late_landing]"
    run(wave, assemble, "s_waitcnt vmcnt(0)")
    assert (wave.lds == expected).all()


def test_accumulation_registers(wave, assemble):
    point(wave, [16 * n for n in LANES])
    run(wave, assemble, "global_load_dwordx2 a[6:7], v[2:3], off offset:4")
    assert (wave.vgprs[256 + 6] == wave.bytes.view(np.uint32)[1::4][:64]).all()
    run(wave, assemble, "global_store_dword v[2:3], a7, off")
    assert (wave.bytes.view(np.uint32)[::4][:64] == wave.vgprs[256 + 7]).all()


def test_scalar_base_offset_is_unsigned(wave, assemble):
    """VGPR offsets are 32 unsigned bits: 0xfffffff0 is 4 GiB away, not 16 bytes back."""
    point(wave, [0] * 64)
    wave.vgprs[4] = 0xFFFFFFF0
    with pytest.raises(MemoryFault):
        run(wave, assemble, "global_load_dword v20, v4, s[4:5] offset:64")


@pytest.mark.parametrize("offset", [-4096, 4095])
def test_the_whole_offset_range(wave, assemble, offset):
    point(wave, [MIDDLE] * 64)
    run(wave, assemble, f"global_load_ubyte v20, v[2:3], off offset:{offset}")
    assert (wave.vgprs[20] == wave.bytes[MIDDLE + offset]).all()


def test_flat_offset_has_12_bits(wave, assemble):
    point(wave, [0] * 64)
    run(wave, assemble, "flat_load_ubyte v20, v[2:3] offset:4095")
    assert (wave.vgprs[20] == wave.bytes[4095]).all()


def test_inactive_lanes_do_not_fault(wave, assemble):
    point(wave, [0] * 64)
    wave.vgprs[3][5] = 0
    wave.vgprs[2][5] = 0
    with pytest.raises(MemoryFault, match="lane 5"):
        run(wave, assemble, "global_load_dword v20, v[2:3], off")
    wave.set_exec(~(1 << 5) & (1 << 64) - 1)
    run(wave, assemble, "global_load_dword v20, v[2:3], off")


def test_every_definition_is_tested():
    names = {f"global_load_lds_{name}" for name in TO_LDS}
    names |= {f"{segment}_{name}" for segment in ("flat", "global") for name in (*LOADS, *STORES)}
    mine = [i for i in load().values() if i.body.__module__ == "gfx950.isa.global_memory"]
    assert {i.name for i in mine if i.encoding != "SCRATCH"} == names  # the same bodies; tests/emu/test_scratch.py
