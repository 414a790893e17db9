"""The page-16 SHUFFLE layout of a paged key-value cache: where each element of K and V is, and the way back.

A block holds 128 tokens of both sides; a side of it is 8 pages of 16 tokens. A page holds, for each kv head in turn,
16 tokens by 128 dims: K as [128/x][16 tokens][x dims], V as [16/x][128 dims][x tokens], x elements filling 16 bytes.

Two places of the sides in memory. Packed: a block is 16 consecutive pages, K's 8 and then V's; V's view of the memory
begins 8 pages in, so that both sides of a block have the same page ids, 16 * block + j. Dense: each side is a plane of
its own with page ids 8 * block + j; the allocation is K's plane, then V's.

The index keys have a cache of their own, one row of 128 dims a token. All closed forms over Python integers, every one
with its inverse; what lies outside is an IndexError, never another element.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from gfx950.evidence import Evidence, rule

SPARSE_BLOCK_SIZE = 128  # tokens of a block
ASM_PAGE_SIZE = 16  # tokens of a page
PAGES_PER_SPARSE_BLOCK = SPARSE_BLOCK_SIZE // ASM_PAGE_SIZE  # pages of one side of a block
PAGE16_SIDES_PER_BLOCK = 2  # K and V
HEAD_DIM = 128
VECTOR_BYTES = 16  # of a page's innermost runs: x = 16 fp8 or 8 bf16 elements
SIDES = ("K", "V")
ITEM_BYTES = {"fp8": 1, "bf16": 2}

_AITER = "AITER (ROCm/aiter e4048607) csrc/kernels/fused_qknorm_idxrqknorm.cu and csrc/kernels/cache_kernels.cu"

PAGE_RULE = rule(
    "sparse_attention.cache.page",
    Evidence.vendor,
    _AITER,
    "A page and kv head of K is [128/x][16 tokens][x dims], of V [16/x][128 dims][x tokens], x elements to 16 bytes."
    " The kv heads of a page follow each other.",
)
SIDES_RULE = rule(
    "sparse_attention.cache.sides",
    Evidence.vendor,
    "vLLM, the public page of vllm/models/minimax_m3/amd/model (_ensure_aiter_sparse_pa_kv_cache)",
    "Packed, a block is 8 pages of K and then 8 of V, and V's view begins 8 pages in: both have ids 16 * block + j."
    " Dense, each side is contiguous, with ids 8 * block + j.",
)
REBASE_RULE = rule(
    "sparse_attention.cache.rebase",
    Evidence.vendor,
    "vLLM's test of the MiniMax-M3 page-16 rebases (slots -1 0 127 128 129 255 256, table -1 0 3)",
    "For a packed cache the writer's slot becomes slot + (slot // 128) * 128, a negative slot stays as it is, and every"
    " entry of the block table is doubled. A double beyond the table's dtype is the dtype's nearest end, where vLLM's"
    " int32 wraps; only garbage has one, so that the entries that any row sees are the same.",
)
INDEX_KEY_RULE = rule(
    "sparse_attention.cache.index_keys",
    Evidence.vendor,
    _AITER.partition(" and ")[0],
    "The index keys are [blocks][128 tokens][128 dims], row-major, by slots that are not rebased.",
)


class Element(NamedTuple):
    """An element of the cache: side 'K' or 'V', block, token 0..127 of the block, kv head, dim 0..127."""

    side: str
    block: int
    token: int
    head: int
    dim: int


class Place(NamedTuple):
    """A byte of one side: page id, kv head, byte of that page and head."""

    page: int
    head: int
    byte: int


# ---- slots and the block table ---------------------------------------------------------------------------------------


def slot_of(block: int, token: int) -> int:
    """The slot of a token of a block: block * 128 + token. Raises IndexError outside of 0.. and 0..127."""
    return _at_least_0("block", block) * SPARSE_BLOCK_SIZE + _within("token", token, SPARSE_BLOCK_SIZE, "a block")


def block_and_token(slot: int) -> tuple[int, int]:
    """The inverse of `slot_of`. Raises IndexError for a negative slot: padding, which is in no block."""
    return divmod(_at_least_0("slot", slot), SPARSE_BLOCK_SIZE)


def rebase_slot(slot: int) -> int:
    """The slot by which the writer finds a token in a packed cache: its block doubled, its token kept.

    Negative slots, the padding that the writer skips, stay as they are (rule sparse_attention.cache.rebase).
    """
    slot = _whole("slot", slot)
    return slot if slot < 0 else slot + slot // SPARSE_BLOCK_SIZE * SPARSE_BLOCK_SIZE


def unrebase_slot(rebased: int) -> int:
    """The inverse of `rebase_slot`. Raises IndexError for a number that no slot is rebased to."""
    rebased = _whole("rebased slot", rebased)
    if rebased < 0:
        return rebased
    block, token = divmod(rebased, PAGE16_SIDES_PER_BLOCK * SPARSE_BLOCK_SIZE)
    if token >= SPARSE_BLOCK_SIZE:
        raise IndexError(
            f"no slot is rebased to {rebased}: those of block {block} are rebased to"
            f" {rebase_slot(slot_of(block, 0))}..{rebase_slot(slot_of(block, SPARSE_BLOCK_SIZE - 1))};"
            " was it rebased at all?"
        )
    return slot_of(block, token)


def rebase_block(block: int) -> int:
    """A block table's entry for a packed cache: doubled, negative ones too (rule sparse_attention.cache.rebase)."""
    return _whole("block", block) * PAGE16_SIDES_PER_BLOCK


