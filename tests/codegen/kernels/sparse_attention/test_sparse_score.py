"""Index scores: source and gfx950 code against matrices in the stated order, and against exact sums."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.kernels.sparse_attention.launch import Runner, program
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.score import index_score, score_block_width, score_blocks, tiles_of
from emu import mfma
from emu.dispatch import RunOptions
from gfx950.random_bits import integers, permutation

UNSCORED = 0x7FC0DEAD
NAN_CODES = (0x7F, 0xFF)
E4M3 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
FINITE = np.flatnonzero(np.isfinite(E4M3)).astype(np.uint8)


@functools.cache
def compiled():
    return compile_kernels([program(index_score)])


def both(*arguments, **options):
    """The source's scores, after the machine code gave the same bits and neither wrote to what it read."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    before = [a.copy() for a in arrays]
    source = score_blocks(Runner(), *arguments, **options)
    machine = score_blocks(Runner(code_object=compiled().object), *arguments, **options)
    np.testing.assert_array_equal(source.view(np.uint32), machine.view(np.uint32))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))
    return source


def codes(name, shape, allowed=FINITE):
    return np.asarray(allowed, np.uint8)[integers(name, shape, 0, len(allowed))]


def case(name, rows, heads, allowed=FINITE, spare=3):
    """Index queries, a cache with NaN in every key that no row sees, and a block table with stale columns."""
    live = rows.kv_len > 0
    requests = int(rows.request[live].max(initial=0)) + 1
    lengths = np.zeros(requests, np.int64)
    np.maximum.at(lengths, rows.request[live], rows.kv_len[live])
    blocks = -(-lengths // 128)
    cache = codes(f"{name} nan", (int(blocks.sum()) + spare, 128, 128), NAN_CODES)
    table = np.where(integers(f"{name} stale", (requests, int(blocks.max()) + 2), 0, 2), -(2**31), 2**31 - 1)
    order = permutation(f"{name} order", len(cache)).tolist()
    for request, count in enumerate(blocks):
        for column in range(count):
            table[request, column] = order.pop()
            keys = min(int(lengths[request]) - 128 * column, 128)
            cache[table[request, column], :keys] = codes(f"{name} {request} {column}", (keys, 128), allowed)
    return codes(f"{name} q", (len(rows), heads, 128), allowed), cache, table.astype(np.int32), rows


def by_matrices(index_q, cache, table, rows, init=0, local=0):
    """{(head, row, block): float32 score} with every tile of 16 keys as one matrix instruction from +0."""
    places = [(r, b) for r in range(len(rows)) for b in range(-(-int(rows.kv_len[r]) // 128))]
    keys = np.stack([cache[table[rows.request[r], b]] for r, b in places]).reshape(-1, 8, 16, 128)
    columns = np.zeros((len(places), 1, 128, 16), np.uint8)
    heads = index_q.shape[1]
    for place, (r, _) in enumerate(places):
        columns[place, 0, :, :heads] = index_q[r].T
    columns = np.broadcast_to(columns, (len(places), 8, 128, 16))
    products = mfma("v_mfma_f32_16x16x128_f8f6f4", keys.astype(np.int64), columns.astype(np.int64), 0, codes=True)
    result = {}
    for place, (r, b) in enumerate(places):
        seen = products[place].reshape(128, 16)[: int(rows.kv_len[r]) - 128 * b, :heads]
        count = -(-int(rows.kv_len[r]) // 128)
        for head in range(heads):
            numbers = seen[:, head][~np.isnan(seen[:, head])]
            score = numbers.max() if len(numbers) else -np.inf
            result[head, r, b] = np.float32(1e29 if b >= count - local else 1e30 if b < init else score)
    return result


def check(scores, expected):
    """Exactly the expected scores, and the poison everywhere else."""
    wanted = np.full(scores.shape, UNSCORED, np.uint32)
    for place, score in expected.items():
        wanted[place] = np.float32(score).view(np.uint32)
    np.testing.assert_array_equal(scores.view(np.uint32), wanted)


def rows_of(*pairs):
    request, kv_len = zip(*pairs, strict=True)
    return Rows(np.array(request, np.int32), np.array(kv_len, np.int32))


def decode(lengths, query_len):
    return Rows.decode(np.array(lengths, np.int32), query_len)


CASES = {
    "one_key": (rows_of((0, 1)), 1),
    "ends": (decode([127, 128, 129, 255, 256, 257], 1), 1),
    "full_tiles": (decode([4, 130, 300], 4), 4),
    "three_heads": (decode([131, 9], 7), 3),
    "sixteen_heads": (decode([200, 129], 2), 16),
    "chunks": (decode([16 * 128, 33 * 128 + 5], 1), 4),
    "prefill": (Rows.prefill(np.repeat([0, 1, 0], [20, 3, 2]), np.r_[120:140, 5:8, 500:502]), 4),
    "padding": (rows_of((0, 300), (0, 0), (0, 301), (99, 0), (-5, 0), (1, 40), (1, 0)), 4),
    "far_apart": (rows_of((0, 2), (0, 900), (0, 17), (0, 129)), 4),
}


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_matrices(name):
    arguments = case(name, *CASES[name])
    check(both(*arguments), by_matrices(*arguments))


@pytest.mark.parametrize("options", [RunOptions(engine="numpy"), RunOptions(quantum=9, seed=4), RunOptions(threads=2)])
def test_every_way_to_run_gives_the_same_scores(options):
    arguments = case("chunks", *CASES["chunks"])
    scores = score_blocks(Runner(compiled().object, options), *arguments, local_blocks=1)
    check(scores, by_matrices(*arguments, 0, 1))


@pytest.mark.parametrize("seed", range(20))
def test_random_rows(seed):
    draw = integers(f"random scores {seed}", 40, 0, 1 << 20).tolist()
    heads = 1 + draw[0] % 16
    pairs = [(d % 3, 0 if d % 7 == 0 else 1 + draw[20 + i] % 900) for i, d in enumerate(draw[1 : 2 + draw[39] % 15])]
    pairs = sorted(pairs) if draw[38] % 2 else pairs
    arguments = case(f"random {seed}", rows_of((0, 130), *pairs), heads)
    forced = {"init_blocks": draw[36] % 3, "local_blocks": draw[37] % 3}
    check(both(*arguments, **forced), by_matrices(*arguments, *forced.values()))


def test_small_integers_are_scored_exactly():
    small = np.flatnonzero(np.isin(E4M3, np.arange(-8, 9))).astype(np.uint8)
    index_q, cache, table, rows = case("integers", decode([260, 64], 3), 5, small)
    expected = {}
    for r in range(len(rows)):
        keys = np.concatenate([E4M3[cache[p]] for p in table[rows.request[r]] if 0 <= p < len(cache)])
        products = keys[: rows.kv_len[r]] @ E4M3[index_q[r]].T
        for b in range(-(-len(products) // 128)):
            for head in range(5):
                expected[head, r, b] = products[128 * b : 128 * b + 128, head].max()
    check(both(index_q, cache, table, rows), expected)


def test_a_nan_is_no_maximum():
    index_q, cache, table, rows = case("nan", decode([400], 2), 2)
    cache[table[0, 0]] = 0x7F  # no number among the block's products
    cache[table[0, 1], 1:, 5] = 0xFF  # one
    cache[table[0, 2], ::2, 99] = 0x7F
    index_q[1, 1, 64] = 0xFF  # and none for this row and head
    scores = both(index_q, cache, table, rows)
    check(scores, by_matrices(index_q, cache, table, rows))
    assert np.isneginf(scores[:, :, 0]).all()
    assert np.isneginf(scores[1, 1, :4]).all()
    assert np.isfinite(scores[0, :, 1:4]).all()


def test_keys_past_a_row_that_others_see_do_not_count():
    rows = rows_of((0, 5), (0, 6), (0, 133))
    index_q, cache = np.full((3, 2, 128), 0x38, np.uint8), np.full((2, 128, 128), 0x38, np.uint8)
    cache[0, 5], cache[0, 6:] = 0x40, 0x48  # ones, then twos, then fours
    scores = both(index_q, cache, np.array([[0, 1]], np.int32), rows)
    np.testing.assert_array_equal(scores[:, :, 0], [[128, 256, 512]] * 2)
    np.testing.assert_array_equal(scores[:, 2, 1], [128, 128])


@pytest.mark.parametrize(("low", "score"), [(0x38, 128.0), (0xB8, -128.0), (0x00, 0.0), (0x80, 0.0), (0x01, 0.25)])
def test_equal_products(low, score):
    scores = both(
        np.full((1, 1, 128), 0x38, np.uint8), np.full((1, 128, 128), low, np.uint8), np.zeros((1, 1), np.int32),
        rows_of((0, 100)),
    )  # fmt: skip
    check(scores, {(0, 0, 0): score})


@pytest.mark.parametrize(("init", "local"), [(1, 0), (0, 1), (2, 2), (3, 1), (1, 3), (100, 0), (2**31 - 1, 2**31 - 1)])
def test_forced_blocks_are_local_before_initial(init, local):
    arguments = case("forced", decode([1, 129, 600], 2), 2)
    scores = both(*arguments, init_blocks=init, local_blocks=local)
    check(scores, by_matrices(*arguments, init, local))
    assert (scores[:, 4:, 0] == np.float32(1e29 if local >= 5 else 1e30 if init else scores[:, 4:, 0])).all()


def test_a_forced_block_outranks_the_largest_product():
    most = np.full((1, 128, 128), 0x7E, np.uint8)  # 448 each
    scores = both(most[:, :1], np.repeat(most, 3, 0), np.arange(3, dtype=np.int32)[None], rows_of((0, 300)),
                  init_blocks=1, local_blocks=1)  # fmt: skip
    np.testing.assert_array_equal(scores[0, 0, :3], np.float32([1e30, 448 * 448 * 128, 1e29]))


def test_rows_that_see_nothing_are_left_alone():
    index_q, cache = np.full((2, 3, 128), 0x7F, np.uint8), np.zeros((0, 128, 128), np.uint8)
    scores = both(index_q, cache, np.full((1, 4), -1, np.int32), rows_of((7, 0), (-1, 0)))
    assert scores.shape == (3, 2, 64)
    check(scores, {})
    none = Rows(np.zeros(0, np.int32), np.zeros(0, np.int32))
    assert both(index_q[:0], cache, np.zeros((0, 0), np.int32), none).shape == (3, 0, 64)


def test_the_width_may_be_given():
    arguments = case("width", decode([300], 1), 1)
    assert both(*arguments, width=3).shape == (1, 1, 3)
    assert both(*arguments, width=77).shape == (1, 1, 77)
    assert both(*arguments).shape == (1, 1, 64)
    with pytest.raises(ValueError, match="width is 2; expected 3 to"):
        both(*arguments, width=2)


@pytest.mark.parametrize(
    ("tokens", "width"),
    [
        (0, 64),
        (1, 64),
        (64 * 128, 64),
        (64 * 128 + 1, 128),
        (128 * 128 + 1, 256),
        (192 * 128 + 1, 256),
        (1 << 20, 8192),
    ],
)
def test_the_width_is_a_power_of_two_of_strips(tokens, width):
    assert score_block_width(tokens) == width
    assert score_block_width(tokens * 2, 256) == score_block_width(tokens * 2 - (tokens > 0), 256) == width


def test_tiles_are_runs_of_one_request():
    rows = rows_of((0, 5), (0, 200), (0, 7), (1, 7), (1, 0), (1, 300), (0, 1))
    assert tiles_of(rows, 8).tolist() == [[0, 2, 0, 2], [2, 1, 0, 1], [3, 1, 1, 1], [5, 1, 1, 3], [6, 1, 0, 1]]
    assert tiles_of(rows, 9).tolist()[1] == [1, 1, 0, 2]
    assert tiles_of(rows, 1).tolist()[0] == [0, 3, 0, 2]


def test_the_longest_row():
    rows = rows_of((0, 8192 * 128 - 3))
    index_q, cache = codes("longest q", (1, 2, 128)), codes("longest", (64, 128, 128))
    table = integers("longest table", (1, 8192), 0, 64).astype(np.int32)
    scores = both(index_q, cache, table, rows)
    assert scores.shape == (2, 1, 8192)
    whole = by_matrices(index_q, cache, np.arange(64, dtype=np.int32)[None], rows_of((0, 64 * 128)))
    for head in range(2):
        of_block = np.array([whole[head, 0, b] for b in range(64)])
        np.testing.assert_array_equal(scores[head, 0, :-1], of_block[table[0, :-1]])


def test_what_the_kernel_takes():
    resources = compiled().resources["index_score"]
    assert (resources.spills, resources.scratch, resources.lds, resources.agprs) == (0, 0, 0, 0)
    assert resources.vgprs <= 128
    assert resources.instructions["v_mfma_f32_16x16x128_f8f6f4"] == 8


# ---- checks ----------------------------------------------------------------------------------------------------------


def refused(error, match, **changes):
    index_q, cache, table, rows = case("refused", decode([300, 20], 1), 2)
    given = {"index_q": index_q, "index_cache": cache, "block_table": table, "rows": rows} | changes
    with pytest.raises(error, match=match):
        score_blocks(Runner(), **given)


def test_arrays_that_do_not_fit_are_refused():
    refused(TypeError, "index_q has dtype float32; expected uint8", index_q=np.zeros((2, 2, 128), np.float32))
    refused(
        ValueError, r"index_q has shape \(2, 2, 64\); expected \(2, any, 128\)", index_q=np.zeros((2, 2, 64), np.uint8)
    )
    refused(ValueError, "index_q has 17 heads; expected 1 to 16", index_q=np.zeros((2, 17, 128), np.uint8))
    refused(ValueError, "index_q has 0 heads; expected 1 to 16", index_q=np.zeros((2, 0, 128), np.uint8))
    refused(ValueError, "index_q is not C-contiguous", index_q=np.zeros((2, 128, 2), np.uint8).transpose(0, 2, 1))
    refused(ValueError, r"index_cache has shape \(3, 16, 128\)", index_cache=np.zeros((3, 16, 128), np.uint8))
    refused(TypeError, "block_table has dtype int64; expected int32", block_table=np.zeros((2, 3), np.int64))
    refused(TypeError, "rows is a tuple; expected a Rows", rows=(1, 2))


def test_numbers_that_do_not_fit_are_refused():
    refused(ValueError, "init_blocks is -1; expected 0 to 2147483647", init_blocks=-1)
    refused(TypeError, "local_blocks is True, a bool; expected a whole number", local_blocks=True)
    refused(TypeError, "width is 64.0, a float; expected a whole number", width=64.0)
    with pytest.raises(ValueError, match="block_size is 0; expected 1 to"):
        score_block_width(5, 0)


def test_block_tables_that_do_not_fit_are_refused():
    table = np.array([[0, 1, 5], [2, -9, 2**31 - 1]], np.int32)
    cache = np.zeros((5, 128, 128), np.uint8)
    refused(
        ValueError,
        r"block_table\[0, 2\] is 5, read for row 0; expected 0 to 4, the blocks of index_cache",
        block_table=table, index_cache=cache,
    )  # fmt: skip
    refused(
        ValueError,
        r"block_table\[1, 1\] is -9, read for row 1; expected 0 to 5",
        block_table=table, index_cache=np.zeros((6, 128, 128), np.uint8), rows=rows_of((0, 300), (1, 129)),
    )  # fmt: skip


def test_a_cache_without_blocks_has_none_to_read():
    refused(
        ValueError,
        r"block_table\[0, 0\] is \d+, read for row 0; expected one of the blocks of index_cache, and there are none",
        index_cache=np.zeros((0, 128, 128), np.uint8),
    )
    refused(
        ValueError,
        "request of row 0 is 0; expected a row of block_table, which has none",
        block_table=np.zeros((0, 3), np.int32),
    )


@pytest.mark.parametrize(
    ("heads", "error", "message"),
    [
        (0, ValueError, "heads is 0; expected 1 to 16: a matrix instruction has that many columns"),
        (-1, ValueError, "heads is -1; expected 1 to 16"),
        (17, ValueError, "heads is 17; expected 1 to 16"),
        (1.0, TypeError, "heads is 1.0, a float; expected a whole number"),
    ],
)
def test_tiles_are_of_1_to_16_heads(heads, error, message):
    with pytest.raises(error, match=message):
        tiles_of(rows_of((0, 3)), heads)


def test_rows_that_do_not_fit_are_refused():
    wide = np.zeros((2, 8200), np.int32)
    refused(ValueError, "kv_len of row 1 is -3; expected 0 or more", rows=rows_of((0, 3), (0, -3)))
    refused(ValueError, "request of row 1 is 2; expected 0 to 1", rows=rows_of((0, 3), (2, 3)))
    refused(ValueError, "request of row 0 is -1; expected 0 to 1", rows=rows_of((-1, 3), (0, 3)))
    refused(
        ValueError, "kv_len of row 0 is 641; expected at most 640, by the 5 columns", rows=rows_of((0, 641), (0, 3))
    )
    rows = rows_of((0, 3), (1, 8192 * 128 + 1))
    refused(ValueError, "kv_len of row 1 is 1048577; .* by the limit of 8192 blocks", rows=rows, block_table=wide)
