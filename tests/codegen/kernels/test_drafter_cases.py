"""The drafter attention cases: what they cover, what they poison, and that their bits never change."""

from __future__ import annotations

import functools
import hashlib
import math

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.drafter_attention.cases import CASES, Case, DataStyle, Request, build
from codegen.kernels.drafter_attention.cases import _rotations as rotations


@functools.cache
def built(name):
    return build(CASES[name])


def is_nan(codes):
    return (codes & 0x7F) == 0x7F


def live_mask(case, inputs):
    """bool [nblk][128]: keys that a kernel may read as they are."""
    live = np.zeros(inputs.cache.shape[:2], dtype=bool)
    for row, request in enumerate(case.requests):
        lo, hi = request.window
        for key in range(lo, hi + 1):
            if not (request.writes and request.first_position <= key < request.first_position + 7):
                live[inputs.block_table[row, key // 128], key % 128] = True
    return live


@pytest.mark.parametrize("name", CASES)
def test_every_byte_but_the_live_keys_is_nan(name):
    inputs = built(name)
    live = live_mask(CASES[name], inputs)
    assert is_nan(inputs.cache[~live]).all()
    assert not is_nan(inputs.cache[live]).any()
    assert not live[0].any()
    assert not live[-1].any()
    used = np.zeros(len(inputs.cos_sin), dtype=bool)
    used[inputs.positions] = True
    assert np.isnan(inputs.cos_sin.view(ml_dtypes.bfloat16).astype(np.float32))[~used].all()
    assert np.isfinite(inputs.cos_sin.view(ml_dtypes.bfloat16).astype(np.float32))[used].all()


@pytest.mark.parametrize("name", CASES)
def test_shapes_tables_and_slots(name):
    case, inputs = CASES[name], built(name)
    assert inputs.case == name
    assert inputs.qkv.shape == (inputs.tokens, 2304)
    assert inputs.cache.shape[1:] == (128, 256)
    assert inputs.partials_bytes == len(case.requests) * case.na * 58368
    physical = [inputs.block_table[row, block] for row, r in enumerate(case.requests) for block in r.blocks]
    assert len(set(physical)) == len(physical)
    assert all(0 < p < len(inputs.cache) - 1 for p in physical)
    for token in range(inputs.tokens):
        request, position = token // 7, int(inputs.positions[token])
        assert position == case.requests[request].first_position + token % 7
        if case.requests[request].writes:
            assert inputs.slots[token] == inputs.block_table[request, position // 128] * 128 + position % 128
        else:
            assert inputs.slots[token] == -1
    dtypes = {k: a.dtype.name for k, a in inputs.arrays().items()}
    assert dtypes == {
        **dict.fromkeys(["qkv", "qn", "kn", "cos_sin"], "uint16"),
        **dict.fromkeys(["positions", "slots"], "int64"),
        **dict.fromkeys(["seq_lens", "block_table"], "int32"),
        "cache": "uint8",
    }


def test_the_cases_cover_what_they_are_for():
    windows = [r.window for c in CASES.values() for r in c.requests if r.blocks]
    assert {0, 127} <= {hi % 128 for _, hi in windows}
    assert {0, 127} <= {lo % 128 for lo, _ in windows if lo}
    assert {1, 2, 33, 34} <= {hi // 128 - lo // 128 + 1 for lo, hi in windows}
    assert max(hi for _, hi in windows) > 8900
    assert {1, 2, 17, 34} <= {c.na for c in CASES.values()}
    assert {1, 16} <= {len(c.requests) for c in CASES.values()}
    assert any(c.na > len(r.blocks) > 0 for c in CASES.values() for r in c.requests)
    assert any(r.writes and r.first_position % 128 > 121 for c in CASES.values() for r in c.requests)
    tables = np.concatenate([built(n).block_table.reshape(-1) for n in ("padded", "far", "default")])
    assert (tables < 0).any()
    assert (tables > 1000).any()
    assert Request(100, 4400).window == (0, 34 * 128 - 1)
    assert Request(5000, 901, False).window == (905, 900)


def test_the_physical_blocks_are_shuffled():
    table = built("blocks_34").block_table[0, :34]
    assert sorted(table.tolist()) != table.tolist()


def test_rotations_are_those_of_growing_angles():
    table = rotations(1024).view(ml_dtypes.bfloat16).astype(np.float64)
    angles = [2 * math.atan(0.5 * 0.6175**i) for i in range(32)]
    for position in (0, 1, 2, 777, 1023):
        exact = [math.cos(position * a) for a in angles] + [math.sin(position * a) for a in angles]
        assert np.abs(table[position] - exact).max() < 2**-8


PINNED = {
    "small": "672736e0dd133b4b",
    "default": "afb786aaf01fc2fe",
    "far": "87f124bf2a0e0718",
    "padded": "6584239d28d835c1",
    "codes": "7a6ba34ce05401b6",
    "zeros": "2ba587f409d4a7c6",
}


def combined_digest(name):
    digests = built(name).digests()
    return hashlib.sha256(" ".join(f"{k}={v}" for k, v in sorted(digests.items())).encode()).hexdigest()[:16]


def test_bits_are_pinned():
    """A change of these digests changes the recorded goldens of the cases."""
    assert {name: combined_digest(name) for name in PINNED} == PINNED


def test_digests_see_values_shapes_and_dtypes():
    inputs = build(CASES["small"])
    digests = inputs.digests()
    inputs.qkv[0, 0] ^= 1
    changed = {k for k, v in inputs.digests().items() if v != digests[k]}
    assert changed == {"qkv"}
    assert build(CASES["small"]).digests() == digests


def test_styles_reach_the_data():
    zeros = build(CASES["zeros"]).qkv[0]
    assert set(zeros.tolist()) == {0, 0x8000}
    codes = build(CASES["codes"])
    live = live_mask(CASES["codes"], codes)
    assert len(set(codes.cache[live].reshape(-1).tolist())) == 254
    tiny = build(CASES["tiny"])
    live = live_mask(CASES["tiny"], tiny)
    assert ((tiny.cache[live] & 0x7F) < 8).mean() > 0.5


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("x", (Request(0),), 65, ""), r"case 'x': na = 65 is outside 1 \.\. 64"),
        (Case("x", (), 1, ""), "has no requests"),
        (Case("x", (Request(-1),), 1, ""), "request 0: first position -1 is negative"),
        (
            Case("x", (Request(5), Request(9, 12)), 1, "", DataStyle()),
            "request 1: its row at position 15 .* last key 11",
        ),
    ],
)
def test_nonsense_is_refused(case, message):
    with pytest.raises(ValueError, match=message):
        build(case)
