"""The backend under vLLM's names: splitting a batch, its metadata, and a layer's forward."""

import contextlib
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention.metadata import (
    ForwardContext,
    Split,
    forward_context,
    get_forward_context,
    split_decodes_and_prefills,
)
from codegen.kernels.sparse_attention.msa_attention import pa_sparse_block_topk, score_block_width
from codegen.kernels.sparse_attention.sparse_attention_msa import (
    MiniMaxM3SparseAiterPABackend,
    MiniMaxM3SparseAiterPAImpl,
    MiniMaxM3SparseAiterPAMetadataBuilder,
    decode_threshold,
)
from codegen.kernels.sparse_attention.sparse_pa import (
    AttendChoices,
    minimax_m3_build_sparse_block_table_decode,
    minimax_m3_sparse_attn_decode_aiter,
    minimax_m3_sparse_attn_prefill_aiter,
)
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, FP8, Problem, common, config, same_bits

SCALE = 128**-0.5
CPU = torch.device("cpu")


def test_the_backend_names_its_parts():
    backend = MiniMaxM3SparseAiterPABackend
    assert backend.get_name() == "MINIMAX_M3_SPARSE"
    assert backend.get_impl_cls() is MiniMaxM3SparseAiterPAImpl
    assert backend.get_builder_cls() is MiniMaxM3SparseAiterPAMetadataBuilder
    assert backend.get_supported_head_sizes() == backend.get_supported_kernel_block_sizes() == [128]
    assert backend.is_sparse()
    assert backend.supported_dtypes == [BF16]
    assert backend.supported_kv_cache_dtypes == ["auto", "bfloat16", "fp8", "fp8_e4m3"]


# ---- splitting a batch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lens", "threshold", "expected"),
    [
        ([1, 1, 1], 1, Split(3, 0, 3, 0, 1)),
        ([1, 1, 5], 1, Split(2, 1, 2, 5, 1)),
        ([5, 1], 1, Split(0, 2, 0, 6, 0)),
        ([4, 4], 4, Split(2, 0, 8, 0, 4)),
        ([4, 4, 3, 4], 4, Split(2, 2, 8, 7, 4)),  # a ragged speculative step: its uniform head decodes
        ([2, 4, 4], 4, Split(1, 2, 2, 8, 2)),
        ([1, 0, 2], 4, Split(1, 2, 1, 2, 1)),  # an empty request among others is a prefill of nothing
        ([], 4, Split(0, 0, 0, 0, 0)),
    ],
)
def test_the_uniform_head_of_a_batch_decodes(lens, threshold, expected):
    offsets = [sum(lens[:i]) for i in range(len(lens) + 1)]
    assert split_decodes_and_prefills(offsets, sum(lens), threshold) == expected


def test_padding_of_a_captured_batch_decodes_and_its_tokens_count():
    assert split_decodes_and_prefills([0, 4, 8, 8], 12, 4) == Split(3, 0, 12, 0, 4)
    assert split_decodes_and_prefills([0, 1, 1], 2, 1) == Split(2, 0, 2, 0, 1)
    with pytest.raises(ValueError, match="tokens must be padded with them, to 12"):
        split_decodes_and_prefills([0, 4, 8, 8], 8, 4)


@pytest.mark.parametrize(
    ("offsets", "tokens", "message"),
    [
        ([0, 1, 6], 8, "num_actual_tokens is 8; the requests have 6 tokens"),
        ([0, 0, 3], 3, "first request has no query token; put requests with tokens first"),
        ([1, 2], 1, "start at 0 and never fall"),
        ([0, 2, 1], 1, "start at 0 and never fall"),
    ],
)
def test_offsets_that_are_no_batch_are_refused(offsets, tokens, message):
    with pytest.raises(ValueError, match=message):
        split_decodes_and_prefills(offsets, tokens, 1)


def test_speculation_raises_the_decode_threshold():
    assert decode_threshold(SimpleNamespace()) == decode_threshold(config()) == 1
    assert decode_threshold(config(num_speculative_tokens=None)) == 1
    assert decode_threshold(config(num_speculative_tokens=3)) == 4
    assert decode_threshold(config(num_speculative_tokens=3, parallel_drafting=True)) == 7


