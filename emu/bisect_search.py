"""The runs of one search: what differs before which instruction of a wave, and where that begins."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from emu.bisect_compare import ACCUMULATORS, Base, Difference, differences, pointer_base
from emu.bisect_finding import Finding
from emu.bisect_trace import LastStores, Loads, StoreAt, Trace, works_alone
from emu.dispatch import RunOptions
from emu.geometry import Dimensions
from emu.instrument import Point
from emu.instrument_registers import ROW, Registers, linked_code
from emu.instrument_run import Job, Run, run
from emu.observers import Observer
from emu.source_lines import SourceLine, source_lines
from gfx950.isa.text import instruction_text

ENTRY_BYTES = 1 << 24  # of code around the kernel's first instruction whose addresses are known
KERNARG_BYTES = 1 << 12
WIDEST = 16  # bytes that a lane moves at one address
MOST_BYTES = 1 << 14  # of an array whose writers are asked for
AGAIN_IF_FOREIGN = 4  # comparisons that must come out the same when an instruction seems to change another's register
READS_LDS = re.compile(r"ds_(read|load|bpermute|permute|swizzle|nop)")
LOADS = re.compile(r"(global|flat|buffer|tbuffer|scratch|s|s_buffer|s_scratch)_(load|atomic)|ds_.*(read|load|rtn)")
_REGISTER = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")


def observed(how: RunOptions, observer: Observer) -> RunOptions:
    """The same on the engine that an observer sees."""
    return replace(how, engine="numpy", threads=1, observers=(observer,))


def traced(job: Job, workgroup: Dimensions, wave: int, how: RunOptions) -> Trace:
    """What a wave of a launch does."""
    trace = Trace(workgroup, wave, works_alone(job.code, job.kernel))
    run(job, None, observed(how, trace))
    return trace


class Search:
    """The runs of one search, each made once."""

    def __init__(self, job: Job, trace: Trace, reference: RunOptions, suspect: RunOptions) -> None:
        self.job, self.trace, self.reference, self.suspect = job, trace, reference, suspect
        self.seen: dict[int, list[Difference]] = {}
        self.registers: dict[int, Registers] = {}
        self.runs = 0

    def differs(self, index: int) -> bool:
        """Whether registers differ before an instruction."""
        return bool(self.compared(index))

    def compared(self, index: int) -> list[Difference]:
        """What differs before an instruction."""
        if index not in self.seen:
            self.seen[index] = self._compared(index)
        return self.seen[index]

    def _compared(self, index: int) -> list[Difference]:
        """The same, run anew."""
        point = self.trace.point(index)
        theirs = run(self.job, point, self.suspect)
        mine = run(self.job, point, self.reference, lows=[place.address % (1 << 32) for place in theirs.places])
        self.runs += 2
        here, there = _registers(mine), _registers(theirs)
        self.registers[index] = here
        return differences(here, there, self.trace.written(index), self._bases(mine, theirs))

    def _bases(self, mine: Run, theirs: Run) -> list[Base]:
        here, there = _registers(mine), _registers(theirs)
        bases = [Base(a.address, b.address, a.nbytes) for a, b in zip(mine.places, theirs.places, strict=True)]
        found = [pointer_base(here, there, pointer, KERNARG_BYTES) for pointer in self.trace.pointers]
        if there.reached:
            bases.append(Base(here.entry - ENTRY_BYTES // 2, there.entry - ENTRY_BYTES // 2, ENTRY_BYTES))
            bases.append(Base(here.entry, there.entry, 0))
        bases += [base for base in found if base is not None]
        return [base for base in bases if base.reference != base.suspect]

    def between(self, high: int) -> Finding:
        """Halves the stretch below an index where registers differ."""
        low = -1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.differs(middle) else (middle, high)
        return self._steady(low, self._start() if low < 0 else self._at(low))

    def _steady(self, low: int, found: Finding) -> Finding:
        """The finding, or that there is none: where runs may differ from each other, both moments are compared again.

        Once as a rule. More often when a register differs that the instruction does not name, as another wave's work
        that came between the two moments would leave it.
        """
        if all(how.engine != "device" and how.threads == 1 for how in (self.reference, self.suspect)):
            return found
        named = {name for name, _, _ in _named(found.instruction)}
        foreign = any(_REGISTER.fullmatch(d.register) and d.register not in named for d in found.differences)
        for _ in range(AGAIN_IF_FOREIGN if foreign else 1):
            for index, differed in ((low, False), (low + 1, True)):
                if index >= 0 and bool(self._compared(index)) != differed:
                    return self._finding("unsteady", index=index, point=self.trace.point(index))
        return replace(found, runs=self.runs)

    def _start(self) -> Finding:
        return self._finding("start", differences=tuple(self.compared(0)))

    def _finding(self, kind: str, **more: object) -> Finding:
        trace = self.trace
        one = Finding(kind, trace.workgroup, trace.wave, len(trace.offsets), self.runs)
        return replace(one, **more)  # type: ignore[arg-type]

    def _at(self, index: int) -> Finding:
        """The finding of an instruction before which registers agree and after which they do not."""
        point, text = self.trace.point(index), self._text(index)
        parted = tuple(self.compared(index + 1))
        kind = "branch" if parted[0].register == "reached" else "load" if LOADS.match(text) else "instruction"
        loads, places = Loads(point), []
        if kind == "load":
            places = run(self.job, None, self._observed(loads)).places
            kind = "instruction" if loads.lds and self.same_lds(index, loads.touched) else kind
        inputs, undefined = self._inputs(index, text)
        return self._finding(
            kind, index=index, point=point, instruction=text, source=self._source(point),
            differences=parted, inputs=inputs, undefined=undefined, addresses=loads.addresses,
            in_lds=loads.lds, places=tuple(places),
        )  # fmt: skip

    def _text(self, index: int) -> str:
        loaded, kernel = linked_code(self.job.code, self.job.kernel)
        code = loaded.code_of(kernel)
        return instruction_text(code.data, code.address, kernel.entry + self.trace.offsets[index])

    def _source(self, point: Point) -> SourceLine | None:
        loaded, kernel = linked_code(self.job.code, self.job.kernel)
        lines = source_lines(loaded)
        before = [address for address in lines if address <= kernel.entry + point.offset]
        return lines[max(before)] if before else None

    def _inputs(self, index: int, text: str) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
        """The registers that an instruction names, before it, and those among them that nobody has written."""
        if index not in self.registers:
            self.compared(index)
        here, written = self.registers[index], self.trace.written(index)
        operands = text.partition(" ")[2]
        results = {name for name, _, _ in _named(operands.partition(",")[0])}
        values: dict[str, tuple[int, ...]] = {}
        undefined = []
        for name, kind, number in _named(operands):
            value: tuple[int, ...]
            if kind == "s":
                value, known = (int(here.sgprs[number]),), bool(written.sgprs[number])
            else:
                rows = here.vgprs if kind == "v" else here.agprs
                value = tuple(int(x) for x in rows[number])
                known = bool(written.vgprs[number + ACCUMULATORS * (kind == "a")].any())
            if known:
                values[name] = value
            elif name not in results:
                undefined.append(name)
        return values, tuple(undefined)

    def _observed(self, observer: Observer) -> RunOptions:
        return observed(self.reference, observer)

    def trace_of(self, workgroup: Dimensions, wave: int) -> Trace:
        """What another wave does."""
        return traced(self.job, workgroup, wave, self.reference)

    # ---- memory ------------------------------------------------------------------------------------------------------

    def same_lds(self, index: int, addresses: list[int]) -> bool:
        """Whether the LDS of the wave's workgroup is the same in both before an instruction, at these addresses."""
        granted = _lds_bytes(self.job)
        inside = [a for a in addresses if 0 <= a < granted]
        if not inside or index >= len(self.trace.offsets):
            return False
        mine, theirs = (
            run(self.job, self.trace.point(index), how, lds=granted) for how in (self.reference, self.suspect)
        )
        self.runs += 2
        here, there = _registers(mine), _registers(theirs)
        widest = np.unique(np.add.outer(inside, np.arange(WIDEST)).ravel())
        at = widest[widest < granted]
        return here.reached and there.reached and bool(np.array_equal(here.lds[at], there.lds[at]))

    def stored(self, index: int) -> Finding | None:
        """An instruction before which registers agree, where it stores in LDS what differs afterwards."""
        loads = Loads(self.trace.point(index))
        run(self.job, None, self._observed(loads))
        text = self._text(index)
        writes = loads.touched and not READS_LDS.match(text)
        if not writes or not self.same_lds(index, loads.touched) or self.same_lds(index + 1, loads.touched):
            return None
        return self._store(index, in_lds=True)

    def store(self, index: int, wrong: WrongMemory) -> Finding:
        """An instruction before which registers agree, which stored last where arrays differ."""
        return self._store(index, arrays=wrong.arrays)

    def _store(self, index: int, **more: object) -> Finding:
        point = self.trace.point(index)
        inputs, undefined = self._inputs(index, self._text(index))
        return self._finding(
            "store", index=index, point=point, instruction=self._text(index), source=self._source(point),
            inputs=inputs, undefined=undefined, **more,
        )  # fmt: skip

    def wrong_memory(self) -> WrongMemory:
        """What differs in the arrays after the launch, and who stored there last in the reference."""
        mine = run(self.job, None, self.reference)
        theirs = run(self.job, None, self.suspect)
        self.runs += 2
        starts, names = [], []
        traced = run(self.job, None, self._observed(Observer())).places
        for place in traced:
            differs = np.flatnonzero(mine.arrays[place.argument] != theirs.arrays[place.argument])[:MOST_BYTES]
            starts.append(differs.astype(np.uint64) + np.uint64(place.address))
            names += [place.argument] * bool(differs.size)
        last = LastStores(np.sort(np.concatenate([*starts, np.zeros(0, np.uint64)])))
        if names:
            run(self.job, None, self._observed(last))
        return WrongMemory(tuple(names), last.last())

    def nothing(self, wrong: WrongMemory) -> Finding:
        """When registers agree wherever they were compared: whether memory does."""
        return self._finding("memory" if wrong.arrays else "none", arrays=wrong.arrays)


@dataclass(frozen=True)
class WrongMemory:
    """Differing arrays, by argument, and the last stores of differing bytes in their order."""

    arrays: tuple[int | str, ...]
    stores: list[StoreAt]


def _lds_bytes(job: Job) -> int:
    """The LDS of a workgroup, in whole rows of a dump."""
    _, kernel = linked_code(job.code, job.kernel)
    return (kernel.descriptor.group_segment + job.dynamic_lds) // ROW * ROW


def _named(text: str) -> list[tuple[str, str, int]]:
    """The registers in a piece of assembly text, one by one: name, kind (v, s, a) and number."""
    found = _REGISTER.findall(text)
    runs = [(kind, range(int(one or first), int(one or last) + 1)) for kind, one, first, last in found]
    return [(f"{kind}{number}", kind, number) for kind, numbers in runs for number in numbers]


def _registers(one: Run) -> Registers:
    assert one.registers is not None
    return one.registers
