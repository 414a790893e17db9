"""Matrix products C = A @ B.T of whole matrices: tiles through LDS, FP8, and block scaled formats.

A[rows][depth] and B[columns][depth] lie with the depth last; C[rows][columns] is f32.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl

TILE, STEP = 64, 64  # of the product through LDS: rows and columns of a workgroup, depth of a step
ROW_CHUNKS = STEP // 8  # chunks of eight 16-bit elements, 16 bytes, of a row


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def sums(vector, count):
    """What a matrix instruction returned, as a vector of f32."""
    return fx.Vector(vector, (count,), fx.Float32)


def lds_at(row, chunk):
    """The element at which a 16-byte chunk of a row lies in LDS: chunks of neighbouring rows on different banks."""
    return (row * ROW_CHUNKS + (chunk ^ (row % ROW_CHUNKS))) * 8


@fx.struct
class Tiles:
    a: fx.Array[fx.BFloat16, TILE * STEP, 16]
    b: fx.Array[fx.BFloat16, TILE * STEP, 16]


@flyc.kernel
def product_lds(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, depth: fx.Int32, columns: fx.Int32):
    thread = fx.thread_idx.x
    lane, wave = thread % 64, thread // 64
    first_row, first_column = fx.block_idx.y * TILE, fx.block_idx.x * TILE
    lds = fx.SharedAllocator().allocate(Tiles).peek()
    wave_row, wave_column = (wave // 2) * 32, (wave % 2) * 32
    zero = fx.Vector.filled(4, 0.0, fx.Float32)
    results = [zero, zero, zero, zero]
    for start, carried in range(fx.Int32(0), depth, fx.Int32(STEP), init=results):
        for part in fx.range_constexpr(2):
            row, chunk = part * 32 + thread // ROW_CHUNKS, thread % ROW_CHUNKS
            from_a = (a + ((first_row + row) * depth + start + chunk * 8)).load(fx.BFloat16x8)
            from_b = (b + ((first_column + row) * depth + start + chunk * 8)).load(fx.BFloat16x8)
            (lds.a.ptr + lds_at(row, chunk)).store(from_a)
            (lds.b.ptr + lds_at(row, chunk)).store(from_b)
        fx.gpu.barrier()
        running = [carried[i] for i in range(4)]
        for inner in fx.range_constexpr(STEP // 32):
            chunk = inner * 4 + lane // 16
            left = [(lds.a.ptr + lds_at(wave_row + i * 16 + lane % 16, chunk)).load(fx.BFloat16x8) for i in range(2)]
            right = [
                (lds.b.ptr + lds_at(wave_column + i * 16 + lane % 16, chunk)).load(fx.BFloat16x8) for i in range(2)
            ]
            for i in fx.range_constexpr(4):
                operands = [left[i // 2].ir_value(), right[i % 2].ir_value(), running[i].ir_value()]
                running[i] = sums(rocdl.mfma_f32_16x16x32_bf16(fx.Float32x4.ir_type, operands), 4)
        fx.gpu.barrier()
        results = yield running
    for i in fx.range_constexpr(4):
        for j in fx.range_constexpr(4):
            row = first_row + wave_row + (i // 2) * 16 + (lane // 16) * 4 + j
            column = first_column + wave_column + (i % 2) * 16 + lane % 16
            (c + (row * columns + column)).store(results[i][j])


@flyc.jit
def launch_product_lds(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, depth: fx.Int32, columns: fx.Int32):
    product_lds(a, b, c, depth, columns).launch(grid=(2, 2, 1), block=(256, 1, 1))


@flyc.kernel
def product_wide(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, depth: fx.Int32):
    """A wave makes 128 x 128 elements: 256 registers of sums, the half of all that it has."""
    lane = fx.thread_idx.x
    nothing = fx.Vector.filled(16, 0.0, fx.Float32)
    for start, carried in range(fx.Int32(0), depth, fx.Int32(16), init=[nothing] * 16):
        part = fx.Int32(start) + lane // 32 * 8
        left = [(a + ((lane % 32 + 32 * i) * depth + part)).load(fx.BFloat16x8) for i in fx.range_constexpr(4)]
        right = [(b + ((lane % 32 + 32 * i) * depth + part)).load(fx.BFloat16x8) for i in fx.range_constexpr(4)]
        running = [carried[i] for i in fx.range_constexpr(16)]
        for i in fx.range_constexpr(16):
            operands = [left[i // 4].ir_value(), right[i % 4].ir_value(), running[i].ir_value()]
            running[i] = sums(rocdl.mfma_f32_32x32x16_bf16(fx.Vector.make_type(16, fx.Float32), operands), 16)
        results = yield running
    for i in fx.range_constexpr(16):
        for j in fx.range_constexpr(16):
            row = i // 4 * 32 + j // 4 * 8 + lane // 32 * 4 + j % 4
            (c + (row * 128 + i % 4 * 32 + lane % 32)).store(results[i][j])


@flyc.jit
def launch_product_wide(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, depth: fx.Int32):
    product_wide(a, b, c, depth).launch(grid=(1, 1, 1), block=(64, 1, 1))


@flyc.kernel
def product_fp8(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scales: fx.Pointer, depth: fx.Int32, columns: fx.Int32):
    """A wave makes a 16x16 tile; a row of A and a column of C have an f32 scale each, one after the other."""
    lane = fx.thread_idx.x
    row, column = fx.block_idx.y * 16 + lane % 16, fx.block_idx.x * 16 + lane % 16
    part = (lane // 16) * 8
    nothing = fx.Vector.filled(4, 0.0, fx.Float32)
    for start, carried in range(fx.Int32(0), depth, fx.Int32(32), init=[nothing]):
        left = (a + (row * depth + start + part)).load(fx.Uint8x8).bitcast(fx.Int64)[0]
        right = (b + (column * depth + start + part)).load(fx.Uint8x8).bitcast(fx.Int64)[0]
        operands = [left.ir_value(), right.ir_value(), carried[0].ir_value()]
        results = yield [sums(rocdl.mfma_f32_16x16x32_fp8_fp8(fx.Float32x4.ir_type, operands), 4)]
    for j in fx.range_constexpr(4):
        to_row = fx.block_idx.y * 16 + (lane // 16) * 4 + j
        scaled = results[j] * (scales + to_row).load() * (scales + 32 + column).load()
        (c + (to_row * columns + column)).store(scaled)


@flyc.jit
def launch_product_fp8(
    a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scales: fx.Pointer, depth: fx.Int32, columns: fx.Int32
):
    product_fp8(a, b, c, scales, depth, columns).launch(grid=(2, 2, 1), block=(64, 1, 1))


def mx_operand(kind, address, group, step):
    """A lane's part of a row of 128 elements, in words, in the order of v_mfma_scale_f32_16x16x128_f8f6f4: of FP8 two
    chunks of 16, 64 apart; of FP4 32 neighbours."""
    if kind == "fp4":
        return (address + (step * 64 + group * 16)).load(fx.Uint8x16).bitcast(fx.Int32)
    low = (address + (step * 128 + group * 16)).load(fx.Uint8x16).bitcast(fx.Int32)
    high = (address + (step * 128 + 64 + group * 16)).load(fx.Uint8x16).bitcast(fx.Int32)
    return low.shuffle(high, list(range(8)))


def product_mx(kind_a, kind_b):
    """A build: each 32 elements of a row share an E8M0 scale; scales lie as [row][depth / 32]."""
    code = {"fp8": 0, "fp4": 4}
    bytes_a, bytes_b = (128 if kind == "fp8" else 64 for kind in (kind_a, kind_b))

    @flyc.kernel
    def product(
        a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scales_a: fx.Pointer, scales_b: fx.Pointer, steps: fx.Int32
    ):
        lane = fx.thread_idx.x
        group = lane // 16
        row, column = fx.block_idx.y * 16 + lane % 16, fx.block_idx.x * 16 + lane % 16
        nothing = fx.Vector.filled(4, 0.0, fx.Float32)
        for step, carried in range(fx.Int32(0), steps, fx.Int32(1), init=[nothing]):
            step = fx.Int32(step)
            left = mx_operand(kind_a, a + row * steps * bytes_a, group, step)
            right = mx_operand(kind_b, b + column * steps * bytes_b, group, step)
            scale_a = fx.Int32((scales_a + ((row * steps + step) * 4 + group)).load())
            scale_b = fx.Int32((scales_b + ((column * steps + step) * 4 + group)).load())
            operands = [left.ir_value(), right.ir_value(), carried[0].ir_value(), code[kind_a], code[kind_b]]
            operands += [0, scale_a.ir_value(), 0, scale_b.ir_value()]
            results = yield [sums(rocdl.mfma_scale_f32_16x16x128_f8f6f4(fx.Float32x4.ir_type, operands), 4)]
        for j in fx.range_constexpr(4):
            (c + ((fx.block_idx.y * 16 + group * 4 + j) * 32 + column)).store(results[j])

    @flyc.jit
    def launch(
        a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, scales_a: fx.Pointer, scales_b: fx.Pointer, steps: fx.Int32
    ):
        product(a, b, c, scales_a, scales_b, steps).launch(grid=(2, 2, 1), block=(64, 1, 1))

    bytes_pointer = pointer(fx.Uint8)
    return lambda: launch(bytes_pointer, bytes_pointer, pointer(fx.Float32), bytes_pointer, bytes_pointer, 2)


BUILDS = {
    "lds_bf16": lambda: launch_product_lds(*[pointer(fx.BFloat16)] * 2, pointer(fx.Float32), 128, 128),
    "wide_bf16": lambda: launch_product_wide(*[pointer(fx.BFloat16)] * 2, pointer(fx.Float32), 48),
    "fp8": lambda: launch_product_fp8(*[pointer(fx.Uint8)] * 2, *[pointer(fx.Float32)] * 2, 128, 32),
    "mxfp8": product_mx("fp8", "fp8"),
    "mxfp4": product_mx("fp4", "fp4"),
    "mxfp8_mxfp4": product_mx("fp8", "fp4"),
}
