"""vLLM's KV cache as pages: views on its memory, slots and block tables rebased to page 16, and what is refused."""

import builtins

import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention import cache
from codegen.kernels.sparse_attention.cache import (
    aiter_sparse_pa_kv_cache,
    minimax_m3_rebase_block_table_to_page16,
    minimax_m3_rebase_slots_to_page16,
    minimax_m3_sparse_block_page_stride,
    pages,
)
from codegen.kernels.sparse_attention.launch import Runner
from codegen.kernels.sparse_attention.rows import Rows
from codegen.kernels.sparse_attention.select import select_blocks

DTYPES = {"fp8": torch.float8_e4m3fn, "uint8": torch.uint8, "bf16": torch.bfloat16}


def allocation(blocks, heads, dtype, layout):
    """[blocks][2][128][heads * 128] of that layout in memory."""
    shape = (blocks, 2, 128, heads * 128)
    if layout == "packed":
        return torch.zeros(shape, dtype=dtype)
    return torch.zeros((2, blocks, 128, heads * 128), dtype=dtype).transpose(0, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 4])
def test_views_of_a_packed_cache(dtype, heads):
    kv_cache = allocation(3, heads, DTYPES[dtype], "packed")
    k, v = aiter_sparse_pa_kv_cache(kv_cache, heads)
    size = kv_cache.element_size()
    x = 16 // size
    assert k.shape == (48, heads, 128 // x, 16, x)
    assert v.shape == (40, heads, 16 // x, 128, x)
    assert k.data_ptr() == kv_cache.data_ptr()
    assert v.data_ptr() == kv_cache.data_ptr() + 8 * 16 * 128 * heads * size
    assert k.dtype == v.dtype == (torch.bfloat16 if dtype == "bf16" else torch.float8_e4m3fn)
    assert minimax_m3_sparse_block_page_stride(k, v) == 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [1, 4])
def test_views_of_dense_planes(dtype, heads):
    kv_cache = allocation(3, heads, DTYPES[dtype], "dense")
    k, v = aiter_sparse_pa_kv_cache(kv_cache, heads)
    x = 16 // kv_cache.element_size()
    assert k.shape == (24, heads, 128 // x, 16, x)
    assert v.shape == (24, heads, 16 // x, 128, x)
    assert (k.data_ptr(), v.data_ptr()) == (kv_cache[:, 0].data_ptr(), kv_cache[:, 1].data_ptr())
    assert minimax_m3_sparse_block_page_stride(k, v) == 8


def test_the_seed_s_v_view_begins_16384_bytes_in():
    k, v = aiter_sparse_pa_kv_cache(allocation(2, 1, torch.float8_e4m3fn, "packed"), 1)
    assert v.data_ptr() - k.data_ptr() == 16384


def test_pages_of_k_and_v_tile_two_packed_blocks():
    """Every byte of the cache is one token's K or V, and of one dim."""
    kv_cache = allocation(2, 1, torch.uint8, "packed")
    k, v = pages(*aiter_sparse_pa_kv_cache(kv_cache, 1))
    for block in range(2):
        for view in (k, v):
            view[16 * block : 16 * block + 8] += 1
    assert (kv_cache == 1).all()


@pytest.mark.parametrize("layout", ["packed", "dense"])
def test_a_side_of_a_block_is_its_slot(layout):
    """Eight pages of K of block b are kv_cache[b, 0], those of V kv_cache[b, 1], whatever the layout."""
    kv_cache = torch.arange(3 * 2 * 128 * 256, dtype=torch.int32).to(torch.uint8).view(3, 2, 128, 256)
    kv_cache = allocation(3, 2, torch.uint8, layout).copy_(
        kv_cache + torch.arange(6, dtype=torch.uint8).view(3, 2, 1, 1)
    )
    k_cache, v_cache = aiter_sparse_pa_kv_cache(kv_cache, 2)
    k, v = pages(k_cache, v_cache)
    stride = minimax_m3_sparse_block_page_stride(k_cache, v_cache)
    for block in range(3):
        rows = slice(2 * stride * block, 2 * (stride * block + 8))
        np.testing.assert_array_equal(k[rows].ravel(), kv_cache[block, 0].contiguous().view(-1).numpy())
        np.testing.assert_array_equal(v[rows].ravel(), kv_cache[block, 1].contiguous().view(-1).numpy())


def test_one_block_counts_as_dense_and_has_the_packed_numbers():
    kv_cache = allocation(1, 1, torch.uint8, "packed")
    k, v = aiter_sparse_pa_kv_cache(kv_cache, 1)
    assert (k.shape[0], v.shape[0], minimax_m3_sparse_block_page_stride(k, v)) == (8, 8, 8)
    assert (k.data_ptr(), v.data_ptr()) == (kv_cache.data_ptr(), kv_cache.data_ptr() + 16384)  # as packed
    slots = torch.arange(128)
    assert torch.equal(minimax_m3_rebase_slots_to_page16(slots), slots)


@pytest.mark.parametrize("layout", ["packed", "dense"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_share_memory(dtype, layout):
    kv_cache = allocation(2, 4, DTYPES[dtype], layout)
    k_cache, v_cache = aiter_sparse_pa_kv_cache(kv_cache, 4)
    k, v = pages(k_cache, v_cache)
    assert k.dtype == v.dtype == (np.uint16 if dtype == "bf16" else np.uint8)
    assert (k.shape, v.shape) == ((4 * k_cache.shape[0], 2048), (4 * v_cache.shape[0], 2048))
    bits = torch.uint16 if dtype == "bf16" else torch.uint8
    k[4 * 5 + 2, 7] = 0x42
    v[4 * 6 + 3, 2047] = 0x43
    assert k_cache.view(bits)[5, 2].reshape(-1)[7] == 0x42
    assert v_cache.view(bits)[6, 3].reshape(-1)[2047] == 0x43
    k_cache.view(bits)[0, 0, 0, 0, 0] = 0x44
    assert k[0, 0] == 0x44
    assert int(kv_cache.contiguous().view(bits).to(torch.int32).ne(0).sum()) == 3


def test_pages_of_tensors_that_ask_for_gradients():
    """A model's parameter, say: the bytes are what counts."""
    k, v = aiter_sparse_pa_kv_cache(allocation(2, 1, torch.bfloat16, "packed").requires_grad_(), 1)
    assert pages(k, v)[0].shape == (32, 2048)


REFUSED = {
    "not a tensor": (
        lambda: np.zeros((2, 2, 128, 128), np.uint8),
        TypeError,
        "kv_cache is a ndarray; expected a torch",
    ),
    "fnuz": (
        lambda: torch.zeros(2, 2, 128, 128, dtype=torch.float8_e4m3fnuz),
        TypeError,
        r"torch.float8_e4m3fnuz, a format of gfx942; gfx950's is torch.float8_e4m3fn \(OCP\)",
    ),
    "dtype": (
        lambda: torch.zeros(2, 2, 128, 128),
        TypeError,
        "kv_cache has dtype torch.float32; expected torch.float8",
    ),
    "dims": (lambda: torch.zeros(2, 2, 128, dtype=torch.uint8), ValueError, r"shape \(2, 2, 128\); expected 4 dim"),
    "sides": (lambda: torch.zeros(2, 1, 128, 128, dtype=torch.uint8), ValueError, r"expected \(blocks, 2, 128, heads"),
    "block size": (lambda: torch.zeros(2, 2, 64, 128, dtype=torch.uint8), ValueError, r"shape \(2, 2, 64, 128\)"),
    "empty": (lambda: torch.zeros(0, 2, 128, 128, dtype=torch.uint8), ValueError, "none of them 0"),
    "layout": (
        lambda: torch.zeros(4, 2, 128, 128, dtype=torch.uint8)[::2],
        RuntimeError,
        r"strides \(65536, 16384, 128, 1\) has neither dense planes .* no page-16 view exists",
    ),
    "tokens outermost": (
        lambda: torch.zeros(128, 2, 2, 128, dtype=torch.uint8).permute(1, 2, 0, 3),
        RuntimeError,
        "neither dense planes",
    ),
    "one plane twice": (
        lambda: torch.zeros(3, 1, 128, 128, dtype=torch.float8_e4m3fn).expand(3, 2, 128, 128),
        RuntimeError,
        r"strides \(16384, 0, 128, 1\) has planes that share memory: V's begins 0 elements after K's; expected at least"
        " 49152, a whole plane: pass an allocation of both sides",
    ),
    "planes a block apart": (
        lambda: torch.zeros(4 * 16384, dtype=torch.bfloat16).as_strided((3, 2, 128, 128), (16384, 16384, 128, 1)),
        RuntimeError,
        "V's begins 16384 elements after K's; expected at least 49152",
    ),
    "one block, sides half over each other": (
        lambda: torch.zeros(2 * 16384, dtype=torch.uint8).as_strided((1, 2, 128, 128), (32768, 16383, 128, 1)),
        RuntimeError,
        "V's begins 16383 elements after K's; expected at least 16384",
    ),
    "head dim": (
        lambda: torch.zeros(2, 2, 128, 72, dtype=torch.uint8),
        RuntimeError,
        r"heads of 72 dims \(72 / 1 heads\), which are not runs of x = 16 \(16 bytes of torch.uint8\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_allocations(name):
    make, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        aiter_sparse_pa_kv_cache(make(), 1)


def test_planes_may_be_apart():
    memory = torch.zeros(7 * 16384, dtype=torch.uint8)
    k, v = aiter_sparse_pa_kv_cache(memory.as_strided((3, 2, 128, 128), (16384, 4 * 16384, 128, 1)), 1)
    assert v.data_ptr() - k.data_ptr() == 4 * 16384


def test_head_dim_72_is_runs_of_bf16():
    k, v = aiter_sparse_pa_kv_cache(torch.zeros(2, 2, 128, 72, dtype=torch.bfloat16), 1)
    assert (k.shape, v.shape) == ((32, 1, 9, 16, 8), (24, 1, 2, 72, 8))
    with pytest.raises(ValueError, match=r"k_cache has shape \(32, 1, 9, 16, 8\); expected \(pages, 1, 16, 16, 8\)"):
        pages(k, v)


def test_refused_heads():
    kv_cache = allocation(2, 4, torch.uint8, "packed")
    for heads, error, message in (
        (3, ValueError, "rows of 512 elements, which 3 kv heads do not share evenly"),
        (0, ValueError, "num_kv_heads is 0; expected at least 1"),
        (True, TypeError, "num_kv_heads is True, a bool"),
        (1.0, TypeError, "num_kv_heads is 1.0, a float"),
    ):
        with pytest.raises(error, match=message):
            aiter_sparse_pa_kv_cache(kv_cache, heads)


def test_refused_views():
    k, v = aiter_sparse_pa_kv_cache(allocation(2, 1, torch.uint8, "packed"), 1)
    with pytest.raises(ValueError, match=r"v_cache has shape \(32, 1, 8, 16, 16\); expected \(pages, 1, 1, 128, 16\)"):
        pages(k, k)
    with pytest.raises(TypeError, match=r"k_cache has dtype torch.float8_e4m3fn, v_cache torch.uint8; expected one"):
        pages(k, v.view(torch.uint8))
    with pytest.raises(ValueError, match="k_cache is not contiguous; pass the view"):
        pages(k[::2], v)
    with pytest.raises(TypeError, match="k_cache is a NoneType"):
        pages(None, v)
    with pytest.raises(ValueError, match="v_cache is on meta; expected the CPU's memory"):
        pages(k, v.to("meta"))


def test_without_torch_the_message_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name == "torch":
            raise ImportError("no torch")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"optional: pip install 'gfx950\[torch\]'"):
        aiter_sparse_pa_kv_cache(None, 1)


def test_importing_the_module_does_not_import_torch():
    import subprocess
    import sys

    code = f"import sys, {cache.__name__}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- rebase ----------------------------------------------------------------------------------------------------------


def test_rebased_slots_are_vllm_s():
    slots = torch.tensor([-1, 0, 127, 128, 129, 255, 256])
    assert minimax_m3_rebase_slots_to_page16(slots).tolist() == [-1, 0, 127, 256, 257, 383, 512]
    assert minimax_m3_rebase_slots_to_page16(torch.tensor([-129, -(1 << 62)])).tolist() == [-129, -(1 << 62)]


def test_rebased_slots_go_into_out():
    slots, out = torch.arange(-2, 300).view(2, -1), torch.zeros(2, 151, dtype=torch.int64)
    expected = [s + s // 128 * 128 if s >= 0 else s for s in range(-2, 300)]
    result = minimax_m3_rebase_slots_to_page16(slots, 128, out)
    assert result is out
    assert out.view(-1).tolist() == expected
    address = slots.data_ptr()
    assert minimax_m3_rebase_slots_to_page16(slots, out=slots).data_ptr() == address
    assert slots.view(-1).tolist() == expected


def test_rebased_slots_of_other_blocks():
    assert minimax_m3_rebase_slots_to_page16(torch.tensor([15, 16, 33]), 16).tolist() == [15, 32, 65]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rebased_block_tables_are_vllm_s(dtype):
    table, out = torch.tensor([[-1, 0, 3]], dtype=dtype), torch.full((1, 3), 9, dtype=dtype)
    fresh = minimax_m3_rebase_block_table_to_page16(table)
    assert (fresh.tolist(), fresh.dtype) == ([[-2, 0, 6]], dtype)
    assert minimax_m3_rebase_block_table_to_page16(table, out) is out
    assert out.tolist() == [[-2, 0, 6]]
    assert table.tolist() == [[-1, 0, 3]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_double_beyond_the_dtype_is_its_nearest_end(dtype):
    """As whole numbers of any size say, so that garbage is never another block."""
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    entries = [least, least // 2 - 1, least // 2, least // 2 + 1, -1, 0, most // 2, most // 2 + 1, most - 1, most]
    table = torch.tensor([entries, entries[::-1]], dtype=dtype)
    expected = [min(max(2 * entry, least), most) for entry in entries]
    result = table_of(table)
    assert result.dtype == dtype
    assert result.tolist() == [expected, expected[::-1]]
    assert table_of(table, table) is table
    assert table.tolist() == result.tolist()


@pytest.mark.parametrize("entry", [-(2**31), -(2**30) - 1, 2**30, 2**31 - 1])
@pytest.mark.parametrize("pages_per_block", [1, 8])
def test_garbage_is_refused_where_a_row_sees_it_and_nowhere_else(entry, pages_per_block):
    def select(entries):
        table = table_of(torch.tensor([entries], dtype=torch.int32)).numpy()
        rows = Rows(np.zeros(1, np.int32), np.array([200], np.int32))
        return select_blocks(Runner(), np.zeros((1, 1, 64), np.float32), table, rows, pages_per_block=pages_per_block)

    right = select([3, 5, 0])
    assert select([3, 5, entry]).table.tobytes() == right.table.tobytes()
    with pytest.raises(ValueError, match=r"block_table\[0, 1\] is -?\d+, read for row 0; expected 0 to"):
        select([3, entry, 0])


def test_refused_rebases():
    slots, table = torch.zeros(4, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int32)
    for error, message, call in (
        (TypeError, "slots has dtype torch.int32; expected torch.int64", lambda: slots_of(slots.int())),
        (TypeError, "slots is a list; expected a torch tensor", lambda: slots_of([1])),
        (ValueError, "block_size is 0; expected a positive", lambda: slots_of(slots, 0)),
        (
            ValueError,
            r"out has shape \(3,\); expected \(4,\), the shape of slots",
            lambda: slots_of(slots, 128, slots[:3]),
        ),
        (TypeError, "out has dtype torch.int32; expected torch.int64", lambda: slots_of(slots, 128, slots.int())),
        (TypeError, "block_table has dtype torch.float32", lambda: table_of(table.float())),
        (ValueError, r"block_table has shape \(3,\); expected 2 dim", lambda: table_of(table[0])),
        (
            ValueError,
            r"out has shape \(1, 3\); expected \(2, 3\), the shape of block_table",
            lambda: table_of(table, table[:1]),
        ),
        (TypeError, "out has dtype torch.int64; expected torch.int32", lambda: table_of(table, table.long())),
    ):
        with pytest.raises(error, match=message):
            call()


slots_of, table_of = minimax_m3_rebase_slots_to_page16, minimax_m3_rebase_block_table_to_page16
