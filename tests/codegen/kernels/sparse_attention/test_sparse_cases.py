"""The sparse attention cases: what they cover, what they poison, and that their bits never change."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

import ml_dtypes
import numpy as np
import pytest

from codegen.kernels.sparse_attention.cases import CASES, Case, DataStyle, Request, build
from gfx950.kv_cache import Element, KvCacheLayout

BF16 = ml_dtypes.bfloat16
DECODE = (Request(5),)


@functools.cache
def built(name):
    return build(CASES[name])


def is_nan(words):
    return (words & 0x7FFF) > 0x7F80 if words.dtype == np.uint16 else (words & 0x7F) == 0x7F


def layout(inputs):
    case = inputs.case
    blocks = inputs.kv_cache.shape[0 if case.packed else 1]
    return KvCacheLayout(kv_heads=case.kv_heads, format=case.cache, packed=case.packed, blocks=blocks)


def cached_slots(case, table):
    """The slots that hold a token before the job, by a loop."""
    for number, request in enumerate(case.requests):
        for position in range(max(request.seq_len - request.query_len, 0)):
            yield int(table[number, position // 128]) * 128 + position % 128


def token_words(inputs, side):
    """[nblk * 128][kvh * 128]: the words of each slot, by the published index formulas."""
    case, cache = inputs.case, inputs.kv_cache
    byte = layout(inputs).byte_in_page
    place = np.array([[byte("KV"[side], t, d) // cache.itemsize for d in range(128)] for t in range(16)])
    pages = cache[:, side] if case.packed else cache[side]
    return pages[..., place].transpose(0, 1, 3, 2, 4).reshape(-1, case.kv_heads * 128)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("long_64k", "long_16k")])
def test_every_slot_without_a_token_is_nan(name):
    inputs, case = built(name), CASES[name]
    live = np.zeros(inputs.kv_cache.size // (case.kv_heads * 256), dtype=bool)
    live[list(cached_slots(case, inputs.block_table))] = True
    for side in (0, 1):
        words = token_words(inputs, side)
        assert is_nan(words[~live]).all()
        assert not is_nan(words[live]).any()
        assert not live[:128].any()
        assert not live[-128:].any()
    index = inputs.index_cache.reshape(-1, 128)
    index_live = np.zeros(len(index), dtype=bool)
    index_live[list(cached_slots(case, inputs.index_block_table))] = True
    assert is_nan(index[~index_live]).all()
    assert case.style.nan_blocks or not is_nan(index[index_live]).any()
    if case.per_token:
        for scale in (inputs.k_scale, inputs.v_scale):
            assert scale.shape == (case.kv_heads, live.size)
            assert (np.isnan(scale) == ~live).all()
            assert (scale[:, live] > 0).all()


@pytest.mark.parametrize("name", CASES)
def test_rows_slots_and_tables(name):
    inputs, case = built(name), CASES[name]
    row = 0
    for number, request in enumerate(case.requests):
        for position in range(request.seq_len - request.query_len, request.seq_len):
            assert (inputs.request[row], inputs.position[row]) == (number, position)
            for table, slots in ((inputs.block_table, inputs.slots), (inputs.index_block_table, inputs.index_slots)):
                expected = table[number, position // 128] * 128 + position % 128 if position >= 0 else -1
                assert slots[row] == expected
            row += 1
    assert inputs.slots[row:].tolist() == [-1] * case.padding
    assert inputs.position[row:].tolist() == [-1] * case.padding
    assert inputs.request[row:].tolist() == [0] * case.padding
    tables = (inputs.block_table, layout(inputs).blocks), (inputs.index_block_table, len(inputs.index_cache))
    for table, blocks in tables:
        used = [int(table[i, b]) for i, r in enumerate(case.requests) for b in range(r.blocks)]
        assert len(set(used)) == len(used)
        assert all(0 < block < blocks - 1 for block in used)
        assert table.shape[1] > max(r.blocks for r in case.requests) + 1
    assert (inputs.seq_lens == [r.seq_len for r in case.requests]).all()
    assert (inputs.kv_len == np.maximum(inputs.position + 1, 0)).all()


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_dtypes(name):
    inputs, case = built(name), CASES[name]
    rows, kvh = case.rows, case.kv_heads
    blocks = layout(inputs).blocks
    shapes = {name: array.shape for name, array in inputs.arrays().items()}
    assert shapes["q"] == (rows, kvh * 16, 128)
    assert shapes["key"] == shapes["value"] == (rows, kvh, 128)
    assert shapes["index_q"] == (rows, case.index_heads, 128)
    assert shapes["index_k"] == (rows, 128)
    assert shapes["kv_cache"] == ((blocks, 2, 8, kvh, 2048) if case.packed else (2, blocks, 8, kvh, 2048))
    assert shapes["index_cache"] == (len(inputs.index_cache), 128, 128)
    assert inputs.kv_cache.nbytes == layout(inputs).allocation_bytes
    assert all(array.flags.c_contiguous for array in inputs.arrays().values())
    assert {name: array.dtype.name for name, array in inputs.arrays().items()} == {
        **dict.fromkeys(["q", "key", "value"], "uint16"),
        "kv_cache": "uint16" if case.cache == "bf16" else "uint8",
        **dict.fromkeys(["index_q", "index_cache", "index_k"], "uint8"),
        **dict.fromkeys(["slots", "index_slots"], "int64"),
        **dict.fromkeys(["block_table", "index_block_table", "seq_lens", "request", "position"], "int32"),
        **dict.fromkeys(["k_scale", "v_scale"], "float32"),
    }


@pytest.mark.parametrize("name", CASES)
def test_values_stay_in_the_range_of_e4m3(name):
    inputs, case = built(name), CASES[name]
    assert (np.abs(inputs.q.view(BF16).astype(np.float32)) <= 448).all()
    for new, scale in ((inputs.key, case.scales[0]), (inputs.value, case.scales[1])):
        assert (np.abs(new.view(BF16).astype(np.float32)) <= 448 * scale).all()
    assert not is_nan(inputs.index_q).any()
    assert not is_nan(inputs.index_k).any()


def test_elements_are_where_the_formulas_say():
    """One token of each layout, by the whole-address formulas of `gfx950.kv_cache`."""
    for name in ("shared_index", "dense", "bf16", "bf16_dense"):
        inputs, case = built(name), CASES[name]
        flat, places = inputs.kv_cache.reshape(-1), layout(inputs)
        slot = next(cached_slots(case, inputs.block_table))
        for side in (0, 1):
            words = token_words(inputs, side)[slot].reshape(case.kv_heads, 128)
            for head, dim in ((0, 0), (case.kv_heads - 1, 77), (0, 127)):
                byte = places.byte(Element("KV"[side], slot // 128, slot % 128, head, dim))
                assert flat[byte // flat.itemsize] == words[head, dim]


def test_the_cases_cover_what_they_are_for():
    cases = list(CASES.values())
    lengths = {int(n) for name in CASES for n in built(name).kv_len}
    assert {1, 7, 64, 128, 512} <= {case.rows for case in cases}
    assert {1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 257, 2047, 2048, 2049, 4096, 8192, 16384, 65536} <= lengths
    assert {(c.kv_heads, c.index_heads) for c in cases} == {(1, 1), (4, 4), (4, 1)}
    assert {(c.cache, c.packed, c.per_token) for c in cases} == {
        ("fp8", True, False),
        ("fp8", False, False),
        ("fp8", False, True),
        ("bf16", True, False),
        ("bf16", False, False),
    }
    assert {c.p for c in cases} == {"unscaled", "x448"}
    assert {c.reduce for c in cases} == {"hip", "flydsl"}
    assert {1, 2, 4} <= {r.query_len for c in cases for r in c.requests if not r.prefill}
    assert any(len(c.parts) == 2 for c in cases)
    assert {1, 3, 8} <= {c.splits for c in cases}
    assert {1, 4, 8} <= {c.splits_of(part) for c in cases if c.splits is None for part in c.parts}
    assert {c.splits_of(part) for c in [CASES["mixed_splits"]] for part in c.parts} == {4, 8}
    tables = np.concatenate([built(n).block_table.reshape(-1) for n in ("page_edges", "select_4k", "rows_64")])
    assert {-1, -(2**31), 2**31 - 1, 0} <= set(tables.tolist())
    assert sum(case.rows * case.kv_heads for case in cases) < 1500


@pytest.mark.parametrize(
    ("rows", "heads", "splits"), [(1, 1, 8), (73, 1, 8), (74, 1, 7), (128, 1, 4), (256, 1, 2), (512, 1, 1), (64, 4, 2)]
)
def test_the_published_split_counts(rows, heads, splits):
    case = Case("x", DECODE * rows, "", kv_heads=heads)
    assert case.splits_of(case.parts[0]) == splits


def test_blocks_are_shuffled_and_the_two_tables_differ():
    inputs = built("select_4k")
    used = inputs.block_table[0, :32]
    assert sorted(used.tolist()) != used.tolist()
    assert (inputs.index_block_table[0, :32] != used).any()


PINNED = {
    "page_edges": "afb2cd656078abd4",
    "query_4": "4b138b9c26077004",
    "mixed": "bfb5233a298c5fed",
    "per_token_heads": "29787ba207c3297d",
    "bf16_dense": "9399a404bf67d4b7",
    "codes": "b83f07d47acd29b8",
    "zeros": "c1faffcd4cd0c6a9",
    "midpoints": "e5ba235cf3f9994c",
    "causal": "e10daa98fa6d897a",
}


def combined_digest(name):
    digests = built(name).digests()
    return hashlib.sha256(" ".join(f"{k}={v}" for k, v in sorted(digests.items())).encode()).hexdigest()[:16]


def test_bits_are_pinned():
    """A change of these digests changes the recorded goldens of the cases."""
    assert {name: combined_digest(name) for name in PINNED} == PINNED


def test_digests_see_values():
    inputs = build(CASES["page_edges"])
    digests = inputs.digests()
    inputs.slots[0] ^= 1
    assert {k for k, v in inputs.digests().items() if v != digests[k]} == {"slots"}
    assert build(CASES["page_edges"]).digests() == digests


def test_styles_reach_the_data():
    zeros = built("zeros")
    assert set(zeros.q[0].reshape(-1).tolist()) == {0, 0x8000}
    assert set(zeros.key.reshape(-1).tolist()) == {0, 0x8000}
    codes = token_words(built("codes"), 0)
    assert len(set(codes[~is_nan(codes).any(axis=1)].reshape(-1).tolist())) == 254
    nans = is_nan(built("nan_blocks").index_cache[built("nan_blocks").index_block_table[0, :24]]).all(axis=(1, 2))
    assert np.flatnonzero(nans).tolist() == [1, 6, 11, 16, 21]
    tied = built("ties")
    keys = tied.index_cache[tied.index_block_table[0, :33]]
    assert (keys[3] == keys[0, 0]).all()
    assert not (keys[1] == keys[0, 0]).all()
    sink = built("sink")
    words = token_words(sink, 0)[sink.block_table[0, 0] * 128 + np.arange(128)]
    norms = np.abs(words.view(ml_dtypes.float8_e4m3fn).astype(np.float32)).sum(axis=1)
    assert set(np.flatnonzero(norms > 4 * np.median(norms)).tolist()) == {13, 110}
    midpoints = built("midpoints").key.view(BF16).astype(np.float32)[:, 0, :64]
    by_division = (midpoints / np.float32(7 / 64)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    by_product = (midpoints * (1 / np.float32(7 / 64))).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (by_division != by_product).any(axis=1).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"requests": ()}, "case 'x': it has no requests"),
        ({"requests": (Request(-1),)}, "request 0 has seq_len -1 and query_len 1"),
        ({"requests": (Request(4, 2), Request(4, 3))}, "decode requests come first and share one query_len"),
        ({"requests": (Request(4, prefill=True), Request(4))}, "decode requests come first"),
        ({"kv_heads": 4, "index_heads": 2}, "2 index heads for 4 kv heads; expected 1 or as many"),
        ({"per_token": True}, "per-token scales need an fp8 cache in dense planes"),
        ({"per_token": True, "packed": False, "cache": "bf16"}, "per-token scales need an fp8 cache"),
        ({"splits": 9}, r"9 splits are outside 1 \.\. 8"),
    ],
)
def test_nonsense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        build(dataclasses.replace(Case("x", DECODE, "", style=DataStyle()), **change))
