"""Sixteen columns at a time: Python that writes LLVM.

A `Value` stands for a scalar or for a vector of 16 while a function is being written; its operators append
instructions. Python's own loops and calls are gone by then, so that formats and sizes are constants; `loop`, `branch`
and `switch` write what is decided when the function runs. Integers mix in as constants. On vectors operators are
lane-wise, comparisons give masks; `>>` is arithmetic, comparisons are signed, shift counts must be below the width.
No operation here rounds but `*`, `+`, `-` on floats, `fused`, and `to_f32` of more than 24 bits (nearest even), and
none is contracted or reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils as numba_cgutils
from numba.core import types as numba_types
from numba.extending import intrinsic

from gfx950.arithmetic.native import Body, named

WIDTH = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
cgutils: Any = numba_cgutils  # numba leaves these partly untyped
types: Any = numba_types


def _constant(kind: Any, number: float) -> Any:
    element = getattr(kind, "element", kind)
    if isinstance(element, ir.IntType):
        half = 1 << (element.width - 1)
        number = (int(number) + half) % (2 * half) - half if element.width > 1 else int(number)
    return ir.Constant(kind, [number] * kind.count if kind is not element else number)


@dataclass(frozen=True, eq=False)
class Value:
    """`llvm` as written so far by `builder`."""

    builder: Any
    llvm: Any

    def constant(self, number: float) -> Value:
        """The number in every lane, of the same type as this."""
        return Value(self.builder, _constant(self.llvm.type, number))

    @property
    def _is_float(self) -> bool:
        return getattr(self.llvm.type, "element", self.llvm.type) in (F32, F64)

    def _write(self, integer: str, floating: str, other: Operand, swap: bool = False) -> Value:
        values = [self.llvm, as_value(self, other).llvm]
        method = getattr(self.builder, floating if self._is_float else integer)
        return Value(self.builder, method(*(reversed(values) if swap else values)))

    def _compare(self, sign: str, other: Operand) -> Value:
        method = self.builder.fcmp_ordered if self._is_float else self.builder.icmp_signed
        return Value(self.builder, method(sign, self.llvm, as_value(self, other).llvm))

    def __add__(self, other: Operand) -> Value:
        return self._write("add", "fadd", other)

    def __sub__(self, other: Operand) -> Value:
        return self._write("sub", "fsub", other)

    def __rsub__(self, other: Operand) -> Value:
        return self._write("sub", "fsub", other, swap=True)

    def __mul__(self, other: Operand) -> Value:
        return self._write("mul", "fmul", other)

    def __and__(self, other: Operand) -> Value:
        return self._write("and_", "", other)

    def __or__(self, other: Operand) -> Value:
        return self._write("or_", "", other)

    def __xor__(self, other: Operand) -> Value:
        return self._write("xor", "", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._write("shl", "", other)

    def __rshift__(self, other: Operand) -> Value:
        return self._write("ashr", "", other)

    def __floordiv__(self, power_of_two: int) -> Value:
        return self >> (power_of_two.bit_length() - 1)

    def __mod__(self, power_of_two: int) -> Value:
        return self & (power_of_two - 1)

    def __lt__(self, other: Operand) -> Value:
        return self._compare("<", other)

    def __gt__(self, other: Operand) -> Value:
        return self._compare(">", other)

    __radd__, __rmul__ = __add__, __mul__


Operand: TypeAlias = Value | int | float
Index: TypeAlias = Value | int


def as_value(like: Value, operand: Operand) -> Value:
    return operand if isinstance(operand, Value) else like.constant(operand)


def above(a: Value, b: Operand) -> Value:
    """Whether a > b as unsigned integers."""
    return Value(a.builder, a.builder.icmp_unsigned(">", a.llvm, as_value(a, b).llvm))


def equal(a: Value, b: Operand) -> Value:
    return a._compare("==", b)


def select(mask: Value, a: Operand, b: Operand) -> Value:
    like = a if isinstance(a, Value) else b
    if not isinstance(like, Value):
        raise TypeError(f"select of the numbers {a} and {b}: one of them has to be a Value, for its type")
    values = (as_value(like, operand).llvm for operand in (a, b))
    return Value(mask.builder, mask.builder.select(mask.llvm, *values))


def maximum(a: Value, b: Operand) -> Value:
    return select(a > b, a, b)


def minimum(a: Value, b: Operand) -> Value:
    return select(a < b, a, b)


def any_lane(mask: Value) -> Value:
    bits = mask.builder.bitcast(mask.llvm, I16)
    return Value(mask.builder, mask.builder.icmp_unsigned("!=", bits, ir.Constant(I16, 0)))


def _convert(element: Any, instruction: str, value: Value) -> Value:
    source = value.llvm.type
    kind = ir.VectorType(element, source.count) if isinstance(source, ir.VectorType) else element
    return Value(value.builder, getattr(value.builder, instruction)(value.llvm, kind))


truncate_i32 = partial(_convert, I32, "fptosi")  # toward zero; the value must fit
to_f32 = partial(_convert, F32, "sitofp")
widen_i64 = partial(_convert, I64, "sext")
low_i32 = partial(_convert, I32, "trunc")
bits_f32 = partial(_convert, F32, "bitcast")
bits_f64 = partial(_convert, F64, "bitcast")
bits_i32 = partial(_convert, I32, "bitcast")
bits_i64 = partial(_convert, I64, "bitcast")


def _parts(value: Value, element: Any) -> Value:
    """The words of a vector cut into smaller integers."""
    kind = ir.VectorType(element, 32 // element.width * WIDTH)
    return Value(value.builder, value.builder.bitcast(value.llvm, kind))


_as_bytes, _as_halves = (partial(_parts, element=element) for element in (I8, I16))


def _as_words(value: Value) -> Value:
    return Value(value.builder, value.builder.bitcast(value.llvm, ir.VectorType(I32, WIDTH)))


def maximum_bytes(a: Value, b: Operand) -> Value:
    """The larger of each signed byte of i32 vectors."""
    return _as_words(maximum(_as_bytes(a), _as_bytes(as_value(a, b))))


def minimum_bytes(a: Value, b: Value) -> Value:
    """The smaller of each unsigned byte of i32 vectors."""
    a, b = _as_bytes(a), _as_bytes(b)
    return _as_words(select(above(b, a), a, b))


def add_bytes(a: Value, b: Operand) -> Value:
    return _as_words(_as_bytes(a) + _as_bytes(as_value(a, b)))


def maximum_halves(a: Value, b: Operand) -> Value:
    """The larger of each signed 16 bits of i32 vectors."""
    return _as_words(maximum(_as_halves(a), _as_halves(as_value(a, b))))


def minimum_halves(a: Value, b: Value) -> Value:
    """The smaller of each unsigned 16 bits of i32 vectors."""
    a, b = _as_halves(a), _as_halves(b)
    return _as_words(select(above(b, a), a, b))


def add_halves(a: Value, b: Operand) -> Value:
    return _as_words(_as_halves(a) + _as_halves(as_value(a, b)))


def add_products(total: Value, a: Value, b: Value) -> Value:
    """The total and the two products of signed 16 bits in each word of a and b; hosts have it as one instruction."""
    wide = ir.VectorType(I32, 2 * WIDTH)
    factors = (Value(x.builder, x.builder.sext(_as_halves(x).llvm, wide)) for x in (a, b))
    products = next(factors) * next(factors)
    for first in range(2):
        lanes = ir.Constant(ir.VectorType(I32, WIDTH), list(range(first, 2 * WIDTH, 2)))
        every_second = products.builder.shuffle_vector(products.llvm, ir.Constant(wide, ir.Undefined), lanes)
        total = total + Value(products.builder, every_second)
    return total


def select_zero_halves(a: Value, b: Operand, c: Value) -> Value:
    """16 bits of b where those of a are zero, of c elsewhere."""
    return _as_words(select(equal(_as_halves(a), 0), _as_halves(as_value(a, b)), _as_halves(c)))


def select_above_bytes(a: Value, b: Operand, c: Operand, d: Value) -> Value:
    """Bytes of c where those of a are above those of b as unsigned ones, of d elsewhere."""
    mask = above(_as_bytes(a), _as_bytes(as_value(a, b)))
    return _as_words(select(mask, _as_bytes(as_value(a, c)), _as_bytes(d)))


def _call(name: str, *values: Value) -> Value:
    """A call of LLVM's `name` on float vectors."""
    builder, kind = values[0].builder, values[0].llvm.type
    signature = ir.FunctionType(kind, [kind] * len(values))
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"{name}.v{WIDTH}f{32 if kind.element == F32 else 64}"
    )
    return Value(builder, builder.call(function, [value.llvm for value in values]))


