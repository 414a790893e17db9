"""The head side: norm, RoPE and E4M3 of the query heads and of the new keys, E4M3 of the new values.

32 groups of 16 lanes take four slots each of the request's 7 x 16 query heads, 7 keys and 7 values. Lane li < 8 of a
group holds dims 4 li .. + 3 and their RoPE partners 32 + 4 li .. + 3, lane li >= 8 dims 32 + 4 li .. + 3 and
64 + 4 li .. + 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen.kernels.drafter_attention.cases import BLOCK, HEAD_DIM, KEY_BYTES, Q_HEADS, QKV_WIDTH, QPR, ROT
from codegen.kernels.drafter_attention.tiles import (
    TK0,
    TQ,
    TV0,
    Cache,
    store_new_key,
    store_new_value,
    tw,
)
from codegen.kernels.lanes import at, bf16_round, bf16_values, butterfly, fp8_pack4, hw_rsq, ld, total
from codegen.language import F32, I32, U32, U64, Mask, constant, lds_write, store, when
from gfx950.evidence import Evidence, rule
from gfx950.lanes import fma

SLOTS = 4
GROUPS = 32
Q_SLOTS = QPR * Q_HEADS

PUBLIC_PAGE = "the body is not public; the sibling MiniMax-M3 decode kernels of the same authors"
HEAD_NORM = rule(
    "drafter_attention.head_norm",
    Evidence.chosen,
    PUBLIC_PAGE,
    "n = (x * rsq(sum(x^2) / 128 + eps)) * (gamma + 1), squares added within a lane in element order, then over lane"
    " offsets 8, 4, 2, 1, multiply and add apart.",
)
ROPE = rule(
    "drafter_attention.rope",
    Evidence.chosen,
    PUBLIC_PAGE,
    "a' = fma(a, cos, -round(b sin)), b' = fma(b, cos, round(a sin)) on dims 0..63, partners 32 apart.",
)
QUANTISATION = rule(
    "drafter_attention.qkv_e4m3",
    Evidence.chosen,
    PUBLIC_PAGE,
    "q and k are rounded to bf16 and then to E4M3 without scale or clamp; v is its bf16 value in E4M3.",
)
NEW_ROWS = rule(
    "drafter_attention.new_rows",
    Evidence.chosen,
    "the public page says where new rows go, not when they do not",
    "A negative slot writes neither cache nor tile; a tile takes a new key by its position, if that is in [lo, hi].",
)


@dataclass(frozen=True)
class Slot:
    """What a group computes in one of its four turns. j: the row of the request. token: its number. column: first
    column of the head in the QKV row. is_q, is_v: None where every group has a query head."""

    j: I32
    token: I32
    column: I32
    is_q: Mask | None = None
    is_v: Mask | None = None


@dataclass(frozen=True)
class Prefetched:
    """Loads that need no QKV. gq, gk: the lane's gamma words. css: by turn, two cos and two sin words. slots: by turn,
    the token's cache slot (low word). positions: by turn, the token's position."""

    gq: list[U32]
    gk: list[U32]
    css: list[list[U32]]
    slots: list[I32]
    positions: list[I32]


@dataclass(frozen=True)
class FirstBlocks:
    """The blocks that are staged when qkv_rows runs: a in tiles TK0 / TV0 if count >= 1, b in TK1 / TV1 if count >= 2.
    lo, hi: the window's keys."""

    a: I32
    b: I32
    count: I32
    lo: I32
    hi: I32


def position_of(positions: U64, token: I32) -> I32:
    """The low word of a token's position."""
    return ld(positions, token * 2)[0].bits(I32)


def lane_dims(tid: I32) -> tuple[I32, Mask, I32, I32]:
    """Lane in its group, whether it rotates, and the first of its four dims in both runs."""
    li = tid % 16
    rope = li < 8
    first = rope.select(li * 4, li * 4 + 32)
    return li, rope, first, first + 32


