"""SMEM: scalar loads, stores, atomics and the scalar cache. [CDNA4 ISA 8, 12.6]"""

from __future__ import annotations

from typing import Any

from gfx950.evidence import Evidence, rule
from gfx950.isa.atomic_operations import (
    ALIGNMENT,
    INTEGER,
    Operation,
    compare_exchange,
    exchange,
    integer_type,
)
from gfx950.isa.registry import Instruction, Scalar, smem
from gfx950.lanes import B128, B256, B512, U32, U64, join, split

BUFFER_RANGE = rule(
    "smem.buffer_range",
    Evidence.chosen,
    "CDNA4 ISA 8.2.1, 8.4: per dword, but the printed bound is no number of bytes",
    "S_BUFFER_LOAD reads a dword when all of it lies below num_records bytes, or num_records * stride bytes when the"
    " stride is not 0; a dword beyond reads 0.",
)
CLOCK = rule(
    "smem.clock",
    Evidence.chosen,
    "CDNA4 ISA 12.6: a free-running counter; nothing may depend on its value",
    "S_MEMTIME and S_MEMREALTIME return 0.",
)


@smem("s_load_dword", 0)
def s_load_dword(memory: Scalar, address: U64) -> U32:
    """1 dword. [12.6]"""
    return memory.load(address, 1)[0]


@smem("s_load_dwordx2", 1)
def s_load_dwordx2(memory: Scalar, address: U64) -> U64:
    """2 dwords. [12.6]"""
    return join(*memory.load(address, 2))


@smem("s_load_dwordx4", 2)
def s_load_dwordx4(memory: Scalar, address: U64) -> B128:
    """4 dwords. [12.6]"""
    return B128(memory.load(address, 4))


@smem("s_load_dwordx8", 3)
def s_load_dwordx8(memory: Scalar, address: U64) -> B256:
    """8 dwords. [12.6]"""
    return B256(memory.load(address, 8))


@smem("s_load_dwordx16", 4)
def s_load_dwordx16(memory: Scalar, address: U64) -> B512:
    """16 dwords. [12.6]"""
    return B512(memory.load(address, 16))


def _buffer_load(memory: Scalar, descriptor: B128, offset: U64, words: int) -> tuple[U32, ...]:
    """Dwords of a buffer; those out of range are 0. [8.2.1, rule smem.buffer_range]"""
    base = join(descriptor[0], descriptor[1] & 0xFFFF) & ~3
    stride = descriptor[1].field(16, 14).to(U64)
    records = descriptor[2].to(U64)
    limit = (stride == 0).select(records, records * stride)
    aligned = offset & ~3
    left = (aligned < limit).select(limit - aligned, 0)
    return memory.load_bounded(base + aligned, words, left >> 2)


@smem("s_buffer_load_dword", 8, rules=(BUFFER_RANGE,))
def s_buffer_load_dword(memory: Scalar, sbase: B128, smem_offset: U64) -> U32:
    """1 dword of a buffer. [12.6]"""
    return _buffer_load(memory, sbase, smem_offset, 1)[0]


@smem("s_buffer_load_dwordx2", 9, rules=(BUFFER_RANGE,))
def s_buffer_load_dwordx2(memory: Scalar, sbase: B128, smem_offset: U64) -> U64:
    """2 dwords of a buffer. [12.6]"""
    return join(*_buffer_load(memory, sbase, smem_offset, 2))


@smem("s_buffer_load_dwordx4", 10, rules=(BUFFER_RANGE,))
def s_buffer_load_dwordx4(memory: Scalar, sbase: B128, smem_offset: U64) -> B128:
    """4 dwords of a buffer. [12.6]"""
    return B128(_buffer_load(memory, sbase, smem_offset, 4))


@smem("s_buffer_load_dwordx8", 11, rules=(BUFFER_RANGE,))
def s_buffer_load_dwordx8(memory: Scalar, sbase: B128, smem_offset: U64) -> B256:
    """8 dwords of a buffer. [12.6]"""
    return B256(_buffer_load(memory, sbase, smem_offset, 8))


@smem("s_buffer_load_dwordx16", 12, rules=(BUFFER_RANGE,))
def s_buffer_load_dwordx16(memory: Scalar, sbase: B128, smem_offset: U64) -> B512:
    """16 dwords of a buffer. [12.6]"""
    return B512(_buffer_load(memory, sbase, smem_offset, 16))


def _clock(name: str, opcode: int) -> Instruction:
    def body(pc: U64) -> U64:
        return U64.constant(pc.engine, 0)

    body.__doc__ = "A clock; always 0 here. [12.6, rule smem.clock]"
    return smem(name, opcode, rules=(CLOCK,), intrinsic=f"llvm.amdgcn.{name.replace('_', '.')}")(body)


s_memtime = _clock("s_memtime", 36)
s_memrealtime = _clock("s_memrealtime", 37)


def _cache(name: str, opcode: int) -> Instruction:
    def body() -> None: ...

    body.__doc__ = "Acts on the scalar cache only: memory is coherent here. [12.6]"
    return smem(name, opcode, flow="nothing")(body)


s_dcache_inv = _cache("s_dcache_inv", 32)
s_dcache_wb = _cache("s_dcache_wb", 33)
s_dcache_inv_vol = _cache("s_dcache_inv_vol", 34)
s_dcache_wb_vol = _cache("s_dcache_wb_vol", 35)


@smem("s_store_dword", 16)
def s_store_dword(memory: Scalar, address: U64, data0: U32) -> None:
    """1 dword. [12.6]"""
    memory.store(address, [data0])


@smem("s_store_dwordx2", 17)
def s_store_dwordx2(memory: Scalar, address: U64, data0: U64) -> None:
    """2 dwords. [12.6]"""
    memory.store(address, split(data0))


@smem("s_store_dwordx4", 18)
def s_store_dwordx4(memory: Scalar, address: U64, data0: B128) -> None:
    """4 dwords. [12.6]"""
    memory.store(address, data0.words)


def _atomic(name: str, opcode: int, kind: Any, operation: Operation) -> None:
    registers = U64 if kind.width == 64 else U32

    def body(memory: Any, address: Any, data0: Any, glc: Any) -> Any:
        old = memory.atomic(address, [data0.bits(kind)], operation)
        return old.bits(registers) if glc else None

    returned: Any = registers | None
    body.__annotations__ = {"memory": Scalar, "address": U64, "data0": registers, "glc": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at the address; D = the old t if GLC. [12.6]"
    smem(f"s_atomic_{name}", opcode, rules=(ALIGNMENT,))(body)


for _width, _first, _suffix in ((32, 128, ""), (64, 160, "_x2")):
    _atomic(f"swap{_suffix}", _first, integer_type(False, _width), exchange)
    for _index, (_name, _signed, _operation) in enumerate(INTEGER):
        _atomic(f"{_name}{_suffix}", _first + 2 + _index, integer_type(_signed, _width), _operation)


@smem("s_atomic_cmpswap", 129, rules=(ALIGNMENT,))
def s_atomic_cmpswap(memory: Scalar, address: U64, data0: U64, glc: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if GLC. [12.6]"""
    new, compare = split(data0)
    old = memory.atomic(address, [compare, new], compare_exchange)
    return old if glc else None


@smem("s_atomic_cmpswap_x2", 161, rules=(ALIGNMENT,))
def s_atomic_cmpswap_x2(memory: Scalar, address: U64, data0: B128, glc: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if GLC. [12.6]"""
    new, compare = join(data0[0], data0[1]), join(data0[2], data0[3])
    old = memory.atomic(address, [compare, new], compare_exchange)
    return old if glc else None
