"""FlyDSL's cooperative algorithms against numpy, bit for bit, on every engine: all of `flydsl.expr.coop`, 32 bits wide.

A model gets the keys and values as (threads, 4) and returns each thread's results; None stands for results that the
algorithm leaves open.
"""

import numpy as np
import pytest
from flydsl_kernels import compile_flydsl, needs_flydsl, run_everywhere

pytestmark = needs_flydsl

THREADS, ITEMS = 256, 4
COUNT = THREADS * ITEMS
REDUCE = ["raking", "raking_commutative_only", "warp_reductions", "warp_reductions_nondeterministic"]
SCAN = ["raking", "raking_memoize", "warp_scans"]
MOVE = ["direct", "striped", "vectorize", "transpose", "warp_transpose", "warp_transpose_timesliced"]


def inputs():
    rng = np.random.default_rng(14)
    keys = rng.integers(-1000, 1000, COUNT).astype(np.int32)
    return keys, rng.permutation(COUNT).astype(np.int32)


def ran(build):
    """(keys after the run, results of each thread)."""
    keys, values = inputs()
    after, _ = run_everywhere(
        compile_flydsl("collectives", build), 1, THREADS, [keys, values, np.zeros(THREADS * 32, np.int32)]
    )
    return after[0], after[2]


def check(build, *columns):
    """Whether the results are these columns: (threads,), (threads, n) or a number for all."""
    _, out = ran(build)
    columns = [np.broadcast_to(np.asarray(c).T, (*np.shape(c)[1:], THREADS)).T.reshape(THREADS, -1) for c in columns]
    expected = np.concatenate(columns, axis=1).astype(np.int32)
    assert np.array_equal(out[: expected.size].reshape(expected.shape), expected)
    assert not out[expected.size :].any()


def striped(sequence, group=THREADS):
    """Each thread's items of a sequence that goes round the threads of a group, not through each thread's items."""
    return sequence.reshape(-1, ITEMS, group).transpose(0, 2, 1).reshape(THREADS, ITEMS)


def from_striped(items, group=THREADS):
    """The sequence that threads hold striped."""
    return items.reshape(-1, group, ITEMS).transpose(0, 2, 1).reshape(-1)


def exclusive(sequence, function, first):
    return function.accumulate(np.concatenate([[first], sequence], dtype=np.int32))[:-1]


@pytest.mark.parametrize("build", [f"{kind}reduce_{name}" for kind in ("", "universal_") for name in REDUCE])
def test_reduce(build):
    keys, _ = inputs()
    check(build, keys.sum(), keys.max(), keys.reshape(-1, ITEMS)[:100, 0].min())


@pytest.mark.parametrize("build", [f"{kind}scan_{name}" for kind in ("", "universal_") for name in SCAN])
def test_scan(build):
    keys, _ = inputs()
    shape = (THREADS, ITEMS)
    check(build, keys.cumsum().reshape(shape), exclusive(keys, np.maximum, -5).reshape(shape), keys.sum())


def test_shuffle():
    keys, _ = inputs()
    up, down = np.concatenate([[-1], keys[:-1]]), np.concatenate([keys[1:], [-2]])
    first = keys[::ITEMS]
    offset = np.concatenate([first[70:], np.full(70, -3)])
    check("shuffle_shared_memory", up.reshape(-1, ITEMS), down.reshape(-1, ITEMS), offset, np.roll(first, -70))


def test_adjacent_difference():
    keys, _ = inputs()
    left, right = np.diff(keys, prepend=0), np.append(keys[:-1] - keys[1:], keys[-1])
    check("adjacent_difference", left.reshape(-1, ITEMS), right.reshape(-1, ITEMS))


def test_discontinuity():
    keys, _ = inputs()
    changes = np.diff(keys & 1) != 0
    heads, tails = np.concatenate([[True], changes]), np.concatenate([changes, [True]])
    check("discontinuity", heads.reshape(-1, ITEMS), tails.reshape(-1, ITEMS))