def unrebase_block(entry: int) -> int:
    """The inverse of `rebase_block`. Raises IndexError for an odd entry."""
    block, rest = divmod(_whole("block table entry", entry), PAGE16_SIDES_PER_BLOCK)
    if rest:
        raise IndexError(f"no block is rebased to the odd entry {entry}: entries are 2 * block; was it rebased at all?")
    return block


# ---- K and V ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KvCacheLayout:
    """The K and V cache of one layer.

    format: 'fp8' (e4m3fn) or 'bf16'. kv_heads: 1 or more. packed: both sides of a block in 16 consecutive pages, else a
    plane for each side. blocks: of the cache; None where it does not matter, which is everywhere but in the view's
    shapes and in the allocation of dense planes. Raises ValueError for another format, or counts below 1.

    Bytes are counted in a side's *view*, from where the side begins, or in the *allocation*, from where K begins.
    """

    format: str = "fp8"
    kv_heads: int = 1
    packed: bool = True
    blocks: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.packed, bool):
            raise TypeError(f"packed is {self.packed!r}, a {type(self.packed).__name__}; give True or False")
        _check_cache(self, "kv_heads", "blocks")

    # ---- sizes

    @cached_property
    def item_bytes(self) -> int:
        """Bytes of an element: 1 or 2."""
        return ITEM_BYTES[self.format]

    @cached_property
    def x(self) -> int:
        """Elements of an innermost run, 16 bytes: 16 for fp8, 8 for bf16."""
        return VECTOR_BYTES // self.item_bytes

    @cached_property
    def page_stride(self) -> int:
        """Page ids from a block to the next: 16 packed, 8 dense."""
        return PAGES_PER_SPARSE_BLOCK * (PAGE16_SIDES_PER_BLOCK if self.packed else 1)

    @cached_property
    def head_bytes(self) -> int:
        """Bytes of a page of one side and kv head, a flattened page: 2048 for fp8."""
        return ASM_PAGE_SIZE * HEAD_DIM * self.item_bytes

    @cached_property
    def page_bytes(self) -> int:
        """Bytes of a page of one side, all kv heads."""
        return self.head_bytes * self.kv_heads

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of a block, both sides."""
        return PAGE16_SIDES_PER_BLOCK * PAGES_PER_SPARSE_BLOCK * self.page_bytes

    @property
    def allocation_bytes(self) -> int:
        """Bytes of the cache. Raises ValueError when `blocks` is not given."""
        return self._known_blocks("the bytes of the allocation") * self.block_bytes

    def view_start(self, side: str) -> int:
        """The byte of the allocation where a side's view begins: 0 for K; for V 8 pages in, or after K's plane.

        Raises ValueError for V of dense planes when `blocks` is not given.
        """
        if _side(side) == "K":
            return 0
        blocks = 1 if self.packed else self._known_blocks("where V's plane begins")
        return blocks * PAGES_PER_SPARSE_BLOCK * self.page_bytes

    def view_shape(self, side: str) -> tuple[int, int, int, int, int]:
        """Of K [pages, kv_heads, 128/x, 16, x], of V [pages, kv_heads, 16/x, 128, x], in elements.

        pages is blocks * page_stride, for V of a packed cache 8 less. Raises ValueError when `blocks` is not given.
        """
        pages = self._known_blocks("the shape of a view") * self.page_stride
        if _side(side) == "K":
            return pages, self.kv_heads, HEAD_DIM // self.x, ASM_PAGE_SIZE, self.x
        missing = PAGES_PER_SPARSE_BLOCK if self.packed else 0
        return pages - missing, self.kv_heads, ASM_PAGE_SIZE // self.x, HEAD_DIM, self.x

    def view_strides(self, side: str) -> tuple[int, int, int, int, int]:
        """The strides of a side's view in elements: it is contiguous."""
        run_line = (ASM_PAGE_SIZE if _side(side) == "K" else HEAD_DIM) * self.x
        head = ASM_PAGE_SIZE * HEAD_DIM
        return head * self.kv_heads, head, run_line, self.x, 1

    # ---- pages

    def page(self, block: int, token: int) -> int:
        """The id of the page that holds a token of a block, the same for K and V."""
        block, token = self._block(block), _within("token", token, SPARSE_BLOCK_SIZE, "a block")
        return block * self.page_stride + token // ASM_PAGE_SIZE

    def pages(self, block: int) -> range:
        """The 8 page ids of a block."""
        first = self._block(block) * self.page_stride
        return range(first, first + PAGES_PER_SPARSE_BLOCK)

    def block_and_first_token(self, page: int) -> tuple[int, int]:
        """The block of a page id and the page's first token in it. Raises IndexError for an id that no side has."""
        block, within = divmod(_at_least_0("page", page), self.page_stride)
        if within >= PAGES_PER_SPARSE_BLOCK:
            ids = self.pages(block)
            raise IndexError(
                f"page {page} is no id of either side: the pages of block {block} are {ids[0]}..{ids[-1]} for K and for"
                " V, which is counted from 8 pages in"
            )
        return self._block(block), within * ASM_PAGE_SIZE

    def flattened_page(self, page: int, head: int) -> int:
        """What the sparse table holds: page * kv_heads + head, the index of a page and kv head in a side's view."""
        self.block_and_first_token(page)
        return page * self.kv_heads + self._head(head)

    def page_and_head(self, flattened: int) -> tuple[int, int]:
        """The inverse of `flattened_page`. Raises IndexError for one whose page is no id."""
        page, head = divmod(_at_least_0("flattened page", flattened), self.kv_heads)
        self.block_and_first_token(page)
        return page, head

    def byte_in_page(self, side: str, token: int, dim: int) -> int:
        """The byte of an element in its page and kv head; token 0..15 of the page."""
        token = _within("token", token, ASM_PAGE_SIZE, "a page")
        dim = _within("dim", dim, HEAD_DIM, "a head")
        if _side(side) == "K":
            line, (run, item) = ASM_PAGE_SIZE, (token, dim)
        else:
            line, (run, item) = HEAD_DIM, (dim, token)
        return (item // self.x * line + run) * VECTOR_BYTES + item % self.x * self.item_bytes

    def token_and_dim(self, side: str, byte: int) -> tuple[int, int]:
        """The inverse of `byte_in_page`, for any byte of an element."""
        byte = _within("byte", byte, self.head_bytes, f"a {self.format} page of a kv head")
        line = ASM_PAGE_SIZE if _side(side) == "K" else HEAD_DIM
        (piece, run), rest = divmod(byte // VECTOR_BYTES, line), byte % VECTOR_BYTES
        item = piece * self.x + rest // self.item_bytes
        return (run, item) if side == "K" else (item, run)

    # ---- elements

    def place(self, element: Element) -> Place:
        """The page id, kv head and first byte of an element. Raises IndexError for an index outside, ValueError for
        another side than 'K' and 'V'.
        """
        side, block, token, head, dim = element
        page = self.page(block, token)
        return Place(page, self._head(head), self.byte_in_page(side, token % ASM_PAGE_SIZE, dim))

    def element(self, side: str, place: Place) -> Element:
        """The inverse of `place`: the element of a side that owns a byte of a page and kv head."""
        block, first = self.block_and_first_token(place.page)
        token, dim = self.token_and_dim(side, place.byte)
        return Element(side, block, first + token, self._head(place.head), dim)

    def view_byte(self, element: Element) -> int:
        """The first byte of an element, counted from where its side's view begins."""
        page, head, byte = self.place(element)
        return self.flattened_page(page, head) * self.head_bytes + byte

    def element_at_view_byte(self, side: str, byte: int) -> Element:
        """The element that owns a byte of a side's view. Raises IndexError for a byte of the other side."""
        flattened, rest = divmod(_at_least_0(f"byte of {_side(side)}'s view", byte), self.head_bytes)
        try:
            return self.element(side, Place(*self.page_and_head(flattened), rest))
        except IndexError as error:
            raise IndexError(f"byte {byte} of {side}'s view holds nothing of {side}: {error}") from error

    def byte(self, element: Element) -> int:
        """The first byte of an element in the allocation. Raises ValueError for V of dense planes without `blocks`."""
        return self.view_start(element.side) + self.view_byte(element)

    def element_at(self, byte: int) -> Element:
        """The element that owns a byte of the allocation. Raises ValueError for dense planes without `blocks`."""
        byte = _at_least_0("byte of the allocation", byte)
        if self.blocks is not None:
            _within("byte", byte, self.allocation_bytes, f"the allocation of {_counted(self.blocks, 'block')}")
        start = self.view_start("V")
        side = SIDES[byte // start % PAGE16_SIDES_PER_BLOCK]
        return self.element_at_view_byte(side, byte - self.view_start(side))

    def writer_slot(self, slot: int) -> int:
        """The slot as the writer is given it: rebased for a packed cache, else as it is."""
        return rebase_slot(slot) if self.packed else _whole("slot", slot)

    # ---- checks

    def _block(self, block: int) -> int:
        return _block_of_cache(block, self.blocks)

    def _head(self, head: int) -> int:
        return _within("head", head, self.kv_heads, f"a cache of {_counted(self.kv_heads, 'kv head')}")

    def _known_blocks(self, what: str) -> int:
        if self.blocks is None:
            raise ValueError(f"how many blocks the cache has decides {what}; give blocks")
        return self.blocks


# ---- index keys ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexKeyLayout:
    """The cache of index keys, [blocks][128 tokens][128 dims] in row-major order; format and blocks as in K and V."""

    format: str = "fp8"
    blocks: int | None = None

    def __post_init__(self) -> None:
        _check_cache(self, "blocks")

    def byte(self, block: int, token: int, dim: int) -> int:
        """The first byte of an element. Raises IndexError for an index outside."""
        slot = slot_of(_block_of_cache(block, self.blocks), token)
        return (slot * HEAD_DIM + _within("dim", dim, HEAD_DIM, "an index key")) * ITEM_BYTES[self.format]

    def element_at(self, byte: int) -> tuple[int, int, int]:
        """The block, token and dim of the element that owns a byte."""
        slot, dim = divmod(_at_least_0("byte", byte) // ITEM_BYTES[self.format], HEAD_DIM)
        block, token = block_and_token(slot)
        return _block_of_cache(block, self.blocks), token, dim


# ---- checks ----------------------------------------------------------------------------------------------------------


def _whole(what: str, value: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} {value!r} is a {type(value).__name__}; give a whole number") from None


def _within(what: str, value: int, size: int, where: str) -> int:
    value = _whole(what, value)
    if not 0 <= value < size:
        raise IndexError(f"{what} {value} is outside {where}: give 0..{size - 1}")
    return value


def _at_least_0(what: str, value: int) -> int:
    value = _whole(what, value)
    if value < 0:
        raise IndexError(f"{what} {value} is negative, which is nothing in the cache: give 0 or more")
    return value


def _block_of_cache(block: int, blocks: int | None) -> int:
    if blocks is None:
        return _at_least_0("block", block)
    return _within("block", block, blocks, f"a cache of {_counted(blocks, 'block')}")


def _check_cache(layout: KvCacheLayout | IndexKeyLayout, *counts: str) -> None:
    """Checks a layout's format and counts, which become Python's integers: a numpy one of 32 bits would wrap."""
    if layout.format not in tuple(ITEM_BYTES):
        raise ValueError(f"format {layout.format!r}: a page-16 cache is {' or '.join(ITEM_BYTES)}")
    for name in counts:
        count = getattr(layout, name)
        if count is None and name == "blocks":
            continue
        if _whole(name, count) < 1:
            raise ValueError(f"{name} is {count}; give 1 or more")
        object.__setattr__(layout, name, _whole(name, count))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _side(side: str) -> str:
    if side not in SIDES:
        raise ValueError(f"side {side!r}: the sides of a cache are 'K' and 'V'")
    return side
