"""The page table of a selection: which pages of 16 tokens a sequence attends to, in order, and how many tokens.

Blocks before the row's own come first, in the order of the selection; its own block, which may be partial, comes last.
`emit_row` is a wave's part of a kernel; `build_table` makes tables from selections that others made. What a row sees,
and with it which entries of a block table are read, is checked here for all parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.lanes import at, ld
from codegen.kernels.sparse_attention.launch import Runner, check_array, check_whole
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.shapes import (
    MAX_BLOCKS,
    PAGE16_SIDES_PER_BLOCK,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)
from codegen.language import (
    I32,
    U32,
    U64,
    Pointer,
    constant,
    kernel,
    lane_id,
    readfirstlane,
    store,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.lanes import LANES

AITER = "ROCm/aiter @545d97cc csrc/cpp_itfs/sparse_attn/pa_sparse_block_select_kernels.cuh"
LARGEST = (1 << 31) - 1  # of int32, which tables and sizes are

TABLE = rule(
    "sparse_attention.table",
    Evidence.vendor,
    f"{AITER}, and the builder of vllm-project/vllm @15a3fd47 vllm/models/minimax_m3/amd/ops/sparse_pa.py",
    "Blocks below 0 or beyond the row's own are dropped; the others keep their order, the row's own goes last. The"
    " context is 128 tokens for each block and the causal part of the row's own; without it min(128 blocks, causal).",
)
DUPLICATES = rule(
    "sparse_attention.table_duplicates",
    Evidence.chosen,
    "the builder of vllm-project/vllm @15a3fd47, which leaves the entries unwritten that this zeroes",
    "A block selected twice is attended to twice; the row's own, however often selected, takes one place and counts"
    " once. Entries past the last place are 0.",
)


def row_address(base: U64, row: I32, width: I32) -> U64:
    """The address of row `row` of a matrix of 32-bit words, `width` to a row."""
    words: U64 = row.bits(U32).to(U64) * width.bits(U32).to(U64)
    return base + words * 4


@dataclass(frozen=True)
class Sequence:
    """Where a (row, kv head) has its pages and puts its table.

    entries: its request's row of the block table. pages: what an entry is multiplied by. table: its row of the page
    table. ctx: the address of its context's length.
    """

    entries: U64
    pages: I32
    kv_head: I32
    kv_heads: I32
    table: U64
    ctx: U64

    def pages_of(self, blk: I32) -> list[I32]:
        """The ids of a block's 8 pages."""
        first = ld(self.entries, blk)[0].bits(I32) * self.pages * self.kv_heads + self.kv_head
        return [first + self.kv_heads * j for j in range(PAGES_PER_SPARSE_BLOCK)]


def emit_row(blk: I32, kv_len: I32, k: I32, sequence: Sequence) -> None:
    """Writes a sequence's row of the page table and its context's length; for a whole wave.

    blk: lane i's is the i-th selected block, or negative. k: places of a row, 8 entries each; no lane from k on has a
    block. [rules sparse_attention.table, .table_duplicates]
    """
    lane = lane_id()
    own = (kv_len - 1) // SPARSE_BLOCK_SIZE  # -1, and no block's, where the row sees nothing
    full, tail = (blk >= 0) & (blk < own), (blk >= 0) & (blk == own)
    full_lanes, tail_lanes = full.ballot(), tail.ballot()
    full_count, has_tail = full_lanes.popcount().to(I32), tail_lanes != 0
    lower = (constant(U64, 1) << lane.bits(U32).to(U64)) - 1
    place = full.select((full_lanes & lower).popcount().to(I32), full_count)
    with when(full | (tail & ((tail_lanes & lower) == 0))):
        _store_pages(sequence.table, place, sequence.pages_of(blk))
    with when((lane >= has_tail.select(full_count + 1, full_count)) & (lane < k)):
        _store_pages(sequence.table, lane, [constant(I32, 0)] * PAGES_PER_SPARSE_BLOCK)
    with when(lane == 0):
        tokens = full_count * SPARSE_BLOCK_SIZE
        with_tail = tokens + kv_len - own * SPARSE_BLOCK_SIZE
        store(sequence.ctx, has_tail.select(with_tail, tokens.minimum(kv_len)))


