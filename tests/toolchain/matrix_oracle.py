"""Matrix arithmetic told once more, in rational numbers, from the text of the switches: one element of D at a time.

A model is a dictionary of answers by switch. Registers are read through `gfx950.layouts`; formats by ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import chain, islice

import ml_dtypes
import numpy as np
from gmpy2 import mpq

from gfx950.arithmetic.mfma import Format
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.layouts import layout

ZERO = mpq(0)
INFINITY, SIGN, QUIET = 0x7F800000, 0x80000000, 0x400000
DTYPES = {
    Format.fp8: ml_dtypes.float8_e4m3fn,
    Format.bf8: ml_dtypes.float8_e5m2,
    Format.fp6: ml_dtypes.float6_e2m3fn,
    Format.bf6: ml_dtypes.float6_e3m2fn,
    Format.fp4: ml_dtypes.float4_e2m1fn,
    Format.f16: np.float16,
    Format.bf16: ml_dtypes.bfloat16,
    Format.fp8_fnuz: ml_dtypes.float8_e4m3fnuz,
    Format.bf8_fnuz: ml_dtypes.float8_e5m2fnuz,
}
BITS = {f: 16 if f in (Format.f16, Format.bf16) else 8 for f in DTYPES} | {Format.fp6: 6, Format.bf6: 6, Format.fp4: 4}
CLASSES = ("half", "half_deep", "byte", "byte_deep", "small")


def power(exponent):
    return mpq(2) ** exponent


def exponent_of(value):
    """The exponent of the binade of a nonzero rational."""
    value = abs(value)
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if power(guess) <= value else guess - 1


def cut(value, unit, direction):
    """A rational to a multiple of 2^unit."""
    scaled = value / power(unit)
    below = scaled.numerator // scaled.denominator
    if direction == "zero" and value < 0 and below != scaled:
        below += 1
    if direction == "nearest_even":
        rest = scaled - below
        below += rest > mpq(1, 2) or (rest == mpq(1, 2) and below % 2 == 1)
    return below * power(unit)


@dataclass(frozen=True)
class Number:
    """kind: finite, infinite, nan. exponent: of the binade, a subnormal's the smallest normal one's."""

    kind: str
    negative: bool
    value: mpq = ZERO
    exponent: int = 0
    nan: int = 0


@cache
def decoded(code, format_, flush):
    dtype = np.dtype(DTYPES[format_])
    with np.errstate(invalid="ignore"):
        value = float(np.array(code, np.uint16 if BITS[format_] == 16 else np.uint8).view(dtype).astype(np.float64))
    mantissa_bits = ml_dtypes.finfo(dtype).nmant
    negative = bool(code >> (BITS[format_] - 1) & 1)
    if np.isnan(value):
        payload = (code & ((1 << mantissa_bits) - 1)) << (23 - mantissa_bits)
        return Number("nan", negative, nan=negative * SIGN | INFINITY | QUIET | payload)
    if np.isinf(value):
        return Number("infinite", negative)
    smallest = {Format.fp8: -6, Format.bf8: -14, Format.fp6: 0, Format.bf6: -2, Format.fp4: 0, Format.f16: -14}
    smallest |= {Format.bf16: -126, Format.fp8_fnuz: -7, Format.bf8_fnuz: -15}
    exact = mpq(Fraction(value))
    if flush and abs(exact) < power(smallest[format_]):
        exact = mpq(0)
    exponent = max(exponent_of(exact), smallest[format_]) if exact else smallest[format_]
    return Number("finite", negative, exact, exponent)


def f32_number(bits):
    magnitude, negative = bits & 0x7FFFFFFF, bool(bits >> 31)
    if magnitude >= INFINITY:
        return Number("nan" if magnitude > INFINITY else "infinite", negative, nan=bits | QUIET)
    value = mpq(Fraction(float(np.uint32(bits).view(np.float32))))
    return Number("finite", negative, value, max(exponent_of(value), -126) if value else -126)


def rounded(value, direction, clamp):
    """Bits of the f32 of a nonzero rational."""
    magnitude = abs(value)
    unit = max(exponent_of(magnitude), -126) - 23
    whole = int(cut(magnitude, unit, direction) / power(unit))
    bits = min((unit + 149) * 2**23 + whole, INFINITY)  # the hidden bit moves the exponent on, a carry too
    if bits == INFINITY and (clamp or direction == "zero"):
        bits -= 1
    return bits | (SIGN if value < 0 else 0)


@dataclass(frozen=True)
class Pair:
    """A factor of A and one of B; `shift` is what their scales add to the exponent, `poisoned` a NaN scale."""

    a: Number
    b: Number
    shift: int = 0
    poisoned: bool = False

    @property
    def value(self):
        return self.a.value * self.b.value * power(self.shift)

    @property
    def exponent(self):
        return self.a.exponent + self.b.exponent + self.shift

    @property
    def top(self):
        """The exponent, one more where the significands' product is 2 or more."""
        return self.exponent + (abs(self.value) >= power(self.exponent + 1))

    @property
    def negative(self):
        return self.a.negative != self.b.negative