# ---- metadata --------------------------------------------------------------------------------------------------------


def builder(max_num_seqs=8, max_model_len=1024, **speculative):
    return MiniMaxM3SparseAiterPAMetadataBuilder(
        SimpleNamespace(block_size=128), ["layer"], config(max_num_seqs, max_model_len, **speculative), CPU
    )


def test_a_mixed_batch_is_split_decode_first():
    batch = common([1, 1, 3, 2], [300, 129, 3, 200], torch.arange(20, dtype=torch.int32).reshape(4, 5))
    batch.slot_mapping = torch.tensor([-1, 0, 127, 128, 129, 255, 256])
    got = builder().build(0, batch)
    assert (got.num_decodes, got.num_decode_tokens, got.num_prefills, got.num_prefill_tokens) == (2, 2, 2, 5)
    assert (got.num_actual_tokens, got.max_seq_len, got.seq_lens.tolist()) == (7, 300, [300, 129, 3, 200])
    assert got.slot_mapping.tolist() == [-1, 0, 127, 256, 257, 383, 512]
    d, p = got.decode, got.prefill
    assert (d.seq_lens.tolist(), d.decode_query_len) == ([300, 129], 1)
    assert torch.equal(d.block_table, batch.block_table_tensor[:2])
    assert torch.equal(d.page16_block_table, 2 * batch.block_table_tensor[:2])
    assert torch.equal(p.block_table, batch.block_table_tensor[2:])
    assert torch.equal(p.page16_block_table, 2 * batch.block_table_tensor[2:])
    assert (p.cu_seqlens_q.tolist(), p.cu_seqlens_k.tolist()) == ([0, 3, 5], [0, 3, 203])
    assert (p.seq_lens.tolist(), p.context_lens.tolist()) == ([3, 200], [0, 198])
    assert (p.max_query_len, p.max_seq_len, p.total_kv_blocks) == (3, 300, 1 + 2)
    assert (p.query_req_id.tolist(), p.query_abs_pos.tolist()) == ([0, 0, 0, 1, 1], [0, 1, 2, 198, 199])
    for tensor in (p.cu_seqlens_q, p.cu_seqlens_k, p.context_lens, p.query_req_id, p.query_abs_pos):
        assert tensor.dtype == torch.int32


def test_a_side_without_requests_is_none():
    table = torch.zeros((2, 4), dtype=torch.int32)
    assert builder().build(0, common([1, 1], [5, 6], table)).prefill is None
    assert builder().build(0, common([3, 1], [5, 6], table)).decode is None


def test_the_page16_tables_stay_where_they_are():
    own = builder()
    assert own.page16_block_table_buffer.shape == (8, 8)
    assert own.page16_block_table_buffer.dtype == torch.int32
    seen = set()
    for step in range(3):
        requests = 3 + step
        table = torch.full((requests, 5), step, dtype=torch.int32)
        got = own.build(0, common([1, 1] + [4] * (requests - 2), [9] * requests, table))
        assert got.decode.page16_block_table.data_ptr() == own.page16_block_table_buffer.data_ptr()
        seen.add((got.decode.page16_block_table.data_ptr(), got.prefill.page16_block_table.data_ptr()))
        assert bool((own.page16_block_table_buffer[:requests, :5] == 2 * step).all())
    assert len(seen) == 1


def test_a_buffer_rounds_max_model_len_up():
    assert builder(max_model_len=1025).page16_block_table_buffer.shape == (8, 9)


def test_negative_entries_double_as_well():
    batch = common([1], [5], torch.tensor([[-1, 0, 3]], dtype=torch.int32))
    assert builder().build(0, batch).decode.page16_block_table.tolist() == [[-2, 0, 6]]


def test_another_block_size_is_refused():
    with pytest.raises(ValueError, match="block_size is 16; expected 128"):
        MiniMaxM3SparseAiterPAMetadataBuilder(SimpleNamespace(block_size=16), [], config(), CPU)


