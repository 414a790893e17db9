"""Scalar loads: addressing modes, alignment, the buffer bound."""

import numpy as np
import pytest

from emu.errors import MemoryFault
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load

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


def test_low_bits_of_every_address_part_are_ignored(wave, assemble):
    """8.2.1.1: base, offset, inst_offset and M0 lose their two LSBs each, so 1 + 2 + 7 is 4, not 8."""
    wave.sgprs[2] += 1
    wave.sgprs[7] = wave.sgprs[124] = 2
    for register in ("s7", "m0"):
        run(wave, assemble, f"s_load_dword s40, s[2:3], {register} offset:0x7")
        assert wave.sgprs[40] == WORDS[1]
    wave.sgprs[2] += 32
    run(wave, assemble, "s_load_dword s40, s[2:3], -3")  # -3 without its two LSBs is -4
    assert wave.sgprs[40] == WORDS[7]


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
    """The clocks count the wave's instructions; the cache has nothing to do."""
    wave.sgprs[40:44] = 7
    for text in ("s_dcache_inv", "s_memtime s[40:41]", "s_dcache_wb", "s_memrealtime s[42:43]"):
        run(wave, assemble, text)
    assert wave.sgprs[40:44].tolist() == [1, 0, 3, 0]


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4)])
def test_stores(assemble, suffix, count):
    array = np.zeros(16, dtype=np.uint32)
    wave = Wave(memory=Memory())
    set_pair(wave, 2, wave.address_space.map(array))
    wave.set_exec(0)
    wave.sgprs[32:36] = [1, 2, 3, 4]
    end = f"[32:{31 + count}]" if count > 1 else "32"
    run(wave, assemble, f"s_store_dword{suffix} s{end}, s[2:3], 0x10 glc")
    assert array.tolist() == [0] * 4 + [1, 2, 3, 4][:count] + [0] * (12 - count)


ATOMICS = {  # name: f(old, data, second data) -> new
    "swap": lambda t, s, c: s,
    "cmpswap": lambda t, s, c: s if t == c else t,
    "add": lambda t, s, c: t + s,
    "sub": lambda t, s, c: t - s,
    "smin": lambda t, s, c: t,
    "umin": lambda t, s, c: s,
    "smax": lambda t, s, c: s,
    "umax": lambda t, s, c: t,
    "and": lambda t, s, c: t & s,
    "or": lambda t, s, c: t | s,
    "xor": lambda t, s, c: t ^ s,
    "inc": lambda t, s, c: 0,
    "dec": lambda t, s, c: s,
}


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", sorted(ATOMICS))
@pytest.mark.parametrize("equal", [True, False])
def test_atomics(assemble, name, bits, equal):
    """The datum is -2, the operand 5: signed and unsigned order differ, and the datum is above it for inc and dec."""
    old, word = (1 << bits) - 2, np.uint32 if bits == 32 else np.uint64
    compare = old if equal else 7
    for returns in (False, True):
        array = np.full(4, old, dtype=word)
        wave = Wave(memory=Memory())
        set_pair(wave, 2, wave.address_space.map(array))
        wave.set_exec(0)
        step = bits // 32
        wave.sgprs[32:36] = [5, *[compare >> 32 * i & 0xFFFFFFFF for i in range(step)], 0, 0][:4] if step == 1 else 0
        if step == 2:
            set_pair(wave, 32, 5), set_pair(wave, 34, compare)
        count = step * (2 if name == "cmpswap" else 1)
        data = f"s[32:{31 + count}]" if count > 1 else "s32"
        suffix, end = "_x2" if bits == 64 else "", " glc" if returns else ""
        run(wave, assemble, f"s_atomic_{name}{suffix} {data}, s[2:3], {bits // 8:#x}{end}")
        want = ATOMICS[name](old, 5, compare) & (1 << bits) - 1
        assert array.tolist() == [old, want, old, old]
        got = int(wave.sgprs[32]) | (int(wave.sgprs[33]) << 32 if step == 2 else 0)
        assert got == (old if returns else 5)


