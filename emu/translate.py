"""Translation: the basic blocks of a kernel become host functions, compiled by LLVM at opt level 0 and kept on disk.

A block is at most `QUANTUM` instructions, so that the scheduler can switch waves between blocks. Each block exists twice:
for EXEC all ones (stores are plain) and for any EXEC (stores blend); the driver picks by EXEC at entry.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from emu.engines.host_engine import HostEngine, Value
from emu.execute import EXEC, Transfer, UnsupportedForm, execute
from emu.errors import EmulatorError
from gfx950.isa.encoding import DecodeError, Decoded, decode
from gfx950.lanes import U32, U64, Lanes, Mode

L = TypeVar("L", bound=Lanes)

QUANTUM = 32
VERSION = "1"  # part of every cache key: change it when emitted code changes meaning

# One wave in memory: vector registers, then scalar registers, then the words below, in bytes.
SGPRS = 512 * 256
SCC = SGPRS + 128 * 4
PC = SCC + 8
STATUS = PC + 8
COUNT = STATUS + 8
WAVE_BYTES = SGPRS + 1024

# Status of a wave, and the kind in the top bits of what a block returns.
RUN, BARRIER, END, FAULT, STOPPED = range(5)
KIND_SHIFT = 60

MEMORY_FUNCTIONS = (
    "lds_load",
    "lds_store",
    "global_load",
    "global_store",
    "scalar_load",
    "lds_places",
    "global_places",
)
SCRATCH_BYTES = 256 * 128


@dataclass
class Block:
    """Straight-line instructions from one address; error: why the last one cannot be run."""

    start: int
    instructions: list[Decoded] = field(default_factory=list)
    error: str | None = None

    @property
    def end(self) -> int:
        """The address after the last instruction."""
        return self.instructions[-1].pc + self.instructions[-1].nbytes if self.instructions else self.start


def discover(code: bytes, base: int, entry: int) -> dict[int, Block]:
    """The basic blocks reachable from `entry` by direct branches, cut at QUANTUM instructions."""
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
    return {pc: _collect(decoded, leaders, pc) for pc in _with_cuts(decoded, leaders)}


def _targets(one: Decoded) -> list[int]:
    if one.instruction.flow != "branch":
        return []
    offset = one.fields["simm16"]
    return [one.pc + one.nbytes + 4 * (offset - 0x10000 if offset & 0x8000 else offset)]


def ends_block(one: Decoded) -> bool:
    """Whether control may leave after this instruction."""
    return one.instruction.flow in ("branch", "end", "barrier") or any(r.place == "pc" for r in one.instruction.results)


def _falls_through(one: Decoded) -> bool:
    flow = one.instruction.flow
    if flow == "branch":
        return bool(one.instruction.results)
    return flow == "barrier"


def _with_cuts(decoded: dict[int, Decoded | str], leaders: set[int]) -> list[int]:
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
            if count == QUANTUM:
                starts.append(pc)
                count = 0
    return starts


def _collect(decoded: dict[int, Decoded | str], leaders: set[int], start: int) -> Block:
    block = Block(start)
    pc = start
    while len(block.instructions) < QUANTUM:
        one = decoded.get(pc)
        if not isinstance(one, Decoded):
            block.error = one or f"pc 0x{pc:x}: no code there"
            return block
        block.instructions.append(one)
        pc += one.nbytes
        if ends_block(one) or pc in leaders:
            return block
    return block


class BlockState:
    """The State of `emu.execute` while a block is translated: registers live in the wave's memory."""

    def __init__(self, engine: HostEngine, full: bool) -> None:
        self.engine: Any = engine
        self.host = engine
        self.full = full  # EXEC is known to be all ones
        self.pc = 0

    def _at(self, offset: int) -> str:
        return self.host.define(f"getelementptr i8, ptr %wave, i64 {offset}", 64, False).text

    def sgpr(self, index: int) -> Value:
        if index in (EXEC, EXEC + 1) and self.full:
            return self.host.constant(0xFFFFFFFF, 32)
        return self.host.define(f"load i32, ptr {self._at(SGPRS + 4 * index)}", 32, False)

    def set_sgpr(self, index: int, value: Value) -> None:
        if index in (EXEC, EXEC + 1):
            self.full = False
        self.host.emit(f"store {self.host.typed(value, False)}, ptr {self._at(SGPRS + 4 * index)}")

    def vgpr(self, index: int) -> Value:
        return self.host.define(f"load <64 x i32>, ptr {self._at(256 * index)}, align 64", 32, True)

    def set_vgpr(self, index: int, value: Value, mask: Value | None) -> None:
        at = self._at(256 * index)
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
            return self.host.constant((1 << 64) - 1, 64)
        return self.host.define(f"load i64, ptr {self._at(SGPRS + 4 * EXEC)}", 64, False)

    def memory(self, space: str, decoded: Decoded) -> Any:
        return HostScalarReads(self, decoded) if space == "scalar_memory" else HostLanes(self, decoded, space)

    def scalar_special(self, code: int) -> Value:
        raise UnsupportedForm(f"pc 0x{self.pc:x}: scalar source code {code} (an aperture) is not built")


