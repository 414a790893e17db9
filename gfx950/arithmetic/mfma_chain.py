"""The natives of the f32 and f64 matrix instructions: a chain of fused multiply-adds in ascending k.

[rules mfma.f32.chain, mfma.f64.chain, mfma.f32_denorm, mfma.nan_bits, mfma.overflow_step]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gfx950.arithmetic.mfma import DEFAULT, F64_NAN
from gfx950.arithmetic.mfma_lanes import (
    F32,
    F64,
    WIDTH,
    Index,
    Value,
    Words,
    Writer,
    bits_f32,
    bits_f64,
    bits_i32,
    bits_i64,
    equal,
    fused,
    host_bodies,
    join_words,
    loop,
    low_i32,
    quad_lanes,
    select,
    spread,
    stack_words,
)
from gfx950.arithmetic.mfma_operands import c_word
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of

INFINITY, MAGNITUDE, SIGN = 0x7F800000, 0x7FFFFFFF, 0x80000000


@dataclass(frozen=True)
class Single:
    """f32: one register, one word an element."""

    parameters: Value
    element: Any = F32
    words: int = 1

    def load(self, registers: Words, place: Index) -> Value:
        return registers.vector(place, F32)

    def store(self, registers: Words, place: Index, value: Value) -> None:
        bits = bits_i32(value)
        registers.store(place, select((bits & MAGNITUDE) > INFINITY, DEFAULT.nan_bits, bits))

    def prepare(self, value: Value, operand: int) -> Value:
        """A (0) or B (1) with its subnormals flushed where MODE says so."""
        bits = bits_i32(value)
        flushed = spread(equal((self.parameters >> 17) & 1, 1)) & equal(bits & INFINITY, 0)
        return value if operand == 2 else bits_f32(select(flushed, bits & SIGN, bits))

    def step(self, a: Value, b: Value, total: Value) -> Value:
        """One multiply-add. Under FP16_OVFL an Inf made of finite numbers is the largest finite one."""
        result = fused(a, b, total)
        made = equal(bits_i32(result) & MAGNITUDE, INFINITY)
        for operand in (a, b, total):
            made = made & ((bits_i32(operand) & INFINITY) < INFINITY)
        clamped = spread(equal((self.parameters >> 11) & 1, 1)) & made
        return bits_f32(bits_i32(result) - select(clamped, bits_i32(result).constant(1), 0))

    def row(self, shape: Shape, row: Index, column: Value) -> Index:
        return c_word(shape, row, column)


@dataclass(frozen=True)
class Double:
    """f64: two registers, two words an element. FP16_OVFL and MODE change nothing."""

    parameters: Value
    element: Any = F64
    words: int = 2

    def load(self, registers: Words, place: Index) -> Value:
        return bits_f64(join_words(registers.vector(place), registers.vector(64 + place)))

    def store(self, registers: Words, place: Index, value: Value) -> None:
        bits = bits_i64(value)
        bits = select((bits & ((1 << 63) - 1)) > (0x7FF << 52), F64_NAN, bits)
        registers.store(place, low_i32(bits))
        registers.store(64 + place, low_i32(bits >> 32))

    def prepare(self, value: Value, operand: int) -> Value:
        """A, B or C (2), negated where BLGP says so."""
        return bits_f64(bits_i64(value) ^ spread((self.parameters >> (18 + operand)) << 63))

    def step(self, a: Value, b: Value, total: Value) -> Value:
        return fused(a, b, total)

    def row(self, shape: Shape, row: Index, column: Value) -> Index:
        """As of f32, of the low words."""
        return 128 * (row // 4) + 16 * (row % 4) + column if shape.rows == 16 else 16 * row + column


Floats = Single | Double


def prepare_operands(inputs: Words, shape: Shape, floats: Floats) -> tuple[Words, Words]:
    """The 64 elements of A and of B, ready to be multiplied, one after the other."""
    found = []
    for operand in range(2):
        elements = stack_words(inputs.builder, 64 * floats.words)
        registers = inputs.at(64 * shape.operand_registers * operand)
        for lane in range(0, 64, WIDTH):
            value = floats.prepare(floats.load(registers, lane), operand)
            elements.store(floats.words * lane, value)
        found.append(elements)
    return found[0], found[1]


def write_native(inputs: Words, outputs: Words, shape: Shape, floats: Floats) -> None:
    """The instruction on registers A, B, C. The element of row i, block b and k is in lane i + rows (b + blocks k)."""
    a, b = prepare_operands(inputs, shape, floats)
    c = inputs.at(128 * shape.operand_registers)
    (write_quads if shape.rows == 4 else write_rows)(a, b, c, outputs, shape, floats)


def write_rows(a: Words, b: Words, c: Words, d: Words, shape: Shape, floats: Floats) -> None:
    """Sixteen columns of a row at a time."""
    builder, rows = a.builder, shape.rows
    with loop(builder, shape.copies) as copy, loop(builder, rows) as i, loop(builder, rows, WIDTH) as j:
        place = rows * rows * copy + floats.row(shape, i, j)
        total = floats.prepare(floats.load(c, place), 2)
        for k in range(shape.depth):
            first = rows * (copy + shape.copies * k)
            factor = spread(a.scalar(floats.words * (first + i), floats.element))
            total = floats.step(factor, b.vector(floats.words * (first + j), floats.element), total)
        floats.store(d, place, total)


def write_quads(a: Words, b: Words, c: Words, d: Words, shape: Shape, floats: Floats) -> None:
    """Four columns of a row of four blocks at a time."""
    lanes = 4 * shape.copies
    with loop(a.builder, lanes, WIDTH) as lane:
        for row in range(4):
            place = floats.row(shape, row, lane)
            total = floats.prepare(floats.load(c, place), 2)
            for k in range(shape.depth):
                at = floats.words * (lane + lanes * k)
                factor = quad_lanes(a.vector(at, floats.element), row)
                total = floats.step(factor, b.vector(at, floats.element), total)
            floats.store(d, place, total)


def write(name: str) -> Writer:
    shape, floats = SHAPES[name], Double if kind_of(name) == "f64" else Single
    return lambda inputs, outputs, parameters: write_native(inputs, outputs, shape, floats(parameters))


# The natives, as attributes by their names.
globals().update(host_bodies({name: write(name) for name in SHAPES if kind_of(name) in ("f32", "f64")}))
