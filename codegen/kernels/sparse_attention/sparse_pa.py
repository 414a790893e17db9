"""Sparse paged attention over page-16 caches under vLLM's names, on plain CPU tensors: the page table of a selection,
the writer of index keys, and the attend of decode and prefill rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from codegen.kernels.sparse_attention import kernels
from codegen.kernels.sparse_attention.attend import (
    FLOAT32_MAX,
    attend,
    check_names,
    check_splits,
    get_recommended_splits,
    scales_by_page,
)
from codegen.kernels.sparse_attention.cache import (
    aiter_sparse_pa_kv_cache,
    minimax_m3_rebase_block_table_to_page16,
    minimax_m3_rebase_slots_to_page16,
    minimax_m3_sparse_block_page_stride,
    pages,
)
from codegen.kernels.sparse_attention.insert import insert_index
from codegen.kernels.sparse_attention.launch import Array, check_whole
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.shapes import (
    ASM_PAGE_SIZE,
    GROUP,
    HEAD_DIM,
    INDEX_DIM,
    PAGE16_SIDES_PER_BLOCK,
    PAGES_PER_SPARSE_BLOCK,
)
from codegen.kernels.sparse_attention.table import build_table
from codegen.kernels.sparse_attention.tensors import (
    bf16_bits,
    check_tensor,
    e4m3_bytes,
    integers,
    lengths,
    torch,
    writable,
)
from gfx950.evidence import Evidence, rule

__all__ = [
    "PAGE16_SIDES_PER_BLOCK",
    "PAGES_PER_SPARSE_BLOCK",
    "AttendChoices",
    "aiter_sparse_pa_kv_cache",
    "minimax_m3_build_sparse_block_table_decode",
    "minimax_m3_build_sparse_block_table_prefill",
    "minimax_m3_insert_index_cache",
    "minimax_m3_rebase_block_table_to_page16",
    "minimax_m3_rebase_slots_to_page16",
    "minimax_m3_sparse_attn_decode_aiter",
    "minimax_m3_sparse_attn_prefill_aiter",
    "minimax_m3_sparse_block_page_stride",
]

SCALES = rule(
    "sparse_attention_backend.scales",
    Evidence.vendor,
    "vLLM vllm/models/minimax_m3/amd/ops/sparse_pa.py @15a3fd47, which hands bf16 caches on without scales",
    "A scale that is not given is 1. Per-token scales [kv head][token] go with the token's page, token // 16, and its"
    " place there. A bf16 cache has no scales: those given are not read.",
)
CACHE_TYPES = (torch.float8_e4m3fn, torch.uint8, torch.bfloat16)

Scale = torch.Tensor | float | None


@dataclass(frozen=True)
class AttendChoices:
    """What the output's bits depend on beside the data.

    splits: parts a context is cut into, 1 to 64; None for AITER's rule, which goes by the number of sequences and the
    256 compute units of an MI355X. p: how P is scaled before it is rounded to E4M3, and reduce: which of AITER's
    reductions joins the splits; the names are `attend.attend`'s. engine: what runs the kernels, `kernels.runner`'s
    names; no bit depends on it.
    """

    splits: int | None = None
    p: str = "unscaled"
    reduce: str = "hip"
    engine: str = "host"


def check_choices(choices: AttendChoices) -> None:
    """Refuses choices that no attend takes. Raises TypeError and ValueError."""
    if not isinstance(choices, AttendChoices):
        raise TypeError(f"choices is a {type(choices).__name__}; expected an AttendChoices, or None for its defaults")
    if choices.splits is not None:
        check_splits(choices.splits)
    check_names(choices.p, choices.reduce)
    kernels.check_engine(choices.engine)


# ---- page tables -----------------------------------------------------------------------------------------------------


def minimax_m3_build_sparse_block_table_decode(
    topk_idx: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    decode_query_len: int = 1,
    block_page_stride: int = PAGES_PER_SPARSE_BLOCK,
    *,
    engine: str = "host",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The page table int32 [rows][8 k] and context lengths int32 [rows] of selections of decode rows, one kv head.

    topk_idx: int32 [1][rows][k] blocks, row n of request n // decode_query_len, whose last row is its newest token.
    block_table: int32 [requests][columns]. seq_lens: int32 [requests]. block_page_stride: pages from one block to the
    next. Raises AssertionError for selections of several heads or of other than requests * decode_query_len rows,
    TypeError and ValueError as `table.build_table`.
    """
    topk = _selection(topk_idx)
    lens = lengths("seq_lens", seq_lens, (None,))
    if isinstance(decode_query_len, bool) or not isinstance(decode_query_len, int) or decode_query_len < 1:
        raise ValueError(f"decode_query_len is {decode_query_len!r}; expected a whole number from 1 on")
    if len(topk) != len(lens) * decode_query_len:
        raise AssertionError(
            f"topk_idx has {len(topk)} rows for {len(lens)} requests of decode_query_len {decode_query_len}; expected "
            f"{len(lens) * decode_query_len}: a row a query token. A ragged batch goes through the prefill function"
        )
    return _built(topk, block_table, Rows.decode(lens, decode_query_len), block_page_stride, engine)


