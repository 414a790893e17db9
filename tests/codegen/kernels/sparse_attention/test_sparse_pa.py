"""Page tables against a plain statement of their rule, attends against float64, source against machine."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention import cache, sparse_pa
from codegen.kernels.sparse_attention.sparse_pa import (
    minimax_m3_build_sparse_block_table_decode,
    minimax_m3_build_sparse_block_table_prefill,
    minimax_m3_insert_index_cache,
    minimax_m3_sparse_attn_decode_aiter,
    minimax_m3_sparse_attn_prefill_aiter,
)
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, FP8, Problem, padded, same_bits

SCALE = 128**-0.5


def test_names_of_the_cache_are_here_too():
    assert (sparse_pa.PAGES_PER_SPARSE_BLOCK, sparse_pa.PAGE16_SIDES_PER_BLOCK) == (8, 2)
    for name in (
        "aiter_sparse_pa_kv_cache",
        "minimax_m3_rebase_block_table_to_page16",
        "minimax_m3_rebase_slots_to_page16",
        "minimax_m3_sparse_block_page_stride",
    ):
        assert getattr(sparse_pa, name) is getattr(cache, name)


@pytest.mark.parametrize("module", ["tensors", "msa_attention", "vllm_adapter"])
def test_without_torch_the_error_says_how_to_get_it(module):
    code = f"import sys; sys.modules['torch'] = None; import codegen.kernels.sparse_attention.{module}"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode
    assert "ModuleNotFoundError: the backend pieces" in result.stderr  # what `gfx950 evidence` passes over
    assert "pip install 'gfx950[torch]'" in result.stderr


# ---- page tables -----------------------------------------------------------------------------------------------------


def expected_row(selected, entries, kv_len, stride):
    """One row of the table and its context, by the rule: full blocks in order, the own block last."""
    if kv_len <= 0:
        return [0] * (8 * len(selected)), 0
    own = (kv_len - 1) // 128
    valid = [b for b in selected if 0 <= b <= own]
    full = [b for b in valid if b < own]
    tail = [own] if own in valid else []
    pages = [entries[b] * stride + j for b in full + tail for j in range(8)]
    ctx = 128 * len(full) + (kv_len - 128 * own if tail else 0)
    return pages + [0] * (8 * len(selected) - len(pages)), ctx if tail else min(128 * len(valid), kv_len)


def check_table(got, topk, block_table, rows, stride):
    table, ctx = got
    assert table.dtype == ctx.dtype == torch.int32
    for n, (request, kv_len) in enumerate(rows):
        row, tokens = expected_row(topk[0, n].tolist(), block_table[request].tolist(), kv_len, stride)
        assert (table[n].tolist(), int(ctx[n])) == (row, tokens), n


def random_topk(rows, k, blocks, seed):
    random = np.random.default_rng(seed)
    topk = random.permuted(np.tile(np.arange(-3, max(blocks + 2, k)), (rows, 1)), axis=1)[:, :k]
    return torch.from_numpy(topk.astype(np.int32))[None]


@pytest.mark.parametrize("stride", [8, 16])
@pytest.mark.parametrize(("query_len", "k"), [(1, 16), (4, 16), (3, 5)])
def test_decode_tables_follow_the_rule(stride, query_len, k):
    lens = [1, 2, 128, 129, 700, 2048, 0]
    random = np.random.default_rng(query_len)
    block_table = torch.from_numpy(random.permutation(7 * 20).astype(np.int32).reshape(7, 20))
    topk = random_topk(7 * query_len, k, 16, seed=k)
    got = minimax_m3_build_sparse_block_table_decode(
        topk, block_table, torch.tensor(lens, dtype=torch.int32), query_len, stride
    )
    rows = [(r, lens[r] - query_len + t + 1) for r in range(7) for t in range(query_len)]
    check_table(got, topk, block_table, rows, stride)


@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_prefill_tables_follow_the_rule(index_type):
    rows = [(1, 0), (1, 1), (0, 300), (0, 301), (1, 127), (1, 128), (0, 2047), (1, -1)]
    block_table = torch.arange(40, dtype=torch.int32).flip(0).reshape(2, 20)
    topk = random_topk(len(rows), 16, 16, seed=9)
    request, position = (torch.tensor(column, dtype=index_type) for column in zip(*rows, strict=True))
    got = minimax_m3_build_sparse_block_table_prefill(topk, block_table, request, position)
    check_table(got, topk, block_table, [(r, p + 1) for r, p in rows], 8)


def test_tables_of_strided_slices_are_those_of_copies():
    buffer = torch.full((1, 9, 16), 77, dtype=torch.int32)
    buffer[:, 2:5] = random_topk(3, 16, 5, seed=4)
    wide = torch.full((3, 12), -9, dtype=torch.int32)
    wide[:, :5] = torch.arange(15, dtype=torch.int32).reshape(3, 5)
    lens = torch.tensor([0, 0, 600, 0, 513, 0, 130], dtype=torch.int32)[2::2]
    sliced = minimax_m3_build_sparse_block_table_decode(buffer[:, 2:5], wide[:, :5], lens)
    check_table(sliced, buffer[:, 2:5], wide, list(enumerate(lens.tolist())), 8)


def test_a_block_selected_twice_is_there_twice_but_the_own_block_once():
    topk = padded([[1, 0, 1, 2, 2]])
    table, ctx = minimax_m3_build_sparse_block_table_decode(
        topk, torch.tensor([[5, 6, 7]], dtype=torch.int32), torch.tensor([300], dtype=torch.int32)
    )
    assert table[0, ::8].tolist()[:5] == [48, 40, 48, 56, 0]
    assert ctx.tolist() == [3 * 128 + 44]


# ---- attention -------------------------------------------------------------------------------------------------------


def decode(problem, q, topk, query_len=1, out=None, **keywords):
    out = torch.full_like(q, float("nan"), memory_format=torch.contiguous_format) if out is None else out
    result = minimax_m3_sparse_attn_decode_aiter(
        q,
        problem.k,
        problem.v,
        topk,
        problem.block_table,
        problem.lens,
        problem.kv_heads,
        SCALE,
        out,
        decode_query_len=query_len,
        **keywords,
    )
    assert result is None
    return out


def check_row(problem, out, q, request, blocks, length, scales=(1.0, 1.0)):
    exact, width = problem.attend(q, request, blocks, length, SCALE, scales)
    error = (out.to(torch.float64) - exact).abs()
    assert bool((error <= width).all()), float((error / width).max())
    assert float((exact.abs() / width).max()) > 2, "a bound that zeros would pass says nothing"


CACHES = [(FP8, True), (FP8, False), (BF16, True), (BF16, False)]


@pytest.mark.parametrize(("dtype", "packed"), CACHES)
def test_decode_rows_attend_to_their_blocks(dtype, packed):
    problem = Problem([700, 129, 5], dtype=dtype, packed=packed)
    q = problem.query(3)
    topk = padded([[5, 3, 0, 4, 9], [0, 1], [0]])
    source, host = (decode(problem, q, topk, engine=engine) for engine in ("source", "host"))
    assert same_bits(source, host)
    for row, blocks in enumerate([[3, 0, 4, 5], [0, 1], [0]]):
        check_row(problem, source[row], q[row], row, blocks, problem.seq_lens[row])


def test_speculative_rows_see_no_later_row():
    problem = Problem([260, 130])
    q, topk = problem.query(8), padded([[2, 1, 0]] * 4 + [[1, 0]] * 4)
    out = decode(problem, q, topk, 4)
    assert same_bits(out, decode(problem, q, topk, 4, engine="source"))
    for row in range(8):
        request, length = row // 4, problem.seq_lens[row // 4] - 3 + row % 4
        check_row(problem, out[row], q[row], request, list(range(-(-length // 128))), length)


@pytest.mark.parametrize("dtype", [FP8, BF16])
def test_prefill_rows_attend_to_their_own_past(dtype):
    problem = Problem([150, 300], dtype=dtype, seed=3)
    rows = [(1, 299), (0, 0), (0, 127), (0, 128), (1, 255)]
    q, topk = problem.query(len(rows)), padded([[2, 0], [0], [0], [1, 0], [1, 0]])
    outs = []
    for engine in ("source", "host"):
        out = torch.full_like(q, float("nan"))
        request, position = (torch.tensor(column) for column in zip(*rows, strict=True))
        minimax_m3_sparse_attn_prefill_aiter(
            q, problem.k, problem.v, topk, problem.block_table, request, position, 1, SCALE, out, engine=engine
        )
        outs.append(out)
    assert same_bits(*outs)
    for n, ((request, position), blocks) in enumerate(zip(rows, [[0, 2], [0], [0], [0, 1], [0, 1]], strict=True)):
        check_row(problem, outs[0][n], q[n], request, blocks, position + 1)


def test_decode_and_prefill_agree_on_the_same_rows():
    problem = Problem([200, 131])
    q, topk = problem.query(4), padded([[1, 0]] * 4)
    out = torch.empty_like(q)
    request, position = torch.tensor([0, 0, 1, 1]), torch.tensor([198, 199, 129, 130])
    minimax_m3_sparse_attn_prefill_aiter(
        q, problem.k, problem.v, topk, problem.block_table, request, position, 1, SCALE, out
    )
    assert same_bits(out, decode(problem, q, topk, 2))


def test_a_strided_query_and_bytes_as_a_cache_give_the_same_bits():
    problem = Problem([200])
    wide = problem.numbers(1, 16, 256).to(BF16)
    topk = padded([[1, 0]])
    expected = decode(problem, wide[..., :128].contiguous(), topk)
    assert same_bits(decode(problem, wide[..., :128], topk), expected)
    problem.k, problem.v = problem.k.view(torch.uint8), problem.v.view(torch.uint8)
    assert same_bits(decode(problem, wide[..., :128].contiguous(), topk), expected)


def test_only_the_rows_of_output_are_written():
    problem = Problem([200, 140])
    q, topk = problem.query(2), padded([[1, 0]] * 2)
    whole = torch.full((4, 16, 128), 7.0, dtype=BF16)
    decode(problem, q, topk, out=whole[1:3])
    assert same_bits(whole[1:3], decode(problem, q, topk))
    assert bool((whole[[0, 3]] == 7).all())


def test_no_rows_are_no_work():
    problem = Problem([5])
    problem.seq_lens = []
    assert decode(problem, problem.query(0), torch.zeros((1, 0, 16), dtype=torch.int32)).shape == (0, 16, 128)


def test_choices_reach_the_attend():
    problem = Problem([1500], seed=8)
    q, topk = 3 * problem.query(1), padded([list(range(12))])
    default = decode(problem, q, topk)
    assert same_bits(default, decode(problem, q, topk, splits=8))  # one sequence: the rule gives 8
    for changed in ({"splits": 1}, {"p": "x448"}, {"reduce": "flydsl"}):
        machine = decode(problem, q, topk, **changed)
        assert same_bits(machine, decode(problem, q, topk, engine="source", **changed))
        check_row(problem, machine[0], q[0], 0, list(range(12)), 1500)
        if "reduce" not in changed:
            assert not same_bits(machine, default), changed


@pytest.mark.parametrize(("rows", "kv_heads", "splits"), [(1, 1, 8), (128, 1, 4), (32, 4, 4), (150, 4, 1)])
def test_splits_go_by_rows_and_kv_heads(monkeypatch, rows, kv_heads, splits):
    seen = {}

    def attend(runner, q, k, v, table, ctx, **keywords):
        seen.update(keywords)
        return SimpleNamespace(out=np.zeros_like(q))

    monkeypatch.setattr(sparse_pa, "attend", attend)
    problem = Problem([5], kv_heads=kv_heads)
    table = torch.zeros((rows * kv_heads, 128), dtype=torch.int32)
    out = decode(problem, problem.query(rows), None, sparse_block_table=table, sparse_context_lens=table[:, 0])
    assert (seen["splits"], seen["scale"], seen["p"], seen["reduce"]) == (splits, SCALE, "unscaled", "hip")
    assert bool((out == 0).all())


def test_the_scale_of_the_scores_counts():
    problem = Problem([200])
    q, topk = problem.query(1), padded([[1, 0]])
    out = torch.empty_like(q)
    common = topk, problem.block_table, problem.lens, 1
    minimax_m3_sparse_attn_decode_aiter(q, problem.k, problem.v, *common, 0.03125, out)
    exact, width = problem.attend(q[0], 0, [0, 1], 200, 0.03125)
    assert bool(((out[0].to(torch.float64) - exact).abs() <= width).all())
    assert not bool(((decode(problem, q, topk)[0].to(torch.float64) - exact).abs() <= width).all())


# ---- scales ----------------------------------------------------------------------------------------------------------


def test_one_scale_in_any_form_gives_the_same_bits():
    problem = Problem([300])
    q, topk = problem.query(1), padded([[2, 1, 0]])
    number = decode(problem, q, topk, k_scale=0.375, v_scale=1.75)
    tensors = decode(problem, q, topk, k_scale=torch.tensor(0.375), v_scale=torch.tensor([1.75]))
    assert same_bits(number, tensors)
    check_row(problem, number[0], q[0], 0, [0, 1, 2], 300, (0.375, 1.75))
    assert same_bits(decode(problem, q, topk), decode(problem, q, topk, k_scale=1.0, v_scale=torch.tensor(1.0)))


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_per_token_scales_go_with_their_pages(kv_heads):
    problem = Problem([300, 70], kv_heads=kv_heads, packed=False)
    tokens = problem.k.shape[0] * 16
    scales = []
    for _ in range(2):
        scale = torch.full((kv_heads, tokens + 5), float("nan"))
        for request, n in enumerate(problem.seq_lens):
            for position in range(n):
                page, token = problem.place(request, position)
                scale[:, 16 * page + token] = 0.5 + torch.rand(kv_heads, generator=problem.random)
        scales.append(scale)
    q = problem.query(2)
    table = torch.zeros((2 * kv_heads, 128), dtype=torch.int32)
    for row, blocks in enumerate([[0, 1, 2], [0]]):
        for head in range(kv_heads):
            pages = [int(problem.block_table[row, b]) * 8 + j for b in blocks for j in range(8)]
            table[row * kv_heads + head, : len(pages)] = torch.tensor(pages) * kv_heads + head
    ctx = problem.lens.repeat_interleave(kv_heads)
    given = {"sparse_block_table": table, "sparse_context_lens": ctx, "k_scale": scales[0], "v_scale": scales[1]}
    out = decode(problem, q, None, **given)
    assert same_bits(out, decode(problem, q, None, engine="source", **given))
    for row, blocks in enumerate([[0, 1, 2], [0]]):
        check_row(problem, out[row], q[row], row, blocks, problem.seq_lens[row], tuple(scales))


def test_a_bf16_cache_reads_no_scales():
    problem = Problem([100], dtype=BF16)
    q, topk = problem.query(1), padded([[0]])
    assert same_bits(decode(problem, q, topk), decode(problem, q, topk, k_scale=3.0, v_scale=torch.ones(1, 7)))


# ---- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "packed"), CACHES)
def test_unwritten_slots_change_no_bit(dtype, packed):
    topk = padded([[2, 0, 1], [0]])
    results = []
    for poison in (0xFF, 0x00, 0x7F):  # NaN, 0, and in e4m3 the other NaN
        problem = Problem([300, 17], dtype=dtype, packed=packed, poison=poison)
        results.append(decode(problem, problem.query(2), topk))
    assert not results[0].isnan().any()
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


def test_stale_entries_of_a_table_change_no_bit():
    problem = Problem([300, 17])
    q, topk = problem.query(2), padded([[2, 0, 1], [0]])
    table, ctx = minimax_m3_build_sparse_block_table_decode(topk, problem.block_table, problem.lens, 1, 16)
    stale = table.clone()
    garbage = torch.tensor([-1, 2**31 - 1, 5, -(2**31)]).repeat(32)
    for row in range(2):
        used = -(-int(ctx[row]) // 16)
        stale[row, used:] = garbage[used:]
    given = {"sparse_context_lens": ctx}
    expected = decode(problem, q, topk)
    assert same_bits(decode(problem, q, None, sparse_block_table=stale, **given), expected)
    assert same_bits(decode(problem, q, None, sparse_block_table=table, **given), expected)


def test_columns_and_blocks_beyond_a_request_are_not_read():
    problem = Problem([300, 17], spare_columns=9)
    q = problem.query(2)
    plain, future = padded([[2, 0, 1], [0]]), padded([[2, 7, 0, 11, 1, -5], [3, 0, 1]])
    expected = decode(problem, q, plain)
    assert same_bits(decode(problem, q, future), expected)
    problem.block_table[0, 3:] = 2**30
    assert same_bits(decode(problem, q, future), expected)


def test_unsorted_and_doubled_selections_attend_as_they_say():
    problem = Problem([520], seed=5)
    q = problem.query(1)
    for blocks in ([4, 3, 2, 1, 0], [1, 4, 0], [3, 0, 3, 4, 0, 3]):
        out = decode(problem, q, padded([blocks]))
        check_row(problem, out[0], q[0], 0, [b for b in blocks if b != 4] + [4], 520)


# ---- public bugs -----------------------------------------------------------------------------------------------------


def pages_of(problem, pages):
    """K and V [tokens][128] as a consumer of pages sees them, whatever is there."""
    keys = problem.k[pages, 0].to(torch.float64).permute(0, 2, 1, 3).reshape(-1, 128)
    values = problem.v[pages, 0].to(torch.float64).permute(0, 1, 3, 2).reshape(-1, 128)
    assert keys.shape == values.shape == (16 * len(pages), 128)
    return keys, values


def attend_masking_only_scores(q, keys, values, ctx):
    """Softmax over the first ctx keys, V taken as it is: p is 0 past them, and 0 times NaN is NaN."""
    scores = q.to(torch.float64) @ keys.T * SCALE
    scores[:, ctx:] = float("-inf")
    return torch.softmax(scores, 1) @ values


def test_bug_10_nan_in_unwritten_v_slots():
    """vllm PR #53856: only the scores of unwritten slots were masked."""
    problem = Problem([100], dtype=BF16)
    q = problem.query(1)
    pages = [int(problem.block_table[0, 0]) * 16 + j for j in range(8)]
    keys, values = pages_of(problem, pages)
    bug = attend_masking_only_scores(q[0], keys.nan_to_num(0.0), values, 100)
    assert bug.isnan().all()
    out = decode(problem, q, padded([[0]]))
    right = attend_masking_only_scores(q[0], keys.nan_to_num(0.0), values.nan_to_num(0.0), 100)
    assert torch.allclose(out[0].to(torch.float64), right, rtol=0.02, atol=0.02)


