"""Sixteen columns at a time: LLVM vectors as values inside numba functions.

`I32`, `I64`, `F32`, `F64` are vectors of 16; comparisons give masks. Operators are lane-wise; `>>` is arithmetic,
shift counts must be below the width. No operation here rounds but `*`, `+`, `-` on floats and `narrow` (nearest
even), and none is contracted or reordered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import cgutils as numba_cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic, models, overload, register_model

WIDTH = 16
types: Any = numba_types  # numba leaves these partly untyped
cgutils: Any = numba_cgutils


class Lanes(numba_types.Type):
    """The numba type of a vector of 16 `element`s."""

    def __init__(self, element: str, llvm: Any) -> None:
        self.element, self.vector = element, ir.VectorType(llvm, WIDTH)
        super().__init__(name=f"Lanes16({element})")


I32 = Lanes("i32", ir.IntType(32))
I64 = Lanes("i64", ir.IntType(64))
F32 = Lanes("f32", ir.FloatType())
F64 = Lanes("f64", ir.DoubleType())
MASK = Lanes("mask", ir.IntType(1))


class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Any) -> None:
        initialise: Any = super().__init__
        initialise(manager, lanes, lanes.vector)


register_model(Lanes)(_LanesModel)


def _operation(result: Callable[..., Any], emit: Callable[..., Any]) -> Any:
    """An intrinsic: `result` maps argument types to the result's type, `emit(builder, types, values)` builds it."""

    def one(typing_context: Any, a: Any) -> Any:
        return result(a)(a), lambda c, b, s, v: emit(b, s.args, v)

    def two(typing_context: Any, a: Any, b: Any) -> Any:
        return result(a, b)(a, b), lambda c, b, s, v: emit(b, s.args, v)

    def three(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
        return result(a, b, c)(a, b, c), lambda c, b, s, v: emit(b, s.args, v)

    return intrinsic((one, two, three)[result.__code__.co_argcount - 1])


def _splat_value(builder: Any, vector: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))


def _arithmetic(integer: str, floating: str | None) -> Any:
    def emit(builder: Any, kinds: Any, values: Any) -> Any:
        name = floating if floating and kinds[0].element in ("f32", "f64") else integer
        return getattr(builder, name)(*values)

    return _operation(lambda a, b: a, emit)


def _comparison(sign: str) -> Any:
    def emit(builder: Any, kinds: Any, values: Any) -> Any:
        compare = builder.fcmp_ordered if kinds[0].element in ("f32", "f64") else builder.icmp_signed
        return compare(sign, *values)

    return _operation(lambda a, b: MASK, emit)


_OPERATORS: dict[Any, Any] = {
    operator.add: _arithmetic("add", "fadd"),
    operator.sub: _arithmetic("sub", "fsub"),
    operator.mul: _arithmetic("mul", "fmul"),
    operator.and_: _arithmetic("and_", None),
    operator.or_: _arithmetic("or_", None),
    operator.lshift: _arithmetic("shl", None),
    operator.rshift: _arithmetic("ashr", None),
    operator.lt: _comparison("<"),
    operator.gt: _comparison(">"),
    operator.eq: _comparison("=="),
}


def _overload_operator(function: Any, implementation: Any) -> None:
    # A lambda, as numba wants both signatures alike to the annotation.
    overload(function)(lambda a, b: (lambda a, b: implementation(a, b)) if isinstance(a, Lanes) and a is b else None)


for _function, _implementation in _OPERATORS.items():
    _overload_operator(_function, _implementation)


def _maximum(builder: Any, kinds: Any, values: Any) -> Any:
    return builder.select(builder.icmp_signed(">", *values), *values)


def _minimum(builder: Any, kinds: Any, values: Any) -> Any:
    return builder.select(builder.icmp_signed("<", *values), *values)


def _select_zero(builder: Any, kinds: Any, values: Any) -> Any:
    zero = builder.icmp_signed("==", values[0], ir.Constant(values[0].type, None))
    return builder.select(zero, values[1], values[2])