def minimax_m3_build_sparse_block_table_prefill(
    topk_idx: torch.Tensor,
    block_table: torch.Tensor,
    query_req_id: torch.Tensor,
    query_abs_pos: torch.Tensor,
    block_page_stride: int = PAGES_PER_SPARSE_BLOCK,
    *,
    engine: str = "host",
) -> tuple[torch.Tensor, torch.Tensor]:
    """As minimax_m3_build_sparse_block_table_decode, each row with its request and position, int32 or int64 [rows]."""
    topk = _selection(topk_idx)
    rows = _prefill_rows(query_req_id, query_abs_pos)
    if len(topk) != len(rows):
        raise AssertionError(f"topk_idx has {len(topk)} rows and query_req_id {len(rows)}; expected one a query token")
    return _built(topk, block_table, rows, block_page_stride, engine)


def _selection(topk_idx: torch.Tensor) -> Array:
    topk = integers("topk_idx", topk_idx, (None, None, None))
    if len(topk) != 1:
        raise AssertionError(
            f"topk_idx is of {len(topk)} heads; a page table is built for one kv head: pass the table that the "
            "indexer's top-k emits (msa_attention.pa_sparse_block_topk with num_kv_heads=) for several"
        )
    return np.ascontiguousarray(topk[0])


def _prefill_rows(query_req_id: torch.Tensor, query_abs_pos: torch.Tensor) -> Rows:
    request = integers("query_req_id", query_req_id, (None,))
    return Rows.prefill(request, integers("query_abs_pos", query_abs_pos, (len(request),)))


def _built(
    topk: Array, block_table: torch.Tensor, rows: Rows, stride: int, engine: str
) -> tuple[torch.Tensor, torch.Tensor]:
    entries = integers("block_table", block_table, (None, None))
    table, ctx = build_table(kernels.runner(engine), topk, entries, rows, block_page_stride=stride)
    return torch.from_numpy(table), torch.from_numpy(ctx)


# ---- index keys ------------------------------------------------------------------------------------------------------


