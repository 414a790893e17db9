"""How many matrix instructions one core runs a second with exact arithmetic: python benchmarks/mfma.py [native ...]"""

from __future__ import annotations

import sys
import time

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.mfma import Format, pack_parameters
from gfx950.arithmetic.mfma_shapes import SHAPES
from gfx950.arithmetic.native import NATIVES, Native

ITEMS, ROUNDS = 1000, 15
Words = npt.NDArray[np.uint32]


def normal_codes(generator: np.random.Generator, size: tuple[int, ...]) -> Words:
    """Registers of e4m3 bytes of normally distributed values (rounded down, which is near enough for timing)."""
    values = np.abs(generator.standard_normal((*size, 4))) + 2.0**-6
    exponent = np.floor(np.log2(values))
    byte = ((exponent + 7) * 8 + np.floor((values / 2**exponent - 1) * 8)).astype(np.uint8)
    byte |= generator.integers(0, 2, byte.shape, dtype=np.uint8) << 7
    return np.ascontiguousarray(byte).view(np.uint32)[..., 0]


def raw_codes(generator: np.random.Generator, size: tuple[int, ...], half: bool) -> Words:
    """Registers of raw bits that span every exponent; what would be Inf or NaN as e4m3 or f16 is made finite."""
    words = generator.integers(0, 2**32, size, dtype=np.uint32)
    if half:
        return words & np.uint32(0xBFFFBFFF)
    codes = words.view(np.uint8)
    codes[codes & 0x7F == 0x7F] ^= 1
    return words


def workloads(native: Native) -> dict[str, Words]:
    """Inputs by name: values from a normal distribution, and raw bits that span all exponents."""
    generator, shape = np.random.default_rng(0), SHAPES[native.name]
    operands = shape.operand_registers + shape.b_shape.operand_registers
    half = native.name.endswith("_f16")
    raw = generator.integers(0, 2**32, (ITEMS, native.n_in, 64), dtype=np.uint32)
    raw[:, :operands] = raw_codes(generator, (ITEMS, operands, 64), half)
    c = slice(operands, operands + shape.c_registers)
    raw[:, c] = raw[:, c] & 0x803FFFFF | generator.integers(100, 150, raw[:, c].shape, dtype=np.uint32) << 23
    if half:
        return {"all exponents": raw}
    normal = raw.copy()
    normal[:, :operands] = normal_codes(generator, (ITEMS, operands, 64))
    normal[:, c] = generator.standard_normal(normal[:, c].shape).astype(np.float32).view(np.uint32)
    return {"normal data": normal, "all exponents": raw}


def fastest(native: Native, inputs: Words, parameters: int) -> float:
    """Processor seconds per instruction, the best of several rounds."""
    native(inputs, parameters)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        native(inputs, parameters)
        best = min(best, time.process_time() - start)
    return best / ITEMS


def main(names: list[str]) -> None:
    for name in names or ["mfma_f8f6f4_16x16x128", "mfma_f8f6f4_32x32x64"]:
        start = time.perf_counter()
        native = NATIVES[name]
        native.address  # noqa: B018  compiles or loads
        print(f"{name}: ready in {time.perf_counter() - start:.2f} s")
        code = Format.f16 if name.endswith("_f16") else Format.fp8
        for workload, inputs in workloads(native).items():
            seconds = fastest(native, inputs, pack_parameters(code, code))
            print(f"  {workload}: {1 / seconds:,.0f} a second ({seconds * 1e6:.2f} us)")


if __name__ == "__main__":
    main(sys.argv[1:])
