"""Every error that vLLM's page-16 attention has: the same class here, and a message that says what to do."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from codegen.kernels.sparse_attention.cache import aiter_sparse_pa_kv_cache
from codegen.kernels.sparse_attention.metadata import forward_context
from codegen.kernels.sparse_attention.sparse_attention_msa import (
    MiniMaxM3SparseAiterPAImpl,
    MiniMaxM3SparseAiterPAMetadataBuilder,
)
from codegen.kernels.sparse_attention.sparse_pa import (
    minimax_m3_build_sparse_block_table_decode,
    minimax_m3_build_sparse_block_table_prefill,
    minimax_m3_insert_index_cache,
    minimax_m3_sparse_attn_decode_aiter,
    minimax_m3_sparse_attn_prefill_aiter,
)
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, FP8, Problem, common, config, padded

CPU = torch.device("cpu")


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)


# ---- what is called: good arguments, and one of them changed ---------------------------------------------------------


def decode(problem=None, **changed):
    problem = problem or Problem([300])
    rows = changed.pop("rows", 1)
    q = problem.query(rows)
    given = {
        "q": q,
        "k_cache": problem.k,
        "v_cache": problem.v,
        "topk_idx": padded([[2, 1, 0]] * rows),
        "block_table": problem.block_table,
        "seq_lens": problem.lens,
        "num_kv_heads": problem.kv_heads,
        "sm_scale": 0.1,
        "output": torch.full(q.shape, 5.0, dtype=BF16),
    }
    given.update(changed)
    try:
        minimax_m3_sparse_attn_decode_aiter(**given)
    except Exception:
        assert bool((given["output"] == 5).all()), "an error wrote a part of the output"
        raise


def prefill(problem=None, **changed):
    problem = problem or Problem([300])
    q = problem.query(1)
    given = {
        "q": q,
        "k_cache": problem.k,
        "v_cache": problem.v,
        "topk_idx": padded([[2, 1, 0]]),
        "block_table": problem.block_table,
        "query_req_id": ints(1),
        "query_abs_pos": ints(1) + 299,
        "num_kv_heads": problem.kv_heads,
        "sm_scale": 0.1,
        "output": torch.empty_like(q),
    }
    minimax_m3_sparse_attn_prefill_aiter(**{**given, **changed})


def build(cls=MiniMaxM3SparseAiterPAMetadataBuilder, seqs=2, length=512, table=None):
    table = ints(2, 4) if table is None else table
    made = cls(SimpleNamespace(block_size=128), ["layer"], config(seqs, length), CPU)
    return made.build(0, common([1] * (len(table) - 1) + [2], [300] * len(table), table))


def forward(problem=None, metadata=None, layer_changes=None, metadata_changes=None, prefill_changes=None):
    """A layer's forward over a decode and a prefill request of two rows."""
    problem = problem or Problem([300, 300])
    metadata = build(table=problem.block_table[:, :4]) if metadata is None else metadata
    for owner, changes in ((metadata, metadata_changes), (getattr(metadata, "prefill", None), prefill_changes)):
        for name, value in (changes or {}).items():
            setattr(owner, name, value)
    layer = SimpleNamespace(
        layer_name="layer",
        topk_indices_buffer=padded([[2, 1, 0]] * 3),
        get_aiter_sparse_pa_kv_cache=lambda: (problem.k, problem.v),
    )
    vars(layer).update(layer_changes or {})
    heads = problem.kv_heads
    impl = MiniMaxM3SparseAiterPAImpl(16 * heads, 128, 0.1, heads, "fp8", topk_blocks=16, sparse_block_size=128)
    query = torch.zeros((3, 16 * heads * 128), dtype=BF16)
    with forward_context({"layer": metadata}):
        impl.forward(layer, query, problem.kv_cache, torch.empty_like(query))


def insert(**changed):
    given = {
        "index_k": torch.zeros((2, 128), dtype=FP8),
        "index_cache": torch.zeros((1, 128, 128), dtype=FP8),
        "index_slot_mapping": torch.tensor([3, -1]),
    }
    minimax_m3_insert_index_cache(**{**given, **changed})


