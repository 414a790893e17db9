"""The page-16 SHUFFLE cache: every index formula against views of real memory, and every inverse."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch

from gfx950.kv_cache import (
    Element,
    IndexKeyLayout,
    KvCacheLayout,
    Place,
    block_and_token,
    rebase_block,
    rebase_slot,
    slot_of,
    unrebase_block,
    unrebase_slot,
)

BLOCKS = 2
VARIANTS = [KvCacheLayout(format, 1, packed, BLOCKS) for format in ("fp8", "bf16") for packed in (True, False)]
VARIANTS += [KvCacheLayout("fp8", 3, True, BLOCKS), KvCacheLayout("bf16", 3, False, BLOCKS)]
every_variant = pytest.mark.parametrize("layout", VARIANTS, ids=str)


def all_elements(layout):
    """By side, block, token, head and dim."""
    indices = itertools.product("KV", range(layout.blocks), range(128), range(layout.kv_heads), range(128))
    return [Element(*e) for e in indices]


def views(layout):
    """K's and V's views of a memory whose items hold their own number, by torch's own slicing and reshaping."""
    x = {"fp8": 16, "bf16": 8}[layout.format]
    heads, blocks = layout.kv_heads, layout.blocks
    memory = torch.arange(blocks * 2 * 128 * heads * 128)
    if layout.packed:  # [blocks][2][128][heads * 128], contiguous
        k = memory.view(blocks * 16, heads, 128 // x, 16, x)
        return k, memory.view(blocks * 16, heads, 16 // x, 128, x)[8:]
    k, v = memory.view(2, -1)
    return k.view(blocks * 8, heads, 128 // x, 16, x), v.view(blocks * 8, heads, 16 // x, 128, x)


def by_token(layout):
    """{side: [block][token][head][dim] of the number of the item that holds it}, from the views alone."""
    ids = torch.arange(layout.blocks)[:, None] * (16 if layout.packed else 8) + torch.arange(8)
    k, v = (view[ids] for view in views(layout))  # [block][page][head]...
    k = k.permute(0, 1, 4, 2, 3, 5).reshape(layout.blocks, 128, layout.kv_heads, 128)
    v = v.permute(0, 1, 3, 5, 2, 4).reshape(layout.blocks, 128, layout.kv_heads, 128)
    return {"K": k.numpy(), "V": v.numpy()}


@every_variant
def test_every_element_is_where_the_views_read_it(layout):
    items = by_token(layout)
    size = {"fp8": 1, "bf16": 2}[layout.format]
    for e in all_elements(layout):
        assert layout.byte(e) == items[e.side][e.block, e.token, e.head, e.dim] * size, e


@every_variant
def test_the_elements_tile_the_allocation_and_come_back(layout):
    elements = all_elements(layout)
    owners = {}
    for e in elements:
        first = layout.byte(e)
        for byte in range(first, first + layout.item_bytes):
            assert owners.setdefault(byte, e) is e
    assert sorted(owners) == list(range(layout.allocation_bytes))
    assert all(layout.element_at(byte) == e for byte, e in owners.items())


@every_variant
def test_places_and_bytes_of_a_view_come_back(layout):
    for e in all_elements(layout)[:: 7 * layout.kv_heads]:
        place = layout.place(e)
        assert layout.element(e.side, place) == e
        byte = layout.view_byte(e)
        assert layout.element_at_view_byte(e.side, byte) == e
        assert layout.element_at_view_byte(e.side, byte + layout.item_bytes - 1) == e
        assert byte == (place.page * layout.kv_heads + place.head) * layout.head_bytes + place.byte
        assert layout.byte(e) == byte + layout.view_start(e.side)


@every_variant
def test_shapes_strides_and_where_views_begin(layout):
    for side, view in zip("KV", views(layout), strict=True):
        assert layout.view_shape(side) == tuple(view.shape)
        assert layout.view_strides(side) == view.stride()
        assert layout.view_start(side) == view.storage_offset() * layout.item_bytes
    k, v = views(layout)
    assert layout.page_stride == 8 * (2 if v.shape[0] != k.shape[0] else 1)  # as the page stride is told from views
    assert (
        layout.block_bytes * BLOCKS == layout.allocation_bytes == k.untyped_storage().nbytes() // 8 * layout.item_bytes
    )


@every_variant
def test_both_sides_of_a_block_share_page_ids(layout):
    for block, token in itertools.product(range(BLOCKS), range(128)):
        page = layout.page(block, token)
        assert page == layout.pages(block)[token // 16]
        assert layout.block_and_first_token(page) == (block, token // 16 * 16)
        assert {layout.place(Element(side, block, token, 0, 0)).page for side in "KV"} == {page}
        assert layout.writer_slot(slot_of(block, token)) // 16 == page  # the writer divides slots by 16
        for head in range(layout.kv_heads):
            assert layout.page_and_head(layout.flattened_page(page, head)) == (page, head)


def test_pages_of_a_rebased_block_table_are_the_pages_of_the_block():
    layout = KvCacheLayout()
    for block in (0, 1, 77):
        assert [rebase_block(block) * 8 + j for j in range(8)] == list(layout.pages(block))


# ---- printed values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 4])
def test_the_published_formulas_for_fp8(heads):
    layout = KvCacheLayout(kv_heads=heads)
    for page, h, t, d in itertools.product((0, 7, 16, 39), range(heads), (0, 5, 15), (0, 15, 16, 100, 127)):
        base = page * heads * 2048 + h * 2048
        block, first = layout.block_and_first_token(page)
        assert layout.view_byte(Element("K", block, first + t, h, d)) == base + d // 16 * 256 + t * 16 + d % 16
        assert layout.view_byte(Element("V", block, first + t, h, d)) == base + d * 16 + t
    assert layout.view_start("V") == 8 * 16 * 128 * heads


def test_the_published_rebases():
    slots = [-1, 0, 127, 128, 129, 255, 256]
    rebased = [-1, 0, 127, 256, 257, 383, 512]
    assert [rebase_slot(s) for s in slots] == rebased
    assert [unrebase_slot(s) for s in rebased] == slots
    assert [rebase_block(b) for b in (-1, 0, 3)] == [-2, 0, 6]
    assert [unrebase_block(e) for e in (-2, 0, 6)] == [-1, 0, 3]


def test_rebases_are_inverse_and_refuse_the_rest():
    rebased = {rebase_slot(s): s for s in range(-5, 1024)}
    for number in range(-5, 2048):
        if number in rebased:
            assert unrebase_slot(number) == rebased[number]
            continue
        with pytest.raises(IndexError, match=f"no slot is rebased to {number}"):
            unrebase_slot(number)
    assert [unrebase_block(rebase_block(b)) for b in range(-3, 9)] == list(range(-3, 9))
    assert [block_and_token(s) for s in (0, 127, 128, 401)] == [(0, 0), (0, 127), (1, 0), (3, 17)]


def test_a_slot_of_dense_planes_is_not_rebased():
    assert [KvCacheLayout(packed=packed).writer_slot(401) for packed in (True, False)] == [785, 401]
    assert [KvCacheLayout(packed=packed).writer_slot(-1) for packed in (True, False)] == [-1, -1]


# ---- index keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("format", "dtype"), [("fp8", np.uint8), ("bf16", np.uint16)])
def test_index_keys_are_rows_in_the_order_of_slots(format, dtype):
    layout = IndexKeyLayout(format, BLOCKS)
    cache = np.zeros((BLOCKS, 128, 128), dtype)
    strides = cache.strides
    for e in itertools.product(range(BLOCKS), range(128), range(128)):
        byte = layout.byte(*e)
        assert byte == sum(i * s for i, s in zip(e, strides, strict=True))
        assert layout.element_at(byte) == layout.element_at(byte + cache.itemsize - 1) == e
    with pytest.raises(IndexError, match="block 2 is outside a cache of 2 blocks"):
        layout.element_at(cache.nbytes)
    with pytest.raises(IndexError, match="dim 128 is outside an index key"):
        layout.byte(0, 0, 128)
    with pytest.raises(ValueError, match="format 'fp4': a page-16 cache is fp8 or bf16"):
        IndexKeyLayout("fp4")


# ---- what is refused -------------------------------------------------------------------------------------------------

ONE = KvCacheLayout("fp8", 4, True, 3)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda: ONE.place(Element("K", 3, 0, 0, 0)), "block 3 is outside a cache of 3 blocks: give 0..2"),
        (lambda: ONE.place(Element("K", -1, 0, 0, 0)), "block -1 is outside a cache of 3 blocks"),
        (lambda: ONE.place(Element("K", 0, 128, 0, 0)), "token 128 is outside a block: give 0..127"),
        (lambda: ONE.place(Element("K", 0, 0, 4, 0)), "head 4 is outside a cache of 4 kv heads: give 0..3"),
        (lambda: ONE.place(Element("V", 0, 0, 0, 128)), "dim 128 is outside a head: give 0..127"),
        (lambda: KvCacheLayout().place(Element("V", -1, 0, 0, 0)), "block -1 is negative.*: give 0 or more"),
        (lambda: ONE.byte_in_page("K", 16, 0), "token 16 is outside a page: give 0..15"),
        (lambda: ONE.token_and_dim("K", 2048), "byte 2048 is outside a fp8 page of a kv head: give 0..2047"),
        (lambda: ONE.element_at(ONE.allocation_bytes), "byte 393216 is outside the allocation of 3 blocks"),
        (lambda: ONE.element_at(-1), "byte of the allocation -1 is negative"),
        (lambda: ONE.element_at_view_byte("V", -1), "byte of V's view -1 is negative"),
        (lambda: ONE.element_at_view_byte("K", 8 * 8192), "byte 65536 of K's view holds nothing of K: page 8 is no id"),
        (lambda: ONE.element_at_view_byte("V", 8 * 8192), "byte 65536 of V's view holds nothing of V: page 8 is no id"),
        (lambda: ONE.block_and_first_token(24), "the pages of block 1 are 16..23 for K and for V, which is counted"),
        (lambda: ONE.block_and_first_token(48), "block 3 is outside a cache of 3 blocks"),
        (lambda: ONE.page_and_head(8 * 4), "page 8 is no id of either side"),
        (lambda: ONE.flattened_page(3, 4), "head 4 is outside"),
        (lambda: unrebase_slot(128), "those of block 0 are rebased to 0..127; was it rebased at all"),
        (lambda: unrebase_block(3), "odd entry 3: entries are 2 \\* block"),
        (lambda: block_and_token(-1), "slot -1 is negative"),
        (lambda: slot_of(0, 128), "token 128 is outside a block"),
    ],
)
def test_an_index_outside_is_an_index_error(question, message):
    with pytest.raises(IndexError, match=message):
        question()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda: KvCacheLayout("fp4"), "format 'fp4': a page-16 cache is fp8 or bf16"),
        (lambda: KvCacheLayout(kv_heads=0), "kv_heads is 0; give 1 or more"),
        (lambda: KvCacheLayout(blocks=-1), "blocks is -1; give 1 or more"),
        (lambda: ONE.view_start("Q"), "side 'Q': the sides of a cache are 'K' and 'V'"),
        (lambda: ONE.place(Element("k", 0, 0, 0, 0)), "side 'k'"),
        (lambda: KvCacheLayout().allocation_bytes, "how many blocks the cache has decides the bytes of the allocation"),
        (lambda: KvCacheLayout().view_shape("K"), "decides the shape of a view; give blocks"),
        (lambda: KvCacheLayout(packed=False).element_at(0), "decides where V's plane begins; give blocks"),
        (lambda: KvCacheLayout(packed=False).byte(Element("V", 0, 0, 0, 0)), "where V's plane begins"),
    ],
)
def test_what_is_no_cache_is_a_value_error(question, message):
    with pytest.raises(ValueError, match=message):
        question()


def test_only_whole_numbers_are_indices():
    with pytest.raises(TypeError, match=r"token 1.0 is a float; give a whole number"):
        ONE.page(0, 1.0)
    with pytest.raises(TypeError, match=r"slot '3' is a str; give a whole number"):
        rebase_slot("3")
    assert ONE.place(Element("K", np.int64(1), np.int32(2), np.uint8(3), 4)) == Place(16, 3, 36)


def test_without_blocks_a_packed_cache_has_no_end():
    layout = KvCacheLayout("bf16", 2)
    far = Element("V", 10**6, 99, 1, 77)
    assert layout.element_at(layout.byte(far) + 1) == far


def test_the_module_loads_nothing_heavy():
    code = "import sys, gfx950.kv_cache; print([m for m in ('numpy', 'numba', 'torch', 'click') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