SPEC = SimpleNamespace(block_size=128)


@pytest.mark.parametrize(
    ("spec", "vllm_config", "error", "message"),
    [
        (
            SimpleNamespace(),
            config(),
            AttributeError,
            "kv_cache_spec, a SimpleNamespace, has no block_size; the",
        ),
        (None, config(), AttributeError, "kv_cache_spec, a NoneType, has no block_size.*pass vLLM's object"),
        (SimpleNamespace(block_size=128.0), config(), TypeError, "the cache's block_size is 128.0, a float"),
        (SPEC, None, AttributeError, "vllm_config, a NoneType, has no model_config"),
        (
            SPEC,
            SimpleNamespace(model_config=SimpleNamespace()),
            AttributeError,
            "vllm_config.model_config, a SimpleNamespace, has no max_model_len",
        ),
        (
            SPEC,
            SimpleNamespace(model_config=SimpleNamespace(max_model_len=9), scheduler_config=None),
            AttributeError,
            "vllm_config.scheduler_config, a NoneType, has no max_num_seqs",
        ),
    ],
)
def test_configurations_without_what_is_read_are_refused(spec, vllm_config, error, message):
    with pytest.raises(error, match=message):
        MiniMaxM3SparseAiterPAMetadataBuilder(spec, [], vllm_config, CPU)


@pytest.mark.parametrize("name", sorted(vars(common([1], [5], torch.zeros((1, 4), dtype=torch.int32)))))
def test_step_metadata_without_a_field_is_refused(name):
    batch = common([1], [5], torch.zeros((1, 4), dtype=torch.int32))
    builder().build(0, batch)
    delattr(batch, name)
    with pytest.raises(AttributeError, match=f"common_attn_metadata, a SimpleNamespace, has no {name}; the metadata"):
        builder().build(0, batch)


# ---- the forward context ---------------------------------------------------------------------------------------------


def test_contexts_nest():
    with forward_context({"a": 1}) as outer:
        assert get_forward_context() is outer
        assert outer == ForwardContext({"a": 1})
        with forward_context(None):
            assert get_forward_context().attn_metadata is None
        assert get_forward_context() is outer
    with pytest.raises(RuntimeError, match="with forward_context"):
        get_forward_context()


def test_contexts_left_in_another_order_leave_none_behind():
    outer, inner, last = forward_context({"a": 1}), forward_context({"a": 1}), forward_context(None)
    with contextlib.ExitStack() as stack:
        first, second = outer.__enter__(), stack.enter_context(inner)
        assert get_forward_context() is second
        assert first is not second
        outer.__exit__(None, None, None)
        assert get_forward_context() is second, "equal to the one left, but another"
        third = last.__enter__()
        assert get_forward_context() is third
    assert get_forward_context() is third
    last.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="no forward context is set"):
        get_forward_context()


def test_generators_that_hold_contexts_may_end_in_any_order():
    def held(number):
        with forward_context(number):
            yield get_forward_context()

    generators = [held(number) for number in range(4)]
    entered = [next(generator) for generator in generators]
    open_ones = list(range(4))
    for number in (1, 0, 3, 2):
        generators[number].close()
        open_ones.remove(number)
        if open_ones:
            assert get_forward_context() is entered[open_ones[-1]]
    with pytest.raises(RuntimeError, match="no forward context is set"):
        get_forward_context()


def test_an_exception_leaves_the_outer_context():
    with forward_context("outer") as outer:
        with pytest.raises(KeyError, match="inside"), forward_context("inner"):
            raise KeyError("inside")
        assert get_forward_context() is outer
    with pytest.raises(RuntimeError, match="no forward context is set"):
        get_forward_context()


def test_threads_have_contexts_of_their_own():
    barrier, seen, errors = threading.Barrier(4), {}, []

    def work(number):
        try:
            with pytest.raises(RuntimeError, match="no forward context is set"):
                get_forward_context()
            for _ in range(50):
                with forward_context(number):
                    barrier.wait()
                    with forward_context((number, "inner")):
                        seen[number, "inner"] = get_forward_context().attn_metadata
                    seen[number] = get_forward_context().attn_metadata
                    assert seen[number] == number
                    assert seen[number, "inner"] == (number, "inner")
        except BaseException as error:
            barrier.abort()
            errors.append(error)

    with forward_context("main") as own:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert get_forward_context() is own
    assert not errors, errors
    assert len(seen) == 8