def built_decode(topk=None, lens=None, **keywords):
    topk = padded([[0]] * 2) if topk is None else topk
    lens = torch.tensor([5, 6], dtype=torch.int32) if lens is None else lens
    minimax_m3_build_sparse_block_table_decode(topk, ints(2, 4), lens, **keywords)


def built_prefill(topk, rows):
    minimax_m3_build_sparse_block_table_prefill(topk, ints(2, 4), ints(rows), ints(rows))


def scale(heads, tokens):
    return torch.ones((heads, tokens))


def dense():
    return Problem([300], packed=False)


def other_cache(dtype):
    problem = Problem([300])
    return {"k_cache": problem.k.view(dtype), "v_cache": problem.v.view(dtype)}


EMITTED = {"sparse_bt_buffer": ints(3, 128), "sparse_ctx_buffer": ints(3)}
PREFILL_ONLY = {"num_decodes": 0, "num_decode_tokens": 0, "num_prefill_tokens": 3}
QUARTER = torch.zeros((4, 2, 128, 64), dtype=BF16)


@pytest.mark.parametrize("call", [decode, prefill, build, forward, insert, built_decode])
def test_the_good_arguments_are_taken(call):
    call()


ERRORS = [
    # NotImplementedError
    (
        "several kv heads without an emitted table",
        lambda: forward(Problem([300, 300], kv_heads=4)),
        NotImplementedError,
        "num_kv_heads is 4 and the layer has no sparse_bt_buffer.*"
        "Let the indexer's top-k emit the page table \\(.* with num_kv_heads=4\\)",
    ),
    (
        "several kv heads without a table, decode",
        lambda: decode(Problem([300], kv_heads=4)),
        NotImplementedError,
        "num_kv_heads is 4.*pass sparse_block_table and sparse_context_lens as the indexer's top-k .*num_kv_heads=4",
    ),
    (
        "several kv heads without a table, prefill",
        lambda: prefill(Problem([300], kv_heads=4)),
        NotImplementedError,
        "num_kv_heads is 4.*pass sparse_bt and sparse_ctx",
    ),
    (
        "packed cache with K scales of tokens",
        lambda: decode(k_scale=scale(1, 4096), v_scale=scale(1, 4096)),
        NotImplementedError,
        "k_scale has a scale a token.*use one scale a tensor, or a cache of dense planes",
    ),
    (
        "packed cache with V scales of tokens",
        lambda: prefill(v_scale=scale(1, 4096)),
        NotImplementedError,
        "v_scale has a scale a token",
    ),
    # RuntimeError
    (
        "an emitted table over dense planes",
        lambda: forward(Problem([300, 300], packed=False), layer_changes=EMITTED),
        RuntimeError,
        "page ids for blocks of 16 pages.*this cache spans 8.*Allocate the cache packed, or do not reserve",
    ),
    (
        "a cache without a page-16 view",
        lambda: aiter_sparse_pa_kv_cache(torch.zeros((4, 2, 128, 256), dtype=FP8)[..., :128], 1),
        RuntimeError,
        "neither dense planes.*nor whole pages",
    ),
    (
        "heads that are no whole vectors",
        lambda: aiter_sparse_pa_kv_cache(torch.zeros((4, 2, 128, 4 * 12), dtype=BF16), 4),
        RuntimeError,
        "heads of 12 dims.*not runs of x = 8",
    ),
    ("outside a forward context", lambda: outside(), RuntimeError, "no forward context is set; call the layer inside"),
    # ValueError
    (
        "a table without its lengths",
        lambda: decode(sparse_block_table=ints(1, 128)),
        ValueError,
        "sparse_block_table is given without sparse_context_lens.*pass both, or neither",
    ),
    (
        "lengths without a table",
        lambda: decode(sparse_context_lens=ints(1)),
        ValueError,
        "sparse_context_lens is given without sparse_block_table",
    ),
    ("a prefill table without its lengths", lambda: prefill(sparse_bt=ints(1, 128)), ValueError, "without sparse_ctx"),
    ("prefill lengths without a table", lambda: prefill(sparse_ctx=ints(1)), ValueError, "without sparse_bt"),
    (
        "an emitted table without lengths, prefill only",
        lambda: forward(layer_changes={"sparse_bt_buffer": ints(3, 128)}, metadata_changes=PREFILL_ONLY),
        ValueError,
        "sparse_bt is given without sparse_ctx",
    ),
    (
        "an output that is not contiguous",
        lambda: decode(output=torch.full((1, 16, 256), 5.0, dtype=BF16)[..., ::2]),
        ValueError,
        r"output has strides \(4096, 256, 2\); it is written in place and must be contiguous",
    ),
    (
        "another head dim",
        lambda: decode(q=torch.zeros((1, 16, 64), dtype=BF16)),
        ValueError,
        "q has heads of 64 dims; expected a head_dim of 128",
    ),
    (
        "another number of query heads",
        lambda: decode(q=torch.zeros((1, 32, 128), dtype=BF16)),
        ValueError,
        "q has 32 heads for 1 kv heads; expected 16",
    ),
    (
        "an output of another shape",
        lambda: decode(output=torch.full((2, 16, 128), 5.0, dtype=BF16)),
        ValueError,
        r"output has shape \(2, 16, 128\); expected \(1, 16, 128\)",
    ),
    (
        "a cache of other heads",
        lambda: decode(**{name: getattr(Problem([300], kv_heads=4), name[0]) for name in ("k_cache", "v_cache")}),
        ValueError,
        "k_cache has 4 kv heads; expected num_kv_heads, 1",
    ),
    (
        "scales of other heads",
        lambda: decode(dense(), k_scale=scale(2, 4096)),
        ValueError,
        r"k_scale has shape \(2, 4096\); expected one number, or one a token: \(1, tokens\)",
    ),
    (
        "scales of one dimension",
        lambda: decode(dense(), v_scale=torch.ones(7)),
        ValueError,
        r"v_scale has shape \(7,\)",
    ),
    (
        "scales of fewer tokens than the cache",
        lambda: decode(dense(), k_scale=scale(1, 5 * 128)),
        ValueError,
        "k_scale is of 640 tokens; the cache has room for 768, and each needs a scale",
    ),
    (
        "scales of tokens for the other side only",
        lambda: decode(dense(), k_scale=0.5, v_scale=scale(1, 768)),
        ValueError,
        "v_scale has a scale a token and k_scale has not",
    ),
    (
        "scales of tokens for one side only",
        lambda: decode(dense(), k_scale=scale(1, 768)),
        ValueError,
        "k_scale has a scale a token and v_scale has not; pass both in the same form",
    ),
    ("too few dims of index keys", lambda: insert(index_k=torch.zeros(128, dtype=FP8)), ValueError, r"shape \(128,\)"),
    (
        "too few dims of the index cache",
        lambda: insert(index_cache=torch.zeros((128, 128), dtype=FP8)),
        ValueError,
        r"index_cache \(128, 128\); expected \(tokens, dim\), \(blocks, 128, dim\)",
    ),
    (
        "index keys of other dims",
        lambda: insert(index_k=torch.zeros((2, 64), dtype=FP8)),
        ValueError,
        "index_k has 64 dims and index_cache 128; expected the same",
    ),
    (
        "another number of index slots",
        lambda: insert(index_slot_mapping=torch.tensor([1])),
        ValueError,
        r"index_slot_mapping has shape \(1,\); expected \(2,\), a slot for each key",
    ),
    (
        "index slots of two dimensions",
        lambda: insert(index_slot_mapping=torch.tensor([[1, 2]])),
        ValueError,
        r"index_slot_mapping has shape \(1, 2\)",
    ),
    (
        "an index cache with dims apart",
        lambda: insert(index_cache=torch.zeros((1, 128, 256), dtype=FP8)[..., ::2]),
        ValueError,
        "dims must be side by side",
    ),
    (
        "an index slot past the cache",
        lambda: insert(index_slot_mapping=torch.tensor([1, 128])),
        ValueError,
        "less than 128",
    ),
    ("a query length of nothing", lambda: built_decode(decode_query_len=0), ValueError, "decode_query_len is 0"),
    (
        "another page stride",
        lambda: built_decode(block_page_stride=9),
        ValueError,
        "block_page_stride is 9; expected 8",
    ),
    (
        "a request longer than its table",
        lambda: built_decode(lens=torch.tensor([5, 513], dtype=torch.int32)),
        ValueError,
        "kv_len of row 1 is 513; expected at most 512, by the 4 columns of block_table",
    ),
    (
        "a page past the cache",
        lambda: decode(block_table=ints(1, 3) + 6),
        ValueError,
        r"table\[0, 0\] is 96; expected 0 .. 87",
    ),
    ("an unknown treatment of P", lambda: decode(p="x256"), ValueError, "'x256'.*there are unscaled, x448"),
    ("an unknown reduction", lambda: decode(reduce="tree"), ValueError, "there is no reduce 'tree'"),
    ("an unknown engine", lambda: decode(engine="gpu"), ValueError, "there is no engine 'gpu'"),
    ("too many splits", lambda: decode(splits=65), ValueError, "splits is 65"),
    (
        "an e5m2 cache",
        lambda: implementation(kv_cache_dtype="fp8_e5m2"),
        ValueError,
        "expected one of auto, bfloat16, fp8",
    ),
    ("too many blocks", lambda: implementation(topk_blocks=17), ValueError, "selects 17 blocks of 128.*take 1 to 16"),
    ("blocks of 64", lambda: implementation(sparse_block_size=64), ValueError, "16 blocks of 64 tokens.*of 128"),
    # AssertionError
    (
        "other than a selection a decode row",
        lambda: decode(decode_query_len=2),
        AssertionError,
        "topk_idx has 1 rows for 1 requests of decode_query_len 2; expected 2.*through the prefill function",
    ),
    (
        "other than a selection a prefill row",
        lambda: built_prefill(padded([[0]]), 2),
        AssertionError,
        "topk_idx has 1 rows and query_req_id 2",
    ),
    (
        "selections of several heads",
        lambda: built_decode(padded([[0]] * 2).expand(4, 2, 16)),
        AssertionError,
        "topk_idx is of 4 heads.*pass the table that the indexer's top-k emits",
    ),
    (
        "selections of several heads, prefill",
        lambda: built_prefill(padded([[0]] * 2).expand(2, 2, 16), 2),
        AssertionError,
        "topk_idx is of 2 heads",
    ),
    (
        "a block table of too many requests",
        lambda: build(table=ints(3, 4)),
        AssertionError,
        r"the block table \(3, 4\) is larger than the page-16 buffer \(2, 4\).*raise these, or cut the table",
    ),
    ("a block table of too many columns", lambda: build(table=ints(2, 5)), AssertionError, r"\(2, 5\).*\(2, 4\)"),
    (
        "metadata of another type",
        lambda: forward(metadata=SimpleNamespace()),
        AssertionError,
        r"layer 'layer' is a SimpleNamespace; expected a MiniMaxM3SparseMetadata \(vllm_adapter.sparse_metadata makes",
    ),
    (
        "no selection",
        lambda: forward(layer_changes={"topk_indices_buffer": None}),
        AssertionError,
        "no topk_indices_buffer; run its indexer first",
    ),
    (
        "an emitted table without lengths",
        lambda: forward(layer_changes={"sparse_bt_buffer": ints(3, 128)}),
        AssertionError,
        "sparse_bt_buffer without sparse_ctx_buffer.*reserve both",
    ),
    (
        "emitted lengths without a table, which only the prefill rows ask for",
        lambda: forward(layer_changes={"sparse_ctx_buffer": ints(3)}),
        ValueError,
        "sparse_ctx is given without sparse_bt",
    ),
    (
        "decodes without their metadata",
        lambda: forward(metadata_changes={"decode": None}),
        AssertionError,
        "num_decodes is 1, but the metadata's decode is None",
    ),
    (
        "prefills without their metadata",
        lambda: forward(metadata_changes={"prefill": None}),
        AssertionError,
        "num_prefills is 1, but the metadata's prefill is None",
    ),
    (
        "prefills without requests",
        lambda: forward(prefill_changes={"query_req_id": None}),
        AssertionError,
        "no query_req_id or no query_abs_pos.*build the metadata with MiniMaxM3SparseAiterPAMetadataBuilder",
    ),
    (
        "prefills without positions",
        lambda: forward(prefill_changes={"query_abs_pos": None}),
        AssertionError,
        "no query_req_id or no query_abs_pos",
    ),
    # other classes, where vLLM has none of its own
    (
        "a layer without metadata",
        lambda: forward(layer_changes={"layer_name": "other"}),
        KeyError,
        r"no metadata of layer 'other', only \['layer'\]",
    ),
    (
        "a cache of gfx942's e4m3",
        lambda: decode(**other_cache(torch.float8_e4m3fnuz)),
        TypeError,
        "k_cache is float8_e4m3fnuz, gfx942's format: read as e4m3fn each byte is twice its number, and its NaN, 0x80,",
    ),
    (
        "a cache of e5m2",
        lambda: decode(**other_cache(torch.float8_e5m2)),
        TypeError,
        "k_cache is float8_e5m2, a format of other exponent bits",
    ),
    (
        "a float16 query",
        lambda: decode(q=torch.zeros((1, 16, 128)).half()),
        TypeError,
        "q is float16; expected bfloat16",
    ),
    ("a numpy query", lambda: decode(q=ints(1, 16, 128).numpy()), TypeError, "q is a ndarray; expected a torch tensor"),
    ("no output", lambda: prefill(output=None), TypeError, "output is a NoneType; expected a torch tensor of bfloat16"),
    ("numpy lengths", lambda: built_decode(lens=ints(2).numpy()), TypeError, "seq_lens is a ndarray; expected a torch"),
    (
        "float lengths",
        lambda: built_decode(lens=torch.ones(2)),
        TypeError,
        "seq_lens is float32; expected int32 or int64",
    ),
    (
        "a tensor elsewhere",
        lambda: built_decode(lens=ints(2).to("meta")),
        TypeError,
        r"tensor on meta; pass .*\.cpu\(\)",
    ),
    ("bf16 index keys", lambda: insert(index_k=torch.zeros((2, 128), dtype=BF16)), TypeError, "index_k is bfloat16"),
    (
        "lengths that int32 has not",
        lambda: built_decode(lens=torch.tensor([1, 1 << 40])),
        ValueError,
        "seq_lens has numbers from 1 to 1099511627776; expected what int32 holds",
    ),
]


