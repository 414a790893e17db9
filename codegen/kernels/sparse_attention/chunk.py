"""One aligned chunk of 256 keys for 16 query heads: scores, their maximum, P, and the weighted sum of V. Four waves.

S^T = K Q^T and O^T = V^T P^T, so that a lane keeps its head (lane mod 16) throughout. K and V go from the cache
straight into operands, as the pages hold them; only P crosses waves, in LDS.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from codegen.kernels.lanes import bf16_values, butterfly, fp8_pack4, hw_exp2, ld, total
from codegen.kernels.sparse_attention.shapes import ASM_PAGE_SIZE, CHUNK, GROUP, HEAD_DIM, PAGE_ELEMENTS
from codegen.language import F32, I32, U32, U64, barrier, branch, constant, lds_read, lds_write, permute
from gfx950.evidence import Evidence, rule
from gfx950.isa.conversions import v_cvt_pk_bf16_f32
from gfx950.isa.cross_lane import v_permlane16_swap_b32, v_permlane32_swap_b32
from gfx950.isa.matrix import MATRIX
from gfx950.isa.vop2 import v_max_f32
from gfx950.lanes import join

WAVES = 4
CHUNK_PAGES = CHUNK // ASM_PAGE_SIZE
WAVE_PAGES = CHUNK_PAGES // WAVES  # whose scores a wave computes
TILES = 2  # of 16 dims, whose output a wave holds
LOG2_E = float.fromhex("0x1.715476p+0")
MASKED = float.fromhex("-0x1.ff933cp+127")  # float32 of -3.4e38
E4M3_MAX = 448.0
ABOVE_ZERO = float.fromhex("0x1.5798eep-27")  # float32 of 1e-8
MOVED = 16  # bytes that a lane moves at once

PA_DECODE = "ROCm/aiter aiter/ops/triton/gluon/pa_decode_gluon.py at e4048607"

Q_CAST = rule(
    "sparse_attention.query_cast",
    Evidence.vendor,
    f"{PA_DECODE}: query_scale None with an fp8 cache",
    "With an fp8 cache q is rounded from bf16 to E4M3, nearest even, without a scale; beyond 464 it is NaN.",
)
STEPS = rule(
    "sparse_attention.matrix_steps",
    Evidence.chosen,
    f"the operand layouts of {PA_DECODE} (k_width = 16 bytes a lane; instructions of K = 32 for fp8, but of K = 16 for"
    " bf16, where ours take 32); read, not measured",
    "Steps of 32 run in order from zero. fp8: k = 8 g + b of step (h, j) is dim 64 h + 16 g + 8 j + b of a score, and"
    " key 64 t + 16 g + 8 j + b of a chunk in PV; bf16: k of step s is dim or key 32 s + k.",
)
CONTRACTION = rule(
    "sparse_attention.contraction",
    Evidence.chosen,
    f"{PA_DECODE} writes products and sums apart; what its compiler fuses was not looked at",
    "softmax scale * K scale is one rounded product, and so is that times the accumulator; every exponent, alpha * l +"
    " sum, and acc * alpha + P scale * PV are rounded after each operation.",
)
EXPONENT = rule(
    "sparse_attention.exp2",
    Evidence.chosen,
    f"{PA_DECODE} calls exp2 on (score - max) * log2(e); how that is lowered on gfx950 was not looked at",
    "exp2 is v_exp_f32 as it is, of the rounded product of the rounded difference and float32 log2(e).",
)
SUM_ORDER = rule(
    "sparse_attention.sum_order",
    Evidence.chosen,
    f"the register layout that {PA_DECODE} gives its scores, and Triton's order of reductions: registers, then shuffles"
    " from the largest offset down, then waves alike; read, not measured",
    "P is summed unrounded: per lane over pages w, w + 4, w + 8, w + 12 and keys 4 g .. + 3, then xor 32, xor 16, then"
    " waves (0 + 2) + (1 + 3). The maximum ignores NaN.",
)
P_UNSCALED = rule(
    "sparse_attention.p_unscaled",
    Evidence.vendor,
    f"{PA_DECODE}: the persistent kernel of one kv head, per-tensor scales",
    "P is cast to E4M3 as it is, and PV is multiplied by the V scale.",
)
P_X448 = rule(
    "sparse_attention.p_x448",
    Evidence.vendor,
    f"{PA_DECODE}: the kernels that are not persistent, per-tensor scales",
    "P is multiplied by 448 and cast to E4M3, and PV is multiplied by the V scale / 448 (IEEE division).",
)
P_PER_TOKEN = rule(
    "sparse_attention.p_per_token",
    Evidence.chosen,
    f"{PA_DECODE}, KV_QUANT_MODE 1: its newer text multiplies by 448 times an approximate 1 / (vmax + 1e-8) and by"
    " 1 / 448, and counts all keys before the context's end in vmax; an older one divides, and counts the split's",
    "P of a key is multiplied by (V scale * 448) / (vmax + 1e-8), vmax the largest V scale of the chunk, 0 for keys"
    " that the split does not see; PV is multiplied by vmax / 448.",
)
MASKING = rule(
    "sparse_attention.v_mask",
    Evidence.chosen,
    f"{PA_DECODE} zeroes P alone, so a NaN byte in an unwritten slot reaches its result (0 * NaN); ours may not",
    "V of keys from the context's end on is zero. Scores of keys outside the split are -3.4e38.",
)


@dataclass(frozen=True)
class Variant:
    """What the kernels of different caches and scales differ in. name: the kernel's.

    fp8: E4M3 cache and P, else bf16. factor: what P is multiplied by before it is rounded. per_token: a K and a V scale
    each key.
    """

    name: str
    fp8: bool
    factor: float = 1.0
    per_token: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the cache and of P."""
        return 1 if self.fp8 else 2

    @property
    def page_bytes(self) -> int:
        """Bytes of one side of a page."""
        return PAGE_ELEMENTS * self.itemsize

    @property
    def step_pages(self) -> int:
        """Pages of V that the four groups of lanes read at once, 16 bytes of keys each."""
        return WAVES * MOVED // (ASM_PAGE_SIZE * self.itemsize)

    @property
    def row_bytes(self) -> int:
        """Bytes of a head's P in LDS."""
        return CHUNK * self.itemsize

    @property
    def maxima(self) -> int:
        """Where the waves' maxima begin in LDS: after P."""
        return GROUP * self.row_bytes

    @property
    def sums(self) -> int:
        """Where the waves' sums begin in LDS."""
        return self.maxima + GROUP * WAVES * 4

    @property
    def scale_maxima(self) -> int:
        """Where the waves' largest V scales begin in LDS."""
        return self.sums + GROUP * WAVES * 4

    @property
    def lds_bytes(self) -> int:
        """LDS of a workgroup."""
        return self.scale_maxima + GROUP * WAVES * 4 * self.per_token


