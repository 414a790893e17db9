"""The natives of the i8 matrix instructions: exact sums of products, added to C in 32 bits.

[rules mfma.i8, mfma.i8_overflow]
"""

from __future__ import annotations

from gfx950.arithmetic.mfma_lanes import (
    WIDTH,
    Index,
    Value,
    Variable,
    Words,
    Writer,
    equal,
    host_bodies,
    loop,
    low_i32,
    quad_lanes,
    select,
    spread,
    stack_words,
    vector_of,
    widen_i64,
)
from gfx950.arithmetic.mfma_operands import OPERAND_WORDS, c_word, columns_of, decode_index, k_of_item
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of


def decode_bytes(registers: Words, shape: Shape, elements: Words) -> None:
    """An operand as i32, [k][row]; of a shape of 4 rows [k][lane]."""
    builder, columns = registers.builder, columns_of(shape)
    with (
        loop(builder, columns, WIDTH) as row,
        loop(builder, shape.depth // shape.lane_items) as lane_group,
        loop(builder, shape.lane_items // 4) as register,
    ):
        word = registers.vector(64 * register + shape.rows * lane_group + row)
        k = k_of_item(shape, 8, lane_group, 4 * register)
        for t in range(4):
            elements.store((k + t) * columns + row, (word << (24 - 8 * t)) >> 24)


def add(total: Value, c: Value, parameters: Value) -> Value:
    """C plus a sum that cannot overflow: modulo 2^32, or held at the ends under FP16_OVFL."""
    result = total + c
    overflows = ((result ^ c) & (result ^ total)) < 0
    end = select(c < 0, c.constant(-(2**31)), 2**31 - 1)
    return select(spread(equal((parameters >> 11) & 1, 1)) & overflows, end, result)


def write_rows(a: Words, b: Words, c: Words, d: Words, shape: Shape, table: Words | None, parameters: Value) -> None:
    """Sixteen columns of a row at a time. table: where the elements of a sparse A stand among their four k."""
    builder, rows = a.builder, shape.rows
    with loop(builder, rows) as i, loop(builder, rows, WIDTH) as j:
        total = Variable(vector_of(builder, 0))
        with loop(builder, shape.depth) as element:
            k: Index = element
            if table is not None:
                k = 4 * (element // 2) + widen_i64(table.scalar(element * rows + i))
            total.value = total.value + a.spread(element * rows + i) * b.vector(k * rows + j)
        place = c_word(shape, i, j)
        d.store(place, add(total.value, c.vector(place), parameters))


def write_quads(a: Words, b: Words, c: Words, d: Words, shape: Shape, parameters: Value) -> None:
    """Four columns of a row of four blocks at a time."""
    with loop(a.builder, 64, WIDTH) as lane:
        for row in range(4):
            total = vector_of(a.builder, 0)
            for k in range(shape.depth):
                total = total + quad_lanes(a.vector(64 * k + lane), row) * b.vector(64 * k + lane)
            place = 64 * row + lane
            d.store(place, add(total, c.vector(place), parameters))


def write_native(inputs: Words, outputs: Words, parameters: Value, shape: Shape) -> None:
    """The instruction on registers A, B, C and, of a sparse one, the index."""
    builder = inputs.builder
    a, b, table = (stack_words(builder, OPERAND_WORDS) for _ in range(3))
    b_registers = inputs.at(64 * shape.operand_registers)
    c = b_registers.at(64 * shape.b_shape.operand_registers)
    with loop(builder, 1 if shape.rows == 4 else shape.copies) as copy:
        decode_bytes(inputs.at(shape.rows * copy), shape, a)
        decode_bytes(b_registers.at(shape.rows * copy), shape.b_shape, b)
        if shape.sparse:
            decode_index(c.at(64 * shape.c_registers), shape, low_i32((parameters >> 12) & 31), table)
        words = shape.rows * shape.rows * copy
        if shape.rows == 4:
            write_quads(a, b, c, outputs, shape, parameters)
        else:
            write_rows(a, b, c.at(words), outputs.at(words), shape, table if shape.sparse else None, parameters)


def write(name: str) -> Writer:
    shape = SHAPES[name]
    return lambda inputs, outputs, parameters: write_native(inputs, outputs, parameters, shape)


# The natives, as attributes by their names.
globals().update(host_bodies({name: write(name) for name in SHAPES if kind_of(name) == "i8"}))
