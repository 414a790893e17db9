"""Kernels over the rows of a matrix, a workgroup a row: softmax, RMS norm and layer norm."""

import flydsl.compiler as flyc
import flydsl.expr as fx

THREADS, WIDTH = 256, 4  # of a workgroup; elements a thread holds
LENGTH = THREADS * WIDTH
WAVES = THREADS // 64


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


@fx.struct
class Partial:
    values: fx.Array[fx.Float32, WAVES]


def over_wave(value, combine):
    """`combine` over the 64 lanes, by exchanging with the lane whose number differs in one bit."""
    for distance in (32, 16, 8, 4, 2, 1):
        value = combine(value, fx.Float32(fx.gpu.shuffle_xor(value, fx.Int32(distance), fx.Int32(64))))
    return value


def over_row(value, combine, shared):
    """`combine` over the workgroup: first in each wave, then over what the waves left in LDS."""
    value = over_wave(value, combine)
    fx.gpu.barrier()
    shared.values[fx.thread_idx.x // 64] = value
    fx.gpu.barrier()
    total = shared.values[0]
    for wave in range(1, WAVES):
        total = combine(total, shared.values[wave])
    return total


def add(a, b):
    return a + b


def largest(a, b):
    return fx.max(a, b)


def mine(matrix, kind):
    """The elements of this thread, as f32."""
    at = matrix + (fx.block_idx.x * LENGTH + fx.thread_idx.x * WIDTH)
    return at.load(fx.Vector.make_type(WIDTH, kind)) if kind is fx.Float32 else at.load(fx.BFloat16x4).to(fx.Float32)


def put(vector, matrix):
    (matrix + (fx.block_idx.x * LENGTH + fx.thread_idx.x * WIDTH)).store(vector)


def total_of(vector, combine):
    total = vector[0]
    for i in range(1, WIDTH):
        total = combine(total, vector[i])
    return total


@flyc.kernel
def softmax(x: fx.Pointer, y: fx.Pointer):
    shared = fx.SharedAllocator().allocate(Partial).peek()
    values = mine(x, fx.BFloat16)
    top = over_row(total_of(values, largest), largest, shared)
    powers = fx.exp2((values - top) * 1.4426950408889634, fastmath="afn")
    below = over_row(total_of(powers, add), add, shared)
    put((powers / below).to(fx.BFloat16), y)


@flyc.kernel
def rms_norm(x: fx.Pointer, weight: fx.Pointer, y: fx.Pointer, epsilon: fx.Float32):
    shared = fx.SharedAllocator().allocate(Partial).peek()
    values = mine(x, fx.BFloat16)
    squares = over_row(total_of(values * values, add), add, shared)
    factor = fx.rsqrt(squares * (1.0 / LENGTH) + epsilon)
    weights = (weight + fx.thread_idx.x * WIDTH).load(fx.BFloat16x4).to(fx.Float32)
    put((values * factor * weights).to(fx.BFloat16), y)


@flyc.kernel
def layer_norm(x: fx.Pointer, y: fx.Pointer, epsilon: fx.Float32):
    shared = fx.SharedAllocator(static=False).allocate(Partial).peek()
    values = (x + (fx.block_idx.x * LENGTH + fx.thread_idx.x * WIDTH)).load(fx.Float32x4)
    centre = over_row(total_of(values, add), add, shared) * (1.0 / LENGTH)
    apart = values - centre
    spread = over_row(total_of(apart * apart, add), add, shared) * (1.0 / LENGTH)
    put(apart / fx.sqrt(spread + epsilon), y)


@flyc.jit
def launch_softmax(x: fx.Pointer, y: fx.Pointer):
    softmax(x, y).launch(grid=(3, 1, 1), block=(THREADS, 1, 1))


@flyc.jit
def launch_rms_norm(x: fx.Pointer, weight: fx.Pointer, y: fx.Pointer, epsilon: fx.Float32):
    rms_norm(x, weight, y, epsilon).launch(grid=(3, 1, 1), block=(THREADS, 1, 1))


@flyc.jit
def launch_layer_norm(x: fx.Pointer, y: fx.Pointer, epsilon: fx.Float32):
    layer_norm(x, y, epsilon).launch(grid=(3, 1, 1), block=(THREADS, 1, 1))


BUILDS = {
    "softmax": lambda: launch_softmax(*[pointer(fx.BFloat16)] * 2),
    "rms_norm": lambda: launch_rms_norm(*[pointer(fx.BFloat16)] * 3, 1e-5),
    "layer_norm_dynamic_lds": lambda: launch_layer_norm(*[pointer(fx.Float32)] * 2, 1e-5),
}