def test_a_context_left_by_another_thread_is_left():
    entered = forward_context("main")
    entered.__enter__()
    thread = threading.Thread(target=entered.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="no forward context is set"):
        get_forward_context()


# ---- a layer's forward -----------------------------------------------------------------------------------------------


def layer_of(problem, topk, **buffers):
    return SimpleNamespace(
        layer_name="layer",
        topk_indices_buffer=topk,
        get_aiter_sparse_pa_kv_cache=lambda: (problem.k, problem.v),
        **buffers,
    )


def implementation(problem, **keywords):
    return MiniMaxM3SparseAiterPAImpl(
        16 * problem.kv_heads,
        128,
        SCALE,
        problem.kv_heads,
        "fp8" if problem.dtype is FP8 else "auto",
        topk_blocks=16,
        sparse_block_size=128,
        **keywords,
    )


def run(problem, metadata, layer, query, output=None, **keywords):
    output = torch.full_like(query, float("nan")) if output is None else output
    with forward_context({"layer": metadata}):
        result = implementation(problem).forward(layer, query, problem.kv_cache, output, **keywords)
    assert result is output
    return output


def mixed():
    """Decode requests of 300 and 129 tokens, prefills of 3 and of 2 after 198; each row selects its own blocks."""
    problem = Problem([300, 129, 3, 200], seed=7)
    metadata = builder().build(0, common([1, 1, 3, 2], problem.seq_lens, problem.block_table))
    topk = torch.full((1, 12, 16), 99, dtype=torch.int32)
    for row, (_, _, blocks) in enumerate(ROWS):
        topk[0, row, : len(blocks)] = torch.tensor(blocks)
    query = problem.numbers(12, 16 * 128).to(BF16)
    return problem, metadata, topk, query


# Request, tokens that the row sees, blocks that it selects.
ROWS = [(0, 300, [0, 2]), (1, 129, [1]), (2, 1, [0]), (2, 2, [0]), (2, 3, [0]), (3, 199, [0]), (3, 200, [0, 1])]


def test_decode_and_prefill_rows_are_attended_in_one_forward():
    problem, metadata, topk, query = mixed()
    out = run(problem, metadata, layer_of(problem, topk), query)
    for n, (request, length, blocks) in enumerate(ROWS):
        exact, width = problem.attend(query[n].view(16, 128), request, blocks, length, SCALE)
        assert bool(((out[n].view(16, 128).to(torch.float64) - exact).abs() <= width).all()), n
    assert bool(out[7:].isnan().all())


def test_the_two_sides_are_the_two_functions():
    problem, metadata, topk, query = mixed()
    out = run(problem, metadata, layer_of(problem, topk), query).view(-1, 16, 128)
    q, expected = query.view(-1, 16, 128), torch.empty((7, 16, 128), dtype=BF16)
    caches, rest = (problem.k, problem.v), (1, SCALE)
    d, p = metadata.decode, metadata.prefill
    minimax_m3_sparse_attn_decode_aiter(
        q[:2], *caches, topk[:, :2], d.block_table, d.seq_lens, *rest, expected[:2], engine="source"
    )
    minimax_m3_sparse_attn_prefill_aiter(
        q[2:7],
        *caches,
        topk[:, 2:7],
        p.block_table,
        p.query_req_id,
        p.query_abs_pos,
        *rest,
        expected[2:],
        engine="source",
    )
    assert same_bits(out[:7], expected)


@pytest.mark.parametrize("attn_metadata", [None, [], "profiling"])
def test_without_a_metadata_dict_the_output_is_untouched(attn_metadata):
    problem = Problem([5], kv_heads=4)
    output = torch.full((2, 64 * 128), 3.0, dtype=BF16)
    with forward_context(attn_metadata):
        assert implementation(problem).forward(None, output, problem.kv_cache, output) is output
    assert bool((output == 3).all())