def minimax_m3_insert_index_cache(
    index_k: torch.Tensor, index_cache: torch.Tensor, index_slot_mapping: torch.Tensor, *, engine: str = "host"
) -> None:
    """Writes index keys into their cache, in place; a negative slot writes nothing, and so do empty tensors.

    index_k: E4M3 [tokens][128]. index_cache: E4M3 [blocks][128][128], blocks of any stride. index_slot_mapping: int32
    or int64 [tokens], block * 128 + offset: never rebased, for a block of this cache has one side. Raises ValueError
    for other shapes and for slots that are not in the cache or taken twice, TypeError for other dtypes.
    """
    given = {"index_k": index_k, "index_cache": index_cache, "index_slot_mapping": index_slot_mapping}
    for name, tensor in given.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch tensor")
    if index_k.numel() == 0 or index_cache.numel() == 0:
        return
    _check_index_shapes(index_k, index_cache, index_slot_mapping)
    keys = e4m3_bytes("index_k", index_k, (None, INDEX_DIM))
    slots = integers("index_slot_mapping", index_slot_mapping, (len(keys),), np.int64)
    whole = index_cache.contiguous()
    insert_index(kernels.runner(engine), keys, e4m3_bytes("index_cache", whole, (None, None, INDEX_DIM)), slots)
    if whole is not index_cache:
        index_cache.copy_(whole)


def _check_index_shapes(index_k: torch.Tensor, index_cache: torch.Tensor, slots: torch.Tensor) -> None:
    k, cache = tuple(index_k.shape), tuple(index_cache.shape)
    if len(k) != 2 or len(cache) != 3:
        raise ValueError(f"index_k has shape {k} and index_cache {cache}; expected (tokens, dim), (blocks, 128, dim)")
    if k[1] != cache[2]:
        raise ValueError(f"index_k has {k[1]} dims and index_cache {cache[2]}; expected the same")
    if tuple(slots.shape) != k[:1]:
        raise ValueError(f"index_slot_mapping has shape {tuple(slots.shape)}; expected ({k[0]},), a slot for each key")
    if index_cache.stride(2) != 1:
        raise ValueError(
            f"index_cache has strides {index_cache.stride()}; a key's dims must be side by side, the last stride 1"
        )


# ---- attention -------------------------------------------------------------------------------------------------------


def minimax_m3_sparse_attn_decode_aiter(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    topk_idx: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    num_kv_heads: int,
    sm_scale: float,
    output: torch.Tensor,
    k_scale: Scale = None,
    v_scale: Scale = None,
    decode_query_len: int = 1,
    sparse_block_table: torch.Tensor | None = None,
    sparse_context_lens: torch.Tensor | None = None,
    *,
    splits: int | None = None,
    p: str = "unscaled",
    reduce: str = "hip",
    engine: str = "host",
) -> None:
    """Attends decode rows to their selected blocks, and writes `output`.

    q, output: bfloat16 [rows][num_kv_heads * 16][128]. k_cache, v_cache: `aiter_sparse_pa_kv_cache`'s views.
    sparse_block_table int32 [rows * num_kv_heads][8 k], sparse_context_lens int32 [rows * num_kv_heads]: the page
    table. Where they are not given it is built as `minimax_m3_build_sparse_block_table_decode` does, from topk_idx,
    block_table (as vLLM has it, not rebased), seq_lens and decode_query_len, which otherwise are not read. k_scale,
    v_scale: None for 1, a number, or float32 [num_kv_heads][at least the cache's tokens], one a token, in both or
    neither; the latter for fp8 caches of dense planes. splits, p, reduce, engine: `AttendChoices`.

    Raises NotImplementedError for several kv heads without a table and for per-token scales of a packed cache,
    AssertionError as the table's builder, ValueError for a table without its lengths or lengths without a table and for
    shapes that do not fit, TypeError for dtypes, float8_e4m3fnuz among them.
    """
    choices = AttendChoices(splits, p, reduce, engine)
    job = _Attend(q, k_cache, v_cache, num_kv_heads, sm_scale, output, (k_scale, v_scale), choices)
    given = sparse_block_table, sparse_context_lens
    if job.needs_table(("sparse_block_table", "sparse_context_lens"), *given):
        stride = minimax_m3_sparse_block_page_stride(k_cache, v_cache)
        given = minimax_m3_build_sparse_block_table_decode(
            topk_idx, block_table, seq_lens, decode_query_len, stride, engine=engine
        )
    job.run(*given)


