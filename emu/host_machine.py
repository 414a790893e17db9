"""The machine on translated code: a workgroup's waves in one host call, workgroups on threads without the GIL."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from emu import host_layout as layout
from emu import host_memory
from emu.blocks import QUANTUM, discover
from emu.code_object import CodeObject
from emu.dispatch import TO_BARRIER, RunOptions, RunReport, Watch
from emu.driver import DRIVER
from emu.engines.host_engine import native_order
from emu.errors import (
    EmulatorError,
    MemoryFault,
    NoProgress,
    UnknownInstruction,
    left_the_code,
    out_of_steps,
    stopped_itself,
)
from emu.geometry import Dimensions
from emu.kernel_metadata import Kernel
from emu.launch import Launch, residents
from emu.memory import WRITABLE, Memory
from emu.numpy_memory import SCALAR_LOAD, unaligned
from emu.register_checks import AGPR, SCALAR_REGISTERS
from emu.registers import HARDWARE_REGISTERS
from emu.resident import Snapshot, Windows, aligned
from emu.schedule import Turns, Workgroups, standing, starts
from emu.state import LATE_ENTRIES
from emu.translate import function_name, module_text
from emu.wave_start import WaveState, waves, workgroup_id_sgprs
from gfx950.arithmetic.native import NATIVES
from gfx950.host_code import HostCode, Translation, once
from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.mode_registers import MODE
from gfx950.isa.operand_codes import EXEC
from gfx950.isa.text import instruction_text
from gfx950.lanes import ALL_LANES, LANES, Mode
from gfx950.models import Model, in_force

FIRST_SLICE = 1 << 12
MOST_NATIVES = 256
# Words of a wave that go on counting in a loop.
COUNTERS = (layout.COUNT, layout.ISSUED, layout.LATE_FIRST, layout.LATE_NEXT)
_RUN_WAVES = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p if c == "p" else ctypes.c_int64 for c in "piiippppi"])


class Tables:
    """Translated blocks under one MODE, by dword of code, in one piece of memory as emu.driver reads it.

    slots: functions for EXEC all ones, then for any EXEC. lengths: instructions of each block.
    """

    def __init__(self, key: int, mode: Mode, places: int) -> None:
        self.mode = mode
        self.tag = f"_{key:x}"
        room = np.zeros(17 * places, dtype=np.uint8)
        self.slots = room[: 16 * places].view(np.uint64).reshape(2, places)
        self.lengths = room[16 * places :]
        self.address: int = room.ctypes.data


class HostMachine:
    """One kernel's translated code. Blocks are translated when a wave first reaches a piece of code in a variant.

    longest: instructions of the longest block, at most QUANTUM: a wave's turn ends only between blocks.
    """

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel, longest: int = QUANTUM) -> None:
        self.memory, self.kernel, self.longest = memory, kernel, longest
        run = code.code_of(kernel)
        self.base, self.bytes = run.address, run.data
        self.places = len(self.bytes) // 4 + 1
        self.tables: dict[int, Tables] = {}  # by mode key
        self.sets = np.zeros(layout.MODE_KEYS, dtype=np.uint64)  # their addresses, for translated code
        self.errors: dict[int, str] = {}  # why the instruction at an address cannot be run
        # The vector registers, v and a, that translated code may have written: from, to.
        self.touched = [(0, 1), (AGPR, AGPR)]
        self.lock = threading.Lock()
        self.host = HostCode()
        self.natives: dict[str, tuple[Model, Any]] = {}  # a model and the table of its natives' addresses, by digest
        self.native_names: set[str] = set()  # those that translated code calls
        self.driver = _RUN_WAVES(_driver().address("run_waves"))
        addresses = host_memory.functions()
        self.memory_functions = np.array([addresses[n] for n in layout.MEMORY_FUNCTIONS], dtype=np.uint64)
        self.digest = hashlib.sha256(self.bytes).hexdigest()

    # ---- translation ----------------------------------------------------------------------------------------------

    def tables_for(self, mode: int) -> Tables:
        """The tables of the translations under one value of MODE, made when first asked for."""
        with self.lock:
            key = layout.mode_key(mode)
            if key not in self.tables:
                self.tables[key] = Tables(key, Mode.from_bits(mode), self.places)
                self.sets[key] = self.tables[key].address
            return self.tables[key]

    def translate(self, pc: int, full: bool, tables: Tables) -> None:
        """Translates everything reachable from `pc` in one variant."""
        with self.lock:
            slots = tables.slots[0 if full else 1]
            if slots[self._place(pc)]:
                return
            there = hashlib.sha256(np.flatnonzero(slots).tobytes()).hexdigest()
            variant = f"{pc:x}|{full}|{there}|{self.longest}|{tables.mode}"
            key = f"{self.digest}|{self.base:x}|{variant}|{definitions_digest()}|{in_force().body_digest}"
            notes = self.host.add(lambda: self._translation(pc, full, tables), key)
            self.call_natives(notes["natives"])
            self.errors.update({int(at, 16): text for at, text in notes["errors"].items()})
            for half, end in enumerate(notes["vectors"]):
                self.touched[half] = (256 * half, max(self.touched[half][1], end))
            for start, length in notes["blocks"]:
                tables.lengths[self._place(start)] = length
                slots[self._place(start)] = self.host.address(function_name(start, full, tables.tag))

    def _place(self, pc: int) -> int:
        return (pc - self.base) // 4

    def _translation(self, pc: int, full: bool, tables: Tables) -> Translation:
        slots = tables.slots[0 if full else 1]
        found = discover(self.bytes, self.base, pc, self.longest)
        blocks = [b for a, b in sorted(found.items()) if not self.outside(a) and not slots[self._place(a)]]
        text, natives, vectors = module_text(blocks, tables.mode, full, tables.tag)
        kept = [[b.start, len(b.instructions)] for b in blocks]
        errors = {f"{b.end:x}": b.error for b in blocks if b.error is not None}
        return Translation(text, {"natives": natives, "vectors": vectors, "blocks": kept, "errors": errors})

    def outside(self, pc: int) -> bool:
        """Whether an address is no place for an instruction of this code."""
        return not self.base <= pc < self.base + len(self.bytes) or bool(pc % 4)

    def is_unknown(self, pc: int) -> bool:
        """Whether the bytes at an address are no instruction at all."""
        try:
            decode(self.bytes, pc, self.base)
        except DecodeError:
            return True
        return False

    def natives_in_force(self) -> Any:
        """The addresses of natives as translated code looks them up, under the model in force."""
        with self.lock:
            model = in_force()
            if model.digest not in self.natives:
                self.natives[model.digest] = model, np.zeros(MOST_NATIVES, dtype=np.uint64)
                self.call_natives(())
            return self.natives[model.digest][1]

    def call_natives(self, names: Iterable[str]) -> None:
        """Fills in the addresses of the natives a module calls, whichever launch runs it; others stay uncompiled."""
        self.native_names.update(names)
        order = native_order() if self.native_names else []
        for model, table in self.natives.values():
            for name in self.native_names:
                place = order.index(name)
                table[place] = table[place] or NATIVES[name].under(model).address

    # ---- running --------------------------------------------------------------------------------------------------

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs all workgroups, `options.threads` at once. An error is that of the workgroup that started first."""
        report, watched = RunReport(), -1

        def finished(one: HostWorkgroup) -> None:
            nonlocal watched
            report.instructions += one.instructions
            report.workgroups += 1
            watch = one.watch()
            if watch is not None and one.number > watched:
                report.watch, watched = watch, one.number

        ids = starts(launch.geometry.workgroup_ids(), residents(launch), options.order, options.seed)
        make = functools.partial(HostWorkgroup, self, launch, options)
        Workgroups(ids, residents(launch), make, finished, FIRST_SLICE).run(options.threads)
        return report


