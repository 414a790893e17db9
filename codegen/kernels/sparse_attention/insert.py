"""New tokens into the caches: K and V rows into their pages of 16 tokens, index keys into their blocks.

Eight threads take a row of 128 dims, 16 dims each: of K one 16-byte run (fp8) or two (bf16), of V 16 elements that lie
16 bytes apart, for in V the tokens of a page are innermost. A negative slot writes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.lanes import at, bf16_values, butterfly, fp8_pack4, largest, ld
from codegen.kernels.sparse_attention.chunk import E4M3_MAX
from codegen.kernels.sparse_attention.launch import Runner, check_array
from codegen.kernels.sparse_attention.shapes import (
    ASM_PAGE_SIZE,
    HEAD_DIM,
    INDEX_DIM,
    PAGE16_SIDES_PER_BLOCK,
    PAGE_ELEMENTS,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)
from codegen.kernels.sparse_attention.table import check_count
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Kernel,
    Mask,
    Pointer,
    constant,
    kernel,
    load,
    maximum,
    store,
    store_byte,
    store_half,
    thread_id,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule

BLOCK = 256  # threads of a workgroup
ROW_THREADS = 8  # threads of a row
ROWS = BLOCK // ROW_THREADS  # rows of a workgroup
DIMS = HEAD_DIM // ROW_THREADS  # dims of a thread
WORDS = DIMS // 2  # of bf16 of a thread
MAX_OFFSET = 1 << 32  # bytes an index inside the new rows may reach

AITER = "AITER csrc/kernels/"
DIVIDE = rule(
    "sparse_attention.insert_divide",
    Evidence.vendor,
    AITER + "fused_qknorm_idxrqknorm.cu @2c09f581, storeCacheElemsStrided",
    "Scaling 'divide' stores E4M3(x / scale), an IEEE division.",
)
MULTIPLY = rule(
    "sparse_attention.insert_multiply",
    Evidence.vendor,
    AITER + "cache_kernels.cu @6b49cd1f, reshape_and_cache_kernel",
    "Scaling 'multiply' stores E4M3(x * (1 / scale)), the reciprocal an IEEE division, rounded to f32 before the"
    " product.",
)
OVERFLOW = rule(
    "sparse_attention.insert_overflow",
    Evidence.vendor,
    "AITER csrc/include/opus/opus.hpp, fp32_to_fp8, which both writers use in 2026; cache_kernels.cu @6b49cd1f goes"
    " through ck_tile, which clamps finite numbers to +-448 first",
    "v_cvt_pk_fp8_f32 as it is: no clamp. What rounds to more than 448 (beyond 464), infinities and NaN give NaN.",
)
DENORMALS = rule(
    "sparse_attention.insert_denormals",
    Evidence.chosen,
    "AITER's build flushes f32 denormals (aiter/jit/core.py, -fgpu-flush-denormals-to-zero); what its divisions then"
    " give is the compiler's",
    "Subnormal elements, scales, reciprocals and quotients are kept. A flush would show with scales below 2^-116 or"
    " above 2^126, and in rows of a per-token scale below 2^-126.",
)
PER_TOKEN = rule(
    "sparse_attention.insert_per_token",
    Evidence.vendor,
    AITER + "fused_qknorm_idxrqknorm.cu @2c09f581; reshape_and_cache's per-token writer differs in rows of zeros",
    "scale = amax / 448 of a (token, head), 1 if amax is 0; NaN elements do not count in amax, an infinity does. The"
    " row is divided by it, as in 'divide'.",
)


# ---- kernels ---------------------------------------------------------------------------------------------------------


class _Row:
    """The row of the thread's group, and the thread's part of it.

    live: whether there is something to write. part: the thread's number in its group; it has dims 16 part .. + 15.
    words: its first word of bf16 rows [tokens][kv heads][128].
    """

    def __init__(self, slots: U64, tokens: I32, kv_heads: I32) -> None:
        self.head = workgroup_id(1)
        number = workgroup_id(0) * ROWS + thread_id() // ROW_THREADS
        token = number.minimum(tokens - 1)
        low, high = ld(slots, token * 2, 2)
        self.live: Mask = (number < tokens) & (high.bits(I32) >= 0)
        self.slot: U64 = low.to(U64) + (high.to(U64) << 32)
        self.kv_heads = kv_heads
        self.part: I32 = thread_id() % ROW_THREADS
        self.token_in_page: I32 = (low % ASM_PAGE_SIZE).bits(I32)
        self.words: I32 = (token * kv_heads + self.head) * (HEAD_DIM // 2) + self.part * WORDS

    def page(self, base: U64, itemsize: int, first: I32 | None = None) -> U64:
        """Where the row's page is; first: the page at which the view begins."""
        row = self.head if first is None else self.head + first
        number = (self.slot >> 4) * self.kv_heads.bits(U32).to(U64) + row.bits(U32).to(U64)
        return base + number * (PAGE_ELEMENTS * itemsize)

    def read(self, rows: U64) -> list[U32]:
        """The thread's 16 elements, two a word."""
        return [*ld(rows, self.words, 4), *ld(rows, self.words + 4, 4)]