@pytest.mark.parametrize("algorithm", ["shared_memory", "warp_time_slicing"])
def test_exchange(algorithm):
    keys, ranks = inputs()
    items = keys.reshape(THREADS, ITEMS)
    placed = np.empty_like(keys)
    placed[ranks] = keys
    check(
        f"exchange_{algorithm}",
        striped(keys),
        striped(keys, 64),
        from_striped(items).reshape(-1, ITEMS),
        from_striped(items, 64).reshape(-1, ITEMS),
        placed.reshape(-1, ITEMS),
        striped(placed),
    )


@pytest.mark.parametrize("algorithm", ["atomic", "sort"])
def test_histogram(algorithm):
    keys, _ = inputs()
    check(f"histogram_{algorithm}", np.tile(np.bincount(keys & 31, minlength=32), 8))


@pytest.mark.parametrize("algorithm", MOVE)
def test_load(algorithm):
    keys, _ = inputs()
    guarded = np.where(np.arange(COUNT) < 501, np.append(keys[3:], [0, 0, 0]), -1)
    arranged = [striped(s) if algorithm == "striped" else s.reshape(-1, ITEMS) for s in (keys, guarded)]
    check(f"load_{algorithm}", *arranged)


@pytest.mark.parametrize("algorithm", MOVE)
def test_store(algorithm):
    expected, values = inputs()
    sequence = from_striped(values.reshape(-1, ITEMS)) if algorithm == "striped" else values
    expected[3:504] = sequence[:501]
    after, _ = ran(f"store_{algorithm}")
    assert np.array_equal(after, expected)


def test_merge_sort():
    keys, values = inputs()
    order = np.argsort(-(keys & 7), kind="stable")
    check("merge_sort", (keys & 7)[order].reshape(-1, ITEMS), values[order].reshape(-1, ITEMS))


@pytest.mark.parametrize("algorithm", ["radix_scan", "radix_digit"])
def test_radix_sort(algorithm):
    keys, values = inputs()
    orders = np.argsort(keys, kind="stable"), np.argsort(-(keys >> 4 & 255), kind="stable")
    check(f"radix_sort_{algorithm}", *(x[order].reshape(-1, ITEMS) for order in orders for x in (keys, values)))


@pytest.mark.parametrize(
    "algorithm", ["basic", "memoize", "match", "match_early_counts_any", "match_early_counts_atomic_or"]
)
def test_radix_rank(algorithm):
    """The MATCH algorithms take their input striped over each wave."""
    keys, _ = inputs()
    match = algorithm.startswith("match")
    sequence = from_striped(keys.reshape(-1, ITEMS), 64) if match else keys
    ranks = np.empty_like(keys)
    ranks[np.argsort(sequence >> 2 & 15, kind="stable")] = np.arange(COUNT)
    check(f"radix_rank_{algorithm}", striped(ranks, 64) if match else ranks.reshape(-1, ITEMS))


def test_run_length_decode():
    keys, values = inputs()
    lengths = values & 3
    total, starts = lengths.sum(), lengths.cumsum() - lengths
    assert total == THREADS * 6  # exactly what the threads take
    decoded, relative = np.repeat(keys, lengths), np.arange(total) - np.repeat(starts, lengths)
    check("run_length_decode", decoded.reshape(-1, 6), relative.reshape(-1, 6), total)


@pytest.mark.parametrize("algorithm", ["merge", "air"])
def test_top_k(algorithm):
    """Which of equal keys is taken is left open, and with AIR the order."""
    keys, values = inputs()
    _, out = ran(f"top_k_{algorithm}")
    taken, payload, valid = out[: THREADS * 12].reshape(THREADS, 3, ITEMS).transpose(1, 0, 2).reshape(3, -1)
    assert np.array_equal(valid, np.arange(COUNT) < 37)
    largest = np.sort(keys)[::-1][:37]
    assert np.array_equal(taken[:37] if algorithm == "merge" else np.sort(taken[:37])[::-1], largest)
    assert len(set(payload[:37])) == 37
    key_of = dict(zip(values, keys, strict=True))
    assert [key_of[v] for v in payload[:37]] == list(taken[:37])


