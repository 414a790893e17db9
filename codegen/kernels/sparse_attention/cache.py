"""vLLM's KV cache as pages of 16 tokens: AITER's views of it without copies, the kernels' view of those, and the rebase
of slots and block tables to page 16. On torch tensors."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from codegen.kernels.sparse_attention.shapes import (
    ASM_PAGE_SIZE,
    HEAD_DIM,
    PAGE16_SIDES_PER_BLOCK,
    PAGE_ELEMENTS,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)
from gfx950.evidence import Evidence, rule
from gfx950.kv_cache import VECTOR_BYTES

if TYPE_CHECKING:
    from torch import Tensor

VIEWS = rule(
    "sparse_attention.cache_views",
    Evidence.vendor,
    "vLLM vllm/models/minimax_m3/amd/model.py, _ensure_aiter_sparse_pa_kv_cache (docs.vllm.ai, 2026-09-23)",
    "Dense planes are looked for first; else the whole cache, where it is contiguous, is taken for a packed one.",
)

LARGEST_SLOT = (1 << 62) - 1  # whose double is an int64


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "the cache's views are of torch tensors, and torch is not installed; it is optional: pip install"
            " 'gfx950[torch]'"
        ) from error
    return torch


def _check_tensor(name: str, tensor: object, dtypes: tuple[Any, ...], dims: int) -> None:
    if not isinstance(tensor, _torch().Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; expected a torch tensor")
    if tensor.dtype not in dtypes:
        raise TypeError(f"{name} has dtype {tensor.dtype}; expected {' or '.join(map(str, dtypes))}")
    if dims and tensor.dim() != dims:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {dims} dimensions")


# ---- views -----------------------------------------------------------------------------------------------------------


def aiter_sparse_pa_kv_cache(kv_cache: Tensor, num_kv_heads: int) -> tuple[Tensor, Tensor]:
    """AITER's views of an allocation [num_blocks][2][128][num_kv_heads * head_dim], one of its head slots K, one V.

    kv_cache: float8_e4m3fn, uint8 (taken for float8_e4m3fn) or bfloat16. Gives, on the same memory,
    K [pages][num_kv_heads][head_dim / x][16][x] and V [pages][num_kv_heads][16 / x][head_dim][x], x = 16 or 8 elements
    of 16 bytes. Dense planes (kv_cache[:, 0] and kv_cache[:, 1] contiguous each) have 8 pages a block in both; a packed
    cache (contiguous as a whole) 16 a block in K, and 8 fewer altogether in V. A single block is both, and counts as
    dense: its pages and slots have the same numbers either way.
    [rules sparse_attention.cache_views, sparse_attention.cache.sides]

    Raises TypeError for other dtypes, ValueError for other shapes, RuntimeError where no such view exists.
    """
    head_dim = _check_allocation(kv_cache, num_kv_heads)
    torch = _torch()
    cache = kv_cache.view(torch.float8_e4m3fn) if kv_cache.dtype == torch.uint8 else kv_cache
    x = VECTOR_BYTES // cache.element_size()
    if head_dim % x:
        raise RuntimeError(
            f"kv_cache holds heads of {head_dim} dims ({kv_cache.shape[3]} / {num_kv_heads} heads), which are not runs"
            f" of x = {x} ({VECTOR_BYTES} bytes of {kv_cache.dtype})"
        )
    key_plane, value_plane = cache[:, 0], cache[:, 1]
    if key_plane.is_contiguous() and value_plane.is_contiguous():
        _check_planes_apart(kv_cache, key_plane.numel())
        keys, values, first_value_page = key_plane, value_plane, 0
    elif cache.is_contiguous():
        keys, values, first_value_page = cache, cache, PAGES_PER_SPARSE_BLOCK
    else:
        raise RuntimeError(
            f"kv_cache with strides {tuple(kv_cache.stride())} has neither dense planes (kv_cache[:, 0] and"
            " kv_cache[:, 1] contiguous) nor whole pages a block (all of it contiguous): no page-16 view exists"
        )
    k_cache = keys.view(-1, num_kv_heads, head_dim // x, ASM_PAGE_SIZE, x)
    v_cache = values.view(-1, num_kv_heads, ASM_PAGE_SIZE // x, head_dim, x)
    return k_cache, v_cache[first_value_page:]


def _check_allocation(kv_cache: Tensor, num_kv_heads: int) -> int:
    """The head dim of a proper allocation."""
    torch = _torch()
    if isinstance(kv_cache, torch.Tensor) and "fnuz" in str(kv_cache.dtype):
        raise TypeError(
            f"kv_cache has dtype {kv_cache.dtype}, a format of gfx942; gfx950's is torch.float8_e4m3fn (OCP)"
        )
    _check_tensor("kv_cache", kv_cache, (torch.float8_e4m3fn, torch.uint8, torch.bfloat16), 4)
    _check_heads(num_kv_heads)
    blocks, sides, block_size, width = kv_cache.shape
    if (sides, block_size) != (PAGE16_SIDES_PER_BLOCK, SPARSE_BLOCK_SIZE) or not blocks or not width:
        raise ValueError(
            f"kv_cache has shape {tuple(kv_cache.shape)}; expected (blocks, {PAGE16_SIDES_PER_BLOCK},"
            f" {SPARSE_BLOCK_SIZE}, heads * head_dim), none of them 0"
        )
    if width % num_kv_heads:
        raise ValueError(f"kv_cache has rows of {width} elements, which {num_kv_heads} kv heads do not share evenly")
    return width // num_kv_heads


def _check_planes_apart(kv_cache: Tensor, plane: int) -> None:
    """Refuses planes of `plane` elements that begin less than one apart: an element of K would be one of V too."""
    apart = kv_cache.stride(1)
    if apart < plane:
        raise RuntimeError(
            f"kv_cache with strides {tuple(kv_cache.stride())} has planes that share memory: V's begins {apart}"
            f" elements after K's; expected at least {plane}, a whole plane: pass an allocation of both sides, not an"
            " expanded or overlapping view"
        )


def _check_heads(num_kv_heads: int) -> None:
    if isinstance(num_kv_heads, bool) or not isinstance(num_kv_heads, int):
        raise TypeError(f"num_kv_heads is {num_kv_heads!r}, a {type(num_kv_heads).__name__}; expected a whole number")
    if num_kv_heads < 1:
        raise ValueError(f"num_kv_heads is {num_kv_heads}; expected at least 1")


def pages(k_cache: Tensor, v_cache: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """AITER's views as the kernels take them: numpy arrays [pages * kv heads][2048] on the same memory, uint8 for fp8,
    uint16 for bf16; row page * kv heads + head. Raises TypeError, and ValueError for views that are not of 16-token
    pages with heads of 128, that do not go together, or that are not in the CPU's memory."""
    torch = _torch()
    dtypes = (torch.float8_e4m3fn, torch.uint8, torch.bfloat16)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        _check_tensor(name, cache, dtypes, 5)
    x = VECTOR_BYTES // k_cache.element_size()
    heads = k_cache.shape[1]
    _check_view("k_cache", k_cache, (heads, HEAD_DIM // x, ASM_PAGE_SIZE, x))
    _check_view("v_cache", v_cache, (heads, ASM_PAGE_SIZE // x, HEAD_DIM, x))
    if k_cache.dtype != v_cache.dtype:
        raise TypeError(f"k_cache has dtype {k_cache.dtype}, v_cache {v_cache.dtype}; expected one dtype")
    bits = torch.uint8 if k_cache.element_size() == 1 else torch.uint16
    k, v = (cache.detach().view(bits).view(-1, PAGE_ELEMENTS).numpy() for cache in (k_cache, v_cache))
    return k, v


def _check_view(name: str, cache: Tensor, page: tuple[int, ...]) -> None:
    if tuple(cache.shape[1:]) != page:
        text = ", ".join(map(str, page))
        raise ValueError(f"{name} has shape {tuple(cache.shape)}; expected (pages, {text})")
    if not cache.is_contiguous():
        raise ValueError(f"{name} is not contiguous; pass the view that aiter_sparse_pa_kv_cache gives")
    if cache.device.type != "cpu":
        raise ValueError(f"{name} is on {cache.device}; expected the CPU's memory")


def minimax_m3_sparse_block_page_stride(k_cache: Tensor, v_cache: Tensor) -> int:
    """Pages from a block's first page to the next block's: 8 of dense planes, 16 of a packed cache, whose V view has
    fewer pages than its K view."""
    sides = 1 if v_cache.shape[0] == k_cache.shape[0] else PAGE16_SIDES_PER_BLOCK
    return PAGES_PER_SPARSE_BLOCK * sides


# ---- slots and block tables of a packed cache ------------------------------------------------------------------------


def minimax_m3_rebase_slots_to_page16(
    slots: Tensor, block_size: int = SPARSE_BLOCK_SIZE, out: Tensor | None = None
) -> Tensor:
    """Slots in K's numbering of a packed cache: slot + (slot // block_size) * block_size; negative ones as they are.

    slots, out: int64, of one shape; out (which may be slots) is written and returned.
    [rule sparse_attention.cache.rebase]
    """
    torch = _torch()
    _check_tensor("slots", slots, (torch.int64,), 0)
    if isinstance(block_size, bool) or not isinstance(block_size, int) or not 1 <= block_size <= LARGEST_SLOT:
        raise ValueError(f"block_size is {block_size!r}; expected a positive whole number, at most {LARGEST_SLOT}")
    if slots.device.type == "cpu" and slots.numel() and int(slots.max()) > LARGEST_SLOT:
        raise ValueError(f"slots has {int(slots.max())}; expected at most {LARGEST_SLOT}, which int64 doubles")
    start = torch.div(slots, block_size, rounding_mode="floor") * block_size
    return _written(torch.where(slots < 0, slots, slots + start), "slots", out)


def minimax_m3_rebase_block_table_to_page16(block_table: Tensor, out: Tensor | None = None) -> Tensor:
    """A block table in units of a packed cache's sides: every entry times 2, negative ones too.

    A double beyond the dtype is its largest or least number: garbage where no row looks may be anything, and never
    becomes a page that there is, so that the checks of entries that a row sees refuse it.

    block_table: int32 or int64 [requests][columns]; out: of its shape and dtype (it may be block_table), written and
    returned. [rule sparse_attention.cache.rebase]
    """
    torch = _torch()
    _check_tensor("block_table", block_table, (torch.int32, torch.int64), 2)
    limits = torch.iinfo(block_table.dtype)
    least, most = limits.min // PAGE16_SIDES_PER_BLOCK, limits.max // PAGE16_SIDES_PER_BLOCK
    doubled = block_table.clamp(least, most) * PAGE16_SIDES_PER_BLOCK
    return _written(doubled.masked_fill(block_table > most, limits.max), "block_table", out)


def _written(result: Tensor, name: str, out: Tensor | None) -> Tensor:
    """`result`, in `out` if there is one."""
    if out is None:
        return result
    _check_tensor("out", out, (result.dtype,), 0)
    if out.shape != result.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; expected {tuple(result.shape)}, the shape of {name}")
    return out.copy_(result)
