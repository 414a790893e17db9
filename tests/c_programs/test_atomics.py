"""Every atomic operation of one and two words, in every memory, with and without the old value, against numpy."""

import itertools

import numpy as np
import pytest
from c_kernels import module_of

from emu.dispatch import RunOptions

PLACES, SIZES, KINDS = ("memory", "lds", "generic"), ("word", "wide"), ("", "_quiet")
ROWS = 13


def expected_words(x, y):
    """What stands in each of the thirteen words, first y, after its operation with x."""
    signed = np.int32 if x.dtype == np.uint32 else np.int64
    sx, sy = x.view(signed), y.view(signed)
    swapped = np.where((x & x.dtype.type(1) == 1) | (x == y), x * x.dtype.type(3), y)
    return np.stack(
        [
            y + x, y - x, y & x, y | x, y ^ x, x, np.minimum(x, y), np.maximum(x, y),
            np.minimum(sx, sy).view(x.dtype), np.maximum(sx, sy).view(x.dtype),
            np.where(y >= x, 0, y + x.dtype.type(1)), np.where((y == 0) | (y > x), x, y - x.dtype.type(1)), swapped,
        ]
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["host", "numpy"])
@pytest.mark.parametrize(("place", "size", "kind"), list(itertools.product(PLACES, SIZES, KINDS)))
def test_every_operation(place, size, kind, engine):
    dtype = np.uint32 if size == "word" else np.uint64
    items = 1024 if engine == "host" else 128
    generator = np.random.default_rng(31)
    x, y = values = generator.integers(0, np.iinfo(dtype).max, (2, items), dtype=dtype, endpoint=True)
    values[:, ::5] &= dtype(3)
    y[::7] = x[::7]
    old = np.full((ROWS, items), 99, dtype)
    words = np.repeat(y[None], ROWS, axis=0).copy() if place == "memory" else np.zeros((items, ROWS), dtype)
    kernel = module_of("atomics.c", "-O2")[f"{place}_{size}{kind}"]
    kernel[items // 64, 64](values, words, old, np.uint32(items), options=RunOptions(engine=engine))
    found = words if place == "memory" else words.T
    for row, (mine, wanted) in enumerate(zip(found, expected_words(x, y), strict=True)):
        assert np.array_equal(mine, wanted), row
    assert (old == (99 if kind else y)).all()
