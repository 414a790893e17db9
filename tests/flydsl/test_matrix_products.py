"""Whole matrix products. Expected: the exact product in float64 inside a bound, and the same bits on every engine.

The bound. A sum of `depth` products in f32, in any order and grouping: each addition rounds or cuts, which loses less
than 2**-23 of the larger of its operands and its result, and none of these is above the sum of the magnitudes.
A matrix instruction that aligns the products of a group first loses once more as much. Hence 2 * depth * 2**-23 of it.
Where products and sums are small integers nothing is lost, and the result must be exact.
"""

import ml_dtypes
import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

from emu.dispatch import Device

pytestmark = needs_flydsl

KINDS = {"fp8": ml_dtypes.float8_e4m3fn, "fp4": ml_dtypes.float4_e2m1fn, "bf16": ml_dtypes.bfloat16}


def elements(rng, kind, shape, exact):
    """Numbers of a format, as float64: small integers if the product must be exact."""
    numbers = rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape)
    return numbers.astype(KINDS[kind]).astype(np.float64)


def stored(numbers, kind):
    """The bytes of a matrix of a format; two FP4 a byte, the first in the low half."""
    codes = numbers.astype(KINDS[kind]).view(np.uint8)
    if kind != "fp4":
        return codes
    pairs = codes.reshape(len(codes), -1, 2)
    return pairs[..., 0] | pairs[..., 1] << 4


def agrees(result, a, b, exact):
    """Whether a product is a @ b.T, exactly or within the bound."""
    expected = a @ b.T
    if exact:
        return np.array_equal(result, expected)
    bound = 2 * a.shape[1] * 2.0**-23 * (abs(a) @ abs(b).T)
    return (abs(result - expected) <= bound).all()


@pytest.mark.parametrize("exact", [True, False])
def test_bf16_through_lds(exact):
    rng = np.random.default_rng(4)
    a, b = (elements(rng, "bf16", (128, 192), exact) for _ in range(2))
    arguments = [stored(a, "bf16"), stored(b, "bf16"), np.zeros((128, 128), np.float32), np.int32(192), np.int32(128)]
    (_, _, result, *_), mnemonics = run_everywhere(
        compile_flydsl("matrix_products", "lds_bf16"), (2, 2), 256, arguments
    )
    assert agrees(result, a, b, exact)
    assert {"ds_write_b128", "ds_read_b128", "s_barrier", "v_mfma_f32_16x16x32_bf16"} <= mnemonics


@pytest.mark.parametrize("exact", [True, False])
def test_bf16_with_more_sums_than_vector_registers(exact):
    """Accumulation registers hold them."""
    rng = np.random.default_rng(28)
    a, b = (elements(rng, "bf16", (128, 48), exact) for _ in range(2))
    data = compile_flydsl("matrix_products", "wide_bf16")
    arguments = [stored(a, "bf16"), stored(b, "bf16"), np.zeros((128, 128), np.float32), np.int32(48)]
    (_, _, result, _), _ = run_everywhere(data, 1, 64, arguments)
    assert agrees(result, a, b, exact)
    (kernel,) = Device().load(data).code.kernels.values()
    assert kernel.descriptor.vgprs > 256


@pytest.mark.parametrize("exact", [True, False])
def test_fp8_with_a_scale_for_each_row_and_column(exact):
    rng = np.random.default_rng(5)
    a, b = (elements(rng, "fp8", (32, 256), exact) for _ in range(2))
    scales = np.exp2(rng.integers(-4, 5, 64)).astype(np.float32)  # powers of two, which the bound need not know of
    arguments = [
        stored(a, "fp8"),
        stored(b, "fp8"),
        np.zeros((32, 32), np.float32),
        scales,
        np.int32(256),
        np.int32(32),
    ]
    (_, _, result, *_), mnemonics = run_everywhere(compile_flydsl("matrix_products", "fp8"), (2, 2), 64, arguments)
    assert agrees(result, a * scales[:32, None], b * scales[32:, None], exact)
    assert "v_mfma_f32_16x16x32_fp8_fp8" in mnemonics


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("build", "kinds"), [("mxfp8", "fp8 fp8"), ("mxfp4", "fp4 fp4"), ("mxfp8_mxfp4", "fp8 fp4")])
def test_block_scaled(build, kinds, exact):
    rng = np.random.default_rng(6)
    kind_a, kind_b = kinds.split()
    a, b = elements(rng, kind_a, (32, 256), exact), elements(rng, kind_b, (32, 256), exact)
    scales = rng.integers(*((126, 130) if exact else (117, 137)), (2, 32, 8), dtype=np.uint8)
    arguments = [stored(a, kind_a), stored(b, kind_b), np.zeros((32, 32), np.float32), *scales, np.int32(2)]
    (_, _, result, *_), mnemonics = run_everywhere(compile_flydsl("matrix_products", build), (2, 2), 64, arguments)
    scaled = [x * np.exp2(s.astype(np.float64) - 127).repeat(32, axis=1) for x, s in ((a, scales[0]), (b, scales[1]))]
    assert agrees(result, *scaled, exact)
    assert "v_mfma_scale_f32_16x16x128_f8f6f4" in mnemonics
