"""Source runs against numpy, and the errors a wrong kernel gets."""

import ml_dtypes
import numpy as np
import pytest

from codegen.language import (
    F32,
    I32,
    U32,
    U64,
    Pointer,
    barrier,
    branch,
    constant,
    kernel,
    lds_read,
    lds_read_byte,
    lds_write,
    lds_write_byte,
    load,
    load_byte,
    load_half,
    loop,
    maximum,
    minimum,
    permute,
    readfirstlane,
    store,
    store_byte,
    store_half,
    thread_id,
    trace,
    when,
    workgroup_id,
)
from codegen.run_source import SourceError, run_source
from emu.errors import LaunchError, MemoryFault
from emu.memory import Memory
from gfx950.isa.conversions import v_cvt_pk_fp8_f32
from gfx950.isa.cross_lane import v_permlane16_swap_b32, v_permlane32_swap_b32
from gfx950.isa.matrix import v_mfma_scale_f32_16x16x128_f8f6f4
from gfx950.isa.vop1 import v_exp_f32
from gfx950.isa.vop2 import v_max_f32
from gfx950.isa.vop3 import v_perm_b32
from gfx950.lanes import B128, B256, I64
from gfx950.models import make_model, using

RNG = np.random.default_rng(950)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def word_of(p, index):
    return p + index.to(U64) * 4


def run(body, *arguments, block=64, lds=0, grid=(1,)):
    """Traces `body`, whose annotations are the kernel's, and runs it."""
    run_source(trace(kernel(block=block, lds=lds)(body)), grid, arguments)


def test_vector_add_with_tail():
    def add(a: Pointer, b: Pointer, out: Pointer, n: I32) -> None:
        i = workgroup_id() * 256 + thread_id()
        with when(i < n):
            store(word_of(out, i), (load(word_of(a, i)).bits(F32) + load(word_of(b, i)).bits(F32)).bits(U32))

    a, b = floats(1000), floats(1000)
    out = np.full(1000, np.nan, np.float32)
    run(add, a, b, out[:900], 900, block=256, grid=(4,))
    np.testing.assert_array_equal(out[:900], a[:900] + b[:900])
    assert np.isnan(out[900:]).all()


def test_scalar_arguments_keep_their_bits():
    def k(out: Pointer, i: I32, u: U32, f: F32, w: U64, s: I64) -> None:
        with when(thread_id() == 0):
            store(out, i.bits(U32), u, f.bits(U32), w.to(U32))
            store(out + 16, (w >> 32).to(U32), (s >> 63).bits(U64).to(U32))

    out = np.zeros(6, np.uint32)
    run(k, out, -2, 0xFFFFFFFE, np.float32(0.1), 1 << 40 | 5, -7)
    assert list(out) == [0xFFFFFFFE, 0xFFFFFFFE, np.float32(0.1).view(np.uint32), 5, 256, 0xFFFFFFFF]


