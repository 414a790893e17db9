"""The drafter attention kernel: its parts alone, source against gfx950 code, its resources and its checks."""

from __future__ import annotations

import dataclasses
import doctest
import functools
import re
from collections import defaultdict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels import lanes
from codegen.kernels.drafter_attention import block, kernel, launch, merge, qkv, tiles
from codegen.kernels.drafter_attention.cases import CASES, PARTIAL_BYTES, Case, Request, build
from codegen.kernels.drafter_attention.reference import check_outputs, reference
from codegen.language import (
    F32,
    I32,
    U64,
    Pointer,
    barrier,
    constant,
    lds_read,
    lds_write,
    load,
    store,
    thread_id,
    trace,
)
from codegen.language import kernel as declare
from codegen.run_source import run_source
from gfx950 import mx
from gfx950.layouts import layout
from gfx950.lds import conflicts
from gfx950.random_bits import bell, bits32, integers

README = Path(launch.__file__).with_name("README.md")
QUICK = ["small", "first_tokens", "straddle", "padded", "stale_lengths", "zeros"]
FIELDS = ("a8", "as8", "cache", "partials")
TILE_BYTES = tiles.TILE_WORDS * 4


def run(body, *arguments, block=64, lds=0, grid=(1,)):
    run_source(trace(declare(block=block, lds=lds)(body)), grid, arguments)


def words(base, index, count=1):
    return load(base + index.to(U64) * (4 * count), count)


def put(base, index, *values):
    store(base + index.to(U64) * (4 * len(values)), *(v for v in values))


@functools.cache
def inputs_of(name):
    return build(CASES[name])


@functools.cache
def source_of(name):
    return launch.run_source_case(inputs_of(name))


@functools.cache
def machine_of(name):
    return launch.run_machine_case(inputs_of(name))[0]


# ---- whole cases -----------------------------------------------------------------------------------------------------


def check_case(name):
    inputs = inputs_of(name)
    before = inputs.digests()
    source, machine = source_of(name), machine_of(name)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(source, field), getattr(machine, field), err_msg=field)
    assert inputs.digests() == before, "the inputs were changed"
    found = check_outputs(inputs, reference(inputs), source.a8, source.as8, source.cache)
    assert not found, [str(violation) for violation in found]


@pytest.mark.parametrize("name", QUICK)
def test_source_is_machine_code_within_the_bound(name):
    check_case(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_source_is_machine_code_within_the_bound_in_all_cases(name):
    check_case(name)


def random_case(seed):
    """One to four requests at random positions, some of them padded or with stale lengths, in random partitions."""
    draw = integers(f"random drafter case {seed}", 32, 0, 1 << 20).tolist()
    requests = []
    for r in range(1 + draw[0] % 4):
        position, kind, other = draw[4 * r + 2 : 4 * r + 5]
        position = position % (9000 if draw[1] % 3 == 0 else 700)
        if kind % 5 == 0:
            requests.append(Request(position, seq_len=0 if kind % 2 else other % 9000, writes=False))
        else:
            requests.append(Request(position, seq_len=position + 7 + (other % 300 if kind % 5 == 1 else 0)))
    return Case(f"random {seed}", tuple(requests), 1 + draw[20] % (64 if draw[21] % 3 == 0 else 6), "")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_random_cases(seed):
    inputs = build(random_case(seed))
    source, (machine, _) = launch.run_source_case(inputs), launch.run_machine_case(inputs)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(source, field), getattr(machine, field), err_msg=field)
    found = check_outputs(inputs, reference(inputs), source.a8, source.as8, source.cache)
    assert not found, [str(violation) for violation in found]


@pytest.mark.slow
def test_the_numpy_engine_agrees():
    from emu.dispatch import RunOptions

    outputs, _ = launch.run_machine_case(inputs_of("small"), options=RunOptions(engine="numpy"))
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(outputs, field), getattr(source_of("small"), field), err_msg=field)


def test_padded_requests_give_zero_rows():
    outputs, rows = source_of("padded"), np.arange(6 * 7).reshape(6, 7)[[1, 3, 4]].ravel()
    assert not outputs.a8[rows].any()
    assert (outputs.as8[rows] == 1).all()


def test_a_partition_without_blocks_is_empty():
    part = source_of("first_tokens").partials[1].view(np.float32)
    assert np.isneginf(part[:112]).all()
    assert not part[128 : 128 + 112].any()
    assert not part[256:].any()


def test_rows_112_to_127_of_a_partial_are_not_written():
    parts = source_of("straddle").partials.view(np.uint32).reshape(-1, PARTIAL_BYTES // 4)
    assert not parts[:, 112:128].any()
    assert not parts[:, 240:256].any()


def test_new_rows_read_back_from_the_cache_are_those_of_the_tiles():
    """In one partition of four blocks the new rows are in the last, which is loaded after they were written; in four
    partitions they are in a tile that is patched."""
    inputs = build(Case("where", (Request(500),), 1, ""))
    for na in (1, 4):
        split = dataclasses.replace(inputs, na=na)
        outputs = launch.run_source_case(split)
        assert not check_outputs(split, reference(split), outputs.a8, outputs.as8, outputs.cache)


@pytest.mark.parametrize("quantum", [pytest.param(1, marks=pytest.mark.slow), 5, 10**6])
def test_bits_do_not_depend_on_how_waves_take_turns(quantum):
    from emu.dispatch import RunOptions

    outputs, _ = launch.run_machine_case(inputs_of("straddle"), options=RunOptions(quantum=quantum, threads=2))
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(outputs, field), getattr(machine_of("straddle"), field), err_msg=field)


