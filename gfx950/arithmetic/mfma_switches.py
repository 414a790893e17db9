"""The open questions of matrix arithmetic as switches, `mfma.<class>.<field>` and `mfma.<question>`.

Classes of shapes whose units may differ, and so may be answered apart:
 half       f16 and bf16 on shapes that gfx942 has too (16 stored k, or fewer, at 16 rows).
 half_deep  f16 and bf16 on gfx950's own shapes (32 stored k at 16 rows).
 byte       fp8 and bf8 with 32 stored k at 16 rows.
 byte_deep  fp8 and bf8 on shapes of F8F6F4 and of 64 stored k, also mixed with smaller formats.
 small      F8F6F4 with fp6, bf6 and fp4 alone.

The steps that the fields name are those of `gfx950.arithmetic.mfma`.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from gfx950.arithmetic.mfma_evidence import CLASS_RULES, QUESTION_RULES
from gfx950.models import Answer, Switch, switch

CLASSES = ("half", "half_deep", "byte", "byte_deep", "small")


class Method(enum.IntEnum):
    """How a group of products meets C: steps a to f, or exactly, with step f alone."""

    aligned = 0
    exact = 1


class Split(enum.IntEnum):
    """How a group is cut in two parts that are aligned apart (step c)."""

    none = 0
    even_odd = 1
    halves = 2


class Direction(enum.IntEnum):
    """Which way a cut goes: toward minus infinity, toward zero, or to the nearest, ties to even."""

    down = 0
    zero = 1
    nearest_even = 2


class Subnormals(enum.IntEnum):
    """Kept, or flushed to the zero of their sign."""

    keep = 0
    flush = 1


class ZeroSign(enum.IntEnum):
    """What an exactly zero total is: +0, or -0 where C is -0 and every product of the group is -0."""

    plus = 0
    ieee = 1


class GroupOrder(enum.IntEnum):
    """Order in which k is cut into groups: `logical` ascending, or `physical`, lane group by lane group as registers
    hold it."""

    logical = 0
    physical = 1


class ScaleEntry(enum.IntEnum):
    """Where a block scale enters: at every product's exponent before alignment, or at the f32 sum of its whole block
    of 32, which then meets C in one more step d to f."""

    product_exponent = 0
    block_sum = 1


class SparseOrder(enum.IntEnum):
    """What a sparse A's groups are cut from: `stored`, the elements that are stored, as a dense A of half the depth
    would be; or `expanded`, all k, nothing where nothing is stored."""

    stored = 0
    expanded = 1


class MixedFormats(enum.IntEnum):
    """Whose class a mixed pair of F8F6F4 follows: that of its wider format, or of its narrower."""

    wider = 0
    narrower = 1


class NanRule(enum.IntEnum):
    """Which NaN a step gives: always `nan_bits`, or the first NaN among its operands, quiet."""

    canonical = 0
    c_first = 1
    a_first = 2


class Order(enum.IntEnum):
    """Order of a chain of multiply-adds in k."""

    ascending = 0
    descending = 1


class ChainInputs(enum.IntEnum):
    """Subnormal A and B of f32: flushed where MODE says so, or always kept."""

    by_mode = 0
    keep = 1


class IntegerOverflow(enum.IntEnum):
    """An i32 sum beyond its range: as FP16_OVFL says, modulo 2^32, or held at the ends."""

    under_fp16_ovfl = 0
    wrap = 1
    saturate = 2


NO_WINDOW = 1 << 20
NO_CUT = 1 << 20


class GroupRule(NamedTuple):
    """The numbers of one group step, named as in the text of `gfx950.arithmetic.mfma`; bits, or products."""

    length: int
    split: int = Split.none
    product_bits: int = 24
    dot_bits: int = 32
    c_bits: int = 24
    c_window: int = NO_WINDOW
    sum_bits: int = 31
    product_overflow: int = 1  # 1: a product whose exponent reaches 128 is Inf before anything is summed
    method: int = Method.aligned
    product_direction: int = Direction.zero
    split_direction: int = Direction.down
    dot_direction: int = Direction.down
    c_direction: int = Direction.down
    sum_direction: int = Direction.down
    output_direction: int = Direction.nearest_even
    subnormal_inputs: int = Subnormals.keep
    subnormal_c: int = Subnormals.keep
    subnormal_d: int = Subnormals.keep
    zero_sign: int = ZeroSign.plus


HALF = GroupRule(8)
BYTE = GroupRule(16, Split.even_odd, c_window=25, product_overflow=0)
DEFAULT_RULES = {"half": HALF, "half_deep": HALF, "byte": BYTE, "byte_deep": BYTE, "small": BYTE}


class Field(NamedTuple):
    """One field of a class. values: what each answer is in a `GroupRule`. topic: the rule of the class it decides."""

    values: dict[Answer, int]
    topic: str
    text: str


def _named(*answers: enum.IntEnum) -> dict[Answer, int]:
    return {answer.name: int(answer) for answer in answers}


def _numbers(*numbers: int, **named: int) -> dict[Answer, int]:
    answers: dict[Answer, int] = {number: number for number in numbers}
    return answers | named


_CUTS = _named(Direction.down, Direction.zero, Direction.nearest_even)
FIELDS: dict[str, Field] = {
    "method": Field(
        _named(*Method), "group", "aligned: steps a to f. exact: the exact sum of the group and C, rounded once."
    ),
    "length": Field(_numbers(1, 2, 4, 8, 16, 32, 64, 128), "group", "Products of a group."),
    "split": Field(_named(*Split), "split", "The parts of a group that are aligned apart."),
    "product_bits": Field(
        _numbers(*range(20, 37)), "products", "Bits of a product kept below the largest exponent of its part."
    ),
    "product_direction": Field(_CUTS, "products", "Which way products are cut."),
    "product_overflow": Field(
        _numbers(1, 0),
        "product_overflow",
        "1: a product that is not 0 is Inf before anything is summed where the exponents of its factors and of their"
        " scales, plus one where the significands multiply to 2 or more, add up to 128 or more. A subnormal factor"
        " counts with the exponent of the smallest normal number, so that under large scales a product below 2^128"
        " can be Inf too; all others are Inf from 2^128 on. 0: never.",
    ),
    "split_direction": Field(
        _named(Direction.down, Direction.zero), "split", "Which way part sums are cut at the larger exponent."
    ),
    "dot_bits": Field(_numbers(*range(20, 41)), "dot", "Bits of the group sum kept below the larger exponent."),
    "dot_direction": Field(_CUTS, "dot", "Which way the group sum is cut."),
    "c_bits": Field(_numbers(*range(20, 41)), "c", "Bits of C kept below the larger exponent."),
    "c_direction": Field(_CUTS, "c", "Which way C is cut."),
    "c_window": Field(
        _numbers(*range(20, 41), none=NO_WINDOW), "c", "Binades below the larger exponent from which C is still seen."
    ),
    "sum_bits": Field(_numbers(*range(23, 41), none=NO_CUT), "sum", "Bits of the total kept below its exponent."),
    "sum_direction": Field(_CUTS, "sum", "Which way the total is cut."),
    "output_direction": Field(
        _named(Direction.nearest_even, Direction.zero),
        "output",
        "How the total becomes an f32; toward zero, what overflows is the largest finite number.",
    ),
    "subnormal_inputs": Field(_named(*Subnormals), "subnormals", "Subnormal elements of A and B."),
    "subnormal_c": Field(_named(*Subnormals), "subnormals", "A subnormal C of a group step."),
    "subnormal_d": Field(_named(*Subnormals), "subnormals", "A subnormal f32 result of a group step."),
    "zero_sign": Field(
        _named(*ZeroSign),
        "zero_sign",
        "An exactly zero total. ieee: -0 where C is -0 and every product of the group is -0 (a product that a sparse A"
        " lacks says nothing); plus: always +0.",
    ),
}


def answer_of(field: str, value: int) -> Answer:
    """The answer that gives a field a value. Raises ValueError where no answer does."""
    for answer, meaning in FIELDS[field].values.items():
        if meaning == value:
            return answer
    raise ValueError(f"no answer of mfma.<class>.{field} means {value}; there are {list(FIELDS[field].values)}")


def _declare(class_: str, name: str, field: Field) -> Switch:
    default = answer_of(name, getattr(DEFAULT_RULES[class_], name))
    rules = (CLASS_RULES[class_][field.topic],)
    return switch(f"mfma.{class_}.{name}", default, tuple(field.values), field.text, rules=rules)


CLASS_SWITCHES: dict[str, dict[str, Switch]] = {
    class_: {name: _declare(class_, name, field) for name, field in FIELDS.items()} for class_ in CLASSES
}


def _question(name: str, default: enum.IntEnum, text: str) -> Switch:
    answers = tuple(answer.name for answer in type(default))
    return switch(f"mfma.{name}", default.name, answers, text, rules=(QUESTION_RULES[name],))


_NANS = (0x7FC00000, 0xFFC00000, 0x7FFFFFFF)
QUESTIONS: dict[str, tuple[Switch, Any]] = {  # by field of `MfmaModel`: the switch and what its answers are
    "group_order": (_question("group_order", GroupOrder.logical, "Order in which k is cut into groups."), GroupOrder),
    "scale_entry": (
        _question("scale_entry", ScaleEntry.product_exponent, "Where block scales enter."),
        ScaleEntry,
    ),
    "sparse_order": (_question("sparse_order", SparseOrder.stored, "What the groups of a sparse A are."), SparseOrder),
    "mixed_formats": (
        _question("mixed_formats", MixedFormats.wider, "Whose class a mixed F8F6F4 pair follows."),
        MixedFormats,
    ),
    "nan": (
        _question(
            "nan",
            NanRule.canonical,
            "Which NaN a step gives. canonical: always nan_bits. c_first: the first NaN of C, A[k], B[k], k ascending."
            " a_first: of A[k], B[k], then C; widened to the result's format, sign kept, payload at the left, quiet."
            " A NaN that is made is nan_bits.",
        ),
        NanRule,
    ),
    "nan_bits": (
        switch(
            "mfma.nan_bits",
            _NANS[0],
            _NANS,
            "The f32 NaN that is made; of f64 the one of the same sign and payload bits.",
            rules=(QUESTION_RULES["nan_bits"],),
        ),
        int,
    ),
    "f32_fused": (
        switch(
            "mfma.f32.fused",
            1,
            (1, 0),
            "f32: 1 rounds a product and its sum once, 0 each.",
            rules=(QUESTION_RULES["f32"],),
        ),
        int,
    ),
    "f32_order": (
        switch(
            "mfma.f32.order",
            "ascending",
            ("ascending", "descending"),
            "f32: order of the chain in k.",
            rules=(QUESTION_RULES["f32"],),
        ),
        Order,
    ),
    "f32_subnormal_inputs": (
        switch(
            "mfma.f32.subnormal_inputs",
            "by_mode",
            ("by_mode", "keep"),
            "f32: subnormal A and B, flushed where MODE flushes f32 inputs, or kept.",
            rules=(QUESTION_RULES["f32_denorm"],),
        ),
        ChainInputs,
    ),
    "f64_fused": (
        switch(
            "mfma.f64.fused",
            1,
            (1, 0),
            "f64: 1 rounds a product and its sum once, 0 each.",
            rules=(QUESTION_RULES["f64"],),
        ),
        int,
    ),
    "f64_order": (
        switch(
            "mfma.f64.order",
            "ascending",
            ("ascending", "descending"),
            "f64: order of the chain in k.",
            rules=(QUESTION_RULES["f64"],),
        ),
        Order,
    ),
    "i8_overflow": (
        switch(
            "mfma.i8.overflow",
            "under_fp16_ovfl",
            ("under_fp16_ovfl", "wrap", "saturate"),
            "i8: an i32 sum beyond its range wraps, unless FP16_OVFL is set; always wraps; or always saturates.",
            rules=(QUESTION_RULES["i8"],),
        ),
        IntegerOverflow,
    ),
}
