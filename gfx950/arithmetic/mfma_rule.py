"""The matrix arithmetic of every shape under every model, as functions compiled once: shape and model are numbers they
are handed.

Work happens in one block of 32-bit words, where a `Matrix` says what lies where. A finite element is significand *
2^(exponent - mantissa bits); the significand is a signed integer that holds the hidden bit. Elements stand in group
order, the first part of a group before the second (`stand`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gfx950.arithmetic.mfma_models import ELEMENTS, FIELD_BITS
from gfx950.arithmetic.mfma_numbers import (
    PRODUCT_RULE_AT,
    QUESTIONS_AT,
    RULE_NUMBERS,
    RULES_AT,
    SAMPLE_SHIFT,
    ProductNumbers,
    QuestionNumbers,
    ShapeNumbers,
)
from gfx950.arithmetic.mfma_switches import (
    Direction,
    GroupRule,
    Method,
    MixedFormats,
    NanRule,
    SparseOrder,
    Split,
    Subnormals,
    ZeroSign,
)
from gfx950.arithmetic.native import compiled
from gfx950.formats import NanKind

# Per `Format`: bits of exponent and mantissa, bias, and which codes are special.
EXPONENT_BITS = tuple(element.exponent_bits for element in ELEMENTS)
MANTISSA_BITS = tuple(element.mantissa_bits for element in ELEMENTS)
BIAS = tuple(element.bias for element in ELEMENTS)
IEEE, ALL_ONES_NAN, MINUS_ZERO_NAN = 1, 2, 3
_KINDS = (NanKind.none, NanKind.ieee, NanKind.all_ones, NanKind.negative_zero)
SPECIALS = tuple(_KINDS.index(element.nan) for element in ELEMENTS)

INFINITE, NAN, SCALE_NAN, ABSENT, NEGATIVE = 1, 2, 4, 8, 16  # flags of an element
SPECIAL = INFINITE | NAN | SCALE_NAN
NOTHING = -100_000  # the exponent of a zero, and of a sum without a nonzero product
NONE = -50_000  # exponents below are those of nothing
SCALE_BLOCK = 32
LONGEST = 128  # the longest group
INFINITY, LARGEST, MAGNITUDE, SIGN, QUIET = 0x7F800000, 0x7F7FFFFF, 0x7FFFFFFF, 0x80000000, 0x400000
LIMBS = 32  # of 32 bits: exponents of terms lie within 700 of each other


class Matrix(NamedTuple):
    """Where an operand's words begin: of each row `stride` significands, exponents, flags, codes, and whether a group
    holds anything special."""

    significands: int
    exponents: int
    flags: int
    codes: int
    special: int
    stride: int
    format: int


class Run(NamedTuple):
    """What all elements of D share. products: where the significands of a group go, then its exponents. fraction:
    mantissa bits of a product. depth: positions of an element's products."""

    rule: Any
    nan: int
    nan_bits: int
    block_sum: int
    overflow_bits: int
    fraction: int
    depth: int
    products: int


@compiled
def matrix_at(first: int, count: int, stride: int, format_: int) -> Any:
    """A matrix of `count` elements from word `first` on; it takes 5 * count words."""
    return Matrix(first, first + count, first + 2 * count, first + 3 * count, first + 4 * count, stride, format_)


# ---- Cutting and rounding --------------------------------------------------------------------------------------------


@compiled
def shifted(value: int, left: int, direction: int) -> int:
    """value * 2^left, cut to an integer."""
    if left >= 0:
        return value << left
    right = min(-left, 62)
    floor = value >> right
    if direction == Direction.down:
        return floor
    rest = value - (floor << right)
    if direction == Direction.zero:
        return floor + int(value < 0 and rest != 0)
    half = 1 << (right - 1)
    return floor + int(rest > half or (rest == half and floor & 1 == 1))


@compiled
def top_bit(value: int) -> int:
    """The exponent of the highest bit of a positive value; 0 of 0."""
    result = 0
    for step in (32, 16, 8, 4, 2, 1):
        if value >> step:
            value >>= step
            result += step
    return result


@compiled
def round_f32(total: int, unit: int, sum_bits: int, directions: tuple[int, int], overflow_bits: int) -> int:
    """Steps e and f: total * 2^unit, not zero, cut `sum_bits` below its exponent, as the bits of an f32. directions: of
    the cut and of the rounding."""
    sum_direction, output_direction = directions
    drop = max(top_bit(abs(total)) + unit, -126) - sum_bits - unit
    if drop > 0:
        total = shifted(total, -drop, sum_direction) << drop
    magnitude = abs(total)
    exponent = max(top_bit(magnitude) + unit, -126)
    mantissa = shifted(magnitude, unit + 23 - exponent, output_direction)
    bits = min(((exponent + 126) << 23) + mantissa, INFINITY)
    if bits == INFINITY:
        bits = LARGEST if output_direction == Direction.zero else overflow_bits
    return bits | (SIGN if total < 0 else 0)


