"""New tokens into the caches: source against gfx950 code, against torch's index assignment through the 5-D views with
ml_dtypes' conversions, every other byte untouched, and what is refused."""

import functools

import ml_dtypes
import numpy as np
import pytest
import torch

from codegen.compile import compile_kernels
from codegen.kernels.sparse_attention import insert
from codegen.kernels.sparse_attention.cache import aiter_sparse_pa_kv_cache, minimax_m3_rebase_slots_to_page16, pages
from codegen.kernels.sparse_attention.insert import insert_index, insert_kv, insert_kv_per_token
from codegen.kernels.sparse_attention.launch import Runner, program
from emu.dispatch import RunOptions
from gfx950.kv_cache import Element, IndexKeyLayout, KvCacheLayout
from gfx950.random_bits import integers

BLOCKS = 4
POISON = {"fp8": 0xFF, "bf16": 0xFFC1}
BITS = {"fp8": torch.uint8, "bf16": torch.uint16}
SCALES = np.array([0.37], np.float32), np.array([0.051], np.float32)
SPECIAL = [
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x7F80,
    0xFF80,
    0x7FC0,
    0xFFC1,
    0x7F81,
    0xFFFF,
    0x43E0,
    0x43E8,
    0x43E9,
    0xC3E8,
]


@functools.cache
def compiled():
    return compile_kernels([program(kernel) for kernel in insert.INSERT])


def machine():
    return Runner(code_object=compiled().object)


