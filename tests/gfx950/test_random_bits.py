"""The random data generator against Random123's published vectors and a second implementation in Python integers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfx950.random_bits import bell, bits32, integers, key_words, permutation, philox4x32, uniform

# Random123, tests/kat_vectors, the lines "philox4x32 10": counter, key, result.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(w, 16) for w in text.split()]


def philox_in_python_integers(counter, key):
    c, k = list(counter), list(key)
    for round_index in range(10):
        if round_index:
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
    return c


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_published_vectors(counter, key, result):
    got = philox4x32(np.array([words(counter)], dtype=np.uint32), tuple(words(key)))
    assert got.dtype == np.uint32
    assert got.tolist() == [words(result)]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6))
@settings(max_examples=50, deadline=None)
def test_philox_against_python_integers(numbers):
    got = philox4x32(np.array(numbers[:4], dtype=np.uint32), tuple(numbers[4:]))
    assert got.tolist() == philox_in_python_integers(numbers[:4], numbers[4:])


def test_stream_layout_and_prefix():
    got = bits32(7, 11)
    expected = [word for i in range(3) for word in philox_in_python_integers([i, 0, 0, 0], [7, 0])][:11]
    assert got.tolist() == expected
    assert bits32(7, (2, 3)).tolist() == np.reshape(expected[:6], (2, 3)).tolist()
    assert bits32(7, 0).shape == (0,)


def test_named_streams_are_the_sha256_of_the_name():
    digest = hashlib.sha256(b"drafter/q").digest()
    assert key_words("drafter/q") == (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
    assert not np.array_equal(bits32("a", 8), bits32("b", 8))
    assert bits32(2**64 - 1, 1)[0] == philox_in_python_integers([0] * 4, [2**32 - 1] * 2)[0]


@pytest.mark.parametrize("key", [-1, 2**64])
def test_key_out_of_range(key):
    with pytest.raises(ValueError, match=r"outside 0 \.\. 2\^64-1"):
        bits32(key, 1)


def test_uniform_is_the_top_24_bits():
    values, raw = uniform("u", 4096), bits32("u", 4096)
    assert values.dtype == np.float32
    assert [int(v * 2**24) for v in values.tolist()] == [w >> 8 for w in raw.tolist()]
    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() < 1


def test_bell_is_the_exact_sum_of_twelve_uniforms():
    values, raw = bell("n", (50, 40)), bits32("n", 12000).reshape(2000, 6).tolist()
    assert values.shape == (50, 40)
    assert values.dtype == np.float32
    for value, six in zip(values.reshape(-1).tolist(), raw, strict=True):
        uniforms = [((w >> shift & 0xFFFF) + 0.5) / 65536 for w in six for shift in (0, 16)]
        assert value == sum(uniforms) - 6
    assert abs(values.mean()) < 0.1
    assert abs(values.std() - 1) < 0.05


def test_integers_and_their_range():
    got = integers("i", 3000, -2, 5)
    assert sorted(set(got.tolist())) == list(range(-2, 5))
    assert got.tolist() == [-2 + (w * 7 >> 32) for w in bits32("i", 3000).tolist()]
    assert integers("i", 4, 0, 1 << 32).tolist() == bits32("i", 4).tolist()
    with pytest.raises(ValueError, match=r"must hold 1 to 2\^32 values"):
        integers("i", 1, 3, 3)


def test_permutation_orders_the_words():
    order = permutation("p", 100).tolist()
    keys = [low | high << 32 for low, high in bits32("p", (100, 2)).tolist()]
    assert order == sorted(range(100), key=lambda i: keys[i])


def test_bits_are_pinned():
    """A change of these digests changes every recorded golden."""
    digests = {
        "bits32": hashlib.sha256(bits32("pinned", 1000).astype("<u4").tobytes()).hexdigest()[:16],
        "uniform": hashlib.sha256(uniform("pinned", 1000).astype("<f4").tobytes()).hexdigest()[:16],
        "bell": hashlib.sha256(bell("pinned", 1000).astype("<f4").tobytes()).hexdigest()[:16],
        "permutation": hashlib.sha256(permutation("pinned", 1000).astype("<i8").tobytes()).hexdigest()[:16],
    }
    assert digests == {
        "bits32": "54159525338b34f5",
        "uniform": "301d699293942fd4",
        "bell": "2e5fe0bad91260bb",
        "permutation": "9f3c0ae1980d0a58",
    }


@pytest.mark.parametrize("shape", [-1, (-1, 5), (3, -2), 1.5, [3, 4], "a", None, True, (2.0, 3)])
@pytest.mark.parametrize("draw", [bits32, uniform, bell])
def test_shapes_that_no_array_has(draw, shape):
    with pytest.raises(ValueError, match=r"the shape is .*; expected a whole number from 0 on, or a tuple of them"):
        draw("k", shape)


@pytest.mark.parametrize("key", [1.5, None, b"x", np.arange(2)])
def test_keys_that_name_no_stream(key):
    with pytest.raises(TypeError, match="a stream is named by a string or an integer, not by"):
        bits32(key, 2)


def test_ranges_that_no_int64_holds():
    with pytest.raises(TypeError, match=r"integers from 0\.5 to 3: both ends are whole numbers"):
        integers("k", 3, 0.5, 3)
    for low in (1 << 63, (1 << 63) - 2):
        with pytest.raises(ValueError, match="both within int64"):
            integers("k", 3, low, (1 << 63) + 3)
    narrow = integers("k", 3, np.int8(-100), np.int8(100))
    np.testing.assert_array_equal(narrow, integers("k", 3, -100, 100))