def named(answers, class_):
    """The fields of a class."""
    return {key.rpartition(".")[2]: answer for key, answer in answers.items() if key.startswith(f"mfma.{class_}.")}


def nan_result(operands, c, answers):
    c_nan = [c.nan] if c.kind == "nan" else []
    others = [x.nan for x in operands if x.kind == "nan"]
    order = {"canonical": [], "c_first": c_nan + others, "a_first": others + c_nan}[answers["mfma.nan"]]
    return next(iter(order), answers["mfma.nan_bits"])


def special_result(pairs, c, rule, answers):
    """The bits where something is not finite, else None."""
    infinite, invalid = {c.negative} if c.kind == "infinite" else set(), False
    for pair in pairs:
        kinds = {pair.a.kind, pair.b.kind}
        if pair.poisoned or "nan" in kinds:
            invalid = True
        elif "infinite" in kinds:
            if any(x.kind == "finite" and not x.value for x in (pair.a, pair.b)):
                invalid = True
            else:
                infinite.add(pair.negative)
        elif rule["product_overflow"] and pair.value and pair.top >= 128:
            infinite.add(pair.negative)
    if invalid or c.kind == "nan" or len(infinite) == 2:
        return nan_result(chain.from_iterable((pair.a, pair.b) for pair in pairs), c, answers)
    return INFINITY | SIGN * infinite.pop() if infinite else None


def parts_of(pairs, split):
    if split == "even_odd":
        return [pairs[0::2], pairs[1::2]]
    middle = len(pairs) // 2 if split == "halves" else 0
    return [pairs[:middle], pairs[middle:]]


def aligned(pairs, c, rule):
    """Steps a to e; pairs may be None where nothing is stored."""
    sums = []
    for part in parts_of(pairs, rule["split"]):
        kept = [pair for pair in part if pair is not None and pair.value]
        if kept:
            top = max(pair.exponent for pair in kept)
            unit = top - rule["product_bits"]
            sums.append((top, sum(cut(pair.value, unit, rule["product_direction"]) for pair in kept)))
    total, top = mpq(0), c.exponent
    if sums:
        e_dot = max(exponent for exponent, _ in sums)
        for _, part_sum in sums:
            total += cut(part_sum, e_dot - rule["product_bits"], rule["split_direction"])
        top = max(e_dot, c.exponent)
    return joined(total, top, c, rule)


def joined(total, top, c, rule):
    total = cut(total, top - rule["dot_bits"], rule["dot_direction"])
    window = rule["c_window"]
    if window == "none" or c.exponent >= top - window:
        total += cut(c.value, top - rule["c_bits"], rule["c_direction"])
    if total and rule["sum_bits"] != "none":
        total = cut(total, max(exponent_of(total), -126) - rule["sum_bits"], rule["sum_direction"])
    return total


def settled(total, c, all_minus, rule, clamp):
    """Step f and what follows it."""
    if not total:
        return SIGN if rule["zero_sign"] == "ieee" and c.negative and not c.value and all_minus else 0
    bits = rounded(total, rule["output_direction"], clamp)
    return bits & SIGN if rule["subnormal_d"] == "flush" and not bits & INFINITY else bits


def c_number(bits, rule):
    return f32_number(bits & SIGN if rule["subnormal_c"] == "flush" and not bits & INFINITY else bits)


def step(pairs, c_bits, rule, answers, clamp):
    """One group; None among the pairs is a product that a sparse A does not have."""
    c, there = c_number(c_bits, rule), [pair for pair in pairs if pair is not None]
    special = special_result(there, c, rule, answers)
    if special is not None:
        return special
    all_minus = all(not pair.value and pair.negative for pair in there)
    total = sum((pair.value for pair in there), c.value) if rule["method"] == "exact" else aligned(pairs, c, rule)
    return settled(total, c, all_minus, rule, clamp)


