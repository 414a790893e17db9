"""What a search for the first wrong instruction finds, and how it says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from emu.bisect_compare import Difference
from emu.geometry import Dimensions
from emu.instrument import Point
from emu.instrument_run import Place
from emu.source_lines import SourceLine

SHOWN = 8


@dataclass(frozen=True)
class Finding:
    """Where two runs of a wave part.

    kind: `instruction`, whose result differs (of a load from LDS: whose memory is the same before it); `load`, of
    memory that may have been wrong already: `addresses` and `places` (of the arrays) are the emulator's, by lane,
    `in_lds` says that they are LDS's; `store`, before which registers agree, which nothing in the emulator overwrites,
    and after which memory differs; `branch`, where one run goes another way; `start`, when registers differ before the
    first instruction; `memory`, when registers never differ where they were looked at but arrays do; `none`, when these
    do not either; `unsteady`, where the runs are not the same each time, so that no instruction can be named: `index`
    and `point` are where that showed. index of total: of the wave's instructions, from 0. inputs: the values of the
    registers that the instruction names, before it, the same in both runs. undefined: those of them that nobody has
    written. runs: how many variants were run.
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
        if self.kind == "unsteady":
            return (
                "no instruction can be named: the runs do not part at the same place each time, as with a race, an"
                " atomic whose order decides, or a fault that comes and goes"
            )
        if self.kind == "start" or self.point is None:
            return "registers differ before the first instruction"
        place = f"at offset {self.point.offset:#x}, occurrence {self.point.occurrence}"
        line = f" ({self.source.file}:{self.source.line})" if self.source else ""
        if self.kind == "store":
            where = "LDS" if self.in_lds else f"argument {', '.join(map(str, self.arrays))}"
            return (
                f"registers agree before `{self.instruction}` {place}{line}, instruction {self.index}, but what it"
                f" stored in {where} differs: it went wrong, or another store hit the same bytes,"
                " or the runs are not the same each time"
            )
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
            if "atomic" in self.instruction or "_rtn_" in self.instruction:
                lines.append("  an atomic gives what was there when its turn came: another order of waves is no fault")
        if self.kind == "instruction" and self.in_lds:
            lines.append("  what it reads in LDS is the same in both before it")
        if self.kind == "branch":
            lines.append("  its registers agree and the runs part here: the branch itself went another way")
        return lines