def _values(words: list[U32]) -> list[F32]:
    return [value for word in words for value in bf16_values(word)]


def _e4m3(values: list[F32]) -> list[U32]:
    """16 numbers to four words of E4M3. [rule sparse_attention.insert_overflow]"""
    return [fp8_pack4(*values[i : i + 4]) for i in range(0, DIMS, 4)]


def _store_fp8(row: _Row, k: U64, v: U64, v_first: I32, key: list[U32], value: list[U32]) -> None:
    with when(row.live):
        store(at(row.page(k, 1), row.part * 256 + row.token_in_page * 16), *key)
        column = at(row.page(v, 1, v_first), row.part * 256 + row.token_in_page)
        for d in range(DIMS):
            store_byte(column + d * 16, value[d // 4] >> (8 * (d % 4)))


def _divided(values: list[F32], scale: F32) -> list[F32]:
    """[rule sparse_attention.insert_divide]"""
    return [value / scale for value in values]


def _multiplied(values: list[F32], scale: F32) -> list[F32]:
    """[rule sparse_attention.insert_multiply]"""
    inverse = constant(F32, 1.0) / scale
    return [value * inverse for value in values]


def _fp8_kernel(name: str, scaling: str) -> Kernel:
    @kernel(block=BLOCK, name=name)
    def insert_kv_fp8(
        key: Pointer,
        value: Pointer,
        k: Pointer,
        v: Pointer,
        slots: Pointer,
        k_scale: Pointer,
        v_scale: Pointer,
        tokens: I32,
        kv_heads: I32,
        v_first: I32,
    ) -> None:
        """bf16 rows key, value [tokens][kv_heads][128], scaled by k_scale, v_scale (f32), into the E4M3 pages of k and
        of v, whose view begins at its page v_first. Grid: tokens / 32, kv_heads."""
        row = _Row(slots, tokens, kv_heads)
        scaled = _divided if scaling == "divide" else _multiplied
        codes = [
            _e4m3(scaled(_values(row.read(rows)), load(scale).bits(F32)))
            for rows, scale in ((key, k_scale), (value, v_scale))
        ]
        _store_fp8(row, k, v, v_first, *codes)

    return insert_kv_fp8


@kernel(block=BLOCK)
def insert_kv_bf16(
    key: Pointer, value: Pointer, k: Pointer, v: Pointer, slots: Pointer, tokens: I32, kv_heads: I32, v_first: I32
) -> None:
    """bf16 rows key, value [tokens][kv_heads][128] into the bf16 pages of k and v, bit for bit. The rest as
    insert_kv_fp8."""
    row = _Row(slots, tokens, kv_heads)
    key_words, value_words = row.read(key), row.read(value)
    with when(row.live):
        run = at(row.page(k, 2), row.part * 512 + row.token_in_page * 16)
        store(run, *key_words[:4])
        store(run + 256, *key_words[4:])
        t = row.token_in_page
        column = at(row.page(v, 2, v_first), t // 8 * 2048 + row.part * 256 + t % 8 * 2)
        for d in range(DIMS):
            store_half(column + d * 16, value_words[d // 2] >> (16 * (d % 2)))


@kernel(block=BLOCK)
def insert_kv_fp8_per_token(
    key: Pointer,
    value: Pointer,
    k: Pointer,
    v: Pointer,
    slots: Pointer,
    k_scale: Pointer,
    v_scale: Pointer,
    tokens: I32,
    kv_heads: I32,
    v_first: I32,
    max_tokens: I32,
) -> None:
    """As insert_kv_fp8, each row with a scale of its own, left at [kv head][slot] of k_scale and v_scale, f32
    [kv_heads][max_tokens]."""
    row = _Row(slots, tokens, kv_heads)
    codes, scales = [], []
    for rows in (key, value):
        values = _values(row.read(rows))
        scale = _token_scale(values)
        codes.append(_e4m3(_divided(values, scale)))
        scales.append(scale)
    _store_fp8(row, k, v, v_first, *codes)
    number = row.slot + row.head.bits(U32).to(U64) * max_tokens.bits(U32).to(U64)
    with when(row.live & (row.part == 0)):
        for base, scale in zip((k_scale, v_scale), scales, strict=True):
            store(base + number * 4, scale)


def _token_scale(values: list[F32]) -> F32:
    """The scale of the row that eight threads hold. [rule sparse_attention.insert_per_token]"""
    own = largest([value.is_nan().select(0.0, abs(value)) for value in values])
    amax = butterfly(own, (4, 2, 1), maximum)
    return (amax > 0.0).select(amax / E4M3_MAX, 1.0)


@kernel(block=BLOCK)
def insert_index_keys(index_k: Pointer, index_cache: Pointer, slots: Pointer, tokens: I32) -> None:
    """E4M3 index keys [tokens][128] into [blocks][128][128], row `slot` of all. Grid: tokens / 32."""
    row = _Row(slots, tokens, constant(I32, 1))
    words = ld(index_k, row.words // 2, 4)
    with when(row.live):
        store(at(index_cache + row.slot * INDEX_DIM, row.part * DIMS), *words)


# ---- launching -------------------------------------------------------------------------------------------------------

SCALINGS = {
    "divide": _fp8_kernel("insert_kv_fp8", "divide"),
    "multiply": _fp8_kernel("insert_kv_fp8_multiply", "multiply"),
}
INSERT: tuple[Kernel, ...] = (*SCALINGS.values(), insert_kv_bf16, insert_kv_fp8_per_token, insert_index_keys)


def insert_kv(
    runner: Runner,
    key: NDArray[np.uint16],
    value: NDArray[np.uint16],
    k: NDArray[Any],
    v: NDArray[Any],
    slots: NDArray[np.int64],
    *,
    kv_heads: int,
    k_scale: NDArray[np.float32] | None = None,
    v_scale: NDArray[np.float32] | None = None,
    scaling: str = "divide",
) -> None:
    """New rows into the pages, in place.

    key, value: bf16 bits [tokens][kv_heads][128]. k, v: pages [pages * kv_heads][2048] as `cache.pages` gives them,
    uint8 for E4M3, uint16 for bf16. slots: [tokens], in K's numbering (rebased for a packed cache), each its own;
    negative ones write nothing. k_scale, v_scale: float32 [1], 1 when not given; fp8 caches only. scaling: "divide"
    (AITER's fused_qknorm) or "multiply" (its reshape_and_cache), which differ in a bit where the reciprocal is not
    exact.

    Raises TypeError and ValueError, naming array and index, before anything is written.
    """
    packed = _check_pages(k, v, kv_heads)
    _check_rows(key, value, slots, kv_heads)
    _check_slots(slots, len(k) // kv_heads * ASM_PAGE_SIZE, packed)
    _check_apart({"k": k, "v": v}, key=key, value=value, slots=slots, k_scale=k_scale, v_scale=v_scale)
    if scaling not in tuple(SCALINGS):
        raise ValueError(f"scaling is {scaling!r}; expected {' or '.join(map(repr, SCALINGS))}")
    v_memory, v_first = _v_memory(k, v, kv_heads)
    counts = np.int32(len(slots)), np.int32(kv_heads), np.int32(v_first)
    grid = -(-len(slots) // ROWS), kv_heads
    if k.dtype == np.uint16:
        if k_scale is not None or v_scale is not None:
            raise ValueError("a bf16 cache holds the rows as they are: k_scale and v_scale are for fp8 caches")
        runner.launch(insert_kv_bf16, grid, [key, value, k, v_memory, slots, *counts])
        return
    scales = [_scale(name, scale) for name, scale in (("k_scale", k_scale), ("v_scale", v_scale))]
    runner.launch(SCALINGS[scaling], grid, [key, value, k, v_memory, slots, *scales, *counts])


def insert_kv_per_token(
    runner: Runner,
    key: NDArray[np.uint16],
    value: NDArray[np.uint16],
    k: NDArray[np.uint8],
    v: NDArray[np.uint8],
    slots: NDArray[np.int64],
    *,
    kv_heads: int,
    k_scale: NDArray[np.float32],
    v_scale: NDArray[np.float32],
) -> None:
    """New rows into E4M3 pages of dense planes, each with its own scale, which is written at [kv head][slot] of k_scale
    and v_scale, float32 [kv_heads][max_tokens]. The rest as `insert_kv`. Raises NotImplementedError for a packed cache,
    for whose slots no scales are laid out."""
    if _check_pages(k, v, kv_heads):
        raise NotImplementedError("a packed cache takes no per-token scales; use dense planes, or insert_kv's scales")
    if k.dtype != np.uint8:
        raise TypeError(f"k has dtype {k.dtype}; expected uint8: only E4M3 caches have scales")
    _check_rows(key, value, slots, kv_heads)
    stored = len(k) // kv_heads * ASM_PAGE_SIZE
    _check_slots(slots, stored, packed=False)
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        check_array(name, scale, np.float32, (kv_heads, None))
        _check_writable(name, scale)
        if not stored <= scale.shape[1] < 1 << 31 or scale.shape != k_scale.shape:
            raise ValueError(
                f"{name} has shape {scale.shape}; expected ({kv_heads}, at least {stored}), one for k_scale and"
                f" v_scale: the cache holds {stored} tokens"
            )
    _check_apart({"k": k, "v": v}, key=key, value=value, slots=slots, k_scale=k_scale, v_scale=v_scale)
    _check_apart({"k_scale": k_scale, "v_scale": v_scale}, key=key, value=value, slots=slots)
    _check_apart({"k_scale": k_scale}, v_scale=v_scale)
    counts = np.int32(len(slots)), np.int32(kv_heads), np.int32(0), np.int32(k_scale.shape[1])
    grid = -(-len(slots) // ROWS), kv_heads
    runner.launch(insert_kv_fp8_per_token, grid, [key, value, k, v, slots, k_scale, v_scale, *counts])


def insert_index(
    runner: Runner, index_k: NDArray[np.uint8], index_cache: NDArray[np.uint8], slots: NDArray[np.int64]
) -> None:
    """Index keys, E4M3 codes uint8 [tokens][128], into index_cache [blocks][128][128] in place, at slots [tokens]
    (block * 128 + offset, never rebased; negative: none). Raises as `insert_kv`."""
    check_array("index_cache", index_cache, np.uint8, (None, SPARSE_BLOCK_SIZE, INDEX_DIM))
    _check_writable("index_cache", index_cache)
    check_array("slots", slots, np.int64, (None,))
    check_array("index_k", index_k, np.uint8, (len(slots), INDEX_DIM))
    _check_reach("index_k", index_k)
    _check_slots(slots, len(index_cache) * SPARSE_BLOCK_SIZE, packed=False)
    _check_apart({"index_cache": index_cache}, index_k=index_k, slots=slots)
    grid = -(-len(slots) // ROWS), 1
    runner.launch(insert_index_keys, grid, [index_k, index_cache, slots, np.int32(len(slots))])


# ---- input checks ----------------------------------------------------------------------------------------------------


def _check_pages(k: NDArray[Any], v: NDArray[Any], kv_heads: int) -> bool:
    """Whether the pages are those of a packed cache."""
    check_count("kv_heads", kv_heads, 1)
    dtype = np.uint16 if getattr(k, "dtype", None) == np.uint16 else np.uint8
    for name, array in (("k", k), ("v", v)):
        check_array(name, array, dtype, (None, PAGE_ELEMENTS))
        _check_writable(name, array)
    block = PAGES_PER_SPARSE_BLOCK * kv_heads
    packed = len(k) == len(v) + block
    unit = block * PAGE16_SIDES_PER_BLOCK if packed else block
    if len(k) % unit or not (packed or len(k) == len(v)):
        raise ValueError(
            f"k has {len(k)} pages and v {len(v)} for {kv_heads} kv heads; expected a multiple of {block} in both"
            f" (dense planes), or of {2 * block} in k and {block} fewer in v (a packed cache)"
        )
    return packed


def _v_memory(k: NDArray[Any], v: NDArray[Any], kv_heads: int) -> tuple[NDArray[Any], int]:
    """The array with V's pages, and the first of them in it: a packed cache is one buffer, for a device copies each
    argument there and back."""
    if not np.may_share_memory(k, v):
        return v, 0
    first = PAGES_PER_SPARSE_BLOCK * kv_heads
    if len(v) != len(k) - first or v.ctypes.data - k.ctypes.data != first * PAGE_ELEMENTS * k.itemsize:
        raise ValueError(
            f"v overlaps k from byte {v.ctypes.data - k.ctypes.data} on; expected V's view of a packed cache to begin"
            f" {first} pages into K's, or memory of its own"
        )
    return k, first


def _check_writable(name: str, array: NDArray[Any]) -> None:
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only; it is written in place")


def _check_apart(written: dict[str, NDArray[Any]], **others: NDArray[Any] | None) -> None:
    """Refuses arrays in the memory of those that are written: workgroups run in any order, so the bits would too."""
    for name, array in written.items():
        for other, given in others.items():
            if isinstance(given, np.ndarray) and np.may_share_memory(array, given):
                raise ValueError(f"{other} shares memory with {name}, which is written; pass {other}.copy()")


def _check_rows(key: NDArray[Any], value: NDArray[Any], slots: NDArray[Any], kv_heads: int) -> None:
    check_array("slots", slots, np.int64, (None,))
    for name, rows in (("key", key), ("value", value)):
        check_array(name, rows, np.uint16, (len(slots), kv_heads, HEAD_DIM))
        _check_reach(name, rows)


def _check_reach(name: str, rows: NDArray[Any]) -> None:
    if rows.nbytes > MAX_OFFSET:
        raise ValueError(
            f"{name} has {rows.nbytes} bytes; the kernel addresses at most {MAX_OFFSET}: insert it in parts"
        )


def _check_slots(slots: NDArray[np.int64], stop: int, packed: bool) -> None:
    """Refuses slots beyond the cache, slots in V's half of a packed block, and two tokens of one slot, of which either
    might stay."""
    beyond = np.flatnonzero(slots >= stop)
    if beyond.size:
        index = int(beyond[0])
        raise ValueError(f"slots[{index}] is {int(slots[index])}; expected less than {stop}, the cache's slots")
    used = np.flatnonzero(slots >= 0)
    halves = slots[used] // SPARSE_BLOCK_SIZE
    wrong = used[halves % PAGE16_SIDES_PER_BLOCK != 0] if packed else used[:0]
    if wrong.size:
        index, slot = int(wrong[0]), int(slots[wrong[0]])
        raise ValueError(
            f"slots[{index}] is {slot}, in V's half of packed block {slot // (2 * SPARSE_BLOCK_SIZE)}; expected"
            " a slot rebased by minimax_m3_rebase_slots_to_page16"
        )
    order = used[np.argsort(slots[used], kind="stable")]
    same = np.flatnonzero(np.diff(slots[order]) == 0)
    if same.size:
        first, second = (int(i) for i in order[same[0] : same[0] + 2])
        raise ValueError(f"slots[{first}] and slots[{second}] are both {int(slots[first])}; expected a slot a token")


def _scale(name: str, scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """The scale as the kernel reads it; 1 for none."""
    if scale is None:
        return np.ones(1, np.float32)
    check_array(name, scale, np.float32, (1,))
    if not 0 < scale[0] < np.inf:
        raise ValueError(f"{name}[0] is {scale[0]}; expected a positive finite number")
    return scale