def groups(pairs, c_bits, rule, answers, clamp):
    pairs, length = iter(pairs), rule["length"]
    while group := list(islice(pairs, length)):
        c_bits = step(group, c_bits, rule, answers, clamp)
    return c_bits


def block_step(block, shift, poisoned, c_bits, rule, answers, clamp):
    """The f32 of a block, times its scale, as the one product of a last step."""
    c, number = c_number(c_bits, rule), f32_number(block)
    if poisoned or "nan" in (c.kind, number.kind):
        return nan_result([number], c, answers)
    infinite = {x.negative for x in (c, number) if x.kind == "infinite"}
    if infinite:
        return answers["mfma.nan_bits"] if len(infinite) == 2 else INFINITY | SIGN * infinite.pop()
    value = number.value * power(shift)
    if rule["method"] == "exact":
        total = value + c.value
    else:
        top = max(number.exponent + shift, c.exponent) if value else c.exponent
        total = joined(value, top, c, rule)
    return settled(total, c, number.negative and not value, rule, clamp)


def dot(a, b, formats, c_bits, answers, class_, *, scales=None, clamp=False, scale_entry=None):
    """An element of D: codes of a row of A and a column of B in group order (None where A stores nothing). scales: the
    E8M0 bytes of either, one for each 32."""
    rule = named(answers, class_)
    flush = rule["subnormal_inputs"] == "flush"
    shifts = [0] * len(a) if scales is None else [int(x) + int(y) - 254 for x, y in zip(*scales, strict=True)]
    nans = [False] * len(a) if scales is None else [255 in pair for pair in zip(*scales, strict=True)]
    by_block = (scale_entry or answers["mfma.scale_entry"]) == "block_sum" and scales is not None
    pairs = []
    for p, (x, y) in enumerate(zip(a, b, strict=True)):
        block = p // 32 if scales is not None else 0
        both = None if x is None else (decoded(int(x), formats[0], flush), decoded(int(y), formats[1], flush))
        pairs.append(both and Pair(*both, *((shifts[block], nans[block]) if scales and not by_block else ())))
    if not by_block:
        return groups(pairs, c_bits, rule, answers, clamp)
    for block in range(len(pairs) // 32):
        result = groups(pairs[32 * block : 32 * block + 32], 0, rule, answers, clamp)
        c_bits = block_step(result, shifts[block], nans[block], c_bits, rule, answers, clamp)
    return c_bits


# ---- Chains of multiply-adds, and integers ----


@dataclass(frozen=True)
class Ieee:
    """A binary float: bits of it and of its mantissa."""

    width: int
    mantissa_bits: int

    @property
    def infinity(self):
        return (1 << self.width - 1) - (1 << self.mantissa_bits)

    @property
    def sign(self):
        return 1 << self.width - 1

    @property
    def smallest(self):
        """The exponent of the smallest subnormal."""
        return 2 - (1 << self.width - self.mantissa_bits - 2) - self.mantissa_bits

    def value(self, bits):
        field, mantissa = (bits & ~self.sign) >> self.mantissa_bits, bits & ((1 << self.mantissa_bits) - 1)
        significand = mantissa | (1 << self.mantissa_bits if field else 0)
        magnitude = significand * power(max(field, 1) - 1 + self.smallest)
        return -magnitude if bits & self.sign else magnitude

    def nearest(self, value):
        """The bits of a nonzero rational rounded to nearest even; overflow gives Inf."""
        unit = max(exponent_of(value) - self.mantissa_bits, self.smallest)
        whole = int(cut(abs(value), unit, "nearest_even") / power(unit))
        return min(whole + (unit - self.smallest << self.mantissa_bits), self.infinity) | self.sign * (value < 0)

    def sum(self, terms, zero_sign, clamp):
        """The bits of a sum of rationals, rounded once; zero_sign: of an exact zero."""
        total = sum(terms, mpq(0))
        if not total:
            return zero_sign
        bits = self.nearest(total)
        return bits - 1 if clamp and bits & ~self.sign == self.infinity else bits


F32, F64 = Ieee(32, 23), Ieee(64, 52)


def multiply_add(a, b, c, form, clamp=False, fused=1, nan="canonical", nan_bits=None):
    """Bits of a * b + c; clamp: what overflows is the largest finite number."""
    infinity, sign = form.infinity, form.sign
    made = {32: 0x7FC00000, 64: 0x7FF8 << 48}[form.width] if nan_bits is None else nan_bits
    order = {"canonical": (), "c_first": (c, a, b), "a_first": (a, b, c)}[nan]
    if any(x & ~sign > infinity for x in (a, b, c)):
        return next((x | 1 << form.mantissa_bits - 1 for x in order if x & ~sign > infinity), made)
    product_sign = (a ^ b) & sign
    if infinity in (a & ~sign, b & ~sign):
        invalid = not a & ~sign or not b & ~sign or (c & ~sign == infinity and c & sign != product_sign)
        return made if invalid else product_sign | infinity
    product = form.value(a) * form.value(b)
    if not fused:
        rounded_product = form.sum([product], product_sign, clamp)
        if rounded_product & ~sign == infinity:
            return made if c & ~sign == infinity and c != rounded_product else rounded_product
        product = form.value(rounded_product)
    if c & ~sign == infinity:
        return c
    zero = product_sign if not product and product_sign == c & sign else 0
    return form.sum([product, form.value(c)], zero, clamp)


def chain_dot(kind, a, b, c, answers, clamp=False, flush=False):
    """An element of an f32 or f64 product."""
    form, nan_bits = (F32, answers["mfma.nan_bits"])
    if kind == "f64":
        form, nan_bits = F64, (nan_bits >> 31) << 63 | F64.infinity | (nan_bits & 0x7FFFFF) << 29
    if flush and answers["mfma.f32.subnormal_inputs"] == "by_mode":
        a, b = ([x if x & INFINITY else x & SIGN for x in y] for y in (a, b))
    pairs = list(zip(a, b, strict=True))
    for x, y in pairs if answers[f"mfma.{kind}.order"] == "ascending" else reversed(pairs):
        c = multiply_add(x, y, c, form, clamp, answers[f"mfma.{kind}.fused"], answers["mfma.nan"], nan_bits)
    return c


def integer_dot(a, b, c, answers, clamp):
    a, b = ([(x ^ 128) - 128 for x in y] for y in (a, b))
    total = sum(x * y for x, y in zip(a, b, strict=True)) + (c ^ 1 << 31) - (1 << 31)
    saturate = {"under_fp16_ovfl": clamp, "wrap": False, "saturate": True}[answers["mfma.i8.overflow"]]
    return (min(max(total, -(1 << 31)), (1 << 31) - 1) if saturate else total) & 0xFFFFFFFF


# ---- Registers ----

_MNEMONICS = {"f8": "f32_{}_fp8_fp8", "i8": "i32_{}_i8", "f64": "f64_{}_f64", "f32": "f32_{}_f32", "f16": "f32_{}_f16"}
_DEEP = ("mfma_16x16x32_f16", "mfma_32x32x16_f16", "smfmac_16x16x64_f16", "smfmac_32x32x32_f16")
_DEEP += ("smfmac_16x16x128_f8", "smfmac_32x32x64_f8")


def mnemonic_of(name):
    if "f8f6f4" in name:
        return f"v_mfma_f32_{name.rpartition('_')[2]}_f8f6f4"
    family, _, rest = name.partition("_")
    return f"v_{family}_" + _MNEMONICS[kind_of(name)].format(rest.rpartition("_")[0])


def class_of(name, formats, answers):
    if "f8f6f4" in name:
        bits = {"wider": max, "narrower": min}[answers["mfma.mixed_formats"]](BITS[f] for f in formats)
        return "byte_deep" if bits == 8 else "small"
    return {"f16": "half", "f8": "byte"}[kind_of(name)] + "_deep" * (name in _DEEP)


@dataclass(frozen=True)
class Tile:
    """The operands of a native in its registers, (n_in, 64)."""

    name: str
    inputs: object
    parameters: int

    def formats(self):
        return Format(self.parameters & 7), Format(self.parameters >> 3 & 7)

    def at(self, operand):
        """The layout of an operand and its registers."""
        shape, formats = SHAPES[self.name], self.formats()
        names = {"a_format": formats[0].name, "b_format": formats[1].name} if shape.blocks else {}
        number = {"A": 0, "B": 1, "C": 2, "scaleA": 3, "scaleB": 4, "index": 3}[operand]
        sizes = (shape.operand_registers, shape.b_shape.operand_registers, shape.c_registers, 1)
        if operand.startswith("scale"):
            names["op_sel"] = self.parameters >> (7 if operand == "scaleA" else 9) & 3
        mnemonic = mnemonic_of(self.name).replace("mfma_f32", "mfma_scale_f32" if operand[0] == "s" else "mfma_f32")
        return layout(mnemonic, operand, **names), self.inputs[sum(sizes[:number]) :]

    def where_d(self):
        return layout(mnemonic_of(self.name), "D")

    def code(self, operand, row, column, block=0):
        where, registers = self.at(operand)
        place, bits, shift = where.locate(row, column, block), 0, 0
        for piece in place.pieces:
            width = piece.high_bit - piece.low_bit + 1
            bits |= (int(registers[piece.register, place.lane]) >> piece.low_bit & ((1 << width) - 1)) << shift
            shift += width
        return bits

    def line(self, operand, line, block=0):
        """A row of A or a column of B."""
        where, _ = self.at(operand)
        if operand == "A":
            return [self.code("A", line, k, block) for k in range(where.cols)]
        return [self.code("B", k, line, block) for k in range(where.rows)]

    def index(self, row):
        """The k of the stored elements of a row of a sparse A."""
        where, registers = self.at("index")
        registers = registers >> np.uint32(self.parameters >> 12 & 31)
        found = []
        for stored in range(where.cols):
            place = where.locate(row, stored, 0)
            two_bits = int(registers[place.register, place.lane]) >> place.low_bit & 3
            found.append(4 * (stored // 2) + two_bits)
        return found

    def physical(self, operand):
        """All k of an operand, lane group by lane group."""
        where, _ = self.at(operand)
        count = where.cols if operand == "A" else where.rows
        places = [where.locate(*((0, k) if operand == "A" else (k, 0)), 0) for k in range(count)]
        order = [(p.lane, p.register, p.low_bit) for p in places]
        return sorted(range(count), key=order.__getitem__)

    def element(self, answers, row, column, block=0):
        """The bits of an element of D under a model's answers."""
        kind, clamp = kind_of(self.name), bool(self.parameters >> 11 & 1)
        a, b, c = self.line("A", row, block), self.line("B", column, block), self.code("C", row, column, block)
        if kind == "f64":
            signs = [(self.parameters >> 18 + n & 1) << 63 for n in range(3)]
            return chain_dot("f64", [x ^ signs[0] for x in a], [x ^ signs[1] for x in b], c ^ signs[2], answers)
        if kind == "f32":
            return chain_dot("f32", a, b, c, answers, clamp, bool(self.parameters >> 17 & 1))
        if SHAPES[self.name].sparse:
            a, b = self.met(a, b, row, answers)
        if kind == "i8":
            return integer_dot(a, b, c, answers, clamp)
        return self.float_element(a, b, c, answers, row, column, clamp)

    def met(self, a, b, row, answers):
        index = self.index(row)
        if answers["mfma.sparse_order"] == "stored" or kind_of(self.name) == "i8":
            return a, [b[k] for k in index]
        whole = [None] * len(b)
        for code, k in zip(a, index, strict=True):
            whole[k] = code
        order = self.physical("B") if answers["mfma.group_order"] == "physical" else range(len(b))
        return [whole[k] for k in order], [b[k] for k in order]

    def float_element(self, a, b, c, answers, row, column, clamp):
        formats, shape, scales = self.formats(), SHAPES[self.name], None
        class_ = class_of(self.name, formats, answers)
        if not shape.blocks:
            return dot(a, b, formats, c, answers, class_, clamp=clamp)
        scales = [[127] * shape.blocks, [127] * shape.blocks]
        if self.parameters >> 6 & 1:
            lines = ("scaleA", row), ("scaleB", column)
            scales = [[self.code(o, line, block) for block in range(shape.blocks)] for o, line in lines]
        if answers["mfma.scale_entry"] == "product_exponent" and answers["mfma.group_order"] == "physical":
            order = self.physical("A")
            return self._in_order(a, b, order, scales, c, answers, class_, clamp)
        return dot(a, b, formats, c, answers, class_, scales=scales, clamp=clamp)

    def _in_order(self, a, b, order, scales, c, answers, class_, clamp):
        rule, pairs = named(answers, class_), []
        flush = rule["subnormal_inputs"] == "flush"
        for k in order:
            bytes_ = [int(s[k // 32]) for s in scales]
            factors = [decoded(x[k], f, flush) for x, f in zip((a, b), self.formats(), strict=True)]
            pairs.append(Pair(*factors, sum(bytes_) - 254, 255 in bytes_))
        return groups(pairs, c, rule, answers, clamp)
