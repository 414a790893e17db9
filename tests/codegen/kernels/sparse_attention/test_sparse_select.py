"""The selection of 16 blocks and its page table: source and gfx950 code against plain sorting and plain lists."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

from codegen.compile import compile_kernels
from codegen.kernels.sparse_attention.attend import MAX_PARTS
from codegen.kernels.sparse_attention.launch import Runner, program
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.score import index_score, score_blocks
from codegen.kernels.sparse_attention.select import MAX_SEQUENCES, Selection, select_blocks, select_blocks_kernel
from codegen.kernels.sparse_attention.table import build_table, build_table_kernel, entries_below
from emu.dispatch import RunOptions
from gfx950.random_bits import bits32, integers, permutation
from tests.codegen.kernels.sparse_attention.test_sparse_score import rows_of

NANS = (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF)
STALE = (-(2**31), 2**31 - 1, -1)
COUNTS = [0, 1, 15, 16, 17, 64, 65, 128, 129, 512]


@functools.cache
def compiled():
    return compile_kernels([program(k) for k in (index_score, select_blocks_kernel, build_table_kernel)])


def both(function, *arguments, **options):
    """The source's results, after the machine code gave the same and neither wrote to what it read."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    before = [a.tobytes() for a in arrays]
    source = function(Runner(), *arguments, **options)
    machine = function(Runner(code_object=compiled().object), *arguments, **options)
    for a, b in zip(parts(source), parts(machine), strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
    assert [a.tobytes() for a in arrays] == before
    return source


def parts(result):
    if isinstance(result, Selection):
        return result.topk, result.table, result.ctx
    return result if isinstance(result, tuple) else (result,)


def of_counts(counts, requests=2):
    """A row each with this many blocks, the last one of an odd length; none where 0, of a request that is not there."""
    pairs = [(i % requests, 128 * n - (37 * i + n) % 128) if n else (-9, 0) for i, n in enumerate(counts)]
    return rows_of(*pairs)


def table_of(name, rows, most=10000):
    """A block table with distinct entries below `most` where rows see blocks, and garbage elsewhere."""
    live = rows.kv_len > 0
    requests = int(rows.request[live].max(initial=0)) + 1
    table = np.array(STALE)[integers(f"{name} stale", (requests, int(rows.blocks.max(initial=0)) + 2), 0, 3)]
    for request in range(requests):
        seen = int(rows.blocks[live & (rows.request == request)].max(initial=0))
        table[request, :seen] = permutation(f"{name} {request}", most)[:seen]
    return table.astype(np.int32)


# ---- plain restatements ----------------------------------------------------------------------------------------------


def plain_topk(scores, count):
    """The blocks of a row by the stated order, descending, 16 of them, -1 past the end."""

    def rank(block):
        score = float(scores[block])
        score = -math.inf if math.isnan(score) else score
        return score, math.copysign(1, score), block

    best = sorted(range(count), key=rank, reverse=True)[:16]
    return best + [-1] * (16 - len(best))


def plain_table(selected, kv_len, entries, pages, kv_head=0, kv_heads=1):
    """A table row and its context's length: full blocks in order of selection, the row's own block last."""
    own = (kv_len - 1) // 128
    full = [b for b in selected if kv_len > 0 and 0 <= b < own]
    tail = kv_len > 0 and own in selected
    order = full + [own] * tail
    ids = [(int(entries[b]) * pages + j) * kv_heads + kv_head for b in order for j in range(8)]
    ctx = len(full) * 128 + kv_len - own * 128 if tail else min(len(full) * 128, kv_len)
    return ids + [0] * (len(selected) * 8 - len(ids)), ctx


def check(selection, scores, table, rows, kv_heads, pages):
    heads = len(scores)
    each = kv_heads // heads
    for r in range(len(rows)):
        for h in range(heads):
            topk = plain_topk(scores[h, r], -(-int(rows.kv_len[r]) // 128))
            assert selection.topk[h, r].tolist() == topk, (h, r)
            for kv_head in range(h * each, h * each + each):
                entries = table[rows.request[r]] if rows.kv_len[r] else None
                ids, ctx = plain_table(topk, int(rows.kv_len[r]), entries, pages, kv_head, kv_heads)
                sequence = r * kv_heads + kv_head
                assert selection.table[sequence].tolist() == ids, (kv_head, r)
                assert selection.ctx[sequence] == ctx
    assert selection.topk.dtype == selection.table.dtype == selection.ctx.dtype == np.int32
    assert selection.table.shape == (len(rows) * kv_heads, 128)


# ---- selection -------------------------------------------------------------------------------------------------------


def few(name, shape, *words):
    """Scores among a few bit patterns."""
    return np.array(words, np.uint32)[integers(name, shape, 0, len(words))].view(np.float32)


PATTERNS = {
    "random_bits": lambda shape: bits32("scores", shape).view(np.float32),
    "bell": lambda shape: np.float32(integers("bell", shape, -(1 << 20), 1 << 20)) / np.float32(77),
    "equal": lambda shape: np.full(shape, 3.5, np.float32),
    "ties": lambda shape: np.float32(integers("ties", shape, -2, 3)),
    "zeros": lambda shape: few("zeros", shape, 0, 0x80000000),
    "near_zero": lambda shape: few("near", shape, 0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x807FFFFF),
    "nans": lambda shape: few("nans", shape, *NANS),
    "nans_and_infinity": lambda shape: few("infinite", shape, *NANS, 0xFF800000, 0xFF7FFFFF),
    "mostly_nans": lambda shape: few("mostly", shape, *NANS, *NANS, 0x3F800000, 0x7F800000),
    "descending": lambda shape: np.broadcast_to(-np.arange(shape[-1], dtype=np.float32), shape).copy(),
    "ascending": lambda shape: np.broadcast_to(np.arange(shape[-1], dtype=np.float32), shape).copy(),
}


def spoiled(scores, rows):
    """Past a row's blocks lies what would win."""
    past = np.arange(scores.shape[2]) >= rows.blocks[:, None]
    winners = few("past", scores.shape, 0x7F800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x71800000)
    return np.where(past, winners, scores)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_selection_is_the_sorted_order(pattern):
    rows = of_counts(COUNTS)
    scores = spoiled(PATTERNS[pattern]((2, len(rows), 512)), rows)
    table = table_of(pattern, rows)
    check(both(select_blocks, scores, table, rows, kv_heads=2), scores, table, rows, 2, 8)


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (1, 4), (4, 4), (2, 4), (3, 3)])
def test_index_heads_and_kv_heads(heads, kv_heads):
    rows = Rows.decode(np.array([3000, 130, 1, 16 * 128], np.int32), 4)
    scores = spoiled(np.float32(integers(f"{heads}", (heads, len(rows), 64), 0, 20)), rows)
    table = table_of("heads", rows)
    check(both(select_blocks, scores, table, rows, kv_heads=kv_heads), scores, table, rows, kv_heads, 8)
    selection = both(select_blocks, scores, table, rows, kv_heads=kv_heads, pages_per_block=16)
    check(selection, scores, table, rows, kv_heads, 16)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 128, 129, 192])
