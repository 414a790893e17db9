"""One result of a matrix instruction, told step by step: what was multiplied, aligned, cut, joined and rounded.

`explain` follows the text of `gfx950.arithmetic.mfma` with Python's integers and fractions, one element of D at a time,
and shares no arithmetic with the code that runs it: a second telling of the same rule. `str()` of what it returns is a
table.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from typing import Any

import numpy as np

from gfx950.arithmetic.mfma_models import MfmaModel
from gfx950.arithmetic.mfma_switches import (
    ChainInputs,
    Direction,
    GroupOrder,
    GroupRule,
    IntegerOverflow,
    Method,
    MixedFormats,
    NanRule,
    Order,
    ScaleEntry,
    SparseOrder,
    Split,
    Subnormals,
    ZeroSign,
)
from gfx950.formats import NanKind
from gfx950.lanes import LANES, Mode
from gfx950.layouts import SCALE_BLOCK, MatrixInstruction, Slot, layout, matrix_instruction
from gfx950.matrix_elements import (
    Codes,
    ElementKind,
    check_mode,
    compress_dense,
    element_kind,
    further_operands,
    to_codes,
)
from gfx950.models import Model, find_model

ZERO = Fraction(0)
NAN_SCALE, ONE = 0xFF, 127  # of E8M0


# ---- Numbers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Binary:
    """A binary float format: bits of the exponent and of the mantissa, bias, and which codes are special."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    nan: NanKind

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def infinity(self) -> int:
        return (1 << self.exponent_bits) - 1 << self.mantissa_bits

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias


F32 = Binary("f32", 8, 23, 127, NanKind.ieee)
F64 = Binary("f64", 11, 52, 1023, NanKind.ieee)


@dataclass(frozen=True)
class Number:
    """One element. kind: finite, inf or nan. value: exact, 0 where it is not finite. exponent: of its binade, that of
    the smallest normal number for subnormals and zeros."""

    form: Binary
    code: int
    kind: str
    value: Fraction
    exponent: int

    @property
    def negative(self) -> bool:
        return bool(self.code >> self.form.bits - 1)

    def flushed(self) -> Number:
        """A subnormal number as the zero of its sign, any other as it is."""
        if self.kind == "finite" and 0 < abs(self.value) < power(self.form.lowest):
            return decode(self.form, self.code & 1 << self.form.bits - 1)
        return self


