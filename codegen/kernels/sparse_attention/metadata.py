"""What a step tells the attention of its batch, the rule that splits a batch, and the context a layer finds it in.

A batch has its decode requests first, all with the same number of query tokens; every other request is a prefill. Field
names are those of vLLM's `MiniMaxM3SparseMetadata`, so that its objects and these can be read by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

from codegen.kernels.sparse_attention.shapes import SPARSE_BLOCK_SIZE
from codegen.kernels.sparse_attention.tensors import integers, torch
from gfx950.evidence import Evidence, rule

BATCH_SPLIT = rule(
    "sparse_attention_backend.batch_split",
    Evidence.vendor,
    "vLLM vllm/v1/attention/backends/utils.py, split_decodes_and_prefills, as vllm/models/minimax_m3/common/"
    "sparse_attention.py calls it: require_uniform, threshold 1 + num_speculative_tokens (twice in parallel drafting)",
    "The leading requests of the first one's query length decode, the others are prefills; how many splits a row's"
    " context has goes by the rows of its side.",
)


@dataclass
class MiniMaxM3SparseAiterPADecodeMetadata:
    """The decode side. seq_lens: int32 [num_decodes], with this step's tokens. block_table: int32 [num_decodes]
    [blocks]. decode_query_len: query tokens of each request. page16_block_table: block_table in page-16 numbering."""

    seq_lens: torch.Tensor
    block_table: torch.Tensor
    decode_query_len: int
    page16_block_table: torch.Tensor | None = None


@dataclass
class MiniMaxM3SparseAiterPAPrefillMetadata:
    """The prefill side. cu_seqlens_q, cu_seqlens_k: int32 [num_prefills + 1], from 0. seq_lens: int32 [num_prefills],
    context_lens: those before this step. query_req_id, query_abs_pos: int32 [num_prefill_tokens], each token's request
    (from 0 on this side) and position; the attend cannot do without."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seq_lens: torch.Tensor
    context_lens: torch.Tensor
    block_table: torch.Tensor
    max_query_len: int
    max_seq_len: int
    total_kv_blocks: int
    query_req_id: torch.Tensor | None = None
    query_abs_pos: torch.Tensor | None = None
    page16_block_table: torch.Tensor | None = None


@dataclass
class MiniMaxM3SparseMetadata:
    """The whole batch. slot_mapping: int64 [num_actual_tokens], rebased to page 16 for the cache writer."""

    seq_lens: torch.Tensor
    max_seq_len: int
    slot_mapping: torch.Tensor
    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    prefill: MiniMaxM3SparseAiterPAPrefillMetadata | None = None
    decode: MiniMaxM3SparseAiterPADecodeMetadata | None = None


# ---- splitting a batch -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """How many requests and tokens each side of a batch has; query_len: the tokens of a decode request, 0 for none."""

    num_decodes: int
    num_prefills: int
    num_decode_tokens: int
    num_prefill_tokens: int
    query_len: int


def split_decodes_and_prefills(query_start_loc: list[int], num_actual_tokens: int, decode_threshold: int) -> Split:
    """The leading requests that share the first one's query length decode, if that is at most the threshold.

    So a ragged speculative step keeps only its uniform head on the decode side, and the rest attends as prefill, whose
    rows carry their own request and position. query_start_loc: requests + 1 offsets. Where no request has another
    length but 0, those of length 0 only pad a captured batch: all decode, and the tokens count the padding.
    Raises ValueError for offsets that are none, that start with an empty request, or that do not cover the tokens.
    [rule sparse_attention_backend.batch_split]
    """
    lens = [end - start for start, end in pairwise(query_start_loc)]
    if query_start_loc[:1] != [0] or min(lens, default=0) < 0:
        raise ValueError(f"query_start_loc is {query_start_loc}; expected offsets that start at 0 and never fall")
    if not lens:
        return Split(0, 0, 0, 0, 0)
    first = lens[0]
    if first == 0:
        raise ValueError("the first request has no query token; put requests with tokens first and padding last")
    if first <= decode_threshold and all(n in (first, 0) for n in lens):
        return _all_decode(len(lens), first, num_actual_tokens)
    if num_actual_tokens != query_start_loc[-1]:
        raise ValueError(f"num_actual_tokens is {num_actual_tokens}; the requests have {query_start_loc[-1]} tokens")
    decodes = sum(1 for _ in takewhile(lambda n: n == first, lens)) if first <= decode_threshold else 0
    tokens = decodes * first
    return Split(decodes, len(lens) - decodes, tokens, num_actual_tokens - tokens, first if decodes else 0)


