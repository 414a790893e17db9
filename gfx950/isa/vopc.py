"""VOPC: vector compares, a table of types times a table of relations. [CDNA4 ISA 12.9]

v_cmp_* write VCC (64-bit form: any SGPR pair); v_cmpx_* write it and EXEC alike. Float relations whose name starts with
n are complements, so they hold with a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from gfx950.isa.lane_arithmetic import bits_of, is_signaling, mantissa_bits
from gfx950.isa.registry import F16Mask, Place, vopc
from gfx950.lanes import F16, F32, F64, FLOAT_DENORM, I16, I32, I64, U16, U32, U64, Float, Lanes, Mask, infinity_bits

Relation = Callable[[Any, Any], Mask]

CmpX = Annotated[Mask, Place("cmpx")]  # the destination mask and EXEC


def _never(a: Lanes, b: Lanes) -> Mask:
    return Mask.constant(a.engine, 0)


def _always(a: Lanes, b: Lanes) -> Mask:
    return Mask.constant(a.engine, 1)


def _unordered(a: Float, b: Float) -> Mask:
    return a.is_nan() | b.is_nan()


# Opcode offset, name, relation, and the relation in words.
_INTEGER_RELATIONS: tuple[tuple[str, Relation, str], ...] = (
    ("f", _never, "Never"),
    ("lt", lambda a, b: a < b, "S0 < S1"),
    ("eq", lambda a, b: a == b, "S0 = S1"),
    ("le", lambda a, b: a <= b, "S0 <= S1"),
    ("gt", lambda a, b: a > b, "S0 > S1"),
    ("ne", lambda a, b: a != b, "S0 differs from S1"),
    ("ge", lambda a, b: a >= b, "S0 >= S1"),
    ("t", _always, "Always"),
)
_FLOAT_RELATIONS: tuple[tuple[str, Relation, str], ...] = (
    *_INTEGER_RELATIONS[:5],
    ("lg", lambda a, b: (a < b) | (a > b), "S0 < S1 or S0 > S1"),
    ("ge", lambda a, b: a >= b, "S0 >= S1"),
    ("o", lambda a, b: ~_unordered(a, b), "Neither is a NaN"),
    ("u", _unordered, "One is a NaN"),
    ("nge", lambda a, b: ~(a >= b), "Not S0 >= S1"),
    ("nlg", lambda a, b: ~((a < b) | (a > b)), "Neither S0 < S1 nor S0 > S1"),
    ("ngt", lambda a, b: ~(a > b), "Not S0 > S1"),
    ("nle", lambda a, b: ~(a <= b), "Not S0 <= S1"),
    ("neq", lambda a, b: ~(a == b), "Not S0 = S1"),
    ("nlt", lambda a, b: ~(a < b), "Not S0 < S1"),
    ("tru", _always, "Always"),
)
# Name, operand type, first opcode of v_cmp, first opcode of v_cmpx.
_TYPES: tuple[tuple[str, type[Lanes], int, int], ...] = (
    ("f16", F16, 0x20, 0x30),
    ("f32", F32, 0x40, 0x50),
    ("f64", F64, 0x60, 0x70),
    ("i16", I16, 0xA0, 0xB0),
    ("u16", U16, 0xA8, 0xB8),
    ("i32", I32, 0xC0, 0xD0),
    ("u32", U32, 0xC8, 0xD8),
    ("i64", I64, 0xE0, 0xF0),
    ("u64", U64, 0xE8, 0xF8),
)


def _compare(kind: type[Lanes], result: Any, relation: Relation, text: str) -> Callable[..., Mask]:
    def compare(src0: Any, src1: Any) -> Mask:
        return relation(src0, src1)

    compare.__annotations__ = {"src0": kind, "src1": kind, "return": result}
    compare.__doc__ = text
    return compare


def _define_compares() -> None:
    for suffix, kind, first, first_x in _TYPES:
        is_float = issubclass(kind, Float)
        for offset, (name, relation, text) in enumerate(_FLOAT_RELATIONS if is_float else _INTEGER_RELATIONS):
            rules = (FLOAT_DENORM,) if is_float else ()
            body = _compare(kind, Mask, relation, f"{text}. [12.9]")
            vopc(f"v_cmp_{name}_{suffix}", first + offset, rules=rules)(body)
            body = _compare(kind, CmpX, relation, f"{text}; into EXEC too. [12.9]")
            vopc(f"v_cmpx_{name}_{suffix}", first_x + offset, rules=rules)(body)


def float_class(value: Float, wanted: U32) -> Mask:
    """Whether the bit of `wanted` for the value's class is set: 0 signalling NaN, 1 quiet NaN, 2 -inf, 3 -normal,
    4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +inf."""
    bits, width, mantissa = bits_of(value), value.width, mantissa_bits(type(value))
    infinity, normal = infinity_bits(width), 1 << mantissa
    magnitude = bits & ((1 << width - 1) - 1)
    step = U32.constant(value.engine, 0)
    for threshold in (1, normal, infinity):  # 0 zero, 1 denormal, 2 normal, 3 infinity
        step = step + (magnitude >= threshold).select(U32.constant(value.engine, 1), 0)
    number = ((bits >> width - 1) != 0).select(-step + 5, step + 6)
    nan = is_signaling(value).select(U32.constant(value.engine, 0), 1)
    index = (magnitude > infinity).select(nan, number)
    return ((wanted >> index) & 1) != 0


def _define_classes() -> None:
    for suffix, kind, opcode in (("f32", F32, 16), ("f64", F64, 18), ("f16", F16, 20)):
        for prefix, result, extra in (("v_cmp", Mask, ""), ("v_cmpx", CmpX, "; into EXEC too")):

            def classify(src0: Any, src1: Any) -> Mask:
                return float_class(src0, src1)

            classify.__annotations__ = {"src0": kind, "src1": F16Mask if kind is F16 else U32, "return": result}
            classify.__doc__ = f"The class of S0 is one that S1 asks for{extra}. [12.9]"
            vopc(f"{prefix}_class_{suffix}", opcode + (prefix == "v_cmpx"))(classify)


_define_compares()
_define_classes()
