"""Narrow floats: MX quantisation, equal to ml_dtypes to the bit; and every conversion that FlyDSL names for gfx950."""

import ml_dtypes
import numpy as np
import pytest
from flydsl_conversions import CONVERSIONS
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

FORMATS = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


@pytest.mark.parametrize(("kind", "below"), [("fp8", 7), ("fp4", 2)])
def test_quantise(kind, below):
    rng = np.random.default_rng(25)
    values = (rng.standard_normal((128, 32)) * np.exp2(rng.integers(-20, 20, (128, 1)))).astype(np.float32)
    scales, codes = np.zeros(128, np.int32), np.zeros((128, BITS[kind]), np.int32)
    (_, scales, codes), mnemonics = run_everywhere(
        compile_flydsl("conversions", f"quantise_{kind}"), 2, 64, [values, scales, codes]
    )
    exponents = np.frexp(abs(values).max(1))[1] - 1 - below
    assert np.array_equal(scales, exponents + 127)
    expected = np.ldexp(values, -exponents[:, None]).astype(FORMATS[kind]).view(np.uint8)
    if kind == "fp4":
        expected = expected[:, ::2] | expected[:, 1::2] << 4
    assert codes.tobytes() == expected.tobytes()
    assert f"v_cvt_scalef32_pk_{kind}_f32" in mnemonics


def converted(name, words, scales):
    """What a conversion makes of words (64, 32), and the mnemonics."""
    out = np.zeros((64, 32), np.uint32)
    (_, _, out), mnemonics = run_everywhere(compile_flydsl("conversions", name), 1, 64, [words, scales, out])
    return out, mnemonics


def random_words():
    """Operands: random bits, but every other word the bits of an f32 of common size. Scales: powers of two."""
    rng = np.random.default_rng(26)
    words = rng.integers(0, 1 << 32, (64, 32), dtype=np.uint32)
    words[:, ::2] = rng.standard_normal((64, 16)).astype(np.float32).view(np.uint32)
    return words, np.exp2(rng.integers(-9, 9, 64)).astype(np.float32).view(np.uint32)


@pytest.mark.parametrize("name", [row[0] for row in CONVERSIONS])
def test_engines_agree(name):
    out, mnemonics = converted(name, *random_words())
    assert out.any()
    assert any(m.startswith("v_cvt_") for m in mnemonics)


def widened(kind, words, first, count):
    """Codes of a narrow format, from bit `first` of each lane's words on, as numbers."""
    ones = np.unpackbits(words.view(np.uint8).reshape(64, -1), axis=1, bitorder="little")[:, first:]
    ones = ones[:, : count * BITS[kind]].reshape(64, count, BITS[kind])
    codes = np.packbits(ones, axis=2, bitorder="little")[..., 0]
    return codes.view(FORMATS[kind]).astype(np.float64)


WIDENINGS = [
    *((f"cvt_pk_f32_{kind}", kind, "f32", 16, 2, False) for kind in ("fp8", "bf8")),
    *(
        (f"cvt_scalef32_pk_{wide}_{kind}", kind, wide, 16, 2, True)
        for wide in ("f32", "bf16")
        for kind in ("fp8", "bf8")
    ),
    *((f"cvt_scalef32_pk_{wide}_fp4", "fp4", wide, 16, 2, True) for wide in ("f32", "f16", "bf16")),
    *(
        (f"cvt_scalef32_pk32_{wide}_{k}", k, wide, 0, 32, True)
        for wide in ("f32", "f16", "bf16")
        for k in ("fp6", "bf6")
    ),
]


@pytest.mark.parametrize(("name", "kind", "wide", "first", "count", "scaled"), WIDENINGS)
def test_widening(name, kind, wide, first, count, scaled):
    """Exact, and the NaNs are where ml_dtypes has them."""
    words, scales = random_words()
    out, _ = converted(name, words, scales)
    expected = widened(kind, words, first, count)
    if scaled:
        expected *= scales.view(np.float32)[:, None].astype(np.float64)
    made = out.view(np.uint8).reshape(64, -1)[:, : count * np.dtype(FORMATS[wide]).itemsize]
    made = np.ascontiguousarray(made).view(FORMATS[wide]).astype(np.float64)
    with np.errstate(over="ignore"):
        assert np.array_equal(made, expected.astype(FORMATS[wide]).astype(np.float64), equal_nan=True)
