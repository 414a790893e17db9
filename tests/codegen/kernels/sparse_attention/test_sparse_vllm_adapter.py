"""vLLM's objects by attribute, as stand-ins of the same shape."""

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from codegen.kernels.sparse_attention import vllm_adapter
from codegen.kernels.sparse_attention.metadata import MiniMaxM3SparseMetadata, forward_context
from codegen.kernels.sparse_attention.sparse_attention_msa import MiniMaxM3SparseAiterPAImpl
from codegen.kernels.sparse_attention.sparse_pa import AttendChoices, minimax_m3_build_sparse_block_table_decode
from codegen.kernels.sparse_attention.vllm_adapter import (
    common_metadata,
    metadata_builder,
    sparse_impl,
    sparse_layer,
    sparse_metadata,
)
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, Problem, common, config, same_bits

SCALE = 128**-0.5


@dataclass
class TheirDecode:
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    decode_query_len: int


@dataclass
class TheirPrefill:
    """As an older builder has it: no query_req_id, no query_abs_pos, no page-16 table."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seq_lens: torch.Tensor
    context_lens: torch.Tensor
    block_table: torch.Tensor
    max_query_len: int
    max_seq_len: int
    total_kv_blocks: int


@dataclass
class TheirMetadata:
    seq_lens: torch.Tensor
    max_seq_len: int
    slot_mapping: torch.Tensor
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    prefill: object = None
    decode: object = None
    causal: bool = True  # a field that is not ours


class TheirLayer(torch.nn.Module):
    def __init__(self, problem, topk, **buffers):
        super().__init__()
        self.layer_name, self.topk_indices_buffer, self.problem = "model.layers.3.attn", topk, problem
        self._k_scale, self._v_scale = torch.tensor(0.5), torch.tensor(2.0)
        vars(self).update(buffers)

    def get_aiter_sparse_pa_kv_cache(self):
        return self.problem.k, self.problem.v


class TheirImpl:
    def __init__(self, heads=1):
        self.num_heads, self.num_kv_heads, self.head_size, self.scale = 16 * heads, heads, 128, SCALE
        self.kv_cache_dtype, self.topk_blocks, self.block_size = "fp8", 16, 128
        self.use_fp8_kv, self.kv_cache_fp8_dtype = True, torch.float8_e4m3fn


def batch(problem):
    given = common([1, 1, 3, 2], problem.seq_lens, problem.block_table)
    given.slot_mapping = torch.arange(7)
    given.causal, given.positions, given.num_reqs = True, None, 4
    return given


def step():
    problem = Problem([300, 129, 3, 200], seed=7)
    topk = torch.full((1, 9, 16), 99, dtype=torch.int32)
    topk[:, :, :3] = torch.tensor([2, 0, 1])
    return problem, topk, problem.numbers(9, 2048).to(BF16)


def their_metadata(own):
    d, p = own.decode, own.prefill
    named = {name: getattr(p, name) for name in TheirPrefill.__dataclass_fields__}
    whole = {name: getattr(own, name) for name in TheirMetadata.__dataclass_fields__ if hasattr(own, name)}
    return TheirMetadata(
        **{
            **whole,
            "prefill": TheirPrefill(**named),
            "decode": TheirDecode(d.seq_lens, d.block_table, d.decode_query_len),
        }
    )


def own_metadata(problem):
    build = metadata_builder(SimpleNamespace(block_size=128), ["model.layers.3.attn"], config())
    return build.build(0, common_metadata(batch(problem)))


def expected(problem, topk, query):
    """What the implementation itself gives."""
    out = torch.full_like(query, float("nan"))
    impl = MiniMaxM3SparseAiterPAImpl(16, 128, SCALE, 1, "fp8", topk_blocks=16, sparse_block_size=128)
    with forward_context({"model.layers.3.attn": own_metadata(problem)}):
        return impl.forward(TheirLayer(problem, topk), query, problem.kv_cache, out)


def test_nothing_imports_vllm():
    code = (
        "import sys; import codegen.kernels.sparse_attention.vllm_adapter\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('vllm', 'aiter', 'triton')]"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_common_metadata_is_read_field_by_field():
    problem, _, _ = step()
    theirs = batch(problem)
    got = common_metadata(theirs)
    assert (got.num_reqs, got.num_actual_tokens, got.max_query_len, got.max_seq_len) == (4, 7, 3, 300)
    assert torch.equal(got.block_table_tensor, theirs.block_table_tensor)
    del theirs.block_table_tensor
    with pytest.raises(TypeError, match="the SimpleNamespace has no block_table_tensor; expected vLLM's object"):
        common_metadata(theirs)


def test_metadata_of_an_older_builder_is_completed():
    problem, _, _ = step()
    own = own_metadata(problem)
    got = sparse_metadata(their_metadata(own))
    assert isinstance(got, MiniMaxM3SparseMetadata)
    for ours, made in ((own, got), (own.decode, got.decode), (own.prefill, got.prefill)):
        for name, value in vars(ours).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, getattr(made, name)), name
                assert value.dtype == getattr(made, name).dtype, name
            elif isinstance(value, int):
                assert value == getattr(made, name), name
    assert torch.equal(got.slot_mapping, own.slot_mapping), "their builder has rebased it already"


def test_what_a_newer_builder_has_is_taken():
    problem, _, _ = step()
    theirs = own_metadata(problem)
    theirs.prefill.query_abs_pos = theirs.prefill.query_abs_pos + 5
    theirs.prefill.page16_block_table = theirs.prefill.page16_block_table + 1
    theirs.decode.page16_block_table = theirs.decode.page16_block_table + 1
    got = sparse_metadata(theirs)
    assert torch.equal(got.prefill.query_abs_pos, theirs.prefill.query_abs_pos)
    assert torch.equal(got.prefill.page16_block_table, theirs.prefill.page16_block_table)
    assert torch.equal(got.decode.page16_block_table, theirs.decode.page16_block_table)


def test_sides_that_are_none_stay_none():
    theirs = their_metadata(own_metadata(step()[0]))
    theirs.decode = theirs.prefill = None
    got = sparse_metadata(theirs)
    assert got.decode is got.prefill is None


def test_the_implementation_takes_their_parameters():
    own = sparse_impl(TheirImpl(4), AttendChoices(splits=2))
    assert (own.num_heads, own.num_kv_heads, own.head_size, own.scale) == (64, 4, 128, SCALE)
    assert (own.kv_cache_dtype, own.topk_blocks, own.block_size, own.choices.splits) == ("fp8", 16, 128, 2)


def test_forward_is_the_implementations():
    problem, topk, query = step()
    out = torch.full_like(query, float("nan"))
    layer = TheirLayer(problem, topk)
    metadata = {"another": object(), layer.layer_name: their_metadata(own_metadata(problem))}
    result = vllm_adapter.forward(TheirImpl(), layer, query, problem.kv_cache, out, metadata)
    assert result is out
    right = expected(problem, topk, query)
    assert same_bits(out, right)
    assert bool(out[7:].isnan().all())
    one = vllm_adapter.forward(
        TheirImpl(), layer, query, problem.kv_cache, torch.empty_like(out), metadata, choices=AttendChoices(splits=1)
    )
    assert not same_bits(one[:7], right[:7])


def test_tensors_elsewhere_are_copied_and_the_output_back(monkeypatch):
    problem, topk, query = step()
    out = torch.full_like(query, float("nan"))
    metadata = {"model.layers.3.attn": their_metadata(own_metadata(problem))}
    monkeypatch.setattr(vllm_adapter, "_cpu", lambda value: value.clone() if isinstance(value, torch.Tensor) else value)
    result = vllm_adapter.forward(TheirImpl(), TheirLayer(problem, topk), query, problem.kv_cache, out, metadata)
    assert result is out
    assert same_bits(out[:7], expected(problem, topk, query)[:7])


def test_a_decode_table_is_handed_on():
    problem, topk, query = step()
    own = own_metadata(problem)
    table = minimax_m3_build_sparse_block_table_decode(topk[:, :2], own.decode.block_table, own.decode.seq_lens, 1, 16)
    table[1][0] = 128  # one block of the first row only
    layer, metadata = TheirLayer(problem, topk), {"model.layers.3.attn": own}
    right, out = expected(problem, topk, query), torch.empty_like(query)
    vllm_adapter.forward(TheirImpl(), layer, query, problem.kv_cache, out, metadata, decode_sparse_table=table)
    assert not same_bits(out[:1], right[:1])
    assert same_bits(out[1:7], right[1:7])


def test_a_profiling_run_leaves_the_output():
    out = torch.full((2, 2048), 3.0, dtype=BF16)
    assert vllm_adapter.forward(None, None, out, None, out, None) is out
    assert bool((out == 3).all())


def test_a_layer_without_metadata_or_views_is_told():
    problem, topk, query = step()
    layer = TheirLayer(problem, topk)
    with pytest.raises(KeyError, match=r"no metadata of layer 'model.layers.3.attn', only \['another'\]"):
        vllm_adapter.forward(TheirImpl(), layer, query, problem.kv_cache, query, {"another": None})
    with pytest.raises(TypeError, match="the SimpleNamespace has no get_aiter_sparse_pa_kv_cache"):
        sparse_layer(SimpleNamespace(layer_name="layer", topk_indices_buffer=topk))


def forwarded(impl=None, layer=None, **keywords):
    problem, topk, query = step()
    layer, out = layer or TheirLayer(problem, topk), torch.full_like(query, 3)
    metadata = {"model.layers.3.attn": their_metadata(own_metadata(problem))}
    try:
        vllm_adapter.forward(impl or TheirImpl(), layer, query, problem.kv_cache, out, metadata, **keywords)
    except Exception:
        assert bool((out == 3).all()), "an error wrote a part of the output"
        raise


def their_impl(**changed):
    theirs = TheirImpl()
    vars(theirs).update(changed)
    return theirs


def giving(views):
    problem, topk, _ = step()
    return TheirLayer(problem, topk, get_aiter_sparse_pa_kv_cache=views)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"decode_sparse_table": 7}, TypeError, "decode_sparse_table is a int; expected two tensors"),
        ({"decode_sparse_table": (1,)}, TypeError, "decode_sparse_table is a tuple of 1; expected two tensors"),
        ({"decode_sparse_table": (1, 2)}, TypeError, "is a int; expected a torch tensor of int32 or int64"),
        ({"choices": {"splits": 2}}, TypeError, "choices is a dict; expected an AttendChoices"),
        ({"choices": {}}, TypeError, "choices is a dict; expected an AttendChoices"),
        ({"choices": AttendChoices(splits=0)}, ValueError, "splits is 0"),
        ({"impl": their_impl(num_heads=None)}, TypeError, "num_heads is None, a NoneType; expected a whole number"),
        ({"impl": their_impl(scale=None)}, TypeError, "scale is None, a NoneType; expected a number"),
        ({"impl": their_impl(num_kv_heads=3)}, ValueError, "num_heads is 16 and num_kv_heads 3"),
        ({"impl": their_impl(block_size=64)}, ValueError, "selects 16 blocks of 64 tokens"),
        (
            {"layer": giving(lambda: None)},
            TypeError,
            r"get_aiter_sparse_pa_kv_cache\(\) is a NoneType; expected two tensors",
        ),
        ({"layer": giving(lambda: (None, 1))}, TypeError, r"kv_cache\(\) has a NoneType for K; expected a tensor"),
        ({"layer": giving(lambda: [torch.zeros(1), 1])}, TypeError, r"kv_cache\(\) has a int for V; expected a tensor"),
        ({"layer": giving(5)}, TypeError, "get_aiter_sparse_pa_kv_cache is a int; expected a method that gives"),
    ],
)
def test_what_a_forward_cannot_use_is_refused_by_name(changed, error, message):
    forwarded()
    with pytest.raises(error, match=message):
        forwarded(**changed)


def test_a_builder_of_a_configuration_without_a_block_size_is_refused():
    with pytest.raises(AttributeError, match="kv_cache_spec, a SimpleNamespace, has no block_size; the meta"):
        metadata_builder(SimpleNamespace(), [], config())
