"""Atomics through a buffer descriptor. SC0 = 1 returns the old datum into the data register. [CDNA4 ISA 9.2, 12.13]"""

from __future__ import annotations

from typing import Any

from gfx950.evidence import Rule
from gfx950.isa import atomic_operations as op
from gfx950.isa import buffer_addressing
from gfx950.isa.buffer_memory import Buffer
from gfx950.isa.registry import mubuf
from gfx950.lanes import B128, U32, U64

RULES = (*buffer_addressing.RULES, op.ORDER, op.ALIGNMENT)


def _atomic(name: str, opcode: int, kind: Any, operation: op.Operation, more_rules: tuple[Rule, ...]) -> None:
    """One operand. kind: the datum's type."""
    registers = U64 if kind.width == 64 else U32

    def body(buffer: Any, data0: Any, sc0: Any) -> Any:
        old = buffer.atomic([data0.bits(kind)], operation)
        return old.bits(registers) if sc0 else None

    returned: Any = registers | None
    body.__annotations__ = {"buffer": Buffer, "data0": registers, "sc0": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at each lane's address; D = the old t if SC0. [12.13]"
    mubuf(f"buffer_atomic_{name}", opcode, rules=(*RULES, *more_rules))(body)


for _row in op.vector_atomics():
    _atomic(*_row)


@mubuf("buffer_atomic_cmpswap", 65, rules=RULES)
def buffer_atomic_cmpswap(buffer: Buffer, data0: U64, sc0: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if SC0. [12.13]"""
    old = buffer.atomic(op.compared_and_new(data0), op.compare_exchange)
    return old if sc0 else None


@mubuf("buffer_atomic_cmpswap_x2", 97, rules=RULES)
def buffer_atomic_cmpswap_x2(buffer: Buffer, data0: B128, sc0: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if SC0. [12.13]"""
    old = buffer.atomic(op.compared_and_new(data0), op.compare_exchange)
    return old if sc0 else None
