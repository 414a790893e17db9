"""Faults of a chip that is wrong in one bit: flipped after an instruction, while the emulator runs as the stand-in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from emu.code_object import load
from emu.kernel_metadata import Kernel
from emu.numpy_machine import RunningWave
from emu.observers import Observer
from gfx950.isa.encoding import Decoded
from gfx950.isa.text import listing

FIRST_ACCUMULATOR = 256  # its row among the vector registers
NAMED_SCALARS = {"vcc_lo": 106, "vcc_hi": 107, "m0": 124, "exec_lo": 126, "exec_hi": 127}


@dataclass(frozen=True)
class Fault:
    """One bit that is wrong.

    kernel: its name. offset: bytes from the kernel's first instruction to the one after which the bit flips. register:
    "v3" or "a3" (with lane), "s3", "vcc_lo", "exec_lo", "m0", "scc"; or "store", for what the lane has just stored in
    global memory or LDS. bit: 0 to 31, of a store from its first byte on. execution: which one of a wave's, from
    1; None for every one. wave, workgroup: of one wave only; None for all.
    """

    kernel: str
    offset: int
    register: str
    bit: int = 0
    lane: int = 0
    execution: int | None = None
    wave: int | None = None
    workgroup: tuple[int, int, int] | None = None

    def hits(self, one: RunningWave, offset: int, execution: int) -> bool:
        """Whether the instruction that a wave has just run is the one, in the execution it is."""
        return (
            self.offset == offset
            and self.kernel == one.kernel.name
            and self.execution in (None, execution)
            and self.wave in (None, one.index)
            and self.workgroup in (None, tuple(one.workgroup))
        )


def offset_of(code_object: bytes, text: str, kernel: str | None = None) -> int:
    """Where a fault goes that strikes after the last instruction whose text begins so: its offset in the kernel."""
    code = load(code_object)
    found = code.kernel(kernel)
    run = code.code_of(found)
    lines = [(pc, line) for pc, _, line in listing(run.data, run.address) if pc >= found.entry]
    return [pc - found.entry for pc, line in lines if line.startswith(text)][-1]


@dataclass
class Faults(Observer):
    """Puts faults into a run. done: how often each struck, by fault."""

    faults: tuple[Fault, ...]
    done: Counter[Fault] = field(default_factory=Counter)
    _executions: Counter[tuple[int, tuple[int, ...], int]] = field(default_factory=Counter)

    def begin(self, kernel: Kernel) -> None:
        """A new launch: executions are counted from its start."""
        self._executions.clear()

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Flips what is to be flipped after this instruction."""
        offset = decoded.pc - one.kernel.entry
        if not any(fault.offset == offset for fault in self.faults):
            return
        key = (decoded.pc, tuple(one.workgroup), one.index)
        self._executions[key] += 1
        for fault in self.faults:
            if fault.hits(one, offset, self._executions[key]) and flip(one, fault):
                self.done[fault] += 1


def flip(one: RunningWave, fault: Fault) -> bool:
    """Flips the fault's bit; False for a store that the lane did not make."""
    wave, name = one.wave, fault.register
    if name == "store":
        return _flip_stored(one, fault)
    if name == "scc":
        wave.scc_bit = not wave.scc_bit
        return True
    bit = np.uint32(1 << fault.bit)
    if name in NAMED_SCALARS or name[0] == "s":
        wave.sgprs[NAMED_SCALARS[name] if name in NAMED_SCALARS else int(name[1:])] ^= bit
    else:
        wave.vgprs[int(name[1:]) + (FIRST_ACCUMULATOR if name[0] == "a" else 0), fault.lane] ^= bit
    return True


def _flip_stored(one: RunningWave, fault: Fault) -> bool:
    """Flips a bit of what the lane has just stored, in global memory or in LDS."""
    byte, bit = fault.bit // 8, np.uint8(1 << fault.bit % 8)
    for address, lane, nbytes in one.wave.last_stores:
        if lane == fault.lane and byte < nbytes:
            one.wave.address_space.view(address, nbytes)[byte] ^= bit
            return True
    for addresses, active in one.wave.last_lds:
        if active[fault.lane]:
            one.wave.lds[int(np.atleast_2d(addresses)[0, fault.lane]) + byte] ^= bit
            return True
    return False
