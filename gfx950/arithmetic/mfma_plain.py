"""The matrix rules on registers, one element at a time: readable, not fast, the reference of the natives.

Elements are found by `gfx950.layouts`. Groups of products follow `gfx950.arithmetic.mfma_rule`; chains of multiply-adds
and sums of integers are written here with Python's integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gfx950.arithmetic.mfma import F64_NAN, Format, MfmaModel, Operand, SparseOrder, multiply
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of
from gfx950.layouts import OperandLayout, layout

Codes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]
_MNEMONICS = {"f8": "f32_{}_fp8_fp8", "i8": "i32_{}_i8", "f64": "f64_{}_f64", "f32": "f32_{}_f32", "f16": "f32_{}_f16"}


def run_registers(name: str, inputs: Words, outputs: Words, parameters: int, model: MfmaModel) -> None:
    """The native `name` on its inputs, by the plain rule."""
    shape, kind = SHAPES[name], kind_of(name)
    where = _layouts(name)
    starts = np.cumsum([0, shape.operand_registers, shape.b_shape.operand_registers, shape.c_registers])
    a, b, c = (read(where[o], inputs[at:]) for o, at in zip("ABC", starts, strict=False))
    index = read(where["index"], inputs[starts[3] :] >> np.uint32(parameters >> 12 & 31)) if shape.sparse else None
    for block in range(shape.copies):
        of_block = Product(shape, a[block], b[block].T, c[block], None if index is None else index[block])
        write(where["D"], block, _RULES[kind](of_block, parameters, model), outputs)


def _layouts(name: str) -> dict[str, OperandLayout]:
    family, _, rest = name.partition("_")
    mnemonic = f"v_{family}_" + _MNEMONICS[kind_of(name)].format(rest.rpartition("_")[0])
    return {operand: layout(mnemonic, operand) for operand in ("A", "B", "C", "D", *["index"] * (family == "smfmac"))}


def read(where: OperandLayout, registers: Words) -> Codes:
    """The codes of an operand, (blocks, rows, columns), from its registers."""
    codes = np.zeros((where.blocks, where.rows, where.cols), np.uint64)
    for element in where.elements():
        place, shift = where.locate(*element), 0
        for piece in place.pieces:
            width = piece.high_bit - piece.low_bit + 1
            bits = int(registers[piece.register, place.lane]) >> piece.low_bit & ((1 << width) - 1)
            codes[element.block, element.row, element.col] |= np.uint64(bits << shift)
            shift += width
    return codes


def write(where: OperandLayout, block: int, rows: Codes, registers: Words) -> None:
    """Puts the elements of a block into registers; elements are whole registers."""
    for row, values in enumerate(rows):
        for col, value in enumerate(values):
            place = where.locate(row, col, block)
            for number, piece in enumerate(place.pieces):
                registers[piece.register, place.lane] = int(value) >> 32 * number & 0xFFFFFFFF


@dataclass(frozen=True)
class Product:
    """One product on codes: a (rows, depth), b transposed (rows, K), c (rows, rows); of a sparse a the index (rows,
    depth)."""

    shape: Shape
    a: Codes
    b: Codes
    c: Codes
    index: Codes | None

    def met(self, row: int) -> Codes:
        """The elements of b, (rows, depth), that a row of a meets."""
        if self.index is None:
            return self.b
        return self.b[:, 4 * (np.arange(self.shape.depth) // 2) + self.index[row].astype(np.int64)]


def _by_groups(product: Product, parameters: int, model: MfmaModel) -> Codes:
    formats = Format(parameters & 7), Format(parameters >> 3 & 7)
    clamp = bool(parameters >> 11 & 1)
    found = []
    for row in range(product.shape.rows):
        a, b = product.a[row], product.met(row)
        if product.index is not None and model.sparse_order is SparseOrder.expanded:
            a, b = _expanded(a, product.index[row], product.b)
        operands = Operand(a[None].astype(np.uint16), formats[0]), Operand(b.astype(np.uint16), formats[1])
        c = product.c[row].astype(np.uint32)[None]
        found.append(multiply(operands[0], operands[1], c, model, clamp=clamp)[0])
    return np.array(found, np.uint64)


def _expanded(a: Codes, index: Codes, b: Codes) -> tuple[Codes, Codes]:
    """A row with zeros where nothing is stored; of two elements in one place only the second counts."""
    whole = np.zeros(2 * len(a), np.uint64)
    whole[4 * (np.arange(len(a)) // 2) + index.astype(np.int64)] = a
    return whole, np.where(np.isin(np.arange(len(whole)), np.flatnonzero(whole)), b, np.uint64(0))


def _by_integers(product: Product, parameters: int, model: MfmaModel) -> Codes:
    a, b = (x.astype(np.uint8).view(np.int8).astype(np.int64) for x in (product.a, product.b))
    c = product.c.astype(np.uint32).view(np.int32).astype(np.int64)
    chosen = replace(product, b=b.astype(np.uint64))
    sums = np.array([chosen.met(row).view(np.int64) @ a[row] for row in range(product.shape.rows)]) + c
    if parameters >> 11 & 1:
        sums = np.clip(sums, -(2**31), 2**31 - 1)
    return (sums & 0xFFFFFFFF).astype(np.uint64)


class Ieee(NamedTuple):
    """A binary float: bits of it and of its mantissa."""

    width: int
    mantissa_bits: int
    nan_bits: int

    @property
    def infinity(self) -> int:
        return (1 << self.width - 1) - (1 << self.mantissa_bits)

    @property
    def sign(self) -> int:
        return 1 << self.width - 1

    @property
    def smallest(self) -> int:
        """The exponent of the smallest subnormal."""
        return 2 - (1 << self.width - self.mantissa_bits - 2) - self.mantissa_bits

    def value(self, bits: int) -> Fraction:
        """The value of a finite number."""
        field, mantissa = (bits & ~self.sign) >> self.mantissa_bits, bits & ((1 << self.mantissa_bits) - 1)
        significand = mantissa | (1 << self.mantissa_bits if field else 0)
        magnitude = Fraction(significand) * Fraction(2) ** (max(field, 1) - 1 + self.smallest)
        return -magnitude if bits & self.sign else magnitude

    def nearest(self, value: Fraction) -> int:
        """The bits of a nonzero value rounded to nearest even; overflow gives Inf."""
        magnitude = abs(value)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        exponent -= magnitude < Fraction(2) ** exponent
        unit = max(exponent - self.mantissa_bits, self.smallest)
        whole = round(magnitude / Fraction(2) ** unit)  # Python rounds ties to even
        bits = whole + (unit - self.smallest << self.mantissa_bits)
        return min(bits, self.infinity) | (self.sign if value < 0 else 0)


F32_BITS, F64_BITS = Ieee(32, 23, 0x7FC00000), Ieee(64, 52, F64_NAN)


def multiply_add(a: int, b: int, c: int, form: Ieee, clamp: bool) -> int:
    """Bits of a * b + c, rounded once; every NaN is the form's one. clamp: overflow gives the largest finite number."""
    infinity, sign = form.infinity, form.sign
    magnitudes = [x & ~sign for x in (a, b, c)]
    product_sign = (a ^ b) & sign
    if max(magnitudes) > infinity:
        return form.nan_bits
    if infinity in magnitudes[:2]:
        invalid = 0 in magnitudes[:2] or (magnitudes[2] == infinity and c & sign != product_sign)
        return form.nan_bits if invalid else product_sign | infinity
    if magnitudes[2] == infinity:
        return c
    product = form.value(a) * form.value(b)
    total = product + form.value(c)
    if total == 0:
        return product_sign if product == 0 and product_sign == c & sign else 0
    bits = form.nearest(total)
    return bits - 1 if clamp and bits & ~sign == infinity else bits


