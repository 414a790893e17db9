"""Attention of the DSpark drafter: the two kernels. What is computed, and why so, is in README.md."""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.drafter_attention.block import SM_SCALE, Row, State, block_acc, block_math, empty_state
from codegen.kernels.drafter_attention.cases import (
    BLOCK,
    HEAD_DIM,
    MAXB,
    PARTIAL_BYTES,
    Q_HEADS,
    QPR,
    SCALE_GROUP,
    THREADS,
    WINDOW,
)
from codegen.kernels.drafter_attention.merge import ML_BYTES, merge_task, store_partial
from codegen.kernels.drafter_attention.qkv import FirstBlocks, position_of, qkv_load, qkv_pre, qkv_rows
from codegen.kernels.drafter_attention.tiles import (
    LDS_BYTES,
    TK0,
    TV0,
    Cache,
    Staged,
    Tile,
    kv_live,
    kv_load,
    kv_store,
    physical_blocks,
    q_operand,
)
from codegen.kernels.lanes import at, ld
from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Mask,
    Pointer,
    barrier,
    branch,
    constant,
    kernel,
    loop,
    readfirstlane,
    thread_id,
    when,
    workgroup_id,
)
from gfx950.evidence import Evidence, rule
from gfx950.lanes import LANES

FORMATS = rule(
    "drafter_attention.formats",
    Evidence.chosen,
    "not public; the row layout of the sibling kernels, and the smallest number of blocks that drops no live key",
    "QKV rows are bf16 q | k | v, the partials of a request lie one after the other, a8 and as8 are row-major by head"
    " and dim, a window has at most 34 blocks.",
)
PARTITIONS = rule(
    "drafter_attention.partitions",
    Evidence.chosen,
    "the schedule is not public",
    "Partition p of na takes up to size = ceil(blocks / na) consecutive blocks of the window, from block p * size on.",
)


@dataclass(frozen=True)
class Window:
    """A request's keys. p0: its first position. lo, hi: first and last key of its rows' windows together."""

    p0: I32
    lo: I32
    hi: I32


@dataclass(frozen=True)
class Part:
    """A partition's blocks: `count` from block `first` on."""

    first: I32
    count: I32


