"""The emulated address space against plain numpy indexing and hand-counted distances."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import LaunchError, MemoryFault
from emu.memory import ACCESS_BYTES, REGION_BYTES, SHARED_APERTURE, Buffer, Memory

ALL = np.ones(64, bool)


def addresses(values) -> np.ndarray:
    return np.asarray(values, np.uint64)


def only(*lanes: int) -> np.ndarray:
    mask = np.zeros(64, bool)
    mask[list(lanes)] = True
    return mask


def test_regions_are_numbered_by_the_high_bits_and_the_table_has_them():
    memory = Memory()
    first, second = np.arange(100, dtype=np.uint8), np.arange(7, dtype=np.float32)
    a, b = memory.map(first, name="a"), memory.map(second, writable=False, name="b")
    assert (a, b) == (1 << 32, 2 << 32)
    assert memory.table.flags.c_contiguous
    assert memory.table[1].tolist() == [first.ctypes.data, 100, 3, 0]
    assert memory.table[2].tolist() == [second.ctypes.data, 28, 1, 0]
    assert not memory.table[0].any()
    assert not memory.table[3:].any()


def test_mapped_arrays_are_shared_with_the_host_both_ways():
    memory = Memory()
    array = np.zeros(64, np.float32)
    base = memory.map(array)
    array[5] = 1.0
    lanes = addresses(base + 4 * np.arange(64))
    assert memory.load(lanes, ALL, 4)[0, 5] == 0x3F800000
    memory.store(lanes, only(6), np.full((1, 64), 0x80000000, np.uint32), 4)
    assert array[6] == 0
    assert np.signbit(array[6])
    assert array[[5, 7]].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("nbytes", ACCESS_BYTES)
def test_load_matches_slices_of_the_bytes_at_any_alignment(nbytes):
    memory = Memory()
    random = np.random.default_rng(nbytes)
    one, two = random.integers(0, 256, 1000, np.uint8), random.integers(0, 256, 333, np.uint8)
    bases = [memory.map(one), memory.map(two)]
    pick = random.integers(0, 2, 64)
    offset = np.array([random.integers(0, len((one, two)[p]) - nbytes + 1) for p in pick])
    mask = random.integers(0, 2, 64).astype(bool)
    where = addresses(np.where(mask, np.array(bases)[pick] + offset, 12345))
    words = memory.load(where, mask, nbytes)
    assert words.dtype == np.uint32
    assert words.shape == (max(1, nbytes // 4), 64)
    for lane in range(64):
        expected = bytes((one, two)[pick[lane]][offset[lane] : offset[lane] + nbytes]) if mask[lane] else b""
        assert words[:, lane].astype("<u4").tobytes() == expected.ljust(words.shape[0] * 4, b"\0")


@pytest.mark.parametrize("nbytes", ACCESS_BYTES)
def test_store_matches_a_lane_loop_over_bytes_even_where_lanes_overlap(nbytes):
    memory = Memory()
    random = np.random.default_rng(nbytes + 100)
    array = random.integers(0, 256, 200, np.uint8)
    expected = array.copy()
    base = memory.map(array)
    offset = random.integers(0, 200 - nbytes + 1, 64)
    mask = random.integers(0, 4, 64) > 0
    words = random.integers(0, 1 << 32, (max(1, nbytes // 4), 64), np.uint32)
    memory.store(addresses(base + offset), mask, words, nbytes)
    for lane in np.flatnonzero(mask):
        data = words[:, lane].astype("<u4").tobytes()[:nbytes]
        expected[offset[lane] : offset[lane] + nbytes] = np.frombuffer(data, np.uint8)
    assert array.tobytes() == expected.tobytes()


def test_the_last_byte_is_good_and_one_further_faults_with_the_lane():
    memory = Memory()
    base = memory.map(np.zeros(32, np.uint8), name="cache")
    lanes = np.full(64, base, np.uint64)
    lanes[17] = base + 16
    memory.load(lanes, ALL, 16)
    lanes[17] = base + 17
    with pytest.raises(MemoryFault) as caught:
        memory.load(lanes, ALL, 16)
    assert caught.value.lane == 17
    assert caught.value.address == base + 17
    assert 'a lane loads 16 bytes at byte 17 of buffer "cache" (32 bytes)' in str(caught.value)
    assert memory.load(lanes, ~only(17), 16).shape == (4, 64)
    lanes[[20, 30]] = base + 44
    with pytest.raises(MemoryFault, match=r"3 lanes of the wave fault, this is the lowest"):
        memory.load(lanes, ALL, 16)


def test_nothing_is_written_when_any_lane_faults():
    memory = Memory()
    array = np.zeros(256, np.uint8)
    base = memory.map(array, name="out")
    lanes = addresses(base + 4 * np.arange(64))
    lanes[63] = base + 253
    with pytest.raises(MemoryFault) as caught:
        memory.store(lanes, ALL, np.full((1, 64), 0xFFFFFFFF, np.uint32), 4)
    assert caught.value.lane == 63
    assert not array.any()


def test_read_only_buffers_can_be_read_and_refuse_stores():
    memory = Memory()
    array = np.arange(64, dtype=np.uint32)
    array.flags.writeable = False
    base = memory.map(array, writable=False, name="weights")
    lanes = addresses(base + 4 * np.arange(64))
    assert memory.load(lanes, ALL, 4)[0].tolist() == list(range(64))
    with pytest.raises(MemoryFault, match=r'byte 0 of buffer "weights" \(256 bytes\).*, which is read-only'):
        memory.store(lanes, ALL, np.zeros((1, 64), np.uint32), 4)
    assert not memory.view(base, 4).flags.writeable
    assert memory.view(base + 8, 4).tobytes() == bytes([2, 0, 0, 0])
    shared = np.zeros(4, np.uint8)
    window = memory.view(memory.map(shared, writable=False), 4)
    assert not window.flags.writeable
    shared[1] = 5
    assert window.tolist() == [0, 5, 0, 0]


def test_describe_counts_distances():
    memory = Memory()
    cache = memory.map(np.zeros(32768, np.uint8), name="cache")
    other = memory.map(np.zeros(10, np.uint16), name="other")
    assert memory.describe(cache + 32779) == '11 bytes past the end of buffer "cache" (32768 bytes)'
    assert memory.describe(cache + 32768) == '0 bytes past the end of buffer "cache" (32768 bytes)'
    assert memory.describe(cache + 5) == 'byte 5 of buffer "cache" (32768 bytes)'
    assert memory.describe(other - 8) == '8 bytes before the start of buffer "other" (20 bytes)'
    assert memory.describe(0) == "the null pointer"
    assert memory.describe(12) == "12 bytes past the null pointer"
    assert memory.describe(500 << 32) == "nowhere near any buffer"
    assert memory.describe(SHARED_APERTURE + 64) == "byte 64 of the LDS aperture, which only flat instructions reach"
    assert memory.describe(0xFFFF_8000_0000_0000) == "not an address: more than 48 bits"
    assert memory.describe(-4) == "not an address: more than 48 bits"


def test_addresses_of_unmapped_buffers_are_not_reused_and_say_so():
    memory = Memory()
    first = memory.map(np.zeros(64, np.uint32), name="temporary")
    memory.unmap(first)
    assert not memory.table[1].any()
    second = memory.map(np.zeros(8, np.uint8))
    assert second != first
    with pytest.raises(MemoryFault, match=r'byte 12 of buffer "temporary" \(256 bytes\), which was unmapped'):
        memory.view(first + 12, 4)
    with pytest.raises(ValueError, match=r"unmap\(0x200000001\): no buffer starts there"):
        memory.unmap(second + 1)


def test_zero_length_buffers_have_an_address_and_no_bytes():
    memory = Memory()
    base = memory.map(np.zeros((0, 4), np.float32), name="empty")
    assert memory.view(base, 0).size == 0
    assert memory.buffers == (Buffer("empty", base, 0, True),)
    with pytest.raises(MemoryFault, match='0 bytes past the end of buffer "empty"'):
        memory.load(np.full(64, base, np.uint64), only(3), 1)
    memory.unmap(base)


def test_buffers_over_4_gib_are_one_piece_over_consecutive_regions():
    memory = Memory()
    huge = np.zeros(REGION_BYTES + 100, np.uint8)  # untouched pages cost nothing
    base, after = memory.map(huge, name="huge"), memory.map(np.zeros(4, np.uint8), name="after")
    assert after == base + 2 * REGION_BYTES
    assert memory.table[1:3, 1].tolist() == [REGION_BYTES + 100, 100]
    assert memory.table[2, 0] == huge.ctypes.data + REGION_BYTES
    seam = REGION_BYTES - 2
    huge[seam : seam + 4] = [1, 2, 3, 4]
    lanes = np.full(64, base + seam, np.uint64)
    assert memory.load(lanes, only(0), 4)[0, 0] == 0x04030201
    assert memory.view(base + seam, 4).tolist() == [1, 2, 3, 4]
    memory.store(lanes, only(9), np.full((1, 64), 0xA0B0C0D0, np.uint32), 4)
    assert huge[seam : seam + 4].tolist() == [0xD0, 0xC0, 0xB0, 0xA0]
    end = base + huge.size
    assert memory.describe(end + 1) == f'1 bytes past the end of buffer "huge" ({huge.size} bytes)'
    with pytest.raises(MemoryFault):
        memory.load(np.full(64, end - 3, np.uint64), ALL, 4)
    memory.unmap(base)
    assert not memory.table[1:3].any()


def test_the_address_space_can_be_used_up_and_freed_regions_come_back():
    memory = Memory()
    byte = np.zeros(1, np.uint8)
    bases = [memory.map(byte) for _ in range(65535)]
    with pytest.raises(LaunchError, match="65535 buffers hold all 65535 regions"):
        memory.map(byte)
    memory.unmap(bases[40])
    assert memory.map(byte) == bases[40]


def test_arrays_that_have_no_plain_memory_are_refused():
    memory = Memory()
    with pytest.raises(TypeError, match=r"'x' is a list; map takes a numpy array"):
        memory.map([1, 2], name="x")
    with pytest.raises(ValueError, match=r"not C-contiguous.*ascontiguousarray"):
        memory.map(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError, match="holds Python objects"):
        memory.map(np.array([None]))
    with pytest.raises(ValueError, match="big-endian"):
        memory.map(np.zeros(4, ">u4"))
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only numpy array"):
        memory.map(frozen)
    with pytest.raises(ValueError, match="negative length"):
        memory.allocate(-1)
    assert memory.map(np.zeros((2, 3), ml_dtypes.bfloat16)) == 1 << 32
    assert memory.map(np.array(3.0)) == 2 << 32


def test_misuse_by_an_engine_is_named():
    memory = Memory()
    base = np.full(64, memory.allocate(64, "scratch"), np.uint64)
    with pytest.raises(ValueError, match="1, 2, 4, 8, 12, 16 bytes a lane, not 3"):
        memory.load(base, ALL, 3)
    with pytest.raises(ValueError, match=r"addresses must be uint64 of shape \(64,\), got int64"):
        memory.load(base.astype(np.int64), ALL, 4)
    with pytest.raises(ValueError, match=r"mask must be bool"):
        memory.load(base, np.ones(64, np.uint8), 4)
    with pytest.raises(ValueError, match=r"needs uint32 words of shape \(2, 64\), got uint32 \(1, 64\)"):
        memory.store(base, ALL, np.zeros((1, 64), np.uint32), 8)


@settings(max_examples=200, deadline=None)
@given(address=st.integers(0, (1 << 64) - 1), nbytes=st.sampled_from(ACCESS_BYTES), length=st.integers(0, 40))
def test_an_access_is_good_exactly_when_all_its_bytes_are_in_the_buffer(address, nbytes, length):
    memory = Memory()
    base = memory.map(np.zeros(length, np.uint8))
    for candidate in (address, base + address % 64):
        good = base <= candidate and candidate + nbytes <= base + length
        lanes = np.full(64, candidate, np.uint64)
        if good:
            memory.load(lanes, ALL, nbytes)
        else:
            with pytest.raises(MemoryFault):
                memory.load(lanes, ALL, nbytes)
