"""The sizes that every part of the kernel shares. Those of the cache are `gfx950.kv_cache`'s."""

from __future__ import annotations

from gfx950.kv_cache import (
    ASM_PAGE_SIZE,
    HEAD_DIM,
    PAGE16_SIDES_PER_BLOCK,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)

__all__ = [
    "ASM_PAGE_SIZE",
    "CHUNK",
    "GROUP",
    "HEAD_DIM",
    "INDEX_DIM",
    "LARGEST_SPLITS",
    "MAX_BLOCKS",
    "PAGE16_SIDES_PER_BLOCK",
    "PAGES_PER_SPARSE_BLOCK",
    "PAGE_ELEMENTS",
    "SPARSE_BLOCK_SIZE",
    "TABLE_WIDTH",
    "TOPK",
]

GROUP = 16  # query heads of a kv head
TOPK = 16  # blocks that a row selects
TABLE_WIDTH = TOPK * PAGES_PER_SPARSE_BLOCK  # pages of a row of the sparse table
PAGE_ELEMENTS = ASM_PAGE_SIZE * HEAD_DIM  # of one side and kv head
CHUNK = 256  # keys that a workgroup attends to at once
INDEX_DIM = 128  # of index queries and keys
MAX_BLOCKS = 8192  # of a request: what AITER's top-k can rank
LARGEST_SPLITS = 8  # splits of a context