WARP = [("", 64), ("", 16), ("universal_", 32)]


def over_groups(function, column, width):
    """A function of each group's values, spread over the group."""
    return np.repeat([function(group) for group in column.reshape(-1, width)], width)


@pytest.mark.parametrize(("kind", "width"), WARP)
def test_warp_reduce(kind, width):
    x = inputs()[0].reshape(THREADS, ITEMS)
    check(
        f"{kind}warp_reduce_{width}",
        over_groups(np.sum, x[:, 0], width),
        over_groups(np.max, x.max(1), width),
        over_groups(np.sum, x[:, 1], width),
        over_groups(np.max, x[:, 2], width),
        over_groups(np.min, x[:, 3], width),
        over_groups(lambda group: group[:5].sum(), x[:, 0], width),
    )


@pytest.mark.parametrize(("kind", "width"), WARP)
def test_warp_scan(kind, width):
    keys, values = inputs()
    x, lane = keys.reshape(THREADS, ITEMS), np.arange(THREADS) % width
    groups = x.T.reshape(ITEMS, -1, width)
    base = np.arange(THREADS) - lane
    check(
        f"{kind}warp_scan_{width}",
        groups[0].cumsum(1).reshape(-1),
        np.concatenate([exclusive(group, np.maximum, -7) for group in groups[1]]),
        groups[2].cumsum(1).reshape(-1),
        (groups[3].cumsum(1) - groups[3]).reshape(-1),
        x[base + 3, 0],
        x[base + values[::ITEMS] % width, 1],
    )


def test_warp_segments():
    """A segment's result belongs to its first lane; the others' is left open."""
    keys, values = inputs()
    flags = values[::ITEMS] & 3 == 0
    first_lane = np.arange(THREADS) % 32 == 0
    _, out = ran("warp_segments")
    starts = flags | first_lane, np.roll(flags, 1) | first_lane
    for column, (start, function) in enumerate(zip(starts, (np.add, np.maximum), strict=True)):
        heads = np.flatnonzero(start)
        expected = function.reduceat(keys.reshape(THREADS, ITEMS)[:, column], heads)
        assert np.array_equal(out[: 2 * THREADS].reshape(-1, 2)[heads, column], expected)


def test_warp_batches():
    x = inputs()[0].reshape(THREADS, ITEMS)
    _, out = ran("warp_batches")
    single, blocked, in_stripes = np.split(out[: THREADS * 5].reshape(THREADS, 5), [1, 3], axis=1)
    assert np.array_equal(single.reshape(-1, 16)[:, :ITEMS], x.reshape(-1, 16, ITEMS).sum(1))
    assert np.array_equal(blocked.reshape(-1, ITEMS), x.reshape(-1, 2, ITEMS).max(1))
    assert np.array_equal(
        in_stripes.reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1, 4), x.reshape(-1, 2, ITEMS).sum(1)
    )


def test_warp_sorts():
    keys, values = inputs()
    bitonic = np.concatenate([np.sort(g) for g in from_striped(keys.reshape(-1, ITEMS), 8).reshape(-1, 8 * ITEMS)])
    orders = np.argsort((keys & 7).reshape(-1, 8 * ITEMS), axis=1, kind="stable")
    merged = [
        np.take_along_axis(x.reshape(orders.shape), orders, axis=1).reshape(-1, ITEMS) for x in (keys & 7, values)
    ]
    check("warp_sorts", striped(bitonic, 8), *merged)


@pytest.mark.parametrize(("algorithm", "width"), [("shuffle", 4), ("shared", 16)])
def test_warp_exchange(algorithm, width):
    keys, _ = inputs()
    back = from_striped(keys.reshape(-1, ITEMS), width).reshape(-1, ITEMS)
    check(f"warp_exchange_{algorithm}", striped(keys, width), back)


def test_warp_load_and_store():
    keys, values = inputs()
    check("warp_load_and_store", striped(keys, 16))
    assert np.array_equal(ran("warp_load_and_store")[0], values)
