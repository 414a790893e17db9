"""Deliberate faults in the sparse attention: its outputs must change, and the float64 reference must see what is more
than rounding.

A fault replaces a step of the kernels' source or of the job. What always runs is the source alone, against the bits of
a run without the fault and against the reference; the whole `check` of each fault, machine code included, is slow.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from codegen.kernel_package import kernel_package
from codegen.kernels import lanes
from codegen.kernels.sparse_attention import attend, chunk, insert, job, kernels, launch, reduce, score, select, table
from codegen.kernels.sparse_attention.cases import CASES, Case, Request, build
from codegen.language import F32, I32, U32, U64, constant, lane_id, lds_write, loop, store, store_byte, when
from emu.dispatch import RunOptions
from gfx950.lanes import join
from golden.check import check_case, recorded_evidence
from golden.compare import compare
from golden.store import write

OPTIONS = RunOptions(threads=2)


def decode(*seq_lens, query_len=1):
    return tuple(Request(n, query_len) for n in seq_lens)


# what no named case is
OWN_CASES = {
    case.name: case
    for case in (
        Case("even", decode(5), "its tokens are in physical block 2"),
        Case(
            "tiny_scales",
            decode(300, 40),
            "V scales of the size of the guard of their division",
            packed=False,
            per_token=True,
            scales=(1.0, 1e-6),
        ),
    )
}


# ---- faults of the attend --------------------------------------------------------------------------------------------


def p_unscaled_where_x448_is_asked(patch):
    """The kernel of the other treatment of P is launched."""
    patch.setitem(attend.FP8_KERNELS, "x448", attend.FP8_KERNELS["unscaled"])


def p_x448_where_unscaled_is_asked(patch):
    """The other way round: numbers only differ by what P loses."""
    patch.setitem(attend.FP8_KERNELS, "unscaled", attend.FP8_KERNELS["x448"])


def changed_keys(**changes):
    """A patch of `attend._keys`: fields of `Keys` as functions of the arguments."""

    def fault(patch):
        good = attend._keys

        def wrong(variant, given, split, seq):
            keys = good(variant, given, split, seq)
            return dataclasses.replace(keys, **{name: value(keys, given) for name, value in changes.items()})

        patch.setattr(attend, "_keys", wrong)

    return fault


def named(name, doc, fault):
    fault.__name__, fault.__doc__ = name, doc
    return fault


k_scale_missing = named(
    "k_scale_missing", "Scores lack the K scale.", changed_keys(score_scale=lambda keys, given: given.scale)
)
v_scale_missing = named(
    "v_scale_missing",
    "PV lacks the V scale.",
    changed_keys(value_scale=lambda keys, given: chunk.constant(F32, 1.0)),
)
v_read_from_k_s_side = named(
    "v_read_from_k_s_side",
    "The attend's V view lacks its shift of 8 pages.",
    changed_keys(v=lambda keys, given: given.k),
)


def seen_to(offset):
    """A patch of the scores' mask alone: the split's end moved."""

    def fault(patch):
        good = chunk._seen

        def wrong(at, keys, *rest):
            return good(at, dataclasses.replace(keys, end=keys.end + offset), *rest)

        patch.setattr(chunk, "_seen", wrong)

    return fault


mask_one_key_long = named("mask_one_key_long", "A split sees one key more.", seen_to(1))
mask_one_key_short = named("mask_one_key_short", "A split does not see its last key.", seen_to(-1))


def v_mask_left_out(patch):
    """V of slots that nobody wrote reaches the matrix unit: 0 times NaN."""
    patch.setattr(chunk, "_live", lambda variant, left, words: words)


def sums_first_16_then_32(patch):
    """The sums of P meet in the other order."""
    good = chunk.butterfly
    patch.setattr(chunk, "butterfly", lambda x, offsets, *how: good(x, offsets if how else offsets[::-1], *how))


def sums_of_half_the_groups(patch):
    """Of the four groups of lanes only two are summed."""
    good = chunk.butterfly
    patch.setattr(chunk, "butterfly", lambda x, offsets, *how: good(x, offsets if how else offsets[:1], *how))


def maximum_of_one_group(patch):
    """The maximum is not exchanged between groups of lanes: that of the last group to write stays."""
    good = chunk.butterfly
    patch.setattr(chunk, "butterfly", lambda x, offsets, *how: x if how else good(x, offsets))


def waves_summed_in_a_row(patch):
    """The waves' sums are added from the first to the last."""
    good = chunk._exchanged_sums

    def wrong(variant, at, p, scaled):
        good(variant, at, p, scaled)
        return lanes.total(chunk._four(variant.sums, at))

    patch.setattr(chunk, "_exchanged_sums", wrong)


