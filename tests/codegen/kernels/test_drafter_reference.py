"""The float64 reference of the drafter attention against a float32 emulation of the kernel's steps, right and wrong.

The emulation follows the README step by step, with blocks and partitions but without lanes; a fault is one deviation.
"""

from __future__ import annotations

import dataclasses
import functools

import ml_dtypes
import numpy as np
import pytest
import torch

from codegen.kernels import bounds
from codegen.kernels.drafter_attention import reference as reference_module
from codegen.kernels.drafter_attention.cases import CASES, build
from codegen.kernels.drafter_attention.reference import check_outputs, dequantised, reference
from gfx950.arithmetic.mfma import Format, GroupRule, MfmaModel, Operand, Split, multiply
from gfx950.random_bits import bell, bits32, integers

F = np.float32
E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
LOG2E = F(1.4426950408889634)
QK_C = F(1.4426950408889634 / np.sqrt(128.0))
SM_SCALE = F(1 / np.sqrt(128.0))
LANE_DIMS = np.array(
    [[4 * li + x for x in range(4)] + [32 + 4 * li + x for x in range(4)] for li in range(8)]
    + [[64 + 4 * li + x for x in range(4)] + [96 + 4 * li + x for x in range(4)] for li in range(8)]
)


def fma(a, b, c):
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(F)


def bf16_values(bits):
    return bits.view(BF16).astype(F)


def norm_rope(x, gamma, turn, faults):
    """float32 [..., 128] -> float32 rounded to bf16, in the kernel's order of sums."""
    lanes = (x * x)[..., LANE_DIMS]
    total = lanes[..., 0]
    for element in reversed(range(1, 8)) if "another order" in faults else range(1, 8):
        total = total + lanes[..., element]
    for offset in (8, 4, 2, 1):
        total = total + total[..., np.arange(16) ^ offset]
    mean = total[..., :1] * F(1 / 64 if "mean of 64" in faults else 1 / 128)
    rr = (1 / np.sqrt((mean + F(1e-5 if "eps 1e-5" in faults else 1e-6)).astype(np.float64))).astype(F)
    if "rsq off by 1 ulp" in faults:
        rr = off_by_one_ulp(rr, "rsq")
    n = (x * rr) * (gamma if "gamma without 1" in faults else gamma + F(1))
    cos, sin = turn[..., :32], turn[..., 32:]
    first, second = slice(0, 32), slice(32, 64)
    if "interleaved rope" in faults:
        first, second = slice(0, 64, 2), slice(1, 64, 2)
    a, b = n[..., first].copy(), n[..., second].copy()
    sign = F(-1 if "rope sign" in faults else 1)
    n[..., first], n[..., second] = fma(a, cos, -sign * (b * sin)), fma(b, cos, sign * (a * sin))
    return n if "no bf16" in faults else n.astype(BF16).astype(F)


def quantised_rows(inputs, faults):
    """q8 values float32 [T][16][128], new cache rows uint8 [T][256]."""
    x = bf16_values(inputs.qkv).reshape(inputs.tokens, 18, 128)
    turn = bf16_values(inputs.cos_sin[inputs.positions - (1 if "position" in faults else 0)])
    gamma_q, gamma_k = bf16_values(inputs.qn), bf16_values(inputs.kn)
    q = norm_rope(x[:, :16], gamma_q, turn[:, None], faults)
    k = norm_rope(x[:, 16], gamma_q if "gamma of q for k" in faults else gamma_k, turn, faults)
    if "q in bf16" not in faults:
        q = q.astype(E4M3).astype(F)
    rows = np.concatenate([k.astype(E4M3).view(np.uint8), x[:, 17].astype(E4M3).view(np.uint8)], axis=1)
    return q, rows


def written_cache(inputs, rows, faults):
    cache = inputs.cache.copy().reshape(-1, 256)
    for slot, row in zip(inputs.slots, rows, strict=True):
        if slot >= 0 or "slot -1 written" in faults:
            cache[slot] = row
    return cache.reshape(inputs.cache.shape)


