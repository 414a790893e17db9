"""The MFMA natives: the default rule of `gfx950.arithmetic.mfma`, sixteen columns at a time.

Why this is exact. A product of two 8-bit (or smaller) elements, or of two significands of f16 or bf16, fits f32; multiplied by the power of two that
puts the cut at the units place it still does, and the conversion to i32 is then the rule's cut toward zero. A group's sum fits i32. From
there on every number is an integer below 2^40 in f64, and floors are floors. What remains (Inf among A and B, bf16 products of 2^128
or more) goes to the plain rule, element by element.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from gfx950.arithmetic import mfma_rule
from gfx950.arithmetic.mfma import DEFAULT, SHAPES
from gfx950.arithmetic.mfma_lanes import (
    any_lane,
    bits_f32,
    bits_f64,
    bits_i32,
    bits_i64,
    floor,
    load_f32,
    load_i32,
    low_i32,
    magnitude,
    maximum,
    minimum,
    narrow,
    select,
    splat_f32,
    splat_f64,
    splat_i32,
    splat_i64,
    stack_words,
    store,
    to_f32,
    to_f64,
    truncate_i32,
    widen_i64,
)
from gfx950.arithmetic.mfma_rule import (
    ALL_ONES_NAN,
    BIAS,
    EXPONENT_BITS,
    FIELD_BITS,
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
HAS_NAN, HAS_INFINITY = 1, 2
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
def decode_codes(codes: Any, format_: int, significand_only: bool) -> tuple[Any, Any, Any]:
    """f32 values (or significands below 2), exponents and special flags of sixteen codes."""
    mantissa_bits, bias = MANTISSA_BITS[format_], BIAS[format_]
    magnitude_bits = mantissa_bits + EXPONENT_BITS[format_]
    code = codes & splat_i32((1 << magnitude_bits) - 1)
    sign = (codes >> splat_i32(magnitude_bits)) << splat_i32(31)
    field = code >> splat_i32(mantissa_bits)
    mantissa = code & splat_i32((1 << mantissa_bits) - 1)
    if significand_only:
        exponent_bits, subnormal_unit = splat_i32(127), power_f32(splat_i32(-mantissa_bits))
    else:
        exponent_bits, subnormal_unit = field + splat_i32(127 - bias), power_f32(splat_i32(1 - bias - mantissa_bits))
    normal = (exponent_bits << splat_i32(23)) | (mantissa << splat_i32(23 - mantissa_bits))
    subnormal = bits_i32(to_f32(mantissa) * subnormal_unit)
    zero = splat_i32(0)
    value = bits_f32(select(field == zero, subnormal, normal) | sign)
    exponent = select(code == zero, splat_i32(NOTHING), maximum(field, splat_i32(1)) - splat_i32(bias))
    infinity, finite_end = special_bounds(format_)
    flags = select(code > splat_i32(finite_end), splat_i32(HAS_NAN), zero)
    return value, exponent, select(code == splat_i32(infinity), splat_i32(HAS_INFINITY), flags)


@inlined
def field_of(inputs: Any, word: int, bit: int, field_bits: int) -> Any:
    """Sixteen lanes' field that starts `bit` bits after the register word at index `word`."""
    offset, shift = word + 64 * (bit >> 5), bit & 31
    codes = (load_i32(inputs, offset) >> splat_i32(shift)) & splat_i32((1 << min(field_bits, 32 - shift)) - 1)
    if shift + field_bits > 32:
        codes = codes | (load_i32(inputs, offset + 64) << splat_i32(32 - shift))
    return codes & splat_i32((1 << field_bits) - 1)


@compiled
def decode_operand(inputs: Any, register: int, shape: Any, format_: int, half: bool, values: Any, exponents: Any, flags: Any) -> None:
    """Values and exponents [k][row] of the operand that starts at `register`, and flags [row] of its specials."""
    for row in range(0, shape.rows, WIDTH):
        seen = splat_i32(0)
        for position in range(shape.depth):
            lane_group, item = position // shape.lane_items, position % shape.lane_items
            word = 64 * register + shape.rows * lane_group + row
            codes = field_of(inputs, word, item * FIELD_BITS[format_], FIELD_BITS[format_])
            value, exponent, special = decode_codes(codes, format_, half)
            index = k_of_item(shape, FIELD_BITS[format_], lane_group, item) * shape.rows + row
            store(values, index, value)
            store(exponents, index, exponent)
            seen = seen | special
        store(flags, row, seen)


