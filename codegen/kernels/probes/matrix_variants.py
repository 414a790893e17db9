"""The matrix instructions as probes see them: a variant is an instruction with its formats, and knows how to put
matrices of codes into registers.

Probes of dense and sparse instructions are written alike: a sparse A stores element c at k = 4 (c / 2) + c % 2, and B's
rows there are what a probe calls its rows; the other rows of B are 1, which no stored element meets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.probes.apply import operands_of
from gfx950.formats import BF16, E2M1, E2M3, E3M2, E4M3FN, E5M2, F16, F32, Format
from gfx950.isa.matrix import MATRIX
from gfx950.isa.registry import lookup
from gfx950.lanes import LANES
from gfx950.layouts import FORMAT_BITS, OperandLayout, layout, matrix_instruction

Codes = NDArray[np.uint64]
Words = NDArray[np.uint32]
FORMATS: dict[str, Format] = {
    "f32": F32, "f16": F16, "bf16": BF16, "fp8": E4M3FN, "bf8": E5M2, "fp6": E2M3, "bf6": E3M2, "fp4": E2M1,
}  # fmt: skip
SCALE_OF_ONE = 127
STORED_PLACES = 0x44444444  # a sparse index: 0 and 1 of every four


@dataclass(frozen=True)
class Variant:
    """One instruction with its formats. a_format, b_format: names, `i8` among them. op_sel: byte of both scales."""

    mnemonic: str
    a_format: str
    b_format: str
    op_sel: int = 0

    @property
    def name(self) -> str:
        """As in names of steps."""
        formats = f"/{self.a_format}-{self.b_format}" if self.has_formats else ""
        return self.mnemonic + formats + (f"/op_sel{self.op_sel}" if self.op_sel else "")

    @property
    def has_formats(self) -> bool:
        """Whether CBSZ and BLGP are formats."""
        return "f8f6f4" in self.mnemonic

    @property
    def has_scales(self) -> bool:
        """Whether it has block scales."""
        return "_scale_" in self.mnemonic

    @property
    def sparse(self) -> bool:
        """Whether A stores two of every four."""
        return "smfmac" in self.mnemonic

    @functools.cached_property
    def static(self) -> dict[str, int]:
        """The static fields of the instruction."""
        if not self.has_formats:
            return {}
        codes = list(FORMAT_BITS)
        fields = {"cbsz": codes.index(self.a_format), "blgp": codes.index(self.b_format)}
        if self.has_scales:
            fields |= {"scale_op_sel": 3 * (self.op_sel & 1), "scale_op_sel_hi": 3 * (self.op_sel >> 1)}
        return fields

    @functools.cached_property
    def depth(self) -> int:
        """Products of an element of D."""
        shape = matrix_instruction(self.mnemonic)
        return shape.k // 2 if shape.sparse else shape.k

    @functools.cached_property
    def rows(self) -> int:
        """M, and N."""
        return matrix_instruction(self.mnemonic).m

    @functools.cached_property
    def blocks(self) -> int:
        """Independent products."""
        return matrix_instruction(self.mnemonic).blocks

    @property
    def c_format(self) -> str:
        """Of C and D; i8 has i32."""
        return "f64" if self.a_format == "f64" else "f32"

    def registers(
        self,
        a: Codes,
        b: Codes,
        c: Codes,
        scale_a: Codes | None = None,
        scale_b: Codes | None = None,
    ) -> Words:
        """Registers (tiles, registers, 64) of codes: a (tiles, rows, depth), b (tiles, depth, columns), c (tiles, rows,
        columns), scales (tiles, rows, depth / 32) E8M0, 1 if not given; every block gets the same."""
        matrices = {"src0": a, "src1": self._spread_rows(b)}
        matrices["vdst" if self.sparse else "src2"] = c
        found = []
        for parameter in operands_of(lookup(self.mnemonic)):
            words = np.zeros((len(a), parameter.registers, LANES), np.uint32)
            if parameter.name in ("scale_a", "scale_b"):
                scales = scale_a if parameter.name == "scale_a" else scale_b
                self._put_scales(parameter.name, scales, words)
            elif self.sparse and parameter.name == "src2":
                words[:] = STORED_PLACES
            else:
                operand = {"src0": "A", "src1": "B"}.get(parameter.name, "C")
                _put(self._places(operand), matrices[parameter.name], words)
            found.append(words)
        return np.concatenate(found, axis=1)

    def _spread_rows(self, b: Codes) -> Codes:
        if not self.sparse:
            return b
        whole = np.full((len(b), 2 * self.depth, b.shape[2]), _one(self.b_format), np.uint64)
        stored = np.arange(self.depth)
        whole[:, 4 * (stored // 2) + stored % 2] = b
        return whole

    def _put_scales(self, name: str, scales: Codes | None, words: Words) -> None:
        words[:] = SCALE_OF_ONE << 8 * self.op_sel
        if scales is not None:
            words[:] = 0
            _put(_places(self.mnemonic, f"scale{name[-1].upper()}", None, None, self.op_sel), scales, words)

    def _places(self, operand: str) -> Places:
        formats = (self.a_format, self.b_format) if self.has_formats else (None, None)
        return _places(self.mnemonic, operand, *formats, 0)

    def places_of_results(self, chosen: Callable[[Any, Any], Any]) -> NDArray[np.bool_]:
        """Which words of D's registers hold elements whose row and column are chosen, (registers, 64)."""
        places = self._places("D")
        found = np.zeros((places.register.max() + 1, LANES), np.bool_)
        found[places.register, places.lane] = chosen(places.row, places.col)
        return found


