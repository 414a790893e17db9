"""Translation: the basic blocks of a kernel become host functions, compiled by LLVM at opt level 0 and kept on disk.

A block is at most `QUANTUM` instructions, so that the scheduler can switch waves between blocks. Each block exists
twice: for EXEC all ones (stores are plain) and for any EXEC (stores blend); the driver picks by EXEC at entry.
Instructions that differ only in their registers share one function, which gets the registers' places: LLVM's time goes
by distinct forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from emu.engines.host_engine import HostEngine, Value
from emu.errors import EmulatorError
from emu.execute import PC_MASK, STOPS, execute, polls
from emu.register_checks import AGPR, UnsupportedForm, check_scalar, check_vector
from emu.registers import EXEC, M0, VCC
from emu.state import Transfer
from gfx950.isa.encoding import Decoded, DecodeError, decode
from gfx950.isa.mode_registers import MODE
from gfx950.lanes import ALL_LANES, U32, U64, Lanes, Mask, Mode

L = TypeVar("L", bound=Lanes)

QUANTUM = 32
INLINE_LINES = 5  # a shorter instruction is cheaper in place than as a call

# One wave in memory: vector registers, then scalar registers, then the words below, in bytes.
SGPRS = 512 * 256
SCC = SGPRS + 128 * 4
PC = SCC + 8
STATUS = PC + 8
COUNT = STATUS + 8
TABLES = COUNT + 8  # the address of the tables of translated blocks for the MODE in force (see emu.host_machine)
WINDOWS = {"lds": TABLES + 8, "scratch_bytes": TABLES + 16, "scratch": SGPRS + 1024}
ISSUED = TABLES + 24  # instructions that vmcnt counts
LATE_FIRST = ISSUED + 8  # loads to LDS on their way: the number of the oldest, of the next, and where they are kept
LATE_NEXT = LATE_FIRST + 8
LATE_RING = LATE_NEXT + 8
HARDWARE = LATE_RING + 8  # the hardware registers by number
WAVE_BYTES = SGPRS + 2048

# Status of a wave, and the kind in the top bits of what a block returns.
RUN, BARRIER, END, FAULT, STOPPED, TRAP, HALT = range(7)
KINDS = {"end": END, "barrier": BARRIER, "trap": TRAP, "halt": HALT}
KIND_SHIFT = 60
# Words of the context (see emu.host_memory): the tables by mode key; how many instructions polled; how often global
# memory was changed; instructions of the turn that runs; the state of a random schedule, else 0.
MODE_TABLES, POLLS, CHANGES, TURN, RANDOM = range(20, 25)

MEMORY_FUNCTIONS = (
    "lds_load",
    "lds_store",
    "global_load",
    "global_store",
    "scalar_load",
    "lds_places",
    "global_places",
    "store_late",
    "land",
)
SCRATCH_BYTES = 256 * 128
COMMON = ("%wave", "%context", "%memory", "%natives", "%scratch")  # what every block gets


@dataclass
class Block:
    """Straight-line instructions from one address; error: why the last one cannot be run."""

    start: int
    instructions: list[Decoded] = field(default_factory=list)
    error: str | None = None

    def cut(self, count: int, error: str) -> None:
        """Keeps `count` instructions: the next cannot be run."""
        self.instructions, self.error = self.instructions[:count], error

    @property
    def end(self) -> int:
        """The address after the last instruction."""
        return self.instructions[-1].pc + self.instructions[-1].nbytes if self.instructions else self.start


def discover(code: bytes, base: int, entry: int, longest: int = QUANTUM) -> dict[int, Block]:
    """The basic blocks reachable from `entry` by direct branches, cut at `longest` instructions."""
    decoded: dict[int, Decoded | str] = {}
    leaders = {entry}
    work = [entry]
    while work:
        pc = work.pop()
        while pc not in decoded:
            try:
                one = decode(code, pc, base)
            except DecodeError as error:
                decoded[pc] = str(error)
                break
            decoded[pc] = one
            targets = _targets(one)
            leaders.update(targets)
            work.extend(targets)
            pc += one.nbytes
            if ends_block(one):
                if _falls_through(one):
                    leaders.add(pc)
                else:
                    break
    return {pc: _collect(decoded, leaders, pc, longest) for pc in _with_cuts(decoded, leaders, longest)}


def _targets(one: Decoded) -> list[int]:
    if one.instruction.flow != "branch":
        return []
    offset = one.fields["simm16"]
    return [one.pc + one.nbytes + 4 * (offset - 0x10000 if offset & 0x8000 else offset)]


def ends_block(one: Decoded) -> bool:
    """Whether control may leave after this instruction."""
    return one.instruction.flow in ("branch", "mode", *STOPS) or any(r.place == "pc" for r in one.instruction.results)


def _falls_through(one: Decoded) -> bool:
    flow = one.instruction.flow
    if flow == "branch":
        return bool(one.instruction.results)
    return flow not in ("end", "halt_always") and (flow != "" or one.instruction.name == "s_call_b64")


def _with_cuts(decoded: dict[int, Decoded | str], leaders: set[int], longest: int) -> list[int]:
    """The leaders and the places where long blocks are cut."""
    starts = []
    for leader in sorted(leaders):
        pc, count = leader, 0
        starts.append(leader)
        while isinstance(one := decoded.get(pc), Decoded) and not ends_block(one):
            pc += one.nbytes
            count += 1
            if pc in leaders:
                break
            if count == longest:
                starts.append(pc)
                count = 0
    return starts


def _collect(decoded: dict[int, Decoded | str], leaders: set[int], start: int, longest: int) -> Block:
    block = Block(start)
    pc = start
    while len(block.instructions) < longest:
        one = decoded.get(pc)
        if not isinstance(one, Decoded):
            block.error = one or f"pc 0x{pc:x}: no code there"
            return block
        block.instructions.append(one)
        pc += one.nbytes
        if ends_block(one) or pc in leaders:
            return block
    return block


B = TypeVar("B", U32, int)
MODE_KEYS = 1 << 13


def mode_key(mode: B) -> B:
    """The bits of MODE that change translated code, packed: 9:0, 23, 28:27. [CDNA4 ISA 3.5]"""
    return mode & 0x3FF | (mode >> 13 & 0x400) | (mode >> 16 & 0x1800)


class BlockState:
    """The State of `emu.execute` while a block is translated: registers live in the wave's memory."""

    def __init__(self, engine: HostEngine, full: bool) -> None:
        self.engine: Any = engine
        self.host = engine
        self.full = full  # EXEC is known to be all ones
        self.pc = 0
        self.done = 0  # instructions of the block before this one
        self.issued = 0  # of those that vmcnt counts
        self.ends = [0, AGPR]  # of the v and a registers that are written
        self.places: list[int] = []  # byte offsets of the registers of the instruction being emitted

    def _at(self, offset: int) -> str:
        """The place of a register: a numbered one is a parameter of the instruction's function."""
        if offset < SGPRS + 4 * VCC:
            self.places.append(offset)
            return f"%p{len(self.places) - 1}"
        return self.host.define(f"getelementptr i8, ptr %wave, i64 {offset}", 64, False).text

    def sgpr(self, index: int) -> Value:
        check_scalar(index)
        if index in (EXEC, EXEC + 1) and self.full:
            return self.host.constant(0xFFFFFFFF, 32)
        return self.host.define(f"load i32, ptr {self._at(SGPRS + 4 * index)}", 32, False)

    def set_sgpr(self, index: int, value: Value) -> None:
        check_scalar(index)
        if index in (EXEC, EXEC + 1):
            self.full = False
        self.host.emit(f"store {self.host.typed(value, False)}, ptr {self._at(SGPRS + 4 * index)}")

    def sgpr_at(self, index: Value) -> Value:
        return self.host.define(f"load i32, ptr {self._computed(SGPRS, index, 4)}", 32, False)

    def set_sgpr_at(self, index: Value, value: Value) -> None:
        self.host.emit(f"store {self.host.typed(value, False)}, ptr {self._computed(SGPRS, index, 4)}")

    def _computed(self, first: int, index: Value, size: int) -> str:
        """The place of element `index` of what begins at byte `first` of the wave."""
        host = self.host
        wide = host.typed(host.apply("zext", 64, index), False)
        start = host.define(f"getelementptr i8, ptr %wave, i64 {first}", 64, False).text
        return host.define(f"getelementptr [{size} x i8], ptr {start}, {wide}", 64, False).text

    def _vector_at(self, index: int, role: int | None, spare: str | None = None) -> str:
        """The place of a vector register. spare: the place of one past the last under VGPR indexing (None: v0's)."""
        check_vector(index)
        if role is None or not self.host.mode.gpr_idx:
            return self._at(256 * index)
        host = self.host
        m0 = U32(self.engine, self.sgpr(M0))
        moved = ((m0 >> (12 + role)) & 1 != 0).select(m0 & 0xFF, 0) + index
        inside = moved < (index // AGPR + 1) * AGPR
        place = self._computed(0, inside.select(moved, 0).raw, 256)
        if spare is None:
            return place
        return host.define(f"select {host.typed(inside.raw, False)}, ptr {place}, ptr {spare}", 64, False).text

    def vgpr(self, index: int, role: int | None = None) -> Value:
        return self.host.define(f"load <64 x i32>, ptr {self._vector_at(index, role)}, align 64", 32, True)

    def hardware_word(self, number: int) -> Value:
        return self.host.define(f"load i32, ptr {self._hardware_place(number)}", 32, False)

    def set_hardware_word(self, number: int, value: Value) -> None:
        self.host.emit(f"store {self.host.typed(value, False)}, ptr {self._hardware_place(number)}")

    def _hardware_place(self, number: int) -> str:
        return self.host.define(f"getelementptr i8, ptr %wave, i64 {HARDWARE + 4 * number}", 64, False).text

    def set_mode(self, value: Value) -> None:
        """Writes MODE and finds the tables of its translations (0 where there are none yet)."""
        host, mode = self.host, U32(self.engine, value)
        self.set_hardware_word(MODE, value)
        key = host.typed(host.apply("zext", 64, mode_key(mode).raw), False)
        sets = host.define(f"getelementptr i64, ptr %context, i64 {MODE_TABLES}", 64, False).text
        first = host.define(f"load ptr, ptr {sets}", 64, False).text
        slot = host.define(f"getelementptr i64, ptr {first}, {key}", 64, False).text
        tables = host.define(f"load i64, ptr {slot}", 64, False).text
        place = host.define(f"getelementptr i8, ptr %wave, i64 {TABLES}", 64, False).text
        host.emit(f"store i64 {tables}, ptr {place}")

    def _word(self, offset: int, more: int = 0) -> Value:
        """A 64-bit word of the wave, and what the block has not added to it yet."""
        at = self.host.define(f"getelementptr i8, ptr %wave, i64 {offset}", 64, False).text
        old = self.host.define(f"load i64, ptr {at}", 64, False)
        return self.host.define(f"add i64 {old.text}, {more}", 64, False) if more else old

    def clock(self) -> Value:
        return self._word(COUNT, self.done)

    def issue(self) -> None:
        self.issued += 1

    def land(self, outstanding: int) -> None:
        upto = self.host.define(f"sub i64 {self._word(ISSUED, self.issued).text}, {outstanding}", 64, False)
        _checked_call(self.host, "land", f"ptr %wave, i64 {upto.text}")

    def window(self, name: str) -> Value:
        at = self.host.define(f"getelementptr i8, ptr %wave, i64 {WINDOWS[name]}", 64, False).text
        if name == "scratch":
            return self.host.define(f"load <64 x i64>, ptr {at}, align 64", 64, True)
        return self.host.define(f"load i64, ptr {at}", 64, False)

    def set_vgpr(self, index: int, value: Value, mask: Value | None, role: int | None = None) -> None:
        at = self._vector_at(index, role, "%scratch")
        indexed = role is not None and self.host.mode.gpr_idx
        half = index // AGPR
        self.ends[half] = (half + 1) * AGPR if indexed else max(self.ends[half], index + 1)
        if mask is not None and not (mask.constant and mask.text == "true"):
            old = self.host.define(f"load <64 x i32>, ptr {at}, align 64", 32, True)
            value = self.host.apply("select", 32, mask, value, old)
        self.host.emit(f"store {self.host.typed(value, True)}, ptr {at}, align 64")

    def scc(self) -> Value:
        word = self.host.define(f"load i32, ptr {self._at(SCC)}", 32, False)
        return self.host.apply("ne", 32, word, self.host.constant(0, 32))

    def set_scc(self, value: Value) -> None:
        word = self.host.apply("zext", 32, value)
        self.host.emit(f"store {self.host.typed(word, False)}, ptr {self._at(SCC)}")

    def exec_mask(self) -> Value:
        if self.full:
            return self.host.constant(1, 1)
        return self.host.apply("lanes_of", 1, self.exec_bits())

    def exec_bits(self) -> Value:
        """EXEC as a 64-bit scalar."""
        if self.full:
            return self.host.constant(ALL_LANES, 64)
        return self.host.define(f"load i64, ptr {self._at(SGPRS + 4 * EXEC)}", 64, False)

    def memory(self, space: str) -> Any:
        return HostScalarReads(self) if space == "scalar_memory" else HostLanes(self, space)


class HostLanes:
    """LDS or global memory: calls of the compiled memory functions through the scratch area."""

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
            host.lines.append(f"no_{label}:")
            if name.endswith("_load"):
                for word in range(max(1, nbytes // 4)):
                    host.store_lanes(host.constant(0, 32), data, word)
            host.emit(f"br label %off_{label}")
            host.lines.append(f"on_{label}:")
        wide = host.apply("zext", 64, address.raw)
        if ahead is not None:
            wide = host.apply("add", 64, wide, ahead.raw)
        host.emit(f"store {host.typed(wide, True)}, ptr %scratch, align 64")
        more = ", i64 %pc" if name == "global_store" else ""
        _checked_call(host, name, f"ptr %scratch, i64 {active}, ptr {data}, i64 {nbytes}{more}")
        if where is not None:
            host.emit(f"br label %off_{label}")
            host.lines.append(f"off_{label}:")

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
        number = state._word(ISSUED, state.issued).text
        what = f"ptr %scratch, i64 {self._active(where)}, ptr {data}, i64 {nbytes}"
        _checked_call(host, "store_late", f"ptr %wave, i64 {number}, {what}")

    def size(self) -> U32:
        """The bytes of the LDS allocation."""
        from emu.host_memory import LDS_BYTES  # which imports this module

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
        _checked_call(host, f"{self.space}_places", f"ptr %scratch, i64 {self._active(where)}, i64 {width // 8}{more}")
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
        _checked_call(self.host, "scalar_load", f"{self.host.typed(address.raw, False)}, ptr {data}, {count}")
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
    host.lines.append(f"{label}:")
    lane = host.define(f"load i64, ptr {counter}", 64, False).text
    host.emit(f"store i64 {host.define(f'add i64 {lane}, 1', 64, False).text}, ptr {counter}")
    place = host.define(f"load i64, ptr {at('%scratch', lane, 64)}", 64, False).text
    pointer = host.define(f"inttoptr i64 {place} to ptr", 64, False).text
    none = host.define(f"icmp eq i64 {place}, 0", 1, False).text
    host.emit(f"br i1 {none}, label %{label}_next, label %{label}_try")
    host.lines.append(f"{label}_try:")
    atomic = "atomic " if shared else ""
    old = host.define(
        f"load {atomic}{kind}, ptr {pointer}{' monotonic' if shared else ''}, align {align}", width, False
    )
    data = [host.define(f"load {kind}, ptr {at(p, lane, width)}", width, False) for p in places[1:]]
    new = host.typed(operation(old, data), False)
    if shared:
        swapped = f"cmpxchg ptr {pointer}, {kind} {old.text}, {new} seq_cst seq_cst, align {align}"
        pair = host.define(swapped, width, False).text
        done = host.define(f"extractvalue {{ {kind}, i1 }} {pair}, 1", 1, False).text
        host.emit(f"br i1 {done}, label %{label}_done, label %{label}_try")
        host.lines.append(f"{label}_done:")
        _count_change(host, old.text, new)
    else:
        host.emit(f"store {new}, ptr {pointer}, align {align}")
    host.emit(f"store {kind} {old.text}, ptr {at(places[0], lane, width)}")
    host.emit(f"br label %{label}_next")
    host.lines.append(f"{label}_next:")
    more = host.define(f"icmp ult i64 {lane}, 63", 1, False).text
    host.emit(f"br i1 {more}, label %{label}, label %{label}_end")
    host.lines.append(f"{label}_end:")


def _count_change(host: HostEngine, old: str, new: str) -> None:
    """Counts an atomic on memory that left something else behind."""
    changed = host.define(f"icmp ne {new}, {old}", 1, False).text
    one = host.define(f"zext i1 {changed} to i64", 64, False).text
    _add_to_context(host, CHANGES, one)


def _add_to_context(host: HostEngine, word: int, amount: str) -> None:
    at = host.define(f"getelementptr i64, ptr %context, i64 {word}", 64, False).text
    old = host.define(f"load i64, ptr {at}", 64, False).text
    total = host.define(f"add i64 {old}, {amount}", 64, False).text
    host.emit(f"store i64 {total}, ptr {at}")


def _scratch(host: HostEngine, offset: int) -> str:
    return host.define(f"getelementptr i8, ptr %scratch, i64 {offset}", 64, False).text


def _checked_call(host: HostEngine, name: str, arguments: str) -> None:
    """Calls a memory function; a fault leaves the instruction's function with 1."""
    slot = host.define(f"getelementptr ptr, ptr %memory, i64 {MEMORY_FUNCTIONS.index(name)}", 64, False)
    function = host.define(f"load ptr, ptr {slot.text}", 64, False)
    status = host.define(f"call i64 {function.text}(ptr %context, {arguments})", 64, False)
    bad = host.define(f"icmp ne i64 {status.text}, 0", 1, False)
    label = host.name()[1:]
    host.emit(f"br i1 {bad.text}, label %fault_{label}, label %go_{label}")
    host.lines.append(f"fault_{label}:")
    host.emit("ret i64 1")
    host.lines.append(f"go_{label}:")


def _result(kind: int, pc: int) -> int:
    value = kind << KIND_SHIFT | pc
    return value - (1 << 64) if value >> 63 else value


def function_name(pc: int, full: bool, tag: str = "") -> str:
    """The symbol of a block. tag: tells apart what would have one name in two modules."""
    return f"block_{pc:x}_{'full' if full else 'part'}{tag}"


class Emitter:
    """The functions of one module: those of blocks, and those of the forms of instructions that blocks call."""

    def __init__(self, mode: Mode, full: bool, tag: str) -> None:
        self.engine = HostEngine(mode)
        self.full, self.tag = full, tag
        self.forms: dict[str, str] = {}  # name of a form's function by its parameters and body
        self.blocks: list[str] = []
        self.ends = [0, AGPR]  # of the v and a registers that are written

    def text(self) -> str:
        """The module."""
        forms = (f"define internal i64 @{name}{text}" for text, name in self.forms.items())
        return "\n".join([*sorted(self.engine.declared), *forms, *self.blocks, ""])

    def block(self, block: Block) -> None:
        """Appends the host function of one block. An instruction that cannot be run cuts it short."""
        parameters = ", ".join(f"ptr {name}" for name in COMMON)
        self.blocks.append(f"define i64 @{function_name(block.start, self.full, self.tag)}({parameters}) {{")
        state = BlockState(self.engine, self.full)
        transfer: Transfer | None = None
        for done, one in enumerate(block.instructions):
            state.done = done
            try:
                transfer = self._emit(one, state)
            except (UnsupportedForm, EmulatorError, ValueError) as error:
                block.cut(done, f"pc 0x{one.pc:x}: {one.instruction.name}: {error}")
                break
            if transfer is None:
                self.blocks += self._call(one, state.places)
            else:
                self.blocks += _inlined(self.engine.lines, state.places, one.pc)
        self.ends = [max(pair) for pair in zip(self.ends, state.ends, strict=True)]
        self._leave(block, transfer, state.issued)

    def _emit(self, one: Decoded, state: BlockState) -> Transfer | None:
        """The instruction's body in the engine's lines, with its registers as `%p0`, `%p1`, ..."""
        self.engine.restart()
        state.places.clear()
        state.pc = one.pc
        return execute(one, state)

    def _call(self, one: Decoded, places: Sequence[int]) -> list[str]:
        """The lines of a block that run the instruction just emitted."""
        body, pc = self.engine.lines, one.pc
        if len(body) <= INLINE_LINES and not any(line.endswith(":") for line in body):
            return _inlined(body, places, pc)
        text = "\n".join([*body, "  ret i64 0", "}"])
        common = [f"ptr {name}" for name in COMMON if re.search(rf"{name}\b", text)]
        at_pc = ["i64 %pc"] if "i64 %pc" in text else []
        parameters = ", ".join([*common, *at_pc, *(f"ptr %p{i}" for i in range(len(places)))])
        name = self.forms.setdefault(f"({parameters}) {{\n{text}", f"form_{len(self.forms)}")
        arguments = ", ".join(
            [*common, *(f"i64 {pc}" for _ in at_pc), *(f"ptr %r{pc:x}_{i}" for i in range(len(places)))]
        )
        lines = _place_lines(places, pc)
        if "ret i64 1" not in text:
            return [*lines, f"  call i64 @{name}({arguments})"]
        return [*lines, *_guarded(f"call i64 @{name}({arguments})", pc)]

    def _leave(self, block: Block, transfer: Transfer | None, issued: int) -> None:
        """Counts the instructions and returns where control goes."""
        engine = self.engine
        engine.restart()
        stopped = str(_result(STOPPED, block.end))
        result = _destination(engine, transfer, block) if block.error is None else stopped
        for offset, amount in ((COUNT, len(block.instructions)), (ISSUED, issued)):
            if amount:
                self._add_to_wave(offset, amount)
        polling = sum(polls(one) for one in block.instructions)
        if polling:
            _add_to_context(engine, POLLS, str(polling))
        engine.emit(f"ret i64 {result}")
        self.blocks += [*engine.lines, "}"]

    def _add_to_wave(self, offset: int, amount: int) -> None:
        engine = self.engine
        at = engine.define(f"getelementptr i8, ptr %wave, i64 {offset}", 64, False)
        old = engine.define(f"load i64, ptr {at.text}", 64, False)
        new = engine.define(f"add i64 {old.text}, {amount}", 64, False)
        engine.emit(f"store i64 {new.text}, ptr {at.text}")


def _destination(engine: HostEngine, transfer: Transfer | None, block: Block) -> str:
    """What the block returns: the kind in the top bits, the program counter below."""
    following = block.end
    if transfer is None:
        return str(_result(RUN, following))
    if transfer.kind in KINDS:
        return str(_result(KINDS[transfer.kind], following))
    prefix = _prefix(block.instructions[-1].pc)
    if transfer.kind == "jump":
        return engine.define(f"and i64 {_renamed(transfer.target.text, prefix)}, {PC_MASK}", 64, False).text
    if transfer.condition is None:
        return str(_result(RUN, transfer.target & PC_MASK))
    condition = _renamed(engine.typed(transfer.condition, False), prefix)
    return engine.define(f"select {condition}, i64 {transfer.target & PC_MASK}, i64 {following}", 64, False).text


def _prefix(pc: int) -> str:
    return f"%i{pc:x}_"


def _renamed(text: str, prefix: str) -> str:
    """An instruction's own names made unique in a block."""
    return _OWN_NAMES.sub(rf"{prefix}\1", text)


_OWN_NAMES = re.compile(r"%(v\d+)")
_PLACES = re.compile(r"%p(\d+)")


def _inlined(body: Sequence[str], places: Sequence[int], pc: int) -> list[str]:
    """An instruction's lines in a block of others."""
    text = _PLACES.sub(rf"%r{pc:x}_\1", _renamed("\n".join(body), _prefix(pc)))
    return [*_place_lines(places, pc), *([text] if text else [])]


def _place_lines(places: Sequence[int], pc: int) -> list[str]:
    """The places of an instruction's registers in the wave."""
    return [f"  %r{pc:x}_{i} = getelementptr i8, ptr %wave, i64 {offset}" for i, offset in enumerate(places)]


def _guarded(call: str, pc: int) -> list[str]:
    """A call that may fault: then the block is left with the instruction's address."""
    return [
        f"  %s{pc:x} = {call}",
        f"  %b{pc:x} = icmp ne i64 %s{pc:x}, 0",
        f"  br i1 %b{pc:x}, label %fault{pc:x}, label %go{pc:x}",
        f"fault{pc:x}:",
        f"  ret i64 {_result(FAULT, pc)}",
        f"go{pc:x}:",
    ]


def module_text(blocks: Sequence[Block], mode: Mode, full: bool, tag: str = "") -> tuple[str, list[str], list[int]]:
    """The LLVM module of the blocks in one variant, the names of the natives it calls by index, and the ends of the v
    and a registers that it may write (0..512)."""
    emitter = Emitter(mode, full, tag)
    for block in blocks:
        emitter.block(block)
    return emitter.text(), emitter.engine.native_names, emitter.ends
