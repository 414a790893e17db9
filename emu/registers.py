"""Hardware registers and computed register numbers, as instructions see them; the same on every engine.

A wave keeps the registers as words by number: MODE in force, the others as the launch set them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gfx950.isa.mode_registers import MODE, STATUS, TRAPSTS
from gfx950.isa.operand_codes import EXEC, VCC
from gfx950.lanes import U32, U64, Mask, join

if TYPE_CHECKING:
    from emu.state import State

HARDWARE_REGISTERS = 32
EXCEPTION_FLAGS = 0x1FF  # the bits of TRAPSTS that any program may write [CDNA4 ISA 3.10.1]
LAST_SGPR = 101


class HardwareWords:
    """The registers of S_GETREG and S_SETREG [rule salu.hardware_registers]."""

    def __init__(self, state: State) -> None:
        self.state = state

    def read(self, number: int) -> U32:
        """The whole register; 0 for one that does not exist."""
        engine = self.state.engine
        if number >= HARDWARE_REGISTERS:
            return U32.constant(engine, 0)
        word = U32(engine, self.state.hardware_word(number))
        return word | self._live_status() if number == STATUS else word

    def _live_status(self) -> U32:
        """SCC, EXECZ and VCCZ at their places in STATUS. [CDNA4 ISA 3.4]"""
        engine, state = self.state.engine, self.state
        scc = Mask(engine, state.scc())
        zeros = [
            join(U32(engine, state.sgpr(pair)), U32(engine, state.sgpr(pair + 1))).bits(U64) == 0
            for pair in (EXEC, VCC)
        ]
        flags = [(scc, 0), (zeros[0], 9), (zeros[1], 10)]
        total = U32.constant(engine, 0)
        for flag, bit in flags:
            total = total | flag.select(U32.constant(engine, 1 << bit), 0)
        return total

    def write(self, number: int, value: U32) -> None:
        """MODE and the exception flags of TRAPSTS can be written."""
        if number == MODE:
            self.state.set_mode(value.raw)
        if number == TRAPSTS:
            kept = self.read(number) & (0xFFFFFFFF ^ EXCEPTION_FLAGS)
            self.state.set_hardware_word(number, (kept | value & EXCEPTION_FLAGS).raw)


class ScalarNumbers:
    """SGPRs by computed number [rule salu.relative]."""

    def __init__(self, state: State) -> None:
        self.state = state

    def read(self, index: U32) -> U32:
        """SGPR `index`, SGPR 0 past the last."""
        inside = (index <= LAST_SGPR).select(index, 0)
        return U32(self.state.engine, self.state.sgpr_at(inside.raw))

    def write(self, index: U32, value: U32) -> None:
        """SGPR `index` = value; nothing past the last."""
        inside = index <= LAST_SGPR
        at = inside.select(index, 0)
        old = U32(self.state.engine, self.state.sgpr_at(at.raw))
        self.state.set_sgpr_at(at.raw, inside.select(value, old).raw)
