"""Narrow floats: quantisation of rows to MX blocks, and each conversion of FlyDSL's `rocdl` for gfx950.

A conversion's build takes 32 words a lane for its operands and stores the words of its result.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl
from flydsl_conversions import CONVERSIONS

TYPES = {"f32": fx.Float32, "f16": fx.Float16, "bf16": fx.BFloat16, "i32": fx.Int32, "i16": fx.Int16}


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def one_kernel(kernel, pointers, grid=1):
    """A build that launches a kernel of up to three pointers, a wave a workgroup."""

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer):
        kernel(a, b, c).launch(grid=(grid, 1, 1), block=(64, 1, 1))

    return lambda: launch(*map(pointer, pointers))


def typed(text):
    """(element, how many) of a type's name: `f32`, or `2xf16` for a vector."""
    count, _, name = text.rpartition("x")
    return TYPES[name], int(count or 0)


def operand(words, text):
    """The first of a lane's words as a value of the type."""
    dtype, count = typed(text)
    wanted = max(1, max(count, 1) * dtype.width // 32)
    vector = fx.Vector.from_elements([words[i] for i in range(wanted)], fx.Int32).bitcast(dtype)
    return (vector if count else vector[0]).ir_value()


def conversion(name, result, operands, flags):
    """A build of one conversion."""

    @flyc.kernel
    def convert(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer):
        words = [(a + (fx.thread_idx.x * 32 + i)).load() for i in range(32)]
        scale = (b + fx.thread_idx.x).load().bitcast(fx.Float32)
        values = [scale.ir_value() if text == "scale" else operand(words, text) for text in operands]
        dtype, count = typed(result)
        kind = fx.Vector.make_type(count, dtype) if count else dtype.ir_type
        made = getattr(rocdl, name)(kind, *values, *flags)
        made = fx.Vector(made, (count,), dtype) if count else fx.Vector.from_elements([dtype(made)], dtype)
        out = made.bitcast(fx.Int32)
        for i in fx.range_constexpr(out.numel):
            (c + (fx.thread_idx.x * 32 + i)).store(out[i])

    return one_kernel(convert, [fx.Int32] * 3)


def quantised(kind):
    """A build: a lane's 32 f32 to a block of FP8 or FP4, whose scale brings the largest below 256 or 8."""
    largest_exponent = 7 if kind == "fp8" else 2

    @flyc.kernel
    def quantise(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer):
        lane = fx.block_idx.x * 64 + fx.thread_idx.x
        values = [(a + (lane * 32 + i)).load() for i in fx.range_constexpr(32)]
        largest = fx.absf(values[0])
        for i in fx.range_constexpr(1, 32):
            largest = fx.max(largest, fx.absf(values[i]))
        code = fx.max((largest.bitcast(fx.Int32) >> 23) - largest_exponent, fx.Int32(1))
        scale = (code << 23).bitcast(fx.Float32).ir_value()
        (b + lane).store(code)
        word = fx.Int32.ir_type
        if fx.const_expr(kind == "fp4"):
            for i in fx.range_constexpr(4):
                made = fx.Int32(0).ir_value()
                for j in fx.range_constexpr(4):
                    pair = [values[i * 8 + j * 2 + k].ir_value() for k in range(2)]
                    made = rocdl.cvt_scalef32_pk_fp4_f32(word, made, *pair, scale, j)
                (c + (lane * 4 + i)).store(fx.Int32(made))
        if fx.const_expr(kind == "fp8"):
            half = fx.Vector.make_type(2, fx.Int16)
            for i in fx.range_constexpr(8):
                made = fx.Vector.filled(2, 0, fx.Int16).ir_value()
                for j in fx.range_constexpr(2):
                    pair = [values[i * 4 + j * 2 + k].ir_value() for k in range(2)]
                    made = rocdl.cvt_scalef32_pk_fp8_f32(half, made, *pair, scale, bool(j))
                (c + (lane * 8 + i)).store(fx.Vector(made, (2,), fx.Int16).bitcast(fx.Int32)[0])

    return one_kernel(quantise, [fx.Float32, fx.Int32, fx.Int32], grid=2)


BUILDS = {
    "quantise_fp8": quantised("fp8"),
    "quantise_fp4": quantised("fp4"),
    **{row[0]: conversion(*row) for row in CONVERSIONS},
}
