"""Each matrix instruction that FlyDSL's MMA atoms know: C + A @ B.T of one tile, in one wave.

The places of the elements are FlyDSL's own: its tiled copies fill the registers.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx

TYPES = {
    "f32": fx.Float32,
    "f16": fx.Float16,
    "bf16": fx.BFloat16,
    "fp8": fx.Float8E4M3FN,
    "i8": fx.Int8,
    "bf8": fx.Float8E5M2,
}
DENSE = {
    "f32": ((16, 16, 4), (32, 32, 2)),
    "f16": ((16, 16, 16), (16, 16, 32), (32, 32, 8), (32, 32, 16)),
    "bf16": ((16, 16, 16), (16, 16, 32), (32, 32, 8), (32, 32, 16)),
    "fp8": ((16, 16, 32), (32, 32, 16)),
    "i8": ((16, 16, 32), (32, 32, 16)),
}
SCALED = ((16, 16, 128), (32, 32, 64))


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def one_tile(m, n, k, kind, op, scaled=False):
    """A build: C += A @ B.T for A[m][k], B[n][k], C[m][n]; a scaled instruction takes scale [row][k / 32] of both."""
    element = TYPES[kind]
    sums = fx.Int32 if kind == "i8" else fx.Float32

    @flyc.kernel
    def tile(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scale_a: fx.Pointer, scale_b: fx.Pointer):
        lane = fx.thread_idx.x
        rows_a = fx.make_view(a, fx.make_layout((m, k), (k, 1)))
        rows_b = fx.make_view(b, fx.make_layout((n, k), (k, 1)))
        out = fx.make_view(c, fx.make_layout((m, n), (n, 1)))
        atom = fx.make_mma_atom(op())
        if fx.const_expr(scaled):
            row = lane % m
            atom = fx.atom_set_value(atom, "scale_a", fx.Int32((scale_a + (row * (k // 32) + lane // m)).load()))
            atom = fx.atom_set_value(atom, "scale_b", fx.Int32((scale_b + (row * (k // 32) + lane // m)).load()))
        tiled = fx.make_tiled_mma(atom, fx.make_layout((1, 1, 1), (0, 0, 0)))
        mine = tiled.thr_slice(lane)
        copy = fx.make_copy_atom(fx.UniversalCopy(element.width), element)
        copy_c = fx.make_copy_atom(fx.UniversalCopy(32), sums)
        part_a = fx.make_tiled_copy_A(copy, tiled).get_slice(lane)
        part_b = fx.make_tiled_copy_B(copy, tiled).get_slice(lane)
        part_c = fx.make_tiled_copy_C(copy_c, tiled).get_slice(lane)
        piece_a, piece_b = mine.make_fragment_A(rows_a), mine.make_fragment_B(rows_b)
        piece_c = mine.make_fragment_C(out)
        fx.copy(copy, part_a.partition_S(rows_a), part_a.retile(piece_a))
        fx.copy(copy, part_b.partition_S(rows_b), part_b.retile(piece_b))
        fx.copy(copy_c, part_c.partition_S(out), part_c.retile(piece_c))
        fx.gemm(atom, piece_c, piece_a, piece_b, piece_c)
        fx.copy(copy_c, part_c.retile(piece_c), part_c.partition_S(out))

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scale_a: fx.Pointer, scale_b: fx.Pointer):
        tile(a, b, c, scale_a, scale_b).launch(grid=(1, 1, 1), block=(64, 1, 1))

    return lambda: launch(*[pointer(element)] * 2, pointer(sums), *[pointer(fx.Uint8)] * 2)


def dense(m, n, k, kind):
    return one_tile(m, n, k, kind, lambda: fx.rocdl.MFMA(m, n, k, TYPES[kind], fx.Int32 if kind == "i8" else None))


def scaled(m, n, k, kind):
    return one_tile(m, n, k, kind, lambda: fx.rocdl.cdna4.MFMA_Scale(m, n, k, TYPES[kind]), scaled=True)


BUILDS = {f"{kind}_{m}x{n}x{k}": dense(m, n, k, kind) for kind, shapes in DENSE.items() for m, n, k in shapes} | {
    f"scaled_{kind}_{m}x{n}x{k}": scaled(m, n, k, kind) for m, n, k in SCALED for kind in ("fp8", "bf8")
}