magnitude = partial(_call, "llvm.fabs")
fused = partial(_call, "llvm.fma")  # a * b + c, rounded once


def _reduced(name: str, element: Any, value: Value) -> Value:
    """One of the smaller integers in an i32 vector, as an i32 without sign."""
    builder, parts = value.builder, _parts(value, element).llvm
    signature = ir.FunctionType(element, [parts.type])
    suffix = f"{name}.v{parts.type.count}i{element.width}"
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.vector.reduce.{suffix}")
    return Value(builder, builder.zext(builder.call(function, [parts]), I32))


smallest_half, largest_half = (partial(_reduced, name, I16) for name in ("umin", "umax"))  # unsigned
largest_byte = partial(_reduced, "smax", I8)  # signed, and not negative


def join_words(low: Value, high: Value) -> Value:
    """The i64 of two i32."""
    return _convert(I64, "zext", low) | (widen_i64(high) << 32)


def quad_lanes(value: Value, number: int) -> Value:
    """In each group of four lanes, its lane `number` everywhere."""
    lanes = ir.Constant(ir.VectorType(I32, WIDTH), [lane // 4 * 4 + number for lane in range(WIDTH)])
    return Value(value.builder, value.builder.shuffle_vector(value.llvm, value.llvm, lanes))


def spread(value: Value) -> Value:
    """A scalar in every lane."""
    builder, vector = value.builder, ir.VectorType(value.llvm.type, WIDTH)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value.llvm, ir.Constant(I32, 0))
    lanes = ir.Constant(ir.VectorType(I32, WIDTH), [0] * WIDTH)
    return Value(builder, builder.shuffle_vector(first, first, lanes))


def vector_of(builder: Any, number: int) -> Value:
    """An i32 in every lane."""
    return Value(builder, _constant(ir.VectorType(I32, WIDTH), number))


@dataclass(frozen=True)
class Words:
    """32-bit words in memory; indices count words."""

    builder: Any
    pointer: Any

    @property
    def place(self) -> Value:
        """Where the words begin, to be handed to a function."""
        return Value(self.builder, self.pointer)

    def at(self, index: Index) -> Words:
        number = index.llvm if isinstance(index, Value) else ir.Constant(I64, index)
        return type(self)(self.builder, self.builder.gep(self.pointer, [number]))

    def _typed(self, index: Index, kind: Any) -> Any:
        return self.builder.bitcast(self.at(index).pointer, kind.as_pointer())

    def vector(self, index: Index, element: Any = I32) -> Value:
        """Sixteen words from `index` on."""
        pointer = self._typed(index, ir.VectorType(element, WIDTH))
        return Value(self.builder, self.builder.load(pointer, align=4))

    def scalar(self, index: Index, element: Any = I32) -> Value:
        """One word."""
        return Value(self.builder, self.builder.load(self._typed(index, element)))

    def spread(self, index: Index, element: Any = I32) -> Value:
        """One word in every lane."""
        return spread(self.scalar(index, element))

    def store(self, index: Index, value: Value) -> None:
        self.builder.store(value.llvm, self._typed(index, value.llvm.type), align=4)


def stack_words(builder: Any, count: int) -> Words:
    """Words that live as long as the call."""
    words = cgutils.alloca_once(builder, I32, count)
    words.align = 64  # a vector that straddles two cache lines costs twice
    return Words(builder, words)


class SpreadWords(Words):
    """Words of which one fills a vector."""

    def vector(self, index: Index, element: Any = I32) -> Value:
        return self.spread(index, element)


@dataclass(frozen=True)
class ChosenWords(Words):
    """Words of which a table of places says where vectors begin."""

    table: Words

    def at(self, index: Index) -> ChosenWords:
        return ChosenWords(self.builder, self.pointer, self.table.at(index))

    def vector(self, index: Index, element: Any = I32) -> Value:
        place = widen_i64(self.table.scalar(index))
        return Words(self.builder, self.pointer).vector(place, element)


class Variable:
    """What changes in a loop or in a branch."""

    def __init__(self, start: Value) -> None:
        self._builder = start.builder
        self._place = cgutils.alloca_once(self._builder, start.llvm.type)
        self.value = start

    @property
    def value(self) -> Value:
        return Value(self._builder, self._builder.load(self._place))

    @value.setter
    def value(self, new: Value) -> None:
        self._builder.store(new.llvm, self._place)


@contextmanager
def loop(builder: Any, stop: int, step: int = 1) -> Iterator[Value]:
    """The body for i64 indices 0, step ... below stop."""
    start, end, stride = (ir.Constant(I64, number) for number in (0, stop, step))
    with cgutils.for_range_slice(builder, start, end, stride, I64) as (index, _):
        yield Value(builder, index)


Values: TypeAlias = tuple[Value, ...]


def apart(name: str, like: Values, body: Callable[[Values], Value]) -> Callable[[Values], Value]:
    """A function of its own, for what is rare: so that the registers of its caller stay free.

    like: values of the types it takes; `body` gives what it returns, of the type of the last one.
    """
    module, types_taken = like[0].builder.module, [value.llvm.type for value in like]
    signature = ir.FunctionType(types_taken[-1], types_taken)
    function = ir.Function(module, signature, module.get_unique_name(name))
    function.linkage = "internal"
    for attribute in ("noinline", "nounwind"):
        function.attributes.add(attribute)
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(body(tuple(Value(builder, argument) for argument in function.args)).llvm)
    return lambda given: Value(given[0].builder, given[0].builder.call(function, [argument.llvm for argument in given]))


def branch(
    condition: Value, taken: Callable[[], Values], otherwise: Callable[[], Values], likely: bool | None = None
) -> Values:
    """What one of two bodies gives. likely: whether the first one is."""
    builder, ends = condition.builder, []
    with builder.if_else(condition.llvm, likely=likely) as sides:
        for side, body in zip(sides, (taken, otherwise), strict=True):
            with side:
                ends.append((body(), builder.block))
    results = []
    for k, value in enumerate(ends[0][0]):
        joined = builder.phi(value.llvm.type)
        for values, block in ends:
            joined.add_incoming(values[k].llvm, block)
        results.append(Value(builder, joined))
    return tuple(results)


def switch(number: Value, bodies: Mapping[int, Callable[[], None]], default: int) -> None:
    """Runs the body of the number, or of `default` for a number that has none."""
    builder, after = number.builder, number.builder.append_basic_block()
    blocks = {case: builder.append_basic_block() for case in bodies}
    choice = builder.switch(number.llvm, blocks[default])
    for case, block in blocks.items():
        choice.add_case(_constant(number.llvm.type, case), block)
        builder.position_at_end(block)
        bodies[case]()
        builder.branch(after)
    builder.position_at_end(after)


# ---- Natives ----

Writer: TypeAlias = Callable[[Words, Words, Value], None]  # inputs, outputs, parameters


def host_bodies(writers: Mapping[str, Writer]) -> dict[str, Body]:
    """The functions that numba compiles, by the natives' names."""
    return {name: _host_body(name, _written(writer)) for name, writer in writers.items()}


def _host_body(name: str, written: Any) -> Body:
    def body(inputs: Any, outputs: Any, parameters: Any) -> None:
        written(inputs, outputs, parameters)

    return named(name, body)


def _written(writer: Writer) -> Any:
    def typed(typing_context: Any, inputs: Any, outputs: Any, parameters: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            inputs, outputs, parameters = arguments
            writer(Words(builder, inputs), Words(builder, outputs), Value(builder, parameters))
            return context.get_dummy_value()

        return types.void(inputs, outputs, parameters), emit

    result: Any = intrinsic(typed)
    return result
