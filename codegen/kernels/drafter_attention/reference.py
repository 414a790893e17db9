"""An independent float64 reference of the drafter attention, with derived error bounds.

No lanes, no tiles: head norm, RoPE, scores, softmax and the weighted sum of V over all keys of a request at once, in
float64. The quantisation points of the algorithm are followed: q, k and v are E4M3. Two outputs are given, each with
its bound:
- `out`: P is not quantised and there are no partitions; the bound holds for every way to split the keys.
- `out_p8`: P is rounded to E4M3 at the running maximum of its partition, as the kernel does; the bound only has to
  cover the float32 arithmetic and the P that lie on a rounding boundary, so it is some hundred times sharper.

The bounds are derived, not fitted; README.md gives the derivation and the functions below quote the terms. They bound
the arithmetic of the kernel as written (facts: U = 2^-24 is the unit roundoff of float32, 1 ulp for v_exp_f32 and
v_rsq_f32, MFMA by the truncating group sum of CDNA3 with groups of at least 16). They are the only tolerances in this
project: the bits themselves are held by the recorded goldens.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from codegen.kernels.drafter_attention.cases import (
    BLOCK,
    HEAD_DIM,
    KEY_BYTES,
    MAXB,
    Q_HEADS,
    QPR,
    ROT,
    SCALE_GROUP,
    WINDOW,
    Inputs,
)

Bytes = NDArray[np.uint8]

ROWS = QPR * Q_HEADS
LOG2_SCALE = 1.4426950408889634 / np.sqrt(128.0)  # score -> exponent of 2
P_SCALE = 256.0
NORM_ROUNDINGS = (
    12  # 11 adds of squares and + eps, halved by the root: 6; v_rsq_f32: 2; x*rr, 1+gamma, product: 3; spare: 1
)
ROPE_ROUNDINGS = NORM_ROUNDINGS + 2  # the sine product and the fma
MFMA_STEPS = 8  # groups of 16 in a contraction of 128


@dataclass(frozen=True)
class Quantised:
    """E4M3 values as float64: the nearest to the exact value, and the ends of the range float32 error may reach."""

    value: Array
    low: Array
    high: Array

    @property
    def spread(self) -> Array:
        """How far the kernel's value may lie from `value`; zero but for a few elements in 10^5."""
        return self.high - self.low


@dataclass(frozen=True)
class CacheRows:
    """The rows that must be written: slots int64 [n] (all >= 0), E4M3 codes uint8 [n][256], lowest and highest
    admissible."""

    slots: NDArray[np.int64]
    codes: Bytes
    low: Bytes
    high: Bytes


@dataclass(frozen=True)
class Reference:
    """What a correct kernel returns, for T tokens.

    out, bound: float64 [T][16][128], |dequantised a8 - out| <= bound. out_p8, bound_p8: float64 [T][16][128], the exact
    result with P in E4M3 and how far the kernel's float32 result may lie from it, before its bf16 and MXFP8 roundings.
    scale_low, scale_high: uint8 [T][64], the admissible E8M0 bytes. cache_rows: the new rows.
    """

    out: Array
    bound: Array
    out_p8: Array
    bound_p8: Array
    scale_low: Bytes
    scale_high: Bytes
    cache_rows: CacheRows


@dataclass(frozen=True)
class Violation:
    """One group of wrong elements. quantity: out, out_p8, scale or cache; where: its worst element; count: how many."""

    quantity: str
    where: str
    got: float
    expected: float
    limit: float
    count: int

    def __str__(self) -> str:
        worst = f"{self.quantity} at {self.where}: got {self.got:g}, expected {self.expected:g} within {self.limit:g}"
        return worst if self.count == 1 else f"{worst} (worst of {self.count})"


