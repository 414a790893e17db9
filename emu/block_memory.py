"""LDS and global memory while a block is translated: calls of the compiled memory functions, and loops for atomics.

Addresses go through the scratch area of the thread, data behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from emu.engines.host_engine import HostEngine, Value
from emu.host_layout import CHANGES, ISSUED, LDS_BYTES, MEMORY_FUNCTIONS
from gfx950.lanes import U32, U64, Lanes, Mask

if TYPE_CHECKING:
    from emu.block_state import BlockState

L = TypeVar("L", bound=Lanes)


class HostLanes:
    """LDS or global memory."""

    def __init__(self, state: BlockState, space: str, scalar: bool = False) -> None:
        self.state, self.host, self.space, self.scalar = state, state.host, space, scalar

    def _active(self, where: Mask | None) -> str:
        """The lanes that take part; a scalar access is lane 0's."""
        if self.scalar:
            return "1" if where is None else self.host.operand(self.host.apply("zext", 64, where.raw), False)
        active = self.state.exec_bits()
        if where is not None:
            active = self.host.apply("and", 64, active, where.ballot().raw)
        return self.host.operand(active, False)

    def _call(
        self, name: str, address: U32 | U64, nbytes: int, data: str, where: Mask | None, ahead: U64 | None = None
    ) -> None:
        """The call; with `where`, which is often empty, around it when no lane takes part: then a load gives zeros."""
        host, active = self.host, self._active(where)
        label = host.name()[1:]
        if where is not None:
            none = host.define(f"icmp eq i64 {active}, 0", 1, False).text
            host.emit(f"br i1 {none}, label %no_{label}, label %on_{label}")
            host.begin(f"no_{label}")
            if name.endswith("_load"):
                for word in range(max(1, nbytes // 4)):
                    host.store_lanes(host.constant(0, 32), data, word)
            host.emit(f"br label %off_{label}")
            host.begin(f"on_{label}")
        wide = host.apply("zext", 64, address.raw)
        if ahead is not None:
            wide = host.apply("add", 64, wide, ahead.raw)
        host.emit(f"store {host.typed(wide, True)}, ptr %scratch, align 64")
        more = ", i64 %pc" if name == "global_store" else ""
        checked_call(host, name, f"ptr %scratch, i64 {active}, ptr {data}, i64 {nbytes}{more}")
        if where is not None:
            host.emit(f"br label %off_{label}")
            host.begin(f"off_{label}")

    def load(
        self, address: U32 | U64, nbytes: int, where: Mask | None = None, ahead: U64 | None = None
    ) -> tuple[U32, ...]:
        """Words of `nbytes` bytes a lane."""
        data = _scratch(self.host, 1024)
        self._call(f"{self.space}_load", address, nbytes, data, where, ahead)
        return tuple(U32(self.state.engine, self.host.load_lanes(data, i)) for i in range(max(1, nbytes // 4)))

    def store(
        self, address: U32 | U64, words: Sequence[U32], nbytes: int, where: Mask | None = None, ahead: U64 | None = None
    ) -> None:
        """The low `nbytes` of `words` a lane."""
        data = _scratch(self.host, 1024)
        for i, word in enumerate(words):
            self.host.store_lanes(word.raw, data, i)
        self._call(f"{self.space}_store", address, nbytes, data, where, ahead)

    def store_late(self, address: U32, words: Sequence[U32], nbytes: int, where: Mask | None = None) -> None:
        """The data of a load to LDS."""
        host, state, data = self.host, self.state, _scratch(self.host, 1024)
        for i, word in enumerate(words):
            host.store_lanes(word.raw, data, i)
        host.emit(f"store {host.typed(host.apply('zext', 64, address.raw), True)}, ptr %scratch, align 64")
        number = state.word(ISSUED, state.issued).text
        what = f"ptr %scratch, i64 {self._active(where)}, ptr {data}, i64 {nbytes}"
        checked_call(host, "store_late", f"ptr %wave, i64 {number}, {what}")

    def size(self) -> U32:
        """The bytes of the LDS allocation."""
        at = self.host.define(f"getelementptr i64, ptr %context, i64 {LDS_BYTES}", 64, False).text
        return U32(self.state.engine, self.host.define(f"load i32, ptr {at}", 32, False))

    def atomic(
        self, address: U32 | U64, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None
    ) -> L:
        """A loop over the lanes around the operation on scalars; on memory with compare-and-swap, for other threads."""
        host, kind, width = self.host, type(operands[0]), operands[0].width
        places = [_scratch(host, 1024 + 512 * i) for i in range(len(operands) + 1)]
        for operand, place in zip(operands, places[1:], strict=True):
            host.emit(f"store {host.typed(operand.raw, True)}, ptr {place}, align 64")
        host.emit(f"store <64 x i{width}> zeroinitializer, ptr {places[0]}, align 64")
        host.emit(f"store {host.typed(host.apply('zext', 64, address.raw), True)}, ptr %scratch, align 64")
        more = ", i64 %pc" if self.space == "global" else ""
        checked_call(host, f"{self.space}_places", f"ptr %scratch, i64 {self._active(where)}, i64 {width // 8}{more}")
        _emit_turns(
            host,
            places,
            width,
            self.space == "global",
            lambda old, data: operation(kind(self.state.engine, old), *(kind(self.state.engine, d) for d in data)).raw,
        )
        return kind(self.state.engine, host.define(f"load <64 x i{width}>, ptr {places[0]}, align 64", width, True))


class HostScalarReads:
    """SMEM."""

    def __init__(self, state: BlockState) -> None:
        self.state, self.host = state, state.host
        self.lane = HostLanes(state, "global", scalar=True)

    def store(self, address: U64, words: Sequence[U32], where: Mask | None = None) -> None:
        """Consecutive dwords."""
        self.lane.store(address, words, 4 * len(words), where)

    def atomic(self, address: U64, operands: Sequence[L], operation: Callable[..., L], where: Mask | None = None) -> L:
        """One atomic; the old datum."""
        return self.lane.atomic(address, operands, operation, where).readlane(U32.constant(self.state.engine, 0))

    def load(self, address: U64, words: int) -> tuple[U32, ...]:
        """Consecutive dwords."""
        return self._load(address, words, f"i64 {words}")

    def load_bounded(self, address: U64, words: int, available: U64) -> tuple[U32, ...]:
        """Consecutive dwords, zeros from the `available`-th on."""
        data = _scratch(self.host, 1024)
        self.host.emit(f"store [{words} x i32] zeroinitializer, ptr {data}, align 64")
        return self._load(address, words, self.host.typed(available.minimum(words).raw, False))

    def _load(self, address: U64, words: int, count: str) -> tuple[U32, ...]:
        data = _scratch(self.host, 1024)
        checked_call(self.host, "scalar_load", f"{self.host.typed(address.raw, False)}, ptr {data}, {count}")
        results = []
        for i in range(words):
            at = self.host.define(f"getelementptr i8, ptr {data}, i64 {4 * i}", 64, False)
            results.append(U32(self.state.engine, self.host.define(f"load i32, ptr {at.text}", 32, False)))
        return tuple(results)


def _emit_turns(
    host: HostEngine, places: list[str], width: int, shared: bool, operation: Callable[[Value, list[Value]], Value]
) -> None:
    """Lane after lane: old data to places[0] from the host addresses in the scratch area (0: the lane has no turn)."""
    label, kind, align = f"turn_{host.name()[1:]}", f"i{width}", width // 8 if shared else 1
    counter = _scratch(host, 512)

    def at(base: str, lane: str, count: int) -> str:
        return host.define(f"getelementptr i{count}, ptr {base}, i64 {lane}", 64, False).text

    host.emit(f"store i64 0, ptr {counter}")
    host.emit(f"br label %{label}")
    host.begin(f"{label}")
    lane = host.define(f"load i64, ptr {counter}", 64, False).text
    host.emit(f"store i64 {host.define(f'add i64 {lane}, 1', 64, False).text}, ptr {counter}")
    place = host.define(f"load i64, ptr {at('%scratch', lane, 64)}", 64, False).text
    pointer = host.define(f"inttoptr i64 {place} to ptr", 64, False).text
    none = host.define(f"icmp eq i64 {place}, 0", 1, False).text
    host.emit(f"br i1 {none}, label %{label}_next, label %{label}_try")
    host.begin(f"{label}_try")
    atomic, order = ("atomic ", " monotonic") if shared else ("", "")
    old = host.define(f"load {atomic}{kind}, ptr {pointer}{order}, align {align}", width, False)
    data = [host.define(f"load {kind}, ptr {at(p, lane, width)}", width, False) for p in places[1:]]
    new = host.typed(operation(old, data), False)
    if shared:
        _exchange(host, pointer, old, new, label)
    else:
        host.emit(f"store {new}, ptr {pointer}, align {align}")
    host.emit(f"store {kind} {old.text}, ptr {at(places[0], lane, width)}")
    host.emit(f"br label %{label}_next")
    host.begin(f"{label}_next")
    more = host.define(f"icmp ult i64 {lane}, 63", 1, False).text
    host.emit(f"br i1 {more}, label %{label}, label %{label}_end")
    host.begin(f"{label}_end")


def _exchange(host: HostEngine, pointer: str, old: Value, new: str, label: str) -> None:
    """The new datum if the old one is still there; another try if it is not."""
    kind = f"i{old.width}"
    swapped = f"cmpxchg ptr {pointer}, {kind} {old.text}, {new} seq_cst seq_cst, align {old.width // 8}"
    pair = host.define(swapped, old.width, False).text
    done = host.define(f"extractvalue {{ {kind}, i1 }} {pair}, 1", 1, False).text
    host.emit(f"br i1 {done}, label %{label}_done, label %{label}_try")
    host.begin(f"{label}_done")
    _count_change(host, old.text, new)


def _count_change(host: HostEngine, old: str, new: str) -> None:
    """Counts an atomic on memory that left something else behind."""
    changed = host.define(f"icmp ne {new}, {old}", 1, False).text
    one = host.define(f"zext i1 {changed} to i64", 64, False).text
    add_to_word(host, "%context", 8 * CHANGES, one)


def add_to_word(host: HostEngine, base: str, offset: int, amount: int | str) -> None:
    """Adds to the 64-bit word at byte `offset` of `base`."""
    at = host.define(f"getelementptr i8, ptr {base}, i64 {offset}", 64, False).text
    old = host.define(f"load i64, ptr {at}", 64, False).text
    total = host.define(f"add i64 {old}, {amount}", 64, False).text
    host.emit(f"store i64 {total}, ptr {at}")


def _scratch(host: HostEngine, offset: int) -> str:
    return host.define(f"getelementptr i8, ptr %scratch, i64 {offset}", 64, False).text


def checked_call(host: HostEngine, name: str, arguments: str) -> None:
    """Calls a memory function; a fault leaves the instruction's function with 1."""
    slot = host.define(f"getelementptr ptr, ptr %memory, i64 {MEMORY_FUNCTIONS.index(name)}", 64, False)
    function = host.define(f"load ptr, ptr {slot.text}", 64, False)
    status = host.define(f"call i64 {function.text}(ptr %context, {arguments})", 64, False)
    bad = host.define(f"icmp ne i64 {status.text}, 0", 1, False)
    label = host.name()[1:]
    host.emit(f"br i1 {bad.text}, label %fault_{label}, label %go_{label}")
    host.begin(f"fault_{label}")
    host.emit("ret i64 1")
    host.begin(f"go_{label}")
