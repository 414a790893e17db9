"""Operands of the matrix natives, decoded and laid out for sixteen columns at a time.

Values are f32 (multiples of the format's smallest number, or significands of f16 and bf16), exponents integers. A
sparse A meets columns of B that are chosen for each of its rows, by two bits an element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gfx950.arithmetic.mfma import ELEMENTS, FIELD_BITS, Format
from gfx950.arithmetic.mfma_lanes import (
    WIDTH,
    Index,
    SpreadWords,
    Value,
    Variable,
    Words,
    add_bytes,
    any_lane,
    bits_f32,
    bits_i32,
    equal,
    loop,
    low_i32,
    maximum,
    maximum_bytes,
    quad_lanes,
    select,
    select_zero_bytes,
    spread,
    stack_words,
    switch,
    to_f32,
    vector_of,
    widen_i64,
)
from gfx950.arithmetic.mfma_shapes import Shape
from gfx950.formats import NanKind

NOTHING = -10_000  # the exponent of a zero: no sum of two of them and of scales comes near a real one
# The same as a signed byte: 8-bit exponents lie in -15..15, so their sums are above ZERO_BYTE + 24 and sums with it
# below.
ZERO_BYTE = -64
HAS_NAN, HAS_INFINITY = 1, 2
OPERAND_WORDS = 2048  # elements of the largest operand
HALVES = (Format.f16, Format.bf16)


@dataclass(frozen=True)
class Matrix:
    """Decoded operands: values [k][row], exponents [k][row] (formats up to 8 bits: as bytes [k / 4][row]), scale
    exponents [block][row], special flags [row], and where B is chosen from also special flags [k][row]."""

    values: Words
    exponents: Words
    scales: Words
    flags: Words
    specials: Words

    def parts(self) -> tuple[Words, ...]:
        return self.values, self.exponents, self.scales, self.flags, self.specials

    def at(self, values: Index, exponents: Index) -> Matrix:
        return replace(self, values=self.values.at(values), exponents=self.exponents.at(exponents))

    def operand(self, number: Index) -> Matrix:
        """The operand A (0) or B (1) of a pair."""
        return Matrix(*(words.at(OPERAND_WORDS * number) for words in self.parts()))

    def one_row(self) -> Matrix:
        """As an operand of which one element goes to all columns."""
        return Matrix(*(SpreadWords(words.builder, words.pointer) for words in self.parts()))


def empty_matrices(builder: Any) -> Matrix:
    """Room for a pair of operands."""
    return Matrix(*(stack_words(builder, 2 * OPERAND_WORDS) for _ in range(5)))


def row_stride(shape: Shape) -> int:
    """Words from one k to the next of decoded operands. In shapes of 4 rows, four blocks of four columns are handled
    as sixteen columns, and A stands there ready for each of its rows: [k][row][64]."""
    return 256 if shape.rows == 4 else shape.rows


def columns_of(shape: Shape) -> int:
    """Columns handled one after the other: of one matrix, or in shapes of 4 rows of all sixteen."""
    return 64 if shape.rows == 4 else shape.rows


def c_word(shape: Shape, row: Index, column: Value) -> Value:
    """Index, within the words of C or D, of sixteen columns of a row."""
    if shape.rows == 4:
        return 64 * row + column
    if shape.rows == 16:
        return 64 * (row % 4) + 16 * (row // 4) + column
    return 64 * (row % 4 + 4 * (row // 8)) + 32 * (row // 4 % 2) + column


def magnitude_mask(format_: Format) -> int:
    element = ELEMENTS[format_]
    return (1 << (element.exponent_bits + element.mantissa_bits)) - 1


def special_flags(magnitudes: Value, format_: Format) -> Value:
    """Flags of magnitude codes."""
    element, all_ones = ELEMENTS[format_], magnitude_mask(format_)
    if element.nan is NanKind.ieee:
        infinity = all_ones - ((1 << element.mantissa_bits) - 1)
        nan = select(magnitudes > infinity, magnitudes.constant(HAS_NAN), 0)
        return select(equal(magnitudes, infinity), HAS_INFINITY, nan)
    none = magnitudes.constant(0)
    return select(equal(magnitudes, all_ones), HAS_NAN, none) if element.nan is NanKind.all_ones else none


def every_byte(value: int) -> int:
    return (value & 255) * 0x01010101


def exponent_bytes(magnitudes: Value, format_: Format) -> Value:
    """Exponents of four magnitude codes a lane, as bytes."""
    element = ELEMENTS[format_]
    fields = (magnitudes >> element.mantissa_bits) & every_byte((1 << element.exponent_bits) - 1)
    exponents = add_bytes(maximum_bytes(fields, every_byte(1)), every_byte(-element.bias))
    return select_zero_bytes(magnitudes, every_byte(ZERO_BYTE), exponents)


def whole_value(quad: Value, t: int, format_: Format) -> Value:
    """f32 of byte t of a quad, as a multiple of the format's smallest number; bf8's Inf is 2^32, the largest."""
    mantissa_bits, mask = ELEMENTS[format_].mantissa_bits, magnitude_mask(format_)
    code = (quad >> (8 * t)) & mask
    sign = (quad << (31 - 8 * t - mask.bit_length())) & 0x80000000
    normal = (code << (23 - mantissa_bits)) + ((126 + mantissa_bits) << 23)
    return bits_f32(select(code < 1 << mantissa_bits, bits_i32(to_f32(code)), normal) | sign)


def bytes_of_quad(words: list[Value], bit: int, field_bits: int) -> Value:
    """Four fields that start `bit` bits after the first word, one in each byte; what is above a field in its byte is
    of other fields."""
    word, shift = bit >> 5, bit & 31
    if field_bits == 8:
        return words[word]
    window = (words[word] >> shift) & (-1 if shift == 0 else (1 << (32 - shift)) - 1)
    if shift + 4 * field_bits > 32:
        window = window | (words[word + 1] << (32 - shift))
    result = window & 255
    for t in range(1, 4):
        result = result | (((window >> (t * field_bits)) & 255) << (8 * t))
    return result


def k_of_item(shape: Shape, field_bits: int, lane_group: Value, item: Value) -> Value:
    """The k of an item of a lane; 8-bit F8F6F4 operands hold two runs of 16 that lie half of K apart."""
    if shape.two_runs or (shape.blocks and field_bits == 8):
        run = shape.lane_items // 2
        return shape.depth // 2 * (item // run) + run * lane_group + item % run
    return shape.lane_items * lane_group + item


def store_specials(magnitudes: Value, place: Value, rows: int, format_: Format, matrix: Matrix) -> Value:
    """Stores the special flags of a quad's elements; gives them all together."""
    seen = magnitudes.constant(0)
    for t in range(4):
        flags = special_flags((magnitudes >> (8 * t)) & 255, format_)
        matrix.specials.store(place + t * rows, flags)
        seen = seen | flags
    return seen