def _flushed(code: int) -> int:
    return code if code & 0x7F800000 else code & 0x80000000


def _chain(a: Iterable[int], b: Iterable[int], c: int, form: Ieee, clamp: bool) -> int:
    for x, y in zip(a, b, strict=True):
        c = multiply_add(x, y, c, form, clamp)
    return form.nan_bits if c & ~form.sign > form.infinity else c


def _chains(a: list[list[int]], b: list[list[int]], c: list[list[int]], form: Ieee, clamp: bool) -> Codes:
    return np.array(
        [[_chain(a[i], b[j], c[i][j], form, clamp) for j in range(len(b))] for i in range(len(a))], np.uint64
    )


def _by_singles(product: Product, parameters: int, model: MfmaModel) -> Codes:
    a, b = (
        [[_flushed(code) if parameters >> 17 & 1 else code for code in row] for row in x.tolist()]
        for x in (product.a, product.b)
    )
    form = F32_BITS._replace(nan_bits=model.nan_bits)
    return _chains(a, b, product.c.tolist(), form, bool(parameters >> 11 & 1))


def _by_doubles(product: Product, parameters: int, model: MfmaModel) -> Codes:
    negated = [
        (x ^ np.uint64((parameters >> 18 + operand & 1) << 63)).tolist()
        for operand, x in enumerate((product.a, product.b, product.c))
    ]
    return _chains(negated[0], negated[1], negated[2], F64_BITS, clamp=False)


_RULES: dict[str, Callable[[Product, int, MfmaModel], Any]] = {
    "f8": _by_groups,
    "f16": _by_groups,
    "i8": _by_integers,
    "f32": _by_singles,
    "f64": _by_doubles,
}
