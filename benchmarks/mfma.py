"""Speed of the exact matrix instructions on one core: `python benchmarks/mfma.py [native ... | --all | --compile]`.

One line for each native, pair of formats and kind of data: instructions and multiply-adds a second, what one
multiply-add costs beside the first line's, and how the time compares with

  numpy    float32 products of the same size, many in one call of `numpy.matmul` (OpenBLAS held to one thread by
           OPENBLAS_NUM_THREADS=1, which is set by starting this program anew)
  MMA-Sim  its CDNA3 (gfx942) instruction of the same M and N, as many times as make the same number of multiply-adds:
           FP8 16x16x128 is four times 16x16x32_fp8_fp8, bf16 16x16x32 twice 16x16x16_bf16; all formats up to 8 bits
           are held against fp8, a sparse product against the dense one of the elements it stores

Data: `typical` is normally distributed and rounded to the format, block scales of 1/2, 1 and 2; `full range` is that,
for formats up to 8 bits, with the largest magnitude of each operand scaled to the format's largest, as kernels do;
`adversarial` has all exponents, so that every group must be aligned and cut, C anywhere from far below to far above,
and a third of the instructions each near the subnormal and the overflowing end of f32; `special` is typical with Inf
and NaN, where the format has them, in A, B, C and the scales. Times are processor seconds, the best of rounds in which
all lines take turns, so that a busy machine disturbs the ratios little. `--compile` prints what making all natives
costs.
"""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.mfma import ELEMENTS, Format, pack_parameters
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of
from gfx950.arithmetic.native import NATIVES

ITEMS, ROUNDS = 96, 15
Codes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
DATA = ("typical", "full range", "adversarial", "special")
FIRST = [("mfma_f8f6f4_16x16x128", "fp8"), ("mfma_16x16x32_f16", "bf16"), ("mfma_f8f6f4_16x16x128", "fp4")]
KINDS = {"f8f6f4": ("fp8", "bf8", "fp6", "bf6", "fp4"), "f8": ("fp8", "bf8"), "f16": ("f16", "bf16")}
WIDTHS = {"f32": (8, 23), "f64": (11, 52)}  # bits of exponent and mantissa


# ---- Data ----


def float_codes(values: npt.NDArray[np.float64], kind: str) -> Codes:
    """Bits of the nearest numbers of a format; i8 rounds to integers."""
    if kind == "i8":
        return np.clip(np.rint(values * 40), -128, 127).astype(np.int8).view(np.uint8).astype(np.uint64)
    if kind == "f64":
        return values.view(np.uint64)
    if kind == "f32":
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ELEMENTS[Format[kind]].encode(values).astype(np.uint64)


def field_widths(kind: str) -> tuple[int, int]:
    if kind in WIDTHS:
        return WIDTHS[kind]
    element = ELEMENTS[Format[kind]]
    return element.exponent_bits, element.mantissa_bits


def special_codes(kind: str) -> list[int]:
    """Inf and NaN of a format, where it has them."""
    if kind in ("i8", "fp6", "bf6", "fp4"):
        return []
    exponent_bits, mantissa_bits = field_widths(kind)
    top = (1 << exponent_bits) - 1 << mantissa_bits
    return [top | 7] if kind == "fp8" else [top, top | 1 << exponent_bits + mantissa_bits, top | 1]


def spread_codes(generator: np.random.Generator, kind: str, size: tuple[int, ...]) -> Codes:
    """Finite codes of all exponents; of the wide formats, of instruction i near 2^-70, 1 or 2^62 as i % 3 tells, so
    that products meet f32's ends."""
    if kind == "i8":
        return generator.integers(0, 256, size, dtype=np.uint64)
    exponent_bits, mantissa_bits = field_widths(kind)
    codes = generator.integers(0, 1 << 63, size, dtype=np.uint64) & np.uint64((1 << mantissa_bits) - 1)
    fields = generator.integers(0, (1 << exponent_bits) - (kind != "fp8" and bool(special_codes(kind))), size)
    if exponent_bits >= 8:
        middle = np.array([-70, 0, 62])[np.arange(size[0]) % 3].reshape(-1, *[1] * (len(size) - 1))
        fields = middle + (1 << exponent_bits - 1) - 1 + generator.integers(-16, 16, size)
    codes |= fields.astype(np.uint64) << np.uint64(mantissa_bits)
    codes[np.isin(codes, special_codes(kind))] ^= np.uint64(1)
    return codes | generator.integers(0, 2, size, dtype=np.uint64) << np.uint64(exponent_bits + mantissa_bits)


def sprinkled(generator: np.random.Generator, kind: str, codes: Codes) -> Codes:
    """With Inf and NaN in one element of 200."""
    special = special_codes(kind)
    here = (generator.random(codes.shape) < 1 / 200) & bool(special)
    return np.where(here, generator.choice(np.array(special or [0], np.uint64), codes.shape), codes)