def decode_quads(registers: Words, shape: Shape, format_: Format, matrix: Matrix, chosen_from: bool) -> None:
    """An operand of a format up to 8 bits that starts at `registers`; with special flags of each element where it is
    chosen from."""
    builder, bits, rows = registers.builder, FIELD_BITS[format_], shape.rows
    items = {8: 4, 6: 16, 4: 8}[bits]  # quads that fill whole words
    word_count = items * bits // 32
    with loop(builder, rows, WIDTH) as row:
        top, seen = (Variable(vector_of(builder, 0)) for _ in range(2))
        with (
            loop(builder, shape.depth // shape.lane_items) as lane_group,
            loop(builder, shape.lane_items // items) as part,
        ):
            first = registers.at(64 * word_count * part + rows * lane_group + row)
            words = [first.vector(64 * word) for word in range(word_count)]
            for item in range(0, items, 4):
                codes = bytes_of_quad(words, item * bits, bits)
                k = k_of_item(shape, bits, lane_group, items * part + item)
                for t in range(4):
                    matrix.values.store((k + t) * rows + row, whole_value(codes, t, format_))
                magnitudes = codes & every_byte(magnitude_mask(format_))
                top.value = maximum_bytes(top.value, magnitudes)
                matrix.exponents.store(k // 4 * rows + row, exponent_bytes(magnitudes, format_))
                if chosen_from:
                    seen.value = seen.value | store_specials(magnitudes, k * rows + row, rows, format_, matrix)
        highest = maximum_bytes(top.value, top.value >> 16)
        highest = maximum_bytes(highest, highest >> 8) & 255
        # A NaN outranks an Inf, as it does in the result; but what is not chosen hides nothing.
        matrix.flags.store(row, seen.value if chosen_from else special_flags(highest, format_))


def half_parts(words: Value, format_: Format) -> tuple[Value, Value, Value]:
    """f32 significands below 2, exponents and special flags of f16 or bf16 codes in the low halves of words."""
    element = ELEMENTS[format_]
    code, sign = words & 0x7FFF, (words << 16) & 0x80000000
    field, mantissa = code >> element.mantissa_bits, code & ((1 << element.mantissa_bits) - 1)
    normal = (mantissa << (23 - element.mantissa_bits)) | (127 << 23)
    subnormal = bits_i32(to_f32(mantissa) * 2.0**-element.mantissa_bits)
    significand = bits_f32(select(equal(field, 0), subnormal, normal) | sign)
    exponent = select(equal(code, 0), NOTHING, maximum(field, 1) - element.bias)
    return significand, exponent, special_flags(code, format_)


def decode_halves(registers: Words, shape: Shape, format_: Format, matrix: Matrix, chosen_from: bool) -> None:
    """An f16 or bf16 operand that starts at `registers`; with special flags of each element where it is chosen from."""
    builder, stride = registers.builder, row_stride(shape)
    with loop(builder, columns_of(shape), WIDTH) as row:
        seen = Variable(vector_of(builder, 0))
        with (
            loop(builder, shape.depth // shape.lane_items) as lane_group,
            loop(builder, shape.lane_items // 2) as register,
        ):
            words = registers.vector(64 * register + shape.rows * lane_group + row)
            for t in range(2):
                place = (k_of_item(shape, 16, lane_group, 2 * register) + t) * stride + row
                significand, exponent, special = half_parts(words >> (16 * t), format_)
                matrix.values.store(place, significand)
                matrix.exponents.store(place, exponent)
                if chosen_from:
                    matrix.specials.store(place, special)
                seen.value = seen.value | special
        matrix.flags.store(row, seen.value)


def decode_scales(register: Words, shape: Shape, byte: Value, scaled: Value, matrix: Matrix) -> None:
    """Scale exponents; a NaN scale flags its row."""
    for index in range(0, shape.rows * shape.blocks, WIDTH):
        scale = select(spread(scaled), (register.vector(index) >> spread(8 * byte)) & 255, 127)
        matrix.scales.store(index, scale - 127)
        row = index % shape.rows
        matrix.flags.store(row, matrix.flags.vector(row) | select(equal(scale, 255), scale.constant(HAS_NAN), 0))


def spread_quads(matrix: Matrix, depth: int) -> None:
    """A of a shape of 4 rows: from the lanes that hold it to [k][row][64], each row beside the columns of its block."""
    with loop(matrix.values.builder, 64, WIDTH) as lane:
        for words, count in ((matrix.values, depth), (matrix.exponents, depth), (matrix.flags, 1)):
            for k in range(count):
                held = words.vector(256 * k + lane)
                for row in range(4):
                    words.store(256 * k + 64 * row + lane, quad_lanes(held, row))


def formats_of(shape: Shape, half: bool) -> tuple[Format, ...]:
    """The legal formats; an undefined code is read as the first."""
    return HALVES if half else tuple(Format)[: 5 if shape.blocks else 2]


@dataclass(frozen=True)
class Units:
    """Exponents of the smallest product (none for halves), and the lift of `mfma_natives.real_value`."""

    smallest: Variable
    lift: Variable

    @classmethod
    def nothing_read(cls, builder: Any) -> Units:
        return cls(Variable(vector_of(builder, 0)), Variable(vector_of(builder, 0)))


def decode_operand(registers: Words, code: Value, shape: Shape, half: bool, matrix: Matrix, units: Units) -> None:
    """One operand whose format the code names. Specials of elements are stored for a sparse shape's B."""
    chosen_from = shape.chosen

    def case(format_: Format) -> None:
        element = ELEMENTS[format_]
        units.smallest.value = units.smallest.value + (1 - element.bias - element.mantissa_bits)
        units.lift.value = vector_of(registers.builder, 127 - element.bias)
        (decode_halves if half else decode_quads)(registers, shape, format_, matrix, chosen_from)

    formats = formats_of(shape, half)
    switch(code, {int(f): partial(case, f) for f in formats}, default=int(formats[0]))


def decode_pair(inputs: Words, parameters: Value, shape: Shape, half: bool, matrices: Matrix) -> Units:
    """A and B of one product, whose first lanes are at `inputs`."""
    units, a_words = Units.nothing_read(inputs.builder), 64 * shape.operand_registers
    if shape.sparse:
        decode_operand(inputs, parameters & 7, shape, half, matrices.operand(0), units)
        b_code = (parameters if half else parameters >> 3) & 7
        decode_operand(inputs.at(a_words), b_code, shape.b_shape, half, matrices.operand(1), units)
        return units
    with loop(inputs.builder, 2) as operand:
        code = (parameters if half else parameters >> (3 * operand)) & 7  # halves have one format
        decode_operand(inputs.at(a_words * operand), code, shape, half, matrices.operand(operand), units)
    if shape.rows == 4:
        spread_quads(matrices.operand(0), shape.depth)
    return units


def any_infinity(matrices: Matrix, shape: Shape) -> Value:
    flags = vector_of(matrices.flags.builder, 0)
    for operand, count in enumerate((row_stride(shape), columns_of(shape))):  # of four rows, A is there for each
        for row in range(0, count, WIDTH):
            flags = flags | matrices.operand(operand).flags.vector(row)
    return any_lane((flags & HAS_INFINITY) > 0)


# ---- Sparse ----


def decode_index(register: Words, shape: Shape, shift: Value, table: Words) -> None:
    """Which of its four k each element of a sparse A stands at: two bits an element from bit `shift` on, as
    [element][row]."""
    builder = register.builder
    with (
        loop(builder, shape.rows, WIDTH) as row,
        loop(builder, shape.depth // shape.lane_items) as lane_group,
        loop(builder, shape.lane_items) as item,
    ):
        word = register.vector(shape.rows * lane_group + row)
        place = (shape.lane_items * lane_group + item) * shape.rows + row
        table.store(place, (word >> spread(shift + low_i32(2 * item))) & 3)


def choose_columns(table: Words, b: Matrix, shape: Shape, half: bool, row: Value, column: Value, to: Matrix) -> Value:
    """Sixteen columns of B as one row of a sparse A meets them; gives their special flags."""
    rows, seen = shape.rows, Variable(vector_of(table.builder, 0))
    with loop(table.builder, shape.depth // 4) as quad:
        exponents = vector_of(table.builder, 0)
        for t in range(4):
            element, k = 4 * quad + t, 8 * quad + 4 * (t // 2)
            offset = table.scalar(element * rows + row)
            place = (k + widen_i64(offset)) * rows + column
            to.values.store(element * rows, b.values.vector(place))
            seen.value = seen.value | b.specials.vector(place)
            if half:
                to.exponents.store(element * rows, b.exponents.vector(place))
            else:
                held = b.exponents.vector(k // 4 * rows + column) >> spread(8 * offset)
                exponents = exponents | ((held & 255) << (8 * t))
        if not half:
            to.exponents.store(quad * rows, exponents)
    return seen.value
