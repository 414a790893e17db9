"""FLAT and GLOBAL atomics. SC0 = 1 returns the old datum, SC0 = 0 writes no register. [CDNA4 ISA 9.2, 12.15]"""

from __future__ import annotations

from typing import Any

from gfx950.isa import atomic_operations as op
from gfx950.isa.atomic_operations import FLOATS, INTEGER, Operation, integer_type
from gfx950.isa.registry import Global, flat, global_
from gfx950.lanes import B128, U32, U64, join, split

RULES = (op.ORDER, op.ALIGNMENT)


def _atomic(name: str, opcode: int, kind: Any, operation: Operation, *more_rules: Any) -> None:
    """One operand, in both segments. kind: the datum's type."""
    registers = U64 if kind.width == 64 else U32

    def body(memory: Any, address: Any, data0: Any, sc0: Any) -> Any:
        old = memory.atomic(address, [data0.bits(kind)], operation)
        return old.bits(registers) if sc0 else None

    returned: Any = registers | None
    body.__annotations__ = {"memory": Global, "address": U64, "data0": registers, "sc0": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at each lane's address; D = the old t if SC0. [12.15]"
    for segment, define in (("flat", flat), ("global", global_)):
        define(f"{segment}_atomic_{name}", opcode, rules=(*RULES, *more_rules))(body)


def _integer_families() -> None:
    for width, first, suffix in ((32, 64, ""), (64, 96, "_x2")):
        _atomic(f"swap{suffix}", first, integer_type(False, width), op.exchange)
        for index, (name, signed, operation) in enumerate(INTEGER):
            _atomic(f"{name}{suffix}", first + 2 + index, integer_type(signed, width), operation)


def _float_families() -> None:
    add_rules = (op.FLOAT_ADD, op.MEMORY_DENORM)
    _atomic("add_f32", 77, FLOATS[32], op.float_add_exact, *add_rules)
    _atomic("pk_add_f16", 78, U32, op.PK_ADD_F16, *add_rules)
    _atomic("add_f64", 79, FLOATS[64], op.float_add_exact, *add_rules)
    _atomic("min_f64", 80, FLOATS[64], op.MIN_FLOAT, op.FLOAT_ORDER)
    _atomic("max_f64", 81, FLOATS[64], op.MAX_FLOAT, op.FLOAT_ORDER)
    _atomic("pk_add_bf16", 82, U32, op.PK_ADD_BF16, *add_rules)


def _swap_32(memory: Global, address: U64, data0: U64, sc0: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if SC0. [12.15]"""
    new, compare = split(data0)
    old = memory.atomic(address, [compare, new], op.compare_exchange)
    return old if sc0 else None


def _swap_64(memory: Global, address: U64, data0: B128, sc0: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if SC0. [12.15]"""
    new, compare = join(data0[0], data0[1]), join(data0[2], data0[3])
    old = memory.atomic(address, [compare, new], op.compare_exchange)
    return old if sc0 else None


_integer_families()
_float_families()
for _segment, _define in (("flat", flat), ("global", global_)):
    _define(f"{_segment}_atomic_cmpswap", 65, rules=RULES)(_swap_32)
    _define(f"{_segment}_atomic_cmpswap_x2", 97, rules=RULES)(_swap_64)