def power(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def exponent_of(value: Fraction) -> int:
    """The exponent of the highest bit of a value that is not 0."""
    numerator, denominator = abs(value.numerator), value.denominator
    guess = numerator.bit_length() - denominator.bit_length()
    return guess if abs(value) >= power(guess) else guess - 1


def decode(form: Binary, code: int) -> Number:
    """What a code means."""
    mantissa = code & (1 << form.mantissa_bits) - 1
    field = code >> form.mantissa_bits & (1 << form.exponent_bits) - 1
    magnitude = field << form.mantissa_bits | mantissa
    kind = "finite"
    if form.nan is NanKind.ieee and magnitude >= form.infinity:
        kind = "nan" if mantissa else "inf"
    elif form.nan is NanKind.all_ones and magnitude == (1 << form.bits - 1) - 1:
        kind = "nan"
    exponent = max(field, 1) - form.bias
    significand = mantissa | (1 << form.mantissa_bits if field else 0)
    value = significand * power(exponent - form.mantissa_bits) if kind == "finite" else ZERO
    return Number(form, code, kind, -value if code >> form.bits - 1 else value, exponent)


def cut(value: Fraction, unit: int, direction: int) -> Fraction:
    """The multiple of 2^unit beside a value: below it, toward zero, or the nearest, ties to even."""
    scaled = value / power(unit)
    if direction == Direction.nearest_even:
        whole = round(scaled)
    else:
        whole = scaled.numerator // scaled.denominator
        if direction == Direction.zero and value < 0 and whole != scaled:
            whole += 1
    return whole * power(unit)


@dataclass(frozen=True)
class Output:
    """How a value becomes a float. clamp: what overflows is the largest finite number."""

    form: Binary = F32
    direction: int = Direction.nearest_even
    clamp: bool = False

    def round(self, value: Fraction) -> int:
        """The code of a value that is not 0."""
        form, sign = self.form, (1 << self.form.bits - 1 if value < 0 else 0)
        unit = max(exponent_of(value), form.lowest) - form.mantissa_bits
        rounded = abs(cut(value, unit, self.direction))
        if not rounded:
            return sign
        exponent = exponent_of(rounded)
        if exponent > form.bias:
            return sign | form.infinity - (self.clamp or self.direction == Direction.zero)
        if exponent < form.lowest:
            return sign | int(rounded / power(form.lowest - form.mantissa_bits))
        significand = int(rounded / power(exponent - form.mantissa_bits))
        return sign | (exponent + form.bias - 1 << form.mantissa_bits) + significand


# ---- The tree --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """One product of a group. kind: finite, inf, nan, or overflow (its exponent reaches 128: taken as Inf). scale:
    exponent of its two block scales together. exponent: the sum of its factors' and the scale's. part: of the group, 0
    or 1. kept: what the alignment left of the value."""

    k: int
    a: Number
    b: Number
    scale: int
    kind: str
    value: Fraction
    exponent: int
    part: int
    kept: Fraction = ZERO

    @property
    def negative(self) -> bool:
        return self.a.negative != self.b.negative

    @property
    def lost(self) -> Fraction:
        """What was cut."""
        return self.value - self.kept


@dataclass(frozen=True)
class Part:
    """The products that are aligned together. exponent: their largest; none where all are 0. unit: the exponent of the
    last bit kept. total: of the cut products. kept: what is left of it at the larger exponent of the two parts."""

    exponent: int | None
    unit: int
    total: Fraction
    kept: Fraction


@dataclass(frozen=True)
class Join:
    """A sum of products meets C. exponent: the larger of theirs. dropped: C is outside its window. rounded: the total
    cut below its own exponent. result: the bits of the f32."""

    rule: GroupRule
    dot: Fraction
    dot_exponent: int | None
    c: Number
    exponent: int
    dot_unit: int
    c_unit: int
    dot_kept: Fraction
    c_kept: Fraction
    dropped: bool
    total: Fraction
    cut_total: Fraction
    result: int


@dataclass(frozen=True)
class Group:
    """One group: its products, what became of them, and its result, the C of the next. special: why no sum decides."""

    products: tuple[Product, ...]
    parts: tuple[Part, ...]
    c: Number
    join: Join | None
    special: str
    result: int


@dataclass(frozen=True)
class BlockSum:
    """The f32 sum of a block of 32 meets C with its scale (mfma.scale_entry = block_sum)."""

    block: int
    scale: int
    sum: Number
    c: Number
    join: Join | None
    special: str
    result: int


@dataclass(frozen=True)
class MultiplyAdd:
    """One step of an f32 or f64 chain. product: exact, or rounded where the step is not fused."""

    k: int
    a: Number
    b: Number
    c: Number
    product: Fraction
    total: Fraction
    special: str
    result: int


@dataclass(frozen=True)
class IntegerSum:
    """An i8 result: the products, their exact sum with C, and whether it left the range of i32."""

    products: tuple[tuple[int, int, int], ...]
    c: int
    total: int
    overflow: str
    result: int


Step = Group | BlockSum | MultiplyAdd | IntegerSum


@dataclass(frozen=True)
class Explanation:
    """How one element of D came about. result: its bits. rule: the group step in force, where there are groups."""

    mnemonic: str
    row: int
    col: int
    block: int
    model: str
    class_name: str
    rule: GroupRule | None
    steps: tuple[Step, ...]
    result: int

    def __str__(self) -> str:
        from gfx950.arithmetic.mfma_explain_text import lines

        return "\n".join(lines(self))


# ---- Groups ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What holds for every step of one explanation."""

    rule: GroupRule
    model: MfmaModel
    output: Output


@dataclass(frozen=True)
class Pair:
    """The two elements that meet at one k, and the exponent of their scales; none where a scale is NaN. there: whether
    a sparse A has an element here."""

    k: int
    a: Number
    b: Number
    scale: int | None = 0
    there: bool = True


def _reaches_128(a: Number, b: Number, exponent: int) -> bool:
    """Whether a product's exponent, counted up where its significand is 2 or more, is 128."""
    return exponent + (abs(a.value * b.value) >= power(a.exponent + b.exponent + 1)) >= 128


def _product(pair: Pair, part: int, rule: GroupRule) -> Product:
    a, b = pair.a, pair.b
    if rule.subnormal_inputs == Subnormals.flush:
        a, b = a.flushed(), b.flushed()
    scale = pair.scale or 0
    value, exponent = a.value * b.value * power(scale), a.exponent + b.exponent + scale
    kind = "finite"
    if pair.scale is None or "nan" in (a.kind, b.kind):
        kind = "nan"
    elif "inf" in (a.kind, b.kind):
        other = b if a.kind == "inf" else a
        kind = "nan" if other.kind == "finite" and other.value == 0 else "inf"
    elif rule.product_overflow and value and _reaches_128(a, b, exponent):
        kind = "overflow"
    return Product(pair.k, a, b, scale, kind, value, exponent, part)


def _products(pairs: Sequence[Pair], rule: GroupRule) -> tuple[Product, ...]:
    found = []
    for position, pair in enumerate(pairs):
        halves = int(rule.split == Split.halves and position >= len(pairs) // 2)
        part = position % 2 if rule.split == Split.even_odd else halves
        found.append(_product(pair, part, rule))
    return tuple(found)


def _align(products: tuple[Product, ...], rule: GroupRule) -> tuple[tuple[Product, ...], tuple[Part, ...]]:
    """Steps a to c."""
    exponents: list[int | None] = []
    for part in range(1 if rule.split == Split.none else 2):
        exponents.append(max((p.exponent for p in products if p.value and p.part == part), default=None))
    aligned = []
    for product in products:
        exponent = exponents[product.part]
        if product.value and exponent is not None:
            kept = cut(product.value, exponent - rule.product_bits, rule.product_direction)
            product = replace(product, kept=kept)
        aligned.append(product)
    largest = max((e for e in exponents if e is not None), default=0)
    parts = []
    for number, exponent in enumerate(exponents):
        total = sum((p.kept for p in aligned if p.part == number), ZERO)
        kept = cut(total, largest - rule.product_bits, rule.split_direction) if rule.split != Split.none else total
        parts.append(Part(exponent, (largest if exponent is None else exponent) - rule.product_bits, total, kept))
    return tuple(aligned), tuple(parts)


def _join(dot: Fraction, dot_exponent: int | None, c: Number, zero: int, setting: Setting) -> Join:
    """Steps d to f. zero: the bits of an exactly zero total."""
    rule = setting.rule
    exponent = c.exponent if dot_exponent is None else max(dot_exponent, c.exponent)
    dot_unit, c_unit = exponent - rule.dot_bits, exponent - rule.c_bits
    dropped = c.exponent < exponent - rule.c_window
    if rule.method == Method.exact:
        dropped, dot_kept, c_kept = False, dot, c.value
    else:
        dot_kept = cut(dot, dot_unit, rule.dot_direction)
        c_kept = ZERO if dropped else cut(c.value, c_unit, rule.c_direction)
    total = dot_kept + c_kept
    cut_total, result = total, zero
    if total:
        if rule.method == Method.aligned:
            cut_total = cut(total, max(exponent_of(total), F32.lowest) - rule.sum_bits, rule.sum_direction)
        result = _flushed_result(setting.output.round(cut_total), rule) if cut_total else 0
    return Join(
        rule, dot, dot_exponent, c, exponent, dot_unit, c_unit, dot_kept, c_kept, dropped, total, cut_total, result
    )


def _flushed_result(code: int, rule: GroupRule) -> int:
    subnormal = not code & F32.infinity
    return code & 1 << 31 if subnormal and rule.subnormal_d == Subnormals.flush else code


def _sign_of_zero(products: Sequence[Product], pairs: Sequence[Pair], c: Number, rule: GroupRule) -> int:
    if rule.zero_sign == ZeroSign.plus or not c.negative or c.value:
        return 0
    negative = all(p.negative and not p.value for p, pair in zip(products, pairs, strict=True) if pair.there)
    return 1 << 31 if negative else 0


def _widened(number: Number, form: Binary) -> int:
    """A NaN as the quiet NaN of a wider format: its sign, its payload from the left."""
    payload = number.code & (1 << number.form.mantissa_bits) - 1
    payload = payload << form.mantissa_bits - number.form.mantissa_bits | 1 << form.mantissa_bits - 1
    return int(number.negative) << form.bits - 1 | form.infinity | payload


def _nan(c: Number, factors: Sequence[tuple[Number, Number]], model: MfmaModel, form: Binary = F32) -> int:
    """Which NaN comes out."""
    made = model.nan_bits if form is F32 else _made_f64(model.nan_bits)
    if model.nan is NanRule.canonical:
        return made
    elements = [number for pair in factors for number in pair]
    order = [c, *elements] if model.nan is NanRule.c_first else [*elements, c]
    found = next((number for number in order if number.kind == "nan"), None)
    return made if found is None else _widened(found, form)


def _made_f64(nan_bits: int) -> int:
    """The f64 NaN of the same sign and payload bits."""
    payload = (nan_bits & (1 << F32.mantissa_bits) - 1) << F64.mantissa_bits - F32.mantissa_bits
    return nan_bits >> 31 << 63 | F64.infinity | payload


def _met(c: Number, products: Sequence[Product], model: MfmaModel) -> tuple[str, int]:
    """Why a special value decides a group, and the result; empty where it does not."""
    if c.kind == "nan" or any(p.kind == "nan" for p in products):
        reason = "C is NaN" if c.kind == "nan" else "a product is NaN"
        return reason, _nan(c, [(p.a, p.b) for p in products], model)
    infinite = [p.negative for p in products if p.kind in ("inf", "overflow")]
    infinite += [c.negative] if c.kind == "inf" else []
    if not infinite:
        return "", 0
    if any(infinite) and not all(infinite):
        return "+Inf and -Inf meet", _nan(c, [], replace(model, nan=NanRule.canonical))
    return ("-Inf" if infinite[0] else "+Inf") + " decides", F32.infinity | infinite[0] << 31


def _seen(code: int, rule: GroupRule) -> Number:
    """C as a step sees it."""
    c = decode(F32, code)
    return c.flushed() if rule.subnormal_c == Subnormals.flush else c


def _group(pairs: Sequence[Pair], c_code: int, setting: Setting) -> Group:
    rule = setting.rule
    c, products = _seen(c_code, rule), _products(pairs, rule)
    special, result = _met(c, products, setting.model)
    if special:
        return Group(products, (), c, None, special, result)
    zero = _sign_of_zero(products, pairs, c, rule)
    if rule.method == Method.exact:
        products = tuple(replace(p, kept=p.value) for p in products)
        largest = max((p.exponent for p in products if p.value), default=None)
        join = _join(sum((p.value for p in products), ZERO), largest, c, zero, setting)
        return Group(products, (), c, join, "", join.result)
    products, parts = _align(products, rule)
    largest = max((part.exponent for part in parts if part.exponent is not None), default=None)
    join = _join(sum((part.kept for part in parts), ZERO), largest, c, zero, setting)
    return Group(products, parts, c, join, "", join.result)


def _groups(pairs: Sequence[Pair], c: int, setting: Setting) -> Iterator[Group]:
    """A chain of groups, each result the next one's C."""
    for start in range(0, len(pairs), setting.rule.length):
        group = _group(pairs[start : start + setting.rule.length], c, setting)
        c = group.result
        yield group


def _block_sums(pairs: Sequence[Pair], c: int, setting: Setting) -> Iterator[Step]:
    """Every block of 32 from 0 without its scale, and its sum with the scale to C."""
    for start in range(0, len(pairs), SCALE_BLOCK):
        block = pairs[start : start + SCALE_BLOCK]
        groups = list(_groups([replace(pair, scale=0) for pair in block], 0, setting))
        yield from groups
        last = _block_sum(block[0], groups[-1].result, c, setting)
        c = last.result
        yield last


def _block_sum(first: Pair, sum_code: int, c_code: int, setting: Setting) -> BlockSum:
    model, c, block = setting.model, _seen(c_code, setting.rule), decode(F32, sum_code)
    scale, number = first.scale or 0, first.k // SCALE_BLOCK
    if first.scale is None or "nan" in (c.kind, block.kind):
        reason = "a scale is NaN" if first.scale is None else "NaN"
        result = _nan(c, [(block, block)], model)
        return BlockSum(number, scale, block, c, None, reason, result)
    signs = {n.negative for n in (c, block) if n.kind == "inf"}
    if signs:
        result = model.nan_bits if len(signs) == 2 else F32.infinity | signs.pop() << 31
        return BlockSum(number, scale, block, c, None, "Inf", result)
    exponent = block.exponent + scale if block.value else None
    minus = setting.rule.zero_sign == ZeroSign.ieee and c.code == block.code == 1 << 31
    join = _join(block.value * power(scale), exponent, c, minus << 31, setting)
    return BlockSum(number, scale, block, c, join, "", join.result)


# ---- Chains and integers ---------------------------------------------------------------------------------------------


def _chain(pairs: Sequence[Pair], c: int, fused: int, output: Output, model: MfmaModel) -> Iterator[MultiplyAdd]:
    for pair in pairs:
        step = _multiply_add(pair, decode(output.form, c), fused, output, model)
        c = step.result
        yield step


def _multiply_add(pair: Pair, c: Number, fused: int, output: Output, model: MfmaModel) -> MultiplyAdd:
    form, sign = output.form, 1 << output.form.bits - 1
    product, k = _product(pair, 0, GroupRule(1, product_overflow=0)), pair.k
    infinite = [product.negative] if product.kind == "inf" else []
    value = product.value
    if not fused and product.kind == "finite" and value:
        rounded = decode(form, output.round(value))
        value = rounded.value
        infinite += [rounded.negative] if rounded.kind == "inf" else []
    infinite += [c.negative] if c.kind == "inf" else []
    if "nan" in (product.kind, c.kind):
        return MultiplyAdd(k, pair.a, pair.b, c, ZERO, ZERO, "NaN", _nan(c, [(pair.a, pair.b)], model, form))
    if infinite:
        opposed = any(infinite) and not all(infinite)
        made = _nan(c, [], replace(model, nan=NanRule.canonical), form)
        return MultiplyAdd(
            k, pair.a, pair.b, c, ZERO, ZERO, "Inf", made if opposed else form.infinity | sign * infinite[0]
        )
    total = value + c.value
    minus_zero = sign if product.negative and c.negative and not value else 0
    result = output.round(total) if total else minus_zero
    return MultiplyAdd(k, pair.a, pair.b, c, value, total, "", result)


def _integer_sum(a: Sequence[int], b: Sequence[int], c: int, model: MfmaModel, clamp: bool) -> IntegerSum:
    signed = [[code - 256 if code >> 7 else code for code in codes] for codes in (a, b)]
    products = tuple((k, x, y) for k, (x, y) in enumerate(zip(*signed, strict=True)))
    start = c - (1 << 32) if c >> 31 else c
    total = start + sum(x * y for _, x, y in products)
    low, high = -(1 << 31), (1 << 31) - 1
    if low <= total <= high:
        return IntegerSum(products, start, total, "", total & 0xFFFFFFFF)
    if model.i8_overflow is IntegerOverflow.under_fp16_ovfl:
        saturates = clamp
    else:
        saturates = model.i8_overflow is IntegerOverflow.saturate
    kept = min(max(total, low), high) if saturates else total
    return IntegerSum(products, start, total, "saturates" if saturates else "wraps", kept & 0xFFFFFFFF)


# ---- One element of D ------------------------------------------------------------------------------------------------


def explain(
    mnemonic: str,
    a: Any,
    b: Any,
    c: Any = 0,
    row: int = 0,
    col: int = 0,
    *,
    block: int = 0,
    model: Model | str | PathLike[str] | None = None,
    codes: bool = False,
    a_format: str | None = None,
    b_format: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    index: Any = None,
    mode: Mode | None = None,
) -> Explanation:
    """How D[row][col] of `block` comes about, step by step; `str()` of it is a table.

    The operands and keywords are those of `emu.mfma`; CBSZ, ABID and BLGP are 0 here, and there is one matrix a block.
    Raises as `emu.mfma` does, and IndexError for an element that D does not have.
    """
    shape = matrix_instruction(mnemonic)
    check_mode(mode)
    row, col, block = (operator.index(place) for place in (row, col, block))
    if not (0 <= row < shape.m and 0 <= col < shape.n and 0 <= block < shape.blocks):
        raise IndexError(
            f"D of {mnemonic} is {shape.m} x {shape.n} in {shape.blocks} block(s); it has no [{row}][{col}] in block"
            f" {block}"
        )
    found = find_model(model)
    view = MfmaModel.of(found)
    element = _Element(shape, row, col, block, (a_format, b_format), codes)
    given = {"scaleA": scale_a, "scaleB": scale_b, "index": index}
    further_operands(shape, given)
    rule, class_name, steps, result = element.told(a, b, c, given, view, mode or Mode())
    return Explanation(mnemonic, row, col, block, found.name, class_name, rule, tuple(steps), result)


Told = tuple[GroupRule | None, str, list[Step], int]


@dataclass(frozen=True)
class _Element:
    """Which element of D is asked for, and how its operands are read."""

    shape: MatrixInstruction
    row: int
    col: int
    block: int
    formats: tuple[str | None, str | None]
    codes: bool

    def told(self, a: Any, b: Any, c: Any, others: dict[str, Any], view: MfmaModel, mode: Mode) -> Told:
        name = self.shape.mnemonic
        a_codes, b_codes, places = self._line(a, b, others["index"], view)
        c_code = int(self._operand("C", c)[self.row, self.col])
        if name.endswith("_i8"):
            total = _integer_sum(a_codes, b_codes, c_code, view, mode.fp16_ovfl)
            return None, "i8", [total], total.result
        pairs = self._pairs(a_codes, b_codes, places, others)
        if name.endswith(("_f32", "_f64")):
            return self._chain(pairs, c_code, view, mode)
        class_name = self._class(view)
        rule: GroupRule = getattr(view, class_name)
        by_blocks = self.shape.has_formats and view.scale_entry is ScaleEntry.block_sum
        if by_blocks:
            rule = rule._replace(length=min(rule.length, SCALE_BLOCK))
        setting = Setting(rule, view, Output(F32, rule.output_direction, mode.fp16_ovfl))
        ordered = [pairs[position] for position in self._order(len(pairs), view)]
        steps = list((_block_sums if by_blocks else _groups)(ordered, c_code, setting))
        return setting.rule, class_name, steps, steps[-1].result

    def _kind(self, operand: str) -> ElementKind:
        return element_kind(self.shape.mnemonic, operand, *self.formats)

    def _binary(self, operand: str) -> Binary:
        form = self._kind(operand).form
        return F64 if form is None else Binary(form.name, form.exponent_bits, form.mantissa_bits, form.bias, form.nan)

    def _operand(self, operand: str, matrix: Any) -> Codes:
        """The codes of an operand in this block, (rows, columns)."""
        where = layout(self.shape.mnemonic, operand, *self.formats)
        codes, core = to_codes(self._kind(operand), matrix, self.codes), (where.rows, where.cols)
        try:
            of_block = codes[self.block] if codes.ndim == 3 and len(codes) == where.blocks > 1 else codes
            found: Codes = np.broadcast_to(of_block, core)
            return found
        except ValueError:
            raise ValueError(
                f"{operand} of {self.shape.mnemonic} has shape {core}, got an array of {codes.shape}"
            ) from None

    def _line(self, a: Any, b: Any, index: Any, view: MfmaModel) -> tuple[list[int], list[int], list[int]]:
        """The codes of A and B that meet, and their k; -1 - k where a sparse A stores nothing."""
        b_column = [int(code) for code in self._operand("B", b)[:, self.col]]
        if not self.shape.sparse:
            a_row = [int(code) for code in self._operand("A", a)[self.row]]
            return a_row, b_column, list(range(len(a_row)))
        if index is None:
            dense = to_codes(self._kind("A"), a, self.codes)
            stored, places = compress_dense(self.shape, dense)
            if dense.ndim != 2:
                raise ValueError(f"A of {self.shape.mnemonic} is one matrix here, got an array of {dense.shape}")
        else:
            stored, places = self._operand("A", a), self._operand("index", index)
        a_row = [int(code) for code in stored[self.row]]
        ks = [4 * (c // 2) + int(place) for c, place in enumerate(places[self.row])]
        if view.sparse_order is SparseOrder.expanded and not self.shape.mnemonic.endswith("_i8"):
            held = dict(zip(ks, a_row, strict=True))  # of two in one place the second counts
            whole = [held.get(k, 0) for k in range(self.shape.k)]
            return whole, b_column, [k if k in held else -1 - k for k in range(self.shape.k)]
        return a_row, [b_column[k] for k in ks], ks

    def _pairs(self, a: list[int], b: list[int], places: list[int], others: dict[str, Any]) -> list[Pair]:
        a_form, b_form = self._binary("A"), self._binary("B")
        found = []
        for x, y, place in zip(a, b, places, strict=True):
            there, k = place >= 0, max(place, -1 - place)
            right = decode(b_form, y if there else 0)  # where nothing is stored, nothing is multiplied
            found.append(Pair(k, decode(a_form, x), right, self._scale(k, others), there))
        return found

    def _scale(self, k: int, others: dict[str, Any]) -> int | None:
        """The exponent of the two block scales at k; none where one is NaN."""
        if not self.shape.has_scales:
            return 0
        codes = []
        for operand, line in (("scaleA", self.row), ("scaleB", self.col)):
            matrix = ONE if others[operand] is None else others[operand]
            codes.append(int(self._operand(operand, matrix)[line, k // SCALE_BLOCK]))
        return None if NAN_SCALE in codes else sum(codes) - 2 * ONE

    def _class(self, view: MfmaModel) -> str:
        """The class of shapes whose group step this instruction follows."""
        widths = [self._kind(operand).bits for operand in "AB"]
        if self.shape.has_formats:
            pick = max if view.mixed_formats is MixedFormats.wider else min
            return "byte_deep" if pick(widths) == 8 else "small"
        deep = self.shape.stored_items * widths[0] == 128  # A fills four registers
        return ("half" if widths[0] == 16 else "byte") + "_deep" * deep

    def _order(self, depth: int, view: MfmaModel) -> list[int]:
        """The order of positions in k: ascending, or lane group by lane group as A's registers hold it."""
        whole = self.shape.sparse and depth == self.shape.k  # then B's: A's registers hold half of them
        where = layout(self.shape.mnemonic, "B" if whole else "A", *self.formats)
        by_blocks = self.shape.has_formats and view.scale_entry is ScaleEntry.block_sum
        if view.group_order is GroupOrder.logical or by_blocks or (self.shape.sparse and not whole):
            return list(range(depth))
        lanes = range(0, LANES, self.shape.m * where.blocks)
        elements = [where.layout.element(Slot(lane, item)) for lane in lanes for item in range(where.items)]
        return [element.row if whole else element.col for element in elements]

    def _chain(self, pairs: list[Pair], c: int, view: MfmaModel, mode: Mode) -> Told:
        double = self.shape.output_bits == 64
        order, fused = (view.f64_order, view.f64_fused) if double else (view.f32_order, view.f32_fused)
        if not double and view.f32_subnormal_inputs is ChainInputs.by_mode and not mode.denorm32 & 1:
            pairs = [replace(pair, a=pair.a.flushed(), b=pair.b.flushed()) for pair in pairs]
        pairs = pairs[::-1] if order is Order.descending else pairs
        output = Output(F64) if double else Output(F32, clamp=mode.fp16_ovfl)
        steps: list[Step] = list(_chain(pairs, c, fused, output, view))
        return None, "f64" if double else "f32", steps, steps[-1].result
