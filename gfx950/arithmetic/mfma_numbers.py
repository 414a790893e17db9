"""What the compiled matrix arithmetic is told of a shape and a model: blocks of numbers.

A native's block: the fields of `ShapeNumbers`, of `QuestionNumbers`, then those of the two group rules it chooses from
by the formats of A and B (F8F6F4 alone has two). What a native does not read is the default there, so that models that
agree on what it reads give the same block.
"""

from __future__ import annotations

from typing import NamedTuple

from gfx950.arithmetic.mfma_models import DEFAULT, Format, MfmaModel, mfma_class
from gfx950.arithmetic.mfma_shapes import SHAPES, kind_of
from gfx950.arithmetic.mfma_switches import GroupRule

KINDS = ("f8f6f4", "f8", "f16")  # of group steps
RULE_NUMBERS = len(GroupRule._fields)
# Above what a native's parameters hold, n asks the general group functions for a sample of D: the elements whose row
# and column sum to a multiple of n. A fit looks at samples first.
SAMPLE_SHIFT = 32


class ShapeNumbers(NamedTuple):
    """A shape, as in `mfma_shapes.Shape`. kind: its place in KINDS. b_two_runs: whether a sparse one's B holds two runs
    of k."""

    kind: int
    rows: int
    depth: int
    lane_items: int
    operand_registers: int
    blocks: int
    copies: int
    element_registers: int
    sparse: int
    b_two_runs: int


class QuestionNumbers(NamedTuple):
    """The answers to questions of `MfmaModel`. fused, order: of f32 or f64."""

    group_order: int
    scale_entry: int
    sparse_order: int
    mixed_formats: int
    nan: int
    nan_bits: int
    fused: int
    order: int
    keep_subnormals: int
    i8_overflow: int


QUESTIONS_AT = len(ShapeNumbers._fields)
RULES_AT = QUESTIONS_AT + len(QuestionNumbers._fields)


def shape_numbers(name: str) -> ShapeNumbers:
    """The shape of a native."""
    shape, kind = SHAPES[name], kind_of(name)
    return ShapeNumbers(
        KINDS.index(kind) if kind in KINDS else -1,
        shape.rows,
        shape.depth,
        shape.lane_items,
        shape.operand_registers,
        shape.blocks,
        shape.copies,
        shape.element_registers,
        int(shape.sparse),
        int(shape.b_shape.two_runs),
    )


def native_numbers(name: str, model: MfmaModel) -> tuple[int, ...]:
    """The block of a native under a model."""
    return tuple(map(int, (*shape_numbers(name), *_questions(name, model), *_rules(name, model))))


def _questions(name: str, model: MfmaModel) -> QuestionNumbers:
    shape, kind = SHAPES[name], kind_of(name)
    nan = (0, 0) if kind == "i8" else (model.nan, model.nan_bits)
    chain = {"f32": (model.f32_fused, model.f32_order), "f64": (model.f64_fused, model.f64_order)}.get(kind, (1, 0))
    physical_differs = bool(shape.blocks) or (shape.b_shape.two_runs and model.sparse_order)
    return QuestionNumbers(
        model.group_order if physical_differs else 0,
        model.scale_entry if shape.blocks else 0,
        model.sparse_order if shape.sparse and kind != "i8" else 0,
        model.mixed_formats if shape.blocks else 0,
        *nan,
        *chain,
        model.f32_subnormal_inputs if kind == "f32" else 0,
        model.i8_overflow if kind == "i8" else 0,
    )


def _rules(name: str, model: MfmaModel) -> tuple[int, ...]:
    kind = kind_of(name)
    if kind not in KINDS:
        return tuple(DEFAULT.half) * 2
    if kind == "f8f6f4":
        return (*model.byte_deep, *model.small)
    rule: GroupRule = getattr(model, str(mfma_class(name, Format.fp8, Format.fp8, model)))
    return tuple(rule) * 2


class ProductNumbers(NamedTuple):
    """A product of two matrices of codes. scaled, clamp, block_sum: 0 or 1."""

    rows: int
    columns: int
    depth: int
    format_a: int
    format_b: int
    scaled: int
    clamp: int
    block_sum: int
    nan: int
    nan_bits: int


PRODUCT_RULE_AT = len(ProductNumbers._fields)
WORK_WORDS = 2 * 5 * 2048 + 5 * 128 + 2 * 128 + 2 * 128 + 2 * 32 * 4 + 64  # see `mfma_rule.places_of`
WIDE_WORDS = 32
