"""The MFMA natives: the default rule of `gfx950.arithmetic.mfma`, sixteen columns at a time.

Why this is exact. A product of two 8-bit (or smaller) elements, or of two significands of f16 or bf16, fits f32;
multiplied by the power of two that puts the cut at the units place it still does, and the conversion to i32 is then
the rule's cut toward zero. A group's sum fits i32. From there on every number is an integer below 2^40 in f64, and
floors are floors. What remains (Inf among A and B, bf16 products of 2^128 or more) goes to the plain rule, element by
element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.np.numpy_support import carray

from gfx950.arithmetic import mfma_rule
from gfx950.arithmetic.mfma import DEFAULT, FIELD_BITS, SHAPES, Format
from gfx950.arithmetic.mfma_lanes import (
    add_bytes,
    any_lane,
    bits_f32,
    bits_f64,
    bits_i32,
    bits_i64,
    floor,
    fused,
    load_f32,
    load_i32,
    low_i32,
    magnitude,
    maximum,
    maximum_bytes,
    minimum,
    narrow,
    select,
    select_zero_bytes,
    splat_f64,
    splat_i32,
    splat_i64,
    stack_words,
    store,
    to_f32,
    to_f64,
    truncate_i32,
    widen_f64,
    widen_i64,
)
from gfx950.arithmetic.mfma_rule import (
    ALL_ONES_NAN,
    BIAS,
    EXPONENT_BITS,
    IEEE,
    MANTISSA_BITS,
    SPECIALS,
    Settings,
    element,
    fill_products,
    fill_scales,
    k_of_item,
    unpack_row,
)
from gfx950.arithmetic.native import compiled, inlined

WIDTH = 16
NOTHING = -10_000  # the exponent of a zero: no sum of two of them and of scales comes near a real one
# The same as a signed byte: 8-bit exponents lie in -15..15, so their sums are above ZERO_BYTE + 24 and sums with it
# below.
ZERO_BYTE = -64
HAS_NAN, HAS_INFINITY = 1, 2
F16, BF16, LAST_SMALL, LAST_BYTE = int(Format.f16), int(Format.bf16), int(Format.fp4), int(Format.bf8)
HALF, BYTE = DEFAULT.half, DEFAULT.byte
SETTINGS = Settings(int(DEFAULT.group_order), int(DEFAULT.scale_entry), DEFAULT.nan_bits)
NAN_BITS = DEFAULT.nan_bits


@inlined
def power_f32(exponent: Any) -> Any:
    """2^exponent; below the normal range the smallest normal number."""
    return bits_f32(maximum(exponent + splat_i32(127), splat_i32(1)) << splat_i32(23))


@inlined
def power_f64(exponent: Any) -> Any:
    return bits_f64((widen_i64(exponent) + splat_i64(1023)) << splat_i64(52))


@inlined
def special_bounds(format_: int) -> tuple[int, int]:
    """The magnitude code that is Inf (-1: none), and the largest that is not NaN."""
    mantissa_bits, all_ones = MANTISSA_BITS[format_], (1 << (MANTISSA_BITS[format_] + EXPONENT_BITS[format_])) - 1
    if SPECIALS[format_] == IEEE:
        infinity = all_ones - ((1 << mantissa_bits) - 1)
        return infinity, infinity
    return -1, all_ones - (1 if SPECIALS[format_] == ALL_ONES_NAN else 0)


@inlined
def special_flags(magnitudes: Any, format_: int) -> Any:
    """Flags of magnitude codes."""
    infinity, finite_end = special_bounds(format_)
    zero = splat_i32(0)
    nan = select(magnitudes > splat_i32(finite_end), splat_i32(HAS_NAN), zero)
    return select(magnitudes == splat_i32(infinity), splat_i32(HAS_INFINITY), nan)


@inlined
def smallest_exponent(format_: int) -> int:
    """The exponent of the format's smallest subnormal."""
    return 1 - BIAS[format_] - MANTISSA_BITS[format_]


