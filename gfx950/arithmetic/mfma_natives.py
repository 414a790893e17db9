"""The MFMA natives: the default rule of `gfx950.arithmetic.mfma`, sixteen columns at a time.

Why this is exact. A product of two 8-bit (or smaller) elements, or of two significands of f16 or bf16, fits f32;
multiplied by the power of two that puts the cut at the units place it still does, and the conversion to i32 is then
the rule's cut toward zero. A group's sum fits i32. Its sum with C has up to 39 places: the upper and the last 22 fit
f32 each, and one fused addition rounds them together; 32-bit shifts floor. Near the lower end of f32 an addend keeps
that rounding above the last place of subnormals. Groups with Inf products are summed once more in f32 with real Inf,
which tells Inf from NaN.

What is quick: sums of formats up to 8 bits in which nothing is cut, as products of 15-bit integers, each pair of which
fits i32 and, without last places that are zero, so do all; f16 and bf16 as f32 numbers where all products are, if need
be with A raised by a power of two; C and products within f32's middle. `add_to_c` and `sum_small` choose for two rows
at a time.

Each native is written once as LLVM with `mfma_lanes`, inside a numba function for numba's disk cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from gfx950.arithmetic.mfma import DEFAULT
from gfx950.arithmetic.mfma_lanes import (
    F32,
    WIDTH,
    Value,
    Values,
    Variable,
    Words,
    Writer,
    above,
    add_bytes,
    add_halves,
    add_products,
    any_lane,
    apart,
    bits_f32,
    bits_i32,
    branch,
    equal,
    fused,
    host_bodies,
    loop,
    low_i32,
    magnitude,
    maximum,
    maximum_bytes,
    maximum_halves,
    minimum,
    select,
    spread,
    stack_words,
    to_f32,
    truncate_i32,
    vector_of,
)
from gfx950.arithmetic.mfma_operands import (
    BYTE_BIAS,
    HAS_NAN,
    NOTHING,
    OPERAND_WORDS,
    Matrix,
    Units,
    Way,
    any_infinity,
    c_word,
    choose_columns,
    columns_of,
    decode_index,
    decode_pair,
    decode_scales,
    empty_matrices,
    flags_met,
    real_products,
    row_stride,
)
from gfx950.arithmetic.mfma_shapes import SHAPES, Shape, kind_of

INFINITY, MAGNITUDE, SIGN = 0x7F800000, 0x7FFFFFFF, 0x80000000
SCALE_BLOCK, BIAS = 32, 127
HALF, BYTE = DEFAULT.half, DEFAULT.byte


def power_f32(exponent: Value) -> Value:
    """2^exponent; below the normal range the smallest normal number, 2^128 is Inf."""
    return bits_f32(maximum(exponent + BIAS, 1) << 23)


# ---- One group of products ----


class Pair(NamedTuple):
    """A row of A and the columns it meets."""

    a: Matrix
    b: Matrix


class Sums(NamedTuple):
    """A row's sums of one group, total * 2^(unit - BIAS), and the largest exponents of products, biased too."""

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
    return Sums(total, largest + (BIAS - 24), largest + BIAS)


