"""Each kind of fault is named, in every format and shape that can have it, and noise is not."""

from __future__ import annotations

import numpy as np
import pytest

from gfx950.formats import FORMATS
from golden.compare import compare

FORMS = ("f32", "bf16", "f16", "e4m3fn", "e5m2", "e2m1", "u8", "u16", "u32", "u64")
SHAPES = ((16, 16), (32, 64), (8, 16), (3, 32, 16), (1024,), (2, 5, 6, 8))
FLOATS = tuple(name for name in FORMS if name in FORMATS)


def bits_of(form):
    return FORMATS[form].bits if form in FORMATS else int(form[1:])


def dtype_of(form):
    return FORMATS[form].code_dtype if form in FORMATS else np.dtype(f"u{int(form[1:]) // 8}")


def codes(form, shape, seed=0, finite=True):
    """Random codes; with `finite`, of numbers only."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 1 << bits_of(form), shape, dtype=np.uint64, endpoint=False).astype(dtype_of(form))
    if finite and form in FORMATS and FORMATS[form].nan.name != "none":
        magnitude = found & FORMATS[form].magnitude_mask
        found = np.where(magnitude > FORMATS[form].max_code, found & ~np.array(0b11100, found.dtype), found)
        magnitude = found & FORMATS[form].magnitude_mask
        found = np.where(magnitude > FORMATS[form].max_code, 1, found)
    return found.astype(dtype_of(form))


def named(a, b, form, before=None):
    found = compare("o", a, np.ascontiguousarray(b).astype(a.dtype), form, before, ("host", "chip"))
    assert found is not None, "the fault changed nothing"
    return found.pattern


# ---- elements in other places ----------------------------------------------------------------------------------------


def tiles(a, t):
    rows, columns = a.shape[-2:]
    parts = a.reshape(*a.shape[:-2], rows // t, t, columns // t, t)
    return np.swapaxes(parts, -1, -3).reshape(a.shape)


def interleaved(a):
    low, high = np.split(a, 2, -1)
    return np.stack([low, high], -1).reshape(a.shape)


def shifted(a, nbytes):
    raw = a.reshape(-1).view(np.uint8)
    moved = np.roll(raw, nbytes)
    ends = slice(None, nbytes) if nbytes > 0 else slice(nbytes, None)
    moved[ends] = np.random.default_rng(3).integers(0, 256, abs(nbytes), dtype=np.uint8) & 1
    return moved.view(a.dtype).reshape(a.shape)


def rows_shifted(a, rows):
    return shifted(a, rows * a.shape[-1] * a.dtype.itemsize)


def square(shape):
    return len(shape) > 1 and shape[-1] == shape[-2]


def oblong(shape):
    return len(shape) > 1 and shape[-1] != shape[-2]


def read_transposed(a):
    rows, columns = a.shape[-2:]
    return np.swapaxes(a.reshape(*a.shape[:-2], columns, rows), -1, -2)


def tiled(t):
    return lambda shape: len(shape) > 1 and shape[-1] % t == shape[-2] % t == 0 and shape[-2:] != (t, t)


MOVES = {
    "transposed": (square, lambda a: np.swapaxes(a, -1, -2), "transposed"),
    "transposed in memory": (
        oblong,
        lambda a: np.swapaxes(a, -1, -2).reshape(a.shape),
        "transposed: {n}x{m} in memory",
    ),
    "read transposed": (oblong, read_transposed, "transposed: read as {n}x{m}"),
    "4x4 tiles": (tiled(4), lambda a: tiles(a, 4), "each 4x4 tile transposed"),
    "16x16 tiles": (tiled(16), lambda a: tiles(a, 16), "each 16x16 tile transposed"),
    "halves": (None, lambda a: np.roll(a, a.shape[-1] // 2, -1), "halves swapped"),
    "neighbours": (None, lambda a: a[..., np.arange(a.shape[-1]) ^ 1], "neighbours swapped"),
    "pairs": (lambda s: s[-1] > 4, lambda a: a[..., np.arange(a.shape[-1]) ^ 2], "groups of 2 swapped"),
    "interleaved": (None, interleaved, "halves interleaved"),
    "apart": (None, lambda a: np.concatenate([a[..., ::2], a[..., 1::2]], -1), "even and odd elements apart"),
    "lower again": (
        None,
        lambda a: np.concatenate([a[..., : a.shape[-1] // 2]] * 2, -1),
        "upper half repeats the lower",
    ),
    "upper again": (
        None,
        lambda a: np.concatenate([a[..., a.shape[-1] // 2 :]] * 2, -1),
        "lower half repeats the upper",
    ),
    "reversed": (None, lambda a: a[..., ::-1], "reversed along axis {last}"),
    "by a column": (None, lambda a: np.roll(a, 1, -1), "moved by 1 along axis {last}"),
    "by a row": (lambda s: len(s) == 2, lambda a: np.roll(a, -1, 0), "rows moved by -1"),
    "in memory by a row": (
        lambda s: len(s) > 1 and int(np.prod(s[:-1])) > 8,
        lambda a: rows_shifted(a, 2),
        "rows moved by 2 in memory",
    ),
    "in memory back": (
        lambda s: len(s) > 1 and int(np.prod(s[:-1])) > 8,
        lambda a: rows_shifted(a, -1),
        "rows moved by -1 in memory",
    ),
    "in memory by elements": (
        None,
        lambda a: shifted(a, 3 * a.dtype.itemsize),
        "moved by 3 elements in memory",
    ),
    "first row": (
        lambda s: len(s) > 1,
        lambda a: np.broadcast_to(a[..., :1, :], a.shape),
        "all as the first along axis {rows}",
    ),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", MOVES)
def test_elements_in_other_places(kind, form, shape):
    possible, fault, name = MOVES[kind]
    if possible is not None and not possible(shape):
        return
    a = codes(form, shape)
    expected = name.format(last=len(shape) - 1, rows=len(shape) - 2, n=shape[-1], m=shape[-2:][0])
    assert named(a, fault(a), form) == expected


@pytest.mark.parametrize("form", [f for f in FORMS if dtype_of(f).itemsize > 1])
@pytest.mark.parametrize("nbytes", [1, -1, 3, -5])
def test_a_shift_by_bytes(form, nbytes):
    size = dtype_of(form).itemsize
    if nbytes % size == 0:
        return
    a = codes(form, (64, 32), finite=False)
    assert named(a, shifted(a, nbytes), form) == f"moved by {nbytes} byte{'s' * (abs(nbytes) > 1)} in memory"


@pytest.mark.parametrize(
    ("form", "fault", "name"),
    [
        ("u8", lambda a: a >> 4 | a << 4, "4-bit halves of each byte swapped"),
        ("u16", lambda a: a.byteswap(), "bytes of each element reversed"),
        ("bf16", lambda a: a.byteswap(), "bytes of each element reversed"),
        ("u32", lambda a: a >> 16 | a << 16, "16-bit halves of each element swapped"),
        ("f32", lambda a: a >> 16 | a << 16, "16-bit halves of each element swapped"),
        ("u64", lambda a: a >> 32 | a << 32, "32-bit halves of each element swapped"),
        ("u32", lambda a: a.view(np.uint16).byteswap().view(np.uint32), "bytes of each 16-bit half swapped"),
    ],
)
def test_parts_of_elements_in_other_places(form, fault, name):
    a = codes(form, (16, 16), finite=False)
    assert named(a, fault(a), form) == name


# ---- elements with other values --------------------------------------------------------------------------------------


def some(a, share, change, seed=1):
    """The change in a share of the elements."""
    chosen = np.random.default_rng(seed).random(a.shape) < share
    return np.where(chosen, change(a), a).astype(a.dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.1, 1])
def test_a_bit_that_is_flipped(form, shape, share):
    a = codes(form, shape, finite=False)
    for place in range(0, bits_of(form) - 1, 3):
        found = named(a, some(a, share, lambda x, p=place: x ^ np.array(1 << p, x.dtype)), form)
        assert found.startswith(f"bit {place}"), place
        assert found.endswith("is flipped in each")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [0, 1])
def test_a_bit_that_is_stuck(form, value):
    a, place = codes(form, (32, 64), finite=False), bits_of(form) - 2
    mask = np.array(1 << place, a.dtype)
    found = named(a, a | mask if value else a & ~mask, form)
    assert found.startswith(f"bit {place}")
    assert found.endswith(f"is {value} in each: stuck")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_several_bits_that_are_flipped(form, shape):
    a = codes(form, shape, finite=False)
    mask = 0b1001
    assert named(a, some(a, 0.2, lambda x: x ^ np.array(mask, x.dtype)), form) == (
        f"the same bits are flipped in each: 0x{mask:x}"
    )


@pytest.mark.parametrize("form", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_signs(form, shape):
    a = codes(form, shape, finite=False)
    assert named(a, some(a, 0.3, lambda x: x ^ np.array(FORMATS[form].sign_mask, x.dtype)), form) == "only signs differ"


@pytest.mark.parametrize("form", ["f32", "bf16", "f16", "e5m2", "e4m3fn"])
@pytest.mark.parametrize("signed", [False, True])
def test_flushed_subnormals(form, signed):
    fmt = FORMATS[form]
    a = codes(form, (32, 64))
    a[::3] &= np.array(fmt.sign_mask | ((1 << fmt.mantissa_bits) - 1), a.dtype)
    subnormal = (a & fmt.magnitude_mask) < 1 << fmt.mantissa_bits
    zero = a & np.array(fmt.sign_mask, a.dtype) if signed else np.zeros_like(a)
    flushed = np.where(subnormal, zero, a)
    assert named(a, flushed, form) == "zero in chip where host is subnormal: flushed"
    assert named(flushed.astype(a.dtype), a, form) == "zero in host where chip is subnormal: flushed"
    half = np.arange(a.shape[1]) % 2 == 0
    assert named(np.where(half, a, flushed).astype(a.dtype), np.where(half, flushed, a), form) == (
        "zero where the other is subnormal: flushed"
    )


@pytest.mark.parametrize("form", FLOATS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_another_rounding(form, shape):
    a = codes(form, shape)
    top = FORMATS[form].max_code
    a = np.where((a & FORMATS[form].magnitude_mask) >= top, 1, a).astype(a.dtype)
    step = np.random.default_rng(2).integers(0, 2, shape).astype(a.dtype)
    down = (np.random.default_rng(4).random(shape) < 0.5) & ((a & FORMATS[form].magnitude_mask) > 0)
    b = np.where(down, a - step, a + step).astype(a.dtype)
    assert named(a, b, form) == "never more than one unit in the last place apart: another rounding"


@pytest.mark.parametrize("form", ["f32", "bf16", "f16", "e4m3fn", "e5m2"])
def test_truncation(form):
    a = codes(form, (32, 64))
    a = np.where((a & FORMATS[form].magnitude_mask) == 0, 1, a).astype(a.dtype)
    assert named(a, some(a, 0.5, lambda x: x - np.array(1, x.dtype)), form) == (
        "chip one unit in the last place nearer to zero in each: truncated"
    )


@pytest.mark.parametrize("form", ["e4m3fn", "e5m2"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_fp8_of_gfx942(form, shape):
    a = codes(form, shape)
    other = FORMATS[form.removesuffix("fn") + "fnuz"]
    b = other.encode(FORMATS[form].decode(a))
    keep = other.decode(b) == FORMATS[form].decode(a)
    a = np.where(keep, a, 0).astype(a.dtype)
    assert named(a, np.where(keep, b, 0), form) == "the codes of OCP FP8 against FNUZ"


@pytest.mark.parametrize("form", ["f32", "bf16", "f16", "e5m2"])
@pytest.mark.parametrize("power", [2, -2])
def test_another_scale(form, power):
    fmt = FORMATS[form]
    exponent = np.random.default_rng(5).integers(4, (1 << fmt.exponent_bits) - 5, (16, 32))
    mantissa = codes(form, (16, 32), seed=9) & ((1 << fmt.mantissa_bits) - 1)
    a = (exponent << fmt.mantissa_bits | mantissa).astype(fmt.code_dtype)
    b = (a.astype(np.int64) + power * (1 << fmt.mantissa_bits)).astype(a.dtype)
    larger, smaller = ("chip", "host") if power > 0 else ("host", "chip")
    assert named(a, b, form) == f"{larger} is 4 times {smaller}: another scale"


@pytest.mark.parametrize("form", ["f32", "bf16", "f16", "e4m3fn", "e5m2"])
def test_saturation(form):
    fmt = FORMATS[form]
    a = codes(form, (32, 64))
    over = np.random.default_rng(6).random(a.shape) < 0.1
    sign = a & np.array(fmt.sign_mask, a.dtype)
    beyond = fmt.max_code + 1 if fmt.infinities else fmt.canonical_nan
    a = np.where(over, sign | beyond, a).astype(a.dtype)
    found = named(a, np.where(over, sign | fmt.max_code, a), form)
    expected = "the largest number in chip where host overflows: saturated"
    assert found in (expected, "bit 0 (mantissa) is flipped in each") if form == "e4m3fn" else found == expected


def test_precision_of_bf16():
    a = codes("f32", (32, 64))
    b = ((a + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).astype(np.uint32)
    assert named(a, b, "f32") == "chip has only the precision of bf16"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_was_not_written(form, shape):
    a, before = codes(form, shape), codes(form, shape, seed=8)
    missing = np.random.default_rng(7).random(shape) < 0.3
    assert named(a, np.where(missing, before, a), form, before) == "chip is what it was before: not written"
    zero = np.where(missing, 0, a)
    assert named(a, zero, form) in ("zero in chip: not written", "zero in chip where host is subnormal: flushed")
    assert named(zero.astype(a.dtype), a, form) in ("zero in host: not written",)


@pytest.mark.parametrize("form", ["f32", "bf16", "u32"])
def test_one_value_everywhere(form):
    a = codes(form, (32, 64))
    value = 0x7FC0 if form == "bf16" else 0x7FC00000
    found = named(a, some(a, 0.2, lambda x: np.full_like(x, value)), form)
    assert found.startswith(f"chip is 0x{value:x}")


# ---- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_noise_is_not_named(form, shape):
    """Random codes in random places, from two elements to all of them."""
    for seed in range(60):
        rng = np.random.default_rng((seed, len(shape), bits_of(form)))
        a, other = codes(form, shape, seed, finite=False), codes(form, shape, seed + 1000, finite=False)
        count = int(min(a.size, 2 ** rng.uniform(1, 11)))
        at = rng.choice(a.size, count, replace=False)
        b = a.copy()
        b.reshape(-1)[at] = other.reshape(-1)[at]
        found = compare("o", a, b, form, codes(form, shape, seed + 5000, finite=False))
        assert found is None or found.pattern == "", (seed, count)


@pytest.mark.parametrize("form", FORMS)
def test_flips_of_random_bits_are_not_named(form):
    """One bit an element, another one in each: no cause of all, where there are some."""
    bits = bits_of(form)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        a = codes(form, (16, 16), seed, finite=False)
        b, count = a.copy(), int(rng.integers(24, 200))
        at = rng.choice(a.size, count, replace=False)
        flips = (np.uint64(1) << rng.integers(0, bits, count).astype(np.uint64)).astype(a.dtype)
        b.reshape(-1)[at] ^= flips
        assert compare("o", a, b, form).pattern == "", seed


@pytest.mark.parametrize("form", FORMS)
def test_one_element_is_never_a_pattern(form):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        a = codes(form, SHAPES[seed % len(SHAPES)], seed, finite=False)
        b = a.copy()
        b.reshape(-1)[rng.integers(a.size)] ^= np.array(rng.integers(1, 1 << min(bits_of(form), 62)), a.dtype)
        assert compare("o", a, b, form, np.zeros_like(a)).pattern == ""


def test_a_small_array_that_could_be_anything():
    """Two swapped bytes of four are a transposition, halves swapped, and an accident."""
    a = np.array([[1, 2], [3, 1]], np.uint8)
    assert named(a, a.T, "u8") == ""
