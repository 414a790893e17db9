"""Finds the first instruction after which one wave's registers differ between two ways to run a launch.

    finding = find_first_difference(job, workgroup=(3, 0, 0), wave=1, suspect=RunOptions(engine="device"))
    print(finding)

The wave is one whose result is known to differ, from a watchpoint (`emu.dispatch.Watch`). Its instructions come from
the numpy engine; both ways then run variants that dump the wave's registers (emu.instrument), at points that halve the
stretch between a moment where they agree and one where they do not: about log2 of the instructions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np

from emu.bisect_compare import ACCUMULATORS, Base, Difference, differences, pointer_base
from emu.bisect_trace import Loads, Trace
from emu.dispatch import RunOptions
from emu.errors import LaunchError
from emu.geometry import Dimensions
from emu.instrument import Point
from emu.instrument_registers import Registers, linked_code
from emu.instrument_run import Job, Place, Run, run
from emu.source_lines import SourceLine, source_lines
from gfx950.isa.text import instruction_text

PROBED_STORES = 16  # where differences are looked for when there is none at the end
ENTRY_BYTES = 1 << 24  # of code around the kernel's first instruction whose addresses are known
KERNARG_BYTES = 1 << 12
LOADS = re.compile(r"(global|flat|buffer|tbuffer|scratch|s|s_buffer|s_scratch)_(load|atomic)|ds_.*(read|load|rtn)")
SHOWN = 8
_REGISTER = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")


@dataclass(frozen=True)
class Finding:
    """Where two runs of a wave part.

    kind: `instruction`, whose result differs; `load`, of memory that may have been wrong already: `addresses` and
    `places` (of the arrays) are the emulator's, by lane, `in_lds` says that they are LDS's; `branch`, where one run
    goes another way; `start`, when registers differ before the first instruction; `memory`, when registers never
    differ where they were looked at but arrays do; `none`, when these do not either. index of total: of the wave's
    instructions, from 0. inputs: the values of the registers that the instruction names, before it, the same in both
    runs. undefined: those of them that nobody has written. runs: how many variants were run.
    """

    kind: str
    workgroup: Dimensions
    wave: int
    total: int
    runs: int
    index: int | None = None
    point: Point | None = None
    instruction: str = ""
    source: SourceLine | None = None
    differences: tuple[Difference, ...] = ()
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    undefined: tuple[str, ...] = ()
    addresses: dict[int, int] = field(default_factory=dict)
    in_lds: bool = False
    places: tuple[Place, ...] = ()
    arrays: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"workgroup {self.workgroup}, wave {self.wave}: {self._what()}", *self._lines()])

    def origin(self, lane: int) -> tuple[int | str, int] | None:
        """The argument and the byte in it that a `load` read in a lane, for a watchpoint: (argument, offset). None for
        LDS and for memory that is no argument's."""
        address = None if self.in_lds else self.addresses.get(lane)
        if address is None:
            return None
        place = next((p for p in self.places if p.address <= address < p.address + p.nbytes), None)
        return None if place is None else (place.argument, address - place.address)

    def _memory(self, lane: int) -> str:
        if lane not in self.addresses:
            return "its memory"
        found, address = self.origin(lane), self.addresses[lane]
        if found is not None:
            return f"byte {found[1]} of argument {found[0]}"
        return f"byte {address} of LDS" if self.in_lds else f"address {address:#x}"

    def _what(self) -> str:
        if self.kind == "none":
            return f"no difference found in {self.total} instructions or in the arrays"
        if self.kind == "memory":
            arrays = ", ".join(map(str, self.arrays))
            return (
                f"registers do not differ where they were compared, but arguments {arrays} do: a store itself went"
                " wrong, or another wave's"
            )
        if self.kind == "start" or self.point is None:
            return "registers differ before the first instruction"
        place = f"at offset {self.point.offset:#x}, occurrence {self.point.occurrence}"
        line = f" ({self.source.file}:{self.source.line})" if self.source else ""
        return f"the first difference comes from `{self.instruction}` {place}{line}, instruction {self.index}"

    def _lines(self) -> list[str]:
        lines = [f"  {d}" for d in self.differences[:SHOWN]]
        lines += [f"  and {len(self.differences) - SHOWN} more registers"] * (len(self.differences) > SHOWN)
        first = {lane for d in self.differences for lane in d.lanes[:1]}
        for name, values in list(self.inputs.items())[:SHOWN]:
            shown = values if len(values) == 1 else [values[lane] for lane in sorted(first)[:1] or [0]]
            where = "" if len(values) == 1 else f" lane {sorted(first)[0] if first else 0}"
            lines.append(f"  before it, in both: {name}{where} = {shown[0]:#x}")
        if self.undefined:
            lines.append(f"  it names registers that nothing has written: {', '.join(self.undefined)}")
        if self.kind == "load":
            lane = next((lane for lane in sorted(first) if lane in self.addresses), min(self.addresses, default=0))
            lines.append(f"  it loads: look at who wrote {self._memory(lane)} (lane {lane})")
        if self.kind == "branch":
            lines.append("  its registers agree and the runs part here: the branch itself went another way")
        return lines


