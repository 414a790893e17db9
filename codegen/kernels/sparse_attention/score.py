"""Index scores: how much a block of 128 keys matters to a query row, by index head.

The score of (row, head, block) is the largest raw dot product, in E4M3 and unscaled, of the row's index query with an
index key of the block that the row may see. A matrix instruction takes 16 keys against up to 16 columns, which are
(row, head) pairs of consecutive rows of one request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.lanes import at, butterfly, ld
from codegen.kernels.sparse_attention.launch import Runner, check_array, check_whole
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.shapes import INDEX_DIM, SPARSE_BLOCK_SIZE
from codegen.kernels.sparse_attention.table import AITER, check_count, check_entries, check_rows, row_address
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Mask,
    Pointer,
    constant,
    kernel,
    load,
    loop,
    readfirstlane,
    store,
    thread_id,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.isa.matrix import v_mfma_f32_16x16x128_f8f6f4
from gfx950.isa.vop2 import v_max_f32
from gfx950.lanes import LANES

THREADS = 256
COLUMNS = 16  # of a matrix instruction: (row, head) pairs
CHUNK_BLOCKS = 16  # of a workgroup, shared by its waves; no bit depends on it
BLOCK_BYTES = SPARSE_BLOCK_SIZE * INDEX_DIM
STRIP = 64  # blocks that the selection ranks at once
UNSCORED = 0x7FC0DEAD
INIT_SCORE, LOCAL_SCORE = 1e30, 1e29

SCORES = rule(
    "sparse_attention.scores",
    Evidence.vendor,
    f"{AITER}; an earlier version contracts 32 dims at once with v_mfma_f32_16x16x32_fp8_fp8",
    "A tile of 16 keys is one unscaled v_mfma_f32_16x16x128_f8f6f4 from +0; keys beyond the row's length are -inf; the"
    " maximum starts at -inf and passes over NaN.",
)
FORCED = rule(
    "sparse_attention.forced_blocks",
    Evidence.vendor,
    AITER,
    "A row's last local_blocks blocks score 1e29, else its first init_blocks blocks 1e30, whatever their keys.",
)
REST = rule(
    "sparse_attention.unscored",
    Evidence.chosen,
    f"{AITER} leaves them uninitialised",
    "Scores of blocks that a row does not see are the NaN 7fc0dead, which nothing reads.",
)


@dataclass(frozen=True)
class Tile:
    """Consecutive rows of one request, all uniform. rows: how many, from row `first` on. blocks: what its furthest row
    sees."""

    first: I32
    rows: I32
    request: I32
    blocks: I32


@dataclass(frozen=True)
class Column:
    """What a lane knows of its (row, head). q: the operand. kv_len: the row's tokens. target: where its scores are.
    stores: whether this lane writes them."""

    q: list[U32]
    kv_len: I32
    target: U64
    stores: Mask

    @property
    def blocks(self) -> I32:
        """How many blocks the row sees."""
        return (self.kv_len + (SPARSE_BLOCK_SIZE - 1)) // SPARSE_BLOCK_SIZE


@kernel(block=THREADS)
def index_score(
    index_q: Pointer,
    index_cache: Pointer,
    block_table: Pointer,
    kv_len: Pointer,
    tiles: Pointer,
    scores: Pointer,
    heads: I32,
    rows: I32,
    columns: I32,
    width: I32,
    init_blocks: I32,
    local_blocks: I32,
) -> None:
    """Scores of the blocks of a chunk for the rows of a tile; grid (chunks of 16 blocks, tiles).

    index_q: E4M3 [rows][heads][128]. index_cache: E4M3 [physical blocks][128 keys][128]. block_table: int32
    [requests][columns]. kv_len: int32 [rows]. tiles: int32 [tiles][4], the fields of `Tile`. scores: float32
    [heads][rows][width].
    """
    tid, chunk = thread_id(), workgroup_id(0)
    tile = Tile(*(readfirstlane(word.bits(I32)) for word in ld(tiles, workgroup_id(1) * 4, 4)))
    column = _column(tile, index_q, kv_len, scores, heads, rows, width)
    entries = row_address(block_table, tile.request, columns)
    first = chunk * CHUNK_BLOCKS + readfirstlane(tid // LANES)
    stop = ((chunk + 1) * CHUNK_BLOCKS).minimum(tile.blocks)

    @loop(first, stop, THREADS // LANES)
    def _(blk: I32) -> None:
        physical = readfirstlane(ld(entries, blk)[0])
        found = _block_score(index_cache + physical.to(U64) * BLOCK_BYTES, column, blk)
        score = _forced(found, blk, column.blocks, init_blocks, local_blocks)
        with when(column.stores & (blk < column.blocks)):
            store(at(column.target, blk * 4), score)


def _column(tile: Tile, index_q: U64, kv_len: U64, scores: U64, heads: I32, rows: I32, width: I32) -> Column:
    """The lane's column; lanes beyond the last one compute that one again and store nothing."""
    lane = thread_id() % LANES
    count = tile.rows * heads
    column = (lane % COLUMNS).minimum(count - 1)
    token = (column.to(F32) / heads.to(F32)).floor().to(I32)  # exact: both are at most 16
    row, head = tile.first + token, column - token * heads
    query = at(index_q, (tile.first * heads + column) * INDEX_DIM)
    q = _operand(at(query, lane // COLUMNS * 16))
    target = row_address(scores, head * rows + row, width)
    return Column(q, ld(kv_len, row)[0].bits(I32), target, lane < count)


def _operand(address: U64) -> list[U32]:
    """Dims 16 g .. + 15 and 64 + 16 g .. + 15 of a query or key, the instruction's own order; `address`: its first."""
    return [*load(address, 4), *load(address + INDEX_DIM // 2, 4)]


def _block_score(keys: U64, column: Column, blk: I32) -> F32:
    """The largest product of the column with a key it may see, over all lanes of the column.

    [rule sparse_attention.scores]
    """
    lane = thread_id() % LANES
    group = lane // COLUMNS
    mine = at(keys, lane % COLUMNS * INDEX_DIM + group * 16)
    left = column.kv_len - blk * SPARSE_BLOCK_SIZE - group * 4
    best = constant(F32, float("-inf"))
    zero = [constant(F32, 0.0)] * 4
    for tile in range(SPARSE_BLOCK_SIZE // 16):
        products = v_mfma_f32_16x16x128_f8f6f4(_operand(mine + tile * 16 * INDEX_DIM), column.q, zero, 0, 0)
        for e, word in enumerate(products.words):
            best = v_max_f32(best, (left > 16 * tile + e).select(word.bits(F32), float("-inf")))
    return butterfly(best, (16, 32), v_max_f32)


def _forced(score: F32, blk: I32, blocks: I32, init_blocks: I32, local_blocks: I32) -> F32:
    """[rule sparse_attention.forced_blocks]"""
    initial = (blk < init_blocks).select(INIT_SCORE, score)
    return (blk >= blocks - local_blocks).select(LOCAL_SCORE, initial)


# ---- launching -------------------------------------------------------------------------------------------------------


def score_block_width(max_seq_len: int, block_size: int = SPARSE_BLOCK_SIZE) -> int:
    """The width of a score buffer: strips of 64 blocks, a power of two of them, that hold `max_seq_len` tokens."""
    for name, value, least in (("max_seq_len", max_seq_len, 0), ("block_size", block_size, 1)):
        check_count(name, value, least)
    strips = -(-max(-(-max_seq_len // block_size), 1) // STRIP)
    return (1 << (strips - 1).bit_length()) * STRIP


def tiles_of(rows: Rows, heads: int) -> NDArray[np.int32]:
    """int32 [tiles][4], the fields of `Tile`: runs of rows of one request, as many as their heads fit 16 columns.

    Rows that see nothing are in no tile. Raises TypeError and ValueError for other than 1 to 16 heads.
    """
    check_whole("heads", heads)
    if not 1 <= heads <= COLUMNS:
        raise ValueError(f"heads is {heads}; expected 1 to {COLUMNS}: a matrix instruction has that many columns")
    request, blocks = rows.request.tolist(), rows.blocks.tolist()
    tiles: list[tuple[int, int, int, int]] = []
    row = 0
    while row < len(rows):
        stop = row
        while stop < min(row + COLUMNS // heads, len(rows)) and blocks[stop] and request[stop] == request[row]:
            stop += 1
        if stop > row:
            tiles.append((row, stop - row, request[row], max(blocks[row:stop])))
        row = max(stop, row + 1)
    return np.array(tiles, np.int32).reshape(-1, 4)


def score_blocks(
    runner: Runner,
    index_q: NDArray[np.uint8],
    index_cache: NDArray[np.uint8],
    block_table: NDArray[np.int32],
    rows: Rows,
    *,
    init_blocks: int = 0,
    local_blocks: int = 0,
    width: int | None = None,
) -> NDArray[np.float32]:
    """Scores float32 [heads][rows][width] of every block that a row sees; the others are the NaN 7fc0dead.

    index_q: E4M3 codes uint8 [rows][heads][128], 1 to 16 heads. index_cache: E4M3 codes uint8 [blocks][128 keys][128].
    block_table: int32 [requests][columns], read as far as a row sees. init_blocks, local_blocks: blocks forced at each
    row's start and end. width: `score_block_width` of the longest row if not given. Raises TypeError and ValueError for
    what does not fit, naming the array and the row.
    """
    check_rows(rows, block_table)
    check_array("index_q", index_q, np.uint8, (len(rows), None, INDEX_DIM))
    check_array("index_cache", index_cache, np.uint8, (None, SPARSE_BLOCK_SIZE, INDEX_DIM))
    heads = index_q.shape[1]
    if not 1 <= heads <= COLUMNS:
        raise ValueError(f"index_q has {heads} heads; expected 1 to {COLUMNS}: a matrix instruction has that many")
    check_entries(rows, block_table, len(index_cache), "the blocks of index_cache")
    for name, value in (("init_blocks", init_blocks), ("local_blocks", local_blocks)):
        check_count(name, value, 0)
    blocks = int(rows.blocks.max(initial=0))
    width = score_block_width(int(rows.kv_len.max(initial=0))) if width is None else width
    check_count("width", width, max(blocks, 1))
    scores = np.full((heads, len(rows), width), UNSCORED, np.uint32).view(np.float32)
    tiles = tiles_of(rows, heads)
    sizes = (heads, len(rows), block_table.shape[1], width, init_blocks, local_blocks)
    arrays = (index_q, index_cache, block_table, rows.kv_len, tiles, scores)
    grid = (-(-blocks // CHUNK_BLOCKS), len(tiles))
    runner.launch(index_score, grid, [*arrays, *(np.int32(size) for size in sizes)])
    return scores
