"""The f32, f64 and i8 matrix instructions under every model, as functions compiled once (see `mfma_rule`)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types as numba_types
from numba.extending import intrinsic

from gfx950.arithmetic.mfma_numbers import QUESTIONS_AT
from gfx950.arithmetic.mfma_rule import c_word, questions_of, shape_of
from gfx950.arithmetic.mfma_switches import ChainInputs, IntegerOverflow, NanRule, Order
from gfx950.arithmetic.native import compiled

types: Any = numba_types  # numba leaves it partly untyped
F32_ONE, F32_MINUS_ZERO, F32_INFINITY, F32_SIGN = 0x3F800000, 0x80000000, 0x7F800000, 0x80000000
F64_ONE, F64_INFINITY, F64_MAGNITUDE = 0x3FF << 52, 0x7FF << 52, (1 << 63) - 1
F64_MINUS_ZERO = -(1 << 63)


def _fused(float_: Any, integer: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = integer.width == 64
        words = arguments if wide else [builder.trunc(x, integer) for x in arguments]
        bits = builder.bitcast(builder.fma(*(builder.bitcast(x, float_) for x in words)), integer)
        return bits if wide else builder.zext(bits, ir.IntType(64))

    return write


def _fused_f32(context: Any, a: Any, b: Any, c: Any) -> Any:
    """Bits of a * b + c of f32 bits, rounded once; an arbitrary NaN where the result is one."""
    return types.int64(types.int64, types.int64, types.int64), _fused(ir.FloatType(), ir.IntType(32))


def _fused_f64(context: Any, a: Any, b: Any, c: Any) -> Any:
    """As `_fused_f32`, of f64 bits in signed integers."""
    return types.int64(types.int64, types.int64, types.int64), _fused(ir.DoubleType(), ir.IntType(64))


fused_f32: Any = intrinsic(_fused_f32)
fused_f64: Any = intrinsic(_fused_f64)


@compiled
def flushed_f32(bits: int, flush: int) -> int:
    return bits & F32_SIGN if flush and bits & F32_INFINITY == 0 else bits


@compiled
def nan_of(a: int, b: int, c: int, infinity: int, quiet: int, magnitude: int, rule: int, made: int) -> int:
    """The NaN of a multiply-add that has one."""
    if rule != NanRule.canonical:
        first, second, third = (c, a, b) if rule == NanRule.c_first else (a, b, c)
        if first & magnitude > infinity:
            return first | quiet
        if second & magnitude > infinity:
            return second | quiet
        if third & magnitude > infinity:
            return third | quiet
    return made


@compiled
def held_f32(bits: int, finite: bool, clamp: int) -> int:
    """Under FP16_OVFL an Inf made of finite numbers is the largest finite one."""
    return bits - 1 if clamp and finite and bits & 0x7FFFFFFF == F32_INFINITY else bits


@compiled
def step_f32(a: int, b: int, c: int, clamp: int, questions: Any) -> int:
    """One multiply-add of f32 bits."""
    finite = a & F32_INFINITY < F32_INFINITY and b & F32_INFINITY < F32_INFINITY
    c_finite = c & F32_INFINITY < F32_INFINITY
    if questions.fused:
        result = held_f32(fused_f32(a, b, c), finite and c_finite, clamp)
    else:
        product = held_f32(fused_f32(a, b, F32_MINUS_ZERO), finite, clamp)
        finite = product & F32_INFINITY < F32_INFINITY and c_finite
        result = held_f32(fused_f32(F32_ONE, product, c), finite, clamp)
    if result & 0x7FFFFFFF > F32_INFINITY:
        return nan_of(a, b, c, F32_INFINITY, 0x400000, 0x7FFFFFFF, questions.nan, questions.nan_bits)
    return result


def run_singles(inputs: Any, outputs: Any, parameters: int, numbers: Any, work: Any, wide: Any) -> None:
    """f32: A, B, C. The element of row i, block b and k is in lane i + rows (b + blocks k)."""
    shape, questions = shape_of(numbers), questions_of(numbers, QUESTIONS_AT)
    clamp = parameters >> 11 & 1
    flush = int(parameters >> 17 & 1 and questions.keep_subnormals == ChainInputs.by_mode)
    for copy in range(shape.copies):
        for i in range(shape.rows):
            for j in range(shape.rows):
                word = c_word(shape.rows, copy, i, j)
                c = int(inputs[128 + word])
                for step in range(shape.depth):
                    k = step if questions.order == Order.ascending else shape.depth - 1 - step
                    first = shape.rows * (copy + shape.copies * k)
                    a, b = flushed_f32(inputs[first + i], flush), flushed_f32(inputs[64 + first + j], flush)
                    c = step_f32(a, b, c, clamp, questions)
                outputs[word] = c


@compiled
def f64_bits(words: Any, place: int) -> int:
    return int(words[place]) | int(words[place + 64]) << 32


@compiled
def step_f64(a: int, b: int, c: int, questions: Any) -> int:
    """One multiply-add of f64 bits."""
    result: int
    result = fused_f64(a, b, c) if questions.fused else fused_f64(F64_ONE, fused_f64(a, b, F64_MINUS_ZERO), c)
    if result & F64_MAGNITUDE > F64_INFINITY:
        made = (questions.nan_bits >> 31) << 63 | F64_INFINITY | (questions.nan_bits & 0x7FFFFF) << 29
        return nan_of(a, b, c, F64_INFINITY, 1 << 51, F64_MAGNITUDE, questions.nan, made)
    return result


@compiled
def f64_word(rows: int, copy: int, row: int, column: int) -> int:
    """Where the low word of an element of C or D is; the high one is a register further."""
    return 16 * row + 4 * copy + column if rows == 4 else 128 * (row // 4) + 16 * (row % 4) + column


def run_doubles(inputs: Any, outputs: Any, parameters: int, numbers: Any, work: Any, wide: Any) -> None:
    """f64: A, B, C, each negated where its bit says so; elements are where those of f32 are."""
    shape, questions = shape_of(numbers), questions_of(numbers, QUESTIONS_AT)
    signs = parameters >> 18
    for copy in range(shape.copies):
        for i in range(shape.rows):
            for j in range(shape.rows):
                word = f64_word(shape.rows, copy, i, j)
                c = f64_bits(inputs, 256 + word) ^ (signs >> 2 & 1) << 63
                for step in range(shape.depth):
                    k = step if questions.order == Order.ascending else shape.depth - 1 - step
                    first = shape.rows * (copy + shape.copies * k)
                    a = f64_bits(inputs, first + i) ^ (signs & 1) << 63
                    b = f64_bits(inputs, 128 + first + j) ^ (signs >> 1 & 1) << 63
                    c = step_f64(a, b, c, questions)
                outputs[word] = c & 0xFFFFFFFF
                outputs[word + 64] = c >> 32 & 0xFFFFFFFF


@compiled
def signed_byte(registers: Any, first: int, lane: int, item: int) -> int:
    byte = int(registers[first + 64 * (item // 4) + lane]) >> (8 * (item % 4)) & 255
    return (byte ^ 128) - 128


@compiled
def byte_dot(inputs: Any, shape: Any, copy: int, i: int, j: int, index: int, shift: int) -> int:
    """The exact sum of an element's products; index: the word where the index of a sparse A begins."""
    total, b_first = 0, 64 * shape.operand_registers
    items = shape.lane_items * (1 + shape.sparse)
    for k in range(shape.depth):
        lane = i + shape.rows * (copy + shape.copies * (k // shape.lane_items))
        item = k % shape.lane_items
        a, met = signed_byte(inputs, 0, lane, item), k
        if shape.sparse:
            met = 4 * (k // 2) + (inputs[index + lane] >> (shift + 2 * item) & 3)
        lane_group, item = met // items, met % items
        if shape.b_two_runs:
            run = items // 2
            half = met // shape.depth
            lane_group, item = met % shape.depth // run, half * run + met % run
        total += a * signed_byte(inputs, b_first, j + shape.rows * (copy + shape.copies * lane_group), item)
    return total


def run_integers(inputs: Any, outputs: Any, parameters: int, numbers: Any, work: Any, wide: Any) -> None:
    """i8: A, B, C and, of a sparse one, the index."""
    shape, questions = shape_of(numbers), questions_of(numbers, QUESTIONS_AT)
    c_first = 64 * shape.operand_registers * (2 + shape.sparse)
    index, shift = c_first + shape.rows * shape.rows * shape.copies, parameters >> 12 & 31
    saturate = parameters >> 11 & 1
    if questions.i8_overflow != IntegerOverflow.under_fp16_ovfl:
        saturate = int(questions.i8_overflow == IntegerOverflow.saturate)
    for copy in range(shape.copies):
        for i in range(shape.rows):
            for j in range(shape.rows):
                word = c_word(shape.rows, copy, i, j)
                c = (int(inputs[c_first + word]) ^ 0x80000000) - 0x80000000
                total = c + byte_dot(inputs, shape, copy, i, j, index, shift)
                if saturate:
                    total = min(max(total, -0x80000000), 0x7FFFFFFF)
                outputs[word] = total & 0xFFFFFFFF
