"""One value a lane: addition, integers, conversions, functions."""

import flydsl.compiler as flyc
import flydsl.expr as fx
import torch

BLOCK = 256


def pointer(dtype):
    """A compile-time stand-in for a device pointer."""
    return flyc.from_c_void_p(dtype, 0)


@flyc.kernel
def add_tensors(a: fx.Tensor, b: fx.Tensor, total: fx.Tensor, count: fx.Int32):
    i = fx.block_idx.x * BLOCK + fx.thread_idx.x
    if i < count:
        total[i] = a[i] + b[i]


@flyc.jit
def launch_add_tensors(a: fx.Tensor, b: fx.Tensor, total: fx.Tensor, count: fx.Int32):
    add_tensors(a, b, total, count).launch(grid=(4, 1, 1), block=(BLOCK, 1, 1))


@flyc.kernel
def add_vectors(a: fx.Pointer, b: fx.Pointer, total: fx.Pointer):
    at = (fx.block_idx.x * BLOCK + fx.thread_idx.x) * 4
    (total + at).store((a + at).load(fx.Float32x4) + (b + at).load(fx.Float32x4))


@flyc.jit
def launch_add_vectors(a: fx.Pointer, b: fx.Pointer, total: fx.Pointer):
    add_vectors(a, b, total).launch(grid=(4, 1, 1), block=(BLOCK, 1, 1))


@flyc.kernel
def integers(a: fx.Pointer, b: fx.Pointer, out: fx.Pointer):
    i = fx.block_idx.x * 64 + fx.thread_idx.x
    x, y = (a + i).load(), (b + i).load()
    u, v = fx.Uint32(x), fx.Uint32(y)
    shift = fx.Int32(u % 32)
    wide = fx.Int64(x) * fx.Int64(y)
    results = [x // y, x % y, u // v, u % v, x * y, x << shift, x >> shift, fx.Int32(wide >> 32), x ^ y, x & ~y]
    results += [fx.max(x, y), fx.min(x, y), fx.ctpop(x), fx.ctlz(x), fx.Int32(x < y), fx.Int32(u < v)]
    for k in fx.range_constexpr(16):
        (out + i * 16 + k).store(fx.Int32(results[k]))


@flyc.jit
def launch_integers(a: fx.Pointer, b: fx.Pointer, out: fx.Pointer):
    integers(a, b, out).launch(grid=(4, 1, 1), block=(64, 1, 1))


BUILDS = {
    "add_tensors": lambda: launch_add_tensors(torch.zeros(8), torch.zeros(8), torch.zeros(8), 8),
    "add_vectors": lambda: launch_add_vectors(*[pointer(fx.Float32)] * 3),
    "integers": lambda: launch_integers(*[pointer(fx.Int32)] * 3),
}
