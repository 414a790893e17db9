"""Which launch of the job writes a byte of its outputs, and where: what a watchpoint needs."""

from __future__ import annotations

import numpy as np

from codegen.kernel_package import Watchpoint
from codegen.kernels.sparse_attention.cases import Inputs
from codegen.kernels.sparse_attention.job import splits_of
from codegen.kernels.sparse_attention.launch import Watched
from codegen.kernels.sparse_attention.shapes import GROUP, HEAD_DIM

_WRITERS = {
    "scores": "index_score",
    "topk": "select_blocks",
    "table": "select_blocks",
    "ctx": "select_blocks",
    "index_cache": "insert_index",
    "k_scale": "insert_kv",
    "v_scale": "insert_kv",
}
_SCALES = ("k_scale", "v_scale")  # written only where each token has its own
_HEAD_BYTES = {"o": HEAD_DIM * 2, "m": 4, "l": 4}  # of one head of a split


def watched(inputs: Inputs, watch: Watchpoint) -> Watched | None:
    """The launch and argument of a byte of `job.Outputs`; None where no launch can write it. Raises ValueError for an
    output that there is not."""
    if watch.output in _SCALES and not inputs.case.per_token:
        return None
    if watch.output in _WRITERS:
        return Watched(_WRITERS[watch.output], watch.output, watch.byte)
    if watch.output == "kv_cache":
        plane = inputs.kv_cache.nbytes // 2
        if inputs.case.packed:
            return Watched("insert_kv", "k", watch.byte)
        return Watched("insert_kv", "kv"[watch.byte // plane], watch.byte % plane)
    if watch.output == "out":
        return _of_output(inputs, watch)
    if watch.output not in _HEAD_BYTES:
        names = ", ".join(("kv_cache", *_WRITERS, *_HEAD_BYTES, "out"))
        raise ValueError(f"there is no output {watch.output!r} to watch; there are: {names}")
    return _of_split(inputs, watch)


def _of_output(inputs: Inputs, watch: Watchpoint) -> Watched:
    """`out`, which the reduction writes, or the attention itself where there is one split."""
    case, row_bytes = inputs.case, inputs.q[0].nbytes
    number = next(i for i, part in enumerate(case.parts) if watch.byte // row_bytes in part)
    byte = watch.byte - case.parts[number].start * row_bytes
    if splits_of(case, case.parts[number]) == 1:
        return Watched("attend", "o", byte, number)
    return Watched("reduce", "out", byte, sum(splits_of(case, part) > 1 for part in case.parts[:number]))


def _of_split(inputs: Inputs, watch: Watchpoint) -> Watched | None:
    """o, m or l, which hold the most splits of any part for every sequence."""
    case = inputs.case
    splits = [splits_of(case, part) for part in case.parts]
    head_bytes = _HEAD_BYTES[watch.output]
    shape = case.rows, case.kv_heads, max(splits), GROUP * head_bytes
    row, head, split, rest = (int(n) for n in np.unravel_index(watch.byte, shape))
    number = next(i for i, part in enumerate(case.parts) if row in part)
    if split >= splits[number]:
        return None
    sequence = (row - case.parts[number].start) * case.kv_heads + head
    byte = (sequence * splits[number] + split) * GROUP * head_bytes + rest
    return Watched("attend", watch.output, byte, number)