def _store_pages(table_row: U64, place: I32, pages: list[I32]) -> None:
    address = at(table_row, place * (4 * PAGES_PER_SPARSE_BLOCK))
    store(address, *pages[:4])
    store(address + 16, *pages[4:])


@kernel(block=LANES, name="build_table")
def build_table_kernel(
    topk: Pointer,
    block_table: Pointer,
    request: Pointer,
    kv_len: Pointer,
    table: Pointer,
    ctx: Pointer,
    k: I32,
    columns: I32,
    pages: I32,
) -> None:
    """Page tables of given selections, one kv head; a workgroup of one wave a row.

    topk: int32 [rows][k]. block_table: int32 [requests][columns]. request, kv_len: int32 [rows]. table: int32
    [rows][8 k]. ctx: int32 [rows]. pages: what an entry of the block table is multiplied by.
    """
    row = workgroup_id(0)
    own_request = readfirstlane(ld(request, row)[0].bits(I32))
    causal = readfirstlane(ld(kv_len, row)[0].bits(I32))
    selected = ld(row_address(topk, row, k), lane_id().minimum(k - 1))[0].bits(I32)
    blk = (lane_id() < k).select(selected, -1)
    entries = row_address(block_table, own_request, columns)
    table_row = row_address(table, row, k * PAGES_PER_SPARSE_BLOCK)
    one_head = constant(I32, 0), constant(I32, 1)
    emit_row(blk, causal, k, Sequence(entries, pages, *one_head, table_row, at(ctx, row * 4)))


# ---- what is given ---------------------------------------------------------------------------------------------------


def check_count(name: str, value: int, least: int) -> None:
    """Refuses anything but a whole number from `least` on that int32 holds, naming it: TypeError and ValueError."""
    check_whole(name, value)
    if not least <= value <= LARGEST:
        raise ValueError(f"{name} is {value}; expected {least} to {LARGEST}")


def check_rows(rows: Rows, block_table: NDArray[np.int32]) -> None:
    """Refuses rows that see more than 8192 blocks or more than the table has columns, or whose request has no row in
    it. Rows that see nothing may name any request. Raises TypeError and ValueError; they name the row."""
    if not isinstance(rows, Rows):
        raise TypeError(f"rows is a {type(rows).__name__}; expected a Rows (Rows.decode or Rows.prefill make one)")
    check_array("rows.request", rows.request, np.int32, (None,))
    check_array("rows.kv_len", rows.kv_len, np.int32, rows.request.shape)
    check_array("block_table", block_table, np.int32, (None, None))
    requests, columns = block_table.shape
    limit = min(columns, MAX_BLOCKS) * SPARSE_BLOCK_SIZE
    what = f"the {columns} columns of block_table" if columns < MAX_BLOCKS else f"the limit of {MAX_BLOCKS} blocks"
    for row in _first(rows.kv_len < 0):
        raise ValueError(f"kv_len of row {row} is {rows.kv_len[row]}; expected 0 or more tokens")
    for row in _first(rows.kv_len > limit):
        raise ValueError(f"kv_len of row {row} is {rows.kv_len[row]}; expected at most {limit}, by {what}")
    for row in _first((rows.kv_len > 0) & ((rows.request < 0) | (rows.request >= requests))):
        expected = f"0 to {requests - 1}, the rows" if requests else "a row"
        rest = "" if requests else ", which has none"
        raise ValueError(f"request of row {row} is {rows.request[row]}; expected {expected} of block_table{rest}")


