"""The MFMA natives: the default rule of `gfx950.arithmetic.mfma`, sixteen columns at a time.

Why this is exact. A product of two 8-bit (or smaller) elements, or of two significands of f16 or bf16, fits f32;
multiplied by the power of two that puts the cut at the units place it still does, and the conversion to i32 is then
the rule's cut toward zero. A group's sum fits i32. From there on every number is an integer below 2^40 in f64, and
floors are floors. Groups with Inf products are summed once more in f32 with real Inf, which tells Inf from NaN.

Each native is written once as LLVM with `mfma_lanes`, inside a numba function for numba's disk cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

from numba.core import types as numba_types
from numba.extending import intrinsic

from gfx950.arithmetic.mfma import DEFAULT, ELEMENTS, FIELD_BITS, SHAPES, Format, Shape
from gfx950.arithmetic.mfma_lanes import (
    F32,
    WIDTH,
    Index,
    Value,
    Values,
    Variable,
    Words,
    add_bytes,
    any_lane,
    bits_f32,
    bits_f64,
    bits_i32,
    bits_i64,
    branch,
    equal,
    floor,
    fused,
    loop,
    low_i32,
    magnitude,
    maximum,
    maximum_bytes,
    minimum,
    narrow,
    select,
    select_zero_bytes,
    spread,
    stack_words,
    switch,
    to_f32,
    to_f64,
    truncate_i32,
    vector_of,
    widen_f64,
    widen_i64,
)
from gfx950.formats import NanKind

types: Any = numba_types  # numba leaves these partly untyped
NOTHING = -10_000  # the exponent of a zero: no sum of two of them and of scales comes near a real one
# The same as a signed byte: 8-bit exponents lie in -15..15, so their sums are above ZERO_BYTE + 24 and sums with it
# below.
ZERO_BYTE = -64
HAS_NAN, HAS_INFINITY = 1, 2
INFINITY, MAGNITUDE = 0x7F800000, 0x7FFFFFFF
SCALE_BLOCK = 32
OPERAND_WORDS = 2048  # elements of the largest operand
HALF, BYTE = DEFAULT.half, DEFAULT.byte
HALVES = (Format.f16, Format.bf16)


@dataclass(frozen=True)
class Matrix:
    """Decoded operands: values [k][row], exponents [k][row] (formats up to 8 bits: as bytes [k / 4][row]), scale
    exponents [block][row], special flags [row]."""

    values: Words
    exponents: Words
    scales: Words
    flags: Words

    def at(self, values: Index, exponents: Index) -> Matrix:
        return Matrix(self.values.at(values), self.exponents.at(exponents), self.scales, self.flags)

    def operand(self, number: Index) -> Matrix:
        """The operand A (0) or B (1) of a pair."""
        return Matrix(
            *(words.at(OPERAND_WORDS * number) for words in (self.values, self.exponents, self.scales, self.flags))
        )


def power_f32(exponent: Value) -> Value:
    """2^exponent; below the normal range the smallest normal number, 2^128 is Inf."""
    return bits_f32(maximum(exponent + 127, 1) << 23)


def power_f64(exponent: Value) -> Value:
    return bits_f64((widen_i64(exponent) + 1023) << 52)


# ---- Decoding ----


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
    if shape.blocks and field_bits == 8:
        return shape.depth // 2 * (item // 16) + 16 * lane_group + item % 16
    return shape.lane_items * lane_group + item


def decode_quads(registers: Words, shape: Shape, format_: Format, matrix: Matrix) -> None:
    """An operand of a format up to 8 bits that starts at `registers`."""
    builder, bits, rows = registers.builder, FIELD_BITS[format_], shape.rows
    items = {8: 4, 6: 16, 4: 8}[bits]  # quads that fill whole words
    word_count = items * bits // 32
    with loop(builder, rows, WIDTH) as row:
        top = Variable(vector_of(builder, 0))
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
        highest = maximum_bytes(top.value, top.value >> 16)
        highest = maximum_bytes(highest, highest >> 8) & 255
        matrix.flags.store(row, special_flags(highest, format_))  # a NaN outranks an Inf, as it does in the result


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


def decode_halves(registers: Words, shape: Shape, format_: Format, matrix: Matrix) -> None:
    """An f16 or bf16 operand that starts at `registers`."""
    builder, rows = registers.builder, shape.rows
    with loop(builder, rows, WIDTH) as row:
        seen = Variable(vector_of(builder, 0))
        with (
            loop(builder, shape.depth // shape.lane_items) as lane_group,
            loop(builder, shape.lane_items // 2) as register,
        ):
            words = registers.vector(64 * register + rows * lane_group + row)
            for t in range(2):
                place = (shape.lane_items * lane_group + 2 * register + t) * rows + row
                significand, exponent, special = half_parts(words >> (16 * t), format_)
                matrix.values.store(place, significand)
                matrix.exponents.store(place, exponent)
                seen.value = seen.value | special
        matrix.flags.store(row, seen.value)


def decode_scales(register: Words, shape: Shape, byte: Value, scaled: Value, matrix: Matrix) -> None:
    """Scale exponents; a NaN scale flags its row."""
    for index in range(0, shape.rows * shape.blocks, WIDTH):
        scale = select(spread(scaled), (register.vector(index) >> spread(8 * byte)) & 255, 127)
        matrix.scales.store(index, scale - 127)
        row = index % shape.rows
        matrix.flags.store(row, matrix.flags.vector(row) | select(equal(scale, 255), scale.constant(HAS_NAN), 0))


# ---- One group of products ----


class Sums(NamedTuple):
    """A row's sums of one group, total * 2^unit, and the largest exponents of products."""

    total: Value
    unit: Value
    exponent: Value