def test_each_block_can_be_the_best_of_a_row(count):
    rows = rows_of(*[(0, 128 * count - 5)] * count)
    scores = np.zeros((1, count, count), np.float32)
    scores[0, np.arange(count), np.arange(count)] = 1
    topk = both(select_blocks, scores, table_of("best", rows), rows).topk[0]
    assert topk[:, 0].tolist() == list(range(count))
    for r in range(count):
        rest = [b for b in reversed(range(count)) if b != r][:15]
        assert topk[r, 1:].tolist() == rest + [-1] * (15 - len(rest))


def test_without_ties_it_is_torch_topk():
    scores = np.stack([np.float32(permutation(f"torch {r}", 300)) - 150 for r in range(8)]).reshape(2, 4, 300)
    rows = of_counts([300, 16, 299, 77])
    topk = both(select_blocks, scores, table_of("torch", rows), rows, kv_heads=2).topk
    for h in range(2):
        for r, count in enumerate(rows.blocks.tolist()):
            expected = torch.topk(torch.from_numpy(scores[h, r, :count]), 16).indices
            assert topk[h, r].tolist() == expected.tolist()


def test_the_later_block_wins_a_tie_and_minus_zero_loses():
    scores = np.float32([[[0.0, -0.0, 0.0, -0.0, np.nan, -np.inf, 1e-45, -1e-45]]])
    scores.view(np.uint32)[0, 0, 4] = NANS[0]
    rows = rows_of((0, 8 * 128))
    selection = both(select_blocks, scores, np.arange(8, dtype=np.int32)[None], rows)
    assert selection.topk[0, 0].tolist() == [6, 2, 0, 3, 1, 7, 5, 4] + [-1] * 8
    places = [6, 2, 0, 3, 1, 5, 4, 7]  # the row's own block goes last
    assert selection.table[0].tolist() == [8 * b + j for b in places for j in range(8)] + [0] * 64
    assert selection.ctx.tolist() == [1024]