def truncated_p(p):
    """E4M3 toward zero."""
    nearest = p.astype(E4M3).astype(F)
    unit = np.exp2(np.maximum(np.floor(np.log2(np.maximum(p, F(1e-30)))), -6) - 3).astype(F)
    return np.where(nearest > p, nearest - unit, nearest)


def off_by_one_ulp(x, name):
    """Each value as it is, or one float32 up or down; 0, 1 and infinity stay."""
    step = integers(name, x.shape, -1, 2).astype(np.int32)
    moved = (x.view(np.int32) + step).view(F)
    return np.where((x == 0) | (x == 1) | ~np.isfinite(x), x, moved)


ON_MATRIX_UNIT = "on the matrix unit"  # an option of the emulation, not a fault
KERNEL_KEYS = np.array([64 * (k // 64) + 16 * (k % 16 // 4) + 4 * (k % 64 // 16) + k % 4 for k in range(128)])


def dot(a, b, c, options):
    """c + a b^T: one rounding to float32 and one add, or the chip's own arithmetic."""
    if ON_MATRIX_UNIT in options:
        operands = (Operand(x.astype(E4M3).view(np.uint8).astype(np.uint16), Format.fp8) for x in (a, b))
        return multiply(*operands, c.view(np.uint32)).view(F)
    return c + np.einsum("ik,jk->ij", a.astype(np.float64), b.astype(np.float64)).astype(F)


def fold_block(state, s, v, faults):
    """One block into (m, l, o): s float32 [112][128] with -inf where masked, v float32 [128][128]."""
    m_run, l_run, o_run = state
    m = np.maximum(m_run, s.max(axis=1))
    safe = np.where(m == -np.inf, F(0), m)
    alpha = np.exp2((m_run - safe) * QK_C)
    off = (safe * QK_C - F(0 if "P unscaled" in faults else 8))[:, None]
    p = np.exp2(fma(s, QK_C, -off) if "contracted" in faults else s * QK_C - off)
    if "exp off by 1 ulp" in faults:
        p = off_by_one_ulp(p, f"exp {float(l_run.sum())}")
    if "exp without log2e" in faults:
        p = np.exp2(s * SM_SCALE - (safe * SM_SCALE - F(8))[:, None])
    p8 = truncated_p(p) if "P toward zero" in faults else p.astype(E4M3).astype(F)
    if "P not quantised" in faults:
        p8 = p
    summed = p8 if "l of rounded P" in faults else p
    total = np.add.reduce(summed[:, ::-1] if "another order" in faults else summed, axis=1, dtype=F)
    if "V in natural order" in faults:
        group, step = np.divmod(np.arange(128), 32)
        v = v[16 * (step // 4) + 4 * group + step % 4]
    o = o_run * (F(1) if "o not rescaled" in faults else alpha[:, None])
    return m, l_run * alpha + total, dot(p8[:, KERNEL_KEYS], v[KERNEL_KEYS].T, o, faults)


def staged_block(inputs, cache, request, block, lo, hi):
    """K and V of a block as float32, zero outside [lo, hi], with the kernel's clamps."""
    column = min(max(min(block, hi // 128), 0), inputs.block_table.shape[1] - 1)
    phys = min(max(int(inputs.block_table[request, column]), 0), len(cache) - 1)
    keys = block * 128 + np.arange(128)
    codes = np.where(((keys >= lo) & (keys <= hi))[:, None], cache[phys], 0).astype(np.uint8)
    values = codes.view(E4M3).astype(F)
    return keys, values[:, :128], values[:, 128:]


def visible_keys(keys, first, lo, hi, faults):
    row = first + np.arange(7)[:, None]
    visible = (keys > row - 4096) & (keys >= lo) & (keys <= hi)
    if "window longer by 1" in faults:
        visible = (keys >= row - 4096) & (keys >= lo) & (keys <= hi)
    if "window shorter by 1" in faults:
        visible &= keys > row - 4095
    if "no row mask" in faults:
        visible = np.broadcast_to((keys >= lo) & (keys <= hi), visible.shape)
    if "no hi mask" in faults:
        visible = (keys > row - 4096) & (keys >= lo)
    if "last key lost" in faults:
        visible &= keys < hi
    if "causal" in faults:
        visible &= keys <= row
    return np.repeat(visible, 16, axis=0)


def partials(inputs, cache, q, request, faults):
    first = int(inputs.positions[request * 7])
    lo = max(first - 4095, 0)
    hi = min(int(inputs.seq_lens[request]) - 1, (lo // 128 + 34) * 128 - 1)
    blocks = range(lo // 128, hi // 128 + 1)
    size = -(-len(blocks) // inputs.na)
    q_rows = q[request * 7 : request * 7 + 7].reshape(112, 128)
    for i in range(inputs.na):
        state = np.full(112, -np.inf, F), np.zeros(112, F), np.zeros((112, 128), F)
        for block in blocks[i * size : (i + 1) * size]:
            keys, k, v = staged_block(inputs, cache, request, block, lo, hi)
            s = np.where(
                visible_keys(keys, first, lo, hi, faults), dot(q_rows, k, np.zeros((112, 128), F), faults), F(-np.inf)
            )
            state = fold_block(state, s, k if "K read as V" in faults else v, faults)
        yield state[0] * (F(1) if "m in raw units" in faults else SM_SCALE), *state[1:]


def merged(parts, faults):
    parts = list(parts)[:-1] if "last partition lost" in faults else list(parts)
    top = np.maximum.reduce([m for m, _, _ in parts]) if parts else np.full(112, -np.inf, F)
    total, out = np.zeros(112, F), np.zeros((112, 128), F)
    for m, l_part, o in parts:
        w = np.where(top == -np.inf, F(0), np.exp2((m - np.where(top == -np.inf, F(0), top)) * LOG2E))
        if "partials not weighted" in faults:
            w = np.where(m == -np.inf, F(0), F(1))
        if "weights of base e" in faults:
            w = np.where(top == -np.inf, F(0), np.exp2(m - np.where(top == -np.inf, F(0), top)))
        total, out = total + l_part * w, out + o * w[:, None]
    return np.where(total[:, None] == 0, F(0), out / np.where(total == 0, F(1), total)[:, None])


def mxfp8(out, faults):
    """bf16 values as float32 [T][2048] -> a8, as8 by RoundUp."""
    groups = out.reshape(len(out), 64, 32)
    bits = (np.abs(groups).max(axis=2) * F(1 / 448)).astype(F).view(np.uint32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0) * (0 if "scale rounded down" in faults else 1)
    exponent = np.clip(exponent, 1, 254).astype(np.int32)
    scaled = np.clip(np.ldexp(groups, (127 - exponent)[..., None]), F(-448), F(448))
    return scaled.astype(E4M3).view(np.uint8).reshape(len(out), 2048), exponent.astype(np.uint8)


def emulate(inputs, *faults):
    q, rows = quantised_rows(inputs, faults)
    cache = written_cache(inputs, rows, faults)
    read = inputs.cache if "new rows not read" in faults else cache
    if "new rows not read" in faults:
        read = np.where((read & 0x7F) == 0x7F, np.uint8(0), read)
    with np.errstate(invalid="ignore", over="ignore"):
        out = [merged(partials(inputs, read, q, r, faults), faults) for r in range(inputs.requests)]
    out = np.concatenate(out).reshape(inputs.tokens, 16, 128)
    if "heads swapped" in faults:
        out = out[:, np.arange(16) ^ 1]
    if "rows swapped" in faults:
        out = out.reshape(-1, 7, 16, 128)[:, ::-1].reshape(out.shape)
    a8, as8 = mxfp8(out.astype(BF16).astype(F).reshape(inputs.tokens, 2048), faults)
    return a8, as8, cache


@functools.cache
def built(name):
    inputs = build(CASES[name])
    return inputs, reference(inputs)


@pytest.mark.parametrize("name", CASES)
def test_the_emulated_kernel_is_within_the_bounds(name):
    inputs, expected = built(name)
    assert [str(v) for v in check_outputs(inputs, expected, *emulate(inputs))] == []


PERMITTED = ("exp off by 1 ulp", "rsq off by 1 ulp", "another order", "contracted")


@pytest.mark.parametrize("name", ["default", "large", "sink", "codes", "zeros"])
@pytest.mark.parametrize("change", PERMITTED)
def test_what_the_derivation_permits_is_within_the_bounds(change, name):
    """The bounds hold for any v_exp_f32 and v_rsq_f32 of 1 ulp, any order of sums, and with or without contraction."""
    inputs, expected = built(name)
    assert [str(v) for v in check_outputs(inputs, expected, *emulate(inputs, change))] == []


def torch_attention(inputs, request):
    """out of one request by torch in float64, from the raw cache: float64 [7][16][128]."""
    token = slice(request * 7, request * 7 + 7)
    x = torch.from_numpy(inputs.qkv[token].view(BF16).astype(np.float64)).reshape(7, 18, 128)
    cos, sin = torch.from_numpy(inputs.cos_sin[inputs.positions[token]].view(BF16).astype(np.float64)).chunk(2, dim=1)
    heads = []
    for part, gamma in ((x[:, :16], inputs.qn), (x[:, 16:17], inputs.kn)):
        weight = 1 + torch.from_numpy(gamma.view(BF16).astype(np.float64))
        n = torch.nn.functional.rms_norm(part, (128,), weight, inputs.eps)
        a, b, rest = n.split([32, 32, 64], dim=2)
        c, s = cos[:, None], sin[:, None]
        turned = torch.cat([a * c - b * s, a * s + b * c, rest], dim=2).numpy()
        in_bf16 = bounds.nearest(turned, 8, -133)  # torch would round twice, over float32
        heads.append(torch.from_numpy(in_bf16).to(torch.float8_e4m3fn))
    new_keys = torch.cat([heads[1], x[:, 17:].to(torch.float8_e4m3fn)], dim=2).view(torch.uint8)[:, 0]
    last = int(inputs.seq_lens[request])
    position = torch.arange(max(int(inputs.positions[token][0]) - 4095, 0), last)
    pages = torch.from_numpy(inputs.block_table[request])[position // 128].long()
    rows = torch.from_numpy(inputs.cache.copy())[pages, position % 128]
    rows[position >= last - 7] = new_keys
    k, v = (half.contiguous().view(torch.float8_e4m3fn).double() for half in rows.split(128, dim=1))
    distance = torch.from_numpy(inputs.positions[token])[:, None] - position[None]
    q = heads[0].double().transpose(0, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k.expand(16, -1, -1), v.expand(16, -1, -1), attn_mask=distance < 4096
    )
    return out.transpose(0, 1).numpy()


@pytest.mark.parametrize("name", ["default", "straddle", "partitions_34", "large", "zeros"])
def test_the_reference_is_torch_attention(name):
    inputs, expected = built(name)
    got = np.concatenate([torch_attention(inputs, request) for request in range(inputs.requests)])
    assert np.abs(got - expected.out).max() < 1e-12 * np.abs(got).max()


FAULTS = {
    "no row mask": "partitions_34",
    "window longer by 1": "partitions_34",
    "window shorter by 1": "blocks_34",
    "no hi mask": "small",
    "last key lost": "default",
    "causal": "small",
    "P unscaled": "default",
    "P toward zero": "default",
    "P not quantised": "default",
    "l of rounded P": "first_tokens",
    "exp without log2e": "small",
    "V in natural order": "small",
    "K read as V": "small",
    "o not rescaled": "one_partition",
    "m in raw units": "default",
    "weights of base e": "default",
    "partials not weighted": "default",
    "last partition lost": "default",
    "heads swapped": "small",
    "rows swapped": "small",
    "interleaved rope": "small",
    "rope sign": "small",
    "position": "small",
    "gamma without 1": "small",
    "gamma of q for k": "small",
    "mean of 64": "small",
    "eps 1e-5": "zeros",
    "no bf16": "ragged_16",
    "q in bf16": "small",
    "new rows not read": "small",
    "slot -1 written": "padded",
    "scale rounded down": "small",
}


@functools.cache
def found_by(fault):
    """The quantities in which the check sees the fault."""
    inputs, expected = built(FAULTS[fault])
    with np.errstate(invalid="ignore"):
        return {violation.quantity for violation in check_outputs(inputs, expected, *emulate(inputs, fault))}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_bounds(fault):
    assert found_by(fault)


def test_the_unquantised_bound_alone_finds_most_faults():
    """`out` knows nothing of partitions and of P's rounding; it still sees every fault that moves an output."""
    rounding_only = {"P unscaled", "P toward zero", "P not quantised", "l of rounded P", "no bf16", "q in bf16"}
    one_key_of_4096 = {"no row mask", "window longer by 1", "window shorter by 1"}
    missed = {fault for fault in FAULTS if "out" not in found_by(fault)}
    assert missed <= rounding_only | one_key_of_4096 | {"slot -1 written"}


MODELS = {
    "gfx942": MfmaModel(),
    "groups of 32": MfmaModel(byte=GroupRule(32, Split.even_odd, c_window=25, product_overflow=0)),
    "groups of 64 in halves": MfmaModel(byte=GroupRule(64, Split.halves, product_overflow=0)),
    "one group": MfmaModel(byte=GroupRule(128, Split.none, product_overflow=0)),
}


def rough_dots(name):
    """E4M3 codes [24][128] twice: of every size, with strong cancellation and with gaps of many binades."""
    codes = integers(f"{name} a", (2, 24, 128), 0, 254)
    codes = (codes + (codes >= 127)).astype(np.uint8)
    small = (bell(f"{name} b", (2, 24, 128)) * F(0.02)).astype(E4M3).view(np.uint8)
    a, b = np.where(bits32(f"{name} c", (2, 24, 1)) & 1, codes, small)
    a[::3, 64:], b[:, 64:] = a[::3, :64] ^ 0x80, b[:, :64]
    return a, b


def error_and_bound(name, model):
    a, b = rough_dots(name)
    operands = (Operand(codes.astype(np.uint16), Format.fp8) for codes in (a, b))
    result = multiply(*operands, np.zeros((24, 24), np.uint32), model).view(F)
    x, y = a.view(E4M3).astype(np.float64), b.view(E4M3).astype(np.float64)
    return np.abs(result - x @ y.T), reference_module._mfma_error(x, y, np.abs(x) @ np.abs(y).T)


@pytest.mark.parametrize("model", MODELS)
def test_the_matrix_unit_is_within_its_bound(model):
    error, bound = error_and_bound(model, MODELS[model])
    assert (error <= bound).all()
    assert (error > 0).any()


def test_a_matrix_unit_that_keeps_too_few_bits_is_seen():
    few = MfmaModel(byte=GroupRule(16, Split.even_odd, c_bits=14, product_overflow=0))
    error, bound = error_and_bound("few bits", few)
    assert (error > bound).any()


@pytest.mark.parametrize("name", ["small", "padded", "codes", "large", "tiny"])
def test_the_emulation_on_the_matrix_unit_is_within_the_bounds(name):
    inputs, expected = built(name)
    assert [str(v) for v in check_outputs(inputs, expected, *emulate(inputs, ON_MATRIX_UNIT))] == []


def test_scale_bytes_are_those_of_the_float32_rule_for_every_bf16():
    """The reference's exact rule and the kernel's f32 product with 1/448 choose the same byte for every finite bf16."""
    amax = (np.arange(0x7F80, dtype=np.uint32) << 16).view(F)
    bits = (amax * F(1 / 448)).view(np.uint32)
    by_float32 = np.clip((bits >> 23) + ((bits & 0x7FFFFF) != 0), 1, 254)
    groups = np.zeros((len(amax), 32))
    groups[np.arange(len(amax)), np.arange(len(amax)) % 32] = amax
    got = reference_module._scale_bytes(groups.reshape(-1, 16, 128))
    assert got.reshape(-1).tolist() == by_float32.tolist()


def test_padding_gives_zero_rows_with_the_scale_of_a_zero_block():
    _, expected = built("all_padded")
    assert (expected.out == 0).all()
    assert (expected.bound == 0).all()
    assert (expected.scale_low == 1).all()
    assert (expected.scale_high == 1).all()
    _, stale = built("stale_lengths")
    live = (stale.out != 0).any(axis=(1, 2)).reshape(4, 7)
    assert live.tolist() == [[False] * 7, [True] * 3 + [False] * 4, [False] * 7, [True] * 7]


def test_new_rows_outside_their_admissible_codes_are_found():
    inputs, expected = built("small")
    a8, as8, cache = emulate(inputs)
    slot = int(inputs.slots[3])
    rows = expected.cache_rows
    doubtful = dataclasses.replace(rows, high=rows.high.copy())
    doubtful.high[3, 7] = rows.codes[3, 7] + 1
    assert rows.codes[3, 7] < 0x7E
    cache.reshape(-1, 256)[slot, 7] += 1
    [found] = check_outputs(inputs, expected, a8, as8, cache)
    assert str(found).startswith(f"cache at slot {slot} (K byte 7): got {rows.codes[3, 7] + 1}, expected")
    assert check_outputs(inputs, dataclasses.replace(expected, cache_rows=doubtful), a8, as8, cache) == []


def test_violations_name_the_place():
    inputs, expected = built("small")
    a8, as8, cache = emulate(inputs)
    a8[4, 3 * 128 + 17] = 0x7F
    as8[6, 9] += 1
    cache[0, 5, 200] ^= 0x80
    found = [str(v) for v in check_outputs(inputs, expected, a8, as8, cache)]
    assert any("out at token 4 head 3 dim 17: got nan" in text for text in found)
    assert any("scale at token 6 head 2 dims 32.." in text for text in found)
    assert any("cache at slot 5 (V byte 72)" in text for text in found)


def test_wrong_arrays_are_refused():
    inputs, expected = built("small")
    a8, as8, cache = emulate(inputs)
    with pytest.raises(ValueError, match=r"a8 is uint8 \(7, 64\); expected uint8 \(7, 2048\)"):
        check_outputs(inputs, expected, as8, as8, cache)
    with pytest.raises(ValueError, match="cache is int8"):
        check_outputs(inputs, expected, a8, as8, cache.view(np.int8))


def test_values_out_of_the_e4m3_range_are_refused():
    inputs = build(CASES["small"])
    large_gamma = dataclasses.replace(inputs, qn=np.full(128, F(300).astype(BF16).view(np.uint16)))
    with pytest.raises(ValueError, match="a q leaves the E4M3 range"):
        reference(large_gamma)
    large_v = dataclasses.replace(inputs, qkv=inputs.qkv.copy())
    large_v.qkv[0, 17 * 128] = F(500).astype(BF16).view(np.uint16)
    with pytest.raises(ValueError, match="a v leaves the E4M3 range"):
        reference(large_v)


def test_dequantised_is_code_times_scale():
    a8 = np.full((1, 2048), 0x38, np.uint8)  # 1.0
    as8 = np.arange(64, dtype=np.uint8)[None] + 100
    got = dequantised(a8, as8).reshape(64, 32)
    assert (got == np.exp2(np.arange(64) + 100.0 - 127)[:, None]).all()
