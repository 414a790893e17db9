"""The memory functions of translated code against a model that goes lane by lane, byte by byte."""

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

from emu import host_memory
from emu.host_layout import (
    CONTEXT_WORDS,
    FAULT_ADDRESS,
    FAULT_BYTES,
    FAULT_KIND,
    FAULT_LANE,
    FAULT_LANES,
    LDS,
    LDS_BYTES,
    TABLE,
    UNALIGNED,
    WATCH_HIGH,
    WATCH_LANE,
    WATCH_LOW,
    WATCH_PC,
    WATCH_SEEN,
    WATCH_WAVE,
    WAVE,
)
from emu.memory import READABLE, WRITABLE
from gfx950.lanes import ALL_LANES

REGION = 1 << 32
PC = 0x7F4
SIZES = (1, 2, 4, 8, 12, 16, 32)
LENGTHS = (3000, 2000, 1500)
FLAGS = (READABLE | WRITABLE, READABLE, READABLE | WRITABLE)  # of the regions 1, 2 and 3
ARGUMENTS = {
    "lds_load": "cavdn",
    "lds_store": "cavdn",
    "global_load": "cavdn",
    "global_store": "cavdnp",
    "scalar_load": "csdn",
    "lds_places": "cavn",
    "global_places": "cavnp",
}


