"""v_sin and v_cos against MPFR: every f16 input, and every f32 input that a double could round the wrong way."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest
from rounding_boundaries import boundary_scan

from gfx950.arithmetic import transcendental, trigonometric_lanes
from gfx950.arithmetic.native import NATIVES
from gfx950.evidence import Evidence

NAMES = ("v_sin_f32", "v_cos_f32", "v_sin_f16", "v_cos_f16")


@pytest.fixture(autouse=True)
def precise():
    with gmpy2.context(precision=300):
        yield


def run(name, bits):
    padded = np.zeros(-(-len(bits) // 64) * 64, np.uint32)
    padded[: len(bits)] = bits
    return NATIVES[name](padded.reshape(-1, 1, 64)).reshape(-1)[: len(bits)]


def words(text):
    return [int(word, 16) for word in text.split()]


def exact(name, x):
    """sin or cos of 2 pi x for a rational x; exactly 0 and +-1 where it is."""
    turns = gmpy2.mpq(x) % 1
    if "cos" in name:
        turns = (turns + gmpy2.mpq(1, 4)) % 1
    if (4 * turns).denominator == 1:
        return gmpy2.mpfr([0, 1, 0, -1][int(4 * turns)])
    return gmpy2.sin(2 * gmpy2.const_pi() * gmpy2.mpfr(turns))


def nearest(value, mantissa, emin):
    """Bits of the nearest float (ties to even) of magnitude at most 1: by integers, the exact value scaled."""
    if value == 0:
        return 0
    exponent = max(gmpy2.get_exp(value) - 1, emin)
    steps = int(gmpy2.rint(abs(value) * gmpy2.exp2(mantissa - exponent)))  # no ties: sines are no dyadic numbers
    return steps + (exponent - emin << mantissa)  # a carry out of the mantissa goes into the exponent by itself


def expected(name, bits):
    single = name.endswith("f32")
    width, mantissa, emin = (32, 23, -126) if single else (16, 10, -14)
    sign, magnitude = bits >> width - 1, bits & (1 << width - 1) - 1
    infinity = (1 << width - 1) - (1 << mantissa)
    if magnitude > infinity:
        return bits | 1 << mantissa - 1
    if magnitude == infinity:
        return 1 << width - 1 | infinity | 1 << mantissa - 1
    if magnitude == 0 and "sin" in name:
        return bits
    field, rest = magnitude >> mantissa, magnitude & (1 << mantissa) - 1
    steps = rest | (1 << mantissa if field else 0)
    x = gmpy2.mpq(steps) * gmpy2.mpq(2) ** (max(field, 1) - 1 + emin - mantissa)
    value = exact(name, -x if sign else x)
    return nearest(value, mantissa, emin) | (1 << width - 1 if value < 0 else 0)


def compare(name, bits):
    got = run(name, bits)
    want = np.array([expected(name, int(b)) for b in bits], np.uint32)
    wrong = np.flatnonzero(got != want)
    assert not len(wrong), [f"{bits[i]:08x}: {got[i]:08x}, not {want[i]:08x}" for i in wrong[:5]]


@pytest.mark.parametrize("name", ["v_sin_f16", "v_cos_f16"])
def test_every_f16_input(name):
    bits = np.arange(1 << 16, dtype=np.uint32)
    compare(name, bits)
    assert np.array_equal(run(name, bits | np.uint32(0xABCD0000)), run(name, bits)), "the high half is not read"


def test_the_manuals_examples():
    """[CDNA4 ISA 12.8]"""
    examples = [
        ("v_sin_f32", 0xFF800000, 0xFFC00000), ("v_sin_f32", 0xFF7FFFFF, 0), ("v_sin_f32", 0x80000000, 0x80000000),
        ("v_sin_f32", 0x3E800000, 0x3F800000), ("v_sin_f32", 0x7F800000, 0xFFC00000),
        ("v_cos_f32", 0xFF800000, 0xFFC00000), ("v_cos_f32", 0xFF7FFFFF, 0x3F800000),
        ("v_cos_f32", 0x80000000, 0x3F800000), ("v_cos_f32", 0x3E800000, 0), ("v_cos_f32", 0x7F800000, 0xFFC00000),
        ("v_sin_f16", 0xFC00, 0xFE00), ("v_sin_f16", 0xFBFF, 0), ("v_sin_f16", 0x8000, 0x8000),
        ("v_sin_f16", 0x3400, 0x3C00), ("v_sin_f16", 0x7BFF, 0), ("v_sin_f16", 0x7C00, 0xFE00),
        ("v_cos_f16", 0xFC00, 0xFE00), ("v_cos_f16", 0xFBFF, 0x3C00), ("v_cos_f16", 0x8000, 0x3C00),
        ("v_cos_f16", 0x3400, 0), ("v_cos_f16", 0x7BFF, 0x3C00), ("v_cos_f16", 0x7C00, 0xFE00),
    ]  # fmt: skip
    for name, bits, want in examples:
        assert f"{run(name, np.array([bits], np.uint32))[0]:08x}" == f"{want:08x}", (name, hex(bits))


@pytest.mark.parametrize("name", ["v_sin_f32", "v_cos_f32"])
def test_random_and_special_inputs(name):
    generator = np.random.default_rng(11)
    special = [0, 1, 2, 0x400000, 0x7FFFFF, 0x800000, 0x800001, 0x3DFFFFFF, 0x3E000000, 0x3E000001, 0x3E7FFFFF]
    special += [0x3E800000, 0x3E800001, 0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F400000, 0x3F7FFFFF, 0x3F800000]
    special += [0x4AFFFFFF, 0x4B000000, 0x4B000001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC12345, 0x7FFFFFFF]
    bits = np.array([*special, *HARDEST[name]], np.uint32)
    around = generator.integers(0x30000000, 0x4B800000, 3000, dtype=np.uint32)
    subnormal = generator.integers(0, 1 << 24, 500, dtype=np.uint32)
    bits = np.concatenate([bits, around, subnormal, generator.integers(0, 1 << 32, 1000, dtype=np.uint32)])
    compare(name, np.concatenate([bits, bits ^ np.uint32(1 << 31)]))


# The eighths of a turn nearest to a rounding boundary, from the scan below.
HARDEST = {
    "v_sin_f32": words("""
        34654db5 34fe1a70 359652f2 3646cc39 36dd7857 3777e3b8 37a51f5a 37da58fc 3851db43 38c00f04 39e61359 3c490961
        3c6eb990 3ca73e15 3d00c8a4 3d7d7f58
    """),
    "v_cos_f32": words("""
        390721a7 3a25301b 3aa5bca6 3b957c18 3bb09378 3bbde93d 3be25b7c 3c764ced 3cbba293 3d079f7e 3d0ed5d9 3d33021a
        3de095b2
    """),
}


def core(name):
    eighth = trigonometric_lanes.eighth
    return (lambda t: eighth(t)[0]) if "sin" in name else (lambda t: eighth(t)[1])


@pytest.mark.parametrize("name", ["v_sin_f32", "v_cos_f32"])
def test_cores_are_within_four_units(name):
    """The scan trusts doubles that are more than 32 units from a boundary; here is the room it has."""
    generator = np.random.default_rng(12)
    inputs = np.concatenate([generator.uniform(0, 0.125, 2000), 2 ** generator.uniform(-149, -3, 2000), [0.125]])
    for t in inputs.astype(np.float32).astype(np.float64):
        got, want = float(core(name)(t)), exact(name, gmpy2.mpq(t))
        assert abs(gmpy2.mpfr(got) - want) <= 4 * np.spacing(abs(got)), t


@pytest.mark.slow
@pytest.mark.parametrize(("name", "first"), [("v_sin_f32", 0x00800000), ("v_cos_f32", 0x38000000)])
def test_every_input_near_a_rounding_boundary(name, first):
    """A finite input is quarters of a turn and at most an eighth t, which is an f32 number too; below 2^-15 the cosine
    of t rounds to 1 (a quarter's neighbours, multiples of 2^-26 or more, are the ones to look at)."""
    scan, found = boundary_scan(core(name)), np.zeros(1 << 20, np.uint32)
    hard = found[: scan(first, 0x3E000001, 32, found)].copy()
    assert len(hard)
    compare(name, hard)


@pytest.mark.slow
def test_every_subnormal_result():
    """2 pi times every subnormal and the normal numbers up to 2^-126, by integers: pi to 200 bits."""
    bits = np.arange(0, 0x00B00000, dtype=np.uint32)
    two_pi = int(gmpy2.rint(2 * gmpy2.const_pi() * gmpy2.exp2(64)))
    steps = np.where(
        bits >= 0x00800000, bits.astype(np.int64), bits
    )  # multiples of 2^-149 in both binades below 2^-125
    low, high = two_pi & 0xFFFFFFFF, two_pi >> 32
    carried = steps * high + (steps * low >> 32)  # floor of 2 pi * steps * 2^32; the next ones are far from ties
    rest = carried & 0xFFFFFFFF
    assert np.abs(rest - 0x80000000)[1:].min() > 2
    rounded = (carried >> 32) + (rest > 0x80000000)
    inside = rounded < 1 << 23
    got = run("v_sin_f32", bits)
    assert np.array_equal(got[inside], rounded[inside].astype(np.uint32))
    assert inside.sum() > 1 << 20


def test_rules_know_them():
    for name in NAMES:
        rules = {rule.name: rule.evidence for rule in transcendental.rules(name)}
        assert rules["transcendental.turns"] is Evidence.spec
        assert rules["transcendental.turns_zeros"] is Evidence.chosen  # most of them are in no example
