"""The attend kernels: source against gfx950 code, both against numpy in the stated order; resources, races, checks."""

from __future__ import annotations

import dataclasses
import functools

import ml_dtypes
import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.kernels.sparse_attention import attend, chunk
from codegen.kernels.sparse_attention.launch import Runner, program
from codegen.kernels.sparse_attention.reduce import REDUCE
from codegen.language import barrier, trace
from codegen.run_source import run_source
from emu import mfma
from emu.dispatch import RunOptions
from emu.observers import BankConflicts
from gfx950.arithmetic.native import NATIVES
from gfx950.random_bits import bell, bits32, integers, uniform

VARIANTS = ("unscaled", "x448", "per_token", "bf16")
CONTEXTS = (300, 1, 0, 15, 16, 17, 255, 256, 257, 2048, 511)
FIELDS = ("out", "o", "m", "l")
F32, BF16, E4M3 = np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
SCALE = float(F32(128) ** F32(-0.5))
LOG2_E = F32(np.log2(np.e))


@functools.cache
def compiled():
    return compile_kernels([program(kernel) for kernel in (*attend.ATTEND, *REDUCE)])


@functools.cache
def machine():
    return Runner(code_object=compiled().object)


# ---- inputs: everything that no sequence may see is poison -----------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Inputs:
    """`attend.attend`'s arrays and keywords."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    table: np.ndarray
    ctx: np.ndarray
    k_scale: np.ndarray | None = None
    v_scale: np.ndarray | None = None
    scale: float = SCALE
    splits: int = 1
    p: str = "unscaled"
    reduce: str = "hip"

    def run(self, runner, **changes):
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | changes
        return attend.attend(runner, *(given.pop(name) for name in ("q", "k", "v", "table", "ctx")), **given)

    @property
    def fp8(self):
        return self.k.dtype == np.uint8

    @property
    def per_token(self):
        return self.k_scale is not None and self.k_scale.ndim == 2


def codes(values, fp8):
    return values.astype(E4M3).view(np.uint8) if fp8 else values.astype(BF16).view(np.uint16)


def paged(rows, side, fp8):
    """Pages [2048] of rows [pages][16 tokens][128]."""
    x = 16 if fp8 else 8
    if side == "k":
        return rows.reshape(-1, 16, 128 // x, x).transpose(0, 2, 1, 3).reshape(-1, 2048).copy()
    return rows.reshape(-1, 16 // x, x, 128).transpose(0, 1, 3, 2).reshape(-1, 2048).copy()


def unpaged(pages, side):
    """Rows [pages][16 tokens][128] of pages."""
    x = 16 if pages.dtype == np.uint8 else 8
    if side == "k":
        return pages.reshape(-1, 128 // x, 16, x).transpose(0, 2, 1, 3).reshape(-1, 16, 128)
    return pages.reshape(-1, 16 // x, 128, x).transpose(0, 1, 3, 2).reshape(-1, 16, 128)


def build(variant, contexts=CONTEXTS, splits=1, sharp=1.0, poisoned=True, name="attend"):
    """Sequences with these contexts, their pages all over a cache. sharp: the size of q."""
    fp8, key = variant != "bf16", f"sparse {name} {variant}"
    ctx, width = np.array(contexts, np.int32), max(-(-max(contexts) // 16), 1) + 2
    used = -(-ctx // 16)
    pages = int(used.sum()) + 3
    table = bits32(f"{key} stale", (len(ctx), width)).view(np.int32).copy()  # huge and negative
    ids, seen = np.argsort(bits32(f"{key} ids", pages), kind="stable")[:-3], np.zeros((pages, 16), bool)
    for row, count in enumerate(used):
        mine, ids = ids[:count], ids[count:]
        table[row, :count] = mine
        seen[mine] = (np.arange(count * 16) < ctx[row]).reshape(-1, 16)
    k, v = (codes(bell(f"{key} {side}", (pages, 16, 128)), fp8) for side in "kv")
    scales = {}
    if variant == "per_token":
        spread = [np.exp2(uniform(f"{key} scale {side}", (pages, 16)) * F32(4) - F32(2)).astype(F32) for side in "kv"]
        scales = {"k_scale": spread[0], "v_scale": spread[1]}
    elif fp8:
        scales = {"k_scale": np.array([0.7], F32), "v_scale": np.array([1.3], F32)}
    if poisoned:
        k[~seen] = v[~seen] = 0x7F if fp8 else 0x7FC0
        for array in scales.values():
            if array.ndim == 2:
                array[~seen] = np.nan
    q = (bell(f"{key} q", (len(ctx), 16, 128)) * F32(sharp)).astype(BF16).view(np.uint16)
    p = "x448" if variant == "x448" else "unscaled"
    return Inputs(q, paged(k, "k", fp8), paged(v, "v", fp8), table, ctx, **scales, splits=splits, p=p)


# ---- the oracle: whole matrices, numpy's float32, the matrix unit's arithmetic on matrices ---------------------------


def exp2(x):
    x = np.ascontiguousarray(x, F32)
    padded = np.zeros(-(-x.size // 64) * 64, np.uint32)
    padded[: x.size] = x.view(np.uint32).ravel()
    return NATIVES["v_exp_f32"](padded.reshape(-1, 1, 64)).reshape(-1)[: x.size].view(F32).reshape(x.shape)


def larger(a, b):
    zeros = (a == 0) & (b == 0)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(zeros, a + b, np.maximum(a, b))))


def contracted(a, b, order):
    """a [..., 16, n] times b [..., n, 16], 32 elements a step, their numbers in `order` [steps][32]."""
    name = "v_mfma_f32_16x16x32_fp8_fp8" if a.dtype == E4M3 else "v_mfma_f32_16x16x32_bf16"
    tile = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), 16, 16), F32)
    for step in order:
        left, right = a[..., step], b[..., step, :]
        tile = mfma(name, np.broadcast_to(left, (*tile.shape[:-2], 16, 32)).copy(),
                    np.broadcast_to(right, (*tile.shape[:-2], 32, 16)).copy(), tile)  # fmt: skip
    return tile


def order_of(count, fp8):
    """The elements of each step: an fp8 operand has 8 of every 16 in its step, a bf16 one 32 in a row."""
    if not fp8:
        return np.arange(count).reshape(-1, 32)
    return np.arange(count).reshape(-1, 4, 2, 8).transpose(0, 2, 1, 3).reshape(-1, 32)


def by_lane(x):
    """[256 keys][16 heads] as [wave][page of the wave and key of the group, in order][group][head]."""
    return x.reshape(4, 4, 4, 4, 16).transpose(1, 0, 3, 2, 4).reshape(4, 16, 4, 16)


def summed(p):
    lanes = by_lane(p)
    total = lanes[:, 0]
    for x in range(1, 16):
        total = total + lanes[:, x]
    waves = (total[:, 0] + total[:, 2]) + (total[:, 1] + total[:, 3])
    return (waves[0] + waves[2]) + (waves[1] + waves[3])


def weights_of(inputs, row, pages, seen, m):
    """The maximum after a chunk, and P [256][16]."""
    dtype = E4M3 if inputs.fp8 else BF16
    q = inputs.q[row].view(BF16).astype(dtype)
    k = unpaged(inputs.k, "k")[pages].view(dtype)
    acc = contracted(k, q.T, order_of(128, inputs.fp8)).reshape(256, 16)
    scale = F32(inputs.scale)
    if inputs.fp8:
        scale = scale * (inputs.k_scale[pages].reshape(256, 1) if inputs.per_token else inputs.k_scale[0])
    score = np.where(seen, scale * acc, F32(-3.4e38))
    top = functools.reduce(larger, [m, *score])
    return top, exp2((score - top) * LOG2_E)


def scaled_of(inputs, pages, seen, p):
    """P as it is rounded, and what PV is multiplied by."""
    if inputs.per_token:
        v_scale = np.where(seen, inputs.v_scale[pages].reshape(256, 1), F32(0))
        return (v_scale * F32(448)) / (v_scale.max() + F32(1e-8)) * p, v_scale.max() / F32(448)
    if inputs.p == "x448":
        return p * F32(448), inputs.v_scale[0] / F32(448)
    return p, inputs.v_scale[0] if inputs.fp8 else F32(1)


def chunk_of(inputs, row, number, first, end, state):
    """One chunk folded into (m, l, o [128][16]) of a sequence's 16 heads."""
    m, l, o = state  # noqa: E741
    dtype, key = E4M3 if inputs.fp8 else BF16, np.arange(number * 256, number * 256 + 256)
    pages = inputs.table[row, np.minimum(key[::16] // 16, (end - 1) // 16)]
    seen = ((key >= first) & (key < end))[:, None]
    top, p = weights_of(inputs, row, pages, seen, m)
    scaled, v_scale = scaled_of(inputs, pages, seen, p)
    v = unpaged(inputs.v, "v")[pages].reshape(256, 128).copy()
    v[key >= inputs.ctx[row]] = 0
    v_tiles = v.T.reshape(8, 16, 256).view(dtype)
    pv = contracted(v_tiles, scaled.astype(dtype), order_of(256, inputs.fp8)).reshape(128, 16)
    alpha = exp2((m - top) * LOG2_E)
    return top, alpha * l + summed(p), o * alpha + v_scale * pv


def oracle(inputs):
    sequences, splits = len(inputs.q), inputs.splits
    o = np.zeros((sequences, splits, 16, 128), BF16)
    m, l = np.full((sequences, splits, 16), -np.inf, F32), np.zeros((sequences, splits, 16), F32)  # noqa: E741
    for row, ctx in enumerate(inputs.ctx.tolist()):
        size = -(-ctx // splits)
        for split in range(splits):
            first, end = size * split, min(ctx, size * (split + 1))
            if first >= end:
                continue
            state = m[row, split], l[row, split], np.zeros((128, 16), F32)
            for number in range(first // 256, -(-end // 256)):
                state = chunk_of(inputs, row, number, first, end, state)
            m[row, split], l[row, split] = state[:2]
            o[row, split] = (state[2] * (F32(1) / state[1])).T.astype(BF16)
    return o.view(np.uint16), m, l


def check(inputs):
    with np.errstate(all="ignore"):
        o, m, l = oracle(inputs)  # noqa: E741
    source = inputs.run(Runner())
    for field, wanted in zip(("o", "m", "l"), (o, m, l), strict=True):
        np.testing.assert_array_equal(getattr(source, field).view(np.uint8), wanted.view(np.uint8), err_msg=field)
    ran = inputs.run(machine())
    for field in FIELDS:
        np.testing.assert_array_equal(
            getattr(ran, field).view(np.uint8), getattr(source, field).view(np.uint8), err_msg=field
        )
    return source


@pytest.mark.parametrize("splits", [1, 3, 8])
@pytest.mark.parametrize("variant", VARIANTS)
def test_source_is_machine_code_is_the_oracle(variant, splits):
    check(build(variant, splits=splits))


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_splits_than_keys_and_sharp_scores(variant):
    """64 splits of a few keys, most of them empty; scores so far apart that P is small, 0 or 1."""
    inputs = build(variant, (40, 1, 0, 150), splits=64, sharp=12.0, name="sharp")
    result = check(inputs)
    size = -(-inputs.ctx // 64)
    used = -(-inputs.ctx // np.maximum(size, 1))
    empty = np.arange(64) >= used[:, None]
    assert np.isneginf(result.m[empty]).all()
    assert not result.l[empty].any()
    assert not result.o[empty].any()
    assert (result.l[~empty] >= 1).all()


def random_inputs(seed):
    draw = integers(f"sparse attend {seed}", 12, 0, 1 << 20).tolist()
    contexts = [x % (700 if draw[0] % 2 else 70) for x in draw[2 : 4 + draw[1] % 3]]
    variant, splits = VARIANTS[draw[9] % 4], 1 + draw[10] % (64 if draw[11] % 3 == 0 else 9)
    return build(variant, contexts, splits, 2.0 ** (draw[8] % 8 - 3), name=f"random {seed}")


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_random_sequences(seed):
    check(random_inputs(seed))


# ---- inputs on which every rounding shows ----------------------------------------------------------------------------

E4M3_INTEGERS = np.array([x for x in range(449) if F32(x).astype(E4M3).astype(F32) == x])


def parts(total, count):
    """`count` numbers of E4M3 with this sum, None if they are not enough."""
    found, left = [], abs(total)
    while left:
        found.append(int(E4M3_INTEGERS[left >= E4M3_INTEGERS].max()))
        left -= found[-1]
    return None if len(found) > count else np.sign(total) * np.array(found + [0] * (count - len(found)))


def placed(inputs, k, v, q, **changes):
    """A single sequence's inputs with other keys and values [ctx][128] and queries [16][128]."""
    pages = inputs.table[0, : -(-len(k) // 16)]
    stored = {}
    for side, values in (("k", k), ("v", v)):
        rows = unpaged(getattr(inputs, side), side).copy()
        rows[pages] = codes(np.pad(values, ((0, -len(k) % 16), (0, 0))), inputs.fp8).reshape(-1, 16, 128)
        stored[side] = paged(rows, side, inputs.fp8)
    return dataclasses.replace(inputs, q=q[None].astype(BF16).view(np.uint16), **stored, **changes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_chunks_that_cancel(variant):
    """The second chunk takes away what the first gave but for 2^-14 or so: what is left shows how products and sums are
    rounded. Dim d cancels in head d mod 16; key 256 raises the maximum, each head's by its own score."""
    inputs = build(variant, (512,), name="cancel")
    if variant == "per_token":
        inputs = dataclasses.replace(
            inputs, k_scale=inputs.k_scale * 0 + F32(0.7), v_scale=inputs.v_scale * 0 + F32(1.3)
        )
    dtype, key_scale = E4M3 if inputs.fp8 else BF16, F32(0.7) if inputs.fp8 else F32(1)
    q, k, v = np.zeros((16, 128), F32), np.zeros((512, 128), F32), np.zeros((512, 128), F32)
    q[:, 0] = [*range(2, 17), 18]
    k[256, 0] = 1
    alpha = exp2((F32(0) - F32(inputs.scale) * key_scale * q[:, 0]) * LOG2_E)
    factor = 1.0 if variant in ("unscaled", "bf16") else 448.0
    first, second = ((x * F32(factor)).astype(dtype).astype(np.float64) for x in (F32(1), alpha))
    for dim, total in enumerate(integers("cancelling", 128, 20000, 40000).tolist()):
        head = dim % 16
        v[:256, dim] = parts(total, 256)
        v[257:, dim] = parts(-round(total * float(first) * float(alpha[head]) / float(second[head])), 255)
    result = check(placed(inputs, k, v, q)).out[0].view(BF16).astype(F32)
    assert np.abs(result[np.arange(128) % 16, np.arange(128)]).max() < 0.01  # of 20 or more without the second chunk


@pytest.mark.parametrize("variant", ["unscaled", "bf16"])
@pytest.mark.parametrize("count", [7, 41, 47, 55, 61, 83, 97])
def test_outputs_on_ties_of_bf16(variant, count):
    """Equal scores and values with means between two numbers of bf16: a quotient lies on the tie, a product with the
    rounded reciprocal beside it."""
    inputs = build(variant, (count,), name="ties")
    if inputs.fp8:
        inputs = dataclasses.replace(inputs, v_scale=np.ones(1, F32))
    sums = [x for x in (parts(mean * count, count) for mean in range(257, 448, 2)) if x is not None]
    v = np.array([sums[dim % len(sums)] for dim in range(128)], F32).T
    check(placed(inputs, np.zeros((count, 128), F32), v, np.ones((16, 128), F32)))


def test_the_v_scale_is_divided_by_448():
    """1344 / 448 is 3, and outputs lie on ties of bf16; 1344 times the rounded 1 / 448 is more."""
    inputs = build("x448", (2,), name="division")
    v = np.array([parts((13, 15, 17, 19, 21, 23)[dim % 6], 2) for dim in range(128)], F32).T
    wide = placed(inputs, np.zeros((2, 128), F32), v, np.ones((16, 128), F32), v_scale=np.array([1344], F32))
    check(wide)


def test_the_scaling_of_p_by_token_in_its_order():
    """V scales for which (V scale * 448) / (vmax + 1e-8) * p lies on the other side of a tie than the product first."""
    inputs = build("per_token", (256,), name="order")
    pages, seen = inputs.table[0, :16], np.ones((256, 1), bool)
    _, p = weights_of(inputs, 0, pages, seen, np.full(16, -np.inf, F32))
    p, divisor = p[:, 0], F32(1.1) + F32(1e-8)
    codes_of = (np.arange(0x20, 0x7E, dtype=np.uint8)).view(E4M3).astype(np.float64)
    ties = (codes_of[1:] + codes_of[:-1]) / 2
    tie = ties[np.maximum(np.searchsorted(ties, 400.0 * p) - 1, 0)]
    near = (tie * divisor / (448.0 * p)).astype(F32)[:, None].view(np.int32) + np.arange(-8, 9, dtype=np.int32)
    near = near.view(F32)
    one = ((near * F32(448)) / divisor * p[:, None]).astype(E4M3).view(np.uint8)
    other = ((near * F32(448) * p[:, None]) / divisor).astype(E4M3).view(np.uint8)
    differs = (one != other) & (near < 1.0)
    assert differs.any(axis=1).sum() > 20
    scales = near[np.arange(256), differs.argmax(axis=1)]
    scales = np.where(differs.any(axis=1), scales, F32(0.5)).astype(F32)
    scales[200] = 1.1
    v_scale = inputs.v_scale.copy()
    v_scale[pages] = scales.reshape(16, 16)
    check(dataclasses.replace(inputs, v_scale=v_scale))


@pytest.mark.parametrize("size", [1e-8, 0.0])
def test_small_scales_by_token(size):
    inputs = build("per_token", (300, 20), splits=2, name="small scales")
    result = check(dataclasses.replace(inputs, v_scale=inputs.v_scale * F32(size)))
    assert (size == 0) == (not (result.out & 0x7FFF).any())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_maximum_ignores_nan_and_masked_keys_have_their_score(variant):
    """Keys of NaN alone: the maximum is the masked keys', or none."""
    inputs = build(variant, (255, 256), poisoned=False)
    inputs.k[:] = 0x7F if inputs.fp8 else 0x7FC0
    for runner in (Runner(), machine()):
        result = inputs.run(runner)
        assert (result.m[0] == F32(-3.4e38)).all()
        assert np.isneginf(result.m[1]).all()
        assert np.isnan(result.l).all()


# ---- close to the exact softmax --------------------------------------------------------------------------------------


def exact(inputs, row):
    """The softmax attention of a sequence in float64, of q as the kernel rounds it."""
    count, dtype = int(inputs.ctx[row]), E4M3 if inputs.fp8 else BF16
    pages = inputs.table[row, : -(-count // 16)]
    k, v = (
        unpaged(x, side)[pages].reshape(-1, 128)[:count].view(dtype).astype(np.float64)
        for side, x in (("k", inputs.k), ("v", inputs.v))
    )
    if inputs.fp8:
        k_scale, v_scale = inputs.k_scale, inputs.v_scale
        if inputs.per_token:
            k_scale, v_scale = (x[pages].reshape(-1, 1)[:count] for x in (k_scale, v_scale))
        k, v = k * k_scale, v * v_scale
    q = inputs.q[row].view(BF16).astype(dtype).astype(np.float64)
    score = inputs.scale * q @ k.T
    p = np.exp(score - score.max(axis=1, keepdims=True))
    total = p.sum(axis=1, keepdims=True)
    return (p / total) @ v, (p / total) @ np.abs(v), np.abs(v).sum(axis=0) / total


@pytest.mark.parametrize("splits", [1, 5])
@pytest.mark.parametrize("variant", VARIANTS)
def test_close_to_the_softmax_in_float64(variant, splits):
    """Relative to the sum of P |V|: P in E4M3 is off by 2^-4, in bf16 by 2^-9, and the splits' outputs and the whole by
    2^-9 each. Below 2^-6 P in E4M3 is off by 2^-10 of the largest P, divided by what P is multiplied by."""
    inputs = build(variant, (300, 17, 700), splits=splits)
    out = inputs.run(Runner()).out.view(BF16).astype(np.float64)
    relative = 2.0**-7 + (2.0**-4 if inputs.fp8 else 0.0)
    for row in range(3):
        wanted, size, smallest = exact(inputs, row)
        assert (np.abs(out[row] - wanted) <= relative * size + 2.0**-10 * smallest * (variant == "unscaled")).all()


# ---- poison ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_no_sequence_sees_changes_nothing(variant):
    contexts = (300, 0, 17, 31)
    clean, poisoned = (build(variant, contexts, 3, poisoned=x) for x in (False, True))
    assert not np.array_equal(clean.v, poisoned.v)
    clean.table[:] = np.where(np.arange(clean.table.shape[1]) < -(-clean.ctx[:, None] // 16), clean.table, 0)
    for field in FIELDS:
        for runner in (Runner(), machine()):
            a, b = (getattr(x.run(runner), field) for x in (clean, poisoned))
            np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8), err_msg=field)


@pytest.mark.parametrize("side", ["k", "v"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_visible_nan_reaches_the_output(variant, side):
    """A NaN of K is in every output of its sequence, one of V in that dim's; other sequences are as before."""
    inputs = build(variant, (40, 17), splits=2, poisoned=False)
    before = inputs.run(Runner())
    rows = unpaged(getattr(inputs, side), side).copy()
    rows[inputs.table[0, 1], 3, 77] = 0x7F if inputs.fp8 else 0x7FC0
    bad = dataclasses.replace(inputs, **{side: paged(rows, side, inputs.fp8)})
    for runner in (Runner(), machine()):
        out = bad.run(runner).out
        nan = np.isnan(out[0].view(BF16).astype(F32))
        assert nan.all() if side == "k" else np.array_equal(nan, np.broadcast_to(np.arange(128) == 77, (16, 128)))
        np.testing.assert_array_equal(out[1], before.out[1])


def test_a_page_may_stand_in_a_table_more_than_once_and_in_several():
    inputs = build("unscaled", (300, 48), splits=2)
    inputs.table[0, 3:9] = inputs.table[0, 1]
    inputs.table[1, :3] = inputs.table[0, [1, 1, 5]]
    check(inputs)


def test_k_and_v_may_be_views_of_one_memory():
    """The packed cache: V's pages begin 8 after K's, and a block's K and V have one page id."""
    inputs = build("unscaled", (100, 30), splits=2)
    pages = len(inputs.k)
    memory = np.full((-(-pages // 8) * 16, 2048), 0x7F, np.uint8)
    place = np.arange(pages) // 8 * 16 + np.arange(pages) % 8
    memory[place], memory[place + 8] = inputs.k, inputs.v
    table = inputs.table.copy()
    used = np.arange(table.shape[1]) < -(-inputs.ctx[:, None] // 16)
    table[used] = place[table[used]]
    packed = dataclasses.replace(inputs, k=memory, v=memory[8:], table=table)
    for runner in (Runner(), machine()):
        np.testing.assert_array_equal(packed.run(runner).out, inputs.run(Runner()).out)


def test_a_query_beyond_e4m3_is_nan_with_an_fp8_cache():
    inputs = build("unscaled", (20,))
    inputs.q[0, 5, 9] = np.array(500, BF16).view(np.uint16)
    result = check(inputs)
    nan = np.isnan(result.out[0].view(BF16).astype(F32)).all(axis=1)
    assert nan.tolist() == [head == 5 for head in range(16)]


def test_scales_default_to_one():
    inputs = build("unscaled", (70,))
    plain = dataclasses.replace(inputs, k_scale=None, v_scale=None)
    ones = dataclasses.replace(inputs, k_scale=np.ones(1, F32), v_scale=np.ones(1, F32))
    np.testing.assert_array_equal(plain.run(Runner()).out, ones.run(Runner()).out)
    assert not np.array_equal(plain.run(Runner()).out, inputs.run(Runner()).out)


def test_treatments_of_p_differ():
    inputs = build("unscaled", (300,), sharp=3.0)
    a, b = (inputs.run(Runner(), p=p).out for p in ("unscaled", "x448"))
    assert not np.array_equal(a, b)


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_keys_no_table_and_no_page_is_read(variant):
    inputs = build(variant, (5, 7), splits=3)
    scales = {"k_scale": inputs.k_scale[:0], "v_scale": inputs.v_scale[:0]} if inputs.per_token else {}
    nothing = dataclasses.replace(
        inputs, k=inputs.k[:0], v=inputs.v[:0], table=inputs.table[:, :0].copy(), ctx=inputs.ctx * 0, **scales
    )
    for runner in (Runner(), machine()):
        result = nothing.run(runner)
        assert not result.out.any()
        assert not result.o.any()
        assert not result.l.any()
        assert np.isneginf(result.m).all()


def test_no_sequences():
    inputs = build("unscaled", (5,))
    empty = dataclasses.replace(inputs, q=inputs.q[:0], table=inputs.table[:0], ctx=inputs.ctx[:0], splits=2)
    assert empty.run(Runner()).out.shape == (0, 16, 128)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bits_do_not_depend_on_how_waves_take_turns(variant):
    inputs = build(variant, (300, 600), splits=1)
    wanted = inputs.run(machine())
    for quantum in (5, 10**6):
        result = inputs.run(Runner(compiled().object, RunOptions(quantum=quantum, threads=2)))
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(result, field), getattr(wanted, field), err_msg=field)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_numpy_engine_agrees(variant):
    inputs = build(variant, (300, 17), splits=3)
    wanted, result = inputs.run(machine()), inputs.run(Runner(compiled().object, RunOptions(engine="numpy")))
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(result, field), getattr(wanted, field), err_msg=field)


# ---- LDS and registers -----------------------------------------------------------------------------------------------


class Races:
    """LDS bytes that two waves touch between two barriers, one of them writing, and bytes read that nobody wrote."""

    def __init__(self, nbytes):
        self.nbytes, self.workgroup, self.found, self.waves = nbytes, None, set(), 0

    def operation(self, op, operands, results, active, workgroup):
        if workgroup != self.workgroup:
            self.workgroup, self.filled = workgroup, np.zeros(self.nbytes, bool)
        if op.name == "barrier" or not self.filled.any():
            self.writers, self.readers = np.zeros((2, len(active), self.nbytes), bool)
        if op.name not in ("lds_read", "lds_write"):
            return
        addresses, size = np.broadcast_to(operands[0], active.shape).astype(np.int64), op.attributes["nbytes"]
        wave, _ = np.nonzero(active)
        touched = addresses[active][:, None] + np.arange(size)
        mine = self.writers if op.name == "lds_write" else self.readers
        mine[wave[:, None], touched] = True
        if op.name == "lds_write":
            self.filled[touched] = True
        elif not self.filled[touched].all():
            self.found.add("unwritten")
        if (self.writers.any(axis=0) & ((self.writers | self.readers).sum(axis=0) > 1)).any():
            self.found.add("race")


class Watched(Runner):
    """Runs source with an observer, freshly traced."""

    def __init__(self, observer):
        super().__init__()
        self.observer = observer

    def launch(self, kernel, grid, arguments):
        if kernel in attend.ATTEND:
            run_source(trace(kernel), grid, arguments, observers=[self.observer])


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_lds_access_has_a_bank_conflict(variant):
    seen = BankConflicts()
    build(variant, (300,)).run(Runner(compiled().object, RunOptions(engine="numpy", observers=(seen,))))
    mnemonics = {count.mnemonic for count in seen.counts.values()}
    assert mnemonics >= {"ds_write_b32", "ds_read2_b32", "ds_write_b128", "ds_read_b128"}
    assert seen.extra_cycles == 0


def races_of(variant):
    seen = Races(attend.ATTEND[VARIANTS.index(variant)].lds)
    build(variant, (600, 300), splits=2).run(Watched(seen))
    return seen.found


@pytest.mark.parametrize("variant", VARIANTS)
def test_waves_meet_before_they_read_what_others_wrote(variant):
    assert races_of(variant) == set()


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_barrier_can_be_left_out(monkeypatch, variant, number):
    calls = iter(range(10))
    monkeypatch.setattr(chunk, "barrier", lambda: None if next(calls) == number else barrier())
    assert "race" in races_of(variant)


LDS = {"attend_fp8": 4608, "attend_fp8_x448": 4608, "attend_fp8_per_token": 4864, "attend_bf16": 8704}


@pytest.mark.parametrize("kernel", attend.ATTEND, ids=lambda kernel: kernel.name)
def test_resources(kernel):
    used = compiled().resources[kernel.name]
    numbers = used.vgprs, used.agprs, used.sgprs, used.lds, used.spills, sum(used.instructions.values())
    print(f"| {kernel.name} | {' | '.join(map(str, numbers))} |")
    assert (used.spills, used.scratch, used.agprs) == (0, 0, 0)
    assert used.lds == LDS[kernel.name]
    assert used.vgprs <= 128
    assert used.instructions["s_barrier"] == 2
    step = "bf16" if kernel.name == "attend_bf16" else "fp8_fp8"
    assert used.instructions[f"v_mfma_f32_16x16x32_{step}"] == 16 + 2 * 16


# ---- splits ----------------------------------------------------------------------------------------------------------


def test_recommended_splits():
    rows = {1: 8, 73: 8, 74: 7, 128: 4, 129: 4, 171: 3, 255: 3, 256: 2, 511: 2, 512: 1, 5000: 1}
    assert {n: attend.get_recommended_splits(n) for n in rows} == rows
    assert attend.get_recommended_splits(64, 4) == 2
    assert attend.get_recommended_splits(64, compute_units=64) == 2
    assert attend.get_recommended_splits(0) == 8
    assert attend.get_recommended_splits(np.int8(100), np.int8(2)) == attend.get_recommended_splits(200)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (("1",), TypeError, "num_seqs is '1', a str; expected a whole number"),
        ((-1,), ValueError, "num_seqs is -1; expected 0 to"),
        ((1, True), TypeError, "num_kv_heads is True, a bool"),
        ((1, 0), ValueError, "num_kv_heads is 0; expected 1 to"),
        ((1, 1, 256.0), TypeError, "compute_units is 256.0, a float"),
        ((1, 1, 0), ValueError, "compute_units is 0; expected 1 to"),
    ],
)
def test_splits_are_recommended_for_counts(given, error, message):
    with pytest.raises(error, match=message):
        attend.get_recommended_splits(*given)


# ---- input checks ----------------------------------------------------------------------------------------------------


def with_value(index, value):
    def change(array):
        array = array.copy()
        array[index] = value
        return array

    return change


WRONG = [
    ({"q": lambda a: a.astype(F32)}, TypeError, "q has dtype float32; expected uint16"),
    ({"q": lambda a: a[:, :8].copy()}, ValueError, r"q has shape \(2, 8, 128\); expected \(any, 16, 128\)"),
    ({"k": lambda a: a.tolist()}, TypeError, "k is a list; expected a numpy array of uint8"),
    ({"k": lambda a: a.astype(np.int8)}, TypeError, "k has dtype int8; expected uint8"),
    ({"v": lambda a: a.astype(np.uint16)}, TypeError, "v has dtype uint16; expected uint8"),
    ({"v": lambda a: a[:, ::2]}, ValueError, r"v has shape .* expected \(any, 2048\)"),
    ({"table": lambda a: a.T}, ValueError, r"table has shape .*; expected \(2, any\)"),
    ({"table": lambda a: a[:, ::-1]}, ValueError, "table is not C-contiguous"),
    ({"table": with_value((0, 2), 99)}, ValueError, r"table\[0, 2\] is 99; expected 0 \.\. 7, .*: ctx\[0\] is 40"),
    ({"table": with_value((1, 0), -1)}, ValueError, r"table\[1, 0\] is -1; expected 0 \.\. 7"),
    ({"v": lambda a: a[:1].copy()}, ValueError, r"table\[\d, \d\] is \d; expected 0 \.\. 0, a page of both k and v"),
    ({"v": lambda a: a[:0].copy()}, ValueError, r"table\[0, 0\] is \d; expected no keys, for k or v has no pages: ctx"),
    ({"ctx": lambda a: a[:1].copy()}, ValueError, r"ctx has shape \(1,\); expected \(2,\)"),
    (
        {"ctx": with_value(1, -1)},
        ValueError,
        r"ctx\[1\] is -1; expected 0 \.\. 80, what the table's 5 pages",
    ),
    ({"ctx": with_value(0, 81)}, ValueError, r"ctx\[0\] is 81; expected 0 \.\. 80"),
    ({"ctx": lambda a: a.astype(np.int64)}, TypeError, "ctx has dtype int64; expected int32"),
    ({"splits": lambda n: 0}, ValueError, r"splits is 0; expected 1 \.\. 64"),
    ({"splits": lambda n: 65}, ValueError, r"splits is 65; expected 1 \.\. 64"),
    ({"splits": lambda n: 2.0}, TypeError, "splits is 2.0, a float; expected a whole number"),
    ({"scale": lambda x: "1"}, TypeError, "scale is '1', a str; expected a number"),
    ({"p": lambda x: "per_token"}, ValueError, "no treatment 'per_token' of P; there are unscaled, x448"),
    ({"reduce": lambda x: "triton"}, ValueError, "no reduce 'triton'; there are hip, flydsl"),
    ({"k_scale": lambda a: np.ones(2, F32)}, ValueError, r"k_scale has shape \(2,\); expected \(1,\)"),
    ({"v_scale": lambda a: a.astype(np.float64)}, TypeError, "v_scale has dtype float64; expected float32"),
    ({"v_scale": lambda a: np.ones((7, 16), F32)}, ValueError, r"k_scale has shape \(1,\) and v_scale \(7, 16\)"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_inputs_are_refused(changes, error, message):
    inputs = build("unscaled", (40, 17))
    wrong = dataclasses.replace(inputs, **{name: change(getattr(inputs, name)) for name, change in changes.items()})
    with pytest.raises(error, match=message):
        wrong.run(Runner())


def test_scales_that_do_not_belong_to_the_cache_are_refused():
    with pytest.raises(ValueError, match=r"k_scale was given with a bf16 cache \(uint16\)"):
        build("bf16", (17,)).run(Runner(), k_scale=np.ones(1, F32))
    with pytest.raises(ValueError, match=r"p is 'x448', .*; a bf16 cache has none"):
        build("bf16", (17,)).run(Runner(), p="x448")
    inputs = build("per_token", (17,))
    with pytest.raises(ValueError, match=r"p is 'x448', .*; scales \[pages\]\[16\] have a treatment of their own"):
        inputs.run(Runner(), p="x448")
    with pytest.raises(ValueError, match="v_scale has 4 pages; expected at least 5, those of the cache"):
        inputs.run(Runner(), v_scale=inputs.v_scale[:4].copy())
