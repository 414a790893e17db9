"""The backend on tensors gives, to the last bit, what the job on arrays gives for the kernel's own cases."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention import job
from codegen.kernels.sparse_attention.cache import aiter_sparse_pa_kv_cache
from codegen.kernels.sparse_attention.cases import CASES, build
from codegen.kernels.sparse_attention.kernels import runner
from codegen.kernels.sparse_attention.metadata import forward_context
from codegen.kernels.sparse_attention.msa_attention import (
    pa_sparse_block_score_decode,
    pa_sparse_block_score_prefill,
    pa_sparse_block_topk,
    score_block_width,
)
from codegen.kernels.sparse_attention.sparse_attention_msa import (
    MiniMaxM3SparseAiterPAImpl,
    MiniMaxM3SparseAiterPAMetadataBuilder,
)
from codegen.kernels.sparse_attention.sparse_pa import AttendChoices, minimax_m3_insert_index_cache
from tests.codegen.kernels.sparse_attention.torch_problems import BF16, FP8, common, config


def tensor(array, dtype=None):
    signed = array.view(np.int16) if array.dtype == np.uint16 else array
    made = torch.from_numpy(signed.copy())
    return made if dtype is None else made.view(dtype)


class Backend:
    """A case's batch as vLLM would hand it to a layer: indexer, page tables, attention."""

    def __init__(self, inputs, outputs):
        self.inputs, self.case, self.outputs = inputs, inputs.case, outputs
        case, blocks = self.case, outputs.kv_cache.shape[0] if inputs.case.packed else outputs.kv_cache.shape[1]
        shape = (blocks, 2, 128, case.kv_heads * 128) if case.packed else (2, blocks, 128, case.kv_heads * 128)
        kv_cache = tensor(outputs.kv_cache.reshape(shape), FP8 if case.cache == "fp8" else BF16)
        self.kv_cache = kv_cache if case.packed else kv_cache.transpose(0, 1)
        self.index_cache = tensor(inputs.index_cache, FP8)
        minimax_m3_insert_index_cache(tensor(inputs.index_k, FP8), self.index_cache, tensor(inputs.index_slots))
        self.metadata = self.build()
        tokens, sequences = case.rows, case.rows * case.kv_heads
        self.topk = torch.full((case.index_heads, tokens, 16), 99, dtype=torch.int32)
        self.table = torch.full((sequences, 128), -3, dtype=torch.int32)
        self.ctx = torch.full((sequences,), -3, dtype=torch.int32)

    def build(self):
        query_lens = [request.query_len for request in self.case.requests]
        batch = common(query_lens, self.inputs.seq_lens.tolist(), tensor(self.inputs.block_table))
        speculative = (
            {"num_speculative_tokens": self.case.decode_query_len - 1} if self.case.decode_query_len > 1 else {}
        )
        made = MiniMaxM3SparseAiterPAMetadataBuilder(
            SimpleNamespace(block_size=128), ["layer"], config(64, 128 * 64, **speculative), torch.device("cpu")
        )
        return made.build(0, batch)

    def index(self):
        metadata, case = self.metadata, self.case
        nd, tokens, kvh, longest = metadata.num_decode_tokens, case.rows, case.kv_heads, metadata.max_seq_len
        iq, table = tensor(self.inputs.index_q, FP8), tensor(self.inputs.index_block_table)
        score = torch.empty((case.index_heads, tokens, score_block_width(longest)))
        forced = {"init_blocks": case.init_blocks, "local_blocks": case.local_blocks, "max_seq_len": longest}
        given = {"max_seq_len": longest, "block_size": 128, "num_kv_heads": kvh}
        if (d := metadata.decode) is not None:
            n = metadata.num_decodes
            own = {"query_len": d.decode_query_len}
            pa_sparse_block_score_decode(
                iq[:nd], self.index_cache, score[:, :nd], table[:n], d.seq_lens, **own, **forced
            )
            parts = self.table[: nd * kvh], self.ctx[: nd * kvh]
            resolved = self.attend_table(d)
            pa_sparse_block_topk(score[:, :nd], self.topk[:, :nd], resolved, d.seq_lens, *parts, **own, **given)
        if (p := metadata.prefill) is not None:
            n, own = metadata.num_decodes, {"max_query_len": p.max_query_len}
            rows = table[n:], p.cu_seqlens_q, p.seq_lens
            pa_sparse_block_score_prefill(iq[nd:], self.index_cache, score[:, nd:], *rows, **own, **forced)
            parts, lens = (self.table[nd * kvh :], self.ctx[nd * kvh :]), p.query_abs_pos + 1
            ragged = {"num_valid_pages": -(-lens // 128), "row_req_id": p.query_req_id, "kv_lens": lens}
            resolved = self.attend_table(p)
            pa_sparse_block_topk(score[:, nd:], self.topk[:, nd:], resolved, p.seq_lens, *parts, **ragged, **given)

    def attend_table(self, side):
        return side.page16_block_table if self.case.packed else side.block_table

    def attend(self, emitted):
        inputs, case = self.inputs, self.case
        layer = SimpleNamespace(
            layer_name="layer",
            topk_indices_buffer=self.topk,
            get_aiter_sparse_pa_kv_cache=lambda: aiter_sparse_pa_kv_cache(self.kv_cache, case.kv_heads),
            _k_scale=tensor(self.outputs.k_scale),
            _v_scale=tensor(self.outputs.v_scale),
        )
        if emitted:
            layer.sparse_bt_buffer, layer.sparse_ctx_buffer = self.table, self.ctx
        impl = MiniMaxM3SparseAiterPAImpl(
            16 * case.kv_heads,
            128,
            128**-0.5,
            case.kv_heads,
            "fp8" if case.cache == "fp8" else "auto",
            topk_blocks=16,
            sparse_block_size=128,
            choices=AttendChoices(case.splits, case.p, case.reduce),
        )
        query = tensor(inputs.q, BF16).reshape(case.rows, -1)
        output = torch.full_like(query, float("nan"))
        with forward_context({"layer": self.metadata}):
            impl.forward(layer, query, self.kv_cache, output)
        return output.view(torch.int16).numpy().view(np.uint16).reshape(inputs.q.shape)


@pytest.mark.parametrize("name", ["mixed", "heads_4", "shared_index", "query_4", "x448", "flydsl", "bf16", "per_token"])
def test_the_backend_gives_the_jobs_bits(name):
    inputs = build(CASES[name])
    expected = job.run(runner("host"), inputs)
    backend = Backend(inputs, expected)
    case = inputs.case
    assert backend.metadata.num_decode_tokens == case.decode_rows
    backend.index()
    assert np.array_equal(backend.topk.numpy(), expected.topk)
    assert np.array_equal(backend.table.numpy(), expected.table)
    assert np.array_equal(backend.ctx.numpy(), expected.ctx)
    if case.packed:  # over dense planes an emitted table is refused
        assert np.array_equal(backend.attend(emitted=True), expected.out)
    if case.kv_heads == 1:  # the table is built from the selection and is the emitted one
        assert np.array_equal(backend.attend(emitted=False), expected.out)
