"""The 16 blocks that a row attends to, by index head, and the page table of each of its sequences.

A wave keeps the 64 best keys that it has seen, sorted, a lane each, and merges the blocks into them in strips of 64. A
key is the score in an order of whole numbers, then the block: no two are equal, and a tie goes to the later block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.lanes import at, ld
from codegen.kernels.sparse_attention.launch import Runner, check_array
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.shapes import PAGES_PER_SPARSE_BLOCK, SPARSE_BLOCK_SIZE, TABLE_WIDTH, TOPK
from codegen.kernels.sparse_attention.table import (
    AITER,
    Sequence,
    check_count,
    check_entries,
    check_rows,
    emit_row,
    entries_below,
    row_address,
)
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Mask,
    Pointer,
    constant,
    kernel,
    lane_id,
    loop,
    permute,
    readfirstlane,
    store,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.lanes import LANES, join

MAX_SEQUENCES = 1 << 26  # a (row, kv head) each: as many as the attend takes

SELECTION = rule(
    "sparse_attention.selection",
    Evidence.vendor,
    AITER,
    "The 16 largest, in descending order, of the order-preserving whole number of the score above the block: ties go to"
    " the later block, -0 is below +0, a NaN is -inf. Blocks that the row does not see do not take part; -1 fills up.",
)
HEADS = rule(
    "sparse_attention.table_heads",
    Evidence.vendor,
    AITER,
    "An index head serves the max(kv heads / index heads, 1) kv heads of its number; sequence = row * kv heads + head,"
    " page = (entry * pages + j) * kv heads + head.",
)


@dataclass(frozen=True)
class Selection:
    """topk: int32 [index heads][rows][16], best first, -1 for none. table: int32 [rows * kv heads][128] pages. ctx:
    int32 [rows * kv heads] tokens."""

    topk: NDArray[np.int32]
    table: NDArray[np.int32]
    ctx: NDArray[np.int32]


@kernel(block=LANES, name="select_blocks")
def select_blocks_kernel(
    scores: Pointer,
    block_table: Pointer,
    request: Pointer,
    kv_len: Pointer,
    topk: Pointer,
    table: Pointer,
    ctx: Pointer,
    rows: I32,
    columns: I32,
    width: I32,
    kv_heads: I32,
    heads_each: I32,
    pages: I32,
) -> None:
    """The selection of a row and index head, and the table rows of its kv heads; grid (rows, index heads).

    scores: float32 [index heads][rows][width]. block_table: int32 [requests][columns]. request, kv_len: int32 [rows].
    topk: int32 [index heads][rows][16]. table: int32 [rows * kv_heads][128]. ctx: int32 [rows * kv_heads]. heads_each:
    kv heads of an index head. pages: what an entry of the block table is multiplied by.
    """
    row, head = workgroup_id(0), workgroup_id(1)
    own_request = readfirstlane(ld(request, row)[0].bits(I32))
    causal = readfirstlane(ld(kv_len, row)[0].bits(I32))
    blocks = (causal + (SPARSE_BLOCK_SIZE - 1)) // SPARSE_BLOCK_SIZE
    best = _best_keys(row_address(scores, head * rows + row, width), blocks)
    blk = ((best != 0) & (lane_id() < TOPK)).select(best.to(U32).bits(I32), -1)
    with when(lane_id() < TOPK):
        store(at(row_address(topk, head * rows + row, constant(I32, TOPK)), lane_id() * 4), blk)
    entries = row_address(block_table, own_request, columns)

    @loop(head * heads_each, (head + 1) * heads_each)
    def _(kv_head: I32) -> None:
        number = row * kv_heads + kv_head
        table_row = row_address(table, number, constant(I32, TABLE_WIDTH))
        sequence = Sequence(entries, pages, kv_head, kv_heads, table_row, at(ctx, number * 4))
        emit_row(blk, causal, constant(I32, TOPK), sequence)


def _best_keys(scores: U64, blocks: I32) -> U64:
    """The 64 largest keys of a row's blocks, a lane each, in descending order; 0 for none.

    [rule sparse_attention.selection]
    """
    lane = lane_id()

    def merge(first: I32, best: U64) -> tuple[U64]:
        blk = first + lane
        score = ld(scores, blk.minimum(blocks - 1))[0].bits(F32)  # what lies past the last block is not even read
        key = (blk < blocks).select(_key(score, blk), 0)
        ascending = _sorted(key)
        return (_merged((best > ascending).select(best, ascending)),)

    best: U64
    (best,) = loop(0, blocks, LANES, carry=(constant(U64, 0),))(merge)
    return best


def _key(score: F32, blk: I32) -> U64:
    bits = score.is_nan().select(float("-inf"), score).bits(U32)
    flip = (bits.bits(I32) >> 31).bits(U32) | 0x80000000
    return join(blk.bits(U32), bits ^ flip)


def _sorted(key: U64) -> U64:
    """The keys of a wave in ascending order: a bitonic network."""
    for size in (2, 4, 8, 16, 32, 64):
        for distance in _distances(size // 2):
            key = _exchanged(key, distance, _bit(distance) ^ _bit(size))
    return key


def _merged(key: U64) -> U64:
    """A bitonic run of keys in descending order."""
    for distance in _distances(LANES // 2):
        key = _exchanged(key, distance, ~_bit(distance))
    return key


def _distances(first: int) -> list[int]:
    return [first >> step for step in range(first.bit_length())]


def _bit(distance: int) -> Mask:
    """Whether the lane's number has this bit."""
    return (lane_id() & distance) != 0


