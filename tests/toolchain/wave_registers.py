"""The registers of waves by the same names on either engine, to put in before a workgroup runs and to read after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emu import host_layout as layout
from emu.host_machine import HostWorkgroup
from emu.numpy_machine import NumpyWorkgroup
from emu.registers import HARDWARE_REGISTERS
from gfx950.isa.mode_registers import MODE

Workgroup = HostWorkgroup | NumpyWorkgroup


@dataclass(frozen=True)
class WaveRegisters:
    """One wave. vectors: uint32 (512, 64), v before a; scalars: (128,) by code; hardware: by number. These are views:
    what is written there, the wave has. scc, pc, count (instructions that it ran): as they were."""

    vectors: np.ndarray
    scalars: np.ndarray
    hardware: np.ndarray
    scc: bool
    pc: int
    count: int


def registers_of(group: Workgroup) -> list[WaveRegisters]:
    """Those of each wave of a workgroup that has begun."""
    if isinstance(group, NumpyWorkgroup):
        waves = [running.wave for running in group.running]
        return [WaveRegisters(w.vgprs, w.sgprs, w.hardware, bool(w.scc_bit), w.pc, w.count) for w in waves]
    return [_of_row(row) for row in group.waves[: group.count]]


def _of_row(row: np.ndarray) -> WaveRegisters:
    words, scalars, hardware = row.view(np.uint32), layout.SGPRS // 4, layout.HARDWARE // 4
    pc, count = (int(row[at : at + 8].view(np.uint64)[0]) for at in (layout.PC, layout.COUNT))
    vectors = words[:scalars].reshape(512, 64)
    known = words[hardware : hardware + HARDWARE_REGISTERS]
    return WaveRegisters(vectors, words[scalars : scalars + 128], known, bool(row[layout.SCC]), pc, count)


def put_scc_and_mode(group: Workgroup, scc: bool, mode: int) -> None:
    """Into every wave; mode: the word of MODE."""
    if isinstance(group, NumpyWorkgroup):
        for wave in (running.wave for running in group.running):
            wave.scc_bit = scc
            wave.set_mode(np.array([mode], np.uint32))
        return
    group.waves[: group.count, layout.SCC] = scc
    for one in registers_of(group):
        one.hardware[MODE] = mode