class Races:
    """LDS bytes that two waves touch between two barriers, one of them writing; bytes read that nobody wrote."""

    def __init__(self, nbytes):
        self.nbytes, self.workgroup = nbytes, None
        self.found = set()

    def operation(self, op, operands, results, active, workgroup):
        if workgroup != self.workgroup:
            self.workgroup, self.filled = workgroup, np.zeros(self.nbytes, bool)
        if op.name == "barrier" or workgroup != getattr(self, "interval", None):
            self.interval = workgroup
            self.writers, self.readers = (np.zeros(self.nbytes, np.uint32) for _ in range(2))
        if op.name not in ("lds_read", "lds_write"):
            return
        size, waves = op.attributes["nbytes"], np.broadcast_to(np.arange(len(active))[:, None], active.shape)
        first = np.broadcast_to(operands[0], active.shape)[active].astype(np.int64)
        touched = (first[:, None] + np.arange(size)).ravel()
        wave = np.repeat(np.uint32(1) << waves[active].astype(np.uint32), size)
        if op.name == "lds_write":
            self.filled[touched] = True
            np.bitwise_or.at(self.writers, touched, wave)
        else:
            np.bitwise_or.at(self.readers, touched, wave)
            if not self.filled[touched].all():
                self.found.add(("unwritten", op.where))
        writers, both = self.writers[touched], self.writers[touched] | self.readers[touched]
        if ((writers != 0) & (both & (both - 1) != 0)).any():
            self.found.add(("race", op.where))


def races_of(inputs, programs):
    outputs, found = launch._outputs(inputs), set()
    launches = (
        (launch._attention_grid(inputs), launch._attention_arguments(inputs, outputs)),
        (launch._merge_grid(inputs), launch._merge_arguments(inputs, outputs)),
    )
    for program, (grid, arguments) in zip(programs, launches, strict=True):
        seen = Races(program.lds)
        run_source(program, grid, arguments, observers=[seen])
        found |= seen.found
    return found


def test_waves_meet_at_a_barrier_before_they_read_what_others_wrote():
    """Partitions of six blocks, of two, of one and of none."""
    for case in (Case("six", (Request(700),), 1, ""), Case("few", (Request(380),), 3, "")):
        assert races_of(build(case), launch.programs()) == set()


@pytest.mark.parametrize(("module", "number"), [(kernel, 0), (kernel, 1), (kernel, 2), (merge, 0)])
def test_no_barrier_can_be_left_out(monkeypatch, module, number):
    calls = iter(range(10))
    monkeypatch.setattr(module, "barrier", lambda: None if next(calls) == number else barrier())
    programs = trace(kernel.drafter_attention), trace(kernel.drafter_merge)
    assert {kind for kind, _ in races_of(build(Case("both", (Request(700), Request(200)), 1, "")), programs)} >= {
        "race"
    }


# ---- tiles -----------------------------------------------------------------------------------------------------------


