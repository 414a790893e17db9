"""Operands of the matrix natives, decoded and laid out for sixteen columns at a time.

Values are f32 (multiples of the format's smallest number, or significands of f16 and bf16), exponents integers. A
sparse A meets columns of B that are chosen for each of its rows, by two bits an element.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gfx950.arithmetic.mfma import ELEMENTS, FIELD_BITS, Format
from gfx950.arithmetic.mfma_lanes import (
    WIDTH,
    ChosenWords,
    Index,
    SpreadWords,
    Value,
    Values,
    Variable,
    Words,
    add_bytes,
    add_halves,
    any_lane,
    bits_f32,
    bits_i32,
    branch,
    equal,
    largest_byte,
    largest_half,
    loop,
    low_i32,
    maximum,
    maximum_bytes,
    maximum_halves,
    minimum_bytes,
    minimum_halves,
    quad_lanes,
    select,
    select_above_bytes,
    select_zero_halves,
    smallest_half,
    spread,
    stack_words,
    switch,
    to_f32,
    truncate_i32,
    vector_of,
    widen_i64,
)
from gfx950.arithmetic.mfma_shapes import Shape
from gfx950.formats import NanKind

NOTHING = -10_000  # the exponent of a zero: no sum of two of them and of scales comes near a real one
# Exponents of formats up to 8 bits are bytes with a bias, 1..31: as signed bytes a zero and sums with it are below all
# others, as unsigned ones above.
BYTE_BIAS, ZERO_BYTE = 16, -64
LOST = -10_000  # the last place of elements of which some have no place among pairs
ZERO_HALF = -(2**14)  # and as a signed 16 bits
HAS_NAN, HAS_INFINITY = 1, 2
OPERAND_WORDS = 2048  # elements of the largest operand
GROUP = 16  # products of formats up to 8 bits that are summed together
HALVES = (Format.f16, Format.bf16)
LIFT = 90  # powers of two between small bf16 and their place among f32


class Way(enum.Enum):
    """How operands are decoded. quads: formats up to 8 bits, as multiples of the smallest number, exponents as bytes,
    four k a word. reals: f16 and bf16 as they are, exponents of 16 bits, two k a word. significands: bf16 whose
    products leave f32's range, exponents a word each."""

    quads = 4
    reals = 2
    significands = 1

    @property
    def half(self) -> bool:
        return self is not Way.quads

    def exponents_in_word(self, shape: Shape) -> int:
        """A sparse A meets reals one by one."""
        return 1 if self is Way.reals and (shape.sparse or shape.chosen) else self.value


@dataclass(frozen=True)
class Matrix:
    """Decoded operands.

    values [k][row], exponents [k / exponents in a word][row], scale exponents [block][row], special flags [row]. Where
    B is chosen from, specials are the flags [k][row]; elsewhere, if there is an Inf, they tell whether [group][row]
    holds one. Formats up to 8 bits, unless sparse, have pairs of 16-bit integers too [k / 2][row], k and k + 2 or k + 1
    and k + 3 in a word, and as lows the exponents of the last place of any of 16 elements [k / 16][row].
    """

    values: Words
    exponents: Words
    scales: Words
    flags: Words
    specials: Words
    pairs: Words
    lows: Words

    def parts(self) -> tuple[Words, ...]:
        return self.values, self.exponents, self.scales, self.flags, self.specials, self.pairs, self.lows

    def at(self, values: Index, exponents: Index, pairs: Index, lows: Index) -> Matrix:
        moved = {"values": self.values.at(values), "exponents": self.exponents.at(exponents)}
        return replace(self, **moved, pairs=self.pairs.at(pairs), lows=self.lows.at(lows))

    def moved(self, values: Value, exponents: Value) -> Matrix:
        """With values and exponents elsewhere."""
        kind = type(self.values)
        moved = (kind(place.builder, place.llvm) for place in (values, exponents))
        return Matrix(*moved, *self.parts()[2:])

    def operand(self, number: Index) -> Matrix:
        """The operand A (0) or B (1) of a pair."""
        return Matrix(*(words.at(OPERAND_WORDS * number) for words in self.parts()))

    def through(self, table: Words) -> Matrix:
        """As a row of a sparse A meets it, by the table of `decode_index`."""
        chosen = (ChosenWords(words.builder, words.pointer, table) for words in (self.values, self.exponents))
        return Matrix(*chosen, *self.parts()[2:])

    def one_row(self) -> Matrix:
        """As an operand of which one element goes to all columns."""
        return Matrix(*(SpreadWords(words.builder, words.pointer) for words in self.parts()))