def minimax_m3_sparse_attn_prefill_aiter(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    topk_idx: torch.Tensor,
    block_table: torch.Tensor,
    query_req_id: torch.Tensor,
    query_abs_pos: torch.Tensor,
    num_kv_heads: int,
    sm_scale: float,
    output: torch.Tensor,
    k_scale: Scale = None,
    v_scale: Scale = None,
    sparse_bt: torch.Tensor | None = None,
    sparse_ctx: torch.Tensor | None = None,
    *,
    splits: int | None = None,
    p: str = "unscaled",
    reduce: str = "hip",
    engine: str = "host",
) -> None:
    """As minimax_m3_sparse_attn_decode_aiter, each row with its request and position, int32 or int64 [rows]; the page
    table is sparse_bt and sparse_ctx."""
    choices = AttendChoices(splits, p, reduce, engine)
    job = _Attend(q, k_cache, v_cache, num_kv_heads, sm_scale, output, (k_scale, v_scale), choices)
    given = sparse_bt, sparse_ctx
    if job.needs_table(("sparse_bt", "sparse_ctx"), *given):
        stride = minimax_m3_sparse_block_page_stride(k_cache, v_cache)
        given = minimax_m3_build_sparse_block_table_prefill(
            topk_idx, block_table, query_req_id, query_abs_pos, stride, engine=engine
        )
    job.run(*given)


class _Attend:
    """One attend, checked: everything but the page table."""

    def __init__(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        kv_heads: int,
        sm_scale: float,
        output: torch.Tensor,
        scales: tuple[Scale, Scale],
        choices: AttendChoices,
    ) -> None:
        self.kv_heads, self.sm_scale, self.choices = kv_heads, sm_scale, choices
        shape = _check_heads(q, kv_heads)
        self.q = bf16_bits("q", q, shape)
        self.output = writable("output", output, torch.bfloat16, shape)
        if not output.is_contiguous():
            raise ValueError(f"output has strides {output.stride()}; it is written in place and must be contiguous")
        for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
            check_tensor(name, cache, CACHE_TYPES)
        self.k, self.v = pages(k_cache, v_cache)
        if k_cache.shape[1] != kv_heads:
            raise ValueError(f"k_cache has {k_cache.shape[1]} kv heads; expected num_kv_heads, {kv_heads}")
        _check_sides(k_cache, v_cache)
        self.k_scale, self.v_scale = _scales(scales, k_cache, v_cache)

    def needs_table(self, names: tuple[str, str], table: torch.Tensor | None, ctx: torch.Tensor | None) -> bool:
        """Whether a page table has to be built."""
        if (table is None) != (ctx is None):
            missing, there = names if table is None else names[::-1]
            raise ValueError(f"{there} is given without {missing}; a page table is both: pass both, or neither")
        if table is None and self.kv_heads != 1:
            raise NotImplementedError(
                f"num_kv_heads is {self.kv_heads}, and a page table is built for one kv head only; pass {names[0]} and "
                f"{names[1]} as the indexer's top-k emits them: msa_attention.pa_sparse_block_topk(..., "
                f"num_kv_heads={self.kv_heads})"
            )
        return table is None

    def run(self, table: torch.Tensor | None, ctx: torch.Tensor | None) -> None:
        """Attends and writes the output."""
        sequences = len(self.q) * self.kv_heads
        lens = integers("the context lengths", ctx, (sequences,))
        entries = integers("the page table", table, (sequences, None))
        if sequences == 0:
            return
        splits = self.choices.splits
        result = attend(
            kernels.runner(self.choices.engine),
            self.q.reshape(sequences, GROUP, HEAD_DIM),
            self.k,
            self.v,
            entries,
            lens,
            scale=self.sm_scale,
            k_scale=self.k_scale,
            v_scale=self.v_scale,
            splits=get_recommended_splits(sequences) if splits is None else splits,
            p=self.choices.p,
            reduce=self.choices.reduce,
        )
        self.output[...] = result.out.reshape(self.output.shape)


