"""How a context is split, and the kernels that merge the splits' results."""

from __future__ import annotations

from collections.abc import Callable

from codegen.kernels.lanes import bf16_values, butterfly, hw_exp2, ld
from codegen.kernels.sparse_attention.chunk import LOG2_E
from codegen.kernels.sparse_attention.shapes import GROUP, HEAD_DIM
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Kernel,
    Pointer,
    constant,
    kernel,
    loop,
    readfirstlane,
    store,
    thread_id,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.isa.conversions import v_cvt_pk_bf16_f32
from gfx950.isa.vop2 import v_max_f32
from gfx950.isa.vop3 import v_fma_f32

THREADS = 256
DIMS = GROUP * HEAD_DIM // THREADS  # of a thread
HEAD_THREADS = HEAD_DIM // DIMS
MAX_SPLITS = 64

SPLITS = rule(
    "sparse_attention.splits",
    Evidence.vendor,
    "ROCm/aiter aiter/ops/triton/gluon/pa_decode_gluon.py at e4048607: page_size = ceil(ctx / splits)",
    "Split k has keys size * k .. min(ctx, size * (k + 1)) - 1, size = ceil(ctx / splits); it walks the aligned chunks"
    " of 256 keys that these touch.",
)
REDUCE_RULE = rule(
    "sparse_attention.reduce",
    Evidence.vendor,
    "ROCm/aiter csrc/cpp_itfs/pa/pa_ps.cuh @350dc918 (HIP, fmaf) and its FlyDSL twin (product and sum apart)",
    "M is the largest m; w = l * exp2((m - M) * log2(e)), 0 of a split without keys; w is summed over pairs of splits"
    " 32, 16, 8, 4, 2 and 1 apart, in this order; o * (w / sum) is added from +0 on in the order of the splits with"
    " keys; bf16. hip fuses the product and sum, flydsl does not.",
)


def splits_of(ctx: I32, splits: I32) -> I32:
    """ceil(ctx / splits), 0 for ctx 0: exact for 0 <= ctx <= 2^24, where a float quotient never rounds up to the next
    whole number."""
    return ((ctx - 1).to(F32) / splits.to(F32)).floor().to(I32) + 1


def _weight(m: U64, l: U64, row: I32, top: F32) -> F32:  # noqa: E741
    """The weight of one split, before it is divided by their sum."""
    m_i, l_i = (ld(base, row)[0].bits(F32) for base in (m, l))
    return l_i * hw_exp2((m_i - top) * LOG2_E)


def _total(m: U64, l: U64, row: Callable[[I32], I32], top: F32, used: I32) -> F32:  # noqa: E741
    """The sum of a head's weights, a split or more to each of its threads. [rule sparse_attention.reduce]"""
    own = thread_id() % HEAD_THREADS

    def weight(first: int) -> F32:
        i = own + first
        return (i < used).select(_weight(m, l, row(i.minimum(used - 1).maximum(0)), top), 0.0)

    w = [weight(first) for first in range(0, MAX_SPLITS, HEAD_THREADS)]
    return butterfly((w[0] + w[2]) + (w[1] + w[3]), (8, 4, 2, 1))


def _merged(o: U64, m: U64, l: U64, first: I32, used: I32, fused: bool) -> list[F32]:  # noqa: E741
    """A thread's dims of one head. first: the number of its sequence's first split. used: splits that have keys."""
    tid = thread_id()
    head = tid // HEAD_THREADS

    def row(i: I32) -> I32:
        return (first + i) * GROUP + head

    (top,) = loop(0, used, carry=(constant(F32, float("-inf")),))(
        lambda i, top: (v_max_f32(top, ld(m, row(i))[0].bits(F32)),)
    )
    total = _total(m, l, row, top, used)

    def add(i: I32, *sums: F32) -> tuple[F32, ...]:
        share = _weight(m, l, row(i), top) / total
        words = ld(o + (first + i).bits(U32).to(U64) * (GROUP * HEAD_DIM * 2), tid * (DIMS // 2), DIMS // 2)
        values = [x for word in words for x in bf16_values(word)]
        if fused:
            return tuple(v_fma_f32(x, share, a) for x, a in zip(values, sums, strict=True))
        return tuple(a + x * share for x, a in zip(values, sums, strict=True))

    return list(loop(0, used, carry=(constant(F32, 0.0),) * DIMS)(add))


def _reducer(name: str, fused: bool) -> Kernel:
    @kernel(block=THREADS, name=name)
    def reduce(o: Pointer, m: Pointer, l: Pointer, ctx: Pointer, out: Pointer, splits: I32) -> None:  # noqa: E741
        """Grid (sequences): 16 dims' worth of threads a head. o, m, l as `attend` leaves them, out bf16
        [sequences][16][128]; zeros where ctx is 0. [rules sparse_attention.reduce, sparse_attention.splits]"""
        seq = workgroup_id(0)
        length = readfirstlane(ld(ctx, seq)[0].bits(I32))
        size = splits_of(length, splits)
        used = readfirstlane(splits_of(length, size.maximum(1)))
        result = _merged(o, m, l, seq * splits, used, fused)
        pairs = zip(result[::2], result[1::2], strict=True)
        words = [v_cvt_pk_bf16_f32(*pair).bits(U32) for pair in pairs]
        here = out + seq.bits(U32).to(U64) * (GROUP * HEAD_DIM * 2)
        store(here + thread_id().bits(U32).to(U64) * (DIMS * 2), *words)

    return reduce


REDUCERS = {"hip": _reducer("reduce_hip", True), "flydsl": _reducer("reduce_flydsl", False)}
REDUCE = tuple(REDUCERS.values())
