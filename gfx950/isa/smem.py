"""SMEM: scalar loads, stores, atomics and the scalar cache. [CDNA4 ISA 8, 12.6]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gfx950.evidence import Evidence, rule
from gfx950.isa.atomic_operations import ALIGNMENT, Operation, compare_exchange, compared_and_new, integer_atomics
from gfx950.isa.registry import Instruction, Scalar, smem
from gfx950.lanes import B128, B256, B512, U32, U64, in_registers, join, registers_of, split

BUFFER_RANGE = rule(
    "smem.buffer_range",
    Evidence.chosen,
    "CDNA4 ISA 8.2.1, 8.4: per dword, but the printed bound is no number of bytes",
    "S_BUFFER_* reach a dword when all of it lies below num_records bytes, or num_records * stride bytes when the"
    " stride is not 0; a dword beyond reads 0 and is not written. An atomic reaches all of its datum or nothing; then"
    " it gives 0.",
)
SCRATCH = rule(
    "smem.scratch",
    Evidence.spec,
    "CDNA4 ISA 8.2.1.1, 12.6",
    "S_SCRATCH_* are S_LOAD and S_STORE whose register offset counts 64 bytes; the immediate counts bytes.",
)
DISCARD = rule(
    "smem.discard",
    Evidence.chosen,
    "CDNA4 ISA 12.6: S_DCACHE_DISCARD drops dirty lines; which lines still are dirty no program can know",
    "S_DCACHE_DISCARD does nothing: scalar stores are in memory at once, so no line is dirty.",
)
PROBE = rule(
    "smem.atc_probe",
    Evidence.chosen,
    "CDNA4 ISA 12.6 leaves S_ATC_PROBE out, LLVM's assembler has it; the manuals of Vega: it prefetches translations",
    "S_ATC_PROBE and S_ATC_PROBE_BUFFER do nothing: an address that is not mapped is no fault there.",
)
CLOCK = rule(
    "smem.clock",
    Evidence.chosen,
    "CDNA4 ISA 12.6: a free-running counter; nothing may depend on its value",
    "S_MEMTIME and S_MEMREALTIME return how many instructions the wave has run.",
)


BUFFER: dict[str, Any] = {"memory": Scalar, "sbase": B128, "smem_offset": U64}  # the operands of a buffer access
WIDTHS: tuple[tuple[int, Any, str], ...] = ((1, U32, "dword"), (2, U64, "dwordx2"), (4, B128, "dwordx4"))


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


def _scratch(count: int, registers: Any, name: str) -> None:
    def load(memory: Any, address: Any) -> Any:
        return in_registers(memory.load(address, count))

    def store(memory: Any, address: Any, data0: Any) -> None:
        memory.store(address, registers_of(data0))

    load.__annotations__ = {"memory": Scalar, "address": U64, "return": registers}
    store.__annotations__ = {"memory": Scalar, "address": U64, "data0": registers, "return": None}
    load.__doc__ = store.__doc__ = f"{count} dword{'s' if count > 1 else ''}; offsets by S_SCRATCH's rule. [12.6]"
    step = count.bit_length() - 1
    smem(f"s_scratch_load_{name}", 5 + step, rules=(SCRATCH,))(load)
    smem(f"s_scratch_store_{name}", 21 + step, rules=(SCRATCH,))(store)


for _words, _register, _kind in WIDTHS:
    _scratch(_words, _register, _kind)


def _place(descriptor: B128, offset: U64) -> tuple[U64, U64]:
    """The address of an offset into a buffer, and the buffer's dwords from there on. [8.2.1, rule smem.buffer_range]"""
    base = join(descriptor[0], descriptor[1] & 0xFFFF) & ~3
    stride = descriptor[1].field(16, 14).to(U64)
    records = descriptor[2].to(U64)
    limit = (stride == 0).select(records, records * stride)
    aligned = offset & ~3
    return base + aligned, (aligned < limit).select(limit - aligned, 0) >> 2


def _buffer_load(memory: Scalar, descriptor: B128, offset: U64, words: int) -> tuple[U32, ...]:
    """Dwords of a buffer; those out of range are 0."""
    address, available = _place(descriptor, offset)
    return memory.load_bounded(address, words, available)


def _buffer_store(memory: Scalar, descriptor: B128, offset: U64, words: Sequence[U32]) -> None:
    """Dwords into a buffer; those out of range are dropped."""
    address, available = _place(descriptor, offset)
    for index, word in enumerate(words):
        memory.store(address + 4 * index, [word], available > index)


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
    def body(clock: U64) -> U64:
        return clock

    body.__doc__ = "A clock: instructions the wave has run. [12.6, rule smem.clock]"
    return smem(name, opcode, rules=(CLOCK,), intrinsic=f"llvm.amdgcn.{name.replace('_', '.')}")(body)


s_memtime = _clock("s_memtime", 36)
s_memrealtime = _clock("s_memrealtime", 37)


_COHERENT = "Acts on the scalar cache only: memory is coherent here. [12.6]"


