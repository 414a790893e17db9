"""Where a comparison goes wrong inside a kernel: the first wrong instruction of the wave that wrote a wrong element,
and its registers at a chosen instruction, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from codegen.kernel_package import Watchpoint
from emu.bisect import Finding, find_first_difference
from emu.bisect_compare import Difference
from emu.bisect_search import Search, traced
from emu.dispatch import LaunchableKernel, RunOptions, RunReport, Watch
from emu.errors import LaunchError
from emu.geometry import Geometry
from emu.instrument import Point
from emu.instrument_run import Job
from golden.diff import ArrayDiff, CaseSubject, Comparison, FileSubject, Plan, Subject, copied
from golden.memory_writers import writers_before

MOST_WAVES = 12  # that a wrong value is followed through
MOST_WRITERS = 4  # of one load that are looked into


@dataclass(frozen=True, eq=False)
class WrongLaunch:
    """The launch that wrote a wrong element. number: of the subject's launches, from 0. job: the launch with the inputs
    it has in the emulator. output: whose element. writer: who wrote it there."""

    number: int
    job: Job
    output: str
    writer: Watch


@dataclass(frozen=True)
class At:
    """An instruction of a wave: `offset` bytes from the kernel's first one, at its `occurrence`-th run, from 1."""

    offset: int
    occurrence: int = 1


@dataclass(frozen=True, eq=False)
class RegistersAt:
    """What a wave's registers are before an instruction on both engines. differences: of those that the emulator has
    written by then; addresses count as equal when they name the same byte."""

    launch: WrongLaunch
    point: Point
    differences: list[Difference]


@dataclass(frozen=True, eq=False)
class FirstWrong:
    """The first wrong instruction, of the launch that was looked at last. through: the loads by which what was wrong
    came from there to the wave that wrote the wrong element, the last one first."""

    launch: WrongLaunch
    finding: Finding
    through: tuple[Finding, ...] = ()


def find_first_wrong(subject: Subject, plan: Plan, found: Comparison) -> FirstWrong | None:
    """Looks into the launches that wrote wrong elements, in the order they ran, until one is wrong by itself, given the
    inputs that it has in the emulator. None where no differing element was written by a launch.

    Raises what `emu.bisect.find_first_difference` raises.
    """
    looked = None
    for launch in wrong_launches(subject, plan, found):
        looked = _followed(launch, plan)
        if looked.finding.kind != "none":
            return looked
    return looked


def _followed(launch: WrongLaunch, plan: Plan) -> FirstWrong:
    """The search, from wave to wave: what a load found wrong in memory, another wave may have stored."""
    found = [_bisected(launch, plan)]
    seen: set[Point] = set()
    reference, _ = sides(plan)
    while found[0].kind == "load" and len(found) < MOST_WAVES:
        earlier_stores = writers_before(launch.job, found[0], reference)
        writers = [point for point in earlier_stores if point not in seen][:MOST_WRITERS]
        seen.update(writers)
        findings = (_before(launch.job, point, plan) for point in writers)
        earlier = next((one for one in findings if one.kind not in ("none", "memory")), None)
        if earlier is None:
            break
        found.insert(0, earlier)
    return FirstWrong(launch, found[0], tuple(found[1:]))


def _before(job: Job, store: Point, plan: Plan) -> Finding:
    """The search in the wave of a store, up to it."""
    reference, suspect = sides(plan)
    until = store.offset, store.occurrence
    return find_first_difference(job, store.workgroup, store.wave, suspect, reference, until)


def _bisected(launch: WrongLaunch, plan: Plan) -> Finding:
    """The search up to the store of the wrong element; where that shows nothing, in the whole wave."""
    reference, suspect = sides(plan)
    w = launch.writer
    for until in ((w.offset, 0), None):
        finding = find_first_difference(launch.job, w.workgroup, w.wave, suspect, reference, until)
        if finding.kind not in ("none", "memory"):
            break
    return finding