@compiled
def flush(bits: int, how: int) -> int:
    """f32 bits, a subnormal one flushed where `how` says so."""
    return bits & SIGN if how == Subnormals.flush and bits & INFINITY == 0 else bits


# ---- Elements --------------------------------------------------------------------------------------------------------


@compiled
def flags_of(code: int, format_: int) -> int:
    mantissa_bits, magnitude_bits = MANTISSA_BITS[format_], MANTISSA_BITS[format_] + EXPONENT_BITS[format_]
    magnitude, specials = code & ((1 << magnitude_bits) - 1), SPECIALS[format_]
    sign = NEGATIVE if code >> magnitude_bits & 1 else 0
    if specials == IEEE:
        infinity = ((1 << EXPONENT_BITS[format_]) - 1) << mantissa_bits
        return sign | (NAN if magnitude > infinity else INFINITE if magnitude == infinity else 0)
    if specials == ALL_ONES_NAN:
        return sign | (NAN if magnitude == (1 << magnitude_bits) - 1 else 0)
    return sign | (NAN if specials == MINUS_ZERO_NAN and code == 1 << magnitude_bits else 0)


@compiled
def write_element(work: Any, at: Any, place: int, code: int, scale: int, flush_inputs: int) -> None:
    """Decodes a code to `place`; the exponent of its block scale is added (no number of exponents is a NaN scale)."""
    format_ = at.format
    mantissa_bits, exponent_bits = MANTISSA_BITS[format_], EXPONENT_BITS[format_]
    significand, field = code & ((1 << mantissa_bits) - 1), code >> mantissa_bits & ((1 << exponent_bits) - 1)
    flags = flags_of(code, format_)
    if field:
        significand |= 1 << mantissa_bits
    elif flush_inputs == Subnormals.flush:
        significand = 0
    if scale == 128:
        flags |= SCALE_NAN
    work[at.significands + place] = -significand if flags & NEGATIVE else significand
    work[at.exponents + place] = max(field, 1) - BIAS[format_] + scale if significand else NOTHING
    work[at.flags + place] = flags
    work[at.codes + place] = code


@compiled
def write_absent(work: Any, at: Any, place: int) -> None:
    work[at.significands + place] = 0
    work[at.exponents + place] = NOTHING
    work[at.flags + place] = ABSENT
    work[at.codes + place] = 0


@compiled
def stand(position: int, depth: int, length: int, split: int) -> int:
    """Where the element of a position in group order stands: of a group split in even and odd, the even ones first."""
    if split != Split.even_odd:
        return position
    start = position // length * length
    offset, size = position - start, min(length, depth - start)
    return start + offset // 2 + (offset & 1) * ((size + 1) // 2)