def sum_halves(a: Matrix, b: Matrix, rows: int) -> Sums:
    """Steps a and b for f16 or bf16 products of a row of A with sixteen columns of B."""
    places = [k * rows for k in range(HALF.length)]
    exponents = [a.exponents.spread(place) + b.exponents.vector(place) for place in places]
    largest = vector_of(a.values.builder, 2 * NOTHING)
    for exponent in exponents:
        largest = maximum(largest, exponent)
    total = vector_of(a.values.builder, 0)
    for place, exponent in zip(places, exponents, strict=True):
        product = a.values.spread(place, F32) * b.values.vector(place, F32)
        total = total + truncate_i32(product * power_f32(exponent + (24 - largest)))
    return Sums(total, largest - 24, largest)


def sum_every_second(a: Matrix, b: Matrix, rows: int, first: int, lift: Value) -> Value:
    """Step b for k = first, first + 2 ...: products of multiples of the smallest, times 2^lift, cut to integers."""
    total, scale = lift.constant(0), power_f32(minimum(lift, 127))
    for k in range(first, BYTE.length, 2):
        product = a.values.spread(k * rows, F32) * b.values.vector(k * rows, F32)
        total = total + truncate_i32(product * scale)
    return total


def sum_split(a: Matrix, b: Matrix, rows: int, pair: Value, smallest: Value) -> Value:
    """Steps b and c: even and odd k apart, their largest exponents being the low bytes of `pair`."""
    even_exponent, odd_exponent = (pair << 24) >> 24, (pair << 16) >> 24
    even = sum_every_second(a, b, rows, 0, smallest + 24 - even_exponent)
    odd = sum_every_second(a, b, rows, 1, smallest + 24 - odd_exponent)
    largest = maximum(even_exponent, odd_exponent)
    return (even >> minimum(largest - even_exponent, 31)) + (odd >> minimum(largest - odd_exponent, 31))