class HostWorkgroup:
    """Memory for the waves of one workgroup at a time, reused for the next; see `emu.schedule.Resident`."""

    def __init__(self, machine: HostMachine, launch: Launch, options: RunOptions) -> None:
        self.machine, self.launch, self.options = machine, launch, options
        self.number, self.workgroup, self.count = -1, (0, 0, 0), 0
        count = launch.geometry.waves_of((0, 0, 0))
        self.storage = aligned(count * layout.WAVE_BYTES)
        self.waves = self.storage.reshape(count, layout.WAVE_BYTES)
        self.windows = Windows(machine.memory, launch, aligned(max(64, launch.lds_granted)), count)
        self.scratch = aligned(layout.SCRATCH_BYTES)
        self.late = aligned(count * LATE_ENTRIES * layout.LATE_BYTES)
        self.snapshot = Snapshot()
        self.quantum = min(options.longest_turn, TO_BARRIER)
        self.instructions, self.done = 0, True
        self.starts: dict[Dimensions, tuple[Any, Any]] = {}  # by the workgroup's size
        self.id_sgprs = workgroup_id_sgprs(launch.kernel.descriptor)
        self.sgprs = self.waves[:, layout.SGPRS : layout.SGPRS + 4 * SCALAR_REGISTERS].view(np.uint32)
        self.first_context = self._first_context()
        self.context = self.first_context.copy()
        self.left = self.context[layout.LEFT :].view(np.int64)
        self.natives = machine.natives_in_force()
        pointers = [a.ctypes.data for a in (self.context, machine.memory_functions, self.natives, self.scratch)]
        self.storage_at = self.storage.ctypes.data
        self.call_arguments = (machine.base, 4 * machine.places, *pointers, self.quantum)

    def release(self) -> None:
        """Gives back what it has in the address space."""
        self.windows.release()

    def begin(self, number: int, workgroup: Dimensions) -> None:
        """Takes up a workgroup at its first instruction."""
        self.number, self.workgroup, self.instructions = number, workgroup, 0
        size = self.launch.geometry.size_of(workgroup)
        if size not in self.starts:
            self.starts[size] = self._start(workgroup)
        vgpr0, rest = self.starts[size]
        self.count = len(rest)
        for first, end in self.machine.touched:
            self.waves[:, 256 * first : 256 * end] = 0
        self.waves[: self.count, :256] = vgpr0
        self.waves[: self.count, layout.SGPRS :] = rest
        for sgpr, axis in self.id_sgprs:
            self.sgprs[: self.count, sgpr] = workgroup[axis]
        self.windows.clear()
        self.snapshot = Snapshot()
        self.context[:] = self.first_context
        turns = Turns.first(self.count, self.quantum, self.options.order, self.options.seed, number)
        self.context[layout.ORDER], self.context[layout.RANDOM] = turns.order, turns.random
        self.context[layout.TURN] = turns.length
        self.done = False  # last: other threads ask what has begun where it stands

    def _start(self, workgroup: Dimensions) -> tuple[Any, Any]:
        """v0 and all that follows the vector registers, as bytes, of the waves of a workgroup of this one's size."""
        states = waves(self.launch, workgroup, self.windows.wave_scratch)
        rest = np.zeros((len(states), layout.WAVE_BYTES - layout.SGPRS), np.uint8)
        for state, row in zip(states, rest, strict=True):
            self._begin_wave(state, row)
        return np.stack([state.vgpr0 for state in states]).view(np.uint8), rest

    def _begin_wave(self, state: WaveState, row: Any) -> None:
        half, word = row.view(np.uint32), row.view(np.uint64)
        half[:SCALAR_REGISTERS] = state.sgprs
        first = (layout.HARDWARE - layout.SGPRS) // 4
        half[first : first + HARDWARE_REGISTERS] = state.hardware
        ring = self.late.ctypes.data + state.wave * LATE_ENTRIES * layout.LATE_BYTES
        for at, value in (
            (layout.PC, state.pc),
            (layout.TABLES, self.machine.tables_for(int(state.hardware[MODE])).address),
            (layout.LATE_RING, ring),
            (layout.WINDOWS["lds"], self.windows.lds_address),
            (layout.WINDOWS["scratch_bytes"], self.launch.private_segment),
        ):
            word[(at - layout.SGPRS) // 8] = value
        first = (layout.WINDOWS["scratch"] - layout.SGPRS) // 8
        word[first : first + LANES] = self.windows.lane_scratch(state.wave)

    def _first_context(self) -> Any:
        context = np.zeros(layout.CONTEXT_WORDS, dtype=np.uint64)
        context[layout.LDS] = self.windows.lds.ctypes.data
        context[layout.LDS_BYTES] = self.launch.lds_granted
        context[layout.TABLE] = self.machine.memory.table.ctypes.data
        context[layout.MODE_TABLES] = self.machine.sets.ctypes.data
        context[layout.OWN_LDS], context[layout.OWN_SCRATCH] = self.windows.regions
        if self.options.watch is not None:
            context[layout.WATCH_LOW], context[layout.WATCH_HIGH] = self.options.watch
        return context

    # ---- the schedule's view ---------------------------------------------------------------------------------------

    @property
    def polls(self) -> int:
        """How many of them were polls."""
        return int(self.context[layout.POLLS])

    @property
    def changes(self) -> int:
        """How often global memory was changed."""
        return int(self.context[layout.CHANGES])

    def advance(self, budget: int) -> None:
        """Runs about `budget` instructions, or to the end. Raises NoProgress past the step limit."""
        limit = self.options.step_limit
        last = self.instructions + budget
        while (left := last - self.instructions) > 0:
            stopped = self._call(min(left, limit - self.instructions + 1))
            if self.instructions > limit:
                raise self._used_up()
            if stopped == 0:
                self.done = True
                return
            if stopped > 0:
                self._attend(stopped - 1)

    def repeats(self) -> bool:
        """Whether registers, LDS and scratch are what they were at an earlier call, memory unchanged since."""
        state = [self.storage, self.windows.lds, self.windows.scratch]
        counts = [self.waves[:, at : at + 8].copy() for at in COUNTERS]
        for at in COUNTERS:
            self.waves[:, at : at + 8] = 0
        same = self.snapshot.same(state, self.changes)
        for at, kept in zip(COUNTERS, counts, strict=True):
            self.waves[:, at : at + 8] = kept
        return same

    def where(self) -> str:
        """The first wave that has not ended, and how many others."""
        live = np.flatnonzero(self._words(layout.STATUS) != layout.END)
        first = self._where(int(live[0]) if live.size else 0)
        text = instruction_text(self.machine.bytes, self.machine.base, first["pc"])
        waiting = int((self._words(layout.STATUS) == layout.BARRIER).sum())
        return standing(first, text, len(live), waiting)

    def _call(self, budget: int) -> int:
        self.left[0] = budget
        stopped = int(self.machine.driver(self.storage_at, self.count, *self.call_arguments))
        self.instructions += budget - int(self.left[0])
        return stopped

    def _words(self, offset: int) -> Any:
        return self.waves[: self.count, offset : offset + 8].copy().view(np.uint64)[:, 0]

    # ---- what needs Python ----------------------------------------------------------------------------------------

    def _attend(self, wave: int) -> None:
        """A wave needs Python: translation of new code, or an error to raise."""
        row, machine = self.waves[wave], self.machine
        where = self._where(wave)
        pc, status = where["pc"], int(row[layout.STATUS : layout.STATUS + 8].view(np.uint64)[0])
        if status == layout.FAULT:
            raise self._memory_fault(where, pc)
        if status in (layout.TRAP, layout.HALT):
            raise self._stopped_itself(status, where)
        if machine.outside(pc):
            raise left_the_code(machine.base, machine.bytes, where)
        if status == layout.STOPPED:
            text = None if machine.is_unknown(pc) else instruction_text(machine.bytes, machine.base, pc)
            raise UnknownInstruction(machine.errors[pc], instruction=text, **where)
        active_at, mode_at = layout.SGPRS + 4 * EXEC, layout.HARDWARE + 4 * MODE
        active = row[active_at : active_at + 8].view(np.uint64)[0]
        tables = machine.tables_for(int(row[mode_at : mode_at + 4].view(np.uint32)[0]))
        row[layout.TABLES : layout.TABLES + 8].view(np.uint64)[0] = tables.address
        machine.translate(pc, int(active) == ALL_LANES, tables)

    def _stopped_itself(self, status: int, where: dict[str, Any]) -> EmulatorError:
        machine, at = self.machine, {**where, "pc": where["pc"] - 4}
        return stopped_itself(status == layout.TRAP, instruction_text(machine.bytes, machine.base, at["pc"]), at)

    def _where(self, wave: int) -> dict[str, Any]:
        pc = int(self._words(layout.PC)[wave])
        return {"kernel": self.machine.kernel.name, "workgroup": self.workgroup, "wave": wave, "pc": pc}

    def _used_up(self) -> NoProgress:
        """The step limit is passed: names a wave that still runs, the first if none does."""
        running = np.flatnonzero(self._words(layout.STATUS) == layout.RUN)
        return out_of_steps(self.options.step_limit, self._where(int(running[0]) if running.size else 0))

    def _memory_fault(self, where: dict[str, Any], pc: int) -> MemoryFault:
        lane, address, nbytes = (
            int(self.context[i]) for i in (layout.FAULT_LANE, layout.FAULT_ADDRESS, layout.FAULT_BYTES)
        )
        kind, lanes = int(self.context[layout.FAULT_KIND]), int(self.context[layout.FAULT_LANES])
        name = instruction_text(self.machine.bytes, self.machine.base, pc)
        if kind == layout.UNALIGNED:
            return unaligned(address, nbytes, lane).located(instruction=name, **where)
        if lanes == 0:
            return self.machine.memory.fault(address, nbytes, SCALAR_LOAD).located(instruction=name, **where)
        who = "a lane stores" if kind == WRITABLE else "a lane loads"
        return self.machine.memory.fault(address, nbytes, who, lane, lanes).located(instruction=name, **where)

    def watch(self) -> Watch | None:
        """The last store into the watched bytes."""
        if not self.context[layout.WATCH_SEEN]:
            return None
        pc = int(self.context[layout.WATCH_PC])
        name = decode(self.machine.bytes, pc, self.machine.base).instruction.name
        wave, lane = (int(self.context[i]) for i in (layout.WATCH_WAVE, layout.WATCH_LANE))
        kernel = self.machine.kernel
        return Watch(self.workgroup, wave, lane, pc, name, kernel.name, pc - kernel.entry)


@once
def _driver() -> HostCode:
    code = HostCode(opt=2)
    code.add(lambda: Translation(DRIVER), f"driver|{hashlib.sha256(DRIVER.encode()).hexdigest()}")
    return code


@functools.cache
def definitions_digest() -> str:
    """A digest of every file whose change can change translated code."""
    import emu
    import gfx950

    total = hashlib.sha256()
    for package in (gfx950, emu):
        for folder in package.__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                total.update(path.read_bytes())
    return total.hexdigest()
