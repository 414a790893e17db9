"""Data that only moves: equal to numpy's indexing, bit for bit, on every engine."""

import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

UNTOUCHED = 0xDEADBEEF


def moved(build, source, *more, words=1024, grid=1, block=256):
    """The target buffer after a build of `copies` ran, and the mnemonics."""
    target = np.full(words, UNTOUCHED, np.uint32)
    arguments = [source, *more, target, *[np.zeros(1, np.uint32)] * (2 - len(more))]
    after, mnemonics = run_everywhere(compile_flydsl("copies", build), grid, block, arguments)
    return after[1 + len(more)], mnemonics


def words(count, seed=12):
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


def test_tiled_copy_transposes():
    matrix = words(4096).reshape(64, 64)
    target, mnemonics = moved("tiled", matrix, words=4096, grid=4)
    assert np.array_equal(target.reshape(64, 64), matrix.T)
    assert {"global_load_dwordx4", "global_store_dword"} <= mnemonics


def test_transpose_through_lds():
    matrix = words(1024).reshape(32, 32)
    target, mnemonics = moved("swizzled_transpose", matrix)
    assert np.array_equal(target.reshape(32, 32), matrix.T)
    assert {"ds_write_b32", "s_barrier", "ds_read_b32"} <= mnemonics


def test_gather_and_scatter():
    rng = np.random.default_rng(13)
    source, places, targets = words(2000), rng.integers(0, 2000, 1024, np.int32), rng.permutation(1024).astype(np.int32)
    target, _ = moved("gathered", source, places, targets, grid=4)
    expected = np.empty_like(target)
    expected[targets] = source[places]
    assert np.array_equal(target, expected)


@pytest.mark.parametrize(
    ("bits", "name"), [(8, "byte"), (16, "short"), (32, "dword"), (64, "dwordx2"), (128, "dwordx4")]
)
def test_buffers_end(bits, name):
    """What reads past the end of its buffer gets 0, what writes past it is dropped: here the whole element or a word of
    it, since the ends, 900 and 1000 bytes, are multiples of four."""
    source = words(1024)
    size = 256 * bits // 8
    read = np.where(np.arange(size) < 900, source.view(np.uint8)[:size], np.uint8(0))
    expected = np.full(1024, UNTOUCHED, np.uint32)
    expected.view(np.uint8)[: min(size, 1000)] = read[:1000]
    target, mnemonics = moved(f"bounded_{bits}", source)
    assert target.tobytes() == expected.tobytes()
    assert f"buffer_store_{name}" in mnemonics


@pytest.mark.parametrize("bits", [32, 96, 128])
@pytest.mark.parametrize(
    ("load", "name"), [("buffer_async", "buffer_load_{}_lds"), ("global_async", "global_load_lds_{}")]
)
def test_loads_to_lds(load, name, bits):
    pieces = words(256 * bits // 32).reshape(256, -1)
    target, mnemonics = moved(f"{load}_{bits}", pieces, words=pieces.size)
    assert np.array_equal(target.reshape(256, -1), np.roll(pieces, -1, axis=0))
    assert name.format({32: "dword", 96: "dwordx3", 128: "dwordx4"}[bits]) in mnemonics


@pytest.mark.parametrize("bits", [32, 128])
def test_loads_to_lds_that_the_compiler_waits_for(bits):
    pieces = words(256 * bits // 32).reshape(256, -1)
    target, mnemonics = moved(f"buffer_lds_{bits}", pieces, words=pieces.size)
    assert np.array_equal(target.reshape(256, -1), np.roll(pieces, -1, axis=0))
    assert f"buffer_load_{'dword' if bits == 32 else 'dwordx4'}_lds" in mnemonics


@pytest.mark.parametrize(("element", "bits"), [(4, 64), (6, 96), (8, 64), (16, 64)])
def test_reads_that_transpose(element, bits):
    """Of 16 lanes' elements, taken as one array, element j of lane q is number 16 j + q."""
    pieces = words(64 * bits // 32)
    ones = np.unpackbits(pieces.view(np.uint8), bitorder="little").reshape(4, -1, 16, element)
    expected = np.packbits(ones.transpose(0, 2, 1, 3).reshape(-1), bitorder="little")
    target, mnemonics = moved(f"transposed_{element}", pieces, words=pieces.size, block=64)
    assert target.tobytes() == expected.tobytes()
    assert f"ds_read_b{bits}_tr_b{element}" in mnemonics


def test_scalar_loads_of_a_buffer_end_too():
    """The buffer holds 12 words: the last wave's single word lies inside, its four words do not, and are 0."""
    source = np.arange(1, 65, dtype=np.uint32)
    target, mnemonics = moved("scalar_loads", source, words=256 * 5)
    source_or_none = np.where(np.arange(64) < 12, source, 0)
    wave = np.arange(256) // 64
    expected = np.stack([source[wave], *(source_or_none[wave * 4 + i] for i in range(4))], axis=1)
    assert np.array_equal(target.reshape(256, 5), expected)
    assert {"s_buffer_load_dword", "s_buffer_load_dwordx4"} <= mnemonics