def _bytewise(emit: Callable[..., Any], result: Callable[..., Any] = lambda a, b: a) -> Any:
    """An operation on I32 vectors that works on each of their bytes."""

    def on_bytes(builder: Any, kinds: Any, values: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 4 * WIDTH)
        result = emit(builder, kinds, [builder.bitcast(value, vector) for value in values])
        return builder.bitcast(result, kinds[0].vector)

    return _operation(result, on_bytes)


def _call(name: str, builder: Any, kinds: Any, values: Any) -> Any:
    """A call of LLVM's `name` on float vectors."""
    vector = kinds[0].vector
    kind = ir.FunctionType(vector, [vector] * len(values))
    return builder.call(
        cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{WIDTH}{kinds[0].element}"), values
    )


def _pointer(builder: Any, base: Any, index: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(base, [index]), vector.as_pointer())


def _load(kind: Any) -> Any:
    def emit(builder: Any, kinds: Any, values: Any) -> Any:
        return builder.load(_pointer(builder, values[0], values[1], kind.vector), align=4)

    return _operation(lambda base, index: kind, emit)


def _store(builder: Any, kinds: Any, values: Any) -> Any:
    builder.store(values[2], _pointer(builder, values[0], values[1], kinds[2].vector), align=4)
    return ir.Constant(ir.IntType(64), 0)


def _splat(kind: Any) -> Any:
    def emit(builder: Any, kinds: Any, values: Any) -> Any:
        value = values[0]
        if isinstance(value.type, ir.IntType) and value.type.width > kind.vector.element.width:
            value = builder.trunc(value, kind.vector.element)
        return _splat_value(builder, kind.vector, value)

    return _operation(lambda value: kind, emit)


def _convert(kind: Any, instruction: str) -> Any:
    return _operation(lambda a: kind, lambda b, kinds, v: getattr(b, instruction)(v[0], kind.vector))


def _any(builder: Any, kinds: Any, values: Any) -> Any:
    bits = builder.bitcast(values[0], ir.IntType(WIDTH))
    return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(WIDTH), 0))


def _stack_words(typing_context: Any) -> Any:
    """2048 words that live as long as the call."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = cgutils.alloca_once(builder, ir.IntType(32), 2048)
        words.align = 64  # a vector that straddles two cache lines costs twice
        return words

    return types.CPointer(types.int32)(), emit


maximum = _operation(lambda a, b: a, _maximum)
minimum = _operation(lambda a, b: a, _minimum)
maximum_bytes = _bytewise(_maximum)  # signed
add_bytes = _bytewise(lambda b, kinds, v: b.add(*v))
select_zero_bytes = _bytewise(_select_zero, lambda a, b, c: a)  # b where the byte of a is zero, else c
select = _operation(lambda mask, a, b: a, lambda b, kinds, v: b.select(*v))
any_lane = _operation(lambda mask: types.boolean, _any)
floor = _operation(lambda a: a, partial(_call, "llvm.floor"))
fused = _operation(lambda a, b, c: a, partial(_call, "llvm.fma"))  # a * b + c, rounded once
magnitude = _operation(lambda a: a, partial(_call, "llvm.fabs"))

load_i32, load_f32 = _load(I32), _load(F32)  # (pointer to 32-bit elements, element index)
stack_words: Any = intrinsic(_stack_words)
store = _operation(lambda base, index, value: types.int64, _store)
splat_i32, splat_i64, splat_f64 = _splat(I32), _splat(I64), _splat(F64)

truncate_i32 = _convert(I32, "fptosi")  # toward zero; the value must fit
to_f32 = _convert(F32, "sitofp")
to_f64 = _convert(F64, "sitofp")
narrow = _convert(F32, "fptrunc")
widen_f64 = _convert(F64, "fpext")
widen_i64 = _convert(I64, "sext")
low_i32 = _convert(I32, "trunc")
bits_f32 = _convert(F32, "bitcast")
bits_f64 = _convert(F64, "bitcast")
bits_i32 = _convert(I32, "bitcast")
bits_i64 = _convert(I64, "bitcast")
