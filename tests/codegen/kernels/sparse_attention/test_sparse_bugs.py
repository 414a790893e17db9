"""Public bugs of sparse attention kernels and their surroundings.

Each is stated as a small function that does it the wrong way: its bits are not ours, and ours are those of an answer
found another way.

Those of the page table and of unwritten slots (vllm PR #53856, #54805, sglang PR #30971, and the first half of
vllm-ascend PR #13391) are in test_sparse_pa.py and test_sparse_backend.py.
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention import job, kernels, reference
from codegen.kernels.sparse_attention.attend import attend, scales_by_page
from codegen.kernels.sparse_attention.cache import aiter_sparse_pa_kv_cache
from codegen.kernels.sparse_attention.cases import CASES, Case, Request, build
from codegen.kernels.sparse_attention.insert import insert_kv, insert_kv_per_token
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.score import score_blocks
from codegen.kernels.sparse_attention.select import select_blocks
from codegen.kernels.sparse_attention.table import build_table
from emu.dispatch import RunOptions
from gfx950.random_bits import bell, integers, uniform
from tests.codegen.kernels.sparse_attention import test_sparse_reduce
from tests.codegen.kernels.sparse_attention.test_sparse_attend import SCALE, Inputs, oracle, paged

F32, BF16, E4M3, FNUZ = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz
AITER_TOLERANCE = 5e-3  # of AITER's test of this attend with an fp8 cache


@pytest.fixture(scope="module")
def machine():
    return kernels.machine(RunOptions(threads=2))


def bits(attended):
    return [getattr(attended, name).tobytes() for name in ("o", "m", "l", "out")]


def check_against_oracle(inputs, attended):
    """Bits of every split against whole matrices in numpy."""
    with np.errstate(all="ignore"):
        expected = oracle(inputs)
    for array, wanted in zip((attended.o, attended.m, attended.l), expected, strict=True):
        assert array.tobytes() == wanted.tobytes()


# ---- 4, 5: the layout of scales between the writer and the reader ----------------------------------------------------


def taken_as_they_lie(scales):
    """Bug 4 (sglang PR #29275, #30724, issue #31490): the reader takes the writer's [kv head][token] for its own
    [page * kv heads + kv head][token of the page]. Shapes and strides agree, so nothing complains."""
    return scales.reshape(-1, 16)


def transposed_by_view(scales):
    """Bug 5 (aiter PR #4506): the repack asks for pages before heads, and gets a new shape over the same order."""
    heads, tokens = scales.shape
    pages_first = scales.reshape(heads, tokens // 16, 16).reshape(tokens // 16, heads, 16)  # for .swapaxes(0, 1)
    return np.ascontiguousarray(pages_first).reshape(-1, 16)


def one_by_one(scales):
    """The right answer, a scale at a time: page p of head h is number p * heads + h."""
    heads, tokens = scales.shape
    pages = np.empty((tokens // 16 * heads, 16), F32)
    for head in range(heads):
        for token in range(tokens):
            pages[token // 16 * heads + head, token % 16] = scales[head, token]
    return pages


class Written:
    """Dense planes of two blocks that the writer filled, every token with scales of its own, and a row that attends."""

    def __init__(self, machine, heads, alike=False, tokens=200):
        shape = (tokens, heads, 128)
        sizes = np.ones((2, tokens, heads, 1), F32) if alike else uniform(f"sizes {heads}", (2, tokens, heads, 1)) + 0.1
        key, value = (bell(f"written {side}", shape) * sizes[side] for side in (0, 1))
        if alike:  # the largest of every row is 3, so all scales are one number
            key[..., 7] = value[..., 7] = 3
            key, value = key.clip(-3, 3), value.clip(-3, 3)
        self.key, self.value = (x.astype(BF16).view(np.uint16) for x in (key, value))
        self.k, self.v = np.full((2, 16 * heads, 2048), 0x7F, np.uint8)
        self.k_scale, self.v_scale = np.full((2, heads, 256), np.nan, F32)
        scales = {"k_scale": self.k_scale, "v_scale": self.v_scale}
        slots = np.arange(tokens)
        insert_kv_per_token(machine, self.key, self.value, self.k, self.v, slots, kv_heads=heads, **scales)
        self.table = (np.arange(16) * heads + np.arange(heads)[:, None]).astype(np.int32)
        self.ctx = np.full(heads, tokens, np.int32)
        self.q = bell(f"written q {heads}", (heads, 16, 128)).astype(BF16).view(np.uint16)

    def inputs(self, layout):
        scales = layout(self.k_scale), layout(self.v_scale)
        return Inputs(self.q, self.k, self.v, self.table, self.ctx, *scales, splits=2)

    def attended(self, machine, layout):
        return self.inputs(layout).run(machine)


WRONG_LAYOUTS = [taken_as_they_lie, transposed_by_view]


def test_the_writer_s_scales_are_head_major(machine):
    written = Written(machine, heads=4)
    for scales, rows in ((written.k_scale, written.key), (written.v_scale, written.value)):
        largest = np.abs(rows.view(BF16).astype(F32)).max(axis=2)
        assert scales[:, :200].tobytes() == np.ascontiguousarray((largest / F32(448)).T).tobytes()
        assert np.isnan(scales[:, 200:]).all()


@pytest.mark.parametrize("wrong", WRONG_LAYOUTS)
def test_bugs_4_and_5_the_layout_of_per_token_scales(machine, wrong):
    written = Written(machine, heads=4)
    ours = written.attended(machine, lambda scales: scales_by_page(scales, 16 * 4))
    assert bits(ours) == bits(written.attended(Runner(), one_by_one))
    check_against_oracle(written.inputs(one_by_one), ours)
    assert bits(written.attended(machine, wrong)) != bits(ours)


@pytest.mark.parametrize("wrong", WRONG_LAYOUTS)
def test_with_one_head_or_equal_scales_the_bug_passes_every_test(machine, wrong):
    """So neither may be all that a test has."""
    for written in (Written(machine, heads=1), Written(machine, heads=4, alike=True, tokens=256)):
        right = lambda scales: scales_by_page(scales, 16 * len(scales))  # noqa: E731
        assert bits(written.attended(machine, wrong)) == bits(written.attended(machine, right))


def test_bug_5_a_test_that_repacks_by_the_same_view_agrees_with_itself(machine):
    """The kernel on wrongly repacked scales is what the whole-matrix oracle makes of the same scales, to the last bit;
    only an answer that never sees the repack tells."""
    written = Written(machine, heads=4)
    wrong = written.attended(machine, transposed_by_view)
    check_against_oracle(written.inputs(transposed_by_view), wrong)
    with pytest.raises(AssertionError):
        check_against_oracle(written.inputs(one_by_one), wrong)


# ---- 8: bytes of the other E4M3 --------------------------------------------------------------------------------------


def read_as_fnuz(codes):
    """Bug 8 (vllm #45562): bytes of one E4M3 taken for the other: half as large, and minus zero is NaN."""
    return codes.view(FNUZ).astype(F32)


def all_codes():
    """V of two tokens, 128 codes each, each the only key of its sequence: its weight is 1, and the output is V."""
    rows = np.full((2, 16, 128), 0x7F, np.uint8)
    rows[:, 0] = np.arange(256, dtype=np.uint8).reshape(2, 128)
    k = np.zeros((2, 2048), np.uint8)
    q = bell("codes", (2, 16, 128)).astype(BF16).view(np.uint16)
    table, ctx = np.arange(2, dtype=np.int32)[:, None], np.ones(2, np.int32)
    return rows[:, 0], (q, k, paged(rows, "v", True), table, ctx)


@pytest.mark.parametrize("p", ["unscaled", "x448"])
def test_bug_8_every_byte_is_read_as_ocp(machine, p):
    codes, arguments = all_codes()
    out = attend(machine, *arguments, scale=SCALE, splits=1, p=p).out
    read = np.broadcast_to(out.view(BF16).astype(F32)[:, :1], out.shape)
    assert np.array_equal(read, out.view(BF16).astype(F32), equal_nan=True), "all heads see the one key"
    right = codes.view(E4M3).astype(F32)
    np.testing.assert_array_equal(read[:, 0], right)
    assert np.flatnonzero(np.isnan(read[:, 0]).ravel()).tolist() == [0x7F, 0xFF]
    wrong = read_as_fnuz(codes)
    assert (wrong.ravel()[:0x7F] * 2 == right.ravel()[:0x7F]).all()
    assert np.flatnonzero(wrong.ravel() == right.ravel()).tolist() == [0], "all but zero are other numbers"


def test_bug_8_a_cache_written_as_fnuz_doubles_the_values(machine):
    values = bell("fnuz values", (2, 16, 128))
    _, (q, k, _, table, ctx) = all_codes()
    ctx = ctx * 16
    outs = []
    for kind in (FNUZ, E4M3):
        pages = paged(values.astype(kind).view(np.uint8), "v", True)
        outs.append(attend(machine, q, k, pages, table, ctx, scale=SCALE, splits=1))
        check_against_oracle(Inputs(q, k, pages, table, ctx, *np.ones((2, 1), F32)), outs[-1])
    fnuz, ocp = (a.out.view(BF16).astype(F32) for a in outs)
    large = np.abs(ocp) > 0.1
    assert large.sum() > 1000
    assert np.median(fnuz[large] / ocp[large]) == pytest.approx(2, rel=0.05)


def test_bug_8_the_other_format_is_refused_by_name():
    cache = torch.zeros((2, 2, 128, 128), dtype=torch.float8_e4m3fnuz)
    with pytest.raises(TypeError, match=r"float8_e4m3fnuz, a format of gfx942; gfx950's is torch\.float8_e4m3fn"):
        aiter_sparse_pa_kv_cache(cache, 1)


# ---- 12: more index blocks than the table has columns, and poison ----------------------------------------------------


def entry_past_the_row(block_table, request, blk):
    """Bug 12, its second half (vllm-ascend PR #13391): the number of index blocks is believed, and the row of the table
    is read past its end, which is the next request's row."""
    return int(block_table.reshape(-1)[request * block_table.shape[1] + blk])


def test_bug_12_more_blocks_than_columns(machine):
    block_table = np.array([[3, 1], [4, 2]], np.int32)
    rows = Rows(np.array([0, 1], np.int32), np.array([300, 200], np.int32))
    assert entry_past_the_row(block_table, 0, 2) == 4, "of the other request"
    scores = np.zeros((1, 2, 64), F32)
    message = r"kv_len of row 0 is 300; expected at most 256, by the 2 columns of block_table"
    with pytest.raises(ValueError, match=message):
        select_blocks(machine, scores, block_table, rows)
    keys, queries = np.zeros((5, 128, 128), np.uint8), np.zeros((2, 1, 128), np.uint8)
    with pytest.raises(ValueError, match=message):
        score_blocks(machine, queries, keys, block_table, rows)
    with pytest.raises(ValueError, match=message):
        build_table(machine, np.zeros((2, 16), np.int32), block_table, rows)
    enough = dataclasses.replace(rows, kv_len=np.array([256, 200], np.int32))
    topk = np.array([[2, 0, 1, 7], [1, 2, 3, 0]], np.int32)  # 2, 3 and 7 are no blocks of these rows
    table, ctx = build_table(machine, topk, block_table, enough)
    assert table[:, ::8].tolist() == [[24, 8, 0, 0], [32, 16, 0, 0]]
    assert ctx.tolist() == [256, 200]


def with_other_poison(inputs):
    """Everything that a job must not look at is another thing: finite instead of NaN, other garbage in tables."""
    changed = {}
    for name in ("kv_cache", "index_cache"):
        array = getattr(inputs, name).copy()
        unwritten = (array & 0x7F) == 0x7F
        array[unwritten] = 0x76  # 224
        changed[name] = array
    for name in ("block_table", "index_block_table"):
        array = getattr(inputs, name).copy()
        for number, length in enumerate(inputs.seq_lens.tolist()):
            array[number, -(-length // 128) :] = 3
        changed[name] = array
    return dataclasses.replace(inputs, **changed)


@pytest.mark.parametrize("case", ["page_edges", "query_4", "eight_splits", "padding"])
def test_bug_12_runs_with_other_poison_have_the_same_bits(machine, case):
    inputs = build(CASES[case])
    other = with_other_poison(inputs)
    assert not np.array_equal(inputs.kv_cache, other.kv_cache)
    runs = [job.run(machine, inputs), job.run(machine, other), job.run(machine, inputs)]
    for name in ("scores", "topk", "table", "ctx", "o", "m", "l", "out"):
        arrays = [getattr(run, name).tobytes() for run in runs]
        assert arrays[0] == arrays[1] == arrays[2], name
    assert not np.isnan(runs[0].out.view(BF16).astype(F32)).any()


# ---- 13: a tolerance in the place of bits ----------------------------------------------------------------------------


def within_tolerance(a, b):
    """Bug 13 (rocm-libraries #11115) and AITER's own tests: near enough is right."""
    a, b = (x.view(BF16).astype(np.float64) for x in (a, b))
    return bool((np.abs(a - b) <= AITER_TOLERANCE + AITER_TOLERANCE * np.abs(b)).all())


def test_bug_13_a_fused_product_passes_the_tolerance_and_not_the_bits(machine):
    """One rounding fewer in the reduction."""
    inputs = build(CASES["query_4"])
    outs = []
    for kind in ("hip", "flydsl"):
        case = dataclasses.replace(inputs.case, reduce=kind)
        outs.append(job.run(machine, dataclasses.replace(inputs, case=case)))
    assert within_tolerance(outs[0].out, outs[1].out)
    assert outs[0].out.tobytes() != outs[1].out.tobytes()
    for kind, run in zip(("hip", "flydsl"), outs, strict=True):
        assert run.out.tobytes() == merged(run, kind == "hip").tobytes()


def merged(run, fused):
    """The reduction in numpy, a step at a time."""
    return test_sparse_reduce.oracle(run.o, run.m, run.l, run.ctx, run.o.shape[1], fused).reshape(run.out.shape)


def test_bug_13_a_product_with_the_reciprocal_passes_the_tolerance_and_not_the_bits(machine):
    """One rounding more where new rows are written: a few codes of the cache are the next ones."""
    tokens, scale = 256, np.array([1.75], F32)
    shape = (tokens, 1, 128)
    rows = multiples("bug 13 keys", shape, scale), multiples("bug 13 values", shape, scale, ties=True)
    slots = np.arange(tokens)
    caches, outs = [], []
    q = (bell("bug 13", (1, 16, 128)) * F32(0.5)).astype(BF16).view(np.uint16)
    table, ctx = np.arange(16, dtype=np.int32)[None], np.array([tokens], np.int32)
    for scaling in ("divide", "multiply"):
        k, v = np.zeros((2, 16, 2048), np.uint8)
        scales = {"k_scale": scale, "v_scale": scale}
        insert_kv(machine, *rows, k, v, slots, kv_heads=1, scaling=scaling, **scales)
        caches.append((k, v))
        outs.append(attend(machine, q, k, v, table, ctx, scale=SCALE, splits=1, **scales).out)
    right = [(x.view(BF16).astype(F32) / scale[0]).astype(E4M3).view(np.uint8) for x in rows]
    for array, expected, side in zip(caches[0], right, "kv", strict=True):
        assert np.array_equal(array, paged(expected.reshape(16, 16, 128), side, True))
    assert [bool((a != b).any()) for a, b in zip(*caches, strict=True)] == [False, True]
    assert outs[0].tobytes() != outs[1].tobytes()
    assert within_tolerance(outs[0], outs[1])


def multiples(name, shape, scale, ties=False):
    """bf16 numbers that are codes times `scale`, which has 3 bits: both writers find the code. ties: of every 1024 one
    is just in the middle of two codes, which the product with the inexact reciprocal misses."""
    numbers = bell(name, shape).astype(E4M3).astype(F32)
    if ties:
        codes = np.arange(0x10, 0x28, dtype=np.uint8).view(E4M3).astype(F32)
        middles = (codes[:-1] + codes[1:]) / 2
        tied = integers(f"{name} which", shape, 0, 1024) == 0
        numbers = np.where(tied, middles[integers(name, shape, 0, len(middles))], numbers)
    return (numbers * scale).astype(BF16).view(np.uint16)


# ---- 16: the order of blocks -----------------------------------------------------------------------------------------


def cut_off_in_the_order_of_the_selection(topk, kv_len):
    """Bug 16 (sglang PR #30971): the context's end is laid over the blocks as they come, so the block that comes last
    is cut, whichever it is. Gives (block, tokens) pairs."""
    left = 128 * len(topk) - (-kv_len % 128)
    return [(blk, min(128, left - 128 * place)) for place, blk in enumerate(topk)]


def blocks_of_table(table, ctx, entries):
    """(block, tokens) pairs as a consumer of the page table goes through them."""
    count = -(-ctx // 128)
    return [(entries.index(table[8 * n] // 8), min(128, ctx - 128 * n)) for n in range(count)]


def test_bug_16_a_permuted_selection_changes_the_order_alone(machine):
    entries, kv_len = [9, 4, 7, 1, 12, 3], 700
    selections = [[3, 0, 5, 1, 4], [5, 4, 3, 1, 0], [0, 1, 3, 4, 5], [4, 5, 0, 3, 1]]
    rows = Rows(np.zeros(len(selections), np.int32), np.full(len(selections), kv_len, np.int32))
    table, ctx = build_table(machine, np.array(selections, np.int32), np.array([entries], np.int32), rows)
    assert (ctx == 4 * 128 + 60).all()
    for row, selection in enumerate(selections):
        ours = blocks_of_table(table[row].tolist(), int(ctx[row]), entries)
        assert ours == [(blk, 128) for blk in selection if blk != 5] + [(5, 60)]
        wrong = cut_off_in_the_order_of_the_selection(selection, kv_len)
        assert (dict(wrong) == dict(ours)) == (selection[-1] == 5), "right only where the own block happens to be last"
    assert len({tuple(sorted(row)) for row in table.tolist()}) == 1


# ---- 17: index keys that did not come along --------------------------------------------------------------------------


def without_the_prefix_s_index_keys(inputs):
    """Bug 17 (ATOM PR #1368): K and V of the prompt were moved to the decode side, its index keys were not: zeros."""
    return dataclasses.replace(inputs, index_cache=np.zeros_like(inputs.index_cache))


def exact_choice(inputs):
    """The 16 blocks of each row by exact dot products, without the kernels."""
    low, high = reference.index_scores(inputs, reference.inserted(inputs).index_cache)
    middle = (low + high) / 2
    lines = [[(score, blk) for blk, score in enumerate(line) if not np.isnan(score)] for line in middle[0]]
    return [{blk for _, blk in sorted(line, reverse=True)[:16]} for line in lines]


def chosen(run):
    return [{blk for blk in line if blk >= 0} for line in run.topk[0].tolist()]


def outside(inputs, run, right):
    """How many outputs leave the float64 bound of the right selection's attention."""
    attention = reference.attend(inputs, reference.inserted(inputs), right.table, right.ctx)
    got = run.out.view(BF16).astype(np.float64)
    return int((np.abs(got - attention.out) > attention.bound).sum())


@pytest.mark.parametrize(("tokens", "visible"), [(2048, False), (2049, True), (4000, True)])
def test_bug_17_missing_index_keys_show_beyond_16_blocks(machine, tokens, visible):
    inputs = build(Case("long context", (Request(tokens),), "a prompt, and one new token"))
    right = job.run(machine, inputs)
    wrong = job.run(machine, without_the_prefix_s_index_keys(inputs))
    assert chosen(right) == exact_choice(inputs)
    assert outside(inputs, right, right) == 0
    assert (chosen(wrong) != chosen(right)) == visible
    assert bool(outside(inputs, wrong, right)) == visible
    assert wrong.scores.tobytes() != right.scores.tobytes(), "the scores tell at any length"
