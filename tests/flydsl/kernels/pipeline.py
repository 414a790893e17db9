"""A matrix product as tuned kernels do it: LDS filled without registers, a step ahead, the depth split over workgroups.

C[rows][columns] += A[rows][depth] @ B[columns][depth].T, f16 to f32. A workgroup makes a tile of 64 x 64 over its share
of the depth and adds it to C by atomics. LDS has two halves: while one is multiplied, the loads of the next step fill
the other, and the wait counts leave those out. LDS is filled in the order of the lanes; so the source is swizzled.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl

TILE, STEP = 64, 64
CHUNKS = STEP // 8  # of 16 bytes in a row of a step
HALF = TILE * STEP  # elements of one operand in one half


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


@fx.struct
class Halves:
    a: fx.Array[fx.Float16, 2 * HALF, 16]
    b: fx.Array[fx.Float16, 2 * HALF, 16]


def start_loads(matrix, first_row, start, depth, target, half, thread):
    """Starts the loads of a tile's step: each wave fills 64 chunks of LDS that follow each other, twice."""
    atom = fx.make_copy_atom(rocdl.cdna4.BufferLoadAsyncLDS(128), fx.Float16)
    layout = fx.make_layout(8, 1)
    wave = fx.Int32(rocdl.readfirstlane(fx.Int32.ir_type, (thread // 64).ir_value()))
    for part in range(2):
        chunk = part * 256 + thread
        row = chunk // CHUNKS
        column = (chunk % CHUNKS) ^ (row % CHUNKS)
        source = matrix + ((first_row + row) * depth + start + column * 8)
        place = target + (half * HALF + (part * 256 + wave * 64) * 8)
        fx.copy(atom, fx.make_view(source, layout), fx.make_view(place, layout))


def operand(target, half, row, chunk):
    """A lane's eight elements of a row in LDS."""
    return (target + (half * HALF + (row * CHUNKS + (chunk ^ (row % CHUNKS))) * 8)).load(fx.Float16x8)


def multiply(lds, half, sums, wave, lane):
    """The four 16x16 tiles of a wave, one step further."""
    rows, columns = wave // 2 * 32 + lane % 16, wave % 2 * 32 + lane % 16
    for inner in range(STEP // 32):
        chunk = inner * 4 + lane // 16
        left = [operand(lds.a.ptr, half, rows + 16 * i, chunk) for i in range(2)]
        right = [operand(lds.b.ptr, half, columns + 16 * i, chunk) for i in range(2)]
        rocdl.s_setprio(1)
        for i in range(4):
            operands = [left[i // 2].ir_value(), right[i % 2].ir_value(), sums[i].ir_value()]
            result = rocdl.mfma_f32_16x16x32_f16(fx.Float32x4.ir_type, operands)
            sums[i] = fx.Vector(result, (4,), fx.Float32)
        rocdl.s_setprio(0)
    return sums


def split_product(left_out):
    """A build. left_out: how many groups of loads a step need not wait for; 1 is right."""

    @flyc.kernel
    def product(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, rows: fx.Int32, columns: fx.Int32, depth: fx.Int32):
        thread = fx.thread_idx.x
        lane, wave = thread % 64, thread // 64
        first_row, first_column = fx.block_idx.y * TILE, fx.block_idx.x * TILE
        share = depth // 2
        begin = fx.block_idx.z * share
        lds = fx.SharedAllocator().allocate(Halves).peek()
        from_a, from_b = rocdl.make_buffer_ptr(a, rows * depth * 2), rocdl.make_buffer_ptr(b, columns * depth * 2)
        start_loads(from_a, first_row, begin, depth, lds.a.ptr, fx.Int32(0), thread)
        start_loads(from_b, first_column, begin, depth, lds.b.ptr, fx.Int32(0), thread)
        rocdl.asyncmark()
        zero = fx.Vector.filled(4, 0.0, fx.Float32)
        for step, carried in range(fx.Int32(0), share // STEP, fx.Int32(1), init=[zero, zero, zero, zero]):
            step = fx.Int32(step)
            half = step % 2
            following = begin + (step + 1) * STEP  # after the last step past the share: loaded, never used
            start_loads(from_a, first_row, following, depth, lds.a.ptr, 1 - half, thread)
            start_loads(from_b, first_column, following, depth, lds.b.ptr, 1 - half, thread)
            rocdl.asyncmark()
            rocdl.wait_asyncmark(left_out)
            fx.gpu.barrier()
            sums = multiply(lds, half, [carried[i] for i in range(4)], wave, lane)
            fx.gpu.barrier()
            results = yield sums
        for i in fx.range_constexpr(4):
            for j in fx.range_constexpr(4):
                row = first_row + wave // 2 * 32 + i // 2 * 16 + lane // 16 * 4 + j
                column = first_column + wave % 2 * 32 + i % 2 * 16 + lane % 16
                fx.atomic_add(c + (row * columns + column), results[i][j])

    @flyc.jit
    def launch_product(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, rows: fx.Int32, columns: fx.Int32, depth: fx.Int32):
        product(a, b, c, rows, columns, depth).launch(grid=(2, 1, 2), block=(256, 1, 1))

    return lambda: launch_product(*[pointer(fx.Float16)] * 2, pointer(fx.Float32), 64, 128, 512)


BUILDS = {"product": split_product(1), "product_that_does_not_wait": split_product(2)}
