"""The attend kernels: every sequence (a query row and kv head) over its keys, in one or more splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.lanes import at as address
from codegen.kernels.lanes import ld
from codegen.kernels.sparse_attention.chunk import (
    PA_DECODE,
    TILES,
    WAVES,
    Keys,
    Place,
    State,
    Variant,
    attend_chunk,
    pages_of,
    query_operand,
)
from codegen.kernels.sparse_attention.launch import Runner, check_array, check_whole
from codegen.kernels.sparse_attention.reduce import MAX_SPLITS, REDUCERS, splits_of
from codegen.kernels.sparse_attention.shapes import ASM_PAGE_SIZE, CHUNK, GROUP, HEAD_DIM, LARGEST_SPLITS, PAGE_ELEMENTS
from codegen.kernels.sparse_attention.table import check_count
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Kernel,
    Pointer,
    branch,
    constant,
    kernel,
    loop,
    readfirstlane,
    store,
    thread_id,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.isa.conversions import v_cvt_pk_bf16_f32
from gfx950.lanes import LANES

THREADS = WAVES * LANES
MAX_PARTS = 1 << 26  # splits of all sequences: m and l are addressed by 32 bits
MAX_CONTEXT = 1 << 24  # tokens: what the division into splits is exact for
COMPUTE_UNITS = 256  # of an MI355X
FLOAT32_MAX = float(np.finfo(np.float32).max)

RECOMMENDED = rule(
    "sparse_attention.recommended_splits",
    Evidence.vendor,
    f"{PA_DECODE}, get_recommended_splits as vLLM's sparse_pa calls it",
    "min(ceil(2 * compute units / sequences), 8) splits, so the bits depend on the batch and on the compute units.",
)
OUTPUT = rule(
    "sparse_attention.output",
    Evidence.chosen,
    f"{PA_DECODE} multiplies by 1 / sum; how that division is lowered was not looked at",
    "o is the accumulator times the IEEE quotient 1 / l, in bf16, nearest even; of a split without keys o and l are 0"
    " and m is -inf.",
)


# ---- the kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arguments:
    """An attend kernel's arguments. scales: the pointers to the K and V scales, none of a bf16 cache."""

    q: U64
    k: U64
    v: U64
    table: U64
    ctx: U64
    scales: tuple[U64, U64] | None
    o: U64
    m: U64
    l: U64  # noqa: E741
    width: I32
    splits: I32
    scale: F32