def test_bug_12_invalid_pages_and_the_tail_are_masked():
    """vllm-ascend PR #13391: -1 was looked up as a block, and the whole tail block was attended to."""
    problem = Problem([140], poison=0x38)  # what is unwritten is 1.0: wrong results are finite, and drift with old data
    q, topk = problem.query(1), padded([[0, 1]])
    unmasked = [int(problem.block_table[0, b]) for b in topk[0, 0].tolist()]  # -1 is the last column: a stale entry
    assert len(unmasked) == 16
    assert unmasked[2] not in problem.block_table[0, :2].tolist()
    pages = [block * 16 + j for block in unmasked[:2] for j in range(8)]
    bug = attend_masking_only_scores(q[0].to(FP8), *pages_of(problem, pages), ctx=256)
    out = decode(problem, q, topk)
    check_row(problem, out[0], q[0], 0, [0, 1], 140)
    exact, width = problem.attend(q[0], 0, [0, 1], 140, SCALE)
    assert bool(((bug - exact).abs() > width).any())
    other = Problem([140], poison=0xB8)
    assert same_bits(out, decode(other, other.query(1), topk))


def test_bug_16_the_partial_block_goes_last_whatever_the_selection_order():
    """sglang PR #30971: a consumer that cuts the context off at its end needs the partial block there."""
    problem = Problem([300], seed=6)
    q, topk = problem.query(1), padded([[2, 0, 1]])
    in_order = [int(problem.block_table[0, b]) * 16 + j for b in (2, 0, 1) for j in range(8)]
    keys, values = pages_of(problem, in_order)
    bug = attend_masking_only_scores(q[0].to(FP8), keys.nan_to_num(0.0), values.nan_to_num(0.0), 300)
    exact, width = problem.attend(q[0], 0, [0, 1, 2], 300, SCALE)
    assert bool(((bug - exact).abs() > width).any())
    check_row(problem, decode(problem, q, topk)[0], q[0], 0, [0, 1, 2], 300)


# ---- index keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strided", [False, True])
def test_index_keys_land_in_their_slots(strided):
    memory = torch.full((3, 2, 128, 128), 0x7F, dtype=torch.uint8)
    index_cache = (memory[:, 1] if strided else memory[:, 1].contiguous()).view(FP8)
    keys = torch.randint(0, 256, (4, 128), dtype=torch.uint8)
    slots = torch.tensor([130, -1, 0, 383])
    minimax_m3_insert_index_cache(keys.view(FP8), index_cache, slots)
    expected = torch.full((384, 128), 0x7F, dtype=torch.uint8)
    expected[slots[[0, 2, 3]]] = keys[[0, 2, 3]]
    assert torch.equal(index_cache.view(torch.uint8).reshape(384, 128), expected)
    if strided:
        assert bool((memory[:, 0] == 0x7F).all())


def test_no_index_keys_are_no_work():
    index_cache = torch.zeros((1, 128, 128), dtype=FP8)
    minimax_m3_insert_index_cache(torch.zeros((0, 128), dtype=FP8), index_cache, torch.zeros(0, dtype=torch.int64))
    minimax_m3_insert_index_cache(torch.zeros((1, 128), dtype=FP8), index_cache[:0], torch.zeros(1, dtype=torch.int64))