def test_the_longest_row():
    rows = rows_of((0, 8192 * 128 - 100))
    scores = np.float32(integers("longest", (1, 1, 8192), 0, 2000))
    table = table_of("longest", rows)
    check(both(select_blocks, scores, table, rows), scores, table, rows, 1, 8)


@pytest.mark.parametrize("seed", range(12))
def test_random_selections(seed):
    draw = integers(f"selection {seed}", 40, 0, 1 << 20).tolist()
    rows = of_counts([0 if d % 9 == 0 else 1 + d % 200 for d in draw[: 1 + draw[39] % 12]], 1 + draw[38] % 3)
    heads = (1, 2, 4)[draw[37] % 3]
    shape = (heads, len(rows), 200 + draw[36] % 50)
    scores = spoiled(PATTERNS[sorted(PATTERNS)[draw[35] % len(PATTERNS)]](shape), rows)
    table = table_of(f"selection {seed}", rows)
    check(both(select_blocks, scores, table, rows, kv_heads=4), scores, table, rows, 4, 8)


@pytest.mark.parametrize("options", [RunOptions(engine="numpy"), RunOptions(quantum=9, seed=4), RunOptions(threads=2)])
def test_every_way_to_run_selects_the_same(options):
    rows = of_counts([70, 3, 0, 17])
    scores = spoiled(PATTERNS["nans_and_infinity"]((2, 4, 128)), rows)
    table = table_of("ways", rows)
    selection = select_blocks(Runner(compiled().object, options), scores, table, rows, kv_heads=4)
    check(selection, scores, table, rows, 4, 8)


def test_from_keys_to_tables():
    rows = Rows.decode(np.array([40 * 128 + 3, 0, 700], np.int32), 4)
    cache = integers("chain cache", (60, 128, 128), 0, 0x78).astype(np.uint8)
    index_q = integers("chain q", (len(rows), 4, 128), 0, 0xF8).astype(np.uint8) & 0xF7  # no NaN
    table = table_of("chain", rows, most=60)
    scores = both(score_blocks, index_q, cache, table, rows, init_blocks=1, local_blocks=1)
    selection = both(select_blocks, scores, table * 2, rows, kv_heads=4)
    check(selection, scores, table * 2, rows, 4, 8)
    assert (selection.topk[:, 0, 0] == 0).all()
    assert (selection.topk[:, 0, 1] == 39).all()  # row 0 of request 0 ends one block before its last row
    np.testing.assert_array_equal(selection.ctx[4 * 3 : 4 * 4], [15 * 128 + 3] * 4)


def test_rows_that_see_nothing():
    rows = rows_of((5, 0), (-1, 0))
    selection = both(
        select_blocks, np.full((1, 2, 0), np.nan, np.float32), np.zeros((0, 3), np.int32), rows, kv_heads=3
    )
    assert (selection.topk == -1).all()
    assert (selection.table == 0).all()
    assert selection.ctx.tolist() == [0] * 6
    none = Rows(np.zeros(0, np.int32), np.zeros(0, np.int32))
    empty = both(select_blocks, np.zeros((2, 0, 64), np.float32), np.zeros((0, 0), np.int32), none, kv_heads=2)
    assert (empty.topk.shape, empty.table.shape, empty.ctx.shape) == ((2, 0, 16), (0, 128), (0,))


# ---- tables of given selections --------------------------------------------------------------------------------------


def check_built(topk, table, rows, stride):
    built, ctx = both(build_table, topk, table, rows, block_page_stride=stride)
    assert built.shape == (len(rows), 8 * topk.shape[1])
    for r in range(len(rows)):
        entries = table[rows.request[r]] if rows.kv_len[r] else None
        ids, length = plain_table(topk[r].tolist(), int(rows.kv_len[r]), entries, stride)
        assert built[r].tolist() == ids, r
        assert ctx[r] == length, r


@pytest.mark.parametrize("stride", [8, 16])
@pytest.mark.parametrize("k", [1, 3, 16, 33, 64])
def test_tables_of_any_selection(k, stride):
    """Unsorted, with duplicates, blocks of the future, -1 in between and other negatives."""
    rows = of_counts([0, 1, 2, 3, 5, 8, 16, 17, 40, 0, 40, 39])
    topk = integers(f"given {k}", (len(rows), k), -4, 46).astype(np.int32)
    topk[1, 0], topk[5, -1] = 0, 7
    topk[2, :] = 2**31 - 1
    topk[3, :] = -(2**31)
    check_built(topk, table_of(f"given {k}", rows), rows, stride)