def _all_decode(requests: int, query_len: int, num_actual_tokens: int) -> Split:
    if num_actual_tokens != requests * query_len:
        raise ValueError(
            f"num_actual_tokens is {num_actual_tokens} for {requests} decode requests of {query_len} tokens; where "
            f"empty requests pad the batch, the tokens must be padded with them, to {requests * query_len}"
        )
    return Split(requests, 0, num_actual_tokens, 0, query_len)


def prefill_metadata(common: Any, split: Split) -> MiniMaxM3SparseAiterPAPrefillMetadata:
    """The prefill side of a batch, with the request and position of each of its tokens; no page-16 table yet.

    common: vLLM's CommonAttentionMetadata or anything with its fields query_start_loc, seq_lens, block_table_tensor,
    max_query_len and max_seq_len.
    """
    nd = split.num_decodes
    offsets = torch.from_numpy(integers("query_start_loc", common.query_start_loc, (None,)))
    cu_seqlens_q = offsets[nd:] - split.num_decode_tokens
    seq_lens = common.seq_lens[nd:]
    context_lens = seq_lens - (cu_seqlens_q[1:] - cu_seqlens_q[:-1])
    cu_seqlens_k = torch.zeros(split.num_prefills + 1, dtype=torch.int32)
    torch.cumsum(seq_lens, 0, out=cu_seqlens_k[1:])
    query_req_id, query_abs_pos = token_rows(cu_seqlens_q, context_lens)
    return MiniMaxM3SparseAiterPAPrefillMetadata(
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        seq_lens=seq_lens,
        context_lens=context_lens,
        block_table=common.block_table_tensor[nd:],
        max_query_len=common.max_query_len,
        max_seq_len=common.max_seq_len,
        total_kv_blocks=int((-(-seq_lens // SPARSE_BLOCK_SIZE)).sum()),
        query_req_id=query_req_id,
        query_abs_pos=query_abs_pos,
    )


def token_rows(cu_seqlens_q: torch.Tensor, context_lens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The request and position, int32, of each token of requests whose tokens begin at cu_seqlens_q, int32, and follow
    context_lens earlier ones."""
    token = torch.arange(int(cu_seqlens_q[-1]), dtype=torch.int32)
    request = torch.searchsorted(cu_seqlens_q[1:].contiguous(), token, right=True).to(torch.int32)
    return request, (context_lens[request] + token - cu_seqlens_q[request]).to(torch.int32)


# ---- the context of a forward pass -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForwardContext:
    """attn_metadata: each layer's metadata by the layer's name; anything but a dict in a profiling run."""

    attn_metadata: object


@dataclass(eq=False)
class _Entered:
    """A context that was entered, and whether it has been left since."""

    context: ForwardContext
    left: bool = False


_ENTERED: ContextVar[tuple[_Entered, ...]] = ContextVar("sparse_attention_forward_contexts", default=())


def _inside() -> tuple[_Entered, ...]:
    """The contexts that are not left yet, the outermost first."""
    return tuple(entered for entered in _ENTERED.get() if not entered.left)


@contextmanager
def forward_context(attn_metadata: object) -> Iterator[ForwardContext]:
    """What layers called inside find with `get_forward_context`. Contexts nest, and the one entered last of those not
    left yet counts, in whatever order they are left. Each thread has its own."""
    own = _Entered(ForwardContext(attn_metadata))
    _ENTERED.set((*_inside(), own))
    try:
        yield own.context
    finally:
        own.left = True  # also for a thread or task that leaves what another one entered
        _ENTERED.set(_inside())


def get_forward_context() -> ForwardContext:
    """The innermost context. Raises RuntimeError outside of any."""
    inside = _inside()
    if not inside:
        raise RuntimeError(
            "no forward context is set; call the layer inside `with forward_context({layer_name: metadata}):`, or "
            "forward_context(None) for a profiling run"
        )
    return inside[-1].context