@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4)])
def test_scratch_offsets_count_64_bytes(assemble, suffix, count):
    """[8.2.1.1] The register offset is scaled, the immediate is not."""
    array = np.arange(128, dtype=np.uint32)
    wave = Wave(memory=Memory())
    set_pair(wave, 2, wave.address_space.map(array) + 64)
    wave.sgprs[7], wave.sgprs[124] = 3, 2
    end = f"[32:{31 + count}]" if count > 1 else "32"
    for offset, byte in (("0x8", 72), ("s7", 256), ("s7 offset:0x10", 272), ("m0 offset:-16", 176)):
        run(wave, assemble, f"s_scratch_load_dword{suffix} s{end}, s[2:3], {offset}")
        assert wave.sgprs[32 : 32 + count].tolist() == array[byte // 4 : byte // 4 + count].tolist()
    wave.sgprs[32:36] = [1001, 1002, 1003, 1004]
    run(wave, assemble, f"s_scratch_store_dword{suffix} s{end}, s[2:3], m0 offset:4")
    want = np.arange(128)
    want[49 : 49 + count] = [1001, 1002, 1003, 1004][:count]
    assert array.tolist() == want.tolist()


@pytest.mark.parametrize("records", [0, 4, 16, 17, 20, 23, 24, 28, 32, 64])
@pytest.mark.parametrize(("suffix", "count"), [("", 1), ("x2", 2), ("x4", 4)])
def test_buffer_stores_dword_by_dword(assemble, suffix, count, records):
    array = np.zeros(16, dtype=np.uint32)
    wave = Wave(memory=Memory())
    set_pair(wave, 8, wave.address_space.map(array))
    descriptor(wave, records)
    wave.set_exec(0)
    wave.sgprs[32:36] = [1, 2, 3, 4]
    end = f"[32:{31 + count}]" if count > 1 else "32"
    run(wave, assemble, f"s_buffer_store_dword{suffix} s{end}, s[8:11], 0x10")
    inside = max(0, min(count, (records - 16) // 4))
    assert array.tolist() == [0] * 4 + [1, 2, 3, 4][:inside] + [0] * (12 - inside)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", sorted(ATOMICS))
@pytest.mark.parametrize("inside", [True, False])
def test_buffer_atomics(assemble, name, bits, inside):
    old, word = (1 << bits) - 2, np.uint32 if bits == 32 else np.uint64
    array = np.full(4, old, dtype=word)
    wave = Wave(memory=Memory())
    set_pair(wave, 8, wave.address_space.map(array))
    descriptor(wave, bits // 4 - (0 if inside else 1))
    step = bits // 32
    set_pair(wave, 32, 5)
    set_pair(wave, 32 + step, old)
    count = step * (2 if name == "cmpswap" else 1)
    data = f"s[32:{31 + count}]" if count > 1 else "s32"
    suffix = "_x2" if bits == 64 else ""
    run(wave, assemble, f"s_buffer_atomic_{name}{suffix} {data}, s[8:11], {bits // 8:#x} glc")
    want = ATOMICS[name](old, 5, old) & (1 << bits) - 1 if inside else old
    assert array.tolist() == [old, want, old, old]
    got = int(wave.sgprs[32]) | (int(wave.sgprs[33]) << 32 if step == 2 else 0)
    assert got == (old if inside else 0)


def test_discards_and_probes_change_nothing(wave, assemble):
    before = wave.sgprs.copy()
    for text in ("s_dcache_discard s[2:3], 0x40", "s_dcache_discard_x2 s[2:3], s7", "s_atc_probe 7, s[2:3], 0x8"):
        run(wave, assemble, text)
    run(wave, assemble, "s_atc_probe_buffer 1, s[8:11], s7")
    assert wave.sgprs.tolist() == before.tolist()


def test_every_scalar_memory_definition_is_tested():
    names = {f"s_{b}load_dword{x}" for b in ("", "buffer_") for x in ("", "x2", "x4", "x8", "x16")}
    names |= {f"s_store_dword{x}" for x in ("", "x2", "x4")} | {"s_memtime", "s_memrealtime"}
    names |= {f"s_{b}atomic_{n}{x}" for b in ("", "buffer_") for n in ATOMICS for x in ("", "_x2")}
    names |= {f"s_scratch_{a}_dword{x}" for a in ("load", "store") for x in ("", "x2", "x4")}
    names |= {f"s_buffer_store_dword{x}" for x in ("", "x2", "x4")}
    defined = {i.name for i in load().values() if i.encoding == "SMEM" and not i.flow}
    assert defined - names == set()
