"""The machine on the numpy engine: the same schedule, one instruction at a time, with observers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.code_object import CodeObject
from emu.dispatch import RunOptions, RunReport, Watch
from emu.errors import EmulatorError, MemoryFault, UnknownInstruction, left_the_code, out_of_steps, stopped_itself
from emu.execute import PC_MASK, polls
from emu.geometry import Dimensions
from emu.kernel_metadata import Kernel
from emu.launch import Launch, residents
from emu.memory import Memory
from emu.register_checks import UnsupportedForm
from emu.resident import Snapshot, Windows
from emu.schedule import Turns, Workgroups, standing, starts
from emu.state import Transfer
from emu.wave import Wave
from emu.wave_start import WaveState, waves
from gfx950.isa.encoding import Decoded, DecodeError, decode
from gfx950.isa.mode_registers import MODE
from gfx950.isa.text import instruction_text
from gfx950.lanes import Mode

FIRST_SLICE = 1 << 8
SLOWNESS = 1 << 10  # than the host engine


@dataclass(eq=False)
class RunningWave:
    """A wave of a workgroup of a kernel with its place and what it is doing: run, barrier or end."""

    kernel: Kernel
    workgroup: tuple[int, int, int]
    index: int
    wave: Wave
    status: str = "run"
    polls: int = 0


class NumpyMachine:
    """One kernel, decoded as it runs."""

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel) -> None:
        self.memory, self.kernel = memory, kernel
        run = code.code_of(kernel)
        self.base, self.bytes = run.address, run.data
        self.decoded: dict[int, Decoded] = {}

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs all workgroups, one after the other as far as they do not wait."""
        report = RunReport()

        def finished(one: NumpyWorkgroup) -> None:
            report.workgroups += 1

        ids = starts(launch.geometry.workgroup_ids(), residents(launch), options.order, options.seed)
        make = functools.partial(NumpyWorkgroup, self, launch, options, report)
        Workgroups(ids, residents(launch), make, finished, FIRST_SLICE, SLOWNESS).run(threads=1)
        return report

    def step(self, one: RunningWave, options: RunOptions, report: RunReport) -> None:
        """One instruction of one wave."""
        wave = one.wave
        decoded = self._fetch(one)
        for observer in options.observers:
            observer.before(one, decoded)
        try:
            transfer = wave.step(decoded)
        except MemoryFault as fault:
            raise fault.located(instruction=self._text(one), **self.where(one)) from None
        except (UnsupportedForm, EmulatorError, ValueError) as error:
            text = f"pc 0x{decoded.pc:x}: {decoded.instruction.name}: {error}"
            raise UnknownInstruction(text, instruction=self._text(one), **self.where(one)) from error
        if options.watch is not None:
            self._note_watch(one, decoded, options.watch, report)
        for observer in options.observers:
            observer.after(one, decoded)
        self._move(one, decoded, transfer)
        one.polls += polls(decoded)
        report.instructions += 1
        report.mnemonics[decoded.instruction.name] = report.mnemonics.get(decoded.instruction.name, 0) + 1

    def _fetch(self, one: RunningWave) -> Decoded:
        pc = one.wave.pc
        if pc not in self.decoded:
            if not self.base <= pc < self.base + len(self.bytes) or pc % 4:
                raise left_the_code(self.base, self.bytes, self.where(one))
            try:
                self.decoded[pc] = decode(self.bytes, pc, self.base)
            except DecodeError as error:
                raise UnknownInstruction(str(error), **self.where(one)) from error
        return self.decoded[pc]

    def _text(self, one: RunningWave) -> str:
        return instruction_text(self.bytes, self.base, one.wave.pc)

    def where(self, one: RunningWave) -> dict[str, Any]:
        """The fields of `errors.Location` for a wave."""
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
            raise stopped_itself(transfer.kind == "trap", self._text(one), self.where(one))
        else:
            one.status = transfer.kind
            wave.pc = following