@compiled
def decode_scales(inputs: Any, register: int, shape: Any, byte: int, scaled: bool, scales: Any, flags: Any) -> None:
    """Scale exponents [block][row]; a NaN scale flags its row."""
    for index in range(shape.rows * shape.blocks):
        value = np.int64(inputs[64 * register + index]) >> (8 * byte) & 255 if scaled else 127
        scales[index] = value - 127
        if value == 255:
            flags[index % shape.rows] |= HAS_NAN


@inlined
def align_part(a: Any, ae: Any, b: Any, be: Any, rows: int, i: int, j: int, start: int, step: int, count: int, half: bool) -> Any:
    """Steps a and b for the products of row i with columns j to j + 15 at k = start, start + step ...: sums and exponents."""
    largest = splat_i32(2 * NOTHING)
    for t in range(count):
        row = (start + step * t) * rows
        largest = maximum(largest, splat_i32(ae[row + i]) + load_i32(be, row + j))
    total, lift = splat_i32(0), splat_i32(24) - largest
    scale = power_f32(minimum(lift, splat_i32(127)))
    for t in range(count):
        row = (start + step * t) * rows
        if half:  # significands, each with its own exponent
            scale = power_f32(splat_i32(ae[row + i]) + load_i32(be, row + j) + lift)
        total = total + truncate_i32(bits_f32(splat_i32(a[row + i])) * load_f32(b, row + j) * scale)
    return total, largest