@dataclass
class Case:
    """One call: memory, LDS and registers before it, and its arguments."""

    nbytes: int
    active: int
    addresses: np.ndarray
    buffers: list
    lds: np.ndarray
    data: np.ndarray
    watch: tuple = (0, 0)
    context: np.ndarray = field(default_factory=lambda: np.zeros(CONTEXT_WORDS, np.uint64))

    def lanes(self):
        return [(lane, int(a)) for lane, a in enumerate(self.addresses) if self.active >> lane & 1]

    def words(self):
        """Where each word of a lane begins, and its bytes."""
        return [(4 * i, min(self.nbytes, 4)) for i in range(max(1, self.nbytes // 4))]

    def copy(self):
        buffers = [b.copy() for b in self.buffers]
        return Case(
            self.nbytes, self.active, self.addresses.copy(), buffers, self.lds.copy(), self.data.copy(), self.watch
        )


def call(name, case):
    """What the compiled function returns; the case is changed in place."""
    table = np.zeros((1 << 16, 4), np.uint64)
    for number, (buffer, flags) in enumerate(zip(case.buffers, FLAGS, strict=True), start=1):
        table[number, :3] = buffer.ctypes.data, len(buffer), flags
    context = case.context
    context[[LDS, LDS_BYTES, TABLE]] = case.lds.ctypes.data, len(case.lds), table.ctypes.data
    context[[WAVE, WATCH_LOW, WATCH_HIGH]] = 5, *case.watch
    number = case.nbytes // 4 if name == "scalar_load" else case.nbytes
    values = {
        "c": context.ctypes.data,
        "a": case.addresses.ctypes.data,
        "v": case.active - (1 << 64) * (case.active >> 63),
        "d": case.data.ctypes.data,
        "n": number,
        "p": PC,
        "s": int(case.addresses[0]),
    }
    arguments = [values[c] for c in ARGUMENTS[name]]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
    return function(host_memory.functions()[name])(*arguments)


def buffer_of(case, address, nbytes, need):
    """The buffer with all of these bytes and where they begin, or None."""
    region, offset = divmod(address, REGION)
    if not 1 <= region <= 3 or not FLAGS[region - 1] & need or offset + nbytes > LENGTHS[region - 1]:
        return None
    return case.buffers[region - 1], offset


def in_lds(case, address, nbytes):
    return (case.lds, address) if address + nbytes <= len(case.lds) else None


def fault(case, lane, address, kind, lanes):
    case.context[[FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, FAULT_KIND, FAULT_LANES]] = (
        lane,
        address,
        case.nbytes,
        kind,
        lanes,
    )
    return 1


def any_fault(case, need):
    bad = [(lane, a) for lane, a in case.lanes() if buffer_of(case, a, case.nbytes, need) is None]
    return fault(case, *bad[0], need, len(bad)) if bad else 0


def note_watched(case):
    low, high = case.watch
    for lane, address in case.lanes():
        if address < high and address + case.nbytes > low:
            case.context[WATCH_SEEN] += np.uint64(1)
            case.context[[WATCH_PC, WATCH_LANE, WATCH_WAVE]] = PC, lane, 5


def move(case, place_of, to_registers):
    """Word by word; place_of: a buffer and an index, or None where loads give 0 and stores do nothing."""
    if to_registers:
        case.data[: len(case.words())] = 0
    for lane, address in case.lanes():
        for i, (offset, size) in enumerate(case.words()):
            found = place_of(address, offset, size)
            if found is None:
                continue
            buffer, at = found
            if to_registers:
                case.data[i, lane] = int.from_bytes(buffer[at : at + size].tobytes(), "little")
            else:
                buffer[at : at + size] = case.data[i, lane : lane + 1].view(np.uint8)[:size]


def model(name, case):
    """What the function must return; the case is changed in place."""
    space, what = name.split("_")
    need = READABLE if what == "load" else WRITABLE
    if space == "scalar":
        case.active = 1
        if case.nbytes < 4:
            return 0
        if any_fault(case, need):
            case.context[FAULT_LANES] = 0
            return 1
        buffer, at = buffer_of(case, int(case.addresses[0]), case.nbytes, need)
        case.data.reshape(-1)[: case.nbytes // 4] = buffer[at : at + case.nbytes].copy().view(np.uint32)
        return 0
    if what == "places":
        return model_places(space, case)
    if space == "lds":
        move(case, lambda a, offset, size: in_lds(case, a + offset, size), what == "load")
        return 0
    if any_fault(case, need):
        return 1
    move(case, lambda a, offset, size: buffer_of(case, a + offset, size, need), what == "load")
    if what == "store":
        note_watched(case)
    return 0


def model_places(space, case):
    places = {}
    if space == "lds":
        base = case.lds.ctypes.data
        places = {lane: base + a for lane, a in case.lanes() if a + case.nbytes <= len(case.lds)}
    else:
        for lane, address in case.lanes():
            if address % case.nbytes:
                return fault(case, lane, address, UNALIGNED, 1)
        if any_fault(case, WRITABLE):
            return 1
        note_watched(case)
        for lane, address in case.lanes():
            buffer, at = buffer_of(case, address, case.nbytes, WRITABLE)
            places[lane] = buffer.ctypes.data + at
    case.addresses[:] = [places.get(lane, 0) for lane in range(64)]
    return 0


def addresses(rng, space, nbytes):
    """Of many kinds: rows, crowds, several buffers, one lane off, all over."""
    first, length = (0, 1000) if space == "lds" else (REGION, LENGTHS[0])
    kind = rng.integers(8)
    if kind == 0:
        return first + rng.integers(0, 64) + np.arange(64) * nbytes
    if kind == 1:
        return first + rng.integers(0, 40, 64)
    crowd = first + rng.integers(0, length - 32, 64)
    if kind == 2:
        crowd[rng.integers(64)] = rng.choice([first + length - nbytes + rng.integers(0, 2), (1 << 48) + 5, 1 << 62, 0])
    if kind == 3:
        crowd = first + rng.integers(0, length + 10, 64)
    if kind == 4 and space != "lds":
        crowd = rng.choice([REGION, 3 * REGION], 64) + rng.integers(0, 1400, 64)
    if kind == 5 and space != "lds":
        crowd = rng.choice([REGION, 2 * REGION, 3 * REGION, 4 * REGION], 64) + rng.integers(0, 1600, 64)
    return crowd


def random_case(rng, name):
    space, what = name.split("_")
    nbytes = int(rng.choice((4, 8) if what == "places" else SIZES))
    random_lanes = int(rng.integers(0, 1 << 64, dtype=np.uint64))
    active = (ALL_LANES, random_lanes, random_lanes & 0xFF00000000000F00, 0, 1 << 63, ALL_LANES)[rng.integers(6)]
    lanes = addresses(rng, space, nbytes).astype(np.uint64)
    if what == "places" and rng.random() < 0.8:
        lanes &= ~np.uint64(7)
    buffers = [rng.integers(0, 256, length, dtype=np.uint8) for length in LENGTHS]
    lds = rng.integers(0, 256, int(rng.choice([0, 64, 1000, 1200])), dtype=np.uint8)
    low = REGION + int(rng.integers(0, 1500))
    watch = (low, low + int(rng.integers(1, 900))) if rng.random() < 0.5 else (0, 0)
    return Case(nbytes, active, lanes, buffers, lds, rng.integers(0, 1 << 32, (8, 64), dtype=np.uint32), watch)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_as_the_model(name):
    rng = np.random.default_rng(11)
    returned = set()
    for number in range(600):
        case = random_case(rng, name)
        expected = case.copy()
        result, wanted = call(name, case), model(name, expected)
        returned.add(result)
        where = f"{name}, case {number}: {case.nbytes} bytes, lanes {case.active:#x}"
        assert result == wanted, where
        assert np.array_equal(case.context[FAULT_KIND], expected.context[FAULT_KIND]), where
        if result or name == "scalar_load":
            fields = [FAULT_LANE, FAULT_ADDRESS, FAULT_BYTES, FAULT_LANES]
            assert np.array_equal(case.context[fields], expected.context[fields]), where
        seen = [WATCH_SEEN, WATCH_PC, WATCH_LANE, WATCH_WAVE]
        assert np.array_equal(case.context[seen], expected.context[seen]), where
        for ours, theirs in zip([*case.buffers, case.lds], [*expected.buffers, expected.lds], strict=True):
            assert np.array_equal(ours, theirs), where
        assert np.array_equal(case.data, expected.data), where
        if name.endswith("places") and not result:
            hosts = [lane for lane in range(64) if expected.addresses[lane]]
            bases = dict(zip(hosts, host_offsets(expected), strict=True))
            ours = dict(zip([lane for lane in range(64) if case.addresses[lane]], host_offsets(case), strict=True))
            assert ours == bases, where
    assert returned == ({0} if name.startswith("lds") else {0, 1})


def host_offsets(case):
    """(buffer, index) of every place."""
    found = []
    for place in map(int, case.addresses[case.addresses != 0]):
        for number, buffer in enumerate([*case.buffers, case.lds]):
            if buffer.ctypes.data <= place < buffer.ctypes.data + len(buffer):
                found.append((number, place - buffer.ctypes.data))
    return found


@pytest.mark.parametrize("nbytes", SIZES)
@pytest.mark.parametrize("active", [ALL_LANES, ALL_LANES >> 7])
def test_the_highest_lane_stays(nbytes, active):
    case = random_case(np.random.default_rng(1), "lds_store")
    case.nbytes, case.active, case.lds = nbytes, active, np.zeros(100, np.uint8)
    case.addresses[:] = 3
    assert call("lds_store", case) == 0
    wanted = case.data[: max(1, nbytes // 4), active.bit_length() - 1].copy().view(np.uint8)[:nbytes]
    assert case.lds[3 : 3 + nbytes].tobytes() == wanted.tobytes()
    assert not case.lds[:3].any()
    assert not case.lds[3 + nbytes :].any()


def test_compiled_without_numba(tmp_path):
    """A cold start pays for the code generator only."""
    code = "import sys; from emu.host_memory import functions as f; print(all(f().values()), 'numba' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GFX950_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["True", "False"]
