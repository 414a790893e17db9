"""Float functions and conversions from builtins: multiple precision and the formats of ml_dtypes say the bits."""

import gmpy2
import ml_dtypes
import numpy as np
import pytest
from c_kernels import module_of

COUNT = 1 << 17


def run(name, values, out, *more, level="-O2"):
    items = len(out)
    module_of("functions.c", level)[name][items // 256, 256](values, out, *more)
    return out


def raw_floats(seed, dtype=np.float32, count=COUNT):
    """Random bits, and as many values of ordinary size."""
    generator = np.random.default_rng(seed)
    raw = {2: np.uint16, 4: np.uint32}[np.dtype(dtype).itemsize]
    bits = generator.integers(0, np.iinfo(raw).max, count, dtype=raw, endpoint=True).view(dtype)
    return np.where(np.arange(count) % 2 == 0, bits, (generator.standard_normal(count) * 20).astype(dtype))


def same(found, expected):
    """Equal to the bit, any NaN for any NaN."""
    raw = {1: np.uint8, 2: np.uint16, 4: np.uint32}[found.dtype.itemsize]
    both = np.isnan(found.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    wrong = np.flatnonzero((~both & (found.view(raw) != expected.view(raw))).ravel())
    return not wrong.size, [(found.ravel()[k], expected.ravel()[k]) for k in wrong[:4]]


EXACT = {
    "exp2": gmpy2.exp2,
    "log2": gmpy2.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / gmpy2.sqrt(x),
    "sqrt": gmpy2.sqrt,
}


def exactly(function, x, dtype):
    """The correctly rounded values in float64; f32 takes and gives no subnormals. 80 bits leave no doubt at random."""
    wide = np.empty(x.shape)
    least = 2.0**-126 if dtype == np.float32 else 0.0
    with gmpy2.context(precision=80, emin=-5000, emax=5000):
        for index, value in enumerate(x.tolist()):
            flushed = value if abs(value) >= least else value * 0
            wide[index] = _to_odd(EXACT[function](gmpy2.mpfr(flushed)))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = wide.astype(dtype)
    return np.where(np.abs(wide) < least, np.copysign(dtype(0), rounded), rounded)


def _to_odd(value):
    """In float64 so that rounding once more to fewer bits is rounding of the value itself."""
    near = float(value)
    if near == value or not np.isfinite(near) or not near:
        return near
    if int(np.float64(near).view(np.uint64)) & 1:
        return near
    return float(np.nextafter(near, np.inf if value > near else -np.inf))


COUNTS = [1 << 15, pytest.param(1 << 19, marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("function", EXACT)
def test_functions_of_single_precision(function, count):
    x = raw_floats(21, count=count)
    if function == "exp2":
        x[1::2] = np.clip(x[1::2] * 8, -127, 129)
    found = run(f"{function}_f32", x, np.zeros_like(x))
    expected = exactly(function, x, np.float32)
    if function == "exp2":
        expected = np.where(x < -126, np.float32(0), expected)  # its rule: zero from there on
    good, examples = same(found, expected)
    assert good, examples


@pytest.mark.parametrize("function", ["rcp", "rsq", "sqrt"])
def test_functions_of_half_precision_at_every_input(function):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    good, examples = same(run(f"{function}_f16", x, np.zeros_like(x)), exactly(function, x, np.float16))
    assert good, examples


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("function", ["sin", "cos"])
def test_sines_of_turns(function, count):
    x = np.random.default_rng(22).uniform(-256, 256, count).astype(np.float32)
    x[::8] = np.round(x[::8] * 8) / 8
    exact = {"sin": gmpy2.sin, "cos": gmpy2.cos}[function]
    wide = np.empty(count)
    with gmpy2.context(precision=100):
        turn = 2 * gmpy2.const_pi()
        for index, value in enumerate(x.tolist()):
            wide[index] = _to_odd(exact(turn * gmpy2.mpfr(value)))
    quarters = x * 4 + (1 if function == "cos" else 0)
    at_zero = (quarters == np.round(quarters)) & (quarters % 2 == 0)
    found = run(f"{function}_f32", x, np.zeros_like(x))
    assert (found[at_zero] == 0).all()
    good, examples = same(found[~at_zero], wide.astype(np.float32)[~at_zero])
    assert good, examples


# --- short formats ---


def test_conversions_to_eight_bits():
    x = raw_floats(23).reshape(-1, 2)
    scale = np.random.default_rng(24).integers(-14, 5, x.shape)
    with np.errstate(invalid="ignore"):
        x = np.ldexp(x, np.where(np.abs(x) < 1e3, scale, 0)).astype(np.float32)
    out = run("to_fp8", x, np.zeros((len(x), 2), np.uint32)).view(np.uint8).reshape(-1, 2, 4)
    for column, dtype in ((0, ml_dtypes.float8_e4m3fn), (1, ml_dtypes.float8_e5m2)):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = x.astype(dtype)
        found = out[:, column].view(dtype)
        good, examples = same(found[:, :2].copy(), expected)
        assert good, examples
        assert np.array_equal(found[:, 2:].view(np.uint8), found[:, 1::-1].view(np.uint8))


def test_conversions_from_eight_bits():
    x = np.random.default_rng(25).integers(0, 1 << 32, COUNT // 4, dtype=np.uint32)
    x[:64] = np.arange(256, dtype=np.uint8).view(np.uint32)  # every value there is
    out = run("from_fp8", x, np.zeros((len(x), 16), np.float32)).reshape(-1, 4, 4)
    for column, dtype in ((0, ml_dtypes.float8_e4m3fn), (2, ml_dtypes.float8_e5m2)):
        expected = x.view(dtype).reshape(-1, 4).astype(np.float32)
        for found in (out[:, column], out[:, column + 1]):
            good, examples = same(found.copy(), expected)
            assert good, examples


def test_conversions_from_scaled_four_bits():
    generator = np.random.default_rng(26)
    words = generator.integers(0, 1 << 32, COUNT // 4, dtype=np.uint32)
    scales = np.float32(2) ** generator.integers(-60, 60, words.size).astype(np.float32)
    pairs = np.stack([words, scales.view(np.uint32)], axis=1).copy()
    out = run("from_scaled_fp4", pairs, np.zeros((words.size, 8), np.float32))
    codes = words[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    expected = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32) * scales[:, None]
    good, examples = same(out, expected)
    assert good, examples


def test_conversions_to_scaled_four_bits():
    generator = np.random.default_rng(27)
    x = (generator.standard_normal((COUNT // 8, 8)) * 3).astype(np.float32)
    x[::7] = np.round(x[::7] * 4) / 4  # ties
    scales = np.float32(2) ** generator.integers(-20, 20, len(x)).astype(np.float32)
    out = run("to_scaled_fp4", x * scales[:, None], np.zeros(len(x), np.uint32), scales)
    codes = (out[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).astype(np.uint8)
    assert np.array_equal(codes, x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15)


def test_conversions_from_scaled_six_bits():
    generator = np.random.default_rng(28)
    words = generator.integers(0, 1 << 32, (COUNT // 32, 6), dtype=np.uint32)
    scales = np.float32(2) ** generator.integers(-60, 60, len(words)).astype(np.float32)
    out = run("from_scaled_fp6", words, np.zeros((len(words), 2, 32), np.float32), scales)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").reshape(-1, 32, 6)
    codes = (bits << np.arange(6, dtype=np.uint8)).sum(axis=2, dtype=np.uint8)
    for column, dtype in ((0, ml_dtypes.float6_e2m3fn), (1, ml_dtypes.float6_e3m2fn)):
        expected = codes.view(dtype).astype(np.float32) * scales[:, None]
        good, examples = same(out[:, column].copy(), expected)
        assert good, examples


def test_pairs_of_brain_floats():
    x = raw_floats(29).reshape(-1, 2)
    found = run("brain_pairs", x, np.zeros(len(x), np.uint32)).view(ml_dtypes.bfloat16).reshape(-1, 2)
    with np.errstate(over="ignore", invalid="ignore"):
        good, examples = same(found, x.astype(ml_dtypes.bfloat16))
    assert good, examples
