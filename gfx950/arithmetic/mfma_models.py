"""A model's answers about matrix arithmetic as numbers: `MfmaModel`, and the models that have names."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gfx950.arithmetic.mfma_shapes import is_deep, kind_of
from gfx950.arithmetic.mfma_switches import (
    BYTE,
    CLASS_SWITCHES,
    CLASSES,
    FIELDS,
    HALF,
    NO_WINDOW,
    QUESTIONS,
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
    answer_of,
)
from gfx950.formats import BF16, E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, F16, NanKind
from gfx950.formats import Format as FloatFormat
from gfx950.models import Answer, Model, name_model


class Format(enum.IntEnum):
    """Element formats; 0 to 4 are the ISA's CBSZ and BLGP codes of F8F6F4. FNUZ and xf32 are gfx942's and have no
    native here."""

    fp8 = 0
    bf8 = 1
    fp6 = 2
    bf6 = 3
    fp4 = 4
    f16 = 5
    bf16 = 6
    fp8_fnuz = 7
    bf8_fnuz = 8
    xf32 = 9


_XF32 = FloatFormat("xf32", 19, 8, 10, 127, True, NanKind.ieee, 0x3FE00)  # the upper bits of an f32
ELEMENTS = (E4M3FN, E5M2, E2M3, E3M2, E2M1, F16, BF16, E4M3FNUZ, E5M2FNUZ, _XF32)  # by Format
FIELD_BITS = tuple(element.bits for element in ELEMENTS)
XF32_RULE = GroupRule(4)  # of gfx942 alone, so under no switch


@dataclass(frozen=True)
class MfmaModel:
    """One candidate for the arithmetic. half to small: the group steps of the classes of shapes; the rest: what the
    switches of the same name ask.

    nan_bits: the f32 NaN that is made. Raises ValueError for widths that 64-bit integers cannot hold.
    """

    half: GroupRule = HALF
    half_deep: GroupRule = HALF
    byte: GroupRule = BYTE
    byte_deep: GroupRule = BYTE
    small: GroupRule = BYTE
    group_order: GroupOrder = GroupOrder.logical
    scale_entry: ScaleEntry = ScaleEntry.product_exponent
    sparse_order: SparseOrder = SparseOrder.stored
    mixed_formats: MixedFormats = MixedFormats.wider
    nan: NanRule = NanRule.canonical
    nan_bits: int = 0x7FC00000
    f32_fused: int = 1
    f32_order: Order = Order.ascending
    f32_subnormal_inputs: ChainInputs = ChainInputs.by_mode
    f64_fused: int = 1
    f64_order: Order = Order.ascending
    i8_overflow: IntegerOverflow = IntegerOverflow.under_fp16_ovfl

    def __post_init__(self) -> None:
        for name in CLASSES:
            _check_group(name, getattr(self, name))
        if not 0x7F800000 < self.nan_bits & 0x7FFFFFFF <= 0x7FFFFFFF or not self.nan_bits & 0x400000:
            raise ValueError(f"nan_bits {self.nan_bits:#x} is no f32 NaN that is quiet")

    @staticmethod
    def of(model: Model) -> MfmaModel:
        """What a model says of matrix arithmetic."""
        if model.digest not in _VIEWS:
            groups: dict[str, Any] = {class_: _group_of(class_, model.values) for class_ in CLASSES}
            others = {name: _meaning(name, model.values) for name in QUESTIONS}
            _VIEWS[model.digest] = MfmaModel(**groups, **others)
        return _VIEWS[model.digest]

    @cached_property
    def answers(self) -> dict[str, Answer]:
        """The answers to every matrix switch that make this model. Raises ValueError for what no answer makes."""
        answers: dict[str, Answer] = {}
        for class_, switches in CLASS_SWITCHES.items():
            for name, switch in switches.items():
                answers[switch.name] = answer_of(name, getattr(getattr(self, class_), name))
        for name, (switch, kind) in QUESTIONS.items():
            value = getattr(self, name)
            answers[switch.name] = value if kind is int else value.name
        return answers


def _group_of(class_: str, values: Mapping[str, Answer]) -> GroupRule:
    switches = CLASS_SWITCHES[class_]
    answers = {name: values.get(switch.name, switch.default) for name, switch in switches.items()}
    return GroupRule(**{name: FIELDS[name].values[answer] for name, answer in answers.items()})


def _meaning(name: str, values: Mapping[str, Answer]) -> Any:
    switch, kind = QUESTIONS[name]
    answer = values.get(switch.name, switch.default)
    return answer if kind is int else kind[answer]


_VIEWS: dict[str, MfmaModel] = {}  # by digest


def _check_group(name: str, group: GroupRule) -> None:
    if group.length not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise ValueError(f"{name}.length {group.length} is not a power of two up to 128")
    if not (20 <= group.product_bits <= 40 and 20 <= group.dot_bits <= 40 and 0 <= group.c_bits <= 40):
        raise ValueError(f"{name}: want 20 <= product_bits, dot_bits <= 40 and 0 <= c_bits <= 40, got {group}")
    if group.sum_bits < 23:
        raise ValueError(f"{name}.sum_bits {group.sum_bits} is less than the 23 of an f32")


DEFAULT = MfmaModel()


def mfma_class(native: str, format_a: Format, format_b: Format, model: MfmaModel = DEFAULT) -> str | None:
    """The class of shapes whose rule a native follows for a pair of formats; none for f32, f64 and i8."""
    kind = kind_of(native)
    if kind == "f8f6f4":
        pick = max if model.mixed_formats is MixedFormats.wider else min
        return "byte_deep" if pick(FIELD_BITS[format_a], FIELD_BITS[format_b]) == 8 else "small"
    if kind not in ("f16", "f8"):
        return None
    return {"f16": "half", "f8": "byte"}[kind] + "_deep" * is_deep(native)


def format_class(format_a: Format, format_b: Format, model: MfmaModel = DEFAULT) -> str:
    """The class of a pair of formats where no shape is named: half, byte or small."""
    pick = max if model.mixed_formats is MixedFormats.wider else min
    bits = pick(FIELD_BITS[format_a], FIELD_BITS[format_b])
    return "half" if bits >= 16 else "byte" if bits == 8 else "small"


# ---- Named models ----------------------------------------------------------------------------------------------------

_CHAIN_OF_EXACT = GroupRule(1, method=Method.exact, product_overflow=0, zero_sign=ZeroSign.ieee)
_EXACT = _CHAIN_OF_EXACT._replace(length=128)
# Spelled out: it stays what was measured on gfx942 whatever becomes of the defaults.
_CUTS_942 = {
    "product_bits": 24,
    "dot_bits": 32,
    "c_bits": 24,
    "sum_bits": 31,
    "method": Method.aligned,
    "product_direction": Direction.zero,
    "split_direction": Direction.down,
    "dot_direction": Direction.down,
    "c_direction": Direction.down,
    "sum_direction": Direction.down,
    "output_direction": Direction.nearest_even,
    "subnormal_inputs": Subnormals.keep,
    "subnormal_c": Subnormals.keep,
    "subnormal_d": Subnormals.keep,
    "zero_sign": ZeroSign.plus,
}
_HALF_942 = GroupRule(length=8, split=Split.none, c_window=NO_WINDOW, product_overflow=1, **_CUTS_942)
_BYTE_942 = GroupRule(length=16, split=Split.even_odd, c_window=25, product_overflow=0, **_CUTS_942)
CDNA3 = MfmaModel(_HALF_942, _HALF_942, _BYTE_942, _BYTE_942, _BYTE_942)
FMA_CHAIN = MfmaModel(_CHAIN_OF_EXACT, _CHAIN_OF_EXACT, _CHAIN_OF_EXACT, _CHAIN_OF_EXACT, _CHAIN_OF_EXACT)
EXACT = MfmaModel(_EXACT, _EXACT, _EXACT, _EXACT, _EXACT)

name_model("cdna3", CDNA3.answers, "The matrix rule measured on gfx942 (MMA-Sim 2.1.1), in every class of shapes.")
name_model("fma_chain", FMA_CHAIN.answers, "Matrix products as chains of fused multiply-adds to f32 in ascending k.")
name_model("exact", EXACT.answers, "Matrix products summed exactly with C and rounded to f32 once.")