def _exchanged(key: U64, distance: int, larger: Mask) -> U64:
    """The larger of the lane's key and its partner's where `larger` is set, else the smaller."""
    other = permute(key, [lane ^ distance for lane in range(LANES)])
    return ((key > other) ^ larger).select(other, key)


# ---- launching -------------------------------------------------------------------------------------------------------


def select_blocks(
    runner: Runner,
    scores: NDArray[np.float32],
    block_table: NDArray[np.int32],
    rows: Rows,
    *,
    kv_heads: int = 1,
    pages_per_block: int = PAGES_PER_SPARSE_BLOCK,
) -> Selection:
    """The best 16 blocks of every row and index head, and the page tables of its sequences.

    scores: float32 [index heads][rows][width], of which a row's own blocks are read. block_table: int32
    [requests][columns], in units of `pages_per_block` pages a kv head: the rebased one for a packed cache. kv_heads: as
    many as index heads, or a multiple, and with the rows at most 2^26 sequences. Raises TypeError and ValueError for
    what does not fit, naming the row.
    """
    check_rows(rows, block_table)
    check_array("scores", scores, np.float32, (None, len(rows), None))
    heads, _, width = scores.shape
    check_count("kv_heads", kv_heads, 1)
    check_count("pages_per_block", pages_per_block, 1)
    _check_heads(heads, len(rows), kv_heads)
    most = int(rows.blocks.max(initial=0))
    if width < most:
        row = int(rows.blocks.argmax())
        raise ValueError(f"scores has {width} columns; row {row} sees {most} blocks (kv_len {rows.kv_len[row]})")
    check_entries(rows, block_table, entries_below(pages_per_block, kv_heads), "so that its pages are int32")
    result = Selection(
        topk=np.full((heads, len(rows), TOPK), -1, np.int32),
        table=np.zeros((len(rows) * kv_heads, TABLE_WIDTH), np.int32),
        ctx=np.zeros(len(rows) * kv_heads, np.int32),
    )
    sizes = (len(rows), block_table.shape[1], width, kv_heads, kv_heads // heads, pages_per_block)
    arrays = (scores, block_table, rows.request, rows.kv_len, result.topk, result.table, result.ctx)
    runner.launch(select_blocks_kernel, (len(rows), heads), [*arrays, *(np.int32(size) for size in sizes)])
    return result


def _check_heads(heads: int, rows: int, kv_heads: int) -> None:
    if heads < 1 or kv_heads % heads:
        raise ValueError(
            f"scores has {heads} index heads for {kv_heads} kv heads; expected one index head for each kv head, or one"
            " for equal groups of them"
        )
    most = MAX_SEQUENCES // max(rows, 1)
    if kv_heads > most:
        raise ValueError(
            f"kv_heads is {kv_heads} for {rows} rows; expected at most {most}: a table is of at most {MAX_SEQUENCES}"
            " sequences, a row and kv head each"
        )
