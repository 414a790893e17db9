"""MUBUF and MTBUF against a model of one lane at a time, written from the ISA text and sharing no code."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import find_mnemonics
import numpy as np
import pytest
from memory_loads import LOADS, number

from emu.errors import MemoryFault
from emu.memory import Memory
from emu.register_checks import UnsupportedForm
from emu.wave import Wave
from gfx950.isa import buffer_addressing
from gfx950.isa.encoding import ENCODINGS, DecodeError, decode
from gfx950.isa.registry import load
from gfx950.models import SWITCHES, make_model, using

LANES = range(64)
NBYTES = 40 << 20
BASE = 1 << 20  # of the descriptor's buffer, within the mapped bytes
NO_ANSWERS: dict[str, int] = {}  # other than the defaults
BYTES = np.random.default_rng(3).integers(0, 256, NBYTES, dtype=np.uint8)


@dataclass(frozen=True)
class Descriptor:
    """The fields of table 48."""

    base: int = 0
    stride: int = 0
    swizzle: int = 0
    records: int = 4096
    select: tuple[int, ...] = (4, 5, 6, 7)
    nfmt: int = 7
    dfmt: int = 4
    index_stride: int = 0
    add_tid: int = 0

    def words(self):
        word3 = sum(s << 3 * i for i, s in enumerate(self.select)) | self.nfmt << 12 | self.dfmt << 15
        word3 |= self.index_stride << 21 | self.add_tid << 23
        return [
            self.base & 0xFFFFFFFF,
            self.base >> 32 | self.stride << 16 | self.swizzle << 31,
            self.records,
            word3,
        ]


def reading(answers):
    """The answers to the switches of buffers by their last names; those not given have their defaults."""
    known = {name: s.default for name, s in SWITCHES.items() if name.startswith("buffer.")} | answers
    return SimpleNamespace(**{name.removeprefix("buffer."): answer for name, answer in known.items()})


@dataclass(frozen=True)
class Access:
    """An instruction's addressing. index and offset: 64 numbers, or None without IDXEN or OFFEN."""

    descriptor: Descriptor
    index: list[int] | None = None
    offset: list[int] | None = None
    immediate: int = 0
    soffset: int = 0
    formatted: bool = False

    def lane(self, n, answers=NO_ANSWERS):
        """(address of dword i, whether `size` bytes behind the first `skip` are covered) of one lane."""
        d, idxen, model = self.descriptor, self.index is not None, reading(answers)
        offset = ((self.offset[n] if self.offset is not None else 0) + self.immediate) % 2**32
        swizzled = d.swizzle and (d.add_tid or not model.swizzle_needs_add_tid)
        tid = d.add_tid and not (idxen and not swizzled and model.linear_index_drops_lane)
        index = ((self.index[n] if idxen else 0) + (n if tid else 0)) % 2**32
        stride = d.stride + (d.dfmt * 2**14 if tid and not self.formatted else 0)

        def address(dword):
            at = offset + 4 * dword
            if not swizzled:
                return d.base + self.soffset + index * stride + at
            tile = 8 << d.index_stride
            row = index // tile * stride + at // 4 * 4
            return d.base + self.soffset + row * tile + index % tile * 4 + at % 4

        def covered(size, skip=0):
            if d.dfmt == 0 and model.invalid_is_unbound and not (d.add_tid and not self.formatted):
                return False
            if d.add_tid and not idxen:
                return True
            if model.records_by_table_45:
                first = offset + skip + (self.index[n] * d.stride if idxen else 0)
                first += self.soffset if model.soffset_in_range else 0
                limit = d.records if idxen or not d.stride else d.records * d.stride
                return first + size <= limit if model.range_by_end else first < limit
            if idxen and (d.stride or not model.zero_stride_index_in_bytes):
                return self.index[n] < d.records
            first = offset + skip + (self.soffset if model.soffset_in_range else 0)
            return first + size <= d.records if model.range_by_end else first < d.records

        return address, covered

    def loaded(self, n, nbytes, answers=NO_ANSWERS):
        """What a load of an implied format gives."""
        address, covered = self.lane(n, answers)
        data = b""
        for dword in range(-(-nbytes // 4)):
            size = min(4, nbytes)
            at = address(dword) & (-4 if nbytes >= 4 and not reading(answers).unaligned else -1)
            data += bytes(BYTES[at - ORIGIN : at - ORIGIN + size]) if covered(size, 4 * dword) else bytes(size)
        return data


WAVE = Wave(memory=Memory())
ORIGIN = WAVE.address_space.map(BYTES, name="bytes")
SCALARS = {"s3": 3, "m0": 124}


@pytest.fixture
def wave():
    WAVE.set_exec(0x8000_00FF_1234_F001)
    WAVE.lds = np.full(2048, 0xEE, np.uint8)
    for index in range(10, 30):
        WAVE.vgprs[index] = np.frombuffer(random.Random(index).randbytes(256), dtype=np.uint32)
    kept = BYTES[: 2 << 20].copy()
    yield WAVE
    BYTES[: 2 << 20] = kept


def active(wave):
    bits = int(wave.sgprs[126]) | int(wave.sgprs[127]) << 32
    return [n for n in LANES if bits >> n & 1]


def random_access(rng, **fixed):
    """An access whose covered bytes are mapped."""
    add_tid = rng.random() < 0.4
    d = Descriptor(
        ORIGIN + BASE + rng.randrange(64),
        rng.choice([0, 0, 4, 12, 64, 100]),
        int(rng.random() < 0.5),
        rng.choice([0, 16, 40, 100, 1000, 4097]),
        dfmt=rng.choice([0, 1, 3, 4, 10, 14, 15]),
        index_stride=rng.randrange(4),
        add_tid=int(add_tid),
    )
    d = replace(d, **fixed)
    index = [rng.randrange(60) for _ in LANES] if rng.random() < 0.5 else None
    offset = None
    if rng.random() < 0.7:
        offset = [rng.randrange(130) * rng.choice([1, 4, 4, 16]) for _ in LANES]
    immediate = rng.choice([0, 0, 4, 13, 100, 4095])
    if index is not None and not add_tid and rng.random() < 0.3:
        index = [n if rng.random() < 0.8 else 2**32 - 1 - n for n in index]
    elif offset is not None and index is None and not add_tid:
        offset = [o if rng.random() < 0.7 else (o - 4095) % 2**32 for o in offset]
        d = replace(d, base=d.base + 8192)
    return Access(d, index, offset, immediate, rng.choice([0, 0, 5, 64, 1000]))


def load_registers(wave, access, scalar="s3"):
    """s[8:11] the descriptor, v2 and v3 index and offset, a scalar the SOFFSET."""
    wave.sgprs[8:12] = access.descriptor.words()
    wave.sgprs[SCALARS[scalar]] = access.soffset
    registers = [r for r in (access.index, access.offset) if r is not None]
    for n, values in enumerate(registers):
        wave.vgprs[2 + n] = np.array(values, dtype=np.uint32)


def addressing(access, scalar="s3", resource="s[8:11]"):
    """The tail of the assembly text."""
    count = (access.index is not None) + (access.offset is not None)
    address = ["off", "v2", "v[2:3]"][count]
    flags = " idxen" * (access.index is not None) + " offen" * (access.offset is not None)
    return f"{address}, {resource}, {scalar}{flags} offset:{access.immediate}"


def register_text(count, first=20, kind="v"):
    return f"{kind}[{first}:{first + count - 1}]" if count > 1 else f"{kind}{first}"


def run(wave, assemble, text):
    wave.step(decode(assemble(text), 0))


STORES = {
    "byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16), "dword": (4, 0),
    "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0),
}  # fmt: skip


def lane_value(registers, lane, count, first=20):
    return sum(int(registers[first + i][lane]) << 32 * i for i in range(count))


@pytest.mark.parametrize("name", LOADS)
def test_loads_by_random_descriptors(wave, assemble_lines, name):
    nbytes, expected = LOADS[name]
    count = max(1, nbytes // 4)
    rng = random.Random(name)
    accesses = [random_access(rng) for _ in range(40)]
    texts = [f"buffer_load_{name} {register_text(count)}, {addressing(a)}" for a in accesses]
    covered = 0
    for access, code in zip(accesses, assemble_lines(texts), strict=True):
        load_registers(wave, access)
        old = wave.vgprs.copy()
        wave.step(decode(code, 0))
        for n in LANES:
            before = lane_value(old, n, count)
            data = access.loaded(n, nbytes)
            want = expected(data, before) % 2 ** (32 * count) if n in active(wave) else before
            assert lane_value(wave.vgprs, n, count) == want, (access, n)
            covered += any(data)
    assert 500 < covered < 2400  # of 2560: both cases are met


def stored(access, lanes, data_of, nbytes, step=4):
    """The bytes after a store: pieces of `step` bytes, each checked by itself."""
    after = BYTES[: 2 << 20].copy()
    for n in lanes:
        address, covered = access.lane(n)
        data = data_of(n)
        for dword in range(-(-nbytes // 4)):
            size = min(step, nbytes)
            if covered(size, 4 * dword):
                at = address(dword) - ORIGIN
                after[at : at + min(4, size)] = list(data[4 * dword : 4 * dword + min(4, size)])
    return after


@pytest.mark.parametrize("name", STORES)
def test_stores_by_random_descriptors(wave, assemble_lines, name):
    nbytes, shift = STORES[name]
    count = max(1, nbytes // 4)
    rng = random.Random(name)
    spread = [(7 * n % 64) * 16 for n in LANES]  # no overlap, whatever the layout
    accesses = [random_access(rng, stride=0, dfmt=4, records=700) for _ in range(12)]
    accesses = [
        replace(a, descriptor=replace(a.descriptor, add_tid=0), index=None, offset=spread, immediate=4 * n)
        for n, a in enumerate(accesses)
    ]
    tiles = Descriptor(ORIGIN + BASE, 256, 1, 5, index_stride=1, add_tid=1, dfmt=0)
    accesses.append(Access(tiles, offset=[16 * (n % 3) for n in LANES], soffset=12))
    accesses.append(Access(replace(tiles, add_tid=0, stride=20, records=30, dfmt=4), index=list(LANES)))
    texts = [f"buffer_store_{name} {register_text(count)}, {addressing(a)}" for a in accesses]
    changed = 0
    for access, code in zip(accesses, assemble_lines(texts), strict=True):
        load_registers(wave, access)
        want = stored(
            access,
            active(wave),
            lambda n: (lane_value(wave.vgprs, n, count) >> shift & 2 ** (8 * nbytes) - 1).to_bytes(nbytes, "little"),
            nbytes,
        )
        changed += (want != BYTES[: 2 << 20]).sum()
        wave.step(decode(code, 0))
        assert (BYTES[: 2 << 20] == want).all()
    assert changed > 100 * nbytes


def test_a_load_across_the_end_gives_the_leading_dwords(wave, assemble):
    access = Access(Descriptor(ORIGIN + BASE, records=64), offset=[4 * n for n in LANES])
    wave.set_exec(2**64 - 1)
    load_registers(wave, access)
    run(wave, assemble, "buffer_load_dwordx4 v[20:23], v2, s[8:11], 0 offen")
    words = BYTES[BASE : BASE + 64].view(np.uint32)
    for n in LANES:
        assert list(wave.vgprs[20:24, n]) == [int(words[n + i]) if n + i < 16 else 0 for i in range(4)]


SWITCHED = {
    "soffset_in_range": Access(Descriptor(ORIGIN + BASE, records=64), offset=[4 * n for n in LANES], soffset=16),
    "range_by_end": Access(Descriptor(ORIGIN + BASE, records=61), offset=[n for n in LANES]),
    "zero_stride_index_in_bytes": Access(
        Descriptor(ORIGIN + BASE, records=32), index=list(LANES), offset=[n // 2 for n in LANES]
    ),
    "records_by_table_45": Access(
        Descriptor(ORIGIN + BASE, stride=12, records=40), index=[n // 2 for n in LANES], offset=[n % 16 for n in LANES]
    ),
    "swizzle_needs_add_tid": Access(
        Descriptor(ORIGIN + BASE, stride=64, swizzle=1, records=64), index=list(LANES), offset=[4 * n for n in LANES]
    ),
    "linear_index_drops_lane": Access(
        Descriptor(ORIGIN + BASE, stride=12, records=64, add_tid=1, dfmt=0), index=[n // 2 for n in LANES]
    ),
    "unaligned": Access(Descriptor(ORIGIN + BASE), offset=[5 * n for n in LANES]),
    "invalid_is_unbound": Access(Descriptor(ORIGIN + BASE, dfmt=0), offset=[4 * n for n in LANES]),
}


@pytest.mark.parametrize("name", SWITCHED)
def test_switches(wave, assemble, name):
    access = SWITCHED[name]
    wave.set_exec(2**64 - 1)
    load_registers(wave, access)
    results = []
    for value in (1, 0):
        wanted = {f"buffer.{name}": value}
        with using(make_model("test", wanted)):
            run(wave, assemble, f"buffer_load_dwordx2 v[20:21], {addressing(access)}")
        expected = [number(access.loaded(n, 8, wanted)) for n in LANES]
        results.append([lane_value(wave.vgprs, n, 2) for n in LANES])
        assert results[-1] == expected, value
    assert results[0] != results[1]
    assert SWITCHES[f"buffer.{name}"].answers == (1, 0)


@pytest.mark.parametrize("index", [None, [n // 2 for n in LANES]])
@pytest.mark.parametrize("range_by_end", [1, 0])
def test_table_45(wave, assemble, index, range_by_end):
    """The other reading of num_records, with and without an index."""
    answers = {"buffer.records_by_table_45": 1, "buffer.range_by_end": range_by_end}
    wave.set_exec(2**64 - 1)
    access = Access(Descriptor(ORIGIN + BASE, stride=20, records=9), index, [3 * n for n in LANES], 5, 4)
    access = access if index is None else replace(access, descriptor=replace(access.descriptor, records=333))
    load_registers(wave, access)
    with using(make_model("test", answers)):
        run(wave, assemble, f"buffer_load_dwordx4 v[20:23], {addressing(access)}")
    expected = [access.loaded(n, 16, answers) for n in LANES]
    assert [lane_value(wave.vgprs, n, 4) for n in LANES] == [number(data) for data in expected]
    assert 0 < sum(map(any, expected)) < 64


def test_soffset_is_a_register_m0_or_a_constant(wave, assemble):
    access = Access(Descriptor(ORIGIN + BASE), offset=[4 * n for n in LANES], soffset=40)
    for scalar, soffset in (("s3", 40), ("m0", 40), ("64", 64), ("1", 1), ("0", 0)):
        load_registers(wave, access, scalar if scalar in SCALARS else "s3")
        run(wave, assemble, f"buffer_load_dword v20, v2, s[8:11], {scalar} offen")
        for n in active(wave):
            assert int(wave.vgprs[20][n]) == number(replace(access, soffset=soffset).loaded(n, 4))


def test_a_negative_constant_is_a_large_soffset(wave, assemble):
    """-16 as SOFFSET is 2^32 - 16: out of every range in bytes, 4 GiB on where nothing is checked."""
    load_registers(wave, Access(Descriptor(ORIGIN + BASE, records=2**32 - 1), offset=[32] * 64))
    run(wave, assemble, "buffer_load_dword v20, v2, s[8:11], -16 offen")
    assert all(wave.vgprs[20][n] == 0 for n in active(wave))
    load_registers(wave, Access(Descriptor(ORIGIN + BASE, add_tid=1), offset=[32] * 64))
    with pytest.raises(MemoryFault):
        run(wave, assemble, "buffer_load_dword v20, v2, s[8:11], -16 offen")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"soffset": 255}, "SOFFSET is a literal"),
        ({"soffset": 209}, "scalar source code 209 is reserved"),
        ({"vaddr": 255, "idxen": 1, "offen": 1}, "2 registers from v255 on reach past the last one"),
        ({"vdata": 253}, "4 registers from v253 on reach past the last one"),
    ],
)
def test_operands_that_do_not_exist(wave, fields, message):
    load_registers(wave, Access(Descriptor(ORIGIN + BASE)))
    bits = ENCODINGS["MUBUF"].pack({"op": 23, "srsrc": 2, "soffset": 128, **fields})
    with pytest.raises(UnsupportedForm, match=message):
        wave.step(decode(bits.to_bytes(8, "little"), 0))


def test_accumulation_registers(wave, assemble):
    access = Access(Descriptor(ORIGIN + BASE), offset=[16 * n for n in LANES])
    wave.set_exec(2**64 - 1)
    load_registers(wave, access)
    run(wave, assemble, "buffer_load_dwordx2 a[6:7], v2, s[8:11], 0 offen offset:4")
    assert (wave.vgprs[256 + 6] == BYTES[BASE:].view(np.uint32)[1::4][:64]).all()
    wave.vgprs[256 + 7] = np.arange(64)
    run(wave, assemble, "buffer_store_dword a7, v2, s[8:11], 0 offen")
    assert (BYTES[BASE:].view(np.uint32)[::4][:64] == np.arange(64)).all()


def test_an_all_zero_descriptor_is_no_buffer(wave, assemble):
    wave.sgprs[8:12] = 0
    wave.vgprs[2] = 0
    before = BYTES[: 1 << 16].copy()
    for text in ("buffer_load_dwordx4 v[20:23]", "buffer_store_dwordx4 v[12:15]", "buffer_atomic_add v14"):
        run(wave, assemble, f"{text}, v2, s[8:11], 0 idxen")
    run(wave, assemble, "tbuffer_load_format_x v24, v2, s[8:11], 0 format:[BUF_DATA_FORMAT_32] idxen")
    assert all(wave.vgprs[r][n] == 0 for r in (20, 21, 22, 23, 24) for n in active(wave))
    assert (BYTES[: 1 << 16] == before).all()


def test_covered_but_unmapped_is_a_fault(wave, assemble):
    access = Access(Descriptor(ORIGIN + NBYTES - 64, records=4096), offset=[4 * n for n in LANES])
    load_registers(wave, access)
    for text in ("buffer_load_dword v20", "buffer_store_dword v20", "buffer_atomic_add v20"):
        with pytest.raises(MemoryFault, match='past the end of buffer "bytes"'):
            run(wave, assemble, f"{text}, v2, s[8:11], 0 offen")
    covered = Access(replace(access.descriptor, records=64), offset=access.offset)
    load_registers(wave, covered)
    run(wave, assemble, "buffer_load_dword v20, v2, s[8:11], 0 offen")
    assert [int(wave.vgprs[20][n]) for n in active(wave)] == [number(covered.loaded(n, 4)) for n in active(wave)]


# ---- atomics ---------------------------------------------------------------------------------------------------------


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


INTEGER = {
    "swap": lambda t, s, bits: s,
    "add": lambda t, s, bits: t + s,
    "sub": lambda t, s, bits: t - s,
    "smin": lambda t, s, bits: min(signed(t, bits), signed(s, bits)),
    "umin": lambda t, s, bits: min(t, s),
    "smax": lambda t, s, bits: max(signed(t, bits), signed(s, bits)),
    "umax": lambda t, s, bits: max(t, s),
    "and": lambda t, s, bits: t & s,
    "or": lambda t, s, bits: t | s,
    "xor": lambda t, s, bits: t ^ s,
    "inc": lambda t, s, bits: 0 if t >= s else t + 1,
    "dec": lambda t, s, bits: s if t == 0 or t > s else t - 1,
}


def float_add(kind):
    def operation(t, s, bits):
        raw = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
        a, b = (np.array([x], dtype=raw).view(kind) for x in (t, s))
        return int((a + b).view(raw)[0])

    return operation


def halves(operation):
    return lambda t, s, bits: (
        operation(t & 0xFFFF, s & 0xFFFF, 16) & 0xFFFF | (operation(t >> 16, s >> 16, 16) & 0xFFFF) << 16
    )


def bf16_add(t, s, bits):
    import ml_dtypes

    a, b = (np.array([x], dtype=np.uint16).view(ml_dtypes.bfloat16) for x in (t, s))
    return int((a + b).view(np.uint16)[0])


def float_pick(pick):
    def operation(t, s, bits):
        a, b = (np.array([x], dtype=np.uint64).view(np.float64)[0] for x in (t, s))
        return int(np.array([pick(a, b)], dtype=np.float64).view(np.uint64)[0])

    return operation


ATOMICS = {name: (4, operation) for name, operation in INTEGER.items()}
ATOMICS |= {f"{name}_x2": (8, operation) for name, operation in INTEGER.items()}
ATOMICS |= {
    "add_f32": (4, float_add(np.float32)),
    "add_f64": (8, float_add(np.float64)),
    "pk_add_f16": (4, halves(float_add(np.float16))),
    "pk_add_bf16": (4, halves(bf16_add)),
    "min_f64": (8, float_pick(min)),
    "max_f64": (8, float_pick(max)),
    "cmpswap": (4, None),
    "cmpswap_x2": (8, None),
}


def numbers(name, seed, width):
    """Data without NaNs, so that Python's comparison and numpy's addition have no say in payloads."""
    rng = random.Random(f"{name} {seed}")
    mask = 0x3FFF if name.startswith("pk") else 0x3FFFFFFF if "f32" in name else (1 << 62) - 1
    spread = 0xC0007FFF & mask | mask << 16 & 0xBFFF0000 if name.startswith("pk") else (1 << width) - 1
    spread &= ~(1 << width - 2) if "_f" in name else -1
    return [rng.getrandbits(width) & spread if rng.random() < 0.7 else rng.randrange(4) for _ in LANES]


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(wave, assemble, name, returned):
    size, operation = ATOMICS[name]
    width, count = 8 * size, size // 4 * (2 if operation is None else 1)
    offsets = [size * (n * 5 % 48) for n in LANES]
    access = Access(Descriptor(ORIGIN + BASE, records=33 * size + size // 2), offset=offsets, immediate=size)
    load_registers(wave, access)
    memory = dict(zip(sorted(set(offsets)), numbers(name, "memory", width), strict=False))
    for offset, value in memory.items():
        at = BASE + offset + size
        BYTES[at : at + size] = list(value.to_bytes(size, "little"))
    sources = [numbers(name, "new", width), [memory[o] if n % 3 else 1 for n, o in enumerate(offsets)]]
    for i in range(count):
        part = sources[i * 4 // size]
        wave.vgprs[20 + i] = np.array([v >> 32 * (i % (size // 4)) & 0xFFFFFFFF for v in part], dtype=np.uint32)
    old = wave.vgprs.copy()
    expected = [lane_value(old, n, count) for n in LANES]
    for n in active(wave):
        covered = offsets[n] + 2 * size <= access.descriptor.records
        t = memory[offsets[n]]
        if returned:
            kept = expected[n] >> width << width
            expected[n] = kept | (t if covered else 0)
        if covered and operation is None:
            memory[offsets[n]] = sources[0][n] if t == sources[1][n] else t
        elif covered:
            memory[offsets[n]] = operation(t, sources[0][n], width) % 2**width
    run(wave, assemble, f"buffer_atomic_{name} {register_text(count)}, {addressing(access)}{' sc0' * returned}")
    assert [lane_value(wave.vgprs, n, count) for n in LANES] == expected
    for offset, value in memory.items():
        at = BASE + offset + size
        assert number(bytes(BYTES[at : at + size])) == value


def test_unaligned_atomics_fault(wave, assemble):
    load_registers(wave, Access(Descriptor(ORIGIN + BASE), offset=[2] * 64))
    with pytest.raises(MemoryFault, match="not aligned"):
        run(wave, assemble, "buffer_atomic_add v20, v2, s[8:11], 0 offen")


# ---- to LDS ----------------------------------------------------------------------------------------------------------

TO_LDS = {
    "ubyte": (1, 1, 4, False), "sbyte": (1, 1, 4, True), "ushort": (2, 1, 4, False), "sshort": (2, 1, 4, True),
    "dword": (4, 1, 4, False), "dwordx3": (12, 3, 16, False), "dwordx4": (16, 4, 16, False),
    "format_x": (4, 1, 4, False),
}  # fmt: skip


@pytest.mark.parametrize("name", TO_LDS)
def test_loads_to_lds(wave, assemble, name):
    nbytes, words, stride, sign = TO_LDS[name]
    rng = random.Random(name)
    records = 900
    offsets = [rng.randrange(250) * 4 + (nbytes < 4) for _ in LANES]
    access = Access(Descriptor(ORIGIN + BASE, records=records, nfmt=4), None, offsets, 0x24, 8)
    load_registers(wave, access)
    wave.sgprs[124] = 0xFFF00000 + 0x103 + 1024  # M0: bits above 17 do not count, those below 2 do
    expected = wave.lds.copy()
    for n in active(wave):
        value = number(access.loaded(n, nbytes), sign) & (1 << 32 * words) - 1
        for word in range(words):
            place = 0x503 + 0x24 + stride * n + 4 * word
            if place + 4 <= len(expected):
                expected[place : place + 4] = list((value >> 32 * word & 0xFFFFFFFF).to_bytes(4, "little"))
    old = wave.vgprs.copy()
    run(wave, assemble, f"buffer_load_{name} {addressing(access)} lds")
    run(wave, assemble, "s_waitcnt vmcnt(0)")  # the data land here
    assert (wave.lds == expected).all()
    assert (wave.vgprs == old).all()


def test_lanes_whose_lds_place_does_not_exist_are_not_read(wave, assemble):
    """Lanes 48 on would land past 1024 bytes; their addresses are nowhere."""
    wave.lds = np.full(1024, 0xEE, np.uint8)
    wave.set_exec(2**64 - 1)
    access = Access(Descriptor(ORIGIN + BASE, records=2**32 - 1), offset=[4 * n if n < 48 else 2**31 for n in LANES])
    load_registers(wave, access)
    wave.sgprs[124] = 1024 - 48 * 4
    run(wave, assemble, "buffer_load_dword v2, s[8:11], 0 offen lds")
    run(wave, assemble, "s_waitcnt vmcnt(0)")
    assert (wave.lds[:832] == 0xEE).all()
    assert (wave.lds[832:] == BYTES[BASE : BASE + 192]).all()
    wave.sgprs[124] = 1024 - 49 * 4
    with pytest.raises(MemoryFault, match="lane 48"):
        run(wave, assemble, "buffer_load_dword v2, s[8:11], 0 offen lds")


# ---- encodings -------------------------------------------------------------------------------------------------------


def definitions():
    return [i for i in load().values() if i.encoding in ("MUBUF", "MUBUF_LDS", "MTBUF")]


def data_registers(instruction):
    results = [r.registers for r in instruction.results]
    given = instruction.parameter("data0") or instruction.parameter("vdst")
    return given.registers if given else results[0]


def instruction_text(instruction):
    """Assembly with every field at work, and the fields."""
    fields = {"offset": 0xABC, "offen": 1, "idxen": 1, "sc0": 1, "sc1": 1, "nt": 1, "vaddr": 6, "srsrc": 5}
    fields |= {"soffset": 33, "op": instruction.opcode}
    tail = "v[6:7], s[20:23], s33 idxen offen offset:0xabc sc0 sc1 nt"
    if not instruction.parameter("buffer"):
        return f"{instruction.name} sc0 sc1", {"op": instruction.opcode, "sc0": 1, "sc1": 1}
    if instruction.encoding == "MUBUF_LDS":
        return f"{instruction.name.removesuffix('_lds')} {tail} lds", fields | {"lds": 1}
    data = register_text(data_registers(instruction), 32, "a")
    if instruction.encoding == "MTBUF":
        tail = tail.replace("s33", "s33 dfmt:11, nfmt:5,").replace("s33 dfmt:11, nfmt:5,", "dfmt:11, nfmt:5, s33")
        fields |= {"dfmt": 11, "nfmt": 5}
    return f"{instruction.name} {data}, {tail}", fields | {"vdata": 32, "acc": 1}


def test_every_definition_assembles_and_decodes_back(assemble_lines):
    instructions = definitions()
    texts = [instruction_text(i) for i in instructions]
    for instruction, (text, fields), code in zip(
        instructions, texts, assemble_lines([t for t, _ in texts]), strict=True
    ):
        decoded = decode(code, 0)
        assert decoded.instruction is instruction, text
        form = "MUBUF" if instruction.encoding == "MUBUF_LDS" else instruction.encoding
        assert decoded.form == form
        assert {k: v for k, v in decoded.fields.items() if v} == {k: v for k, v in fields.items() if v}, text
        assert ENCODINGS[form].pack(decoded.fields) == number(code)


def test_every_mnemonic_that_llvm_knows_is_defined():
    """Against the table of what LLVM's assembler takes; to-LDS forms there end in `lds`."""
    lines = (Path(find_mnemonics.__file__).parent / "gfx950_mnemonics.txt").read_text().splitlines()
    lines = [line for line in lines if line.startswith(("buffer_", "tbuffer_"))]
    to_lds = {line.split()[0] + "_lds" for line in lines if line.endswith(" lds")}
    plain = {line.split()[0] for line in lines if not line.endswith(" lds")}
    assert to_lds <= {i.name for i in definitions()}
    assert plain | {name.removesuffix("_lds") for name in to_lds} == {
        i.name.removesuffix("_lds") for i in definitions()
    }


def test_opcodes_are_those_of_the_tables():
    found = {e: sorted(i.opcode for i in definitions() if i.encoding == e) for e in ("MUBUF", "MUBUF_LDS", "MTBUF")}
    assert found["MUBUF"] == [*range(42), *range(64, 83), *range(96, 109)]
    assert found["MUBUF_LDS"] == [0, 16, 17, 18, 19, 20, 22, 23]
    assert found["MTBUF"] == list(range(16))


def test_lds_forms_that_do_not_exist_are_refused():
    for opcode in (1, 21, 28, 36, 64):
        bits = ENCODINGS["MUBUF"].pack({"op": opcode, "lds": 1})
        with pytest.raises(DecodeError, match="unknown MUBUF_LDS opcode"):
            decode(bits.to_bytes(8, "little"), 0)


def test_every_definition_is_tested():
    names = {f"buffer_load_{n}" for n in LOADS} | {f"buffer_store_{n}" for n in STORES}
    names |= {f"buffer_atomic_{n}" for n in ATOMICS} | {f"buffer_load_{n}_lds" for n in TO_LDS}
    names |= {"buffer_wbl2", "buffer_inv"}
    assert {i.name for i in definitions() if "format" not in i.name or i.name.endswith("_lds")} == names


def test_rules_have_a_home():
    for one in buffer_addressing.RULES:
        assert one.name.startswith("buffer.")
