"""A matrix product that fills LDS a step ahead and adds its halves by atomics."""

import numpy as np
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

ROWS, COLUMNS, DEPTH = 64, 128, 512


def product(build):
    """(A @ B.T in float64, the sum of the magnitudes, what the kernel made, the mnemonics)."""
    rng = np.random.default_rng(24)
    a, b = (rng.standard_normal((n, DEPTH)).astype(np.float16) for n in (ROWS, COLUMNS))
    out = np.zeros((ROWS, COLUMNS), np.float32)
    arguments = [a, b, out, *map(np.int32, (ROWS, COLUMNS, DEPTH))]
    (_, _, out, *_), mnemonics = run_everywhere(compile_flydsl("pipeline", build), (2, 1, 2), 256, arguments)
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b.T, abs(a) @ abs(b).T, out, mnemonics


def test_loads_a_step_ahead():
    """The bound of test_matrix_products. Two halves meet in each element, so that their order changes no bit."""
    expected, magnitude, out, mnemonics = product("product")
    assert (abs(out - expected) <= 2 * DEPTH * 2.0**-23 * magnitude).all()
    assert {"buffer_load_dwordx4_lds", "ds_read_b128", "global_atomic_cmpswap", "s_setprio"} <= mnemonics


def test_a_wait_that_is_missing_shows():
    """Loads to LDS land when they are waited for; the kernel that does not wait multiplies what was there before."""
    expected, magnitude, out, _ = product("product_that_does_not_wait")
    assert (abs(out - expected) > 2 * DEPTH * 2.0**-23 * magnitude).mean() > 0.9
