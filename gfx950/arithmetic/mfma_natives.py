"""The MFMA natives: the default rule of `gfx950.arithmetic.mfma`, sixteen columns at a time.

Why this is exact. A product of two 8-bit (or smaller) elements, or of two significands of f16 or bf16, fits f32;
multiplied by the power of two that puts the cut at the units place it still does, and the conversion to i32 is then
the rule's cut toward zero. A group's sum fits i32. From there on every number is an integer below 2^40 in f64, and
floors are floors. Groups with Inf products are summed once more in f32 with real Inf, which tells Inf from NaN.

Each native is written once as LLVM with `mfma_lanes`, inside a numba function for numba's disk cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gfx950.arithmetic.mfma import DEFAULT
from gfx950.arithmetic.mfma_lanes import (
    F32,
    WIDTH,
    Value,
    Values,
    Variable,
    Words,
    Writer,
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
    host_bodies,
    loop,
    low_i32,
    magnitude,
    maximum,
    maximum_bytes,
    minimum,
    narrow,
    select,
    spread,
    stack_words,
    to_f64,
    truncate_i32,
    vector_of,
    widen_f64,
    widen_i64,
)
from gfx950.arithmetic.mfma_operands import (
    HAS_NAN,
    NOTHING,
    OPERAND_WORDS,
    ZERO_BYTE,
    Matrix,
    Units,
    any_infinity,
    c_word,
    choose_columns,
    columns_of,
    decode_index,
    decode_pair,
    decode_scales,
    empty_matrices,
    row_stride,
)
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of

INFINITY, MAGNITUDE = 0x7F800000, 0x7FFFFFFF
SCALE_BLOCK = 32
HALF, BYTE = DEFAULT.half, DEFAULT.byte


def power_f32(exponent: Value) -> Value:
    """2^exponent; below the normal range the smallest normal number, 2^128 is Inf."""
    return bits_f32(maximum(exponent + 127, 1) << 23)


def power_f64(exponent: Value) -> Value:
    return bits_f64((widen_i64(exponent) + 1023) << 52)


# ---- One group of products ----


class Pair(NamedTuple):
    """A row of A and the columns it meets."""

    a: Matrix
    b: Matrix


class Sums(NamedTuple):
    """A row's sums of one group, total * 2^unit, and the largest exponents of products."""

    total: Value
    unit: Value
    exponent: Value


def sum_halves(pair: Pair, shape: Shape) -> Sums:
    """Steps a and b for f16 or bf16 products of a row of A with sixteen columns of B."""
    a, b = pair
    places = [k * row_stride(shape) for k in range(min(HALF.length, shape.depth))]
    exponents = [a.exponents.vector(place) + b.exponents.vector(place) for place in places]
    largest = vector_of(a.values.builder, 2 * NOTHING)
    for exponent in exponents:
        largest = maximum(largest, exponent)
    total = vector_of(a.values.builder, 0)
    for place, exponent in zip(places, exponents, strict=True):
        product = a.values.vector(place, F32) * b.values.vector(place, F32)
        total = total + truncate_i32(product * power_f32(exponent + (24 - largest)))
    return Sums(total, largest - 24, largest)


def sum_every_second(pair: Pair, rows: int, first: int, lift: Value) -> Value:
    """Step b for k = first, first + 2 ...: products of multiples of the smallest, times 2^lift, cut to integers."""
    total, scale = lift.constant(0), power_f32(minimum(lift, 127))
    for k in range(first, BYTE.length, 2):
        product = pair.a.values.vector(k * rows, F32) * pair.b.values.vector(k * rows, F32)
        total = total + truncate_i32(product * scale)
    return total


def sum_split(pair: Pair, rows: int, exponents: Value, smallest: Value) -> Value:
    """Steps b and c: even and odd k apart, their largest exponents being the low bytes of `exponents`."""
    even_exponent, odd_exponent = (exponents << 24) >> 24, (exponents << 16) >> 24
    even = sum_every_second(pair, rows, 0, smallest + 24 - even_exponent)
    odd = sum_every_second(pair, rows, 1, smallest + 24 - odd_exponent)
    largest = maximum(even_exponent, odd_exponent)
    return (even >> minimum(largest - even_exponent, 31)) + (odd >> minimum(largest - odd_exponent, 31))


