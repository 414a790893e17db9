"""Every matrix operation of FlyDSL's `rocdl` for gfx950, dense and sparse: D = C + A @ B, registers as they come.

A build takes A's, B's and C's words of each lane, one lane after the other, and a word of indices for the sparse ones.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl.expr import rocdl
from flydsl_matrix_operations import DENSE, SPARSE


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def operand_type(name, words, sparse):
    """The type that the operation asks of an operand: (element, how many)."""
    if name.endswith("f32"):
        return fx.Float32, 1
    if name.endswith("f64"):
        return fx.Float64, words // 2
    if "bf16" in name:
        carried = name.endswith("_1k") or (sparse and name in ("f32_16x16x32_bf16", "f32_32x32x16_bf16"))
        return fx.Int16 if carried else fx.BFloat16, words * 2  # operations that gfx942 had take them as integers
    if name.endswith("f16"):
        return fx.Float16, words * 2
    return (fx.Int64, 1) if words == 2 and not sparse else (fx.Int32, words)


def operand(address, words, dtype, count):
    """A lane's words as a value of `count` elements; one element is no vector."""
    vector = address.load(fx.Vector.make_type(words, fx.Int32))
    vector = fx.Vector(vector, (words,), fx.Int32).bitcast(dtype)
    return (vector[0] if count == 1 else vector).ir_value()


def operation(name, words_a, words_b, words_c, sparse):
    """A build of one operation."""
    dtype_c = {"f32": fx.Float32, "i32": fx.Int32, "f64": fx.Float64}[name[:3]]
    count_c = words_c * 32 // dtype_c.width
    call = getattr(rocdl, f"{'smfmac' if sparse else 'mfma'}_{name}_")

    @flyc.kernel
    def matrix(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, index: fx.Pointer):
        lane = fx.block_idx.x * 64 + fx.thread_idx.x
        left = operand(a + lane * words_a, words_a, *operand_type(name, words_a, sparse))
        right = operand(b + lane * words_b, words_b, *operand_type(name, words_b, sparse))
        added = operand(c + lane * words_c, words_c, dtype_c, count_c)
        kind = added.type
        if fx.const_expr(sparse):
            result = call(kind, left, right, added, (index + lane).load().ir_value(), 0, 0)
        else:
            plain = "mfma_neg_modifier none" if name[:3] == "f64" else "mfma_perm_b none"
            result = call(kind, left, right, added, 0, 0, ir.Attribute.parse(f"#rocdl<{plain}>"))
        result = fx.Float64(result) if count_c == 1 else fx.Vector(result, (count_c,), dtype_c)
        result = fx.Vector.from_elements([result], dtype_c) if count_c == 1 else result
        (c + lane * words_c).store(result.bitcast(fx.Int32))

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, index: fx.Pointer):
        matrix(a, b, c, index).launch(grid=(2, 1, 1), block=(64, 1, 1))

    return lambda: launch(*[pointer(fx.Int32)] * 4)


BUILDS = {f"dense_{row[0]}": operation(*row, sparse=False) for row in DENSE} | {
    f"sparse_{row[0]}": operation(*row, sparse=True) for row in SPARSE
}