def outside():
    impl = MiniMaxM3SparseAiterPAImpl(16, 128, 0.1, 1, topk_blocks=16, sparse_block_size=128)
    impl.forward(None, None, None, None)


def implementation(**changed):
    given = {"kv_cache_dtype": "fp8", "topk_blocks": 16, "sparse_block_size": 128}
    MiniMaxM3SparseAiterPAImpl(16, 128, 0.1, 1, **{**given, **changed})


@pytest.mark.parametrize(("call", "error", "message"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_error(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert caught.type is error


def test_the_byte_facts_that_the_messages_state():
    codes = torch.arange(256, dtype=torch.uint8)
    fn, fnuz = codes.view(torch.float8_e4m3fn).float(), codes.view(torch.float8_e4m3fnuz).float()
    numbers = ~(fn.isnan() | fnuz.isnan())
    assert torch.equal(fn[numbers], 2 * fnuz[numbers])
    assert fnuz[0x80].isnan()
    assert fn[0x80] == 0
    assert fn[0x80].signbit()


def test_assertions_survive_optimised_python():
    code = (
        "import torch\n"
        "from codegen.kernels.sparse_attention.sparse_pa import minimax_m3_build_sparse_block_table_decode as build\n"
        "table = torch.zeros((1, 4), dtype=torch.int32)\n"
        "build(torch.zeros((2, 1, 16), dtype=torch.int32), table, table[0, :1])\n"
    )
    result = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert result.returncode
    assert "AssertionError: topk_idx is of 2 heads" in result.stderr