def slot_of(r: I32, turn: int, tid: I32) -> Slot:
    """The head of this thread's group in a turn. Groups 30 and 31 repeat the last value in the last turn."""
    t = tid // 16 + GROUPS * turn
    if GROUPS * (turn + 1) <= Q_SLOTS:
        return Slot(t // Q_HEADS, r * QPR + t // Q_HEADS, t % Q_HEADS * HEAD_DIM)
    rest = t - Q_SLOTS
    is_q, is_v = rest < 0, rest >= QPR
    j = is_q.select(t // Q_HEADS, is_v.select(rest - QPR, rest).minimum(QPR - 1))
    k_column, v_column = (constant(I32, (Q_HEADS + n) * HEAD_DIM) for n in (0, 1))
    column = is_q.select(t % Q_HEADS * HEAD_DIM, is_v.select(v_column, k_column))
    return Slot(j, r * QPR + j, column, is_q, is_v)


def qkv_pre(r: I32, qn: U64, kn: U64, cos_sin: U64, positions: U64, slots: U64, tid: I32) -> Prefetched:
    """The loads of `qkv_rows` that do not depend on QKV."""
    li, rope, d_a, d_b = lane_dims(tid)
    gq, gk = ([*ld(gamma, d_a // 2, 2), *ld(gamma, d_b // 2, 2)] for gamma in (qn, kn))
    ib = rope.select(li * 4, 0)
    css, slot_numbers, found = [], [], []
    for turn in range(SLOTS):
        token = slot_of(r, turn, tid).token
        position = position_of(positions, token)
        cos, sin = ((position * ROT + half * (ROT // 2) + ib) // 2 for half in range(2))
        css.append([*ld(cos_sin, cos, 2), *ld(cos_sin, sin, 2)])
        slot_numbers.append(ld(slots, token * 2)[0].bits(I32))
        found.append(position)
    return Prefetched(gq, gk, css, slot_numbers, found)


def qkv_load(r: I32, qkv: U64, tid: I32) -> list[list[U32]]:
    """By turn, the lane's four words of its head: two from each run of dims."""
    _, _, d_a, d_b = lane_dims(tid)
    words = []
    for turn in range(SLOTS):
        slot = slot_of(r, turn, tid)
        first = slot.token * QKV_WIDTH + slot.column
        words.append([*ld(qkv, (first + d_a) // 2, 2), *ld(qkv, (first + d_b) // 2, 2)])
    return words


def qkv_rows(
    r: I32, words: list[list[U32]], pre: Prefetched, eps: F32, cache: Cache, blocks: FirstBlocks, tid: I32
) -> None:
    """Request r's q into TQ, and its new K and V rows into the cache and the staged tiles.

    Every workgroup of the request writes the same cache bytes.
    """
    _, rope, d_a, d_b = lane_dims(tid)
    gamma_q, gamma_k = (_unpacked(g, 1.0) for g in (pre.gq, pre.gk))
    for turn in range(SLOTS):
        slot = slot_of(r, turn, tid)
        x = _unpacked(words[turn])
        is_q = slot.is_q
        gamma = gamma_q if is_q is None else [is_q.select(q, k) for q, k in zip(gamma_q, gamma_k, strict=True)]
        head = _e4m3(rope_rotated(head_norm(x, gamma, eps), pre.css[turn], rope))
        row = tid // 16 + GROUPS * turn
        if is_q is None or slot.is_v is None:
            _store_query(row, (d_a, d_b), head)
            continue
        with when(is_q):
            _store_query(row, (d_a, d_b), head)
        value = fp8_pack4(*x[:4]), fp8_pack4(*x[4:])
        new = _Row(pre.slots[turn], pre.positions[turn], (d_a, d_b), slot.is_v, head, value)
        with when(~is_q & (row < Q_SLOTS + 2 * QPR) & (new.slot >= 0)):
            _store_new_row(cache, blocks, new)


@dataclass(frozen=True)
class _Row:
    """A lane's part of a new row: bytes of four dims from each of `dims` on, as a key and as a value."""

    slot: I32
    position: I32
    dims: tuple[I32, I32]
    is_v: Mask
    key: tuple[U32, U32]
    value: tuple[U32, U32]


def _unpacked(words: list[U32], plus: float = 0.0) -> list[F32]:
    values = [value for word in words for value in bf16_values(word)]
    return [value + plus for value in values] if plus else values


def head_norm(x: list[F32], gamma_plus_1: list[F32], eps: F32) -> list[F32]:
    """RMS norm of a head of 128, 8 elements a lane of 16. [rule drafter_attention.head_norm]"""
    squares = butterfly(total([value * value for value in x]), (8, 4, 2, 1))
    rr = hw_rsq(squares * (1.0 / HEAD_DIM) + eps)
    return [(value * rr) * gamma for value, gamma in zip(x, gamma_plus_1, strict=True)]


def rope_rotated(n: list[F32], cos_sin: list[U32], rope: Mask) -> list[F32]:
    """Elements 0..3 rotated with their partners 4..7 in the lanes of `rope`. [rule drafter_attention.rope]"""
    cos, sin = _unpacked(cos_sin[:2]), _unpacked(cos_sin[2:])
    first, second = [], []
    for a, b, c, s in zip(n[:4], n[4:], cos, sin, strict=True):
        first.append(rope.select(fma(a, c, -(b * s)), a))
        second.append(rope.select(fma(b, c, a * s), b))
    return first + second


def _e4m3(x: list[F32]) -> tuple[U32, U32]:
    """Eight numbers to bf16, then to E4M3: a word of the first four, a word of the others."""
    rounded = [value for i in range(0, 8, 2) for value in bf16_round(x[i], x[i + 1])]
    return fp8_pack4(*rounded[:4]), fp8_pack4(*rounded[4:])


def _store_query(row: I32, dims: tuple[I32, I32], words: tuple[U32, U32]) -> None:
    for dim, word in zip(dims, words, strict=True):
        lds_write(tw(TQ, row, dim // 4) * 4, word)


def _store_new_row(cache: Cache, blocks: FirstBlocks, new: _Row) -> None:
    row = cache.base + new.slot.bits(U32).to(U64) * KEY_BYTES
    half = new.is_v.select(constant(I32, HEAD_DIM), 0)
    for dim, key, value in zip(new.dims, new.key, new.value, strict=True):
        store(at(row, half + dim), new.is_v.select(value, key))
    key_row, block = new.position % BLOCK, new.position // BLOCK
    live = (new.position >= blocks.lo) & (new.position <= blocks.hi)
    for index, staged in enumerate((blocks.a, blocks.b)):
        here = live & (block == staged) & (blocks.count > index)
        with when(here & ~new.is_v):
            store_new_key(TK0 + index, key_row, new.dims, new.key)
        with when(here & new.is_v):
            store_new_value(TV0 + index, key_row, new.dims, new.value)