@inlined
def decode_halves_of(words: Any, format_: int) -> tuple[Any, Any, Any]:
    """f32 significands below 2, exponents and special flags of f16 or bf16 codes in the low halves of words."""
    mantissa_bits, bias = MANTISSA_BITS[format_], BIAS[format_]
    code = words & splat_i32(0x7FFF)
    sign = (words << splat_i32(16)) & splat_i32(0x80000000)
    field = code >> splat_i32(mantissa_bits)
    mantissa = code & splat_i32((1 << mantissa_bits) - 1)
    normal = splat_i32(127 << 23) | (mantissa << splat_i32(23 - mantissa_bits))
    subnormal = bits_i32(to_f32(mantissa) * power_f32(splat_i32(-mantissa_bits)))
    zero = splat_i32(0)
    significand = bits_f32(select(field == zero, subnormal, normal) | sign)
    exponent = select(code == zero, splat_i32(NOTHING), maximum(field, splat_i32(1)) - splat_i32(bias))
    return significand, exponent, special_flags(code, format_)


@inlined
def bytes_of_quad(inputs: Any, word: int, bit: int, field_bits: int) -> Any:
    """Sixteen lanes' four fields that start `bit` bits after the register word at index `word`, one in each byte;
    what is above a field in its byte is of other fields."""
    offset, shift = word + 64 * (bit >> 5), bit & 31
    window = load_i32(inputs, offset)
    if field_bits == 8:
        return window
    window = (window >> splat_i32(shift)) & splat_i32(-1 if shift == 0 else (1 << (32 - shift)) - 1)
    if shift + 4 * field_bits > 32:
        window = window | (load_i32(inputs, offset + 64) << splat_i32(32 - shift))
    low, result = splat_i32(255), window & splat_i32(255)
    for t in range(1, 4):
        result = result | (((window >> splat_i32(t * field_bits)) & low) << splat_i32(8 * t))
    return result


@inlined
def every_byte(value: int) -> Any:
    return splat_i32((value & 255) * 0x01010101)


@inlined
def exponent_bytes(magnitudes: Any, format_: int) -> Any:
    """Exponents of four magnitude codes a lane, as bytes."""
    fields = (magnitudes >> splat_i32(MANTISSA_BITS[format_])) & every_byte((1 << EXPONENT_BITS[format_]) - 1)
    exponents = add_bytes(maximum_bytes(fields, every_byte(1)), every_byte(-BIAS[format_]))
    return select_zero_bytes(magnitudes, every_byte(ZERO_BYTE), exponents)


@inlined
def whole_value(quad: Any, t: int, format_: int) -> Any:
    """f32 of byte t of a quad, as a multiple of the format's smallest number."""
    mantissa_bits, magnitude_bits = MANTISSA_BITS[format_], MANTISSA_BITS[format_] + EXPONENT_BITS[format_]
    code = (quad >> splat_i32(8 * t)) & splat_i32((1 << magnitude_bits) - 1)
    sign = (quad << splat_i32(31 - 8 * t - magnitude_bits)) & splat_i32(0x80000000)
    normal = (code << splat_i32(23 - mantissa_bits)) + splat_i32((126 + mantissa_bits) << 23)
    subnormal = bits_i32(to_f32(code))
    return bits_f32(select(code < splat_i32(1 << mantissa_bits), subnormal, normal) | sign)