class NumpyWorkgroup:
    """One workgroup at a time; see `emu.schedule.Resident`."""

    def __init__(self, machine: NumpyMachine, launch: Launch, options: RunOptions, report: RunReport) -> None:
        self.machine, self.launch, self.options, self.report = machine, launch, options, report
        count = launch.geometry.waves_of((0, 0, 0))
        self.windows = Windows(machine.memory, launch, np.zeros(launch.lds_granted, dtype=np.uint8), count)
        self.number = -1
        self.running: list[RunningWave] = []
        self.turns = Turns(count, 0, 0, 0)  # of no workgroup yet
        self.used = 0  # of the turn
        self.instructions = 0
        self.snapshot = Snapshot()

    def release(self) -> None:
        """Gives back what it has in the address space."""
        self.windows.release()

    def begin(self, number: int, workgroup: Dimensions) -> None:
        """Takes up a workgroup at its first instruction."""
        self.number, self.used, self.instructions, self.snapshot = number, 0, 0, Snapshot()
        self.windows.clear()
        states = waves(self.launch, workgroup, self.windows.wave_scratch)
        self.running = [self._start(state, workgroup) for state in states]
        self.turns = self._first_turns()

    def _first_turns(self) -> Turns:
        chosen = self.options
        return Turns.first(len(self.running), chosen.longest_turn, chosen.order, chosen.seed, self.number)

    def _start(self, state: WaveState, workgroup: Dimensions) -> RunningWave:
        wave = Wave(self.windows.lds, self.machine.memory, Mode.from_bits(int(state.hardware[MODE])))
        wave.hardware[:] = state.hardware
        wave.vgprs[0] = state.vgpr0
        wave.sgprs[:] = state.sgprs
        wave.pc = state.pc
        wave.windows["lds"][0] = self.windows.lds_address
        wave.windows["scratch"][:] = self.windows.lane_scratch(state.wave)
        wave.windows["scratch_bytes"][0] = self.launch.private_segment
        return RunningWave(self.machine.kernel, workgroup, state.wave, wave)

    @property
    def done(self) -> bool:
        """Whether all waves have ended."""
        return all(one.status == "end" for one in self.running)

    @property
    def polls(self) -> int:
        """How many of them were polls."""
        return sum(one.polls for one in self.running)

    @property
    def changes(self) -> int:
        """How often global memory was changed."""
        return sum(one.wave.changes for one in self.running)

    def advance(self, budget: int) -> None:
        """Runs `budget` instructions, or to the end. Raises NoProgress past the step limit."""
        limit = self.options.step_limit
        last = self.instructions + budget
        while not self.done and self.instructions < last:
            one = self.running[self.turns.wave]
            if one.status == "run" and self.used < self.turns.length:
                self.machine.step(one, self.options, self.report)
                self.used += 1
                self.instructions += 1
                if self.instructions > limit:
                    raise out_of_steps(limit, self.machine.where(one))
            else:
                self._next_turn()

    def _next_turn(self) -> None:
        """The next wave's turn; after the last one's, a barrier opens when nobody runs."""
        self.turns.advance()
        self.used = 0
        if self.turns.place == 0 and all(one.status != "run" for one in self.running):
            for one in self.running:
                one.status = "run" if one.status == "barrier" else one.status

    def repeats(self) -> bool:
        """Whether registers, LDS and scratch are what they were at an earlier call, memory unchanged since."""
        parts = [
            (w.wave.vgprs, w.wave.sgprs, np.array([w.wave.pc, w.wave.scc_bit, w.status == "run"])) for w in self.running
        ]
        own = [self.windows.lds, self.windows.scratch]
        return self.snapshot.same([*own, *(part for wave in parts for part in wave)], self.changes)

    def where(self) -> str:
        """The first wave that has not ended, and how many others."""
        live = [one for one in self.running if one.status != "end"]
        first = self.machine.where(live[0])
        text = instruction_text(self.machine.bytes, self.machine.base, first["pc"])
        return standing(first, text, len(live), sum(one.status == "barrier" for one in live))
