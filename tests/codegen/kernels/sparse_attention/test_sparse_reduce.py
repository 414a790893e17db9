"""The kernels that merge splits: source against gfx950 code, both against numpy in the stated order."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from codegen.compile import compile_kernels
from codegen.kernels.lanes import at, ld
from codegen.kernels.sparse_attention import reduce
from codegen.kernels.sparse_attention.launch import Runner, program
from codegen.language import I32, Pointer, loop, store, thread_id, trace
from codegen.language import kernel as declare
from codegen.run_source import run_source
from gfx950.random_bits import bell, integers, uniform
from tests.codegen.kernels.sparse_attention.test_sparse_attend import BF16, F32, LOG2_E, exp2


@functools.cache
def compiled():
    return compile_kernels([program(kernel) for kernel in reduce.REDUCE])


def fused(x, y, z):
    """x * y + z rounded once: the product of a bf16 and an f32 is exact in f64, and the sum there is rounded to odd."""
    product, z = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = product + z
    part = total - product
    lost = (product - (total - part)) + (z - part)
    bits = total.view(np.int64)
    toward = np.where((lost > 0) == (total > 0), 1, -1)  # a larger or a smaller magnitude
    odd = np.where((lost != 0) & (bits % 2 == 0), bits + toward, bits)
    return odd.view(np.float64).astype(F32)


def tree(weights):
    """The sum of up to 64 rows: those 32 apart first, then 16, 8, 4, 2, 1."""
    rows = np.zeros((64, *weights.shape[1:]), F32)
    rows[: len(weights)] = weights
    while len(rows) > 1:
        rows = rows[: len(rows) // 2] + rows[len(rows) // 2 :]
    return rows[0]


def oracle(o, m, l, ctx, splits, fuse):  # noqa: E741
    out = np.zeros((len(ctx), 16, 128), F32)
    for seq, length in enumerate(ctx.tolist()):
        size = -(-length // splits)
        used = -(-length // size) if length else 0
        if not used:
            continue
        weights = l[seq, :used] * exp2((m[seq, :used] - m[seq, :used].max(axis=0)) * LOG2_E)
        total = tree(weights)
        for i in range(used):
            share, values = (weights[i] / total)[:, None], o[seq, i].view(BF16).astype(F32)
            out[seq] = fused(values, share, out[seq]) if fuse else out[seq] + values * share
    return out.astype(BF16).view(np.uint16)


def partials(name, ctx, splits):
    """As the attend leaves them, but that splits without keys are poison: they are not read.

    In heads 0 .. 3 splits 0 and 1 cancel, so that the result is how the products were rounded; the others' o is 0.
    """
    shape = (len(ctx), splits, 16)
    o = bell(f"{name} o", (*shape, 128)).astype(BF16)
    m = bell(f"{name} m", shape) * F32(4)
    l = F32(1) + uniform(f"{name} l", shape) * F32(300)  # noqa: E741
    o[:, 2:, :4] = 0
    for array in (m, l):
        array[:, 1:2, :4] = array[:, :1, :4]
    o[:, 1:2, :4] = -o[:, :1, :4]
    size = np.maximum(-(-ctx // splits), 1)
    empty = np.arange(splits) >= -(-ctx // size)[:, None]
    o[empty], m[empty], l[empty] = np.nan, np.nan, np.nan
    return o.view(np.uint16), m.astype(F32), l.astype(F32)


def run(runner, backend, o, m, l, ctx, splits):  # noqa: E741
    out = np.full((len(ctx), 16, 128), 0x7FC0, np.uint16)
    runner.launch(reduce.REDUCERS[backend], (len(ctx),), (o, m, l, ctx, out, np.int32(splits)))
    return out


@pytest.mark.parametrize("splits", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("backend", ["hip", "flydsl"])
def test_source_is_machine_code_is_the_oracle(backend, splits):
    ctx = np.array([2048, 0, 1, 7, 300, 1 << 24, 9], np.int32)
    given = partials(f"reduce {splits}", ctx, splits)
    wanted = oracle(*given, ctx, splits, backend == "hip")
    for runner in (Runner(), Runner(compiled().object)):
        np.testing.assert_array_equal(run(runner, backend, *given, ctx, splits), wanted)


def test_backends_differ():
    ctx = np.array([2048], np.int32)
    given = partials("differ", ctx, 8)
    hip, flydsl = (run(Runner(), backend, *given, ctx, 8)[0].view(BF16).astype(F32) for backend in ("hip", "flydsl"))
    assert not flydsl[:4].any()
    assert (hip[:4] != 0).mean() > 0.9
    assert np.abs(hip[:4]).max() < 2.0**-20


def test_weights_are_summed_in_pairs_of_splits_not_in_a_row(monkeypatch):
    """1 * 3 and -3 * 1 cancel but for how the shares were rounded, which shows the sum that they were divided by."""
    ctx = np.array([2048] * 4, np.int32)
    o, m = np.zeros((4, 8, 16, 128), BF16), np.zeros((4, 8, 16), F32)
    o[:, 0], o[:, 1] = 1, -3
    l = F32(1) + uniform("weights in pairs", m.shape)  # noqa: E741
    l[:, 0] = F32(3) * l[:, 1]
    given = o.view(np.uint16), m, l
    for backend in reduce.REDUCERS:
        got = run(Runner(), backend, *given, ctx, 8)
        np.testing.assert_array_equal(got, oracle(*given, ctx, 8, backend == "hip"))
        monkeypatch.setitem(globals(), "tree", lambda weights: functools.reduce(np.add, weights))
        assert (got != oracle(*given, ctx, 8, backend == "hip")).any()
        monkeypatch.undo()


def test_one_split_comes_back_as_it_is():
    ctx = np.array([5], np.int32)
    o, m, l = partials("one", ctx, 1)  # noqa: E741
    for backend in reduce.REDUCERS:
        np.testing.assert_array_equal(run(Runner(), backend, o, m, l, ctx, 1)[0], o[0, 0])


def test_a_nan_sum_or_output_reaches_the_result():
    ctx = np.array([64], np.int32)
    o, m, l = partials("nan", ctx, 4)  # noqa: E741
    l[0, 2, 3] = np.nan
    o[0, 1, 5, 77] = 0x7FC0
    out = run(Runner(), "hip", o, m, l, ctx, 4)[0].view(BF16).astype(F32)
    wanted = np.zeros((16, 128), bool)
    wanted[3], wanted[5, 77] = True, True
    np.testing.assert_array_equal(np.isnan(out), wanted)


def test_the_size_of_a_split_is_the_exact_rounded_up_quotient():
    """Every divisor up to 64, and large ones as for the number of splits; contexts around multiples, up to 2^24."""
    divisors = np.concatenate([np.arange(1, 65), integers("large divisors", 64, 65, 1 << 24)]).astype(np.int64)
    near = (integers("quotients", (32, 128), 0, 1 << 24) // divisors)[..., None] * divisors[:, None]
    ctx = np.clip(near + np.arange(-1, 2), 0, 1 << 24)
    ctx[0] = (1 << 24) - np.arange(3)
    numbers = np.broadcast_to(divisors[:, None], ctx.shape)
    out = np.zeros(ctx.size, np.int32)

    def body(a: Pointer, b: Pointer, out: Pointer, count: I32) -> None:
        @loop(0, count, 64)
        def _(i: I32) -> tuple:
            index = i + thread_id()
            size = reduce.splits_of(ld(a, index)[0].bits(I32), ld(b, index)[0].bits(I32))
            store(at(out, index * 4), size)
            return ()

    flat = [np.ascontiguousarray(x.ravel(), np.int32) for x in (ctx, numbers)]
    run_source(trace(declare(block=64)(body)), (1,), (*flat, out, np.int32(out.size)))
    np.testing.assert_array_equal(out, -(-ctx.ravel() // numbers.ravel()))


@pytest.mark.parametrize("kernel", reduce.REDUCE, ids=lambda kernel: kernel.name)
def test_resources(kernel):
    used = compiled().resources[kernel.name]
    numbers = used.vgprs, used.agprs, used.sgprs, used.lds, used.spills, sum(used.instructions.values())
    print(f"| {kernel.name} | {' | '.join(map(str, numbers))} |")
    assert (used.spills, used.scratch, used.agprs, used.lds) == (0, 0, 0, 0)
    assert used.vgprs <= 64