def _attend(variant: Variant, given: Arguments) -> None:
    """Grid (splits, sequences), 256 threads."""
    split, seq, tid = workgroup_id(0), workgroup_id(1), thread_id()
    at = Place(readfirstlane(tid) // LANES, tid % LANES // 16, tid % 16)
    keys = _keys(variant, given, split, seq)
    first = keys.first // CHUNK
    stop = (keys.first < keys.end).select((keys.end + (CHUNK - 1)) // CHUNK, first)
    q = query_operand(variant, at, given.q + seq.bits(U32).to(U64) * (GROUP * HEAD_DIM * 2))

    (pages,) = branch(  # a split without keys reads no table
        first < stop, lambda: (pages_of(variant, at, keys, first),), lambda: (constant(I32, 0),)
    )

    @loop(first, stop, carry=(pages, *State.empty().values))
    def final(chunk: I32, pages: I32, *values: F32) -> tuple[I32 | F32, ...]:
        coming = pages_of(variant, at, keys, chunk + 1)
        return coming, *attend_chunk(variant, at, keys, q, chunk, pages, State.of(values)).values

    _store(at, given, seq * given.splits + split, State.of(final[1:]))


def _keys(variant: Variant, given: Arguments, split: I32, seq: I32) -> Keys:
    """The keys of a split. [rule sparse_attention.splits]"""
    ctx = readfirstlane(ld(given.ctx, seq)[0].bits(I32))
    size = readfirstlane(splits_of(ctx, given.splits))
    first = size * split
    k_scales, v_scales = given.scales or (given.k, given.v)
    scalars = variant.fp8 and not variant.per_token
    return Keys(
        k=given.k,
        v=given.v,
        row=given.table + seq.bits(U32).to(U64) * given.width.bits(U32).to(U64) * 4,
        first=first,
        end=ctx.minimum(first + size),
        ctx=ctx,
        score_scale=given.scale * ld(k_scales, constant(I32, 0))[0].bits(F32) if scalars else given.scale,
        value_scale=ld(v_scales, constant(I32, 0))[0].bits(F32) if scalars else constant(F32, 1.0),
        k_scales=k_scales,
        v_scales=v_scales,
    )


def _store(at: Place, given: Arguments, number: I32, state: State) -> None:
    """A split's result to its place, `number`. [rule sparse_attention.output]"""
    head = number * GROUP + at.l16
    with when((at.wave == 0) & (at.g == 0)):
        store(address(given.m, head * 4), state.m)
        store(address(given.l, head * 4), state.l)
    inverse = (state.l == 0.0).select(0.0, constant(F32, 1.0) / state.l)
    row = given.o + head.bits(U32).to(U64) * (HEAD_DIM * 2)
    for tile in range(TILES):
        o = [x * inverse for x in state.o[4 * tile : 4 * tile + 4]]
        words = [v_cvt_pk_bf16_f32(*o[x : x + 2]).bits(U32) for x in (0, 2)]
        store(address(row, (at.wave * 16 + at.g * 4 + tile * 64) * 2), *words)


def _fp8_kernel(variant: Variant) -> Kernel:
    @kernel(block=THREADS, lds=variant.lds_bytes, name=variant.name, waves_per_eu=4)
    def attend(
        q: Pointer,
        k: Pointer,
        v: Pointer,
        table: Pointer,
        ctx: Pointer,
        k_scale: Pointer,
        v_scale: Pointer,
        o: Pointer,
        m: Pointer,
        l: Pointer,  # noqa: E741
        width: I32,
        splits: I32,
        scale: F32,
    ) -> None:
        _attend(variant, Arguments(q, k, v, table, ctx, (k_scale, v_scale), o, m, l, width, splits, scale))

    return attend


def _bf16_kernel(variant: Variant) -> Kernel:
    @kernel(block=THREADS, lds=variant.lds_bytes, name=variant.name, waves_per_eu=4)
    def attend(
        q: Pointer,
        k: Pointer,
        v: Pointer,
        table: Pointer,
        ctx: Pointer,
        o: Pointer,
        m: Pointer,
        l: Pointer,  # noqa: E741
        width: I32,
        splits: I32,
        scale: F32,
    ) -> None:
        _attend(variant, Arguments(q, k, v, table, ctx, None, o, m, l, width, splits, scale))

    return attend


FP8_KERNELS = {
    "unscaled": _fp8_kernel(Variant("attend_fp8", fp8=True)),
    "x448": _fp8_kernel(Variant("attend_fp8_x448", fp8=True, factor=448.0)),
    "per_token": _fp8_kernel(Variant("attend_fp8_per_token", fp8=True, per_token=True)),
}
BF16_KERNEL = _bf16_kernel(Variant("attend_bf16", fp8=False))
TREATMENTS = ("unscaled", "x448")  # of P, with one scale for the whole cache
ATTEND = (*FP8_KERNELS.values(), BF16_KERNEL)


# ---- running them ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attended:
    """out: bf16 as uint16 [sequences][16][128]. o, m, l: each split's bf16 output, maximum and sum, [sequences][splits]
    [16] ([128]); with one split o is out."""

    out: NDArray[np.uint16]
    o: NDArray[np.uint16]
    m: NDArray[np.float32]
    l: NDArray[np.float32]  # noqa: E741


def get_recommended_splits(num_seqs: int, num_kv_heads: int = 1, compute_units: int = COMPUTE_UNITS) -> int:
    """Splits that fill the chip twice, 1 to 8. Raises TypeError and ValueError for what is no count.
    [rule sparse_attention.recommended_splits]"""
    given = ("num_seqs", num_seqs, 0), ("num_kv_heads", num_kv_heads, 1), ("compute_units", compute_units, 1)
    for name, value, least in given:
        check_count(name, value, least)
    sequences = max(int(num_seqs) * int(num_kv_heads), 1)
    return max(min(-(-2 * int(compute_units) // sequences), LARGEST_SPLITS), 1)


def scales_by_page(scales: NDArray[np.float32], flattened: int) -> NDArray[np.float32]:
    """Scales of tokens, float32 [kv heads][tokens], in the order of dense planes' pages: [flattened][16], as
    `attend` takes them. flattened: pages * kv heads of the cache."""
    heads = len(scales)
    by_page = scales[:, : flattened // heads * ASM_PAGE_SIZE].reshape(heads, -1, ASM_PAGE_SIZE).swapaxes(0, 1)
    return np.ascontiguousarray(by_page).reshape(-1, ASM_PAGE_SIZE)


def attend(
    runner: Runner,
    q: NDArray[np.uint16],
    k: NDArray[Any],
    v: NDArray[Any],
    table: NDArray[np.int32],
    ctx: NDArray[np.int32],
    *,
    scale: float,
    k_scale: NDArray[np.float32] | None = None,
    v_scale: NDArray[np.float32] | None = None,
    splits: int,
    p: str = "unscaled",
    reduce: str = "hip",
) -> Attended:
    """Attention of each sequence over the first ctx keys of its table's pages.

    q: bf16 as uint16 [sequences][16][128]. k, v: pages, uint8 (E4M3) or uint16 (bf16) [pages][2048]. table: int32
    [sequences][width], page ids; those past ctx are not looked at. ctx: int32 [sequences]. scale: of the softmax.
    k_scale, v_scale: float32 [1], or [pages][16], one a key; 1 if not given; none with a bf16 cache. splits: 1 to 64.
    p: "unscaled" or "x448", of an fp8 cache with scales [1]. reduce: "hip" or "flydsl". Raises TypeError and ValueError
    for anything else, naming the array and the place.
    """
    _check_inputs(q, k, v, table, ctx)
    check_splits(splits, len(q))
    check_scale(scale)
    scales = _scales(k, min(len(k), len(v)), k_scale, v_scale)
    check_names(p, reduce)
    chosen = _kernel(scales, p)
    sequences = len(q)
    o = np.zeros((sequences, splits, GROUP, HEAD_DIM), np.uint16)
    m, l = np.zeros((2, sequences, splits, GROUP), np.float32)  # noqa: E741
    numbers = np.int32(table.shape[1]), np.int32(splits), np.float32(scale)
    runner.launch(chosen, (splits, sequences), (q, k, v, table, ctx, *scales, o, m, l, *numbers))
    if splits == 1:
        return Attended(o.reshape(q.shape), o, m, l)
    out = np.zeros_like(q)
    runner.launch(REDUCERS[reduce], (sequences,), (o, m, l, ctx, out, np.int32(splits)))
    return Attended(out, o, m, l)


def _scales(k: NDArray[Any], pages: int, k_scale: object, v_scale: object) -> tuple[NDArray[np.float32], ...]:
    """The K and V scales, none of a bf16 cache. pages: those that a table may name."""
    given = {"k_scale": k_scale, "v_scale": v_scale}
    if k.dtype == np.uint16:
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} was given with a bf16 cache (uint16); only an fp8 cache (uint8) has scales")
        return ()
    arrays: dict[str, Any] = {n: np.ones(1, np.float32) if value is None else value for n, value in given.items()}
    for name, array in arrays.items():
        check_array(name, array, np.float32, (None, ASM_PAGE_SIZE) if np.ndim(array) == 2 else (1,))
    shapes = [array.shape for array in arrays.values()]
    if len(shapes[0]) != len(shapes[1]):
        raise ValueError(f"k_scale has shape {shapes[0]} and v_scale {shapes[1]}; expected (1,), or (pages, 16), twice")
    for name, array in arrays.items():
        if array.ndim == 2 and len(array) < pages:
            raise ValueError(f"{name} has {len(array)} pages; expected at least {pages}, those of the cache")
        if array.ndim == 1 and not 0 < array[0] < np.inf:
            raise ValueError(f"{name}[0] is {array[0]}; expected a positive finite number")
    return tuple(arrays.values())


def _kernel(scales: tuple[NDArray[np.float32], ...], p: str) -> Kernel:
    """The kernel for these scales and a treatment of P."""
    per_token = bool(scales) and scales[0].ndim == 2
    if p != TREATMENTS[0] and (per_token or not scales):
        kind = "scales [pages][16] have a treatment of their own" if per_token else "a bf16 cache has none"
        raise ValueError(f"p is {p!r}, which is for an fp8 cache with scales [1]; {kind}")
    if not scales:
        return BF16_KERNEL
    return FP8_KERNELS["per_token" if per_token else p]


def _check_inputs(
    q: NDArray[np.uint16], k: NDArray[Any], v: NDArray[Any], table: NDArray[np.int32], ctx: NDArray[np.int32]
) -> None:
    """Refuses arrays of other kinds, and contexts and pages outside them."""
    check_array("q", q, np.uint16, (None, GROUP, HEAD_DIM))
    check_array("k", k, np.uint16 if getattr(k, "dtype", None) == np.uint16 else np.uint8, (None, PAGE_ELEMENTS))
    check_array("v", v, k.dtype, (None, PAGE_ELEMENTS))
    check_array("table", table, np.int32, (len(q), None))
    check_array("ctx", ctx, np.int32, (len(q),))
    most = min(table.shape[1] * ASM_PAGE_SIZE, MAX_CONTEXT)
    wrong = np.flatnonzero((ctx < 0) | (ctx > most))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"ctx[{row}] is {int(ctx[row])}; expected 0 .. {most}, what the table's {table.shape[1]} pages a row hold"
        )
    _check_pages(table, ctx, min(len(k), len(v)))


def _check_pages(table: NDArray[np.int32], ctx: NDArray[np.int32], pages: int) -> None:
    used = np.arange(table.shape[1]) * ASM_PAGE_SIZE < ctx[:, None]
    wrong = np.argwhere(used & ((table < 0) | (table >= pages)))
    if wrong.size:
        row, entry = (int(x) for x in wrong[0])
        expected = f"0 .. {pages - 1}, a page of both k and v" if pages else "no keys, for k or v has no pages"
        raise ValueError(
            f"table[{row}, {entry}] is {int(table[row, entry])}; expected {expected}: ctx[{row}] is {int(ctx[row])}"
        )


def check_names(p: str, reduce: str) -> None:
    """Refuses treatments of P and reductions that there are not. Raises ValueError."""
    if p not in TREATMENTS:
        raise ValueError(f"there is no treatment {p!r} of P; there are {', '.join(TREATMENTS)}")
    if reduce not in tuple(REDUCERS):
        raise ValueError(f"there is no reduce {reduce!r}; there are {', '.join(REDUCERS)}")


def check_splits(splits: int, sequences: int = 1) -> None:
    """Refuses what is no number of splits for so many sequences. Raises TypeError and ValueError."""
    check_whole("splits", splits)
    if not 1 <= splits <= MAX_SPLITS:
        raise ValueError(f"splits is {splits}; expected 1 .. {MAX_SPLITS}")
    if sequences * int(splits) > MAX_PARTS:
        raise ValueError(f"{sequences} sequences in {splits} splits; expected at most {MAX_PARTS} splits in all")


def check_scale(scale: object) -> None:
    """Refuses what is no finite number of float32. Raises TypeError and ValueError."""
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.integer | np.floating):
        raise TypeError(f"scale is {scale!r}, a {type(scale).__name__}; expected a number")
    if not -FLOAT32_MAX <= scale <= FLOAT32_MAX:
        raise ValueError(f"scale is {scale}; expected a finite number that float32 holds")
