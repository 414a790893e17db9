"""Query rows: the request that each belongs to, and how many of its tokens it may see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codegen.kernels.sparse_attention.shapes import SPARSE_BLOCK_SIZE

LARGEST = (1 << 31) - 1  # int32


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
        request, token = np.divmod(np.arange(len(seq_lens) * query_len), query_len)
        return cls(_int32(request), _int32(np.maximum(seq_lens[request].astype(np.int64) - query_len + token + 1, 0)))

    @classmethod
    def prefill(cls, query_req_id: NDArray[np.signedinteger], query_abs_pos: NDArray[np.signedinteger]) -> Rows:
        """Rows with their request and position; a negative position sees nothing."""
        before = np.minimum(query_abs_pos.astype(np.int64), LARGEST)
        return cls(_int32(query_req_id), _int32(np.maximum(before + 1, 0)))


def _int32(numbers: NDArray[np.signedinteger]) -> NDArray[np.int32]:
    """The numbers, those beyond int32 as the largest or least there is: refused like them where rows are checked."""
    clipped: NDArray[np.int32] = np.clip(numbers, -LARGEST - 1, LARGEST).astype(np.int32)
    return clipped