def check_entries(rows: Rows, block_table: NDArray[np.int32], stop: int, what: str) -> None:
    """Refuses entries of blocks that a row sees, unless they are 0 .. stop - 1. Raises ValueError, which names the
    entry and a row that sees it; rows as `check_rows` takes them."""
    seen = np.zeros(len(block_table), np.int32)
    live = rows.kv_len > 0
    np.maximum.at(seen, rows.request[live], rows.blocks[live])
    visible = np.arange(block_table.shape[1]) < seen[:, None]
    for index in _first((visible & ((block_table < 0) | (block_table >= stop))).ravel()):
        request, column = divmod(index, block_table.shape[1])
        row = next(_first((rows.request == request) & (rows.blocks > column)))
        raise _bad_entry(block_table, request, column, row, stop, what)


def _bad_entry(block_table: NDArray[np.int32], request: int, column: int, row: int, stop: int, what: str) -> ValueError:
    entry = block_table[request, column]
    expected = f"0 to {stop - 1}, {what}" if stop > 0 else f"one of {what}, and there are none"
    return ValueError(f"block_table[{request}, {column}] is {entry}, read for row {row}; expected {expected}")


def _first(bad: NDArray[np.bool_]) -> Iterator[int]:
    """The first true place, if there is one."""
    yield from np.flatnonzero(bad)[:1].tolist()


def entries_below(pages: int, kv_heads: int) -> int:
    """What an entry of a block table must be below for all its pages to be int32."""
    return (LARGEST - kv_heads * PAGES_PER_SPARSE_BLOCK + 1) // (pages * kv_heads) + 1


# ---- launching -------------------------------------------------------------------------------------------------------


def build_table(
    runner: Runner,
    topk: NDArray[np.int32],
    block_table: NDArray[np.int32],
    rows: Rows,
    *,
    block_page_stride: int = PAGES_PER_SPARSE_BLOCK,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The page table int32 [rows][8 k] and the context lengths int32 [rows] of given selections, for one kv head.

    topk: int32 [rows][k], 1 to 64 blocks in any order; those below 0 or beyond the row's own are dropped. block_table:
    int32 [requests][columns], read where selected. block_page_stride: pages from one block to the next, 8 in planes of
    one side, 16 where K and V share a block. Raises TypeError and ValueError for what does not fit, naming the row.
    """
    check_rows(rows, block_table)
    check_array("topk", topk, np.int32, (len(rows), None))
    k = topk.shape[1]
    if not 1 <= k <= LANES:
        raise ValueError(f"topk has {k} columns; expected 1 to {LANES}: a lane takes one")
    check_whole("block_page_stride", block_page_stride)
    strides = (PAGES_PER_SPARSE_BLOCK, PAGES_PER_SPARSE_BLOCK * PAGE16_SIDES_PER_BLOCK)
    if block_page_stride not in strides:
        raise ValueError(
            f"block_page_stride is {block_page_stride}; expected {strides[0]} (planes) or {strides[1]} (K and V in one"
            " block)"
        )
    _check_selected(topk, block_table, rows, entries_below(block_page_stride, 1))
    table = np.zeros((len(rows), k * PAGES_PER_SPARSE_BLOCK), np.int32)
    ctx = np.zeros(len(rows), np.int32)
    sizes = (k, block_table.shape[1], block_page_stride)
    arrays = (topk, block_table, rows.request, rows.kv_len, table, ctx)
    runner.launch(build_table_kernel, (len(rows),), [*arrays, *(np.int32(size) for size in sizes)])
    return table, ctx


def _check_selected(topk: NDArray[np.int32], block_table: NDArray[np.int32], rows: Rows, stop: int) -> None:
    """As `check_entries`, of the blocks that rows select."""
    valid = (topk >= 0) & (topk < rows.blocks[:, None])
    row, place = np.nonzero(valid)
    entries = block_table[rows.request[row], topk[row, place]]
    for index in _first((entries < 0) | (entries >= stop)):
        at_row, column = int(row[index]), int(topk[row[index], place[index]])
        request = int(rows.request[at_row])
        raise _bad_entry(block_table, request, column, at_row, stop, "so that its pages are int32")
