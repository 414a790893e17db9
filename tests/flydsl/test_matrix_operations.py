"""Every matrix operation that FlyDSL names and LLVM makes for gfx950.

With every element of A 2, of B 3 and of C 5, an element of D is 5 + 6 * k, or 5 + 3 * k for sparse operations, wherever
the registers' elements lie; test_matrix_atoms shows that they lie where FlyDSL puts them. The second workgroup works on
random numbers, of which the engines must make the same bits.
"""

import re

import ml_dtypes
import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere
from flydsl_matrix_operations import DENSE, SPARSE

pytestmark = needs_flydsl

KINDS = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "i8": np.int8,
    "i32": np.int32,
}


def operand(kind, words, number, rng):
    """The bytes of two waves' registers: in the first all elements are one number, in the second random ones."""
    dtype = np.dtype(KINDS[kind])
    count = 64 * words * 4 // dtype.itemsize
    some = rng.integers(-100, 100, count) if kind in ("i8", "i32") else rng.standard_normal(count)
    return np.concatenate([np.full(count, number, dtype), some.astype(dtype)]).view(np.uint8)


def first_wave(build, name, words):
    """D of the first wave, k, and the mnemonics. The indices say that the first two of four elements are there."""
    sums, _, _, depth, kinds = re.fullmatch(r"(\w+?)_(\d+)x(\d+)x(\d+)_?(.*?)(?:_1k)?", name).groups()
    kinds = (kinds.split("_") * 2)[:2]
    rng = np.random.default_rng(21)
    numbers = zip((*kinds, sums), words, (2, 3, 5), strict=True)
    arguments = [operand(kind, count, number, rng) for kind, count, number in numbers]
    arguments.append(np.full(128, 0x44444444, np.uint32))
    data = compile_flydsl("matrix_operations", f"{build}_{name}")
    (_, _, out, _), mnemonics = run_everywhere(data, 2, 64, arguments)
    return np.split(out.view(KINDS[sums]), 2)[0], int(depth), mnemonics


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, *words in DENSE])
def test_dense(name, words):
    out, depth, mnemonics = first_wave("dense", name, words)
    assert (out == 5 + 6 * depth).all()
    assert any(m.startswith("v_mfma_") for m in mnemonics)


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, *words in SPARSE])
def test_sparse(name, words):
    out, depth, mnemonics = first_wave("sparse", name, words)
    assert (out == 5 + 3 * depth).all()
    assert any(m.startswith("v_smfmac_") for m in mnemonics)
