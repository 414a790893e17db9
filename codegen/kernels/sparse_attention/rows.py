"""Query rows: the request that each belongs to, and how many of its tokens it may see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.sparse_attention.shapes import SPARSE_BLOCK_SIZE


@dataclass(frozen=True)
class Rows:
    """request: int32 [rows], each row's request. kv_len: int32 [rows], the tokens up to and with its own; 0 for rows
    that only pad a batch."""

    request: NDArray[np.int32]
    kv_len: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.request)

    @property
    def blocks(self) -> NDArray[np.int32]:
        """How many blocks each row sees, the last perhaps in part."""
        return -(-self.kv_len // np.int32(SPARSE_BLOCK_SIZE))

    @classmethod
    def decode(cls, seq_lens: NDArray[np.int32], query_len: int) -> Rows:
        """`query_len` rows a request, the last of which is its newest token."""
        number = np.arange(len(seq_lens) * query_len, dtype=np.int32)
        request, token = number // np.int32(query_len), number % np.int32(query_len)
        return cls(request, np.maximum(seq_lens[request] - np.int32(query_len) + token + np.int32(1), np.int32(0)))

    @classmethod
    def prefill(cls, query_req_id: NDArray[np.int32], query_abs_pos: NDArray[np.int32]) -> Rows:
        """Rows with their request and position; a negative position sees nothing."""
        return cls(query_req_id.astype(np.int32), np.maximum(query_abs_pos.astype(np.int32) + 1, 0).astype(np.int32))
