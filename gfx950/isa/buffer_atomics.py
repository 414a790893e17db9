"""Atomics through a buffer descriptor. SC0 = 1 returns the old datum into the data register. [CDNA4 ISA 9.2, 12.13]"""

from __future__ import annotations

from typing import Any

from gfx950.isa import atomic_operations as op
from gfx950.isa import buffer_addressing
from gfx950.isa.atomic_operations import FLOATS, INTEGER, Operation, integer_type
from gfx950.isa.buffer_memory import Buffer
from gfx950.isa.registry import mubuf
from gfx950.lanes import B128, U32, U64, join, split

RULES = (*buffer_addressing.RULES, op.ORDER, op.ALIGNMENT)


def _atomic(name: str, opcode: int, kind: Any, operation: Operation, *more_rules: Any) -> None:
    """One operand. kind: the datum's type."""
    registers = U64 if kind.width == 64 else U32

    def body(buffer: Any, data0: Any, sc0: Any) -> Any:
        old = buffer.atomic([data0.bits(kind)], operation)
        return old.bits(registers) if sc0 else None

    returned: Any = registers | None
    body.__annotations__ = {"buffer": Buffer, "data0": registers, "sc0": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at each lane's address; D = the old t if SC0. [12.13]"
    mubuf(f"buffer_atomic_{name}", opcode, rules=(*RULES, *more_rules))(body)


for _width, _first, _suffix in ((32, 64, ""), (64, 96, "_x2")):
    _atomic(f"swap{_suffix}", _first, integer_type(False, _width), op.exchange)
    for _index, (_name, _signed, _operation) in enumerate(INTEGER):
        _atomic(f"{_name}{_suffix}", _first + 2 + _index, integer_type(_signed, _width), _operation)

_ADD_RULES = (op.FLOAT_ADD, op.MEMORY_DENORM)
_atomic("add_f32", 77, FLOATS[32], op.float_add_exact, *_ADD_RULES)
_atomic("pk_add_f16", 78, U32, op.PK_ADD_F16, *_ADD_RULES)
_atomic("add_f64", 79, FLOATS[64], op.float_add_exact, *_ADD_RULES)
_atomic("min_f64", 80, FLOATS[64], op.MIN_FLOAT, op.FLOAT_ORDER)
_atomic("max_f64", 81, FLOATS[64], op.MAX_FLOAT, op.FLOAT_ORDER)
_atomic("pk_add_bf16", 82, U32, op.PK_ADD_BF16, *_ADD_RULES)


@mubuf("buffer_atomic_cmpswap", 65, rules=RULES)
def buffer_atomic_cmpswap(buffer: Buffer, data0: U64, sc0: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if SC0. [12.13]"""
    new, compare = split(data0)
    old = buffer.atomic([compare, new], op.compare_exchange)
    return old if sc0 else None


@mubuf("buffer_atomic_cmpswap_x2", 97, rules=RULES)
def buffer_atomic_cmpswap_x2(buffer: Buffer, data0: B128, sc0: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if SC0. [12.13]"""
    new, compare = join(data0[0], data0[1]), join(data0[2], data0[3])
    old = buffer.atomic([compare, new], op.compare_exchange)
    return old if sc0 else None
