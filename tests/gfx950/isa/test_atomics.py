"""Atomics in LDS and on memory against a loop over the lanes; floats against ml_dtypes, numpy and struct."""

import random
import struct

import ml_dtypes
import numpy as np
import pytest

from emu.errors import MemoryFault
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import decode
from gfx950.isa.registry import load
from gfx950.lanes import Mode

LANES = range(64)
PARTIAL = 0x8FFF_00FF_F234_F0F1
NAN_BITS = {32: (0x7FC00000, 0x7F800000), 64: (0x7FF8 << 48, 0x7FF0 << 48)}


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


# name: f(old, first operand, second operand, bits) -> new, on unsigned integers
INTEGERS = {
    "add": lambda t, a, b, n: t + a,
    "sub": lambda t, a, b, n: t - a,
    "rsub": lambda t, a, b, n: a - t,
    "inc": lambda t, a, b, n: 0 if t >= a else t + 1,
    "dec": lambda t, a, b, n: a if t == 0 or t > a else t - 1,
    "min_i": lambda t, a, b, n: min(t, a, key=lambda x: signed(x, n)),
    "max_i": lambda t, a, b, n: max(t, a, key=lambda x: signed(x, n)),
    "min_u": lambda t, a, b, n: min(t, a),
    "max_u": lambda t, a, b, n: max(t, a),
    "and": lambda t, a, b, n: t & a,
    "or": lambda t, a, b, n: t | a,
    "xor": lambda t, a, b, n: t ^ a,
    "mskor": lambda t, a, b, n: t & ~a | b,
    "cmpst": lambda t, a, b, n: b if t == a else t,
    "wrxchg": lambda t, a, b, n: a,
    "wrap": lambda t, a, b, n: t - a if t >= a else t + b,
}
DS_TYPES = {"add": "u", "sub": "u", "rsub": "u", "inc": "u", "dec": "u"}
TWO_OPERANDS = ("mskor", "cmpst", "wrap")
RETURN_ONLY = ("wrxchg", "wrap")
VMEM = {"smin": "min_i", "umin": "min_u", "smax": "max_i", "umax": "max_u", "swap": "wrxchg"}
VMEM |= {n: n for n in ("add", "sub", "and", "or", "xor", "inc", "dec")}


def ds_name(name, bits, returns):
    base, _, kind = name.partition("_")
    kind = kind or DS_TYPES.get(base, "b")
    return f"ds_{base}{'_rtn' if returns else ''}_{kind}{bits}"


def draw(rng, bits):
    """Small, huge and random numbers, so that equality and wrap-around happen."""
    return rng.choice([rng.randrange(4), (1 << bits) - 1 - rng.randrange(3), 1 << bits - 1, rng.getrandbits(bits)])