def alpha_forgotten_in_o(patch):
    """What was accumulated is not rescaled to the new maximum."""
    good = chunk._folded
    one = lambda: constant(F32, 1.0)  # noqa: E731
    patch.setattr(chunk, "_folded", lambda variant, o, alpha, scale, pv: good(variant, o, one(), scale, pv))


def sum_counted_twice(patch):
    """The running sum of the earlier chunks is added once more, without alpha."""
    good = attend.attend_chunk

    def wrong(*given):
        before, after = given[-1], good(*given)
        return chunk.State(after.m, after.l + before.l, after.o)

    patch.setattr(attend, "attend_chunk", wrong)


def exponent_one_ulp_off(patch):
    """log2(e) is one unit in the last place too large."""
    patch.setattr(chunk, "LOG2_E", float(np.nextafter(np.float32(chunk.LOG2_E), np.float32(2))))


def exponent_of_2(patch):
    """exp2 is taken for exp."""
    patch.setattr(chunk, "LOG2_E", 1.0)


def query_cut_not_rounded(patch):
    """q goes to E4M3 by cutting its mantissa off."""
    good = chunk._to_fp8
    patch.setattr(chunk, "_to_fp8", lambda a, b: good(a & 0xFFF0FFF0, b & 0xFFF0FFF0))


def swizzle_off_by_one(patch):
    """P is written into the place of the neighbouring 16 bytes, and read from the right one."""
    wrong = lambda at, *words: lds_write(at ^ 16 if len(words) == 4 else at, *words)  # noqa: E731
    patch.setattr(chunk, "lds_write", wrong)


def v_steps_swapped(patch):
    """Steps of V take the pages of their neighbours."""
    good = chunk.permute
    patch.setattr(chunk, "permute", lambda pages, picks: good(pages, [pick ^ 1 for pick in picks]))


def floor_of_splits(patch):
    """A split has floor(ctx / splits) keys, so the last ones belong to none."""
    wrong = lambda ctx, splits: (ctx.to(F32) / splits.to(F32)).floor().to(I32)  # noqa: E731
    patch.setattr(attend, "splits_of", wrong)


def splits_of_another_chip(patch):
    """The number of splits is that of 304 compute units."""
    good = job.get_recommended_splits
    patch.setattr(job, "get_recommended_splits", lambda rows, heads: good(rows, heads, 304))


def guard_forgotten(patch):
    """The largest V scale of a chunk divides without the 1e-8."""
    patch.setattr(chunk, "ABOVE_ZERO", 0.0)


def scales_of_other_keys(patch):
    """Per-token scales are read as if the keys of a page came in another order."""
    good = chunk._floats

    def wrong(at, base, page):
        return good(dataclasses.replace(at, g=at.g ^ 1), base, page)

    patch.setattr(chunk, "_floats", wrong)


def divided_by_the_sum(patch):
    """The output is divided by the sum instead of multiplied by 1 / sum."""

    def wrong(at, given, number, state):
        quotient = [x / state.l for x in state.o]
        good(at, given, number, chunk.State(state.m, state.l, [q * state.l for q in quotient]))

    good = attend._store
    patch.setattr(attend, "_store", wrong)


# ---- of the reduction ------------------------------------------------------------------------------------------------


def backwards(first, stop, carry):
    return lambda body: loop(first, stop, carry=carry)(lambda i, *values: body(stop - 1 - i, *values))


def reduced_backwards(patch):
    """The splits are merged from the last to the first."""
    patch.setattr(reduce, "loop", backwards)


def neighbours_summed_first(patch):
    """The weights of the splits meet in the other order."""
    good = reduce.butterfly
    patch.setattr(reduce, "butterfly", lambda x, offsets: good(x, offsets[::-1]))


def product_and_sum_apart(patch):
    """The reduction that fuses does not."""
    patch.setitem(attend.REDUCERS, "hip", attend.REDUCERS["flydsl"])


def product_and_sum_fused(patch):
    """The reduction that keeps product and sum apart fuses them."""
    patch.setitem(attend.REDUCERS, "flydsl", attend.REDUCERS["hip"])


# ---- of the page table and the selection -----------------------------------------------------------------------------


def tail_block_first(patch):
    """The row's own block comes first in the table, so the context's end falls into another."""

    def wrong(blk, kv_len, k, sequence):
        own = (kv_len - 1) // table.SPARSE_BLOCK_SIZE
        moved = (blk >= 0) & (blk < own)
        before = (constant(U64, 1) << lane_id().bits(U32).to(U64)) - 1
        tail = (blk >= 0) & (blk == own)
        place = (moved.ballot() & before).popcount().to(I32) + (tail.ballot() != 0).select(constant(I32, 1), 0)
        good(blk, kv_len, k, sequence)
        with when(moved):
            table._store_pages(sequence.table, place, sequence.pages_of(blk))
        with when(tail):
            table._store_pages(sequence.table, constant(I32, 0), sequence.pages_of(blk))

    good = select.emit_row
    patch.setattr(select, "emit_row", wrong)