def sides(plan: Plan) -> tuple[RunOptions, RunOptions]:
    """The emulator to hold against, and the suspect: the device if there is one, else the second engine."""
    first, second = plan.engines
    reference, suspect = (second, first) if first == "device" else (first, second)
    return plan.of("host" if reference == "device" else reference), plan.of(suspect)


def registers_at(subject: Subject, plan: Plan, found: Comparison, at: At) -> RegistersAt | None:
    """The registers of the wave that wrote the first wrong element. None where no launch wrote one.

    Raises LaunchError where that wave does not run the instruction so often.
    """
    launch = next(iter(wrong_launches(subject, plan, found)), None)
    if launch is None:
        return None
    (reference, suspect), w = sides(plan), launch.writer
    trace = traced(launch.job, w.workgroup, w.wave, reference)
    index = trace.index(at.offset, at.occurrence)
    if index is None:
        raise LaunchError(
            f"wave {w.wave} of workgroup {w.workgroup}, which wrote the wrong element, does not run an instruction at"
            f" offset {at.offset:#x} {at.occurrence} times",
            expected="the offset of an instruction from the kernel's first one, and how often it has run",
            advice="`gfx950 disasm` lists the instructions",
            kernel=w.kernel,
        )
    search = Search(launch.job, trace, reference, suspect)
    return RegistersAt(launch, trace.point(index), search.compared(index))


# ---- the launches ----------------------------------------------------------------------------------------------------


def wrong_launches(subject: Subject, plan: Plan, found: Comparison) -> list[WrongLaunch]:
    """The launches that wrote the first wrong element of each output, in the order they ran, each wave once."""
    launches = [_launch_of(subject, plan, array) for array in found.arrays if array.difference is not None]
    ordered = sorted((one for one in launches if one is not None), key=lambda one: one.number)
    seen: dict[tuple[Any, ...], WrongLaunch] = {}
    for one in ordered:
        seen.setdefault((one.number, one.writer.workgroup, one.writer.wave), one)
    return list(seen.values())


def _launch_of(subject: Subject, plan: Plan, array: ArrayDiff) -> WrongLaunch | None:
    assert array.difference is not None
    options, name = plan.of("host"), array.output.name
    if isinstance(subject, FileSubject):
        writer = array.writer or subject.run(options, Watchpoint(name, array.difference.byte))[1].watch
        return None if writer is None else WrongLaunch(0, subject.job(), name, writer)
    if not isinstance(subject, CaseSubject):
        return None
    code = subject.code("device")
    with _recorded(code) as launches:
        subject.run(options, Watchpoint(name, array.difference.byte))
    wrote = [WrongLaunch(n, job, name, watch) for n, (job, watch) in enumerate(launches) if watch and job]
    return wrote[-1] if wrote else None


@contextmanager
def _recorded(code: bytes) -> Iterator[list[tuple[Job | None, Watch | None]]]:
    """Takes down the launches of the body that a watchpoint is set in, with copies of their arguments as they were.

    A kernel package launches by itself, and says of a launch only what it did; so the launch is listened to.
    """
    launches: list[tuple[Job | None, Watch | None]] = []
    own = LaunchableKernel.launch

    def launch(
        self: LaunchableKernel,
        geometry: Geometry,
        arguments: Any,
        options: RunOptions | None = None,
        dynamic_lds: int = 0,
        watch: tuple[Any, int] | None = None,
        hidden: Any = None,
    ) -> RunReport:
        job = None
        if watch is not None and not isinstance(arguments, bytes):
            job = Job(code, self.kernel.name, geometry, _kept(arguments), dynamic_lds, hidden)
        report = own(self, geometry, arguments, options, dynamic_lds, watch, hidden)
        launches.append((job, report.watch))
        return report

    LaunchableKernel.launch = launch  # type: ignore[method-assign]
    try:
        yield launches
    finally:
        LaunchableKernel.launch = own  # type: ignore[method-assign]


def _kept(arguments: Any) -> Any:
    """Copies of the arrays among the arguments; one given twice stays one."""
    if isinstance(arguments, dict):
        return dict(zip(arguments, _kept(arguments.values()), strict=True))
    copies = {id(value): copied(value) for value in arguments}
    return [copies[id(value)] for value in arguments]