def reference(inputs: Inputs) -> Reference:
    """The outputs of `inputs`. Raises ValueError when a q, k or v leaves the E4M3 range, where no bound exists."""
    q, k = _queries_and_keys(inputs)
    v = _in_range(nearest(_columns(inputs, Q_HEADS + 1), *E4M3), "v")
    rows = _cache_rows(inputs, k, v)
    keys, spread = _filled_cache(inputs, rows)
    outputs = [_attend(inputs, request, q, keys, spread) for request in range(inputs.requests)]
    out, bound, out_p8, bound_p8 = (np.concatenate(part) for part in zip(*outputs, strict=True))
    smallest, largest = (nearest(np.abs(out_p8) + sign * bound_p8, *BF16) for sign in (-1.0, 1.0))
    return Reference(
        out=out,
        bound=_with_output_roundings(out, bound),
        out_p8=out_p8,
        bound_p8=bound_p8,
        scale_low=_scale_bytes(smallest),
        scale_high=_scale_bytes(largest),
        cache_rows=rows,
    )


# --- q, k and v -------------------------------------------------------------------------------------------------------


def _in_range(values: Array, name: str) -> Array:
    if not (np.abs(values) <= E4M3_MAX).all():
        raise ValueError(f"a {name} leaves the E4M3 range (+-448) or is NaN; the reference has no bound for it")
    return values


def _quantised(x: Array, error: Array, name: str) -> Quantised:
    """x rounded to bf16 and then to E4M3, with the range that x - error .. x + error rounds to (-0 stays -0 without
    error)."""
    ends = (x, np.where(error > 0, x - error, x), np.where(error > 0, x + error, x))
    value, low, high = (nearest(nearest(y, *BF16), *E4M3) for y in ends)
    return Quantised(_in_range(value, name), _in_range(low, name), _in_range(high, name))


def _columns(inputs: Inputs, head: int) -> Array:
    """Columns of one head of the QKV rows: float64 [T][128]."""
    return bf16_values(inputs.qkv[:, head * HEAD_DIM : (head + 1) * HEAD_DIM])


def _queries_and_keys(inputs: Inputs) -> tuple[Quantised, Quantised]:
    """q [T][16][128] and the new k [T][128]."""
    q = bf16_values(inputs.qkv[:, : Q_HEADS * HEAD_DIM]).reshape(-1, Q_HEADS, HEAD_DIM)
    turn = bf16_values(inputs.cos_sin[inputs.positions])
    q_values, q_error = _norm_rope(q, bf16_values(inputs.qn), turn[:, None, :], inputs.eps)
    k_values, k_error = _norm_rope(_columns(inputs, Q_HEADS), bf16_values(inputs.kn), turn, inputs.eps)
    return _quantised(q_values, q_error, "q"), _quantised(k_values, k_error, "k")


def _norm_rope(x: Array, gamma: Array, turn: Array, eps: float) -> tuple[Array, Array]:
    """Gemma RMS norm and rotate-half RoPE over the first 64 dims; returns the value and the kernel's float32 error
    bound."""
    rms = np.sqrt((x * x).sum(axis=-1, keepdims=True) / HEAD_DIM + eps)
    value = x / rms * (1.0 + gamma)
    error = NORM_ROUNDINGS * U * np.abs(value)
    half = ROT // 2
    cos, sin, a, b = turn[..., :half], turn[..., half:], value[..., :half], value[..., half:ROT]
    rotated = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    terms = np.concatenate([np.abs(a * cos) + np.abs(b * sin), np.abs(b * cos) + np.abs(a * sin)], axis=-1)
    value, error = np.copy(value), np.copy(error)
    value[..., :ROT], error[..., :ROT] = rotated, ROPE_ROUNDINGS * U * terms
    return value, error


def _codes(values: Array) -> Bytes:
    """E4M3 codes of values that E4M3 holds exactly."""
    return values.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def _cache_rows(inputs: Inputs, k: Quantised, v: Array) -> CacheRows:
    written = inputs.slots >= 0
    codes, low, high = (
        np.concatenate([_codes(part[written]), _codes(v[written])], axis=1) for part in (k.value, k.low, k.high)
    )
    return CacheRows(inputs.slots[written], codes, low, high)


def _filled_cache(inputs: Inputs, rows: CacheRows) -> tuple[Bytes, Array]:
    """The cache with the new rows, uint8 [keys][256], and how uncertain its K values are, float64 [keys][128]."""
    keys = inputs.cache.reshape(-1, KEY_BYTES).copy()
    keys[rows.slots] = rows.codes
    spread = np.zeros((len(keys), HEAD_DIM))
    spread[rows.slots] = e4m3_values(rows.high[:, :HEAD_DIM].copy()) - e4m3_values(rows.low[:, :HEAD_DIM].copy())
    return keys, spread


