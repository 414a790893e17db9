"""Who wrote the memory that an instruction loaded, in the emulator: any wave global memory, the workgroup its LDS."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from emu.bisect import Finding
from emu.bisect_search import observed
from emu.dispatch import RunOptions
from emu.geometry import Dimensions
from emu.instrument import Point
from emu.instrument_run import Job, run
from emu.observers import Observer
from gfx950.isa.encoding import Decoded

if TYPE_CHECKING:
    from emu.numpy_machine import RunningWave

WORD = 4
_SIZES = (
    (re.compile(r"dwordx(\d)"), 32),
    (re.compile(r"_b(\d+)"), 1),
    (re.compile(r"_[iu](\d+)"), 1),
)
_NARROW = {"byte": 1, "short": 2}
_READS_LDS = re.compile(r"ds_(read|load|bpermute|permute|swizzle|consume|nop)")
_RESULT = re.compile(r"\S+ [vsa]\[?(\d+)")


def bytes_of_access(mnemonic: str) -> int:
    """Bytes that one lane of a load or store moves at one address."""
    for pattern, bits in _SIZES:
        found = pattern.search(mnemonic)
        if found:
            return max(1, int(found[1]) * bits // 8)
    return next((size for name, size in _NARROW.items() if name in mnemonic), WORD)


@dataclass
class MemoryWriters(Observer):
    """Takes down the last writers of some memory before a load runs. load: the load; wanted: the bytes, of LDS or of
    the emulated address space. writers: in the order of their last store, each once, as points before the store."""

    load: Point
    wanted: Sequence[range]
    in_lds: bool
    writers: dict[Point, None] = field(default_factory=dict)
    _counts: Counter[tuple[Dimensions, int, int]] = field(default_factory=Counter)
    _over: bool = False

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Ends it at the load."""
        p = self.load
        offset = decoded.pc - one.kernel.entry
        if (one.workgroup, one.index, offset) == (p.workgroup, p.wave, p.offset):
            self._over |= self._counts[one.workgroup, one.index, offset] + 1 == p.occurrence

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Takes down a store."""
        key = one.workgroup, one.index, decoded.pc - one.kernel.entry
        self._counts[key] += 1
        if not self._over and any(self._hits(one, decoded)):
            point = Point(key[2], self._counts[key], one.workgroup, one.index)
            self.writers.pop(point, None)
            self.writers[point] = None

    def _hits(self, one: RunningWave, decoded: Decoded) -> Iterator[bool]:
        """Whether each of its stores touches what is wanted."""
        if not self.in_lds:
            for address, _, nbytes in one.wave.last_stores:
                yield any(address < w.stop and w.start < address + nbytes for w in self.wanted)
            return
        name = decoded.instruction.name
        if one.workgroup != self.load.workgroup or _READS_LDS.match(name):
            return
        size = bytes_of_access(name)
        for addresses, active in one.wave.last_lds:
            at = addresses[active]
            yield any(bool(np.any((at < w.stop) & (at + size > w.start))) for w in self.wanted)


def writers_before(job: Job, finding: Finding, how: RunOptions) -> list[Point]:
    """The stores that the wrong words of a `load` were last written by, latest first, as points before them; empty
    where no wave of the launch wrote them. how: the emulated run that the finding compares with, orders and model."""
    wanted = list(_wrong_bytes(finding))
    if finding.point is None or not wanted:
        return []
    writers = MemoryWriters(finding.point, wanted, finding.in_lds)
    run(job, None, observed(how, writers))
    return list(writers.writers)[::-1]


def _wrong_bytes(finding: Finding) -> Iterator[range]:
    """Where the words that differ after a load came from."""
    size = bytes_of_access(finding.instruction.partition(" ")[0])
    result = _RESULT.match(finding.instruction)
    for difference in finding.differences:
        if difference.register[0] not in "vsa" or not difference.register[1:].isdecimal():
            continue
        word = int(difference.register[1:]) - int(result[1]) if result else 0
        for lane in difference.lanes or (0,):
            if lane in finding.addresses and 0 <= WORD * word < max(size, WORD):
                start = finding.addresses[lane] + WORD * word
                yield range(start, start + min(size, WORD))
