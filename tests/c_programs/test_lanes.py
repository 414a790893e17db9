"""Instructions between lanes, compiled from builtins, against numpy models over waves of 64: 131072 work-items each."""

import numpy as np
import pytest
from c_kernels import module_of

from emu.dispatch import RunOptions

WAVES = 2048
LANE = np.arange(64)
ROW, PLACE = LANE // 16, LANE % 16
SMALL = RunOptions(engine="numpy")


@pytest.fixture(scope="module")
def words():
    return np.random.default_rng(11).integers(0, 1 << 32, (2, WAVES, 64), dtype=np.uint32)


def run(name, words, rows, level="-O2"):
    """The kernel's rows, uint32 (rows, waves, 64); a few waves on the numpy engine must give the same."""
    out = np.zeros((rows, *words.shape[1:]), np.uint32)
    module_of("lanes.c", level)[name][words.shape[1] // 4, 256](words, out, np.uint32(words[0].size))
    few = np.ascontiguousarray(words[:, :4])
    again = np.zeros((rows, 4, 64), np.uint32)
    module_of("lanes.c", level)[name][1, 256](few, again, np.uint32(256), options=SMALL)
    assert np.array_equal(again, out[:, :4])
    return out


def from_lanes(x, source):
    """x of other lanes: source is (64,) or one row a wave."""
    return np.take_along_axis(x, np.broadcast_to(source, x.shape), axis=1)


def test_permutes_push_and_pull(words):
    x, y = words
    out = run("permutes", words, 4)
    assert np.array_equal(out[0], from_lanes(x, y // 4 % 64))
    pushed = np.zeros_like(x)
    pushed[:, (LANE * 5 + 3) % 64] = x
    assert np.array_equal(out[1], pushed)
    targets, several = y % 32 * 8 // 4, np.zeros_like(x)
    for lane in LANE:  # a later lane writes over an earlier one
        several[np.arange(WAVES), targets[:, lane]] = x[:, lane]
    assert np.array_equal(out[2], several)
    active, source = y & 1 == 1, x // 4 % 64
    pulled = np.where(from_lanes(active, source), from_lanes(y, source), 0)
    assert np.array_equal(out[3], np.where(active, pulled, 0x1234))


def test_swizzles(words):
    half, lane = LANE & 32, LANE & 31
    sources = [LANE, LANE ^ 3, LANE ^ 1, LANE ^ 31, half | lane & 16, half | ((lane & 0x15 | 0x05) ^ 0x0A)]
    sources += [half | (lane + 3) % 32, half | (lane - 5) % 32]
    out = run("swizzles", words, 8)
    for row, source in zip(out, sources, strict=True):
        assert np.array_equal(row, from_lanes(words[0], source)), source


def moved(x, old, control, rows=0xF, banks=0xF, bound=False):
    """A DPP move: lanes whose source does not exist keep the old value, or become 0 with bound; masks keep it too."""
    n = control & 15
    if control < 0x100:
        source, exists = LANE & ~3 | control >> 2 * (LANE & 3) & 3, LANE >= 0
    elif control < 0x130:
        place = {0x100: PLACE + n, 0x110: PLACE - n, 0x120: (PLACE - n) % 16}[control & 0x1F0]
        source, exists = ROW * 16 + place % 16, (place >= 0) & (place < 16)
    elif control < 0x140:
        shift = {0x130: 1, 0x134: 1, 0x138: -1, 0x13C: -1}[control]
        source = (LANE + shift) % 64
        exists = (LANE + shift == source) | (control in (0x134, 0x13C))
    elif control < 0x142:
        source, exists = (LANE ^ 15, LANE ^ 7)[n], LANE >= 0
    elif control == 0x142:
        source, exists = ROW * 16 - 1, ROW > 0
    elif control == 0x143:
        source, exists = LANE * 0 + 31, LANE >= 32
    else:
        source, exists = ROW * 16 + n, LANE >= 0
    enabled = (rows >> ROW & 1 == 1) & (banks >> PLACE // 4 & 1 == 1)
    value = np.where(exists, from_lanes(x, source % 64), 0 if bound else old)
    return np.where(enabled, value, old)


CONTROLS = [
    (0x1B,), (0x9C,), (0x101,), (0x10F, 15, 15, True), (0x111,), (0x117, 15, 15, True), (0x121,), (0x12D,), (0x140,),
    (0x141,), (0x142,), (0x143,), (0x150,), (0x15B,), (0x101, 5), (0x101, 15, 6), (0x142, 10), (0x1B, 9, 3, True),
    (0x130,), (0x134,), (0x138, 15, 15, True), (0x13C,),
]  # fmt: skip


def test_data_parallel_moves(words):
    x, y = words
    out = run("data_parallel_moves", words, len(CONTROLS))
    for row, control in zip(out, CONTROLS, strict=True):
        assert np.array_equal(row, moved(x, y, *control)), [hex(c) for c in control]


def test_moves_folded_into_other_instructions(words):
    x, y = words
    out = run("folded_moves", words, 3)
    zero = np.zeros_like(x)
    assert np.array_equal(out[0], y + moved(x, zero, 0x1B))
    assert np.array_equal(out[1], np.maximum(y, moved(x, zero, 0x114, bound=True)))
    turned = moved((x >> 12 | 0x3F800000).view(np.float32).view(np.uint32), zero, 0x128)
    assert np.array_equal(out[2], ((y & 0xFFFF).astype(np.float32) + turned.view(np.float32)).view(np.uint32))


def test_swaps_of_halves_and_rows(words):
    x, y = words
    out = run("swaps", words, 4)
    lower = LANE < 32
    assert np.array_equal(out[0], np.where(lower, x, from_lanes(y, LANE ^ 32)))
    assert np.array_equal(out[1], np.where(lower, from_lanes(x, LANE ^ 32), y))
    even = ROW % 2 == 0
    assert np.array_equal(out[2], np.where(even, x, from_lanes(y, LANE ^ 16)))
    assert np.array_equal(out[3], np.where(even, from_lanes(x, LANE ^ 16), y))


def test_reads_of_one_lane(words):
    x, y = words
    out = run("lane_reads", words, 5)
    assert (out[0] == x[:, :1]).all()
    assert (out[1] == x[:, 37:38]).all()
    assert np.array_equal(out[2], from_lanes(x, y[:, :1] % 64))
    active = y & 4 != 0
    first = from_lanes(x, active.argmax(axis=1)[:, None])
    assert np.array_equal(out[3], np.where(active, first, 77))
    assert np.array_equal(out[4], x + (LANE == 9).astype(np.uint32))


def bits_of(flags):
    """The ballot of each wave, uint64 (waves, 1)."""
    return (flags.astype(np.uint64) << np.arange(64, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)[:, None]


def test_votes_and_counts(words):
    x, y = words
    out = run("votes", words, 14)
    wide = [out[k].astype(np.uint64) | out[k + 1].astype(np.uint64) << np.uint64(32) for k in (0, 2, 4, 6, 12)]
    odd, branch = bits_of(x & 1 == 1), y & 2 != 0
    assert (wide[0] == odd).all()
    assert (wide[1] == bits_of(x < y)).all()  # 36: unsigned less
    assert np.array_equal(wide[2], np.where(branch, bits_of((x > y) & branch), 0).astype(np.uint64))
    assert np.array_equal(wide[3], np.where(branch, bits_of(branch), 0).astype(np.uint64))
    below = (1 << np.minimum(LANE, 32).astype(np.uint64)) - np.uint64(1)
    above = (1 << np.maximum(LANE - 32, 0).astype(np.uint64)) - np.uint64(1)
    assert np.array_equal(out[8], y + np.bitwise_count(x & below.astype(np.uint32)))
    assert np.array_equal(out[9], y + np.bitwise_count(x & above.astype(np.uint32)))
    assert np.array_equal(out[10], np.bitwise_count(odd) + LANE.astype(np.uint32))
    assert np.array_equal(out[11], (odd ^ np.uint64(0x123456789ABCDEF)) >> LANE.astype(np.uint64) & np.uint64(1))
    assert (wide[4] == bits_of(x % 16 >= y % 16)).all()


def test_reductions_of_a_wave(words):
    x, y = words
    out = run("reductions", words, 6)
    assert (out[0] == x.sum(axis=1, dtype=np.uint32)[:, None]).all()
    assert (out[1] == x.max(axis=1)[:, None]).all()
    assert (out[2].view(np.int32) == x.view(np.int32).min(axis=1)[:, None]).all()
    assert (out[3] == np.bitwise_xor.reduce(x, axis=1)[:, None]).all()
    active = y & 1 == 1
    chosen = np.where(active, x & np.uint32(0x11111111) << (y & 3), 0)
    assert np.array_equal(out[4], np.where(active, np.bitwise_or.reduce(chosen, axis=1)[:, None], 5))
    assert (out[5] == y.sum(axis=1, dtype=np.uint32)[:, None]).all()


@pytest.mark.parametrize("options", [RunOptions(), SMALL], ids=["host", "numpy"])
def test_counters_of_whole_waves_in_lds(options):
    """Append and consume move a counter by the lanes that are on, and give its value before to all of them."""
    out = np.zeros(194, np.uint32)
    module_of("lanes.c", "-O2")["lds_counters"][1, 192](out, options=options)
    assert (out[192], out[193]) == (100 + 96, 100 - 96)
    for wave in out[:192].reshape(3, 64):
        assert (wave[1::2] == wave[1]).all()
        assert (wave[0::2] == wave[0]).all()
    assert sorted(out[1:192:64]) == [100, 132, 164]
    assert sorted(out[0:192:64]) == [100 - 64, 100 - 32, 100]


def same_floats(found, expected):
    both = np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    raw = {2: np.uint16, 4: np.uint32, 8: np.uint64}[found.dtype.itemsize]
    return bool((both | (found.view(raw) == expected.view(raw))).all())


def test_float_atomics(words):
    import ml_dtypes

    out = run("float_atomics", words, 6)
    x, y = words
    with np.errstate(all="ignore"):
        assert same_floats(out[0].view(np.float16), x.view(np.float16) + y.view(np.float16))
        brains = [w.view(ml_dtypes.bfloat16).astype(np.float32) for w in (x, y)]
        assert same_floats(out[1].view(ml_dtypes.bfloat16), (brains[0] + brains[1]).astype(ml_dtypes.bfloat16))
        exponents = [w >> np.uint32(23) & np.uint32(255) for w in (x, y)]
        ordinary = (exponents[0] > 30) & (exponents[1] > 30)  # no subnormals on the way: those are a rule of their own
        sums = x.view(np.float32) + y.view(np.float32)
        assert same_floats(out[2].view(np.float32)[ordinary], sums[ordinary])
    for before in out[3:]:
        assert np.array_equal(before, y)


def test_wide_float_atomics():
    count = 1 << 16
    values = np.random.default_rng(12).standard_normal((2, count)) * 10.0 ** np.arange(-20, 12).repeat(count // 32)
    out = np.zeros((4, count))
    module_of("lanes.c", "-O2")["wide_float_atomics"][count // 256, 256](values, out, np.uint32(count))
    x, y = values
    assert np.array_equal(out, np.stack([x + y, np.minimum(x, y), np.maximum(x, y), y]))


def test_wrapping_counters(words):
    out = run("wrapping_counters", words, 4)
    top, old = words[0] & 7, words[1] & 7
    assert np.array_equal(out[0], np.where(old >= top, 0, old + 1))
    assert np.array_equal(out[1], np.where((old == 0) | (old > top), top, old - 1))
    assert np.array_equal(out[2], old)
    assert np.array_equal(out[3], old)
