"""Observers of a run on the numpy engine: they see every instruction and cost nothing when not attached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gfx950.isa.encoding import Decoded
from gfx950.lds import LDS_BYTES, conflicts

if TYPE_CHECKING:
    from emu.numpy_machine import RunningWave


class Observer:
    """The protocol: override what is needed."""

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Called before an instruction, with the registers it will read."""

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Called after it; `one.wave.last_lds` and `last_stores` hold its memory accesses."""


@dataclass
class ConflictCount:
    """Bank conflicts of one instruction address. kernel, offset: whose it is, and its bytes from the kernel's first
    instruction. runs: how often a wave issued it. cycles: over all of them, extra_cycles among them. worst: the
    explanation of the first worst one."""

    kernel: str
    offset: int
    mnemonic: str
    runs: int = 0
    cycles: int = 0
    extra_cycles: int = 0
    worst_cycles: int = 0
    worst: str = ""


@dataclass
class BankConflicts(Observer):
    """Counts LDS bank conflicts by instruction, with the measured phases of `gfx950.lds`."""

    counts: dict[int, ConflictCount] = field(default_factory=dict)

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Adds this instruction's conflicts."""
        accesses = one.wave.last_lds
        if not accesses:
            return
        kernel = one.kernel
        new = ConflictCount(kernel.name, decoded.pc - kernel.entry, decoded.instruction.name)
        count = self.counts.setdefault(decoded.pc, new)
        count.runs += 1
        addresses = np.stack([a for a, _ in accesses]) if len(accesses) > 1 else accesses[0][0]
        active = accesses[0][1] & (addresses < LDS_BYTES).reshape(-1, 64).all(axis=0)
        report = conflicts(decoded.instruction.name, addresses, active)
        count.cycles += report.cycles
        count.extra_cycles += report.extra_cycles
        if report.extra_cycles > count.worst_cycles:
            count.worst_cycles, count.worst = report.extra_cycles, report.explain()

    @property
    def extra_cycles(self) -> int:
        """All extra cycles."""
        return sum(c.extra_cycles for c in self.counts.values())

    def table(self) -> Sequence[tuple[int, ConflictCount]]:
        """Instruction addresses with conflicts, worst first."""
        slow = [(pc, count) for pc, count in self.counts.items() if count.extra_cycles]
        return sorted(slow, key=lambda item: -item[1].extra_cycles)
