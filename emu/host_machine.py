"""The machine on translated code: a workgroup's waves in one host call, workgroups on threads without the GIL."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from emu import host_memory
from emu.code_object import CodeObject, Kernel
from emu.dispatch import RunOptions, RunReport, Watch
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
from emu.host_code import HostCode, Translation
from emu.launch_state import Launch, WaveState, waves
from emu.memory import Memory
from emu.numpy_memory import SCALAR_LOAD, unaligned
from emu.registers import EXEC, HARDWARE_REGISTERS
from emu.translate import (
    COUNT,
    FAULT,
    HALT,
    HARDWARE,
    MEMORY_FUNCTIONS,
    MODE_KEYS,
    MODE_TABLES,
    PC,
    QUANTUM,
    SCRATCH_BYTES,
    SGPRS,
    STATUS,
    STOPPED,
    TABLES,
    TRAP,
    WAVE_BYTES,
    discover,
    function_name,
    mode_key,
    module_text,
)
from gfx950.isa.encoding import DecodeError, decode
from gfx950.isa.mode_registers import MODE
from gfx950.lanes import ALL_LANES, Mode

BUDGET = 1 << 22  # instructions a call into translated code may take before Python looks at Ctrl-C and the step limit
Dimensions = tuple[int, int, int]
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
        self.sets = np.zeros(MODE_KEYS, dtype=np.uint64)  # their addresses, for translated code
        self.errors: dict[int, str] = {}  # why the instruction at an address cannot be run
        self.lock = threading.Lock()
        self.host = HostCode()
        self.natives = np.zeros(256, dtype=np.uint64)
        self.native_names: set[str] = set()  # those that translated code calls
        self.driver = _RUN_WAVES(_driver().address("run_waves"))
        addresses = host_memory.functions()
        self.memory_functions = np.array([addresses[n] for n in MEMORY_FUNCTIONS], dtype=np.uint64)
        self.digest = hashlib.sha256(self.bytes).hexdigest()

    # ---- translation ----------------------------------------------------------------------------------------------

    def tables_for(self, mode: int) -> Tables:
        """The tables of the translations under one value of MODE, made when first asked for."""
        with self.lock:
            key = mode_key(mode)
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
            key = f"{self.digest}|{self.base:x}|{variant}|{definitions_digest()}"
            notes = self.host.add(lambda: self._translation(pc, full, tables), key)
            self._natives_of(notes["natives"])
            self.errors.update({int(at, 16): text for at, text in notes["errors"].items()})
            for start, length in notes["blocks"]:
                tables.lengths[self._place(start)] = length
                slots[self._place(start)] = self.host.address(function_name(start, full, tables.tag))

    def _place(self, pc: int) -> int:
        return (pc - self.base) // 4

    def _translation(self, pc: int, full: bool, tables: Tables) -> Translation:
        slots = tables.slots[0 if full else 1]
        found = discover(self.bytes, self.base, pc, self.longest)
        blocks = [b for a, b in sorted(found.items()) if not self.outside(a) and not slots[self._place(a)]]
        text, natives = module_text(blocks, tables.mode, full, tables.tag)
        kept = [[b.start, len(b.instructions)] for b in blocks]
        errors = {f"{b.end:x}": b.error for b in blocks if b.error is not None}
        return Translation(text, {"natives": natives, "blocks": kept, "errors": errors})

    def outside(self, pc: int) -> bool:
        """Whether an address is no place for an instruction of this code."""
        return not self.base <= pc < self.base + len(self.bytes) or bool(pc % 4)

    def _natives_of(self, names: Iterable[str]) -> None:
        """Fills in the addresses of the natives a module calls; others stay uncompiled."""
        from gfx950.arithmetic.native import NATIVES

        self.native_names.update(names)
        order = native_order() if names else []
        for name in names:
            self.natives[order.index(name)] = NATIVES[name].address

    # ---- running --------------------------------------------------------------------------------------------------

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs all workgroups; ascending starts, `options.threads` at once. An error is that of the first workgroup."""
        self._natives_of(list(self.native_names))  # a table may have replaced a model since the last launch
        work = _Work(launch.geometry.workgroup_ids())
        if options.threads <= 1:
            self._work(launch, options, work)
        else:
            with ThreadPoolExecutor(options.threads) as pool:
                jobs = [pool.submit(self._work, launch, options, work) for _ in range(options.threads)]
                try:
                    for job in jobs:
                        job.result()
                finally:
                    work.abort()
        if work.failures:
            raise work.failures[min(work.failures)]
        return work.report

    def _work(self, launch: Launch, options: RunOptions, work: _Work) -> None:
        group = WorkgroupRunner(self, launch, options, work)
        while (item := work.take()) is not None:
            number, workgroup = item
            try:
                instructions, watch = group.run(workgroup)
            except EmulatorError as error:
                work.fail(number, error)
                return
            work.done(number, instructions, watch)


