"""FLAT, GLOBAL and SCRATCH loads and stores. [CDNA4 ISA 10, 12.15]

The segments differ in the address alone, which is finished when a body sees it; so one body serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gfx950.evidence import Evidence, rule
from gfx950.isa.registry import Global, Instruction, Lds, flat, global_, scratch
from gfx950.isa.subword import D16, set_high, set_low, sign_extend
from gfx950.lanes import B96, B128, LANES, U32, U64, join, split, static_lanes

TO_LDS = rule(
    "memory.load_to_lds",
    Evidence.spec,
    "CDNA4 ISA 10.3, 9.1.9",
    "A load to LDS writes dwords at M0[17:2] * 4 + offset + lane * 4, or lane * 16 for x4; the offset moves both sides;"
    " bytes and shorts are extended to a dword.",
)
TO_LDS_HOLES = rule(
    "memory.load_to_lds_holes",
    Evidence.chosen,
    "CDNA4 ISA 10.3, 9.1.9 are silent",
    "A load to LDS leaves a hole where a lane is inactive; lanes of x3 lie 16 bytes apart, as those of x4.",
)

F = TypeVar("F", bound=Callable[..., Any])


def _each_segment(name: str, opcode: int, **options: Any) -> Callable[[F], Instruction]:
    """Registers flat_`name`, scratch_`name` and global_`name`; gives the global one."""

    def define(body: F) -> Instruction:
        flat(f"flat_{name}", opcode, **options)(body)
        scratch(f"scratch_{name}", opcode, **options)(body)
        return global_(f"global_{name}", opcode, **options)(body)

    return define


@_each_segment("load_ubyte", 16)
def global_load_ubyte(memory: Global, address: U64) -> U32:
    """1 byte, zero-extended. [12.15]"""
    return memory.load(address, 1)[0]


@_each_segment("load_sbyte", 17)
def global_load_sbyte(memory: Global, address: U64) -> U32:
    """1 byte, sign-extended. [12.15]"""
    return sign_extend(memory.load(address, 1)[0], 8)


@_each_segment("load_ushort", 18)
def global_load_ushort(memory: Global, address: U64) -> U32:
    """2 bytes, zero-extended. [12.15]"""
    return memory.load(address, 2)[0]


@_each_segment("load_sshort", 19)
def global_load_sshort(memory: Global, address: U64) -> U32:
    """2 bytes, sign-extended. [12.15]"""
    return sign_extend(memory.load(address, 2)[0], 16)


@_each_segment("load_dword", 20)
def global_load_dword(memory: Global, address: U64) -> U32:
    """4 bytes. [12.15]"""
    return memory.load(address, 4)[0]


@_each_segment("load_dwordx2", 21)
def global_load_dwordx2(memory: Global, address: U64) -> U64:
    """8 bytes. [12.15]"""
    return join(*memory.load(address, 8))


@_each_segment("load_dwordx3", 22)
def global_load_dwordx3(memory: Global, address: U64) -> B96:
    """12 bytes. [12.15]"""
    return B96(memory.load(address, 12))


@_each_segment("load_dwordx4", 23)
def global_load_dwordx4(memory: Global, address: U64) -> B128:
    """16 bytes. [12.15]"""
    return B128(memory.load(address, 16))


@_each_segment("store_byte", 24)
def global_store_byte(memory: Global, address: U64, data0: U32) -> None:
    """Bits 7:0. [12.15]"""
    memory.store(address, [data0], 1)


@_each_segment("store_byte_d16_hi", 25)
def global_store_byte_d16_hi(memory: Global, address: U64, data0: U32) -> None:
    """Bits 23:16. [12.15]"""
    memory.store(address, [data0 >> 16], 1)


@_each_segment("store_short", 26)
def global_store_short(memory: Global, address: U64, data0: U32) -> None:
    """Bits 15:0. [12.15]"""
    memory.store(address, [data0], 2)


@_each_segment("store_short_d16_hi", 27)
def global_store_short_d16_hi(memory: Global, address: U64, data0: U32) -> None:
    """Bits 31:16. [12.15]"""
    memory.store(address, [data0 >> 16], 2)


@_each_segment("store_dword", 28)
def global_store_dword(memory: Global, address: U64, data0: U32) -> None:
    """4 bytes. [12.15]"""
    memory.store(address, [data0], 4)


@_each_segment("store_dwordx2", 29)
def global_store_dwordx2(memory: Global, address: U64, data0: U64) -> None:
    """8 bytes. [12.15]"""
    memory.store(address, split(data0), 8)


@_each_segment("store_dwordx3", 30)
def global_store_dwordx3(memory: Global, address: U64, data0: B96) -> None:
    """12 bytes. [12.15]"""
    memory.store(address, data0.words, 12)


@_each_segment("store_dwordx4", 31)
def global_store_dwordx4(memory: Global, address: U64, data0: B128) -> None:
    """16 bytes. [12.15]"""
    memory.store(address, data0.words, 16)


@_each_segment("load_ubyte_d16", 32, rules=(D16,))
def global_load_ubyte_d16(memory: Global, address: U64, vdst: U32) -> U32:
    """1 byte, zero-extended, into the low half. [12.15]"""
    return set_low(vdst, memory.load(address, 1)[0])


@_each_segment("load_ubyte_d16_hi", 33, rules=(D16,))
def global_load_ubyte_d16_hi(memory: Global, address: U64, vdst: U32) -> U32:
    """1 byte, zero-extended, into the high half. [12.15]"""
    return set_high(vdst, memory.load(address, 1)[0])


@_each_segment("load_sbyte_d16", 34, rules=(D16,))
def global_load_sbyte_d16(memory: Global, address: U64, vdst: U32) -> U32:
    """1 byte, sign-extended, into the low half. [12.15]"""
    return set_low(vdst, sign_extend(memory.load(address, 1)[0], 8))


@_each_segment("load_sbyte_d16_hi", 35, rules=(D16,))
def global_load_sbyte_d16_hi(memory: Global, address: U64, vdst: U32) -> U32:
    """1 byte, sign-extended, into the high half. [12.15]"""
    return set_high(vdst, sign_extend(memory.load(address, 1)[0], 8))


@_each_segment("load_short_d16", 36, rules=(D16,))
def global_load_short_d16(memory: Global, address: U64, vdst: U32) -> U32:
    """2 bytes into the low half. [12.15]"""
    return set_low(vdst, memory.load(address, 2)[0])


@_each_segment("load_short_d16_hi", 37, rules=(D16,))
def global_load_short_d16_hi(memory: Global, address: U64, vdst: U32) -> U32:
    """2 bytes into the high half. [12.15]"""
    return set_high(vdst, memory.load(address, 2)[0])


def _to_lds(name: str, opcode: int, words: int, widen: Callable[[tuple[U32, ...]], Sequence[U32]], nbytes: int) -> None:
    """A GLOBAL or SCRATCH load whose data go to LDS at M0 + offset + lane * 4 (lane * 16 for three and four dwords)."""

    def body(memory: Global, lds: Lds, address: U64, m0: U32, offset: int) -> None:
        signed = offset - 0x2000 if offset & 0x1000 else offset
        stride = 4 if words == 1 else 16
        place = (m0 & 0x3FFFC) + signed + static_lanes(m0.engine, [stride * lane for lane in range(LANES)])
        lds.store_late(place, widen(memory.load(address, nbytes)), 4 * words)

    body.__doc__ = f"{nbytes} bytes a lane from memory to {4 * words} bytes of LDS at M0 + offset. [10.3, 12.15]"
    global_(f"global_load_lds_{name}", opcode, rules=(TO_LDS, TO_LDS_HOLES))(body)
    if words == 1:
        scratch(f"scratch_load_lds_{name}", opcode, rules=(TO_LDS, TO_LDS_HOLES))(body)


_to_lds("ubyte", 38, 1, lambda words: words, 1)
_to_lds("sbyte", 39, 1, lambda words: [sign_extend(words[0], 8)], 1)
_to_lds("ushort", 40, 1, lambda words: words, 2)
_to_lds("sshort", 41, 1, lambda words: [sign_extend(words[0], 16)], 2)
_to_lds("dword", 42, 1, lambda words: words, 4)
_to_lds("dwordx4", 125, 4, lambda words: words, 16)
_to_lds("dwordx3", 126, 3, lambda words: words, 12)