# --- attention of one request -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Scores:
    """exponent: log2(e) q.k / sqrt(128), -inf where masked. error: of the kernel's exponent, less its maximum's
    error."""

    exponent: Array
    error: Array
    max_error: Array
    visible: NDArray[np.bool_]


def _attend(
    inputs: Inputs, request: int, q: Quantised, keys: Bytes, spread: Array
) -> tuple[Array, Array, Array, Array]:
    """out, bound, out_p8, bound_p8 of the request's 7 rows, each float64 [7][16][128]; bounds before the bf16
    rounding."""
    token = slice(request * QPR, (request + 1) * QPR)
    first = int(inputs.positions[token][0])
    lo = max(first - WINDOW + 1, 0)
    hi = min(int(inputs.seq_lens[request]) - 1, (lo // BLOCK + MAXB) * BLOCK - 1)
    zero = np.zeros((QPR, Q_HEADS, HEAD_DIM))
    if hi < lo:
        return zero, zero, zero, zero
    position = np.arange(lo, hi + 1)
    where = inputs.block_table[request, position // BLOCK].astype(np.int64) * BLOCK + position % BLOCK
    k, v = e4m3_values(keys[where, :HEAD_DIM]), e4m3_values(keys[where, HEAD_DIM:])
    visible = np.repeat(position > first + np.arange(QPR)[:, None] - WINDOW, Q_HEADS, axis=0)
    q_rows, q_spread = q.value[token].reshape(ROWS, HEAD_DIM), q.spread[token].reshape(ROWS, HEAD_DIM)
    scores = _scores(q_rows, q_spread, k, spread[where], visible)
    maxima = _running_maxima(scores.exponent, position, inputs.na)
    pieces = *_unquantised(scores, v, inputs.na, maxima), *_quantised_p(scores, v, inputs.na, maxima)
    out, bound, out_p8, bound_p8 = (piece.reshape(zero.shape) for piece in pieces)
    return out, bound, out_p8, bound_p8


def _scores(q: Array, q_spread: Array, k: Array, k_spread: Array, visible: NDArray[np.bool_]) -> _Scores:
    """Exact scores (every product and sum fits float64) and the error of the kernel's, in units of the exponent.

    Terms: MFMA truncation; q8 and k8 next to a rounding boundary; 24 float32 roundings of numbers no larger than the
    largest |score| and 2 of numbers no larger than 8 (products with QK_C, the offset, alpha, the partials' m and the
    merge weight).
    """
    exponent = np.where(visible, q @ k.T * LOG2_SCALE, -np.inf)
    magnitude = np.abs(q) @ np.abs(k).T
    doubt = _product(q_spread, np.abs(k)) + _product(np.abs(q) + q_spread, k_spread)
    error = (_mfma_error(q, k, magnitude) + doubt) * LOG2_SCALE
    largest = np.where(visible, np.abs(exponent), 0.0).max(axis=1, keepdims=True)
    max_error = np.where(visible, error, 0.0).max(axis=1, keepdims=True)
    return _Scores(exponent, error + U * (24.0 * largest + 16.0), max_error, visible)


def _product(a: Array, b: Array) -> Array:
    """a b^T over the dims where neither is all zero; almost all spreads are."""
    dims = np.flatnonzero(a.any(axis=0) & b.any(axis=0))
    product: Array = a[:, dims] @ b[:, dims].T
    return product


def _mfma_error(q: Array, k: Array, magnitude: Array) -> Array:
    """Error of q k^T in E4M3 by the truncating group sum, contraction of 128.

    A product is a multiple of 2^(e-6), e its aligned exponent, and loses bits only below 2^(E-24), E the largest: it
    is cut when e < E - 18, by less than 2^(E-24). The steps: `truncating_sum_error`.
    """
    eq, ek = binade(q), binade(k)
    largest = np.full(magnitude.shape, -100, dtype=np.int8)
    for d in range(HEAD_DIM):
        np.maximum(largest, eq[:, d, None] + ek[None, :, d], out=largest)
    cut = np.zeros(magnitude.shape)
    if largest.max() > 6:  # products are at least 2^-12
        for d in range(HEAD_DIM):
            product = eq[:, d, None] + ek[None, :, d]
            cut += (product > -20) & (product < largest - 18)
    unit = np.where(largest > -20, np.ldexp(U, largest.astype(np.int32)), 0.0)
    error: Array = truncating_sum_error(unit, cut, MFMA_STEPS, magnitude)
    return error


def _partition_of(position: NDArray[np.int64], na: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Block (from the first) and partition of each key: ceil(blocks / na) consecutive blocks a partition."""
    block = position // BLOCK - position[0] // BLOCK
    return block, block // -(-(int(block[-1]) + 1) // na)


def _running_maxima(exponent: Array, position: NDArray[np.int64], na: int) -> Array:
    """The largest exponent in the key's partition up to the end of the key's block: float64 [112][keys]."""
    block, partition = _partition_of(position, na)
    maxima = np.empty_like(exponent)
    running, current = np.full(len(exponent), -np.inf), 0
    for index in range(int(block[-1]) + 1):
        inside = block == index
        if partition[inside][0] != current:
            running, current = np.full(len(exponent), -np.inf), int(partition[inside][0])
        running = np.maximum(running, exponent[:, inside].max(axis=1))
        maxima[:, inside] = running[:, None]
    return maxima


def _weights(exponent: Array, maximum: Array) -> Array:
    """2^(exponent - maximum), 0 for a masked key and for a row without any visible key."""
    finite = np.isfinite(exponent) & np.isfinite(maximum)
    return np.where(finite, np.exp2(np.where(finite, exponent, 0.0) - np.where(finite, maximum, 0.0)), 0.0)


def _relative_error(exponent_error: Array, blocks: int) -> Array:
    """Of a weight: its exponent's error, and 3 U for each v_exp_f32 and product on its way (P, an alpha a block,
    merge)."""
    return np.exp2(exponent_error) * (1.0 + 3.0 * U * (blocks + 3)) - 1.0


def _unquantised(scores: _Scores, v: Array, na: int, maxima: Array) -> tuple[Array, Array]:
    """out and its bound for P of any precision; E4M3 rounds P (times 256 at some running maximum <= the final one) by
    at most 2^-4 of it where it is normal, 2^-10 where it is not, and never by more than P itself."""
    weight = _weights(scores.exponent, scores.exponent.max(axis=1, keepdims=True))
    blocks = _block_count(maxima)
    relative = _relative_error(scores.error, blocks)
    reached = weight * (1.0 + relative)
    rounding = np.minimum(reached, U_E4M3 * np.maximum(reached, 2.0**-6 / P_SCALE))
    return _ratio(weight, weight, weight * relative + rounding, relative, v, blocks, na)


def _quantised_p(scores: _Scores, v: Array, na: int, maxima: Array) -> tuple[Array, Array]:
    """out with P rounded to E4M3 at the running maximum, and its bound: only P near a rounding boundary is in doubt."""
    weight = _weights(scores.exponent, scores.exponent.max(axis=1, keepdims=True))
    blocks = _block_count(maxima)
    relative = _relative_error(scores.error + scores.max_error, blocks)
    p = P_SCALE * _weights(scores.exponent, maxima)
    rescale = _weights(maxima, scores.exponent.max(axis=1, keepdims=True)) / P_SCALE
    rounded, low, high = (nearest(x, *E4M3) for x in (p, p / (1.0 + relative), p * (1.0 + relative)))
    doubt = np.maximum(high - rounded, rounded - low) * rescale
    p8 = rounded * rescale
    return _ratio(p8, weight, doubt + (p8 + doubt) * relative, relative, v, blocks, na)


def _block_count(maxima: Array) -> int:
    return int(maxima.shape[1]) // BLOCK + 2  # no fewer than the window's blocks


def _ratio(
    numerator: Array, weight: Array, error: Array, relative: Array, v: Array, blocks: int, na: int
) -> tuple[Array, Array]:
    """sum(numerator v) / sum(weight), and the bound of the kernel's float32 result.

    error: of each numerator weight. The sums add: PV truncation and accumulation (`_pv_error`), a product by alpha a
    block and the merge's product and adds, (blocks + na + 2) U; for the denominator 33 adds in a block, 2 roundings a
    block and the merge; then the division.
    """
    total = weight.sum(axis=1, keepdims=True)
    magnitude = (numerator + error) @ np.abs(v)
    top_error = (
        error @ np.abs(v) + _pv_error(weight, relative, v, magnitude, blocks) + (blocks + na + 2) * U * magnitude
    )
    total_error = (weight * relative).sum(axis=1, keepdims=True) + (35 + 2 * blocks + na) * U * total + 2.0**-100
    live = total > 0
    smallest = np.where(live, total - total_error, 1.0)
    out = np.where(live, numerator @ v / np.where(live, total, 1.0), 0.0)
    bound = (top_error + np.abs(out) * total_error) / smallest
    bound += (np.abs(out) + bound) * 2 * U + 2.0**-134
    return out, np.where(live & (smallest > 0), bound, np.where(live, np.inf, 0.0))


def _pv_error(weight: Array, relative: Array, v: Array, magnitude: Array, blocks: int) -> Array:
    """Error of the PV products in units of the final weights: as `_mfma_error`, once a block.

    P reaches 256, so the largest product has at most the exponent E = 8 + that of the largest |v|; v is at least 2^-6
    in exponent, so a product can be cut only when P < 2^(E - 12), by 2^(E - 24) or by all of it. Rescaling to the
    final maximum never enlarges an error.
    """
    top = int(binade(v).max())
    if top < -6:
        return np.zeros_like(magnitude)
    unit = np.ldexp(U, top)  # of 2^(E - 24), less the factor 256
    small = (weight > 0) & (weight < 2.0 ** (top - 12))
    cut = np.where(small, np.minimum(unit, 2.0 * weight * (1.0 + relative) * 2.0 ** (top + 1)), 0.0)
    error: Array = cut.sum(axis=1, keepdims=True) + truncating_sum_error(unit, 0.0, blocks * MFMA_STEPS, magnitude)
    return error


# --- MXFP8 ------------------------------------------------------------------------------------------------------------


def _scale_bytes(magnitude: Array) -> Bytes:
    """E8M0 byte of each group of 32 dims by RoundUp: the smallest power of two s in 2^-126 .. 2^127 with amax <= 448 s.

    magnitude: float64 [T][16][128]; returns uint8 [T][64].
    """
    amax = magnitude.reshape(len(magnitude), -1, SCALE_GROUP).max(axis=2).clip(0.0)
    fraction, exponent = np.frexp(amax / E4M3_MAX)
    byte = np.where(amax > 0, exponent - (fraction == 0.5) + 127, 1)
    return byte.clip(1, 254).astype(np.uint8)


def _with_output_roundings(out: Array, bound: Array) -> Array:
    """`bound`, the bf16 rounding, and half a unit of E4M3 under the largest admissible scale."""
    bound = bound + (np.abs(out) + bound) * U_BF16
    reached = np.abs(out) + bound
    power = np.repeat(_scale_bytes(reached).astype(np.int32) - 127, SCALE_GROUP, axis=1).reshape(out.shape)
    binade = np.maximum(np.frexp(np.ldexp(reached, -power))[1] - 1, -6)
    return np.where(reached > 0, bound + np.ldexp(1.0, binade - 4 + power), 0.0)


def _output_range(expected: Reference, as8: Bytes) -> tuple[Array, Array]:
    """Lowest and highest admissible dequantised value, float64 [T][16][128], under the scales that the kernel chose."""
    scale = np.repeat(_scales(as8), SCALE_GROUP, axis=1).reshape(expected.out_p8.shape)
    bf16 = (nearest(expected.out_p8 + sign * expected.bound_p8, *BF16) for sign in (-1.0, 1.0))
    low, high = (nearest((x / scale).clip(-E4M3_MAX, E4M3_MAX), *E4M3) * scale for x in bf16)
    return low, high


def dequantised(a8: Bytes, as8: Bytes) -> Array:
    """float64 [T][16][128] of MXFP8 bytes uint8 [T][2048] and scales uint8 [T][64]."""
    return (e4m3_values(a8) * np.repeat(_scales(as8), SCALE_GROUP, axis=1)).reshape(-1, Q_HEADS, HEAD_DIM)


def _scales(as8: Bytes) -> Array:
    scales: Array = as8.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    return scales


# --- checking ---------------------------------------------------------------------------------------------------------


def check_outputs(inputs: Inputs, expected: Reference, a8: Bytes, as8: Bytes, cache: Bytes) -> list[Violation]:
    """Every way in which a kernel's outputs leave the bounds; empty when they are admissible.

    a8: uint8 [T][2048]. as8: uint8 [T][64]. cache: uint8 like inputs.cache, after the kernel. Raises ValueError for
    other shapes or dtypes.
    """
    _check_array("a8", a8, (inputs.tokens, Q_HEADS * HEAD_DIM))
    _check_array("as8", as8, (inputs.tokens, Q_HEADS * HEAD_DIM // SCALE_GROUP))
    _check_array("cache", cache, inputs.cache.shape)
    got = dequantised(a8, as8)
    low, high = _output_range(expected, as8)
    return [
        *_check_scales(expected, as8),
        *_check_values("out", got, expected.out, np.abs(got - expected.out) - expected.bound, expected.bound),
        *_check_values("out_p8", got, expected.out_p8, np.maximum(low - got, got - high), high - low),
        *_check_cache(inputs, expected.cache_rows, cache),
    ]


def _check_array(name: str, array: Bytes, shape: tuple[int, ...]) -> None:
    if array.dtype != np.uint8 or array.shape != shape:
        raise ValueError(f"{name} is {array.dtype} {array.shape}; expected uint8 {shape}")


def _check_scales(expected: Reference, as8: Bytes) -> list[Violation]:
    wrong = np.argwhere((as8 < expected.scale_low) | (as8 > expected.scale_high))
    return [
        Violation(
            "scale",
            f"token {token} head {group // 4} dims {group % 4 * SCALE_GROUP}..",
            float(as8[token, group]),
            float(expected.scale_low[token, group]),
            float(expected.scale_high[token, group]) - float(expected.scale_low[token, group]),
            1,
        )
        for token, group in wrong.tolist()
    ]


def _check_values(quantity: str, got: Array, value: Array, excess: Array, bound: Array) -> list[Violation]:
    """One violation for each (token, head) with an excess above 0; NaN is always wrong."""
    excess = np.where(np.isnan(got), np.inf, excess)
    found = []
    for token, head in np.argwhere((excess > 0).any(axis=2)).tolist():
        dim = int(excess[token, head].argmax())
        at = token, head, dim
        where, count = f"token {token} head {head} dim {dim}", int((excess[token, head] > 0).sum())
        found.append(Violation(quantity, where, float(got[at]), float(value[at]), float(bound[at]), count))
    return found


def _ordinals(codes: Bytes) -> NDArray[np.int64]:
    """E4M3 codes in the order of their values, -0 just below +0."""
    magnitude = (codes & 0x7F).astype(np.int64)
    return np.where(codes & 0x80, -1 - magnitude, magnitude)


def _check_cache(inputs: Inputs, rows: CacheRows, cache: Bytes) -> list[Violation]:
    """New rows within their admissible codes, every other byte as it was."""
    before, after = inputs.cache.reshape(-1, KEY_BYTES), cache.reshape(-1, KEY_BYTES)
    low, high, expected = before.copy(), before.copy(), before.copy()
    low[rows.slots], high[rows.slots], expected[rows.slots] = rows.low, rows.high, rows.codes
    wrong = (_ordinals(after) < _ordinals(low)) | (_ordinals(after) > _ordinals(high))
    found = []
    for slot in np.flatnonzero(wrong.any(axis=1)).tolist():
        byte = int(wrong[slot].argmax())
        where, count = f"slot {slot} ({'K' if byte < HEAD_DIM else 'V'} byte {byte % HEAD_DIM})", int(wrong[slot].sum())
        found.append(Violation("cache", where, float(after[slot, byte]), float(expected[slot, byte]), 0.0, count))
    return found