class _Work:
    """The workgroups of a launch, handed to threads in ascending order, and what came of them."""

    def __init__(self, ids: Iterator[Dimensions]) -> None:
        self.ids = enumerate(ids)
        self.lock = threading.Lock()
        self.report = RunReport()
        self.failures: dict[int, EmulatorError] = {}
        self.stopped = self.aborted = False
        self._watched = -1

    def take(self) -> tuple[int, Dimensions] | None:
        """The next workgroup with its number; None when there is none or one has failed."""
        with self.lock:
            return None if self.stopped else next(self.ids, None)

    def abort(self) -> None:
        """No more workgroups, and those that run may stop where they are."""
        self.stopped = self.aborted = True

    def fail(self, number: int, error: EmulatorError) -> None:
        """Notes an error: workgroups with lower numbers go on to their end, since theirs would come first."""
        with self.lock:
            self.failures[number] = error
            self.stopped = True

    def done(self, number: int, instructions: int, watch: Watch | None) -> None:
        """Adds a workgroup; the watch of the last one in launch order stays."""
        with self.lock:
            self.report.instructions += instructions
            self.report.workgroups += 1
            if watch is not None and number > self._watched:
                self.report.watch, self._watched = watch, number


class WorkgroupRunner:
    """Memory for the waves of one workgroup at a time, reused for the next."""

    def __init__(self, machine: HostMachine, launch: Launch, options: RunOptions, work: _Work) -> None:
        self.machine, self.launch, self.options, self.work = machine, launch, options, work
        count = launch.geometry.waves_of((0, 0, 0))
        self.storage = aligned(count * WAVE_BYTES)
        self.waves = self.storage.reshape(count, WAVE_BYTES)
        self.lds = aligned(max(64, launch.lds_bytes))
        self.scratch = aligned(SCRATCH_BYTES)
        self.context = np.zeros(host_memory.CONTEXT_WORDS, dtype=np.uint64)

    def run(self, workgroup: Dimensions) -> tuple[int, Watch | None]:
        """Runs one workgroup to its end. Returns wave instructions and the watched store."""
        states = waves(self.launch, workgroup)
        self._reset(states)
        done, limit, stopped = 0, self.options.step_limit, -1
        while stopped != 0:
            if stopped > 0:
                self._attend(workgroup, stopped - 1)
            budget = min(BUDGET, limit - done + 1)
            stopped = self._call(len(states), budget)
            done = int(self._words(COUNT, len(states)).sum())
            if done > limit:
                raise self._used_up(workgroup)
            if self.work.aborted:
                break
        return done, self._watch(workgroup)

    def _call(self, count: int, budget: int) -> int:
        machine, context = self.machine, self.context
        context[host_memory.LEFT] = budget
        pointers = [a.ctypes.data for a in (context, machine.memory_functions, machine.natives, self.scratch)]
        quantum = min(self.options.quantum, 1 << 62)
        return int(
            machine.driver(self.storage.ctypes.data, count, machine.base, 4 * machine.places, *pointers, quantum)
        )

    def _reset(self, states: tuple[WaveState, ...]) -> None:
        self.storage[:] = 0
        self.lds[:] = 0
        self.context[:] = 0
        self.context[host_memory.LDS] = self.lds.ctypes.data
        self.context[host_memory.LDS_BYTES] = self.launch.lds_bytes
        self.context[host_memory.TABLE] = self.machine.memory.table.ctypes.data
        self.context[MODE_TABLES] = self.machine.sets.ctypes.data
        if self.options.watch is not None:
            self.context[host_memory.WATCH_LOW], self.context[host_memory.WATCH_HIGH] = self.options.watch
        for state, row in zip(states, self.waves, strict=False):
            row[: 64 * 4].view(np.uint32)[:] = state.vgpr0
            row[SGPRS : SGPRS + 512].view(np.uint32)[:] = state.sgprs
            row[PC : PC + 8].view(np.uint64)[0] = state.pc
            row[HARDWARE : HARDWARE + 4 * HARDWARE_REGISTERS].view(np.uint32)[:] = state.hardware

    def _words(self, offset: int, count: int) -> Any:
        return self.waves[:count, offset : offset + 8].copy().view(np.uint64)[:, 0]

    # ---- what needs Python ----------------------------------------------------------------------------------------

    def _attend(self, workgroup: Dimensions, wave: int) -> None:
        """A wave needs Python: translation of new code, or an error to raise."""
        row, machine = self.waves[wave], self.machine
        where = self._where(workgroup, wave)
        pc, status = where["pc"], int(row[STATUS : STATUS + 8].view(np.uint64)[0])
        if status == FAULT:
            raise self._memory_fault(where, pc)
        if status in (TRAP, HALT):
            raise self._stopped_itself(status, where)
        if machine.outside(pc):
            raise left_the_code(machine.base, machine.bytes, where)
        if status == STOPPED:
            raise UnknownInstruction(machine.errors[pc], **where)
        active = row[SGPRS + 4 * EXEC : SGPRS + 4 * EXEC + 8].view(np.uint64)[0]
        tables = machine.tables_for(int(row[HARDWARE + 4 * MODE : HARDWARE + 4 * MODE + 4].view(np.uint32)[0]))
        row[TABLES : TABLES + 8].view(np.uint64)[0] = tables.address
        machine.translate(pc, int(active) == ALL_LANES, tables)

    def _stopped_itself(self, status: int, where: dict[str, Any]) -> EmulatorError:
        machine, at = self.machine, {**where, "pc": where["pc"] - 4}
        return stopped_itself(status == TRAP, instruction_name(machine.bytes, machine.base, at["pc"]), at)

    def _where(self, workgroup: Dimensions, wave: int) -> dict[str, Any]:
        pc = int(self._words(PC, len(self.waves))[wave])
        return {"kernel": self.machine.kernel.name, "workgroup": workgroup, "wave": wave, "pc": pc}

    def _used_up(self, workgroup: Dimensions) -> NoProgress:
        """The step limit is passed: names a wave that still runs, the first if none does."""
        running = np.flatnonzero(self._words(STATUS, len(self.waves)) == 0)
        return out_of_steps(self.options.step_limit, self._where(workgroup, int(running[0]) if running.size else 0))

    def _memory_fault(self, where: dict[str, Any], pc: int) -> MemoryFault:
        lane, address, nbytes = (
            int(self.context[i]) for i in (host_memory.FAULT_LANE, host_memory.FAULT_ADDRESS, host_memory.FAULT_BYTES)
        )
        kind, lanes = int(self.context[host_memory.FAULT_KIND]), int(self.context[host_memory.FAULT_LANES])
        name = instruction_name(self.machine.bytes, self.machine.base, pc)
        if kind == host_memory.UNALIGNED:
            return unaligned(address, nbytes, lane).located(instruction=name, **where)
        if lanes == 0:
            return self.machine.memory.fault(address, nbytes, SCALAR_LOAD).located(instruction=name, **where)
        who = "a lane stores" if kind == host_memory.WRITABLE else "a lane loads"
        return self.machine.memory.fault(address, nbytes, who, lane, lanes).located(instruction=name, **where)

    def _watch(self, workgroup: Dimensions) -> Watch | None:
        if not self.context[host_memory.WATCH_SEEN]:
            return None
        pc = int(self.context[host_memory.WATCH_PC])
        name = instruction_name(self.machine.bytes, self.machine.base, pc)
        wave, lane = (int(self.context[i]) for i in (host_memory.WATCH_WAVE, host_memory.WATCH_LANE))
        kernel = self.machine.kernel
        return Watch(workgroup, wave, lane, pc, name, kernel.name, pc - kernel.entry)


def instruction_name(code: bytes, base: int, pc: int) -> str:
    """The mnemonic at an address."""
    try:
        return decode(code, pc, base).instruction.name
    except DecodeError as error:
        return str(error)


def aligned(nbytes: int) -> Any:
    """A zeroed uint8 array whose first byte lies on a cache line."""
    room = np.zeros(nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


@functools.cache
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