@pytest.mark.parametrize("k", [16, 48])
def test_tables_of_distinct_blocks(k):
    rows = of_counts([50, 49, 48, 64, 3])
    topk = np.stack([permutation(f"distinct {r}", 64)[:k] for r in range(len(rows))]).astype(np.int32)
    check_built(topk, table_of("distinct", rows), rows, 16)


def test_tables_of_query_rows():
    rows = Rows.decode(np.array([130, 3, 1000], np.int32), 4)  # rows on both sides of a block's end
    topk = np.tile(np.r_[7, 1, 0, -1, 6, 2].astype(np.int32), (len(rows), 1))
    check_built(topk, table_of("query rows", rows), rows, 8)


def test_a_table_by_hand():
    rows = rows_of((1, 300), (0, 300), (1, 0), (1, 256), (1, 257))
    topk = np.array([[2, 0, 3, -1], [1, 9, 0, -1], [0, 1, 2, 3], [1, 0, 2, 2], [0, 2, 0, 2]], np.int32)
    entries = np.array([[30, 40, -5], [10, 20, 15]], np.int32)
    table, ctx = both(build_table, topk, entries, rows)
    assert table[:, ::8].tolist() == [[80, 120, 0, 0], [320, 240, 0, 0], [0] * 4, [80, 160, 0, 0], [80, 80, 120, 0]]
    assert table[0, :16].tolist() == [*range(80, 88), *range(120, 128)]
    assert ctx.tolist() == [128 + 44, 256, 0, 256, 256 + 1]
    wide, _ = both(build_table, topk, entries, rows, block_page_stride=16)
    assert wide[0, :16].tolist() == [*range(160, 168), *range(240, 248)]


def test_the_own_block_twice_counts_once_and_others_twice():
    rows = rows_of((0, 3 * 128 - 1), (0, 2 * 128), (0, 128))
    topk = np.array([[2, 1, 2, 1], [0, 0, 0, 0], [0, 0, 0, 0]], np.int32)
    table, ctx = both(build_table, topk, np.array([[1, 2, 3]], np.int32), rows)
    assert table[:, ::8].tolist() == [[16, 16, 24, 0], [8] * 4, [8, 0, 0, 0]]
    assert ctx.tolist() == [256 + 127, 256, 128]  # without the own block never more than the row sees


# ---- resources and checks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "vgprs"), [("select_blocks", 64), ("build_table", 32)])
def test_what_the_kernels_take(name, vgprs):
    resources = compiled().resources[name]
    assert (resources.spills, resources.scratch, resources.lds, resources.agprs) == (0, 0, 0, 0)
    assert resources.vgprs <= vgprs


def refused(error, match, **changes):
    rows = rows_of((0, 300), (1, 20))
    given = {
        "scores": np.zeros((2, 2, 64), np.float32),
        "block_table": np.zeros((2, 3), np.int32),
        "rows": rows,
        "kv_heads": 2,
    } | changes
    with pytest.raises(error, match=match):
        select_blocks(Runner(), **given)


def test_selections_that_do_not_fit_are_refused():
    refused(TypeError, "scores has dtype float64; expected float32", scores=np.zeros((2, 2, 64)))
    refused(
        ValueError, r"scores has shape \(2, 3, 64\); expected \(any, 2, any\)", scores=np.zeros((2, 3, 64), np.float32)
    )
    refused(
        ValueError, r"scores has 2 columns; row 0 sees 3 blocks \(kv_len 300\)", scores=np.zeros((2, 2, 2), np.float32)
    )
    refused(ValueError, "scores has 2 index heads for 1 kv heads; expected one index head for each", kv_heads=1)
    refused(ValueError, "scores has 2 index heads for 3 kv heads", kv_heads=3)
    refused(ValueError, "scores has 0 index heads for 2 kv heads", scores=np.zeros((0, 2, 64), np.float32))
    refused(ValueError, "kv_heads is 0; expected 1 to", kv_heads=0)
    refused(TypeError, "pages_per_block is 8.0, a float", pages_per_block=8.0)
    refused(ValueError, "kv_len of row 0 is 385; expected at most 384", rows=rows_of((0, 385), (1, 20)))
    refused(ValueError, "request of row 1 is 2; expected 0 to 1", rows=rows_of((0, 3), (2, 20)))
    refused(TypeError, "rows.kv_len has dtype int64", rows=Rows(np.zeros(2, np.int32), np.zeros(2, np.int64)))


