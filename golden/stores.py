"""Who wrote each byte of the outputs: an observer of a run on the numpy engine."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.dispatch import Watch
from emu.observers import Observer
from gfx950.isa.encoding import Decoded
from gfx950.isa.text import disassemble
from gfx950.lanes import LANES

if TYPE_CHECKING:
    from emu.memory import Memory
    from emu.numpy_machine import RunningWave

FIRST_ACCUMULATOR = 256  # its row among the vector registers
REGION_BITS = 32  # of an address: a buffer begins at a region of its own
_NAMED = re.compile(r"\b([vsa])(?:(\d+)\b|\[(\d+):(\d+)\])")
_WRITES = ("store", "atomic", "cmpswap")


@dataclass(frozen=True, eq=False)
class Store:
    """One execution of an instruction that stores, by one wave. place: who; its lane is 0. text: as LLVM spells it.
    registers: what it names, before it ran: 64 words of a vector register, one of a scalar one. data: the first
    register that holds what is stored, as its letter and number."""

    place: Watch
    text: str
    registers: dict[str, NDArray[np.uint32]]
    data: tuple[str, int] | None

    def inputs(self, lane: int) -> dict[str, int]:
        """The named registers of one lane."""
        return {name: int(words[lane % len(words)]) for name, words in self.registers.items()}

    def register(self, byte: int) -> str:
        """The register that holds a byte of what a lane stores."""
        return f"{self.data[0]}{self.data[1] + byte // 4}" if self.data is not None else ""

    def by(self, lane: int) -> Watch:
        """The place with its lane."""
        w = self.place
        return Watch(w.workgroup, w.wave, lane, w.pc, w.instruction, w.kernel, w.offset)


@dataclass(eq=False)
class _Written:
    """Of a piece of host memory, by byte: the writer (0 for none, else 1 + 64 * execution + lane), and which byte of
    its store it was."""

    kept: NDArray[np.uint8]  # keeps the memory alive, so that its address means no other array
    writer: NDArray[np.int32]
    part: NDArray[np.uint8]


@dataclass(eq=False)
class Stores(Observer):
    """Takes down every store to global memory, by the host memory that it went to. executions: in order."""

    executions: list[Store] = field(default_factory=list)
    _written: dict[tuple[int, int], _Written] = field(default_factory=dict)
    _regions: dict[tuple[int, int], tuple[int, int, _Written]] = field(default_factory=dict)
    _named: dict[int, tuple[Decoded, str, list[str]]] = field(default_factory=dict)
    _before: dict[str, NDArray[np.uint32]] = field(default_factory=dict)

    def before(self, one: RunningWave, decoded: Decoded) -> None:
        """Keeps what a store will read."""
        if any(word in decoded.instruction.name for word in _WRITES):
            self._before = {name: _words(one, name) for name in self._names(decoded)[1]}

    def after(self, one: RunningWave, decoded: Decoded) -> None:
        """Takes down what was stored."""
        stores = one.wave.last_stores
        if not stores:
            return
        number = len(self.executions)
        kernel, name = one.kernel, decoded.instruction.name
        place = Watch(one.workgroup, one.index, 0, decoded.pc, name, kernel.name, decoded.pc - kernel.entry)
        self.executions.append(Store(place, self._names(decoded)[0], self._before, _data(decoded)))
        self._before = {}
        for address, lane, nbytes in stores:
            start, end, written = self._region(one.wave.address_space, address)
            part = slice(address - start, min(address - start + nbytes, end))
            written.writer[part] = 1 + number * LANES + lane
            written.part[part] = np.arange(part.stop - part.start)

    def _names(self, decoded: Decoded) -> tuple[str, list[str]]:
        kept = self._named.get(decoded.pc)
        if kept is None or kept[0] is not decoded:
            text = disassemble(decoded)
            kept = self._named[decoded.pc] = (decoded, text, _registers(text))
        return kept[1], kept[2]

    def _region(self, memory: Memory, address: int) -> tuple[int, int, _Written]:
        """The address and length of the buffer at an address, and what is known of its memory."""
        key = id(memory), address >> REGION_BITS
        known = self._regions.get(key)
        if known is None or not known[0] <= address < known[0] + known[1]:
            buffer = next(b for b in memory.buffers if b.address <= address < b.address + b.nbytes)
            view = memory.view(buffer.address, buffer.nbytes)
            host = view.ctypes.data, view.nbytes
            if host not in self._written:
                self._written[host] = _Written(view, np.zeros(host[1], np.int32), np.zeros(host[1], np.uint8))
            known = self._regions[key] = buffer.address, buffer.nbytes, self._written[host]
        return known

    def of(self, array: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.uint8]] | None:
        """By byte of an array: its last writer, and which byte of the store it was; None where nothing is known.

        writer: 0 for none, else 1 + 64 * execution + lane.
        """
        if not array.flags.c_contiguous:
            return None
        first, end = array.ctypes.data, array.ctypes.data + array.nbytes
        writer, part = np.zeros(array.nbytes, np.int32), np.zeros(array.nbytes, np.uint8)
        known = False
        for (start, nbytes), written in self._written.items():
            low, high = max(first, start), min(end, start + nbytes)
            if low >= high:
                continue
            known = True
            here, there = slice(low - first, high - first), slice(low - start, high - start)
            later = written.writer[there] > writer[here]
            np.copyto(writer[here], written.writer[there], where=later)
            np.copyto(part[here], written.part[there], where=later)
        return (writer, part) if known else None


def _registers(text: str) -> list[str]:
    names: dict[str, None] = {}
    for kind, one, first, last in _NAMED.findall(text.partition(" ")[2]):
        for number in range(int(one or first), int(one or last) + 1):
            names[f"{kind}{number}"] = None
    return list(names)


def _words(one: RunningWave, name: str) -> NDArray[np.uint32]:
    number = int(name[1:])
    scalar = name[0] == "s"
    row = number + (FIRST_ACCUMULATOR if name[0] == "a" else 0)
    return np.array(one.wave.sgprs[number : number + 1] if scalar else one.wave.vgprs[row])


def _data(decoded: Decoded) -> tuple[str, int] | None:
    fields = decoded.fields
    number = fields.get("vdata", fields.get("data"))
    return None if number is None else ("a" if fields.get("acc") else "v", int(number))
