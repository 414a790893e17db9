"""DS atomics: integers and floats of 32 and 64 bits in LDS. [CDNA4 ISA 12.12]"""

from __future__ import annotations

from typing import Any

from gfx950.evidence import Evidence, Rule, rule
from gfx950.isa import atomic_operations as op
from gfx950.isa.atomic_operations import FLOATS, Operation, integer_type
from gfx950.isa.ds import ADDRESS, EQUAL_OFFSETS
from gfx950.isa.registry import Exec, Instruction, Lds, ds
from gfx950.lanes import B128, U32, U64, join, split

APPEND = rule(
    "lds.append",
    Evidence.vendor,
    "compilers put the LDS address in M0; the manual's text has the offset alone",
    "DS_APPEND and DS_CONSUME count the active lanes in the dword at M0[15:0] + offset; all receive the old value.",
)


def _atomic(
    name: str,
    opcode: int,
    kind: Any,
    operation: Operation,
    operands: int = 1,
    returns: bool = False,
    rules: tuple[Rule, ...] = (),
) -> Instruction:
    """One opcode. kind: the datum's type. operands: 1 (DATA0) or 2 (DATA0, DATA1)."""
    registers = U64 if kind.width == 64 else U32

    def one(lds: Any, addr: Any, data0: Any, offset: Any) -> Any:
        old = lds.atomic(addr + offset, [data0.bits(kind)], operation)
        return old.bits(registers) if returns else None

    def two(lds: Any, addr: Any, data0: Any, data1: Any, offset: Any) -> Any:
        old = lds.atomic(addr + offset, [data0.bits(kind), data1.bits(kind)], operation)
        return old.bits(registers) if returns else None

    body = one if operands == 1 else two
    second = {"data1": registers} if operands == 2 else {}
    result = registers if returns else None
    body.__annotations__ = {"lds": Lds, "addr": U32, "data0": registers, **second, "offset": int, "return": result}
    body.__doc__ = (
        f"{'D = t; ' if returns else ''}t = {operation.__doc__} {kind.__name__} at each lane's address. [12.12]"
    )
    return ds(name, opcode, rules=(ADDRESS, op.ORDER, *rules))(body)


def _pair(
    name: str,
    opcode: int,
    returning: int,
    kind: Any,
    operation: Operation,
    operands: int = 1,
    rules: tuple[Rule, ...] = (),
) -> None:
    """The form without return and the RTN form."""
    operation_name, _, suffix = name.rpartition("_")
    _atomic(f"ds_{name}", opcode, kind, operation, operands, False, rules)
    _atomic(f"ds_{operation_name}_rtn_{suffix}", returning, kind, operation, operands, True, rules)


def _integer_families() -> None:
    # name, signed, operation, operands: opcodes 0.. of each family
    table: tuple[tuple[str, bool, Operation, int], ...] = (
        ("add_u", False, op.add, 1),
        ("sub_u", False, op.subtract, 1),
        ("rsub_u", False, op.subtract_reversed, 1),
        ("inc_u", False, op.increment, 1),
        ("dec_u", False, op.decrement, 1),
        ("min_i", True, op.minimum, 1),
        ("max_i", True, op.maximum, 1),
        ("min_u", False, op.minimum, 1),
        ("max_u", False, op.maximum, 1),
        ("and_b", False, op.bitwise_and, 1),
        ("or_b", False, op.bitwise_or, 1),
        ("xor_b", False, op.bitwise_xor, 1),
        ("mskor_b", False, op.masked_or, 2),
    )
    for width, first in ((32, 0), (64, 64)):
        for index, (name, signed, operation, operands) in enumerate(table):
            kind = integer_type(signed, width)
            _pair(f"{name}{width}", first + index, first + index + 32, kind, operation, operands)
        unsigned = integer_type(False, width)
        _pair(f"cmpst_b{width}", first + 16, first + 48, unsigned, op.compare_exchange, 2)
        _atomic(f"ds_wrxchg_rtn_b{width}", first + 45, unsigned, op.exchange, returns=True)


