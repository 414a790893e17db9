"""An independent float64 reference of the sparse attention job, with derived error bounds.

No lanes, no tiles, no kernels: every step is stated again, over whole rows. What has one right answer is demanded to
the bit: the cache rows, the per-token scales, the selection that follows from the job's own scores, the page table that
follows from its selection. Scores and outputs have bounds:
- a block's score lies between the largest exact dot product less its error and that plus its error.
- `out` leaves P unquantised; its bound holds for every way to split the keys and every P of the format.
- `out_p` rounds P at the running maximum of its split and chunk and the partial outputs to bf16, as the job does; its
  bound only covers the float32 arithmetic and what lies on a rounding boundary, so it is some hundred times sharper.

README.md gives the derivation; the functions below quote the terms (U = 2^-24, 1 ulp for v_exp_f32).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from codegen.kernels.bounds import (
    BF16,
    E4M3,
    E4M3_MAX,
    U_BF16,
    U_E4M3,
    Array,
    U,
    bf16_values,
    binade,
    e4m3_values,
    nearest,
    truncating_sum_error,
)
from codegen.kernels.sparse_attention.cases import Case, Inputs

GROUP, HEAD_DIM, BLOCK, PAGE, PAGES, TOPK, CHUNK = 16, 128, 128, 16, 8, 16, 256
LOG2_E = 1.4426950408889634
SOFTMAX_SCALE = 128.0**-0.5
INIT_SCORE, LOCAL_SCORE = np.float32(1e30), np.float32(1e29)
VMAX_GUARD = 1e-8  # added to the largest V scale of a chunk before it divides
P_ROUNDINGS = 6  # of P's factor and product, and of what PV is multiplied by
UNDERFLOW = 2.0**-100  # of sums of weights that underflow
SCORE_KEYS = 4096  # index keys scored at once

Words = NDArray[Any]


@dataclass(frozen=True)
class Inserted:
    """The caches with the new tokens, and the scales with theirs, shaped as in `Inputs`."""

    kv_cache: Words
    index_cache: NDArray[np.uint8]
    k_scale: NDArray[np.float32]
    v_scale: NDArray[np.float32]


@dataclass(frozen=True)
class Attention:
    """Outputs of some sequences, float64 [16][128] each stacked to [rows][kvh * 16][128].

    |o - out| <= bound. low, high: between which the bf16 output lies if P was rounded as the job rounds it.
    """

    out: Array
    bound: Array
    out_p: Array
    low: Array
    high: Array


def check(inputs: Inputs, outputs: Mapping[str, Words]) -> list[str]:
    """Every way in which a job's outputs are wrong, a sentence each; empty when they are admissible.

    outputs: kv_cache and index_cache after the job, as in `Inputs` (and k_scale and v_scale, if they are per token);
    scores float32 [H][rows][width]; topk int32 [H][rows][16]; table int32 [rows * kvh][128]; ctx int32 [rows * kvh];
    out bf16 bits uint16 [rows][kvh * 16][128]. Raises KeyError for a missing output, ValueError for another shape or
    dtype and for values beyond E4M3, where no bound exists.
    """
    _check_shapes(inputs, outputs)
    expected = inserted(inputs)
    topk = np.asarray(outputs["topk"])
    table, ctx = tables(inputs, topk)
    attention = attend(inputs, expected, table, ctx)
    return [
        *_cache_faults(inputs, expected, outputs),
        *_score_faults(inputs, expected, outputs["scores"]),
        *_differences("topk", outputs["topk"], selected(inputs, outputs["scores"]), ("index head", "row", "place")),
        *_differences("table", outputs["table"], table, ("sequence", "place")),
        *_differences("ctx", outputs["ctx"], ctx, ("sequence",)),
        *_output_faults(attention, outputs["out"]),
    ]


def _check_shapes(inputs: Inputs, outputs: Mapping[str, Words]) -> None:
    case, sequences = inputs.case, inputs.rows * inputs.case.kv_heads
    width = max(outputs["scores"].shape[-1], int(_blocks_of(inputs.position).max(initial=0)))
    wanted: dict[str, tuple[Any, tuple[int, ...]]] = {
        "kv_cache": (inputs.kv_cache.dtype, inputs.kv_cache.shape),
        "index_cache": (np.uint8, inputs.index_cache.shape),
        "scores": (np.float32, (case.index_heads, inputs.rows, width)),
        "topk": (np.int32, (case.index_heads, inputs.rows, TOPK)),
        "table": (np.int32, (sequences, TOPK * PAGES)),
        "ctx": (np.int32, (sequences,)),
        "out": (np.uint16, (inputs.rows, case.kv_heads * GROUP, HEAD_DIM)),
    }
    if case.per_token:
        wanted |= {name: (np.float32, inputs.k_scale.shape) for name in ("k_scale", "v_scale")}
    for name, (dtype, shape) in wanted.items():
        got = outputs[name]
        if got.dtype != dtype or got.shape != shape:
            raise ValueError(f"{name} is {got.dtype} {got.shape}; expected {np.dtype(dtype)} {shape}")


# --- the caches -------------------------------------------------------------------------------------------------------


def _k_elements(x: int) -> NDArray[np.int64]:
    """[16 tokens][128 dims]: where an element is in a page of K, [128 / x][16][x]."""
    t, d = np.arange(PAGE)[:, None], np.arange(HEAD_DIM)[None, :]
    return d // x * (PAGE * x) + t * x + d % x


def _v_elements(x: int) -> NDArray[np.int64]:
    """[16 tokens][128 dims]: where an element is in a page of V, [16 / x][128][x]."""
    t, d = np.arange(PAGE)[:, None], np.arange(HEAD_DIM)[None, :]
    return t // x * (HEAD_DIM * x) + d * x + t % x


_ELEMENTS = {(side, x): (_k_elements, _v_elements)[side](x) for side in (0, 1) for x in (8, 16)}


def _elements(case: Case, side: int) -> NDArray[np.int64]:
    return _ELEMENTS[side, 8 if case.cache == "bf16" else 16]


def inserted(inputs: Inputs) -> Inserted:
    """The caches after the new tokens: E4M3(x / scale) with the division in float32, or the bf16 as it is; everything
    else unchanged. A token's own scale is the largest |x| / 448, in float32; 1 if that is 0."""
    case = inputs.case
    cache, index_cache = inputs.kv_cache.copy(), inputs.index_cache.copy()
    scales = inputs.k_scale.copy(), inputs.v_scale.copy()
    live = np.flatnonzero(inputs.slots >= 0)
    slots = inputs.slots[live]
    for side, new in enumerate((inputs.key[live], inputs.value[live])):
        if case.per_token:
            scales[side][:, slots] = _own_scales(new).T
        words = new if case.cache == "bf16" else _e4m3_rows(new, _scale_of(case, scales[side], slots))
        pages = cache[:, side] if case.packed else cache[side]
        elements = _elements(case, side)[slots % PAGE]
        heads = np.arange(case.kv_heads)[None, :, None]
        block, page = (slots // BLOCK)[:, None, None], (slots % BLOCK // PAGE)[:, None, None]
        pages[block, page, heads, elements[:, None, :]] = words
    index_live = np.flatnonzero(inputs.index_slots >= 0)
    index_cache.reshape(-1, HEAD_DIM)[inputs.index_slots[index_live]] = inputs.index_k[index_live]
    return Inserted(cache, index_cache, *scales)


def _scale_of(case: Case, scale: NDArray[np.float32], slots: NDArray[np.int64]) -> NDArray[np.float32]:
    """Of each token and kv head: float32 [tokens][kvh], or [1][1]."""
    return scale[:, slots].T if case.per_token else scale[None, :]


def _own_scales(new: NDArray[np.uint16]) -> NDArray[np.float32]:
    largest = np.abs(new.view(ml_dtypes.bfloat16).astype(np.float32)).max(axis=-1)
    return np.where(largest > 0, largest / np.float32(E4M3_MAX), np.float32(1))


def _e4m3_rows(new: NDArray[np.uint16], scale: NDArray[np.float32]) -> NDArray[np.uint8]:
    quotient = new.view(ml_dtypes.bfloat16).astype(np.float32) / scale[..., None]
    return _e4m3_codes(quotient, "new token")


def _e4m3_codes(values: NDArray[np.float32], name: str) -> NDArray[np.uint8]:
    codes = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    if ((codes & 0x7F) == 0x7F).any():
        raise ValueError(f"a {name} leaves the E4M3 range (+-448) or is NaN; the reference has no bound for it")
    return codes


def _cache_faults(inputs: Inputs, expected: Inserted, outputs: Mapping[str, Words]) -> Iterator[str]:
    axes = ("block", "side") if inputs.case.packed else ("side", "block")
    yield from _differences("kv_cache", outputs["kv_cache"], expected.kv_cache, (*axes, "page", "kv head", "element"))
    yield from _differences("index_cache", outputs["index_cache"], expected.index_cache, ("block", "token", "dim"))
    for name in ("k_scale", "v_scale") if inputs.case.per_token else ():
        yield from _differences(name, outputs[name], getattr(expected, name), ("kv head", "slot"))


def _differences(name: str, got: Words, expected: Words, axes: Iterable[str]) -> list[str]:
    """One sentence when two arrays differ in bits: where first, and how often."""
    bits = np.dtype(f"u{expected.itemsize}")
    wrong = np.argwhere(np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(expected).view(bits))
    if not len(wrong):
        return []
    at = tuple(wrong[0])
    where = ", ".join(f"{axis} {index}" for axis, index in zip(axes, at, strict=True))
    return [f"{name} at {where}: got {got[at]}, expected {expected[at]} ({len(wrong)} elements differ)"]


# --- index scores and selection ---------------------------------------------------------------------------------------


def _blocks_of(position: NDArray[np.int32]) -> NDArray[np.int64]:
    """How many blocks each row sees."""
    return np.maximum(position.astype(np.int64) + BLOCK, 0) // BLOCK


def index_scores(inputs: Inputs, index_cache: NDArray[np.uint8]) -> tuple[Array, Array]:
    """Lowest and highest admissible score, float64 [H][rows][blocks]: the largest dot product of the index query with
    a key that the row may see, NaN keys passed over (-inf if nothing is left); NaN where the row sees no key."""
    case = inputs.case
    blocks = int(_blocks_of(inputs.position).max(initial=0))
    low = np.full((case.index_heads, inputs.rows, blocks), np.nan)
    high = low.copy()
    for request, seq_len in enumerate(inputs.seq_lens.tolist()):
        rows = np.flatnonzero((inputs.request == request) & (inputs.position >= 0))
        for first in range(0, seq_len if rows.size else 0, SCORE_KEYS):
            keys = np.arange(first, min(first + SCORE_KEYS, seq_len))
            span = slice(first // BLOCK, -(-(first + keys.size) // BLOCK))
            physical = inputs.index_block_table[request, span]
            k = index_cache[physical].reshape(-1, HEAD_DIM)[: keys.size]
            ends = _scored(inputs.index_q[rows], k, keys, inputs.position[rows])
            low[:, rows, span], high[:, rows, span] = ends
    for row, count in enumerate(_blocks_of(inputs.position).tolist()):
        low[:, row, count:] = high[:, row, count:] = np.nan
        low[:, row, : min(case.init_blocks, count)] = high[:, row, : min(case.init_blocks, count)] = INIT_SCORE
        local = slice(max(count - case.local_blocks, 0), count)
        low[:, row, local] = high[:, row, local] = LOCAL_SCORE
    return low, high


def _scored(
    q: NDArray[np.uint8], k: NDArray[np.uint8], keys: NDArray[np.int64], position: NDArray[np.int32]
) -> tuple[Array, Array]:
    """Ends of the scores of whole blocks, float64 [H][rows][blocks]; q [rows][H][128], k [keys][128]."""
    queries, values = e4m3_values(q).transpose(1, 0, 2).reshape(-1, HEAD_DIM), e4m3_values(k)
    dead = np.isnan(values).any(axis=1)
    values[dead] = 0
    dot, error = _products(queries, values, fp8=True)
    blind = (keys[None, :] > position[:, None]) | dead
    blind = np.broadcast_to(blind, (q.shape[1], *blind.shape)).reshape(dot.shape)
    ends = []
    for value in (dot - error, dot + error):
        padded = np.full((len(value), -(-keys.size // BLOCK) * BLOCK), -np.inf)
        padded[:, : keys.size] = np.where(blind, -np.inf, value)
        ends.append(padded.reshape(q.shape[1], len(q), -1, BLOCK).max(axis=-1))
    return ends[0], ends[1]


def _products(q: Array, k: Array, fp8: bool) -> tuple[Array, Array]:
    """q k^T over 128 dims, exact but for float64, and the error of the matrix unit's.

    E, the largest exponent of a product, is at most the sum of the largest of the row and of the key. In bf16, and in
    E4M3 with E > 6, all 128 products may be cut, and the general bound is taken; else see `_unit_sums_error`.
    """
    lowest = -6 if fp8 else -126
    top = (binade(np.abs(x).max(axis=1), lowest).astype(np.int32) for x in (q, k))
    exponent = np.add.outer(*top)
    unit = np.where(exponent > -45, np.ldexp(U, exponent), 0.0)
    magnitude = np.abs(q) @ np.abs(k).T
    steps = HEAD_DIM // (16 if fp8 else 8)
    error = truncating_sum_error(unit, HEAD_DIM, steps, magnitude)
    return q @ k.T, np.where(exponent <= 6, _unit_sums_error(steps, magnitude), error) if fp8 else error


def _unit_sums_error(steps: int, magnitude: Array) -> Array:
    """Error of sums of E4M3 products with E <= 6: all are multiples of 2^-18, so nothing within a step is cut, and
    float32 holds a result below 2^6. From there on a step rounds by half a unit in the last place of the magnitude;
    from 2^7 on it may also cut C, or drop it, by as much each."""
    losses = np.where(magnitude < 2.0**6, 0.0, np.where(magnitude < 2.0**7, 1.0, 3.0))
    error: Array = steps * losses * np.ldexp(U, np.frexp(magnitude)[1] - 1)
    return error


def _score_faults(inputs: Inputs, expected: Inserted, scores: NDArray[np.float32]) -> Iterator[str]:
    low, high = index_scores(inputs, expected.index_cache)
    got = scores[..., : low.shape[-1]].astype(np.float64)
    wrong = ~np.isnan(low) & ~((got >= low) & (got <= high)) & ~((low == -np.inf) & np.isnan(got))
    for head, row in np.argwhere(wrong.any(axis=-1)).tolist():
        block = int(wrong[head, row].argmax())
        at = head, row, block
        yield (
            f"scores at index head {head}, row {row}, block {block}: got {got[at]:g}, expected {low[at]:g} .."
            f" {high[at]:g} ({int(wrong[head, row].sum())} blocks)"
        )


def selected(inputs: Inputs, scores: NDArray[np.float32]) -> NDArray[np.int32]:
    """int32 [H][rows][16]: the blocks of the largest scores, best first, then -1. NaN counts as -inf, -0 is below +0,
    and of equal scores the larger block comes first."""
    topk = np.full((len(scores), inputs.rows, TOPK), -1, dtype=np.int32)
    for row, count in enumerate(_blocks_of(inputs.position).tolist()):
        for head in range(len(scores)):
            line = [-np.inf if np.isnan(x) else float(x) for x in scores[head, row, :count]]
            order = sorted(range(count), key=lambda b: (line[b], np.copysign(1.0, line[b]), b), reverse=True)
            topk[head, row, : min(count, TOPK)] = order[:TOPK]
    return topk


def tables(inputs: Inputs, topk: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """table int32 [rows * kvh][128] and ctx int32 [rows * kvh] of a selection: the pages of the blocks before the
    row's own in its order, then those of its own; 0 after them."""
    case = inputs.case
    table = np.zeros((inputs.rows * case.kv_heads, TOPK * PAGES), dtype=np.int32)
    ctx = np.zeros(len(table), dtype=np.int32)
    for sequence in range(len(table)):
        row, head = divmod(sequence, case.kv_heads)
        position = int(inputs.position[row])
        if position < 0:
            continue
        own = position // BLOCK
        chosen = topk[head if case.index_heads > 1 else 0, row].tolist()
        full = [b for b in chosen if 0 <= b < own]
        tail = own in chosen
        entries = inputs.block_table[inputs.request[row], full + [own] * tail].astype(np.int64)
        pages = entries[:, None] * (2 * PAGES if case.packed else PAGES) + np.arange(PAGES)
        table[sequence, : pages.size] = (pages * case.kv_heads + head).reshape(-1)
        ctx[sequence] = len(full) * BLOCK + (position + 1 - own * BLOCK) * tail
    return table, ctx


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keys:
    """What a sequence attends to, in the order of its table: n keys, in groups that share a split and a chunk.

    k, v: float64 [n][128], v not scaled. k_factor: of the scores, with 1 / sqrt(128) and log2(e). v_scale: [n]. split:
    [n]. starts: first key of each group. group: [n].
    """

    k: Array
    v: Array
    k_factor: Array
    v_scale: Array
    split: NDArray[np.int64]
    starts: NDArray[np.int64]
    group: NDArray[np.int64]


def attend(inputs: Inputs, caches: Inserted, table: NDArray[np.int32], ctx: NDArray[np.int32]) -> Attention:
    """The outputs of all sequences over the keys that the table names; zero without any."""
    case = inputs.case
    shape = (inputs.rows, case.kv_heads, GROUP, HEAD_DIM)
    result = [np.zeros(shape) for _ in range(5)]
    q = _queries(inputs).reshape(shape)
    for sequence in np.flatnonzero(ctx > 0).tolist():
        at = divmod(sequence, case.kv_heads)
        splits = int(inputs.row_splits[at[0]])
        keys = _keys(inputs, caches, table[sequence], int(ctx[sequence]), at[1], splits)
        for whole, part in zip(result, _attended(case, splits, q[at], keys), strict=True):
            whole[at] = part
    return Attention(*(x.reshape(inputs.rows, case.kv_heads * GROUP, HEAD_DIM) for x in result))


def _queries(inputs: Inputs) -> Array:
    """As the scores see them: E4M3 with an fp8 cache."""
    if inputs.case.cache == "bf16":
        return bf16_values(inputs.q)
    return e4m3_values(_e4m3_codes(inputs.q.view(ml_dtypes.bfloat16).astype(np.float32), "query"))


def _keys(inputs: Inputs, caches: Inserted, pages: NDArray[np.int32], ctx: int, head: int, splits: int) -> _Keys:
    case = inputs.case
    block_pages = (pages[: -(-ctx // PAGE)].astype(np.int64) - head) // case.kv_heads
    block, page = np.divmod(block_pages, 2 * PAGES if case.packed else PAGES)
    k, v = (_side(case, caches.kv_cache, side, block, page, head)[:ctx] for side in (0, 1))
    slots = (block[:, None] * BLOCK + page[:, None] * PAGE + np.arange(PAGE)).reshape(-1)[:ctx]
    k_scale, v_scale = (
        np.broadcast_to(_scale_of(case, scale, slots)[:, head if case.per_token else 0], ctx).astype(np.float64)
        for scale in (caches.k_scale, caches.v_scale)
    )
    position = np.arange(ctx)
    split = position // -(-ctx // splits)
    new = np.diff(split, prepend=-1).astype(bool) | (position % CHUNK == 0)
    factor = (k_scale if case.cache == "fp8" else np.ones(ctx)) * (SOFTMAX_SCALE * LOG2_E)
    return _Keys(k, v, factor, v_scale, split, np.flatnonzero(new), np.cumsum(new) - 1)


def _side(case: Case, cache: Words, side: int, block: NDArray[np.int64], page: NDArray[np.int64], head: int) -> Array:
    """float64 [tokens of the pages][128]."""
    raw = cache[block, side, page, head] if case.packed else cache[side, block, page, head]
    words = raw[:, _elements(case, side)].reshape(-1, HEAD_DIM)
    return bf16_values(words) if case.cache == "bf16" else e4m3_values(words)


@dataclass(frozen=True)
class _Scores:
    """exponent: log2(e) of the scaled score, [16][n]. own: the job's error of it, in the same unit. difference: that of
    the differences from a key to the final maximum, [16][1]."""

    exponent: Array
    own: Array
    difference: Array

    def error(self, maxima: int) -> Array:
        """Of a key's exponent relative to a maximum, with the own errors of so many maxima."""
        total: Array = self.own + maxima * self.own.max(axis=1, keepdims=True) + self.difference
        return total


def _scores(q: Array, keys: _Keys, fp8: bool) -> _Scores:
    """X is the largest |exponent|. Terms: the matrix unit's; a score's own roundings, 4 U X (softmax scale, K scale,
    their product, the score's), taken as 5; of a difference its own rounding, that of log2(e) and of their product, 3 U
    of it, and the differences on the way from a key to the final maximum add up to at most 2 X: taken as 7 U X."""
    dot, error = _products(q, keys.k, fp8)
    exponent = dot * keys.k_factor
    largest = np.abs(exponent).max(axis=1, keepdims=True)
    return _Scores(exponent, error * keys.k_factor + 5.0 * U * largest, 7.0 * U * largest)


def _attended(case: Case, splits: int, q: Array, keys: _Keys) -> tuple[Array, Array, Array, Array, Array]:
    """out, bound, out_p, low and high of one sequence, float64 [16][128]."""
    scores = _scores(q, keys, case.cache == "fp8")
    out, bound = _unquantised(case, splits, scores, keys)
    out_p, error = _reduced(splits, *_partials(case, splits, scores, keys))
    return out, bound, out_p, nearest(out_p - error, *BF16), nearest(out_p + error, *BF16)


def _relative(exponent_error: Array, groups: int) -> Array:
    """Of a weight: its exponent's error, and 3 U for each v_exp_f32 (1 ulp is 2 U) and product on its way: P, an alpha
    a chunk, the weight of the split."""
    relative: Array = np.exp2(exponent_error) * (1.0 + 3.0 * U * (groups + 2)) - 1.0
    return relative


def _group_maximum(values: Array, keys: _Keys) -> Array:
    """[...][n]: the largest in each key's group."""
    return np.maximum.reduceat(values, keys.starts, axis=-1)[..., keys.group]


def _p_factor(case: Case, keys: _Keys) -> tuple[Array, Array]:
    """What P of each key is multiplied by before its rounding, and what its product with V is multiplied by."""
    if case.cache == "bf16":
        return np.ones(1), np.ones(1)
    if case.per_token:
        largest = _group_maximum(keys.v_scale, keys)
        return keys.v_scale * E4M3_MAX / (largest + VMAX_GUARD), largest / E4M3_MAX
    factor = E4M3_MAX if case.p == "x448" else 1.0
    return np.full(1, factor), keys.v_scale / factor


def _value_scale(case: Case, keys: _Keys) -> Array:
    return np.ones(1) if case.cache == "bf16" else keys.v_scale


def _unquantised(case: Case, splits: int, scores: _Scores, keys: _Keys) -> tuple[Array, Array]:
    """out and its bound: P is rounded at some running maximum <= the final one, so in final weights by at most its unit
    roundoff or half a smallest step of E4M3 (2^-10, over P's factor), and never by more than itself."""
    weight = np.exp2(scores.exponent - scores.exponent.max(axis=1, keepdims=True))
    relative = _relative(scores.error(0), len(keys.starts))
    scale = _value_scale(case, keys)
    reached = weight * (1.0 + relative)
    if case.cache == "bf16":
        rounding = U_BF16 * reached + 2.0**-134
    else:
        factor, _ = _p_factor(case, keys)
        rounding = np.minimum(reached, np.maximum(U_E4M3 * reached, 2.0**-10 / factor))
    guard = VMAX_GUARD / keys.v_scale.min() if case.per_token else 0.0
    error = (weight * (relative + P_ROUNDINGS * U + guard) + rounding) * scale
    out, bound = _ratio(case, weight * scale, weight, error, relative, keys)
    partial = ((weight * scale) @ np.abs(keys.v)) / weight.sum(axis=1, keepdims=True)
    bound += (partial + bound) * ((splits > 1) * U_BF16 + (2 * splits + 16) * U)
    return out, bound + (np.abs(out) + bound) * U_BF16 + 2.0**-134


def _ratio(
    case: Case, numerator: Array, weight: Array, error: Array, relative: Array, keys: _Keys
) -> tuple[Array, Array]:
    """sum(numerator v) / sum(weight) and the bound of the job's float32 result. error: of each numerator weight.

    The sums add: PV's truncation (`_pv_error`); a product with alpha, one with V's scale and an add a chunk, 3 U a
    group; for the denominator the adds of a chunk in any order that halves 256 P to 16 a lane and 20 adds, taken as 40,
    and 2 a group; then the reciprocal and the product, 4 U.
    """
    total = weight.sum(axis=1, keepdims=True)
    magnitude, doubt = np.split(np.concatenate([numerator + error, error]) @ np.abs(keys.v), 2)
    groups = len(keys.starts)
    top_error = doubt + _pv_error(case, keys, magnitude) + 3.0 * (groups + 1) * U * magnitude
    total_error = (weight * relative).sum(axis=1, keepdims=True) + (40.0 + 2.0 * groups) * U * total
    out = numerator @ keys.v / total
    smallest = total - total_error
    bound = (top_error + np.abs(out) * total_error) / np.where(smallest > 0, smallest, np.nan)
    bound = np.where(np.isnan(bound), np.inf, bound)
    return out, bound + (np.abs(out) + bound) * 4.0 * U + UNDERFLOW


def _pv_error(case: Case, keys: _Keys, magnitude: Array) -> Array:
    """Error of the PV products in units of the final weights, a chunk of 256 from zero in each group.

    Rounded P reaches 1, or 448 in the binade 2^8, of which PV's scale takes 448 back: in units of the weights 2^E is at
    most the binade of the largest |v| times its scale. Rescaling to a later maximum never enlarges an error. In E4M3
    products are multiples of 2^-18, so none is cut while E (with the 8 of 448) is <= 6; else all may be.
    """
    top = int(binade(np.abs(keys.v).max(axis=0), -6 if case.cache == "fp8" else -126).max())
    if top < -45:
        return np.zeros_like(magnitude)
    fp8, groups = case.cache == "fp8", len(keys.starts)
    exponent_p = 8 if case.per_token or case.p == "x448" else 0
    cut = 0 if fp8 and top + exponent_p <= 6 else keys.split.size
    unit = float(np.ldexp(U, top)) * float(_value_scale(case, keys).max())
    steps = groups * CHUNK // (16 if fp8 else 8)
    error: Array = np.broadcast_to(unit * (cut + 4.0 * steps), magnitude.shape) + 2.02 * U * steps / groups * magnitude
    return error


@dataclass(frozen=True)
class _P:
    """What the job multiplies V by, [16][n]. running: the maxima it is relative to. rounded: P after its rounding.
    doubt: how far the job's may be off. relative: the error of P relative to its split's last maximum, where those of
    two maxima count. back: P's factor, taken back, [n]."""

    running: Array
    rounded: Array
    doubt: Array
    relative: Array
    back: Array


def _rounded_p(case: Case, scores: _Scores, keys: _Keys) -> _P:
    """P is rounded at the running maximum of its group; only one whose error interval crosses a boundary is in
    doubt."""
    running = _running_maxima(scores.exponent, keys)
    factor, back = _p_factor(case, keys)
    own = 1.0 + _relative(scores.error(1), 0) + P_ROUNDINGS * U
    p = np.exp2(scores.exponent - running) * factor
    rounding = BF16 if case.cache == "bf16" else E4M3
    rounded, low, high = (nearest(x, *rounding) for x in (p, p / own, p * own))
    relative = _relative(scores.error(2), len(keys.starts)) + P_ROUNDINGS * U
    back = np.broadcast_to(back, keys.v_scale.shape)
    return _P(running, rounded, np.maximum(high - rounded, rounded - low), relative, back)


def _partials(case: Case, splits: int, scores: _Scores, keys: _Keys) -> tuple[Array, Array, Array, Array]:
    """Of each split with keys: its output and its error, float64 [splits][16][128] (as bf16, unless it is the only
    one); its share of the weights and the relative error of that, [splits][16][1]."""
    p = _rounded_p(case, scores, keys)
    top = scores.exponent.max(axis=1, keepdims=True)
    share_error = p.relative.max(axis=1, keepdims=True) + (60.0 + 2.0 * len(keys.starts)) * U
    size = int((keys.split == 0).sum())
    parts = []
    for first in range(0, keys.split.size, size):
        own = slice(first, min(first + size, keys.split.size))
        out, error = _partial(case, scores.exponent[:, own], p, keys, own)
        if splits > 1:
            low, out, high = (nearest(x, *BF16) for x in (out - error, out, out + error))
            error = np.maximum(high - out, out - low)
        share = np.exp2(scores.exponent[:, own] - top).sum(axis=1, keepdims=True)
        parts.append((out, error, share, share_error))
    outs, errors, shares, share_errors = (np.stack(x) for x in zip(*parts, strict=True))
    return outs, errors, shares, share_errors


def _partial(case: Case, exponent: Array, p: _P, keys: _Keys, own: slice) -> tuple[Array, Array]:
    """The output of a split and its error before its rounding to bf16."""
    running = p.running[:, own]
    to_last = np.exp2(running - running[:, -1:]) * p.back[own]
    numerator, doubt, relative = p.rounded[:, own] * to_last, p.doubt[:, own] * to_last, p.relative[:, own]
    error = doubt + (numerator + doubt) * relative
    weight = np.exp2(exponent - running[:, -1:])
    return _ratio(case, numerator, weight, error, relative, _part(keys, own))


def _part(keys: _Keys, own: slice) -> _Keys:
    """The keys of one split."""
    starts = keys.starts[(keys.starts >= own.start) & (keys.starts < own.stop)] - own.start
    group = keys.group[own] - keys.group[own.start]
    return _Keys(keys.k[own], keys.v[own], keys.k_factor[own], keys.v_scale[own], keys.split[own], starts, group)


def _running_maxima(exponent: Array, keys: _Keys) -> Array:
    """[16][n]: the largest exponent of the key's split up to the end of its chunk."""
    maxima = np.maximum.reduceat(exponent, keys.starts, axis=1)
    split = keys.split[keys.starts]
    for group in range(1, len(split)):
        if split[group] == split[group - 1]:
            np.maximum(maxima[:, group], maxima[:, group - 1], out=maxima[:, group])
    return maxima[:, keys.group]


def _reduced(splits: int, out: Array, error: Array, share: Array, share_error: Array) -> tuple[Array, Array]:
    """The weighted sum of the partial outputs and its error: those of the partials, those of weights, numerator and sum
    (twice the largest), a product and an add a split."""
    if splits == 1:
        return out[0], error[0]
    weight = share / share.sum(axis=0)
    value = (weight * out).sum(axis=0)
    magnitude = (weight * (np.abs(out) + error)).sum(axis=0)
    wrong = (weight * error).sum(axis=0) * (1.0 + 2.0 * share_error.max(axis=0))
    return value, wrong + magnitude * (2.0 * share_error.max(axis=0) + (2.0 * splits + 8.0) * U) + 2.0**-134


# --- checking outputs -------------------------------------------------------------------------------------------------


def _output_faults(attention: Attention, out: NDArray[np.uint16]) -> list[str]:
    got = bf16_values(out)
    return [
        *_value_faults("out", got, attention.out, np.abs(got - attention.out) <= attention.bound, attention.bound),
        *_value_faults(
            "out_p",
            got,
            attention.out_p,
            (got >= attention.low) & (got <= attention.high),
            attention.high - attention.low,
        ),
    ]


def _value_faults(name: str, got: Array, expected: Array, right: NDArray[np.bool_], width: Array) -> list[str]:
    """A sentence for each row and head with a value that is not right; NaN never is."""
    excess = np.where(right, 0.0, np.where(np.isnan(got), np.inf, np.abs(got - expected) + 2.0**-1000))
    found = []
    for row, head in np.argwhere((excess > 0).any(axis=2)).tolist():
        dim, count = int(excess[row, head].argmax()), int((excess[row, head] > 0).sum())
        at = row, head, dim
        found.append(
            f"{name} at row {row}, query head {head}, dim {dim}: got {got[at]:g}, expected {expected[at]:g}"
            f" within {width[at]:g} ({count} dims)"
        )
    return found
