"""LDS and memory as the numpy engine's instructions see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from emu.errors import MemoryFault
from emu.memory import WRITABLE
from gfx950.evidence import Evidence, rule
from gfx950.lanes import U32, U64, Lanes, Mask

if TYPE_CHECKING:
    from emu.wave import Wave

L = TypeVar("L", bound=Lanes)

SCALAR_LOAD = "a scalar load reads"  # how its fault begins
rule(
    "lds.range",
    Evidence.spec,
    "CDNA4 ISA 3.6.1, 3.6.5",
    "An LDS access beyond what the workgroup was granted reads 0 and writes nothing.",
)
rule(
    "lds.range_by_dword",
    Evidence.chosen,
    "CDNA4 ISA 3.6.1, 3.6.5 do not speak of accesses that lie partly beyond",
    "Each dword of an LDS access is checked by itself.",
)
rule(
    "lds.m0",
    Evidence.vendor,
    "LLVM's AMDGPU back end sets no M0 for DS instructions from gfx9 on; CDNA4 ISA 3.6.1 and 11.3.1 let M0[16:0], too"
    " short for 160 KB, limit their addresses",
    "M0 does not limit DS addresses.",
)


def gather_lds(lds: Any, addresses: Any, mask: Any, nbytes: int) -> Any:
    """Words (count, 64) of `nbytes` bytes at each active lane's address; 0 out of range and in inactive lanes."""
    words = np.zeros((max(1, nbytes // 4), 64), dtype=np.uint32)
    size = min(4, nbytes)
    for word in range(len(words)):
        first = addresses + 4 * word
        good = mask & (first >= 0) & (first + size <= len(lds))
        for byte in range(size):
            words[word][good] |= lds[first[good] + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words


def scatter_lds(lds: Any, addresses: Any, mask: Any, words: Any, nbytes: int) -> None:
    """The low `nbytes` of the words to each active lane's address, lanes ascending [rule memory.store_order]; dwords
    out of range are dropped."""
    size = min(4, nbytes)
    data = np.ascontiguousarray(words.T).view(np.uint8)[:, :nbytes]
    at = addresses[:, None] + np.arange(nbytes)
    first = at - np.arange(nbytes) % size
    good = mask[:, None] & (first >= 0) & (first + size <= len(lds))
    lds[at[good]] = data[good]


def _broadcast(value: Any) -> Any:
    return np.ascontiguousarray(np.broadcast_to(value, (64,)))


def _active(wave: Wave, where: Mask | None) -> Any:
    """The lanes that take part in an access."""
    active = _broadcast(wave.exec_mask())
    return active if where is None else active & _broadcast(where.raw)


def _further(address: U64, ahead: U64 | None) -> U64:
    return address if ahead is None else address + ahead


def _in_turn(lanes: Any, bytes_of: Callable[[int], Any], operands: Sequence[L], operation: Callable[..., L]) -> L:
    """Read, operate, write, one lane after the other; the old data."""
    kind, engine = type(operands[0]), operands[0].engine
    data = [_broadcast(o.raw) for o in operands]
    old = np.zeros(64, dtype=data[0].dtype)
    for lane in lanes:
        here = bytes_of(lane)
        old[lane] = here.view(old.dtype)[0]
        new = operation(kind(engine, old[lane : lane + 1].copy()), *(kind(engine, d[lane : lane + 1]) for d in data))
        here[:] = np.ascontiguousarray(new.raw).view(np.uint8)
    return kind(engine, old)


def unaligned(address: int, size: int, lane: int) -> MemoryFault:
    """The error of an atomic on memory off its natural alignment [rule atomic.alignment]."""
    return MemoryFault(
        f"an atomic of {size} bytes at {address:#x}, which is not aligned",
        expected=f"an address that is a multiple of {size}",
        advice="check the index arithmetic of the atomic",
        lane=lane,
        address=address,
    )


def _check_alignment(addresses: Any, active: Any, size: int) -> None:
    bad = np.flatnonzero(active & (addresses % np.uint64(size) != 0))
    if bad.size:
        raise unaligned(int(addresses[bad[0]]), size, int(bad[0]))


class LdsLanes:
    """LDS: byte addresses from 0, out of range reads 0 and drops writes [rule lds.range]."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave

    def _lanes(self, address: U32, where: Mask | None) -> tuple[Any, Any]:
        addresses, active = _broadcast(address.raw).astype(np.int64), _active(self.wave, where)
        self.wave.last_lds.append((addresses, active))
        return addresses, active

    def load(self, address: U32, nbytes: int, where: Mask | None = None) -> tuple[U32, ...]:
        """Words of `nbytes` bytes a lane."""
        words = gather_lds(self.wave.lds, *self._lanes(address, where), nbytes)
        return tuple(U32(self.wave.engine, w) for w in words)

    def store(self, address: U32, words: Sequence[U32], nbytes: int, where: Mask | None = None) -> None:
        """Lanes in ascending order: the highest lane wins a collision."""
        stacked = np.stack([_broadcast(w.raw) for w in words])
        scatter_lds(self.wave.lds, *self._lanes(address, where), stacked, nbytes)

    def store_late(self, address: U32, words: Sequence[U32], nbytes: int, where: Mask | None = None) -> None:
        """The data of a load to LDS."""
        addresses, active = self._lanes(address, where)
        stacked = np.stack([_broadcast(w.raw) for w in words])
        self.wave.store_late(lambda: scatter_lds(self.wave.lds, addresses, active, stacked, nbytes))

    def size(self) -> U32:
        """The bytes of the allocation."""
        return U32.constant(self.wave.engine, len(self.wave.lds))

    def atomic(self, address: U32, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """Lanes in ascending order; a datum that is not wholly in range is left out."""
        addresses, active = self._lanes(address, where)
        size = operands[0].width // 8
        good = active & (addresses + size <= len(self.wave.lds))
        return _in_turn(np.flatnonzero(good), lambda n: self.wave.lds[addresses[n] :][:size], operands, operation)


class GlobalLanes:
    """Global memory: every access is checked; a bad one raises MemoryFault. scalar: lane 0 alone takes part."""

    def __init__(self, wave: Wave, scalar: bool = False) -> None:
        self.wave, self.scalar = wave, scalar

    def _lanes(self, address: U64, where: Mask | None = None) -> tuple[Any, Any]:
        if not self.scalar:
            return _broadcast(address.raw), _active(self.wave, where)
        first = np.arange(64) == 0
        return _broadcast(address.raw), first if where is None else first & _broadcast(where.raw)

    def load(self, address: U64, nbytes: int, where: Mask | None = None, ahead: U64 | None = None) -> tuple[U32, ...]:
        """Words of `nbytes` bytes a lane."""
        words = self.wave.address_space.load(*self._lanes(_further(address, ahead), where), nbytes)
        return tuple(U32(self.wave.engine, w) for w in words)

    def store(
        self, address: U64, words: Sequence[U32], nbytes: int, where: Mask | None = None, ahead: U64 | None = None
    ) -> None:
        """Lanes in ascending order."""
        stacked = np.stack([_broadcast(w.raw) for w in words])
        addresses, active = self._lanes(_further(address, ahead), where)
        self.wave.address_space.store(addresses, active, stacked, nbytes)
        self.wave.changes += self.wave.is_shared(addresses[active])
        self.wave.last_stores.extend((int(addresses[n]), int(n), nbytes) for n in np.flatnonzero(active))

    def atomic(self, address: U64, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """Lanes in ascending order; every lane is checked first."""
        space, size = self.wave.address_space, operands[0].width // 8
        addresses, active = self._lanes(address, where)
        _check_alignment(addresses, active, size)
        space.check(addresses, active, size, WRITABLE)
        lanes = np.flatnonzero(active)
        self.wave.last_stores.extend((int(addresses[n]), int(n), size) for n in lanes)
        before = [bytes(space.view(int(addresses[n]), size)) for n in lanes]
        old = _in_turn(lanes, lambda n: space.view(int(addresses[n]), size), operands, operation)
        after = [bytes(space.view(int(addresses[n]), size)) for n in lanes]
        self.wave.changes += before != after
        return old


class ScalarReads:
    """SMEM: one checked scalar address."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.lane = GlobalLanes(wave, scalar=True)

    def store(self, address: U64, words: Sequence[U32], where: Mask | None = None) -> None:
        """Consecutive dwords."""
        self.lane.store(address, words, 4 * len(words), where)

    def atomic(self, address: U64, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """One atomic; the old datum."""
        return self.lane.atomic(address, operands, operation, where).readlane(U32.constant(self.wave.engine, 0))

    def load(self, address: U64, words: int) -> tuple[U32, ...]:
        """Consecutive dwords."""
        space, first = self.wave.address_space, int(address.raw[0])
        try:
            data = space.view(first, 4 * words).view(np.uint32)
        except MemoryFault:
            raise space.fault(first, 4 * words, SCALAR_LOAD) from None
        return tuple(U32(self.wave.engine, data[i : i + 1].copy()) for i in range(words))

    def load_bounded(self, address: U64, words: int, available: U64) -> tuple[U32, ...]:
        """Consecutive dwords, zeros from the `available`-th on."""
        count = min(words, int(available.raw[0]))
        read = self.load(address, count) if count else ()
        return (*read, *(U32.constant(self.wave.engine, 0) for _ in range(words - count)))
