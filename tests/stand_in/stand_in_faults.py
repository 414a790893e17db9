"""Faults of a chip that is wrong in one bit: flipped after an instruction, while the emulator runs as the stand-in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from emu.code_object import CodeObject, load
from emu.kernel_metadata import Kernel
from emu.numpy_machine import RunningWave
from emu.observers import Observer
from gfx950.isa.encoding import Decoded
from gfx950.isa.text import listing

LONGEST_INSTRUCTION = 20  # bytes: a scaled matrix instruction with its literal
FIRST_ACCUMULATOR = 256  # its row among the vector registers
WaveName: TypeAlias = tuple[int, ...]  # its workgroup and its number in it
NAMED_SCALARS = {"vcc_lo": 106, "vcc_hi": 107, "m0": 124, "exec_lo": 126, "exec_hi": 127}


@dataclass(frozen=True)
class Fault:
    """One bit that is wrong.

    kernel: its name. offset: bytes from the kernel's first instruction (its symbol) to the one after which the bit
    flips; where a branch to code elsewhere has taken that one's place, when the wave comes back behind it. register:
    "v3" or "a3" (with lane), "s3", "vcc_lo", "exec_lo", "m0", "scc"; or "store", for what the lane has just stored in
    global memory or LDS. bit: 0 to 31, of a store from its first byte on. execution: which one of a wave's, from
    1; None for every one. wave, workgroup: of one wave only; None for all. launch: which one of the kernel, from 1;
    None for every one.
    """

    kernel: str
    offset: int
    register: str
    bit: int = 0
    lane: int = 0
    execution: int | None = None
    wave: int | None = None
    workgroup: tuple[int, int, int] | None = None
    launch: int | None = None

    def hits(self, one: RunningWave, execution: int, launch: int) -> bool:
        """Whether this is the execution of the wave, and the launch, in which it strikes."""
        return (
            self.kernel == one.kernel.name
            and self.launch in (None, launch)
            and self.execution in (None, execution)
            and self.wave in (None, one.index)
            and self.workgroup in (None, tuple(one.workgroup))
        )


def instructions(code_object: bytes, kernel: str | None = None) -> list[tuple[int, str]]:
    """Offset and text of each instruction from the kernel's first one on."""
    code = load(code_object)
    found = code.kernel(kernel)
    run = code.code_of(found)
    return [(pc - found.entry, text) for pc, _, text in listing(run.data, run.address) if pc >= found.entry]


def offset_of(code_object: bytes, text: str, kernel: str | None = None) -> int:
    """Where a fault goes that strikes after the last instruction whose text begins so: its offset in the kernel."""
    return [offset for offset, line in instructions(code_object, kernel) if line.startswith(text)][-1]


def _name(one: RunningWave) -> WaveName:
    return (*one.workgroup, one.index)


@dataclass
class _Visit:
    """A wave that left for code elsewhere instead of running an instruction. stores, lds: the last accesses it made
    there, those of the instruction itself if it makes any."""

    place: int
    faults: list[Fault]
    stores: list[tuple[int, int, int]] = field(default_factory=list)
    lds: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


@dataclass
class Faults(Observer):
    """Puts faults into a run. done: how often each struck, by fault."""

    faults: tuple[Fault, ...]
    done: Counter[Fault] = field(default_factory=Counter)
    _launches: Counter[str] = field(default_factory=Counter)
    _executions: Counter[tuple[int, WaveName]] = field(default_factory=Counter)
    _visits: dict[WaveName, _Visit] = field(default_factory=dict)
    _start: int = 0

    def begin(self, code: CodeObject, kernel: Kernel) -> None:
        """A new launch: executions are counted from its start."""
        self._executions.clear()
        self._visits.clear()
        self._launches[kernel.name] += 1
        self._start = code.symbols[kernel.name].address if kernel.name in code.symbols else kernel.entry

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Strikes a wave that comes back from elsewhere."""
        visit = self._visits.get(_name(one))
        if visit is not None and 0 < decoded.pc - visit.place <= LONGEST_INSTRUCTION:
            del self._visits[_name(one)]
            one.wave.last_stores[:], one.wave.last_lds[:] = visit.stores, visit.lds
            self._strike(one, visit.faults)

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Strikes after this instruction."""
        visit = self._visits.get(_name(one))
        if visit is not None and (one.wave.last_stores or one.wave.last_lds):
            visit.stores, visit.lds = list(one.wave.last_stores), list(one.wave.last_lds)
        here = [fault for fault in self.faults if fault.offset == decoded.pc - self._start]
        if not here:
            return
        key = (decoded.pc, _name(one))
        self._executions[key] += 1
        launch = self._launches[one.kernel.name]
        hitting = [fault for fault in here if fault.hits(one, self._executions[key], launch)]
        if decoded.instruction.name in ("s_branch", "s_setpc_b64"):
            self._visits[_name(one)] = _Visit(decoded.pc, hitting)
        else:
            self._strike(one, hitting)

    def _strike(self, one: RunningWave, faults: list[Fault]) -> None:
        for fault in faults:
            self.done[fault] += flip(one, fault)


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