@dataclass(frozen=True)
class Place:
    """A lane's part. wave: scalar. g: its group of 16 lanes, 0 .. 3. l16: its lane there: head, token or dim."""

    wave: I32
    g: I32
    l16: I32


@dataclass(frozen=True)
class Keys:
    """A split's keys and where they are. k, v: the page bases. row: the sequence's table row. first, end: its keys;
    ctx: the context's end. score_scale: of the scores, value_scale: of PV, both but for per-token factors. k_scales,
    v_scales: float32 [page][16], of per-token scales."""

    k: U64
    v: U64
    row: U64
    first: I32
    end: I32
    ctx: I32
    score_scale: F32
    value_scale: F32
    k_scales: U64
    v_scales: U64


@dataclass(frozen=True)
class State:
    """The softmax over some keys. m: maximum; l: sum of P; o: dims 16 n + 4 g + e for n = wave and wave + 4."""

    m: F32
    l: F32  # noqa: E741
    o: list[F32]

    @property
    def values(self) -> tuple[F32, ...]:
        """m, l, o in a row, for a loop to carry."""
        return (self.m, self.l, *self.o)

    @classmethod
    def of(cls, values: Sequence[F32]) -> State:
        """The inverse of `values`."""
        return cls(values[0], values[1], list(values[2:]))

    @classmethod
    def empty(cls) -> State:
        """No key: m = -inf, l = 0, o = 0."""
        return cls(constant(F32, float("-inf")), constant(F32, 0.0), [constant(F32, 0.0)] * (4 * TILES))


def attend_chunk(variant: Variant, at: Place, keys: Keys, q: list[U32], chunk: I32, pages: I32, state: State) -> State:
    """Chunk number `chunk`, whose pages are `pages`, folded into the state. Two barriers: maxima are exchanged before
    the first, P and its sums before the second; either is read before the other barrier comes.
    [rules sparse_attention.contraction, sparse_attention.exp2]"""
    bases = _value_bases(variant, at, keys, pages)
    v = None  # of bf16 it would be 64 registers, too many to hold so long
    if variant.fp8:
        v = [_values(variant, at, bases, tile) for tile in range(TILES)]
    scores, v_scales = _scores(variant, at, keys, q, chunk, pages)
    m, scale_max = _exchanged_maxima(variant, at, scores, v_scales, state.m)
    p = [hw_exp2((score - m) * LOG2_E) for score in scores]
    scaled, value_scale = _scaled(variant, keys, p, v_scales, scale_max)
    sums = _exchanged_sums(variant, at, p, scaled)
    alpha = hw_exp2((state.m - m) * LOG2_E)
    pv = _products(variant, at, keys, chunk, bases, v)
    return State(m, alpha * state.l + sums, _folded(variant, state.o, alpha, value_scale, pv))


