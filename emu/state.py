"""What an instruction sees of its wave: the registers and memories of any engine, and where it sends control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gfx950.lanes import Engine, Raw

LATE_ENTRIES = 64  # loads to LDS on their way at once [rule lds.late_landing]


class State(Protocol):
    """The registers and memories an instruction sees. Raw values belong to `engine`."""

    engine: Engine

    def sgpr(self, index: int) -> Raw:
        """The 32-bit scalar at scalar code `index` (0..127)."""
        ...

    def set_sgpr(self, index: int, value: Raw) -> None:
        """Writes a 32-bit scalar register."""
        ...

    def sgpr_at(self, index: Raw) -> Raw:
        """The 32-bit scalar at a computed scalar code, 0..127."""
        ...

    def set_sgpr_at(self, index: Raw, value: Raw) -> None:
        """Writes the scalar register at a computed scalar code, 0..127."""
        ...

    def vgpr(self, index: int, role: int | None = None) -> Raw:
        """The 64 lanes of a vector register: 0..255 v, 256..511 a. role: the operand's bit above M0[12] that says
        whether VGPR indexing moves it (0..2 sources, 3 destination; None: never)."""
        ...

    def set_vgpr(self, index: int, value: Raw, mask: Raw | None, role: int | None = None) -> None:
        """Writes the lanes in `mask` (None: all)."""
        ...

    def hardware_word(self, number: int) -> Raw:
        """The 32-bit scalar kept for a hardware register."""
        ...

    def set_hardware_word(self, number: int, value: Raw) -> None:
        """Writes one that is not MODE."""
        ...

    def set_mode(self, value: Raw) -> None:
        """Writes MODE; the next instruction runs under it."""
        ...

    def clock(self) -> Raw:
        """A 64-bit scalar: the instructions this wave has run."""
        ...

    def issue(self) -> None:
        """Counts one instruction of those that vmcnt counts."""
        ...

    def land(self, outstanding: int) -> None:
        """Loads to LDS land, but the youngest `outstanding` of what `issue` counted."""
        ...

    def window(self, name: str) -> Raw:
        """64 bits: `lds`, the address LDS has in memory (a scalar); `scratch`, that of each lane's scratch (64 lanes);
        `scratch_bytes`, how much of it a lane has (a scalar)."""
        ...

    def scc(self) -> Raw:
        """SCC, a scalar mask."""
        ...

    def set_scc(self, value: Raw) -> None:
        """Writes SCC."""
        ...

    def exec_mask(self) -> Raw:
        """EXEC as a mask of lanes."""
        ...

    def memory(self, space: str) -> Any:
        """The LaneMemory `lds` or `global`, or the ScalarMemory `scalar_memory`."""
        ...


@dataclass(frozen=True)
class Transfer:
    """Where control goes: kind (branch, jump, end, barrier, trap, halt), the scalar condition (None: always), the
    target (an address, or a 64-bit scalar for jump)."""

    kind: str
    condition: Raw | None = None
    target: Any = None
