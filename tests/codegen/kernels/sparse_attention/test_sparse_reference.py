"""The float64 reference of the sparse attention against a float32 emulation of the job's steps, right and wrong.

The emulation follows the steps with splits and chunks but without lanes; a fault is one deviation. It shares no code
with the reference: caches are transposed views, rows of a table are walked block by block.
"""

from __future__ import annotations

import dataclasses
import functools

import ml_dtypes
import numpy as np
import pytest
import torch

from codegen.kernels.sparse_attention import reference as reference_module
from codegen.kernels.sparse_attention.cases import CASES, build
from codegen.kernels.sparse_attention.reference import attend, check, index_scores, inserted, selected, tables
from gfx950.arithmetic.mfma import DEFAULT, Format, GroupRule, MfmaModel, Operand, Split, multiply
from gfx950.random_bits import bits32, integers

F = np.float32
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
LOG2E, SOFTMAX = F(1.4426950408889634), F(1 / np.sqrt(128.0))


def token_view(inputs, cache, side):
    """A writable view [nblk][8 pages][16 tokens][kvh][128 / x][x] of K, or [..][kvh][128][1] of V by whole tokens."""
    pages = cache[:, side] if inputs.case.packed else cache[side]
    x = 16 // cache.itemsize
    if side == 0:
        return pages.reshape(*pages.shape[:3], 128 // x, 16, x).transpose(0, 1, 4, 2, 3, 5)
    return pages.reshape(*pages.shape[:3], 16 // x, 128, x).transpose(0, 1, 3, 5, 2, 4)


def put(inputs, cache, side, slot, rows, faults):
    block, page, t = slot // 128, slot % 128 // 16, slot % 16
    if "head pages swapped" in faults:
        rows = rows[::-1]
    if side == 0 or "V not transposed" in faults:
        view = token_view(inputs, cache, side) if side == 0 else None
        if view is None:
            pages = (cache[:, 1] if inputs.case.packed else cache[1]).reshape(len(cache), 8, len(rows), 8, 16, 16)
            view = pages.transpose(0, 1, 4, 2, 3, 5)
        view[block, page, t] = rows.reshape(len(rows), *view.shape[4:])
    else:
        x = 16 // cache.itemsize
        token_view(inputs, cache, 1)[block, page, t // x, t % x] = rows


def insert(inputs, faults):
    case = inputs.case
    cache, index_cache = inputs.kv_cache.copy(), inputs.index_cache.copy()
    scales = [inputs.k_scale.copy(), inputs.v_scale.copy()]
    for row, slot in enumerate(inputs.slots.tolist()):
        if slot < 0 and "slot -1 written" not in faults:
            continue
        for side, new in enumerate((inputs.key[row], inputs.value[row])):
            side = 1 - side if "K and V swapped" in faults else side
            values = new.view(BF16).astype(F)
            scale = np.full((case.kv_heads, 1), scales[side][0] if not case.per_token else 0, F)
            if case.per_token:
                scale = np.abs(values).max(axis=1, keepdims=True) / F(448)
                scales[side][:, slot] = scale[:, 0] * F(2 if "scale doubled" in faults else 1)
            quotient = values * (F(1) / scale) if "times the reciprocal" in faults else values / scale
            put(
                inputs, cache, side, slot, new if case.cache == "bf16" else quotient.astype(E4M3).view(np.uint8), faults
            )
        index_cache[inputs.index_slots[row] // 128, inputs.index_slots[row] % 128] = inputs.index_k[row]
    return cache, index_cache, scales


def dot(a, b, options, bf16=False):
    """a b^T in float32: exact and rounded once, or the chip's own arithmetic."""
    if "on the matrix unit" in options:
        kind, form, word = (BF16, Format.bf16, np.uint16) if bf16 else (E4M3, Format.fp8, np.uint8)
        a, b = (np.pad(x, ((0, 0), (0, -x.shape[1] % 32))) for x in (a, b))
        operands = (Operand(x.astype(kind).view(word).astype(np.uint16), form) for x in (a, b))
        model = options[1] if len(options) > 1 else DEFAULT
        return multiply(*operands, np.zeros((len(a), len(b)), np.uint32), model).view(F)
    return (a.astype(np.float64) @ b.astype(np.float64).T).astype(F)


def scored(inputs, index_cache, faults):
    case = inputs.case
    blocks = max(int(inputs.kv_len.max() + 127) // 128, 1)
    scores = np.full((case.index_heads, inputs.rows, blocks + 3), np.nan, F)
    shift = ("causal one more" in faults) - ("causal one less" in faults)
    for row, kv_len in enumerate(inputs.kv_len.tolist()):
        count = -(-kv_len // 128)
        if not count:
            continue
        table = inputs.block_table if "K's block table" in faults else inputs.index_block_table
        physical = table[inputs.request[row], :count].clip(0, len(index_cache) - 1)
        keys = index_cache[physical].reshape(-1, 128).view(E4M3).astype(F)
        for head in range(case.index_heads):
            query = inputs.index_q[row, head ^ ("other index head" in faults)].view(E4M3).astype(F)
            with np.errstate(invalid="ignore"):
                s = dot(query[None], keys, faults)[0]
            s[max(kv_len + shift, 1) :] = -np.inf
            s = np.where(np.isnan(s) & ("NaN kept" not in faults), -np.inf, s) * F(
                0.5 if "scores halved" in faults else 1
            )
            line = s.reshape(count, 128).max(axis=1) if "mean score" not in faults else s.reshape(count, 128)[:, 0]
            init, local = slice(0, case.init_blocks), slice(max(count - case.local_blocks, 0), count)
            for forced, value in ((init, F(1e30)), (local, F(1e29)))[:: -1 if "init over local" in faults else 1]:
                line[forced] = value
            scores[head, row, :count] = line
    return scores


def choose(inputs, scores, faults):
    topk = np.full((len(scores), inputs.rows, 16), 0 if "tail of zeros" in faults else -1, np.int32)
    for head in range(len(scores)):
        for row, kv_len in enumerate(inputs.kv_len.tolist()):
            line = scores[head, row, : -(-kv_len // 128)].copy()
            line[np.isnan(line)] = np.inf if "NaN first" in faults else -np.inf
            order = np.argsort(line, kind="stable")[::-1]
            if "smaller block wins" in faults:
                order = np.argsort(-line, kind="stable")
            if "in block order" in faults:
                order = np.sort(order[:16])
            order = order[1:17] if "best block lost" in faults else order[:16]
            topk[head, row, : len(order)] = order
    return topk


def emit(inputs, topk, faults):
    case = inputs.case
    kvh, sides = case.kv_heads, 2 if case.packed and "table not rebased" not in faults else 1
    table, ctx = np.zeros((inputs.rows * kvh, 128), np.int32), np.zeros(inputs.rows * kvh, np.int32)
    for row in range(inputs.rows):
        for head in range(kvh):
            own, last = divmod(int(inputs.kv_len[row]) - 1, 128)
            chosen = [int(b) for b in topk[head % len(topk), row] if 0 <= b <= own and inputs.kv_len[row] > 0]
            order = sorted(chosen, key=lambda b: b == own) if "tail first" not in faults else chosen
            if "sorted blocks" in faults:
                order = sorted(order)
            line, length = [], 0
            for block in order:
                entry = int(inputs.block_table[inputs.request[row], block])
                line += [(entry * 8 * sides + j) * kvh + head * ("head 0 for all" not in faults) for j in range(8)]
                length += last + 1 if block == own and "full tail" not in faults else 128
            table[row * kvh + head, : len(line)] = line
            ctx[row * kvh + head] = length
    return table, ctx


def off_by_one_ulp(x, name):
    step = integers(name, x.shape, -1, 2).astype(np.int32)
    return np.where((x == 0) | (x == 1) | ~np.isfinite(x), x, (x.view(np.int32) + step).view(F))


def exp2(x, faults):
    result = np.exp2(x.astype(np.float64)).astype(F)
    return off_by_one_ulp(result, f"exp {x.size}") if "exp off by 1 ulp" in faults else result


def toward_zero(p):
    rounded = p.astype(E4M3).astype(F)
    unit = np.exp2(np.maximum(np.floor(np.log2(np.maximum(p, F(1e-30)))), -6) - 3).astype(F)
    return np.where(rounded > p, rounded - unit, rounded)


def gathered(inputs, cache, scales, pages, head, length):
    """k, v [length][128] and their scales [length], all float32."""
    case = inputs.case
    kvh, sides = case.kv_heads, 2 if case.packed else 1
    tokens = np.arange(length)
    page = pages[np.minimum(tokens // 16, 127)].astype(np.int64) // kvh
    block, page, t = page // (8 * sides), page % 8, tokens % 16
    kind, x = (BF16, 8) if case.cache == "bf16" else (E4M3, 16)
    k = token_view(inputs, cache, 0)[block, page, t, head].reshape(length, 128).view(kind).astype(F)
    v = token_view(inputs, cache, 1)[block, page, t // x, t % x, head].view(kind).astype(F)
    slots = block * 128 + page * 16 + t
    return k, v, *(s[head, slots] if case.per_token else np.full(length, s[0]) for s in scales)


def p_of(case, p, v_scale, seen_scales, faults):
    """P as it is rounded and what PV is multiplied by."""
    factor = {"unscaled": F(1), "x448": F(448)}[case.p]
    if "P of the other treatment" in faults:
        factor = F(448) / factor
    back = v_scale[0] / factor
    if case.per_token:
        vmax = seen_scales.max()
        p = (v_scale * F(448)) / (vmax + F(1e-8)) * p
        back = vmax / F(448)
    else:
        p = p * (F(1) if "P scaled by 1" in faults else factor)
    if case.cache == "bf16":
        return p.astype(BF16).astype(F), F(1)
    if "P not quantised" in faults:
        return p, back
    return (toward_zero(p) if "P toward zero" in faults else p.astype(E4M3).astype(F)), back


def split_of(case, q, keys, first, end, chunk_size, faults):
    """m, l and the normalised o of one split."""
    k, v, k_scale, v_scale = keys
    begin = first
    m, l, o = np.full(16, -np.inf, F), np.zeros(16, F), np.zeros((16, 128), F)  # noqa: E741
    while first < end:
        start = begin if "chunks from the split's start" in faults else 0
        stop = min(start + ((first - start) // chunk_size + 1) * chunk_size, end)
        own = slice(first, stop)
        bf16 = case.cache == "bf16"
        scale = SOFTMAX * (F(1) if bf16 or "no k_scale" in faults else k_scale[own])
        s = scale * dot(q, k[own], faults, bf16)
        new = np.maximum(m, s.max(axis=1))
        if "maximum of the split" in faults:
            new = (SOFTMAX * k_scale[begin:end] * dot(q, k[begin:end], faults, bf16)).max(axis=1)
        log2e = F(1) if "exp without log2e" in faults else LOG2E
        p = exp2((s - new[:, None]) * log2e, faults)
        alpha = exp2((m - new) * log2e, faults)
        p8, back = p_of(
            case, p, v_scale[own], v_scale[begin:end] if "vmax of the split" in faults else v_scale[own], faults
        )
        summed = p8 if "l of rounded P" in faults else p
        order = slice(None, None, -1) if "another order" in faults else slice(None)
        l = alpha * l + np.add.accumulate(summed[:, order], axis=1, dtype=F)[:, -1]  # noqa: E741
        weights = (
            v[own][np.arange(stop - first) ^ 1] if "V keys swapped" in faults and (stop - first) % 2 == 0 else v[own]
        )
        pv = dot(p8, weights.T, faults, bf16)
        back = F(1) if "no v_scale" in faults else back
        o = o * (F(1) if "o not rescaled" in faults else alpha[:, None])
        fused = (o.astype(np.float64) + back.astype(np.float64) * pv).astype(F)
        o = fused if "contracted" in faults else o + back * pv
        m, first = new, stop
    return m, l, o * (F(1) / np.where(l == 0, F(1), l))[:, None]


def reduced(parts, flydsl, faults):
    top = np.maximum.reduce([m for m, _, _ in parts])
    weights = [l * exp2((m - top) * LOG2E, faults) for m, l, _ in parts]  # noqa: E741
    if "splits weigh alike" in faults:
        weights = [(w > 0).astype(F) for w in weights]
    total, out = np.add.reduce(weights), np.zeros((16, 128), F)
    for w, (_, _, o) in zip(weights, parts, strict=True):
        share = (w / total)[:, None]
        o = o if "partials in float32" in faults else o.astype(BF16).astype(F)
        fused = (out.astype(np.float64) + share.astype(np.float64) * o).astype(F)
        out = out + share * o if flydsl else fused
    return out


def attended(inputs, cache, scales, table, ctx, faults):
    case = inputs.case
    out = np.zeros((inputs.rows, case.kv_heads, 16, 128), F)
    q = inputs.q.view(BF16).astype(F).reshape(out.shape)
    if case.cache == "fp8" and "q in bf16" not in faults:
        q = q.astype(E4M3).astype(F)
    for sequence, length in enumerate(ctx.tolist()):
        row, head = divmod(sequence, case.kv_heads)
        length += ("one key more" in faults) - ("one key less" in faults and length > 1)
        if length == 0:
            continue
        keys = gathered(inputs, cache, scales, table[sequence], head, length)
        if "K read as V" in faults:
            keys = (keys[0], keys[0], *keys[2:])
        part = range(inputs.rows) if "splits of the whole batch" in faults else next(p for p in case.parts if row in p)
        splits = 1 if "one split" in faults else case.splits_of(part)
        size = -(-length // splits)
        if "splits of whole chunks" in faults:
            size = -(-size // 256) * 256
        chunk = 128 if "chunks of 128" in faults else 256
        parts = [
            split_of(case, q[row, head], keys, size * i, min(size * (i + 1), length), chunk, faults)
            for i in range(splits)
        ]
        if "last split lost" in faults:
            parts = parts[:-1]
        if "wrong split order" in faults:
            parts = [(*part[:2], other[2]) for part, other in zip(parts, parts[::-1], strict=True)]
        final = parts[0][2] if splits == 1 else reduced(parts, case.reduce == "flydsl", faults)
        out[row, head] = final
    if "query heads swapped" in faults:
        out = out[:, :, np.arange(16) ^ 1]
    return out.reshape(inputs.rows, -1, 128).astype(BF16).view(np.uint16)


def emulate(inputs, *faults):
    with np.errstate(invalid="ignore", over="ignore"):
        cache, index_cache, scales = insert(inputs, faults)
        read = inputs.kv_cache if "new tokens not read" in faults else cache
        scores = scored(inputs, index_cache, faults)
        topk = choose(inputs, scores, faults)
        table, ctx = emit(inputs, topk, faults)
        out = attended(inputs, read, scales, table, ctx, faults)
    result = {"kv_cache": cache, "index_cache": index_cache, "scores": scores, "topk": topk, "table": table}
    return result | {"ctx": ctx, "out": out, "k_scale": scales[0], "v_scale": scales[1]}


@functools.cache
def built(name):
    return build(CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_job_is_within_the_bounds(name):
    inputs = built(name)
    assert check(inputs, emulate(inputs)) == []


PERMITTED = ("exp off by 1 ulp", "another order", "contracted", "NaN kept", "on the matrix unit")


@pytest.mark.parametrize(
    "name", ["page_edges", "large", "sink", "codes", "zeros", "x448", "per_token", "bf16", "flydsl"]
)
@pytest.mark.parametrize("change", PERMITTED)
def test_what_the_derivation_permits_is_within_the_bounds(change, name):
    """The bounds hold for any v_exp_f32 of 1 ulp, any order of sums, with or without contraction, on the matrix
    unit."""
    assert check(built(name), emulate(built(name), change)) == []


@pytest.mark.parametrize("name", ["nan_blocks", "ties", "padding"])
def test_scores_of_nan_keys_may_be_nan(name):
    assert check(built(name), emulate(built(name), "NaN kept")) == []


# fault: the case it is planted in, and what must see it
FAULTS = {
    "slot -1 written": ("padding", "kv_cache"),
    "head pages swapped": ("dense", "kv_cache"),
    "V not transposed": ("page_edges", "kv_cache"),
    "K and V swapped": ("page_edges", "kv_cache"),
    "times the reciprocal": ("midpoints", "kv_cache"),
    "scale doubled": ("per_token", "k_scale"),
    "new tokens not read": ("query_4", "out"),
    "causal one more": ("causal", "scores"),
    "causal one less": ("causal", "scores"),
    "K's block table": ("select_4k", "scores"),
    "other index head": ("heads_4", "scores"),
    "scores halved": ("page_edges", "scores"),
    "mean score": ("page_edges", "scores"),
    "init over local": ("forced", "scores"),
    "tail of zeros": ("page_edges", "topk"),
    "NaN first": ("nan_blocks", "topk"),
    "smaller block wins": ("ties", "topk"),
    "in block order": ("select_4k", "topk"),
    "best block lost": ("select_4k", "topk"),
    "table not rebased": ("page_edges", "table"),
    "tail first": ("select_4k", "table"),
    "sorted blocks": ("select_4k", "table"),
    "head 0 for all": ("heads_4", "table"),
    "full tail": ("page_edges", "ctx"),
    "one key more": ("query_4", "out"),
    "one key less": ("page_edges", "out"),
    "P of the other treatment": ("chunk_edges", "out_p"),
    "P scaled by 1": ("x448", "out"),
    "P not quantised": ("chunk_edges", "out_p"),
    "P toward zero": ("chunk_edges", "out_p"),
    "l of rounded P": ("chunk_edges", "out_p"),
    "maximum of the split": ("select_4k", "out_p"),
    "vmax of the split": ("per_token_heads", "out_p"),
    "no k_scale": ("full_table", "out"),
    "no v_scale": ("full_table", "out_p"),
    "exp without log2e": ("page_edges", "out"),
    "V keys swapped": ("page_edges", "out"),
    "K read as V": ("page_edges", "out"),
    "q in bf16": ("page_edges", "out_p"),
    "o not rescaled": ("select_4k", "out"),
    "chunks of 128": ("select_4k", "out_p"),
    "chunks from the split's start": ("per_token_heads", "out_p"),
    "one split": ("eight_splits", "out_p"),
    "splits of whole chunks": ("eight_splits", "out_p"),
    "splits of the whole batch": ("mixed_splits", "out_p"),
    "splits weigh alike": ("page_edges", "out"),
    "wrong split order": ("chunk_edges", "out"),
    "last split lost": ("chunk_edges", "out"),
    "partials in float32": ("page_edges", "out_p"),
    "query heads swapped": ("page_edges", "out"),
}


def quantities(found):
    return {sentence.split(" at ")[0] for sentence in found}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    name, quantity = FAULTS[fault]
    also = ["NaN kept"] if fault == "NaN first" else []
    with np.errstate(invalid="ignore"):
        assert quantity in quantities(check(built(name), emulate(built(name), fault, *also)))


@pytest.mark.parametrize(
    "name", ["query_4", "heads_4", "dense", "per_token_heads", "bf16_dense", "large", "zeros", "x448"]
)
def test_the_reference_is_torch_attention(name):
    """In float64, from the emulation's own view of the caches."""
    inputs = built(name)
    outputs = emulate(inputs)
    attention = attend(inputs, inserted(inputs), outputs["table"], outputs["ctx"])
    q = inputs.q.view(BF16).astype(F).reshape(inputs.rows, inputs.case.kv_heads, 16, 128)
    q = q.astype(E4M3).astype(np.float64) if inputs.case.cache == "fp8" else q.astype(np.float64)
    expected = np.zeros(q.shape)
    for sequence, length in enumerate(outputs["ctx"].tolist()):
        row, head = divmod(sequence, inputs.case.kv_heads)
        scales = outputs["k_scale"], outputs["v_scale"]
        k, v, k_scale, v_scale = gathered(inputs, outputs["kv_cache"], scales, outputs["table"][sequence], head, length)
        scaled = (torch.from_numpy(x.astype(np.float64) * s[:, None]) for x, s in ((k, k_scale), (v, v_scale)))
        if length:
            expected[row, head] = torch.nn.functional.scaled_dot_product_attention(
                torch.from_numpy(q[row, head])[None], *(x[None] for x in scaled)
            )[0]
    assert np.abs(attention.out - expected.reshape(attention.out.shape)).max() < 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["select_4k", "chunk_edges", "sink", "bf16", "per_token"])
def test_the_sharp_bound_leaves_few_codes(name):
    """A bound too wide to see anything would pass every test above but the faults'."""
    inputs = built(name)
    table, ctx = tables(inputs, emulate(inputs)["topk"])
    attention = attend(inputs, inserted(inputs), table, ctx)
    assert (attention.low == attention.high).mean() > 0.2
    assert (attention.high - attention.low).mean() < 2.0**-7 * np.abs(attention.out).mean()


def test_scores_are_dot_products_to_a_few_units():
    inputs = built("long_8k")
    low, high = index_scores(inputs, inserted(inputs).index_cache)
    free = (low < 1e28) & np.isfinite(low)
    assert free.sum() == 4 * 63
    assert ((high - low)[free] < low[free] * 2.0**-14).all()


# ---- the matrix unit -------------------------------------------------------------------------------------------------


def rough_operands(name, rows=24):
    """E4M3 values [rows][128] twice: of every size, with strong cancellation and with gaps of many binades."""
    codes = integers(f"{name} a", (2, rows, 128), 0, 254)
    values = (codes + (codes >= 127)).astype(np.uint8).view(E4M3).astype(F)
    a, b = np.where(bits32(f"{name} c", (2, rows, 1)) & 1, values, (values * F(2**-7)).astype(E4M3).astype(F))
    a[::3, 64:], b[:, 64:] = -a[::3, :64], b[:, :64]
    return a, b


MODELS = {
    "default": DEFAULT,
    "groups of 32": MfmaModel(byte=GroupRule(32, Split.even_odd, c_window=25, product_overflow=0), half=GroupRule(16)),
    "groups of 64 in halves": MfmaModel(byte=GroupRule(64, Split.halves, product_overflow=0)),
    "one group": MfmaModel(byte=GroupRule(128, Split.none, product_overflow=0), half=GroupRule(128)),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("width", "bf16"), [(1, False), (2**-2, False), (2**-6, False), (1, True), (2**-6, True)])
def test_the_matrix_unit_is_within_its_bound(model, width, bf16):
    a, b = ((x * F(width)).astype(E4M3).astype(F) for x in rough_operands(f"rough {model}"))
    if bf16:
        b = (b * F(1 + 2**-7)).astype(BF16).astype(F)
    exact, bound = reference_module._products(a.astype(np.float64), b.astype(np.float64), fp8=not bf16)
    error = np.abs(dot(a, b, ("on the matrix unit", MODELS[model]), bf16) - exact)
    assert (error <= bound).all()
    assert (error > 0).any() or not bf16
    assert (bound < 2.0**-12 * (np.abs(a).astype(np.float64) @ np.abs(b).T + 2.0**4 * width**2)).all()


def test_a_matrix_unit_that_keeps_too_few_bits_is_seen():
    few = MfmaModel(byte=GroupRule(16, Split.even_odd, c_bits=14, product_overflow=0))
    for width in (1, 2**-2):
        a, b = ((x * F(width)).astype(E4M3).astype(F) for x in rough_operands("few bits"))
        exact, bound = reference_module._products(a.astype(np.float64), b.astype(np.float64), fp8=True)
        assert (np.abs(dot(a, b, ("on the matrix unit", few)) - exact) > bound).any()


# ---- exact steps -----------------------------------------------------------------------------------------------------


def scores_of(inputs, line):
    return np.broadcast_to(np.array(line, F), (1, inputs.rows, len(line)))


def test_selection_by_hand():
    inputs = built("no_local")  # 6000, 4100 and 100 tokens: 47, 33 and 1 blocks
    line = np.zeros(64, F)
    line[[5, 9, 30, 40]] = [7, 7, -np.inf, np.nan]
    topk = selected(inputs, scores_of(inputs, line))
    assert topk[0, 0].tolist() == [9, 5, 46, 45, 44, 43, 42, 41, 39, 38, 37, 36, 35, 34, 33, 32]
    assert topk[0, 1].tolist() == [9, 5, 32, 31, *range(29, 17, -1)]
    assert topk[0, 2].tolist() == [0] + [-1] * 15
    line[:] = -1
    line[3], line[7] = 0.0, -0.0
    assert selected(inputs, scores_of(inputs, line))[0, 0].tolist()[:3] == [3, 7, 46]
    line[:] = np.nan
    line[2] = -3e38
    assert selected(inputs, scores_of(inputs, line))[0, 1].tolist()[:3] == [2, 32, 31]


def test_tables_by_hand():
    inputs = built("dense")  # 2177, 140 and 15 tokens, four heads, dense planes
    topk = np.full((4, 3, 16), -1, np.int32)
    topk[1, 0, :4] = [4, 17, 18, 2]  # 17 is the own block, 18 lies in the future
    topk[2, 0, :2] = [3, 1]
    topk[3, 2, 0] = 0
    table, ctx = tables(inputs, topk)
    entries = inputs.block_table[0]
    wanted = [(int(entries[b]) * 8 + j) * 4 + 1 for b in (4, 2, 17) for j in range(8)]
    assert table[1].tolist() == wanted + [0] * 104
    assert ctx.tolist() == [0, 257, 256, 0, 0, 0, 0, 0, 0, 0, 0, 15]
    packed = dataclasses.replace(inputs, case=dataclasses.replace(inputs.case, packed=True))
    assert tables(packed, topk)[0][1, 0] == int(entries[4]) * 64 + 1


def test_inserted_rows_by_hand():
    """The first new token of a packed fp8 cache, byte for byte."""
    inputs = built("full_table")
    slot = int(inputs.slots[2])
    block, page, t = slot // 128, slot % 128 // 16, slot % 16
    caches = inserted(inputs)
    for side, (new, scale) in enumerate(((inputs.key, F(0.7)), (inputs.value, F(1.3)))):
        codes = torch.from_numpy(new[2, 0].view(BF16).astype(F) / scale).to(torch.float8_e4m3fn).view(torch.uint8)
        for d in range(128):
            place = d // 16 * 256 + t * 16 + d % 16 if side == 0 else d * 16 + t
            assert caches.kv_cache[block, side, page, 0, place] == codes[d]
    changed = caches.kv_cache != inputs.kv_cache
    assert changed.sum() == 4 * 256
    assert (caches.index_cache != inputs.index_cache).any(axis=2).sum() == 4


def test_scales_of_tokens_are_the_largest_over_448():
    inputs = built("per_token_heads")
    caches = inserted(inputs)
    for row, slot in enumerate(inputs.slots):
        for head in range(4):
            largest = torch.from_numpy(inputs.value[row, head].view(BF16).astype(F)).abs().max()
            assert caches.v_scale[head, slot] == (largest / 448).item()
    assert np.isnan(caches.v_scale).sum() == np.isnan(inputs.v_scale).sum() - 4 * inputs.rows


# ---- what is said ----------------------------------------------------------------------------------------------------


def test_sentences_name_the_place():
    inputs = built("page_edges")
    outputs = emulate(inputs)
    slot = int(inputs.slots[3])
    outputs["kv_cache"][slot // 128, 1, slot % 128 // 16, 0, 5] ^= 1
    outputs["index_cache"][0, 3, 9] ^= 0x80
    outputs["scores"][0, 6, 1] = 5
    outputs["table"][4, 100] = 7
    outputs["ctx"][2] = 17
    outputs["out"][5, 3, 60] = 0x7FC0
    found = "\n".join(check(inputs, outputs))
    assert f"kv_cache at block {slot // 128}, side 1, page {slot % 128 // 16}, kv head 0, element 5: got" in found
    assert "index_cache at block 0, token 3, dim 9: got" in found
    assert "(1 elements differ)" in found
    assert "scores at index head 0, row 6, block 1: got 5, expected 1e+29 .. 1e+29 (1 blocks)" in found
    assert "table at sequence 4, place 100: got 7, expected 0" in found
    assert "ctx at sequence 2: got 17, expected 16" in found
    assert "out at row 5, query head 3, dim 60: got nan" in found
    assert "out_p at row 5, query head 3, dim 60: got nan" in found


def test_wrong_arrays_and_values_are_refused():
    inputs = built("page_edges")
    outputs = emulate(inputs)
    with pytest.raises(ValueError, match=r"out is uint16 \(7, 128\); expected uint16 \(7, 16, 128\)"):
        check(inputs, outputs | {"out": outputs["out"][:, 0]})
    with pytest.raises(ValueError, match=r"topk is int64 .* expected int32 \(1, 7, 16\)"):
        check(inputs, outputs | {"topk": outputs["topk"].astype(np.int64)})
    with pytest.raises(KeyError, match="ctx"):
        check(inputs, {name: array for name, array in outputs.items() if name != "ctx"})
    large = dataclasses.replace(inputs, key=np.full_like(inputs.key, F(500).astype(BF16).view(np.uint16)))
    with pytest.raises(ValueError, match="a new token leaves the E4M3 range"):
        check(large, outputs)
    far = dataclasses.replace(inputs, q=np.full_like(inputs.q, 0x7FC0))
    with pytest.raises(ValueError, match="a query leaves the E4M3 range"):
        check(far, outputs)


def test_rows_without_tokens_are_zero():
    inputs = built("padding")
    outputs = emulate(inputs)
    dead = np.flatnonzero(inputs.position < 0)
    assert dead.size == 5
    assert (outputs["ctx"][dead] == 0).all()
    outputs["out"][dead[1], 0, 0] = 0x3F80
    assert quantities(check(inputs, outputs)) == {"out", "out_p"}


def test_the_reference_shares_no_code_with_the_kernels():
    names = {getattr(value, "__module__", "") or "" for value in vars(reference_module).values()}
    kernels = {name for name in names if name.startswith("codegen.kernels")}
    own = "codegen.kernels.sparse_attention."
    assert kernels == {"codegen.kernels.bounds", own + "cases", own + "reference"}