def _check_heads(q: torch.Tensor, kv_heads: int) -> tuple[int, int, int]:
    """The shape of q and the output."""
    check_whole("num_kv_heads", kv_heads)
    shape = tuple(check_tensor("q", q, (torch.bfloat16,), (None, None, None)).shape)
    if shape[2] != HEAD_DIM:
        raise ValueError(f"q has heads of {shape[2]} dims; expected a head_dim of {HEAD_DIM}")
    if shape[1] != kv_heads * GROUP:
        raise ValueError(f"q has {shape[1]} heads for {kv_heads} kv heads; expected {kv_heads * GROUP}, {GROUP} each")
    return shape[0], shape[1], shape[2]


def _check_sides(k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """Refuses views of which the stride of a block's pages would be guessed wrong."""
    k, v = k_cache.shape[0], v_cache.shape[0]
    if v != k and (v != k - PAGES_PER_SPARSE_BLOCK or k % (PAGES_PER_SPARSE_BLOCK * PAGE16_SIDES_PER_BLOCK)):
        raise ValueError(
            f"k_cache has {k} pages and v_cache {v}; expected as many (dense planes), or a multiple of 16 and"
            f" {PAGES_PER_SPARSE_BLOCK} fewer (a packed cache): pass both views of aiter_sparse_pa_kv_cache whole"
        )


# ---- scales ----------------------------------------------------------------------------------------------------------


def _scales(scales: tuple[Scale, Scale], k_cache: torch.Tensor, v_cache: torch.Tensor) -> list[Array | None]:
    """Both scales as the attend takes them: none, float32 [1], or float32 [pages * kv heads][16].

    [rule sparse_attention_backend.scales]
    """
    if k_cache.dtype is torch.bfloat16:
        return [None, None]
    k, v = (_scale(name, s, k_cache, v_cache) for name, s in zip(("k_scale", "v_scale"), scales, strict=True))
    tokens = [scale is not None and scale.ndim == 2 for scale in (k, v)]
    if tokens[0] != tokens[1]:
        one, other = ("k_scale", "v_scale") if tokens[0] else ("v_scale", "k_scale")
        raise ValueError(f"{one} has a scale a token and {other} has not; pass both in the same form")
    return [k, v]


def _scale(name: str, scale: Scale, k_cache: torch.Tensor, v_cache: torch.Tensor) -> Array | None:
    if scale is None:
        return None
    if isinstance(scale, bool):
        raise TypeError(f"{name} is {scale}, a bool; expected a number, or a torch tensor of float32")
    if isinstance(scale, Real):
        if not 0 < scale <= FLOAT32_MAX:
            raise ValueError(f"{name} is {scale}; expected a positive finite number that float32 holds")
        return np.array([scale], np.float32)
    numbers = check_tensor(name, scale, (torch.float32,))
    return numbers.reshape(1).numpy() if numbers.numel() == 1 else _per_token(name, numbers, k_cache, v_cache)


def _per_token(name: str, scale: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> Array:
    """Scales of tokens in the order of the cache's pages and heads."""
    (count, heads), shape = k_cache.shape[:2], tuple(scale.shape)
    if v_cache.shape[0] != count:
        raise NotImplementedError(
            f"{name} has a scale a token, and K and V share the blocks of this cache, so its page ids are no token "
            "numbers; use one scale a tensor, or a cache of dense planes"
        )
    if len(shape) != 2 or shape[0] != heads:
        raise ValueError(f"{name} has shape {shape}; expected one number, or one a token: ({heads}, tokens)")
    tokens = count * ASM_PAGE_SIZE
    if shape[1] < tokens:
        raise ValueError(f"{name} is of {shape[1]} tokens; the cache has room for {tokens}, and each needs a scale")
    return scales_by_page(scale.numpy(), count * heads)
