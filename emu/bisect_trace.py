"""What one wave does in the reference run: its instructions in order, and which registers it has written by when."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from emu.geometry import Dimensions
from emu.instrument import Point
from emu.instrument_registers import launched_sgprs, linked_code, usage
from emu.observers import Observer
from emu.wave import Wave
from gfx950.isa.encoding import Decoded
from gfx950.isa.operand_codes import EXEC
from gfx950.isa.text import instruction_text
from gfx950.lanes import LANES

if TYPE_CHECKING:
    from emu.numpy_machine import RunningWave

_COMMUNICATES = re.compile(r"_atomic|^buffer_inv|^buffer_wbl2|^s_dcache|^s_sleep|\bsc1\b")
NEVER = (1 << 62) - 1
AT_LAUNCH = -1
VECTOR_REGISTERS, SCALAR_REGISTERS = 512, 128
Moments = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Written:
    """Which registers a wave has written before an instruction, or found filled at its start.

    vgprs: bool (512, 64), v0.. then a0.. from 256. sgprs: bool (128,) by scalar code. All others hold whatever the
    chip's last wave left in them.
    """

    vgprs: npt.NDArray[np.bool_]
    sgprs: npt.NDArray[np.bool_]
    scc: bool


@functools.lru_cache(maxsize=64)
def works_alone(code: bytes, kernel: str) -> bool:
    """Whether no workgroup of a kernel can wait for another or take anything from it: by its instructions.

    A word from another workgroup of the same launch comes by an atomic, or past the caches: by a load that says so
    (SC1) or after they are invalidated. Whatever else is read is a race, and may be anything.
    """
    loaded, chosen = linked_code(code, kernel)
    run = loaded.code_of(chosen)
    starts = (at for at in usage(code, kernel).starts if run.address <= at < run.address + len(run.data))
    return not any(_COMMUNICATES.search(instruction_text(run.data, run.address, at)) for at in starts)


@dataclass
class Trace(Observer):
    """Records one wave of a run on the numpy engine. alone: all waves of other workgroups end at once, after their
    first instruction; for a kernel of which `works_alone` holds. offsets: of its instructions from the kernel's first
    one, in the order they ran. stores: which of them stored to memory that others see."""

    workgroup: Dimensions
    wave: int
    alone: bool = False
    offsets: list[int] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    _vgprs: Moments = field(default_factory=lambda: np.full((VECTOR_REGISTERS, LANES), NEVER))
    _sgprs: Moments = field(default_factory=lambda: np.full(SCALAR_REGISTERS, NEVER))
    _scc: int = NEVER

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Notes the instruction; at the first one, has the wave tell of its writes."""
        if self.alone and one.workgroup != self.workgroup:
            one.status = "end"
        if (one.workgroup, one.index) != (self.workgroup, self.wave):
            return
        if not self.offsets:
            self._begin(one)
        self.offsets.append(decoded.pc - one.kernel.entry)

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Notes a store."""
        if (one.workgroup, one.index) == (self.workgroup, self.wave) and one.wave.last_stores:
            self.stores.append(len(self.offsets) - 1)

    def _begin(self, one: RunningWave) -> None:
        wave, launched = one.wave, launched_sgprs(one.kernel)
        self.pointers = _pointers(one)
        self._sgprs[:launched] = self._sgprs[EXEC : EXEC + 2] = AT_LAUNCH
        self._vgprs[0, wave.exec_mask()] = AT_LAUNCH
        hook: dict[str, Callable[..., None]] = {
            "set_vgpr": self._vgpr_writer(wave), "set_sgpr": self._sgpr_writer(wave), "set_scc": self._scc_writer(wave),
        }  # fmt: skip
        for name, writer in hook.items():
            setattr(wave, name, writer)

    def _vgpr_writer(self, wave: Wave) -> Callable[..., None]:
        write = wave.set_vgpr

        def note(index: int, value: Any, mask: Any, role: int | None = None) -> None:
            row = self._vgprs[index]
            now = len(self.offsets) - 1
            moved = wave._indexed(index, role)
            if moved is not None:
                row = self._vgprs[moved]
                row[slice(None) if mask is None else mask] = np.minimum(row[slice(None) if mask is None else mask], now)
            write(index, value, mask, role)

        return note

    def _sgpr_writer(self, wave: Wave) -> Callable[..., None]:
        write = wave.set_sgpr

        def note(index: int, value: Any) -> None:
            self._sgprs[index] = min(int(self._sgprs[index]), len(self.offsets) - 1)
            write(index, value)

        return note

    def _scc_writer(self, wave: Wave) -> Callable[..., None]:
        write = wave.set_scc

        def note(value: Any) -> None:
            self._scc = min(self._scc, len(self.offsets) - 1)
            write(value)

        return note

    def point(self, index: int) -> Point:
        """The moment before the wave's instruction of this index."""
        offset = self.offsets[index]
        return Point(offset, self.offsets[: index + 1].count(offset), self.workgroup, self.wave)

    def index(self, offset: int, occurrence: int) -> int | None:
        """The index of the instruction at an offset, at its occurrence (0: the last); None where it never ran."""
        found = [n for n, at in enumerate(self.offsets) if at == offset]
        return found[occurrence - 1] if found and 0 <= occurrence <= len(found) else None

    def written(self, index: int) -> Written:
        """What is written before an instruction runs."""
        return Written(self._vgprs < index, self._sgprs < index, self._scc < index)