# ---- pages -----------------------------------------------------------------------------------------------------------


def pages_of(variant: Variant, at: Place, keys: Keys, chunk: I32) -> I32:
    """The chunk's pages over the lanes, so that a step of V has its pages in one place of each group: of fp8 lane 16 g
    + x has the page at place 4 x + g, of bf16 the one at 2 x + g / 2. Past the split's last page, that one."""
    row = at.g if variant.fp8 else at.g // 2
    place = at.l16 * variant.step_pages % CHUNK_PAGES + row
    last = (keys.end - 1) // ASM_PAGE_SIZE
    return ld(keys.row, (chunk * CHUNK_PAGES + place).minimum(last))[0].bits(I32)


def _k_pages(variant: Variant, at: Place, pages: I32) -> list[I32]:
    """The pages at places wave + 4 r, scalars."""
    step = variant.step_pages
    group = at.wave % step * (WAVES // step)
    lanes = [group * 16 + at.wave // step + r * (WAVES // step) for r in range(WAVE_PAGES)]
    return [pages.readlane(lane.bits(U32)) for lane in lanes]


def _page_base(base: U64, page: I32, nbytes: int) -> U64:
    return base + page.bits(U32).to(U64) * nbytes


# ---- scores ----------------------------------------------------------------------------------------------------------


def query_operand(variant: Variant, at: Place, q: U64) -> list[U32]:
    """The Q^T operands of a sequence's 16 heads from q on: 2 words a step of fp8, 4 of bf16.
    [rule sparse_attention.query_cast]"""
    row = at.l16 * (HEAD_DIM // 2)
    if not variant.fp8:
        return [word for s in range(4) for word in ld(q, row + s * 16 + at.g * 4, 4)]
    halves = [[word for x in range(2) for word in ld(q, row + h * 32 + at.g * 8 + 4 * x, 4)] for h in range(2)]
    return [_to_fp8(words[2 * x], words[2 * x + 1]) for words in halves for x in range(4)]


def _to_fp8(first: U32, second: U32) -> U32:
    """The E4M3 bytes of two words of bf16."""
    return fp8_pack4(*bf16_values(first), *bf16_values(second))


def _scores(
    variant: Variant, at: Place, keys: Keys, q: list[U32], chunk: I32, pages: I32
) -> tuple[list[F32], list[F32]]:
    """Scores of keys 4 g + e of page wave + 4 r at 4 r + e, and their V scales if there are any."""
    numbers = _k_pages(variant, at, pages)
    loaded = [_k_words(variant, at, _page_base(keys.k, page, variant.page_bytes)) for page in numbers]
    scales = [_key_scales(variant, at, keys.k_scales, keys.score_scale, page) for page in numbers]
    found = [_product(variant, words, q, [constant(F32, 0.0)] * 4) for words in loaded]
    s = [scale * x for row, factors in zip(found, scales, strict=True) for x, scale in zip(row, factors, strict=True)]
    if not variant.per_token:
        return _seen(at, keys, chunk, s, MASKED), []
    v_scales = [x for page in numbers for x in _floats(at, keys.v_scales, page)]
    both = _seen(at, keys, chunk, s + v_scales, MASKED, 0.0)
    return both[: len(s)], both[len(s) :]


def _k_words(variant: Variant, at: Place, page: U64) -> list[U32]:
    """Token l16 of a page: chunks g, 4 + g, ... of its dims, 16 bytes each."""
    chunks = HEAD_DIM * variant.itemsize // (MOVED * WAVES)
    return [word for s in range(chunks) for word in ld(page, (at.l16 + at.g * 16) * 4 + s * 256, 4)]


def _product(variant: Variant, a: list[U32], b: list[U32], tile: list[F32]) -> list[F32]:
    """A 16 x 16 tile added to `tile`, 32 elements a step, in order. [rule sparse_attention.matrix_steps]"""
    if variant.fp8:
        for x in range(0, len(a), 2):
            d = MATRIX["v_mfma_f32_16x16x32_fp8_fp8"](join(*a[x : x + 2]), join(*b[x : x + 2]), tile, 0, 0, 0)
            tile = [word.bits(F32) for word in d.words]
        return tile
    for x in range(0, len(a), 4):
        d = MATRIX["v_mfma_f32_16x16x32_bf16"](a[x : x + 4], b[x : x + 4], tile, 0, 0, 0)
        tile = [word.bits(F32) for word in d.words]
    return tile


def _floats(at: Place, base: U64, page: I32) -> list[F32]:
    """The scales of keys 4 g .. + 3 of a page."""
    return [word.bits(F32) for word in ld(_page_base(base, page, ASM_PAGE_SIZE * 4), at.g * 4, 4)]


def _key_scales(variant: Variant, at: Place, base: U64, scale: F32, page: I32) -> list[F32]:
    """What the scores of keys 4 g .. + 3 are multiplied by."""
    return [scale * x for x in _floats(at, base, page)] if variant.per_token else [scale] * 4


def _seen(at: Place, keys: Keys, chunk: I32, values: list[F32], *instead: float) -> list[F32]:
    """Runs of 16 values, one a key; those of keys that the split does not see become `instead`, one number a run."""
    start = chunk * CHUNK
    cut = (start < keys.first) | (start + CHUNK > keys.end)

    def replaced() -> tuple[F32, ...]:
        lane = start + at.wave * ASM_PAGE_SIZE + at.g * 4 - keys.first
        offsets = [64 * r + e for r in range(WAVE_PAGES) for e in range(4)]
        seen = [(lane + x).bits(U32) < (keys.end - keys.first).bits(U32) for x in offsets]
        return tuple(seen[x % 16].select(value, instead[x // 16]) for x, value in enumerate(values))

    return list(branch(cut, replaced, lambda: tuple(values)))


# ---- softmax ---------------------------------------------------------------------------------------------------------


def _exchanged_maxima(
    variant: Variant, at: Place, scores: list[F32], v_scales: list[F32], m: F32
) -> tuple[F32, F32 | None]:
    """The maximum over the chunk and what came before, and that of the V scales. The chunk's first barrier."""
    _put(variant.maxima, at, butterfly(_largest(scores), (32, 16), v_max_f32))
    if variant.per_token:
        _put(variant.scale_maxima, at, butterfly(_largest(v_scales), (32, 16), v_max_f32))
    barrier()
    top = v_max_f32(m, _largest(_four(variant.maxima, at)))
    return top, _largest(_four(variant.scale_maxima, at)) if variant.per_token else None


def _put(first: int, at: Place, value: F32) -> None:
    """A wave's number for each head into a table [wave][head]; the four lanes of a head hold the same."""
    lds_write((at.wave * GROUP + at.l16) * 4 + first, value)


def _four(first: int, at: Place) -> list[F32]:
    """The waves' numbers for the lane's head."""
    return [lds_read(at.l16 * 4 + (first + wave * GROUP * 4)).bits(F32) for wave in range(WAVES)]


def _largest(values: Sequence[F32]) -> F32:
    """The maximum from the first to the last, NaN ignored."""
    return functools.reduce(v_max_f32, values)


def _scaled(
    variant: Variant, keys: Keys, p: list[F32], v_scales: list[F32], scale_max: F32 | None
) -> tuple[list[F32], F32]:
    """P as it is rounded, and what PV is multiplied by.
    [rules sparse_attention.p_unscaled, sparse_attention.p_x448, sparse_attention.p_per_token]"""
    if scale_max is not None:
        divisor = scale_max + ABOVE_ZERO
        return [(v * E4M3_MAX) / divisor * x for x, v in zip(p, v_scales, strict=True)], scale_max / E4M3_MAX
    if variant.factor == 1.0:
        return p, keys.value_scale
    return [x * variant.factor for x in p], keys.value_scale / variant.factor


def _exchanged_sums(variant: Variant, at: Place, p: list[F32], scaled: list[F32]) -> F32:
    """The sum of P over the chunk [rule sparse_attention.sum_order]; P itself goes to LDS. Its second barrier."""
    _put(variant.sums, at, butterfly(total(p), (32, 16)))
    _put_p(variant, at, scaled)
    barrier()
    w = _four(variant.sums, at)
    return (w[0] + w[2]) + (w[1] + w[3])


# ---- P in LDS: a row a head, 16-byte pieces in the order of their keys, piece c of head x at place c xor x -----------


def _piece(variant: Variant, at: Place, number: I32) -> I32:
    """The address of 16 bytes of the lane's head."""
    return at.l16 * variant.row_bytes + (number ^ at.l16) * MOVED


def _put_p(variant: Variant, at: Place, p: list[F32]) -> None:
    """Rounds P and writes it, whole pieces a lane: the four lanes of a head exchange what they have of a page."""
    if variant.fp8:
        words = [fp8_pack4(*p[4 * r : 4 * r + 4]) for r in range(WAVE_PAGES)]
        lds_write(_piece(variant, at, at.wave + at.g * WAVES), *_transposed(words))
        return
    pairs = [v_cvt_pk_bf16_f32(p[2 * x], p[2 * x + 1]).bits(U32) for x in range(2 * WAVE_PAGES)]
    for r in range(0, WAVE_PAGES, 2):
        page = at.wave + (at.g % 2 + r) * WAVES
        lds_write(_piece(variant, at, page * 2 + at.g // 2), *_halves(pairs[2 * r : 2 * r + 4]))


def _transposed(words: list[U32]) -> list[U32]:
    """Group g of lanes gets word g of the groups 0, 1, 2, 3."""
    even, odd = zip(*(v_permlane16_swap_b32(*words[x : x + 2]) for x in (0, 2)), strict=True)
    (first, third), (second, fourth) = v_permlane32_swap_b32(*even), v_permlane32_swap_b32(*odd)
    return [first, second, third, fourth]


def _halves(words: list[U32]) -> list[U32]:
    """Words 0, 1 are of one page, 2, 3 of another: group g gets those of groups 2 (g / 2) and 2 (g / 2) + 1, of the
    first page where g is even, else of the second."""
    low, high = zip(*(v_permlane16_swap_b32(words[x], words[x + 2]) for x in (0, 1)), strict=True)
    return [*low, *high]


# ---- values ----------------------------------------------------------------------------------------------------------


def _value_bases(variant: Variant, at: Place, keys: Keys, pages: I32) -> list[U64]:
    """Where the V that the lane's group reads begins, step by step."""
    steps = [permute(pages, [t] * 16) for t in range(CHUNK_PAGES // variant.step_pages)]
    return [_page_base(keys.v, page, variant.page_bytes) for page in steps]


def _values(variant: Variant, at: Place, bases: list[U64], tile: int) -> list[U32]:
    """V of dim l16 of one of the wave's tiles, 16 bytes of keys from each base."""
    half = at.g % 2 * (HEAD_DIM * MOVED // 4) if not variant.fp8 else 0
    first = (at.wave * 16 + at.l16 + tile * 64) * 4 + half
    return [word for base in bases for word in ld(base, first, 4)]


def _live(variant: Variant, left: I32, words: list[U32]) -> list[U32]:
    """16 bytes of V with all but the first `left` keys zero. [rule sparse_attention.v_mask]"""
    width = 4 // variant.itemsize  # keys of a word
    return [word & _low_keys(left - x * width, variant.itemsize) for x, word in enumerate(words)]


def _low_keys(count: I32, itemsize: int) -> U32:
    """A word's bytes that belong to its first `count` keys, which may be any number."""
    bits = count.maximum(0).minimum(4 // itemsize) * (8 * itemsize)
    return ((constant(U64, 1) << bits.bits(U32).to(U64)) - 1).to(U32)


def _products(
    variant: Variant, at: Place, keys: Keys, chunk: I32, bases: list[U64], v: list[list[U32]] | None
) -> list[F32]:
    """PV of the chunk, from zero: dims 16 n + 4 g + e of the wave's tiles n. v: `_values` of the tiles, if loaded."""

    def products(past: bool) -> tuple[F32, ...]:
        tiles = [[constant(F32, 0.0)] * 4] * TILES
        for t, base in enumerate(bases):
            p = lds_read(_piece(variant, at, at.g + 4 * t), 4)
            left = keys.ctx - chunk * CHUNK - (at.g + 4 * t) * (MOVED // variant.itemsize)
            for n in range(TILES):
                words = v[n][4 * t : 4 * t + 4] if v else _values(variant, at, [base], n)
                tiles[n] = _product(variant, _live(variant, left, words) if past else words, p, tiles[n])
        return tuple(x for tile in tiles for x in tile)

    return list(branch(chunk * CHUNK + CHUNK > keys.ctx, lambda: products(True), lambda: products(False)))


def _folded(variant: Variant, o: list[F32], alpha: F32, value_scale: F32, pv: list[F32]) -> list[F32]:
    """o * alpha + scale * PV; there is no scale with a bf16 cache."""
    if not variant.fp8:
        return [x * alpha + y for x, y in zip(o, pv, strict=True)]
    return [x * alpha + value_scale * y for x, y in zip(o, pv, strict=True)]