@dataclass(frozen=True)
class Units:
    """Exponents of the smallest product (none for halves), with the bias of two bytes, the lift of
    `mfma_natives.raise_infinities`, the exponent that products of pairs have beyond the smallest, and the power of two
    by which real values of A are raised."""

    smallest: Variable
    lift: Variable
    base: Variable
    raised: Variable

    @classmethod
    def nothing_read(cls, builder: Any) -> Units:
        return cls(*(Variable(vector_of(builder, 0)) for _ in range(4)))


class Placing(NamedTuple):
    """The bias of real exponents, in both halves of words, and a factor of bf16 values."""

    bias: Value
    factor: Value


def empty_matrices(builder: Any) -> Matrix:
    """Room for a pair of operands."""
    return Matrix(*(stack_words(builder, 2 * OPERAND_WORDS) for _ in range(7)))


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


def both_halves(value: int) -> int:
    return (value & 0xFFFF) * 0x10001


def first_special(format_: Format) -> int:
    """The lowest magnitude code of a NaN or an Inf."""
    element, codes = ELEMENTS[format_], magnitude_mask(format_) + 1
    return codes - {NanKind.ieee: 1 << element.mantissa_bits, NanKind.all_ones: 1}.get(element.nan, 0)


def exponent_bytes(magnitudes: Value, format_: Format) -> Value:
    """Exponents of four magnitude codes a lane, as bytes with BYTE_BIAS; a NaN or an Inf has a zero's."""
    element = ELEMENTS[format_]
    fields = (magnitudes >> element.mantissa_bits) & every_byte((1 << element.exponent_bits) - 1)
    exponents = add_bytes(maximum_bytes(fields, every_byte(1)), every_byte(BYTE_BIAS - element.bias))
    below = add_bytes(magnitudes, every_byte(-1))
    return select_above_bytes(below, every_byte(first_special(format_) - 2), every_byte(ZERO_BYTE), exponents)


def whole_value(quad: Value, t: int, format_: Format) -> Value:
    """f32 of byte t of a quad, as a multiple of the format's smallest number; bf8's Inf is 2^32, the largest."""
    mantissa_bits, mask = ELEMENTS[format_].mantissa_bits, magnitude_mask(format_)
    code = (quad >> (8 * t)) & mask
    sign = (quad << (31 - 8 * t - mask.bit_length())) & 0x80000000
    normal = (code << (23 - mantissa_bits)) + ((126 + mantissa_bits) << 23)
    return bits_f32(select(code < 1 << mantissa_bits, bits_i32(to_f32(code)), normal) | sign)


def base_of(registers: Words, shape: Shape, format_: Format) -> Value:
    """The power of two by which the largest of an operand's values, as multiples of the smallest number, is beyond 15
    bits."""
    element = ELEMENTS[format_]
    top_field = 15 - element.mantissa_bits  # of values of 15 bits
    top = Variable(vector_of(registers.builder, 0))
    if magnitude_mask(format_) >> element.mantissa_bits <= top_field:
        return top.value
    specials = 128 - first_special(format_)  # which as signed bytes become the lowest
    with loop(registers.builder, 64 * shape.operand_registers, WIDTH) as place:
        magnitudes = registers.vector(place) & every_byte(127)
        top.value = maximum_bytes(top.value, add_bytes(magnitudes, every_byte(specials)))
    highest = spread(largest_byte(top.value)) - specials
    return maximum((highest >> element.mantissa_bits) - top_field, 0)


