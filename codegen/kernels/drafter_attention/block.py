"""One block of 128 keys for one query row: scores, softmax, and the weighted sum of V. A wave a row, a lane a head.

S^T = K Q^T leaves the scores of keys 16 i + 4 g + e of head l16 in lane 16 g + l16; four of them in E4M3 are a word
of the P^T operand of O^T = V^T P^T, so P never leaves the lane. l and o carry a factor of 256 that o / l cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codegen.kernels.drafter_attention.cases import BLOCK, WINDOW
from codegen.kernels.drafter_attention.tiles import Tile, operand_run, operand_wide
from codegen.kernels.lanes import butterfly, fp8_pack4, hw_exp2, largest, total
from codegen.language import F32, I32, U32, U64, Mask, branch, constant, maximum
from gfx950.evidence import Evidence, rule
from gfx950.isa.matrix import v_mfma_scale_f32_16x16x128_f8f6f4
from gfx950.isa.vop3 import v_bfe_i32, v_bfi_b32

QK_C = float.fromhex("0x1.0527dcp-3")  # float32 log2(e) / sqrt(128)
SM_SCALE = float.fromhex("0x1.6a09e6p-4")  # float32 1 / sqrt(128)
P_EXPONENT = 8.0  # P is scaled by 2^8
NEG_INF = float("-inf")
UNIT_SCALE = 127  # E8M0 of 1

CONTRACTION = rule(
    "drafter_attention.contraction",
    Evidence.chosen,
    "the compiler defaults of the page's language; the sibling kernels write fma where they mean it",
    "score * QK_C - offset is a rounded product and a rounded difference.",
)


@dataclass(frozen=True)
class Row:
    """What a wave knows of its query row. q: the Q^T operand. position: the query's. lo, hi: first and last key of the
    request's window. l16, g4: the lane's head and key group."""

    q: list[U32]
    position: I32
    lo: I32
    hi: I32
    l16: I32
    g4: I32

    @property
    def first(self) -> I32:
        """The first key that the row sees."""
        return (self.position - (WINDOW - 1)).maximum(self.lo)

    def misses(self, blk: I32) -> Mask:
        """Whether block `blk` has keys that the row does not see."""
        return (blk * BLOCK < self.first) | (blk * BLOCK + (BLOCK - 1) > self.hi)


@dataclass(frozen=True)
class State:
    """A row's softmax over some keys. m: maximum (raw scores unless said otherwise). l: sum of P. o: dims
    16 n + 4 g + e at 4 n + e; l and o times 256."""

    m: F32
    l: F32  # noqa: E741
    o: list[F32]

    @property
    def values(self) -> tuple[F32, ...]:
        """m, l, o in a row, for a loop to carry."""
        return (self.m, self.l, *self.o)

    @classmethod
    def of(cls, values: tuple[F32, ...]) -> State:
        """The inverse of `values`."""
        return cls(values[0], values[1], list(values[2:]))


def empty_state() -> State:
    """No key at all: m = -inf, l = 0, o = 0."""
    return State(constant(F32, NEG_INF), constant(F32, 0.0), [constant(F32, 0.0)] * 32)


def mma_unit(a: list[U32], b: list[U32], c: list[F32]) -> list[F32]:
    """c + a b in E4M3 with unit scales: a 16 x 16 tile contracted over 128."""
    d = v_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, UNIT_SCALE, UNIT_SCALE, 0, 0, 0, 0)
    return [word.bits(F32) for word in d.words]


def block_math(row: Row, tk: Tile, tv: Tile, blk: I32, mask: bool | Mask) -> State:
    """One block alone; m is in units of the scaled score.

    mask: the block has keys that the row does not see. Static, or of a whole wave: then the wave branches.
    """

    def weigh(masked: bool) -> tuple[F32 | U32, ...]:
        s = _scores(row, tk, blk, masked)
        m = butterfly(largest(s), (16, 32), maximum)
        p, _ = _weights(s, m, masked)
        return (m, butterfly(total(p), (16, 32)), *_packed(p))

    m, sums, *words = _either(mask, weigh)
    zero = [constant(F32, 0.0)] * 32
    return State(m * SM_SCALE, sums, _weighted_values(row, tv, words, zero))


def block_acc(row: Row, tk: Tile, tv: Tile, blk: I32, state: State, mask: bool | Mask) -> State:
    """One block folded into a running state, whose m stays a raw score. mask: as `block_math`."""

    def weigh(masked: bool) -> tuple[F32 | U32, ...]:
        s = _scores(row, tk, blk, masked)
        m = maximum(state.m, butterfly(largest(s), (16, 32), maximum))
        p, safe = _weights(s, m, True)
        alpha = hw_exp2((state.m - safe) * QK_C)
        return (m, state.l * alpha + butterfly(total(p), (16, 32)), alpha, *_packed(p))

    m, sums, alpha, *words = _either(mask, weigh)
    return State(m, sums, _weighted_values(row, tv, words, [x * alpha for x in state.o]))


def _either(mask: bool | Mask, weigh: Callable[[bool], tuple[Any, ...]]) -> tuple[Any, ...]:
    """weigh(mask), the mask static or of a whole wave. Only the weights have two variants: o stays where it is."""
    if isinstance(mask, bool):
        return weigh(mask)
    return branch(mask, lambda: weigh(True), lambda: weigh(False))


def _scores(row: Row, tk: Tile, blk: I32, mask: bool) -> list[F32]:
    """Raw scores of keys 16 i + 4 g + e at 4 i + e, -inf where the row does not see the key."""
    zero = [constant(F32, 0.0)] * 4
    s: list[F32] = []
    for i in range(8):
        s += mma_unit(operand_wide(tk, 16 * i, row.l16, row.g4 * 4), row.q, zero)
    return _masked(row, s, blk) if mask else s


def _masked(row: Row, s: list[F32], blk: I32) -> list[F32]:
    lane = blk * BLOCK + row.g4 * 4
    seen = _keys_below(row.hi - lane + 1) & ~_keys_below(row.first - lane)
    infinity = constant(F32, NEG_INF).bits(U32)
    return [v_bfi_b32(v_bfe_i32(seen, x, 1), score.bits(U32), infinity).bits(F32) for x, score in enumerate(s)]


def _keys_below(count: I32) -> U32:
    """Bit 4 i + e for each of the lane's keys 16 i + e (from its first on) below `count`, which may be anything."""
    keys = count.maximum(0).minimum(BLOCK)
    bits = (keys // 16) * 4 + (keys % 16).minimum(4)
    return ((constant(U64, 1) << bits.to(U64)) - 1).to(U32)


def _weights(s: list[F32], m: F32, may_be_empty: bool) -> tuple[list[F32], F32]:
    """P = 256 exp(s - m) of each key, and the maximum it is relative to: 0 where no key was seen yet."""
    safe = (m == NEG_INF).select(0.0, m) if may_be_empty else m
    offset = safe * QK_C - P_EXPONENT
    return [hw_exp2(x * QK_C - offset) for x in s], safe


def _packed(p: list[F32]) -> list[U32]:
    """The P^T operand: 4 keys a word, in the order of the scores."""
    return [fp8_pack4(*p[4 * i : 4 * i + 4]) for i in range(8)]


def _weighted_values(row: Row, tv: Tile, words: list[U32], start: list[F32]) -> list[F32]:
    o: list[F32] = []
    for n in range(8):
        o += mma_unit(operand_run(tv, 16 * n, row.l16, row.g4 * 8), words, start[4 * n : 4 * n + 4])
    return o
