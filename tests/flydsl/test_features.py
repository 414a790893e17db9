"""What FlyDSL's compiler makes beside plain arithmetic: scratch, divergent loops, exchanges between lanes, tracing."""

import numpy as np
from flydsl_kernels import ENGINES, compile_flydsl, launch, needs_flydsl, run_everywhere

pytestmark = needs_flydsl


def test_scratch():
    """A lane's own array that registers cannot hold, indexed by a number known only then."""
    rng = np.random.default_rng(22)
    words, places = rng.integers(0, 1 << 30, (64, 300), dtype=np.int32), rng.integers(0, 300, 64, dtype=np.int32)
    (_, out), mnemonics = run_everywhere(compile_flydsl("features", "scratch"), 1, 64, [words, places])
    assert np.array_equal(out, words[np.arange(64), places])
    assert {"scratch_store_dwordx4", "scratch_load_dword"} <= mnemonics


def steps(number):
    count = 0
    while number != 1:
        number, count = (number * 3 + 1 if number % 2 else number // 2), count + 1
    return count


def test_loops_of_lanes_that_part():
    numbers = np.arange(1, 1025, dtype=np.int32)  # 16 waves: the largest workgroup
    (_, out), _ = run_everywhere(compile_flydsl("features", "collatz"), 1, 1024, [numbers, np.zeros_like(numbers)])
    assert list(out) == [steps(int(n)) for n in numbers]


def test_exchanges_between_lanes():
    x = np.random.default_rng(23).integers(0, 1 << 30, 64, dtype=np.int32)
    (_, out), mnemonics = run_everywhere(
        compile_flydsl("features", "exchanges"), 1, 64, [x, np.zeros(64 * 10, np.int32)]
    )
    lane = np.arange(64)
    ballot = sum(1 << int(i) for i in lane[x % 3 == 0])
    up = np.where(lane >= 3, lane - 3, lane)
    down = np.where(lane % 32 < 29, lane + 3, lane)
    expected = [x[lane ^ 5], np.full(64, x[7]), np.full(64, x[0]), x[up], x[down], np.full(64, x[9]), x[lane ^ 33]]
    expected += [x[np.where(lane % 16 > 0, lane - 1, lane)], x[lane ^ 16]]
    expected += [np.full(64, np.uint32(ballot & 0xFFFFFFFF)).view(np.int32)]
    for column, values in enumerate(expected):
        if column not in (3, 4):
            assert np.array_equal(out.reshape(64, 10)[:, column], values), column
    # Lanes whose source lies outside their group are left open; shuffle_idx counts through the wave at any width.
    assert np.array_equal(out.reshape(64, 10)[3:, 3], x[:-3])
    assert np.array_equal(out.reshape(64, 10)[:29, 4], x[3:32])
    assert {"ds_bpermute_b32", "v_readlane_b32", "v_readfirstlane_b32", "ds_swizzle_b32"} <= mnemonics


def parts(words, bits, signed):
    """The parts of each word, the lowest first, as whole numbers."""
    pieces = words.view(np.uint32)[:, None].astype(np.int64) >> np.arange(0, 32, bits) & (1 << bits) - 1
    return np.where(signed & (pieces >> bits - 1 > 0), pieces - (1 << bits), pieces)


def test_sums_of_products():
    """Whole numbers small enough for f16, bf16 and f32 to hold exactly."""
    rng = np.random.default_rng(27)
    words = rng.integers(-100, 100, (64, 3, 2)).astype(np.int16).view(np.int32).reshape(64, 3)
    words[:, 2] = rng.integers(-1000, 1000, 64)
    (_, out), mnemonics = run_everywhere(compile_flydsl("features", "dots"), 1, 64, [words, np.zeros(64 * 9, np.int32)])
    x, y, z = words.T.copy()
    expected = []
    for bits in (16, 8, 4):
        for signed in (True, False):
            expected.append((parts(x, bits, signed) * parts(y, bits, signed)).sum(1) + z)
    expected += [expected[0], expected[0], np.median(words.astype(np.float32), axis=1)]  # the last one rounds its words
    expected = np.stack(expected, axis=1).astype(np.int64).astype(np.uint32).view(np.int32)
    assert np.array_equal(out.reshape(64, 9), expected)
    assert {"v_dot2c_i32_i16", "v_dot4_u32_u8", "v_dot8c_i32_i4", "v_dot2c_f32_bf16", "v_med3_f32"} <= mnemonics


RECORD = np.dtype(
    [("time", "<u8"), ("payload", "<u8"), ("hardware", "<u4"), ("die", "<u4"), ("what", "<u4"), ("_", "<u4")]
)
HEADER = np.dtype([("events", "<u4"), ("wave", "<u4"), ("dispatch", "<u8"), ("queue", "<u8"), ("group", "<u4", 2)])


def test_tracing():
    """FlyDSL's own instrumentation: each wave takes a region of the buffer by an atomic, for a head and its events."""
    data = compile_flydsl("features", "traced")
    x = np.arange(128, dtype=np.int32)
    for options in ENGINES:
        y, trace = np.zeros_like(x), np.zeros((1 << 16) // 32, RECORD)
        launch(data, 1, 128, [x, y, trace.view(np.uint8)], options)
        assert np.array_equal(y, x + 1)
        heads = [i for i, head in enumerate(trace.view(HEADER)) if head["events"] == 3]
        waves = [int(trace.view(HEADER)[i]["wave"]) for i in heads]
        assert sorted(waves) == [0, 1]  # which comes first is the schedule's business
        for wave, head in zip(waves, heads, strict=True):
            events = trace[head + 1 : head + 4]
            assert (np.diff(events["time"].astype(np.int64)) > 0).all()
            assert [int(e) >> 24 & 7 for e in events["what"]] == [0, 1, 2]  # a mark, a range's begin and its end
            assert events["payload"][0] == wave
