"""Every matrix instruction behind FlyDSL's MMA atoms, with the elements where FlyDSL puts them; exact, on integers."""

import ml_dtypes
import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

KINDS = {
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "i8": np.int8,
}
DENSE = {
    "f32": ("16x16x4", "32x32x2"),
    "f16": ("16x16x16", "16x16x32", "32x32x8", "32x32x16"),
    "bf16": ("16x16x16", "16x16x32", "32x32x8", "32x32x16"),
    "fp8": ("16x16x32", "32x32x16"),
    "i8": ("16x16x32", "32x32x16"),
}
SCALED = {"fp8": ("16x16x128", "32x32x64"), "bf8": ("16x16x128", "32x32x64")}


def names(table):
    return [f"{kind}_{shape}" for kind, shapes in table.items() for shape in shapes]


def tile(name, scaled):
    """A tile's random operands and sums, and its result by the build of that name, with the mnemonics that ran."""
    kind, shape = name.split("_")
    m, n, k = map(int, shape.split("x"))
    rng = np.random.default_rng(sum(name.encode()))
    a, b = rng.integers(-3, 4, (m, k)), rng.integers(-3, 4, (n, k))
    c = rng.integers(-99, 100, (m, n)).astype(np.int32 if kind == "i8" else np.float32)
    scales = [rng.integers(124, 131, (rows, max(1, k // 32)), dtype=np.uint8) for rows in (m, n)]
    operands = [x.astype(KINDS[kind]).view(np.uint8) for x in (a, b)]
    build = f"scaled_{name}" if scaled else name
    (_, _, result, *_), mnemonics = run_everywhere(
        compile_flydsl("matrix_atoms", build), 1, 64, [*operands, c, *scales]
    )
    return a, b, c, scales, result, mnemonics


@pytest.mark.parametrize("name", names(DENSE))
def test_dense(name):
    a, b, c, _, result, mnemonics = tile(name, scaled=False)
    assert result.tobytes() == (c + a @ b.T).astype(c.dtype).tobytes()
    assert any(m.startswith("v_mfma_") and name.split("_")[1] in m for m in mnemonics)


def scale_of(k, rows):
    """Which of its row's scales an element is multiplied by, in FlyDSL's order of the elements.

    FlyDSL's atom puts 32 neighbouring elements into a lane. The instruction takes a lane's 32 FP8 elements for two runs
    of 16, as far apart as the lanes of a row have room for in between, and a scale for 32 elements of its own order.
    """
    lane, place = k // 32, k % 32
    lanes = 64 // rows
    return (16 * lane + place % 16 + place // 16 * 16 * lanes) // 32


@pytest.mark.parametrize("name", names(SCALED))
def test_scaled(name):
    a, b, c, scales, result, mnemonics = tile(name, scaled=True)
    places = scale_of(np.arange(a.shape[1]), len(a))
    scaled = [x * np.exp2(s.astype(np.float64) - 127)[:, places] for x, s in zip((a, b), scales, strict=True)]
    assert result.tobytes() == (c + scaled[0] @ scaled[1].T).astype(np.float32).tobytes()
    assert f"v_mfma_scale_f32_{name.split('_')[1]}_f8f6f4" in mnemonics
