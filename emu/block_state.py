"""The registers of a wave while a block is translated: each access becomes LLVM text on the wave's memory."""

from __future__ import annotations

from typing import Any

from emu.block_memory import HostLanes, HostScalarReads, checked_call
from emu.engines.host_engine import HostEngine, Value
from emu.host_layout import COUNT, HARDWARE, ISSUED, MODE_TABLES, SCC, SGPRS, TABLES, WINDOWS, mode_key
from emu.register_checks import AGPR, check_scalar, check_vector
from gfx950.isa.mode_registers import MODE
from gfx950.isa.operand_codes import EXEC, M0, VCC
from gfx950.lanes import ALL_LANES, U32


class BlockState:
    """The State of `emu.execute` while a block is translated."""

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
        return self._in_wave(offset)

    def _in_wave(self, offset: int) -> str:
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
        start = self._in_wave(first)
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
        return self._in_wave(HARDWARE + 4 * number)

    def set_mode(self, value: Value) -> None:
        """Writes MODE and finds the tables of its translations (0 where there are none yet)."""
        host, mode = self.host, U32(self.engine, value)
        self.set_hardware_word(MODE, value)
        key = host.typed(host.apply("zext", 64, mode_key(mode).raw), False)
        sets = host.define(f"getelementptr i64, ptr %context, i64 {MODE_TABLES}", 64, False).text
        first = host.define(f"load ptr, ptr {sets}", 64, False).text
        slot = host.define(f"getelementptr i64, ptr {first}, {key}", 64, False).text
        tables = host.define(f"load i64, ptr {slot}", 64, False).text
        place = self._in_wave(TABLES)
        host.emit(f"store i64 {tables}, ptr {place}")

    def word(self, offset: int, more: int = 0) -> Value:
        """A 64-bit word of the wave, and what the block has not added to it yet."""
        at = self._in_wave(offset)
        old = self.host.define(f"load i64, ptr {at}", 64, False)
        return self.host.define(f"add i64 {old.text}, {more}", 64, False) if more else old

    def clock(self) -> Value:
        return self.word(COUNT, self.done)

    def issue(self) -> None:
        self.issued += 1

    def land(self, outstanding: int) -> None:
        upto = self.host.define(f"sub i64 {self.word(ISSUED, self.issued).text}, {outstanding}", 64, False)
        checked_call(self.host, "land", f"ptr %wave, i64 {upto.text}")

    def window(self, name: str) -> Value:
        at = self._in_wave(WINDOWS[name])
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