def largest_of_reals(pair: Pair, shape: Shape) -> Value:
    """Step a where exponents have 16 bits, two in a word, or one as they are chosen."""
    a, b = pair.a.exponents, pair.b.exponents
    in_word, stride = Way.reals.exponents_in_word(shape), row_stride(shape)
    places = range(stride, min(HALF.length, shape.depth) // in_word * stride, stride)
    if in_word == 1:
        largest = a.vector(0) + b.vector(0)
        for place in places:
            largest = maximum(largest, a.vector(place) + b.vector(place))
        return largest
    largest = add_halves(a.vector(0), b.vector(0))
    for place in places:
        largest = maximum_halves(largest, add_halves(a.vector(place), b.vector(place)))
    return maximum((largest << 16) >> 16, largest >> 16)


def sum_reals(pair: Pair, shape: Shape, raised: Value) -> Sums:
    """Steps a and b where every product is an f32 number, raised by that power of two."""
    a, b = pair
    length, stride, largest = min(HALF.length, shape.depth), row_stride(shape), largest_of_reals(pair, shape)
    # Of zeros alone the scale does not matter.
    scale = bits_f32((2 * BIAS + 24 - raised - maximum(largest, BIAS - 100 - raised)) << 23)
    total = vector_of(a.values.builder, 0)
    for place in range(0, length * stride, stride):
        total = total + truncate_i32(a.values.vector(place, F32) * b.values.vector(place, F32) * scale)
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


def sum_pairs(pairs: tuple[Pair, Pair], rows: int) -> Values:
    """As `sum_exactly`, in units of the smallest product of pairs."""
    totals = [vector_of(pairs[0].a.values.builder, 0) for _ in pairs]
    for place in range(0, BYTE.length // 2 * rows, rows):
        for row, (a, b) in enumerate(pairs):
            totals[row] = add_products(totals[row], a.pairs.vector(place), b.pairs.vector(place))
    return tuple(totals)


def sum_shifted(pairs: tuple[Pair, Pair], rows: int, places: tuple[Value, Value]) -> Values:
    """As `sum_pairs` where sums have up to 31 bits above so many last places, all zero."""
    totals = [vector_of(pairs[0].a.values.builder, 0) for _ in pairs]
    for place in range(0, BYTE.length // 2 * rows, rows):
        for row, (a, b) in enumerate(pairs):
            products = add_products(totals[row].constant(0), a.pairs.vector(place), b.pairs.vector(place))
            totals[row] = totals[row] + (products >> places[row])
    return tuple(totals)


def largest_exponents(a: Words, b: Words, rows: int) -> tuple[Value, Value]:
    """Step a for formats up to 8 bits: the largest exponents, of even and odd k (as the low bytes) and of all."""
    quads = add_bytes(a.vector(0), b.vector(0))
    for place in range(rows, BYTE.length // 4 * rows, rows):
        quads = maximum_bytes(quads, add_bytes(a.vector(place), b.vector(place)))
    pair = maximum_bytes(quads, quads >> 16)
    return pair, (maximum_bytes(pair, pair >> 8) << 24) >> 24


def sum_small(pairs: tuple[Pair, Pair], rows: int, units: Units, sparse: bool) -> tuple[Sums, Sums]:
    """Steps a to c for formats up to 8 bits and two rows; exponents with BYTE_BIAS twice."""
    smallest = units.smallest.value
    exponents, largest = largest_exponents(pairs[0].a.exponents, pairs[0].b.exponents, rows)
    next_exponents, next_largest = largest_exponents(pairs[1].a.exponents, pairs[1].b.exponents, rows)

    def split() -> Values:
        total = sum_split(pairs[0], rows, exponents, smallest)
        next_total = sum_split(pairs[1], rows, next_exponents, smallest)
        return total, next_total, largest - 24, next_largest - 24

    if sparse:
        cut = any_lane(maximum(largest, next_largest) > smallest + 24)
        total, next_total, unit, next_unit = branch(cut, split, lambda: (*sum_exactly(pairs, rows), smallest, smallest))
    else:
        cut = any_cut(pairs, (largest, next_largest))
        unit = smallest + units.base.value
        total, next_total, unit, next_unit = branch(
            cut, split, lambda: sum_uncut(pairs, rows, unit, (largest, next_largest))
        )
    exponent, next_exponent = (select(e < 0, NOTHING, e) for e in (largest, next_largest))
    return Sums(total, unit, exponent), Sums(next_total, next_unit, next_exponent)


def any_cut(pairs: tuple[Pair, Pair], largest: tuple[Value, Value]) -> Value:
    """Whether the last place of some product may lie below its sum's; or some element has no place among pairs."""
    needed = [e - pair.a.lows.vector(0) for e, pair in zip(largest, pairs, strict=True)]
    return any_lane(maximum(*needed) > pairs[0].b.lows.vector(0) + 24)


def sum_uncut(pairs: tuple[Pair, Pair], rows: int, unit: Value, largest: tuple[Value, Value]) -> Values:
    """Sums and their units, where nothing is cut or floored and all elements have a place among pairs."""

    def shifted() -> Values:
        places = [maximum(exponent - 24 - unit, 0) for exponent in largest]
        totals = sum_shifted(pairs, rows, (places[0], places[1]))
        return *totals, unit + places[0], unit + places[1]

    long = any_lane(maximum(*largest) > unit + 24)
    return branch(long, shifted, lambda: (*sum_pairs(pairs, rows), unit, unit))


# ---- With C ----


def significand_of(c: Value, hidden: Value) -> Value:
    """The signed significand of C, with its hidden bit; of -0 none."""
    significand = (c & 0x7FFFFF) | hidden
    return select(above(c, SIGN), 0 - significand, significand)


class Near(NamedTuple):
    """What steps d to f start from where nothing lies far away. left: places by which a sum of products moves to the
    32nd place below `largest`; drop: places by which C moves right to the 24th below."""

    total: Value
    left: Value
    c: Value
    drop: Value
    largest: Value


def near_of(sums: Sums, c: Value, exponent: Value) -> Near:
    """Step d begins: C has that exponent, and a bias as the sums have."""
    largest = maximum(sums.exponent, exponent)
    left = select(equal(sums.total, 0), 8, sums.unit - largest + 32)  # zero may move anywhere
    return Near(sums.total, left, c, largest - exponent, largest)


def addend_of(near: Near, half: bool, hidden: Value | None = None) -> Value:
    """C in units of the 24th place. Unless `hidden` tells which C have the hidden bit, a subnormal C is so far below
    here that only its sign counts: it may have it too."""
    significand = significand_of(near.c, near.c.constant(0x800000) if hidden is None else hidden)
    addend = (significand << 1) >> minimum(near.drop, 31)
    return addend if half else select(near.drop > BYTE.c_window, 0, addend)


def add_above(near: Near, half: bool) -> Value:
    """Steps d to f where `left` is at least 8: all are multiples of the 24th place. There are at most 31 places of the
    sum, of which step e leaves 32."""
    total = (near.total << (near.left - 8)) + addend_of(near, half)
    return bits_i32(to_f32(total) * bits_f32((near.largest - 24) << 23))


def add_near(near: Near, half: bool) -> Value:
    """Steps d to f where `left` is at least 2: the sum in two parts that f32 holds.

    Step e changes nothing: the sum of products ends at the place `left`, and the sum with C has at most 31 + `left`
    places, or 34.
    """
    addend, left = addend_of(near, half), near.left
    lifted = near.total if half else near.total << maximum(left - 8, 0)  # of halves `left` is at most 8
    right = 8 - left if half else maximum(8 - left, 0)
    return join_parts((lifted >> right) + addend, (near.total << left) + (addend << 8), near.largest)


def join_parts(high: Value, low: Value, largest: Value) -> Value:
    """The nearest f32 of high * 2^8 + low % 2^8 in the 32nd place; low tells its last 32 places."""
    upper, lower = to_f32(high >> 14), to_f32(low & 0x3FFFFF)
    total = fused(upper, bits_f32(high.constant(149 << 23)), lower)  # upper * 2^22
    return bits_i32(total * bits_f32((largest - 32) << 23))


def far_parts(near: Near, addend: Value) -> tuple[Value, Value]:
    """Steps d and e where `left` may be below 8 or negative: the parts that `join_parts` takes. C is 2^25 or less in
    the 24th place, the sum of products at most 2^23 where `left` is below 2."""
    left = near.left
    wide = (near.total << maximum(left - 8, 0)) >> minimum(maximum(8 - left, 0), 31)
    high = wide + addend
    low = ((near.total << maximum(left, 0)) >> minimum(maximum(0 - left, 0), 31)) + (addend << 8)
    places = places_of(high)
    floored = (places >> 24) | (places >> 25)
    return high, low & (floored ^ -1)


def places_of(high: Value) -> Value:
    """A number of as many places as the sum has above the 8th."""
    return high ^ (high >> 31)


def add_far(near: Near, half: bool) -> Value:
    """Steps d to f where C and the sum of products may be far apart."""
    return join_parts(*far_parts(near, addend_of(near, half)), near.largest)


def add_high(near: Near, half: bool, overflow_bits: Value) -> Value:
    """Steps d to f where no result is subnormal; C stays where it is Inf or NaN."""
    high, low = far_parts(near, addend_of(near, half))
    exponent = near.largest - (32 + BIAS)
    lower = minimum(exponent, 64)
    value = join_parts(high, low, lower + (32 + BIAS))
    bits = bits_i32(bits_f32(value) * power_f32(minimum(exponent - lower, 64)))
    return select(is_special(near.c), near.c, minimum(bits & MAGNITUDE, overflow_bits) | (bits & SIGN))


def add_anywhere(sums: Sums, c: Value, half: bool, overflow_bits: Value) -> Value:
    """Steps d to f at any exponent; C stays where it is Inf or NaN."""
    field = exponent_field(c)
    near = near_of(sums, c, maximum(field, 1))
    high, low = far_parts(near, addend_of(near, half, select(equal(field, 0), c.constant(0), 0x800000)))
    # At the lowest exponent the floor is at the second place at the least.
    low = select(equal(near.largest, 1), low & -2, low)
    rounded = round_at(high, low, 10 - near.largest)
    d = place_anywhere(rounded, near.largest - 159, overflow_bits) | (high & SIGN)
    return select(is_special(c), c, d)


def round_at(high: Value, low: Value, place: Value) -> Value:
    """The nearest f32 of a sum in two parts, with nothing below 2^place: an addend of 2^(place + 23) has the last
    place there. Sums above need none, nor do whole numbers where `place` is negative."""
    count = maximum(minimum(place, 9), 0)
    needed = (place > 0) & equal(places_of(high) >> (count + 15), 0)
    magic = bits_f32(select(needed, ((count + 128) << 23) | (high & SIGN), 0))  # of 2^22
    upper, lower, scale = to_f32(high >> 14), to_f32(low & 0x3FFFFF), bits_f32(high.constant(149 << 23))
    return fused(upper + magic, scale, lower) - magic * scale


def place_anywhere(value: Value, exponent: Value, overflow_bits: Value) -> Value:
    """Bits of |value * 2^exponent|, without trusting the host to keep subnormals. value: a whole f32 number that needs
    no rounding there; exponent: -158 or more."""
    bits = bits_i32(magnitude(value))
    field = (bits >> 23) + minimum(exponent, 255)
    normal = minimum((minimum(field, 255) << 23) | (bits & 0x7FFFFF), overflow_bits)
    small = truncate_i32(magnitude(value) * power_f32(exponent + 149))
    return select(equal(bits, 0), 0, select(field < 1, small, normal))


def exponent_field(c: Value) -> Value:
    return (c >> 23) & 255


def is_special(bits: Value) -> Value:
    return equal(bits & INFINITY, INFINITY)


def add_to_c(run: Instruction, sums: tuple[Sums, Sums], addends: tuple[Value, Value]) -> Values:
    """Steps d to f for two rows."""
    near = [near_of(one, c, exponent_field(c)) for one, c in zip(sums, addends, strict=True)]
    half = run.way.half

    def any_of(test: Callable[[Near], Value]) -> Value:
        return any_lane(test(near[0]) | test(near[1]))

    def both(add: Callable[[Near, bool], Value]) -> Callable[[], Values]:
        return lambda: tuple(add(one, half) for one in near)

    def anywhere() -> Values:
        return tuple(add_anywhere(one, c, half, run.overflow_bits) for one, c in zip(sums, addends, strict=True))

    def nearer() -> Values:
        if half:
            return both(add_near)()
        return branch(any_of(lambda one: one.left < 8), both(add_near), both(add_above))

    def inside() -> Values:
        return branch(any_of(lambda one: one.left < 2), both(add_far), nearer, likely=False)

    def at_ends() -> Values:
        low = any_of(lambda one: one.largest < BIAS - 64)
        high = both(lambda one, half: add_high(one, half, run.overflow_bits))
        return branch(low, anywhere, high)

    outside = any_of(lambda one: above(one.largest - (BIAS - 64), 164))  # not within -64..100
    return branch(outside, at_ends, inside, likely=False)


# ---- Inf ----


def group_length(shape: Shape, way: Way) -> int:
    return min((HALF if way.half else BYTE).length, shape.depth)


def raise_infinities(matrices: Matrix, shape: Shape, way: Way, lift: Value) -> None:
    """Makes an Inf among decoded values, which is 2^(128 - lift), an f32 Inf, and flags groups that hold one. (NaN
    there may have any value.)"""
    length, stride = group_length(shape, way), row_stride(shape)
    raised, lowered = power_f32(lift), power_f32(0 - lift)
    for operand, side in enumerate((shape, shape.b_shape)):
        matrix = matrices.operand(operand)
        with loop(lift.builder, side.depth // length) as group, loop(lift.builder, stride, WIDTH) as row:
            seen = Variable(lift.constant(0))
            with loop(lift.builder, length) as k:
                place = (length * group + k) * stride + row
                value = matrix.values.vector(place, F32) * raised * lowered
                matrix.values.store(place, value)
                seen.value = seen.value | select(is_special(bits_i32(value)), lift.constant(1), 0)
            if not shape.sparse:
                matrix.specials.store(group * stride + row, seen.value)


def any_infinite(run: Instruction, group: Value, i: Value, j: Value) -> Value:
    """Whether a group of rows i and i + 1 may have Inf products. group: its number times the stride."""
    if run.shape.sparse or run.way is Way.significands:
        return run.careful

    def here() -> Values:
        rows = [run.a.specials.vector(group + row_place(run.shape, i + row, j)) for row in range(2)]
        return (any_lane((rows[0] | rows[1] | run.b.specials.vector(group + j)) > 0),)

    return branch(run.careful, here, lambda: (run.careful,), likely=False)[0]


def special_sum(pair: Pair, shape: Shape, way: Way) -> Value:
    """f32 sums of a group that are Inf or NaN as its products make them, and finite without any other meaning where
    those are finite."""
    builder, (a, b) = pair.a.values.builder, pair
    totals, small = [bits_f32(vector_of(builder, 0))] * 2, bits_f32(vector_of(builder, BIAS - 10 << 23))
    for k in range(group_length(shape, way)):
        place = k * row_stride(shape)
        row, columns = a.values.vector(place, F32), b.values.vector(place, F32)
        if way is Way.significands:
            row, columns = row * power_f32(a.exponents.vector(place)), columns * power_f32(b.exponents.vector(place))
        totals[k % 2] = fused(row * columns, small, totals[k % 2])  # small: so that only an Inf product makes it Inf
    return totals[0] + totals[1]


def meet_specials(special: Value, c: Value, d: Value) -> Value:
    """D of a group: where its sum or C is special, what IEEE's addition makes of them."""
    kept = bits_f32(select(is_special(c), c, 0))
    met = bits_i32(special + kept)
    met = select((met & MAGNITUDE) > INFINITY, DEFAULT.nan_bits, met)
    return select(is_special(bits_i32(special)), met, d)


# ---- The instruction ----


@dataclass(frozen=True)
class Room:
    """Places on the stack for decoded operands, for the columns that two sparse rows meet, and for their index."""

    matrices: Matrix
    chosen: Matrix
    index: Words

    @classmethod
    def empty(cls, builder: Any) -> Room:
        return cls(empty_matrices(builder), empty_matrices(builder), stack_words(builder, OPERAND_WORDS))


Function: TypeAlias = Callable[[Values], Value]


@dataclass(frozen=True)
class Instruction:
    """What all rows of one product share. c, d: the first words of C and D. careful: there is an Inf among A and B."""

    shape: Shape
    way: Way
    c: Words
    d: Words
    a: Matrix
    b: Matrix
    overflow_bits: Value
    units: Units
    careful: Value
    room: Room
    specials: Function


def specials_apart(shape: Shape, way: Way, pair: Pair, like: Value) -> Function:
    """`special_sum` and `meet_specials` as a function of A, B (values and exponents), C and D."""
    places = [words.place for matrix in pair for words in (matrix.values, matrix.exponents)]

    def body(values: Values) -> Value:
        parts = [values[:2], values[2:4]]
        inside = Pair(*(matrix.moved(*part) for matrix, part in zip(pair, parts, strict=True)))
        return meet_specials(special_sum(inside, shape, way), values[4], values[5])

    return apart(f"{way.name}_specials", (*places, like, like), body)


def scaled_sums(sums: Sums, scale: Value | int) -> Sums:
    return Sums(sums.total, sums.unit + scale, sums.exponent + scale)


def row_place(shape: Shape, row: Value, column: Value) -> Value:
    """Where a row of A begins among decoded words."""
    return 64 * row + column if shape.rows == 4 else row


def columns_met(run: Instruction, i: Value, j: Value) -> tuple[tuple[Matrix, Value], tuple[Matrix, Value]]:
    """The sixteen columns from j on as rows i and i + 1 meet them, and their special flags."""
    if not run.shape.sparse:
        columns = run.b.at(j, j, j, j), run.b.flags.vector(j)
        return columns, columns
    met = columns_chosen(run, i, j), columns_chosen(run, i + 1, j, 1)
    flags = [flags_met(run.room.index, run.b, run.shape, i + row, j) for row in range(2)]
    return (met[0], flags[0]), (met[1], flags[1])


def columns_chosen(run: Instruction, row: Value, j: Value, number: int = 0) -> Matrix:
    """The sixteen columns from j on as a row of a sparse A meets them: read through the index, or copied to the room of
    that number where exponents share words."""
    if run.way.half:
        return run.b.at(j, j, j, j).through(run.room.index.at(row))
    room = run.room.chosen.operand(number)
    choose_columns(run.room.index, run.b, run.shape, row, j, room)
    return room


def in_place(run: Instruction, matrix: Matrix) -> Matrix:
    """A group of columns that are read through the index, copied."""
    if not (run.shape.sparse and run.way.half):
        return matrix
    room, rows = run.room.chosen, run.shape.rows
    for place in range(0, HALF.length * rows, rows):
        room.values.store(place, matrix.values.vector(place))
        room.exponents.store(place, matrix.exponents.vector(place))
    return room


def group_step(
    run: Instruction, start: Value, i: Value, j: Value, columns: tuple[Matrix, Matrix], addends: tuple[Value, Value]
) -> Values:
    """One group of rows i and i + 1, side by side to hide how long a step takes."""
    shape, stride = run.shape, row_stride(run.shape)
    starts = [start // count * stride for count in (1, run.way.exponents_in_word(shape), 2, BYTE.length)]
    rows = [run.a.at(*(words + row_place(shape, i + row, j) for words in starts)) for row in range(2)]
    pairs = Pair(rows[0], columns[0].at(*starts)), Pair(rows[1], columns[1].at(*starts))
    careful = any_infinite(run, start // group_length(shape, run.way) * stride, i, j)
    if run.way.half:
        sums = sum_two(run, pairs)
        # A product of 2^128 is Inf too.
        careful = careful | any_lane(maximum(sums[0].exponent, sums[1].exponent) > BIAS + 126)
    else:
        sums = sum_small(pairs, stride, run.units, shape.sparse)
        sums = add_scales(run, start // SCALE_BLOCK * stride, i, j, sums)
    results = add_to_c(run, sums, addends)

    def with_infinities() -> Values:
        found = []
        for (a, b), c, d in zip(pairs, addends, results, strict=True):
            met = a, in_place(run, b)
            places = [words.place for matrix in met for words in (matrix.values, matrix.exponents)]
            found.append(run.specials((*places, c, d)))
        return tuple(found)

    return branch(careful, with_infinities, lambda: results, likely=False)


def sum_two(run: Instruction, pairs: tuple[Pair, Pair]) -> tuple[Sums, Sums]:
    """Steps a and b of f16 or bf16 for two rows."""
    if run.way is Way.significands:
        return sum_halves(pairs[0], run.shape), sum_halves(pairs[1], run.shape)
    raised = run.units.raised.value
    return sum_reals(pairs[0], run.shape, raised), sum_reals(pairs[1], run.shape, raised)


def add_scales(run: Instruction, block: Value, i: Value, j: Value, sums: tuple[Sums, Sums]) -> tuple[Sums, Sums]:
    """Sums with f32's bias, and with the scales where there are any."""
    if not run.shape.blocks:
        return scaled_sums(sums[0], BIAS - 2 * BYTE_BIAS), scaled_sums(sums[1], BIAS - 2 * BYTE_BIAS)
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
        with loop(builder, shape.depth, group_length(shape, run.way)) as start:
            results = group_step(run, start, i, j, (columns, columns_next), (d[0].value, d[1].value))
            for row in range(2):
                d[row].value = results[row]
        for row, met in enumerate((flags, flags_next)):
            seen = (run.a.flags.vector(row_place(shape, i + row, j)) | met) & HAS_NAN
            nan = ((addends[row] & MAGNITUDE) > INFINITY) | (seen > 0)
            run.d.store(places[row], select(nan, DEFAULT.nan_bits, d[row].value))


def write_products(
    inputs: Words, outputs: Words, parameters: Value, shape: Shape, way: Way, room: Room, raised: Value
) -> None:
    """The instruction on registers A, B, C and, where there are any, scale A, scale B or the index."""
    builder, matrices, like = inputs.builder, room.matrices, vector_of(inputs.builder, 0)
    overflow = select(spread(equal((parameters >> 11) & 1, 1)), vector_of(builder, INFINITY - 1), INFINITY)
    c = inputs.at(64 * shape.operand_registers * (2 + shape.sparse))
    after_c = c.at(64 * shape.c_registers)
    a = matrices.operand(0) if shape.rows == 4 else matrices.operand(0).one_row()
    b = matrices.operand(1)
    pair = Pair(a, room.chosen if shape.sparse else b)
    specials = specials_apart(shape, way, pair, like)
    # The sixteen blocks of a shape of four rows are handled together.
    with loop(builder, 1 if shape.rows == 4 else shape.copies) as copy:
        units = decode_pair(inputs.at(shape.rows * copy), parameters, shape, way, matrices, raised)
        if shape.blocks:
            read_scales(after_c, parameters, shape, matrices)
        if shape.sparse:
            decode_index(after_c, shape, low_i32((parameters >> 12) & 31), room.index, places=True)
        careful, words = any_infinity(matrices, shape), shape.rows * shape.rows * copy
        if way is not Way.significands:
            with builder.if_then(careful.llvm, likely=False):
                raise_infinities(matrices, shape, way, units.lift.value)
        run_rows(
            Instruction(shape, way, c.at(words), outputs.at(words), a, b, overflow, units, careful, room, specials)
        )


def read_scales(registers: Words, parameters: Value, shape: Shape, matrices: Matrix) -> None:
    """Scale exponents, A's biased as the exponents of sums are."""
    scaled = equal((parameters >> 6) & 1, 1)
    for operand in range(2):
        byte = low_i32((parameters >> (7 + 2 * operand)) & 3)
        bias = 0 if operand else BIAS - 2 * BYTE_BIAS
        decode_scales(registers.at(64 * operand), shape, byte, scaled, bias, matrices.operand(operand))


def write_native(inputs: Words, outputs: Words, parameters: Value, shape: Shape, half: bool) -> None:
    """f16 and bf16 are multiplied as f32 numbers where all products are."""
    room = Room.empty(inputs.builder)

    none = vector_of(inputs.builder, 0)

    def write_way(way: Way, raised: Value = none) -> Values:
        write_products(inputs, outputs, parameters, shape, way, room, raised)
        return ()

    if half:
        real, raised = real_products(inputs, parameters, shape)
        reals = partial(write_way, Way.reals, spread(raised))
        branch(real, reals, lambda: write_way(Way.significands), likely=True)
    else:
        write_way(Way.quads)


def write(name: str) -> Writer:
    shape, half = SHAPES[name], kind_of(name) == "f16"
    return lambda inputs, outputs, parameters: write_native(inputs, outputs, parameters, shape, half)


# The natives, as attributes by their names.
globals().update(host_bodies({name: write(name) for name in SHAPES if kind_of(name) in ("f8f6f4", "f8", "f16")}))
