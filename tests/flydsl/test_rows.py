"""Kernels over rows: the same bits on every engine, and a float64 result inside a bound derived beside each."""

import ml_dtypes
import numpy as np
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

ROWS, LENGTH = 3, 1024
TO_BF16 = 2.0**-8  # rounding to the nearest bf16, relative
# Relative error of a sum of 1024 positive f32: 3 additions in a thread, 6 over its wave, 3 over the waves.
SUM = 12 * 2.0**-24


def bf16_rows(seed, rows=ROWS):
    return np.random.default_rng(seed).standard_normal((rows, LENGTH)).astype(ml_dtypes.bfloat16)


def run(build, grid, arguments, **more):
    words = [a.view(np.uint16) if getattr(a, "dtype", None) == ml_dtypes.bfloat16 else a for a in arguments]
    after, mnemonics = run_everywhere(compile_flydsl("rows", build), grid, 256, words, **more)
    return after[len(arguments) - 1 if isinstance(arguments[-1], np.ndarray) else -2], mnemonics


def test_softmax():
    x = bf16_rows(7)
    y, mnemonics = run("softmax", ROWS, [x, np.zeros_like(x)])
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    expected = powers / powers.sum(1, keepdims=True)
    # The exponent is below 16 and rounded twice, 2**-24 of it each: 2**-19 of its power. Power and quotient: 2**-22.
    bound = TO_BF16 + 2 * 2.0**-19 + SUM + 2.0**-22
    assert (abs(y.view(ml_dtypes.bfloat16).astype(np.float64) - expected) <= bound * expected).all()
    assert {"v_exp_f32", "v_rcp_f32", "v_div_fixup_f32", "s_barrier"} <= mnemonics


def test_rms_norm():
    x, weight = bf16_rows(8), bf16_rows(9, 1)
    y, _ = run("rms_norm", ROWS, [x, weight, np.zeros_like(x), np.float32(1e-5)])
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * weight.astype(np.float64)
    # A square and the sum's half (the root halves it), epsilon, root and the two products: 2**-24 each, at most eight.
    bound = TO_BF16 + SUM + 8 * 2.0**-24
    assert (abs(y.view(ml_dtypes.bfloat16).astype(np.float64) - expected) <= bound * abs(expected)).all()


def test_layer_norm_in_dynamic_lds():
    """The descriptor says no LDS; the launch gives its bytes, as FlyDSL's own launcher does."""
    x = bf16_rows(10).astype(np.float32)
    data = compile_flydsl("rows", "layer_norm_dynamic_lds")
    (_, y, _), _ = run_everywhere(data, ROWS, 256, [x, np.zeros_like(x), np.float32(1e-5)], dynamic_lds=16)
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    expected = (wide - wide.mean(1, keepdims=True)) / spread
    # The mean is off by SUM of the mean magnitude, which moves every element; the rest is relative, 2**-24 a step.
    moved = 2 * SUM * abs(wide).mean(1, keepdims=True) / spread
    assert (abs(y - expected) <= moved + (SUM + 10 * 2.0**-24) * abs(expected)).all()
