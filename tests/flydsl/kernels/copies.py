"""Moving data: tiled copies, buffers with a bound, loads that go to LDS, reads of LDS that transpose, gathers."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl

WORDS = 1024  # of a buffer, four times 256 lanes


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def one_kernel(kernel, pointers, block=256, grid=1):
    """A build that launches a kernel of up to four pointers."""

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
        kernel(a, b, c, d).launch(grid=(grid, 1, 1), block=(block, 1, 1))

    kinds = [*pointers, *[fx.Uint8] * (4 - len(pointers))]
    return lambda: launch(*map(pointer, kinds))


@flyc.kernel
def tiled(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
    """A 64x64 matrix in tiles of 16x64, a workgroup each: a thread takes four neighbours of a row."""
    here = fx.make_view(a, fx.make_layout((64, 64), (64, 1)))
    there = fx.make_view(b, fx.make_layout((64, 64), (1, 64)))  # the columns follow each other: transposed
    block = fx.make_tile(16, 64)
    here = fx.slice(fx.zipped_divide(here, block), (None, fx.block_idx.x))
    there = fx.slice(fx.zipped_divide(there, block), (None, fx.block_idx.x))
    wide, narrow = (fx.make_copy_atom(fx.UniversalCopy(bits), fx.Float32) for bits in (128, 32))
    threads, values = fx.make_layout((16, 16), (16, 1)), fx.make_layout((1, 4), (4, 1))
    loads = fx.make_tiled_copy_tv(wide, threads, values).get_slice(fx.thread_idx.x)
    stores = fx.make_tiled_copy_tv(narrow, threads, values).get_slice(fx.thread_idx.x)
    source, target = loads.partition_S(here), stores.partition_D(there)
    registers = fx.make_fragment_like(source)
    fx.copy(wide, source, registers)
    fx.copy(narrow, stores.retile(registers), target)


@flyc.kernel
def swizzled_transpose(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
    """A 32x32 matrix transposed through LDS, whose columns are turned by the row so that banks do not meet."""
    tile = fx.SharedAllocator().allocate(fx.Array[fx.Float32, 1024]).peek()
    for i in fx.range_constexpr(4):
        row, column = fx.thread_idx.x // 32 + 8 * i, fx.thread_idx.x % 32
        tile[row * 32 + (column ^ row)] = (a + (row * 32 + column)).load()
    fx.gpu.barrier()
    for i in fx.range_constexpr(4):
        row, column = fx.thread_idx.x // 32 + 8 * i, fx.thread_idx.x % 32
        (b + (row * 32 + column)).store(tile[column * 32 + (row ^ column)])


def bounded(bits):
    """A build: copies WORDS words through buffers that end before: reads past the end give 0, writes are dropped."""

    @flyc.kernel
    def buffer(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
        element = {8: fx.Uint8, 16: fx.Uint16}.get(bits, fx.Uint32)
        count = bits // element.width
        atom = fx.make_copy_atom(rocdl.BufferCopy(bits), element)
        layout = fx.make_layout(count, 1)
        source = rocdl.make_buffer_ptr(fx.recast_iter(element, a), 900)
        target = rocdl.make_buffer_ptr(fx.recast_iter(element, b), 1000)
        registers = fx.make_rmem_tensor(count, element)
        at = fx.thread_idx.x * count
        fx.copy(atom, fx.make_view(source + at, layout), registers)
        fx.copy(atom, registers, fx.make_view(target + at, layout))

    return one_kernel(buffer, [fx.Uint32] * 2)


def to_lds(op, bits, buffer, waits):
    """A build: each wave loads 64 pieces into LDS without registers, and each lane writes its neighbour's piece.

    Pieces of three words lie four words apart there.
    """
    count = bits // 32
    apart = 4 if count == 3 else count

    @flyc.kernel
    def load(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
        pieces = fx.SharedAllocator().allocate(fx.Array[fx.Uint32, 256 * apart, 16]).peek()
        layout = fx.make_layout(count, 1)
        atom = fx.make_copy_atom(op(), fx.Uint32)
        source = rocdl.make_buffer_ptr(a, 256 * count * 4) if buffer else a
        first = rocdl.readfirstlane(fx.Int32.ir_type, (fx.thread_idx.x // 64 * 64 * apart).ir_value())
        wave = fx.Int32(first)
        fx.copy(atom, fx.make_view(source + fx.thread_idx.x * count, layout), fx.make_view(pieces.ptr + wave, layout))
        if fx.const_expr(waits):
            rocdl.asyncmark()
            rocdl.wait_asyncmark(0)
        fx.gpu.barrier()
        for i in fx.range_constexpr(count):
            (b + (fx.thread_idx.x * count + i)).store(pieces[(fx.thread_idx.x + 1) % 256 * apart + i])

    return one_kernel(load, [fx.Uint32] * 2)


def transposed_read(granularity, bits):
    """A build: LDS holds bytes 0, 1, 2 ...; each lane reads its piece by ds_read_b<bits>_tr_b<granularity>."""
    words = bits // 32

    @flyc.kernel
    def read(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
        lane = fx.thread_idx.x
        pieces = fx.SharedAllocator().allocate(fx.Array[fx.Uint32, 64 * words, 16]).peek()
        for i in fx.range_constexpr(words):
            pieces[lane * words + i] = (a + (lane * words + i)).load()
        fx.gpu.barrier()
        if fx.const_expr(granularity == 6):  # the copy atom for it ends FlyDSL's process
            kind = fx.Vector.make_type(words, fx.Int32)
            read = fx.Vector(rocdl.ds_read_tr6_b96_(kind, (pieces.ptr + lane * words).llvm_ptr), (words,), fx.Int32)
        else:
            atom = fx.make_copy_atom(rocdl.cdna4.LDSReadTrans(granularity, bits), fx.Uint32)
            registers = fx.make_rmem_tensor(words, fx.Uint32)
            fx.copy(atom, fx.make_view(pieces.ptr + lane * words, fx.make_layout(words, 1)), registers)
            read = fx.Vector(registers.load())
        for i in fx.range_constexpr(words):
            (b + (lane * words + i)).store(fx.Uint32(read[i]))

    return one_kernel(read, [fx.Uint32] * 2, block=64)


@flyc.kernel
def gathered(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
    """d[c[i]] = a[b[i]]."""
    i = fx.block_idx.x * 256 + fx.thread_idx.x
    (d + (c + i).load()).store((a + (b + i).load()).load())


@flyc.kernel
def scalar_loads(a: fx.Pointer, b: fx.Pointer, c: fx.Pointer, d: fx.Pointer):
    """What a wave loads from a buffer at its own number: one word and four, into scalar registers."""
    wave = fx.Int32(rocdl.readfirstlane(fx.Int32.ir_type, (fx.thread_idx.x // 64).ir_value()))
    buffer = rocdl.make_buffer_ptr(a, 48)
    one, four = rocdl.s_buffer_load(buffer, wave), rocdl.s_buffer_load(buffer, wave * 4, count=4)
    at = fx.thread_idx.x * 5
    (b + at).store(one)
    for i in fx.range_constexpr(4):
        (b + (at + 1 + i)).store(four[i])


BUILDS = {
    "tiled": one_kernel(tiled, [fx.Float32] * 2, grid=4),
    "swizzled_transpose": one_kernel(swizzled_transpose, [fx.Float32] * 2),
    "gathered": one_kernel(gathered, [fx.Uint32, fx.Int32, fx.Int32, fx.Uint32], grid=4),
    "scalar_loads": one_kernel(scalar_loads, [fx.Int32] * 2),
    **{f"bounded_{bits}": bounded(bits) for bits in (8, 16, 32, 64, 128)},
    **{f"buffer_lds_{n}": to_lds(lambda n=n: rocdl.BufferCopyLDS(n), n, True, False) for n in (32, 128)},
    **{
        f"buffer_async_{n}": to_lds(lambda n=n: rocdl.cdna4.BufferLoadAsyncLDS(n), n, True, True) for n in (32, 96, 128)
    },
    **{
        f"global_async_{n}": to_lds(lambda n=n: rocdl.cdna4.GlobalLoadAsyncLDS(n), n, False, True)
        for n in (32, 96, 128)
    },
    **{f"transposed_{g}": transposed_read(g, bits) for g, bits in ((4, 64), (6, 96), (8, 64), (16, 64))},
}