def context_without_its_tail(patch):
    """The context counts whole blocks only."""
    wrong = lambda at, *words: store(at, words[0] // 128 * 128) if len(words) == 1 else store(at, *words)  # noqa: E731
    patch.setattr(table, "store", wrong)


def pages_without_the_head(patch):
    """All kv heads attend to the pages of the first."""
    good = table.Sequence.pages_of
    first = lambda self, blk: good(dataclasses.replace(self, kv_head=constant(I32, 0)), blk)  # noqa: E731
    patch.setattr(table.Sequence, "pages_of", first)


def tie_to_the_smaller_block(patch):
    """Of equal scores the earlier block wins."""
    key, best = select._key, select._best_keys
    turned = lambda word: join(word.to(U32) ^ 0xFFFFFFFF, (word >> 32).to(U32))  # noqa: E731
    patch.setattr(select, "_key", lambda s, blk: turned(key(s, blk)))

    def wrong(scores, blocks):
        found = best(scores, blocks)
        return (found != 0).select(turned(found), found)

    patch.setattr(select, "_best_keys", wrong)


def rank_of_negative_scores(patch):
    """Scores are ranked by their bits: of two negative ones the lower wins."""
    patch.setattr(select, "_key", lambda s, blk: join(blk.bits(U32), s.bits(U32) ^ 0x80000000))


# ---- of the scores ---------------------------------------------------------------------------------------------------


def nan_kept_in_scores(patch):
    """The maximum over a block of NaN keys is NaN."""
    patch.setattr(score, "v_max_f32", lambda a, b: (a >= b).select(a, b))


def nan_blocks_first(patch):
    """A NaN stays in the score and is ranked as it is."""
    nan_kept_in_scores(patch)
    rank_of_negative_scores(patch)


def initial_before_local(patch):
    """A block that is both initial and local gets the initial score."""

    def wrong(found, blk, blocks, init_blocks, local_blocks):
        local = (blk >= blocks - local_blocks).select(score.LOCAL_SCORE, found)
        return (blk < init_blocks).select(score.INIT_SCORE, local)

    patch.setattr(score, "_forced", wrong)


def forced_scores_swapped(patch):
    """Local blocks come before initial ones."""
    patch.setattr(score, "INIT_SCORE", 1e29)
    patch.setattr(score, "LOCAL_SCORE", 1e30)


def scored_to(offset):
    """The causal limit of keys moved, the blocks as they are."""

    def fault(patch):
        good = score._block_score
        moved = lambda keys, column, blk: good(  # noqa: E731
            keys, dataclasses.replace(column, kv_len=column.kv_len + offset), blk
        )
        patch.setattr(score, "_block_score", moved)

    return fault


score_one_key_long = named("score_one_key_long", "A row's score sees the next token's index key.", scored_to(1))
score_one_key_short = named("score_one_key_short", "A row's score does not see its own index key.", scored_to(-1))


# ---- of the insertion ------------------------------------------------------------------------------------------------


def slot_not_rebased(patch):
    """Slots of a packed cache stay in vLLM's numbering."""
    patch.setattr(job, "SPARSE_BLOCK_SIZE", 1 << 40)


def v_written_into_k_s_side(patch):
    """The writer's V view lacks its shift of 8 pages."""
    patch.setattr(insert, "_v_memory", lambda k, v, kv_heads: (k, 0))


def v_tokens_swapped(patch):
    """V rows land at the place of their neighbour in the page."""
    patch.setattr(insert, "store_byte", lambda at, byte: store_byte(at ^ 1, byte))


def index_keys_not_written(patch):
    """The new tokens' index keys stay out of their cache."""
    patch.setattr(job, "insert_index", lambda *given: None)


def multiplied_by_the_reciprocal(patch):
    """New rows are multiplied by 1 / scale where they are to be divided by it."""
    patch.setitem(insert.SCALINGS, "divide", insert.SCALINGS["multiply"])


def scales_not_divided_out(patch):
    """New rows are stored as they are, the scale of the cache unheeded."""
    patch.setattr(insert, "_divided", lambda values, scale: values)


# fault -> the case that shows it, and whether the reference must see it too: rounding alone it need not
FAULTS = {
    p_unscaled_where_x448_is_asked: ("x448", True),
    p_x448_where_unscaled_is_asked: ("chunk_edges", True),
    k_scale_missing: ("x448", True),
    v_scale_missing: ("full_table", True),
    v_read_from_k_s_side: ("page_edges", True),
    mask_one_key_long: ("page_edges", True),
    mask_one_key_short: ("page_edges", True),
    v_mask_left_out: ("page_edges", True),
    sums_first_16_then_32: ("chunk_edges", False),
    sums_of_half_the_groups: ("page_edges", True),
    maximum_of_one_group: ("page_edges", True),
    waves_summed_in_a_row: ("chunk_edges", False),
    alpha_forgotten_in_o: ("select_4k", True),
    sum_counted_twice: ("select_4k", True),
    exponent_one_ulp_off: ("page_edges", False),
    exponent_of_2: ("page_edges", True),
    query_cut_not_rounded: ("page_edges", True),
    swizzle_off_by_one: ("page_edges", True),
    v_steps_swapped: ("chunk_edges", True),
    floor_of_splits: ("eight_splits", True),
    guard_forgotten: ("tiny_scales", True),
    scales_of_other_keys: ("per_token", True),
    divided_by_the_sum: ("query_4", False),
    splits_of_another_chip: ("rows_128", True),
    reduced_backwards: ("query_4", False),
    neighbours_summed_first: ("rows_64", False),
    product_and_sum_apart: ("query_4", False),
    product_and_sum_fused: ("flydsl", False),
    tail_block_first: ("page_edges", True),
    context_without_its_tail: ("page_edges", True),
    pages_without_the_head: ("dense", True),
    tie_to_the_smaller_block: ("ties", True),
    rank_of_negative_scores: ("ties", True),
    nan_kept_in_scores: ("nan_blocks", False),
    nan_blocks_first: ("nan_blocks", True),
    initial_before_local: ("forced", True),
    forced_scores_swapped: ("forced", True),
    score_one_key_long: ("causal", True),
    score_one_key_short: ("causal", True),
    slot_not_rebased: ("even", True),
    v_written_into_k_s_side: ("page_edges", True),
    v_tokens_swapped: ("page_edges", True),
    index_keys_not_written: ("page_edges", True),
    multiplied_by_the_reciprocal: ("midpoints", True),
    scales_not_divided_out: ("x448", True),
}


# ---- running them ----------------------------------------------------------------------------------------------------


@functools.cache
def inputs_of(case):
    return build(OWN_CASES.get(case) or CASES[case])


def package():
    """The package, with this file's cases and inputs that are built once."""
    whole = kernel_package("sparse_attention")
    cases = whole.cases | {case.name: case.why for case in OWN_CASES.values()}
    return dataclasses.replace(whole, cases=cases, build=inputs_of, recipe=str)


@functools.cache
def right(case):
    """The outputs without a fault."""
    return package().run_source(inputs_of(case))


def changed(case, outputs):
    """The outputs whose bits or shapes are not those without a fault."""

    def same(output):
        expected, found = right(case)[output.name], outputs[output.name]
        return expected.shape == found.shape and compare(output.name, expected, found, output.format) is None

    return [output.name for output in package().outputs if not same(output)]


@pytest.fixture
def faulty(monkeypatch):
    """Applies a fault and makes the kernels be traced and compiled anew, with it and after it."""

    def forget():
        launch.program.cache_clear()
        kernels.programs.cache_clear()
        kernels.compiled.cache_clear()

    def apply(fault):
        fault(monkeypatch)
        forget()

    yield apply
    monkeypatch.undo()
    forget()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_changes_bits_and_what_is_no_rounding_leaves_the_bound(fault, faulty):
    case, in_bound = FAULTS[fault]
    right(case)
    faulty(fault)
    outputs = package().run_source(inputs_of(case))
    wrong = changed(case, outputs)
    sentences = package().bound(inputs_of(case), outputs)
    print(f"{fault.__name__}: {case}: {', '.join(wrong)}; {sentences[:1]}")
    assert wrong, f"{fault.__doc__} went unnoticed"
    assert bool(sentences) == in_bound, f"{fault.__doc__}: {sentences[:3]}"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with goldens of the cases, of runs without a fault."""
    folder, evidence = tmp_path_factory.mktemp("goldens"), recorded_evidence("sparse_attention")
    for case in sorted({case for case, _ in FAULTS.values()}):
        write(package(), case, inputs_of(case), right(case), evidence, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_check_catches_the_fault(fault, faulty, home):
    case, in_bound = FAULTS[fault]
    faulty(fault)
    kinds = {finding.kind for finding in check_case(package(), case, OPTIONS, home).findings}
    assert kinds == {"golden", "bound"} if in_bound else {"golden"}


@pytest.mark.parametrize("case", OWN_CASES)
def test_without_a_fault_these_cases_are_right(case):
    machine, _ = package().run_machine(inputs_of(case), OPTIONS, None)
    assert changed(case, machine) == []
    assert package().bound(inputs_of(case), machine) == []


def test_the_block_of_the_case_without_rebase_is_even():
    """So that its slot, not rebased, is still one of K's side, and nothing refuses it."""
    assert inputs_of("even").slots[0] // 128 % 2 == 0
