"""The page-16 SHUFFLE layout of a paged key-value cache: where each element of K and V is, and the way back.

A block holds 128 tokens of both sides; a side of it is 8 pages of 16 tokens. All closed forms over Python integers.
"""

from __future__ import annotations

SPARSE_BLOCK_SIZE = 128  # tokens of a block
ASM_PAGE_SIZE = 16  # tokens of a page
PAGES_PER_SPARSE_BLOCK = SPARSE_BLOCK_SIZE // ASM_PAGE_SIZE  # pages of one side of a block
PAGE16_SIDES_PER_BLOCK = 2  # K and V
HEAD_DIM = 128
VECTOR_BYTES = 16  # of a page's innermost runs: x = 16 fp8 or 8 bf16 elements