def window(r: I32, positions: U64, seq_lens: U64) -> Window:
    """The window of request r, at most 34 blocks."""
    p0 = readfirstlane(position_of(positions, r * QPR))
    seq_len = readfirstlane(ld(seq_lens, r)[0].bits(I32))
    lo = (p0 - (WINDOW - 1)).maximum(0)
    return Window(p0, lo, (seq_len - 1).minimum((lo // BLOCK + MAXB) * BLOCK - 1))


def partition(keys: Window, na: I32, p: I32) -> Part:
    """The blocks of partition p. [rule drafter_attention.partitions]"""
    blocks = (keys.hi // BLOCK - keys.lo // BLOCK + 1).maximum(0)
    size = ((blocks + na - 1).to(F32) / na.to(F32)).floor().to(I32)  # exact: both are below 128
    size = readfirstlane(size)
    return Part(keys.lo // BLOCK + p * size, (blocks - p * size).maximum(0).minimum(size))


@kernel(block=THREADS, lds=LDS_BYTES, waves_per_eu=4)  # as many as the LDS lets in: two workgroups a CU
def drafter_attention(
    qkv: Pointer,
    positions: Pointer,
    slots: Pointer,
    seq_lens: Pointer,
    block_table: Pointer,
    cache: Pointer,
    qn: Pointer,
    kn: Pointer,
    cos_sin: Pointer,
    partials: Pointer,
    bt_width: I32,
    nblk: I32,
    na: I32,
    eps: F32,
) -> None:
    """Grid (na, requests): a workgroup a partition of a request. Arrays as in cases.Inputs."""
    p, r, tid = workgroup_id(0), workgroup_id(1), thread_id()
    keys = window(r, positions, seq_lens)
    part = partition(keys, na, p)
    paged = Cache(cache, nblk)
    physical = physical_blocks(paged, block_table, bt_width, r, part.first, keys.hi, tid)
    stage = Stage(paged, physical, keys, part, tid)
    first_two = [stage.load(constant(I32, index)) for index in range(2)]
    pre = qkv_pre(r, qn, kn, cos_sin, positions, slots, tid)
    words = qkv_load(r, qkv, tid)
    for index, loaded in enumerate(first_two):
        stage.store(constant(I32, index), loaded, TK0 + index, TV0 + index)
    barrier()  # the staged tiles are whole before new rows go into them
    blocks = FirstBlocks(part.first, part.first + 1, part.count, keys.lo, keys.hi)
    qkv_rows(r, words, pre, eps, paged, blocks, tid)
    barrier()  # new rows are in TQ, in the tiles, and in the cache for the blocks still to be loaded
    ap = partials + ((r * na + p).bits(U32).to(U64) * PARTIAL_BYTES)
    _attend(stage, ap)


@dataclass(frozen=True)
class Stage:
    """How a workgroup brings its partition's blocks into LDS. physical: lane x has block x's place in the cache."""

    cache: Cache
    physical: I32
    keys: Window
    part: Part
    tid: I32

    def load(self, index: I32) -> Staged:
        """Issues the loads of the partition's block `index`; zeros where there is none."""
        zeros = (constant(U32, 0),) * 16
        block = self.physical.readlane(index.bits(U32))
        return Staged.of(
            branch(index < self.part.count, lambda: kv_load(self.cache, block, self.tid).words, lambda: zeros)
        )

    def store(self, index: I32, loaded: Staged, tk: Tile, tv: Tile) -> None:
        """Block `index`, if there is one, into a pair of tiles that nobody reads now."""
        with when(index < self.part.count):
            live = kv_live(loaded, self.part.first + index, self.keys.lo, self.keys.hi, self.tid)
            kv_store(tk, tv, live, self.tid)


def _attend(stage: Stage, ap: U64) -> None:
    """The partition's blocks, and its partial."""
    tid, part, keys = stage.tid, stage.part, stage.keys
    wave = readfirstlane(tid) // LANES
    l16, g4 = tid % 16, tid % LANES // 16
    j = wave.minimum(QPR - 1)  # the last wave has no row: it only stages
    row = Row(q_operand(j, l16, g4), keys.p0 + j, keys.lo, keys.hi, l16, g4)
    computes = wave < QPR

    def one() -> tuple[F32, ...]:
        def math() -> tuple[F32, ...]:
            return block_math(row, TK0, TV0, part.first, row.misses(part.first)).values

        return branch(computes, math, lambda: empty_state().values)

    def several() -> tuple[F32, ...]:
        state = _many(row, stage, computes)
        return State(state.m * SM_SCALE, state.l, state.o).values

    state = State.of(branch(part.count == 1, one, several))
    with when(computes):
        store_partial(ap, wave, l16, g4, state)


def _many(row: Row, stage: Stage, computes: Mask) -> State:
    """No block or several, in two pairs of tiles: a block's words are loaded two blocks ahead and stored over its
    predecessor in the same tiles once every wave has read that."""

    @loop(0, stage.part.count, carry=empty_state().values)
    def final(i: I32, *values: F32) -> tuple[F32, ...]:
        coming, blk = stage.load(i + 2), stage.part.first + i
        tk, tv = i % 2 + TK0, i % 2 + TV0

        def math() -> tuple[F32, ...]:
            return block_acc(row, tk, tv, blk, State.of(values), row.misses(blk)).values

        after = branch(computes, math, lambda: values)
        barrier()
        stage.store(i + 2, coming, tk, tv)
        return after

    return State.of(final)


@kernel(block=THREADS, lds=ML_BYTES)
def drafter_merge(partials: Pointer, a8: Pointer, as8: Pointer, na: I32) -> None:
    """Grid (4, 7, requests): a workgroup a token and four of its heads.

    a8: E4M3 codes uint8 [tokens][2048]. as8: E8M0 scales uint8 [tokens][64].
    """
    hq, j, r = workgroup_id(0), workgroup_id(1), workgroup_id(2)
    token = r * QPR + j
    ap0 = partials + ((r * na).bits(U32).to(U64) * PARTIAL_BYTES)
    width = Q_HEADS * HEAD_DIM
    outputs = at(a8, token * width), at(as8, token * (width // SCALE_GROUP))
    merge_task(ap0, na, j, hq, outputs, thread_id())
