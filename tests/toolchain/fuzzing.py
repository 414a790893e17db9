"""Fuzzing: random programs on both engines, damaged code objects on the host engine, in processes that may die.

    python tests/toolchain/fuzzing.py --count 100000 --jobs 2 [--kind objects]

prints how the cases ended. A case must end in a normal run or in an error of the emulator: no crash, no hang, no other
exception, no byte outside the arrays a kernel was given changed (zones around every array of the machine are checked),
and on both engines alike, with the same bits in memory and registers. Each case follows from its seed alone.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import functools
import multiprocessing
import random
import sys
import time
from collections import Counter

import numpy as np
from kernel_builds import compile_c
from random_garbage import random_code, random_instruction
from random_programs import Program, legal_instruction, random_program, starting_scalars, starting_vectors
from random_runs import BUFFER, KEPT, ROOM, fresh_buffer, object_of, outcome, template
from wave_registers import registers_of

from emu import host_machine, resident
from emu.blocks import discover
from emu.dispatch import Device, RunOptions
from emu.errors import EmulatorError
from emu.geometry import Geometry
from emu.launch import prepare
from emu.memory import PRIVATE_APERTURE, SHARED_APERTURE
from emu.translate import function_name, module_text
from gfx950 import host_code
from gfx950.arithmetic import mfma, transcendental  # noqa: F401  for their natives
from gfx950.arithmetic.native import NATIVES
from gfx950.host_code import Translation
from gfx950.isa.encoding import encode
from gfx950.lanes import Mode

ZONE = 4096  # bytes on either side of every array
MARK = 0xA5
STEPS = 2000  # instructions a workgroup may take
SECONDS = 120  # without a sign of life before a process counts as hanging
BATCH = 400  # cases of one process: translated code is never given back
# One damaged code object in eight cases, nothing else, none; and STREAMS short instruction streams a case.
KINDS = ("mixed", "objects", "programs", "streams")
STREAMS = 40
NUMBERS = [0, 1, 0x7F, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
SOURCE = """
SHARED(u32, shared, 256);
static __attribute__((noinline)) u32 sum(const u32* p, u32 n) { u32 s = 0; while (n--) s = s * 7 + *p++; return s; }
KERNEL many(GLOBAL u32* out, u32 n, float x) {
    u32 local[16];
    for (u32 i = 0; i < 16; i++) local[i] = ITEM * i + n;
    shared[ITEM & 255] = sum(local, n & 15);
    BARRIER();
    __atomic_fetch_add(out, shared[(ITEM + 1) & 255], __ATOMIC_RELAXED);
    switch (n & 7) { case 0: x += 1; break; case 1: x *= 2; break; case 2: x /= 3; break; case 3: x -= ITEM; break;
                     case 4: x = -x; break; case 5: x = __builtin_sqrtf(x); break; default: x = ITEM; }
    out[64 + ITEM % 64] = (u32)(i32)x;
}
"""
BLOCK = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5)
_zones: list[np.ndarray] = []


def guarded(nbytes: int) -> np.ndarray:
    """As `emu.resident.aligned`, with a marked zone before and behind."""
    room = np.full(nbytes + 2 * ZONE + 64, MARK, np.uint8)
    start = ZONE + -(room.ctypes.data + ZONE) % 64
    room[start : start + nbytes] = 0
    _zones.extend((room[:start], room[start + nbytes :]))
    return room[start : start + nbytes]


@functools.cache
def objects() -> list[bytes]:
    return [compile_c(SOURCE, level) for level in ("-O0", "-O2")] + [template()]


def damaged(rng: np.random.Generator) -> bytes:
    """A code object with bits flipped, bytes replaced, pieces copied over others, or its end cut off."""
    data = bytearray(objects()[rng.integers(len(objects()))])
    for _ in range(int(rng.integers(1, 5))):
        at, kind = int(rng.integers(len(data))), rng.integers(5)
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            data[at : at + 4] = rng.bytes(4)
        elif kind == 2:
            other = int(rng.integers(len(data)))
            data[at : at + 64] = data[other : other + 64]
        elif kind == 3:
            data[at : at + 8] = NUMBERS[rng.integers(len(NUMBERS))].to_bytes(8, "little")
        elif rng.random() < 0.3:
            del data[at:]
            data = data or bytearray(b"\x7f")
    return bytes(data)


def run_case(seed: int, kind: str = "mixed") -> str:
    """Runs one case; how it ended. kind: one of KINDS.

    Raises whatever is no error of the emulator, AssertionError for a touched zone and for engines that differ.
    """
    _zones.clear()
    rng = np.random.default_rng(seed)
    if kind == "streams":
        ending = run_streams(rng)
        assert all((zone == MARK).all() for zone in _zones), f"seed {seed}: bytes outside the kernel's arrays changed"
        return ending
    is_object = kind == "objects" or (kind == "mixed" and seed % 8 == 1)
    ending = run_object(damaged(rng), seed) if is_object else run_program(program(rng, seed), seed)
    assert all((zone == MARK).all() for zone in _zones), f"seed {seed}: bytes outside the kernel's arrays changed"
    return ending


def program(rng: np.random.Generator, seed: int) -> Program:
    """The program of a case: one in eight is garbage."""
    made = random_program(rng, BUFFER, SHARED_APERTURE, PRIVATE_APERTURE, 4 * ROOM - 4)
    return made if seed % 8 else dataclasses.replace(made, code=random_code(rng))


def run_program(made: Program, seed: int) -> str:
    """Runs a program on both engines; how it ended on both."""
    outcomes, block = [], (64, 1, 64, 100)[seed // 3 % 4]
    for engine in ("host", "numpy"):
        buffer = guarded(len(fresh_buffer()))
        buffer[:] = fresh_buffer()
        quantum = (1, 8, 32)[seed % 3] if block <= 64 else 1  # turns end between blocks: the longer, the other way
        options = RunOptions(engine=engine, step_limit=STEPS, quantum=quantum)
        outcomes.append(outcome(object_of(made), made, buffer, options, block))
    differing = outcomes[0].difference(outcomes[1])
    assert not differing, f"seed {seed}: the engines differ: {differing}; code {made.code.hex()}"
    return outcomes[0].ending.split(":")[0]


def run_object(data: bytes, seed: int) -> str:
    """Loads a code object and runs kernels of it; how it ended."""
    buffer = guarded(16384)
    device = Device()
    device.map(buffer, "buffer")
    options = RunOptions(step_limit=STEPS, threads=1 + seed // 8 % 2)
    try:
        module = device.load(data)
        for name in module.kernels[:2]:
            kernel = module[name]
            explicit = kernel.kernel.explicit
            arguments = [buffer if a.value_kind == "global_buffer" else 3 for a in explicit]
            block = min(kernel.kernel.max_flat_workgroup_size, (1, 64, 100)[seed % 3])
            given = arguments if kernel.kernel.has_metadata else [bytes(256)]
            kernel[1 + seed // 8 % 2, block](*given, options=options)
    except EmulatorError as error:
        str(error)
        return type(error).__name__
    return "done"


def stream(rng: np.random.Generator) -> bytes:
    """A few instructions: legal ones, ones with random fields, or random bytes."""
    kind, choices = rng.integers(8), random.Random(int(rng.integers(1 << 62)))
    if kind == 0:
        return rng.bytes(4 * int(rng.integers(1, 6)))
    make = (lambda: random_instruction(rng)) if kind < 4 else (lambda: encode(legal_instruction(choices)))
    return b"".join(make() for _ in range(int(rng.integers(1, 4))))


def run_streams(rng: np.random.Generator) -> str:
    """Translates short streams together and calls each as the driver would, from random registers."""
    buffer = guarded(len(fresh_buffer()))
    device = Device()
    address = device.map(buffer, "buffer")
    kernel = device.load(template())["k"]
    launch = prepare(kernel.kernel, Geometry.of_blocks(1, 64), bytes(256), device.memory)
    machine = host_machine.HostMachine(device.memory, kernel.module.code, kernel.kernel)
    group = host_machine.HostWorkgroup(machine, launch, RunOptions())
    starts = {0x1000 * (i + 1): stream(rng) for i in range(STREAMS)}
    blocks = [block for at, code in starts.items() for block in discover(code, at, at).values() if block.start == at]
    nearest = ~0xF if rng.integers(8) else ~0  # the other roundings take long to translate
    text, natives, _ = module_text(blocks, Mode.from_bits(int(rng.integers(1 << 24)) & nearest), False)
    host = host_code.HostCode()
    host.add(lambda: Translation(text), None)
    machine.call_natives(natives)
    vectors = starting_vectors(rng, address, SHARED_APERTURE, PRIVATE_APERTURE)
    scalars = starting_scalars(rng, address)
    free = [number for number in range(len(scalars)) if number not in KEPT]
    for block in blocks:
        group.begin(0, (0, 0, 0))
        (registers,) = registers_of(group)
        registers.vectors[:] = vectors
        registers.scalars[free] = scalars[free]
        function = BLOCK(host.address(function_name(block.start, False)))
        function(group.storage_at, *group.call_arguments[2:6])
    return "done"


def _keep_in_process() -> None:
    """Keeps translations in this process alone: most damage leaves the code as it was, and no case fills the disk."""
    kept, read = {}, host_code._read
    host_code._keep = lambda path, *translation: kept.__setitem__(path, translation)
    host_code._read = lambda path: kept.get(path) or read(path)


def _work(seeds: list[int], kind: str, pipe) -> None:
    _keep_in_process()
    resident.aligned = host_machine.aligned = guarded
    for seed in seeds:
        pipe.send((seed, None))
        try:
            ending = run_case(seed, kind)
        except BaseException as error:
            ending = f"FAILED {type(error).__name__}: {error}"
        pipe.send((seed, ending))


class Worker:
    """One process with a batch of seeds."""

    def __init__(self, seeds: list[int], kind: str) -> None:
        self.seeds, self.seen = seeds, time.monotonic()
        self.current: int | None = None
        self.pipe, there = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=_work, args=(seeds, kind, there), daemon=True)
        self.process.start()
        there.close()

    def poll(self, endings: Counter[str], findings: list[str]) -> bool:
        """Takes up what the process said. False when it is through or gone; what is left stays in `seeds`."""
        try:
            while self.pipe.poll(0.02):
                seed, ending = self.pipe.recv()
                self.seen, self.current = time.monotonic(), seed if ending is None else None
                if ending is not None:
                    self.seeds.remove(seed)
                    endings[ending.split(":")[0]] += 1
                    if ending.startswith("FAILED"):
                        findings.append(f"seed {seed}: {ending}")
        except EOFError:
            self.process.join()
            self._lost(f"died with exit code {self.process.exitcode}", endings, findings)
            return False
        if time.monotonic() - self.seen > SECONDS:
            self.process.kill()
            self._lost(f"ran for more than {SECONDS} s", endings, findings)
            return False
        return True

    def _lost(self, what: str, endings: Counter[str], findings: list[str]) -> None:
        if self.current is not None:
            self.seeds.remove(self.current)
            endings[f"FAILED {what.split(' with')[0]}"] += 1
            findings.append(f"seed {self.current}: the process {what}")


def fuzz(first: int, count: int, jobs: int, kind: str = "mixed") -> tuple[Counter[str], list[str]]:
    """Runs the seeds from `first` on. kind: one of KINDS. Returns how many ended in which way, and what is wrong."""
    objects()
    for native in NATIVES.values():
        native.address  # noqa: B018  compiled once, not in every process
    waiting = [list(range(at, min(at + BATCH, first + count))) for at in range(first, first + count, BATCH)]
    endings: Counter[str] = Counter()
    findings: list[str] = []
    workers: list[Worker] = []
    while waiting or workers:
        while waiting and len(workers) < jobs:
            workers.append(Worker(waiting.pop(0), kind))
        for worker in list(workers):
            if not worker.poll(endings, findings):
                workers.remove(worker)
                if worker.seeds:
                    waiting.insert(0, worker.seeds)
    return endings, findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kind", choices=KINDS, default="mixed")
    chosen = parser.parse_args()
    endings, findings = fuzz(chosen.first, chosen.count, chosen.jobs, chosen.kind)
    print(f"{endings.total()} cases:", ", ".join(f"{n} {ending}" for ending, n in endings.most_common()))
    print("\n".join(findings) or "no crash, no hang, no foreign error, no byte outside")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