def _cache(name: str, opcode: int, text: str = _COHERENT, **options: Any) -> Instruction:
    def body() -> None: ...

    body.__doc__ = text
    return smem(name, opcode, flow="nothing", **options)(body)


s_dcache_inv = _cache("s_dcache_inv", 32)
s_dcache_wb = _cache("s_dcache_wb", 33)
s_dcache_inv_vol = _cache("s_dcache_inv_vol", 34)
s_dcache_wb_vol = _cache("s_dcache_wb_vol", 35)

_DISCARD = "Drops 64 or 128 bytes of the scalar cache that memory does not have yet. [12.6, rule smem.discard]"
s_dcache_discard = _cache("s_dcache_discard", 40, _DISCARD, rules=(DISCARD,))
s_dcache_discard_x2 = _cache("s_dcache_discard_x2", 41, _DISCARD, rules=(DISCARD,))
_PROBE = "Fetches an address translation ahead. [rule smem.atc_probe]"
s_atc_probe = _cache("s_atc_probe", 38, _PROBE, rules=(PROBE,))
s_atc_probe_buffer = _cache("s_atc_probe_buffer", 39, _PROBE, rules=(PROBE,))


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


def _buffer_stores(count: int, registers: Any, name: str) -> None:
    def body(memory: Any, sbase: Any, smem_offset: Any, data0: Any) -> None:
        _buffer_store(memory, sbase, smem_offset, registers_of(data0))

    body.__annotations__ = {**BUFFER, "data0": registers, "return": None}
    body.__doc__ = f"{count} dword{'s' if count > 1 else ''} into a buffer. [12.6]"
    smem(f"s_buffer_store_{name}", 23 + count.bit_length(), rules=(BUFFER_RANGE,))(body)


for _words, _register, _kind in WIDTHS:
    _buffer_stores(_words, _register, _kind)


def _atomic(name: str, opcode: int, kind: Any, operation: Operation) -> None:
    registers = U64 if kind.width == 64 else U32

    def body(memory: Any, address: Any, data0: Any, glc: Any) -> Any:
        old = memory.atomic(address, [data0.bits(kind)], operation)
        return old.bits(registers) if glc else None

    returned: Any = registers | None
    body.__annotations__ = {"memory": Scalar, "address": U64, "data0": registers, "glc": int, "return": returned}
    body.__doc__ = f"t = {operation.__doc__} {kind.__name__} at the address; D = the old t if GLC. [12.6]"
    smem(f"s_atomic_{name}", opcode, rules=(ALIGNMENT,))(body)

    def buffer_body(memory: Any, sbase: Any, smem_offset: Any, data0: Any, glc: Any) -> Any:
        address, available = _place(sbase, smem_offset)
        old = memory.atomic(address, [data0.bits(kind)], operation, available >= kind.width // 32)
        return old.bits(registers) if glc else None

    buffer_body.__annotations__ = {**BUFFER, "data0": registers, "glc": int, "return": returned}
    buffer_body.__doc__ = f"t = {operation.__doc__} {kind.__name__} in a buffer; D = the old t if GLC. [12.6]"
    smem(f"s_buffer_atomic_{name}", opcode - 64, rules=(ALIGNMENT, BUFFER_RANGE))(buffer_body)


for _name, _number, _type, _operation in integer_atomics():
    _atomic(_name, 128 + _number, _type, _operation)


@smem("s_atomic_cmpswap", 129, rules=(ALIGNMENT,))
def s_atomic_cmpswap(memory: Scalar, address: U64, data0: U64, glc: int) -> U32 | None:
    """t == second data register ? first data register : t; D = the old t if GLC. [12.6]"""
    old = memory.atomic(address, compared_and_new(data0), compare_exchange)
    return old if glc else None


@smem("s_atomic_cmpswap_x2", 161, rules=(ALIGNMENT,))
def s_atomic_cmpswap_x2(memory: Scalar, address: U64, data0: B128, glc: int) -> U64 | None:
    """t == second pair of data registers ? first pair : t; D = the old t if GLC. [12.6]"""
    old = memory.atomic(address, compared_and_new(data0), compare_exchange)
    return old if glc else None


@smem("s_buffer_atomic_cmpswap", 65, rules=(ALIGNMENT, BUFFER_RANGE))
def s_buffer_atomic_cmpswap(memory: Scalar, sbase: B128, smem_offset: U64, data0: U64, glc: int) -> U32 | None:
    """S_ATOMIC_CMPSWAP in a buffer. [12.6]"""
    address, available = _place(sbase, smem_offset)
    old = memory.atomic(address, compared_and_new(data0), compare_exchange, available >= 1)
    return old if glc else None


@smem("s_buffer_atomic_cmpswap_x2", 97, rules=(ALIGNMENT, BUFFER_RANGE))
def s_buffer_atomic_cmpswap_x2(memory: Scalar, sbase: B128, smem_offset: U64, data0: B128, glc: int) -> U64 | None:
    """S_ATOMIC_CMPSWAP_X2 in a buffer. [12.6]"""
    address, available = _place(sbase, smem_offset)
    old = memory.atomic(address, compared_and_new(data0), compare_exchange, available >= 2)
    return old if glc else None