class Cache:
    """A poisoned cache and AITER's views of it."""

    def __init__(self, layout, heads, kind="fp8", blocks=BLOCKS):
        self.heads, self.kind, self.packed = heads, kind, layout == "packed"
        shape = (blocks, 2) if self.packed else (2, blocks)
        memory = np.full((*shape, 128, heads * 128), POISON[kind], np.uint8 if kind == "fp8" else np.uint16)
        self.memory = torch.from_numpy(memory)
        tensor = self.memory if kind == "fp8" else self.memory.view(torch.bfloat16)
        views = aiter_sparse_pa_kv_cache(tensor if self.packed else tensor.transpose(0, 1), heads)
        self.views = [view.view(BITS[kind]) for view in views]
        self.k, self.v = pages(*views)

    def slots(self, slots):
        slots = torch.from_numpy(np.array(slots, np.int64))
        return (minimax_m3_rebase_slots_to_page16(slots) if self.packed else slots).numpy()

    def assign(self, key, value, slots):
        """The oracle: elements [tokens][heads][128] through the 5-D views, a token at a time."""
        k, v = self.views
        x = k.shape[-1]
        for token, slot in enumerate(slots.tolist()):
            if slot < 0:
                continue
            page, t = divmod(slot, 16)
            k[page, :, :, t, :] = torch.from_numpy(key[token].reshape(self.heads, 128 // x, x))
            v[page, :, t // x, :, t % x] = torch.from_numpy(value[token])

    def same_as(self, other):
        np.testing.assert_array_equal(self.memory.numpy(), other.memory.numpy())


def rows(name, tokens, heads):
    """bf16 bits: ordinary numbers, specials, and numbers about E4M3's largest and smallest."""
    bits = integers(f"insert {name}", (tokens, heads, 128), 0, 1 << 16).astype(np.uint16)
    ordinary = integers(f"insert {name} e", bits.shape, 0x3A00, 0x4480).astype(np.uint16) | (bits & 0x8000)
    bits = np.where(integers(f"insert {name} w", bits.shape, 0, 4) > 0, ordinary, bits)
    bits.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return bits


def floats(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def quotients(bits, scale, scaling):
    """x / scale as a magnitude, so that no bit is the host's choice of a NaN."""
    x = floats(bits & 0x7FFF)
    with np.errstate(all="ignore"):
        return (
            x / np.asarray(scale, np.float32)
            if scaling == "divide"
            else x * (np.float32(1) / np.asarray(scale, np.float32))
        )


def e4m3(bits, scale=1.0, scaling="divide"):
    with np.errstate(all="ignore"):
        quotient = quotients(bits, scale, scaling)
        codes = quotient.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) & 0x7F
    made = np.isnan(quotient) & ~np.isnan(floats(bits))  # inf / inf, 0 * inf: the NaN of rule float.nan_operand
    return np.where(made, 0xFF, codes | (bits >> 8 & 0x80)).astype(np.uint8)


STRADDLING = [5, 15, 16, 17, 127, 128, 129, 255, 256, 511, -1, 0, -(1 << 40), 31, 32]
RUN = [*range(100, 141), -1, *range(380, 388)]  # two turns of a workgroup's 32 rows


@pytest.mark.parametrize("slots", [STRADDLING, RUN, [77]], ids=["straddling", "run", "one"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("layout", ["packed", "dense"])
@pytest.mark.parametrize("scaling", ["divide", "multiply", "bf16"])
def test_rows_go_to_their_slots_and_nowhere_else(scaling, layout, heads, slots):
    kind = "bf16" if scaling == "bf16" else "fp8"
    key, value = rows("key", len(slots), heads), rows("value", len(slots), heads)
    options = {} if kind == "bf16" else {"k_scale": SCALES[0], "v_scale": SCALES[1], "scaling": scaling}
    source, target, expected = (Cache(layout, heads, kind) for _ in range(3))
    for runner, cache in ((Runner(), source), (machine(), target)):
        insert_kv(runner, key, value, cache.k, cache.v, cache.slots(slots), kv_heads=heads, **options)
    if kind == "fp8":
        key, value = (e4m3(bits, scale[0], scaling) for bits, scale in zip((key, value), SCALES, strict=True))
    expected.assign(key, value, expected.slots(slots))
    source.same_as(expected)
    target.same_as(expected)


@pytest.mark.parametrize("scaling", ["divide", "multiply"])
@pytest.mark.parametrize("scale", [1.0, 0.37, 1.75, 1e-38, 1e-45, 3e38])
def test_all_bf16_numbers(scale, scaling):
    """Every bf16 pattern: as a key through the source, as a value through the code; NaN keep their sign."""
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(128, 4, 128)
    backwards = np.ascontiguousarray(bits[::-1])
    given = np.array([scale], np.float32)
    caches = [Cache("dense", 4, blocks=1) for _ in range(3)]
    slots = np.arange(128)
    for runner, cache in zip((Runner(), machine()), caches, strict=False):
        insert_kv(
            runner, bits, backwards, cache.k, cache.v, slots, kv_heads=4, k_scale=given, v_scale=given, scaling=scaling
        )
    caches[2].assign(e4m3(bits, scale, scaling), e4m3(backwards, scale, scaling), slots)
    caches[0].same_as(caches[2])
    caches[1].same_as(caches[2])


def test_overflow_is_nan_and_ties_are_even():
    """448 .. 464 become 448, all beyond NaN; half of the smallest number is 0 with its sign."""
    cases = {448.0: 0x7E, 456.0: 0x7E, 464.0: 0x7E, 466.0: 0x7F, 480.0: 0x7F, -464.0: 0xFE, -466.0: 0xFF}
    cases |= {2.0**-9: 1, 2.0**-10: 0, -(2.0**-10): 0x80, 1.5 * 2.0**-9: 2, -0.0: 0x80, float("inf"): 0x7F, 1e-40: 0}
    key = np.zeros((1, 1, 128), np.uint16)
    key[0, 0, : len(cases)] = np.array(list(cases), np.float32).view(np.uint32) >> 16
    for scaling in ("divide", "multiply"):
        cache = Cache("packed", 1)
        insert_kv(machine(), key, key, cache.k, cache.v, np.array([3]), kv_heads=1, scaling=scaling)
        got = cache.views[0][0, 0, :, 3, :].reshape(-1)[: len(cases)].tolist()
        assert got == list(cases.values())
        assert cache.views[1][0, 0, 0, : len(cases), 3].tolist() == got


def test_the_two_scalings_differ_where_the_reciprocal_is_not_exact():
    bits = np.arange(1 << 16, dtype=np.uint16)
    assert (e4m3(bits, 1.75, "divide") != e4m3(bits, 1.75, "multiply")).sum() == 2 * 31
    np.testing.assert_array_equal(e4m3(bits, 0.25, "divide"), e4m3(bits, 0.25, "multiply"))


@pytest.mark.parametrize("kind", ["fp8", "bf16"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("heads", [1, 4])
def test_bytes_are_where_the_closed_forms_say(heads, packed, kind):
    layout = KvCacheLayout(kind, heads, packed, BLOCKS)
    cache = Cache("packed" if packed else "dense", heads, kind)
    slots = [300, 7, 130]
    key, value = rows("closed key", 3, heads), rows("closed value", 3, heads)
    insert_kv(machine(), key, value, cache.k, cache.v, cache.slots(slots), kv_heads=heads)
    codes = {"K": key, "V": value} if kind == "bf16" else {"K": e4m3(key), "V": e4m3(value)}
    memory = cache.memory.numpy().reshape(-1)
    for token, slot in enumerate(slots):
        for side, head, dim in ((s, h, d) for s in "KV" for h in range(heads) for d in range(128)):
            at = layout.byte(Element(side, slot // 128, slot % 128, head, dim))
            assert memory[at // layout.item_bytes] == codes[side][token, head, dim]


def test_nothing_to_insert():
    cache = Cache("packed", 1)
    none = np.zeros((0, 1, 128), np.uint16)
    for runner in (Runner(), machine()):
        insert_kv(runner, none, none, cache.k, cache.v, np.zeros(0, np.int64), kv_heads=1)
    cache.same_as(Cache("packed", 1))


def test_the_numpy_engine_agrees():
    cache, other = Cache("packed", 1), Cache("packed", 1)
    key, value = rows("key", 3, 1), rows("value", 3, 1)
    for runner, target in ((Runner(compiled().object, RunOptions(engine="numpy")), cache), (machine(), other)):
        insert_kv(runner, key, value, target.k, target.v, target.slots([130, -7, 129]), kv_heads=1, k_scale=SCALES[0])
    cache.same_as(other)


def test_pages_beyond_4_gib():
    """Addresses have 64 bits; the memory is not touched but for a page."""
    k = np.zeros((2_200_064, 2048), np.uint8)
    v, slot = k[8:], 2_200_064 * 16 - 130
    row = np.full((1, 1, 128), 0x3F80, np.uint16)
    for runner in (Runner(), machine()):
        insert_kv(runner, row, row, k, v, np.array([slot]), kv_heads=1)
        page, t = divmod(slot, 16)
        assert (k[page].reshape(8, 16, 16)[:, t] == 0x38).all()
        assert (v[page].reshape(128, 16)[:, t] == 0x38).all()
        assert (np.count_nonzero(k[page]), np.count_nonzero(v[page])) == (128, 128)
        k[page], v[page] = 0, 0


def test_a_packed_cache_is_one_buffer():
    """A device copies arguments one by one, so K and V of one memory must be one argument."""
    seen = []

    class Spy(Runner):
        def launch(self, kernel, grid, arguments):
            seen.append(arguments)

    for layout in ("packed", "dense"):
        cache = Cache(layout, 4)
        row = np.zeros((1, 4, 128), np.uint16)
        insert_kv(Spy(), row, row, cache.k, cache.v, np.array([0]), kv_heads=4)
    packed, dense = seen
    assert packed[2] is packed[3]
    assert packed[-1] == 32
    assert dense[2] is not dense[3]
    assert dense[-1] == 0


# ---- a scale a token -------------------------------------------------------------------------------------------------


def token_scales(bits):
    """f32 [tokens][heads]: amax / 448, NaN ignored; 1 for zeros."""
    x = floats(bits & 0x7FFF)
    amax = np.where(np.isnan(x), np.float32(0), x).max(axis=-1)
    return np.where(amax > 0, amax / np.float32(448), np.float32(1))


def per_token_rows(name, tokens, heads):
    """Finite rows but for some: zeros, -0, subnormals, one NaN among numbers, infinities."""
    bits = integers(f"per token {name}", (tokens, heads, 128), 0x3000, 0x4F00).astype(np.uint16)
    bits |= (integers(f"per token {name} s", bits.shape, 0, 2) << 15).astype(np.uint16)
    bits[0] = 0x8000
    bits[1] = 0
    bits[2] &= 0x807F
    bits[3, :, 5] = 0xFFC1
    bits[4, :, 7] = 0x7F81
    bits[5, :, 9] = 0xFF80
    bits[6] = 0x7FC0
    bits[7], bits[7, :, 100] = 0, 0x8001
    bits[8, :, 127] = 0x7F7F
    return bits


@pytest.mark.parametrize("heads", [1, 4])
def test_per_token_scales(heads):
    slots = np.array([*range(250, 262), -1, 0, 511, *range(16, 40)], np.int64)
    key, value = per_token_rows("key", len(slots), heads), per_token_rows("value", len(slots), heads)
    results = []
    for runner in (Runner(), machine()):
        cache = Cache("dense", heads)
        scales = [np.full((heads, 600), np.nan, np.float32) for _ in range(2)]
        insert_kv_per_token(
            runner, key, value, cache.k, cache.v, slots, kv_heads=heads, k_scale=scales[0], v_scale=scales[1]
        )
        results.append((cache, scales))
    (source, s), (target, t) = results
    source.same_as(target)
    expected, live = Cache("dense", heads), slots >= 0
    codes = []
    for bits, ours, theirs in zip((key, value), s, t, strict=True):
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))
        wanted = np.full((heads, 600), np.nan, np.float32)
        wanted[:, slots[live]] = token_scales(bits)[live].T
        np.testing.assert_array_equal(ours.view(np.uint32), wanted.view(np.uint32))
        codes.append(e4m3(bits, token_scales(bits)[..., None]))
    expected.assign(*codes, slots)
    source.same_as(expected)


def test_per_token_rows_reach_448():
    """The largest element of a row is +-448, whatever its size."""
    key = per_token_rows("key", 40, 1)
    cache, scale = Cache("dense", 1), np.zeros((1, 512), np.float32)
    slots = np.arange(40)
    insert_kv_per_token(machine(), key, key, cache.k, cache.v, slots, kv_heads=1, k_scale=scale, v_scale=scale.copy())
    k = cache.views[0].numpy()[:, 0]
    for token in [2, 3, 4, 7, 8, *range(9, 40)]:
        codes = k[token // 16, :, token % 16].reshape(-1) & 0x7F
        assert codes[codes != 0x7F].max() == 0x7E, token


# ---- index keys ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [STRADDLING, RUN])
def test_index_keys(slots):
    slots = np.array(slots, np.int64)
    keys = integers("index keys", (len(slots), 128), 0, 256).astype(np.uint8)
    expected = np.full((BLOCKS, 128, 128), 0xFF, np.uint8)
    results = [expected.copy() for _ in range(2)]
    for runner, cache in zip((Runner(), machine()), results, strict=True):
        insert_index(runner, keys, cache, slots)
    expected.reshape(-1, 128)[slots[slots >= 0]] = keys[slots >= 0]
    for cache in results:
        np.testing.assert_array_equal(cache, expected)
    layout, token = IndexKeyLayout(), int(np.argmax(slots))
    at = layout.byte(*divmod(int(slots[token]), 128), 99)
    assert expected.reshape(-1)[at] == keys[token, 99]


# ---- code ------------------------------------------------------------------------------------------------------------


def test_resources():
    for kernel in insert.INSERT:
        used = compiled().resources[kernel.name]
        assert (used.spills, used.scratch, used.lds, used.agprs) == (0, 0, 0, 0), kernel.name
        assert used.vgprs <= 64, kernel.name  # eight waves a SIMD
    for name in ("insert_kv_fp8", "insert_kv_fp8_multiply"):
        assert compiled().resources[name].instructions["v_cvt_pk_fp8_f32"] == 16
        assert compiled().resources[name].instructions["global_store_dwordx4"] == 1


# ---- what is refused -------------------------------------------------------------------------------------------------


def arguments(layout="packed", heads=1, kind="fp8", tokens=3):
    cache = Cache(layout, heads, kind)
    row = np.zeros((tokens, heads, 128), np.uint16)
    return {"key": row, "value": row.copy(), "k": cache.k, "v": cache.v, "slots": np.arange(tokens), "kv_heads": heads}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


REFUSED = {
    "key dtype": (lambda a: {"key": a["key"].view(np.int16)}, TypeError, "key has dtype int16; expected uint16"),
    "value shape": (
        lambda a: {"value": a["value"][:2]},
        ValueError,
        r"value has shape \(2, 1, 128\); expected \(3, 1, 1",
    ),
    "key kind": (lambda a: {"key": [1]}, TypeError, "key is a list; expected a numpy array of uint16"),
    "slots dtype": (
        lambda a: {"slots": a["slots"].astype(np.int32)},
        TypeError,
        "slots has dtype int32; expected int64",
    ),
    "k dtype": (lambda a: {"k": a["k"].view(np.int8)}, TypeError, "k has dtype int8; expected uint8"),
    "v dtype": (lambda a: {"v": a["v"].view(np.int8)}, TypeError, "v has dtype int8; expected uint8"),
    "k read-only": (lambda a: {"k": read_only(a["k"])}, ValueError, "k is read-only; it is written in place"),
    "order": (lambda a: {"k": a["k"][:, ::-1]}, ValueError, "k is not C-contiguous"),
    "pages": (
        lambda a: {"v": a["v"][:-8]},
        ValueError,
        "k has 64 pages and v 48 for 1 kv heads; expected a multiple of 8 in both .*, or of 16 in k and 8 fewer in v",
    ),
    "overlap": (
        lambda a: {"v": a["k"][:-8]},
        ValueError,
        "v overlaps k from byte 0 on; expected V's view .* 8 pages into",
    ),
    "heads": (lambda a: {"kv_heads": 0}, ValueError, "kv_heads is 0; expected 1 to 2147483647"),
    "heads kind": (lambda a: {"kv_heads": True}, TypeError, "kv_heads is True, a bool; expected a whole number"),
    "beyond": (lambda a: {"slots": np.array([0, 1024, 2])}, ValueError, r"slots\[1\] is 1024; expected less than 1024"),
    "not rebased": (
        lambda a: {"slots": np.array([0, 1, 128])},
        ValueError,
        r"slots\[2\] is 128, in V's half of packed block 0; expected a slot rebased by minimax_m3_rebase_slots_to",
    ),
    "twice": (
        lambda a: {"slots": np.array([256, 7, 256])},
        ValueError,
        r"slots\[0\] and slots\[2\] are both 256; expected a slot a token",
    ),
    "scaling": (lambda a: {"scaling": "fused"}, ValueError, "scaling is 'fused'; expected 'divide' or 'multiply'"),
    "scale shape": (
        lambda a: {"k_scale": np.ones(2, np.float32)},
        ValueError,
        r"k_scale has shape \(2,\); expected \(1,\)",
    ),
    "scale dtype": (lambda a: {"v_scale": np.ones(1)}, TypeError, "v_scale has dtype float64; expected float32"),
    "scale 0": (
        lambda a: {"v_scale": np.zeros(1, np.float32)},
        ValueError,
        r"v_scale\[0\] is 0.0; expected a positive",
    ),
    "scale NaN": (lambda a: {"k_scale": np.full(1, np.nan, np.float32)}, ValueError, r"k_scale\[0\] is nan"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_inserts(name):
    change, error, message = REFUSED[name]
    given = arguments()
    before = given["k"].copy()
    with pytest.raises(error, match=message):
        insert_kv(Runner(), **(given | change(given)))
    np.testing.assert_array_equal(given["k"], before)


def test_bf16_takes_no_scales():
    with pytest.raises(ValueError, match="k_scale and v_scale are for fp8 caches"):
        insert_kv(Runner(), **arguments(kind="bf16"), k_scale=np.ones(1, np.float32))


@pytest.mark.parametrize("kv_heads", [2**31, 2**40, 10**30])
def test_more_heads_than_int32_are_refused_of_empty_caches_too(kv_heads):
    rows, pages = np.zeros((0, 1, 128), np.uint16), np.zeros((0, 2048), np.uint8)
    with pytest.raises(ValueError, match=f"kv_heads is {kv_heads}; expected 1 to 2147483647"):
        insert_kv(Runner(), rows, rows, pages, pages.copy(), np.zeros(0, np.int64), kv_heads=kv_heads)


def test_two_negative_slots_are_no_clash():
    given = arguments()
    insert_kv(Runner(), **(given | {"slots": np.array([-1, -1, 5])}))
    assert not given["k"][0, 5 * 16 : 6 * 16].any()


@pytest.mark.parametrize(
    ("layout", "kind", "change", "error", "message"),
    [
        ("packed", "fp8", {}, NotImplementedError, "a packed cache takes no per-token scales"),
        ("dense", "bf16", {}, TypeError, "k has dtype uint16; expected uint8"),
        (
            "dense",
            "fp8",
            {"k_scale": (1, 511)},
            ValueError,
            r"k_scale has shape \(1, 511\); expected \(1, at least 512\)",
        ),
        (
            "dense",
            "fp8",
            {"v_scale": (1, 513)},
            ValueError,
            r"v_scale has shape \(1, 513\); .* one for k_scale and v_sc",
        ),
        ("dense", "fp8", {"v_scale": (2, 512)}, ValueError, r"v_scale has shape \(2, 512\); expected \(1, any\)"),
    ],
)
def test_refused_per_token_inserts(layout, kind, change, error, message):
    scales = {name: np.ones(change.get(name, (1, 512)), np.float32) for name in ("k_scale", "v_scale")}
    with pytest.raises(error, match=message):
        insert_kv_per_token(Runner(), **arguments(layout, kind=kind), **scales)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"index_cache": np.zeros((4, 64, 128), np.uint8)}, ValueError, r"index_cache has shape .* \(any, 128, 128\)"),
        ({"index_cache": np.zeros((4, 128, 128), np.int8)}, TypeError, "index_cache has dtype int8; expected uint8"),
        ({"index_k": np.zeros((2, 128), np.uint8)}, ValueError, r"index_k has shape \(2, 128\); expected \(3, 128\)"),
        ({"slots": np.array([0, 512, 1])}, ValueError, r"slots\[1\] is 512; expected less than 512, the cache's slots"),
        ({"slots": np.array([4, 1, 4])}, ValueError, r"slots\[0\] and slots\[2\] are both 4"),
        ({"index_cache": read_only(np.zeros((4, 128, 128), np.uint8))}, ValueError, "index_cache is read-only"),
    ],
)
def test_refused_index_inserts(change, error, message):
    given = {
        "index_k": np.zeros((3, 128), np.uint8),
        "index_cache": np.zeros((BLOCKS, 128, 128), np.uint8),
        "slots": np.arange(3),
    }
    with pytest.raises(error, match=message):
        insert_index(Runner(), **(given | change))