def test_scales_are_read_of_fp8_caches_only():
    problem, metadata, topk, query = mixed()
    scaled = run(
        problem, metadata, layer_of(problem, topk, _k_scale=torch.tensor(2.0), _v_scale=torch.tensor(0.5)), query
    )
    plain = run(problem, metadata, layer_of(problem, topk), query)
    assert not same_bits(scaled[:7], plain[:7])
    plain = run(problem, metadata, layer_of(problem, topk, _k_scale=None, _v_scale=torch.tensor(1.0)), query)
    assert same_bits(plain[:7], run(problem, metadata, layer_of(problem, topk), query)[:7])
    problem = Problem([100], dtype=BF16)
    metadata = builder().build(0, common([1], [100], problem.block_table))
    layer = layer_of(problem, torch.zeros((1, 1, 16), dtype=torch.int32).index_fill(2, torch.arange(1, 16), -1))
    query = problem.numbers(1, 2048).to(BF16)
    plain = run(problem, metadata, layer, query)
    layer._k_scale = layer._v_scale = torch.tensor(2.0)
    assert same_bits(plain, run(problem, metadata, layer, query))


def test_a_prepared_decode_table_is_used_where_none_was_emitted():
    problem, metadata, topk, query = mixed()
    plain = run(problem, metadata, layer_of(problem, topk), query)
    d = metadata.decode
    table = minimax_m3_build_sparse_block_table_decode(topk[:, :2], d.block_table, d.seq_lens, 1, 16)
    prepared = run(problem, metadata, layer_of(problem, topk), query, decode_sparse_table=table)
    assert same_bits(prepared[:7], plain[:7])
    other = torch.zeros_like(table[0]), torch.ones_like(table[1])
    other[0][:] = int(problem.block_table[2, 0]) * 16
    changed = run(problem, metadata, layer_of(problem, topk), query, decode_sparse_table=other)
    assert not same_bits(changed[:2], plain[:2])
    assert same_bits(changed[2:7], plain[2:7])
    emitting = layer_of(problem, topk, **emit(problem, metadata, topk.clone()))
    ignored = run(problem, metadata, emitting, query, decode_sparse_table=other)
    assert same_bits(ignored[:7], run(problem, metadata, emitting, query)[:7])


