"""vLLM's own objects in, this attention out: they are read by attribute, and nothing here imports vLLM.

With a step of vLLM at hand, `forward` takes what its layer's attention takes and writes what this one computes, so that
the two can be laid side by side. Tensors on a device are copied to the CPU, the output back.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from codegen.kernels.sparse_attention.metadata import (
    MiniMaxM3SparseAiterPADecodeMetadata,
    MiniMaxM3SparseAiterPAPrefillMetadata,
    MiniMaxM3SparseMetadata,
    forward_context,
    token_rows,
)
from codegen.kernels.sparse_attention.sparse_attention_msa import (
    MiniMaxM3SparseAiterPAImpl,
    MiniMaxM3SparseAiterPAMetadataBuilder,
    Table,
    pair,
    views_of,
)
from codegen.kernels.sparse_attention.sparse_pa import AttendChoices, minimax_m3_rebase_block_table_to_page16
from codegen.kernels.sparse_attention.tensors import torch


@dataclass(frozen=True)
class Common:
    """The fields of vLLM's CommonAttentionMetadata that a step's metadata is made of, on the CPU."""

    num_reqs: int
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    query_start_loc_cpu: torch.Tensor
    seq_lens: torch.Tensor
    block_table_tensor: torch.Tensor
    slot_mapping: torch.Tensor
    max_query_len: int
    max_seq_len: int


@dataclass(frozen=True)
class Layer:
    """What the attention reads of a layer, on the CPU."""

    layer_name: str
    topk_indices_buffer: torch.Tensor
    views: Table
    sparse_bt_buffer: torch.Tensor | None
    sparse_ctx_buffer: torch.Tensor | None
    _k_scale: torch.Tensor | None
    _v_scale: torch.Tensor | None

    def get_aiter_sparse_pa_kv_cache(self) -> Table:
        return self.views


def common_metadata(theirs: Any) -> Common:
    """vLLM's CommonAttentionMetadata on the CPU. Raises TypeError for an object without one of its fields."""
    return Common(**{field.name: _read(theirs, field.name) for field in fields(Common)})


def metadata_builder(
    kv_cache_spec: Any, layer_names: list[str], vllm_config: Any
) -> MiniMaxM3SparseAiterPAMetadataBuilder:
    """A builder for vLLM's configuration whose buffer is on the CPU; its `build` takes a `Common`."""
    return MiniMaxM3SparseAiterPAMetadataBuilder(kv_cache_spec, layer_names, vllm_config, torch.device("cpu"))


def sparse_metadata(theirs: Any) -> MiniMaxM3SparseMetadata:
    """The metadata of vLLM's builder as this attention's own, on the CPU.

    What older builders do not have is made: the page-16 tables, and each prefill token's request and position. Raises
    TypeError for an object without one of the other fields.
    """
    decode, prefill = _read(theirs, "decode"), _read(theirs, "prefill")
    names = [field.name for field in fields(MiniMaxM3SparseMetadata) if field.name not in ("decode", "prefill")]
    return MiniMaxM3SparseMetadata(
        **{name: _read(theirs, name) for name in names},
        decode=None if decode is None else _decode(decode),
        prefill=None if prefill is None else _prefill(prefill),
    )


def _decode(theirs: Any) -> MiniMaxM3SparseAiterPADecodeMetadata:
    table = _read(theirs, "block_table")
    return MiniMaxM3SparseAiterPADecodeMetadata(
        _read(theirs, "seq_lens"), table, _read(theirs, "decode_query_len"), _page16(theirs, table)
    )


def _prefill(theirs: Any) -> MiniMaxM3SparseAiterPAPrefillMetadata:
    made = ("query_req_id", "query_abs_pos", "page16_block_table")
    names = [field.name for field in fields(MiniMaxM3SparseAiterPAPrefillMetadata) if field.name not in made]
    result = MiniMaxM3SparseAiterPAPrefillMetadata(**{name: _read(theirs, name) for name in names})
    result.query_req_id, result.query_abs_pos = _maybe(theirs, "query_req_id"), _maybe(theirs, "query_abs_pos")
    if result.query_req_id is None or result.query_abs_pos is None:
        result.query_req_id, result.query_abs_pos = token_rows(result.cu_seqlens_q, result.context_lens)
    result.page16_block_table = _page16(theirs, result.block_table)
    return result


def _page16(theirs: Any, block_table: torch.Tensor) -> torch.Tensor:
    given: torch.Tensor | None = _maybe(theirs, "page16_block_table")
    return minimax_m3_rebase_block_table_to_page16(block_table) if given is None else given


def sparse_impl(theirs: Any, choices: AttendChoices | None = None) -> MiniMaxM3SparseAiterPAImpl:
    """This attention with the parameters of vLLM's implementation object."""
    return MiniMaxM3SparseAiterPAImpl(
        _read(theirs, "num_heads"),
        _read(theirs, "head_size"),
        _read(theirs, "scale"),
        _read(theirs, "num_kv_heads"),
        _read(theirs, "kv_cache_dtype"),
        topk_blocks=_read(theirs, "topk_blocks"),
        sparse_block_size=_read(theirs, "block_size"),
        choices=choices,
    )


def sparse_layer(theirs: Any) -> Layer:
    """What the attention reads of vLLM's layer, on the CPU."""
    _read(theirs, "get_aiter_sparse_pa_kv_cache")
    keys, values = views_of(theirs)
    optional = ("sparse_bt_buffer", "sparse_ctx_buffer", "_k_scale", "_v_scale")
    return Layer(
        layer_name=_read(theirs, "layer_name"),
        topk_indices_buffer=_read(theirs, "topk_indices_buffer"),
        views=(_cpu(keys), _cpu(values)),
        **{name: _maybe(theirs, name) for name in optional},
    )


def forward(
    impl: Any,
    layer: Any,
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    output: torch.Tensor,
    attn_metadata: object,
    *,
    decode_sparse_table: Table | None = None,
    choices: AttendChoices | None = None,
) -> torch.Tensor:
    """What vLLM's `impl.forward` would do in a forward context of attn_metadata, its dict by layer name.

    Writes `output` and returns it, unchanged where attn_metadata is no dict. kv_cache is not read; the layer's views of
    it are. Raises as `MiniMaxM3SparseAiterPAImpl.forward`, and TypeError for an object without a field that is needed.
    """
    if not isinstance(attn_metadata, dict):
        return output
    own = sparse_layer(layer)
    name = own.layer_name
    context = {name: sparse_metadata(attn_metadata[name])} if name in attn_metadata else attn_metadata
    table = None
    if decode_sparse_table is not None:
        entries, lens = pair("decode_sparse_table", decode_sparse_table)
        table = _cpu(entries), _cpu(lens)
    result = _cpu(output)
    with forward_context(context):
        sparse_impl(impl, choices).forward(own, _cpu(query), own.views[0], result, decode_sparse_table=table)
    return output if result is output else output.copy_(result)


def _read(theirs: Any, name: str) -> Any:
    if not hasattr(theirs, name):
        raise TypeError(f"the {type(theirs).__name__} has no {name}; expected vLLM's object, or one with its fields")
    return _cpu(getattr(theirs, name))


def _maybe(theirs: Any, name: str) -> Any:
    return _cpu(getattr(theirs, name, None))


def _cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value
