"""The whole job of a batch: new tokens into the caches, index scores, selection with its page table, attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.sparse_attention.attend import Attended, attend, get_recommended_splits, scales_by_page
from codegen.kernels.sparse_attention.cases import Case, Inputs
from codegen.kernels.sparse_attention.insert import insert_index, insert_kv, insert_kv_per_token
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.score import score_blocks
from codegen.kernels.sparse_attention.select import Selection, select_blocks
from codegen.kernels.sparse_attention.shapes import (
    GROUP,
    HEAD_DIM,
    PAGE16_SIDES_PER_BLOCK,
    PAGE_ELEMENTS,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)
from codegen.kernels.sparse_attention.table import LARGEST

SOFTMAX_SCALE = HEAD_DIM**-0.5


@dataclass(frozen=True)
class Outputs:
    """What the job leaves, S = rows * kv heads sequences.

    kv_cache, index_cache, k_scale, v_scale: as in `Inputs`, with the new tokens. scores: float32 [H][rows][width].
    topk: int32 [H][rows][16]. table, ctx: int32 [S][128], [S]. o, m, l: the splits' results, bf16 bits
    uint16 [S][splits][16][128] and float32 [S][splits][16], of the decode rows, then of the prefill rows; splits that a
    part has not are 0. out: bf16 bits uint16 [rows][kv heads * 16][128].
    """

    kv_cache: NDArray[Any]
    index_cache: NDArray[np.uint8]
    k_scale: NDArray[np.float32]
    v_scale: NDArray[np.float32]
    scores: NDArray[np.float32]
    topk: NDArray[np.int32]
    table: NDArray[np.int32]
    ctx: NDArray[np.int32]
    o: NDArray[np.uint16]
    m: NDArray[np.float32]
    l: NDArray[np.float32]  # noqa: E741
    out: NDArray[np.uint16]


@dataclass(frozen=True)
class Caches:
    """A job's own copies of what it writes. k, v: pages of 2048 elements, views of kv_cache."""

    kv_cache: NDArray[Any]
    index_cache: NDArray[np.uint8]
    k_scale: NDArray[np.float32]
    v_scale: NDArray[np.float32]
    k: NDArray[Any]
    v: NDArray[Any]

    @classmethod
    def of(cls, inputs: Inputs) -> Caches:
        """Copies of the inputs' caches."""
        case, whole = inputs.case, inputs.kv_cache.copy()
        pages = whole.reshape(-1, PAGE_ELEMENTS)
        v_first = PAGES_PER_SPARSE_BLOCK * case.kv_heads if case.packed else len(pages) // PAGE16_SIDES_PER_BLOCK
        k, v = pages if case.packed else pages[:v_first], pages[v_first:]
        return cls(whole, inputs.index_cache.copy(), inputs.k_scale.copy(), inputs.v_scale.copy(), k, v)


def run(runner: Runner, inputs: Inputs) -> Outputs:
    """Every step in order; the inputs stay as they are."""
    caches = Caches.of(inputs)
    insert(runner, inputs, caches)
    scores, selection = choose(runner, inputs, caches)
    parts = [attend_rows(runner, inputs, caches, selection, part) for part in inputs.case.parts]
    o, m, l = (_padded([getattr(part, name) for part in parts]) for name in ("o", "m", "l"))  # noqa: E741
    return Outputs(
        kv_cache=caches.kv_cache,
        index_cache=caches.index_cache,
        k_scale=caches.k_scale,
        v_scale=caches.v_scale,
        scores=scores,
        topk=selection.topk,
        table=selection.table,
        ctx=selection.ctx,
        o=o,
        m=m,
        l=l,
        out=np.concatenate([part.out for part in parts]).reshape(inputs.q.shape),
    )


def _padded(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Arrays [sequences][splits].. one after another, all with the most splits of any."""
    most = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(p, [(0, 0), (0, most - p.shape[1])] + [(0, 0)] * (p.ndim - 2)) for p in parts])


def insert(runner: Runner, inputs: Inputs, caches: Caches) -> None:
    """The new tokens into the caches."""
    case, slots = inputs.case, inputs.slots
    if case.packed:
        slots = np.where(slots >= 0, slots + slots // SPARSE_BLOCK_SIZE * SPARSE_BLOCK_SIZE, slots)
    new = inputs.key, inputs.value, caches.k, caches.v, slots
    scales: dict[str, Any] = {"k_scale": caches.k_scale, "v_scale": caches.v_scale}
    if case.per_token:
        insert_kv_per_token(runner, *new, kv_heads=case.kv_heads, **scales)
    else:
        insert_kv(runner, *new, kv_heads=case.kv_heads, **(scales if case.cache == "fp8" else {}))
    insert_index(runner, inputs.index_k, caches.index_cache, inputs.index_slots)


def choose(runner: Runner, inputs: Inputs, caches: Caches) -> tuple[NDArray[np.float32], Selection]:
    """The index scores of all rows, and what they select."""
    case, rows = inputs.case, Rows(inputs.request, inputs.kv_len)
    forced = {"init_blocks": case.init_blocks, "local_blocks": case.local_blocks}
    scores = score_blocks(runner, inputs.index_q, caches.index_cache, inputs.index_block_table, rows, **forced)
    table = _rebased(inputs.block_table) if case.packed else inputs.block_table
    return scores, select_blocks(runner, scores, table, rows, kv_heads=case.kv_heads)


def _rebased(block_table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Every entry doubled, or int32's nearest end. [rule sparse_attention.cache.rebase]"""
    least, most = (end // PAGE16_SIDES_PER_BLOCK for end in (-LARGEST - 1, LARGEST))
    doubled = np.clip(block_table, least, most) * np.int32(PAGE16_SIDES_PER_BLOCK)
    return np.where(block_table > most, np.int32(LARGEST), doubled)


def attend_rows(runner: Runner, inputs: Inputs, caches: Caches, selection: Selection, part: range) -> Attended:
    """The attention of some rows, split by their own number, as the backend launches decode and prefill rows apart."""
    case = inputs.case
    sequences = slice(part.start * case.kv_heads, part.stop * case.kv_heads)
    scales = {"k_scale": caches.k_scale, "v_scale": caches.v_scale} if case.cache == "fp8" else {}
    if case.per_token:
        scales = {name: scales_by_page(scale, len(caches.k)) for name, scale in scales.items()}
    return attend(
        runner,
        inputs.q.reshape(-1, GROUP, HEAD_DIM)[sequences],
        caches.k,
        caches.v,
        selection.table[sequences],
        selection.ctx[sequences],
        scale=SOFTMAX_SCALE,
        splits=splits_of(case, part),
        p=case.p,
        reduce=case.reduce,
        **scales,
    )


def splits_of(case: Case, part: range) -> int:
    """How many splits the contexts of a part of the rows have: the case's, or what its own launch is recommended."""
    return case.splits or get_recommended_splits(len(part), case.kv_heads)
