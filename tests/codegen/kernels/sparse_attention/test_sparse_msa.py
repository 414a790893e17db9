"""AITER's names for scoring and selecting: what is written into the tensors given, and which limits are refused."""

import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention.msa_attention import (
    aiter_indexer_unsupported_reason,
    pa_sparse_block_score_decode,
    pa_sparse_block_score_prefill,
    pa_sparse_block_topk,
)
from tests.codegen.kernels.sparse_attention.torch_problems import FP8

GARBAGE = -12345.0


def index_problem(lens, heads=1, seed=3):
    """Index keys of requests in shuffled blocks, NaN bytes everywhere else, garbage table entries past the requests."""
    random = torch.Generator().manual_seed(seed)
    blocks = [-(-n // 128) for n in lens]
    order = torch.randperm(sum(blocks) + 2, generator=random).tolist()
    table = torch.full((len(lens), max(blocks) + 2), -77, dtype=torch.int32)
    cache = torch.full((sum(blocks) + 2, 128, 128), 0x7F, dtype=torch.uint8)
    for request, n in enumerate(lens):
        for position in range(n):
            if position % 128 == 0:
                table[request, position // 128] = order.pop()
            key = torch.randn(128, generator=random).to(FP8).view(torch.uint8)
            cache[int(table[request, position // 128]), position % 128] = key
    return cache.view(FP8), table, random


def scored(cache, table, query, request, length):
    """A row's scores of its blocks, float64: the largest dot product with a key that it sees."""
    keys = torch.cat([cache[int(b)] for b in table[request, : -(-length // 128)]])[:length].to(torch.float64)
    dots = query.to(torch.float64) @ keys.T
    return torch.stack([part.max(1).values for part in dots.split(128, 1)], 1)


def check_scores(score, cache, table, iq, rows, forced=()):
    for n, (request, length) in enumerate(rows):
        blocks = -(-length // 128) if length > 0 else 0
        if blocks:
            exact = scored(cache, table, iq[n], request, length)
            for block, value in forced:
                exact[:, block if block >= 0 else blocks + block] = value
            assert torch.allclose(score[:, n, :blocks].to(torch.float64), exact, rtol=1e-5, atol=1e-4), n
        assert bool((score[:, n, blocks:] == GARBAGE).all()), n


def decode_scores(lens, heads=1, query_len=1, engine="host", **keywords):
    cache, table, random = index_problem(lens)
    rows = [(r, n - query_len + t + 1) for r, n in enumerate(lens) for t in range(query_len)]
    iq = torch.randn((len(rows), heads, 128), generator=random).to(FP8)
    score = torch.full((heads, len(rows), 64), GARBAGE)
    seq_lens = torch.tensor(lens, dtype=torch.int32)
    result = pa_sparse_block_score_decode(
        iq, cache, score, table, seq_lens, query_len=query_len, max_seq_len=max(lens), engine=engine, **keywords
    )
    assert result is None
    return score, cache, table, iq, rows


@pytest.mark.parametrize(("heads", "query_len"), [(1, 1), (4, 4), (1, 3)])
def test_decode_scores_are_the_largest_visible_products(heads, query_len):
    results = [decode_scores([300, 5, 128, 2], heads, query_len, engine) for engine in ("source", "host")]
    assert torch.equal(results[0][0].view(torch.int32), results[1][0].view(torch.int32))
    check_scores(*results[1])


def test_forced_blocks_have_scores_of_their_own():
    score, *rest = decode_scores([700, 300], init_blocks=2, local_blocks=1)
    check_scores(score, *rest, forced=[(0, 1e30), (1, 1e30), (-1, 1e29)])


def test_prefill_scores_are_those_of_decode_for_the_same_rows():
    lens = [300, 130]
    cache, table, random = index_problem(lens)
    iq = torch.randn((4, 2, 128), generator=random).to(FP8)
    seq_lens = torch.tensor(lens, dtype=torch.int32)
    outs = [torch.full((2, 4, 64), GARBAGE) for _ in range(2)]
    pa_sparse_block_score_decode(iq, cache, outs[0], table, seq_lens, query_len=2, max_seq_len=300)
    offsets = torch.tensor([0, 2, 4], dtype=torch.int32)
    pa_sparse_block_score_prefill(iq, cache, outs[1], table, offsets, seq_lens, max_query_len=2, max_seq_len=300)
    assert torch.equal(*outs)
    check_scores(outs[1], cache, table, iq, [(0, 299), (0, 300), (1, 129), (1, 130)])


def test_ragged_prefill_rows_and_a_strided_score():
    lens = [5, 300, 131]
    cache, table, random = index_problem(lens)
    iq = torch.randn((4, 1, 128), generator=random).to(FP8)
    whole = torch.full((1, 8, 2, 64), GARBAGE)
    score = whole[:, 3:7, 1]
    offsets = torch.tensor([0, 1, 1, 4], dtype=torch.int32)
    pa_sparse_block_score_prefill(
        iq, cache, score, table, offsets, torch.tensor(lens, dtype=torch.int32), max_query_len=3, max_seq_len=300
    )
    check_scores(score, cache, table, iq, [(0, 5), (2, 129), (2, 130), (2, 131)])
    assert bool((whole[:, :, 0] == GARBAGE).all())


# ---- selection -------------------------------------------------------------------------------------------------------


def expected_selection(score, blocks):
    """Best first, the larger block of a tie first, NaN as -inf."""
    value = np.where(np.isnan(score[:blocks]), -np.inf, score[:blocks])
    return sorted(range(blocks), key=lambda b: (-value[b], -b))[:16]


def topk(score, table, rows, kv_heads=1, stale=-99, **keywords):
    """pa_sparse_block_topk into slices of larger buffers; rows: (request, kv_len), given as ragged rows."""
    heads, count = score.shape[:2]
    buffer = torch.full((heads, count + 3, 16), stale, dtype=torch.int32)
    bt = torch.full((count * kv_heads, 128), stale, dtype=torch.int32)
    ctx = torch.full((count * kv_heads,), stale, dtype=torch.int32)
    request, kv_lens = (torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True))
    result = pa_sparse_block_topk(
        score,
        buffer[:, 1 : count + 1],
        table,
        None,
        bt,
        ctx,
        int(kv_lens.max()),
        128,
        num_valid_pages=-(-kv_lens // 128),
        row_req_id=request,
        kv_lens=kv_lens,
        num_kv_heads=kv_heads,
        **keywords,
    )
    assert result is None
    assert bool((buffer[:, [0, count + 1, count + 2]] == stale).all())
    return buffer[:, 1 : count + 1], bt, ctx


@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (1, 4), (4, 4)])
def test_the_best_blocks_and_their_pages_are_written(heads, kv_heads):
    rows = [(0, 2500), (1, 300), (0, 1), (1, 0), (1, 128)]
    random = np.random.default_rng(5)
    score = random.integers(-3, 4, (heads, 5, 64)).astype(np.float32)
    score[:, 0, [3, 7]] = np.nan, -np.inf
    for row, (_, length) in enumerate(rows):
        score[:, row, -(-length // 128) :] = np.inf  # past the row: never read
    table = torch.from_numpy(2 * random.permutation(60).astype(np.int32).reshape(2, 30))
    got, bt, ctx = topk(torch.from_numpy(score), table, rows, kv_heads)
    source = topk(torch.from_numpy(score), table, rows, kv_heads, engine="source")
    assert all(torch.equal(*pair) for pair in zip((got, bt, ctx), source, strict=True))
    for row, (request, length) in enumerate(rows):
        blocks = -(-length // 128)
        for head in range(heads):
            best = expected_selection(score[head, row], blocks)
            assert got[head, row].tolist() == best + [-1] * (16 - len(best))
        for kv_head in range(kv_heads):
            best = expected_selection(score[kv_head * heads // kv_heads, row], blocks)
            order = [b for b in best if b < blocks - 1] + [b for b in best if b == blocks - 1]
            pages = [(int(table[request, b]) * 8 + j) * kv_heads + kv_head for b in order for j in range(8)]
            assert bt[row * kv_heads + kv_head].tolist() == pages + [0] * (128 - len(pages))
            tail = blocks - 1 in best
            assert int(ctx[row * kv_heads + kv_head]) == 128 * (len(best) - tail) + (length - 128 * (blocks - 1)) * tail


def test_uniform_rows_follow_from_lengths():
    score = torch.arange(4 * 64, dtype=torch.float32).reshape(1, 4, 64)
    table = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    outs = [torch.empty((1, 4, 16), dtype=torch.int32), torch.empty((4, 128), dtype=torch.int32)]
    ctx = torch.empty(4, dtype=torch.int32)
    lens = torch.tensor([258, 1], dtype=torch.int32)
    pa_sparse_block_topk(score, outs[0], table, lens, outs[1], ctx, 258, 128, query_len=2)
    ragged = topk(score, table, [(0, 257), (0, 258), (1, 0), (1, 1)])
    assert all(torch.equal(*pair) for pair in zip((*outs, ctx), ragged, strict=True))
    assert ctx.tolist() == [257, 258, 0, 1]


# ---- limits ----------------------------------------------------------------------------------------------------------

MODEL = {
    "topk_blocks": 16,
    "sparse_block_size": 128,
    "num_index_heads": 4,
    "index_head_dim": 128,
    "indexer_kv_dtype": "fp8",
    "max_model_len": 1 << 20,
    "max_decode_query_len": 4,
    "score_type": "max",
}


def test_the_model_is_supported():
    assert aiter_indexer_unsupported_reason(**MODEL) is None
    assert aiter_indexer_unsupported_reason(**{**MODEL, "indexer_kv_dtype": "fp8_e4m3"}) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"topk_blocks": 32}, "selects 32 blocks a row; the selection takes 16"),
        ({"sparse_block_size": 64}, "blocks are of 64 tokens; an index block is of 128"),
        ({"index_head_dim": 64}, "heads have 64 dims; an index key has 128"),
        ({"score_type": "mean"}, "score_type is 'mean'; a block's score is the 'max'"),
        ({"indexer_kv_dtype": "bf16"}, "index cache is bf16; the scores are of e4m3 keys: fp8 or fp8_e4m3"),
        ({"max_model_len": (1 << 20) + 1}, "max_model_len 1048577 is 8193 blocks; a row can rank 8192"),
        ({"num_index_heads": 0}, "it has 0 index heads; a row needs 1 to 16"),
        ({"num_index_heads": -1}, "it has -1 index heads; a row needs 1 to 16"),
        ({"max_decode_query_len": 0}, "its decode requests have 0 rows; one has at least 1"),
        ({"max_model_len": -1}, "max_model_len is -1; a request has 0 tokens or more"),
        ({"max_decode_query_len": 5}, "4 index heads x 5 rows of a decode request exceed the 16 columns"),
    ],
)
def test_what_is_not_supported_is_told_with_what_is(changed, reason):
    told = aiter_indexer_unsupported_reason(**{**MODEL, **changed})
    assert told is not None
    assert reason in told


@pytest.mark.parametrize(
    "name",
    ["topk_blocks", "sparse_block_size", "num_index_heads", "index_head_dim", "max_model_len", "max_decode_query_len"],
)
@pytest.mark.parametrize("value", [16.0, "16", None, True])
def test_the_sizes_of_a_model_are_whole_numbers(name, value):
    with pytest.raises(TypeError, match=f"{name} is {value!r}, a {type(value).__name__}; expected a whole number"):
        aiter_indexer_unsupported_reason(**{**MODEL, name: value})


def refused_topk(**changed):
    given = {
        "score": torch.zeros((1, 2, 64)),
        "topk_idx": torch.zeros((1, 2, 16), dtype=torch.int32),
        "block_table": torch.zeros((2, 4), dtype=torch.int32),
        "seq_lens": torch.tensor([5, 300], dtype=torch.int32),
        "sparse_bt": torch.zeros((2, 128), dtype=torch.int32),
        "sparse_ctx": torch.zeros(2, dtype=torch.int32),
        "max_seq_len": 300,
        "block_size": 128,
    }
    pa_sparse_block_topk(**{**given, **changed})


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({}, None, ""),
        ({"block_size": 64}, ValueError, "block_size is 64"),
        ({"pages_per_block": 16}, ValueError, "pages_per_block 16"),
        ({"query_len": 0}, ValueError, "query_len is 0"),
        ({"max_seq_len": 299}, ValueError, "max_seq_len is 299, and a row sees 300 tokens"),
        ({"max_seq_len": 1 << 21}, ValueError, "is 16384 blocks; a row can rank 8192"),
        ({"max_seq_len": 1 << 14}, ValueError, r"score is 64 blocks wide; expected 128: score_block_width\(16384\)"),
        ({"score": torch.zeros((1, 3, 64))}, ValueError, r"score has shape \(1, 3, 64\)"),
        ({"score": torch.zeros((1, 2, 64), dtype=torch.float64)}, TypeError, "score is float64; expected float32"),
        ({"topk_idx": torch.zeros((1, 2, 8), dtype=torch.int32)}, ValueError, r"topk_idx has shape \(1, 2, 8\)"),
        ({"topk_idx": torch.zeros((1, 2, 16))}, TypeError, "topk_idx is float32; expected int32"),
        (
            {"sparse_bt": torch.zeros((2, 64), dtype=torch.int32)},
            ValueError,
            r"sparse_bt has shape \(2, 64\); expected .*: a sequence for each of \d+ rows and num_kv_heads=\d+$",
        ),
        ({"sparse_ctx": torch.zeros(3, dtype=torch.int32)}, ValueError, r"sparse_ctx has shape \(3,\)"),
        ({"block_table": torch.zeros((2, 2), dtype=torch.int32)}, ValueError, "kv_len of row 1 is 300"),
        ({"num_valid_pages": integers(1, 3)}, ValueError, "without row_req_id or kv_lens; ragged rows need all three"),
        (
            {"num_valid_pages": integers(1, 2), "row_req_id": integers(0, 1), "kv_lens": integers(5, 300)},
            ValueError,
            r"num_valid_pages\[1\] is 2, but the 300 tokens of kv_lens\[1\] are 3 blocks",
        ),
    ],
)
def test_arguments_of_the_selection(changed, error, message):
    if error is None:
        refused_topk(**changed)
        return
    with pytest.raises(error, match=message):
        refused_topk(**changed)


def refused_prefill(**changed):
    given = {
        "iq": torch.zeros((3, 1, 128), dtype=FP8),
        "kv": torch.zeros((4, 128, 128), dtype=FP8),
        "score": torch.zeros((1, 3, 64)),
        "block_table": torch.zeros((2, 4), dtype=torch.int32),
        "cu_seqlens_q": integers(0, 1, 3),
        "seq_lens": integers(5, 300),
        "max_query_len": 2,
        "max_seq_len": 300,
    }
    pa_sparse_block_score_prefill(**{**given, **changed})


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({}, None, ""),
        ({"max_query_len": 1}, ValueError, "max_query_len is 1, and a request has 2"),
        ({"max_seq_len": 0}, ValueError, "max_seq_len is 0, and a request has 300"),
        ({"cu_seqlens_q": integers(0, 2, 1)}, ValueError, "start at 0 and never fall"),
        ({"cu_seqlens_q": integers(1, 2, 3)}, ValueError, "start at 0 and never fall"),
        ({"cu_seqlens_q": integers(0, 3)}, ValueError, r"cu_seqlens_q has shape \(2,\); expected \(3,\)"),
        ({"iq": torch.zeros((3, 17, 128), dtype=FP8), "score": torch.zeros((17, 3, 64))}, ValueError, "17 index heads"),
        ({"iq": torch.zeros((3, 1, 64), dtype=FP8)}, ValueError, r"iq has shape \(3, 1, 64\)"),
        ({"iq": torch.zeros((3, 1, 128))}, TypeError, "iq is float32; expected float8_e4m3fn or uint8"),
        ({"kv": torch.zeros((4, 64, 128), dtype=FP8)}, ValueError, r"kv has shape \(4, 64, 128\)"),
        ({"kv": torch.zeros((4, 128, 128), dtype=torch.float8_e5m2)}, TypeError, "other exponent bits"),
        ({"kv": torch.zeros((4, 128, 128), dtype=torch.float8_e4m3fnuz)}, TypeError, "gfx942's format"),
        ({"score": torch.zeros((1, 3, 2))}, ValueError, "score is 2 blocks wide; expected at least 3, which row"),
    ],
)
def test_arguments_of_the_scoring(changed, error, message):
    if error is None:
        refused_prefill(**changed)
        return
    with pytest.raises(error, match=message):
        refused_prefill(**changed)


def test_decode_scoring_has_limits_of_its_own():
    with pytest.raises(ValueError, match="4 index heads x 5 rows"):
        decode_scores([300], heads=4, query_len=5)
    with pytest.raises(ValueError, match="query_len is 0"):
        decode_scores([300], query_len=0)
