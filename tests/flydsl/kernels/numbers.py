"""FlyDSL's functions of one value, its random numbers (`flydsl.expr.random`), and its atomics."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def one_kernel(kernel, pointers, block=256):
    """A build that launches a kernel of two pointers in one workgroup."""

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer):
        kernel(a, b).launch(grid=(1, 1, 1), block=(block, 1, 1))

    return lambda: launch(*map(pointer, pointers))


def store_all(elements, out, thread, dtype):
    for i, element in enumerate(elements):
        (out + (thread * len(elements) + i)).store(dtype(element))


@flyc.kernel
def functions(a: fx.Pointer, b: fx.Pointer):
    """Those that LLVM makes itself. The others call ROCm's device library, which is not there, or come out as empty
    kernels (asin, acos, atan, atan2, tan, sinh, cosh, tanh)."""
    x = (a + fx.thread_idx.x).load()
    exact = [fx.absf(x), fx.trunc(x), fx.round(x), fx.roundeven(x), fx.sqrt(x), x / fx.Float32(3.0), fx.fma(x, x, x)]
    exact += [fx.max(x, 0.5), fx.min(x, 0.5), fx.copysign(x, fx.Float32(-1.0)), fx.Float32(fx.isfinite(x))]
    near = [fx.exp2(x, fastmath="afn"), fx.rsqrt(x), fx.exp(x), fx.expm1(x), fx.log(x), fx.log1p(x)]
    raw = [getattr(rocdl, name)(fx.Float32.ir_type, x.ir_value()) for name in ("exp2", "log", "rcp", "rsq", "sqrt")]
    store_all([*exact, *near, *raw], b, fx.thread_idx.x, fx.Float32)


@flyc.kernel
def conversions(a: fx.Pointer, b: fx.Pointer):
    x = (a + fx.thread_idx.x).load()
    narrow = [x.to(fx.Float16).to(fx.Float32), x.to(fx.BFloat16).to(fx.Float32), x.to(fx.Float64).to(fx.Float32)]
    narrow += [fx.Float32(fx.Int32(x)), fx.Float32(fx.Int16(x)), fx.Float32(fx.Int64(x)), fx.Float32(fx.Uint8(x))]
    store_all(narrow, b, fx.thread_idx.x, fx.Float32)


@flyc.kernel
def random_words(a: fx.Pointer, b: fx.Pointer):
    seed, offset = (a + fx.thread_idx.x * 2).load(), (a + (fx.thread_idx.x * 2 + 1)).load()
    words = [*fx.random.randint4x(seed, offset), fx.random.randint(seed, offset, n_rounds=7)]
    uniform = [fx.random.rand(seed, offset), *fx.random.rand4x(seed, offset)]
    store_all(words + [u.bitcast(fx.Uint32) for u in uniform], b, fx.thread_idx.x, fx.Uint32)


def atomics(dtype, shared):
    """A build: each thread's value into a cell by each operation, in global memory or LDS, and what an addition of one
    to a further cell returned."""

    @flyc.kernel
    def atomic(a: fx.Pointer, b: fx.Pointer):
        value = (a + fx.thread_idx.x).load()
        cells = b
        if fx.const_expr(shared):
            cells = fx.SharedAllocator().allocate(fx.Array[dtype, 16]).peek().ptr
            if fx.thread_idx.x < 16:
                (cells + fx.thread_idx.x).store((b + fx.thread_idx.x).load())
            fx.gpu.barrier()
        operations = [fx.atomic_add]
        if fx.const_expr(dtype.is_integer):
            operations += [fx.atomic_sub, fx.atomic_min, fx.atomic_max, fx.atomic_and, fx.atomic_or, fx.atomic_xor]
        if fx.const_expr(not dtype.is_integer):
            operations += [fx.atomic_fmin, fx.atomic_fmax]
        for i, operation in enumerate(operations):
            operation(cells + i, value)
        before = fx.atomic_add(cells + 8, dtype(1))
        (b + (16 + fx.thread_idx.x)).store(before)
        fx.gpu.barrier()
        last = fx.Int32(16) if shared else fx.Int32(0)
        if fx.thread_idx.x < last:
            (b + fx.thread_idx.x).store((cells + fx.thread_idx.x).load())

    return one_kernel(atomic, [dtype] * 2)


@flyc.kernel
def tickets(a: fx.Pointer, b: fx.Pointer):
    """Compare-and-swap until it succeeds: adds a thread's value."""
    value = (a + fx.thread_idx.x).load()
    old = fx.Int32(0)
    done = fx.Int32(0)
    while done == 0:
        seen, _ = fx.atomic_cas(b, old, old + value)
        done = fx.Int32(seen == old)
        old = seen


def buffer_atomics(name, dtype):
    op = {"add": rocdl.BufferAtomicAdd, "max": rocdl.BufferAtomicMax, "min": rocdl.BufferAtomicMin}[name]

    @flyc.kernel
    def atomic(a: fx.Pointer, b: fx.Pointer):
        """Four threads share a cell; the second half of the cells lies past the buffer's end."""
        value = fx.make_rmem_tensor(1, dtype)
        value.store(fx.Vector.from_elements([(a + fx.thread_idx.x).load()], dtype))
        buffer = rocdl.make_buffer_ptr(b, 128)
        layout = fx.make_layout(1, 1)
        fx.copy(fx.make_copy_atom(op(dtype), dtype), value, fx.make_view(buffer + fx.thread_idx.x // 4, layout))

    return one_kernel(atomic, [dtype] * 2)


BUILDS = {
    "functions": one_kernel(functions, [fx.Float32] * 2),
    "conversions": one_kernel(conversions, [fx.Float32] * 2),
    "random_words": one_kernel(random_words, [fx.Uint32] * 2),
    "tickets": one_kernel(tickets, [fx.Int32] * 2),
    **{f"atomics_{d.__name__}": atomics(d, False) for d in (fx.Int32, fx.Uint32, fx.Int64, fx.Float32, fx.Float64)},
    **{f"atomics_lds_{d.__name__}": atomics(d, True) for d in (fx.Int32, fx.Uint32, fx.Int64, fx.Float32, fx.Float64)},
    **{f"buffer_{n}": buffer_atomics(n, d) for n, d in (("add", fx.Float32), ("max", fx.Int32), ("min", fx.Int32))},
}