def fill(wave, index, values, bits):
    for i in range(bits // 32):
        wave.vgprs[index + i] = np.array([v >> 32 * i & 0xFFFFFFFF for v in values], dtype=np.uint32)


def read(wave, index, bits):
    return [sum(int(wave.vgprs[index + i][n]) << 32 * i for i in range(bits // 32)) for n in LANES]


def registers(index, bits):
    return f"v{index}" if bits == 32 else f"v[{index}:{index + bits // 32 - 1}]"


def expected(memory, slots, first, second, bits, operation):
    """The loop over active lanes: memory is changed, the old data come back (None: inactive)."""
    old = [None] * 64
    for n in LANES:
        if PARTIAL >> n & 1:
            old[n] = memory[slots[n]]
            memory[slots[n]] = operation(old[n], first[n], second[n], bits) & (1 << bits) - 1
    return old


def setup(name, bits, slot_count):
    rng = random.Random(f"{name} {bits}")
    first, second = ([draw(rng, bits) for _ in LANES] for _ in range(2))
    slots = [rng.randrange(slot_count) for _ in LANES]
    memory = [draw(rng, bits) for _ in range(slot_count)]
    return first, second, slots, memory


def as_bytes(memory, bits):
    return np.frombuffer(b"".join(v.to_bytes(bits // 8, "little") for v in memory), dtype=np.uint8).copy()


def check_registers(wave, index, bits, old):
    got = read(wave, index, bits)
    assert got == [0xABABABAB_ABABABAB & (1 << bits) - 1 if o is None else o for o in old]


@pytest.mark.parametrize(("name", "bits"), [(n, b) for n in INTEGERS for b in (32, 64) if (n, b) != ("wrap", 64)])
def test_integers_in_lds(assemble, name, bits):
    first, second, slots, memory = setup(name, bits, 6)
    for returns in (False, True):
        if not returns and name in RETURN_ONLY:
            continue
        wave = Wave(lds=as_bytes(memory, bits))
        wave.set_exec(PARTIAL)
        wave.vgprs[1] = np.array(slots, dtype=np.uint32) * (bits // 8) - 16
        wave.vgprs[20:22] = 0xABABABAB
        fill(wave, 10, first, bits), fill(wave, 12, second, bits)
        after = list(memory)
        old = expected(after, slots, first, second, bits, INTEGERS[name])
        operands = [registers(10, bits)] + ([registers(12, bits)] if name in TWO_OPERANDS else [])
        target = f"{registers(20, bits)}, " if returns else ""
        wave.step(decode(assemble(f"{ds_name(name, bits, returns)} {target}v1, {', '.join(operands)} offset:16"), 0))
        assert (wave.lds == as_bytes(after, bits)).all()
        check_registers(wave, 20, bits, old if returns else [None] * 64)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("segment", ["flat", "global"])
@pytest.mark.parametrize("name", [*sorted(VMEM), "cmpswap"])
def test_integers_on_memory(assemble, name, bits, segment):
    first, second, slots, memory = setup(name, bits, 6)
    operation = INTEGERS[VMEM.get(name, "cmpst")]
    for returns in (False, True):
        array = as_bytes(memory, bits)
        wave = Wave(memory=Memory())
        base = wave.address_space.map(array)
        wave.set_exec(PARTIAL)
        fill(wave, 2, [base + s * bits // 8 for s in slots], 64)
        wave.vgprs[20:22] = 0xABABABAB
        fill(wave, 10, second if name == "cmpswap" else first, bits)
        fill(wave, 10 + bits // 32, first, bits)
        after = list(memory)
        old = expected(after, slots, first, second, bits, operation)
        data = registers(10, 2 * bits) if name == "cmpswap" else registers(10, bits)
        target = f"{registers(20, bits)}, " if returns else ""
        end = (", off" if segment == "global" else "") + (" sc0" if returns else "")
        suffix = "_x2" if bits == 64 else ""
        wave.step(decode(assemble(f"{segment}_atomic_{name}{suffix} {target}v[2:3], {data}{end}"), 0))
        assert (array == as_bytes(after, bits)).all()
        check_registers(wave, 20, bits, old if returns else [None] * 64)


# ---- floats ----

F32 = [0, 1 << 31, 1, 0x80000001, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x00800000]
F32 += [0x7FC12345, 0xFFC00001, 0x7F800001, 0xFFA00000, 0x33800000, 0x33800001, 0x4B7FFFFF]


def widen(bits32):
    """The f64 with the same class and payload position."""
    sign, exponent, mantissa = bits32 >> 31, bits32 >> 23 & 255, bits32 & 0x7FFFFF
    if exponent == 255:
        return sign << 63 | 0x7FF << 52 | mantissa << 29
    if exponent == 0:
        return sign << 63 | mantissa
    return sign << 63 | exponent - 127 + 1023 << 52 | mantissa << 29


VALUES = {32: F32, 64: [widen(b) for b in F32]}


def is_nan(bits, width):
    return bits & (1 << width - 1) - 1 > NAN_BITS[width][1]


def quiet(bits, width):
    return bits | NAN_BITS[width][0] ^ NAN_BITS[width][1]


def number(bits, width):
    return struct.unpack("<f" if width == 32 else "<d", bits.to_bytes(width // 8, "little"))[0]


def flushed(bits, width):
    mantissa = 23 if width == 32 else 52
    exponent = bits >> mantissa & (1 << width - 1 - mantissa) - 1
    return bits if exponent else bits & 1 << width - 1


def add(t, s, width, keep=True):
    for value in (t, s):
        if is_nan(value, width):
            return quiet(value, width)
    kind, word = (np.float32, np.uint32) if width == 32 else (np.float64, np.uint64)
    t, s = (v if keep else flushed(v, width) for v in (t, s))
    with np.errstate(all="ignore"):
        total = np.array([t], word).view(kind) + np.array([s], word).view(kind)
    if np.isnan(total[0]):
        return 1 << width - 1 | NAN_BITS[width][0]
    result = int(total.view(word)[0])
    return result if keep else flushed(result, width)


def rank(bits, width, keep):
    """Numbers in order, -0 below +0."""
    value = bits if keep else flushed(bits, width)
    return (number(value, width), 0 if value >> width - 1 else 1)


def extreme(t, s, width, largest, keep=True):
    for value in (t, s):
        if is_nan(value, width) and value == value & ~(NAN_BITS[width][0] ^ NAN_BITS[width][1]):
            return quiet(value, width)
    if is_nan(t, width) or is_nan(s, width):
        return s if is_nan(t, width) and not is_nan(s, width) else t
    a, b = rank(t, width, keep), rank(s, width, keep)
    return t if a == b or (a > b) == largest else s


def compare_store(t, compare, new, width, keep=True):
    flush = (lambda v: v) if keep else (lambda v: flushed(v, width))
    equal = not is_nan(t, width) and not is_nan(compare, width)
    equal = equal and number(flush(t), width) == number(flush(compare), width)
    return flush(new if equal else t)


FLOAT_OPERATIONS = {
    "add": lambda t, a, b, width, keep: add(t, a, width, keep or width == 64),
    "min": lambda t, a, b, width, keep: extreme(t, a, width, False, keep),
    "max": lambda t, a, b, width, keep: extreme(t, a, width, True, keep),
    "cmpst": lambda t, a, b, width, keep: compare_store(t, a, b, width, keep),
}


def run_float(assemble, text, bits, old, first, second, mode=None):
    """One operation a lane on separate data; every pair of VALUES by calling it often. Returns the new data."""
    lds = as_bytes(old, bits)
    wave = Wave(lds=lds, mode=mode)
    wave.vgprs[1] = np.arange(64, dtype=np.uint32) * (bits // 8)
    fill(wave, 10, first, bits), fill(wave, 12, second, bits)
    wave.step(decode(assemble(text), 0))
    return [int.from_bytes(bytes(lds[i : i + bits // 8]), "little") for i in range(0, len(lds), bits // 8)]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", sorted(FLOAT_OPERATIONS))
def test_floats_in_lds(assemble, name, bits, keep):
    mode = Mode() if keep else Mode(denorm32=0, denorm16_64=0)
    rng = random.Random(f"{name} {bits}")
    pairs = [(t, a) for t in VALUES[bits] for a in VALUES[bits]]
    pairs += [(rng.getrandbits(bits), rng.getrandbits(bits)) for _ in range(-len(pairs) % 64)]
    operands = f"v1, {registers(10, bits)}" + (f", {registers(12, bits)}" if name == "cmpst" else "")
    for at in range(0, len(pairs), 64):
        old, first = (list(x) for x in zip(*pairs[at : at + 64], strict=True))
        second = [rng.choice(VALUES[bits]) for _ in LANES]
        got = run_float(assemble, f"ds_{name}_f{bits} {operands}", bits, old, first, second, mode)
        want = [FLOAT_OPERATIONS[name](t, a, b, bits, keep) for t, a, b in zip(old, first, second, strict=True)]
        assert [hex(g) for g in got] == [hex(w) for w in want]


HALVES = {"f16": (np.float16, 10), "bf16": (ml_dtypes.bfloat16, 7)}
HALF_VALUES = [0, 0x8000, 1, 0x8001, 0x0080, 0x0400, 0x3C00, 0x3F80, 0x7BFF, 0x7F7F, 0xFBFF, 0x3C01, 0x1001, 0x4780]


def half_add(t, s, kind):
    dtype, mantissa = HALVES[kind]
    infinity = (1 << 15) - (1 << mantissa)
    for value in (t, s):
        if value & 0x7FFF > infinity:
            return value | 1 << mantissa - 1
    with np.errstate(all="ignore"):
        exact = float(np.array([t], np.uint16).view(dtype)[0]) + float(np.array([s], np.uint16).view(dtype)[0])
        if exact != exact:
            return 0x8000 | infinity | 1 << mantissa - 1
        if exact == 0 and t == s == 0x8000:
            return 0x8000
        return int(np.array([exact]).astype(dtype).view(np.uint16)[0])


@pytest.mark.parametrize("place", ["ds", "global"])
@pytest.mark.parametrize("kind", sorted(HALVES))
def test_packed_adds(assemble, kind, place):
    rng = random.Random(kind)
    pick = lambda: rng.choice(HALF_VALUES) if rng.random() < 0.5 else rng.getrandbits(16)  # noqa: E731
    for _ in range(20):
        old, first = ([pick() | pick() << 16 for _ in LANES] for _ in range(2))
        if place == "ds":
            got = run_float(assemble, f"ds_pk_add_{kind} v1, v10", 32, old, first, first)
        else:
            got = run_global(assemble, f"global_atomic_pk_add_{kind} v[2:3], v10, off", 32, old, first)
        halves = [(t & 65535, a & 65535, t >> 16, a >> 16) for t, a in zip(old, first, strict=True)]
        want = [half_add(t, a, kind) | half_add(u, b, kind) << 16 for t, a, u, b in halves]
        assert [hex(g) for g in got] == [hex(w) for w in want]


def run_global(assemble, text, bits, old, first, mode=None):
    array = as_bytes(old, bits)
    wave = Wave(memory=Memory(), mode=mode)
    base = wave.address_space.map(array)
    fill(wave, 2, [base + n * bits // 8 for n in LANES], 64)
    fill(wave, 10, first, bits)
    wave.step(decode(assemble(text), 0))
    return [int.from_bytes(bytes(array[i : i + bits // 8]), "little") for i in range(0, len(array), bits // 8)]


@pytest.mark.parametrize("mode", [Mode(), Mode(denorm32=0, denorm16_64=0)])
@pytest.mark.parametrize(("name", "bits"), [("add", 32), ("add", 64), ("min", 64), ("max", 64)])
def test_floats_on_memory_keep_denormals_in_any_mode(assemble, name, bits, mode):
    pairs = [(t, a) for t in VALUES[bits] for a in VALUES[bits]]
    pairs = pairs[: len(pairs) // 64 * 64]
    for at in range(0, len(pairs), 64):
        old, first = (list(x) for x in zip(*pairs[at : at + 64], strict=True))
        text = f"global_atomic_{name}_f{bits} v[2:3], {registers(10, bits)}, off"
        got = run_global(assemble, text, bits, old, first, mode)
        want = [FLOAT_OPERATIONS[name](t, a, 0, bits, True) for t, a in zip(old, first, strict=True)]
        assert [hex(g) for g in got] == [hex(w) for w in want]


def test_a_sum_of_all_lanes_is_taken_in_ascending_lanes(assemble):
    """Float addition does not associate: the order decides the bits."""
    values = np.array([random.Random(n).uniform(-1, 1) * 10.0 ** (n % 9) for n in LANES], dtype=np.float32)
    wave = Wave(lds=np.zeros(16, np.uint8))
    wave.vgprs[10] = values.view(np.uint32)
    wave.step(decode(assemble("ds_add_f32 v1, v10 offset:4"), 0))
    total, backward = np.float32(0), np.float32(0)
    for value, other in zip(values, values[::-1], strict=True):
        total, backward = np.float32(total + value), np.float32(backward + other)
    assert wave.lds.view(np.float32)[1] == total != backward


# ---- edges ----


def test_out_of_range_in_lds_returns_zero(assemble):
    wave = Wave(lds=np.full(16, 0x11, np.uint8))
    wave.set_exec(0b111)
    wave.vgprs[1][:3] = [8, 12, 16]
    wave.vgprs[10:12] = 1
    wave.vgprs[20:22] = 7
    wave.step(decode(assemble("ds_add_rtn_u64 v[20:21], v1, v[10:11]"), 0))
    assert wave.vgprs[20][:4].tolist() == [0x11111111, 0, 0, 7]
    assert wave.lds[8:].tolist() == [0x12, 0x11, 0x11, 0x11] * 2
    assert (wave.lds[:8] == 0x11).all()


def memory_wave(writable=True):
    wave = Wave(memory=Memory())
    array = np.zeros(64, np.uint32)
    base = wave.address_space.map(array, writable=writable)
    fill(wave, 2, [base + 4 * n for n in LANES], 64)
    wave.vgprs[10] = 1
    return wave, array


def test_a_faulting_lane_leaves_memory_alone(assemble):
    wave, array = memory_wave()
    wave.vgprs[3][40] += 9
    with pytest.raises(MemoryFault, match="lane 40"):
        wave.step(decode(assemble("global_atomic_add v[2:3], v10, off"), 0))
    assert not array.any()


def test_read_only_memory_faults(assemble):
    wave, array = memory_wave(writable=False)
    with pytest.raises(MemoryFault, match="read-only"):
        wave.step(decode(assemble("global_atomic_add v[2:3], v10, off"), 0))
    assert not array.any()


def test_misaligned_memory_faults(assemble):
    wave, array = memory_wave()
    wave.vgprs[2][3] += 2
    with pytest.raises(MemoryFault, match=r"an atomic of 4 bytes at 0x10000000e, which is not aligned"):
        wave.step(decode(assemble("global_atomic_add v[2:3], v10, off"), 0))
    assert not array.any()


@pytest.mark.parametrize(
    ("suffix", "words", "unit"), [("_b32", 1, 4), ("_b64", 2, 8), ("st64_b32", 1, 256), ("st64_b64", 2, 512)]
)
def test_two_exchanges(assemble, suffix, words, unit):
    head, _, kind = suffix.partition("_")
    wave = Wave(lds=np.arange(1024, dtype=np.uint32).view(np.uint8).copy())
    wave.set_exec(1)
    wave.vgprs[10:12], wave.vgprs[12:14] = 0xAAAAAAAA, 0xBBBBBBBB
    bits = 32 * words
    operands = f"{registers(20, 2 * bits)}, v1, {registers(10, bits)}, {registers(12, bits)}"
    wave.step(decode(assemble(f"ds_wrxchg2{head}_rtn_{kind} {operands} offset0:1 offset1:3"), 0))
    at = [unit // 4, 3 * unit // 4]
    assert wave.vgprs[20 : 20 + 2 * words, 0].tolist() == [a + i for a in at for i in range(words)]
    lds = wave.lds.view(np.uint32)
    assert [lds[a] for a in at] == [0xAAAAAAAA, 0xBBBBBBBB]


@pytest.mark.parametrize(("kind", "words"), [("b32", 1), ("b64", 2)])
def test_two_exchanges_with_equal_offsets_are_one(assemble, kind, words):
    """11.3.1: equal offsets cause one access, which uses the first DATA0 only."""
    wave = Wave(lds=np.arange(64, dtype=np.uint32).view(np.uint8).copy())
    wave.set_exec(1)
    wave.vgprs[10:12], wave.vgprs[12:14] = 0xAAAAAAAA, 0xBBBBBBBB
    operands = f"{registers(20, 64 * words)}, v1, {registers(10, 32 * words)}, {registers(12, 32 * words)}"
    wave.step(decode(assemble(f"ds_wrxchg2_rtn_{kind} {operands} offset0:3 offset1:3"), 0))
    old = [3 * words + i for i in range(words)]
    assert wave.vgprs[20 : 20 + 2 * words, 0].tolist() == old * 2
    assert wave.lds.view(np.uint32)[old].tolist() == [0xAAAAAAAA] * words


def test_conditional_exchange(assemble):
    wave = Wave(lds=np.full(32, 0x11, np.uint8))
    wave.set_exec(1)
    wave.vgprs[1], wave.vgprs[10], wave.vgprs[11] = 13, 0x80000002, 0x00000003
    wave.step(decode(assemble("ds_condxchg32_rtn_b64 v[20:21], v1, v[10:11]"), 0))
    assert wave.vgprs[20:22, 0].tolist() == [0x11111111, 0x11111111]
    assert wave.lds.view(np.uint32)[1:5].tolist() == [0x11111111, 2, 0x11111111, 0x11111111]


def test_append_and_consume_count_active_lanes(assemble):
    wave = Wave(lds=np.full(16, 0, np.uint8))
    wave.lds.view(np.uint32)[3] = 1000
    wave.sgprs[124] = 0xFFFF0004
    wave.set_exec(PARTIAL)
    count = PARTIAL.bit_count()
    wave.step(decode(assemble("ds_append v5 offset:8"), 0))
    wave.step(decode(assemble("ds_consume v6 offset:8"), 0))
    assert set(wave.vgprs[5].tolist()) == {0, 1000}
    assert set(wave.vgprs[6].tolist()) == {0, 1000 + count}
    assert wave.lds.view(np.uint32)[3] == 1000


def test_every_atomic_is_tested():
    names = {ds_name(n, b, r) for n in INTEGERS for b in (32, 64) for r in (False, True)}
    names |= {f"ds_{n}{r}_f{b}" for n in FLOAT_OPERATIONS for b in (32, 64) for r in ("", "_rtn")}
    names |= {f"ds_pk_add{r}_{k}" for k in HALVES for r in ("", "_rtn")} | {
        "ds_append",
        "ds_consume",
        "ds_condxchg32_rtn_b64",
    }
    names |= {f"ds_wrxchg2{s}_rtn_b{b}" for s in ("", "st64") for b in (32, 64)}
    vmem = [f"{n}{x}" for n in (*VMEM, "cmpswap") for x in ("", "_x2")]
    vmem += ["add_f32", "add_f64", "min_f64", "max_f64", "pk_add_f16", "pk_add_bf16"]
    names |= {f"{s}_atomic_{n}" for s in ("flat", "global") for n in vmem}
    modules = ("gfx950.isa.ds_atomics", "gfx950.isa.global_atomics")
    assert {i.name for i in load().values() if i.body.__module__ in modules} - names == set()
