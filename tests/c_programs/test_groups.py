"""Work-items together: atomics, barriers of several waves, locks, grids of three dimensions; numpy says the result."""

import itertools

import numpy as np
import pytest
from c_kernels import module_of

from emu.dispatch import RunOptions
from emu.geometry import Geometry

LEVELS = ["-O0", "-O2", "-O3"]
ENGINES = [RunOptions(), RunOptions(threads=2, quantum=1), RunOptions(engine="numpy")]


def name_of(options):
    return f"{options.engine}-{options.threads}-{options.quantum}" if isinstance(options, RunOptions) else str(options)


def random_words(count, seed=1, dtype=np.uint32):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)


def launch(name, geometry, *arguments, level="-O2", options=None, **more):
    return module_of("groups.c", level)[name].launch(geometry, arguments, options, **more)


def several(test):
    """Every level on the host engine, every schedule at -O2."""
    pairs = [*itertools.product(LEVELS, ENGINES[:1]), *itertools.product(["-O2"], ENGINES[1:])]
    return pytest.mark.parametrize(("level", "options"), pairs, ids=name_of)(test)


@several
def test_atomics_on_words_of_memory(level, options):
    x, count = random_words(150), 150
    words = np.array([5, 0, 0x80000000, 99, 0, ~0, 0, 0x7FFFFFFF, ~0, 0, 1, 0, 0], np.int64).astype(np.uint32)
    returned = np.zeros((4, count), np.uint32)
    grid = Geometry.of_blocks(2, 96)
    launch("atomics_on_words", grid, x, words, returned, np.uint32(count), level=level, options=options)
    assert words[0] == np.uint32((5 + int(x.sum(dtype=np.uint64))) & 0xFFFFFFFF)
    assert words[1] == np.bitwise_or.reduce(np.uint32(1) << (x & 31))
    assert words[2].view(np.int32) == x.view(np.int32).max()
    assert words[3] in x
    assert words[4] == np.uint32(-int((x >> 3).sum(dtype=np.uint64)) & 0xFFFFFFFF)
    assert words[5] == np.bitwise_and.reduce(x | 0x0FF0)
    assert words[6] == np.bitwise_xor.reduce(x * np.uint32(3))
    assert words[7].view(np.int32) == x.view(np.int32).min()
    assert (words[8], words[9]) == (x.min(), x.max())
    chained = 1
    for _ in range(count):
        chained = (chained * 5 + 1) & 0xFFFFFFFF
    assert words[10] == chained
    assert words[11] == 0xFFFFFFFF
    assert words[12].view(np.float32) == ((x & 255) * 0.5).sum()
    after = np.sort((returned[0] + x).astype(np.uint32))
    assert np.array_equal(np.sort(np.append(after, np.uint32(5))), np.sort(np.append(returned[0], words[0])))
    assert np.array_equal(np.sort(np.append(returned[3], words[3])), np.sort(np.append(x, np.uint32(99))))
    assert (returned[1] & ~words[1] == 0).all()
    assert (returned[2].view(np.int32) <= words[2].view(np.int32)).all()


@several
def test_atomics_on_wide_words_of_memory(level, options):
    x, count = random_words(100, 2, np.uint64), 100
    words = np.array([7, 98, 0, 0, 1 << 63, (1 << 64) - 1, 1, 0], np.uint64)
    returned = np.zeros((2, count), np.uint64)
    grid = Geometry.of_items(130, 96)
    launch("atomics_on_wide_words", grid, x, words, returned, np.uint32(count), level=level, options=options)
    assert int(words[0]) == (7 + sum(map(int, x))) % (1 << 64)
    assert np.array_equal(np.sort(np.append(returned[0] + x, np.uint64(7))), np.sort(np.append(returned[0], words[0])))
    assert np.array_equal(np.sort(np.append(returned[1], words[1])), np.sort(np.append(x, np.uint64(98))))
    assert words[2] == np.bitwise_or.reduce(np.uint64(1) << (x & np.uint64(63)))
    assert words[3] == np.bitwise_xor.reduce(x)
    assert words[4].view(np.int64) == x.view(np.int64).max()
    assert words[5] == x.min()
    chained = 1
    for _ in range(count):
        chained = (chained * 3 + 1) % (1 << 64)
    assert int(words[6]) == chained
    assert words[7].view(np.float64) == ((x & np.uint64(1023)).astype(np.float64) * 0.25).sum()


