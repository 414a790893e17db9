"""Explanations of matrix results as tables: binary digits stand under each other by weight, `|` marks a cut, digits
behind it are what was cut, `>` stands for more of them."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from fractions import Fraction

from gfx950.arithmetic.mfma_explain import (
    F32,
    F64,
    BlockSum,
    Explanation,
    Group,
    IntegerSum,
    Join,
    MultiplyAdd,
    Number,
    Product,
    Step,
    decode,
    exponent_of,
    power,
)
from gfx950.arithmetic.mfma_switches import NO_CUT, NO_WINDOW, Direction, GroupRule, Method, Split

TAIL = 16  # digits shown behind a cut
WIDEST = 64  # digits shown where nothing is cut
WIDTH = 100
_WAYS: dict[int, str] = {
    Direction.down: "down",
    Direction.zero: "toward zero",
    Direction.nearest_even: "to nearest even",
}
_PARTS = {Split.none: ("",), Split.even_odd: ("even", "odd"), Split.halves: ("first", "second")}


def lines(told: Explanation) -> Iterator[str]:
    """The lines of an explanation, at most about 100 columns wide."""
    block = f" block {told.block}" if told.block else ""
    yield f"{told.mnemonic}  D[{told.row}][{told.col}]{block}  model {told.model}, class {told.class_name}"
    if told.rule is not None:
        yield from textwrap.wrap(rule_text(told.rule), WIDTH)
    groups = sum(isinstance(step, Group) for step in told.steps)
    number = 0
    for idle, steps in itertools.groupby(told.steps, changes_nothing):
        run = list(steps)
        if idle:
            numbers = f"{number + 1}" if len(run) == 1 else f"{number + 1} to {number + len(run)}"
            yield from ("", f"group {numbers} of {groups}: zero products alone, the result is C")
            number += len(run)
            continue
        for step in run:
            number += isinstance(step, Group)
            yield from step_lines(step, number, groups)
    yield f"D[{told.row}][{told.col}] = {_result(told)}"


def changes_nothing(step: Step) -> bool:
    """Whether a group has nothing but zero products and gives its C."""
    if not isinstance(step, Group) or step.join is None or step.result != step.c.code:
        return False
    return not any(product.value for product in step.products)


def step_lines(step: Step, number: int, groups: int) -> Iterator[str]:
    """The lines of one step."""
    if isinstance(step, Group):
        yield ""
        yield f"group {number} of {groups}"
        yield from group_lines(step)
    elif isinstance(step, BlockSum):
        yield ""
        yield f"block {step.block}: its sum {_float(step.sum)} times 2^{step.scale}"
        yield from [f"  {step.special}: {step.result:08x}"] if step.join is None else join_lines(step.join)
    elif isinstance(step, MultiplyAdd):
        yield chain_line(step)
    else:
        yield from integer_lines(step)


def rule_text(rule: GroupRule) -> str:
    """The group step in words."""
    if rule.method == Method.exact:
        return f"groups of {rule.length}: the exact sum with C, rounded once ({_WAYS[rule.output_direction]})"
    window = "" if rule.c_window == NO_WINDOW else f", dropped more than {rule.c_window} below"
    total = "" if rule.sum_bits == NO_CUT else f"; total {rule.sum_bits} ({_WAYS[rule.sum_direction]})"
    split = "" if rule.split == Split.none else f", {Split(rule.split).name} apart"
    return (
        f"groups of {rule.length}{split}; bits kept below the largest exponent: products {rule.product_bits}"
        f" ({_WAYS[rule.product_direction]}), their sum {rule.dot_bits}"
        f" ({_WAYS[rule.dot_direction]}), C {rule.c_bits} ({_WAYS[rule.c_direction]}){window}{total};"
        f" rounded {_WAYS[rule.output_direction]}"
    )


# ---- Groups ----------------------------------------------------------------------------------------------------------


def group_lines(group: Group) -> Iterator[str]:
    """Products, then parts where there are two, then the join."""
    shown = [p for p in group.products if p.value or p.kind != "finite"]
    zeros = len(group.products) - len(shown)
    top = max((max(p.exponent + 1, exponent_of(p.value)) for p in shown if p.value), default=0)
    if shown:
        values = max(len(_values(p)) for p in shown)
        names = _PARTS[Split(group.join.rule.split)] if group.join is not None and group.parts else ("",)
        yield f"  {'k':>3}  {'A':4} {'B':4}  {'A * B':{values}} {'exp':>4}   product"
        for part, name in enumerate(names):
            yield from _part_lines(group, [p for p in shown if p.part == part or name == ""], part, name, top, values)
    if zeros:
        yield f"  {zeros} zero product{'s' * (zeros > 1)} take{'s' * (zeros == 1)} no part"
    if group.join is None:
        yield f"  {group.special}: {group.result:08x} (C {_float(group.c)})"
    else:
        yield from join_lines(group.join)


def _part_lines(group: Group, products: list[Product], part: int, name: str, top: int, values: int) -> Iterator[str]:
    unit = group.parts[part].unit if group.parts else None
    for product in products:
        digits = binary(product.value, top, unit) if product.kind == "finite" else product.kind
        codes = f"{_code(product.a):4} {_code(product.b):4}"
        exponent = str(product.exponent) if product.value else ""
        yield f"  {product.k:3}  {codes}  {_values(product):{values}} {exponent:>4}  {digits}"
    if not group.parts:
        return
    of = group.parts[part]
    label = f"sum of {name} k" if name else "sum of products"
    yield f"  {label:{values + 16}}     {binary(of.total, top, unit, '=')}"
    if name and of.kept != of.total:
        yield f"  {'cut at the larger exponent':{values + 16}}     {binary(of.kept, top, unit, '=')}"


def join_lines(join: Join) -> Iterator[str]:
    """Steps d to f."""
    numbers = [join.dot, join.c.value, join.total]
    top = max((exponent_of(n) for n in numbers if n), default=0)
    aligned = join.rule.method == Method.aligned
    dot_unit, c_unit = (join.dot_unit, join.c_unit) if aligned else (None, None)
    total_unit = max(exponent_of(join.total), -126) - join.rule.sum_bits if join.total and aligned else None
    yield f"  {'sum of products, exponent ' + _exponent(join.dot_exponent):44} {binary(join.dot, top, dot_unit)}"
    if join.dot_kept != join.dot:
        yield f"  {'  kept':44} {binary(join.dot_kept, top, dot_unit, '=')}"
    yield f"  {f'C = {_float(join.c)}, exponent {join.c.exponent}':44} {binary(join.c.value, top, c_unit)}"
    if join.c_kept != join.c.value:
        label = "  outside its window, dropped" if join.dropped else "  kept"
        yield f"  {label:44} {binary(join.c_kept, top, c_unit, '=')}"
    yield f"  {'total':44} {binary(join.total, top, total_unit, '=')}"
    if join.cut_total != join.total:
        yield f"  {'  kept':44} {binary(join.cut_total, top, total_unit, '=')}"
    rounded = max(exponent_of(join.cut_total), -126) - 23 if join.cut_total else None
    if rounded is not None:
        yield f"  {'  where f32 ends':44} {binary(join.cut_total, top, rounded)}"
    yield f"  {'rounded':44} {join.result:08x}  {_decimal_f32(join.result)}"


def binary(value: Fraction, top: int, unit: int | None, sign: str = "") -> str:
    """Sign and binary digits from weight 2^top on, `.` above the first 1, `|` at weight 2^unit.

    sign `=`: for values without digits below `unit`. An exact 0 is shown as 0.
    """
    if not value:
        return " " + "." * (0 if unit is None else max(top - unit, 0)) + "0"
    lowest = -(value.denominator.bit_length() - 1)
    if value.denominator == 1:
        lowest = (value.numerator & -value.numerator).bit_length() - 1
    end = min(lowest, unit) if unit is not None else lowest
    top = max(top, exponent_of(value))
    whole = int(abs(value) / power(end))
    digits = f"{whole:0{top - end + 1}b}"
    first = digits.index("1")
    digits = "." * first + digits[first:]
    mark = "-" if value < 0 else "+"
    if unit is None:
        return mark + (digits if len(digits) <= WIDEST else digits[:WIDEST] + ">")
    kept, tail = digits[: max(top - unit + 1, 0)], digits[max(top - unit + 1, 0) :]
    tail = tail if len(tail) <= TAIL else tail[:TAIL] + ">"
    return mark + kept + ("|" + tail if tail or not sign else "")


# ---- Chains and integers ---------------------------------------------------------------------------------------------


def chain_line(step: MultiplyAdd) -> str:
    """One multiply-add."""
    digits = step.c.form.bits // 4
    exact = step.special or f"{decimal(step.a.value)} * {decimal(step.b.value)} + {decimal(step.c.value)}"
    codes = f"{step.a.code:0{digits}x} * {step.b.code:0{digits}x} + {step.c.code:0{digits}x}"
    return f"  k {step.k}: {codes} -> {step.result:0{digits}x}   {exact}"


def integer_lines(step: IntegerSum) -> Iterator[str]:
    """The products that are not zero, and the sum."""
    text = " ".join(f"{k}: {a} * {b};" for k, a, b in step.products if a * b)
    yield from textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
    over = f", {step.overflow}" if step.overflow else ""
    yield f"  the products and C = {step.c} are {step.total}{over}"


# ---- Numbers ---------------------------------------------------------------------------------------------------------


def decimal(value: Fraction) -> str:
    """A value for people: exact where it is short, else its first digits."""
    if not value:
        return "0"
    if -1000 < exponent_of(value) < 1000:
        return f"{float(value):.9g}"
    return f"{'-' if value < 0 else ''}2^{exponent_of(value)} * {float(abs(value) / power(exponent_of(value))):.9g}"


def _values(product: Product) -> str:
    scale = f" * 2^{product.scale}" if product.scale else ""
    return f"{_plain(product.a)} * {_plain(product.b)}{scale}"


def _plain(number: Number) -> str:
    sign = "-" if number.negative else ""
    return decimal(number.value) if number.kind == "finite" else f"{sign}{number.kind}"


def _code(number: Number) -> str:
    return f"{number.code:0{(number.form.bits + 3) // 4}x}"


def _float(number: Number) -> str:
    return f"{_code(number)} ({_plain(number)})"


def _exponent(exponent: int | None) -> str:
    return "none" if exponent is None else str(exponent)


def _decimal_f32(code: int) -> str:
    number = decode(F32, code)
    return ("-" if number.negative and not number.value and number.kind == "finite" else "") + _plain(number)


def _result(told: Explanation) -> str:
    if told.class_name == "i8":
        return f"{told.result:08x}  {told.result - (told.result >> 31 << 32)}"
    if told.class_name == "f64":
        return f"{told.result:016x}  {_plain(decode(F64, told.result))}"
    return f"{told.result:08x}  {_decimal_f32(told.result)}"