def find_first_difference(
    job: Job,
    workgroup: Dimensions,
    wave: int,
    suspect: RunOptions,
    reference: RunOptions | None = None,
    until: tuple[int, int] | None = None,
) -> Finding:
    """Where the registers of a wave first differ between two ways to run a launch.

    reference: of the emulator; suspect: any way, often RunOptions(engine="device"). until: (offset, occurrence) of an
    instruction before which they are known to differ, e.g. the store of a wrong element; occurrence 0 for the last.
    Without it the wave's end is looked at, then some of its stores.
    Only registers that the reference run has written by then are compared: others hold anything on a chip.
    Raises LaunchError for a wave that does not exist, a reference on a device and an `until` that never ran.
    """
    chosen = reference or RunOptions()
    if chosen.engine == "device":
        raise LaunchError("the reference runs on a device", expected="an engine of the emulator as the reference")
    trace = Trace(workgroup, wave)
    run(job, None, RunOptions(engine="numpy", model=chosen.model, quantum=chosen.quantum, observers=(trace,)))
    if not trace.offsets:
        raise LaunchError(f"workgroup {workgroup} has no wave {wave}, or it never ran", kernel=job.kernel)
    search = _Search(job, trace, chosen, suspect)
    high = _last(search, trace, until, job)
    return search.nothing() if high is None else search.between(high)


def _last(search: _Search, trace: Trace, until: tuple[int, int] | None, job: Job) -> int | None:
    """An index before which registers differ; None where none was found."""
    if until is not None:
        index = trace.index(*until)
        if index is None:
            raise LaunchError(
                f"the wave does not run the instruction at offset {until[0]:#x} {until[1]} times",
                expected="the offset and occurrence of an instruction that it runs",
                kernel=job.kernel,
            )
        return index if search.differs(index) else None
    stores = trace.stores
    count = min(len(stores), PROBED_STORES)
    probed = {stores[n] for n in np.linspace(0, max(0, len(stores) - 1), count).astype(int)}
    return next((n for n in [len(trace.offsets) - 1, *sorted(probed)] if search.differs(n)), None)


class _Search:
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
            point = self.trace.point(index)
            theirs = run(self.job, point, self.suspect)
            mine = run(self.job, point, self.reference, lows=[place.address % (1 << 32) for place in theirs.places])
            self.runs += 2
            here, there = _registers(mine), _registers(theirs)
            self.registers[index] = here
            bases = self._bases(mine, theirs)
            self.seen[index] = differences(here, there, self.trace.written(index), bases)
        return self.seen[index]

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
        return self._start() if low < 0 else self._at(low)

    def _start(self) -> Finding:
        return self._finding("start", differences=tuple(self.compared(0)))

    def _finding(self, kind: str, **more: object) -> Finding:
        trace = self.trace
        one = Finding(kind, trace.workgroup, trace.wave, len(trace.offsets), self.runs)
        return replace(one, **more)  # type: ignore[arg-type]

    def _at(self, index: int) -> Finding:
        """The finding of an instruction before which registers agree and after which they do not."""
        loaded, kernel = linked_code(self.job.code, self.job.kernel)
        point, code = self.trace.point(index), loaded.code_of(kernel)
        text = instruction_text(code.data, code.address, kernel.entry + point.offset)
        parted = tuple(self.compared(index + 1))
        kind = "branch" if parted[0].register == "reached" else "load" if LOADS.match(text) else "instruction"
        loads, places = Loads(point), []
        if kind == "load":
            how = RunOptions(engine="numpy", model=self.reference.model, observers=(loads,))
            places = run(self.job, None, how).places
        inputs, undefined = self._inputs(index, text)
        lines = source_lines(loaded)
        before = [address for address in lines if address <= kernel.entry + point.offset]
        return self._finding(
            kind, index=index, point=point, instruction=text, source=lines[max(before)] if before else None,
            differences=parted, inputs=inputs, undefined=undefined, addresses=loads.addresses,
            in_lds=loads.lds, places=tuple(places),
        )  # fmt: skip

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

    def nothing(self) -> Finding:
        """When registers agree wherever they were compared: whether memory does."""
        mine, theirs = (run(self.job, None, how) for how in (self.reference, self.suspect))
        wrong = tuple(name for name, array in mine.arrays.items() if not np.array_equal(array, theirs.arrays[name]))
        return self._finding("memory" if wrong else "none", arrays=wrong)


def _named(text: str) -> list[tuple[str, str, int]]:
    """The registers in a piece of assembly text, one by one: name, kind (v, s, a) and number."""
    found = _REGISTER.findall(text)
    runs = [(kind, range(int(one or first), int(one or last) + 1)) for kind, one, first, last in found]
    return [(f"{kind}{number}", kind, number) for kind, numbers in runs for number in numbers]


def _registers(one: Run) -> Registers:
    assert one.registers is not None
    return one.registers
