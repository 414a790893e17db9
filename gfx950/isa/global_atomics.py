"""FLAT and GLOBAL atomics. SC0 = 1 returns the old datum, SC0 = 0 writes no register. [CDNA4 ISA 9.2, 12.15]"""

from __future__ import annotations

from typing import Any

from gfx950.evidence import Rule
from gfx950.isa import atomic_operations as op
from gfx950.isa.registry import Global, flat, global_
from gfx950.lanes import B128, U32, U64

RULES = (op.ORDER, op.ALIGNMENT)
SEGMENTS = (("flat", flat), ("global", global_))


def _atomic(name: str, opcode: int, kind: Any, operation: op.Operation, more_rules: tuple[Rule, ...]) -> None:
    """One operand, in both segments. kind: the datum's type."""
    registers = U64 if kind.width == 64 else U32

    def body(memory: Any, address: Any, data0: Any, sc0: Any) -> Any:
        old = memory.atomic(address, [data0.bits(kind)], operation)
        return old.bits(registers) if sc0 else None

    returned: Any = registers | None
    body.__annotations__ = {"memory": Global, "address": U64, "data0": registers, "sc0": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at each lane's address; D = the old t if SC0. [12.15]"
    for segment, define in SEGMENTS:
        define(f"{segment}_atomic_{name}", opcode, rules=(*RULES, *more_rules))(body)


def _swap_32(memory: Global, address: U64, data0: U64, sc0: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if SC0. [12.15]"""
    old = memory.atomic(address, op.compared_and_new(data0), op.compare_exchange)
    return old if sc0 else None


def _swap_64(memory: Global, address: U64, data0: B128, sc0: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if SC0. [12.15]"""
    old = memory.atomic(address, op.compared_and_new(data0), op.compare_exchange)
    return old if sc0 else None


for _row in op.vector_atomics():
    _atomic(*_row)
for _segment, _define in SEGMENTS:
    _define(f"{_segment}_atomic_cmpswap", 65, rules=RULES)(_swap_32)
    _define(f"{_segment}_atomic_cmpswap_x2", 97, rules=RULES)(_swap_64)