def sum_exactly(a: Matrix, b: Matrix, rows: int) -> Values:
    """The sums of two rows where nothing is cut, in units of the smallest product."""
    total = next_total = vector_of(a.values.builder, 0)
    for place in range(0, BYTE.length * rows, rows):
        columns = b.values.vector(place, F32)
        total = total + truncate_i32(a.values.spread(place, F32) * columns)
        next_total = next_total + truncate_i32(a.values.spread(place + 1, F32) * columns)
    return total, next_total


def largest_exponents(a: Words, b: Words, rows: int) -> tuple[Value, Value]:
    """Step a for formats up to 8 bits: the largest exponents, of even and odd k (as the low bytes) and of all."""
    quads = add_bytes(a.spread(0), b.vector(0))
    for place in range(rows, BYTE.length // 4 * rows, rows):
        quads = maximum_bytes(quads, add_bytes(a.spread(place), b.vector(place)))
    pair = maximum_bytes(quads, quads >> 16)
    return pair, (maximum_bytes(pair, pair >> 8) << 24) >> 24


def sum_small(a: Matrix, b: Matrix, rows: int, smallest: Value) -> tuple[Sums, Sums]:
    """Steps a to c for formats up to 8 bits and two rows.

    Where even the smallest product there can be (2^smallest) lies above the cut of all 32 elements, nothing is cut or
    floored.
    """
    following = a.at(1, 1)
    pair, largest = largest_exponents(a.exponents, b.exponents, rows)
    next_pair, next_largest = largest_exponents(following.exponents, b.exponents, rows)

    def split() -> Values:
        total, next_total = (
            sum_split(a, b, rows, pair, smallest),
            sum_split(following, b, rows, next_pair, smallest),
        )
        return total, next_total, largest - 24, next_largest - 24

    def exact() -> Values:
        return *sum_exactly(a, b, rows), smallest, smallest

    cut = any_lane(maximum(largest, next_largest) > smallest + 24)
    total, next_total, unit, next_unit = branch(cut, split, exact)
    none = ZERO_BYTE + 24
    exponent, next_exponent = (select(e < none, NOTHING, e) for e in (largest, next_largest))
    return Sums(total, unit, exponent), Sums(next_total, next_unit, next_exponent)


# ---- With C ----


def round_lanes(value: Value, overflow_bits: Value) -> Value:
    """Bits of the nearest f32 of normal f64 values, without trusting the host to keep subnormal f32."""
    size = magnitude(value)
    # The units place of 2^-97 + x is the smallest subnormal's.
    subnormal = low_i32(bits_i64(size + 2.0**-97)) & 0xFFFFFF
    result = select(size < 2.0**-126, subnormal, bits_i32(narrow(size)))
    return minimum(result, overflow_bits) | low_i32(bits_i64(value) >> 32) & 0x80000000


def floor_total(total: Value) -> Value:
    """Step e without its lower bound: integers in f64, floored 31 bits below their own exponent. A negative one grows
    in magnitude."""
    bits, below = bits_i64(total), (1 << 21) - 1
    return bits_f64(select(bits < 0, bits + below, bits) & ~below)


def finish_anywhere(dot: Value, largest: Value, overflow_bits: Value) -> Value:
    """Steps e and f at any exponent; where that is -126 the floor is at the second place at the least."""
    even = floor(dot * 0.5) * 2.0
    # 2^e for e below f64's own lowest is not met: the lowest e here is -158.
    at_bottom = to_f64(select(equal(largest, -126), largest.constant(1), 0))
    dot = floor_total(fused(at_bottom, even - dot, dot))
    return round_lanes(dot * power_f64(largest - 32), overflow_bits)


def finish_normal(dot: Value, largest: Value) -> Value:
    """Steps e and f where the result can neither be subnormal nor overflow."""
    result = bits_i32(narrow(floor_total(dot)))
    return select(equal(result, 0), 0, result + ((largest - 32) << 23))


def align_with_c(sums: Sums, c: Value, half: bool) -> tuple[Value, Value]:
    """Step d: integers in f64 and e_max, whose place is the 32nd."""
    field, mantissa = (c >> 23) & 255, c & 0x7FFFFF
    significand = select(equal(field, 0), mantissa, mantissa | 0x800000)
    significand = select(c < 0, 0 - significand, significand)
    c_exponent = maximum(field, 1) - 127
    largest = maximum(sums.exponent, c_exponent)
    drop = largest - c_exponent
    addend = (significand << 1) >> minimum(drop, 31)
    if not half:
        addend = select(drop > BYTE.c_window, 0, addend)
    # Below -100 only the sign of a sum is left of it, above 100 there is only the zero sum of no products.
    lift = minimum(maximum(sums.unit - largest + 32, -100), 100)
    dot = floor(to_f64(sums.total) * widen_f64(power_f32(lift)))
    return fused(to_f64(addend), dot.constant(256.0), dot), largest


def is_special(bits: Value) -> Value:
    return equal(bits & INFINITY, INFINITY)


def add_to_c(sums: tuple[Sums, Sums], c: Value, c_next: Value, half: bool, overflow_bits: Value) -> Values:
    """Steps d to f for two rows; C stays where it is Inf or NaN."""
    dot, largest = align_with_c(sums[0], c, half)
    next_dot, next_largest = align_with_c(sums[1], c_next, half)

    def anywhere() -> Values:
        return finish_anywhere(dot, largest, overflow_bits), finish_anywhere(next_dot, next_largest, overflow_bits)

    def normal() -> Values:
        return finish_normal(dot, largest), finish_normal(next_dot, next_largest)

    outside = (largest < -64) | (largest > 100) | (next_largest < -64) | (next_largest > 100)
    d, d_next = branch(any_lane(outside), anywhere, normal)
    return select(is_special(c), c, d), select(is_special(c_next), c_next, d_next)


# ---- Inf ----


def real_value(values: Value, exponents: Value | None, lift: Value) -> Value:
    """Decoded values as f32 in which Inf is Inf; formats up to 8 bits in their own units. f16 reaches f32's Inf
    2^lift too high."""
    if exponents is None:
        return values * 2.0**96 * 2.0**-96
    return values * power_f32(exponents + lift) * power_f32(0 - lift)


def special_sum(a: Matrix, b: Matrix, rows: int, half: bool, lift: Value) -> Value:
    """f32 sums of a group that are Inf or NaN as its products make them, and finite without any other meaning where
    those are finite."""
    builder = a.values.builder
    total = Variable(bits_f32(vector_of(builder, 0)))
    with loop(builder, (HALF if half else BYTE).length) as k:
        place = k * rows
        row = real_value(a.values.spread(place, F32), a.exponents.spread(place) if half else None, lift)
        columns = real_value(b.values.vector(place, F32), b.exponents.vector(place) if half else None, lift)
        total.value = total.value + row * columns * 2.0**-10  # so that only an Inf product makes it Inf
    return total.value


def meet_specials(special: Value, c: Value, d: Value) -> Value:
    """D of a group: where its sum or C is special, what IEEE's addition makes of them."""
    kept = bits_f32(select(is_special(c), c, 0))
    met = bits_i32(special + kept)
    met = select((met & MAGNITUDE) > INFINITY, DEFAULT.nan_bits, met)
    return select(is_special(bits_i32(special)), met, d)


# ---- The instruction ----


@dataclass(frozen=True)
class Instruction:
    """What all rows share. smallest: exponents of the smallest product. lift: as in `real_value`. careful: there is
    an Inf among A and B."""

    shape: Shape
    half: bool
    inputs: Words
    outputs: Words
    a: Matrix
    b: Matrix
    overflow_bits: Value
    smallest: Value
    lift: Value
    careful: Value


def scaled_sums(sums: Sums, scale: Value) -> Sums:
    return Sums(sums.total, sums.unit + scale, sums.exponent + scale)


def group_step(run: Instruction, start: Value, i: Value, j: Value, c: Value, c_next: Value) -> Values:
    """One group of rows i and i + 1, side by side to hide how long a step takes."""
    rows, row_group = run.shape.rows, start if run.half else start // 4
    a = run.a.at(start * rows + i, row_group * rows + i)
    b = run.b.at(start * rows + j, row_group * rows + j)
    following, careful = a.at(1, 1), run.careful
    if run.half:
        sums = sum_halves(a, b, rows), sum_halves(following, b, rows)
        # A product of 2^128 is Inf too.
        careful = careful | any_lane(maximum(sums[0].exponent, sums[1].exponent) > 126)
    else:
        sums = sum_small(a, b, rows, run.smallest)
    if run.shape.blocks:
        block = start // SCALE_BLOCK * rows
        columns = run.b.scales.vector(block + j)
        scales = (run.a.scales.spread(block + i) + columns, run.a.scales.spread(block + i + 1) + columns)
        sums = scaled_sums(sums[0], scales[0]), scaled_sums(sums[1], scales[1])
    d, d_next = add_to_c(sums, c, c_next, run.half, run.overflow_bits)

    def with_infinities() -> Values:
        special, next_special = (special_sum(row, b, rows, run.half, run.lift) for row in (a, following))
        return meet_specials(special, c, d), meet_specials(next_special, c_next, d_next)

    return branch(careful, with_infinities, lambda: (d, d_next))


def c_word(shape: Shape, row: Value, column: Value) -> Value:
    """Index, within the words of C or D, of sixteen columns of a row."""
    if shape.rows == 16:
        return 64 * (row % 4) + 16 * (row // 4) + column
    return 64 * (row % 4 + 4 * (row // 8)) + 32 * (row // 4 % 2) + column


def run_rows(run: Instruction) -> None:
    """D from decoded operands, two rows by sixteen columns at a time; NaN where a NaN went in."""
    builder, shape = run.inputs.builder, run.shape
    c_words = run.inputs.at(128 * shape.operand_registers)
    with loop(builder, shape.rows, 2) as i, loop(builder, shape.rows, WIDTH) as j:
        places = c_word(shape, i, j), c_word(shape, i + 1, j)
        addends = [c_words.vector(place) for place in places]
        d = [Variable(c) for c in addends]
        with loop(builder, shape.depth, (HALF if run.half else BYTE).length) as start:
            results = group_step(run, start, i, j, d[0].value, d[1].value)
            for row in range(2):
                d[row].value = results[row]
        columns = run.b.flags.vector(j)
        for row in range(2):
            flags = (run.a.flags.spread(i + row) | columns) & HAS_NAN
            nan = ((addends[row] & MAGNITUDE) > INFINITY) | (flags > 0)
            run.outputs.store(places[row], select(nan, DEFAULT.nan_bits, d[row].value))


def formats_of(shape: Shape, half: bool) -> tuple[Format, ...]:
    """The legal formats; an undefined code is read as the first."""
    return HALVES if half else tuple(Format)[: 5 if shape.blocks else 2]


def decode_operands(
    inputs: Words, parameters: Value, shape: Shape, half: bool, matrices: Matrix
) -> tuple[Value, Value]:
    """Decodes A and B. Returns `smallest` and `lift` of `Instruction`."""
    builder, formats = inputs.builder, formats_of(shape, half)
    smallest, lift = Variable(vector_of(builder, 0)), Variable(vector_of(builder, 0))

    def case(registers: Words, matrix: Matrix, format_: Format) -> None:
        element = ELEMENTS[format_]
        smallest.value = smallest.value + (1 - element.bias - element.mantissa_bits)
        lift.value = vector_of(builder, 127 - element.bias)
        (decode_halves if half else decode_quads)(registers, shape, format_, matrix)

    with loop(builder, 2) as operand:
        registers, matrix = inputs.at(64 * shape.operand_registers * operand), matrices.operand(operand)
        code = (parameters if half else parameters >> (3 * operand)) & 7  # halves have one format
        switch(code, {int(f): partial(case, registers, matrix, f) for f in formats}, default=int(formats[0]))
    return smallest.value, lift.value


def any_infinity(matrices: Matrix, rows: int) -> Value:
    flags = vector_of(matrices.flags.builder, 0)
    for operand in range(2):
        for row in range(0, rows, WIDTH):
            flags = flags | matrices.operand(operand).flags.vector(row)
    return any_lane((flags & HAS_INFINITY) > 0)


def write_native(inputs: Words, outputs: Words, parameters: Value, shape: Shape, half: bool) -> None:
    """The instruction on registers A, B, C, scale A, scale B."""
    builder, n = inputs.builder, shape.operand_registers
    matrices = Matrix(*(stack_words(builder, 2 * OPERAND_WORDS) for _ in range(4)))
    smallest, lift = decode_operands(inputs, parameters, shape, half, matrices)
    if shape.blocks:
        scaled = equal((parameters >> 6) & 1, 1)
        for operand in range(2):
            register = inputs.at(64 * (2 * n + shape.c_registers + operand))
            byte = low_i32((parameters >> (7 + 2 * operand)) & 3)
            decode_scales(register, shape, byte, scaled, matrices.operand(operand))
    clamp = equal((parameters >> 11) & 1, 1)
    overflow_bits = select(spread(clamp), vector_of(builder, INFINITY - 1), INFINITY)
    careful = any_infinity(matrices, shape.rows)
    a, b = matrices.operand(0), matrices.operand(1)
    run_rows(Instruction(shape, half, inputs, outputs, a, b, overflow_bits, smallest, lift, careful))


def written(name: str) -> Callable[[Any, Any, Any], None]:
    """The function of a native as numba calls it."""
    shape, half = SHAPES[name], name.endswith("_f16")

    def typed(typing_context: Any, inputs: Any, outputs: Any, parameters: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            read, written_to = Words(builder, arguments[0]), Words(builder, arguments[1])
            write_native(read, written_to, Value(builder, arguments[2]), shape, half)
            return context.get_dummy_value()

        return types.void(inputs, outputs, parameters), emit

    result: Any = intrinsic(typed)
    return cast(Callable[[Any, Any, Any], None], result)


# numba's cache knows a function by its name, so there is one for each native.
_f8f6f4_16x16x128 = written("mfma_f8f6f4_16x16x128")
_f8f6f4_32x32x64 = written("mfma_f8f6f4_32x32x64")
_16x16x32_f8 = written("mfma_16x16x32_f8")
_32x32x16_f8 = written("mfma_32x32x16_f8")
_16x16x32_f16 = written("mfma_16x16x32_f16")
_32x32x16_f16 = written("mfma_32x32x16_f16")
_16x16x16_f16 = written("mfma_16x16x16_f16")
_32x32x8_f16 = written("mfma_32x32x8_f16")


def mfma_f8f6f4_16x16x128(inputs: Any, outputs: Any, parameters: int) -> None:
    _f8f6f4_16x16x128(inputs, outputs, parameters)


def mfma_f8f6f4_32x32x64(inputs: Any, outputs: Any, parameters: int) -> None:
    _f8f6f4_32x32x64(inputs, outputs, parameters)


def mfma_16x16x32_f8(inputs: Any, outputs: Any, parameters: int) -> None:
    _16x16x32_f8(inputs, outputs, parameters)


def mfma_32x32x16_f8(inputs: Any, outputs: Any, parameters: int) -> None:
    _32x32x16_f8(inputs, outputs, parameters)


def mfma_16x16x32_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    _16x16x32_f16(inputs, outputs, parameters)


def mfma_32x32x16_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    _32x32x16_f16(inputs, outputs, parameters)


def mfma_16x16x16_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    _16x16x16_f16(inputs, outputs, parameters)


def mfma_32x32x8_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    _32x32x8_f16(inputs, outputs, parameters)