def store_pairs(values: list[Value], place: Value, rows: int, base: Value, matrix: Matrix) -> None:
    """Four values, without 2^base, as integers of at most 15 bits."""
    factor = bits_f32((127 - base) << 23)
    integers = [truncate_i32(value * factor) for value in values]
    for t in range(2):
        matrix.pairs.store(place + t * rows, (integers[t] & 0xFFFF) | (integers[t + 2] << 16))


def store_lows(shape: Shape, format_: Format, base: Value, matrix: Matrix) -> None:
    """`Matrix.lows` from the exponents."""
    rows, element = shape.rows, ELEMENTS[format_]
    lowest = base + (1 - element.bias + BYTE_BIAS)  # of those that have a place among pairs
    with (
        loop(matrix.lows.builder, shape.depth // GROUP) as group,
        loop(matrix.lows.builder, rows, WIDTH) as row,
    ):
        quads = [matrix.exponents.vector((4 * group + number) * rows + row) for number in range(4)]
        least = minimum_bytes(minimum_bytes(quads[0], quads[1]), minimum_bytes(quads[2], quads[3]))
        least = minimum_bytes(least, least >> 16)
        least = minimum_bytes(least, least >> 8) & 255
        matrix.lows.store(group * rows + row, select(least < lowest, LOST, least - element.mantissa_bits))


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
    """Stores the special flags of the two or four elements in a word; gives them all together."""
    seen = magnitudes.constant(0)
    bits = 16 if format_ in HALVES else 8
    for t in range(32 // bits):
        flags = special_flags((magnitudes >> (bits * t)) & ((1 << bits) - 1), format_)
        matrix.specials.store(place + t * rows, flags)
        seen = seen | flags
    return seen


def decode_quads(registers: Words, shape: Shape, format_: Format, matrix: Matrix, units: Units) -> None:
    """An operand of a format up to 8 bits that starts at `registers`; with special flags of each element where it is
    chosen from."""
    builder, bits, rows = registers.builder, FIELD_BITS[format_], shape.rows
    items = {8: 4, 6: 16, 4: 8}[bits]  # quads that fill whole words
    word_count, paired = items * bits // 32, not (shape.sparse or shape.chosen)
    base = base_of(registers, shape, format_) if paired else vector_of(builder, 0)
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
                values = [whole_value(codes, t, format_) for t in range(4)]
                for t, value in enumerate(values):
                    matrix.values.store((k + t) * rows + row, value)
                if paired:
                    store_pairs(values, k // 2 * rows + row, rows, base, matrix)
                magnitudes = codes & every_byte(magnitude_mask(format_))
                top.value = maximum_bytes(top.value, magnitudes)
                matrix.exponents.store(k // 4 * rows + row, exponent_bytes(magnitudes, format_))
                if shape.chosen:
                    seen.value = seen.value | store_specials(magnitudes, k * rows + row, rows, format_, matrix)
        highest = maximum_bytes(top.value, top.value >> 16)
        highest = maximum_bytes(highest, highest >> 8) & 255
        # A NaN outranks an Inf, as it does in the result; but what is not chosen hides nothing.
        matrix.flags.store(row, seen.value if shape.chosen else special_flags(highest, format_))
    if paired:
        store_lows(shape, format_, base, matrix)
        units.base.value = units.base.value + base


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


def decode_significands(pair: Value, place: Value, stride: int, matrix: Matrix) -> None:
    """Two bf16 of a word."""
    for t in range(2):
        significand, exponent, _ = half_parts(pair >> (16 * t), Format.bf16)
        matrix.values.store(place + t * stride, significand)
        matrix.exponents.store(place + t * stride, exponent)


def real_f16(word: Value) -> Value:
    """The f16 in the low half of each word as f32; Inf and NaN become finite, at the exponent 16."""
    code, sign = word & 0x7FFF, (word << 16) & 0x80000000
    subnormal = bits_i32(to_f32(code) * 2.0**-24)
    return bits_f32(select(code < 0x400, subnormal, (code << 13) + (112 << 23)) | sign)


def exponents_of_two(words: Value, format_: Format, bias: Value) -> Value:
    """Exponents, with a bias, of the two f16 or bf16 in each word."""
    element = ELEMENTS[format_]
    fields = (words >> element.mantissa_bits) & both_halves((1 << element.exponent_bits) - 1)
    if format_ is Format.f16:
        fields = maximum_halves(fields, both_halves(1))
    exponents = add_halves(add_halves(fields, bias), both_halves(-element.bias))
    return select_zero_halves(words & both_halves(0x7FFF), both_halves(ZERO_HALF), exponents)


def decode_reals(
    words: Value, k: Value, row: Value, shape: Shape, format_: Format, placing: Placing, matrix: Matrix
) -> None:
    """Two f16 or bf16 of a word, at k and k + 1."""
    if format_ is Format.f16:
        parts = real_f16(words), real_f16(words >> 16)
    else:
        parts = bits_f32(words << 16) * placing.factor, bits_f32(words & 0xFFFF0000) * placing.factor
    stride = row_stride(shape)
    for t in range(2):
        matrix.values.store((k + t) * stride + row, parts[t])
    exponents = exponents_of_two(words, format_, placing.bias)
    if Way.reals.exponents_in_word(shape) == 2:
        matrix.exponents.store(k // 2 * stride + row, exponents)
    else:
        matrix.exponents.store(k * stride + row, (exponents << 16) >> 16)
        matrix.exponents.store((k + 1) * stride + row, exponents >> 16)


def decode_halves(registers: Words, shape: Shape, format_: Format, matrix: Matrix, way: Way, placing: Placing) -> None:
    """An f16 or bf16 operand that starts at `registers`; with special flags of each element where it is chosen
    from."""
    builder, stride = registers.builder, row_stride(shape)
    with loop(builder, columns_of(shape), WIDTH) as row:
        top, seen = (Variable(vector_of(builder, 0)) for _ in range(2))
        with (
            loop(builder, shape.depth // shape.lane_items) as lane_group,
            loop(builder, shape.lane_items // 2) as register,
        ):
            words = registers.vector(64 * register + shape.rows * lane_group + row)
            k = k_of_item(shape, 16, lane_group, 2 * register)
            if way is Way.reals:
                decode_reals(words, k, row, shape, format_, placing, matrix)
            else:
                decode_significands(words, k * stride + row, stride, matrix)
            magnitudes = words & both_halves(0x7FFF)
            top.value = maximum_halves(top.value, magnitudes)
            if shape.chosen:
                seen.value = seen.value | store_specials(magnitudes, k * stride + row, stride, format_, matrix)
        highest = maximum(top.value & 0xFFFF, top.value >> 16)
        # A NaN outranks an Inf, as it does in the result; but what is not chosen hides nothing.
        matrix.flags.store(row, seen.value if shape.chosen else special_flags(highest, format_))


def halves_range(words: Words, count: int) -> tuple[Value, Value]:
    """The exponent fields of the smallest and the largest bf16 but zero."""
    least, most = (Variable(vector_of(words.builder, number)) for number in (-1, 0))
    with loop(words.builder, count, WIDTH) as place:
        magnitudes = words.vector(place) & both_halves(0x7FFF)
        # Zero is no smallest number: less 1 it is the largest.
        least.value = minimum_halves(least.value, add_halves(magnitudes, both_halves(-1)))
        most.value = maximum_halves(most.value, magnitudes)
    return (smallest_half(least.value) + 1) >> 7, largest_half(most.value) >> 7


def real_products(inputs: Words, parameters: Value, shape: Shape) -> tuple[Value, Value]:
    """Whether f32 holds every product of f16 or bf16, and those of bf16 far from its lower end: 2^-100 or more; and the
    power of two by which A is multiplied for that."""
    is_f16, zero = equal(parameters & 7, int(Format.f16)), low_i32(parameters.constant(0))
    found = branch(is_f16, lambda: (equal(zero, 0), zero), lambda: real_bf16(inputs, shape))
    return found[0], found[1]


def real_bf16(inputs: Words, shape: Shape) -> Values:
    """`real_products` of bf16."""
    least, most = halves_range(inputs, 64 * shape.operand_registers)
    b_words = inputs.at(64 * shape.operand_registers)
    b_least, b_most = halves_range(b_words, 64 * shape.b_shape.operand_registers)
    enough = least + b_least > 2 * 127 - 100
    liftable = (least + b_least > 2 * 127 - 100 - LIFT) & (most < 255 - LIFT) & (most + b_most < 2 * 127 + 126 - LIFT)
    real = (least > 0) & (b_least > 0) & (enough | liftable)
    return real, select(enough, least.constant(0), LIFT)


def decode_scales(register: Words, shape: Shape, byte: Value, scaled: Value, bias: int, matrix: Matrix) -> None:
    """Scale exponents with a bias; a NaN scale flags its row."""
    for index in range(0, shape.rows * shape.blocks, WIDTH):
        scale = select(spread(scaled), (register.vector(index) >> spread(8 * byte)) & 255, 127)
        matrix.scales.store(index, select(equal(scale, 255), scale.constant(0), scale + (bias - 127)))
        row = index % shape.rows
        matrix.flags.store(row, matrix.flags.vector(row) | select(equal(scale, 255), scale.constant(HAS_NAN), 0))


def spread_quads(matrix: Matrix, shape: Shape, way: Way) -> None:
    """A of a shape of 4 rows: from the lanes that hold it to [k][row][64], each row beside the columns of its block."""
    with loop(matrix.values.builder, 64, WIDTH) as lane:
        counts = shape.depth, shape.depth // way.exponents_in_word(shape), 1
        for words, count in zip((matrix.values, matrix.exponents, matrix.flags), counts, strict=True):
            for k in range(count):
                held = words.vector(256 * k + lane)
                for row in range(4):
                    words.store(256 * k + 64 * row + lane, quad_lanes(held, row))


def formats_of(shape: Shape, way: Way) -> tuple[Format, ...]:
    """The legal formats; an undefined code is read as the first."""
    if way is Way.quads:
        return tuple(Format)[: 5 if shape.blocks else 2]
    return HALVES if way is Way.reals else (Format.bf16,)


def decode_operand(
    registers: Words, code: Value, placing: Placing, shape: Shape, way: Way, matrix: Matrix, units: Units
) -> None:
    """One operand whose format the code names. Specials of elements are stored for a sparse shape's B."""

    def case(format_: Format) -> None:
        element = ELEMENTS[format_]
        units.smallest.value = units.smallest.value + (BYTE_BIAS + 1 - element.bias - element.mantissa_bits)
        units.lift.value = vector_of(registers.builder, lift_of(format_, way))
        if way.half:
            decode_halves(registers, shape, format_, matrix, way, placing)
        else:
            decode_quads(registers, shape, format_, matrix, units)

    formats = formats_of(shape, way)
    switch(code, {int(f): partial(case, f) for f in formats}, default=int(formats[0]))


def lift_of(format_: Format, way: Way) -> int:
    """By how many powers of two a decoded Inf lies below f32's; bf8's is 2^32."""
    if way is Way.quads:
        return 96
    return 127 - ELEMENTS[format_].bias


def decode_pair(inputs: Words, parameters: Value, shape: Shape, way: Way, matrices: Matrix, raised: Value) -> Units:
    """A and B of one product, whose first lanes are at `inputs`. Exponents of A, where they are of reals, have f32's
    bias; its bf16 values are `raised` by that power of two."""
    units, a_words = Units.nothing_read(inputs.builder), 64 * shape.operand_registers

    def decode(number: Index, words: Index, operand_shape: Shape, placing: Placing) -> None:
        shift = number if isinstance(number, Value) else parameters.constant(number)
        code = (parameters if way.half else parameters >> (3 * shift)) & 7  # halves have one format
        decode_operand(inputs.at(words), code, placing, operand_shape, way, matrices.operand(number), units)

    none = vector_of(inputs.builder, 0)
    units.raised.value = raised
    placings = [
        Placing(bias, bits_f32((power + 127) << 23))
        for bias, power in ((none + both_halves(127), raised), (none, none))
    ]
    if shape.sparse:
        decode(0, 0, shape, placings[0])
        decode(1, a_words, shape.b_shape, placings[1])
        return units
    with loop(inputs.builder, 2) as number:
        decode(
            number,
            a_words * number,
            shape,
            Placing(*(select(spread(equal(number, 0)), *both) for both in zip(*placings, strict=True))),
        )
    if shape.rows == 4:
        spread_quads(matrices.operand(0), shape, way)
    return units


def any_infinity(matrices: Matrix, shape: Shape) -> Value:
    flags = vector_of(matrices.flags.builder, 0)
    for operand, count in enumerate((row_stride(shape), columns_of(shape))):  # of four rows, A is there for each
        for row in range(0, count, WIDTH):
            flags = flags | matrices.operand(operand).flags.vector(row)
    return any_lane((flags & HAS_INFINITY) > 0)


# ---- Sparse ----


def decode_index(register: Words, shape: Shape, shift: Value, table: Words, places: bool = False) -> None:
    """Which of its four k each element of a sparse A stands at: two bits an element from bit `shift` on, as
    [element][row]. places: as the word where that k of B begins."""
    builder = register.builder
    with (
        loop(builder, shape.rows, WIDTH) as row,
        loop(builder, shape.depth // shape.lane_items) as lane_group,
        loop(builder, shape.lane_items) as item,
    ):
        word = register.vector(shape.rows * lane_group + row)
        element = shape.lane_items * lane_group + item
        code = (word >> spread(shift + low_i32(2 * item))) & 3
        if places:
            code = (code + spread(low_i32(4 * (element // 2)))) * shape.rows
        table.store(element * shape.rows + row, code)


def choose_columns(table: Words, b: Matrix, shape: Shape, row: Value, column: Value, to: Matrix) -> None:
    """Sixteen columns of B, of a format up to 8 bits, as one row of a sparse A meets them."""
    rows = shape.rows
    with loop(table.builder, shape.depth // 4) as quad:
        exponents = vector_of(table.builder, 0)
        for t in range(4):
            element = 4 * quad + t
            place = table.scalar(element * rows + row)
            to.values.store(element * rows, b.values.vector(widen_i64(place) + column))
            k = place // rows
            exponent = b.exponents.vector(widen_i64(k // 4) * rows + column) >> spread(8 * (k % 4))
            exponents = exponents | ((exponent & 255) << (8 * t))
        to.exponents.store(quad * rows, exponents)


def flags_met(table: Words, b: Matrix, shape: Shape, row: Value, column: Value) -> Value:
    """The special flags of sixteen columns of B as one row of a sparse A meets them."""
    none = vector_of(table.builder, 0)
    found = branch(
        any_lane(b.flags.vector(column) > 0),
        lambda: (chosen_flags(table, b, shape, row, column),),
        lambda: (none,),
        likely=False,
    )
    return found[0]


def chosen_flags(table: Words, b: Matrix, shape: Shape, row: Value, column: Value) -> Value:
    rows, seen = shape.rows, Variable(vector_of(table.builder, 0))
    with loop(table.builder, shape.depth) as element:
        place = widen_i64(table.scalar(element * rows + row))
        seen.value = seen.value | b.specials.vector(place + column)
    return seen.value