def registers_of(codes: Codes, bits: int) -> Words:
    """Registers (n, registers, 64) that hold the elements (n, elements, 64), one behind the other."""
    flat = (codes[..., None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8)
    streams = np.moveaxis(flat, 2, 1).reshape(len(codes), 64, -1)
    return np.moveaxis(np.packbits(streams, axis=-1, bitorder="little").view(np.uint32), -1, 1)


def operand(generator: np.random.Generator, kind: str, count: int, data: str) -> Words:
    """Registers of `count` elements a lane."""
    size = (ITEMS, count, 64)
    if data == "adversarial":
        codes = spread_codes(generator, kind, size)
    else:
        values = generator.standard_normal(size)
        codes = float_codes(full_range(values, kind) if data == "full range" else values, kind)
        codes = sprinkled(generator, kind, codes) if data == "special" else codes
    return registers_of(codes, 8 if kind == "i8" else 1 + sum(field_widths(kind)))


def full_range(values: npt.NDArray[np.float64], kind: str) -> npt.NDArray[np.float64]:
    """Each instruction's values scaled so that the largest is the format's largest."""
    codes = 1 << sum(field_widths(kind))
    largest = float(ELEMENTS[Format[kind]].decode(min([codes, *special_codes(kind)]) - 1))
    result: npt.NDArray[np.float64] = values * (largest / np.abs(values).max(axis=(1, 2), keepdims=True))
    return result


def block_scales(generator: np.random.Generator, data: str) -> Words:
    """The scale registers of A and B, E8M0 bytes: near 1, or near both of f32's ends."""
    scales = generator.integers(126, 129, (ITEMS, 2, 256)).astype(np.uint8)
    if data == "adversarial":
        scales += np.array([-66, 0, 58])[np.arange(ITEMS) % 3].astype(np.uint8)[:, None, None]
    elif data == "special":
        scales[generator.random(scales.shape) < 1 / 200] = 255
    return scales.view(np.uint32)


def inputs_of(case: Case, data: str) -> Words:
    """Registers of ITEMS instructions. Of any order: where an element stands does not matter here."""
    generator, shape, kind = np.random.default_rng(0), case.shape, kind_of(case.name)
    result = np.zeros((ITEMS, NATIVES[case.name].n_in, 64), np.uint32)
    at = 0
    for side in (shape, shape.b_shape):
        words = operand(generator, case.format, side.lane_items, data)
        result[:, at : at + words.shape[1]] = words
        at += side.operand_registers
    sums = "f64" if kind == "f64" else "f32"
    data_of_c = "typical" if data == "full range" else data
    result[:, at : at + shape.c_registers] = operand(
        generator, sums, shape.c_registers // shape.element_registers, data_of_c
    )
    at += shape.c_registers
    if data == "adversarial" and sums == "f32":
        c = result[:, at - shape.c_registers : at]
        c[::2] = c[::2] & 0x807FFFFF | generator.integers(0, 255, c[::2].shape, dtype=np.uint32) << 23
    if shape.blocks:
        result[:, at:] = block_scales(generator, data)
    elif shape.sparse:
        result[:, at:] = generator.integers(0, 1 << 32, result[:, at:].shape, dtype=np.uint32)
    return result


# ---- Times ----


@dataclass
class Case:
    """A native with a pair of equal formats. best: processor seconds of one instruction on each kind of data, of numpy
    and of MMA-Sim."""

    name: str
    format: str
    best: dict[str, float] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        return SHAPES[self.name]

    @property
    def data(self) -> list[str]:
        """The kinds of data it is timed on."""
        return [data for data in DATA if data != "full range" or self.format in KINDS["f8f6f4"]]

    @property
    def multiply_adds(self) -> int:
        return self.shape.rows**2 * self.shape.depth * self.shape.copies

    @property
    def parameters(self) -> int:
        code = Format[self.format] if self.format in Format.__members__ else Format.fp8
        return pack_parameters(code, code, scaled=self.shape.blocks > 0)


Run = tuple[Case, str, Callable[[], object], float]  # what is timed, and how many instructions a call makes


def native_runs(case: Case) -> Iterator[Run]:
    native = NATIVES[case.name]
    for data in case.data:
        inputs = inputs_of(case, data)
        yield case, data, partial(native, inputs, case.parameters), ITEMS


def numpy_run(case: Case) -> Run:
    """Float32 products of the shape; all blocks of one instruction, and B of a sparse one at its full depth."""
    shape, generator, count = case.shape, np.random.default_rng(1), ITEMS * case.shape.copies
    depth = shape.b_shape.depth
    a = generator.standard_normal((count, shape.rows, depth)).astype(np.float32)
    b = generator.standard_normal((count, depth, shape.rows)).astype(np.float32)
    out = np.empty((count, shape.rows, shape.rows), np.float32)
    return case, "numpy", lambda: np.matmul(a, b, out=out), ITEMS


def peer_suffix(case: Case) -> str | None:
    """MMA-Sim's name of the gfx942 instruction a native is held against."""
    rows, blocks = case.shape.rows, {4: "_16b", 16: "_4b", 32: "_2b"}[case.shape.rows]
    kind = kind_of(case.name)
    if kind in ("f8", "f8f6f4"):
        return {16: "f32_16x16x32_fp8_fp8", 32: "f32_32x32x16_fp8_fp8"}[rows]
    if kind == "f16":
        shape = {4: "4x4x4_16b", 16: "16x16x16", 32: "32x32x8"}[rows]
        return f"f32_{shape}_{case.format}"
    if kind == "f32":
        depth = f"x{case.shape.depth}{blocks if case.shape.copies > 1 else ''}"
        return f"f32_{rows}x{rows}{depth}_f32"
    return {4: "f64_4x4x4_4b_f64", 16: "f64_16x16x4_f64"}[rows] if kind == "f64" else None


def peer_run(case: Case, torch: Any, mmasim: Any) -> Run:
    """One instruction of MMA-Sim's on typical data."""
    peer = mmasim.MFMA("CDNA3", peer_suffix(case))
    sizes = ((peer.m, peer.k, peer.a_type), (peer.k, peer.n, peer.b_type), (peer.m, peer.n, peer.c_type))
    a, b, c = (torch.randn(rows, columns).to(kind) for rows, columns, kind in sizes)
    times = case.multiply_adds / (peer.m * peer.n * peer.k)
    return case, "MMA-Sim", lambda: peer(a, b, c), 1 / times


def peer_runs(cases: list[Case]) -> list[Run]:
    """MMA-Sim's, where it is installed."""
    try:
        torch, mmasim = importlib.import_module("torch"), importlib.import_module("mmasim.amd")
    except ImportError:
        print("MMA-Sim or torch is not installed; its column stays empty")
        return []
    torch.set_num_threads(1)
    return [peer_run(case, torch, mmasim) for case in cases if peer_suffix(case)]


def measure(runs: list[Run], rounds: int) -> None:
    """Keeps the best time of each run, all taking turns."""
    for turn in range(rounds + 1):
        for case, label, run, count in runs:
            start = time.process_time()
            run()
            seconds = (time.process_time() - start) / count
            if turn:  # the first one compiles and warms up
                case.best[label] = min(case.best.get(label, math.inf), seconds)


# ---- Tables ----


def print_rows(cases: list[Case]) -> None:
    unit = cases[0].best["typical"] / cases[0].multiply_adds
    print(
        f"{'native':24} {'formats':8} {'data':12} {'k instr/s':>10} {'us':>7} {'G MAC/s':>8} {'cost/MAC':>8}"
        f" {'x numpy':>8} {'MMA-Sim us':>11} {'MMA-Sim x':>9}"
    )
    for case in cases:
        peer = case.best.get("MMA-Sim")
        for data in case.data:
            seconds = case.best[data]
            cost = seconds / case.multiply_adds
            line = f"{case.name:24} {case.format:8} {data:12} {1e-3 / seconds:10.1f} {1e6 * seconds:7.2f}"
            line += f" {1e-9 / cost:8.2f} {cost / unit:8.2f} {seconds / case.best['numpy']:8.1f}"
            print(line + (f" {1e6 * peer:11.0f} {peer / seconds:9.0f}" if peer else f" {'-':>11} {'-':>9}"))


def print_compile_times() -> None:
    """Makes every native in a process with an empty cache."""
    script = (
        "import sys, time; from gfx950.arithmetic.native import NATIVES; import gfx950.arithmetic.mfma\n"
        "names = sorted((n for n in NATIVES if 'mfma' in n), key=lambda n: 'f8' in n)\n"
        "times = {}\n"
        "for name in names:\n"
        "    start = time.process_time(); NATIVES[name].address; times[name] = time.process_time() - start\n"
        "print(*(f'{seconds:8.2f} s  {name}' for name, seconds in times.items()), sep='\\n')\n"
        "print(f'{sum(times.values()):8.2f} s  all {len(times)}; the first one starts numba')\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"GFX950_CACHE": folder})


def chosen_cases(arguments: list[str]) -> list[Case]:
    """The first line is always FP8's, the unit of the costs."""
    if not arguments:
        return [Case(*one) for one in FIRST]
    names = list(SHAPES) if arguments == ["--all"] else arguments
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise SystemExit(f"no matrix native {', '.join(unknown)}; there are {', '.join(SHAPES)}")
    wanted = [(name, form) for name in names for form in KINDS.get(kind_of(name), (kind_of(name),))]
    return [Case(*one) for one in dict.fromkeys([FIRST[0], *wanted])]


def main(arguments: list[str]) -> None:
    """Prints the table."""
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"OPENBLAS_NUM_THREADS": "1"})
    if arguments == ["--compile"]:
        print_compile_times()
        return
    cases = chosen_cases(arguments)
    runs = [run for case in cases for run in (*native_runs(case), numpy_run(case))]
    measure(runs, ROUNDS)
    measure(peer_runs(cases), 3)
    print_rows(cases)


if __name__ == "__main__":
    main(sys.argv[1:])