def _pointers(one: RunningWave) -> list[int]:
    """The addresses that the launch puts into SGPRs: dispatch packet, queue, kernel arguments."""
    d, sgprs = one.kernel.descriptor, one.wave.sgprs
    found, at = [], 4 * d.private_segment_buffer
    for enabled, pointer in ((d.dispatch_ptr, True), (d.queue_ptr, True), (d.kernarg_segment_ptr, True)):
        if enabled and pointer:
            found.append(int(sgprs[at]) | int(sgprs[at + 1]) << 32)
            at += 2
    return found


@dataclass(frozen=True, order=True)
class StoreAt:
    """One execution of an instruction that stores. index: of the wave's instructions."""

    workgroup: Dimensions
    wave: int
    index: int


@dataclass
class LastStores(Observer):
    """Who stored last in some bytes of the emulated address space. wanted: their addresses, ascending. writers: by byte
    a number of `stores`, -1 for nobody."""

    wanted: npt.NDArray[np.uint64]
    stores: list[StoreAt] = field(default_factory=list)
    writers: npt.NDArray[np.int64] = field(init=False)
    _indices: Counter[tuple[Dimensions, int]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.writers = np.full(len(self.wanted), -1)

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Notes a store that touches what is wanted."""
        key = one.workgroup, one.index
        index, hit = self._indices[key], False
        self._indices[key] += 1
        for address, _, nbytes in one.wave.last_stores:
            first, end = np.searchsorted(self.wanted, np.array([address, address + nbytes], np.uint64))
            if first < end:
                self.writers[first:end] = len(self.stores)
                hit = True
        if hit:
            self.stores.append(StoreAt(*key, index))

    def last(self) -> list[StoreAt]:
        """The last stores of the bytes, each once, in their order."""
        return [self.stores[n] for n in np.unique(self.writers[self.writers >= 0])]


@dataclass
class Loads(Observer):
    """The addresses that one instruction of a wave loads from. addresses: by lane, those of a scalar load under 0; in
    LDS, where `lds` says so, and then `touched` has the addresses of all its accesses, also if it stores there."""

    point: Point
    lds: bool = False
    touched: list[int] = field(default_factory=list)
    addresses: dict[int, int] = field(default_factory=dict)
    _seen: Counter[int] = field(default_factory=Counter)
    _space: Any = None

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Puts a listener before the memory when it is time."""
        p = self.point
        if (one.workgroup, one.index) != (p.workgroup, p.wave) or decoded.pc - one.kernel.entry != p.offset:
            return
        self._seen[p.offset] += 1
        if self._seen[p.offset] == p.occurrence:
            self._space = one.wave.address_space
            one.wave.address_space = _Listener(self._space, self.addresses)  # type: ignore[assignment]

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Takes it away."""
        if not isinstance(one.wave.address_space, _Listener):
            return
        one.wave.address_space = self._space
        for addresses, active in one.wave.last_lds[:1]:
            self.lds = True
            self.addresses.update({int(lane): int(addresses[lane]) for lane in np.flatnonzero(active)})
        self.touched = sorted({int(a) for addresses, active in one.wave.last_lds for a in addresses[active]})


class _Listener:
    """A memory that notes what is loaded."""

    def __init__(self, space: Any, addresses: dict[int, int]) -> None:
        self._space, self._addresses = space, addresses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def load(self, addresses: Any, mask: Any, nbytes: int) -> Any:
        """Loads and notes."""
        for lane in np.flatnonzero(mask):
            self._addresses.setdefault(int(lane), int(addresses[lane]))
        return self._space.load(addresses, mask, nbytes)

    def view(self, address: int, nbytes: int) -> Any:
        """Views, as scalar loads do, and notes."""
        self._addresses.setdefault(0, address)
        return self._space.view(address, nbytes)
