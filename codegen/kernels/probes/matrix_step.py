"""Steps of one matrix instruction on tiles whose codes a fit can look at, and the writing of such tiles."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import apply_step
from codegen.kernels.probes.matrix_variants import FORMATS, Codes, Variant, encode
from codegen.kernels.probes.probe import Step

Numbers = NDArray[np.float64]
BF16_REACH = 40  # exponents of bf16 that probes use: its products then stay far from f32's ends


@dataclass(frozen=True)
class Tiles:
    """Matrices of codes: a (tiles, rows, depth), b (tiles, depth, columns), c (tiles, rows, columns), scale_a (tiles,
    rows, blocks) and scale_b (tiles, columns, blocks) or none."""

    a: Codes
    b: Codes
    c: Codes
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True)
class MatrixStep(Step):
    """A step that applies a matrix instruction to tiles; its output is D's registers. mode: MODE's value, or None for
    the default."""

    variant: Variant = field(kw_only=True)
    tiles: Tiles = field(kw_only=True, repr=False)
    mode: int | None = field(kw_only=True, default=None)


def matrix_step(name: str, variant: Variant, tiles: Tiles, mode: int | None = None) -> MatrixStep:
    """The step of some tiles; its name gets the variant's at its end."""
    registers = variant.registers(tiles.a, tiles.b, tiles.c, tiles.scale_a, tiles.scale_b)
    more = {"variant": variant, "tiles": tiles, "mode": mode}
    return apply_step(MatrixStep, f"{name}/{variant.name}", variant.mnemonic, registers, variant.static, mode, more)


@dataclass(frozen=True)
class Range:
    """Powers of two that a format holds: exponents low to high. fractions: bits below the leading one, at `high`."""

    low: int
    high: int
    fractions: int


@functools.cache
def range_of(format_: str) -> Range:
    """The powers of two of a format, subnormal ones too; of bf16 those that probes use."""
    form = FORMATS[format_]
    high = int(np.floor(np.log2(form.decode(np.array([form.max_code]))[0])))
    low = 1 - form.bias - form.mantissa_bits
    if format_ == "bf16":
        low, high = -BF16_REACH, BF16_REACH
    return Range(low, high, form.mantissa_bits)


class Draft:
    """A tile while it is written, in numbers. Element (i, j) of D sums the products that were put for row i and column
    j."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        rows, depth = variant.rows, variant.depth
        self.a, self.b = np.zeros((rows, depth)), np.zeros((depth, rows))
        self.c = np.zeros((rows, rows))

    def everywhere(self, k: int, x: Any, y: Any = 1.0) -> Draft:
        """x * y at k, in every element; x may differ by row, y by column."""
        self.a[:, k], self.b[k] = x, y
        return self

    def by_row(self, places: Sequence[int], x: float, y: float = 1.0) -> Draft:
        """x * y at places[i] in row i."""
        for row, k in enumerate(places):
            self.a[row, k], self.b[k] = x, y
        return self

    def by_column(self, places: Sequence[int], x: Any, y: float = 1.0) -> Draft:
        """x * y at places[j] in column j; x may differ by row."""
        for column, k in enumerate(places):
            self.a[:, k] = x
            self.b[k, column] = y
        return self

    def plus(self, c: Any) -> Draft:
        """C, broadcast."""
        self.c = np.broadcast_to(np.asarray(c, np.float64), self.c.shape)
        return self


def tiles_of(drafts: Iterable[Draft]) -> Tiles:
    """Drafts of one variant as codes."""
    drafts = list(drafts)
    variant = drafts[0].variant
    a = encode(np.stack([d.a for d in drafts]), variant.a_format)
    b = encode(np.stack([d.b for d in drafts]), variant.b_format)
    return Tiles(a, b, encode(np.stack([d.c for d in drafts]), "f32"))
