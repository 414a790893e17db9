"""Decoding attention over a paged KV cache: the same bits on every engine, inside a derived bound of float64."""

import ml_dtypes
import numpy as np
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

LENGTHS = np.array([1, 37, 128], np.int32)  # a token, a partly filled step, all pages full
PAGES = 24


def expected_and_bound(query, keys, values):
    """Float64 attention of one sequence, and how far the kernel may be from it."""
    query, keys, values = (x.astype(np.float64) for x in (query, keys, values))
    logits = query @ keys.T / np.sqrt(128)
    powers = np.exp(logits - logits.max(1, keepdims=True))
    weights = powers / powers.sum(1, keepdims=True)
    # Logits are f32 sums of 128 products (the bound of test_matrix_products); their error d moves a weight by at most
    # 4d, since it stands in the power and in the sum. Weights round to bf16; 2**-16 is for some 100 f32 steps after.
    moved = 4 * 2 * 128 * 2.0**-23 * (abs(query) @ abs(keys).T).max() / np.sqrt(128)
    return weights @ values, (2.0**-8 + moved + 2.0**-16) * (weights @ abs(values))


def test_paged():
    rng = np.random.default_rng(11)
    query = rng.standard_normal((3, 16, 128)).astype(ml_dtypes.bfloat16)
    keys, values = rng.standard_normal((2, PAGES, 16, 128)).astype(ml_dtypes.bfloat16)
    pages = rng.permutation(PAGES).reshape(3, 8).astype(np.int32)
    arguments = [x.view(np.uint16) for x in (query, keys, values)]
    arguments += [pages, LENGTHS, np.zeros((3, 16, 128), np.float32)]
    (*_, out), mnemonics = run_everywhere(compile_flydsl("attention", "paged"), 3, 64, arguments)
    for sequence, length in enumerate(LENGTHS):
        own = [x[pages[sequence]].reshape(-1, 128)[:length] for x in (keys, values)]
        expected, bound = expected_and_bound(query[sequence], *own)
        assert (abs(out[sequence] - expected) <= bound).all(), length
    assert {"v_mfma_f32_16x16x32_bf16", "v_exp_f32", "ds_read_b128"} <= mnemonics
