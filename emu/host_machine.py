"""The machine on translated code: waves of a workgroup in one host call, workgroups on several threads without the GIL."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from emu import host_memory
from emu.code_object import CodeObject, Kernel
from emu.dispatch import RunOptions, RunReport, Watch
from emu.engines.host_engine import native_order
from emu.errors import EmulatorError, MemoryFault, NoProgress, UnknownInstruction
from emu.launch_state import Launch, WaveState, mode_register, waves
from emu.memory import Memory
from emu.translate import (
    COUNT,
    DRIVER,
    MEMORY_FUNCTIONS,
    PC,
    SCRATCH_BYTES,
    SGPRS,
    STATUS,
    WAVE_BYTES,
    Block,
    HostCode,
    discover,
    function_name,
    module_text,
)
from gfx950.isa.encoding import DecodeError, decode
from gfx950.lanes import Mode

ROUNDS_A_CALL = 1 << 16  # then Python looks at the step limit and at Ctrl-C
_RUN_WAVES = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p if c == "p" else ctypes.c_int64 for c in "pipiippppii"])


class HostMachine:
    """One kernel's translated code. Blocks are translated when a wave first reaches a piece of code in a variant."""

    def __init__(self, memory: Memory, code: CodeObject, kernel: Kernel) -> None:
        self.memory, self.kernel = memory, kernel
        run = next(c for c in code.code if c.address <= kernel.entry < c.address + len(c.data))
        self.base, self.bytes = run.address, run.data
        self.mode = Mode.from_bits(mode_register(kernel.descriptor))
        self.slots = np.zeros((2, len(self.bytes) // 4 + 1), dtype=np.uint64)
        self.blocks: dict[int, Block] = {}
        self.lock = threading.Lock()
        self.host = HostCode()
        self.natives = np.zeros(256, dtype=np.uint64)
        self.native_tables: list[Any] = []
        self.driver = _RUN_WAVES(_driver_address(self.host))
        addresses = host_memory.functions()
        self.memory_functions = np.array([addresses[n] for n in MEMORY_FUNCTIONS], dtype=np.uint64)

    # ---- translation ---------------------------------------------------------------------------------------------------

    def translate(self, pc: int, full: bool) -> None:
        """Translates everything reachable from `pc` in one variant."""
        with self.lock:
            if self.slots[0 if full else 1, (pc - self.base) // 4]:
                return
            found = discover(self.bytes, self.base, pc)
            self.blocks.update({a: b for a, b in found.items() if a not in self.blocks})
            blocks = [b for a, b in sorted(found.items()) if not self.slots[0 if full else 1, (a - self.base) // 4]]
            self._compile(blocks, full)

    def _compile(self, blocks: list[Block], full: bool) -> None:
        code = b"".join(d.raw for b in blocks for d in b.instructions)
        starts = ",".join(f"{b.start:x}" for b in blocks)
        text_key = f"{hashlib.sha256(code).hexdigest()}|{starts}|{self.mode}|{full}|{definitions_digest()}"
        names = self.host.add(lambda: module_text(blocks, self.mode, full), text_key)
        self._natives_of(names)
        for block in blocks:
            address = self.host.address(function_name(block.start, full))
            self.slots[0 if full else 1, (block.start - self.base) // 4] = address

    def _natives_of(self, names: list[str]) -> None:
        """Fills in the addresses of the natives a module calls; others stay uncompiled."""
        from gfx950.arithmetic.native import NATIVES

        for name in names:
            self.natives[native_order().index(name)] = NATIVES[name].address

    # ---- running -------------------------------------------------------------------------------------------------------

    def run(self, launch: Launch, options: RunOptions) -> RunReport:
        """Runs all workgroups; ascending starts, `options.threads` at once."""
        report = RunReport()
        ids = launch.geometry.workgroup_ids()
        if options.threads <= 1:
            self._work(launch, options, ids, threading.Lock(), report)
            return report
        lock = threading.Lock()
        with ThreadPoolExecutor(options.threads) as pool:
            jobs = [pool.submit(self._work, launch, options, ids, lock, report) for _ in range(options.threads)]
            for job in jobs:
                job.result()
        return report

    def _work(self, launch: Launch, options: RunOptions, ids: Iterator[Any], lock: threading.Lock, report: RunReport) -> None:
        group = WorkgroupRunner(self, launch, options)
        while True:
            with lock:
                workgroup = next(ids, None)
            if workgroup is None:
                return
            instructions, watch = group.run(workgroup)
            with lock:
                report.instructions += instructions
                report.workgroups += 1
                report.watch = watch or report.watch


class WorkgroupRunner:
    """Memory for the waves of one workgroup at a time, reused for the next."""

    def __init__(self, machine: HostMachine, launch: Launch, options: RunOptions) -> None:
        self.machine, self.launch, self.options = machine, launch, options
        count = launch.geometry.waves_of((0, 0, 0))
        self.storage = _aligned(count * WAVE_BYTES)
        self.waves = self.storage.reshape(count, WAVE_BYTES)
        self.lds = _aligned(max(64, launch.lds_bytes))
        self.scratch = _aligned(SCRATCH_BYTES)
        self.context = np.zeros(host_memory.CONTEXT_WORDS, dtype=np.uint64)

    def run(self, workgroup: tuple[int, int, int]) -> tuple[int, Watch | None]:
        """Runs one workgroup to its end. Returns wave instructions and the watched store."""
        states = waves(self.launch, workgroup)
        self._reset(states)
        left = self.options.step_limit
        while True:
            stopped = self._call(len(states))
            done = int(self._words(COUNT, len(states)).sum())
            if stopped == 0:
                return done, self._watch(workgroup)
            if done > left:
                raise NoProgress(
                    f"the step limit of {left} wave instructions is used up",
                    advice="raise step_limit, or look for a wait that nobody ends",
                    kernel=self.machine.kernel.name,
                    workgroup=workgroup,
                )
            if stopped > 0:
                self._attend(workgroup, stopped - 1)

    def _call(self, count: int) -> int:
        machine = self.machine
        pointers = [a.ctypes.data for a in (self.context, machine.memory_functions, machine.natives, self.scratch)]
        return int(
            machine.driver(
                self.storage.ctypes.data,
                count,
                machine.slots.ctypes.data,
                machine.base,
                4 * machine.slots.shape[1],
                *pointers,
                ROUNDS_A_CALL,
                self.options.quantum,
            )
        )

    def _reset(self, states: tuple[WaveState, ...]) -> None:
        self.storage[:] = 0
        self.lds[:] = 0
        self.context[:] = 0
        self.context[host_memory.LDS] = self.lds.ctypes.data
        self.context[host_memory.LDS_BYTES] = self.launch.lds_bytes
        self.context[host_memory.TABLE] = self.machine.memory.table.ctypes.data
        if self.options.watch is not None:
            self.context[host_memory.WATCH_LOW], self.context[host_memory.WATCH_HIGH] = self.options.watch
        for state, row in zip(states, self.waves, strict=False):
            row[: 64 * 4].view(np.uint32)[:] = state.vgpr0
            row[SGPRS : SGPRS + 512].view(np.uint32)[:] = state.sgprs
            row[PC : PC + 8].view(np.uint64)[0] = state.pc

    def _words(self, offset: int, count: int) -> Any:
        return self.waves[:count, offset : offset + 8].copy().view(np.uint64)[:, 0]

    def _attend(self, workgroup: tuple[int, int, int], wave: int) -> None:
        """A wave needs Python: translation of new code, or an error to raise."""
        row, machine = self.waves[wave], self.machine
        pc = int(row[PC : PC + 8].view(np.uint64)[0])
        status = int(row[STATUS : STATUS + 8].view(np.uint64)[0])
        where: dict[str, Any] = {"kernel": machine.kernel.name, "workgroup": workgroup, "wave": wave, "pc": pc}
        if status == 3:
            raise self._memory_fault(where, pc)
        if status == 4:
            raise UnknownInstruction(self._stop_reason(pc), **where)
        if not machine.base <= pc < machine.base + len(machine.bytes) or pc % 4:
            raise EmulatorError(
                f"the program counter left the code ({machine.base:#x} .. {machine.base + len(machine.bytes):#x})",
                advice="a jump went wrong, or the kernel has no s_endpgm at its end",
                **where,
            )
        active = row[SGPRS + 4 * 126 : SGPRS + 4 * 128].view(np.uint64)[0]
        machine.translate(pc, int(active) == host_memory.ALL)

    def _stop_reason(self, pc: int) -> str:
        blocks = [b for b in self.machine.blocks.values() if b.error and (b.end == pc or any(d.pc == pc for d in b.instructions))]
        return next((str(b.error) for b in blocks), f"pc 0x{pc:x}: this instruction cannot be run")

    def _memory_fault(self, where: dict[str, Any], pc: int) -> MemoryFault:
        lane, address, nbytes = (
            int(self.context[i]) for i in (host_memory.FAULT_LANE, host_memory.FAULT_ADDRESS, host_memory.FAULT_BYTES)
        )
        return MemoryFault(
            f"{nbytes}-byte access: {self.machine.memory.describe(address)}",
            expected="an address inside a mapped buffer",
            advice="check the index arithmetic of this lane, or map the slack the kernel prefetches into",
            lane=lane,
            address=address,
            instruction=instruction_name(self.machine.bytes, self.machine.base, pc),
            **where,
        )

    def _watch(self, workgroup: tuple[int, int, int]) -> Watch | None:
        if not self.context[host_memory.WATCH_SEEN]:
            return None
        pc = int(self.context[host_memory.WATCH_PC])
        name = instruction_name(self.machine.bytes, self.machine.base, pc)
        return Watch(workgroup, int(self.context[host_memory.WATCH_WAVE]), int(self.context[host_memory.WATCH_LANE]), pc, name)


def instruction_name(code: bytes, base: int, pc: int) -> str:
    """The mnemonic at an address."""
    try:
        return decode(code, pc, base).instruction.name
    except DecodeError as error:
        return str(error)


def _aligned(nbytes: int) -> Any:
    """A zeroed uint8 array whose first byte lies on a cache line."""
    room = np.zeros(nbytes + 64, dtype=np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + nbytes]


_DRIVERS: dict[str, HostCode] = {}


def _driver_address(like: HostCode) -> int:
    if "driver" not in _DRIVERS:
        code = HostCode(opt=2)
        code.add(lambda: (DRIVER, []), f"driver|{hashlib.sha256(DRIVER.encode()).hexdigest()}")
        _DRIVERS["driver"] = code
    return _DRIVERS["driver"].address("run_waves")


def definitions_digest() -> str:
    """A digest of every file whose change can change translated code."""
    if "digest" not in _DIGESTS:
        import emu
        import gfx950

        total = hashlib.sha256()
        for package in (gfx950, emu):
            for folder in package.__path__:
                for path in sorted(_python_files(folder)):
                    with open(path, "rb") as file:
                        total.update(file.read())
        _DIGESTS["digest"] = total.hexdigest()
    return _DIGESTS["digest"]


_DIGESTS: dict[str, str] = {}


def _python_files(folder: str) -> list[str]:
    from pathlib import Path

    return [str(p) for p in Path(folder).rglob("*.py")]
