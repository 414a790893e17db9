"""The LDS tiles: numbering, swizzle, staging of cache blocks, and the reads that give matrix operands.

A tile is 128 rows of 128 bytes. Its 16-byte chunks are swizzled: chunk c of row r lies at chunk c xor (r mod 8).
TQ: query rows 16 j + head. TK0, TK1: the keys of a block. TV0, TV1: V transposed, a row a dim; byte 32 g + 4 i + e
holds key 16 i + 4 g + e, the order in which the scores leave the matrix unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from codegen.kernels.drafter_attention.cases import BLOCK, KEY_BYTES
from codegen.kernels.lanes import ld, perm
from codegen.language import I32, U32, U64, Mask, lds_read, lds_write, lds_write_byte
from gfx950.lanes import LANES

TILE_WORDS = 4096
TQ, TK0, TK1, TV0, TV1 = range(5)
LDS_BYTES = 5 * TILE_WORDS * 4
ROW_WORDS = 32
ROW_XOR_BYTES = ROW_WORDS * 4 + 16  # a word of row r ^ x, x < 8, lies at the address of that of row r, ^ x * this
ROWS_BYTES = 16 * ROW_WORDS * 4  # of 16 rows, which leave the swizzle as it is

Index = TypeVar("Index", int, I32)
Tile = int | I32


@dataclass(frozen=True)
class Cache:
    """The paged cache. base: its address. nblk: physical blocks of 128 keys, a key 128 bytes of K, then of V."""

    base: U64
    nblk: I32


@dataclass(frozen=True)
class Staged:
    """A thread's part of a block. k: 8 words, bytes 32 (tid % 4) .. of key tid // 4. v: for each of the keys
    4 (tid // 16) .. + 3 two words, dims 8 (tid % 16) .. + 7; key by key."""

    k: list[U32]
    v: list[U32]

    @property
    def words(self) -> tuple[U32, ...]:
        """All 16 words, for a branch to carry."""
        return (*self.k, *self.v)

    @classmethod
    def of(cls, words: tuple[U32, ...]) -> Staged:
        """The inverse of `words`."""
        return cls(list(words[:8]), list(words[8:]))


def tw(t: Tile, r: Index, w: Index) -> Index:
    """The word index in LDS of word w of row r of tile t."""
    return r * ROW_WORDS + ((w // 4) ^ (r % 8)) * 4 + w % 4 + t * TILE_WORDS  # type: ignore[return-value]


def physical_blocks(cache: Cache, block_table: U64, bt_width: I32, r: I32, first: I32, hi: I32, tid: I32) -> I32:
    """Lane x's value is the physical block of request r's block first + x, so that one load serves a whole window.

    Stale graph padding is kept inside the block table's row and inside the cache by clamping.
    """
    column = (first + tid % LANES).minimum(hi // BLOCK).maximum(0).minimum(bt_width - 1)
    return ld(block_table, r * bt_width + column)[0].bits(I32).maximum(0).minimum(cache.nblk - 1)


def kv_load(cache: Cache, physical: I32, tid: I32) -> Staged:
    """The thread's words of a physical block, as they are in the cache."""
    base = cache.base + physical.bits(U32).to(U64) * (BLOCK * KEY_BYTES)
    k = [word for half in range(2) for word in ld(base, tid // 4 * 64 + (tid % 4) * 8 + half * 4, 4)]
    v = [word for e in range(4) for word in ld(base, (tid // 16 * 4 + e) * 64 + 32 + (tid % 16) * 2, 2)]
    return Staged(k, v)


def kv_live(staged: Staged, blk: I32, lo: I32, hi: I32, tid: I32) -> Staged:
    """The words of block `blk` with keys outside [lo, hi] zero: what lies there may be stale, and 0 * NaN is NaN.

    Apart from `kv_load`, because it waits for the loads.
    """
    live = _live(blk * BLOCK + tid // 4, lo, hi)
    k = [live.select(word, 0) for word in staged.k]
    v: list[U32] = []
    for e in range(4):
        live = _live(blk * BLOCK + tid // 16 * 4 + e, lo, hi)
        v += [live.select(word, 0) for word in staged.v[2 * e : 2 * e + 2]]
    return Staged(k, v)


def _live(key: I32, lo: I32, hi: I32) -> Mask:
    return (key >= lo) & (key <= hi)


def kv_store(tk: Tile, tv: Tile, staged: Staged, tid: I32) -> None:
    """The thread's K words into tile tk, its V words, transposed in registers, into tile tv."""
    for half in range(2):
        words = staged.k[4 * half : 4 * half + 4]
        lds_write(tw(tk, tid // 4, (tid % 4) * 8 + half * 4) * 4, *words)
    group, dims = tid // 16, tid % 16
    rows = [word for half in range(2) for word in transpose4(staged.v[half::2])]
    first = tw(tv, dims * 8 + dims % 8, v_word(group)) * 4
    for step, word in enumerate(_exchanged(rows, dims)):
        lds_write(first ^ (step * ROW_XOR_BYTES), word)


def v_word(group: Index) -> Index:
    """The word of a V row that holds the keys 4 group .. + 3: 8 g + i for keys 16 i + 4 g ..."""
    return (group % 4) * 8 + group // 4


def transpose4(words: list[U32]) -> list[U32]:
    """4 x 4 bytes: byte e of result x is byte x of word e."""
    low01, high01 = perm(words[1], words[0], 0x05010400), perm(words[1], words[0], 0x07030602)
    low23, high23 = perm(words[3], words[2], 0x05010400), perm(words[3], words[2], 0x07030602)
    pairs = ((low23, low01), (high23, high01))
    return [perm(upper, lower, sel) for upper, lower in pairs for sel in (0x05040100, 0x07060302)]


def _exchanged(rows: list[U32], number: I32) -> list[U32]:
    """rows[(number % 8) ^ x] for x = 0 .. 7."""
    for bit in (1, 2, 4):
        odd = (number & bit) != 0
        rows = [odd.select(rows[x ^ bit], rows[x]) for x in range(8)]
    return rows


def store_new_key(tk: Tile, key: I32, dims: tuple[I32, I32], words: tuple[U32, U32]) -> None:
    """A new key's K bytes into row `key` (0 .. 127) of tile tk: 4 dims from each of `dims` on."""
    for dim, word in zip(dims, words, strict=True):
        lds_write(tw(tk, key, dim // 4) * 4, word)


def store_new_value(tv: Tile, key: I32, dims: tuple[I32, I32], words: tuple[U32, U32]) -> None:
    """A new key's V bytes into byte `key` (0 .. 127) of 8 dims of tile tv."""
    for dim, word in zip(dims, words, strict=True):
        for e in range(4):
            address = tw(tv, dim + e, v_word(key // 4)) * 4 + key % 4
            lds_write_byte(address, word >> (8 * e) if e else word)


def operand_wide(t: Tile, rows: int, l16: I32, w: I32) -> list[U32]:
    """Words w .. w + 3 and w + 16 .. + 19 of row `rows` + l16 (rows a multiple of 16)."""
    return [*_read4(t, rows, l16, w), *_read4(t, rows, l16, w + 16)]


def operand_run(t: Tile, rows: int, l16: I32, w: I32) -> list[U32]:
    """Words w .. w + 7 of row `rows` + l16 (rows a multiple of 16)."""
    return [*_read4(t, rows, l16, w), *_read4(t, rows, l16, w + 4)]


def _read4(t: Tile, rows: int, l16: I32, w: I32) -> tuple[U32, ...]:
    words: tuple[U32, ...] = lds_read(tw(t, l16, w) * 4 + rows // 16 * ROWS_BYTES, 4)
    return words


def q_operand(row: I32, l16: I32, g4: I32) -> list[U32]:
    """The Q^T operand of query row `row`, head l16."""
    return [*lds_read(tw(TQ, row * 16 + l16, g4 * 4) * 4, 4), *lds_read(tw(TQ, row * 16 + l16, g4 * 4 + 16) * 4, 4)]