def test_butterfly_sum_in_order_and_through_lds():
    def total(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        v = load(word_of(a, workgroup_id() * 256 + t)).bits(F32)
        for step in (32, 16, 8, 4, 2, 1):
            v = v + permute(v, [i ^ step for i in range(64)])
        with when((t & 63) == 0):
            lds_write((t >> 6) * 4, v.bits(U32))
        barrier()

        @loop(0, 4, carry=(constant(F32, 0.0),))
        def result(i, s):
            return (s + lds_read(i * 4).bits(F32),)

        with when(t == 0):
            store(word_of(out, workgroup_id()), result[0].bits(U32))

    a, out = floats(3 * 256), np.zeros(3, np.float32)
    run(total, a, out, block=256, lds=16, grid=(3,))
    waves = a.reshape(3, 4, 64)
    for step in (32, 16, 8, 4, 2, 1):
        waves = waves + waves[..., np.arange(64) ^ step]
    expected = np.zeros(3, np.float32)
    for wave in range(4):
        expected = expected + waves[:, wave, 0]
    np.testing.assert_array_equal(out, expected)


def test_loop_with_lane_dependent_trips():
    def k(out: Pointer) -> None:
        t = thread_id()

        @loop(t & 3, t, 2, carry=(constant(I32, 100), t))
        def result(i, total, last):
            return total + i, i

        with when(t < 100):
            store(word_of(out, t), result[0].bits(U32))
            store(word_of(out, t) + 512, result[1].bits(U32))

    out = np.zeros(256, np.int32)
    run(k, out, block=100)
    for t in range(100):
        trips = list(range(t & 3, t, 2))
        assert out[t] == 100 + sum(trips)
        assert out[128 + t] == (trips[-1] if trips else t)


def test_nested_loops_and_branches():
    def k(out: Pointer) -> None:
        t = thread_id()

        @loop(0, t & 7, carry=(constant(I32, 0),))
        def outer(i, total):
            def odd():
                @loop(0, i + 1, carry=(total,))
                def inner(j, x):
                    return (x + j,)

                return inner

            def even():
                store(word_of(out, t) + 256, (total + 1).bits(U32))
                return (total - i,)

            return branch((i & 1) == 1, odd, even)

        store(word_of(out, t), outer[0].bits(U32))

    out = np.zeros(128, np.int32)
    run(k, out)
    for t in range(64):
        total = mark = 0
        for i in range(t & 7):
            if i & 1:
                total += sum(range(i + 1))
            else:
                mark = total + 1
                total -= i
        assert (out[t], out[64 + t]) == (total, mark)


def test_branch_by_lane_merges():
    def k(out: Pointer) -> None:
        t = thread_id()
        a, b = branch((t & 1) == 0, lambda: (t * 2, t), lambda: (t * 3, t))
        store(word_of(out, t), (a + b).bits(U32))

    out = np.zeros(64, np.uint32)
    run(k, out)
    t = np.arange(64)
    np.testing.assert_array_equal(out, np.where(t % 2 == 0, 3 * t, 4 * t))


def test_a_side_nobody_takes_is_skipped():
    def k(out: Pointer, n: I32) -> None:
        def never():
            return (load(constant(U64, 0)),)

        (x,) = branch(n < 0, never, lambda: (constant(U32, 9),))
        store(word_of(out, thread_id()), x)

    out = np.zeros(64, np.uint32)
    run(k, out, 1)
    assert (out == 9).all()


def test_wide_loads_and_sub_word_stores():
    def k(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        w = load(a + t.to(U64) * 16, 4)
        store(out + t.to(U64) * 16, w[3], w[2], w[1])
        with when(t == 1):
            store_byte(out + 12, load_byte(a + 3) + 256)
            store_half(out + 14, load_half(a + 6))

    a = RNG.integers(0, 1 << 32, (64, 4), dtype=np.uint32)
    out = np.zeros((64, 4), np.uint32)
    run(k, a, out)
    np.testing.assert_array_equal(out[:, :3], a[:, :0:-1])
    low = int(a[0, 0] >> 24)
    assert out[0, 3] == low | (a[0, 1] >> 16) << 16
    assert (out[1:, 3] == 0).all()


def test_unaligned_accesses_when_stated():
    def k(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        w = load(a + 1 + t.to(U64) * 8, 2, align=1)
        lds_write(t * 8 + 1, *w, align=1)
        v = lds_read(t * 8 + 1, 2, align=1)
        store(out + 3 + t.to(U64) * 8, *v, align=1)

    a, out = RNG.integers(0, 256, 520, dtype=np.uint8), np.zeros(520, np.uint8)
    run(k, a, out, lds=520)
    np.testing.assert_array_equal(out[3 : 3 + 512], a[1 : 1 + 512])


def test_byte_transpose_by_perm():
    def k(a: Pointer, out: Pointer) -> None:
        w = load(a + thread_id().to(U64) * 16, 4)
        low = [v_perm_b32(w[1], w[0], 0x05010400), v_perm_b32(w[3], w[2], 0x05010400)]
        high = [v_perm_b32(w[1], w[0], 0x07030602), v_perm_b32(w[3], w[2], 0x07030602)]
        rows = [v_perm_b32(pair[1], pair[0], sel) for pair in (low, high) for sel in (0x05040100, 0x07060302)]
        store(out + thread_id().to(U64) * 16, *rows)

    a = RNG.integers(0, 256, (64, 4, 4), dtype=np.uint8)
    out = np.zeros_like(a)
    run(k, a, out)
    np.testing.assert_array_equal(out, a.transpose(0, 2, 1))


@pytest.mark.parametrize("selectors", [[0x07040300], [0x0C020D05], [0x03020100, 0x04050607]])
def test_perm_picks_bytes_by_a_constant_or_by_lane(selectors):
    def k(a: Pointer, sel: Pointer, out: Pointer) -> None:
        t = thread_id()
        first, second = load(a + t.to(U64) * 8, 2)
        chosen = load(word_of(sel, t)) if len(selectors) > 1 else constant(U32, selectors[0])
        store(word_of(out, t), v_perm_b32(first, second, chosen))
        store(word_of(out, t + 128), v_perm_b32(constant(U32, 0x44332211), second, chosen))

    a, out = RNG.integers(0, 1 << 32, (128, 2), dtype=np.uint32), np.zeros((2, 128), np.uint32)
    sel = np.resize(np.array(selectors, np.uint32), 128)
    run(k, a, sel, out, block=128)
    for row, first in zip(out.tolist(), (a[:, 0], np.full(128, 0x44332211, np.uint32)), strict=True):
        sources = zip(a[:, 1].tolist(), first.tolist(), strict=True)
        eight = [low.to_bytes(4, "little") + high.to_bytes(4, "little") for low, high in sources]
        picked = [
            [picked_byte(e, pick) for pick in s.to_bytes(4, "little")] for e, s in zip(eight, sel.tolist(), strict=True)
        ]
        assert [list(word.to_bytes(4, "little")) for word in row] == picked


def picked_byte(eight, pick):
    """What v_perm_b32 makes of a selector byte."""
    if pick >= 12:
        return 0 if pick == 12 else 0xFF
    return eight[pick] if pick < 8 else 0xFF * (eight[2 * (pick - 8) + 1] >> 7)


@pytest.mark.parametrize(("swap", "rows"), [(v_permlane16_swap_b32, 16), (v_permlane32_swap_b32, 32)])
def test_swaps_of_rows(swap, rows):
    def k(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        first, second = load(a + t.to(U64) * 8, 2)
        store(out + t.to(U64) * 8, *swap(first, second))
        store(out + 1024 + t.to(U64) * 8, *swap(first, constant(U32, 7)))

    a, out = np.arange(256, dtype=np.uint32).reshape(128, 2), np.zeros((2, 128, 2), np.uint32)
    run(k, a, out, block=128)
    lane = np.arange(128)
    upper = (lane & rows) != 0
    for made, second in zip(out, (a[:, 1], np.full(128, 7)), strict=True):
        np.testing.assert_array_equal(made[:, 0], np.where(upper, second[lane ^ rows], a[:, 0]))
        np.testing.assert_array_equal(made[:, 1], np.where(upper, second, a[lane ^ rows, 0]))


def test_lds_bytes():
    def k(out: Pointer) -> None:
        t = thread_id()
        lds_write_byte(63 - t, t + 256)
        barrier()
        store(word_of(out, t), lds_read_byte(t))

    out = np.zeros(64, np.uint32)
    run(k, out, lds=64)
    np.testing.assert_array_equal(out, 63 - np.arange(64))


def test_mfma_runs_as_the_instruction():
    def k(a: Pointer, b: Pointer, out: Pointer) -> None:
        t = thread_id()
        at = t.to(U64) * 32
        left, right = ([*load(p + at, 4), *load(p + at + 16, 4)] for p in (a, b))
        zero = B128([constant(U32, 0)] * 4)
        d = v_mfma_scale_f32_16x16x128_f8f6f4(B256(left), B256(right), zero, 127, 127, 0, 0, 0, 0)
        store(out + t.to(U64) * 16, *d.words)

    one = 0x38  # 1.0 in E4M3
    a, out = np.full((64, 32), one, np.uint8), np.zeros((64, 4), np.float32)
    run(k, a, a, out)
    assert (out == 128.0).all()


def test_native_instruction_on_many_waves():
    def k(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        store(word_of(out, t), v_exp_f32(load(word_of(a, t)).bits(F32)).bits(U32))

    a = np.arange(-256, 256).astype(np.float32) / 4
    out = np.zeros(512, np.float32)
    run(k, a, out, block=512)
    assert (out[256::4] == 2.0 ** np.arange(64, dtype=np.float32)).all()


def test_maximum_and_minimum():
    def k(a: Pointer, b: Pointer, out: Pointer) -> None:
        t = thread_id()
        x, y = load(word_of(a, t)).bits(F32), load(word_of(b, t)).bits(F32)
        store(word_of(out, t), maximum(x, y).bits(U32))
        store(word_of(out, t) + 256, minimum(x, y).bits(U32))

    special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 1e-45], np.float32)
    a, b = (g.reshape(-1).copy() for g in np.meshgrid(special, special))
    out = np.zeros((2, 64), np.float32)
    run(k, a, b, out)
    nan = np.isnan(a) | np.isnan(b)
    assert (np.isnan(out[0]) == nan).all()
    assert (np.isnan(out[1]) == nan).all()
    zeros = (a == 0) & (b == 0)
    assert (np.signbit(out[0])[zeros] == (np.signbit(a) & np.signbit(b))[zeros]).all()
    assert (np.signbit(out[1])[zeros] == (np.signbit(a) | np.signbit(b))[zeros]).all()
    np.testing.assert_array_equal(out[0][~nan], np.maximum(a, b)[~nan])
    np.testing.assert_array_equal(out[1][~nan], np.minimum(a, b)[~nan])


@pytest.mark.parametrize("values", [(1.5, -1.5, np.inf, -np.inf), (0.0, -0.0, -1.5, 1e-45), (0.0, -0.0, np.nan, -2.0)])
def test_larger_of_two_with_its_signs_of_zero_and_its_nans(values):
    def k(a: Pointer, b: Pointer, out: Pointer) -> None:
        t = thread_id()
        x, y = load(word_of(a, t)).bits(F32), load(word_of(b, t)).bits(F32)
        store(word_of(out, t), v_max_f32(x, y).bits(U32))

    a, b = (g.ravel().repeat(4) for g in np.meshgrid(*[np.array(values, np.float32)] * 2))
    out = np.zeros(64, np.float32)
    run(k, a, b, out)
    np.testing.assert_array_equal(out, np.fmax(a, b))
    zeros = out == 0
    positive = [(x == 0) & ~np.signbit(x) for x in (a, b)]
    assert (np.signbit(out) == ~(positive[0] | positive[1]))[zeros].all()


def test_larger_of_a_scalar_and_lanes():
    def k(a: Pointer, out: Pointer) -> None:
        store(
            word_of(out, thread_id()), v_max_f32(load(word_of(a, thread_id())).bits(F32), constant(F32, 0.0)).bits(U32)
        )

    a, out = floats(64), np.zeros(64, np.float32)
    run(k, a, out)
    np.testing.assert_array_equal(out.view(np.uint32), np.where(a > 0, a, np.float32(0)).view(np.uint32))


def packed_e4m3(values):
    """The bytes that a kernel packs of f32 bits (n,), two values and the same two once more."""

    def k(a: Pointer, out: Pointer) -> None:
        i = workgroup_id() * 64 + thread_id()
        first, second = (word.bits(F32) for word in load(a + i.to(U64) * 8, 2))
        low = v_cvt_pk_fp8_f32(first, second, constant(U32, 0xFFFFFFFF), 0)
        store(word_of(out, i), v_cvt_pk_fp8_f32(first, second, low, 8))

    out = np.zeros((len(values) // 2, 2, 2), np.uint8)
    run(k, values, out, grid=(len(values) // 128,))
    np.testing.assert_array_equal(out[:, 0], out[:, 1])
    return out[:, 0].ravel()


def test_e4m3_of_every_upper_half():
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    values = np.concatenate([upper | low for low in (0, 1, 0x7FFF, 0x8000, 0xFFFF)]).astype(np.uint32)
    floats_of = values.view(np.float32)
    with np.errstate(invalid="ignore"):
        expected = floats_of.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    nan = np.isnan(floats_of)
    expected[nan] = 0x7F | (values[nan] >> 31 << 7)
    np.testing.assert_array_equal(packed_e4m3(values), expected)


def test_e4m3_of_nans_under_another_model():
    values = np.repeat(np.array([0xFFC00000, 0xFF800001, 0x7FC00000, 0xBF800000], np.uint32), 32)
    assert packed_e4m3(values)[::32].tolist() == [0xFF, 0xFF, 0x7F, 0xB8]
    with using(make_model("test", {"convert.nan_narrow": "positive"})):
        assert packed_e4m3(values)[::32].tolist() == [0x7F, 0x7F, 0x7F, 0xB8]


def test_nan_payloads_and_made_nans():
    def k(a: Pointer, out: Pointer) -> None:
        t = thread_id()
        x = load(word_of(a, t)).bits(F32)
        store(word_of(out, t), (x + 1.0).bits(U32), (x - x).bits(U32))

    a = np.full(128, 0x7F800123, np.uint32)  # a signalling NaN
    a[64:] = 0x7F800000
    out = np.zeros(130, np.uint32)
    run(k, a, out, block=128)
    assert out[0] == 0x7FC00123
    assert out[128] == 0xFFC00000


def test_readfirstlane_takes_the_lowest_active():
    def k(out: Pointer) -> None:
        t = thread_id()
        with when((t & 63) >= 5):
            store(word_of(out, t), readfirstlane(t).bits(U32))

    out = np.zeros(128, np.uint32)
    run(k, out, block=128)
    assert (out[5:64] == 5).all()
    assert (out[69:] == 69).all()


def test_ballot_sees_active_lanes_only():
    def k(out: Pointer) -> None:
        t = thread_id()
        with when(t < 10):
            store(word_of(out, t), ((t & 1) == 0).ballot().to(U32))

    out = np.zeros(64, np.uint32)
    run(k, out)
    assert out[0] == 0x155


def test_grid_axes():
    def k(out: Pointer) -> None:
        index = (workgroup_id(2) * 3 + workgroup_id(1)) * 2 + workgroup_id(0)
        with when(thread_id() == 0):
            store(word_of(out, index), index.bits(U32) + 1)

    out = np.zeros(12, np.uint32)
    run(k, out, grid=(2, 3, 2))
    np.testing.assert_array_equal(out, np.arange(1, 13))


@pytest.mark.parametrize("together", [1, 2, 3, 64])
def test_workgroups_together_keep_their_lds_barriers_and_trips_apart(together, monkeypatch):
    """Each workgroup sums its id + 1 numbers through LDS, one a trip: other trips, other LDS, barriers in the loop."""
    monkeypatch.setattr("codegen.run_source.BATCH_WAVES", 2 * together)

    @kernel(block=128, lds=512)
    def k(out: Pointer) -> None:
        t, group = thread_id(), workgroup_id()
        lds_write(t * 4, (t * (group + 1)).bits(U32))
        barrier()

        @loop(0, group + 1, carry=(constant(U32, 0),))
        def total(i, so_far):
            value = lds_read(((t + i + 64) & 127) * 4)
            barrier()
            return (so_far + value,)

        store(word_of(out, group * 128 + t), total[0])

    out = np.zeros(7 * 128, np.uint32)
    run_source(trace(k), (7,), [out])
    t = np.arange(128)
    want = [sum((((t + i + 64) & 127) * (g + 1)) for i in range(g + 1)) for g in range(7)]
    np.testing.assert_array_equal(out, np.concatenate(want))


def test_a_late_workgroup_is_named_in_an_error():
    @kernel(block=64, lds=64)
    def k(out: Pointer) -> None:
        lds_write((workgroup_id() // 2) * 64, constant(U32, 1))

    with pytest.raises(SourceError, match="LDS address 0x40") as caught:
        run_source(trace(k), (5,), [np.zeros(1, np.uint32)])
    assert (caught.value.workgroup, caught.value.wave, caught.value.lane) == ((2, 0, 0), 0, 0)


def test_pointers_in_memory_and_lanes_in_different_buffers():
    def k(table: Pointer, out: Pointer) -> None:
        t = thread_id()
        low, high = load(table + (t & 1).to(U64) * 8, 2)
        base = low.to(U64) | (high.to(U64) << 32)
        store(word_of(out, t), load(word_of(base, t)))
        store(word_of(base, t), t)

    memory = Memory()
    first, second = np.arange(64, dtype=np.uint32), np.arange(100, 164, dtype=np.uint32)
    table = np.array([memory.map(first), memory.map(second)], np.uint64)
    out = np.zeros(64, np.uint32)
    run_source(trace(kernel(block=64)(k)), (1,), [table, out], memory=memory)
    t = np.arange(64)
    np.testing.assert_array_equal(out, np.where(t & 1, 100 + t, t))
    assert (second[1::2] == t[1::2]).all()
    assert len(memory.buffers) == 2


def test_observers_see_operations():
    seen = []

    class Watcher:
        def operation(self, op, operands, results, active, workgroup):
            seen.append((op.name, len(operands), len(results), int(active.sum()), workgroup))

    def k(out: Pointer) -> None:
        with when(thread_id() < 3):
            store(word_of(out, thread_id()), thread_id())

    program = trace(kernel(block=64)(k))
    run_source(program, (2,), [np.zeros(64, np.uint32)], observers=[Watcher()])
    assert ("store", 2, 0, 3, (1, 0, 0)) in seen
    assert ("slt", 2, 1, 64, (0, 0, 0)) in seen


# ---- errors ----------------------------------------------------------------------------------------------------------


def faults(error, body, *arguments, **options):
    with pytest.raises(error) as caught:
        run(body, *arguments, **options)
    return caught.value


def test_global_fault_names_everything():
    def past(a: Pointer) -> None:
        store(word_of(a, thread_id()), thread_id())

    fault = faults(MemoryFault, past, np.zeros(100, np.uint32), block=128)
    assert (fault.kernel, fault.workgroup, fault.wave, fault.lane) == ("past", (0, 0, 0), 1, 36)
    assert 'past the end of buffer "a"' in str(fault)
    assert "instruction `store (tests/codegen/test_run_source.py:" in str(fault)


def test_load_fault_and_read_only_arrays():
    def k(a: Pointer) -> None:
        store(a, load(a - 4))

    fault = faults(MemoryFault, k, np.zeros(4, np.uint32))
    assert (fault.wave, fault.lane) == (0, 0)
    constant_array = np.zeros(64, np.uint32)
    constant_array.flags.writeable = False

    def write(a: Pointer) -> None:
        store(a, thread_id())

    assert "read-only" in str(faults(MemoryFault, write, constant_array))


def test_lds_out_of_range():
    def k() -> None:
        lds_write(thread_id() * 4, thread_id())

    error = faults(SourceError, k, lds=200)
    assert (error.wave, error.lane) == (0, 50)
    assert "lds_write of 4 bytes at LDS address 0xc8 of 200 bytes" in str(error)
    assert "test_run_source.py:" in str(error)


def test_negative_lds_address():
    def k() -> None:
        lds_read(thread_id() - 1)

    assert faults(SourceError, k, lds=256).lane == 0


def test_misalignment():
    def k(a: Pointer) -> None:
        lds_read(thread_id() * 8, 4)

    error = faults(SourceError, k, np.zeros(4, np.uint32), lds=1024)
    assert error.lane == 1
    assert "at address 0x8, which is not a multiple of 16" in str(error)


def test_barrier_in_divergent_flow():
    def k() -> None:
        with when(thread_id() != 70):
            barrier()

    error = faults(SourceError, k, block=128)
    assert "a barrier is reached by 127 of 128 threads" in str(error)
    assert (error.wave, error.lane) == (1, 6)


def test_barrier_that_a_wave_misses():
    def k() -> None:
        with when(thread_id() < 64):
            barrier()

    assert "64 of 128" in str(faults(SourceError, k, block=128))


def test_barrier_with_a_partial_last_wave():
    run_barrier = []

    def k() -> None:
        barrier()
        run_barrier.append(True)

    run(k, block=100)
    assert run_barrier


def test_exchange_with_inactive_lanes():
    def k(out: Pointer) -> None:
        t = thread_id()
        with when(t < 40):
            store(word_of(out, t), permute(t, [i ^ 8 for i in range(64)]).bits(U32))

    error = faults(SourceError, k, np.zeros(64, np.uint32))
    assert "permute reads a lane that is not active" in str(error)
    assert error.lane == 40

    def whole(out: Pointer) -> None:
        t = thread_id()
        with when(t < 48):
            store(word_of(out, t), permute(t, [i ^ 8 for i in range(64)]).bits(U32))

    out = np.zeros(64, np.uint32)
    run(whole, out)
    np.testing.assert_array_equal(out[:48], np.arange(48) ^ 8)


def test_gather_from_an_inactive_lane():
    def k(out: Pointer) -> None:
        t = thread_id()
        with when(t < 32):
            store(word_of(out, t), t.gather((t + 1).bits(U32)).bits(U32))

    assert faults(SourceError, k, np.zeros(64, np.uint32)).lane == 32


def test_readlane_of_an_inactive_lane():
    def k(out: Pointer, lane: U32) -> None:
        t = thread_id()
        with when((t & 32) == 0):
            store(word_of(out, t), t.readlane(lane).bits(U32))

    out = np.zeros(128, np.uint32)
    run(k, out, 7, block=128)
    assert (out[:32] == 7).all()
    assert (out[64:96] == 71).all()
    assert faults(SourceError, k, out, 40, block=128).lane == 40


def test_mfma_needs_whole_waves():
    def k(out: Pointer) -> None:
        t = thread_id()
        with when((t < 64) | (t > 70)):
            z = [constant(U32, 0)] * 8
            v_mfma_scale_f32_16x16x128_f8f6f4(z, z, z[:4], 127, 127, 0, 0, 0, 0)

    error = faults(SourceError, k, np.zeros(64, np.uint32), block=128)
    assert "v_mfma_scale_f32_16x16x128_f8f6f4 reads a lane that is not active" in str(error)
    assert (error.wave, error.lane) == (1, 0)


def test_loop_step_must_be_positive_at_run_time():
    def k(n: I32) -> None:
        loop(0, 4, n)(lambda i: ())

    assert "a loop's step is -1" in str(faults(SourceError, k, -1))


def test_launch_errors():
    def k(a: Pointer, n: I32) -> None: ...

    a = np.zeros(4, np.uint32)
    assert "1 arguments for 2 parameters" in str(faults(LaunchError, k, a))
    assert "argument `n` is 0.5" in str(faults(LaunchError, k, a, 0.5))
    assert "argument `n` is an array" in str(faults(LaunchError, k, a, a))
    assert "argument `n` is 4294967296" in str(faults(LaunchError, k, a, 1 << 32))
    assert "the grid is (0,)" in str(faults(LaunchError, k, a, 1, grid=(0,)))


def test_what_is_no_program():
    with pytest.raises(LaunchError, match=r"the program is None\n +expected: a traced program: `trace\(kernel\)`"):
        run_source(None, (1,), [])