def test_tw_is_a_bijection_that_swaps_16_byte_chunks_within_rows():
    t, r, w = np.meshgrid(np.arange(5), np.arange(128), np.arange(32), indexing="ij")
    index = tiles.tw(t, r, w)
    assert np.array_equal(np.sort(index.ravel()), np.arange(5 * 4096))
    assert np.array_equal(index // 4096, t)
    assert np.array_equal(index // 32 % 128, r)
    assert np.array_equal(index // 4 % 8, (w // 4) ^ (r % 8))
    assert np.array_equal(index % 4, w % 4)


def test_tile_numbers_have_room_in_the_lds():
    assert sorted((tiles.TQ, tiles.TK0, tiles.TK1, tiles.TV0, tiles.TV1)) == [0, 1, 2, 3, 4]
    assert tiles.LDS_BYTES == 5 * 128 * 128 == 81920


@pytest.mark.parametrize("sel", [0x05010400, 0x07030602, 0x05040100, 0x07060302, 0x00000000, 0x01020306])
def test_perm_picks_bytes_of_the_pair(sel):
    def body(pairs: Pointer, out: Pointer) -> None:
        a, b = words(pairs, thread_id(), 2)
        put(out, thread_id(), lanes.perm(a, b, sel))

    pairs, out = bits32("perm", (64, 2)), np.zeros(64, np.uint32)
    run(body, pairs, out)
    picked = [(sel >> 8 * k) & 7 for k in range(4)]
    both = np.concatenate([pairs[:, 1:].view(np.uint8), pairs[:, :1].view(np.uint8)], axis=1)
    assert np.array_equal(out.view(np.uint8).reshape(64, 4), both[:, picked])


def test_transpose4_is_the_transpose():
    def body(rows: Pointer, out: Pointer) -> None:
        put(out, thread_id(), *tiles.transpose4(list(words(rows, thread_id(), 4))))

    rows, out = bits32("transpose", (64, 4)), np.zeros((64, 4), np.uint32)
    run(body, rows, out)
    assert np.array_equal(
        out.view(np.uint8).reshape(64, 4, 4), rows.view(np.uint8).reshape(64, 4, 4).transpose(0, 2, 1)
    )


def staged_tiles(lo, hi, blk=3, physical=2):
    """LDS after a block was loaded, cleared outside [lo, hi] and stored into TK1, TV1; and the block's bytes."""
    cache, out = bits32("staging", (4, 128, 64)), np.zeros(5 * 4096, np.uint32)

    def body(cache: Pointer, out: Pointer, nblk: I32, blk: I32, physical: I32, lo: I32, hi: I32) -> None:
        tid = thread_id()
        loaded = tiles.kv_load(tiles.Cache(cache, nblk), physical, tid)
        tiles.kv_store(tiles.TK1, tiles.TV1, tiles.kv_live(loaded, blk, lo, hi, tid), tid)
        barrier()
        for step in range(0, 5 * 4096 // 4, 512):
            put(out, tid + step, *lds_read((tid + step) * 16, 4))

    run(body, cache, out, 4, blk, physical, lo, hi, block=512, lds=tiles.LDS_BYTES)
    return out, cache[physical].view(np.uint8).reshape(128, 256)


@pytest.mark.parametrize(("lo", "hi"), [(0, 10**6), (3 * 128 + 5, 3 * 128 + 90), (0, 3 * 128 - 1), (4 * 128, 5000)])
def test_staged_tiles_hold_keys_by_row_and_values_by_dim_in_operand_order(lo, hi):
    lds, rows = staged_tiles(lo, hi)
    key = np.arange(3 * 128, 4 * 128)
    rows = np.where(((key >= lo) & (key <= hi))[:, None], rows, 0)
    r, w = np.meshgrid(np.arange(128), np.arange(32), indexing="ij")
    keys = lds[tiles.tw(tiles.TK1, r, w)].view(np.uint8).reshape(128, 128)
    assert np.array_equal(keys, rows[:, :128])
    values = lds[tiles.tw(tiles.TV1, r, w)].view(np.uint8).reshape(128, 128)
    g, i, e = np.meshgrid(np.arange(4), np.arange(8), np.arange(4), indexing="ij")
    assert np.array_equal(values[:, (32 * g + 4 * i + e).ravel()], rows[(16 * i + 4 * g + e).ravel(), 128:].T)
    assert not lds[: 2 * 4096].any()
    assert not lds[3 * 4096 : 4 * 4096].any()


def test_stale_block_tables_are_clamped_into_the_row_and_the_cache():
    table = np.array([[-5, 3, 10**6, 2, -(2**31)], [7, 1, 4, 9, 5]], np.int32)
    out = np.zeros((2, 64), np.int32)

    def body(table: Pointer, out: Pointer, first: I32, hi: I32, nblk: I32) -> None:
        tid = thread_id()
        for r in range(2):
            row = constant(I32, r)
            physical = tiles.physical_blocks(tiles.Cache(out, nblk), table, constant(I32, 5), row, first, hi, tid)
            put(out, tid + 64 * r, physical)

    for first, hi in ((0, 5 * 128 - 1), (-3, 400), (1, -1), (3, 10**6)):
        run(body, table, out, first, hi, 8)
        column = np.clip(np.minimum(first + np.arange(64), hi // 128), 0, 4)
        assert np.array_equal(out, np.clip(table[:, column], 0, 7))


def test_new_rows_go_to_their_bytes_of_the_tiles():
    def body(data: Pointer, out: Pointer, key: I32) -> None:
        tid = thread_id()
        _, _, d_a, d_b = qkv.lane_dims(tid)
        a, b = words(data, tid, 2)
        tiles.store_new_key(tiles.TK0, key, (d_a, d_b), (a, b))
        tiles.store_new_value(tiles.TV0, key, (d_a, d_b), (a, b))
        barrier()
        for step in range(0, 5 * 4096 // 4, 16):
            put(out, tid + step, *lds_read((tid + step) * 16, 4))

    dims = np.concatenate([np.arange(0, 32), np.arange(64, 96)]).reshape(16, 4)
    dims = np.concatenate([dims, dims + 32], axis=1)
    for key in (0, 37, 90, 127):
        data, out = bits32(f"new row {key}", (16, 2)), np.zeros(5 * 4096, np.uint32)
        run(body, data, out, key, block=16, lds=tiles.LDS_BYTES)
        row = np.zeros(128, np.uint8)
        row[dims.ravel()] = data.view(np.uint8).ravel()
        r, w = np.meshgrid(np.arange(128), np.arange(32), indexing="ij")
        keys = out[tiles.tw(tiles.TK0, r, w)].view(np.uint8).reshape(128, 128)
        assert np.array_equal(keys[key], row)
        assert not np.delete(keys, key, axis=0).any()
        values = out[tiles.tw(tiles.TV0, r, w)].view(np.uint8).reshape(128, 128)
        at = 32 * (key // 4 % 4) + 4 * (key // 16) + key % 4
        assert np.array_equal(values[:, at], row)
        assert not np.delete(values, at, axis=1).any()


# ---- one block -------------------------------------------------------------------------------------------------------


def key_of_contraction(k):
    """The key that stands at index k of the PV product's contraction."""
    return 64 * (k // 64) + 16 * (k % 16 // 4) + 4 * (k % 64 // 16) + k % 4


def test_pv_contracts_the_keys_in_the_order_of_the_scores():
    """Byte 4 i + e of lane group g holds key 16 i + 4 g + e on both sides; the layout says which k that is."""
    operand = layout("v_mfma_scale_f32_16x16x128_f8f6f4", "A", "fp8")
    ks = []
    for k in range(128):
        place = operand.locate(5, k)
        g, byte = place.lane // 16, 4 * place.register + place.low_bit // 8
        assert 16 * (byte // 4) + 4 * g + byte % 4 == key_of_contraction(k)
        ks.append(key_of_contraction(k))
    assert sorted(ks) == list(range(128))


def block_states(image, position, lo, hi, blk):
    """(m, l, o[32]) float32 [variant][34][64] of one wave: block_math and block_acc from nothing, each with and without
    mask; block_math's m as it is, block_acc's times SM_SCALE."""
    out = np.zeros((4, 34, 64), np.float32)

    def body(image: Pointer, out: Pointer, position: I32, lo: I32, hi: I32, blk: I32) -> None:
        tid = thread_id()
        for step in range(0, 5 * 4096 // 4, 64):
            lds_write((tid + step) * 16, *words(image, tid + step, 4))
        barrier()
        l16, g4 = tid % 16, tid // 16
        row = block.Row(tiles.q_operand(constant(I32, 2), l16, g4), position, lo, hi, l16, g4)
        states = [block.block_math(row, tiles.TK0, tiles.TV0, blk, mask) for mask in (False, True)]
        for mask in (False, True):
            state = block.block_acc(row, tiles.TK0, tiles.TV0, blk, block.empty_state(), mask)
            states.append(dataclasses.replace(state, m=state.m * block.SM_SCALE))
        for number, state in enumerate(states):
            for index, value in enumerate(state.values):
                put(out, tid + (number * 34 + index) * 64, value)

    run(body, image, out, position, lo, hi, blk, lds=tiles.LDS_BYTES)
    return out


def tile_image(q, k, v):
    """LDS with E4M3 q [16 heads] as row 2 of TQ, k [128][128] in TK0, v [128][128] transposed in TV0."""
    image, (r, w) = np.zeros(5 * 4096, np.uint32), np.meshgrid(np.arange(128), np.arange(32), indexing="ij")
    queries = np.zeros((128, 128), np.uint8)
    queries[32:48] = q
    order = np.array([16 * (b % 32 // 4) + 4 * (b // 32) + b % 4 for b in range(128)])
    for tile, rows in ((tiles.TQ, queries), (tiles.TK0, k), (tiles.TV0, v[order].T)):
        image[tiles.tw(tile, r, w)] = np.ascontiguousarray(rows).view(np.uint32)
    return image


def e4m3(name, shape, width=1.0):
    return (bell(name, shape) * np.float32(width)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def test_block_math_and_block_acc_agree_on_a_first_block_and_with_a_true_mask():
    image = tile_image(e4m3("q", (16, 128)), e4m3("k", (128, 128)), e4m3("v", (128, 128)))
    states = block_states(image, 300, 0, 5000, 1).view(np.uint32)
    for other in (1, 2, 3):
        assert np.array_equal(states[0], states[other])


def test_a_block_is_a_softmax_with_256_p_in_e4m3():
    q, k, v = e4m3("q2", (16, 128)), e4m3("k2", (128, 128)), e4m3("v2", (128, 128))
    position, lo, hi, blk = 4200, 110, 240, 1
    _, masked, _, _ = block_states(tile_image(q, k, v), position, lo, hi, blk)
    decoded = [x.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for x in (q, k, v)]
    key = blk * 128 + np.arange(128)
    seen = (key > position - 4096) & (key >= lo) & (key <= hi)
    scores = np.where(seen, decoded[0] @ decoded[1].T, -np.inf)
    m = scores.max(axis=1)
    p = 256 * np.exp((scores - m[:, None]) / np.sqrt(128.0))
    p8 = p.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    o = p8 @ decoded[2]
    for g in range(4):
        here = slice(16 * g, 16 * g + 16)
        np.testing.assert_allclose(masked[0, here], m / np.sqrt(128.0), rtol=1e-6)
        np.testing.assert_allclose(masked[1, here], p.sum(axis=1), rtol=1e-5)
        for n in range(8):
            for e in range(4):
                got = masked[2 + 4 * n + e, here]
                np.testing.assert_allclose(got, o[:, 16 * n + 4 * g + e], rtol=2e-2, atol=2.0)


def test_a_block_without_a_visible_key_is_empty():
    image = tile_image(e4m3("q3", (16, 128)), e4m3("k3", (128, 128)), e4m3("v3", (128, 128)))
    states = block_states(image, 8000, 3905, 8006, 1)
    for number in (1, 3):
        assert np.isneginf(states[number, 0]).all()
        assert not states[number, 1:].any()


def test_keys_below_counts_the_lanes_own_keys():
    counts = np.arange(-200, 312, dtype=np.int32)

    def body(counts: Pointer, out: Pointer) -> None:
        put(out, thread_id(), block._keys_below(words(counts, thread_id()).bits(I32)))

    out = np.zeros(512, np.uint32)
    run(body, counts, out, block=512)
    offset = np.array([16 * (x // 4) + x % 4 for x in range(32)])
    assert np.array_equal(out, ((offset < counts[:, None]) << np.arange(32)).sum(axis=1).astype(np.uint32))


def test_constants_are_the_nearest_float32():
    exact = {block.QK_C: 1.4426950408889634 / 128**0.5, block.SM_SCALE: 128**-0.5, merge.LOG2_E: 1.4426950408889634}
    exact[merge.OVER_448] = 1 / 448
    for value, number in exact.items():
        assert value == float(np.float32(value)) == float(np.float32(number))


# ---- lanes -----------------------------------------------------------------------------------------------------------


def test_butterfly_combines_lower_with_upper_and_own_with_partner():
    def body(values: Pointer, out: Pointer) -> None:
        x = words(values, thread_id()).bits(F32)
        for number, offset in enumerate((32, 16, 8, 4, 2, 1)):
            put(out, thread_id() + 64 * number, lanes.butterfly(x, (offset,), lambda a, b: a - b))

    x, out = np.exp2(np.arange(64)).astype(np.float32) ** np.float32(0.3), np.zeros((6, 64), np.float32)
    run(body, x, out)
    lane = np.arange(64)
    for row, offset in zip(out, (32, 16, 8, 4, 2, 1), strict=True):
        first = lane & ~offset if offset >= 16 else lane
        assert np.array_equal(row, x[first] - x[first ^ offset])


def test_butterfly_adds_in_the_order_of_its_offsets():
    def body(values: Pointer, out: Pointer) -> None:
        x = words(values, thread_id()).bits(F32)
        put(out, thread_id(), lanes.butterfly(x, (8, 4, 2, 1)))
        put(out, thread_id() + 64, lanes.butterfly(x, (16, 32)))

    x, out = (
        bell("butterfly", 64) * np.exp2(integers("butterfly e", 64, -9, 9)).astype(np.float32),
        np.zeros((2, 64), "f4"),
    )
    run(body, x, out)
    for row, offsets in zip(out, ((8, 4, 2, 1), (16, 32)), strict=True):
        total = x
        for offset in offsets:
            total = total + total[np.arange(64) ^ offset]
        assert np.array_equal(row, total)


def test_packing_is_e4m3_and_bf16_to_nearest_even():
    def body(values: Pointer, out: Pointer) -> None:
        x = [w.bits(F32) for w in words(values, thread_id(), 4)]
        put(out, thread_id() * 3, lanes.fp8_pack4(*x))
        for i, value in enumerate(lanes.bf16_round(x[0], x[1])):
            put(out, thread_id() * 3 + 1 + i, value)

    x = bell("packing", (64, 4)) * np.exp2(integers("packing e", (64, 4), -12, 8)).astype(np.float32)
    x[0], out = (0.0, -0.0, 464.0, -449.0), np.zeros((64, 3), np.uint32)
    run(body, x, out)
    assert np.array_equal(
        out[:, 0].copy().view(np.uint8).reshape(64, 4), x.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    )
    assert np.array_equal(out[:, 1:].copy().view(np.float32), x[:, :2].astype(ml_dtypes.bfloat16).astype(np.float32))


# ---- heads -----------------------------------------------------------------------------------------------------------


def test_slots_cover_every_head_of_a_request_once():
    out = np.zeros((4, 512, 5), np.int32)

    def body(out: Pointer) -> None:
        tid = thread_id()
        for turn in range(4):
            slot = qkv.slot_of(constant(I32, 3), turn, tid)
            flags = [constant(I32, 1), constant(I32, 0)] if slot.is_q is None else [slot.is_q, slot.is_v]
            flags = [f if isinstance(f, I32) else f.select(constant(I32, 1), 0) for f in flags]
            index = (tid + 512 * turn) * 5
            for i, value in enumerate((slot.j, slot.token, slot.column, *flags)):
                put(out, index + i, value)

    run(body, out, block=512)
    slots = out[:, ::16].reshape(128, 5)
    assert np.array_equal(out, np.repeat(slots.reshape(4, 32, 5), 16, axis=1))
    t = np.arange(126)
    j = np.where(t < 112, t // 16, (t - 112) % 7)
    column = np.where(t < 112, t % 16 * 128, np.where(t < 119, 2048, 2176))
    assert np.array_equal(slots[:126, 0], j)
    assert np.array_equal(slots[:126, 1], 21 + j)
    assert np.array_equal(slots[:126, 2], column)
    assert np.array_equal(slots[:126, 3], t < 112)
    assert np.array_equal(slots[112:126, 4], t[112:] >= 119)
    assert (slots[126:, 0] <= 6).all()


def test_lane_dims_pair_rope_partners():
    out = np.zeros((16, 2), np.int32)

    def body(out: Pointer) -> None:
        _, _, d_a, d_b = qkv.lane_dims(thread_id())
        put(out, thread_id(), d_a, d_b)

    run(body, out, block=16)
    assert np.array_equal(out[:, 1], out[:, 0] + 32)
    assert np.array_equal(out[:8, 0], 4 * np.arange(8))
    assert np.array_equal(out[8:, 0], 64 + 4 * np.arange(8))


def test_rope_rounds_the_sine_product_and_fuses_the_rest():
    def body(n: Pointer, turns: Pointer, out: Pointer) -> None:
        tid = thread_id()
        x = [w.bits(F32) for half in range(2) for w in words(n, tid * 2 + half, 4)]
        rotated = qkv.rope_rotated(x, list(words(turns, tid, 4)), tid % 16 < 8)
        for half in range(2):
            put(out, tid * 2 + half, *rotated[4 * half : 4 * half + 4])

    n, out = bell("rope", (64, 8)), np.zeros((64, 8), np.float32)
    turns = bell("turns", (64, 8)).astype(ml_dtypes.bfloat16)
    run(body, n, turns.view(np.uint32), out)
    a, b, c, s = (x.astype(np.float64) for x in (n[:, :4], n[:, 4:], turns[:, :4], turns[:, 4:]))
    first = (a * c - (b * s).astype(np.float32).astype(np.float64)).astype(np.float32)
    second = (b * c + (a * s).astype(np.float32).astype(np.float64)).astype(np.float32)
    rotates = (np.arange(64) % 16 < 8)[:, None]
    assert np.array_equal(out, np.where(rotates, np.concatenate([first, second], axis=1), n))


# ---- window, partitions, merge ---------------------------------------------------------------------------------------


def test_partitions_take_consecutive_runs_of_the_rounded_up_share():
    out = np.zeros((512, 2), np.int32)

    def body(out: Pointer, lo: I32, hi: I32, na: I32) -> None:
        part = kernel.partition(kernel.Window(lo, lo, hi), na, thread_id())
        put(out, thread_id(), part.first, part.count)

    program = trace(declare(block=64)(body))
    for blocks in (0, 1, 2, 7, 33, 34):
        for na in (1, 2, 3, 5, 7, 17, 33, 34, 35, 63, 64):
            lo, hi = 300, (300 // 128 + blocks) * 128 - 1
            run_source(program, (1,), (out, lo, hi, na))
            taken = [range(first - 2, first - 2 + count) for first, count in out[:na].tolist()]
            size = -(-blocks // na)
            assert [len(x) for x in taken] == [max(0, min(size, blocks - p * size)) for p in range(na)]
            assert [x for part in taken for x in part] == list(range(blocks))


@pytest.mark.parametrize(
    ("first", "seq_len"),
    [(0, 7), (40, 47), (4095, 4102), (4096, 4103), (8990, 8997), (100, 4400), (5000, 880), (6000, 0), (64, 60)],
)
def test_window_is_the_union_of_the_rows_windows(first, seq_len):
    out, positions = np.zeros(3, np.int32), (first + np.arange(14, dtype=np.int64) - 7).clip(0)

    def body(positions: Pointer, seq_lens: Pointer, out: Pointer) -> None:
        keys = kernel.window(constant(I32, 1), positions, seq_lens)
        store(out, keys.p0, keys.lo, keys.hi)

    run(body, positions, np.array([0, seq_len], np.int32), out)
    request = Request(first, seq_len)
    assert tuple(out) == (first, *request.window)


def test_quantised_is_mxfp8_with_round_up():
    def body(values: Pointer, codes: Pointer, scales: Pointer) -> None:
        tid = thread_id()
        code, scale = merge.quantised(words(values, tid).bits(F32))
        put(codes, tid, code)
        put(scales, tid, scale)

    x = (bell("mx", (8, 32)) * np.exp2(np.linspace(-126, 120, 8)).astype(np.float32)[:, None]).astype(np.float32)
    x[0], x[1, 0] = 0, np.float32(448.0)
    codes, scales = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    run(body, x, codes, scales, block=256)
    wanted_codes, wanted_scales = mx.quantize(x, mx.ScaleRule.ROUND_UP)
    assert np.array_equal(scales.reshape(8, 32), np.repeat(wanted_scales, 32, axis=1))
    assert np.array_equal(codes.reshape(8, 32) & 0xFF, wanted_codes)


def test_merge_weighs_partials_in_order():
    """Three partials with known m, l, o; the weights are powers of two, so every step is exact."""
    na, (partials, a8, as8) = (
        3,
        (np.zeros((3, PARTIAL_BYTES // 4), np.float32), np.zeros((7, 2048), "u1"), np.zeros((7, 64), "u1")),
    )
    ln2 = np.log(2.0)
    for part, (power, weight) in enumerate(((0, 2.0), (-1, 4.0), (-np.inf, 0.0))):
        partials[part, :112] = power * ln2 if np.isfinite(power) else -np.inf
        partials[part, 128:240] = weight
        partials[part, 256:] = weight * (part + 1)
    run_source(launch.programs()[1], (4, 7, 1), (partials, a8, as8, na))
    got = mx.dequantize(a8, as8)
    np.testing.assert_allclose(got, (2 * 1 + 4 * 0.5 * 2) / (2 + 4 * 0.5), rtol=2**-4)
    assert got.min() == got.max() == 1.5


@pytest.mark.parametrize("na", [1, 2, 7, 8, 9, 19, 64])
def test_merge_adds_in_order_and_divides(na):
    """With equal m every weight is 1, and numpy's float32 sums give the bits."""
    partials = np.zeros((na, PARTIAL_BYTES // 4), np.float32)
    a8, as8 = np.zeros((7, 2048), np.uint8), np.zeros((7, 64), np.uint8)
    partials[:, :112] = 1.25
    partials[:, 128:240] = np.abs(bell(f"merge l {na}", (na, 112))) * 256
    partials[:, 256:] = bell(f"merge o {na}", (na, 112 * 128)) * 4096
    run_source(launch.programs()[1], (4, 7, 1), (partials, a8, as8, na))
    bottom, o = np.zeros(112, np.float32), np.zeros(112 * 128, np.float32)
    for part in partials:
        bottom, o = bottom + part[128:240], o + part[256:]
    out = (o.reshape(112, 128) / bottom[:, None]).astype(ml_dtypes.bfloat16).astype(np.float32)
    codes, scales = mx.quantize(out, mx.ScaleRule.ROUND_UP)
    assert np.array_equal(a8, codes.reshape(7, 2048))
    assert np.array_equal(as8, scales.reshape(7, 64))


def test_merge_of_nothing_is_zero():
    partials, a8, as8 = (
        np.zeros((2, PARTIAL_BYTES // 4), np.float32),
        np.full((7, 2048), 9, "u1"),
        np.full((7, 64), 9, "u1"),
    )
    partials[:, :112] = -np.inf
    run_source(launch.programs()[1], (4, 7, 1), (partials, a8, as8, 2))
    assert not a8.any()
    assert (as8 == 1).all()


# ---- code ------------------------------------------------------------------------------------------------------------


def test_resources():
    attention, merged = (launch.compiled().resources[name] for name in ("drafter_attention", "drafter_merge"))
    assert (attention.spills, attention.scratch, attention.agprs) == (0, 0, 0)
    assert (merged.spills, merged.scratch, merged.agprs) == (0, 0, 0)
    assert attention.lds == 81920
    assert merged.lds == 2048
    assert attention.vgprs <= 128  # four waves a SIMD: two workgroups a CU
    assert attention.instructions["s_barrier"] == 3
    assert attention.instructions["v_mfma_scale_f32_16x16x128_f8f6f4"] == 2 * 24
    assert attention.instructions["ds_read_b128"] == 2 * 48 + 2


def matrix_ops(region):
    """Matrix instructions of the ways through a region, one number a way."""
    here = sum(op.attributes.get("mnemonic", "").startswith("v_mfma") for op in region.ops)
    ways = {here}
    for op in region.ops:
        inside = set().union(*(matrix_ops(r) for r in op.regions)) if op.regions else {0}
        ways = {way + more for way in ways for more in inside}
    return ways


def test_a_wave_runs_16_matrix_instructions_a_block_or_none():
    """8 for the scores, masked or not, and 8 for the values; wave 7 runs none."""
    assert matrix_ops(launch.programs()[0].body) == {0, 16}
    own = [
        sum("mnemonic" in op.attributes and "mfma" in op.attributes["mnemonic"] for op in r.ops)
        for op in launch.programs()[0].operations()
        for r in op.regions
    ]
    assert sorted(n for n in own if n) == [8] * 6


def test_the_readme_states_these_resources():
    for name, used in launch.compiled().resources.items():
        numbers = used.vgprs, used.agprs, used.sgprs, used.lds, used.spills, sum(used.instructions.values())
        row = f"| {name} | {' | '.join(map(str, numbers))} |"
        assert row in README.read_text(), f"the README's resource table needs this row: {row}"


def test_the_readme_s_example_runs():
    text = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL))
    example = doctest.DocTestParser().get_doctest(text, {}, README.name, str(README), 0)
    assert len(example.examples) >= 5
    assert doctest.DocTestRunner().run(example).failed == 0


class BankConflicts:
    """The most extra cycles of any wave's LDS access, by instruction and tile."""

    def __init__(self):
        self.worst = defaultdict(int)

    def operation(self, op, operands, results, active, workgroup):
        if op.name not in ("lds_read", "lds_write"):
            return
        size = {1: "b8", 4: "b32", 8: "b64", 16: "b128"}[op.attributes["nbytes"]]
        mnemonic = f"ds_{op.name[4:]}_{size}"
        addresses = np.broadcast_to(operands[0], active.shape).astype(np.int64)
        for wave, lanes_on in zip(addresses, active, strict=True):
            if lanes_on.any():
                key = mnemonic, int(wave[lanes_on].min()) // TILE_BYTES
                self.worst[key] = max(self.worst[key], conflicts(mnemonic, wave, lanes_on).extra_cycles)


def test_bank_conflicts_of_the_real_addresses():
    inputs, seen = build(Case("banks", (Request(380),), 1, "")), BankConflicts()
    outputs = launch._outputs(inputs)
    grid, arguments = launch._attention_grid(inputs), launch._attention_arguments(inputs, outputs)
    run_source(launch.programs()[0], grid, arguments, observers=[seen])
    tq, tk0, tk1, tv0, tv1 = range(5)
    reads = {tile: n for (name, tile), n in seen.worst.items() if name == "ds_read_b128"}
    assert reads == {tq: 0, tk0: 0, tk1: 0, tv0: 4, tv1: 4}
    writes = {key: n for key, n in seen.worst.items() if key[0] != "ds_read_b128"}
    assert {key: n for key, n in writes.items() if key[0] == "ds_write_b128"} == {
        ("ds_write_b128", tk0): 0,
        ("ds_write_b128", tk1): 0,
    }
    assert writes["ds_write_b32", tv0] == writes["ds_write_b32", tv1] == 6
    assert writes["ds_write_b32", tq] == 2


# ---- input checks ----------------------------------------------------------------------------------------------------


def changed(name="small", **changes):
    inputs = build(CASES[name])
    arrays = {}
    for field, change in changes.items():
        value = getattr(inputs, field)
        arrays[field] = change(value.copy() if isinstance(value, np.ndarray) else value)
    return dataclasses.replace(inputs, **arrays)


def with_value(index, value):
    def change(array):
        array[index] = value
        return array

    return change


WRONG = [
    ({"qkv": lambda a: a.astype(np.float32)}, TypeError, r"qkv has dtype float32; expected uint16"),
    ({"positions": lambda a: a.tolist()}, TypeError, r"positions is a list; expected a numpy array of int64"),
    ({"cache": lambda a: a[:, :, ::-1]}, TypeError, r"cache is not C-contiguous"),
    ({"qkv": lambda a: a[:, :-128].copy()}, ValueError, r"qkv has shape \(7, 2176\); expected \(7, 2304\)"),
    ({"cos_sin": lambda a: a[:, :32].copy()}, ValueError, r"cos_sin has shape .* expected \(any, 64\)"),
    ({"na": lambda n: 65}, ValueError, r"na is 65; a request has 1 to 64 partitions"),
    ({"eps": lambda eps: 0.0}, ValueError, r"eps is 0.0; expected a positive number"),
    ({"na": lambda n: 0}, ValueError, r"na is 0; a request has 1 to 64 partitions"),
    (
        {"cos_sin": lambda a: a[:46].copy()},
        ValueError,
        r"positions\[6\] is 46; expected 0 \.\. 45 \(the rows of cos_sin",
    ),
    ({"positions": with_value(3, -1)}, ValueError, r"positions\[3\] is -1; expected 0 \.\."),
    ({"positions": with_value(3, 40)}, ValueError, r"positions\[3\] is 40; expected 43: the 7 rows of request 0"),
    ({"slots": with_value(2, 4 * 128)}, ValueError, r"slots\[2\] is 512; expected -2147483648 \.\. 511"),
    ({"slots": lambda a: with_value(2, a[5])(a)}, ValueError, r"slots\[2\] and slots\[5\] are both \d+"),
    ({"slots": with_value(1, 0)}, ValueError, r"slots\[1\] is 0; .* position 41 .* at slot \d+"),
    ({"seq_lens": with_value(0, -3)}, ValueError, r"seq_lens\[0\] is -3; expected 0"),
    ({"seq_lens": with_value(0, 1000)}, ValueError, r"block_table has 3 columns; request 0 .* needs blocks 0 \.\. 7"),
    ({"block_table": with_value((0, 0), 99)}, ValueError, r"block_table\[0, 0\] is 99; expected 0 \.\. 3"),
    ({"block_table": with_value((0, 0), -1)}, ValueError, r"block_table\[0, 0\] is -1; expected 0 \.\. 3"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG)
def test_wrong_inputs_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        launch.check_inputs(changed(**changes))


def test_stale_metadata_of_padded_requests_is_legal():
    for name in ("padded", "all_padded", "stale_lengths"):
        launch.check_inputs(inputs_of(name))
    launch.check_inputs(changed("padded", block_table=with_value((1, 0), -(2**31))))