def _float_families() -> None:
    order = (op.FLOAT_ORDER, op.MEMORY_FIRST, op.LDS_DENORM)
    add = (op.FLOAT_ADD, op.MEMORY_FIRST, op.LDS_DENORM)
    for width, first in ((32, 0), (64, 64)):
        kind = FLOATS[width]
        _pair(f"cmpst_f{width}", first + 17, first + 49, kind, op.compare_exchange_float, 2, (op.LDS_DENORM,))
        _pair(f"min_f{width}", first + 18, first + 50, kind, op.MIN_FLOAT_LDS, rules=order)
        _pair(f"max_f{width}", first + 19, first + 51, kind, op.MAX_FLOAT_LDS, rules=order)
    _pair("add_f32", 21, 53, FLOATS[32], op.float_add, rules=add)
    _pair("add_f64", 92, 124, FLOATS[64], op.float_add_exact, rules=add)
    _pair("pk_add_f16", 23, 183, U32, op.PK_ADD_F16_LDS, rules=add)
    _pair("pk_add_bf16", 24, 184, U32, op.PK_ADD_BF16_LDS, rules=(*add, op.LDS_DENORM_BF16))


_integer_families()
_float_families()
ds_wrap_rtn_b32 = _atomic("ds_wrap_rtn_b32", 52, U32, op.wrap, operands=2, returns=True)


def _exchange_two(name: str, opcode: int, unit: int) -> Instruction:
    def exchanged(lds: Any, addr: U32, data: tuple[Any, Any], offset0: int, offset1: int) -> list[Any]:
        first = lds.atomic(addr + offset0 * unit, [data[0]], op.exchange)
        second = first if offset0 == offset1 else lds.atomic(addr + offset1 * unit, [data[1]], op.exchange)
        return [first, second]

    def on_32_bits(lds: Lds, addr: U32, data0: U32, data1: U32, offset0: int, offset1: int) -> U64:
        return join(*exchanged(lds, addr, (data0, data1), offset0, offset1))

    def on_64_bits(lds: Lds, addr: U32, data0: U64, data1: U64, offset0: int, offset1: int) -> B128:
        return B128([word for old in exchanged(lds, addr, (data0, data1), offset0, offset1) for word in split(old)])

    body: Any = on_32_bits if name.endswith("b32") else on_64_bits
    body.__doc__ = f"Two exchanges, offsets in {unit} bytes; D = the old data. [12.12]"
    return ds(name, opcode, rules=(ADDRESS, EQUAL_OFFSETS, op.ORDER))(body)


ds_wrxchg2_rtn_b32 = _exchange_two("ds_wrxchg2_rtn_b32", 46, 4)
ds_wrxchg2st64_rtn_b32 = _exchange_two("ds_wrxchg2st64_rtn_b32", 47, 256)
ds_wrxchg2_rtn_b64 = _exchange_two("ds_wrxchg2_rtn_b64", 110, 8)
ds_wrxchg2st64_rtn_b64 = _exchange_two("ds_wrxchg2st64_rtn_b64", 111, 512)


def _taken(t: U32, s: U32) -> U32:
    """s without its top bit where that bit is set, else t."""
    return ((s >> 31) != 0).select(s & 0x7FFFFFFF, t)


@ds("ds_condxchg32_rtn_b64", 126, rules=(op.ORDER,))
def ds_condxchg32_rtn_b64(lds: Lds, addr: U32, data0: U64, offset: int) -> U64:
    """Each dword of DATA0 with its top bit set replaces that of LDS, without the bit; D = the old data. [12.12]"""
    address = (addr + offset) & 0xFFF8
    low, high = split(data0)
    return join(lds.atomic(address, [low], _taken), lds.atomic(address + 4, [high], _taken))


def _counted(lds: Lds, m0: U32, offset: int, change: U32) -> U32:
    address = ((m0 & 0xFFFF) + offset).splat()
    old = lds.load(address, 4)[0]
    lds.store(address, [old + change], 4)
    return old


@ds("ds_consume", 189, rules=(APPEND,))
def ds_consume(lds: Lds, m0: U32, exec: Exec, offset: int) -> U32:
    """D = the dword at M0 + offset; it falls by the number of active lanes. [12.12]"""
    return _counted(lds, m0, offset, -exec.popcount().to(U32))


@ds("ds_append", 190, rules=(APPEND,))
def ds_append(lds: Lds, m0: U32, exec: Exec, offset: int) -> U32:
    """D = the dword at M0 + offset; it grows by the number of active lanes. [12.12]"""
    return _counted(lds, m0, offset, exec.popcount().to(U32))
