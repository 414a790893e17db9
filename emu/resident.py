"""What a workgroup that has started owns besides registers: its LDS and scratch, with their places in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emu.launch import Launch
from emu.memory import REGION_BYTES, Memory
from gfx950.lanes import LANES

GUARD = 16  # bytes behind a lane's scratch, so that no access of one lane reaches the next lane's


def aligned(nbytes: int) -> Any:
    """A zeroed uint8 array whose first byte lies on a cache line."""
    room = np.zeros(nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


class Windows:
    """LDS (given) and scratch of a workgroup of `count` waves, mapped so that flat addresses can reach them.

    wave_scratch: the address of each wave's scratch, which FLAT_SCRATCH holds. [rules memory.apertures, memory.scratch]
    """

    def __init__(self, memory: Memory, launch: Launch, lds: Any, count: int) -> None:
        self.memory, self.lds = memory, lds
        name = launch.kernel.name
        self.lds_address = memory.map(lds[: launch.lds_granted], name=f"LDS of a workgroup of {name}")
        self.mapped = [self.lds_address]
        self.stride = -(-(launch.private_segment + GUARD) // GUARD) * GUARD if launch.private_segment else 0
        self.scratch = np.zeros(count * LANES * self.stride, np.uint8)
        self.wave_scratch: list[int] = [0] * count
        if self.stride:
            first = memory.map(self.scratch, name=f"scratch of {name}")
            self.mapped.append(first)
            self.wave_scratch = [first + n * LANES * self.stride for n in range(count)]

    @property
    def regions(self) -> tuple[int, int]:
        """The numbers of the regions of memory in which LDS and scratch lie; no region has number 0."""
        return self.lds_address // REGION_BYTES, self.wave_scratch[0] // REGION_BYTES

    def lane_scratch(self, wave: int) -> Any:
        """The address of each lane's scratch, uint64 (64,)."""
        lanes = np.arange(LANES, dtype=np.uint64) * np.uint64(self.stride)
        return lanes + np.uint64(self.wave_scratch[wave])

    def clear(self) -> None:
        """Zeros for the next workgroup."""
        self.lds[:] = 0
        self.scratch[:] = 0

    def release(self) -> None:
        """Takes both out of memory."""
        for address in self.mapped:
            self.memory.unmap(address)


@dataclass
class Snapshot:
    """A state kept to see whether a loop comes back to it: taken anew at call 1, 2, 4, 8, ... so that any period is
    found."""

    calls: int = 0
    changes: int = -1
    arrays: list[Any] = field(default_factory=list)

    def same(self, state: Sequence[Any], changes: int) -> bool:
        """Whether the state is the kept one and memory unchanged since."""
        found = changes == self.changes and all(np.array_equal(a, b) for a, b in zip(self.arrays, state, strict=True))
        self.calls += 1
        if not found and self.calls & (self.calls - 1) == 0:
            self.changes, self.arrays = changes, [a.copy() for a in state]
        return found