@dataclass(frozen=True)
class Places:
    """Where the pieces of an operand's elements are, one entry a piece. shift: the element's bit that `low` holds."""

    row: NDArray[Any]
    col: NDArray[Any]
    block: NDArray[Any]
    register: NDArray[Any]
    lane: NDArray[Any]
    low: NDArray[Any]
    width: NDArray[Any]
    shift: NDArray[Any]


@functools.cache
def _places(mnemonic: str, operand: str, a_format: str | None, b_format: str | None, op_sel: int) -> Places:
    where: OperandLayout = layout(mnemonic, operand, a_format, b_format, op_sel)
    rows = []
    for element in where.elements():
        place, shift = where.locate(*element), 0
        for piece in place.pieces:
            width = piece.high_bit - piece.low_bit + 1
            rows.append((*element, piece.register, place.lane, piece.low_bit, width, shift))
            shift += width
    return Places(*np.array(rows, dtype=np.int64).T)


def _put(places: Places, codes: Codes, words: Words) -> None:
    """Codes (tiles, rows, columns) into registers (tiles, registers, 64), into every block alike."""
    shift, width, low = (n.astype(np.uint64) for n in (places.shift, places.width, places.low))
    mask = np.left_shift(np.uint64(1), width) - np.uint64(1)
    values = (codes[:, places.row, places.col].astype(np.uint64) >> shift & mask) << low
    for tile, row in enumerate(values.astype(np.uint32)):
        np.bitwise_or.at(words[tile], (places.register, places.lane), row)


def _one(format_: str) -> int:
    return int(encode(1.0, format_))


def encode(values: Any, format_: str) -> Codes:
    """Codes of numbers, to nearest even; i8 takes whole numbers."""
    array: NDArray[Any] = np.asarray(values, np.float64)
    if format_ == "i8":
        return array.astype(np.int64).astype(np.uint8).astype(np.uint64)
    if format_ == "f64":
        return array.view(np.uint64)
    return np.asarray(FORMATS[format_].encode(array)).astype(np.uint64)


def variants() -> tuple[Variant, ...]:
    """Every matrix instruction with every pair of formats it takes."""
    return tuple(_all())


def _all() -> Iterator[Variant]:
    for mnemonic in MATRIX:
        kinds = mnemonic.split("_")
        last = kinds[-1]
        pair = (kinds[-2], last) if last in ("fp8", "bf8") else (last, last)
        yield Variant(mnemonic, *pair)
    for form in ("", "scale_"):
        for shape in ("16x16x128", "32x32x64"):
            for a in FORMAT_BITS:
                for b in FORMAT_BITS:
                    yield Variant(f"v_mfma_{form}f32_{shape}_f8f6f4", a, b)


def grouped(found: Sequence[Variant]) -> list[Variant]:
    """Those of products of floats of at most 16 bits, which are summed in groups."""
    return [v for v in found if v.a_format not in ("f32", "f64", "i8")]
