"""What the other files leave out: scratch memory, loops and branches by lane, exchanges between lanes, tracing."""

import os

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import ktrace, rocdl

KEPT = 300  # words of a lane's own array, too many for registers
TRACE_BYTES = 1 << 16


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


def one_kernel(kernel, block=64, hints=None):
    """A build that launches a kernel of two pointers to integers in one workgroup."""

    @flyc.jit
    def launch(a: fx.Pointer, b: fx.Pointer):
        kernel(a, b).launch(grid=(1, 1, 1), block=(block, 1, 1))

    def build():
        os.environ["FLYDSL_KTRACE_BUFFER_BYTES"] = str(TRACE_BYTES)
        with flyc.jit_function.CompilationContext.compile_hints(hints or {}):
            launch(pointer(fx.Int32), pointer(fx.Int32))

    return build


@flyc.kernel
def scratch(a: fx.Pointer, b: fx.Pointer):
    """b[i] names the word of the lane's own array that takes b[i]'s place."""
    mine = fx.make_rmem_tensor(KEPT, fx.Int32)
    for i in fx.range_constexpr(KEPT):
        mine[i] = (a + (fx.thread_idx.x * KEPT + i)).load()
    place = b + fx.thread_idx.x
    place.store(mine[place.load()])


@flyc.kernel
def collatz(a: fx.Pointer, b: fx.Pointer):
    """How many steps a number takes to 1."""
    number, steps = (a + fx.thread_idx.x).load(), fx.Int32(0)
    while number != 1:
        if number % 2 == 0:  # noqa: SIM108 -- FlyDSL makes a branch of this alone
            number = number // 2
        else:
            number = number * 3 + 1
        steps = steps + 1
    (b + fx.thread_idx.x).store(steps)


def store_all(elements, out, thread):
    for i, element in enumerate(elements):
        (out + (thread * len(elements) + i)).store(fx.Int32(element))


@flyc.kernel
def exchanges(a: fx.Pointer, b: fx.Pointer):
    x = (a + fx.thread_idx.x).load()
    word, lane = fx.Int32.ir_type, fx.Int32(fx.gpu.lane_id())
    results = [
        rocdl.ds_bpermute(word, ((lane ^ 5) * 4).ir_value(), x.ir_value()),
        rocdl.readlane(word, x.ir_value(), fx.Int32(7).ir_value()),
        rocdl.readfirstlane(word, x.ir_value()),
        fx.gpu.shuffle_up(x, 3, 64),
        fx.gpu.shuffle_down(x, 3, 32),
        fx.gpu.shuffle_idx(x, 9, 16),
        fx.gpu.shuffle_xor(x, 33, 64),
        rocdl.update_dpp(word, x.ir_value(), x.ir_value(), 0x111, 0xF, 0xF, False),  # row_shr:1
        rocdl.ds_swizzle(word, x.ir_value(), fx.Int32(0x401F).ir_value()),
        fx.Int32(rocdl.ballot(fx.Int64.ir_type, (x % 3 == 0).ir_value())),
    ]
    store_all(results, b, fx.thread_idx.x)


@flyc.kernel
def dots(a: fx.Pointer, b: fx.Pointer):
    """Sums of products of the parts of two words, and a third."""
    x, y, z = [(a + (fx.thread_idx.x * 3 + i)).load() for i in fx.range_constexpr(3)]
    word, single = fx.Int32.ir_type, fx.Float32.ir_type
    shorts = [fx.Vector.from_elements([w], fx.Int32).bitcast(fx.Int16).ir_value() for w in (x, y)]
    halves = [(fx.Vector(s, (2,), fx.Int16).to(fx.Float16)).ir_value() for s in shorts]
    narrow = [(fx.Vector(s, (2,), fx.Int16).to(fx.BFloat16)).ir_value() for s in shorts]
    third, words = z.ir_value(), [x.ir_value(), y.ir_value()]
    results = [getattr(rocdl, f"{sign}dot2_")(word, *shorts, third) for sign in "su"]
    results += [getattr(rocdl, f"{sign}dot{parts}_")(word, *words, third) for parts in (4, 8) for sign in "su"]
    floats = [rocdl.fdot2_(single, *halves, fx.Float32(z).ir_value())]
    floats += [rocdl.fdot2_f32_bf16_(single, *narrow, fx.Float32(z).ir_value())]
    floats += [rocdl.fmed3(single, *[fx.Float32(w).ir_value() for w in (x, y, z)])]
    store_all([*results, *[fx.Float32(f) for f in floats]], b, fx.thread_idx.x)


@flyc.kernel
def traced(a: fx.Pointer, b: fx.Pointer):
    """Each wave's first event has its number with it."""
    ktrace.mark("begin", fx.thread_idx.x // 64)
    with ktrace.range("body"):
        (b + fx.thread_idx.x).store((a + fx.thread_idx.x).load() + 1)


BUILDS = {
    "scratch": one_kernel(scratch),
    "collatz": one_kernel(collatz, block=1024),
    "exchanges": one_kernel(exchanges),
    "dots": one_kernel(dots),
    "traced": one_kernel(traced, block=128, hints={"ktrace": True}),
}
