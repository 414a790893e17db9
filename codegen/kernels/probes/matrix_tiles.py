"""P8: random tiles. Some are kept whole, to test a fitted model on what no probe thought of; of many more, made and
digested on the chip itself, only digests are kept.

A word of a tile is a hash of the tile's number, the register and the lane, thinned by one of four pairs of masks a
format, so that sums of many magnitudes occur and NaN is not everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import operands_of, run_instruction
from codegen.kernels.probes.digests import digested
from codegen.kernels.probes.matrix_step import MatrixStep, Tiles, matrix_step
from codegen.kernels.probes.matrix_variants import FORMATS, Codes, Variant, variants
from codegen.kernels.probes.probe import Probe, Size, Step
from codegen.language import I32, U32, U64, Kernel, Pointer, constant, kernel, store, thread_id, workgroup_id
from gfx950.isa.registry import lookup
from gfx950.lanes import LANES

KEPT = 8  # tiles of each variant that are kept whole
WAVES = 64  # of the kernels that digest
# What is cleared and set in a 32-bit word of a format: all bits, no NaN, few exponents, exponents far apart.
_THIN: dict[str, tuple[tuple[int, int], ...]] = {
    "f16": ((0xFFFFFFFF, 0), (0xBFFFBFFF, 0), (0x8BFF8BFF, 0x38003800), (0xDFFFDFFF, 0)),
    "bf16": ((0xFFFFFFFF, 0), (0xBFFFBFFF, 0x30003000), (0x80FF80FF, 0x3F003F00), (0x87FF87FF, 0x38003800)),
    "fp8": ((0xFFFFFFFF, 0), (0xBFBFBFBF, 0), (0x87878787, 0x38383838), (0xDFDFDFDF, 0)),
    "bf8": ((0xFFFFFFFF, 0), (0xBFBFBFBF, 0), (0x83838383, 0x3C3C3C3C), (0xDFDFDFDF, 0)),
    "f32": ((0xFFFFFFFF, 0), (0xBFFFFFFF, 0), (0x81FFFFFF, 0x3E000000), (0x8FFFFFFF, 0x38000000)),
    "scale": ((0x07070707, 0x7C7C7C7C), (0x1F1F1F1F, 0x70707070), (0, 0x7F7F7F7F), (0xFFFFFFFF, 0)),
    "bits": ((0xFFFFFFFF, 0),) * 4,
}


def mixed(value: U32) -> U32:
    """A hash of 32 bits: two rounds of multiply and fold."""
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        value = (value ^ (value >> 16)) * factor
    return value ^ (value >> 15)


def _thinning(variant: Variant, parameter: str) -> str:
    if parameter in ("src0", "src1"):
        kind = variant.a_format if parameter == "src0" else variant.b_format
        return kind if kind in _THIN else "bits"
    if parameter.startswith("scale"):
        return "scale"
    index = variant.sparse and parameter == "src2"
    return "bits" if index or variant.a_format in ("i8", "f64") else "f32"


def _thinned(word: U32, tile: U32, kind: str) -> U32:
    """A word under the masks that the tile's number picks."""
    masks = [constant(U32, n) for n in _THIN[kind][0]]
    for choice, others in enumerate(_THIN[kind][1:], 1):
        here = (tile & 3) == choice
        masks = [here.select(constant(U32, n), before) for n, before in zip(others, masks, strict=True)]
    return (word & masks[0]) | masks[1]


def _words(variant: Variant, tile: U32, lane: U32) -> list[U32]:
    """The registers of a tile's operands."""
    words: list[U32] = []
    for parameter in operands_of(lookup(variant.mnemonic)):
        for _ in range(parameter.registers):
            word = mixed(tile * 0x9E3779B9 + lane * 0x61C88647 + 0x01000193 * len(words))
            words.append(_thinned(word, tile, _thinning(variant, parameter.name)))
    return words


@functools.cache
def digest_kernel(variant: Variant) -> Kernel:
    """A wave makes `count` tiles, numbered on from `count` times its own number, and keeps a digest a lane of all D."""
    static = tuple(sorted(variant.static.items()))
    name = "digest_" + variant.name.replace("/", "_").replace("-", "_")

    def body(outputs: Pointer, count: I32) -> None:
        wave, lane = workgroup_id(), thread_id().bits(U32)
        first = wave * count

        def results(i: I32) -> list[U32]:
            return run_instruction(variant.mnemonic, static, _words(variant, (first + i).bits(U32), lane))

        low, high = digested(count, results)
        at = outputs + (wave.to(U64) * LANES + lane.to(U64)) * 4
        store(at, low ^ high)

    return kernel(block=LANES, name=name)(body)


def digests(size: Size) -> Iterator[Step]:
    """The steps that keep only digests, of every variant."""
    for variant in variants():
        made = digest_kernel(variant)
        yield Step(f"P8/digests/{variant.name}", made, WAVES, (), ((WAVES, LANES), "<u4"), (size.tiles // WAVES,))


def _random_codes(random: np.random.Generator, format_: str, shape: tuple[int, ...], kind: int) -> Codes:
    if format_ in ("i8", "f64"):
        return random.integers(0, 256 if format_ == "i8" else 1 << 64, shape, dtype=np.uint64)
    form = FORMATS[format_]
    codes = random.integers(0, 1 << form.bits, shape, dtype=np.uint64)
    if kind % 2 and form.canonical_nan is not None:  # no special codes, else all of D would be NaN
        magnitude, sign = codes & np.uint64((1 << form.bits - 1) - 1), codes >> np.uint64(form.bits - 1)
        codes = magnitude % np.uint64(form.max_code + 1) | sign << np.uint64(form.bits - 1)
    if kind >= 4:  # few exponents
        exponent = np.uint64((form.bias - 1 + 2 * (kind & 1)) << form.mantissa_bits)
        codes = (codes & np.uint64(1 << form.bits - 1 | (2 << form.mantissa_bits) - 1)) + exponent
    return codes


def random_tiles(variant: Variant) -> Tiles:
    """Tiles of full bit patterns, of finite ones, and of few exponents."""
    random = np.random.default_rng([8, *variant.name.encode()])
    rows, depth = variant.rows, variant.depth
    shapes: tuple[tuple[str, tuple[int, int]], ...] = (
        (variant.a_format, (rows, depth)), (variant.b_format, (depth, rows)), (variant.c_format, (rows, rows)),
    )  # fmt: skip
    found = [[_random_codes(random, form, shape, kind) for form, shape in shapes] for kind in range(KEPT)]
    a, b, c = (np.stack([tile[i] for tile in found]) for i in range(3))
    if not variant.has_scales:
        return Tiles(a, b, c)
    scales = [_scales(random, (KEPT, rows, depth // 32)) for _ in range(2)]
    return Tiles(a, b, c, *scales)


def _scales(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    scales: NDArray[np.uint64] = random.integers(110, 145, shape, dtype=np.uint64)
    scales[: KEPT // 2] = random.integers(0, 256, (KEPT // 2, *shape[1:]), dtype=np.uint64)
    return scales


def _p8(size: Size) -> Iterator[Step]:
    yield from tiles()
    yield from digests(size)


def tiles() -> Iterator[MatrixStep]:
    """The steps whose random tiles are kept whole, of every variant."""
    for variant in variants():
        yield matrix_step("P8/tiles", variant, random_tiles(variant))


PROBES = (Probe("P8", "whether random tiles agree with all of it", _p8),)
