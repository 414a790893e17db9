"""Random test data whose bits are the same on every host, for every numpy and for ever.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11),
written in integer operations only: a word is a pure function of its stream and its index, so a longer array starts
with the shorter one. A stream is named by a string (the first 8 bytes of its SHA-256, little-endian, are the
Philox key) or by an integer below 2^64 (the key itself).

Nothing here calls a mathematical library or rounds: every value is an integer times a power of two, exact in its dtype.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

Key = str | int
Shape = int | tuple[int, ...]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LOW = 0xFFFFFFFF
_HALVES_OF_BELL = 12  # twelve uniforms of variance 1/12: unit variance without a scale factor


def philox4x32(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Ten Philox rounds over `counter` uint32 [..., 4] with two 32-bit key words; returns uint32 [..., 4]."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    shift, low = np.uint64(32), np.uint64(_LOW)
    for _ in range(_ROUNDS):
        p0 = c0 * np.uint64(_MULTIPLIERS[0])
        p1 = c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low
        c2, c3 = (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def key_words(key: Key) -> tuple[int, int]:
    """The two Philox key words of a stream.

    Raises ValueError for an integer outside 0 .. 2^64-1, TypeError for what is neither string nor integer.
    """
    if isinstance(key, str):
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    elif not isinstance(key, int | np.integer):
        raise TypeError(f"a stream is named by a string or an integer, not by {key!r}")
    elif 0 <= key < 1 << 64:
        number = int(key)
    else:
        raise ValueError(f"stream key {key} is outside 0 .. 2^64-1; name the stream with a string instead")
    return number & _LOW, number >> 32


def size_of(shape: Shape) -> int:
    """Elements of an array of `shape`. Raises ValueError for anything but whole numbers from 0 on."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise ValueError(f"the shape is {shape!r}; expected a whole number from 0 on, or a tuple of them")
    return math.prod(int(n) for n in sizes)


def bits32(key: Key, shape: Shape) -> NDArray[np.uint32]:
    """Uniform words, uint32 of `shape`: flat element i is word i % 4 of the Philox block with counter i // 4.

    Raises ValueError for a shape that no array has, and as `key_words`; the functions below too.
    """
    size = size_of(shape)
    blocks = np.arange((size + 3) // 4, dtype=np.uint64)
    counter = np.zeros((blocks.size, 4), dtype=np.uint32)
    counter[:, 0] = (blocks & np.uint64(_LOW)).astype(np.uint32)
    counter[:, 1] = (blocks >> np.uint64(32)).astype(np.uint32)
    return philox4x32(counter, key_words(key)).reshape(-1)[:size].reshape(shape)


def uniform(key: Key, shape: Shape) -> NDArray[np.float32]:
    """float32 of `shape` in [0, 1): the top 24 bits of each word times 2^-24, exact."""
    return (bits32(key, shape) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def bell(key: Key, shape: Shape) -> NDArray[np.float32]:
    """Normal-like float32 of `shape`: mean 0, variance 1 (less 2^-32), symmetric, within +-6 (Irwin-Hall, n = 12).

    Six words give twelve 16-bit uniforms, each taken at the middle of its cell; their sum less 6 is a multiple of 2^-16
    that float32 holds exactly.
    """
    size = size_of(shape)
    halves = bits32(key, (size, _HALVES_OF_BELL // 2)).astype("<u4").view("<u2").astype(np.int64)
    total = halves.sum(axis=1) + _HALVES_OF_BELL // 2 - (_HALVES_OF_BELL // 2 << 16)
    scaled: NDArray[np.float32] = total.astype(np.float32) * np.float32(2.0**-16)
    return scaled.reshape(shape)


def integers(key: Key, shape: Shape, low: int, high: int) -> NDArray[np.int64]:
    """int64 of `shape` in low .. high-1: the high half of word * (high - low), so weights differ by at most 2^-32.

    Raises ValueError unless 1 <= high - low <= 2^32 and both fit int64, TypeError unless they are integers.
    """
    if not all(isinstance(n, int | np.integer) for n in (low, high)):
        raise TypeError(f"integers from {low!r} to {high!r}: both ends are whole numbers")
    low, high = int(low), int(high)
    if low < -(1 << 63) or high > 1 << 63:
        raise ValueError(f"integers in {low} .. {high - 1}: expected both within int64")
    if not 1 <= high - low <= 1 << 32:
        raise ValueError(f"integers in {low} .. {high - 1}: the range must hold 1 to 2^32 values")
    scaled = bits32(key, shape).astype(np.uint64) * np.uint64(high - low)
    return (scaled >> np.uint64(32)).astype(np.int64) + low


def permutation(key: Key, count: int) -> NDArray[np.int64]:
    """A random order of 0 .. count-1, int64: the stable order of `count` 64-bit words (two words each, low first)."""
    words = bits32(key, (count, 2)).astype(np.uint64)
    return np.argsort(words[:, 0] | (words[:, 1] << np.uint64(32)), kind="stable").astype(np.int64)