@inlined
def decode_quads(
    inputs: Any, register: int, shape: Any, format_: int, field_bits: int, values: Any, exponents: Any, flags: Any
) -> None:
    """Values [k][row] of a small-format operand that starts at `register`, exponents as bytes [k / 4][row], flags
    [row] of its specials."""
    magnitude_mask = every_byte((1 << (MANTISSA_BITS[format_] + EXPONENT_BITS[format_])) - 1)
    for row in range(0, shape.rows, WIDTH):
        top = splat_i32(0)
        for quad in range(shape.depth // 4):
            lane_group, item = 4 * quad // shape.lane_items, 4 * quad % shape.lane_items
            word = 64 * register + shape.rows * lane_group + row
            codes = bytes_of_quad(inputs, word, item * field_bits, field_bits)
            k = k_of_item(shape, field_bits, lane_group, item)
            for t in range(4):
                store(values, (k + t) * shape.rows + row, whole_value(codes, t, format_))
            magnitudes = codes & magnitude_mask
            top = maximum_bytes(top, magnitudes)
            store(exponents, k // 4 * shape.rows + row, exponent_bytes(magnitudes, format_))
        top = maximum_bytes(top, top >> splat_i32(16))
        top = maximum_bytes(top, top >> splat_i32(8)) & splat_i32(255)
        store(flags, row, special_flags(top, format_))  # a NaN outranks an Inf, as it does in the result


@compiled
def decode_small(inputs: Any, register: int, shape: Any, format_: int, values: Any, exponents: Any, flags: Any) -> None:
    if FIELD_BITS[format_] == 8:
        decode_quads(inputs, register, shape, format_, 8, values, exponents, flags)
    elif FIELD_BITS[format_] == 6:
        decode_quads(inputs, register, shape, format_, 6, values, exponents, flags)
    else:
        decode_quads(inputs, register, shape, format_, 4, values, exponents, flags)


@compiled
def decode_halves(
    inputs: Any, register: int, shape: Any, format_: int, values: Any, exponents: Any, flags: Any
) -> None:
    """Significands and exponents [k][row] of an f16 or bf16 operand, and flags [row] of its specials."""
    for row in range(0, shape.rows, WIDTH):
        seen = splat_i32(0)
        for k in range(shape.depth):
            lane_group, item = k // shape.lane_items, k % shape.lane_items
            words = load_i32(inputs, 64 * (register + item // 2) + shape.rows * lane_group + row)
            value, exponent, special = decode_halves_of(words >> splat_i32(16 * (item % 2)), format_)
            store(values, k * shape.rows + row, value)
            store(exponents, k * shape.rows + row, exponent)
            seen = seen | special
        store(flags, row, seen)


@inlined
def decode_operand(
    inputs: Any, register: int, shape: Any, format_: int, half: bool, values: Any, exponents: Any, flags: Any
) -> None:
    if half:
        decode_halves(inputs, register, shape, format_, values, exponents, flags)
    else:
        decode_small(inputs, register, shape, format_, values, exponents, flags)


@compiled
def decode_scales(inputs: Any, register: int, shape: Any, byte: int, scaled: bool, scales: Any, flags: Any) -> None:
    """Scale exponents [block][row]; a NaN scale flags its row."""
    for index in range(shape.rows * shape.blocks):
        value = np.int64(inputs[64 * register + index]) >> (8 * byte) & 255 if scaled else 127
        scales[index] = value - 127
        if value == 255:
            flags[index % shape.rows] |= HAS_NAN


@inlined
def sum_halves(a: Any, ae: Any, b: Any, be: Any, rows: int, i: int, j: int, start: int, length: int) -> Any:
    """Steps a and b for the f16 or bf16 products of row i with columns j to j + 15, k from `start`: sums and
    exponents."""
    largest = splat_i32(2 * NOTHING)
    for k in range(start, start + length):
        largest = maximum(largest, splat_i32(ae[k * rows + i]) + load_i32(be, k * rows + j))
    total, lift = splat_i32(0), splat_i32(24) - largest
    for k in range(start, start + length):
        scale = power_f32(splat_i32(ae[k * rows + i]) + load_i32(be, k * rows + j) + lift)
        total = total + truncate_i32(bits_f32(splat_i32(a[k * rows + i])) * load_f32(b, k * rows + j) * scale)
    return total, largest


@inlined
def sum_every_second(a: Any, b: Any, rows: int, i: int, j: int, start: int, length: int, lift: Any) -> Any:
    """Step b for k = start, start + 2 ...: products of multiples of the smallest, times 2^lift, cut to integers."""
    total, scale = splat_i32(0), power_f32(minimum(lift, splat_i32(127)))
    for t in range(length // 2):
        row = (start + 2 * t) * rows
        total = total + truncate_i32(bits_f32(splat_i32(a[row + i])) * load_f32(b, row + j) * scale)
    return total


@inlined
def sum_exactly(a: Any, b: Any, rows: int, i: int, j: int, start: int, length: int) -> Any:
    """The sums of products of rows i and i + 1 where nothing is cut, in units of the smallest product."""
    total, next_total = splat_i32(0), splat_i32(0)
    for k in range(start, start + length):
        columns = load_f32(b, k * rows + j)
        total = total + truncate_i32(bits_f32(splat_i32(a[k * rows + i])) * columns)
        next_total = next_total + truncate_i32(bits_f32(splat_i32(a[k * rows + i + 1])) * columns)
    return total, next_total


@inlined
def sum_split(a: Any, b: Any, rows: int, i: int, j: int, start: int, length: int, pair: Any, smallest: int) -> Any:
    """Steps b and c: even and odd k apart, their largest exponents being the low bytes of `pair`."""
    even_exponent = (pair << splat_i32(24)) >> splat_i32(24)
    odd_exponent = (pair << splat_i32(16)) >> splat_i32(24)
    unit, end = splat_i32(24 + smallest), splat_i32(31)
    even = sum_every_second(a, b, rows, i, j, start, length, unit - even_exponent)
    odd = sum_every_second(a, b, rows, i, j, start + 1, length, unit - odd_exponent)
    largest = maximum(even_exponent, odd_exponent)
    return (even >> minimum(largest - even_exponent, end)) + (odd >> minimum(largest - odd_exponent, end))


@inlined
def largest_exponents(ae: Any, be: Any, rows: int, i: int, j: int, start: int, length: int) -> tuple[Any, Any]:
    """Step a for formats up to 8 bits: the largest exponents, of even and odd k (as the low bytes) and of all."""
    first = start // 4 * rows
    quads = add_bytes(splat_i32(ae[first + i]), load_i32(be, first + j))
    for q in range(1, length // 4):
        row = first + q * rows
        quads = maximum_bytes(quads, add_bytes(splat_i32(ae[row + i]), load_i32(be, row + j)))
    pair, top = maximum_bytes(quads, quads >> splat_i32(16)), splat_i32(24)
    return pair, (maximum_bytes(pair, pair >> splat_i32(8)) << top) >> top


@inlined
def sum_small(
    a: Any, ae: Any, b: Any, be: Any, rows: int, i: int, j: int, start: int, length: int, smallest: int
) -> Any:
    """Steps a to c for formats up to 8 bits and rows i and i + 1: sums, units, exponents of one row and of the next.

    Where even the smallest product there can be (2^smallest) lies above the cut of all 32 elements, nothing is cut or
    floored.
    """
    pair, largest = largest_exponents(ae, be, rows, i, j, start, length)
    next_pair, next_largest = largest_exponents(ae, be, rows, i + 1, j, start, length)
    none, nothing = splat_i32(ZERO_BYTE + 24), splat_i32(NOTHING)
    exponent = select(largest < none, nothing, largest)
    next_exponent = select(next_largest < none, nothing, next_largest)
    if any_lane(maximum(largest, next_largest) > splat_i32(24 + smallest)):
        total = sum_split(a, b, rows, i, j, start, length, pair, smallest)
        next_total = sum_split(a, b, rows, i + 1, j, start, length, next_pair, smallest)
        fraction = splat_i32(24)
        return total, largest - fraction, exponent, next_total, next_largest - fraction, next_exponent
    total, next_total = sum_exactly(a, b, rows, i, j, start, length)
    return total, splat_i32(smallest), exponent, next_total, splat_i32(smallest), next_exponent


@inlined
def sum_group(
    a: Any, ae: Any, b: Any, be: Any, rows: int, i: int, j: int, start: int, length: int, half: bool, smallest: int
) -> Any:
    """Steps a to c of rows i and i + 1: sums, their units' exponents, the exponents of the products, twice."""
    if half:
        total, exponent = sum_halves(a, ae, b, be, rows, i, j, start, length)
        next_total, next_exponent = sum_halves(a, ae, b, be, rows, i + 1, j, start, length)
        fraction = splat_i32(24)
        return total, exponent - fraction, exponent, next_total, next_exponent - fraction, next_exponent
    return sum_small(a, ae, b, be, rows, i, j, start, length, smallest)


@inlined
def round_lanes(value: Any, overflow_bits: int) -> Any:
    """Bits of the nearest f32 of normal f64 values, without trusting the host to keep subnormal f32."""
    size = magnitude(value)
    # The units place of 2^-97 + x is the smallest subnormal's.
    subnormal = low_i32(bits_i64(size + splat_f64(2.0**-97))) & splat_i32(0xFFFFFF)
    result = select(size < splat_f64(2.0**-126), subnormal, bits_i32(narrow(size)))
    sign = low_i32(bits_i64(value) >> splat_i64(32)) & splat_i32(0x80000000)
    return minimum(result, splat_i32(overflow_bits)) | sign


@inlined
def floor_total(total: Any) -> Any:
    """Step e without its lower bound: integers in f64, floored 31 bits below their own exponent. A negative one grows
    in magnitude."""
    bits, below = bits_i64(total), (1 << 21) - 1
    return bits_f64(select(bits < splat_i64(0), bits + splat_i64(below), bits) & splat_i64(~below))


@inlined
def finish_anywhere(dot: Any, largest: Any, overflow_bits: int) -> Any:
    """Steps e and f at any exponent; where that is -126 the floor is at the second place at the least."""
    even = floor(dot * splat_f64(0.5)) * splat_f64(2.0)
    # 2^e for e below f64's own lowest is not met: the lowest e here is -158.
    at_bottom = to_f64(select(largest == splat_i32(-126), splat_i32(1), splat_i32(0)))
    dot = floor_total(fused(at_bottom, even - dot, dot))
    return round_lanes(dot * power_f64(largest - splat_i32(32)), overflow_bits)


@inlined
def finish_normal(dot: Any, largest: Any) -> Any:
    """Steps e and f where the result can neither be subnormal nor overflow."""
    result = bits_i32(narrow(floor_total(dot)))
    zero = splat_i32(0)
    return select(result == zero, zero, result + ((largest - splat_i32(32)) << splat_i32(23)))


@inlined
def align_with_c(total: Any, unit: Any, exponent: Any, c: Any, half: bool) -> tuple[Any, Any]:
    """Step d for the sums total * 2^unit: integers in f64 and e_max, whose place is the 32nd."""
    zero, field = splat_i32(0), (c >> splat_i32(23)) & splat_i32(255)
    significand = c & splat_i32(0x7FFFFF)
    significand = select(field == zero, significand, significand | splat_i32(0x800000))
    significand = select(c < zero, zero - significand, significand)
    c_exponent = maximum(field, splat_i32(1)) - splat_i32(127)
    largest = maximum(exponent, c_exponent)
    drop = largest - c_exponent
    addend = (significand << splat_i32(1)) >> minimum(drop, splat_i32(31))
    if not half:
        addend = select(drop > splat_i32(BYTE.c_window), zero, addend)
    # Below -100 only the sign of a sum is left of it, above 100 there is only the zero sum of no products.
    lift = minimum(maximum(unit - largest + splat_i32(32), splat_i32(-100)), splat_i32(100))
    dot = floor(to_f64(total) * widen_f64(power_f32(lift)))
    return fused(to_f64(addend), splat_f64(256.0), dot), largest


@inlined
def keep_special(c: Any, result: Any) -> Any:
    """C where it is Inf or NaN."""
    special = splat_i32(0x7F800000)
    return select((c & special) == special, c, result)


@inlined
def add_to_c(sums: Any, c: Any, c_next: Any, half: bool, overflow_bits: int) -> tuple[Any, Any]:
    """Steps d to f for two rows, `sums` being theirs, units and exponents."""
    dot, largest = align_with_c(sums[0], sums[1], sums[2], c, half)
    next_dot, next_largest = align_with_c(sums[3], sums[4], sums[5], c_next, half)
    low, high = splat_i32(-64), splat_i32(100)
    outside = (largest < low) | (largest > high) | (next_largest < low) | (next_largest > high)
    if any_lane(outside):
        d = finish_anywhere(dot, largest, overflow_bits)
        d_next = finish_anywhere(next_dot, next_largest, overflow_bits)
    else:
        d, d_next = finish_normal(dot, largest), finish_normal(next_dot, next_largest)
    return keep_special(c, d), keep_special(c_next, d_next)


@compiled
def row_scales(register: Any, shape: Any, byte: int, scaled: bool, row: int) -> Any:
    """E8M0 bytes (K / 32) of one row."""
    scales = np.empty(shape.blocks, np.int64)
    for block in range(shape.blocks):
        scales[block] = np.int64(register[shape.rows * block + row]) >> (8 * byte) & 255 if scaled else 127
    return scales


@compiled
def plain_element(inputs: Any, parameters: int, shape: Any, group: Any, row: int, column: int, c: int) -> int:
    """One element of D by the plain rule."""
    n, depth, formats = shape.operand_registers, shape.depth, (parameters & 7, parameters >> 3 & 7)
    scale_register = 2 * n + shape.rows * shape.rows // 64
    registers = carray(inputs, (scale_register + (2 if shape.blocks else 0), 64))
    a, b = np.empty(depth, np.uint16), np.empty(depth, np.uint16)
    unpack_row(registers[:n], shape, FIELD_BITS[formats[0]], row, a)
    unpack_row(registers[n : 2 * n], shape, FIELD_BITS[formats[1]], column, b)
    products, scales, order = (
        np.empty((3, depth), np.int64),
        np.empty(depth if shape.blocks else 0, np.int64),
        np.arange(depth),
    )
    fill_products(a, b, order, formats, products)
    if shape.blocks:
        scaled = parameters >> 6 & 1 != 0
        scale_a = row_scales(registers[scale_register], shape, parameters >> 7 & 3, scaled, row)
        scale_b = row_scales(registers[scale_register + 1], shape, parameters >> 9 & 3, scaled, column)
        fill_scales(scale_a, scale_b, order, products, scales)
    fraction = MANTISSA_BITS[formats[0]] + MANTISSA_BITS[formats[1]]
    return element(products, scales, fraction, c, group, SETTINGS, overflow_of(parameters))


@compiled
def replace_lanes(
    inputs: Any, outputs: Any, parameters: int, shape: Any, group: Any, place: Any, lanes: Any, c: Any
) -> None:
    """Writes the plain rule's result over the lanes of a mask. place: row, first column, index of the output word."""
    row, column, word = place
    wanted, c_words = stack_words(), stack_words()
    store(wanted, 0, select(lanes, splat_i32(1), splat_i32(0)))
    store(c_words, 0, c)
    for lane in range(WIDTH):
        if wanted[lane]:
            c_bits: Any = np.int64(c_words[lane]) & 0xFFFFFFFF
            outputs[word + lane] = np.uint32(
                plain_element(inputs, parameters, shape, group, row, column + lane, c_bits)
            )


@inlined
def overflow_of(parameters: int) -> int:
    return 0x7F7FFFFF if parameters >> 11 & 1 else 0x7F800000


@inlined
def c_word(shape: Any, row: int, column: int) -> int:
    """Index, within the words of C or D, of sixteen columns of a row."""
    register, lane_group = (row % 4, row // 4) if shape.rows == 16 else (row % 4 + 4 * (row // 8), row // 4 % 2)
    return int(64 * register + shape.rows * lane_group + column)


@inlined
def apply_scales(sums: Any, a_scales: Any, b_scales: Any, row: int, column: int) -> Any:
    """The sums of two rows with the block scales of those rows and columns, which start at the words `row` and
    `column`."""
    total, unit, exponent, next_total, next_unit, next_exponent = sums
    columns = load_i32(b_scales, column)
    scale, next_scale = splat_i32(a_scales[row]) + columns, splat_i32(a_scales[row + 1]) + columns
    return total, unit + scale, exponent + scale, next_total, next_unit + next_scale, next_exponent + next_scale


@inlined
def chain_rows(operands: Any, shape: Any, i: int, j: int, c: Any, c_next: Any, half: bool, overflow_bits: int) -> Any:
    """All groups of sixteen elements of rows i and i + 1, side by side to hide how long a step takes; with the
    largest exponents any group had."""
    a, ae, a_scales, b, be, b_scales, smallest = operands
    length = min(HALF.length if half else BYTE.length, shape.depth)
    highest, highest_next = splat_i32(NOTHING), splat_i32(NOTHING)
    for start in range(0, shape.depth, length):
        sums = sum_group(a, ae, b, be, shape.rows, i, j, start, length, half, smallest)
        highest, highest_next = maximum(highest, sums[2]), maximum(highest_next, sums[5])
        if shape.blocks:
            block = start // mfma_rule.SCALE_BLOCK * shape.rows
            sums = apply_scales(sums, a_scales, b_scales, block + i, block + j)
        c, c_next = add_to_c(sums, c, c_next, half, overflow_bits)
    return c, highest, c_next, highest_next


@inlined
def finish_row(instruction: Any, place: Any, flags: Any, c: Any, d: Any, highest: Any) -> None:
    """Writes sixteen elements, NaN where a NaN went in, and by the plain rule where Inf did. place: row, first
    column, output word."""
    inputs, outputs, parameters, shape, half = instruction
    nan = ((c & splat_i32(0x7FFFFFFF)) > splat_i32(0x7F800000)) | ((flags & splat_i32(HAS_NAN)) > splat_i32(0))
    store(outputs, place[2], select(nan, splat_i32(NAN_BITS), d))
    plain = flags == splat_i32(HAS_INFINITY)
    if half:
        plain = plain | (highest > splat_i32(126))
    if any_lane(plain):
        replace_lanes(inputs, outputs, parameters, shape, HALF if half else BYTE, place, plain, c)


@inlined
def run_rows(instruction: Any, operands: Any, a_flags: Any, b_flags: Any) -> None:
    """D from decoded operands, two rows by sixteen columns at a time."""
    inputs, _, parameters, shape, half = instruction
    c_start, overflow_bits = 128 * shape.operand_registers, overflow_of(parameters)
    for i in range(0, shape.rows, 2):
        for j in range(0, shape.rows, WIDTH):
            word, next_word = c_word(shape, i, j), c_word(shape, i + 1, j)
            c, c_next = load_i32(inputs, c_start + word), load_i32(inputs, c_start + next_word)
            d, highest, d_next, highest_next = chain_rows(operands, shape, i, j, c, c_next, half, overflow_bits)
            columns = load_i32(b_flags, j)
            finish_row(instruction, (i, j, word), splat_i32(a_flags[i]) | columns, c, d, highest)
            flags = splat_i32(a_flags[i + 1]) | columns
            finish_row(instruction, (i + 1, j, next_word), flags, c_next, d_next, highest_next)


@inlined
def legal_parameters(parameters: int, shape: Any, half: bool) -> int:
    """The parameters with undefined formats read as the first that is defined."""
    a, b = parameters & 7, parameters >> 3 & 7
    if half:
        a = b = a if a == BF16 else F16
    else:
        last = LAST_SMALL if shape.blocks else LAST_BYTE
        a, b = a if a <= last else 0, b if b <= last else 0
    return (parameters & ~63) | a | b << 3


@inlined
def run(inputs: Any, outputs: Any, parameters: int, shape: Any, half: bool) -> None:
    """The instruction on registers A, B, C, scale A, scale B."""
    n, parameters = shape.operand_registers, legal_parameters(parameters, shape, half)
    format_a, format_b = parameters & 7, parameters >> 3 & 7
    a, ae, b, be = stack_words(), stack_words(), stack_words(), stack_words()
    a_scales, b_scales, a_flags, b_flags = stack_words(), stack_words(), stack_words(), stack_words()
    decode_operand(inputs, 0, shape, format_a, half, a, ae, a_flags)
    decode_operand(inputs, n, shape, format_b, half, b, be, b_flags)
    if shape.blocks:
        register, scaled = 2 * n + shape.rows * shape.rows // 64, parameters >> 6 & 1 != 0
        decode_scales(inputs, register, shape, parameters >> 7 & 3, scaled, a_scales, a_flags)
        decode_scales(inputs, register + 1, shape, parameters >> 9 & 3, scaled, b_scales, b_flags)
    smallest = smallest_exponent(format_a) + smallest_exponent(format_b)
    instruction = (inputs, outputs, parameters, shape, half)
    run_rows(instruction, (a, ae, a_scales, b, be, b_scales, smallest), a_flags, b_flags)


_F8F6F4_16X16X128 = SHAPES["mfma_f8f6f4_16x16x128"]


def mfma_f8f6f4_16x16x128(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _F8F6F4_16X16X128, False)


_F8F6F4_32X32X64 = SHAPES["mfma_f8f6f4_32x32x64"]


def mfma_f8f6f4_32x32x64(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _F8F6F4_32X32X64, False)


_16X16X32_F8 = SHAPES["mfma_16x16x32_f8"]


def mfma_16x16x32_f8(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _16X16X32_F8, False)


_32X32X16_F8 = SHAPES["mfma_32x32x16_f8"]


def mfma_32x32x16_f8(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _32X32X16_F8, False)


_16X16X32_F16 = SHAPES["mfma_16x16x32_f16"]


def mfma_16x16x32_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _16X16X32_F16, True)


_32X32X16_F16 = SHAPES["mfma_32x32x16_f16"]


def mfma_32x32x16_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _32X32X16_F16, True)


_16X16X16_F16 = SHAPES["mfma_16x16x16_f16"]


def mfma_16x16x16_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _16X16X16_F16, True)


_32X32X8_F16 = SHAPES["mfma_32x32x8_f16"]


def mfma_32x32x8_f16(inputs: Any, outputs: Any, parameters: int) -> None:
    run(inputs, outputs, parameters, _32X32X8_F16, True)