def test_tables_of_nothing_are_refused_by_what_there_is_not():
    refused(
        ValueError,
        "request of row 0 is 0; expected a row of block_table, which has none",
        block_table=np.zeros((0, 3), np.int32),
    )
    refused(ValueError, "kv_len of row 0 is 300; .* at most 0, by the 0 col", block_table=np.zeros((2, 0), np.int32))


@pytest.mark.parametrize("kv_heads", [2**31 - 2, 2**26])
def test_more_sequences_than_the_attend_takes_are_refused(kv_heads):
    match = f"kv_heads is {kv_heads} for 2 rows; expected at most 33554432: a table is of at most 67108864 sequences"
    refused(ValueError, match, kv_heads=kv_heads)
    scores, rows = np.zeros((1, 1, 64), np.float32), rows_of((0, 300))
    match = "kv_heads is 2147483647 for 1 rows; expected at most 67108864"
    refused(ValueError, match, scores=scores, rows=rows, kv_heads=2**31 - 1)


def test_the_selections_limit_is_the_attends():
    assert MAX_SEQUENCES == MAX_PARTS


@pytest.mark.parametrize(("pages", "kv_heads"), [(8, 2), (16, 2), (8, 4), (16, 6)])
def test_page_ids_stay_int32(pages, kv_heads):
    rows = rows_of((0, 300), (1, 20))
    stop = entries_below(pages, kv_heads)
    assert (stop - 1) * pages * kv_heads + 8 * kv_heads - 1 < 2**31 <= stop * pages * kv_heads + 8 * kv_heads - 1
    table = np.array([[0, 1, stop - 1], [stop - 1, -1, -1]], np.int32)
    scores = np.zeros((2, 2, 64), np.float32)
    selection = both(select_blocks, scores, table, rows, kv_heads=kv_heads, pages_per_block=pages)
    check(selection, scores, table, rows, kv_heads, pages)
    table[0, 2] = stop
    match = rf"block_table\[0, 2\] is {stop}, read for row 0; expected 0 to {stop - 1}, so that its pages are int32"
    refused(ValueError, match, block_table=table, kv_heads=kv_heads, pages_per_block=pages)
    refused(ValueError, r"block_table\[1, 0\] is -3", block_table=np.array([[0] * 3, [-3] * 3], np.int32))


def refused_table(error, match, topk=None, table=None, rows=None, **options):
    topk = np.zeros((2, 4), np.int32) if topk is None else topk
    table = np.zeros((2, 3), np.int32) if table is None else table
    with pytest.raises(error, match=match):
        build_table(Runner(), topk, table, rows or rows_of((0, 300), (1, 20)), **options)


def test_given_selections_that_do_not_fit_are_refused():
    refused_table(TypeError, "topk has dtype int64; expected int32", np.zeros((2, 4), np.int64))
    refused_table(ValueError, r"topk has shape \(3, 4\); expected \(2, any\)", np.zeros((3, 4), np.int32))
    refused_table(ValueError, "topk has 65 columns; expected 1 to 64", np.zeros((2, 65), np.int32))
    refused_table(ValueError, "topk has 0 columns; expected 1 to 64", np.zeros((2, 0), np.int32))
    refused_table(ValueError, r"block_page_stride is 12; expected 8 \(planes\) or 16", block_page_stride=12)
    refused_table(TypeError, "block_page_stride is 8.0, a float; expected a whole number", block_page_stride=8.0)
    refused_table(TypeError, "block_page_stride is None", block_page_stride=None)
    refused_table(ValueError, "request of row 0 is 0; expected a row of block_tab", table=np.zeros((0, 3), np.int32))
    refused_table(ValueError, "kv_len of row 1 is -1", rows=rows_of((0, 300), (1, -1)))
    table = np.array([[0, 1, -7], [0, 2**27, 2**27]], np.int32)
    topk = np.array([[0, 1, 3, -1], [0, 1, 2, 2]], np.int32)
    build_table(Runner(), topk, table, rows_of((0, 300), (1, 20)), block_page_stride=16)  # none of those is selected
    topk[0, 3] = 2
    refused_table(ValueError, r"block_table\[0, 2\] is -7, read for row 0; expected 0 to 268435455", topk, table)
    rows = rows_of((0, 20), (1, 200))
    match = r"block_table\[1, 1\] is 134217728, read for row 1; expected 0 to 134217727, so that its pages are int32"
    refused_table(ValueError, match, topk, table, rows, block_page_stride=16)
    build_table(Runner(), topk, table, rows, block_page_stride=8)
