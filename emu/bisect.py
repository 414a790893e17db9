"""Finds the first instruction after which one wave's registers differ between two ways to run a launch.

    finding = find_first_difference(job, workgroup=(3, 0, 0), wave=1, suspect=RunOptions(engine="device"))
    print(finding)

The wave is one whose result is known to differ, from a watchpoint (`emu.dispatch.Watch`). Its instructions come from
the numpy engine; both ways then run variants that dump the wave's registers (emu.instrument), at points that halve the
stretch between a moment where they agree and one where they do not: about log2 of the instructions. Where registers
agree, memory is asked for: LDS is dumped with them, and the arrays are compared after the launch.
"""

from __future__ import annotations

import numpy as np

from emu.bisect_finding import Finding
from emu.bisect_search import Search, WrongMemory, traced
from emu.bisect_trace import StoreAt, Trace
from emu.dispatch import RunOptions
from emu.errors import LaunchError
from emu.geometry import Dimensions
from emu.instrument_run import Job

__all__ = ["Finding", "find_first_difference"]

PROBED_STORES = 16  # where differences are looked for when there is none at the end
LOOKED_INTO = 12  # stores of wrong bytes


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
    Without it the wave's end is looked at, then some of its stores, then the last stores of what differs in the arrays,
    those of this wave first.
    Only registers that the reference run has written by then are compared: others hold anything on a chip.
    Raises LaunchError for a wave that does not exist, a reference on a device and an `until` that never ran.
    """
    chosen = reference or RunOptions()
    if chosen.engine == "device":
        raise LaunchError("the reference runs on a device", expected="an engine of the emulator as the reference")
    trace = traced(job, workgroup, wave, chosen)
    if not trace.offsets:
        raise LaunchError(f"workgroup {workgroup} has no wave {wave}, or it never ran", kernel=job.kernel)
    search = Search(job, trace, chosen, suspect)
    high = _last(search, trace, until, job)
    return search.between(high) if high is not None else _of_memory(search, until)


def _last(search: Search, trace: Trace, until: tuple[int, int] | None, job: Job) -> int | None:
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


def _of_memory(search: Search, until: tuple[int, int] | None) -> Finding:
    """When registers agree at the moments that were looked at: whether a store is wrong, or the registers before it.

    A store of another wave at a wrong address leaves this wave's result wrong, and its own place as it was: so all
    waves that stored last what differs are asked before this wave's store is called wrong.
    """
    trace, index = search.trace, search.trace.index(*until) if until is not None else None
    stored = search.stored(index) if index is not None else None
    if stored is not None:
        return stored
    wrong = search.wrong_memory()
    mine = [store.index for store in wrong.stores if (store.workgroup, store.wave) == (trace.workgroup, trace.wave)]
    one = until is not None and until[1] != 0
    mine = (
        [n for n in mine if n == index]
        if one
        else sorted(mine, key=lambda n: until is None or trace.offsets[n] != until[0])
    )
    for n in mine[:LOOKED_INTO]:
        if search.differs(n):
            return search.between(n)
    others = None if one else _of_others(search, wrong)
    return others or (search.store(mine[0], wrong) if mine else search.nothing(wrong))


def _of_others(search: Search, wrong: WrongMemory) -> Finding | None:
    """Whether the registers of another wave differ before what it stored last of all that differs."""
    first: dict[tuple[Dimensions, int], StoreAt] = {}
    for store in wrong.stores:
        first.setdefault((store.workgroup, store.wave), store)
    first.pop((search.trace.workgroup, search.trace.wave), None)
    for store in list(first.values())[:LOOKED_INTO]:
        other = Search(search.job, search.trace_of(store.workgroup, store.wave), search.reference, search.suspect)
        if other.differs(store.index):
            return other.between(store.index)
    return None
