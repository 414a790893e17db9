"""The matrix rule of `gfx950.arithmetic.mfma`, step by step in integers, for every format and every model: readable,
not fast.

A finite element is significand * 2^(exponent - mantissa bits); the significand is a signed integer that holds the
hidden bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gfx950.arithmetic.mfma import ELEMENTS, FIELD_BITS
from gfx950.arithmetic.native import compiled, compiled_entry
from gfx950.formats import NanKind

# Per `Format`: bits of exponent and mantissa, bias, and which codes are special.
EXPONENT_BITS = tuple(element.exponent_bits for element in ELEMENTS)
MANTISSA_BITS = tuple(element.mantissa_bits for element in ELEMENTS)
BIAS = tuple(element.bias for element in ELEMENTS)
IEEE, ALL_ONES_NAN, MINUS_ZERO_NAN = 1, 2, 3
_KINDS = (NanKind.none, NanKind.ieee, NanKind.all_ones, NanKind.negative_zero)
SPECIALS = tuple(_KINDS.index(element.nan) for element in ELEMENTS)

FINITE, INFINITE, NAN = 0, 1, 2
NOTHING = -100_000  # the exponent of a group without a nonzero product
SCALE_BLOCK = 32


class Settings(NamedTuple):
    """The fields of a model that are not of the group step."""

    group_order: int
    scale_entry: int
    nan_bits: int


class Specials(NamedTuple):
    """Which special products a group holds."""

    nan: bool
    plus: bool
    minus: bool


@compiled
def classify(code: int, format_: int) -> int:
    mantissa_bits, magnitude_bits = MANTISSA_BITS[format_], MANTISSA_BITS[format_] + EXPONENT_BITS[format_]
    magnitude, specials = code & ((1 << magnitude_bits) - 1), SPECIALS[format_]
    if specials == IEEE:
        infinity = ((1 << EXPONENT_BITS[format_]) - 1) << mantissa_bits
        return NAN if magnitude > infinity else INFINITE if magnitude == infinity else FINITE
    if specials == ALL_ONES_NAN:
        return NAN if magnitude == (1 << magnitude_bits) - 1 else FINITE
    return NAN if specials == MINUS_ZERO_NAN and code == 1 << magnitude_bits else FINITE


@compiled
def decode(code: int, format_: int) -> tuple[int, int]:
    """Significand and exponent; for Inf the significand tells the sign."""
    mantissa_bits, exponent_bits = MANTISSA_BITS[format_], EXPONENT_BITS[format_]
    significand = code & ((1 << mantissa_bits) - 1)
    field = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    if field:
        significand |= 1 << mantissa_bits
    if code >> (mantissa_bits + exponent_bits) & 1:
        significand = -significand
    return significand, max(field, 1) - BIAS[format_]


@compiled
def shift_floor(value: int, left: int) -> int:
    return value << left if left >= 0 else value >> min(-left, 63)


@compiled
def shift_truncate(value: int, left: int) -> int:
    return value << left if left >= 0 else -(-value >> min(-left, 63)) if value < 0 else value >> min(-left, 63)


@compiled
def top_bit(value: int) -> int:
    """The exponent of the highest bit of a positive value."""
    result = -1
    while value:
        value >>= 1
        result += 1
    return result


@compiled
def round_f32(total: int, unit: int, sum_bits: int, overflow_bits: int) -> int:
    """Steps e and f: total * 2^unit, floored `sum_bits` below its exponent, as the bits of the nearest f32."""
    if total == 0:
        return 0
    drop = max(top_bit(abs(total)) + unit, -126) - sum_bits - unit
    if drop > 0:
        total = (total >> drop) << drop
    magnitude = abs(total)
    exponent = max(top_bit(magnitude) + unit, -126)
    shift = exponent - 23 - unit
    mantissa = magnitude << max(-shift, 0)
    if shift > 0:
        mantissa = magnitude >> shift
        rest, half = magnitude - (mantissa << shift), 1 << (shift - 1)
        if rest > half or (rest == half and mantissa & 1):
            mantissa += 1
    bits = min(((exponent + 126) << 23) + mantissa, 0x7F800000)
    if bits == 0x7F800000:
        bits = overflow_bits
    return bits | (0x80000000 if total < 0 else 0)


@compiled
def add_to_c(total: int, exponent: int, c: int, group: Any, overflow_bits: int) -> int:
    """Steps d to f: total * 2^(exponent - product_bits) plus the finite f32 `c`."""
    field = c >> 23 & 0xFF
    c_significand = (c & 0x7FFFFF) | (0x800000 if field else 0)
    if c >> 31:
        c_significand = -c_significand
    c_exponent = max(field, 1) - 127
    largest = max(exponent, c_exponent)
    dot = shift_floor(total, exponent - largest + group.dot_bits - group.product_bits)
    addend = shift_floor(c_significand, c_exponent - largest + group.c_bits - 23)
    if c_exponent < largest - group.c_window:
        addend = 0
    dot += addend << (group.dot_bits - group.c_bits)
    return round_f32(dot, largest - group.dot_bits, group.sum_bits, overflow_bits)


@compiled
def part_of(position: int, length: int, split: int) -> int:
    if split == 1:
        return position & 1
    return int(split == 2 and position >= length // 2)


@compiled
def align_products(significands: Any, exponents: Any, fraction: int, group: Any, part: int) -> tuple[int, int]:
    """Steps a and b for one part of a group: the sum of the cut products and the exponent it is aligned to."""
    length = len(significands)
    largest, total = NOTHING, 0
    for p in range(length):
        if significands[p] and part_of(p, length, group.split) == part:
            largest = max(largest, exponents[p])
    for p in range(length):
        if significands[p] and part_of(p, length, group.split) == part:
            total += shift_truncate(significands[p], group.product_bits + exponents[p] - largest - fraction)
    return total, largest


@compiled
def sum_group(significands: Any, exponents: Any, fraction: int, group: Any) -> tuple[int, int]:
    """Steps a to c."""
    first, first_exponent = align_products(significands, exponents, fraction, group, 0)
    second, second_exponent = align_products(significands, exponents, fraction, group, 1)
    largest = max(first_exponent, second_exponent)
    return shift_floor(first, first_exponent - largest) + shift_floor(second, second_exponent - largest), largest


@compiled
def meet_specials(c: int, nan: bool, plus: bool, minus: bool, nan_bits: int) -> int:
    """The result where C or a product is special, or -1 where all are finite."""
    if c & 0x7FFFFFFF > 0x7F800000 or nan:
        return nan_bits
    plus = plus or c == 0x7F800000
    minus = minus or c == 0xFF800000
    if plus and minus:
        return nan_bits
    return 0x7F800000 if plus else 0xFF800000 if minus else -1


@compiled
def find_specials(significands: Any, exponents: Any, kinds: Any, fraction: int, product_overflow: int) -> Specials:
    nan, plus, minus = False, False, False
    for p in range(len(kinds)):
        two_or_more = int(abs(significands[p]) >> (fraction + 1) != 0)
        infinite = kinds[p] == INFINITE
        if product_overflow and significands[p] and exponents[p] + two_or_more >= 128:
            infinite = True
        nan = nan or kinds[p] == NAN
        plus = plus or (infinite and significands[p] > 0)
        minus = minus or (infinite and significands[p] < 0)
    return Specials(nan, plus, minus)


@compiled
def group_step(products: Any, start: int, fraction: int, c: int, group: Any, nan_bits: int, overflow_bits: int) -> int:
    """One group of products, (3, K) rows significand, exponent and kind, from position `start`, joined to C."""
    end = min(start + group.length, products.shape[1])
    significands, exponents, kinds = products[0, start:end], products[1, start:end], products[2, start:end]
    found = find_specials(significands, exponents, kinds, fraction, group.product_overflow)
    special = meet_specials(c, found.nan, found.plus, found.minus, nan_bits)
    if special >= 0:
        return special
    total, exponent = sum_group(significands, exponents, fraction, group)
    return add_to_c(total, exponent, c, group, overflow_bits)


@compiled
def chain(
    products: Any, start: int, end: int, fraction: int, c: int, group: Any, nan_bits: int, overflow_bits: int
) -> int:
    for first in range(start, end, group.length):
        c = group_step(products, first, fraction, c, group, nan_bits, overflow_bits)
    return c


@compiled
def block_sum_step(block: int, scale: int, c: int, group: Any, nan_bits: int, overflow_bits: int) -> int:
    """C plus the f32 `block` times 2^scale, through steps d to f."""
    if block & 0x7F800000 == 0x7F800000:
        nan = block & 0x7FFFFF != 0
        return meet_specials(c, nan, not nan and not block >> 31, not nan and block >> 31 != 0, nan_bits)
    special = meet_specials(c, False, False, False, nan_bits)
    if special >= 0:
        return special
    field = block >> 23
    significand = (block & 0x7FFFFF) | (0x800000 if field & 0xFF else 0)
    significand = (-significand if block >> 31 else significand) << (group.product_bits - 23)
    exponent = max(field & 0xFF, 1) - 127 + scale if significand else NOTHING
    return add_to_c(significand, exponent, c, group, overflow_bits)


@compiled
def element(products: Any, scales: Any, fraction: int, c: int, group: Any, settings: Any, overflow_bits: int) -> int:
    """One element of D from its products in group order and the combined scale exponent of each position."""
    depth = products.shape[1]
    block_sum = settings.scale_entry == 1 and len(scales) > 0
    if not block_sum:
        for p in range(len(scales)):
            products[1, p] += scales[p]
    length = SCALE_BLOCK if block_sum else depth
    for start in range(0, depth, length):
        first = 0 if block_sum else c
        end = min(start + length, depth)
        result = chain(products, start, end, fraction, first, group, settings.nan_bits, overflow_bits)
        c = block_sum_step(result, scales[start], c, group, settings.nan_bits, overflow_bits) if block_sum else result
    return c


@compiled
def fill_products(a: Any, b: Any, order: Any, formats: Any, products: Any) -> None:
    """Products of two rows of codes in group order, (3, K): significand, exponent, kind."""
    for p in range(len(order)):
        k = order[p]
        a_kind, b_kind = classify(a[k], formats[0]), classify(b[k], formats[1])
        a_significand, a_exponent = decode(a[k], formats[0])
        b_significand, b_exponent = decode(b[k], formats[1])
        products[0, p] = a_significand * b_significand
        products[1, p] = a_exponent + b_exponent
        products[2, p] = max(a_kind, b_kind)
        if products[2, p] == INFINITE and products[0, p] == 0:
            products[2, p] = NAN


@compiled
def fill_scales(a: Any, b: Any, order: Any, products: Any, scales: Any) -> None:
    """Combined scale exponents in group order; a NaN scale makes its products NaN."""
    for p in range(len(scales)):
        block = order[p] // SCALE_BLOCK
        scales[p] = np.int64(a[block]) + np.int64(b[block]) - 254
        if a[block] == 255 or b[block] == 255:
            products[2, p] = NAN


@compiled_entry
def multiply_codes(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    c: Any,
    d: Any,
    order: Any,
    formats: Any,
    group: Any,
    settings: Any,
    clamp: bool,
) -> None:
    """D = A B + C on codes: a (M, K), b (N, K), scales (rows, K / 32) or (0, 0), c and d f32 bits (M, N), K in group
    order `order`."""
    depth = len(order)
    overflow_bits = 0x7F7FFFFF if clamp else 0x7F800000
    fraction = MANTISSA_BITS[formats[0]] + MANTISSA_BITS[formats[1]]
    products = np.empty((3, depth), np.int64)
    scales = np.empty(depth if len(scale_a) else 0, np.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            fill_products(a[i], b[j], order, formats, products)
            if len(scales):
                fill_scales(scale_a[i], scale_b[j], order, products, scales)
            addend: Any = np.int64(c[i, j])
            d[i, j] = element(products, scales, fraction, addend, group, settings, overflow_bits)


@compiled
def k_of_item(shape: Any, field_bits: int, lane_group: int, item: int) -> int:
    """The k of an item of a lane; 8-bit F8F6F4 operands hold two runs of 16 that lie half of K apart."""
    if shape.blocks and field_bits == 8:
        return int(shape.depth // 2 * (item // 16) + 16 * lane_group + item % 16)
    return int(shape.lane_items * lane_group + item)


@compiled
def unpack_row(registers: Any, shape: Any, field_bits: int, row: int, codes: Any) -> None:
    """Element codes (K) of one row of A (column of B) held in `registers` (n, 64)."""
    for position in range(shape.depth):
        lane_group, item = position // shape.lane_items, position % shape.lane_items
        lane, bit = row + shape.rows * lane_group, item * field_bits
        code = np.int64(registers[bit >> 5, lane]) >> (bit & 31)
        if (bit & 31) + field_bits > 32:
            code |= np.int64(registers[(bit >> 5) + 1, lane]) << (32 - (bit & 31))
        codes[k_of_item(shape, field_bits, lane_group, item)] = code & ((1 << field_bits) - 1)


@compiled
def unpack_operand(registers: Any, shape: Any, field_bits: int, codes: Any) -> None:
    """Element codes (rows, K) of an operand."""
    for row in range(shape.rows):
        unpack_row(registers, shape, field_bits, row, codes[row])


@compiled
def unpack_scales(register: Any, shape: Any, byte: int, scaled: bool, scales: Any) -> None:
    for lane in range(shape.rows * shape.blocks):
        value = register[lane] >> (8 * byte) & 255 if scaled else 127
        scales[lane % shape.rows, lane // shape.rows] = value


@compiled
def c_position(shape: Any, register: int, lane: int) -> tuple[int, int]:
    """Row and column of D that a lane's register holds."""
    row = 4 * (lane // shape.rows) + register % 4 + 8 * (register // 4)
    return row, lane % shape.rows


@compiled
def group_positions(shape: Any, field_bits: int, physical: bool) -> Any:
    order = np.arange(shape.depth)
    if physical:
        for p in range(shape.depth):
            order[p] = k_of_item(shape, field_bits, p // shape.lane_items, p % shape.lane_items)
    return order


@compiled_entry
def run_registers(inputs: Any, outputs: Any, parameters: int, shape: Any, group: Any, settings: Any) -> None:
    """The whole instruction on registers, in the layout of `mfma.SHAPES`: A, B, C and the two scale registers, one
    after the other."""
    formats = (parameters & 7, parameters >> 3 & 7)
    n, rows = shape.operand_registers, shape.rows
    a, b = np.empty((rows, shape.depth), np.uint16), np.empty((rows, shape.depth), np.uint16)
    unpack_operand(inputs[:n], shape, FIELD_BITS[formats[0]], a)
    unpack_operand(inputs[n : 2 * n], shape, FIELD_BITS[formats[1]], b)
    c, d = np.empty((rows, rows), np.uint32), np.empty((rows, rows), np.uint32)
    scale_rows = rows if shape.blocks else 0
    scale_a, scale_b = np.empty((scale_rows, shape.blocks), np.uint8), np.empty((scale_rows, shape.blocks), np.uint8)
    c_registers = rows * rows // 64
    if shape.blocks:
        scale_register, scaled = 2 * n + c_registers, bool(parameters >> 6 & 1)
        unpack_scales(inputs[scale_register], shape, parameters >> 7 & 3, scaled, scale_a)
        unpack_scales(inputs[scale_register + 1], shape, parameters >> 9 & 3, scaled, scale_b)
    for register in range(c_registers):
        for lane in range(64):
            c[c_position(shape, register, lane)] = inputs[2 * n + register, lane]
    # A mixed pair has two physical orders; A's is taken.
    order = group_positions(shape, FIELD_BITS[formats[0]], settings.group_order == 1)
    multiply_codes(a, b, scale_a, scale_b, c, d, order, formats, group, settings, bool(parameters >> 11 & 1))
    for register in range(c_registers):
        for lane in range(64):
            outputs[register, lane] = d[c_position(shape, register, lane)]