def emit(problem, metadata, topk, score=None):
    """The page tables as an indexer emits them, every visible block selected or those of best score; fills topk."""
    heads, tokens, nd = len(topk), metadata.num_actual_tokens, metadata.num_decode_tokens
    width = score_block_width(metadata.max_seq_len)
    score = torch.zeros((heads, tokens, width)) if score is None else score
    rows = topk.shape[1] * problem.kv_heads
    table = torch.full((rows, 128), 2**31 - 1, dtype=torch.int32)
    context = torch.full((rows,), -5, dtype=torch.int32)
    kvh = problem.kv_heads
    given = {"max_seq_len": metadata.max_seq_len, "block_size": 128, "num_kv_heads": kvh}
    if (d := metadata.decode) is not None:
        parts = table[: nd * kvh], context[: nd * kvh]
        given_d = {**given, "query_len": d.decode_query_len}
        pa_sparse_block_topk(score[:, :nd], topk[:, :nd], d.page16_block_table, d.seq_lens, *parts, **given_d)
    if (p := metadata.prefill) is not None:
        parts = table[nd * kvh : tokens * kvh], context[nd * kvh : tokens * kvh]
        kv_lens = p.query_abs_pos + 1
        ragged = {"num_valid_pages": -(-kv_lens // 128), "row_req_id": p.query_req_id, "kv_lens": kv_lens}
        pa_sparse_block_topk(
            score[:, nd:], topk[:, nd:tokens], p.page16_block_table, p.seq_lens, *parts, **given, **ragged
        )
    return {"sparse_bt_buffer": table, "sparse_ctx_buffer": context}


def test_an_emitted_table_serves_each_kv_head_its_own_blocks():
    problem = Problem([300, 200, 600, 3], kv_heads=4, seed=11)
    metadata = builder().build(0, common([1, 1, 2, 3], problem.seq_lens, problem.block_table))
    topk = torch.full((4, 9, 16), 55, dtype=torch.int32)
    score = problem.numbers(4, 7, 64)
    emitted = emit(problem, metadata, topk, score)
    query = problem.numbers(9, 64 * 128).to(BF16)
    out = run(problem, metadata, layer_of(problem, topk, **emitted), query)
    rows = [(0, 300), (1, 200), (2, 599), (2, 600), (3, 1), (3, 2), (3, 3)]
    for n, (request, length) in enumerate(rows):
        exact, width = problem.attend(query[n].view(64, 128), request, list(range(-(-length // 128))), length, SCALE)
        assert bool(((out[n].view(64, 128).to(torch.float64) - exact).abs() <= width).all()), n
    assert bool((topk[:, 7:] == 55).all())
    assert bool((emitted["sparse_ctx_buffer"][28:] == -5).all())
    by_score = score[0, 3, :5].argsort(descending=True).tolist()
    assert topk[0, 3].tolist() == by_score + [-1] * 11


def test_choices_go_to_every_attend():
    problem, metadata, topk, query = mixed()
    outs = []
    for choices in (AttendChoices(splits=1), AttendChoices(splits=3), AttendChoices(splits=3, engine="source")):
        out = torch.zeros_like(query)
        with forward_context({"layer": metadata}):
            implementation(problem, choices=choices).forward(layer_of(problem, topk), query, problem.kv_cache, out)
        outs.append(out)
    assert same_bits(outs[1], outs[2])
    assert not same_bits(outs[0], outs[1])


def test_num_kv_heads_defaults_to_num_heads():
    """As vLLM's does, which these kernels have no attend for."""
    with pytest.raises(ValueError, match=r"num_heads is 4 and num_kv_heads 4 \(num_heads, as it was not given"):
        MiniMaxM3SparseAiterPAImpl(4, 128, 1.0, topk_blocks=16, sparse_block_size=128)
    own = MiniMaxM3SparseAiterPAImpl(64, 128, 1.0, 4, topk_blocks=16, sparse_block_size=128)
    assert (own.num_kv_heads, own.kv_cache_dtype, own.use_fp8_kv) == (4, "auto", False)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_heads": None}, TypeError, "num_heads is None, a NoneType; expected a whole number"),
        ({"num_heads": 16.0}, TypeError, "num_heads is 16.0, a float"),
        ({"num_heads": 0}, ValueError, "num_heads is 0; expected 1 to"),
        ({"num_heads": 17}, ValueError, "num_heads is 17 and num_kv_heads 1; expected 16 query heads a kv head"),
        ({"num_kv_heads": 2}, ValueError, "num_heads is 16 and num_kv_heads 2; expected 16 query heads"),
        ({"num_kv_heads": True}, TypeError, "num_kv_heads is True, a bool; expected a whole number"),
        ({"num_kv_heads": "1"}, TypeError, "num_kv_heads is '1', a str"),
        ({"num_kv_heads": -1}, ValueError, "num_kv_heads is -1; expected 1 to"),
        ({"head_size": 64}, ValueError, "head_size is 64; expected 128, the kernels' only one"),
        ({"head_size": 128.0}, TypeError, "head_size is 128.0, a float"),
        ({"scale": "x"}, TypeError, "scale is 'x', a str; expected a number"),
        ({"scale": True}, TypeError, "scale is True, a bool"),
        ({"scale": float("nan")}, ValueError, "scale is nan; expected a finite number that float32 holds"),
        ({"kv_cache_dtype": None}, ValueError, "kv_cache_dtype is None; expected one of auto"),
        ({"topk_blocks": 16.0}, TypeError, "topk_blocks is 16.0, a float"),
        ({"sparse_block_size": 128.0}, TypeError, "sparse_block_size is 128.0, a float"),
        ({"choices": {}}, TypeError, "choices is a dict; expected an AttendChoices, or None for its defaults"),
        ({"choices": {"splits": 2}}, TypeError, "choices is a dict"),
        ({"choices": AttendChoices(splits="2")}, TypeError, "splits is '2', a str"),
        ({"choices": AttendChoices(splits=65)}, ValueError, r"splits is 65; expected 1 \.\. 64"),
        ({"choices": AttendChoices(p="x2")}, ValueError, "no treatment 'x2' of P; there are unscaled, x448"),
        ({"choices": AttendChoices(reduce="tree")}, ValueError, "there is no reduce 'tree'; there are hip, flydsl"),
        ({"choices": AttendChoices(engine="gpu")}, ValueError, "there is no engine 'gpu'; there are source"),
        ({"choices": AttendChoices(engine=[])}, ValueError, r"there is no engine \[\]"),
    ],
)
def test_an_implementation_of_what_the_kernels_have_not_is_refused(changed, error, message):
    given = {"num_heads": 16, "head_size": 128, "scale": 0.1, "num_kv_heads": 1, "kv_cache_dtype": "fp8"}
    given |= {"topk_blocks": 16, "sparse_block_size": 128}
    MiniMaxM3SparseAiterPAImpl(**given)
    with pytest.raises(error, match=message):
        MiniMaxM3SparseAiterPAImpl(**given | changed)


def test_numpys_numbers_are_parameters():
    own = MiniMaxM3SparseAiterPAImpl(
        np.int64(32), np.int32(128), np.float32(0.5), np.int8(2), topk_blocks=np.int32(4), sparse_block_size=128
    )
    assert (own.num_heads, own.num_kv_heads, own.scale, own.topk_blocks) == (32, 2, 0.5, 4)


# ---- public bugs -----------------------------------------------------------------------------------------------------


def test_bug_11_a_ragged_speculative_step():
    """vllm PR #54805: the paged attention needs one query length, and the step had several."""
    problem = Problem([200, 131, 150], seed=13)
    lens = [4, 4, 2]
    batch = common(lens, problem.seq_lens, problem.block_table)
    query_len = batch.max_query_len
    assert sum(lens) % query_len  # the bug: rows are not requests * query length, and the kernel aborts
    as_if_uniform = [(n // query_len, problem.seq_lens[n // query_len] - query_len + n % query_len) for n in range(10)]
    rows = [(r, problem.seq_lens[r] - lens[r] + t) for r in range(3) for t in range(lens[r])]
    assert as_if_uniform != rows  # padded to run, it would take the last rows for tokens that they are not
    metadata = builder(num_speculative_tokens=3).build(0, batch)
    assert (metadata.num_decodes, metadata.decode.decode_query_len, metadata.num_prefills) == (2, 4, 1)
    topk = torch.full((1, 10, 16), -1, dtype=torch.int32)
    topk[:, :, :2] = torch.tensor([1, 0])
    query = problem.numbers(10, 2048).to(BF16)
    out = run(problem, metadata, layer_of(problem, topk), query)
    for n, (request, position) in enumerate(rows):
        blocks = list(range(position // 128 + 1))
        exact, width = problem.attend(query[n].view(16, 128), request, blocks, position + 1, SCALE)
        assert bool(((out[n].view(16, 128).to(torch.float64) - exact).abs() <= width).all()), n


def test_graph_padding_rows_see_nothing_and_change_nothing():
    problem = Problem([200, 131], seed=2)
    topk = torch.full((1, 4, 16), -1, dtype=torch.int32)
    topk[:, :, :2] = torch.tensor([1, 0])
    query = problem.numbers(4, 2048).to(BF16)
    plain = run(
        problem, builder().build(0, common([1, 1], [200, 131], problem.block_table)), layer_of(problem, topk), query
    )
    table = torch.cat([problem.block_table, torch.full((2, problem.block_table.shape[1]), -9, dtype=torch.int32)])
    batch = common([1, 1, 0, 0], [200, 131, 0, 0], table)
    batch.num_actual_tokens = 4
    padded = run(problem, builder().build(0, batch), layer_of(problem, topk), query)
    assert same_bits(padded[:2], plain[:2])
    assert bool((padded[2:] == 0).all())
