"""Decoding attention over a paged KV cache: 16 query heads share a KV head; a wave walks the pages of its sequence.

query[sequences][16][128] and cache_k, cache_v[pages][16][128] are bf16, pages[sequences][MOST] are the numbers of a
sequence's pages, lengths[sequences] how many tokens it has; out[sequences][16][128] is f32.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import rocdl

HEADS, DEPTH, PAGE, MOST = 16, 128, 16, 8
SCALE = 0.08838834764831845 * 1.4426950408889634  # of the logits: 1 / sqrt(128), in powers of two


def pointer(dtype):
    return flyc.from_c_void_p(dtype, 0)


@fx.struct
class Shared:
    weights: fx.Array[fx.BFloat16, HEADS * 32, 16]


def over_page(value, combine):
    """`combine` over the 16 lanes that hold a head's logits of a page."""
    for distance in (8, 4, 2, 1):
        value = combine(value, fx.Float32(fx.gpu.shuffle_xor(value, fx.Int32(distance), fx.Int32(64))))
    return value


def product(left, right, added):
    operands = [left.ir_value(), right.ir_value(), added.ir_value()]
    return fx.Vector(rocdl.mfma_f32_16x16x32_bf16(fx.Float32x4.ir_type, operands), (4,), fx.Float32)


@flyc.kernel
def paged_attention(
    query: fx.Pointer, cache_k: fx.Pointer, cache_v: fx.Pointer, pages: fx.Pointer, lengths: fx.Pointer, out: fx.Pointer
):
    lane, sequence = fx.thread_idx.x, fx.block_idx.x
    row, group = lane % 16, lane // 16
    shared = fx.SharedAllocator().allocate(Shared).peek()
    length = (lengths + sequence).load()
    mine = query + ((sequence * HEADS + row) * DEPTH + group * 8)
    queries = [(mine + 32 * i).load(fx.BFloat16x8) for i in range(DEPTH // 32)]
    zero = fx.Vector.filled(4, 0.0, fx.Float32)
    state = [fx.Vector.filled(4, -1e30, fx.Float32), zero] + [zero] * (DEPTH // 16)
    for step, carried in range(fx.Int32(0), (length + 31) // 32, fx.Int32(1), init=state):
        step = fx.Int32(step)
        tops, below, sums = carried[0], carried[1], [carried[2 + i] for i in range(DEPTH // 16)]
        logits = []
        for half in fx.range_constexpr(2):
            page = (pages + (sequence * MOST + step * 2 + half)).load()
            keys = cache_k + ((page * PAGE + row) * DEPTH + group * 8)
            dots = zero
            for i in fx.range_constexpr(DEPTH // 32):
                dots = product(queries[i], (keys + 32 * i).load(fx.BFloat16x8), dots)
            inside = (step * 32 + half * 16 + row) < length
            logits.append([inside.select(dots[j] * SCALE, fx.Float32(-1e30)) for j in range(4)])
        highest = [over_page(fx.max(logits[0][j], logits[1][j]), lambda a, b: fx.max(a, b)) for j in range(4)]
        raised = [fx.max(tops[j], highest[j]) for j in range(4)]
        shrink = fx.Vector.from_elements([fx.exp2(tops[j] - raised[j], fastmath="afn") for j in range(4)], fx.Float32)
        weights = [[fx.exp2(logits[half][j] - raised[j], fastmath="afn") for j in range(4)] for half in range(2)]
        added = [over_page(weights[0][j] + weights[1][j], lambda a, b: a + b) for j in range(4)]
        for half in fx.range_constexpr(2):
            for j in fx.range_constexpr(4):
                shared.weights[(group * 4 + j) * 32 + half * 16 + row] = weights[half][j].to(fx.BFloat16)
        fx.gpu.barrier()
        left = (shared.weights.ptr + (row * 32 + group * 8)).load(fx.BFloat16x8)
        fx.gpu.barrier()
        page = (pages + (sequence * MOST + step * 2 + group // 2)).load()
        values = cache_v + ((page * PAGE + group % 2 * 8) * DEPTH + row)
        for i in fx.range_constexpr(DEPTH // 16):
            column = [(values + (t * DEPTH + i * 16)).load() for t in range(8)]
            sums[i] = product(left, fx.Vector.from_elements(column, fx.BFloat16), sums[i] * shrink)
        state = yield [
            fx.Vector.from_elements(raised, fx.Float32),
            below * shrink + fx.Vector.from_elements(added, fx.Float32),
            *sums,
        ]
    for i in fx.range_constexpr(DEPTH // 16):
        for j in fx.range_constexpr(4):
            (out + ((sequence * HEADS + group * 4 + j) * DEPTH + i * 16 + row)).store(state[2 + i][j] / state[1][j])


@flyc.jit
def launch_paged_attention(
    query: fx.Pointer, cache_k: fx.Pointer, cache_v: fx.Pointer, pages: fx.Pointer, lengths: fx.Pointer, out: fx.Pointer
):
    paged_attention(query, cache_k, cache_v, pages, lengths, out).launch(grid=(3, 1, 1), block=(64, 1, 1))


BUILDS = {
    "paged": lambda: launch_paged_attention(*[pointer(fx.BFloat16)] * 3, *[pointer(fx.Int32)] * 2, pointer(fx.Float32)),
}
