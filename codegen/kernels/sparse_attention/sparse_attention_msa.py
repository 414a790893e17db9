"""The attention backend of MiniMax-M3's sparse layers under vLLM's names: metadata builder and layer implementation.

Plain CPU tensors in and out, no vLLM: configuration and batch metadata are read by attribute, so vLLM's objects and
stand-ins with the same fields both serve.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np

from codegen.kernels.sparse_attention.attend import check_scale
from codegen.kernels.sparse_attention.launch import Array, check_whole
from codegen.kernels.sparse_attention.metadata import (
    MiniMaxM3SparseAiterPADecodeMetadata,
    MiniMaxM3SparseMetadata,
    Split,
    get_forward_context,
    prefill_metadata,
    split_decodes_and_prefills,
)
from codegen.kernels.sparse_attention.shapes import GROUP, HEAD_DIM, SPARSE_BLOCK_SIZE, TOPK
from codegen.kernels.sparse_attention.sparse_pa import (
    PAGE16_SIDES_PER_BLOCK,
    PAGES_PER_SPARSE_BLOCK,
    AttendChoices,
    check_choices,
    minimax_m3_rebase_block_table_to_page16,
    minimax_m3_rebase_slots_to_page16,
    minimax_m3_sparse_attn_decode_aiter,
    minimax_m3_sparse_attn_prefill_aiter,
    minimax_m3_sparse_block_page_stride,
)
from codegen.kernels.sparse_attention.table import check_count
from codegen.kernels.sparse_attention.tensors import check_tensor, integers, lengths, torch

CACHE_DTYPES = ("auto", "bfloat16", "fp8", "fp8_e4m3")  # auto is the model's own, bfloat16
INTEGERS = (torch.int32, torch.int64)
COMMON_FIELDS = (
    "num_reqs",
    "num_actual_tokens",
    "query_start_loc",
    "query_start_loc_cpu",
    "seq_lens",
    "block_table_tensor",
    "slot_mapping",
    "max_query_len",
    "max_seq_len",
)

Table = tuple[torch.Tensor, torch.Tensor]
MaybeTable = tuple[torch.Tensor | None, torch.Tensor | None]


class MiniMaxM3SparseAiterPABackend:
    """What vLLM asks of an attention backend before it builds anything."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = list(CACHE_DTYPES)

    @staticmethod
    def get_name() -> str:
        return "MINIMAX_M3_SPARSE"

    @staticmethod
    def get_impl_cls() -> type[MiniMaxM3SparseAiterPAImpl]:
        return MiniMaxM3SparseAiterPAImpl

    @staticmethod
    def get_builder_cls() -> type[MiniMaxM3SparseAiterPAMetadataBuilder]:
        return MiniMaxM3SparseAiterPAMetadataBuilder

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return [HEAD_DIM]

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int]:
        return [SPARSE_BLOCK_SIZE]

    @classmethod
    def is_sparse(cls) -> bool:
        return True


