"""AITER's index scoring and block selection by its own names, on plain CPU tensors, written into the tensors given."""

from __future__ import annotations

from itertools import combinations
from math import ceil

import numpy as np

from codegen.kernels.sparse_attention import kernels
from codegen.kernels.sparse_attention.launch import Array, check_whole
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.score import COLUMNS, score_block_width, score_blocks
from codegen.kernels.sparse_attention.select import select_blocks
from codegen.kernels.sparse_attention.shapes import (
    INDEX_DIM,
    MAX_BLOCKS,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
    TABLE_WIDTH,
    TOPK,
)
from codegen.kernels.sparse_attention.table import check_count, check_rows
from codegen.kernels.sparse_attention.tensors import (
    check_tensor,
    e4m3_bytes,
    integers,
    lengths,
    torch,
    writable,
)

__all__ = [
    "aiter_indexer_unsupported_reason",
    "pa_sparse_block_score_decode",
    "pa_sparse_block_score_prefill",
    "pa_sparse_block_topk",
    "score_block_width",
]

E4M3 = (torch.float8_e4m3fn, torch.uint8)
INDEX_DTYPES = ("fp8", "fp8_e4m3")


def aiter_indexer_unsupported_reason(
    *,
    topk_blocks: int,
    sparse_block_size: int,
    num_index_heads: int,
    index_head_dim: int,
    indexer_kv_dtype: str,
    max_model_len: int,
    max_decode_query_len: int = 1,
    score_type: str = "max",
) -> str | None:
    """Why these kernels cannot index for such a model, with what they take instead; None if they can.

    Raises TypeError for a size that is no whole number.
    """
    sizes = {"topk_blocks": topk_blocks, "sparse_block_size": sparse_block_size, "num_index_heads": num_index_heads}
    sizes |= {"index_head_dim": index_head_dim, "max_model_len": max_model_len}
    for name, size in {**sizes, "max_decode_query_len": max_decode_query_len}.items():
        check_whole(name, size)
    blocks = -(-int(max_model_len) // SPARSE_BLOCK_SIZE)
    reasons = (
        (topk_blocks != TOPK, f"it selects {topk_blocks} blocks a row; the selection takes {TOPK}"),
        (
            sparse_block_size != SPARSE_BLOCK_SIZE,
            f"its blocks are of {sparse_block_size} tokens; an index block is of {SPARSE_BLOCK_SIZE}",
        ),
        (index_head_dim != INDEX_DIM, f"its index heads have {index_head_dim} dims; an index key has {INDEX_DIM}"),
        (score_type != "max", f"its score_type is {score_type!r}; a block's score is the 'max' over its keys"),
        (
            indexer_kv_dtype not in INDEX_DTYPES,
            f"its index cache is {indexer_kv_dtype}; the scores are of e4m3 keys: {' or '.join(INDEX_DTYPES)}",
        ),
        (num_index_heads < 1, f"it has {num_index_heads} index heads; a row needs 1 to {COLUMNS}"),
        (max_decode_query_len < 1, f"its decode requests have {max_decode_query_len} rows; one has at least 1"),
        (max_model_len < 0, f"max_model_len is {max_model_len}; a request has 0 tokens or more"),
        (blocks > MAX_BLOCKS, f"max_model_len {max_model_len} is {blocks} blocks; a row can rank {MAX_BLOCKS}"),
        (
            int(num_index_heads) * int(max_decode_query_len) > COLUMNS,
            f"{num_index_heads} index heads x {max_decode_query_len} rows of a decode request exceed the {COLUMNS} "
            "columns of the scoring's matrix instruction; use fewer speculative tokens",
        ),
    )
    return next((why for unsupported, why in reasons if unsupported), None)


def _refuse(name: str, index_q: Array, max_seq_len: int, query_len: int = 1) -> None:
    """Raises ValueError where the kernels have a limit that AITER's have as well."""
    why = aiter_indexer_unsupported_reason(
        topk_blocks=TOPK,
        sparse_block_size=SPARSE_BLOCK_SIZE,
        num_index_heads=index_q.shape[1],
        index_head_dim=INDEX_DIM,
        indexer_kv_dtype="fp8_e4m3",
        max_model_len=max_seq_len,
        max_decode_query_len=query_len,
    )
    if why is not None:
        raise ValueError(f"{name}: {why}")


# ---- scores ----------------------------------------------------------------------------------------------------------


def pa_sparse_block_score_decode(
    iq: torch.Tensor,
    kv: torch.Tensor,
    score: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    init_blocks: int = 0,
    local_blocks: int = 0,
    query_len: int = 1,
    max_seq_len: int = 0,
    *,
    engine: str = "host",
) -> None:
    """Scores the blocks that decode rows see; what lies beyond them in `score` is left as it is.

    iq: E4M3 [requests * query_len][index heads][128]. kv: E4M3 index keys [blocks][128][128]. score: float32 [index
    heads][rows][width], of any strides. block_table: int32 [requests][columns], the index cache's own. seq_lens: int32
    [requests]. init_blocks, local_blocks: first and last blocks that are forced into the selection. max_seq_len: the
    bound that the score buffer was sized for; 0 for the longest request. Raises ValueError for limits and shapes that
    are not kept, TypeError for dtypes.
    """
    shape = check_tensor("iq", iq, E4M3, (None, None, None)).shape
    rows = _uniform(seq_lens, query_len, shape[0], f"iq has shape {tuple(shape)}")
    check_count("max_seq_len", max_seq_len, 0)
    if max_seq_len:
        _check_bound(rows, max_seq_len)
    forced = init_blocks, local_blocks
    _score("pa_sparse_block_score_decode", iq, kv, score, block_table, rows, forced, engine, query_len)


def pa_sparse_block_score_prefill(
    iq: torch.Tensor,
    kv: torch.Tensor,
    score: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seq_lens: torch.Tensor,
    init_blocks: int = 0,
    local_blocks: int = 0,
    max_query_len: int = 0,
    max_seq_len: int = 0,
    *,
    engine: str = "host",
) -> None:
    """As pa_sparse_block_score_decode for ragged rows: request r has rows cu_seqlens_q[r] to cu_seqlens_q[r + 1], and
    the last of them is its newest token. cu_seqlens_q: int32 [requests + 1] from 0. max_query_len, max_seq_len: bounds,
    at least 1."""
    lens = lengths("seq_lens", seq_lens, (None,))
    offsets = integers("cu_seqlens_q", cu_seqlens_q, (len(lens) + 1,))
    rows = _ragged(offsets, lens, check_tensor("iq", iq, E4M3, (None, None, None)).shape[0])
    for name, value, most in (
        ("max_query_len", max_query_len, np.diff(offsets).max(initial=0)),
        ("max_seq_len", max_seq_len, lens.max(initial=0)),
    ):
        check_whole(name, value)
        if len(rows) and value < max(1, most):
            raise ValueError(f"{name} is {value}, and a request has {most}; pass a bound that holds for all of them")
    _score("pa_sparse_block_score_prefill", iq, kv, score, block_table, rows, (init_blocks, local_blocks), engine)


def _ragged(offsets: Array, lens: Array, count: int) -> Rows:
    counts = np.diff(offsets)
    if offsets[0] != 0 or (counts < 0).any():
        raise ValueError(f"cu_seqlens_q is {offsets.tolist()}; expected offsets that start at 0 and never fall")
    if offsets[-1] != count:
        raise ValueError(f"cu_seqlens_q ends at {offsets[-1]}, and iq has {count} rows; expected one a query token")
    request = np.repeat(np.arange(len(lens), dtype=np.int32), counts)
    token = np.arange(len(request), dtype=np.int32) - offsets[request]
    return Rows.prefill(request, lens[request] - counts[request] + token)


def _check_bound(rows: Rows, max_seq_len: int) -> None:
    longest = int(rows.kv_len.max(initial=0))
    if max_seq_len < longest:
        raise ValueError(f"max_seq_len is {max_seq_len}, and a row sees {longest} tokens; pass a bound for all of them")


def _score(
    name: str,
    iq: torch.Tensor,
    kv: torch.Tensor,
    score: torch.Tensor,
    block_table: torch.Tensor,
    rows: Rows,
    forced: tuple[int, int],
    engine: str,
    query_len: int = 1,
) -> None:
    index_q = e4m3_bytes("iq", iq, (len(rows), None, INDEX_DIM))
    target = writable("score", score, torch.float32, (index_q.shape[1], len(rows), None))
    _refuse(name, index_q, int(rows.kv_len.max(initial=0)), query_len)
    entries = integers("block_table", block_table, (None, None))
    check_rows(rows, entries)
    blocks = int(rows.blocks.max(initial=0))
    if target.shape[2] < blocks:
        row = int(rows.blocks.argmax())
        raise ValueError(f"score is {target.shape[2]} blocks wide; expected at least {blocks}, which row {row} sees")
    result = score_blocks(
        kernels.runner(engine),
        index_q,
        e4m3_bytes("kv", kv, (None, SPARSE_BLOCK_SIZE, INDEX_DIM)),
        entries,
        rows,
        init_blocks=forced[0],
        local_blocks=forced[1],
        width=max(target.shape[2], 1),
    )
    np.copyto(target, result, where=np.arange(target.shape[2]) < rows.blocks[:, None])


# ---- selection -------------------------------------------------------------------------------------------------------


def pa_sparse_block_topk(
    score: torch.Tensor,
    topk_idx: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    sparse_bt: torch.Tensor,
    sparse_ctx: torch.Tensor,
    max_seq_len: int,
    block_size: int,
    query_len: int = 1,
    num_valid_pages: torch.Tensor | None = None,
    row_req_id: torch.Tensor | None = None,
    kv_lens: torch.Tensor | None = None,
    num_kv_heads: int = 1,
    pages_per_block: int = PAGES_PER_SPARSE_BLOCK,
    *,
    engine: str = "host",
) -> None:
    """Selects each row's best 16 blocks and writes them with their page table.

    score: float32 [index heads][rows][width], width at least `score_block_width(max_seq_len)`. topk_idx: int32 [index
    heads][rows][16], any strides, so also rows of a larger buffer; -1 where a row has fewer blocks. block_table: int32
    [requests][columns], the attend's, rebased to page 16 for a packed cache. sparse_bt: int32 [rows * num_kv_heads]
    [128], sparse_ctx: int32 [rows * num_kv_heads]. Rows are decode rows of seq_lens and query_len, or
    where num_valid_pages is given ragged ones: row_req_id, kv_lens, num_valid_pages int32 [rows], each row's request,
    tokens and blocks.
    Raises ValueError for limits, shapes and counts that do not fit, TypeError for dtypes.
    """
    check_whole("block_size", block_size)
    check_whole("pages_per_block", pages_per_block)
    if block_size != SPARSE_BLOCK_SIZE or pages_per_block != PAGES_PER_SPARSE_BLOCK:
        raise ValueError(
            f"block_size is {block_size} and pages_per_block {pages_per_block}; the tables are of blocks of "
            f"{SPARSE_BLOCK_SIZE} tokens in {PAGES_PER_SPARSE_BLOCK} pages"
        )
    if num_valid_pages is None:
        shape = check_tensor("score", score, (torch.float32,), (None, None, None)).shape
        rows = _uniform(seq_lens, query_len, shape[1], f"score has shape {tuple(shape)}")
    else:
        rows = _given_rows(num_valid_pages, row_req_id, kv_lens)
    check_count("num_kv_heads", num_kv_heads, 1)
    check_count("max_seq_len", max_seq_len, 0)
    _check_bound(rows, max_seq_len)
    scores = writable("score", score, torch.float32, (None, len(rows), None))
    _check_width(scores, max_seq_len)
    topk = writable("topk_idx", topk_idx, torch.int32, (len(scores), len(rows), TOPK))
    sequences = len(rows) * num_kv_heads
    why = f"a sequence for each of {len(rows)} rows and num_kv_heads={num_kv_heads}"
    table = writable("sparse_bt", sparse_bt, torch.int32, (sequences, TABLE_WIDTH), why)
    ctx = writable("sparse_ctx", sparse_ctx, torch.int32, (sequences,), why)
    _check_apart(("topk_idx", topk), ("sparse_bt", table), ("sparse_ctx", ctx))
    selection = select_blocks(
        kernels.runner(engine),
        np.ascontiguousarray(scores),
        integers("block_table", block_table, (None, None)),
        rows,
        kv_heads=num_kv_heads,
        pages_per_block=pages_per_block,
    )
    topk[...], table[...], ctx[...] = selection.topk, selection.table, selection.ctx


def _uniform(seq_lens: torch.Tensor, query_len: int, count: int, what: str) -> Rows:
    """The rows of decode requests; `count`, what a tensor has of them, is compared before any is made."""
    check_whole("query_len", query_len)
    if query_len < 1:
        raise ValueError(f"query_len is {query_len}; a decode request has 1 row or more")
    lens = lengths("seq_lens", seq_lens, (None,))
    if len(lens) * query_len != count:
        expected = len(lens) * query_len
        raise ValueError(f"{what}; expected {expected} rows: {len(lens)} requests of query_len {query_len}")
    return Rows.decode(lens, query_len)


def _check_apart(*outputs: tuple[str, Array]) -> None:
    for (one, a), (other, b) in combinations(outputs, 2):
        if np.shares_memory(a, b):
            raise ValueError(f"{one} and {other} share memory, and both are written; pass buffers of their own")


def _given_rows(counts: torch.Tensor, row_req_id: torch.Tensor | None, kv_lens: torch.Tensor | None) -> Rows:
    if row_req_id is None or kv_lens is None:
        raise ValueError("num_valid_pages is given without row_req_id or kv_lens; ragged rows need all three")
    blocks = integers("num_valid_pages", counts, (None,))
    rows = Rows(integers("row_req_id", row_req_id, blocks.shape), integers("kv_lens", kv_lens, blocks.shape))
    wrong = np.flatnonzero(blocks != rows.blocks)
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"num_valid_pages[{row}] is {blocks[row]}, but the {rows.kv_len[row]} tokens of kv_lens[{row}] are "
            f"{rows.blocks[row]} blocks; the two must agree, or the tail block is misplaced"
        )
    return rows


def _check_width(scores: Array, max_seq_len: int) -> None:
    width, blocks = score_block_width(max_seq_len), ceil(max_seq_len / SPARSE_BLOCK_SIZE)
    if blocks > MAX_BLOCKS:
        raise ValueError(f"max_seq_len {max_seq_len} is {blocks} blocks; a row can rank {MAX_BLOCKS}")
    if scores.shape[2] < width:
        raise ValueError(f"score is {scores.shape[2]} blocks wide; expected {width}: score_block_width({max_seq_len})")
