"""The machine on the numpy engine: the same schedule, one instruction at a time, with observers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.code_object import CodeObject, Kernel
from emu.dispatch import RunOptions, RunReport, Watch
from emu.errors import EmulatorError, MemoryFault, UnknownInstruction, left_the_code, out_of_steps, stopped_itself
from emu.execute import PC_MASK, Transfer, UnsupportedForm
from emu.launch_state import Launch, WaveState, waves
from emu.memory import Memory
from emu.wave import Wave
from gfx950.isa.encoding import Decoded, DecodeError, decode
from gfx950.isa.mode_registers import MODE
from gfx950.lanes import Mode


@dataclass
class RunningWave:
    """A wave of a workgroup with its place and what it is doing: run, barrier or end."""

    workgroup: tuple[int, int, int]
    index: int
    wave: Wave
    status: str = "run"


class NumpyMachine:
    """One kernel, decoded as it runs."""

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel) -> None:
        self.memory, self.kernel = memory, kernel
        run = code.code_of(kernel)
        self.base, self.bytes = run.address, run.data
        self.decoded: dict[int, Decoded] = {}

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs all workgroups in ascending order."""
        report = RunReport()
        for workgroup in launch.geometry.workgroup_ids():
            self._run_workgroup(launch, workgroup, options, report)
            report.workgroups += 1
        return report

    def _run_workgroup(self, launch: Launch, workgroup: Any, options: RunOptions, report: RunReport) -> None:
        lds = np.zeros(launch.lds_bytes, dtype=np.uint8)
        running = [self._start(s, lds, workgroup) for s in waves(launch, workgroup)]
        last = report.instructions + options.step_limit
        while any(w.status != "end" for w in running):
            for one in running:
                self._turn(one, options, report, last)
            if all(w.status != "run" for w in running):
                for one in running:
                    one.status = "run" if one.status == "barrier" else one.status

    def _start(self, state: WaveState, lds: Any, workgroup: Any) -> RunningWave:
        wave = Wave(lds, self.memory, Mode.from_bits(int(state.hardware[MODE])))
        wave.hardware[:] = state.hardware
        wave.vgprs[0] = state.vgpr0
        wave.sgprs[:] = state.sgprs
        wave.pc = state.pc
        return RunningWave(workgroup, state.wave, wave)

    def _turn(self, one: RunningWave, options: RunOptions, report: RunReport, last: int) -> None:
        """At most a quantum of one wave. last: the launch's instructions when the workgroup must be done."""
        for _ in range(options.quantum):
            if one.status != "run":
                return
            self.step(one, options, report)
            if report.instructions > last:
                raise out_of_steps(options.step_limit, self._where(one))

    def step(self, one: RunningWave, options: RunOptions, report: RunReport) -> None:
        """One instruction of one wave."""
        wave = one.wave
        decoded = self._fetch(one)
        for observer in options.observers:
            observer.before(one, decoded)
        try:
            transfer = wave.step(decoded)
        except MemoryFault as fault:
            raise fault.located(instruction=decoded.instruction.name, **self._where(one)) from None
        except (UnsupportedForm, EmulatorError, ValueError) as error:
            text = f"pc 0x{decoded.pc:x}: {decoded.instruction.name}: {error}"
            raise UnknownInstruction(text, **self._where(one)) from error
        if options.watch is not None:
            self._note_watch(one, decoded, options.watch, report)
        for observer in options.observers:
            observer.after(one, decoded)
        self._move(one, decoded, transfer)
        report.instructions += 1
        report.mnemonics[decoded.instruction.name] = report.mnemonics.get(decoded.instruction.name, 0) + 1

    def _fetch(self, one: RunningWave) -> Decoded:
        pc = one.wave.pc
        if pc not in self.decoded:
            if not self.base <= pc < self.base + len(self.bytes) or pc % 4:
                raise left_the_code(self.base, self.bytes, self._where(one))
            try:
                self.decoded[pc] = decode(self.bytes, pc, self.base)
            except DecodeError as error:
                raise UnknownInstruction(str(error), **self._where(one)) from error
        return self.decoded[pc]

    def _where(self, one: RunningWave) -> dict[str, Any]:
        return {"kernel": self.kernel.name, "workgroup": one.workgroup, "wave": one.index, "pc": one.wave.pc}

    def _note_watch(self, one: RunningWave, decoded: Decoded, watch: tuple[int, int], report: RunReport) -> None:
        for address, lane, nbytes in one.wave.last_stores:
            if address < watch[1] and address + nbytes > watch[0]:
                pc, name = one.wave.pc, decoded.instruction.name
                offset = pc - self.kernel.entry
                report.watch = Watch(one.workgroup, one.index, lane, pc, name, self.kernel.name, offset)

    def _move(self, one: RunningWave, decoded: Decoded, transfer: Transfer | None) -> None:
        wave = one.wave
        following = decoded.pc + decoded.nbytes
        if transfer is None:
            wave.pc = following
        elif transfer.kind == "jump":
            wave.pc = int(transfer.target[0]) & PC_MASK
        elif transfer.kind == "branch":
            taken = transfer.condition is None or bool(transfer.condition[0])
            wave.pc = transfer.target & PC_MASK if taken else following
        elif transfer.kind in ("trap", "halt"):
            raise stopped_itself(transfer.kind == "trap", decoded.instruction.name, self._where(one))
        else:
            one.status = transfer.kind
            wave.pc = following
