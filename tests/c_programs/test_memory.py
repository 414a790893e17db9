"""Memory reached by generic pointers, buffer descriptors, loads to LDS and unaligned structures, against numpy."""

import ml_dtypes
import numpy as np
import pytest
from c_kernels import module_of

from emu.dispatch import RunOptions

HOW = [("-O0", "host"), ("-O2", "host"), ("-O2", "numpy")]
every_way = pytest.mark.parametrize(("level", "engine"), HOW)


def launch(name, level, engine, geometry, *arguments):
    module_of("memory.c", level)[name][geometry](*arguments, options=RunOptions(engine=engine))


def words(count, seed):
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


@every_way
def test_lanes_of_one_access_reach_lds_scratch_and_memory(level, engine):
    items, groups = 128, 2
    x, memory, out = words(items * groups, 1), words(items * groups, 2), np.zeros((items * groups, 4), np.uint32)
    before = memory.copy()
    launch("generic_pointers", level, engine, (groups, items), x, memory, out)
    i = np.arange(items * groups, dtype=np.uint32)
    item, kind, slot = i % items, x % 3, x >> 4 & 3
    own = np.stack([i, i * 0 + 1, i * 0 + 2, i * 0 + 3], axis=1)
    old = np.where(kind == 0, item * 7, np.where(kind == 1, own[i, slot], before))
    assert np.array_equal(out[:, 0], old)
    assert np.array_equal(out[:, 1], np.array([1, 2, 0])[kind])
    own[i[kind == 1], slot[kind == 1]] = x[kind == 1]
    tile = np.where(kind == 0, x, item * 7)
    assert np.array_equal(out[:, 2], (tile + own @ np.array([3, 5, 7, 11], np.uint32)).astype(np.uint32))
    assert np.array_equal(memory, np.where(kind == 2, x, before))
    wide = np.stack([i, x, i * 0 + 5], axis=1).astype(np.uint64)
    held = wide[i, kind].copy()
    wide[i, kind] = x
    expected = held + wide @ np.array([1, 3, 5], np.uint64)
    assert np.array_equal(out[:, 3], expected.astype(np.uint32))


@every_way
def test_atomics_through_generic_pointers(level, engine):
    items, groups = 128, 2
    x = words(items * groups, 3)
    memory, out = np.zeros(1002, np.uint32), np.zeros((groups, 17), np.uint32)
    launch("generic_atomics", level, engine, (groups, items), x, memory, out)
    for group, mine in enumerate(x.reshape(groups, items)):
        for odd in (0, 1):
            chosen = mine[mine & 1 == odd]
            sums = np.zeros(16, np.uint32)
            np.add.at(sums, chosen >> 1 & 15, chosen >> 8)
            ones = np.bitwise_or.reduce(np.uint32(1) << (chosen >> 5 & 31))
            found = out[group] if odd else np.append(memory[group * 16 :][:16], memory[1000 + group])
            assert np.array_equal(found, np.append(sums, ones))


@every_way
@pytest.mark.parametrize("size", [10000, 8100, 6500, 1000, 1024, 0])
def test_buffers_end_where_their_descriptor_says(level, engine, size):
    items = 300
    memory, out = words(1024 + 2048, 4), np.zeros((items, 8), np.uint32)
    before = memory.view(np.uint8).copy()
    launch("buffers", level, engine, (3, 100), memory, out, np.uint32(size))
    i = np.arange(items)

    def loaded(offset, count):
        whole = offset[:, None] + np.arange(count)
        inside = whole < size  # a load of several words is checked word by word
        return np.where(inside, before[np.minimum(whole, len(before) - 1)], 0).astype(np.uint8)

    assert np.array_equal(out[:, 0], loaded(i * 4, 4).view(np.uint32)[:, 0])
    assert np.array_equal(out[:, 1], loaded(i * 2 + 12, 2).view(np.uint16)[:, 0])
    assert np.array_equal(out[:, 2], loaded(i + 100, 1)[:, 0])
    pair, four = loaded(i * 8, 8).view(np.uint32), loaded(i * 16, 16).view(np.uint32)
    assert np.array_equal(out[:, 3], pair[:, 0] ^ pair[:, 1] * np.uint32(3))
    odd = four * np.array([1, 3, 5, 7], np.uint32)
    assert np.array_equal(out[:, 4], np.bitwise_xor.reduce(odd, axis=1))
    expected = before.copy()
    for start, step, value in ((6000, 4, out[:, 0] + i.astype(np.uint32)), (8000, 3, (i & 255).astype(np.uint8))):
        for at, item in zip(start + step * i, value.reshape(-1, 1), strict=True):
            raw = item.view(np.uint8)
            if at + len(raw) <= size:
                expected[at : at + len(raw)] = raw
    assert np.array_equal(memory.view(np.uint8), expected)


@every_way
def test_loads_to_lds_arrive_in_lane_order(level, engine):
    source, out = words(256, 5), np.zeros(256, np.uint32)
    launch("loads_to_lds", level, engine, (1, 256), source, out)
    i = np.arange(256)
    tile = source[(i * 5 + 3) % 256]
    assert np.array_equal(out, tile[(i + 64) % 256])


def same_floats(found, expected, raw):
    both = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return bool((both | (found.view(raw) == expected.view(raw))).all())


@every_way
def test_float_atomics_in_lds(level, engine):
    values, out = words(512, 6), np.zeros((4, 256), np.uint32)
    launch("float_atomics_in_lds", level, engine, (1, 256), values, out)
    x, y = values.reshape(2, 256)
    with np.errstate(all="ignore"):
        assert same_floats(out[0].view(np.float16), x.view(np.float16) + y.view(np.float16), np.uint16)
        brains = [w.view(ml_dtypes.bfloat16).astype(np.float32) for w in (x, y)]
        expected = (brains[0] + brains[1]).astype(ml_dtypes.bfloat16)
        assert same_floats(out[1].view(ml_dtypes.bfloat16), expected, np.uint16)
    low, other = ((w & np.uint32(0x3FFFFFFF)) for w in (y, x))
    assert np.array_equal(out[2], np.minimum(low, other))  # as integers: neither is negative
    assert np.array_equal(out[3], np.maximum(low, other))


@every_way
def test_structures_without_alignment(level, engine):
    layout = np.dtype([("first", "u1"), ("second", "<u2"), ("third", "<u4"), ("fourth", "<u8"), ("last", "u1")])
    x = np.frombuffer(words(4 * 192, 7).tobytes()[: 16 * 192], layout).copy()
    out = np.zeros_like(x)
    launch("unaligned", level, engine, (2, 96), x.view(np.uint8), out.view(np.uint8))
    assert np.array_equal(out["first"], x["last"] + np.uint8(1))
    assert np.array_equal(out["second"], x["second"] * np.uint16(3))
    assert np.array_equal(out["third"], x["third"] ^ x["fourth"].astype(np.uint32))
    assert np.array_equal(out["fourth"], x["fourth"] + x["third"])
    assert np.array_equal(out["last"], x["first"])
