"""The sparse attention problem as data: its input arrays and the named cases, the same bits on every host.

Every element that a correct job must not use is poisoned. In the caches, slots that hold no token are NaN, and so are
the slots of the new tokens until the job has written them; the first and the last block, which clamped block-table
entries reach, hold no token. Columns of the block tables beyond a request's blocks are garbage. Per-token scales of
slots without a cached token are NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from codegen.kernels.inputs import ArrayInputs
from codegen.kernels.sparse_attention.shapes import (
    ASM_PAGE_SIZE,
    GROUP,
    HEAD_DIM,
    INDEX_DIM,
    LARGEST_SPLITS,
    PAGE_ELEMENTS,
    PAGES_PER_SPARSE_BLOCK,
    SPARSE_BLOCK_SIZE,
)
from gfx950.random_bits import bell, bits32, integers, permutation, uniform

Floats = NDArray[np.float32]
Words = NDArray[Any]  # uint8 or uint16: elements of a cache: E4M3 or bf16 bits
Indices = NDArray[np.int64]
Kind = Literal["k", "v", "index"]

_SPLIT_SEQUENCES = 512  # twice the compute units of an MI355X: sequences that fill it with one split each
_GARBAGE_ENTRIES = (-1, -(2**31), 2**31 - 1, 10**6)
_POOL_ROWS = 512  # token rows are put together from the halves of two of these
_SINK_ROWS = _POOL_ROWS  # the first of the larger rows
_PLUS_ROW, _MINUS_ROW, _ZERO_ROW, _MIDPOINT_ROW, _RISING_ROW = (2 * _POOL_ROWS + i for i in range(5))
_RISING_ROWS = 4
_SINK_PERIOD, _SINK_PHASE = 97, 13
_TIED_ROWS = 3
_PER_TOKEN_WIDTH = 75.0  # of codes whose scale is their own: their largest comes close to 448


@dataclass(frozen=True)
class Request:
    """seq_len tokens, of which the last query_len are new and query. prefill: its rows are ragged prefill rows.

    Rows at negative positions (query_len > seq_len, as graph padding has it) see nothing and are not written.
    """

    seq_len: int
    query_len: int = 1
    prefill: bool = False

    @property
    def positions(self) -> range:
        """Absolute positions of its rows."""
        return range(self.seq_len - self.query_len, self.seq_len)

    @property
    def cached(self) -> int:
        """Tokens that the caches hold before the job."""
        return max(self.seq_len - self.query_len, 0)

    @property
    def blocks(self) -> int:
        return -(-self.seq_len // SPARSE_BLOCK_SIZE)


@dataclass(frozen=True)
class DataStyle:
    """How values are drawn: bell-shaped with these widths.

    q, k, v: of queries, keys and values, the latter two as the attention sees them but for the per-tensor scales.
    index: of index queries and keys. codes: cached keys and values are all finite E4M3 codes alike. sink: every 97th
    key is 8 times larger. opposed: values are 448 in the first third of a request and -448 in the second. ties: blocks
    have one of three index keys, throughout. nan_blocks: of every five blocks, the index keys of one are NaN (where all
    of them are cached). zeros: every third row has zero queries, and new tokens are zero, all with both signs.
    midpoints: half of a new token lies midway between E4M3 numbers, where a product with 1 / 7 rounds otherwise than a
    division by 7. rising: index queries are positive and new index keys 1, 2, 3, 4 throughout, by position.
    """

    q: float = 1.0
    k: float = 1.0
    v: float = 1.0
    index: float = 1.0
    codes: bool = False
    sink: bool = False
    opposed: bool = False
    ties: bool = False
    nan_blocks: bool = False
    zeros: bool = False
    midpoints: bool = False
    rising: bool = False


@dataclass(frozen=True)
class Case:
    """A named problem.

    requests: the decode requests, all of one query_len, then the prefill requests. why: its purpose. kv_heads: 16 query
    heads each. index_heads: 1 (which all kv heads follow) or kv_heads. cache: "fp8" (E4M3) or "bf16". packed: K and V
    of a block lie together; otherwise they are two dense planes. p: the treatment of P with per-tensor scales,
    "unscaled" or "x448". per_token: each cached token has scales of its own. splits: of a context; None is the
    published rule for each part of the rows. reduce: whose rounding the reduction of the splits has. init_blocks,
    local_blocks: how many first and last blocks a row is forced to take. scales: of K and V. padding: rows without a
    token after all others.
    """

    name: str
    requests: tuple[Request, ...]
    why: str
    kv_heads: int = 1
    index_heads: int = 1
    cache: Literal["fp8", "bf16"] = "fp8"
    packed: bool = True
    p: Literal["unscaled", "x448"] = "unscaled"
    per_token: bool = False
    splits: int | None = None
    reduce: Literal["hip", "flydsl"] = "hip"
    init_blocks: int = 0
    local_blocks: int = 1
    scales: tuple[float, float] = (1.0, 1.0)
    padding: int = 0
    style: DataStyle = field(default_factory=DataStyle)

    @property
    def rows(self) -> int:
        return sum(r.query_len for r in self.requests) + self.padding

    @property
    def decode_requests(self) -> int:
        return sum(not r.prefill for r in self.requests)

    @property
    def decode_query_len(self) -> int:
        """Rows of each decode request; 1 without any."""
        return next((r.query_len for r in self.requests if not r.prefill), 1)

    @property
    def decode_rows(self) -> int:
        return self.decode_requests * self.decode_query_len

    @property
    def parts(self) -> list[range]:
        """The decode rows and the other rows, those that there are: each part is attended by a launch of its own."""
        return [r for r in (range(self.decode_rows), range(self.decode_rows, self.rows)) if r]

    def splits_of(self, part: range) -> int:
        """Splits of the contexts of a part of the rows: given, or twice the compute units over the part's sequences, at
        most 8 (AITER's get_recommended_splits on an MI355X)."""
        if self.splits is not None:
            return self.splits
        return min(-(-_SPLIT_SEQUENCES // (len(part) * self.kv_heads)), LARGEST_SPLITS)


@dataclass(frozen=True)
class Inputs(ArrayInputs):
    """What the job reads. bf16 arrays hold their bits as uint16, E4M3 arrays as uint8; R rows, N requests.

    q: bf16 [R][kvh * 16][128]. index_q: E4M3 [R][H][128]. kv_cache: the whole allocation with all tokens before the new
    ones, [nblk][2][8][kvh][2048] packed or [2][nblk][8][kvh][2048] dense (a block's 8 pages of each side; pages in the
    SHUFFLE layout), E4M3 or bf16. key, value: bf16 [R][kvh][128], each row's own token. index_cache: E4M3
    [nblk_i][128][128], blocks numbered on their own. index_k: E4M3 [R][128]. slots, index_slots: int64 [R], physical
    block * 128 + offset, not rebased, or -1. block_table, index_block_table: int32 [N][columns], physical blocks, not
    rebased. seq_lens: int32 [N], with the new tokens. request, position: int32 [R]; a negative position sees nothing.
    k_scale, v_scale: float32 [1], or [kvh][nblk * 128] per token.
    """

    case: Case
    q: NDArray[np.uint16]
    index_q: NDArray[np.uint8]
    kv_cache: Words
    key: NDArray[np.uint16]
    value: NDArray[np.uint16]
    index_cache: NDArray[np.uint8]
    index_k: NDArray[np.uint8]
    slots: Indices
    index_slots: Indices
    block_table: NDArray[np.int32]
    index_block_table: NDArray[np.int32]
    seq_lens: NDArray[np.int32]
    request: NDArray[np.int32]
    position: NDArray[np.int32]
    k_scale: Floats
    v_scale: Floats

    @property
    def rows(self) -> int:
        return self.case.rows

    @cached_property
    def row_splits(self) -> Indices:
        """int64 [R]: in how many splits a row's contexts are attended to."""
        return np.concatenate([np.full(len(part), self.case.splits_of(part)) for part in self.case.parts])

    @cached_property
    def kv_len(self) -> NDArray[np.int32]:
        """int32 [R]: tokens up to and with the row's own."""
        length: NDArray[np.int32] = np.maximum(self.position + np.int32(1), np.int32(0)).astype(np.int32)
        return length


def build(case: Case) -> Inputs:
    """The arrays of a case, a function of its contents and name. Raises ValueError when the case makes no sense."""
    _check(case)
    request, position = _rows(case)
    table, nblk = _block_table(case, "blocks", 2)
    index_table, index_nblk = _block_table(case, "index blocks", 3)
    k_scale, v_scale = (_scales(case, side, table, nblk) for side in (0, 1))
    sides = (_side(case, "k", table, nblk), _side(case, "v", table, nblk))
    return Inputs(
        case=case,
        q=_queries(case),
        index_q=_index_queries(case),
        kv_cache=np.ascontiguousarray(np.stack(sides, axis=1 if case.packed else 0)),
        key=_new_tokens(case, "k"),
        value=_new_tokens(case, "v"),
        index_cache=_index_cache(case, index_table, index_nblk),
        index_k=_new_index_keys(case),
        slots=_slots(table, request, position),
        index_slots=_slots(index_table, request, position),
        block_table=table,
        index_block_table=index_table,
        seq_lens=np.array([r.seq_len for r in case.requests], dtype=np.int32),
        request=request,
        position=position,
        k_scale=k_scale,
        v_scale=v_scale,
    )


def _check(case: Case) -> None:
    def refuse(text: str) -> None:
        raise ValueError(f"case {case.name!r}: {text}")

    if not case.requests:
        refuse("it has no requests; it needs at least one")
    for number, request in enumerate(case.requests):
        if request.seq_len < 0 or request.query_len < 1:
            refuse(f"request {number} has seq_len {request.seq_len} and query_len {request.query_len}")
    decode = case.requests[: case.decode_requests]
    if any(r.prefill for r in decode) or len({r.query_len for r in decode}) > 1:
        refuse("decode requests come first and share one query_len")
    if case.index_heads not in (1, case.kv_heads):
        refuse(f"{case.index_heads} index heads for {case.kv_heads} kv heads; expected 1 or as many")
    if case.per_token and (case.packed or case.cache == "bf16"):
        refuse("per-token scales need an fp8 cache in dense planes")
    if case.splits is not None and not 1 <= case.splits <= LARGEST_SPLITS:
        refuse(f"{case.splits} splits are outside 1 .. {LARGEST_SPLITS}")


# --- rows and tables --------------------------------------------------------------------------------------------------


def _rows(case: Case) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """request and position of each row, int32 [R]."""
    rows = [(number, position) for number, r in enumerate(case.requests) for position in r.positions]
    pairs = np.array(rows + [(0, -1)] * case.padding, dtype=np.int32)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _block_table(case: Case, name: str, spare: int) -> tuple[NDArray[np.int32], int]:
    """int32 [requests][columns] and nblk: blocks 1 .. nblk-2 shuffled over the requests, garbage in other columns."""
    used = sum(r.blocks for r in case.requests)
    nblk = used + 1 + spare
    garbage = np.array([*_GARBAGE_ENTRIES, 0, nblk - 1, nblk], dtype=np.int64)
    width = max(r.blocks for r in case.requests) + spare
    picks = integers(f"{case.name}/{name}/garbage", (len(case.requests), width), 0, garbage.size)
    table = garbage[picks].astype(np.int32)
    free = iter((1 + permutation(f"{case.name}/{name}", nblk - 2)).tolist())
    for row, request in enumerate(case.requests):
        for block in range(request.blocks):
            table[row, block] = next(free)
    return table, nblk


def _slots_of(table_row: NDArray[np.int32], positions: Indices) -> Indices:
    return (
        table_row[positions // SPARSE_BLOCK_SIZE].astype(np.int64) * SPARSE_BLOCK_SIZE + positions % SPARSE_BLOCK_SIZE
    )


def _slots(table: NDArray[np.int32], request: NDArray[np.int32], position: NDArray[np.int32]) -> Indices:
    slots = np.full(len(position), -1, dtype=np.int64)
    for row in np.flatnonzero(position >= 0):
        slots[row] = _slots_of(table[request[row]], np.array([position[row]], dtype=np.int64))[0]
    return slots


def _cached_slots(case: Case, table: NDArray[np.int32]) -> Indices:
    """Slots of all tokens that the cache holds, requests one after another."""
    return np.concatenate([_slots_of(table[i], np.arange(r.cached)) for i, r in enumerate(case.requests)])


# --- token rows -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _pool(kind: str) -> Floats:
    """float32 [1032][128]: 512 bell-shaped rows, the same 8 times larger; a row of 448, of -448, of +0 and -0, of E4M3
    midpoints, and rows of 1, 2, 3 and 4."""
    rows = bell(f"sparse attention/{kind}", (_POOL_ROWS, HEAD_DIM))
    dim = np.arange(HEAD_DIM)
    midpoints = np.where(dim % 2, 29 / 16, -25 / 16) * np.ldexp(1.0, dim % 3)
    special = [np.full(HEAD_DIM, 448), np.full(HEAD_DIM, -448), np.where(dim % 2, -0.0, 0.0), midpoints]
    rising = [np.full(HEAD_DIM, 1 + i) for i in range(_RISING_ROWS)]
    return np.concatenate([rows, 8 * rows, np.stack(special + rising).astype(np.float32)])


def _picks(case: Case, number: int, kind: Kind, heads: int) -> Indices:
    """int64 [seq_len][heads][2]: the pool rows of the first and the second half of each token of a request."""
    request, style = case.requests[number], case.style
    picks = integers(f"{case.name}/{kind} of {number}", (request.seq_len, heads, 2), 0, _POOL_ROWS)
    position = np.arange(request.seq_len)
    if style.sink and kind == "k":
        picks[position % _SINK_PERIOD == _SINK_PHASE] += _SINK_ROWS
    if style.ties and kind == "index":
        picks[:] = (position // SPARSE_BLOCK_SIZE % _TIED_ROWS)[:, None, None]
    if style.opposed and kind == "v":
        third = -(-request.seq_len // 3)
        picks[:third], picks[third : 2 * third] = _PLUS_ROW, _MINUS_ROW
    if style.midpoints and kind != "index":
        picks[request.cached :, :, 0] = _MIDPOINT_ROW
    if style.rising and kind == "index":
        picks[request.cached :] = _RISING_ROW + (position[request.cached :] % _RISING_ROWS)[:, None, None]
    if style.zeros:
        picks[request.cached :] = _ZERO_ROW
    return picks


def _put_together(pool: NDArray[Any], picks: Indices) -> NDArray[Any]:
    """[..., 128] of picks [..., 2]."""
    half = HEAD_DIM // 2
    return np.concatenate([pool[picks[..., 0], :half], pool[picks[..., 1], half:]], axis=-1)


def _width(case: Case, kind: Kind) -> np.float32:
    return np.float32({"k": case.style.k, "v": case.style.v, "index": case.style.index}[kind])


def _cached_pool(case: Case, kind: Kind) -> Words:
    """The pool as a cache holds it: [1032][128] E4M3 or bf16 bits."""
    pool = _pool(kind)
    if case.style.codes and kind != "index":
        codes = integers(f"{case.name}/{kind} codes", pool.shape, 0, 254)
        return (codes + (codes >= 127)).astype(np.uint8)  # 0x7f and 0xff are the NaNs
    if kind != "index" and case.cache == "bf16":
        return _bf16(pool * _width(case, kind))
    return _e4m3(pool * (np.float32(_PER_TOKEN_WIDTH) if case.per_token and kind != "index" else _width(case, kind)))


def _e4m3(values: Floats) -> NDArray[np.uint8]:
    return values.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def _bf16(values: Floats) -> NDArray[np.uint16]:
    return values.astype(ml_dtypes.bfloat16).view(np.uint16)


def _cached_tokens(case: Case, kind: Kind, heads: int) -> Words:
    """[tokens][heads][128] of all cached tokens, requests one after another."""
    pool = _cached_pool(case, kind)
    parts = [_put_together(pool, _picks(case, i, kind, heads)[: r.cached]) for i, r in enumerate(case.requests)]
    return np.concatenate(parts)


def _new_picks(case: Case, kind: Kind, heads: int) -> Indices:
    """int64 [R][heads][2]; rows without a token take the first row of the pool."""
    parts = []
    for number, request in enumerate(case.requests):
        picks = _picks(case, number, kind, heads)[request.cached :]
        parts += [np.zeros((request.query_len - len(picks), heads, 2), dtype=np.int64), picks]
    return np.concatenate([*parts, np.zeros((case.padding, heads, 2), dtype=np.int64)])


def _new_tokens(case: Case, kind: Literal["k", "v"]) -> NDArray[np.uint16]:
    """bf16 [R][kvh][128]; the cache holds them divided by the scale."""
    scale = np.float32(case.scales[0 if kind == "k" else 1])
    return _bf16(_put_together(_pool(kind) * _width(case, kind) * scale, _new_picks(case, kind, case.kv_heads)))


def _new_index_keys(case: Case) -> NDArray[np.uint8]:
    pool = _e4m3(_pool("index") * _width(case, "index"))
    return _put_together(pool, _new_picks(case, "index", 1))[:, 0]


# --- caches -----------------------------------------------------------------------------------------------------------


def _poisoned(name: str, shape: tuple[int, ...], bf16: bool = False) -> Words:
    """NaNs of both signs and, in bf16, of many payloads."""
    words = bits32(name, 4096)
    nans = (words >> 16 | 0x7F81).astype(np.uint16) if bf16 else (words & 0x80 | 0x7F).astype(np.uint8)
    return np.resize(nans, shape)


def _side(case: Case, kind: Literal["k", "v"], table: NDArray[np.int32], nblk: int) -> Words:
    """[nblk][8][kvh][2048]: one side of the cache, in the SHUFFLE layout."""
    name, bf16 = f"{case.name}/{kind} poison", case.cache == "bf16"
    tokens = _poisoned(name, (nblk * SPARSE_BLOCK_SIZE, case.kv_heads, HEAD_DIM), bf16)
    tokens[_cached_slots(case, table)] = _cached_tokens(case, kind, case.kv_heads)
    x = 8 if bf16 else 16
    pages = tokens.reshape(nblk, PAGES_PER_SPARSE_BLOCK, ASM_PAGE_SIZE, case.kv_heads, HEAD_DIM)
    if kind == "k":
        pages = pages.reshape(*pages.shape[:4], HEAD_DIM // x, x).transpose(0, 1, 3, 4, 2, 5)
    else:
        pages = pages.reshape(*pages.shape[:2], ASM_PAGE_SIZE // x, x, case.kv_heads, HEAD_DIM)
        pages = pages.transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(pages).reshape(nblk, PAGES_PER_SPARSE_BLOCK, case.kv_heads, PAGE_ELEMENTS)


def _scales(case: Case, side: int, table: NDArray[np.int32], nblk: int) -> Floats:
    """float32 [1], or per token [kvh][nblk * 128] with NaN where no token is cached; those of V span four binades."""
    if not case.per_token:
        return np.array([case.scales[side]], dtype=np.float32)
    scales = np.full((case.kv_heads, nblk * SPARSE_BLOCK_SIZE), np.nan, dtype=np.float32)
    slots = _cached_slots(case, table)
    shape = (case.kv_heads, slots.size)
    factor = uniform(f"{case.name}/scales {side}", shape) + np.float32(0.5)
    if side == 1:
        factor = np.ldexp(factor, integers(f"{case.name}/binades", shape, -2, 2))
    width = (case.style.k, case.style.v)[side]
    scales[:, slots] = factor * np.float32(width * case.scales[side] / _PER_TOKEN_WIDTH)
    return scales


def _index_cache(case: Case, table: NDArray[np.int32], nblk: int) -> NDArray[np.uint8]:
    cache = _poisoned(f"{case.name}/index poison", (nblk * SPARSE_BLOCK_SIZE, INDEX_DIM)).astype(np.uint8)
    cache[_cached_slots(case, table)] = _cached_tokens(case, "index", 1)[:, 0]
    cache = cache.reshape(nblk, SPARSE_BLOCK_SIZE, INDEX_DIM)
    for number, request in enumerate(case.requests if case.style.nan_blocks else ()):
        blocks = table[number, 1 : request.cached // SPARSE_BLOCK_SIZE : 5]
        cache[blocks] = _poisoned(f"{case.name}/NaN keys", (len(blocks), SPARSE_BLOCK_SIZE, INDEX_DIM))
    return cache


# --- queries ----------------------------------------------------------------------------------------------------------


def _queries(case: Case) -> NDArray[np.uint16]:
    values = bell(f"{case.name}/q", (case.rows, case.kv_heads * GROUP, HEAD_DIM)) * np.float32(case.style.q)
    return _bf16(_with_zero_rows(case, values))


def _index_queries(case: Case) -> NDArray[np.uint8]:
    values = bell(f"{case.name}/index q", (case.rows, case.index_heads, INDEX_DIM)) * np.float32(case.style.index)
    if case.style.rising:
        values = np.abs(values)
    return _e4m3(_with_zero_rows(case, values))


def _with_zero_rows(case: Case, values: Floats) -> Floats:
    if case.style.zeros:
        values[::3] *= np.float32(0)  # of the values' signs
    return values


# --- the cases --------------------------------------------------------------------------------------------------------


def _decode(*seq_lens: int, query_len: int = 1) -> tuple[Request, ...]:
    return tuple(Request(n, query_len) for n in seq_lens)


def _prefill(*ends: tuple[int, int]) -> tuple[Request, ...]:
    return tuple(Request(seq_len, query_len, prefill=True) for seq_len, query_len in ends)


_ALL_CASES = [
    Case("first_token", _decode(1), "one row that sees its own token alone; seven of eight splits are empty"),
    Case("page_edges", _decode(2, 15, 16, 17, 127, 128, 129), "seven rows, contexts at the edges of pages and blocks"),
    Case("chunk_edges", _decode(255, 256, 257, 511, 512, 513), "contexts at the edges of 256-key chunks", splits=3),
    Case(
        "full_table",
        _decode(2047, 2048, 2049, 2176),
        "16 blocks, of which all are taken, and 17, of which one is not; scales that are no powers of two",
        scales=(0.7, 1.3),
    ),
    Case("select_4k", _decode(4096, 4000), "32 blocks, one split, P over a whole row's maximum", splits=1),
    Case("long_8k", _decode(8192, query_len=4), "four rows of a request, of which three are masked differently"),
    Case(
        "long_16k",
        _decode(16384),
        "128 blocks, four heads with a selection each; scales that are powers of two",
        kv_heads=4,
        index_heads=4,
        scales=(0.5, 2.0),
    ),
    Case("long_64k", _decode(65536), "512 blocks"),
    Case("rows_64", _decode(*(30 + 41 * i % 331 for i in range(64))), "64 rows: eight splits"),
    Case("rows_128", _decode(*(20 + 37 * i % 281 for i in range(128))), "128 rows: four splits"),
    Case(
        "rows_512",
        _decode(*(40 + 53 * i % 173 for i in range(128)), query_len=4),
        "512 rows in requests of four: one split, no reduction",
    ),
    Case(
        "heads_4",
        _decode(300, 2100, 700),
        "an index head for each of four kv heads",
        kv_heads=4,
        index_heads=4,
        splits=3,
    ),
    Case("shared_index", _decode(2300, 77), "four kv heads follow one index head", kv_heads=4, scales=(0.9, 0.55)),
    Case(
        "query_4", _decode(2050, 130, 3, query_len=4), "rows of a request on both sides of a block edge; one has none"
    ),
    Case(
        "prefill", _prefill((300, 40), (2200, 6), (17, 17)), "ragged prefill after cached tokens, and from position 0"
    ),
    Case("prefill_from_0", _prefill((1, 1), (140, 140)), "rows that see 1, 2, .. 140 tokens, all new"),
    Case(
        "mixed",
        (*_decode(2500, 600, query_len=2), *_prefill((350, 30), (20, 20), (2310, 3))),
        "decode and prefill in one batch",
    ),
    Case(
        "mixed_splits",
        (*_decode(40, 700), *_prefill((160, 160))),
        "eight splits for the decode rows, four for the prefill rows",
    ),
    Case(
        "padding",
        (*_decode(200, 0, 0), *_prefill((90, 5))),
        "graph padding between and after live rows: no tokens, slots -1, request 0",
        padding=3,
    ),
    Case("bf16", (*_decode(2200, 31, 256), *_prefill((150, 4))), "bf16 cache", cache="bf16"),
    Case("bf16_dense", _decode(400, 2060), "bf16 cache in dense planes, four heads", 4, 4, "bf16", False, splits=1),
    Case("dense", _decode(2177, 140, 15), "dense planes, four heads", 4, 4, packed=False, scales=(1.1, 0.3)),
    Case(
        "per_token",
        _decode(2100, 500, 33),
        "a scale for each cached token, those of V over four binades",
        packed=False,
        per_token=True,
    ),
    Case(
        "per_token_heads",
        (*_decode(700), *_prefill((2070, 3))),
        "per-token scales of four heads, split within chunks",
        kv_heads=4,
        packed=False,
        per_token=True,
        splits=3,
    ),
    Case("x448", _decode(2400, 1000, 5), "P times 448, which is no power of two", p="x448", scales=(0.8, 1.7)),
    Case(
        "flydsl",
        _decode(1500, 2222, 9),
        "the reduction with separate multiply and add, on partials that cancel",
        reduce="flydsl",
        scales=(0.6, 0.7),
        style=DataStyle(k=0.125, opposed=True),
    ),
    Case(
        "eight_splits", _decode(8, 9, 2046, 1025), "splits of one key, empty splits, and splits across chunks", splits=8
    ),
    Case(
        "forced",
        _decode(5000, 1000, 2304, 200),
        "two first and two last blocks are always taken, the last before the first",
        init_blocks=2,
        local_blocks=2,
    ),
    Case(
        "causal",
        _decode(2048, 300, query_len=4),
        "each row's own index key is its largest, and no block is forced: one key more or fewer changes the score",
        local_blocks=0,
        style=DataStyle(rising=True),
    ),
    Case(
        "midpoints",
        _decode(9, 131, 300),
        "scales of 7 / 2^n, and new tokens that a product with their reciprocal rounds otherwise",
        scales=(7 / 64, 7 / 16),
        style=DataStyle(midpoints=True),
    ),
    Case("no_local", _decode(6000, 4100, 100), "a row's own block may be left out: no tail", local_blocks=0),
    Case(
        "sink",
        _decode(2500, 400),
        "a few dominant keys: P below its smallest step is lost, l keeps it",
        style=DataStyle(sink=True, v=4.0),
    ),
    Case("ties", _decode(4300, 2900), "equal scores: the larger block wins", style=DataStyle(ties=True)),
    Case(
        "nan_blocks",
        _decode(3000, 2200, 900),
        "NaN scores count as -inf and are taken last",
        style=DataStyle(nan_blocks=True),
    ),
    Case(
        "large",
        _decode(2300, 90),
        "scores of hundreds: one key takes nearly all",
        style=DataStyle(q=8.0, k=8.0, v=16.0),
    ),
    Case(
        "zeros",
        _decode(2300, 260, 40, 5),
        "zero queries and new tokens of both signs: all weights equal, all index scores tie",
        style=DataStyle(zeros=True),
    ),
    Case(
        "codes",
        _decode(1100, 450),
        "every finite E4M3 code in the cache",
        scales=(0.0078125, 0.3),
        style=DataStyle(codes=True, k=128.0, v=128.0),
    ),
]

CASES: dict[str, Case] = {case.name: case for case in _ALL_CASES}