class MiniMaxM3SparseAiterPAMetadataBuilder:
    """Makes a step's metadata and rebases its block table to page 16, once for all layers.

    The top-k resolves a selected block through the rebased table, because it multiplies by the 8 pages of one side
    while a packed block spans 16. The table is written into `page16_block_table_buffer`, int32 [max_num_seqs][blocks of
    max_model_len], which stays where it is for the builder's life, so that a captured step finds the next one's.

    kv_cache_spec: has block_size. vllm_config: has scheduler_config.max_num_seqs, model_config.max_model_len and
    speculative_config (None, or with num_speculative_tokens). Raises ValueError for another block size than 128,
    AttributeError for an object without one of these.
    """

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device) -> None:
        block_size = _field("kv_cache_spec", kv_cache_spec, "block_size")
        check_whole("the cache's block_size", block_size)
        if block_size != SPARSE_BLOCK_SIZE:
            raise ValueError(f"the cache's block_size is {block_size}; expected {SPARSE_BLOCK_SIZE}")
        self.kv_cache_spec = kv_cache_spec
        self.layer_names = layer_names
        self.reorder_batch_threshold = decode_threshold(vllm_config)
        length = _config(vllm_config, "model_config", "max_model_len")
        seqs = _config(vllm_config, "scheduler_config", "max_num_seqs")
        for name, value in (("max_model_len", length), ("max_num_seqs", seqs)):
            check_count(name, value, 1)
        shape = (seqs, -(-length // block_size))
        self.page16_block_table_buffer = torch.empty(shape, dtype=torch.int32, device=device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> MiniMaxM3SparseMetadata:
        """A step's metadata; decode requests come first. The page-16 tables are slices of the buffer.

        common_attn_metadata: has num_reqs, num_actual_tokens, query_start_loc and query_start_loc_cpu [requests + 1],
        seq_lens int32 [requests], block_table_tensor int32 [requests][blocks], slot_mapping int64 [tokens],
        max_query_len and max_seq_len. common_prefix_len and fast_build change nothing.
        Raises AssertionError for a block table larger than the buffer, ValueError as `split_decodes_and_prefills`,
        AttributeError for metadata without one of its fields.
        """
        common = common_attn_metadata
        for name in COMMON_FIELDS:
            _field("common_attn_metadata", common, name)
        check_count("num_reqs", common.num_reqs, 0)
        offsets = integers("query_start_loc_cpu", common.query_start_loc_cpu, (common.num_reqs + 1,))
        split = split_decodes_and_prefills(offsets.tolist(), common.num_actual_tokens, self.reorder_batch_threshold)
        _check_common(common, offsets)
        slots = minimax_m3_rebase_slots_to_page16(common.slot_mapping)
        prefill = None if split.num_prefills == 0 else prefill_metadata(common, split)
        page16 = self._rebase(common.block_table_tensor)  # last of all: an error leaves the buffer as it is
        if prefill is not None:
            prefill.page16_block_table = page16[split.num_decodes :]
        return MiniMaxM3SparseMetadata(
            seq_lens=common.seq_lens,
            max_seq_len=common.max_seq_len,
            slot_mapping=slots,
            num_actual_tokens=common.num_actual_tokens,
            num_decodes=split.num_decodes,
            num_decode_tokens=split.num_decode_tokens,
            num_prefills=split.num_prefills,
            num_prefill_tokens=split.num_prefill_tokens,
            prefill=prefill,
            decode=_decode(common, split, page16),
        )

    def _rebase(self, block_table: torch.Tensor) -> torch.Tensor:
        check_tensor("block_table_tensor", block_table, (torch.int32,), (None, None))
        (requests, columns), buffer = block_table.shape, self.page16_block_table_buffer
        if requests > buffer.shape[0] or columns > buffer.shape[1]:
            raise AssertionError(
                f"the block table {(requests, columns)} is larger than the page-16 buffer {tuple(buffer.shape)}, which "
                "has max_num_seqs rows and the blocks of max_model_len as columns; raise these, or cut the table"
            )
        return minimax_m3_rebase_block_table_to_page16(block_table, out=buffer[:requests, :columns])


def _field(what: str, owner: Any, name: str) -> Any:
    if not hasattr(owner, name):
        raise AttributeError(
            f"{what}, a {type(owner).__name__}, has no {name}; the metadata builder reads it: pass vLLM's object, or"
            " one with its fields"
        )
    return getattr(owner, name)


def _config(vllm_config: Any, part: str, name: str) -> Any:
    return _field(f"vllm_config.{part}", _field("vllm_config", vllm_config, part), name)


def decode_threshold(vllm_config: Any) -> int:
    """How many query tokens a decode request may have: 1, and those that speculation adds."""
    speculative = getattr(vllm_config, "speculative_config", None)
    tokens = getattr(speculative, "num_speculative_tokens", None) or 0
    check_count("num_speculative_tokens", tokens, 0)
    return 1 + (2 if getattr(speculative, "parallel_drafting", False) else 1) * int(tokens)


def _decode(common: Any, split: Split, page16: torch.Tensor) -> MiniMaxM3SparseAiterPADecodeMetadata | None:
    nd = split.num_decodes
    if nd == 0:
        return None
    return MiniMaxM3SparseAiterPADecodeMetadata(
        common.seq_lens[:nd], common.block_table_tensor[:nd], split.query_len, page16[:nd]
    )


def _check_common(common: Any, offsets: Array) -> None:
    """Refuses requests whose offsets, lengths and block tables are not as many, or whose offsets differ."""
    if not np.array_equal(integers("query_start_loc", common.query_start_loc, offsets.shape), offsets):
        raise ValueError("query_start_loc and query_start_loc_cpu differ; pass the same offsets in both")
    lengths("seq_lens", common.seq_lens, (common.num_reqs,))
    table = check_tensor("block_table_tensor", common.block_table_tensor, (torch.int32,), (None, None))
    if len(table) < common.num_reqs:
        raise ValueError(f"block_table_tensor has {len(table)} rows for {common.num_reqs} requests; expected one each")


# ---- the layer -------------------------------------------------------------------------------------------------------


class MiniMaxM3SparseAiterPAImpl:
    """A sparse layer's attention over the blocks that its indexer selected.

    num_heads: query heads, 16 a kv head. head_size: 128. scale: of the scores. num_kv_heads: num_heads where it is not
    given, as vLLM has it, which these kernels then refuse. kv_cache_dtype: of `CACHE_DTYPES`. topk_blocks, at most 16,
    and sparse_block_size, 128, are the model's. choices: what the bits depend on beside the data.
    Raises TypeError for parameters of another kind, ValueError for those that the kernels do not have.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        kv_cache_dtype: str = "auto",
        *,
        topk_blocks: int,
        sparse_block_size: int,
        choices: AttendChoices | None = None,
    ) -> None:
        if kv_cache_dtype not in CACHE_DTYPES:
            raise ValueError(f"kv_cache_dtype is {kv_cache_dtype!r}; expected one of {', '.join(CACHE_DTYPES)}")
        _check_heads(num_heads, num_kv_heads, head_size)
        check_scale(scale)
        check_whole("topk_blocks", topk_blocks)
        check_whole("sparse_block_size", sparse_block_size)
        if not 1 <= topk_blocks <= TOPK or sparse_block_size != SPARSE_BLOCK_SIZE:
            raise ValueError(
                f"the layer selects {topk_blocks} blocks of {sparse_block_size} tokens; the kernels take 1 to {TOPK} "
                f"of {SPARSE_BLOCK_SIZE}"
            )
        chosen = AttendChoices() if choices is None else choices
        check_choices(chosen)
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = scale
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.use_fp8_kv = kv_cache_dtype.startswith("fp8")
        self.topk_blocks = topk_blocks
        self.block_size = sparse_block_size
        self.choices = chosen

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        output: torch.Tensor,
        *,
        query_fp8: torch.Tensor | None = None,
        decode_sparse_table: Table | None = None,
    ) -> torch.Tensor:
        """Writes the batch's rows of `output` and returns it; rows past num_actual_tokens stay as they are.

        layer: has layer_name, topk_indices_buffer int32 [heads][tokens][topk], get_aiter_sparse_pa_kv_cache() -> (k, v)
        and, where it has them, sparse_bt_buffer int32 [tokens * kvh][128] and sparse_ctx_buffer int32 [tokens * kvh],
        the page table that the indexer emitted, and _k_scale, _v_scale of an fp8 cache. query, output: bfloat16
        [tokens][heads * 128].
        kv_cache and query_fp8 are not read: the cache is the layer's views, and the query's e4m3 is the kernel's.
        decode_sparse_table: a table for the decode rows, counted only where none was emitted.

        Without a metadata dict in the forward context (a profiling run) the output is returned as it is.
        Raises NotImplementedError for several kv heads without an emitted table, RuntimeError for an emitted table over
        a cache whose sides do not share blocks, AssertionError for metadata or buffers that are missing, ValueError and
        TypeError for those that do not fit; the output is then as it was.
        """
        by_layer = get_forward_context().attn_metadata
        if not isinstance(by_layer, dict):
            return output
        batch = _batch(by_layer, layer)
        emitted = getattr(layer, "sparse_bt_buffer", None), getattr(layer, "sparse_ctx_buffer", None)
        if self.num_kv_heads != 1 and emitted[0] is None:
            raise NotImplementedError(
                f"num_kv_heads is {self.num_kv_heads} and the layer has no sparse_bt_buffer: a table built here would "
                "address the cache of one head. Let the indexer's top-k emit the page table "
                f"(pa_sparse_block_topk with num_kv_heads={self.num_kv_heads}), or run one kv head a rank"
            )
        k_cache, v_cache = views_of(layer)
        if emitted[0] is not None:
            _check_stride(k_cache, v_cache)
        heads = (-1, self.num_heads, self.head_size)
        tokens, nd = batch.num_actual_tokens, batch.num_decode_tokens
        _check_counts(batch)
        q = self._rows_of("query", query, tokens).view(heads)
        out = self._rows_of("output", output, tokens).view(heads)
        held = torch.empty_strided(out.shape, out.stride(), dtype=out.dtype).copy_(out)  # until both sides are done
        common: dict[str, Any] = {**asdict(self.choices), **self._scales(layer)}
        if batch.num_decodes > 0:
            _check_context(layer, *emitted)
            counted = (None, None) if decode_sparse_table is None else pair("decode_sparse_table", decode_sparse_table)
            table = counted if emitted[0] is None else self._rows(emitted, 0, nd)
            self._decode(batch, layer, q[:nd], (k_cache, v_cache), held[:nd], table, common)
        if batch.num_prefills > 0:
            table = self._rows(emitted, nd, tokens)
            self._prefill(batch, layer, q[nd:], (k_cache, v_cache), held[nd:], table, common)
        out.copy_(held)
        return output

    def _rows_of(self, name: str, tensor: torch.Tensor, tokens: int) -> torch.Tensor:
        """The first rows of the query or the output."""
        rows, width = check_tensor(name, tensor, (torch.bfloat16,)), self.num_heads * self.head_size
        if rows.dim() not in (2, 3) or len(rows) < tokens or rows[:1].numel() not in (0, width):
            raise ValueError(
                f"{name} has shape {tuple(rows.shape)}; expected at least {tokens} rows, the metadata's"
                f" num_actual_tokens, of {self.num_heads} heads of {self.head_size}"
            )
        return rows[:tokens]

    def _scales(self, layer: Any) -> dict[str, Any]:
        if not self.use_fp8_kv:
            return {}
        return {"k_scale": getattr(layer, "_k_scale", None), "v_scale": getattr(layer, "_v_scale", None)}

    def _rows(self, emitted: MaybeTable, first: int, stop: int) -> MaybeTable:
        """The emitted table's part for these tokens, a row a token and kv head, head minor."""
        rows = slice(first * self.num_kv_heads, stop * self.num_kv_heads)
        table, context = (None if part is None else part[rows] for part in emitted)
        return table, context

    def _decode(
        self,
        batch: MiniMaxM3SparseMetadata,
        layer: Any,
        q: torch.Tensor,
        cache: Table,
        out: torch.Tensor,
        table: MaybeTable,
        common: dict[str, Any],
    ) -> None:
        d = batch.decode
        if d is None:
            raise AssertionError(f"num_decodes is {batch.num_decodes}, but the metadata's decode is None")
        minimax_m3_sparse_attn_decode_aiter(
            q,
            *cache,
            _selected(layer, 0, batch.num_decode_tokens),
            d.block_table,
            d.seq_lens,
            self.num_kv_heads,
            self.scale,
            out,
            decode_query_len=d.decode_query_len,
            sparse_block_table=table[0],
            sparse_context_lens=table[1],
            **common,
        )

    def _prefill(
        self,
        batch: MiniMaxM3SparseMetadata,
        layer: Any,
        q: torch.Tensor,
        cache: Table,
        out: torch.Tensor,
        table: MaybeTable,
        common: dict[str, Any],
    ) -> None:
        p = batch.prefill
        if p is None:
            raise AssertionError(f"num_prefills is {batch.num_prefills}, but the metadata's prefill is None")
        if p.query_req_id is None or p.query_abs_pos is None:
            raise AssertionError(
                "the prefill metadata has no query_req_id or no query_abs_pos; the attend needs each token's request "
                "and position: build the metadata with MiniMaxM3SparseAiterPAMetadataBuilder or set both"
            )
        minimax_m3_sparse_attn_prefill_aiter(
            q,
            *cache,
            _selected(layer, batch.num_decode_tokens, batch.num_actual_tokens),
            p.block_table,
            p.query_req_id,
            p.query_abs_pos,
            self.num_kv_heads,
            self.scale,
            out,
            sparse_bt=table[0],
            sparse_ctx=table[1],
            **common,
        )


def _check_heads(num_heads: int, num_kv_heads: int | None, head_size: int) -> None:
    """Refuses heads that no attend takes."""
    check_count("num_heads", num_heads, 1)
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    check_count("num_kv_heads", kv_heads, 1)
    if num_heads != GROUP * kv_heads:
        given = " (num_heads, as it was not given: pass it)" if num_kv_heads is None else ""
        raise ValueError(
            f"num_heads is {num_heads} and num_kv_heads {kv_heads}{given}; expected {GROUP} query heads a kv head"
        )
    check_whole("head_size", head_size)
    if head_size != HEAD_DIM:
        raise ValueError(f"head_size is {head_size}; expected {HEAD_DIM}, the kernels' only one")


def _batch(attn_metadata: dict[str, object], layer: Any) -> MiniMaxM3SparseMetadata:
    """The layer's metadata, checked to be ours, and its selection to be there."""
    for name in ("layer_name", "get_aiter_sparse_pa_kv_cache"):
        if not hasattr(layer, name):
            raise AttributeError(f"the layer, a {type(layer).__name__}, has no {name}; the attention reads it")
    if layer.layer_name not in attn_metadata:
        raise KeyError(f"the forward context has no metadata of layer {layer.layer_name!r}, only {list(attn_metadata)}")
    batch = attn_metadata[layer.layer_name]
    if not isinstance(batch, MiniMaxM3SparseMetadata):
        raise AssertionError(
            f"the metadata of layer {layer.layer_name!r} is a {type(batch).__name__}; expected a "
            "MiniMaxM3SparseMetadata (vllm_adapter.sparse_metadata makes one of vLLM's)"
        )
    if getattr(layer, "topk_indices_buffer", None) is None:
        raise AssertionError(f"layer {layer.layer_name!r} has no topk_indices_buffer; run its indexer first")
    return batch


def _check_counts(batch: MiniMaxM3SparseMetadata) -> None:
    """Refuses sides that are not the batch: rows of neither would be left out."""
    names = ("num_decodes", "num_decode_tokens", "num_prefills", "num_prefill_tokens", "num_actual_tokens")
    for name in names:
        check_count(f"the metadata's {name}", getattr(batch, name), 0)
    sides = (batch.num_decodes, batch.num_decode_tokens), (batch.num_prefills, batch.num_prefill_tokens)
    tokens = sum(count for requests, count in sides if requests)
    if tokens != batch.num_actual_tokens:
        text = ", ".join(f"{name} {getattr(batch, name)}" for name in names)
        raise ValueError(f"the metadata has {text}; expected the tokens of both sides to be num_actual_tokens")


def _selected(layer: Any, first: int, stop: int) -> torch.Tensor:
    """The layer's selection of some rows."""
    buffer = check_tensor("topk_indices_buffer", layer.topk_indices_buffer, INTEGERS, (None, None, None))
    return buffer[:, first:stop, :]


def pair(name: str, value: Any) -> Table:
    """Both parts of what should be two tensors. Raises TypeError for anything else than two of whatever kind."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        count = f" of {len(value)}" if isinstance(value, tuple | list) else ""
        raise TypeError(f"{name} is a {type(value).__name__}{count}; expected two tensors")
    return value[0], value[1]


def views_of(layer: Any) -> Table:
    """The layer's K and V views. Raises TypeError where it does not give two tensors."""
    views = layer.get_aiter_sparse_pa_kv_cache
    if not callable(views):
        raise TypeError(
            f"get_aiter_sparse_pa_kv_cache is a {type(views).__name__}; expected a method that gives the layer's K and"
            " V views"
        )
    both = pair("get_aiter_sparse_pa_kv_cache()", views())
    for side, view in zip("KV", both, strict=True):
        if not isinstance(view, torch.Tensor):
            raise TypeError(f"get_aiter_sparse_pa_kv_cache() has a {type(view).__name__} for {side}; expected a tensor")
    return both


def _check_context(layer: Any, table: torch.Tensor | None, context: torch.Tensor | None) -> None:
    if table is not None and context is None:
        raise AssertionError(
            f"layer {layer.layer_name!r} has a sparse_bt_buffer without sparse_ctx_buffer; the table alone does not "
            "tell how many tokens it holds: reserve both"
        )


def _check_stride(k_cache: torch.Tensor, v_cache: torch.Tensor) -> None:
    """The emitted table counts both sides in a block's pages, so they must share it: pages of others would be read."""
    both_sides = PAGE16_SIDES_PER_BLOCK * PAGES_PER_SPARSE_BLOCK
    if (pages := minimax_m3_sparse_block_page_stride(k_cache, v_cache)) != both_sides:
        raise RuntimeError(
            f"the indexer emitted page ids for blocks of {both_sides} pages, K and V together, but a block of this "
            f"cache spans {pages}: its sides are planes of their own. Allocate the cache packed, or do not reserve "
            "sparse_bt_buffer, so that the table is built for the cache at hand"
        )