class HostLanes:
    """LDS or global memory: calls of the compiled memory functions through the scratch area."""

    def __init__(self, state: BlockState, decoded: Decoded, space: str) -> None:
        self.state, self.host, self.pc, self.space = state, state.host, decoded.pc, space

    def _call(self, name: str, address: U32 | U64, nbytes: int, data: str, pc: bool = False) -> None:
        host = self.host
        wide = host.apply("zext", 32 if self.space == "lds" else 64, address.raw)
        host.emit(f"store {host.typed(wide, True)}, ptr %scratch, align 64")
        active = host.operand(self.state.exec_bits(), False)
        more = f", i64 {self.pc}" if pc else ""
        _checked_call(host, name, f"ptr %scratch, i64 {active}, ptr {data}, i64 {nbytes}{more}", self.pc)

    def load(self, address: U32 | U64, nbytes: int) -> tuple[U32, ...]:
        """Words of `nbytes` bytes a lane."""
        data = _scratch(self.host, 1024)
        self._call(f"{self.space}_load", address, nbytes, data)
        return tuple(U32(self.state.engine, self.host.load_lanes(data, i)) for i in range(max(1, nbytes // 4)))

    def store(self, address: U32 | U64, words: Sequence[U32], nbytes: int) -> None:
        """The low `nbytes` of `words` a lane."""
        data = _scratch(self.host, 1024)
        for i, word in enumerate(words):
            self.host.store_lanes(word.raw, data, i)
        self._call(f"{self.space}_store", address, nbytes, data, pc=self.space == "global")

    def atomic(self, address: U32 | U64, operands: Sequence[L], operation: Callable[..., L]) -> L:
        """A loop over the lanes around the operation on scalars; on memory a compare-and-swap, for other host threads."""
        host, kind, width = self.host, type(operands[0]), operands[0].width
        places = [_scratch(host, 1024 + 512 * i) for i in range(len(operands) + 1)]
        for operand, place in zip(operands, places[1:], strict=True):
            host.emit(f"store {host.typed(operand.raw, True)}, ptr {place}, align 64")
        host.emit(f"store <64 x i{width}> zeroinitializer, ptr {places[0]}, align 64")
        host.emit(f"store {host.typed(host.apply('zext', 64, address.raw), True)}, ptr %scratch, align 64")
        active = host.operand(self.state.exec_bits(), False)
        more = f", i64 {self.pc}" if self.space == "global" else ""
        _checked_call(host, f"{self.space}_places", f"ptr %scratch, i64 {active}, i64 {width // 8}{more}", self.pc)
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

    def __init__(self, state: BlockState, decoded: Decoded) -> None:
        self.state, self.host, self.pc = state, state.host, decoded.pc

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
        _checked_call(self.host, "scalar_load", f"{self.host.typed(address.raw, False)}, ptr {data}, {count}", self.pc)
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
    else:
        host.emit(f"store {new}, ptr {pointer}, align {align}")
    host.emit(f"store {kind} {old.text}, ptr {at(places[0], lane, width)}")
    host.emit(f"br label %{label}_next")
    host.lines.append(f"{label}_next:")
    more = host.define(f"icmp ult i64 {lane}, 63", 1, False).text
    host.emit(f"br i1 {more}, label %{label}, label %{label}_end")
    host.lines.append(f"{label}_end:")


def _scratch(host: HostEngine, offset: int) -> str:
    return host.define(f"getelementptr i8, ptr %scratch, i64 {offset}", 64, False).text


def _checked_call(host: HostEngine, name: str, arguments: str, pc: int) -> None:
    """Calls a memory function; a fault leaves the block with the instruction's address."""
    slot = host.define(f"getelementptr ptr, ptr %memory, i64 {MEMORY_FUNCTIONS.index(name)}", 64, False)
    function = host.define(f"load ptr, ptr {slot.text}", 64, False)
    status = host.define(f"call i64 {function.text}(ptr %context, {arguments})", 64, False)
    bad = host.define(f"icmp ne i64 {status.text}, 0", 1, False)
    label = host.name()[1:]
    host.emit(f"br i1 {bad.text}, label %fault_{label}, label %go_{label}")
    host.lines.append(f"fault_{label}:")
    host.emit(f"ret i64 {_result(FAULT, pc)}")
    host.lines.append(f"go_{label}:")


def _result(kind: int, pc: int) -> int:
    value = kind << KIND_SHIFT | pc
    return value - (1 << 64) if value >> 63 else value


def function_name(pc: int, full: bool) -> str:
    """The symbol of a block."""
    return f"block_{pc:x}_{'full' if full else 'part'}"


def emit_block(engine: HostEngine, block: Block, full: bool) -> None:
    """Appends the host function of one block to the engine's lines."""
    engine.lines.append(
        f"define i64 @{function_name(block.start, full)}(ptr %wave, ptr %context, ptr %memory, ptr %natives, ptr %scratch) {{"
    )
    state = BlockState(engine, full)
    transfer: Transfer | None = None
    done = 0
    for one in block.instructions:
        state.pc = one.pc
        try:
            transfer = execute(one, state)
        except (UnsupportedForm, EmulatorError, ValueError) as error:
            block.error = f"pc 0x{one.pc:x}: {one.instruction.name}: {error}"
            _emit_return(engine, _result(STOPPED, one.pc), done)
            return
        done += 1
    if block.error is not None:
        _emit_return(engine, _result(STOPPED, block.end), done)
    else:
        _emit_transfer(engine, transfer, block.end, done)


def _emit_return(engine: HostEngine, result: int | str, count: int) -> None:
    at = engine.define(f"getelementptr i8, ptr %wave, i64 {COUNT}", 64, False)
    old = engine.define(f"load i64, ptr {at.text}", 64, False)
    new = engine.define(f"add i64 {old.text}, {count}", 64, False)
    engine.emit(f"store i64 {new.text}, ptr {at.text}")
    engine.emit(f"ret i64 {result}")
    engine.lines.append("}")


def _emit_transfer(engine: HostEngine, transfer: Transfer | None, following: int, count: int) -> None:
    if transfer is None:
        _emit_return(engine, _result(RUN, following), count)
    elif transfer.kind in ("end", "barrier"):
        _emit_return(engine, _result(END if transfer.kind == "end" else BARRIER, following), count)
    elif transfer.kind == "jump":
        _emit_return(engine, transfer.target.text, count)
    elif transfer.condition is None:
        _emit_return(engine, _result(RUN, transfer.target), count)
    else:
        condition = engine.typed(transfer.condition, False)
        chosen = engine.define(f"select {condition}, i64 {transfer.target}, i64 {following}", 64, False)
        _emit_return(engine, chosen.text, count)


def module_text(blocks: Sequence[Block], mode: Mode, full: bool) -> tuple[str, list[str]]:
    """The LLVM module of the blocks in one variant, and the names of the natives it calls by index."""
    engine = HostEngine(mode)
    for block in blocks:
        emit_block(engine, block, full)
    return "\n".join([*sorted(engine.declared), *engine.lines, ""]), engine.native_names


DRIVER = f"""
; Runs the waves of a workgroup in turn, a block each. Returns 0 when all have ended, else 1 + the index of a wave that
; needs Python: its status says why (fault, stopped, or run with no translation of its address).
define i64 @run_waves(ptr %waves, i64 %count, ptr %tables, i64 %base, i64 %bytes, ptr %context, ptr %memory, ptr %natives, ptr %scratch, i64 %rounds, i64 %quantum) {{
entry:
  br label %round
round:
  %left = phi i64 [ %rounds, %entry ], [ %left.next, %next.round ]
  %out = icmp eq i64 %left, 0
  br i1 %out, label %limit, label %wave
wave:
  %w = phi i64 [ 0, %round ], [ %w.next, %wave.end ]
  %running = phi i64 [ 0, %round ], [ %running.next, %wave.end ]
  %waiting = phi i64 [ 0, %round ], [ %waiting.next, %wave.end ]
  %offset = mul i64 %w, {WAVE_BYTES}
  %self = getelementptr i8, ptr %waves, i64 %offset
  %status.at = getelementptr i8, ptr %self, i64 {STATUS}
  %pc.at = getelementptr i8, ptr %self, i64 {PC}
  %exec.at = getelementptr i8, ptr %self, i64 {SGPRS + 4 * EXEC}
  %count.at = getelementptr i8, ptr %self, i64 {COUNT}
  %count.start = load i64, ptr %count.at
  %wave.at = getelementptr i64, ptr %context, i64 13
  store i64 %w, ptr %wave.at
  %status = load i64, ptr %status.at
  %is.run = icmp eq i64 %status, {RUN}
  br i1 %is.run, label %step, label %wave.done
step:
  %pc = load i64, ptr %pc.at
  %rel = sub i64 %pc, %base
  %inside = icmp ult i64 %rel, %bytes
  %low = and i64 %rel, 3
  %aligned = icmp eq i64 %low, 0
  %good = and i1 %inside, %aligned
  br i1 %good, label %lookup, label %python
lookup:
  %exec = load i64, ptr %exec.at
  %is.full = icmp eq i64 %exec, -1
  %half = select i1 %is.full, i64 0, i64 %bytes
  %doubled.rel = shl i64 %rel, 1
  %doubled.half = shl i64 %half, 1
  %entry.offset = add i64 %doubled.rel, %doubled.half
  %slot = getelementptr i8, ptr %tables, i64 %entry.offset
  %function = load ptr, ptr %slot
  %missing = icmp eq ptr %function, null
  br i1 %missing, label %python, label %call
call:
  %result = call i64 %function(ptr %self, ptr %context, ptr %memory, ptr %natives, ptr %scratch)
  %new.pc = and i64 %result, {(1 << KIND_SHIFT) - 1}
  %kind = lshr i64 %result, {KIND_SHIFT}
  store i64 %new.pc, ptr %pc.at
  store i64 %kind, ptr %status.at
  %fine = icmp ule i64 %kind, {END}
  br i1 %fine, label %again, label %python
again:
  %goes = icmp eq i64 %kind, {RUN}
  %count.now = load i64, ptr %count.at
  %spent = sub i64 %count.now, %count.start
  %more = icmp ult i64 %spent, %quantum
  %stay = and i1 %goes, %more
  br i1 %stay, label %step, label %wave.done
wave.done:
  %last = load i64, ptr %status.at
  %last.run = icmp eq i64 %last, {RUN}
  %last.wait = icmp eq i64 %last, {BARRIER}
  %one.run = zext i1 %last.run to i64
  %one.wait = zext i1 %last.wait to i64
  %running.next = add i64 %running, %one.run
  %waiting.next = add i64 %waiting, %one.wait
  br label %wave.end
wave.end:
  %w.next = add i64 %w, 1
  %more.waves = icmp ult i64 %w.next, %count
  br i1 %more.waves, label %wave, label %round.end
round.end:
  %left.next = sub i64 %left, 1
  %some.run = icmp ne i64 %running.next, 0
  br i1 %some.run, label %next.round, label %all.stand
all.stand:
  %some.wait = icmp ne i64 %waiting.next, 0
  br i1 %some.wait, label %release, label %finished
release:
  %r = phi i64 [ 0, %all.stand ], [ %r.next, %release.next ]
  %r.offset = mul i64 %r, {WAVE_BYTES}
  %r.self = getelementptr i8, ptr %waves, i64 %r.offset
  %r.status.at = getelementptr i8, ptr %r.self, i64 {STATUS}
  %r.status = load i64, ptr %r.status.at
  %r.waits = icmp eq i64 %r.status, {BARRIER}
  br i1 %r.waits, label %free, label %release.next
free:
  store i64 {RUN}, ptr %r.status.at
  br label %release.next
release.next:
  %r.next = add i64 %r, 1
  %r.more = icmp ult i64 %r.next, %count
  br i1 %r.more, label %release, label %next.round
next.round:
  br label %round
python:
  %index = add i64 %w, 1
  ret i64 %index
limit:
  ret i64 -1
finished:
  ret i64 0
}}
"""


class HostCode:
    """Compiles LLVM text to host code and keeps the objects on disk.

    Cache folder: GFX950_CACHE, else the user's cache folder; an unwritable folder costs only time.
    """

    def __init__(self, opt: int = 0) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.llvm = llvm
        features = llvm.get_host_cpu_features().flatten()
        cpu = llvm.get_host_cpu_name()
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=features, opt=opt, jit=True, codemodel="jitdefault"
        )
        self.key = "|".join(
            (VERSION, cpu, features, str(opt), ".".join(map(str, llvm.llvm_version_info)), platform.machine())
        )
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)

    def add(self, text_of: Any, key: str) -> list[str]:
        """Makes the functions of a module available. text_of() -> (LLVM text, native names) runs only on a cache miss."""
        digest = hashlib.sha256(f"{self.key}|{key}".encode()).hexdigest()
        path = cache_folder() / f"{digest}.o"
        try:
            names, _, data = path.read_bytes().partition(b"\n")
        except OSError:
            text, native_names = text_of()
            names, data = ",".join(native_names).encode(), self._compile(text)
            _keep(path, names + b"\n" + data)
        self.engine.add_object_file(self.llvm.object_file.ObjectFileRef.from_data(data))
        self.engine.finalize_object()
        return [n for n in names.decode().split(",") if n]

    def _compile(self, text: str) -> bytes:
        module = self.llvm.parse_assembly(text)
        data: bytes = self.machine.emit_object(module)
        return data

    def address(self, name: str) -> int:
        """The address of a function."""
        return int(self.engine.get_function_address(name))


def cache_folder() -> Path:
    """Where translations are kept."""
    chosen = os.environ.get("GFX950_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gfx950"


def _keep(path: Path, data: bytes) -> None:
    """Writes atomically; a folder that cannot be written only costs the next translation."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as temporary:
            temporary.write(data)
        os.replace(temporary.name, path)
    except OSError:
        return