@several
def test_atomics_on_lds(level, options):
    groups, items = 2, 192
    x = random_words(groups * items, 3)
    out, wide = np.zeros((groups, 64), np.uint32), np.zeros((groups, 4), np.uint64)
    launch("atomics_on_lds", Geometry.of_blocks(groups, items), x, out, wide, level=level, options=options)
    for mine, found, pair in zip(x.reshape(groups, items), out, wide, strict=True):
        assert np.array_equal(found[:32], np.bincount(mine & 31, minlength=32))
        assert (found[32], found[33]) == (mine.max(), mine.min())
        assert found[34] == np.bitwise_xor.reduce(mine)
        assert found[35] == np.bitwise_and.reduce(mine | 7)
        assert (found[36], found[37], found[38]) == (items, items * (items - 1) // 2, (mine & 3).sum())
        assert found[39].view(np.float32) == ((mine & 63) * 0.5).sum()
        assert pair[0] == sum(int(v) << 20 for v in mine)
        assert pair[1] == int(mine.max()) ** 2
        assert pair[2].view(np.int64) == -int(mine.max())
        assert pair[3].view(np.float64) == ((mine & 1023) * 0.125).sum()
        assert not found[40:].any()


@several
def test_prefix_sums_over_barriers(level, options):
    items = 320 if options.engine == "numpy" else 1024
    x, out = random_words(items * 2, 4), np.zeros(items * 2, np.uint32)
    launch("prefix_sums", Geometry.of_blocks(2, items), x, out, level=level, options=options)
    assert np.array_equal(out.reshape(2, items), np.cumsum(x.reshape(2, items), axis=1, dtype=np.uint32))


@several
def test_a_sort_of_one_workgroup(level, options):
    items = 128 if options.engine == "numpy" else 512
    data = random_words(items * 2, 5)
    expected = np.sort(data.reshape(2, items), axis=1)
    launch("bitonic_sort", Geometry.of_blocks(2, items), data, level=level, options=options)
    assert np.array_equal(data.reshape(2, items), expected)


@several
def test_a_tiled_matrix_product(level, options):
    rows, columns, inner = 21, 18, 35
    generator = np.random.default_rng(6)
    a, b = (generator.standard_normal(shape).astype(np.float32) for shape in ((rows, inner), (inner, columns)))
    out = np.zeros((rows, columns), np.float32)
    sizes = [np.uint32(n) for n in (rows, columns, inner)]
    launch("tiled_product", Geometry.of_blocks((2, 2), (16, 16)), a, b, out, *sizes, level=level, options=options)
    expected = np.zeros((rows, columns), np.float32)
    for k in range(inner):  # in the kernel's order: every bit is defined
        expected = expected + a[:, k : k + 1] * b[k : k + 1]
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))


@several
def test_the_last_workgroup_sees_what_the_others_wrote(level, options):
    groups, items = 5, 96
    block = np.concatenate([np.array([groups], np.uint32), random_words(groups * items, 7)])
    partial, done, total = np.zeros(groups, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    kernel = module_of("groups.c", level)["last_group_finishes"]
    address = kernel.module.device.map(block)
    kernel.launch(Geometry.of_blocks(groups, items), (address + 4, partial, done, total), options)
    kernel.module.device.memory.unmap(address)
    assert np.array_equal(partial, block[1:].reshape(groups, items).sum(axis=1, dtype=np.uint32))
    assert (done[0], total[0]) == (groups, partial.sum(dtype=np.uint32))


@several
def test_a_lock_is_taken_by_one_lane_at_a_time(level, options):
    lock, shared, turns, items = np.zeros(1, np.uint32), np.zeros(2, np.uint32), 2, 96
    launch("locked_updates", Geometry.of_blocks(2, items), lock, shared, np.uint32(turns), level=level, options=options)
    taking = [item for item in range(2 * items) if item % items % 8 < turns]
    value = 0
    for _ in taking:
        value = (value * 3 + 1) & 0xFFFFFFFF
    assert (lock[0], shared[0], shared[1]) == (0, value, sum(taking))


@several
def test_a_grid_of_three_dimensions_with_partial_workgroups(level, options):
    width, height, depth = 11, 7, 5
    out = np.full((depth, height, width, 4), 0xDEADBEEF, np.uint32)
    grid = Geometry.of_items((width, height, depth), (4, 3, 2))
    launch("three_dimensions", grid, out, np.uint32(width), np.uint32(height), level=level, options=options)
    z, y, x = np.meshgrid(np.arange(depth), np.arange(height), np.arange(width), indexing="ij")
    sizes = [np.minimum(b, n - p // b * b) for p, b, n in ((x, 4, width), (y, 3, height), (z, 2, depth))]
    packed = [sizes, (x % 4, y % 3, z % 2), (x // 4, y // 3, z // 2), (x * 0 + width, y * 0 + height, z * 0 + depth)]
    expected = np.stack([a | b << 8 | c << 16 for a, b, c in packed], axis=-1)
    expected[..., 0] |= 4 << 24  # the size of a full workgroup, which every one sees
    assert np.array_equal(out, expected)


@several
def test_lds_of_a_size_given_at_launch(level, options):
    items, words = 128, 1000
    x, out = random_words(words, 8), np.zeros(items, np.uint32)
    launch("dynamic_lds", Geometry.of_blocks(1, items), x, out, np.uint32(words), level=level, options=options,
           dynamic_lds=4 * words)  # fmt: skip
    kept = (x * np.uint32(7) + np.arange(words, dtype=np.uint32)).astype(np.uint32)
    expected = x[:items][::-1].copy()
    for i in range(items):
        value = int(expected[i])
        for k in range(i, words, items):
            value = (value * 31 + int(kept[words - 1 - k])) & 0xFFFFFFFF
        expected[i] = value
    assert np.array_equal(out, expected)
