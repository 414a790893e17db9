"""What a hostile caller gives: it is refused before anything is written, with a message that says what to do."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from codegen.kernels.sparse_attention import kernels
from codegen.kernels.sparse_attention.attend import attend
from codegen.kernels.sparse_attention.cache import minimax_m3_rebase_slots_to_page16
from codegen.kernels.sparse_attention.insert import insert_index, insert_kv, insert_kv_per_token
from codegen.kernels.sparse_attention.metadata import forward_context
from codegen.kernels.sparse_attention.msa_attention import (
    pa_sparse_block_score_decode,
    pa_sparse_block_score_prefill,
    pa_sparse_block_topk,
)
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.sparse_attention_msa import (
    MiniMaxM3SparseAiterPAImpl,
    MiniMaxM3SparseAiterPAMetadataBuilder,
)
from codegen.kernels.sparse_attention.sparse_pa import (
    minimax_m3_build_sparse_block_table_decode,
    minimax_m3_insert_index_cache,
    minimax_m3_sparse_attn_decode_aiter,
)
from gfx950.kv_cache import IndexKeyLayout, KvCacheLayout
from gfx950.kv_cache_commands import kv_cache
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, FP8, Problem, common, config, padded

LARGEST = (1 << 31) - 1


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


def bytes_of(tensor):
    return tensor.detach().contiguous().view(torch.uint8).clone()


# ---- one decode row --------------------------------------------------------------------------------------------------


def decode(problem=None, **changed):
    problem = problem or Problem([300])
    query = problem.query(1)
    given = {
        "q": query,
        "k_cache": problem.k,
        "v_cache": problem.v,
        "topk_idx": padded([[2, 1, 0]]),
        "block_table": problem.block_table,
        "seq_lens": problem.lens,
        "num_kv_heads": 1,
        "sm_scale": 0.1,
        "output": torch.full_like(query, 5),
    }
    given.update(changed)
    try:
        minimax_m3_sparse_attn_decode_aiter(**given)
    except Exception:
        assert bool((given["output"] == 5).all()), "an error wrote a part of the output"
        raise


def cut(keys, values):
    problem = Problem([300])
    return {"k_cache": problem.k[:keys], "v_cache": problem.v[:values]}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_kv_heads": True}, TypeError, "num_kv_heads is True, a bool; expected a whole number"),
        ({"num_kv_heads": None}, TypeError, "num_kv_heads is None"),
        ({"num_kv_heads": 1.0}, TypeError, "num_kv_heads is 1.0, a float"),
        ({"sm_scale": float("nan")}, ValueError, "scale is nan; expected a finite number that float32 holds"),
        ({"sm_scale": float("inf")}, ValueError, "scale is inf"),
        ({"sm_scale": 1e300}, ValueError, r"scale is 1e\+300"),
        ({"sm_scale": 10**400}, ValueError, "scale is 1000"),
        ({"k_scale": True}, TypeError, "k_scale is True, a bool"),
        ({"k_scale": float("nan")}, ValueError, "k_scale is nan; expected a positive finite number"),
        ({"v_scale": 1e300}, ValueError, r"v_scale is 1e\+300"),
        ({"k_scale": 0}, ValueError, "k_scale is 0"),
        ({"k_scale": 10**400}, ValueError, "k_scale is 1000"),
        ({"v_scale": torch.tensor(float("inf"))}, ValueError, r"v_scale\[0\] is inf; expected a positive finite"),
        ({"reduce": []}, ValueError, r"there is no reduce \[\]"),
        (
            {"decode_query_len": 10**10},
            AssertionError,
            "topk_idx has 1 rows for 1 requests of decode_query_len 10000000000",
        ),
        ({"seq_lens": ints(1) - 5}, ValueError, r"seq_lens\[0\] is -5; expected a length"),
        (cut(48, 47), ValueError, "k_cache has 48 pages and v_cache 47; .*pass both views .* whole"),
        (cut(50, 42), ValueError, "k_cache has 50 pages and v_cache 42"),
    ],
)
def test_decode_refuses(changed, error, message):
    with pytest.raises(error, match=message):
        decode(**changed)


def test_numbers_beyond_int32_are_never_another_row():
    rows = Rows.prefill(np.array([1 << 32, -(1 << 40)]), np.array([(1 << 32) + 4, LARGEST]))
    assert rows.request.tolist() == [LARGEST, -LARGEST - 1]
    assert rows.kv_len.tolist() == [LARGEST, LARGEST]
    rows = Rows.decode(np.array([-LARGEST - 1, LARGEST], np.int32), 2)
    assert rows.kv_len.tolist() == [0, 0, LARGEST - 1, LARGEST]


def test_a_scale_of_arrays_is_a_positive_number():
    arrays = [np.zeros(shape, dtype) for shape, dtype in (((1, 16, 128), np.uint16), ((16, 2048), np.uint8))]
    rest = np.zeros((1, 1), np.int32), np.array([1], np.int32)
    for number in (np.nan, np.inf, 0, -1):
        scale = np.array([number], np.float32)
        with pytest.raises(ValueError, match=r"k_scale\[0\] is .*; expected a positive finite number"):
            attend(kernels.runner("source"), *arrays, arrays[1], *rest, scale=0.1, k_scale=scale, splits=1)


# ---- new tokens ------------------------------------------------------------------------------------------------------


def per_token(whole, **changed):
    """A token into one dense block."""
    rows = np.ones((1, 1, 128), np.uint16)
    given = {"key": rows, "value": rows, "k": whole[:8], "v": whole[8:], "slots": np.zeros(1, np.int64)}
    given |= {"k_scale": np.ones((1, 128), np.float32), "v_scale": np.ones((1, 128), np.float32)} | changed
    insert_kv_per_token(kernels.runner("source"), **given, kv_heads=1)


def read_only():
    scale = np.ones((1, 128), np.float32)
    scale.flags.writeable = False
    return scale


@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_a_read_only_scale_is_refused_before_the_cache_is_written(name):
    whole = np.full((16, 2048), 7, np.uint8)
    with pytest.raises(ValueError, match=f"{name} is read-only"):
        per_token(whole, **{name: read_only()})
    assert (whole == 7).all()


def test_arrays_in_written_memory_are_refused():
    whole = np.zeros((16, 2048), np.uint8)
    line = whole.reshape(-1)
    one = np.ones((1, 128), np.float32)
    for changed, message in (
        ({"key": line[256:512].view(np.uint16).reshape(1, 1, 128)}, r"key shares memory with k, .*pass key.copy\(\)"),
        ({"value": line[-256:].view(np.uint16).reshape(1, 1, 128)}, "value shares memory with v"),
        ({"slots": line[:8].view(np.int64)}, "slots shares memory with k"),
        ({"v_scale": line[:512].view(np.float32).reshape(1, 128)}, "v_scale shares memory with k"),
        ({"k_scale": one, "v_scale": one}, "v_scale shares memory with k_scale"),
        ({"k_scale": one, "key": one.view(np.uint16)[:, :128].reshape(1, 1, 128)}, "key shares memory with k_scale"),
    ):
        with pytest.raises(ValueError, match=message):
            per_token(whole, **changed)
        assert not whole.any()
    packed = {
        "k": whole,
        "v": whole[8:],
        "kv_heads": 1,
        "slots": np.zeros(1, np.int64),
        "value": np.ones((1, 1, 128), np.uint16),
    }
    with pytest.raises(ValueError, match="key shares memory with k"):
        insert_kv(kernels.runner("source"), line[:256].view(np.uint16).reshape(1, 1, 128), **packed)
    with pytest.raises(ValueError, match=r"scaling is \[\]"):
        insert_kv(kernels.runner("source"), np.ones((1, 1, 128), np.uint16), **packed, scaling=[])
    cache = np.zeros((1, 128, 128), np.uint8)
    with pytest.raises(ValueError, match="index_k shares memory with index_cache"):
        insert_index(kernels.runner("source"), cache[0, 3:5], cache, np.array([4, 3]))


@pytest.mark.parametrize("name", ["index_k", "index_cache", "index_slot_mapping"])
@pytest.mark.parametrize("value", [None, 1, np.zeros((1, 128), np.uint8)])
def test_index_keys_are_tensors(name, value):
    given = {"index_k": torch.zeros((1, 128), dtype=FP8), "index_cache": torch.zeros((1, 128, 128), dtype=FP8)}
    given["index_slot_mapping"] = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(TypeError, match=f"{name} is a {type(value).__name__}; expected a torch tensor"):
        minimax_m3_insert_index_cache(**given | {name: value})


def test_a_slot_that_int64_does_not_double_is_refused():
    largest = (1 << 62) - 1
    assert minimax_m3_rebase_slots_to_page16(torch.tensor([largest])).item() == largest + (largest // 128) * 128
    with pytest.raises(ValueError, match=f"slots has {largest + 1}; expected at most {largest}"):
        minimax_m3_rebase_slots_to_page16(torch.tensor([0, largest + 1]))
    with pytest.raises(ValueError, match="block_size is 1000"):
        minimax_m3_rebase_slots_to_page16(torch.tensor([0]), block_size=10**30)


# ---- the layout ------------------------------------------------------------------------------------------------------


def test_counts_of_a_layout_are_whole_numbers_of_any_size():
    wide = KvCacheLayout("fp8", np.int32(1 << 20), True, np.int32(1 << 24))
    assert wide.allocation_bytes == 1 << (15 + 20 + 24)
    assert IndexKeyLayout("fp8", np.int8(100)).byte(99, 0, 0) == 99 * 128 * 128
    for given, error, message in (
        (("fp8", True), TypeError, "kv_heads True is a bool"),
        (("fp8", None), TypeError, "kv_heads None is a NoneType"),
        (("fp8", 1, "dense"), TypeError, "packed is 'dense', a str; give True or False"),
        (([],), ValueError, r"format \[\]: a page-16 cache is fp8 or bf16"),
    ):
        with pytest.raises(error, match=message):
            KvCacheLayout(*given)


@pytest.mark.parametrize("digits", ["9" * 5000, "0x" + "f" * 5000], ids=["decimal", "hexadecimal"])
def test_a_number_that_python_does_not_show_is_refused(digits):
    result = CliRunner().invoke(kv_cache, [f"K[block {digits}][token 0][dim 0]"])
    assert result.exit_code == 2
    assert f"has {len(digits)} characters; give one of at most 1000" in result.output


# ---- the indexer -----------------------------------------------------------------------------------------------------


def scored(**changed):
    given = {
        "iq": torch.zeros(1, 1, 128).to(FP8),
        "kv": torch.zeros(4, 128, 128).to(FP8),
        "score": torch.full((1, 1, 64), 7.0),
        "block_table": ints(1, 3),
        "seq_lens": ints(1) + 300,
    }
    pa_sparse_block_score_decode(**given | changed)


def scored_ragged(**changed):
    given = {
        "iq": torch.zeros(1, 1, 128).to(FP8),
        "kv": torch.zeros(4, 128, 128).to(FP8),
        "score": torch.full((1, 1, 64), 7.0),
        "block_table": ints(1, 3),
        "cu_seqlens_q": torch.tensor([0, 1], dtype=torch.int32),
        "seq_lens": ints(1) + 300,
        "max_query_len": 1,
        "max_seq_len": 300,
    }
    pa_sparse_block_score_prefill(**given | changed)


def selected(**changed):
    given = {
        "score": torch.zeros(1, 1, 64),
        "topk_idx": ints(1, 1, 16) + 9,
        "block_table": ints(1, 3),
        "seq_lens": ints(1) + 300,
        "sparse_bt": ints(1, 128) + 9,
        "sparse_ctx": ints(1) + 9,
        "max_seq_len": 300,
        "block_size": 128,
    } | changed
    outputs = [given[name] for name in ("topk_idx", "sparse_bt", "sparse_ctx")]
    before = [output.clone() for output in outputs]
    try:
        pa_sparse_block_topk(**given)
    except Exception:
        assert all(map(torch.equal, outputs, before)), "an error wrote a part of the outputs"
        raise


SHARED = ints(129)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: scored(query_len=True), TypeError, "query_len is True, a bool"),
        (lambda: scored(query_len=None), TypeError, "query_len is None"),
        (lambda: scored(query_len=10**10), ValueError, r"iq has shape \(1, 1, 128\); expected 10000000000 rows"),
        (lambda: scored(max_seq_len="1"), TypeError, "max_seq_len is '1', a str"),
        (lambda: scored(max_seq_len=-1), ValueError, "max_seq_len is -1"),
        (lambda: scored(seq_lens=ints(1) - 1), ValueError, r"seq_lens\[0\] is -1; expected a length"),
        (
            lambda: scored(
                iq=torch.zeros(2, 1, 128).to(FP8),
                seq_lens=ints(2) + 300,
                block_table=ints(2, 3),
                score=torch.zeros(1, 1, 64).expand(1, 2, 64),
            ),
            ValueError,
            r"score has shape \(1, 2, 64\) and strides .*share memory.*pass score.contiguous\(\)",
        ),
        (
            lambda: scored_ragged(cu_seqlens_q=torch.tensor([0, LARGEST], dtype=torch.int32)),
            ValueError,
            f"cu_seqlens_q ends at {LARGEST}, and iq has 1 rows",
        ),
        (lambda: scored_ragged(max_query_len=None), TypeError, "max_query_len is None"),
        (lambda: scored_ragged(max_seq_len="300"), TypeError, "max_seq_len is '300', a str"),
        (
            lambda: scored(score=torch.full((1, 1, 2), 7.0)),
            ValueError,
            "score is 2 blocks wide; expected at least 3, which row 0 sees",
        ),
        (lambda: scored_ragged(score=torch.zeros(1, 1, 0)), ValueError, "score is 0 blocks wide; expected at least 3"),
        (lambda: scored(iq=torch.zeros(1, 0, 128).to(FP8), score=torch.zeros(0, 1, 64)), ValueError, "0 index heads"),
        (
            lambda: scored(kv=torch.zeros(0, 128, 128).to(FP8)),
            ValueError,
            "blocks of index_cache, and there are none",
        ),
        (lambda: selected(score=torch.zeros(1, 1, 2)), ValueError, "score is 2 blocks wide; expected 64"),
        (lambda: selected(block_size=128.0), TypeError, "block_size is 128.0, a float; expected a whole number"),
        (lambda: selected(pages_per_block=8.0), TypeError, "pages_per_block is 8.0, a float"),
        (lambda: selected(num_kv_heads=None), TypeError, "num_kv_heads is None"),
        (lambda: selected(num_kv_heads="1"), TypeError, "num_kv_heads is '1', a str"),
        (lambda: selected(num_kv_heads=0), ValueError, "num_kv_heads is 0"),
        (lambda: selected(max_seq_len=None), TypeError, "max_seq_len is None"),
        (lambda: selected(query_len=10**10), ValueError, r"score has shape \(1, 1, 64\); expected 10000000000 rows"),
        (lambda: selected(topk_idx=ints(1, 1, 1).expand(1, 1, 16)), ValueError, "topk_idx has .*share memory"),
        (
            lambda: selected(sparse_bt=SHARED[:128].view(1, 128), sparse_ctx=SHARED[127:128]),
            ValueError,
            "sparse_bt and sparse_ctx share memory, and both are written",
        ),
    ],
)
def test_the_indexer_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_outputs_may_be_interleaved_in_one_buffer():
    buffer = ints(1, 200) + 9
    selected(sparse_bt=buffer[:, :128], topk_idx=buffer[:, 130:146].view(1, 1, 16), sparse_ctx=buffer[0, 150:151])
    assert buffer[0, 150] == 300
    assert (buffer[0, 151:] == 9).all()


@pytest.mark.parametrize("length", [10**10, True, None])
def test_a_table_of_too_many_decode_rows_is_not_begun(length):
    error = AssertionError if length == 10**10 else ValueError
    with pytest.raises(error, match=f"decode_query_len (is )?{length}"):
        minimax_m3_build_sparse_block_table_decode(padded([[0]]), ints(1, 4), ints(1) + 5, length)


# ---- the layer -------------------------------------------------------------------------------------------------------


def builder(**changed):
    made = config(2, 512)
    made.scheduler_config.max_num_seqs = changed.get("max_num_seqs", 2)
    made.model_config.max_model_len = changed.get("max_model_len", 512)
    cpu = torch.device("cpu")
    return MiniMaxM3SparseAiterPAMetadataBuilder(SimpleNamespace(block_size=128), ["layer"], made, cpu)


def build(table, **changed):
    made, step = builder(), common([1, 2], [300, 300], table)
    made.page16_block_table_buffer.fill_(77)
    vars(step).update(changed)
    try:
        return made.build(0, step)
    except Exception:
        assert bool((made.page16_block_table_buffer == 77).all()), "an error wrote the page-16 table"
        raise


class Layer:
    """A layer over a problem of a decode request and a prefill request of two rows, and a run of it."""

    def __init__(self, seed=1, num_heads=16):
        self.problem = Problem([300, 300], seed=seed)
        self.metadata = build(self.problem.block_table[:, :4])
        self.layer = SimpleNamespace(
            layer_name="layer",
            topk_indices_buffer=padded([[2, 1, 0]] * 3),
            get_aiter_sparse_pa_kv_cache=lambda: (self.problem.k, self.problem.v),
        )
        self.impl = MiniMaxM3SparseAiterPAImpl(num_heads, 128, 0.1, 1, "fp8", topk_blocks=16, sparse_block_size=128)
        self.query = self.problem.query(3).reshape(3, -1)

    def run(self, query=None, output=None, **keywords):
        query = self.query if query is None else query
        output = torch.full_like(query, 5) if output is None else output
        before = bytes_of(output)
        try:
            with forward_context({"layer": self.metadata}):
                self.impl.forward(self.layer, query, self.problem.kv_cache, output, **keywords)
        except Exception:
            assert torch.equal(bytes_of(output), before), "an error wrote a part of the output"
            raise
        return output


def change(owner, **values):
    def changed(layer):
        target = layer
        for name in filter(None, owner.split(".")):
            target = getattr(target, name)
        for name, value in values.items():
            setattr(target, name, value)
        return {}

    return changed


def without(name):
    return lambda layer: delattr(layer.layer, name) or {}


EMITTED = {"sparse_bt_buffer": ints(3, 128), "sparse_ctx_buffer": ints(3) + 1}
TOO_LONG = torch.tensor([1, 1, 5000], dtype=torch.int32)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        (without("layer_name"), AttributeError, "the layer, a SimpleNamespace, has no layer_name"),
        (without("topk_indices_buffer"), AssertionError, "no topk_indices_buffer; run its indexer first"),
        (without("get_aiter_sparse_pa_kv_cache"), AttributeError, "has no get_aiter_sparse_pa_kv_cache"),
        (change("layer", get_aiter_sparse_pa_kv_cache=lambda: None), TypeError, "is a NoneType; expected two tensors"),
        (change("layer", topk_indices_buffer=ints(3, 16)), ValueError, r"topk_indices_buffer has shape \(3, 16\)"),
        (change("layer", topk_indices_buffer=[1]), TypeError, "topk_indices_buffer is a list"),
        (change("layer", topk_indices_buffer=padded([[2]] * 2)), AssertionError, "topk_idx has 1 rows"),
        (change("layer", **EMITTED | {"sparse_ctx_buffer": ints(2)}), ValueError, "context lengths has shape"),
        (change("layer", **EMITTED | {"sparse_ctx_buffer": TOO_LONG}), ValueError, r"ctx\[1\] is 5000"),
        (change("layer", sparse_ctx_buffer=ints(3)), ValueError, "is given without"),
        (change("metadata", prefill=None), AssertionError, "metadata's prefill is None"),
        (change("metadata.prefill", query_req_id=ints(2) + 7), ValueError, "request of row 0 is 7"),
        (change("metadata.prefill", query_abs_pos=ints(2) + 9999), ValueError, "kv_len of row 0 is 10000"),
        (change("metadata.prefill", query_abs_pos=ints(2) + LARGEST), ValueError, f"kv_len of row 0 is {LARGEST}"),
        (change("metadata", num_actual_tokens=2), ValueError, "num_actual_tokens 2; expected the tokens of both sides"),
        (change("metadata", num_actual_tokens=None), TypeError, "the metadata's num_actual_tokens is None"),
        (change("metadata", num_decodes=0), ValueError, "expected the tokens of both sides"),
        (change("metadata", num_prefills=0), ValueError, "expected the tokens of both sides"),
        (
            lambda layer: {"query": layer.query[:2]},
            ValueError,
            r"query has shape \(2, 2048\); expected at least 3 rows",
        ),
        (lambda layer: {"output": layer.query[:2].clone()}, ValueError, r"output has shape \(2, 2048\)"),
        (lambda layer: {"query": layer.query[:, :2000]}, ValueError, "of 16 heads of 128"),
        (lambda layer: {"output": layer.query.float()}, TypeError, "output is float32; expected bfloat16"),
        (
            lambda layer: {"output": torch.zeros((3, 4096), dtype=BF16)[:, :2048]},
            ValueError,
            "output has strides .*must be contiguous",
        ),
        (lambda layer: {"decode_sparse_table": ints(1, 128)}, TypeError, "decode_sparse_table is a Tensor"),
        (lambda layer: {"decode_sparse_table": (ints(1, 128),)}, TypeError, "expected two tensors"),
    ],
)
def test_forward_refuses_and_leaves_the_output(changed, error, message):
    layer = Layer()
    with pytest.raises(error, match=message):
        layer.run(**changed(layer))


def test_an_output_that_overlaps_the_query_is_written_after_all_rows_are_read():
    layer = Layer()
    memory = torch.cat([layer.query, layer.query[:1]])
    expected = layer.run()
    assert torch.equal(bytes_of(layer.run(query=memory[:3], output=memory[1:])), bytes_of(expected))


def test_tensors_that_require_a_gradient_are_read_and_written():
    layer = Layer()
    expected = layer.run()
    output = torch.full_like(layer.query, 5).requires_grad_()
    assert torch.equal(
        bytes_of(layer.run(query=layer.query.clone().requires_grad_(), output=output)), bytes_of(expected)
    )


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"num_reqs": None}, TypeError, "num_reqs is None"),
        ({"seq_lens": ints(1)}, ValueError, r"seq_lens has shape \(1,\); expected \(2,\)"),
        ({"seq_lens": ints(5)}, ValueError, r"seq_lens has shape \(5,\)"),
        ({"seq_lens": None}, TypeError, "seq_lens is a NoneType"),
        ({"seq_lens": torch.ones(2)}, TypeError, "seq_lens is float32"),
        ({"seq_lens": torch.tensor([1, 1 << 40])}, ValueError, "expected what int32 holds"),
        ({"seq_lens": ints(2) - 7}, ValueError, r"seq_lens\[0\] is -7"),
        ({"block_table_tensor": ints(1, 4)}, ValueError, "block_table_tensor has 1 rows for 2 requests"),
        ({"slot_mapping": None}, TypeError, "slots is a NoneType"),
        ({"query_start_loc": None}, TypeError, "query_start_loc is a NoneType"),
        ({"query_start_loc": ints(3)}, ValueError, "query_start_loc and query_start_loc_cpu differ"),
        ({"query_start_loc": ints(1)}, ValueError, r"query_start_loc has shape \(1,\)"),
    ],
)
def test_the_builder_refuses_and_leaves_its_buffer(changed, error, message):
    with pytest.raises(error, match=message):
        build(ints(2, 4), **changed)


@pytest.mark.parametrize("name", ["max_num_seqs", "max_model_len"])
@pytest.mark.parametrize(("value", "error"), [(-1, ValueError), (0, ValueError), ("2", TypeError), (None, TypeError)])
def test_the_builders_sizes_are_whole_numbers(name, value, error):
    with pytest.raises(error, match=f"{name} is {value!r}"):
        builder(**{name: value})


THREADS = """
import threading
from tests.codegen.kernels.sparse_attention.test_sparse_hostile import Layer, bytes_of
layers, outputs, errors = [Layer(seed) for seed in (1, 2, 3, 4)], {}, []
def work(number):
    try:
        outputs[number] = layers[number].run()
    except BaseException as error:
        errors.append(error)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
assert all((bytes_of(outputs[n]) == bytes_of(layers[n].run())).all() for n in range(4))
"""


def test_threads_may_be_the_first_to_run_a_layer():
    """In a process of its own, where no kernel is traced yet: all threads trace at once."""
    result = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