@compiled
def mark_groups(work: Any, at: Any, row: int, depth: int, length: int) -> None:
    """Marks the groups of a row that hold a special element."""
    first = row * at.stride
    for group in range((depth + length - 1) // length):
        seen = 0
        for p in range(group * length, min((group + 1) * length, depth)):
            seen |= work[at.flags + first + p]
        work[at.special + first + group] = seen & SPECIAL


# ---- One group of products -------------------------------------------------------------------------------------------


@compiled
def widened(code: int, format_: int) -> int:
    """The f32 NaN of an element's NaN: its sign, its payload at the left, quiet."""
    mantissa_bits = MANTISSA_BITS[format_]
    sign = code >> (mantissa_bits + EXPONENT_BITS[format_]) & 1
    payload = (code & ((1 << mantissa_bits) - 1)) << (23 - mantissa_bits)
    return sign << 31 | INFINITY | QUIET | payload


@compiled
def is_nan(bits: int) -> bool:
    return bits & MAGNITUDE > INFINITY


@compiled
def chosen_nan(first: int, c: int, run: Any) -> int:
    """The NaN of a step that has one: `first` is the first NaN among its products, or -1."""
    if run.nan == NanRule.canonical:
        return int(run.nan_bits)
    of_c = c | QUIET if is_nan(c) else -1
    one, other = (of_c, first) if run.nan == NanRule.c_first else (first, of_c)
    return one if one >= 0 else other if other >= 0 else int(run.nan_bits)


@compiled
def special_step(work: Any, a: Any, b: Any, i: int, j: int, start: int, end: int, c: int, run: Any) -> int:
    """The result of a group where C or a product is special, or -1 where all are finite."""
    nan, first, plus, minus = is_nan(c), -1, c == INFINITY, c == INFINITY | SIGN
    for p in range(end - start):
        place = start + stand(p, end - start, run.rule.length, run.rule.split)
        pa, pb = i * a.stride + place, j * b.stride + place
        a_flags, b_flags = work[a.flags + pa], work[b.flags + pb]
        if a_flags & ABSENT:
            continue
        if (a_flags | b_flags) & (NAN | SCALE_NAN):
            nan = True
            if first < 0 and a_flags & NAN:
                first = widened(work[a.codes + pa], a.format)
            if first < 0 and b_flags & NAN:
                first = widened(work[b.codes + pb], b.format)
            continue
        significand = work[a.significands + pa] * work[b.significands + pb]
        infinite = (a_flags | b_flags) & INFINITE != 0
        if infinite and significand == 0:
            nan = True
        if run.rule.product_overflow and significand != 0:
            two_or_more = int(abs(significand) >> (run.fraction + 1) != 0)
            infinite = infinite or work[a.exponents + pa] + work[b.exponents + pb] + two_or_more >= 128
        plus = plus or (infinite and significand > 0)
        minus = minus or (infinite and significand < 0)
    if nan or (plus and minus):
        return chosen_nan(first, c, run)
    return INFINITY if plus else INFINITY | SIGN if minus else -1


@compiled
def all_minus_zero(work: Any, a: Any, b: Any, i: int, j: int, start: int, end: int) -> bool:
    """Whether every product that is there is -0."""
    for p in range(start, end):
        pa, pb = i * a.stride + p, j * b.stride + p
        a_flags = work[a.flags + pa]
        if a_flags & ABSENT:
            continue
        negative = (a_flags ^ work[b.flags + pb]) & NEGATIVE
        if not negative or work[a.significands + pa] * work[b.significands + pb] != 0:
            return False
    return True


@compiled
def fill_products(work: Any, a: Any, b: Any, i: int, j: int, start: int, end: int, products: int) -> None:
    a_first, b_first = i * a.stride + start, j * b.stride + start
    for p in range(end - start):
        work[products + p] = work[a.significands + a_first + p] * work[b.significands + b_first + p]
    for p in range(end - start):
        work[products + LONGEST + p] = work[a.exponents + a_first + p] + work[b.exponents + b_first + p]


@compiled
def largest_exponent(work: Any, first: int, end: int) -> int:
    largest = NOTHING
    for p in range(first, end):
        largest = max(largest, work[p])
    return largest


@compiled
def align_products(work: Any, products: int, first: int, end: int, lift: int, direction: int) -> int:
    """Step b: the sum of the products, each times 2^(its exponent + lift) and cut to an integer."""
    total = 0
    if direction == Direction.zero:
        for p in range(first, end):
            significand, left = work[products + p], work[products + LONGEST + p] + lift
            cut = (abs(significand) << max(left, 0)) >> min(max(-left, 0), 62)
            total += -cut if significand < 0 else cut
    elif direction == Direction.down:
        for p in range(first, end):
            left = work[products + LONGEST + p] + lift
            total += (work[products + p] << max(left, 0)) >> min(max(-left, 0), 62)
    else:
        for p in range(first, end):
            total += shifted(work[products + p], work[products + LONGEST + p] + lift, direction)
    return total


@compiled
def sum_group(work: Any, products: int, size: int, fraction: int, rule: Any) -> tuple[int, int]:
    """Steps a to c: the sum and the exponent it is aligned to, `product_bits` above its units place."""
    middle = size
    if rule.split == Split.even_odd:
        middle = (size + 1) // 2
    elif rule.split == Split.halves:
        middle = size // 2
    lift, exponents = rule.product_bits - fraction, products + LONGEST
    one = largest_exponent(work, exponents, exponents + middle)
    first = align_products(work, products, 0, middle, lift - one, rule.product_direction) if one > NONE else 0
    if middle == size:
        return first, one
    two = largest_exponent(work, exponents + middle, exponents + size)
    second = align_products(work, products, middle, size, lift - two, rule.product_direction) if two > NONE else 0
    largest = max(one, two)
    first = shifted(first, one - largest, rule.split_direction)
    return first + shifted(second, two - largest, rule.split_direction), largest


@compiled
def zero_of(c: int, minus: bool, rule: Any) -> int:
    """An exactly zero total."""
    return SIGN if rule.zero_sign == ZeroSign.ieee and c == SIGN and minus else 0


@compiled
def parts_of_f32(bits: int) -> tuple[int, int]:
    """Signed significand, with 23 bits of fraction, and exponent."""
    field = bits >> 23 & 0xFF
    significand = (bits & 0x7FFFFF) | (0x800000 if field else 0)
    return -significand if bits >> 31 else significand, max(field, 1) - 127


@compiled
def align_with_c(total: int, exponent: int, fraction: int, c: int, rule: Any) -> tuple[int, int]:
    """Step d: total * 2^(exponent - fraction) plus the finite f32 `c`, and the exponent of its units place."""
    c_significand, c_exponent = parts_of_f32(c)
    largest, unit = max(exponent, c_exponent), max(rule.dot_bits, rule.c_bits)
    dot = shifted(total, exponent - largest + rule.dot_bits - fraction, rule.dot_direction)
    addend = shifted(c_significand, c_exponent - largest + rule.c_bits - 23, rule.c_direction)
    if c_exponent < largest - rule.c_window:
        addend = 0
    return (dot << (unit - rule.dot_bits)) + (addend << (unit - rule.c_bits)), largest - unit


@compiled
def finish(total: int, unit: int, sum_bits: int, run: Any) -> int:
    """Steps e and f of a total that is not zero."""
    rule = run.rule
    directions = rule.sum_direction, rule.output_direction
    bits = round_f32(total, unit, sum_bits, directions, run.overflow_bits)
    return flush(bits, rule.subnormal_d)


# ---- Exact sums ------------------------------------------------------------------------------------------------------


@compiled
def add_to_limbs(wide: Any, significand: int, place: int) -> None:
    value = significand << (place & 31)
    wide[place >> 5] += value & 0xFFFFFFFF
    wide[(place >> 5) + 1] += value >> 32


@compiled
def carry_limbs(wide: Any) -> None:
    for w in range(LIMBS - 1):
        wide[w + 1] += wide[w] >> 32
        wide[w] &= 0xFFFFFFFF


@compiled
def limbs_total(wide: Any, low: int) -> tuple[int, int]:
    """The sum in the limbs as a signed integer of at least 31 bits whose last says whether anything lies below it, and
    the exponent of its units place; low: that of the limbs'."""
    carry_limbs(wide)
    negative = wide[LIMBS - 1] < 0
    if negative:
        for w in range(LIMBS):
            wide[w] = -wide[w]
        carry_limbs(wide)
    top = LIMBS - 1
    while top > 0 and wide[top] == 0:
        top -= 1
    total, unit = wide[top], low
    if top > 0:
        total, unit = wide[top] << 30 | wide[top - 1] >> 2, low + 32 * top - 30
        rest = wide[top - 1] & 3
        for w in range(top - 1):
            rest |= wide[w]
        total |= int(rest != 0)
    return -total if negative else total, unit


@compiled
def sum_exactly(work: Any, wide: Any, products: int, size: int, fraction: int, c: int) -> tuple[int, int]:
    """The sum of the products and C, exact but for what cannot move its rounding, and the exponent of its units
    place."""
    c_significand, c_exponent = parts_of_f32(c)
    low = high = c_exponent - 23
    if c_significand == 0:
        low, high = -2 * NOTHING, 2 * NOTHING
    for p in range(size):
        if work[products + p] != 0:
            unit = work[products + LONGEST + p] - fraction
            low, high = min(low, unit), max(high, unit)
    if high < low:
        return 0, 0
    if high - low <= 28:
        total = c_significand << (c_exponent - 23 - low) if c_significand != 0 else 0
        for p in range(size):
            if work[products + p] != 0:
                total += work[products + p] << (work[products + LONGEST + p] - fraction - low)
        return total, low
    for w in range(LIMBS):
        wide[w] = 0
    if c_significand != 0:
        add_to_limbs(wide, c_significand, c_exponent - 23 - low)
    for p in range(size):
        if work[products + p] != 0:
            add_to_limbs(wide, work[products + p], work[products + LONGEST + p] - fraction - low)
    return limbs_total(wide, low)


# ---- An element of D -------------------------------------------------------------------------------------------------


@compiled
def group_step(
    work: Any, wide: Any, a: Any, b: Any, i: int, j: int, start: int, end: int, group: int, c: int, run: Any
) -> int:
    """One group of products, positions `start` to `end`, joined to C."""
    rule, products, size = run.rule, run.products, end - start
    c = flush(c, rule.subnormal_c)
    fill_products(work, a, b, i, j, start, end, products)
    seen = work[a.special + i * a.stride + group] | work[b.special + j * b.stride + group]
    careful = seen != 0 or c & INFINITY == INFINITY
    if rule.product_overflow and not careful:
        careful = largest_exponent(work, products + LONGEST, products + LONGEST + size) >= 127
    if careful:
        special = special_step(work, a, b, i, j, start, end, c, run)
        if special >= 0:
            return special
    if rule.method == Method.exact:
        total, unit = sum_exactly(work, wide, products, size, run.fraction, c)
        sum_bits = 1 << 20
    else:
        dot, exponent = sum_group(work, products, size, run.fraction, rule)
        total, unit = align_with_c(dot, exponent, rule.product_bits, c, rule)
        sum_bits = rule.sum_bits
    if total == 0:
        minus = rule.zero_sign == ZeroSign.ieee and all_minus_zero(work, a, b, i, j, start, end)
        return zero_of(c, minus, rule)
    return finish(total, unit, sum_bits, run)


@compiled
def chain(work: Any, wide: Any, a: Any, b: Any, i: int, j: int, start: int, end: int, c: int, run: Any) -> int:
    """The groups from position `start` to `end`, each with the result of the one before as C."""
    length = run.rule.length
    for first in range(start, end, length):
        last = min(first + length, end)
        c = group_step(work, wide, a, b, i, j, first, last, first // length, c, run)
    return c


@compiled
def block_step(work: Any, wide: Any, block: int, scale: int, c: int, run: Any) -> int:
    """C plus the f32 `block` times 2^scale: one product that steps d to f join to C."""
    rule = run.rule
    c = flush(c, rule.subnormal_c)
    if is_nan(block) or is_nan(c) or scale > 300:
        return chosen_nan(block | QUIET if is_nan(block) else -1, c, run)
    if block & INFINITY == INFINITY or c & INFINITY == INFINITY:
        both = block & INFINITY == c & INFINITY
        if both and (block ^ c) & SIGN:
            return int(run.nan_bits)
        return int(block if block & INFINITY == INFINITY else c)
    significand, exponent = parts_of_f32(block)
    exponent = exponent + scale if significand != 0 else NOTHING
    if rule.method == Method.exact:
        work[run.products], work[run.products + LONGEST] = significand, exponent
        total, unit = sum_exactly(work, wide, run.products, 1, 23, c)
        sum_bits = 1 << 20
    else:
        total, unit = align_with_c(significand, exponent, 23, c, rule)
        sum_bits = rule.sum_bits
    return zero_of(c, block == SIGN, rule) if total == 0 else finish(total, unit, sum_bits, run)


@compiled
def element(work: Any, wide: Any, a: Any, b: Any, i: int, j: int, scale_a: int, scale_b: int, c: int, run: Any) -> int:
    """One element of D. scale_a, scale_b: where the exponents of the block scales of row i and column j are, for block
    sums alone."""
    if not run.block_sum:
        return chain(work, wide, a, b, i, j, 0, run.depth, c, run)
    for start in range(0, run.depth, SCALE_BLOCK):
        block = start // SCALE_BLOCK
        scale = work[scale_a + block] + work[scale_b + block]
        nan = work[scale_a + block] == 128 or work[scale_b + block] == 128
        result = chain(work, wide, a, b, i, j, start, min(start + SCALE_BLOCK, run.depth), 0, run)
        c = block_step(work, wide, result, 1000 if nan else scale, c, run)
    return c


# ---- Registers -------------------------------------------------------------------------------------------------------


@compiled
def k_of_item(two_runs: int, lane_items: int, depth: int, lane_group: int, item: int) -> int:
    """The k of an item of a lane; two runs lie half of the depth apart."""
    if two_runs:
        run = lane_items // 2
        return depth // 2 * (item // run) + run * lane_group + item % run
    return lane_items * lane_group + item


@compiled
def field_of(registers: Any, first: int, lane: int, bit: int, width: int) -> int:
    """`width` bits of a lane from bit `bit` of the registers that begin at word `first`."""
    word = first + 64 * (bit >> 5) + lane
    code = int(registers[word]) >> (bit & 31)
    if (bit & 31) + width > 32:
        code |= registers[word + 64] << (32 - (bit & 31))
    return code & ((1 << width) - 1)


@compiled
def c_word(rows: int, copy: int, row: int, column: int) -> int:
    """Where the element of a block of C or D is among the words of its registers."""
    if rows == 4:
        return 64 * row + 4 * copy + column
    if rows == 16:
        return 256 * copy + 64 * (row % 4) + 16 * (row // 4) + column
    return 1024 * copy + 64 * (row % 4 + 4 * (row // 8)) + 32 * (row // 4 % 2) + column


@compiled
def shape_of(numbers: Any) -> Any:
    n = numbers
    return ShapeNumbers(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9])


@compiled
def questions_of(n: Any, at: int) -> Any:
    return QuestionNumbers(
        n[at], n[at + 1], n[at + 2], n[at + 3], n[at + 4], n[at + 5], n[at + 6], n[at + 7], n[at + 8], n[at + 9]
    )


@compiled
def rule_of(n: Any, at: int, longest: int) -> Any:
    """A group rule; its groups are no longer than `longest`."""
    return GroupRule(
        min(n[at], longest),
        n[at + 1],
        n[at + 2],
        n[at + 3],
        n[at + 4],
        n[at + 5],
        n[at + 6],
        n[at + 7],
        n[at + 8],
        n[at + 9],
        n[at + 10],
        n[at + 11],
        n[at + 12],
        n[at + 13],
        n[at + 14],
        n[at + 15],
        n[at + 16],
        n[at + 17],
        n[at + 18],
    )


@compiled
def format_code(code: int, kind: int) -> int:
    """The format a code of `parameters` means; an undefined one is the first that the shape has."""
    if kind == 2:
        return code if code in (5, 6) else 5
    return code if code < (5 if kind == 0 else 2) else 0


class Places(NamedTuple):
    """Where things are in the work of a native. met: B's elements that one row of a sparse A meets; stands: where each
    position stands; scales: exponents of block scales, [operand][row][block]."""

    a: Any
    b: Any
    met: Any
    products: int
    stands: int
    scales: int


@compiled
def places_of(shape: Any, expanded: int, format_a: int, format_b: int) -> Any:
    a_stride = shape.depth * (1 + expanded)
    b_stride = shape.depth * (1 + shape.sparse)
    after = 2 * 5 * 2048
    return Places(
        matrix_at(0, 2048, a_stride, format_a),
        matrix_at(5 * 2048, 2048, b_stride, format_b),
        matrix_at(after, 128, 0, format_b),
        after + 5 * 128,
        after + 5 * 128 + 2 * LONGEST,
        after + 5 * 128 + 2 * LONGEST + 2 * 128,
    )


@compiled
def read_scales(work: Any, registers: Any, first: int, shape: Any, parameters: int, scales: int) -> None:
    """Exponents of the block scales of both operands; 128 is a NaN."""
    for operand in range(2):
        byte = parameters >> (7 + 2 * operand) & 3
        for lane in range(shape.rows * shape.blocks):
            scale = registers[first + 64 * operand + lane] >> (8 * byte) & 255 if parameters >> 6 & 1 else 127
            at = scales + (operand * shape.rows + lane % shape.rows) * shape.blocks + lane // shape.rows
            work[at] = scale - 127


@compiled
def fill_stands(work: Any, stands: int, depth: int, lane_items: int, two_runs: int, physical: int, rule: Any) -> None:
    """For each k of `depth`, where its element stands."""
    for p in range(depth):
        k = k_of_item(two_runs, lane_items, depth, p // lane_items, p % lane_items) if physical else p
        work[stands + k] = stand(p, depth, rule.length, rule.split)


@compiled
def decode_operand(
    work: Any, registers: Any, first: int, shape: Any, copy: int, operand: int, places: Any, two_runs: int, run: Any
) -> None:
    """A dense operand of one product, from the registers that begin at word `first`."""
    to = places.b if operand else places.a
    bits, lane_groups = FIELD_BITS[to.format], shape.depth // shape.lane_items
    for row in range(shape.rows):
        for lane_group in range(lane_groups):
            lane = row + shape.rows * (copy + shape.copies * lane_group)
            for item in range(shape.lane_items):
                k = k_of_item(two_runs, shape.lane_items, shape.depth, lane_group, item)
                code, scale = field_of(registers, first, lane, bits * item, bits), 0
                if shape.blocks and not run.block_sum:
                    scale = work[places.scales + (operand * shape.rows + row) * shape.blocks + k // SCALE_BLOCK]
                place = row * to.stride + work[places.stands + k]
                write_element(work, to, place, code, scale, run.rule.subnormal_inputs)
        mark_groups(work, to, row, run.depth, run.rule.length)


@compiled
def decode_sparse_b(work: Any, registers: Any, first: int, shape: Any, places: Any, expanded: int, run: Any) -> None:
    """B of a sparse product: at its k, or where that stands."""
    to, items, depth = places.b, 2 * shape.lane_items, 2 * shape.depth
    bits = FIELD_BITS[to.format]
    for column in range(shape.rows):
        for lane_group in range(depth // items):
            for item in range(items):
                k = k_of_item(shape.b_two_runs, items, depth, lane_group, item)
                code = field_of(registers, first, column + shape.rows * lane_group, bits * item, bits)
                place = column * depth + (work[places.stands + k] if expanded else k)
                write_element(work, to, place, code, 0, run.rule.subnormal_inputs)
        mark_groups(work, to, column, depth, run.rule.length)


@compiled
def index_of(registers: Any, first: int, shape: Any, row: int, stored: int, shift: int) -> int:
    """The k that a stored element of a sparse A stands at."""
    lane = row + shape.rows * (stored // shape.lane_items)
    bit = shift + 2 * (stored % shape.lane_items)
    return 4 * (stored // 2) + (int(registers[first + lane]) >> int(bit) & 3)


@compiled
def decode_sparse_a(
    work: Any, registers: Any, index: int, shape: Any, places: Any, expanded: int, shift: int, run: Any
) -> None:
    """A sparse A, the stored elements or all k; of two elements at one k the second counts."""
    to, bits = places.a, FIELD_BITS[places.a.format]
    for row in range(shape.rows):
        for k in range(to.stride if expanded else 0):
            write_absent(work, to, row * to.stride + k)
        for stored in range(shape.depth):
            lane, item = row + shape.rows * (stored // shape.lane_items), stored % shape.lane_items
            code = field_of(registers, 0, lane, bits * item, bits)
            place = stand(stored, shape.depth, run.rule.length, run.rule.split)
            if expanded:
                place = work[places.stands + index_of(registers, index, shape, row, stored, shift)]
            write_element(work, to, row * to.stride + place, code, 0, run.rule.subnormal_inputs)
        mark_groups(work, to, row, run.depth, run.rule.length)


@compiled
def gather_met(
    work: Any, registers: Any, index: int, shape: Any, places: Any, row: int, column: int, shift: int, run: Any
) -> None:
    """The elements of a column of B that the stored ones of a row of A meet."""
    of, to = places.b, places.met
    for stored in range(shape.depth):
        source = column * of.stride + index_of(registers, index, shape, row, stored, shift)
        place = stand(stored, shape.depth, run.rule.length, run.rule.split)
        work[to.significands + place] = work[of.significands + source]
        work[to.exponents + place] = work[of.exponents + source]
        work[to.flags + place] = work[of.flags + source]
        work[to.codes + place] = work[of.codes + source]
    mark_groups(work, to, 0, shape.depth, run.rule.length)


@compiled
def run_of(numbers: Any, parameters: int, shape: Any, questions: Any, format_a: int, format_b: int, at: Any) -> Any:
    """The rule for a pair of formats and what goes with it."""
    narrow = 0
    if shape.kind == 0:
        a_bits, b_bits = FIELD_BITS[format_a], FIELD_BITS[format_b]
        bits = max(a_bits, b_bits) if questions.mixed_formats == MixedFormats.wider else min(a_bits, b_bits)
        narrow = int(bits < 8)
    block_sum = int(questions.scale_entry != 0)
    rule = rule_of(numbers, RULES_AT + RULE_NUMBERS * narrow, SCALE_BLOCK if block_sum else LONGEST)
    depth = shape.depth * (1 + (shape.sparse & int(questions.sparse_order == SparseOrder.expanded)))
    return Run(
        rule,
        questions.nan,
        questions.nan_bits,
        block_sum,
        LARGEST if parameters >> 11 & 1 else INFINITY,
        MANTISSA_BITS[format_a] + MANTISSA_BITS[format_b],
        depth,
        at,
    )


def run_groups(inputs: Any, outputs: Any, parameters: int, numbers: Any, work: Any, wide: Any) -> None:
    """A dense instruction of floats up to 16 bits: A, B, C and scale registers, one after the other.

    `parameters` may ask for a sample of D: see `mfma_numbers.SAMPLE_SHIFT`.
    """
    shape, questions = shape_of(numbers), questions_of(numbers, QUESTIONS_AT)
    format_a = format_code(parameters & 7, shape.kind)
    format_b = format_a if shape.kind == 2 else format_code(parameters >> 3 & 7, shape.kind)
    places = places_of(shape, 0, format_a, format_b)
    run = run_of(numbers, parameters, shape, questions, format_a, format_b, places.products)
    c_first = 64 * 2 * shape.operand_registers
    c_words = shape.rows * shape.rows * shape.copies
    if shape.blocks:
        read_scales(work, inputs, c_first + c_words, shape, parameters, places.scales)
    a_runs = int(shape.blocks > 0 and FIELD_BITS[format_a] == 8)
    b_runs = int(shape.blocks > 0 and FIELD_BITS[format_b] == 8)
    # A mixed pair has two physical orders; A's is taken. A block's sum is over its k whatever the order.
    physical = int(questions.group_order != 0 and not run.block_sum)
    fill_stands(work, places.stands, shape.depth, shape.lane_items, a_runs, physical, run.rule)
    every = max(parameters >> SAMPLE_SHIFT, 1)
    for copy in range(shape.copies):
        decode_operand(work, inputs, 0, shape, copy, 0, places, a_runs, run)
        decode_operand(work, inputs, 64 * shape.operand_registers, shape, copy, 1, places, b_runs, run)
        for i in range(shape.rows):
            for j in range(-i % every, shape.rows, every):
                word = c_word(shape.rows, copy, i, j)
                scale_a, scale_b = places.scales + i * shape.blocks, places.scales + (shape.rows + j) * shape.blocks
                c = int(inputs[c_first + word])
                outputs[word] = element(work, wide, places.a, places.b, i, j, scale_a, scale_b, c, run)


def run_sparse(inputs: Any, outputs: Any, parameters: int, numbers: Any, work: Any, wide: Any) -> None:
    """A sparse instruction of floats: A, B, C and the index."""
    shape, questions = shape_of(numbers), questions_of(numbers, QUESTIONS_AT)
    format_a = format_code(parameters & 7, shape.kind)
    format_b = format_a if shape.kind == 2 else format_code(parameters >> 3 & 7, shape.kind)
    expanded = int(questions.sparse_order == SparseOrder.expanded)
    places = places_of(shape, expanded, format_a, format_b)
    run = run_of(numbers, parameters, shape, questions, format_a, format_b, places.products)
    shift, c_first = parameters >> 12 & 31, 64 * 3 * shape.operand_registers
    index, physical = c_first + shape.rows * shape.rows, int(questions.group_order != 0)
    items, depth = 2 * shape.lane_items, 2 * shape.depth
    fill_stands(work, places.stands, depth, items, shape.b_two_runs, physical, run.rule)
    decode_sparse_a(work, inputs, index, shape, places, expanded, shift, run)
    decode_sparse_b(work, inputs, 64 * shape.operand_registers, shape, places, expanded, run)
    every = max(parameters >> SAMPLE_SHIFT, 1)
    for i in range(shape.rows):
        for j in range(-i % every, shape.rows, every):
            word = c_word(shape.rows, 0, i, j)
            c = int(inputs[c_first + word])
            if expanded:
                outputs[word] = element(work, wide, places.a, places.b, i, j, 0, 0, c, run)
            else:
                gather_met(work, inputs, index, shape, places, i, j, shift, run)
                outputs[word] = element(work, wide, places.a, places.met, i, 0, 0, 0, c, run)


# ---- Matrices of codes -----------------------------------------------------------------------------------------------


@compiled
def product_of(n: Any) -> Any:
    return ProductNumbers(n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9])


@compiled
def decode_codes(work: Any, codes: Any, scales: int, to: Any, rows: int, product: Any, run: Any) -> None:
    """A matrix of codes (rows, depth), its scales' exponents at `scales`."""
    blocks = product.depth // SCALE_BLOCK
    for row in range(rows):
        for k in range(product.depth):
            scale = 0
            if product.scaled and not run.block_sum:
                scale = work[scales + row * blocks + k // SCALE_BLOCK]
            place = row * to.stride + stand(k, product.depth, run.rule.length, run.rule.split)
            write_element(work, to, place, codes[row * product.depth + k], scale, run.rule.subnormal_inputs)
        mark_groups(work, to, row, product.depth, run.rule.length)


def multiply_codes(a: Any, b: Any, c: Any, d: Any, numbers: Any, work: Any, wide: Any) -> None:
    """D = A B + C on codes: a (M, K), b (N, K), c and d (M, N) f32 bits. `work` begins with the exponents of A's and
    B's block scales where there are any."""
    product = product_of(numbers)
    blocks = product.depth // SCALE_BLOCK if product.scaled else 0
    rows, columns, depth = product.rows, product.columns, product.depth
    first, b_scales = (rows + columns) * blocks, rows * blocks
    a_at = matrix_at(first, rows * depth, depth, product.format_a)
    b_at = matrix_at(first + 5 * rows * depth, columns * depth, depth, product.format_b)
    fraction = MANTISSA_BITS[product.format_a] + MANTISSA_BITS[product.format_b]
    block_sum, overflow_bits = product.block_sum, LARGEST if product.clamp else INFINITY
    rule = rule_of(numbers, PRODUCT_RULE_AT, SCALE_BLOCK if block_sum else LONGEST)
    at = first + 5 * (rows + columns) * depth
    run = Run(rule, product.nan, product.nan_bits, block_sum, overflow_bits, fraction, depth, at)
    decode_codes(work, a, 0, a_at, rows, product, run)
    decode_codes(work, b, b_scales, b_at, columns, product, run)
    for i in range(rows):
        for j in range(columns):
            word, scale_b = i * columns + j, b_scales + j * blocks
            d[word] = element(work, wide, a_at, b_at, i, j, i * blocks, scale_b, int(c[word]), run)
