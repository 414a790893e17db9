"""Scalar loads: addressing modes, alignment, the buffer bound."""

import numpy as np
import pytest

from emu.errors import MemoryFault
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode

WORDS = np.arange(64, dtype=np.uint32) * 0x01010101 + 0x1000


@pytest.fixture
def wave():
    memory = Memory()
    wave = Wave(memory=memory)
    address = memory.map(WORDS.copy(), name="words")
    set_pair(wave, 2, address)
    set_pair(wave, 8, address | 0 << 48)
    return wave


def set_pair(wave, index, value):
    wave.sgprs[index], wave.sgprs[index + 1] = value & 0xFFFFFFFF, value >> 32


def run(wave, assemble, text):
    wave.step(decode(assemble(text), 0))


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4), ("x8", 8), ("x16", 16)])
def test_widths(wave, assemble, suffix, count):
    end = f"[32:{31 + count}]" if count > 1 else "32"
    run(wave, assemble, f"s_load_dword{suffix} s{end}, s[2:3], 0x14")
    assert wave.sgprs[32 : 32 + count].tolist() == WORDS[5 : 5 + count].tolist()
    assert not wave.sgprs[32 + count : 60].any()


@pytest.mark.parametrize(
    ("offset", "word"),
    [("0x10", 4), ("s7", 3), ("s7 offset:0x10", 7), ("m0", 2), ("m0 offset:4", 3), ("-4", 7), ("0xfffff", None)],
)
def test_offsets(wave, assemble, offset, word):
    wave.sgprs[7], wave.sgprs[124] = 12, 8
    if offset == "-4":
        wave.sgprs[2] += 32
    if word is None:
        with pytest.raises(MemoryFault):
            run(wave, assemble, f"s_load_dword s40, s[2:3], {offset}")
        return
    run(wave, assemble, f"s_load_dword s40, s[2:3], {offset}")
    assert wave.sgprs[40] == WORDS[word]


def test_low_address_bits_are_ignored(wave, assemble):
    wave.sgprs[2] += 1
    wave.sgprs[7] = 2
    run(wave, assemble, "s_load_dword s40, s[2:3], s7 offset:0x4")
    assert wave.sgprs[40] == WORDS[1]


def test_exec_does_not_matter(wave, assemble):
    wave.set_exec(0)
    run(wave, assemble, "s_load_dword s40, s[2:3], 0x8")
    assert wave.sgprs[40] == WORDS[2]


def test_destination_may_be_the_base(wave, assemble):
    run(wave, assemble, "s_load_dwordx2 s[2:3], s[2:3], 0x8")
    assert wave.sgprs[2:4].tolist() == WORDS[2:4].tolist()


def descriptor(wave, records, stride=0):
    wave.sgprs[9] = wave.sgprs[9] & 0xFFFF | stride << 16 | 3 << 30  # the flags above the stride do not count
    wave.sgprs[10], wave.sgprs[11] = records, 0x00027000


@pytest.mark.parametrize(
    ("records", "stride", "offset", "valid"),
    [
        (256, 0, 16, 8),
        (16 + 12, 0, 16, 3),
        (16, 0, 16, 0),
        (0, 0, 0, 0),
        (5, 8, 16, 6),
        (16 + 7, 0, 16, 1),
        (8, 0, 16, 0),
    ],
)
def test_buffer_range(wave, assemble, records, stride, offset, valid):
    descriptor(wave, records, stride)
    wave.sgprs[32:40] = 0xAAAAAAAA
    run(wave, assemble, f"s_buffer_load_dwordx8 s[32:39], s[8:11], {offset:#x}")
    first = offset // 4
    assert wave.sgprs[32:40].tolist() == WORDS[first : first + valid].tolist() + [0] * (8 - valid)


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4), ("x8", 8), ("x16", 16)])
def test_buffer_widths(wave, assemble, suffix, count):
    descriptor(wave, 256)
    wave.sgprs[7] = 40
    end = f"[32:{31 + count}]" if count > 1 else "32"
    run(wave, assemble, f"s_buffer_load_dword{suffix} s{end}, s[8:11], s7")
    assert wave.sgprs[32 : 32 + count].tolist() == WORDS[10 : 10 + count].tolist()


def test_no_descriptor_reads_zeros(wave, assemble):
    wave.sgprs[8:12] = 0
    wave.sgprs[32:36] = 7
    run(wave, assemble, "s_buffer_load_dwordx4 s[32:35], s[8:11], 0x0")
    assert not wave.sgprs[32:36].any()


def test_clocks_and_caches(wave, assemble):
    wave.sgprs[40:44] = 7
    for text in ("s_memtime s[40:41]", "s_memrealtime s[42:43]", "s_dcache_inv", "s_dcache_wb"):
        run(wave, assemble, text)
    assert not wave.sgprs[40:44].any()