@inlined
def sum_parts(a: Any, ae: Any, b: Any, be: Any, rows: int, i: int, j: int, start: int, count: int, half: bool) -> Any:
    """Steps a to c."""
    if half:
        return align_part(a, ae, b, be, rows, i, j, start, 1, count, half)
    even, even_exponent = align_part(a, ae, b, be, rows, i, j, start, 2, count // 2, half)
    odd, odd_exponent = align_part(a, ae, b, be, rows, i, j, start + 1, 2, count // 2, half)
    largest = maximum(even_exponent, odd_exponent)
    end = splat_i32(31)
    return (even >> minimum(largest - even_exponent, end)) + (odd >> minimum(largest - odd_exponent, end)), largest


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
def add_to_c(total: Any, exponent: Any, c: Any, half: bool, overflow_bits: int) -> Any:
    """Steps d to f; a C of Inf or NaN is kept."""
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
    lift = maximum(exponent - largest + splat_i32(8), splat_i32(-200))
    dot = floor(to_f64(total) * power_f64(lift)) + to_f64(addend) * splat_f64(256.0)
    top = low_i32((bits_i64(dot) >> splat_i64(52)) & splat_i64(2047)) - splat_i32(1023)
    drop = maximum(maximum(top - splat_i32(31), splat_i32(-125) - largest), zero)
    kept = floor(dot * power_f64(zero - drop)) * power_f64(drop + largest - splat_i32(32))
    return select(field == splat_i32(255), c, round_lanes(kept, overflow_bits))


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
    registers = numba.carray(inputs, (scale_register + (2 if shape.blocks else 0), 64))
    a, b = np.empty(depth, np.uint16), np.empty(depth, np.uint16)
    unpack_row(registers[:n], shape, FIELD_BITS[formats[0]], row, a)
    unpack_row(registers[n : 2 * n], shape, FIELD_BITS[formats[1]], column, b)
    products, scales, order = np.empty((3, depth), np.int64), np.empty(depth if shape.blocks else 0, np.int64), np.arange(depth)
    fill_products(a, b, order, formats, products)
    if shape.blocks:
        scaled = parameters >> 6 & 1 != 0
        scale_a = row_scales(registers[scale_register], shape, parameters >> 7 & 3, scaled, row)
        scale_b = row_scales(registers[scale_register + 1], shape, parameters >> 9 & 3, scaled, column)
        fill_scales(scale_a, scale_b, order, products, scales)
    fraction = MANTISSA_BITS[formats[0]] + MANTISSA_BITS[formats[1]]
    return element(products, scales, fraction, c, group, SETTINGS, overflow_of(parameters))


@compiled
def replace_lanes(inputs: Any, outputs: Any, parameters: int, shape: Any, group: Any, place: Any, lanes: Any, c: Any) -> None:
    """Writes the plain rule's result over the lanes of a mask. place: row, first column, index of the output word."""
    row, column, word = place
    wanted, c_words = stack_words(), stack_words()
    store(wanted, 0, select(lanes, splat_i32(1), splat_i32(0)))
    store(c_words, 0, c)
    for lane in range(WIDTH):
        if wanted[lane]:
            c_bits = np.int64(c_words[lane]) & 0xFFFFFFFF
            outputs[word + lane] = np.uint32(plain_element(inputs, parameters, shape, group, row, column + lane, c_bits))


@inlined
def overflow_of(parameters: int) -> int:
    return 0x7F7FFFFF if parameters >> 11 & 1 else 0x7F800000


@inlined
def c_word(shape: Any, row: int, column: int) -> int:
    """Index, within the words of C or D, of sixteen columns of a row."""
    register, lane_group = (row % 4, row // 4) if shape.rows == 16 else (row % 4 + 4 * (row // 8), row // 4 % 2)
    return 64 * register + shape.rows * lane_group + column


@inlined
def chain_lanes(operands: Any, shape: Any, i: int, j: int, c: Any, half: bool, overflow_bits: int) -> Any:
    """All groups of sixteen elements; with the largest exponent any group had."""
    a, ae, a_scales, b, be, b_scales = operands
    length = min(HALF.length if half else BYTE.length, shape.depth)
    highest = splat_i32(NOTHING)
    for start in range(0, shape.depth, length):
        total, exponent = sum_parts(a, ae, b, be, shape.rows, i, j, start, length, half)
        highest = maximum(highest, exponent)
        if shape.blocks:
            block = start // mfma_rule.SCALE_BLOCK * shape.rows
            exponent = exponent + splat_i32(a_scales[block + i]) + load_i32(b_scales, block + j)
        c = add_to_c(total, exponent, c, half, overflow_bits)
    return c, highest


@inlined
def run(inputs: Any, outputs: Any, parameters: int, shape: Any, half: bool) -> None:
    """The instruction on registers A, B, C, scale A, scale B. An undefined format code of F8F6F4 is read as fp8."""
    n, rows = shape.operand_registers, shape.rows
    c_start, group = 128 * n, HALF if half else BYTE
    format_a, format_b = parameters & 7, parameters >> 3 & 7
    a, ae, b, be = stack_words(), stack_words(), stack_words(), stack_words()
    a_scales, b_scales, a_flags, b_flags = stack_words(), stack_words(), stack_words(), stack_words()
    decode_operand(inputs, 0, shape, format_a, half, a, ae, a_flags)
    decode_operand(inputs, n, shape, format_b, half, b, be, b_flags)
    if shape.blocks:
        register, scaled = 2 * n + rows * rows // 64, parameters >> 6 & 1 != 0
        decode_scales(inputs, register, shape, parameters >> 7 & 3, scaled, a_scales, a_flags)
        decode_scales(inputs, register + 1, shape, parameters >> 9 & 3, scaled, b_scales, b_flags)
    operands = (a, ae, a_scales, b, be, b_scales)
    for i in range(rows):
        for j in range(0, rows, WIDTH):
            word = c_word(shape, i, j)
            c = load_i32(inputs, c_start + word)
            d, highest = chain_lanes(operands, shape, i, j, c, half, overflow_of(parameters))
            flags = splat_i32(a_flags[i]) | load_i32(b_flags, j)
            nan = ((c & splat_i32(0x7FFFFFFF)) > splat_i32(0x7F800000)) | ((flags & splat_i32(HAS_NAN)) > splat_i32(0))
            store(outputs, word, select(nan, splat_i32(NAN_BITS), d))
            plain = flags == splat_i32(HAS_INFINITY)
            if half:
                plain = plain | (highest > splat_i32(126))
            if any_lane(plain):
                replace_lanes(inputs, outputs, parameters, shape, group, (i, j, word), plain, c)


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