def sum_exactly(pairs: tuple[Pair, Pair], rows: int) -> Values:
    """The sums of two rows where nothing is cut, in units of the smallest product."""
    totals = [vector_of(pairs[0].a.values.builder, 0) for _ in pairs]
    for place in range(0, BYTE.length * rows, rows):
        for row, (a, b) in enumerate(pairs):
            totals[row] = totals[row] + truncate_i32(a.values.vector(place, F32) * b.values.vector(place, F32))
    return tuple(totals)


def largest_exponents(a: Words, b: Words, rows: int) -> tuple[Value, Value]:
    """Step a for formats up to 8 bits: the largest exponents, of even and odd k (as the low bytes) and of all."""
    quads = add_bytes(a.vector(0), b.vector(0))
    for place in range(rows, BYTE.length // 4 * rows, rows):
        quads = maximum_bytes(quads, add_bytes(a.vector(place), b.vector(place)))
    pair = maximum_bytes(quads, quads >> 16)
    return pair, (maximum_bytes(pair, pair >> 8) << 24) >> 24


def sum_small(pairs: tuple[Pair, Pair], rows: int, smallest: Value) -> tuple[Sums, Sums]:
    """Steps a to c for formats up to 8 bits and two rows.

    Where even the smallest product there can be (2^smallest) lies above the cut of all 32 elements, nothing is cut or
    floored.
    """
    exponents, largest = largest_exponents(pairs[0].a.exponents, pairs[0].b.exponents, rows)
    next_exponents, next_largest = largest_exponents(pairs[1].a.exponents, pairs[1].b.exponents, rows)

    def split() -> Values:
        total = sum_split(pairs[0], rows, exponents, smallest)
        next_total = sum_split(pairs[1], rows, next_exponents, smallest)
        return total, next_total, largest - 24, next_largest - 24

    def exact() -> Values:
        return *sum_exactly(pairs, rows), smallest, smallest

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


def special_sum(pair: Pair, shape: Shape, half: bool, lift: Value) -> Value:
    """f32 sums of a group that are Inf or NaN as its products make them, and finite without any other meaning where
    those are finite."""
    a, b = pair
    builder = a.values.builder
    total = Variable(bits_f32(vector_of(builder, 0)))
    with loop(builder, min((HALF if half else BYTE).length, shape.depth)) as k:
        place = k * row_stride(shape)
        row = real_value(a.values.vector(place, F32), a.exponents.vector(place) if half else None, lift)
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
    """What all rows of one product share. c, d: the first words of C and D. careful: there is an Inf among A and B.

    index: where the elements of a sparse A stand; chosen: room for the columns that two of its rows meet.
    """

    shape: Shape
    half: bool
    c: Words
    d: Words
    a: Matrix
    b: Matrix
    overflow_bits: Value
    units: Units
    careful: Value
    index: Words
    chosen: Matrix


def scaled_sums(sums: Sums, scale: Value) -> Sums:
    return Sums(sums.total, sums.unit + scale, sums.exponent + scale)


def row_place(shape: Shape, row: Value, column: Value) -> Value:
    """Where a row of A begins among decoded words."""
    return 64 * row + column if shape.rows == 4 else row


def columns_met(run: Instruction, i: Value, j: Value) -> tuple[tuple[Matrix, Value], tuple[Matrix, Value]]:
    """The sixteen columns from j on as rows i and i + 1 meet them, and their special flags."""
    if not run.shape.sparse:
        columns = run.b.at(j, j), run.b.flags.vector(j)
        return columns, columns
    found = []
    for row in range(2):
        room = run.chosen.operand(row)
        found.append((room, choose_columns(run.index, run.b, run.shape, run.half, i + row, j, room)))
    return found[0], found[1]


def group_step(
    run: Instruction, start: Value, i: Value, j: Value, columns: tuple[Matrix, Matrix], c: Value, c_next: Value
) -> Values:
    """One group of rows i and i + 1, side by side to hide how long a step takes."""
    shape, stride, units = run.shape, row_stride(run.shape), run.units
    words, group_words = start * stride, (start if run.half else start // 4) * stride
    pairs = []
    for row, b in enumerate(columns):
        place = row_place(shape, i + row, j)
        pairs.append(Pair(run.a.at(words + place, group_words + place), b.at(words, group_words)))
    careful = run.careful
    if run.half:
        sums = sum_halves(pairs[0], shape), sum_halves(pairs[1], shape)
        # A product of 2^128 is Inf too.
        careful = careful | any_lane(maximum(sums[0].exponent, sums[1].exponent) > 126)
    else:
        sums = sum_small((pairs[0], pairs[1]), stride, units.smallest.value)
    if shape.blocks:
        sums = add_scales(run, start // SCALE_BLOCK * stride, i, j, sums)
    d, d_next = add_to_c(sums, c, c_next, run.half, run.overflow_bits)

    def with_infinities() -> Values:
        special, next_special = (special_sum(pair, shape, run.half, units.lift.value) for pair in pairs)
        return meet_specials(special, c, d), meet_specials(next_special, c_next, d_next)

    return branch(careful, with_infinities, lambda: (d, d_next))


def add_scales(run: Instruction, block: Value, i: Value, j: Value, sums: tuple[Sums, Sums]) -> tuple[Sums, Sums]:
    columns = run.b.scales.vector(block + j)
    scales = (run.a.scales.vector(block + i) + columns, run.a.scales.vector(block + i + 1) + columns)
    return scaled_sums(sums[0], scales[0]), scaled_sums(sums[1], scales[1])


def run_rows(run: Instruction) -> None:
    """D from decoded operands, two rows by sixteen columns at a time; NaN where a NaN went in."""
    builder, shape = run.c.builder, run.shape
    with loop(builder, shape.rows, 2) as i, loop(builder, columns_of(shape), WIDTH) as j:
        places = c_word(shape, i, j), c_word(shape, i + 1, j)
        addends = [run.c.vector(place) for place in places]
        (columns, flags), (columns_next, flags_next) = columns_met(run, i, j)
        d = [Variable(c) for c in addends]
        with loop(builder, shape.depth, (HALF if run.half else BYTE).length) as start:
            results = group_step(run, start, i, j, (columns, columns_next), d[0].value, d[1].value)
            for row in range(2):
                d[row].value = results[row]
        for row, met in enumerate((flags, flags_next)):
            seen = (run.a.flags.vector(row_place(shape, i + row, j)) | met) & HAS_NAN
            nan = ((addends[row] & MAGNITUDE) > INFINITY) | (seen > 0)
            run.d.store(places[row], select(nan, DEFAULT.nan_bits, d[row].value))


def write_native(inputs: Words, outputs: Words, parameters: Value, shape: Shape, half: bool) -> None:
    """The instruction on registers A, B, C and, where there are any, scale A, scale B or the index."""
    builder = inputs.builder
    matrices, chosen, table = empty_matrices(builder), empty_matrices(builder), stack_words(builder, OPERAND_WORDS)
    overflow_bits = select(spread(equal((parameters >> 11) & 1, 1)), vector_of(builder, INFINITY - 1), INFINITY)
    c = inputs.at(64 * shape.operand_registers * (2 + shape.sparse))
    after_c = c.at(64 * shape.c_registers)
    # The sixteen blocks of a shape of four rows are handled together.
    with loop(builder, 1 if shape.rows == 4 else shape.copies) as copy:
        units = decode_pair(inputs.at(shape.rows * copy), parameters, shape, half, matrices)
        if shape.blocks:
            read_scales(after_c, parameters, shape, matrices)
        if shape.sparse:
            decode_index(after_c, shape, low_i32((parameters >> 12) & 31), table)
        a = matrices.operand(0) if shape.rows == 4 else matrices.operand(0).one_row()
        careful, words = any_infinity(matrices, shape), shape.rows * shape.rows * copy
        b = matrices.operand(1)
        run_rows(
            Instruction(shape, half, c.at(words), outputs.at(words), a, b, overflow_bits, units, careful, table, chosen)
        )


def read_scales(registers: Words, parameters: Value, shape: Shape, matrices: Matrix) -> None:
    scaled = equal((parameters >> 6) & 1, 1)
    for operand in range(2):
        byte = low_i32((parameters >> (7 + 2 * operand)) & 3)
        decode_scales(registers.at(64 * operand), shape, byte, scaled, matrices.operand(operand))


def write(name: str) -> Writer:
    shape, half = SHAPES[name], kind_of(name) == "f16"
    return lambda inputs, outputs, parameters: write_native(inputs, outputs, parameters, shape, half)


# The natives, as attributes by their names.
globals().update(host_bodies({name: write(name) for name in SHAPES if kind_of(name) in ("f8f6f4", "f8", "f16")}))
